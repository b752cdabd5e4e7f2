//! Options of pools, lists of them, sizes of blocks, and the host memory that books need.

use crate::input::Input;
use crate::pools::shape;
use slicepool_core::layout::{self, PoolList, Properties};
use slicepool_core::{
    AllocationSizes, Allocator, AllocatorOptions, DeviceLayout, Error, Heap, HostDevice, HostMemory, LiveSlices,
    LockKind, MemoryType, PoolOptions, PoolType, Request, Space, SpaceOptions, block_bytes,
};
use std::ptr::NonNull;

const MIB: u64 = 1 << 20;

fn memory_type(input: &mut Input<'_>) -> MemoryType {
    let max_page = if input.one_in(2) { u64::MAX } else { input.number() };
    let described = MemoryType::new(max_page, if input.one_in(4) { input.alignment() } else { 4096 });
    let described = described.with_granularity(if input.one_in(4) { input.alignment() } else { 1 });
    described.with_non_coherent_atom(if input.one_in(4) { input.alignment() } else { 1 })
}

/// Whether an error names a field of a configuration.
fn assert_names_a_field(error: Error) {
    assert!(matches!(error, Error::InvalidArgument { field, .. } if !field.is_empty()), "{error:?}");
}

/// A pool as it is in effect keeps its rules, and is the same once more.
pub(super) fn options(input: &mut Input<'_>) {
    let mut pool = shape::pool(input, 1);
    match (&mut pool.pool_type, input.byte() & 3) {
        (PoolType::SlicedPages { page_size, max_slice_size, max_pool_size }, 1 | 2) => {
            (*page_size, *max_slice_size, *max_pool_size) = (input.number(), input.number(), input.maybe());
        }
        (PoolType::ExclusivePages { max_alloc_size }, 1 | 2) => *max_alloc_size = input.number(),
        (PoolType::Direct { reclaim_at }, 1 | 2) => *reclaim_at = input.maybe(),
        _ => {}
    }
    if input.one_in(4) {
        pool.granule = input.alignment();
        pool.max_page_size = input.maybe();
        pool.dealloc_period = input.maybe();
        pool.keep_bytes = input.number();
    }
    let memory_type = memory_type(input);
    if let Err(error) = DeviceLayout::new(std::slice::from_ref(&memory_type), &[]).check() {
        return assert_names_a_field(error);
    }
    let valid = pool.validate(&memory_type);
    let effective = match pool.in_effect(&memory_type) {
        Ok(effective) => effective,
        Err(error) => {
            assert_names_a_field(error);
            assert!(valid.is_err(), "what cannot be is valid: {pool:?}");
            return;
        }
    };
    if let Err(error) = valid {
        assert_names_a_field(error);
    }
    let granule = effective.granule;
    assert!(granule.is_power_of_two() && granule >= pool.granule, "{effective:?}");
    let largest = u64::from(u32::MAX).saturating_mul(granule).min(memory_type.max_page);
    match effective.pool_type {
        PoolType::SlicedPages { page_size, max_slice_size, max_pool_size } => {
            assert_eq!(page_size % granule, 0, "{effective:?}");
            assert!(page_size <= largest || max_pool_size == Some(0), "{effective:?} in {memory_type:?}");
            assert!(max_pool_size.is_none_or(|cap| cap % granule == 0), "{effective:?}");
            assert!(max_slice_size <= largest.max(page_size), "{effective:?}");
        }
        PoolType::ExclusivePages { max_alloc_size } => assert!(max_alloc_size <= largest, "{effective:?}"),
        PoolType::Direct { .. } => {}
    }
    assert_eq!(effective.in_effect(&memory_type), Ok(effective.clone()), "once more");
    try_requests(&pool, &memory_type, input);
}

/// Requests of a dry run of one pool, up to the largest there can be.
fn try_requests(pool: &PoolOptions, memory_type: &MemoryType, input: &mut Input<'_>) {
    let options = AllocatorOptions::default().with_dry_run().with_memory_type(*memory_type);
    let pool = pool.clone().with_min_pages(0);
    let Ok(allocator) = Allocator::try_new(HostDevice::new(), &[pool], options) else { return };
    for _ in 0..input.below(4) {
        let request = Request::new(input.number()).aligned(input.alignment());
        let fits = allocator.would_fit(&request);
        let Ok(slice) = allocator.allocate(&request) else { continue };
        assert!(fits.is_ok());
        assert!(slice.size >= request.size && slice.offset % request.alignment == 0, "{slice:?} for {request:?}");
        assert!(slice.offset.checked_add(slice.size).is_some());
        if input.one_in(2) {
            assert_eq!(allocator.free(slice.id), Ok(()));
        }
    }
    assert_eq!(allocator.check(), Ok(()));
    let told = allocator.statistics();
    assert!(told.reserved == told.unmapped, "{told:?}");
    // A plan that was measured holds what it was measured with.
    let plan = allocator.pool_report(0).expect("there is one").plan();
    assert!(plan.in_effect(memory_type).is_ok() || told.reserved_peak == 0, "{plan:?}");
    assert_eq!(allocator.close(LiveSlices::Free), Ok(()));
}

/// Lists that are made for a device are valid there, or refused.
pub(super) fn lists(input: &mut Input<'_>) {
    let properties = Properties::new(input.number()).with_alignment(input.alignment()).with_heap_size(input.number());
    let memory_type = MemoryType::new(properties.max_page, 4096);
    let cannot_be = !properties.alignment.is_power_of_two()
        || properties.alignment > 1 << 32
        || properties.max_page < properties.alignment;
    for make in [layout::adaptive, layout::sub_slices, layout::exclusive_pages] {
        let made: Result<PoolList, Error> = make(&properties);
        assert_eq!(made.is_err(), cannot_be, "{properties:?}");
        match made {
            Ok(pools) => {
                assert!(!pools.is_empty());
                for pool in pools.iter() {
                    assert_eq!(pool.validate(&memory_type), Ok(()), "{properties:?}");
                }
            }
            Err(error) => assert_names_a_field(error),
        }
    }
    let heaps: Vec<_> = (0..input.below(3)).map(|_| Heap::new(input.number()).with_limit(input.maybe())).collect();
    let types: Vec<_> =
        (0..input.below(4)).map(|_| memory_type_in(input, heaps.len()).with_host_visible(input.one_in(2))).collect();
    let memory = DeviceLayout::new(&types, &heaps);
    let sizes = AllocationSizes::new(input.number(), input.number());
    let lists = [layout::adaptive_types(&memory), layout::blocks(&sizes, &memory)];
    for (made, count) in lists.into_iter().zip([2, 1]) {
        let Ok(pools) = made else { continue };
        assert_eq!(memory.check(), Ok(()));
        assert!(pools.len() >= count * types.len());
        for pool in pools.iter() {
            let described = memory.in_effect(&types[pool.memory_type as usize]);
            // Pages may be too small for what the memory demands.
            let demanded = described.non_coherent_atom.max(described.granularity);
            assert!(pool.in_effect(&described).is_ok() || described.max_page < demanded, "{pool:?} in {described:?}");
        }
    }
}

fn memory_type_in(input: &mut Input<'_>, heaps: usize) -> MemoryType {
    memory_type(input).in_heap(input.below(heaps + 1) as u32)
}

/// Blocks have sizes between the bounds, in steps of 4 MiB where they are bounds, and never shrink with their number.
pub(super) fn blocks(input: &mut Input<'_>) {
    let asked = [input.number(), input.number(), input.number(), input.number()];
    let sizes = AllocationSizes::new(asked[0], asked[1]);
    let sizes = sizes.with_max_device_memblock_size(asked[2]).with_max_host_memblock_size(asked[3]);
    let rounded = |size: u64| size.clamp(4 * MIB, 256 * MIB).next_multiple_of(4 * MIB);
    for (is_host, least, most) in [
        (false, sizes.min_device_memblock_size(), sizes.max_device_memblock_size()),
        (true, sizes.min_host_memblock_size(), sizes.max_host_memblock_size()),
    ] {
        let index = usize::from(is_host);
        assert_eq!((least, most), (rounded(asked[index]), rounded(asked[index + 2]).max(least)));
        let count = input.number() as usize;
        let size = sizes.memblock_size(is_host, count);
        let expected = (u128::from(least) << count.min(7)).min(u128::from(most));
        assert_eq!(u128::from(size), expected, "block {count}");
        assert!(sizes.memblock_size(is_host, count.saturating_add(1)) >= size);
    }
}

/// A block of as many bytes as are said to be needed holds the books.
pub(super) fn books(input: &mut Input<'_>) {
    let pools: Vec<_> = (0..1 + input.below(3)).map(|_| shape::pool(input, 1).with_min_pages(0)).collect();
    let options = AllocatorOptions::default().with_dry_run();
    let few = input.one_in(2);
    let (slices, pages) = if few { (input.below(64) as u32, 64) } else { (input.count(), input.count()) };
    let timelines = if few { 0 } else { input.count() };
    let needed = match block_bytes(&pools, &options, slices, pages, timelines) {
        Ok(needed) => needed,
        Err(Error::TooManySlices { .. }) => {
            let slots = slices.saturating_add(pages).saturating_add(timelines);
            return assert!(slots > 1 << 20, "{slots} are not too many");
        }
        Err(error) => return assert_names_a_field(error),
    };
    let more = block_bytes(&pools, &options, slices.saturating_add(1), pages, timelines);
    assert!(more.is_err() || more.is_ok_and(|more| more >= needed), "more slices need more");
    if few && needed < 1 << 20 {
        let mut block = vec![0_u8; needed as usize];
        let at = NonNull::new(block.as_mut_ptr()).expect("a vector's memory");
        // SAFETY: the block outlives the allocator, and nobody else uses it.
        let memory = unsafe { HostMemory::in_block(at, block.len(), LockKind::spin()) }.expect("it is large enough");
        let allocator = Allocator::try_new(HostDevice::new(), &pools, options.with_memory(memory));
        let allocator = allocator.expect("there is room for the books");
        for _ in 0..slices {
            let made = allocator.allocate(&Request::new(input.size(256, 4096)));
            assert!(!matches!(made, Err(Error::OutOfHostMemory { .. })), "{needed} bytes are not enough");
            if allocator.statistics().pages >= pages {
                break;
            }
        }
    }
    // Spaces, whose classes hold at least what they are for.
    let size = input.number();
    if let Ok(mut space) = Space::try_new(SpaceOptions::new(size).with_granule(input.alignment())) {
        let wanted = input.number();
        if let Ok(slice) = space.allocate(wanted, 1) {
            assert!(slice.size >= wanted && slice.size <= size, "{slice:?}");
        }
    }
}
