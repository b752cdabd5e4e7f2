//! Which class serves a request, and what those get that none serves.

use crate::world::{PAGE, Pool, World, class, classes, exhausted, free, id, oversized, place, some};
use slicepool_core::{AllocatorOptions, BufferConfigError, BufferPool, BufferPoolError, Error, HostDevice};

fn capacity_for(pool: &Pool<'_>, size: usize) -> usize {
    let buffer = pool.try_alloc(size).unwrap();
    assert!(buffer.is_tracked() && buffer.is_empty());
    buffer.capacity()
}

#[test]
fn a_request_goes_to_the_smallest_class_that_fits_it() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 3), (8 * PAGE, 3)]));
    for size in [1, PAGE - 1, PAGE] {
        assert_eq!(capacity_for(&pool, size), PAGE, "{size}");
    }
    for size in [PAGE + 1, 4 * PAGE, 8 * PAGE] {
        assert_eq!(capacity_for(&pool, size), 8 * PAGE, "{size}");
    }
    assert_eq!((class(&pool, PAGE).created, class(&pool, 8 * PAGE).created), (1, 1));
}

#[test]
fn a_request_above_the_largest_class_is_oversized_and_counted() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 3), (8 * PAGE, 3)]));
    let mut cache = pool.cache().unwrap();
    for (count, size) in [8 * PAGE + 1, 16 * PAGE, usize::MAX / 2 + 1, usize::MAX].into_iter().enumerate() {
        let refused = oversized(size, 8 * PAGE);
        assert_eq!(pool.try_alloc(size).unwrap_err(), refused);
        assert_eq!(cache.try_alloc(size).unwrap_err(), refused);
        assert_eq!(pool.take(size, false, false).unwrap_err(), refused);
        assert_eq!(pool.statistics().oversized, 3 * (count as u64 + 1));
    }
    assert_eq!(world.device.calls(), 0);
    assert_eq!(class(&pool, 8 * PAGE).exhausted, 0);
}

#[test]
fn classes_without_gaps_serve_sizes_between_them() {
    let world = World::new();
    let pool = world.pool(classes(&[1, 2, 4, 8].map(|pages| (pages * PAGE, 2))));
    for (size, serves) in [(1, 1), (PAGE + 1, 2), (2 * PAGE, 2), (2 * PAGE + 1, 4), (4 * PAGE, 4), (4 * PAGE + 1, 8)] {
        assert_eq!(capacity_for(&pool, size), serves * PAGE, "{size}");
    }
    assert_eq!(pool.try_alloc(8 * PAGE + 1).unwrap_err(), oversized(8 * PAGE + 1, 8 * PAGE));
}

#[test]
fn every_size_gets_the_class_that_the_configuration_says_with_and_without_a_cache() {
    let world = World::new();
    let config = classes(&[(1, 2), (2, 2), (16, 2), (32, 2), (1024, 2), (8192, 2)]);
    let pool = world.pool(config);
    let mut cache = pool.cache().unwrap();
    let step = if cfg!(miri) { 97 } else { 1 };
    for size in (1..70).chain((70..=8192).step_by(step)).chain([8192]) {
        let expected = config.class_for(size).unwrap().size.get();
        assert_eq!(capacity_for(&pool, size), expected, "{size}");
        let buffer = cache.try_alloc(size).unwrap();
        assert_eq!(buffer.capacity(), expected, "{size}");
        cache.release(buffer);
        let raw = pool.take(size, false, false).unwrap();
        assert_eq!(raw.capacity, expected as u64);
        pool.release(id(&raw)).unwrap();
    }
}

#[test]
fn a_buffer_got_through_a_gap_comes_back_for_a_request_of_its_own_size() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1), (8 * PAGE, 1)]));
    let through_gap = pool.try_alloc(2 * PAGE).unwrap();
    let first = place(&through_gap);
    drop(through_gap);
    let direct = pool.try_alloc(8 * PAGE).unwrap();
    assert_eq!(place(&direct), first);
    assert_eq!(pool.try_alloc(2 * PAGE).unwrap_err(), exhausted(8 * PAGE, 1));
}

#[test]
fn a_class_that_is_exhausted_is_not_replaced_by_a_larger_one() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1), (2 * PAGE, 1)]));
    let _page = pool.try_alloc(PAGE).unwrap();
    assert_eq!(pool.try_alloc(1).unwrap_err(), exhausted(PAGE, 1));
    assert_eq!(class(&pool, 2 * PAGE).created, 0);
    assert_eq!(pool.try_alloc(PAGE + 1).unwrap().capacity(), 2 * PAGE);
}

#[test]
fn debug_output_counts_classes_and_not_the_sizes_between_them() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1), (16 * PAGE, 1)]));
    let text = format!("{pool:?}");
    assert!(text.contains("classes: 2,") && text.contains("closed: false"), "{text}");
    assert_eq!(pool.statistics().classes, 2);
    pool.close();
    assert!(format!("{pool:?}").contains("closed: true"));
}

/// Row 55 of the specification.
#[test]
fn contradictions_of_a_configuration_are_three_distinct_errors_and_equal_values_are_none() {
    let config = classes(&[(1024, 2)]);
    let refused = |config| match BufferPool::try_new(config).err() {
        Some(BufferPoolError::Config(error)) => error,
        other => panic!("{other:?}"),
    };
    let three = BufferConfigError::AlignmentNotPowerOfTwo { alignment: 3 };
    assert_eq!(refused(config.with_alignment(some(3))), three);
    let above = BufferConfigError::AlignmentTooLarge { alignment: 2048, min_size: 1024 };
    assert_eq!(refused(config.with_alignment(some(2048))), above);
    let larger = BufferConfigError::PoolMinSizeTooLarge { pool_min_size: 1025, min_size: 1024 };
    assert_eq!(refused(config.with_pool_min_size(1025)), larger);
    // The first in this order is told.
    assert_eq!(refused(config.with_pool_min_size(1025).with_alignment(some(3))), three);
    assert_eq!(refused(config.with_pool_min_size(1025).with_alignment(some(2048))), above);

    let pool = BufferPool::try_new(config.with_alignment(some(1024)).with_pool_min_size(1024)).unwrap();
    let buffer = pool.try_alloc(1024).unwrap();
    assert!(buffer.is_tracked() && buffer.as_ptr().addr() % 1024 == 0);
    assert!(!pool.try_alloc(1023).unwrap().is_tracked());
}

/// Row 56 of the specification.
#[test]
fn requests_below_the_least_pooled_size_go_past_the_classes() {
    let world = World::new();
    let pool = world.pool(classes(&[(1024, 2), (8192, 1)]).with_pool_min_size(512).with_alignment(some(64)));
    let empty = pool.try_alloc(0).unwrap();
    assert_eq!((empty.capacity(), empty.is_tracked(), empty.memory()), (0, false, 0));
    for size in [1, 511] {
        let buffer = pool.try_alloc(size).unwrap();
        assert_eq!((buffer.capacity(), buffer.is_tracked()), (size, false));
        assert_eq!(buffer.as_ptr().addr() % 64, 0);
    }
    for (size, capacity) in [(512, 1024), (1025, 8192)] {
        let buffer = pool.try_alloc(size).unwrap();
        assert_eq!((buffer.capacity(), buffer.is_tracked()), (capacity, true));
        assert_eq!(buffer.as_ptr().addr() % 64, 0);
    }
    assert_eq!(pool.try_alloc(8193).unwrap_err(), oversized(8193, 8192));
    let figures = pool.statistics();
    assert_eq!((figures.bypassed, figures.oversized, figures.untracked), (2, 1, 0));
}

#[test]
fn a_request_below_the_least_pooled_size_is_untracked_in_every_variant() {
    let world = World::new();
    let pool = world.pool(classes(&[(512, 1)]).with_pool_min_size(512).with_alignment(some(128)));
    let mut cache = pool.cache().unwrap();
    let small = [
        pool.try_alloc(200).unwrap(),
        pool.alloc(200).unwrap(),
        pool.try_alloc_zeroed(200).unwrap(),
        pool.alloc_zeroed(200).unwrap(),
        cache.try_alloc(200).unwrap(),
        cache.alloc(200).unwrap(),
        cache.try_alloc_zeroed(200).unwrap(),
        cache.alloc_zeroed(200).unwrap(),
    ];
    for (index, buffer) in small.iter().enumerate() {
        assert_eq!((buffer.capacity(), buffer.is_tracked(), buffer.as_ptr().addr() % 128), (200, false, 0));
        assert_eq!(buffer.len(), if matches!(index, 2 | 3 | 6 | 7) { 200 } else { 0 });
        assert!(buffer.iter().all(|&byte| byte == 0));
    }
    let figures = pool.statistics();
    assert_eq!((figures.bypassed, figures.untracked), (8, 8));
    assert_eq!(class(&pool, 512).created, 0);
    let pooled = pool.try_alloc(512).unwrap();
    assert!(pooled.is_tracked() && pooled.as_ptr().addr() % 128 == 0);
}

/// In C there is a hard ceiling unless the caller says otherwise.
#[test]
fn raw_requests_below_the_least_pooled_size_stay_below_the_ceiling_unless_the_caller_says_otherwise() {
    let world = World::new();
    let pool = world.pool(classes(&[(1024, 1), (4096, 1)]).with_pool_min_size(1000));
    let mut cache = pool.cache().unwrap();
    let raw = pool.take(10, false, false).unwrap();
    assert_eq!((raw.capacity, pool.statistics().bypassed), (1024, 0));
    assert_eq!(pool.take(10, false, false).unwrap_err(), exhausted(1024, 1));
    assert_eq!(cache.take(10, false, true).unwrap_err(), exhausted(1024, 1));
    let past = pool.take(10, true, false).unwrap();
    assert_eq!((past.capacity, pool.statistics().bypassed, pool.statistics().untracked), (10, 1, 1));
    pool.release(id(&past)).unwrap();
    cache.release_raw(id(&raw)).unwrap();
    // From the cache, where a buffer of the smallest class is.
    let raw = cache.take(10, false, false).unwrap();
    assert_eq!(raw.capacity, 1024);
    pool.release(id(&raw)).unwrap();
}

#[test]
fn a_request_of_no_bytes_gets_an_empty_buffer_in_every_variant_and_takes_nothing() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]).with_pool_min_size(16));
    let mut cache = pool.cache().unwrap();
    let before = (world.host.calls(), pool.statistics());
    let empty = [
        pool.try_alloc(0).unwrap(),
        pool.alloc(0).unwrap(),
        pool.try_alloc_zeroed(0).unwrap(),
        pool.alloc_zeroed(0).unwrap(),
        cache.try_alloc(0).unwrap(),
        cache.alloc(0).unwrap(),
        cache.try_alloc_zeroed(0).unwrap(),
        cache.alloc_zeroed(0).unwrap(),
    ];
    for buffer in &empty {
        assert_eq!((buffer.len(), buffer.capacity(), buffer.is_tracked(), buffer.is_mapped()), (0, 0, false, false));
        assert_eq!((buffer.memory(), buffer.offset(), buffer.address(), buffer.as_ptr()), (0, 0, 0, std::ptr::null()));
        assert_eq!(&buffer[..], &[] as &[u8]);
    }
    for untracked in [false, true] {
        for zeroed in [false, true] {
            assert_eq!(pool.take(0, untracked, zeroed).unwrap().id, None);
            let raw = cache.take(0, untracked, zeroed).unwrap();
            assert_eq!((raw.id, raw.capacity, raw.mapped.is_null()), (None, 0, true));
        }
    }
    for buffer in empty {
        if buffer.capacity() == 0 {
            cache.release(buffer);
        }
    }
    assert_eq!(pool.try_alloc(0).unwrap().into_raw().id, None);
    assert_eq!((world.host.calls(), pool.statistics(), world.device.calls()), (before.0, before.1, 0));
    // The one buffer that there is serves a real request.
    assert!(pool.try_alloc(PAGE).unwrap().is_tracked());
    assert_eq!(free(&pool, PAGE), 1);
}

#[test]
fn options_that_buffer_pools_do_not_have_are_refused() {
    let config = classes(&[(PAGE, 1)]);
    let refused = |options| match BufferPool::with_device(HostDevice::new(), config, options) {
        Err(BufferPoolError::Failed(error)) => error,
        other => panic!("{other:?}"),
    };
    let options = AllocatorOptions::default;
    assert_eq!(refused(options().with_dry_run()), Error::NotSupported { what: c"dry_run" });
    let debugging = slicepool_core::Debugging::new(true, 0);
    assert_eq!(refused(options().with_debugging(debugging)), Error::NotSupported { what: c"debugging" });
    let small = slicepool_core::MemoryType::new(PAGE as u64 - 1, 64);
    let error = Error::InvalidArgument { field: c"size", value: PAGE as u64 };
    assert_eq!(refused(options().with_memory_type(small)), error);
}

#[test]
fn creation_errors_become_errors_of_the_crate_and_tell_the_class() {
    let failed = BufferPoolError::Failed(Error::Closed);
    assert_eq!((Error::from(failed), failed.to_string()), (Error::Closed, Error::Closed.to_string()));
    let prefill = BufferPoolError::Prefill { size: 4096, error: Error::Closed };
    assert_eq!(Error::from(prefill), Error::Closed);
    assert!(prefill.to_string().contains("4096"), "{prefill}");
    let config = classes(&[(1024, 2)]).with_alignment(some(3)).check().unwrap_err();
    assert_eq!(Error::from(BufferPoolError::Config(config)), Error::from(config));
    assert_eq!(BufferPoolError::Config(config).to_string(), config.to_string());
}
