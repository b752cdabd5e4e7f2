//! What several threads do to a pool at once, in every order, as far as two or three preemptions reach: `make loom`.
//!
//! Buffers are all there before the threads begin, so that the models are about this module and not about the allocator.

use super::config::BufferPoolConfig;
use super::counted::Counted;
use super::{BufferId, BufferPool};
use crate::allocator::AllocatorOptions;
use crate::error::Error;
use core::num::{NonZeroU32, NonZeroUsize};
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::vec::Vec;

const SIZE: usize = 64;

/// A pool of `limit` buffers, all of them created, with caches that keep `cached`, and the number of its pages.
fn pool(limit: u32, cached: usize) -> (BufferPool<Counted>, Arc<AtomicI32>) {
    let limit = NonZeroU32::new(limit).unwrap();
    let size = NonZeroUsize::new(SIZE).unwrap();
    let mut config = BufferPoolConfig::for_network().with_size_class_range(size, size, limit).with_prefill(true);
    config = match NonZeroUsize::new(cached) {
        Some(cached) => config.with_max_thread_cache_capacity(cached),
        None => config.with_thread_cache_disabled(),
    };
    let pages = Arc::new(AtomicI32::new(0));
    let pool = BufferPool::with_device(Counted(pages.clone()), config, AllocatorOptions::default()).unwrap();
    assert_eq!(pages.load(Ordering::Relaxed), 1);
    (pool, pages)
}

/// Who has which buffer, by its place: nobody else must.
#[derive(Clone)]
struct Owners(Arc<Vec<AtomicI32>>);

impl Owners {
    fn new(buffers: u32) -> Self {
        Self(Arc::new((0..buffers).map(|_| AtomicI32::new(0)).collect()))
    }

    fn take(&self, offset: u64) {
        assert_eq!(self.0[offset as usize / SIZE].fetch_add(1, Ordering::Relaxed), 0, "two have one buffer");
    }

    fn give(&self, offset: u64) {
        assert_eq!(self.0[offset as usize / SIZE].fetch_sub(1, Ordering::Relaxed), 1);
    }
}

/// Runs a thread with room for what lies on the stack while a pool is made.
fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().stack_size(1 << 17).spawn(run).unwrap()
}

fn model(preemptions: usize, run: impl Fn() + Sync + Send + Copy + 'static) {
    let mut builder = loom::model::Builder::new();
    // LOOM_MAX_PREEMPTIONS asks for more.
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    let runs = Arc::new(AtomicI32::new(0));
    let counted = runs.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        spawn(run).join().unwrap();
    });
    let runs = runs.load(Ordering::Relaxed);
    std::println!("{runs} orders");
    assert!(runs > 1, "nothing was tried");
}

fn free_in(pool: &BufferPool<Counted>) -> u32 {
    pool.class_statistics(0).unwrap().free
}

#[test]
fn taking_and_putting_back_keeps_every_buffer_with_one_owner() {
    model(3, || {
        let ((pool, _), owners) = (pool(2, 0), Owners::new(2));
        let work = |pool: BufferPool<Counted>, owners: Owners| {
            move || {
                for _ in 0..2 {
                    if let Ok(buffer) = pool.try_alloc(SIZE) {
                        owners.take(buffer.offset());
                        owners.give(buffer.offset());
                    }
                }
            }
        };
        let other = spawn(work(pool.clone(), owners.clone()));
        work(pool.clone(), owners)();
        other.join().unwrap();
        assert_eq!((free_in(&pool), pool.check()), (2, Ok(())));
    });
}

#[test]
fn a_cache_refills_and_flushes_while_another_thread_releases() {
    model(3, || {
        let ((pool, _), owners) = (pool(4, 4), Owners::new(4));
        let held: Vec<_> = (0..2).map(|_| pool.try_alloc(SIZE).unwrap()).collect();
        for buffer in &held {
            owners.take(buffer.offset());
        }
        let other = spawn({
            let owners = owners.clone();
            move || {
                for buffer in held {
                    owners.give(buffer.offset());
                    drop(buffer);
                }
            }
        });
        let mut cache = pool.cache().unwrap();
        let mut mine = Vec::new();
        for _ in 0..3 {
            if let Ok(buffer) = cache.try_alloc(SIZE) {
                owners.take(buffer.offset());
                mine.push(buffer);
            }
        }
        for buffer in mine {
            owners.give(buffer.offset());
            cache.release(buffer);
        }
        cache.flush();
        other.join().unwrap();
        drop(cache);
        assert_eq!((free_in(&pool), pool.check()), (4, Ok(())));
    });
}

#[test]
fn a_pool_that_is_closed_while_the_last_buffer_comes_back_gives_its_memory_back_once() {
    model(3, || {
        let (pool, pages) = pool(2, 0);
        let buffers = [pool.try_alloc(SIZE).unwrap(), pool.try_alloc(SIZE).unwrap()];
        let others = buffers.map(|buffer| spawn(move || drop(buffer)));
        drop(pool);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(pages.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_cache_that_is_used_while_the_pool_is_closed_keeps_nothing() {
    model(2, || {
        let (pool, pages) = pool(2, 2);
        let mut cache = pool.cache().unwrap();
        let other = spawn(move || {
            if let Ok(buffer) = cache.try_alloc(SIZE) {
                cache.release(buffer);
            }
            cache
        });
        pool.close();
        let mut cache = other.join().unwrap();
        assert_eq!(cache.try_alloc(SIZE).err(), Some(Error::Closed));
        assert_eq!((cache.len_of(SIZE), pages.load(Ordering::Relaxed)), (0, 0));
        drop(pool);
        drop(cache);
    });
}

#[test]
fn what_a_request_found_missing_is_there_once_the_cache_has_been_used() {
    model(3, || {
        let (pool, _) = pool(1, 1);
        let mut cache = pool.cache().unwrap();
        let buffer = cache.try_alloc(SIZE).unwrap();
        let other = spawn({
            let pool = pool.clone();
            move || match pool.try_alloc(SIZE) {
                Ok(buffer) => {
                    drop(buffer);
                    0
                }
                Err(Error::Exhausted { cached, .. }) => cached,
                Err(error) => panic!("{error}"),
            }
        });
        cache.release(buffer);
        // This one may come between the marks of the class and of the pool.
        let _ = cache.try_alloc(4 * SIZE);
        let cached = other.join().unwrap();
        // Whoever was told that it is in a cache finds it after that cache's next operation.
        if cached != 0 {
            let _ = cache.try_alloc(4 * SIZE);
            assert_eq!(cache.len_of(SIZE), 0);
            drop(pool.try_alloc(SIZE).unwrap());
        }
        drop(cache);
        assert_eq!((free_in(&pool), pool.check()), (1, Ok(())));
    });
}

#[test]
fn of_two_threads_with_one_handle_one_releases_the_buffer() {
    model(3, || {
        let (pool, _) = pool(1, 0);
        let id: BufferId = pool.take(SIZE, false, false).unwrap().id.unwrap();
        let release = |pool: BufferPool<Counted>| move || pool.release(id);
        let other = spawn(release(pool.clone()));
        let outcomes = [release(pool.clone())(), other.join().unwrap()];
        assert!(outcomes.contains(&Ok(())) && outcomes.contains(&Err(Error::StaleHandle)), "{outcomes:?}");
        assert_eq!((free_in(&pool), pool.check()), (1, Ok(())));
    });
}

#[test]
fn a_cache_that_comes_into_being_while_the_pool_is_closed_keeps_nothing() {
    model(3, || {
        let (pool, pages) = pool(1, 1);
        let buffer = pool.try_alloc(SIZE).unwrap();
        let other = spawn({
            let pool = pool.clone();
            move || match pool.cache() {
                Ok(mut cache) => {
                    cache.release(buffer);
                    Some(cache)
                }
                Err(_) => {
                    drop(buffer);
                    None
                }
            }
        });
        pool.close();
        let cache = other.join().unwrap();
        if let Some(mut cache) = cache {
            assert_eq!(cache.try_alloc(SIZE).err(), Some(Error::Closed));
        }
        assert_eq!(pages.load(Ordering::Relaxed), 0);
    });
}
