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

/// Of several points on one timeline the largest value counts: those that count.
fn that_count(points: &[Point]) -> impl Iterator<Item = &Point> {
    points.iter().enumerate().filter_map(|(i, point)| {
        let counts = |(j, other): (usize, &Point)| {
            other.timeline != point.timeline || other.value < point.value || (other.value == point.value && j <= i)
        };
        points.iter().enumerate().all(counts).then_some(point)
    })
}

impl Pool {
    /// Whether a point has been passed, as far as is known.
    fn is_passed(&self, point: &Point) -> bool {
        match self.slicer.find_timeline(point.timeline) {
            0 => point.value == 0,
            timeline => self.slicer.completed(timeline) >= point.value,
        }
    }

    /// How many of the points count and have not been passed.
    fn waits_for(&self, points: &[Point]) -> u32 {
        that_count(points).filter(|point| !self.is_passed(point)).count() as u32
    }

    /// The nodes that `slices` slices need to wait for points: for timelines nothing is known of, and for waiting for more
    /// than one point. One point of a timeline that is known needs none.
    pub(crate) fn nodes_to_wait(&self, points: &[Point], slices: u32) -> u32 {
        let unknown = |point: &&Point| self.slicer.find_timeline(point.timeline) == 0;
        let timelines = that_count(points).filter(unknown).count() as u32;
        match self.waits_for(points) {
            0 | 1 => timelines,
            several => timelines.saturating_add(several.saturating_mul(slices)),
        }
    }

    // ---- slices of a batch

    /// The nodes that each slice of a batch is promised.
    fn nodes_per_claim(points: &[Point]) -> u32 {
        match that_count(points).count() as u32 {
            1 => 0,
            count => count,
        }
    }

    /// The nodes that are needed to claim `slices` slices which are to wait for points.
    pub(crate) fn nodes_to_claim(&self, points: &[Point], slices: u32) -> u32 {
        let unknown = that_count(points).filter(|point| self.slicer.find_timeline(point.timeline) == 0).count() as u32;
        unknown.saturating_add(Self::nodes_per_claim(points).saturating_mul(slices))
    }

    /// Marks a slice as about to be freed by a batch, with what it needs to wait. Needs [`Pool::nodes_to_claim`].
    pub(crate) fn claim(&mut self, slot: u32, points: &[Point]) {
        self.slicer.claim(slot);
        for point in that_count(points) {
            self.slicer.need_timeline(point.timeline);
        }
        self.slicer.promise_spare(Self::nodes_per_claim(points));
    }

    /// Gives up what a claimed slice was promised.
    pub(crate) fn release_claim(&mut self, points: &[Point]) {
        self.slicer.release_spare(Self::nodes_per_claim(points));
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

    /// Takes a slice out of use until all points have been passed. Needs [`Pool::nodes_to_wait`]. `false` if they have been
    /// already: nothing has changed then.
    pub(crate) fn free_after(&mut self, slot: u32, points: &[Point]) -> bool {
        if self.waits_for(points) == 0 {
            return false;
        }
        self.set_pending(slot);
        self.wait(slot, points)
    }

    /// [`Pool::free_after`] for a pending slice that is in no queue.
    pub(crate) fn wait(&mut self, slot: u32, points: &[Point]) -> bool {
        let count = self.waits_for(points);
        if count == 0 {
            return false;
        }
        self.slicer.set_waits(slot, count);
        for point in that_count(points) {
            if !self.is_passed(point) {
                let timeline = self.slicer.need_timeline(point.timeline);
                self.slicer.enqueue(timeline, slot, point.value, count > 1);
            }
        }
        true
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
        self.give_up(slot, clock);
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
        let counted: Vec<_> = that_count(&points).map(|point| (point.timeline, point.value)).collect();
        assert_eq!(counted, [(2, 3), (1, 7), (3, 0)]);
    }
}
