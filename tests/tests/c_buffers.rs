//! Buffer pools through the C library: `tests/c/buffer_*.c`.

use slicepool_tests::assert_every_callback_calls_everything;

mod config {
    slicepool_tests::c_tests! { "tests/c/buffer_config.c":
        presets_are_as_the_header_says,
        ranges_and_lists_replace_the_classes,
        classes_come_and_go_one_by_one,
        limits_of_all_classes_change_together,
        budgets_scale_limits_exactly,
        budgets_that_do_not_work_tell_why,
        requests_are_routed_to_the_smallest_class_that_fits,
        caches_have_the_capacity_of_the_formulas,
        fields_that_contradict_each_other_are_refused_where_a_pool_is_made,
        functions_that_change_one_thing_commute,
    }
}

mod pools {
    slicepool_tests::c_tests! { "tests/c/buffer_pools.c":
        a_request_is_served_by_the_smallest_class_that_fits,
        a_request_of_nothing_gets_an_empty_buffer_and_takes_nothing,
        zeroed_buffers_are_zero_as_far_as_was_asked_for,
        memory_that_the_cpu_does_not_see_is_zeroed_by_the_device,
        memory_beyond_the_ceiling_is_asked_for_by_a_flag,
        a_second_release_is_refused_and_so_are_handles_of_others,
        forged_handles_are_refused_and_change_nothing,
        a_prefilled_pool_has_one_region_for_each_class,
        memory_comes_in_slabs_and_only_as_it_is_needed,
        a_pool_lives_in_blocks_of_the_program,
        pools_share_a_budget_and_keep_to_their_own_limits,
        a_closed_pool_gives_its_memory_back_with_the_last_buffer,
        a_pool_is_not_destroyed_before_its_buffers_and_caches,
        a_forced_destroy_takes_the_memory_of_buffers_that_are_out,
        an_abandoned_pool_says_no_word_to_the_device,
    }
}

mod caches {
    slicepool_tests::c_tests! { "tests/c/buffer_caches.c":
        capacities_follow_the_config,
        a_full_cache_spills_its_newer_half_and_an_empty_one_gets_half_of_what_it_holds,
        small_caches_pass_single_buffers_on,
        a_flush_gives_everything_back_of_all_classes,
        who_finds_nothing_is_told_of_caches_and_has_them_give_way,
        caches_end_before_or_after_their_pool_is_closed,
        a_cache_is_busy_in_callbacks_of_its_own_calls,
    }
}

mod failures {
    slicepool_tests::c_tests! { "tests/c/buffer_failures.c":
        every_device_call_may_fail,
        every_piece_of_host_memory_may_be_refused,
        a_device_that_takes_nothing_back_is_told_of_and_asked_again,
        nonsense_from_a_device_is_a_failed_device,
    }
}

mod threads {
    slicepool_tests::c_tests! { "tests/c/buffer_threads.c":
        a_class_of_64_has_61_free_after_129_acquired_and_126_released,
        the_largest_limit_costs_nothing,
        a_miss_costs_the_same_however_many_buffers_there_are,
        a_producer_gets_back_what_sits_in_its_consumers_cache,
        a_buffer_that_two_threads_release_is_released_once,
        buffers_of_four_threads_never_overlap,
        a_pool_that_is_closed_under_its_threads_gives_everything_back,
        a_pool_uses_the_locks_it_is_given,
        a_child_abandons_a_pool_and_its_caches_while_threads_are_at_work,
    }
}

mod reentrancy {
    slicepool_tests::c_tests! { "tests/c/buffer_reentrancy.c":
        allocate_in_buffer_acquire_with_the_spin_lock,
        allocate_in_buffer_acquire_with_lock_hooks,
        allocate_in_buffer_acquire_without_a_lock,
        allocate_in_buffer_acquire_with_a_cache_with_the_spin_lock,
        allocate_in_buffer_acquire_with_a_cache_with_lock_hooks,
        allocate_in_buffer_acquire_with_a_cache_without_a_lock,
        allocate_in_buffer_acquire_beyond_the_ceiling_with_the_spin_lock,
        allocate_in_buffer_acquire_beyond_the_ceiling_with_lock_hooks,
        allocate_in_buffer_acquire_beyond_the_ceiling_without_a_lock,
        deallocate_in_buffer_release_with_the_spin_lock,
        deallocate_in_buffer_release_with_lock_hooks,
        deallocate_in_buffer_release_without_a_lock,
        deallocate_in_the_last_release_with_the_spin_lock,
        deallocate_in_the_last_release_with_lock_hooks,
        deallocate_in_the_last_release_without_a_lock,
        deallocate_in_buffer_pool_close_with_the_spin_lock,
        deallocate_in_buffer_pool_close_with_lock_hooks,
        deallocate_in_buffer_pool_close_without_a_lock,
        deallocate_in_buffer_cache_flush_with_the_spin_lock,
        deallocate_in_buffer_cache_flush_with_lock_hooks,
        deallocate_in_buffer_cache_flush_without_a_lock,
        deallocate_in_buffer_cache_destroy_with_the_spin_lock,
        deallocate_in_buffer_cache_destroy_with_lock_hooks,
        deallocate_in_buffer_cache_destroy_without_a_lock,
        deallocate_in_buffer_pool_destroy_with_the_spin_lock,
        deallocate_in_buffer_pool_destroy_with_lock_hooks,
        deallocate_in_buffer_pool_destroy_without_a_lock,
        deallocate_in_a_forced_destroy_with_the_spin_lock,
        deallocate_in_a_forced_destroy_with_lock_hooks,
        deallocate_in_a_forced_destroy_without_a_lock,
        out_of_memory_in_buffer_acquire_with_the_spin_lock,
        out_of_memory_in_buffer_acquire_with_lock_hooks,
        out_of_memory_in_buffer_acquire_without_a_lock,
        event_in_buffer_acquire_with_the_spin_lock,
        event_in_buffer_acquire_with_lock_hooks,
        event_in_buffer_acquire_without_a_lock,
    }
}

#[test]
fn every_callback_calls_every_function_of_the_header() {
    assert_every_callback_calls_everything("tests/c/buffer_reentrancy.c", 12);
}
