//! Pools of exclusive pages: a page for each slice, which near sizes share one after the other.

use crate::common::books::{Snapshot, assert_agree};
use crate::common::devices::{LedgerDevice, NONE_LEFT};
use crate::common::pools::{MEMORY, allocate, exclusive, options, over, place, sliced, touch};
use crate::common::random::Random;
use crate::common::{G, K, M};
use slicepool_core::{Allocator, AllocatorOptions, Error, MemoryType, PoolOptions, Request, Slice};

#[test]
fn the_same_request_after_a_free_leaves_the_same_figures() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(512)]);
    let first = allocate(&allocator, 100);
    let figures = allocator.statistics();
    assert_eq!((figures.in_use, figures.padding, figures.reserved), (100, 28, 128));
    allocator.free(first).unwrap();
    assert_eq!((allocator.statistics().in_use, allocator.statistics().free), (0, 128));
    let second = allocate(&allocator, 100);
    assert_eq!(allocator.statistics(), figures);
    assert_ne!(first, second);
    assert_eq!(device.sizes(), [128]);
    assert_agree(&allocator, &device);
}

#[test]
fn the_slice_between_two_that_are_freed_survives_a_cleanup() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(1024)]);
    let slices = [(); 3].map(|()| place(&allocator, 1024));
    allocator.free(slices[0].id).unwrap();
    allocator.free(slices[2].id).unwrap();
    allocator.cleanup().unwrap();
    assert_eq!(allocator.get(slices[1].id), Ok(slices[1]));
    assert_eq!((allocator.statistics().reserved, device.is_out(slices[1].memory)), (1024, true));
    assert_eq!(allocator.get(slices[0].id), Err(Error::StaleHandle));
    assert_agree(&allocator, &device);
}

// ---- the size of a page

/// An eighth at most, and never above the pool's largest request.
#[test]
fn a_page_has_the_size_of_its_request_and_at_most_an_eighth_more() {
    let mut random = Random::with_seed_or(8);
    for largest in [1, 32, 33, 1000, 1056, 64 * K, M - 1, 100 * M] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[exclusive(largest)]);
        let near =
            [1, 32, 33, 255, 256, 257, 287, 288, 289, 1023, 1024, 1025].into_iter().chain([largest - 1, largest]);
        let sizes = near.chain((0..500).map(|_| random.scaled(largest)));
        for size in sizes.filter(|size| (1..=largest).contains(size)) {
            let slice = touch(&allocator, size);
            allocator.cleanup().unwrap();
            let aligned = size.next_multiple_of(32);
            let rounded = slice.size - aligned;
            assert!(rounded * 8 <= aligned, "{} bytes for {size}", slice.size);
            assert!(slice.size <= largest.next_multiple_of(32), "{} bytes of at most {largest}", slice.size);
            assert_eq!((slice.offset, slice.size % 32), (0, 0));
            assert_eq!(device.sizes().last(), Some(&slice.size));
        }
        assert_agree(&allocator, &device);
    }
}

/// Seen in other pools: a page as large as the average request, of which the first is half of the largest.
#[test]
fn no_page_is_larger_because_of_other_requests() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(M)]);
    for _ in 0..10 {
        allocate(&allocator, M);
    }
    allocate(&allocator, 10);
    assert_eq!(device.sizes().last(), Some(&32));

    let tensor = 617_558_016;
    let allocator = Allocator::try_new(&device, &[exclusive(G)], AllocatorOptions::default()).unwrap();
    let figures = |slice: Slice| (slice.size, allocator.statistics().padding);
    assert_eq!(figures(place(&allocator, tensor)), (640 * M, 640 * M - tensor));
}

/// 33 to 36 units of 32 bytes are rounded up to 36.
#[test]
fn near_sizes_share_a_page() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(M)]);
    for size in [1025, 1152, 1026, 1100] {
        assert_eq!(touch(&allocator, size).size, 1152, "{size}");
    }
    assert_eq!(device.sizes(), [1152]);
    touch(&allocator, 1024);
    touch(&allocator, 1153);
    assert_eq!(device.sizes(), [1152, 1280], "1024 bytes find the page, 1153 do not");
    // The last step ends where the pool's largest request does.
    let allocator = over(&device, &[exclusive(1056)]);
    assert_eq!(place(&allocator, 1025).size, 1056);
}

#[test]
fn requests_above_the_largest_are_refused_by_size_and_limit() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(1000)]);
    assert_eq!(place(&allocator, 1000).size, 1024);
    for size in [1001, 1024, 1 << 40, u64::MAX] {
        assert_eq!(allocator.allocate(&Request::new(size)), Err(Error::TooLarge { size, limit: 1000 }));
    }
    // Nor can a pool take more than the device gives.
    let allocator = over(&device, &[exclusive(u64::MAX)]);
    assert_eq!(place(&allocator, 128 * M).size, 128 * M);
    let too_large = Error::TooLarge { size: 128 * M + 1, limit: 128 * M };
    assert_eq!(allocator.allocate(&Request::new(128 * M + 1)), Err(too_large));
}

// ---- which page serves again

#[test]
fn a_free_page_of_twice_the_request_serves_and_a_larger_one_does_not() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(M)]);
    let large = touch(&allocator, 4096);
    assert_eq!(touch(&allocator, 2048).memory, large.memory);
    assert_eq!(device.sizes(), [4096]);
    // 2047 bytes and a granule's padding: the bytes that were asked for count.
    assert_ne!(touch(&allocator, 2047).memory, large.memory);
    assert_eq!(device.sizes(), [4096, 2048]);
    assert_eq!(allocator.would_fit(&Request::new(1023)), Ok(false));
    assert_eq!(allocator.would_fit(&Request::new(1024)), Ok(true));
    assert_agree(&allocator, &device);
}

/// Whatever the order in which they became free.
#[test]
fn of_the_free_pages_that_hold_a_request_the_smallest_serves() {
    let sizes = [1024, 1280, 1536, 1792, 2048];
    for start in 0..5 {
        for step in 1..5 {
            let device = LedgerDevice::new();
            let allocator = over(&device, &[exclusive(M)]);
            let slices = sizes.map(|size| place(&allocator, size));
            for i in 0..5 {
                allocator.free(slices[(start + i * step) % 5].id).unwrap();
            }
            // 1024 to 1280 bytes, and so on: each takes what the next larger would have been too small for.
            for (i, size) in [1024, 1025, 1281, 1700, 1793].into_iter().enumerate() {
                assert_eq!(place(&allocator, size).memory, slices[i].memory, "{size}");
            }
            assert_eq!(device.given(), 5);
            assert_agree(&allocator, &device);
        }
    }
}

#[test]
fn a_much_larger_free_page_serves_only_when_the_device_gives_no_other() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(M)]);
    let large = touch(&allocator, 64 * K);
    let larger = touch(&allocator, 256 * K);
    assert_ne!(place(&allocator, 100).memory, large.memory);
    device.limit_to(device.bytes());
    let pinned = place(&allocator, 100);
    assert_eq!((pinned.memory, pinned.size, device.allocate_refused()), (large.memory, 64 * K, 1));
    let figures = allocator.statistics();
    assert_eq!((figures.in_use, figures.padding), (200, 28 + 64 * K - 100));
    assert_agree(&allocator, &device);
    // The next larger one, then none.
    assert_eq!(place(&allocator, 300).memory, larger.memory);
    let before = Snapshot::of(&allocator);
    let refused = Error::OutOfDeviceMemory { size: 128, code: NONE_LEFT };
    assert_eq!(allocator.allocate(&Request::new(100)), Err(refused));
    assert_eq!(Snapshot::of(&allocator), before);
    // Freed, it is what it was.
    allocator.free(pinned.id).unwrap();
    assert_eq!(touch(&allocator, 64 * K).memory, large.memory);
    assert_agree(&allocator, &device);
}

/// The other pool's page is the better one.
#[test]
fn a_pool_that_can_still_grow_comes_before_a_much_larger_free_page() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(M), sliced(4 * K, 4 * K, None)]);
    touch(&allocator, 64 * K);
    // The first pool is refused a page, the second is not.
    device.refuse_after(0);
    place(&allocator, 100);
    assert_eq!((device.allocate_refused(), device.sizes()), (1, vec![64 * K, 4 * K]));
    assert_eq!(allocator.pool_statistics(1).unwrap().slices, 1);
    assert_agree(&allocator, &device);
}

/// More than 32 bits of padding.
#[test]
fn a_byte_in_a_page_of_eight_gigabytes_is_booked_exactly() {
    let device = LedgerDevice::new();
    let pool = PoolOptions::exclusive_pages(8 * G);
    let allocator = Allocator::try_new(&device, &[pool], AllocatorOptions::default()).unwrap();
    let large = touch(&allocator, 8 * G);
    device.limit_to(8 * G);
    let byte = place(&allocator, 1);
    assert_eq!((byte.memory, byte.size), (large.memory, 8 * G));
    assert_eq!((allocator.statistics().in_use, allocator.statistics().padding), (1, 8 * G - 1));
    assert_agree(&allocator, &device);
    assert_eq!(allocator.try_resize(byte.id, 8 * G - 5), Ok(byte));
    assert_eq!((allocator.statistics().in_use, allocator.statistics().padding), (8 * G - 5, 5));
    assert_agree(&allocator, &device);
    allocator.free(byte.id).unwrap();
    assert_eq!((allocator.statistics().in_use, allocator.statistics().padding), (0, 0));
    assert_agree(&allocator, &device);
}

// ---- slices

#[test]
fn a_slice_is_resized_within_its_page_and_never_beyond() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(M)]);
    let slice = place(&allocator, 1025);
    for size in [1, 1152, 32, 1100] {
        assert_eq!(allocator.try_resize(slice.id, size), Ok(slice));
        assert_eq!((allocator.statistics().in_use, allocator.statistics().padding), (size, 1152 - size));
        assert_agree(&allocator, &device);
    }
    let before = Snapshot::of(&allocator);
    assert_eq!(allocator.try_resize(slice.id, 1153), Err(Error::NoRoom { size: 1153, available: 1152 }));
    assert_eq!(allocator.try_resize(slice.id, M + 1), Err(Error::TooLarge { size: M + 1, limit: M }));
    let nothing = Error::InvalidArgument { field: c"size", value: 0 };
    assert_eq!(allocator.try_resize(slice.id, 0), Err(nothing));
    assert_eq!(Snapshot::of(&allocator), before);
    assert_eq!(allocator.get(slice.id), Ok(slice));
    // A page is found by its own size, whatever its last slice said it needed.
    allocator.free(slice.id).unwrap();
    assert_eq!(place(&allocator, 1152).memory, slice.memory);
}

#[test]
fn alignments_up_to_that_of_the_page_cost_nothing_and_larger_ones_are_refused() {
    let device = LedgerDevice::new();
    let memory_type = MemoryType::new(128 * M, 4096);
    let options = AllocatorOptions::default().with_memory_type(memory_type);
    let allocator = Allocator::try_new(&device, &[exclusive(M)], options).unwrap();
    for shift in 0..=12 {
        let slice = allocator.allocate(&Request::new(100).aligned(1 << shift)).unwrap();
        assert_eq!((slice.size, slice.address % (1 << shift)), (128, 0));
    }
    let refused = Error::InvalidArgument { field: c"alignment", value: 8192 };
    assert_eq!(allocator.allocate(&Request::new(100).aligned(8192)), Err(refused));
    assert_agree(&allocator, &device);
}

/// More than sixteen bits can count, each with a page of one unit.
#[test]
fn more_exclusive_pages_than_sixteen_bits_can_count_are_all_kept_apart() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(32)]);
    let slices: Vec<_> = (0..65_537).map(|_| place(&allocator, 32)).collect();
    for slice in &slices {
        assert_eq!(allocator.get(slice.id), Ok(*slice));
    }
    let memories: std::collections::HashSet<_> = slices.iter().map(|slice| slice.memory).collect();
    assert_eq!((memories.len(), allocator.statistics().reserved), (65_537, 65_537 * 32));
    for slice in &slices {
        allocator.free(slice.id).unwrap();
    }
    allocator.cleanup().unwrap();
    assert_eq!((device.pages(), device.taken()), (0, 65_537));
    assert_agree(&allocator, &device);
}

// ---- requests for nothing

#[test]
fn requests_for_nothing_are_served_by_a_pool_for_them_and_by_no_other() {
    let device = LedgerDevice::new();
    let nothing = Error::InvalidArgument { field: c"size", value: 0 };
    for pool in crate::common::pools::KINDS.map(|(_, pool)| pool) {
        let allocator = over(&device, &[pool]);
        assert_eq!(allocator.allocate(&Request::new(0)), Err(nothing));
        assert_eq!(allocator.would_fit(&Request::new(0)), Err(nothing));
    }
    assert_eq!(device.calls(), 0);

    let allocator = over(&device, &[sliced(K, K, None), exclusive(0)]);
    let empty = place(&allocator, 0);
    assert_eq!((empty.offset, empty.size, allocator.get(empty.id)), (0, 32, Ok(empty)));
    assert_eq!(device.sizes(), [32], "the device is never asked for 0 bytes");
    let figures = allocator.pool_statistics(1).unwrap();
    assert_eq!((figures.slices, figures.in_use, figures.padding, figures.reserved), (1, 0, 32, 32));
    assert_agree(&allocator, &device);
    // It takes nothing else.
    let byte = Request::new(1).in_pool(1);
    assert_eq!(allocator.allocate(&byte), Err(Error::TooLarge { size: 1, limit: 0 }));
    assert_eq!(allocator.try_resize(empty.id, 1), Err(Error::TooLarge { size: 1, limit: 0 }));
    allocate(&allocator, 1);
    assert_eq!(allocator.pool_statistics(0).unwrap().slices, 1);
    // Freed, it serves again.
    allocator.free(empty.id).unwrap();
    assert_eq!(allocator.get(empty.id), Err(Error::StaleHandle));
    assert_eq!(place(&allocator, 0).memory, empty.memory);
    assert_eq!(exclusive(0).validate(&MEMORY), Ok(()));
    assert_agree(&allocator, &device);
}

#[test]
fn slices_of_nothing_are_told_apart_however_many_there_are() {
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, &[exclusive(0), exclusive(K)], options()).unwrap();
    let slices: Vec<_> = (0..10_000).map(|_| place(&allocator, 0)).collect();
    let ids: std::collections::HashSet<_> = slices.iter().map(|slice| slice.id).collect();
    let places: std::collections::HashSet<_> = slices.iter().map(|slice| slice.address).collect();
    assert_eq!((ids.len(), places.len()), (10_000, 10_000));
    let figures = allocator.statistics();
    assert_eq!((figures.slices, figures.in_use, figures.reserved), (10_000, 0, 320_000));
    for slice in slices {
        assert_eq!(allocator.get(slice.id), Ok(slice));
        allocator.free(slice.id).unwrap();
        assert_eq!(allocator.free(slice.id), Err(Error::StaleHandle));
    }
    assert_agree(&allocator, &device);
}
