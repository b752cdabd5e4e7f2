//! Arguments that callers get wrong: `tests/c/bad_arguments.c`.

slicepool_tests::c_tests! { "tests/c/bad_arguments.c":
    every_unknown_flag_is_refused,
    every_unknown_flag_of_buffer_pools_is_refused,
    kinds_and_rules_that_do_not_exist_are_refused_by_name,
    reserved_fields_must_be_zero,
    callbacks_that_belong_together_are_given_together_or_refused_by_name,
    a_persistent_granule_and_a_margin_that_cannot_be_are_refused_by_name,
    pools_that_cannot_be_installed_are_refused_and_the_old_ones_stay,
}
