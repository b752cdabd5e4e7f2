//! Allocators that keep their books in one block of memory: `tests/c/block.c`.

slicepool_tests::c_tests! { "tests/c/block.c":
    an_allocator_lies_in_its_block_and_asks_for_no_other_memory,
    blocks_of_every_small_size_work_or_are_refused_and_nothing_around_them_is_touched,
    a_host_with_memory_of_its_own_is_refused_and_one_with_a_lock_is_fine,
    a_config_is_refused_alike_with_and_without_a_block,
    a_block_is_the_callers_again_when_its_allocator_is_gone,
    a_full_block_refuses_what_needs_more_and_everything_else_works,
    a_block_of_the_bytes_needed_is_never_full,
    threads_find_a_block_of_the_bytes_needed_never_full,
    more_slices_and_pages_need_no_less_and_too_many_are_refused,
}
