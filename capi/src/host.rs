//! The host side: where the books are kept and how threads are kept apart.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::runtime::default_lock;
use core::alloc::Layout;
use core::ffi::{CStr, c_void};
use core::ptr::{self, NonNull};
use slicepool_core::{Error, HostMemory, LockKind};

/// Gives `size` bytes at a multiple of `alignment`, a power of two; NULL if there is none. Memory that is not aligned
/// as asked is given back and counts as none.
pub type slicepool_host_allocate_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, size: u64, alignment: u64) -> *mut c_void>;

/// Takes back what `allocate` gave, with the same size and alignment.
pub type slicepool_host_deallocate_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, memory: *mut c_void, size: u64, alignment: u64)>;

/// Takes or gives up a lock.
pub type slicepool_host_lock_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Waits a little between two tries for the spin lock; `attempt` counts from 0.
pub type slicepool_host_wait_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, attempt: u32)>;

/// The host side of one allocator, space, budget or buffer pool: all optional, NULL means the default. Copied at
/// creation.
///
/// None of these functions may call slicepool, throw, longjmp or unwind. Any thread that uses the object calls them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_host {
    /// sizeof(slicepool_host), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// First argument of every function.
    pub user_data: *mut c_void,
    /// Memory for bookkeeping; never called with a lock held. Both or neither. Default: the C library's; without an
    /// operating system there is none.
    pub allocate: slicepool_host_allocate_fn,
    /// See `allocate`.
    pub deallocate: slicepool_host_deallocate_fn,
    /// A lock instead of the spin lock: a mutex, or interrupts off. A plain one will do: it is never taken twice by
    /// one thread, nor held across a callback. Both or neither. Not used by spaces.
    pub lock: slicepool_host_lock_fn,
    /// See `lock`.
    pub unlock: slicepool_host_lock_fn,
    /// What to do between two tries for the spin lock. Default: growing pauses, then the CPU is given up.
    pub wait: slicepool_host_wait_fn,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests); NULL is a valid function pointer.
unsafe impl Struct for slicepool_host {
    const NAME: &'static CStr = c"host";
}

/// The host side as core's types.
pub(crate) struct Host {
    pub(crate) memory: HostMemory,
    /// Whether the caller has functions for memory.
    pub(crate) has_memory: bool,
    pub(crate) lock: LockKind,
}

/// Reads the host side. `host` may be NULL.
///
/// # Safety
/// `host` is NULL or points to `struct_size` readable bytes; its functions keep the promises of the header.
#[cold]
pub(crate) unsafe fn read(host: *const slicepool_host) -> Result<Host, Refusal> {
    if host.is_null() {
        return Ok(Host { memory: HostMemory::global(), has_memory: false, lock: default_lock() });
    }
    // SAFETY: passed on from the caller.
    let host = unsafe { abi::read(host)? };
    if host.reserved != 0 {
        return Err(invalid(c"reserved", u64::from(host.reserved)));
    }
    let memory = match (host.allocate, host.deallocate) {
        // SAFETY: the contract of this function.
        (Some(allocate), Some(deallocate)) => unsafe { HostMemory::new(host.user_data, allocate, deallocate) },
        (None, None) => HostMemory::global(),
        (None, _) => return Err(invalid(c"allocate", 0)),
        (_, None) => return Err(invalid(c"deallocate", 0)),
    };
    let lock = match (host.lock, host.unlock, host.wait) {
        // SAFETY: the contract of this function.
        (Some(lock), Some(unlock), _) => unsafe { LockKind::hooks(host.user_data, lock, unlock) },
        // SAFETY: the contract of this function.
        (None, None, Some(wait)) => unsafe { LockKind::spin_with(host.user_data, wait) },
        (None, None, None) => default_lock(),
        (None, _, _) => return Err(invalid(c"lock", 0)),
        (_, None, _) => return Err(invalid(c"unlock", 0)),
    };
    Ok(Host { memory, has_memory: host.allocate.is_some(), lock })
}

/// Where the books go.
pub(crate) enum Books {
    /// Into memory of the host, bit by bit.
    Host,
    /// All into one block.
    Block { memory: *mut c_void, bytes: u64 },
}

impl Host {
    /// The memory for the books, of which a block is kept apart by `lock`.
    ///
    /// # Safety
    /// A block is the library's own from now on.
    #[cold]
    pub(crate) unsafe fn books(&self, books: &Books, lock: LockKind) -> Result<HostMemory, Refusal> {
        match *books {
            Books::Host => Ok(self.memory),
            Books::Block { .. } if self.has_memory => Err(invalid(c"allocate", 0)),
            Books::Block { memory, bytes } => {
                let (memory, bytes) = block(memory, c"memory", bytes, c"bytes")?;
                // SAFETY: passed on from the caller.
                let block = unsafe { HostMemory::in_block(memory, bytes, lock) };
                // A block without room for its own books is one that is full from the start.
                Ok(block.map_err(|_| Error::OutOfHostMemory { bytes: bytes as u64 })?)
            }
        }
    }
}

/// A block of memory that could exist.
#[cold]
pub(crate) fn block(
    memory: *mut c_void,
    memory_field: &'static CStr,
    bytes: u64,
    bytes_field: &'static CStr,
) -> Result<(NonNull<u8>, usize), Refusal> {
    let memory = NonNull::new(memory.cast::<u8>()).ok_or_else(|| invalid(memory_field, 0))?;
    let size = usize::try_from(bytes).ok().filter(|&size| memory.addr().get().checked_add(size).is_some());
    Ok((memory, size.ok_or_else(|| invalid(bytes_field, bytes))?))
}

/// Moves an object into host memory.
pub(crate) fn place<T>(memory: HostMemory, object: T) -> Result<NonNull<T>, (T, Refusal)> {
    match memory.allocate(Layout::new::<T>()) {
        Ok(at) => {
            let at = at.cast::<T>();
            // SAFETY: fresh memory of the right layout.
            unsafe { at.write(object) };
            Ok(at)
        }
        Err(error) => Err((object, error.into())),
    }
}

/// Moves an object out of host memory and frees that.
///
/// # Safety
/// `at` came from [`place`] with an equal `memory`, and nobody uses it any more.
pub(crate) unsafe fn take<T>(memory: HostMemory, at: *mut T) -> T {
    // SAFETY: passed on from the caller.
    unsafe {
        let object = ptr::read(at);
        memory.deallocate(NonNull::new_unchecked(at.cast()), Layout::new::<T>());
        object
    }
}

/// sizeof(slicepool_host) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_host() -> u32 {
    size_of::<slicepool_host>() as u32
}
