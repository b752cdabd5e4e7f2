//! Threads with one buffer pool, each with a cache of its own.

use crate::common::host::HostLedger;
use crate::common::lock::yielding;
use crate::common::random::Random;
use crate::device::RecyclingDevice;
use crate::flat::Figure;
use crate::stamp::{assert_stamped, stamp};
use slicepool_core::{AllocatorOptions, BufferCache, BufferPool, BufferPoolConfig, Error, MemoryType, PooledBuffer};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Mutex;

/// Sizes of the classes.
const SIZES: [usize; 4] = [64, 256, 1024, 4096];
/// Buffers that a thread holds, and that lie where any thread takes them from, at most.
const LIVE: usize = 128;
const BASKET: usize = 32;
const CACHED: usize = 16;

type Buffer<'a> = PooledBuffer<&'a RecyclingDevice>;
type Stamped<'a> = (Buffer<'a>, u64);

/// What the pool is made over.
pub(crate) struct World {
    device: RecyclingDevice,
    host: HostLedger,
}

/// A pool and where its threads leave buffers for each other.
pub(crate) struct Shared<'a> {
    basket: Mutex<Vec<Stamped<'a>>>,
    pool: BufferPool<&'a RecyclingDevice>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { device: RecyclingDevice::new(), host: HostLedger::new() }
    }

    /// A pool whose classes have as many buffers as all threads can hold of each: so no request is ever refused, unless
    /// buffers have been lost.
    pub(crate) fn pool(&self, threads: u64) -> Shared<'_> {
        let limit = threads as usize * (LIVE + CACHED) + BASKET;
        let size = |bytes| NonZeroUsize::new(bytes).unwrap();
        let limit = NonZeroU32::new(limit as u32).unwrap();
        let config = BufferPoolConfig::default().with_size_classes(SIZES.map(|bytes| (size(bytes), limit)));
        let config = config.with_parallelism(size(threads as usize)).with_max_thread_cache_capacity(size(CACHED));
        let options = AllocatorOptions::default().with_memory(self.host.memory()).with_lock(yielding());
        let options = options.with_memory_type(MemoryType::new(u64::MAX, 64));
        Shared { pool: BufferPool::with_device(&self.device, config, options).unwrap(), basket: Mutex::default() }
    }

    pub(crate) fn workers<'s, 'a>(
        &self,
        shared: &'s Shared<'a>,
        threads: u64,
        random: &mut Random,
    ) -> Vec<Worker<'s, 'a>> {
        let worker = |number| Worker {
            shared,
            cache: shared.pool.cache().unwrap(),
            random: random.split(),
            number,
            stamped: 0,
            live: Vec::with_capacity(LIVE),
        };
        (0..threads).map(worker).collect()
    }

    /// Panics unless the books agree with each other: those of the pool, its classes, the device and the threads.
    pub(crate) fn check(&self, shared: &Shared<'_>, workers: &[Worker<'_, '_>]) {
        let pool = &shared.pool;
        assert_eq!(pool.check(), Ok(()));
        assert_eq!(pool.statistics().reserved, self.device.out().0);
        let basket = shared.basket.lock().unwrap();
        for (index, &size) in SIZES.iter().enumerate() {
            let figures = pool.class_statistics(index).unwrap();
            let held = workers.iter().flat_map(|worker| &worker.live).chain(basket.iter());
            let out = held.filter(|(buffer, _)| buffer.is_tracked() && buffer.capacity() == size).count();
            assert_eq!((figures.in_use as usize, figures.exhausted), (out, 0), "{figures:?}");
            assert_eq!(figures.created, figures.in_use + figures.cached + figures.free, "{figures:?}");
        }
        assert_eq!(pool.statistics().metadata, self.host.bytes());
        self.host.assert_used_rightly();
    }

    pub(crate) fn figures(&self, shared: &Shared<'_>, workers: &[Worker<'_, '_>]) -> [Figure; 2] {
        let basket = shared.basket.lock().unwrap();
        let held = workers.iter().flat_map(|worker| &worker.live).chain(basket.iter());
        let untracked = held.filter(|(buffer, _)| !buffer.is_tracked()).map(|(buffer, _)| buffer.capacity() as u64);
        [
            Figure::Most("device bytes of the buffer pool's classes", self.device.out().0 - untracked.sum::<u64>()),
            Figure::Most("host bytes of the buffer pool", self.host.bytes()),
        ]
    }

    /// Takes as many buffers as there can be, and more outside the classes than there will ever be again.
    pub(crate) fn tide(&self, shared: &Shared<'_>) {
        let limit = shared.pool.class_statistics(0).unwrap().limit;
        let all: Vec<_> = SIZES.iter().flat_map(|&size| (0..limit).map(move |_| size)).collect();
        let taken: Vec<_> = all.iter().map(|&size| shared.pool.try_alloc(size).unwrap()).collect();
        let larger: Vec<_> = (0..limit).map(|_| shared.pool.alloc(SIZES[3] + 1).unwrap()).collect();
        assert!(taken.iter().all(|buffer| buffer.is_tracked()) && !larger.iter().any(|buffer| buffer.is_tracked()));
    }

    /// Releases everything: all buffers must be there again.
    pub(crate) fn drain<'a>(&self, shared: &Shared<'a>, workers: &mut [Worker<'_, 'a>]) {
        let left = std::mem::take(&mut *shared.basket.lock().unwrap());
        for (buffer, stamped) in left {
            workers[0].release(buffer, stamped);
        }
        for worker in workers {
            while let Some((buffer, stamped)) = worker.live.pop() {
                worker.release(buffer, stamped);
            }
            worker.cache.flush();
        }
        assert_eq!(shared.pool.check(), Ok(()));
        for index in 0..SIZES.len() {
            let figures = shared.pool.class_statistics(index).unwrap();
            assert_eq!((figures.free, figures.in_use, figures.cached), (figures.created, 0, 0), "{figures:?}");
        }
        assert_eq!(shared.pool.statistics().untracked, 0);
    }
}

/// A thread that uses the pool.
pub(crate) struct Worker<'s, 'a> {
    shared: &'s Shared<'a>,
    cache: BufferCache<&'a RecyclingDevice>,
    random: Random,
    number: u64,
    stamped: u64,
    live: Vec<Stamped<'a>>,
}

impl<'a> Worker<'_, 'a> {
    pub(crate) fn work(&mut self, operations: u64) {
        for _ in 0..operations {
            match self.random.below(1024) {
                0..16 => self.exchange(),
                16 => self.cache.flush(),
                // Now and then in a million.
                17 if self.random.below(16) == 0 => self.cache = self.shared.pool.cache().unwrap(),
                18..520 if self.live.len() < LIVE => self.take(),
                _ => {
                    if !self.live.is_empty() {
                        let (buffer, stamped) = self.random.take(&mut self.live);
                        self.release(buffer, stamped);
                    }
                }
            }
        }
    }

    fn take(&mut self) {
        let size = self.random.scaled(SIZES[3] as u64).max(8) as usize;
        let pool = &self.shared.pool;
        let mut buffer = loop {
            let taken = match self.random.below(64) {
                0..16 => pool.try_alloc(size),
                16 => pool.try_alloc_zeroed(size),
                17 => pool.take(size, false, false).map(|raw| pool.adopt(raw.id.unwrap()).unwrap()),
                // Larger than any class.
                18 => self.cache.alloc(SIZES[3] + size.next_multiple_of(64)),
                _ => self.cache.try_alloc(size),
            };
            match taken {
                Ok(buffer) => break buffer,
                // The other thread is getting some.
                Err(Error::Exhausted { growths_in_flight: 1.., .. }) => std::thread::yield_now(),
                Err(error) => panic!("{error} for {size} bytes"),
            }
        };
        self.stamped += 1;
        let number = self.stamped << 8 | self.number;
        // SAFETY: the buffer is this thread's, and has 8 bytes at least.
        unsafe { stamp(buffer.as_mut_ptr(), buffer.capacity() as u64, number) };
        self.live.push((buffer, number));
    }

    fn release(&mut self, mut buffer: Buffer<'a>, stamped: u64) {
        // SAFETY: the buffer was stamped when it was taken.
        unsafe { assert_stamped(buffer.as_mut_ptr(), buffer.capacity() as u64, stamped) };
        match self.random.below(64) {
            0..16 => drop(buffer),
            16 if buffer.is_tracked() => self.shared.pool.release(buffer.into_raw().id.unwrap()).unwrap(),
            17 if buffer.is_tracked() => self.cache.release_raw(buffer.into_raw().id.unwrap()).unwrap(),
            _ => self.cache.release(buffer),
        }
    }

    /// Leaves a buffer to whoever comes, or takes one that was left.
    fn exchange(&mut self) {
        let mut basket = self.shared.basket.lock().unwrap();
        if basket.len() < BASKET && !self.live.is_empty() && self.random.below(2) == 0 {
            basket.push(self.random.take(&mut self.live));
        } else if self.live.len() < LIVE {
            self.live.extend(basket.pop());
        }
    }
}
