//! The rules of exclusive pages: one slice each, which near sizes share one after the other.
#![forbid(unsafe_code)]

use super::rules::Sizes;
use crate::parts::Part;
use crate::slicer::bins::class_of;

/// Steps between sizes of pages per power of two, as a power of two: rounding up costs at most one part in as many.
const STEP_BITS: u32 = 3;

/// The effective configuration of a pool of exclusive pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exclusive {
    /// Bytes of the largest request; 0: of the only one.
    pub(crate) max_alloc_size: u64,
    /// Granules of the largest page.
    pub(crate) largest: u32,
    pub(crate) _part: Part,
}

impl Exclusive {
    /// The sizes the pool takes.
    pub(crate) fn accepted(&self) -> Sizes {
        Sizes::new(self.max_alloc_size.min(1), self.max_alloc_size)
    }

    /// Granules of a page for `size` granules: rounded up to a step of at most an eighth. From the power of two below the
    /// largest page on, steps are counted down from that, so that it is one; below, they are counted from 0.
    ///
    /// All pages of one size class are equal, since steps are at least twice as wide as the classes they lead to. So the
    /// first page of a class tells for all.
    pub(crate) fn page_for(&self, size: u32) -> u32 {
        debug_assert!(size != 0 && size <= self.largest);
        let top = 1 << self.largest.ilog2();
        let step = (1 << size.ilog2() >> STEP_BITS).max(1);
        if size > top {
            return self.count_down(size, step);
        }
        let page = size.next_multiple_of(step);
        // The power of two itself gives way to the step above it where both have one class.
        let above = self.count_down(top, (top >> STEP_BITS).max(1));
        if page == top && class_of(above) == class_of(top) { above } else { page }
    }

    /// The least number of steps below the largest page that holds `size`.
    fn count_down(&self, size: u32, step: u32) -> u32 {
        self.largest - (self.largest - size) / step * step
    }
}

#[cfg(all(test, feature = "complete"))]
mod tests {
    use super::*;
    use crate::parts::part;

    #[test]
    fn pages_are_rounded_up_by_an_eighth_at_most() {
        let pool = Exclusive { max_alloc_size: u64::MAX, largest: u32::MAX, _part: part(c"kind").unwrap() };
        for (size, page) in [(1, 1), (8, 8), (15, 15), (16, 16), (17, 18), (31, 32), (33, 36), (100, 104), (1000, 1024)]
        {
            assert_eq!(pool.page_for(size), page, "{size}");
        }
        for largest in [u32::MAX, 1 << 31, 3_000_000_019] {
            let pool = Exclusive { max_alloc_size: u64::MAX, largest, _part: part(c"kind").unwrap() };
            for size in (0..32).flat_map(|shift| [1u32 << shift, (1 << shift) + 1, (1 << shift) + (1 << shift >> 1)]) {
                let size = size.min(largest);
                let page = pool.page_for(size);
                assert!(page >= size && u64::from(page - size) * 8 <= u64::from(size), "{size} {page}");
            }
        }
    }

    #[test]
    fn pages_of_one_class_are_equal_whatever_the_largest() {
        for largest in (1..3000).chain([4095, 4096, 4097, 8191]) {
            let pool = Exclusive { max_alloc_size: u64::MAX, largest, _part: part(c"kind").unwrap() };
            let mut last = 0;
            for size in 1..=largest {
                let page = pool.page_for(size);
                assert!(page >= size && page <= largest && page >= last);
                assert!(page == last || class_of(page) != class_of(last), "{last} and {page} of {largest}");
                last = page;
            }
            assert_eq!(last, largest);
        }
    }
}
