//! What users ran into, handles and misuse, through the C library: `tests/c/scenarios_handles.c`.

slicepool_tests::c_tests! { "tests/c/scenarios_handles.c":
    a_second_free_is_refused_and_the_next_slice_overlaps_nothing,
    a_handle_survives_the_cleanup_of_the_pages_around_it,
    the_oldest_handle_of_a_slot_is_refused_however_often_it_is_used,
    a_handle_of_another_object_is_foreign,
    everything_works_after_destroy_was_refused,
    only_the_id_of_a_slice_is_trusted,
}
