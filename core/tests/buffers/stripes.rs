//! The freelist: what is in its stripes, and how buffers come to lie there.

use crate::common::meeting::Meeting;
use crate::common::random::Random;
use crate::world::{World, class, classes, exhausted, free, limit, place, rounds, some, stripes, take, take_from};
use std::collections::HashSet;

fn limits<D: slicepool_core::Device>(pool: &slicepool_core::BufferPool<D>) -> Vec<u32> {
    pool.stripes(0).unwrap().map(|(_, limit)| limit).collect()
}

#[test]
fn a_stripe_may_have_its_share_of_the_limit() {
    let world = World::new();
    for (buffers, threads, count) in [
        (1, 1, 1),
        (2, 1, 2),
        (3, 1, 2),
        (4, 2, 4),
        (7, 1, 4),
        (8, 4, 8),
        (9, 1, 8),
        (12, 1, 8),
        (12, 9, 8),
        (19, 8, 8),
        (64, 16, 16),
        (100, 33, 64),
        (1 << 24, 1, 8),
    ] {
        let config = classes(&[(64, buffers)]).with_parallelism(some(threads));
        let pool = world.pool(config);
        assert_eq!((config.stripes(limit(buffers)), class(&pool, 64).stripes), (count, count));
        let expected: Vec<_> = (0..count).map(|stripe| (buffers - stripe).div_ceil(count)).collect();
        assert_eq!(limits(&pool), expected, "{buffers} {threads}");
        assert_eq!(expected.iter().sum::<u32>(), buffers);
        assert!(pool.stripes(1).is_none());
    }
}

#[test]
fn a_prefilled_class_of_19_has_every_buffer_once_and_all_stripes_full() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 19)]).with_parallelism(some(8)).with_prefill(true));
    assert_eq!(stripes(&pool, 0), limits(&pool));
    assert_eq!(stripes(&pool, 0), [3, 3, 3, 2, 2, 2, 2, 2]);
    let offsets: HashSet<_> = take(&pool, 64, 19).iter().map(place).map(|(_, offset)| offset).collect();
    assert_eq!(offsets, (0..19).map(|number| 64 * number).collect());
    assert_eq!((free(&pool, 64), class(&pool, 64).created), (19, 19));
}

#[test]
fn prefilled_buffer_k_lies_in_stripe_k_modulo_the_number_of_stripes() {
    let world = World::new();
    let config = classes(&[(64, 30)]).with_thread_cache_disabled().with_prefill(true);
    let pool = world.pool(config);
    let mut taken = Vec::new();
    for stripe in 0..8 {
        let mut cache = pool.cache().unwrap();
        let count = stripes(&pool, 0)[stripe];
        for _ in 0..count {
            let buffer = cache.try_alloc(64).unwrap();
            assert_eq!(buffer.offset() / 64 % 8, stripe as u64);
            taken.push(buffer);
        }
        assert_eq!(stripes(&pool, 0)[stripe], 0);
    }
    assert_eq!(taken.len(), 30);
}

#[test]
fn three_buffers_come_back_and_no_fourth_is_permitted() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 3)]));
    for _ in 0..3 {
        let out = take(&pool, 64, 3);
        let places: HashSet<_> = out.iter().map(place).collect();
        assert_eq!(places.len(), 3);
        assert_eq!(pool.try_alloc(64).unwrap_err(), exhausted(64, 3));
        drop(out);
        assert_eq!((free(&pool, 64), class(&pool, 64).created, pool.check()), (3, 3, Ok(())));
    }
}

#[test]
fn a_batch_larger_than_what_the_home_has_comes_from_its_neighbours_too() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 64)]).with_max_thread_cache_capacity(some(40)).with_prefill(true));
    // The third of eight stripes is home, each of which has eight.
    let (_, _) = (pool.cache().unwrap(), pool.cache().unwrap());
    let mut cache = pool.cache().unwrap();
    let _first = cache.try_alloc(64).unwrap();
    assert_eq!(cache.len_of(64), 19);
    assert_eq!(stripes(&pool, 0), [8, 8, 0, 0, 4, 8, 8, 8]);
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn a_batch_goes_around_the_end_of_the_stripes() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 64)]).with_max_thread_cache_capacity(some(64)).with_prefill(true));
    let mut caches: Vec<_> = (0..8).map(|_| pool.cache().unwrap()).collect();
    let _first = caches[7].try_alloc(64).unwrap();
    assert_eq!(stripes(&pool, 0), [0, 0, 0, 8, 8, 8, 8, 0]);
}

#[test]
fn without_a_cache_all_stripes_are_searched_and_every_buffer_is_found() {
    let world = World::new();
    for buffers in [1, 2, 3, 5, 8, 31, 64, 65, 200] {
        let pool = world.pool(classes(&[(64, buffers)]).with_parallelism(some(64)));
        for _ in 0..2 {
            let out = take(&pool, 64, buffers);
            assert_eq!(pool.try_alloc(64).unwrap_err(), exhausted(64, buffers));
            assert_eq!(stripes(&pool, 0).iter().sum::<u32>(), 0);
            drop(out);
            assert_eq!(stripes(&pool, 0), limits(&pool));
        }
    }
}

/// What stripes say of themselves adds up at any time, and the books agree with themselves.
#[test]
fn the_counts_of_the_stripes_add_up_to_what_is_free() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 150)]).with_max_thread_cache_capacity(some(10)));
    let mut random = Random::with_seed_or(11);
    let mut caches: Vec<_> = (0..3).map(|_| pool.cache().unwrap()).collect();
    let mut out = Vec::new();
    for _ in 0..rounds(20_000) {
        let cache = &mut caches[random.below(3) as usize];
        if random.below(2) == 0 {
            out.extend(cache.try_alloc(64).ok());
        } else if !out.is_empty() {
            let buffer = random.take(&mut out);
            if random.below(2) == 0 { cache.release(buffer) } else { drop(buffer) }
        }
        let figures = class(&pool, 64);
        let pairs: Vec<_> = pool.stripes(0).unwrap().collect();
        assert!(pairs.iter().all(|(free, limit)| free <= limit));
        assert_eq!(pairs.iter().map(|(free, _)| free).sum::<u32>(), figures.free);
        assert_eq!(figures.created, figures.free + figures.cached + figures.in_use);
        assert_eq!(figures.in_use as usize, out.len());
        assert_eq!(pool.check(), Ok(()));
    }
}

/// The lowest of a stripe's buffers come first, from every level of the books: leaves of 64, words of leaves, chunks.
#[test]
fn every_buffer_of_a_large_class_is_found_again_whatever_is_free() {
    let world = World::without_memory();
    let count = if cfg!(miri) { 1200 } else { 300_000 };
    let pool = world.pool(classes(&[(64, count)]).with_thread_cache_disabled());
    let mut out = take(&pool, 64, count);
    assert_eq!(pool.try_alloc(64).unwrap_err(), exhausted(64, count));
    let mut random = Random::with_seed_or(12);
    for some_of in [1, 2, 64, 65, 1000, count as usize / 2, count as usize] {
        let mut released = HashSet::new();
        for _ in 0..some_of.min(out.len()) {
            let buffer = random.take(&mut out);
            released.insert(place(&buffer));
            drop(buffer);
        }
        assert_eq!((free(&pool, 64) as usize, pool.check()), (released.len(), Ok(())));
        for _ in 0..released.len() {
            let buffer = pool.try_alloc(64).unwrap();
            assert!(released.remove(&place(&buffer)), "a buffer was handed out that was not free");
            out.push(buffer);
        }
        assert_eq!((class(&pool, 64).exhausted, pool.check()), (1, Ok(())));
    }
}

/// Chunks so large that their books have three levels, and the topmost more than one word.
#[test]
#[cfg_attr(miri, ignore = "millions of buffers")]
fn buffers_beyond_the_first_word_of_the_topmost_level_are_found() {
    let world = World::without_memory();
    let count = 6_600_000;
    let pool = world.pool(classes(&[(64, count)]).with_max_thread_cache_capacity(some(count as usize)));
    let mut cache = pool.cache().unwrap();
    let mut out = take_from(&mut cache, 64, count);
    assert_eq!(class(&pool, 64).created, count);
    // Of the newest of one stripe, and of the oldest.
    let newest = out.split_off(out.len() - 70_000);
    let mut released: HashSet<_> = newest.iter().chain(&out[..1000]).map(place).collect();
    drop(newest);
    out.drain(..1000).for_each(drop);
    assert_eq!((free(&pool, 64) as usize, pool.check()), (released.len(), Ok(())));
    while !released.is_empty() {
        let buffer = pool.try_alloc(64).unwrap();
        assert!(released.remove(&place(&buffer)));
        out.push(buffer);
    }
    assert_eq!((free(&pool, 64), pool.check()), (0, Ok(())));
    out.into_iter().for_each(|buffer| cache.release(buffer));
    cache.flush();
    assert_eq!((free(&pool, 64), pool.check()), (count, Ok(())));
}

/// Each where its stack says: that all say the same is as good as impossible.
#[cfg_attr(miri, ignore = "stacks are wherever Miri puts them")]
#[test]
fn threads_without_a_cache_begin_in_different_stripes() {
    let world = World::new();
    let pool = world.busy_pool(classes(&[(64, 1024)]).with_parallelism(some(16)).with_thread_cache_disabled());
    let all_have_one = Meeting::of(16);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let _buffer = pool.try_alloc(64).unwrap();
                all_have_one.wait();
            });
        }
    });
    let used = stripes(&pool, 0).into_iter().filter(|&free| free != 0).count();
    assert!(used >= 2, "all begin in one");
}
