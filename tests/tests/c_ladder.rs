//! What is tried before a request is refused: `tests/c/ladder.c`.

slicepool_tests::c_tests! { "tests/c/ladder.c":
    everything_is_tried_in_the_order_that_the_header_says,
    a_free_range_that_takes_a_long_look_to_find_serves_before_pages_are_given_back,
    pages_that_hold_nothing_go_back_the_oldest_first_and_only_as_many_as_it_takes,
    what_the_device_is_done_with_serves_a_request_that_would_be_refused,
    a_device_that_does_not_know_what_it_has_done_helps_nobody,
    a_shortage_says_what_is_refused_and_why_at_most_eight_times,
    nobody_is_told_of_requests_that_no_free_would_help,
    any_answer_but_retry_refuses_the_request,
    what_the_callback_frees_serves_the_request,
    a_callback_that_allocates_comes_to_an_end,
}
