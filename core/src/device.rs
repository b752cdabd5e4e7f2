//! What gives out memory: the [`Device`] trait and the numbers that go with it.

pub mod host;

pub use host::HostDevice;

use crate::error::{DeviceFault, Error};
use crate::event::Event;
use crate::parts::COMPLETE;
use crate::pool::{PoolOptions, Rules};
use crate::slicer::timelines::Point;
use core::ptr;

/// One kind of memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryType {
    /// The largest page the device gives out, in bytes.
    pub max_page: u64,
    /// Every page is asked for at a multiple of this many bytes, a power of two. It is also the largest alignment a
    /// request may have, unless a pool's granule is larger.
    pub alignment: u64,
    /// Index of the heap that the memory is taken from.
    pub heap: u32,
    /// What the memory is like, in bits of the program's own, which [`MemoryChoice`](crate::MemoryChoice) selects by.
    pub properties: u32,
    /// Whether the host sees the memory: which of the sizes of [`AllocationSizes`](crate::AllocationSizes) count.
    pub host_visible: bool,
    /// Whether the host may see a page at any address, which then says nothing of how the page is aligned for the device
    /// (Vulkan). Otherwise the mapping of a page without an address has to be aligned as the page was asked for.
    pub mapped_anywhere: bool,
    /// Linear and optimal resources ([`ResourceKind`](crate::ResourceKind)) never share a range of this many bytes at a
    /// multiple of it (Vulkan's `bufferImageGranularity`). A power of two of at most 2^32. Above a pool's granule, the two
    /// kinds have pages of their own if there are pools for each ([`PoolOptions::kinds`](crate::PoolOptions::kinds));
    /// in a pool for both it takes the granule's place.
    pub granularity: u64,
    /// What is flushed and invalidated are multiples of this many bytes, a power of two of at most 2^32; 1: the memory is
    /// coherent, and nothing has to be. No pool has a smaller granule, so that nobody flushes another's bytes.
    pub non_coherent_atom: u64,
}

impl MemoryType {
    /// Alignment of pages where nothing else is said: what page-wise mappings and GPU drivers both give.
    pub const DEFAULT_ALIGNMENT: u64 = 4096;

    /// Pages of at most `max_page` bytes at multiples of `alignment`, of the first heap.
    pub const fn new(max_page: u64, alignment: u64) -> Self {
        let (granularity, non_coherent_atom) = (1, 1);
        Self {
            max_page,
            alignment,
            heap: 0,
            properties: 0,
            host_visible: false,
            mapped_anywhere: false,
            granularity,
            non_coherent_atom,
        }
    }

    /// Refuses what cannot be. The field's name is that of a config.
    #[cold]
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |field, value| Err(Error::InvalidArgument { field, value });
        if !self.alignment.is_power_of_two() {
            return refuse(c"page_alignment", self.alignment);
        }
        for (field, value) in [(c"granularity", self.granularity), (c"non_coherent_atom", self.non_coherent_atom)] {
            if !value.is_power_of_two() || value > 1 << 32 {
                return refuse(field, value);
            }
        }
        Ok(())
    }

    /// The granule where nothing else is said: a page too small for the usual one is still a page.
    pub(crate) fn usual_granule(&self) -> u64 {
        PoolOptions::DEFAULT_GRANULE.min(1 << self.max_page.max(1).ilog2())
    }

    /// The same from another heap.
    #[must_use]
    pub const fn in_heap(mut self, heap: u32) -> Self {
        self.heap = heap;
        self
    }

    /// The same with properties.
    #[must_use]
    pub const fn with_properties(mut self, properties: u32) -> Self {
        self.properties = properties;
        self
    }

    /// The same where the host sees it, or does not.
    #[must_use]
    pub const fn with_host_visible(mut self, host_visible: bool) -> Self {
        self.host_visible = host_visible;
        self
    }

    /// The same where mappings of pages lie anywhere, or do not.
    #[must_use]
    pub const fn with_mapped_anywhere(mut self, mapped_anywhere: bool) -> Self {
        self.mapped_anywhere = mapped_anywhere;
        self
    }

    /// The same with a granularity.
    #[must_use]
    pub const fn with_granularity(mut self, bytes: u64) -> Self {
        self.granularity = bytes;
        self
    }

    /// The same with memory that has to be flushed and invalidated.
    #[must_use]
    pub const fn with_non_coherent_atom(mut self, bytes: u64) -> Self {
        self.non_coherent_atom = bytes;
        self
    }
}

impl Default for MemoryType {
    /// Pages of any size, at multiples of 4,096 bytes.
    fn default() -> Self {
        Self::new(u64::MAX, Self::DEFAULT_ALIGNMENT)
    }
}

/// What several memory types share: the memory they are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heap {
    /// Bytes; `u64::MAX` if that is not known. A request above it is too large, and blocks are an eighth of it at
    /// most, but not below 4 MiB.
    pub size: u64,
    /// Bytes that the allocator may hold of it; `None`: as many as the device gives.
    pub limit: Option<u64>,
}

impl Heap {
    /// A heap of so many bytes.
    pub const fn new(size: u64) -> Self {
        Self { size, limit: None }
    }

    /// The same with a limit on what the allocator holds of it.
    #[must_use]
    pub const fn with_limit(mut self, bytes: Option<u64>) -> Self {
        self.limit = bytes;
        self
    }
}

/// All memory of a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceLayout<'a> {
    /// Its memory types, at most [`DeviceLayout::MAX_TYPES`], by whose index requests and pools name them.
    pub types: &'a [MemoryType],
    /// Its heaps, at most [`DeviceLayout::MAX_HEAPS`]. None: one of unknown size.
    pub heaps: &'a [Heap],
}

impl<'a> DeviceLayout<'a> {
    /// The most memory types.
    pub const MAX_TYPES: usize = if COMPLETE { 32 } else { 1 };
    /// The most heaps.
    pub const MAX_HEAPS: usize = if COMPLETE { 32 } else { 1 };

    /// Memory types over heaps.
    pub const fn new(types: &'a [MemoryType], heaps: &'a [Heap]) -> Self {
        Self { types, heaps }
    }

    /// The heap of a memory type, which has been checked.
    pub(crate) fn heap_of(&self, memory_type: &MemoryType) -> Heap {
        self.heaps.get(memory_type.heap as usize).copied().unwrap_or(Heap::new(u64::MAX))
    }

    /// A memory type as it is in effect: no page is larger than its heap.
    pub fn in_effect(&self, memory_type: &MemoryType) -> MemoryType {
        let max_page = memory_type.max_page.min(self.heap_of(memory_type).size);
        MemoryType { max_page, ..*memory_type }
    }

    /// Refuses what no allocator can be made for.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names the field.
    #[cold]
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |field, value| Err(Error::InvalidArgument { field, value });
        if self.types.is_empty() || self.types.len() > Self::MAX_TYPES {
            return refuse(c"memory_types", self.types.len() as u64);
        }
        if self.heaps.len() > Self::MAX_HEAPS {
            return refuse(c"heaps", self.heaps.len() as u64);
        }
        for memory_type in self.types {
            if memory_type.heap as usize >= self.heaps.len().max(1) {
                return refuse(c"heap", u64::from(memory_type.heap));
            }
            memory_type.check()?;
        }
        Ok(())
    }
}

/// What a device is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageRequest {
    /// Bytes, never 0.
    pub size: u64,
    /// The page's address must be a multiple of this, a power of two.
    pub alignment: u64,
    /// Index of the pool that grows, or what [`OwnPages::pool`](crate::OwnPages::pool) says.
    pub pool: u32,
    /// Index of the memory type.
    pub memory_type: u32,
    /// Whether the page will only ever hold one slice at a time.
    pub dedicated: bool,
    /// What [`Request::with_device_data`](crate::Request::with_device_data) was given, otherwise NULL.
    pub device_data: *mut u8,
}

impl PageRequest {
    /// A page of `size` bytes at a multiple of `alignment`.
    pub const fn new(size: u64, alignment: u64) -> Self {
        let device_data = ptr::null_mut();
        Self { size, alignment, pool: 0, memory_type: 0, dedicated: false, device_data }
    }
}

/// Memory that a device has given out: a page.
///
/// `handle` and `address` together must differ between pages that are live at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The device's own name for the memory: a `VkDeviceMemory`, a file offset, an address. Any value but `u64::MAX`.
    pub handle: u64,
    /// Address as the device sees it, 0 if it has none.
    pub address: u64,
    /// Where the CPU sees the memory, NULL if it does not. The library never reads or writes there, unless
    /// [`Debugging`](crate::Debugging) is on.
    pub mapped: *mut u8,
    /// Bytes. Set by the library to what was asked for.
    pub size: u64,
    /// For the device's own use; comes back in [`Device::deallocate`].
    pub context: *mut u8,
}

// SAFETY: plain numbers; nothing here is dereferenced by this crate.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Memory known by a handle alone.
    pub const fn new(handle: u64) -> Self {
        Self { handle, address: 0, mapped: ptr::null_mut(), size: 0, context: ptr::null_mut() }
    }

    /// Memory that a dry run has not got from the device yet.
    pub(crate) const fn unmapped(size: u64) -> Self {
        Self { size, ..Self::new(u64::MAX) }
    }

    /// The same where the CPU sees it.
    pub(crate) const fn seen_at(self, mapped: *mut u8) -> Self {
        Self { mapped, ..self }
    }

    /// Whether the memory was given by a device.
    pub(crate) fn is_mapped(&self) -> bool {
        self.handle != u64::MAX
    }

    /// Address of a place in the memory, 0 if the device gives none.
    #[inline(always)]
    pub(crate) fn address_at(&self, offset: u64) -> u64 {
        if self.address == 0 { 0 } else { self.address.wrapping_add(offset) }
    }

    /// Where the CPU sees a place in the memory, NULL if it does not.
    #[inline(always)]
    pub(crate) fn mapped_at(&self, offset: u64) -> *mut u8 {
        if self.mapped.is_null() { self.mapped } else { self.mapped.wrapping_add(offset as usize) }
    }

    /// What keeps the memory from being a page under `rules`: an address, or else a mapping where that counts, that is not
    /// aligned enough, or an end of either above the last address. A bare handle is trusted.
    pub(crate) fn fault(&self, rules: &Rules) -> Option<DeviceFault> {
        let mapped = self.mapped.addr() as u64;
        let at = match self.address {
            0 if rules.mapped_anywhere => 0,
            0 => mapped,
            address => address,
        };
        if at & (rules.page_alignment - 1) != 0 {
            return Some(DeviceFault::Misaligned);
        }
        let last = self.size.saturating_sub(1);
        let ends = self.address.checked_add(last).is_some()
            && (mapped == 0 || mapped.checked_add(last).is_some_and(|end| usize::try_from(end).is_ok()));
        (!ends).then_some(DeviceFault::OutOfRange)
    }
}

/// Why a device gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// None left: freeing something, or asking for less, may help. With the device's own code.
    OutOfMemory(i32),
    /// Anything else, with the device's own code.
    Failed(i32),
    /// Nonsense: a result code that does not exist. Only foreign callbacks can answer it.
    UnknownResult(i32),
}

impl DeviceError {
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::OutOfMemory(code) | Self::Failed(code) | Self::UnknownResult(code) => code,
        }
    }
}

/// Why memory is to be filled with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FillReason {
    /// The slice has just been allocated: [`Request::zeroed`](crate::Request::zeroed).
    Zero,
    /// The slice has been freed: [`Request::scrubbed`](crate::Request::scrubbed).
    Scrub,
}

/// Memory that is to be filled with zeros: a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FillRequest {
    /// The page, as the device has given it out.
    pub memory: DeviceMemory,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Why.
    pub reason: FillReason,
}

/// A request that cannot be served, as [`Device::out_of_memory`] hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// Bytes asked for.
    pub size: u64,
    /// Alignment asked for.
    pub alignment: u64,
    /// What the request will be refused with.
    pub error: Error,
    /// How often this request has been told of before.
    pub attempt: u32,
}

/// What a device says of a heap, as `VK_EXT_memory_budget` and `cuMemGetInfo` do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapBudget {
    /// Bytes in use, by this program as far as the device knows.
    pub usage: u64,
    /// Bytes that this program can use without trouble.
    pub budget: u64,
}

/// Bytes of a page that the CPU has written or is about to read: multiples of
/// [`MemoryType::non_coherent_atom`], as far as the page's end allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheRange {
    /// The page, as the device has given it out.
    pub memory: DeviceMemory,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// Gives out pages and takes them back.
///
/// All functions are called by the thread whose request needs them, with no lock held: they may be slow, and they
/// may call back into the allocator they serve. They must not unwind. Those with a body are optional.
pub trait Device {
    /// Gives out a page. [`DeviceMemory::size`] of the answer is ignored.
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError>;

    /// Takes a page back: exactly what [`Device::allocate`] answered, with the size that was asked for.
    ///
    /// A device that refuses keeps the page; it is asked again at the next trim and when the allocator is destroyed.
    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError>;

    /// What a timeline has completed; `None` if that is not known. Asked before an allocator that holds slices which wait
    /// for it takes more memory.
    fn completed(&self, timeline: u32) -> Option<u64> {
        let _ = timeline;
        None
    }

    /// Tells of a request that cannot be served: whether it should be tried again, because something was freed, here or
    /// elsewhere on the device.
    ///
    /// Called up to 8 times for a request; half as often for each such call that is running already, so that one which
    /// allocates comes to an end.
    fn out_of_memory(&self, shortage: &Shortage) -> bool {
        let _ = shortage;
        false
    }

    /// Whether the device has [`Device::fill`].
    fn can_fill(&self) -> bool {
        false
    }

    /// Fills memory with zeros.
    ///
    /// `Ok(None)`: done, or ordered before everything that the program does with the memory from now on. `Ok(Some(point))`:
    /// under way until that point has been passed, for which the slice waits; not for [`FillReason::Zero`], where such
    /// an answer counts as a failure.
    ///
    /// If filling a new slice fails, the slice is freed again and the request refused. If overwriting a freed one fails,
    /// it stays pending, and is tried again with the next [`Allocator::collect`](crate::Allocator::collect),
    /// [`Allocator::trim`](crate::Allocator::trim) or free of many.
    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        let _ = request;
        Err(DeviceError::Failed(0))
    }

    /// How much of a heap is used, and how much may be; `None` if that is not known. Asked when memory is about to be taken.
    fn heap_budget(&self, heap: u32) -> Option<HeapBudget> {
        let _ = heap;
        None
    }

    /// Whether the device has [`Device::map`] and [`Device::unmap`].
    fn can_map(&self) -> bool {
        false
    }

    /// Makes a page visible to the CPU that is not: where it lies, never NULL. Asked once until it is unmapped again.
    fn map(&self, memory: &DeviceMemory) -> Result<*mut u8, DeviceError> {
        let _ = memory;
        Err(DeviceError::Failed(0))
    }

    /// Ends what [`Device::map`] began: `memory.mapped` is what that has answered.
    fn unmap(&self, memory: &DeviceMemory) {
        let _ = memory;
    }

    /// Whether the device has [`Device::flush`] and [`Device::invalidate`].
    fn can_flush(&self) -> bool {
        false
    }

    /// Makes what the CPU has written visible to the device.
    fn flush(&self, range: &CacheRange) -> Result<(), DeviceError> {
        let _ = range;
        Err(DeviceError::Failed(0))
    }

    /// Makes what the device has written visible to the CPU.
    fn invalidate(&self, range: &CacheRange) -> Result<(), DeviceError> {
        let _ = range;
        Err(DeviceError::Failed(0))
    }

    /// Whether [`Device::event`] is to be called at all.
    fn hears_events(&self) -> bool {
        false
    }

    /// Is told what has happened; for logs and traces.
    fn event(&self, event: &Event) {
        let _ = event;
    }
}

impl<D: Device + ?Sized> Device for &D {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        (**self).allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        (**self).deallocate(memory)
    }

    fn completed(&self, timeline: u32) -> Option<u64> {
        (**self).completed(timeline)
    }

    fn out_of_memory(&self, shortage: &Shortage) -> bool {
        (**self).out_of_memory(shortage)
    }

    fn can_fill(&self) -> bool {
        (**self).can_fill()
    }

    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        (**self).fill(request)
    }

    fn heap_budget(&self, heap: u32) -> Option<HeapBudget> {
        (**self).heap_budget(heap)
    }

    fn can_map(&self) -> bool {
        (**self).can_map()
    }

    fn map(&self, memory: &DeviceMemory) -> Result<*mut u8, DeviceError> {
        (**self).map(memory)
    }

    fn unmap(&self, memory: &DeviceMemory) {
        (**self).unmap(memory);
    }

    fn can_flush(&self) -> bool {
        (**self).can_flush()
    }

    fn flush(&self, range: &CacheRange) -> Result<(), DeviceError> {
        (**self).flush(range)
    }

    fn invalidate(&self, range: &CacheRange) -> Result<(), DeviceError> {
        (**self).invalidate(range)
    }

    fn hears_events(&self) -> bool {
        (**self).hears_events()
    }

    fn event(&self, event: &Event) {
        (**self).event(event);
    }
}
