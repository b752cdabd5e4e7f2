//! Paths of buffers.

use crate::NamedPath;
use slicepool_core::{BufferPool, BufferPoolConfig, ThreadCache};
use std::hint::black_box;
use std::num::{NonZeroU32, NonZeroUsize};

/// All of them.
pub const PATHS: [NamedPath; 10] = [
    ("owner_hit", "acquire and release through a cache, by owner", owner_hit),
    ("raw_hit", "the same by handle", raw_hit),
    ("owner_shared", "acquire and release without a cache, by owner", owner_shared),
    ("raw_shared", "the same by handle", raw_shared),
    ("refill", "8 buffers from an empty cache of 16, each dropped", refill),
    ("spill", "8 buffers without a cache, released into a full cache of 16", spill),
    ("owner_17", "17 buffers through a cache of 16, acquired and released, by owner", owner_17),
    ("raw_17", "the same by handle", raw_17),
    ("exhausted_64", "a request while all of 64 are out", exhausted_64),
    ("exhausted_1000000", "a request while all of 1,000,000 are out", exhausted_1000000),
];

const BYTES: usize = 1 << 10;

fn pool(bytes: usize, limit: u32, cache: ThreadCache) -> BufferPool {
    let size = NonZeroUsize::new(bytes).expect("not zero");
    let limit = NonZeroU32::new(limit).expect("not zero");
    let config = BufferPoolConfig::for_network().with_size_class_range(size, size, limit).with_thread_cache(cache);
    BufferPool::try_new(config).expect("valid config")
}

fn sixteen() -> ThreadCache {
    ThreadCache::Explicit(NonZeroUsize::new(16).expect("not zero"))
}

fn owner_hit(walks: u64) {
    let pool = pool(BYTES, 64, sixteen());
    let mut cache = pool.cache().expect("host memory");
    for _ in 0..walks {
        let buffer = cache.try_alloc(black_box(BYTES)).expect("there are enough");
        cache.release(black_box(buffer));
    }
}

fn raw_hit(walks: u64) {
    let pool = pool(BYTES, 64, sixteen());
    let mut cache = pool.cache().expect("host memory");
    for _ in 0..walks {
        let buffer = cache.take(black_box(BYTES), false, false).expect("there are enough");
        cache.release_raw(black_box(buffer).id.expect("not empty")).expect("live");
    }
}

fn owner_shared(walks: u64) {
    let pool = pool(BYTES, 64, ThreadCache::Disabled);
    for _ in 0..walks {
        drop(black_box(pool.try_alloc(black_box(BYTES)).expect("there are enough")));
    }
}

fn raw_shared(walks: u64) {
    let pool = pool(BYTES, 64, ThreadCache::Disabled);
    for _ in 0..walks {
        let buffer = pool.take(black_box(BYTES), false, false).expect("there are enough");
        pool.release(black_box(buffer).id.expect("not empty")).expect("live");
    }
}

fn refill(walks: u64) {
    let pool = pool(BYTES, 64, sixteen());
    // Some are there already.
    drop((0..64).map(|_| pool.try_alloc(BYTES).expect("there are enough")).collect::<Vec<_>>());
    let mut cache = pool.cache().expect("host memory");
    for _ in 0..walks {
        for _ in 0..8 {
            drop(black_box(cache.try_alloc(black_box(BYTES)).expect("there are enough")));
        }
    }
}

fn spill(walks: u64) {
    let pool = pool(BYTES, 64, sixteen());
    drop((0..64).map(|_| pool.try_alloc(BYTES).expect("there are enough")).collect::<Vec<_>>());
    let mut cache = pool.cache().expect("host memory");
    for _ in 0..16 + 8 * walks {
        cache.release(black_box(pool.try_alloc(black_box(BYTES)).expect("there are enough")));
    }
}

fn owner_17(walks: u64) {
    let pool = pool(BYTES, 64, sixteen());
    let mut cache = pool.cache().expect("host memory");
    let mut held = Vec::with_capacity(17);
    for _ in 0..walks {
        held.extend((0..17).map(|_| cache.try_alloc(black_box(BYTES)).expect("there are enough")));
        held.drain(..).for_each(|buffer| cache.release(buffer));
    }
}

fn raw_17(walks: u64) {
    let pool = pool(BYTES, 64, sixteen());
    let mut cache = pool.cache().expect("host memory");
    let mut held = Vec::with_capacity(17);
    for _ in 0..walks {
        held.extend((0..17).map(|_| cache.take(black_box(BYTES), false, false).expect("there are enough").id));
        held.drain(..).for_each(|id| cache.release_raw(id.expect("not empty")).expect("live"));
    }
}

fn exhausted_64(walks: u64) {
    exhausted(BYTES, 64, walks);
}

fn exhausted_1000000(walks: u64) {
    exhausted(64, 1_000_000, walks);
}

fn exhausted(bytes: usize, limit: u32, walks: u64) {
    let pool = pool(bytes, limit, sixteen());
    let mut cache = pool.cache().expect("host memory");
    let mut held = Vec::with_capacity(limit as usize);
    held.extend((0..limit).map(|_| cache.try_alloc(bytes).expect("there are enough")));
    for _ in 0..walks {
        assert!(black_box(cache.try_alloc(black_box(bytes))).is_err());
    }
}
