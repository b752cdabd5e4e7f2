//! Memory types and heaps: `tests/c/memory_types.c`.

slicepool_tests::c_tests! { "tests/c/memory_types.c":
    types_heaps_and_pools_that_cannot_be_are_refused_by_name,
    what_is_not_said_of_a_type_is_its_default,
    arrays_are_read_by_the_size_of_their_first_element,
    a_request_chooses_by_position_and_by_properties,
    a_request_falls_through_to_the_next_type_and_is_refused_with_the_reasons_of_all,
    a_heap_is_held_to_its_limit_and_named_in_the_refusal,
    pages_are_counted_on_every_path,
    within_its_budget_a_heap_is_asked_what_it_has_left,
    types_and_heaps_have_figures_of_their_own,
}
