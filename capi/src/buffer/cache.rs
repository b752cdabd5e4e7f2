//! Buffers that one thread keeps for itself.

use super::pool::slicepool_buffer_pool;
use crate::abi::{self, Refusal, invalid};
use crate::device::CallbackDevice;
use crate::host;
use crate::result::{SLICEPOOL_ERROR_BUSY, SLICEPOOL_OK, finish, slicepool_result};
use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ptr;
use slicepool_core::BufferCache;

/// Buffers that one thread keeps for itself: what it releases is what it gets next, without a lock.
///
/// Made for a thread, a task or a core, which alone uses it. When it has no buffer of a class, it gets half its
/// capacity from the class at once; when it is full, half of it goes back. Others cannot have meanwhile what it holds;
/// a request that finds its class exhausted has every cache give back what it holds of the class the next time it is
/// used.
pub struct slicepool_buffer_cache {
    inner: ManuallyDrop<BufferCache<CallbackDevice>>,
    /// Whose cache it is.
    pool: *const slicepool_buffer_pool,
    /// Calls that may be running callbacks.
    calls: Cell<u32>,
}

/// A call that may run callbacks, which must not destroy the cache meanwhile.
pub(super) struct Call<'a>(&'a Cell<u32>);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl slicepool_buffer_cache {
    /// # Safety
    /// `cache` is NULL or points to a live cache that no other thread uses.
    unsafe fn get<'a>(cache: *const Self) -> Result<&'a Self, Refusal> {
        // SAFETY: passed on from the caller.
        unsafe { abi::object(cache, c"cache") }
    }

    /// The cache if there is one, which must be the pool's.
    ///
    /// # Safety
    /// As [`Self::get`].
    pub(super) unsafe fn of<'a>(
        cache: *const Self,
        pool: *const slicepool_buffer_pool,
    ) -> Result<Option<&'a Self>, Refusal> {
        // SAFETY: passed on from the caller.
        match unsafe { cache.as_ref() } {
            Some(own) if own.pool != pool => Err(invalid(c"cache", cache.addr() as u64)),
            cache => Ok(cache),
        }
    }

    /// Whether the cache is that pool's, so that neither is NULL.
    #[inline(always)]
    pub(super) fn is_of(&self, pool: *const slicepool_buffer_pool) -> bool {
        self.pool == pool
    }

    /// Core's cache, for one call. Callbacks that it runs may use the cache too, so each call has its own view of it.
    #[inline(always)]
    pub(super) fn inner(&self) -> ManuallyDrop<BufferCache<CallbackDevice>> {
        // SAFETY: two pointers, of which only this object's copy is ever dropped.
        unsafe { ptr::read(&raw const self.inner) }
    }

    pub(super) fn enter(&self) -> Call<'_> {
        self.calls.set(self.calls.get() + 1);
        Call(&self.calls)
    }
}

/// Creates a cache for one thread. It holds nothing yet.
///
/// @param cache  set on success; to be destroyed by the caller, before the pool
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_CLOSED, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY
///
/// Threads: any. Cost: three host allocations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_cache_create(
    pool: *mut slicepool_buffer_pool,
    cache: *mut *mut slicepool_buffer_cache,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let object = slicepool_buffer_pool::get(pool)?;
            let cache = abi::out(cache, c"cache")?;
            let inner = ManuallyDrop::new(object.inner.cache()?);
            match host::place(object.memory, slicepool_buffer_cache { inner, pool, calls: Cell::new(0) }) {
                Ok(at) => cache.write(at.as_ptr()),
                Err((mut made, refusal)) => {
                    ManuallyDrop::drop(&mut made.inner);
                    return Err(refusal);
                }
            }
            Ok(())
        })()
    })
}

/// Gives back all buffers that the cache holds.
///
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: one at a time per cache. Cost: in proportion to the buffers; if the pool is closed and nothing else is out,
/// one device call a slab.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_cache_flush(cache: *mut slicepool_buffer_cache) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe { slicepool_buffer_cache::get(cache) }.map(|cache| {
        let _call = cache.enter();
        cache.inner().flush();
    }))
}

/// Gives back all buffers that the cache holds, and frees it. Its pool may have been closed. NULL is an error.
///
/// @return SLICEPOOL_ERROR_BUSY from within a callback that a call with this cache runs;
///         SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: exclusive. Cost: as slicepool_buffer_cache_flush(), and three host deallocations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_cache_destroy(cache: *mut slicepool_buffer_cache) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let object = match slicepool_buffer_cache::get(cache) {
            Ok(object) => object,
            Err(refusal) => return finish(Err(refusal)),
        };
        if object.calls.get() != 0 {
            return SLICEPOOL_ERROR_BUSY;
        }
        // What runs callbacks; after that there is nothing to give back.
        let call = object.enter();
        object.inner().flush();
        drop(call);
        // A cache keeps its pool from being destroyed, so that is still there.
        let memory = (*object.pool).memory;
        let mut taken = host::take(memory, cache);
        ManuallyDrop::drop(&mut taken.inner);
        SLICEPOOL_OK
    }
}
