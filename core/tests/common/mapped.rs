//! A device whose pages the CPU sees: for good, or when it is asked to map them.

use super::devices::LedgerDevice;
use super::lock;
use slicepool_core::{
    Allocator, AllocatorOptions, CacheRange, Device, DeviceError, DeviceMemory, PageRequest, PoolOptions,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Whether pages are visible without being mapped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Visible {
    Never,
    OnDemand,
    Always,
}

/// A call to flush or invalidate: whether the former, where, how much.
pub(crate) type Cached = (bool, u64, u64, u64);

type During = dyn FnOnce(&Allocator<Mapped>) + Send;

/// Keeps books of what is mapped, and panics if a page is mapped twice, unmapped when it is not mapped, or given back
/// mapped.
pub(crate) struct Mapped {
    pub(crate) ledger: LedgerDevice,
    visible: Visible,
    allocator: OnceLock<Weak<Allocator<Mapped>>>,
    /// Handles of mapped pages.
    mapped: Mutex<HashSet<u64>>,
    maps: AtomicU64,
    unmaps: AtomicU64,
    /// What the next call to map answers in place of an address; `Ok`: NULL.
    failure: Mutex<Option<Result<(), DeviceError>>>,
    in_map: Mutex<Option<Box<During>>>,
    in_unmap: Mutex<Option<Box<During>>>,
    cached: Mutex<Vec<Cached>>,
}

/// Where a page is mapped.
pub(crate) fn base_of(handle: u64) -> u64 {
    0x7000_0000_0000 + (handle << 32)
}

impl Mapped {
    /// An allocator over such a device.
    pub(crate) fn under(visible: Visible, pools: &[PoolOptions], options: AllocatorOptions) -> Arc<Allocator<Mapped>> {
        let device = Mapped {
            ledger: LedgerDevice::new(),
            visible,
            allocator: OnceLock::new(),
            mapped: Mutex::default(),
            maps: AtomicU64::new(0),
            unmaps: AtomicU64::new(0),
            failure: Mutex::new(None),
            in_map: Mutex::new(None),
            in_unmap: Mutex::new(None),
            cached: Mutex::default(),
        };
        let allocator = Arc::new(Allocator::try_new(device, pools, options).unwrap());
        assert!(allocator.device().allocator.set(Arc::downgrade(&allocator)).is_ok());
        allocator
    }

    /// Calls to map and to unmap, failed ones included.
    pub(crate) fn calls(&self) -> (u64, u64) {
        (self.maps.load(Ordering::Relaxed), self.unmaps.load(Ordering::Relaxed))
    }

    /// Pages that are mapped.
    pub(crate) fn mapped(&self) -> usize {
        self.mapped.lock().unwrap().len()
    }

    /// What the next call to map answers in place of an address; `Ok`: NULL.
    pub(crate) fn fail_next_map(&self, answer: Result<(), DeviceError>) {
        *self.failure.lock().unwrap() = Some(answer);
    }

    /// Runs `during` in the next call to map.
    pub(crate) fn in_next_map(&self, during: impl FnOnce(&Allocator<Mapped>) + Send + 'static) {
        *self.in_map.lock().unwrap() = Some(Box::new(during));
    }

    /// Runs `during` in the next call to unmap.
    pub(crate) fn in_next_unmap(&self, during: impl FnOnce(&Allocator<Mapped>) + Send + 'static) {
        *self.in_unmap.lock().unwrap() = Some(Box::new(during));
    }

    /// The calls to flush and invalidate since this was last asked for.
    pub(crate) fn take_cached(&self) -> Vec<Cached> {
        std::mem::take(&mut self.cached.lock().unwrap())
    }

    fn run(&self, during: &Mutex<Option<Box<During>>>) {
        let next = during.lock().unwrap().take();
        if let (Some(next), Some(allocator)) = (next, self.allocator.get().and_then(Weak::upgrade)) {
            next(&allocator);
        }
    }

    fn note_cached(&self, flush: bool, range: &CacheRange) {
        assert!(!lock::is_held_here(), "the device was called under a lock");
        let CacheRange { memory, offset, size, .. } = *range;
        assert!(self.ledger.is_out(memory.handle) && size != 0 && offset + size <= memory.size, "{range:?}");
        self.cached.lock().unwrap().push((flush, memory.handle, offset, size));
    }
}

impl Device for Mapped {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        let memory = self.ledger.allocate(request)?;
        let at = if self.visible == Visible::Always { base_of(memory.handle) as usize } else { 0 };
        Ok(DeviceMemory { mapped: std::ptr::without_provenance_mut(at), ..memory })
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        assert!(!self.mapped.lock().unwrap().contains(&memory.handle), "a page came back mapped");
        self.ledger.deallocate(memory)
    }

    fn can_map(&self) -> bool {
        self.visible == Visible::OnDemand
    }

    fn map(&self, memory: &DeviceMemory) -> Result<*mut u8, DeviceError> {
        assert!(!lock::is_held_here(), "the device was called under a lock");
        assert!(self.ledger.is_out(memory.handle), "a page that went back is to be mapped");
        self.maps.fetch_add(1, Ordering::Relaxed);
        let failure = self.failure.lock().unwrap().take();
        if failure.is_none() {
            assert!(self.mapped.lock().unwrap().insert(memory.handle), "a page is mapped twice");
        }
        self.run(&self.in_map);
        assert!(self.ledger.is_out(memory.handle), "a page went back while it was being mapped");
        match failure {
            None => Ok(std::ptr::without_provenance_mut(base_of(memory.handle) as usize)),
            Some(answer) => answer.map(|()| std::ptr::null_mut()),
        }
    }

    fn unmap(&self, memory: &DeviceMemory) {
        assert!(!lock::is_held_here(), "the device was called under a lock");
        assert!(self.ledger.is_out(memory.handle), "a page is unmapped that went back");
        assert_eq!(memory.mapped.addr() as u64, base_of(memory.handle), "unmapped elsewhere than it was mapped");
        self.unmaps.fetch_add(1, Ordering::Relaxed);
        self.run(&self.in_unmap);
        assert!(self.mapped.lock().unwrap().remove(&memory.handle), "a page is unmapped that is not mapped");
        assert!(self.ledger.is_out(memory.handle), "a page went back while it was being unmapped");
    }

    fn can_flush(&self) -> bool {
        self.visible != Visible::Never
    }

    fn flush(&self, range: &CacheRange) -> Result<(), DeviceError> {
        self.note_cached(true, range);
        Ok(())
    }

    fn invalidate(&self, range: &CacheRange) -> Result<(), DeviceError> {
        self.note_cached(false, range);
        Ok(())
    }
}
