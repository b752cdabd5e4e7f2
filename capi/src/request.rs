//! What a slice must be like, and how that is read.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::label::{number, read_name};
use crate::result::slicepool_failure;
use core::ffi::{c_char, c_void};
use slicepool_core::{Label, MemoryChoice, Request, ResourceKind};

/// Only the pool of the request's `pool` may serve it.
pub const SLICEPOOL_REQUEST_IN_POOL: u32 = 1;
/// For what lives as long as the program: a device allocation of its own of this size, rounded up to the granule, so
/// that no page of other slices is kept by it. Not for size 0. Freed, it serves requests of the same size with this
/// flag, and only slicepool_cleanup() gives it back. Not together with SLICEPOOL_REQUEST_IN_POOL.
pub const SLICEPOOL_REQUEST_PERSISTENT: u32 = 2;
/// The device fills the slice with zeros before it is handed out. Needs the callback `fill`.
pub const SLICEPOOL_REQUEST_ZERO: u32 = 4;
/// The device overwrites the slice with zeros after it was freed, before anything else is placed there. Needs the
/// callback `fill`. What fails to be overwritten stays pending, and is tried again by slicepool_collect() and
/// slicepool_trim().
pub const SLICEPOOL_REQUEST_SCRUB: u32 = 8;

/// A page for itself, of the request's size rounded up to the granule. Freed, it serves requests of the same size with
/// this flag, until it is too old (slicepool_allocator_config.dedicated_period) or trimmed. Not together with
/// SLICEPOOL_REQUEST_IN_POOL.
pub const SLICEPOOL_REQUEST_DEDICATED: u32 = 16;
/// From memory that is held already: no callback is called for that, `completed` neither; nothing ages, nothing goes
/// back. (What fills a slice, or hears of events, is called all the same, and so is the host's memory if the books need
/// some.)
pub const SLICEPOOL_REQUEST_NEVER_GROW: u32 = 32;
/// Without taking a page that would take the heap above its budget: see slicepool_device.heap_budget.
pub const SLICEPOOL_REQUEST_WITHIN_BUDGET: u32 = 64;
/// For an optimal resource, an image that the device lays out as it likes; otherwise for a linear one. See
/// slicepool_memory_type.granularity.
pub const SLICEPOOL_REQUEST_OPTIMAL: u32 = 128;
/// search_depth counts.
pub const SLICEPOOL_REQUEST_SEARCH_DEPTH: u32 = 256;

/// In place of a pool's position: the pool of slices with SLICEPOOL_REQUEST_PERSISTENT of the first memory type. See
/// slicepool_own_pool().
pub const SLICEPOOL_PERSISTENT_POOL: u32 = 4294967295;

/// What a slice must be like. All zero but `struct_size` and `size` is a good start.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_request {
    /// sizeof(slicepool_request), set by the caller.
    pub struct_size: u32,
    /// SLICEPOOL_REQUEST_ flags.
    pub flags: u32,
    /// Bytes. 0 is refused unless the allocator has a pool of exclusive pages with max_alloc_size 0.
    pub size: u64,
    /// The slice's offset, and its address where it has one, will be a multiple of this power of two; 0: the pool's
    /// granule. At most the page alignment.
    pub alignment: u64,
    /// With SLICEPOOL_REQUEST_IN_POOL: position of that pool in the list of pools; otherwise 0.
    pub pool: u32,
    /// With SLICEPOOL_REQUEST_SEARCH_DEPTH: so many holes of the request's own size class are looked at before a larger
    /// hole is broken or a page taken, and after that only what is found in constant time; more packs better and takes
    /// longer. Otherwise 0: 2, then 64 before a page is taken, then all before the request is refused.
    pub search_depth: u32,
    /// Bit i: memory type i may be used; 0: any may.
    pub memory_types: u32,
    /// Properties (slicepool_memory_type.properties) that the memory must have, all of them.
    pub required: u32,
    /// Properties that it should have: types that lack the fewest are tried first, of equal ones that of the lowest
    /// position.
    pub preferred: u32,
    /// Properties of which it must have none.
    pub forbidden: u32,
    /// A page for itself, for which this is handed to the device as slicepool_page_request.device_data: what an image
    /// must be bound to, a handle to import. It serves once: after the slice was freed it goes back with the next
    /// allocation, at most four with each, or a trim. Not together with SLICEPOOL_REQUEST_IN_POOL. NULL: not so.
    pub device_data: *mut c_void,
    /// A name for the slice: slicepool_name_set(). NULL: none.
    pub name: *const c_char,
    /// A pointer for the slice: slicepool_user_data_set().
    pub user_data: *mut c_void,
    /// Where the details of a failure go; may be NULL.
    pub failure: *mut slicepool_failure,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_request {
    const NAME: &'static core::ffi::CStr = c"request";
}

/// What requests that are like most say.
struct Small {
    size: u64,
    alignment: u64,
    flags: u32,
    types: u32,
    required: u32,
    preferred: u32,
    forbidden: u32,
}

impl Small {
    /// Not 0 if it says which memory.
    #[inline(always)]
    fn choice(&self) -> u32 {
        self.types | self.required | self.preferred | self.forbidden
    }
}

impl slicepool_request {
    #[inline]
    pub(crate) fn check(&self) -> Result<Request, Refusal> {
        let request = Request::new(self.size).aligned(if self.alignment == 0 { 1 } else { self.alignment });
        // One test for the usual case.
        if !self.is_unusual() {
            return Ok(request);
        }
        self.check_unusual(request)
    }

    #[inline]
    pub(crate) fn is_unusual(&self) -> bool {
        let choice = self.memory_types | self.required | self.preferred | self.forbidden;
        self.flags | self.pool | self.search_depth | choice != 0 || !self.device_data.is_null()
    }

    /// The request at `from` if it is like most: of this version, and without flags (but for that of optimal
    /// resources), device data and anything to attach. Nothing is copied for that.
    ///
    /// # Safety
    /// `from` is NULL or points to a struct that begins with its size and has as many readable bytes.
    #[inline(always)]
    unsafe fn read_small(from: *const Self) -> Option<Small> {
        if from.is_null() {
            return None;
        }
        // SAFETY: not NULL; the struct is all there if it is as large as ours.
        unsafe {
            if (&raw const (*from).struct_size).read_unaligned() as usize != size_of::<Self>() {
                return None;
            }
            let number = |at: *const u32| at.read_unaligned();
            let pointer = |at: *const *const c_void| at.read_unaligned().addr();
            let flags = number(&raw const (*from).flags);
            let others = (flags & !SLICEPOOL_REQUEST_OPTIMAL)
                | number(&raw const (*from).pool)
                | number(&raw const (*from).search_depth);
            let pointers = pointer((&raw const (*from).device_data).cast())
                | pointer((&raw const (*from).name).cast())
                | pointer((&raw const (*from).user_data).cast());
            if others != 0 || pointers != 0 {
                return None;
            }
            let alignment = (&raw const (*from).alignment).read_unaligned();
            Some(Small {
                size: (&raw const (*from).size).read_unaligned(),
                alignment: if alignment == 0 { 1 } else { alignment },
                flags,
                types: number(&raw const (*from).memory_types),
                required: number(&raw const (*from).required),
                preferred: number(&raw const (*from).preferred),
                forbidden: number(&raw const (*from).forbidden),
            })
        }
    }

    /// Size and alignment of a request that says nothing else, and is as large as ours; `None` for any other.
    ///
    /// # Safety
    /// As [`Self::read_usual`].
    #[inline(always)]
    pub(crate) unsafe fn read_plain(from: *const Self) -> Option<(u64, u64)> {
        // SAFETY: passed on from the caller.
        let small = unsafe { Self::read_small(from) }?;
        (small.flags | small.choice() == 0).then_some((small.size, small.alignment))
    }

    /// A request that is like most, and where the details of a failure go.
    ///
    /// # Safety
    /// `from` is NULL or points to a struct that begins with its size and has as many readable bytes.
    pub(crate) unsafe fn read_usual(from: *const Self) -> Option<(Request, *mut slicepool_failure)> {
        // SAFETY: passed on from the caller.
        let (small, failure) = unsafe { (Self::read_small(from)?, (&raw const (*from).failure).read_unaligned()) };
        let mut request = Request::new(small.size).aligned(small.alignment);
        if small.choice() != 0 {
            request = request.from_memory(choice(small.types, small.required, small.preferred, small.forbidden));
        }
        if small.flags != 0 {
            request = request.of_kind(ResourceKind::Optimal);
        }
        Some((request, failure))
    }

    pub(crate) fn label(&self) -> Result<Label, Refusal> {
        // SAFETY: the header demands a name that ends.
        let name = unsafe { read_name(self.name)? };
        Ok(Label { name, user_data: number(self.user_data) })
    }

    #[cold]
    fn check_unusual(&self, mut request: Request) -> Result<Request, Refusal> {
        const KNOWN: u32 = SLICEPOOL_REQUEST_IN_POOL
            | SLICEPOOL_REQUEST_PERSISTENT
            | SLICEPOOL_REQUEST_ZERO
            | SLICEPOOL_REQUEST_SCRUB
            | SLICEPOOL_REQUEST_DEDICATED
            | SLICEPOOL_REQUEST_NEVER_GROW
            | SLICEPOOL_REQUEST_WITHIN_BUDGET
            | SLICEPOOL_REQUEST_OPTIMAL
            | SLICEPOOL_REQUEST_SEARCH_DEPTH;
        let has = |flag| self.flags & flag != 0;
        let own_page = has(SLICEPOOL_REQUEST_PERSISTENT | SLICEPOOL_REQUEST_DEDICATED);
        if has(!KNOWN) || (has(SLICEPOOL_REQUEST_IN_POOL) && own_page) {
            return Err(invalid(c"flags", u64::from(self.flags)));
        }
        if (!has(SLICEPOOL_REQUEST_IN_POOL) && self.pool != 0)
            || (has(SLICEPOOL_REQUEST_IN_POOL) && !self.device_data.is_null())
        {
            return Err(invalid(c"pool", u64::from(self.pool)));
        }
        if !has(SLICEPOOL_REQUEST_SEARCH_DEPTH) && self.search_depth != 0 {
            return Err(invalid(c"search_depth", u64::from(self.search_depth)));
        }
        request.pool = has(SLICEPOOL_REQUEST_IN_POOL).then_some(self.pool);
        for (flag, with) in [
            (SLICEPOOL_REQUEST_PERSISTENT, Request::persistent as fn(Request) -> Request),
            (SLICEPOOL_REQUEST_ZERO, Request::zeroed),
            (SLICEPOOL_REQUEST_SCRUB, Request::scrubbed),
            (SLICEPOOL_REQUEST_DEDICATED, Request::dedicated),
            (SLICEPOOL_REQUEST_NEVER_GROW, Request::never_growing),
            (SLICEPOOL_REQUEST_WITHIN_BUDGET, Request::within_budget),
            (SLICEPOOL_REQUEST_OPTIMAL, |request| request.of_kind(ResourceKind::Optimal)),
        ] {
            if has(flag) {
                request = with(request);
            }
        }
        if has(SLICEPOOL_REQUEST_SEARCH_DEPTH) {
            request = request.with_search_depth(self.search_depth);
        }
        if self.memory_types | self.required | self.preferred | self.forbidden != 0 {
            request = request.from_memory(choice(self.memory_types, self.required, self.preferred, self.forbidden));
        }
        Ok(request.with_device_data(self.device_data.cast()))
    }
}

#[inline(always)]
fn choice(types: u32, required: u32, preferred: u32, forbidden: u32) -> MemoryChoice {
    let types = if types == 0 { u32::MAX } else { types };
    MemoryChoice::of_types(types).requiring(required).preferring(preferred).forbidding(forbidden)
}

/// The request at a place of the caller's array.
///
/// # Safety
/// `requests` points to more than `index` structs that are `stride` bytes apart.
#[inline(never)]
pub(crate) unsafe fn request_at(
    requests: *const slicepool_request,
    stride: u32,
    index: u32,
) -> Result<Request, Refusal> {
    // SAFETY: passed on from the caller.
    unsafe { abi::element(requests, stride, index)? }.check()
}

/// sizeof(slicepool_request) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_request() -> u32 {
    size_of::<slicepool_request>() as u32
}
