//! Filled slices and margins that show faults: `tests/c/debugging.c`.

slicepool_tests::c_tests! { "tests/c/debugging.c":
    nothing_is_written_to_a_page_with_device_data,
    a_new_slice_and_a_freed_one_catch_the_eye,
    memory_that_the_device_still_uses_is_left_alone_until_that_is_over,
    zeros_that_were_asked_for_are_zeros,
    memory_that_the_cpu_does_not_see_is_not_touched,
    a_margin_of_whole_granules_lies_behind_every_slice,
    a_slice_and_its_margin_fill_a_page,
    pages_of_one_slice_take_what_they_take_without_margins,
    slices_of_no_bytes_are_handed_out_with_margins_too,
    a_byte_behind_a_slice_that_was_written_to_is_found_when_it_is_freed,
    a_look_finds_one_damaged_margin_after_the_other,
    a_slice_that_is_resized_has_its_margin_behind_its_new_end,
    an_allocator_with_damaged_margins_can_be_destroyed,
    without_margins_and_filling_nothing_is_touched,
    a_look_at_margins_while_slices_come_and_go_finds_nothing,
    a_look_at_margins_while_a_slice_is_resized_finds_nothing,
}
