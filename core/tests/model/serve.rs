//! What a request comes to: which memory that is held serves it, or what the device gives for it.

use crate::device::{Event, Events};
use crate::handles::Place;
use crate::oracle::{Checked, Live, check_error, ensure};
use crate::pools::{Model, Pool};
use crate::rules::{Kind, reported};
use crate::short::{Climbed, exact_largest};
use slicepool_core::{Error, Request, Slice};

/// How well memory that a pool holds serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serves {
    /// It does not.
    No,
    /// It does, but that may take a search.
    Perhaps,
    /// It is found in constant time.
    AtOnce,
}

impl Pool {
    fn serves(&self, request: &Request) -> Serves {
        let size = request.size;
        let (fits, at_once) = match &self.rules.kind {
            _ if !self.accepts(request) => (false, false),
            Kind::Sliced(sliced) => {
                let fits = self.books.fits(size, request.alignment);
                (fits, fits && sliced.serves_at_once(&self.books, request))
            }
            Kind::Exclusive(exclusive) => (exclusive.reuses(&self.books, size, true).is_some(), true),
            Kind::Direct(direct) => (direct.reuses(&self.books, size).is_some(), true),
        };
        match (fits, at_once) {
            (false, _) => Serves::No,
            (true, false) => Serves::Perhaps,
            (true, true) => Serves::AtOnce,
        }
    }

    /// Whether a free page would serve that is too large as long as the device gives another.
    pub(crate) fn serves_in_need(&self, request: &Request) -> bool {
        matches!(&self.rules.kind, Kind::Exclusive(exclusive)
            if self.accepts(request) && exclusive.reuses(&self.books, request.size, false).is_some())
    }

    /// The idle page that has to go before the pool asks for another, when `given_back` bytes have gone for that
    /// already.
    pub(crate) fn in_the_way(&self, request: &Request, given_back: u64) -> Option<u64> {
        match &self.rules.kind {
            Kind::Sliced(sliced) if sliced.growth.is_some() => {
                let oldest = self.books.oldest_idle().map(|(handle, _)| handle);
                // As much as a page has that no cap makes smaller.
                let usual = |_| sliced.usual_page(request.size, u128::from(self.reserved()));
                oldest.filter(|_| self.next_page(request).map(usual).is_none_or(|page| given_back < page))
            }
            Kind::Direct(direct) => direct.in_the_way(&self.books, request.size, u128::from(self.reserved())),
            _ => None,
        }
    }

    fn may_miss_a_fit(&self, request: &Request) -> bool {
        matches!(&self.rules.kind, Kind::Sliced(sliced)
            if self.accepts(request) && sliced.may_miss_a_fit(&self.books, request))
    }

    /// Whether it was right to place a slice where it is, in memory that was held.
    fn check_choice(&self, request: &Request, slice: &Slice, in_need: bool) -> Checked {
        let page = &self.books.pages[&slice.memory];
        match &self.rules.kind {
            Kind::Sliced(sliced) if page.live.is_empty() => {
                sliced.check_idle_page(&self.books, page, request, slice)?;
            }
            Kind::Sliced(_) => {}
            Kind::Exclusive(exclusive) => {
                let expected = exclusive.reuses(&self.books, request.size, !in_need);
                ensure!(Some(page.size) == expected, "{slice:?} is not in the closest page, of {expected:?} bytes");
            }
            Kind::Direct(direct) => {
                let expected = direct.reuses(&self.books, request.size).map(|(handle, _)| handle);
                ensure!(Some(slice.memory) == expected, "{slice:?} is not in page {expected:?}, freed last");
            }
        }
        Ok(())
    }
}

impl Model {
    pub(crate) fn pools_for(&self, request: &Request) -> impl Iterator<Item = &Pool> {
        self.pools[self.route(request)].iter()
    }

    /// Whether memory that is held serves a request.
    pub(crate) fn fits(&self, request: &Request) -> bool {
        self.pools_for(request).any(|pool| pool.serves(request) != Serves::No)
    }

    /// Whether pages that are larger than is good would serve a request.
    pub(crate) fn fits_in_need(&self, request: &Request) -> bool {
        self.pools_for(request).any(|pool| pool.serves_in_need(request))
    }

    /// A request had this answer, and `events` happened meanwhile.
    pub(crate) fn asked(&mut self, request: &Request, answer: Result<Slice, Error>, events: &mut Events) -> Checked {
        if let Some(expected) = self.refusal(request) {
            // Whether the device is asked how far it is before that is not said.
            if let Some(Event::Asked { .. }) = events.front() {
                self.ask_for_progress(events)?;
            }
            return match answer {
                Ok(slice) => Err(format!("{request:?} was served by {slice:?} instead of {expected:?}")),
                Err(error) => check_error(error, expected, 0),
            };
        }
        match answer {
            Ok(slice) => {
                self.served(request, &slice, events)?;
                let refusal = if request.is_zeroed() { self.filled(&slice, events)? } else { None };
                ensure!(refusal.is_none(), "{slice:?} was handed out in spite of {refusal:?}");
                Ok(())
            }
            Err(error) => {
                if let (true, Some(slice)) = (request.is_zeroed(), Self::unfilled(events)) {
                    return self.taken_back(request, &slice, error, events);
                }
                ensure!(!self.fits(request), "{request:?} fits, but was refused: {error:?}");
                if request.never_grows() {
                    let expected = self.refused_without_growing(request)?;
                    return check_error(error, expected, exact_largest(expected));
                }
                let Climbed::Refused(expected) = self.climb(request, None, events, false)? else {
                    return Err(format!("{request:?} was refused though there was memory: {error:?}"));
                };
                check_error(error, expected, exact_largest(expected))
            }
        }
    }

    /// A slice was placed for a request; whether in a page that was taken for it.
    pub(crate) fn served(&mut self, request: &Request, slice: &Slice, events: &mut Events) -> Checked<bool> {
        if request.never_grows() {
            self.served_without_growing(request, slice)?;
            return Ok(false);
        }
        if !self.fits(request) {
            return self.served_by_growing(request, slice, events, false);
        }
        if self.may_miss_a_fit(request) {
            // Which way it went shows in the end.
            let (before, events_before) = (self.clone(), events.clone());
            let is_done = |event: Option<&Event>| matches!(event, None | Some(Event::Filled { .. }));
            if self.served_from_held(request, slice, events).is_err() || !is_done(events.front()) {
                (*self, *events) = (before, events_before);
                return self.served_by_growing(request, slice, events, true);
            }
            return Ok(false);
        }
        self.served_from_held(request, slice, events)?;
        Ok(false)
    }

    pub(crate) fn may_miss_a_fit(&self, request: &Request) -> bool {
        self.pools_for(request).any(|pool| pool.may_miss_a_fit(request))
    }

    /// A request that must not grow was served: nothing is counted, and nothing ages.
    fn served_without_growing(&mut self, request: &Request, slice: &Slice) -> Checked {
        let pool = self.check_held(request, slice)?;
        let sooner = self.route(request).start..pool;
        let at_once = |i: usize| self.pools[i].serves(request) == Serves::AtOnce;
        let at_all = |i: usize| self.pools[i].serves(request) != Serves::No || self.pools[i].serves_in_need(request);
        let in_need = self.pools[pool].serves(request) == Serves::No;
        let better = match in_need {
            // That takes the last search, which the first pool ends that has anything.
            true => self.route(request).find(|&i| at_once(i)).or(sooner.clone().find(|&i| at_all(i))),
            false => sooner.clone().find(|&i| at_once(i)),
        };
        ensure!(better.is_none(), "pool {pool} served {request:?} and not pool {better:?}");
        ensure!(at_all(pool), "{slice:?} of pool {pool} does not fit {request:?}");
        self.pools[pool].check_choice(request, slice, in_need)?;
        self.place(request, slice, false)
    }

    /// Why a request that must not grow is refused.
    fn refused_without_growing(&self, request: &Request) -> Checked<Error> {
        ensure!(!self.fits_in_need(request), "{request:?} was refused though there is a page that holds it");
        let errors = self.route(request).map(|i| match self.pools[i].rules.refusal(request) {
            Some(error) => error,
            None => match self.at_the_cap(i, request) {
                Error::PoolCapacityExceeded { size, in_use, pending, largest_free, growths_in_flight, .. } => {
                    let capacity = self.pools[i].reserved();
                    Error::PoolCapacityExceeded { size, capacity, in_use, pending, largest_free, growths_in_flight }
                }
                other => other,
            },
        });
        Ok(reported(&errors.collect::<Vec<_>>()))
    }

    fn served_from_held(&mut self, request: &Request, slice: &Slice, events: &mut Events) -> Checked {
        self.check_choice(request, slice)?;
        self.place(request, slice, false)?;
        self.count_allocation(events)
    }

    /// Whether it was right to serve a request in memory that was held.
    fn check_choice(&self, request: &Request, slice: &Slice) -> Checked {
        let pool = self.check_held(request, slice)?;
        let sooner = (self.route(request).start..pool).find(|&i| self.pools[i].serves(request) == Serves::AtOnce);
        ensure!(sooner.is_none(), "pool {pool} served {request:?} and not pool {sooner:?}");
        ensure!(self.pools[pool].serves(request) != Serves::No, "{slice:?} of pool {pool} does not fit {request:?}");
        self.pools[pool].check_choice(request, slice, false)
    }

    /// `loosely`: memory that is held may also have been found on the way.
    fn served_by_growing(
        &mut self,
        request: &Request,
        slice: &Slice,
        events: &mut Events,
        loosely: bool,
    ) -> Checked<bool> {
        let new_page = match self.climb(request, Some(slice), events, loosely)? {
            Climbed::Page(page) => {
                ensure!((slice.memory, slice.offset) == (page, 0), "{slice:?} is not at the start of new page {page}");
                true
            }
            Climbed::Released => {
                self.check_choice(request, slice)?;
                false
            }
            Climbed::Held => {
                // The device gave none: whatever holds the request is right, in the first pool that has something.
                let pool = self.check_held(request, slice)?;
                let sooner = (self.route(request).start..pool).find(|&i| self.pools[i].serves_in_need(request));
                ensure!(loosely || sooner.is_none(), "pool {pool} served {request:?} and not pool {sooner:?}");
                let in_need = self.pools[pool].serves_in_need(request);
                ensure!(loosely || in_need, "{slice:?} of pool {pool} does not fit {request:?}");
                self.pools[pool].check_choice(request, slice, in_need)?;
                false
            }
            Climbed::Refused(error) => return Err(format!("{slice:?} in place of {error:?} for {request:?}")),
        };
        self.place(request, slice, new_page)?;
        self.count_allocation(events)?;
        Ok(new_page)
    }

    /// The pool of a slice in memory that was held.
    fn check_held(&self, request: &Request, slice: &Slice) -> Checked<usize> {
        let Some(pool) = self.pool_of_page(slice.memory) else {
            return Err(format!("{slice:?} is in a page that nobody held"));
        };
        ensure!(self.route(request).contains(&pool), "pool {pool} served {request:?}");
        Ok(pool)
    }

    /// Enters a slice that was handed out for `request`.
    fn place(&mut self, request: &Request, slice: &Slice, new_page: bool) -> Checked {
        let pool = self.check_held(request, slice)?;
        let Pool { rules, books, .. } = &mut self.pools[pool];
        let refusal = rules.refusal(request);
        ensure!(refusal.is_none(), "pool {pool} does not take {request:?}: {refusal:?}");
        if let (false, Some(page)) = (new_page, books.pages.get_mut(&slice.memory)) {
            if page.live.is_empty() {
                page.staleness = page.staleness.saturating_sub(1);
                page.expired_at = None;
            }
        }
        let id = slice.id.to_raw();
        let live = Live { scrub: request.is_scrubbed(), ..Live::new(id, slice.size, request.size) };
        books.place(slice.memory, slice.offset, live, request.alignment)?;
        ensure!(slice.address % request.alignment == 0, "the address of {slice:?} is not aligned");
        self.handles.add(id, Place { pool, page: slice.memory, offset: slice.offset })
    }
}
