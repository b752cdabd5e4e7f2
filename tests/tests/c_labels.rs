//! Names and user data: `tests/c/labels.c`.

slicepool_tests::c_tests! { "tests/c/labels.c":
    slices_of_every_pool_carry_names_and_pointers,
    what_is_attached_goes_with_the_slice,
    a_slice_keeps_what_is_attached_when_it_is_resized_and_pages_go,
    names_are_cut_between_characters_and_refused_if_they_are_no_text,
    slices_of_a_batch_have_names_of_their_own,
    a_name_for_which_there_is_no_host_memory_is_refused_and_changes_nothing,
    an_allocator_has_a_name_and_a_pointer,
}
