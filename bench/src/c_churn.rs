//! The churn through the shared library, in a loop that is C: `c/churn.c`.

use crate::churn::Churn;
use std::env;
use std::ffi::{CString, c_char, c_void};
use std::ptr::NonNull;

unsafe extern "C" {
    fn c_churn_open(path: *const c_char, page: u64, sizes: *const u64, live: u32) -> *mut c_void;
    fn c_churn_pairs(churn: *mut c_void, victims: *const u32, sizes: *const u64, count: u64);
    fn c_churn_close(churn: *mut c_void);
}

/// The shared library: what `make` has built, or what `SLICEPOOL_LIBRARY` names.
pub fn library() -> CString {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/capi/release/libslicepool.so");
    let path = env::var("SLICEPOOL_LIBRARY").unwrap_or_else(|_| built.into());
    CString::new(path).expect("a path without a zero")
}

/// A churn in the middle of its work.
pub struct CChurn {
    churn: NonNull<c_void>,
    victims: Vec<u32>,
    sizes: Vec<u64>,
    next: usize,
}

impl CChurn {
    /// Its name in tables.
    pub const NAME: &'static str = "slicepool pool, C";

    /// Filled, with one page of so many bytes; none if there is no shared library.
    pub fn fill(churn: &Churn, page: u64) -> Option<Self> {
        let live = u32::try_from(churn.fill.len()).expect("few enough");
        // SAFETY: the path ends, and there are as many sizes as are said.
        let opened = unsafe { c_churn_open(library().as_ptr(), page, churn.fill.as_ptr(), live) };
        let (victims, sizes) = churn.pairs.iter().copied().unzip();
        Some(Self { churn: NonNull::new(opened)?, victims, sizes, next: 0 })
    }

    /// Goes on with `pairs` pairs, from the start again after the last.
    pub fn pairs(&mut self, mut pairs: usize) {
        while pairs != 0 {
            let now = pairs.min(self.victims.len() - self.next);
            // SAFETY: so many victims and sizes are left, and every victim is below the number of slices.
            unsafe {
                let (victims, sizes) = (self.victims.as_ptr().add(self.next), self.sizes.as_ptr().add(self.next));
                c_churn_pairs(self.churn.as_ptr(), victims, sizes, now as u64);
            }
            self.next = (self.next + now) % self.victims.len();
            pairs -= now;
        }
    }
}

impl Drop for CChurn {
    fn drop(&mut self) {
        // SAFETY: opened above, closed once.
        unsafe { c_churn_close(self.churn.as_ptr()) }
    }
}
