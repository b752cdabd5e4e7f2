//! What is asked for, and what is handed out.

use crate::error::Error;
use crate::slots::SliceId;

/// Which neighbours a slice's memory may have: see [`MemoryType::granularity`](crate::MemoryType::granularity).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResourceKind {
    /// Buffers, and images whose texels lie row by row.
    #[default]
    Linear,
    /// Images that the device lays out as it likes.
    Optimal,
}

/// Which memory types may serve a request, and which of them are tried first. Bits of properties are the program's own
/// (a driver's, as a rule): the library only compares them with [`MemoryType::properties`](crate::MemoryType::properties).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryChoice {
    /// Bit `i`: memory type `i` may be used.
    pub types: u32,
    /// Properties that the memory must have, all of them.
    pub required: u32,
    /// Properties that it should have: types that lack the fewest come first; of equal ones that of the lowest index.
    pub preferred: u32,
    /// Properties of which it must have none.
    pub forbidden: u32,
}

impl MemoryChoice {
    /// Any memory type, in the order of their indices.
    pub const ANY: Self = Self { types: u32::MAX, required: 0, preferred: 0, forbidden: 0 };

    /// The types whose bits are set.
    pub const fn of_types(types: u32) -> Self {
        Self { types, ..Self::ANY }
    }

    /// The same with properties that the memory must have.
    #[must_use]
    pub const fn requiring(self, properties: u32) -> Self {
        Self { required: properties, ..self }
    }

    /// The same with properties that it should have.
    #[must_use]
    pub const fn preferring(self, properties: u32) -> Self {
        Self { preferred: properties, ..self }
    }

    /// The same with properties that it must not have.
    #[must_use]
    pub const fn forbidding(self, properties: u32) -> Self {
        Self { forbidden: properties, ..self }
    }
}

impl Default for MemoryChoice {
    fn default() -> Self {
        Self::ANY
    }
}

/// What a slice must be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes. 0 is refused unless the allocator has a pool of exclusive pages with `max_alloc_size` 0.
    pub size: u64,
    /// The slice's offset, and its address where it has one, will be a multiple of this. A power of two; values below
    /// the pool's granule mean the granule.
    pub alignment: u64,
    /// Index of the only pool that may serve the request; `None`: any that takes it, in order.
    pub pool: Option<u32>,
    /// What is asked for besides, as bits: one look tells the hot path that there is nothing.
    flags: u32,
    search_depth: u32,
    memory: MemoryChoice,
    device_data: *mut u8,
}

// SAFETY: a plain description; `device_data` is handed to the device as it is and never dereferenced here.
unsafe impl Send for Request {}
// SAFETY: as above.
unsafe impl Sync for Request {}

const PERSISTENT: u32 = 1;
const ZERO: u32 = 2;
const SCRUB: u32 = 4;
const DEDICATED: u32 = 8;
const NEVER_GROW: u32 = 16;
const WITHIN_BUDGET: u32 = 32;
const OPTIMAL: u32 = 64;
const CHOICE: u32 = 128;
const DEPTH: u32 = 256;

impl Request {
    /// `size` bytes, aligned to the pool's granule.
    pub const fn new(size: u64) -> Self {
        let device_data = core::ptr::null_mut();
        Self { size, alignment: 1, pool: None, flags: 0, search_depth: 0, memory: MemoryChoice::ANY, device_data }
    }

    const fn with_flag(self, flag: u32) -> Self {
        Self { flags: self.flags | flag, ..self }
    }

    #[inline(always)]
    const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The same with another alignment.
    #[must_use]
    pub const fn aligned(self, alignment: u64) -> Self {
        Self { alignment, ..self }
    }

    /// The same from one pool only.
    #[must_use]
    pub const fn in_pool(self, index: u32) -> Self {
        Self { pool: Some(index), ..self }
    }

    /// The same for what lives as long as the program: a device allocation of its own of this size, rounded up to the
    /// granule, so that no page of other slices is kept by it. Not for size 0. Freed, it serves requests of the same size
    /// that are persistent too, and only [`Allocator::cleanup`](crate::Allocator::cleanup) gives it back. No `pool` can be
    /// named with it.
    #[must_use]
    pub const fn persistent(self) -> Self {
        self.with_flag(PERSISTENT)
    }

    /// The same for a slice that is handed out full of zeros. Needs [`Device::fill`](crate::Device::fill).
    #[must_use]
    pub const fn zeroed(self) -> Self {
        self.with_flag(ZERO)
    }

    /// The same for a slice whose bytes nobody shall see after it: they are overwritten with zeros after it was freed,
    /// before anything else is placed there. Needs [`Device::fill`](crate::Device::fill).
    #[must_use]
    pub const fn scrubbed(self) -> Self {
        self.with_flag(SCRUB)
    }

    /// The same with a page for itself, of its size rounded up to the granule. Freed, it serves requests of the same
    /// size that are dedicated too, until it is too old ([`AllocatorOptions::dedicated_period`]) or trimmed. No `pool` can
    /// be named with it.
    ///
    /// [`AllocatorOptions::dedicated_period`]: crate::AllocatorOptions::dedicated_period
    #[must_use]
    pub const fn dedicated(self) -> Self {
        self.with_flag(DEDICATED)
    }

    /// The same with a page for itself, for which `data` is handed to the device as
    /// [`PageRequest::device_data`](crate::PageRequest::device_data): what an image must be bound to, a handle to import.
    /// Such a page serves once, whatever else is asked for: after the slice was freed it goes back with the next allocation,
    /// at most four with each, or a trim. NULL: as if nothing had been said.
    #[must_use]
    pub const fn with_device_data(self, data: *mut u8) -> Self {
        let flag = if data.is_null() { 0 } else { DEDICATED };
        Self { device_data: data, ..self.with_flag(flag) }
    }

    /// The same from memory that is held already: the device is not called, not even for what it has completed; nothing ages,
    /// nothing goes back. (What fills a slice, or hears of events, is called all the same, and so is [`HostMemory`] if the
    /// books need some.)
    ///
    /// [`HostMemory`]: crate::HostMemory
    #[must_use]
    pub const fn never_growing(self) -> Self {
        self.with_flag(NEVER_GROW)
    }

    /// The same without taking a page that would take the heap above its budget: see
    /// [`Device::heap_budget`](crate::Device::heap_budget), or else [`Heap::limit`](crate::Heap::limit) or size.
    #[must_use]
    pub const fn within_budget(self) -> Self {
        self.with_flag(WITHIN_BUDGET)
    }

    /// The same for another kind of resource.
    #[must_use]
    pub const fn of_kind(self, kind: ResourceKind) -> Self {
        match kind {
            ResourceKind::Linear => Self { flags: self.flags & !OPTIMAL, ..self },
            ResourceKind::Optimal => self.with_flag(OPTIMAL),
        }
    }

    /// The same from other memory types.
    #[must_use]
    pub const fn from_memory(self, memory: MemoryChoice) -> Self {
        Self { memory, ..self.with_flag(CHOICE) }
    }

    /// The same with so many holes of the request's own size class looked at, before a larger hole is broken or a page
    /// taken, and after that only what is found in constant time: more packs better and takes longer. Without it: 2, then 64
    /// before a page is taken, then all before the request is refused.
    #[must_use]
    pub const fn with_search_depth(self, holes: u32) -> Self {
        Self { search_depth: holes, ..self.with_flag(DEPTH) }
    }

    /// Whether anything but placing it has to be done, or it is placed in another way than most.
    #[inline(always)]
    pub(crate) fn is_unusual(&self) -> bool {
        self.flags != 0
    }

    /// See [`Request::persistent`].
    pub const fn is_persistent(&self) -> bool {
        self.has(PERSISTENT)
    }

    /// See [`Request::zeroed`].
    pub const fn is_zeroed(&self) -> bool {
        self.has(ZERO)
    }

    /// See [`Request::scrubbed`].
    pub const fn is_scrubbed(&self) -> bool {
        self.has(SCRUB)
    }

    /// See [`Request::dedicated`].
    pub const fn is_dedicated(&self) -> bool {
        self.has(DEDICATED)
    }

    /// See [`Request::never_growing`].
    pub const fn never_grows(&self) -> bool {
        self.has(NEVER_GROW)
    }

    /// See [`Request::within_budget`].
    pub const fn is_within_budget(&self) -> bool {
        self.has(WITHIN_BUDGET)
    }

    /// See [`Request::of_kind`].
    pub const fn kind(&self) -> ResourceKind {
        if self.has(OPTIMAL) { ResourceKind::Optimal } else { ResourceKind::Linear }
    }

    /// See [`Request::from_memory`].
    pub const fn memory(&self) -> &MemoryChoice {
        &self.memory
    }

    /// See [`Request::with_device_data`].
    pub const fn device_data(&self) -> *mut u8 {
        self.device_data
    }

    /// See [`Request::with_search_depth`].
    pub const fn search_depth(&self) -> Option<u32> {
        if self.has(DEPTH) { Some(self.search_depth) } else { None }
    }

    /// Refuses what no pool could take.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Error> {
        Self::check_alignment(self.alignment)
    }

    /// Refuses an alignment that no pool could take.
    #[inline(always)]
    pub(crate) fn check_alignment(alignment: u64) -> Result<(), Error> {
        if alignment.is_power_of_two() {
            Ok(())
        } else {
            Err(Error::InvalidArgument { field: c"alignment", value: alignment })
        }
    }
}

/// A piece of a page, handed to a caller: `[offset, offset + size)` of the device memory named `memory`.
///
/// A plain value: copies are fine, and only [`Slice::id`] is ever trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// What frees the slice.
    pub id: SliceId,
    /// Handle of the page's device memory.
    pub memory: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Usable bytes: those asked for, rounded up to the granule, or the whole page where every slice has its own.
    pub size: u64,
    /// Address of the slice as the device sees it, 0 if the device gives none.
    pub address: u64,
    /// Where the CPU sees the slice, NULL if the device has not mapped the page for good.
    pub mapped: *mut u8,
}

// SAFETY: a plain description; nothing in this crate dereferences `mapped`.
unsafe impl Send for Slice {}
// SAFETY: as above.
unsafe impl Sync for Slice {}
