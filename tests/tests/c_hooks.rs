//! The host side, memory and locks, through the C library: `tests/c/hooks.c`.

slicepool_tests::c_tests! { "tests/c/hooks.c":
    host_memory_is_given_back_as_it_was_got,
    the_figures_count_nearly_all_host_memory,
    the_steady_path_gets_no_host_memory,
    a_space_keeps_its_books_in_the_host_memory_too,
    the_table_of_hooks_is_copied,
    the_library_stays_inside_its_host_memory,
    every_host_allocation_may_fail_once,
    host_memory_may_be_gone_for_good,
    frees_and_queries_work_without_any_host_memory,
    lock_hooks_are_never_nested_nor_held_during_callbacks,
    threads_share_one_plain_mutex,
    allocators_may_share_one_mutex,
    no_lock_hook_is_called_when_the_caller_synchronises,
    a_request_waits_for_a_growing_page_by_the_wait_hook,
    the_wait_hook_serves_a_contended_spin_lock,
}
