//! What users ran into, fit and alignment, through the C library: `tests/c/scenarios_fit.c`.

slicepool_tests::c_tests! { "tests/c/scenarios_fit.c":
    a_space_serves_what_it_has_room_for,
    spaces_of_all_sizes_end_as_one_hole,
    equal_parts_fill_a_space_without_a_hidden_margin,
    a_perfect_fill_never_fails,
    the_largest_hole_is_kept_when_a_smaller_one_serves,
    a_refusal_with_holes_of_smaller_classes_takes_constant_time,
    the_error_carries_a_bound_and_the_query_the_exact_largest_hole,
    mixed_alignments_freed_in_any_order_leave_one_hole,
    a_full_pool_of_four_pages_has_exactly_the_hole_that_was_freed,
    a_page_whose_address_is_not_aligned_is_returned_and_reported,
    small_requests_of_a_pool_with_a_large_granule_lie_at_its_multiples,
    the_gap_in_front_of_an_aligned_slice_stays_allocatable,
    sizes_and_alignments_out_of_bounds_are_refused_and_change_nothing,
}
