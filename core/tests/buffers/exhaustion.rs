//! Classes with nothing left: what the error says, what caches do about it, and what lies beyond the ceiling.

use crate::common::random::Random;
use crate::world::{
    Buffer, Figures, PAGE, World, class, classes, exhausted, exhausted_with, free, id, oversized, rounds, some, take,
    take_from, until_served,
};
use slicepool_core::Error;

#[test]
fn a_class_is_exhausted_while_another_still_serves() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1), (8 * PAGE, 1)]));
    let page = pool.try_alloc(PAGE).unwrap();
    assert_eq!(pool.try_alloc(PAGE).unwrap_err(), exhausted(PAGE, 1));
    let large = pool.try_alloc(PAGE + 1).unwrap();
    assert_eq!(large.capacity(), 8 * PAGE);
    assert_eq!(pool.try_alloc(8 * PAGE).unwrap_err(), exhausted(8 * PAGE, 1));
    assert_eq!((class(&pool, PAGE).exhausted, class(&pool, 8 * PAGE).exhausted), (1, 1));
    drop((page, large));
}

#[test]
fn a_limit_of_three_means_three_at_a_time() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 3)]));
    let mut out = take(&pool, PAGE, 3);
    assert_eq!(pool.try_alloc(PAGE).unwrap_err(), exhausted(PAGE, 3));
    drop(out.pop());
    out.push(pool.try_alloc(PAGE).unwrap());
    assert_eq!(pool.try_alloc(PAGE).unwrap_err(), exhausted(PAGE, 3));
    drop(out);
    assert_eq!((free(&pool, PAGE), class(&pool, PAGE).created), (3, 3));
    let _one = pool.try_alloc(PAGE).unwrap();
    assert_eq!(free(&pool, PAGE), 2);
    assert_eq!(class(&pool, PAGE).exhausted, 2);
}

/// Scenario 50.
#[test]
fn a_class_of_64_serves_61_more_while_three_are_live_after_129_allocations_and_126_frees() {
    for through_cache in [false, true] {
        let world = World::new();
        let pool = world.pool(classes(&[(PAGE, 64)]));
        let mut cache = pool.cache().unwrap();
        let mut random = Random::from(50);
        let mut live: Vec<Buffer<'_>> = Vec::new();
        let (mut allocations, mut frees) = (0, 0);
        while allocations < 129 || frees < 126 {
            let more = live.len() < 64 && allocations < 129 && (live.is_empty() || random.below(5) < 3);
            if more || frees == 126 {
                live.push(if through_cache { cache.try_alloc(PAGE).unwrap() } else { pool.try_alloc(PAGE).unwrap() });
                allocations += 1;
            } else {
                let buffer = random.take(&mut live);
                if through_cache {
                    cache.release(buffer);
                } else {
                    drop(buffer);
                }
                frees += 1;
            }
        }
        assert_eq!((live.len(), allocations, frees), (3, 129, 126));
        let figures = class(&pool, PAGE);
        assert_eq!((figures.in_use, figures.free + figures.cached + 64 - figures.created), (3, 61));
        let more = if through_cache { take_from(&mut cache, PAGE, 61) } else { take(&pool, PAGE, 61) };
        assert_eq!(cache.try_alloc(PAGE).unwrap_err(), exhausted(PAGE, 64));
        drop(more);
    }
}

// ---- beyond the ceiling

#[test]
fn alloc_of_an_exhausted_class_goes_beyond_it_with_exactly_the_size_and_leaves_it_alone() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]).with_alignment(some(256)));
    let mut cache = pool.cache().unwrap();
    let _tracked = pool.try_alloc(PAGE).unwrap();
    let before = class(&pool, PAGE);
    for size in [1, 7, 100, 107, PAGE - 1, PAGE] {
        for through_cache in [false, true] {
            let bytes = world.device.bytes();
            let buffer = if through_cache { cache.alloc(size).unwrap() } else { pool.alloc(size).unwrap() };
            assert_eq!((buffer.is_tracked(), buffer.capacity(), buffer.as_ptr().addr() % 256), (false, size, 0));
            assert_eq!(pool.statistics().untracked, 1);
            assert!(world.device.bytes() >= bytes + size as u64);
            if through_cache {
                cache.release(buffer);
            } else {
                drop(buffer);
            }
            assert_eq!((pool.statistics().untracked, world.device.bytes()), (0, bytes), "it went back at once");
            assert_eq!(cache.len_of(PAGE), 0);
        }
    }
    let mut after = class(&pool, PAGE);
    assert_eq!(after.exhausted, before.exhausted + 12, "refusals inside alloc count");
    after.exhausted = before.exhausted;
    assert_eq!(after, before);
}

#[test]
fn alloc_of_an_oversized_request_goes_beyond_the_classes_and_leaves_them_alone() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]));
    let before = class(&pool, PAGE);
    let buffer = pool.alloc(10 * PAGE).unwrap();
    assert_eq!((buffer.is_tracked(), buffer.capacity()), (false, 10 * PAGE));
    let raw = pool.take(10 * PAGE, true, false).unwrap();
    assert_eq!(raw.capacity, 10 * PAGE as u64);
    drop(buffer);
    pool.release(id(&raw)).unwrap();
    assert_eq!((pool.statistics().oversized, class(&pool, PAGE), world.device.bytes()), (2, before, 0));
}

#[test]
fn zeroed_variants_are_refused_with_the_same_errors() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]));
    let mut cache = pool.cache().unwrap();
    let _one = pool.try_alloc_zeroed(PAGE).unwrap();
    for (size, error) in [(PAGE, exhausted(PAGE, 1)), (PAGE + 1, oversized(PAGE + 1, PAGE))] {
        assert_eq!(pool.try_alloc_zeroed(size).unwrap_err(), error);
        assert_eq!(cache.try_alloc_zeroed(size).unwrap_err(), error);
        assert_eq!(pool.take(size, false, true).unwrap_err(), error);
        assert_eq!(cache.take(size, false, true).unwrap_err(), error);
        let buffer = pool.alloc_zeroed(size).unwrap();
        assert_eq!((buffer.is_tracked(), buffer.len(), buffer.iter().any(|&byte| byte != 0)), (false, size, false));
    }
}

#[test]
fn a_device_that_has_nothing_left_is_told_of_also_by_alloc() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]));
    world.device.limit_to(0);
    for result in [pool.try_alloc(PAGE), pool.alloc(PAGE), pool.alloc(2 * PAGE)] {
        assert!(matches!(result, Err(Error::OutOfDeviceMemory { .. })), "{result:?}");
    }
    assert_eq!(class(&pool, PAGE).exhausted, 0);
    assert_eq!((pool.statistics().untracked, pool.check()), (0, Ok(())));
    world.device.limit_to(u64::MAX);
    assert!(until_served(&pool, PAGE).0.is_tracked());
}

// ---- caches

#[test]
fn exhausted_tells_how_many_are_in_caches_and_the_request_succeeds_after_their_owners_next_use() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 4), (1 << 15, 1)]).with_max_thread_cache_capacity(some(4)));
    let (mut holder, mut other) = (pool.cache().unwrap(), pool.cache().unwrap());
    for buffer in take(&pool, PAGE, 4) {
        holder.release(buffer);
    }
    assert_eq!((holder.len_of(PAGE), free(&pool, PAGE)), (4, 0));
    assert_eq!(other.try_alloc(PAGE).unwrap_err(), exhausted_with(PAGE, 4, 4));
    assert_eq!(pool.try_alloc(PAGE).unwrap_err(), exhausted_with(PAGE, 4, 4));
    // Nobody drains another's cache.
    assert_eq!((holder.len_of(PAGE), class(&pool, PAGE).cached), (4, 4));
    // Of any class.
    let large = holder.try_alloc(1 << 15).unwrap();
    assert_eq!((holder.len_of(PAGE), free(&pool, PAGE)), (0, 4));
    assert!(other.try_alloc(PAGE).is_ok());
    drop(large);
}

/// What the owner of a cache may do next, so that it gives way.
#[test]
fn a_cache_gives_way_at_its_next_request_or_release_of_any_kind() {
    let kinds = ["try_alloc", "alloc", "try_alloc_zeroed", "take", "release", "release_raw", "same class", "flush"];
    for kind in kinds {
        let world = World::new();
        let config = classes(&[(PAGE, 2), (1 << 15, 2)]).with_max_thread_cache_capacity(some(2));
        let pool = world.pool(config);
        let mut holder = pool.cache().unwrap();
        for buffer in take(&pool, PAGE, 2) {
            holder.release(buffer);
        }
        let large = pool.try_alloc(1 << 15).unwrap();
        assert_eq!(pool.try_alloc(PAGE).unwrap_err(), exhausted_with(PAGE, 2, 2));
        match kind {
            "try_alloc" => drop(holder.try_alloc(1 << 15)),
            "alloc" => drop(holder.alloc(1 << 15)),
            "try_alloc_zeroed" => drop(holder.try_alloc_zeroed(1 << 15)),
            "take" => pool.release(id(&holder.take(1 << 15, false, false).unwrap())).unwrap(),
            "release" => holder.release(large),
            "release_raw" => holder.release_raw(id(&large.into_raw())).unwrap(),
            // It may keep what it takes out anew, but one at least is there for others.
            "same class" => {
                let page = holder.try_alloc(PAGE).unwrap();
                holder.release(page);
            }
            _ => holder.flush(),
        }
        assert!(pool.try_alloc(PAGE).is_ok(), "{kind}: {:?}", class(&pool, PAGE));
        assert_eq!(pool.check(), Ok(()));
    }
}

/// Also uses that have nothing to do with the classes are uses.
#[test]
fn a_cache_gives_way_when_it_is_used_for_what_no_class_serves() {
    for kind in ["bypassed", "oversized", "release of an untracked one", "its handle", "no bytes"] {
        let world = World::new();
        let pool = world.pool(classes(&[(PAGE, 1)]).with_max_thread_cache_capacity(some(1)).with_pool_min_size(64));
        let mut holder = pool.cache().unwrap();
        holder.release(pool.try_alloc(PAGE).unwrap());
        let untracked = pool.alloc(2 * PAGE).unwrap();
        assert_eq!(pool.try_alloc(PAGE).unwrap_err(), exhausted_with(PAGE, 1, 1));
        match kind {
            "bypassed" => drop(holder.try_alloc(1)),
            "oversized" => drop(holder.try_alloc(PAGE + 1)),
            "no bytes" => drop(holder.try_alloc(0)),
            "its handle" => holder.release_raw(untracked.into_raw().id.unwrap()).unwrap(),
            _ => holder.release(untracked),
        }
        assert_eq!(free(&pool, PAGE), 1, "{kind}");
    }
}

#[test]
fn a_cache_gives_back_the_buffers_of_the_exhausted_class_only() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 2), (1 << 15, 3)]).with_max_thread_cache_capacity(some(3)));
    let mut holder = pool.cache().unwrap();
    for buffer in take(&pool, PAGE, 2).into_iter().chain(take(&pool, 1 << 15, 3)) {
        holder.release(buffer);
    }
    assert!(pool.try_alloc(PAGE).is_err());
    let large = holder.try_alloc(1 << 15).unwrap();
    assert_eq!((holder.len_of(PAGE), holder.len_of(1 << 15)), (0, 2));
    holder.release(large);
    assert_eq!(holder.len_of(1 << 15), 3);
    // Once: from then on it keeps buffers again.
    let page = holder.try_alloc(PAGE).unwrap();
    holder.release(page);
    assert_eq!(holder.len_of(PAGE), 1);
}

#[test]
fn a_cache_that_is_made_after_the_class_was_exhausted_keeps_what_it_gets() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 2)]).with_max_thread_cache_capacity(some(2)));
    let mut holder = pool.cache().unwrap();
    let out = take(&pool, PAGE, 2);
    holder.release(out.into_iter().next().unwrap());
    assert_eq!(free(&pool, PAGE), 1);
    let _one = pool.try_alloc(PAGE).unwrap();
    assert_eq!(pool.try_alloc(PAGE).unwrap_err(), exhausted_with(PAGE, 2, 1));
    let mut late = pool.cache().unwrap();
    holder.flush();
    let buffer = late.try_alloc(PAGE).unwrap();
    late.release(buffer);
    assert_eq!(late.len_of(PAGE), 1);
    let buffer = late.try_alloc(PAGE).unwrap();
    assert_eq!(late.len_of(PAGE), 0);
    late.release(buffer);
    assert_eq!(late.len_of(PAGE), 1);
}

#[test]
fn every_cache_gives_way_to_one_request() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 12)]).with_max_thread_cache_capacity(some(3)));
    let mut caches: Vec<_> = (0..4).map(|_| pool.cache().unwrap()).collect();
    let mut out = take(&pool, PAGE, 12);
    for cache in &mut caches {
        out.drain(..3).for_each(|buffer| cache.release(buffer));
    }
    assert_eq!(pool.try_alloc(PAGE).unwrap_err(), exhausted_with(PAGE, 12, 12));
    for (index, cache) in caches.iter_mut().enumerate() {
        assert_eq!(cache.len_of(PAGE), 3);
        cache.flush();
        assert_eq!(free(&pool, PAGE), 3 * (index as u32 + 1));
    }
}

#[test]
fn an_empty_cache_and_its_own_buffers_do_not_count_as_cached() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 4)]).with_max_thread_cache_capacity(some(4)));
    let mut cache = pool.cache().unwrap();
    let out = take_from(&mut cache, PAGE, 4);
    assert_eq!(cache.try_alloc(PAGE).unwrap_err(), exhausted(PAGE, 4));
    drop(out);
    let out = take_from(&mut cache, PAGE, 4);
    assert_eq!((cache.try_alloc(PAGE).unwrap_err(), free(&pool, PAGE)), (exhausted(PAGE, 4), 0));
    drop(out);
}

#[test]
fn a_refused_request_changes_nothing_but_the_count_of_refusals() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 5), (1 << 15, 2)]).with_max_thread_cache_capacity(some(4)));
    let mut cache = pool.cache().unwrap();
    let out = take(&pool, PAGE, 5);
    let large = take(&pool, 1 << 15, 1);
    let before = Figures::of(&pool);
    for count in 1..=rounds(1000).into() {
        assert_eq!(cache.try_alloc(PAGE).unwrap_err(), exhausted(PAGE, 5));
        let mut after = Figures::of(&pool);
        assert_eq!(std::mem::replace(&mut after.classes[0].exhausted, 0), count);
        assert_eq!(after, before);
    }
    assert_eq!(pool.check(), Ok(()));
    drop((out, large));
}
