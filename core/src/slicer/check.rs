//! The invariants of the slicer, verified from scratch: for tests and for the curious.
#![forbid(unsafe_code)]

use super::Slicer;
use super::bins::{Bins, class_of};
use super::nodes::Kind;

impl Slicer {
    /// Walks over every page, list and node, and says which invariant does not hold. O(nodes).
    ///
    /// `edges` names the edge of every page and the page's granules.
    pub(crate) fn check(&self, edges: impl Iterator<Item = (u32, u32)>) -> Result<(), &'static str> {
        let mut found = Counts::default();
        for (edge, granules) in edges {
            self.check_page(edge, granules, &mut found)?;
        }
        if self.check_lists(&self.bins, Kind::Hole)? != found.holes {
            return Err("a hole is in no list");
        }
        if let Some(bins) = &self.idle_bins {
            if self.check_lists(bins, Kind::Edge)? != found.idle {
                return Err("an idle page is in no list");
            }
        }
        self.check_counts(&found)
    }

    fn check_counts(&self, found: &Counts) -> Result<(), &'static str> {
        let unused = self.nodes.iter().filter(|(_, node)| node.is(Kind::Unused)).count() as u32;
        let waiting = self.check_timelines()?;
        if found.nodes + unused + waiting != self.nodes.iter().count() as u32 {
            return Err("a node is neither in a page nor unused");
        }
        if self.nodes.listed_unused() != Some(self.nodes.unused_count()) {
            return Err("the list of unused nodes is not what it is said to be");
        }
        if found.idle != self.idle {
            return Err("the idle pages are not those that hold nothing");
        }
        if (found.pending, found.pending_granules) != (self.pending, self.pending_granules) {
            return Err("a counter of what is pending differs from a walk");
        }
        if found.live != self.live || found.holes != self.holes || found.free != self.free {
            return Err("a counter differs from a walk");
        }
        Ok(())
    }

    fn check_page(&self, edge: u32, granules: u32, found: &mut Counts) -> Result<(), &'static str> {
        let end = &self.nodes[edge];
        let idle = edge != self.tail && self.page_is_empty(edge);
        if !end.is(Kind::Edge) || (end.size.get() != 0 && edge != self.tail && !idle) {
            return Err("a page in use has a tail that is not the tail");
        }
        if idle && self.idle_bins.is_none() && end.size.get() != self.idle_size {
            return Err("an idle page has not the size of all");
        }
        found.idle += u32::from(idle);
        found.nodes += 1;
        found.free += u64::from(end.size.get());
        let (mut at, mut last, mut after_hole) = (0u32, edge, false);
        let mut index = end.next.get();
        while index != edge {
            let node = &self.nodes[index];
            let size = self.size_of(node);
            if node.offset.get() != at || size == 0 || node.page.get() != end.page.get() {
                return Err("the nodes of a page do not tile it");
            }
            if node.prev.get() != last {
                return Err("a neighbour link is one-sided");
            }
            let hole = node.is(Kind::Hole);
            if hole && after_hole {
                return Err("two holes are neighbours");
            }
            if hole {
                found.holes += 1;
                found.free += u64::from(size);
            } else if node.is_slice() {
                found.live += 1;
            } else if node.is_pending() {
                found.pending += 1;
                found.pending_granules += u64::from(size);
            } else {
                return Err("a node in a page is neither slice nor hole");
            }
            found.nodes += 1;
            after_hole = hole;
            at = at.wrapping_add(size);
            last = index;
            index = node.next.get();
        }
        if end.prev.get() != last || end.offset.get() != at || at.wrapping_add(end.size.get()) != granules {
            return Err("the nodes of a page do not end where it ends");
        }
        if after_hole && edge == self.tail {
            return Err("a hole touches the tail");
        }
        Ok(())
    }

    /// Verifies the lists of `bins`, whose members are all of one kind, and counts them.
    fn check_lists(&self, bins: &Bins, kind: Kind) -> Result<u32, &'static str> {
        let mut listed = 0;
        for class in 1..bins.classes() {
            let mut index = bins.first(class);
            if bins.marked(class) != (index != 0) {
                return Err("the bitmap does not say which classes have ranges");
            }
            let first = index;
            let mut last = self.nodes[first].link_a.get();
            while index != 0 {
                let node = &self.nodes[index];
                if !node.is(kind) || class_of(node.size.get()) != class {
                    return Err("a list holds what does not belong to its class");
                }
                if node.link_a.get() != last {
                    return Err("a list's backward link is wrong");
                }
                listed += 1;
                last = index;
                index = bins.after(&self.nodes, class, index);
            }
            if self.nodes[first].link_a.get() != last || (first != 0 && self.nodes[last].link_b.get() != first) {
                return Err("a list does not end where it begins");
            }
        }
        if self.nodes[0].link_a.get() != 0 || self.nodes[0].link_b.get() != 0 {
            return Err("node 0 is in a list");
        }
        Ok(listed)
    }

    /// [`Slicer::check`] for pages that each hold one slice; `by_size`: whether the free ones are in lists.
    pub(crate) fn check_whole(
        &self,
        pages: impl Iterator<Item = (u32, u32)>,
        by_size: bool,
    ) -> Result<(), &'static str> {
        let mut found = Counts::default();
        for (slot, granules) in pages {
            let node = &self.nodes[slot];
            if self.offset_of(node) != 0 || self.size_of(node) != granules {
                return Err("a page's only node does not fill it");
            }
            if node.is_slice() {
                found.live += 1;
            } else if node.is_pending() {
                found.pending += 1;
                found.pending_granules += u64::from(granules);
            } else if node.is(Kind::Hole) {
                found.holes += 1;
                found.free += u64::from(granules);
            } else {
                return Err("a page's only node is neither slice nor hole");
            }
            found.nodes += 1;
        }
        if by_size && self.check_lists(&self.bins, Kind::Hole)? != found.holes {
            return Err("a free page is in no list");
        }
        self.check_counts(&found)
    }
}

#[derive(Default)]
struct Counts {
    idle: u32,
    nodes: u32,
    live: u32,
    pending: u32,
    pending_granules: u64,
    holes: u32,
    free: u64,
}
