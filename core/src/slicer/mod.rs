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
//! 3. the tail,
//! 4. a page that holds nothing,
//! 5. and, in a bounded scan, the rest of its own class.
//!
//! Freeing joins the slice with the holes on either side. Both touch a fixed number of nodes, however many pages,
//! slices and holes there are. Before a request is refused for good, [`Slicer::scan`] walks through every class that
//! could hold it, so nothing that fits is refused.
//!
//! # Invariants (`Slicer::check` verifies them)
//!
//! - The nodes of a page tile it without gap or overlap; no two holes are neighbours; no hole touches the tail.
//! - A hole is in the list of the class of its size, and nothing else is in any list.
//! - One page at a time has a tail: the one that was added, or taken into use again, last. What is left of the tail
//!   before it becomes a hole.
//! - A page that holds nothing is all edge until its owner takes it into use again ([`Slicer::use_page`]) or removes it.
//!   So pages in use are filled first, and a page is cut in the same way each time. Where pages have different sizes,
//!   such edges are in lists of their own by size class.
//! - Node 0 is nobody's: of size 0 and in no list, so that looking at it is harmless, which spares the hot paths their special
//!   cases.
//!
//! Pages that each hold one slice are not cut at all: their one node is a slice or a hole ([`whole`]).

#![deny(unsafe_code)]

pub(crate) mod bins;
mod check;
#[cfg(test)]
mod damage;
pub(crate) mod nodes;
mod pages;
mod search;
#[cfg(test)]
mod tests;
pub(crate) mod timelines;
mod whole;

use crate::allocator::sizing::Needs;
use crate::canary::broken;
use crate::error::Error;
use crate::int::{mask, select};
use crate::metadata::{Chunk, ChunkPlan, HostMemory};
use crate::parts::COMPLETE;
use crate::slots::{GENERATION_RETIRED, SliceId};
use bins::{Bins, class_of};
use nodes::{Kind, Node, Nodes, state};
pub(crate) use search::{Scan, Scanned};

/// Nodes that one operation may need where pages are cut: a front gap, the slice, a page's edge and what is left of the
/// old tail.
const NODES_PER_CUT: u32 = 4;

/// Nodes that a new page needs where it is one slice: that. Using a page again needs none, but for one whose generations
/// are used up.
const NODES_PER_PAGE: u32 = 1;

/// The ranges of all pages of a pool. The owner keeps the pages, the bytes and the lock.
pub(crate) struct Slicer {
    nodes: Nodes,
    bins: Bins,
    /// Edge of the page with the tail; 0 = none.
    tail: u32,
    /// Pages that hold nothing and are not cut from at present.
    idle: u32,
    /// Where all pages are equal: their granules, 0 if none is idle.
    idle_size: u32,
    /// Where they are not: the edges of idle pages by size.
    idle_bins: Option<Bins>,
    tag: u16,
    /// Raised by every change to holes and tail.
    changes: u32,
    live: u32,
    /// Slices that wait for the device, and their granules.
    pending: u32,
    pending_granules: u64,
    /// The first timeline that anything waited for; 0: none.
    timelines: u32,
    /// Pending slices that wait for nothing but to be overwritten, and the last of them.
    scrubs: u32,
    last_scrub: u32,
    /// Counts those that have come to wait so.
    scrub_arrivals: u32,
    holes: u32,
    /// Granules in holes, tail and idle pages.
    free: u64,
    /// Nodes that one operation may need, and that one with a new page may need.
    needs: u32,
    growth_needs: u32,
    /// Nodes promised to growths in flight.
    promised: u32,
}

/// The pages that a slicer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// They are cut, and all of one size.
    Equal,
    /// They are cut, and of any size.
    Unequal,
    /// Each holds one slice.
    Whole,
}

impl Slicer {
    /// A slicer for pages of up to `largest` granules, whose handles carry `tag`.
    pub(crate) fn try_new(memory: HostMemory, largest: u32, pages: PageKind, tag: u16) -> Result<Self, Error> {
        let idle_bins = match pages {
            PageKind::Unequal if COMPLETE => Some(Bins::try_new(memory, largest)?),
            _ => None,
        };
        Ok(Self {
            nodes: Nodes::try_new(memory)?,
            bins: Bins::try_new(memory, largest)?,
            tail: 0,
            idle: 0,
            idle_size: 0,
            idle_bins,
            tag,
            changes: 0,
            live: 0,
            pending: 0,
            pending_granules: 0,
            timelines: 0,
            scrubs: 0,
            last_scrub: 0,
            scrub_arrivals: 0,
            holes: 0,
            free: 0,
            needs: if pages == PageKind::Whole { 0 } else { NODES_PER_CUT },
            growth_needs: if pages == PageKind::Whole { NODES_PER_PAGE } else { NODES_PER_CUT },
            promised: 0,
        })
    }

    /// The most host memory that a slicer asks for with that many slices and pages.
    pub(crate) fn add_needs(
        largest: u32,
        kind: PageKind,
        slices: u32,
        pages: u32,
        needs: &mut Needs,
    ) -> Result<(), Error> {
        Bins::add_needs(largest, needs);
        if kind == PageKind::Unequal {
            Bins::add_needs(largest, needs);
        }
        // Every slice, every page's edge, and a hole in front of each of both; what growths in flight have been promised
        // is at most what their pages will need; and an operation must not find fewer than it may need.
        let nodes = u64::from(slices) * 2 + u64::from(pages) * u64::from(NODES_PER_CUT) + 2 * u64::from(NODES_PER_CUT);
        Nodes::add_needs(nodes, needs)
    }

    // ---- nodes: the host memory is got by the owner, outside its lock

    /// Whether any one operation can be carried out with the nodes at hand.
    #[inline(always)]
    pub(crate) fn has_nodes(&self) -> bool {
        self.nodes.available() >= self.needs + self.promised
    }

    /// The next chunk of nodes to get; an error at the limit of slots.
    pub(crate) fn plan(&self) -> Result<ChunkPlan, Error> {
        self.nodes.plan()
    }

    pub(crate) fn install(&mut self, chunk: Chunk<Node>) -> Option<Chunk<Node>> {
        self.nodes.install(chunk)
    }

    /// Whether there are `count` nodes more than what is promised.
    pub(crate) fn has_spare_nodes(&self, count: u32) -> bool {
        self.nodes.available() >= count.saturating_add(self.promised)
    }

    /// Whether a page can be added and a slice placed in it with the nodes at hand.
    pub(crate) fn has_nodes_for_page(&self) -> bool {
        self.nodes.available() >= self.growth_needs + self.promised
    }

    /// Sets nodes aside so that adding a page and placing a slice in it cannot fail. Needs
    /// [`Slicer::has_nodes_for_page`].
    pub(crate) fn promise_nodes(&mut self) {
        self.promised += self.growth_needs;
    }

    /// Gives up what [`Slicer::promise_nodes`] set aside.
    pub(crate) fn release_promise(&mut self) {
        self.promised -= self.growth_needs;
    }

    /// Sets `count` nodes aside. Needs [`Slicer::has_spare_nodes`].
    pub(crate) fn promise_spare(&mut self, count: u32) {
        self.promised += count;
    }

    /// Gives up what [`Slicer::promise_spare`] set aside.
    pub(crate) fn release_spare(&mut self, count: u32) {
        self.promised -= count;
    }

    // ---- handles

    /// The slot of a live slice. One compare tells; the rest is for the error.
    #[inline(always)]
    pub(crate) fn resolve(&self, id: SliceId) -> Result<u32, Error> {
        if self.is(id, Kind::Live) { Ok(id.slot()) } else { Err(self.refusal(id)) }
    }

    #[inline(always)]
    fn is(&self, id: SliceId, kind: Kind) -> bool {
        let Some(node) = self.nodes.get(id.slot()) else { return false };
        let is = node.state.get() == state(kind, id.generation());
        id.tag() == self.tag && (is || (broken("skip_generation") && node.is(kind)))
    }

    /// The slot of a live slice, whatever has to be done before its memory is free.
    #[cold]
    pub(crate) fn resolve_any(&self, id: SliceId) -> Result<u32, Error> {
        self.resolve_as(id, Kind::Live)
    }

    /// The slot of a slice that a batch has claimed.
    pub(crate) fn resolve_claimed(&self, id: SliceId) -> Result<u32, Error> {
        self.resolve_as(id, Kind::Claimed)
    }

    /// The slot of a slice that is live or claimed: for queries.
    pub(crate) fn resolve_for_query(&self, id: SliceId) -> Result<u32, Error> {
        self.resolve_claimed(id).or_else(|_| self.resolve_any(id))
    }

    fn resolve_as(&self, id: SliceId, kind: Kind) -> Result<u32, Error> {
        match self.nodes.get(id.slot()) {
            Some(node) if id.tag() == self.tag && node.is_any(kind) && node.generation() == id.generation() => {
                Ok(id.slot())
            }
            _ => Err(self.refusal(id)),
        }
    }

    #[cold]
    fn refusal(&self, id: SliceId) -> Error {
        let node = match self.nodes.get(id.slot()) {
            Some(node) if id.tag() == self.tag && id.slot() != 0 => node,
            _ => return Error::ForeignHandle,
        };
        // A slot's generation is that of its slice while it is live or pending, and one more once its memory is free.
        let gone = node.is_any(Kind::Claimed) || node.is_pending();
        let ours = id.generation() < node.generation() || (id.generation() == node.generation() && gone);
        if ours { Error::StaleHandle } else { Error::ForeignHandle }
    }

    /// The handle of a live slot.
    #[inline(always)]
    pub(crate) fn id(&self, slot: u32) -> SliceId {
        self.id_of(slot, &self.nodes[slot])
    }

    /// The handle of a live slot whose node is at hand.
    #[inline(always)]
    pub(crate) fn id_of(&self, slot: u32, node: &Node) -> SliceId {
        SliceId::pack(self.tag, node.generation(), slot)
    }

    #[inline(always)]
    pub(crate) fn node(&self, slot: u32) -> &Node {
        &self.nodes[slot]
    }

    /// Marks a live slice as about to be freed by a batch, so that nobody else frees it.
    pub(crate) fn claim(&mut self, slot: u32) {
        debug_assert!(self.nodes[slot].is_any(Kind::Live));
        self.nodes[slot].change_kind(Kind::Claimed);
    }

    /// Undoes [`Slicer::claim`].
    pub(crate) fn unclaim(&mut self, slot: u32) {
        debug_assert!(self.nodes[slot].is_any(Kind::Claimed));
        self.nodes[slot].change_kind(Kind::Live);
    }

    /// The nodes that were ever used, with their numbers.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (u32, &Node)> {
        self.nodes.iter()
    }

    /// The first node at or above a number, with its own.
    pub(crate) fn node_from(&self, index: u32) -> Option<(u32, &Node)> {
        self.nodes.index_from(index).map(|index| (index, &self.nodes[index]))
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
        let (hole, class) = Self::find(&self.nodes, &self.bins, size);
        if hole != 0 {
            self.carve(hole, class, size)
        } else if self.nodes[self.tail].size.get() >= size {
            self.carve_tail(size)
        } else {
            0
        }
    }

    /// [`Slicer::allocate`] off the hot path.
    #[inline(never)]
    pub(crate) fn allocate_elsewhere(&mut self, size: u32, align_mask: u32) -> u32 {
        if align_mask != 0 {
            return self.allocate_aligned(size, align_mask);
        }
        match Self::find(&self.nodes, &self.bins, size) {
            (0, _) => self.allocate_from_tail(size, 0),
            (hole, _) => self.carve_elsewhere(hole, size),
        }
    }

    /// Whether [`Slicer::allocate`] would find room.
    #[cold]
    pub(crate) fn fits_at_once(&self, size: u32, align_mask: u32) -> bool {
        self.find_aligned(size, align_mask).is_some() || gap_in(&self.nodes[self.tail], size, align_mask).is_some()
    }

    /// Steps 1 and 2 of the search: a range in `bins` of at least `size` granules, 0 if there is none in sight; its class.
    #[cfg_attr(feature = "complete", inline(always))]
    #[cfg_attr(not(feature = "complete"), inline(never))]
    fn find(nodes: &Nodes, bins: &Bins, size: u32) -> (u32, u32) {
        let class = class_of(size);
        let first = bins.first(class);
        let node = &nodes[first];
        if node.size.get() >= size {
            return (first, class);
        }
        // Of one that is alone in its class it is the same again.
        let second = node.link_b.get();
        if nodes[second].size.get() >= size {
            return (second, class);
        }
        let class = bins.at_or_above(class + 1);
        (bins.first(class), class)
    }

    /// Alignment above the granule: the gap in front of the slice stays free.
    #[inline(never)]
    fn allocate_aligned(&mut self, size: u32, align_mask: u32) -> u32 {
        match self.find_aligned(size, align_mask) {
            Some((hole, gap)) => self.carve_behind(hole, gap, size),
            None => self.allocate_from_tail(size, align_mask),
        }
    }

    /// Up to two holes of each class that may fit by luck, then one that fits for sure; and where in it.
    #[inline(always)]
    fn find_aligned(&self, size: u32, align_mask: u32) -> Option<(u32, u32)> {
        // Any hole of this size or more holds the slice wherever it begins.
        let sure = u64::from(size) + u64::from(align_mask);
        let sure_class = if sure > u64::from(u32::MAX) { self.bins.classes() } else { class_of(sure as u32) + 1 };
        let mut class = self.bins.at_or_above(class_of(size));
        while class != 0 && class < sure_class {
            let first = self.bins.first(class);
            let second = self.nodes[first].link_b.get();
            for hole in [first, second] {
                if let Some(gap) = gap_in(&self.nodes[hole], size, align_mask) {
                    return Some((hole, gap));
                }
            }
            class = self.bins.at_or_above(class + 1);
        }
        let hole = if class == 0 { return None } else { self.bins.first(class) };
        gap_in(&self.nodes[hole], size, align_mask).map(|gap| (hole, gap))
    }

    /// Places a slice in the tail; 0 if it does not fit there.
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

    /// Takes the first `size` granules of a hole of `class`.
    #[inline(always)]
    fn carve(&mut self, hole: u32, class: u32, size: u32) -> u32 {
        let (nodes, bins) = (&self.nodes, &mut self.bins);
        let old = &nodes[hole];
        debug_assert!(old.is(Kind::Hole) && old.size.get() >= size && class_of(old.size.get()) == class);
        bins.unlink_of(class, nodes, hole, old);
        let rest = old.size.get() - size;
        if rest == 0 {
            return self.fill(hole);
        }
        let slot = self.nodes.take();
        let (nodes, bins) = (&self.nodes, &mut self.bins);
        let (new, old) = (&nodes[slot], &nodes[hole]);
        let before = old.prev.get();
        new.set(Kind::Live, old.page.get(), old.offset.get(), size);
        new.set_neighbours(before, hole);
        nodes[before].next.set(slot);
        old.prev.set(slot);
        old.offset.set(old.offset.get() + size);
        old.size.set(rest);
        bins.link(nodes, hole, old);
        self.note_allocated(size);
        slot
    }

    /// Makes a slice of all of a hole, which is in no list any more.
    #[inline(always)]
    fn fill(&mut self, hole: u32) -> u32 {
        self.holes -= 1;
        self.note_allocated(self.nodes[hole].size.get());
        let node = &self.nodes[hole];
        if node.generation() == GENERATION_RETIRED {
            return self.replace(hole);
        }
        node.set_kind(Kind::Live);
        hole
    }

    /// Makes a slice of all of a hole whose node's generations are used up; its slot.
    #[cold]
    fn replace(&mut self, hole: u32) -> u32 {
        let slot = self.nodes.take();
        let (old, new) = (&self.nodes[hole], &self.nodes[slot]);
        new.set(Kind::Live, old.page.get(), old.offset.get(), old.size.get());
        // A page of one slice is its own neighbour.
        let alone = mask(old.prev.get() == hole);
        new.set_neighbours(select(alone, slot, old.prev.get()), select(alone, slot, old.next.get()));
        self.nodes[new.prev.get()].next.set(slot);
        self.nodes[new.next.get()].prev.set(slot);
        self.nodes.put(hole, old);
        slot
    }

    /// [`Slicer::carve`] off the hot path.
    #[inline(never)]
    fn carve_elsewhere(&mut self, hole: u32, size: u32) -> u32 {
        self.carve(hole, class_of(self.nodes[hole].size.get()), size)
    }

    /// Takes the first `size` granules of the tail.
    #[inline(always)]
    fn carve_tail(&mut self, size: u32) -> u32 {
        let slot = self.nodes.take();
        let nodes = &self.nodes;
        let (new, tail) = (&nodes[slot], &nodes[self.tail]);
        debug_assert!(self.tail != 0 && tail.size.get() >= size);
        new.set(Kind::Live, tail.page.get(), tail.offset.get(), size);
        new.set_neighbours(tail.prev.get(), self.tail);
        // In an empty ring the edge is its own neighbour on both sides.
        nodes[tail.prev.get()].next.set(slot);
        tail.prev.set(slot);
        tail.offset.set(tail.offset.get() + size);
        tail.size.set(tail.size.get() - size);
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
    #[inline(never)]
    fn carve_behind(&mut self, hole: u32, gap: u32, size: u32) -> u32 {
        if gap != 0 {
            let node = &self.nodes[hole];
            let offset = node.offset.get();
            self.bins.unlink(&self.nodes, hole, node);
            node.offset.set(offset + gap);
            node.size.set(node.size.get() - gap);
            self.bins.link(&self.nodes, hole, node);
            self.insert_hole_before(hole, offset, gap);
        }
        self.carve_elsewhere(hole, size)
    }

    fn cut_gap_from_tail(&mut self, gap: u32) {
        let tail = &self.nodes[self.tail];
        let offset = tail.offset.get();
        tail.offset.set(offset + gap);
        tail.size.set(tail.size.get() - gap);
        if broken("swallow_gap") {
            return;
        }
        self.insert_hole_before(self.tail, offset, gap);
    }

    /// Makes a hole of memory that no node covers, in front of `next`.
    fn insert_hole_before(&mut self, next: u32, offset: u32, size: u32) {
        let slot = self.nodes.take();
        let (new, behind) = (&self.nodes[slot], &self.nodes[next]);
        let prev = behind.prev.get();
        new.set(Kind::Hole, behind.page.get(), offset, size);
        new.set_neighbours(prev, next);
        self.nodes[prev].next.set(slot);
        behind.prev.set(slot);
        self.bins.link(&self.nodes, slot, new);
        self.holes += 1;
    }

    // ---- freeing

    /// Frees a slice and joins it with the holes on either side.
    ///
    /// This is the one way from live (or claimed) to free; it raises the slot's generation. Answers the edge of the
    /// slice's page if the page holds nothing any more, else 0; the owner then calls [`Slicer::set_page_idle`].
    #[inline(always)]
    pub(crate) fn free(&mut self, slot: u32) -> u32 {
        let (nodes, bins) = (&self.nodes, &mut self.bins);
        let node = &nodes[slot];
        debug_assert!(node.is_slice() && node.generation() < GENERATION_RETIRED);
        let (prev, next) = (node.prev.get(), node.next.get());
        let (low, high) = (&nodes[prev], &nodes[next]);
        let freed = node.size.get();
        self.holes += 1;
        let (mut before, mut after) = (prev, next);
        if low.is(Kind::Hole) {
            bins.unlink(nodes, prev, low);
            node.offset.set(low.offset.get());
            node.size.set(node.size.get() + low.size.get());
            before = low.prev.get();
            node.prev.set(before);
            nodes[before].next.set(slot);
            nodes.put(prev, low);
            self.holes -= 1;
        }
        if high.is(Kind::Hole) && !broken("no_coalescing") {
            bins.unlink(nodes, next, high);
            node.size.set(node.size.get() + high.size.get());
            after = high.next.get();
            node.next.set(after);
            nodes[after].prev.set(slot);
            nodes.put(next, high);
            self.holes -= 1;
        }
        node.state.set(state(Kind::Hole, node.generation() + 1));
        self.live -= 1;
        self.free += u64::from(freed);
        self.changes = self.changes.wrapping_add(1);
        if after == self.tail || before == after {
            return self.absorb_into_edge(slot, after);
        }
        self.bins.link(&self.nodes, slot, node);
        0
    }

    /// A hole that touches the tail becomes part of it, and so does one that is a whole page.
    #[inline(never)]
    fn absorb_into_edge(&mut self, hole: u32, edge: u32) -> u32 {
        let (node, end) = (&self.nodes[hole], &self.nodes[edge]);
        let before = node.prev.get();
        end.offset.set(node.offset.get());
        end.size.set(end.size.get() + node.size.get());
        end.prev.set(before);
        self.nodes[before].next.set(edge);
        self.nodes.put(hole, node);
        self.holes -= 1;
        edge & mask(before == edge)
    }

    // ---- figures

    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    pub(crate) fn pending(&self) -> u32 {
        self.pending
    }

    pub(crate) fn pending_granules(&self) -> u64 {
        self.pending_granules
    }

    /// Free ranges: holes, idle pages, and the tail if it is not empty.
    pub(crate) fn free_ranges(&self) -> u32 {
        self.holes + self.idle + u32::from(self.nodes[self.tail].size.get() != 0)
    }

    /// Granules in holes, tail and idle pages.
    pub(crate) fn free_granules(&self) -> u64 {
        self.free
    }

    /// Bytes of host memory held.
    pub(crate) fn bytes(&self) -> u64 {
        self.nodes.bytes() + self.bins.bytes() + self.idle_bins.as_ref().map_or(0, Bins::bytes)
    }

    /// Sets the generation of an unused or live slot: for tests of what happens after 16.7 million frees.
    #[cfg(test)]
    pub(crate) fn set_generation(&mut self, slot: u32, generation: u32) {
        let node = &self.nodes[slot];
        node.state.set((node.state.get() >> nodes::KIND_SHIFT << nodes::KIND_SHIFT) | generation);
    }
}

/// Granules between the start of a free range and the first place in it where the request fits, if there is one.
#[inline(always)]
fn gap_in(node: &Node, size: u32, align_mask: u32) -> Option<u32> {
    let align_mask = if broken("ignore_alignment") { 0 } else { align_mask };
    let gap = node.offset.get().wrapping_neg() & align_mask;
    (u64::from(gap) + u64::from(size) <= u64::from(node.size.get())).then_some(gap)
}
