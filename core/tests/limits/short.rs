//! Memory is short: what is tried before a request is refused, in which order, and which idle pages go for it.

use crate::common::books::assert_agree;
use crate::common::devices::{Asked, LoggedDevice};
use crate::common::pools::{KINDS, capped, direct, exclusive, full, growing, options, sliced};
use crate::common::short::{free_all, none_left, over, place, place_in};
use crate::common::{G, M};
use slicepool_core::layout::{Properties, adaptive};
use slicepool_core::{Allocator, AllocatorOptions, Point, PoolOptions, Request, SliceId};

// ---- the whole ladder

/// What the device is done with, a page, what nobody uses, a page again, help; then the same again if help was promised.
#[test]
fn the_rungs_are_climbed_in_order() {
    let device = LoggedDevice::new();
    let allocator = over(&device, &[sliced(M, M, None), exclusive(M)]);
    let live = place(&allocator, M);
    let idle = place_in(&allocator, M / 2, 1);
    let pending = place_in(&allocator, M / 4, 1);
    allocator.free_after(pending.id, &[Point::new(3, 5)]).unwrap();
    allocator.free(idle.id).unwrap();
    device.ledger.limit_to(device.ledger.bytes());
    device.complete(3, 4);
    device.asked();

    let request = Request::new(M).in_pool(0);
    assert_eq!(allocator.allocate(&request), Err(none_left(M)));
    use Asked::{Back, Completed, Help, Page};
    assert_eq!(device.asked(), [Completed(3), Page(M), Back(idle.memory), Page(M), Help(0)]);
    let figures = allocator.statistics();
    assert_eq!((figures.pages, figures.pages_idle, figures.slices_pending), (2, 0, 1));
    assert_eq!(allocator.get(live.id), Ok(live));

    // Each rung is the last one as soon as it helps: a page that fits...
    device.ledger.limit_to(device.ledger.bytes() + M);
    allocator.trim(0).unwrap();
    let second = place_in(&allocator, M, 0);
    assert_eq!(device.asked(), [Completed(3), Page(M)]);
    // ...and memory that turns out to be done with.
    allocator.free_after(second.id, &[Point::new(4, 1)]).unwrap();
    device.complete(4, 1);
    let third = place_in(&allocator, M, 0);
    assert_eq!(device.asked(), [Completed(4), Completed(3)]);
    assert_eq!((third.memory, third.offset), (second.memory, second.offset));
    assert_eq!(allocator.check(), Ok(()));
}

/// What is held serves without a word to the device, also where only the last look finds it.
#[test]
fn memory_that_is_held_serves_without_a_call() {
    let device = LoggedDevice::new();
    let allocator = over(&device, &[exclusive(M)]);
    // A free page of more than twice the request is only taken if there is no other.
    let large = place(&allocator, M);
    allocator.free(large.id).unwrap();
    device.asked();
    device.ledger.limit_to(M);
    let small = place(&allocator, 1000);
    assert_eq!((small.memory, device.asked()), (large.memory, vec![Asked::Page(1024)]));
    allocator.free(small.id).unwrap();
    let again = place(&allocator, M);
    assert_eq!((again.memory, device.asked()), (large.memory, vec![]));
    assert_agree(&allocator, &device.ledger);
}

/// Constant time is enough for two holes of a request's own class: here those that are too small.
#[test]
fn a_third_hole_of_the_requests_own_class_serves_before_a_page_is_taken() {
    let device = LoggedDevice::new();
    // Sizes of 128 to 131 granules are one class.
    let granules = [128, 1, 128, 1, 131, 1].map(|count| 32 * count);
    let page = granules.iter().sum();
    let allocator = Allocator::try_new(&device, &[sliced(page, page, None)], options()).unwrap();
    let slices = granules.map(|size| place(&allocator, size));
    free_all(&allocator, slices.iter().step_by(2));
    let again = place(&allocator, 130 * 32);
    assert_eq!((again.memory, again.offset), (slices[4].memory, slices[4].offset));
    assert_eq!(device.asked(), [Asked::Page(page)]);
    assert_agree(&allocator, &device.ledger);
}

// ---- pages that hold nothing

/// Scenario 4: under a limit, and on a device that has no more.
#[test]
fn memory_that_nobody_uses_makes_room_for_a_larger_request() {
    let pools = [PoolOptions::growing_pages(4 * M, 256 * M), exclusive(G), direct(None)];
    for pool in pools {
        for limited in [false, true] {
            let device = LoggedDevice::new();
            let limit = if limited { Some(G) } else { None };
            let options = AllocatorOptions::default().with_max_bytes(limit);
            let allocator = Allocator::try_new(&device, std::slice::from_ref(&pool), options).unwrap();
            if !limited {
                device.ledger.limit_to(G);
            }
            let first = place(&allocator, 512 * M);
            allocator.free(first.id).unwrap();
            place(&allocator, 768 * M);
            assert!(!device.ledger.is_out(first.memory));
            assert_agree(&allocator, &device.ledger);
        }
    }
}

/// Scenario 5.
#[test]
fn sixty_percent_of_which_half_was_freed_leave_room_for_sixty_percent() {
    let adaptive = adaptive(&Properties::new(u64::MAX)).unwrap();
    for pools in [&adaptive[..], &[exclusive(G)], &[direct(None)]] {
        for count in [2, 4, 12] {
            let device = LoggedDevice::new();
            let options = AllocatorOptions::default().with_max_bytes(Some(100 * M));
            let allocator = Allocator::try_new(&device, pools, options).unwrap();
            let slices: Vec<_> = (0..count).map(|_| place(&allocator, 60 * M / count)).collect();
            free_all(&allocator, slices.iter().step_by(2));
            let large = place(&allocator, 60 * M);
            assert!(device.ledger.bytes_peak() <= 100 * M);
            assert_eq!(allocator.get(large.id), Ok(large));
            assert_agree(&allocator, &device.ledger);
        }
    }
}

/// Those idle the longest, whichever pool they are in, and no more than the page needs.
#[test]
fn idle_pages_of_all_pools_go_oldest_first_and_no_more_than_needed() {
    for (order, wanted, gone) in
        [([0, 1, 2, 3], 2, 2), ([3, 2, 1, 0], 2, 2), ([2, 0, 3, 1], 1, 1), ([1, 3, 0, 2], 3, 3), ([1, 0, 3, 2], 4, 4)]
    {
        let device = LoggedDevice::new();
        let pools = [sliced(M, M, None), exclusive(M), direct(None), growing(M, M), direct(None)];
        let allocator = Allocator::try_new(&device, &pools, options()).unwrap();
        let slices = [0, 1, 2, 3].map(|pool| place_in(&allocator, M, pool));
        for index in order {
            allocator.free(slices[index].id).unwrap();
        }
        device.ledger.limit_to(4 * M);
        device.asked();
        place_in(&allocator, wanted * M, 4);
        let mut asked = vec![Asked::Page(wanted * M)];
        asked.extend(order[..gone].iter().map(|&index| Asked::Back(slices[index].memory)));
        asked.push(Asked::Page(wanted * M));
        assert_eq!(device.asked(), asked, "{order:?}");
        assert_agree(&allocator, &device.ledger);
    }
}

/// Several pools hold free pages and the device is nearly full: the request reclaims and succeeds.
#[test]
fn free_pages_of_any_pool_are_reclaimed_for_any_other() {
    for (name, taker) in KINDS {
        for (other, holder) in KINDS {
            let device = LoggedDevice::new();
            let allocator = Allocator::try_new(&device, &[holder.clone(), taker.clone()], options()).unwrap();
            let size = 1 << 14;
            let held: Vec<SliceId> = (0..8).map(|_| place_in(&allocator, size, 0).id).collect();
            let live = place_in(&allocator, 1 << 16, 1);
            for id in held {
                allocator.free(id).unwrap();
            }
            device.ledger.limit_to(device.ledger.bytes() + 100);
            let more = place_in(&allocator, 1 << 16, 1);
            assert!(more.memory != live.memory || more.offset != live.offset, "{name} from {other}");
            assert_eq!(allocator.get(live.id), Ok(live));
            assert_agree(&allocator, &device.ledger);
        }
    }
}

/// Pages that the device has refused to take are offered again, before any that are idle.
#[test]
fn pages_that_the_device_has_refused_to_take_are_offered_again() {
    let device = LoggedDevice::new();
    let allocator = over(&device, &[sliced(M, M, None), direct(None)]);
    let stuck = place(&allocator, M);
    allocator.free(stuck.id).unwrap();
    device.ledger.keep_everything(true);
    assert!(allocator.trim(0).is_err());
    let idle = place(&allocator, M);
    allocator.free(idle.id).unwrap();
    device.ledger.limit_to(2 * M);
    device.asked();
    // As long as it takes nothing, the request fails, and what it has refused is stuck.
    let request = Request::new(2 * M).in_pool(1);
    use Asked::{Back, Help, Page};
    assert_eq!(allocator.allocate(&request), Err(none_left(2 * M)));
    assert_eq!(device.asked(), [Page(2 * M), Back(stuck.memory), Back(idle.memory), Help(0)]);
    let figures = allocator.statistics();
    assert_eq!((figures.stuck, figures.pages_stuck, figures.pages), (2 * M, 2, 0));
    assert_agree(&allocator, &device.ledger);
    device.ledger.keep_everything(false);
    allocator.allocate(&request).unwrap();
    assert_eq!(device.asked(), [Back(stuck.memory), Back(idle.memory), Page(2 * M)]);
    assert_agree(&allocator, &device.ledger);
}

/// Where the cap of a pool is in the way, pages of other pools are not.
#[test]
fn pages_of_other_pools_stay_where_only_a_cap_is_in_the_way() {
    for pool in [sliced(M, M, Some(2 * M)), capped(growing(M, M), 2 * M)] {
        let device = LoggedDevice::new();
        let allocator = Allocator::try_new(&device, &[pool, direct(None)], options()).unwrap();
        let slices = [0, 0, 1].map(|pool| place_in(&allocator, M, pool));
        allocator.free(slices[2].id).unwrap();
        device.asked();
        assert_eq!(allocator.allocate(&Request::new(M).in_pool(0)), Err(full(M, 2 * M, 2 * M, 0)));
        assert_eq!(device.asked(), [Asked::Help(0)]);
        assert!(device.ledger.is_out(slices[2].memory));
    }
}
