//! Giving pages back: how many, which, and what if the device refuses.

use crate::common::books::assert_agree;
use crate::common::devices::{KEPT, LedgerDevice};
use crate::common::pools::{KINDS, allocate, direct, exclusive, free_all, full, growing, over, place, sliced};
use crate::common::{K, M};
use slicepool_core::{Allocator, DeviceFault, Error, Request, Slice};

fn allocator_with_idle_pages(device: &LedgerDevice, count: u64) -> Allocator<&LedgerDevice> {
    let allocator = over(device, &[sliced(M, M, None)]);
    let ids: Vec<_> = (0..count).map(|_| allocate(&allocator, M)).collect();
    for id in ids {
        allocator.free(id).unwrap();
    }
    assert_eq!(allocator.statistics().pages_idle, count as u32);
    allocator
}

/// Trim goes down to a floor, and not below it.
#[test]
fn trim_keeps_at_least_the_bytes_it_is_told_to_keep() {
    for (keep, pages) in
        [(u64::MAX, 4), (4 * M, 4), (4 * M - 1, 4), (3 * M + 1, 4), (3 * M, 3), (5 * M / 2, 3), (1, 1), (0, 0)]
    {
        let device = LedgerDevice::new();
        let allocator = allocator_with_idle_pages(&device, 4);
        allocator.trim(keep).unwrap();
        assert_eq!(device.pages(), pages, "keep {keep}");
        assert_agree(&allocator, &device);
        // Again and again costs nothing.
        let calls = device.calls();
        allocator.trim(keep).unwrap();
        assert_eq!(device.calls(), calls);
    }
}

/// What is live counts towards the floor, in whatever pool it is.
#[test]
fn live_pages_of_all_pools_count_towards_the_floor_of_a_trim() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(M, M, None), sliced(4 * M, 4 * M, None)]);
    let small: Vec<_> = (0..3).map(|_| allocate(&allocator, M)).collect();
    allocate(&allocator, 4 * M);
    for id in small {
        allocator.free(id).unwrap();
    }
    allocator.trim(5 * M).unwrap();
    assert_eq!(allocator.statistics().reserved, 5 * M);
    allocator.trim(4 * M).unwrap();
    assert_eq!(allocator.statistics().reserved, 4 * M);
    allocator.cleanup().unwrap();
    assert_eq!(allocator.statistics().reserved, 4 * M);
    assert_agree(&allocator, &device);
}

/// Oldest idle first.
#[test]
fn trim_gives_back_the_page_that_has_been_idle_the_longest() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(M, M, None)]);
    let slices: Vec<_> = (0..3).map(|_| allocator.allocate(&Request::new(M)).unwrap()).collect();
    for index in [1, 2, 0] {
        allocator.free(slices[index].id).unwrap();
    }
    for (keep, gone) in [(2 * M, 1), (M, 2), (0, 0)] {
        assert!(device.is_out(slices[gone].memory));
        allocator.trim(keep).unwrap();
        assert!(!device.is_out(slices[gone].memory));
        assert_agree(&allocator, &device);
    }
}

/// A page of 64 KiB in each of four pools, and the order in which they became idle.
fn allocator_with_pages_idle_in_order<'a>(
    device: &'a LedgerDevice,
    order: &[usize],
) -> (Allocator<&'a LedgerDevice>, Vec<Slice>) {
    let size = 64 * K;
    let pools = [sliced(size, size, None), exclusive(size), direct(None), growing(size, size)];
    let allocator = over(device, &pools);
    let place = |pool| allocator.allocate(&Request::new(size).in_pool(pool)).unwrap();
    let slices: Vec<_> = [0, 1, 2, 3, 0, 1, 2, 3].map(place).into_iter().collect();
    for &index in order {
        allocator.free(slices[index].id).unwrap();
    }
    (allocator, slices)
}

/// Oldest idle first over all pools, whatever their kind and their order.
#[test]
fn trim_gives_back_the_page_of_any_pool_that_has_been_idle_the_longest() {
    for order in
        [[0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0], [2, 6, 3, 1, 7, 0, 5, 4], [4, 0, 5, 1, 6, 2, 7, 3]]
    {
        let device = LedgerDevice::new();
        let (allocator, slices) = allocator_with_pages_idle_in_order(&device, &order);
        for (returned, &gone) in order.iter().enumerate() {
            assert!(device.is_out(slices[gone].memory));
            let floor = 64 * K * (7 - returned as u64);
            allocator.trim(floor).unwrap();
            assert!(!device.is_out(slices[gone].memory), "{returned} of {order:?}");
            assert_eq!((device.taken(), device.bytes()), (returned as u64 + 1, floor));
            assert_agree(&allocator, &device);
        }
        // All in one call: the same pages stay.
        let device = LedgerDevice::new();
        let (allocator, slices) = allocator_with_pages_idle_in_order(&device, &order);
        allocator.trim(3 * 64 * K - 1).unwrap();
        let left: Vec<_> = order.iter().filter(|&&index| device.is_out(slices[index].memory)).collect();
        assert_eq!(left, order[5..].iter().collect::<Vec<_>>());
    }
}

/// Idle again is idle anew.
#[test]
fn a_page_that_was_used_again_in_between_is_the_last_to_go() {
    let device = LedgerDevice::new();
    let (allocator, slices) = allocator_with_pages_idle_in_order(&device, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let used = allocator.allocate(&Request::new(64 * K).in_pool(0)).unwrap();
    assert_eq!(used.memory, slices[0].memory);
    allocator.free(used.id).unwrap();
    allocator.trim(64 * K).unwrap();
    assert_eq!((device.pages(), device.is_out(used.memory)), (1, true));
    assert_agree(&allocator, &device);
}

/// The oldest page of a pool is too large to go: those of other pools go, its own younger ones do not.
#[test]
fn where_the_oldest_page_is_too_large_to_go_those_of_other_pools_go() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(M), sliced(4 * K, 4 * K, None)]);
    let slices = [(M, 0), (4 * K, 0), (4 * K, 1), (4 * K, 1)]
        .map(|(size, pool)| allocator.allocate(&Request::new(size).in_pool(pool)).unwrap());
    free_all(&allocator, &slices);
    allocator.trim(M + 4 * K).unwrap();
    assert_eq!(slices.map(|slice| device.is_out(slice.memory)), [true, true, false, false]);
    assert_eq!(device.bytes(), M + 4 * K);
    allocator.trim(M).unwrap();
    assert_eq!(device.bytes(), M + 4 * K, "the page of 1 MiB is the next of its pool");
    allocator.trim(4 * K).unwrap();
    assert_eq!(slices.map(|slice| device.is_out(slice.memory)), [false, true, false, false]);
    assert_agree(&allocator, &device);
}

/// For every kind: down to a floor, live pages stay, again and again costs nothing.
#[test]
fn pools_of_every_kind_are_trimmed_to_a_floor_and_cleaned_up() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        let slices: Vec<_> = (0..8).map(|_| place(&allocator, 16 * K)).collect();
        let (live, freed) = slices.split_at(2);
        free_all(&allocator, freed);
        let idle = allocator.statistics().pages_idle;
        assert!(idle != 0, "{name}");
        for keep in [u64::MAX, device.bytes(), device.bytes() - 1, 100 * K, 50 * K, 0] {
            allocator.trim(keep).unwrap();
            assert!(device.bytes() >= keep.min(device.bytes_peak()), "{name}, {keep}");
            let calls = device.calls();
            allocator.trim(keep).unwrap();
            assert_eq!(device.calls(), calls, "{name}");
            assert_agree(&allocator, &device);
        }
        assert_eq!((device.taken(), allocator.statistics().pages_idle), (u64::from(idle), 0), "{name}");
        for slice in live {
            assert_eq!((allocator.get(slice.id), device.is_out(slice.memory)), (Ok(*slice), true), "{name}");
        }
        allocator.cleanup().unwrap();
        assert_eq!(device.taken(), u64::from(idle));
    }
}

/// A page in which one byte is live stays, and its slice with it.
#[test]
fn cleanup_leaves_pages_with_live_slices_alone() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(K, K, None)]);
    let slices: Vec<_> = (0..30).map(|_| allocator.allocate(&Request::new(500)).unwrap()).collect();
    let (kept, freed): (Vec<_>, Vec<Slice>) = slices.iter().partition(|slice| slice.memory % 3 == 0);
    for slice in freed {
        allocator.free(slice.id).unwrap();
    }
    allocator.cleanup().unwrap();
    for slice in &kept {
        assert_eq!(allocator.get(slice.id), Ok(*slice));
    }
    assert_eq!(device.pages(), kept.len() as u64 / 2);
    assert_agree(&allocator, &device);
}

/// A device that refuses to take memory back.
#[test]
fn a_page_that_the_device_refuses_to_take_back_is_counted_as_stuck_and_tried_again() {
    let device = LedgerDevice::new();
    let allocator = allocator_with_idle_pages(&device, 3);
    let refused = Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT };

    device.keep_everything(true);
    assert_eq!(allocator.trim(2 * M), Err(refused));
    let figures = allocator.statistics();
    assert_eq!((figures.stuck, figures.pages_stuck, figures.pages, figures.reserved), (M, 1, 2, 3 * M));
    assert_agree(&allocator, &device);
    // A stuck page is tried again, whatever the floor. It does not count as idle memory.
    assert_eq!(allocator.trim(u64::MAX), Err(refused));
    assert_eq!(device.deallocate_refused(), 2);
    assert_eq!(allocator.trim(0), Err(refused));
    let figures = allocator.statistics();
    assert_eq!((figures.stuck, figures.pages_stuck, figures.free, figures.pages), (3 * M, 3, 0, 0));
    assert_agree(&allocator, &device);
    // Nothing is placed in a stuck page.
    let slice = allocate(&allocator, 100);
    assert_eq!((device.given(), allocator.statistics().reserved), (4, 4 * M));
    allocator.free(slice).unwrap();

    device.keep_everything(false);
    allocator.trim(u64::MAX).unwrap();
    let figures = allocator.statistics();
    assert_eq!((figures.stuck, figures.pages_stuck, figures.reserved), (0, 0, M));
    assert_eq!(device.taken(), 3);
    assert_agree(&allocator, &device);
}

/// The same at the end.
#[test]
fn destroy_tries_stuck_pages_again_and_hands_the_allocator_back_while_one_is_left() {
    let device = LedgerDevice::new();
    let allocator = allocator_with_idle_pages(&device, 2);
    device.keep_everything(true);
    let refused = Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT };
    let Err((allocator, error)) = allocator.destroy() else { panic!("the pages cannot have gone") };
    assert_eq!(error, refused);
    assert_eq!((allocator.statistics().pages_stuck, device.pages()), (2, 2));
    assert_agree(&allocator, &device);
    device.keep_everything(false);
    assert!(allocator.destroy().is_ok());
    assert_eq!((device.pages(), device.taken()), (0, 2));
}

/// Dropping gives back what can be given back, stuck or live.
#[test]
fn dropping_an_allocator_returns_live_idle_and_stuck_pages_alike() {
    let device = LedgerDevice::new();
    let allocator = allocator_with_idle_pages(&device, 2);
    device.keep_everything(true);
    assert!(allocator.trim(M).is_err());
    device.keep_everything(false);
    allocate(&allocator, 10);
    allocate(&allocator, M);
    assert_eq!(device.pages(), 3);
    drop(allocator);
    assert_eq!((device.pages(), device.taken()), (0, 3));
}

/// A stuck page still counts against the cap, because the device still holds it for the pool.
#[test]
fn stuck_pages_count_against_the_cap() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(K, K, Some(2 * K))]);
    let id = allocate(&allocator, K);
    allocator.free(id).unwrap();
    device.keep_everything(true);
    assert!(allocator.cleanup().is_err());
    allocate(&allocator, K);
    assert_eq!(allocator.allocate(&Request::new(K)), Err(full(K, 2 * K, K, 0)));
    device.keep_everything(false);
    allocator.trim(u64::MAX).unwrap();
    allocate(&allocator, K);
    assert_agree(&allocator, &device);
}

/// Abandoning says nothing to the device.
#[test]
fn abandon_makes_no_device_call_whatever_is_live() {
    let device = LedgerDevice::new();
    let allocator = allocator_with_idle_pages(&device, 2);
    allocate(&allocator, 10);
    let calls = device.calls();
    allocator.abandon();
    assert_eq!((device.calls(), device.pages()), (calls, 2));
    device.write_off();
}
