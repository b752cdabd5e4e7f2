//! Frees that wait for the device: `tests/c/waiting.c`.

slicepool_tests::c_tests! { "tests/c/waiting.c":
    a_slice_that_waits_serves_nothing_before_its_value_has_been_collected,
    a_slice_of_two_timelines_waits_until_both_have_passed,
    a_slice_of_many_timelines_waits_for_the_last_of_them_in_any_order,
    of_several_points_on_one_timeline_the_largest_counts,
    what_has_been_passed_already_is_not_waited_for,
    values_that_fall_release_late_and_never_early,
    a_page_of_slices_that_wait_stays_and_its_allocator_cannot_go_away,
    a_page_can_go_when_the_last_slice_in_it_is_released,
    a_walk_shows_what_waits_without_its_handle,
    many_slices_wait_for_the_same_or_none_is_freed,
    a_timeline_that_was_forgotten_begins_at_0_again,
    timelines_that_come_and_go_leave_the_metadata_constant,
    a_free_that_finds_no_host_memory_leaves_the_slice_live,
    collecting_releases_what_is_due_although_the_host_has_no_memory,
    a_block_of_the_bytes_needed_has_room_for_slices_that_wait,
}
