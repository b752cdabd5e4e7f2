//! Looking at an allocator: what would fit, figures, a walk over everything, the JSON report.

use super::short::note;
use super::{Allocator, Cell, InFlight, PERSISTENT_POOL};
use crate::device::Device;
use crate::error::Error;
use crate::pool::{Kind, Range, Rules};
use crate::report::{self, PoolReport, Statistics};
use crate::slice::Request;
use core::fmt::{self, Write};
use core::ops::ControlFlow;

/// Slots looked at, and ranges kept on the stack, per lock hold of a walk.
const SLOTS_PER_LOCK: usize = 16;

/// Pages looked at per lock hold.
const PAGES_PER_LOCK: u32 = 64;

impl<D: Device> Allocator<D> {
    /// Whether memory that is held would serve the request: without the device, and without doing it. True at that
    /// instant only.
    ///
    /// # Errors
    /// Those of [`Allocator::allocate`] for a request that could never be served.
    #[cold]
    pub fn would_fit(&self, request: &Request) -> Result<bool, Error> {
        request.check()?;
        self.check_support(request)?;
        if request.persistent && request.pool.is_none() && self.persistent().is_none() {
            // Looking is no reason to make the pool.
            let options = &self.options;
            let rules = Rules::try_new(&options.persistent_pool(), &options.memory_type, options.debugging.margin)?;
            return rules.fit(request).map(|_| false);
        }
        let mut refusal = None;
        let mut accepted = false;
        for cell in self.route(request)? {
            let fit = match cell.rules.fit(request) {
                Ok(fit) => fit,
                Err(error) => {
                    note(&mut refusal, error);
                    continue;
                }
            };
            accepted = true;
            let mut scan = cell.pool.lock().begin_scan(&fit);
            loop {
                match cell.pool.lock().would_fit(&fit, scan) {
                    Ok(true) => return Ok(true),
                    Ok(false) => break,
                    Err(more) => scan = more,
                }
            }
        }
        match refusal {
            Some(error) if !accepted => Err(error),
            _ => Ok(false),
        }
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

    /// Figures of all pools together, that of persistent slices among them. Each pool's are of one instant. The peak of `in_use` is the sum of the pools' peaks.
    #[cold]
    pub fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for cell in self.cells() {
            let figures = cell.pool.lock().statistics();
            sum.add(&figures);
        }
        let mut ledger = self.ledger.lock();
        sum.metadata += ledger.bytes() + self.pools.bytes();
        sum.reserved_peak = ledger.held().bytes_peak;
        sum.pages_peak = ledger.held().pages_peak;
        sum
    }

    /// Number of pools, that of persistent slices not counted.
    pub fn pool_count(&self) -> usize {
        self.pools.len() as usize
    }

    /// Figures of one pool at one instant; `None` if there is no such pool. [`PERSISTENT_POOL`](crate::PERSISTENT_POOL): that
    /// of persistent slices, once there has been one.
    pub fn pool_statistics(&self, pool: usize) -> Option<Statistics> {
        Some(self.pool_cell(pool)?.pool.lock().statistics())
    }

    /// One pool's effective configuration, and its figures at one instant; `None` if there is no such pool.
    pub fn pool_report(&self, pool: usize) -> Option<PoolReport> {
        self.pool_cell(pool).map(Self::report_of)
    }

    fn pool_cell(&self, pool: usize) -> Option<&Cell> {
        match u32::try_from(pool) {
            Ok(PERSISTENT_POOL) => self.persistent(),
            _ => self.pools.as_slice().get(pool),
        }
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

    /// Writes a report as one JSON object: the allocator's figures, then each pool's configuration and figures, and those of
    /// the pool of persistent slices if there has been one.
    #[cold]
    pub fn write_json(&self, out: &mut dyn Write) -> fmt::Result {
        let persistent = self.persistent().map(Self::report_of);
        report::write_allocator(out, &self.statistics(), self.pools.iter().map(Self::report_of), persistent)
    }

    /// Verifies every invariant of the books from scratch, for tests: which one does not hold. Holds each pool's lock
    /// for O(slots).
    pub fn check(&self) -> Result<(), &'static str> {
        self.cells().try_for_each(|cell| cell.pool.lock().check())
    }
}
