//! Lists of pools made from what is known about a device: where to begin, and often where to stay.
//!
//! [`adaptive`] is the one to take when nothing speaks for another. [`sub_slices`] and [`exclusive_pages`] are those of
//! GPU compute runtimes, exactly. Each can be changed before use: a [`PoolList`] is a slice of [`PoolOptions`].
//!
//! ```
//! use slicepool_core::layout::{self, Properties};
//! let pools = layout::sub_slices(&Properties::new(128 << 20))?;
//! assert_eq!(pools.len(), 4);
//! # Ok::<(), slicepool_core::Error>(())
//! ```
#![forbid(unsafe_code)]

use crate::device::{DeviceLayout, MemoryType};
use crate::error::Error;
use crate::int::{align_down, align_up};
use crate::pool::{PoolKinds, PoolOptions};
use crate::sizes::{AllocationSizes, largest_block_of};
use core::cmp::Ordering;
use core::ops::{Deref, DerefMut};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What a list of pools depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// Bytes of the largest page the device gives out.
    pub max_page: u64,
    /// What slices are aligned to: the granule of the pools.
    pub alignment: u64,
    /// Bytes of the heap that the pages come from; `u64::MAX` if it is not known.
    pub heap_size: u64,
}

impl Properties {
    /// A device with pages of at most `max_page` bytes, slices aligned to [`PoolOptions::DEFAULT_GRANULE`] and a heap of
    /// unknown size.
    pub const fn new(max_page: u64) -> Self {
        Self { max_page, alignment: PoolOptions::DEFAULT_GRANULE, heap_size: u64::MAX }
    }

    /// The same with slices aligned to something else.
    #[must_use]
    pub const fn with_alignment(mut self, alignment: u64) -> Self {
        self.alignment = alignment;
        self
    }

    /// The same with a heap of that many bytes.
    #[must_use]
    pub const fn with_heap_size(mut self, bytes: u64) -> Self {
        self.heap_size = bytes;
        self
    }

    /// The largest page that is a multiple of the alignment and can be counted in it.
    fn largest_page(&self) -> Result<u64, Error> {
        if !self.alignment.is_power_of_two() || self.alignment > 1 << 32 {
            return Err(Error::InvalidArgument { field: c"alignment", value: self.alignment });
        }
        match align_down(self.max_page, self.alignment).min(u64::from(u32::MAX) * self.alignment) {
            0 => Err(Error::InvalidArgument { field: c"max_page", value: self.max_page }),
            largest => Ok(largest),
        }
    }
}

/// A list of pools, in the order in which they are tried: a slice of [`PoolOptions`] with a length of its own.
#[derive(Clone, Debug)]
pub struct PoolList {
    pools: [PoolOptions; PoolList::MAX],
    len: usize,
}

impl PoolList {
    /// The most pools of a list.
    pub const MAX: usize = 64;

    /// A list without pools.
    #[inline(never)]
    pub fn new() -> Self {
        Self { pools: core::array::from_fn(|_| PoolOptions::direct(None)), len: 0 }
    }

    /// Appends a pool.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the field `pools` if the list is full.
    #[inline(never)]
    pub fn push(&mut self, pool: &PoolOptions) -> Result<(), Error> {
        let full = Error::InvalidArgument { field: c"pools", value: self.len as u64 };
        *self.pools.get_mut(self.len).ok_or(full)? = pool.clone();
        self.len += 1;
        Ok(())
    }
}

impl Default for PoolList {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for PoolList {
    type Target = [PoolOptions];
    fn deref(&self) -> &[PoolOptions] {
        self.pools.get(..self.len).unwrap_or_default()
    }
}

impl DerefMut for PoolList {
    fn deref_mut(&mut self) -> &mut [PoolOptions] {
        self.pools.get_mut(..self.len).unwrap_or_default()
    }
}

/// Bytes of the smallest pages that [`adaptive`] takes.
const ADAPTIVE_PAGE: u64 = 4 * MIB;

/// The largest request that [`adaptive`] keeps apart from the others.
const ADAPTIVE_SMALL: u64 = 64 * KIB;

/// Allocations after which [`adaptive`] gives back what is not used.
const ADAPTIVE_PERIOD: u64 = 20_000;

/// Two pools for programs of any size: pages of 4 MiB for requests up to 64 KiB, and pages that grow with what is held,
/// from 4 MiB to 256 MiB and an eighth of the heap, for the others. Pages that hold nothing go back after some
/// thousand allocations: more than a frame or a training step has, so that a program which repeats itself keeps what it
/// needs. A program that allocates one byte takes 4 MiB.
///
/// # Errors
/// [`Error::InvalidArgument`] for an alignment that is no power of two, or larger than `max_page`.
#[cold]
pub fn adaptive(properties: &Properties) -> Result<PoolList, Error> {
    let mut pools = PoolList::new();
    adaptive_pools(properties)?.iter().try_for_each(|pool| pools.push(pool))?;
    Ok(pools)
}

#[cold]
fn adaptive_pools(properties: &Properties) -> Result<[PoolOptions; 2], Error> {
    let limit = properties.largest_page()?;
    let page = align_up(ADAPTIVE_PAGE, properties.alignment).unwrap_or(limit).min(limit);
    let share = align_down(properties.heap_size / 8, properties.alignment);
    let largest = (256 * MIB).min(limit).min(ADAPTIVE_PAGE.max(share)).max(page);
    let mut small = PoolOptions::sliced_pages(page, ADAPTIVE_SMALL.min(page), None);
    small.near_page = crate::pool::NearPage::Never;
    Ok([small, PoolOptions::growing_pages(page, largest)]
        .map(|pool| pool.with_granule(properties.alignment).with_dealloc_period(Some(ADAPTIVE_PERIOD))))
}

/// Pools for all memory of a device, those of each memory type as [`adaptive`] makes them: from pages that hold linear and
/// optimal resources together if the type's granularity allows it, otherwise from pages for each.
///
/// # Errors
/// [`Error::InvalidArgument`] for a layout that cannot be, and if there are more than [`PoolList::MAX`] pools.
#[cold]
pub fn adaptive_types(memory: &DeviceLayout<'_>) -> Result<PoolList, Error> {
    collect(memory, 2, &|i| adaptive_pool(memory, i))
}

/// Shared blocks for all memory of a device: of each memory type pages that double from the smallest size to the largest of
/// `sizes`, or to an eighth of the heap in steps of 4 MiB; pages for linear and for optimal resources apart if the type's
/// granularity is above the granule. Blocks that hold nothing go back after about 1,024 allocations.
///
/// Requests above the largest block need pages of their own: [`AllocatorOptions::dedicated_when_too_large`].
///
/// [`AllocatorOptions::dedicated_when_too_large`]: crate::AllocatorOptions::dedicated_when_too_large
///
/// ```
/// use slicepool_core::layout;
/// use slicepool_core::{AllocationSizes, Allocator, AllocatorOptions, DeviceLayout, Heap, HostDevice, MemoryType, Request};
/// let heaps = [Heap::new(8 << 30), Heap::new(16 << 30)];
/// let types = [MemoryType::default(), MemoryType::default().in_heap(1).with_host_visible(true)];
/// let memory = DeviceLayout::new(&types, &heaps);
/// let pools = layout::blocks(&AllocationSizes::default(), &memory)?;
/// let options = AllocatorOptions::default().with_dedicated_when_too_large();
/// let allocator = Allocator::with_memory_types(HostDevice::new(), &memory, &pools, options)?;
/// let slice = allocator.allocate(&Request::new(1 << 20))?;
/// allocator.free(slice.id)?;
/// # Ok::<(), slicepool_core::Error>(())
/// ```
///
/// # Errors
/// As [`adaptive_types`].
#[cold]
pub fn blocks(sizes: &AllocationSizes, memory: &DeviceLayout<'_>) -> Result<PoolList, Error> {
    collect(memory, 1, &|i| block_pool(sizes, memory, i))
}

#[cold]
fn collect(
    memory: &DeviceLayout<'_>,
    per_kind: u32,
    pool: &dyn Fn(u32) -> Result<PoolOptions, Error>,
) -> Result<PoolList, Error> {
    memory.check()?;
    let mut pools = PoolList::new();
    (0..pool_count(memory, per_kind)).try_for_each(|i| pools.push(&pool(i)?))?;
    Ok(pools)
}

/// How many pools [`adaptive_types`] makes; for those who have no room for a list.
pub fn adaptive_pool_count(memory: &DeviceLayout<'_>) -> u32 {
    pool_count(memory, 2)
}

/// One of the pools of [`adaptive_types`].
///
/// # Errors
/// As [`adaptive_types`], and if there is no such pool.
#[cold]
pub fn adaptive_pool(memory: &DeviceLayout<'_>, index: u32) -> Result<PoolOptions, Error> {
    let (memory_type, kinds, part) = place_of_pool(memory, 2, index)?;
    let described = memory.types[memory_type as usize];
    let pools = adaptive_pools(&properties_of(memory, &described))?;
    Ok(pools[part as usize].clone().in_memory_type(memory_type).with_kinds(kinds))
}

/// How many pools [`blocks`] makes; for those who have no room for a list.
pub fn block_pool_count(memory: &DeviceLayout<'_>) -> u32 {
    pool_count(memory, 1)
}

/// One of the pools of [`blocks`].
///
/// # Errors
/// As [`blocks`], and if there is no such pool.
#[cold]
pub fn block_pool(sizes: &AllocationSizes, memory: &DeviceLayout<'_>, index: u32) -> Result<PoolOptions, Error> {
    let (memory_type, kinds, _) = place_of_pool(memory, 1, index)?;
    let described = memory.types[memory_type as usize];
    let (least, most) = sizes.bounds(described.host_visible);
    let properties = properties_of(memory, &described);
    let most = most.min(largest_block_of(properties.heap_size)).min(properties.largest_page()?);
    let pool = PoolOptions::blocks(least.min(most), most).with_dealloc_period(Some(BLOCK_PERIOD));
    Ok(pool.in_memory_type(memory_type).with_kinds(kinds).with_granule(properties.alignment))
}

/// What is known of a memory type.
fn properties_of(memory: &DeviceLayout<'_>, memory_type: &MemoryType) -> Properties {
    let in_effect = memory.in_effect(memory_type);
    // What pools of this memory type will have as their granule at least.
    let mut alignment = in_effect.usual_granule().max(memory_type.non_coherent_atom);
    if !parts_kinds(memory_type) {
        alignment = alignment.max(memory_type.granularity);
    }
    let properties = Properties::new(in_effect.max_page).with_alignment(alignment);
    properties.with_heap_size(memory.heap_of(memory_type).size)
}

/// Allocations after which blocks that are not used go back.
const BLOCK_PERIOD: u64 = 1024;

/// Whether a memory type needs pages for each kind of resource.
fn parts_kinds(memory_type: &MemoryType) -> bool {
    memory_type.granularity > PoolOptions::DEFAULT_GRANULE.max(memory_type.non_coherent_atom)
}

fn pool_count(memory: &DeviceLayout<'_>, per_kind: u32) -> u32 {
    memory.types.iter().map(|memory_type| per_kind << u32::from(parts_kinds(memory_type))).sum()
}

/// The memory type and the kinds of a pool, and which it is of those with the same.
#[cold]
fn place_of_pool(memory: &DeviceLayout<'_>, per_kind: u32, index: u32) -> Result<(u32, PoolKinds, u32), Error> {
    let mut left = index;
    for (i, memory_type) in memory.types.iter().enumerate() {
        let kinds: &[PoolKinds] =
            if parts_kinds(memory_type) { &[PoolKinds::Linear, PoolKinds::Optimal] } else { &[PoolKinds::Both] };
        let count = per_kind * kinds.len() as u32;
        if left < count {
            return Ok((i as u32, kinds[(left / per_kind) as usize], left % per_kind));
        }
        left -= count;
    }
    Err(Error::InvalidArgument { field: c"pool", value: u64::from(index) })
}

/// A few pools of sliced pages, each for slices well below its page, in steps of four; one exclusive page for each
/// larger request; and one for requests of size 0.
///
/// # Errors
/// As [`adaptive`].
#[cold]
pub fn sub_slices(properties: &Properties) -> Result<PoolList, Error> {
    let limit = properties.largest_page()?;
    let mut pools = PoolList::new();
    pools.push(&PoolOptions::exclusive_pages(0))?;
    // From the largest page down, each with slices of a smaller part of it...
    let (mut page, mut part) = (limit, 1);
    while page >= 32 * MIB {
        let quarter = align_up(page / 4, properties.alignment).unwrap_or(page);
        if quarter == page {
            // The alignment itself is as large as that.
            break;
        }
        page = quarter;
        pools.push(&PoolOptions::sliced_pages(page, page >> part, None))?;
        part += 1;
    }
    // ...and tried from the smallest up.
    if let Some(ladder) = pools.get_mut(1..) {
        ladder.reverse();
    }
    pools.push(&PoolOptions::exclusive_pages(limit).with_dealloc_period(Some(period_for(limit))))?;
    for pool in pools.iter_mut() {
        pool.granule = properties.alignment;
    }
    Ok(pools)
}

/// Pools of [`exclusive_pages`], and the largest request of the first.
const EXCLUSIVE_POOLS: u32 = 24;
const EXCLUSIVE_FIRST: u64 = 32 * KIB;

/// A page for each slice, in pools whose sizes form a geometric series from 32 KiB to the largest page.
///
/// # Errors
/// As [`adaptive`].
#[cold]
pub fn exclusive_pages(properties: &Properties) -> Result<PoolList, Error> {
    let limit = properties.largest_page()?;
    let mut pools = PoolList::new();
    let mut last = 0;
    for step in 0..EXCLUSIVE_POOLS {
        let size = geometric(EXCLUSIVE_FIRST.min(limit), limit, step, EXCLUSIVE_POOLS - 1, properties.alignment);
        if size != last {
            let pool = PoolOptions::exclusive_pages(size).with_granule(properties.alignment);
            pools.push(&pool.with_dealloc_period(Some(period_for(size))))?;
        }
        last = size;
    }
    Ok(pools)
}

/// Allocations after which unused pages of a size go back: the larger, the later.
fn period_for(size: u64) -> u64 {
    // 1 + size / 1 GiB, rounded to the nearest whole number, halves upwards.
    5000 * (1 + size / GIB + (size % GIB * 2) / GIB)
}

/// The `step`-th of the series that leads from `first` to `last` in `steps` equal factors, rounded down to a whole byte
/// and then up to a multiple of `alignment`. That byte is the greatest `x` with
/// `x^steps <= first^(steps - step) * last^step`.
#[cold]
fn geometric(first: u64, last: u64, step: u32, steps: u32, alignment: u64) -> u64 {
    let target = Real::power(first, steps - step).times(Real::power(last, step));
    let (mut low, mut high) = (first, last);
    while low < high {
        let middle = high - (high - low) / 2;
        if Real::power(middle, steps).compare(target) == Ordering::Greater {
            high = middle - 1;
        } else {
            low = middle;
        }
    }
    // Both ends are multiples already, or `last` is below all of them and the only size.
    align_up(low, alignment).unwrap_or(last).min(last)
}

/// A positive number `mantissa * 2^exponent` whose mantissa has its top bit set; products are rounded down. Core has no
/// functions for floating-point numbers, and integers of 1,472 bits would be needed to be exact.
#[derive(Clone, Copy)]
struct Real {
    mantissa: u64,
    exponent: i32,
}

impl Real {
    const ONE: Real = Real { mantissa: 1 << 63, exponent: -63 };

    /// `base^exponent` of a base that is not 0.
    fn power(base: u64, exponent: u32) -> Real {
        let shift = base.leading_zeros();
        let base = Real { mantissa: base << shift, exponent: -(shift as i32) };
        (0..exponent).fold(Real::ONE, |product, _| product.times(base))
    }

    fn times(self, other: Real) -> Real {
        let product = u128::from(self.mantissa) * u128::from(other.mantissa);
        let shift = 64 - product.leading_zeros();
        Real { mantissa: (product >> shift) as u64, exponent: self.exponent + other.exponent + shift as i32 }
    }

    fn compare(self, other: Real) -> Ordering {
        (self.exponent, self.mantissa).cmp(&(other.exponent, other.mantissa))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{NearPage, PoolType};
    use std::vec::Vec;

    fn sliced(pools: &PoolList) -> Vec<(u64, u64)> {
        let pages = pools.iter().filter_map(|pool| match pool.pool_type {
            PoolType::SlicedPages { page_size, max_slice_size, max_pool_size: None } => {
                Some((page_size, max_slice_size))
            }
            _ => None,
        });
        pages.collect()
    }

    #[test]
    fn sub_slices_of_6_gib() {
        let pools = sub_slices(&Properties::new(6 * GIB).with_alignment(32)).unwrap();
        let expected = [(24 * MIB, 3 * MIB / 2), (96 * MIB, 12 * MIB), (384 * MIB, 96 * MIB), (1536 * MIB, 768 * MIB)];
        assert_eq!(sliced(&pools), expected);
        assert_eq!(pools.first(), Some(&PoolOptions::exclusive_pages(0).with_granule(32)));
        let last = PoolOptions::exclusive_pages(6 * GIB).with_granule(32).with_dealloc_period(Some(35_000));
        assert_eq!(pools.last(), Some(&last));
        assert_eq!(pools.len(), 6);
    }

    #[test]
    fn sub_slices_of_128_mib_and_of_less_than_32() {
        let pools = sub_slices(&Properties::new(128 * MIB).with_alignment(32)).unwrap();
        assert_eq!(sliced(&pools), [(8 * MIB, 2 * MIB), (32 * MIB, 16 * MIB)]);
        assert_eq!(pools.last().unwrap().dealloc_period, Some(5000));
        let pools = sub_slices(&Properties::new(32 * MIB - 1).with_alignment(32)).unwrap();
        assert_eq!(sliced(&pools), []);
        let largest = PoolType::ExclusivePages { max_alloc_size: 32 * MIB - 32 };
        assert_eq!(pools.last().unwrap().pool_type, largest);
    }

    #[test]
    fn exclusive_pages_of_128_mib_to_the_byte() {
        let pools = exclusive_pages(&Properties::new(128 * MIB).with_alignment(32)).unwrap();
        let expected = [
            32768, 47072, 67552, 96992, 139232, 199872, 286976, 411968, 591456, 849152, 1219136, 1750272, 2512832,
            3607616, 5179392, 7435968, 10675712, 15326944, 22004640, 31591744, 45355776, 65116608, 93486912, 134217728,
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|size| PoolOptions::exclusive_pages(size).with_granule(32).with_dealloc_period(Some(5000)))
            .collect();
        assert_eq!(*pools, *expected);
    }

    #[test]
    fn the_series_is_within_one_unit_of_the_exact_one() {
        for last in [100_000, 1 << 20, (1 << 20) + 77, 3 << 30, 6 * GIB, 80 * GIB, 1 << 40] {
            for alignment in [1, 32, 256, 4096] {
                let last = align_down(last, alignment);
                for step in 0..24 {
                    let exact = 32768.0 * (last as f64 / 32768.0).powf(f64::from(step) / 23.0);
                    let found = geometric(32768, last, step, 23, alignment);
                    let off = found as f64 - exact;
                    assert!(off > -1.001 && off < alignment as f64 + 1e-3, "{step} of {last}: {off}");
                }
            }
        }
    }

    #[test]
    fn equal_sizes_occur_once() {
        let pools = exclusive_pages(&Properties::new(40_000).with_alignment(4096)).unwrap();
        let sizes: Vec<_> = pools.iter().map(|pool| pool.pool_type.clone()).collect();
        assert_eq!(sizes, [32768, 36864].map(|max_alloc_size| PoolType::ExclusivePages { max_alloc_size }));
        assert_eq!(exclusive_pages(&Properties::new(1000).with_alignment(32)).unwrap().len(), 1);
    }

    #[test]
    fn periods_are_rounded_half_up() {
        assert_eq!(period_for(GIB / 2 - 1), 5000);
        assert_eq!(period_for(GIB / 2), 10_000);
        assert_eq!(period_for(GIB * 3 / 2), 15_000);
        assert_eq!(period_for(u64::MAX), 5000 * (1 + (1 << 34)));
    }

    #[test]
    fn adaptive_stays_within_heap_and_page() {
        let largest = |properties: Properties| adaptive(&properties).unwrap()[1].max_page_size.unwrap();
        assert_eq!(largest(Properties::new(u64::MAX)), 256 * MIB);
        assert_eq!(largest(Properties::new(u64::MAX).with_heap_size(GIB)), 128 * MIB);
        assert_eq!(largest(Properties::new(u64::MAX).with_heap_size(0)), 4 * MIB);
        assert_eq!(largest(Properties::new(100 * MIB)), 100 * MIB);
        assert_eq!(largest(Properties::new(1000).with_alignment(32)), 992);
        assert_eq!(adaptive(&Properties::new(u64::MAX)).unwrap()[0].near_page, NearPage::Never);
    }

    #[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
    #[test]
    fn every_list_is_valid_for_the_device_it_was_made_for() {
        for max_page in [1, 31, 4096, 100_000, 32 * MIB - 1, 32 * MIB, 128 * MIB, 6 * GIB, 1 << 50, u64::MAX] {
            for alignment in [1, 32, 256, 4096, 1 << 20, 1 << 32] {
                let properties = Properties::new(max_page).with_alignment(alignment);
                for make in [adaptive, sub_slices, exclusive_pages] {
                    let pools = make(&properties);
                    assert_eq!(pools.is_err(), max_page < alignment, "{properties:?}");
                    for pool in pools.iter().flat_map(|pools| pools.iter()) {
                        assert_eq!(pool.validate(&MemoryType::new(max_page, 4096)), Ok(()), "{pool:?}");
                    }
                }
            }
        }
    }
}
