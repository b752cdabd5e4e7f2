//! Free pages by their exact size: what a direct pool finds them by, in constant time however many sizes and pages.
//!
//! A hash table whose buckets are chains through the pages' nodes, so that entering and leaving need no memory and
//! cannot fail. A chain holds one page of each size, the *head*; the others of its size hang behind it in a list. The
//! table has four buckets for every page there has been at one time, so that most chains have one head or none: a step
//! further is a branch that cannot be foretold. It grows by splitting one bucket at a time (linear
//! hashing), so nothing is ever moved in bulk, and the memory for more buckets is got outside the lock.
//!
//! Links of a free page's node: `prev` and `next` in the list of its size (0 at either end), `link_a` from head to head in
//! a chain. The most recently freed page is the head, and the first to be used again.
#![forbid(unsafe_code)]

use crate::allocator::sizing::Needs;
use crate::canary::broken;
use crate::error::Error;
use crate::metadata::{Array, HostMemory};
use crate::slicer::Slicer;
use crate::slicer::nodes::{Kind, Node};
use core::cell::Cell;

/// Buckets of the first segment. Every later segment has as many as all before it.
const FIRST: u32 = 16;
const SEGMENTS: usize = 23;

const BUCKETS_PER_PAGE: u32 = 4;

/// Heads of chains; 0 ends a chain.
pub(crate) type Segment = Array<Cell<u32>>;

pub(crate) struct SizeIndex {
    segments: [Option<Segment>; SEGMENTS],
    installed: u32,
    /// Buckets in use. Never falls.
    buckets: u32,
    /// The least power of two that is not below `buckets`, less one.
    mask: u32,
}

/// Segment of a bucket, and its place in that.
#[inline(always)]
fn place_of(bucket: u32) -> (usize, u32) {
    let top = (bucket | (FIRST - 1)).ilog2();
    let segment = top + 1 - FIRST.ilog2();
    (segment as usize, if segment == 0 { bucket } else { bucket - (1 << top) })
}

fn segment_len(segment: u32) -> u32 {
    if segment == 0 { FIRST } else { FIRST << (segment - 1) }
}

/// A fixed function, so that no two runs differ. All bits of a size count, which is often a multiple of a large power of
/// two.
#[inline(always)]
fn hash(size: u32) -> u32 {
    let product = u64::from(size).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((product ^ (product >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32) as u32
}

impl SizeIndex {
    pub(crate) fn new() -> Self {
        Self { segments: [const { None }; SEGMENTS], installed: 0, buckets: 0, mask: 0 }
    }

    // ---- room: the memory is got by the owner, outside its lock

    /// The most host memory that an index for `pages` pages asks for.
    pub(crate) fn add_needs(pages: u32, needs: &mut Needs) {
        let (mut segment, mut room) = (0, 0u32);
        while room < pages.saturating_mul(BUCKETS_PER_PAGE) && (segment as usize) < SEGMENTS {
            needs.add::<Cell<u32>>(u64::from(segment_len(segment)));
            room += segment_len(segment);
            segment += 1;
        }
    }

    /// Whether there are buckets for `pages` pages.
    pub(crate) fn has_room(&self, pages: u32) -> bool {
        let needed = pages.saturating_mul(BUCKETS_PER_PAGE);
        needed <= self.buckets || needed <= self.capacity()
    }

    fn capacity(&self) -> u32 {
        // Every segment after the first has as many as all before it.
        if self.installed == 0 { 0 } else { FIRST << (self.installed - 1) }
    }

    /// The segment to get next, by its number.
    pub(crate) fn plan(&self) -> Result<u32, Error> {
        if (self.installed as usize) < SEGMENTS {
            Ok(self.installed)
        } else {
            Err(Error::TooManySlices { limit: self.capacity() })
        }
    }

    /// Memory for a planned segment.
    pub(crate) fn allocate(memory: HostMemory, plan: u32) -> Result<Segment, Error> {
        Array::try_new(memory, segment_len(plan), |_| Ok(Cell::new(0)))
    }

    /// Makes a segment part of the table; hands it back if another thread was faster.
    pub(crate) fn install(&mut self, segment: Segment) -> Option<Segment> {
        if (self.installed as usize) == SEGMENTS || segment.len() != segment_len(self.installed) {
            return Some(segment);
        }
        // Segments 0 and 1 have one length: which of them this was does not matter.
        self.segments[self.installed as usize] = Some(segment);
        self.installed += 1;
        None
    }

    /// There are `pages` pages now: splits some buckets if there are more than ever before. Needs [`SizeIndex::has_room`].
    pub(crate) fn note_pages(&mut self, slicer: &Slicer, pages: u32) {
        while self.buckets < pages.saturating_mul(BUCKETS_PER_PAGE) {
            let new = self.buckets;
            self.buckets += 1;
            if new > self.mask {
                self.mask = self.mask * 2 + 1;
            }
            if new == 0 || broken("direct_lost_in_split") {
                continue;
            }
            // What belongs to the new bucket lies in that of the same number without its top bit.
            let Some(old) = self.bucket(new - (1 << new.ilog2())) else { continue };
            let mut head = old.replace(0);
            while head != 0 {
                let node = slicer.node(head);
                let next = node.link_a.get();
                if let Some(bucket) = self.bucket_of(node.size.get()) {
                    node.link_a.set(bucket.replace(head));
                }
                head = next;
            }
        }
    }

    // ---- buckets

    /// The bucket of a size; `None` before there has been a page.
    #[inline(always)]
    fn bucket_of(&self, size: u32) -> Option<&Cell<u32>> {
        let bucket = hash(size) & self.mask;
        // A bucket that has not been split off yet is still part of its lower half.
        self.bucket(if bucket < self.buckets { bucket } else { bucket & (self.mask >> 1) })
    }

    #[inline(always)]
    fn bucket(&self, bucket: u32) -> Option<&Cell<u32>> {
        let (segment, place) = place_of(bucket);
        self.segments[segment].as_ref().map(|segment| &segment[place])
    }

    /// The head of a size in its bucket, and the head before it in the chain; 0 for none.
    #[inline(always)]
    fn look(slicer: &Slicer, bucket: &Cell<u32>, size: u32) -> (u32, u32) {
        let (mut before, mut head) = (0, bucket.get());
        while head != 0 && slicer.node(head).size.get() != size {
            before = head;
            head = slicer.node(head).link_a.get();
        }
        (before, head)
    }

    /// Makes `to` what comes after `before` in a chain.
    #[inline(always)]
    fn set_after(slicer: &Slicer, bucket: &Cell<u32>, before: u32, to: u32) {
        let link = if before == 0 { bucket } else { &slicer.node(before).link_a };
        link.set(to);
    }

    // ---- pages

    /// Enters a free page.
    #[inline(always)]
    pub(crate) fn insert(&self, slicer: &Slicer, slot: u32, node: &Node) {
        debug_assert!(node.is(Kind::Hole));
        let Some(bucket) = self.bucket_of(node.size.get()) else { return };
        let (before, head) = Self::look(slicer, bucket, node.size.get());
        node.set_neighbours(0, head);
        if head == 0 {
            node.link_a.set(bucket.replace(slot));
        } else {
            let old = slicer.node(head);
            node.link_a.set(old.link_a.get());
            old.prev.set(slot);
            Self::set_after(slicer, bucket, before, slot);
        }
    }

    /// Takes out the page of exactly `size` granules that was freed last; 0 if there is none.
    #[inline(always)]
    pub(crate) fn take(&self, slicer: &Slicer, size: u32) -> u32 {
        let Some(bucket) = self.bucket_of(size) else { return 0 };
        let (before, head) = Self::look(slicer, bucket, size);
        if head != 0 {
            Self::remove_head(slicer, bucket, before, slicer.node(head));
        }
        head
    }

    /// Takes a free page out.
    pub(crate) fn remove(&self, slicer: &Slicer, slot: u32) {
        let node = slicer.node(slot);
        if node.prev.get() != 0 {
            slicer.node(node.prev.get()).next.set(node.next.get());
            // Node 0, behind the last, takes any write.
            slicer.node(node.next.get()).prev.set(node.prev.get());
            return;
        }
        let Some(bucket) = self.bucket_of(node.size.get()) else { return };
        let (before, head) = Self::look(slicer, bucket, node.size.get());
        debug_assert_eq!(head, slot);
        Self::remove_head(slicer, bucket, before, node);
    }

    /// The next of a head's size takes its place, if there is one.
    #[inline(always)]
    fn remove_head(slicer: &Slicer, bucket: &Cell<u32>, before: u32, head: &Node) {
        let next = head.next.get();
        if next == 0 {
            Self::set_after(slicer, bucket, before, head.link_a.get());
        } else {
            let successor = slicer.node(next);
            successor.prev.set(0);
            successor.link_a.set(head.link_a.get());
            Self::set_after(slicer, bucket, before, next);
        }
    }

    /// Whether there is a page of exactly `size` granules.
    pub(crate) fn holds(&self, slicer: &Slicer, size: u32) -> bool {
        self.bucket_of(size).is_some_and(|bucket| Self::look(slicer, bucket, size).1 != 0)
    }

    /// Host bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.capacity()) * size_of::<Cell<u32>>() as u64
    }

    /// Verifies that `free` pages are in the table, each in its bucket, and no size twice in a chain.
    pub(crate) fn check(&self, slicer: &Slicer, free: u32) -> Result<(), &'static str> {
        let mut found = 0;
        for bucket in (0..self.buckets).filter_map(|bucket| self.bucket(bucket)) {
            let mut head = bucket.get();
            while head != 0 {
                let size = slicer.node(head).size.get();
                let in_place = self.bucket_of(size).is_some_and(|own| core::ptr::eq(own, bucket));
                if !in_place || Self::look(slicer, bucket, size).1 != head {
                    return Err("a free page is not where its size leads to");
                }
                let (mut before, mut slot) = (0, head);
                while slot != 0 {
                    let node = slicer.node(slot);
                    if !node.is(Kind::Hole) || node.size.get() != size || node.prev.get() != before {
                        return Err("a list of equal pages holds what does not belong there");
                    }
                    found += 1;
                    (before, slot) = (slot, node.next.get());
                }
                head = slicer.node(head).link_a.get();
            }
        }
        if found == free { Ok(()) } else { Err("a free page is not in the table") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Chunk;
    use crate::slicer::PageKind;
    use std::vec::Vec;

    struct Pages {
        slicer: Slicer,
        index: SizeIndex,
        count: u32,
    }

    impl Pages {
        fn new() -> Self {
            let slicer = Slicer::try_new(HostMemory::global(), 0, PageKind::Whole, 7).unwrap();
            Self { slicer, index: SizeIndex::new(), count: 0 }
        }

        /// A page that is in use.
        fn add(&mut self, size: u32) -> u32 {
            while !self.slicer.has_nodes_for_page() {
                let chunk = Chunk::allocate(HostMemory::global(), self.slicer.plan().unwrap()).unwrap();
                assert!(self.slicer.install(chunk).is_none());
            }
            self.count += 1;
            while !self.index.has_room(self.count) {
                let segment = SizeIndex::allocate(HostMemory::global(), self.index.plan().unwrap()).unwrap();
                assert!(self.index.install(segment).is_none());
            }
            self.index.note_pages(&self.slicer, self.count);
            self.slicer.add_whole(self.count, size)
        }

        fn free(&mut self, slot: u32) {
            self.slicer.free_whole(slot);
            self.index.insert(&self.slicer, slot, self.slicer.node(slot));
        }
    }

    #[test]
    fn buckets_fill_the_segments_without_gap() {
        let mut expected = (0, 0);
        for bucket in 0..100_000 {
            assert_eq!(place_of(bucket), expected, "{bucket}");
            expected.1 += 1;
            if expected.1 == segment_len(expected.0 as u32) {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    /// Bytes that an index for so many pages is said to need.
    fn needs_of(pages: u32) -> u64 {
        let mut needs = Needs::default();
        SizeIndex::add_needs(pages, &mut needs);
        needs.bytes()
    }

    #[test]
    fn the_needs_of_an_index_are_those_of_the_segments_it_gets() {
        for pages in (0..=40).chain([64, 65, 1000, 4096, 4097]) {
            let (mut index, mut gotten) = (SizeIndex::new(), Needs::default());
            while !index.has_room(pages) {
                let segment = SizeIndex::allocate(HostMemory::global(), index.plan().unwrap()).unwrap();
                gotten.add::<Cell<u32>>(u64::from(segment.len()));
                assert!(index.install(segment).is_none());
            }
            assert_eq!(needs_of(pages), gotten.bytes(), "{pages}");
        }
        // More pages than can be counted need no more than all segments.
        assert_eq!(needs_of(u32::MAX), needs_of(1 << 24));
    }

    #[test]
    fn an_index_takes_only_the_segment_it_needs_next() {
        let segment = |number| SizeIndex::allocate(HostMemory::global(), number).unwrap();
        let mut index = SizeIndex::new();
        for number in 0..3 {
            assert!(index.install(segment(number)).is_none());
        }
        // Another thread was faster.
        assert!(index.install(segment(2)).is_some());
        assert_eq!((index.plan(), index.capacity()), (Ok(3), 64));
        let mut full = SizeIndex { installed: SEGMENTS as u32, ..SizeIndex::new() };
        assert!(full.install(segment(0)).is_some());
        assert_eq!(full.plan(), Err(Error::TooManySlices { limit: 1 << 26 }));
    }

    #[test]
    fn pages_are_found_by_their_size_only_the_last_freed_first() {
        let mut pages = Pages::new();
        let slots: Vec<_> = [5, 7, 5, 5].into_iter().map(|size| pages.add(size)).collect();
        for &slot in &slots {
            pages.free(slot);
        }
        pages.index.check(&pages.slicer, 4).unwrap();
        assert_eq!(pages.index.take(&pages.slicer, 6), 0);
        assert_eq!(pages.index.take(&pages.slicer, 5), slots[3]);
        pages.index.remove(&pages.slicer, slots[0]);
        assert_eq!(pages.index.take(&pages.slicer, 5), slots[2]);
        assert_eq!(pages.index.take(&pages.slicer, 5), 0);
        assert_eq!(pages.index.take(&pages.slicer, 7), slots[1]);
    }

    #[test]
    fn a_free_page_with_a_wrong_size_link_or_kind_is_noticed() {
        let mut pages = Pages::new();
        let slots: Vec<_> = [5, 7, 5, 5, 9, 7].into_iter().map(|size| pages.add(size)).collect();
        slots.iter().for_each(|&slot| pages.free(slot));
        let check = |free| pages.index.check(&pages.slicer, free);
        assert_eq!(check(6), Ok(()));
        assert!(check(5).is_err() && check(7).is_err());
        for &slot in &slots {
            let node = pages.slicer.node(slot);
            let links = || [0].into_iter().chain(slots.iter().copied());
            let damage = |field: &Cell<u32>, values: &mut dyn Iterator<Item = u32>| {
                let before = field.get();
                for value in values.filter(|&value| value != before) {
                    field.set(value);
                    assert!(check(6).is_err(), "{slot}: {before} to {value}");
                    field.set(before);
                }
            };
            damage(&node.size, &mut (1..10));
            damage(&node.prev, &mut links());
            damage(&node.next, &mut links());
            node.set_kind(Kind::Live);
            assert!(check(6).is_err(), "{slot}");
            node.set_kind(Kind::Hole);
        }
        assert_eq!(check(6), Ok(()));
    }

    #[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
    #[test]
    fn chains_stay_short_while_the_table_grows_whatever_the_sizes_have_in_common() {
        for shift in [0, 4, 12] {
            let mut pages = Pages::new();
            let slots: Vec<_> = (1..=5000).map(|i| pages.add(i << shift)).collect();
            for (i, &slot) in slots.iter().enumerate() {
                pages.free(slot);
                if i % 500 == 0 {
                    pages.index.check(&pages.slicer, i as u32 + 1).unwrap();
                }
            }
            let chain = |bucket| {
                let (mut head, mut length) = (pages.index.bucket(bucket).map_or(0, Cell::get), 0);
                while head != 0 {
                    head = pages.slicer.node(head).link_a.get();
                    length += 1;
                }
                length
            };
            let longest = (0..pages.index.buckets).map(chain).max();
            assert!(longest <= Some(8), "{longest:?} for {shift}");
            // Growing while pages are free moves them to where they belong.
            for i in 0..5000 {
                pages.add(i + 1_000_000);
            }
            pages.index.check(&pages.slicer, 5000).unwrap();
        }
    }
}
