//! A device that writes down what it is told, and gives handles out again as soon as it can.

use super::devices::LedgerDevice;
use super::filler::Fill;
use super::lock;
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceLayout, DeviceMemory, Event, EventKind, FillReason,
    FillRequest, PageRequest, Point, PoolOptions,
};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

type After = fn(&Allocator<Listening>);
type During = dyn Fn(&Allocator<Listening>, &Event) + Send + Sync;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Has no memory; the next page has the lowest handle that is free, and an address that goes with it.
#[derive(Default)]
pub(crate) struct Reusing {
    used: Mutex<BTreeSet<u64>>,
    /// Whether the next page has an address that is not aligned.
    misalign: AtomicBool,
}

impl Device for Reusing {
    fn allocate(&self, _: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        let mut used = self.used.lock().unwrap();
        let handle = (1..).find(|handle| !used.contains(handle)).unwrap_or(0);
        used.insert(handle);
        let askew = u64::from(self.misalign.swap(false, Ordering::Relaxed));
        Ok(DeviceMemory { address: (handle << 40) + askew, ..DeviceMemory::new(handle) })
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        assert!(self.used.lock().unwrap().remove(&memory.handle));
        Ok(())
    }
}

/// Keeps books, and all events.
pub(crate) struct Listening {
    pub(crate) ledger: LedgerDevice<Reusing>,
    allocator: OnceLock<Weak<Allocator<Listening>>>,
    events: Mutex<Vec<Event>>,
    fill: Mutex<Fill>,
    during: OnceLock<Box<During>>,
    after_return: Mutex<Option<After>>,
}

impl Listening {
    pub(crate) fn new() -> Self {
        Self {
            ledger: LedgerDevice::over(Reusing::default()),
            allocator: OnceLock::new(),
            events: Mutex::default(),
            fill: Mutex::new(Fill::Now),
            during: OnceLock::new(),
            after_return: Mutex::new(None),
        }
    }

    /// An allocator over such a device.
    pub(crate) fn under(pools: &[PoolOptions], options: AllocatorOptions) -> Arc<Allocator<Listening>> {
        let types = [options.memory_type];
        Self::with_memory(&DeviceLayout::new(&types, &[]), pools, options)
    }

    /// An allocator over such a device with several kinds of memory.
    pub(crate) fn with_memory(
        memory: &DeviceLayout<'_>,
        pools: &[PoolOptions],
        options: AllocatorOptions,
    ) -> Arc<Allocator<Listening>> {
        let allocator = Allocator::with_memory_types(Self::new(), memory, pools, options).unwrap();
        let allocator = Arc::new(allocator);
        assert!(allocator.device().allocator.set(Arc::downgrade(&allocator)).is_ok());
        allocator
    }

    /// Everything that was told since this was last asked for, as it arrived.
    pub(crate) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// The kinds of these events.
    pub(crate) fn take_kinds(&self) -> Vec<EventKind> {
        self.take_events().iter().map(|event| event.kind).collect()
    }

    /// From now on answers so when it is to overwrite something.
    pub(crate) fn fill_so(&self, fill: Fill) {
        *self.fill.lock().unwrap() = fill;
    }

    /// The next page has an address that is not aligned.
    pub(crate) fn misalign_next(&self) {
        self.ledger.inner().misalign.store(true, Ordering::Relaxed);
    }

    /// Runs `after` in the next call that takes a page back, when its handle is free.
    pub(crate) fn after_next_return(&self, after: After) {
        *self.after_return.lock().unwrap() = Some(after);
    }

    /// Runs `during` for each event, but not for those that come of that; to be said once.
    pub(crate) fn in_each_event(&self, during: impl Fn(&Allocator<Listening>, &Event) + Send + Sync + 'static) {
        assert!(self.during.set(Box::new(during)).is_ok());
    }
}

impl Device for Listening {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.ledger.allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.ledger.deallocate(memory)?;
        let after = self.after_return.lock().unwrap().take();
        if let (Some(after), Some(allocator)) = (after, self.allocator.get().and_then(Weak::upgrade)) {
            after(&allocator);
        }
        Ok(())
    }

    fn can_fill(&self) -> bool {
        true
    }

    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        assert!(!lock::is_held_here(), "the device was called under a lock");
        match *self.fill.lock().unwrap() {
            Fill::Now => Ok(None),
            Fill::Until(point) => Ok((request.reason == FillReason::Scrub).then_some(point)),
            Fill::Never(error) => Err(error),
        }
    }

    fn hears_events(&self) -> bool {
        true
    }

    fn event(&self, event: &Event) {
        assert!(!lock::is_held_here(), "an event was told under a lock");
        self.events.lock().unwrap().push(*event);
        let (Some(during), Some(allocator)) = (self.during.get(), self.allocator.get().and_then(Weak::upgrade)) else {
            return;
        };
        if !INSIDE.replace(true) {
            during(&allocator, event);
            INSIDE.set(false);
        }
    }
}
