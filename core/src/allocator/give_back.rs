//! How pages that hold nothing go back to the device: by age, by a trim, or because they are in the way of another.

use super::short::Wanted;
use super::{Allocator, Cell, InFlight};
use crate::budget::Budget;
use crate::canary::broken;
use crate::device::{Device, DeviceError, DeviceMemory};
use crate::error::{DeviceFault, Error};
use crate::event::{Event, EventKind};
use crate::ledger::Held;
use crate::parts::COMPLETE;
use crate::pool::Pool;
use crate::sync::{Guard, Ordering};
use core::ptr;

/// Pages that one allocation gives back at most because of their age.
const AGED_PAGES_PER_CALL: u32 = 4;

impl<D: Device> Allocator<D> {
    /// Gives idle pages back to the device, those idle the longest first, as long as at least `min_keep_bytes` stay
    /// reserved, and asks again for pages that the device has refused to take back before. Pages of persistent slices are
    /// none of these, and neither kept nor counted.
    ///
    /// Of each pool the page that has been idle the longest is looked at: where that one is too large to go, others of
    /// its pool stay too.
    ///
    /// Work in proportion to what is given back times the number of pools; each page costs a device call.
    ///
    /// # Errors
    /// [`Error::DeviceFailed`] if the device refuses a page. The others have been given back; that one is kept,
    /// counted as stuck and tried again next time. As [`Allocator::collect`] for slices that are still to be scrubbed.
    #[cold]
    pub fn trim(&self, min_keep_bytes: u64) -> Result<(), Error> {
        if !COMPLETE {
            return self.trim_plainly(min_keep_bytes);
        }
        let _in_flight = InFlight::new(&self.in_flight);
        let mut refusal = None;
        for cell in self.cells() {
            self.attend_all(cell, &mut refusal);
        }
        self.retry_stuck(&mut refusal);
        // Only as many as are idle now: callbacks, and other threads, may make others idle for ever.
        for _ in 0..self.idle_pages(None) {
            if self.give_oldest_back(min_keep_bytes, None, &mut refusal).is_none() {
                break;
            }
        }
        self.note_return();
        refusal.map_or(Ok(()), Err)
    }

    /// Asks the device once more to take pages back that it has refused.
    #[cold]
    fn retry_stuck(&self, refusal: &mut Option<Error>) {
        for cell in self.cells() {
            let stuck = cell.pool.lock().pages.stuck_count();
            for _ in 0..stuck {
                let mut pool = cell.pool.lock();
                let Some(page) = pool.pages.retry_stuck() else { break };
                let memory = pool.pages[page].memory;
                let event = self.page_event(EventKind::PageReturned, cell, &memory);
                drop(pool);
                self.finish_return(cell, page, &memory, event, refusal);
            }
        }
    }

    /// The pools that give pages of a heap back; `None`: of any.
    fn giving(&self, heap: Option<u32>) -> impl Iterator<Item = &Cell> {
        self.giving_cells().filter(move |cell| heap.is_none_or(|heap| cell.rules.heap == heap))
    }

    /// Pages that hold nothing, in pools that give them back.
    #[cold]
    pub(super) fn idle_pages(&self, heap: Option<u32>) -> u32 {
        self.giving(heap).map(|cell| cell.pool.lock().pages.idle_count()).sum()
    }

    /// Gives the page back that has been idle the longest, of those without which `min_keep_bytes` stay reserved: the bytes
    /// that the device has more, 0 if it refused, or never gave any, or another thread was faster; `None` if there is none.
    #[cold]
    fn give_oldest_back(&self, min_keep_bytes: u64, heap: Option<u32>, refusal: &mut Option<Error>) -> Option<u64> {
        let (cell, floor) = self.oldest_above(min_keep_bytes, heap)?;
        let pool = cell.pool.lock();
        // Another thread may have used it meanwhile; then the next call looks again.
        let Some((page, _)) = pool.idle_above(floor) else { return Some(0) };
        let memory = pool.pages[page].memory;
        let mut refused = None;
        self.give_back(cell, pool, page, &mut refused);
        let returned = if refused.is_none() && memory.is_mapped() { memory.size } else { 0 };
        *refusal = refused.or(*refusal);
        Some(returned)
    }

    /// Gives pages back that hold nothing, those idle the longest first, until the device has `wanted` bytes more; asks again
    /// for those that it has refused. Whether anything went back. `left`: how many pages may go, as many as are idle at
    /// first.
    #[cold]
    pub(super) fn give_back_for(&self, wanted: Wanted, left: &mut Option<u32>) -> bool {
        if broken("keep_idle_when_short") {
            return false;
        }
        // Callbacks, and other threads, may make others idle for ever.
        let left = left.get_or_insert_with(|| self.idle_pages(wanted.heap));
        let before = self.returns.load(Ordering::Relaxed);
        self.retry_stuck(&mut None);
        let mut given = 0;
        while given < wanted.bytes && *left != 0 {
            *left -= 1;
            let Some(bytes) = self.give_oldest_back(0, wanted.heap, &mut None) else { break };
            given += bytes;
        }
        before != self.returns.load(Ordering::Relaxed)
    }

    /// The device may have memory again.
    pub(crate) fn note_return(&self) {
        self.returns.fetch_add(1, Ordering::Relaxed);
    }

    // ---- a budget that is shared

    /// Whether others that share the budget want memory.
    #[inline(always)]
    pub(super) fn look_at_pressure(&self) {
        if let Some(budget) = &self.options.budget {
            let pressure = budget.pressure();
            // Where everything was given and was not enough, it takes another idle page to go on.
            if pressure != self.pressure.load(Ordering::Relaxed)
                && self.clock.idle_events() != self.gave_all_at.load(Ordering::Relaxed)
            {
                self.give_way(budget, pressure);
            }
        }
    }

    /// Gives pages back that hold nothing, those idle the longest first, until what was refused would fit.
    #[cold]
    #[inline(never)]
    fn give_way(&self, budget: &Budget, pressure: u32) {
        // One call at a time, and callbacks leave it to that one.
        let Some(_turn) = self.clock.giving_way.take() else { return };
        let events = self.clock.idle_events();
        let _in_flight = InFlight::new(&self.in_flight);
        for _ in 0..self.idle_pages(None) {
            if !budget.is_short() || self.give_oldest_back(0, None, &mut None).is_none() {
                break;
            }
        }
        if budget.is_short() {
            self.gave_all_at.store(events, Ordering::Relaxed);
        } else {
            self.pressure.store(pressure, Ordering::Relaxed);
        }
    }

    /// The pool whose oldest idle page is the oldest of those without which `min_keep_bytes` stay reserved, and what of
    /// that the pool itself has to keep.
    #[cold]
    fn oldest_above(&self, min_keep_bytes: u64, heap: Option<u32>) -> Option<(&Cell, u64)> {
        // The sum is of no one instant, which does not matter as long as nobody else gives back at the same time.
        let staying = self.giving(heap).map(|cell| cell.pool.lock().pages.staying()).fold(0, u64::saturating_add);
        let mut oldest: Option<(&Cell, u64, u32)> = None;
        for cell in self.giving(heap) {
            let pool = cell.pool.lock();
            let floor = min_keep_bytes.saturating_sub(staying.saturating_sub(pool.pages.staying()));
            let Some((_, since)) = pool.idle_above(floor) else { continue };
            let since = if broken("trim_pool_order") { 0 } else { since };
            // The clock wraps: half of its range tells before from after.
            if oldest.is_none_or(|(_, _, other)| (since.wrapping_sub(other) as i32) < 0) {
                oldest = Some((cell, floor, since));
            }
        }
        oldest.map(|(cell, floor, _)| (cell, floor))
    }

    /// Gives every idle page back to the device, those of persistent slices too. The handles of live slices stay as they
    /// are.
    ///
    /// # Errors
    /// As [`Allocator::trim`].
    #[cold]
    pub fn cleanup(&self) -> Result<(), Error> {
        let mut refusal = self.trim(0).err();
        for cell in self.types.persistent_cells() {
            let _in_flight = InFlight::new(&self.in_flight);
            let idle = cell.pool.lock().pages.idle_count();
            for _ in 0..idle {
                let pool = cell.pool.lock();
                let Some((page, _)) = pool.idle_above(0) else { break };
                self.give_back(cell, pool, page, &mut refusal);
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    // ---- ageing

    /// Counts an allocation, and gives pages back that have grown too old with it.
    #[inline(always)]
    pub(super) fn count_allocation(&self) {
        if let Some(now) = self.clock.count_allocation() {
            self.give_aged_pages_back(now);
        }
    }

    /// A page that the device refuses counts as stuck; the allocation that noticed its age has succeeded all the same.
    #[cold]
    #[inline(never)]
    fn give_aged_pages_back(&self, now: u32) {
        // A callback that allocates, or another thread, leaves it to the call that is at it.
        let Some(_turn) = self.clock.ageing.take() else { return };
        let _in_flight = InFlight::new(&self.in_flight);
        let mut left = if broken("age_all_at_once") { u32::MAX } else { AGED_PAGES_PER_CALL };
        let mut next_check: Option<u32> = None;
        for cell in self.giving_cells() {
            let check = loop {
                let mut pool = cell.pool.lock();
                if pool.pages.next_check().is_none() {
                    break None;
                }
                pool.pages.check_age(now);
                match pool.expired() {
                    // The next allocation goes on.
                    Some(_) if left == 0 => break Some(now.wrapping_add(1)),
                    Some(page) => {
                        left -= 1;
                        self.give_back(cell, pool, page, &mut None);
                    }
                    None => break pool.pages.next_check(),
                }
            };
            if let Some(check) = check {
                let sooner = next_check.is_none_or(|other| (check.wrapping_sub(other) as i32) < 0);
                next_check = if sooner { Some(check) } else { next_check };
            }
        }
        if let Some(check) = next_check {
            self.clock.set_next_check(check);
        }
    }

    // ---- one page

    /// Gives an idle page of a pool back, whose lock ends with that.
    #[cold]
    pub(super) fn give_back(&self, cell: &Cell, mut pool: Guard<'_, Pool>, page: u32, refusal: &mut Option<Error>) {
        let memory = pool.begin_return(page);
        let mapping = pool.pages.is_mapping(page);
        let mapped = if mapping { ptr::null_mut() } else { pool.pages.forget_mapping(page) };
        let event = self.page_event(EventKind::PageReturned, cell, &memory);
        self.note_block(cell, false);
        drop(pool);
        self.ledger.lock().note(cell.rules.origin(), Held::begin_return);
        if mapping {
            // The call that is at it goes on from here.
            return;
        }
        if !mapped.is_null() {
            self.device.unmap(&memory.seen_at(mapped));
        }
        if memory.is_mapped() {
            return self.finish_return(cell, page, &memory, event, refusal);
        }
        cell.pool.lock().returned(page);
        self.ledger.lock().note(cell.rules.origin(), |held| held.end_return(memory.size));
    }

    /// Gives memory back to the device.
    ///
    /// A device that has given it out again meanwhile has taken it, whatever it says: to keep it as refused would be to
    /// offer it once more while it is live.
    #[cold]
    pub(super) fn hand_back(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.ledger.lock().begin_leaving(memory);
        let answer = self.device.deallocate(memory);
        let given_again = self.ledger.lock().end_leaving(memory, answer.is_ok());
        if given_again { Ok(()) } else { answer }
    }

    /// Calls the device for a page that has begun to leave.
    #[cold]
    pub(super) fn finish_return(
        &self,
        cell: &Cell,
        page: u32,
        memory: &DeviceMemory,
        event: Option<Event>,
        refusal: &mut Option<Error>,
    ) {
        let answer = self.hand_back(memory);
        let mut pool = cell.pool.lock();
        match answer {
            Ok(()) => {
                pool.returned(page);
                drop(pool);
                self.ledger.lock().note(cell.rules.origin(), |held| held.end_return(memory.size));
                self.discharge(cell, memory.size);
                self.note_return();
                self.tell(event);
            }
            Err(error) => {
                pool.refused(page);
                let error = Error::DeviceFailed { fault: DeviceFault::Refused, code: error.code() };
                let event = self.page_event(EventKind::PageRefused, cell, memory);
                drop(pool);
                *refusal = Some(error);
                self.tell(event.map(|event| Event { error: Some(error), ..event }));
            }
        }
    }

    /// Gives a page back if it is idle and was installed since `serial`.
    pub(super) fn return_if_newer(&self, cell: &Cell, page: u32, serial: u64) {
        let pool = cell.pool.lock();
        if pool.pages[page].is_idle() && pool.pages[page].serial >= serial {
            self.give_back(cell, pool, page, &mut None);
        }
    }
}
