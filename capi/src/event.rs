//! What an allocator tells of itself.

#[cfg(feature = "complete")]
use crate::abi;
use crate::abi::Struct;
use crate::label::pointer;
use crate::result::{code_of, slicepool_result};
use core::ffi::{CStr, c_char, c_void};
#[cfg(feature = "complete")]
use slicepool_core::AllocationSizes;
use slicepool_core::{Event, EventKind, Name};

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
/// A slice was freed but waits for the device. Told once more if it waits for something else after that, or if
/// overwriting it has failed.
pub const SLICEPOOL_EVENT_SLICE_PENDING: u32 = 8;
/// A slice's memory is free.
pub const SLICEPOOL_EVENT_SLICE_FREED: u32 = 9;
/// A request was refused with SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, BUDGET_EXCEEDED, PAGE_COUNT_EXCEEDED or
/// POOL_CAPACITY_EXCEEDED.
pub const SLICEPOOL_EVENT_OUT_OF_MEMORY: u32 = 10;
/// A slice is live although the allocator is to be destroyed: told for each, whether that is refused or forced.
pub const SLICEPOOL_EVENT_SLICE_LEAKED: u32 = 11;
/// A size of slicepool_allocator_config.blocks was no multiple of 4 MiB and has been rounded up, to `size`.
pub const SLICEPOOL_EVENT_SIZE_ROUNDED: u32 = 12;

/// Something that has happened. Fields that say nothing about it are 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_event {
    /// sizeof(slicepool_event) as the library knows it.
    pub struct_size: u32,
    /// A SLICEPOOL_EVENT_ kind.
    pub kind: u32,
    /// Rises with everything that happens to an allocator; some numbers are never used. 0 for SIZE_ROUNDED, which is
    /// told while it is made. Events of several threads may arrive in another order: a log that is sorted by it
    /// replays. Has 32 bits, and wraps, where the processor has no atomic numbers of 64.
    pub sequence: u64,
    /// Of slices: the handle.
    pub id: u64,
    /// Handle of the page; for OUT_OF_MEMORY UINT64_MAX.
    pub memory: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Bytes of the slice or page, or those that were asked for.
    pub size: u64,
    /// Bytes that were asked for, of slices that are handed out, resized or leaked; for SIZE_ROUNDED the size before.
    pub requested: u64,
    /// Position of the pool; see slicepool_own_pool().
    pub pool: u32,
    /// Position of the memory type; for OUT_OF_MEMORY the first that suited.
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
#[cfg(feature = "complete")]
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
        // Not one that was clamped, nor one that gave way to the other.
        if (4 << 20..=256 << 20).contains(&asked) && asked < used && used - asked < 4 << 20 {
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

/// sizeof(slicepool_event) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_event() -> u32 {
    size_of::<slicepool_event>() as u32
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_event {
    const NAME: &'static CStr = c"event";
}
