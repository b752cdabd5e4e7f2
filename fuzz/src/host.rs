//! Host memory that is counted, and sometimes short.

use slicepool_core::HostMemory;
use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

/// How much there is.
const MOST_BYTES: u64 = 1 << 26;

/// The memory; lives longer than whatever has its books there.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pieces: Cell<u64>,
    bytes: Cell<u64>,
    /// Calls until one fails.
    fails_in: Cell<Option<u32>>,
    /// How often it has.
    failures: Cell<u64>,
}

impl Host {
    pub(crate) fn memory(&self) -> HostMemory {
        // SAFETY: both functions give memory of the global allocator and take it back; one thread uses them.
        unsafe { HostMemory::new(self.user_data(), allocate, deallocate) }
    }

    /// The first argument of [`allocate`] and [`deallocate`].
    pub(crate) fn user_data(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The call after so many more finds no memory.
    pub(crate) fn fail_in(&self, calls: Option<u32>) {
        self.fails_in.set(calls);
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// Whether everything has come back.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.get() == 0 && self.bytes.get() == 0
    }
}

/// Gives memory of a [`Host`].
pub(crate) unsafe extern "C" fn allocate(user_data: *mut c_void, size: u64, alignment: u64) -> *mut c_void {
    // SAFETY: what `user_data` answered.
    let host = unsafe { &*user_data.cast::<Host>() };
    let left = host.fails_in.get();
    host.fails_in.set(left.and_then(|calls| calls.checked_sub(1)));
    if left == Some(0) || size > MOST_BYTES - host.bytes.get() {
        host.failures.set(host.failures.get() + 1);
        return ptr::null_mut();
    }
    let layout = Layout::from_size_align(size as usize, alignment as usize).expect("a layout that can be");
    assert_ne!(size, 0, "nothing was asked for");
    host.pieces.set(host.pieces.get() + 1);
    host.bytes.set(host.bytes.get() + size);
    // SAFETY: the size is not 0.
    unsafe { std::alloc::alloc(layout).cast() }
}

/// Takes it back.
pub(crate) unsafe extern "C" fn deallocate(user_data: *mut c_void, memory: *mut c_void, size: u64, alignment: u64) {
    // SAFETY: what `user_data` answered.
    let host = unsafe { &*user_data.cast::<Host>() };
    let pieces = host.pieces.get().checked_sub(1).expect("more has come back than was given");
    host.pieces.set(pieces);
    host.bytes.set(host.bytes.get() - size);
    let layout = Layout::from_size_align(size as usize, alignment as usize).expect("the layout it was given with");
    // SAFETY: came from `allocate` with this layout, or the sanitizer says otherwise.
    unsafe { std::alloc::dealloc(memory.cast(), layout) };
}
