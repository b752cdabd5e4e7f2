//! What gives out memory: the [`Device`] trait and the numbers that go with it.

pub mod host;

pub use host::HostDevice;

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
    /// Where the CPU sees the memory, NULL if it does not. The library never reads or writes there.
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

    /// Address of a place in the memory, 0 if the device gives none.
    #[inline(always)]
    pub(crate) fn address_at(&self, offset: u64) -> u64 {
        if self.address == 0 { 0 } else { self.address.wrapping_add(offset) }
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

/// Gives out pages and takes them back.
///
/// Both functions are called by the thread whose request needs them, with no lock held: they may be slow, and they
/// may call back into the allocator they serve. They must not unwind.
pub trait Device {
    /// Gives out a page. [`DeviceMemory::size`] of the answer is ignored.
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError>;

    /// Takes a page back: exactly what [`Device::allocate`] answered, with the size that was asked for.
    ///
    /// A device that refuses keeps the page; it is asked again at the next trim and when the allocator is destroyed.
    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError>;
}

impl<D: Device + ?Sized> Device for &D {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        (**self).allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        (**self).deallocate(memory)
    }
}
