//! The 32-byte records of slices and holes, addressed by index.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::metadata::{Chunk, ChunkPlan, Chunked, HostMemory};
use crate::slots::GENERATION_RETIRED;
use core::ops::{Index, IndexMut};

/// Half a cache line: one range of a page, whether a slice, a hole or the page's edge.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Node {
    /// First granule, counted from the start of the page.
    pub(crate) offset: u32,
    /// Granules.
    pub(crate) size: u32,
    /// The page's number, given by the owner of the pages.
    pub(crate) page: u32,
    /// Neighbours by address; the page's edge closes the ring.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Hole: the previous of its class. Slice: bytes of padding.
    pub(crate) link_a: u32,
    /// Hole: the next of its class. Unused: the next unused.
    pub(crate) link_b: u32,
    /// [`Kind`] in the top 8 bits, generation in the others.
    pub(crate) state: u32,
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
}

pub(crate) const KIND_SHIFT: u32 = 24;
const GENERATION_MASK: u32 = (1 << KIND_SHIFT) - 1;

impl Node {
    const EMPTY: Node =
        Node { offset: 0, size: 0, page: 0, prev: 0, next: 0, link_a: 0, link_b: 0, state: (Kind::Unused as u32) };

    #[inline(always)]
    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.state >> KIND_SHIFT == kind as u32
    }

    #[inline(always)]
    pub(crate) fn generation(&self) -> u32 {
        self.state & GENERATION_MASK
    }

    /// Where the range lies among all pages; orders holes.
    #[inline(always)]
    pub(crate) fn place(&self) -> u64 {
        (u64::from(self.page) << 32) | u64::from(self.offset)
    }

    #[inline(always)]
    pub(crate) fn end(&self) -> u32 {
        self.offset + self.size
    }
}

/// The state word of a kind and a generation.
#[inline(always)]
pub(crate) const fn state(kind: Kind, generation: u32) -> u32 {
    ((kind as u32) << KIND_SHIFT) | generation
}

/// All nodes of a pool. Node 0 is the sentinel that stands for "none": never a hole, of size 0, safe to write to.
pub(crate) struct Nodes {
    nodes: Chunked<Node>,
    /// Head of the list of unused nodes, last in first out; 0 = empty.
    unused: u32,
    /// Nodes on that list.
    unused_count: u32,
}

impl Nodes {
    pub(crate) fn try_new(memory: HostMemory) -> Result<Self, Error> {
        let mut nodes = Chunked::new(memory);
        nodes.reserve(1)?;
        nodes.push(Node { state: state(Kind::Edge, 0), ..Node::EMPTY });
        Ok(Self { nodes, unused: 0, unused_count: 0 })
    }

    /// Nodes that [`Nodes::take`] can give out without more host memory.
    #[inline(always)]
    pub(crate) fn available(&self) -> u32 {
        self.unused_count + self.nodes.spare()
    }

    /// A node that is not in use, whose generation may be used once more. The caller has made sure that one is
    /// available and overwrites all of it but the generation.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> u32 {
        if self.unused != 0 {
            let index = self.unused;
            self.unused = self.nodes[index].link_b;
            self.unused_count -= 1;
            index
        } else {
            self.nodes.push(Node::EMPTY)
        }
    }

    /// Puts a node that is no longer needed on the list of unused ones, or retires it when its generations are used
    /// up. Does nothing for node 0.
    #[inline(always)]
    pub(crate) fn put(&mut self, index: u32) {
        let node = &mut self.nodes[index];
        let keep = index != 0 && node.generation() != GENERATION_RETIRED;
        let kind = if index != 0 { Kind::Unused } else { Kind::Edge };
        node.state = state(kind, node.generation());
        node.link_b = self.unused;
        self.unused = if keep { index } else { self.unused };
        self.unused_count += u32::from(keep);
    }

    /// Nodes ever used, the sentinel included.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.nodes.len()
    }

    pub(crate) fn plan(&self) -> Option<ChunkPlan> {
        self.nodes.plan()
    }

    pub(crate) fn install(&mut self, chunk: Chunk<Node>) -> Option<Chunk<Node>> {
        self.nodes.install(chunk)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.nodes.bytes()
    }

    pub(crate) fn unused_count(&self) -> u32 {
        self.unused_count
    }
}

impl Index<u32> for Nodes {
    type Output = Node;
    #[inline(always)]
    fn index(&self, index: u32) -> &Node {
        &self.nodes[index]
    }
}

impl IndexMut<u32> for Nodes {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index]
    }
}

const _: () = assert!(size_of::<Node>() == 32);
