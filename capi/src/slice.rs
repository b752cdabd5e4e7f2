//! Slices: allocating, freeing, looking.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::allocator::slicepool_allocator;
use crate::device::CallbackDevice;
use crate::label::pointer;
use crate::parts::{COMPLETE, check_parts};
use crate::request::{SLICEPOOL_REQUEST_IN_POOL, request_at, slicepool_request};
use crate::result::{
    SLICEPOOL_OK, TypeReasons, code, finish, finish_with, slicepool_failure, slicepool_result, split, write_failure,
};
use core::ffi::c_void;
use core::ptr;
use slicepool_core::{Allocator, Error, Label, Request, Slice, SliceId};

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
unsafe impl Struct for slicepool_slice {
    const NAME: &'static core::ffi::CStr = c"slice";
    const MIN_SIZE: u32 = 16;
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
    /// Whether the caller's struct is as large as ours.
    ///
    /// # Safety
    /// `to` is NULL or points to a struct that begins with its size.
    #[inline(always)]
    unsafe fn is_ours(to: *const Self) -> bool {
        // SAFETY: passed on from the caller.
        !to.is_null() && unsafe { (&raw const (*to).struct_size).read_unaligned() } as usize == size_of::<Self>()
    }

    /// [`abi::write`] of a slice without user data, field by field: what has just been computed is not copied.
    ///
    /// # Safety
    /// `to` points to a struct that is as large as ours.
    #[inline(always)]
    unsafe fn write_all(to: *mut Self, slice: &Slice) {
        // SAFETY: passed on from the caller.
        unsafe {
            (&raw mut (*to).reserved).write_unaligned(0);
            (&raw mut (*to).id).write_unaligned(slice.id.to_raw());
            (&raw mut (*to).memory).write_unaligned(slice.memory);
            (&raw mut (*to).offset).write_unaligned(slice.offset);
            (&raw mut (*to).size).write_unaligned(slice.size);
            (&raw mut (*to).address).write_unaligned(slice.address);
            (&raw mut (*to).mapped).write_unaligned(slice.mapped.cast());
            (&raw mut (*to).user_data).write_unaligned(ptr::null_mut());
        }
    }

    /// A slice with what is attached to it.
    #[cold]
    pub(crate) fn with_user_data(inner: &Allocator<CallbackDevice>, slice: &Slice) -> Self {
        let user_data = inner.get_with_user_data(slice.id).map_or(0, |(_, user_data)| user_data);
        Self { user_data: pointer(user_data), ..Self::from(slice) }
    }
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
        if let (Some((bytes, alignment)), Ok(inner)) = (slicepool_request::read_plain(request), get_usual(allocator)) {
            if slicepool_slice::is_ours(slice) {
                let placed = inner.allocate_usual_then(bytes, alignment, None, |placed| {
                    slicepool_slice::write_all(slice, &placed);
                });
                return match placed {
                    Ok(()) => SLICEPOOL_OK,
                    Err(error) => finish_with(Err(error.into()), 0, (&raw const (*request).failure).read_unaligned()),
                };
            }
        }
        allocate_usually(allocator, request, slice)
    }
}

/// The allocator, if requests may be made the short way.
///
/// # Safety
/// As [`slicepool_allocator::get`].
#[inline(always)]
unsafe fn get_usual<'a>(allocator: *mut slicepool_allocator) -> Result<&'a Allocator<CallbackDevice>, ()> {
    // SAFETY: passed on from the caller.
    match unsafe { slicepool_allocator::get(allocator) } {
        Ok(inner) if inner.is_usual() => Ok(inner),
        _ => Err(()),
    }
}

/// slicepool_allocate() of requests that say which memory they want, and in allocators with several kinds of it: each may
/// have a reason of its own for a refusal.
///
/// # Safety
/// As slicepool_allocate().
#[inline(never)]
unsafe fn allocate_usually(
    allocator: *mut slicepool_allocator,
    request: *const slicepool_request,
    slice: *mut slicepool_slice,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe {
        let usual = slicepool_request::read_usual(request);
        let (Some((usual, failure)), Ok(inner), Ok(size)) =
            (usual, slicepool_allocator::get(allocator), abi::struct_size(slice))
        else {
            return allocate_unusually(allocator, request, slice);
        };
        let mut reasons = TypeReasons::default();
        let mut tell = |memory_type, error| reasons.note(memory_type, error);
        match inner.allocate_explained(&usual, &Label::NONE, &mut tell) {
            Ok(placed) => {
                abi::write(slice, size, &slicepool_slice::from(&placed));
                SLICEPOOL_OK
            }
            Err(error) => write_failure(&error.into(), 0, &reasons, failure),
        }
    }
}

/// Does something with a request; the details of a failure go where it says.
///
/// # Safety
/// `request` is NULL or points to `struct_size` readable bytes, and its `failure` is as the header demands.
unsafe fn with_request(
    request: *const slicepool_request,
    act: impl FnOnce(&slicepool_request) -> Result<(), Refusal>,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe {
        match abi::read(request) {
            Ok(request) => finish_with(act(&request), 0, request.failure),
            Err(refusal) => code(&refusal),
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
        with_request(request, |request| {
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
            Ok(())
        })
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
    match (unsafe { slicepool_allocator::get(allocator) }, SliceId::from_raw(id)) {
        (Ok(inner), Some(id)) => {
            if inner.free_usual(id) {
                SLICEPOOL_OK
            } else {
                finish(inner.free_otherwise(id).map_err(Refusal::from))
            }
        }
        (Ok(_), None) => SLICEPOOL_OK,
        (Err(refusal), _) => finish(Err(refusal)),
    }
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

/// Gives a slice another size where it lies. Never moves it, never calls the device. What a slice with
/// SLICEPOOL_REQUEST_ZERO grows by is not zeroed.
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
        with_request(request, |request| {
            let inner = slicepool_allocator::get(allocator)?;
            let would_fit = abi::out(would_fit, c"would_fit")?;
            would_fit.write(inner.would_fit(&request.check()?)?.into());
            Ok(())
        })
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

/// sizeof(slicepool_slice) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_slice() -> u32 {
    size_of::<slicepool_slice>() as u32
}
