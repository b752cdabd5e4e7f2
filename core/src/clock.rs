//! What the pools of an allocator count together: allocations, for ageing, and pages that become idle, for their order.
#![forbid(unsafe_code)]

use crate::sync::{AtomicU32, Ordering};

/// Counters on a cache line of their own, apart from what never changes.
///
/// They are read and written in two steps: cheaper than one, and threads that collide lose a count, which makes a page
/// some allocations younger or two pages equally old. From one thread they are exact.
#[repr(align(64))]
pub(crate) struct Clock {
    allocations: AtomicU32,
    idle_events: AtomicU32,
    /// Count of allocations at which a pool's pages are checked next.
    next_check: AtomicU32,
    /// 1 while a call gives aged pages back, so that no other does, nor one that a callback makes.
    ageing: AtomicU32,
}

/// The right to give aged pages back, for one call at a time.
pub(crate) struct AgeingTurn<'a>(&'a Clock);

impl Clock {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU32::new(0);
        Self { allocations: zero(), idle_events: zero(), next_check: zero(), ageing: zero() }
    }

    /// Counts an allocation; answers the count if a check is due.
    #[inline(always)]
    pub(crate) fn count_allocation(&self) -> Option<u32> {
        let now = self.allocations.load(Ordering::Relaxed).wrapping_add(1);
        self.allocations.store(now, Ordering::Relaxed);
        let left = self.next_check.load(Ordering::Relaxed).wrapping_sub(now);
        (left as i32 <= 0).then_some(now)
    }

    /// When a page becomes idle: later than all before it.
    #[inline(always)]
    pub(crate) fn idle_event(&self) -> u32 {
        let now = self.idle_events.load(Ordering::Relaxed).wrapping_add(1);
        self.idle_events.store(now, Ordering::Relaxed);
        now
    }

    /// The next check is due at that count of allocations.
    pub(crate) fn set_next_check(&self, count: u32) {
        self.next_check.store(count, Ordering::Relaxed);
    }

    /// The turn, unless another call has it.
    pub(crate) fn take_ageing_turn(&self) -> Option<AgeingTurn<'_>> {
        // Pages are guarded by their pools' locks: nothing is published by this. A turn that is not taken must not be made
        // either, since it would be given up where it is dropped.
        (self.ageing.swap(1, Ordering::Relaxed) == 0).then(|| AgeingTurn(self))
    }
}

impl Drop for AgeingTurn<'_> {
    fn drop(&mut self) {
        self.0.ageing.store(0, Ordering::Relaxed);
    }
}
