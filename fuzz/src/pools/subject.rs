//! An allocator, its device, and what is known of both.

use super::device::{FuzzDevice, Live, Pending, World};
use super::shape::Shape;
use crate::host::Host;
use slicepool_core::{
    Allocator, Budget, DeviceLayout, Error, LiveSlices, LockKind, MemoryType, Point, PoolOptions, PoolType, Request,
    Slice, SliceId,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// More slices take too long to look at.
pub(super) const MOST_SLICES: usize = 120;

/// Freed handles that are remembered.
const MOST_STALE: usize = 60;

/// The timelines that slices wait for.
pub(super) const TIMELINES: [u32; 4] = [0, 1, 7, u32::MAX];

/// Does something with the allocator from within a callback.
pub(super) trait Reentry {
    fn call_back(&self, action: u8);
}

/// What a pool's requests are measured by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    pub(super) granule: u64,
    pub(super) page: u64,
}

pub(super) struct Subject {
    /// From a box. Callbacks look at it while calls on it run, so it is never lent out for longer than a call.
    allocator: Cell<*mut Allocator<FuzzDevice>>,
    pub(super) world: Rc<World>,
    pub(super) host: Box<Host>,
    pub(super) budget: Option<Budget>,
    pub(super) types: Vec<MemoryType>,
    pub(super) stale: RefCell<Vec<u64>>,
    pub(super) measures: RefCell<Vec<Measure>>,
    /// The one that callbacks ask for what is remembered.
    myself: std::rc::Weak<Subject>,
}

impl Subject {
    /// `None` if there is no such allocator.
    pub(super) fn new(shape: Shape) -> Option<Rc<Self>> {
        let host = Box::new(Host::default());
        let world = Rc::new(World::new(shape.habits, shape.types.clone()));
        let mut options = shape.options.with_memory(host.memory());
        let budget = shape.budget.map(|(bytes, pages)| {
            Budget::try_new(host.memory(), LockKind::spin(), bytes, pages).expect("there is host memory")
        });
        if let Some(budget) = &budget {
            options = options.with_budget(budget);
        }
        let memory = DeviceLayout::new(&shape.types, &shape.heaps);
        let made = Allocator::with_memory_types(FuzzDevice(world.clone()), &memory, &shape.pools, options);
        let allocator = match made {
            Ok(allocator) => Box::into_raw(Box::new(allocator)),
            Err(error) => {
                let prefills = shape.pools.iter().any(|pool| pool.min_pages != 0);
                let refused = matches!(error, Error::InvalidArgument { .. } | Error::NotSupported { .. });
                assert!(prefills || refused, "{error:?}");
                drop(budget);
                assert!(world.state.borrow().held.is_empty() && host.is_empty(), "something was left behind");
                return None;
            }
        };
        let subject = Rc::new_cyclic(|myself| Self {
            allocator: Cell::new(allocator),
            world,
            host,
            budget,
            types: shape.types,
            stale: RefCell::default(),
            measures: RefCell::default(),
            myself: myself.clone(),
        });
        subject.look_at_pools();
        subject.answer_callbacks(true);
        Some(subject)
    }

    /// Lets callbacks call back, or not.
    pub(super) fn answer_callbacks(&self, answer: bool) {
        let subject = self.myself.upgrade().filter(|_| answer);
        *self.world.reentry.borrow_mut() = subject.map(|subject| subject as Rc<dyn Reentry>);
    }

    pub(super) fn allocator(&self) -> &Allocator<FuzzDevice> {
        // SAFETY: lives until `end`, and is changed through a unique reference only in `install`, when nobody looks.
        unsafe { &*self.allocator.get() }
    }

    /// Puts other pools in place of those there are.
    pub(super) fn install(&self, pools: &[PoolOptions]) -> Result<(), Error> {
        let prepared = self.allocator().prepare_pools(pools)?;
        // SAFETY: replacing calls nobody, so this is the only reference.
        unsafe { &mut *self.allocator.get() }.replace_pools(prepared)?;
        self.stale.borrow_mut().clear();
        self.look_at_pools();
        self.allocator().prefill_all()
    }

    /// Takes down what the pools are like.
    fn look_at_pools(&self) {
        let allocator = self.allocator();
        let measure = |index| {
            let options = allocator.pool_report(index).expect("there is such a pool").options;
            let page = match options.pool_type {
                PoolType::SlicedPages { page_size, .. } => page_size,
                PoolType::ExclusivePages { max_alloc_size } => max_alloc_size,
                PoolType::Direct { reclaim_at } => reclaim_at.unwrap_or(1 << 20),
            };
            Measure { granule: options.granule, page }
        };
        *self.measures.borrow_mut() = (0..allocator.pool_count()).map(measure).collect();
    }

    // ---- what is known

    /// The handle of a live slice, counted round and round.
    pub(super) fn live(&self, index: usize) -> Option<SliceId> {
        let live = &self.world.state.borrow().live;
        live.keys().nth(index % live.len().max(1)).and_then(|&id| SliceId::from_raw(id))
    }

    /// Takes a new slice down, which must be as it was asked for and nobody else's.
    pub(super) fn add(&self, slice: Slice, request: &Request) {
        let mut state = self.world.state.borrow_mut();
        let align = request.alignment;
        assert!(slice.size >= request.size, "{slice:?} for {request:?}");
        assert_eq!((slice.offset % align, slice.address % align), (0, 0), "{slice:?} for {request:?}");
        let end = slice.offset.checked_add(slice.size).unwrap_or_else(|| panic!("{slice:?} has no end"));
        if slice.memory == u64::MAX {
            assert!(state.habits.dry_run, "{slice:?} has no memory");
        } else {
            let page = state.held.get(&slice.memory).unwrap_or_else(|| panic!("{slice:?} is in no page"));
            assert!(end <= page.memory.size && !page.stuck, "{slice:?} in {page:?}");
            let address = if page.memory.address == 0 { 0 } else { page.memory.address + slice.offset };
            assert_eq!(slice.address, address, "{slice:?} in {page:?}");
            let overlaps =
                |memory, offset, size| memory == slice.memory && offset < end && slice.offset < offset + size;
            for other in state.live.values().map(|live| &live.slice) {
                assert!(!overlaps(other.memory, other.offset, other.size), "{slice:?} overlaps {other:?}");
            }
            // Nor may resources of two kinds share a range of the granularity.
            let granularity = state.types[page.memory_type as usize].granularity;
            for other in state.live.values().filter(|live| live.kind != request.kind()).map(|live| &live.slice) {
                let apart = |first: &Slice, second: &Slice| {
                    (first.offset + first.size.max(1) - 1) / granularity < second.offset / granularity
                };
                let apart = other.memory != slice.memory || apart(other, &slice) || apart(&slice, other);
                assert!(apart, "{slice:?} shares a range with {other:?}, of another kind");
            }
            for other in state.pending.iter().filter(|other| !state.is_due(other)) {
                assert!(!overlaps(other.memory, other.offset, other.size), "{slice:?} overlaps {other:?}, which waits");
            }
        }
        let id = slice.id.to_raw();
        assert!(!self.stale.borrow().contains(&id), "{id:#x} has come back");
        let live = Live { slice, asked: request.size, scrub: request.is_scrubbed(), kind: request.kind() };
        assert!(state.live.insert(id, live).is_none(), "{id:#x} was given out twice");
    }

    /// Frees slices with `free`: if it succeeds, they wait for `points`, or for nothing.
    pub(super) fn free_with(
        &self,
        ids: &[SliceId],
        points: &[Point],
        free: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut taken = Vec::new();
        {
            let state = &mut *self.world.state.borrow_mut();
            for id in ids.iter().map(|id| id.to_raw()) {
                let Some(live) = state.live.remove(&id) else { continue };
                let Slice { memory, offset, size, .. } = live.slice;
                state.pending.push(Pending { id, memory, offset, size, points: points.to_vec(), scrub: live.scrub });
                taken.push(live);
            }
        }
        let outcome = free();
        if outcome.is_ok() {
            let mut stale = self.stale.borrow_mut();
            stale.extend(taken.iter().map(|live| live.slice.id.to_raw()));
            let excess = stale.len().saturating_sub(MOST_STALE);
            stale.drain(..excess);
        } else {
            let mut state = self.world.state.borrow_mut();
            for live in taken {
                let id = live.slice.id.to_raw();
                state.pending.retain(|slice| slice.id != id);
                state.live.insert(id, live);
            }
        }
        outcome
    }

    /// Tells the allocator how far a timeline is.
    pub(super) fn collect(&self, timeline: u32, completed: u64) -> Result<(), Error> {
        {
            let mut state = self.world.state.borrow_mut();
            let told = state.told.entry(timeline).or_default();
            *told = completed.max(*told);
        }
        self.allocator().collect(timeline, completed)
    }

    // ---- the end

    /// Lets the allocator go, in one of several ways. Every page has gone back then.
    pub(super) fn end(&self, way: u8) {
        {
            let mut state = self.world.state.borrow_mut();
            state.script.clear();
            state.habits.limit = u128::MAX;
        }
        self.host.fail_in(None);
        if way & 4 == 0 {
            self.free_everything();
        }
        self.answer_callbacks(false);
        {
            // With force, nothing waits any more.
            let mut state = self.world.state.borrow_mut();
            state.is_ending = true;
            state.live.clear();
            state.pending.clear();
        }
        // SAFETY: from a box, and nobody looks at it any more.
        let allocator = *unsafe { Box::from_raw(self.allocator.replace(std::ptr::null_mut())) };
        match way & 3 {
            0 => drop(allocator),
            1 => {
                allocator.close(LiveSlices::Free).expect("nothing is in the way");
                drop(allocator);
            }
            2 => match allocator.destroy() {
                Ok(device) => assert!(device.0.state.borrow().held.is_empty()),
                Err((allocator, error)) => {
                    assert!(way & 4 != 0 && matches!(error, Error::Busy { .. }), "{error:?}");
                    drop(allocator);
                }
            },
            _ => {
                // Pages are forgotten, not given back.
                let device = allocator.abandon();
                device.0.state.borrow_mut().held.clear();
            }
        }
        let held = &self.world.state.borrow().held;
        assert!(held.is_empty(), "pages have not gone back: {held:?}");
        if let Some(budget) = &self.budget {
            assert_eq!((budget.statistics().bytes, budget.statistics().pages), (0, 0), "the budget is not free");
        }
    }

    /// Frees everything: what is left are pages, each one hole.
    fn free_everything(&self) {
        while let Some(id) = self.live(0) {
            let freed = self.free_with(&[id], &[], || self.allocator().free(id));
            assert_eq!(freed, Ok(()), "a live slice can be freed");
        }
        for timeline in TIMELINES {
            self.collect(timeline, u64::MAX).expect("nothing fails any more");
        }
        self.check();
        self.check_that_all_is_free();
        self.allocator().cleanup().expect("the device takes everything back");
        self.check();
        let left = self.allocator().statistics();
        assert_eq!((left.reserved, left.pages, left.slices, left.slices_pending), (0, 0, 0, 0), "{left:?}");
        assert!(self.world.state.borrow().held.is_empty(), "cleanup gives everything back");
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.budget = None;
        assert!(self.host.is_empty(), "the host's memory has not all come back");
    }
}
