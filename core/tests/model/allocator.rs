//! Allocators against the model.

use crate::budget::Neighbour;
use crate::device::{Events, VirtualDevice};
use crate::ops::{Ask, Only, Pick, Size};
use crate::oracle::{Checked, check_error, ensure};
use crate::pools::Model;
use crate::run::Case;
use crate::shapes::Shape;
use crate::steps::{Op, op};
use proptest::collection::vec;
use proptest::prelude::*;
use slicepool_core::{Allocator, AllocatorOptions, Error, HostDevice, PoolOptions, Request, Slice, SliceId};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;

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
    shape: Shape,
    ops: Vec<Op>,
    end: End,
}

/// Cases of up to `most` operations; `crowded` lets slices pile up.
pub(crate) fn cases(shapes: &'static [Shape], most: usize, crowded: bool) -> impl Strategy<Value = AllocatorCase> {
    let end =
        prop_oneof![3 => Just(End::Destroy), 2 => Just(End::Close), 2 => Just(End::Drop), 1 => Just(End::Abandon)];
    let rarely = || prop_oneof![3 => Just(false), 1 => Just(true)];
    let shape = (0..shapes.len(), rarely(), rarely())
        .prop_map(|(index, tells, can_fill)| shapes[index].besides(tells, can_fill));
    (shape, vec(op(crowded), 1..most), end).prop_map(|(shape, ops, end)| AllocatorCase { shape, ops, end })
}

impl Case for AllocatorCase {
    fn describe(&self) -> String {
        let ops: String = self.ops.iter().map(|op| format!("  {op:?}\n")).collect();
        format!("{:?}\n{ops}  {:?}", self.shape, self.end)
    }

    fn check(&self) -> Checked<usize> {
        let mut subject = Subject::new(&self.shape)?;
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
    pub(crate) shape: Shape,
    /// Slices as they were handed out.
    pub(crate) slices: HashMap<u64, Slice>,
    /// Who shares the budget.
    pub(crate) neighbour: Option<Neighbour>,
    pub(crate) stranger: Allocator<HostDevice>,
    pub(crate) foreign: SliceId,
}

impl Subject {
    fn new(shape: &Shape) -> Checked<Self> {
        let failed = |error| format!("an allocator cannot be made: {error:?}");
        let (pools, mut options) = shape.options();
        let neighbour = shape.shared.map(Neighbour::new).transpose()?;
        options.budget = neighbour.as_ref().map(|neighbour| neighbour.budget().clone());
        let allocator = ManuallyDrop::new(Allocator::try_new(shape.device(), &pools, options).map_err(failed)?);
        let model = Model::new(shape);
        let pools = [PoolOptions::sliced_pages(1024, 1024, None)];
        let stranger = Allocator::try_new(HostDevice::new(), &pools, AllocatorOptions::default()).map_err(failed)?;
        let foreign = stranger.allocate(&Request::new(1)).map_err(failed)?.id;
        let mut subject =
            Self { allocator, model, shape: *shape, slices: HashMap::new(), neighbour, stranger, foreign };
        subject.make_own_pools()?;
        Ok(subject)
    }

    /// The pools of slices with pages of their own are made for the first of them. One that is made later would not age from the start, and not know of what
    /// timelines have completed before.
    fn make_own_pools(&mut self) -> Checked {
        for request in [Request::new(0).persistent(), Request::new(0).dedicated()] {
            // Refused, and made all the same.
            let found = self.allocator.allocate(&request);
            let expected = Err(Error::InvalidArgument { field: c"size", value: 0 });
            ensure!(found == expected, "{request:?} is {found:?}");
        }
        all_accounted_for(&self.events()?)
    }

    fn request(&self, ask: &Ask) -> Request {
        let listed = self.model.listed();
        let scale = self.model.pools[usize::from(ask.measure) % listed].rules.scale();
        let mut request = Request::new(ask.size.bytes(&scale)).aligned(ask.alignment.bytes(&scale));
        // What the device cannot do is asked of it now and then.
        let asks = self.model.can_fill || matches!(ask.pool, Only::Number(_));
        request = ask.special.of(request, asks);
        match ask.pool {
            Only::Any => request,
            Only::This(_) if request.is_persistent() || request.is_dedicated() => request,
            Only::This(pool) => request.in_pool(u32::from(pool) % listed as u32),
            Only::Number(number) => request.in_pool(number),
        }
    }

    /// A size measured by some pool.
    fn bytes(&self, size: Size, pool: usize) -> u64 {
        size.bytes(&self.model.pools[pool].rules.scale())
    }

    /// The handle of a pick; `None` if the pick comes to nothing.
    pub(crate) fn handle(&self, pick: Pick) -> Option<SliceId> {
        let kth = |ids: &[u64], k: u16| (!ids.is_empty()).then(|| ids[usize::from(k) % ids.len()]);
        let handles = &self.model.handles;
        let raw = match pick {
            Pick::Live(k) => kth(&handles.live, k)?,
            Pick::Stale(k) => kth(&handles.stale, k)?,
            Pick::Foreign => self.foreign.to_raw(),
            Pick::Altered { live, bit } => kth(&handles.live, live)? ^ (1 << bit),
            Pick::Number(number) => number,
        };
        let id = SliceId::from_raw(raw)?;
        // It may be that of a slice that was freed before anybody saw it: as good as one that was handed out.
        let unknown = pick != Pick::Foreign && handles.look_up(raw) == Err(Error::ForeignHandle);
        (!unknown || !handles.some_unseen).then_some(id)
    }

    pub(crate) fn events(&self) -> Checked<Events> {
        self.allocator.device().take_events()
    }

    fn step(&mut self, op: &Op) -> Checked {
        match *op {
            Op::Free(pick) => self.free(pick),
            Op::FreeAfter(pick, ref marks) => self.free_after(pick, &self.points(marks)),
            Op::FreeMany(ref picks, ref marks) => {
                let ids: Vec<_> = picks.iter().map(|pick| pick.and_then(|pick| self.handle(pick))).collect();
                self.free_many(&ids, &self.points(marks))
            }
            Op::FreeEvery(step) => {
                let every = self.model.handles.live.iter().step_by(usize::from(step));
                let ids: Vec<_> = every.map(|&id| SliceId::from_raw(id)).collect();
                self.free_many(&ids, &[])
            }
            Op::Collect(mark) => self.collect(mark.timeline(), self.value(mark)),
            Op::ForgetTimeline(mark) => self.forget_timeline(mark.timeline()),
            Op::Progress(mark, by) => {
                self.allocator.device().progress(mark.timeline(), by);
                Ok(())
            }
            Op::Allocate(ref ask) => self.allocate(&self.request(ask)),
            Op::Insist(ref ask, times) => {
                let (request, before) = (self.request(ask), self.slices.len());
                for _ in 0..times {
                    self.allocate(&request)?;
                    if self.slices.len() != before {
                        break;
                    }
                }
                Ok(())
            }
            Op::AllocateMany { ref requests, refuse_at } => {
                let requests: Vec<_> = requests.iter().map(|ask| self.request(ask)).collect();
                self.allocate_many(&requests, refuse_at.map(usize::from))
            }
            Op::Resize(pick, size) => self.resize(pick, size),
            Op::Get(pick) => self.get(pick),
            Op::WouldFit(ref ask) => self.would_fit(&self.request(ask)),
            Op::Trim(size, times) => self.trim(self.bytes(size, 0).saturating_mul(u64::from(times))),
            Op::Cleanup => {
                let result = self.allocator.cleanup();
                self.cleaned_up(result)
            }
            Op::Install { first, free_all } => self.install(usize::from(first), free_all),
            Op::Neighbour(size) => self.neighbour(size.map(|size| self.bytes(size, 0))),
            Op::Walk(most) => self.walk(usize::from(most)),
            Op::Mood { ref answers, refuse_returns, hopes, ref fills } => {
                self.allocator.device().set_mood(answers, refuse_returns, hopes);
                self.allocator.device().set_fills(fills);
                Ok(())
            }
        }
    }

    // ---- operations

    fn would_fit(&self, request: &Request) -> Checked {
        // Nothing is filled for that.
        let mut plain = Request::new(request.size).aligned(request.alignment);
        plain.pool = request.pool;
        let plain = if request.never_grows() { plain.never_growing() } else { plain };
        let request = match (request.is_persistent(), request.is_dedicated()) {
            (true, _) => plain.persistent(),
            (_, true) => plain.dedicated(),
            _ => plain,
        };
        let expected = match self.model.refusal(&request) {
            Some(error) => Err(error),
            None => Ok(self.model.fits(&request) || (request.never_grows() && self.model.fits_in_need(&request))),
        };
        let found = self.allocator.would_fit(&request);
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
            if pool.books.pages[&place.page].live[&place.offset].scrub {
                // What it gave up would not be overwritten.
                return Err(Error::NotSupported { what: c"try_resize" });
            }
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

    fn trim(&mut self, keep: u64) -> Checked {
        let found = self.allocator.trim(keep);
        let mut events = self.events()?;
        let expected = self.model.trimmed(keep, &mut events)?.map_or(Ok(()), Err);
        all_accounted_for(&events)?;
        ensure!(found == expected, "trim answers {found:?} instead of {expected:?}");
        Ok(())
    }

    pub(crate) fn cleaned_up(&mut self, found: Result<(), Error>) -> Checked {
        let mut events = self.events()?;
        let expected = self.model.cleaned_up(&mut events)?.map_or(Ok(()), Err);
        all_accounted_for(&events)?;
        ensure!(found == expected, "cleaning up answers {found:?} instead of {expected:?}");
        Ok(())
    }

    fn walk(&self, most: usize) -> Checked {
        let mut seen = 0;
        let end = self.allocator.walk(|_| {
            seen += 1;
            if seen > most { ControlFlow::Break(most) } else { ControlFlow::Continue(()) }
        });
        let all: usize = self.model.pools.iter().map(|pool| pool.books.free_ranges().count()).sum();
        let all = all + self.model.handles.live.len() + self.model.waits.count();
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
