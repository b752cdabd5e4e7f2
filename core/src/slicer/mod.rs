//! Out-of-band slicing and coalescing over all pages of a pool, in granules.
//!
//! # The algorithm
//!
//! Every range of every page (slice, hole, the page's untouched tail) is a 32-byte [`Node`]. The nodes of a page form
//! a ring in address order, closed by the page's *edge*, which stands for the tail. Holes of all pages together are
//! kept in lists by size class, under one bitmap ([`bins`]).
//!
//! Allocating looks at
//! 1. two holes of the request's own class, which may be large enough,
//! 2. the first hole of the next class above that has one, which always is,
//! 3. the tail of the newest page,
//! 4. and, in a bounded scan, the rest of its own class.
//!
//! Freeing joins the slice with the holes on either side. Both touch a fixed number of nodes, however many pages,
//! slices and holes there are. Before a request is refused for good, [`Slicer::scan`] walks through every class that
//! could hold it, so nothing that fits is refused.
//!
//! # Invariants (`Slicer::check` verifies them)
//!
//! - The nodes of a page tile it without gap or overlap; no two holes are neighbours; no hole touches the tail.
//! - A hole is in the list of the class of its size, and nothing else is in any list.
//! - Only the newest page has a tail. When another page is added, the rest of the old tail becomes a hole.
//! - Node 0 is nobody's: writes to it are harmless, which spares the hot paths their special cases.

#![forbid(unsafe_code)]

pub(crate) mod bins;
mod check;
pub(crate) mod nodes;

use crate::error::Error;
use crate::int::{mask, select};
use crate::metadata::{Chunk, ChunkPlan, HostMemory};
use crate::slots::{GENERATION_RETIRED, SliceId};
use bins::{Bins, class_of};
use nodes::{Kind, Node, Nodes, state};

/// Nodes that one operation may need: a front gap, the slice, a page's edge and what is left of the old tail.
pub(crate) const NODES_PER_OPERATION: u32 = 4;

/// Entries of one list that are looked at before the lock is given up (or another page is taken).
pub(crate) const SCAN_STEP: u32 = 64;

/// Where a search left off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scan {
    class: u32,
    node: u32,
    /// Value of [`Slicer::changes`] that `node` belongs to.
    changes: u32,
    /// Entries to look at per call. Doubles whenever the search has to start again, so that it ends however busy
    /// other threads are.
    step: u32,
    /// Entries left to look at, over all calls.
    budget: u32,
}

/// What one call of [`Slicer::scan`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// The slot of the new slice.
    Placed(u32),
    /// Nothing fits.
    Nothing,
    /// There is more to look at; call again.
    More(Scan),
}

pub(crate) struct Slicer {
    nodes: Nodes,
    bins: Bins,
    /// Edge of the page with the tail; 0 = no page.
    tail: u32,
    /// Least class of a page, higher than any class while there is none: larger holes may be whole pages.
    page_class: u32,
    tag: u16,
    /// Raised by every change to holes and tail.
    changes: u32,
    live: u32,
    holes: u32,
    /// Granules in holes and tail.
    free: u64,
    /// Pages added and not removed.
    pages: u32,
    /// Nodes promised to growths in flight.
    promised: u32,
}

impl Slicer {
    /// A slicer for pages of up to `largest` granules, whose handles carry `tag`.
    pub(crate) fn try_new(memory: HostMemory, largest: u32, tag: u16) -> Result<Self, Error> {
        Ok(Self {
            nodes: Nodes::try_new(memory)?,
            bins: Bins::try_new(memory, largest)?,
            tail: 0,
            page_class: u32::MAX,
            tag,
            changes: 0,
            live: 0,
            holes: 0,
            free: 0,
            pages: 0,
            promised: 0,
        })
    }

    // ---- nodes: the host memory is got by the owner, outside its lock

    /// Whether any one operation can be carried out with the nodes at hand.
    #[inline(always)]
    pub(crate) fn has_nodes(&self) -> bool {
        self.nodes.available() >= NODES_PER_OPERATION + self.promised
    }

    /// The next chunk of nodes to get; an error at the limit of slots.
    pub(crate) fn plan(&self) -> Result<ChunkPlan, Error> {
        self.nodes.plan().ok_or(Error::TooManySlices { limit: crate::metadata::CHUNKED_LIMIT - 1 })
    }

    pub(crate) fn install(&mut self, chunk: Chunk<Node>) -> Option<Chunk<Node>> {
        self.nodes.install(chunk)
    }

    /// Sets nodes aside so that adding a page and placing a slice in it cannot fail. Needs [`Slicer::has_nodes`].
    pub(crate) fn promise_nodes(&mut self) {
        self.promised += NODES_PER_OPERATION;
    }

    /// Gives up what [`Slicer::promise_nodes`] set aside.
    pub(crate) fn release_promise(&mut self) {
        self.promised -= NODES_PER_OPERATION;
    }

    // ---- handles

    /// The slot of a live slice. One compare tells; the rest is for the error.
    #[inline(always)]
    pub(crate) fn resolve(&self, id: SliceId) -> Result<u32, Error> {
        let slot = id.slot();
        if id.tag() == self.tag && slot < self.nodes.len() {
            let is = self.nodes[slot].state;
            if is == state(Kind::Live, id.generation()) || canary_skips_the_generation(is) {
                return Ok(slot);
            }
        }
        Err(self.refusal(id))
    }

    /// The slot of a slice that is live or claimed: for queries.
    pub(crate) fn resolve_for_query(&self, id: SliceId) -> Result<u32, Error> {
        let slot = id.slot();
        let claimed = id.tag() == self.tag
            && slot < self.nodes.len()
            && self.nodes[slot].state == state(Kind::Claimed, id.generation());
        if claimed { Ok(slot) } else { self.resolve(id) }
    }

    #[cold]
    fn refusal(&self, id: SliceId) -> Error {
        let slot = id.slot();
        if id.tag() != self.tag || slot == 0 || slot >= self.nodes.len() {
            return Error::ForeignHandle;
        }
        // A slot's generation is that of its slice while it is live, and one more once that is freed.
        let node = &self.nodes[slot];
        let ours =
            id.generation() < node.generation() || (id.generation() == node.generation() && node.is(Kind::Claimed));
        if ours { Error::StaleHandle } else { Error::ForeignHandle }
    }

    /// The handle of a live slot.
    #[inline(always)]
    pub(crate) fn id(&self, slot: u32) -> SliceId {
        SliceId::pack(self.tag, self.nodes[slot].generation(), slot)
    }

    #[inline(always)]
    pub(crate) fn node(&self, slot: u32) -> &Node {
        &self.nodes[slot]
    }

    /// Bytes by which a slice is larger than what was asked for.
    #[inline(always)]
    pub(crate) fn set_padding(&mut self, slot: u32, padding: u32) {
        self.nodes[slot].link_a = padding;
    }

    /// Marks a live slice as about to be freed by a batch, so that nobody else frees it.
    pub(crate) fn claim(&mut self, slot: u32) {
        let node = &mut self.nodes[slot];
        debug_assert!(node.is(Kind::Live));
        node.state = state(Kind::Claimed, node.generation());
    }

    /// Undoes [`Slicer::claim`].
    pub(crate) fn unclaim(&mut self, slot: u32) {
        let node = &mut self.nodes[slot];
        debug_assert!(node.is(Kind::Claimed));
        node.state = state(Kind::Live, node.generation());
    }

    /// Slots from 1 up to this have been used.
    pub(crate) fn slots(&self) -> u32 {
        self.nodes.len()
    }

    // ---- allocating

    /// Places a slice of `size` granules at a multiple of `align_mask + 1` granules; its slot, or 0 if nothing was found in
    /// constant time. Needs [`Slicer::has_nodes`].
    #[inline(always)]
    pub(crate) fn allocate(&mut self, size: u32, align_mask: u32) -> u32 {
        debug_assert!(size != 0 && align_mask.wrapping_add(1) & align_mask == 0);
        if align_mask != 0 {
            return self.allocate_aligned(size, align_mask);
        }
        let hole = self.find(size);
        if hole != 0 {
            self.carve(hole, size)
        } else if self.nodes[self.tail].size >= size {
            self.carve_tail(size)
        } else {
            0
        }
    }

    /// Steps 1 and 2 of the search: a hole of at least `size` granules, 0 if there is none in sight.
    #[inline(always)]
    fn find(&self, size: u32) -> u32 {
        let class = class_of(size);
        let first = self.bins.first(class);
        let node = &self.nodes[first];
        if node.size >= size {
            return first;
        }
        let second = node.link_b & mask(first != 0);
        if self.nodes[second].size >= size {
            return second;
        }
        let above = self.bins.at_or_above(class + 1);
        if above >= self.page_class && self.prefers_tail(above, size) {
            return 0;
        }
        self.bins.first(above)
    }

    /// Whether to use the tail rather than break into a page that holds nothing.
    #[cold]
    fn prefers_tail(&self, class: u32, size: u32) -> bool {
        let hole = &self.nodes[self.bins.first(class)];
        hole.prev == hole.next && self.nodes[self.tail].size >= size && self.nodes[self.tail].prev != self.tail
    }

    /// Alignment above the granule: up to two holes of each class that may fit by luck, then one that fits for sure,
    /// then the tail. The gap in front of the slice stays free.
    #[cold]
    #[inline(never)]
    fn allocate_aligned(&mut self, size: u32, align_mask: u32) -> u32 {
        // Any hole of this size or more holds the slice wherever it begins.
        let sure = u64::from(size) + u64::from(align_mask);
        let sure_class = if sure > u64::from(u32::MAX) { self.bins.classes() } else { class_of(sure as u32) + 1 };
        let mut class = self.bins.at_or_above(class_of(size));
        while class != 0 && class < sure_class {
            let first = self.bins.first(class);
            let second = self.nodes[first].link_b;
            for hole in [first, second] {
                if let Some(gap) = gap_in(&self.nodes[hole], size, align_mask) {
                    return self.carve_behind(hole, gap, size);
                }
            }
            class = self.bins.at_or_above(class + 1);
        }
        if class != 0 {
            let hole = self.bins.first(class);
            if let Some(gap) = gap_in(&self.nodes[hole], size, align_mask) {
                return self.carve_behind(hole, gap, size);
            }
        }
        self.allocate_from_tail(size, align_mask)
    }

    /// Places a slice in the tail of the newest page; 0 if it does not fit there.
    pub(crate) fn allocate_from_tail(&mut self, size: u32, align_mask: u32) -> u32 {
        match gap_in(&self.nodes[self.tail], size, align_mask) {
            Some(0) => self.carve_tail(size),
            Some(gap) => {
                self.cut_gap_from_tail(gap);
                self.carve_tail(size)
            }
            None => 0,
        }
    }

    /// Takes the first `size` granules of a hole. Without a branch on whether anything is left of it.
    #[inline(always)]
    fn carve(&mut self, hole: u32, size: u32) -> u32 {
        let old = self.nodes[hole];
        debug_assert!(old.is(Kind::Hole) && old.size >= size);
        self.bins.unlink(&mut self.nodes, hole);
        let rest = old.size - size;
        let left = mask(rest != 0);
        let slot = self.nodes.take();
        let after = select(left, hole, old.next);
        let generation = self.nodes[slot].generation();
        self.nodes[slot] = Node {
            offset: old.offset,
            size,
            page: old.page,
            prev: old.prev,
            next: after,
            link_a: 0,
            link_b: 0,
            state: state(Kind::Live, generation),
        };
        self.nodes[old.prev].next = slot;
        self.nodes[after].prev = slot;
        let remainder = &mut self.nodes[hole];
        remainder.offset = old.offset + size;
        remainder.size = rest;
        self.bins.link(&mut self.nodes, hole & left);
        self.nodes.put(hole & !left);
        self.holes -= u32::from(rest == 0);
        self.note_allocated(size);
        slot
    }

    /// Takes the first `size` granules of the tail.
    #[inline(always)]
    fn carve_tail(&mut self, size: u32) -> u32 {
        let edge = self.tail;
        let slot = self.nodes.take();
        let old = self.nodes[edge];
        debug_assert!(edge != 0 && old.size >= size);
        let generation = self.nodes[slot].generation();
        self.nodes[slot] = Node {
            offset: old.offset,
            size,
            page: old.page,
            prev: old.prev,
            next: edge,
            link_a: 0,
            link_b: 0,
            state: state(Kind::Live, generation),
        };
        // In an empty ring the edge is its own neighbour on both sides.
        self.nodes[old.prev].next = slot;
        let tail = &mut self.nodes[edge];
        tail.prev = slot;
        tail.offset = old.offset + size;
        tail.size = old.size - size;
        self.note_allocated(size);
        slot
    }

    #[inline(always)]
    fn note_allocated(&mut self, size: u32) {
        self.live += 1;
        self.free -= u64::from(size);
        self.changes = self.changes.wrapping_add(1);
    }

    /// Takes `size` granules of a hole from `gap` granules behind its start on.
    fn carve_behind(&mut self, hole: u32, gap: u32, size: u32) -> u32 {
        if gap != 0 {
            let old = self.nodes[hole];
            self.bins.unlink(&mut self.nodes, hole);
            let node = &mut self.nodes[hole];
            node.offset += gap;
            node.size -= gap;
            self.bins.link(&mut self.nodes, hole);
            self.insert_hole_before(hole, old.offset, gap);
        }
        self.carve(hole, size)
    }

    fn cut_gap_from_tail(&mut self, gap: u32) {
        let edge = self.tail;
        let offset = self.nodes[edge].offset;
        let tail = &mut self.nodes[edge];
        tail.offset += gap;
        tail.size -= gap;
        self.insert_hole_before(edge, offset, gap);
    }

    /// Makes a hole of memory that no node covers, in front of `next`.
    fn insert_hole_before(&mut self, next: u32, offset: u32, size: u32) {
        let slot = self.nodes.take();
        let Node { page, prev, .. } = self.nodes[next];
        let generation = self.nodes[slot].generation();
        self.nodes[slot] =
            Node { offset, size, page, prev, next, link_a: 0, link_b: 0, state: state(Kind::Hole, generation) };
        self.nodes[prev].next = slot;
        self.nodes[next].prev = slot;
        self.bins.link(&mut self.nodes, slot);
        self.holes += 1;
    }

    // ---- the exhaustive search

    /// Begins a search through every hole that could hold the request; at most `budget` holes are looked at.
    pub(crate) fn begin_scan(&self, size: u32, budget: u32) -> Scan {
        let class = self.bins.at_or_above(class_of(size));
        Scan { class, node: self.bins.first(class), changes: self.changes, step: SCAN_STEP, budget }
    }

    /// Looks at up to `scan.step` holes and places the slice in the first that fits.
    ///
    /// Only own-class holes need looking at when the alignment is one granule: any hole above would have been found
    /// in constant time. Needs [`Slicer::has_nodes`].
    pub(crate) fn scan(&mut self, size: u32, align_mask: u32, scan: Scan) -> Scanned {
        match self.search(size, align_mask, scan) {
            Searched::Found { hole, gap } => Scanned::Placed(self.carve_behind(hole, gap, size)),
            Searched::Tail => Scanned::Placed(self.allocate_from_tail(size, align_mask)),
            Searched::Nothing => Scanned::Nothing,
            Searched::More(scan) => Scanned::More(scan),
        }
    }

    /// Whether a slice could be placed, without placing it: as [`Slicer::scan`], with 1 for a slot.
    pub(crate) fn would_fit(&self, size: u32, align_mask: u32, scan: Scan) -> Scanned {
        match self.search(size, align_mask, scan) {
            Searched::Found { .. } | Searched::Tail => Scanned::Placed(1),
            Searched::Nothing => Scanned::Nothing,
            Searched::More(scan) => Scanned::More(scan),
        }
    }

    fn search(&self, size: u32, align_mask: u32, mut scan: Scan) -> Searched {
        if scan.changes != self.changes {
            // Something moved since the last call: holes may have come up behind us.
            let step = scan.step.saturating_mul(2);
            scan = Scan { step, ..self.begin_scan(size, scan.budget) };
        }
        if cfg!(slicepool_canary = "refuse_what_fits") {
            scan.budget = 0;
        }
        let mut looked = 0;
        while scan.class != 0 {
            while scan.node != 0 {
                if scan.budget == 0 {
                    return Searched::Nothing;
                }
                if looked == scan.step {
                    return Searched::More(scan);
                }
                if let Some(gap) = gap_in(&self.nodes[scan.node], size, align_mask) {
                    return Searched::Found { hole: scan.node, gap };
                }
                scan.node = self.nodes[scan.node].link_b;
                scan.budget = scan.budget.saturating_sub(1);
                looked += 1;
            }
            scan.class = self.bins.at_or_above(scan.class + 1);
            scan.node = self.bins.first(scan.class);
        }
        if gap_in(&self.nodes[self.tail], size, align_mask).is_some() { Searched::Tail } else { Searched::Nothing }
    }

    /// A free range of at least this many granules exists; 0 if nothing is free. O(1).
    pub(crate) fn largest_bound(&self) -> u32 {
        let class = self.bins.highest();
        let first = self.nodes[self.bins.first(class)].size & mask(class != 0);
        first.max(self.nodes[self.tail].size)
    }

    /// Begins the search for the largest free range.
    pub(crate) fn begin_largest(&self) -> (Scan, u32) {
        let class = self.bins.highest();
        let scan =
            Scan { class, node: self.bins.first(class), changes: self.changes, step: SCAN_STEP, budget: u32::MAX };
        (scan, self.nodes[self.tail].size)
    }

    /// Goes on with it: the largest so far, and where to go on if there is more to look at.
    pub(crate) fn largest(&self, mut scan: Scan, mut largest: u32) -> (u32, Option<Scan>) {
        if scan.changes != self.changes {
            let step = scan.step.saturating_mul(2);
            (scan, largest) = self.begin_largest();
            scan.step = step;
        }
        let mut looked = 0;
        while scan.node != 0 {
            if looked == scan.step {
                return (largest, Some(scan));
            }
            let node = &self.nodes[scan.node];
            largest = largest.max(node.size);
            scan.node = node.link_b;
            looked += 1;
        }
        (largest, None)
    }

    // ---- freeing

    /// Frees a slice and joins it with the holes on either side. Without a branch on which of them there are.
    ///
    /// This is the one way from live (or claimed) to free; it raises the slot's generation. Answers the edge of the
    /// slice's page if the page holds nothing any more, else 0.
    #[inline(always)]
    pub(crate) fn free(&mut self, slot: u32) -> u32 {
        let node = self.nodes[slot];
        debug_assert!(node.is(Kind::Live) || node.is(Kind::Claimed));
        debug_assert!(node.generation() < GENERATION_RETIRED);
        let before_is_hole = mask(self.nodes[node.prev].is(Kind::Hole));
        let after_is_hole = mask(self.nodes[node.next].is(Kind::Hole) && !cfg!(slicepool_canary = "no_coalescing"));
        let before = node.prev & before_is_hole;
        let after = node.next & after_is_hole;
        self.bins.unlink(&mut self.nodes, before);
        self.bins.unlink(&mut self.nodes, after);
        let (low, high) = (&self.nodes[before], &self.nodes[after]);
        let offset = select(before_is_hole, low.offset, node.offset);
        let size = node.size + (low.size & before_is_hole) + (high.size & after_is_hole);
        let prev = select(before_is_hole, low.prev, node.prev);
        let next = select(after_is_hole, high.next, node.next);
        self.nodes[slot] = Node {
            offset,
            size,
            page: node.page,
            prev,
            next,
            link_a: 0,
            link_b: 0,
            state: state(Kind::Hole, node.generation() + 1),
        };
        self.nodes[prev].next = slot;
        self.nodes[next].prev = slot;
        self.nodes.put(before);
        self.nodes.put(after);
        self.live -= 1;
        self.free += u64::from(node.size);
        self.holes = self.holes + 1 - (before_is_hole & 1) - (after_is_hole & 1);
        self.changes = self.changes.wrapping_add(1);
        if next == self.tail {
            return self.absorb_into_tail(slot);
        }
        self.bins.link(&mut self.nodes, slot);
        // Alone in the ring with the edge: the page holds nothing.
        select(mask(prev == next), next, 0)
    }

    /// A hole that touches the tail becomes part of it.
    #[inline]
    fn absorb_into_tail(&mut self, hole: u32) -> u32 {
        let edge = self.tail;
        let Node { offset, size, prev, .. } = self.nodes[hole];
        let tail = &mut self.nodes[edge];
        tail.offset = offset;
        tail.size += size;
        tail.prev = prev;
        self.nodes[prev].next = edge;
        self.nodes.put(hole);
        self.holes -= 1;
        select(mask(prev == edge), edge, 0)
    }

    // ---- resizing in place

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

    // ---- pages

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

    // ---- figures

    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// Free ranges, the tail counted as one if it is not empty.
    pub(crate) fn free_ranges(&self) -> u32 {
        self.holes + u32::from(self.nodes[self.tail].size != 0)
    }

    /// Granules in holes and tail.
    pub(crate) fn free_granules(&self) -> u64 {
        self.free
    }

    /// Bytes of host memory held.
    pub(crate) fn bytes(&self) -> u64 {
        self.nodes.bytes() + self.bins.bytes()
    }

    /// Sets the generation of an unused or live slot: for tests of what happens after 16.7 million frees.
    #[cfg(test)]
    pub(crate) fn set_generation(&mut self, slot: u32, generation: u32) {
        let node = &mut self.nodes[slot];
        node.state = (node.state >> nodes::KIND_SHIFT << nodes::KIND_SHIFT) | generation;
    }
}

enum Searched {
    Found { hole: u32, gap: u32 },
    Tail,
    Nothing,
    More(Scan),
}

/// Granules between the start of a free range and the first place in it where the request fits, if there is one.
#[inline(always)]
fn gap_in(node: &Node, size: u32, align_mask: u32) -> Option<u32> {
    let gap = node.offset.wrapping_neg() & align_mask;
    (u64::from(gap) + u64::from(size) <= u64::from(node.size)).then_some(gap)
}

/// A canary that the model test must notice: accept a handle whatever its generation.
#[inline(always)]
fn canary_skips_the_generation(is: u32) -> bool {
    cfg!(slicepool_canary = "skip_generation") && is >> nodes::KIND_SHIFT == Kind::Live as u32
}
