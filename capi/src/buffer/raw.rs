//! Buffers: acquiring, releasing, looking.

use super::cache::slicepool_buffer_cache;
use super::pool::slicepool_buffer_pool;
use crate::abi::{self, Refusal, Struct, invalid};
use crate::result::{SLICEPOOL_OK, finish, finish_with, slicepool_failure, slicepool_result};
use core::ffi::{CStr, c_void};
use core::ptr;
use slicepool_core::{BufferId, Error, RawBuffer};

/// The bytes asked for are zero; what is behind them is not looked at. Where the CPU sees the memory it is filled by
/// the CPU, otherwise by the device's callback `fill`, which gets a size that is a multiple of 4 (but for buffers of 1
/// and 2 bytes), and must be done when it returns.
pub const SLICEPOOL_BUFFER_ZERO: u32 = 1;
/// If the classes refuse, or the request is below pool_min_size: a buffer of exactly that many bytes that belongs to no
/// class. It is a page of the device's of its own, beyond the pool's ceiling, and goes back when it is released.
pub const SLICEPOOL_BUFFER_UNTRACKED: u32 = 2;

/// A buffer: [offset, offset + size) of the device memory named `memory`. Copy it freely; only `id` is ever trusted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_buffer {
    /// sizeof(slicepool_buffer), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// What releases the buffer; never given out again. 0 for an empty buffer, of which everything is 0.
    pub id: u64,
    /// Handle of the device memory that it lies in, as the device filled it in.
    pub memory: u64,
    /// Bytes from the start of that memory.
    pub offset: u64,
    /// Bytes that it has room for: those of its class, or those asked for if it belongs to none.
    pub size: u64,
    /// Address of the buffer as the device sees it, 0 if the device gives none.
    pub address: u64,
    /// Where the CPU sees the buffer, NULL if the device has not mapped its memory for good.
    pub mapped: *mut c_void,
    /// NULL.
    pub reserved_pointer: *mut c_void,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_buffer {
    const NAME: &'static CStr = c"buffer";
    const MIN_SIZE: u32 = 16;
}

impl From<&RawBuffer> for slicepool_buffer {
    #[inline(always)]
    fn from(buffer: &RawBuffer) -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            reserved: 0,
            id: buffer.id.map_or(0, BufferId::to_raw),
            memory: buffer.memory,
            offset: buffer.offset,
            size: buffer.capacity,
            address: buffer.address,
            mapped: buffer.mapped.cast(),
            reserved_pointer: ptr::null_mut(),
        }
    }
}

/// Hands out a buffer of at least `size` bytes, whatever it contains.
///
/// A request of 0 bytes succeeds with an empty buffer, which takes nothing from the pool, and whose id 0 may be
/// released like any other. (Slices of size 0 are an error, unless there is a pool that takes them.)
///
/// @param cache    one of the pool's, or NULL: the freelists that all threads share
/// @param size     bytes
/// @param flags    SLICEPOOL_BUFFER_ flags
/// @param buffer   filled in on success; its struct_size must be set
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_OVERSIZED above the largest class (`limit`); SLICEPOOL_ERROR_EXHAUSTED if all buffers of the
///         class are out or in caches (`size` of the class, `limit`, `pending`: in caches, `in_flight`: slabs just
///         being taken); SLICEPOOL_ERROR_CLOSED; SLICEPOOL_ERROR_INVALID_ARGUMENT (NULL; unknown flags; "cache" for one
///         of another pool); and where a buffer has to be created or SLICEPOOL_BUFFER_UNTRACKED leads to the device,
///         SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_ERROR_BUDGET_EXCEEDED,
///         SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED, SLICEPOOL_ERROR_TOO_LARGE, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY,
///         SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED (pages that add up to more than 2^64 bytes),
///         SLICEPOOL_ERROR_TOO_MANY_SLICES, SLICEPOOL_ERROR_BUSY; SLICEPOOL_ERROR_NOT_SUPPORTED for
///         SLICEPOOL_BUFFER_ZERO if the CPU does not see the memory and the device has no `fill`
///
/// After the device has had no memory, it is not asked for a page as large again for a while, as with
/// slicepool_allocate().
///
/// Threads: any without a cache; otherwise one at a time per cache. Cost: constant, whatever the limits, and no lock
/// where the cache has a buffer; one device call where a slab is taken; before SLICEPOOL_ERROR_EXHAUSTED a look at
/// every cache. Callbacks run on the calling thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_acquire(
    pool: *mut slicepool_buffer_pool,
    cache: *mut slicepool_buffer_cache,
    size: u64,
    flags: u32,
    buffer: *mut slicepool_buffer,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        if let (Some(own), Some(out)) = (cache.as_ref(), (flags == 0).then_some(buffer)) {
            if own.is_of(pool) && !out.is_null() {
                let out_size = (&raw const (*out).struct_size).read_unaligned();
                if out_size as usize == size_of::<slicepool_buffer>() {
                    if let Some(taken) = own.inner().take_cached(size as usize) {
                        abi::write(out, out_size, &slicepool_buffer::from(&taken));
                        return SLICEPOOL_OK;
                    }
                }
            }
        }
        acquire(pool, cache, size, flags, buffer, failure)
    }
}

/// slicepool_buffer_acquire() where no cache has a buffer, and where something is wrong.
///
/// # Safety
/// As slicepool_buffer_acquire().
#[inline(never)]
unsafe fn acquire(
    pool: *mut slicepool_buffer_pool,
    cache: *mut slicepool_buffer_cache,
    size: u64,
    flags: u32,
    buffer: *mut slicepool_buffer,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe {
        let outcome = (|| {
            let inner = &slicepool_buffer_pool::get(pool)?.inner;
            let cache = slicepool_buffer_cache::of(cache, pool)?;
            let out_size = abi::struct_size(buffer)?;
            let has = |flag| flags & flag != 0;
            if has(!(SLICEPOOL_BUFFER_ZERO | SLICEPOOL_BUFFER_UNTRACKED)) {
                return Err(invalid(c"flags", u64::from(flags)));
            }
            let (untracked, zeroed) = (has(SLICEPOOL_BUFFER_UNTRACKED), has(SLICEPOOL_BUFFER_ZERO));
            let too_large = |_| Error::Oversized { size, limit: inner.config().max_size().get() as u64 };
            let size = usize::try_from(size).map_err(too_large)?;
            let taken = match cache {
                Some(cache) => {
                    let _call = cache.enter();
                    cache.inner().take(size, untracked, zeroed)?
                }
                None => inner.take(size, untracked, zeroed)?,
            };
            abi::write(buffer, out_size, &slicepool_buffer::from(&taken));
            Ok::<(), Refusal>(())
        })();
        if outcome.is_ok() { SLICEPOOL_OK } else { finish_with(outcome, 0, failure) }
    }
}

/// slicepool_buffer_acquire() with SLICEPOOL_BUFFER_ZERO.
///
/// @param flags  other SLICEPOOL_BUFFER_ flags
/// @return as slicepool_buffer_acquire()
///
/// Threads: as slicepool_buffer_acquire(). Cost: that of slicepool_buffer_acquire(), and of filling `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_acquire_zeroed(
    pool: *mut slicepool_buffer_pool,
    cache: *mut slicepool_buffer_cache,
    size: u64,
    flags: u32,
    buffer: *mut slicepool_buffer,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { acquire(pool, cache, size, flags | SLICEPOOL_BUFFER_ZERO, buffer, failure) }
}

/// Takes a buffer back. Any thread may release what another acquired, with a cache or without. Of several threads with
/// one id, one succeeds.
///
/// @param cache  one of the pool's, which keeps the buffer if it has room; or NULL: the freelists that all threads
///               share
/// @param id     of a buffer that is out; 0 is ignored
/// @return SLICEPOOL_ERROR_STALE_HANDLE if it has been released before, SLICEPOOL_ERROR_FOREIGN_HANDLE if it was never
///         this pool's, SLICEPOOL_ERROR_INVALID_ARGUMENT ("cache" for one of another pool); nothing changes then
///
/// Threads: any without a cache; otherwise one at a time per cache. Cost: constant, and no lock where the cache has
/// room; one device call for a buffer that belongs to no class; one a slab for the last buffer of a pool that is
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_release(
    pool: *mut slicepool_buffer_pool,
    cache: *mut slicepool_buffer_cache,
    id: u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        if let (Some(own), Some(id)) = (cache.as_ref(), BufferId::from_raw(id)) {
            if own.is_of(pool) {
                // The last buffer of a closed pool, and one that belongs to no class, lead to the device.
                let _call = own.enter();
                return match own.inner().release_raw(id) {
                    Ok(()) => SLICEPOOL_OK,
                    Err(error) => finish(Err(error.into())),
                };
            }
        }
        release(pool, cache, id)
    }
}

/// slicepool_buffer_release() without a cache, and where something is wrong.
///
/// # Safety
/// As slicepool_buffer_release().
#[inline(never)]
unsafe fn release(pool: *mut slicepool_buffer_pool, cache: *mut slicepool_buffer_cache, id: u64) -> slicepool_result {
    // SAFETY: passed on from the caller.
    let outcome = unsafe {
        slicepool_buffer_pool::get(pool).and_then(|pool| {
            slicepool_buffer_cache::of(cache, pool)?;
            BufferId::from_raw(id).map_or(Ok(()), |id| Ok(pool.inner.release(id)?))
        })
    };
    if outcome.is_ok() { SLICEPOOL_OK } else { finish(outcome) }
}

/// The buffer of a handle, as it was handed out.
///
/// @param buffer  filled in on success; its struct_size must be set
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (id 0)
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_get(
    pool: *mut slicepool_buffer_pool,
    id: u64,
    buffer: *mut slicepool_buffer,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let pool = slicepool_buffer_pool::get(pool)?;
            let size = abi::struct_size(buffer)?;
            let found = pool.inner.get(BufferId::from_raw(id).ok_or_else(|| invalid(c"id", 0))?)?;
            abi::write(buffer, size, &slicepool_buffer::from(&found));
            Ok(())
        })()
    })
}

/// sizeof(slicepool_buffer) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_buffer() -> u32 {
    size_of::<slicepool_buffer>() as u32
}
