//! What buffer pools are asked for.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::budget::slicepool_budget;
use crate::host::slicepool_host;
use crate::result::{finish, finish_with, slicepool_failure, slicepool_result};
use crate::runtime::page_size;
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};
use core::mem::offset_of;
use core::num::{NonZeroU32, NonZeroUsize};
use slicepool_core::{BufferConfigError, BufferPoolClassConfig, BufferPoolConfig};

/// Every buffer is created when the pool is, those of a class in one piece. If that fails, nothing has been taken.
pub const SLICEPOOL_BUFFER_POOL_PREFILL: u32 = 1;
/// The caller lets one thread at a time into the pool and all its caches: no lock is taken.
pub const SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED: u32 = 2;

/// How a buffer pool is made: size classes, a limit for each, and how threads share the buffers. All zero but
/// `struct_size` is a good start.
///
/// Classes have powers of two as sizes and need not be contiguous; a request goes to the smallest that fits. Fill in
/// the fields, or have the functions below do it: each changes a config in place, those that fail leave it as it is,
/// and the details of a failure go to `failure`. Those that shape the classes take them as the one before left them, so
/// their order matters.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_buffer_pool_config {
    /// sizeof(slicepool_buffer_pool_config), set by the caller.
    pub struct_size: u32,
    /// SLICEPOOL_BUFFER_POOL_ flags.
    pub flags: u32,
    /// Requests of fewer bytes do not use the classes if they have SLICEPOOL_BUFFER_UNTRACKED. At most the smallest
    /// class.
    pub pool_min_size: u64,
    /// Every buffer lies at a multiple of this power of two, at most the smallest class; 0: 1.
    pub alignment: u64,
    /// Threads that are expected to use the pool at a time, which set the stripes of its freelists and the capacity of
    /// automatic caches; 0: 1.
    pub parallelism: u64,
    /// Free buffers of each class that a cache keeps at most, or all that a smaller class has. 0: half of the class,
    /// divided by parallelism; UINT64_MAX: none.
    pub max_thread_cache_capacity: u64,
    /// The largest page the device gives out; 0: no limit.
    pub max_page: u64,
    /// Every page is asked for at a multiple of this power of two, or of `alignment` if that is more; 0: 4096, or 64
    /// for host memory.
    pub page_alignment: u64,
    /// Bytes that the pool may hold from the device, pages that are just being taken included; 0: as many as it gives.
    pub max_bytes: u64,
    /// Bytes of `memory`; otherwise 0.
    pub memory_bytes: u64,
    /// `limits[i]`: how many buffers of 2^i bytes there may be at a time; 0: the class is not enabled. If none is, the
    /// classes are those of slicepool_buffer_pool_config_for_network().
    pub limits: [u32; 64],
    /// Pages that the pool may hold, counted as for max_bytes; 0: any number.
    pub max_pages: u32,
    /// Back-off steps for which a request waits for a page that another call is just getting, before it gets its own;
    /// 0: 32. As slicepool_allocator_config.growth_wait_steps.
    pub growth_wait_steps: u32,
    /// The block of memory that buffers lie in, at any address: a static array, a registered region. The pool's own
    /// until it is destroyed or abandoned; fewer than 300 bytes at its start are not used for buffers. NULL: buffers
    /// lie in memory of the device.
    pub memory: *mut c_void,
    /// Host memory for the books, and lock; NULL: the C library's memory, and a spin lock that yields.
    pub host: *const slicepool_host,
    /// Limits shared with allocators and other pools; NULL: none. The pool becomes one of its owners.
    pub budget: *mut slicepool_budget,
    /// Where the details of a failed creation, or of a failed change of the config, go; may be NULL.
    pub failure: *mut slicepool_failure,
    /// A name for events, NUL-terminated UTF-8, of which SLICEPOOL_MAX_NAME bytes are kept; may be NULL.
    pub name: *const c_char,
    /// Anything that the program wants to keep with the pool: slicepool_buffer_pool_user_data_get().
    pub user_data: *mut c_void,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_buffer_pool_config {
    const NAME: &'static CStr = c"config";
}

/// A number that is not 0 and can be a size here.
fn size(value: u64, field: &'static CStr) -> Result<NonZeroUsize, Refusal> {
    usize::try_from(value).ok().and_then(NonZeroUsize::new).ok_or_else(|| invalid(field, value))
}

/// The size of a class. One that cannot be a size here is too large for one.
fn class_size(value: u64) -> Result<NonZeroUsize, Refusal> {
    match usize::try_from(value).map(NonZeroUsize::new) {
        Ok(Some(size)) => Ok(size),
        Ok(None) => Err(BufferConfigError::SizeNotPowerOfTwo { size: 0 }.into()),
        Err(_) if value.is_power_of_two() => Err(BufferConfigError::SizeTooLarge { size: value }.into()),
        Err(_) => Err(BufferConfigError::SizeNotPowerOfTwo { size: value }.into()),
    }
}

/// The limit of a class.
pub(super) fn limit(value: u32) -> Result<NonZeroU32, Refusal> {
    NonZeroU32::new(value).ok_or_else(|| invalid(c"max_buffers", 0))
}

fn not_zero(value: u64, field: &'static CStr) -> Result<u64, Refusal> {
    if value == 0 { Err(invalid(field, 0)) } else { Ok(value) }
}

/// A number of which more than all that can be counted here is as much.
fn at_most_all(value: u64) -> NonZeroUsize {
    let value = usize::try_from(value).unwrap_or(usize::MAX);
    NonZeroUsize::new(value).unwrap_or(NonZeroUsize::MIN)
}

impl slicepool_buffer_pool_config {
    /// What of the config is core's, with its flags checked.
    #[cold]
    pub(crate) fn plan(&self) -> Result<BufferPoolConfig, Refusal> {
        const KNOWN: u32 = SLICEPOOL_BUFFER_POOL_PREFILL | SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED;
        if self.flags & !KNOWN != 0 {
            return Err(invalid(c"flags", u64::from(self.flags)));
        }
        let pool_min_size = usize::try_from(self.pool_min_size);
        let config = BufferPoolConfig::try_from_limits(self.limits)?
            .with_pool_min_size(pool_min_size.map_err(|_| invalid(c"pool_min_size", self.pool_min_size))?)
            .with_alignment(size(self.alignment.max(1), c"alignment")?)
            .with_parallelism(at_most_all(self.parallelism))
            .with_prefill(self.flags & SLICEPOOL_BUFFER_POOL_PREFILL != 0);
        Ok(match self.max_thread_cache_capacity {
            0 => config,
            u64::MAX => config.with_thread_cache_disabled(),
            capacity => config.with_max_thread_cache_capacity(at_most_all(capacity)),
        })
    }
}

/// What a config must have room for so that it can be changed in place: all numbers.
const NUMBERS: usize = offset_of!(slicepool_buffer_pool_config, memory);

/// [`change_each`] of something that is not one of many.
///
/// # Safety
/// As [`change_each`].
#[cold]
unsafe fn change(
    at: *mut slicepool_buffer_pool_config,
    make: &mut dyn FnMut(&mut slicepool_buffer_pool_config) -> Result<(), Refusal>,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe { change_each(at, &Cell::new(0), make) }
}

/// Reads a config, changes it, and writes its numbers back if that works; `index` says which of several elements is to
/// blame.
///
/// # Safety
/// `at` is NULL or points to `struct_size` bytes.
#[cold]
unsafe fn change_each(
    at: *mut slicepool_buffer_pool_config,
    index: &Cell<u32>,
    make: &mut dyn FnMut(&mut slicepool_buffer_pool_config) -> Result<(), Refusal>,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe {
        let mut config = match abi::read(at) {
            Ok(config) => config,
            Err(refusal) => return finish(Err(refusal)),
        };
        let struct_size = config.struct_size;
        let outcome = match (struct_size as usize) < NUMBERS {
            true => Err(invalid(c"struct_size", u64::from(struct_size))),
            false => make(&mut config),
        };
        if outcome.is_ok() {
            abi::write(at, NUMBERS as u32, &config);
        }
        finish_with(outcome, index.get(), config.failure)
    }
}

/// [`change`] of the classes.
///
/// # Safety
/// As [`change`].
#[cold]
unsafe fn shape(
    at: *mut slicepool_buffer_pool_config,
    make: &mut dyn FnMut(BufferPoolConfig) -> Result<BufferPoolConfig, Refusal>,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe {
        change(at, &mut |config| {
            config.limits = make(config.plan()?)?.limits();
            Ok(())
        })
    }
}

/// Makes a config like another that core has made.
///
/// # Safety
/// As [`change`].
#[cold]
unsafe fn preset(
    at: *mut slicepool_buffer_pool_config,
    make: &mut dyn FnMut() -> Result<BufferPoolConfig, Refusal>,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe {
        change(at, &mut |config| {
            config.limits = make()?.limits();
            config.flags &= !SLICEPOOL_BUFFER_POOL_PREFILL;
            (config.pool_min_size, config.alignment, config.parallelism) = (0, 0, 0);
            config.max_thread_cache_capacity = 0;
            Ok(())
        })
    }
}

/// For network traffic: classes of 1 KiB to 128 KiB with 4,096 buffers each. Not prefilled, alignment 1, parallelism 1,
/// automatic caches, requests of any size use the classes. What else there is in a config stays.
///
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_VERSION_MISMATCH
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_for_network(
    config: *mut slicepool_buffer_pool_config,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { preset(config, &mut || Ok(BufferPoolConfig::for_network())) }
}

/// For storage: classes from one page of the machine's memory (4 KiB where that is not known) to 8 MiB with 64 buffers
/// each; otherwise like slicepool_buffer_pool_config_for_network().
///
/// @return as slicepool_buffer_pool_config_for_network()
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_for_storage(
    config: *mut slicepool_buffer_pool_config,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { slicepool_buffer_pool_config_for_storage_with_page_size(config, page_size()) }
}

/// The same for pages of another size.
///
/// @param page_size  a power of two of at most 8 MiB
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT also for another page_size; `limit` is 8 MiB then
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_for_storage_with_page_size(
    config: *mut slicepool_buffer_pool_config,
    page_size: u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        preset(config, &mut || {
            let size = usize::try_from(page_size).ok().and_then(NonZeroUsize::new);
            let size = size.ok_or(BufferConfigError::PageSize { page_size })?;
            Ok(BufferPoolConfig::try_for_storage_with_page_size(size)?)
        })
    }
}

/// Sets pool_min_size: requests of fewer bytes do not use the classes if they have SLICEPOOL_BUFFER_UNTRACKED.
///
/// @param pool_min_size  bytes; creating a pool refuses more than the smallest class has
/// @return as slicepool_buffer_pool_config_for_network()
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_pool_min_size(
    config: *mut slicepool_buffer_pool_config,
    pool_min_size: u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        change(config, &mut |config| {
            config.pool_min_size = pool_min_size;
            Ok(())
        })
    }
}

/// Makes every power of two in a range a class, and nothing else.
///
/// @param min_size     bytes of the smallest class, a power of two
/// @param max_size     bytes of the largest class, a power of two, not below min_size
/// @param max_buffers  limit of each; not 0
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "size" for a size that is none (`limit` is the largest there
///         is, if it is too large), "max_size" for a range that is reversed (`limit` is min_size), "max_buffers"
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_size_class_range(
    config: *mut slicepool_buffer_pool_config,
    min_size: u64,
    max_size: u64,
    max_buffers: u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        shape(config, &mut |config| {
            let (min, max) = (class_size(min_size)?, class_size(max_size)?);
            Ok(config.try_with_size_class_range(min, max, limit(max_buffers)?)?)
        })
    }
}

/// Makes these the classes, and nothing else.
///
/// @param sizes        `count` numbers of bytes in any order, powers of two, each of them once
/// @param max_buffers  `count` limits, none of them 0
/// @param count        at least 1
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "size" for a size that is none or occurs twice,
///         "max_buffers", or "classes" if there is none; `index` tells which class is to blame
///
/// Threads: one at a time per config. Cost: one look at each class.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_size_classes(
    config: *mut slicepool_buffer_pool_config,
    sizes: *const u64,
    max_buffers: *const u32,
    count: u32,
) -> slicepool_result {
    let index = Cell::new(0);
    // SAFETY: the caller passes what the header demands.
    unsafe {
        change_each(config, &index, &mut |config| {
            if count != 0 {
                abi::out(sizes.cast_mut(), c"sizes")?;
                abi::out(max_buffers.cast_mut(), c"max_buffers")?;
            }
            let class = |i: u32| {
                index.set(i);
                let size = class_size(sizes.add(i as usize).read())?;
                Ok(BufferPoolClassConfig::new(size, limit(max_buffers.add(i as usize).read())?))
            };
            let mut refused = None;
            let classes = (0..count).map_while(|i| class(i).map_err(|refusal| refused = Some(refusal)).ok());
            let made = config.plan()?.try_with_size_classes(classes);
            if let Some(refusal) = refused {
                return Err(refusal);
            }
            config.limits = made?.limits();
            Ok(())
        })
    }
}

/// Adds a class, or gives one that there is another limit.
///
/// @param size         bytes, a power of two
/// @param max_buffers  not 0
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "size" or "max_buffers"
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_size_class(
    config: *mut slicepool_buffer_pool_config,
    size: u64,
    max_buffers: u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { shape(config, &mut |config| Ok(config.try_with_size_class(class_size(size)?, limit(max_buffers)?)?)) }
}

/// Removes a class: the next larger one serves its requests.
///
/// @param size  bytes, a power of two
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "size", also if there is no such class or no other one
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_without_size_class(
    config: *mut slicepool_buffer_pool_config,
    size: u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { shape(config, &mut |config| Ok(config.try_without_size_class(class_size(size)?)?)) }
}

/// Gives every class this limit.
///
/// @param max_buffers  not 0
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_max_per_class(
    config: *mut slicepool_buffer_pool_config,
    max_buffers: u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { shape(config, &mut |config| Ok(config.with_max_per_class(limit(max_buffers)?))) }
}

/// Gives every class about as many bytes: bytes / size buffers, rounded down, and at least one. The bytes are not
/// remembered.
///
/// @param bytes  not 0
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "bytes"; if they are more than 2^32 - 1 buffers of a class,
///         `size` is that of the smallest one and `limit` is 2^32 - 1
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_bytes_per_class(
    config: *mut slicepool_buffer_pool_config,
    bytes: u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { shape(config, &mut |config| Ok(config.try_with_bytes_per_class(size(bytes, c"bytes")?)?)) }
}

/// Scales all limits by one factor, up or down: the greatest for which slicepool_buffer_pool_config_max_tracked_bytes()
/// stays within the budget.
///
/// A limit becomes what it was times the factor, rounded down, and at least 1: no class is lost, and limits that step
/// together may leave some of the budget unused. The budget is not remembered; asked again, it scales the scaled
/// limits, which may differ.
///
/// @param budget  bytes
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "budget". If that is less than one buffer of every class,
///         `limit` is the least that would do, and so above `value`. If it has room for more than 2^32 - 1 buffers of a
///         class, `size` is that of the class and `limit` is 2^32 - 1, below `value`
///
/// Threads: one at a time per config. Cost: at most 32 steps for each two classes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_budget_bytes(
    config: *mut slicepool_buffer_pool_config,
    budget: u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        shape(config, &mut |config| {
            if budget == 0 {
                // What no number of bytes is in Rust: less than any buffer has.
                let least = config.size_classes().map(|class| class.size.get() as u64).sum();
                return Err(BufferConfigError::BudgetTooSmall { budget, least }.into());
            }
            Ok(config.try_with_budget_bytes(size(budget, c"budget")?)?)
        })
    }
}

/// Sets parallelism: the threads that are expected to use the pool at a time.
///
/// @param parallelism  not 0
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_parallelism(
    config: *mut slicepool_buffer_pool_config,
    parallelism: u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        change(config, &mut |config| {
            config.parallelism = not_zero(parallelism, c"parallelism")?;
            Ok(())
        })
    }
}

/// Sets max_thread_cache_capacity: free buffers of each class that a cache keeps at most, or all that a smaller class
/// has.
///
/// Buffers in a cache serve its own thread only, until they spill or the cache is flushed: a large one favours reuse by
/// the same thread, a small one other threads and less memory.
///
/// @param capacity  not 0
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_max_thread_cache_capacity(
    config: *mut slicepool_buffer_pool_config,
    capacity: u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        change(config, &mut |config| {
            // The largest number stands for none; no class has as many buffers as the one before.
            config.max_thread_cache_capacity = not_zero(capacity, c"capacity")?.min(u64::MAX - 1);
            Ok(())
        })
    }
}

/// Sets max_thread_cache_capacity so that caches keep nothing: every buffer goes through the freelists of its class.
///
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_thread_cache_disabled(
    config: *mut slicepool_buffer_pool_config,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        change(config, &mut |config| {
            config.max_thread_cache_capacity = u64::MAX;
            Ok(())
        })
    }
}

/// Sets SLICEPOOL_BUFFER_POOL_PREFILL, or takes it away.
///
/// @param prefill  1 or 0
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_prefill(
    config: *mut slicepool_buffer_pool_config,
    prefill: u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        change(config, &mut |config| {
            match prefill {
                0 => config.flags &= !SLICEPOOL_BUFFER_POOL_PREFILL,
                1 => config.flags |= SLICEPOOL_BUFFER_POOL_PREFILL,
                other => return Err(invalid(c"prefill", u64::from(other))),
            }
            Ok(())
        })
    }
}

/// Sets alignment: every buffer lies at a multiple of it.
///
/// @param alignment  bytes, not 0; creating a pool refuses what is no power of two, or more than the smallest class has
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: one at a time per config. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_buffer_pool_config_with_alignment(
    config: *mut slicepool_buffer_pool_config,
    alignment: u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        change(config, &mut |config| {
            config.alignment = not_zero(alignment, c"alignment")?;
            Ok(())
        })
    }
}

/// sizeof(slicepool_buffer_pool_config) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_buffer_pool_config() -> u32 {
    size_of::<slicepool_buffer_pool_config>() as u32
}
