//! Size classes of holes: a bitmap that says which have any, and a ring for each, which begins with its head.
//!
//! Classes are powers of two in 32 steps. Sizes below 64 have a class each; above, a class spans 1/32 of its power of
//! two, so a hole of any class above a request's own always fits.
#![forbid(unsafe_code)]

use super::nodes::{Node, Nodes};
use crate::allocator::sizing::Needs;
use crate::error::Error;
use crate::int::{mask, select};
use crate::metadata::{Array, HostMemory};

const STEP_BITS: u32 = 5;
const WORDS: usize = (class_of(u32::MAX) as usize + 1).div_ceil(64);

/// The class of a size in granules. Size 0 has class 0, which no hole has.
#[inline(always)]
pub(crate) const fn class_of(size: u32) -> u32 {
    let shift = 31 - (size | (1 << STEP_BITS)).leading_zeros() - STEP_BITS;
    (shift << STEP_BITS) + (size >> shift)
}

pub(crate) struct Bins {
    /// Bit c: class c has a hole. One word more than there are classes, so that a window may begin in the last one.
    /// Bit 0 belongs to the sentinel and means nothing.
    map: [u64; WORDS + 1],
    /// First hole of each class; 0 = none. The last one is the first one's neighbour on the other side.
    heads: Array<u32>,
}

impl Bins {
    /// Bins for holes of up to `largest` granules.
    pub(crate) fn try_new(memory: HostMemory, largest: u32) -> Result<Self, Error> {
        let heads = Array::try_new(memory, class_of(largest) + 1, |_| Ok(0))?;
        Ok(Self { map: [0; WORDS + 1], heads })
    }

    /// The most host memory that bins for holes of up to `largest` granules ask for.
    pub(crate) fn add_needs(largest: u32, needs: &mut Needs) {
        needs.add::<u32>(u64::from(class_of(largest)) + 1);
    }

    /// Makes room for classes up to that of `largest`. Fails without any change.
    pub(crate) fn widen(&mut self, memory: HostMemory, largest: u32) -> Result<(), Error> {
        let classes = class_of(largest) + 1;
        if classes > self.heads.len() {
            let old = &self.heads;
            let copy = |i| Ok(if i < old.len() { old[i] } else { 0 });
            self.heads = Array::try_new(memory, classes, copy)?;
        }
        Ok(())
    }

    /// First hole of a class, 0 if there is none or no hole can be that large.
    #[inline(always)]
    pub(crate) fn first(&self, class: u32) -> u32 {
        if class < self.heads.len() { self.heads[class] } else { 0 }
    }

    /// The lowest class at or above `class`, which is not 0, that has a hole; 0 if none has.
    #[cfg_attr(feature = "complete", inline(always))]
    #[cfg_attr(not(feature = "complete"), inline(never))]
    pub(crate) fn at_or_above(&self, class: u32) -> u32 {
        let word = (class / 64) as usize;
        let bit = class % 64;
        if word >= WORDS {
            return 0;
        }
        // The 64 classes from `class` on, from two words. Holes close in size are the rule.
        let window = (self.map[word] >> bit) | ((self.map[word + 1] << 1) << (63 - bit));
        if window != 0 { class + window.trailing_zeros() } else { self.far_above(word + 1) }
    }

    #[cold]
    fn far_above(&self, from: usize) -> u32 {
        for word in from..WORDS {
            if self.map[word] != 0 {
                return word as u32 * 64 + self.map[word].trailing_zeros();
            }
        }
        0
    }

    /// The highest class that has a hole; 0 if none has.
    pub(crate) fn highest(&self) -> u32 {
        for word in (0..WORDS).rev() {
            let bits = self.map[word] & if word == 0 { !1 } else { !0 };
            if bits != 0 {
                return word as u32 * 64 + 63 - bits.leading_zeros();
            }
        }
        0
    }

    /// The hole behind another of its class; 0 if that is the last.
    pub(crate) fn after(&self, nodes: &Nodes, class: u32, hole: u32) -> u32 {
        let after = nodes[hole].link_b.get();
        after & mask(after != self.first(class))
    }

    /// Puts a hole into the list of its class: in front if it lies before the first, else at the end. That is O(1)
    /// and packs nearly as well as a sorted list.
    ///
    /// In a ring both are the same place, and only the head differs.
    #[cfg_attr(feature = "complete", inline(always))]
    #[cfg_attr(not(feature = "complete"), inline(never))]
    pub(crate) fn link(&mut self, nodes: &Nodes, hole: u32, node: &Node) {
        let class = class_of(node.size.get());
        let head = self.heads[class];
        // An empty list needs no case of its own: the hole is its own neighbour before it is linked.
        node.link_a.set(hole);
        let first = select(mask(head == 0), hole, head);
        let front = &nodes[first];
        let last = front.link_a.replace(hole);
        nodes[last].link_b.set(hole);
        node.link_a.set(last);
        node.link_b.set(first);
        self.heads[class] = select(mask(node.place() < front.place()), hole, first);
        self.map[(class / 64) as usize] |= 1 << (class % 64);
    }

    /// Takes a hole out of the list of its class.
    #[cfg_attr(feature = "complete", inline(always))]
    #[cfg_attr(not(feature = "complete"), inline(never))]
    pub(crate) fn unlink(&mut self, nodes: &Nodes, hole: u32, node: &Node) {
        self.unlink_of(class_of(node.size.get()), nodes, hole, node);
    }

    /// [`Bins::unlink`] of a hole whose class is known.
    #[inline(always)]
    pub(crate) fn unlink_of(&mut self, class: u32, nodes: &Nodes, hole: u32, node: &Node) {
        let before = node.link_a.get();
        let after = node.link_b.get();
        nodes[before].link_b.set(after);
        nodes[after].link_a.set(before);
        // One that is its own neighbour was alone, and the first.
        let head = self.heads[class];
        let first = select(mask(head == hole), after & mask(after != hole), head);
        self.heads[class] = first;
        self.map[(class / 64) as usize] &= !(u64::from(first == 0) << (class % 64));
    }

    /// Forgets all holes.
    pub(crate) fn clear(&mut self) {
        self.map = [0; WORDS + 1];
        for class in 0..self.heads.len() {
            self.heads[class] = 0;
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.heads.bytes()
    }

    /// Classes there are lists for.
    pub(crate) fn classes(&self) -> u32 {
        self.heads.len()
    }

    /// Whether the bitmap says that a class has a hole.
    pub(crate) fn marked(&self, class: u32) -> bool {
        self.map[(class / 64) as usize] >> (class % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least size of a class.
    fn floor_of(class: u32) -> u32 {
        let shift = (class >> STEP_BITS).saturating_sub(1);
        (class - (shift << STEP_BITS)) << shift
    }

    #[test]
    fn classes_rise_with_the_size_and_their_floors_begin_them() {
        let mut last = 0;
        for shift in 0..32 {
            for step in [0u64, 1, 2, 30, 31] {
                let size = ((1u64 << shift) + ((step << shift) >> 5)) as u32;
                let class = class_of(size);
                assert!(class >= last, "size {size}");
                last = class;
                let floor = floor_of(class);
                assert!(floor <= size);
                assert_eq!(class_of(floor), class);
                assert_eq!(class_of(floor - 1), class - 1);
            }
        }
        assert_eq!(class_of(0), 0);
        assert_eq!(class_of(63), 63);
        assert_eq!(class_of(u32::MAX), 895);
    }

    #[test]
    fn a_search_finds_the_next_class_at_any_distance() {
        let memory = HostMemory::global();
        for from in (1..896).step_by(7) {
            for at in (1..896).step_by(5) {
                let mut bins = Bins::try_new(memory, u32::MAX).unwrap();
                bins.map[at / 64] |= 1 << (at % 64);
                let expected = if at >= from { at as u32 } else { 0 };
                assert_eq!(bins.at_or_above(from as u32), expected, "from {from} at {at}");
                assert_eq!(bins.highest(), at as u32);
            }
        }
    }
}
