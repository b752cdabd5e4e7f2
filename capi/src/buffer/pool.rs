//! Buffer pools: creating, closing, destroying.

use super::config::{SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED, slicepool_buffer_pool_config};
use crate::abi::{self, Refusal, invalid};
use crate::allocator::{SLICEPOOL_ABANDON_FORKED, SLICEPOOL_DESTROY_FORCE};
use crate::budget::{self, limit};
use crate::device::{CallbackDevice, slicepool_device};
use crate::host::{self, Books};
use crate::label::{number, read_name};
use crate::result::{finish, finish_with, slicepool_failure, slicepool_result};
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr;
use slicepool_core::{AllocatorOptions, BufferPool, DeviceFault, Error, HostMemory, LockKind, MemoryType};

/// A fixed-capacity pool of aligned, recyclable buffers with a hard ceiling, for I/O, DMA and registered memory.
///
/// It has classes of power-of-two sizes, each with its own limit. A request is served by the smallest class that fits,
/// and by no other. Memory comes from the device in slabs of at most 256 KiB, or one buffer if that is larger, as
/// buffers are first needed, or all at once (SLICEPOOL_BUFFER_POOL_PREFILL), and stays until the pool is closed.
/// Nothing lies in that memory but buffers. The books grow with the buffers that were created, not with the limits.
pub struct slicepool_buffer_pool {
    pub(super) inner: ManuallyDrop<BufferPool<CallbackDevice>>,
    pub(super) memory: HostMemory,
    user_data: *mut c_void,
}

impl slicepool_buffer_pool {
    /// # Safety
    /// `pool` is NULL or points to a live pool.
    #[inline]
    pub(super) unsafe fn get<'a>(pool: *const Self) -> Result<&'a Self, Refusal> {
        // SAFETY: passed on from the caller.
        unsafe { abi::object(pool, c"pool") }
    }
}

/// Where buffers lie.
///
/// # Safety
/// `device` and the config point to what the header demands.
#[cold]
unsafe fn read_device(
    device: *const slicepool_device,
    config: &slicepool_buffer_pool_config,
    lock: LockKind,
) -> Result<(CallbackDevice, MemoryType), Refusal> {
    let usual = if device.is_null() { BufferPool::HOST_MEMORY } else { MemoryType::default() };
    let memory_type = MemoryType::new(
        limit(config.max_page).unwrap_or(u64::MAX),
        limit(config.page_alignment).unwrap_or(usual.alignment),
    );
    // SAFETY: passed on from the caller.
    let device = unsafe {
        match (device.is_null(), config.memory.is_null()) {
            (false, false) => return Err(invalid(c"memory", config.memory.addr() as u64)),
            (_, true) if config.memory_bytes != 0 => return Err(invalid(c"memory_bytes", config.memory_bytes)),
            (false, true) => CallbackDevice::read(device)?,
            (true, true) => CallbackDevice::of_host(),
            (true, false) => {
                let bytes = config.memory_bytes;
                let (memory, size) = host::block(config.memory, c"memory", bytes, c"memory_bytes")?;
                let block = HostMemory::in_block(memory, size, lock).map_err(|_| invalid(c"memory_bytes", bytes))?;
                CallbackDevice::of_block(block).map_err(|_| invalid(c"memory_bytes", bytes))?
            }
        }
    };
    Ok((device, memory_type))
}

#[cold]
unsafe fn create(
    device: *const slicepool_device,
    config: &slicepool_buffer_pool_config,
    books: &Books,
    pool: *mut *mut slicepool_buffer_pool,
) -> Result<(), Refusal> {
    let pool = abi::out(pool, c"pool")?;
    let plan = config.plan()?;
    plan.check()?;
    // SAFETY: the contract of the public function.
    let (device, memory_type, host_memory, lock, name) = unsafe {
        let host = host::read(config.host)?;
        let mut lock = host.lock;
        if config.flags & SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED != 0 {
            lock = LockKind::unlocked();
        }
        let name = read_name(config.name)?;
        let (device, memory_type) = read_device(device, config, lock)?;
        (device, memory_type, host.books(books, lock)?, lock, name)
    };
    let mut options =
        AllocatorOptions::default().with_memory(host_memory).with_lock(lock).with_memory_type(memory_type);
    options.max_bytes = limit(config.max_bytes);
    options.max_pages = limit(config.max_pages);
    options.name = name;
    options.user_data = number(config.user_data);
    if config.growth_wait_steps != 0 {
        options.growth_wait_steps = config.growth_wait_steps;
    }
    if !config.budget.is_null() {
        // SAFETY: the contract of the public function.
        options = options.with_budget(&*unsafe { budget::get(config.budget)? });
    }
    let mut inner = ManuallyDrop::new(BufferPool::with_device(device, plan, options)?);
    let object = slicepool_buffer_pool { inner, memory: host_memory, user_data: config.user_data };
    match host::place(host_memory, object) {
        // SAFETY: not NULL, the caller provides it.
        Ok(at) => unsafe { pool.write(at.as_ptr()) },
        Err((object, refusal)) => {
            inner = object.inner;
            // SAFETY: moved out of what is forgotten.
            unsafe { ManuallyDrop::drop(&mut inner) };
            return Err(refusal);
        }
    }
    Ok(())
}

/// Creates a buffer pool. Takes nothing from the device yet, unless it is prefilled.
///
/// @param device  copied; its user_data must stay valid until the pool is gone. NULL: buffers lie in config->memory or,
///                without that, in the C library's memory
/// @param config  copied with all it points to; may be NULL for the defaults
/// @param pool    set on success; to be destroyed or abandoned by the caller
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT (config->failure names the field, as slicepool_buffer_pool_config_check()
///         does; "memory" for a block beside a device; "size" for a class whose buffers are larger than max_page),
///         SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_VERSION_MISMATCH. If it is to be prefilled, what
///         slicepool_buffer_acquire() answers where a buffer has to be created, with the field "prefill" and the bytes
///         of the class's buffers as `value`; the device and the host have everything back then
///
/// Threads: any. Cost: a few host allocations per class; prefilled, one device call and a look at each buffer besides.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_create(
    device: *const slicepool_device,
    config: *const slicepool_buffer_pool_config,
    pool: *mut *mut slicepool_buffer_pool,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        match abi::read_or_default(config) {
            Ok(config) => finish_with(create(device, &config, &Books::Host, pool), 0, config.failure),
            Err(refusal) => finish(Err(refusal)),
        }
    }
}

/// Creates a buffer pool all of whose bookkeeping, that of its caches, and itself, lives in a block of memory that the
/// caller provides. It never asks for more: when the block is full, calls answer SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY.
/// Buffers do not lie in that block: for them there is config->memory.
///
/// What a pool needs depends on its classes, their stripes and its caches, some KiB for each, and grows with the
/// buffers it creates, by about 40 bytes for each; slicepool_buffer_pool_statistics.metadata_bytes tells, and a block
/// wants some more than that.
///
/// @param device  as for slicepool_buffer_pool_create()
/// @param config  as for slicepool_buffer_pool_create(); its host must not have `allocate`
/// @param memory  at any address; the library's own until the pool is destroyed or abandoned, then the caller's again
/// @param bytes   of the block
/// @param pool    set on success; lies in the block
/// @return as slicepool_buffer_pool_create(); SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY if the block is too small even for
///         that
///
/// Threads: any. Cost: as slicepool_buffer_pool_create(), without host allocations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_create_in(
    device: *const slicepool_device,
    config: *const slicepool_buffer_pool_config,
    memory: *mut c_void,
    bytes: u64,
    pool: *mut *mut slicepool_buffer_pool,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        match abi::read_or_default(config) {
            Ok(config) => {
                let books = Books::Block { memory, bytes };
                finish_with(create(device, &config, &books, pool), 0, config.failure)
            }
            Err(refusal) => finish(Err(refusal)),
        }
    }
}

/// Hands out nothing any more. Caches give back what they hold the next time they are used, or when they are destroyed.
/// When the last buffer is back, the device gets all memory back, from the thread that brought it, also long after this
/// has returned. Buffers that are out stay as they are. Closing a pool twice is no error. It is still to be destroyed.
///
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: a look at each stripe of each class; one device call a slab if nothing is out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_close(pool: *mut slicepool_buffer_pool) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe { slicepool_buffer_pool::get(pool) }.map(|pool| pool.inner.close()))
}

/// Closes the pool, gives all memory back to the device and frees the pool. No callback comes after this returns.
///
/// @param pool     not used by anybody else any more, unless the call fails
/// @param flags    SLICEPOOL_DESTROY_FORCE: also if buffers are out, which nobody may use any more, or the device
///                 refuses to take memory back
/// @param failure  may be NULL; `live` tells how many buffers are out, `in_flight` how many caches there are
/// @return SLICEPOOL_ERROR_BUSY while buffers are out or there are caches (with FORCE only the caches count), or a
///         callback of this pool is running (so from within one, FORCE or not); nothing has changed then.
///         SLICEPOOL_ERROR_DEVICE_FAILED if the device refuses to take memory back: the pool is closed then, and can be
///         destroyed again
///
/// Threads: exclusive. Cost: one device call a slab.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_destroy(
    pool: *mut slicepool_buffer_pool,
    flags: u32,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    let force = flags & SLICEPOOL_DESTROY_FORCE != 0;
    // SAFETY: the caller passes what the header demands. Callbacks that use the pool find it where it was until it is
    // gone.
    unsafe {
        let outcome = (|| {
            let object = slicepool_buffer_pool::get(pool)?;
            if flags & !SLICEPOOL_DESTROY_FORCE != 0 {
                return Err(invalid(c"flags", u64::from(flags)));
            }
            object.inner.check_idle()?;
            let memory = object.memory;
            match ManuallyDrop::into_inner(ptr::read(&raw const (*pool).inner)).destroy(force) {
                Ok(()) => {}
                // It was asked; with FORCE nobody wants to know.
                Err((inner, Error::DeviceFailed { fault: DeviceFault::Refused, .. })) if force => drop(inner),
                Err((inner, error)) => {
                    // It is where it was.
                    core::mem::forget(inner);
                    return Err(error.into());
                }
            }
            let _: slicepool_buffer_pool = host::take(memory, pool);
            Ok(())
        })();
        finish_with(outcome, 0, failure)
    }
}

/// Frees the pool's host memory without a word to the device: for process exit, a lost device, or a forked child, which
/// may call nothing else of its parent's pools.
///
/// @param pool   not used by anybody else any more, and neither are its buffers, unless the call fails
/// @param flags  SLICEPOOL_ABANDON_FORKED in a forked child, where host memory of the pool's caches is lost
/// @return SLICEPOOL_ERROR_BUSY while there are caches or a callback of this pool is running, unless forked
///
/// Threads: exclusive. Cost: a few host deallocations per class.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_abandon(
    pool: *mut slicepool_buffer_pool,
    flags: u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let object = slicepool_buffer_pool::get(pool)?;
            if flags & !SLICEPOOL_ABANDON_FORKED != 0 {
                return Err(invalid(c"flags", u64::from(flags)));
            }
            let memory = object.memory;
            let forked = flags & SLICEPOOL_ABANDON_FORKED != 0;
            if !forked {
                object.inner.check_idle()?;
            }
            let inner = ManuallyDrop::into_inner(ptr::read(&raw const (*pool).inner));
            if forked {
                inner.abandon_forked();
            } else if let Err((inner, error)) = inner.abandon() {
                // It is where it was.
                core::mem::forget(inner);
                return Err(error.into());
            }
            let _: slicepool_buffer_pool = host::take(memory, pool);
            Ok(())
        })()
    })
}

/// What slicepool_buffer_pool_config.user_data was.
///
/// @param user_data  set on success
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_user_data_get(
    pool: *mut slicepool_buffer_pool,
    user_data: *mut *mut c_void,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let pool = slicepool_buffer_pool::get(pool)?;
            abi::out(user_data, c"user_data")?.write(pool.user_data);
            Ok(())
        })()
    })
}
