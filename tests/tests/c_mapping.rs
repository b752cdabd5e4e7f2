//! Mapping and caches: `tests/c/mapping.c`.

slicepool_tests::c_tests! { "tests/c/mapping.c":
    a_page_is_mapped_once_and_unmapped_by_the_last,
    a_page_that_goes_back_is_unmapped_whatever_its_count,
    pages_that_come_mapped_are_counted_only,
    what_a_device_cannot_do_is_not_supported,
    callbacks_that_fail_or_answer_nonsense_change_nothing,
    ranges_are_widened_to_whole_atoms_within_their_slice,
    coherent_memory_is_never_flushed,
    a_slice_of_a_dry_run_is_mapped_when_it_has_memory,
    threads_that_map_slices_of_one_page_wait_for_each_other,
}
