//! Memory that the CPU sees for a time, and caches between the CPU and the device.

use crate::abi;
use crate::allocator::slicepool_allocator;
use crate::device::CallbackDevice;
use crate::result::{finish_with, slicepool_failure, slicepool_result};
use crate::slice::handle;
use core::ffi::c_void;
use core::ptr;
use slicepool_core::{Allocator, Error, SliceId};

/// Makes a slice visible to the CPU. Pages are mapped as a whole, counted, and mapped only once: each slicepool_map()
/// needs a slicepool_unmap(), and the last one unmaps the page. Where the device maps its pages for good, this only
/// counts. A slice that is freed without leaves its count to the page, which is unmapped when it goes back.
///
/// @param mapped   set to where the slice lies
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT,
///         SLICEPOOL_ERROR_NOT_SUPPORTED if the device cannot map, SLICEPOOL_ERROR_DEVICE_FAILED,
///         SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_MAPPING_FAILED for a slice of a dry run that has not
///         been resolved, SLICEPOOL_ERROR_BUSY if the mapping of the same page takes too long, as from within it. The
///         count is as before then
///
/// Threads: any; one that maps or unmaps the same page is waited for, some tenths of a second at most. Cost: constant,
/// or one device call.
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
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (also if the
///         page is not mapped), SLICEPOOL_ERROR_BUSY from within the mapping of the same page
///
/// Threads: as slicepool_map(). Cost: constant, or one device call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_unmap(allocator: *mut slicepool_allocator, id: u64) -> slicepool_result {
    // SAFETY: the caller passes what the header demands; there is no failure to write.
    unsafe { call_with_slice(allocator, id, ptr::null_mut(), &|inner, id| inner.unmap(id)) }
}

/// Makes what the CPU has written to a slice visible to the device. Calls the device with that range, widened to
/// multiples of the memory type's non_coherent_atom as far as the page's end allows; not at all where the memory is
/// coherent. The slice must not be freed meanwhile, and be mapped if the device wants that (Vulkan does).
///
/// @param offset   of the first byte, from the start of the slice
/// @param size     bytes; UINT64_MAX: all from there
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (not all of
///         it in the slice), SLICEPOOL_ERROR_NOT_SUPPORTED if the device cannot, SLICEPOOL_ERROR_DEVICE_FAILED,
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
    unsafe { call_with_slice(allocator, id, failure, &|inner, id| inner.flush(id, offset, size)) }
}

/// Makes what the device has written to a slice visible to the CPU. Otherwise as slicepool_flush().
///
/// @return as slicepool_flush()
///
/// Threads: any. Cost: one device call at most.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_invalidate(
    allocator: *mut slicepool_allocator,
    id: u64,
    offset: u64,
    size: u64,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { call_with_slice(allocator, id, failure, &|inner, id| inner.invalidate(id, offset, size)) }
}

/// What is to be done with an allocator and a slice of the caller's.
type SliceCall<'a> = dyn Fn(&Allocator<CallbackDevice>, SliceId) -> Result<(), Error> + 'a;

/// Makes that call.
///
/// # Safety
/// `allocator` and `failure` are what the header demands.
#[cold]
unsafe fn call_with_slice(
    allocator: *mut slicepool_allocator,
    id: u64,
    failure: *mut slicepool_failure,
    call: &SliceCall<'_>,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe {
        let outcome = (|| Ok(call(slicepool_allocator::get(allocator)?, handle(id)?)?))();
        finish_with(outcome, 0, failure)
    }
}
