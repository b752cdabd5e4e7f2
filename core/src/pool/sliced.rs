//! The rules of sliced pages: which requests they take, how large a page is, how much there may be.
#![forbid(unsafe_code)]

use super::rules::Sizes;
use super::{NearPage, PageGrowth, PoolOptions};
use crate::error::Error;
use crate::int::{align_down, align_up};
use crate::parts::{COMPLETE, Part, part};
use crate::sizes::block_size;

/// Pages that grow have this part of what the pool holds...
const GROWTH_SHARE: u64 = 8;

/// ...up to this many times the smallest. Beyond, a smaller part is enough to keep pages few.
const GROWTH_BEND: u64 = 16;
const GROWTH_SHARE_BEYOND: u64 = 64;

/// A slice of this many times the smallest page gets a page for itself: what it would leave of a larger one is rarely
/// used.
const GROWTH_ALONE: u64 = 4;

/// Pages are multiples of this part of the smallest, so that sizes which differ little can follow one another in them.
const GROWTH_STEP: u64 = 16;

/// The effective configuration of a pool of sliced pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sliced {
    /// Bytes of a page, or with `growth` of the smallest; a multiple of the granule, 0 if the cap has no room for one.
    pub(crate) page_size: u64,
    /// The same as if there were room.
    pub(crate) page_size_with_room: u64,
    pub(crate) max_slice_size: u64,
    /// Cap on the bytes of all pages: as many whole ones as the pool may have.
    pub(crate) capacity: Option<u64>,
    /// Whether requests that nearly fill a page are taken although they exceed `max_slice_size`.
    pub(crate) takes_near_page: bool,
    /// `None`: all pages are equal.
    pub(crate) growth: Option<Growth>,
}

/// How pages grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// Bytes that a page has at most, unless its request is larger.
    pub(crate) max_page_size: u64,
    /// Bytes of the largest page there can be.
    limit: u64,
    /// Pages are multiples of this many bytes, as far as `limit` allows; a multiple of the granule.
    step: u64,
    /// Whether pages double with their number.
    pub(crate) doubles: bool,
    _part: Part,
}

impl Growth {
    /// As many slices of `size` bytes as a part of what the pool holds has room for, and at least one: programs ask for
    /// the same size again, and what is left in a page of none of their sizes is lost to them.
    fn next_page(&self, smallest: u64, size: u64, reserved: u64, blocks: u32) -> u64 {
        if self.doubles {
            return self.next_block(smallest, size, blocks);
        }
        let share = (reserved / GROWTH_SHARE).min(smallest.saturating_mul(GROWTH_BEND));
        let usual = share.max(reserved / GROWTH_SHARE_BEYOND).clamp(smallest, self.max_page_size);
        let alone = size / GROWTH_ALONE >= smallest;
        let slices = if alone { 1 } else { usual.checked_div(size).unwrap_or(1).max(1) };
        let most = if size <= self.max_page_size { self.max_page_size } else { self.limit };
        (slices * size).checked_next_multiple_of(self.step).unwrap_or(most).min(most).max(smallest)
    }

    /// The first step of the ladder, from where `blocks` pages have led to, that holds a slice of `size` bytes; above the
    /// last one, the slice alone.
    fn next_block(&self, smallest: u64, size: u64, blocks: u32) -> u64 {
        if size > self.max_page_size {
            return size.min(self.limit);
        }
        let mut block = block_size(smallest, self.max_page_size, blocks);
        // Where there is no room for any page, the smallest has no bytes and never doubles.
        while block < size && block != 0 {
            block = block.saturating_mul(2).min(self.max_page_size);
        }
        block
    }
}

/// Bytes of as many whole pages as `cap` pays for. By halves: a division of 64 bits is a large function where the
/// processor has none.
fn whole_pages(cap: u64, page: u64) -> u64 {
    let (mut paid, mut step) = (0, page);
    while step != 0 && step <= cap - step.min(cap) {
        step *= 2;
    }
    while step >= page && page != 0 {
        if cap - paid >= step {
            paid += step;
        }
        step /= 2;
    }
    paid
}

impl Sliced {
    /// The rules of `options` for pages of at most `limit` bytes, a multiple of the granule.
    pub(crate) fn try_new(
        options: &PoolOptions,
        page_size: u64,
        max_slice_size: u64,
        max_pool_size: Option<u64>,
        limit: u64,
    ) -> Result<Self, Error> {
        let refused = Error::InvalidArgument { field: c"page_size", value: page_size };
        if page_size == 0 {
            return Err(refused);
        }
        let granule = options.granule;
        // A page must hold a slice of its own size, so it is never rounded down below what was asked for.
        let page_size_with_room = align_up(page_size, granule).ok_or(refused)?;
        let cap = max_pool_size.unwrap_or(u64::MAX);
        // At least one page that the cap can pay for; none at all if not even a granule can be paid for.
        let page = page_size_with_room.min(align_down(cap, granule));
        if page > limit {
            return Err(refused);
        }
        let growth = match options.max_page_size {
            None => None,
            Some(largest) => Some(Growth {
                max_page_size: align_down(largest, granule).min(limit).max(page),
                limit: limit.min(align_down(cap, granule)),
                step: align_down(page / GROWTH_STEP, granule).max(granule),
                doubles: options.page_growth == PageGrowth::Doubling,
                _part: part(c"max_page_size")?,
            }),
        };
        let largest = growth.map_or(page, |growth| growth.limit);
        Ok(Self {
            page_size: page,
            page_size_with_room: if page == 0 { page_size_with_room } else { page },
            max_slice_size: if page == 0 {
                max_slice_size.min(page_size_with_room).min(limit)
            } else {
                max_slice_size.min(largest)
            },
            capacity: max_pool_size.map(|cap| match growth {
                Some(_) => align_down(cap, granule),
                None if !COMPLETE => whole_pages(cap, page),
                None => cap.checked_div(page).unwrap_or(0) * page,
            }),
            takes_near_page: match options.near_page {
                _ if !COMPLETE => false,
                NearPage::WhenUncapped => max_pool_size.is_none(),
                NearPage::Always => true,
                NearPage::Never => false,
            },
            growth,
        })
    }

    /// The sizes the pool takes as a matter of course.
    pub(crate) fn accepted(&self) -> Sizes {
        if self.max_slice_size == 0 { Sizes::NONE } else { Sizes::new(1, self.max_slice_size) }
    }

    /// The sizes that would leave less than a fifth of a page, if the pool takes those.
    pub(crate) fn near_page(&self) -> Sizes {
        if !COMPLETE || !self.takes_near_page || self.page_size == 0 {
            return Sizes::NONE;
        }
        // rest * 5 < page, without overflow: the least rest that is too much is a fifth, rounded up.
        Sizes::new(self.page_size - self.page_size.div_ceil(5) + 1, self.page_size)
    }

    /// Bytes that the next page would have without a cap, which is for a slice of `size` bytes, when the pool holds
    /// `reserved` bytes, and the pools that double with their number `blocks` pages.
    pub(crate) fn usual_page(&self, size: u64, reserved: u64, blocks: u32) -> u64 {
        self.growth.map_or(self.page_size, |growth| growth.next_page(self.page_size, size, reserved, blocks))
    }

    /// Bytes that all pages may have together: the cap, or what numbers can count in steps of pages that grow.
    fn most(&self) -> u64 {
        match (self.capacity, self.growth) {
            (Some(cap), _) => cap,
            (None, Some(growth)) => u64::MAX - u64::MAX % growth.step,
            (None, None) => u64::MAX,
        }
    }

    /// Bytes of the next page; `None` at the cap.
    pub(crate) fn next_page(&self, size: u64, reserved: u64, blocks: u32) -> Option<u64> {
        let room = self.most().checked_sub(reserved)?;
        let usual = self.usual_page(size, reserved, blocks);
        // The last page before the cap has what is left.
        let page = if self.growth.is_some() { usual.min(room) } else { usual };
        (page <= room && page >= size && page != 0).then_some(page)
    }

    /// Bytes of the largest page there can be.
    pub(crate) fn largest_page(&self) -> u64 {
        self.growth.map_or(self.page_size, |growth| growth.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sliced(page_size: u64, max_slice_size: u64, max_pool_size: Option<u64>) -> Sliced {
        let options = PoolOptions::sliced_pages(page_size, max_slice_size, max_pool_size).with_granule(32);
        Sliced::try_new(&options, page_size, max_slice_size, max_pool_size, u64::MAX).unwrap()
    }

    fn accepts(pool: &Sliced, size: u64) -> bool {
        pool.accepted().contain(size) || pool.near_page().contain(size)
    }

    #[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
    #[test]
    fn requests_that_nearly_fill_a_page_are_taken_when_there_is_no_cap() {
        let pool = sliced(32_000, 32, None);
        for (size, taken) in [(32, true), (33, false), (25_600, false), (25_601, true), (32_000, true), (32_001, false)]
        {
            assert_eq!(accepts(&pool, size), taken, "{size}");
        }
        assert!(!accepts(&sliced(32_000, 32, Some(64_000)), 25_601));
    }

    #[test]
    fn the_cap_counts_whole_pages_and_shrinks_a_page_above_it() {
        assert_eq!(sliced(1024, 1024, Some(2047)).capacity, Some(1024));
        assert_eq!(sliced(1024, 1024, Some(2048)).capacity, Some(2048));
        let shrunk = sliced(1024, 1024, Some(1000));
        assert_eq!((shrunk.page_size, shrunk.max_slice_size, shrunk.capacity), (992, 992, Some(992)));
        let none = sliced(1024, 1024, Some(16));
        assert_eq!((none.page_size, none.capacity, none.next_page(32, 0, 0)), (0, Some(0), None));
        assert!(accepts(&none, 8) && !accepts(&none, 0));
    }

    #[test]
    fn whole_pages_are_counted_by_halves_as_by_division() {
        for (cap, page) in
            [(0, 1), (5, 7), (7, 7), (100, 7), (4096, 4096), (u64::MAX, 4096), (u64::MAX, u64::MAX), (9, 0)]
        {
            assert_eq!(whole_pages(cap, page), cap.checked_div(page).unwrap_or(0) * page, "{cap} {page}");
        }
    }

    #[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
    #[test]
    fn pages_that_grow_without_a_cap_reach_the_last_step_that_numbers_can_count() {
        let options = PoolOptions::growing_pages(1024, 4096).with_granule(32);
        let pool = Sliced::try_new(&options, 1024, u64::MAX, None, u64::MAX).unwrap();
        // Steps have a sixteenth of the smallest page.
        let most = u64::MAX - 63;
        assert_eq!(pool.next_page(1024, most - 1024, 0), Some(1024));
        assert_eq!((pool.next_page(1024, most - 992, 0), pool.next_page(32, most - 992, 0)), (None, Some(992)));
    }

    #[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
    #[test]
    fn the_near_page_rule_does_not_overflow() {
        let pool = sliced(1 << 36, 32, None);
        assert!(accepts(&pool, 1 << 36));
        assert!(!accepts(&pool, (1 << 36) / 5 * 4));
        assert!(accepts(&pool, (1 << 36) / 5 * 4 + 1));
    }
}
