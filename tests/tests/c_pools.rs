//! Sliced pools through the C library: `tests/c/pools.c`.

slicepool_tests::c_tests! { "tests/c/pools.c":
    a_capped_pool_refuses_above_its_cap_and_serves_again_after_a_free,
    a_cap_below_the_alignment_refuses_everything_without_calling_the_device,
    two_slices_share_a_page_that_holds_both,
    a_freed_page_is_used_again,
    a_slice_that_does_not_fit_gets_another_page,
    alignments_and_granules_that_are_no_powers_of_two_are_refused_by_name,
    holes_join_with_both_neighbours_and_with_the_tail,
    a_pool_of_two_pages_serves_what_two_pages_hold,
    the_hole_of_a_rounded_slice_takes_an_equal_one_again,
    a_page_that_was_cut_differently_is_given_back_when_it_is_empty,
    churn_leaves_the_page_exactly_its_size,
    more_pages_than_sixteen_bits_count_are_all_found_again,
    the_cap_counts_whole_pages_and_shrinks_a_page_above_it,
    options_that_contradict_themselves_are_refused_when_asked_to_validate,
    requests_that_nearly_fill_a_page_follow_the_rule_of_the_pool,
    memory_that_is_held_is_used_before_any_pool_grows,
    a_failing_device_is_reported_before_a_pool_at_its_cap,
}
