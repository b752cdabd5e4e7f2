//! The 32-byte records of slices and holes, addressed by index.

use crate::allocator::sizing::Needs;
use crate::error::Error;
use crate::metadata::{Chunk, ChunkPlan, Chunked, HostMemory};
use crate::slots::GENERATION_RETIRED;
use core::cell::Cell;
use core::ops::Index;

/// Half a cache line: one range of a page, whether a slice, a hole or the page's edge.
///
/// Cells, so that an operation looks each of its nodes up once and then reads and writes them as it likes.
#[derive(Debug)]
#[repr(C, align(32))]
pub(crate) struct Node {
    /// First granule, counted from the start of the page.
    pub(crate) offset: Cell<u32>,
    /// Granules.
    pub(crate) size: Cell<u32>,
    /// The page's number, given by the owner of the pages.
    pub(crate) page: Cell<u32>,
    /// Neighbours by address; the page's edge closes the ring.
    pub(crate) prev: Cell<u32>,
    pub(crate) next: Cell<u32>,
    /// Hole: the previous of its class, of the first the last. Slice: bytes by which it is larger than what was asked for.
    pub(crate) link_a: Cell<u32>,
    /// Hole: the next of its class, of the last the first. Unused: the next unused.
    pub(crate) link_b: Cell<u32>,
    /// Flags in the top 2 bits, [`Kind`] in the next 6, generation in the others.
    pub(crate) state: Cell<u32>,
}

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Nothing: on the list of unused nodes, or retired.
    Unused = 0,
    /// Free memory, in the list of its class.
    Hole = 1,
    /// A slice that somebody owns.
    Live = 2,
    /// A slice of a batch that is being freed: still counted and queried as live, but nobody else may free it.
    Claimed = 3,
    /// The end of a page: holds its untouched tail, never merges, closes the ring of neighbours.
    Edge = 4,
    /// A slice that was freed but waits for the device. Its size is what lies between it and its neighbour: the field
    /// serves the waiting ([`super::timelines`]).
    Pending = 5,
    /// One of several points that a pending slice waits for.
    Wait = 6,
    /// A timeline, with the queue of what waits for points on it.
    Timeline = 7,
    /// A timeline that was forgotten: keeps its place among the others until another takes it.
    Forgotten = 8,
}

pub(crate) const KIND_SHIFT: u32 = 24;
const KIND_BITS: u32 = 6;
const GENERATION_MASK: u32 = (1 << KIND_SHIFT) - 1;

/// Flag of a slice that is more than a range: something is done with its memory before that is free. Such a slice is not
/// [`Kind::Live`] to the look that the hot paths take, so they lose nothing to it.
pub(crate) const CARE: u32 = 1 << 31;

/// Flag of a slice whose bytes are overwritten before they can be anybody else's. Only together with [`CARE`].
pub(crate) const SCRUB: u32 = 1 << 30;

const FLAGS: u32 = CARE | SCRUB;

impl Node {
    fn new(kind: Kind) -> Self {
        let zero = || Cell::new(0);
        Node {
            offset: zero(),
            size: zero(),
            page: zero(),
            prev: zero(),
            next: zero(),
            link_a: zero(),
            link_b: zero(),
            state: Cell::new(state(kind, 0)),
        }
    }

    /// Makes the node stand for a range. Its generation stays as it is.
    #[inline(always)]
    pub(crate) fn set(&self, kind: Kind, page: u32, offset: u32, size: u32) {
        self.offset.set(offset);
        self.size.set(size);
        self.page.set(page);
        self.set_kind(kind);
    }

    /// Puts the node between two neighbours.
    #[inline(always)]
    pub(crate) fn set_neighbours(&self, prev: u32, next: u32) {
        self.prev.set(prev);
        self.next.set(next);
    }

    #[inline(always)]
    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.state.get() >> KIND_SHIFT == kind as u32
    }

    /// Makes the node one of another kind, without flags.
    #[inline(always)]
    pub(crate) fn set_kind(&self, kind: Kind) {
        self.state.set(state(kind, self.generation()));
    }

    /// Makes the node one of another kind, with the flags it has.
    pub(crate) fn change_kind(&self, kind: Kind) {
        self.state.set(self.flags() | state(kind, self.generation()));
    }

    /// [`CARE`] and [`SCRUB`].
    #[inline(always)]
    pub(crate) fn flags(&self) -> u32 {
        self.state.get() & FLAGS
    }

    /// Whether the node is of a kind, whatever its flags.
    pub(crate) fn is_any(&self, kind: Kind) -> bool {
        self.state.get() >> KIND_SHIFT & ((1 << KIND_BITS) - 1) == kind as u32
    }

    #[inline(always)]
    pub(crate) fn generation(&self) -> u32 {
        self.state.get() & GENERATION_MASK
    }

    /// Where the range lies among all pages; orders holes.
    #[inline(always)]
    pub(crate) fn place(&self) -> u64 {
        (u64::from(self.page.get()) << 32) | u64::from(self.offset.get())
    }

    #[inline(always)]
    pub(crate) fn end(&self) -> u32 {
        self.offset.get() + self.size.get()
    }

    /// Whether the node stands for a slice that somebody owns.
    pub(crate) fn is_slice(&self) -> bool {
        self.is_any(Kind::Live) || self.is_any(Kind::Claimed)
    }

    /// Whether the node stands for a slice that waits for the device.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_any(Kind::Pending)
    }

    /// Whether the node stands for free memory.
    pub(crate) fn is_free(&self) -> bool {
        self.is(Kind::Hole) || (self.is(Kind::Edge) && self.size.get() != 0)
    }
}

/// The state word of a kind and a generation.
#[inline(always)]
pub(crate) const fn state(kind: Kind, generation: u32) -> u32 {
    ((kind as u32) << KIND_SHIFT) | generation
}

/// Nodes are called by their place: their number times their size, so that nothing has to be multiplied where one is
/// looked up. Handles hold the number.
const PLACE_BITS: u32 = size_of::<Node>().trailing_zeros();

/// The place of a number.
#[inline(always)]
pub(crate) const fn place_of(number: u32) -> u32 {
    number << PLACE_BITS
}

/// The number of a place.
#[inline(always)]
pub(crate) const fn number_of(place: u32) -> u32 {
    place >> PLACE_BITS
}

/// All nodes of a pool. Node 0 is the sentinel that stands for "none": never a hole, of size 0, in no list
/// (`link_a` and `link_b` stay 0); who writes to its neighbours does no harm.
pub(crate) struct Nodes {
    nodes: Chunked<Node>,
    /// Head of the list of unused nodes, last in first out; 0 = empty.
    unused: Cell<u32>,
    /// Nodes on that list.
    unused_count: Cell<u32>,
}

impl Nodes {
    pub(crate) fn try_new(memory: HostMemory) -> Result<Self, Error> {
        let mut nodes = Chunked::new(memory);
        nodes.reserve(1)?;
        nodes.push(Node::new(Kind::Edge));
        Ok(Self { nodes, unused: Cell::new(0), unused_count: Cell::new(0) })
    }

    /// The most host memory that `count` nodes ask for, node 0 not counted.
    pub(crate) fn add_needs(count: u64, needs: &mut Needs) -> Result<(), Error> {
        let count = u32::try_from(count + 1).unwrap_or(u32::MAX);
        Chunked::<Node>::add_needs(count, needs)
    }

    /// Nodes that [`Nodes::take`] can give out without more host memory.
    #[inline(always)]
    pub(crate) fn available(&self) -> u32 {
        self.unused_count.get() + self.nodes.spare()
    }

    /// A node that is not in use, whose generation may be used once more. The caller has made sure that one is
    /// available and overwrites all of it but the generation.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> u32 {
        let index = self.unused.get();
        if index != 0 {
            self.unused.set(self[index].link_b.get());
            self.unused_count.set(self.unused_count.get() - 1);
            index
        } else {
            self.take_fresh()
        }
    }

    #[cold]
    fn take_fresh(&mut self) -> u32 {
        place_of(self.nodes.push(Node::new(Kind::Unused)))
    }

    /// Puts a node that is no longer needed on the list of unused ones, or retires it when its generations are used
    /// up. `node` is that of `index`.
    #[inline(always)]
    pub(crate) fn put(&self, index: u32, node: &Node) {
        debug_assert!(index != 0 && core::ptr::eq(node, &raw const self[index]));
        node.set_kind(Kind::Unused);
        if node.generation() != GENERATION_RETIRED {
            node.link_b.set(self.unused.get());
            self.unused.set(index);
            self.unused_count.set(self.unused_count.get() + 1);
        }
    }

    /// The node of a handle's place, which may be anything.
    #[inline(always)]
    pub(crate) fn get(&self, place: u32) -> Option<&Node> {
        self.nodes.has(number_of(place)).then(|| &self[place])
    }

    /// Every node that was ever used, but for node 0, with its place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Node)> {
        self.nodes.indices().skip(1).map(|index| (place_of(index), &self.nodes[index]))
    }

    /// The first place at or above `place`, which may lie between two, that was ever used.
    pub(crate) fn index_from(&self, place: u32) -> Option<u32> {
        self.nodes.index_from(place.div_ceil(1 << PLACE_BITS)).map(place_of)
    }

    pub(crate) fn plan(&self) -> Result<ChunkPlan, Error> {
        self.nodes.plan()
    }

    pub(crate) fn install(&mut self, chunk: Chunk<Node>) -> Option<Chunk<Node>> {
        self.nodes.install(chunk)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.nodes.bytes()
    }

    pub(crate) fn unused_count(&self) -> u32 {
        self.unused_count.get()
    }

    /// Counts the nodes on the list of unused ones; `None` if something else is on it.
    pub(crate) fn listed_unused(&self) -> Option<u32> {
        let (mut at, mut count) = (self.unused.get(), 0);
        while at != 0 {
            // It has no end if it leads back to itself.
            if !self[at].is(Kind::Unused) || count == self.unused_count() {
                return None;
            }
            (at, count) = (self[at].link_b.get(), count + 1);
        }
        Some(count)
    }
}

impl Index<u32> for Nodes {
    type Output = Node;
    /// Looks a node up without a check: the one place where the slicer trusts its own books (a check costs a tenth).
    ///
    /// Every index in a field of a node, in a head of a list, in `unused` and in `Slicer::tail` was handed out by
    /// [`Nodes::take`] or is 0, and nodes never go away. Numbers from outside pass through [`Nodes::get`] first.
    /// Builds with debug assertions check all the same.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn index(&self, index: u32) -> &Node {
        // SAFETY: see above; `Nodes::take` hands out what `Chunked::push` answered, and `try_new` pushed node 0.
        unsafe { self.nodes.get_at_unchecked(index) }
    }
}

const _: () = assert!(size_of::<Node>() == 32);
