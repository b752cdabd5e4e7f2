//! How much host memory the books of an allocator can come to, for those who have to set it aside beforehand.
#![forbid(unsafe_code)]

use super::{AllocatorOptions, Cell};
use crate::arena::{ARENA_OVERHEAD, rounded};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::pool::{Pool, PoolOptions, Rules};
use core::alloc::Layout;

/// Host memory asked for, all of it together.
#[derive(Default)]
pub(crate) struct Needs(u64);

impl Needs {
    /// `count` elements in one piece.
    pub(crate) fn add<T>(&mut self, count: u64) {
        let bytes = count.saturating_mul(size_of::<T>() as u64);
        self.0 = self.0.saturating_add(rounded(bytes, align_of::<T>() as u64));
    }
}

/// Bytes of a block for [`HostMemory::in_block`](crate::HostMemory::in_block) in which an allocator with these pools always
/// has room for its books, while at most `slices` slices are live or pending and at most `pages` pages held, those being
/// taken included, and slices have waited for at most `timelines` timelines.
///
/// An upper bound, whichever pools the slices and pages are in and in whatever order they come and go. The pool of
/// persistent slices is counted if `options` name its granule. Not counted: 64 bytes for each slice of a batch while
/// [`Allocator::allocate_many`](crate::Allocator::allocate_many) runs; 32 bytes for each point of slices that wait for
/// several; and one slot of 32 bytes that wears out with every 16.7 million frees of it.
///
/// # Errors
/// Those of [`Allocator::try_new`](crate::Allocator::try_new); [`Error::TooManySlices`] if there are no slots for so many.
#[cold]
pub fn block_bytes(
    pools: &[PoolOptions],
    options: &AllocatorOptions,
    slices: u32,
    pages: u32,
    timelines: u32,
) -> Result<u64, Error> {
    super::check_pool_count(pools)?;
    let mut needs = Needs::default();
    needs.add::<Cell>(pools.len() as u64);
    // Timelines are nodes of each pool, as slices are two of.
    let slices = slices.saturating_add(timelines.div_ceil(2));
    let mut add = |pool: &PoolOptions| {
        let rules = Rules::try_new(pool, &options.memory_type, options.debugging.margin)?;
        Pool::add_needs(&rules, slices, pages, &mut needs)
    };
    pools.iter().try_for_each(&mut add)?;
    if options.persistent_granule.is_some() {
        add(&options.persistent_pool())?;
        // That it may be made twice at the same time costs nothing: one of them is given up before it has a slice.
        needs.add::<Cell>(1);
    }
    Ledger::add_needs(pages, &mut needs);
    Ok(needs.0.saturating_add(ARENA_OVERHEAD))
}

/// Bytes that one piece of host memory takes of a block for [`HostMemory::in_block`](crate::HostMemory::in_block) at most,
/// for what its owner puts there besides.
pub const fn block_bytes_of(layout: Layout) -> u64 {
    rounded(layout.size() as u64, layout.align() as u64)
}
