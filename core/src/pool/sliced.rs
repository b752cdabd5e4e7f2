//! The rules of sliced pages: which requests they take, how large a page is, how many there may be.
#![forbid(unsafe_code)]

use super::{NearPage, PoolOptions, PoolType};
use crate::error::Error;
use crate::int::{align_down, align_up};

/// The effective configuration of a pool of sliced pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sliced {
    /// Bytes of every page, a multiple of the granule; 0 if the cap has no room for one.
    pub(crate) page_size: u64,
    pub(crate) max_slice_size: u64,
    /// Cap in whole pages.
    pub(crate) max_pages: Option<u64>,
    /// Whether requests that nearly fill a page are taken although they exceed `max_slice_size`.
    pub(crate) takes_near_page: bool,
}

impl Sliced {
    pub(crate) fn try_new(options: &PoolOptions) -> Result<Self, Error> {
        let PoolType::SlicedPages { page_size, max_slice_size, max_pool_size } = options.pool_type;
        if page_size == 0 {
            return Err(Error::InvalidArgument { field: c"page_size", value: page_size });
        }
        let granule = options.granule;
        // A page must hold a slice of its own size, so it is never rounded down below what was asked for.
        let mut page =
            align_up(page_size, granule).ok_or(Error::InvalidArgument { field: c"page_size", value: page_size })?;
        let mut max_slice = max_slice_size.min(page_size);
        if let Some(cap) = max_pool_size {
            if cap < page {
                // One page that the cap can pay for; none at all if not even a granule can be paid for.
                page = align_down(cap, granule);
                max_slice = if page == 0 { max_slice } else { max_slice.min(page) };
            }
        }
        Ok(Self {
            page_size: page,
            max_slice_size: max_slice,
            max_pages: max_pool_size.map(|cap| cap.checked_div(page).unwrap_or(0)),
            takes_near_page: match options.near_page {
                NearPage::WhenUncapped => max_pool_size.is_none(),
                NearPage::Always => true,
                NearPage::Never => false,
            },
        })
    }

    /// Whether the pool takes requests of `size` bytes.
    #[inline(always)]
    pub(crate) fn accepts(&self, size: u64) -> bool {
        size <= self.max_slice_size || (self.takes_near_page && self.nearly_fills(size))
    }

    /// Whether less than a fifth of a page would be left.
    fn nearly_fills(&self, size: u64) -> bool {
        // rest * 5 < page, without overflow.
        size <= self.page_size && self.page_size - size < self.page_size.div_ceil(5)
    }

    /// The largest request the pool takes, of those below a request of `size` bytes that it does not take.
    pub(crate) fn limit_below(&self, size: u64) -> u64 {
        if self.takes_near_page && size > self.page_size {
            self.page_size.max(self.max_slice_size)
        } else {
            self.max_slice_size
        }
    }

    /// The cap in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        match self.max_pages {
            Some(pages) => pages * self.page_size,
            None => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sliced(page_size: u64, max_slice_size: u64, max_pool_size: Option<u64>) -> Sliced {
        let options = PoolOptions::sliced_pages(page_size, max_slice_size, max_pool_size).with_granule(32);
        Sliced::try_new(&options).unwrap()
    }

    #[test]
    fn requests_that_nearly_fill_a_page_are_taken_when_there_is_no_cap() {
        let pool = sliced(32_000, 32, None);
        for (size, taken) in [(32, true), (33, false), (25_600, false), (25_601, true), (32_000, true), (32_001, false)]
        {
            assert_eq!(pool.accepts(size), taken, "{size}");
        }
        assert!(!sliced(32_000, 32, Some(64_000)).accepts(25_601));
        assert_eq!((pool.limit_below(32_001), pool.limit_below(33)), (32_000, 32));
        assert_eq!(sliced(32_000, 32, Some(64_000)).limit_below(32_001), 32);
    }

    #[test]
    fn the_cap_counts_whole_pages_and_shrinks_a_page_above_it() {
        assert_eq!(sliced(1024, 1024, Some(2047)).max_pages, Some(1));
        assert_eq!(sliced(1024, 1024, Some(2048)).max_pages, Some(2));
        let shrunk = sliced(1024, 1024, Some(1000));
        assert_eq!((shrunk.page_size, shrunk.max_slice_size, shrunk.max_pages), (992, 992, Some(1)));
        let none = sliced(1024, 1024, Some(16));
        assert_eq!((none.page_size, none.capacity(), none.max_pages), (0, 0, Some(0)));
        assert!(none.accepts(8));
    }

    #[test]
    fn the_near_page_rule_does_not_overflow() {
        let pool = sliced(1 << 36, 32, None);
        assert!(pool.accepts(1 << 36));
        assert!(!pool.accepts((1 << 36) / 5 * 4));
    }
}
