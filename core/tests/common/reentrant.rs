//! A device whose callbacks use the allocator they serve.

use super::devices::LedgerDevice;
use slicepool_core::{Allocator, AllocatorOptions, Device, DeviceError, DeviceMemory, PageRequest, PoolOptions};
use std::sync::{Arc, Mutex, OnceLock, Weak};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Call {
    Allocate,
    Deallocate,
}

type During = dyn Fn(&Allocator<Reentrant>, Call) + Send + Sync;

/// Runs something in each call, but not in calls that come of that.
pub(crate) struct Reentrant {
    pub(crate) ledger: LedgerDevice,
    allocator: OnceLock<Weak<Allocator<Reentrant>>>,
    during: Box<During>,
    /// Whether calls are answered at once because another is under way; `None`: they never are.
    inside: Option<Mutex<bool>>,
}

impl Reentrant {
    fn call_back(&self, call: Call) {
        let enter = |inside| self.inside.as_ref().is_some_and(|it| std::mem::replace(&mut *it.lock().unwrap(), inside));
        if enter(true) {
            return;
        }
        if let Some(allocator) = self.allocator.get().and_then(Weak::upgrade) {
            (self.during)(&allocator, call);
        }
        enter(false);
    }
}

impl Device for Reentrant {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.call_back(Call::Allocate);
        self.ledger.allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.call_back(Call::Deallocate);
        self.ledger.deallocate(memory)
    }
}

fn make(
    pools: &[PoolOptions],
    options: AllocatorOptions,
    inside: Option<Mutex<bool>>,
    during: Box<During>,
) -> Arc<Allocator<Reentrant>> {
    let device = Reentrant { ledger: LedgerDevice::new(), allocator: OnceLock::new(), during, inside };
    let allocator = Arc::new(Allocator::try_new(device, pools, options).unwrap());
    allocator.device().allocator.set(Arc::downgrade(&allocator)).unwrap();
    allocator
}

/// An allocator during whose device calls `during` runs.
pub(crate) fn reentrant(
    pools: &[PoolOptions],
    during: impl Fn(&Allocator<Reentrant>, Call) + Send + Sync + 'static,
) -> Arc<Allocator<Reentrant>> {
    make(pools, AllocatorOptions::default(), Some(Mutex::new(false)), Box::new(during))
}

/// The same also in the calls that come of what `during` does.
pub(crate) fn endlessly_reentrant(
    pools: &[PoolOptions],
    options: AllocatorOptions,
    during: impl Fn(&Allocator<Reentrant>, Call) + Send + Sync + 'static,
) -> Arc<Allocator<Reentrant>> {
    make(pools, options, None, Box::new(during))
}
