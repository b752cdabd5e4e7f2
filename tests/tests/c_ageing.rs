//! Pages that go back by age or by a trim, through the C library: `tests/c/ageing.c`.

slicepool_tests::c_tests! { "tests/c/ageing.c":
    of_eight_fresh_pages_four_go_with_the_twelfth_request_after_and_three_with_the_next,
    allocations_in_one_pool_age_the_pages_of_another,
    the_more_often_a_page_was_used_again_the_longer_it_stays,
    a_page_that_was_used_all_the_time_goes_after_a_whole_period_without_use,
    a_page_with_a_slice_does_not_age_and_comings_and_goings_in_it_do_not_refresh_it,
    periods_of_any_length_are_honoured,
    every_pool_has_a_period_of_its_own,
    refused_requests_do_not_count_and_batches_count_by_their_slices,
    four_pages_go_with_one_allocation_whichever_pools_they_are_in,
    pages_go_in_the_order_in_which_they_grew_too_old,
    a_page_that_is_overdue_stays_if_it_is_used_before_its_turn,
    ageing_leaves_as_many_bytes_as_the_pool_is_to_keep,
    an_aged_page_that_the_device_refuses_is_stuck_and_the_allocation_succeeds,
    with_a_short_period_what_is_held_follows_sizes_that_grow,
    pages_that_age_can_be_trimmed_as_well,
    by_default_what_is_not_used_any_more_goes_back,
    a_trim_of_several_pools_gives_back_what_has_been_idle_the_longest,
    live_pages_of_all_pools_count_towards_the_floor_of_a_trim,
    a_page_that_is_too_large_to_go_holds_up_its_own_pool_only,
    a_trim_does_not_ask_what_ageing_is_to_keep,
}
