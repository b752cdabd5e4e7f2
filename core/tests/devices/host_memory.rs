//! Host memory: what is asked for when, that it goes back, and what happens when there is none.

use crate::common::books::{Snapshot, assert_agree, ranges};
use crate::common::devices::LedgerDevice;
use crate::common::host::HostLedger;
use crate::common::pools::{KINDS, exclusive, touch};
use crate::common::random::Random;
use crate::common::{K, M};
use slicepool_core::{Allocator, AllocatorOptions, Device, Error, PoolOptions, Request, Slice};

fn place<D: Device>(allocator: &Allocator<D>, size: u64) -> Slice {
    allocator.allocate(&Request::new(size)).unwrap()
}

fn pool(page_size: u64) -> PoolOptions {
    PoolOptions::sliced_pages(page_size, page_size, None)
}

// ---- asking and giving back

/// Two pools of sliced pages, a pool of each kind with one that takes what the others are too full for, all kinds.
fn lists() -> Vec<Vec<PoolOptions>> {
    let mut lists =
        vec![vec![PoolOptions::sliced_pages(64 * K, 4 * K, Some(M)), PoolOptions::sliced_pages(M, M, None)]];
    lists.extend(KINDS.map(|(_, pool)| vec![pool.with_dealloc_period(Some(20)), exclusive(M)]));
    lists.push(KINDS.map(|(_, pool)| pool).to_vec());
    lists
}

/// The whole life of an allocator, to be interrupted anywhere.
fn live_through(pools: &[PoolOptions], device: &LedgerDevice, host: &HostLedger) -> Result<(), Error> {
    let allocator = Allocator::try_new(device, pools, AllocatorOptions::default().with_memory(host.memory()))?;
    let mut live = Vec::new();
    if pools.len() > 2 {
        for i in 0..100 {
            let pool = i % pools.len() as u32;
            live.push(allocator.allocate(&Request::new(1 + u64::from(i) * 97).in_pool(pool))?.id);
        }
    }
    for i in 0..300 {
        live.push(allocator.allocate(&Request::new(1 + i * 777 % (32 * K)))?.id);
    }
    let requests = [Request::new(5000); 100];
    let batch = allocator.allocate_many(&requests).map_err(|refused| refused.error)?;
    for id in live {
        allocator.free(id)?;
    }
    let ids: Vec<_> = batch.iter().map(|slice| slice.id).collect();
    allocator.free_many(&ids).map_err(|refused| refused.error)?;
    allocator.destroy().map(drop).map_err(|(_, error)| error)
}

/// Host memory goes back, whatever happens.
#[test]
fn all_host_memory_and_all_pages_are_given_back_at_the_end() {
    for pools in lists() {
        let host = HostLedger::new();
        let device = LedgerDevice::new();
        assert_eq!(live_through(&pools, &device, &host), Ok(()));
        host.assert_all_returned();
        device.assert_all_returned();
        assert!(host.calls() > 15 && device.given() > 5, "{} {}", host.calls(), device.given());
        assert_eq!(device.given(), device.taken());
    }
}

/// The k-th host allocation fails, for every k, once and from then on; the allocator is dropped there.
#[test]
fn an_allocator_that_host_memory_fails_anywhere_leaks_nothing() {
    for pools in lists() {
        fail_anywhere(&pools);
    }
}

fn fail_anywhere(pools: &[PoolOptions]) {
    for k in 1.. {
        for for_ever in [false, true] {
            let host = HostLedger::new();
            let device = LedgerDevice::new();
            if for_ever {
                host.fail_from(k);
            } else {
                host.fail_once(k);
            }
            let result = live_through(pools, &device, &host);
            host.assert_all_returned();
            device.assert_all_returned();
            if host.refused() == 0 {
                assert_eq!(result, Ok(()));
                assert!(k > 15);
                return;
            }
            // Where one call fails, another pool may still serve.
            let served = result.is_ok() && !for_ever;
            let refused = matches!(result, Err(Error::OutOfHostMemory { bytes }) if bytes > 0);
            assert!(served || refused, "{k}: {result:?}");
        }
    }
}

/// Growth of the books happens in the warm-up only.
#[test]
fn the_steady_path_asks_for_no_host_memory() {
    let mut random = Random::with_seed_or(7);
    let host = HostLedger::new();
    let device = LedgerDevice::new();
    let pools = [PoolOptions::sliced_pages(16 * M, 16 * M, None)];
    let allocator =
        Allocator::try_new(&device, &pools, AllocatorOptions::default().with_memory(host.memory())).unwrap();
    let mut live: Vec<_> = (0..1000).map(|_| place(&allocator, random.within(1, 8000)).id).collect();
    // Half of the slices are free from now on, and their nodes serve whatever comes.
    for _ in 0..500 {
        allocator.free(random.take(&mut live)).unwrap();
    }
    let (calls, device_calls) = (host.calls(), device.calls());
    for _ in 0..200_000 {
        allocator.free(random.take(&mut live)).unwrap();
        let slice = allocator.allocate(&Request::new(random.within(1, 8000)).aligned(1 << random.below(13))).unwrap();
        let _ = allocator.try_resize(slice.id, random.within(1, 8000));
        allocator.get(slice.id).unwrap();
        live.push(slice.id);
    }
    allocator.statistics();
    allocator.largest_free();
    ranges(&allocator);
    allocator.trim(0).unwrap();
    assert_eq!((host.calls(), device.calls()), (calls, device_calls));
    assert_agree(&allocator, &device);
}
// ---- failing host memory

/// For every k, the k-th host allocation of a call fails, once and from then on. Nothing has changed then,
/// and the same call succeeds afterwards.
fn fail_each_host_allocation(
    pools: &[PoolOptions],
    prepare: impl Fn(&Allocator<&LedgerDevice>) -> Vec<Slice>,
    call: impl Fn(&Allocator<&LedgerDevice>, &[Slice]) -> Result<(), Error>,
) -> u64 {
    let mut failures = 0;
    for for_ever in [false, true] {
        for k in 1.. {
            let host = HostLedger::new();
            let device = LedgerDevice::new();
            let options = AllocatorOptions::default().with_memory(host.memory());
            let allocator = Allocator::try_new(&device, pools, options).unwrap();
            let prepared = prepare(&allocator);
            let before = Snapshot::of(&allocator);
            if for_ever {
                host.fail_from(k);
            } else {
                host.fail_once(k);
            }
            let result = call(&allocator, &prepared);
            let hit = host.refused() != 0;
            host.stop_failing();
            if result.is_err() {
                failures += 1;
                assert!(matches!(result, Err(Error::OutOfHostMemory { bytes: 1.. })), "k = {k}: {result:?}");
                assert_eq!(Snapshot::of(&allocator), before, "k = {k}");
                assert_agree(&allocator, &device);
                assert_eq!(call(&allocator, &prepared), Ok(()), "k = {k}, again");
            }
            assert_agree(&allocator, &device);
            host.assert_used_rightly();
            assert!(hit || result.is_ok());
            if !hit {
                break;
            }
        }
    }
    failures
}

/// Creation.
#[test]
fn creation_that_host_memory_fails_is_refused_and_leaves_nothing_behind() {
    for k in 1.. {
        let host = HostLedger::new();
        let device = LedgerDevice::new();
        host.fail_once(k);
        let pools = [pool(4096), pool(M), pool(64 * M)];
        let options = AllocatorOptions::default().with_memory(host.memory());
        let result = Allocator::try_new(&device, &pools, options).map(drop);
        host.assert_all_returned();
        assert_eq!(device.calls(), 0);
        if host.refused() == 0 {
            assert_eq!(result, Ok(()));
            assert!(k > 6, "three pools are made with {k} allocations");
            return;
        }
        assert!(matches!(result, Err(Error::OutOfHostMemory { bytes: 1.. })), "{result:?}");
    }
}

/// A growth needs nodes, a page record and a ledger entry.
#[test]
fn the_first_growth_that_host_memory_fails_changes_nothing_and_can_be_tried_again() {
    let failures = fail_each_host_allocation(
        &[pool(4096)],
        |_| Vec::new(),
        |allocator, _| allocator.allocate(&Request::new(100)).map(drop),
    );
    assert!(failures >= 4, "{failures}");
}

/// The array of page records grows.
#[test]
fn a_growth_for_which_the_page_records_run_out_changes_nothing_and_can_be_tried_again() {
    for pages in [8, 16, 30, 31, 32, 33, 64] {
        fail_each_host_allocation(
            &[pool(4096)],
            |allocator| (0..pages).map(|_| place(allocator, 4096)).collect(),
            |allocator, _| allocator.allocate(&Request::new(4096)).map(drop),
        );
    }
}

/// The first growth of every kind.
#[test]
fn the_first_growth_of_any_kind_that_host_memory_fails_changes_nothing_and_can_be_tried_again() {
    for (name, pool) in KINDS {
        let failures = fail_each_host_allocation(
            &[pool],
            |_| Vec::new(),
            |allocator, _| allocator.allocate(&Request::new(100)).map(drop),
        );
        assert!(failures >= 4, "{failures} for {name}");
    }
}

/// What a pool needs for one page more: a node, a record, in a direct one a place to find it by its size.
#[test]
fn one_page_more_of_any_kind_for_which_host_memory_fails_changes_nothing_and_can_be_tried_again() {
    for (name, pool) in KINDS {
        let mut failures = 0;
        for pages in 1..70 {
            // Some places are free, but too small or, in a direct pool, of another size. Pages that grow would serve.
            let step = if name.starts_with("growing") { usize::MAX } else { 3 };
            failures += fail_each_host_allocation(
                std::slice::from_ref(&pool),
                |allocator| {
                    let slices: Vec<_> = (0..pages).map(|_| place(allocator, 12 * K)).collect();
                    slices.iter().step_by(step).skip(1).for_each(|slice| allocator.free(slice.id).unwrap());
                    slices
                },
                |allocator, _| allocator.allocate(&Request::new(14 * K)).map(drop),
            );
        }
        assert!(failures >= 2, "{failures} for {name}");
    }
}

/// A page that is free needs nothing.
#[test]
fn a_free_page_serves_again_without_host_memory_whatever_the_kind() {
    for (_, pool) in KINDS {
        for pages in [1, 16, 17, 32, 33, 64] {
            let host = HostLedger::new();
            let device = LedgerDevice::new();
            let options = AllocatorOptions::default().with_memory(host.memory());
            let pool = pool.clone().with_dealloc_period(Some(u64::MAX));
            let allocator = Allocator::try_new(&device, &[pool], options).unwrap();
            let slices: Vec<_> = (0..pages).map(|_| place(&allocator, 12 * K)).collect();
            slices.iter().for_each(|slice| allocator.free(slice.id).unwrap());
            // Nodes for whatever comes are got with the first operation that finds too few.
            touch(&allocator, 12 * K);
            let calls = host.calls();
            host.fail_from(1);
            let again: Vec<_> = (0..pages).map(|_| place(&allocator, 12 * K)).collect();
            for slice in again {
                assert_eq!(allocator.try_resize(slice.id, 12 * K - 31), Ok(slice));
            }
            assert_eq!((host.calls(), device.given()), (calls, device.pages()));
            assert_agree(&allocator, &device);
        }
    }
}

/// A pool that has no node left does not speak for those after it.
#[test]
fn what_a_later_pool_holds_serves_although_an_earlier_one_lacks_host_memory() {
    for (name, pool) in KINDS {
        let host = HostLedger::new();
        let device = LedgerDevice::new();
        let options = AllocatorOptions::default().with_memory(host.memory());
        let allocator = Allocator::try_new(&device, &[pool, exclusive(M)], options).unwrap();
        let place_in = |pool, size| allocator.allocate(&Request::new(size).in_pool(pool));
        for size in [5 * K, 256 * K] {
            allocator.free(place_in(1, size).unwrap().id).unwrap();
        }
        // Nodes are used up, or page records; in pages of one slice the latter.
        place_in(0, 5 * K).unwrap();
        host.fail_from(1);
        let refused = (0..1000).find_map(|_| place_in(0, 32).err());
        assert!(matches!(refused, Some(Error::OutOfHostMemory { .. })), "{name}: {refused:?}");
        // A page that suits the request, then a far larger one, since the device gives none.
        device.limit_to(device.bytes());
        for expected in [5 * K, 256 * K] {
            let size = allocator.allocate(&Request::new(5 * K)).map(|slice| slice.size);
            assert_eq!(size, Ok(expected), "{name}");
        }
        assert_agree(&allocator, &device);
    }
}

/// The array of nodes grows.
#[test]
fn a_slice_for_which_the_nodes_run_out_changes_nothing_and_can_be_tried_again() {
    let mut failures = 0;
    for count in 1..70 {
        failures += fail_each_host_allocation(
            &[pool(M)],
            |allocator| (0..count).map(|_| place(allocator, 100)).collect(),
            |allocator, _| allocator.allocate(&Request::new(100)).map(drop),
        );
    }
    // A chunk of nodes at a time; a call that is refused one asks once more before it gives up.
    assert!(failures >= 3, "{failures}");
}

/// Many growths in one call, and the list of the answers.
#[test]
fn a_batch_that_host_memory_fails_changes_nothing_and_can_be_tried_again() {
    let failures = fail_each_host_allocation(
        &[pool(4096), pool(64 * K)],
        |allocator| [100, 5000, 3000].map(|size| place(allocator, size)).to_vec(),
        |allocator, _| {
            let batch = allocator.allocate_each(80, |i| Ok(Request::new(1 + u64::from(i) * 97)));
            batch.map(drop).map_err(|refused| refused.error)
        },
    );
    assert!(failures >= 10, "{failures}");
}

/// A hole that comes into being.
#[test]
fn a_resize_that_host_memory_fails_changes_nothing_and_can_be_tried_again() {
    let mut failures = 0;
    for count in 2..70 {
        failures += fail_each_host_allocation(
            &[pool(M)],
            |allocator| (0..count).map(|_| place(allocator, 1000)).collect(),
            // A new hole between the first slice and the second needs a node.
            |allocator, slices| allocator.try_resize(slices[0].id, 100).map(drop),
        );
    }
    assert!(failures >= 4, "{failures}");
}

/// Freeing and giving back need no host memory at all.
#[test]
fn freeing_trimming_and_destroying_ask_for_no_host_memory() {
    let host = HostLedger::new();
    let device = LedgerDevice::new();
    let options = AllocatorOptions::default().with_memory(host.memory());
    let allocator = Allocator::try_new(&device, &[pool(64 * K)], options).unwrap();
    let slices: Vec<_> = (0..2000).map(|i| place(&allocator, 1 + i * 31 % 5000)).collect();
    host.fail_from(1);
    let calls = host.calls();
    for slice in slices.iter().step_by(2) {
        allocator.free(slice.id).unwrap();
    }
    let rest: Vec<_> = slices.iter().skip(1).step_by(2).map(|slice| slice.id).collect();
    allocator.free_many(&rest).unwrap();
    allocator.trim(3 * 64 * K).unwrap();
    assert_eq!(device.pages(), 3);
    assert_agree(&allocator, &device);
    assert!(allocator.destroy().is_ok());
    assert_eq!(host.calls(), calls);
}
