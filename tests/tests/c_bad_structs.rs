//! Structs of wrong sizes, of older and newer callers: `tests/c/bad_structs.c`.

slicepool_tests::c_tests! { "tests/c/bad_structs.c":
    a_struct_size_that_cannot_be_is_refused,
    a_shorter_struct_is_zero_beyond_its_end,
    a_longer_struct_is_accepted_if_its_tail_is_zero,
    elements_of_an_array_must_have_the_size_of_the_first,
    an_out_struct_gets_at_most_what_its_caller_knows,
    an_out_struct_of_a_size_that_cannot_be_is_refused_and_untouched,
    out_parameters_are_untouched_by_a_call_that_fails,
    a_failure_is_untouched_by_a_call_that_succeeds,
    plain_out_parameters_and_arrays_may_end_at_inaccessible_memory,
    a_default_is_refused_for_sizes_that_no_struct_has,
}
