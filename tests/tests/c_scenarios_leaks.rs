//! What users ran into, thrashing and leaks, through the C library: `tests/c/scenarios_leaks.c`.

slicepool_tests::c_tests! { "tests/c/scenarios_leaks.c":
    frames_above_a_page_cost_no_device_calls_after_the_first,
    equal_frames_leave_the_metadata_constant,
    varying_sizes_under_a_bound_stop_growing_after_the_warm_up,
    a_queue_of_transient_slices_costs_no_device_calls_after_the_warm_up,
    the_same_calls_give_the_same_places,
    rounds_of_two_slices_need_one_device_call_in_all,
    trim_gives_back_every_page_that_holds_nothing_live,
}
