//! slicepool's C functions, through the shared library: `make` builds it; `SLICEPOOL_LIBRARY` names another one.

use super::{Buffers, Local, Setup};
use crate::c_churn::library as path;
use std::ffi::{CStr, c_void};
use std::mem::transmute_copy;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

/// `SLICEPOOL_DESTROY_FORCE`
const FORCE: u32 = 1;

type Pool = *mut c_void;
type Cache = *mut c_void;

/// `slicepool_buffer_pool_config`, of which only functions touch the fields: room for them.
#[repr(C, align(16))]
struct Config {
    struct_size: u32,
    rest: [u32; 511],
}

/// `slicepool_buffer`
#[repr(C)]
struct Buffer {
    struct_size: u32,
    reserved: u32,
    id: u64,
    memory: u64,
    offset: u64,
    size: u64,
    address: u64,
    mapped: *mut c_void,
    reserved_pointer: *mut c_void,
}

impl Buffer {
    /// `SLICEPOOL_BUFFER_INIT`
    const INIT: Self = Self {
        struct_size: size_of::<Self>() as u32,
        reserved: 0,
        id: 0,
        memory: 0,
        offset: 0,
        size: 0,
        address: 0,
        mapped: null_mut(),
        reserved_pointer: null_mut(),
    };
}

/// The functions that are needed.
struct Library {
    sizeof_config: extern "C" fn() -> u32,
    sizeof_buffer: extern "C" fn() -> u32,
    with_size_class_range: unsafe extern "C" fn(*mut Config, u64, u64, u32) -> i32,
    with_parallelism: unsafe extern "C" fn(*mut Config, u64) -> i32,
    with_cache: unsafe extern "C" fn(*mut Config, u64) -> i32,
    without_cache: unsafe extern "C" fn(*mut Config) -> i32,
    create: unsafe extern "C" fn(*const c_void, *const Config, *mut Pool) -> i32,
    destroy: unsafe extern "C" fn(Pool, u32, *mut c_void) -> i32,
    create_cache: unsafe extern "C" fn(Pool, *mut Cache) -> i32,
    destroy_cache: unsafe extern "C" fn(Cache) -> i32,
    acquire: unsafe extern "C" fn(Pool, Cache, u64, u32, *mut Buffer, *mut c_void) -> i32,
    release: unsafe extern "C" fn(Pool, Cache, u64) -> i32,
}

impl Library {
    fn open() -> Option<Self> {
        // SAFETY: the library does nothing when it is loaded.
        let library = unsafe { libc::dlopen(path().as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the functions are of the types that the header says.
        unsafe {
            Some(Self {
                sizeof_config: find(library, c"slicepool_sizeof_buffer_pool_config")?,
                sizeof_buffer: find(library, c"slicepool_sizeof_buffer")?,
                with_size_class_range: find(library, c"slicepool_buffer_pool_config_with_size_class_range")?,
                with_parallelism: find(library, c"slicepool_buffer_pool_config_with_parallelism")?,
                with_cache: find(library, c"slicepool_buffer_pool_config_with_max_thread_cache_capacity")?,
                without_cache: find(library, c"slicepool_buffer_pool_config_with_thread_cache_disabled")?,
                create: find(library, c"slicepool_buffer_pool_create")?,
                destroy: find(library, c"slicepool_buffer_pool_destroy")?,
                create_cache: find(library, c"slicepool_buffer_cache_create")?,
                destroy_cache: find(library, c"slicepool_buffer_cache_destroy")?,
                acquire: find(library, c"slicepool_buffer_acquire")?,
                release: find(library, c"slicepool_buffer_release")?,
            })
        }
    }
}

/// A function of a library.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn find<F>(library: *mut c_void, name: &CStr) -> Option<F> {
    // SAFETY: the library is loaded.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the caller's promise.
    (!at.is_null()).then(|| unsafe { transmute_copy(&at) })
}

fn library() -> Option<&'static Library> {
    static OPENED: OnceLock<Option<Library>> = OnceLock::new();
    OPENED.get_or_init(Library::open).as_ref()
}

/// Whether there is a library, and it has buffer pools.
pub fn is_there() -> bool {
    library().is_some()
}

/// A pool, to be destroyed when nobody uses it any more.
struct Owned(&'static Library, Pool);

// SAFETY: pools may be used from any thread.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: neither caches nor users are left.
        let result = unsafe { (self.0.destroy)(self.1, FORCE, null_mut()) };
        assert_eq!(result, 0, "the pool is destroyed");
    }
}

/// Buffers of the C library, with a cache for each thread if the setup has them.
pub struct C {
    pool: Arc<Owned>,
    caches: bool,
}

impl Buffers for C {
    type Local = CLocal;

    fn new(setup: &Setup) -> Self {
        let library = library().expect("the caller has looked");
        let bytes = setup.bytes as u64;
        let mut config = Config { struct_size: (library.sizeof_config)(), rest: [0; 511] };
        assert!(config.struct_size as usize <= size_of::<Config>());
        assert_eq!((library.sizeof_buffer)() as usize, size_of::<Buffer>());
        let mut pool = null_mut();
        // SAFETY: the config has room for its fields, and the rest of it is zero.
        let results = unsafe {
            [
                (library.with_size_class_range)(&raw mut config, bytes, bytes, setup.limit),
                (library.with_parallelism)(&raw mut config, setup.threads as u64),
                match setup.cache {
                    Some(capacity) => (library.with_cache)(&raw mut config, capacity as u64),
                    None => (library.without_cache)(&raw mut config),
                },
                (library.create)(null_mut(), &raw const config, &raw mut pool),
            ]
        };
        assert_eq!(results, [0; 4], "valid config");
        Self { pool: Arc::new(Owned(library, pool)), caches: setup.cache.is_some() }
    }

    fn local(&self) -> CLocal {
        let mut cache = null_mut();
        if self.caches {
            // SAFETY: the pool lives.
            let result = unsafe { (self.pool.0.create_cache)(self.pool.1, &raw mut cache) };
            assert_eq!(result, 0, "host memory");
        }
        CLocal { library: self.pool.0, pool: self.pool.1, cache, _alive: self.pool.clone() }
    }
}

/// See [`C`].
pub struct CLocal {
    library: &'static Library,
    pool: Pool,
    cache: Cache,
    _alive: Arc<Owned>,
}

impl Drop for CLocal {
    fn drop(&mut self) {
        if !self.cache.is_null() {
            // SAFETY: nobody uses it any more.
            let result = unsafe { (self.library.destroy_cache)(self.cache) };
            assert_eq!(result, 0, "the cache is destroyed");
        }
    }
}

/// What a C program keeps of a buffer.
pub struct Kept {
    id: u64,
    mapped: *mut c_void,
}

// SAFETY: whoever has it owns the buffer.
unsafe impl Send for Kept {}

impl Local for CLocal {
    type Buffer = Kept;

    #[inline]
    fn acquire(&mut self, bytes: usize) -> Option<Kept> {
        let mut buffer = Buffer::INIT;
        // SAFETY: pool and cache live; the cache is this thread's.
        let result =
            unsafe { (self.library.acquire)(self.pool, self.cache, bytes as u64, 0, &raw mut buffer, null_mut()) };
        (result == 0).then_some(Kept { id: buffer.id, mapped: buffer.mapped })
    }

    #[inline]
    fn release(&mut self, buffer: Kept) {
        // SAFETY: as above.
        let result = unsafe { (self.library.release)(self.pool, self.cache, buffer.id) };
        assert_eq!(result, 0, "live");
    }

    #[inline]
    fn start(buffer: &mut Kept) -> *mut u8 {
        buffer.mapped.cast()
    }
}
