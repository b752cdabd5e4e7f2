//! Host memory that is counted, and that runs out on demand.

use super::lock;
use slicepool_core::HostMemory;
use std::alloc::Layout;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;

/// The functions of a [`HostMemory`], with a book of every block.
///
/// Blocks come filled with rubbish and are filled with other rubbish before they go. Wrong use is noted and reported
/// by [`HostLedger::assert_used_rightly`] and on drop, because nothing may unwind out of the functions themselves.
#[derive(Default)]
pub(crate) struct HostLedger(Mutex<Book>);

#[derive(Default)]
struct Book {
    blocks: HashMap<usize, (u64, u64)>,
    bytes: u64,
    calls: u64,
    failing: Failing,
    refused: u64,
    faults: Vec<String>,
}

/// Which calls fail, counted down from now on.
#[derive(Clone, Copy, Default)]
enum Failing {
    #[default]
    Never,
    Once(u64),
    From(u64),
}

impl HostLedger {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Host memory that is booked here. The ledger must outlive whatever uses it.
    pub(crate) fn memory(&self) -> HostMemory {
        // SAFETY: both functions lock a mutex of their own and pass on to the global allocator.
        unsafe { HostMemory::new((&raw const *self).cast_mut().cast(), allocate, deallocate) }
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The `k`-th allocation from now on, counted from 1, fails; those after it do not.
    pub(crate) fn fail_once(&self, k: u64) {
        self.book().failing = Failing::Once(k);
    }

    /// The `k`-th allocation from now on, counted from 1, fails, and so does every later one.
    pub(crate) fn fail_from(&self, k: u64) {
        self.book().failing = Failing::From(k);
    }

    pub(crate) fn stop_failing(&self) {
        self.book().failing = Failing::Never;
    }

    /// Allocations asked for.
    pub(crate) fn calls(&self) -> u64 {
        self.book().calls
    }

    /// Allocations refused.
    pub(crate) fn refused(&self) -> u64 {
        self.book().refused
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.book().bytes
    }

    /// Panics if memory was given back that was not held, or with another size, or if a lock was held during a call.
    pub(crate) fn assert_used_rightly(&self) {
        assert_eq!(self.book().faults, Vec::<String>::new());
    }

    /// Panics if anything is still held.
    pub(crate) fn assert_all_returned(&self) {
        self.assert_used_rightly();
        let book = self.book();
        assert_eq!((book.blocks.len(), book.bytes), (0, 0), "host memory was not given back");
    }
}

impl Drop for HostLedger {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_all_returned();
        }
    }
}

unsafe extern "C" fn allocate(user_data: *mut c_void, size: u64, alignment: u64) -> *mut c_void {
    // SAFETY: `memory` passed a `HostLedger`, which outlives the user of its memory.
    let mut book = unsafe { &*user_data.cast::<HostLedger>() }.book();
    book.calls += 1;
    if lock::is_held_here() {
        book.faults.push(format!("{size} bytes were asked for under a lock"));
    }
    let fails = match &mut book.failing {
        Failing::Never => false,
        Failing::Once(k) | Failing::From(k) if *k > 1 => {
            *k -= 1;
            false
        }
        Failing::Once(_) => {
            book.failing = Failing::Never;
            true
        }
        Failing::From(_) => true,
    };
    let layout = Layout::from_size_align(size as usize, alignment as usize);
    let Some(layout) = layout.ok().filter(|layout| layout.size() != 0 && !fails) else {
        if !fails {
            book.faults.push(format!("{size} bytes at {alignment} were asked for"));
        }
        book.refused += 1;
        return ptr::null_mut();
    };
    // SAFETY: the layout's size is not 0.
    let memory = unsafe { std::alloc::alloc(layout) };
    assert!(!memory.is_null());
    // SAFETY: just allocated with this size.
    unsafe { memory.write_bytes(0xA5, layout.size()) };
    book.bytes += size;
    book.blocks.insert(memory.addr(), (size, alignment));
    memory.cast()
}

unsafe extern "C" fn deallocate(user_data: *mut c_void, memory: *mut c_void, size: u64, alignment: u64) {
    // SAFETY: as in `allocate`.
    let mut book = unsafe { &*user_data.cast::<HostLedger>() }.book();
    if lock::is_held_here() {
        book.faults.push(format!("{size} bytes were given back under a lock"));
    }
    if book.blocks.get(&memory.addr()) != Some(&(size, alignment)) {
        book.faults.push(format!("{size} bytes at {alignment} were given back, which were not held"));
        return;
    }
    book.blocks.remove(&memory.addr());
    book.bytes -= size;
    // SAFETY: the block was allocated with this size and alignment, and is not used any more.
    unsafe {
        memory.cast::<u8>().write_bytes(0xD5, size as usize);
        std::alloc::dealloc(memory.cast(), Layout::from_size_align_unchecked(size as usize, alignment as usize));
    }
}
