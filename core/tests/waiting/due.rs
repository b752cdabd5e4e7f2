//! Slices that were freed but wait for the device: what is due when, what they keep, and what is told of them.

use crate::common::devices::LedgerDevice;
use crate::common::pools::{KINDS, direct, exclusive, growing, over, place, sliced};
use crate::common::waiting::{assert_agree, points, range_of, waiting};
use crate::common::{K, M};
use slicepool_core::{Allocator, Error, Point, Request, Slice, SliceId};

const SIZE: u64 = 1 << 14;

/// An allocator with one pool of each kind, for tests that name the pool.
fn with_every_kind(device: &LedgerDevice) -> Allocator<&LedgerDevice> {
    over(device, &KINDS.map(|(_, pool)| pool))
}

/// Requests that go to a pool of each kind, that of persistent slices too.
fn to_every_kind(size: u64) -> Vec<Request> {
    let named = (0..KINDS.len() as u32).map(|pool| Request::new(size).in_pool(pool));
    named.chain([Request::new(size).persistent()]).collect()
}

fn at(slice: &Slice) -> (u64, u64) {
    (slice.memory, slice.offset)
}

fn free_after(allocator: &Allocator<&LedgerDevice>, id: SliceId, timeline: u32, value: u64) {
    allocator.free_after(id, &[Point::new(timeline, value)]).unwrap();
}

// ---- when

/// Scenario 45.
#[test]
fn a_slice_that_waits_for_a_point_serves_nothing_until_that_has_been_passed() {
    let device = LedgerDevice::new();
    let allocator = with_every_kind(&device);
    for request in to_every_kind(SIZE) {
        let first = allocator.allocate(&request).unwrap();
        free_after(&allocator, first.id, 7, 5);
        let second = allocator.allocate(&request).unwrap();
        assert_ne!(at(&first), at(&second), "{request:?}");
        allocator.collect(7, 4).unwrap();
        assert_eq!(waiting(&allocator), 1, "{request:?}");
        assert_agree(&allocator, &device);
        allocator.collect(7, 5).unwrap();
        assert_eq!(waiting(&allocator), 0, "{request:?}");
        let third = allocator.allocate(&request).unwrap();
        assert_eq!(at(&third), at(&first), "{request:?}");
        for slice in [second, third] {
            allocator.free(slice.id).unwrap();
        }
        // The next pool is to begin with a timeline that nothing is known of.
        allocator.timeline_forget(7).unwrap();
        assert_agree(&allocator, &device);
    }
}

/// Scenario 46.
#[test]
fn a_slice_that_was_used_on_two_timelines_waits_for_both() {
    let device = LedgerDevice::new();
    let allocator = with_every_kind(&device);
    for request in to_every_kind(SIZE) {
        for [first, last] in [[(1, 10), (2, 3)], [(2, 3), (1, 10)]] {
            let slice = allocator.allocate(&request).unwrap();
            allocator.free_after(slice.id, &points(&[(1, 10), (2, 3)])).unwrap();
            for (timeline, value) in [(last.0, last.1 - 1), first, first] {
                allocator.collect(timeline, value).unwrap();
                assert_eq!(waiting(&allocator), 1, "{request:?}: {timeline} has completed {value}");
                assert!(range_of(&allocator, &slice).pending);
            }
            allocator.collect(last.0, last.1).unwrap();
            assert_eq!((waiting(&allocator), range_of(&allocator, &slice).pending), (0, false), "{request:?}");
            assert_agree(&allocator, &device);
            for timeline in [1, 2] {
                allocator.timeline_forget(timeline).unwrap();
            }
        }
    }
}

/// Scenario 49: values that fall on a timeline are released late, never early.
#[test]
fn a_point_below_an_earlier_one_counts_as_that() {
    for pool in KINDS.map(|(_, pool)| pool) {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        let slices: Vec<_> = (0..4).map(|_| place(&allocator, SIZE)).collect();
        let is_free = |index: usize| !range_of(&allocator, &slices[index]).pending;
        for (slice, value) in slices.iter().zip([9, 3, 12, 1]) {
            free_after(&allocator, slice.id, 0, value);
        }
        for (completed, free) in [(3, 0), (8, 0), (9, 2), (11, 2), (12, 4)] {
            allocator.collect(0, completed).unwrap();
            let found = (0..4).filter(|&index| is_free(index)).count();
            assert_eq!((found, waiting(&allocator)), (free, 4 - free as u32), "{completed}");
            assert!((0..free).all(is_free), "in the order in which they were freed");
        }
        assert_agree(&allocator, &device);
    }
}

/// What a timeline has completed is remembered, and does not fall.
#[test]
fn a_point_that_has_been_passed_is_no_reason_to_wait() {
    let device = LedgerDevice::new();
    let allocator = with_every_kind(&device);
    // The pool of persistent slices is there from its first slice on.
    let persistent = allocator.allocate(&Request::new(SIZE).persistent()).unwrap();
    allocator.free(persistent.id).unwrap();
    allocator.collect(5, 100).unwrap();
    allocator.collect(5, 50).unwrap();
    for request in to_every_kind(SIZE) {
        for passed in [vec![], vec![(5, 100)], vec![(5, 0)], vec![(5, 99), (5, 100), (6, 0)], vec![(77, 0)]] {
            let slice = allocator.allocate(&request).unwrap();
            allocator.free_after(slice.id, &points(&passed)).unwrap();
            assert_eq!(waiting(&allocator), 0, "{request:?}, {passed:?}");
            let again = allocator.allocate(&request).unwrap();
            assert_eq!(at(&again), at(&slice), "{request:?}, {passed:?}");
            allocator.free_after_many(&[again.id], &points(&passed)).unwrap();
            assert_eq!(waiting(&allocator), 0, "{request:?}, {passed:?}");
        }
        let slice = allocator.allocate(&request).unwrap();
        free_after(&allocator, slice.id, 5, 101);
        assert_eq!(waiting(&allocator), 1, "{request:?}");
        // One point passed, one not: only that is waited for.
        let slice = allocator.allocate(&request).unwrap();
        allocator.free_after(slice.id, &points(&[(5, 100), (8, 1)])).unwrap();
        allocator.collect(8, 1).unwrap();
        assert_eq!((waiting(&allocator), range_of(&allocator, &slice).pending), (1, false), "{request:?}");
        allocator.timeline_forget(8).unwrap();
        assert_agree(&allocator, &device);
        allocator.collect(5, 101).unwrap();
        allocator.timeline_forget(5).unwrap();
        allocator.collect(5, 100).unwrap();
    }
}

/// Also by pools that come later: that of persistent slices, and those that take the place of others.
#[test]
fn what_a_timeline_has_completed_is_known_to_pools_that_come_later() {
    for late_pool in ["persistent", "installed"] {
        let device = LedgerDevice::new();
        let mut allocator = over(&device, &[sliced(M, M, None)]);
        allocator.collect(5, 100).unwrap();
        let slice = if late_pool == "persistent" {
            allocator.allocate(&Request::new(SIZE).persistent()).unwrap()
        } else {
            allocator.install_pools(&[exclusive(M)]).unwrap();
            place(&allocator, SIZE)
        };
        free_after(&allocator, slice.id, 5, 100);
        assert_eq!(waiting(&allocator), 0, "{late_pool}");
    }
}

/// The largest value is a point like any other, but for `collect`, which lets everything go that waits for the timeline.
#[test]
fn a_lost_timeline_lets_go_of_everything() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(M, M, None), direct(None)]);
    let slices: Vec<_> = (0..4).map(|i| allocator.allocate(&Request::new(SIZE).in_pool(i % 2)).unwrap()).collect();
    for (slice, value) in slices.iter().zip([u64::MAX, u64::MAX - 1, u64::MAX, 1]) {
        free_after(&allocator, slice.id, u32::MAX, value);
    }
    allocator.collect(u32::MAX, u64::MAX - 1).unwrap();
    assert_eq!(waiting(&allocator), 2, "one of each pool waits for the last value of all");
    allocator.collect(u32::MAX, u64::MAX).unwrap();
    assert_eq!(waiting(&allocator), 0);
    // Nothing is waited for on it any more.
    let slice = place(&allocator, SIZE);
    free_after(&allocator, slice.id, u32::MAX, u64::MAX);
    assert_eq!(waiting(&allocator), 0);
    // Of two timelines only one was lost.
    let slice = place(&allocator, SIZE);
    allocator.free_after(slice.id, &points(&[(1, 1), (2, 1)])).unwrap();
    allocator.collect(1, u64::MAX).unwrap();
    assert_eq!(waiting(&allocator), 1);
    allocator.collect(2, u64::MAX).unwrap();
    assert_eq!(waiting(&allocator), 0);
    assert_agree(&allocator, &device);
}

/// Of several points on one timeline the largest counts, in whatever order they are.
#[test]
fn of_several_points_on_one_timeline_the_largest_counts() {
    let device = LedgerDevice::new();
    for given in [[(1, 3), (1, 8), (1, 5)], [(1, 8), (1, 8), (1, 3)], [(1, 3), (1, 5), (1, 8)]] {
        let allocator = with_every_kind(&device);
        for request in to_every_kind(SIZE) {
            let slice = allocator.allocate(&request).unwrap();
            allocator.free_after(slice.id, &points(&given)).unwrap();
        }
        let count = waiting(&allocator);
        allocator.collect(1, 7).unwrap();
        assert_eq!((waiting(&allocator), count), (count, to_every_kind(0).len() as u32));
        allocator.collect(1, 8).unwrap();
        assert_eq!(waiting(&allocator), 0);
        assert_agree(&allocator, &device);
    }
}

/// 64 points are the most.
#[test]
fn a_slice_waits_for_up_to_64_points() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        let all: Vec<_> = (0..65).map(|i| Point::new(i * 3, u64::from(i) + 1)).collect();
        let slice = place(&allocator, SIZE);
        let refused = Error::InvalidArgument { field: c"point_count", value: 65 };
        assert_eq!(allocator.free_after(slice.id, &all), Err(refused));
        let many = allocator.free_after_many(&[slice.id], &all).unwrap_err();
        assert_eq!((many.index, many.error), (0, refused));
        assert_eq!((allocator.get(slice.id), waiting(&allocator)), (Ok(slice), 0), "{name}");
        allocator.free_after(slice.id, &all[..64]).unwrap();
        // In an order that is not the one in which they were given.
        for i in 0..64 {
            assert_eq!(waiting(&allocator), 1, "{name}: {i} of 64 have been passed");
            let point = all[i * 27 % 64];
            allocator.collect(point.timeline, point.value).unwrap();
        }
        assert_eq!(waiting(&allocator), 0, "{name}");
        assert_agree(&allocator, &device);
    }
}

// ---- the handle, and what is around the slice

/// A handle is good once, also for a slice that waits.
#[test]
fn the_handle_of_a_slice_that_waits_is_stale() {
    let device = LedgerDevice::new();
    let allocator = with_every_kind(&device);
    let others_device = LedgerDevice::new();
    let foreign = place(&over(&others_device, &[sliced(M, M, None)]), 1).id;
    assert_eq!(allocator.free_after(foreign, &[Point::new(1, 1)]), Err(Error::ForeignHandle));
    for request in to_every_kind(SIZE) {
        let slice = allocator.allocate(&request).unwrap();
        free_after(&allocator, slice.id, 1, 1);
        for stage in ["waits", "is free", "is used again"] {
            let id = slice.id;
            assert_eq!(allocator.free(id), Err(Error::StaleHandle), "{request:?} {stage}");
            assert_eq!(allocator.free_after(id, &[Point::new(1, 1)]), Err(Error::StaleHandle));
            assert_eq!(allocator.free_after(id, &points(&[(2, 1), (3, 1)])), Err(Error::StaleHandle));
            assert_eq!(allocator.free_many(&[id]).unwrap_err().error, Error::StaleHandle);
            assert_eq!(allocator.get(id), Err(Error::StaleHandle));
            assert_eq!(allocator.try_resize(id, 100), Err(Error::StaleHandle));
            assert_eq!(waiting(&allocator), u32::from(stage == "waits"), "{request:?}");
            assert_agree(&allocator, &device);
            match stage {
                "waits" => allocator.collect(1, 1).unwrap(),
                "is free" => assert_eq!(at(&allocator.allocate(&request).unwrap()), at(&slice)),
                _ => {}
            }
        }
        allocator.timeline_forget(1).unwrap();
    }
}

/// Holes do not join across a slice that waits, and join when it is released.
#[test]
fn memory_that_waits_is_neither_joined_nor_grown_into() {
    for pool in [sliced(64 * K, 64 * K, Some(64 * K)), growing(64 * K, 64 * K)] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        let slices: Vec<_> = (0..4).map(|_| place(&allocator, SIZE)).collect();
        free_after(&allocator, slices[1].id, 1, 1);
        let no_room = Error::NoRoom { size: SIZE + 1, available: SIZE };
        assert_eq!(allocator.try_resize(slices[0].id, SIZE + 1), Err(no_room));
        allocator.free(slices[0].id).unwrap();
        allocator.free(slices[2].id).unwrap();
        assert_eq!((allocator.largest_free(), allocator.statistics().free_ranges), (SIZE, 2));
        assert_eq!(allocator.would_fit(&Request::new(SIZE + 1)), Ok(false));
        assert_agree(&allocator, &device);
        allocator.collect(1, 1).unwrap();
        assert_eq!((allocator.largest_free(), allocator.statistics().free_ranges), (3 * SIZE, 1));
        assert_eq!(allocator.try_resize(slices[3].id, 100).unwrap().offset, 3 * SIZE);
        assert_agree(&allocator, &device);
    }
}

/// What is told of slices that wait.
#[test]
fn figures_a_walk_and_errors_show_what_waits() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(64 * K, 64 * K, Some(64 * K)), exclusive(M)]);
    let slices: Vec<_> = (0..4).map(|_| place(&allocator, SIZE - 5)).collect();
    let alone = allocator.allocate(&Request::new(1000).in_pool(1)).unwrap();
    let before = allocator.statistics();
    free_after(&allocator, slices[2].id, 1, 5);
    free_after(&allocator, alone.id, 2, 5);
    let figures = allocator.statistics();
    assert_eq!((figures.slices, figures.slices_pending, figures.pending), (3, 2, SIZE + alone.size));
    assert_eq!((figures.in_use, figures.reserved, figures.free), (3 * (SIZE - 5), before.reserved, before.free));
    assert_eq!((figures.pages_idle, figures.in_use_peak), (0, before.in_use_peak));
    let range = range_of(&allocator, &slices[2]);
    assert_eq!((range.id, range.pending, range.size, range.requested), (None, true, SIZE, 0));
    assert_eq!((range.offset, range.address), (slices[2].offset, slices[2].address));
    let range = range_of(&allocator, &alone);
    assert_eq!((range.pool, range.id, range.pending, range.offset, range.size), (1, None, true, 0, alone.size));
    let full = Error::PoolCapacityExceeded {
        size: SIZE,
        capacity: 64 * K,
        in_use: 3 * (SIZE - 5),
        pending: SIZE,
        largest_free: 0,
        growths_in_flight: 0,
    };
    assert_eq!(allocator.allocate(&Request::new(SIZE).in_pool(0)), Err(full));
    let mut json = String::new();
    allocator.write_json(&mut json).unwrap();
    let json = crate::common::json::Json::read(&json);
    let json = json.get("allocator");
    assert_eq!((json.number("slices_pending"), json.number("pending_bytes")), (2, SIZE + alone.size));
    assert_agree(&allocator, &device);
    for timeline in [1, 2] {
        allocator.collect(timeline, 5).unwrap();
    }
    let figures = allocator.statistics();
    assert_eq!((figures.slices, figures.slices_pending, figures.pending, figures.pages_idle), (3, 0, 0, 1));
    assert_agree(&allocator, &device);
}
