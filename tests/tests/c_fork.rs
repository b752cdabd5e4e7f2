//! Allocators inherited by a forked child: `tests/c/fork.c`.

slicepool_tests::c_tests! { "tests/c/fork.c":
    a_child_abandons_while_threads_of_the_parent_were_at_work,
    a_callback_that_ran_at_the_fork_is_busy_unless_the_flag_says_forked,
    an_abandoned_allocator_frees_its_memory_and_takes_no_lock,
    a_child_of_a_quiet_parent_abandons_without_a_flag_too,
}
