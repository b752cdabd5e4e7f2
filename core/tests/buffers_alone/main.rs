//! What buffer pools must not do: ask for host memory where none is needed. Alone in its process, whose memory is counted.

#[path = "../common/mod.rs"]
mod common;

use common::devices::LedgerDevice;
use common::host::HostLedger;
use common::random::Random;
use slicepool_core::{
    AllocatorOptions, BufferCache, BufferPool, BufferPoolConfig, Error, HostDevice, MemoryType, PooledBuffer,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::num::{NonZeroU32, NonZeroUsize};

thread_local! {
    /// How often this thread has asked for memory or given some back.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// The system's memory, counted.
struct Counting;

fn count() {
    // A thread that ends may be past its counter.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: passed on from the caller.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn classes(classes: &[(usize, u32)]) -> BufferPoolConfig {
    let class = |&(size, limit)| (NonZeroUsize::new(size).unwrap(), NonZeroU32::new(limit).unwrap());
    BufferPoolConfig::default().with_size_classes(classes.iter().map(class))
}

fn explicit(config: BufferPoolConfig, capacity: usize) -> BufferPoolConfig {
    config.with_max_thread_cache_capacity(NonZeroUsize::new(capacity).unwrap())
}

type Device = LedgerDevice<HostDevice>;
type Pool<'a> = BufferPool<&'a Device>;
type Cache<'a> = BufferCache<&'a Device>;

/// What watches a pool.
struct World {
    device: Device,
    host: HostLedger,
}

impl World {
    fn new() -> Self {
        Self { device: LedgerDevice::over(HostDevice::new()), host: HostLedger::new() }
    }

    fn pool(&self, config: BufferPoolConfig) -> Pool<'_> {
        let options = AllocatorOptions::default().with_memory(self.host.memory());
        let options = options.with_memory_type(MemoryType::new(u64::MAX, 64));
        BufferPool::with_device(&self.device, config, options).unwrap()
    }

    /// Panics if `what` asks for any memory, of the host's or of the device's.
    #[track_caller]
    fn quietly<T>(&self, name: &str, what: impl FnOnce() -> T) -> T {
        let before = (CALLS.get(), self.host.calls(), self.host.bytes(), self.device.calls());
        let result = what();
        let after = (CALLS.get(), self.host.calls(), self.host.bytes(), self.device.calls());
        assert_eq!(after, before, "{name}");
        result
    }
}

/// So many buffers, in a place that takes no memory when they come and go.
struct Held<'a> {
    buffers: Vec<PooledBuffer<&'a Device>>,
}

impl<'a> Held<'a> {
    fn with_room_for(count: usize) -> Self {
        Self { buffers: Vec::with_capacity(count) }
    }

    fn take(&mut self, pool: &Pool<'a>, size: usize, count: u32) {
        (0..count).for_each(|_| self.buffers.push(pool.try_alloc(size).unwrap()));
    }

    fn take_from(&mut self, cache: &mut Cache<'a>, size: usize, count: u32) {
        (0..count).for_each(|_| self.buffers.push(cache.try_alloc(size).unwrap()));
    }

    fn release_into(&mut self, cache: &mut Cache<'a>) {
        self.buffers.drain(..).for_each(|buffer| cache.release(buffer));
    }
}

/// The detector detects.
#[test]
fn memory_that_is_asked_for_is_counted() {
    let before = CALLS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(CALLS.get(), before + 2);
}

#[test]
fn hits_refills_and_spills_ask_for_nothing() {
    let world = World::new();
    let pool = world.pool(explicit(classes(&[(64, 64), (1024, 64)]), 8));
    let mut cache = pool.cache().unwrap();
    let mut held = Held::with_room_for(200);
    held.take(&pool, 64, 64);
    held.take(&pool, 1024, 64);
    held.buffers.clear();
    let figures = || {
        let of = |index| pool.class_statistics(index).unwrap();
        [of(0).hits + of(1).hits, of(0).refills + of(1).refills, of(0).spills + of(1).spills]
    };
    let before = figures();
    for size in [64, 1024] {
        world.quietly("refills and hits", || held.take_from(&mut cache, size, 40));
        world.quietly("spills", || held.release_into(&mut cache));
        world.quietly("a flush", || cache.flush());
    }
    let after = figures();
    assert!(after.iter().zip(before).all(|(after, before)| *after >= before + 8), "{after:?}");
}

#[test]
fn misses_of_the_cache_that_go_to_the_freelist_ask_for_nothing() {
    let world = World::new();
    for config in [classes(&[(64, 64)]).with_thread_cache_disabled(), explicit(classes(&[(64, 64)]), 1)] {
        let pool = world.pool(config);
        let mut cache = pool.cache().unwrap();
        let mut held = Held::with_room_for(64);
        held.take(&pool, 64, 64);
        held.buffers.clear();
        world.quietly("without a cache", || held.take(&pool, 64, 64));
        world.quietly("drops", || held.buffers.clear());
        world.quietly("with one of little use", || held.take_from(&mut cache, 64, 64));
        world.quietly("releases", || held.release_into(&mut cache));
    }
}

#[test]
fn misses_on_an_exhausted_class_ask_for_nothing_whoever_has_the_buffers() {
    let world = World::new();
    let pool = world.pool(explicit(classes(&[(64, 64)]), 16));
    let (mut one, mut other) = (pool.cache().unwrap(), pool.cache().unwrap());
    let mut held = Held::with_room_for(64);
    held.take(&pool, 64, 64);
    let exhausted = |cached| Error::Exhausted { size: 64, limit: 64, cached, growths_in_flight: 0 };
    world.quietly("in users' hands", || {
        for _ in 0..100 {
            assert_eq!(pool.try_alloc(64).err(), Some(exhausted(0)));
            assert_eq!(one.try_alloc(64).err(), Some(exhausted(0)));
            assert_eq!(pool.take(64, false, false).err(), Some(exhausted(0)));
        }
    });
    let kept = held.buffers.split_off(16);
    held.release_into(&mut other);
    world.quietly("in a cache", || assert_eq!(one.try_alloc(64).err(), Some(exhausted(16))));
    world.quietly("which gives them back", || drop(other.try_alloc(64)));
    world.quietly("and they are found", || drop(one.try_alloc(64).unwrap()));
    drop(kept);
}

#[test]
fn refusals_ask_for_nothing() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 4)]));
    let mut cache = pool.cache().unwrap();
    let raw = pool.take(64, false, false).unwrap();
    let id = raw.id.unwrap();
    world.quietly("handles", || {
        assert_eq!(pool.get(id), Ok(raw));
        pool.release(id).unwrap();
        assert_eq!(pool.release(id), Err(Error::StaleHandle));
        assert_eq!(cache.release_raw(id), Err(Error::StaleHandle));
        assert!(pool.adopt(id).is_err());
    });
    world.quietly("sizes", || {
        assert!(pool.try_alloc(65).is_err());
        assert!(cache.try_alloc_zeroed(usize::MAX).is_err());
        assert!(pool.try_alloc(0).is_ok());
    });
    pool.close();
    world.quietly("a closed pool", || {
        assert_eq!(pool.try_alloc(64).err(), Some(Error::Closed));
        assert_eq!(pool.alloc(64).err(), Some(Error::Closed));
        assert_eq!(pool.cache().err(), Some(Error::Closed));
    });
}

#[test]
fn raw_buffers_and_owners_turn_into_each_other_without_asking_for_anything() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 4)]));
    let mut cache = pool.cache().unwrap();
    drop(pool.try_alloc(64).unwrap());
    world.quietly("turns", || {
        for _ in 0..100 {
            let raw = cache.try_alloc(64).unwrap().into_raw();
            let owner = pool.adopt(raw.id.unwrap()).unwrap();
            cache.release_raw(owner.into_raw().id.unwrap()).unwrap();
        }
    });
}

/// After the last buffer was created, whatever happens.
#[test]
fn a_pool_that_has_all_its_buffers_asks_for_nothing_any_more() {
    let world = World::new();
    let sizes = [64, 512, 4096];
    let pool = world.pool(explicit(classes(&[(64, 100), (512, 30), (4096, 10)]), 12).with_prefill(true));
    let mut caches = [(); 3].map(|()| pool.cache().unwrap());
    let mut random = Random::with_seed_or(81);
    let mut held = Held::with_room_for(200);
    let mut raws = Vec::with_capacity(200);
    let rounds = if cfg!(miri) { 500 } else { 200_000 };
    world.quietly("a long life", || {
        for _ in 0..rounds {
            let size = sizes[random.below(3) as usize] - random.below(30) as usize;
            let cache = &mut caches[random.below(3) as usize];
            match random.below(8) {
                0 | 1 => held.buffers.extend(cache.try_alloc(size).ok()),
                2 => held.buffers.extend(pool.try_alloc_zeroed(size).ok()),
                3 => raws.extend(cache.take(size, false, false).ok().and_then(|raw| raw.id)),
                4 if !raws.is_empty() => cache.release_raw(random.take(&mut raws)).unwrap(),
                5 if random.below(30) == 0 => cache.flush(),
                _ if !held.buffers.is_empty() => {
                    let buffer = random.take(&mut held.buffers);
                    if random.below(3) == 0 { drop(buffer) } else { cache.release(buffer) }
                }
                _ => {}
            }
        }
    });
    for id in raws {
        pool.release(id).unwrap();
    }
}

#[test]
fn figures_and_checks_ask_for_nothing() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 100)]).with_prefill(true));
    let _cache = pool.cache().unwrap();
    world.quietly("figures", || {
        assert_eq!(pool.statistics().caches, 1);
        assert_eq!(pool.class_statistics(0).unwrap().free, 100);
        assert_eq!(pool.regions().count(), 1);
        assert_eq!(pool.stripes(0).unwrap().map(|(free, _)| free).sum::<u32>(), 100);
        assert_eq!(pool.check(), Ok(()));
    });
}

/// All books are where the options say, and nothing is in Rust's own memory.
#[test]
fn a_pool_in_blocks_never_asks_the_process_for_memory() {
    #[repr(align(64))]
    struct Block<const BYTES: usize>([u8; BYTES]);
    let mut books = Box::new(Block::<{ 64 << 10 }>([0; 64 << 10]));
    let mut memory = Box::new(Block::<{ 128 << 10 }>([0; 128 << 10]));
    let start = |bytes: &mut [u8]| std::ptr::NonNull::new(bytes.as_mut_ptr()).unwrap();
    let lock = slicepool_core::LockKind::spin();
    let before = CALLS.get();
    // SAFETY: nobody touches the blocks before the pool and all of it are gone.
    unsafe {
        let host = slicepool_core::HostMemory::in_block(start(&mut books.0), 64 << 10, lock).unwrap();
        let options = AllocatorOptions::default().with_memory(host);
        let config = explicit(classes(&[(64, 100), (1024, 20)]), 4);
        let pool = BufferPool::in_memory(start(&mut memory.0), 128 << 10, config, options).unwrap();
        let mut cache = pool.cache().unwrap();
        let kept = [(); 20].map(|()| cache.try_alloc(1000).unwrap());
        assert!(matches!(cache.try_alloc(1000), Err(Error::Exhausted { .. })));
        let beyond = cache.alloc_zeroed(1000).unwrap();
        drop(pool);
        kept.into_iter().for_each(|buffer| cache.release(buffer));
        drop((cache, beyond));
        // The books' block is whole again.
        let statistics = host.block_statistics();
        assert_eq!(statistics.free, statistics.largest_free);
    }
    assert_eq!(CALLS.get(), before);
}
