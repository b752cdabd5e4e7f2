//! Limits that allocators share: `tests/c/budgets.c`.

slicepool_tests::c_tests! { "tests/c/budgets.c":
    a_budget_counts_the_pages_of_all_its_allocators,
    bytes_are_limited_exactly_and_the_details_say_what_is_held,
    both_kinds_of_limits_hold,
    pages_that_grow_are_as_large_as_a_budget_has_room_for,
    a_page_that_the_device_does_not_give_takes_nothing_and_one_it_does_not_take_counts,
    a_refusal_makes_others_give_pages_back_that_hold_nothing_but_no_more_than_it_takes,
    freeing_a_slice_that_is_overwritten_gives_way_like_any_other_call,
    for_a_page_above_the_limit_nobody_gives_anything_back,
    ones_own_pages_that_hold_nothing_go_before_anybody_is_refused,
    limits_that_are_lowered_leave_what_is_held_and_free_pages_go,
    a_budget_lives_as_long_as_its_last_owner,
    an_allocator_that_goes_leaves_nothing_in_the_budget,
    an_allocator_that_does_not_come_to_be_is_no_owner,
    two_threads_that_grow_never_hold_more_than_ten_pages_together,
    owners_that_come_and_go_on_four_threads_leave_nothing_behind,
}
