//! What users ran into, threads and callbacks, through the C library: `tests/c/scenarios_threads.c`.

slicepool_tests::c_tests! { "tests/c/scenarios_threads.c":
    slices_of_four_threads_never_overlap,
    all_functions_race_with_each_other_without_harm,
    a_handle_that_two_threads_free_is_freed_once,
    a_query_races_with_frees_and_is_right_or_stale,
    a_device_callback_may_allocate_and_free_but_not_destroy,
    a_callback_of_destroy_is_told_busy_when_it_destroys,
    nonsense_from_a_device_is_a_failed_device_and_leaks_nothing,
    two_threads_that_grow_into_room_for_one_page_both_get_an_answer,
    pages_taken_by_a_call_that_fails_half_way_go_back,
    a_page_that_the_device_refuses_is_kept_and_asked_about_again,
    a_forced_destroy_gives_back_pages_with_live_slices_once_each,
    an_abandoned_allocator_says_no_word_to_the_device,
}
