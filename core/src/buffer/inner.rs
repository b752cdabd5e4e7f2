//! What pools, caches and buffers share, and what happens where caches and freelists do not help.

use super::cache::{Caches, Node};
use super::class::{Class, Plan};
use super::config::BufferPoolConfig;
use super::front::{Front, home_of_stack};
use super::slot::{BufferId, Claimed, NO_CLASS, Slot};
use super::sync::{AtomicU32, Ordering};
use super::table::TABLE_LIMIT;
use super::untracked::Untracked;
use super::{BufferCache, RawBuffer};
use crate::allocator::{Allocator, AllocatorOptions, LiveSlices};
use crate::canary::broken;
use crate::device::Device;
use crate::error::Error;
use crate::metadata::{Array, HostMemory};
use crate::pool::PoolOptions;
use crate::slice::Request;
use crate::slots::new_tags;
use crate::sync::Count;
use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::num::NonZeroU32;
use core::ops::Deref;
use core::ptr::NonNull;

/// Bytes that devices fill at a time.
const WORD: usize = 4;

/// Granules that a page can have.
const GRANULES: u64 = u32::MAX as u64;

/// How the pool asks for pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    /// Their alignment.
    align: u64,
    /// Their sizes are multiples of this.
    granule: u64,
}

impl Pages {
    /// The smallest granule with which the largest slab is a page.
    fn new(config: &BufferPoolConfig, align: u64) -> Self {
        let slab = |class: super::config::BufferPoolClassConfig| {
            let count = if config.prefill() { u64::from(class.max_buffers.get().min(TABLE_LIMIT)) } else { 1 };
            count.saturating_mul(class.size.get() as u64)
        };
        let largest = config.size_classes().map(slab).max().unwrap_or(0);
        Self { align, granule: largest.div_ceil(GRANULES).clamp(1, 1 << 32).next_power_of_two() }
    }

    /// A request for a page of exactly `bytes`, or up to the next multiple of the granule. What is too large for the pool of
    /// slabs has another one, made when there is such a page.
    pub(super) fn request(self, bytes: u64) -> Request {
        let request = Request::new(bytes).aligned(self.align);
        if bytes > GRANULES * self.granule { request.dedicated() } else { request }
    }
}

/// What pools, caches and buffers share.
pub(super) struct Inner<D: Device> {
    pub(super) front: Front,
    pub(super) config: BufferPoolConfig,
    /// Where slabs come from. Taken out of here by who abandons the pool.
    pub(super) allocator: ManuallyDrop<Allocator<D>>,
    pub(super) abandoned: bool,
    pub(super) memory: HostMemory,
    pub(super) pages: Pages,
    /// Pools and caches that point here, and 1 while memory is held.
    pub(super) owners: AtomicU32,
    /// Pools among them.
    pub(super) handles: AtomicU32,
    /// Buffers that have not come back to a closed pool, and 1 before it is closed.
    pub(super) unreturned: AtomicU32,
    /// Numbers of caches.
    pub(super) numbers: AtomicU32,
    pub(super) caches: Caches,
    pub(super) untracked: Untracked,
    pub(super) oversized: Count,
    pub(super) bypassed: Count,
}

impl<D: Device> Deref for Inner<D> {
    type Target = Front;
    #[inline(always)]
    fn deref(&self) -> &Front {
        &self.front
    }
}

/// Which requests may go beyond the ceiling.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// None.
    Never,
    /// Those below `pool_min_size`.
    Small,
    /// All.
    Any,
}

/// What a cache consists of, for as long as the device is not called: a callback may end the calling thread's own cache. So
/// functions that may call it are handed a pointer, and no reference outlives its use.
#[inline(always)]
fn seen(cache: &Option<NonNull<Node>>) -> Option<&Node> {
    // SAFETY: the caller has the cache, or it is its thread's, and what could end that has not been called yet.
    cache.as_ref().map(|node| unsafe { node.as_ref() })
}

impl<D: Device> Inner<D> {
    #[cold]
    pub(super) fn try_new(device: D, config: BufferPoolConfig, mut options: AllocatorOptions) -> Result<Self, Error> {
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
        let pages = Pages::new(&config, align);
        let pool = PoolOptions::direct(None).with_granule(pages.granule);
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
        let front = Front {
            epoch: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            #[cfg(feature = "std")]
            threaded: AtomicU32::new(0),
            small: config.pool_min_size().max(1),
            route,
            classes,
        };
        Ok(Self {
            front,
            config,
            allocator: ManuallyDrop::new(Allocator::try_new(device, &[pool], options)?),
            abandoned: false,
            memory,
            pages,
            // The pool, and the memory.
            owners: AtomicU32::new(2),
            handles: AtomicU32::new(1),
            unreturned: AtomicU32::new(1),
            numbers: AtomicU32::new(0),
            caches: Caches::new(lock),
            untracked: Untracked::new(first_tag.wrapping_add(count as u16), memory, lock),
            oversized: Count::new(),
            bypassed: Count::new(),
        })
    }

    // ---- taking

    /// A buffer for `size` bytes, which the caller owns; `None` for one of no bytes, which is nowhere.
    #[inline]
    pub(super) fn take(
        &self,
        cache: Option<NonNull<Node>>,
        size: usize,
        fallback: Fallback,
    ) -> Result<Option<NonNull<Slot>>, Error> {
        match self.front.take(seen(&cache), size) {
            Some(slot) => Ok(Some(slot)),
            None => self.take_slowly(cache, size, fallback),
        }
    }

    #[inline(never)]
    pub(super) fn take_slowly(
        &self,
        cache: Option<NonNull<Node>>,
        size: usize,
        fallback: Fallback,
    ) -> Result<Option<NonNull<Slot>>, Error> {
        let late = seen(&cache).filter(|node| node.epoch.get() != self.epoch.load(Ordering::Relaxed));
        if let Some(returned) = late.map(|node| self.catch_up(node)) {
            self.returned(returned);
        }
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

    pub(super) fn take_from_class(&self, cache: Option<NonNull<Node>>, size: usize) -> Result<&Slot, Error> {
        // If the pool is closed, catching up may have called the device, and that may have ended a thread's cache.
        self.check_open()?;
        let index = self.class_index(size);
        let Some(class) = self.classes.as_slice().get(index as usize) else {
            self.oversized.raise();
            let limit = self.config.max_size().get() as u64;
            return Err(Error::Oversized { size: size as u64, limit });
        };
        let home = seen(&cache).map_or_else(home_of_stack, |node| node.home);
        let free = match seen(&cache) {
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
    pub(super) fn create<'a>(&'a self, class: &'a Class, index: u32, home: u32) -> Result<&'a Slot, Error> {
        let mut error = match class.create(home, &self.allocator, self.pages, |count| self.returned(count)) {
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

    /// A buffer that belongs to no class.
    #[cold]
    pub(super) fn take_untracked(&self, size: usize) -> Result<NonNull<Slot>, Error> {
        let index = self.untracked.reserve()?;
        let bytes = size.checked_next_multiple_of(WORD).unwrap_or(size) as u64;
        match self.allocator.allocate_elsewhere(&self.pages.request(bytes)) {
            Ok(memory) => Ok(self.untracked.enter(index, memory, size)),
            Err(error) => {
                self.returned(u32::from(self.untracked.give_up(index)));
                Err(match error {
                    Error::TooLarge { limit, .. } => Error::TooLarge { size: size as u64, limit },
                    other => other,
                })
            }
        }
    }

    // ---- giving back

    /// Takes back a buffer from whoever owns it. As [`Class::put`].
    #[inline(always)]
    #[must_use]
    pub(super) fn put_back(&self, cache: Option<NonNull<Node>>, slot: &Slot) -> u32 {
        match self.class_of(slot) {
            Some(class) => self.front.put(seen(&cache), class, slot),
            None => self.put_untracked_back(cache, slot),
        }
    }

    /// As [`Class::put`].
    #[cold]
    pub(super) fn put_untracked_back(&self, cache: Option<NonNull<Node>>, slot: &Slot) -> u32 {
        let mut returned = 0;
        if let Some(node) = seen(&cache).filter(|node| node.epoch.get() != self.epoch.load(Ordering::Relaxed)) {
            returned = self.catch_up(node);
        }
        // The entry keeps the pool alive meanwhile. A device that refuses keeps its page, which is asked for again later.
        let _ = self.allocator.free_elsewhere(slot.slab().memory.id);
        let _ = self.allocator.trim(0);
        returned + u32::from(self.untracked.give_up(slot.number))
    }

    /// Takes back a buffer by its handle.
    #[inline(always)]
    pub(super) fn release(&self, cache: Option<NonNull<Node>>, id: BufferId) -> Result<(), Error> {
        match self.front.release(seen(&cache), id) {
            Some(Ok(returned)) => {
                self.returned(returned);
                Ok(())
            }
            Some(Err(error)) => Err(error),
            None => self.release_other(cache, id),
        }
    }

    #[cold]
    fn release_other(&self, cache: Option<NonNull<Node>>, id: BufferId) -> Result<(), Error> {
        let slot = self.claim(id)?;
        // SAFETY: just claimed.
        self.returned(self.put_back(cache, unsafe { slot.as_ref() }));
        Ok(())
    }

    /// Takes a buffer over by its handle.
    pub(super) fn claim(&self, id: BufferId) -> Result<NonNull<Slot>, Error> {
        // What names no class at all is refused there.
        let Some(class) = self.class_of_id(id) else { return self.untracked.claim(id) };
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
    pub(super) fn take_raw(
        &self,
        cache: Option<NonNull<Node>>,
        size: usize,
        untracked: bool,
        zeroed: bool,
    ) -> Result<RawBuffer, Error> {
        let fallback = if untracked { Fallback::Any } else { Fallback::Never };
        let Some(slot) = self.take(cache, size, fallback)? else { return Ok(RawBuffer::EMPTY) };
        // SAFETY: slots live as long as the pool.
        let slot = unsafe { slot.as_ref() };
        if zeroed {
            if let Err(error) = self.zero(slot, size) {
                // The device may have been called.
                self.returned(self.put_back(None, slot));
                return Err(error);
            }
        }
        Ok(RawBuffer::of(slot))
    }

    pub(super) fn get(&self, id: BufferId) -> Result<RawBuffer, Error> {
        match self.class_of_id(id) {
            Some(class) => {
                let slot = class.slot(id)?;
                slot.is_out(&class.names, id)?;
                // Where a buffer of a class lies never changes.
                Ok(RawBuffer::new(id, slot))
            }
            // What names no class at all is refused there.
            None => self.untracked.get(id),
        }
    }

    /// Fills the first `size` bytes of a buffer with zeros.
    pub(super) fn zero(&self, slot: &Slot, size: usize) -> Result<(), Error> {
        let mapped = slot.mapped();
        if !mapped.is_null() {
            // SAFETY: the buffer has at least as many bytes, and the caller owns it.
            unsafe { mapped.write_bytes(0, size) };
            return Ok(());
        }
        self.fill(slot, size)
    }

    /// Has the device do so: whole words, as such functions of devices want it.
    #[cold]
    pub(super) fn fill(&self, slot: &Slot, size: usize) -> Result<(), Error> {
        let slab = slot.slab();
        // Behind a buffer of a class there may be another one.
        let most = if slab.class == NO_CLASS { slab.memory.size } else { slab.capacity as u64 };
        let size = (size.checked_next_multiple_of(WORD).unwrap_or(size) as u64).min(most);
        self.allocator.fill_part(&slab.memory, slot.offset(), size)
    }

    // ---- caches

    /// A cache of this pool, which `at` points to.
    #[cold]
    pub(super) fn cache(at: NonNull<Self>, inner: &Self) -> Result<BufferCache<D>, Error> {
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
        // SAFETY: it stays where it is until its owner takes it off the list.
        unsafe { inner.caches.add(place) };
        inner.owners.fetch_add(1, Ordering::Relaxed);
        Ok(BufferCache { inner: at, node: place })
    }

    /// The calling thread's own cache, if threads have such.
    #[inline(always)]
    pub(super) fn thread_cache(at: NonNull<Self>) -> Option<NonNull<Node>> {
        // SAFETY: the caller has a pool or a buffer of it.
        #[cfg(feature = "std")]
        if unsafe { at.as_ref() }.threaded.load(Ordering::Relaxed) != 0 {
            return super::threads::cache_of(at);
        }
        let _ = at;
        None
    }

    /// Buffers of a class that are in caches. Takes time in proportion to the number of caches.
    #[cold]
    pub(super) fn cached(&self, index: u32) -> u32 {
        let mut cached = 0u32;
        if self.numbers.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.caches.for_each(index, |entry| cached = cached.saturating_add(entry.len()));
        cached
    }

    // ---- the end

    #[cold]
    pub(super) fn close(&self) {
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
        self.untracked.close(add);
        self.epoch.fetch_add(1, Ordering::Release);
        self.returned(1);
    }

    /// Gives up references of buffers that have come back to a closed pool. For those who know that it has another owner;
    /// for others there is [`Inner::give_up`].
    #[inline(always)]
    pub(super) fn returned(&self, count: u32) {
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
    pub(super) unsafe fn give_up(inner: NonNull<Self>, count: u32) {
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
    pub(super) fn return_slabs(&self, others: LiveSlices) -> Result<(), Error> {
        for class in self.classes.iter() {
            for slab in class.slabs() {
                // The second time they are stale.
                let _ = self.allocator.free_elsewhere(slab.memory.id);
            }
        }
        self.allocator.close(others)
    }

    #[cold]
    pub(super) fn destroy(&self, force: bool) -> Result<(), Error> {
        let caches = self.caches.count();
        let (mut live, mut in_use) = self.untracked.in_use();
        for class in self.classes.iter() {
            let out = class.counts().out();
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

    /// Frees the books, and has `end` forget the memory.
    ///
    /// # Safety
    /// Nobody uses the pool, a cache or a buffer of it any more, nor owns one but the caller.
    pub(super) unsafe fn forget(mut inner: NonNull<Self>, end: fn(Allocator<D>) -> D) {
        // SAFETY: the caller's promise; the allocator is not dropped again.
        unsafe {
            inner.as_mut().abandoned = true;
            drop(end(ManuallyDrop::take(&mut inner.as_mut().allocator)));
            inner.as_ref().owners.store(1, Ordering::Relaxed);
            Self::disown(inner);
        }
    }

    /// Gives up one reference; the last frees the books.
    ///
    /// # Safety
    /// The caller has one, and does not use the pool afterwards.
    #[cold]
    pub(super) unsafe fn disown(inner: NonNull<Self>) {
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

impl<D: Device> Drop for Inner<D> {
    fn drop(&mut self) {
        if !self.abandoned {
            // SAFETY: dropped here and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.allocator) };
        }
    }
}
