//! Frees that wait for the device, from several threads: `tests/c/waiting_threads.c`.

slicepool_tests::c_tests! { "tests/c/waiting_threads.c":
    memory_serves_again_only_when_its_last_user_has_been_completed,
    a_hundred_thousand_slices_on_three_timelines_from_four_threads_are_all_released,
    an_allocation_waits_less_than_100_microseconds_while_100000_slices_are_released,
    frees_that_wait_race_with_everything_else_without_harm,
}
