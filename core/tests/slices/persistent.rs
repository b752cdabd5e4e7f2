//! Persistent slices: for what lives as long as the program.

use crate::common::devices::{KEPT, LedgerDevice, NONE_LEFT, ScriptedDevice};
use crate::common::host::HostLedger;
use crate::common::json::Json;
use crate::common::meeting::Meeting;
use crate::common::pools::{direct, exclusive, options, over, place, sliced, touch};
use crate::common::sums::{State, all_ranges, assert_held};
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Budget, Device, DeviceFault, DeviceMemory, Error, HostMemory, LiveSlices, LockKind,
    MemoryType, PERSISTENT_POOL, PageRequest, Point, PoolOptions, Request, Slice, Statistics,
};
use std::cell::RefCell;
use std::collections::HashSet;
use std::thread;

const fn request(size: u64) -> Request {
    Request::new(size).persistent()
}

fn keep<D: Device>(allocator: &Allocator<D>, size: u64) -> Slice {
    allocator.allocate(&request(size)).unwrap()
}

/// Allocates a persistent slice and frees it at once.
fn leave<D: Device>(allocator: &Allocator<D>, size: u64) -> Slice {
    let slice = keep(allocator, size);
    allocator.free(slice.id).unwrap();
    slice
}

fn persistent<D: Device>(allocator: &Allocator<D>) -> Option<Statistics> {
    allocator.pool_statistics(PERSISTENT_POOL as usize)
}

// ---- one device allocation each

/// Item 5.
#[test]
fn a_persistent_slice_is_not_in_the_pools_and_only_a_cleanup_gives_it_back() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(M, M, None)]);
    assert_eq!(persistent(&allocator), None);
    let slice = keep(&allocator, 1024);
    let peak = || allocator.pool_statistics(0).unwrap().pages_peak;
    assert_eq!((peak(), slice.offset, slice.size, device.sizes()), (0, 0, 1024, vec![1024]));
    touch(&allocator, 1024);
    assert_eq!(peak(), 1);
    allocator.free(slice.id).unwrap();
    allocator.trim(0).unwrap();
    assert_eq!((device.bytes(), device.is_out(slice.memory)), (1024, true));
    assert_held(&allocator, &device);
    allocator.cleanup().unwrap();
    assert_eq!((device.bytes(), persistent(&allocator).unwrap().reserved), (0, 0));
    assert_held(&allocator, &device);
}

/// Item 15.
#[test]
fn a_free_persistent_slice_serves_its_exact_size_again_and_no_other() {
    let device = LedgerDevice::new();
    let fine = options().with_memory_type(MemoryType::new(128 * M, 4)).with_persistent_granule(4);
    let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], fine).unwrap();
    let figures = || persistent(&allocator).map(|it| (it.in_use, it.reserved, it.pages)).unwrap();
    let first = keep(&allocator, 1024);
    let second = keep(&allocator, 1024);
    assert_ne!(first.memory, second.memory, "the first is held");
    assert_eq!(figures(), (2048, 2048, 2));
    allocator.free(first.id).unwrap();
    let other = keep(&allocator, 1025);
    assert_eq!((other.size, figures()), (1028, (1024 + 1025, 2048 + 1028, 3)));
    let again = keep(&allocator, 1024);
    assert_eq!((again.memory, device.given()), (first.memory, 3));
    assert_eq!(allocator.free(first.id), Err(Error::StaleHandle));
    allocator.free(other.id).unwrap();
    allocator.free(again.id).unwrap();
    allocator.free(second.id).unwrap();
    assert_eq!(figures(), (0, 2048 + 1028, 3));
    // The size that counts is the rounded one, and what is in use is what was asked for last.
    let near = keep(&allocator, 1026);
    assert_eq!((near.memory, figures()), (other.memory, (1026, 2048 + 1028, 3)));
    assert_eq!(persistent(&allocator).unwrap().padding, 2);
    assert_held(&allocator, &device);
    allocator.free(near.id).unwrap();
    assert_eq!(keep(&allocator, 1025).memory, other.memory);
}

/// It never pins a shared page, and no shared page serves it.
#[test]
fn persistent_slices_and_others_never_serve_each_other() {
    for pool in [direct(None), exclusive(M), sliced(M, M, None)] {
        let device = LedgerDevice::new();
        let options = options().with_persistent_granule(32);
        let allocator = Allocator::try_new(&device, &[pool], options).unwrap();
        let ordinary = touch(&allocator, 64 * K);
        let slice = leave(&allocator, 64 * K);
        assert_ne!(slice.memory, ordinary.memory);
        assert_eq!(place(&allocator, 64 * K).memory, ordinary.memory);
        assert_eq!(keep(&allocator, 64 * K).memory, slice.memory);
        assert_eq!(device.given(), 2);
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// What a persistent request can be like.
#[test]
fn persistent_requests_have_limits_and_alignments_of_their_own() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(M, 64, None), exclusive(0)]);
    let refuse = |field, value| Err(Error::InvalidArgument { field, value });
    assert_eq!(allocator.allocate(&request(0)), refuse(c"size", 0));
    assert_eq!(allocator.allocate(&request(64).aligned(48)), refuse(c"alignment", 48));
    // Pages are aligned to the granule of 256.
    assert_eq!(allocator.allocate(&request(64).aligned(512)), refuse(c"alignment", 512));
    let above = 128 * M + 1;
    assert_eq!(allocator.allocate(&request(above)), Err(Error::TooLarge { size: above, limit: 128 * M }));
    assert_eq!(device.calls(), 0);
    let slice = allocator.allocate(&request(128 * M).aligned(256)).unwrap();
    assert_eq!((slice.size, slice.address % 256), (128 * M, 0));
    allocator.free(slice.id).unwrap();
}

/// A request flag, with no pool named.
#[test]
fn a_persistent_request_that_names_a_pool_is_refused() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(M, M, None), direct(None)]);
    for pool in [0, 1, 2, PERSISTENT_POOL] {
        let refusal = Err(Error::InvalidArgument { field: c"pool", value: u64::from(pool) });
        assert_eq!(allocator.allocate(&request(100).in_pool(pool)), refusal);
        assert_eq!(allocator.would_fit(&request(100).in_pool(pool)).map(drop), refusal.map(drop));
    }
    // Its index is good for looking only.
    let refusal = Error::InvalidArgument { field: c"pool", value: u64::from(PERSISTENT_POOL) };
    assert_eq!(allocator.allocate(&Request::new(100).in_pool(PERSISTENT_POOL)), Err(refusal));
    assert_eq!((persistent(&allocator), device.calls()), (None, 0));
}

/// A device with pages smaller than the usual granule; a granule that is none.
#[test]
fn the_granule_of_persistent_slices_suits_the_device_or_is_refused() {
    let device = LedgerDevice::new();
    let small = AllocatorOptions::default().with_memory_type(MemoryType::new(100, 4));
    let pool = [PoolOptions::direct(None).with_granule(4)];
    let allocator = Allocator::try_new(&device, &pool, small.clone()).unwrap();
    assert_eq!(leave(&allocator, 5).size, 64);
    let refusal = Err(Error::InvalidArgument { field: c"persistent_granule", value: 48 });
    assert_eq!(Allocator::try_new(&device, &pool, small.with_persistent_granule(48)).map(drop), refusal);
}

/// What the device and reports are told.
#[test]
fn the_pool_of_persistent_slices_has_a_name_of_its_own() {
    let ledger = LedgerDevice::new();
    let asked = RefCell::new(Vec::new());
    let device = ScriptedDevice {
        allocate: |request: &PageRequest| {
            asked.borrow_mut().push((request.pool, request.size));
            ledger.allocate(request)
        },
        deallocate: |memory: &DeviceMemory| ledger.deallocate(memory),
    };
    let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options()).unwrap();
    let (slice, other) = (keep(&allocator, 1000), place(&allocator, 1000));
    assert_eq!(*asked.borrow(), [(PERSISTENT_POOL, 1024), (0, M)]);
    let shown: Vec<_> = all_ranges(&allocator)
        .iter()
        .filter_map(|range| range.id.map(|id| (range.pool, id, range.requested)))
        .collect();
    assert_eq!(shown, [(0, other.id, 1000), (PERSISTENT_POOL, slice.id, 1000)]);
    assert_eq!(allocator.pool_report(PERSISTENT_POOL as usize).unwrap().options, PoolOptions::direct(None));
    assert_eq!((allocator.pool_count(), allocator.would_fit(&request(1000))), (1, Ok(false)));
    allocator.free(slice.id).unwrap();
    assert_eq!(allocator.would_fit(&request(1000)), Ok(true));
    allocator.free(other.id).unwrap();
}

/// Once there is one.
#[test]
fn the_report_shows_persistent_slices_apart() {
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options()).unwrap();
    let json = || {
        let mut text = String::new();
        allocator.write_json(&mut text).unwrap();
        Json::read(&text)
    };
    assert_eq!(json().list("own_pages"), []);
    keep(&allocator, 1000);
    place(&allocator, 1000);
    let report = json();
    let [own] = report.list("own_pages") else { panic!("{report:?}") };
    assert_eq!((own.get("serves"), own.number("in_use_bytes")), (&Json::Text("persistent".to_owned()), 1000));
    assert_eq!((own.number("slices"), report.get("allocator").number("in_use_bytes")), (1, 2000));
    assert_eq!(report.list("pools").len(), 1);
}

// ---- when they go back

/// Pages go back by age, the persistent pool excepted.
#[test]
fn persistent_slices_that_are_free_do_not_age() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None).with_dealloc_period(Some(10))]);
    let slice = leave(&allocator, M);
    touch(&allocator, 2 * M);
    (0..1000).for_each(|_| {
        touch(&allocator, 100);
    });
    assert_eq!((device.is_out(slice.memory), device.bytes()), (true, M + 128));
    // They count as allocations all the same.
    touch(&allocator, 2 * M);
    (0..20).for_each(|_| {
        leave(&allocator, M);
    });
    assert_eq!(device.bytes(), M);
}

/// A floor is about the pools.
#[test]
fn a_trim_neither_takes_nor_counts_persistent_slices() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    leave(&allocator, 5 * M);
    keep(&allocator, 3 * M);
    let slices = [M, M, M].map(|size| place(&allocator, size));
    slices.iter().for_each(|slice| allocator.free(slice.id).unwrap());
    allocator.trim(M).unwrap();
    assert_eq!(device.bytes(), 5 * M + 3 * M + M);
    allocator.cleanup().unwrap();
    assert_eq!(device.bytes(), 3 * M);
    // Again and again costs nothing.
    let calls = device.calls();
    allocator.cleanup().unwrap();
    assert_eq!(device.calls(), calls);
    assert_held(&allocator, &device);
    allocator.close(LiveSlices::Free).unwrap();
}

/// Of the ladder, the persistent pool is no rung.
#[test]
fn persistent_slices_do_not_go_back_to_make_room_for_others() {
    let device = LedgerDevice::new();
    let by_bytes = options().with_max_bytes(Some(4 * M));
    let by_pages = options().with_max_pages(Some(1));
    for (options, heap) in [(options(), 4 * M), (by_bytes, u64::MAX), (by_pages, u64::MAX)] {
        device.limit_to(heap);
        let allocator = Allocator::try_new(&device, &[direct(None)], options).unwrap();
        let slice = leave(&allocator, 3 * M);
        for request in [Request::new(2 * M), request(2 * M)] {
            let refused = allocator.allocate(&request);
            let short = matches!(
                refused,
                Err(Error::OutOfDeviceMemory { size: 2_097_152, code: NONE_LEFT }
                    | Error::BudgetExceeded { size: 2_097_152, limit: 4_194_304, reserved: 3_145_728 }
                    | Error::PageCountExceeded { limit: 1, .. })
            );
            assert!(short, "{refused:?}");
            assert!(device.is_out(slice.memory));
        }
        allocator.cleanup().unwrap();
        assert!(allocator.allocate(&request(2 * M)).is_ok());
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// But others go for them.
#[test]
fn pages_that_hold_nothing_go_back_to_make_room_for_persistent_slices() {
    let device = LedgerDevice::new();
    device.limit_to(4 * M);
    let allocator = over(&device, &[sliced(2 * M, 2 * M, None)]);
    touch(&allocator, 100);
    assert_eq!(keep(&allocator, 3 * M).size, 3 * M);
    assert_eq!(device.bytes(), 3 * M);
    assert_held(&allocator, &device);
    allocator.close(LiveSlices::Free).unwrap();
}

/// Limits count them, and the pressure of others does not move them.
#[test]
fn persistent_slices_count_in_limits_and_do_not_give_way_to_others_of_a_budget() {
    let budget = Budget::try_new(HostMemory::global(), LockKind::spin(), Some(6 * M), None).unwrap();
    let device = LedgerDevice::new();
    let make = || Allocator::try_new(&device, &[direct(None)], options().with_budget(&budget)).unwrap();
    let (one, other) = (make(), make());
    leave(&one, 3 * M);
    touch(&one, 2 * M);
    assert_eq!((budget.statistics().bytes, budget.statistics().pages), (5 * M, 2));
    let refused = Error::BudgetExceeded { size: 4 * M, limit: 6 * M, reserved: 5 * M };
    assert_eq!(other.allocate(&request(4 * M)), Err(refused));
    // At its next calls the first gives what it may, also what only then becomes idle.
    touch(&one, 32);
    assert_eq!((persistent(&one).unwrap().reserved, one.pool_statistics(0).unwrap().pages), (3 * M, 0));
    assert_eq!(keep(&other, 2 * M).size, 2 * M);
    one.cleanup().unwrap();
    assert_eq!(budget.statistics().bytes, 2 * M);
    drop(other);
    assert_eq!(budget.statistics().bytes, 0);
}

/// A device that refuses.
#[test]
fn a_persistent_page_that_is_not_taken_back_is_stuck_until_the_next_trim() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    leave(&allocator, M);
    device.keep_everything(true);
    let refused = Err(Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT });
    assert_eq!(allocator.cleanup(), refused);
    assert_eq!((persistent(&allocator).unwrap().stuck, device.deallocate_refused()), (M, 1));
    assert_held(&allocator, &device);
    assert_eq!(allocator.trim(u64::MAX), refused);
    device.keep_everything(false);
    allocator.trim(u64::MAX).unwrap();
    assert_eq!((persistent(&allocator).unwrap().stuck, device.bytes()), (0, 0));
    assert_held(&allocator, &device);
}

/// Destroy with live slices.
#[test]
fn an_allocator_with_live_persistent_slices_is_busy() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    let slice = keep(&allocator, 1000);
    leave(&allocator, 2000);
    let busy = Error::Busy { live: 1, pending: 0, in_use: 1000, in_flight: 0 };
    let Err((allocator, error)) = allocator.destroy() else { panic!("a live slice was given back") };
    assert_eq!((error, allocator.get(slice.id)), (busy, Ok(slice)));
    allocator.free(slice.id).unwrap();
    assert!(allocator.destroy().is_ok());
    assert_eq!(device.pages(), 0);
}

// ---- as any other slice

/// Handles name their pool.
#[test]
fn handles_of_persistent_slices_are_good_for_everything_here_and_foreign_elsewhere() {
    let device = LedgerDevice::new();
    let (allocator, other) = (over(&device, &[direct(None)]), over(&device, &[direct(None)]));
    let slice = keep(&allocator, 1000);
    assert_eq!(other.free(slice.id), Err(Error::ForeignHandle));
    keep(&other, 1000);
    assert_eq!(other.get(slice.id), Err(Error::ForeignHandle));
    assert_eq!(other.free(slice.id), Err(Error::ForeignHandle));

    assert_eq!(allocator.get(slice.id), Ok(slice));
    assert_eq!(allocator.try_resize(slice.id, 900), Ok(slice));
    assert_eq!(allocator.try_resize(slice.id, 1025), Err(Error::NoRoom { size: 1025, available: 1024 }));
    allocator.free_after(slice.id, &[Point { timeline: 1, value: 5 }]).unwrap();
    assert_eq!(persistent(&allocator).map(|it| (it.pending, it.slices_pending)), Some((1024, 1)));
    allocator.cleanup().unwrap();
    assert_eq!(device.bytes(), 2048, "it waits");
    allocator.collect(1, 5).unwrap();
    let again = keep(&allocator, 1000);
    assert_eq!(again.memory, slice.memory);
    let ordinary = place(&allocator, 100);
    allocator.free_many(&[ordinary.id, again.id]).unwrap();
    assert_eq!(allocator.free_many(&[again.id]).unwrap_err().error, Error::StaleHandle);
    assert_eq!(allocator.statistics().slices, 0);
    other.close(LiveSlices::Free).unwrap();
}

/// None or all.
#[test]
fn a_batch_that_is_refused_leaves_no_persistent_page_behind() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(M, M, None)]);
    for first in [true, false] {
        if !first {
            leave(&allocator, 3000);
        }
        let before = State::of(&allocator);
        let requests = [request(1000), Request::new(1000), request(3000), request(u64::MAX)];
        let refused = allocator.allocate_many(&requests).unwrap_err();
        assert_eq!((refused.index, refused.error), (3, Error::TooLarge { size: u64::MAX, limit: 128 * M }));
        assert_eq!(State::of(&allocator), before);
        assert_held(&allocator, &device);
    }
    let served = allocator.allocate_many(&[request(1000), request(3000), request(1000)]).unwrap();
    assert_eq!((served.len(), device.bytes()), (3, 1024 + 3072 + 1024));
    allocator.close(LiveSlices::Free).unwrap();
}

/// What has been completed is the allocator's knowledge; that the pool comes later makes no difference.
#[test]
fn what_a_timeline_has_completed_is_known_to_the_first_persistent_slice() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(M, M, None)]);
    allocator.collect(3, 10).unwrap();
    for slice in [place(&allocator, 1000), keep(&allocator, 1000)] {
        allocator.free_after(slice.id, &[Point { timeline: 3, value: 10 }]).unwrap();
        assert_eq!(allocator.statistics().slices_pending, 0, "the point had been passed");
    }
}

// ---- the first of them

/// Whoever is first makes the pool.
#[test]
fn threads_that_ask_for_the_first_persistent_slice_at_once_share_one_pool() {
    let host = HostLedger::new();
    for _ in 0..200 {
        let device = LedgerDevice::new();
        let options = options().with_memory(host.memory());
        let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options).unwrap();
        let together = Meeting::of(4);
        let slices: Vec<_> = thread::scope(|scope| {
            let first = || {
                together.wait();
                keep(&allocator, 1000)
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(first)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let pages: HashSet<_> = slices.iter().map(|slice| slice.memory).collect();
        assert_eq!((pages.len(), persistent(&allocator).unwrap().slices), (4, 4));
        assert_held(&allocator, &device);
        slices.iter().for_each(|slice| allocator.free(slice.id).unwrap());
        assert!(allocator.destroy().is_ok());
        host.assert_all_returned();
    }
}

/// Host memory fails at each allocation for the first, once and from then on.
#[test]
fn a_first_persistent_slice_that_host_memory_fails_changes_nothing_and_can_be_tried_again() {
    for for_ever in [false, true] {
        let mut failures = 0;
        for k in 1.. {
            let host = HostLedger::new();
            let device = LedgerDevice::new();
            let options = options().with_memory(host.memory());
            let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options).unwrap();
            let before = State::of(&allocator);
            if for_ever {
                host.fail_from(k);
            } else {
                host.fail_once(k);
            }
            let answer = allocator.allocate(&request(1000));
            let hit = host.refused() != 0;
            host.stop_failing();
            if hit && answer.is_err() {
                failures += 1;
                assert!(matches!(answer, Err(Error::OutOfHostMemory { bytes: 1.. })), "{k}: {answer:?}");
                assert_eq!((State::of(&allocator), device.calls()), (before, 0), "{k}");
                keep(&allocator, 1000);
            }
            assert_eq!(device.pages(), 1, "{k}");
            assert_held(&allocator, &device);
            allocator.close(LiveSlices::Free).unwrap();
            drop(allocator);
            host.assert_all_returned();
            if !hit {
                break;
            }
            assert!(answer.is_err(), "{k}");
        }
        // The pool, its bins and nodes, the page's record, the index of sizes, the ledger.
        assert!(failures >= 5, "{failures}");
    }
}
