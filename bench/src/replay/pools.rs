//! Pools over a device that counts.

use super::Growing;
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceMemory, PageRequest, PoolOptions, Request, SliceId,
};
use std::cell::Cell;
use std::thread;
use std::time::Duration;

/// A device that counts, and takes its time if it is told to.
#[derive(Debug, Default)]
pub struct Gauge {
    delay: Duration,
    calls: Cell<u64>,
    moved: Cell<u64>,
    reserved: Cell<u64>,
    peak: Cell<u64>,
}

impl Gauge {
    /// One that sleeps at least so long in each call.
    pub fn with_delay(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// Pages given out and taken back.
    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// Bytes of those.
    pub fn moved(&self) -> u64 {
        self.moved.get()
    }

    /// The most bytes that were out at any time.
    pub fn peak(&self) -> u64 {
        self.peak.get()
    }

    fn call(&self, bytes: u64) {
        self.calls.set(self.calls.get() + 1);
        self.moved.set(self.moved.get() + bytes);
        if !self.delay.is_zero() {
            thread::sleep(self.delay);
        }
    }
}

impl Device for Gauge {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.call(request.size);
        self.reserved.set(self.reserved.get() + request.size);
        self.peak.set(self.peak.get().max(self.reserved.get()));
        // Numbers of calls are names that never repeat.
        Ok(DeviceMemory::new(self.calls.get()))
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.call(memory.size);
        self.reserved.set(self.reserved.get() - memory.size);
        Ok(())
    }
}

/// An allocator over such a device.
pub struct Pools(Allocator<Gauge>);

impl Pools {
    /// The pools of a list.
    pub fn new(pools: &[PoolOptions]) -> Self {
        Self::with_delay(pools, Duration::ZERO)
    }

    /// The same over a device that sleeps in each call.
    pub fn with_delay(pools: &[PoolOptions], delay: Duration) -> Self {
        let allocator = Allocator::try_new(Gauge::with_delay(delay), pools, AllocatorOptions::default());
        Self(allocator.expect("valid options"))
    }
}

impl Growing for Pools {
    type Handle = SliceId;

    fn allocate(&mut self, bytes: u64) -> SliceId {
        self.0.allocate(&Request::new(bytes)).expect("the device has no limit").id
    }

    fn free(&mut self, handle: SliceId) {
        self.0.free(handle).expect("live");
    }

    fn reserved_peak(&self) -> u64 {
        self.0.device().peak()
    }

    fn occupied(&self) -> u64 {
        let statistics = self.0.statistics();
        statistics.in_use + statistics.padding
    }

    fn calls(&self) -> u64 {
        self.0.device().calls()
    }

    fn moved(&self) -> u64 {
        self.0.device().moved()
    }
}
