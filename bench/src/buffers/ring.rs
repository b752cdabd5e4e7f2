//! A ring through which one thread hands things to another; both spin.

use std::array;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::yield_now;

/// Things that are under way at most.
pub const CAPACITY: usize = 64;

/// Rounds of spinning after which the other thread is believed to have no CPU.
const PATIENCE: u32 = 500;

#[repr(align(128))]
struct Position(AtomicUsize);

/// A ring for one thread that pushes and one that pops.
pub struct Ring<T> {
    slots: [UnsafeCell<MaybeUninit<T>>; CAPACITY],
    pushed: Position,
    popped: Position,
}

// SAFETY: a slot belongs to the one who pushes or to the one who pops, as the positions say.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self {
            slots: array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit())),
            pushed: Position(AtomicUsize::new(0)),
            popped: Position(AtomicUsize::new(0)),
        }
    }
}

impl<T> Ring<T> {
    /// Hands over one thing; spins while the ring is full.
    ///
    /// # Safety
    /// No other thread pushes meanwhile.
    pub unsafe fn push(&self, value: T) {
        let at = self.pushed.0.load(Ordering::Relaxed);
        spin_until(|| at - self.popped.0.load(Ordering::Acquire) < CAPACITY);
        // SAFETY: the slot is empty, and only the pushing thread touches empty ones.
        unsafe { (*self.slots[at % CAPACITY].get()).write(value) };
        self.pushed.0.store(at + 1, Ordering::Release);
    }

    /// Takes one thing; spins while the ring is empty.
    ///
    /// # Safety
    /// No other thread pops meanwhile.
    pub unsafe fn pop(&self) -> T {
        let at = self.popped.0.load(Ordering::Relaxed);
        spin_until(|| self.pushed.0.load(Ordering::Acquire) != at);
        // SAFETY: the slot is full, and only the popping thread touches full ones.
        let value = unsafe { (*self.slots[at % CAPACITY].get()).assume_init_read() };
        self.popped.0.store(at + 1, Ordering::Release);
        value
    }
}

/// Spins. Gives the CPU away now and then, in case the other thread needs it.
pub fn spin_until(ready: impl Fn() -> bool) {
    let mut rounds = 0;
    while !ready() {
        spin_loop();
        rounds += 1;
        if rounds % PATIENCE == 0 {
            yield_now();
        }
    }
}
