//! What sliced pools promise: pages, caps, routing.

use crate::common::books::{assert_agree, ranges};
use crate::common::devices::{LedgerDevice, NONE_LEFT};
use crate::common::lock::{self, WatchedLock};
use crate::common::pools::{MEMORY, allocate, full, options, over, sliced};
use crate::common::random::Random;
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Error, MemoryType, NearPage, PoolKinds, PoolOptions, PoolType, Request,
};
use std::sync::Arc;

#[test]
fn a_capped_pool_refuses_above_its_cap_and_serves_again_after_a_free() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(1024, 1024, Some(2048))]);
    for _ in 0..2 {
        let first = allocate(&allocator, 1024);
        let second = allocate(&allocator, 1024);
        assert_eq!(allocator.allocate(&Request::new(1024)), Err(full(1024, 2048, 2048, 0)));
        allocator.free(first).unwrap();
        let third = allocate(&allocator, 1024);
        assert_eq!(allocator.allocate(&Request::new(1024)), Err(full(1024, 2048, 2048, 0)));
        assert_agree(&allocator, &device);
        allocator.free(second).unwrap();
        allocator.free(third).unwrap();
        allocator.cleanup().unwrap();
        assert_eq!((allocator.statistics().reserved, device.bytes()), (0, 0));
        assert_agree(&allocator, &device);
    }
    assert_eq!(device.sizes(), [1024; 4]);
}

/// The cap does not pay for one alignment unit.
#[test]
fn a_cap_below_the_granule_refuses_everything_and_never_calls_the_device() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(1024, 1024, Some(16))]);
    assert_eq!(allocator.allocate(&Request::new(8)), Err(full(8, 0, 0, 0)));
    assert_eq!(allocator.would_fit(&Request::new(8)), Ok(false));
    assert_eq!((allocator.statistics().reserved, device.calls()), (0, 0));
    assert_agree(&allocator, &device);
}

#[test]
fn pages_are_shared_reused_and_added_as_slices_need_them() {
    for (page, sizes, free_between, expected) in [
        (2048, [512, 512], false, (2, 1024, 2048)),
        (512, [512, 512], true, (1, 512, 512)),
        (1024, [768, 768], false, (2, 1536, 2048)),
    ] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[sliced(page, page, None)]);
        let first = allocate(&allocator, sizes[0]);
        if free_between {
            allocator.free(first).unwrap();
        }
        allocate(&allocator, sizes[1]);
        let figures = allocator.statistics();
        assert_eq!((figures.slices, figures.in_use, figures.reserved), expected);
        assert_agree(&allocator, &device);
    }
}

#[test]
fn alignments_and_granules_that_are_no_powers_of_two_are_refused_by_name() {
    let device = LedgerDevice::new();
    let pool = sliced(1024, 1024, None);
    for bad in [0, 3, 48, u64::MAX] {
        let granule = pool.clone().with_granule(bad);
        let refused = Error::InvalidArgument { field: c"granule", value: bad };
        assert_eq!(granule.validate(&MEMORY), Err(refused));
        assert_eq!(Allocator::try_new(&device, &[granule], AllocatorOptions::default()).err(), Some(refused));
        assert_eq!(refused.to_string(), format!("invalid argument: granule = {bad}"));

        let memory_type = MemoryType::new(128 * M, bad);
        let refused = Error::InvalidArgument { field: c"page_alignment", value: bad };
        assert_eq!(pool.validate(&memory_type), Err(refused));
        let options = AllocatorOptions::default().with_memory_type(memory_type);
        assert_eq!(Allocator::try_new(&device, std::slice::from_ref(&pool), options).err(), Some(refused));

        let allocator = over(&device, std::slice::from_ref(&pool));
        let refused = Error::InvalidArgument { field: c"alignment", value: bad };
        assert_eq!(allocator.allocate(&Request::new(64).aligned(bad)), Err(refused));
        assert_eq!(allocator.would_fit(&Request::new(64).aligned(bad)), Err(refused));
    }
    assert_eq!(device.calls(), 0);
}

/// What contradicts itself.
#[test]
fn contradictory_configurations_are_refused_by_validation_with_field_and_value() {
    let refused = |field, value| Err(Error::InvalidArgument { field, value });
    assert_eq!(sliced(0, 0, None).validate(&MEMORY), refused(c"page_size", 0));
    assert_eq!(sliced(1024, 2048, None).validate(&MEMORY), refused(c"max_slice_size", 2048));
    assert_eq!(sliced(2048, 2048, Some(1024)).validate(&MEMORY), refused(c"max_pool_size", 1024));
    assert_eq!(sliced(129 * M, M, None).validate(&MEMORY), refused(c"page_size", 129 * M));
    assert_eq!(sliced(u64::MAX, M, None).validate(&MEMORY), refused(c"page_size", u64::MAX));
    let many_granules = PoolOptions::sliced_pages(1 << 32, 1, None).with_granule(1);
    assert_eq!(many_granules.validate(&MemoryType::default()), refused(c"page_size", 1 << 32));
    assert_eq!(many_granules.clone().with_granule(2).validate(&MemoryType::default()), Ok(()));
    assert_eq!(sliced(1000, 1000, None).validate(&MEMORY), refused(c"page_size", 1000));
    assert_eq!(sliced(1024, 1024, Some(1024)).validate(&MEMORY), Ok(()));
    // Slices of any size may be asked for where pages grow; a size that no page can have may not.
    assert_eq!(sliced(1024, u64::MAX, None).validate(&MEMORY), refused(c"max_slice_size", u64::MAX));
    let grows = |mut pool: PoolOptions| {
        pool.max_page_size = Some(4096);
        pool.validate(&MEMORY)
    };
    assert_eq!(grows(sliced(1024, 129 * M, None)), refused(c"max_slice_size", 129 * M));
    assert_eq!(grows(sliced(1024, 128 * M, None)), Ok(()));
    assert_eq!(grows(sliced(1024, u64::MAX, None)), Ok(()));
    assert_eq!(sliced(128 * M, 128 * M, None).validate(&MEMORY), Ok(()));
}

/// What cannot work at all, and what is adjusted when nobody asked for validation.
#[test]
fn creation_refuses_an_empty_list_and_a_page_of_nothing_and_adjusts_the_rest() {
    let device = LedgerDevice::new();
    let options = AllocatorOptions::default().with_memory_type(MEMORY);
    let refusal = |pools: &[PoolOptions]| Allocator::try_new(&device, pools, options.clone()).err();
    assert_eq!(refusal(&[]), Some(Error::InvalidArgument { field: c"pools", value: 0 }));
    let page_of_nothing = [sliced(1024, 1024, None), sliced(0, 0, None)];
    assert_eq!(refusal(&page_of_nothing), Some(Error::InvalidArgument { field: c"page_size", value: 0 }));

    let allocator = over(&device, &[sliced(1024, 2048, None), sliced(2048, 2048, Some(1024))]);
    let too_large = Error::TooLarge { size: 1025, limit: 1024 };
    assert_eq!(allocator.allocate(&Request::new(1025)), Err(too_large));
    allocate(&allocator, 1024);
    assert_eq!(device.sizes(), [1024]);
}

#[test]
fn holes_of_one_page_merge_until_the_page_is_one_hole_again() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[PoolOptions::sliced_pages(32 * M, 32 * M, None).with_granule(1)]);
    let pieces =
        || -> Vec<(bool, u64)> { ranges(&allocator).iter().map(|range| (range.id.is_some(), range.size)).collect() };
    let [a, b, c, d] = [4, 15, 8, 4].map(|size| allocate(&allocator, size));
    allocator.free(b).unwrap();
    let e = allocator.allocate(&Request::new(9)).unwrap();
    assert_eq!(e.offset, 4);
    allocator.free(c).unwrap();
    let rest = 32 * M - 31;
    assert_eq!(pieces(), [(true, 4), (true, 9), (false, 14), (true, 4), (false, rest)]);
    allocator.free(a).unwrap();
    allocator.free(d).unwrap();
    assert_eq!(pieces(), [(false, 4), (true, 9), (false, 32 * M - 13)]);
    assert_agree(&allocator, &device);
    allocator.free(e.id).unwrap();
    assert_eq!(pieces(), [(false, 32 * M)]);
    assert_agree(&allocator, &device);
}

#[test]
fn a_large_slice_takes_a_page_of_its_own_and_the_rest_of_the_first_is_still_used() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(M, M, Some(2 * M))]);
    let small = allocate(&allocator, 4096);
    allocator.free(small).unwrap();
    allocate(&allocator, 512 * K);
    assert_eq!(allocator.statistics().reserved, M);
    allocate(&allocator, M);
    allocate(&allocator, 500 * K);
    let in_use = 512 * K + M + 500 * K;
    assert_eq!(allocator.allocate(&Request::new(M)), Err(full(M, 2 * M, in_use, 12 * K)));
    assert_eq!((allocator.statistics().reserved, allocator.largest_free()), (2 * M, 12 * K));
    assert_agree(&allocator, &device);
}

/// What a caller can act on is reported, not what was met first.
#[test]
fn a_device_that_has_nothing_left_is_reported_rather_than_a_full_pool_before_it() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(1024, 1024, Some(1024)), sliced(4096, 4096, None)]);
    allocate(&allocator, 1024);
    device.limit_to(1024);
    let refused = Error::OutOfDeviceMemory { size: 4096, code: NONE_LEFT };
    assert_eq!(allocator.allocate(&Request::new(1024)), Err(refused));
    assert_agree(&allocator, &device);
    device.limit_to(1024 + 4096);
    allocator.trim(u64::MAX).unwrap();
    allocate(&allocator, 1024);
    assert_agree(&allocator, &device);
}

/// Runs `action` before the lock that this thread takes after `count` others.
fn before_lock(count: u32, action: impl FnOnce() + 'static) {
    lock::before_next(move || match count {
        0 => action(),
        _ => before_lock(count - 1, action),
    });
}

/// It would serve the request, but the request has looked already.
#[test]
fn an_equal_page_that_becomes_idle_while_another_is_taken_stays() {
    let mut given = Vec::new();
    for count in 0..20 {
        // As long as the program: what runs before a lock has no lifetime.
        let lock: &'static WatchedLock = Box::leak(Box::default());
        let device: &'static LedgerDevice = Box::leak(Box::new(LedgerDevice::new()));
        let pool = sliced(M, M, None).with_kinds(PoolKinds::Linear);
        let allocator = Arc::new(Allocator::try_new(device, &[pool], options().with_lock(lock.kind())).unwrap());
        let (other, first) = (allocator.clone(), allocate(&*allocator, M));
        before_lock(count, move || other.free(first).unwrap());
        allocate(&*allocator, M);
        lock::before_next(|| ());
        assert_eq!(device.taken(), 0, "{count}");
        given.push(device.given());
    }
    assert!(given.contains(&1) && given.contains(&2), "{given:?}");
}

/// Cap 1000 -> one page of 992, cap 2047 -> one page, cap 2048 -> two.
#[test]
fn the_cap_pays_for_whole_pages_and_shrinks_a_page_that_it_cannot_pay_for() {
    for (cap, page, pages) in [(1000, 992, 1), (2047, 1024, 1), (2048, 1024, 2), (32, 32, 1), (1024, 1024, 1)] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[sliced(1024, 1024, Some(cap))]);
        for _ in 0..pages {
            allocate(&allocator, page);
        }
        let (all, capacity) = (page * pages, page * pages);
        assert_eq!(allocator.allocate(&Request::new(page)), Err(full(page, capacity, all, 0)), "cap {cap}");
        assert_eq!(
            allocator.allocate(&Request::new(page + 1)),
            Err(Error::TooLarge { size: page + 1, limit: page }),
            "cap {cap}"
        );
        assert_eq!(device.sizes(), vec![page; pages as usize], "cap {cap}");
        assert_agree(&allocator, &device);
    }
}

/// Page 32000, max slice 32.
#[test]
fn an_uncapped_pool_also_takes_what_nearly_fills_a_page() {
    let taken = [(32, true), (33, false), (25_600, false), (25_601, true), (32_000, true), (32_001, false)];
    let near = |cap, rule| sliced(32_000, 32, cap).with_near_page(rule);
    let cases = [
        (near(None, NearPage::WhenUncapped), true),
        (near(Some(320_000), NearPage::WhenUncapped), false),
        (near(Some(320_000), NearPage::Always), true),
        (near(None, NearPage::Never), false),
    ];
    for (pool, takes_near) in cases {
        let device = LedgerDevice::new();
        let allocator = over(&device, std::slice::from_ref(&pool));
        for (size, taken) in taken {
            let result = allocator.allocate(&Request::new(size));
            if taken && (takes_near || size <= 32) {
                assert_eq!(result.map(|slice| slice.size), Ok(size.next_multiple_of(32)));
            } else {
                let limit = if takes_near && size > 32_000 { 32_000 } else { 32 };
                assert_eq!(result, Err(Error::TooLarge { size, limit }), "{pool:?}");
            }
        }
        assert_agree(&allocator, &device);
    }
}

/// Seen in other pools: a hole of exactly the aligned size was not found.
#[test]
fn a_freed_slice_serves_the_same_size_again_without_a_second_page() {
    let device = LedgerDevice::new();
    let memory = AllocatorOptions::default().with_memory_type(MemoryType::new(128 * M, 256));
    let pool = PoolOptions::sliced_pages(1024, 1024, None).with_granule(256);
    let allocator = Allocator::try_new(&device, &[pool], memory).unwrap();
    let ids = [200, 200, 200, 256].map(|size| allocate(&allocator, size));
    allocator.free(ids[1]).unwrap();
    let again = allocator.allocate(&Request::new(200)).unwrap();
    assert_eq!((again.offset, again.size), (256, 256));
    assert_eq!(device.given(), 1);
    assert_agree(&allocator, &device);
}

/// Seen in other pools: pages were lost.
#[test]
fn after_everything_is_freed_cleanup_leaves_no_page() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(2048, 2048, None)]);
    let a = allocate(&allocator, 1000);
    let b = allocate(&allocator, 1000);
    allocator.free(a).unwrap();
    let c = allocate(&allocator, 960);
    allocator.free(b).unwrap();
    allocator.free(c).unwrap();
    allocator.cleanup().unwrap();
    let figures = allocator.statistics();
    assert_eq!((figures.pages, figures.reserved, figures.free), (0, 0, 0));
    assert_eq!((device.given(), device.taken()), (1, 1));
    assert_agree(&allocator, &device);
}

/// Seen in other pools: slices drifted apart until a page was larger or smaller than itself.
#[test]
fn two_hundred_thousand_operations_leave_a_page_exactly_its_size() {
    let mut random = Random::with_seed_or(2);
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(64 * K, 64 * K, Some(64 * K))]);
    let mut live = Vec::new();
    for operation in 0..200_000 {
        if live.len() == 40 || (!live.is_empty() && random.below(2) == 0) {
            allocator.free(random.take(&mut live)).unwrap();
        } else if let Ok(slice) = allocator.allocate(&Request::new(random.within(1, 3000))) {
            live.push(slice.id);
        }
        if operation % 1000 == 0 {
            assert_agree(&allocator, &device);
        }
    }
    for id in live {
        allocator.free(id).unwrap();
    }
    let left: Vec<_> = ranges(&allocator).iter().map(|range| (range.id, range.offset, range.size)).collect();
    assert_eq!(left, [(None, 0, 64 * K)]);
    assert_eq!(device.sizes(), [64 * K]);
}

/// Sixteen bits do not count them.
#[test]
fn more_pages_than_sixteen_bits_can_count_are_all_kept_apart() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(32, 32, None)]);
    let slices: Vec<_> = (0..65_537).map(|_| allocator.allocate(&Request::new(32)).unwrap()).collect();
    for slice in &slices {
        assert_eq!(allocator.get(slice.id), Ok(*slice));
    }
    let figures = allocator.statistics();
    assert_eq!((figures.pages, figures.reserved, device.pages()), (65_537, 65_537 * 32, 65_537));
    for slice in &slices {
        allocator.free(slice.id).unwrap();
    }
    allocator.cleanup().unwrap();
    assert_agree(&allocator, &device);
    assert_eq!(device.pages(), 0);
}

// ---- several pools in one allocator

/// A hole that fits is never passed over in favour of a new page.
#[test]
fn a_hole_in_a_later_pool_is_used_before_an_earlier_pool_grows() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(4 * K, K, None), sliced(64 * K, 64 * K, None)]);
    // Only the second pool takes it.
    allocate(&allocator, 2 * K);
    assert_eq!(device.sizes(), [64 * K]);
    // Both do, and only the second has memory.
    allocate(&allocator, 100);
    assert_eq!(device.sizes(), [64 * K]);
    assert_eq!(allocator.pool_statistics(0).unwrap().slices, 0);
    assert_eq!(allocator.pool_statistics(1).unwrap().slices, 2);
    // Neither has room: pools grow in order.
    allocate(&allocator, 61 * K + 896);
    allocate(&allocator, 100);
    assert_eq!(device.sizes(), [64 * K, 4 * K]);
    assert_eq!(allocator.pool_statistics(0).unwrap().slices, 1);
    // Both have room: the first pool's is used first.
    assert_eq!(allocator.largest_free(), 4 * K - 128);
    allocate(&allocator, 1000);
    assert_eq!(allocator.pool_statistics(0).unwrap().slices, 2);
    assert_agree(&allocator, &device);
}

/// A pool at its cap is skipped.
#[test]
fn a_full_pool_spills_into_the_next_that_accepts_the_request() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(K, K, Some(2 * K)), sliced(4 * K, 4 * K, Some(4 * K))]);
    let first = allocate(&allocator, K);
    allocate(&allocator, K);
    assert_eq!(device.sizes(), [K, K]);
    let spilled = allocate(&allocator, K);
    assert_eq!(device.sizes(), [K, K, 4 * K]);
    allocate(&allocator, 3 * K);
    // The first of the pools that accept the request speaks for all of them.
    assert_eq!(allocator.allocate(&Request::new(32)), Err(full(32, 2 * K, 2 * K, 0)));
    assert_eq!(allocator.allocate(&Request::new(2 * K)), Err(full(2 * K, 4 * K, 4 * K, 0)));
    let too_large = Error::TooLarge { size: 4 * K + 1, limit: 4 * K };
    assert_eq!(allocator.allocate(&Request::new(4 * K + 1)), Err(too_large));
    // Room in either pool serves.
    allocator.free(spilled).unwrap();
    assert_eq!(allocator.get(allocate(&allocator, 100)).unwrap().size, 128);
    allocator.free(first).unwrap();
    allocate(&allocator, K);
    assert_eq!(device.sizes(), [K, K, 4 * K]);
    assert_agree(&allocator, &device);
}

/// Nobody accepts.
#[test]
fn the_most_generous_limit_is_named_when_no_pool_accepts() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(K, K, None), sliced(M, M, Some(M)), sliced(4 * K, 64, Some(4 * K))]);
    for size in [M + 1, 1 << 40, u64::MAX] {
        let refused = Err(Error::TooLarge { size, limit: M });
        assert_eq!(allocator.allocate(&Request::new(size)), refused);
        assert_eq!(allocator.would_fit(&Request::new(size)).err(), refused.err());
    }
    assert_eq!(device.calls(), 0);
}

// ---- configuration

/// The report carries the effective configuration: here the page shrunk to the cap.
#[test]
fn the_report_shows_the_configuration_that_is_in_effect() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(1024, 1024, Some(1000)), sliced(4096, 64, None)]);
    allocate(&allocator, 10);
    let mut report = String::new();
    allocator.write_json(&mut report).unwrap();
    for part in [
        "\"page_size\":992,\"max_slice_size\":992,\"max_pool_size\":992,\"max_page_size\":null",
        "\"page_size\":4096,\"max_slice_size\":64,\"max_pool_size\":null,\"max_page_size\":null,\"page_growth\":\"share\",\"kinds\":\"both\",\"min_pages\":0,\
         \"memory_type\":0,\"dealloc_period\":null,\"keep_bytes\":0,\"granule\":32",
        "\"reserved_bytes\":992,\"in_use_bytes\":10,\"padding_bytes\":22,\"pending_bytes\":0,\"free_bytes\":960",
    ] {
        assert!(report.contains(part), "{part} in {report}");
    }
    assert_eq!(report.matches('{').count(), report.matches('}').count());
}

/// The public configuration type keeps the names and the derives of other pools.
#[test]
fn pool_types_can_be_cloned_compared_and_shown() {
    let one = PoolType::SlicedPages { page_size: 1, max_slice_size: 2, max_pool_size: None };
    assert_eq!(one, one.clone());
    assert_eq!(format!("{one:?}"), "SlicedPages { page_size: 1, max_slice_size: 2, max_pool_size: None }");
}
