//! Slices with pages of their own, pages that are there from the start, and pages that were the program's.

use crate::common::devices::{NONE_LEFT, ScriptedDevice};
use crate::common::memory::{Heaps, Over, assert_whole, over, own, place};
use crate::common::sums::State;
use crate::common::{G, K, M};
use slicepool_core::layout::PoolList;
use slicepool_core::{
    Allocator, AllocatorOptions, DeviceFault, DeviceLayout, DeviceMemory, Error, EventKind, Heap, MemoryType, OwnPages,
    PageRequest, Point, PoolOptions, Request, Slice,
};
use std::cell::RefCell;

const TYPE: MemoryType = MemoryType::new(u64::MAX, 64 * K);

fn list(pools: &[PoolOptions]) -> PoolList {
    let mut list = PoolList::new();
    pools.iter().for_each(|pool| list.push(pool).unwrap());
    list
}

fn with<'a>(device: &'a Heaps, pools: &[PoolOptions], options: AllocatorOptions) -> Over<'a> {
    over(device, &[TYPE], &[Heap::new(8 * G)], |_| list(pools), options)
}

fn usual(device: &Heaps) -> Over<'_> {
    with(device, &[PoolOptions::blocks(4 * M, 16 * M)], AllocatorOptions::default())
}

fn device() -> Heaps {
    Heaps::new(&[TYPE])
}

fn data(value: usize) -> *mut u8 {
    std::ptr::without_provenance_mut(value)
}

fn touch(allocator: &Over, times: u32) {
    (0..times).for_each(|_| allocator.free(place(allocator, &Request::new(256)).id).unwrap());
}

// ---- dedicated by request

#[test]
fn a_dedicated_slice_has_a_page_of_exactly_its_size() {
    let device = device();
    let allocator = usual(&device);
    for (size, page) in
        [(1, 256), (256, 256), (257, 512), (1_000_000, 1_000_192), (16 * M, 16 * M), (16 * M + 1, 16 * M + 256)]
    {
        let slice = place(&allocator, &Request::new(size).dedicated());
        let asked = device.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!((asked[0].size, asked[0].alignment, asked[0].dedicated), (page, 64 * K, true));
        assert_eq!((asked[0].pool, asked[0].device_data), (OwnPages::Dedicated.pool(0), data(0)));
        assert_eq!((slice.offset, slice.size), (0, page));
    }
    // Shared ones say so.
    place(&allocator, &Request::new(M));
    assert!(!device.asked()[0].dedicated);
    assert_whole(&allocator, &device);
}

#[test]
fn a_dedicated_page_serves_dedicated_slices_of_its_size_again_and_nothing_else() {
    let device = device();
    let allocator = usual(&device);
    let slice = place(&allocator, &Request::new(M).dedicated());
    allocator.free(slice.id).unwrap();
    device.asked();
    let others = [
        Request::new(M),
        Request::new(M).persistent(),
        Request::new(M).with_device_data(data(9)),
        Request::new(M - 256).dedicated(),
        Request::new(M + 1).dedicated(),
    ];
    for other in others {
        assert_ne!(place(&allocator, &other).memory, slice.memory);
    }
    assert_eq!(device.asked().len(), 5);
    // To the granule.
    let again = place(&allocator, &Request::new(M - 255).dedicated());
    assert_eq!((again.memory, device.asked().len()), (slice.memory, 0));
    assert_eq!(allocator.statistics().padding, 2 * 255);
    assert_whole(&allocator, &device);
}

#[test]
fn dedicated_pages_go_back_with_their_period_or_never() {
    for (period, goes) in [(Some(100), true), (Some(100_000), false), (None, false)] {
        let device = device();
        let options = AllocatorOptions::default().with_dedicated_period(period);
        let allocator = with(&device, &[PoolOptions::blocks(4 * M, 16 * M)], options);
        place(&allocator, &Request::new(K));
        let slices = [1, 2, 3].map(|count| place(&allocator, &Request::new(count * M).dedicated()));
        allocator.free(slices[0].id).unwrap();
        allocator.free(slices[1].id).unwrap();
        touch(&allocator, 200);
        let out = slices.map(|slice| device.ledger.is_out(slice.memory));
        assert_eq!(out, [!goes, !goes, true], "{period:?}");
        allocator.trim(0).unwrap();
        assert_eq!(own(&allocator, OwnPages::Dedicated, 0).unwrap().pages, 1);
        assert_whole(&allocator, &device);
    }
}

// ---- with device data

#[test]
fn device_data_reach_the_device_once_with_a_page_that_serves_once() {
    let device = device();
    let allocator = usual(&device);
    place(&allocator, &Request::new(K));
    device.asked();
    let mut before: Option<Slice> = None;
    for value in [7, 7, 8] {
        let request = Request::new(M).with_device_data(data(value));
        assert_eq!(allocator.would_grow(&request), Ok(true));
        let slice = place(&allocator, &request);
        let asked = device.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!((asked[0].device_data, asked[0].dedicated, asked[0].size), (data(value), true, M));
        assert_eq!(asked[0].pool, OwnPages::Once.pool(0));
        if let Some(before) = before {
            assert_ne!(slice.memory, before.memory, "it served once");
            assert!(!device.ledger.is_out(before.memory));
        }
        allocator.free(slice.id).unwrap();
        assert!(device.ledger.is_out(slice.memory), "a free calls no device");
        before = Some(slice);
        assert_whole(&allocator, &device);
    }
    // Other pages have none.
    for request in [Request::new(5 * M), Request::new(M).dedicated(), Request::new(M).persistent()] {
        place(&allocator, &request);
    }
    assert!(device.asked().iter().all(|page| page.device_data.is_null()));
    assert_eq!(own(&allocator, OwnPages::Once, 0).unwrap().pages, 0);
}

/// Whatever ages, and if nothing else does. Not more than four with one.
#[test]
fn pages_that_have_served_go_back_with_the_next_allocation_or_a_trim() {
    for period in [None, Some(1 << 20)] {
        let device = device();
        let pool = PoolOptions::sliced_pages(M, M, None).with_dealloc_period(period);
        let allocator = with(&device, &[pool], AllocatorOptions::default().with_dedicated_period(period));
        place(&allocator, &Request::new(K));
        let once = |size| place(&allocator, &Request::new(size).with_device_data(data(1)));
        let slices: Vec<_> = (1..=6).map(|count| once(count * M)).collect();
        touch(&allocator, 1000);
        assert_eq!(device.ledger.taken(), 0, "they are in use");
        allocator.free(slices[0].id).unwrap();
        place(&allocator, &Request::new(K));
        assert_eq!((device.ledger.taken(), device.ledger.is_out(slices[0].memory)), (1, false));
        slices[1..].iter().for_each(|slice| allocator.free(slice.id).unwrap());
        place(&allocator, &Request::new(K));
        assert_eq!(device.ledger.taken(), 5);
        place(&allocator, &Request::new(K));
        assert_eq!(device.ledger.taken(), 6);
        let last = once(M);
        allocator.free_after(last.id, &[Point::new(3, 1)]).unwrap();
        touch(&allocator, 10);
        allocator.trim(0).unwrap();
        assert!(device.ledger.is_out(last.memory), "the device is not done with it");
        allocator.collect(3, 1).unwrap();
        allocator.trim(0).unwrap();
        assert!(!device.ledger.is_out(last.memory));
        assert_whole(&allocator, &device);
    }
}

#[test]
fn device_data_of_a_persistent_slice_are_for_one_slice_too() {
    let device = device();
    let allocator = usual(&device);
    let request = |value| Request::new(M).persistent().with_device_data(data(value));
    // Refused would be as good.
    if let Ok(slice) = allocator.allocate(&request(7)) {
        allocator.free(slice.id).unwrap();
        let other = place(&allocator, &request(8));
        assert_ne!(other.memory, slice.memory, "made for something else");
        assert_eq!(device.asked().iter().map(|page| page.device_data).collect::<Vec<_>>(), [data(7), data(8)]);
    }
}

// ---- from the start

#[test]
fn pools_have_their_least_pages_from_the_start() {
    for (pool, sizes) in [
        (PoolOptions::sliced_pages(M, M, None), vec![M; 3]),
        (PoolOptions::sliced_pages(M, M, Some(3 * M)), vec![M; 3]),
        (PoolOptions::blocks(8 * M, 16 * M), vec![8 * M, 16 * M, 16 * M]),
        (PoolOptions::growing_pages(M, 16 * M), vec![M; 3]),
    ] {
        let device = device();
        let pools = [PoolOptions::sliced_pages(K, K, None), pool.with_min_pages(3)];
        let allocator = with(&device, &pools, AllocatorOptions::default());
        let asked = device.asked();
        assert_eq!(asked.iter().map(|page| page.size).collect::<Vec<_>>(), sizes);
        assert!(asked.iter().all(|page| page.pool == 1 && !page.dedicated && page.device_data.is_null()));
        assert_eq!(device.event_kinds(), [EventKind::PageAllocated; 3]);
        let figures = allocator.pool_statistics(1).unwrap();
        assert_eq!((figures.pages, figures.pages_idle, figures.device_allocations), (3, 3, 3));
        assert_whole(&allocator, &device);
        // They serve, and as long as they are there no more are needed.
        device.arm(true);
        allocator.prefill(1, 3).unwrap();
        allocator.prefill(1, 0).unwrap();
        for _ in 0..3 {
            place(&allocator, &Request::new(M).in_pool(1));
        }
        device.arm(false);
        assert_whole(&allocator, &device);
    }
}

/// Unless the pool keeps them.
#[test]
fn pages_from_the_start_grow_old_like_others() {
    for (keep, kept) in [(0, 0), (2 * M, 2)] {
        let device = device();
        let pool = PoolOptions::sliced_pages(M, M, None).with_min_pages(3).with_dealloc_period(Some(100));
        let pools = [PoolOptions::sliced_pages(K, K, None), pool.with_keep_bytes(keep)];
        let allocator = with(&device, &pools, AllocatorOptions::default());
        for _ in 0..200 {
            allocator.free(place(&allocator, &Request::new(K).in_pool(0)).id).unwrap();
        }
        assert_eq!(allocator.pool_statistics(1).unwrap().pages, kept);
        allocator.prefill(1, 3).unwrap();
        assert_eq!(allocator.pool_statistics(1).unwrap().pages, 3);
        assert_whole(&allocator, &device);
    }
}

#[test]
fn an_allocator_that_does_not_get_its_pages_gives_back_what_it_has() {
    let pools = [
        PoolOptions::sliced_pages(M, M, None).with_min_pages(2),
        PoolOptions::blocks(4 * M, 64 * M).with_min_pages(4),
        PoolOptions::sliced_pages(M, M, None).with_min_pages(1),
    ];
    let make = |device: &Heaps, heap: Heap, options: AllocatorOptions, pools: &[PoolOptions]| {
        let heaps = [heap];
        let memory = DeviceLayout::new(&[TYPE], &heaps);
        Allocator::with_memory_types(device, &memory, pools, options).map(|_| ()).unwrap_err()
    };
    let (heap, usual) = (Heap::new(8 * G), AllocatorOptions::default);
    // At every place in turn.
    let sizes = [M, M, 4 * M, 8 * M, 16 * M, 32 * M, M];
    for (taken, size) in sizes.iter().enumerate() {
        let device = device();
        device.limit(0, sizes[..taken].iter().sum());
        assert_eq!(make(&device, heap, usual(), &pools), Error::OutOfDeviceMemory { size: *size, code: NONE_LEFT });
        assert_eq!(device.asked_sizes(), sizes[..=taken]);
        assert_eq!((device.ledger.given(), device.ledger.pages()), (taken as u64, 0));
    }
    let device = device();
    let reserved = 2 * M + 12 * M;
    for (error, heap, options) in [
        (Error::HeapBudgetExceeded { heap: 0, size: M, limit: M, reserved: M }, heap.with_limit(Some(M)), usual()),
        (Error::BudgetExceeded { size: M, limit: M, reserved: M }, heap, usual().with_max_bytes(Some(M))),
        (Error::PageCountExceeded { size: 4 * M, limit: 4 }, heap, usual().with_max_pages(Some(4))),
    ] {
        assert_eq!(make(&device, heap, options, &pools), error);
        assert_eq!(device.ledger.pages(), 0);
    }
    assert_eq!(device.ledger.bytes_peak(), reserved);
    // What has no such pages.
    device.asked();
    for pool in [PoolOptions::direct(None), PoolOptions::exclusive_pages(M)] {
        let error = Error::InvalidArgument { field: c"min_pages", value: 1 };
        assert_eq!(make(&device, heap, usual(), &[pool.with_min_pages(1)]), error);
    }
    let full = make(&device, heap, usual(), &[PoolOptions::sliced_pages(M, M, Some(2 * M)).with_min_pages(3)]);
    assert!(matches!(full, Error::PoolCapacityExceeded { capacity: 2_097_152, .. }), "{full}");
    assert_eq!(device.ledger.pages(), 0);
}

#[test]
fn more_pages_can_be_taken_beforehand_for_sliced_pools_only() {
    let device = device();
    let pools = [PoolOptions::blocks(4 * M, 16 * M), PoolOptions::direct(None), PoolOptions::exclusive_pages(M)];
    let allocator = with(&device, &pools, AllocatorOptions::default());
    for pool in [1, 2, 3, OwnPages::Dedicated.pool(0), u32::MAX] {
        let error = Error::InvalidArgument { field: c"pool", value: u64::from(pool) };
        assert_eq!(allocator.prefill(pool, 1), Err(error));
    }
    assert_eq!(device.asked_sizes(), []);
    device.limit(0, 20 * M);
    assert_eq!(allocator.prefill(0, 3), Err(Error::OutOfDeviceMemory { size: 16 * M, code: NONE_LEFT }));
    assert_eq!(allocator.pool_statistics(0).unwrap().pages, 2, "those that were taken stay");
    assert_whole(&allocator, &device);
}

// ---- the program's own

type Log = RefCell<Vec<DeviceMemory>>;

/// A device that gives pages with the handles from 1 on, and writes down what it gets back.
fn logging(log: &Log) -> impl slicepool_core::Device {
    let given = RefCell::new(0);
    ScriptedDevice {
        allocate: move |request: &PageRequest| {
            let handle = given.replace_with(|handle| *handle + 1) + 1;
            Ok(DeviceMemory { address: handle << 40, size: request.size, ..DeviceMemory::new(handle) })
        },
        deallocate: |memory: &DeviceMemory| {
            log.borrow_mut().push(*memory);
            Ok(())
        },
    }
}

/// Memory of the program's at 1 GiB.
fn owned(size: u64) -> DeviceMemory {
    DeviceMemory { address: G, size, context: data(0xC0), ..DeviceMemory::new(5000) }
}

fn pools() -> [PoolOptions; 6] {
    [
        PoolOptions::sliced_pages(M, M, None),
        PoolOptions::growing_pages(M, 16 * M),
        PoolOptions::blocks(4 * M, 16 * M),
        PoolOptions::direct(None),
        PoolOptions::sliced_pages(M, M, Some(2 * M)),
        PoolOptions::exclusive_pages(M),
    ]
}

#[test]
fn a_page_of_the_programs_serves_slices_and_goes_back_with_its_context() {
    for (pool, size) in [(0, M), (1, M), (1, 3 * M + 256), (2, 12 * M), (3, 5 * M + 512), (4, M), (5, 9 * K), (5, M)] {
        let log = Log::default();
        let device = logging(&log);
        let allocator =
            Allocator::try_new(&device, &pools(), AllocatorOptions::default().with_memory_type(TYPE)).unwrap();
        let memory = owned(size);
        allocator.adopt(pool, &memory).unwrap();
        assert_eq!(allocator.check(), Ok(()));
        let figures = allocator.pool_statistics(pool as usize).unwrap();
        assert_eq!((figures.pages, figures.pages_idle, figures.reserved, figures.free), (1, 1, size, size));
        assert_eq!((figures.device_allocations, allocator.statistics().pages_peak), (1, 1));
        let asked = if pool == 3 || pool == 5 { size } else { 1000 };
        let slice = allocator.allocate(&Request::new(asked).in_pool(pool).aligned(4096)).unwrap();
        assert_eq!((slice.memory, slice.offset, slice.address), (5000, 0, G));
        allocator.trim(0).unwrap();
        assert_eq!(*log.borrow(), [], "it is in use");
        allocator.free(slice.id).unwrap();
        allocator.trim(0).unwrap();
        assert_eq!(*log.borrow(), [memory]);
        assert_eq!((allocator.check(), allocator.statistics().reserved), (Ok(()), 0));
        // And may come again; without a word it goes back when the allocator does.
        allocator.adopt(pool, &memory).unwrap();
        drop(allocator);
        assert_eq!(*log.borrow(), [memory; 2]);
    }
}

#[test]
fn a_page_that_cannot_be_adopted_changes_nothing() {
    let log = Log::default();
    let device = logging(&log);
    let heaps = [Heap::new(G).with_limit(Some(64 * M))];
    let memory = DeviceLayout::new(&[TYPE], &heaps);
    let options = AllocatorOptions::default().with_max_bytes(Some(32 * M)).with_max_pages(Some(4));
    let allocator = Allocator::with_memory_types(&device, &memory, &pools(), options).unwrap();
    let held = allocator.allocate(&Request::new(M).in_pool(0)).unwrap();
    allocator.adopt(4, &owned(M)).unwrap();
    let refuse = |pool, memory: DeviceMemory, error| {
        let before = State::of(&allocator);
        assert_eq!(allocator.adopt(pool, &memory), Err(error), "{memory:?}");
        assert_eq!((State::of(&allocator), allocator.check()), (before, Ok(())));
    };
    let at = |address, size| DeviceMemory { address, handle: 6000, ..owned(size) };
    let invalid = |field, value| Error::InvalidArgument { field, value };
    refuse(6, at(2 * G, M), invalid(c"pool", 6));
    refuse(OwnPages::Dedicated.pool(0), at(2 * G, M), invalid(c"pool", u64::from(OwnPages::Dedicated.pool(0))));
    refuse(0, DeviceMemory { handle: u64::MAX, ..at(2 * G, M) }, invalid(c"handle", u64::MAX));
    for (pool, size) in
        [(0, 0), (0, M - 256), (0, 2 * M), (1, 0), (1, M + 1), (1, M + 128), (2, 255), (3, 1), (3, u64::MAX)]
    {
        refuse(pool, at(2 * G, size), invalid(c"size", size));
    }
    // Of 33 to 36 units exclusive pages have 36.
    for size in [33 * 256, 35 * 256, M + 256] {
        refuse(5, at(2 * G, size), invalid(c"size", size));
    }
    let fault = |fault| Error::DeviceFailed { fault, code: 0 };
    refuse(0, at(2 * G + 4096, M), fault(DeviceFault::Misaligned));
    refuse(0, DeviceMemory { mapped: data(4096), ..at(0, M) }, fault(DeviceFault::Misaligned));
    // The program's own, and what the device has given.
    refuse(0, owned(M), fault(DeviceFault::Duplicate));
    refuse(1, owned(2 * M), fault(DeviceFault::Duplicate));
    let given = DeviceMemory { address: held.address - held.offset, ..DeviceMemory::new(held.memory) };
    refuse(0, DeviceMemory { size: M, ..given }, fault(DeviceFault::Duplicate));
    // Limits: those of the allocator, of the heap, of the pool.
    refuse(1, at(2 * G, 31 * M), Error::BudgetExceeded { size: 31 * M, limit: 32 * M, reserved: 2 * M });
    allocator.adopt(4, &at(2 * G, M)).unwrap();
    let (size, capacity, largest_free) = (M, 2 * M, M);
    let error =
        Error::PoolCapacityExceeded { size, capacity, in_use: 0, pending: 0, largest_free, growths_in_flight: 0 };
    refuse(4, DeviceMemory { handle: 7000, ..at(3 * G, M) }, error);
    allocator.adopt(1, &DeviceMemory { handle: 8000, ..at(4 * G, M) }).unwrap();
    refuse(1, DeviceMemory { handle: 8001, ..at(5 * G, M) }, Error::PageCountExceeded { size: M, limit: 4 });
    drop(allocator);
    assert_eq!(log.borrow().len(), 4);

    let log = Log::default();
    let device = logging(&log);
    let heaps = [Heap::new(G).with_limit(Some(2 * M))];
    let memory = DeviceLayout::new(&[TYPE], &heaps);
    let allocator = Allocator::with_memory_types(&device, &memory, &pools(), AllocatorOptions::default()).unwrap();
    let error = Error::HeapBudgetExceeded { heap: 0, size: 3 * M, limit: 2 * M, reserved: 0 };
    assert_eq!(allocator.adopt(1, &owned(3 * M)), Err(error));
    let plans = Allocator::try_new(&device, &pools(), AllocatorOptions::default().with_dry_run()).unwrap();
    assert_eq!(plans.adopt(0, &owned(M)), Err(Error::NotSupported { what: c"adopt" }));
    allocator.close(slicepool_core::LiveSlices::Refuse).unwrap();
    assert_eq!(allocator.adopt(1, &owned(M)), Err(Error::Busy { live: 0, pending: 0, in_use: 0, in_flight: 1 }));
    assert_eq!(*log.borrow(), []);
}

/// As one that the device gave: it is told of, and it counts for the ladder.
#[test]
fn a_page_that_was_adopted_counts_like_any_other() {
    let device = device();
    let allocator = usual(&device);
    // The device gave it to the program, which has kept it.
    use slicepool_core::Device;
    let mut page = PageRequest::new(4 * M, 64 * K);
    page.memory_type = 0;
    let memory = DeviceMemory { size: 4 * M, ..device.allocate(&page).unwrap() };
    device.asked();
    allocator.adopt(0, &memory).unwrap();
    let events = device.events();
    assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::PageAdopted]);
    assert_eq!((events[0].memory, events[0].size, events[0].pool), (memory.handle, 4 * M, 0));
    assert_whole(&allocator, &device);
    assert_eq!(place(&allocator, &Request::new(4 * M)).memory, memory.handle);
    place(&allocator, &Request::new(4 * M));
    assert_eq!(device.asked_sizes(), [8 * M]);
    assert_whole(&allocator, &device);
}
