//! Slices that wait for the device: the pages they keep, the end of their allocator, and timelines that are forgotten.

use crate::common::M;
use crate::common::devices::LedgerDevice;
use crate::common::lock::WatchedLock;
use crate::common::pools::{KINDS, direct, options, over, place, sliced};
use crate::common::waiting::{assert_agree, points, waiting};
use slicepool_core::{Allocator, Error, LiveSlices, PERSISTENT_POOL, Point, PoolOptions, Request, SliceId};

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

fn free_after(allocator: &Allocator<&LedgerDevice>, id: SliceId, timeline: u32, value: u64) {
    allocator.free_after(id, &[Point::new(timeline, value)]).unwrap();
}

/// Scenario 47: a page stays as long as something in it waits, whatever is trimmed, cleaned up, or grows old.
#[test]
fn a_page_in_which_something_waits_stays() {
    let device = LedgerDevice::new();
    let pools = KINDS.map(|(_, pool)| pool.with_dealloc_period(Some(5)));
    let allocator = over(&device, &pools);
    for request in to_every_kind(SIZE) {
        let slice = allocator.allocate(&request).unwrap();
        free_after(&allocator, slice.id, 1, 1);
        let calls = device.calls();
        allocator.trim(0).unwrap();
        allocator.cleanup().unwrap();
        assert_eq!((device.calls(), device.pages()), (calls, 1), "{request:?}");
        // Allocations elsewhere make pages old that hold nothing.
        let other = if request.pool == Some(0) { 1 } else { 0 };
        let kept = allocator.allocate(&Request::new(SIZE).in_pool(other)).unwrap();
        for _ in 0..30 {
            let id = allocator.allocate(&Request::new(100).in_pool(other)).unwrap().id;
            allocator.free(id).unwrap();
        }
        assert!(device.is_out(slice.memory), "{request:?}");
        assert_agree(&allocator, &device);
        allocator.collect(1, 1).unwrap();
        allocator.free(kept.id).unwrap();
        assert!(device.is_out(slice.memory), "{request:?}: what is released gives no page back by itself");
        allocator.cleanup().unwrap();
        assert_eq!(device.pages(), 0, "{request:?}");
        allocator.timeline_forget(1).unwrap();
    }
}

/// Pages become idle, and grow old, when what waited in them is released.
#[test]
fn a_page_grows_old_from_the_release_of_what_waited_in_it() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None), sliced(M, M, None).with_dealloc_period(Some(5))]);
    let slices: Vec<_> = (0..3).map(|_| allocator.allocate(&Request::new(M).in_pool(1)).unwrap()).collect();
    // Freed in one order, released in another: the pages go in that of their release.
    for (slice, timeline) in slices.iter().zip([1, 2, 3]) {
        free_after(&allocator, slice.id, timeline, 1);
    }
    for (timeline, idle) in [(2, 1), (3, 2), (1, 3)] {
        allocator.collect(timeline, 1).unwrap();
        assert_eq!(allocator.statistics().pages_idle, idle);
    }
    for (keep, gone) in [(2 * M, 1), (M, 2)] {
        allocator.trim(keep).unwrap();
        assert!(!device.is_out(slices[gone].memory));
    }
    for _ in 0..6 {
        let id = allocator.allocate(&Request::new(100).in_pool(0)).unwrap().id;
        allocator.free(id).unwrap();
    }
    assert!(!device.is_out(slices[0].memory));
}

/// Scenario 47: destroying is refused while anything waits, and nothing is changed by that.
#[test]
fn destroying_is_refused_while_slices_wait_and_forcing_it_gives_everything_back() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        let slices: Vec<_> = (0..5).map(|_| place(&allocator, SIZE)).collect();
        let busy = |live, pending| Error::Busy { live, pending, in_use: live * SIZE, in_flight: 0 };
        for (i, slice) in slices.iter().enumerate() {
            allocator.free_after(slice.id, &points(&[(i as u32 % 2, 1), (7, 9)])).unwrap();
            let expected = busy(4 - i as u64, i as u64 + 1);
            assert_eq!(allocator.can_destroy(LiveSlices::Refuse), Err(expected), "{name}");
            assert_eq!(allocator.close(LiveSlices::Refuse), Err(expected), "{name}");
        }
        let Err((allocator, error)) = allocator.destroy() else { panic!("{name}: something waits") };
        assert_eq!(error, busy(0, 5), "{name}");
        assert_agree(&allocator, &device);
        // It works as before.
        allocator.collect(7, 9).unwrap();
        allocator.collect(0, 1).unwrap();
        assert_eq!(waiting(&allocator), 2, "{name}");
        assert_eq!(allocator.can_destroy(LiveSlices::Free), Ok(()));
        let live = place(&allocator, SIZE);
        allocator.close(LiveSlices::Free).unwrap();
        assert_eq!((device.pages(), waiting(&allocator)), (0, 0), "{name}");
        assert!(allocator.get(live.id).is_err());
        assert_eq!(allocator.check(), Ok(()));
    }
}

/// Scenario 47: abandoning says nothing to the device, dropping gives everything back.
#[test]
fn abandoning_with_slices_that_wait_makes_no_device_call_and_dropping_gives_their_pages_back() {
    let lock = WatchedLock::new();
    let device = LedgerDevice::new();
    for abandons in [true, false] {
        let pools = KINDS.map(|(_, pool)| pool);
        let allocator = Allocator::try_new(&device, &pools, options().with_lock(lock.kind())).unwrap();
        for request in to_every_kind(SIZE) {
            let slice = allocator.allocate(&request).unwrap();
            allocator.free_after(slice.id, &points(&[(1, 1), (2, 2)])).unwrap();
        }
        let (calls, pages) = (device.calls(), device.pages());
        if abandons {
            allocator.abandon();
            assert_eq!((device.calls(), device.pages()), (calls, pages));
            device.write_off();
        } else {
            drop(allocator);
            assert_eq!((device.calls(), device.pages()), (calls + pages, 0));
        }
    }
    lock.assert_used_rightly();
}

/// Pools in which something waits cannot be replaced.
#[test]
fn pools_in_which_something_waits_stay() {
    let device = LedgerDevice::new();
    let mut allocator = over(&device, &[sliced(M, M, None)]);
    let slice = place(&allocator, SIZE);
    free_after(&allocator, slice.id, 1, 1);
    assert_eq!(allocator.install_pools(&[direct(None)]), Err(Error::PoolsInUse { bytes: SIZE }));
    assert_agree(&allocator, &device);
    allocator.collect(1, 1).unwrap();
    allocator.install_pools(&[direct(None)]).unwrap();
    assert_eq!(allocator.collect(1, 2), Ok(()));
    // Persistent slices are none of these.
    let slice = allocator.allocate(&Request::new(SIZE).persistent()).unwrap();
    free_after(&allocator, slice.id, 1, 9);
    allocator.install_pools(&[PoolOptions::direct(None)]).unwrap();
    assert_eq!(allocator.pool_statistics(PERSISTENT_POOL as usize).unwrap().slices_pending, 1);
    allocator.collect(1, 9).unwrap();
    assert_eq!(waiting(&allocator), 0);
}

// ---- timelines

/// A timeline is forgotten only when nothing waits for it, and begins at 0 again.
#[test]
fn a_forgotten_timeline_begins_at_0_again() {
    let device = LedgerDevice::new();
    let allocator = with_every_kind(&device);
    assert_eq!(allocator.timeline_forget(3), Ok(()), "it was never known");
    for request in to_every_kind(SIZE) {
        let slice = allocator.allocate(&request).unwrap();
        allocator.free_after(slice.id, &points(&[(3, 10), (4, 10)])).unwrap();
        let busy = Error::Busy { live: 0, pending: 1, in_use: 0, in_flight: 0 };
        for timeline in [3, 4] {
            assert_eq!(allocator.timeline_forget(timeline), Err(busy), "{request:?}");
        }
        allocator.collect(3, 20).unwrap();
        // Nothing waits for it any more, though the slice does for another.
        assert_eq!((allocator.timeline_forget(3), waiting(&allocator)), (Ok(()), 1), "{request:?}");
        assert_eq!(allocator.timeline_forget(4), Err(busy));
        let next = allocator.allocate(&request).unwrap();
        free_after(&allocator, next.id, 3, 1);
        assert_eq!(waiting(&allocator), 2, "{request:?}: 20 is forgotten");
        allocator.collect(3, 1).unwrap();
        allocator.collect(4, 10).unwrap();
        assert_eq!(waiting(&allocator), 0, "{request:?}");
        for timeline in [3, 4, 5] {
            allocator.timeline_forget(timeline).unwrap();
        }
        assert_agree(&allocator, &device);
    }
}

/// Timelines that come and go cost nothing in the long run.
#[test]
fn timelines_that_are_forgotten_leave_their_memory_to_others() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        let mut metadata = 0;
        for timeline in 0..20_000u32 {
            let slice = place(&allocator, SIZE);
            let timeline = timeline.wrapping_mul(0x0123_4567);
            allocator.free_after(slice.id, &points(&[(timeline, 1), (timeline ^ 1, 2)])).unwrap();
            allocator.collect(timeline, 1).unwrap();
            allocator.collect(timeline ^ 1, 2).unwrap();
            allocator.timeline_forget(timeline).unwrap();
            allocator.timeline_forget(timeline ^ 1).unwrap();
            if timeline == 0 {
                metadata = allocator.statistics().metadata;
            }
        }
        assert_eq!(allocator.statistics().metadata, metadata, "{name}");
        assert_agree(&allocator, &device);
    }
}
