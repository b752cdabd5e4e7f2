//! Blocks and dedicated pages where there is not enough: small heaps, limits, devices that refuse or answer wrongly.

use crate::common::devices::{LedgerDevice, ScriptedDevice, VirtualDevice};
use crate::common::memory::{Heaps, Over, assert_whole, over, place};
use crate::common::sums::State;
use crate::common::{G, K, M};
use slicepool_core::{
    AllocationSizes, Allocator, AllocatorOptions, Device, DeviceError, DeviceFault, DeviceLayout, DeviceMemory, Error,
    Heap, MemoryType, OwnPages, PageRequest, Request, layout,
};
use std::cell::Cell;

const TYPE: MemoryType = MemoryType::new(u64::MAX, 64 * K);

fn options() -> AllocatorOptions {
    AllocatorOptions::default().with_dedicated_when_too_large()
}

fn blocks<'a>(device: &'a Heaps, sizes: &AllocationSizes, heap: u64, options: AllocatorOptions) -> Over<'a> {
    over(device, &[TYPE], &[Heap::new(heap)], |memory| layout::blocks(sizes, memory).unwrap(), options)
}

fn device() -> Heaps {
    Heaps::new(&[TYPE])
}

fn data(value: usize) -> *mut u8 {
    std::ptr::without_provenance_mut(value)
}

/// Every way to a page of its own.
fn own_ways() -> [(&'static str, Request); 4] {
    [
        ("too large", Request::new(300 * M)),
        ("dedicated", Request::new(M).dedicated()),
        ("device data", Request::new(M).with_device_data(data(0x5150))),
        ("persistent", Request::new(M).persistent()),
    ]
}

// ---- small heaps

/// Blocks of 256 MiB are configured.
#[test]
fn a_small_heap_gets_small_blocks_and_too_large_a_request_calls_no_device() {
    let device = device();
    let allocator = blocks(&device, &AllocationSizes::default(), 16 * M, options());
    place(&allocator, &Request::new(M));
    assert_eq!(device.asked_sizes(), [4 * M]);
    let before = State::of(&allocator);
    device.arm(true);
    for size in [16 * M + 1, 17 * M, u64::MAX] {
        let error = Error::TooLarge { size, limit: 16 * M };
        assert_eq!(allocator.allocate(&Request::new(size)), Err(error));
        assert_eq!(allocator.allocate(&Request::new(size).dedicated()), Err(error));
        assert_eq!(allocator.allocate(&Request::new(size).persistent()), Err(error));
        assert_eq!(allocator.allocate(&Request::new(size).with_device_data(data(1))), Err(error));
    }
    assert_eq!(State::of(&allocator), before);
    device.arm(false);
    // All that is left of it.
    place(&allocator, &Request::new(12 * M));
    assert_eq!(device.ledger.bytes(), 16 * M);
}

#[test]
fn a_block_is_at_most_an_eighth_of_the_heap_in_steps_of_four_mebibytes() {
    let sizes = AllocationSizes::new(4 * M, 4 * M).with_max_device_memblock_size(256 * M);
    for (heap, fixed, last) in [
        (4 * M, 4, 4),
        (16 * M, 4, 4),
        (63 * M, 4, 4),
        (64 * M, 8, 8),
        (100 * M, 12, 12),
        (G, 128, 128),
        (2 * G - 1, 252, 252),
        (2 * G, 256, 256),
        (8 * G, 256, 256),
        (u64::MAX, 256, 256),
    ] {
        let device = Heaps::new(&[TYPE]);
        let allocator = blocks(&device, &AllocationSizes::default(), heap, options());
        place(&allocator, &Request::new(M));
        assert_eq!(device.asked_sizes(), [fixed * M], "{heap}");
        // The ladder ends there too.
        let pools = layout::blocks(&sizes, &DeviceLayout::new(&[TYPE], &[Heap::new(heap)])).unwrap();
        assert_eq!(pools[0].max_page_size, Some(last * M), "{heap}");
    }
}

/// Above an eighth of the heap, and not above the largest block that is configured.
#[test]
fn between_an_eighth_of_the_heap_and_the_largest_block_a_request_has_a_page_of_its_own() {
    let device = device();
    let allocator = blocks(&device, &AllocationSizes::default(), G, options());
    for (size, page, dedicated) in
        [(128 * M, 128 * M, false), (128 * M + 1, 128 * M + 256, true), (250 * M, 250 * M, true)]
    {
        place(&allocator, &Request::new(size));
        let asked = device.asked();
        assert_eq!(asked.iter().map(|page| (page.size, page.dedicated)).collect::<Vec<_>>(), [(page, dedicated)]);
    }
}

/// The heap has much more in all.
#[test]
fn a_device_that_has_less_left_than_a_block_gives_a_smaller_one() {
    let device = device();
    let allocator = blocks(&device, &AllocationSizes::default(), 8 * G, options());
    device.limit(0, 100 * M);
    let slice = place(&allocator, &Request::new(M));
    assert_eq!(device.asked_sizes(), [256 * M, 128 * M, 64 * M]);
    for _ in 0..63 {
        assert_eq!(place(&allocator, &Request::new(M)).memory, slice.memory);
    }
    assert_eq!(device.asked_sizes(), []);
    assert_whole(&allocator, &device);
}

/// Blocks of 8 MiB, of which none is possible any more.
#[test]
fn four_thousand_small_requests_live_in_the_last_few_mebibytes() {
    let sizes = AllocationSizes::new(8 * M, 8 * M);
    for adapts in [false, true] {
        let device = device();
        let pools = |memory: &DeviceLayout<'_>| match adapts {
            true => layout::adaptive_types(memory).unwrap(),
            false => layout::blocks(&sizes, memory).unwrap(),
        };
        let allocator = over(&device, &[TYPE], &[Heap::new(G)], pools, options());
        device.limit(0, 6 * M);
        for i in 0..4000 {
            place(&allocator, &Request::new(256 + i % 769));
        }
        assert_eq!(device.ledger.sizes(), [4 * M]);
        assert!(device.asked_sizes().len() <= 2);
        assert_whole(&allocator, &device);
    }
}

#[test]
fn four_thousand_small_requests_ask_an_empty_heap_sixteen_times_at_most() {
    let device = device();
    let allocator = blocks(&device, &AllocationSizes::new(8 * M, 8 * M), G, options());
    device.limit(0, 0);
    for i in 0..4000 {
        let error = allocator.allocate(&Request::new(256 + i % 769)).unwrap_err();
        assert!(matches!(error, Error::OutOfDeviceMemory { .. }), "{error}");
    }
    let asked = device.asked_sizes();
    assert!((4..=16).contains(&asked.len()), "{asked:?}");
    assert_whole(&allocator, &device);
    // As soon as something has been given back all is well again.
    device.limit(0, 8 * M);
    allocator.trim(0).unwrap();
    place(&allocator, &Request::new(256));
    assert_eq!(device.asked_sizes(), [8 * M]);
}

// ---- limits on pages

#[test]
fn the_limit_on_pages_holds_on_every_way_to_a_page() {
    let shared = [("shared", Request::new(200 * M))];
    let ways: Vec<_> = own_ways().into_iter().chain(shared).collect();
    for (name, request) in &ways {
        let device = device();
        let options = options().with_max_pages(Some(3));
        let allocator = blocks(&device, &AllocationSizes::default(), 8 * G, options.clone());
        (0..3).for_each(|_| _ = place(&allocator, request));
        let before = State::of(&allocator);
        device.asked();
        for (other, refused) in &ways {
            let error = allocator.allocate(refused).unwrap_err();
            assert!(matches!(error, Error::PageCountExceeded { limit: 3, .. }), "{other} after {name}: {error}");
        }
        assert!(allocator.prefill(0, 4).is_err(), "{name}");
        assert_eq!(device.asked_sizes(), [], "{name}");
        assert_eq!(State::of(&allocator), before, "{name}");
        assert_whole(&allocator, &device);
    }
    // From the start.
    let device = device();
    let memory = DeviceLayout::new(&[TYPE], &[]);
    let mut pools = layout::blocks(&AllocationSizes::default(), &memory).unwrap();
    pools[0].min_pages = 3;
    let options = options().with_max_pages(Some(2));
    let refused = Allocator::with_memory_types(&device, &memory, &pools, options).map(|_| ());
    assert_eq!(refused, Err(Error::PageCountExceeded { size: 256 * M, limit: 2 }));
    assert_eq!((device.ledger.given(), device.ledger.pages()), (2, 0));
}

/// An idle page makes room, but not one of a persistent slice.
#[test]
fn under_a_limit_on_pages_idle_ones_give_way_to_others() {
    for (name, request) in own_ways() {
        let device = device();
        let options = options().with_max_pages(Some(1));
        let allocator = blocks(&device, &AllocationSizes::default(), 8 * G, options);
        let slice = place(&allocator, &request);
        allocator.free(slice.id).unwrap();
        assert_eq!(allocator.allocate(&Request::new(M)).is_ok(), name != "persistent", "{name}");
        assert_eq!(device.ledger.pages(), 1);
        assert_whole(&allocator, &device);
    }
}

// ---- devices that answer wrongly

/// Gives addresses at an odd multiple of 4 KiB, or does not, and maps nothing.
fn misaligned(at_fault: &Cell<bool>) -> impl Device {
    let inner = VirtualDevice::new();
    ScriptedDevice {
        allocate: move |request: &PageRequest| {
            assert_eq!(request.alignment, 64 * K, "what the memory type says goes to the device");
            let memory = inner.allocate(request)?;
            let address = if at_fault.get() { memory.address + 4 * K } else { memory.address };
            Ok(DeviceMemory { address, context: data(7), ..memory })
        },
        deallocate: |memory: &DeviceMemory| {
            assert_eq!(memory.context, data(7));
            Ok(())
        },
    }
}

#[test]
fn alignment_goes_to_the_device_and_its_answer_is_checked_on_every_way() {
    let at_fault = Cell::new(false);
    let device = LedgerDevice::over(misaligned(&at_fault));
    let memory = DeviceLayout::new(&[TYPE], &[]);
    let pools = layout::blocks(&AllocationSizes::default(), &memory).unwrap();
    // What went back does not count any more.
    let allocator = Allocator::with_memory_types(&device, &memory, &pools, options().with_max_pages(Some(5))).unwrap();
    let ways: Vec<_> = own_ways().into_iter().chain([("shared", Request::new(M))]).collect();
    for (name, request) in &ways {
        let before = (device.pages(), State::of(&allocator));
        at_fault.set(true);
        let error = Error::DeviceFailed { fault: DeviceFault::Misaligned, code: 0 };
        assert_eq!(allocator.allocate(&request.aligned(64 * K)), Err(error), "{name}");
        assert_eq!(device.pages(), before.0, "{name}: the page went back");
        assert_eq!(State::of(&allocator), before.1, "{name}");
        at_fault.set(false);
        let slice = allocator.allocate(&request.aligned(64 * K)).unwrap();
        assert_eq!((slice.address % (64 * K), slice.offset), (0, 0), "{name}");
        // A request of its own page cannot have more than pages have.
        let error = Error::InvalidArgument { field: c"alignment", value: 128 * K };
        assert_eq!(allocator.allocate(&request.aligned(128 * K)), Err(error), "{name}");
    }
    assert_eq!(device.taken(), ways.len() as u64);
}

/// A device failure at every place in turn.
#[test]
fn a_failure_to_grow_changes_nothing() {
    let ways: Vec<_> = own_ways().into_iter().chain([("shared", Request::new(200 * M))]).collect();
    for (name, request) in ways {
        let device = device();
        let allocator = blocks(&device, &AllocationSizes::default(), 8 * G, options());
        place(&allocator, &Request::new(100 * M));
        place(&allocator, &request);
        let before = State::of(&allocator);
        device.limit(0, device.ledger.bytes());
        let error = allocator.allocate(&request).unwrap_err();
        assert!(matches!(error, Error::OutOfDeviceMemory { .. }), "{name}: {error}");
        assert_eq!(State::of(&allocator), before, "{name}");
        assert_whole(&allocator, &device);
        device.limit(0, u64::MAX);
        allocator.trim(0).unwrap();
        place(&allocator, &request);
        assert_whole(&allocator, &device);
    }
}

/// Memory that is mapped on demand, or is not.
struct Mapping {
    ledger: LedgerDevice,
    fails: Cell<bool>,
    mapped: Cell<i32>,
}

impl Device for Mapping {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.ledger.allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.ledger.deallocate(memory)
    }

    fn can_map(&self) -> bool {
        true
    }

    fn map(&self, _: &DeviceMemory) -> Result<*mut u8, DeviceError> {
        if self.fails.get() {
            return Err(DeviceError::Failed(-5));
        }
        self.mapped.set(self.mapped.get() + 1);
        Ok(data(1 << 20))
    }

    fn unmap(&self, _: &DeviceMemory) {
        self.mapped.set(self.mapped.get() - 1);
    }
}

#[test]
fn a_failure_to_map_leaks_nothing() {
    let device = Mapping { ledger: LedgerDevice::new(), fails: Cell::new(true), mapped: Cell::new(0) };
    let memory = DeviceLayout::new(&[TYPE], &[]);
    let pools = layout::blocks(&AllocationSizes::default(), &memory).unwrap();
    let allocator = Allocator::with_memory_types(&device, &memory, &pools, options()).unwrap();
    for request in [Request::new(M), Request::new(M).dedicated(), Request::new(300 * M)] {
        let slice = allocator.allocate(&request).unwrap();
        let before = State::of(&allocator);
        device.fails.set(true);
        assert_eq!(allocator.map(slice.id), Err(Error::DeviceFailed { fault: DeviceFault::Reported, code: -5 }));
        assert_eq!(State::of(&allocator), before);
        // It does not count as mapped.
        assert!(matches!(allocator.unmap(slice.id), Err(Error::InvalidArgument { .. })));
        device.fails.set(false);
        assert_eq!(allocator.map(slice.id).unwrap(), data((1 << 20) + slice.offset as usize));
        assert_eq!(device.mapped.get(), 1);
        allocator.free(slice.id).unwrap();
        allocator.trim(0).unwrap();
        assert_eq!((device.mapped.get(), device.ledger.pages()), (0, 0));
    }
}

// ---- requests that nobody can serve

#[test]
fn no_bytes_and_odd_alignments_are_refused_before_anything_else() {
    let device = device();
    let allocator = blocks(&device, &AllocationSizes::default(), 16 * M, options());
    place(&allocator, &Request::new(M));
    let before = State::of(&allocator);
    device.arm(true);
    let ways: [fn(Request) -> Request; 6] = [
        |request| request,
        Request::dedicated,
        Request::persistent,
        |request| request.with_device_data(data(1)),
        Request::never_growing,
        |request| request.in_pool(0).within_budget(),
    ];
    for way in ways {
        let error = Error::InvalidArgument { field: c"size", value: 0 };
        assert_eq!(allocator.allocate(&way(Request::new(0))), Err(error));
        assert_eq!(allocator.would_fit(&way(Request::new(0))), Err(error));
        // Too large, too; that comes later.
        for (size, alignment) in [(256, 0), (256, 3), (17 * M, 0), (17 * M, 3), (0, 3), (0, u64::MAX)] {
            let request = way(Request::new(size).aligned(alignment));
            let error = Error::InvalidArgument { field: c"alignment", value: alignment };
            assert_eq!(allocator.allocate(&request), Err(error));
            assert_eq!(allocator.would_fit(&request), Err(error));
            assert_eq!(allocator.would_grow(&request), Err(error));
        }
    }
    assert_eq!(State::of(&allocator), before);
    assert_eq!(device.events().len(), 1, "of the page");
    assert_eq!(allocator.pool_statistics(OwnPages::Once.pool(0) as usize).map(|figures| figures.pages).unwrap_or(0), 0);
    device.arm(false);
}
