//! Allocators: creating, destroying, giving memory back.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::device::{CallbackDevice, slicepool_device};
use crate::host::{self, slicepool_host};
use crate::result::{finish, finish_with, slicepool_failure, slicepool_result};
use core::ffi::c_void;
use slicepool_core::{
    Allocator, AllocatorOptions, DeviceFault, Error, HostMemory, LiveSlices, LockKind, MemoryType, NearPage,
    PoolOptions,
};

/// Slices are cut from larger pages.
pub const SLICEPOOL_POOL_SLICED_PAGES: u32 = 3;

/// Requests above `max_slice_size` that fill more than four fifths of a page: taken if the pool has no cap.
pub const SLICEPOOL_NEAR_PAGE_WHEN_UNCAPPED: u32 = 0;
/// Such requests are always taken.
pub const SLICEPOOL_NEAR_PAGE_ALWAYS: u32 = 1;
/// Such requests are never taken.
pub const SLICEPOOL_NEAR_PAGE_NEVER: u32 = 2;

/// The caller lets one thread at a time into the allocator: no lock is taken.
pub const SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED: u32 = 1;
/// Pool options that would be adjusted are refused: pages that are no multiple of the granule, slices larger than a
/// page, pages larger than the cap.
pub const SLICEPOOL_ALLOCATOR_VALIDATE: u32 = 2;

/// Destroy although slices are live.
pub const SLICEPOOL_DESTROY_FORCE: u32 = 1;
/// Abandon in a forked child: callbacks that the parent's threads were running at the fork do not count.
pub const SLICEPOOL_ABANDON_FORKED: u32 = 1;

/// Pages of the pool that is used when no pools are given.
const DEFAULT_PAGE_SIZE: u64 = 32 << 20;

/// The most pools of an allocator: what is read on the stack.
const MAX_POOLS: usize = 32;

/// A pool of an allocator. Sizes are bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_pool_options {
    /// sizeof(slicepool_pool_options), set by the caller.
    pub struct_size: u32,
    /// A SLICEPOOL_POOL_ kind. Required.
    pub kind: u32,
    /// Size of every page, rounded up to the granule. Required.
    pub page_size: u64,
    /// The largest slice the pool takes; 0: as large as a page.
    pub max_slice_size: u64,
    /// Cap on all pages together: as many whole pages as it can pay for; 0: none. If it cannot pay for one page, pages
    /// are as small as it is, and if not even for a granule, the pool serves nothing. The cap belongs to this pool of
    /// this allocator: with an allocator per stream there is one per stream.
    pub max_pool_size: u64,
    /// Every offset and size is a multiple of this power of two, at most 2^32; 0: 256. A page has at most 2^32 - 1.
    pub granule: u64,
    /// A SLICEPOOL_NEAR_PAGE_ rule.
    pub near_page: u32,
    /// 0.
    pub reserved: u32,
}

/// How an allocator is made. All zero but `struct_size` is a good start.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_allocator_config {
    /// sizeof(slicepool_allocator_config), set by the caller.
    pub struct_size: u32,
    /// SLICEPOOL_ALLOCATOR_ flags.
    pub flags: u32,
    /// The largest page the device gives out; 0: no limit.
    pub max_page: u64,
    /// Every page is asked for at a multiple of this power of two, which is also the largest alignment a request may
    /// have (unless a pool's granule is larger); 0: 4096. Say what the device really guarantees.
    pub page_alignment: u64,
    /// Number of pools, at most 32; 0: one pool of 32 MiB pages (or what max_page allows) without a cap.
    pub pool_count: u32,
    /// A request that would fit into a page which another call is just getting waits for it this many back-off steps
    /// before it gets its own, or is refused at the cap; 0: 32. A step is what the spin lock does between two tries: some
    /// microseconds at most, or giving up the CPU once. A device that takes longer is not waited for to the end.
    pub growth_wait_steps: u32,
    /// The pools, in the order in which they are tried.
    pub pools: *const slicepool_pool_options,
    /// Host memory and lock; NULL: the C library's memory, and a spin lock that yields.
    pub host: *const slicepool_host,
    /// Where the details of a failed creation go; may be NULL.
    pub failure: *mut slicepool_failure,
    /// NULL.
    pub reserved: *mut c_void,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_pool_options {
    const NAME: &'static core::ffi::CStr = c"pools";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_allocator_config {
    const NAME: &'static core::ffi::CStr = c"config";
}

/// Pools over one device.
pub struct slicepool_allocator {
    pub(crate) inner: Allocator<CallbackDevice>,
    memory: HostMemory,
}

impl slicepool_allocator {
    /// # Safety
    /// `allocator` is NULL or points to a live allocator.
    #[inline]
    pub(crate) unsafe fn get<'a>(allocator: *const Self) -> Result<&'a Allocator<CallbackDevice>, Refusal> {
        // SAFETY: passed on from the caller.
        Ok(&unsafe { abi::object(allocator, c"allocator")? }.inner)
    }
}

fn pool_options(options: &slicepool_pool_options) -> Result<PoolOptions, Refusal> {
    if options.kind != SLICEPOOL_POOL_SLICED_PAGES {
        return Err(invalid(c"kind", u64::from(options.kind)));
    }
    if options.reserved != 0 {
        return Err(invalid(c"reserved", u64::from(options.reserved)));
    }
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    let cap = (options.max_pool_size != 0).then_some(options.max_pool_size);
    let near_page = match options.near_page {
        SLICEPOOL_NEAR_PAGE_WHEN_UNCAPPED => NearPage::WhenUncapped,
        SLICEPOOL_NEAR_PAGE_ALWAYS => NearPage::Always,
        SLICEPOOL_NEAR_PAGE_NEVER => NearPage::Never,
        unknown => return Err(invalid(c"near_page", u64::from(unknown))),
    };
    Ok(PoolOptions::sliced_pages(options.page_size, or(options.max_slice_size, options.page_size), cap)
        .with_granule(or(options.granule, PoolOptions::DEFAULT_GRANULE))
        .with_near_page(near_page))
}

/// Reads the list of pools into `list` and returns how many there are.
///
/// # Safety
/// `config.pools` points to `config.pool_count` structs of equal size.
unsafe fn read_pools(
    config: &slicepool_allocator_config,
    list: &mut [PoolOptions; MAX_POOLS],
) -> Result<usize, Refusal> {
    let count = config.pool_count as usize;
    if count == 0 {
        return Ok(1);
    }
    if count > MAX_POOLS {
        return Err(invalid(c"pool_count", count as u64));
    }
    // SAFETY: passed on from the caller.
    let stride = unsafe { abi::struct_size(config.pools)? };
    for (i, place) in list[..count].iter_mut().enumerate() {
        // SAFETY: passed on from the caller.
        let options = unsafe { abi::element(config.pools, stride, i as u32)? };
        *place = pool_options(&options)?;
    }
    Ok(count)
}

unsafe fn create(
    device: *const slicepool_device,
    config: &slicepool_allocator_config,
    allocator: *mut *mut slicepool_allocator,
) -> Result<(), Refusal> {
    const KNOWN: u32 = SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED | SLICEPOOL_ALLOCATOR_VALIDATE;
    let allocator = abi::out(allocator, c"allocator")?;
    if config.flags & !KNOWN != 0 {
        return Err(invalid(c"flags", u64::from(config.flags)));
    }
    if !config.reserved.is_null() {
        return Err(invalid(c"reserved", config.reserved.addr() as u64));
    }
    // SAFETY: the contract of the public function.
    let (device, (memory, mut lock)) = unsafe { (CallbackDevice::read(device)?, host::read(config.host)?) };
    if config.flags & SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED != 0 {
        // SAFETY: the caller says so.
        lock = unsafe { LockKind::unlocked() };
    }
    let page = if config.max_page == 0 { DEFAULT_PAGE_SIZE } else { config.max_page.min(DEFAULT_PAGE_SIZE) };
    let page = (page & !(PoolOptions::DEFAULT_GRANULE - 1)).max(1);
    let default = PoolOptions::sliced_pages(page, page, None);
    let mut pools = [const { PoolOptions::sliced_pages(0, 0, None) }; MAX_POOLS];
    pools[0] = default;
    // SAFETY: the contract of the public function.
    let count = unsafe { read_pools(config, &mut pools)? };
    let mut memory_type = MemoryType::default();
    if config.max_page != 0 {
        memory_type.max_page = config.max_page;
    }
    if config.page_alignment != 0 {
        memory_type.alignment = config.page_alignment;
    }
    let pools = &pools[..count];
    if config.flags & SLICEPOOL_ALLOCATOR_VALIDATE != 0 {
        pools.iter().try_for_each(|pool| pool.validate(&memory_type))?;
    }
    let mut options = AllocatorOptions::default().with_memory(memory).with_lock(lock).with_memory_type(memory_type);
    if config.growth_wait_steps != 0 {
        options = options.with_growth_wait_steps(config.growth_wait_steps);
    }
    let inner = Allocator::try_new(device, pools, options)?;
    let object = host::place(memory, slicepool_allocator { inner, memory }).map_err(|(_, refusal)| refusal)?;
    // SAFETY: not NULL, the caller provides it.
    unsafe { allocator.write(object.as_ptr()) };
    Ok(())
}

/// Creates an allocator. Takes nothing from the device yet.
///
/// @param device     copied; its user_data must stay valid until the allocator is gone
/// @param config     copied with all it points to; may be NULL for the defaults
/// @param allocator  set on success; to be destroyed or abandoned by the caller
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT (config->failure names the field), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY,
///         SLICEPOOL_ERROR_VERSION_MISMATCH
///
/// Threads: any. Cost: a few host allocations per pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_allocator_create(
    device: *const slicepool_device,
    config: *const slicepool_allocator_config,
    allocator: *mut *mut slicepool_allocator,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let config = if config.is_null() { Ok(abi::zeroed()) } else { abi::read(config) };
        match config {
            Ok(config) => finish_with(create(device, &config, allocator), 0, config.failure),
            Err(refusal) => finish(Err(refusal)),
        }
    }
}

/// Gives every page back to the device and frees the allocator. No callback comes after this returns.
///
/// @param allocator  not used by anybody else any more, unless the call fails
/// @param flags      SLICEPOOL_DESTROY_FORCE: also if slices are live or the device refuses a page
/// @param failure    may be NULL
/// @return SLICEPOOL_ERROR_BUSY while slices are live, or a callback of this allocator is running (so from within
///         one, FORCE or not); SLICEPOOL_ERROR_DEVICE_FAILED if the device refuses to take a page back.
///         The allocator and its slices are as usable as before then; a refused page counts as stuck.
///
/// Threads: exclusive. Cost: one device call a page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_allocator_destroy(
    allocator: *mut slicepool_allocator,
    flags: u32,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    let force = flags & SLICEPOOL_DESTROY_FORCE != 0;
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            if flags & !SLICEPOOL_DESTROY_FORCE != 0 {
                return Err(invalid(c"flags", u64::from(flags)));
            }
            match inner.close(if force { LiveSlices::Free } else { LiveSlices::Refuse }) {
                // It was asked; with FORCE nobody wants to know.
                Err(Error::DeviceFailed { fault: DeviceFault::Refused, .. }) if force => {}
                other => other?,
            }
            let memory = (*allocator).memory;
            host::take(memory, allocator).inner.abandon();
            Ok(())
        })();
        finish_with(outcome, 0, failure)
    }
}

/// Frees the allocator's host memory without a word to the device: for process exit, a lost device, or a forked
/// child, which may call nothing else of its parent's allocators.
///
/// @param allocator  not used by anybody else any more, unless the call fails
/// @param flags      SLICEPOOL_ABANDON_FORKED in a forked child
/// @return SLICEPOOL_ERROR_BUSY while a callback of this allocator is running, unless forked
///
/// Threads: exclusive. Cost: a few host deallocations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_allocator_abandon(
    allocator: *mut slicepool_allocator,
    flags: u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            if flags & !SLICEPOOL_ABANDON_FORKED != 0 {
                return Err(invalid(c"flags", u64::from(flags)));
            }
            if flags & SLICEPOOL_ABANDON_FORKED == 0 {
                inner.can_destroy(LiveSlices::Free)?;
            }
            let memory = (*allocator).memory;
            host::take(memory, allocator).inner.abandon();
            Ok(())
        })()
    })
}

/// Gives pages that hold nothing back to the device, pool by pool, those idle the longest first, while at least
/// `min_keep_bytes` stay reserved; asks again for pages that the device has refused to take back.
///
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_DEVICE_FAILED if the device refuses a page: the others have been given back, that one is
///         kept and counted as stuck
///
/// Threads: any. Cost: one device call a page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_trim(
    allocator: *mut slicepool_allocator,
    min_keep_bytes: u64,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = slicepool_allocator::get(allocator).and_then(|it| Ok(it.trim(min_keep_bytes)?));
        finish_with(outcome, 0, failure)
    }
}

/// Gives every page that holds nothing back to the device. Handles of live slices stay valid.
///
/// @param failure  may be NULL
/// @return as slicepool_trim()
///
/// Threads: any. Cost: one device call a page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_cleanup(
    allocator: *mut slicepool_allocator,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = slicepool_allocator::get(allocator).and_then(|it| Ok(it.cleanup()?));
        finish_with(outcome, 0, failure)
    }
}

/// sizeof(slicepool_pool_options) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_pool_options() -> u32 {
    size_of::<slicepool_pool_options>() as u32
}

/// sizeof(slicepool_allocator_config) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_allocator_config() -> u32 {
    size_of::<slicepool_allocator_config>() as u32
}
