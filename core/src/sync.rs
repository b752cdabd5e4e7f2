//! The one place that names locks and atomics.
//!
//! A [`Lock`] is one of three kinds, chosen when an allocator is created: a spin lock (the default), the caller's own
//! lock hooks, or nothing at all where the caller keeps threads apart. Rules that hold throughout the crate:
//!
//! - only bounded memory work happens under a lock: no callback, no host-memory function;
//! - a thread holds at most one lock at a time, so the hooks may all lead to one plain mutex.

use crate::canary::broken;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::hint::spin_loop;
use core::ops::{Deref, DerefMut};

#[cfg(not(feature = "portable-atomic"))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
#[cfg(feature = "portable-atomic")]
pub(crate) use portable_atomic::{AtomicPtr, AtomicU32, Ordering};

/// Locks that models know.
#[cfg(loom)]
use loom::sync as modelled;
#[cfg(shuttle)]
use shuttle::sync as modelled;

/// Numbers that rise, each handed out once; of 32 bits where there are no atomic numbers of 64.
pub(crate) struct Sequence(Counter);

#[cfg(all(target_has_atomic = "64", not(feature = "portable-atomic")))]
type Counter = core::sync::atomic::AtomicU64;
#[cfg(not(all(target_has_atomic = "64", not(feature = "portable-atomic"))))]
type Counter = AtomicU32;

impl Sequence {
    pub(crate) const fn new() -> Self {
        Self(Counter::new(1))
    }

    #[allow(clippy::useless_conversion, reason = "not useless where counters have 32 bits")]
    pub(crate) fn next(&self) -> u64 {
        // Numbers are compared among those that one lock orders.
        u64::from(self.0.fetch_add(1, Ordering::Relaxed)) ^ u64::from(broken("events_out_of_order"))
    }
}

/// A figure that only rises; of 32 bits, and around after that, where there are no atomic numbers of 64.
pub(crate) struct Count(Counter);

impl Count {
    pub(crate) const fn new() -> Self {
        Self(Counter::new(0))
    }

    #[allow(clippy::useless_conversion, reason = "not useless where counters have 32 bits")]
    pub(crate) fn get(&self) -> u64 {
        u64::from(self.0.load(Ordering::Relaxed))
    }

    /// One more, by any thread.
    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One more, by the one thread that counts: no locked instruction.
    #[inline(always)]
    pub(crate) fn raise_alone(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// So many more, by any thread.
    #[allow(clippy::useless_conversion, clippy::cast_possible_truncation, reason = "counters may have 32 bits")]
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more as _, Ordering::Relaxed);
    }
}

/// What a thread does between two tries for a spin lock; `attempt` counts from 0.
pub type BackOffFn = unsafe extern "C" fn(user_data: *mut c_void, attempt: u32);

/// Takes or gives up the caller's lock.
pub type LockFn = unsafe extern "C" fn(user_data: *mut c_void);

/// The default back-off: 2^4 pauses after the first failed try, doubling up to 2^10.
///
/// It never yields the CPU, because core knows no operating system. Where one exists, pass a function to
/// [`LockKind::spin_with`] that yields after some tries.
pub extern "C" fn back_off(_: *mut c_void, attempt: u32) {
    for _ in 0..1u32 << (4 + attempt.min(6)) {
        spin_loop();
    }
}

/// How an allocator keeps threads apart.
#[derive(Clone, Copy, Debug)]
pub struct LockKind(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Spin { user_data: *mut c_void, back_off: BackOffFn },
    Hooks { user_data: *mut c_void, lock: LockFn, unlock: LockFn },
    Unlocked,
}

// SAFETY: the contract of `LockKind::hooks` demands functions that any thread may call.
unsafe impl Send for LockKind {}
// SAFETY: as above.
unsafe impl Sync for LockKind {}

impl LockKind {
    /// A spin lock with [`back_off`].
    ///
    /// Wrong under fixed-priority real-time scheduling: a waiter of higher priority keeps the holder from ever
    /// running again. Use [`LockKind::hooks`] there.
    pub const fn spin() -> Self {
        Self(Kind::Spin { user_data: core::ptr::null_mut(), back_off })
    }

    /// A spin lock with another back-off function, called with `user_data`.
    ///
    /// # Safety
    /// `back_off` must be callable from every thread that uses the allocator, must not call into slicepool and must
    /// not unwind.
    pub const unsafe fn spin_with(user_data: *mut c_void, back_off: BackOffFn) -> Self {
        Self(Kind::Spin { user_data, back_off })
    }

    /// The caller's lock: a mutex, or interrupts off and on again. One lock may serve many allocators.
    ///
    /// # Safety
    /// `lock` must not return before every other holder has called `unlock`; both must be callable from every thread
    /// that uses the allocator, must not call into slicepool and must not unwind.
    pub const unsafe fn hooks(user_data: *mut c_void, lock: LockFn, unlock: LockFn) -> Self {
        Self(Kind::Hooks { user_data, lock, unlock })
    }

    /// No lock.
    ///
    /// # Safety
    /// The caller lets at most one thread at a time call into the allocator.
    pub const unsafe fn unlocked() -> Self {
        Self(Kind::Unlocked)
    }

    /// Waits a little, for the `attempt`-th time, for something another thread is doing.
    pub(crate) fn wait(&self, attempt: u32) {
        match self.0 {
            // SAFETY: the contract of `LockKind::spin_with`.
            Kind::Spin { user_data, back_off } => unsafe { back_off(user_data, attempt) },
            Kind::Hooks { .. } => back_off(core::ptr::null_mut(), attempt),
            // Nobody else can be doing anything.
            Kind::Unlocked => {}
        }
    }

    /// Whether other threads may be inside while this one waits.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self.0, Kind::Unlocked)
    }
}

/// A value that one thread at a time may touch.
///
/// The lock word has a cache line of its own: waiting threads would otherwise slow down the holder's work. Not where the
/// smallest books count for more.
#[cfg_attr(feature = "complete", repr(C, align(64)))]
#[cfg_attr(not(feature = "complete"), repr(C, align(16)))]
pub(crate) struct Lock<T> {
    gate: Gate,
    /// In models, whose locks have to be known to them.
    #[cfg(any(loom, shuttle))]
    modelled: modelled::Mutex<()>,
    value: OwnLine<UnsafeCell<T>>,
}

#[cfg_attr(feature = "complete", repr(align(64)))]
#[cfg_attr(not(feature = "complete"), repr(align(8)))]
struct OwnLine<T>(T);

// SAFETY: the value is reached through guards only, and the gate lets one exist at a time (the contracts of `LockKind`
// where the lock is not ours).
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: a lock owns its value.
unsafe impl<T: Send> Send for Lock<T> {}

/// What lets one in at a time.
struct Gate {
    word: spin::mutex::SpinMutex<()>,
    /// Threads that have found the spin lock taken and wait for it.
    waiting: AtomicU32,
    kind: LockKind,
}

/// Steps for which a thread gives way to those that wait, at most.
const GIVE_WAY_STEPS: u32 = 64;

impl Gate {
    #[inline(always)]
    fn enter(&self) {
        match self.kind.0 {
            Kind::Spin { .. } => match self.word.try_lock() {
                Some(word) => core::mem::forget(word),
                None => self.contend(),
            },
            // SAFETY: the contract of `LockKind::hooks`.
            Kind::Hooks { user_data, lock, .. } => unsafe { lock(user_data) },
            Kind::Unlocked => {}
        }
    }

    #[cold]
    fn contend(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut attempt = 0u32;
        loop {
            self.kind.wait(attempt);
            attempt = attempt.saturating_add(1);
            // Look before trying: a failed exchange would take the line from the holder.
            if self.word.is_locked() {
                continue;
            }
            if let Some(word) = self.word.try_lock() {
                core::mem::forget(word);
                break;
            }
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lets those in that wait. A thread that takes the lock again and again would mostly find it free before they do.
    fn give_way(&self) {
        let mut step = 0;
        while step < GIVE_WAY_STEPS && self.waiting.load(Ordering::Relaxed) != 0 {
            self.kind.wait(step);
            step += 1;
        }
    }

    /// # Safety
    /// The caller has entered and not left since.
    #[inline(always)]
    unsafe fn leave(&self) {
        match self.kind.0 {
            // SAFETY: `enter` has locked it.
            Kind::Spin { .. } => unsafe { self.word.force_unlock() },
            // SAFETY: the contract of `LockKind::hooks`; `enter` has called `lock`.
            Kind::Hooks { user_data, unlock, .. } => unsafe { unlock(user_data) },
            Kind::Unlocked => {}
        }
    }

    /// [`Gate::enter`] off the hot paths, of which there are many.
    #[cfg(not(any(loom, shuttle)))]
    #[inline(never)]
    fn enter_elsewhere(&self) {
        self.enter();
    }

    /// [`Gate::leave`] off the hot paths.
    ///
    /// # Safety
    /// As for [`Gate::leave`].
    #[inline(never)]
    unsafe fn leave_elsewhere(&self) {
        // SAFETY: passed on from the caller.
        unsafe { self.leave() }
    }
}

/// Access to a locked value. `HOT`: entering and leaving are part of the code that does so.
pub(crate) struct Guard<'a, T, const HOT: bool = false>(
    &'a Lock<T>,
    #[cfg(any(loom, shuttle))]
    #[allow(dead_code, reason = "gives up the modelled lock when it is dropped")]
    modelled::MutexGuard<'a, ()>,
);

impl<T> Lock<T> {
    #[cfg(any(loom, shuttle))]
    pub(crate) fn new(kind: LockKind, value: T) -> Self {
        let gate = Gate { word: spin::mutex::SpinMutex::new(()), waiting: AtomicU32::new(0), kind };
        Self { gate, modelled: modelled::Mutex::new(()), value: OwnLine(UnsafeCell::new(value)) }
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(crate) const fn new(kind: LockKind, value: T) -> Self {
        let gate = Gate { word: spin::mutex::SpinMutex::new(()), waiting: AtomicU32::new(0), kind };
        Self { gate, value: OwnLine(UnsafeCell::new(value)) }
    }

    /// The value, which nobody else can reach.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.0.get_mut()
    }

    pub(crate) fn kind(&self) -> &LockKind {
        &self.gate.kind
    }

    /// For a thread that will take the lock once more: lets those in before it that wait.
    #[cold]
    pub(crate) fn give_way(&self) {
        self.gate.give_way();
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        #[cfg(any(loom, shuttle))]
        return self.lock_modelled();
        #[cfg(not(any(loom, shuttle)))]
        {
            self.gate.enter_elsewhere();
            Guard(self)
        }
    }

    #[cfg(any(loom, shuttle))]
    fn lock_modelled<const HOT: bool>(&self) -> Guard<'_, T, HOT> {
        let guard = self.modelled.lock().unwrap();
        // Nobody else can be inside.
        self.gate.enter();
        Guard(self, guard)
    }

    /// [`Lock::lock`] for the few places where a call is too much.
    #[inline(always)]
    pub(crate) fn lock_hot(&self) -> Guard<'_, T, true> {
        #[cfg(any(loom, shuttle))]
        return self.lock_modelled();
        #[cfg(not(any(loom, shuttle)))]
        {
            self.gate.enter();
            Guard(self)
        }
    }
}

impl<T, const HOT: bool> Deref for Guard<'_, T, HOT> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.value.0.get() }
    }
}

impl<T, const HOT: bool> DerefMut for Guard<'_, T, HOT> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.0.value.0.get() }
    }
}

impl<T, const HOT: bool> Drop for Guard<'_, T, HOT> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the gate was entered when the guard was made, and guards are neither copied nor forgotten.
        unsafe {
            if HOT {
                self.0.gate.leave();
            } else {
                self.0.gate.leave_elsewhere();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::thread;

    fn count_with(kind: LockKind) {
        let lock = Lock::new(kind, 0u64);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 40_000);
    }

    #[test]
    fn a_spin_lock_lets_one_thread_in_at_a_time() {
        count_with(LockKind::spin());
    }

    #[test]
    fn lock_hooks_are_called_around_every_access() {
        struct Mutexed {
            mutex: Mutex<()>,
            held: UnsafeCell<Option<std::sync::MutexGuard<'static, ()>>>,
        }
        unsafe extern "C" fn lock(user_data: *mut c_void) {
            // SAFETY: the test passes a `Mutexed` that outlives the lock; `held` is written by the holder only.
            unsafe {
                let it = &*user_data.cast::<Mutexed>();
                *it.held.get() = Some(core::mem::transmute::<
                    std::sync::MutexGuard<'_, ()>,
                    std::sync::MutexGuard<'static, ()>,
                >(it.mutex.lock().unwrap()));
            }
        }
        unsafe extern "C" fn unlock(user_data: *mut c_void) {
            // SAFETY: as above.
            unsafe { drop((*user_data.cast::<Mutexed>().as_ref().unwrap().held.get()).take()) };
        }
        let mutexed = Mutexed { mutex: Mutex::new(()), held: UnsafeCell::new(None) };
        // SAFETY: a mutex.
        count_with(unsafe { LockKind::hooks((&raw const mutexed).cast_mut().cast(), lock, unlock) });
        assert!(mutexed.mutex.try_lock().is_ok());
    }
}
