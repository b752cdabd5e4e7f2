//! Slices that were freed and wait for the device: for points on its timelines, then perhaps to be overwritten.

use crate::device::{Event, Events};
use crate::handles::Place;
use crate::oracle::{Checked, ensure};
use crate::pools::Model;
use slicepool_core::{Error, Point};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Who waits for what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    /// What each timeline has completed, as far as the allocator was told.
    completed: BTreeMap<u32, u64>,
    /// By pool and timeline: values and handles in the order in which they were freed. Values do not fall: a slice
    /// waits for those before it too.
    queues: BTreeMap<(usize, u32), VecDeque<(u64, u64)>>,
    /// Where pending slices are, by their old handles, and how many points each still waits for.
    slices: BTreeMap<u64, (Place, usize)>,
}

impl Waits {
    pub(crate) fn completed(&self, timeline: u32) -> u64 {
        self.completed.get(&timeline).copied().unwrap_or(0)
    }

    pub(crate) fn count(&self) -> usize {
        self.slices.len()
    }

    pub(crate) fn place_of(&self, id: u64) -> Checked<Place> {
        self.slices.get(&id).map(|&(place, _)| place).ok_or_else(|| format!("{id:#x} does not wait"))
    }

    fn is_waited_for(&self, timeline: u32) -> bool {
        self.queues.iter().any(|(&(_, other), queue)| other == timeline && !queue.is_empty())
    }

    fn timelines(&self) -> BTreeSet<u32> {
        let waited_for = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        waited_for.map(|(&(_, timeline), _)| timeline).collect()
    }

    /// Of several points on one timeline the largest counts; those that have been passed do not.
    fn to_wait_for(&self, points: &[Point]) -> BTreeMap<u32, u64> {
        let mut largest = BTreeMap::new();
        for point in points {
            let value = largest.entry(point.timeline).or_insert(0);
            *value = point.value.max(*value);
        }
        largest.retain(|&timeline, &mut value| value > self.completed(timeline));
        largest
    }

    /// Whether the slice has to wait; then it does.
    fn wait(&mut self, id: u64, place: Place, points: &[Point]) -> bool {
        let points = self.to_wait_for(points);
        let count = points.len();
        for (timeline, value) in points {
            let queue = self.queues.entry((place.pool, timeline)).or_default();
            let value = queue.back().map_or(value, |&(last, _)| value.max(last));
            queue.push_back((value, id));
        }
        if count != 0 {
            self.slices.insert(id, (place, count));
        }
        count != 0
    }

    /// The next slice of a pool that waits for nothing any more, now that a timeline has completed a value.
    fn next_due(&mut self, pool: usize, timeline: u32, completed: u64) -> Option<u64> {
        let queue = self.queues.get_mut(&(pool, timeline))?;
        while queue.front().is_some_and(|&(value, _)| value <= completed) {
            let (_, id) = queue.pop_front()?;
            let (_, left) = self.slices.get_mut(&id)?;
            *left -= 1;
            if *left == 0 {
                return Some(id);
            }
        }
        None
    }
}

impl Model {
    /// The memory of a slice is free.
    pub(crate) fn release(&mut self, place: Place) {
        self.clock += 1;
        self.pools[place.pool].books.remove(place.page, place.offset, self.clock);
    }

    /// The memory of a pending slice is free.
    pub(crate) fn end_wait(&mut self, id: u64) -> Checked {
        let place = self.waits.place_of(id)?;
        self.waits.slices.remove(&id);
        self.release(place);
        Ok(())
    }

    /// A live slice is freed once all points have been passed; whether it is to be overwritten at once.
    fn free_once(&mut self, id: u64, points: &[Point]) -> Checked<bool> {
        let place = self.handles.look_up(id).map_err(|error| format!("{id:#x} was freed: {error}"))?;
        self.handles.remove(id);
        let scrub = self.pools[place.pool].books.slice(place.page, place.offset).scrub;
        if self.waits.wait(id, place, points) {
            self.pools[place.pool].books.wait(place.page, place.offset);
            return Ok(false);
        }
        if scrub {
            self.pools[place.pool].books.wait(place.page, place.offset);
            self.waits.slices.insert(id, (place, 0));
        } else {
            self.release(place);
        }
        Ok(scrub)
    }

    /// A live slice was freed.
    pub(crate) fn freed(&mut self, id: u64, points: &[Point], events: &mut Events) -> Checked {
        if self.free_once(id, points)? {
            self.scrub(id, events)?;
        }
        Ok(())
    }

    /// Live slices were freed in one call.
    pub(crate) fn freed_many(&mut self, ids: &[u64], points: &[Point], events: &mut Events) -> Checked {
        for &id in ids {
            if self.free_once(id, points)? {
                let pool = self.waits.place_of(id)?.pool;
                self.pools[pool].to_scrub.push_back(id);
            }
        }
        (0..self.pools.len()).try_for_each(|pool| self.scrub_again(pool, events).map(|_| ()))?;
        self.give_way(events)
    }

    /// An overwritten slice waits for a point, unless that has been passed.
    pub(crate) fn wait_once_more(&mut self, id: u64, point: Point) -> Checked {
        let place = self.waits.place_of(id)?;
        self.pools[place.pool].books.slice(place.page, place.offset).scrub = false;
        if self.waits.wait(id, place, &[point]) { Ok(()) } else { self.end_wait(id) }
    }

    /// A timeline has completed a value; the last error that the device answered when it was to overwrite slices.
    pub(crate) fn collected(&mut self, timeline: u32, completed: u64, events: &mut Events) -> Checked<Option<Error>> {
        let known = self.waits.completed(timeline);
        self.waits.completed.insert(timeline, known.max(completed));
        let mut refusal = None;
        for pool in 0..self.pools.len() {
            while let Some(id) = self.waits.next_due(pool, timeline, completed) {
                let place = self.waits.place_of(id)?;
                if self.pools[pool].books.slice(place.page, place.offset).scrub {
                    self.pools[pool].to_scrub.push_back(id);
                } else {
                    self.end_wait(id)?;
                }
            }
            refusal = self.scrub_again(pool, events)?.or(refusal);
        }
        self.give_way(events)?;
        Ok(refusal)
    }

    /// Forgets what a timeline has completed; whether that is possible.
    pub(crate) fn forget_timeline(&mut self, timeline: u32) -> bool {
        let possible = !self.waits.is_waited_for(timeline);
        if possible {
            self.waits.completed.remove(&timeline);
        }
        possible
    }

    /// Before more memory is taken, the device is asked once for each timeline that anything waits on.
    pub(crate) fn ask_for_progress(&mut self, events: &mut Events) -> Checked {
        let mut missing = self.waits.timelines();
        let mut asked = BTreeSet::new();
        while let Some(&Event::Asked { timeline, completed }) = events.front() {
            events.pop_front();
            // Or on which something waits since it was overwritten meanwhile.
            ensure!(self.waits.is_waited_for(timeline), "the device was asked for timeline {timeline}");
            ensure!(asked.insert(timeline), "the device was asked twice for timeline {timeline}");
            missing.remove(&timeline);
            if let Some(completed) = completed {
                self.collected(timeline, completed, events)?;
            }
        }
        ensure!(missing.is_empty(), "the device was not asked for the timelines {missing:?}");
        Ok(())
    }

    /// Everything that is live or waits is free.
    pub(crate) fn free_everything(&mut self) {
        let live: Vec<_> = self.handles.live.clone();
        for id in live {
            if let Ok(place) = self.handles.look_up(id) {
                self.handles.remove(id);
                self.release(place);
            }
        }
        let pending: Vec<_> = self.waits.slices.values().map(|&(place, _)| place).collect();
        pending.into_iter().for_each(|place| self.release(place));
        self.waits = Waits { completed: self.waits.completed.clone(), ..Waits::default() };
        self.pools.iter_mut().for_each(|pool| pool.to_scrub.clear());
    }
}
