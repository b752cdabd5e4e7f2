//! Every function called from within every callback: `tests/c/reentrancy.c`.

use slicepool_tests::{Suite, header, run};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

slicepool_tests::c_tests! { "tests/c/reentrancy.c":
    device_allocate_in_allocate_with_the_spin_lock,
    device_allocate_in_allocate_with_lock_hooks,
    device_allocate_in_allocate_without_a_lock,
    device_allocate_in_allocate_many_with_the_spin_lock,
    device_allocate_in_allocate_many_with_lock_hooks,
    device_allocate_in_allocate_many_without_a_lock,
    device_deallocate_in_trim_with_the_spin_lock,
    device_deallocate_in_trim_with_lock_hooks,
    device_deallocate_in_trim_without_a_lock,
    device_deallocate_in_cleanup_with_the_spin_lock,
    device_deallocate_in_cleanup_with_lock_hooks,
    device_deallocate_in_cleanup_without_a_lock,
    device_deallocate_in_failing_allocate_many_with_the_spin_lock,
    device_deallocate_in_failing_allocate_many_with_lock_hooks,
    device_deallocate_in_failing_allocate_many_without_a_lock,
    device_deallocate_of_a_misaligned_page_with_the_spin_lock,
    device_deallocate_of_a_misaligned_page_with_lock_hooks,
    device_deallocate_of_a_misaligned_page_without_a_lock,
    device_deallocate_in_destroy_with_the_spin_lock,
    device_deallocate_in_destroy_with_lock_hooks,
    device_deallocate_in_destroy_without_a_lock,
    device_deallocate_in_forced_destroy_with_the_spin_lock,
    device_deallocate_in_forced_destroy_with_lock_hooks,
    device_deallocate_in_forced_destroy_without_a_lock,
    device_deallocate_in_install_pools_with_the_spin_lock,
    device_deallocate_in_install_pools_with_lock_hooks,
    device_deallocate_in_install_pools_without_a_lock,
    device_allocate_in_resolve_with_the_spin_lock,
    device_allocate_in_resolve_with_lock_hooks,
    device_allocate_in_resolve_without_a_lock,
    completed_in_allocate_with_the_spin_lock,
    completed_in_allocate_with_lock_hooks,
    completed_in_allocate_without_a_lock,
    out_of_memory_in_allocate_with_the_spin_lock,
    out_of_memory_in_allocate_with_lock_hooks,
    out_of_memory_in_allocate_without_a_lock,
    fill_with_zeros_in_allocate_with_the_spin_lock,
    fill_with_zeros_in_allocate_with_lock_hooks,
    fill_with_zeros_in_allocate_without_a_lock,
    scrub_in_free_with_the_spin_lock,
    scrub_in_free_with_lock_hooks,
    scrub_in_free_without_a_lock,
    scrub_in_collect_with_the_spin_lock,
    scrub_in_collect_with_lock_hooks,
    scrub_in_collect_without_a_lock,
    scrub_in_forced_destroy_with_the_spin_lock,
    scrub_in_forced_destroy_with_lock_hooks,
    scrub_in_forced_destroy_without_a_lock,
    walk_callback_with_the_spin_lock,
    walk_callback_with_lock_hooks,
    walk_callback_without_a_lock,
    space_walk_callback_with_the_spin_lock,
    space_walk_callback_with_lock_hooks,
    space_walk_callback_without_a_lock,
    a_slice_that_a_callback_of_destroy_takes_is_not_lost,
}

#[test]
fn every_callback_calls_every_function_of_the_header() {
    let program = Suite::checked("tests/c/reentrancy.c").program(&[]);
    let output = run(&program, &[], Duration::from_secs(60));
    let mut called: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for line in output.lines().filter(|line| !line.starts_with("ok ")) {
        let (callback, function) = line.split_once(' ').expect("callback and function");
        called.entry(callback).or_default().insert(function.to_owned());
    }
    let expected = header().functions;
    assert_eq!(called.len(), 18, "{:?}", called.keys());
    for (callback, functions) in called {
        assert_eq!(functions, expected, "{callback}");
    }
}
