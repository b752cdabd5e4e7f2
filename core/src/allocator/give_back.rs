//! How pages that hold nothing go back to the device: by age, by a trim, or because they are in the way of another.

use super::{Allocator, Cell, InFlight};
use crate::device::{Device, DeviceError, DeviceMemory};
use crate::error::{DeviceFault, Error};
use crate::pool::Pool;
use crate::sync::Guard;

/// Pages that one allocation gives back at most because of their age.
const AGED_PAGES_PER_CALL: u32 = if cfg!(slicepool_canary = "age_all_at_once") { u32::MAX } else { 4 };

impl<D: Device> Allocator<D> {
    /// Gives idle pages back to the device, those idle the longest first, as long as at least `min_keep_bytes` stay
    /// reserved, and asks again for pages that the device has refused to take back before.
    ///
    /// Of each pool the page that has been idle the longest is looked at: where that one is too large to go, others of
    /// its pool stay too.
    ///
    /// Work in proportion to what is given back times the number of pools; each page costs a device call.
    ///
    /// # Errors
    /// [`Error::DeviceFailed`] if the device refuses a page. The others have been given back; that one is kept,
    /// counted as stuck and tried again next time.
    #[cold]
    pub fn trim(&self, min_keep_bytes: u64) -> Result<(), Error> {
        let _in_flight = InFlight::new(&self.in_flight);
        let mut refusal = None;
        let mut idle = 0;
        for cell in self.pools.iter() {
            let pool = cell.pool.lock();
            idle += pool.pages.idle_count();
            let stuck = pool.pages.stuck_count();
            drop(pool);
            for _ in 0..stuck {
                let mut pool = cell.pool.lock();
                let Some(page) = pool.pages.retry_stuck() else { break };
                let memory = pool.pages[page].memory;
                drop(pool);
                self.finish_return(cell, page, &memory, &mut refusal);
            }
        }
        // Only as many as are idle now: callbacks, and other threads, may make others idle for ever.
        for _ in 0..idle {
            let Some((cell, floor)) = self.oldest_above(min_keep_bytes) else { break };
            let pool = cell.pool.lock();
            // Another thread may have used it meanwhile; then the next round looks again.
            let Some((page, _)) = pool.idle_above(floor) else { continue };
            self.give_back(cell, pool, page, &mut refusal);
        }
        refusal.map_or(Ok(()), Err)
    }

    /// The pool whose oldest idle page is the oldest of those without which `min_keep_bytes` stay reserved, and what of
    /// that the pool itself has to keep.
    #[cold]
    fn oldest_above(&self, min_keep_bytes: u64) -> Option<(&Cell, u64)> {
        // The sum is of no one instant, which does not matter as long as nobody else gives back at the same time.
        let staying = self.pools.iter().map(|cell| cell.pool.lock().pages.staying()).fold(0, u64::saturating_add);
        let mut oldest: Option<(&Cell, u64, u32)> = None;
        for cell in self.pools.iter() {
            let pool = cell.pool.lock();
            let floor = min_keep_bytes.saturating_sub(staying.saturating_sub(pool.pages.staying()));
            let Some((_, since)) = pool.idle_above(floor) else { continue };
            let since = if cfg!(slicepool_canary = "trim_pool_order") { 0 } else { since };
            // The clock wraps: half of its range tells before from after.
            if oldest.is_none_or(|(_, _, other)| (since.wrapping_sub(other) as i32) < 0) {
                oldest = Some((cell, floor, since));
            }
        }
        oldest.map(|(cell, floor, _)| (cell, floor))
    }

    /// Gives every idle page back to the device. The handles of live slices stay as they are.
    ///
    /// # Errors
    /// As [`Allocator::trim`].
    pub fn cleanup(&self) -> Result<(), Error> {
        self.trim(0)
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
        let mut left = AGED_PAGES_PER_CALL;
        let mut next_check: Option<u32> = None;
        for cell in self.pools.iter() {
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
        drop(pool);
        self.ledger.lock().held().begin_return();
        self.finish_return(cell, page, &memory, refusal);
    }

    /// Gives memory back to the device.
    #[cold]
    pub(super) fn hand_back(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.ledger.lock().begin_leaving(memory);
        let answer = self.device.deallocate(memory);
        self.ledger.lock().end_leaving(memory, answer.is_ok());
        answer
    }

    /// Calls the device for a page that has begun to leave.
    #[cold]
    fn finish_return(&self, cell: &Cell, page: u32, memory: &DeviceMemory, refusal: &mut Option<Error>) {
        let answer = self.hand_back(memory);
        let mut pool = cell.pool.lock();
        match answer {
            Ok(()) => {
                pool.returned(page);
                drop(pool);
                self.ledger.lock().held().end_return(memory.size);
            }
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
        let pool = cell.pool.lock();
        if pool.pages[page].is_idle() && pool.pages[page].serial >= serial {
            self.give_back(cell, pool, page, &mut None);
        }
    }
}
