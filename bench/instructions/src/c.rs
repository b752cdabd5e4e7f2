//! Paths through the shared library, which `make` has built: the loops are C (`bench/c`).

use crate::NamedPath;
use crate::slices::{MADE, PAGE, Random};
use std::ffi::{CStr, c_char, c_int, c_void};

/// All of them.
pub const PATHS: [NamedPath; 2] = [
    ("c_churn_1000", "churn_1000 through the C library", c_churn_1000),
    ("c_buffer_hit", "a buffer acquired and released through a cache, by the C library", c_buffer_hit),
];

const LIBRARY: &CStr = {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/capi/release/libslicepool.so\0");
    match CStr::from_bytes_with_nul(path.as_bytes()) {
        Ok(path) => path,
        Err(_) => unreachable!(),
    }
};

unsafe extern "C" {
    fn c_churn_open(path: *const c_char, page: u64, sizes: *const u64, live: u32) -> *mut c_void;
    fn c_churn_pairs(churn: *mut c_void, victims: *const u32, sizes: *const u64, count: u64);
    fn c_buffer_hits(path: *const c_char, count: u64) -> c_int;
}

fn c_churn_1000(walks: u64) {
    let mut random = Random::new();
    let fill: Vec<u64> = (0..1_000).map(|_| random.size()).collect();
    let (mut victims, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..MADE {
        victims.push(random.below(1_000) as u32);
        sizes.push(random.size());
    }
    assert!(walks <= MADE as u64, "so many are made");
    // SAFETY: as many sizes and victims as are said, and victims below the number of slices.
    unsafe {
        let churn = c_churn_open(LIBRARY.as_ptr(), PAGE, fill.as_ptr(), 1_000);
        assert!(!churn.is_null(), "make builds the shared library");
        c_churn_pairs(churn, victims.as_ptr(), sizes.as_ptr(), walks);
    }
}

fn c_buffer_hit(walks: u64) {
    // SAFETY: the path ends.
    assert!(unsafe { c_buffer_hits(LIBRARY.as_ptr(), walks) } != 0, "make builds the shared library");
}
