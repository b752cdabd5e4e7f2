//! Allocators: creating, destroying, giving memory back.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::budget::{self, limit, slicepool_budget};
use crate::device::{CallbackDevice, slicepool_device};
use crate::host::{self, Books, slicepool_host};
use crate::label::{number, read_name};
#[cfg(feature = "complete")]
use crate::memory::read_sizes;
use crate::memory::{Memory, slicepool_allocation_sizes, slicepool_heap, slicepool_memory_type};
use crate::page::slicepool_device_memory;
use crate::parts::{COMPLETE, check_parts};
use crate::pool::{List, slicepool_pool_options, write_pools};
use crate::result::{finish, finish_with, slicepool_failure, slicepool_result};
use core::alloc::Layout;
use core::ffi::{c_char, c_void};
#[cfg(feature = "complete")]
use slicepool_core::{AllocationSizes, layout};
use slicepool_core::{
    Allocator, AllocatorOptions, Debugging, DeviceFault, DeviceLayout, Error, Heap, HostMemory, LiveSlices, LockKind,
    MemoryType, Name, PoolOptions, PoolSource, block_bytes_of, block_bytes_with,
};

/// The caller lets one thread at a time into the allocator: no lock is taken.
pub const SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED: u32 = 1;
/// Pool options that would be adjusted are refused: pages that are no multiple of the granule, slices larger than a
/// page or than all pages may be, pages larger than the cap, a max_alloc_size or max_page_size above max_page or what a
/// page can have.
pub const SLICEPOOL_ALLOCATOR_VALIDATE: u32 = 2;
/// Everything is placed and counted as always, but the device gives no memory before slicepool_resolve() asks for a
/// slice's. For measuring what a program needs. Caps of pools hold; the other limits count only what has been resolved.
pub const SLICEPOOL_ALLOCATOR_DRY_RUN: u32 = 4;
/// Slices that the CPU sees are filled with the byte 0xDC when they are handed out, and with 0xEF when they are freed,
/// or when what they waited for has passed; not those with device data. For finding programs' faults; slow.
pub const SLICEPOOL_ALLOCATOR_DEBUG_FILL: u32 = 8;
/// Requests that no pool takes, of the memory type that they come to, because they are too large for all of them or
/// there is none for their kind, have a page of their own, as if they had SLICEPOOL_REQUEST_DEDICATED. Always so with
/// `blocks`.
pub const SLICEPOOL_ALLOCATOR_DEDICATED_WHEN_TOO_LARGE: u32 = 16;
/// The callback `event` hears of every slice too. Slow: each is looked after by hand.
pub const SLICEPOOL_ALLOCATOR_SLICE_EVENTS: u32 = 32;

/// Destroy although slices are live or pending. Those with SLICEPOOL_REQUEST_SCRUB are overwritten if that works at
/// once.
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
    /// The largest page the device gives out; 0: no limit. This and the next two describe a device with memory of one
    /// kind, and are 0 where memory_types do.
    pub max_page: u64,
    /// Every page is asked for at a multiple of this power of two, which is also the largest alignment a request may
    /// have (unless a pool's granule is larger); 0: 4096. Say what the device really guarantees.
    pub page_alignment: u64,
    /// Bytes of the heap that pages come from; 0: not known. A request above it is too large.
    pub heap_size: u64,
    /// Bytes that the allocator may hold from the device, pages that are just being taken and those that the device
    /// does not take back included; 0: as many as it gives.
    pub max_bytes: u64,
    /// Granule of the pool of slices with SLICEPOOL_REQUEST_PERSISTENT; 0: 256, and slicepool_allocator_bytes_needed()
    /// does not count on there being any.
    pub persistent_granule: u64,
    /// Bytes behind each slice that belong to nobody, at most 1 MiB, rounded up to the granule, which may be 1 MiB too
    /// then; 0: none. Where the CPU sees them they are filled with the byte 0xFD, and looked at when the slice is freed
    /// and by slicepool_check_margins(). They count as padding, and slices that fill a page are as much smaller. Slices
    /// with device data have none. For finding programs' faults; slow.
    pub debug_margin: u64,
    /// Pages of slices with SLICEPOOL_REQUEST_DEDICATED that hold nothing go back after about this many allocations, as
    /// with slicepool_pool_options.dealloc_period; 0: 1024; UINT64_MAX: never by themselves.
    pub dedicated_period: u64,
    /// Number of pools, at most 256; 0: those that `blocks` asks for, or those of slicepool_layout_adaptive() for each
    /// memory type.
    pub pool_count: u32,
    /// A request that would fit into a page which another call is just getting waits for it this many back-off steps
    /// before it gets its own, or is refused at the cap; 0: 32. A step is what the spin lock does between two tries:
    /// some microseconds at most, or giving up the CPU once. A device that takes longer is not waited for to the end.
    pub growth_wait_steps: u32,
    /// Pages that the allocator may hold, counted as for max_bytes; 0: any number.
    pub max_pages: u32,
    /// Number of memory types, at most 32; 0: one, as described above.
    pub memory_type_count: u32,
    /// Number of heaps, at most 32; 0: one of unknown size.
    pub heap_count: u32,
    /// 0.
    pub reserved: u32,
    /// The memory types, by whose positions pools and requests name them.
    pub memory_types: *const slicepool_memory_type,
    /// The heaps, by whose positions memory types name them.
    pub heaps: *const slicepool_heap,
    /// Instead of pools: shared blocks of these sizes in each memory type, and pages of their own for larger requests;
    /// NULL: not so. No block is larger than an eighth of its heap, or 4 MiB if that is more; blocks that hold nothing
    /// go back after about 1,024 allocations.
    pub blocks: *const slicepool_allocation_sizes,
    /// The pools, in the order in which they are tried.
    pub pools: *const slicepool_pool_options,
    /// Host memory and lock; NULL: the C library's memory, and a spin lock that yields.
    pub host: *const slicepool_host,
    /// Limits shared with other allocators; NULL: none. The allocator becomes one of its owners.
    pub budget: *mut slicepool_budget,
    /// Where the details of a failed creation go; may be NULL.
    pub failure: *mut slicepool_failure,
    /// A name for reports, NUL-terminated UTF-8, of which SLICEPOOL_MAX_NAME bytes are kept; may be NULL.
    pub name: *const c_char,
    /// Anything that the program wants to keep with the allocator: slicepool_allocator_user_data_get().
    pub user_data: *mut c_void,
    /// NULL.
    pub reserved_pointer: *mut c_void,
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

/// What an allocator that is not complete can be made with.
const PLAIN_FLAGS: u32 = SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED;

/// Which pools a config asks for.
enum Pools {
    Listed(List),
    #[cfg(feature = "complete")]
    Adaptive,
    #[cfg(feature = "complete")]
    Blocks(AllocationSizes),
}

/// What a config says about memory, pools and pages, in core's words.
struct Plan {
    memory: Memory,
    pools: Pools,
    options: AllocatorOptions,
}

impl Plan {
    /// # Safety
    /// `config` points to what the header demands.
    #[cold]
    unsafe fn read(config: &slicepool_allocator_config) -> Result<Self, Refusal> {
        const KNOWN: u32 = SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED
            | SLICEPOOL_ALLOCATOR_VALIDATE
            | SLICEPOOL_ALLOCATOR_DRY_RUN
            | SLICEPOOL_ALLOCATOR_DEBUG_FILL
            | SLICEPOOL_ALLOCATOR_DEDICATED_WHEN_TOO_LARGE
            | SLICEPOOL_ALLOCATOR_SLICE_EVENTS;
        let has = |flag| config.flags & flag != 0;
        if has(!KNOWN) {
            return Err(invalid(c"flags", u64::from(config.flags)));
        }
        if config.reserved != 0 {
            return Err(invalid(c"reserved", u64::from(config.reserved)));
        }
        if !config.reserved_pointer.is_null() {
            return Err(invalid(c"reserved_pointer", config.reserved_pointer.addr() as u64));
        }
        check_parts(config.pool_count == 0, c"pool_count")?;
        let counts = config.memory_type_count | config.heap_count | (config.flags & !PLAIN_FLAGS);
        let numbers = config.persistent_granule | config.debug_margin | config.dedicated_period;
        let pointers = !config.name.is_null() || !config.blocks.is_null() || !config.budget.is_null();
        check_parts(counts != 0 || numbers != 0 || pointers, c"config")?;
        // SAFETY: passed on from the caller.
        let (memory, pools, name) = unsafe {
            let pools = match (config.pool_count, config.blocks.is_null()) {
                #[cfg(feature = "complete")]
                (0, true) => Pools::Adaptive,
                #[cfg(feature = "complete")]
                (0, false) => Pools::Blocks(read_sizes(config.blocks)?),
                (count, true) => Pools::Listed(List::read(config.pools, count)?),
                (count, false) => return Err(invalid(c"pool_count", u64::from(count))),
            };
            (Self::read_memory(config)?, pools, if COMPLETE { read_name(config.name)? } else { Name::NONE })
        };
        let mut options = AllocatorOptions::default();
        options.max_bytes = limit(config.max_bytes);
        options.max_pages = limit(config.max_pages);
        if !COMPLETE {
            options.user_data = number(config.user_data);
            return Ok(Self { memory, pools, options });
        }
        options.persistent_granule = limit(config.persistent_granule);
        options.dry_run = has(SLICEPOOL_ALLOCATOR_DRY_RUN);
        options.debugging = Debugging::new(has(SLICEPOOL_ALLOCATOR_DEBUG_FILL), config.debug_margin);
        options.dedicated_when_too_large =
            has(SLICEPOOL_ALLOCATOR_DEDICATED_WHEN_TOO_LARGE) || !config.blocks.is_null();
        options.slice_events = has(SLICEPOOL_ALLOCATOR_SLICE_EVENTS);
        options.name = name;
        options.user_data = number(config.user_data);
        match config.dedicated_period {
            0 => {}
            u64::MAX => options.dedicated_period = None,
            period => options.dedicated_period = Some(period),
        }
        if config.growth_wait_steps != 0 {
            options.growth_wait_steps = config.growth_wait_steps;
        }
        let plan = Self { memory, pools, options };
        if COMPLETE && has(SLICEPOOL_ALLOCATOR_VALIDATE) {
            plan.with_pools(|memory, pools| {
                validate(&|index| memory.types.get(index as usize).copied(), pools.count, pools.pool)
            })?;
        }
        Ok(plan)
    }

    /// # Safety
    /// As [`Plan::read`].
    #[cold]
    unsafe fn read_memory(config: &slicepool_allocator_config) -> Result<Memory, Refusal> {
        if COMPLETE && config.memory_type_count != 0 {
            for (field, value) in [
                (c"max_page", config.max_page),
                (c"page_alignment", config.page_alignment),
                (c"heap_size", config.heap_size),
            ] {
                if value != 0 {
                    return Err(invalid(field, value));
                }
            }
            // SAFETY: passed on from the caller.
            return unsafe {
                Memory::read(config.memory_types, config.memory_type_count, config.heaps, config.heap_count)
            };
        }
        if config.heap_count != 0 || !config.heaps.is_null() {
            return Err(invalid(c"heap_count", u64::from(config.heap_count)));
        }
        if !config.memory_types.is_null() {
            return Err(invalid(c"memory_type_count", 0));
        }
        let mut memory_type = MemoryType::default();
        if config.max_page != 0 {
            memory_type.max_page = config.max_page;
        }
        if config.page_alignment != 0 {
            memory_type.alignment = config.page_alignment;
        }
        Ok(Memory::of_one(memory_type, Heap::new(limit(config.heap_size).unwrap_or(u64::MAX))))
    }

    /// Calls `make` with the memory and the pools.
    fn with_pools<T>(&self, make: impl FnOnce(&DeviceLayout<'_>, PoolSource<'_>) -> T) -> T {
        make(&self.memory.layout(), PoolSource { count: self.pool_count(), pool: &|i| self.pool(i) })
    }

    #[cold]
    fn pool_count(&self) -> u32 {
        match &self.pools {
            Pools::Listed(list) => list.count,
            #[cfg(feature = "complete")]
            Pools::Adaptive => layout::adaptive_pool_count(&self.memory.layout()),
            #[cfg(feature = "complete")]
            Pools::Blocks(_) => layout::block_pool_count(&self.memory.layout()),
        }
    }

    /// One of the pools.
    #[cold]
    fn pool(&self, i: u32) -> Result<PoolOptions, Error> {
        match &self.pools {
            Pools::Listed(list) => list.pool_again(i),
            #[cfg(feature = "complete")]
            Pools::Adaptive => layout::adaptive_pool(&self.memory.layout(), i),
            #[cfg(feature = "complete")]
            Pools::Blocks(sizes) => layout::block_pool(sizes, &self.memory.layout(), i),
        }
    }
}

/// Refuses pools that would be adjusted.
#[cold]
pub(crate) fn validate(
    memory_type: &dyn Fn(u32) -> Option<MemoryType>,
    count: u32,
    pool: &dyn Fn(u32) -> Result<PoolOptions, Error>,
) -> Result<(), Refusal> {
    for i in 0..count {
        let pool = pool(i)?;
        let index = pool.memory_type;
        let memory_type = memory_type(index).ok_or_else(|| invalid(c"memory_type", u64::from(index)))?;
        pool.validate(&memory_type)?;
    }
    Ok(())
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
    // SAFETY: the contract of the public function.
    let memory = unsafe { host.books(&books, lock)? };
    let mut options = plan.options.clone().with_memory(memory).with_lock(lock);
    if COMPLETE && !config.budget.is_null() {
        // SAFETY: the contract of the public function.
        options = options.with_budget(&*unsafe { budget::get(config.budget)? });
    }
    let validates = config.flags & SLICEPOOL_ALLOCATOR_VALIDATE != 0;
    #[cfg(feature = "complete")]
    if let Pools::Blocks(used) = &plan.pools {
        // SAFETY: the contract of the public function.
        let asked = unsafe { abi::read(config.blocks)? }.as_list();
        device.tell_rounded(asked, used);
    }
    let inner = plan.with_pools(|memory, pools| Allocator::with_pools_of(device, memory, pools, options))?;
    let object =
        host::place(memory, slicepool_allocator { inner, memory, validates }).map_err(|(_, refusal)| refusal)?;
    // SAFETY: not NULL, the caller provides it.
    unsafe { allocator.write(object.as_ptr()) };
    Ok(())
}

/// Creates an allocator. Takes nothing from the device yet, unless pools have min_pages.
///
/// @param device     copied; its user_data must stay valid until the allocator is gone
/// @param config     copied with all it points to; may be NULL for the defaults
/// @param allocator  set on success; to be destroyed or abandoned by the caller
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT (config->failure names the field), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY,
///         SLICEPOOL_ERROR_VERSION_MISMATCH; those of slicepool_prefill() for min_pages, of which the device has all
///         back then
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
        match abi::read_or_default(config) {
            Ok(config) => finish_with(create(device, &config, Books::Host, allocator), 0, config.failure),
            Err(refusal) => finish(Err(refusal)),
        }
    }
}

/// Creates an allocator all of whose bookkeeping, and itself, lives in a block of memory that the caller provides. It
/// never asks for more: when the block is full, calls answer SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY until something is
/// freed. How much has to be freed depends: cutting a slice wants some slots to spare whether it needs them or not. A
/// block of slicepool_allocator_bytes_needed() is never full, unless with what that does not count.
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
        match abi::read_or_default(config) {
            Ok(config) => {
                let books = Books::Block { memory, bytes };
                finish_with(create(device, &config, books, allocator), 0, config.failure)
            }
            Err(refusal) => finish(Err(refusal)),
        }
    }
}

/// Bytes of a block for slicepool_allocator_create_in() in which an allocator of this config always has room for its
/// books, as far as they are counted.
///
/// An upper bound, whichever pools the slices and pages are in and in whatever order they come and go. Not counted:
/// names and user data; pools of slices with pages of their own (DEDICATED, device_data, PERSISTENT), unless the config
/// has SLICEPOOL_ALLOCATOR_DEDICATED_WHEN_TOO_LARGE or a persistent_granule; 64 bytes for each slice of a
/// slicepool_allocate_many() while that runs; and one slot of 32 bytes that wears out with every 16.7 million frees of
/// it.
///
/// @param config  as for slicepool_allocator_create_in(); may be NULL
/// @param slices  the most slices that are live or pending at a time
/// @param pages   the most pages that are held at a time, of all pools together, those being taken included
/// @param timelines  the most timelines that slices have waited for, and that are not forgotten. Not counted: 32 bytes
///                   for each point of slices that wait for several; other pools beside those there are, while
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
        let config = match abi::read_or_default(config) {
            Ok(config) => config,
            Err(refusal) => return finish(Err(refusal)),
        };
        let outcome = (|| {
            let bytes = abi::out(bytes, c"bytes")?;
            let plan = Plan::read(&config)?;
            let books = plan.with_pools(|memory, pools_of| {
                block_bytes_with(memory, pools_of, &plan.options, slices, pages, timelines)
            })?;
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
/// @return SLICEPOOL_ERROR_BUSY while slices are live or pending, or a callback of this allocator is running (so from
///         within one, FORCE or not); SLICEPOOL_ERROR_DEVICE_FAILED if the device refuses to take a page back. The
///         allocator and its slices are as usable as before then; a refused page counts as stuck.
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
/// Of each pool the page that has held nothing the longest is looked at: where that one is too large to go, others of
/// its pool stay too. Pages of persistent slices are neither given back nor counted.
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

/// Makes memory that the program owns a page of a pool, as if the device had just given it out: slices are cut from it,
/// and it goes back to the callback `deallocate` like any other, where `context` can tell it apart.
///
/// @param pool     position in the list of pools
/// @param memory   as `allocate` fills it in, and its size: of pools whose pages are equal it must be theirs, of
///                 exclusive pages one that the pool takes itself, otherwise a multiple of the granule; device_code 0
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT (no such pool, a size that it cannot use, the handle UINT64_MAX),
///         SLICEPOOL_ERROR_DEVICE_FAILED (not aligned; live already), SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED,
///         SLICEPOOL_ERROR_BUDGET_EXCEEDED, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY,
///         SLICEPOOL_ERROR_NOT_SUPPORTED in a dry run, SLICEPOOL_ERROR_BUSY while the allocator is being destroyed. The
///         memory is still the program's then
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_adopt(
    allocator: *mut slicepool_allocator,
    pool: u32,
    memory: *const slicepool_device_memory,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let memory = abi::read(memory)?;
            if memory.device_code != 0 {
                return Err(invalid(c"device_code", u64::from(memory.device_code as u32)));
            }
            Ok(inner.adopt(pool, &memory.to_core(memory.size))?)
        })();
        finish_with(outcome, 0, failure)
    }
}

/// Takes pages from the device that hold nothing yet, until a pool of sliced pages holds as many.
///
/// @param pool     position in the list of pools
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT (no such pool, or not of sliced pages); otherwise as slicepool_allocate().
///         Pages that were taken stay
///
/// Threads: any. Cost: one device call a page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_prefill(
    allocator: *mut slicepool_allocator,
    pool: u32,
    pages: u32,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = slicepool_allocator::get(allocator).and_then(|it| Ok(it.prefill(pool, pages)?));
        finish_with(outcome, 0, failure)
    }
}

/// The pools that an allocator of this config would have, as slicepool_pool_options_get() tells: those of `blocks`, or
/// adaptive ones for each memory type, or those it names. Change them as you like and name them in its stead.
///
/// @param config  as for slicepool_allocator_create()
/// @param pools   `capacity` structs, of which the first has its struct_size set; written only if the whole list fits;
///                may be NULL if capacity is 0
/// @param count   set to the number of pools: if it is above capacity, nothing was written
/// @return as slicepool_allocator_create()
///
/// Threads: any. Cost: constant per pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_config_pools(
    config: *const slicepool_allocator_config,
    pools: *mut slicepool_pool_options,
    capacity: u32,
    count: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let config = match abi::read_or_default(config) {
            Ok(config) => config,
            Err(refusal) => return finish(Err(refusal)),
        };
        let outcome = (|| {
            let plan = Plan::read(&config)?;
            plan.memory.layout().check()?;
            plan.with_pools(|memory, source| {
                let in_effect = |i| {
                    let pool = (source.pool)(i)?;
                    let refused = Error::InvalidArgument { field: c"memory_type", value: u64::from(pool.memory_type) };
                    let memory_type = memory.types.get(pool.memory_type as usize).ok_or(refused)?;
                    pool.in_effect(&memory.in_effect(memory_type))
                };
                // All of them, also where none is written.
                (0..source.count).try_for_each(|i| in_effect(i).map(|_| ()))?;
                write_pools(source.count, &in_effect, pools, capacity, count)
            })
        })();
        finish_with(outcome, 0, config.failure)
    }
}

/// sizeof(slicepool_allocator_config) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_allocator_config() -> u32 {
    size_of::<slicepool_allocator_config>() as u32
}
