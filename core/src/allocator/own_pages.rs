//! The memory types of an allocator, and the pools that each has on demand: for slices with pages of their own.

use super::install::new_tags_but;
use super::{Allocator, AllocatorOptions, Cell};
use crate::device::{Device, DeviceLayout, MemoryType};
use crate::error::Error;
use crate::metadata::{Array, HostMemory};
use crate::parts::COMPLETE;
use crate::pool::{PoolOptions, Rules};
use crate::sync::{AtomicPtr, AtomicU32, Ordering};
use core::alloc::Layout;
use core::ptr::{self, NonNull};

/// Slices with pages of their own: each memory type has a pool for each of these as soon as there is such a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPages {
    /// For [`Request::persistent`](crate::Request::persistent) slices.
    Persistent,
    /// For [`Request::dedicated`](crate::Request::dedicated) slices, and those that are too large for others.
    Dedicated,
    /// For slices [`with_device_data`](crate::Request::with_device_data), whose pages serve once.
    Once,
}

const KINDS: u32 = 3;

impl OwnPages {
    const ALL: [OwnPages; KINDS as usize] = [OwnPages::Dedicated, OwnPages::Once, OwnPages::Persistent];

    /// What stands for the pool of a memory type in place of an index: in [`PageRequest::pool`], [`Range::pool`] and
    /// [`Allocator::pool_statistics`].
    ///
    /// [`PageRequest::pool`]: crate::PageRequest::pool
    /// [`Range::pool`]: crate::Range::pool
    pub const fn pool(self, memory_type: u32) -> u32 {
        u32::MAX.wrapping_sub(memory_type.wrapping_mul(KINDS).wrapping_add(self as u32))
    }

    /// The reverse.
    pub(super) fn of_pool(pool: u32) -> (u32, Self) {
        let number = u32::MAX - pool;
        let which = [OwnPages::Persistent, OwnPages::Dedicated, OwnPages::Once];
        (number / KINDS, which[(number % KINDS) as usize])
    }

    /// What such a pool is like: direct ones.
    fn options(self, options: &AllocatorOptions, memory_type: &MemoryType) -> PoolOptions {
        let usual = memory_type.usual_granule();
        let pool = PoolOptions::direct(None).with_granule(usual);
        match self {
            OwnPages::Persistent => pool.with_granule(options.persistent_granule.unwrap_or(usual)),
            OwnPages::Dedicated => pool.with_dealloc_period(options.dedicated_period),
            // The pages have expired as soon as they are free.
            OwnPages::Once => pool.with_dealloc_period(Some(u64::MAX)),
        }
    }

    /// The rules of such a pool.
    pub(super) fn rules(self, options: &AllocatorOptions, memory_type: &MemoryType) -> Result<Rules, Error> {
        let pool = self.options(options, memory_type);
        // What is on a page with device data, and how far it really reaches, is between program and device.
        let margin = if self == OwnPages::Once { 0 } else { options.debugging.margin };
        Rules::try_new(&pool, memory_type, margin)
    }
}

/// A memory type.
pub(super) struct Type {
    /// As the device has described it, but no page is larger than the heap.
    pub(super) memory_type: MemoryType,
    /// Pages, those being taken included, of pools in which they double with their number.
    pub(super) blocks: AtomicU32,
    /// The pools of [`OwnPages`], made when they are needed. NULL before.
    own: [AtomicPtr<Cell>; KINDS as usize],
}

/// The memory types of an allocator.
pub(super) struct Types {
    /// Their properties, side by side: what every request is held against.
    properties: [u32; DeviceLayout::MAX_TYPES],
    types: Array<Type>,
    memory: HostMemory,
}

impl Types {
    #[cold]
    pub(super) fn try_new(memory: &DeviceLayout<'_>, options: &AllocatorOptions) -> Result<Self, Error> {
        let types = Array::try_new(options.memory, memory.types.len() as u32, |i| {
            let memory_type = memory.in_effect(&memory.types[i as usize]);
            let own = [const { AtomicPtr::new(ptr::null_mut()) }; KINDS as usize];
            Ok(Type { memory_type, blocks: AtomicU32::new(0), own })
        })?;
        if let (true, Some(granule)) = (COMPLETE, options.persistent_granule) {
            for one in types.iter() {
                let refused = |_| Error::InvalidArgument { field: c"persistent_granule", value: granule };
                let pool = OwnPages::Persistent.options(options, &one.memory_type);
                Rules::try_new(&pool, &one.memory_type, 0).map_err(refused)?;
            }
        }
        let mut properties = [0; DeviceLayout::MAX_TYPES];
        for (to, from) in properties.iter_mut().zip(memory.types) {
            *to = from.properties;
        }
        Ok(Self { properties, types, memory: options.memory })
    }

    /// The properties of each type, in order.
    #[inline(always)]
    pub(super) fn properties(&self) -> &[u32] {
        self.properties.get(..self.types.len() as usize).unwrap_or_default()
    }

    pub(super) fn len(&self) -> u32 {
        self.types.len()
    }

    /// A memory type by its index; `None` if there is none.
    pub(super) fn get(&self, index: u32) -> Option<&Type> {
        self.types.as_slice().get(index as usize)
    }

    /// Host bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.types.bytes() + self.own_cells().count() as u64 * size_of::<Cell>() as u64
    }

    /// The pool of a memory type's slices with pages of their own, if there is one.
    pub(super) fn own(&self, memory_type: u32, pages: OwnPages) -> Option<&Cell> {
        if !COMPLETE {
            return None;
        }
        // SAFETY: made by `Allocator::need_own`, never changed after, and freed with this.
        unsafe { self.get(memory_type)?.own[pages as usize].load(Ordering::Acquire).as_ref() }
    }

    fn cells_of(&self, kinds: &'static [OwnPages]) -> impl Iterator<Item = &Cell> {
        (0..self.len()).flat_map(move |i| kinds.iter().filter_map(move |&kind| self.own(i, kind)))
    }

    /// The pools that have been made.
    pub(super) fn own_cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells_of(&OwnPages::ALL)
    }

    /// Those whose pages go back by themselves.
    pub(super) fn giving_cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells_of(&[OwnPages::Dedicated, OwnPages::Once])
    }

    /// The pools of persistent slices.
    pub(super) fn persistent_cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells_of(&[OwnPages::Persistent])
    }
}

/// # Safety
/// `cell` came from [`Allocator::need_own`] with this memory, and nobody uses it any more.
unsafe fn drop_cell(memory: HostMemory, cell: NonNull<Cell>) {
    // SAFETY: passed on from the caller.
    unsafe {
        cell.drop_in_place();
        memory.deallocate(cell.cast(), Layout::new::<Cell>());
    }
}

impl Drop for Types {
    fn drop(&mut self) {
        for cell in self.types.iter().filter(|_| COMPLETE).flat_map(|one| &one.own) {
            if let Some(cell) = NonNull::new(cell.load(Ordering::Acquire)) {
                // SAFETY: the allocator goes with its types, and nobody uses it any more.
                unsafe { drop_cell(self.memory, cell) };
            }
        }
    }
}

impl<D: Device> Allocator<D> {
    /// How many pools there may be besides those of the list.
    pub(super) fn own_pool_count(&self) -> u32 {
        self.types.len() * KINDS
    }

    /// A pool by its index, or by what stands for one.
    pub(super) fn pool_cell(&self, pool: u32) -> Option<&Cell> {
        if u32::MAX - pool < self.own_pool_count() {
            let (memory_type, pages) = OwnPages::of_pool(pool);
            return self.types.own(memory_type, pages);
        }
        self.pools.as_slice().get(pool as usize)
    }

    /// The pool of a memory type's slices with pages of their own, made if there is none.
    #[cold]
    pub(super) fn need_own(&self, memory_type: u32, pages: OwnPages) -> Result<&Cell, Error> {
        if let Some(cell) = self.types.own(memory_type, pages) {
            return Ok(cell);
        }
        let refused = Error::InvalidArgument { field: c"memory_type", value: u64::from(memory_type) };
        let one = self.types.get(memory_type).ok_or(refused)?;
        let tag = new_tags_but(1, |tag| {
            u32::from(tag.wrapping_sub(self.first_tag)) < self.pools.len()
                || self.types.own_cells().any(|cell| cell.tag == tag)
        });
        let mut rules = pages.rules(&self.options, &one.memory_type)?;
        rules.memory_type = memory_type;
        rules.once = pages == OwnPages::Once;
        let cell = Cell::with_rules(rules, pages.pool(memory_type), tag, &self.options)?;
        let at = self.options.memory.allocate(Layout::new::<Cell>())?.cast::<Cell>();
        // SAFETY: fresh memory of the right layout.
        unsafe { at.write(cell) };
        let place = &one.own[pages as usize];
        if place.compare_exchange(ptr::null_mut(), at.as_ptr(), Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: another thread was faster, nobody knows this one.
            unsafe { drop_cell(self.options.memory, at) };
        }
        let cell = self.types.own(memory_type, pages).ok_or(Error::OutOfHostMemory { bytes: 0 })?;
        // It can be seen by now, so that a timeline which is forgotten meanwhile is forgotten here too. What it does not
        // learn for want of host memory, the next collect tells it.
        let _ = self.pass_timelines_on(cell);
        self.begin_ageing(cell);
        Ok(cell)
    }

    /// The pages of a pool that has come later than others begin to age.
    pub(super) fn begin_ageing(&self, cell: &Cell) {
        let mut pool = cell.pool.lock();
        if pool.pages.next_check().is_none() {
            return;
        }
        if self.ages.swap(1, Ordering::Relaxed) == 0 {
            // Nobody has counted so far.
            self.clock.check_at_once();
        }
        pool.pages.start_ageing_at(self.clock.allocations());
        drop(pool);
        self.clock.check_at_once();
    }
}
