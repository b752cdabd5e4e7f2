//! Slices that were freed and are not free yet: they wait for points on timelines, or to be overwritten.
#![forbid(unsafe_code)]

use super::{Clock, Pool};
use crate::slicer::timelines::{Due, Point};

/// Releases per lock hold.
const RELEASES_PER_LOCK: u32 = 64;

/// What a lock hold full of releases came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Nothing more is due.
    All,
    /// There may be more.
    Some,
}

/// Whether the `i`-th of several points counts: of those on one timeline the one with the largest value does, once.
fn counts(points: &[Point], i: usize) -> bool {
    if points.len() == 1 {
        return true;
    }
    let point = &points[i];
    points.iter().enumerate().all(|(j, other)| {
        other.timeline != point.timeline || other.value < point.value || (other.value == point.value && j <= i)
    })
}

/// What waiting for several points comes to in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Points that count.
    points: u32,
    /// Timelines among theirs of which nothing is known, and that are waited for.
    unknown: u32,
    /// Those of them that have not been passed, as far as is known.
    waits: u32,
    /// The timeline of the last of them, 0 if it is unknown.
    timeline: u32,
}

impl Tally {
    /// Whether there is anything to wait for.
    pub(crate) fn waits(&self) -> bool {
        self.waits != 0
    }

    /// The nodes that `slices` slices need: for timelines nothing is known of, and for waiting for more than one point. One
    /// point of a timeline that is known needs none.
    pub(crate) fn nodes(&self, slices: u32) -> u32 {
        self.unknown.saturating_add(if self.waits > 1 { self.waits.saturating_mul(slices) } else { 0 })
    }

    /// The nodes that each slice of a batch is promised.
    pub(crate) fn promise(&self) -> u32 {
        if self.waits > 1 { self.points } else { 0 }
    }
}

impl Pool {
    /// What waiting for points comes to.
    #[cold]
    pub(crate) fn tally(&self, points: &[Point]) -> Tally {
        let mut tally = Tally { points: 0, unknown: 0, waits: 0, timeline: 0 };
        for (i, point) in points.iter().enumerate() {
            if !counts(points, i) {
                continue;
            }
            tally.points += 1;
            tally.timeline = self.slicer.find_timeline(point.timeline);
            let completed = if tally.timeline == 0 { 0 } else { self.slicer.completed(tally.timeline) };
            tally.unknown += u32::from(tally.timeline == 0 && point.value != 0);
            tally.waits += u32::from(completed < point.value);
        }
        tally
    }

    // ---- slices of a batch

    /// Makes all timelines known that are waited for, so that no node is lacking for them later. Needs [`Tally::nodes`].
    pub(crate) fn learn_timelines(&mut self, points: &[Point]) {
        for point in points {
            if point.value != 0 {
                self.slicer.need_timeline(point.timeline);
            }
        }
    }

    /// Marks a slice as about to be freed by a batch, with `promise` nodes with which it may wait.
    pub(crate) fn claim(&mut self, slot: u32, promise: u32) {
        self.slicer.claim(slot);
        self.slicer.promise_spare(promise);
    }

    /// Undoes [`Pool::claim`].
    pub(crate) fn unclaim(&mut self, slot: u32, promise: u32) {
        self.slicer.unclaim(slot);
        self.slicer.release_spare(promise);
    }

    /// Frees a claimed slice, or has it wait. Needs [`Tally::nodes`], the promise being part of them.
    pub(crate) fn free_claimed(&mut self, slot: u32, points: &[Point], promise: u32, clock: &Clock) {
        self.slicer.release_spare(promise);
        let tally = self.tally(points);
        if tally.waits() {
            self.set_pending(slot);
            self.wait(slot, points, &tally);
        } else if self.slicer.needs_care(slot) {
            self.set_pending(slot);
            self.slicer.enqueue_first_scrub(slot);
        } else {
            self.free_slot_elsewhere(slot, clock);
        }
    }

    // ---- waiting and being released

    /// Has a pending slice that is in no queue wait for points, `tally` being what they come to. Needs [`Tally::nodes`];
    /// there must be something to wait for.
    #[cold]
    pub(crate) fn wait(&mut self, slot: u32, points: &[Point], tally: &Tally) {
        debug_assert_eq!(self.tally(points), *tally);
        if let ([point], true) = (points, tally.timeline != 0) {
            return self.slicer.enqueue(tally.timeline, slot, point.value, false);
        }
        self.slicer.set_waits(slot, tally.waits);
        for (i, point) in points.iter().enumerate() {
            if !counts(points, i) || point.value == 0 {
                continue;
            }
            let timeline = self.slicer.need_timeline(point.timeline);
            if self.slicer.completed(timeline) < point.value {
                self.slicer.enqueue(timeline, slot, point.value, tally.waits > 1);
            }
        }
    }

    /// Takes a slice out of use that is not free yet. It is in no queue.
    pub(crate) fn set_pending(&mut self, slot: u32) {
        self.unbook(slot);
        self.slicer.begin_pending(slot);
    }

    /// Releases slices that wait for a timeline up to `completed`; those that have to be overwritten go to the queue for
    /// that.
    pub(crate) fn release_due(&mut self, timeline: u32, completed: u64, clock: &Clock) -> Released {
        for _ in 0..RELEASES_PER_LOCK {
            match self.slicer.take_due(timeline, completed) {
                Due::Nothing => return Released::All,
                Due::Partly => {}
                Due::Slice(slot) if self.slicer.needs_care(slot) => self.slicer.enqueue_first_scrub(slot),
                Due::Slice(slot) => self.release(slot, clock),
            }
        }
        Released::Some
    }

    /// Frees a pending slice that waits for nothing any more.
    pub(crate) fn release(&mut self, slot: u32, clock: &Clock) {
        self.slicer.end_pending(slot);
        // It was booked out when it began to wait, and is once more when it is freed.
        let node = self.slicer.node(slot);
        node.link_a.set(0);
        node.link_b.set(0);
        self.in_use += self.rules.bytes(node.size.get());
        self.free_slot_elsewhere(slot, clock);
    }

    /// Bytes of slices that were freed and are not free yet.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.slicer.pending_granules() << self.rules.granule_shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn of_points_on_one_timeline_the_largest_counts_once() {
        let points =
            [(1, 5), (2, 3), (1, 7), (1, 7), (3, 0), (2, 2)].map(|(timeline, value)| Point { timeline, value });
        let counted: Vec<_> = (0..points.len()).filter(|&i| counts(&points, i)).collect();
        assert_eq!(counted, [1, 3, 4]);
    }
}
