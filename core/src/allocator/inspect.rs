//! Looking at an allocator: what would fit, figures, a walk over everything, the JSON report.

use super::grow::note;
use super::{Allocator, InFlight};
use crate::device::Device;
use crate::error::Error;
use crate::pool::Range;
use crate::report::{self, Statistics};
use crate::slice::Request;
use core::fmt::{self, Write};
use core::ops::ControlFlow;

/// Slots looked at, and ranges kept on the stack, per lock hold of a walk.
const SLOTS_PER_LOCK: usize = 16;

impl<D: Device> Allocator<D> {
    /// Whether memory that is held would serve the request: without the device, and without doing it. True at that
    /// instant only.
    ///
    /// # Errors
    /// Those of [`Allocator::allocate`] for a request that could never be served.
    pub fn would_fit(&self, request: &Request) -> Result<bool, Error> {
        request.check()?;
        let mut refusal = None;
        let mut accepted = false;
        for cell in self.pools.iter() {
            let fit = match cell.rules.fit(request) {
                Ok(fit) => fit,
                Err(error) => {
                    note(&mut refusal, error);
                    continue;
                }
            };
            accepted = true;
            let pool = cell.pool.lock();
            if pool.pages.idle_count() != 0 {
                // Every page holds every request that its pool takes.
                return Ok(true);
            }
            let mut scan = pool.begin_scan(&fit);
            drop(pool);
            loop {
                match cell.pool.lock().slicer.would_fit(fit.size, fit.align_mask, scan) {
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

    /// Bytes of the largest free range of any page, exactly. Walks through one size class of each pool, a few entries
    /// per lock hold.
    pub fn largest_free(&self) -> u64 {
        let mut largest = 0;
        for cell in self.pools.iter() {
            let (mut scan, mut granules) = cell.pool.lock().slicer.begin_largest();
            loop {
                let (so_far, more) = cell.pool.lock().slicer.largest(scan, granules);
                granules = so_far;
                match more {
                    Some(next) => scan = next,
                    None => break,
                }
            }
            largest = largest.max(cell.rules.bytes(granules));
        }
        largest
    }

    /// Figures of all pools together. Each pool's are of one instant.
    pub fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for cell in self.pools.iter() {
            let figures = cell.pool.lock().statistics();
            sum.add(&figures);
        }
        sum.metadata += self.ledger.lock().bytes() + self.pools.bytes();
        sum
    }

    /// Number of pools.
    pub fn pool_count(&self) -> usize {
        self.pools.len() as usize
    }

    /// Figures of one pool at one instant; `None` if there is no such pool.
    pub fn pool_statistics(&self, pool: usize) -> Option<Statistics> {
        let index = u32::try_from(pool).ok().filter(|&index| index < self.pools.len())?;
        Some(self.pools[index].pool.lock().statistics())
    }

    /// Shows every slice and every free range to `visit`, pool by pool, in no particular order; stops when it answers
    /// [`ControlFlow::Break`].
    ///
    /// No lock is held meanwhile: `visit` may call back into the allocator. What changes during the walk may be shown
    /// or not; everything else is shown exactly once. O(slots), a bounded number of them per lock hold.
    pub fn walk<B>(&self, mut visit: impl FnMut(&Range) -> ControlFlow<B>) -> ControlFlow<B> {
        let _in_flight = InFlight::new(&self.in_flight);
        for (index, cell) in self.pools.iter().enumerate() {
            let mut next = 1;
            loop {
                let mut seen = [None; SLOTS_PER_LOCK];
                let pool = cell.pool.lock();
                let mut more = false;
                for place in &mut seen {
                    let Some((slot, node)) = pool.slicer.node_from(next) else { break };
                    *place = pool.range(index as u32, slot, node);
                    next = slot + 1;
                    more = true;
                }
                drop(pool);
                if !more {
                    break;
                }
                for range in seen.iter().flatten() {
                    visit(range)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Writes a report as one JSON object: the allocator's figures, then each pool's configuration and figures.
    pub fn write_json(&self, out: &mut dyn Write) -> fmt::Result {
        report::write_head(out, &self.statistics())?;
        let mut separator = "";
        for cell in self.pools.iter() {
            out.write_str(separator)?;
            separator = ",";
            let figures = cell.pool.lock().statistics();
            report::write_pool(out, &cell.rules, &figures)?;
        }
        report::write_tail(out)
    }

    /// Verifies every invariant of the books from scratch, for tests: which one does not hold. Holds each pool's lock
    /// for O(slots).
    pub fn check(&self) -> Result<(), &'static str> {
        self.pools.iter().try_for_each(|cell| cell.pool.lock().check())
    }
}
