//! Which pages the device is asked for.

use crate::device::{Event, Events};
use crate::oracle::{Checked, ensure};
use crate::pools::{Model, Pool};
use crate::rules::Kind;
use slicepool_core::{Error, Request};

/// What came of asking the device on behalf of a request.
pub(crate) enum Growth {
    /// A page.
    Page(u64),
    /// Memory that is held has turned out to serve.
    Served,
    /// Why each pool of the route did not get a page.
    Refused(Vec<Error>),
}

impl Pool {
    /// The smallest page that would do where pages may be smaller than the next one.
    fn least_page(&self, request: &Request) -> Option<u64> {
        match &self.rules.kind {
            Kind::Sliced(sliced) if sliced.growth.is_some() => Some(self.books.rounded(request.size) as u64),
            _ => None,
        }
    }
}

impl Model {
    /// Each pool in turn asks for a page, until one gets it. `loosely`: or something else serves meanwhile.
    pub(crate) fn grow(&mut self, request: &Request, events: &mut Events, loosely: bool) -> Checked<Growth> {
        let mut errors = Vec::new();
        for index in self.route(request) {
            if let Some(error) = self.pools[index].rules.refusal(request) {
                errors.push(error);
                continue;
            }
            match self.grow_pool(index, request, events, loosely)? {
                Ok(growth) => return Ok(growth),
                Err(error) => errors.push(error),
            }
        }
        Ok(Growth::Refused(errors))
    }

    /// One pool asks for a page, then for smaller ones if it may, and says why it got none.
    fn grow_pool(
        &mut self,
        index: usize,
        request: &Request,
        events: &mut Events,
        loosely: bool,
    ) -> Checked<Result<Growth, Error>> {
        loop {
            let mut given_back = 0;
            while let Some(handle) = self.pools[index].in_the_way(request, given_back) {
                given_back += self.pools[index].books.pages[&handle].size;
                if loosely && !events.front().is_some_and(|event| event.is_return_of(handle)) {
                    return Ok(Ok(Growth::Served));
                }
                self.page_leaves(index, handle, events)?;
            }
            let size = match self.size_to_ask_for(index, request) {
                Ok(size) => size,
                Err(error) => return Ok(Err(error)),
            };
            if loosely && events.front().is_none_or(|event| event.request().is_none()) {
                return Ok(Ok(Growth::Served));
            }
            if let Some(shared) = &mut self.shared {
                shared.reserved(size);
            }
            let event = events.pop_front();
            let asked = event.and_then(|event| event.request());
            ensure!(asked == Some((index, size)), "no page of {size} bytes was asked for in pool {index}: {event:?}");
            match event {
                Some(Event::Page { handle, .. }) => {
                    self.page_comes(index, handle, size)?;
                    self.pools[index].refusals.note_page(size);
                    return Ok(Ok(Growth::Page(handle)));
                }
                Some(Event::BadPage { handle, error, .. }) => {
                    self.bad_page_comes(index, handle, size, events)?;
                    self.note_released();
                    return Ok(Err(error));
                }
                Some(Event::NoPage { error, .. }) => {
                    self.note_released();
                    let least = self.pools[index].least_page(request).unwrap_or(size);
                    let asks_again = match error {
                        Error::OutOfDeviceMemory { code, .. } => {
                            self.pools[index].refusals.note_refusal(size, least, code)
                        }
                        _ => false,
                    };
                    if !asks_again {
                        return Ok(Err(error));
                    }
                }
                other => return Err(format!("{other:?} on behalf of {request:?}")),
            }
        }
    }

    /// Bytes of the page that the device is asked for on behalf of a request, or why it is not asked.
    fn size_to_ask_for(&mut self, index: usize, request: &Request) -> Result<u64, Error> {
        let (returns, room) = (self.returns, self.room());
        let pool = &mut self.pools[index];
        let Some(mut size) = pool.next_page(request) else { return Err(self.at_the_cap(index, request)) };
        pool.refusals.look_at_returns(returns);
        if let Some(least) = pool.least_page(request) {
            let granule = pool.rules.granule;
            size = pool.refusals.smaller(size, least, granule).min(room / granule * granule).max(least);
        }
        match pool.refusals.refuses(size) {
            Some(code) => Err(Error::OutOfDeviceMemory { size, code }),
            None => self.over_the_limits(size).map_or(Ok(size), Err),
        }
    }

    // ---- what the allocator may hold: pages that the device does not take back count

    pub(crate) fn held(&self) -> (u64, usize) {
        let bytes = self.pools.iter().map(Pool::reserved).sum();
        (bytes, self.pools.iter().map(|pool| pool.books.pages.len() + pool.stuck.len()).sum())
    }

    /// What was reserved of the shared limits for a page was returned.
    pub(crate) fn note_released(&mut self) {
        let held = self.held();
        if let Some(shared) = &mut self.shared {
            shared.released(held);
        }
    }

    /// Bytes that the next page may have.
    fn room(&self) -> u64 {
        let (bytes, pages) = self.held();
        let own = if pages < self.max_pages as usize { self.max_bytes - bytes } else { 0 };
        self.shared.as_ref().map_or(own, |shared| own.min(shared.room((bytes, pages))))
    }

    /// The error for a page of so many bytes that is one too many.
    fn over_the_limits(&mut self, size: u64) -> Option<Error> {
        let (reserved, pages) = self.held();
        if size > self.max_bytes - reserved {
            return Some(Error::BudgetExceeded { size, limit: self.max_bytes, reserved });
        }
        if pages >= self.max_pages as usize {
            // Bytes come before pages, whoever limits them.
            let first = self.shared.as_ref().and_then(|shared| shared.too_many_bytes(size, reserved));
            return first.or(Some(Error::PageCountExceeded { size, limit: self.max_pages }));
        }
        self.shared.as_mut().and_then(|shared| shared.refuses(size, (reserved, pages)))
    }

    pub(crate) fn at_the_cap(&self, index: usize, request: &Request) -> Error {
        let pool = &self.pools[index];
        Error::PoolCapacityExceeded {
            size: request.size,
            capacity: pool.rules.capacity(),
            in_use: pool.books.in_use,
            pending: pool.books.pending_bytes(),
            largest_free: pool.books.largest_free(),
            growths_in_flight: 0,
        }
    }
}
