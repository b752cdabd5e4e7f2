//! Out-parameters, of the wrong size and of calls that fail: `tests/c/bad_outputs.c`.

slicepool_tests::c_tests! { "tests/c/bad_outputs.c":
    an_out_struct_gets_at_most_what_its_caller_knows,
    a_plan_has_the_size_of_its_callers_structs_and_is_zero_beyond_what_the_library_knows,
    an_out_struct_of_a_size_that_cannot_be_is_refused_and_untouched,
    out_parameters_are_untouched_by_a_call_that_fails,
    a_failure_is_untouched_by_a_call_that_succeeds,
    plain_out_parameters_and_arrays_may_end_at_inaccessible_memory,
    a_default_is_refused_for_sizes_that_no_struct_has,
}
