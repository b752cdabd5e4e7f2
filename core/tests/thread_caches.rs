//! Buffer pools whose threads have caches of their own accord: the feature `std`.

use slicepool_core::{
    AllocatorOptions, BufferClassStatistics, BufferPool, BufferPoolConfig, Device, DeviceError, DeviceMemory, Error,
    FillRequest, HostDevice, PageRequest, Point, PooledBuffer, flush_thread_caches,
};
use std::cell::RefCell;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

const SIZE: usize = 4096;

/// Counts the pages that are out.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicI32>);

impl Counted {
    fn pages(&self) -> i32 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Device for Counted {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        HostDevice::new().allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.0.fetch_sub(1, Ordering::SeqCst);
        HostDevice::new().deallocate(memory)
    }
}

fn config(limit: u32) -> BufferPoolConfig {
    let size = NonZeroUsize::new(SIZE).unwrap();
    BufferPoolConfig::for_network().with_size_class_range(size, size, NonZeroU32::new(limit).unwrap())
}

fn pool_of(config: BufferPoolConfig) -> (BufferPool<Counted>, Counted) {
    let device = Counted::default();
    let pool = BufferPool::with_device(device.clone(), config, AllocatorOptions::default()).unwrap();
    (pool.with_thread_caches(), device)
}

fn pool(limit: u32) -> (BufferPool<Counted>, Counted) {
    pool_of(config(limit))
}

fn figures<D: Device>(pool: &BufferPool<D>) -> BufferClassStatistics {
    pool.class_statistics(0).unwrap()
}

/// Cached, free.
fn places(pool: &BufferPool<Counted>) -> (u32, u32) {
    let BufferClassStatistics { cached, free, .. } = figures(pool);
    (cached, free)
}

fn take(pool: &BufferPool<Counted>, count: usize) -> Vec<PooledBuffer<Counted>> {
    (0..count).map(|_| pool.try_alloc(SIZE).unwrap()).collect()
}

/// Runs something on a thread of its own, and waits until the destructors of that thread's variables have run, too: a
/// scope alone may end before.
fn on_a_thread(work: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(work).join().unwrap());
}

#[test]
fn a_buffer_goes_to_the_cache_of_the_thread_that_drops_it() {
    let (pool, _) = pool(100);
    let buffers = take(&pool, 50);
    on_a_thread(|| {
        drop(buffers);
        assert_eq!(places(&pool), (50, 0));
        drop(take(&pool, 50));
        assert_eq!((places(&pool), figures(&pool).hits), ((50, 0), 50));
    });
    assert_eq!((places(&pool), pool.check()), ((0, 50), Ok(())));
}

#[test]
fn what_a_thread_has_cached_is_there_for_others_when_it_has_ended() {
    // One per stripe, so that the limit of 4 makes a cache of 2.
    let (pool, _) = pool(4);
    on_a_thread(|| drop(take(&pool, 4)));
    assert_eq!(places(&pool), (0, 4));
    assert_eq!(take(&pool, 4).len(), 4);
    assert!(pool.try_alloc(SIZE).is_ok());
}

#[test]
fn without_caches_every_buffer_goes_to_the_freelist() {
    let (pool, _) = pool_of(config(64).with_thread_cache_disabled());
    drop(take(&pool, 3));
    assert_eq!((places(&pool), pool.statistics().caches), ((0, 3), 0));
}

#[test]
fn flushing_gives_back_what_the_thread_has_of_all_pools() {
    let (one, _) = pool(64);
    let (two, _) = pool(64);
    drop((take(&one, 3), take(&two, 5)));
    assert_eq!((places(&one), places(&two)), ((3, 0), (5, 0)));
    flush_thread_caches();
    assert_eq!((places(&one), places(&two)), ((0, 3), (0, 5)));
    // And it goes on.
    drop(take(&one, 3));
    assert_eq!(places(&one), (3, 0));
}

#[test]
fn pools_used_in_turn_keep_their_buffers_apart() {
    let pools: Vec<_> = (0..20).map(|_| pool(64)).collect();
    let mut held = Vec::new();
    for round in 0..200 {
        let (pool, _) = &pools[round * 7 % pools.len()];
        held.push(pool.try_alloc(SIZE).unwrap());
        if held.len() > 30 {
            drop(held.remove(0));
        }
    }
    drop(held);
    flush_thread_caches();
    for (pool, device) in pools {
        assert_eq!((figures(&pool).in_use, pool.check()), (0, Ok(())));
        drop(pool);
        assert_eq!(device.pages(), 0);
    }
}

#[test]
fn a_thread_that_ends_after_the_pool_was_dropped_gives_the_memory_back() {
    let (pool, device) = pool(64);
    let (tell, wait) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let theirs = pool.clone();
    let other = thread::spawn(move || {
        drop(take(&theirs, 4));
        assert_eq!(figures(&theirs).cached, 4);
        drop(theirs);
        ready.send(()).unwrap();
        wait.recv().unwrap();
    });
    is_ready.recv().unwrap();
    drop(pool);
    assert_eq!(device.pages(), 1);
    tell.send(()).unwrap();
    other.join().unwrap();
    assert_eq!(device.pages(), 0);
}

#[test]
fn the_cache_of_a_closed_pool_goes_when_the_thread_uses_another_one_for_the_first_time() {
    let (old, device) = pool(64);
    drop(take(&old, 4));
    drop(old);
    assert_eq!(device.pages(), 1);
    let (new, _) = pool(64);
    drop(take(&new, 1));
    assert_eq!(device.pages(), 0);
}

#[test]
fn a_closed_pool_takes_from_the_cache_with_its_next_use() {
    let (pool, device) = pool(64);
    let last = take(&pool, 1);
    drop(take(&pool, 4));
    pool.close();
    assert_eq!((figures(&pool).cached, device.pages()), (4, 1));
    assert_eq!(pool.try_alloc(SIZE).err(), Some(Error::Closed));
    assert_eq!((figures(&pool).cached, device.pages()), (0, 1));
    drop(last);
    assert_eq!(device.pages(), 0);
}

/// Uses a pool when its thread ends, before or after that thread's caches have gone.
struct AtExit(RefCell<Option<(BufferPool<Counted>, PooledBuffer<Counted>)>>);

impl Drop for AtExit {
    fn drop(&mut self) {
        let (pool, buffer) = self.0.take().unwrap();
        drop(buffer);
        drop(pool.try_alloc(SIZE).unwrap());
        drop(pool.alloc(10 * SIZE).unwrap());
    }
}

#[test]
fn buffers_are_taken_and_dropped_while_a_thread_ends() {
    std::thread_local! {
        static FIRST: AtExit = const { AtExit(RefCell::new(None)) };
        static SECOND: AtExit = const { AtExit(RefCell::new(None)) };
    }
    let (pool, device) = pool(4);
    for _ in 0..10 {
        on_a_thread(|| {
            // One is registered before the thread's caches and one after: destructors run in some order.
            FIRST.with(|it| it.0.replace(Some((pool.clone(), pool.try_alloc(SIZE).unwrap()))));
            SECOND.with(|it| it.0.replace(Some((pool.clone(), pool.try_alloc(SIZE).unwrap()))));
        });
        assert_eq!((figures(&pool).free, pool.statistics().untracked), (figures(&pool).created, 0));
    }
    assert_eq!(take(&pool, 4).len(), 4);
    flush_thread_caches();
    drop(pool);
    assert_eq!(device.pages(), 0);
}

/// Its callbacks use a pool, and flush the thread's caches.
struct Meddling(Counted, BufferPool<Counted>);

impl Device for Meddling {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        drop(self.1.try_alloc(SIZE));
        flush_thread_caches();
        self.0.allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        drop(self.1.try_alloc(SIZE));
        flush_thread_caches();
        self.0.deallocate(memory)
    }
}

#[test]
fn callbacks_may_use_pools_and_flush_caches() {
    let (inner, inner_device) = pool(64);
    let device = Counted::default();
    let meddling = Meddling(device.clone(), inner.clone());
    let outer = BufferPool::with_device(meddling, config(300), AllocatorOptions::default()).unwrap();
    let outer = outer.with_thread_caches();
    let buffers: Vec<_> = (0..300).map(|_| outer.try_alloc(SIZE).unwrap()).collect();
    assert_eq!(device.pages(), 5);
    drop(outer.alloc(SIZE).unwrap());
    outer.close();
    drop(buffers);
    flush_thread_caches();
    drop(outer);
    drop(inner);
    assert_eq!((device.pages(), inner_device.pages()), (0, 0));
}

/// Memory that the CPU does not see, and a device that fills none: it ends the thread's caches instead.
struct Unseen(Counted);

impl Device for Unseen {
    fn allocate(&self, _: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        Ok(DeviceMemory::new(1))
    }

    fn deallocate(&self, _: &DeviceMemory) -> Result<(), DeviceError> {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn can_fill(&self) -> bool {
        true
    }

    fn fill(&self, _: &FillRequest) -> Result<Option<Point>, DeviceError> {
        flush_thread_caches();
        Err(DeviceError::Failed(-5))
    }
}

#[test]
fn a_buffer_that_is_not_filled_goes_to_its_class_although_the_threads_cache_has_ended() {
    let device = Counted::default();
    let pool = BufferPool::with_device(Unseen(device.clone()), config(8), AllocatorOptions::default()).unwrap();
    let pool = pool.with_thread_caches();
    for _ in 0..3 {
        assert!(matches!(pool.take(SIZE, false, true), Err(Error::DeviceFailed { code: -5, .. })));
        let class = figures(&pool);
        assert_eq!((class.in_use, class.cached, class.free, pool.check()), (0, 0, class.created, Ok(())));
    }
    drop(pool);
    flush_thread_caches();
    assert_eq!(device.pages(), 0);
}

#[test]
fn threads_that_exchange_buffers_lose_none() {
    // So small caches that what idle threads keep leaves enough for the others.
    let (pool, device) = pool_of(config(64).with_parallelism(NonZeroUsize::new(8).unwrap()));
    let senders: Vec<_> = (0..4)
        .map(|thread| {
            let pool = pool.clone();
            let (send, receive) = mpsc::sync_channel::<PooledBuffer<Counted>>(8);
            let mine = pool.clone();
            let consumer = thread::spawn(move || {
                for buffer in receive {
                    assert_eq!(buffer.len(), 1);
                    drop(buffer);
                }
                drop(mine);
            });
            let producer = thread::spawn(move || {
                for i in 0..5_000 {
                    // Other threads' caches may have all of them: they give them back with their next operation.
                    let mut buffer = loop {
                        match pool.try_alloc(SIZE) {
                            Ok(buffer) => break buffer,
                            Err(Error::Exhausted { .. }) => thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    };
                    buffer.extend_from_slice(&[(thread + i) as u8]);
                    send.send(buffer).unwrap();
                }
            });
            (producer, consumer)
        })
        .collect();
    for (producer, consumer) in senders {
        producer.join().unwrap();
        consumer.join().unwrap();
    }
    assert_eq!((figures(&pool).in_use, pool.check()), (0, Ok(())));
    drop(pool);
    assert_eq!(device.pages(), 0);
}
