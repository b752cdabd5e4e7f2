//! Caches: how much they hold, in which order it comes and goes, and when buffers move between them and the freelist.

use crate::world::{
    Cache, PAGE, Pool, World, class, classes, exhausted, exhausted_with, free, id, place, some, stripes, take,
    take_from,
};
use slicepool_core::{BufferPoolConfig, HostDevice, ThreadCache};

/// Classes of buffers of a page with one limit.
fn pages(limit: u32) -> BufferPoolConfig {
    classes(&[(PAGE, limit)])
}

/// What is in a cache and in the freelist.
fn local_and_global(cache: &Cache<'_>, pool: &Pool<'_>) -> (u32, u32) {
    assert_eq!(pool.check(), Ok(()));
    (cache.len_of(PAGE), free(pool, PAGE))
}

#[test]
fn capacities_follow_limit_and_parallelism_unless_they_are_given() {
    let world = World::new();
    let capacity = |config: BufferPoolConfig| class(&world.pool(config), PAGE).cache_capacity;
    for (limit, threads, expected) in [
        (64, 8, 4),
        (4096, 8, 256),
        (64, 1, 32),
        (64, 16, 2),
        (64, 32, 1),
        (64, 33, 0),
        (2, 1, 1),
        (2, 8, 0),
        (1, 1, 0),
        (3, 1, 1),
        (100, 3, 16),
    ] {
        assert_eq!(capacity(pages(limit).with_parallelism(some(threads))), expected, "{limit} {threads}");
    }
    assert_eq!(capacity(pages(10).with_max_thread_cache_capacity(some(11))), 10);
    assert_eq!(capacity(pages(64).with_thread_cache_disabled()), 0);
    assert_eq!(capacity(pages(64).with_thread_cache_disabled().with_thread_cache(ThreadCache::Auto)), 32);
    let explicit = world.pool(pages(64).with_parallelism(some(8)).with_max_thread_cache_capacity(some(7)));
    assert_eq!((class(&explicit, PAGE).cache_capacity, class(&explicit, PAGE).stripes), (7, 8));
    let two = world.pool(classes(&[(1024, 4), (4096, 64)]).with_max_thread_cache_capacity(some(16)));
    assert_eq!((class(&two, 1024).cache_capacity, class(&two, 4096).cache_capacity), (4, 16));
}

/// What the figure says is what a cache does: for every capacity, released one by one.
#[test]
fn a_cache_holds_as_many_as_it_may_and_spills_half_of_them_then() {
    for capacity in (0..=20).filter(|capacity| !cfg!(miri) || [0, 3, 4, 7].contains(capacity)) {
        let world = World::new();
        let config = pages(64);
        let pool = world.pool(match capacity {
            0 => config.with_thread_cache_disabled(),
            some_capacity => config.with_max_thread_cache_capacity(some(some_capacity as usize)),
        });
        let mut cache = pool.cache().unwrap();
        let mut out = take(&pool, PAGE, capacity + 1).into_iter();
        for held in 1..=capacity {
            cache.release(out.next().unwrap());
            assert_eq!(local_and_global(&cache, &pool), (held, 0));
        }
        cache.release(out.next().unwrap());
        let (local, global) = match capacity {
            0..=3 => (capacity, 1),
            _ => (capacity - capacity / 2 + 1, capacity / 2),
        };
        assert_eq!(local_and_global(&cache, &pool), (local, global), "{capacity}");
        assert_eq!(class(&pool, PAGE).spills, u64::from(capacity >= 4));
        // From then on there is room again.
        if capacity >= 4 {
            drop(out);
            let buffer = pool.try_alloc(PAGE).unwrap();
            cache.release(buffer);
            assert_eq!(local_and_global(&cache, &pool), (local + 1, global - 1));
        }
    }
}

/// Whatever else the cache has to do first.
#[test]
fn a_full_list_spills_also_when_another_class_wants_its_buffers_back() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 1), (PAGE, 64)]).with_max_thread_cache_capacity(some(8)));
    let mut cache = pool.cache().unwrap();
    cache.release(pool.try_alloc(64).unwrap());
    let mut out = take(&pool, PAGE, 9);
    let last = out.pop().unwrap();
    out.into_iter().for_each(|buffer| cache.release(buffer));
    assert_eq!(pool.try_alloc(64).unwrap_err(), exhausted_with(64, 1, 1));
    cache.release(last);
    assert_eq!(cache.len_of(64), 0);
    assert_eq!((local_and_global(&cache, &pool), class(&pool, PAGE).spills), ((5, 4), 1));
}

/// For every capacity and every number that is free.
#[test]
fn a_miss_takes_up_to_half_the_capacity_from_the_freelist_and_hands_out_the_first() {
    let every = if cfg!(miri) { 6 } else { 1 };
    for capacity in (0..=20).step_by(every) {
        for global in (0..=12).step_by(every) {
            let world = World::new();
            let config = pages(64);
            let pool = world.pool(match capacity {
                0 => config.with_thread_cache_disabled(),
                some_capacity => config.with_max_thread_cache_capacity(some(some_capacity as usize)),
            });
            let mut cache = pool.cache().unwrap();
            drop(take(&pool, PAGE, global));
            assert_eq!(local_and_global(&cache, &pool), (0, global));
            let batch = if capacity >= 4 { capacity / 2 } else { 1 };
            let buffer = cache.try_alloc(PAGE).unwrap();
            let taken = batch.min(global);
            let local = taken.saturating_sub(1);
            assert_eq!(local_and_global(&cache, &pool), (local, global - taken), "{capacity} {global}");
            let figures = class(&pool, PAGE);
            assert_eq!(figures.created, global.max(1));
            assert_eq!((figures.hits, figures.refills), (0, u64::from(global != 0 && capacity != 0)));
            // What stayed is handed out without the freelist.
            let rest = take_from(&mut cache, PAGE, local);
            assert_eq!(local_and_global(&cache, &pool), (0, global - taken));
            assert_eq!(class(&pool, PAGE).hits, u64::from(local));
            drop((buffer, rest));
        }
    }
}

#[test]
fn a_buffer_is_created_alone_and_never_a_batch() {
    let world = World::new();
    let pool = world.pool(pages(64).with_max_thread_cache_capacity(some(32)));
    let mut cache = pool.cache().unwrap();
    let out = take_from(&mut cache, PAGE, 5);
    assert_eq!((class(&pool, PAGE).created, local_and_global(&cache, &pool)), (5, (0, 0)));
    drop(out);
}

#[test]
fn what_was_released_last_comes_first() {
    let world = World::new();
    let pool = world.pool(pages(64).with_max_thread_cache_capacity(some(8)));
    let mut cache = pool.cache().unwrap();
    let out = take(&pool, PAGE, 8);
    let released: Vec<_> = out.iter().map(place).collect();
    out.into_iter().for_each(|buffer| cache.release(buffer));
    let again: Vec<_> = take_from(&mut cache, PAGE, 8).iter().map(place).collect();
    assert!(again.iter().rev().eq(&released), "{released:?} {again:?}");
}

#[test]
fn the_newer_half_spills_and_the_older_half_stays_under_the_one_that_came() {
    for capacity in [4, 5, 8, 11] {
        let world = World::new();
        let pool = world.pool(pages(64).with_max_thread_cache_capacity(some(capacity)));
        let mut cache = pool.cache().unwrap();
        let out = take(&pool, PAGE, capacity as u32 + 1);
        let places: Vec<_> = out.iter().map(place).collect();
        out.into_iter().for_each(|buffer| cache.release(buffer));
        let older = capacity - capacity / 2;
        let kept = take_from(&mut cache, PAGE, older as u32 + 1);
        let kept: Vec<_> = kept.iter().map(place).collect();
        let mut expected = vec![places[capacity]];
        expected.extend(places[..older].iter().rev());
        assert_eq!(kept, expected);
        assert_eq!(class(&pool, PAGE).hits, older as u64 + 1);
    }
}

/// The buffers of `L = 4096, P = 8`, at the numbers of the specification.
#[test]
fn one_more_than_the_capacity_leaves_half_and_one_and_a_miss_brings_half_less_one() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 4096)]).with_parallelism(some(8)));
    let mut cache = pool.cache().unwrap();
    let out = take(&pool, 64, 257);
    out.into_iter().for_each(|buffer| cache.release(buffer));
    assert_eq!((cache.len_of(64), free(&pool, 64)), (129, 128));
    let mut out = take_from(&mut cache, 64, 129);
    assert_eq!((cache.len_of(64), free(&pool, 64)), (0, 128));
    out.push(cache.try_alloc(64).unwrap());
    assert_eq!((cache.len_of(64), free(&pool, 64)), (127, 0));
}

#[test]
fn without_caches_every_buffer_goes_straight_to_the_freelist() {
    let world = World::new();
    let pool = world.pool(pages(64).with_parallelism(some(16)).with_thread_cache_disabled());
    let mut cache = pool.cache().unwrap();
    assert_eq!(class(&pool, PAGE).stripes, 16);
    let buffer = cache.try_alloc(PAGE).unwrap();
    cache.release(buffer);
    assert_eq!(local_and_global(&cache, &pool), (0, 1));
    let raw = cache.take(PAGE, false, false).unwrap();
    cache.release_raw(id(&raw)).unwrap();
    assert_eq!(local_and_global(&cache, &pool), (0, 1));
    let figures = class(&pool, PAGE);
    assert_eq!((figures.hits, figures.refills, figures.spills, figures.created), (0, 0, 0, 1));
}

#[test]
fn buffers_released_into_a_cache_of_capacity_0_are_at_once_there_for_others() {
    let world = World::new();
    let pool = world.pool(pages(2).with_parallelism(some(8)));
    let (mut one, mut other) = (pool.cache().unwrap(), pool.cache().unwrap());
    for buffer in take(&pool, PAGE, 2) {
        one.release(buffer);
    }
    assert_eq!(local_and_global(&one, &pool), (0, 2));
    assert_eq!(take_from(&mut other, PAGE, 2).len(), 2);
}

#[test]
fn a_cache_of_one_keeps_the_first_and_passes_on_the_second() {
    let world = World::new();
    let pool = world.pool(pages(2));
    let mut cache = pool.cache().unwrap();
    let [one, two] = <[_; 2]>::try_from(take(&pool, PAGE, 2)).unwrap();
    let places = [place(&one), place(&two)];
    cache.release(one);
    cache.release(two);
    assert_eq!(local_and_global(&cache, &pool), (1, 1));
    let out = take_from(&mut cache, PAGE, 2);
    assert_eq!([place(&out[0]), place(&out[1])], places);
}

#[test]
fn with_one_free_buffer_a_miss_keeps_nothing() {
    let world = World::new();
    let pool = world.pool(pages(64).with_max_thread_cache_capacity(some(16)));
    let mut cache = pool.cache().unwrap();
    drop(take(&pool, PAGE, 1));
    let _buffer = cache.try_alloc(PAGE).unwrap();
    assert_eq!(local_and_global(&cache, &pool), (0, 0));
}

#[test]
fn flush_moves_the_buffers_of_every_class_to_the_freelist() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 4), (2 * PAGE, 4)]).with_max_thread_cache_capacity(some(4)));
    let mut cache = pool.cache().unwrap();
    for size in [PAGE, 2 * PAGE] {
        let buffer = cache.try_alloc(size).unwrap();
        cache.release(buffer);
    }
    assert_eq!((cache.len_of(PAGE), cache.len_of(2 * PAGE)), (1, 1));
    cache.flush();
    assert_eq!((cache.len_of(PAGE), cache.len_of(2 * PAGE)), (0, 0));
    assert_eq!((free(&pool, PAGE), free(&pool, 2 * PAGE)), (1, 1));
    assert_eq!(class(&pool, PAGE).spills, 0);
    cache.flush();
    assert_eq!(local_and_global(&cache, &pool), (0, 1));
}

#[test]
fn flush_of_more_than_any_batch_loses_nothing() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 4096)]).with_max_thread_cache_capacity(some(4096)));
    let mut cache = pool.cache().unwrap();
    let count = if cfg!(miri) { 300 } else { 3000 };
    let mut out = take(&pool, 64, count);
    // Not in the order of their numbers.
    let mut random = crate::common::random::Random::from(9);
    while !out.is_empty() {
        cache.release(random.take(&mut out));
    }
    assert_eq!((cache.len_of(64), free(&pool, 64)), (count, 0));
    cache.flush();
    assert_eq!((cache.len_of(64), free(&pool, 64), pool.check()), (0, count, Ok(())));
    let again = take(&pool, 64, count);
    let mut places: Vec<_> = again.iter().map(place).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!((places.len() as u32, class(&pool, 64).created), (count, count));
}

#[test]
fn dropping_a_cache_gives_everything_back() {
    let world = World::new();
    let pool = world.pool(pages(8).with_max_thread_cache_capacity(some(8)));
    let mut cache = pool.cache().unwrap();
    for buffer in take(&pool, PAGE, 8) {
        cache.release(buffer);
    }
    assert_eq!((pool.try_alloc(PAGE).unwrap_err(), pool.statistics().caches), (exhausted_with(PAGE, 8, 8), 1));
    drop(cache);
    assert_eq!((free(&pool, PAGE), class(&pool, PAGE).cached, pool.statistics().caches), (8, 0, 0));
    assert_eq!(take(&pool, PAGE, 8).len(), 8);
}

#[test]
fn what_is_in_a_cache_others_cannot_have() {
    let world = World::new();
    let pool = world.pool(pages(4).with_max_thread_cache_capacity(some(4)));
    let (mut one, mut other) = (pool.cache().unwrap(), pool.cache().unwrap());
    for buffer in take(&pool, PAGE, 4) {
        one.release(buffer);
    }
    assert_eq!(other.try_alloc(PAGE).unwrap_err(), exhausted_with(PAGE, 4, 4));
    one.flush();
    let out = take_from(&mut other, PAGE, 4);
    assert_eq!(one.try_alloc(PAGE).unwrap_err(), exhausted(PAGE, 4));
    drop(out);
}

#[test]
fn a_buffer_goes_to_the_cache_that_releases_it_and_not_to_the_one_it_came_from() {
    let world = World::new();
    let pool = world.pool(pages(4).with_max_thread_cache_capacity(some(4)));
    let (mut one, mut other) = (pool.cache().unwrap(), pool.cache().unwrap());
    let buffer = one.try_alloc(PAGE).unwrap();
    other.release(buffer);
    assert_eq!((one.len_of(PAGE), other.len_of(PAGE)), (0, 1));
}

#[test]
fn a_buffer_of_another_pool_goes_back_there() {
    let world = World::new();
    let (pool, foreign) = (world.pool(pages(4)), world.pool(pages(4)));
    let mut cache = pool.cache().unwrap();
    let buffer = foreign.try_alloc(PAGE).unwrap();
    cache.release(buffer);
    assert_eq!((cache.len_of(PAGE), free(&pool, PAGE), free(&foreign, PAGE)), (0, 0, 1));
}

#[test]
fn raw_buffers_and_owners_share_a_cache() {
    let world = World::new();
    let pool = world.pool(pages(8).with_max_thread_cache_capacity(some(8)));
    let mut cache = pool.cache().unwrap();
    let raw = cache.take(PAGE, false, false).unwrap();
    cache.release_raw(id(&raw)).unwrap();
    assert_eq!(cache.len_of(PAGE), 1);
    let owner = cache.try_alloc(PAGE).unwrap();
    assert_eq!(place(&owner), (raw.memory, raw.offset));
    cache.release(owner);
    let again = cache.take(PAGE, false, false).unwrap();
    assert_eq!((again.memory, again.offset, class(&pool, PAGE).hits), (raw.memory, raw.offset, 2));
    assert_ne!(again.id, raw.id);
    pool.release(id(&again)).unwrap();
    assert_eq!(local_and_global(&cache, &pool), (0, 1));
}

#[test]
fn sizes_without_a_class_have_no_length_in_a_cache() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 4), (8 * PAGE, 4)]).with_max_thread_cache_capacity(some(4)));
    let mut cache = pool.cache().unwrap();
    let buffer = cache.try_alloc(PAGE).unwrap();
    cache.release(buffer);
    assert_eq!((cache.len_of(0), cache.len_of(1), cache.len_of(PAGE), cache.len_of(PAGE + 1)), (1, 1, 1, 0));
    assert_eq!((cache.len_of(8 * PAGE + 1), cache.len_of(usize::MAX)), (0, 0));
}

/// The home of a cache is its number: from there it takes, and there it creates.
#[test]
fn caches_have_their_homes_in_the_order_in_which_they_were_made() {
    let world = World::new();
    let config = pages(64).with_parallelism(some(16)).with_thread_cache_disabled();
    let prefilled = world.pool(config.with_prefill(true));
    let empty = world.pool(config);
    for number in 0..40 {
        let home = number % 16;
        let (mut cache, mut other) = (prefilled.cache().unwrap(), empty.cache().unwrap());
        let before = stripes(&prefilled, 0);
        let buffer = cache.try_alloc(PAGE).unwrap();
        let mut expected = before.clone();
        expected[home] -= 1;
        assert_eq!(stripes(&prefilled, 0), expected);
        cache.release(buffer);
        assert_eq!(stripes(&prefilled, 0), before, "a buffer goes back to where it was made");
        if number < 16 {
            let created = other.try_alloc(PAGE).unwrap();
            let mut expected = stripes(&empty, 0);
            expected[home] += 1;
            other.release(created);
            assert_eq!(stripes(&empty, 0), expected, "{number}");
            // So that the next one has to create its own.
            assert!(other.take(PAGE, false, false).unwrap().id.is_some());
        }
    }
    assert_eq!(class(&empty, PAGE).created, 16);
    // SAFETY: nobody has any of them any more.
    unsafe { empty.destroy(true) }.unwrap();
}

#[test]
fn counts_of_caches_that_are_gone_stay() {
    let world = World::new();
    let pool = world.pool(pages(64).with_max_thread_cache_capacity(some(4)));
    for round in 1..=3 {
        let mut cache = pool.cache().unwrap();
        // Two refills of two, a spill, and hits for what was kept.
        drop(take(&pool, PAGE, 4));
        let out = take_from(&mut cache, PAGE, 4);
        let one = pool.try_alloc(PAGE).unwrap();
        out.into_iter().chain([one]).for_each(|buffer| cache.release(buffer));
        let figures = class(&pool, PAGE);
        assert_eq!((figures.hits, figures.refills, figures.spills), (2 * round, 2 * round, round));
        drop(cache);
        let figures = class(&pool, PAGE);
        assert_eq!((figures.hits, figures.refills, figures.spills), (2 * round, 2 * round, round));
    }
}

#[test]
fn a_cache_can_be_sent_to_another_thread() {
    fn assert_send<T: Send>() {}
    fn assert_shared<T: Send + Sync>() {}
    assert_send::<slicepool_core::BufferCache<HostDevice>>();
    assert_shared::<slicepool_core::BufferPool<HostDevice>>();
    assert_shared::<slicepool_core::PooledBuffer<HostDevice>>();
}

/// Without a word to anybody else, and only there.
#[test]
fn what_a_cache_holds_can_be_had_by_itself_down_to_the_least_size() {
    let world = World::new();
    let config = classes(&[(64, 4), (PAGE, 4)]).with_pool_min_size(64);
    let pool = world.pool(config.with_max_thread_cache_capacity(some(4)));
    let mut cache = pool.cache().unwrap();
    drop(pool.try_alloc(64).unwrap());
    assert!(cache.take_cached(64).is_none(), "what is free is not in the cache");
    let held = [cache.try_alloc(64).unwrap(), cache.try_alloc(PAGE).unwrap()];
    let places: Vec<_> = held.iter().map(place).collect();
    held.into_iter().for_each(|buffer| cache.release(buffer));
    let hits = class(&pool, 64).hits;
    for size in [0, 63, PAGE + 1, usize::MAX] {
        assert!(cache.take_cached(size).is_none(), "{size}");
    }
    for (size, expected) in [64, PAGE].into_iter().zip(places) {
        let raw = cache.take_cached(size).unwrap();
        assert_eq!(((raw.memory, raw.offset), pool.get(id(&raw))), (expected, Ok(raw)));
        assert!(cache.take_cached(size).is_none(), "it was the only one");
        assert_eq!(pool.release(id(&raw)), Ok(()));
    }
    assert_eq!((class(&pool, 64).hits, pool.check()), (hits + 1, Ok(())));
}

/// Whoever has to catch up with the pool first has to ask it.
#[test]
fn a_cache_that_is_asked_for_buffers_has_nothing_to_give_by_itself() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 1), (PAGE, 4)]).with_max_thread_cache_capacity(some(4)));
    let mut cache = pool.cache().unwrap();
    cache.release(pool.try_alloc(PAGE).unwrap());
    let held = pool.try_alloc(64).unwrap();
    // No cache has any of the class: none is asked.
    assert_eq!(pool.try_alloc(64).unwrap_err(), exhausted(64, 1));
    let raw = cache.take_cached(PAGE).unwrap();
    cache.release_raw(id(&raw)).unwrap();
    cache.release(held);
    assert_eq!(pool.try_alloc(64).unwrap_err(), exhausted_with(64, 1, 1));
    assert!(cache.take_cached(PAGE).is_none());
    assert_eq!((cache.len_of(64), cache.len_of(PAGE)), (1, 1));
    drop(cache.try_alloc(PAGE).unwrap());
    assert_eq!((cache.len_of(64), free(&pool, 64)), (0, 1));
}
