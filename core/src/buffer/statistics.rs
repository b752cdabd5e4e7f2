//! What a pool says of itself.

use super::BufferPool;
use super::inner::Inner;
use crate::device::Device;
use core::num::NonZeroUsize;

/// Figures of one class. Each is right by itself; those of a pool in use may belong to different instants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferClassStatistics {
    /// Bytes of each buffer.
    pub size: u64,
    /// Buffers that the class may have.
    pub limit: u32,
    /// Buffers that it has had from the device. They stay until the pool is closed.
    pub created: u32,
    /// Buffers in users' hands.
    pub in_use: u32,
    /// Buffers in caches.
    pub cached: u32,
    /// Buffers in the freelist.
    pub free: u32,
    /// Buffers that will not be handed out again: each after 2^33 handles or more.
    pub retired: u32,
    /// Stripes of the freelist.
    pub stripes: u32,
    /// Buffers that a cache keeps at most.
    pub cache_capacity: u32,
    /// Requests that a cache has served.
    pub hits: u64,
    /// Times that a cache was empty and got buffers from the freelist.
    pub refills: u64,
    /// Times that a cache was full and gave half its buffers to the freelist.
    pub spills: u64,
    /// Requests that found no buffer.
    pub exhausted: u64,
}

/// Figures of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferPoolStatistics {
    /// Classes.
    pub classes: u32,
    /// Caches there are.
    pub caches: u32,
    /// Buffers out that belong to no class.
    pub untracked: u32,
    /// Requests above the largest class.
    pub oversized: u64,
    /// Requests below [`BufferPoolConfig::pool_min_size`](super::config::BufferPoolConfig::pool_min_size) that went past the classes.
    pub bypassed: u64,
    /// Bytes held from the device.
    pub reserved: u64,
    /// Bytes of host memory that the books take.
    pub metadata: u64,
}

/// One piece of the device's memory that buffers of a class are carved from, one behind the other from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferRegion {
    /// Bytes of each buffer.
    pub buffer_size: u64,
    /// Handle of the memory.
    pub memory: u64,
    /// Bytes from the start of that memory.
    pub base: u64,
    /// Bytes of the region.
    pub bytes: u64,
    /// Address as the device sees it; 0 if the device gives none.
    pub address: u64,
    /// Where the CPU sees it; NULL if it does not.
    pub mapped: *mut u8,
}

impl<D: Device> BufferPool<D> {
    /// Figures of the pool.
    pub fn statistics(&self) -> BufferPoolStatistics {
        let inner = self.inner();
        let books = inner.allocator.statistics();
        let classes = inner.classes.iter().map(super::class::Class::bytes).sum::<u64>();
        let caches = inner.caches.count();
        let node = size_of::<super::cache::Node>() as u64
            + u64::from(inner.classes.len() + 1) * size_of::<super::cache::Entry>() as u64;
        BufferPoolStatistics {
            classes: inner.classes.len(),
            caches,
            untracked: inner.untracked.out(),
            oversized: inner.oversized.get(),
            bypassed: inner.bypassed.get(),
            reserved: books.reserved,
            metadata: size_of::<Inner<D>>() as u64
                + inner.classes.bytes()
                + classes
                + inner.untracked.bytes()
                + books.metadata
                + u64::from(caches) * node,
        }
    }

    /// Figures of the class at a position in ascending order of size. Takes time in proportion to the number of caches.
    pub fn class_statistics(&self, index: usize) -> Option<BufferClassStatistics> {
        let inner = self.inner();
        let class = inner.classes.as_slice().get(index)?;
        let mut figures = BufferClassStatistics {
            size: class.size(),
            limit: class.configured,
            stripes: class.stripe_count(),
            cache_capacity: class.cache_capacity,
            hits: class.hits.get(),
            refills: class.refills.get(),
            spills: class.spills.get(),
            exhausted: class.exhausted.get(),
            ..BufferClassStatistics::default()
        };
        inner.caches.for_each(index as u32, |entry| {
            let (hits, refills, spills) = entry.counts();
            figures.hits += hits;
            figures.refills += refills;
            figures.spills += spills;
            figures.cached = figures.cached.saturating_add(entry.len());
        });
        let counts = class.counts();
        (figures.created, figures.free, figures.retired) = (counts.created, counts.free, counts.retired);
        figures.in_use = counts.out().saturating_sub(figures.cached);
        Some(figures)
    }

    /// Figures of the class whose buffers have `size` bytes.
    pub fn statistics_of(&self, size: NonZeroUsize) -> Option<BufferClassStatistics> {
        let index = self.config().size_classes().position(|class| class.size == size)?;
        self.class_statistics(index)
    }

    /// Free buffers of each stripe of the class at a position in ascending order of size, and how many it may have.
    pub fn stripes(&self, index: usize) -> Option<impl Iterator<Item = (u32, u32)> + '_> {
        Some(self.inner().classes.as_slice().get(index)?.stripe_counts())
    }

    /// The memory that buffers lie in, class by class: for registering it with whoever is to access it. With
    /// [`BufferPoolConfig::with_prefill`](super::config::BufferPoolConfig::with_prefill) there is one region for each class and it never
    /// changes; otherwise regions are added as buffers are created. Buffers that belong to no class are not in them.
    pub fn regions(&self) -> impl Iterator<Item = BufferRegion> + '_ {
        self.inner().classes.iter().flat_map(|class| {
            class.slabs().map(|slab| BufferRegion {
                buffer_size: class.size(),
                memory: slab.memory.memory,
                base: slab.memory.offset,
                bytes: u64::from(slab.count) << class.size_log2,
                address: slab.memory.address,
                mapped: slab.memory.mapped,
            })
        })
    }

    /// Checks the invariants of the books: for tests, while nobody uses the pool.
    ///
    /// # Errors
    /// Says what is wrong.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), &'static str> {
        let inner = self.inner();
        for (index, class) in inner.classes.iter().enumerate() {
            class.check()?;
            if class.counts().out() < inner.cached(index as u32) {
                return Err("more buffers are free or cached than there are");
            }
        }
        inner.allocator.check()
    }
}
