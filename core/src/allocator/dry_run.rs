//! Memory for what a dry run has placed.

use super::grow::{Page, Refused};
use super::short::Wanted;
use super::{Allocator, Cell, InFlight};
use crate::device::{Device, DeviceMemory};
use crate::error::Error;
use crate::event::EventKind;
use crate::slice::Slice;
use crate::slots::SliceId;
use crate::sync::Ordering;

impl<D: Device> Allocator<D> {
    /// Gets the memory of a slice of a dry run from the device, and the whole of its page with it; answers the slice as it
    /// is then. A slice that has its memory is answered as it is, in constant time.
    ///
    /// Of threads that resolve one page at the same time one gets its memory, the others give theirs back. The memory is as
    /// the device gives it, also where the request asked for zeros.
    ///
    /// # Errors
    /// [`Error::MappingFailed`] if the device has no memory for the page, even after pages that hold nothing were given
    /// back; [`Error::BudgetExceeded`], [`Error::PageCountExceeded`]; [`Error::DeviceFailed`]; [`Error::OutOfHostMemory`];
    /// [`Error::Busy`] while the allocator is being closed. As [`Allocator::free`] for the handle, also if the slice is
    /// freed meanwhile. Nothing has changed then.
    #[cold]
    pub fn resolve(&self, id: SliceId) -> Result<Slice, Error> {
        let cell = self.cell(id)?;
        let _in_flight = InFlight::new(&self.in_flight);
        let (mut left, mut waited) = (None, 0);
        loop {
            let slice = cell.pool.lock().get(id)?;
            if slice.memory != u64::MAX {
                return Ok(slice);
            }
            match self.resolve_once(cell, id) {
                Ok(()) => {}
                Err(error) => {
                    let slice = cell.pool.lock().get(id)?;
                    if slice.memory != u64::MAX {
                        // Another thread has got it meanwhile.
                        return Ok(slice);
                    }
                    // One that is just getting it may be what is in the way.
                    let lock = cell.pool.kind();
                    if waited < self.options.growth_wait_steps
                        && self.in_flight.load(Ordering::Acquire) > 1
                        && lock.is_shared()
                    {
                        lock.wait(waited);
                        waited += 1;
                        continue;
                    }
                    let wanted = Wanted::after(&error, cell.rules.heap);
                    if !wanted.is_some_and(|wanted| self.give_back_for(wanted, &mut left)) {
                        return Err(match error {
                            Error::OutOfDeviceMemory { size, code } => Error::MappingFailed { size, code },
                            other => other,
                        });
                    }
                }
            }
        }
    }

    /// Calls the device for the page of a slice; whether it has memory after that is seen by another look.
    #[cold]
    fn resolve_once(&self, cell: &Cell, id: SliceId) -> Result<(), Error> {
        // Memory that turns out to be of no use, and is not taken back, needs a record.
        let mut pool = self.lock_with_metadata(cell)?;
        let page = pool.slicer.node(pool.slicer.resolve_for_query(id)?).page.get();
        let size = pool.pages[page].memory.size;
        if self.closing.load(Ordering::Acquire) != 0 {
            return Err(Error::Busy { live: 0, pending: 0, in_use: 0, in_flight: 1 });
        }
        pool.pages.promise();
        drop(pool);
        let cancel = |error| {
            cell.pool.lock().pages.release_promise();
            Err(error)
        };
        if let Err(error) = self.charge(cell, size) {
            return cancel(error);
        }
        let memory = match self.take_page(cell, size, core::ptr::null_mut()) {
            Ok(memory) => memory,
            Err(Refused { error, page: Page::Kept(memory) }) => {
                self.keep_useless(cell, memory);
                return Err(error);
            }
            Err(Refused { error, page }) => {
                self.discharge(cell, size);
                if let Page::Returned = page {
                    cell.pool.lock().note_returned_memory();
                }
                return cancel(error);
            }
        };
        let mut pool = cell.pool.lock();
        let current = pool.slicer.resolve_for_query(id).map(|slot| pool.slicer.node(slot).page.get());
        match current {
            Ok(page) if !pool.pages[page].memory.is_mapped() => {
                pool.pages.release_promise();
                pool.set_memory(page, memory);
                let event = self.page_event(EventKind::PageAllocated, cell, &memory);
                if self.debugs {
                    // Under the lock, so that nobody looks for margins that are not there yet.
                    pool.live_slices_of_page(page).for_each(|slice| self.draw_margin(cell, &slice));
                }
                drop(pool);
                self.tell(event);
                Ok(())
            }
            other => {
                drop(pool);
                if self.hand_back(&memory).is_err() {
                    self.keep_useless(cell, memory);
                } else {
                    self.discharge(cell, size);
                    let mut pool = cell.pool.lock();
                    pool.pages.release_promise();
                    pool.note_returned_memory();
                }
                other.map(|_| ())
            }
        }
    }

    /// Keeps memory that is of no use and that the device does not take back, for which a record was promised.
    #[cold]
    fn keep_useless(&self, cell: &Cell, memory: DeviceMemory) {
        let mut pool = cell.pool.lock();
        pool.keep_refused_memory(memory);
        let events = self.useless_page_events(cell, &memory);
        drop(pool);
        self.ledger.lock().note(cell.rules.origin(), |held| held.take_useless(memory.size));
        events.into_iter().for_each(|event| self.tell(event));
    }
}
