//! What pools of every kind have in common, through the C library: `tests/c/kinds.c`.

slicepool_tests::c_tests! { "tests/c/kinds.c":
    a_hundred_thousand_equal_slices_call_device_and_host_no_more_than_one,
    the_steady_path_gets_no_host_memory_in_any_kind_of_pool,
    whichever_host_allocation_fails_everything_is_as_before_in_any_kind_of_pool,
    a_handle_of_a_pool_of_any_kind_is_foreign_to_every_other_allocator,
    a_handle_guessed_for_a_pool_of_another_kind_is_refused,
    threads_that_ask_for_nothing_or_for_the_same_at_once_get_distinct_slices,
    two_threads_that_grow_into_room_for_one_page_both_get_an_answer_from_any_kind,
    a_cleanup_during_a_growth_gives_back_nothing_that_the_growth_uses,
    threads_that_share_pools_of_all_kinds_leave_balanced_books,
}
