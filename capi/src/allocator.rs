//! Allocators: creating, destroying, giving memory back.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::budget::{self, limit, slicepool_budget};
use crate::device::{CallbackDevice, slicepool_device};
use crate::host::{self, slicepool_host};
use crate::pool::{read_pools, slicepool_pool_options};
use crate::result::{finish, finish_with, slicepool_failure, slicepool_result};
use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::NonNull;
use slicepool_core::layout::{self, PoolList, Properties};
use slicepool_core::{
    Allocator, AllocatorOptions, Debugging, DeviceFault, Error, HostMemory, LiveSlices, LockKind, MemoryType,
    block_bytes, block_bytes_of,
};

/// The caller lets one thread at a time into the allocator: no lock is taken.
pub const SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED: u32 = 1;
/// Pool options that would be adjusted are refused: pages that are no multiple of the granule, slices larger than a
/// page or than all pages may be, pages larger than the cap, a max_alloc_size or max_page_size above max_page or what a
/// page can have.
pub const SLICEPOOL_ALLOCATOR_VALIDATE: u32 = 2;
/// Everything is placed and counted as always, but the device gives no memory before slicepool_resolve() asks for a slice's.
/// For measuring what a program needs. Caps of pools hold; the other limits count only what has been resolved.
pub const SLICEPOOL_ALLOCATOR_DRY_RUN: u32 = 4;
/// Slices that the CPU sees are filled with the byte 0xDC when they are handed out, and with 0xEF when they are freed, or
/// when what they waited for has passed. For finding programs' faults; slow.
pub const SLICEPOOL_ALLOCATOR_DEBUG_FILL: u32 = 8;

/// Destroy although slices are live or pending. Those with SLICEPOOL_REQUEST_SCRUB are overwritten if that works at once.
pub const SLICEPOOL_DESTROY_FORCE: u32 = 1;
/// Abandon in a forked child, which may release its parent's budgets besides: callbacks that the parent's threads were
/// running at the fork do not count.
pub const SLICEPOOL_ABANDON_FORKED: u32 = 1;

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
    /// Bytes of the heap that pages come from; 0: not known. Counts where pool_count is 0.
    pub heap_size: u64,
    /// Bytes that the allocator may hold from the device, pages that are just being taken and those that the device does not
    /// take back included; 0: as many as it gives.
    pub max_bytes: u64,
    /// Granule of the pool of slices with SLICEPOOL_REQUEST_PERSISTENT; 0: 256, and slicepool_allocator_bytes_needed() does
    /// not count on there being any.
    pub persistent_granule: u64,
    /// Bytes behind each slice that belong to nobody, at most 1 MiB, rounded up to the granule, which may be 1 MiB too then;
    /// 0: none. Where the CPU sees them they are filled with the byte 0xFD, and looked at when the slice is freed and by
    /// slicepool_check_margins(). They count as padding, and slices that fill a page are as much smaller. For finding
    /// programs' faults; slow.
    pub debug_margin: u64,
    /// Number of pools, at most 32; 0: those of slicepool_layout_adaptive().
    pub pool_count: u32,
    /// A request that would fit into a page which another call is just getting waits for it this many back-off steps
    /// before it gets its own, or is refused at the cap; 0: 32. A step is what the spin lock does between two tries: some
    /// microseconds at most, or giving up the CPU once. A device that takes longer is not waited for to the end.
    pub growth_wait_steps: u32,
    /// Pages that the allocator may hold, counted as for max_bytes; 0: any number.
    pub max_pages: u32,
    /// 0.
    pub reserved: u32,
    /// The pools, in the order in which they are tried.
    pub pools: *const slicepool_pool_options,
    /// Host memory and lock; NULL: the C library's memory, and a spin lock that yields.
    pub host: *const slicepool_host,
    /// Limits shared with other allocators; NULL: none. The allocator becomes one of its owners.
    pub budget: *mut slicepool_budget,
    /// Where the details of a failed creation go; may be NULL.
    pub failure: *mut slicepool_failure,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_allocator_config {
    const NAME: &'static core::ffi::CStr = c"config";
}

/// Pools over one device.
pub struct slicepool_allocator {
    pub(crate) inner: Allocator<CallbackDevice>,
    memory: HostMemory,
    /// Whether pools that would be adjusted are refused.
    pub(crate) validates: bool,
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

/// What a config says about pools and pages, in core's words.
struct Plan {
    pools: PoolList,
    options: AllocatorOptions,
}

impl Plan {
    /// # Safety
    /// `config.pools` points to `config.pool_count` structs of equal size.
    #[cold]
    unsafe fn read(config: &slicepool_allocator_config) -> Result<Self, Refusal> {
        const KNOWN: u32 = SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED
            | SLICEPOOL_ALLOCATOR_VALIDATE
            | SLICEPOOL_ALLOCATOR_DRY_RUN
            | SLICEPOOL_ALLOCATOR_DEBUG_FILL;
        if config.flags & !KNOWN != 0 {
            return Err(invalid(c"flags", u64::from(config.flags)));
        }
        if config.reserved != 0 {
            return Err(invalid(c"reserved", u64::from(config.reserved)));
        }
        let mut memory_type = MemoryType::default();
        if config.max_page != 0 {
            memory_type.max_page = config.max_page;
        }
        if config.page_alignment != 0 {
            memory_type.alignment = config.page_alignment;
        }
        let pools = if config.pool_count == 0 {
            let mut properties = Properties::new(memory_type.max_page);
            // A page too small for the usual granule is still a page.
            let largest_granule = 1 << memory_type.max_page.ilog2();
            properties.alignment = properties.alignment.min(largest_granule);
            if config.heap_size != 0 {
                properties.heap_size = config.heap_size;
            }
            layout::adaptive(&properties)?
        } else {
            // SAFETY: passed on from the caller.
            unsafe { read_pools(config.pools, config.pool_count)? }
        };
        if config.flags & SLICEPOOL_ALLOCATOR_VALIDATE != 0 {
            validate(&pools, &memory_type)?;
        }
        let mut options = AllocatorOptions::default().with_memory_type(memory_type);
        options.max_bytes = limit(config.max_bytes);
        options.max_pages = limit(config.max_pages);
        options.persistent_granule = limit(config.persistent_granule);
        options.dry_run = config.flags & SLICEPOOL_ALLOCATOR_DRY_RUN != 0;
        options.debugging = Debugging::new(config.flags & SLICEPOOL_ALLOCATOR_DEBUG_FILL != 0, config.debug_margin);
        if config.growth_wait_steps != 0 {
            options.growth_wait_steps = config.growth_wait_steps;
        }
        Ok(Self { pools, options })
    }
}

/// Refuses pools that would be adjusted.
#[cold]
pub(crate) fn validate(pools: &PoolList, memory_type: &MemoryType) -> Result<(), Refusal> {
    Ok(pools.iter().try_for_each(|pool| pool.validate(memory_type))?)
}

/// Where the books go.
enum Books {
    /// Into memory of the host, bit by bit.
    Host,
    /// All into one block.
    Block { memory: *mut c_void, bytes: u64 },
}

#[cold]
unsafe fn create(
    device: *const slicepool_device,
    config: &slicepool_allocator_config,
    books: Books,
    allocator: *mut *mut slicepool_allocator,
) -> Result<(), Refusal> {
    let allocator = abi::out(allocator, c"allocator")?;
    // SAFETY: the contract of the public function.
    let (device, host, plan) =
        unsafe { (CallbackDevice::read(device)?, host::read(config.host)?, Plan::read(config)?) };
    let mut lock = host.lock;
    if config.flags & SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED != 0 {
        // SAFETY: the caller says so.
        lock = unsafe { LockKind::unlocked() };
    }
    let memory = match books {
        Books::Host => host.memory,
        Books::Block { .. } if host.has_memory => return Err(invalid(c"allocate", 0)),
        Books::Block { memory, bytes } => {
            let memory = NonNull::new(memory.cast()).ok_or_else(|| invalid(c"memory", 0))?;
            let end = usize::try_from(bytes).ok().and_then(|bytes| memory.addr().get().checked_add(bytes));
            let bytes = end.ok_or_else(|| invalid(c"bytes", bytes))? - memory.addr().get();
            // SAFETY: the contract of the public function.
            let block = unsafe { HostMemory::in_block(memory, bytes, lock) };
            // A block without room for its own books is one that is full from the start.
            block.map_err(|_| Error::OutOfHostMemory { bytes: bytes as u64 })?
        }
    };
    let mut options = plan.options.with_memory(memory).with_lock(lock);
    if !config.budget.is_null() {
        // SAFETY: the contract of the public function.
        options = options.with_budget(&*unsafe { budget::get(config.budget)? });
    }
    let validates = config.flags & SLICEPOOL_ALLOCATOR_VALIDATE != 0;
    let inner = Allocator::try_new(device, &plan.pools, options)?;
    let object =
        host::place(memory, slicepool_allocator { inner, memory, validates }).map_err(|(_, refusal)| refusal)?;
    // SAFETY: not NULL, the caller provides it.
    unsafe { allocator.write(object.as_ptr()) };
    Ok(())
}

/// A config, or the defaults if there is none.
unsafe fn read_config(config: *const slicepool_allocator_config) -> Result<slicepool_allocator_config, Refusal> {
    // SAFETY: passed on from the caller.
    if config.is_null() { Ok(abi::zeroed()) } else { unsafe { abi::read(config) } }
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
        match read_config(config) {
            Ok(config) => finish_with(create(device, &config, Books::Host, allocator), 0, config.failure),
            Err(refusal) => finish(Err(refusal)),
        }
    }
}

/// Creates an allocator all of whose bookkeeping, and itself, lives in a block of memory that the caller provides. It
/// never asks for more: when the block is full, calls answer SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY until something is freed.
/// How much has to be freed depends: cutting a slice wants some slots to spare whether it needs them or not. A block of
/// slicepool_allocator_bytes_needed() is never full.
///
/// @param device     as for slicepool_allocator_create()
/// @param config     as for slicepool_allocator_create(); its host must not have `allocate`
/// @param memory     at any address; the library's own until the allocator is destroyed or abandoned, then the caller's
///                   again
/// @param bytes      of the block; see slicepool_allocator_bytes_needed()
/// @param allocator  set on success; lies in the block
/// @return as slicepool_allocator_create(); SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY if the block is too small even for that
///
/// Threads: any. Cost: no host allocations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_allocator_create_in(
    device: *const slicepool_device,
    config: *const slicepool_allocator_config,
    memory: *mut c_void,
    bytes: u64,
    allocator: *mut *mut slicepool_allocator,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        match read_config(config) {
            Ok(config) => {
                let books = Books::Block { memory, bytes };
                finish_with(create(device, &config, books, allocator), 0, config.failure)
            }
            Err(refusal) => finish(Err(refusal)),
        }
    }
}

/// Bytes of a block for slicepool_allocator_create_in() in which an allocator of this config always has room for its
/// books.
///
/// An upper bound, whichever pools the slices and pages are in and in whatever order they come and go. Not counted:
/// 64 bytes for each slice of a slicepool_allocate_many() while that runs; and one slot of 32 bytes that wears out with
/// every 16.7 million frees of it.
///
/// @param config  as for slicepool_allocator_create_in(); may be NULL
/// @param slices  the most slices that are live or pending at a time
/// @param pages   the most pages that are held at a time, of all pools together, those being taken included
/// @param timelines  the most timelines that slices have waited for, and that are not forgotten. Not counted: 32 bytes for
///                   each point of slices that wait for several; other pools beside those there are, while
///                   slicepool_install_pools() puts them in their place
/// @param bytes   set on success
/// @return as slicepool_allocator_create(); SLICEPOOL_ERROR_TOO_MANY_SLICES above the slots a pool
///         can have
///
/// Threads: any. Cost: constant per pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_allocator_bytes_needed(
    config: *const slicepool_allocator_config,
    slices: u32,
    pages: u32,
    timelines: u32,
    bytes: *mut u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let config = match read_config(config) {
            Ok(config) => config,
            Err(refusal) => return finish(Err(refusal)),
        };
        let outcome = (|| {
            let bytes = abi::out(bytes, c"bytes")?;
            let plan = Plan::read(&config)?;
            let books = block_bytes(&plan.pools, &plan.options, slices, pages, timelines)?;
            bytes.write(books.saturating_add(block_bytes_of(Layout::new::<slicepool_allocator>())));
            Ok(())
        })();
        finish_with(outcome, 0, config.failure)
    }
}

/// Gives every page back to the device and frees the allocator. No callback comes after this returns.
///
/// @param allocator  not used by anybody else any more, unless the call fails
/// @param flags      SLICEPOOL_DESTROY_FORCE: also if slices are live or the device refuses a page
/// @param failure    may be NULL
/// @return SLICEPOOL_ERROR_BUSY while slices are live or pending, or a callback of this allocator is running (so from within
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
            let inner = host::take(memory, allocator).inner;
            if flags & SLICEPOOL_ABANDON_FORKED != 0 {
                inner.abandon_forked();
            } else {
                inner.abandon();
            }
            Ok(())
        })()
    })
}

/// Gives pages that hold nothing back to the device, those of all pools that have held nothing the longest first, while
/// at least `min_keep_bytes` stay reserved; asks again for pages that the device has refused to take back.
///
/// Of each pool the page that has held nothing the longest is looked at: where that one is too large to go, others of its
/// pool stay too. Pages of persistent slices are neither given back nor counted.
///
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_DEVICE_FAILED if the device refuses a page: the others have been given back, that one is
///         kept and counted as stuck; as slicepool_collect() for slices that are still to be overwritten
///
/// Threads: any. Cost: one device call a page, and a look at every pool.
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

/// Gives every page that holds nothing back to the device, those of persistent slices too. Handles of live slices stay
/// valid.
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

/// sizeof(slicepool_allocator_config) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_allocator_config() -> u32 {
    size_of::<slicepool_allocator_config>() as u32
}
