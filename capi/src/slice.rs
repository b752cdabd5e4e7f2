//! Slices: allocating, freeing, looking.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::allocator::slicepool_allocator;
use crate::device::CallbackDevice;
use crate::label::{number, pointer, read_name};
use crate::parts::{COMPLETE, check_parts};
use crate::result::{
    SLICEPOOL_OK, TypeReasons, code, finish, finish_with, slicepool_failure, slicepool_result, split, write_failure,
};
use core::ffi::{c_char, c_void};
use core::ptr;
use slicepool_core::{Allocator, Error, Label, MemoryChoice, Request, ResourceKind, Slice, SliceId};

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

/// A piece of a page: [offset, offset + size) of the device memory named `memory`. Copy it freely; only `id` is ever
/// trusted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_slice {
    /// sizeof(slicepool_slice), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// What frees the slice; never 0, never given out again.
    pub id: u64,
    /// Handle of the page, as the device filled it in; UINT64_MAX in a dry run until slicepool_resolve().
    pub memory: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Usable bytes: those asked for, rounded up to the granule, or the whole page where every slice has its own.
    pub size: u64,
    /// Address of the slice as the device sees it, 0 if the device gives none.
    pub address: u64,
    /// Where the CPU sees the slice, NULL if the device has not mapped the page for good; see slicepool_map().
    pub mapped: *mut c_void,
    /// What was attached to the slice, a pointer of the program's; NULL if nothing was.
    pub user_data: *mut c_void,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_request {
    const NAME: &'static core::ffi::CStr = c"request";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_slice {
    const NAME: &'static core::ffi::CStr = c"slice";
    const MIN_SIZE: u32 = 16;
}

impl slicepool_request {
    #[inline]
    fn check(&self) -> Result<Request, Refusal> {
        let request = Request::new(self.size).aligned(if self.alignment == 0 { 1 } else { self.alignment });
        // One test for the usual case.
        if !self.is_unusual() {
            return Ok(request);
        }
        self.check_unusual(request)
    }

    #[inline]
    fn is_unusual(&self) -> bool {
        let choice = self.memory_types | self.required | self.preferred | self.forbidden;
        self.flags | self.pool | self.search_depth | choice != 0 || !self.device_data.is_null()
    }

    /// The request at `from` if it is like most: of this version, and without flags (but for that of optimal
    /// resources), device data and anything to attach. Nothing is copied for that.
    ///
    /// # Safety
    /// `from` is NULL or points to `struct_size` readable bytes.
    #[inline(always)]
    unsafe fn read_usual(from: *const Self) -> Option<(Request, *mut slicepool_failure)> {
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
            let numbers = (flags & !SLICEPOOL_REQUEST_OPTIMAL)
                | number(&raw const (*from).pool)
                | number(&raw const (*from).search_depth);
            let pointers = pointer((&raw const (*from).device_data).cast())
                | pointer((&raw const (*from).name).cast())
                | pointer((&raw const (*from).user_data).cast());
            if numbers != 0 || pointers != 0 {
                return None;
            }
            let alignment = (&raw const (*from).alignment).read_unaligned();
            let mut request = Request::new((&raw const (*from).size).read_unaligned());
            request.alignment = if alignment == 0 { 1 } else { alignment };
            let types = number(&raw const (*from).memory_types);
            let required = number(&raw const (*from).required);
            let preferred = number(&raw const (*from).preferred);
            let forbidden = number(&raw const (*from).forbidden);
            if types | required | preferred | forbidden != 0 {
                request = request.from_memory(choice(types, required, preferred, forbidden));
            }
            if flags != 0 {
                request = request.of_kind(ResourceKind::Optimal);
            }
            Some((request, (&raw const (*from).failure).read_unaligned()))
        }
    }

    fn label(&self) -> Result<Label, Refusal> {
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

impl From<&Slice> for slicepool_slice {
    #[inline]
    fn from(slice: &Slice) -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            reserved: 0,
            id: slice.id.to_raw(),
            memory: slice.memory,
            offset: slice.offset,
            size: slice.size,
            address: slice.address,
            mapped: slice.mapped.cast(),
            user_data: ptr::null_mut(),
        }
    }
}

impl slicepool_slice {
    /// A slice with what is attached to it.
    #[cold]
    pub(crate) fn with_user_data(inner: &Allocator<CallbackDevice>, slice: &Slice) -> Self {
        let user_data = inner.get_with_user_data(slice.id).map_or(0, |(_, user_data)| user_data);
        Self { user_data: pointer(user_data), ..Self::from(slice) }
    }
}

/// The request at a place of the caller's array.
///
/// # Safety
/// `requests` points to more than `index` structs that are `stride` bytes apart.
#[inline(never)]
unsafe fn request_at(requests: *const slicepool_request, stride: u32, index: u32) -> Result<Request, Refusal> {
    // SAFETY: passed on from the caller.
    unsafe { abi::element(requests, stride, index)? }.check()
}

/// A handle that must name something.
pub(crate) fn handle(id: u64) -> Result<SliceId, Refusal> {
    SliceId::from_raw(id).ok_or_else(|| invalid(c"id", 0))
}

/// Hands out a slice.
///
/// @param request  read only; request->failure gets the details of a failure
/// @param slice    filled in on success; its struct_size must be set
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT (size 0 where no pool takes it; an alignment that is no power of two or
///         above the page alignment; a pool that does not exist; NULL; unknown flags), SLICEPOOL_ERROR_TOO_LARGE,
///         SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED, SLICEPOOL_ERROR_BUDGET_EXCEEDED,
///         SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_DEVICE_FAILED,
///         SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_TOO_MANY_SLICES, SLICEPOOL_ERROR_NOT_SUPPORTED (ZERO or
///         SCRUB without `fill`; no memory type or pool suits), SLICEPOOL_ERROR_VERSION_MISMATCH, SLICEPOOL_ERROR_BUSY
///         (from a callback while the allocator is being destroyed). Where several pools refuse, the first of: host
///         memory, device, budget, page count, pool capacity, too large
///
/// When memory that is held does not serve the request, these help, in this order: what the device says it is done with
/// (`completed`); a page from the device, in pools whose pages grow also a smaller one; a look at every free range that
/// could hold it; giving back pages that hold nothing, of any pool but that of persistent slices, those idle the
/// longest first; the callback `out_of_memory`. After the device has had no memory for a page, it is not asked for one
/// as large again for 64 requests that fail, twice as many after the next refusal, unless a page was given back or the
/// allocator trimmed.
///
/// Threads: any. Cost: constant if memory that is held serves the request by its size class; otherwise a look at 64
/// free ranges and one device call; and where no page can be had, a look at every free range that could hold it, 64 to
/// 1,024 of them per lock hold. Where pages age, at most four that are too old are given back. Callbacks run on the
/// calling thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_allocate(
    allocator: *mut slicepool_allocator,
    request: *const slicepool_request,
    slice: *mut slicepool_slice,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        if !COMPLETE {
            return allocate_plainly(allocator, request, slice);
        }
        let usual = slicepool_request::read_usual(request);
        let (Some((usual, failure)), Ok(inner), Ok(size)) =
            (usual, slicepool_allocator::get(allocator), abi::struct_size(slice))
        else {
            return allocate_unusually(allocator, request, slice);
        };
        if inner.memory_type_count() != 1 {
            return allocate_from_types(inner, &usual, failure, slice, size);
        }
        match inner.allocate(&usual) {
            Ok(placed) => {
                abi::write(slice, size, &slicepool_slice::from(&placed));
                SLICEPOOL_OK
            }
            Err(error) => finish_with(Err(error.into()), 0, failure),
        }
    }
}

/// slicepool_allocate() of an allocator that is not complete.
///
/// # Safety
/// As slicepool_allocate().
unsafe fn allocate_plainly(
    allocator: *mut slicepool_allocator,
    request: *const slicepool_request,
    slice: *mut slicepool_slice,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe {
        let request = match abi::read(request) {
            Ok(request) => request,
            Err(refusal) => return code(&refusal),
        };
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let size = abi::struct_size(slice)?;
            let mut asked = Request::new(request.size).aligned(request.alignment.max(1));
            if request.is_unusual() {
                let choice = request.memory_types | request.required | request.preferred | request.forbidden;
                let other = request.search_depth | choice != 0 || !request.device_data.is_null();
                if request.flags != SLICEPOOL_REQUEST_IN_POOL || other {
                    return Err(Error::NotSupported { what: c"flags" }.into());
                }
                asked = asked.in_pool(request.pool);
            }
            check_parts(!request.name.is_null() || !request.user_data.is_null(), c"user_data")?;
            let placed = inner.allocate(&asked)?;
            abi::write(slice, size, &slicepool_slice::from(&placed));
            Ok::<(), Refusal>(())
        })();
        finish_with(outcome, 0, request.failure)
    }
}

/// slicepool_allocate() where each memory type may have a reason of its own for a refusal.
///
/// # Safety
/// As slicepool_allocate().
#[inline(never)]
unsafe fn allocate_from_types(
    inner: &Allocator<CallbackDevice>,
    request: &Request,
    failure: *mut slicepool_failure,
    slice: *mut slicepool_slice,
    size: u32,
) -> slicepool_result {
    let mut reasons = TypeReasons::default();
    let mut tell = |memory_type, error| reasons.note(memory_type, error);
    // SAFETY: passed on from the caller.
    unsafe {
        match inner.allocate_explained(request, &Label::NONE, &mut tell) {
            Ok(placed) => {
                abi::write(slice, size, &slicepool_slice::from(&placed));
                SLICEPOOL_OK
            }
            Err(error) => write_failure(&error.into(), 0, &reasons, failure),
        }
    }
}

/// slicepool_allocate() of requests that say more than most, and of those that are refused before anything is done.
///
/// # Safety
/// As slicepool_allocate().
#[cold]
#[inline(never)]
unsafe fn allocate_unusually(
    allocator: *mut slicepool_allocator,
    request: *const slicepool_request,
    slice: *mut slicepool_slice,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe {
        let request = match abi::read(request) {
            Ok(request) => request,
            Err(refusal) => return code(&refusal),
        };
        let mut reasons = TypeReasons::default();
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let size = abi::struct_size(slice)?;
            let (asked, label) = (request.check()?, request.label()?);
            let mut tell = |memory_type, error| reasons.note(memory_type, error);
            let placed = inner.allocate_explained(&asked, &label, &mut tell)?;
            let filled = slicepool_slice { user_data: request.user_data, ..slicepool_slice::from(&placed) };
            abi::write(slice, size, &filled);
            Ok::<(), Refusal>(())
        })();
        match outcome {
            Ok(()) => SLICEPOOL_OK,
            Err(refusal) => write_failure(&refusal, 0, &reasons, request.failure),
        }
    }
}

/// Hands out a slice for each request, or none at all.
///
/// If one is refused, the slices placed before it are freed again, and the pages taken from the device for them are
/// given back; peaks in the statistics stay.
///
/// @param requests  `count` structs, all with the struct_size of the first
/// @param count     0 is fine
/// @param slices    `count` structs, all with the struct_size of the first; filled in on success
/// @return as slicepool_allocate(); the details go to the failure of the request that was refused, or else of the
///         first
///
/// Threads: any; others see the slices come one by one. Cost: that of the single calls, and two host allocations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_allocate_many(
    allocator: *mut slicepool_allocator,
    requests: *const slicepool_request,
    count: u32,
    slices: *mut slicepool_slice,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let mut index = 0;
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            if count == 0 {
                return Ok(());
            }
            let (stride, out_stride) = (abi::struct_size(requests)?, abi::struct_size(slices)?);
            for i in 0..count {
                // Everything is read before anything is done.
                index = i;
                request_at(requests, stride, i)?;
                abi::element(requests, stride, i)?.label()?;
                abi::check_element(slices, out_stride, i)?;
            }
            let request = |i| match request_at(requests, stride, i) {
                Ok(request) => Ok(request),
                // It was fine just now: another thread writes to it.
                Err(_) => Err(Error::InvalidArgument { field: c"requests", value: u64::from(i) }),
            };
            let label = |i| match abi::element(requests, stride, i).and_then(|request| request.label()) {
                Ok(label) => Ok(label),
                Err(_) => Err(Error::InvalidArgument { field: c"requests", value: u64::from(i) }),
            };
            let batch = inner.allocate_each_labelled(count, request, label).map_err(|refused| {
                index = refused.index;
                refused.error
            })?;
            for (i, placed) in batch.iter().enumerate() {
                let out = slices.byte_add(out_stride as usize * i);
                let user_data = abi::element(requests, stride, i as u32).map_or(ptr::null_mut(), |it| it.user_data);
                abi::write(out, out_stride, &slicepool_slice { user_data, ..slicepool_slice::from(placed) });
            }
            Ok(())
        })();
        if outcome.is_ok() {
            return SLICEPOOL_OK;
        }
        let failure_of = |i| {
            let stride = abi::struct_size(requests).unwrap_or(0);
            abi::element(requests, stride, i).map_or(ptr::null_mut(), |request| request.failure)
        };
        let own = failure_of(index);
        finish_with(outcome, index, if own.is_null() { failure_of(0) } else { own })
    }
}

/// Takes a slice back. Its page stays with the allocator until it is trimmed, too old, or wanted: pages that hold
/// nothing go back here only if another allocator that shares the budget wants memory. Any thread may free what another
/// allocated.
///
/// @param id  of a live slice; 0 is ignored
/// @return SLICEPOOL_ERROR_STALE_HANDLE if it has been freed before, SLICEPOOL_ERROR_FOREIGN_HANDLE if it was never
///         this allocator's; nothing changes then. SLICEPOOL_ERROR_MARGIN_DAMAGED: the slice is live, its margin
///         mended, and the next free succeeds
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_free(allocator: *mut slicepool_allocator, id: u64) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    let outcome = match (unsafe { slicepool_allocator::get(allocator) }, SliceId::from_raw(id)) {
        (Ok(inner), Some(id)) => inner.free(id).map_err(Refusal::from),
        (Ok(_), None) => Ok(()),
        (Err(refusal), _) => Err(refusal),
    };
    if outcome.is_ok() { SLICEPOOL_OK } else { finish(outcome) }
}

/// Takes slices back: all of them, or none if one handle is refused. Another free of one of them is refused as stale
/// while this call runs, even if it is refused in the end.
///
/// @param ids      `count` handles; zeros are ignored; a handle that occurs twice is stale
/// @param failure  may be NULL; `index` tells which handle was refused
/// @return as slicepool_free()
///
/// Threads: any; others see the slices go one by one. Cost: that of the single calls, with fewer locks taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_free_many(
    allocator: *mut slicepool_allocator,
    ids: *const u64,
    count: u32,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let (outcome, index) = match slicepool_allocator::get(allocator) {
            Err(refusal) => (Err(refusal), 0),
            Ok(_) if count == 0 => (Ok(()), 0),
            Ok(_) if ids.is_null() => (Err(invalid(c"ids", 0)), 0),
            Ok(inner) => split(inner.free_after_each(count, &|i| SliceId::from_raw(ids.add(i as usize).read()), &[])),
        };
        finish_with(outcome, index, failure)
    }
}

/// The slice of a handle, as it was handed out or last resized.
///
/// @param slice  filled in on success; its struct_size must be set
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (id 0)
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_slice_get(
    allocator: *mut slicepool_allocator,
    id: u64,
    slice: *mut slicepool_slice,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let size = abi::struct_size(slice)?;
            let (found, user_data) = inner.get_with_user_data(handle(id)?)?;
            let found = slicepool_slice { user_data: pointer(user_data), ..slicepool_slice::from(&found) };
            abi::write(slice, size, &found);
            Ok(())
        })()
    })
}

/// Gives a slice another size where it lies. Never moves it, never calls the device.
///
/// @param size     bytes that the pool takes: at least 1, but for pools that take 0
/// @param slice    filled in on success with the slice as it is then; its struct_size must be set
/// @param failure  may be NULL; `limit` tells for NO_ROOM how much room there is where the slice lies, for TOO_LARGE
///                 how much the pool takes
/// @return SLICEPOOL_ERROR_NO_ROOM if what follows it is in use; SLICEPOOL_ERROR_STALE_HANDLE;
///         SLICEPOOL_ERROR_FOREIGN_HANDLE; SLICEPOOL_ERROR_INVALID_ARGUMENT; SLICEPOOL_ERROR_TOO_LARGE;
///         SLICEPOOL_ERROR_NOT_SUPPORTED for slices with SLICEPOOL_REQUEST_SCRUB; SLICEPOOL_ERROR_MARGIN_DAMAGED;
///         SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY; the slice is unchanged then
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_try_resize(
    allocator: *mut slicepool_allocator,
    id: u64,
    size: u64,
    slice: *mut slicepool_slice,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let out_size = abi::struct_size(slice)?;
            let resized = inner.try_resize(handle(id)?, size)?;
            abi::write(slice, out_size, &slicepool_slice::with_user_data(inner, &resized));
            Ok(())
        })();
        finish_with(outcome, 0, failure)
    }
}

/// Whether memory that is held would serve a request now, without the device and without doing it. True at that instant
/// only, and exact with SLICEPOOL_REQUEST_NEVER_GROW; other requests may take a page all the same if finding the range
/// takes a long look, or if an exclusive page would serve that is more than twice as large.
///
/// @param would_fit  set to 1 or 0
/// @return as slicepool_allocate() for requests that could never be served
///
/// Threads: any. Cost: at most one look at every free range that could hold the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_would_fit(
    allocator: *mut slicepool_allocator,
    request: *const slicepool_request,
    would_fit: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let request = match abi::read(request) {
            Ok(request) => request,
            Err(refusal) => return code(&refusal),
        };
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let would_fit = abi::out(would_fit, c"would_fit")?;
            would_fit.write(inner.would_fit(&request.check()?)?.into());
            Ok(())
        })();
        finish_with(outcome, 0, request.failure)
    }
}

/// Whether serving a request would take memory from the device: slicepool_would_fit(), the other way round. Whether the
/// device or a limit would refuse it, only trying tells.
///
/// @param would_grow  set to 1 or 0
/// @return as slicepool_would_fit()
///
/// Threads: any. Cost: as slicepool_would_fit().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_would_grow(
    allocator: *mut slicepool_allocator,
    request: *const slicepool_request,
    would_grow: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        if would_grow.is_null() {
            return code(&invalid(c"would_grow", 0));
        }
        let mut would_fit = 0;
        let result = slicepool_would_fit(allocator, request, &raw mut would_fit);
        if result == SLICEPOOL_OK {
            would_grow.write(1 - would_fit);
        }
        result
    }
}

/// The largest free range of any page, exactly.
///
/// @param largest_free  set to its bytes, 0 if nothing is free
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: a walk through one size class of each pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_largest_free(
    allocator: *mut slicepool_allocator,
    largest_free: *mut u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            abi::out(largest_free, c"largest_free")?.write(inner.largest_free());
            Ok(())
        })()
    })
}

/// sizeof(slicepool_request) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_request() -> u32 {
    size_of::<slicepool_request>() as u32
}

/// sizeof(slicepool_slice) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_slice() -> u32 {
    size_of::<slicepool_slice>() as u32
}
