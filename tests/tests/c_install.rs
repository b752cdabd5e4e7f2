//! Pools in place of others: `tests/c/install.c`.

slicepool_tests::c_tests! { "tests/c/install.c":
    pools_that_hold_a_slice_stay_and_empty_ones_make_way,
    whatever_the_pools_hold_is_in_the_way,
    handles_of_the_pools_that_went_are_foreign_and_persistent_slices_stay,
    limits_and_what_they_count_stay,
    timelines_and_what_they_have_completed_begin_anew_in_the_new_pools,
    a_page_that_the_device_does_not_take_back_keeps_the_pools,
    a_host_without_memory_keeps_the_pools,
    pools_that_are_installed_again_and_again_leave_nothing_behind,
    pools_that_would_be_adjusted_are_not_installed_where_that_is_validated,
    from_within_a_callback_no_pools_are_installed,
    while_new_pools_take_their_least_pages_a_callback_uses_them,
    from_within_completed_no_pools_are_installed,
}
