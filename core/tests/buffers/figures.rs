//! What a pool says of itself, what its books take, and what a miss costs.

use crate::common::random::Random;
use crate::world::{PAGE, World, class, classes, exhausted, free, id, limit, rounds, some, stripes, take, take_from};
use slicepool_core::{BufferPoolConfig, BufferPoolStatistics, Error};
use std::time::{Duration, Instant};

#[test]
fn figures_of_a_new_pool_tell_its_configuration_and_nothing_else() {
    let world = World::new();
    let config = BufferPoolConfig::for_network().with_parallelism(some(16));
    let pool = world.pool(config);
    assert_eq!(pool.config(), &config);
    let BufferPoolStatistics { classes, caches, untracked, oversized, bypassed, reserved, .. } = pool.statistics();
    assert_eq!((classes, caches, untracked, oversized, bypassed, reserved), (8, 0, 0, 0, 0, 0));
    for (index, one) in config.size_classes().enumerate() {
        let figures = pool.class_statistics(index).unwrap();
        assert_eq!(pool.statistics_of(one.size), Some(figures));
        assert_eq!((figures.size, figures.limit), (one.size.get() as u64, 4096));
        assert_eq!((figures.stripes, figures.cache_capacity), (16, 128));
        assert_eq!((figures.created, figures.in_use, figures.cached, figures.free, figures.retired), (0, 0, 0, 0, 0));
        assert_eq!((figures.hits, figures.refills, figures.spills, figures.exhausted), (0, 0, 0, 0));
    }
    assert_eq!((pool.class_statistics(8), pool.statistics_of(some(512)), pool.check()), (None, None, Ok(())));
}

#[test]
fn caches_are_counted_while_they_exist() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 10)]));
    let mut caches: Vec<_> = (0..5).map(|_| pool.cache().unwrap()).collect();
    // Not in the order of their making.
    for gone in [2, 0, 2, 1, 0] {
        assert_eq!(pool.statistics().caches as usize, caches.len());
        drop(caches.remove(gone));
        assert_eq!(pool.check(), Ok(()));
    }
    assert_eq!(pool.statistics().caches, 0);
}

/// What the books take according to themselves and according to who gives it.
#[test]
fn the_figure_for_host_memory_is_what_the_host_has_given() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 5000), (1 << 16, 100)]).with_pool_min_size(64));
    let mut caches = Vec::new();
    let mut out = Vec::new();
    let mut random = Random::from(61);
    assert_eq!(pool.statistics().metadata, world.host.bytes());
    for _ in 0..rounds(3000) {
        match random.below(20) {
            0 => caches.extend(pool.cache().ok()),
            1 if !caches.is_empty() => drop(random.take(&mut caches)),
            2 => out.extend(pool.alloc(10).ok()),
            3 if !out.is_empty() => drop(random.take(&mut out)),
            4 => out.extend(pool.try_alloc(1 << 16).ok()),
            _ => out.extend(pool.try_alloc(64).ok()),
        }
        assert_eq!(pool.statistics().metadata, world.host.bytes());
    }
}

/// Section 0.6 of the specification, and scenario 52.
#[test]
fn a_pool_with_the_largest_limits_takes_what_one_with_small_limits_takes() {
    let bytes = |config: BufferPoolConfig| {
        let world = World::without_memory();
        let pool = world.pool(config);
        let cache = pool.cache().unwrap();
        let bytes = world.host.bytes();
        drop((pool, cache));
        (bytes, world.host.calls())
    };
    let one = classes(&[(64, 4096)]);
    assert_eq!(bytes(one.with_max_per_class(limit(u32::MAX))), bytes(one));
    assert!(bytes(one).0 < 20 << 10, "{:?}", bytes(one));
    let network = BufferPoolConfig::for_network();
    println!("bytes and allocations: {:?} for one class, {:?} for eight", bytes(one), bytes(network));
    assert_eq!(bytes(network.with_max_per_class(limit(u32::MAX))), bytes(network));
    assert!(bytes(network).0 < 64 << 10, "{:?}", bytes(network));
}

#[test]
fn making_a_pool_with_the_largest_limits_takes_no_time() {
    let make = |config: BufferPoolConfig| {
        (0..20)
            .map(|_| {
                let world = World::without_memory();
                let begin = Instant::now();
                let pool = world.pool(config);
                let time = begin.elapsed();
                drop(pool);
                time
            })
            .min()
            .unwrap()
    };
    let network = BufferPoolConfig::for_network();
    let (small, large) = (make(network), make(network.with_max_per_class(limit(u32::MAX))));
    assert!(large < small * 10 + Duration::from_micros(100), "{large:?} against {small:?}");
}

#[test]
fn books_grow_with_the_buffers_that_are_created_and_with_nothing_else() {
    let world = World::without_memory();
    let pool = world.pool(classes(&[(64, u32::MAX)]).with_thread_cache_disabled());
    let start = world.host.bytes();
    let mut out = Vec::new();
    for count in [10, 100, 1000, 10_000, 100_000] {
        if cfg!(miri) && count > 1000 {
            break;
        }
        out.extend(take(&pool, 64, count - out.len() as u32));
        let grown = world.host.bytes() - start;
        // Four words each and a bit, in chunks that double, of eight stripes.
        let slot = if usize::BITS == 64 { 32 } else { 24 };
        let most = u64::from(count) * (slot + 1) * 2 + 20_000;
        assert!(u64::from(count) * slot < grown + slot && grown < most, "{count}: {grown}");
    }
    // What comes and goes takes nothing more.
    let before = (world.host.bytes(), world.host.calls());
    for _ in 0..3 {
        let count = out.len() as u32;
        out.clear();
        out.extend(take(&pool, 64, count));
    }
    assert_eq!((world.host.bytes(), world.host.calls()), before);
}

// ---- what a miss costs

/// A pool of which everything is out, and how often its locks are taken by misses, and by an exchange of one buffer.
fn locks(count: u32, caches: u32) -> [u64; 3] {
    let world = World::without_memory();
    let pool = world.pool(classes(&[(64, count)]).with_max_thread_cache_capacity(some(4)));
    let mut others: Vec<_> = (0..caches).map(|_| pool.cache().unwrap()).collect();
    let mut out = take(&pool, 64, count);
    let per_call = |call: &mut dyn FnMut()| {
        let before = world.lock.taken();
        (0..10).for_each(|_| call());
        world.lock.taken() - before
    };
    let miss = per_call(&mut || assert_eq!(pool.try_alloc(64).unwrap_err(), exhausted(64, count)));
    let of_cache = others.first_mut().map_or(0, |cache| per_call(&mut || assert!(cache.try_alloc(64).is_err())));
    let exchange = per_call(&mut || {
        drop(out.pop());
        out.push(pool.try_alloc(64).unwrap());
    });
    [miss, of_cache, exchange]
}

/// Scenario 53.
#[test]
fn a_miss_takes_as_few_locks_at_a_million_buffers_as_at_a_hundred() {
    let many = if cfg!(miri) { 2000 } else { 1_000_000 };
    for caches in [0, 3] {
        let few = locks(100, caches);
        assert_eq!(locks(many, caches), few);
        // The caches' list and the slabs', and nothing of the freelist.
        assert!(few[0] <= 30 && few[1] <= 30, "{few:?}");
        assert_eq!(few[2], 20, "one lock for each way");
    }
}

/// What is not to be seen from locks: what is done under one. Two times of one run are compared.
#[test]
#[cfg_attr(miri, ignore = "times")]
fn a_miss_and_the_exchange_of_one_buffer_take_as_long_at_a_million_buffers_as_at_a_hundred() {
    let worlds = [World::without_memory(), World::without_memory()];
    let mut pools: Vec<_> = worlds
        .iter()
        .zip([100, 1_000_000])
        .map(|(world, count)| {
            let pool = world.busy_pool(classes(&[(64, count)]));
            let out = take(&pool, 64, count);
            (pool, out)
        })
        .collect();
    let mut times = [[Duration::MAX; 2]; 2];
    for _ in 0..200 {
        for ((pool, out), times) in pools.iter_mut().zip(&mut times) {
            let begin = Instant::now();
            (0..100).for_each(|_| assert!(pool.try_alloc(64).is_err()));
            times[0] = times[0].min(begin.elapsed());
            let begin = Instant::now();
            for _ in 0..100 {
                drop(out.pop());
                out.push(pool.try_alloc(64).unwrap());
            }
            times[1] = times[1].min(begin.elapsed());
        }
    }
    println!("a hundred misses and exchanges: {times:?}");
    for (few, many) in times[0].into_iter().zip(times[1]) {
        assert!(many < few * 5 + Duration::from_micros(5), "{many:?} against {few:?}");
    }
}

#[test]
fn a_hit_takes_no_lock_and_a_refill_or_spill_a_few() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 64)]).with_max_thread_cache_capacity(some(16)).with_prefill(true));
    let mut cache = pool.cache().unwrap();
    let out = take_from(&mut cache, 64, 8);
    out.into_iter().for_each(|buffer| cache.release(buffer));
    let before = world.lock.taken();
    for _ in 0..1000 {
        let buffer = cache.try_alloc(64).unwrap();
        cache.release(buffer);
        let raw = cache.take(64, false, false).unwrap();
        cache.release_raw(id(&raw)).unwrap();
    }
    assert_eq!((world.lock.taken(), class(&pool, 64).hits), (before, 2000 + 7));
}

// ---- a count of one's own

/// Everything that a class counts, by somebody who knows what happens.
#[test]
fn figures_of_a_class_are_a_count_of_ones_own() {
    let world = World::new();
    let config = classes(&[(64, 40)]).with_max_thread_cache_capacity(some(8));
    let pool = world.pool(config);
    let mut random = Random::with_seed_or(62);
    let (mut created, mut global) = (0u32, 0u32);
    let (mut hits, mut refills, mut spills, mut refused) = (0, 0, 0, 0);
    let mut caches: Vec<_> = (0..3).map(|_| (pool.cache().unwrap(), 0u32)).collect();
    let mut out = Vec::new();
    for _ in 0..rounds(100_000) {
        let index = random.below(3) as usize;
        if random.below(2) == 0 {
            let held = &mut caches[index].1;
            let (mut cached, mut is_refused) = (*held, false);
            if cached != 0 {
                hits += 1;
                cached -= 1;
            } else if global != 0 {
                refills += 1;
                let taken = global.min(4);
                global -= taken;
                cached = taken - 1;
            } else if created < 40 {
                created += 1;
            } else {
                refused += 1;
                is_refused = true;
            }
            *held = cached;
            let others: u32 = caches.iter().map(|(_, held)| held).sum();
            let taken = caches[index].0.try_alloc(50);
            if is_refused {
                assert_eq!(
                    taken.unwrap_err(),
                    Error::Exhausted { size: 64, limit: 40, cached: others, growths_in_flight: 0 }
                );
                // The marks that this has left are followed at once.
                for (cache, held) in &mut caches {
                    cache.flush();
                    cache.release(out.pop().unwrap());
                    global += std::mem::replace(held, 1);
                }
            } else {
                out.push(taken.unwrap());
            }
        } else if !out.is_empty() {
            let buffer = random.take(&mut out);
            let (cache, held) = &mut caches[index];
            if random.below(4) == 0 {
                drop(buffer);
                global += 1;
            } else {
                cache.release(buffer);
                if *held == 8 {
                    spills += 1;
                    global += 4;
                    *held -= 4;
                }
                *held += 1;
            }
        }
        let figures = class(&pool, 64);
        let cached = caches.iter().map(|(_, held)| held).sum();
        assert_eq!((figures.created, figures.free, figures.cached), (created, global, cached));
        assert_eq!(figures.in_use as usize, out.len());
        assert_eq!((figures.hits, figures.refills, figures.spills), (hits, refills, spills));
        assert_eq!(figures.exhausted, refused);
        assert!(caches.iter().all(|(cache, held)| cache.len_of(64) == *held));
    }
    assert_eq!((stripes(&pool, 0).iter().sum::<u32>(), pool.check()), (global, Ok(())));
    assert_eq!(free(&pool, 64), global);
}
