//! Structs across the border: checked, copied in and copied out by the size their owner knows.

use crate::result::{SLICEPOOL_OK, code, slicepool_result};
use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use slicepool_core::Error;
#[cfg(feature = "buffers")]
use slicepool_core::{BufferConfigError, BufferPoolError};

/// The largest `struct_size` that is believed: several times the largest struct, so that garbage is told from a newer
/// version before its tail is read.
const MAX_STRUCT_SIZE: u32 = 4096;

/// What the first version of every struct begins with: its size and another word.
const MIN_STRUCT_SIZE: u32 = 8;

/// A struct of the interface that may grow: `uint32_t struct_size` comes first.
///
/// # Safety
/// `repr(C)`, without padding, first field `u32`, and every bit pattern of the others valid, zero included.
pub(crate) unsafe trait Struct: Copy {
    /// The name under which a NULL pointer to it is reported.
    const NAME: &'static CStr;
    /// The least `struct_size` that makes sense: what the library fills in must reach its handle.
    const MIN_SIZE: u32 = MIN_STRUCT_SIZE;
}

/// Why a struct was refused.
pub(crate) enum Refusal {
    /// Its caller was compiled for a newer version and uses what this one does not know.
    Newer,
    Error(Error),
    /// What a buffer pool's config or its prefill came to.
    #[cfg(feature = "buffers")]
    Pool(BufferPoolError),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

#[cfg(feature = "buffers")]
impl From<BufferPoolError> for Refusal {
    fn from(error: BufferPoolError) -> Self {
        Self::Pool(error)
    }
}

#[cfg(feature = "buffers")]
impl From<BufferConfigError> for Refusal {
    fn from(error: BufferConfigError) -> Self {
        Self::Pool(BufferPoolError::Config(error))
    }
}

pub(crate) fn invalid(field: &'static CStr, value: u64) -> Refusal {
    Refusal::Error(Error::InvalidArgument { field, value })
}

/// Reads a struct of the caller's: what it is too short for is zero; what it is too long for must be zero.
///
/// # Safety
/// `from` is NULL or points to `struct_size` readable bytes.
#[inline]
pub(crate) unsafe fn read<T: Struct>(from: *const T) -> Result<T, Refusal> {
    // SAFETY: passed on from the caller.
    unsafe {
        let size = struct_size(from)?;
        if size as usize == size_of::<T>() { Ok(from.read_unaligned()) } else { read_other_version(from, size) }
    }
}

/// Reads a struct of the caller's that need not be there: without it, its defaults.
///
/// # Safety
/// As [`read`].
pub(crate) unsafe fn read_or_default<T: Struct>(from: *const T) -> Result<T, Refusal> {
    // SAFETY: passed on from the caller.
    if from.is_null() { Ok(zeroed()) } else { unsafe { read(from) } }
}

/// The `index`-th struct of the caller's array, whose elements are `stride` bytes apart and must all say so.
///
/// # Safety
/// `first` points to more than `index` such elements.
pub(crate) unsafe fn element<T: Struct>(first: *const T, stride: u32, index: u32) -> Result<T, Refusal> {
    // SAFETY: passed on from the caller.
    unsafe { read(check_element(first, stride, index)?) }
}

/// Where the `index`-th struct of the caller's array lies, if it has the size of the first.
///
/// # Safety
/// As [`element`].
pub(crate) unsafe fn check_element<T: Struct>(first: *const T, stride: u32, index: u32) -> Result<*const T, Refusal> {
    // SAFETY: passed on from the caller.
    unsafe {
        let at = first.byte_add(stride as usize * index as usize);
        let size = struct_size(at)?;
        if size == stride { Ok(at) } else { Err(invalid(c"struct_size", u64::from(size))) }
    }
}

/// A struct with its defaults.
pub(crate) fn zeroed<T: Struct>() -> T {
    // SAFETY: `Struct` promises that zero is valid.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Clears an element that the library fills in whole, and says how large it is.
///
/// # Safety
/// `at` points to `size` writable bytes, and `size` is what [`struct_size`] said.
pub(crate) unsafe fn zero<T: Struct>(at: *mut T, size: u32) {
    // SAFETY: passed on from the caller; `size` is at least that of the number.
    unsafe {
        ptr::write_bytes(at.cast::<u8>(), 0, size as usize);
        at.cast::<u32>().write_unaligned(size);
    }
}

#[cold]
unsafe fn read_other_version<T: Struct>(from: *const T, size: u32) -> Result<T, Refusal> {
    let known = (size as usize).min(size_of::<T>());
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: `size` bytes are readable, `known` of them fit into the copy; every bit pattern is a valid `T`.
    unsafe {
        let bytes = from.cast::<u8>();
        ptr::copy_nonoverlapping(bytes, copy.as_mut_ptr().cast(), known);
        for i in known..size as usize {
            if bytes.add(i).read() != 0 {
                return Err(Refusal::Newer);
            }
        }
        Ok(copy.assume_init())
    }
}

/// The believable `struct_size` of a struct of the caller's.
///
/// # Safety
/// `at` is NULL or points to a readable `uint32_t`.
#[inline]
pub(crate) unsafe fn struct_size<T: Struct>(at: *const T) -> Result<u32, Refusal> {
    if at.is_null() {
        return Err(invalid(T::NAME, 0));
    }
    // SAFETY: not NULL.
    let size = unsafe { at.cast::<u32>().read_unaligned() };
    // All structs are multiples of eight bytes, on every target; other sizes could cut a field in two.
    if !(T::MIN_SIZE..=MAX_STRUCT_SIZE).contains(&size) || size % 8 != 0 {
        return Err(invalid(c"struct_size", u64::from(size)));
    }
    Ok(size)
}

/// Writes a struct for the caller, as much of it as the caller knows. Its `struct_size` stays.
///
/// # Safety
/// `to` points to `size` writable bytes, and `size` is what [`struct_size`] said.
#[inline]
pub(crate) unsafe fn write<T: Struct>(to: *mut T, size: u32, value: &T) {
    let header = size_of::<u32>();
    let known = (size as usize).min(size_of::<T>());
    // SAFETY: passed on from the caller; a `T` has no padding.
    unsafe {
        let (from, to) = (ptr::from_ref(value).cast::<u8>(), to.cast::<u8>());
        if known == size_of::<T>() {
            // A constant length, which compiles to a few moves.
            ptr::copy_nonoverlapping(from.add(header), to.add(header), size_of::<T>() - header);
        } else {
            ptr::copy_nonoverlapping(from.add(header), to.add(header), known - header);
        }
    }
}

/// Fills any struct of this header with its defaults: every field zero, and `struct_size` as given. The same as the
/// SLICEPOOL_..._INIT macros, for languages without them.
///
/// @param object       the struct
/// @param struct_size  its size as the program was compiled: sizeof, or slicepool_sizeof_...()
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT if object is NULL or struct_size is no multiple of 8 or 0
///
/// Threads: one at a time per struct. Cost: in proportion to its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_struct_default(object: *mut c_void, struct_size: u32) -> slicepool_result {
    if object.is_null() {
        return code(&invalid(c"object", 0));
    }
    if struct_size < MIN_STRUCT_SIZE || struct_size % 8 != 0 {
        return code(&invalid(c"struct_size", u64::from(struct_size)));
    }
    // SAFETY: the caller provides that many bytes.
    unsafe {
        ptr::write_bytes(object.cast::<u8>(), 0, struct_size as usize);
        object.cast::<u32>().write_unaligned(struct_size);
    }
    SLICEPOOL_OK
}

/// An out-parameter that is not a struct: an error if NULL.
pub(crate) fn out<T>(to: *mut T, name: &'static CStr) -> Result<*mut T, Refusal> {
    if to.is_null() { Err(invalid(name, 0)) } else { Ok(to) }
}

/// The object behind an opaque pointer: an error if NULL.
///
/// # Safety
/// `from` is NULL or points to a live object of the library.
pub(crate) unsafe fn object<'a, T>(from: *const T, name: &'static CStr) -> Result<&'a T, Refusal> {
    // SAFETY: passed on from the caller.
    unsafe { from.as_ref() }.ok_or_else(|| invalid(name, 0))
}
