//! A lock that notices when its rules are broken.

use slicepool_core::LockKind;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

thread_local! {
    /// Watched locks this thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
    static BEFORE_NEXT: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Runs `action` once, when this thread is about to take a [`WatchedLock`]: puts another thread's work exactly there.
pub(crate) fn before_next(action: impl FnOnce() + 'static) {
    BEFORE_NEXT.set(Some(Box::new(action)));
}

/// Whether this thread is inside a [`WatchedLock`].
pub(crate) fn is_held_here() -> bool {
    HELD.get() != 0
}

/// Lock hooks over one flag for everything, which count how often they are called and how often wrongly.
#[derive(Default)]
pub(crate) struct WatchedLock {
    locked: AtomicBool,
    taken: AtomicU64,
    faults: AtomicU64,
}

impl WatchedLock {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Hooks that lead here. The lock must outlive the allocator.
    pub(crate) fn kind(&self) -> LockKind {
        // SAFETY: `lock` waits for the flag, neither function calls into slicepool or unwinds.
        unsafe { LockKind::hooks((&raw const *self).cast_mut().cast(), lock, unlock) }
    }

    /// How often the lock was taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Panics if the lock was taken twice by one thread or given up by somebody who did not hold it, or is held.
    pub(crate) fn assert_used_rightly(&self) {
        assert_eq!(self.faults.load(Ordering::Relaxed), 0, "lock hooks were nested or unpaired");
        assert!(!self.locked.load(Ordering::Relaxed), "a lock was not given up");
        assert!(self.taken() > 0, "the lock hooks were never called");
    }
}

unsafe extern "C" fn lock(user_data: *mut c_void) {
    // SAFETY: `kind` passed a `WatchedLock`, which outlives the allocator.
    let it = unsafe { &*user_data.cast::<WatchedLock>() };
    if let Some(action) = BEFORE_NEXT.take() {
        action();
    }
    it.taken.fetch_add(1, Ordering::Relaxed);
    if HELD.get() != 0 {
        // Waiting would be for ever. Whoever called gets in and the test fails later.
        it.faults.fetch_add(1, Ordering::Relaxed);
    } else {
        while it.locked.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
    HELD.set(HELD.get() + 1);
}

unsafe extern "C" fn unlock(user_data: *mut c_void) {
    // SAFETY: as in `lock`.
    let it = unsafe { &*user_data.cast::<WatchedLock>() };
    match HELD.get() {
        0 => {
            it.faults.fetch_add(1, Ordering::Relaxed);
        }
        1 => {
            HELD.set(0);
            it.locked.store(false, Ordering::Release);
        }
        more => HELD.set(more - 1),
    }
}

/// A spin lock that yields, for more threads than cores.
pub(crate) fn yielding() -> LockKind {
    unsafe extern "C" fn back_off(_: *mut c_void, attempt: u32) {
        if attempt < 4 { slicepool_core::back_off(std::ptr::null_mut(), attempt) } else { std::thread::yield_now() }
    }
    // SAFETY: the function ignores its first argument, does not call into slicepool and does not unwind.
    unsafe { LockKind::spin_with(std::ptr::null_mut(), back_off) }
}

/// A spin lock that sleeps: for threads that wait for what takes long.
pub(crate) fn sleeping() -> LockKind {
    unsafe extern "C" fn back_off(_: *mut c_void, attempt: u32) {
        match attempt {
            0..4 => slicepool_core::back_off(std::ptr::null_mut(), attempt),
            4..64 => std::thread::yield_now(),
            _ => std::thread::sleep(std::time::Duration::from_micros(50)),
        }
    }
    // SAFETY: as in `yielding`.
    unsafe { LockKind::spin_with(std::ptr::null_mut(), back_off) }
}
