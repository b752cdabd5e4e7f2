//! Threads that share a pool, or end before or after it.

use crate::common::meeting::Meeting;
use crate::common::random::Random;
use crate::world::{
    Cache, PAGE, Pool, World, class, classes, exhausted, free, id, place, rounds, some, stripes, take, take_from,
};
use slicepool_core::{BufferCache, BufferId, BufferPool, Error, HostDevice};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

/// Writes all over a buffer, and panics if anybody else has when it looks again.
fn use_alone(bytes: &mut [u8], stamp: u8) {
    bytes.fill(stamp);
    if stamp % 4 == 0 {
        thread::yield_now();
    }
    assert!(bytes.iter().all(|&byte| byte == stamp), "two have the same buffer");
}

#[test]
fn buffers_released_by_another_thread_are_in_that_thread_s_cache_and_serve_it() {
    let world = World::new();
    let pool = world.busy_pool(classes(&[(PAGE, 100)]));
    let buffers = take(&pool, PAGE, 50);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut cache = pool.cache().unwrap();
            buffers.into_iter().for_each(|buffer| cache.release(buffer));
            assert_eq!((cache.len_of(PAGE), free(&pool, PAGE)), (50, 0));
            let again = take_from(&mut cache, PAGE, 50);
            assert_eq!((class(&pool, PAGE).created, class(&pool, PAGE).hits), (50, 50));
            again.into_iter().for_each(|buffer| cache.release(buffer));
        });
    });
    assert_eq!(free(&pool, PAGE), 50, "the thread has ended");
}

#[test]
fn a_thread_that_ends_leaves_its_buffers_to_others() {
    let world = World::new();
    // One of two: a cache for one has no use.
    let pool = world.busy_pool(classes(&[(PAGE, 1)]).with_max_thread_cache_capacity(some(1)));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut cache = pool.cache().unwrap();
            let buffer = cache.try_alloc(PAGE).unwrap();
            cache.release(buffer);
            assert_eq!((cache.len_of(PAGE), free(&pool, PAGE)), (1, 0));
        });
    });
    assert_eq!(free(&pool, PAGE), 1);
    assert!(pool.try_alloc(PAGE).is_ok());
}

#[test]
fn a_thread_that_ends_after_its_pool_is_clean() {
    let world = World::new();
    let pool = world.busy_pool(classes(&[(PAGE, 8)]));
    let (filled, go_on) = (Meeting::of(2), Meeting::of(2));
    thread::scope(|scope| {
        let mut cache = pool.cache().unwrap();
        let (filled, go_on) = (&filled, &go_on);
        scope.spawn(move || {
            let out = take_from(&mut cache, PAGE, 4);
            out.into_iter().for_each(|buffer| cache.release(buffer));
            assert_eq!(cache.len_of(PAGE), 4);
            filled.wait();
            go_on.wait();
        });
        filled.wait();
        drop(pool);
        assert_eq!(world.device.pages(), 1);
        go_on.wait();
    });
    assert_eq!((world.device.pages(), world.host.bytes()), (0, 0));
}

thread_local! {
    static CACHE: RefCell<Option<BufferCache<HostDevice>>> = const { RefCell::new(None) };
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

/// Uses its pool when it is dropped: while its thread ends.
struct Late(BufferPool<HostDevice>);

impl Drop for Late {
    fn drop(&mut self) {
        let buffers = take(&self.0, PAGE, 2);
        let cached = CACHE.try_with(|cache| cache.borrow_mut().as_mut().map(|cache| cache.try_alloc(PAGE).unwrap()));
        drop((buffers, cached));
    }
}

#[test]
fn buffers_can_be_had_and_released_while_a_thread_ends() {
    for late_first in [false, true] {
        let pool = BufferPool::try_new(classes(&[(PAGE, 4)])).unwrap();
        let of_thread = pool.clone();
        thread::spawn(move || {
            if late_first {
                LATE.set(Some(Late(of_thread.clone())));
            }
            let mut cache = of_thread.cache().unwrap();
            let out = take_from(&mut cache, PAGE, 2);
            out.into_iter().for_each(|buffer| cache.release(buffer));
            CACHE.set(Some(cache));
            if !late_first {
                LATE.set(Some(Late(of_thread)));
            }
        })
        .join()
        .unwrap();
        assert_eq!(take(&pool, PAGE, 4).len(), 4);
        assert_eq!(pool.try_alloc(PAGE).map(drop), Ok(()));
        assert_eq!((free(&pool, PAGE), pool.statistics().caches, pool.check()), (4, 0, Ok(())));
    }
}

/// What each thread does in [`share`].
#[derive(Clone, Copy, PartialEq)]
enum Through {
    Pool,
    Cache,
    Either,
}

/// Threads that take buffers of 64 and put them back; every one writes to what it has and finds it as it was.
fn share(through: Through) {
    let world = World::new();
    let config = classes(&[(256, 64)]).with_parallelism(some(8)).with_max_thread_cache_capacity(some(6));
    let pool = world.busy_pool(config);
    let start = Meeting::of(8);
    thread::scope(|scope| {
        for number in 0..8u64 {
            let (pool, start) = (&pool, &start);
            scope.spawn(move || {
                let mut random = Random::from(number);
                let mut cache = pool.cache().unwrap();
                let mut own = Vec::new();
                start.wait();
                for round in 0..rounds(1000) {
                    let by_cache = match through {
                        Through::Pool => false,
                        Through::Cache => true,
                        Through::Either => random.below(2) == 0,
                    };
                    let taken = if by_cache { cache.try_alloc(200) } else { pool.try_alloc(200) };
                    match taken {
                        Ok(mut buffer) => {
                            buffer.resize(256, 0);
                            use_alone(&mut buffer, (number * 32) as u8 + (round % 32) as u8);
                            own.push(buffer);
                        }
                        Err(error) => assert!(matches!(error, Error::Exhausted { limit: 64, .. }), "{error:?}"),
                    }
                    while own.len() > random.below(12) as usize {
                        let mut buffer: crate::world::Buffer<'_> = random.take(&mut own);
                        let stamp = buffer[0];
                        assert!(u64::from(stamp) / 32 == number && buffer.iter().all(|&byte| byte == stamp));
                        use_alone(&mut buffer, stamp);
                        if by_cache { cache.release(buffer) } else { drop(buffer) }
                    }
                }
            });
        }
    });
    let figures = class(&pool, 256);
    assert_eq!((figures.free, figures.cached, figures.in_use, pool.check()), (figures.created, 0, 0, Ok(())));
    let all: HashSet<_> = take(&pool, 256, 64).iter().map(place).collect();
    assert_eq!((all.len(), class(&pool, 256).created), (64, 64));
}

#[test]
fn eight_threads_never_have_the_same_buffer_of_the_freelist() {
    share(Through::Pool);
}

#[test]
fn eight_threads_never_have_the_same_buffer_through_their_caches() {
    share(Through::Cache);
}

#[test]
fn eight_threads_never_have_the_same_buffer_with_and_without_caches() {
    share(Through::Either);
}

/// A buffer that may be in a slab which another thread is just getting.
fn create<'a>(pool: &Pool<'a>) -> crate::world::Buffer<'a> {
    loop {
        match pool.try_alloc(1 << 16) {
            Ok(buffer) => return buffer,
            Err(Error::Exhausted { growths_in_flight: 1.., .. }) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn eight_threads_create_64_buffers_and_each_is_another() {
    for _ in 0..rounds(50) {
        let world = World::new();
        let pool = world.busy_pool(classes(&[(1 << 16, 64)]).with_parallelism(some(8)));
        let start = Meeting::of(8);
        let places = Mutex::new(HashSet::new());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let own: Vec<_> = (0..8).map(|_| create(&pool)).collect();
                    places.lock().unwrap().extend(own.iter().map(place));
                    start.wait();
                });
            }
        });
        assert_eq!(places.lock().unwrap().len(), 64);
        assert_eq!((class(&pool, 1 << 16).created, world.device.bytes()), (64, 64 << 16));
        assert_eq!(pool.check(), Ok(()));
    }
}

#[test]
fn eight_threads_put_back_64_buffers_in_batches_and_every_stripe_is_full() {
    for round in 0..rounds(50) {
        let world = World::new();
        let config = classes(&[(64, 64)]).with_parallelism(some(8)).with_max_thread_cache_capacity(some(8));
        let pool = world.busy_pool(config.with_prefill(round % 2 == 0));
        let mut all = take(&pool, 64, 64);
        let start = Meeting::of(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                let own = all.split_off(all.len() - 8);
                let (mut cache, start) = (pool.cache().unwrap(), &start);
                scope.spawn(move || {
                    own.into_iter().for_each(|buffer| cache.release(buffer));
                    start.wait();
                    if round % 3 == 0 { drop(cache) } else { cache.flush() }
                });
            }
        });
        assert_eq!((stripes(&pool, 0), pool.check()), (vec![8; 8], Ok(())));
    }
}

#[test]
fn ten_threads_leave_a_pool_of_100_as_good_as_new() {
    let world = World::new();
    let pool = world.busy_pool(classes(&[(PAGE, 100)]).with_parallelism(some(10)));
    thread::scope(|scope| {
        for number in 0..10u8 {
            let pool = &pool;
            scope.spawn(move || {
                let mut cache = pool.cache().unwrap();
                for round in 0..rounds(1000) {
                    let mut buffer = cache.alloc(PAGE).unwrap();
                    buffer.extend_from_slice(&[number]);
                    assert_eq!(&buffer[..], &[number]);
                    if round % 2 == 0 { cache.release(buffer) } else { drop(buffer) }
                }
            });
        }
    });
    let figures = class(&pool, PAGE);
    assert_eq!((figures.in_use, figures.cached, figures.free), (0, 0, figures.created));
    assert_eq!((take(&pool, PAGE, 100).len(), pool.statistics().untracked, pool.check()), (100, 0, Ok(())));
}

/// Everything at once, with handles that threads pass on to each other.
#[test]
fn threads_that_do_everything_and_pass_handles_on_end_with_nothing_lost() {
    let world = World::new();
    let config = classes(&[(64, 30), (1024, 20), (1 << 15, 5)]).with_max_thread_cache_capacity(some(5));
    let pool = world.busy_pool(config.with_pool_min_size(16));
    let passed: Mutex<Vec<BufferId>> = Mutex::default();
    let refused = AtomicU32::new(0);
    let mut seeds = Random::with_seed_or(41);
    thread::scope(|scope| {
        for _ in 0..4 {
            let (pool, passed, refused, mut random) = (&pool, &passed, &refused, seeds.split());
            scope.spawn(move || {
                let mut cache = pool.cache().unwrap();
                let mut own = Vec::new();
                for _ in 0..rounds(20_000) {
                    let size = random.scaled(1 << 15) as usize;
                    match random.below(12) {
                        0..=2 => own.extend(cache.try_alloc(size).ok()),
                        3 => own.extend(pool.try_alloc(size).ok()),
                        4 if size < 5000 => own.extend(cache.alloc_zeroed(size).ok()),
                        5 if !own.is_empty() => {
                            let buffer: crate::world::Buffer<'_> = random.take(&mut own);
                            passed.lock().unwrap().extend(buffer.into_raw().id);
                        }
                        6 | 7 => {
                            let handle = passed.lock().unwrap().pop();
                            if let Some(handle) = handle {
                                match random.below(3) {
                                    0 => pool.release(handle).unwrap(),
                                    1 => cache.release_raw(handle).unwrap(),
                                    _ => own.push(pool.adopt(handle).unwrap()),
                                }
                                // The others may have it again, under another name.
                                assert_eq!(pool.release(handle), Err(Error::StaleHandle));
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        8 if random.below(20) == 0 => cache.flush(),
                        8 if random.below(20) == 0 => cache = pool.cache().unwrap(),
                        9 if random.below(50) == 0 => {
                            assert!(class(pool, 1024).created <= 20 && pool.regions().count() <= 3);
                        }
                        _ if !own.is_empty() => {
                            let mut buffer = random.take(&mut own);
                            let capacity = buffer.capacity();
                            buffer.resize(capacity.min(64), 0);
                            use_alone(&mut buffer, random.any() as u8);
                            if random.below(3) == 0 { drop(buffer) } else { cache.release(buffer) }
                        }
                        _ => {}
                    }
                    if own.len() > 12 {
                        drop(random.take(&mut own));
                    }
                }
            });
        }
    });
    for handle in passed.into_inner().unwrap() {
        pool.release(handle).unwrap();
    }
    for size in [64, 1024, 1 << 15] {
        let figures = class(&pool, size);
        assert_eq!((figures.in_use, figures.cached, figures.free), (0, 0, figures.created), "{size}");
        assert!(figures.created <= figures.limit);
    }
    assert_eq!((pool.statistics().untracked, pool.statistics().caches, pool.check()), (0, 0, Ok(())));
    assert!(cfg!(miri) || refused.load(Ordering::Relaxed) > 100);
}

#[test]
fn of_several_threads_with_one_handle_one_succeeds() {
    let world = World::new();
    let pool = world.busy_pool(classes(&[(64, 4)]));
    let start = Meeting::of(4);
    let handle = AtomicU64::new(0);
    let won = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..4 {
            let (pool, start, handle, won) = (&pool, &start, &handle, &won);
            scope.spawn(move || {
                let mut cache = pool.cache().unwrap();
                for round in 0..rounds(2000) {
                    if number == 0 {
                        let size = if round % 5 == 0 { 1000 } else { 64 };
                        let raw = pool.take(size, true, false).unwrap();
                        handle.store(id(&raw).to_raw(), Ordering::Relaxed);
                        won.store(0, Ordering::Relaxed);
                    }
                    start.wait();
                    let handle = BufferId::from_raw(handle.load(Ordering::Relaxed)).unwrap();
                    let answer = match number {
                        0 | 1 => pool.release(handle),
                        2 => cache.release_raw(handle),
                        _ => pool.adopt(handle).map(drop),
                    };
                    match answer {
                        Ok(()) => {
                            won.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => assert_eq!(error, Error::StaleHandle),
                    }
                    start.wait();
                    assert_eq!(won.load(Ordering::Relaxed), 1);
                    cache.flush();
                    start.wait();
                }
            });
        }
    });
    assert_eq!((class(&pool, 64).in_use, pool.statistics().untracked, pool.check()), (0, 0, Ok(())));
}

/// A right answer or stale, never another's.
#[test]
fn a_thread_that_asks_for_a_buffer_which_another_releases_hears_the_truth_or_that_it_is_gone() {
    for beyond in [false, true] {
        let world = World::new();
        let pool = world.busy_pool(classes(&[(64, 1)]));
        let hold = beyond.then(|| pool.try_alloc(64).unwrap());
        let first = pool.take(64, beyond, false).unwrap();
        let (handle, done) = (AtomicU64::new(id(&first).to_raw()), AtomicBool::new(false));
        pool.release(id(&first)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds(20_000) {
                    // Buffers beyond the ceiling tell by their size which they are.
                    let size = if beyond { 100 + round as usize % 50 } else { 64 };
                    let raw = pool.take(size, beyond, false).unwrap();
                    handle.store(id(&raw).to_raw(), Ordering::Relaxed);
                    (0..round % 3).for_each(|_| thread::yield_now());
                    assert_eq!(pool.get(id(&raw)), Ok(raw));
                    pool.release(id(&raw)).unwrap();
                }
                done.store(true, Ordering::Release);
            });
            let (mut right, mut first_of) = (0, std::collections::HashMap::new());
            while !done.load(Ordering::Acquire) {
                let asked = BufferId::from_raw(handle.load(Ordering::Relaxed)).unwrap();
                match pool.get(asked) {
                    Ok(raw) => {
                        right += 1;
                        assert_eq!(raw.id, Some(asked));
                        assert_eq!(*first_of.entry(asked).or_insert(raw), raw, "one handle, two buffers");
                    }
                    Err(error) => assert_eq!(error, Error::StaleHandle),
                }
            }
            println!("{right} right answers");
            assert!(cfg!(miri) || right > 0);
        });
        drop(hold);
        assert_eq!(pool.check(), Ok(()));
    }
}

// ---- one thread takes, another releases

/// Scenario 51, step by step.
#[test]
fn when_all_buffers_are_in_the_consumer_s_cache_the_producer_succeeds_after_its_next_release() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 1024)]).with_max_thread_cache_capacity(some(1024)));
    let (mut producer, mut consumer) = (pool.cache().unwrap(), pool.cache().unwrap());
    let mut out = take_from(&mut producer, 64, 1024);
    let last = out.pop().unwrap();
    out.into_iter().for_each(|buffer| consumer.release(buffer));
    let refused = producer.try_alloc(64).unwrap_err();
    assert_eq!(refused, Error::Exhausted { size: 64, limit: 1024, cached: 1023, growths_in_flight: 0 });
    assert_eq!(consumer.len_of(64), 1023);
    consumer.release(last);
    assert_eq!(take_from(&mut producer, 64, 1000).len(), 1000);
}

#[test]
fn a_million_buffers_go_from_a_producer_to_a_consumer() {
    let count = if cfg!(miri) { 1000 } else { 1_000_000u64 };
    let limit = if cfg!(miri) { 32 } else { 1024 };
    let world = World::new();
    let pool = world.busy_pool(classes(&[(64, limit)]));
    let (send, receive) = mpsc::sync_channel(limit as usize);
    let (told, empty) = thread::scope(|scope| {
        let pool = &pool;
        let consumer = scope.spawn(move || {
            let mut cache = pool.cache().unwrap();
            for expected in 0..count {
                let mut buffer: crate::world::Buffer<'_> = receive.recv().unwrap();
                assert_eq!(buffer[..], expected.to_le_bytes());
                buffer.fill(0xEE);
                cache.release(buffer);
            }
            // So that nobody waits for what is in here.
            drop(cache);
        });
        let mut cache = pool.cache().unwrap();
        let (mut told, mut empty) = (0u64, 0u64);
        for number in 0..count {
            let mut buffer = loop {
                match cache.try_alloc(64) {
                    Ok(buffer) => break buffer,
                    Err(Error::Exhausted { size: 64, limit: told_limit, cached, growths_in_flight: 0 }) => {
                        assert!(told_limit == limit && cached <= limit);
                        told += u64::from(cached != 0);
                        empty += 1;
                        thread::yield_now();
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            buffer.clear();
            buffer.extend_from_slice(&number.to_le_bytes());
            send.send(buffer).unwrap();
        }
        consumer.join().unwrap();
        (told, empty)
    });
    println!("exhausted {empty} times, {told} of them with buffers in the consumer's cache");
    let figures = class(&pool, 64);
    assert_eq!((figures.in_use, figures.cached, figures.free, pool.check()), (0, 0, figures.created, Ok(())));
    assert!(figures.created <= limit);
}

// ---- the end

/// Another end in every round.
fn race_with_the_end<'a>(round: u32, pool: Pool<'a>, mut cache: Cache<'a>, start: &Meeting) {
    let mut out = take(&pool, 64, 3);
    cache.release(out.pop().unwrap());
    let raw = id(&out.pop().unwrap().into_raw());
    let rest = out.pop().unwrap();
    thread::scope(|scope| {
        let cache = scope.spawn(move || {
            start.wait();
            match round % 4 {
                0 => drop(cache),
                1 => cache.flush(),
                2 => cache.release_raw(raw).unwrap(),
                _ => {
                    let _ = cache.try_alloc(64);
                }
            }
        });
        scope.spawn(move || {
            start.wait();
            drop(rest);
        });
        start.wait();
        if round % 4 != 2 {
            pool.release(raw).unwrap();
        }
        if round % 3 == 0 {
            pool.close();
        }
        drop(pool);
        cache.join().unwrap();
    });
}

#[test]
fn the_end_of_a_pool_races_with_the_last_returns_and_everything_goes_back() {
    for round in 0..rounds(2000) {
        let world = World::new();
        let pool = world.busy_pool(classes(&[(64, 8)]).with_max_thread_cache_capacity(some(8)));
        let cache = pool.cache().unwrap();
        race_with_the_end(round, pool, cache, &Meeting::of(3));
        assert_eq!((world.device.pages(), world.host.bytes()), (0, 0), "{round}");
    }
}

#[test]
fn a_pool_that_is_closed_while_threads_work_gets_everything_back() {
    for _ in 0..rounds(60) {
        let world = World::new();
        let pool = world.busy_pool(classes(&[(64, 20), (1024, 5)]).with_max_thread_cache_capacity(some(6)));
        let start = Meeting::of(5);
        thread::scope(|scope| {
            for number in 0..4u64 {
                let (pool, start) = (&pool, &start);
                scope.spawn(move || {
                    let mut random = Random::from(number);
                    let mut cache = pool.cache().unwrap();
                    let mut own = Vec::new();
                    start.wait();
                    loop {
                        match random.below(6) {
                            0 | 1 => match cache.alloc(1 + random.below(1500) as usize) {
                                Ok(buffer) => own.push(buffer),
                                Err(error) => {
                                    assert_eq!(error, Error::Closed);
                                    break;
                                }
                            },
                            2 => match pool.take(64, false, true) {
                                Ok(raw) => cache.release_raw(id(&raw)).unwrap(),
                                Err(Error::Closed) => break,
                                Err(error) => assert!(matches!(error, Error::Exhausted { .. }), "{error:?}"),
                            },
                            _ if !own.is_empty() => {
                                let buffer = random.take(&mut own);
                                if random.below(2) == 0 { drop(buffer) } else { cache.release(buffer) }
                            }
                            _ => {}
                        }
                    }
                    while let Some(buffer) = own.pop() {
                        cache.release(buffer);
                    }
                    assert_eq!(pool.cache().map(drop), Err(Error::Closed));
                });
            }
            start.wait();
            thread::yield_now();
            pool.close();
        });
        assert_eq!((world.device.pages(), pool.statistics().untracked, pool.check()), (0, 0, Ok(())));
    }
}

/// A class that is exhausted by one thread and filled by another: nobody starves.
#[test]
fn pressure_frees_what_idle_caches_hold_as_soon_as_their_owners_do_anything() {
    let world = World::new();
    let pool = world.busy_pool(classes(&[(64, 64), (1024, 64)]).with_max_thread_cache_capacity(some(64)));
    let stop = AtomicBool::new(false);
    let (filled, served) = (Meeting::of(4), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut cache = pool.cache().unwrap();
                let out = take(&pool, 64, 21);
                out.into_iter().for_each(|buffer| cache.release(buffer));
                filled.wait();
                // It has to do with another class only.
                while !stop.load(Ordering::Acquire) {
                    let buffer = cache.try_alloc(1024).unwrap();
                    cache.release(buffer);
                    thread::yield_now();
                }
            });
        }
        filled.wait();
        let _stop = crate::common::meeting::AtEnd(|| stop.store(true, Ordering::Release));
        let mut out = Vec::new();
        let begin = std::time::Instant::now();
        while out.len() < 64 {
            match pool.try_alloc(64) {
                Ok(buffer) => out.push(buffer),
                Err(Error::Exhausted { .. }) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
            assert!(begin.elapsed().as_secs() < 60, "caches keep what they have: {:?}", class(&pool, 64));
        }
        served.store(64, Ordering::Relaxed);
        assert_eq!(pool.try_alloc(64).unwrap_err(), exhausted(64, 64));
    });
    assert_eq!(served.load(Ordering::Relaxed), 64);
}
