//! Paths through the shared library: `paths.c`, which loads what `make` has built.

use crate::NamedPath;
use std::ffi::{CStr, c_char};

/// All of them.
pub const PATHS: [NamedPath; 2] = [
    ("c_churn_1000", "churn_1000 through the C library", c_churn_1000),
    ("c_buffer_hit", "a buffer acquired and released through a cache, by the C library", c_buffer_hit),
];

const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/capi/release/libslicepool.so\0");

unsafe extern "C" {
    fn walk_in_c(path: *const c_char, which: u32, walks: u64);
}

fn walk(which: u32, walks: u64) {
    let path = CStr::from_bytes_with_nul(LIBRARY.as_bytes()).expect("it ends");
    // SAFETY: the path ends, and is only read.
    unsafe { walk_in_c(path.as_ptr(), which, walks) }
}

fn c_churn_1000(walks: u64) {
    walk(0, walks);
}

fn c_buffer_hit(walks: u64) {
    walk(1, walks);
}
