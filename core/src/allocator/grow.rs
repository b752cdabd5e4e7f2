//! What happens when memory that is held does not serve a request at once: growing, and the search through every hole.

use super::{Allocator, Cell, InFlight};
use crate::device::{Device, DeviceError, DeviceMemory, PageRequest};
use crate::error::{DeviceFault, Error};
use crate::ledger::Ledger;
use crate::pool::{Fit, Pool};
use crate::slice::{Request, Slice};
use crate::sync::{Guard, Ordering};

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::OutOfMemory(code) => Error::OutOfDeviceMemory { size: 0, code },
            DeviceError::Failed(code) => Error::DeviceFailed { fault: DeviceFault::Reported, code },
            DeviceError::UnknownResult(code) => Error::DeviceFailed { fault: DeviceFault::UnknownResult, code },
        }
    }
}

impl Error {
    /// When several pools refuse, the error that is reported: the lowest.
    fn rank(&self) -> u32 {
        match self {
            Error::OutOfHostMemory { .. } | Error::TooManySlices { .. } | Error::Busy { .. } => 0,
            Error::OutOfDeviceMemory { .. } | Error::DeviceFailed { .. } => 1,
            Error::PoolCapacityExceeded { .. } => 2,
            Error::TooLarge { .. } => 4,
            _ => 3,
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

impl<D: Device> Allocator<D> {
    /// [`Allocator::allocate`] when no pool serves the request at once.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_slowly(&self, request: &Request) -> Result<Slice, Error> {
        // Memory that is held first, in any pool; the first look may have failed for want of nodes only.
        let mut worst = None;
        let route = self.route(request)?;
        for index in route.clone() {
            let cell = &self.pools[index];
            let Ok(fit) = cell.rules.fit(request) else { continue };
            match self.search_briefly(cell, &fit) {
                Ok(Some(slice)) => return Ok(slice),
                Ok(None) => {}
                Err(error) => note(&mut worst, error),
            }
        }
        for index in route.clone() {
            let cell = &self.pools[index];
            let grown = cell.rules.fit(request).and_then(|fit| self.grow(index, cell, &fit));
            match grown {
                Ok(slice) => return Ok(slice),
                Err(error) => note(&mut worst, error),
            }
        }
        for index in route {
            let cell = &self.pools[index];
            let Ok(fit) = cell.rules.fit(request) else { continue };
            match self.search_everything(cell, &fit) {
                Ok(Some(slice)) => return Ok(slice),
                Ok(None) => {}
                Err(error) => note(&mut worst, error),
            }
        }
        // There is at least one pool, and each has said something.
        Err(worst.unwrap_or(Error::TooLarge { size: request.size, limit: 0 }))
    }

    /// The search in constant time, then one step through the holes of the request's own class.
    #[cold]
    fn search_briefly(&self, cell: &Cell, fit: &Fit) -> Result<Option<Slice>, Error> {
        let mut pool = self.lock_with_nodes(cell)?;
        Ok(Self::look(&mut pool, fit))
    }

    fn look(pool: &mut Guard<'_, Pool>, fit: &Fit) -> Option<Slice> {
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

    /// Takes a page from the device and places the request in it.
    ///
    /// Reserve, call, commit: everything that could fail is set aside first, the device is called with no lock held,
    /// and the page is installed and carved in one critical section, so that nobody else takes what it was got for.
    #[cold]
    fn grow(&self, index: u32, cell: &Cell, fit: &Fit) -> Result<Slice, Error> {
        let _in_flight = InFlight::new(&self.in_flight);
        let (mut waited, mut given_back) = (0, 0);
        // The turn to give pages back that are in the way, and how many at most: callbacks may make others idle for ever.
        let mut clearing = None;
        let bytes = loop {
            let mut pool = self.lock_with_metadata(cell)?;
            if let Some(slice) = Self::look(&mut pool, fit) {
                return Ok(slice);
            }
            // A page that another call is just getting will most likely have room. But that call may be waiting for
            // this one, if a callback allocates: so not for ever.
            let lock = cell.pool.kind();
            let worthwhile = pool.growing() != 0 && cell.rules.shares_page(fit);
            if worthwhile && waited < self.options.growth_wait_steps && lock.is_shared() {
                drop(pool);
                lock.wait(waited);
                waited += 1;
                continue;
            }
            if self.closing.load(Ordering::Acquire) != 0 {
                return Err(Error::Busy { live: 0, in_use: 0, in_flight: 1 });
            }
            if let Some(page) = pool.idle_before_growth(fit, given_back) {
                let idle = pool.pages.idle_count();
                if let Some((_, left)) = clearing.get_or_insert_with(|| cell.clearing.take().map(|turn| (turn, idle))) {
                    if *left != 0 {
                        *left -= 1;
                        given_back += pool.pages[page].memory.size;
                        // One that is refused counts as stuck, and no longer as in the way.
                        self.give_back(cell, pool, page, &mut None);
                        continue;
                    }
                }
            }
            break pool.begin_growth(fit)?;
        };
        drop(clearing);
        match self.take_page(index, cell, bytes) {
            Ok(memory) => {
                self.ledger.lock().held().take(bytes);
                Ok(cell.pool.lock().commit_growth(memory, fit))
            }
            Err(Refused { error, page }) => {
                let mut pool = cell.pool.lock();
                match page {
                    Page::None => pool.cancel_growth(bytes),
                    Page::Returned => pool.cancel_returned_growth(bytes),
                    Page::Kept(memory) => {
                        pool.keep_refused_growth(memory);
                        drop(pool);
                        self.ledger.lock().held().take_useless(bytes);
                    }
                }
                Err(error)
            }
        }
    }

    /// Locks a pool that has the host memory for a growth.
    #[cold]
    fn lock_with_metadata<'a>(&self, cell: &'a Cell) -> Result<Guard<'a, Pool>, Error> {
        loop {
            let pool = self.lock_with_nodes(cell)?;
            let Some(lacking) = pool.lacks()? else { return Ok(pool) };
            drop(pool);
            let chunk = lacking.allocate(self.options.memory)?;
            let late = cell.pool.lock().install(chunk);
            drop(late);
        }
    }

    /// Calls the device for a page and checks what it answers.
    #[cold]
    fn take_page(&self, index: u32, cell: &Cell, bytes: u64) -> Result<DeviceMemory, Refused> {
        let nothing = |error| Refused { error, page: Page::None };
        self.promise_ledger_entry().map_err(nothing)?;
        let request = PageRequest { size: bytes, alignment: cell.rules.page_alignment, pool: index };
        let answer = self.device.allocate(&request).map_err(|error| match error.into() {
            Error::OutOfDeviceMemory { code, .. } => Error::OutOfDeviceMemory { size: request.size, code },
            other => other,
        });
        let memory = match answer {
            Ok(memory) if memory.handle != u64::MAX => DeviceMemory { size: request.size, ..memory },
            refused => {
                self.ledger.lock().release_promise();
                let not_filled = Error::DeviceFailed { fault: DeviceFault::NotFilled, code: 0 };
                return Err(nothing(refused.err().unwrap_or(not_filled)));
            }
        };
        let (entered, emptied) = self.ledger.lock().enter(&memory);
        drop(emptied);
        if !entered {
            // Giving it back would free the page that is live.
            return Err(nothing(Error::DeviceFailed { fault: DeviceFault::Duplicate, code: 0 }));
        }
        if !memory.is_aligned(request.alignment) {
            let error = Error::DeviceFailed { fault: DeviceFault::Misaligned, code: 0 };
            let page = if self.hand_back(&memory).is_ok() { Page::Returned } else { Page::Kept(memory) };
            return Err(Refused { error, page });
        }
        Ok(memory)
    }

    #[cold]
    fn promise_ledger_entry(&self) -> Result<(), Error> {
        loop {
            let Err(capacity) = self.ledger.lock().promise() else { return Ok(()) };
            let table = Ledger::make_table(self.options.memory, capacity)?;
            let unneeded = self.ledger.lock().install(table);
            drop(unneeded);
        }
    }
}

/// A growth that came to nothing, and what became of the page.
struct Refused {
    error: Error,
    page: Page,
}

enum Page {
    /// The device gave none.
    None,
    /// It was no good and has been given back.
    Returned,
    /// It was no good and the device refused to take it back.
    Kept(DeviceMemory),
}
