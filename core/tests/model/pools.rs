//! The model of an allocator: the ranges and counters of its pools, and what its device has done for them.

use crate::device::Event;
use crate::oracle::{Books, Checked, Figures, Handles, Live, Place, Shown, check_bound, check_error, ensure};
use crate::shapes::{Rules, Shape, malformed, reported};
use slicepool_core::{Error, Request, Slice, Statistics};
use std::collections::BTreeSet;

/// Free ranges that are looked at before a page is taken from the device. With more of them a new page may be taken
/// although one fits.
const LOOKED_AT: usize = 64;

pub(crate) struct Pool {
    pub(crate) rules: Rules,
    pub(crate) books: Books,
    /// Pages that the device refused to take back.
    stuck: BTreeSet<u64>,
    reserved_peak: u64,
    pages_peak: u32,
    /// What the peak of `in_use` may have come to in a refused batch.
    possible_peak: u64,
    taken: u64,
    returned: u64,
}

impl Pool {
    /// Bytes of pages, stuck ones among them.
    fn reserved(&self) -> u64 {
        (self.books.pages.len() + self.stuck.len()) as u64 * self.rules.page
    }

    fn is_full(&self) -> bool {
        let held = self.books.pages.len() + self.stuck.len();
        self.rules.max_pages.is_some_and(|most| held as u64 >= most)
    }

    fn note_peaks(&mut self) {
        self.reserved_peak = self.reserved_peak.max(self.reserved());
        self.pages_peak = self.pages_peak.max(self.books.pages.len() as u32);
    }
}

/// All pools.
pub(crate) struct Model {
    pub(crate) pools: Vec<Pool>,
    pub(crate) handles: Handles,
    /// Counts slices freed, to tell which page has been idle the longest.
    clock: u64,
    /// A batch was taken back whose slices nobody has seen.
    pub(crate) batch_undone: bool,
    /// A page that the library has refused and is about to give back.
    bad_page: Option<(usize, u64)>,
}

impl Model {
    pub(crate) fn new(shape: &Shape) -> Self {
        let pools = shape.rules().into_iter().map(|rules| Pool {
            rules,
            books: Books::new(rules.granule),
            stuck: BTreeSet::new(),
            reserved_peak: 0,
            pages_peak: 0,
            possible_peak: 0,
            taken: 0,
            returned: 0,
        });
        Self { pools: pools.collect(), handles: Handles::default(), clock: 0, batch_undone: false, bad_page: None }
    }

    // ---- what to expect

    /// The error for a request that can never be served.
    pub(crate) fn refusal(&self, request: &Request) -> Option<Error> {
        if let Some(error) = malformed(request) {
            return Some(error);
        }
        let refusals: Vec<Error> = self.pools.iter().filter_map(|pool| pool.rules.refusal(request)).collect();
        (refusals.len() == self.pools.len()).then(|| reported(&refusals))
    }

    fn accepting(&self, request: &Request) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(move |pool| pool.rules.refusal(request).is_none())
    }

    /// Whether memory that is held serves a request.
    pub(crate) fn fits(&self, request: &Request) -> bool {
        self.accepting(request).any(|pool| pool.books.fits(request.size, request.alignment))
    }

    fn may_miss_a_fit(&self, request: &Request) -> bool {
        self.accepting(request).any(|pool| pool.books.free_ranges().count() > LOOKED_AT)
    }

    // ---- what the device has done

    /// Enters an event. Only idle pages may be given back.
    pub(crate) fn apply(&mut self, event: &Event) -> Checked {
        match *event {
            Event::NoPage { .. } => {}
            Event::Page { pool, handle } => {
                let pool = &mut self.pools[pool];
                pool.books.add_page(handle, pool.rules.page)?;
                pool.taken += 1;
                pool.note_peaks();
            }
            Event::BadPage { pool, handle, .. } => {
                self.pools[pool].taken += 1;
                self.bad_page = Some((pool, handle));
            }
            Event::Returned { handle } => {
                let pool = self.page_leaves(handle)?;
                pool.returned += 1;
            }
            Event::NotReturned { handle, .. } => {
                let pool = self.page_leaves(handle)?;
                pool.stuck.insert(handle);
                pool.note_peaks();
            }
        }
        Ok(())
    }

    fn page_leaves(&mut self, handle: u64) -> Checked<&mut Pool> {
        if let Some((pool, _)) = self.bad_page.take_if(|bad| bad.1 == handle) {
            return Ok(&mut self.pools[pool]);
        }
        for pool in &mut self.pools {
            if pool.stuck.remove(&handle) {
                return Ok(pool);
            }
            if let Some(page) = pool.books.pages.get(&handle) {
                ensure!(page.live.is_empty(), "page {handle} was given back with slices in it");
                pool.books.pages.remove(&handle);
                return Ok(pool);
            }
        }
        Err(format!("page {handle} was given back, which no pool holds"))
    }

    fn pool_of_page(&self, handle: u64) -> Option<usize> {
        self.pools.iter().position(|pool| pool.books.pages.contains_key(&handle))
    }

    // ---- allocating

    /// Enters a slice that was handed out for `request`.
    fn place(&mut self, request: &Request, slice: &Slice) -> Checked {
        let Some(pool) = self.pool_of_page(slice.memory) else {
            return Err(format!("{slice:?} is in a page that nobody holds"));
        };
        let Pool { rules, books, .. } = &mut self.pools[pool];
        let refusal = rules.refusal(request);
        ensure!(refusal.is_none(), "pool {pool} does not take {request:?}: {refusal:?}");
        let id = slice.id.to_raw();
        let live = Live { id, size: slice.size, requested: request.size };
        books.place(slice.memory, slice.offset, live, request.alignment)?;
        ensure!(slice.address % request.alignment == 0, "the address of {slice:?} is not aligned");
        self.handles.add(id, Place { pool, page: slice.memory, offset: slice.offset })
    }

    /// A slice was handed out, and `events` happened meanwhile. `alone`: the events are this request's.
    pub(crate) fn allocated(&mut self, request: &Request, slice: &Slice, events: &[Event], alone: bool) -> Checked {
        let refusal = self.refusal(request);
        ensure!(refusal.is_none(), "{request:?} was served instead of {refusal:?}");
        let needless = self.fits(request) && !self.may_miss_a_fit(request);
        ensure!(!needless || events.is_empty(), "the device was called though {request:?} fits: {events:?}");
        let mut new_page = None;
        for event in events {
            ensure!(new_page.is_none(), "{event:?} after the page was there");
            if alone {
                self.check_attempt(request, event)?;
            }
            self.apply(event)?;
            if let Event::Page { handle, .. } = *event {
                new_page = Some(handle);
            }
        }
        if let Some(page) = new_page {
            ensure!((slice.memory, slice.offset) == (page, 0), "{slice:?} is not at the start of the new page {page}");
        }
        self.place(request, slice)
    }

    /// The request was refused, and `events` happened meanwhile.
    pub(crate) fn refused(&mut self, request: &Request, error: Error, events: &[Event]) -> Checked {
        if let Some(expected) = self.refusal(request) {
            ensure!(events.is_empty(), "the device was called for {request:?}: {events:?}");
            return check_error(error, expected, 0);
        }
        ensure!(!self.fits(request), "{request:?} fits, but was refused: {error:?}");
        let mut errors = Vec::new();
        for (index, pool) in self.pools.iter().enumerate() {
            let attempt = events.iter().find_map(|event| match *event {
                Event::NoPage { pool, error } | Event::BadPage { pool, error, .. } if pool == index => Some(error),
                _ => None,
            });
            errors.push(match (pool.rules.refusal(request), attempt) {
                (Some(error), _) | (None, Some(error)) => error,
                (None, None) => {
                    ensure!(pool.is_full(), "{request:?} was refused though pool {index} could have grown");
                    Error::PoolCapacityExceeded {
                        size: request.size,
                        capacity: pool.rules.capacity(),
                        in_use: pool.books.in_use,
                        largest_free: pool.books.largest_free(),
                        growths_in_flight: 0,
                    }
                }
            });
        }
        for event in events {
            self.check_attempt(request, event)?;
            self.apply(event)?;
            ensure!(!matches!(event, Event::Page { .. }), "{request:?} was refused though there is a new page");
        }
        let expected = reported(&errors);
        let largest = if let Error::PoolCapacityExceeded { largest_free, .. } = expected { largest_free } else { 0 };
        check_error(error, expected, largest)
    }

    /// Whether the device may be asked for a page on behalf of a request.
    fn check_attempt(&self, request: &Request, event: &Event) -> Checked {
        let (Event::Page { pool, .. } | Event::NoPage { pool, .. } | Event::BadPage { pool, .. }) = *event else {
            ensure!(self.bad_page.is_some(), "{event:?} for {request:?}");
            return Ok(());
        };
        let refusal = self.pools[pool].rules.refusal(request);
        ensure!(refusal.is_none(), "pool {pool} grew for {request:?}: {refusal:?}");
        ensure!(!self.pools[pool].is_full(), "pool {pool} grew above its cap");
        Ok(())
    }

    /// A batch was served.
    pub(crate) fn allocated_many(&mut self, requests: &[Request], slices: &[Slice], mut events: &[Event]) -> Checked {
        ensure!(requests.len() == slices.len(), "{} slices for {} requests", slices.len(), requests.len());
        for (request, slice) in requests.iter().zip(slices) {
            let mut count = 0;
            if self.pool_of_page(slice.memory).is_none() {
                let is_this = |event: &Event| matches!(*event, Event::Page { handle, .. } if handle == slice.memory);
                count = events.iter().position(is_this).map_or(events.len(), |index| index + 1);
            }
            let (own, rest) = events.split_at(count);
            events = rest;
            self.allocated(request, slice, own, false)?;
        }
        for event in events {
            ensure!(!matches!(event, Event::Page { .. }), "{event:?} was not used");
            self.apply(event)?;
        }
        Ok(())
    }

    /// A batch was refused for its request `index`: the pages that it got must be gone, all else as before.
    pub(crate) fn refused_many(
        &mut self,
        requests: &[Request],
        index: usize,
        error: Error,
        events: &[Event],
    ) -> Checked {
        let never = requests.iter().position(|request| self.refusal(request).is_some());
        ensure!(index < requests.len() && never.is_none_or(|never| index <= never), "{error:?} is not of {index}");
        if let (0, Some(request)) = (index, requests.first()) {
            return self.refused(request, error, events);
        }
        if let Some(expected) = self.refusal(&requests[index]) {
            check_error(error, expected, 0)?;
        }
        self.undone(requests, index, events)
    }

    /// A batch was taken back after `index` of its requests had been served.
    pub(crate) fn undone(&mut self, requests: &[Request], index: usize, events: &[Event]) -> Checked {
        let mut new_pages = BTreeSet::new();
        for event in events {
            match *event {
                Event::Page { handle, .. } => {
                    new_pages.insert(handle);
                }
                Event::Returned { handle } | Event::NotReturned { handle, .. } => {
                    let ours = new_pages.remove(&handle) || self.bad_page.is_some_and(|bad| bad.1 == handle);
                    ensure!(ours, "page {handle} was there before the batch");
                }
                _ => {}
            }
            self.apply(event)?;
        }
        ensure!(new_pages.is_empty(), "the refused batch left the pages {new_pages:?}");
        let placed: u64 = requests[..index].iter().map(|request| request.size).sum();
        let several = self.pools.len() > 1;
        self.batch_undone |= index != 0;
        for pool in &mut self.pools {
            pool.possible_peak = pool.books.in_use + placed;
            if !several {
                pool.books.in_use_peak = pool.books.in_use_peak.max(pool.possible_peak);
            }
        }
        if index != 0 {
            self.forget_idle_order();
        }
        Ok(())
    }

    pub(crate) fn forget_idle_order(&mut self) {
        self.clock += 1;
        self.pools.iter_mut().for_each(|pool| pool.books.forget_idle_order(self.clock));
    }

    // ---- freeing and the rest

    pub(crate) fn free(&mut self, id: u64) {
        if let Ok(place) = self.handles.look_up(id) {
            self.clock += 1;
            self.pools[place.pool].books.remove(place.page, place.offset, self.clock);
            self.handles.remove(id);
        }
    }

    /// Bytes of all pages that serve: stuck ones do not.
    fn serving(&self) -> u128 {
        let pools = self.pools.iter();
        pools.map(|pool| pool.books.pages.len() as u128 * u128::from(pool.rules.page)).sum()
    }

    /// Since when the page has been idle that is the next to go in a trim to `keep` bytes: of each pool the one that has
    /// been idle the longest is looked at.
    fn next_to_go(&self, keep: u64) -> Option<u64> {
        let may_go = |pool: &&Pool| self.serving() - u128::from(pool.rules.page) >= u128::from(keep);
        let oldest = self.pools.iter().filter(|pool| pool.books.oldest_idle().is_some()).filter(may_go);
        oldest.filter_map(|pool| pool.books.oldest_idle()).min()
    }

    /// The device was asked to take pages back down to `keep` bytes; what the call must answer.
    pub(crate) fn trimmed(&mut self, keep: u64, events: &[Event]) -> Checked<Option<i32>> {
        let mut events = events.iter();
        let mut refusal = None;
        let mut stuck: Vec<BTreeSet<u64>> = self.pools.iter().map(|pool| pool.stuck.clone()).collect();
        loop {
            let retry = stuck.iter_mut().find(|stuck| !stuck.is_empty());
            let oldest = self.next_to_go(keep);
            if retry.is_none() && oldest.is_none() {
                break;
            }
            let event = events.next();
            let Some(Event::Returned { handle } | Event::NotReturned { handle, .. }) = event else {
                return Err(format!("a page stayed that need not: {event:?}"));
            };
            let expected = match retry {
                Some(stuck) => stuck.remove(handle),
                None => self.pools.iter().any(|pool| pool.books.idle_since(*handle) == oldest),
            };
            ensure!(expected, "page {handle} went before its turn");
            if let Some(&Event::NotReturned { code, .. }) = event {
                refusal = Some(code);
            }
            event.map_or(Ok(()), |event| self.apply(event))?;
        }
        let extra = events.next();
        ensure!(extra.is_none(), "more than was due: {extra:?}");
        Ok(refusal)
    }

    /// Whether a pool's figures are those of the model, and its walk shows what the model holds.
    pub(crate) fn check_pool(&mut self, index: usize, found: &Statistics, shown: &mut [Shown]) -> Checked<Figures> {
        let pool = &mut self.pools[index];
        let figures = pool.books.compare(shown)?;
        // With several pools it is not known which of them served a batch that was taken back.
        let possible_peak = std::mem::take(&mut pool.possible_peak).max(pool.books.in_use_peak);
        if (pool.books.in_use_peak..=possible_peak).contains(&found.in_use_peak) {
            pool.books.in_use_peak = found.in_use_peak;
        }
        let mut expected = Statistics::default();
        expected.reserved = pool.reserved();
        expected.in_use = figures.in_use;
        expected.padding = figures.padding;
        expected.free = figures.free;
        expected.stuck = pool.stuck.len() as u64 * pool.rules.page;
        expected.reserved_peak = pool.reserved_peak;
        expected.in_use_peak = pool.books.in_use_peak;
        expected.largest_allocation = found.largest_allocation;
        expected.largest_free_bound = found.largest_free_bound;
        expected.metadata = found.metadata;
        expected.device_allocations = pool.taken;
        expected.device_deallocations = pool.returned;
        expected.slices = figures.slices;
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
}
