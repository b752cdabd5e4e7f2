//! Memory that is small, large or cut oddly.

use slicepool_core::layout::{self, Properties};
use slicepool_core::{
    Allocator, AllocatorOptions, DeviceLayout, Error, Heap, HostDevice, MemoryType, PoolOptions, PoolType, Request,
};

#[test]
fn pages_that_double_under_a_cap_without_room_for_any_are_refused_and_the_call_ends() {
    let mut pool = PoolOptions::blocks(1 << 20, 1 << 22);
    let PoolType::SlicedPages { max_pool_size, .. } = &mut pool.pool_type else { panic!("sliced pages") };
    *max_pool_size = Some(100);
    let allocator = Allocator::try_new(HostDevice::new(), &[pool], AllocatorOptions::default()).unwrap();
    for size in [1, 100, 1 << 20] {
        let refused = allocator.allocate(&Request::new(size));
        assert!(matches!(refused, Err(Error::PoolCapacityExceeded { capacity: 0, .. })), "{refused:?}");
    }
    assert_eq!((allocator.check(), allocator.statistics().reserved), (Ok(()), 0));
}

#[test]
fn pages_of_their_own_are_looked_for_in_all_memory_types_although_one_has_an_empty_heap() {
    let heaps = [Heap::new(0), Heap::new(1 << 30)];
    let types = [MemoryType::default(), MemoryType::default().in_heap(1)];
    let pools = [PoolOptions::sliced_pages(1 << 16, 1 << 16, None).in_memory_type(1)];
    let memory = DeviceLayout::new(&types, &heaps);
    let allocator =
        Allocator::with_memory_types(HostDevice::new(), &memory, &pools, AllocatorOptions::default()).unwrap();
    let request = Request::new(100).dedicated();
    // A page would have to be taken first.
    assert_eq!(allocator.would_fit(&request), Ok(false));
    let slice = allocator.allocate(&request).unwrap();
    allocator.free(slice.id).unwrap();
    assert_eq!(allocator.would_fit(&request), Ok(true));
    // Nowhere else is anything to be had.
    let alone = DeviceLayout::new(&types[..1], &heaps[..1]);
    let pools = [PoolOptions::direct(None)];
    let made = Allocator::with_memory_types(HostDevice::new(), &alone, &pools, AllocatorOptions::default());
    assert!(matches!(made, Err(Error::InvalidArgument { field, .. }) if field == c"max_page"));
    let none = Allocator::with_memory_types(HostDevice::new(), &alone, &[], AllocatorOptions::default());
    if let Ok(none) = none {
        let refused = Err(Error::TooLarge { size: 100, limit: 0 });
        assert_eq!((none.would_fit(&request), none.allocate(&request).map(|_| false)), (refused, refused));
    }
}

#[test]
fn adaptive_pools_pass_the_validation_whatever_the_heap_has() {
    for heap_size in [0, 1, 1 << 20, (1 << 30) + 8, (1 << 31) - 1, u64::MAX] {
        for alignment in [1, 256, 4096, 1 << 20] {
            let properties = Properties::new(1 << 32).with_alignment(alignment).with_heap_size(heap_size);
            let memory_type = MemoryType::new(1 << 32, alignment.max(4096));
            for pool in layout::adaptive(&properties).unwrap().iter() {
                assert_eq!(pool.validate(&memory_type), Ok(()), "{heap_size} {alignment}");
            }
        }
    }
}

#[test]
fn layouts_for_memory_types_suit_their_atoms_and_granularities() {
    for max_page in [48_059, 1 << 20, (1 << 30) + 12_345] {
        for atom in [1, 64, 2048] {
            for granularity in [1, 256, 1024, 4096] {
                let memory_type = MemoryType::new(max_page, 4096);
                let types = [memory_type.with_non_coherent_atom(atom).with_granularity(granularity)];
                let memory = DeviceLayout::new(&types, &[]);
                let pools = layout::adaptive_types(&memory).unwrap();
                for pool in pools.iter() {
                    assert_eq!(pool.validate(&types[0]), Ok(()), "{max_page} {atom} {granularity}");
                }
                let options = AllocatorOptions::default();
                let allocator = Allocator::with_memory_types(HostDevice::new(), &memory, &pools, options).unwrap();
                allocator.free(allocator.allocate(&Request::new(1)).unwrap().id).unwrap();
            }
        }
    }
}

#[test]
fn pages_that_grow_are_multiples_of_the_granule_up_to_the_last_number() {
    let pool = PoolOptions::blocks(1 << 33, u64::MAX).with_granule(1 << 32);
    let options = AllocatorOptions::default().with_memory_type(MemoryType::new(u64::MAX, 4096)).with_dry_run();
    let allocator = Allocator::try_new(HostDevice::new(), &[pool], options).unwrap();
    allocator.allocate(&Request::new(1)).unwrap();
    allocator.allocate(&Request::new(u64::MAX - (3 << 33))).unwrap();
    assert_eq!(allocator.check(), Ok(()));
    assert_eq!(allocator.statistics().reserved % (1 << 32), 0);
}

#[test]
fn a_memory_type_that_cannot_be_is_refused_by_name() {
    let pool = PoolOptions::sliced_pages(1000, 10, None).with_granule(1);
    let cases = [
        (MemoryType::new(1 << 20, 3), c"page_alignment", 3),
        (MemoryType::default().with_non_coherent_atom(5), c"non_coherent_atom", 5),
        (MemoryType::default().with_granularity(1 << 33), c"granularity", 1 << 33),
    ];
    for (memory_type, field, value) in cases {
        let refused = Err(Error::InvalidArgument { field, value });
        assert_eq!((pool.in_effect(&memory_type).map(|_| ()), pool.validate(&memory_type)), (refused, refused));
    }
}
