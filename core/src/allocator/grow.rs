//! What happens when memory that is held does not serve a request at once: growing, the search through every hole,
//! and giving pages back.

use super::{Allocator, Cell, InFlight};
use crate::device::{Device, DeviceError, DeviceMemory, PageRequest};
use crate::error::{DeviceFault, Error};
use crate::ledger::Ledger;
use crate::metadata::Chunk;
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
            Error::TooLarge { .. } => 3,
            _ => 4,
        }
    }
}

/// Keeps the error that is reported.
pub(super) fn note(worst: &mut Option<Error>, error: Error) {
    let replaces = match worst {
        // Of several limits the most generous one is of use to the caller.
        Some(Error::TooLarge { limit: known, .. }) => match error {
            Error::TooLarge { limit, .. } => limit > *known,
            _ => error.rank() < 3,
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
        for cell in self.pools.iter() {
            let Ok(fit) = cell.rules.fit(request) else { continue };
            match self.search_briefly(cell, &fit) {
                Ok(Some(slice)) => return Ok(slice),
                Ok(None) => {}
                Err(error) => note(&mut worst, error),
            }
        }
        for (index, cell) in self.pools.iter().enumerate() {
            let grown = cell.rules.fit(request).and_then(|fit| self.grow(index as u32, cell, &fit));
            match grown {
                Ok(slice) => return Ok(slice),
                Err(error) => note(&mut worst, error),
            }
        }
        for cell in self.pools.iter() {
            let Ok(fit) = cell.rules.fit(request) else { continue };
            if let Some(slice) = self.search_everything(cell, &fit)? {
                return Ok(slice);
            }
        }
        // There is at least one pool, and each has said something.
        Err(worst.unwrap_or(Error::TooLarge { size: request.size, limit: 0 }))
    }

    /// The search in constant time, then one step through the holes of the request's own class.
    fn search_briefly(&self, cell: &Cell, fit: &Fit) -> Result<Option<Slice>, Error> {
        let mut pool = self.lock_with_nodes(cell)?;
        Ok(Self::look(&mut pool, fit))
    }

    fn look(pool: &mut Guard<'_, Pool>, fit: &Fit) -> Option<Slice> {
        if let Some(slice) = pool.place_elsewhere(fit) {
            return Some(slice);
        }
        let scan = pool.begin_scan(fit);
        pool.scan(fit, scan).ok().flatten()
    }

    /// Looks at every hole that could hold the request, a few at a time per lock hold.
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
    fn grow(&self, index: u32, cell: &Cell, fit: &Fit) -> Result<Slice, Error> {
        let _in_flight = InFlight::new(&self.in_flight);
        let mut waited = 0;
        loop {
            let mut pool = self.lock_with_metadata(cell)?;
            if let Some(slice) = Self::look(&mut pool, fit) {
                return Ok(slice);
            }
            // A page that another call is just getting will most likely have room. But that call may be waiting for
            // this one, if a callback allocates: so not for ever.
            let lock = cell.pool.kind();
            if pool.growing() != 0 && waited < self.options.growth_wait_steps && lock.is_shared() {
                drop(pool);
                lock.wait(waited);
                waited += 1;
                continue;
            }
            if self.closing.load(Ordering::Acquire) != 0 {
                return Err(Error::Busy { live: 0, in_use: 0, in_flight: 1 });
            }
            pool.begin_growth(fit)?;
            break;
        }
        match self.take_page(index, cell) {
            Ok(memory) => Ok(cell.pool.lock().commit_growth(memory, fit)),
            Err(Refused { error, page }) => {
                let mut pool = cell.pool.lock();
                match page {
                    Page::None => pool.cancel_growth(),
                    Page::Returned => pool.cancel_returned_growth(),
                    Page::Kept(memory) => pool.keep_refused_growth(memory),
                }
                Err(error)
            }
        }
    }

    /// Locks a pool that has the host memory for a growth.
    fn lock_with_metadata<'a>(&self, cell: &'a Cell) -> Result<Guard<'a, Pool>, Error> {
        loop {
            let pool = self.lock_with_nodes(cell)?;
            if pool.has_metadata() {
                return Ok(pool);
            }
            let limit = crate::metadata::CHUNKED_LIMIT;
            let plan = pool.pages.plan().ok_or(Error::TooManySlices { limit })?;
            drop(pool);
            let chunk = Chunk::allocate(self.options.memory, plan)?;
            let late = cell.pool.lock().pages.install_chunk(chunk);
            drop(late);
        }
    }

    /// Calls the device for a page and checks what it answers.
    fn take_page(&self, index: u32, cell: &Cell) -> Result<DeviceMemory, Refused> {
        let nothing = |error| Refused { error, page: Page::None };
        self.promise_ledger_entry().map_err(nothing)?;
        let request = PageRequest { size: cell.rules.page_size(), alignment: cell.rules.page_alignment, pool: index };
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

    fn promise_ledger_entry(&self) -> Result<(), Error> {
        loop {
            let Err(capacity) = self.ledger.lock().promise() else { return Ok(()) };
            let table = Ledger::make_table(self.options.memory, capacity)?;
            let unneeded = self.ledger.lock().install(table);
            drop(unneeded);
        }
    }

    /// Gives memory back to the device.
    fn hand_back(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.ledger.lock().begin_leaving(memory);
        let answer = self.device.deallocate(memory);
        self.ledger.lock().end_leaving(memory, answer.is_ok());
        answer
    }

    /// Gives idle pages back to the device, those idle the longest first, as long as at least `min_keep_bytes` stay
    /// reserved, and asks again for pages that the device has refused to take back before.
    ///
    /// Work in proportion to what is given back, which in turn costs one device call a page.
    ///
    /// # Errors
    /// [`Error::DeviceFailed`] if the device refuses a page. The others have been given back; that one is kept,
    /// counted as stuck and tried again next time.
    pub fn trim(&self, min_keep_bytes: u64) -> Result<(), Error> {
        let _in_flight = InFlight::new(&self.in_flight);
        let mut refusal = None;
        for index in 0..self.pools.len() {
            let cell = &self.pools[index];
            let stuck = cell.pool.lock().pages.stuck_count();
            for _ in 0..stuck {
                let mut pool = cell.pool.lock();
                let Some(page) = pool.pages.retry_stuck() else { break };
                let memory = pool.pages[page].memory;
                drop(pool);
                self.finish_return(cell, page, &memory, &mut refusal);
            }
            // Only pages that are idle now: callbacks, and other threads, may make others idle for ever.
            let idle = cell.pool.lock().pages.idle_count();
            for _ in 0..idle {
                // Other pools' pages count towards what stays.
                let others = self.reserved_elsewhere(index);
                let mut pool = cell.pool.lock();
                let Some(page) = pool.idle_above(min_keep_bytes.saturating_sub(others)) else { break };
                let memory = pool.begin_return(page);
                drop(pool);
                self.finish_return(cell, page, &memory, &mut refusal);
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// Gives every idle page back to the device. The handles of live slices stay as they are.
    ///
    /// # Errors
    /// As [`Allocator::trim`].
    pub fn cleanup(&self) -> Result<(), Error> {
        self.trim(0)
    }

    fn reserved_elsewhere(&self, index: u32) -> u64 {
        let others = (0..self.pools.len()).filter(|&other| other != index);
        others.map(|other| self.pools[other].pool.lock().staying()).fold(0, u64::saturating_add)
    }

    /// Calls the device for a page that has begun to leave.
    fn finish_return(&self, cell: &Cell, page: u32, memory: &DeviceMemory, refusal: &mut Option<Error>) {
        let answer = self.hand_back(memory);
        let mut pool = cell.pool.lock();
        match answer {
            Ok(()) => pool.returned(page),
            Err(error) => {
                pool.refused(page);
                let code = match error {
                    DeviceError::OutOfMemory(code) | DeviceError::Failed(code) | DeviceError::UnknownResult(code) => {
                        code
                    }
                };
                *refusal = Some(Error::DeviceFailed { fault: DeviceFault::Refused, code });
            }
        }
    }

    /// Gives the page of a slot back if it is idle and was installed since `serial`.
    pub(super) fn return_if_newer(&self, cell: &Cell, page: u32, serial: u64) {
        let mut pool = cell.pool.lock();
        if !pool.pages.is_idle(page) || pool.pages[page].serial < serial {
            return;
        }
        let memory = pool.begin_return(page);
        drop(pool);
        self.finish_return(cell, page, &memory, &mut None);
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
