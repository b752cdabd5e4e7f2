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
#[inline(never)]
fn counts(points: &[Point], i: usize) -> bool {
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
    /// Those of them on timelines of which nothing is known.
    unknown: u32,
    /// Those of them that have not been passed, as far as is known.
    waits: u32,
}

impl Tally {
    /// The nodes that one slice needs: for timelines nothing is known of, and for waiting for more than one point. One point
    /// of a timeline that is known needs none.
    pub(crate) fn nodes(&self) -> u32 {
        self.unknown + if self.waits > 1 { self.waits } else { 0 }
    }

    /// The nodes that are needed to claim `slices` slices of a batch.
    pub(crate) fn nodes_of_batch(&self, slices: u32) -> u32 {
        self.unknown.saturating_add(self.nodes_per_claim().saturating_mul(slices))
    }

    /// The nodes that each slice of a batch is promised.
    fn nodes_per_claim(&self) -> u32 {
        if self.points > 1 { self.points } else { 0 }
    }
}

impl Pool {
    /// What waiting for points comes to.
    #[cold]
    pub(crate) fn tally(&self, points: &[Point]) -> Tally {
        let mut tally = Tally { points: 0, unknown: 0, waits: 0 };
        for (i, point) in points.iter().enumerate() {
            if !counts(points, i) {
                continue;
            }
            tally.points += 1;
            match self.slicer.find_timeline(point.timeline) {
                0 => {
                    tally.unknown += 1;
                    tally.waits += u32::from(point.value != 0);
                }
                timeline => tally.waits += u32::from(self.slicer.completed(timeline) < point.value),
            }
        }
        tally
    }

    // ---- slices of a batch

    /// Marks a slice as about to be freed by a batch, with what it needs to wait. Needs [`Tally::nodes_of_batch`].
    pub(crate) fn claim(&mut self, slot: u32, points: &[Point]) {
        self.slicer.claim(slot);
        for point in points {
            self.slicer.need_timeline(point.timeline);
        }
        self.slicer.promise_spare(self.tally(points).nodes_per_claim());
    }

    /// Gives up what a claimed slice was promised.
    pub(crate) fn release_claim(&mut self, points: &[Point]) {
        self.slicer.release_spare(self.tally(points).nodes_per_claim());
    }

    /// Frees a slice that waits for nothing; one that needs care goes to the queue for that.
    pub(crate) fn free_or_enqueue(&mut self, slot: u32, clock: &Clock) {
        if self.slicer.needs_care(slot) {
            self.set_pending(slot);
            self.slicer.enqueue_scrub(slot);
        } else {
            self.free_slot_elsewhere(slot, clock);
        }
    }

    // ---- waiting and being released

    /// Takes a slice out of use until all points have been passed. Needs [`Tally::nodes`]. `false` if they have been
    /// already: nothing has changed then.
    #[cold]
    pub(crate) fn free_after(&mut self, slot: u32, points: &[Point]) -> bool {
        if self.tally(points).waits == 0 {
            return false;
        }
        self.set_pending(slot);
        self.wait(slot, points)
    }

    /// [`Pool::free_after`] for a pending slice that is in no queue.
    #[cold]
    pub(crate) fn wait(&mut self, slot: u32, points: &[Point]) -> bool {
        let waits = self.tally(points).waits;
        self.slicer.set_waits(slot, waits);
        for (i, point) in points.iter().enumerate() {
            if !counts(points, i) {
                continue;
            }
            let timeline = self.slicer.need_timeline(point.timeline);
            if self.slicer.completed(timeline) < point.value {
                self.slicer.enqueue(timeline, slot, point.value, waits > 1);
            }
        }
        waits != 0
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
                Due::Slice(slot) if self.slicer.needs_care(slot) => self.slicer.enqueue_scrub(slot),
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
