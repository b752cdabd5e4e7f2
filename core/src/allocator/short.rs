//! What happens when memory that is held does not serve a request at once: the ladder from a longer look to a refusal.

use super::route::Route;
use super::{Allocator, Cell, InFlight};
use crate::canary::broken;
use crate::device::{Device, Shortage};
use crate::error::Error;
use crate::pool::{Fit, Pool, PoolKinds};
use crate::slice::{Request, Slice};
use crate::slicer::Scan;
use crate::sync::{Guard, Ordering};

/// Calls of [`Device::out_of_memory`] for one request.
const MAX_PLEAS: u32 = 8;

impl Error {
    /// When several pools refuse, the error that is reported: the lowest.
    fn rank(&self) -> u32 {
        match self {
            Error::OutOfHostMemory { .. } | Error::TooManySlices { .. } | Error::Busy { .. } => 0,
            Error::OutOfDeviceMemory { .. } | Error::DeviceFailed { .. } => 1,
            Error::BudgetExceeded { .. } | Error::HeapBudgetExceeded { .. } => 2,
            Error::PageCountExceeded { .. } => 3,
            Error::PoolCapacityExceeded { .. } => 4,
            Error::TooLarge { .. } => 6,
            // Of another pool's kind: any other has more to say.
            Error::NotSupported { .. } => 7,
            _ => 5,
        }
    }

    /// Whether freeing or evicting something may help.
    fn is_shortage(&self) -> bool {
        matches!(
            self,
            Error::OutOfDeviceMemory { .. }
                | Error::BudgetExceeded { .. }
                | Error::HeapBudgetExceeded { .. }
                | Error::PageCountExceeded { .. }
                | Error::PoolCapacityExceeded { .. }
        )
    }

    /// How many bytes have to go back to the device before it makes sense to ask for a page again; `None` if that would not
    /// help.
    pub(super) fn bytes_to_give_back(&self) -> Option<u64> {
        match *self {
            Error::OutOfDeviceMemory { size, .. } => Some(size.max(1)),
            Error::BudgetExceeded { size, limit, reserved }
            | Error::HeapBudgetExceeded { size, limit, reserved, .. }
                if size <= limit =>
            {
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
    let replaces = match (&worst, error) {
        // Of several limits the most generous one is of use to the caller.
        (Some(Error::TooLarge { limit: known, .. }), Error::TooLarge { limit, .. }) => limit > *known,
        (Some(known), error) => error.rank() < known.rank(),
        (None, _) => true,
    };
    if replaces {
        *worst = Some(error);
    }
}

/// What comes of serving a request besides a slice.
#[derive(Default)]
pub(super) struct Served<'a> {
    /// Whether a page was taken for it.
    pub(super) fresh: bool,
    /// Is told why a memory type did not serve it.
    pub(super) tell: Option<&'a mut dyn FnMut(u32, Error)>,
}

/// Bytes that have to go back to the device before it makes sense to ask for a page again.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) bytes: u64,
    /// Where from; `None`: from anywhere.
    pub(super) heap: Option<u32>,
}

impl Wanted {
    /// What `error`, about a page from `heap`, makes necessary.
    pub(super) fn after(error: &Error, heap: u32) -> Option<Self> {
        let bytes = error.bytes_to_give_back()?;
        let anywhere = matches!(error, Error::BudgetExceeded { .. } | Error::PageCountExceeded { .. });
        Some(Self { bytes, heap: if anywhere { None } else { Some(heap) } })
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
    wanted: Option<Wanted>,
}

impl Refusal {
    #[cold]
    fn note(&mut self, error: Error, heap: u32) {
        self.shortage |= error.is_shortage();
        if let Some(wanted) = Wanted::after(&error, heap) {
            if self.wanted.is_none_or(|least| wanted.bytes < least.bytes) {
                self.wanted = Some(wanted);
            }
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
    /// Serves a request that is not like most, but for what is done with the slice's memory.
    #[inline(never)]
    pub(super) fn serve(&self, request: &Request, served: &mut Served<'_>) -> Result<Slice, Error> {
        let slice = match self.place_at_once(request)? {
            Some(slice) => slice,
            None => self.allocate_slowly(request, served)?,
        };
        if !request.never_grows() {
            self.note_allocation();
        }
        Ok(slice)
    }

    /// Places a request in memory that is held of the memory type which suits it best, in constant time.
    #[inline]
    fn place_at_once(&self, request: &Request) -> Result<Option<Slice>, Error> {
        let Some(memory_type) = self.candidates(request)?.next() else { return Ok(None) };
        if Self::own_pages_for(request).is_some() || request.search_depth().is_some() {
            return Ok(None);
        }
        for cell in self.listed_route(memory_type, request)?.iter() {
            let Ok(fit) = cell.rules.fit(request) else { continue };
            let mut pool = cell.pool.lock();
            if !pool.slicer.has_nodes() {
                break;
            }
            if let Some(slice) = pool.place_elsewhere(&fit) {
                return Ok(Some(slice));
            }
        }
        Ok(None)
    }

    /// [`Allocator::allocate`] when no pool serves the request at once.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_slowly(&self, request: &Request, served: &mut Served<'_>) -> Result<Slice, Error> {
        let mut attempt = 0;
        loop {
            let mut all = Refusal::default();
            let mut first = None;
            for memory_type in self.candidates(request)? {
                first.get_or_insert(memory_type);
                let refusal = match self.climb(memory_type, request, served) {
                    Ok(slice) => return Ok(slice),
                    Err(refusal) => refusal,
                };
                // There is at least one pool, or none of this type.
                let error = refusal.worst.unwrap_or(Error::NotSupported { what: c"memory_types" });
                all.note(error, 0);
                all.shortage |= refusal.shortage;
                if let Some(tell) = &mut served.tell {
                    tell(memory_type, error);
                }
            }
            let error = all.worst.unwrap_or(Error::NotSupported { what: c"memory_types" });
            let pleads = all.shortage && !request.never_grows();
            if !pleads || !self.plead(request, error, attempt) {
                if all.shortage {
                    self.tell_shortage(first.unwrap_or(0), request.size, error);
                }
                return Err(error);
            }
            attempt += 1;
        }
    }

    /// One way up the ladder, with the pools of one memory type.
    #[cold]
    fn climb(&self, memory_type: u32, request: &Request, served: &mut Served<'_>) -> Result<Slice, Refusal> {
        let mut refusal = Refusal::default();
        let route = match self.route(memory_type, request) {
            Ok(route) => route,
            Err(error) => {
                refusal.note(error, 0);
                return Err(refusal);
            }
        };
        if request.never_grows() && !broken("never_grow_grows") {
            // What some pool serves in constant time comes before what another serves in need; the first look may have failed
            // for want of nodes only.
            let found = match request.search_depth() {
                None => self.search(route, request, Search::Brief, &mut refusal),
                Some(_) => None,
            };
            return match found.or_else(|| self.search(route, request, Search::Whole, &mut refusal)) {
                Some(slice) => Ok(slice),
                None => {
                    route.iter().for_each(|cell| match cell.rules.fit(request) {
                        Ok(fit) => refusal.note(cell.pool.lock().held_error(&fit), 0),
                        Err(error) => refusal.note(error, 0),
                    });
                    Err(refusal)
                }
            };
        }
        // Memory that is held first, in any pool; the first look may have failed for want of nodes only.
        if let Some(slice) = self.search(route, request, Search::Brief, &mut refusal) {
            return Ok(slice);
        }
        if route.iter().any(|cell| cell.rules.fit(request).is_ok()) && self.ask_what_is_completed() {
            if let Some(slice) = self.search(route, request, Search::Brief, &mut refusal) {
                return Ok(slice);
            }
        }
        if let Some(slice) = self.grow_any(route, request, served, &mut refusal) {
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
            if let Some(slice) = self.grow_any(route, request, served, &mut refusal) {
                return Ok(slice);
            }
        }
    }

    /// Looks for room in every pool that takes the request.
    #[cold]
    fn search(&self, route: Route<'_>, request: &Request, search: Search, refusal: &mut Refusal) -> Option<Slice> {
        for cell in route.iter() {
            let Ok(fit) = cell.rules.fit(request) else { continue };
            let found = match (search, request.search_depth()) {
                (_, Some(depth)) => self.search_so_deep(cell, &fit, depth),
                (Search::Brief, None) => self.search_briefly(cell, &fit),
                (Search::Whole, None) => self.search_everything(cell, &fit),
            };
            match found {
                Ok(Some(slice)) => return Some(slice),
                Ok(None) => {}
                Err(error) => refusal.note(error, cell.rules.heap),
            }
        }
        for cell in route.iter().filter(|cell| cell.rules.kinds != PoolKinds::Both) {
            let Ok(fit) = cell.rules.fit(request) else { continue };
            match self.place_in_other_kind(cell, &fit) {
                Ok(Some(slice)) => return Some(slice),
                Ok(None) => {}
                Err(error) => refusal.note(error, cell.rules.heap),
            }
        }
        None
    }

    /// Grows the first pool that takes the request and can grow.
    #[cold]
    fn grow_any(
        &self,
        route: Route<'_>,
        request: &Request,
        served: &mut Served<'_>,
        refusal: &mut Refusal,
    ) -> Option<Slice> {
        for cell in route.iter() {
            match self.grow(cell, request, served) {
                Ok(slice) => return Some(slice),
                Err(error) => refusal.note(error, cell.rules.heap),
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
        Ok(Self::look(&mut pool, fit, None))
    }

    /// Looks at what can be found in constant time, and unless the request says how deep to look, a step further.
    pub(super) fn look(pool: &mut Guard<'_, Pool>, fit: &Fit, depth: Option<u32>) -> Option<Slice> {
        if let Some(slice) = pool.place_elsewhere(fit) {
            return Some(slice);
        }
        if !pool.cuts() || depth.is_some() {
            // Of pages with one slice any free one would do, but a closer one may be had.
            return None;
        }
        let scan = pool.begin_scan(fit);
        pool.scan(fit, scan).ok().flatten()
    }

    /// Looks at so many holes of the request's own class, then in constant time.
    #[cold]
    fn search_so_deep(&self, cell: &Cell, fit: &Fit, depth: u32) -> Result<Option<Slice>, Error> {
        if cell.rules.cuts() && depth != 0 {
            let scan = self.lock_with_nodes(cell)?.begin_scan_of_class(fit, depth);
            if let Some(slice) = self.go_on_searching(cell, fit, scan, false)? {
                return Ok(Some(slice));
            }
        }
        Ok(self.lock_with_nodes(cell)?.place_elsewhere(fit))
    }

    /// Looks at every hole that could hold the request, a few at a time per lock hold.
    #[cold]
    fn search_everything(&self, cell: &Cell, fit: &Fit) -> Result<Option<Slice>, Error> {
        let scan = self.lock_with_nodes(cell)?.begin_scan(fit);
        self.go_on_searching(cell, fit, scan, true)
    }

    #[cold]
    fn go_on_searching(&self, cell: &Cell, fit: &Fit, mut scan: Scan, places: bool) -> Result<Option<Slice>, Error> {
        loop {
            let mut pool = self.lock_with_nodes(cell)?;
            if let Some(slice) = if places { pool.place_elsewhere(fit) } else { None } {
                return Ok(Some(slice));
            }
            match pool.scan(fit, scan) {
                Ok(slice) => return Ok(slice),
                Err(more) => scan = more,
            }
        }
    }
}
