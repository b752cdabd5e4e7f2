//! How much host memory the books of an allocator can come to, for those who have to set it aside beforehand.
#![forbid(unsafe_code)]

use super::own_pages::{OwnPages, Type};
use super::{AllocatorOptions, Cell, PoolSource};
use crate::arena::{ARENA_OVERHEAD, rounded};
use crate::device::{DeviceLayout, Heap};
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

    /// The sum.
    pub(crate) fn bytes(&self) -> u64 {
        self.0
    }
}

/// Bytes of a block for [`HostMemory::in_block`](crate::HostMemory::in_block) in which an allocator with these pools always
/// has room for its books, while at most `slices` slices are live or pending and at most `pages` pages held, those being
/// taken included, and slices have waited for at most `timelines` timelines.
///
/// An upper bound, whichever pools the slices and pages are in and in whatever order they come and go. The pool of
/// persistent slices is counted if `options` name its granule, that of dedicated ones if they are for what is too large for
/// others. Not counted: names and user data, as [`Allocator::set_label`](crate::Allocator::set_label) says; 64 bytes for each slice of a batch while
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
    let types = [options.memory_type];
    let memory = DeviceLayout::new(&types, &[]);
    PoolSource::with_list(pools, |pools| block_bytes_with(&memory, pools, options, slices, pages, timelines))
}

/// [`block_bytes`] for an allocator made by [`Allocator::with_pools_of`](crate::Allocator::with_pools_of).
///
/// # Errors
/// As [`block_bytes`].
#[cold]
pub fn block_bytes_with(
    memory: &DeviceLayout<'_>,
    pools: PoolSource<'_>,
    options: &AllocatorOptions,
    slices: u32,
    pages: u32,
    timelines: u32,
) -> Result<u64, Error> {
    memory.check()?;
    let count = super::check_pool_count(pools.count as usize)?;
    let mut needs = Needs::default();
    needs.add::<Cell>(u64::from(count));
    needs.add::<Type>(memory.types.len() as u64);
    needs.add::<Heap>(memory.heaps.len().max(1) as u64);
    // Timelines are nodes of each pool, as slices are two of.
    let slices = slices.saturating_add(timelines.div_ceil(2));
    let mut add = |rules: &Rules| Pool::add_needs(rules, slices, pages, &mut needs);
    for i in 0..count {
        let pool = (pools.pool)(i)?;
        let refused = Error::InvalidArgument { field: c"memory_type", value: u64::from(pool.memory_type) };
        let memory_type = memory.types.get(pool.memory_type as usize).ok_or(refused)?;
        add(&Rules::try_new(&pool, &memory.in_effect(memory_type), options.debugging.margin)?)?;
    }
    let mut own = 0;
    for memory_type in memory.types {
        for (wanted, kind) in [
            (options.persistent_granule.is_some(), OwnPages::Persistent),
            (options.dedicated_when_too_large, OwnPages::Dedicated),
        ] {
            if wanted {
                add(&kind.rules(options, &memory.in_effect(memory_type))?)?;
                // That it may be made twice at the same time costs nothing: one is given up before it has a slice.
                own += 1;
            }
        }
    }
    (0..own).for_each(|_| needs.add::<Cell>(1));
    Ledger::add_needs(pages, memory, &mut needs);
    Ok(needs.bytes().saturating_add(ARENA_OVERHEAD))
}

/// Bytes that one piece of host memory takes of a block for [`HostMemory::in_block`](crate::HostMemory::in_block) at most,
/// for what its owner puts there besides.
pub const fn block_bytes_of(layout: Layout) -> u64 {
    rounded(layout.size() as u64, layout.align() as u64)
}
