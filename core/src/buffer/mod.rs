//! Fixed-capacity pools of recyclable buffers: [`BufferPool`].
//!
//! From the outside in: a pool ([`BufferPool`]) has size classes (`class`), each of which parks its free buffers in
//! stripes (`stripe`: bitmaps, each under a lock of its own). In front of them stand caches (`cache`), one for each
//! thread that wants one. What is known of a buffer is in its slot (`slot`), half a cache line; slots lie in tables that
//! are read without a lock (`table`). Memory comes from an allocator of the pool's own, in slabs.
//!
//! # Who keeps what alive
//!
//! While a pool is open, a buffer that is taken or put back touches no counter. Closing it goes through all stripes and
//! counts, under the lock of each, what is out; from then on each buffer that comes back gives up one reference, and
//! the last gives the memory back to the device ([`Inner::unreturned`]). The books live until that has happened and the
//! pool's owners and caches are gone ([`Inner::owners`]).

pub(crate) mod config;
#[cfg(all(test, any(loom, shuttle)))]
mod counted;

mod cache;
mod class;
mod foreign;
mod front;
mod inner;
#[cfg(all(test, loom))]
mod models;
mod pooled;
#[cfg(all(test, shuttle))]
mod scenarios;
mod slot;
mod statistics;
mod stripe;
mod table;
#[cfg(feature = "std")]
mod threads;
mod untracked;

pub use pooled::{PooledBuffer, RawBuffer};
pub use slot::BufferId;
pub use statistics::{BufferClassStatistics, BufferPoolStatistics, BufferRegion};
#[cfg(feature = "std")]
pub use threads::flush_thread_caches;

use crate::allocator::{Allocator, AllocatorOptions};
use crate::device::{Device, HostDevice, MemoryType};
use crate::error::Error;
use crate::metadata::HostMemory;
use cache::Node;
use config::{BufferConfigError, BufferPoolConfig};
use core::alloc::Layout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use inner::{Fallback, Inner};
use sync::Ordering;

/// What is modelled: every order of these is tried by the models under `--cfg loom`,
/// and many by the scenarios under `--cfg shuttle`.
mod sync {
    #[cfg(not(any(loom, shuttle)))]
    pub(super) use crate::sync::{AtomicPtr, AtomicU32, Ordering};
    #[cfg(loom)]
    pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
    #[cfg(shuttle)]
    pub(super) use shuttle::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
}

/// Why a pool was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferPoolError {
    /// The configuration contradicts itself.
    Config(BufferConfigError),
    /// Anything else.
    Failed(Error),
    /// The buffers of a class could not be created beforehand.
    Prefill {
        /// Bytes of the class's buffers.
        size: u64,
        /// Why.
        error: Error,
    },
}

impl From<BufferPoolError> for Error {
    fn from(error: BufferPoolError) -> Self {
        match error {
            BufferPoolError::Config(error) => error.into(),
            BufferPoolError::Failed(error) | BufferPoolError::Prefill { error, .. } => error,
        }
    }
}

impl fmt::Display for BufferPoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BufferPoolError::Config(error) => error.fmt(f),
            BufferPoolError::Failed(error) => error.fmt(f),
            BufferPoolError::Prefill { size, error } => write!(f, "buffers of {size} bytes: {error}"),
        }
    }
}

impl core::error::Error for BufferPoolError {}

/// Fixed-capacity pools of aligned, recyclable buffers with a hard ceiling, for I/O, DMA and registered memory.
///
/// A pool has classes of power-of-two sizes, each with its own limit ([`BufferPoolConfig`]). A request is served by the
/// smallest class that fits, and by no other: what is not there is an error, or, if the caller says so, memory of the
/// device's beyond the ceiling. Memory comes from the device in slabs as buffers are first needed, or all at once
/// ([`BufferPoolConfig::with_prefill`]), and stays until the pool is closed.
///
/// Usable from any number of threads at once; a clone is another owner of the same pool. Taking and releasing buffers
/// goes through freelists that are striped by thread; a [`BufferCache`] for each thread saves even their locks.
///
/// ```
/// use slicepool_core::{BufferPool, BufferPoolConfig};
///
/// let pool = BufferPool::try_new(BufferPoolConfig::for_network())?;
/// let mut cache = pool.cache()?;
/// let mut buffer = cache.try_alloc(1500)?;
/// buffer.extend_from_slice(b"a packet");
/// assert_eq!((buffer.len(), buffer.capacity()), (8, 2048));
/// cache.release(buffer);
/// # Ok::<(), slicepool_core::Error>(())
/// ```
///
/// # Differences to slices
///
/// A request of 0 bytes gets an empty buffer, which takes nothing from the pool and may be released like any other;
/// slices of size 0 are an error.
pub struct BufferPool<D: Device = HostDevice> {
    inner: NonNull<Inner<D>>,
}

// SAFETY: what is shared is reached through locks and atomics, and the device through shared references.
unsafe impl<D: Device + Send + Sync> Send for BufferPool<D> {}
// SAFETY: as above.
unsafe impl<D: Device + Send + Sync> Sync for BufferPool<D> {}

/// Buffers that one thread keeps for itself: what it releases is what it gets next, without a lock.
///
/// Made by [`BufferPool::cache`] for a thread, a task or a core, which alone uses it. It holds at most
/// [`BufferPoolConfig::cache_capacity`] buffers of each class, which others cannot have meanwhile. When a list is empty,
/// half the capacity is taken from the class at once; when it is full, half of it goes back. A request that finds its
/// class exhausted has every cache give back what it holds of the class the next time it is used.
///
/// Dropping a cache gives everything back. It may outlive its pool.
pub struct BufferCache<D: Device = HostDevice> {
    inner: NonNull<Inner<D>>,
    node: NonNull<Node>,
}

// SAFETY: the lists belong to whoever has the cache; what others read of it is atomic.
unsafe impl<D: Device + Send + Sync> Send for BufferCache<D> {}

impl BufferPool<HostDevice> {
    /// Host memory, as far as buffer pools are concerned: at multiples of 64 bytes, so that slabs share no cache line with
    /// anything else.
    pub const HOST_MEMORY: MemoryType = MemoryType::new(u64::MAX, 64);

    /// A pool of buffers in host memory, from Rust's global allocator.
    ///
    /// # Errors
    /// As [`BufferPool::with_device`].
    pub fn try_new(config: BufferPoolConfig) -> Result<Self, BufferPoolError> {
        Self::with_device(HostDevice::new(), config, AllocatorOptions::default().with_memory_type(Self::HOST_MEMORY))
    }

    /// A pool of buffers in a block of memory that the caller hands over: a static array, a reserved region.
    ///
    /// The block's own books take less than 200 bytes at its start; slabs are aligned to 64 bytes or the configuration's
    /// alignment. The pool's books are in Rust's global allocator, or where `options` say.
    ///
    /// # Errors
    /// As [`BufferPool::with_device`]; [`Error::InvalidArgument`] with the field `bytes` for a block that is too small.
    ///
    /// # Safety
    /// The `bytes` bytes from `memory` on are one piece of memory that can be read and written through `memory`, and
    /// nobody else touches them before the pool, its caches and its buffers are gone.
    pub unsafe fn in_memory(
        memory: NonNull<u8>,
        bytes: usize,
        config: BufferPoolConfig,
        options: AllocatorOptions,
    ) -> Result<Self, BufferPoolError> {
        // SAFETY: passed on from the caller.
        let block = unsafe { HostMemory::in_block(memory, bytes, options.lock) };
        let device = HostDevice::over(block.map_err(BufferPoolError::Failed)?);
        Self::with_device(device, config, options.with_memory_type(Self::HOST_MEMORY))
    }
}

impl<D: Device> BufferPool<D> {
    /// A pool of buffers in memory of `device`. Takes nothing from the device yet, unless the pool is prefilled.
    ///
    /// Of `options` count the host memory, the lock, the memory type, the limits and budgets, the growth wait steps, and name
    /// and user data. The device sees pages: slabs of at most 256 KiB or one buffer, and single buffers that the
    /// classes do not serve.
    ///
    /// # Errors
    /// [`BufferPoolError::Config`] if the configuration contradicts itself; [`BufferPoolError::Prefill`] with what the
    /// device or host lacked, and nothing is held then; otherwise [`Error::InvalidArgument`] for a class whose buffers are larger than
    /// the device's pages, or options that buffer pools do not have (dry runs, debugging), and
    /// [`Error::OutOfHostMemory`].
    #[cold]
    pub fn with_device(
        device: D,
        config: BufferPoolConfig,
        options: AllocatorOptions,
    ) -> Result<Self, BufferPoolError> {
        config.check().map_err(BufferPoolError::Config)?;
        let inner = Inner::try_new(device, config, options).map_err(BufferPoolError::Failed)?;
        let memory = inner.memory;
        let at = memory.allocate(Layout::new::<Inner<D>>()).map_err(BufferPoolError::Failed)?.cast::<Inner<D>>();
        // SAFETY: fresh memory of the right layout.
        unsafe { at.write(inner) };
        // From here on dropping the pool gives back what there is.
        let pool = Self { inner: at };
        if config.prefill() {
            for class in pool.inner().classes.iter() {
                let failed = |error| BufferPoolError::Prefill { size: class.size(), error };
                class.prefill(&pool.inner().allocator, pool.inner().pages).map_err(failed)?;
            }
        }
        Ok(pool)
    }

    #[inline(always)]
    fn inner(&self) -> &Inner<D> {
        // SAFETY: an owner keeps it alive.
        unsafe { self.inner.as_ref() }
    }

    /// The calling thread's own cache.
    #[inline(always)]
    fn thread_cache(&self) -> Option<NonNull<Node>> {
        Inner::thread_cache(self.inner)
    }

    /// The same pool with a cache for every thread that uses it, of which nobody has to think: what a thread drops is what
    /// it gets next. A cache is given back when its thread ends, or calls [`flush_thread_caches`]. Needs the feature
    /// `std`.
    ///
    /// The books of a pool that was closed live on until each thread that has a cache of it ends or uses another pool for the
    /// first time, and what such a cache holds keeps the device's memory: flush idle threads.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn with_thread_caches(self) -> Self
    where
        D: Send + Sync + 'static,
    {
        let caches = self.inner().classes.iter().any(|class| class.cache_capacity != 0);
        self.inner().threaded.store(u32::from(caches), Ordering::Relaxed);
        self
    }

    /// How the pool was made.
    pub fn config(&self) -> &BufferPoolConfig {
        &self.inner().config
    }

    /// The device.
    pub fn device(&self) -> &D {
        self.inner().allocator.device()
    }

    /// A cache for one thread. Takes no buffers yet. Costs two host allocations.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`]; [`Error::Closed`].
    #[cold]
    pub fn cache(&self) -> Result<BufferCache<D>, Error> {
        Inner::cache(self.inner, self.inner())
    }

    /// Hands out a buffer of at least `size` bytes: its capacity is that of its class, its length 0.
    ///
    /// A size below [`BufferPoolConfig::pool_min_size`] gets a buffer of that many bytes which belongs to no class. The
    /// time does not depend on limits; a buffer that is created may take a slab from the device.
    ///
    /// # Errors
    /// [`Error::Oversized`] above the largest class; [`Error::Exhausted`]; [`Error::Closed`]; and where a buffer has to be
    /// created, [`Error::OutOfDeviceMemory`], [`Error::DeviceFailed`], [`Error::BudgetExceeded`],
    /// [`Error::PageCountExceeded`], [`Error::OutOfHostMemory`], [`Error::TooManySlices`] (a class has at most 16.7
    /// million).
    pub fn try_alloc(&self, size: usize) -> Result<PooledBuffer<D>, Error> {
        let taken = self.inner().take(self.thread_cache(), size, Fallback::Small)?;
        Ok(PooledBuffer::new(self.inner, taken))
    }

    /// [`BufferPool::try_alloc`], or if that is refused, a buffer of exactly `size` bytes that belongs to no class. It is a
    /// page of the device's of its own, beyond the pool's ceiling, and goes back when it is released.
    ///
    /// # Errors
    /// [`Error::Closed`]; what the device or the host said.
    pub fn alloc(&self, size: usize) -> Result<PooledBuffer<D>, Error> {
        let taken = self.inner().take(self.thread_cache(), size, Fallback::Any)?;
        Ok(PooledBuffer::new(self.inner, taken))
    }

    /// [`BufferPool::try_alloc`] of a buffer with length `size`, all of it zeros; what is behind that is not looked at.
    ///
    /// # Errors
    /// As [`BufferPool::try_alloc`]; [`Error::NotSupported`] if the CPU does not see the memory and the device has no
    /// [`Device::fill`].
    pub fn try_alloc_zeroed(&self, size: usize) -> Result<PooledBuffer<D>, Error> {
        self.try_alloc(size)?.zeroed(size)
    }

    /// [`BufferPool::alloc`] of a buffer with length `size`, all of it zeros.
    ///
    /// # Errors
    /// As [`BufferPool::alloc`] and [`BufferPool::try_alloc_zeroed`].
    pub fn alloc_zeroed(&self, size: usize) -> Result<PooledBuffer<D>, Error> {
        self.alloc(size)?.zeroed(size)
    }

    /// Takes back a buffer that was turned into a raw one. Of several threads with one handle, one succeeds.
    ///
    /// # Errors
    /// [`Error::StaleHandle`], [`Error::ForeignHandle`]; nothing changes then.
    pub fn release(&self, id: BufferId) -> Result<(), Error> {
        self.inner().release(self.thread_cache(), id)
    }

    /// A buffer by its handle, as it was when it became raw.
    ///
    /// # Errors
    /// As [`BufferPool::release`].
    pub fn get(&self, id: BufferId) -> Result<RawBuffer, Error> {
        self.inner().get(id)
    }

    /// Hands out a raw buffer: what [`BufferPool::try_alloc`] and [`PooledBuffer::into_raw`] do, or with `untracked`
    /// [`BufferPool::alloc`]. Where not even sizes below [`BufferPoolConfig::pool_min_size`] may go beyond the ceiling,
    /// as without `untracked`, the smallest class serves them.
    ///
    /// # Errors
    /// As [`BufferPool::try_alloc`] or [`BufferPool::alloc`]; as [`BufferPool::try_alloc_zeroed`] with `zeroed`.
    pub fn take(&self, size: usize, untracked: bool, zeroed: bool) -> Result<RawBuffer, Error> {
        self.inner().take_raw(self.thread_cache(), size, untracked, zeroed)
    }

    /// Makes a buffer of a raw one: with length 0, and released when it is dropped.
    ///
    /// # Errors
    /// As [`BufferPool::release`].
    pub fn adopt(&self, id: BufferId) -> Result<PooledBuffer<D>, Error> {
        let taken = self.inner().claim(id)?;
        Ok(PooledBuffer::new(self.inner, Some(taken)))
    }

    /// Hands out nothing any more. Caches give back what they hold the next time they are used, or when they are dropped;
    /// when the last buffer is back, the device gets all memory back, on that thread. Buffers that are out stay as
    /// they are. Closing a pool twice is no error.
    pub fn close(&self) {
        self.inner().close();
    }

    /// Whether the pool has been closed.
    pub fn is_closed(&self) -> bool {
        self.inner().is_closed()
    }

    /// Closes the pool and gives the memory back, with what is out: handles are void, and buffers must not be used any more.
    ///
    /// # Errors
    /// [`Error::Busy`] with the number of caches as what is in flight, if there are any or if callbacks run; and, unless
    /// `force`, with the buffers that are out; [`Error::DeviceFailed`] if the device refuses to take memory back. The pool
    /// is handed back.
    ///
    /// # Safety
    /// With `force`, nobody uses a buffer of the pool any more, and no [`PooledBuffer`] exists. The pool has no other owner.
    #[allow(clippy::result_large_err, reason = "what is refused is handed back; there is no heap to box it on")]
    pub unsafe fn destroy(self, force: bool) -> Result<(), (Self, Error)> {
        let inner = self.inner();
        let outcome = inner.destroy(force);
        if let Err(error) = outcome {
            return Err((self, error));
        }
        Ok(())
    }
}

impl<D: Device> BufferPool<D> {
    /// Forgets all memory without a word to the device, and frees the books: for a device that is lost, or memory that goes
    /// away with the process.
    ///
    /// # Errors
    /// [`Error::Busy`] if there are caches or other owners; the pool is handed back.
    ///
    /// # Safety
    /// Nobody uses a buffer of the pool any more, and no [`PooledBuffer`] exists.
    #[allow(clippy::result_large_err, reason = "what is refused is handed back; there is no heap to box it on")]
    pub unsafe fn abandon(self) -> Result<(), (Self, Error)> {
        let others = self.inner().owners.load(Ordering::Acquire) - 1;
        let held = u32::from(self.inner().unreturned.load(Ordering::Acquire) != 0);
        if others != held {
            let error = Error::Busy { live: 0, pending: 0, in_use: 0, in_flight: others - held };
            return Err((self, error));
        }
        // SAFETY: the only owner; nobody uses the pool any more.
        unsafe { Inner::forget(ManuallyDrop::new(self).inner, Allocator::abandon) };
        Ok(())
    }
}

impl<D: Device> Clone for BufferPool<D> {
    fn clone(&self) -> Self {
        self.inner().handles.fetch_add(1, Ordering::Relaxed);
        self.inner().owners.fetch_add(1, Ordering::Relaxed);
        Self { inner: self.inner }
    }
}

impl<D: Device> Drop for BufferPool<D> {
    fn drop(&mut self) {
        if self.inner().handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inner().close();
        }
        // SAFETY: this owner's reference.
        unsafe { Inner::disown(self.inner) };
    }
}

impl<D: Device> fmt::Debug for BufferPool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner();
        f.debug_struct("BufferPool")
            .field("classes", &inner.classes.len())
            .field("config", &inner.config)
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl<D: Device> BufferCache<D> {
    #[inline(always)]
    fn inner(&self) -> &Inner<D> {
        // SAFETY: a cache is an owner.
        unsafe { self.inner.as_ref() }
    }

    #[inline(always)]
    fn node(&self) -> &Node {
        // SAFETY: the node lives as long as the cache.
        unsafe { self.node.as_ref() }
    }

    /// [`BufferPool::try_alloc`] from the cache.
    ///
    /// # Errors
    /// As [`BufferPool::try_alloc`].
    #[inline]
    pub fn try_alloc(&mut self, size: usize) -> Result<PooledBuffer<D>, Error> {
        let taken = self.inner().take(Some(self.node), size, Fallback::Small)?;
        Ok(PooledBuffer::new(self.inner, taken))
    }

    /// [`BufferPool::alloc`] from the cache.
    ///
    /// # Errors
    /// As [`BufferPool::alloc`].
    #[inline]
    pub fn alloc(&mut self, size: usize) -> Result<PooledBuffer<D>, Error> {
        let taken = self.inner().take(Some(self.node), size, Fallback::Any)?;
        Ok(PooledBuffer::new(self.inner, taken))
    }

    /// [`BufferPool::try_alloc_zeroed`] from the cache.
    ///
    /// # Errors
    /// As [`BufferPool::try_alloc_zeroed`].
    pub fn try_alloc_zeroed(&mut self, size: usize) -> Result<PooledBuffer<D>, Error> {
        self.try_alloc(size)?.zeroed(size)
    }

    /// [`BufferPool::alloc_zeroed`] from the cache.
    ///
    /// # Errors
    /// As [`BufferPool::alloc_zeroed`].
    pub fn alloc_zeroed(&mut self, size: usize) -> Result<PooledBuffer<D>, Error> {
        self.alloc(size)?.zeroed(size)
    }

    /// [`BufferPool::take`] from the cache.
    ///
    /// # Errors
    /// As [`BufferPool::take`].
    #[inline]
    pub fn take(&mut self, size: usize, untracked: bool, zeroed: bool) -> Result<RawBuffer, Error> {
        self.inner().take_raw(Some(self.node), size, untracked, zeroed)
    }

    /// Takes a buffer back into the cache. One of another pool goes there.
    #[inline]
    pub fn release(&mut self, buffer: PooledBuffer<D>) {
        if buffer.is_of(self.inner) {
            if let Some(slot) = buffer.into_slot() {
                // SAFETY: slots live as long as the pool.
                self.inner().returned(self.inner().put_back(Some(self.node), unsafe { slot.as_ref() }));
            }
        }
    }

    /// [`BufferPool::release`] into the cache.
    ///
    /// # Errors
    /// As [`BufferPool::release`].
    #[inline]
    pub fn release_raw(&mut self, id: BufferId) -> Result<(), Error> {
        self.inner().release(Some(self.node), id)
    }

    /// Gives back all buffers that the cache holds.
    pub fn flush(&mut self) {
        let returned = self.node().give_back(&self.inner().classes, true);
        self.inner().returned(returned);
    }

    /// Buffers that the cache holds of the class that serves `size`; 0 if there is none.
    pub fn len_of(&self, size: usize) -> u32 {
        // SAFETY: routes lead to lists.
        unsafe { self.node().entry(self.inner().class_index(size)) }.len()
    }
}

impl<D: Device> Drop for BufferCache<D> {
    fn drop(&mut self) {
        self.flush();
        let memory = self.inner().memory;
        // SAFETY: placed by `BufferPool::cache`, and in the list until here. The reference is this cache's.
        unsafe {
            self.inner().caches.remove(self.node, &self.inner().classes);
            self.node.drop_in_place();
            memory.deallocate(self.node.cast(), Layout::new::<Node>());
            Inner::disown(self.inner);
        }
    }
}
