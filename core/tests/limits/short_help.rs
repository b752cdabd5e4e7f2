//! Memory is short: what the device is asked before a request is refused, and which error it is refused with.

use crate::common::M;
use crate::common::books::{Snapshot, assert_agree};
use crate::common::devices::{Asked, LoggedDevice, NONE_LEFT};
use crate::common::host::HostLedger;
use crate::common::pools::{KINDS, direct, exclusive, full, growing, options, sliced};
use slicepool_core::{
    Allocator, AllocatorOptions, Budget, DeviceError, DeviceFault, Error, HostMemory, LockKind, Point, PoolOptions,
    Request, Shortage, Slice, SliceId,
};
use std::sync::{Arc, Mutex};

type Short<'a> = Allocator<&'a LoggedDevice>;

fn over<'a>(device: &'a LoggedDevice, pools: &[PoolOptions]) -> Short<'a> {
    Allocator::try_new(device, pools, options()).unwrap()
}

fn place_in(allocator: &Short, size: u64, pool: u32) -> Slice {
    allocator.allocate(&Request::new(size).in_pool(pool)).unwrap()
}

/// The error of a device that has nothing left.
fn none_left(size: u64) -> Error {
    Error::OutOfDeviceMemory { size, code: NONE_LEFT }
}

/// How often help was asked for.
fn pleas(asked: &[Asked]) -> Vec<u32> {
    asked.iter().filter_map(|it| if let Asked::Help(attempt) = it { Some(*attempt) } else { None }).collect()
}

// ---- what timelines have completed

/// Scenario 48: for pools of every kind, on a device without memory.
#[test]
fn slices_that_the_device_is_done_with_serve_a_request_that_would_not_fit() {
    for (name, pool) in KINDS {
        let device = LoggedDevice::new();
        let allocator = over(&device, &[pool]);
        let request = Request::new(1 << 16);
        let live = allocator.allocate(&request).unwrap();
        let waiting = allocator.allocate(&request).unwrap();
        allocator.free_after(waiting.id, &[Point::new(1, 5)]).unwrap();
        device.ledger.limit_to(device.ledger.bytes());
        device.asked();
        // Not yet...
        device.complete(1, 4);
        assert_eq!(allocator.allocate(&request), Err(none_left(1 << 16)), "{name}");
        assert_eq!(device.asked(), [Asked::Completed(1), Asked::Page(1 << 16), Asked::Help(0)], "{name}");
        // ...but now.
        device.complete(1, 5);
        let served = allocator.allocate(&request).unwrap();
        assert_eq!((served.memory, served.offset), (waiting.memory, waiting.offset), "{name}");
        assert_eq!(device.asked(), [Asked::Completed(1)], "{name}: before a page is asked for");
        assert_eq!(allocator.get(live.id), Ok(live));
        assert_agree(&allocator, &device.ledger);
    }
}

/// Scenario 48: also where a limit or a cap is in the way, and without taking a page where there would be one.
#[test]
fn slices_that_the_device_is_done_with_are_used_before_anything_else_is_tried() {
    let two_pages = AllocatorOptions::default().with_max_pages(Some(2));
    let two_megabytes = AllocatorOptions::default().with_max_bytes(Some(2 * M));
    for (cap, options) in [
        (None, AllocatorOptions::default()),
        (Some(2 * M), AllocatorOptions::default()),
        (None, two_pages),
        (None, two_megabytes),
    ] {
        let device = LoggedDevice::new();
        let pool = PoolOptions::sliced_pages(M, M, cap);
        let allocator = Allocator::try_new(&device, &[pool], options).unwrap();
        let slices = [0, 0].map(|pool| place_in(&allocator, M, pool));
        allocator.free_after(slices[0].id, &[Point::new(1, 5), Point::new(2, 6)]).unwrap();
        device.complete(1, 5);
        device.complete(2, 6);
        device.asked();
        let served = place_in(&allocator, M, 0);
        assert_eq!(served.memory, slices[0].memory);
        let mut asked = device.asked();
        asked.sort_by_key(|it| format!("{it:?}"));
        assert_eq!(asked, [Asked::Completed(1), Asked::Completed(2)]);
        assert_agree(&allocator, &device.ledger);
    }
}

/// Once each, whichever pools wait for it, and only those that anything waits for.
#[test]
fn each_timeline_is_asked_for_once_and_only_if_something_waits_for_it() {
    let device = LoggedDevice::new();
    let allocator = over(&device, &[sliced(M, M, None), exclusive(M), direct(None)]);
    let free_after = |pool: u32, points: &[(u32, u64)]| {
        let id = place_in(&allocator, 1000, pool).id;
        let points: Vec<_> = points.iter().map(|&(timeline, value)| Point::new(timeline, value)).collect();
        allocator.free_after(id, &points).unwrap();
    };
    device.ledger.limit_to(4 * M);
    let completed = |device: &LoggedDevice| {
        let mut asked = device.asked();
        asked.retain(|it| matches!(it, Asked::Completed(_)));
        asked.sort_by_key(|it| format!("{it:?}"));
        asked
    };
    // Known, but nothing waits.
    allocator.collect(9, 100).unwrap();
    assert_eq!(allocator.allocate(&Request::new(8 * M).in_pool(2)), Err(none_left(8 * M)));
    assert_eq!(completed(&device), []);
    free_after(0, &[(1, 5), (2, 5)]);
    free_after(0, &[(9, 50)]);
    free_after(1, &[(2, 5), (3, 5)]);
    free_after(2, &[(1, 7), (3, 5)]);
    free_after(2, &[(1, 7), (9, 99)]);
    device.asked();
    assert_eq!(allocator.allocate(&Request::new(8 * M).in_pool(2)), Err(none_left(8 * M)));
    assert_eq!(completed(&device), [Asked::Completed(1), Asked::Completed(2), Asked::Completed(3)]);
    // What serves from memory that is held asks nobody.
    place_in(&allocator, 2000, 0);
    assert_eq!(device.asked(), []);
    // What has been told is remembered, though the request failed.
    device.complete(1, 6);
    device.complete(2, 6);
    assert_eq!(allocator.allocate(&Request::new(8 * M).in_pool(2)), Err(none_left(8 * M)));
    assert_eq!(allocator.statistics().slices_pending, 3, "only the first one waited for these two");
    allocator.collect(3, 5).unwrap();
    assert_eq!(allocator.statistics().slices_pending, 2);
    allocator.collect(1, 7).unwrap();
    assert_eq!((allocator.statistics().slices_pending, allocator.check()), (0, Ok(())));
    device.asked();
    assert_eq!(allocator.allocate(&Request::new(8 * M).in_pool(2)), Err(none_left(8 * M)));
    assert_eq!(completed(&device), []);
}

/// More timelines than there is a list for: all are asked for.
#[test]
fn all_of_a_hundred_timelines_are_asked_for() {
    let device = LoggedDevice::new();
    let allocator = over(&device, &[sliced(M, M, Some(M))]);
    for timeline in 0..100 {
        let id = place_in(&allocator, M / 128, 0).id;
        allocator.free_after(id, &[Point::new(timeline, u64::from(timeline) + 1)]).unwrap();
        device.complete(timeline, u64::from(timeline) + 1);
    }
    assert_eq!(allocator.statistics().slices_pending, 100);
    place_in(&allocator, M, 0);
    assert_eq!(allocator.statistics().slices_pending, 0);
}

// ---- help

/// An allocator whose device answers pleas with `help`.
fn helped(
    pools: &[PoolOptions],
    help: impl Fn(&Allocator<LoggedDevice>, &Shortage) -> bool + Send + Sync + 'static,
) -> Arc<Allocator<LoggedDevice>> {
    let allocator = Arc::new(Allocator::try_new(LoggedDevice::new(), pools, options()).unwrap());
    let weak = Arc::downgrade(&allocator);
    allocator.device().help_with(move |shortage| help(&weak.upgrade().unwrap(), shortage));
    allocator
}

/// What a device that promises help and gives none hears, and how often.
#[test]
fn help_is_asked_for_at_most_eight_times() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = heard.clone();
    let allocator = helped(&[sliced(M, M, None)], move |_, shortage| {
        listener.lock().unwrap().push(*shortage);
        true
    });
    let device = allocator.device();
    device.ledger.limit_to(0);
    let before = Snapshot::of(&allocator);
    assert_eq!(allocator.allocate(&Request::new(1000).aligned(32)), Err(none_left(M)));
    // Each promise makes the device worth another call.
    let asked: Vec<_> = (0..8).flat_map(|attempt| [Asked::Page(M), Asked::Help(attempt)]).collect();
    assert_eq!(device.asked(), [&asked[..], &[Asked::Page(M)]].concat());
    for (i, shortage) in heard.lock().unwrap().drain(..).enumerate() {
        let Shortage { size, alignment, error, attempt, .. } = shortage;
        assert_eq!((size, alignment, error, attempt), (1000, 32, none_left(M), i as u32));
    }
    assert_eq!(Snapshot::of(&allocator), before);
    assert_eq!(allocator.can_destroy(slicepool_core::LiveSlices::Refuse), Ok(()), "nothing is left in flight");
}

/// Of every kind: one slice is freed each time until the request fits.
#[test]
fn a_device_that_frees_when_asked_for_help_gets_the_request_served() {
    for (name, pool) in KINDS {
        let evictable: Arc<Mutex<Vec<SliceId>>> = Arc::default();
        let list = evictable.clone();
        let allocator = helped(&[pool, direct(None)], move |allocator, _| match list.lock().unwrap().pop() {
            Some(id) => allocator.free(id).is_ok(),
            None => false,
        });
        let device = allocator.device();
        for _ in 0..8 {
            let id = allocator.allocate(&Request::new(1 << 16).in_pool(0)).unwrap().id;
            evictable.lock().unwrap().push(id);
        }
        device.ledger.limit_to(device.ledger.bytes());
        device.asked();
        let slice = allocator.allocate(&Request::new(1 << 16).in_pool(0)).unwrap();
        assert_eq!((pleas(&device.asked()), evictable.lock().unwrap().len()), (vec![0], 7), "{name}");
        allocator.free(slice.id).unwrap();
        // Pages of another pool become idle one after the other, and go.
        let pages = device.ledger.pages();
        let slice = allocator.allocate(&Request::new(3 << 16).in_pool(1)).unwrap();
        let asked = pleas(&device.asked());
        assert!(!asked.is_empty() && asked.len() < 8 && device.ledger.pages() < pages, "{name}: {asked:?}");
        allocator.free(slice.id).unwrap();
        assert_agree(&allocator, &device.ledger);
    }
}

/// What was freed need not have been this allocator's.
#[test]
fn help_from_elsewhere_ends_the_pause_of_the_device() {
    let allocator = helped(&[sliced(M, M, None)], |allocator, shortage| {
        let enough = shortage.attempt == 3;
        if enough {
            allocator.device().ledger.limit_to(M);
        }
        shortage.attempt <= 3
    });
    let device = allocator.device();
    device.ledger.limit_to(0);
    let slice = allocator.allocate(&Request::new(M)).unwrap();
    let asked = device.asked();
    assert_eq!((pleas(&asked), asked.len()), (vec![0, 1, 2, 3], 4 + 5));
    assert_eq!(allocator.get(slice.id), Ok(slice));
}

/// Each level of calls within calls asks half as often as the one around it.
#[test]
fn a_device_that_allocates_when_asked_for_help_comes_to_an_end() {
    let levels: Arc<Mutex<(usize, Vec<Vec<u32>>)>> = Arc::default();
    let shared = levels.clone();
    let allocator = helped(&[sliced(M, M, None)], move |allocator, shortage| {
        let mut guard = shared.lock().unwrap();
        let (level, heard) = &mut *guard;
        if heard.len() == *level {
            heard.push(Vec::new());
        }
        heard[*level].push(shortage.attempt);
        *level += 1;
        drop(guard);
        assert_eq!(allocator.allocate(&Request::new(M)), Err(none_left(M)));
        assert!(allocator.can_destroy(slicepool_core::LiveSlices::Free).is_err(), "a callback is running");
        shared.lock().unwrap().0 -= 1;
        true
    });
    allocator.device().ledger.limit_to(0);
    assert_eq!(allocator.allocate(&Request::new(M)), Err(none_left(M)));
    let guard = levels.lock().unwrap();
    let expected = [8, 4, 2, 1].map(|each: u32| (0..each).collect::<Vec<_>>());
    let mut outer = 1;
    assert_eq!((guard.0, guard.1.len()), (0, 4));
    for (heard, each) in guard.1.iter().zip(&expected) {
        assert_eq!(*heard, each.repeat(outer));
        outer *= each.len();
    }
    drop(guard);
    // The next request has as many again.
    let device = allocator.device();
    device.asked();
    assert_eq!(allocator.allocate(&Request::new(M)), Err(none_left(M)));
    assert_eq!(pleas(&device.asked()).len(), 8 + 8 * 4 + 8 * 4 * 2 + 8 * 4 * 2);
}

/// Only what freeing could change is told of.
#[test]
fn help_is_asked_for_where_freeing_may_help_and_nowhere_else() {
    let host = HostLedger::new();
    let device = LoggedDevice::new();
    let options = options().with_memory(host.memory()).with_max_pages(Some(3)).with_max_bytes(Some(4 * M));
    let allocator = Allocator::try_new(&device, &[sliced(M, M, Some(2 * M)), direct(None)], options).unwrap();
    let held = [0, 0].map(|pool| place_in(&allocator, M, pool));
    device.asked();
    let refused = |request: Request, error: Error, asked: &[Asked]| {
        assert_eq!(allocator.allocate(&request), Err(error));
        assert_eq!(device.asked(), asked, "{request:?}");
    };
    refused(Request::new(M).in_pool(0), full(M, 2 * M, 2 * M, 0), &[Asked::Help(0)]);
    let over = Error::BudgetExceeded { size: 3 * M, limit: 4 * M, reserved: 2 * M };
    refused(Request::new(3 * M).in_pool(1), over, &[Asked::Help(0)]);
    let third = place_in(&allocator, M, 1);
    device.asked();
    let too_many = Error::PageCountExceeded { size: M / 2, limit: 3 };
    refused(Request::new(M / 2).in_pool(1), too_many, &[Asked::Help(0)]);
    allocator.free(third.id).unwrap();
    allocator.trim(0).unwrap();
    device.asked();
    refused(Request::new(0).in_pool(1), Error::InvalidArgument { field: c"size", value: 0 }, &[]);
    refused(Request::new(M + 1).in_pool(0), Error::TooLarge { size: M + 1, limit: M }, &[]);
    device.fail_with(Some(DeviceError::Failed(3)));
    let failed = Error::DeviceFailed { fault: DeviceFault::Reported, code: 3 };
    refused(Request::new(M / 2).in_pool(1), failed, &[Asked::Page(M / 2)]);
    assert_eq!(allocator.get(held[0].id), Ok(held[0]));
    assert_agree(&allocator, &device.ledger);
}

// ---- which error

/// The error of a request for `size` bytes in any of the pools, in any order of these.
fn error_of(device: &LoggedDevice, pools: &[PoolOptions], options: &AllocatorOptions, size: u64) -> Vec<Error> {
    let reversed: Vec<_> = pools.iter().rev().cloned().collect();
    let errors = [pools, &reversed].map(|pools| {
        let allocator = Allocator::try_new(device, pools, options.clone()).unwrap();
        // Whatever there is of the first kind is used up.
        let capped = pools.iter().position(|pool| *pool == sliced(M, M, Some(M))).unwrap();
        allocator.allocate(&Request::new(M).in_pool(capped as u32)).unwrap();
        allocator.allocate(&Request::new(size)).unwrap_err()
    });
    errors.to_vec()
}

/// Of the errors of several pools the one that is most urgent, whatever their order: device, budget, page count, cap.
#[test]
fn of_several_errors_that_of_the_device_comes_first_then_the_limits_then_the_cap() {
    let device = LoggedDevice::new();
    let tail = [sliced(M, M, Some(M)), sliced(2 * M, 2 * M, None)];
    device.ledger.limit_to(2 * M);
    for (options, error) in [
        (options(), none_left(2 * M)),
        (options().with_max_bytes(Some(2 * M)), Error::BudgetExceeded { size: 2 * M, limit: 2 * M, reserved: M }),
        (options().with_max_pages(Some(1)), Error::PageCountExceeded { size: 2 * M, limit: 1 }),
        (
            options().with_max_pages(Some(1)).with_max_bytes(Some(M)),
            Error::BudgetExceeded { size: 2 * M, limit: M, reserved: M },
        ),
    ] {
        assert_eq!(error_of(&device, &tail, &options, M), [error; 2]);
    }
    // A pool for which the limit is too narrow, and one for which the device has nothing.
    let pools = [sliced(M, M, Some(M)), sliced(8 * M, 8 * M, None), growing(2 * M, 2 * M)];
    let limited = options().with_max_bytes(Some(4 * M));
    device.ledger.limit_to(M);
    assert_eq!(error_of(&device, &pools, &limited, M), [none_left(M); 2]);
    // One that is full, and one whose slices are smaller than that.
    let pools = [sliced(M, M, Some(M)), sliced(M, M / 2, Some(M))];
    assert_eq!(error_of(&device, &pools, &options(), M), [full(M, M, M, 0); 2]);
    // Of limits on the size, the largest.
    let pools = [sliced(M, M, Some(M)), sliced(M, M / 2, Some(M))];
    assert_eq!(error_of(&device, &pools, &options(), M + 1), [Error::TooLarge { size: M + 1, limit: M }; 2]);
}

/// Host memory that runs out comes before all of them.
#[test]
fn host_memory_comes_before_the_memory_of_the_device() {
    let host = HostLedger::new();
    let device = LoggedDevice::new();
    let pools = [sliced(M, M, None), sliced(2 * M, 2 * M, None)];
    let allocator = Allocator::try_new(&device, &pools, options().with_memory(host.memory())).unwrap();
    place_in(&allocator, M, 0);
    device.ledger.limit_to(M);
    host.fail_from(1);
    // The first pool has the books that it needs, the second has none yet.
    assert_eq!(allocator.allocate(&Request::new(M).in_pool(0)), Err(none_left(M)));
    assert!(matches!(allocator.allocate(&Request::new(M).in_pool(1)), Err(Error::OutOfHostMemory { .. })));
    assert!(matches!(allocator.allocate(&Request::new(M)), Err(Error::OutOfHostMemory { .. })));
    host.stop_failing();
    assert_eq!(allocator.allocate(&Request::new(M)), Err(none_left(M)));
    assert_agree(&allocator, &device.ledger);
}

/// The limit on bytes comes before the one on pages, whichever of them is shared.
#[test]
fn the_limit_on_bytes_comes_before_the_limit_on_pages() {
    for shares_bytes in [false, true] {
        let device = LoggedDevice::new();
        let (max_bytes, max_pages) = (Some(M), Some(1));
        let shared = if shares_bytes { (max_bytes, None) } else { (None, max_pages) };
        let budget = Budget::try_new(HostMemory::global(), LockKind::spin(), shared.0, shared.1).unwrap();
        let options = options().with_budget(&budget);
        let options = if shares_bytes { options.with_max_pages(max_pages) } else { options.with_max_bytes(max_bytes) };
        let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options).unwrap();
        place_in(&allocator, M, 0);
        let error = Error::BudgetExceeded { size: M, limit: M, reserved: M };
        assert_eq!(allocator.allocate(&Request::new(M)), Err(error), "shares bytes: {shares_bytes}");
    }
}

/// An allocator with three pools of which the first cannot grow, the second can, and the third has an idle page that is in
/// the way: the request must be served.
fn idle_page_goes(options: AllocatorOptions, failure: Option<DeviceError>) {
    let device = LoggedDevice::new();
    let pools = [sliced(64 * M, 64 * M, None), sliced(M, M, None), direct(None)];
    let allocator = Allocator::try_new(&device, &pools, options).unwrap();
    for _ in 0..2 {
        place_in(&allocator, M, 1);
    }
    let idle = place_in(&allocator, 2 * M, 2);
    allocator.free(idle.id).unwrap();
    device.ledger.limit_to(4 * M);
    device.fail_for(failure.map(|failure| (64 * M, failure)));
    // The pool that can grow serves, and so it does after the other one has been asked.
    let served = allocator.allocate(&Request::new(M));
    assert!(served.is_ok(), "{served:?}");
    assert!(!device.ledger.is_out(idle.memory));
    assert_agree(&allocator, &device.ledger);
}

/// A pool whose pages are too large for the limit does not keep another from using memory that nobody needs.
#[test]
fn a_pool_too_large_for_the_limit_does_not_keep_idle_pages_from_going_for_another() {
    idle_page_goes(options().with_max_bytes(Some(4 * M)), None);
}

/// Nor does one for which the device fails.
#[test]
fn a_pool_whose_device_fails_does_not_keep_idle_pages_from_going_for_another() {
    idle_page_goes(options(), Some(DeviceError::Failed(-5)));
}

/// Nor is help not asked for.
#[test]
fn a_pool_whose_device_fails_does_not_keep_help_from_being_asked_for_another() {
    let allocator = helped(&[sliced(64 * M, 64 * M, None), sliced(M, M, None)], |allocator, _| {
        allocator.device().ledger.limit_to(M);
        true
    });
    let device = allocator.device();
    device.ledger.limit_to(0);
    device.fail_for(Some((64 * M, DeviceError::Failed(-5))));
    let served = allocator.allocate(&Request::new(M));
    assert!(served.is_ok(), "{served:?}, asked {:?}", device.asked());
}
