//! The rules of pools that have a page for each slice: exclusive and direct ones.

use crate::oracle::{Books, Page};
use slicepool_core::Error;

/// The effective configuration of exclusive pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exclusive {
    granule: u64,
    pub(crate) max_alloc_size: u64,
    /// Bytes of the largest page.
    pub(crate) largest: u64,
}

impl Exclusive {
    pub(crate) fn new(max_alloc_size: u64, granule: u64, limit: u64) -> Self {
        let max_alloc_size = max_alloc_size.min(limit);
        Self { granule, max_alloc_size, largest: max_alloc_size.max(1).next_multiple_of(granule) }
    }

    pub(crate) fn refusal(&self, size: u64) -> Option<Error> {
        match (size, self.max_alloc_size) {
            (0, 0) => None,
            (0, _) => Some(Error::InvalidArgument { field: c"size", value: 0 }),
            (_, limit) => (size > limit).then_some(Error::TooLarge { size, limit }),
        }
    }

    /// Bytes of a new page. A step is the largest power of two of at most an eighth of the request, in granules. Up to
    /// the power of two below the largest page, pages are whole numbers of steps; above, such numbers below the
    /// largest. Of two that are closer than a thirty-second only the larger one is used.
    pub(crate) fn page_for(&self, size: u64) -> u64 {
        let granules = size.div_ceil(self.granule).max(1);
        let largest = self.largest / self.granule;
        let step_of = |granules| (0..32).map(|bits| 1 << bits).rfind(|step| step * 8 <= granules).unwrap_or(1);
        let below_largest = |granules| granules + (largest - granules) % step_of(granules);
        let top = largest.ilog2();
        let mut page =
            if granules > 1 << top { below_largest(granules) } else { granules.next_multiple_of(step_of(granules)) };
        let above = below_largest(1 << top);
        if page == 1 << top && (above - page) * 32 < page {
            page = above;
        }
        assert!(page <= largest && (page - granules) * 8 <= granules, "{granules} granules get {page} of {largest}");
        page * self.granule
    }

    /// The bytes of the smallest free page that holds a request; with `close` none of more than twice its size, unless
    /// a new one would be as large.
    pub(crate) fn reuses(&self, books: &Books, size: u64, close: bool) -> Option<u64> {
        let smallest = books.idle().map(|(_, page)| page.size).filter(|&page| page >= size).min()?;
        let wasteful = u128::from(smallest) > u128::from(size) * 2 && smallest > self.page_for(size);
        (!close || !wasteful).then_some(smallest)
    }
}

/// The effective configuration of a direct pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct {
    pub(crate) granule: u64,
    pub(crate) reclaim_at: Option<u64>,
    pub(crate) limit: u64,
}

impl Direct {
    pub(crate) fn refusal(&self, size: u64) -> Option<Error> {
        if size == 0 {
            return Some(Error::InvalidArgument { field: c"size", value: 0 });
        }
        (size > self.limit).then_some(Error::TooLarge { size, limit: self.limit })
    }

    /// Bytes of a page.
    pub(crate) fn page_for(&self, size: u64) -> u64 {
        size.next_multiple_of(self.granule)
    }

    /// The free page of exactly the size that was freed last.
    pub(crate) fn reuses<'a>(&self, books: &'a Books, size: u64) -> Option<(u64, &'a Page)> {
        let exact = self.page_for(size);
        books.idle().filter(|(_, page)| page.size == exact).max_by_key(|(_, page)| page.idle_since)
    }

    /// The free page that has to go before the pool takes a page for a request while it holds `reserved` bytes.
    pub(crate) fn in_the_way(&self, books: &Books, size: u64, reserved: u128) -> Option<u64> {
        let above = reserved + u128::from(self.page_for(size)) > u128::from(self.reclaim_at?);
        let lowest = books.idle().min_by_key(|(_, page)| page.index)?.0;
        above.then_some(lowest)
    }
}
