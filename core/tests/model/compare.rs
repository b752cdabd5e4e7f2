//! What an allocator shows after every operation, against the model.

use crate::allocator::Subject;
use crate::oracle::{Checked, Shown, ensure};
use slicepool_core::{Error, LiveSlices, OwnPages, PERSISTENT_POOL, Range, SliceId, Statistics};
use std::ops::ControlFlow;

/// Where a pool is among those of the model: the list, then that of dedicated and that of persistent slices.
pub(crate) fn place_of_pool(number: u32, listed: usize) -> usize {
    match number {
        DEDICATED_POOL => listed,
        PERSISTENT_POOL => listed + 1,
        number => number as usize,
    }
}

/// The reverse.
pub(crate) fn number_of_pool(place: usize, listed: usize) -> usize {
    match place.checked_sub(listed) {
        None => place,
        Some(0) => DEDICATED_POOL as usize,
        Some(_) => PERSISTENT_POOL as usize,
    }
}

pub(crate) const DEDICATED_POOL: u32 = OwnPages::Dedicated.pool(0);

impl Subject {
    pub(crate) fn check_everything(&mut self, step: usize) -> Checked {
        let events = self.events()?;
        ensure!(events.is_empty(), "the device was called: {events:?}");
        let listed = self.model.listed();
        let mut shown = vec![Vec::new(); self.model.pools.len()];
        let walk = self.allocator.walk(|range| match self.check_range(range) {
            Ok(()) => {
                let Range { memory: page, offset, size, requested, pending, .. } = *range;
                let id = range.id.map(SliceId::to_raw);
                let pool = place_of_pool(range.pool, listed);
                shown[pool].push(Shown { page, offset, size, id, pending, requested: Some(requested) });
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        });
        if let ControlFlow::Break(error) = walk {
            return Err(error);
        }
        let mut pools = Vec::new();
        let mut largest = 0;
        for (index, shown) in shown.iter_mut().enumerate() {
            let number = number_of_pool(index, listed);
            let found = self.allocator.pool_statistics(number).ok_or("a pool has no statistics")?;
            let figures = self.model.check_pool(index, &found, shown)?;
            largest = largest.max(figures.largest);
            pools.push(found);
        }
        self.check_sum(&pools)?;
        self.check_budget()?;
        let found = self.allocator.largest_free();
        ensure!(found == largest, "the largest free range has {largest} bytes, not {found}");
        self.check_stale_handles(step, 2)?;
        let expected = if self.is_used() { Err(self.busy()) } else { Ok(()) };
        let found = self.allocator.can_destroy(LiveSlices::Refuse);
        ensure!(found == expected, "can_destroy answers {found:?} instead of {expected:?}");
        ensure!(self.allocator.can_destroy(LiveSlices::Free).is_ok(), "it cannot be destroyed by force");
        self.allocator.check().map_err(String::from)
    }

    /// Whether any slice is live or waits.
    pub(crate) fn is_used(&self) -> bool {
        !self.model.handles.live.is_empty() || self.model.waits.count() != 0
    }

    /// A slice is what it was when it was handed out. No lock is held: the allocator may be used.
    fn check_range(&self, range: &Range) -> Checked {
        let Some(id) = range.id else { return Ok(()) };
        let found = self.allocator.get(id);
        let expected = self.slices.get(&id.to_raw());
        ensure!(found.ok().as_ref() == expected, "{range:?} is {found:?} instead of {expected:?}");
        ensure!(
            expected.is_some_and(|slice| (slice.memory, slice.offset) == (range.memory, range.offset)),
            "{range:?} is shown at another place than {expected:?}"
        );
        Ok(())
    }

    /// The allocator's figures are those of its pools together.
    fn check_sum(&self, pools: &[Statistics]) -> Checked {
        let sum = self.allocator.statistics();
        self.model.check_sum(&sum, pools)?;
        let held = self.allocator.device().pages_held() as u64;
        let known = u64::from(sum.pages) + u64::from(sum.pages_stuck);
        ensure!(known == held, "{known} pages are known of {held}");
        Ok(())
    }

    /// Freed handles are refused for ever: `count` of them, others at every step.
    pub(crate) fn check_stale_handles(&self, step: usize, count: usize) -> Checked {
        let stale = &self.model.handles.stale;
        for probe in 0..count.min(stale.len()) {
            let raw = stale[(step * 7 + probe * 3) % stale.len()];
            let Some(id) = SliceId::from_raw(raw) else { return Err("a handle is 0".into()) };
            let found = self.allocator.get(id);
            ensure!(found == Err(Error::StaleHandle), "the freed handle {raw:#x} is {found:?}");
            let found = self.allocator.free(id);
            ensure!(found == Err(Error::StaleHandle), "freeing {raw:#x} again answers {found:?}");
        }
        Ok(())
    }
}
