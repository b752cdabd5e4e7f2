//! The ladder from memory that does not serve a request to its refusal.

use crate::device::{Event, Events};
use crate::growth::Growth;
use crate::oracle::{Checked, check_error, ensure};
use crate::pools::Model;
use crate::rules::reported;
use slicepool_core::{Error, Request, Slice};

/// How often the device is told of one request.
const MOST_PLEAS: u32 = 8;

/// Where a request has ended that memory which is held did not serve at once.
pub(crate) enum Climbed {
    /// At the start of a new page.
    Page(u64),
    /// In memory that has been free since the device was asked what it has completed.
    Released,
    /// In memory that was held all along.
    Held,
    Refused(Error),
}

/// Bytes that have to go back before a page that was refused with an error may be had; `None` if that would not help.
fn wanted(error: &Error) -> Option<u64> {
    match *error {
        Error::OutOfDeviceMemory { size, .. } => Some(size),
        Error::BudgetExceeded { size, limit, reserved } => {
            (size <= limit).then(|| (u128::from(size) + u128::from(reserved) - u128::from(limit)) as u64)
        }
        Error::PageCountExceeded { limit, .. } => (limit != 0).then_some(1),
        _ => None,
    }
}

/// Whether freeing something may help.
fn is_shortage(error: &Error) -> bool {
    matches!(
        error,
        Error::OutOfDeviceMemory { .. }
            | Error::BudgetExceeded { .. }
            | Error::PageCountExceeded { .. }
            | Error::PoolCapacityExceeded { .. }
    )
}

/// The bytes of the largest free range, as the model has them in an error that it expects.
pub(crate) fn exact_largest(expected: Error) -> u64 {
    if let Error::PoolCapacityExceeded { largest_free, .. } = expected { largest_free } else { 0 }
}

impl Model {
    /// Follows a request up the ladder, again and again if the device gives hope. `served`: by what it was served in
    /// the end; `loosely`: memory that is held may also have been found on the way.
    pub(crate) fn climb(
        &mut self,
        request: &Request,
        served: Option<&Slice>,
        events: &mut Events,
        loosely: bool,
    ) -> Checked<Climbed> {
        for attempt in 0.. {
            let errors = match self.climb_once(request, served, events, loosely)? {
                Ok(served) => return Ok(served),
                Err(errors) => errors,
            };
            let error = reported(&errors);
            let may_help = errors.iter().any(is_shortage);
            if attempt == MOST_PLEAS || !may_help || !self.hope(request, error, attempt, events)? {
                return Ok(Climbed::Refused(error));
            }
        }
        unreachable!("the loop is left before it ends")
    }

    fn climb_once(
        &mut self,
        request: &Request,
        served: Option<&Slice>,
        events: &mut Events,
        loosely: bool,
    ) -> Checked<Result<Climbed, Vec<Error>>> {
        self.ask_for_progress(events)?;
        let may_miss = self.may_miss_a_fit(request);
        if self.fits(request) && !may_miss {
            return Ok(Ok(Climbed::Released));
        }
        let loosely = loosely || (self.fits(request) && may_miss);
        let mut errors = match self.grow(request, events, loosely)? {
            Growth::Page(page) => return Ok(Ok(Climbed::Page(page))),
            Growth::Served => return Ok(Ok(Climbed::Held)),
            Growth::Refused(errors) => errors,
        };
        // Free pages that are larger than is good serve before any goes back.
        let in_need = self.pools_for(request).any(|pool| pool.serves_in_need(request));
        let held = served.map_or(loosely, |slice| loosely && self.pool_of_page(slice.memory).is_some());
        if in_need || held {
            return Ok(Ok(Climbed::Held));
        }
        loop {
            // The pool that needs the least decides.
            match errors.iter().filter_map(wanted).min() {
                Some(bytes) if self.make_room(bytes, events)? => {}
                _ => return Ok(Err(errors)),
            }
            errors = match self.grow(request, events, false)? {
                Growth::Page(page) => return Ok(Ok(Climbed::Page(page))),
                Growth::Served => return Ok(Ok(Climbed::Held)),
                Growth::Refused(errors) => errors,
            };
        }
    }

    /// The device is told of a request that cannot be served; whether it gives hope.
    fn hope(&mut self, request: &Request, error: Error, attempt: u32, events: &mut Events) -> Checked<bool> {
        let Some(Event::Told { shortage, again }) = events.pop_front() else {
            return Err(format!("the device is not told that {request:?} is refused with {error:?}"));
        };
        check_error(shortage.error, error, exact_largest(error))?;
        let told = (shortage.size, shortage.alignment, shortage.attempt);
        ensure!(told == (request.size, request.alignment, attempt), "{shortage:?} for {request:?}, {attempt}");
        if again {
            // Whatever was freed need not have been this allocator's.
            self.returns += 1;
        }
        Ok(again)
    }
}
