//! Slices that the device fills: `tests/c/filling.c`.

slicepool_tests::c_tests! { "tests/c/filling.c":
    a_slice_is_filled_with_zeros_before_it_is_handed_out,
    a_slice_that_is_not_filled_is_not_handed_out,
    a_device_that_cannot_fill_supports_neither,
    a_look_for_room_says_that_the_device_cannot_fill,
    host_memory_is_zero_where_it_was_asked_for_and_nowhere_else,
    what_was_in_a_slice_is_overwritten_before_its_memory_serves_again,
    what_is_not_overwritten_stays_pending_and_is_tried_again,
    a_fill_that_is_under_way_is_waited_for,
    a_slice_that_waits_is_overwritten_when_the_device_is_done_with_it,
    a_slice_that_is_to_be_overwritten_keeps_its_size,
    a_forced_destroy_overwrites_what_it_can,
    persistent_slices_are_filled_like_others,
    slices_of_a_dry_run_are_filled_only_where_they_have_memory,
}
