//! What the pools of an allocator count together: allocations, for ageing, and pages that become idle, for their order.
#![forbid(unsafe_code)]

use crate::sync::{AtomicU32, Ordering};

/// Counters on a cache line of their own, apart from what never changes.
///
/// They are read and written in two steps: cheaper than one, and threads that collide lose a count, which makes a page
/// some allocations younger or two pages equally old. From one thread they are exact.
#[cfg_attr(feature = "complete", repr(align(64)))]
pub(crate) struct Clock {
    allocations: AtomicU32,
    idle_events: AtomicU32,
    /// Count of allocations at which a pool's pages are checked next.
    next_check: AtomicU32,
    /// For the call that gives aged pages back.
    pub(crate) ageing: Turn,
    /// For the call that gives pages back which others want.
    pub(crate) giving_way: Turn,
}

/// The right to give pages back for one reason, for one call at a time: others, and those that callbacks make, leave it
/// to that one. So nothing nests, and nothing goes on for ever.
pub(crate) struct Turn(AtomicU32);

/// A turn that has been taken.
pub(crate) struct Taken<'a>(&'a Turn);

impl Turn {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The turn, unless another call has it.
    pub(crate) fn take(&self) -> Option<Taken<'_>> {
        // Pages are guarded by their pools' locks: nothing is published by this. A turn that is not taken must not be made
        // either, since it would be given up where it is dropped.
        (self.0.swap(1, Ordering::Relaxed) == 0).then(|| Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Relaxed);
    }
}

impl Clock {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU32::new(0);
        Self {
            allocations: zero(),
            idle_events: zero(),
            next_check: zero(),
            ageing: Turn::new(),
            giving_way: Turn::new(),
        }
    }

    /// Counts an allocation; answers the count if a check is due.
    #[inline(always)]
    pub(crate) fn count_allocation(&self) -> Option<u32> {
        let now = self.allocations.load(Ordering::Relaxed).wrapping_add(1);
        self.allocations.store(now, Ordering::Relaxed);
        let left = self.next_check.load(Ordering::Relaxed).wrapping_sub(now);
        (left as i32 <= 0).then_some(now)
    }

    /// How many pages have become idle.
    #[inline(always)]
    pub(crate) fn idle_events(&self) -> u32 {
        self.idle_events.load(Ordering::Relaxed)
    }

    /// When a page becomes idle: later than all before it.
    #[inline(always)]
    pub(crate) fn idle_event(&self) -> u32 {
        let now = self.idle_events.load(Ordering::Relaxed).wrapping_add(1);
        self.idle_events.store(now, Ordering::Relaxed);
        now
    }

    /// How many allocations there have been.
    pub(crate) fn allocations(&self) -> u32 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// The next allocation looks at ages.
    pub(crate) fn check_at_once(&self) {
        self.set_next_check(self.allocations());
    }

    /// Counts from 0 again, as for new pools. The next check is due at that count of allocations.
    pub(crate) fn restart(&mut self, next_check: u32) {
        *self = Self::new();
        self.set_next_check(next_check);
    }

    /// The next check is due at that count of allocations.
    pub(crate) fn set_next_check(&self, count: u32) {
        self.next_check.store(count, Ordering::Relaxed);
    }
}
