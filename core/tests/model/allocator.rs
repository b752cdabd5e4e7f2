//! Allocators against the model.

use crate::device::{Answer, Events, VirtualDevice};
use crate::ops::{Ask, Only, Pick, Size, ask, pick, picks, size, small_ask};
use crate::oracle::{Checked, check_error, ensure};
use crate::pools::Model;
use crate::run::Case;
use crate::shapes::Shape;
use proptest::collection::vec;
use proptest::prelude::*;
use slicepool_core::{
    Allocator, AllocatorOptions, BatchError, DeviceFault, Error, HostDevice, PoolOptions, Request, Slice, SliceId,
};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Free(Pick),
    Allocate(Ask),
    Resize(Pick, Size),
    Get(Pick),
    WouldFit(Ask),
    FreeMany(Vec<Option<Pick>>),
    AllocateMany {
        requests: Vec<Ask>,
        refuse_at: Option<u8>,
    },
    /// Frees every so-manieth live slice.
    FreeEvery(u8),
    /// Down to so many times a size.
    Trim(Size, u8),
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
    shape: &'static Shape,
    ops: Vec<Op>,
    end: End,
}

/// Cases of up to `most` operations; `crowded` lets slices pile up.
pub(crate) fn cases(shapes: &'static [Shape], most: usize, crowded: bool) -> impl Strategy<Value = AllocatorCase> {
    let end =
        prop_oneof![3 => Just(End::Destroy), 2 => Just(End::Close), 2 => Just(End::Drop), 1 => Just(End::Abandon)];
    let shape = (0..shapes.len()).prop_map(|index| &shapes[index]);
    (shape, vec(op(crowded), 1..most), end).prop_map(|(shape, ops, end)| AllocatorCase { shape, ops, end })
}

fn op(crowded: bool) -> impl Strategy<Value = Op> {
    let many = prop_oneof![1 => vec(ask(), 0..8), 2 => vec(small_ask(), 0..8)];
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
        190 => pick().prop_map(Op::Free),
        400 => ask().prop_map(Op::Allocate),
        80 => (pick(), size()).prop_map(|(pick, size)| Op::Resize(pick, size)),
        10 => pick().prop_map(Op::Get),
        20 => ask().prop_map(Op::WouldFit),
        20 => picks().prop_map(Op::FreeMany),
        40 => (many, refuse_at).prop_map(|(requests, refuse_at)| Op::AllocateMany { requests, refuse_at }),
        rare => (1u8..6).prop_map(Op::FreeEvery),
        6 => (size(), 0u8..20).prop_map(|(size, times)| Op::Trim(size, times)),
        4 => Just(Op::Cleanup),
        10 => (0u8..100).prop_map(Op::Walk),
        20 => (vec(answer, 0..4), prop_oneof![3 => Just(0), 1 => 1u8..4])
            .prop_map(|(answers, refuse_returns)| Op::Mood { answers, refuse_returns }),
    ]
}

impl Case for AllocatorCase {
    fn describe(&self) -> String {
        let ops: String = self.ops.iter().map(|op| format!("  {op:?}\n")).collect();
        format!("{:?}\n{ops}  {:?}", self.shape, self.end)
    }

    fn check(&self) -> Checked<usize> {
        let mut subject = Subject::new(self.shape)?;
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
        let pools = [PoolOptions::sliced_pages(1024, 1024, None)];
        let stranger = Allocator::try_new(HostDevice::new(), &pools, AllocatorOptions::default()).map_err(failed)?;
        let foreign = stranger.allocate(&Request::new(1)).map_err(failed)?.id;
        Ok(Self { allocator, model, slices: HashMap::new(), stranger, foreign })
    }

    fn request(&self, ask: &Ask) -> Request {
        let pools = &self.model.pools;
        let scale = pools[usize::from(ask.measure) % pools.len()].rules.scale();
        let request = Request::new(ask.size.bytes(&scale)).aligned(ask.alignment.bytes(&scale));
        match ask.pool {
            Only::Any => request,
            Only::This(pool) => request.in_pool(u32::from(pool) % pools.len() as u32),
            Only::Number(number) => request.in_pool(number),
        }
    }

    /// A size measured by some pool.
    fn bytes(&self, size: Size, pool: usize) -> u64 {
        size.bytes(&self.model.pools[pool].rules.scale())
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

    pub(crate) fn events(&self) -> Checked<Events> {
        self.allocator.device().take_events()
    }

    fn step(&mut self, op: &Op) -> Checked {
        match *op {
            Op::Free(pick) => self.free(pick),
            Op::Allocate(ref ask) => self.allocate(&self.request(ask)),
            Op::Resize(pick, size) => self.resize(pick, size),
            Op::Get(pick) => self.get(pick),
            Op::WouldFit(ref ask) => self.would_fit(&self.request(ask)),
            Op::FreeMany(ref picks) => {
                let ids: Vec<_> = picks.iter().map(|pick| pick.and_then(|pick| self.handle(pick))).collect();
                self.free_many(&ids)
            }
            Op::AllocateMany { ref requests, refuse_at } => {
                let requests: Vec<_> = requests.iter().map(|ask| self.request(ask)).collect();
                self.allocate_many(&requests, refuse_at.map(usize::from))
            }
            Op::FreeEvery(step) => {
                let every = self.model.handles.live.iter().step_by(usize::from(step));
                let ids: Vec<_> = every.map(|&id| SliceId::from_raw(id)).collect();
                self.free_many(&ids)
            }
            Op::Trim(size, times) => {
                let keep = self.bytes(size, 0).saturating_mul(u64::from(times));
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
        let expected = self.model.handles.look_up(id.to_raw()).map(|_| ());
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
        let mut events = self.events()?;
        if let Ok(slice) = result {
            self.slices.insert(slice.id.to_raw(), slice);
        }
        self.model.asked(request, result, &mut events)?;
        all_accounted_for(&events)
    }

    fn resize(&mut self, pick: Pick, size: Size) -> Checked {
        let Some(id) = self.handle(pick) else { return Ok(()) };
        let place = self.model.handles.look_up(id.to_raw());
        let size = self.bytes(size, place.map_or(0, |place| place.pool));
        let found = self.allocator.try_resize(id, size);
        let expected = place.and_then(|place| {
            let pool = &self.model.pools[place.pool];
            let available = pool.books.available(place.page, place.offset);
            match pool.rules.refusal(&Request::new(size)) {
                Some(error) => Err(error),
                None if pool.books.rounded(size) > u128::from(available) => Err(Error::NoRoom { size, available }),
                None => Ok(place),
            }
        });
        match (found, expected) {
            (Ok(slice), Ok(place)) => {
                let books = &mut self.model.pools[place.pool].books;
                let old = self.slices[&id.to_raw()];
                let page = books.pages[&place.page].size;
                let resized = Slice { size: books.taken(size, page) as u64, ..old };
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
        let expected = self.model.handles.look_up(id.to_raw()).map(|_| self.slices[&id.to_raw()]);
        let found = self.allocator.get(id);
        ensure!(found == expected, "get answers {found:?} instead of {expected:?}");
        Ok(())
    }

    pub(crate) fn free_many(&mut self, ids: &[Option<SliceId>]) -> Checked {
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
        let found = match ids.iter().copied().collect::<Option<Vec<_>>>() {
            Some(ids) => self.allocator.free_many(&ids),
            None => self.allocator.free_after_each(ids.len() as u32, &|index| ids[index as usize], &[]),
        };
        ensure!(found == expected, "free_many answers {found:?} instead of {expected:?}");
        if found.is_ok() {
            ids.iter().flatten().for_each(|&id| self.forget(id));
        }
        Ok(())
    }

    pub(crate) fn trimmed(&mut self, keep: u64, found: Result<(), Error>) -> Checked {
        let mut events = self.events()?;
        let refusal = self.model.trimmed(keep, &mut events)?;
        all_accounted_for(&events)?;
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
        let pools = report.matches("\"type\":").count();
        ensure!(report.contains(&slices) && pools == self.model.pools.len(), "{slices} is not in {report}");
        Ok(())
    }
}

/// Nothing happened that nobody expected.
pub(crate) fn all_accounted_for(events: &Events) -> Checked {
    ensure!(events.is_empty(), "nobody expected {events:?}");
    Ok(())
}
