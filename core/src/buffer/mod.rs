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

mod cache;
mod class;
mod foreign;
#[cfg(all(test, loom))]
mod models;
mod pooled;
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

use crate::allocator::{Allocator, AllocatorOptions, LiveSlices};
use crate::canary::broken;
use crate::device::{Device, FillReason, FillRequest, HostDevice, MemoryType};
use crate::error::{DeviceFault, Error};
use crate::metadata::{Array, HostMemory};
use crate::pool::PoolOptions;
use crate::slice::Request;
use crate::slots::new_tags;
use crate::sync::{Count, Lock};
use cache::Node;
use class::{Class, Plan};
use config::{BufferConfigError, BufferPoolConfig};
use core::alloc::Layout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::num::NonZeroU32;
use core::ptr::NonNull;
use slot::{Claimed, Slot, UNTRACKED};
use sync::{AtomicU32, Ordering};
use untracked::Untracked;

/// What is modelled: every order of these is tried by the models under `--cfg loom`.
mod sync {
    #[cfg(not(loom))]
    pub(super) use crate::sync::{AtomicPtr, AtomicU32, Ordering};
    #[cfg(loom)]
    pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
}

/// Host memory: slabs share no cache line with anything else.
const HOST_MEMORY: MemoryType = MemoryType::new(u64::MAX, 64);

/// The granule of slabs, unless the smallest buffer is smaller.
const GRANULE: u64 = 256;

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

/// What pools, caches and buffers share.
pub(crate) struct Inner<D: Device> {
    /// Whether threads have caches of their own accord.
    #[cfg(feature = "std")]
    threaded: AtomicU32,
    /// Raised when caches have something to look at: pressure on a class, or that the pool is closed. Read by every
    /// operation of every cache, written hardly ever, as is all that follows.
    epoch: AtomicU32,
    /// Sizes below this one go ways of their own: 0, and those below `pool_min_size`.
    small: usize,
    /// Index of the class of each size, by the number of bits that the size less 1 has; behind the last class if there is
    /// none.
    route: [u8; usize::BITS as usize + 1],
    classes: Array<Class>,
    config: BufferPoolConfig,
    /// Where slabs come from. Taken out of here by who abandons the pool.
    allocator: ManuallyDrop<Allocator<D>>,
    abandoned: bool,
    memory: HostMemory,
    align: u64,
    closed: AtomicU32,
    /// Pools and caches that point here, and 1 while memory is held.
    owners: AtomicU32,
    /// Pools among them.
    handles: AtomicU32,
    /// Buffers that have not come back to a closed pool, and 1 before it is closed.
    unreturned: AtomicU32,
    /// Numbers of caches.
    numbers: AtomicU32,
    caches: Lock<Caches>,
    untracked: Untracked,
    oversized: Count,
    bypassed: Count,
}

/// All caches, in a list.
struct Caches {
    first: Option<NonNull<Node>>,
    count: u32,
}

// SAFETY: nodes are reached under the lock, and there only what is atomic.
unsafe impl Send for Caches {}

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
    /// A pool of buffers in host memory, from Rust's global allocator.
    ///
    /// # Errors
    /// As [`BufferPool::with_device`].
    pub fn try_new(config: BufferPoolConfig) -> Result<Self, BufferPoolError> {
        Self::with_device(HostDevice::new(), config, AllocatorOptions::default().with_memory_type(HOST_MEMORY))
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
        Self::with_device(device, config, options.with_memory_type(HOST_MEMORY))
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
                class.prefill(&pool.inner().allocator, pool.inner().align).map_err(failed)?;
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
    fn thread_cache(&self) -> Option<&Node> {
        // SAFETY: a thread's cache lives until the thread drops it, which happens in no function of this pool that uses it.
        Inner::thread_cache(self.inner).map(|node| unsafe { node.as_ref() })
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
        let mut inner = ManuallyDrop::new(self).inner;
        // SAFETY: the only owner; nobody uses the pool any more, and the allocator is not dropped again.
        unsafe {
            inner.as_mut().abandoned = true;
            drop(ManuallyDrop::take(&mut inner.as_mut().allocator).abandon());
            inner.as_ref().owners.store(1, Ordering::Relaxed);
            Inner::disown(inner);
        }
        Ok(())
    }
}

impl<D: Device> Drop for Inner<D> {
    fn drop(&mut self) {
        if !self.abandoned {
            // SAFETY: dropped here and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.allocator) };
        }
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
        let taken = self.inner().take(Some(self.node()), size, Fallback::Small)?;
        Ok(PooledBuffer::new(self.inner, taken))
    }

    /// [`BufferPool::alloc`] from the cache.
    ///
    /// # Errors
    /// As [`BufferPool::alloc`].
    #[inline]
    pub fn alloc(&mut self, size: usize) -> Result<PooledBuffer<D>, Error> {
        let taken = self.inner().take(Some(self.node()), size, Fallback::Any)?;
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
        self.inner().take_raw(Some(self.node()), size, untracked, zeroed)
    }

    /// Takes a buffer back into the cache. One of another pool goes there.
    #[inline]
    pub fn release(&mut self, buffer: PooledBuffer<D>) {
        if buffer.is_of(self.inner) {
            if let Some(slot) = buffer.into_slot() {
                // SAFETY: slots live as long as the pool.
                self.inner().returned(self.inner().put_back(Some(self.node()), unsafe { slot.as_ref() }));
            }
        }
    }

    /// [`BufferPool::release`] into the cache.
    ///
    /// # Errors
    /// As [`BufferPool::release`].
    #[inline]
    pub fn release_raw(&mut self, id: BufferId) -> Result<(), Error> {
        self.inner().release(Some(self.node()), id)
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
        self.inner().remove_cache(self.node);
        let memory = self.inner().memory;
        // SAFETY: placed by `BufferPool::cache`, and no longer in the list. The reference is this cache's.
        unsafe {
            self.node.drop_in_place();
            memory.deallocate(self.node.cast(), Layout::new::<Node>());
            Inner::disown(self.inner);
        }
    }
}

/// Which requests may go beyond the ceiling.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fallback {
    /// None.
    Never,
    /// Those below `pool_min_size`.
    Small,
    /// All.
    Any,
}

impl<D: Device> Inner<D> {
    #[cold]
    fn try_new(device: D, config: BufferPoolConfig, mut options: AllocatorOptions) -> Result<Self, Error> {
        for (field, is_set) in [(c"dry_run", options.dry_run), (c"debugging", options.debugging.is_on())] {
            if is_set {
                return Err(Error::NotSupported { what: field });
            }
        }
        let align = config.alignment().get() as u64;
        let memory_type = &mut options.memory_type;
        memory_type.alignment = memory_type.alignment.max(align);
        let max_page = memory_type.max_page;
        let (memory, lock) = (options.memory, options.lock);
        let smallest = config.min_size().get() as u64;
        // Slabs have whole buffers, and a page is as large as what it is for.
        let pool = PoolOptions::direct(None).with_granule(GRANULE.min(smallest));
        let count = config.size_classes().len() as u32;
        let first_tag = new_tags(count as u16 + 1);
        let mut route = [count as u8; usize::BITS as usize + 1];
        let mut plans = config.size_classes().enumerate();
        let mut from = 0;
        let classes = Array::try_new(memory, count, |i| {
            let Some((_, one)) = plans.next() else { return Err(Error::OutOfHostMemory { bytes: 0 }) };
            let limit: NonZeroU32 = one.max_buffers;
            let size_log2 = one.size.ilog2();
            route[from as usize..=size_log2 as usize].fill(i as u8);
            from = size_log2 + 1;
            let plan = Plan {
                index: i,
                size_log2,
                limit: limit.get(),
                cache_capacity: config.cache_capacity(limit),
                stripes: config.stripes(limit),
                tag: first_tag.wrapping_add(i as u16),
                max_page,
            };
            Class::try_new(&plan, memory, lock)
        })?;
        Ok(Self {
            #[cfg(feature = "std")]
            threaded: AtomicU32::new(0),
            epoch: AtomicU32::new(0),
            small: config.pool_min_size().max(1),
            route,
            classes,
            config,
            allocator: ManuallyDrop::new(Allocator::try_new(device, &[pool], options)?),
            abandoned: false,
            memory,
            align,
            closed: AtomicU32::new(0),
            // The pool, and the memory.
            owners: AtomicU32::new(2),
            handles: AtomicU32::new(1),
            unreturned: AtomicU32::new(1),
            numbers: AtomicU32::new(0),
            caches: Lock::new(lock, Caches { first: None, count: 0 }),
            untracked: Untracked::new(first_tag.wrapping_add(count as u16), memory, lock),
            oversized: Count::new(),
            bypassed: Count::new(),
        })
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Index of the class that serves a size; behind the last if none does.
    #[inline(always)]
    fn class_index(&self, size: usize) -> u32 {
        let bits = usize::BITS - size.saturating_sub(1).leading_zeros();
        u32::from(self.route[bits as usize])
    }

    /// The class of a slot's buffer.
    #[inline(always)]
    fn class_of(&self, slot: &Slot) -> Option<&Class> {
        let index = slot.slab().class;
        debug_assert!(index < self.classes.len() || index == slot::NO_CLASS);
        if index == slot::NO_CLASS {
            return None;
        }
        // SAFETY: slabs name classes that there are.
        Some(unsafe { self.classes.as_slice().get_unchecked(index as usize) })
    }

    // ---- taking

    /// A buffer for `size` bytes, which the caller owns; `None` for one of no bytes, which is nowhere.
    #[inline]
    fn take(&self, cache: Option<&Node>, size: usize, fallback: Fallback) -> Result<Option<NonNull<Slot>>, Error> {
        if size >= self.small {
            let index = self.class_index(size);
            match cache {
                // A size without a class has an empty list.
                Some(node) if node.epoch.get() == self.epoch.load(Ordering::Relaxed) => {
                    // SAFETY: routes lead to lists.
                    if let Some(slot) = unsafe { node.entry(index) }.hit() {
                        return Ok(Some(slot));
                    }
                }
                Some(_) => {}
                // Classes that are closed have nothing to take.
                None => {
                    let class = self.classes.as_slice().get(index as usize);
                    if let Some(slot) = class.and_then(|class| class.take_one(home_of_stack())) {
                        return Ok(Some(NonNull::from(slot)));
                    }
                }
            }
        }
        self.take_slowly(cache, size, fallback)
    }

    #[inline(never)]
    fn take_slowly(
        &self,
        cache: Option<&Node>,
        size: usize,
        fallback: Fallback,
    ) -> Result<Option<NonNull<Slot>>, Error> {
        if size < self.small {
            if size == 0 {
                return Ok(None);
            }
            if fallback != Fallback::Never {
                self.bypassed.raise();
                return self.take_untracked(size).map(Some);
            }
        }
        match self.take_from_class(cache, size) {
            Ok(slot) => Ok(Some(NonNull::from(slot))),
            Err(error) if fallback != Fallback::Any || error == Error::Closed => Err(error),
            Err(_) => self.take_untracked(size).map(Some),
        }
    }

    fn take_from_class(&self, cache: Option<&Node>, size: usize) -> Result<&Slot, Error> {
        if let Some(node) = cache {
            if node.epoch.get() != self.epoch.load(Ordering::Relaxed) {
                self.returned(self.catch_up(node));
            }
        }
        // If the pool is closed, that may have called the device, and that may have ended a thread's cache.
        self.check_open()?;
        let index = self.class_index(size);
        let Some(class) = self.classes.as_slice().get(index as usize) else {
            self.oversized.raise();
            let limit = self.config.max_size().get() as u64;
            return Err(Error::Oversized { size: size as u64, limit });
        };
        let home = cache.map_or_else(home_of_stack, |node| node.home);
        let free = match cache {
            Some(node) => {
                // SAFETY: the class has a list.
                let entry = unsafe { node.entry(index) };
                // The list is empty, unless the cache had to catch up first.
                match entry.hit() {
                    // SAFETY: slots live as long as their class.
                    Some(slot) => Some(unsafe { slot.as_ref() }),
                    None => entry.refill(class, home),
                }
            }
            None => class.take_one(home),
        };
        // From here on the device may be called: the cache is not looked at again.
        match free {
            Some(slot) => Ok(slot),
            None => self.create(class, index, home),
        }
    }

    /// A buffer of a class that has none free.
    #[cold]
    fn create<'a>(&'a self, class: &'a Class, index: u32, home: u32) -> Result<&'a Slot, Error> {
        let mut error = match class.create(home, &self.allocator, self.align, |count| self.returned(count)) {
            Ok(Some(slot)) => return Ok(slot),
            Ok(None) => {
                Error::Exhausted { size: class.size(), limit: class.configured, cached: 0, growths_in_flight: 0 }
            }
            Err(error) => error,
        };
        self.check_open()?;
        // Something may have come back meanwhile.
        if let Some(slot) = class.take_one(home) {
            return Ok(slot);
        }
        let in_caches = self.cached(index);
        if in_caches != 0 && !broken("buffer_no_pressure") {
            if broken("buffer_epoch_first") {
                self.epoch.fetch_add(1, Ordering::Release);
            }
            // Caches look at the epoch first, so the class's mark has to be there by then.
            class.pressure.fetch_add(1, Ordering::Release);
            if !broken("buffer_epoch_first") {
                self.epoch.fetch_add(1, Ordering::Release);
            }
        }
        if let Error::Exhausted { cached, growths_in_flight, .. } = &mut error {
            class.exhausted.raise();
            *cached = in_caches;
            *growths_in_flight = class.growths_in_flight();
        }
        Err(error)
    }

    /// Does what the pool wants of a cache. As [`Class::put`].
    #[cold]
    fn catch_up(&self, node: &Node) -> u32 {
        let epoch = self.epoch.load(Ordering::Acquire);
        let closed = self.is_closed();
        // A cache never catches up with a pool that is closed, so that it keeps nothing.
        if !closed {
            node.epoch.set(epoch);
        }
        node.give_back(&self.classes, closed)
    }

    /// A buffer that belongs to no class.
    #[cold]
    fn take_untracked(&self, size: usize) -> Result<NonNull<Slot>, Error> {
        let index = self.untracked.reserve()?;
        match self.allocator.allocate(&Request::new(size as u64).aligned(self.align)) {
            Ok(memory) => Ok(self.untracked.enter(index, memory, size)),
            Err(error) => {
                self.returned(u32::from(self.untracked.give_up(index)));
                Err(error)
            }
        }
    }

    // ---- giving back

    /// Takes back a buffer from whoever owns it. As [`Class::put`].
    #[inline(always)]
    #[must_use]
    fn put_back(&self, cache: Option<&Node>, slot: &Slot) -> u32 {
        let Some(class) = self.class_of(slot) else { return self.put_untracked_back(slot) };
        let Some(node) = cache else { return class.put(slot) };
        if node.epoch.get() != self.epoch.load(Ordering::Relaxed) {
            return self.put_back_late(node, class, slot);
        }
        // SAFETY: the class has a list.
        let entry = unsafe { node.entry(slot.slab().class) };
        if entry.keep(slot) { 0 } else { entry.spill(class, slot) }
    }

    /// Takes back a buffer into a cache of which the pool wants something.
    #[cold]
    fn put_back_late(&self, node: &Node, class: &Class, slot: &Slot) -> u32 {
        let returned = self.catch_up(node);
        // SAFETY: the class has a list.
        if self.is_closed() || !unsafe { node.entry(slot.slab().class) }.keep(slot) {
            return returned + class.put(slot);
        }
        returned
    }

    /// As [`Class::put`].
    #[cold]
    fn put_untracked_back(&self, slot: &Slot) -> u32 {
        // The entry keeps the pool alive meanwhile. A device that refuses keeps its page, which is asked for again later.
        let _ = self.allocator.free(slot.slab().memory.id);
        let _ = self.allocator.trim(0);
        u32::from(self.untracked.give_up(slot.number))
    }

    /// Takes back a buffer by its handle.
    #[inline]
    fn release(&self, cache: Option<&Node>, id: BufferId) -> Result<(), Error> {
        let Some(class) = self.class_of_id(id) else {
            return self.release_other(id);
        };
        let slot = class.slot(id)?;
        let returned = match slot.claim(&class.names, id)? {
            Claimed::Yes => self.put_back(cache, slot),
            Claimed::Worn => class.retire(slot),
        };
        self.returned(returned);
        Ok(())
    }

    #[cold]
    fn release_other(&self, id: BufferId) -> Result<(), Error> {
        let slot = self.claim(id)?;
        // SAFETY: just claimed.
        self.returned(self.put_back(None, unsafe { slot.as_ref() }));
        Ok(())
    }

    /// The class that a handle names.
    #[inline(always)]
    fn class_of_id(&self, id: BufferId) -> Option<&Class> {
        let size_log2 = id.class();
        let index = *self.route.get(size_log2 as usize)?;
        self.classes.as_slice().get(usize::from(index)).filter(|class| class.size_log2 == size_log2)
    }

    /// Takes a buffer over by its handle.
    fn claim(&self, id: BufferId) -> Result<NonNull<Slot>, Error> {
        let Some(class) = self.class_of_id(id) else {
            return if id.class() == UNTRACKED { self.untracked.claim(id) } else { Err(Error::ForeignHandle) };
        };
        let slot = class.slot(id)?;
        match slot.claim(&class.names, id)? {
            Claimed::Yes => Ok(NonNull::from(slot)),
            Claimed::Worn => {
                self.returned(class.retire(slot));
                Err(Error::TooManySlices { limit: class.configured })
            }
        }
    }

    // ---- raw buffers

    #[inline]
    fn take_raw(&self, cache: Option<&Node>, size: usize, untracked: bool, zeroed: bool) -> Result<RawBuffer, Error> {
        let fallback = if untracked { Fallback::Any } else { Fallback::Never };
        let Some(slot) = self.take(cache, size, fallback)? else { return Ok(RawBuffer::EMPTY) };
        // SAFETY: slots live as long as the pool.
        let slot = unsafe { slot.as_ref() };
        if zeroed {
            if let Err(error) = self.zero(slot, size) {
                self.returned(self.put_back(cache, slot));
                return Err(error);
            }
        }
        Ok(self.raw(slot))
    }

    /// What a buffer looks like from outside, with a handle that names it from now on.
    #[inline(always)]
    fn raw(&self, slot: &Slot) -> RawBuffer {
        let names = self.class_of(slot).map_or(&self.untracked.names, |class| &class.names);
        RawBuffer::new(slot.issue(names), slot)
    }

    fn get(&self, id: BufferId) -> Result<RawBuffer, Error> {
        let slot = match self.class_of_id(id) {
            Some(class) => {
                let slot = class.slot(id)?;
                slot.is_out(&class.names, id)?;
                NonNull::from(slot)
            }
            None if id.class() == UNTRACKED => self.untracked.get(id)?,
            None => return Err(Error::ForeignHandle),
        };
        // SAFETY: slots live as long as the pool.
        Ok(RawBuffer::new(id, unsafe { slot.as_ref() }))
    }

    /// Fills the first `size` bytes of a buffer with zeros.
    fn zero(&self, slot: &Slot, size: usize) -> Result<(), Error> {
        let mapped = slot.mapped();
        if !mapped.is_null() {
            // SAFETY: the buffer has at least as many bytes, and the caller owns it.
            unsafe { mapped.write_bytes(0, size) };
            return Ok(());
        }
        self.fill(slot, size)
    }

    /// Has the device do so. It clears words of four bytes, as such functions of devices want it.
    #[cold]
    fn fill(&self, slot: &Slot, size: usize) -> Result<(), Error> {
        let device = self.allocator.device();
        if !device.can_fill() {
            return Err(Error::NotSupported { what: c"fill" });
        }
        let slab = slot.slab();
        let size = size.next_multiple_of(4).min(slab.capacity) as u64;
        let offset = slab.memory.offset + slot.offset();
        let memory = slab.memory.page();
        match device.fill(&FillRequest { memory, offset, size, reason: FillReason::Zero }) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(Error::DeviceFailed { fault: DeviceFault::UnknownResult, code: 0 }),
            Err(error) => Err(error.into()),
        }
    }

    // ---- caches

    /// A cache of this pool, which `at` points to.
    #[cold]
    fn cache(at: NonNull<Self>, inner: &Self) -> Result<BufferCache<D>, Error> {
        // In this order: the epoch is raised after the pool is marked as closed, so one that is closed meanwhile has
        // another.
        let mut epoch = inner.epoch.load(Ordering::Acquire);
        inner.check_open()?;
        if broken("buffer_epoch_late") {
            epoch = inner.epoch.load(Ordering::Acquire);
        }
        let home = inner.numbers.fetch_add(1, Ordering::Relaxed);
        let node = Node::try_new(&inner.classes, home, epoch)?;
        let place = inner.memory.allocate(Layout::new::<Node>())?.cast::<Node>();
        // SAFETY: fresh memory of the right layout.
        unsafe { place.write(node) };
        inner.add_cache(place);
        inner.owners.fetch_add(1, Ordering::Relaxed);
        Ok(BufferCache { inner: at, node: place })
    }

    /// The calling thread's own cache, if threads have such.
    #[inline(always)]
    fn thread_cache(at: NonNull<Self>) -> Option<NonNull<Node>> {
        // SAFETY: the caller has a pool or a buffer of it.
        #[cfg(feature = "std")]
        if unsafe { at.as_ref() }.threaded.load(Ordering::Relaxed) != 0 {
            return threads::cache_of(at);
        }
        let _ = at;
        None
    }

    fn add_cache(&self, node: NonNull<Node>) {
        let mut caches = self.caches.lock();
        // SAFETY: nodes in the list live, and their links are changed under this lock only.
        unsafe {
            node.as_ref().next.set(caches.first);
            if let Some(first) = caches.first {
                first.as_ref().previous.set(Some(node));
            }
        }
        caches.first = Some(node);
        caches.count += 1;
    }

    /// Takes a cache, which is empty, off the list and adds up what it has counted.
    #[cold]
    fn remove_cache(&self, node: NonNull<Node>) {
        let mut caches = self.caches.lock();
        // SAFETY: as above.
        unsafe {
            let (next, previous) = (node.as_ref().next.get(), node.as_ref().previous.get());
            match previous {
                Some(previous) => previous.as_ref().next.set(next),
                None => caches.first = next,
            }
            if let Some(next) = next {
                next.as_ref().previous.set(previous);
            }
            caches.count -= 1;
            for (entry, class) in node.as_ref().entries().zip(self.classes.iter()) {
                let (hits, refills, spills) = entry.counts();
                class.hits.add(hits);
                class.refills.add(refills);
                class.spills.add(spills);
            }
        }
    }

    /// Calls `look` with every cache's list of a class, under the lock of the caches.
    fn for_each_entry(&self, index: u32, mut look: impl FnMut(&cache::Entry)) {
        let caches = self.caches.lock();
        let mut at = caches.first;
        while let Some(node) = at {
            // SAFETY: nodes in the list live, with a list for each class, of which only atomics are read.
            unsafe {
                look(node.as_ref().entry(index));
                at = node.as_ref().next.get();
            }
        }
    }

    /// Buffers of a class that are in caches. Takes time in proportion to the number of caches.
    #[cold]
    fn cached(&self, index: u32) -> u32 {
        let mut cached = 0u32;
        self.for_each_entry(index, |entry| cached = cached.saturating_add(entry.len()));
        cached
    }

    // ---- the end

    #[cold]
    fn close(&self) {
        if self.closed.swap(1, Ordering::AcqRel) != 0 {
            return;
        }
        let mut add = |count: u32| {
            // Before the lock is given up under which this was counted, so before any of them comes back.
            self.unreturned.fetch_add(count, Ordering::Relaxed);
        };
        for class in self.classes.iter() {
            class.close(&mut add);
        }
        self.untracked.close(&mut add);
        self.epoch.fetch_add(1, Ordering::Release);
        self.returned(1);
    }

    /// Gives up references of buffers that have come back to a closed pool. For those who know that it has another owner;
    /// for others there is [`Inner::give_up`].
    #[inline(always)]
    fn returned(&self, count: u32) {
        if count != 0 {
            // SAFETY: the pool lives, and goes on to.
            unsafe { Self::give_up(NonNull::from(self), count) };
        }
    }

    /// Gives up references of buffers that have come back to a closed pool. With the last one the memory goes back, and,
    /// if there is no owner any more, so do the books.
    ///
    /// # Safety
    /// The pool lives at least until these references are given up; the caller does not use it afterwards unless it is
    /// kept alive by something else.
    #[cold]
    unsafe fn give_up(inner: NonNull<Self>, count: u32) {
        // SAFETY: the caller's promise. The memory's own reference is given up once, since what is counted only falls once
        // the pool is closed.
        unsafe {
            let before = inner.as_ref().unreturned.fetch_sub(count, Ordering::AcqRel);
            debug_assert!(before >= count, "more buffers came back than were out");
            if before == count {
                // A device that refuses, or a callback that is running, leaves it to the last owner.
                let _ = inner.as_ref().return_slabs(LiveSlices::Refuse);
                Self::disown(inner);
            }
        }
    }

    /// Gives every slab back to the device.
    #[cold]
    fn return_slabs(&self, others: LiveSlices) -> Result<(), Error> {
        for class in self.classes.iter() {
            for slab in class.slabs() {
                // The second time they are stale.
                let _ = self.allocator.free(slab.memory.id);
            }
        }
        self.allocator.close(others)
    }

    #[cold]
    fn destroy(&self, force: bool) -> Result<(), Error> {
        let caches = self.caches.lock().count;
        let (mut live, mut in_use) = (u64::from(self.untracked.out()), 0u64);
        for class in self.classes.iter() {
            let (created, free, retired) = class.counts();
            let out = created - free - retired;
            live += u64::from(out);
            in_use = in_use.saturating_add(u64::from(out) << class.size_log2);
            if class.growths_in_flight() != 0 {
                return Err(Error::Busy { live, pending: 0, in_use, in_flight: caches + 1 });
            }
        }
        if caches != 0 || (live != 0 && !force) {
            return Err(Error::Busy { live, pending: 0, in_use, in_flight: caches });
        }
        self.close();
        let rest = self.unreturned.load(Ordering::Acquire);
        self.returned(rest);
        // Closed already, and empty, unless something has failed or buffers are out.
        self.return_slabs(LiveSlices::Free)
    }

    /// Gives up one reference; the last frees the books.
    ///
    /// # Safety
    /// The caller has one, and does not use the pool afterwards.
    #[cold]
    unsafe fn disown(inner: NonNull<Self>) {
        // SAFETY: the reference keeps it alive until here; the last one to go has seen what all others did.
        unsafe {
            if inner.as_ref().owners.fetch_sub(1, Ordering::AcqRel) == 1 {
                let memory = inner.as_ref().memory;
                inner.drop_in_place();
                memory.deallocate(inner.cast(), Layout::new::<Self>());
            }
        }
    }
}

/// Where a thread without a cache begins to look: threads have stacks far apart.
#[inline(always)]
fn home_of_stack() -> u32 {
    if cfg!(loom) {
        // Models have to do the same every time.
        return 0;
    }
    let here = 0u8;
    let address = core::hint::black_box(&raw const here).addr() as u64;
    ((address >> 16).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u32
}
