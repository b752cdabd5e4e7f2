//! Buffers that are all created when the pool is.

use crate::common::devices::NONE_LEFT;
use crate::world::{MEMORY, PAGE, World, class, classes, exhausted, free, limit, place, some, take, take_from};
use slicepool_core::{BufferPool, BufferPoolError, Error};

#[test]
fn prefilling_five_gives_exactly_five_and_asks_the_device_once() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 5)]).with_prefill(true));
    assert_eq!(world.device.sizes(), [5 * PAGE as u64]);
    assert_eq!((class(&pool, PAGE).created, free(&pool, PAGE)), (5, 5));
    let calls = world.host.calls();
    let out = take(&pool, PAGE, 5);
    assert_eq!(pool.try_alloc(PAGE).unwrap_err(), exhausted(PAGE, 5));
    assert_eq!((world.device.calls(), world.host.calls()), (1, calls));
    drop(out);
    assert_eq!(free(&pool, PAGE), 5);
}

#[test]
fn a_request_through_a_gap_takes_the_one_large_buffer_that_was_prefilled() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 3), (4 * PAGE, 1)]).with_prefill(true));
    let counts = |size| (class(&pool, size).created, free(&pool, size));
    assert_eq!((counts(PAGE), counts(4 * PAGE)), ((3, 3), (1, 1)));
    let large = pool.try_alloc(PAGE + 1).unwrap();
    assert_eq!((large.capacity(), counts(4 * PAGE)), (4 * PAGE, (1, 0)));
    assert_eq!(pool.try_alloc(2 * PAGE).unwrap_err(), exhausted(4 * PAGE, 1));
}

/// A caller can register it once.
#[test]
fn every_class_is_one_region_which_its_buffers_fill_without_a_header() {
    let world = World::new();
    let sizes = [(64, 100), (1024, 7), (1 << 20, 3)];
    let pool = world.pool(classes(&sizes).with_alignment(some(64)).with_prefill(true));
    let regions: Vec<_> = pool.regions().collect();
    assert_eq!(regions.len(), 3);
    for (region, (size, count)) in regions.iter().zip(sizes) {
        assert_eq!((region.buffer_size, region.bytes), (size as u64, size as u64 * u64::from(count)));
        assert!(world.device.is_out(region.memory) && region.address == region.mapped.addr() as u64);
        let out = take(&pool, size, count);
        let mut at: Vec<_> = out.iter().map(|buffer| (buffer.memory(), buffer.offset())).collect();
        at.sort_unstable();
        let expected = (0..u64::from(count)).map(|k| (region.memory, region.base + k * size as u64));
        assert!(at.into_iter().eq(expected));
        for buffer in &out {
            let offset = (buffer.offset() - region.base) as usize;
            assert_eq!(buffer.as_ptr(), region.mapped.wrapping_add(offset));
            assert_eq!(buffer.address(), region.address + offset as u64);
        }
    }
    assert_eq!(pool.regions().collect::<Vec<_>>(), regions, "they never change");
}

#[test]
fn what_is_prefilled_is_all_the_device_ever_gives() {
    let world = World::new();
    let config = classes(&[(256, 40), (4096, 20), (1 << 16, 3)]).with_prefill(true);
    let pool = world.pool(config);
    assert_eq!((world.device.bytes(), world.device.pages()), (config.max_tracked_bytes() as u64, 3));
    assert_eq!(pool.statistics().reserved, config.max_tracked_bytes() as u64);
    let mut cache = pool.cache().unwrap();
    for (size, count) in [(256, 40), (4096, 20), (1 << 16, 3)] {
        let out = take_from(&mut cache, size, count);
        assert!(cache.try_alloc(size).is_err());
        out.into_iter().for_each(|buffer| cache.release(buffer));
    }
    assert_eq!(world.device.calls(), 3);
}

#[test]
fn a_class_that_the_device_has_no_memory_for_is_named_and_everything_goes_back() {
    let sizes = [(1024, 4), (4096, 4), (1 << 16, 4)];
    let mut needed = 0;
    for (fails, (size, count)) in sizes.into_iter().enumerate() {
        let world = World::new();
        // One byte short of what this class needs.
        needed += size as u64 * u64::from(count);
        world.device.limit_to(needed - 1);
        let bytes = size as u64 * u64::from(count);
        let error = Error::OutOfDeviceMemory { size: bytes, code: NONE_LEFT };
        let refused = world.try_pool(classes(&sizes).with_prefill(true)).unwrap_err();
        assert_eq!(refused, BufferPoolError::Prefill { size: size as u64, error });
        assert_eq!((world.device.given(), world.device.taken()), (fails as u64, fails as u64));
        assert_eq!((world.device.bytes(), world.host.bytes()), (0, 0));
        world.device.limit_to(u64::MAX);
        assert_eq!(take(&world.pool(classes(&sizes).with_prefill(true)), size, count).len(), count as usize);
    }
}

#[test]
fn a_class_that_is_larger_than_the_device_s_pages_cannot_be_prefilled_and_is_named() {
    let world = World::new();
    let mut memory = MEMORY;
    memory.max_page = 4 * PAGE as u64;
    let make = |config| BufferPool::with_device(&world.device, config, world.options().with_memory_type(memory));
    let config = classes(&[(1024, 2), (PAGE, 5)]).with_prefill(true);
    let refused = make(config).unwrap_err();
    assert!(
        matches!(refused, BufferPoolError::Prefill { size: 4096, error: Error::TooLarge { size: 20_480, .. } }),
        "{refused:?}"
    );
    assert_eq!((world.device.bytes(), world.host.bytes()), (0, 0));
    // Piece by piece it can be had, and a page full of it beforehand.
    let pool = make(config.with_prefill(false)).unwrap();
    let out = take(&pool, PAGE, 5);
    assert_eq!(world.device.sizes()[1..], [4 * PAGE as u64, PAGE as u64]);
    drop(out);
    assert!(make(config.with_max_per_class(limit(4))).is_ok());
}

#[test]
fn more_buffers_than_there_are_handles_cannot_be_prefilled_and_nothing_is_held() {
    let world = World::without_memory();
    let config = classes(&[(64, 5), (128, (1 << 24) + 1)]).with_prefill(true);
    let refused = world.try_pool(config).unwrap_err();
    assert_eq!(refused, BufferPoolError::Prefill { size: 128, error: Error::TooManySlices { limit: 1 << 24 } });
    assert_eq!((world.device.bytes(), world.host.bytes()), (0, 0));
    // On 32 bits four such buffers are no more than a device may have.
    if usize::BITS < 64 {
        return;
    }
    let refused = world.try_pool(classes(&[(1 << (usize::BITS - 2), 4)]).with_prefill(true)).unwrap_err();
    assert!(matches!(refused, BufferPoolError::Prefill { error: Error::TooLarge { .. }, .. }), "{refused:?}");
}

#[test]
fn a_prefilled_pool_can_go_beyond_its_classes_when_it_is_asked_to() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]).with_prefill(true));
    let _one = pool.alloc(PAGE).unwrap();
    let other = pool.alloc(PAGE).unwrap();
    assert!(!other.is_tracked());
    assert_eq!(pool.regions().count(), 1, "what belongs to no class is in no region");
    assert_ne!(place(&other).0, pool.regions().next().unwrap().memory);
}
