//! cubecl-runtime 0.11.0-pre.3: its memory management over a storage without memory. Not locked. A slice is free once
//! its last handle has been dropped, which is found out when memory is next looked for.

use crate::GRANULE;
use crate::placement::{Place, Placed};
use crate::subjects::Subject;
use cubecl_ir::MemoryDeviceProperties;
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::memory_management::{
    ManagedMemoryHandle, MemoryAllocationMode, MemoryConfiguration, MemoryManagement, MemoryManagementOptions,
    MemoryPoolOptions, PoolType,
};
use cubecl_runtime::server::IoError;
use cubecl_runtime::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};
use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

/// Bytes of a page that many slices share: it is fastest with small ones.
const PAGE: u64 = 8 << 20;

/// A storage that remembers how large its pages are.
#[derive(Default)]
struct Storage {
    pages: HashMap<StorageId, (u64, u64)>,
    last: u64,
}

impl ComputeStorage for Storage {
    type Resource = ();

    fn alignment(&self) -> usize {
        GRANULE as usize
    }

    fn get(&mut self, _: &StorageHandle) -> Result<(), IoError> {
        Ok(())
    }

    fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
        let id = StorageId::new();
        self.last += 1;
        self.pages.insert(id, (self.last, size));
        Ok(StorageHandle::new(id, StorageUtilization { offset: 0, size }))
    }

    fn dealloc(&mut self, id: StorageId) {
        self.pages.remove(&id);
    }

    fn flush(&mut self) {}
}

/// Which of its pools.
pub trait Kind: 'static {
    /// Name in tables.
    const NAME: &'static str;
    /// The pool.
    fn pool() -> PoolType;
}

/// Slices of shared pages.
pub struct Sliced;

impl Kind for Sliced {
    const NAME: &'static str = "cubecl, sliced pages";

    fn pool() -> PoolType {
        PoolType::SlicedPages { page_size: PAGE, max_slice_size: PAGE, max_pool_size: None }
    }
}

/// A page for each slice, used again for slices of exactly its size.
pub struct Direct;

impl Kind for Direct {
    const NAME: &'static str = "cubecl, direct";

    fn pool() -> PoolType {
        PoolType::Direct { reclaim_at: None }
    }
}

/// Memory management with one pool.
pub struct Cubecl<K> {
    // To ask where a slice lies, it has to be borrowed as if that changed something.
    management: RefCell<MemoryManagement<Storage>>,
    kind: PhantomData<K>,
}

impl<K: Kind> Subject for Cubecl<K> {
    type Handle = ManagedMemoryHandle;
    const NAME: &'static str = K::NAME;

    fn new(_: u64, _: usize) -> Self {
        let properties = MemoryDeviceProperties { max_page_size: 1 << 40, alignment: GRANULE };
        let pool = MemoryPoolOptions { pool_type: K::pool(), dealloc_period: None };
        let management = MemoryManagement::from_configuration(
            Storage::default(),
            &properties,
            MemoryConfiguration::Custom { pool_options: vec![pool] },
            Arc::new(ServerLogger::default()),
            MemoryManagementOptions::new("bench").mode(MemoryAllocationMode::Auto),
        );
        Self { management: RefCell::new(management), kind: PhantomData }
    }

    fn allocate(&mut self, bytes: u64) -> Option<ManagedMemoryHandle> {
        self.management.get_mut().reserve(bytes).ok()
    }

    fn free(&mut self, handle: ManagedMemoryHandle) {
        drop(handle);
    }
}

impl<K: Kind> Placed for Cubecl<K> {
    fn place(&self, handle: &ManagedMemoryHandle, _: u64) -> Place {
        let mut management = self.management.borrow_mut();
        let slice = management.get_storage(handle.clone().binding()).expect("live");
        let (page, _) = management.storage().pages[&slice.id];
        Place { page, offset: slice.offset(), bytes: slice.size() }
    }

    fn page_bytes(&self, page: u64) -> Option<u64> {
        let mut management = self.management.borrow_mut();
        management.storage().pages.values().find(|(number, _)| *number == page).map(|&(_, bytes)| bytes)
    }
}
