//! What an allocator tells of itself, and what programs attach to slices.

use crate::abi::{self, Struct, invalid};
use crate::allocator::slicepool_allocator;
use crate::result::{code_of, finish, finish_with, slicepool_failure, slicepool_result};
use crate::slice::handle;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use slicepool_core::{AllocationSizes, Event, EventKind, Name};

/// A page was taken from the device.
pub const SLICEPOOL_EVENT_PAGE_ALLOCATED: u32 = 1;
/// A page that the program owned was taken over: slicepool_adopt().
pub const SLICEPOOL_EVENT_PAGE_ADOPTED: u32 = 2;
/// A page that holds nothing serves another pool from now on, the one that is named.
pub const SLICEPOOL_EVENT_PAGE_MOVED: u32 = 3;
/// A page was given back to the device. Its number is that of the moment in which it began to leave.
pub const SLICEPOOL_EVENT_PAGE_RETURNED: u32 = 4;
/// The device has refused to take a page back.
pub const SLICEPOOL_EVENT_PAGE_REFUSED: u32 = 5;
/// A slice was handed out. This and the next three are told with SLICEPOOL_ALLOCATOR_SLICE_EVENTS only.
pub const SLICEPOOL_EVENT_SLICE_ALLOCATED: u32 = 6;
/// A slice has another size where it lies.
pub const SLICEPOOL_EVENT_SLICE_RESIZED: u32 = 7;
/// A slice was freed but waits for the device.
pub const SLICEPOOL_EVENT_SLICE_PENDING: u32 = 8;
/// A slice's memory is free.
pub const SLICEPOOL_EVENT_SLICE_FREED: u32 = 9;
/// A request could not be served.
pub const SLICEPOOL_EVENT_OUT_OF_MEMORY: u32 = 10;
/// A slice is live although the allocator is to be destroyed: told for each, whether that is refused or forced.
pub const SLICEPOOL_EVENT_SLICE_LEAKED: u32 = 11;
/// A size of slicepool_allocator_config.blocks was no multiple of 4 MiB and has been rounded up, to `size`.
pub const SLICEPOOL_EVENT_SIZE_ROUNDED: u32 = 12;

/// The longest name of a slice or allocator, in bytes of UTF-8 without the NUL. What is longer is cut, between two
/// characters.
pub const SLICEPOOL_MAX_NAME: u32 = 55;

/// Something that has happened. Fields that say nothing about it are 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_event {
    /// sizeof(slicepool_event) as the library knows it.
    pub struct_size: u32,
    /// A SLICEPOOL_EVENT_ kind.
    pub kind: u32,
    /// Rises with everything that happens to an allocator; some numbers are never used. Events of several threads may
    /// arrive in another order: a log that is sorted by it replays. Has 32 bits, and wraps, where the processor has no
    /// atomic numbers of 64.
    pub sequence: u64,
    /// Of slices: the handle.
    pub id: u64,
    /// Handle of the page.
    pub memory: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Bytes of the slice or page, or those that were asked for.
    pub size: u64,
    /// Bytes that were asked for by a live slice.
    pub requested: u64,
    /// Position of the pool; see slicepool_own_pool().
    pub pool: u32,
    /// Position of the memory type.
    pub memory_type: u32,
    /// Why, for OUT_OF_MEMORY and PAGE_REFUSED.
    pub result: slicepool_result,
    /// 0.
    pub reserved: u32,
    /// The slice's name, NUL-terminated, empty if it has none. Valid during the call.
    pub name: *const c_char,
    /// The slice's user data.
    pub user_data: *mut c_void,
}

/// Is told what has happened; for logs and traces.
pub type slicepool_device_event_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, event: *const slicepool_event)>;

/// A name as C sees it.
struct Text([u8; Name::MAX_LEN + 1]);

impl Text {
    fn new(name: &str) -> Self {
        let mut text = Self([0; Name::MAX_LEN + 1]);
        for (to, from) in text.0.iter_mut().zip(name.bytes().take(Name::MAX_LEN)) {
            *to = from;
        }
        text
    }
}

/// Hands an event to the callback.
///
/// # Safety
/// `tell` is a callback that keeps the promises of the header.
#[cold]
pub(crate) unsafe fn tell(tell: slicepool_device_event_fn, user_data: *mut c_void, event: &Event) {
    let Some(tell) = tell else { return };
    let name = Text::new(event.label.name.as_str());
    let event = slicepool_event {
        struct_size: size_of::<slicepool_event>() as u32,
        kind: match event.kind {
            EventKind::PageAllocated => SLICEPOOL_EVENT_PAGE_ALLOCATED,
            EventKind::PageAdopted => SLICEPOOL_EVENT_PAGE_ADOPTED,
            EventKind::PageMoved => SLICEPOOL_EVENT_PAGE_MOVED,
            EventKind::PageReturned => SLICEPOOL_EVENT_PAGE_RETURNED,
            EventKind::PageRefused => SLICEPOOL_EVENT_PAGE_REFUSED,
            EventKind::SliceAllocated => SLICEPOOL_EVENT_SLICE_ALLOCATED,
            EventKind::SliceResized => SLICEPOOL_EVENT_SLICE_RESIZED,
            EventKind::SlicePending => SLICEPOOL_EVENT_SLICE_PENDING,
            EventKind::SliceFreed => SLICEPOOL_EVENT_SLICE_FREED,
            EventKind::OutOfMemory => SLICEPOOL_EVENT_OUT_OF_MEMORY,
            EventKind::SliceLeaked => SLICEPOOL_EVENT_SLICE_LEAKED,
            _ => 0,
        },
        sequence: event.sequence,
        id: event.id.map_or(0, slicepool_core::SliceId::to_raw),
        memory: event.memory,
        offset: event.offset,
        size: event.size,
        requested: event.requested,
        pool: event.pool,
        memory_type: event.memory_type,
        result: event.error.map_or(0, code_of),
        reserved: 0,
        name: name.0.as_ptr().cast(),
        user_data: pointer(event.label.user_data),
    };
    // SAFETY: passed on from the caller.
    unsafe { tell(user_data, &raw const event) };
}

/// Tells of sizes that were rounded up.
///
/// # Safety
/// As [`tell`].
#[cold]
pub(crate) unsafe fn tell_rounded(
    tell: slicepool_device_event_fn,
    user_data: *mut c_void,
    asked: [u64; 4],
    used: &AllocationSizes,
) {
    let Some(tell) = tell else { return };
    let used = [
        used.min_device_memblock_size(),
        used.max_device_memblock_size(),
        used.min_host_memblock_size(),
        used.max_host_memblock_size(),
    ];
    for (asked, used) in asked.into_iter().zip(used) {
        // One that was clamped is no multiple by accident only.
        if (4 << 20..=256 << 20).contains(&asked) && asked % (4 << 20) != 0 {
            let mut event: slicepool_event = abi::zeroed();
            event.struct_size = size_of::<slicepool_event>() as u32;
            event.kind = SLICEPOOL_EVENT_SIZE_ROUNDED;
            event.size = used;
            event.requested = asked;
            event.name = c"".as_ptr();
            // SAFETY: passed on from the caller.
            unsafe { tell(user_data, &raw const event) };
        }
    }
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_event {
    const NAME: &'static CStr = c"event";
}

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
pub(crate) unsafe fn read_name(name: *const c_char) -> Result<Name, crate::abi::Refusal> {
    if name.is_null() {
        return Ok(Name::NONE);
    }
    // SAFETY: passed on from the caller.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    // What will not be kept need not be text.
    let kept = bytes.get(..Name::MAX_LEN + 1).unwrap_or(bytes);
    match core::str::from_utf8(kept) {
        Ok(text) => Ok(Name::new(text)),
        // Cut in the middle of a character.
        Err(error) if error.error_len().is_none() && kept.len() < bytes.len() => {
            let valid = kept.get(..error.valid_up_to()).unwrap_or_default();
            Ok(Name::new(core::str::from_utf8(valid).unwrap_or_default()))
        }
        Err(error) => Err(invalid(c"name", error.valid_up_to() as u64)),
    }
}

/// Gives a slice a name, for reports and events. It is copied, and goes with the slice.
///
/// @param name  NUL-terminated UTF-8, of which at most SLICEPOOL_MAX_NAME bytes are kept; NULL or empty: none
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (id 0; no UTF-8),
///         SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY; nothing has changed then
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
/// @param name      gets the name, NUL-terminated, empty if there is none; SLICEPOOL_MAX_NAME + 1 bytes are always enough
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

/// Attaches a pointer to a slice, which slicepool_slice_get() and events tell from then on. The library never looks at what
/// it points to.
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
pub unsafe extern "C" fn slicepool_allocator_user_data(
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

/// Makes memory that the program owns a page of a pool, as if the device had just given it out: slices are cut from it, and
/// it goes back to the callback `deallocate` like any other, where `context` can tell it apart.
///
/// @param pool     position in the list of pools
/// @param memory   as `allocate` fills it in, and its size: of pools whose pages are equal it must be theirs, otherwise a
///                 multiple of the granule; device_code 0
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT (no such pool, a size that it cannot use, the handle UINT64_MAX),
///         SLICEPOOL_ERROR_DEVICE_FAILED (not aligned; live already), SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED,
///         SLICEPOOL_ERROR_BUDGET_EXCEEDED, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY,
///         SLICEPOOL_ERROR_NOT_SUPPORTED in a dry run, SLICEPOOL_ERROR_BUSY while the allocator is being destroyed. The
///         memory is still the program's then
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_adopt(
    allocator: *mut slicepool_allocator,
    pool: u32,
    memory: *const crate::device::slicepool_device_memory,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let memory = abi::read(memory)?;
            if memory.device_code != 0 {
                return Err(invalid(c"device_code", memory.device_code as u32 as u64));
            }
            Ok(inner.adopt(pool, &memory.to_core(memory.size))?)
        })();
        finish_with(outcome, 0, failure)
    }
}

/// Takes pages from the device that hold nothing yet, until a pool of sliced pages holds as many.
///
/// @param pool     position in the list of pools
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT (no such pool, or not of sliced pages); otherwise as slicepool_allocate(). Pages
///         that were taken stay
///
/// Threads: any. Cost: one device call a page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_prefill(
    allocator: *mut slicepool_allocator,
    pool: u32,
    pages: u32,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = slicepool_allocator::get(allocator).and_then(|it| Ok(it.prefill(pool, pages)?));
        finish_with(outcome, 0, failure)
    }
}
