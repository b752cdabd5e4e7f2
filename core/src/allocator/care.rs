//! Slices whose memory something is done with: filled when they are handed out, overwritten before they are free again,
//! or watched for who writes behind their end.
//!
//! Such a slice carries the flag [`CARE`], by which the hot paths do not know it as a live one: what they refuse comes here.

use super::short::Served;
use super::{Allocator, Cell, Debugging, InFlight};
use crate::device::{Device, DeviceError, DeviceMemory, FillReason, FillRequest};
use crate::error::{DeviceFault, Error};
use crate::event::{EventKind, Label};
use crate::pool::Pool;
use crate::slice::{Request, Slice};
use crate::slicer::nodes::{CARE, SCRUB};
use crate::slots::SliceId;
use crate::sync::Guard;
use core::ops::Range;
use core::slice;

/// Slices that a call attends to at most which others have left to it meanwhile.
const MOST_LEFT_BY_OTHERS: u32 = 64;

impl<D: Device> Allocator<D> {
    /// [`Allocator::allocate`] for requests that are not like most, or of allocators in which none is. The request has been
    /// checked.
    #[inline(never)]
    pub(super) fn allocate_with_care(
        &self,
        request: &Request,
        label: Option<&Label>,
        served: &mut Served<'_>,
    ) -> Result<Slice, Error> {
        self.check_support(request)?;
        let slice = self.serve(request, served)?;
        let watched = self.debugs || self.tells_slices();
        if !(watched || request.is_zeroed() || request.is_scrubbed() || label.is_some()) {
            return Ok(slice);
        }
        self.take_care(request, label, &slice, watched, served.fresh)?;
        Ok(slice)
    }

    /// Does what has to be done with a new slice; frees it again if that fails.
    #[cold]
    fn take_care(
        &self,
        request: &Request,
        label: Option<&Label>,
        slice: &Slice,
        watched: bool,
        fresh: bool,
    ) -> Result<(), Error> {
        let cell = self.cell(slice.id)?;
        if self.debugs {
            self.fill_mapped(cell, slice, Debugging::NEW);
            self.draw_margin(cell, slice);
        }
        if let Some(label) = label {
            if let Err(error) = self.set_label(slice.id, label) {
                self.undo(cell, slice.id, fresh);
                return Err(error);
            }
        }
        if request.is_scrubbed() || watched {
            // Nobody else knows the handle yet, and nobody looks at the margin before the slice is flagged.
            let mut pool = cell.pool.lock();
            let slot = pool.slicer.resolve_any(slice.id)?;
            pool.slicer.set_flags(slot, if request.is_scrubbed() { CARE | SCRUB } else { CARE });
        }
        if request.is_zeroed() && slice.memory != u64::MAX {
            if let Err(error) = self.fill(cell, slice, FillReason::Zero) {
                self.undo(cell, slice.id, fresh);
                return Err(error);
            }
        }
        if self.tells_slices() {
            // What was freed before the slice was placed here has been told of with a lower number.
            let pool = cell.pool.lock();
            let slot = pool.slicer.resolve_any(slice.id)?;
            let event = self.slice_event(EventKind::SliceAllocated, cell, &pool, slot);
            drop(pool);
            self.tell(event);
        }
        Ok(())
    }

    /// Refuses what the device cannot do.
    #[inline]
    pub(super) fn check_support(&self, request: &Request) -> Result<(), Error> {
        if (request.is_zeroed() || request.is_scrubbed()) && !self.device.can_fill() {
            return Err(Error::NotSupported { what: c"fill" });
        }
        Ok(())
    }

    /// Frees a slice that nobody has seen, and gives its page back if that was taken for it.
    #[cold]
    fn undo(&self, cell: &Cell, id: SliceId, fresh: bool) {
        let _in_flight = InFlight::new(&self.in_flight);
        let mut pool = cell.pool.lock();
        let Ok(slot) = pool.slicer.resolve_any(id) else { return };
        let page = pool.slicer.node(slot).page.get();
        pool.slicer.clear_flags(slot);
        pool.free_slot_elsewhere(slot, &self.clock);
        if fresh && pool.pages[page].is_idle() {
            self.give_back(cell, pool, page, &mut None);
        }
    }

    /// [`Allocator::free`] for slices that are not plainly live: those that need care, and those that are not live at all.
    #[cold]
    #[inline(never)]
    pub(super) fn free_with_care(&self, id: SliceId) -> Result<(), Error> {
        let cell = self.cell(id)?;
        let mut pool = cell.pool.lock();
        let slot = pool.slicer.resolve_any(id)?;
        self.check_margin(&pool, slot)?;
        pool.set_pending(slot);
        drop(pool);
        self.attend(cell, slot, &mut None);
        self.look_at_pressure();
        Ok(())
    }

    /// Does what has to be done with the memory of a pending slice that is in no queue; then it is free, or waits for that
    /// to be over. If it cannot be done, the slice waits for the next try.
    #[cold]
    pub(super) fn attend(&self, cell: &Cell, slot: u32, refusal: &mut Option<Error>) {
        let mut pool = cell.pool.lock();
        let slice = pool.slice_of(slot);
        let scrub = pool.slicer.is_scrubbed(slot) && slice.memory != u64::MAX;
        // What the device may answer with must not be lost for want of a node.
        let spare = u32::from(scrub);
        while !pool.slicer.has_spare_nodes(spare) {
            let more = self.add_nodes(cell, pool);
            pool = cell.pool.lock();
            if let Err(error) = more {
                *refusal = Some(error);
                return pool.slicer.enqueue_scrub(slot);
            }
        }
        pool.slicer.promise_spare(spare);
        drop(pool);
        if self.debugs {
            self.fill_mapped(cell, &slice, Debugging::FREED);
        }
        let filled = if scrub { self.fill(cell, &slice, FillReason::Scrub) } else { Ok(None) };
        let mut pool = cell.pool.lock();
        pool.slicer.release_spare(spare);
        let point = match filled {
            Ok(Some(point)) => point,
            Ok(None) => return self.release_and_tell(cell, pool, slot),
            Err(error) => {
                *refusal = Some(error);
                let event = self.slice_event(EventKind::SlicePending, cell, &pool, slot);
                pool.slicer.enqueue_scrub(slot);
                drop(pool);
                return self.tell(event);
            }
        };
        let tally = pool.tally(&[point]);
        pool.slicer.clear_flags(slot);
        if self.tells_slices() {
            // So that it comes here again when it is free.
            pool.slicer.set_flags(slot, CARE);
        }
        if tally.waits() {
            let event = self.slice_event(EventKind::SlicePending, cell, &pool, slot);
            pool.wait(slot, &[point], &tally);
            drop(pool);
            self.tell(event);
        } else {
            self.release_and_tell(cell, pool, slot);
        }
    }

    /// A pending slice that waits for nothing is free, and the device hears of it. The lock ends with that.
    #[cold]
    pub(super) fn release_and_tell(&self, cell: &Cell, mut pool: Guard<'_, Pool>, slot: u32) {
        let event = self.slice_event(EventKind::SliceFreed, cell, &pool, slot);
        pool.release(slot, &self.clock);
        drop(pool);
        self.tell(event);
    }

    /// Does what has to be done with all slices of a pool that wait for that, once each.
    #[cold]
    pub(super) fn attend_all(&self, cell: &Cell, refusal: &mut Option<Error>) {
        if !self.debugs && !self.device.can_fill() && !self.tells_slices() {
            // No slice needs anything.
            return;
        }
        // A callback that frees something with everything that is freed must not make this go on for ever.
        let mut most = u32::MAX;
        while most != 0 {
            // One call at a time, and callbacks leave it to that one: otherwise those that fail would be tried again by
            // each.
            let Some(turn) = cell.attending.take() else { return };
            let pool = cell.pool.lock();
            let (waiting, arrivals) = (pool.slicer.scrubs().min(most), pool.slicer.scrub_arrivals());
            drop(pool);
            for _ in 0..waiting {
                let next = cell.pool.lock().slicer.take_scrub();
                let Some(slot) = next else { break };
                self.attend(cell, slot, refusal);
            }
            drop(turn);
            // Whoever has left some to this call meanwhile found the turn taken, so what they left is seen here.
            if cell.pool.lock().slicer.scrub_arrivals() == arrivals {
                return;
            }
            most = if most == u32::MAX { MOST_LEFT_BY_OTHERS } else { most - waiting };
        }
    }

    /// Has the device fill a slice with zeros.
    fn fill(&self, cell: &Cell, slice: &Slice, reason: FillReason) -> Result<Option<crate::Point>, Error> {
        self.fill_range(cell, slice, 0..slice.size, reason)
    }

    /// Has the device fill `size` bytes of a live slice with zeros, from `offset` on.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device cannot do that; what it says.
    #[cold]
    pub(crate) fn fill_part(&self, slice: &Slice, offset: u64, size: u64) -> Result<(), Error> {
        if !self.device.can_fill() {
            return Err(Error::NotSupported { what: c"fill" });
        }
        self.fill_range(self.cell(slice.id)?, slice, offset..offset + size, FillReason::Zero).map(drop)
    }

    /// Has the device fill part of a slice with zeros.
    #[cold]
    fn fill_range(
        &self,
        cell: &Cell,
        slice: &Slice,
        part: Range<u64>,
        reason: FillReason,
    ) -> Result<Option<crate::Point>, Error> {
        let _in_flight = InFlight::new(&self.in_flight);
        let memory = self.memory_of(cell, slice);
        let (offset, size) = (slice.offset + part.start, part.end - part.start);
        let request = FillRequest { memory, offset, size, reason };
        match self.device.fill(&request) {
            Ok(Some(_)) if reason == FillReason::Zero => {
                Err(Error::DeviceFailed { fault: DeviceFault::NotFilled, code: 0 })
            }
            Err(DeviceError::OutOfMemory(code)) => Err(Error::OutOfDeviceMemory { size: slice.size, code }),
            other => Ok(other?),
        }
    }

    /// The page of a slice that keeps it from going.
    fn memory_of(&self, cell: &Cell, slice: &Slice) -> DeviceMemory {
        let pool = cell.pool.lock();
        pool.pages[pool.slicer.node(slice.id.slot()).page.get()].memory
    }

    // ---- memory that the CPU sees

    /// Fills a slice that the CPU sees, if filling is on and its page is like others.
    fn fill_mapped(&self, cell: &Cell, slice: &Slice, value: u8) {
        if self.options.debugging.fill && !slice.mapped.is_null() && !cell.rules.once {
            // SAFETY: the device has mapped the page for as long as it is held, and the slice in it is this call's own.
            unsafe { slice.mapped.write_bytes(value, slice.size as usize) };
        }
    }

    /// Where a slice's margin lies as far as the CPU sees it; empty if it does not.
    fn margin_of(cell_margin: u64, slice: &Slice) -> (*mut u8, usize) {
        let mapped = if slice.mapped.is_null() { slice.mapped } else { slice.mapped.wrapping_add(slice.size as usize) };
        (mapped, if mapped.is_null() { 0 } else { cell_margin as usize })
    }

    /// Fills the margin behind a slice.
    #[cold]
    pub(super) fn draw_margin(&self, cell: &Cell, slice: &Slice) {
        let (at, len) = Self::margin_of(cell.rules.margin_bytes(), slice);
        if len != 0 {
            // SAFETY: as in `fill_mapped`; the margin is part of the slice's range.
            unsafe { at.write_bytes(Debugging::MARGIN, len) };
        }
    }

    /// Whether nothing was written to the margin of a live or claimed slice. Damage is reported once, and mended.
    #[cold]
    pub(super) fn check_margin(&self, pool: &Pool, slot: u32) -> Result<(), Error> {
        if !self.debugs || !pool.slicer.needs_care(slot) {
            return Ok(());
        }
        let slice = pool.live_slice_of(slot);
        let (at, len) = Self::margin_of(pool.margin_bytes(), &slice);
        if len == 0 {
            return Ok(());
        }
        // SAFETY: as in `draw_margin`; the slice is live under the lock of its pool, so its page is held.
        let margin = unsafe { slice::from_raw_parts_mut(at, len) };
        let Some(damaged) = margin.iter().position(|&byte| byte != Debugging::MARGIN) else { return Ok(()) };
        margin.fill(Debugging::MARGIN);
        Err(Error::MarginDamaged { memory: slice.memory, offset: slice.offset + slice.size + damaged as u64 })
    }

    /// Verifies that nothing was written to the margins behind slices, where the CPU sees them: see
    /// [`Debugging::margin`]. O(slots), with the lock held for one at a time.
    ///
    /// # Errors
    /// [`Error::MarginDamaged`] for the first that was. It is mended, so that the next call tells of the next.
    #[cold]
    pub fn check_margins(&self) -> Result<(), Error> {
        for cell in self.cells() {
            let mut next = 1;
            loop {
                let pool = cell.pool.lock();
                let Some((slot, node)) = pool.slicer.node_from(next) else { break };
                if node.is_slice() {
                    self.check_margin(&pool, slot)?;
                }
                next = slot + 1;
            }
        }
        Ok(())
    }
}
