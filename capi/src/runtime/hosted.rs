//! On an operating system: memory, time and an end from the C library.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use slicepool_core::{LockKind, back_off};

/// The C library's allocator: the default of `slicepool_host`.
struct CAllocator;

// SAFETY: malloc and its relatives give memory that stays valid until it is freed; the size is passed on, and an
// alignment that malloc does not promise goes to the function that takes one.
unsafe impl GlobalAlloc for CAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: plain calls into the C library.
        unsafe {
            if layout.align() <= align_of::<libc::max_align_t>() {
                return libc::malloc(layout.size()).cast();
            }
            aligned::allocate(layout)
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `alloc` with the same layout, so from the same branch.
        unsafe {
            if layout.align() <= align_of::<libc::max_align_t>() {
                libc::free(memory.cast());
            } else {
                aligned::free(memory);
            }
        }
    }
}

#[cfg(not(windows))]
mod aligned {
    use core::alloc::Layout;

    pub(super) unsafe fn allocate(layout: Layout) -> *mut u8 {
        let mut memory = core::ptr::null_mut();
        // SAFETY: the alignment is a power of two above that of max_align_t, so a multiple of a pointer's size.
        let failed = unsafe { libc::posix_memalign(&raw mut memory, layout.align(), layout.size()) } != 0;
        if failed { core::ptr::null_mut() } else { memory.cast() }
    }

    pub(super) unsafe fn free(memory: *mut u8) {
        // SAFETY: from posix_memalign.
        unsafe { libc::free(memory.cast()) }
    }
}

#[cfg(windows)]
mod aligned {
    use core::alloc::Layout;

    pub(super) unsafe fn allocate(layout: Layout) -> *mut u8 {
        // SAFETY: the alignment is a power of two.
        unsafe { libc::aligned_malloc(layout.size(), layout.align()).cast() }
    }

    pub(super) unsafe fn free(memory: *mut u8) {
        // SAFETY: from aligned_malloc.
        unsafe { libc::aligned_free(memory.cast()) }
    }
}

#[global_allocator]
static ALLOCATOR: CAllocator = CAllocator;

#[cfg(feature = "buffers")]
pub(crate) use machine::page_size;

#[cfg(unix)]
mod machine {
    /// Bytes of a page of the machine's memory; 4,096 where nothing says.
    #[cfg(feature = "buffers")]
    #[cold]
    pub(crate) fn page_size() -> u64 {
        // SAFETY: asks for a constant.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        u64::try_from(size).ok().filter(|&size| size != 0).unwrap_or(4096)
    }

    pub(super) fn yield_now() {
        // SAFETY: takes no argument and cannot fail in a way that matters.
        unsafe { libc::sched_yield() };
    }

    pub(super) fn sleep_a_little() {
        // SAFETY: the time is valid; that it may be cut short does not matter.
        unsafe { libc::nanosleep(&libc::timespec { tv_sec: 0, tv_nsec: 50_000 }, core::ptr::null_mut()) };
    }
}

#[cfg(windows)]
mod machine {
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn SwitchToThread() -> i32;
        fn Sleep(milliseconds: u32);
    }

    /// Bytes of a page of the machine's memory, which is the same wherever Windows runs.
    #[cfg(feature = "buffers")]
    pub(crate) fn page_size() -> u64 {
        4096
    }

    pub(super) fn yield_now() {
        // SAFETY: takes no argument and cannot fail in a way that matters.
        unsafe { SwitchToThread() };
    }

    pub(super) fn sleep_a_little() {
        // SAFETY: always defined.
        unsafe { Sleep(1) };
    }
}

#[cfg(not(any(unix, windows)))]
mod machine {
    /// Nothing says how many bytes a page of the machine's memory has.
    #[cfg(feature = "buffers")]
    pub(crate) fn page_size() -> u64 {
        4096
    }

    /// Nothing is known of threads.
    pub(super) fn yield_now() {
        (0..100).for_each(|_| core::hint::spin_loop());
    }

    pub(super) fn sleep_a_little() {
        yield_now();
    }
}

/// Tries after which a waiting thread gives up the CPU, and after which it does so for longer: what it waits for is no lock
/// any more, but another thread's device call.
const TRIES_BEFORE_YIELD: u32 = 8;
const TRIES_BEFORE_SLEEP: u32 = 256;

/// The default lock: spins with growing pauses, then lets other threads run.
pub(crate) fn default_lock() -> LockKind {
    unsafe extern "C" fn wait(user_data: *mut c_void, attempt: u32) {
        if attempt < TRIES_BEFORE_YIELD {
            return back_off(user_data, attempt);
        }
        if attempt < TRIES_BEFORE_SLEEP {
            machine::yield_now();
        } else {
            machine::sleep_a_little();
        }
    }
    // SAFETY: `wait` may be called by any thread, calls nothing of slicepool and does not unwind.
    unsafe { LockKind::spin_with(core::ptr::null_mut(), wait) }
}

/// Ends the process.
pub(super) fn end() -> ! {
    // SAFETY: does not come back.
    unsafe { libc::abort() }
}
