//! Memory that the CPU sees for a time, and caches between the CPU and the device.

use crate::abi::{self, Struct};
use crate::allocator::slicepool_allocator;
use crate::device::slicepool_device_memory;
use crate::result::{finish_with, slicepool_failure, slicepool_result};
use crate::slice::handle;
use core::ffi::c_void;
use slicepool_core::CacheRange;

/// Makes a page visible to the CPU that is not: sets `mapped` to where it lies. Asked once until the page is unmapped again.
pub type slicepool_device_map_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        memory: *const slicepool_device_memory,
        mapped: *mut *mut c_void,
    ) -> slicepool_result,
>;

/// Ends what `map` began.
pub type slicepool_device_unmap_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, memory: *const slicepool_device_memory)>;

/// Bytes of a page that the CPU has written or is about to read: multiples of the memory type's non_coherent_atom, as far as
/// the page's end allows.
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

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
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

/// Makes a slice visible to the CPU. Pages are mapped as a whole, counted, and mapped only once: each slicepool_map() needs a
/// slicepool_unmap(), and the last one unmaps the page. Where the device maps its pages for good, this only counts. A
/// page that goes back is unmapped, whatever its count.
///
/// @param mapped   set to where the slice lies
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT,
///         SLICEPOOL_ERROR_NOT_SUPPORTED if the device cannot map, SLICEPOOL_ERROR_DEVICE_FAILED,
///         SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_MAPPING_FAILED for a slice of a dry run that has not been
///         resolved, SLICEPOOL_ERROR_BUSY from within the mapping of the same page. The count is as before then
///
/// Threads: any; one that maps or unmaps the same page is waited for. Cost: constant, or one device call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_map(
    allocator: *mut slicepool_allocator,
    id: u64,
    mapped: *mut *mut c_void,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let mapped = abi::out(mapped, c"mapped")?;
            mapped.write(inner.map(handle(id)?)?.cast());
            Ok(())
        })();
        finish_with(outcome, 0, failure)
    }
}

/// Ends what one slicepool_map() of a slice of the same page began.
///
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (also if the page
///         is not mapped), SLICEPOOL_ERROR_BUSY from within the mapping of the same page
///
/// Threads: as slicepool_map(). Cost: constant, or one device call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_unmap(allocator: *mut slicepool_allocator, id: u64) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    crate::result::finish(unsafe { (|| Ok(slicepool_allocator::get(allocator)?.unmap(handle(id)?)?))() })
}

/// Makes what the CPU has written to a slice visible to the device. Calls the device with that range, widened to multiples of
/// the memory type's non_coherent_atom as far as the page's end allows; not at all where the memory is coherent. The slice
/// must not be freed meanwhile.
///
/// @param offset   of the first byte, from the start of the slice
/// @param size     bytes; UINT64_MAX: all from there
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (not all of it in
///         the slice), SLICEPOOL_ERROR_NOT_SUPPORTED if the device cannot, SLICEPOOL_ERROR_DEVICE_FAILED,
///         SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY
///
/// Threads: any. Cost: one device call at most.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_flush(
    allocator: *mut slicepool_allocator,
    id: u64,
    offset: u64,
    size: u64,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| Ok(slicepool_allocator::get(allocator)?.flush(handle(id)?, offset, size)?))();
        finish_with(outcome, 0, failure)
    }
}

/// Makes what the device has written to a slice visible to the CPU. Otherwise as slicepool_flush().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_invalidate(
    allocator: *mut slicepool_allocator,
    id: u64,
    offset: u64,
    size: u64,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| Ok(slicepool_allocator::get(allocator)?.invalidate(handle(id)?, offset, size)?))();
        finish_with(outcome, 0, failure)
    }
}
