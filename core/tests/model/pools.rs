//! The model of an allocator: the ranges and counters of its pools, and what its device has done for them.

use crate::budget::Shared;
use crate::device::{Event, Events};
use crate::handles::Handles;
use crate::oracle::{Books, Checked, Figures, Page, Shown, check_bound, ensure};
use crate::refusals::Refusals;
use crate::rules::{Rules, reported};
use crate::shapes::Shape;
use crate::waits::Waits;
use slicepool_core::{Error, Request, Statistics};
use std::collections::VecDeque;
use std::ops::Range;

/// A page that the device refused to take back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stuck {
    pub(crate) handle: u64,
    size: u64,
    index: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) rules: Rules,
    pub(crate) books: Books,
    /// The one that has been stuck the longest first.
    pub(crate) stuck: Vec<Stuck>,
    pub(crate) refusals: Refusals,
    /// Handles of slices that wait for nothing but to be overwritten, and for another try at that.
    pub(crate) to_scrub: VecDeque<u64>,
    /// Checks of age so far, and the count of allocations at which the next is due.
    pub(crate) checks: u64,
    pub(crate) next_check: u64,
    reserved_peak: u64,
    pages_peak: u32,
    taken: u64,
    returned: u64,
}

impl Pool {
    fn new(rules: Rules) -> Self {
        Self {
            rules,
            books: Books::new(rules.granule, rules.whole_pages()),
            stuck: Vec::new(),
            refusals: Refusals::default(),
            to_scrub: VecDeque::new(),
            checks: 0,
            next_check: rules.interval.unwrap_or(u64::MAX),
            reserved_peak: 0,
            pages_peak: 0,
            taken: 0,
            returned: 0,
        }
    }

    /// Bytes of pages that serve: stuck ones do not.
    pub(crate) fn serving(&self) -> u64 {
        self.books.pages.values().map(|page| page.size).sum()
    }

    fn stuck_bytes(&self) -> u64 {
        self.stuck.iter().map(|stuck| stuck.size).sum()
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.serving() + self.stuck_bytes()
    }

    /// Bytes of a page that a request would get now, `None` if the cap forbids it.
    pub(crate) fn next_page(&self, request: &Request) -> Option<u64> {
        self.rules.next_page(request.size, u128::from(self.reserved()))
    }

    /// Whether the pool takes a request.
    pub(crate) fn accepts(&self, request: &Request) -> bool {
        self.rules.refusal(request).is_none()
    }

    /// The lowest index that no page has.
    fn next_index(&self) -> u32 {
        let pages = self.books.pages.values().map(|page| page.index);
        let mut used: Vec<u32> = pages.chain(self.stuck.iter().map(|stuck| stuck.index)).collect();
        used.sort_unstable();
        used.iter().zip(0..).find(|&(&used, index)| used != index).map_or(used.len() as u32, |(_, index)| index)
    }

    fn note_peaks(&mut self) {
        self.reserved_peak = self.reserved_peak.max(self.reserved());
        self.pages_peak = self.pages_peak.max(self.books.pages.len() as u32);
    }
}

/// All pools.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// Those of the list, that of dedicated slices, and that of persistent ones.
    pub(crate) pools: Vec<Pool>,
    pub(crate) handles: Handles,
    pub(crate) waits: Waits,
    pub(crate) can_fill: bool,
    /// Counts slices freed, to tell which page has been idle the longest.
    pub(crate) clock: u64,
    /// Slices ever handed out.
    pub(crate) allocations: u64,
    /// The count of them at which ages are looked at next.
    pub(crate) next_look: u64,
    /// Pages ever taken into use.
    pub(crate) next_serial: u64,
    /// What may be held. Figures have 64 bits, so that is a limit too.
    pub(crate) max_bytes: u64,
    pub(crate) max_pages: u32,
    pub(crate) shared: Option<Shared>,
    /// Counts what may mean that the device has memory again.
    pub(crate) returns: u64,
    reserved_peak: u64,
    pages_peak: u32,
}

impl Model {
    pub(crate) fn new(shape: &Shape) -> Self {
        let pools: Vec<_> = shape.rules().into_iter().map(Pool::new).collect();
        let next_look = pools.iter().map(|pool| pool.next_check).min().unwrap_or(u64::MAX);
        Self {
            pools,
            handles: Handles::default(),
            waits: Waits::default(),
            can_fill: shape.can_fill,
            clock: 0,
            allocations: 0,
            next_look,
            next_serial: 0,
            max_bytes: shape.max_bytes.unwrap_or(u64::MAX),
            max_pages: shape.max_pages.unwrap_or(u32::MAX),
            shared: shape.shared.map(Shared::new),
            returns: 0,
            reserved_peak: 0,
            pages_peak: 0,
        }
    }

    // ---- what to expect

    /// How many pools the list has.
    pub(crate) fn listed(&self) -> usize {
        self.pools.len() - 2
    }

    /// How many pools give pages back by themselves: all but that of persistent slices.
    pub(crate) fn giving(&self) -> usize {
        self.pools.len() - 1
    }

    /// Indices of the pools that a request may go to.
    pub(crate) fn route(&self, request: &Request) -> Range<usize> {
        match request.pool {
            _ if request.is_persistent() => self.giving()..self.pools.len(),
            _ if request.is_dedicated() => self.listed()..self.giving(),
            None => 0..self.listed(),
            Some(only) => only as usize..only as usize + 1,
        }
    }

    /// The error for a request that can never be served.
    pub(crate) fn refusal(&self, request: &Request) -> Option<Error> {
        if !request.alignment.is_power_of_two() {
            return Some(Error::InvalidArgument { field: c"alignment", value: request.alignment });
        }
        if (request.is_zeroed() || request.is_scrubbed()) && !self.can_fill {
            return Some(Error::NotSupported { what: c"fill" });
        }
        let wrong = request
            .pool
            .filter(|&pool| request.is_persistent() || request.is_dedicated() || pool as usize >= self.listed());
        if let Some(pool) = wrong {
            return Some(Error::InvalidArgument { field: c"pool", value: u64::from(pool) });
        }
        let pools = &self.pools[self.route(request)];
        let refusals: Vec<Error> = pools.iter().filter_map(|pool| pool.rules.refusal(request)).collect();
        (refusals.len() == pools.len()).then(|| reported(&refusals))
    }

    /// Other pools are in place of those of the list, which held nothing. Persistent slices stay, and so do the limits;
    /// figures and peaks begin anew.
    pub(crate) fn replace_pools(&mut self, rules: &[Rules]) {
        let listed = self.listed();
        self.handles.forget_freed(|pool| pool >= listed);
        for (pool, &rules) in self.pools.iter_mut().zip(rules) {
            *pool = Pool::new(rules);
        }
        self.allocations = 0;
        let dedicated = &mut self.pools[listed];
        dedicated.next_check = dedicated.rules.interval.unwrap_or(u64::MAX);
        self.next_look = self.pools.iter().map(|pool| pool.next_check).min().unwrap_or(u64::MAX);
        (self.reserved_peak, self.pages_peak) = (0, 0);
        self.note_peaks(listed);
        self.note_peaks(listed + 1);
    }

    // ---- what the device has done

    /// Enters a page that the device has given for a pool.
    pub(crate) fn page_comes(&mut self, pool: usize, handle: u64, size: u64) -> Checked {
        let page = Page::new(size, self.pools[pool].next_index(), self.next_serial);
        self.next_serial += 1;
        self.pools[pool].books.add_page(handle, page)?;
        self.pools[pool].taken += 1;
        self.note_peaks(pool);
        Ok(())
    }

    /// Enters a page that was of no use, and what became of it.
    pub(crate) fn bad_page_comes(&mut self, pool: usize, handle: u64, size: u64, events: &mut Events) -> Checked {
        self.pools[pool].taken += 1;
        match events.pop_front() {
            Some(Event::Returned { handle: found }) if found == handle => self.pools[pool].returned += 1,
            Some(Event::NotReturned { handle: found, .. }) if found == handle => {
                let index = self.pools[pool].next_index();
                self.pools[pool].stuck.push(Stuck { handle, size, index });
                self.note_peaks(pool);
            }
            other => return Err(format!("the useless page {handle} was not given back: {other:?}")),
        }
        Ok(())
    }

    /// The next event must be that this page is given back; the code with which the device refuses it.
    pub(crate) fn page_leaves(&mut self, pool: usize, handle: u64, events: &mut Events) -> Checked<Option<i32>> {
        let event = events.pop_front();
        let (found, refusal) = match event {
            Some(Event::Returned { handle }) => (handle, None),
            Some(Event::NotReturned { handle, code }) => (handle, Some(code)),
            other => return Err(format!("page {handle} of pool {pool} was not given back: {other:?}")),
        };
        ensure!(found == handle, "page {found} was given back instead of page {handle} of pool {pool}");
        let pool = &mut self.pools[pool];
        let (size, index) = match pool.books.pages.remove(&handle) {
            Some(page) => {
                ensure!(page.live.is_empty(), "page {handle} was given back with slices in it");
                (page.size, page.index)
            }
            None => {
                let at = pool.stuck.iter().position(|stuck| stuck.handle == handle);
                let stuck = pool.stuck.remove(at.ok_or("a page was given back that is not held")?);
                (stuck.size, stuck.index)
            }
        };
        match refusal {
            None => {
                pool.returned += 1;
                self.returns += 1;
                self.note_released();
            }
            Some(_) => pool.stuck.push(Stuck { handle, size, index }),
        }
        Ok(refusal)
    }

    fn note_peaks(&mut self, pool: usize) {
        self.pools[pool].note_peaks();
        let reserved: u64 = self.pools.iter().map(Pool::reserved).sum();
        let pages: usize = self.pools.iter().map(|pool| pool.books.pages.len()).sum();
        self.reserved_peak = self.reserved_peak.max(reserved);
        self.pages_peak = self.pages_peak.max(pages as u32);
    }

    pub(crate) fn pool_of_page(&self, handle: u64) -> Option<usize> {
        self.pools.iter().position(|pool| pool.books.pages.contains_key(&handle))
    }

    // ---- figures

    /// Whether a pool's figures are those of the model, and its walk shows what the model holds.
    pub(crate) fn check_pool(&self, index: usize, found: &Statistics, shown: &mut [Shown]) -> Checked<Figures> {
        let pool = &self.pools[index];
        let figures = pool.books.compare(shown)?;
        let mut expected = Statistics::default();
        expected.reserved = pool.reserved();
        expected.in_use = figures.in_use;
        expected.padding = figures.padding;
        expected.pending = figures.pending;
        expected.free = figures.free;
        expected.stuck = pool.stuck_bytes();
        expected.reserved_peak = pool.reserved_peak;
        expected.in_use_peak = pool.books.in_use_peak;
        expected.largest_allocation = pool.books.largest_allocation;
        expected.largest_free_bound = found.largest_free_bound;
        expected.metadata = found.metadata;
        expected.device_allocations = pool.taken;
        expected.device_deallocations = pool.returned;
        expected.slices = figures.slices;
        expected.slices_pending = figures.slices_pending;
        expected.free_ranges = figures.free_ranges;
        expected.pages = figures.pages;
        expected.pages_idle = figures.pages_idle;
        expected.pages_stuck = pool.stuck.len() as u32;
        expected.pages_peak = pool.pages_peak;
        ensure!(*found == expected, "pool {index}: the statistics are {found:?} instead of {expected:?}");
        check_bound(found.largest_free_bound, figures.largest)?;
        ensure!(found.metadata != 0, "no host memory is counted");
        Ok(figures)
    }

    /// Whether the figures of all pools together are those of each, which have been checked, but for the peaks of what
    /// is held.
    pub(crate) fn check_sum(&self, found: &Statistics, pools: &[Statistics]) -> Checked {
        ensure!(pools.len() == self.pools.len(), "there are {} pools", pools.len());
        let add = |figure: fn(&Statistics) -> u64| pools.iter().map(figure).fold(0, u64::saturating_add);
        let count = |figure: fn(&Statistics) -> u32| pools.iter().map(figure).sum::<u32>();
        let most = |figure: fn(&Statistics) -> u64| pools.iter().map(figure).max().unwrap_or(0);
        let mut expected = Statistics::default();
        expected.reserved = add(|pool| pool.reserved);
        expected.in_use = add(|pool| pool.in_use);
        expected.padding = add(|pool| pool.padding);
        expected.pending = add(|pool| pool.pending);
        expected.free = add(|pool| pool.free);
        expected.stuck = add(|pool| pool.stuck);
        expected.reserved_peak = self.reserved_peak;
        expected.in_use_peak = add(|pool| pool.in_use_peak);
        expected.largest_allocation = most(|pool| pool.largest_allocation);
        expected.largest_free_bound = most(|pool| pool.largest_free_bound);
        expected.metadata = found.metadata;
        expected.device_allocations = add(|pool| pool.device_allocations);
        expected.device_deallocations = add(|pool| pool.device_deallocations);
        expected.slices = count(|pool| pool.slices);
        expected.slices_pending = count(|pool| pool.slices_pending);
        expected.free_ranges = count(|pool| pool.free_ranges);
        expected.pages = count(|pool| pool.pages);
        expected.pages_idle = count(|pool| pool.pages_idle);
        expected.pages_stuck = count(|pool| pool.pages_stuck);
        expected.pages_peak = self.pages_peak;
        ensure!(*found == expected, "the sums are {found:?} instead of {expected:?}");
        ensure!(found.metadata > add(|pool| pool.metadata), "the allocator's own host memory is not counted");
        Ok(())
    }
}
