//! Without an operating system: no memory but what the program hands over, and `abort`, which the program provides.

use core::alloc::{GlobalAlloc, Layout};
use slicepool_core::LockKind;

/// Has no memory: the books go into a block, or to where the functions of `slicepool_host` say.
struct NoMemory;

// SAFETY: gives nothing, so nothing comes back.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoMemory = NoMemory;

/// What buffers that are pages are multiples of where there are no pages.
#[cfg(feature = "buffers")]
pub(crate) fn page_size() -> u64 {
    4096
}

/// The default lock: spins. Hooks that turn interrupts off are what a program with one core wants.
pub(crate) fn default_lock() -> LockKind {
    LockKind::spin()
}

/// Ends the program.
pub(super) fn end() -> ! {
    unsafe extern "C" {
        fn abort() -> !;
    }
    // SAFETY: does not come back.
    unsafe { abort() }
}
