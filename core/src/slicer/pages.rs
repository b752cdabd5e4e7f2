//! What happens to the ranges of a page as a whole: adding, removing, lengthening, clearing, and resizing a slice.
#![forbid(unsafe_code)]

use super::Slicer;
use super::bins::class_of;
use super::nodes::{Kind, Node, state};
use crate::error::Error;
use crate::metadata::HostMemory;

impl Slicer {
    /// Adds a page of `size` granules and returns its edge. Its memory is the new tail; what is left of the old tail
    /// becomes a hole. Needs [`Slicer::has_nodes`].
    pub(crate) fn add_page(&mut self, page: u32, size: u32) -> u32 {
        let old = self.tail;
        if old != 0 {
            let Node { offset, size, .. } = self.nodes[old];
            self.nodes[old].offset = offset + size;
            self.nodes[old].size = 0;
            // From here on the old edge is no tail, so that the hole in front of it stays one.
            self.tail = 0;
            if size != 0 {
                self.insert_hole_before(old, offset, size);
            }
        }
        let edge = self.nodes.take();
        let generation = self.nodes[edge].generation();
        self.nodes[edge] = Node {
            offset: 0,
            size,
            page,
            prev: edge,
            next: edge,
            link_a: 0,
            link_b: 0,
            state: state(Kind::Edge, generation),
        };
        self.tail = edge;
        self.pages += 1;
        let class = class_of(size);
        self.page_class = self.page_class.min(class);
        self.free += u64::from(size);
        self.changes = self.changes.wrapping_add(1);
        edge
    }

    /// Makes the tail `additional` granules longer. For a space, which is one page.
    pub(crate) fn extend_tail(&mut self, memory: HostMemory, additional: u32) -> Result<(), Error> {
        let tail = self.tail;
        let total = self.nodes[tail].end() + additional;
        self.bins.widen(memory, total)?;
        self.nodes[tail].size += additional;
        self.free += u64::from(additional);
        self.changes = self.changes.wrapping_add(1);
        Ok(())
    }

    /// Removes a page that holds nothing.
    pub(crate) fn remove_page(&mut self, edge: u32) {
        let Node { prev, next, size, .. } = self.nodes[edge];
        debug_assert!(prev == next, "the page is in use");
        let mut free = size;
        if prev != edge {
            free = self.nodes[prev].size;
            debug_assert!(self.nodes[prev].is(Kind::Hole));
            self.bins.unlink(&mut self.nodes, prev);
            self.nodes.put(prev);
            self.holes -= 1;
        }
        self.nodes.put(edge);
        if edge == self.tail {
            self.tail = 0;
        }
        self.pages -= 1;
        if self.pages == 0 {
            self.page_class = u32::MAX;
        }
        self.free -= u64::from(free);
        self.changes = self.changes.wrapping_add(1);
    }

    /// Whether a page holds nothing.
    #[inline(always)]
    pub(crate) fn page_is_idle(&self, edge: u32) -> bool {
        let edge_node = &self.nodes[edge];
        edge_node.prev == edge_node.next && (edge_node.prev == edge || self.nodes[edge_node.prev].is(Kind::Hole))
    }

    /// Frees every slice of the one page there is, in O(slots): all handles become stale.
    pub(crate) fn clear(&mut self) {
        let edge = self.tail;
        for slot in 1..self.nodes.len() {
            let node = &mut self.nodes[slot];
            if slot == edge || node.is(Kind::Unused) {
                continue;
            }
            if node.is(Kind::Live) || node.is(Kind::Claimed) {
                node.state = state(Kind::Live, node.generation() + 1);
            }
            self.nodes.put(slot);
        }
        self.bins.clear();
        let tail = &mut self.nodes[edge];
        tail.size += tail.offset;
        tail.offset = 0;
        tail.prev = edge;
        tail.next = edge;
        self.free = u64::from(tail.size);
        self.live = 0;
        self.holes = 0;
        self.changes = self.changes.wrapping_add(1);
    }

    /// Granules a slice could have where it lies.
    pub(crate) fn available_at(&self, slot: u32) -> u64 {
        let node = &self.nodes[slot];
        let next = &self.nodes[node.next];
        let behind = if next.is(Kind::Hole) || node.next == self.tail { next.size } else { 0 };
        u64::from(node.size) + u64::from(behind)
    }

    /// Grows or shrinks a slice without moving it. `size` is at most [`Slicer::available_at`] and not 0.
    /// Needs [`Slicer::has_nodes`].
    pub(crate) fn resize(&mut self, slot: u32, size: u32) {
        let node = self.nodes[slot];
        if size == node.size {
            return;
        }
        self.changes = self.changes.wrapping_add(1);
        self.free = self.free + u64::from(node.size) - u64::from(size);
        let next = self.nodes[node.next];
        self.nodes[slot].size = size;
        // What lies behind the slice from now on: its end moves to `start`, its length changes by the difference.
        let start = node.offset + size;
        if node.next == self.tail {
            let tail = &mut self.nodes[node.next];
            tail.size = tail.offset + tail.size - start;
            tail.offset = start;
        } else if next.is(Kind::Hole) {
            self.bins.unlink(&mut self.nodes, node.next);
            let rest = next.end() - start;
            if rest == 0 {
                self.nodes[slot].next = next.next;
                self.nodes[next.next].prev = slot;
                self.nodes.put(node.next);
                self.holes -= 1;
            } else {
                let hole = &mut self.nodes[node.next];
                hole.offset = start;
                hole.size = rest;
                self.bins.link(&mut self.nodes, node.next);
            }
        } else {
            debug_assert!(size < node.size);
            self.insert_hole_before(node.next, start, node.size - size);
        }
    }
}
