//! Pages that come without a request: taken beforehand, handed over by the program, or from another pool.

use super::grow::Refused;
use super::{Allocator, Cell, InFlight};
use crate::device::{Device, DeviceMemory};
use crate::error::Error;
use crate::event::EventKind;
use crate::parts::need_complete;
use crate::pool::Fit;
use crate::slice::Slice;

impl<D: Device> Allocator<D> {
    /// Takes pages from the device that hold nothing yet, until a pool of sliced pages holds at least `pages`; each has the
    /// size that the next one would have for a small request.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such pool, or its pages are not sliced; otherwise as
    /// [`Allocator::allocate`]. Pages that were taken stay.
    #[cold]
    pub fn prefill(&self, pool: u32, pages: u32) -> Result<(), Error> {
        need_complete(c"prefill")?;
        let cell = self.named_pool(pool)?;
        let refused = Error::InvalidArgument { field: c"pool", value: u64::from(pool) };
        let fit = cell.rules.smallest_page().ok_or(refused)?;
        while cell.pool.lock().pages.count() < pages {
            self.grow_idle(cell, &fit)?;
        }
        Ok(())
    }

    /// Takes the pages that pools have from the start ([`PoolOptions::min_pages`](crate::PoolOptions::min_pages)), as far as
    /// they are lacking: the last part of [`Allocator::install_pools`], for owners of a shared allocator.
    ///
    /// # Errors
    /// As [`Allocator::prefill`].
    #[cold]
    pub fn prefill_all(&self) -> Result<(), Error> {
        let mut prefilled = self.pools.iter().filter(|cell| cell.rules.min_pages != 0);
        prefilled.try_for_each(|cell| self.prefill(cell.index, cell.rules.min_pages))
    }

    /// Makes memory that the program owns a page of a pool, as if the device had just given it out: slices are cut from it,
    /// and it goes back to [`Device::deallocate`] like any other, whose [`DeviceMemory::context`] can tell it apart.
    /// `memory.size` counts: of pools whose pages are equal it must be theirs, of exclusive pages one that the pool
    /// takes itself, otherwise a multiple of the granule.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a pool that does not exist, a size that the pool cannot use, or a handle that
    /// stands for none; [`Error::DeviceFailed`] with a [`DeviceFault`](crate::DeviceFault) of `Misaligned`, `OutOfRange` or
    /// `Duplicate`; [`Error::PoolCapacityExceeded`], [`Error::BudgetExceeded`], [`Error::HeapBudgetExceeded`],
    /// [`Error::PageCountExceeded`]; [`Error::OutOfHostMemory`]; [`Error::Busy`] while the allocator is being closed;
    /// [`Error::NotSupported`] in a dry run. The memory is still the program's then.
    #[cold]
    pub fn adopt(&self, pool: u32, memory: &DeviceMemory) -> Result<(), Error> {
        need_complete(c"adopt")?;
        let cell = self.named_pool(pool)?;
        if !memory.is_mapped() {
            return Err(Error::InvalidArgument { field: c"handle", value: memory.handle });
        }
        if self.options.dry_run {
            return Err(Error::NotSupported { what: c"adopt" });
        }
        let fault = memory.fault(&cell.rules).map(|fault| Error::DeviceFailed { fault, code: 0 });
        let _in_flight = InFlight::new(&self.in_flight);
        let mut pool = self.lock_with_metadata(cell)?;
        self.check_open()?;
        pool.begin_adoption(memory.size)?;
        drop(pool);
        let cancel = |error| {
            cell.pool.lock().cancel_growth(memory.size);
            Err(error)
        };
        // After its size, which may be what is wrong with its end.
        if let Some(error) = fault {
            return cancel(error);
        }
        if let Err(error) = self.charge(cell, memory.size) {
            return cancel(error);
        }
        if let Err(error) = self.enter(memory) {
            self.discharge(cell, memory.size);
            return cancel(error);
        }
        self.note_block(cell, true);
        self.ledger.lock().note(cell.rules.origin(), |held| held.take(memory.size));
        let mut pool = cell.pool.lock();
        pool.add_idle_page(*memory, &self.clock);
        let event = self.page_event(EventKind::PageAdopted, cell, memory);
        drop(pool);
        self.tell(event);
        Ok(())
    }

    /// Takes a page from the device that holds nothing.
    #[cold]
    fn grow_idle(&self, cell: &Cell, fit: &Fit) -> Result<(), Error> {
        let _in_flight = InFlight::new(&self.in_flight);
        let room = self.room(cell);
        let mut pool = self.lock_with_metadata(cell)?;
        self.check_open()?;
        let blocks = self.blocks_of(cell);
        let bytes = pool.begin_growth(fit, room, blocks, self.returned_pages())?;
        self.note_block(cell, true);
        drop(pool);
        let taken = self.take_reserved(cell, bytes, core::ptr::null_mut());
        match taken {
            Ok(memory) => {
                let mut pool = cell.pool.lock();
                pool.add_idle_page(memory, &self.clock);
                let event = self.page_event(EventKind::PageAllocated, cell, &memory);
                drop(pool);
                self.tell(event);
                Ok(())
            }
            Err(Refused { error, page }) => {
                let mut pool = cell.pool.lock();
                if let Error::OutOfDeviceMemory { code, .. } = error {
                    pool.note_refusal(fit, bytes, code);
                }
                self.end_refused_growth(cell, pool, bytes, page);
                Err(error)
            }
        }
    }

    /// Whether [`Allocator::place_in_other_kind`] would find a page.
    #[cold]
    pub(super) fn fits_in_other_kind(&self, cell: &Cell, fit: &Fit) -> bool {
        self.pools.iter().filter(|other| cell.rules.shares_pages_with(&other.rules)).any(|other| {
            let found = other.pool.lock().idle_page_for(fit);
            found.is_some_and(|(_, bytes)| cell.pool.lock().can_adopt(bytes))
        })
    }

    /// Places a request in a page that holds nothing and that a pool for the other kind of resources has no use for.
    #[cold]
    pub(super) fn place_in_other_kind(&self, cell: &Cell, fit: &Fit) -> Result<Option<Slice>, Error> {
        for other in self.pools.iter().filter(|other| cell.rules.shares_pages_with(&other.rules)) {
            let Some((_, bytes)) = other.pool.lock().idle_page_for(fit) else { continue };
            if self.lock_with_metadata(cell)?.begin_adoption(bytes).is_err() {
                // The cap: a page of the device would be refused for the same reason.
                continue;
            }
            let mut theirs = other.pool.lock();
            let found =
                theirs.idle_page_for(fit).filter(|&(page, size)| size == bytes && !theirs.pages.is_mapping(page));
            let Some((page, _)) = found else {
                drop(theirs);
                cell.pool.lock().cancel_growth(bytes);
                continue;
            };
            // The device is not called: a page that is mapped stays so.
            let mapping = theirs.pages.take_mapping(page);
            let memory = theirs.begin_return(page);
            drop(theirs);
            let mut ours = cell.pool.lock();
            let slice = ours.add_moved_page(memory, mapping, fit);
            let event = self.page_event(EventKind::PageMoved, cell, &memory);
            drop(ours);
            other.pool.lock().moved_away(page);
            self.tell(event);
            return Ok(Some(slice));
        }
        Ok(None)
    }
}
