//! Lists of pools: which pool serves a request, what is said when none does, and the lists that come ready.

use crate::common::books::{Snapshot, assert_agree};
use crate::common::devices::{LedgerDevice, NONE_LEFT, ScriptedDevice};
use crate::common::pools::{
    KINDS, MEMORY, allocate, capped, direct, exclusive, full, growing, options, over, place, sliced, touch,
};
use crate::common::random::Random;
use crate::common::{G, K, M};
use slicepool_core::layout::{self, PoolList, Properties};
use slicepool_core::{
    Allocator, Device, DeviceError, DeviceFault, DeviceMemory, Error, MemoryType, NearPage, PageRequest, PoolOptions,
    PoolType, Request,
};
use std::cell::Cell;

/// Live slices of each pool.
fn slices<D: Device>(allocator: &Allocator<D>) -> Vec<u32> {
    (0..allocator.pool_count()).map(|pool| allocator.pool_statistics(pool).unwrap().slices).collect()
}

// ---- what a pool takes

/// A request above the largest slice leaves less than a fifth of the page, or is not taken.
#[test]
fn the_least_request_that_nearly_fills_a_page_leaves_just_less_than_a_fifth() {
    // Pages of which a fifth is a whole number of bytes, and others.
    for (page, least) in [(32_000, 25_601), (160, 129), (1024, 820), (64, 52), (96, 77), (32, 26)] {
        for (near_page, cap, taken) in [
            (NearPage::WhenUncapped, None, true),
            (NearPage::WhenUncapped, Some(10 * page), false),
            (NearPage::Always, None, true),
            (NearPage::Always, Some(10 * page), true),
            (NearPage::Never, None, false),
            (NearPage::Never, Some(10 * page), false),
        ] {
            let device = LedgerDevice::new();
            let allocator = over(&device, &[sliced(page, 8, cap).with_near_page(near_page)]);
            for (size, fits) in [(8, true), (9, false), (least - 1, false), (least, taken), (page, taken)] {
                let result = allocator.allocate(&Request::new(size)).map(|slice| slice.size);
                let expected =
                    if fits { Ok(size.next_multiple_of(32)) } else { Err(Error::TooLarge { size, limit: 8 }) };
                assert_eq!(result, expected, "page {page}, {near_page:?}, cap {cap:?}");
            }
            let limit = if taken { page } else { 8 };
            assert_eq!(
                allocator.allocate(&Request::new(page + 1)),
                Err(Error::TooLarge { size: page + 1, limit }),
                "page {page}, {near_page:?}, cap {cap:?}"
            );
        }
    }
}

// ---- which pool serves

/// First what is held, in any pool that takes the request, in order.
#[test]
fn what_any_pool_holds_is_used_before_any_pool_grows() {
    let kinds = KINDS.map(|(_, pool)| pool);
    for later in 0..kinds.len() {
        for earlier in 0..kinds.len() {
            let device = LedgerDevice::new();
            let allocator = over(&device, &[kinds[earlier].clone(), kinds[later].clone()]);
            let held = allocator.allocate(&Request::new(3000).in_pool(1)).unwrap();
            allocator.free(held.id).unwrap();
            let served = place(&allocator, 3000);
            assert_eq!((served.memory, slices(&allocator)), (held.memory, vec![0, 1]), "{earlier} {later}");
            // Where both have room, the first serves.
            let first = allocator.allocate(&Request::new(3000).in_pool(0)).unwrap();
            allocator.free_many(&[first.id, served.id]).unwrap();
            assert_eq!(place(&allocator, 3000).memory, first.memory);
            assert_eq!(device.given(), 2);
            assert_agree(&allocator, &device);
        }
    }
}

/// Then the first that can grow.
#[test]
fn pools_that_can_grow_do_so_in_order_and_full_ones_are_skipped() {
    let device = LedgerDevice::new();
    let pools = [
        sliced(K, K, Some(K)),
        exclusive(512),
        sliced(4 * K, 4 * K, Some(4 * K)),
        capped(growing(8 * K, 8 * K), 8 * K),
        direct(None),
    ];
    let allocator = over(&device, &pools);
    // 1 KiB is too large for the second; the third and the fourth have room for four and eight.
    for expected in [[1, 0, 0, 0, 0], [1, 0, 1, 0, 0]] {
        allocate(&allocator, K);
        assert_eq!(slices(&allocator), expected);
    }
    for i in 0..14 {
        allocate(&allocator, K);
        let spilled = [4.min(2 + i), 8.min((i + 2u32).saturating_sub(4)), (i + 2).saturating_sub(12)];
        assert_eq!(slices(&allocator)[2..], spilled, "{i}");
    }
    assert_eq!(device.sizes(), [K, 4 * K, 8 * K, K, K, K]);
    // Small ones have a page of their own in the second pool, which is never full.
    allocate(&allocator, 100);
    allocate(&allocator, 512);
    assert_eq!(slices(&allocator), [1, 2, 4, 8, 3]);
    assert_agree(&allocator, &device);
}

#[test]
fn the_capacity_error_is_given_only_when_no_pool_is_left() {
    let device = LedgerDevice::new();
    let allocator =
        over(&device, &[sliced(K, K, Some(2 * K)), capped(growing(K, 4 * K), 4 * K), exclusive(100), exclusive(0)]);
    for _ in 0..6 {
        allocate(&allocator, K);
    }
    assert_eq!(slices(&allocator), [2, 4, 0, 0]);
    let before = Snapshot::of(&allocator);
    // The first pool that takes the request speaks for all that are full.
    assert_eq!(allocator.allocate(&Request::new(K)), Err(full(K, 2 * K, 2 * K, 0)));
    assert_eq!(allocator.allocate(&Request::new(2 * K)), Err(full(2 * K, 4 * K, 4 * K, 0)));
    assert_eq!(allocator.allocate(&Request::new(101)), Err(full(101, 2 * K, 2 * K, 0)));
    assert_eq!(allocator.allocate(&Request::new(4 * K + 1)), Err(Error::TooLarge { size: 4 * K + 1, limit: 4 * K }));
    assert_eq!(Snapshot::of(&allocator), before);
    allocate(&allocator, 100);
    assert_eq!(slices(&allocator), [2, 4, 1, 0]);
    assert_agree(&allocator, &device);
}

/// The cause that a caller cannot help is reported, whichever pool met it and in whatever order.
#[test]
fn a_failing_device_is_never_masked_by_a_full_pool_or_one_that_is_too_small() {
    let pools = [sliced(K, K, Some(K)), direct(None), exclusive(100)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for answer in [DeviceError::OutOfMemory(-7), DeviceError::Failed(-8), DeviceError::UnknownResult(-9)] {
            let ledger = LedgerDevice::new();
            let fails = Cell::new(false);
            let device = ScriptedDevice {
                allocate: |request: &PageRequest| if fails.get() { Err(answer) } else { ledger.allocate(request) },
                deallocate: |memory: &DeviceMemory| ledger.deallocate(memory),
            };
            let list = order.map(|pool: usize| pools[pool].clone());
            let allocator = Allocator::try_new(&device, &list, options()).unwrap();
            let capped = order.iter().position(|&pool| pool == 0).unwrap() as u32;
            allocator.allocate(&Request::new(K).in_pool(capped)).unwrap();
            fails.set(true);
            let expected = match answer {
                DeviceError::OutOfMemory(code) => Error::OutOfDeviceMemory { size: K, code },
                DeviceError::Failed(code) => Error::DeviceFailed { fault: DeviceFault::Reported, code },
                DeviceError::UnknownResult(code) => Error::DeviceFailed { fault: DeviceFault::UnknownResult, code },
            };
            assert_eq!(allocator.allocate(&Request::new(K)), Err(expected), "{order:?}");
            assert_agree(&allocator, &ledger);
        }
    }
}

/// A device that cannot give the page of one pool may give that of another.
#[test]
fn a_pool_whose_page_the_device_refuses_is_skipped() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(4 * M, 4 * M, None), growing(2 * M, 8 * M), exclusive(M)]);
    device.limit_to(2 * M + 100 * K);
    allocate(&allocator, 100 * K);
    assert_eq!(slices(&allocator), [0, 1, 0]);
    allocate(&allocator, M);
    assert_eq!(slices(&allocator), [0, 2, 0], "a hole in what the second has got");
    allocate(&allocator, M - 100 * K);
    allocate(&allocator, 100 * K);
    assert_eq!((slices(&allocator), device.sizes()), (vec![0, 4, 0], vec![2 * M, 100 * K]));
    // Of several that are refused the first is named.
    let refused = Error::OutOfDeviceMemory { size: 4 * M, code: NONE_LEFT };
    assert_eq!(allocator.allocate(&Request::new(100)), Err(refused));
    assert_agree(&allocator, &device);
}

/// Nobody takes it.
#[test]
fn the_most_generous_limit_is_named_whatever_the_kinds_and_their_order() {
    let device = LedgerDevice::new();
    let nearly = sliced(M, K, None);
    for (pools, limit) in [
        (vec![exclusive(K), exclusive(3 * K + 1), sliced(K, K, None)], 3 * K + 1),
        (vec![exclusive(K), nearly.clone()], M),
        (vec![nearly.clone(), exclusive(2 * M)], 2 * M),
        (vec![exclusive(0), exclusive(5)], 5),
        (vec![sliced(K, K, Some(0)), direct(None), exclusive(M)], 128 * M),
        (vec![growing(K, K), exclusive(M)], 128 * M),
        (vec![capped(growing(K, K), 5 * K), exclusive(K)], 5 * K),
    ] {
        let orders = [pools.clone(), pools.into_iter().rev().collect()];
        for pools in orders {
            let allocator = over(&device, &pools);
            let size = 128 * M + 1;
            assert_eq!(allocator.allocate(&Request::new(size)), Err(Error::TooLarge { size, limit }), "{pools:?}");
            assert_eq!(allocator.would_fit(&Request::new(size)), Err(Error::TooLarge { size, limit }));
        }
    }
    assert_eq!(device.calls(), 0);
}

// ---- one pool by request

#[test]
fn a_request_for_one_pool_is_served_by_that_pool_only() {
    let device = LedgerDevice::new();
    let pools = [sliced(4 * K, 4 * K, None), exclusive(M), direct(None), sliced(K, K, Some(K)), growing(K, K)];
    let allocator = over(&device, &pools);
    // There is room in the first all the time.
    allocate(&allocator, 32);
    for pool in [4, 2, 3, 1, 0, 2, 1] {
        let mut expected = slices(&allocator);
        expected[pool] += 1;
        let request = Request::new(100).in_pool(pool as u32);
        let held = allocator.pool_statistics(pool).unwrap().pages;
        assert_eq!(allocator.would_fit(&request), Ok([0, 3, 4].contains(&pool) && held != 0));
        let slice = allocator.allocate(&request).unwrap();
        assert_eq!(slices(&allocator), expected);
        assert_eq!(allocator.get(slice.id), Ok(slice));
    }
    assert_agree(&allocator, &device);
}

#[test]
fn a_request_for_one_pool_is_refused_by_what_that_pool_lacks() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(K, K, Some(K)), direct(None), exclusive(512), exclusive(0)]);
    let ask = |size, pool| allocator.allocate(&Request::new(size).in_pool(pool)).map(drop);
    assert_eq!(ask(K, 0), Ok(()));
    let before = Snapshot::of(&allocator);
    let calls = device.calls();
    // Full, although another pool would take it.
    assert_eq!(ask(100, 0), Err(full(100, K, K, 0)));
    // Too large, with that pool's own limit.
    assert_eq!(ask(K + 1, 0), Err(Error::TooLarge { size: K + 1, limit: K }));
    assert_eq!(ask(513, 2), Err(Error::TooLarge { size: 513, limit: 512 }));
    assert_eq!(ask(1, 3), Err(Error::TooLarge { size: 1, limit: 0 }));
    assert_eq!(ask(128 * M + 1, 1), Err(Error::TooLarge { size: 128 * M + 1, limit: 128 * M }));
    for pool in 0..3 {
        assert_eq!(ask(0, pool), Err(Error::InvalidArgument { field: c"size", value: 0 }));
    }
    // No such pool, whatever else is wrong with the request.
    for pool in [4, 5, 256, u32::MAX] {
        let refused = Error::InvalidArgument { field: c"pool", value: u64::from(pool) };
        for size in [0, 100, u64::MAX] {
            assert_eq!(ask(size, pool), Err(refused));
            assert_eq!(allocator.would_fit(&Request::new(size).in_pool(pool)), Err(refused));
        }
    }
    assert_eq!((Snapshot::of(&allocator), device.calls()), (before, calls));
    // The device's refusal is that pool's.
    device.limit_to(device.bytes());
    assert_eq!(ask(100, 1), Err(Error::OutOfDeviceMemory { size: 128, code: NONE_LEFT }));
    assert_eq!(ask(100, 2), Err(Error::OutOfDeviceMemory { size: 128, code: NONE_LEFT }));
    assert_eq!(ask(100, 0), Err(full(100, K, K, 0)));
    assert_agree(&allocator, &device);
}

/// Requests of a batch may be for different pools.
#[test]
fn a_batch_places_each_slice_in_the_pool_it_is_for() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(4 * K, 4 * K, None), exclusive(M), direct(None)]);
    let requests: Vec<_> = (0..9).map(|i| Request::new(100).in_pool(i % 3)).collect();
    let batch = allocator.allocate_many(&requests).unwrap();
    assert_eq!((batch.len(), slices(&allocator)), (9, vec![3, 3, 3]));
    let ids: Vec<_> = batch.iter().map(|slice| slice.id).collect();
    allocator.free_many(&ids).unwrap();
    // One that is refused takes all back, in every pool.
    let before = Snapshot::of(&allocator);
    let spoiled = [requests.as_slice(), &[Request::new(100).in_pool(3)]].concat();
    let refused = allocator.allocate_many(&spoiled).unwrap_err();
    assert_eq!((refused.index, refused.error), (9, Error::InvalidArgument { field: c"pool", value: 3 }));
    assert_eq!(Snapshot::of(&allocator), before);
    assert_agree(&allocator, &device);
}

// ---- what makes no sense

#[test]
fn each_kind_of_pool_is_refused_by_the_field_that_contradicts_itself_and_its_value() {
    let refused = |field, value| Err(Error::InvalidArgument { field, value });
    for (pool, expected) in [
        (exclusive(128 * M), Ok(())),
        (exclusive(128 * M + 1), refused(c"max_alloc_size", 128 * M + 1)),
        (exclusive(u64::MAX), refused(c"max_alloc_size", u64::MAX)),
        (exclusive(0), Ok(())),
        (exclusive(33), Ok(())),
        (exclusive(K).with_granule(0), refused(c"granule", 0)),
        (exclusive(K).with_granule(48), refused(c"granule", 48)),
        (exclusive(K).with_granule(1 << 33), refused(c"granule", 1 << 33)),
        (direct(None), Ok(())),
        (direct(Some(0)), Ok(())),
        (direct(Some(u64::MAX)), Ok(())),
        (direct(None).with_granule(3), refused(c"granule", 3)),
        (growing(K, 128 * M), Ok(())),
        (growing(K, K), Ok(())),
        (growing(0, K), refused(c"page_size", 0)),
        (growing(1000, 4000), refused(c"page_size", 1000)),
        (growing(2 * K, K), refused(c"max_page_size", K)),
        (growing(K, 128 * M + 1), refused(c"max_page_size", 128 * M + 1)),
        (growing(129 * M, 129 * M), refused(c"page_size", 129 * M)),
        (capped(growing(2 * K, 4 * K), K), refused(c"max_pool_size", K)),
        (capped(growing(2 * K, 4 * K), 3 * K), Ok(())),
        (sliced(K, K, Some(K)).with_granule(1 << 27), refused(c"page_size", K)),
        (sliced(K, K + 1, None), refused(c"max_slice_size", K + 1)),
        (direct(None).with_dealloc_period(Some(0)).with_keep_bytes(u64::MAX), Ok(())),
    ] {
        assert_eq!(pool.validate(&MEMORY), expected, "{pool:?}");
    }
    // A device that gives nothing is no use to any pool.
    for pool in [exclusive(0), direct(None), growing(K, K)] {
        assert_eq!(pool.validate(&MemoryType::new(31, 32)), refused(c"max_page", 31));
    }
}

/// Creation adjusts all that can be adjusted.
#[test]
fn pools_that_validation_refuses_are_adjusted_when_nobody_asks_for_it() {
    let device = LedgerDevice::new();
    let pools = [exclusive(u64::MAX), growing(1000, 10), growing(4 * K, u64::MAX), capped(growing(2 * K, 4 * K), 1000)];
    let allocator = over(&device, &pools);
    let effective = |pool| allocator.pool_report(pool).unwrap().options;
    assert_eq!(effective(0).pool_type, PoolType::ExclusivePages { max_alloc_size: 128 * M });
    let pages = |pool| match effective(pool) {
        PoolOptions { pool_type: PoolType::SlicedPages { page_size, max_pool_size, .. }, max_page_size, .. } => {
            (page_size, max_page_size, max_pool_size)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(pages(1), (1024, Some(1024), None));
    assert_eq!(pages(2), (4 * K, Some(128 * M), None));
    assert_eq!(pages(3), (992, Some(4 * K), Some(992)));
    assert_eq!(device.calls(), 0);
}

// ---- lists that come ready

fn presets(properties: &Properties) -> [PoolList; 3] {
    [layout::adaptive, layout::sub_slices, layout::exclusive_pages].map(|make| make(properties).unwrap())
}

#[test]
fn the_same_five_requests_leave_the_same_figures_and_hold_no_more() {
    let pools = layout::sub_slices(&Properties::new(128 * M).with_alignment(32)).unwrap();
    let device = LedgerDevice::new();
    let allocator = over(&device, &pools);
    let figures = || {
        let ids = [1000, 2000, 3000, 4000, 5000].map(|size| allocate(&allocator, size));
        let figures = allocator.statistics();
        allocator.free_many(&ids).unwrap();
        (figures.slices, figures.in_use, figures.reserved)
    };
    assert_eq!(figures(), (5, 15_000, 8 * M));
    assert_eq!(figures(), (5, 15_000, 8 * M));
    assert_agree(&allocator, &device);
}

/// The steps of the ladder, each with requests of its own.
#[test]
fn each_request_has_its_place_in_the_list_of_sub_slices() {
    let pools = layout::sub_slices(&Properties::new(128 * M).with_alignment(32)).unwrap();
    for (size, pool, page) in [
        (0, 0, 32),
        (1, 1, 8 * M),
        (2 * M, 1, 8 * M),
        (2 * M + 1, 2, 32 * M),
        (8 * M, 1, 8 * M),
        // More than four fifths of a page, and not.
        (6_710_887, 1, 8 * M),
        (6_710_886, 2, 32 * M),
        (16 * M, 2, 32 * M),
        (16 * M + 1, 3, 18 * M),
        (26_843_546, 2, 32 * M),
        (32 * M + 1, 3, 36 * M),
        (128 * M, 3, 128 * M),
    ] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &pools);
        allocate(&allocator, size);
        let expected: Vec<_> = (0..4).map(|index| u32::from(index == pool)).collect();
        assert_eq!((slices(&allocator), device.sizes()), (expected, vec![page]), "{size}");
    }
    let device = LedgerDevice::new();
    let too_large = Error::TooLarge { size: 128 * M + 1, limit: 128 * M };
    assert_eq!(over(&device, &pools).allocate(&Request::new(128 * M + 1)), Err(too_large));
}

/// A page never costs more than an eighth above its request, and unused ones go back.
#[test]
fn a_list_of_exclusive_pages_serves_every_size_with_a_page_of_its_own() {
    let pools = layout::exclusive_pages(&Properties::new(128 * M).with_alignment(32)).unwrap();
    let device = LedgerDevice::new();
    let allocator = over(&device, &pools);
    assert_eq!(allocator.pool_count(), 24);
    for size in [1u64, 1000, 32 * K, 32 * K + 1, 47_072, 47_073, M, 100 * M, 128 * M] {
        let slice = place(&allocator, size);
        let aligned = size.next_multiple_of(32);
        assert!((slice.size - aligned) * 8 <= aligned, "{} for {size}", slice.size);
        allocator.free(slice.id).unwrap();
    }
    assert_eq!(allocator.allocate(&Request::new(0)), Err(Error::InvalidArgument { field: c"size", value: 0 }));
    assert_eq!(slices(&allocator).len(), 24);
    let given = device.given();
    assert!(device.pages() == given && given >= 8);
    // A period of 5,000 allocations: the first check comes with the 1,000th.
    for _ in 0..1010 {
        touch(&allocator, 1000);
    }
    assert_eq!((device.pages(), device.given()), (1, given));
    assert_agree(&allocator, &device);
}

/// Every list serves every size up to the device's largest page, and nothing else.
#[test]
fn every_list_serves_requests_of_all_sizes_up_to_the_largest_page() {
    for max_page in [100_000, 32 * M, 128 * M, 6 * G] {
        let properties = Properties::new(max_page).with_alignment(32);
        for pools in presets(&properties) {
            let device = LedgerDevice::new();
            let options = options().with_memory_type(MemoryType::new(max_page, 32));
            let allocator = Allocator::try_new(&device, &pools, options).unwrap();
            for shift in 0..40 {
                for size in
                    [(1 << shift) - 1, 1 << shift, (1 << shift) + 1].map(|size: u64| size.min(max_page / 32 * 32))
                {
                    if size != 0 {
                        touch(&allocator, size);
                    }
                }
            }
            assert!(matches!(allocator.allocate(&Request::new(max_page + 1)), Err(Error::TooLarge { .. })));
            assert_agree(&allocator, &device);
            allocator.cleanup().unwrap();
            assert_eq!((device.pages(), device.given()), (0, device.taken()));
        }
    }
}

/// Scenario 13 for every list: what a frame needs is there when the next one begins.
#[test]
fn equal_frames_call_the_device_no_more_whichever_list_it_is() {
    let mut random = Random::with_seed_or(13);
    let sizes: Vec<_> = (0..100).map(|_| random.scaled(3 * M)).collect();
    for pools in presets(&Properties::new(128 * M).with_alignment(32)) {
        let device = LedgerDevice::new();
        let allocator = over(&device, &pools);
        let mut settled = 0;
        for frame in 0..300 {
            let ids: Vec<_> = sizes.iter().map(|&size| allocate(&allocator, size)).collect();
            allocator.free_many(&ids).unwrap();
            if frame == 5 {
                settled = device.calls();
            }
        }
        assert_eq!(device.calls(), settled, "{} pools", pools.len());
        assert_agree(&allocator, &device);
    }
}
