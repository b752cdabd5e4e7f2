//! Damage to the books, one field at a time: [`Slicer::check`] must notice it, or all who rely on it rely on nothing.

use super::nodes::KIND_SHIFT;
use super::*;
use core::cell::Cell;
use std::vec::Vec;

const SIZE: u32 = 1000;

/// What a pool may be doing at any one time.
struct Busy {
    slicer: Slicer,
    /// Edges, and granules of the pages.
    pages: Vec<(u32, u32)>,
}

impl Busy {
    /// Two pages with slices and holes of several classes, two idle ones, a tail; slices that wait for a point, for
    /// several, or to be overwritten; a timeline that is forgotten; nodes that are unused, and one that is used up.
    fn new(kind: PageKind) -> Self {
        let mut slicer = Slicer::try_new(HostMemory::global(), SIZE + 2, kind, 7).unwrap();
        while !slicer.has_spare_nodes(300) {
            let chunk = Chunk::allocate(HostMemory::global(), slicer.plan().unwrap()).unwrap();
            assert!(slicer.install(chunk).is_none());
        }
        let more = u32::from(kind == PageKind::Unequal);
        let mut pages = Vec::new();
        for (index, size) in [SIZE, SIZE + more, SIZE, SIZE].into_iter().enumerate() {
            pages.push((slicer.add_idle_page(index as u32, size), size));
        }
        let mut slots = Vec::new();
        for &(edge, _) in &pages[..2] {
            slicer.use_page(edge);
            slots.extend((0..28).map(|i| slicer.allocate_from_tail(if i % 2 == 0 { 20 } else { 40 }, 0)));
        }
        let (near, far) = (slicer.need_timeline(1), slicer.need_timeline(2));
        for number in 3..9 {
            slicer.need_timeline(number);
        }
        let gone = slicer.find_timeline(5);
        slicer.forget_timeline(gone);
        for (index, &slot) in slots.iter().enumerate() {
            match index % 7 {
                1 | 5 => {
                    slicer.free(slot);
                }
                2 if index % 2 == 0 => {
                    slicer.begin_pending(slot);
                    slicer.enqueue(near, slot, index as u64, false);
                }
                2 => {
                    slicer.begin_pending(slot);
                    slicer.set_waits(slot, 2);
                    slicer.enqueue(near, slot, index as u64, true);
                    slicer.enqueue(far, slot, index as u64, true);
                }
                3 if index < 28 => {
                    slicer.begin_pending(slot);
                    slicer.enqueue_scrub(slot);
                }
                _ => {}
            }
        }
        // Two neighbours become one hole: a node is unused then, and another for good.
        slicer.set_generation(slots[8], GENERATION_RETIRED - 1);
        slicer.free(slots[6]);
        slicer.free(slots[7]);
        assert!(slicer.nodes.unused_count() > 0);
        let busy = Self { slicer, pages };
        busy.check().unwrap();
        busy
    }

    fn check(&self) -> Result<(), &'static str> {
        self.slicer.check(self.pages.iter().copied())
    }

    /// Whether what a field of a node says can be told from the rest of the books.
    fn is_known(&self, slot: u32, field: &str) -> bool {
        let nodes = &self.slicer.nodes;
        let node = &nodes[slot];
        let is_timeline = node.is(Kind::Timeline) || node.is(Kind::Forgotten);
        // Where a branch leads to one that nobody asks for, or to none, it might as well lead elsewhere.
        let is_way = |branch: &Cell<u32>| nodes[branch.get()].is(Kind::Timeline);
        match field {
            "page" if is_timeline => is_way(&node.page),
            "link_b" if is_timeline => is_way(&node.link_b),
            // What has been completed; and every number leads to the first one.
            "size" | "link_a" if is_timeline => false,
            "offset" if is_timeline => !node.is(Kind::Forgotten) && slot != self.slicer.timelines,
            // The value that is waited for; of those who wait for several, how many are left is known.
            "size" if node.is_pending() => false,
            "link_a" if node.is_pending() => node.link_b.get() == 0,
            // The two take some from one another.
            "offset" if node.is_pending() => !nodes[node.prev.get()].is_pending(),
            _ if node.is(Kind::Wait) => field == "link_b",
            "link_b" if node.is(Kind::Unused) => node.generation() != GENERATION_RETIRED,
            _ if node.is(Kind::Unused) => false,
            "link_a" | "link_b" if node.is_slice() => false,
            "link_a" | "link_b" if node.is(Kind::Edge) => {
                self.slicer.idle_bins.is_some() && slot != self.slicer.tail && self.slicer.page_is_empty(slot)
            }
            // With nothing in the page there is nothing to compare it with.
            "page" if node.is(Kind::Edge) => !self.slicer.page_is_empty(slot),
            _ => true,
        }
    }

    /// Sets a field to each of `values` and back again.
    fn damage(&self, what: &str, slot: u32, field: &Cell<u32>, values: impl IntoIterator<Item = u32>) {
        let before = field.get();
        for value in values {
            if value != before {
                let state = self.slicer.nodes[slot].state.get();
                field.set(value);
                assert!(self.check().is_err(), "{what} of node {slot}, state {state:#x}, from {before} to {value}");
                field.set(before);
            }
        }
        self.check().unwrap();
    }

    /// Changes something of the slicer itself and back again.
    fn damage_all<T: Copy + PartialEq + core::fmt::Debug>(
        &mut self,
        what: &str,
        field: fn(&mut Slicer) -> &mut T,
        values: impl IntoIterator<Item = T>,
    ) {
        let before = *field(&mut self.slicer);
        for value in values {
            if value != before {
                *field(&mut self.slicer) = value;
                assert!(self.check().is_err(), "{what} from {before:?} to {value:?}");
                *field(&mut self.slicer) = before;
            }
        }
        self.check().unwrap();
    }

    fn slots(&self) -> Vec<u32> {
        self.slicer.nodes.iter().map(|(slot, _)| slot).collect()
    }

    /// The members of a timeline's queue.
    fn queue(&self, timeline: u32) -> Vec<u32> {
        let last = self.slicer.nodes[timeline].prev.get();
        let mut members = Vec::new();
        let mut at = last;
        while at != 0 && (members.is_empty() || at != last) {
            members.push(at);
            at = self.slicer.nodes[at].link_b.get();
        }
        members
    }
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_wrong_field_of_any_node_is_noticed() {
    for kind in [PageKind::Equal, PageKind::Unequal] {
        let busy = Busy::new(kind);
        let slots = busy.slots();
        for &slot in &slots {
            let node = &busy.slicer.nodes[slot];
            let is_timeline = node.is(Kind::Timeline) || node.is(Kind::Forgotten);
            for (what, field) in [("offset", &node.offset), ("size", &node.size), ("page", &node.page)] {
                if busy.is_known(slot, what) && !(what == "page" && is_timeline) {
                    let before = field.get();
                    busy.damage(what, slot, field, [before.wrapping_add(1), before.wrapping_sub(1), before ^ 64]);
                }
            }
            let links =
                [("prev", &node.prev), ("next", &node.next), ("link_a", &node.link_a), ("link_b", &node.link_b)];
            for (what, field) in links.into_iter().chain([("page", &node.page)]) {
                if busy.is_known(slot, what) && (what != "page" || is_timeline) {
                    // A queue that begins elsewhere has the same members.
                    let same = if is_timeline && what == "prev" { busy.queue(slot) } else { Vec::new() };
                    let others = slots.iter().copied().chain([0]).filter(|other| !same.contains(other));
                    busy.damage(what, slot, field, others);
                }
            }
            let (kind, generation) = (node.state.get() >> KIND_SHIFT, node.generation());
            let kinds = (Kind::Unused as u32..=Kind::Forgotten as u32).filter(|&other| match kind {
                // A slice that a batch has claimed is live; and a forgotten timeline keeps its place.
                2 | 3 => other != 2 && other != 3,
                7 | 8 => other != 7 && other != 8,
                _ => true,
            });
            busy.damage("kind", slot, &node.state, kinds.map(|kind| kind << KIND_SHIFT | generation));
        }
    }
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_wrong_figure_of_the_slicer_is_noticed() {
    for kind in [PageKind::Equal, PageKind::Unequal] {
        let mut busy = Busy::new(kind);
        let near = |value: u32| [value.wrapping_add(1), value.wrapping_sub(1), 0, 2 * value];
        let near_of_64 = |value: u64| [value + 1, value - 1, 0, 2 * value];
        let Slicer { idle, idle_size, live, pending, pending_granules, scrubs, holes, free, .. } = busy.slicer;
        busy.damage_all("idle", |slicer| &mut slicer.idle, near(idle));
        if kind == PageKind::Equal {
            busy.damage_all("idle_size", |slicer| &mut slicer.idle_size, near(idle_size));
        }
        busy.damage_all("live", |slicer| &mut slicer.live, near(live));
        busy.damage_all("pending", |slicer| &mut slicer.pending, near(pending));
        busy.damage_all("pending_granules", |slicer| &mut slicer.pending_granules, near_of_64(pending_granules));
        busy.damage_all("scrubs", |slicer| &mut slicer.scrubs, near(scrubs));
        busy.damage_all("holes", |slicer| &mut slicer.holes, near(holes));
        busy.damage_all("free", |slicer| &mut slicer.free, near_of_64(free));
        let slots = busy.slots();
        busy.damage_all("tail", |slicer| &mut slicer.tail, slots.iter().copied().chain([0]));
        busy.damage_all("timelines", |slicer| &mut slicer.timelines, slots.iter().copied().chain([0]));
    }
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_hole_or_an_idle_page_that_is_in_no_list_is_noticed() {
    let mut busy = Busy::new(PageKind::Unequal);
    for slot in busy.slots() {
        let node = &busy.slicer.nodes[slot];
        if node.is(Kind::Hole) {
            busy.slicer.bins.unlink(&busy.slicer.nodes, slot, node);
            assert_eq!(busy.check(), Err("a hole is in no list"));
            let node = &busy.slicer.nodes[slot];
            busy.slicer.bins.link(&busy.slicer.nodes, slot, node);
        } else if busy.is_known(slot, "link_a") && node.is(Kind::Edge) {
            busy.slicer.idle_bins.as_mut().unwrap().unlink(&busy.slicer.nodes, slot, node);
            assert_eq!(busy.check(), Err("an idle page is in no list"));
            let node = &busy.slicer.nodes[slot];
            busy.slicer.idle_bins.as_mut().unwrap().link(&busy.slicer.nodes, slot, node);
        }
        busy.check().unwrap();
    }
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_list_with_what_does_not_belong_there_is_noticed() {
    let mut busy = Busy::new(PageKind::Unequal);
    let none = &busy.slicer.nodes[0];
    for link in [&none.link_a, &none.link_b] {
        link.set(32);
        assert_eq!(busy.check(), Err("node 0 is in a list"));
        link.set(0);
        busy.check().unwrap();
    }
    for slot in busy.slots() {
        let node = &busy.slicer.nodes[slot];
        if node.is_slice() {
            busy.slicer.bins.link(&busy.slicer.nodes, slot, node);
            assert_eq!(busy.check(), Err("a list holds what does not belong to its class"));
            let node = &busy.slicer.nodes[slot];
            busy.slicer.bins.unlink(&busy.slicer.nodes, slot, node);
            busy.check().unwrap();
        }
    }
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_point_of_a_slice_that_does_not_wait_and_two_timelines_of_one_number_are_noticed() {
    let busy = Busy::new(PageKind::Equal);
    let nodes = &busy.slicer.nodes;
    let (mut points, mut others) = (0, 0);
    for (slot, node) in nodes.iter() {
        if node.is(Kind::Wait) {
            let idle = busy.slots().into_iter().filter(|&slot| !nodes[slot].is_pending()).chain([0]);
            busy.damage("slice", slot, &node.offset, idle);
            points += 1;
        }
        // Every number leads to the first timeline, so that only another's shows.
        if node.is(Kind::Timeline) && slot != busy.slicer.timelines {
            let first = busy.slicer.timelines;
            busy.damage("number", first, &nodes[first].offset, [node.offset.get()]);
            others += 1;
        }
    }
    assert!(points > 1 && others > 1);
}
