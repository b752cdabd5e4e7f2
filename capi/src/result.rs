//! Result codes and the details of a failure.

use crate::abi::{self, Refusal, Struct};
use core::ffi::{c_char, c_void};
use core::ptr;
use slicepool_core::{BatchError, DeviceFault, Error};
#[cfg(feature = "buffers")]
use slicepool_core::{BufferConfigError, BufferPoolError};

/// What a function came to: SLICEPOOL_OK, or one of the negative codes below. Codes are never reused.
pub type slicepool_result = i32;

/// Success.
pub const SLICEPOOL_OK: i32 = 0;
/// An argument is NULL or outside its bounds; nothing has changed.
pub const SLICEPOOL_ERROR_INVALID_ARGUMENT: i32 = -1;
/// The handle's slice has been freed, or its buffer released.
pub const SLICEPOOL_ERROR_STALE_HANDLE: i32 = -2;
/// The handle was never given out by this allocator, space or buffer pool.
pub const SLICEPOOL_ERROR_FOREIGN_HANDLE: i32 = -3;
/// More than the pools take; `limit` is the most they take below that.
pub const SLICEPOOL_ERROR_TOO_LARGE: i32 = -4;
/// The pool is at its cap, or the space is full. Freeing may help; and if slicepool_failure.in_flight is not 0, so may
/// trying again: pages are just being taken from the device or given back.
pub const SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED: i32 = -5;
/// A page would take the allocator, or those that share its budget, or a heap, above the bytes they may hold.
pub const SLICEPOOL_ERROR_BUDGET_EXCEEDED: i32 = -6;
/// As many pages are held as the allocator, or those that share its budget, may hold.
pub const SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED: i32 = -7;
/// The device has no memory left. Also what a device callback answers to say so.
pub const SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY: i32 = -8;
/// The device failed, or broke a rule of its callbacks. Also what a device callback answers to say so.
pub const SLICEPOOL_ERROR_DEVICE_FAILED: i32 = -9;
/// The host has no memory left for bookkeeping.
pub const SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY: i32 = -10;
/// Slices are live or wait for the device, buffers are out, there are caches, or a callback is running: the object
/// cannot go away now.
pub const SLICEPOOL_ERROR_BUSY: i32 = -11;
/// The device lacks the callback that is needed, or the library does not do what was asked.
pub const SLICEPOOL_ERROR_NOT_SUPPORTED: i32 = -12;
/// A struct uses fields that this version of the library does not know.
pub const SLICEPOOL_ERROR_VERSION_MISMATCH: i32 = -13;
/// The device has no memory for a page of a dry run: the plan is larger than the device.
pub const SLICEPOOL_ERROR_MAPPING_FAILED: i32 = -14;
/// The pools hold slices, so others cannot take their place.
pub const SLICEPOOL_ERROR_POOLS_IN_USE: i32 = -15;
/// All slots of a pool are taken: there are 13.6 million for its slices and the holes between them, and 16.7 million
/// for the buffers of a class.
pub const SLICEPOOL_ERROR_TOO_MANY_SLICES: i32 = -16;
/// All buffers of the class are out or in caches, or just being taken from the device. Releasing one helps. If
/// slicepool_failure.in_flight is not 0, so may trying again; and if `pending` is not 0, trying again after the caches'
/// owners have used them: each has been told to give back what it holds of the class.
pub const SLICEPOOL_ERROR_EXHAUSTED: i32 = -17;
/// The request is larger than the buffers of the largest class.
pub const SLICEPOOL_ERROR_OVERSIZED: i32 = -18;
/// The buffer pool is closed: it hands out nothing any more.
pub const SLICEPOOL_ERROR_CLOSED: i32 = -19;
/// A slice cannot grow where it lies: what follows it is in use.
pub const SLICEPOOL_ERROR_NO_ROOM: i32 = -20;
/// Something was written behind the end of a slice, to its margin: see slicepool_allocator_config.debug_margin.
pub const SLICEPOOL_ERROR_MARGIN_DAMAGED: i32 = -21;

/// In `slicepool_failure.device_fault`: the device is not to blame.
pub const SLICEPOOL_DEVICE_FAULT_NONE: u32 = 0;
/// The device reported a failure.
pub const SLICEPOOL_DEVICE_FAULT_REPORTED: u32 = 1;
/// A callback answered a result that does not exist; `device_code` has it.
pub const SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT: u32 = 2;
/// `allocate` answered SLICEPOOL_OK without filling in a handle.
pub const SLICEPOOL_DEVICE_FAULT_NOT_FILLED: u32 = 3;
/// The page's address, or where it has none its mapping, is not aligned as asked; the page was given back.
pub const SLICEPOOL_DEVICE_FAULT_MISALIGNED: u32 = 4;
/// The device gave out memory that is live already; it was not given back.
pub const SLICEPOOL_DEVICE_FAULT_DUPLICATE: u32 = 5;
/// The device refused to take memory back.
pub const SLICEPOOL_DEVICE_FAULT_REFUSED: u32 = 6;
/// The page, or where the CPU sees it, would end above the last address there is; the page was given back.
pub const SLICEPOOL_DEVICE_FAULT_OUT_OF_RANGE: u32 = 7;

/// Details of a failure. Written only when a call fails that was given one; fields that say nothing about the
/// failure at hand are 0. One whose `result` was 0 before, and still is, was not written to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_failure {
    /// sizeof(slicepool_failure), set by the caller.
    pub struct_size: u32,
    /// The result of the call.
    pub result: i32,
    /// Bytes asked for: by the request, or from the device for its page, or from the host. Bytes of the buffers of the
    /// class at hand, for SLICEPOOL_ERROR_EXHAUSTED and for a buffer pool's config.
    pub size: u64,
    /// The most that could have been asked for: the cap of the pool, the limit of a request, the room of a slice; or
    /// held: the bytes or pages of a budget, the buffers of a class. For a buffer pool's config the bound that was
    /// passed.
    pub limit: u64,
    /// Requested bytes of live slices; bytes that are held, for SLICEPOOL_ERROR_BUDGET_EXCEEDED.
    pub in_use: u64,
    /// Bytes of slices that were freed but wait for the device; for SLICEPOOL_ERROR_BUSY their number. For
    /// SLICEPOOL_ERROR_EXHAUSTED the number of buffers that were in caches at that moment.
    pub pending: u64,
    /// A free range of at least this many bytes exists; slicepool_largest_free() is exact.
    pub largest_free: u64,
    /// The value that was refused, for SLICEPOOL_ERROR_INVALID_ARGUMENT; the position of the heap, for
    /// SLICEPOOL_ERROR_BUDGET_EXCEEDED with the field "heap"; where the damage begins, from the start of the page,
    /// for SLICEPOOL_ERROR_MARGIN_DAMAGED; with the field "prefill", bytes of the buffers that could not be created.
    pub value: u64,
    /// Handle of the page, for SLICEPOOL_ERROR_MARGIN_DAMAGED.
    pub memory: u64,
    /// Live slices, or buffers that are out, for SLICEPOOL_ERROR_BUSY.
    pub live: u64,
    /// Pages being taken from the device or given back, or callbacks running, at that moment; for SLICEPOOL_ERROR_BUSY
    /// of a buffer pool its caches count too.
    pub in_flight: u32,
    /// Position of the element that was refused, in calls with many.
    pub index: u32,
    /// The device's own code, if it gave one, as `allocate` does; for a result that does not exist, or a page that the
    /// device refused to take back, what its callback answered.
    pub device_code: i32,
    /// A SLICEPOOL_DEVICE_FAULT_ code.
    pub device_fault: u32,
    /// Why each memory type that was tried did not serve the request, by its position: results, 0 for types that were
    /// not tried. Of allocators with several memory types.
    pub type_results: [i32; 32],
    /// Name of the argument or field that was refused, or of what is not supported, or "heap", or "prefill" where a
    /// buffer pool could not create its buffers beforehand: a static string, or NULL.
    pub field: *const c_char,
    /// NULL.
    pub reserved: *mut c_void,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_failure {
    const NAME: &'static core::ffi::CStr = c"failure";
}

impl slicepool_failure {
    const NONE: Self = Self {
        struct_size: size_of::<Self>() as u32,
        result: SLICEPOOL_OK,
        size: 0,
        limit: 0,
        in_use: 0,
        pending: 0,
        largest_free: 0,
        value: 0,
        memory: 0,
        live: 0,
        in_flight: 0,
        index: 0,
        device_code: 0,
        device_fault: SLICEPOOL_DEVICE_FAULT_NONE,
        type_results: [0; 32],
        field: ptr::null(),
        reserved: ptr::null_mut(),
    };
}

/// Why each memory type that was tried did not serve a request.
#[derive(Clone, Copy, Default)]
pub(crate) struct TypeReasons([i32; 32]);

impl TypeReasons {
    #[cold]
    pub(crate) fn note(&mut self, memory_type: u32, error: Error) {
        if let Some(result) = self.0.get_mut(memory_type as usize) {
            *result = code_of(error);
        }
    }
}

/// The result code of an error.
pub(crate) fn code_of(error: Error) -> slicepool_result {
    describe(&Refusal::Error(error)).result
}

/// The result code of a refusal, and its details.
fn describe(refusal: &Refusal) -> slicepool_failure {
    let mut failure = slicepool_failure::NONE;
    let error = match *refusal {
        Refusal::Newer => {
            failure.result = SLICEPOOL_ERROR_VERSION_MISMATCH;
            return failure;
        }
        #[cfg(feature = "buffers")]
        Refusal::Pool(BufferPoolError::Config(error)) => {
            (failure.size, failure.limit) = bounds_of(error);
            error.into()
        }
        #[cfg(feature = "buffers")]
        Refusal::Pool(BufferPoolError::Prefill { size, error }) => {
            failure.field = c"prefill".as_ptr();
            failure.value = size;
            error
        }
        #[cfg(feature = "buffers")]
        Refusal::Pool(error) => error.into(),
        Refusal::Error(error) => error,
    };
    failure.result = match error {
        Error::InvalidArgument { field, value } => {
            failure.field = field.as_ptr();
            failure.value = value;
            SLICEPOOL_ERROR_INVALID_ARGUMENT
        }
        Error::StaleHandle => SLICEPOOL_ERROR_STALE_HANDLE,
        Error::ForeignHandle => SLICEPOOL_ERROR_FOREIGN_HANDLE,
        Error::TooLarge { size, limit } => {
            failure.size = size;
            failure.limit = limit;
            SLICEPOOL_ERROR_TOO_LARGE
        }
        Error::PoolCapacityExceeded { size, capacity, in_use, pending, largest_free, growths_in_flight } => {
            failure.size = size;
            failure.limit = capacity;
            failure.in_use = in_use;
            failure.pending = pending;
            failure.largest_free = largest_free;
            failure.in_flight = growths_in_flight;
            SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED
        }
        Error::BudgetExceeded { size, limit, reserved } => {
            failure.size = size;
            failure.limit = limit;
            failure.in_use = reserved;
            SLICEPOOL_ERROR_BUDGET_EXCEEDED
        }
        Error::HeapBudgetExceeded { heap, size, limit, reserved } => {
            failure.size = size;
            failure.limit = limit;
            failure.in_use = reserved;
            failure.field = c"heap".as_ptr();
            failure.value = u64::from(heap);
            SLICEPOOL_ERROR_BUDGET_EXCEEDED
        }
        Error::PageCountExceeded { size, limit } => {
            failure.size = size;
            failure.limit = u64::from(limit);
            SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED
        }
        Error::MappingFailed { size, code } => {
            failure.size = size;
            failure.device_code = code;
            SLICEPOOL_ERROR_MAPPING_FAILED
        }
        Error::PoolsInUse { bytes } => {
            failure.in_use = bytes;
            SLICEPOOL_ERROR_POOLS_IN_USE
        }
        Error::NotSupported { what } => {
            failure.field = what.as_ptr();
            SLICEPOOL_ERROR_NOT_SUPPORTED
        }
        Error::MarginDamaged { memory, offset } => {
            failure.memory = memory;
            failure.value = offset;
            SLICEPOOL_ERROR_MARGIN_DAMAGED
        }
        Error::OutOfDeviceMemory { size, code } => {
            failure.size = size;
            failure.device_code = code;
            SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY
        }
        Error::DeviceFailed { fault, code } => {
            failure.device_code = code;
            failure.device_fault = match fault {
                DeviceFault::UnknownResult => SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT,
                DeviceFault::NotFilled => SLICEPOOL_DEVICE_FAULT_NOT_FILLED,
                DeviceFault::Misaligned => SLICEPOOL_DEVICE_FAULT_MISALIGNED,
                DeviceFault::Duplicate => SLICEPOOL_DEVICE_FAULT_DUPLICATE,
                DeviceFault::Refused => SLICEPOOL_DEVICE_FAULT_REFUSED,
                DeviceFault::OutOfRange => SLICEPOOL_DEVICE_FAULT_OUT_OF_RANGE,
                _ => SLICEPOOL_DEVICE_FAULT_REPORTED,
            };
            SLICEPOOL_ERROR_DEVICE_FAILED
        }
        Error::OutOfHostMemory { bytes } => {
            failure.size = bytes;
            SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY
        }
        Error::Busy { live, pending, in_use, in_flight } => {
            failure.live = live;
            failure.pending = pending;
            failure.in_use = in_use;
            failure.in_flight = in_flight;
            SLICEPOOL_ERROR_BUSY
        }
        Error::NoRoom { size, available } => {
            failure.size = size;
            failure.limit = available;
            SLICEPOOL_ERROR_NO_ROOM
        }
        Error::TooManySlices { limit } => {
            failure.limit = u64::from(limit);
            SLICEPOOL_ERROR_TOO_MANY_SLICES
        }
        Error::Exhausted { size, limit, cached, growths_in_flight } => {
            failure.size = size;
            failure.limit = u64::from(limit);
            failure.pending = u64::from(cached);
            failure.in_flight = growths_in_flight;
            SLICEPOOL_ERROR_EXHAUSTED
        }
        Error::Oversized { size, limit } => {
            failure.size = size;
            failure.limit = limit;
            SLICEPOOL_ERROR_OVERSIZED
        }
        Error::Closed => SLICEPOOL_ERROR_CLOSED,
        _ => SLICEPOOL_ERROR_NOT_SUPPORTED,
    };
    failure
}

/// Bytes of the class that a config's error is about, and the bound that was passed.
#[cfg(feature = "buffers")]
fn bounds_of(error: BufferConfigError) -> (u64, u64) {
    use BufferConfigError as E;
    match error {
        E::SizeTooLarge { .. } => (0, isize::MAX as u64),
        E::RangeReversed { min, .. } => (0, min),
        E::PageSize { .. } => (0, 8 << 20),
        E::BytesTooLarge { size, .. } | E::BudgetTooLarge { size, .. } => (size, u64::from(u32::MAX)),
        E::BudgetTooSmall { least, .. } => (0, least),
        E::AlignmentTooLarge { min_size, .. } | E::PoolMinSizeTooLarge { min_size, .. } => (0, min_size),
        _ => (0, 0),
    }
}

/// The code of a refusal.
#[cold]
pub(crate) fn code(refusal: &Refusal) -> slicepool_result {
    describe(refusal).result
}

/// Turns what a function did into its result.
pub(crate) fn finish(outcome: Result<(), Refusal>) -> slicepool_result {
    match outcome {
        Ok(()) => SLICEPOOL_OK,
        Err(refusal) => code(&refusal),
    }
}

/// The same, with the details written where the caller wants them. A `failure` that is NULL or malformed gets none.
///
/// # Safety
/// `failure` is NULL or points to a writable `slicepool_failure`.
pub(crate) unsafe fn finish_with(
    outcome: Result<(), Refusal>,
    index: u32,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    let Err(refusal) = outcome else { return SLICEPOOL_OK };
    // SAFETY: passed on from the caller.
    unsafe { write_failure(&refusal, index, &TypeReasons::default(), failure) }
}

/// Writes the details of a refusal, and why each memory type did not serve the request.
///
/// # Safety
/// As [`finish_with`].
#[cold]
pub(crate) unsafe fn write_failure(
    refusal: &Refusal,
    index: u32,
    reasons: &TypeReasons,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    let details = slicepool_failure { index, type_results: reasons.0, ..describe(refusal) };
    // SAFETY: passed on from the caller; the size was checked.
    unsafe {
        if let Ok(size) = abi::struct_size(failure) {
            abi::write(failure, size, &details);
        }
    }
    details.result
}

/// Splits the error of a call with many elements.
pub(crate) fn split(outcome: Result<(), BatchError>) -> (Result<(), Refusal>, u32) {
    match outcome {
        Ok(()) => (Ok(()), 0),
        Err(BatchError { index, error }) => (Err(error.into()), index),
    }
}

/// A short English text for any result, also for numbers that are none.
///
/// @return a static string, never NULL
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_result_string(result: slicepool_result) -> *const c_char {
    let text = match result {
        SLICEPOOL_OK => c"success",
        SLICEPOOL_ERROR_INVALID_ARGUMENT => c"invalid argument",
        SLICEPOOL_ERROR_STALE_HANDLE => c"stale handle: what it named has been freed",
        SLICEPOOL_ERROR_FOREIGN_HANDLE => c"foreign handle: never given out by this object",
        SLICEPOOL_ERROR_TOO_LARGE => c"too large to be served ever",
        SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED => c"pool capacity exceeded",
        SLICEPOOL_ERROR_BUDGET_EXCEEDED => c"budget exceeded",
        SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED => c"page count exceeded",
        SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY => c"out of device memory",
        SLICEPOOL_ERROR_DEVICE_FAILED => c"device failed",
        SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY => c"out of host memory",
        SLICEPOOL_ERROR_BUSY => c"busy: something of it is in use or pending, or a callback is running",
        SLICEPOOL_ERROR_NOT_SUPPORTED => c"not supported",
        SLICEPOOL_ERROR_VERSION_MISMATCH => c"version mismatch: a struct is newer than the library",
        SLICEPOOL_ERROR_MAPPING_FAILED => c"mapping failed: the plan is larger than the device",
        SLICEPOOL_ERROR_POOLS_IN_USE => c"pools in use: they hold slices",
        SLICEPOOL_ERROR_TOO_MANY_SLICES => c"too many slices",
        SLICEPOOL_ERROR_EXHAUSTED => c"exhausted: all buffers of the class are out or in caches",
        SLICEPOOL_ERROR_OVERSIZED => c"oversized: larger than the largest buffers",
        SLICEPOOL_ERROR_CLOSED => c"closed: the buffer pool hands out nothing any more",
        SLICEPOOL_ERROR_NO_ROOM => c"no room: what follows the slice is in use",
        SLICEPOOL_ERROR_MARGIN_DAMAGED => c"margin damaged: something was written behind the end of a slice",
        _ => c"unknown result",
    };
    text.as_ptr()
}

/// sizeof(slicepool_failure) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_failure() -> u32 {
    size_of::<slicepool_failure>() as u32
}
