//! Slices that live as long as the program: `tests/c/persistent.c`.

slicepool_tests::c_tests! { "tests/c/persistent.c":
    a_persistent_slice_takes_no_page_of_the_pools_and_stays_until_the_cleanup,
    a_free_one_serves_requests_of_exactly_its_size,
    sizes_that_are_rounded_alike_use_each_others_slices_again_and_again,
    the_granule_is_256_unless_the_config_says_otherwise,
    before_there_was_one_there_is_no_pool_of_them,
    they_are_in_no_pool_of_the_list_and_never_without_bytes,
    a_look_tells_whether_a_free_one_has_the_size,
    free_ones_make_no_way_for_other_requests,
    they_are_resized_and_freed_like_others,
    they_wait_for_the_device_like_others,
    of_many_that_are_refused_in_the_middle_no_page_is_left,
    a_block_counts_on_them_where_the_config_names_their_granule,
    four_threads_that_take_the_first_ones_share_one_pool,
}
