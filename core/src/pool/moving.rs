//! Pages that come to a pool without a request: those taken beforehand, those the program owned, and those that another
//! pool has no use for.
#![forbid(unsafe_code)]

use super::{Clock, Fit, Pool};
use crate::device::DeviceMemory;
use crate::error::Error;
use crate::slice::Slice;

impl Pool {
    /// Sets everything aside for a page of `bytes` that is there already. Nothing may be lacking for a growth.
    ///
    /// # Errors
    /// [`Error::PoolCapacityExceeded`]; [`Error::InvalidArgument`] if the pool cannot use pages of that size.
    #[cold]
    pub(crate) fn begin_adoption(&mut self, bytes: u64) -> Result<(), Error> {
        let refused = Error::InvalidArgument { field: c"size", value: bytes };
        if !self.rules.takes_page(bytes) {
            return Err(refused);
        }
        if !self.can_adopt(bytes) {
            return Err(self.capacity_error(&Fit { size: 0, align_mask: 0, requested: bytes }));
        }
        self.set_aside(bytes);
        Ok(())
    }

    /// Whether the pool can use a page of `bytes`, and its cap has room for it.
    pub(crate) fn can_adopt(&self, bytes: u64) -> bool {
        let held = self.claimed_bytes().and_then(|held| held.checked_add(bytes));
        self.rules.takes_page(bytes) && held.is_some_and(|held| held <= self.rules.capacity().unwrap_or(u64::MAX))
    }

    /// Installs a page for which everything has been set aside, and which holds nothing.
    #[cold]
    pub(crate) fn add_idle_page(&mut self, memory: DeviceMemory, clock: &Clock) {
        if memory.is_mapped() {
            self.note_device_allocation();
        }
        let (index, edge) = self.add_page(memory, true);
        if self.rules.cuts() {
            self.pages.set_idle(index, clock.idle_event());
        } else {
            self.free_whole_unbooked(edge, clock);
        }
    }

    /// Installs a page that was another pool's, and places a request in it.
    pub(crate) fn add_moved_page(&mut self, memory: DeviceMemory, mapping: (*mut u8, u32), fit: &Fit) -> Slice {
        let (index, slot) = self.add_page(memory, false);
        self.pages.set_moved(index, mapping);
        self.settle_in_new_page(slot, fit)
    }

    /// A page that holds nothing and would hold a request of another pool, and its bytes.
    #[cold]
    pub(crate) fn idle_page_for(&self, fit: &Fit) -> Option<(u32, u64)> {
        let index = match self.rules.grows() {
            true => match self.slicer.find_idle(fit.size) {
                0 => return None,
                edge => self.slicer.node(edge).page.get(),
            },
            false => self.pages.lowest_idle()?,
        };
        Some((index, self.pages[index].memory.size))
    }

    /// A page that has begun to leave is another pool's now.
    pub(crate) fn moved_away(&mut self, index: u32) {
        self.pages.set_vacant(index);
    }
}
