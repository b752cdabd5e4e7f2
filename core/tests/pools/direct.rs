//! Direct pools: a page for each slice, of its exact size, and a watermark above which free ones go back.

use crate::common::books::assert_agree;
use crate::common::devices::{LedgerDevice, NONE_LEFT};
use crate::common::pools::{allocate, direct, options, over, place, touch};
use crate::common::random::Random;
use crate::common::{K, M};
use slicepool_core::{Allocator, AllocatorOptions, Error, PoolOptions, Request, Slice, SliceId};
use std::collections::HashSet;

fn free_in_order(allocator: &Allocator<&LedgerDevice>, slices: &[Slice], order: &[usize]) {
    for &index in order {
        allocator.free(slices[index].id).unwrap();
    }
}

#[test]
fn a_page_has_exactly_the_aligned_size_of_its_slice() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    let slice = place(&allocator, 700 * K + 17);
    let figures = allocator.statistics();
    assert_eq!((figures.in_use, figures.reserved), (700 * K + 17, 700 * K + 32));
    assert_eq!((slice.offset, slice.size), (0, 700 * K + 32));
    for size in [1, 31, 32, 33, M, 128 * M] {
        allocate(&allocator, size);
        assert_eq!(device.sizes().last(), Some(&size.next_multiple_of(32)));
    }
    assert_agree(&allocator, &device);
}

#[test]
fn requests_above_what_the_device_gives_are_refused_by_size_and_limit() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    for size in [128 * M + 1, 1 << 40, u64::MAX] {
        assert_eq!(allocator.allocate(&Request::new(size)), Err(Error::TooLarge { size, limit: 128 * M }));
    }
    // A page has at most 2^32 - 1 units.
    let pool = PoolOptions::direct(None).with_granule(1);
    let allocator = Allocator::try_new(&device, &[pool], AllocatorOptions::default()).unwrap();
    let limit = u64::from(u32::MAX);
    assert_eq!(place(&allocator, limit).size, limit);
    assert_eq!(allocator.allocate(&Request::new(limit + 1)), Err(Error::TooLarge { size: limit + 1, limit }));
    assert_agree(&allocator, &device);
}

// ---- which page serves again

/// 1000 and 1024 are one size in units of 32, 1025 is another.
#[test]
fn requests_of_one_aligned_size_share_a_page_and_no_others_do() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    let page = touch(&allocator, 1000);
    for size in [1024, 993, 1000] {
        assert_eq!(touch(&allocator, size).memory, page.memory);
    }
    assert_eq!(device.sizes(), [1024]);
    for (size, aligned) in [(1025, 1056), (992, 992), (512, 512)] {
        assert_eq!(allocator.would_fit(&Request::new(size)), Ok(false));
        assert_eq!(touch(&allocator, size).size, aligned);
        assert_eq!(device.sizes().last(), Some(&aligned));
    }
    assert_eq!(allocator.would_fit(&Request::new(1001)), Ok(true));
    assert_agree(&allocator, &device);
}

/// Seen in other pools: a page that came back with another padding was not found by its size any more.
#[test]
fn what_a_slice_asked_for_does_not_change_the_size_of_its_page() {
    let device = LedgerDevice::new();
    let pool = PoolOptions::direct(None).with_granule(4);
    let allocator = Allocator::try_new(&device, &[pool], options()).unwrap();
    let page = touch(&allocator, 1025);
    let again = place(&allocator, 1026);
    assert_eq!((again.memory, allocator.statistics().padding), (page.memory, 2));
    for size in [1, 1028, 500] {
        assert_eq!(allocator.try_resize(again.id, size), Ok(again));
        assert_eq!(allocator.statistics().padding, 1028 - size);
        assert_agree(&allocator, &device);
    }
    assert_eq!(allocator.try_resize(again.id, 1029), Err(Error::NoRoom { size: 1029, available: 1028 }));
    allocator.free(again.id).unwrap();
    assert_eq!(touch(&allocator, 1028).memory, page.memory);
    assert_ne!(place(&allocator, 500).memory, page.memory);
    assert_agree(&allocator, &device);
}

#[test]
fn a_page_that_is_held_serves_no_other_request_of_its_size() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    let held = place(&allocator, K);
    let other = place(&allocator, K);
    assert_ne!(held.memory, other.memory);
    allocator.free(held.id).unwrap();
    assert_eq!(place(&allocator, K).memory, held.memory);
    assert_eq!((device.given(), allocator.get(other.id)), (2, Ok(other)));
}

/// Exact means exact, also when the device has nothing left: a free page of another size goes back for one that fits.
#[test]
fn a_free_page_of_another_size_serves_not_even_when_the_device_is_exhausted() {
    for size in [1024u64, 2016, 2049] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[direct(None)]);
        touch(&allocator, 2048);
        device.limit_to(2048);
        let aligned = size.next_multiple_of(32);
        if aligned <= 2048 {
            let slice = place(&allocator, size);
            assert_eq!((slice.size, device.pages(), device.bytes()), (aligned, 1, aligned));
        } else {
            let refused = Error::OutOfDeviceMemory { size: aligned, code: NONE_LEFT };
            assert_eq!(allocator.allocate(&Request::new(size)), Err(refused));
            assert_eq!(device.pages(), 0);
        }
        assert_agree(&allocator, &device);
    }
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    touch(&allocator, 2048);
    device.limit_to(2048);
    allocate(&allocator, 2017);
    assert_eq!(device.given(), 1);
}

/// Each of many sizes is found, whatever was freed or given back in between.
#[test]
fn every_free_page_is_found_by_its_size_among_thousands() {
    let mut random = Random::with_seed_or(14);
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    let mut live: Vec<(u64, SliceId)> = Vec::new();
    let mut free: Vec<u64> = Vec::new();
    for round in 0..20_000 {
        // Odd multiples of large powers of two among them.
        let size = (random.within(1, 500) << random.below(9)) * 32;
        if random.below(2) == 0 && !live.is_empty() {
            let (size, id) = random.take(&mut live);
            allocator.free(id).unwrap();
            free.push(size);
        } else {
            let given = device.given();
            live.push((size, allocate(&allocator, size)));
            let found = free.iter().position(|&other| other == size).map(|index| free.swap_remove(index));
            assert_eq!(found.is_some(), device.given() == given, "{size}");
        }
        if round % 5_000 == 4_999 {
            assert_agree(&allocator, &device);
            allocator.cleanup().unwrap();
            free.clear();
            assert_agree(&allocator, &device);
        }
    }
    assert!(device.taken() > 1000);
}

#[test]
fn more_direct_pages_than_sixteen_bits_can_count_are_all_kept_apart() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    let slices: Vec<_> = (0..65_537).map(|_| place(&allocator, 32)).collect();
    let memories: HashSet<_> = slices.iter().map(|slice| slice.memory).collect();
    assert_eq!((memories.len(), allocator.statistics().reserved), (65_537, 65_537 * 32));
    for slice in &slices {
        assert_eq!(allocator.get(slice.id), Ok(*slice));
        allocator.free(slice.id).unwrap();
    }
    let again: HashSet<_> = (0..65_537).map(|_| place(&allocator, 32).memory).collect();
    assert_eq!((again == memories, device.given()), (true, 65_537));
    assert_agree(&allocator, &device);
}

// ---- what goes back

#[test]
fn cleanup_leaves_the_page_that_is_live_whatever_the_watermark() {
    for watermark in [None, Some(64 * M)] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[direct(watermark)]);
        let live = place(&allocator, M);
        touch(&allocator, 2 * M);
        assert_eq!(allocator.statistics().pages, 2);
        allocator.cleanup().unwrap();
        assert_eq!((allocator.statistics().pages, allocator.statistics().reserved), (1, M));
        assert_eq!((allocator.get(live.id), device.is_out(live.memory)), (Ok(live), true));
        assert_agree(&allocator, &device);
    }
}

/// Without a watermark free pages of other sizes are kept for ever.
#[test]
fn without_a_watermark_nothing_goes_back_by_itself() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    for step in 1..=1000 {
        touch(&allocator, step * 32);
    }
    assert_eq!((device.pages(), device.taken()), (1000, 0));
    allocator.cleanup().unwrap();
    assert_eq!((device.pages(), device.taken()), (0, 1000));
    assert_agree(&allocator, &device);
}

/// Watermark 7 MiB; 1, 2 and 3 MiB free; a request for 4 MiB.
#[test]
fn above_the_watermark_free_pages_go_back_lowest_index_first_until_the_new_one_fits() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[direct(Some(7 * M))]);
        let slices = [M, 2 * M, 3 * M].map(|size| place(&allocator, size));
        free_in_order(&allocator, &slices, &order);
        assert_eq!(device.taken(), 0);
        allocate(&allocator, 4 * M);
        assert_eq!(slices.map(|slice| device.is_out(slice.memory)), [false, false, true]);
        assert_eq!((allocator.statistics().reserved, device.bytes_peak()), (7 * M, 7 * M));
        assert_agree(&allocator, &device);
    }
}

/// Equality fits, one byte less does not.
#[test]
fn a_new_page_that_reaches_the_watermark_exactly_costs_nothing() {
    for (watermark, kept) in [(10 * M, 3), (10 * M - 1, 2), (9 * M, 2), (9 * M - 1, 1), (7 * M - 1, 0), (0, 0)] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[direct(Some(watermark))]);
        let slices = [M, 2 * M, 3 * M].map(|size| place(&allocator, size));
        free_in_order(&allocator, &slices, &[0, 1, 2]);
        allocate(&allocator, 4 * M);
        assert_eq!(device.pages(), kept + 1, "watermark {watermark}");
        assert_agree(&allocator, &device);
    }
}

#[test]
fn live_pages_stay_above_the_watermark_and_go_when_they_are_free_and_in_the_way() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(Some(1024))]);
    let slices = [(); 2].map(|()| place(&allocator, 4096));
    assert_eq!(allocator.statistics().reserved, 8192);
    free_in_order(&allocator, &slices, &[0, 1]);
    // Freeing alone gives nothing back.
    assert_eq!(allocator.statistics().reserved, 8192);
    allocate(&allocator, 64);
    assert_eq!((allocator.statistics().reserved, device.taken()), (64, 2));
    assert_agree(&allocator, &device);
}

/// The watermark is looked at when no free page has the size, and at no other time.
#[test]
fn a_page_that_serves_again_gives_nothing_back_above_the_watermark() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(Some(0))]);
    let slices = [K, 2 * K, 3 * K].map(|size| place(&allocator, size));
    free_in_order(&allocator, &slices, &[0, 1, 2]);
    for size in [2 * K, K, 3 * K] {
        touch(&allocator, size);
    }
    assert_eq!((device.given(), device.taken()), (3, 0));
    touch(&allocator, 32);
    assert_eq!((device.pages(), device.taken()), (1, 3));
    assert_agree(&allocator, &device);
}

/// What is stuck counts, and is not waited for.
#[test]
fn a_device_that_keeps_what_is_above_the_watermark_gets_the_request_all_the_same() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(Some(4 * K))]);
    let slices = [K, 2 * K].map(|size| place(&allocator, size));
    free_in_order(&allocator, &slices, &[0, 1]);
    device.keep_everything(true);
    allocate(&allocator, 3 * K);
    let figures = allocator.statistics();
    assert_eq!((figures.pages, figures.pages_stuck, figures.stuck, figures.reserved), (1, 2, 3 * K, 6 * K));
    assert_eq!(device.deallocate_refused(), 2);
    assert_agree(&allocator, &device);
    device.keep_everything(false);
    allocator.cleanup().unwrap();
    assert_eq!((allocator.statistics().reserved, device.taken()), (3 * K, 2));
    assert_agree(&allocator, &device);
}

/// The watermark is the pool's own.
#[test]
fn what_other_pools_hold_does_not_count_towards_a_watermark() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(Some(4 * K)), direct(None)]);
    let other = allocator.allocate(&Request::new(M).in_pool(1)).unwrap();
    allocator.free(other.id).unwrap();
    let page = allocator.allocate(&Request::new(K).in_pool(0)).unwrap();
    allocator.free(page.id).unwrap();
    allocator.allocate(&Request::new(3 * K).in_pool(0)).unwrap();
    assert_eq!((device.taken(), allocator.statistics().reserved), (0, M + 4 * K));
    allocator.allocate(&Request::new(32).in_pool(0)).unwrap();
    assert_eq!((device.taken(), device.is_out(page.memory), device.is_out(other.memory)), (1, false, true));
    assert_agree(&allocator, &device);
}
