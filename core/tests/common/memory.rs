//! A device with several memory types over heaps that can run out, which writes down what it is asked, and what an
//! allocator's books must say of it.

use super::devices::{LedgerDevice, NONE_LEFT};
use super::sums::all_ranges;
use slicepool_core::layout::PoolList;
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceLayout, DeviceMemory, Event, EventKind, Heap, HeapBudget,
    MemoryType, OwnPages, PageRequest, Range, Request, Slice, Statistics,
};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

/// Memory types over heaps. For one thread.
pub(crate) struct Heaps {
    pub(crate) ledger: LedgerDevice,
    /// Heap of each memory type.
    types: Vec<usize>,
    /// Bytes that each heap has.
    sizes: RefCell<Vec<u64>>,
    /// Memory type and bytes of the pages that are out, by handle.
    out: RefCell<HashMap<u64, (u32, u64)>>,
    asked: RefCell<Vec<PageRequest>>,
    events: RefCell<Vec<Event>>,
    budgets: RefCell<HashMap<u32, HeapBudget>>,
    budget_calls: Cell<u64>,
    /// Whether any call is a fault.
    armed: Cell<bool>,
}

impl Heaps {
    pub(crate) fn new(types: &[MemoryType]) -> Self {
        let types: Vec<_> = types.iter().map(|one| one.heap as usize).collect();
        let heaps = types.iter().max().map_or(1, |last| last + 1);
        Self {
            ledger: LedgerDevice::new(),
            types,
            sizes: RefCell::new(vec![u64::MAX; heaps]),
            out: RefCell::default(),
            asked: RefCell::default(),
            events: RefCell::default(),
            budgets: RefCell::default(),
            budget_calls: Cell::new(0),
            armed: Cell::new(false),
        }
    }

    /// From now on a heap gives so many bytes in all.
    pub(crate) fn limit(&self, heap: usize, bytes: u64) {
        self.sizes.borrow_mut()[heap] = bytes;
    }

    /// From now on a heap's budget is that.
    pub(crate) fn say_budget(&self, heap: u32, usage: u64, budget: u64) {
        self.budgets.borrow_mut().insert(heap, HeapBudget { usage, budget });
    }

    /// How often a heap's budget was asked for.
    pub(crate) fn budget_calls(&self) -> u64 {
        self.budget_calls.get()
    }

    /// From now on every call is a fault, or none is.
    pub(crate) fn arm(&self, armed: bool) {
        self.armed.set(armed);
    }

    /// The pages asked for since the last call of this, refused ones included.
    pub(crate) fn asked(&self) -> Vec<PageRequest> {
        self.asked.take()
    }

    /// Their sizes.
    pub(crate) fn asked_sizes(&self) -> Vec<u64> {
        self.asked().iter().map(|request| request.size).collect()
    }

    /// The events since the last call of this.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.take()
    }

    /// Their kinds.
    pub(crate) fn event_kinds(&self) -> Vec<EventKind> {
        self.events().iter().map(|event| event.kind).collect()
    }

    /// Memory type of a page that is out.
    pub(crate) fn type_of(&self, memory: u64) -> u32 {
        self.out.borrow()[&memory].0
    }

    /// Bytes and pages that are out of the memory types that count.
    pub(crate) fn out_of(&self, counts: impl Fn(u32) -> bool) -> (u64, u64) {
        let out = self.out.borrow();
        let sizes = out.values().filter(|(memory_type, _)| counts(*memory_type)).map(|(_, size)| *size);
        (sizes.clone().sum(), sizes.count() as u64)
    }

    fn heap_of(&self, memory_type: u32) -> usize {
        self.types[memory_type as usize]
    }

    fn called(&self) {
        assert!(!self.armed.get() || std::thread::panicking(), "the device was called");
    }
}

impl Device for Heaps {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.called();
        self.asked.borrow_mut().push(*request);
        let heap = self.heap_of(request.memory_type);
        let (used, _) = self.out_of(|memory_type| self.heap_of(memory_type) == heap);
        if request.size > self.sizes.borrow()[heap].saturating_sub(used) {
            return Err(DeviceError::OutOfMemory(NONE_LEFT));
        }
        let memory = self.ledger.allocate(request)?;
        self.out.borrow_mut().insert(memory.handle, (request.memory_type, request.size));
        Ok(memory)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.called();
        self.ledger.deallocate(memory)?;
        self.out.borrow_mut().remove(&memory.handle);
        Ok(())
    }

    fn completed(&self, _: u32) -> Option<u64> {
        self.called();
        None
    }

    fn out_of_memory(&self, _: &slicepool_core::Shortage) -> bool {
        self.called();
        false
    }

    fn heap_budget(&self, heap: u32) -> Option<HeapBudget> {
        self.called();
        self.budget_calls.set(self.budget_calls.get() + 1);
        self.budgets.borrow().get(&heap).copied()
    }

    fn hears_events(&self) -> bool {
        true
    }

    fn event(&self, event: &Event) {
        self.events.borrow_mut().push(*event);
    }
}

pub(crate) type Over<'a> = Allocator<&'a Heaps>;

/// An allocator over all types of a device.
pub(crate) fn over<'a>(
    device: &'a Heaps,
    types: &[MemoryType],
    heaps: &[Heap],
    make: impl FnOnce(&DeviceLayout<'_>) -> PoolList,
    options: AllocatorOptions,
) -> Over<'a> {
    let memory = DeviceLayout::new(types, heaps);
    Allocator::with_memory_types(device, &memory, &make(&memory), options).unwrap()
}

pub(crate) fn place<D: Device>(allocator: &Allocator<D>, request: &Request) -> Slice {
    allocator.allocate(request).unwrap()
}

/// Figures of the pool of a memory type's slices with pages of their own.
pub(crate) fn own<D: Device>(allocator: &Allocator<D>, pages: OwnPages, memory_type: u32) -> Option<Statistics> {
    allocator.pool_statistics(pages.pool(memory_type) as usize)
}

/// What a walk comes to.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    reserved: u64,
    in_use: u64,
    padding: u64,
    pending: u64,
    free: u64,
    slices: u32,
    slices_pending: u32,
    free_ranges: u32,
    pages: u32,
    pages_idle: u32,
}

impl Sums {
    fn walked(ranges: &[Range], counts: impl Fn(&Range) -> bool) -> Self {
        let mut sums = Self::default();
        let (mut pages, mut used) = (HashSet::new(), HashSet::new());
        for range in ranges.iter().filter(|range| counts(range)) {
            sums.reserved += range.size;
            pages.insert(range.memory);
            if range.id.is_some() || range.pending {
                used.insert(range.memory);
            }
            match (range.id, range.pending) {
                (Some(_), false) => {
                    sums.in_use += range.requested;
                    sums.padding += range.size - range.requested;
                    sums.slices += 1;
                }
                (None, true) => {
                    sums.pending += range.size;
                    sums.slices_pending += 1;
                }
                (None, false) => {
                    sums.free += range.size;
                    sums.free_ranges += 1;
                }
                both => panic!("{both:?}"),
            }
        }
        sums.pages = pages.len() as u32;
        sums.pages_idle = (pages.len() - used.len()) as u32;
        sums
    }

    fn told(figures: &Statistics) -> Self {
        let Statistics { reserved, in_use, padding, pending, free, slices, slices_pending, free_ranges, .. } = *figures;
        let Statistics { pages, pages_idle, .. } = *figures;
        assert_eq!((figures.leaving, figures.stuck, figures.growths_in_flight), (0, 0, 0));
        assert!(reserved <= figures.reserved_peak && pages <= figures.pages_peak, "{figures:?}");
        assert!(in_use <= figures.in_use_peak, "{figures:?}");
        Self { reserved, in_use, padding, pending, free, slices, slices_pending, free_ranges, pages, pages_idle }
    }
}

/// Panics unless the figures of the whole, of each type, heap and pool are what a walk comes to, and the device has
/// given out just that.
pub(crate) fn assert_whole(allocator: &Over, device: &Heaps) {
    assert_eq!(allocator.check(), Ok(()));
    let ranges = all_ranges(allocator);
    let held = |sums: &Sums| (sums.reserved, u64::from(sums.pages));
    let whole = Sums::walked(&ranges, |_| true);
    assert_eq!(Sums::told(&allocator.statistics()), whole);
    assert_eq!(held(&whole), (device.ledger.bytes(), device.ledger.pages()));
    for range in &ranges {
        assert_eq!(device.type_of(range.memory), range.memory_type, "{range:?}");
    }
    let mut pools: Vec<u32> = (0..allocator.pool_count() as u32).collect();
    for one in 0..allocator.memory_type_count() {
        let sums = Sums::walked(&ranges, |range| range.memory_type == one);
        assert_eq!(Sums::told(&allocator.type_statistics(one).unwrap()), sums, "memory type {one}");
        assert_eq!(held(&sums), device.out_of(|memory_type| memory_type == one));
        pools.extend([OwnPages::Persistent, OwnPages::Dedicated, OwnPages::Once].map(|pages| pages.pool(one)));
    }
    for heap in 0..allocator.heap_count() {
        let is_of = |memory_type: u32| device.heap_of(memory_type) == heap as usize;
        let sums = Sums::walked(&ranges, |range| is_of(range.memory_type));
        let figures = allocator.heap_report(heap).unwrap().statistics;
        assert_eq!(Sums::told(&figures), sums, "heap {heap}");
        assert_eq!(held(&sums), device.out_of(is_of));
    }
    for pool in pools {
        let sums = Sums::walked(&ranges, |range| range.pool == pool);
        let figures = allocator.pool_statistics(pool as usize);
        assert_eq!(figures.as_ref().map_or_else(Sums::default, Sums::told), sums, "pool {pool}");
    }
    assert_eq!(allocator.type_statistics(allocator.memory_type_count()), None);
    assert!(allocator.heap_report(allocator.heap_count()).is_none());
}

/// Devices with one memory type in one heap.
pub(crate) mod alone {
    use super::{Heaps, Over, over};
    use crate::common::K;
    use slicepool_core::layout::PoolList;
    use slicepool_core::{AllocatorOptions, Heap, MemoryType, PoolOptions};

    pub(crate) const TYPE: MemoryType = MemoryType::new(u64::MAX, 64 * K);

    pub(crate) fn list(pools: &[PoolOptions]) -> PoolList {
        let mut list = PoolList::new();
        pools.iter().for_each(|pool| list.push(pool).unwrap());
        list
    }

    pub(crate) fn with<'a>(device: &'a Heaps, heap: Heap, pools: &[PoolOptions]) -> Over<'a> {
        let options = AllocatorOptions::default().with_dedicated_when_too_large();
        over(device, &[TYPE], &[heap], |_| list(pools), options)
    }

    pub(crate) fn blocks(least: u64, most: u64) -> [PoolOptions; 1] {
        [PoolOptions::blocks(least, most)]
    }

    pub(crate) fn device() -> Heaps {
        Heaps::new(&[TYPE])
    }

    /// Runs something during which the device must not be called.
    pub(crate) fn untouched<T>(device: &Heaps, what: impl FnOnce() -> T) -> T {
        device.arm(true);
        let result = what();
        device.arm(false);
        result
    }
}
