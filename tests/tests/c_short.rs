//! Limits that are reached and devices that are full: `tests/c/short.c`.

slicepool_tests::c_tests! { "tests/c/short.c":
    an_idle_page_does_not_keep_a_larger_one_from_fitting_under_a_limit,
    a_limit_of_64_megabytes_holds_eight_slices_of_8_and_two_of_32,
    a_page_that_the_device_cannot_give_is_halved,
    what_was_freed_does_not_count_against_the_limit,
    half_of_sixty_percent_freed_makes_room_for_sixty_percent,
    a_page_that_is_refused_is_told_with_the_devices_code_and_a_free_helps,
    a_page_too_many_is_refused_before_the_device_is_called,
    a_device_without_memory_is_told_before_a_pool_at_its_cap,
    free_pages_of_several_pools_go_back_for_a_request_of_another,
    pages_that_grow_are_halved_down_to_a_megabyte_and_then_are_what_is_needed,
    a_device_that_refused_is_asked_again_after_64_failures_and_then_after_twice_as_many,
    a_page_that_was_given_back_ends_the_pause,
    a_smaller_page_is_asked_for_although_a_larger_one_was_refused,
    a_program_that_grows_step_by_step_holds_little_more_than_its_peak,
}
