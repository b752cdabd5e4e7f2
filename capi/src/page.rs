//! Pages: what a device is asked for, what it gives out, and what is done with it.

use crate::abi::Struct;
use crate::result::slicepool_result;
use core::ffi::c_void;
use slicepool_core::{CacheRange, DeviceMemory};

/// What a device is asked for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_page_request {
    /// sizeof(slicepool_page_request) as the library knows it.
    pub struct_size: u32,
    /// Position of the pool that grows, or what slicepool_own_pool() says.
    pub pool: u32,
    /// Bytes, never 0.
    pub size: u64,
    /// The page's address, or where it has none what `allocate` puts into `mapped`, must be a multiple of this, a power
    /// of two; see SLICEPOOL_MEMORY_TYPE_MAPPED_ANYWHERE.
    pub alignment: u64,
    /// Position of the memory type.
    pub memory_type: u32,
    /// SLICEPOOL_PAGE_ flags.
    pub flags: u32,
    /// What slicepool_request.device_data was, otherwise NULL.
    pub device_data: *mut c_void,
    /// NULL.
    pub reserved: *mut c_void,
}

/// In `slicepool_page_request.flags`: the page will only ever hold one slice at a time.
pub const SLICEPOOL_PAGE_DEDICATED: u32 = 1;

/// A page: memory that a device has given out.
///
/// `handle` and `address` together must differ between pages that are live at the same time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_device_memory {
    /// sizeof(slicepool_device_memory) as the library knows it.
    pub struct_size: u32,
    /// On failure: the device's own code (a VkResult, a CUresult), which comes back in slicepool_failure.device_code.
    pub device_code: i32,
    /// The device's own name for the memory: a VkDeviceMemory, an address, a file offset. Any value but UINT64_MAX,
    /// which is what the library puts here before it calls.
    pub handle: u64,
    /// Address as the device sees it, 0 if it has none.
    pub address: u64,
    /// Bytes, filled in by the library: what was asked for.
    pub size: u64,
    /// Where the CPU sees the memory, NULL if it does not. The library never reads or writes there, unless the
    /// allocator is made with SLICEPOOL_ALLOCATOR_DEBUG_FILL or debug_margin, or a buffer is taken with zeros.
    pub mapped: *mut c_void,
    /// For the device's own use: comes back in `deallocate`.
    pub context: *mut c_void,
}

/// Takes a page from the device. Fills in `memory` and answers SLICEPOOL_OK, or answers
/// SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY or SLICEPOOL_ERROR_DEVICE_FAILED. Anything else counts as the latter.
///
/// One request may call it several times: after either refusal smaller pages and other memory types are tried.
pub type slicepool_device_allocate_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        request: *const slicepool_page_request,
        memory: *mut slicepool_device_memory,
    ) -> slicepool_result,
>;

/// Takes a page back: exactly what `allocate` filled in. Any answer but SLICEPOOL_OK means that the device keeps the
/// page as it is; it is asked again at the next trim and when the allocator is destroyed.
pub type slicepool_device_deallocate_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, memory: *const slicepool_device_memory) -> slicepool_result>;

/// Makes a page visible to the CPU that is not: sets `mapped` to where it lies. Asked once until the page is unmapped
/// again.
pub type slicepool_device_map_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        memory: *const slicepool_device_memory,
        mapped: *mut *mut c_void,
    ) -> slicepool_result,
>;

/// Ends what `map` began: memory->mapped is where that has put the page.
pub type slicepool_device_unmap_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, memory: *const slicepool_device_memory)>;

/// Bytes of a page that the CPU has written or is about to read: multiples of the memory type's non_coherent_atom, as
/// far as the page's end allows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_cache_range {
    /// sizeof(slicepool_cache_range) as the library knows it.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Handle of the page.
    pub memory: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Where the device has mapped the page for good, NULL if it has not.
    pub mapped: *mut c_void,
    /// The device's own field of the page.
    pub context: *mut c_void,
}

// SAFETY: as above.
unsafe impl Struct for slicepool_cache_range {
    const NAME: &'static core::ffi::CStr = c"range";
}

/// Makes what the CPU has written visible to the device (`flush`), or the other way round (`invalidate`).
pub type slicepool_device_cache_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, range: *const slicepool_cache_range) -> slicepool_result>;

impl From<&CacheRange> for slicepool_cache_range {
    fn from(range: &CacheRange) -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            reserved: 0,
            memory: range.memory.handle,
            offset: range.offset,
            size: range.size,
            mapped: range.memory.mapped.cast(),
            context: range.memory.context.cast(),
        }
    }
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_page_request {
    const NAME: &'static core::ffi::CStr = c"request";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_device_memory {
    const NAME: &'static core::ffi::CStr = c"memory";
}
impl slicepool_device_memory {
    /// The memory as core's, of so many bytes.
    pub(crate) fn to_core(self, size: u64) -> DeviceMemory {
        DeviceMemory {
            handle: self.handle,
            address: self.address,
            mapped: self.mapped.cast(),
            size,
            context: self.context.cast(),
        }
    }
}

impl From<&DeviceMemory> for slicepool_device_memory {
    fn from(memory: &DeviceMemory) -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            device_code: 0,
            handle: memory.handle,
            address: memory.address,
            size: memory.size,
            mapped: memory.mapped.cast(),
            context: memory.context.cast(),
        }
    }
}

/// sizeof(slicepool_device_memory) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_device_memory() -> u32 {
    size_of::<slicepool_device_memory>() as u32
}

/// sizeof(slicepool_page_request) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_page_request() -> u32 {
    size_of::<slicepool_page_request>() as u32
}

/// sizeof(slicepool_cache_range) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_cache_range() -> u32 {
    size_of::<slicepool_cache_range>() as u32
}
