//! The classes of a buffer pool over a device that counts.

use super::{Gauge, Growing};
use slicepool_core::{AllocatorOptions, BufferPool, BufferPoolConfig, PooledBuffer};
use std::num::NonZeroU32;
use std::time::Duration;

/// A buffer pool with the classes for storage, powers of two from 4 KiB to 8 MiB, and no limit that counts. What is larger
/// gets a page of its own, which goes back with it.
pub struct BufferClasses {
    pool: BufferPool<Gauge>,
    occupied: u64,
}

impl BufferClasses {
    const LIMIT: NonZeroU32 = NonZeroU32::new(1 << 16).expect("not 0");

    /// One over a device that sleeps in each call.
    pub fn with_delay(delay: Duration) -> Self {
        let config = BufferPoolConfig::for_storage().with_max_per_class(Self::LIMIT);
        let pool = BufferPool::with_device(Gauge::with_delay(delay), config, AllocatorOptions::default());
        Self { pool: pool.expect("valid options"), occupied: 0 }
    }
}

impl Default for BufferClasses {
    fn default() -> Self {
        Self::with_delay(Duration::ZERO)
    }
}

impl Growing for BufferClasses {
    type Handle = PooledBuffer<Gauge>;

    fn allocate(&mut self, bytes: u64) -> Self::Handle {
        let buffer = self.pool.alloc(bytes as usize).expect("the device has no limit");
        self.occupied += buffer.capacity() as u64;
        buffer
    }

    fn free(&mut self, handle: Self::Handle) {
        self.occupied -= handle.capacity() as u64;
        drop(handle);
    }

    fn reserved_peak(&self) -> u64 {
        self.pool.device().peak()
    }

    fn occupied(&self) -> u64 {
        self.occupied
    }

    fn calls(&self) -> u64 {
        self.pool.device().calls()
    }

    fn moved(&self) -> u64 {
        self.pool.device().moved()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ones_are_rounded_and_stay_large_ones_are_exact_and_go() {
        let mut classes = BufferClasses::default();
        let (small, large) = (classes.allocate(4097), classes.allocate((8 << 20) + 1));
        assert_eq!(classes.occupied(), 8192 + (8 << 20) + 1);
        let calls = classes.calls();
        classes.free(small);
        assert_eq!(classes.calls(), calls);
        classes.free(large);
        assert_eq!((classes.calls(), classes.occupied()), (calls + 1, 0));
    }
}
