//! Taking a page from the device.

use super::short::Served;
use super::{Allocator, Cell, InFlight};
use crate::canary::broken;
use crate::device::{Device, DeviceError, DeviceMemory, Heap, HeapBudget, PageRequest};
use crate::error::{DeviceFault, Error};
use crate::event::EventKind;
use crate::ledger::{Ledger, NoRoom};
use crate::pool::{Fit, LEAST_HALF, Pool, PoolKinds};
use crate::slice::{Request, Slice};
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
    /// Takes a page from the device and places the request in it. Otherwise memory that is held has turned out to serve it.
    ///
    /// Reserve, call, commit: everything that could fail is set aside first, the device is called with no lock held,
    /// and the page is installed and carved in one critical section, so that nobody else takes what it was got for.
    #[cold]
    pub(super) fn grow(&self, cell: &Cell, request: &Request, served: &mut Served<'_>) -> Result<Slice, Error> {
        let fit = &cell.rules.fit(request)?;
        let _in_flight = InFlight::new(&self.in_flight);
        let budget = self.heap_budget(cell.rules.heap, request);
        let mut tries = 0;
        loop {
            let bytes = match self.begin_growth(cell, fit, request.search_depth(), budget.room())? {
                Begun::Placed(slice) => return Ok(slice),
                Begun::Page(bytes) => bytes,
            };
            let taken = match budget.check(cell.rules.heap, bytes) {
                Ok(()) => self.take_reserved(cell, bytes, request.device_data()),
                Err(error) => Err(Refused { error, page: Page::NotReserved }),
            };
            let Refused { error, page } = match taken {
                Ok(memory) => {
                    served.fresh = true;
                    let mut pool = cell.pool.lock();
                    let slice = pool.commit_growth(memory, fit);
                    let event = self.page_event(EventKind::PageAllocated, cell, &memory);
                    drop(pool);
                    self.tell(event);
                    return Ok(slice);
                }
                Err(refused) => refused,
            };
            let mut pool = cell.pool.lock();
            let mut again = match error {
                Error::OutOfDeviceMemory { code, .. } => pool.note_refusal(fit, bytes, code),
                _ => false,
            };
            if let Page::NotReserved = page {
                tries += 1;
                // There was room just now, where a smaller page would do.
                again = cell.rules.bytes(fit.size) < bytes && cell.rules.grows() && tries < RESERVE_TRIES;
            }
            self.end_refused_growth(cell, pool, bytes, page);
            if !again {
                return Err(error);
            }
        }
    }

    /// Reserves a page of `bytes` that a pool has set aside, and takes it from the device; or plans it, in a dry run.
    #[cold]
    pub(super) fn take_reserved(&self, cell: &Cell, bytes: u64, device_data: *mut u8) -> Result<DeviceMemory, Refused> {
        self.reserve(cell, bytes).map_err(|error| Refused { error, page: Page::NotReserved })?;
        let memory = if self.options.dry_run {
            DeviceMemory::unmapped(bytes)
        } else {
            self.take_page(cell, bytes, device_data)?
        };
        self.ledger.lock().note(cell.rules.origin(), |held| held.take(bytes));
        Ok(memory)
    }

    /// Gives up what was set aside and reserved for a page that came to nothing.
    #[cold]
    pub(super) fn end_refused_growth(&self, cell: &Cell, mut pool: Guard<'_, Pool>, bytes: u64, page: Page) {
        match page {
            Page::NotReserved | Page::None => pool.cancel_growth(bytes),
            Page::Returned => pool.cancel_returned_growth(bytes),
            Page::Kept(memory) => pool.keep_refused_growth(memory),
        }
        self.note_block(cell, false);
        let events = if let Page::Kept(memory) = &page { self.useless_page_events(cell, memory) } else { [None; 2] };
        drop(pool);
        match page {
            Page::NotReserved => {}
            Page::None | Page::Returned => self.release(cell, bytes),
            Page::Kept(_) => self.ledger.lock().note(cell.rules.origin(), |held| held.take_useless(bytes)),
        }
        // Last: who is told may look at the figures.
        events.into_iter().for_each(|event| self.tell(event));
    }

    /// Sets everything aside for a page of at most `most` bytes, if that is enough, unless memory that is held serves the
    /// request after all.
    #[cold]
    fn begin_growth(&self, cell: &Cell, fit: &Fit, depth: Option<u32>, most: u64) -> Result<Begun, Error> {
        let (mut waited, mut given_back) = (0, 0);
        // The turn to give pages back that are in the way, and how many at most: callbacks may make others idle for ever.
        let mut clearing = None;
        loop {
            let room = self.room(cell).min(most);
            let mut pool = self.lock_with_metadata(cell)?;
            if let Some(slice) = Self::look(&mut pool, fit, depth) {
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
            if cell.rules.kinds != PoolKinds::Both {
                drop(pool);
                if let Some(slice) = self.place_in_other_kind(cell, fit)? {
                    return Ok(Begun::Placed(slice));
                }
                pool = self.lock_with_metadata(cell)?;
            }
            self.check_open()?;
            let blocks = self.blocks_of(cell);
            if let Some(page) = pool.idle_before_growth(fit, given_back, blocks) {
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
            let bytes = pool.begin_growth(fit, room, blocks, self.returned_pages())?;
            self.note_block(cell, true);
            return Ok(Begun::Page(bytes));
        }
    }

    /// Refuses pages while the allocator is being closed. Under a pool's lock: then closing sees what is set aside there.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        if self.closing.load(Ordering::Acquire) != 0 {
            return Err(Error::Busy { live: 0, pending: 0, in_use: 0, in_flight: 1 });
        }
        Ok(())
    }

    /// Pages that have been given back, by count.
    pub(super) fn returned_pages(&self) -> u32 {
        self.returns.load(Ordering::Relaxed)
    }

    /// Pages of a pool's memory type that double with their number.
    pub(super) fn blocks_of(&self, cell: &Cell) -> u32 {
        self.types.get(cell.rules.memory_type).map_or(0, |one| one.blocks.load(Ordering::Relaxed))
    }

    /// There is a page more of those, or one less.
    pub(super) fn note_block(&self, cell: &Cell, more: bool) {
        if let (true, Some(one)) = (cell.rules.doubles(), self.types.get(cell.rules.memory_type)) {
            // Its pools add to it under different locks; nothing else is published by it.
            if more || broken("blocks_never_shrink") {
                one.blocks.fetch_add(1, Ordering::Relaxed);
            } else {
                one.blocks.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    // ---- limits: reserved before the device is called, returned after it has taken a page back

    /// What a request may take of a heap besides the limits.
    #[cold]
    fn heap_budget(&self, heap: u32, request: &Request) -> HeapRoom {
        let binds = request.is_within_budget() && !self.options.dry_run;
        if self.options.dry_run {
            return HeapRoom { budget: u64::MAX, usage: 0, binds };
        }
        let says = self.device.heap_budget(heap);
        if says.is_none() && !binds {
            return HeapRoom { budget: u64::MAX, usage: 0, binds };
        }
        let HeapBudget { usage, budget } = says.unwrap_or_else(|| {
            let Heap { size, limit, .. } = self.heaps[heap];
            let usage = self.ledger.lock().held_of_heap(heap).bytes;
            HeapBudget { usage, budget: limit.unwrap_or(size) }
        });
        HeapRoom { budget, usage, binds }
    }

    /// Bytes that the next page may have.
    pub(super) fn room(&self, cell: &Cell) -> u64 {
        if self.options.dry_run {
            return u64::MAX;
        }
        let own = self.ledger.lock().room(cell.rules.heap);
        match &self.options.budget {
            Some(budget) => own.min(budget.room()),
            None => own,
        }
    }

    /// Reserves a page under the allocator's own limits and those it shares. In a dry run that is left to
    /// [`Allocator::resolve`].
    #[cold]
    fn reserve(&self, cell: &Cell, bytes: u64) -> Result<(), Error> {
        if self.options.dry_run { Ok(()) } else { self.charge(cell, bytes) }
    }

    /// Reserves a page under all limits.
    #[cold]
    pub(super) fn charge(&self, cell: &Cell, bytes: u64) -> Result<(), Error> {
        let own = self.ledger.lock().reserve(cell.rules.heap, bytes);
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
            self.ledger.lock().release(cell.rules.heap, bytes);
        }
        shared
    }

    /// Returns what was reserved for a page by [`Allocator::charge`].
    #[cold]
    pub(super) fn discharge(&self, cell: &Cell, bytes: u64) {
        self.ledger.lock().release(cell.rules.heap, bytes);
        if let Some(budget) = &self.options.budget {
            budget.release(bytes);
        }
    }

    /// Returns what was reserved for a growth.
    fn release(&self, cell: &Cell, bytes: u64) {
        if !self.options.dry_run {
            self.discharge(cell, bytes);
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
    pub(super) fn take_page(&self, cell: &Cell, bytes: u64, device_data: *mut u8) -> Result<DeviceMemory, Refused> {
        let nothing = |error| Refused { error, page: Page::None };
        self.promise_ledger_entry().map_err(nothing)?;
        let request = PageRequest {
            size: bytes,
            alignment: cell.rules.page_alignment,
            pool: cell.index,
            memory_type: cell.rules.memory_type,
            dedicated: !cell.rules.cuts(),
            device_data,
        };
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
        // Giving it back would free the page that is live.
        self.enter_promised(&memory).map_err(nothing)?;
        if let Some(fault) = memory.fault(&cell.rules) {
            let error = Error::DeviceFailed { fault, code: 0 };
            let page = if self.hand_back(&memory).is_ok() { Page::Returned } else { Page::Kept(memory) };
            return Err(Refused { error, page });
        }
        Ok(memory)
    }

    /// Enters memory that is there already in the ledger.
    #[cold]
    pub(super) fn enter(&self, memory: &DeviceMemory) -> Result<(), Error> {
        self.promise_ledger_entry()?;
        self.enter_promised(memory)
    }

    fn enter_promised(&self, memory: &DeviceMemory) -> Result<(), Error> {
        let (entered, emptied) = self.ledger.lock().enter(memory);
        drop(emptied);
        if entered { Ok(()) } else { Err(Error::DeviceFailed { fault: DeviceFault::Duplicate, code: 0 }) }
    }

    #[cold]
    fn promise_ledger_entry(&self) -> Result<(), Error> {
        loop {
            // A statement of its own: the lock ends with it.
            let promised = self.ledger.lock().promise();
            let unneeded = match promised {
                Ok(()) => return Ok(()),
                Err(NoRoom::Moved(emptied)) => emptied,
                Err(NoRoom::NeedsTable(capacity)) => {
                    let table = Ledger::make_table(self.options.memory, capacity)?;
                    self.ledger.lock().install(table)
                }
            };
            drop(unneeded);
        }
    }
}

/// What a request may take of a heap, by what the device says of it.
#[derive(Clone, Copy)]
struct HeapRoom {
    budget: u64,
    usage: u64,
    /// Whether it is refused what is more; otherwise pages are made to fit if that is possible.
    binds: bool,
}

impl HeapRoom {
    fn left(self) -> u64 {
        self.budget.saturating_sub(self.usage)
    }

    /// Bytes that a page should not exceed. Where the budget may be passed, pages do not become tiny because of it.
    fn room(self) -> u64 {
        if self.binds { self.left() } else { self.left().max(LEAST_HALF) }
    }

    fn check(self, heap: u32, bytes: u64) -> Result<(), Error> {
        if self.binds && bytes > self.left() {
            return Err(Error::HeapBudgetExceeded { heap, size: bytes, limit: self.budget, reserved: self.usage });
        }
        Ok(())
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

#[derive(Clone, Copy)]
pub(super) enum Page {
    /// The device was not asked: limits do not allow for it.
    NotReserved,
    /// The device gave none.
    None,
    /// It was no good and has been given back.
    Returned,
    /// It was no good and the device refused to take it back.
    Kept(DeviceMemory),
}
