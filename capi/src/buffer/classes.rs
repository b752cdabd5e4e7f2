//! What a config comes to.

use super::config::{limit, slicepool_buffer_pool_config};
use crate::abi::{self, Refusal, invalid};
use crate::result::{finish, finish_with, slicepool_result};
use slicepool_core::{BufferPoolClassConfig, BufferPoolConfig, Error};

/// Tells something of a config.
///
/// # Safety
/// `at` is NULL or points to `struct_size` bytes.
#[cold]
unsafe fn tell(
    at: *const slicepool_buffer_pool_config,
    make: &mut dyn FnMut(&BufferPoolConfig) -> Result<(), Refusal>,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe {
        let config = match abi::read(at) {
            Ok(config) => config,
            Err(refusal) => return finish(Err(refusal)),
        };
        finish_with(config.plan().and_then(|config| make(&config)), 0, config.failure)
    }
}

/// # Safety
/// `size` and `max_buffers` are NULL or the caller's.
unsafe fn write_class(class: BufferPoolClassConfig, size: *mut u64, max_buffers: *mut u32) -> Result<(), Refusal> {
    let (size, max_buffers) = (abi::out(size, c"size")?, abi::out(max_buffers, c"max_buffers")?);
    // SAFETY: passed on from the caller, and not NULL.
    unsafe {
        size.write(class.size.get() as u64);
        max_buffers.write(class.max_buffers.get());
    }
    Ok(())
}

/// What creating a pool checks of classes, alignment and pool_min_size, which may be set in any order.
///
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the first of the fields "alignment" (no power of two: `limit` is 0;
///         above the smallest class: `limit` is that) and "pool_min_size" (above the smallest class, which `limit`
///         tells); or "size" for a class that cannot be addressed
///
/// Threads: any, while none changes the config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_check(
    config: *const slicepool_buffer_pool_config,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { tell(config, &mut |config| Ok(config.check()?)) }
}

/// Number of classes.
///
/// @param count  set on success
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any, while none changes the config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_class_count(
    config: *const slicepool_buffer_pool_config,
    count: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        tell(config, &mut |config| {
            abi::out(count, c"count")?.write(config.size_classes().len() as u32);
            Ok(())
        })
    }
}

/// A class by its position.
///
/// @param index        in ascending order of size
/// @param size         set to the bytes of its buffers
/// @param max_buffers  set to its limit
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "index" if there are not so many
///
/// Threads: any, while none changes the config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_class_get(
    config: *const slicepool_buffer_pool_config,
    index: u32,
    size: *mut u64,
    max_buffers: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        tell(config, &mut |config| {
            let class = config.size_classes().nth(index as usize);
            write_class(class.ok_or_else(|| invalid(c"index", u64::from(index)))?, size, max_buffers)
        })
    }
}

/// The class that serves a request: the smallest that fits, whatever pool_min_size says.
///
/// @param request_size  bytes
/// @param size          set to the bytes of the class's buffers
/// @param max_buffers   set to its limit
/// @return SLICEPOOL_ERROR_OVERSIZED above the largest class, which `limit` tells
///
/// Threads: any, while none changes the config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_class_for(
    config: *const slicepool_buffer_pool_config,
    request_size: u64,
    size: *mut u64,
    max_buffers: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        tell(config, &mut |config| {
            let class = usize::try_from(request_size).ok().and_then(|size| config.class_for(size));
            let limit = config.max_size().get() as u64;
            write_class(class.ok_or(Error::Oversized { size: request_size, limit })?, size, max_buffers)
        })
    }
}

/// Bytes of the smallest class.
///
/// @param min_size  set on success
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any, while none changes the config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_min_size(
    config: *const slicepool_buffer_pool_config,
    min_size: *mut u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        tell(config, &mut |config| {
            abi::out(min_size, c"min_size")?.write(config.min_size().get() as u64);
            Ok(())
        })
    }
}

/// Bytes of the largest class.
///
/// @param max_size  set on success
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any, while none changes the config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_max_size(
    config: *const slicepool_buffer_pool_config,
    max_size: *mut u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        tell(config, &mut |config| {
            abi::out(max_size, c"max_size")?.write(config.max_size().get() as u64);
            Ok(())
        })
    }
}

/// Bytes of all buffers that the pool may create: neither its books nor what goes beyond the ceiling.
///
/// @param bytes  set on success; UINT64_MAX if they are more
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any, while none changes the config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_max_tracked_bytes(
    config: *const slicepool_buffer_pool_config,
    bytes: *mut u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        tell(config, &mut |config| {
            let of_class = |class: BufferPoolClassConfig| {
                (class.size.get() as u64).saturating_mul(u64::from(class.max_buffers.get()))
            };
            abi::out(bytes, c"bytes")?.write(config.size_classes().map(of_class).fold(0, u64::saturating_add));
            Ok(())
        })
    }
}

/// How many free buffers a cache keeps of a class with this limit.
///
/// @param max_buffers  the limit; not 0
/// @param capacity     set on success
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any, while none changes the config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_cache_capacity(
    config: *const slicepool_buffer_pool_config,
    max_buffers: u32,
    capacity: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        tell(config, &mut |config| {
            abi::out(capacity, c"capacity")?.write(config.cache_capacity(limit(max_buffers)?));
            Ok(())
        })
    }
}

/// Stripes of the freelist of a class with this limit: one for each expected thread and at least 8, but no more than
/// 4,096 or than there are buffers, and a power of two.
///
/// @param max_buffers  the limit; not 0
/// @param stripes      set on success
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any, while none changes the config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_stripes(
    config: *const slicepool_buffer_pool_config,
    max_buffers: u32,
    stripes: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        tell(config, &mut |config| {
            abi::out(stripes, c"stripes")?.write(config.stripes(limit(max_buffers)?));
            Ok(())
        })
    }
}
