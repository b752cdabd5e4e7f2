//! What a buffer pool says of itself.

use super::pool::slicepool_buffer_pool;
use crate::abi::{self, Struct, invalid};
use crate::result::{finish, slicepool_result};
use core::ffi::{CStr, c_void};
use core::ptr;
use slicepool_core::BufferRegion;

/// Figures of a buffer pool. Each is right by itself; those of a pool in use may belong to different instants.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_buffer_pool_statistics {
    /// sizeof(slicepool_buffer_pool_statistics), set by the caller.
    pub struct_size: u32,
    /// Classes.
    pub classes: u32,
    /// Requests above the largest class.
    pub oversized: u64,
    /// Requests below pool_min_size that went past the classes.
    pub bypassed: u64,
    /// Bytes held from the device.
    pub reserved_bytes: u64,
    /// Bytes of host memory that the books take.
    pub metadata_bytes: u64,
    /// Caches there are.
    pub caches: u32,
    /// Buffers out that belong to no class.
    pub untracked: u32,
    /// 1 if the pool has been closed, otherwise 0.
    pub closed: u32,
    /// 0.
    pub reserved: u32,
}

/// Figures of one class. Each is right by itself; those of a pool in use may belong to different instants.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_buffer_class_statistics {
    /// sizeof(slicepool_buffer_class_statistics), set by the caller.
    pub struct_size: u32,
    /// Buffers that the class may have.
    pub limit: u32,
    /// Bytes of each buffer.
    pub size: u64,
    /// Requests that a cache has served.
    pub hits: u64,
    /// Times that a cache was empty and got buffers from the freelist.
    pub refills: u64,
    /// Times that a cache was full and gave half its buffers to the freelist.
    pub spills: u64,
    /// Requests that found no buffer.
    pub exhausted: u64,
    /// Buffers that the class has had from the device. They stay until the pool is closed.
    pub created: u32,
    /// Buffers in users' hands.
    pub in_use: u32,
    /// Buffers in caches.
    pub cached: u32,
    /// Buffers in the freelist.
    pub free: u32,
    /// Buffers that will not be handed out again: each after more than 2^34 handles.
    pub retired: u32,
    /// Stripes of the freelist.
    pub stripes: u32,
    /// Buffers that a cache keeps at most.
    pub cache_capacity: u32,
    /// 0.
    pub reserved: u32,
}

/// One piece of the device's memory that buffers of a class lie in, one behind the other from its start.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_buffer_region {
    /// sizeof(slicepool_buffer_region), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Bytes of each buffer.
    pub buffer_size: u64,
    /// Handle of the device memory.
    pub memory: u64,
    /// Bytes from the start of that memory.
    pub base: u64,
    /// Bytes of the region.
    pub bytes: u64,
    /// Address as the device sees it, 0 if the device gives none.
    pub address: u64,
    /// Where the CPU sees it, NULL if the device has not mapped the memory for good.
    pub mapped: *mut c_void,
    /// NULL.
    pub reserved_pointer: *mut c_void,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_buffer_pool_statistics {
    const NAME: &'static CStr = c"statistics";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_buffer_class_statistics {
    const NAME: &'static CStr = c"statistics";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_buffer_region {
    const NAME: &'static CStr = c"regions";
}

impl From<BufferRegion> for slicepool_buffer_region {
    fn from(region: BufferRegion) -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            reserved: 0,
            buffer_size: region.buffer_size,
            memory: region.memory,
            base: region.base,
            bytes: region.bytes,
            address: region.address,
            mapped: region.mapped.cast(),
            reserved_pointer: ptr::null_mut(),
        }
    }
}

/// Figures of a buffer pool.
///
/// @param statistics  filled in; its struct_size must be set
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: a look at each stripe of each class.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_statistics_get(
    pool: *mut slicepool_buffer_pool,
    statistics: *mut slicepool_buffer_pool_statistics,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let pool = slicepool_buffer_pool::get(pool)?;
            let size = abi::struct_size(statistics)?;
            let found = pool.inner.statistics();
            let filled = slicepool_buffer_pool_statistics {
                struct_size: size,
                classes: found.classes,
                oversized: found.oversized,
                bypassed: found.bypassed,
                reserved_bytes: found.reserved,
                metadata_bytes: found.metadata,
                caches: found.caches,
                untracked: found.untracked,
                closed: u32::from(pool.inner.is_closed()),
                reserved: 0,
            };
            abi::write(statistics, size, &filled);
            Ok(())
        })()
    })
}

/// Figures of one class.
///
/// @param index       position of the class in ascending order of size, as in slicepool_buffer_pool_config_class_get()
/// @param statistics  filled in on success; its struct_size must be set
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT, also if there are not so many
///
/// Threads: any. Cost: a look at each stripe of the class and at each cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_class_statistics_get(
    pool: *mut slicepool_buffer_pool,
    index: u32,
    statistics: *mut slicepool_buffer_class_statistics,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let pool = slicepool_buffer_pool::get(pool)?;
            let size = abi::struct_size(statistics)?;
            let found = pool.inner.class_statistics(index as usize);
            let found = found.ok_or_else(|| invalid(c"index", u64::from(index)))?;
            let filled = slicepool_buffer_class_statistics {
                struct_size: size,
                limit: found.limit,
                size: found.size,
                hits: found.hits,
                refills: found.refills,
                spills: found.spills,
                exhausted: found.exhausted,
                created: found.created,
                in_use: found.in_use,
                cached: found.cached,
                free: found.free,
                retired: found.retired,
                stripes: found.stripes,
                cache_capacity: found.cache_capacity,
                reserved: 0,
            };
            abi::write(statistics, size, &filled);
            Ok(())
        })()
    })
}

/// The memory that buffers lie in, class by class in ascending order of size: for registering it with whoever is to
/// access it.
///
/// With SLICEPOOL_BUFFER_POOL_PREFILL there is one region for each class, and they never change; otherwise regions are
/// added as buffers are created. Buffers that belong to no class are not in them.
///
/// @param regions   `capacity` structs, of which the first has its struct_size set; may be NULL if capacity is 0
/// @param count     set to the number of regions: if it is above capacity, only the first were written
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: one look at each region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_regions(
    pool: *mut slicepool_buffer_pool,
    regions: *mut slicepool_buffer_region,
    capacity: u32,
    count: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = &slicepool_buffer_pool::get(pool)?.inner;
            let count = abi::out(count, c"count")?;
            let stride = if capacity == 0 { 0 } else { abi::struct_size(regions)? };
            let mut found = 0;
            for region in inner.regions() {
                if found < capacity as usize {
                    // The element is one of the `capacity` ones. Those after the first need not be initialised.
                    let at = regions.byte_add(stride as usize * found);
                    abi::zero(at, stride);
                    abi::write(at, stride, &slicepool_buffer_region::from(region));
                }
                found += 1;
            }
            count.write(found as u32);
            Ok(())
        })()
    })
}

/// sizeof(slicepool_buffer_pool_statistics) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_buffer_pool_statistics() -> u32 {
    size_of::<slicepool_buffer_pool_statistics>() as u32
}

/// sizeof(slicepool_buffer_class_statistics) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_buffer_class_statistics() -> u32 {
    size_of::<slicepool_buffer_class_statistics>() as u32
}

/// sizeof(slicepool_buffer_region) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_buffer_region() -> u32 {
    size_of::<slicepool_buffer_region>() as u32
}
