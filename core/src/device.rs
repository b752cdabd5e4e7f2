//! What gives out memory: the [`Device`] trait and the numbers that go with it.

pub mod host;

pub use host::HostDevice;

use crate::error::Error;
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
}

impl MemoryType {
    /// Alignment of pages where nothing else is said: what page-wise mappings and GPU drivers both give.
    pub const DEFAULT_ALIGNMENT: u64 = 4096;

    /// Pages of at most `max_page` bytes at multiples of `alignment`.
    pub const fn new(max_page: u64, alignment: u64) -> Self {
        Self { max_page, alignment }
    }
}

impl Default for MemoryType {
    /// Pages of any size, at multiples of 4,096 bytes.
    fn default() -> Self {
        Self::new(u64::MAX, Self::DEFAULT_ALIGNMENT)
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
    /// Index of the pool that grows.
    pub pool: u32,
}

impl PageRequest {
    /// A page of `size` bytes at a multiple of `alignment`.
    pub const fn new(size: u64, alignment: u64) -> Self {
        Self { size, alignment, pool: 0 }
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

    /// Whether address, or else mapping, is a multiple of `alignment`. A bare handle is trusted.
    pub(crate) fn is_aligned(&self, alignment: u64) -> bool {
        let at = if self.address != 0 { self.address } else { self.mapped.addr() as u64 };
        at & (alignment - 1) == 0
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
}
