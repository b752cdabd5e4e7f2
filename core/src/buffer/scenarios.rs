//! What several threads do to a pool for longer than every order of it could be tried: orders are drawn at random, and by
//! priorities that change at a few places (PCT).
//!
//! `SLICEPOOL_SHUTTLE_RUNS` sets the number of orders of each kind, `SLICEPOOL_SEED` begins others; a failure prints its
//! schedule. As in [`models`](super::models), buffers are all there before the threads begin.

use super::config::BufferPoolConfig;
use super::counted::Counted;
use super::{BufferPool, PooledBuffer};
use crate::allocator::AllocatorOptions;
use crate::error::Error;
use core::num::{NonZeroU32, NonZeroUsize};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::Mutex;
use shuttle::{Config, Runner, thread};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::vec::Vec;

const SIZE: usize = 64;

type Pool = BufferPool<Counted>;

/// A pool of `limit` buffers in several stripes, all of them created, with caches that keep `cached`, and its pages.
fn pool(limit: u32, cached: usize) -> (Pool, Arc<AtomicI32>) {
    let some = |number| NonZeroUsize::new(number).unwrap();
    let limit = NonZeroU32::new(limit).unwrap();
    let config = BufferPoolConfig::for_network().with_size_class_range(some(SIZE), some(SIZE), limit);
    let config = config.with_prefill(true).with_max_thread_cache_capacity(some(cached)).with_parallelism(some(4));
    let pages = Arc::new(AtomicI32::new(0));
    let pool = BufferPool::with_device(Counted(pages.clone()), config, AllocatorOptions::default()).unwrap();
    (pool, pages)
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// Runs a scenario in many orders: drawn at random, and by PCT with few and with more changes of priority.
fn in_many_orders(scenario: impl Fn() + Send + Sync + Copy + 'static) {
    let seed = number("SLICEPOOL_SEED", 20_260_101);
    let runs = number("SLICEPOOL_SHUTTLE_RUNS", 2000) as usize;
    std::println!("{runs} orders of each kind, SLICEPOOL_SEED={seed}");
    let run = |scheduler: std::boxed::Box<dyn Scheduler + Send>| {
        let mut config = Config::new();
        // Room for what lies on the stack while a pool is made.
        config.stack_size = 1 << 18;
        let done = Runner::new(scheduler, config).run(scenario);
        assert_eq!(done, runs);
    };
    run(std::boxed::Box::new(RandomScheduler::new_from_seed(seed, runs)));
    for depth in [3, 5, 10] {
        run(std::boxed::Box::new(PctScheduler::new_from_seed(seed, depth, runs)));
    }
}

/// Writes a stamp into a buffer; nobody else may have done so while it was there.
fn stamp(buffer: &mut PooledBuffer<Counted>, stamp: u8) {
    buffer.resize(SIZE, 0);
    buffer.fill(stamp);
}

fn assert_stamped(buffer: &PooledBuffer<Counted>, stamp: u8) {
    assert!(buffer.iter().all(|&byte| byte == stamp), "two have one buffer");
}

/// Four threads with caches, which leave buffers for each other.
#[test]
fn caches_that_refill_and_flush_while_others_release_lose_no_buffer_and_share_none() {
    in_many_orders(|| {
        let (pool, pages) = pool(8, 3);
        let basket = Arc::new(Mutex::new(Vec::new()));
        let work = |number: u8| {
            let (pool, basket) = (pool.clone(), basket.clone());
            move || {
                let mut cache = pool.cache().unwrap();
                let mut own = Vec::new();
                for _ in 0..6 {
                    match thread_rng().gen_range(0..8u32) {
                        0..=2 => {
                            let taken = if thread_rng().gen_range(0..3u32) == 0 {
                                pool.try_alloc(SIZE)
                            } else {
                                cache.try_alloc(SIZE)
                            };
                            match taken {
                                Ok(mut buffer) => {
                                    stamp(&mut buffer, number);
                                    own.push(buffer);
                                }
                                Err(error) => assert!(matches!(error, Error::Exhausted { .. }), "{error}"),
                            }
                        }
                        3 => cache.flush(),
                        4 => basket.lock().unwrap().extend(own.pop().map(|buffer| (buffer, number))),
                        5 => {
                            let taken = basket.lock().unwrap().pop();
                            if let Some((buffer, stamped)) = taken {
                                assert_stamped(&buffer, stamped);
                                cache.release(buffer);
                            }
                        }
                        turn => {
                            if let Some(buffer) = own.pop() {
                                assert_stamped(&buffer, number);
                                if turn == 6 { cache.release(buffer) } else { drop(buffer) }
                            }
                        }
                    }
                }
                own.iter().for_each(|buffer| assert_stamped(buffer, number));
            }
        };
        let threads: Vec<_> = (1..4).map(|number| thread::spawn(work(number))).collect();
        work(0)();
        for thread in threads {
            thread.join().unwrap();
        }
        basket.lock().unwrap().clear();
        let figures = pool.class_statistics(0).unwrap();
        assert_eq!((figures.free, figures.cached, figures.in_use, pool.check()), (8, 0, 0, Ok(())));
        // All of them can be had.
        let all: Vec<_> = (0..8).map(|_| pool.try_alloc(SIZE).unwrap()).collect();
        drop((all, pool));
        assert_eq!(pages.load(Ordering::Relaxed), 0);
    });
}

/// Three threads have buffers and caches while the pool is closed.
#[test]
fn a_pool_that_is_closed_while_caches_work_gives_its_memory_back_with_the_last_buffer() {
    in_many_orders(|| {
        let (pool, pages) = pool(6, 2);
        let threads: Vec<_> = (0..3u8)
            .map(|number| {
                let mut held = pool.try_alloc(SIZE).unwrap();
                let pool = pool.clone();
                thread::spawn(move || {
                    stamp(&mut held, number);
                    let mut cache = pool.cache().ok();
                    for _ in 0..2 {
                        let Some(cache) = &mut cache else { break };
                        match cache.try_alloc(SIZE) {
                            Ok(buffer) if number == 0 => drop(buffer),
                            Ok(buffer) => cache.release(buffer),
                            Err(error) => assert!(matches!(error, Error::Closed | Error::Exhausted { .. }), "{error}"),
                        }
                    }
                    assert_stamped(&held, number);
                    drop(pool);
                    match cache {
                        Some(mut cache) if number != 1 => cache.release(held),
                        cache => drop((cache, held)),
                    }
                })
            })
            .collect();
        if thread_rng().gen_range(0..2u32) == 0 {
            pool.close();
        }
        drop(pool);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(pages.load(Ordering::Relaxed), 0);
    });
}

/// One acquires, another releases through its cache: what sits there comes back after it has been used once more.
#[test]
fn what_sits_in_the_cache_of_a_consumer_comes_back_to_its_producer() {
    in_many_orders(|| {
        let (pool, _) = pool(4, 4);
        let passed = Arc::new(Mutex::new(Vec::new()));
        let consumer = thread::spawn({
            let (pool, passed) = (pool.clone(), passed.clone());
            move || {
                let mut cache = pool.cache().unwrap();
                for _ in 0..6 {
                    let taken = passed.lock().unwrap().pop();
                    taken.into_iter().for_each(|buffer| cache.release(buffer));
                }
                cache
            }
        });
        for _ in 0..6 {
            match pool.try_alloc(SIZE) {
                Ok(buffer) => passed.lock().unwrap().push(buffer),
                Err(error) => assert!(matches!(error, Error::Exhausted { .. }), "{error}"),
            }
        }
        let mut cache = consumer.join().unwrap();
        passed.lock().unwrap().clear();
        // All four are in the freelist or in the cache. Whoever finds none there has them after the cache was used again.
        let mut all = Vec::new();
        while all.len() < 4 {
            match pool.try_alloc(SIZE) {
                Ok(buffer) => all.push(buffer),
                Err(error) => {
                    let cached = 4 - all.len() as u32;
                    assert_eq!(error, Error::Exhausted { size: SIZE as u64, limit: 4, cached, growths_in_flight: 0 });
                    let _ = cache.try_alloc(4 * SIZE);
                    assert_eq!(cache.len_of(SIZE), 0);
                }
            }
        }
        drop(all);
        drop(cache);
        let figures = pool.class_statistics(0).unwrap();
        assert_eq!((figures.free, pool.check()), (4, Ok(())));
    });
}
