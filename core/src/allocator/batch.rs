//! Many slices in one call: all or nothing.

use super::pending::check_points;
use super::{Allocator, Cell, InFlight};
use crate::device::Device;
use crate::error::Error;
use crate::event::{Event, EventKind, Label};
use crate::metadata::Array;
use crate::parts::need_complete;
use crate::pool::Pool;
use crate::slice::{Request, Slice};
use crate::slicer::timelines::Point;
use crate::slots::SliceId;
use core::fmt;
use core::ops::{Index, Range};

/// Slots handled per lock hold.
const PER_LOCK: u32 = 64;

/// The slices of [`Allocator::allocate_many`], in the order of the requests.
pub struct Batch(Array<Option<Slice>>);

impl Batch {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len() as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// The slices in order.
    pub fn iter(&self) -> impl Iterator<Item = &Slice> {
        // All are there: a batch is made when the last one has been placed.
        self.0.iter().flatten()
    }
}

impl Index<usize> for Batch {
    type Output = Slice;
    fn index(&self, index: usize) -> &Slice {
        match &self.0[u32::try_from(index).unwrap_or(u32::MAX)] {
            Some(slice) => slice,
            None => unreachable!("a batch is made when the last slice has been placed"),
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Why a call for many slices was refused, and by which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchError {
    /// Position of the element that was refused.
    pub index: u32,
    /// Why.
    pub error: Error,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "element {}: {}", self.index, self.error)
    }
}

impl core::error::Error for BatchError {}

impl<D: Device> Allocator<D> {
    /// Hands out a slice for each request, or none at all.
    ///
    /// If one request is refused, the slices placed before it are freed again and the pages taken from the device for
    /// them are given back. Peaks stay, and so may the order in which holes of one size are used.
    ///
    /// # Errors
    /// As [`Allocator::allocate`], with the position of the request that was refused.
    pub fn allocate_many(&self, requests: &[Request]) -> Result<Batch, BatchError> {
        let count = u32::try_from(requests.len())
            .map_err(|_| BatchError { index: 0, error: Error::InvalidArgument { field: c"count", value: u64::MAX } })?;
        self.allocate_each(count, |i| Ok(requests[i as usize]))
    }

    /// [`Allocator::allocate_many`] with requests that are made one by one. `request(i)` is called once for each `i`
    /// below `count`, in order, with no lock held; its error refuses the whole.
    #[cold]
    pub fn allocate_each(
        &self,
        count: u32,
        request: impl FnMut(u32) -> Result<Request, Error>,
    ) -> Result<Batch, BatchError> {
        self.allocate_each_labelled(count, request, |_| Ok(Label::NONE))
    }

    /// [`Allocator::allocate_each`] of slices that something is attached to from the start: `label(i)` is called after
    /// `request(i)`.
    #[cold]
    pub fn allocate_each_labelled(
        &self,
        count: u32,
        mut request: impl FnMut(u32) -> Result<Request, Error>,
        mut label: impl FnMut(u32) -> Result<Label, Error>,
    ) -> Result<Batch, BatchError> {
        let whole = |error| BatchError { index: 0, error };
        need_complete(c"allocate_many").map_err(whole)?;
        // Pages installed from here on are this call's, or another's that is under way.
        let serials =
            Array::try_new(self.options.memory, self.place_of_serial(u32::MAX - self.own_pool_count()), |i| {
                let cell = match self.pools.as_slice().get(i as usize) {
                    Some(cell) => Some(cell),
                    None => self.pool_cell(u32::MAX - (i - self.pools.len())),
                };
                Ok(cell.map_or(0, |cell| cell.pool.lock().pages.next_serial()))
            })
            .map_err(whole)?;
        let mut placed = Array::try_new(self.options.memory, count, |_| Ok(None)).map_err(whole)?;
        for i in 0..count {
            let labelled = request(i).and_then(|request| Ok((request, label(i)?)));
            match labelled.and_then(|(request, label)| self.allocate_labelled(&request, &label)) {
                Ok(slice) => placed[i] = Some(slice),
                Err(error) => {
                    self.take_back(&placed, i, &serials);
                    return Err(BatchError { index: i, error });
                }
            }
        }
        Ok(Batch(placed))
    }

    /// Frees the first `done` slices, last first, and gives the pages back that were taken for them.
    #[cold]
    fn take_back(&self, placed: &Array<Option<Slice>>, done: u32, serials: &Array<u64>) {
        let _in_flight = InFlight::new(&self.in_flight);
        for i in (0..done).rev() {
            let Some(slice) = &placed[i] else { continue };
            let Ok(cell) = self.cell(slice.id) else { continue };
            let mut pool = cell.pool.lock();
            // Freed by another thread meanwhile: not this call's any more.
            let Ok(slot) = pool.slicer.resolve_any(slice.id) else { continue };
            let page = pool.slicer.node(slot).page.get();
            let event = self.slice_event(EventKind::SliceFreed, cell, &pool, slot);
            // Nobody has seen it: nothing needs to be overwritten.
            pool.slicer.clear_flags(slot);
            pool.free_slot_elsewhere(slot, &self.clock);
            drop(pool);
            self.tell(event);
            self.return_if_newer(cell, page, serials[self.place_of_serial(cell.index)]);
        }
    }

    /// Where a pool is among all there are or may come to be.
    fn place_of_serial(&self, pool: u32) -> u32 {
        if pool < self.pools.len() { pool } else { self.pools.len() + (u32::MAX - pool) }
    }

    /// Frees all slices, or none if one handle is refused.
    ///
    /// # Errors
    /// As [`Allocator::free`], with the position of the handle; a handle that occurs twice is stale the second time.
    pub fn free_many(&self, ids: &[SliceId]) -> Result<(), BatchError> {
        self.free_after_many(ids, &[])
    }

    /// Frees all slices once all points have been passed, or none if one handle is refused: [`Allocator::free_after`] for
    /// many slices that wait for the same.
    ///
    /// # Errors
    /// As [`Allocator::free_after`], with the position of the handle; a handle that occurs twice is stale the second time.
    pub fn free_after_many(&self, ids: &[SliceId], points: &[Point]) -> Result<(), BatchError> {
        let count = u32::try_from(ids.len())
            .map_err(|_| BatchError { index: 0, error: Error::InvalidArgument { field: c"count", value: u64::MAX } })?;
        self.free_after_each(count, &|i| Some(ids[i as usize]), points)
    }

    /// [`Allocator::free_after_many`] with handles that are looked up one by one: `id(i)` answers the `i`-th each time, or
    /// `None` for one to skip.
    ///
    /// The slices are claimed first, so that no other thread frees them in between, and freed once all are claimed.
    /// Another free of one of them is refused as stale meanwhile, even if this call is refused in the end.
    #[cold]
    pub fn free_after_each(
        &self,
        count: u32,
        id: &dyn Fn(u32) -> Option<SliceId>,
        points: &[Point],
    ) -> Result<(), BatchError> {
        check_points(points).map_err(|error| BatchError { index: 0, error })?;
        if !points.is_empty() {
            need_complete(c"free_after_many").map_err(|error| BatchError { index: 0, error })?;
        }
        // What each slice is promised when it is claimed, and gives up when it is freed.
        let promise = match points {
            [] | [_] => 0,
            _ => self.cells().map(|cell| cell.pool.lock().tally(points).promise()).max().unwrap_or(0),
        };
        let batch = FreeMany { id, points, promise };
        if let Err(error) = self.for_each_slot(0..count, &batch, Step::Claim) {
            // Nothing but this call changes what it has claimed, so undoing cannot fail.
            let _ = self.for_each_slot(0..error.index, &batch, Step::Unclaim);
            return Err(error);
        }
        let freed = self.for_each_slot(0..count, &batch, Step::Free);
        if let Err(error) = freed {
            // Another thread has forgotten a timeline meanwhile, and there is no memory for it: the rest stays.
            let _ = self.for_each_slot(error.index..count, &batch, Step::Unclaim);
        }
        for cell in self.cells() {
            self.attend_all(cell, &mut None);
        }
        self.look_at_pressure();
        freed
    }

    /// Takes a step under the lock of each handle's pool, which it keeps for up to [`PER_LOCK`] in a row.
    fn for_each_slot(&self, range: Range<u32>, batch: &FreeMany<'_>, step: Step) -> Result<(), BatchError> {
        let Range { start: mut i, end: count } = range;
        let FreeMany { id, points, promise } = *batch;
        while i < count {
            let Some(first) = id(i) else {
                i += 1;
                continue;
            };
            let refused = |error| BatchError { index: i, error };
            let cell: &Cell = self.cell(first).map_err(refused)?;
            let mut pool = cell.pool.lock();
            // What is told, is told without the lock.
            let per_lock = if self.tells_slices() { 1 } else { PER_LOCK };
            let slices = per_lock.min(count - i);
            let needed = match (step, promise) {
                (Step::Claim, 0) => pool.tally(points).nodes(0),
                (Step::Claim, promise) => pool.tally(points).nodes(0).saturating_add(promise.saturating_mul(slices)),
                (Step::Unclaim, _) => 0,
                // Nothing is lacking, unless a timeline was forgotten after the slices were claimed.
                (Step::Free, 0) => pool.tally(points).nodes(slices),
                (Step::Free, _) => pool.tally(points).nodes(0),
            };
            if !pool.slicer.has_spare_nodes(needed) {
                self.add_nodes(cell, pool).map_err(refused)?;
                continue;
            }
            if step == Step::Claim {
                pool.learn_timelines(points);
            }
            let end = i.saturating_add(per_lock).min(count);
            let mut event = None;
            while i < end {
                match id(i) {
                    Some(next) if next.tag() == first.tag() => {
                        let refused = |error| BatchError { index: i, error };
                        event = self.step(cell, &mut pool, next, batch, step).map_err(refused)?;
                    }
                    Some(_) => break,
                    None => {}
                }
                i += 1;
            }
            drop(pool);
            self.tell(event);
            if i < count {
                cell.pool.give_way();
            }
        }
        Ok(())
    }

    fn step(
        &self,
        cell: &Cell,
        pool: &mut Pool,
        id: SliceId,
        batch: &FreeMany<'_>,
        step: Step,
    ) -> Result<Option<Event>, Error> {
        let mut event = None;
        match step {
            Step::Claim => {
                let slot = pool.slicer.resolve_any(id)?;
                self.check_margin(pool, slot)?;
                pool.claim(slot, batch.promise);
            }
            Step::Unclaim => {
                let slot = pool.slicer.resolve_claimed(id)?;
                pool.unclaim(slot, batch.promise);
            }
            Step::Free => {
                let slot = pool.slicer.resolve_claimed(id)?;
                if self.tells_slices() && pool.tally(batch.points).waits() {
                    event = self.slice_event(EventKind::SlicePending, cell, pool, slot);
                }
                pool.free_claimed(slot, batch.points, batch.promise, &self.clock);
            }
        }
        Ok(event)
    }
}

/// Slices that are being freed together.
#[derive(Clone, Copy)]
struct FreeMany<'a> {
    id: &'a dyn Fn(u32) -> Option<SliceId>,
    points: &'a [Point],
    /// Nodes that each slice is promised when it is claimed.
    promise: u32,
}

/// What happens to each slice of a batch that is being freed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Claim,
    Unclaim,
    Free,
}
