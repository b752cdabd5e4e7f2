//! A dry run and an allocator that does the same: what must be alike in them, and what memory the dry run has.

use crate::compare::{number_of_pool, place_of_pool};
use crate::device::{Answer, Event, Events, VirtualDevice};
use crate::oracle::{Checked, ensure};
use crate::rules::Rules;
use crate::shapes::Shape;
use slicepool_core::{Allocator, AllocatorOptions, Error, LiveSlices, Point, PoolOptions, Slice, Statistics};
use std::collections::{BTreeMap, HashMap};
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;

/// In place of a handle of memory: there is none yet.
const NO_MEMORY: u64 = u64::MAX;

/// Pages of a pool that the dry run has had from its device.
#[derive(Clone, Copy, Default)]
struct Calls {
    taken: u64,
    returned: u64,
}

pub(crate) struct Twins {
    pub(crate) rules: Vec<Rules>,
    limits: (u64, usize),
    /// Whether the real one has what an earlier dry run has turned out to need, so that it words its refusals
    /// otherwise.
    pub(crate) is_planned: bool,
    /// Whether that has happened: they may have given back other pages before, and go different ways from then on.
    pub(crate) has_parted: bool,
    /// Dropped by [`Twins::end`] alone: in a build that has just failed, dropping might do anything.
    pub(crate) real: ManuallyDrop<Allocator<VirtualDevice>>,
    pub(crate) dry: ManuallyDrop<Allocator<VirtualDevice>>,
    /// Live slices: of the real one and of the dry run.
    pub(crate) slices: Vec<(Slice, Slice)>,
    pub(crate) completed: BTreeMap<u32, u64>,
    /// Pages of the real one, and what the dry run has for them if they are resolved: memory, pool and bytes.
    resolved: HashMap<u64, (u64, usize, u64)>,
    calls: Vec<Calls>,
}

impl Twins {
    /// A dry run of a shape, and beside it an allocator with these pools.
    pub(crate) fn new(shape: &Shape, pools: &[PoolOptions], options: &AllocatorOptions) -> Checked<Self> {
        let failed = |error| format!("an allocator cannot be made: {error:?}");
        let unlimited = options.clone().with_max_bytes(None).with_max_pages(None);
        let real = ManuallyDrop::new(Allocator::try_new(shape.device(), pools, unlimited).map_err(failed)?);
        let dry = options.clone().with_dry_run();
        let dry = ManuallyDrop::new(Allocator::try_new(shape.device(), &shape.options().0, dry).map_err(failed)?);
        let rules = shape.rules();
        let limits = (shape.max_bytes.unwrap_or(u64::MAX), shape.max_pages.map_or(usize::MAX, |pages| pages as usize));
        let calls = vec![Calls::default(); rules.len()];
        let (slices, completed, resolved) = (Vec::new(), BTreeMap::new(), HashMap::new());
        let (is_planned, has_parted) = (false, false);
        Ok(Self { rules, limits, is_planned, has_parted, real, dry, slices, completed, resolved, calls })
    }

    /// The same was asked of both.
    pub(crate) fn placed(&mut self, real: Result<Slice, Error>, dry: Result<Slice, Error>) -> Checked {
        match (real, dry) {
            (Ok(real), Ok(dry)) => {
                let places = ((real.offset, real.size), (dry.offset, dry.size));
                ensure!(places.0 == places.1, "the dry run places {dry:?} in place of {real:?}");
                self.slices.push((real, dry));
                Ok(())
            }
            (Err(real), Err(dry)) if self.refused_alike(&real, &dry) => Ok(()),
            other => Err(format!("the dry run goes another way: {other:?}")),
        }
    }

    /// Whether they may refuse the same call in these words.
    pub(crate) fn refused_alike<E: PartialEq>(&mut self, real: &E, dry: &E) -> bool {
        self.has_parted |= self.is_planned && real != dry;
        real == dry || self.is_planned
    }

    pub(crate) fn free(&mut self, which: u16, points: &[Point]) -> Checked {
        let Some(index) = self.nth(which) else { return Ok(()) };
        let (real, dry) = self.slices[index];
        let found = (self.real.free_after(real.id, points), self.dry.free_after(dry.id, points));
        ensure!(found.0 == found.1, "free_after: {found:?}");
        if found.0.is_ok() {
            self.slices.swap_remove(index);
        }
        Ok(())
    }

    pub(crate) fn clean_up(&self) -> Checked {
        let found = (self.real.cleanup(), self.dry.cleanup());
        ensure!(found == (Ok(()), Ok(())), "cleanup: {found:?}");
        Ok(())
    }

    // ---- memory for what has been placed

    pub(crate) fn resolve(&mut self, which: u16, answer: Answer) -> Checked {
        let Some(index) = self.nth(which) else { return Ok(()) };
        // Otherwise what holds nothing goes back where memory is short, and the twins go different ways.
        self.clean_up()?;
        if self.is_planned {
            return Ok(());
        }
        self.note_events()?;
        let (real, before) = self.slices[index];
        let page = real.memory;
        self.dry.device().set_mood(&[answer], 0, 0);
        let found = self.dry.resolve(before.id);
        self.dry.device().set_mood(&[], 0, 0);
        let mut events = self.dry.device().take_events()?;
        if let Some(&(memory, ..)) = self.resolved.get(&page) {
            ensure!(found.is_ok_and(|slice| slice.memory == memory), "resolved already, but {found:?}");
            ensure!(events.is_empty(), "resolved already, but {events:?}");
            return Ok(());
        }
        match self.came_of_resolving(page, &mut events)? {
            None => {
                let memory = self.resolved[&page].0;
                let placed = Slice { memory, address: 0, mapped: before.mapped, ..before };
                let same = found.map(|slice| Slice { address: 0, mapped: before.mapped, ..slice });
                ensure!(same == Ok(placed), "resolved to {found:?} instead of {placed:?}");
            }
            Some(expected) => {
                ensure!(found == Err(expected), "resolving answers {found:?} instead of {expected:?}");
                let still = self.dry.get(before.id);
                ensure!(still == Ok(before), "{before:?} has become {still:?}");
            }
        }
        ensure!(events.is_empty(), "nobody expected {events:?}");
        Ok(())
    }

    /// What came of resolving a page: the error, or `None` if it has its memory now.
    fn came_of_resolving(&mut self, page: u64, events: &mut Events) -> Checked<Option<Error>> {
        let (pool, size) = self.page_of(page)?;
        let reserved = self.resolved.values().map(|&(.., bytes)| bytes).sum();
        let (limit, most) = self.limits;
        if size > limit - reserved {
            return Ok(Some(Error::BudgetExceeded { size, limit, reserved }));
        }
        if self.resolved.len() >= most {
            return Ok(Some(Error::PageCountExceeded { size, limit: most as u32 }));
        }
        let event = events.pop_front();
        let asked = event.and_then(|event| event.request());
        ensure!(asked == Some((pool, size)), "{event:?} for a page of {size} bytes of pool {pool}");
        match event {
            Some(Event::Page { handle, .. }) => {
                self.resolved.insert(page, (handle, pool, size));
                self.calls[pool].taken += 1;
                Ok(None)
            }
            Some(Event::NoPage { error: Error::OutOfDeviceMemory { size, code }, .. }) => {
                Ok(Some(Error::MappingFailed { size, code }))
            }
            Some(Event::NoPage { error, .. }) => Ok(Some(error)),
            Some(Event::BadPage { handle, error, .. }) => {
                ensure!(events.pop_front() == Some(Event::Returned { handle }), "a useless page was kept");
                self.calls[pool].taken += 1;
                self.calls[pool].returned += 1;
                Ok(Some(error))
            }
            other => Err(format!("{other:?} when a page was resolved")),
        }
    }

    /// The pool and the bytes of a page of the real one.
    fn page_of(&self, page: u64) -> Checked<(usize, u64)> {
        let (mut pool, mut size) = (0, 0);
        let _: ControlFlow<()> = self.real.walk(|range| {
            if range.memory == page {
                pool = range.pool;
                size = size.max(range.offset + range.size);
            }
            ControlFlow::Continue(())
        });
        ensure!(size != 0, "page {page} is not there");
        Ok((place_of_pool(pool, self.rules.len() - 2), size))
    }

    /// Pages that the real one has given back, the dry run has given back too if it had their memory.
    fn note_events(&mut self) -> Checked {
        let mut expected = Vec::new();
        for event in self.real.device().take_events()? {
            if let Event::Returned { handle } = event {
                if let Some((memory, pool, _)) = self.resolved.remove(&handle) {
                    self.calls[pool].returned += 1;
                    expected.push(Event::Returned { handle: memory });
                }
            }
        }
        let mut found = self.dry.device().take_events()?;
        // It hears of everything else as always; and what has memory is filled.
        found.retain(|event| !matches!(event, Event::Filled { .. } | Event::Asked { .. } | Event::Told { .. }));
        ensure!(found == expected, "the dry run's device has seen {found:?} instead of {expected:?}");
        Ok(())
    }

    // ---- after every step

    pub(crate) fn compare(&mut self) -> Checked {
        self.note_events()?;
        for pool in 0..self.rules.len() {
            let number = number_of_pool(pool, self.rules.len() - 2);
            let pair = (self.real.pool_statistics(number), self.dry.pool_statistics(number));
            let (real, dry) = match pair {
                (Some(real), Some(dry)) => (real, dry),
                (None, None) => continue,
                other => return Err(format!("pool {number}: {other:?}")),
            };
            let (count, bytes) = self.resolved_in(pool);
            let mut expected = real;
            expected.metadata = dry.metadata;
            expected.device_allocations = self.calls[pool].taken;
            expected.device_deallocations = self.calls[pool].returned;
            expected.unmapped = real.reserved - bytes;
            expected.pages_unmapped = real.pages - count;
            ensure!(dry == expected, "pool {number}: the statistics are {dry:?} instead of {expected:?}");
        }
        self.compare_sums()?;
        let (real, dry) = (self.ranges(&self.real, true), self.ranges(&self.dry, false));
        ensure!(real == dry, "the ranges are {dry:?} instead of {real:?}");
        for (real, dry) in &self.slices {
            let memory = self.resolved.get(&real.memory).map_or(NO_MEMORY, |&(memory, ..)| memory);
            let found = self.dry.get(dry.id).map(|slice| (slice.memory, slice.offset, slice.size));
            let expected = Ok((memory, real.offset, real.size));
            ensure!(found == expected, "a slice is {found:?} instead of {expected:?}");
        }
        self.dry.check().map_err(String::from)
    }

    fn compare_sums(&self) -> Checked {
        let (real, dry): (Statistics, Statistics) = (self.real.statistics(), self.dry.statistics());
        let held = |figures: &Statistics| (figures.reserved, figures.reserved_peak, figures.pages, figures.pages_peak);
        ensure!(held(&real) == held(&dry), "held by the dry run: {dry:?} instead of {real:?}");
        let fits = (self.real.largest_free(), self.dry.largest_free());
        ensure!(fits.0 == fits.1, "the largest free ranges: {fits:?}");
        let known = self.dry.device().pages_held();
        ensure!(known == self.resolved.len(), "{known} pages are held of {}", self.resolved.len());
        Ok(())
    }

    fn resolved_in(&self, pool: usize) -> (u32, u64) {
        let pages = self.resolved.values().filter(|&&(_, other, _)| other == pool);
        pages.fold((0, 0), |(count, bytes), &(.., more)| (count + 1, bytes + more))
    }

    /// Every range by where it is, in order. Of the real one with the memory that the dry run should have.
    fn ranges(&self, of: &Allocator<VirtualDevice>, is_real: bool) -> Vec<(u32, u64, u64, u64, u64, bool, bool)> {
        let mut ranges = Vec::new();
        let _: ControlFlow<()> = of.walk(|range| {
            let memory = match self.resolved.get(&range.memory) {
                _ if !is_real => range.memory,
                Some(&(memory, ..)) => memory,
                None => NO_MEMORY,
            };
            let (live, pending) = (range.id.is_some(), range.pending);
            ranges.push((range.pool, memory, range.offset, range.size, range.requested, live, pending));
            ControlFlow::Continue(())
        });
        ranges.sort_unstable();
        ranges
    }

    pub(crate) fn end(mut self) -> Checked {
        let found = (self.real.close(LiveSlices::Free), self.dry.close(LiveSlices::Free));
        ensure!(found == (Ok(()), Ok(())), "close: {found:?}");
        self.real.device().take_events()?;
        let held = self.dry.device().pages_held();
        ensure!(held == 0, "{held} pages are left");
        if let Some((_, dry)) = self.slices.pop() {
            let found = self.dry.resolve(dry.id);
            ensure!(found == Err(Error::StaleHandle), "resolved in a closed allocator: {found:?}");
        }
        drop((ManuallyDrop::into_inner(self.real), ManuallyDrop::into_inner(self.dry)));
        Ok(())
    }
}
