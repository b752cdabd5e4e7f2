//! Looking at a pool: what is where, figures, and whether the books are right.
#![forbid(unsafe_code)]

use super::page::State;
use super::{Kind, Page, Pool};
use crate::report::Statistics;
use crate::slicer::nodes::Node;
use crate::slots::SliceId;

/// A range of a pool as [`Allocator::walk`](crate::Allocator::walk) shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Index of the pool.
    pub pool: u32,
    /// Index of the memory type.
    pub memory_type: u32,
    /// The slice's handle, `None` for free memory and for slices that wait for the device.
    pub id: Option<SliceId>,
    /// Whether it is a slice that was freed but waits for the device.
    pub pending: bool,
    /// Handle of the page's device memory.
    pub memory: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Bytes of the range.
    pub size: u64,
    /// Bytes asked for by a live slice, otherwise 0.
    pub requested: u64,
    /// Address of the range as the device sees it, 0 if the device gives none.
    pub address: u64,
}

impl Pool {
    /// Host bytes of what finds free pages by their size.
    fn index_bytes(&self) -> u64 {
        self.by_size.bytes() + self.by_size.iter().map(|index| index.bytes()).sum::<u64>()
    }

    /// The range of a slot, `None` if the slot is neither slice nor free memory.
    #[cold]
    pub(crate) fn range(&self, pool: u32, slot: u32, node: &Node) -> Option<Range> {
        let live = node.is_slice();
        let pending = node.is_pending();
        if !live && !pending && !node.is_free() {
            return None;
        }
        let (offset, size) =
            (self.rules.bytes(self.slicer.offset_of(node)), self.rules.bytes(self.slicer.size_of(node)));
        let memory = &self.pages[node.page.get()].memory;
        Some(Range {
            pool,
            memory_type: self.rules.memory_type,
            id: live.then(|| self.slicer.id(slot)),
            pending,
            memory: memory.handle,
            offset,
            size,
            requested: if live { size.saturating_sub(self.padding_of(node)) } else { 0 },
            address: memory.address_at(offset),
        })
    }

    /// Bytes by which a slice is larger than what was asked for.
    pub(super) fn padding_of(&self, node: &Node) -> u64 {
        if self.rules.cuts() { u64::from(node.link_a.get()) } else { Self::whole_padding(node) }
    }

    /// A free range of at least this many bytes exists.
    pub(super) fn largest_bound(&self) -> u64 {
        match &self.rules.kind {
            Kind::Direct(_) => self.pages.newest_idle().map_or(0, |index| self.pages[index].memory.size),
            _ => self.rules.bytes(self.slicer.largest_bound()),
        }
    }

    #[cold]
    pub(crate) fn statistics(&self) -> Statistics {
        let (pages_unmapped, unmapped) = self.pages.unmapped();
        Statistics {
            reserved: self.pages.reserved(),
            in_use: self.in_use,
            padding: self.padding,
            pending: self.pending_bytes(),
            free: self.slicer.free_granules() << self.rules.granule_shift,
            leaving: self.pages.leaving(),
            stuck: self.pages.stuck_bytes(),
            unmapped,
            reserved_peak: self.reserved_peak,
            in_use_peak: self.in_use_peak,
            largest_allocation: self.largest_allocation,
            largest_free_bound: self.largest_bound(),
            metadata: self.slicer.bytes() + self.pages.bytes() + self.index_bytes() + self.label_bytes(),
            device_allocations: self.device_allocations,
            device_deallocations: self.device_deallocations,
            slices: self.slicer.live(),
            slices_pending: self.slicer.pending(),
            free_ranges: self.slicer.free_ranges(),
            pages: self.pages.count(),
            pages_idle: self.pages.idle_count(),
            pages_stuck: self.pages.stuck_count(),
            pages_unmapped,
            pages_peak: self.pages_peak,
            growths_in_flight: self.growing,
        }
    }

    /// Verifies every invariant from scratch, in O(slots).
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let pages =
            self.pages.in_slicer().map(|page| (page.edge(), (page.memory.size >> self.rules.granule_shift) as u32));
        let mut next = self.pages.page_from(0);
        while let Some((index, page)) = next {
            if (page.is(State::Busy) || page.is(State::Idle)) && self.slicer.node(page.edge()).page.get() != index {
                return Err("a page's edge is another's");
            }
            next = self.pages.page_from(index + 1);
        }
        let holds_nothing = |page: &Page| match self.rules.cuts() {
            true => self.slicer.page_is_empty(page.edge()),
            false => self.slicer.node(page.edge()).is_free(),
        };
        match self.rules.kind {
            Kind::Sliced(_) => self.slicer.check(pages)?,
            Kind::Exclusive(_) => self.slicer.check_whole(pages, true)?,
            Kind::Direct(_) => {
                self.slicer.check_whole(pages, false)?;
                self.by_size[0].check(&self.slicer, self.pages.idle_count())?;
            }
        }
        self.pages.check()?;
        if self.pages.in_slicer().any(|page| holds_nothing(page) != page.is_idle()) {
            return Err("the idle pages are not those that hold nothing");
        }
        let (mut in_use, mut padding) = (0, 0);
        for range in self.slicer.nodes().filter_map(|(slot, node)| self.range(0, slot, node)) {
            if range.id.is_some() {
                in_use += range.requested;
                padding += range.size - range.requested;
            }
        }
        let figures = self.statistics();
        if (in_use, padding) != (figures.in_use, figures.padding) {
            return Err("the bytes in use differ from a walk");
        }
        if figures.reserved != in_use + padding + figures.pending + figures.free + figures.leaving + figures.stuck {
            return Err("the reserved bytes are not the sum of their parts");
        }
        Ok(())
    }
}
