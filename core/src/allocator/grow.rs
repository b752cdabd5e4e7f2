//! Taking a page from the device.

use super::{Allocator, Cell, InFlight};
use crate::device::{Device, DeviceError, DeviceMemory, PageRequest};
use crate::error::{DeviceFault, Error};
use crate::ledger::Ledger;
use crate::pool::{Fit, Pool};
use crate::slice::Slice;
use crate::sync::{Guard, Ordering};

/// Tries to reserve a smaller page when others use up what there was room for.
const RESERVE_TRIES: u32 = 8;

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::OutOfMemory(code) => Error::OutOfDeviceMemory { size: 0, code },
            DeviceError::Failed(code) => Error::DeviceFailed { fault: DeviceFault::Reported, code },
            DeviceError::UnknownResult(code) => Error::DeviceFailed { fault: DeviceFault::UnknownResult, code },
        }
    }
}

impl<D: Device> Allocator<D> {
    /// Takes a page from the device and places the request in it; `fresh`: whether that was done. Otherwise memory that is
    /// held has turned out to serve it.
    ///
    /// Reserve, call, commit: everything that could fail is set aside first, the device is called with no lock held,
    /// and the page is installed and carved in one critical section, so that nobody else takes what it was got for.
    #[cold]
    pub(super) fn grow(&self, cell: &Cell, fit: &Fit, fresh: &mut bool) -> Result<Slice, Error> {
        let _in_flight = InFlight::new(&self.in_flight);
        let mut tries = 0;
        loop {
            let bytes = match self.begin_growth(cell, fit)? {
                Begun::Placed(slice) => return Ok(slice),
                Begun::Page(bytes) => bytes,
            };
            if let Err(error) = self.reserve(bytes) {
                cell.pool.lock().cancel_growth(bytes);
                tries += 1;
                // There was room just now, where a smaller page would do.
                if cell.rules.bytes(fit.size) < bytes && cell.rules.grows() && tries < RESERVE_TRIES {
                    continue;
                }
                return Err(error);
            }
            let memory =
                if self.options.dry_run { Ok(DeviceMemory::unmapped(bytes)) } else { self.take_page(cell, bytes) };
            let Refused { error, page } = match memory {
                Ok(memory) => {
                    *fresh = true;
                    self.ledger.lock().held().take(bytes);
                    return Ok(cell.pool.lock().commit_growth(memory, fit));
                }
                Err(refused) => refused,
            };
            let mut pool = cell.pool.lock();
            let smaller = match error {
                Error::OutOfDeviceMemory { code, .. } => pool.note_refusal(fit, bytes, code),
                _ => false,
            };
            match page {
                Page::None => pool.cancel_growth(bytes),
                Page::Returned => pool.cancel_returned_growth(bytes),
                Page::Kept(memory) => pool.keep_refused_growth(memory),
            }
            drop(pool);
            if let Page::Kept(_) = page {
                self.ledger.lock().held().take_useless(bytes);
            } else {
                self.release(bytes);
            }
            if !smaller {
                return Err(error);
            }
        }
    }

    /// Sets everything aside for a page, unless memory that is held serves the request after all.
    #[cold]
    fn begin_growth(&self, cell: &Cell, fit: &Fit) -> Result<Begun, Error> {
        let (mut waited, mut given_back) = (0, 0);
        // The turn to give pages back that are in the way, and how many at most: callbacks may make others idle for ever.
        let mut clearing = None;
        loop {
            let room = self.room();
            let mut pool = self.lock_with_metadata(cell)?;
            if let Some(slice) = Self::look(&mut pool, fit) {
                return Ok(Begun::Placed(slice));
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
                return Err(Error::Busy { live: 0, pending: 0, in_use: 0, in_flight: 1 });
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
            return pool.begin_growth(fit, room, self.returns.load(Ordering::Relaxed)).map(Begun::Page);
        }
    }

    // ---- limits: reserved before the device is called, returned after it has taken a page back

    /// Bytes that the next page may have.
    fn room(&self) -> u64 {
        if self.options.dry_run {
            return u64::MAX;
        }
        let own = self.ledger.lock().account().room();
        match &self.options.budget {
            Some(budget) => own.min(budget.room()),
            None => own,
        }
    }

    /// Reserves a page under the allocator's own limits and those it shares. In a dry run that is left to
    /// [`Allocator::resolve`].
    #[cold]
    fn reserve(&self, bytes: u64) -> Result<(), Error> {
        if self.options.dry_run { Ok(()) } else { self.charge(bytes) }
    }

    /// Reserves a page under all limits.
    #[cold]
    pub(super) fn charge(&self, bytes: u64) -> Result<(), Error> {
        let own = self.ledger.lock().account().reserve(bytes);
        if let (Err(error), Some(budget)) = (own, &self.options.budget) {
            // Bytes come before pages, whichever of the two limits them.
            return match (error, budget.refusal(bytes)) {
                (Error::PageCountExceeded { .. }, Some(first @ Error::BudgetExceeded { .. })) => Err(first),
                _ => Err(error),
            };
        }
        own?;
        let shared = self.options.budget.as_ref().map_or(Ok(()), |budget| budget.reserve(bytes));
        if shared.is_err() {
            self.ledger.lock().account().release(bytes);
        }
        shared
    }

    /// Returns what was reserved for a page by [`Allocator::charge`].
    #[cold]
    pub(super) fn discharge(&self, bytes: u64) {
        self.ledger.lock().account().release(bytes);
        if let Some(budget) = &self.options.budget {
            budget.release(bytes);
        }
    }

    /// Returns what was reserved for a growth.
    fn release(&self, bytes: u64) {
        if !self.options.dry_run {
            self.discharge(bytes);
        }
    }

    /// Locks a pool that has the host memory for a growth.
    #[cold]
    pub(super) fn lock_with_metadata<'a>(&self, cell: &'a Cell) -> Result<Guard<'a, Pool>, Error> {
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
    pub(super) fn take_page(&self, cell: &Cell, bytes: u64) -> Result<DeviceMemory, Refused> {
        let nothing = |error| Refused { error, page: Page::None };
        self.promise_ledger_entry().map_err(nothing)?;
        let request = PageRequest { size: bytes, alignment: cell.rules.page_alignment, pool: cell.index };
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

/// How a growth begins.
enum Begun {
    /// It is not needed: the request has been placed.
    Placed(Slice),
    /// With a page of so many bytes.
    Page(u64),
}

/// A page that came to nothing, and what became of it.
pub(super) struct Refused {
    pub(super) error: Error,
    pub(super) page: Page,
}

pub(super) enum Page {
    /// The device gave none.
    None,
    /// It was no good and has been given back.
    Returned,
    /// It was no good and the device refused to take it back.
    Kept(DeviceMemory),
}
