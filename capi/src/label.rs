//! Names and user data.

use crate::abi::{self, Refusal, invalid};
use crate::allocator::slicepool_allocator;
use crate::result::{finish, slicepool_result};
use crate::slice::handle;
use core::ffi::{c_char, c_void};
use core::ptr;
use slicepool_core::Name;

/// The longest name of a slice or allocator, in bytes of UTF-8 without the NUL. What is longer is cut, between two
/// characters.
pub const SLICEPOOL_MAX_NAME: u32 = 55;

/// A pointer of the program's as core keeps it.
pub(crate) fn number(pointer: *mut c_void) -> u64 {
    pointer.expose_provenance() as u64
}

/// The reverse.
pub(crate) fn pointer(number: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(number as usize)
}

/// A name that the program gives; NULL: none.
///
/// # Safety
/// `name` is NULL or NUL-terminated.
pub(crate) unsafe fn read_name(name: *const c_char) -> Result<Name, Refusal> {
    if name.is_null() {
        return Ok(Name::NONE);
    }
    // What will not be kept is neither read nor need it be text.
    let mut bytes = [0; Name::MAX_LEN];
    let mut len = 0;
    while len < bytes.len() {
        // SAFETY: passed on from the caller; no byte before has ended the name.
        match unsafe { name.add(len).cast::<u8>().read() } {
            0 => break,
            byte => bytes[len] = byte,
        }
        len += 1;
    }
    let kept = bytes.get(..len).unwrap_or_default();
    match core::str::from_utf8(kept) {
        Ok(text) => Ok(Name::new(text)),
        // Cut in the middle of a character.
        Err(error) if error.error_len().is_none() && len == bytes.len() => {
            let valid = kept.get(..error.valid_up_to()).unwrap_or_default();
            Ok(Name::new(core::str::from_utf8(valid).unwrap_or_default()))
        }
        Err(error) => Err(invalid(c"name", error.valid_up_to() as u64)),
    }
}

/// Gives a slice a name, for reports and events. It is copied, and goes with the slice.
///
/// @param name  NUL-terminated UTF-8, of which at most SLICEPOOL_MAX_NAME bytes are kept; NULL or empty: none
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (id 0; no
///         UTF-8), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY; nothing has changed then
///
/// Threads: any. Cost: constant; the first name or user data of a pool gets host memory in proportion to its slots.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_name_set(
    allocator: *mut slicepool_allocator,
    id: u64,
    name: *const c_char,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let name = read_name(name)?;
            Ok(inner.set_name(handle(id)?, name.as_str())?)
        })()
    })
}

/// The name of a slice.
///
/// @param name      gets the name, NUL-terminated, empty if there is none; SLICEPOOL_MAX_NAME + 1 bytes are always
///                  enough
/// @param capacity  bytes of `name`
/// @return as slicepool_slice_get(); SLICEPOOL_ERROR_INVALID_ARGUMENT if capacity is too small
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_name_get(
    allocator: *mut slicepool_allocator,
    id: u64,
    name: *mut c_char,
    capacity: u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let to = abi::out(name, c"name")?;
            let name = inner.label(handle(id)?)?.name;
            let text = name.as_str();
            if text.len() >= capacity as usize {
                return Err(invalid(c"capacity", u64::from(capacity)));
            }
            to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
            to.add(text.len()).write(0);
            Ok(())
        })()
    })
}

/// Attaches a pointer to a slice, which slicepool_slice_get() and events tell from then on. The library never looks at
/// what it points to.
///
/// @return as slicepool_name_set()
///
/// Threads: any. Cost: as slicepool_name_set().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_user_data_set(
    allocator: *mut slicepool_allocator,
    id: u64,
    user_data: *mut c_void,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            Ok(inner.set_user_data(handle(id)?, number(user_data))?)
        })()
    })
}

/// The pointer that slicepool_allocator_config.user_data has attached to an allocator.
///
/// @param user_data  set on success
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_allocator_user_data_get(
    allocator: *mut slicepool_allocator,
    user_data: *mut *mut c_void,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            abi::out(user_data, c"user_data")?.write(pointer(inner.options().user_data));
            Ok(())
        })()
    })
}
