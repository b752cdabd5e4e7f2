//! What a request comes to: which memory that is held serves it, or which pages are asked for.

use crate::device::{Event, Events};
use crate::oracle::{Checked, Live, Place, check_error, ensure};
use crate::pools::{Model, Pool};
use crate::rules::{Kind, reported};
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
    fn serves_in_need(&self, request: &Request) -> bool {
        matches!(&self.rules.kind, Kind::Exclusive(exclusive)
            if self.accepts(request) && exclusive.reuses(&self.books, request.size, false).is_some())
    }

    /// The idle page that has to go before the pool asks for another, when `given_back` bytes have gone for that already.
    fn in_the_way(&self, request: &Request, given_back: u64) -> Option<u64> {
        match &self.rules.kind {
            Kind::Sliced(sliced) if sliced.growth.is_some() => {
                let oldest = self.books.oldest_idle().map(|(handle, _)| handle);
                oldest.filter(|_| self.next_page(request).is_none_or(|page| given_back < page))
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

/// What came of asking the device on behalf of a request.
struct Growth {
    page: Option<u64>,
    /// Why each pool of the route did not get one.
    errors: Vec<Error>,
}

impl Model {
    fn pools_for(&self, request: &Request) -> impl Iterator<Item = &Pool> {
        self.pools[self.route(request)].iter()
    }

    /// Whether memory that is held serves a request.
    pub(crate) fn fits(&self, request: &Request) -> bool {
        self.pools_for(request).any(|pool| pool.serves(request) != Serves::No)
    }

    /// A request had this answer, and `events` happened meanwhile.
    pub(crate) fn asked(&mut self, request: &Request, answer: Result<Slice, Error>, events: &mut Events) -> Checked {
        if let Some(expected) = self.refusal(request) {
            return match answer {
                Ok(slice) => Err(format!("{request:?} was served by {slice:?} instead of {expected:?}")),
                Err(error) => check_error(error, expected, 0),
            };
        }
        let fits = self.fits(request);
        match answer {
            Ok(slice) if fits && self.pools_for(request).any(|pool| pool.may_miss_a_fit(request)) => {
                // Which way it went shows in the end.
                let (before, events_before) = (self.clone(), events.clone());
                if self.served_from_held(request, &slice, events).is_err() || !events.is_empty() {
                    (*self, *events) = (before, events_before);
                    self.served_by_growing(request, &slice, events, true)?;
                }
                Ok(())
            }
            Ok(slice) if fits => self.served_from_held(request, &slice, events),
            Ok(slice) => self.served_by_growing(request, &slice, events, false),
            Err(error) => {
                ensure!(!fits, "{request:?} fits, but was refused: {error:?}");
                let Growth { page, errors } = self.grow(request, events, false)?;
                let in_need = self.pools_for(request).any(|pool| pool.serves_in_need(request));
                ensure!(page.is_none() && !in_need, "{request:?} was refused though there was a page: {error:?}");
                let expected = reported(&errors);
                let exact =
                    if let Error::PoolCapacityExceeded { largest_free, .. } = expected { largest_free } else { 0 };
                check_error(error, expected, exact)
            }
        }
    }

    fn served_from_held(&mut self, request: &Request, slice: &Slice, events: &mut Events) -> Checked {
        let pool = self.check_held(request, slice)?;
        let sooner = (self.route(request).start..pool).find(|&i| self.pools[i].serves(request) == Serves::AtOnce);
        ensure!(sooner.is_none(), "pool {pool} served {request:?} and not pool {sooner:?}");
        ensure!(self.pools[pool].serves(request) != Serves::No, "{slice:?} of pool {pool} does not fit {request:?}");
        self.pools[pool].check_choice(request, slice, false)?;
        self.place(request, slice, false)?;
        self.count_allocation(events)
    }

    /// `loosely`: memory that is held may also have been found on the way.
    fn served_by_growing(&mut self, request: &Request, slice: &Slice, events: &mut Events, loosely: bool) -> Checked {
        let Growth { page, .. } = self.grow(request, events, loosely)?;
        if let Some(page) = page {
            ensure!((slice.memory, slice.offset) == (page, 0), "{slice:?} is not at the start of the new page {page}");
        } else {
            // The device gave none: whatever holds the request is right, in the first pool that has something.
            let pool = self.check_held(request, slice)?;
            let sooner = (self.route(request).start..pool).find(|&i| self.pools[i].serves_in_need(request));
            ensure!(loosely || sooner.is_none(), "pool {pool} served {request:?} and not pool {sooner:?}");
            let in_need = self.pools[pool].serves_in_need(request);
            ensure!(loosely || in_need, "{slice:?} of pool {pool} does not fit {request:?}");
            self.pools[pool].check_choice(request, slice, in_need)?;
        }
        self.place(request, slice, page.is_some())?;
        self.count_allocation(events)
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
        let live = Live { id, size: slice.size, requested: request.size };
        books.place(slice.memory, slice.offset, live, request.alignment)?;
        ensure!(slice.address % request.alignment == 0, "the address of {slice:?} is not aligned");
        self.handles.add(id, Place { pool, page: slice.memory, offset: slice.offset })
    }

    /// Each pool in turn asks for a page, until one gets it. `loosely`: or something else serves meanwhile.
    fn grow(&mut self, request: &Request, events: &mut Events, loosely: bool) -> Checked<Growth> {
        let mut errors = Vec::new();
        for index in self.route(request) {
            if let Some(error) = self.pools[index].rules.refusal(request) {
                errors.push(error);
                continue;
            }
            let mut given_back = 0;
            while let Some(handle) = self.pools[index].in_the_way(request, given_back) {
                given_back += self.pools[index].books.pages[&handle].size;
                if loosely && !events.front().is_some_and(|event| event.is_return_of(handle)) {
                    return Ok(Growth { page: None, errors });
                }
                self.page_leaves(index, handle, events)?;
            }
            let Some(size) = self.pools[index].next_page(request) else {
                errors.push(self.at_the_cap(index, request));
                continue;
            };
            if loosely && events.front().is_none_or(|event| event.request().is_none()) {
                return Ok(Growth { page: None, errors });
            }
            let event = events.pop_front();
            let asked = event.and_then(|event| event.request());
            ensure!(asked == Some((index, size)), "no page of {size} bytes was asked for in pool {index}: {event:?}");
            match event {
                Some(Event::Page { handle, .. }) => {
                    self.page_comes(index, handle, size)?;
                    return Ok(Growth { page: Some(handle), errors });
                }
                Some(Event::BadPage { handle, error, .. }) => {
                    self.bad_page_comes(index, handle, size, events)?;
                    errors.push(error);
                }
                Some(Event::NoPage { error, .. }) => errors.push(error),
                other => return Err(format!("{other:?} on behalf of {request:?}")),
            }
        }
        Ok(Growth { page: None, errors })
    }

    fn at_the_cap(&self, index: usize, request: &Request) -> Error {
        let pool = &self.pools[index];
        Error::PoolCapacityExceeded {
            size: request.size,
            capacity: pool.rules.capacity(),
            in_use: pool.books.in_use,
            pending: 0,
            largest_free: pool.books.largest_free(),
            growths_in_flight: 0,
        }
    }
}
