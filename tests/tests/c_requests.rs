//! What requests may ask for besides memory: `tests/c/requests.c`.

slicepool_tests::c_tests! { "tests/c/requests.c":
    a_request_that_must_not_grow_is_served_from_what_is_held_or_refused_without_the_device,
    slices_with_pages_of_their_own_may_be_asked_not_to_grow_too,
    whether_a_request_would_grow_is_what_it_then_does,
    a_request_looks_at_so_many_holes_of_its_own_size_as_it_says,
    a_depth_holds_up_to_the_refusal,
    linear_and_optimal_resources_share_no_range_of_the_granularity,
    a_hole_beside_one_kind_of_resources_takes_the_other_beyond_the_range_they_would_share,
    a_page_that_holds_nothing_may_change_its_kind,
}
