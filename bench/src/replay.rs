//! Replays traces, and measures what is reserved for them and what the device has to do.

use crate::GRANULE;
use crate::best_fit::BestFit;
use crate::subjects::Subject;
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceMemory, PageRequest, PoolOptions, Request, SliceId, Space,
    SpaceOptions,
};
use slicepool_traces::{Event, Trace};
use std::cell::Cell;

/// Memory that grows by itself as requests need it.
pub trait Growing {
    /// What frees a slice.
    type Handle;
    /// A slice.
    fn allocate(&mut self, bytes: u64) -> Self::Handle;
    /// Takes a slice back.
    fn free(&mut self, handle: Self::Handle);
    /// The most bytes that were reserved at any time.
    fn reserved_peak(&self) -> u64;
}

/// A trace on its way through some memory.
pub struct Replay<'a, G: Growing> {
    trace: &'a Trace,
    next: usize,
    slices: Vec<Option<G::Handle>>,
    memory: G,
}

impl<'a, G: Growing> Replay<'a, G> {
    /// At the start.
    pub fn new(trace: &'a Trace, memory: G) -> Self {
        Self { trace, next: 0, slices: Vec::with_capacity(trace.slices()), memory }
    }

    /// Goes on to an event.
    pub fn until(&mut self, end: usize) {
        for event in &self.trace.events[self.next..end] {
            match *event {
                Event::Allocate(bytes) => self.slices.push(Some(self.memory.allocate(bytes))),
                Event::Free(slice) => self.memory.free(self.slices[slice].take().expect("live")),
            }
        }
        self.next = end;
    }

    /// The memory.
    pub fn memory(&self) -> &G {
        &self.memory
    }
}

/// What a trace leaves unused: peak of reserved over peak of live bytes, in percent above 1.
pub fn waste<G: Growing>(trace: &Trace, memory: G) -> f64 {
    let mut replay = Replay::new(trace, memory);
    replay.until(trace.events.len());
    percent_above(replay.memory.reserved_peak(), trace.peak())
}

fn percent_above(reserved: u64, live: u64) -> f64 {
    (reserved as f64 / live as f64 - 1.0) * 100.0
}

// ---- one arena that grows by what is missing

impl Growing for BestFit {
    type Handle = u64;

    fn allocate(&mut self, bytes: u64) -> u64 {
        if let Some(slice) = Subject::allocate(self, bytes) {
            return slice;
        }
        self.grow(bytes.next_multiple_of(GRANULE) - self.tail());
        Subject::allocate(self, bytes).expect("it has grown")
    }

    fn free(&mut self, handle: u64) {
        Subject::free(self, handle);
    }

    fn reserved_peak(&self) -> u64 {
        self.bytes()
    }
}

/// A space that grows by what is missing behind its last slice.
pub struct GrowingSpace(Space);

impl Default for GrowingSpace {
    fn default() -> Self {
        Self(Space::try_new(SpaceOptions::new(GRANULE).with_granule(GRANULE)).expect("valid options"))
    }
}

impl GrowingSpace {
    fn tail(&self) -> u64 {
        let end = self.0.statistics().size;
        let last = self.0.pieces().find(|piece| piece.id.is_none() && piece.offset + piece.size == end);
        last.map_or(0, |piece| piece.size)
    }

    fn grow_for(&mut self, bytes: u64) {
        self.0.grow(bytes.next_multiple_of(GRANULE) - self.tail()).expect("few enough granules");
    }
}

impl Growing for GrowingSpace {
    type Handle = SliceId;

    fn allocate(&mut self, bytes: u64) -> SliceId {
        // A request above the space is an error of another kind, not a different case.
        let slice = self.0.allocate(bytes, 1).or_else(|_| {
            self.grow_for(bytes);
            self.0.allocate(bytes, 1)
        });
        slice.expect("it has grown").id
    }

    fn free(&mut self, handle: SliceId) {
        self.0.free(handle).expect("live");
    }

    fn reserved_peak(&self) -> u64 {
        self.0.statistics().size
    }
}

// ---- pools over a device

/// A device that counts.
#[derive(Debug, Default)]
pub struct Gauge {
    calls: Cell<u64>,
    moved: Cell<u64>,
    reserved: Cell<u64>,
    peak: Cell<u64>,
}

impl Gauge {
    /// Pages given out and taken back.
    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    fn note_call(&self, bytes: u64) {
        self.calls.set(self.calls.get() + 1);
        self.moved.set(self.moved.get() + bytes);
    }
}

impl Device for Gauge {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.note_call(request.size);
        self.reserved.set(self.reserved.get() + request.size);
        self.peak.set(self.peak.get().max(self.reserved.get()));
        // Numbers of calls are names that never repeat.
        Ok(DeviceMemory::new(self.calls.get()))
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.note_call(memory.size);
        self.reserved.set(self.reserved.get() - memory.size);
        Ok(())
    }
}

/// An allocator over such a device.
pub struct Pools {
    allocator: Allocator<Gauge>,
    most_calls: u64,
}

impl Pools {
    /// The pools of a list.
    pub fn new(pools: &[PoolOptions]) -> Self {
        let allocator = Allocator::try_new(Gauge::default(), pools, AllocatorOptions::default());
        Self { allocator: allocator.expect("valid options"), most_calls: 0 }
    }

    fn calls(&self) -> u64 {
        self.allocator.device().calls()
    }
}

impl Growing for Pools {
    type Handle = SliceId;

    fn allocate(&mut self, bytes: u64) -> SliceId {
        let before = self.calls();
        let slice = self.allocator.allocate(&Request::new(bytes)).expect("the device has no limit");
        self.most_calls = self.most_calls.max(self.calls() - before);
        slice.id
    }

    fn free(&mut self, handle: SliceId) {
        self.allocator.free(handle).expect("live");
    }

    fn reserved_peak(&self) -> u64 {
        self.allocator.device().peak.get()
    }
}

/// What a trace cost over a device.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Peak of reserved over peak of live bytes, in percent above 1.
    pub waste: f64,
    /// Pages taken and given back.
    pub calls: u64,
    /// Those of the second half of the trace: near 0 where a program repeats itself.
    pub late_calls: u64,
    /// The most within one allocation.
    pub most_calls: u64,
    /// Bytes of all pages taken and given back.
    pub moved: u64,
}

impl Cost {
    /// Replays a trace through a list of pools.
    pub fn of(trace: &Trace, pools: &[PoolOptions]) -> Self {
        let mut replay = Replay::new(trace, Pools::new(pools));
        replay.until(trace.events.len() / 2);
        let early = replay.memory().calls();
        replay.until(trace.events.len());
        let pools = replay.memory();
        Self {
            waste: percent_above(pools.reserved_peak(), trace.peak()),
            calls: pools.calls(),
            late_calls: pools.calls() - early,
            most_calls: pools.most_calls,
            moved: pools.allocator.device().moved.get(),
        }
    }
}
