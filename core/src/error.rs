//! One variant per cause that a caller can act on, each with its numbers.
#![forbid(unsafe_code)]

use core::ffi::CStr;
use core::fmt;

/// Why a call was refused. A refused call has changed nothing unless its documentation says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An argument or a configuration field is outside its bounds.
    InvalidArgument {
        /// The argument's or field's name.
        field: &'static CStr,
        /// The value that was refused.
        value: u64,
    },
    /// The handle was given out by this pool and has been freed since.
    StaleHandle,
    /// The handle was never given out by this allocator or space.
    ForeignHandle,
    /// The request is larger than anything this allocator could ever serve.
    TooLarge {
        /// Bytes asked for.
        size: u64,
        /// The most bytes a request may have.
        limit: u64,
    },
    /// The pool holds as many pages as its cap allows and none has room. Freeing may help.
    PoolCapacityExceeded {
        /// Bytes asked for.
        size: u64,
        /// The cap in bytes: whole pages.
        capacity: u64,
        /// Requested bytes of all live slices of the pool.
        in_use: u64,
        /// Bytes of slices that were freed but wait for the device.
        pending: u64,
        /// A free slice of at least this many bytes exists; the exact largest is a query of its own.
        largest_free: u64,
        /// Pages being taken from the device, or given back, by other calls at that moment: if any, trying again may help.
        growths_in_flight: u32,
    },
    /// A page would take the allocator, or those that share its budget, above the bytes they may hold.
    BudgetExceeded {
        /// Bytes of the page.
        size: u64,
        /// Bytes that may be held.
        limit: u64,
        /// Bytes that are held, or just being taken.
        reserved: u64,
    },
    /// A page would take what is held of a heap above what may be.
    HeapBudgetExceeded {
        /// Index of the heap.
        heap: u32,
        /// Bytes of the page.
        size: u64,
        /// Bytes that may be held: the heap's limit or, for a request within its budget, what the device says.
        limit: u64,
        /// Bytes that are held, or just being taken; or what the device says.
        reserved: u64,
    },
    /// As many pages are held as the allocator, or those that share its budget, may hold.
    PageCountExceeded {
        /// Bytes of the page.
        size: u64,
        /// Pages that may be held.
        limit: u32,
    },
    /// The device has no memory left.
    OutOfDeviceMemory {
        /// Bytes of the page that was asked for.
        size: u64,
        /// The device's own code.
        code: i32,
    },
    /// The device failed for another reason, or broke the rules of its callbacks.
    DeviceFailed {
        /// What went wrong.
        fault: DeviceFault,
        /// The device's own code, 0 if it reported success.
        code: i32,
    },
    /// The host has no memory left for bookkeeping.
    OutOfHostMemory {
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// The allocator cannot go away yet.
    Busy {
        /// Live slices.
        live: u64,
        /// Slices that were freed but wait for the device.
        pending: u64,
        /// Requested bytes of the live slices.
        in_use: u64,
        /// Callbacks and growths in flight.
        in_flight: u32,
    },
    /// A slice cannot grow where it lies: what follows it is in use.
    NoRoom {
        /// Bytes asked for.
        size: u64,
        /// Bytes the slice could have where it lies.
        available: u64,
    },
    /// The device has no memory for a page of a dry run: the plan is larger than the device.
    MappingFailed {
        /// Bytes of the page.
        size: u64,
        /// The device's own code.
        code: i32,
    },
    /// The pools hold slices that are live or wait for the device, so others cannot take their place.
    PoolsInUse {
        /// Bytes of these slices as they lie in their pages.
        bytes: u64,
    },
    /// The device cannot do what was asked.
    NotSupported {
        /// The callback that it lacks, or what else it is that cannot be done.
        what: &'static CStr,
    },
    /// Something was written behind the end of a slice: its margin is damaged.
    MarginDamaged {
        /// Handle of the page's device memory.
        memory: u64,
        /// The first damaged byte, counted from the start of the page.
        offset: u64,
    },
    /// All buffers of the class are in use or in caches. Releasing one helps, or another try after the caches' owners have
    /// used them: each has been told to give back what it holds.
    Exhausted {
        /// Bytes of the class's buffers.
        size: u64,
        /// Buffers that the class may have.
        limit: u32,
        /// Buffers that were in caches at that moment.
        cached: u32,
        /// Slabs that other calls were just taking from the device: if any, trying again may help.
        growths_in_flight: u32,
    },
    /// The request is larger than the buffers of the largest class.
    Oversized {
        /// Bytes asked for.
        size: u64,
        /// Bytes of the largest buffers.
        limit: u64,
    },
    /// The buffer pool is closed: it hands out nothing any more.
    Closed,
    /// All slots for slices are taken (or, after 16.7 million frees each, worn out).
    TooManySlices {
        /// The most slots a pool can have; holes between slices need slots too.
        limit: u32,
    },
}

/// In which way a device failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceFault {
    /// The device said so, with a code of its own.
    Reported,
    /// A callback answered a result code that does not exist.
    UnknownResult,
    /// The device reported success without filling in the memory's handle.
    NotFilled,
    /// The address of the page is not a multiple of the alignment that was asked for.
    Misaligned,
    /// The device gave out memory that is live already.
    Duplicate,
    /// The device refused to take memory back.
    Refused,
    /// The page would end above the last address there is.
    OutOfRange,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::InvalidArgument { field, value } => {
                write!(f, "invalid argument: {} = {value}", field.to_str().unwrap_or("?"))
            }
            Error::StaleHandle => f.write_str("stale handle: the slice has been freed"),
            Error::ForeignHandle => f.write_str("foreign handle: never given out by this allocator"),
            Error::TooLarge { size, limit } => {
                write!(f, "too large: {size} bytes asked for, at most {limit} can be served")
            }
            Error::PoolCapacityExceeded { size, capacity, in_use, pending, largest_free, growths_in_flight } => write!(
                f,
                "pool capacity exceeded: {size} bytes asked for, {in_use} of {capacity} in use, {pending} pending, \
                 a hole of at least {largest_free} bytes, {growths_in_flight} growths in flight"
            ),
            Error::BudgetExceeded { size, limit, reserved } => {
                write!(f, "budget exceeded: a page of {size} bytes, {reserved} of {limit} held")
            }
            Error::HeapBudgetExceeded { heap, size, limit, reserved } => {
                write!(f, "budget of heap {heap} exceeded: a page of {size} bytes, {reserved} of {limit} held")
            }
            Error::PageCountExceeded { limit, .. } => write!(f, "page count exceeded: {limit} pages are held"),
            Error::OutOfDeviceMemory { size, code } => {
                write!(f, "out of device memory: a page of {size} bytes was refused with code {code}")
            }
            Error::DeviceFailed { fault, code } => write!(f, "device failed: {fault:?}, code {code}"),
            Error::OutOfHostMemory { bytes } => write!(f, "out of host memory: {bytes} bytes asked for"),
            Error::Busy { live, pending, in_use, in_flight } => write!(
                f,
                "busy: {live} live slices with {in_use} bytes, {pending} pending, {in_flight} callbacks in flight"
            ),
            Error::MappingFailed { size, code } => {
                write!(f, "mapping failed: a page of {size} bytes was refused with code {code}")
            }
            Error::PoolsInUse { bytes } => write!(f, "pools in use: slices of {bytes} bytes are live or pending"),
            Error::NotSupported { what } => write!(f, "not supported: {}", what.to_str().unwrap_or("?")),
            Error::MarginDamaged { memory, offset } => {
                write!(f, "margin damaged: something was written at {offset} of page {memory:#x}")
            }
            Error::NoRoom { size, available } => {
                write!(f, "no room: {size} bytes asked for, {available} available in place")
            }
            Error::Exhausted { size, limit, cached, growths_in_flight } => write!(
                f,
                "exhausted: all {limit} buffers of {size} bytes are out, {cached} of them in caches, \
                 {growths_in_flight} growths in flight"
            ),
            Error::Oversized { size, limit } => {
                write!(f, "oversized: {size} bytes asked for, the largest buffers have {limit}")
            }
            Error::Closed => f.write_str("closed: the buffer pool hands out nothing any more"),
            Error::TooManySlices { limit } => write!(f, "too many slices: a pool has at most {limit} slots"),
        }
    }
}

impl core::error::Error for Error {}
