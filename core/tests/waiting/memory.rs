//! Slices that wait for the device: many at once, all or none; and host memory that runs out.

use crate::common::M;
use crate::common::books::Snapshot;
use crate::common::devices::LedgerDevice;
use crate::common::host::HostLedger;
use crate::common::lock::{self, WatchedLock};
use crate::common::pools::{KINDS, direct, exclusive, options, over, place, sliced};
use crate::common::waiting::{assert_agree, points, waiting};
use slicepool_core::{Allocator, BatchError, Error, Point, Request, Slice, SliceId};

const SIZE: u64 = 1 << 14;

/// Slices of two pools in turn.
fn slices_of_two_pools(allocator: &Allocator<&LedgerDevice>, count: u64) -> Vec<Slice> {
    let in_pool = |i: u64| Request::new(1 + i).in_pool((i % 7 == 0).into());
    (0..count).map(|i| allocator.allocate(&in_pool(i)).unwrap()).collect()
}

fn ids(slices: &[Slice]) -> Vec<SliceId> {
    slices.iter().map(|slice| slice.id).collect()
}

// ---- many at once

/// Many slices wait for the same, and go together.
#[test]
fn many_slices_that_were_freed_together_wait_together() {
    for given in [vec![(1, 5)], vec![(1, 5), (2, 7), (1, 3)], vec![]] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[sliced(4096, 4096, None), exclusive(M)]);
        let slices = slices_of_two_pools(&allocator, 300);
        allocator.free_after_many(&ids(&slices), &points(&given)).unwrap();
        let all = if given.is_empty() { 0 } else { 300 };
        assert_eq!((waiting(&allocator), allocator.statistics().slices), (all, 0));
        assert_agree(&allocator, &device);
        for slice in &slices {
            assert_eq!(allocator.free(slice.id), Err(Error::StaleHandle));
        }
        if given.len() > 1 {
            allocator.collect(2, 7).unwrap();
            assert_eq!(waiting(&allocator), all);
        }
        allocator.collect(1, 4).unwrap();
        assert_eq!(waiting(&allocator), all);
        allocator.collect(1, 5).unwrap();
        assert_eq!((waiting(&allocator), allocator.statistics().in_use), (0, 0));
        assert_agree(&allocator, &device);
    }
}

/// One bad handle at any place, or one that occurs twice: none is freed, and nothing is changed.
#[test]
fn freeing_many_with_one_wrong_handle_lets_none_of_them_wait() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(4096, 4096, None), exclusive(M)]);
    let other = over(&device, &[direct(None)]);
    let foreign = place(&other, 1).id;
    let stale = place(&allocator, 1).id;
    allocator.free(stale).unwrap();
    let pending = place(&allocator, 1).id;
    allocator.free_after(pending, &[Point::new(1, 50)]).unwrap();
    let slices = slices_of_two_pools(&allocator, 150);
    let good = ids(&slices);
    let before = Snapshot::of(&allocator);
    for given in [vec![(1, 60)], vec![(1, 60), (2, 1)], vec![(3, 1), (4, 1), (5, 1)]] {
        for place in 0..=150 {
            let wrong = [
                (stale, Error::StaleHandle),
                (pending, Error::StaleHandle),
                (foreign, Error::ForeignHandle),
                (good[40], Error::StaleHandle),
            ];
            for (id, error) in wrong {
                let mut ids = good.clone();
                ids.insert(place, id);
                // Of two that are equal the second is refused.
                let index = if id == good[40] && place <= 40 { 41 } else { place as u32 };
                let refused = allocator.free_after_many(&ids, &points(&given));
                assert_eq!(refused, Err(BatchError { index, error }), "{place}");
            }
        }
        assert_eq!(Snapshot::of(&allocator), before);
        assert_eq!(allocator.check(), Ok(()));
    }
    for slice in &slices {
        assert_eq!(allocator.get(slice.id), Ok(*slice));
    }
    allocator.collect(1, 50).unwrap();
    allocator.free_after_many(&good, &points(&[(1, 60)])).unwrap();
    assert_eq!(waiting(&allocator), 150);
}

/// What was set aside for slices that were refused in the end serves others.
#[test]
fn refused_batches_cost_nothing_in_the_long_run() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        let stale = place(&allocator, SIZE).id;
        allocator.free(stale).unwrap();
        let mut batch: Vec<_> = (0..8).map(|_| place(&allocator, SIZE).id).collect();
        batch.push(stale);
        let mut metadata = 0;
        for round in 0..1000 {
            let error = BatchError { index: 8, error: Error::StaleHandle };
            assert_eq!(allocator.free_after_many(&batch, &points(&[(1, 1), (2, 1), (3, 1)])), Err(error));
            if round == 0 {
                metadata = allocator.statistics().metadata;
            }
        }
        assert_eq!(allocator.statistics().metadata, metadata, "{name}");
        assert_agree(&allocator, &device);
    }
}

/// Handles that are looked up one by one, some of which are to be skipped.
#[test]
fn handles_to_skip_are_skipped() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(4096, 4096, None), exclusive(M)]);
    let slices = slices_of_two_pools(&allocator, 200);
    let id = |i: u32| (i % 3 != 0).then(|| slices[i as usize].id);
    allocator.free_after_each(200, &id, &[Point::new(1, 5)]).unwrap();
    assert_eq!(waiting(&allocator), 133);
    for (i, slice) in slices.iter().enumerate() {
        assert_eq!(allocator.get(slice.id).is_ok(), i % 3 == 0);
    }
    assert_eq!(allocator.free_after_each(200, &|_| None, &[Point::new(1, 5)]), Ok(()));
    assert_agree(&allocator, &device);
}

// ---- host memory

/// Lets every k-th host allocation fail, once or from then on, until there are no more: `act` says whether one has failed.
/// How many there were.
fn with_every_failure(act: impl Fn(&HostLedger, u64, bool) -> bool) -> u64 {
    let mut most = 0;
    for from_then_on in [false, true] {
        let needs_no_more = |&k: &u64| !act(&HostLedger::new(), k, from_then_on);
        most = (1..).find(needs_no_more).unwrap() - 1;
    }
    most
}

fn fail(host: &HostLedger, k: u64, from_then_on: bool) {
    if from_then_on { host.fail_from(k) } else { host.fail_once(k) }
}

/// Lets host memory fail from now on, and uses up what the pools have left: timelines that are made up take it.
fn use_up(allocator: &Allocator<&LedgerDevice>, host: &HostLedger) {
    host.fail_from(1);
    let left = (1000..).find(|&timeline| allocator.collect(timeline, 1).is_err()).unwrap();
    // That was the first pool which has nothing left.
    for timeline in left..left + 4000 {
        let _ = allocator.collect(timeline, 1);
    }
}

/// Of several points the others have been passed.
#[test]
fn slices_of_a_batch_that_wait_for_one_of_several_points_need_no_host_memory() {
    let (host, device) = (HostLedger::new(), LedgerDevice::new());
    let options = options().with_memory(host.memory());
    let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options).unwrap();
    let slices: Vec<_> = (0..100).map(|_| place(&allocator, 1000)).collect();
    allocator.collect(1, 5).unwrap();
    allocator.collect(2, 5).unwrap();
    use_up(&allocator, &host);
    allocator.free_after_many(&ids(&slices), &points(&[(1, 5), (2, 6)])).unwrap();
    assert_eq!(waiting(&allocator), 100);
    allocator.collect(2, 6).unwrap();
    assert_eq!(waiting(&allocator), 0);
    assert_agree(&allocator, &device);
}

/// A timeline is made known when the slices are claimed: what others use up meanwhile is not lacking when they are freed.
#[test]
fn host_memory_that_runs_out_between_the_steps_of_a_batch_is_not_lacking() {
    // As long as the program: what runs before a lock has no lifetime.
    let lock: &'static WatchedLock = Box::leak(Box::default());
    let host: &'static HostLedger = Box::leak(Box::new(HostLedger::new()));
    let device: &'static LedgerDevice = Box::leak(Box::new(LedgerDevice::new()));
    let options = options().with_memory(host.memory()).with_lock(lock.kind());
    let allocator = Allocator::try_new(device, &[sliced(M, M, None)], options).unwrap();
    let allocator: &'static Allocator<_> = Box::leak(Box::new(allocator));
    let slices: Vec<_> = (0..10).map(|_| place(allocator, 1000)).collect();
    // The first lock is that of the claim, the second that of the free.
    lock::before_next(move || lock::before_next(move || use_up(allocator, host)));
    assert_eq!(allocator.free_after_many(&ids(&slices), &points(&[(7, 5)])), Ok(()));
    assert_eq!((waiting(allocator), host.refused() != 0), (10, true));
    allocator.collect(7, 5).unwrap();
    assert_eq!(waiting(allocator), 0);
    lock.assert_used_rightly();
}

/// If there is no memory for the points, the slice is live, and nothing has changed.
#[test]
fn a_slice_for_whose_points_there_is_no_host_memory_stays_live() {
    for (name, pool) in KINDS {
        let tried = with_every_failure(|host, k, from_then_on| {
            let device = LedgerDevice::new();
            let options = options().with_memory(host.memory());
            let allocator = Allocator::try_new(&device, std::slice::from_ref(&pool), options).unwrap();
            let slice = place(&allocator, SIZE);
            let all: Vec<_> = (0..64).map(|i| Point::new(i, 5)).collect();
            let before = Snapshot::of(&allocator);
            fail(host, k, from_then_on);
            let freed = allocator.free_after(slice.id, &all);
            host.stop_failing();
            let failed = host.refused() != 0;
            if failed {
                assert!(matches!(freed, Err(Error::OutOfHostMemory { bytes: 1.. })), "{name}, {k}: {freed:?}");
                assert_eq!((Snapshot::of(&allocator), allocator.get(slice.id)), (before, Ok(slice)), "{name}, {k}");
                assert_eq!(allocator.check(), Ok(()));
                allocator.free_after(slice.id, &all).unwrap();
            }
            assert_eq!(waiting(&allocator), 1, "{name}, {k}");
            for point in &all {
                assert_eq!(waiting(&allocator), 1);
                allocator.collect(point.timeline, point.value).unwrap();
            }
            assert_eq!(waiting(&allocator), 0, "{name}, {k}");
            assert_agree(&allocator, &device);
            failed
        });
        assert!(tried != 0, "{name}: no host memory was needed");
    }
}

/// The same for many slices, which stay live all of them.
#[test]
fn many_slices_for_whose_points_there_is_no_host_memory_stay_live() {
    for several in [false, true] {
        let tried = with_every_failure(|host, k, from_then_on| {
            let device = LedgerDevice::new();
            let pools = [sliced(4096, 4096, None), exclusive(M)];
            let allocator = Allocator::try_new(&device, &pools, options().with_memory(host.memory())).unwrap();
            let slices = slices_of_two_pools(&allocator, 300);
            use_up(&allocator, host);
            host.stop_failing();
            let refused = host.refused();
            let count = if several { 5 } else { 1 };
            let points: Vec<_> = (0..count).map(|i| Point::new(i, 5)).collect();
            let before = Snapshot::of(&allocator);
            fail(host, k, from_then_on);
            let freed = allocator.free_after_many(&ids(&slices), &points);
            host.stop_failing();
            let failed = host.refused() != refused;
            if failed {
                assert!(
                    matches!(freed, Err(BatchError { error: Error::OutOfHostMemory { .. }, .. })),
                    "{k}: {freed:?}"
                );
                assert_eq!((Snapshot::of(&allocator), allocator.check()), (before, Ok(())), "{k}");
                for slice in &slices {
                    assert_eq!(allocator.get(slice.id), Ok(*slice));
                }
                allocator.free_after_many(&ids(&slices), &points).unwrap();
            }
            assert_eq!(waiting(&allocator), 300, "{k}");
            for i in 0..count {
                allocator.collect(i, 5).unwrap();
            }
            assert_eq!((waiting(&allocator), allocator.statistics().slices), (0, 0), "{k}");
            assert_agree(&allocator, &device);
            failed
        });
        assert!(tried != 0, "no host memory was needed");
    }
}

/// One point on a timeline that the pool knows needs no memory, whatever the number of slices that wait.
#[test]
fn one_point_on_a_known_timeline_never_fails() {
    for (name, pool) in KINDS {
        let host = HostLedger::new();
        let device = LedgerDevice::new();
        let allocator = Allocator::try_new(&device, &[pool], options().with_memory(host.memory())).unwrap();
        let mut slices: Vec<_> = (0..40).map(|_| place(&allocator, SIZE)).collect();
        let first = slices.pop().unwrap();
        allocator.free_after(first.id, &[Point::new(3, 1)]).unwrap();
        use_up(&allocator, &host);
        let calls = host.calls();
        for (value, id) in (2..).zip(ids(&slices)) {
            // Points that are passed need none either, nor do those that do not count.
            let waits: &[_] = if value % 2 == 0 { &[(3, value)] } else { &[(3, value), (3, 0), (3, value - 1)] };
            allocator.free_after(id, &points(waits)).unwrap();
        }
        assert_eq!((host.calls(), allocator.statistics().slices), (calls, 0), "{name}");
        for value in 1..=3 {
            allocator.collect(3, value).unwrap();
        }
        allocator.collect(3, u64::MAX).unwrap();
        allocator.timeline_forget(3).unwrap();
        assert_eq!((host.calls(), waiting(&allocator)), (calls, 0), "{name}");
        host.stop_failing();
        assert_agree(&allocator, &device);
    }
}

/// An allocator without host memory for anything, which knows that timelines 1 and 2 have completed 9; and two slices.
fn without_memory<'a>(device: &'a LedgerDevice, host: &'a HostLedger) -> (Allocator<&'a LedgerDevice>, [SliceId; 2]) {
    let options = options().with_memory(host.memory());
    let allocator = Allocator::try_new(device, &[sliced(M, M, None)], options).unwrap();
    let slices = [0, 1].map(|_| place(&allocator, SIZE).id);
    allocator.collect(1, 9).unwrap();
    allocator.collect(2, 9).unwrap();
    use_up(&allocator, host);
    let refused = allocator.free_after(slices[0], &[Point::new(9, 1)]);
    assert!(matches!(refused, Err(Error::OutOfHostMemory { .. })), "{refused:?}");
    (allocator, slices)
}

/// What there is to wait for has been passed already: that is a plain free, which needs no memory.
#[test]
fn points_that_have_been_passed_need_no_memory() {
    let (host, device) = (HostLedger::new(), LedgerDevice::new());
    let (allocator, [one, two]) = without_memory(&device, &host);
    assert_eq!(allocator.free_after(one, &points(&[(1, 9), (2, 3)])), Ok(()));
    assert_eq!(allocator.free_after_many(&[two], &points(&[(1, 9)])), Ok(()));
    assert_eq!((waiting(&allocator), allocator.statistics().slices), (0, 0));
}

/// The same for many slices and several points.
#[test]
fn points_that_have_been_passed_need_no_memory_for_many_slices_either() {
    let (host, device) = (HostLedger::new(), LedgerDevice::new());
    let (allocator, slices) = without_memory(&device, &host);
    assert_eq!(allocator.free_after_many(&slices, &points(&[(1, 9), (2, 3)])), Ok(()));
    assert_eq!((waiting(&allocator), allocator.statistics().slices), (0, 0));
}

/// Nor does 0, which has been passed on any timeline, known or not.
#[test]
fn waiting_for_0_needs_no_memory() {
    let (host, device) = (HostLedger::new(), LedgerDevice::new());
    let (allocator, [one, two]) = without_memory(&device, &host);
    assert_eq!(allocator.free_after(one, &[Point::new(9, 0)]), Ok(()));
    assert_eq!(allocator.free_after_many(&[two], &[Point::new(9, 0)]), Ok(()));
    assert_eq!((waiting(&allocator), allocator.statistics().slices), (0, 0));
}

/// If there is no memory to remember the value, what is due is released all the same, in every pool.
#[test]
fn what_is_due_is_released_though_the_value_cannot_be_remembered() {
    let host = HostLedger::new();
    let device = LedgerDevice::new();
    let pools = [exclusive(M), sliced(M, M, None), direct(None)];
    let allocator = Allocator::try_new(&device, &pools, options().with_memory(host.memory())).unwrap();
    for pool in [1, 2] {
        let id = allocator.allocate(&Request::new(SIZE).in_pool(pool)).unwrap().id;
        allocator.free_after(id, &[Point::new(1, 5)]).unwrap();
    }
    use_up(&allocator, &host);
    let refused = allocator.collect(1, 5);
    assert!(matches!(refused, Err(Error::OutOfHostMemory { .. })), "the first pool does not know the timeline");
    assert_eq!(waiting(&allocator), 0);
    host.stop_failing();
    allocator.collect(1, 5).unwrap();
    let id = allocator.allocate(&Request::new(SIZE).in_pool(0)).unwrap().id;
    allocator.free_after(id, &[Point::new(1, 5)]).unwrap();
    assert_eq!(waiting(&allocator), 0);
    assert_agree(&allocator, &device);
}

/// Waiting slices cost no host memory but for their points, which are used again.
#[test]
fn waiting_costs_nothing_in_the_long_run() {
    for (name, pool) in KINDS {
        let host = HostLedger::new();
        let device = LedgerDevice::new();
        let allocator = Allocator::try_new(&device, &[pool], options().with_memory(host.memory())).unwrap();
        let mut bytes = 0;
        for round in 0..2000u64 {
            for i in 0..8 {
                let slice = place(&allocator, SIZE);
                let timelines = points(&[(1, round), (2, round + i), (3, round)]);
                allocator.free_after(slice.id, &timelines[..1 + (i % 3) as usize]).unwrap();
            }
            for timeline in 1..=3 {
                allocator.collect(timeline, round.saturating_sub(u64::from(timeline))).unwrap();
            }
            if round == 100 {
                bytes = host.bytes();
            }
        }
        assert_eq!(host.bytes(), bytes, "{name}");
        assert!(waiting(&allocator) < 100, "{name}");
        assert_agree(&allocator, &device);
    }
}
