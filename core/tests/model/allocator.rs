//! Allocators with sliced pools against the model.

use crate::device::{Answer, Event, VirtualDevice};
use crate::ops::{Alignment, Pick, Scale, Size, pick, picks, request, size, small_request};
use crate::oracle::{Checked, Place, Shown, check_error, ensure};
use crate::pools::Model;
use crate::run::Case;
use crate::shapes::{SHAPES, Shape, malformed};
use proptest::collection::vec;
use proptest::prelude::*;
use slicepool_core::{
    Allocator, AllocatorOptions, BatchError, DeviceFault, Error, HostDevice, PoolOptions, Range, Request, Slice,
    SliceId,
};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Free(Pick),
    Allocate(Size, Alignment),
    Resize(Pick, Size),
    Get(Pick),
    WouldFit(Size, Alignment),
    FreeMany(Vec<Option<Pick>>),
    AllocateMany {
        requests: Vec<(Size, Alignment)>,
        refuse_at: Option<u8>,
    },
    /// Frees every so-manieth live slice.
    FreeEvery(u8),
    Trim(Size),
    Cleanup,
    /// A walk that ends after so many ranges.
    Walk(u8),
    Mood {
        answers: Vec<Answer>,
        refuse_returns: u8,
    },
}

/// How the allocator goes away.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Destroy,
    /// Closed while shared, slices or not.
    Close,
    Drop,
    Abandon,
}

/// An allocator and what is done with it.
#[derive(Clone, Debug)]
pub(crate) struct AllocatorCase {
    shape: usize,
    ops: Vec<Op>,
    end: End,
}

/// Cases of up to `most` operations; `crowded` lets slices pile up.
pub(crate) fn cases(most: usize, crowded: bool) -> impl Strategy<Value = AllocatorCase> {
    let end =
        prop_oneof![3 => Just(End::Destroy), 2 => Just(End::Close), 2 => Just(End::Drop), 1 => Just(End::Abandon)];
    (0..SHAPES.len(), vec(op(crowded), 1..most), end).prop_map(|(shape, ops, end)| AllocatorCase { shape, ops, end })
}

fn op(crowded: bool) -> impl Strategy<Value = Op> {
    let many = prop_oneof![1 => vec(request(), 0..8), 2 => vec(small_request(), 0..8)];
    let refuse_at = prop_oneof![8 => Just(None), 1 => (0u8..8).prop_map(Some)];
    let answer = prop_oneof![
        4 => Just(Answer::Page),
        4 => Just(Answer::OutOfMemory),
        1 => Just(Answer::Failed),
        1 => Just(Answer::UnknownResult),
        1 => Just(Answer::NotFilled),
        1 => Just(Answer::Duplicate),
        1 => Just(Answer::Misaligned),
    ];
    let rare = if crowded { 1 } else { 10 };
    prop_oneof![
        180 => pick().prop_map(Op::Free),
        400 => request().prop_map(|(size, alignment)| Op::Allocate(size, alignment)),
        80 => (pick(), size()).prop_map(|(pick, size)| Op::Resize(pick, size)),
        10 => pick().prop_map(Op::Get),
        20 => request().prop_map(|(size, alignment)| Op::WouldFit(size, alignment)),
        20 => picks().prop_map(Op::FreeMany),
        40 => (many, refuse_at).prop_map(|(requests, refuse_at)| Op::AllocateMany { requests, refuse_at }),
        rare => (1u8..6).prop_map(Op::FreeEvery),
        10 => size().prop_map(Op::Trim),
        10 => Just(Op::Cleanup),
        10 => (0u8..100).prop_map(Op::Walk),
        20 => (vec(answer, 0..4), prop_oneof![3 => Just(0), 1 => 1u8..4])
            .prop_map(|(answers, refuse_returns)| Op::Mood { answers, refuse_returns }),
    ]
}

impl Case for AllocatorCase {
    fn describe(&self) -> String {
        let ops: String = self.ops.iter().map(|op| format!("  {op:?}\n")).collect();
        format!("{:?}\n{ops}  {:?}", SHAPES[self.shape], self.end)
    }

    fn check(&self) -> Checked<usize> {
        let mut subject = Subject::new(&SHAPES[self.shape])?;
        for (index, op) in self.ops.iter().enumerate() {
            let step = subject.step(op).and_then(|()| subject.check_everything(index));
            step.map_err(|error| format!("{error} (operation {index}: {op:?})"))?;
        }
        subject.end(self.end).map_err(|error| format!("{error} (in the end)"))?;
        Ok(self.ops.len())
    }
}

/// An allocator, its model, and what to try it with.
pub(crate) struct Subject {
    /// Dropped by [`Subject::end`] alone: in a build that has just failed, dropping might do anything.
    pub(crate) allocator: ManuallyDrop<Allocator<VirtualDevice>>,
    pub(crate) model: Model,
    scale: Scale,
    /// Slices as they were handed out.
    pub(crate) slices: HashMap<u64, Slice>,
    pub(crate) stranger: Allocator<HostDevice>,
    pub(crate) foreign: SliceId,
}

impl Subject {
    fn new(shape: &Shape) -> Checked<Self> {
        let failed = |error| format!("an allocator cannot be made: {error:?}");
        let (pools, options) = shape.options();
        let allocator = ManuallyDrop::new(Allocator::try_new(shape.device(), &pools, options).map_err(failed)?);
        let model = Model::new(shape);
        let scale = model.pools[model.pools.len() - 1].rules.scale();
        let pools = [PoolOptions::sliced_pages(1024, 1024, None)];
        let stranger = Allocator::try_new(HostDevice::new(), &pools, AllocatorOptions::default()).map_err(failed)?;
        let foreign = stranger.allocate(&Request::new(1)).map_err(failed)?.id;
        Ok(Self { allocator, model, scale, slices: HashMap::new(), stranger, foreign })
    }

    fn request(&self, size: Size, alignment: Alignment) -> Request {
        Request::new(size.bytes(&self.scale)).aligned(alignment.bytes(&self.scale))
    }

    /// The handle of a pick; `None` if the pick comes to nothing.
    fn handle(&self, pick: Pick) -> Option<SliceId> {
        let kth = |ids: &[u64], k: u16| (!ids.is_empty()).then(|| ids[usize::from(k) % ids.len()]);
        let handles = &self.model.handles;
        let raw = match pick {
            Pick::Live(k) => kth(&handles.live, k)?,
            Pick::Stale(k) => kth(&handles.stale, k)?,
            Pick::Foreign => self.foreign.to_raw(),
            Pick::Altered { live, bit } => kth(&handles.live, live)? ^ (1 << bit),
            Pick::Number(number) => number,
        };
        SliceId::from_raw(raw)
    }

    /// What a handle is. One that a refused batch used for itself was never handed out, but counts as stale.
    fn look_up(&self, id: SliceId) -> Result<Place, Error> {
        match self.model.handles.look_up(id.to_raw()) {
            Err(Error::ForeignHandle) if self.model.batch_undone && self.is_stale(id) => Err(Error::StaleHandle),
            place => place,
        }
    }

    fn is_stale(&self, id: SliceId) -> bool {
        self.allocator.get(id) == Err(Error::StaleHandle)
    }

    fn events(&self) -> Checked<Vec<Event>> {
        self.allocator.device().take_events()
    }

    fn step(&mut self, op: &Op) -> Checked {
        match *op {
            Op::Free(pick) => self.free(pick),
            Op::Allocate(size, alignment) => self.allocate(&self.request(size, alignment)),
            Op::Resize(pick, size) => self.resize(pick, size.bytes(&self.scale)),
            Op::Get(pick) => self.get(pick),
            Op::WouldFit(size, alignment) => self.would_fit(&self.request(size, alignment)),
            Op::FreeMany(ref picks) => {
                let ids: Vec<_> = picks.iter().map(|pick| pick.and_then(|pick| self.handle(pick))).collect();
                self.free_many(&ids)
            }
            Op::AllocateMany { ref requests, refuse_at } => {
                let requests: Vec<_> =
                    requests.iter().map(|&(size, alignment)| self.request(size, alignment)).collect();
                self.allocate_many(&requests, refuse_at.map(usize::from))
            }
            Op::FreeEvery(step) => {
                let every = self.model.handles.live.iter().step_by(usize::from(step));
                let ids: Vec<_> = every.map(|&id| SliceId::from_raw(id)).collect();
                self.free_many(&ids)
            }
            Op::Trim(keep) => {
                let keep = keep.bytes(&self.scale);
                let result = self.allocator.trim(keep);
                self.trimmed(keep, result)
            }
            Op::Cleanup => {
                let result = self.allocator.cleanup();
                self.trimmed(0, result)
            }
            Op::Walk(most) => self.walk(usize::from(most)),
            Op::Mood { ref answers, refuse_returns } => {
                self.allocator.device().set_mood(answers, refuse_returns);
                Ok(())
            }
        }
    }

    // ---- operations

    fn free(&mut self, pick: Pick) -> Checked {
        let Some(id) = self.handle(pick) else { return Ok(()) };
        let expected = self.look_up(id).map(|_| ());
        let found = self.allocator.free(id);
        ensure!(found == expected, "free answers {found:?} instead of {expected:?}");
        if found.is_ok() {
            self.forget(id);
        }
        Ok(())
    }

    fn forget(&mut self, id: SliceId) {
        self.model.free(id.to_raw());
        self.slices.remove(&id.to_raw());
    }

    fn would_fit(&self, request: &Request) -> Checked {
        let expected = match self.model.refusal(request) {
            Some(error) => Err(error),
            None => Ok(self.model.fits(request)),
        };
        let found = self.allocator.would_fit(request);
        ensure!(found == expected, "would_fit({request:?}) answers {found:?} instead of {expected:?}");
        Ok(())
    }

    fn allocate(&mut self, request: &Request) -> Checked {
        self.would_fit(request)?;
        let result = self.allocator.allocate(request);
        let events = self.events()?;
        match result {
            Ok(slice) => {
                self.slices.insert(slice.id.to_raw(), slice);
                self.model.allocated(request, &slice, &events, true)
            }
            Err(error) => self.model.refused(request, error, &events),
        }
    }

    fn resize(&mut self, pick: Pick, size: u64) -> Checked {
        let Some(id) = self.handle(pick) else { return Ok(()) };
        let found = self.allocator.try_resize(id, size);
        let expected = self.look_up(id).and_then(|place| {
            let request = Request::new(size);
            let pool = &self.model.pools[place.pool];
            if let Some(error) = malformed(&request).or_else(|| pool.rules.refusal(&request)) {
                return Err(error);
            }
            let available = pool.books.available(place.page, place.offset);
            if pool.books.rounded(size) > u128::from(available) {
                return Err(Error::NoRoom { size, available });
            }
            Ok(place)
        });
        match (found, expected) {
            (Ok(slice), Ok(place)) => {
                let books = &mut self.model.pools[place.pool].books;
                let old = self.slices[&id.to_raw()];
                let resized = Slice { size: books.rounded(size) as u64, ..old };
                ensure!(slice == resized, "try_resize({size}) made {slice:?} of {old:?}");
                books.resize(place.page, place.offset, size);
                self.slices.insert(id.to_raw(), slice);
                Ok(())
            }
            (Err(found), Err(expected)) => check_error(found, expected, 0),
            (found, expected) => Err(format!("try_resize({size}) answers {found:?} instead of {expected:?}")),
        }
    }

    fn get(&self, pick: Pick) -> Checked {
        let Some(id) = self.handle(pick) else { return Ok(()) };
        let expected = self.look_up(id).map(|_| self.slices[&id.to_raw()]);
        let found = self.allocator.get(id);
        ensure!(found == expected, "get answers {found:?} instead of {expected:?}");
        Ok(())
    }

    pub(crate) fn free_many(&mut self, ids: &[Option<SliceId>]) -> Checked {
        let mut expected = Ok(());
        for (index, id) in ids.iter().enumerate() {
            let Some(id) = id else { continue };
            let error = match self.look_up(*id) {
                Ok(_) if ids[..index].contains(&Some(*id)) => Error::StaleHandle,
                Ok(_) => continue,
                Err(error) => error,
            };
            expected = Err(BatchError { index: index as u32, error });
            break;
        }
        let found = match ids.iter().copied().collect::<Option<Vec<_>>>() {
            Some(ids) => self.allocator.free_many(&ids),
            None => self.allocator.free_each(ids.len() as u32, |index| ids[index as usize]),
        };
        ensure!(found == expected, "free_many answers {found:?} instead of {expected:?}");
        if found.is_ok() {
            ids.iter().flatten().for_each(|&id| self.forget(id));
        }
        Ok(())
    }

    fn allocate_many(&mut self, requests: &[Request], refuse_at: Option<usize>) -> Checked {
        let refuse_at = refuse_at.filter(|&index| index < requests.len());
        // An error that nothing else answers.
        let refusal = Error::OutOfHostMemory { bytes: 12_345 };
        let mut asked = 0;
        let result = match refuse_at {
            None => self.allocator.allocate_many(requests),
            Some(refused) => self.allocator.allocate_each(requests.len() as u32, |index| {
                let in_turn = index == asked;
                asked += 1;
                // No lock is held: the allocator may be used.
                match self.allocator.check() {
                    Ok(()) if in_turn && index as usize != refused => Ok(requests[index as usize]),
                    _ => Err(refusal),
                }
            }),
        };
        let events = self.events()?;
        match result {
            Ok(batch) => {
                ensure!(refuse_at.is_none(), "a batch was served in spite of its caller");
                let slices: Vec<Slice> = batch.iter().copied().collect();
                self.slices.extend(slices.iter().map(|slice| (slice.id.to_raw(), *slice)));
                self.model.allocated_many(requests, &slices, &events)
            }
            Err(BatchError { index, error }) if error == refusal => {
                ensure!(Some(index as usize) == refuse_at, "the batch was refused at {index}: {refuse_at:?}");
                self.model.undone(requests, index as usize, &events)
            }
            Err(BatchError { index, error }) => {
                ensure!(refuse_at.is_none_or(|refused| (index as usize) < refused), "{error:?} at {index}");
                self.model.refused_many(requests, index as usize, error, &events)
            }
        }
    }

    pub(crate) fn trimmed(&mut self, keep: u64, found: Result<(), Error>) -> Checked {
        let events = self.events()?;
        let refusal = self.model.trimmed(keep, &events)?;
        let expected = refusal.map_or(Ok(()), |code| Err(Error::DeviceFailed { fault: DeviceFault::Refused, code }));
        ensure!(found == expected, "trim answers {found:?} instead of {expected:?}");
        Ok(())
    }

    fn walk(&self, most: usize) -> Checked {
        let mut seen = 0;
        let end = self.allocator.walk(|_| {
            seen += 1;
            if seen > most { ControlFlow::Break(most) } else { ControlFlow::Continue(()) }
        });
        let all: usize = self.model.pools.iter().map(|pool| pool.books.free_ranges().count()).sum();
        let all = all + self.model.handles.live.len();
        let expected = if most < all { ControlFlow::Break(most) } else { ControlFlow::Continue(()) };
        ensure!(end == expected && seen == all.min(most + 1), "a walk ended with {end:?} after {seen} of {all}");
        self.check_report()
    }

    /// The report has the figures in it. What else is in it, other tests look at.
    fn check_report(&self) -> Checked {
        let mut report = String::new();
        ensure!(self.allocator.write_json(&mut report).is_ok(), "the report is not written");
        let slices = format!("\"slices\":{}", self.model.handles.live.len());
        let pools = report.matches("\"type\":\"sliced_pages\"").count();
        ensure!(report.contains(&slices) && pools == self.model.pools.len(), "{slices} is not in {report}");
        Ok(())
    }

    // ---- after every operation

    pub(crate) fn check_everything(&mut self, step: usize) -> Checked {
        let events = self.events()?;
        ensure!(events.is_empty(), "the device was called: {events:?}");
        let mut shown = vec![Vec::new(); self.model.pools.len()];
        let walk = self.allocator.walk(|range| match self.check_range(range) {
            Ok(()) => {
                let Range { memory: page, offset, size, requested, .. } = *range;
                let id = range.id.map(SliceId::to_raw);
                shown[range.pool as usize].push(Shown { page, offset, size, id, requested: Some(requested) });
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        });
        if let ControlFlow::Break(error) = walk {
            return Err(error);
        }
        let (mut slices, mut in_use, mut largest) = (0, 0, 0);
        for (index, shown) in shown.iter_mut().enumerate() {
            let found = self.allocator.pool_statistics(index).ok_or("a pool has no statistics")?;
            let figures = self.model.check_pool(index, &found, shown)?;
            slices += figures.slices;
            in_use += figures.in_use;
            largest = largest.max(figures.largest);
        }
        self.check_sum()?;
        let found = self.allocator.largest_free();
        ensure!(found == largest, "the largest free range has {largest} bytes, not {found}");
        self.check_stale_handles(step, 2)?;
        let busy = Error::Busy { live: u64::from(slices), in_use, in_flight: 0 };
        let expected = if slices == 0 { Ok(()) } else { Err(busy) };
        let found = self.allocator.can_destroy(slicepool_core::LiveSlices::Refuse);
        ensure!(found == expected, "can_destroy answers {found:?} instead of {expected:?}");
        ensure!(
            self.allocator.can_destroy(slicepool_core::LiveSlices::Free).is_ok(),
            "it cannot be destroyed by force"
        );
        self.allocator.check().map_err(String::from)
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

    /// The allocator's figures are the sums of its pools'.
    fn check_sum(&self) -> Checked {
        let sum = self.allocator.statistics();
        let pools: Vec<_> =
            (0..self.allocator.pool_count()).filter_map(|i| self.allocator.pool_statistics(i)).collect();
        ensure!(pools.len() == self.model.pools.len(), "there are {} pools", pools.len());
        let add = |figure: fn(&slicepool_core::Statistics) -> u64| pools.iter().map(figure).sum::<u64>();
        let same = sum.reserved == add(|pool| pool.reserved)
            && sum.in_use == add(|pool| pool.in_use)
            && sum.padding == add(|pool| pool.padding)
            && sum.free == add(|pool| pool.free)
            && sum.stuck == add(|pool| pool.stuck)
            && (sum.reserved..=add(|pool| pool.reserved_peak)).contains(&sum.reserved_peak)
            && sum.in_use_peak == add(|pool| pool.in_use_peak)
            && sum.device_allocations == add(|pool| pool.device_allocations)
            && sum.device_deallocations == add(|pool| pool.device_deallocations)
            && u64::from(sum.slices) == add(|pool| u64::from(pool.slices))
            && u64::from(sum.free_ranges) == add(|pool| u64::from(pool.free_ranges))
            && u64::from(sum.pages) == add(|pool| u64::from(pool.pages))
            && u64::from(sum.pages_idle) == add(|pool| u64::from(pool.pages_idle))
            && u64::from(sum.pages_stuck) == add(|pool| u64::from(pool.pages_stuck))
            && Some(sum.largest_free_bound) == pools.iter().map(|pool| pool.largest_free_bound).max();
        ensure!(same, "{sum:?} is not the sum of {pools:?}");
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
