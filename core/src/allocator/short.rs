//! What happens when memory that is held does not serve a request at once: the ladder from a longer look to a refusal.

use super::{Allocator, Cell, InFlight};
use crate::device::{Device, Shortage};
use crate::error::Error;
use crate::pool::{Fit, Pool};
use crate::slice::{Request, Slice};
use crate::sync::{Guard, Ordering};

/// Calls of [`Device::out_of_memory`] for one request.
const MAX_PLEAS: u32 = 8;

impl Error {
    /// When several pools refuse, the error that is reported: the lowest.
    fn rank(&self) -> u32 {
        match self {
            Error::OutOfHostMemory { .. } | Error::TooManySlices { .. } | Error::Busy { .. } => 0,
            Error::OutOfDeviceMemory { .. } | Error::DeviceFailed { .. } => 1,
            Error::BudgetExceeded { .. } => 2,
            Error::PageCountExceeded { .. } => 3,
            Error::PoolCapacityExceeded { .. } => 4,
            Error::TooLarge { .. } => 6,
            _ => 5,
        }
    }

    /// Whether freeing or evicting something may help.
    fn is_shortage(&self) -> bool {
        matches!(
            self,
            Error::OutOfDeviceMemory { .. }
                | Error::BudgetExceeded { .. }
                | Error::PageCountExceeded { .. }
                | Error::PoolCapacityExceeded { .. }
        )
    }

    /// How many bytes have to go back to the device before it makes sense to ask for a page again; `None` if that would not
    /// help.
    pub(super) fn bytes_to_give_back(&self) -> Option<u64> {
        match *self {
            Error::OutOfDeviceMemory { size, .. } => Some(size.max(1)),
            Error::BudgetExceeded { size, limit, reserved } if size <= limit => {
                Some(size.saturating_sub(limit.saturating_sub(reserved)).max(1))
            }
            Error::PageCountExceeded { limit, .. } if limit != 0 => Some(1),
            _ => None,
        }
    }
}

/// Keeps the error that is reported.
#[cold]
pub(super) fn note(worst: &mut Option<Error>, error: Error) {
    let replaces = match worst {
        // Of several limits the most generous one is of use to the caller.
        Some(Error::TooLarge { limit: known, .. }) => match error {
            Error::TooLarge { limit, .. } => limit > *known,
            _ => true,
        },
        Some(known) => error.rank() < known.rank(),
        None => true,
    };
    if replaces {
        *worst = Some(error);
    }
}

/// What the pools have said that a request went to.
#[derive(Default)]
struct Refusal {
    /// The error that is reported.
    worst: Option<Error>,
    /// Whether freeing or evicting something may help with any of them.
    shortage: bool,
    /// The fewest bytes that have to go back to the device before it makes sense to ask for a page again.
    wanted: Option<u64>,
}

impl Refusal {
    #[cold]
    fn note(&mut self, error: Error) {
        self.shortage |= error.is_shortage();
        if let Some(wanted) = error.bytes_to_give_back() {
            self.wanted = Some(self.wanted.map_or(wanted, |least| least.min(wanted)));
        }
        note(&mut self.worst, error);
    }
}

/// How closely memory that is held is looked through.
#[derive(Clone, Copy)]
enum Search {
    /// In constant time, then one step through the holes of the request's own class.
    Brief,
    /// Every hole that could hold the request.
    Whole,
}

impl<D: Device> Allocator<D> {
    /// [`Allocator::allocate`] when no pool serves the request at once. `fresh`: whether a page was taken for it.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_slowly(&self, request: &Request, fresh: &mut bool) -> Result<Slice, Error> {
        let route = self.route(request)?;
        let mut attempt = 0;
        loop {
            let refusal = match self.climb(route, request, fresh) {
                Ok(slice) => return Ok(slice),
                Err(refusal) => refusal,
            };
            // There is at least one pool, and each has said something.
            let error = refusal.worst.unwrap_or(Error::TooLarge { size: request.size, limit: 0 });
            if !refusal.shortage || !self.plead(request, error, attempt) {
                return Err(error);
            }
            attempt += 1;
        }
    }

    /// One way up the ladder.
    #[cold]
    fn climb(&self, route: &[Cell], request: &Request, fresh: &mut bool) -> Result<Slice, Refusal> {
        // Memory that is held first, in any pool; the first look may have failed for want of nodes only.
        let mut refusal = Refusal::default();
        if let Some(slice) = self.search(route, request, Search::Brief, &mut refusal) {
            return Ok(slice);
        }
        if route.iter().any(|cell| cell.rules.fit(request).is_ok()) && self.ask_what_is_completed() {
            if let Some(slice) = self.search(route, request, Search::Brief, &mut refusal) {
                return Ok(slice);
            }
        }
        if let Some(slice) = self.grow_any(route, request, fresh, &mut refusal) {
            return Ok(slice);
        }
        if let Some(slice) = self.search(route, request, Search::Whole, &mut refusal) {
            return Ok(slice);
        }
        let mut left = None;
        loop {
            let Some(wanted) = refusal.wanted else { return Err(refusal) };
            let in_flight = InFlight::new(&self.in_flight);
            if !self.give_back_for(wanted, &mut left) {
                return Err(refusal);
            }
            drop(in_flight);
            refusal = Refusal::default();
            if let Some(slice) = self.grow_any(route, request, fresh, &mut refusal) {
                return Ok(slice);
            }
        }
    }

    /// Looks for room in every pool that takes the request.
    #[cold]
    fn search(&self, route: &[Cell], request: &Request, search: Search, refusal: &mut Refusal) -> Option<Slice> {
        for cell in route {
            let Ok(fit) = cell.rules.fit(request) else { continue };
            let found = match search {
                Search::Brief => self.search_briefly(cell, &fit),
                Search::Whole => self.search_everything(cell, &fit),
            };
            match found {
                Ok(Some(slice)) => return Some(slice),
                Ok(None) => {}
                Err(error) => refusal.note(error),
            }
        }
        None
    }

    /// Grows the first pool that takes the request and can grow.
    #[cold]
    fn grow_any(&self, route: &[Cell], request: &Request, fresh: &mut bool, refusal: &mut Refusal) -> Option<Slice> {
        for cell in route {
            match cell.rules.fit(request).and_then(|fit| self.grow(cell, &fit, fresh)) {
                Ok(slice) => return Some(slice),
                Err(error) => refusal.note(error),
            }
        }
        None
    }

    /// Tells the device of a request that cannot be served; whether to try again.
    #[cold]
    fn plead(&self, request: &Request, error: Error, attempt: u32) -> bool {
        let _in_flight = InFlight::new(&self.in_flight);
        // Only a bound on nesting: a callback that allocates may lead here again.
        let running = self.pleas.fetch_add(1, Ordering::Relaxed);
        let again = attempt < MAX_PLEAS.checked_shr(running).unwrap_or(0) && {
            let Request { size, alignment, .. } = *request;
            self.device.out_of_memory(&Shortage { size, alignment, error, attempt })
        };
        self.pleas.fetch_sub(1, Ordering::Relaxed);
        if again {
            // What was evicted need not have been this allocator's.
            self.note_return();
        }
        again
    }

    /// The search in constant time, then one step through the holes of the request's own class.
    #[cold]
    fn search_briefly(&self, cell: &Cell, fit: &Fit) -> Result<Option<Slice>, Error> {
        let mut pool = self.lock_with_nodes(cell)?;
        Ok(Self::look(&mut pool, fit))
    }

    pub(super) fn look(pool: &mut Guard<'_, Pool>, fit: &Fit) -> Option<Slice> {
        if let Some(slice) = pool.place_elsewhere(fit) {
            return Some(slice);
        }
        if !pool.cuts() {
            // Any free page would do, but a closer one may be had.
            return None;
        }
        let scan = pool.begin_scan(fit);
        pool.scan(fit, scan).ok().flatten()
    }

    /// Looks at every hole that could hold the request, a few at a time per lock hold.
    #[cold]
    fn search_everything(&self, cell: &Cell, fit: &Fit) -> Result<Option<Slice>, Error> {
        let mut scan = self.lock_with_nodes(cell)?.begin_scan(fit);
        loop {
            let mut pool = self.lock_with_nodes(cell)?;
            if let Some(slice) = pool.place_elsewhere(fit) {
                return Ok(Some(slice));
            }
            match pool.scan(fit, scan) {
                Ok(slice) => return Ok(slice),
                Err(more) => scan = more,
            }
        }
    }
}
