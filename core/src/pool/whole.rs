//! Pools with a page for each slice: exclusive pages and direct ones.
#![forbid(unsafe_code)]

use super::rules::{Fit, Kind};
use super::{Clock, Node, Pool};
use crate::canary::broken;
use crate::error::Error;
use crate::slice::Slice;

impl Pool {
    /// Serves a request with a free page that suits it.
    #[inline(always)]
    pub(super) fn place_whole(&mut self, fit: &Fit) -> Option<Slice> {
        match self.take_whole(fit) {
            0 => None,
            slot => Some(self.book_whole(slot, fit.requested)),
        }
    }

    /// [`Pool::place_whole`] off the hot path.
    #[inline(never)]
    pub(super) fn place_whole_elsewhere(&mut self, fit: &Fit) -> Option<Slice> {
        self.place_whole(fit)
    }

    /// Makes a slice of a free page that suits a request; its slot, 0 if there is none.
    #[inline(never)]
    fn take_whole(&mut self, fit: &Fit) -> u32 {
        let hole = match &self.rules.kind {
            Kind::Direct(_) if self.rules.once => 0,
            Kind::Direct(_) => {
                let more = u32::from(broken("direct_near_size"));
                self.by_size[0].take(&self.slicer, fit.size.saturating_add(more))
            }
            _ => self.take_exclusive(fit, !broken("exclusive_any_page")),
        };
        self.settle_whole(hole)
    }

    /// Serves a request for which [`Pool::place_whole`] has found no page with any free one that holds it: when the device
    /// gives no other. A direct pool has none then.
    pub(super) fn place_whole_in_any(&mut self, fit: &Fit) -> Option<Slice> {
        let hole = self.take_exclusive(fit, false);
        match self.settle_whole(hole) {
            0 => None,
            slot => Some(self.book_whole(slot, fit.requested)),
        }
    }

    /// Whether [`Pool::place_whole`] would find a page, or if it need not be `close`, [`Pool::place_whole_in_any`].
    #[cold]
    pub(super) fn has_whole(&self, fit: &Fit, close: bool) -> bool {
        match &self.rules.kind {
            Kind::Direct(_) if self.rules.once => false,
            Kind::Direct(_) => self.by_size[0].holds(&self.slicer, fit.size),
            _ => self.find_exclusive(fit, close) != 0,
        }
    }

    /// The smallest free exclusive page that holds a request, 0 for none; none of more than twice its size if it has to
    /// be `close`.
    fn find_exclusive(&self, fit: &Fit, close: bool) -> u32 {
        let Kind::Exclusive(exclusive) = &self.rules.kind else { return 0 };
        // By the request and not by the page it would get: whatever the steps between pages, none that holds it is missed.
        let hole = self.slicer.find_whole(fit.size);
        let least = exclusive.page_for(fit.size);
        let size = self.slicer.node(hole).size.get();
        let twice = fit.requested.saturating_mul(2);
        if close && size > least && self.rules.bytes(size) > twice { 0 } else { hole }
    }

    fn take_exclusive(&mut self, fit: &Fit, close: bool) -> u32 {
        let hole = self.find_exclusive(fit, close);
        if hole != 0 {
            self.slicer.unlink_whole(hole);
        }
        hole
    }

    /// Makes a slice of a free page that has been taken out of its index; its slot, or 0.
    #[inline(always)]
    fn settle_whole(&mut self, hole: u32) -> u32 {
        if hole == 0 {
            return 0;
        }
        if !self.slicer.can_use_whole(hole) {
            // It stays free for want of a node.
            self.put_back_whole(hole);
            return 0;
        }
        let slot = self.slicer.use_whole(hole);
        self.pages.set_busy(self.slicer.node(slot).page.get(), slot);
        slot
    }

    #[cold]
    #[inline(never)]
    fn put_back_whole(&mut self, hole: u32) {
        self.index_whole(hole);
    }

    #[inline(always)]
    pub(super) fn book_whole(&mut self, slot: u32, requested: u64) -> Slice {
        let node = self.slicer.node(slot);
        let memory = self.pages[node.page.get()].memory;
        let padding = memory.size - requested;
        // A page may be larger than what is asked for by more than 32 bits can say.
        node.link_a.set(padding as u32);
        node.link_b.set((padding >> 32) as u32);
        let id = self.slicer.id_of(slot, node);
        self.note_in_use(requested, padding);
        Slice {
            id,
            memory: memory.handle,
            offset: 0,
            size: memory.size - self.rules.margin_bytes(),
            address: memory.address,
            mapped: memory.mapped,
        }
    }

    /// Bytes by which a slice that fills a page is larger than what was asked for.
    #[inline(always)]
    pub(super) fn whole_padding(node: &Node) -> u64 {
        u64::from(node.link_b.get()) << 32 | u64::from(node.link_a.get())
    }

    #[inline(always)]
    pub(super) fn unbook_whole(&mut self, slot: u32) {
        let node = self.slicer.node(slot);
        let padding = Self::whole_padding(node);
        self.note_not_in_use(self.rules.bytes(node.size.get()) - padding, padding);
    }

    /// Frees a slice that fills a page. The page stays.
    #[inline(never)]
    pub(super) fn free_whole(&mut self, slot: u32, clock: &Clock) {
        self.unbook_whole(slot);
        self.free_whole_unbooked(slot, clock);
    }

    /// [`Pool::free_whole`] of a slice that has been booked out, or was never booked.
    #[inline(always)]
    pub(super) fn free_whole_unbooked(&mut self, slot: u32, clock: &Clock) {
        self.slicer.free_whole(slot);
        self.index_whole(slot);
        self.pages.set_idle(self.slicer.node(slot).page.get(), clock.idle_event());
        if self.rules.once {
            clock.check_at_once();
        }
    }

    /// Enters a free page where requests find it.
    #[inline(always)]
    fn index_whole(&mut self, hole: u32) {
        match &self.rules.kind {
            Kind::Direct(_) => self.by_size[0].insert(&self.slicer, hole, self.slicer.node(hole)),
            _ => self.slicer.link_whole(hole),
        }
    }

    /// Takes a free page out of the slicer and its index.
    #[cold]
    pub(super) fn remove_whole(&mut self, hole: u32) {
        match &self.rules.kind {
            Kind::Direct(_) => self.by_size[0].remove(&self.slicer, hole),
            _ => self.slicer.unlink_whole(hole),
        }
        self.slicer.remove_whole(hole);
    }

    /// Changes how much of its page a slice says it needs.
    #[cold]
    pub(super) fn resize_whole(&mut self, slot: u32, fit: &Fit) -> Result<Slice, Error> {
        let size = self.slicer.node(slot).size.get();
        if fit.size > size {
            let available = self.rules.bytes(size - self.rules.margin);
            return Err(Error::NoRoom { size: fit.requested, available });
        }
        self.unbook_whole(slot);
        Ok(self.book_whole(slot, fit.requested))
    }
}

#[cfg(all(test, feature = "complete"))]
mod tests {
    use super::*;
    use crate::device::{DeviceMemory, MemoryType};
    use crate::metadata::HostMemory;
    use crate::pool::{PoolOptions, Rules};
    use crate::slots::GENERATION_RETIRED;

    #[test]
    fn a_free_page_whose_slot_is_worn_out_stays_free_until_there_is_another_slot() {
        for options in [PoolOptions::direct(None), PoolOptions::exclusive_pages(4096)] {
            let rules = Rules::try_new(&options, &MemoryType::default(), 0).unwrap();
            let mut pool = Pool::try_new(HostMemory::global(), rules, 1).unwrap();
            while let Some(lacking) = pool.lacks().unwrap() {
                assert!(pool.install(lacking.allocate(HostMemory::global()).unwrap()).is_none());
            }
            let fit = rules.fit_usual(1000, 1).unwrap();
            let bytes = pool.begin_growth(&fit, u64::MAX, 0, 0).unwrap();
            let memory = DeviceMemory { size: bytes, ..DeviceMemory::new(1) };
            let slot = pool.commit_growth(memory, &fit).id.slot();
            // The last of all frees that a slot lasts for, while no other slot is left.
            pool.slicer.set_generation(slot, GENERATION_RETIRED - 1);
            pool.free_slot(slot, &Clock::new());
            let mut promised = 0;
            while pool.slicer.has_spare_nodes(1) {
                pool.slicer.promise_spare(1);
                promised += 1;
            }
            assert!(pool.place(&fit).is_none());
            assert_eq!(pool.check(), Ok(()));
            pool.slicer.release_spare(promised);
            let again = pool.place(&fit).unwrap();
            assert_eq!((again.memory, again.id.slot() != slot), (1, true));
            assert_eq!(pool.check(), Ok(()));
        }
    }
}
