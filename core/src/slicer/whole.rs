//! Pages that each hold one slice: one node a page, which is the slice, or a hole while the page is free.
//!
//! Nothing is cut and nothing joined. The free ones are found by size, either in the bins or by an index of the owner's.
#![forbid(unsafe_code)]

use super::Slicer;
use super::bins::class_of;
use super::nodes::{Kind, state};
use crate::slots::GENERATION_RETIRED;

impl Slicer {
    /// Adds a page of `size` granules with a slice that fills it; the slice's slot. Needs
    /// [`Slicer::has_nodes_for_page`].
    pub(crate) fn add_whole(&mut self, page: u32, size: u32) -> u32 {
        let slot = self.nodes.take();
        let node = &self.nodes[slot];
        node.set(Kind::Live, page, 0, size);
        node.set_neighbours(slot, slot);
        self.live += 1;
        self.changes = self.changes.wrapping_add(1);
        slot
    }

    /// Frees the slice that fills a page; the node is a hole from now on, in no list yet.
    ///
    /// Like [`Slicer::free`] the one way from live (or claimed) to free; it raises the slot's generation.
    #[inline(always)]
    pub(crate) fn free_whole(&mut self, slot: u32) {
        let node = &self.nodes[slot];
        debug_assert!(node.is_slice() && node.generation() < GENERATION_RETIRED);
        node.state.set(state(Kind::Hole, node.generation() + 1));
        self.live -= 1;
        self.holes += 1;
        self.free += u64::from(node.size.get());
        self.changes = self.changes.wrapping_add(1);
    }

    /// Whether a free page can become a slice: not if the generations of its node are used up and there is no other.
    #[inline(always)]
    pub(crate) fn can_use_whole(&self, hole: u32) -> bool {
        self.nodes[hole].generation() != GENERATION_RETIRED || self.has_nodes_for_page()
    }

    /// Makes a slice of a free page, which is in no list any more; its slot, which is another one if the generations of
    /// this one are used up. Needs [`Slicer::can_use_whole`].
    #[inline(always)]
    pub(crate) fn use_whole(&mut self, hole: u32) -> u32 {
        debug_assert!(self.nodes[hole].is(Kind::Hole));
        self.fill(hole)
    }

    /// Removes a free page, which is in no list any more.
    pub(crate) fn remove_whole(&mut self, hole: u32) {
        let node = &self.nodes[hole];
        debug_assert!(node.is(Kind::Hole));
        self.holes -= 1;
        self.free -= u64::from(node.size.get());
        self.nodes.put(hole, node);
        self.changes = self.changes.wrapping_add(1);
    }

    /// Puts a free page into the list of its class.
    pub(crate) fn link_whole(&mut self, hole: u32) {
        self.bins.link(&self.nodes, hole, &self.nodes[hole]);
    }

    /// Takes a free page out of the list of its class.
    pub(crate) fn unlink_whole(&mut self, hole: u32) {
        self.bins.unlink(&self.nodes, hole, &self.nodes[hole]);
    }

    /// The first free page of the lowest class with pages of at least `size`, where the pages of a class are equal; 0 if
    /// there is none.
    pub(crate) fn find_whole(&self, size: u32) -> u32 {
        let class = class_of(size);
        let hole = self.bins.first(self.bins.at_or_above(class));
        if self.nodes[hole].size.get() >= size { hole } else { self.bins.first(self.bins.at_or_above(class + 1)) }
    }
}
