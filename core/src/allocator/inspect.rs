//! Looking at an allocator: what would fit, figures, a walk over everything, the JSON report.

use super::route::without_a_page;
use super::short::note;
use super::{Allocator, Cell, InFlight, OwnPages};
use crate::device::{Device, MemoryType};
use crate::error::Error;
use crate::parts::COMPLETE;
use crate::pool::{Fit, Kind, Range, Rules};
use crate::report::{self, HeapReport, PoolReport, Report, Statistics};
use crate::slice::Request;
use core::fmt::{self, Write};
use core::ops::ControlFlow;

/// Slots looked at, and ranges kept on the stack, per lock hold of a walk.
const SLOTS_PER_LOCK: usize = 16;

/// Pages looked at per lock hold.
const PAGES_PER_LOCK: u32 = 64;

/// What keeps an allocator from going away.
#[derive(Default)]
pub(super) struct Uses {
    live: u64,
    pending: u64,
    in_use: u64,
    pub(super) pages: u32,
    pub(super) growths: u32,
}

impl Uses {
    /// Whether there are slices that are live or wait for the device.
    pub(super) fn is_used(&self) -> bool {
        self.live != 0 || self.pending != 0
    }

    /// Why the allocator cannot go away.
    pub(super) fn busy(&self, in_flight: u32) -> Error {
        Error::Busy { live: self.live, pending: self.pending, in_use: self.in_use, in_flight }
    }
}

impl<D: Device> Allocator<D> {
    /// Whether memory that is held would serve the request: without the device, and without doing it. True at that
    /// instant only.
    ///
    /// Exact for requests that are [`Request::never_growing`]. Others may take a page all the same if finding the memory
    /// takes a long look, or if an exclusive page would serve that is more than twice as large.
    ///
    /// # Errors
    /// Those of [`Allocator::allocate`] for a request that could never be served.
    #[cold]
    pub fn would_fit(&self, request: &Request) -> Result<bool, Error> {
        request.check()?;
        self.check_support(request)?;
        let (mut refusal, mut accepted) = (None, false);
        for memory_type in self.candidates(request)? {
            // Looking is no reason to make a pool.
            let own = match Self::own_pages_for(request) {
                Some(pages) => Some(pages),
                None if self.options.dedicated_when_too_large => {
                    let route = self.listed_route(memory_type, request)?;
                    self.is_too_large(route, request).then_some(OwnPages::Dedicated)
                }
                None => None,
            };
            let Some(pages) = own else {
                for cell in self.listed_route(memory_type, request)?.iter() {
                    match self.would_fit_in(cell, request) {
                        Ok(true) => return Ok(true),
                        Ok(false) => accepted = true,
                        Err(error) => note(&mut refusal, error),
                    }
                }
                continue;
            };
            let fits = match self.types.own(memory_type, pages) {
                Some(cell) => self.would_fit_in(cell, request),
                None => {
                    let one = self.types.get(memory_type).map_or_else(Default::default, |one| one.memory_type);
                    let rules = pages.rules(&self.options, &one).map_err(|error| without_a_page(request, error));
                    rules.and_then(|rules| rules.fit(request)).map(|_| false)
                }
            };
            match fits {
                Ok(true) => return Ok(true),
                Ok(false) => accepted = true,
                Err(error) => note(&mut refusal, error),
            }
        }
        match refusal {
            Some(error) if !accepted => Err(error),
            _ => Ok(false),
        }
    }

    /// What [`Allocator::would_fit`] comes to for a request with a search depth.
    #[cold]
    fn would_fit_so_deep(&self, cell: &Cell, fit: &Fit, depth: u32) -> bool {
        let mut scan = cell.pool.lock().begin_scan_of_class(fit, depth);
        loop {
            match cell.pool.lock().would_fit_so_deep(fit, scan) {
                Ok(fits) => return fits,
                Err(more) => scan = more,
            }
        }
    }

    #[cold]
    fn would_fit_in(&self, cell: &Cell, request: &Request) -> Result<bool, Error> {
        let fit = cell.rules.fit(request)?;
        if let (Some(depth), true) = (request.search_depth(), cell.rules.cuts()) {
            return Ok(self.would_fit_so_deep(cell, &fit, depth) || self.fits_in_other_kind(cell, &fit));
        }
        let mut scan = cell.pool.lock().begin_scan(&fit);
        loop {
            // The lock ends here, before another pool is looked at.
            let fits = cell.pool.lock().would_fit(&fit, scan, request.never_grows());
            match fits {
                Ok(true) => return Ok(true),
                Ok(false) => return Ok(self.fits_in_other_kind(cell, &fit)),
                Err(more) => scan = more,
            }
        }
    }

    /// Whether serving the request would take memory from the device: [`Allocator::would_fit`], the other way round. Whether
    /// the device or a limit would refuse it, only trying tells.
    ///
    /// # Errors
    /// As [`Allocator::would_fit`].
    pub fn would_grow(&self, request: &Request) -> Result<bool, Error> {
        self.would_fit(request).map(|fits| !fits)
    }

    /// The slice, or the free range, or the slice that waits for the device, that a place in device memory belongs to: for
    /// what a device reports as a fault. `offset`: bytes from the start of the page. `None` if there is none.
    ///
    /// O(slots), as [`Allocator::walk`].
    #[cold]
    pub fn find(&self, memory: u64, offset: u64) -> Option<Range> {
        self.find_range(&|range| {
            range.memory == memory && memory != u64::MAX && offset.wrapping_sub(range.offset) < range.size
        })
    }

    /// [`Allocator::find`] by an address as the device sees it, where it gives addresses.
    #[cold]
    pub fn find_address(&self, address: u64) -> Option<Range> {
        self.find_range(&|range| range.address != 0 && address.wrapping_sub(range.address) < range.size)
    }

    fn find_range(&self, is_it: &dyn Fn(&Range) -> bool) -> Option<Range> {
        let mut found = None;
        self.show_all(&mut |range| {
            if is_it(range) {
                found = Some(*range);
            }
            found.is_none()
        });
        found
    }

    /// Bytes of the largest free range of any page, exactly. Walks through one size class of each pool, or all pages of
    /// a direct one, a few entries per lock hold.
    pub fn largest_free(&self) -> u64 {
        self.cells().map(Self::largest_free_of).max().unwrap_or(0)
    }

    #[cold]
    fn largest_free_of(cell: &Cell) -> u64 {
        if let Kind::Direct(_) = cell.rules.kind {
            return Self::largest_free_page(cell);
        }
        let (mut scan, mut granules) = cell.pool.lock().slicer.begin_largest();
        loop {
            let (so_far, more) = cell.pool.lock().slicer.largest(scan, granules);
            granules = so_far;
            match more {
                Some(next) => scan = next,
                None => return cell.rules.bytes(granules),
            }
        }
    }

    fn largest_free_page(cell: &Cell) -> u64 {
        let (mut largest, mut next) = (0, 0);
        loop {
            let pool = cell.pool.lock();
            for _ in 0..PAGES_PER_LOCK {
                let Some((index, page)) = pool.pages.page_from(next) else { return largest };
                if page.is_idle() {
                    largest = largest.max(page.memory.size);
                }
                next = index + 1;
            }
        }
    }

    /// Figures of all pools together, those of slices with pages of their own among them. Each pool's are of one instant. The
    /// peak of `in_use` is the sum of the pools' peaks.
    #[cold]
    pub fn statistics(&self) -> Statistics {
        let mut sum = self.sum_of(&|_| true);
        let ledger = self.ledger.lock();
        sum.metadata += ledger.bytes() + self.pools.bytes() + self.types.bytes() + self.heaps.bytes();
        if COMPLETE {
            ledger.held().add_peaks(&mut sum);
        }
        sum
    }

    /// What keeps the allocator from going away.
    #[cold]
    pub(super) fn uses(&self) -> Uses {
        let mut uses = Uses::default();
        for cell in self.cells() {
            let pool = cell.pool.lock();
            uses.live += u64::from(pool.slicer.live());
            uses.pending += u64::from(pool.slicer.pending());
            uses.in_use += pool.in_use();
            uses.pages += pool.pages.count();
            uses.growths += pool.growing();
        }
        uses
    }

    /// Figures of all pools of a memory type together; `None` if there is no such type.
    #[cold]
    pub fn type_statistics(&self, memory_type: u32) -> Option<Statistics> {
        self.types.get(memory_type)?;
        let mut sum = self.sum_of(&|rules| rules.memory_type == memory_type);
        if COMPLETE {
            self.ledger.lock().held_of_type(memory_type).add_peaks(&mut sum);
        }
        Some(sum)
    }

    /// Figures of all pools of a heap together, and what the device says of it, if it does; `None` if there is no such heap.
    #[cold]
    pub fn heap_report(&self, heap: u32) -> Option<HeapReport> {
        let described = *self.heaps.as_slice().get(heap as usize)?;
        let mut statistics = self.sum_of(&|rules| rules.heap == heap);
        self.ledger.lock().held_of_heap(heap).add_peaks(&mut statistics);
        let _in_flight = InFlight::new(&self.in_flight);
        Some(HeapReport { heap: described, budget: self.device.heap_budget(heap), statistics })
    }

    /// The memory types, as they are in effect: none has larger pages than its heap.
    pub fn memory_type(&self, memory_type: u32) -> Option<MemoryType> {
        Some(self.types.get(memory_type)?.memory_type)
    }

    /// How many memory types there are.
    pub fn memory_type_count(&self) -> u32 {
        self.types.len()
    }

    /// How many heaps there are.
    pub fn heap_count(&self) -> u32 {
        self.heaps.len()
    }

    #[cold]
    fn sum_of(&self, counts: &dyn Fn(&Rules) -> bool) -> Statistics {
        let mut sum = Statistics::default();
        for cell in self.cells().filter(|cell| counts(&cell.rules)) {
            let figures = cell.pool.lock().statistics();
            sum.add(&figures);
        }
        sum
    }

    /// Number of pools, those of slices with pages of their own not counted.
    pub fn pool_count(&self) -> usize {
        self.pools.len() as usize
    }

    /// Figures of one pool at one instant; `None` if there is no such pool. What [`OwnPages::pool`] says stands for those of
    /// slices with pages of their own, once there has been one.
    pub fn pool_statistics(&self, pool: usize) -> Option<Statistics> {
        Some(self.pool_cell(u32::try_from(pool).ok()?)?.pool.lock().statistics())
    }

    /// One pool's effective configuration, and its figures at one instant; `None` if there is no such pool.
    pub fn pool_report(&self, pool: usize) -> Option<PoolReport> {
        self.pool_cell(u32::try_from(pool).ok()?).map(Self::report_of)
    }

    fn report_of(cell: &Cell) -> PoolReport {
        let statistics = cell.pool.lock().statistics();
        PoolReport { options: cell.rules.options(), page_alignment: cell.rules.page_alignment, statistics }
    }

    /// Shows every slice and every free range to `visit`, pool by pool, in no particular order; stops when it answers
    /// [`ControlFlow::Break`].
    ///
    /// No lock is held meanwhile: `visit` may call back into the allocator. What changes during the walk may be shown
    /// or not; everything else is shown exactly once. O(slots), a bounded number of them per lock hold.
    pub fn walk<B>(&self, mut visit: impl FnMut(&Range) -> ControlFlow<B>) -> ControlFlow<B> {
        let mut end = ControlFlow::Continue(());
        self.show_all(&mut |range| {
            end = visit(range);
            end.is_continue()
        });
        end
    }

    /// [`Allocator::walk`] for as long as `visit` answers `true`.
    #[cold]
    fn show_all(&self, visit: &mut dyn FnMut(&Range) -> bool) {
        let _in_flight = InFlight::new(&self.in_flight);
        for cell in self.cells() {
            let mut next = 1;
            let mut seen = [None; SLOTS_PER_LOCK];
            while Self::look_at_slots(cell, &mut next, &mut seen) {
                if !seen.iter().flatten().all(&mut *visit) {
                    return;
                }
            }
        }
    }

    /// The ranges of the next few slots from `next` on, which moves behind them; whether there were any slots.
    #[cold]
    fn look_at_slots(cell: &Cell, next: &mut u32, seen: &mut [Option<Range>; SLOTS_PER_LOCK]) -> bool {
        let pool = cell.pool.lock();
        let first = *next;
        for place in seen {
            let Some((slot, node)) = pool.slicer.node_from(*next) else {
                *place = None;
                continue;
            };
            *place = pool.range(cell.index, slot, node);
            *next = slot + 1;
        }
        *next != first
    }

    /// Writes a report as one JSON object: the allocator's figures, those of heaps and memory types, and each pool's
    /// configuration and figures. `docs/report.schema.json` in the repository describes it.
    #[cold]
    pub fn write_json(&self, out: &mut dyn Write) -> fmt::Result {
        let mut report = Report::begin(out, &self.options, &self.statistics())?;
        report.list("heaps", self.heap_count(), &mut |out, i| match self.heap_report(i) {
            Some(heap) => heap.write(out),
            None => Ok(()),
        })?;
        report.list("memory_types", self.types.len(), &mut |out, i| match (
            self.memory_type(i),
            self.type_statistics(i),
        ) {
            (Some(memory_type), Some(figures)) => report::write_type(out, &memory_type, &figures),
            _ => Ok(()),
        })?;
        report.list("pools", self.pools.len(), &mut |out, i| Self::report_of(&self.pools[i]).write(out, None))?;
        let own = self.types.own_cells().count() as u32;
        report.list("own_pages", own, &mut |out, i| match self.types.own_cells().nth(i as usize) {
            Some(cell) => Self::report_of(cell).write(out, Some(OwnPages::of_pool(cell.index).1)),
            None => Ok(()),
        })?;
        report.end()
    }

    /// Verifies every invariant of the books from scratch, for tests: which one does not hold. Holds each pool's lock
    /// for O(slots).
    pub fn check(&self) -> Result<(), &'static str> {
        self.cells().try_for_each(|cell| cell.pool.lock().check())
    }
}
