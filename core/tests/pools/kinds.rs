//! What pools of every kind have in common: a steady path, books, handles, and threads that are kept apart.

use crate::common::books::{Snapshot, assert_agree};
use crate::common::devices::{Gate, LedgerDevice, NONE_LEFT};
use crate::common::host::HostLedger;
use crate::common::lock::{WatchedLock, yielding};
use crate::common::meeting::Meeting;
use crate::common::pools::{
    KINDS, capped, direct, exclusive, free_all, full, growing, options, over, place, sliced, touch,
};
use crate::common::random::Random;
use crate::common::{K, M};
use slicepool_core::{Allocator, BatchError, Error, PoolOptions, Request, Slice, SliceId};
use std::collections::HashSet;
use std::thread;

/// All kinds, with pages that age and without.
fn kinds_with_and_without(period: u64) -> impl Iterator<Item = PoolOptions> {
    KINDS.into_iter().flat_map(move |(_, pool)| [pool.clone(), pool.with_dealloc_period(Some(period))])
}

// ---- the steady path

/// Reserved constant, device calls constant, no host memory.
#[test]
fn a_hundred_thousand_equal_slices_call_the_device_and_the_host_no_more_than_one() {
    for pool in kinds_with_and_without(1000) {
        for size in [1, 1000, 64 * K] {
            let (host, device) = (HostLedger::new(), LedgerDevice::new());
            let options = options().with_memory(host.memory());
            let allocator = Allocator::try_new(&device, std::slice::from_ref(&pool), options).unwrap();
            touch(&allocator, size);
            let settled = (allocator.statistics().reserved, device.calls(), host.calls(), host.bytes());
            assert_eq!(device.calls(), 1);
            for round in 0..100_000 {
                let slice = place(&allocator, size);
                assert_eq!(allocator.get(slice.id), Ok(slice));
                allocator.free(slice.id).unwrap();
                if round % 100 == 0 {
                    let now = (allocator.statistics().reserved, device.calls(), host.calls(), host.bytes());
                    assert_eq!(now, settled, "round {round} of {size} bytes in {pool:?}");
                }
            }
            assert_eq!((allocator.statistics().reserved_peak, device.calls()), (settled.0, 1));
            assert_agree(&allocator, &device);
        }
    }
}

/// Some slices of some sizes, which come and go and are resized.
#[test]
fn slices_that_come_and_go_ask_for_no_host_memory_after_the_warm_up() {
    // All of them together stay below the watermark.
    let sizes = [1, 100, 1000, 1024, 3000, 5000];
    // Pages that age, but are not yet too old when the test ends: giving them back is no steady path.
    for pool in kinds_with_and_without(1 << 20) {
        let mut random = Random::with_seed_or(19);
        let (host, device) = (HostLedger::new(), LedgerDevice::new());
        let options = options().with_memory(host.memory());
        let allocator = Allocator::try_new(&device, std::slice::from_ref(&pool), options).unwrap();
        // More of everything than ever again.
        for (size, count) in sizes.map(|size| (size, 20)).into_iter().chain([(1, 120)]) {
            let slices: Vec<_> = (0..count).map(|_| place(&allocator, size)).collect();
            free_all(&allocator, &slices);
        }
        let mut live: Vec<_> = (0..20).map(|_| place(&allocator, 1)).collect();
        let calls = host.calls();
        for round in 0..100_000 {
            allocator.free(random.take(&mut live).id).unwrap();
            let slice = place(&allocator, sizes[random.below(6) as usize]);
            allocator.try_resize(slice.id, slice.size).unwrap();
            let resized = allocator.try_resize(slice.id, 1).unwrap();
            assert_eq!(allocator.get(slice.id), Ok(resized));
            let _ = allocator.try_resize(slice.id, random.within(1, 9000));
            allocator.would_fit(&Request::new(700)).unwrap();
            live.push(slice);
            if round % 1000 == 0 {
                assert_eq!(host.calls(), calls, "round {round} of {pool:?}");
                assert_agree(&allocator, &device);
            }
        }
        assert_eq!(host.calls(), calls);
        // Nor do freeing and giving back.
        host.fail_from(1);
        free_all(&allocator, &live);
        allocator.trim(10 * K).unwrap();
        assert_agree(&allocator, &device);
        assert!(allocator.destroy().is_ok());
        assert_eq!(host.calls(), calls);
    }
}

/// Nothing else is looked at, and no lock is taken twice.
#[test]
fn a_request_for_which_there_is_room_takes_one_lock() {
    for (name, pool) in KINDS {
        let (device, lock) = (LedgerDevice::new(), WatchedLock::new());
        let allocator = Allocator::try_new(&device, &[pool], options().with_lock(lock.kind())).unwrap();
        touch(&allocator, 1000);
        let before = lock.taken();
        place(&allocator, 1000);
        assert_eq!(lock.taken() - before, 1, "{name}");
        drop(allocator);
        lock.assert_used_rightly();
    }
}

// ---- books

/// All kinds in one allocator, over a device with little memory.
#[test]
fn a_life_with_pools_of_all_kinds_keeps_the_books_balanced() {
    let mut random = Random::with_seed_or(20);
    for period in [None, Some(50)] {
        let device = LedgerDevice::new();
        let pools = [KINDS.map(|(_, pool)| pool.with_dealloc_period(period)).as_slice(), &[exclusive(0)]].concat();
        let allocator = over(&device, &pools);
        let mut live: Vec<Slice> = Vec::new();
        for operation in 0..30_000 {
            match random.below(10) {
                0..5 if live.len() < 150 => {
                    let size = random.scaled(64 * K) * u64::from(random.below(20) != 0);
                    let mut request = Request::new(size).aligned(1 << random.below(6));
                    if random.below(2) == 0 {
                        request = request.in_pool(random.below(8) as u32);
                    }
                    if let Ok(slice) = allocator.allocate(&request) {
                        assert!(slice.size >= size && slice.offset % request.alignment == 0);
                        live.push(slice);
                    }
                }
                5 if !live.is_empty() => {
                    let index = random.below(live.len() as u64) as usize;
                    if let Ok(slice) = allocator.try_resize(live[index].id, random.scaled(64 * K)) {
                        live[index] = slice;
                    }
                }
                6 if operation % 5 == 0 => allocator.trim(random.below(2 * M)).unwrap(),
                7 if operation % 50 == 0 => device.limit_to(device.bytes() + random.below(M)),
                _ if !live.is_empty() => allocator.free(random.take(&mut live).id).unwrap(),
                _ => {}
            }
            if operation % 100 == 0 {
                assert_agree(&allocator, &device);
                live.iter().for_each(|slice| assert_eq!(allocator.get(slice.id), Ok(*slice)));
            }
        }
        free_all(&allocator, &live);
        let figures = allocator.statistics();
        assert_eq!((figures.in_use, figures.padding, figures.pages_idle), (0, 0, figures.pages));
        assert_agree(&allocator, &device);
        assert!(allocator.destroy().is_ok());
        assert_eq!((device.pages(), device.given()), (0, device.taken()));
    }
}

// ---- handles

/// Scenario 37: every kind against every other, in both directions.
#[test]
fn a_handle_of_a_pool_of_any_kind_is_foreign_to_every_other_allocator() {
    let device = LedgerDevice::new();
    let allocators = KINDS.map(|(_, pool)| over(&device, &[pool]));
    let slices: Vec<_> = allocators.iter().map(|allocator| place(allocator, 1000)).collect();
    let before: Vec<_> = allocators.iter().map(Snapshot::of).collect();
    for (one, allocator) in allocators.iter().enumerate() {
        for (other, slice) in slices.iter().enumerate().filter(|(other, _)| *other != one) {
            assert_eq!(allocator.free(slice.id), Err(Error::ForeignHandle), "{one} {other}");
            assert_eq!(allocator.get(slice.id), Err(Error::ForeignHandle));
            assert_eq!(allocator.try_resize(slice.id, 1), Err(Error::ForeignHandle));
            let refused = Err(BatchError { index: 1, error: Error::ForeignHandle });
            assert_eq!(allocator.free_many(&[slices[one].id, slice.id]), refused);
        }
    }
    assert_eq!(allocators.iter().map(Snapshot::of).collect::<Vec<_>>(), before);
    for (allocator, slice) in allocators.iter().zip(slices) {
        assert_eq!(allocator.get(slice.id), Ok(slice));
        allocator.free(slice.id).unwrap();
        assert_eq!(allocator.free(slice.id), Err(Error::StaleHandle));
    }
}

/// Scenario 37: a number that would be right in another pool of the same allocator.
#[test]
fn a_handle_guessed_for_a_pool_of_another_kind_is_refused() {
    let device = LedgerDevice::new();
    let kinds = KINDS.map(|(_, pool)| pool);
    let allocator = over(&device, &kinds);
    let in_pool = |pool: usize, size| allocator.allocate(&Request::new(size).in_pool(pool as u32)).unwrap();
    // More slots are known in the last pools than in the first, some of them freed.
    let mut live: Vec<Slice> = Vec::new();
    for pool in 0..kinds.len() {
        for i in 0..=pool as u64 {
            let freed = in_pool(pool, 2000 + i);
            live.push(in_pool(pool, 1000 + i));
            allocator.free(freed.id).unwrap();
        }
    }
    let known: HashSet<_> = live.iter().map(|slice| slice.id).collect();
    let before = Snapshot::of(&allocator);
    let mut refused = 0;
    for slice in &live {
        for distance in -8i64..=8 {
            let raw = slice.id.to_raw().wrapping_add_signed(distance << 48);
            let Some(id) = SliceId::from_raw(raw).filter(|id| !known.contains(id)) else { continue };
            assert!(matches!(allocator.get(id), Err(Error::ForeignHandle | Error::StaleHandle)), "{raw:x}");
            assert!(matches!(allocator.free(id), Err(Error::ForeignHandle | Error::StaleHandle)), "{raw:x}");
            refused += 1;
        }
    }
    assert!(refused > live.len() * 8, "{refused}");
    assert_eq!(Snapshot::of(&allocator), before);
    live.iter().for_each(|slice| assert_eq!(allocator.get(slice.id), Ok(*slice)));
    assert_agree(&allocator, &device);
}

/// Scenario 35 and more: cleaning up, growing anew and freeing others does not touch a handle.
#[test]
fn handles_of_live_slices_survive_whatever_happens_to_other_pages() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        let slices: Vec<_> = (0..9).map(|i| place(&allocator, 30_000 + i * 1000)).collect();
        let (kept, freed): (Vec<Slice>, Vec<Slice>) = slices.iter().partition(|slice| slice.size % 3 == 0);
        assert!(!kept.is_empty() && !freed.is_empty());
        for round in 0..3 {
            if round == 0 {
                free_all(&allocator, &freed);
            }
            allocator.cleanup().unwrap();
            let more: Vec<_> = (0..9).map(|i| place(&allocator, 20_000 + i * 1000)).collect();
            for slice in &kept {
                assert_eq!((allocator.get(slice.id), device.is_out(slice.memory)), (Ok(*slice), true), "{name}");
            }
            for slice in &freed {
                assert_eq!(allocator.get(slice.id), Err(Error::StaleHandle), "{name}");
            }
            assert_agree(&allocator, &device);
            free_all(&allocator, &more);
        }
    }
}

// ---- threads

/// Scenario 38.
#[test]
fn threads_that_ask_for_nothing_or_for_equal_sizes_at_once_get_distinct_slices() {
    let pools = [exclusive(0), exclusive(64 * K), direct(None), growing(K, 64 * K), sliced(64 * K, 64 * K, None)];
    for (pool, size) in [(0, 0), (1, 256), (2, 256), (3, 256), (4, 256)] {
        let device = LedgerDevice::new();
        let allocator = Allocator::try_new(&device, &pools, options().with_lock(yielding())).unwrap();
        let request = Request::new(size).in_pool(pool);
        let meeting = Meeting::of(4);
        let slices: Vec<Slice> = thread::scope(|scope| {
            let threads = [(); 4].map(|()| {
                scope.spawn(|| {
                    meeting.wait();
                    let mut mine = Vec::new();
                    for i in 0..2000 {
                        mine.push(allocator.allocate(&request).unwrap());
                        if i % 4 == 3 {
                            allocator.free(mine.swap_remove(i / 4).id).unwrap();
                        }
                    }
                    mine
                })
            });
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let ids: HashSet<_> = slices.iter().map(|slice| slice.id).collect();
        let places: HashSet<_> = slices.iter().map(|slice| (slice.memory, slice.offset)).collect();
        assert_eq!((ids.len(), places.len(), allocator.statistics().slices), (6000, 6000, 6000));
        slices.iter().for_each(|slice| assert_eq!(allocator.get(slice.id), Ok(*slice)));
        assert_agree(&allocator, &device);
    }
}

/// Scenario 43: the device has room for one page more.
#[test]
fn of_two_threads_that_grow_with_room_for_one_page_one_is_served_at_least() {
    for (pool, shares) in [(exclusive(4096), false), (direct(None), false), (growing(4096, 4096), true)] {
        let device = LedgerDevice::new();
        device.limit_to(4096);
        let allocator =
            Allocator::try_new(&device, std::slice::from_ref(&pool), options().with_lock(yielding())).unwrap();
        let meeting = Meeting::of(2);
        thread::scope(|scope| {
            let play = || {
                for round in 0..1000 {
                    meeting.wait();
                    let size = if round % 2 == 0 { 2048 } else { 4096 };
                    // Two pages of 2048 bytes fit as well.
                    let mine = allocator.allocate(&Request::new(size));
                    if let Err(error) = mine {
                        assert!(matches!(error, Error::OutOfDeviceMemory { code: NONE_LEFT, .. }), "{error}");
                    }
                    meeting.wait();
                    let live = allocator.statistics().slices;
                    assert!(live == 1 || (live == 2 && size == 2048), "{live} of {size} in {pool:?}");
                    assert!(live == 2 || size == 4096 || shares, "{pool:?}");
                    meeting.wait();
                    if let Ok(slice) = mine {
                        allocator.free(slice.id).unwrap();
                    }
                    meeting.wait();
                    allocator.cleanup().unwrap();
                    meeting.wait();
                }
            };
            scope.spawn(play);
            play();
        });
        assert_eq!((device.bytes_peak(), device.pages(), device.given()), (4096, 0, device.taken()));
        assert_agree(&allocator, &device);
    }
}

/// Scenario 43: the pool's cap has room for one page more, which is on its way.
#[test]
fn a_thread_is_refused_while_another_has_the_last_page_of_a_growing_pool_in_hand() {
    let (device, reached, open) = Gate::new();
    let pool = capped(growing(4096, 8192), 4096);
    let allocator = Allocator::try_new(&device, &[pool], options().with_lock(yielding())).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| allocator.allocate(&Request::new(1000)));
        reached.recv().unwrap();
        let Error::PoolCapacityExceeded { size, capacity, in_use, pending: 0, largest_free, .. } =
            full(500, 4096, 0, 0)
        else {
            unreachable!()
        };
        let growing =
            Error::PoolCapacityExceeded { size, capacity, in_use, pending: 0, largest_free, growths_in_flight: 1 };
        assert_eq!(allocator.allocate(&Request::new(500)), Err(growing));
        open.send(()).unwrap();
        let first = first.join().unwrap().unwrap();
        assert_eq!(place(&allocator, 500).memory, first.memory);
    });
    assert_eq!(device.ledger.given(), 1);
    assert_agree(&allocator, &device.ledger);
}

/// What is being got is not idle, and what is got is not idle either before it is used.
#[test]
fn a_cleanup_during_a_growth_returns_nothing_that_the_growth_uses_whatever_the_kind() {
    for (name, pool) in KINDS {
        let (device, reached, open) = Gate::new();
        let pool = pool.with_dealloc_period(Some(5));
        let allocator = Allocator::try_new(&device, &[pool], options().with_lock(yielding())).unwrap();
        thread::scope(|scope| {
            let growing = scope.spawn(|| place(&allocator, 1000));
            reached.recv().unwrap();
            // Other pages come, age and go meanwhile.
            for _ in 0..20 {
                touch(&allocator, 2000);
            }
            touch(&allocator, 5000);
            allocator.cleanup().unwrap();
            assert_eq!((device.ledger.pages(), allocator.statistics().growths_in_flight), (0, 1), "{name}");
            open.send(()).unwrap();
            let slice = growing.join().unwrap();
            allocator.cleanup().unwrap();
            assert_eq!((allocator.get(slice.id), device.ledger.is_out(slice.memory)), (Ok(slice), true), "{name}");
        });
        assert_agree(&allocator, &device.ledger);
    }
}
