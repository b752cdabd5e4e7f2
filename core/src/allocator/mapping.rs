//! Memory that the CPU sees for a time, and caches between the CPU and the device.

use super::{Allocator, Cell, InFlight};
use crate::device::{CacheRange, Device, DeviceError, DeviceMemory};
use crate::error::{DeviceFault, Error};
use crate::event::EventKind;
use crate::int::{align_down, align_up};
use crate::pool::Mapping;
use crate::slots::SliceId;
use core::ptr;

/// Back-off steps that a call waits for another which is mapping or unmapping the same page.
const MAPPING_WAIT_STEPS: u32 = 4096;

impl<D: Device> Allocator<D> {
    /// Makes a slice visible to the CPU: where it lies. Pages are mapped as a whole, counted, and mapped only once: each
    /// [`Allocator::map`] needs an [`Allocator::unmap`], and the last unmaps the page. Where the device maps its pages for
    /// good, this only counts. A slice that is freed without leaves its count to the page, which is unmapped when it goes
    /// back.
    ///
    /// Calls [`Device::map`] if the page is not mapped; another thread that maps or unmaps the same page is waited for, 4,096
    /// back-off steps of the lock at most: with one that sleeps between them, some tenths of a second.
    ///
    /// # Errors
    /// As [`Allocator::get`]; [`Error::NotSupported`] if the device cannot map; [`Error::DeviceFailed`] and
    /// [`Error::OutOfDeviceMemory`] as the device says; [`Error::Busy`] if that was not long enough, as from within the mapping of the same page;
    /// [`Error::MappingFailed`] for a slice of a dry run that has not been resolved. The count is as before then.
    #[cold]
    pub fn map(&self, id: SliceId) -> Result<*mut u8, Error> {
        let cell = self.cell(id)?;
        let mut waited = 0;
        let (page, memory, offset) = loop {
            let pool = cell.pool.lock();
            let slice = pool.get(id)?;
            let page = pool.slicer.node(id.slot()).page.get();
            let memory = pool.pages[page].memory;
            if !memory.is_mapped() {
                return Err(Error::MappingFailed { size: memory.size, code: 0 });
            }
            if memory.mapped.is_null() && !self.device.can_map() {
                return Err(Error::NotSupported { what: c"map" });
            }
            match pool.pages.begin_mapping(page) {
                Mapping::Shared(at) => return Ok(at.wrapping_add(slice.offset as usize)),
                Mapping::Begun => break (page, memory, slice.offset),
                Mapping::Busy => drop(pool),
            }
            self.wait_for_mapping(cell, &mut waited)?;
        };
        let _in_flight = InFlight::new(&self.in_flight);
        let mapped = match self.device.map(&memory) {
            Ok(at) if !at.is_null() => Ok(at),
            Ok(_) => Err(Error::DeviceFailed { fault: DeviceFault::NotFilled, code: 0 }),
            Err(DeviceError::OutOfMemory(code)) => Err(Error::OutOfDeviceMemory { size: memory.size, code }),
            Err(error) => Err(error.into()),
        };
        let pool = cell.pool.lock();
        // Freed by another thread meanwhile: nobody would unmap it.
        let mapped = mapped.map(|at| (at, pool.get(id).map(|_| at.wrapping_add(offset as usize))));
        if let Ok((at, Ok(place))) = mapped {
            pool.pages.end_mapping(page, at);
            return Ok(place);
        }
        drop(pool);
        if let Ok((at, _)) = mapped {
            self.device.unmap(&memory.seen_at(at));
        }
        self.end_mapping(cell, page, &memory);
        mapped.and_then(|(_, place)| place)
    }

    /// Ends what one [`Allocator::map`] of a slice of the same page began.
    ///
    /// # Errors
    /// As [`Allocator::get`]; [`Error::InvalidArgument`] with the field `map_count` if the page is not mapped;
    /// [`Error::Busy`] as [`Allocator::map`].
    #[cold]
    pub fn unmap(&self, id: SliceId) -> Result<(), Error> {
        let cell = self.cell(id)?;
        let mut waited = 0;
        loop {
            let pool = cell.pool.lock();
            pool.get(id)?;
            let page = pool.slicer.node(id.slot()).page.get();
            if pool.pages.is_mapping(page) {
                drop(pool);
                self.wait_for_mapping(cell, &mut waited)?;
                continue;
            }
            let memory = pool.pages[page].memory;
            let mapped = match pool.pages.end_share(page) {
                None => return Err(Error::InvalidArgument { field: c"map_count", value: 0 }),
                Some(at) if at.is_null() => return Ok(()),
                Some(at) => at,
            };
            drop(pool);
            let _in_flight = InFlight::new(&self.in_flight);
            self.device.unmap(&memory.seen_at(mapped));
            self.end_mapping(cell, page, &memory);
            return Ok(());
        }
    }

    fn wait_for_mapping(&self, cell: &Cell, waited: &mut u32) -> Result<(), Error> {
        let lock = cell.pool.kind();
        if *waited == MAPPING_WAIT_STEPS || !lock.is_shared() {
            return Err(self.statistics().busy(1));
        }
        lock.wait(*waited);
        *waited += 1;
        Ok(())
    }

    /// A page is not mapped, and no call is at it any more. If it was to go back meanwhile, it goes now.
    #[cold]
    fn end_mapping(&self, cell: &Cell, page: u32, memory: &DeviceMemory) {
        let pool = cell.pool.lock();
        pool.pages.end_mapping(page, ptr::null_mut());
        let leaves = pool.pages.is_leaving(page);
        let event = if leaves { self.page_event(EventKind::PageReturned, cell, memory) } else { None };
        drop(pool);
        if leaves {
            self.finish_return(cell, page, memory, event, &mut None);
        }
    }

    /// Makes what the CPU has written to a slice visible to the device: `size` bytes from `offset` on, `u64::MAX` for all
    /// from there. Calls the device with that range, widened to whole atoms ([`MemoryType::non_coherent_atom`]) as far as
    /// the page's end allows; not at all where the memory is coherent. The slice must not be freed meanwhile.
    ///
    /// [`MemoryType::non_coherent_atom`]: crate::MemoryType::non_coherent_atom
    ///
    /// # Errors
    /// As [`Allocator::get`]; [`Error::InvalidArgument`] for a range that is not all in the slice;
    /// [`Error::NotSupported`] if the device cannot flush; [`Error::DeviceFailed`] and [`Error::OutOfDeviceMemory`] as the
    /// device says.
    #[cold]
    pub fn flush(&self, id: SliceId, offset: u64, size: u64) -> Result<(), Error> {
        self.call_with_range(id, offset, size, &|range| self.device.flush(range))
    }

    /// Makes what the device has written to a slice visible to the CPU. Otherwise as [`Allocator::flush`].
    ///
    /// # Errors
    /// As [`Allocator::flush`].
    #[cold]
    pub fn invalidate(&self, id: SliceId, offset: u64, size: u64) -> Result<(), Error> {
        self.call_with_range(id, offset, size, &|range| self.device.invalidate(range))
    }

    #[cold]
    fn call_with_range(
        &self,
        id: SliceId,
        offset: u64,
        size: u64,
        call: &dyn Fn(&CacheRange) -> Result<(), DeviceError>,
    ) -> Result<(), Error> {
        let cell = self.cell(id)?;
        let pool = cell.pool.lock();
        let slice = pool.get(id)?;
        let memory = pool.pages[pool.slicer.node(id.slot()).page.get()].memory;
        drop(pool);
        let behind =
            slice.size.checked_sub(offset).ok_or(Error::InvalidArgument { field: c"offset", value: offset })?;
        let size = if size == u64::MAX { behind } else { size };
        if size > behind {
            return Err(Error::InvalidArgument { field: c"size", value: size });
        }
        let atom = self.types.get(cell.rules.memory_type).map_or(1, |one| one.memory_type.non_coherent_atom);
        if size == 0 || atom == 1 || !memory.is_mapped() {
            return Ok(());
        }
        if !self.device.can_flush() {
            return Err(Error::NotSupported { what: c"flush" });
        }
        let start = align_down(slice.offset + offset, atom);
        let end = align_up(slice.offset + offset + size, atom).unwrap_or(memory.size).min(memory.size);
        let _in_flight = InFlight::new(&self.in_flight);
        call(&CacheRange { memory, offset: start, size: end - start }).map_err(|error| match error {
            DeviceError::OutOfMemory(code) => Error::OutOfDeviceMemory { size: end - start, code },
            other => other.into(),
        })
    }
}
