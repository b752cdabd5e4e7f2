//! Frees that wait for the device, and what it has completed.

use super::{Allocator, Cell, InFlight};
use crate::device::Device;
use crate::error::Error;
use crate::event::EventKind;
use crate::parts::need_complete;
use crate::pool::pending::Released;
use crate::slicer::timelines::Point;
use crate::slots::SliceId;
use crate::sync::{AtomicU32, Ordering};

/// Points that a slice can wait for at most.
pub(super) const MAX_POINTS: usize = 64;

/// Calls that may be asking what is completed when another begins to.
const MAX_NESTED_QUESTIONS: u32 = 4;

pub(super) fn check_points(points: &[Point]) -> Result<(), Error> {
    match points.len() {
        0..=MAX_POINTS => Ok(()),
        count => Err(Error::InvalidArgument { field: c"point_count", value: count as u64 }),
    }
}

impl<D: Device> Allocator<D> {
    /// Takes a slice back that the device still uses: its memory is free once all `points` have been passed, as
    /// [`Allocator::collect`] says. Until then the slice is *pending*: its handle is stale, its memory serves nothing and
    /// its page stays. If all have been passed already, or there are none, this is [`Allocator::free`].
    ///
    /// Of several points on one timeline the one with the largest value counts. Values that fall on a timeline are safe: the
    /// slice is released with those that were freed before it, which is late, but never early.
    ///
    /// Constant time per point. The first point on a timeline in a pool, and every point of a slice that waits for several,
    /// need 32 bytes of host memory, which is got beforehand; otherwise this cannot fail for want of memory.
    ///
    /// # Errors
    /// As [`Allocator::free`]; [`Error::OutOfHostMemory`] and [`Error::TooManySlices`] as said above;
    /// [`Error::InvalidArgument`] for more than 64 points. The slice is live then.
    #[cold]
    pub fn free_after(&self, id: SliceId, points: &[Point]) -> Result<(), Error> {
        need_complete(c"free_after")?;
        check_points(points)?;
        let cell = self.cell(id)?;
        loop {
            let mut pool = cell.pool.lock();
            let slot = pool.slicer.resolve_any(id)?;
            let tally = pool.tally(points);
            if !pool.slicer.has_spare_nodes(tally.nodes(1)) {
                self.add_nodes(cell, pool)?;
                continue;
            }
            self.check_margin(&pool, slot)?;
            if tally.waits() {
                let event = self.slice_event(EventKind::SlicePending, cell, &pool, slot);
                pool.set_pending(slot);
                pool.wait(slot, points, &tally);
                drop(pool);
                self.tell(event);
                break;
            }
            if !pool.slicer.needs_care(slot) {
                pool.free_slot_elsewhere(slot, &self.clock);
                break;
            }
            pool.set_pending(slot);
            drop(pool);
            self.attend(cell, slot, &mut None);
            break;
        }
        self.look_at_pressure();
        Ok(())
    }

    /// The device has completed everything up to `completed` on a timeline: what waited for that is free now, unless it
    /// waits for other timelines too. The allocator remembers the value, which does not fall; `u64::MAX` says that nothing
    /// will ever be waited for on this timeline, because its device is lost.
    ///
    /// Constant time for each slice that is released, at most 64 of them per lock hold, and a look at every pool.
    ///
    /// # Errors
    /// [`Error::DeviceFailed`] or [`Error::OutOfDeviceMemory`], as the device says, if it did not overwrite a slice that is
    /// to be scrubbed: that one stays pending, and is tried again next time. [`Error::OutOfHostMemory`] if the value cannot
    /// be remembered in a pool in which nothing has ever waited on this timeline. Whatever is due has been released all the
    /// same.
    #[cold]
    pub fn collect(&self, timeline: u32, completed: u64) -> Result<(), Error> {
        self.collect_as_of(timeline, completed, None)
    }

    /// How many timelines have been forgotten, this one or others like it.
    fn forgets_like(&self, timeline: u32) -> &AtomicU32 {
        &self.forgets[timeline as usize % self.forgets.len()]
    }

    /// [`Allocator::collect`], but only while nothing like this timeline has been forgotten since there were `forgets` of
    /// them: the number may stand for another one after that.
    #[cold]
    fn collect_as_of(&self, timeline: u32, completed: u64, forgets: Option<u32>) -> Result<(), Error> {
        let _in_flight = InFlight::new(&self.in_flight);
        let mut refusal = None;
        for cell in self.cells() {
            if let Err(error) = self.collect_in(cell, timeline, completed, forgets) {
                refusal = Some(error);
            }
            self.attend_all(cell, &mut refusal);
        }
        self.look_at_pressure();
        refusal.map_or(Ok(()), Err)
    }

    #[cold]
    fn collect_in(&self, cell: &Cell, timeline: u32, completed: u64, forgets: Option<u32>) -> Result<(), Error> {
        loop {
            let mut pool = cell.pool.lock();
            // Forgetting counts before it comes to this pool, so under its lock nothing can come in between.
            if forgets.is_some_and(|forgets| forgets != self.forgets_like(timeline).load(Ordering::Acquire)) {
                return Ok(());
            }
            let mut found = pool.slicer.find_timeline(timeline);
            if found == 0 {
                if completed == 0 {
                    return Ok(());
                }
                if !pool.slicer.has_spare_nodes(1) {
                    self.add_nodes(cell, pool)?;
                    continue;
                }
                found = pool.slicer.need_timeline(timeline);
            }
            pool.slicer.set_completed(found, completed);
            if pool.release_due(found, completed, &self.clock) == Released::All {
                return Ok(());
            }
            drop(pool);
            cell.pool.give_way();
        }
    }

    /// Forgets a timeline that will not be used again, so that its number can stand for another. What it has completed is
    /// 0 again.
    ///
    /// # Errors
    /// [`Error::Busy`] while a slice waits for it; nothing has changed then.
    #[cold]
    pub fn timeline_forget(&self, timeline: u32) -> Result<(), Error> {
        let waited_for = |cell: &Cell| {
            let pool = cell.pool.lock();
            let found = pool.slicer.find_timeline(timeline);
            found != 0 && pool.slicer.is_waited_for(found)
        };
        if self.cells().any(waited_for) {
            return Err(self.statistics().busy(0));
        }
        // First of all: what the device is just being asked about it is no longer taken for an answer.
        self.forgets_like(timeline).fetch_add(1, Ordering::AcqRel);
        for cell in self.cells() {
            let mut pool = cell.pool.lock();
            let found = pool.slicer.find_timeline(timeline);
            // Another thread may just have begun to use it; then it stays known there.
            if found != 0 && !pool.slicer.is_waited_for(found) {
                pool.slicer.forget_timeline(found);
            }
        }
        Ok(())
    }

    /// Tells a new pool what is known of timelines: nothing of those that are forgotten meanwhile, if it is one that can be
    /// seen.
    #[cold]
    pub(super) fn pass_timelines_on(&self, to: &Cell) -> Result<(), Error> {
        for cell in self.cells().filter(|cell| !core::ptr::eq(*cell, to)) {
            let mut at = 0;
            loop {
                let next = cell.pool.lock().slicer.next_timeline(at);
                let Some((found, timeline, _)) = next else { break };
                at = found;
                // Read before what is completed, as where the device is asked.
                let forgets = self.forgets_like(timeline).load(Ordering::Acquire);
                let pool = cell.pool.lock();
                let known = pool.slicer.find_timeline(timeline);
                let completed = if known == 0 { 0 } else { pool.slicer.completed(known) };
                drop(pool);
                self.collect_in(to, timeline, completed, Some(forgets))?;
            }
        }
        Ok(())
    }

    /// Asks the device how far the timelines are that anything waits for; whether there were any.
    #[cold]
    pub(super) fn ask_what_is_completed(&self) -> bool {
        let _in_flight = InFlight::new(&self.in_flight);
        // A callback that allocates may lead here again: so that it comes to an end.
        let asking = InFlight::new(&self.asking);
        if asking.others() >= MAX_NESTED_QUESTIONS {
            return false;
        }
        // Most programs have fewer timelines; those that have more are asked for some of them more than once.
        let (mut asked, mut count) = ([0; 16], 0);
        for cell in self.cells() {
            let mut at = 0;
            loop {
                let next = cell.pool.lock().slicer.next_waited_for(at);
                let Some((found, timeline)) = next else { break };
                at = found;
                if asked.iter().take(count).any(|&other| other == timeline) {
                    continue;
                }
                asked[count % asked.len()] = timeline;
                count += 1;
                let forgets = self.forgets_like(timeline).load(Ordering::Acquire);
                if let Some(completed) = self.device.completed(timeline) {
                    // What cannot be overwritten stays pending; the request goes on without it.
                    let _ = self.collect_as_of(timeline, completed, Some(forgets));
                }
            }
        }
        count != 0
    }

    /// Releases everything that is pending, whatever it waits for.
    #[cold]
    pub(super) fn release_everything(&self) {
        for cell in self.cells() {
            let mut at = 0;
            loop {
                let mut pool = cell.pool.lock();
                let Some((found, _)) = pool.slicer.next_waited_for(at) else { break };
                if pool.release_due(found, u64::MAX, &self.clock) == Released::All {
                    at = found;
                }
            }
            self.attend_all(cell, &mut None);
            // What could not be overwritten goes as it is.
            loop {
                let mut pool = cell.pool.lock();
                let Some(slot) = pool.slicer.take_scrub() else { break };
                self.release_and_tell(cell, pool, slot);
            }
        }
    }
}
