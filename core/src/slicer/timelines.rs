//! Slices that were freed but wait for the device, and the timelines they wait on: all kept in nodes, so that waiting for
//! one point needs no memory.
//!
//! A pending slice needs its place and its neighbours, but not its size, which is what lies between it and the next; nor
//! the links of a hole. In these fields it keeps the value it waits for and the next in its timeline's queue. A slice that
//! waits for several points has a node for each of them instead, and counts those that are left.
//!
//! A queue is first in, first out: a value that falls waits for those before it. So the first of a queue tells whether any
//! is due, and what is released too late is never released too early.
//!
//! Timelines are found through a trie: from the first on, each bit of a timeline's hash leads to one of two others. The
//! tree never has to be put in order, and a timeline that is forgotten leaves its place to the next that comes by.
//!
//! Fields: a waiting node has the value in `size` and `link_a`, the next of its queue in `link_b`; a node of
//! [`Kind::Wait`] its slice's slot in `offset`. A slice with several points has in `link_a` how many are left, and 0 in
//! `link_b`. A timeline has its number in `offset`, what it has completed in `size` and `link_a`, the last of its queue
//! in `prev` (0: nothing waits), whose next is the first; the next timeline in `next`, the two it leads to in `page`
//! and `link_b`.
#![forbid(unsafe_code)]

use super::Slicer;
use super::nodes::{CARE, Kind, Node, SCRUB, number_of, place_of};
use crate::canary::broken;

/// A place on a timeline of the device's work: what waits for it may be reused once the timeline has completed that value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Point {
    /// A number of the caller's choice for a queue, a stream, a frame loop.
    pub timeline: u32,
    /// Timelines begin at 0, which is completed from the start, and rise.
    pub value: u64,
}

impl Point {
    /// `value` on `timeline`.
    pub const fn new(timeline: u32, value: u64) -> Self {
        Self { timeline, value }
    }
}

/// What the front of a queue came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing is due.
    Nothing,
    /// A point was, but its slice waits for others.
    Partly,
    /// The slice of that slot waits for nothing any more.
    Slice(u32),
}

impl Node {
    /// The value that the node waits for, or that a timeline has completed.
    fn value(&self) -> u64 {
        u64::from(self.size.get()) << 32 | u64::from(self.link_a.get())
    }

    fn set_value(&self, value: u64) {
        self.size.set((value >> 32) as u32);
        self.link_a.set(value as u32);
    }
}

impl Slicer {
    // ---- pending slices

    /// Granules of a slice or hole.
    pub(crate) fn size_of(&self, node: &Node) -> u32 {
        if !node.is_pending() {
            node.size.get()
        } else if self.is_whole() {
            // Slices that fill their pages begin at 0.
            node.offset.get()
        } else {
            self.nodes[node.next.get()].offset.get().wrapping_sub(node.offset.get())
        }
    }

    /// First granule of a slice or hole.
    pub(crate) fn offset_of(&self, node: &Node) -> u32 {
        if node.is_pending() && self.is_whole() { 0 } else { node.offset.get() }
    }

    /// Takes a slice out of use that is not free yet, and waits for nothing yet. Its handle is stale from now on.
    pub(crate) fn begin_pending(&mut self, slot: u32) {
        let node = &self.nodes[slot];
        debug_assert!(node.is_slice());
        if self.is_whole() {
            node.offset.set(node.size.get());
        }
        self.live -= 1;
        self.pending += 1;
        self.pending_granules += u64::from(node.size.get());
        node.change_kind(Kind::Pending);
        self.set_waits(slot, 0);
    }

    /// A pending slice that waits for nothing is about to be freed: it is as one that a batch has claimed.
    pub(crate) fn end_pending(&mut self, slot: u32) {
        let node = &self.nodes[slot];
        debug_assert!(node.is_pending());
        let (offset, size) = (self.offset_of(node), self.size_of(node));
        node.offset.set(offset);
        node.size.set(size);
        self.live += 1;
        self.pending -= 1;
        self.pending_granules -= u64::from(size);
        node.change_kind(Kind::Claimed);
    }

    /// Whether something is done with the memory of a slice before it is free.
    pub(crate) fn needs_care(&self, slot: u32) -> bool {
        self.nodes[slot].flags() != 0
    }

    /// Whether the bytes of a slice are overwritten before they are free.
    pub(crate) fn is_scrubbed(&self, slot: u32) -> bool {
        self.nodes[slot].flags() & SCRUB != 0
    }

    /// Nothing needs to be done with the memory of a slice any more.
    pub(crate) fn clear_flags(&mut self, slot: u32) {
        let node = &self.nodes[slot];
        node.state.set(node.state.get() & !(CARE | SCRUB));
    }

    /// Flags a slice that is live or pending, with whose memory something is done before it is free: [`CARE`] and others.
    pub(crate) fn set_flags(&mut self, slot: u32, flags: u32) {
        let node = &self.nodes[slot];
        debug_assert!(node.is(Kind::Live) || node.is_pending());
        node.state.set(node.state.get() | flags);
    }

    /// The slice waits for this many points, each with a node of its own: itself it is in no queue. With 0 it is on its
    /// way to one, or being overwritten.
    pub(crate) fn set_waits(&mut self, slot: u32, count: u32) {
        self.nodes[slot].link_a.set(count);
        self.nodes[slot].link_b.set(0);
    }

    // ---- queues

    /// A slice waits for a value on a timeline: for nothing else, or as one of several.
    pub(crate) fn enqueue(&mut self, timeline: u32, slot: u32, value: u64, several: bool) {
        let item = if several { self.nodes.take() } else { slot };
        let (node, queue) = (&self.nodes[item], &self.nodes[timeline]);
        if several {
            node.set_kind(Kind::Wait);
            node.offset.set(slot);
        }
        let last = queue.prev.get();
        let first = if last == 0 { item } else { self.nodes[last].link_b.replace(item) };
        node.set_value(value);
        node.link_b.set(first);
        queue.prev.set(item);
    }

    /// Takes the first off a timeline's queue if `completed` has reached it.
    pub(crate) fn take_due(&mut self, timeline: u32, completed: u64) -> Due {
        let queue = &self.nodes[timeline];
        let last = queue.prev.get();
        if last == 0 {
            return Due::Nothing;
        }
        let first = self.nodes[last].link_b.get();
        let node = &self.nodes[first];
        let early = u64::from(broken("release_early"));
        if node.value() > completed.saturating_add(early) {
            return Due::Nothing;
        }
        if first == last {
            queue.prev.set(0);
        } else {
            self.nodes[last].link_b.set(node.link_b.get());
        }
        if node.is_pending() {
            return Due::Slice(first);
        }
        let slot = node.offset.get();
        self.nodes.put(first, node);
        let slice = &self.nodes[slot];
        slice.link_a.set(slice.link_a.get() - 1);
        if slice.link_a.get() == 0 { Due::Slice(slot) } else { Due::Partly }
    }

    // ---- slices that wait for nothing, but are to be overwritten

    /// A pending slice waits to be overwritten, behind those that do already.
    pub(crate) fn enqueue_scrub(&mut self, slot: u32) {
        let node = &self.nodes[slot];
        debug_assert!(node.is_pending());
        // A circle like the other queues.
        let first = if self.scrubs == 0 { slot } else { self.nodes[self.last_scrub].link_b.replace(slot) };
        node.link_b.set(first);
        self.last_scrub = slot;
        self.scrubs += 1;
    }

    /// The same for the first time.
    pub(crate) fn enqueue_first_scrub(&mut self, slot: u32) {
        self.scrub_arrivals = self.scrub_arrivals.wrapping_add(1);
        self.enqueue_scrub(slot);
    }

    /// How many have come to wait so, whatever became of them.
    pub(crate) fn scrub_arrivals(&self) -> u32 {
        self.scrub_arrivals
    }

    /// The first of them.
    pub(crate) fn take_scrub(&mut self) -> Option<u32> {
        self.scrubs = self.scrubs.checked_sub(1)?;
        let last = &self.nodes[self.last_scrub];
        let first = last.link_b.get();
        last.link_b.set(self.nodes[first].link_b.get());
        self.set_waits(first, 0);
        Some(first)
    }

    pub(crate) fn scrubs(&self) -> u32 {
        self.scrubs
    }

    // ---- timelines

    /// The node of a timeline, 0 if there is none; and else where a new one goes: a forgotten one, or the last on the way.
    #[inline(never)]
    fn look_for(&self, id: u32) -> (u32, u32) {
        let (mut at, mut place, mut forgotten) = (self.timelines, 0, 0);
        let mut hash = Self::hash(id);
        while at != 0 {
            let node = &self.nodes[at];
            if node.is(Kind::Forgotten) {
                forgotten = if forgotten == 0 { at } else { forgotten };
            } else if node.offset.get() == id {
                return (at, 0);
            }
            place = at;
            at = Self::branch(node, hash).get();
            hash <<= 1;
        }
        (0, if forgotten == 0 { place } else { forgotten })
    }

    /// No two numbers have one hash, and its bits are all different from step to step.
    fn hash(id: u32) -> u32 {
        id.wrapping_mul(0x9E37_79B1)
    }

    fn branch(node: &Node, hash: u32) -> &core::cell::Cell<u32> {
        if hash >> 31 == 0 { &node.page } else { &node.link_b }
    }

    /// The node of a timeline, 0 if nothing is known of it.
    pub(crate) fn find_timeline(&self, id: u32) -> u32 {
        self.look_for(id).0
    }

    /// The node of a timeline, which is made if there is none: that needs a spare node.
    #[inline(never)]
    pub(crate) fn need_timeline(&mut self, id: u32) -> u32 {
        let (found, place) = self.look_for(id);
        if found != 0 {
            return found;
        }
        if place != 0 && self.nodes[place].is(Kind::Forgotten) {
            let node = &self.nodes[place];
            node.set_kind(Kind::Timeline);
            node.offset.set(id);
            return place;
        }
        let slot = self.nodes.take();
        let node = &self.nodes[slot];
        node.set(Kind::Timeline, 0, id, 0);
        node.set_neighbours(0, 0);
        node.link_a.set(0);
        node.link_b.set(0);
        if place == 0 {
            self.timelines = slot;
            return slot;
        }
        // The hash's bit at the depth of `place`.
        let (mut at, mut hash) = (self.timelines, Self::hash(id));
        while at != place {
            at = Self::branch(&self.nodes[at], hash).get();
            hash <<= 1;
        }
        Self::branch(&self.nodes[place], hash).set(slot);
        // The list goes through all of them, the first one first.
        let first = &self.nodes[self.timelines];
        node.next.set(first.next.replace(slot));
        slot
    }

    /// What a timeline has completed.
    pub(crate) fn completed(&self, timeline: u32) -> u64 {
        self.nodes[timeline].value()
    }

    /// A timeline has completed a value. It does not fall.
    pub(crate) fn set_completed(&mut self, timeline: u32, completed: u64) {
        let node = &self.nodes[timeline];
        node.set_value(node.value().max(completed));
    }

    /// Whether anything waits on a timeline.
    pub(crate) fn is_waited_for(&self, timeline: u32) -> bool {
        self.nodes[timeline].prev.get() != 0
    }

    /// Forgets a timeline on which nothing waits.
    pub(crate) fn forget_timeline(&mut self, timeline: u32) {
        debug_assert!(!self.is_waited_for(timeline));
        self.nodes[timeline].set_value(0);
        self.nodes[timeline].set_kind(Kind::Forgotten);
    }

    /// The next timeline behind `timeline` (0: the first), its number and what it has completed.
    pub(crate) fn next_timeline(&self, timeline: u32) -> Option<(u32, u32, u64)> {
        let mut at = if timeline == 0 { self.timelines } else { self.nodes[timeline].next.get() };
        while at != 0 && !self.nodes[at].is(Kind::Timeline) {
            at = self.nodes[at].next.get();
        }
        (at != 0).then(|| (at, self.nodes[at].offset.get(), self.completed(at)))
    }

    /// The next timeline behind `timeline` (0: the first) on which anything waits, and its number.
    pub(crate) fn next_waited_for(&self, timeline: u32) -> Option<(u32, u32)> {
        let mut at = if timeline == 0 { self.timelines } else { self.nodes[timeline].next.get() };
        while at != 0 && !self.is_waited_for(at) {
            at = self.nodes[at].next.get();
        }
        (at != 0).then(|| (at, self.nodes[at].offset.get()))
    }

    /// Verifies the queues: complete, and every pending slice in one of them. Answers the nodes that stand for
    /// timelines and points.
    pub(crate) fn check_timelines(&self) -> Result<u32, &'static str> {
        let (mut timelines, mut kept, mut several, mut left) = (0, 0, 0, 0u32);
        for (_, node) in self.nodes.iter() {
            timelines += u32::from(node.is(Kind::Timeline) || node.is(Kind::Forgotten));
            kept += u32::from(node.is(Kind::Wait));
            if node.is_pending() && node.link_b.get() == 0 {
                several += 1;
                left = left.wrapping_add(node.link_a.get());
            }
        }
        let (mut listed, mut waits, mut slices) = (0, 0, 0);
        let mut at = self.timelines;
        while at != 0 {
            let queue = &self.nodes[at];
            listed += 1;
            // What leads back to itself has no end.
            if listed > timelines {
                break;
            }
            if !queue.is(Kind::Forgotten) && !self.is_found(at) {
                return Err("a timeline is not where its number leads to");
            }
            let last = queue.prev.get();
            let mut item = last;
            while last != 0 && slices <= self.pending && waits <= kept {
                item = self.nodes[item].link_b.get();
                let node = &self.nodes[item];
                match (node.is_pending(), node.is(Kind::Wait)) {
                    (true, _) => slices += 1,
                    (_, true) if self.is_pending_at(node.offset.get()) => waits += 1,
                    _ => return Err("a queue holds what does not wait"),
                }
                if item == last {
                    break;
                }
            }
            at = queue.next.get();
        }
        let mut item = self.last_scrub;
        for left in (0..self.scrubs).rev() {
            item = self.nodes[item].link_b.get();
            if !self.nodes[item].is_pending() || (item == self.last_scrub) != (left == 0) {
                return Err("what is to be overwritten is not in one circle");
            }
        }
        if timelines != listed || kept != waits || left != waits || slices + self.scrubs + several != self.pending {
            return Err("what waits is not what is in the queues");
        }
        Ok(timelines + waits)
    }

    /// Whether the number of a timeline leads to it, and past no other of that number.
    fn is_found(&self, timeline: u32) -> bool {
        let id = self.nodes[timeline].offset.get();
        let (mut at, mut hash) = (self.timelines, Self::hash(id));
        loop {
            let node = &self.nodes[at];
            let is_forgotten = node.is(Kind::Forgotten);
            if !is_forgotten && !node.is(Kind::Timeline) {
                return false;
            }
            if at == timeline {
                return true;
            }
            if !is_forgotten && node.offset.get() == id {
                return false;
            }
            at = Self::branch(node, hash).get();
            hash <<= 1;
        }
    }

    fn is_pending_at(&self, place: u32) -> bool {
        self.nodes.get(place_of(number_of(place))).is_some_and(Node::is_pending)
    }

    fn is_whole(&self) -> bool {
        self.needs == 0
    }
}

#[cfg(test)]
mod tests {
    use crate::metadata::{Chunk, HostMemory};
    use crate::slicer::timelines::Due;
    use crate::slicer::{PageKind, Slicer};
    use std::collections::HashMap;
    use std::vec::Vec;

    fn slicer(nodes: u32) -> Slicer {
        let mut slicer = Slicer::try_new(HostMemory::global(), 1 << 20, PageKind::Equal, 7).unwrap();
        while !slicer.has_spare_nodes(nodes) {
            let chunk = Chunk::allocate(HostMemory::global(), slicer.plan().unwrap()).unwrap();
            assert!(slicer.install(chunk).is_none());
        }
        slicer
    }

    #[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
    #[test]
    fn timelines_are_found_whatever_their_numbers_and_keep_what_they_have_completed() {
        let mut slicer = slicer(5000);
        let numbers: Vec<u32> = (0..2000)
            .chain((0..32).map(|i| 1 << i))
            .chain((0..2000).map(|i: u32| i.wrapping_mul(0x9E37_79B1)))
            .collect();
        let mut slots = HashMap::new();
        for &number in &numbers {
            let slot = slicer.need_timeline(number);
            assert_eq!(*slots.entry(number).or_insert(slot), slot);
            slicer.set_completed(slot, u64::from(number) << 20);
        }
        for (&number, &slot) in &slots {
            assert_eq!((slicer.find_timeline(number), slicer.completed(slot)), (slot, u64::from(number) << 20));
        }
        assert_eq!(slicer.check_timelines(), Ok(slots.len() as u32));
    }

    #[test]
    fn forgotten_timelines_leave_their_places_to_new_ones() {
        let mut slicer = slicer(100);
        for number in 0..100_000 {
            let slot = slicer.need_timeline(number);
            assert_eq!(slicer.completed(slot), 0);
            slicer.set_completed(slot, 9);
            if number >= 8 {
                let old = slicer.find_timeline(number - 8);
                slicer.forget_timeline(old);
                assert_eq!(slicer.find_timeline(number - 8), 0);
            }
        }
        assert!(slicer.check_timelines().unwrap() < 64);
    }

    #[test]
    fn of_forgotten_places_on_the_way_a_new_timeline_takes_the_first() {
        // The top bit of a number's hash is its first branch.
        let mut same_way = (1..).filter(|&number| Slicer::hash(number) >> 31 == 1);
        let mut next = || same_way.next().unwrap();
        let mut slicer = slicer(100);
        let numbers = [next(), next(), next()];
        let [first, second, third] = numbers.map(|number| slicer.need_timeline(number));
        slicer.forget_timeline(first);
        // Others of the way are still known.
        assert_eq!(slicer.need_timeline(numbers[1]), second);
        assert_eq!(slicer.need_timeline(next()), first);
        slicer.forget_timeline(first);
        slicer.forget_timeline(second);
        assert_eq!(slicer.need_timeline(numbers[2]), third);
        assert_eq!(slicer.need_timeline(next()), first);
        assert_eq!(slicer.check_timelines(), Ok(3));
    }

    #[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
    #[test]
    fn the_way_to_a_timeline_is_short_whatever_the_numbers_have_in_common() {
        for shift in [0, 7, 16] {
            let mut slicer = slicer(4000);
            for number in 0..2000 {
                slicer.need_timeline(number << shift);
            }
            let depth = |number| {
                let (mut at, mut hash, mut depth) = (slicer.timelines, Slicer::hash(number), 0);
                while slicer.nodes[at].offset.get() != number {
                    at = Slicer::branch(&slicer.nodes[at], hash).get();
                    (hash, depth) = (hash << 1, depth + 1);
                }
                depth
            };
            let deepest = (0..2000).map(|number| depth(number << shift)).max();
            assert!(deepest <= Some(31), "{deepest:?} for {shift}");
        }
    }

    /// Callbacks that overwrite a slice may have the books checked.
    #[test]
    fn a_slice_on_its_way_from_one_queue_to_the_next_is_in_none() {
        let mut slicer = slicer(64);
        slicer.add_page(0, 1000);
        let slots: Vec<u32> = (0..3).map(|_| slicer.allocate(10, 0)).collect();
        let timeline = slicer.need_timeline(1);
        for &slot in &slots {
            // As it is while it is live: whatever these are for then.
            slicer.nodes[slot].link_a.set(7);
            slicer.nodes[slot].link_b.set(32);
            slicer.begin_pending(slot);
            assert_eq!(slicer.check_timelines(), Ok(1));
            slicer.enqueue(timeline, slot, 5, false);
            assert_eq!(slicer.take_due(timeline, 5), Due::Slice(slot));
            slicer.enqueue_first_scrub(slot);
            assert_eq!(slicer.check_timelines(), Ok(1));
        }
        for &slot in &slots {
            assert_eq!(slicer.take_scrub(), Some(slot));
            assert_eq!(slicer.check_timelines(), Ok(1));
        }
        assert_eq!(slicer.take_scrub(), None);
    }

    #[test]
    fn a_queue_gives_what_is_due_in_order_and_nothing_before_its_time() {
        let mut slicer = slicer(64);
        slicer.add_page(0, 1000);
        let slots: Vec<u32> = (0..5).map(|_| slicer.allocate(10, 0)).collect();
        let (a, b) = (slicer.need_timeline(1), slicer.need_timeline(2));
        for (&slot, value) in slots.iter().zip([5, 3, 7, u64::MAX]) {
            slicer.begin_pending(slot);
            slicer.enqueue(a, slot, value, false);
        }
        slicer.begin_pending(slots[4]);
        slicer.set_waits(slots[4], 2);
        slicer.enqueue(a, slots[4], 1, true);
        slicer.enqueue(b, slots[4], 1, true);
        slicer.check_timelines().unwrap();
        assert_eq!((slicer.live(), slicer.pending(), slicer.pending_granules()), (0, 5, 50));
        assert_eq!(slicer.take_due(a, 4), Due::Nothing);
        assert_eq!(slicer.take_due(a, 5), Due::Slice(slots[0]));
        // It was handed in after a later one: released late, not early.
        assert_eq!(slicer.take_due(a, 5), Due::Slice(slots[1]));
        assert_eq!(slicer.take_due(a, 6), Due::Nothing);
        assert_eq!(slicer.take_due(b, 1), Due::Partly);
        assert_eq!(slicer.take_due(b, 1), Due::Nothing);
        assert_eq!(slicer.take_due(a, u64::MAX), Due::Slice(slots[2]));
        assert_eq!(slicer.take_due(a, u64::MAX), Due::Slice(slots[3]));
        assert_eq!(slicer.take_due(a, u64::MAX), Due::Slice(slots[4]));
        assert_eq!(slicer.take_due(a, u64::MAX), Due::Nothing);
        for slot in slots {
            slicer.end_pending(slot);
            slicer.free(slot);
        }
        assert_eq!((slicer.live(), slicer.pending(), slicer.free_granules()), (0, 0, 1000));
    }
}
