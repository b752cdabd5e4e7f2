//! What the user of a pool asks for.
#![forbid(unsafe_code)]

use super::Rules;
use crate::device::MemoryType;
use crate::error::Error;

/// The kind of a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolType {
    /// Every slice has a page of its own, which near sizes share one after the other.
    ///
    /// A page has the request's size, rounded up by at most an eighth. A page that is free serves again: the smallest
    /// that fits, but none of more than twice the request as long as the device gives another.
    ExclusivePages {
        /// The largest request the pool takes, in bytes. A pool with 0 takes requests of size 0, and nothing else.
        max_alloc_size: u64,
    },
    /// Every slice has a page of its own, of exactly its size rounded up to the granule, which serves that size only.
    Direct {
        /// When no free page has the size: free pages go back to the device, lowest index first, until this many
        /// bytes hold the new page too, or none is free. `None`: no such watermark.
        reclaim_at: Option<u64>,
    },
    /// Slices are cut from larger pages.
    SlicedPages {
        /// Bytes of every page, rounded up to the granule; with [`PoolOptions::max_page_size`] of the first.
        page_size: u64,
        /// The largest slice the pool takes, in bytes.
        max_slice_size: u64,
        /// Cap on the bytes of all pages together: `floor(max_pool_size / page_size)` whole pages. A page larger than
        /// the cap shrinks to it, rounded down to the granule. `None`: no cap.
        ///
        /// The cap belongs to this pool of this allocator. A program with an allocator per stream has one cap per
        /// stream.
        max_pool_size: Option<u64>,
    },
}

/// Whether a sliced pool takes requests above `max_slice_size` that leave less than a fifth of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NearPage {
    /// Only if the pool has no cap.
    #[default]
    WhenUncapped,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Which kinds of resources ([`ResourceKind`](crate::ResourceKind)) a pool takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKinds {
    /// Both. Of sliced pages, the granule is at least [`MemoryType::granularity`].
    #[default]
    Both,
    /// Linear ones.
    Linear,
    /// Optimal ones.
    Optimal,
}

/// How pages of a pool grow that have no fixed size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageGrowth {
    /// The next page has an eighth of what the pool holds up to 16 times `page_size`, and a sixty-fourth beyond; at least
    /// `page_size` and at most `max_page_size`. Of that it has as much as whole slices of the request's size fill, in
    /// steps of a sixteenth of `page_size`. A request of 4 times `page_size`, or larger than such a page, gets a page for
    /// itself. Before a page is taken, as many bytes go back in pages that hold nothing, if there are any: those idle
    /// the longest first.
    #[default]
    Share,
    /// The next page has twice `page_size` for every page that the pools with this rule hold of the memory type, up to
    /// seven times and to `max_page_size`: as [`AllocationSizes`](crate::AllocationSizes) says. If that is too small for the
    /// request, the first such size that is not. Pages that hold nothing stay until they are too old.
    Doubling,
}

/// A pool's kind and how it is run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PoolOptions {
    /// The kind.
    pub pool_type: PoolType,
    /// The smallest unit the pool cuts, in bytes: every offset and size is a multiple of it. A power of two of at
    /// most 2^32; a page has at most 2^32 - 1 granules.
    pub granule: u64,
    /// Of sliced pages: whether requests that nearly fill a page are taken.
    pub near_page: NearPage,
    /// Of sliced pages: `None`: all are equal. `Some`: they grow, up to this many bytes.
    pub max_page_size: Option<u64>,
    /// How they grow.
    pub page_growth: PageGrowth,
    /// Index of the memory type that the pages are taken from.
    pub memory_type: u32,
    /// Which resources are taken. Of sliced pages only: others are not shared by slices.
    pub kinds: PoolKinds,
    /// Of sliced pages: how many are taken when the allocator is made, or the pool installed. Like others, they go back when
    /// they are too old; [`PoolOptions::keep_bytes`] keeps them.
    pub min_pages: u32,
    /// Pages that hold nothing go back after about this many allocations of the allocator; `None`: never by themselves.
    ///
    /// A page has a count of staleness, which begins at 4. Using the page again after it held nothing takes 1 off.
    /// Every `dealloc_period / 5` allocations of the allocator add 1 to each page that holds nothing; at 5 it goes, at
    /// most four in one call. So a page that was never used again goes at the first check, one that was used again
    /// and again after a whole period. Periods above 5 * 2^30 count as that.
    pub dealloc_period: Option<u64>,
    /// Bytes that the pool keeps whatever their age.
    pub keep_bytes: u64,
}

impl PoolOptions {
    /// The granule where nothing else is said: the strictest alignment that buffers commonly need.
    pub const DEFAULT_GRANULE: u64 = 256;

    const fn new(pool_type: PoolType) -> Self {
        Self {
            pool_type,
            granule: Self::DEFAULT_GRANULE,
            near_page: NearPage::WhenUncapped,
            max_page_size: None,
            page_growth: PageGrowth::Share,
            memory_type: 0,
            kinds: PoolKinds::Both,
            min_pages: 0,
            dealloc_period: None,
            keep_bytes: 0,
        }
    }

    /// Options of sliced pages.
    pub const fn sliced_pages(page_size: u64, max_slice_size: u64, max_pool_size: Option<u64>) -> Self {
        Self::new(PoolType::SlicedPages { page_size, max_slice_size, max_pool_size })
    }

    /// Options of sliced pages that grow from `page_size` to `max_page_size`, for requests of any size.
    pub const fn growing_pages(page_size: u64, max_page_size: u64) -> Self {
        let mut options = Self::sliced_pages(page_size, u64::MAX, None);
        options.max_page_size = Some(max_page_size);
        options
    }

    /// Options of shared memory blocks: sliced pages that double from `page_size` to `max_page_size` with their number.
    pub const fn blocks(page_size: u64, max_page_size: u64) -> Self {
        let mut options = Self::sliced_pages(page_size, max_page_size, None).with_near_page(NearPage::Never);
        options.max_page_size = Some(max_page_size);
        options.page_growth = PageGrowth::Doubling;
        options
    }

    /// Options of exclusive pages.
    pub const fn exclusive_pages(max_alloc_size: u64) -> Self {
        Self::new(PoolType::ExclusivePages { max_alloc_size })
    }

    /// Options of a direct pool.
    pub const fn direct(reclaim_at: Option<u64>) -> Self {
        Self::new(PoolType::Direct { reclaim_at })
    }

    /// The same with another granule.
    #[must_use]
    pub const fn with_granule(mut self, granule: u64) -> Self {
        self.granule = granule;
        self
    }

    /// The same with another rule for requests that nearly fill a page.
    #[must_use]
    pub const fn with_near_page(mut self, near_page: NearPage) -> Self {
        self.near_page = near_page;
        self
    }

    /// The same with pages that age, or do not.
    #[must_use]
    pub const fn with_dealloc_period(mut self, period: Option<u64>) -> Self {
        self.dealloc_period = period;
        self
    }

    /// The same with a floor under what ageing leaves.
    #[must_use]
    pub const fn with_keep_bytes(mut self, bytes: u64) -> Self {
        self.keep_bytes = bytes;
        self
    }

    /// The same from another memory type.
    #[must_use]
    pub const fn in_memory_type(mut self, index: u32) -> Self {
        self.memory_type = index;
        self
    }

    /// The same for other kinds of resources.
    #[must_use]
    pub const fn with_kinds(mut self, kinds: PoolKinds) -> Self {
        self.kinds = kinds;
        self
    }

    /// The same with pages from the start.
    #[must_use]
    pub const fn with_min_pages(mut self, pages: u32) -> Self {
        self.min_pages = pages;
        self
    }

    /// The configuration as it is in effect in pages of a memory type: after rounding, clamping and defaults.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names the field that cannot work.
    #[cold]
    pub fn in_effect(&self, memory_type: &MemoryType) -> Result<Self, Error> {
        memory_type.check()?;
        Ok(Rules::try_new(self, memory_type, 0)?.options())
    }

    /// The same with the granule that a memory type makes necessary.
    pub(super) fn with_granule_for(&self, memory_type: &MemoryType) -> Self {
        let mut options = self.clone();
        options.granule = options.granule.max(memory_type.non_coherent_atom);
        if matches!(self.pool_type, PoolType::SlicedPages { .. }) && self.kinds == PoolKinds::Both {
            // Nobody shares a range of the granularity, of whatever kind.
            options.granule = options.granule.max(memory_type.granularity);
        }
        options
    }

    /// Refuses what contradicts itself and would otherwise be adjusted: pages that are no multiple of the granule (they
    /// are rounded up to one), slices larger than a page, pages larger than the cap, sizes larger than the device's
    /// largest page. Errors name the field and its value. [`Allocator::try_new`](crate::Allocator::try_new) itself
    /// refuses only what cannot work.
    #[cold]
    pub fn validate(&self, memory_type: &MemoryType) -> Result<(), Error> {
        let refuse = |field, value| Err(Error::InvalidArgument { field, value });
        let effective = self.in_effect(memory_type)?;
        match self.pool_type {
            PoolType::ExclusivePages { max_alloc_size } if effective.pool_type != self.pool_type => {
                refuse(c"max_alloc_size", max_alloc_size)
            }
            PoolType::SlicedPages { page_size, max_slice_size, max_pool_size } => {
                // Without a word on slices, pages that grow take what fits into the largest there can be.
                let any_slice = self.max_page_size.is_some() && max_slice_size == u64::MAX;
                let PoolType::SlicedPages { max_slice_size: largest, .. } = effective.pool_type else { return Ok(()) };
                if page_size % self.granule != 0 {
                    return refuse(c"page_size", page_size);
                }
                match max_pool_size {
                    Some(cap) if cap < page_size => return refuse(c"max_pool_size", cap),
                    _ => {}
                }
                if max_slice_size > largest && !any_slice {
                    return refuse(c"max_slice_size", max_slice_size);
                }
                match self.max_page_size {
                    Some(asked) if effective.max_page_size != Some(asked) => refuse(c"max_page_size", asked),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
