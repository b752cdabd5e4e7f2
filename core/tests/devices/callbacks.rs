//! Callbacks that call back into the allocator they serve.

use crate::common::K;
use crate::common::books::{assert_agree, assert_balanced};
use crate::common::devices::LedgerDevice;
use crate::common::pools::{KINDS, direct, exclusive, growing, options, place, sliced, touch};
use crate::common::random::Random;
use crate::common::reentrant::{Call, Reentrant, endlessly_reentrant, reentrant};
use slicepool_core::{Allocator, AllocatorOptions, Error, LiveSlices, LockKind, PoolOptions, Request, Slice};
use std::ffi::c_void;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

fn pool(page_size: u64) -> PoolOptions {
    PoolOptions::sliced_pages(page_size, page_size, None)
}

/// Trying again may help as soon as it is gone.
#[test]
fn a_page_on_its_way_back_is_named_by_the_refusal_of_its_pool() {
    let refusal: Arc<Mutex<Option<Result<Slice, Error>>>> = Arc::default();
    let seen = refusal.clone();
    let pool = PoolOptions::sliced_pages(4096, 4096, Some(4096));
    let allocator = reentrant(&[pool], move |allocator, call| {
        if call == Call::Deallocate {
            *seen.lock().unwrap() = Some(allocator.allocate(&Request::new(1000)));
        }
    });
    touch(&*allocator, 100);
    allocator.trim(0).unwrap();
    let refused = Error::PoolCapacityExceeded {
        size: 1000,
        capacity: 4096,
        in_use: 0,
        pending: 0,
        largest_free: 0,
        growths_in_flight: 1,
    };
    assert_eq!(*refusal.lock().unwrap(), Some(Err(refused)));
    assert_agree(&allocator, &allocator.device().ledger);
}

/// A page that is on its way is waited for by those that it will hold, and by no others.
#[test]
fn a_request_waits_for_another_ones_page_only_where_that_would_hold_it_too() {
    static WAITS: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn count(_: *mut c_void, _: u32) {
        WAITS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the function ignores its arguments, does not call into slicepool and does not unwind.
    let lock = unsafe { LockKind::spin_with(std::ptr::null_mut(), count) };
    for (pool, size, waits) in [
        (sliced(4096, 4096, None), 4096, 5),
        (growing(4096, 64 * K), 4096, 5),
        (growing(4096, 64 * K), 4097, 0),
        (exclusive(4096), 100, 0),
        (direct(None), 100, 0),
    ] {
        WAITS.store(0, Ordering::Relaxed);
        let inside = AtomicBool::new(false);
        let options = options().with_lock(lock).with_growth_wait_steps(5);
        let allocator = endlessly_reentrant(std::slice::from_ref(&pool), options, move |allocator, call| {
            if call == Call::Allocate && !inside.swap(true, Ordering::Relaxed) {
                allocator.allocate(&Request::new(size)).unwrap();
            }
        });
        place(&*allocator, 100);
        assert_eq!(WAITS.load(Ordering::Relaxed), waits, "{size} bytes in {pool:?}");
        assert_agree(&allocator, &allocator.device().ledger);
    }
}

/// Scenario 41.
#[test]
fn a_device_that_allocates_from_the_allocator_it_serves_gets_a_slice_of_its_own() {
    let nested: Arc<Mutex<Vec<Slice>>> = Arc::default();
    let seen = nested.clone();
    let allocator = reentrant(&[pool(4096)], move |allocator, call| {
        assert_eq!(call, Call::Allocate);
        let slice = allocator.allocate(&Request::new(50)).unwrap();
        seen.lock().unwrap().push(slice);
        assert_balanced(allocator);
    });
    let outer = allocator.allocate(&Request::new(100)).unwrap();
    let inner = nested.lock().unwrap()[0];
    assert_ne!(outer.memory, inner.memory);
    assert_eq!((allocator.get(outer.id), allocator.get(inner.id)), (Ok(outer), Ok(inner)));
    let ledger = &allocator.device().ledger;
    assert_eq!((ledger.given(), allocator.statistics().slices), (2, 2));
    assert_agree(&allocator, ledger);
    // The page taken by the callback serves others as well; its own request needs another.
    let more: Vec<_> = (0..3).map(|_| allocator.allocate(&Request::new(3000)).unwrap()).collect();
    assert_eq!(more.iter().map(|slice| slice.memory).collect::<std::collections::HashSet<_>>().len(), 3);
    assert_agree(&allocator, ledger);
}

/// Scenario 41: everything a callback could think of, in both callbacks.
#[test]
fn callbacks_may_use_the_whole_interface() {
    let calls = use_the_whole_interface_in_callbacks(&[pool(4096), pool(64 * K)]);
    assert!(calls > 20, "{calls}");
    let kinds = KINDS.map(|(_, pool)| pool.with_dealloc_period(Some(30)));
    use_the_whole_interface_in_callbacks(&[kinds.as_slice(), &[pool(64 * K)]].concat());
    let calls: u64 = kinds.map(|kind| use_the_whole_interface_in_callbacks(&[kind, pool(64 * K)])).iter().sum();
    assert!(calls > 100, "{calls}");
}

/// Answers how often the device was called.
fn use_the_whole_interface_in_callbacks(pools: &[PoolOptions]) -> u64 {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let allocator = reentrant(pools, move |allocator, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let slice = allocator.allocate(&Request::new(5000)).unwrap();
        assert_eq!(allocator.get(slice.id), Ok(slice));
        allocator.try_resize(slice.id, 4000).unwrap();
        let batch = allocator.allocate_many(&[Request::new(100); 5]).unwrap();
        assert_balanced(allocator);
        allocator.free_many(&batch.iter().map(|slice| slice.id).collect::<Vec<_>>()).unwrap();
        allocator.free(slice.id).unwrap();
        allocator.write_json(&mut String::new()).unwrap();
        allocator.trim(64 * K).unwrap();
        allocator.cleanup().unwrap();
        assert_balanced(allocator);
    });
    let mut random = Random::with_seed_or(41);
    let mut live = Vec::new();
    for round in 0..500 {
        let size = random.scaled(64 * K);
        live.push(allocator.allocate(&Request::new(size)).unwrap());
        if live.len() > 5 {
            allocator.free(random.take(&mut live).id).unwrap();
        }
        if round % 3 == 0 {
            allocator.cleanup().unwrap();
            assert_agree(&allocator, &allocator.device().ledger);
        }
    }
    for slice in live {
        assert_eq!(allocator.get(slice.id), Ok(slice));
        allocator.free(slice.id).unwrap();
    }
    allocator.cleanup().unwrap();
    assert_eq!(allocator.device().ledger.pages(), 0);
    calls.load(Ordering::Relaxed)
}

/// Scenario 41, where there is room for one page only: the callback is refused at once, the request is served.
#[test]
fn a_callback_is_told_of_the_growth_it_runs_in_when_the_cap_leaves_it_nothing() {
    let allocator = reentrant(&[PoolOptions::sliced_pages(4096, 4096, Some(4096))], |allocator, _| {
        let refused = allocator.allocate(&Request::new(50));
        let full = Error::PoolCapacityExceeded {
            size: 50,
            capacity: 4096,
            in_use: 0,
            pending: 0,
            largest_free: 0,
            growths_in_flight: 1,
        };
        assert_eq!(refused, Err(full));
        assert_eq!(allocator.statistics().growths_in_flight, 1);
    });
    allocator.allocate(&Request::new(100)).unwrap();
    assert_eq!((allocator.device().ledger.given(), allocator.statistics().growths_in_flight), (1, 0));
    assert_agree(&allocator, &allocator.device().ledger);
}

/// Scenario 41: destroy is refused from within every kind of callback, forced or not.
#[test]
fn an_allocator_cannot_go_away_from_within_a_device_callback() {
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let seen = calls.clone();
    let allocator = reentrant(&[pool(4096)], move |allocator, call| {
        seen.lock().unwrap().push(call);
        for live in [slicepool_core::LiveSlices::Refuse, slicepool_core::LiveSlices::Free] {
            let busy = allocator.can_destroy(live);
            assert!(
                matches!(busy, Err(Error::Busy { live: 0, pending: 0, in_use: 0, in_flight: 1.. })),
                "{call:?}: {busy:?}"
            );
        }
    });
    let slice = allocator.allocate(&Request::new(100)).unwrap();
    assert_eq!(
        allocator.can_destroy(slicepool_core::LiveSlices::Refuse),
        Err(Error::Busy { live: 1, pending: 0, in_use: 100, in_flight: 0 })
    );
    allocator.free(slice.id).unwrap();
    assert_eq!(allocator.can_destroy(slicepool_core::LiveSlices::Refuse), Ok(()));
    allocator.cleanup().unwrap();
    assert_eq!(*calls.lock().unwrap(), [Call::Allocate, Call::Deallocate]);
    assert_eq!(allocator.can_destroy(slicepool_core::LiveSlices::Refuse), Ok(()));
}

/// Scenario 41: the same while a refused batch gives its pages back.
#[test]
fn an_allocator_cannot_go_away_while_a_refused_batch_gives_its_pages_back() {
    let returned = Arc::new(AtomicU64::new(0));
    let seen = returned.clone();
    let allocator = reentrant(&[pool(4096)], move |allocator, call| {
        if call == Call::Deallocate {
            seen.fetch_add(1, Ordering::Relaxed);
            for live in [slicepool_core::LiveSlices::Refuse, slicepool_core::LiveSlices::Free] {
                let busy = allocator.can_destroy(live);
                assert!(matches!(busy, Err(Error::Busy { in_flight: 1.., .. })), "{busy:?}");
            }
        }
    });
    let requests = [Request::new(4096), Request::new(4096), Request::new(0)];
    assert_eq!(allocator.allocate_many(&requests).map(drop).unwrap_err().index, 2);
    assert_eq!(returned.load(Ordering::Relaxed), 2);
    assert_agree(&allocator, &allocator.device().ledger);
}

/// Scenario 41: closing from within a callback is refused, and the call that was under way goes on.
#[test]
fn closing_from_within_a_callback_is_refused() {
    let allocator = reentrant(&[pool(4096)], |allocator, _| {
        for live in [LiveSlices::Refuse, LiveSlices::Free] {
            assert!(matches!(allocator.close(live), Err(Error::Busy { in_flight: 1.., .. })));
        }
    });
    let slice = allocator.allocate(&Request::new(100)).unwrap();
    allocator.allocate(&Request::new(4096)).unwrap();
    assert_eq!(allocator.get(slice.id), Ok(slice));
    allocator.close(LiveSlices::Free).unwrap();
    assert_eq!(allocator.device().ledger.pages(), 0);
}

/// Scenario 41: an allocator that is being closed takes no more pages, also if its device asks for some.
#[test]
fn a_callback_gets_no_new_page_while_the_allocator_is_being_closed() {
    let asked = Arc::new(AtomicU64::new(0));
    let seen = asked.clone();
    let allocator = reentrant(&[pool(4096)], move |allocator, call| {
        if call == Call::Deallocate {
            seen.fetch_add(1, Ordering::Relaxed);
            assert!(matches!(allocator.allocate(&Request::new(50)), Err(Error::Busy { .. })));
        }
    });
    let slice = allocator.allocate(&Request::new(100)).unwrap();
    allocator.free(slice.id).unwrap();
    allocator.close(LiveSlices::Refuse).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!((allocator.device().ledger.given(), allocator.device().ledger.taken()), (1, 1));
    // Nor does it once it is closed. Closing again does no harm.
    assert!(matches!(allocator.allocate(&Request::new(50)), Err(Error::Busy { .. })));
    assert_eq!(allocator.free(slice.id), Err(Error::StaleHandle));
    assert_eq!(allocator.close(LiveSlices::Refuse), Ok(()));
    assert_agree(&allocator, &allocator.device().ledger);
}

/// Scenario 41: a slice that a callback takes from what is left, while the allocator is being closed, is either a
/// reason to refuse or freed, never lost.
#[test]
fn a_slice_that_a_callback_takes_while_the_allocator_is_being_closed_is_not_forgotten() {
    for live in [LiveSlices::Refuse, LiveSlices::Free] {
        let nested: Arc<Mutex<Vec<Slice>>> = Arc::default();
        let seen = nested.clone();
        let allocator = reentrant(&[pool(4096)], move |allocator, call| {
            if call == Call::Deallocate && seen.lock().unwrap().is_empty() {
                seen.lock().unwrap().push(allocator.allocate(&Request::new(50)).unwrap());
            }
        });
        let slices = [(); 2].map(|()| allocator.allocate(&Request::new(4096)).unwrap());
        for slice in slices {
            allocator.free(slice.id).unwrap();
        }
        let closed = allocator.close(live);
        let slice = nested.lock().unwrap()[0];
        if live == LiveSlices::Refuse {
            assert!(matches!(closed, Err(Error::Busy { live: 1, in_use: 50, .. })));
            // It is as usable as before.
            assert_eq!(allocator.get(slice.id), Ok(slice));
            let more = allocator.allocate(&Request::new(4096)).unwrap();
            assert_agree(&allocator, &allocator.device().ledger);
            allocator.free_many(&[slice.id, more.id]).unwrap();
            assert_eq!(allocator.close(live), Ok(()));
        } else {
            assert_eq!((closed, allocator.get(slice.id)), (Ok(()), Err(Error::StaleHandle)));
        }
        assert_agree(&allocator, &allocator.device().ledger);
        assert_eq!(allocator.device().ledger.pages(), 0);
    }
}

/// An allocator with a stuck page and an idle one, closed while the device allocates in the call that gives the stuck
/// page back, before the idle one is on its way. Answers the allocator, what closing came to, and the slice.
fn close_with_a_stuck_page(live: LiveSlices) -> (Arc<Allocator<Reentrant>>, Result<(), Error>, Slice) {
    let nested: Arc<Mutex<Option<Slice>>> = Arc::default();
    let closing = Arc::new(AtomicBool::new(false));
    let (seen, begun) = (nested.clone(), closing.clone());
    let allocator = reentrant(&[pool(4096)], move |allocator, _| {
        if begun.swap(false, Ordering::Relaxed) {
            *seen.lock().unwrap() = Some(allocator.allocate(&Request::new(50)).unwrap());
        }
    });
    let ledger = &allocator.device().ledger;
    for keeps in [true, false] {
        let slice = allocator.allocate(&Request::new(4096)).unwrap();
        allocator.free(slice.id).unwrap();
        ledger.keep_everything(keeps);
        assert_eq!(keeps, keeps && allocator.cleanup().is_err());
    }
    assert_eq!((allocator.statistics().pages_stuck, allocator.statistics().pages_idle), (1, 1));
    closing.store(true, Ordering::Relaxed);
    let closed = allocator.close(live);
    let slice = nested.lock().unwrap().unwrap();
    (allocator, closed, slice)
}

/// Scenario 41: a slice taken in the call that gives a stuck page back is a reason to refuse.
#[test]
fn a_slice_that_a_callback_takes_while_a_stuck_page_goes_back_keeps_the_allocator_open() {
    let (allocator, closed, slice) = close_with_a_stuck_page(LiveSlices::Refuse);
    assert!(matches!(closed, Err(Error::Busy { live: 1, in_use: 50, .. })), "{closed:?}");
    assert_eq!(allocator.get(slice.id), Ok(slice));
    assert_agree(&allocator, &allocator.device().ledger);
    allocator.free(slice.id).unwrap();
    assert_eq!(allocator.close(LiveSlices::Refuse), Ok(()));
}

/// Scenario 41: closing by force frees it.
#[test]
fn a_slice_that_a_callback_takes_while_a_stuck_page_goes_back_is_freed_by_force() {
    let (allocator, closed, slice) = close_with_a_stuck_page(LiveSlices::Free);
    assert_eq!((closed, allocator.get(slice.id)), (Ok(()), Err(Error::StaleHandle)));
    assert_agree(&allocator, &allocator.device().ledger);
    assert_eq!(allocator.device().ledger.pages(), 0);
}

/// Scenario 41: the visitor of a walk is a callback as well.
#[test]
fn the_visitor_of_a_walk_may_use_the_allocator_but_not_end_it() {
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, &[pool(4096)], AllocatorOptions::default()).unwrap();
    let slices: Vec<_> = (0..50).map(|_| allocator.allocate(&Request::new(1000)).unwrap()).collect();
    let mut seen = Vec::new();
    let _ = allocator.walk(|range| {
        assert!(matches!(
            allocator.can_destroy(slicepool_core::LiveSlices::Free),
            Err(Error::Busy { in_flight: 1, .. })
        ));
        let extra = allocator.allocate(&Request::new(10)).unwrap();
        allocator.free(extra.id).unwrap();
        if let Some(id) = range.id.filter(|id| slices.iter().any(|slice| slice.id == *id)) {
            seen.push(id);
        }
        ControlFlow::<()>::Continue(())
    });
    let mut expected: Vec<_> = slices.iter().map(|slice| slice.id).collect();
    expected.sort();
    seen.sort();
    assert_eq!(seen, expected);
    assert_agree(&allocator, &device);
    // A walk can be ended with an answer.
    let mut visits = 0;
    let answer = allocator.walk(|range| {
        visits += 1;
        if visits == 3 { ControlFlow::Break(range.size) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(answer, ControlFlow::Break(1..)) && visits == 3);
    assert_eq!(allocator.can_destroy(slicepool_core::LiveSlices::Free), Ok(()));
}

// ---- policies that give memory back

/// Scenario 19: the callbacks of aged pages allocate and free so much that everything is overdue again and again.
#[test]
fn allocations_while_aged_pages_go_back_give_nothing_back_themselves() {
    let (depth, calls) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (inside, counted) = (depth.clone(), calls.clone());
    let pools = [exclusive(K).with_dealloc_period(Some(100)), sliced(K, K, None)];
    let allocator = endlessly_reentrant(&pools, options(), move |allocator, call| {
        if call == Call::Allocate {
            return;
        }
        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "a callback runs within another");
        counted.fetch_add(1, Ordering::Relaxed);
        for _ in 0..200 {
            let slice = allocator.allocate(&Request::new(32).in_pool(1)).unwrap();
            allocator.free(slice.id).unwrap();
        }
        // An aged page that has not gone yet, or one that comes and goes.
        let slice = allocator.allocate(&Request::new(K).in_pool(0)).unwrap();
        allocator.free(slice.id).unwrap();
        inside.fetch_sub(1, Ordering::Relaxed);
    });
    let slices: Vec<_> = (0..20).map(|_| place(&allocator, K)).collect();
    for slice in slices {
        allocator.free(slice.id).unwrap();
    }
    let mut before = 0;
    for _ in 0..100 {
        allocator.allocate(&Request::new(32).in_pool(1)).unwrap();
        let now = calls.load(Ordering::Relaxed);
        assert!(now - before <= 4, "one allocation gives {} pages back", now - before);
        before = now;
        assert_agree(&allocator, &allocator.device().ledger);
    }
    assert!(before > 20, "{before}");
    assert_eq!(depth.load(Ordering::Relaxed), 0);
}

/// Scenario 19: what is given back before a growth is at most what was idle when it began, and the callbacks' own growths
/// do not join in.
#[test]
fn callbacks_that_grow_the_pool_while_it_gives_back_for_a_growth_neither_nest_nor_keep_it_from_ending() {
    for pool in [direct(Some(K)), growing(K, K)] {
        let (depth, deepest, calls) = <(Arc<AtomicU64>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let (inside, most, counted) = (depth.clone(), deepest.clone(), calls.clone());
        let allocator = endlessly_reentrant(&[pool], options(), move |allocator, call| {
            // Ends in the end, so that the test fails and does not hang.
            if call == Call::Deallocate && counted.fetch_add(1, Ordering::Relaxed) < 1000 {
                most.fetch_max(inside.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                touch(allocator, 64);
                inside.fetch_sub(1, Ordering::Relaxed);
            }
        });
        let slices = [(); 50].map(|()| place(&allocator, K));
        for slice in slices {
            allocator.free(slice.id).unwrap();
        }
        place(&allocator, 2 * K);
        let (deepest, calls) = (deepest.load(Ordering::Relaxed), calls.load(Ordering::Relaxed));
        assert!(deepest <= 1 && calls <= 51, "{calls} pages were given back for one request, {deepest} deep");
        assert_agree(&allocator, &allocator.device().ledger);
    }
}
