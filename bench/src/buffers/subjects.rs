//! What is measured: slicepool's buffer pools and their peers.

use super::{Buffers, Local, Setup};
use slicepool_core::{BufferCache, BufferId, BufferPool, BufferPoolConfig, PooledBuffer, RawBuffer};
use std::num::{NonZeroU32, NonZeroUsize};
use std::ptr::NonNull;

fn nonzero(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).expect("not zero")
}

fn pool(setup: &Setup) -> BufferPool {
    let limit = NonZeroU32::new(setup.limit).expect("not zero");
    let config = BufferPoolConfig::for_network()
        .with_size_class_range(nonzero(setup.bytes), nonzero(setup.bytes), limit)
        .with_parallelism(nonzero(setup.threads));
    let config = match setup.cache {
        Some(capacity) => config.with_max_thread_cache_capacity(nonzero(capacity)),
        None => config.with_thread_cache_disabled(),
    };
    BufferPool::try_new(config).expect("valid config")
}

/// Buffers that have an owner, through a cache.
pub struct Owner(BufferPool);

impl Buffers for Owner {
    type Local = OwnerLocal;

    fn new(setup: &Setup) -> Self {
        Self(pool(setup))
    }

    fn local(&self) -> OwnerLocal {
        OwnerLocal(self.0.cache().expect("host memory"))
    }
}

/// See [`Owner`].
pub struct OwnerLocal(BufferCache);

impl Local for OwnerLocal {
    type Buffer = PooledBuffer;

    #[inline]
    fn acquire(&mut self, bytes: usize) -> Option<PooledBuffer> {
        self.0.try_alloc(bytes).ok()
    }

    #[inline]
    fn release(&mut self, buffer: PooledBuffer) {
        self.0.release(buffer);
    }

    #[inline]
    fn start(buffer: &mut PooledBuffer) -> *mut u8 {
        buffer.as_mut_ptr()
    }
}

/// The same without a cache.
pub struct OwnerShared(BufferPool);

impl Buffers for OwnerShared {
    type Local = OwnerSharedLocal;

    fn new(setup: &Setup) -> Self {
        Self(pool(setup))
    }

    fn local(&self) -> OwnerSharedLocal {
        OwnerSharedLocal(self.0.clone())
    }
}

/// See [`OwnerShared`].
pub struct OwnerSharedLocal(BufferPool);

impl Local for OwnerSharedLocal {
    type Buffer = PooledBuffer;

    #[inline]
    fn acquire(&mut self, bytes: usize) -> Option<PooledBuffer> {
        self.0.try_alloc(bytes).ok()
    }

    #[inline]
    fn release(&mut self, buffer: PooledBuffer) {
        drop(buffer);
    }

    #[inline]
    fn start(buffer: &mut PooledBuffer) -> *mut u8 {
        buffer.as_mut_ptr()
    }
}

/// A buffer that is named by its handle, and where it begins.
pub struct Handle(BufferId, *mut u8);

// SAFETY: whoever has it owns the buffer.
unsafe impl Send for Handle {}

impl Handle {
    #[inline]
    fn of(buffer: RawBuffer) -> Option<Self> {
        buffer.id.map(|id| Self(id, buffer.mapped))
    }
}

/// Buffers whose handles are checked when they are released, through a cache: what the C functions do.
pub struct Raw(BufferPool);

impl Buffers for Raw {
    type Local = RawLocal;

    fn new(setup: &Setup) -> Self {
        Self(pool(setup))
    }

    fn local(&self) -> RawLocal {
        RawLocal(self.0.cache().expect("host memory"))
    }
}

/// See [`Raw`].
pub struct RawLocal(BufferCache);

impl Local for RawLocal {
    type Buffer = Handle;

    #[inline]
    fn acquire(&mut self, bytes: usize) -> Option<Handle> {
        self.0.take(bytes, false, false).ok().and_then(Handle::of)
    }

    #[inline]
    fn release(&mut self, buffer: Handle) {
        self.0.release_raw(buffer.0).expect("live");
    }

    #[inline]
    fn start(buffer: &mut Handle) -> *mut u8 {
        buffer.1
    }
}

/// The same without a cache.
pub struct RawShared(BufferPool);

impl Buffers for RawShared {
    type Local = RawSharedLocal;

    fn new(setup: &Setup) -> Self {
        Self(pool(setup))
    }

    fn local(&self) -> RawSharedLocal {
        RawSharedLocal(self.0.clone())
    }
}

/// See [`RawShared`].
pub struct RawSharedLocal(BufferPool);

impl Local for RawSharedLocal {
    type Buffer = Handle;

    #[inline]
    fn acquire(&mut self, bytes: usize) -> Option<Handle> {
        self.0.take(bytes, false, false).ok().and_then(Handle::of)
    }

    #[inline]
    fn release(&mut self, buffer: Handle) {
        self.0.release(buffer.0).expect("live");
    }

    #[inline]
    fn start(buffer: &mut Handle) -> *mut u8 {
        buffer.1
    }
}

/// Memory that `malloc` has handed out.
pub struct Block(NonNull<u8>);

// SAFETY: whoever has it owns the memory.
unsafe impl Send for Block {}

/// mimalloc. Has neither limits nor handles.
#[derive(Clone, Copy)]
pub struct Mimalloc;

impl Buffers for Mimalloc {
    type Local = Self;

    fn new(_: &Setup) -> Self {
        Self
    }

    fn local(&self) -> Self {
        Self
    }
}

impl Local for Mimalloc {
    type Buffer = Block;

    #[inline]
    fn acquire(&mut self, bytes: usize) -> Option<Block> {
        // SAFETY: any size will do.
        NonNull::new(unsafe { libmimalloc_sys::mi_malloc(bytes) }.cast()).map(Block)
    }

    #[inline]
    fn release(&mut self, buffer: Block) {
        // SAFETY: allocated above, and freed once.
        unsafe { libmimalloc_sys::mi_free(buffer.0.as_ptr().cast()) };
    }

    #[inline]
    fn start(buffer: &mut Block) -> *mut u8 {
        buffer.0.as_ptr()
    }
}

/// The system's `malloc`. Has neither limits nor handles.
#[derive(Clone, Copy)]
pub struct System;

impl Buffers for System {
    type Local = Self;

    fn new(_: &Setup) -> Self {
        Self
    }

    fn local(&self) -> Self {
        Self
    }
}

impl Local for System {
    type Buffer = Block;

    #[inline]
    fn acquire(&mut self, bytes: usize) -> Option<Block> {
        // SAFETY: any size will do.
        NonNull::new(unsafe { libc::malloc(bytes) }.cast()).map(Block)
    }

    #[inline]
    fn release(&mut self, buffer: Block) {
        // SAFETY: allocated above, and freed once.
        unsafe { libc::free(buffer.0.as_ptr().cast()) };
    }

    #[inline]
    fn start(buffer: &mut Block) -> *mut u8 {
        buffer.0.as_ptr()
    }
}

/// commonware-runtime 2026.9.0: an owner, no handle; caches are thread-local.
#[cfg(feature = "heavy")]
pub mod commonware {
    use super::{Buffers, Local, Setup, nonzero};
    use commonware_runtime::{BufferPool, BufferPoolConfig, BufferPooler as _, IoBufMut, Runner as _, tokio};
    use std::num::NonZeroU32;

    /// Its buffer pool.
    #[derive(Clone)]
    pub struct Commonware(BufferPool);

    impl Buffers for Commonware {
        type Local = Self;

        fn new(setup: &Setup) -> Self {
            let limit = NonZeroU32::new(setup.limit).expect("not zero");
            let config = BufferPoolConfig::for_network()
                .with_size_class_range(nonzero(setup.bytes), nonzero(setup.bytes), limit)
                .with_parallelism(nonzero(setup.threads));
            let config = match setup.cache {
                Some(capacity) => config.with_max_thread_cache_capacity(nonzero(capacity)),
                None => config.with_thread_cache_disabled(),
            };
            // Only a runtime makes pools; they outlive it.
            let runtime = tokio::Config::default().with_worker_threads(1).with_network_buffer_pool_config(config);
            Self(tokio::Runner::new(runtime).start(|context| async move { context.network_buffer_pool().clone() }))
        }

        fn local(&self) -> Self {
            self.clone()
        }
    }

    impl Local for Commonware {
        type Buffer = IoBufMut;

        #[inline]
        fn acquire(&mut self, bytes: usize) -> Option<IoBufMut> {
            self.0.try_alloc(bytes).ok()
        }

        #[inline]
        fn release(&mut self, buffer: IoBufMut) {
            drop(buffer);
        }

        #[inline]
        fn start(buffer: &mut IoBufMut) -> *mut u8 {
            buffer.as_mut_ptr()
        }
    }
}
