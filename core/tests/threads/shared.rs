//! Many threads in one allocator: nothing overlaps, nobody hangs, no limit is passed.

use crate::common::books::{assert_agree, assert_balanced};
use crate::common::devices::{Gate, LedgerDevice, ScriptedDevice};
use crate::common::lock::{WatchedLock, yielding};
use crate::common::meeting::{AtEnd, Meeting};
use crate::common::pools::KINDS;
use crate::common::random::Random;
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceMemory, Error, HostDevice, LiveSlices, LockKind, PageRequest,
    PoolOptions, Request, Slice, SliceId,
};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

fn pool(page_size: u64, cap: Option<u64>) -> PoolOptions {
    PoolOptions::sliced_pages(page_size, page_size, cap)
}

fn options() -> AllocatorOptions {
    AllocatorOptions::default().with_lock(yielding())
}

/// Writes an owner's stamp over the first and last bytes of the `size` bytes that were asked for.
fn stamp(slice: &Slice, size: u64, owner: u64) {
    assert!(size >= 16 && slice.size >= size);
    // SAFETY: the slice lies in a mapped page of a `HostDevice`, has room for `size` bytes and is this thread's alone.
    unsafe {
        slice.mapped.cast::<u64>().write_unaligned(owner);
        slice.mapped.add(size as usize - 8).cast::<u64>().write_unaligned(!owner);
    }
}

fn assert_stamped(slice: &Slice, size: u64, owner: u64) {
    // SAFETY: as in `stamp`, which initialised both places.
    let found = unsafe {
        let first = slice.mapped.cast::<u64>().read_unaligned();
        (first, slice.mapped.add(size as usize - 8).cast::<u64>().read_unaligned())
    };
    assert_eq!(found, (owner, !owner), "somebody else wrote into {slice:?}");
}

/// Scenario 39, with any pools that take 100 to 10,000 bytes, and any lock.
fn share_slices_among_threads(pools: &[PoolOptions], lock: LockKind, operations: u64, random: &mut Random) {
    let device = LedgerDevice::over(HostDevice::new());
    let allocator = Allocator::try_new(&device, pools, AllocatorOptions::default().with_lock(lock)).unwrap();
    let shared: Mutex<Vec<(Slice, u64, u64)>> = Mutex::default();
    thread::scope(|scope| {
        for number in 0..4u64 {
            let (allocator, shared, mut random) = (&allocator, &shared, random.split());
            scope.spawn(move || {
                for operation in 0..operations {
                    let taken = {
                        let mut list = shared.lock().unwrap();
                        let free = list.len() > 800 || (!list.is_empty() && random.below(2) == 0);
                        free.then(|| random.take(&mut list))
                    };
                    if let Some((slice, size, owner)) = taken {
                        assert_stamped(&slice, size, owner);
                        assert_eq!(allocator.get(slice.id), Ok(slice));
                        allocator.free(slice.id).unwrap();
                    } else {
                        let size = random.within(100, 10_000);
                        let alignment = 1 << random.below(9);
                        let slice = allocator.allocate(&Request::new(size).aligned(alignment)).unwrap();
                        assert_eq!((slice.offset % alignment, slice.address % alignment), (0, 0));
                        let owner = (number << 56) | operation;
                        stamp(&slice, size, owner);
                        shared.lock().unwrap().push((slice, size, owner));
                    }
                }
            });
        }
    });
    assert_agree(&allocator, &device);
    let left = shared.into_inner().unwrap();
    assert_eq!(allocator.statistics().slices as usize, left.len());
    for (slice, size, owner) in left {
        assert_stamped(&slice, size, owner);
        allocator.free(slice.id).unwrap();
    }
    let figures = allocator.statistics();
    assert_eq!((figures.in_use, figures.padding, figures.slices, figures.growths_in_flight), (0, 0, 0, 0));
    assert_eq!((figures.free, figures.pages_idle), (figures.reserved, figures.pages));
    assert_agree(&allocator, &device);
    assert!(allocator.destroy().is_ok());
    assert_eq!((device.pages(), device.given()), (0, device.taken()));
}

/// Scenario 39.
#[test]
fn four_threads_that_share_their_slices_never_overlap() {
    let pools = [PoolOptions::sliced_pages(M, 4000, None).with_granule(16), pool(M, None)];
    share_slices_among_threads(&pools, yielding(), 100_000, &mut Random::with_seed_or(39));
}

/// Scenario 39, in pools of each kind and all of them; pages grow old on the way.
#[test]
fn four_threads_that_share_slices_of_any_kind_never_overlap() {
    let mut random = Random::with_seed_or(392);
    let kinds = KINDS.map(|(_, pool)| pool.with_granule(16).with_dealloc_period(Some(500)));
    // What has a cap is followed by what has none.
    let lists = kinds.clone().map(|kind| vec![kind, pool(M, None)]);
    for pools in lists.into_iter().chain([[kinds.as_slice(), &[pool(M, None)]].concat()]) {
        share_slices_among_threads(&pools, yielding(), 5_000, &mut random);
    }
}

/// Scenario 39, with lock hooks.
#[test]
fn four_threads_under_lock_hooks_never_overlap() {
    let lock = WatchedLock::new();
    let pools = [KINDS.map(|(_, pool)| pool).as_slice(), &[pool(M, None)]].concat();
    share_slices_among_threads(&pools, lock.kind(), 20_000, &mut Random::with_seed_or(391));
    lock.assert_used_rightly();
}

/// Scenario 38.
#[test]
fn threads_that_ask_for_the_same_at_once_get_distinct_slices_or_an_error() {
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, &[pool(64 * K, None)], options()).unwrap();
    let barrier = Meeting::of(4);
    let slices: Vec<Slice> = thread::scope(|scope| {
        let threads = [(); 4].map(|()| {
            scope.spawn(|| {
                barrier.wait();
                let mut mine = Vec::new();
                for _ in 0..5_000 {
                    let nothing = Error::InvalidArgument { field: c"size", value: 0 };
                    assert_eq!(allocator.allocate(&Request::new(0)), Err(nothing));
                    mine.push(allocator.allocate(&Request::new(256)).unwrap());
                }
                mine
            })
        });
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let ids: HashSet<_> = slices.iter().map(|slice| slice.id).collect();
    let places: HashSet<_> = slices.iter().map(|slice| (slice.memory, slice.offset)).collect();
    assert_eq!((ids.len(), places.len()), (20_000, 20_000));
    // 256 slices fill a page; pages that two threads took at once may be one too many.
    let figures = allocator.statistics();
    assert!(figures.pages >= 79 && figures.pages_peak <= 79 + 4, "{} pages", figures.pages);
    assert_agree(&allocator, &device);
}

/// Scenario 40.
#[test]
fn a_query_during_frees_and_allocations_answers_rightly_or_stale() {
    let mut random = Random::with_seed_or(40);
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, &[pool(64 * K, None)], options()).unwrap();
    // Slices that are or were live. What a handle names never changes, however often its slot is used.
    let first = allocator.allocate(&Request::new(1)).unwrap();
    let known = Mutex::new(vec![first]);
    let running = AtomicU64::new(2);
    let (right, stale) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            let mut random = random.split();
            let (allocator, known, running, right, stale) = (&allocator, &known, &running, &right, &stale);
            scope.spawn(move || {
                let _end = AtEnd(|| {
                    running.fetch_sub(1, Ordering::Relaxed);
                });
                for round in 0..1_000_000 {
                    // Until the other thread has had its turn.
                    if round >= 2_000 && stale.load(Ordering::Relaxed) != 0 {
                        break;
                    }
                    let some: Vec<Slice> = known.lock().unwrap().clone();
                    for _ in 0..100 {
                        let slice = some[random.below(some.len() as u64) as usize];
                        let answer = allocator.get(slice.id);
                        assert!(answer == Ok(slice) || answer == Err(Error::StaleHandle), "{slice:?}: {answer:?}");
                        if answer.is_ok() { right } else { stale }.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut live = Vec::new();
        let mut round = 0;
        while round < 50_000 || running.load(Ordering::Relaxed) != 0 {
            if live.len() > 50 {
                allocator.free(random.take(&mut live)).unwrap();
            }
            let slice = allocator.allocate(&Request::new(random.within(1, 5000))).unwrap();
            live.push(slice.id);
            let mut known = known.lock().unwrap();
            if known.len() == 100 {
                known.swap_remove(random.below(100) as usize);
            }
            known.push(slice);
            drop(known);
            round += 1;
            if round % 5_000 == 0 {
                allocator.cleanup().unwrap();
            }
        }
    });
    let counts = (right.into_inner(), stale.into_inner());
    assert!(counts.0 > 0 && counts.1 > 0, "{counts:?}");
    assert_agree(&allocator, &device);
}

/// Scenario 43: the second thread is refused while the first has the last page in hand.
#[test]
fn a_thread_is_refused_while_another_takes_the_last_page_and_served_from_it_later() {
    let (device, reached, open) = Gate::new();
    let pools = [pool(4096, Some(4096))];
    let allocator = Allocator::try_new(&device, &pools, options()).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| allocator.allocate(&Request::new(1000)));
        reached.recv().unwrap();
        assert_eq!(allocator.statistics().growths_in_flight, 1);
        assert!(matches!(
            allocator.can_destroy(slicepool_core::LiveSlices::Free),
            Err(Error::Busy { live: 0, in_flight: 1, .. })
        ));
        // It waits a bounded time only, as the gate stays closed.
        let full = Error::PoolCapacityExceeded {
            size: 500,
            capacity: 4096,
            in_use: 0,
            pending: 0,
            largest_free: 0,
            growths_in_flight: 1,
        };
        assert_eq!(allocator.allocate(&Request::new(500)), Err(full));
        open.send(()).unwrap();
        let first = first.join().unwrap().unwrap();
        let second = allocator.allocate(&Request::new(500)).unwrap();
        assert_eq!((second.memory, first.offset, second.offset), (first.memory, 0, 1024));
    });
    assert_eq!(device.ledger.given(), 1);
    assert_agree(&allocator, &device.ledger);
}

/// Scenario 43: the second thread waits for the page that the first is getting, and shares it.
#[test]
fn a_thread_that_may_wait_shares_the_page_that_another_is_getting() {
    let (device, reached, open) = Gate::new();
    let options = options().with_growth_wait_steps(u32::MAX);
    let allocator = Allocator::try_new(&device, &[pool(4096, None)], options).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| allocator.allocate(&Request::new(1000)).unwrap());
        reached.recv().unwrap();
        let second = scope.spawn(|| allocator.allocate(&Request::new(500)).unwrap());
        thread::sleep(Duration::from_millis(20));
        assert!(!second.is_finished());
        open.send(()).unwrap();
        assert_eq!(first.join().unwrap().memory, second.join().unwrap().memory);
    });
    assert_eq!(device.ledger.given(), 1);
    assert_agree(&allocator, &device.ledger);
}

/// Scenario 43: without any waiting it takes a page of its own.
#[test]
fn a_thread_that_may_not_wait_takes_a_page_of_its_own() {
    let (device, reached, open) = Gate::new();
    let options = options().with_growth_wait_steps(0);
    let allocator = Allocator::try_new(&device, &[pool(4096, None)], options).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| allocator.allocate(&Request::new(1000)).unwrap());
        reached.recv().unwrap();
        let second = allocator.allocate(&Request::new(500)).unwrap();
        open.send(()).unwrap();
        assert_ne!(first.join().unwrap().memory, second.memory);
    });
    assert_eq!(device.ledger.given(), 2);
    assert_agree(&allocator, &device.ledger);
}

/// Scenario 43, free running: the cap holds, and somebody is always served.
#[test]
fn threads_that_grow_at_once_never_pass_the_cap_and_one_of_them_is_served() {
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, &[pool(4096, Some(4096))], options()).unwrap();
    let barrier = Meeting::of(2);
    thread::scope(|scope| {
        let play = || {
            for round in 0..2_000 {
                barrier.wait();
                // Half of the rounds both fit into the page, half of them one does.
                let request = Request::new(if round % 2 == 0 { 2048 } else { 4096 });
                let mine = allocator.allocate(&request);
                if let Err(error) = mine {
                    assert!(matches!(error, Error::PoolCapacityExceeded { capacity: 4096, .. }), "{error}");
                }
                barrier.wait();
                let live = allocator.statistics().slices;
                assert!((1..=2).contains(&live) && allocator.statistics().reserved == 4096);
                barrier.wait();
                if let Ok(slice) = mine {
                    allocator.free(slice.id).unwrap();
                }
                barrier.wait();
                // Both clean up, and the page goes back once.
                allocator.cleanup().unwrap();
            }
        };
        scope.spawn(play);
        play();
    });
    assert_eq!(device.bytes_peak(), 4096);
    assert_eq!((device.pages(), device.given(), device.taken()), (0, 2_000, 2_000));
    assert_agree(&allocator, &device);
}

/// Sixteen loader threads do not take sixteen pages for sixteen small requests.
#[test]
fn sixteen_threads_that_load_at_once_share_one_page() {
    let ledger = LedgerDevice::new();
    let device = ScriptedDevice {
        allocate: |request: &PageRequest| {
            thread::sleep(Duration::from_millis(20));
            ledger.allocate(request)
        },
        deallocate: |memory: &DeviceMemory| ledger.deallocate(memory),
    };
    let options = options().with_growth_wait_steps(u32::MAX);
    let allocator = Allocator::try_new(&device, &[pool(M, None)], options).unwrap();
    let barrier = Meeting::of(16);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                barrier.wait();
                allocator.allocate(&Request::new(10_000)).unwrap();
            });
        }
    });
    assert_eq!((ledger.given(), allocator.statistics().slices), (1, 16));
    assert_agree(&allocator, &ledger);
}

#[test]
fn a_cleanup_during_a_growth_returns_nothing_that_the_growth_is_about_to_use() {
    let (device, reached, open) = Gate::new();
    let allocator = Allocator::try_new(&device, &[pool(4096, None)], options()).unwrap();
    thread::scope(|scope| {
        let growing = scope.spawn(|| allocator.allocate(&Request::new(1000)).unwrap());
        reached.recv().unwrap();
        // Another page comes and goes meanwhile.
        let other = allocator.allocate(&Request::new(4096)).unwrap();
        allocator.free(other.id).unwrap();
        allocator.cleanup().unwrap();
        assert_eq!((device.ledger.given(), device.ledger.taken()), (1, 1));
        open.send(()).unwrap();
        let slice = growing.join().unwrap();
        assert!(device.ledger.is_out(slice.memory));
        allocator.cleanup().unwrap();
        assert_eq!(allocator.get(slice.id), Ok(slice));
        assert!(device.ledger.is_out(slice.memory));
    });
    assert_agree(&allocator, &device.ledger);
}

/// Scenario 41, another thread: a growth that begins while the allocator is being closed either stops the closing or is
/// refused.
#[test]
fn closing_and_growing_at_once_leaves_no_page_behind() {
    let lock = WatchedLock::new();
    let (device, reached, open) = Gate::new();
    let options = AllocatorOptions::default().with_lock(lock.kind());
    let allocator = Allocator::try_new(&device, &[pool(4096, None)], options).unwrap();
    let (begin, begun) = mpsc::channel();
    let allocator = &allocator;
    thread::scope(|scope| {
        let grown = scope.spawn(move || {
            begun.recv().unwrap();
            allocator.allocate(&Request::new(100))
        });
        // The closing thread has looked whether anything is in flight, and is about to look for live slices.
        crate::common::lock::before_next(move || {
            begin.send(()).unwrap();
            // Nothing comes if the growth is refused.
            let _ = reached.recv_timeout(Duration::from_millis(500));
        });
        let closed = allocator.close(LiveSlices::Refuse);
        let _ = open.send(());
        let grown = grown.join().unwrap();
        assert!(closed.is_err() || grown.is_err(), "{grown:?} in an allocator that is closed");
    });
    assert_agree(allocator, &device.ledger);
}

/// Free running: the device of the test panics where a page goes back twice.
#[test]
fn cleanups_during_allocations_lose_no_slice_and_no_page() {
    let mut random = Random::with_seed_or(16);
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, &[pool(16 * K, Some(M))], options()).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let mut random = random.split();
            let (allocator, device, done) = (&allocator, &device, &done);
            scope.spawn(move || {
                let _end = AtEnd(|| done.store(true, Ordering::Relaxed));
                let mut live: Vec<Slice> = Vec::new();
                for operation in 0..30_000 {
                    if operation % 20 == 0 {
                        allocator.cleanup().unwrap();
                    }
                    if live.len() > 20 || (!live.is_empty() && random.below(2) == 0) {
                        let slice = random.take(&mut live);
                        assert!(device.is_out(slice.memory));
                        assert_eq!(allocator.get(slice.id), Ok(slice));
                        allocator.free(slice.id).unwrap();
                    } else {
                        live.push(allocator.allocate(&Request::new(random.within(1, 16 * K))).unwrap());
                    }
                }
                for slice in live {
                    allocator.free(slice.id).unwrap();
                }
            });
        }
        while !done.load(Ordering::Relaxed) {
            allocator.trim(random.below(256 * K)).unwrap();
            thread::yield_now();
        }
    });
    allocator.cleanup().unwrap();
    assert_eq!((device.pages(), device.given()), (0, device.taken()));
    assert!(device.given() > 100);
    assert_agree(&allocator, &device);
}

/// One free of two is the one that counts, alone or in a batch.
#[test]
fn of_two_threads_that_free_the_same_slice_one_succeeds() {
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, &[pool(64 * K, None)], options()).unwrap();
    let shared: Mutex<Vec<SliceId>> = Mutex::default();
    let successes = AtomicU64::new(0);
    let barrier = Meeting::of(2);
    thread::scope(|scope| {
        let play = |first: bool| {
            for round in 0..3_000 {
                if first {
                    *shared.lock().unwrap() =
                        (0..8).map(|_| allocator.allocate(&Request::new(1000)).unwrap().id).collect();
                    successes.store(0, Ordering::Relaxed);
                }
                barrier.wait();
                let ids = shared.lock().unwrap().clone();
                let freed = if first {
                    allocator.free_many(&ids).map_err(|refused| refused.error)
                } else if round % 2 == 0 {
                    allocator.free(ids[5])
                } else {
                    allocator.free_many(&[ids[6], ids[5]]).map_err(|refused| refused.error)
                };
                match freed {
                    Ok(()) => {
                        successes.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => assert_eq!(error, Error::StaleHandle),
                }
                barrier.wait();
                if first {
                    // Two batches may each have claimed what the other wants; then neither frees anything.
                    let most_refused = if round % 2 == 0 { 1 } else { 0 };
                    assert!((most_refused..=1).contains(&successes.load(Ordering::Relaxed)));
                    for id in ids {
                        let _ = allocator.free(id);
                    }
                    assert_eq!(allocator.statistics().slices, 0);
                }
            }
        };
        scope.spawn(move || play(false));
        play(true);
    });
    assert_agree(&allocator, &device);
}

/// What does not change during a walk is shown exactly once.
#[test]
fn a_walk_shows_what_stays_exactly_once_while_others_come_and_go() {
    let mut random = Random::with_seed_or(48);
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, &[pool(64 * K, None)], options()).unwrap();
    let mut stay = HashSet::new();
    let mut go = Vec::new();
    for i in 0..600 {
        let id = allocator.allocate(&Request::new(random.within(1, 2000))).unwrap().id;
        if i % 3 == 0 {
            stay.insert(id);
        } else {
            go.push(id);
        }
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut random = random.split();
        let (allocator, done) = (&allocator, &done);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                allocator.free(random.take(&mut go)).unwrap();
                go.push(allocator.allocate(&Request::new(random.within(1, 2000))).unwrap().id);
            }
        });
        let _end = AtEnd(|| done.store(true, Ordering::Relaxed));
        for _ in 0..300 {
            let mut seen: HashMap<SliceId, u32> = HashMap::new();
            let _ = allocator.walk(|range| {
                if let Some(id) = range.id.filter(|id| stay.contains(id)) {
                    *seen.entry(id).or_default() += 1;
                }
                ControlFlow::<()>::Continue(())
            });
            assert!(seen.len() == stay.len() && seen.values().all(|&times| times == 1));
            let figures = allocator.pool_statistics(0).unwrap();
            assert_eq!(figures.reserved, figures.in_use + figures.padding + figures.free);
            assert!((599..=600).contains(&figures.slices));
        }
    });
    assert_balanced(&allocator);
    assert_agree(&allocator, &device);
}
