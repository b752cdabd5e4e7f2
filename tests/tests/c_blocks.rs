//! Shared blocks: `tests/c/blocks.c`.

slicepool_tests::c_tests! { "tests/c/blocks.c":
    sizes_are_clamped_and_rounded,
    each_block_doubles_with_the_number_of_blocks,
    blocks_that_are_filled_one_after_the_other_follow_the_ladder,
    the_ladder_goes_down_with_the_blocks_that_go_back,
    requests_above_the_next_block_share_the_first_step_that_holds_them,
    no_block_takes_more_than_an_eighth_of_a_small_heap,
    what_is_left_of_a_heap_serves_in_smaller_blocks,
    sizes_that_are_rounded_are_told_and_others_are_not,
    the_pools_of_a_config_make_the_same_allocator,
    blocks_that_hold_nothing_stay_for_a_frame_and_go_back_in_time,
}
