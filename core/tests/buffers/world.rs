//! Pools over a device, host memory and a lock that are watched.

use crate::common::devices::LedgerDevice;
use crate::common::host::HostLedger;
use crate::common::lock::{WatchedLock, yielding};
use slicepool_core::{
    AllocatorOptions, BufferCache, BufferClassStatistics, BufferId, BufferPool, BufferPoolConfig, BufferPoolError,
    BufferPoolStatistics, Device, Error, HostDevice, MemoryType, PooledBuffer, RawBuffer,
};
use std::num::{NonZeroU32, NonZeroUsize};

/// Bytes of a usual page of memory.
pub(crate) const PAGE: usize = 4096;

/// Memory of which nothing is said but that it is aligned like a cache line.
pub(crate) const MEMORY: MemoryType = MemoryType::new(u64::MAX, 64);

/// A number that is not 0.
pub(crate) fn some(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

/// A limit, which is not 0.
pub(crate) fn limit(buffers: u32) -> NonZeroU32 {
    NonZeroU32::new(buffers).unwrap()
}

/// Classes of these sizes with these limits, and nothing else said.
pub(crate) fn classes(classes: &[(usize, u32)]) -> BufferPoolConfig {
    BufferPoolConfig::default().with_size_classes(classes.iter().map(|&(size, buffers)| (some(size), limit(buffers))))
}

/// Rounds of a test; fewer where every instruction is watched.
pub(crate) fn rounds(rounds: u32) -> u32 {
    if cfg!(miri) { (rounds / 200).clamp(3, 60) } else { rounds }
}

pub(crate) type Memory = LedgerDevice<HostDevice>;
pub(crate) type Pool<'a, D = Memory> = BufferPool<&'a D>;
pub(crate) type Cache<'a, D = Memory> = BufferCache<&'a D>;
pub(crate) type Buffer<'a, D = Memory> = PooledBuffer<&'a D>;

/// What a pool is made over. Declared before it, and so dropped after: then everything must be back.
pub(crate) struct World<D: Device = Memory> {
    pub(crate) device: D,
    pub(crate) host: HostLedger,
    pub(crate) lock: WatchedLock,
}

impl World {
    /// A device whose memory can be written to.
    pub(crate) fn new() -> Self {
        Self::over(LedgerDevice::over(HostDevice::new()))
    }
}

impl World<LedgerDevice> {
    /// A device without any memory, for pools that are larger than any.
    pub(crate) fn without_memory() -> Self {
        Self::over(LedgerDevice::new())
    }
}

impl<D: Device> World<D> {
    pub(crate) fn over(device: D) -> Self {
        Self { device, host: HostLedger::new(), lock: WatchedLock::new() }
    }

    pub(crate) fn options(&self) -> AllocatorOptions {
        let options = AllocatorOptions::default().with_memory(self.host.memory()).with_memory_type(MEMORY);
        options.with_lock(self.lock.kind())
    }

    pub(crate) fn try_pool(&self, config: BufferPoolConfig) -> Result<Pool<'_, D>, BufferPoolError> {
        BufferPool::with_device(&self.device, config, self.options())
    }

    pub(crate) fn pool(&self, config: BufferPoolConfig) -> Pool<'_, D> {
        self.try_pool(config).unwrap()
    }

    /// A pool whose locks are many, so that threads really are inside at the same time.
    pub(crate) fn busy_pool(&self, config: BufferPoolConfig) -> Pool<'_, D> {
        BufferPool::with_device(&self.device, config, self.options().with_lock(yielding())).unwrap()
    }
}

impl<D: Device> Drop for World<D> {
    fn drop(&mut self) {
        if !std::thread::panicking() && self.lock.taken() != 0 {
            self.lock.assert_used_rightly();
        }
    }
}

/// Figures of the class with buffers of `size` bytes.
pub(crate) fn class<D: Device>(pool: &BufferPool<D>, size: usize) -> BufferClassStatistics {
    pool.statistics_of(some(size)).unwrap()
}

/// Buffers of a class that are in the freelist.
pub(crate) fn free<D: Device>(pool: &BufferPool<D>, size: usize) -> u32 {
    class(pool, size).free
}

/// Free buffers of each stripe of a class.
pub(crate) fn stripes<D: Device>(pool: &BufferPool<D>, index: usize) -> Vec<u32> {
    pool.stripes(index).unwrap().map(|(free, _)| free).collect()
}

/// All that a pool says of itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) pool: BufferPoolStatistics,
    pub(crate) classes: Vec<BufferClassStatistics>,
    stripes: Vec<Vec<(u32, u32)>>,
}

impl Figures {
    pub(crate) fn of<D: Device>(pool: &BufferPool<D>) -> Self {
        let count = pool.config().size_classes().len();
        Self {
            pool: pool.statistics(),
            classes: (0..count).map(|index| pool.class_statistics(index).unwrap()).collect(),
            stripes: (0..count).map(|index| pool.stripes(index).unwrap().collect()).collect(),
        }
    }
}

/// The error of a class with nothing left, nothing in caches and nothing on its way.
pub(crate) fn exhausted(size: usize, limit: u32) -> Error {
    exhausted_with(size, limit, 0)
}

/// The same with so many in caches.
pub(crate) fn exhausted_with(size: usize, limit: u32, cached: u32) -> Error {
    Error::Exhausted { size: size as u64, limit, cached, growths_in_flight: 0 }
}

pub(crate) fn oversized(size: usize, limit: usize) -> Error {
    Error::Oversized { size: size as u64, limit: limit as u64 }
}

/// The handle of a raw buffer that is not empty.
pub(crate) fn id(raw: &RawBuffer) -> BufferId {
    raw.id.unwrap()
}

/// Takes `count` buffers for `size` bytes.
pub(crate) fn take<D: Device>(pool: &BufferPool<D>, size: usize, count: u32) -> Vec<PooledBuffer<D>> {
    (0..count).map(|_| pool.try_alloc(size).unwrap()).collect()
}

/// A buffer from a device that has memory again, and how many requests were refused before it was asked.
pub(crate) fn until_served<D: Device>(pool: &BufferPool<D>, size: usize) -> (PooledBuffer<D>, u32) {
    for refused in 0..1 << 17 {
        match pool.try_alloc(size) {
            Ok(buffer) => return (buffer, refused),
            Err(Error::OutOfDeviceMemory { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the device is never asked again");
}

/// The same from a cache.
pub(crate) fn take_from<D: Device>(cache: &mut BufferCache<D>, size: usize, count: u32) -> Vec<PooledBuffer<D>> {
    (0..count).map(|_| cache.try_alloc(size).unwrap()).collect()
}

/// Where a buffer lies.
pub(crate) fn place<D: Device>(buffer: &PooledBuffer<D>) -> (u64, u64) {
    (buffer.memory(), buffer.offset())
}
