//! Other pools in place of those an allocator has.

use crate::common::devices::{Gate, KEPT, LedgerDevice, NONE_LEFT};
use crate::common::host::HostLedger;
use crate::common::pools::{KINDS, allocate, direct, exclusive, free_all, options, over, place, sliced, touch};
use crate::common::reentrant::{Call, endlessly_reentrant};
use crate::common::sums::{State, assert_held};
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Budget, DeviceFault, Error, HostMemory, LiveSlices, LockKind, PERSISTENT_POOL, Point,
    PoolOptions, Request, Slice,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// What refused pools look like: each one's configuration.
fn configuration(allocator: &Allocator<&LedgerDevice>) -> Vec<PoolOptions> {
    (0..allocator.pool_count()).map(|pool| allocator.pool_report(pool).unwrap().options).collect()
}

/// `install_pools` must refuse with `error` and change nothing at all.
fn refused(allocator: &mut Allocator<&LedgerDevice>, pools: &[PoolOptions], error: Error) {
    let (before, configured) = (State::of(allocator), configuration(allocator));
    let figures = allocator.statistics();
    assert_eq!(allocator.install_pools(pools), Err(error));
    assert_eq!((State::of(allocator), configuration(allocator)), (before, configured));
    assert_eq!(allocator.statistics(), figures);
}

/// Item 12.
#[test]
fn pools_that_are_in_use_stay_and_those_that_hold_nothing_are_replaced() {
    let device = LedgerDevice::new();
    let mut allocator = over(&device, &[sliced(M, M, None)]);
    let slice = place(&allocator, M);
    let larger = [sliced(4 * M, 4 * M, Some(8 * M))];
    refused(&mut allocator, &larger, Error::PoolsInUse { bytes: M });
    assert_eq!(allocator.get(slice.id), Ok(slice));
    allocator.free(slice.id).unwrap();
    allocator.install_pools(&larger).unwrap();
    assert_eq!((device.pages(), configuration(&allocator)[0].pool_type.clone()), (0, larger[0].pool_type.clone()));
    let slice = place(&allocator, 2 * M);
    assert_eq!((slice.size, device.bytes()), (2 * M, 4 * M));
    assert_held(&allocator, &device);
    allocator.free(slice.id).unwrap();
}

/// Slices of no bytes, and those that wait, count.
#[test]
fn the_bytes_of_pools_in_use_are_those_of_live_and_waiting_slices_as_they_lie() {
    let device = LedgerDevice::new();
    let mut allocator = over(&device, &[exclusive(0), sliced(M, M, None)]);
    let new = [direct(None)];
    let nothing = allocator.allocate(&Request::new(0)).unwrap();
    assert_eq!(allocator.statistics().in_use, 0);
    refused(&mut allocator, &new, Error::PoolsInUse { bytes: 32 });
    let slice = place(&allocator, 100);
    refused(&mut allocator, &new, Error::PoolsInUse { bytes: 32 + 128 });
    allocator.free_after(slice.id, &[Point { timeline: 7, value: 1 }]).unwrap();
    refused(&mut allocator, &new, Error::PoolsInUse { bytes: 32 + 128 });
    allocator.free(nothing.id).unwrap();
    refused(&mut allocator, &new, Error::PoolsInUse { bytes: 128 });
    allocator.collect(7, 1).unwrap();
    allocator.install_pools(&new).unwrap();
    assert_eq!((device.pages(), allocator.pool_count()), (0, 1));
}

/// As at creation.
#[test]
fn pools_that_cannot_work_are_refused_and_the_old_ones_stay() {
    let device = LedgerDevice::new();
    let mut allocator = over(&device, &[sliced(M, M, None)]);
    // An idle page is no reason to lose it.
    touch(&allocator, 100);
    let refuse = |field, value| Error::InvalidArgument { field, value };
    let many = vec![direct(None); 257];
    let lists: [(&[PoolOptions], Error); 5] = [
        (&[], refuse(c"pools", 0)),
        (&many, refuse(c"pools", 257)),
        (&[sliced(0, 0, None)], refuse(c"page_size", 0)),
        (&[direct(None), sliced(M, M, None).with_granule(48)], refuse(c"granule", 48)),
        (&[sliced(256 * M, M, None)], refuse(c"page_size", 256 * M)),
    ];
    for (pools, error) in lists {
        refused(&mut allocator, pools, error);
    }
    assert_eq!((device.pages(), place(&allocator, 100).offset), (1, 0));
    assert_held(&allocator, &device);
}

/// The persistent pool stays.
#[test]
fn persistent_slices_are_not_in_the_way_and_stay_as_they_are() {
    let budget = Budget::try_new(HostMemory::global(), LockKind::spin(), Some(9 * M), None).unwrap();
    let device = LedgerDevice::new();
    let limited = options().with_budget(&budget);
    let mut allocator = Allocator::try_new(&device, &[sliced(M, M, None)], limited).unwrap();
    let persistent = |size| allocator.allocate(&Request::new(size).persistent()).unwrap();
    let (live, idle) = (persistent(2 * M), persistent(3 * M));
    allocator.free(idle.id).unwrap();
    touch(&allocator, 100);
    let figures = allocator.pool_statistics(PERSISTENT_POOL as usize);
    allocator.install_pools(&[direct(None), sliced(M, M, None)]).unwrap();
    assert_eq!(allocator.pool_statistics(PERSISTENT_POOL as usize), figures);
    assert_eq!((allocator.get(live.id), device.bytes(), budget.statistics().bytes), (Ok(live), 5 * M, 5 * M));
    // The one that is free serves again.
    let again = allocator.allocate(&Request::new(3 * M).persistent()).unwrap();
    assert_eq!((again.memory, allocator.get(idle.id)), (idle.memory, Err(Error::StaleHandle)));
    assert_held(&allocator, &device);
    allocator.free(live.id).unwrap();
    allocator.cleanup().unwrap();
    assert_eq!(device.bytes(), 3 * M);
}

/// Their tags are not those of the new pools.
#[test]
fn handles_of_the_old_pools_are_foreign_from_then_on() {
    let device = LedgerDevice::new();
    let mut allocator = over(&device, &[sliced(M, M, None), direct(None)]);
    let old: Vec<_> = [0, 1].map(|pool| allocator.allocate(&Request::new(100).in_pool(pool)).unwrap()).into();
    free_all(&allocator, &old);
    assert_eq!(allocator.free(old[0].id), Err(Error::StaleHandle));
    allocator.install_pools(&[sliced(M, M, None), direct(None)]).unwrap();
    let new: Vec<_> = [0, 1].map(|pool| allocator.allocate(&Request::new(100).in_pool(pool)).unwrap()).into();
    for Slice { id, .. } in old {
        assert_eq!(allocator.free(id), Err(Error::ForeignHandle));
        assert_eq!(allocator.get(id), Err(Error::ForeignHandle));
        assert_eq!(allocator.resolve(id), Err(Error::ForeignHandle));
        assert_eq!(allocator.try_resize(id, 50), Err(Error::ForeignHandle));
        assert_eq!(allocator.free_after(id, &[]), Err(Error::ForeignHandle));
        assert_eq!(allocator.free_many(&[new[0].id, id]).unwrap_err().error, Error::ForeignHandle);
    }
    free_all(&allocator, &new);
}

/// Resets peaks.
#[test]
fn figures_and_peaks_begin_anew_but_for_persistent_slices() {
    let device = LedgerDevice::new();
    let mut allocator = over(&device, &[sliced(M, M, None)]);
    let persistent = allocator.allocate(&Request::new(100 * K).persistent()).unwrap();
    let slices: Vec<_> = (0..5).map(|_| place(&allocator, M)).collect();
    let peaks = |allocator: &Allocator<&LedgerDevice>| {
        let figures = allocator.statistics();
        (figures.reserved_peak, figures.pages_peak, figures.in_use_peak, figures.largest_allocation)
    };
    assert_eq!(peaks(&allocator), (5 * M + 100 * K, 6, 5 * M + 100 * K, M));
    free_all(&allocator, &slices);
    allocator.install_pools(&[sliced(2 * M, 2 * M, None)]).unwrap();
    assert_eq!(peaks(&allocator), (100 * K, 1, 100 * K, 100 * K));
    let (pool, all) = (allocator.pool_statistics(0).unwrap(), allocator.statistics());
    assert_eq!((pool.pages_peak, pool.reserved_peak, pool.in_use_peak, pool.largest_allocation), (0, 0, 0, 0));
    assert_eq!((pool.device_allocations, pool.device_deallocations), (0, 0));
    assert_eq!((all.device_allocations, all.device_deallocations), (1, 0));
    place(&allocator, M);
    assert_eq!(peaks(&allocator), (2 * M + 100 * K, 2, M + 100 * K, M));
    allocator.free(persistent.id).unwrap();
}

/// Ageing counts anew, too.
#[test]
fn pages_of_new_pools_age_by_their_own_period() {
    let device = LedgerDevice::new();
    let ageing = |period| direct(None).with_dealloc_period(period);
    // How many allocations it takes until a page that was never used again goes, of a thousand.
    let lifetime = |allocator: &Allocator<&LedgerDevice>| {
        let busy = allocate(allocator, 64);
        touch(allocator, M);
        let lifetime = (3..=1000).find(|_| {
            touch(allocator, 64);
            allocator.statistics().device_deallocations != 0
        });
        allocator.free(busy).unwrap();
        lifetime
    };
    let mut allocator = over(&device, &[ageing(None)]);
    assert_eq!(lifetime(&allocator), None);
    for period in [100, 1000, 25] {
        allocator.install_pools(&[ageing(Some(period))]).unwrap();
        assert_eq!(device.pages(), 0);
        assert_eq!(lifetime(&allocator), Some(period / 5), "{period}");
    }
    allocator.install_pools(&[ageing(None)]).unwrap();
    assert_eq!(lifetime(&allocator), None);
}

/// The device is called for them once the new pools are in place, and its refusal undoes nothing.
#[test]
fn new_pools_have_their_least_pages_or_are_in_place_with_those_they_got() {
    let device = LedgerDevice::new();
    let mut allocator = over(&device, &[sliced(M, M, None)]);
    let pools = [sliced(M, M, None), sliced(4 * M, 4 * M, None).with_min_pages(3)];
    allocator.install_pools(&pools).unwrap();
    assert_eq!(device.pages(), 3);
    allocator.trim(0).unwrap();
    device.limit_to(8 * M);
    let refused = Error::OutOfDeviceMemory { size: 4 * M, code: NONE_LEFT };
    assert_eq!(allocator.install_pools(&pools), Err(refused));
    assert_eq!((allocator.pool_count(), device.pages(), allocator.statistics().pages_idle), (2, 2, 2));
    assert_eq!(allocator.check(), Ok(()));
    device.limit_to(u64::MAX);
    allocator.install_pools(&pools).unwrap();
    assert_eq!(device.pages(), 3);
}

/// What has been completed is the allocator's knowledge, not that of pools that come and go.
#[test]
fn what_a_timeline_has_completed_is_known_to_new_pools() {
    let device = LedgerDevice::new();
    let mut allocator = over(&device, &[sliced(M, M, None)]);
    allocator.collect(3, 10).unwrap();
    allocator.install_pools(&[sliced(M, M, None)]).unwrap();
    let slice = place(&allocator, 100);
    allocator.free_after(slice.id, &[Point { timeline: 3, value: 10 }]).unwrap();
    assert_eq!(allocator.statistics().slices_pending, 0, "the point had been passed");
}

/// A page that is not taken back.
#[test]
fn a_device_that_refuses_a_page_keeps_the_old_pools_until_it_takes_it() {
    let device = LedgerDevice::new();
    let mut allocator = over(&device, &[sliced(M, M, None), direct(None)]);
    let slices = [M, 100].map(|size| place(&allocator, size));
    free_all(&allocator, &slices);
    let configured = configuration(&allocator);
    device.keep_everything(true);
    let refusal = Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT };
    for _ in 0..2 {
        assert_eq!(allocator.install_pools(&[direct(None)]), Err(refusal));
        assert_eq!((configuration(&allocator), allocator.statistics().pages_stuck), (configured.clone(), 2));
        assert_held(&allocator, &device);
    }
    // As usable as before.
    let slice = place(&allocator, 100);
    allocator.free(slice.id).unwrap();
    device.keep_everything(false);
    allocator.install_pools(&[direct(None)]).unwrap();
    assert_eq!((allocator.pool_count(), device.pages(), allocator.statistics().reserved), (1, 0, 0));
}

/// A callback in flight is busy.
#[test]
fn pools_are_not_replaced_from_within_a_callback() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let allocator = endlessly_reentrant(&[sliced(M, M, None)], options(), move |allocator, _: Call| {
        let answer = allocator.prepare_pools(&[direct(None)]).map(drop);
        assert!(matches!(answer, Err(Error::Busy { in_flight: 1.., .. })), "{answer:?}");
        count.fetch_add(1, Ordering::Relaxed);
    });
    touch(&*allocator, 100);
    allocator.trim(0).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let slice = place(&*allocator, 100);
    let _ = allocator.walk(|_| {
        assert!(matches!(allocator.prepare_pools(&[direct(None)]).map(drop), Err(Error::Busy { .. })));
        ControlFlow::<()>::Continue(())
    });
    allocator.free(slice.id).unwrap();
    // What gives the pages back is a call in flight for those callbacks, too.
    assert!(allocator.prepare_pools(&[direct(None)]).is_ok());
    assert_eq!((asked.load(Ordering::Relaxed), allocator.statistics().pages), (4, 0));
}

/// A growth in flight is busy.
#[test]
fn pools_are_not_replaced_while_one_of_them_grows() {
    let (gate, reached, open) = Gate::new();
    let allocator = Allocator::try_new(gate, &[sliced(M, M, None)], AllocatorOptions::default()).unwrap();
    thread::scope(|scope| {
        let growing = scope.spawn(|| allocator.allocate(&Request::new(100)));
        reached.recv().unwrap();
        let answer = allocator.prepare_pools(&[direct(None)]).map(drop);
        assert_eq!(answer, Err(Error::Busy { live: 0, pending: 0, in_use: 0, in_flight: 1 }));
        open.send(()).unwrap();
        allocator.free(growing.join().unwrap().unwrap().id).unwrap();
    });
    assert!(allocator.prepare_pools(&[direct(None)]).is_ok());
}

/// In two parts: what happens in between.
#[test]
fn pools_that_are_used_again_after_the_first_part_are_not_replaced_in_the_second() {
    let device = LedgerDevice::new();
    let mut allocator = over(&device, &[sliced(M, M, None)]);
    let prepared = |allocator: &Allocator<&LedgerDevice>| allocator.prepare_pools(&[direct(None)]).unwrap();
    let new = prepared(&allocator);
    let slice = place(&allocator, 100);
    assert_eq!(allocator.replace_pools(new), Err(Error::PoolsInUse { bytes: 128 }));
    assert_eq!(allocator.get(slice.id), Ok(slice));
    allocator.free(slice.id).unwrap();
    let new = prepared(&allocator);
    // A page that holds nothing would be lost.
    touch(&allocator, 100);
    assert!(matches!(allocator.replace_pools(new), Err(Error::Busy { live: 0, .. })));
    assert_held(&allocator, &device);
    let new = prepared(&allocator);
    let calls = device.calls();
    allocator.replace_pools(new).unwrap();
    assert_eq!((device.calls(), device.pages()), (calls, 0));
    assert_eq!(place(&allocator, 100).size, 128);
}

/// Every kind in place of every other, with nothing left behind.
#[test]
fn pools_of_any_kind_take_the_place_of_any_others_and_leave_nothing_behind() {
    let host = HostLedger::new();
    let device = LedgerDevice::new();
    let with_books = options().with_memory(host.memory());
    let mut allocator = Allocator::try_new(&device, &[direct(None)], with_books.clone()).unwrap();
    let mut most = [0; 2];
    for round in 0..12 {
        for (name, pool) in KINDS {
            let slices: Vec<_> = (1..40).map(|i| place(&allocator, i * 1000)).collect();
            free_all(&allocator, &slices);
            allocator.install_pools(&[pool, exclusive(M)]).unwrap();
            assert_eq!(device.pages(), 0, "{name}");
            touch(&allocator, 5000);
            assert_held(&allocator, &device);
        }
        allocator.install_pools(&[direct(None)]).unwrap();
        let half = &mut most[round / 6];
        *half = host.bytes().max(*half);
    }
    assert!(most[1] <= most[0], "books of pools that are gone: {most:?}");
    allocator.close(LiveSlices::Refuse).unwrap();
    drop(allocator);
    // In a dry run it is the same without a call.
    let calls = device.calls();
    let mut dry = Allocator::try_new(&device, &[direct(None)], with_books.with_dry_run()).unwrap();
    touch(&dry, 1000);
    dry.install_pools(&[sliced(M, M, None)]).unwrap();
    touch(&dry, 1000);
    drop(dry);
    assert_eq!(device.calls(), calls);
}
