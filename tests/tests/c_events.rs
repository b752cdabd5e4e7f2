//! What a program hears of an allocator: `tests/c/events.c`.

slicepool_tests::c_tests! { "tests/c/events.c":
    slices_are_told_from_their_beginning_to_their_end,
    pages_are_told_however_they_come_and_go,
    requests_that_cannot_be_served_are_told_with_the_reason,
    slices_are_told_only_if_asked_for,
    every_slice_that_is_live_at_the_end_is_told_whether_that_is_refused_or_forced,
    a_log_of_four_threads_replays_in_the_order_of_its_numbers,
}
