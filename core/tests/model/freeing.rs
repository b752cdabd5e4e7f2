//! Slices that are freed, now or later, and what the device has completed.

use crate::allocator::{Subject, all_accounted_for};
use crate::ops::{Mark, Pick};
use crate::oracle::{Checked, ensure};
use slicepool_core::{BatchError, Error, Point, SliceId};

/// Points that a slice can wait for.
const MOST_POINTS: usize = 64;

fn too_many(points: &[Point]) -> Option<Error> {
    let count = points.len();
    (count > MOST_POINTS).then_some(Error::InvalidArgument { field: c"point_count", value: count as u64 })
}

impl Subject {
    pub(crate) fn value(&self, mark: Mark) -> u64 {
        mark.value.from(self.model.waits.completed(mark.timeline()))
    }

    pub(crate) fn points(&self, marks: &[Mark]) -> Vec<Point> {
        marks.iter().map(|&mark| Point::new(mark.timeline(), self.value(mark))).collect()
    }

    pub(crate) fn free(&mut self, pick: Pick) -> Checked {
        let Some(id) = self.handle(pick) else { return Ok(()) };
        let expected = self.model.handles.look_up(id.to_raw()).map(|_| ());
        let found = self.allocator.free(id);
        ensure!(found == expected, "free answers {found:?} instead of {expected:?}");
        if found.is_ok() { self.note_freed(id, &[]) } else { Ok(()) }
    }

    pub(crate) fn free_after(&mut self, pick: Pick, points: &[Point]) -> Checked {
        let Some(id) = self.handle(pick) else { return Ok(()) };
        let expected = match too_many(points) {
            Some(error) => Err(error),
            None => self.model.handles.look_up(id.to_raw()).map(|_| ()),
        };
        let found = self.allocator.free_after(id, points);
        ensure!(found == expected, "free_after({points:?}) answers {found:?} instead of {expected:?}");
        if found.is_ok() { self.note_freed(id, points) } else { Ok(()) }
    }

    fn note_freed(&mut self, id: SliceId, points: &[Point]) -> Checked {
        let mut events = self.events()?;
        self.model.freed(id.to_raw(), points, &mut events)?;
        self.model.give_way(&mut events)?;
        self.slices.remove(&id.to_raw());
        all_accounted_for(&events)
    }

    pub(crate) fn free_many(&mut self, ids: &[Option<SliceId>], points: &[Point]) -> Checked {
        let mut expected = Ok(());
        for (index, id) in ids.iter().enumerate() {
            let Some(id) = id else { continue };
            let error = match self.model.handles.look_up(id.to_raw()) {
                Ok(_) if ids[..index].contains(&Some(*id)) => Error::StaleHandle,
                Ok(_) => continue,
                Err(error) => error,
            };
            expected = Err(BatchError { index: index as u32, error });
            break;
        }
        if let Some(error) = too_many(points) {
            expected = Err(BatchError { index: 0, error });
        }
        let found = match ids.iter().copied().collect::<Option<Vec<_>>>() {
            Some(ids) if points.is_empty() => self.allocator.free_many(&ids),
            Some(ids) => self.allocator.free_after_many(&ids, points),
            None => self.allocator.free_after_each(ids.len() as u32, &|index| ids[index as usize], points),
        };
        ensure!(found == expected, "free_many({points:?}) answers {found:?} instead of {expected:?}");
        if found.is_err() {
            return Ok(());
        }
        let freed: Vec<_> = ids.iter().flatten().map(|id| id.to_raw()).collect();
        let mut events = self.events()?;
        self.model.freed_many(&freed, points, &mut events)?;
        self.slices.retain(|id, _| !freed.contains(id));
        all_accounted_for(&events)
    }

    pub(crate) fn collect(&mut self, timeline: u32, completed: u64) -> Checked {
        let found = self.allocator.collect(timeline, completed);
        let mut events = self.events()?;
        let expected = self.model.collected(timeline, completed, &mut events)?.map_or(Ok(()), Err);
        all_accounted_for(&events)?;
        ensure!(found == expected, "collect({timeline}, {completed}) answers {found:?} instead of {expected:?}");
        Ok(())
    }

    pub(crate) fn forget_timeline(&mut self, timeline: u32) -> Checked {
        let busy = self.busy();
        let expected = if self.model.forget_timeline(timeline) { Ok(()) } else { Err(busy) };
        let found = self.allocator.timeline_forget(timeline);
        ensure!(found == expected, "timeline_forget({timeline}) answers {found:?} instead of {expected:?}");
        Ok(())
    }

    /// Why the allocator cannot go away.
    pub(crate) fn busy(&self) -> Error {
        let in_use = self.model.pools.iter().map(|pool| pool.books.in_use).sum();
        let (live, pending) = (self.model.handles.live.len() as u64, self.model.waits.count() as u64);
        Error::Busy { live, pending, in_use, in_flight: 0 }
    }
}
