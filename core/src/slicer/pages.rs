//! What happens to the ranges of a page as a whole: adding, removing, lengthening, clearing, and resizing a slice.
#![forbid(unsafe_code)]

use super::Slicer;
use super::nodes::{Kind, state};
use crate::error::Error;
use crate::metadata::HostMemory;
use crate::parts::COMPLETE;

impl Slicer {
    /// Adds a page of `size` granules and returns its edge. Its memory is the new tail; what is left of the old tail
    /// becomes a hole. Needs [`Slicer::has_nodes`].
    pub(crate) fn add_page(&mut self, page: u32, size: u32) -> u32 {
        let edge = self.add_idle_page(page, size);
        self.use_page(edge);
        edge
    }

    /// Adds a page of `size` granules that is not cut from before [`Slicer::use_page`], and returns its edge. Needs
    /// [`Slicer::has_nodes`].
    pub(crate) fn add_idle_page(&mut self, page: u32, size: u32) -> u32 {
        let edge = self.nodes.take();
        let node = &self.nodes[edge];
        node.set(Kind::Edge, page, 0, size);
        node.set_neighbours(edge, edge);
        self.free += u64::from(size);
        self.set_page_idle(edge);
        edge
    }

    /// Makes a hole of the tail.
    fn close_tail(&mut self) {
        let edge = self.tail;
        if edge == 0 {
            return;
        }
        let node = &self.nodes[edge];
        let (offset, size) = (node.offset.get(), node.size.get());
        node.offset.set(offset + size);
        node.size.set(0);
        self.tail = 0;
        if size != 0 {
            self.insert_hole_before(edge, offset, size);
        }
    }

    /// Makes the tail `additional` granules longer. For a space, which is one page.
    pub(crate) fn extend_tail(&mut self, memory: HostMemory, additional: u32) -> Result<(), Error> {
        let tail = &self.nodes[self.tail];
        self.bins.widen(memory, tail.end() + additional)?;
        tail.size.set(tail.size.get() + additional);
        self.free += u64::from(additional);
        self.changes = self.changes.wrapping_add(1);
        Ok(())
    }

    /// A page holds nothing any more: it is not cut from until [`Slicer::use_page`].
    pub(crate) fn set_page_idle(&mut self, edge: u32) {
        debug_assert!(self.page_is_empty(edge));
        if edge == self.tail {
            self.tail = 0;
        }
        self.idle += 1;
        match &mut self.idle_bins {
            Some(bins) if COMPLETE => bins.link(&self.nodes, edge, &self.nodes[edge]),
            _ => self.idle_size = self.nodes[edge].size.get(),
        }
        self.changes = self.changes.wrapping_add(1);
    }

    /// Takes an idle page into use: its memory is the tail from now on. Needs [`Slicer::has_nodes`].
    pub(crate) fn use_page(&mut self, edge: u32) {
        self.leave_idle(edge);
        self.close_tail();
        self.tail = edge;
        self.changes = self.changes.wrapping_add(1);
    }

    /// Removes an idle page.
    pub(crate) fn remove_page(&mut self, edge: u32) {
        debug_assert!(self.page_is_empty(edge) && edge != self.tail);
        self.leave_idle(edge);
        let node = &self.nodes[edge];
        self.free -= u64::from(node.size.get());
        self.nodes.put(edge, node);
        self.changes = self.changes.wrapping_add(1);
    }

    fn leave_idle(&mut self, edge: u32) {
        self.idle -= 1;
        match &mut self.idle_bins {
            Some(bins) if COMPLETE => bins.unlink(&self.nodes, edge, &self.nodes[edge]),
            _ if self.idle == 0 => self.idle_size = 0,
            _ => {}
        }
    }

    /// An idle page of at least `size` granules, the smallest within its class's bounds; 0 if none is in sight. For pages
    /// that are not equal.
    pub(crate) fn find_idle(&self, size: u32) -> u32 {
        self.idle_bins.as_ref().map_or(0, |bins| Self::find(&self.nodes, bins, size).0)
    }

    /// Whether a page holds nothing.
    pub(crate) fn page_is_empty(&self, edge: u32) -> bool {
        self.nodes[edge].prev.get() == edge
    }

    /// Frees every slice of the one page there is, in O(slots): all handles become stale.
    #[cold]
    pub(crate) fn clear(&mut self) {
        let mut from = 1;
        while let Some(index) = self.nodes.index_from(from) {
            from = index + 1;
            let node = &self.nodes[index];
            if index == self.tail || node.is(Kind::Unused) {
                continue;
            }
            if node.is_slice() {
                node.state.set(state(Kind::Live, node.generation() + 1));
            }
            self.nodes.put(index, node);
        }
        self.bins.clear();
        let tail = &self.nodes[self.tail];
        tail.size.set(tail.end());
        tail.offset.set(0);
        tail.set_neighbours(self.tail, self.tail);
        self.free = u64::from(tail.size.get());
        self.live = 0;
        self.holes = 0;
        self.changes = self.changes.wrapping_add(1);
    }

    /// Granules a slice could have where it lies.
    pub(crate) fn available_at(&self, slot: u32) -> u64 {
        let node = &self.nodes[slot];
        let next = &self.nodes[node.next.get()];
        let behind = if next.is(Kind::Hole) || node.next.get() == self.tail { next.size.get() } else { 0 };
        u64::from(node.size.get()) + u64::from(behind)
    }

    /// Grows or shrinks a slice without moving it. `size` is at most [`Slicer::available_at`] and not 0.
    /// Needs [`Slicer::has_nodes`].
    #[cold]
    pub(crate) fn resize(&mut self, slot: u32, size: u32) {
        let node = &self.nodes[slot];
        let old = node.size.get();
        if size == old {
            return;
        }
        self.changes = self.changes.wrapping_add(1);
        self.free = self.free + u64::from(old) - u64::from(size);
        node.size.set(size);
        // What lies behind the slice begins here from now on.
        let start = node.end();
        let behind = node.next.get();
        let next = &self.nodes[behind];
        if behind == self.tail {
            next.size.set(next.end() - start);
            next.offset.set(start);
        } else if next.is(Kind::Hole) {
            self.bins.unlink(&self.nodes, behind, next);
            let rest = next.end() - start;
            next.offset.set(start);
            next.size.set(rest);
            if rest == 0 {
                node.next.set(next.next.get());
                self.nodes[next.next.get()].prev.set(slot);
                self.nodes.put(behind, next);
                self.holes -= 1;
            } else {
                self.bins.link(&self.nodes, behind, next);
            }
        } else {
            debug_assert!(size < old);
            self.insert_hole_before(behind, start, old - size);
        }
    }
}
