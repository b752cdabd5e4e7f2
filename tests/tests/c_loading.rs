//! Loading and unloading the shared library: `tests/c/loading.c`.

use slicepool_tests::{Link, STRICT, compile, library, run};
use std::time::Duration;

fn run_with_library(test: &str) {
    let flags = [STRICT, &["-std=c11"]].concat();
    for profile in ["release", "dev"] {
        let library = library(profile);
        let program = compile("tests/c/loading.c", &library, Link::Nothing, &flags);
        let path = library.shared.to_str().expect("a path in UTF-8");
        run(&program, &["--library", path, test], Duration::from_secs(60));
    }
}

#[test]
fn the_library_is_loaded_used_and_unloaded_again_and_again() {
    run_with_library("the_library_is_loaded_used_and_unloaded_again_and_again");
}

#[test]
fn threads_load_use_and_unload_the_library_and_end() {
    run_with_library("threads_load_use_and_unload_the_library_and_end");
}

#[test]
fn a_thread_that_has_used_the_library_ends_after_it_is_unloaded() {
    run_with_library("a_thread_that_has_used_the_library_ends_after_it_is_unloaded");
}
