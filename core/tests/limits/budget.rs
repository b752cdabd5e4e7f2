//! Limits of one allocator on the bytes and pages it holds.

use crate::common::M;
use crate::common::books::{Snapshot, assert_agree};
use crate::common::devices::{KEPT, LedgerDevice, NONE_LEFT, ScriptedDevice};
use crate::common::host::HostLedger;
use crate::common::pools::{KINDS, capped, direct, exclusive, growing, options, place, sliced};
use slicepool_core::layout::{Properties, adaptive};
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceFault, DeviceMemory, Error, PageRequest, PoolOptions, Request, Slice,
};
use std::cell::Cell;

const SIZE: u64 = 1 << 16;

fn limited(bytes: Option<u64>, pages: Option<u32>) -> AllocatorOptions {
    options().with_max_bytes(bytes).with_max_pages(pages)
}

fn over<'a>(device: &'a LedgerDevice, pools: &[PoolOptions], options: AllocatorOptions) -> Allocator<&'a LedgerDevice> {
    Allocator::try_new(device, pools, options).unwrap()
}

/// Slices of `request` until there are no more, and the error that says so. The device was not asked for that one.
fn fill<D: Device>(allocator: &Allocator<D>, device: &LedgerDevice, request: &Request) -> (Vec<Slice>, Error) {
    let mut slices = Vec::new();
    loop {
        let calls = device.calls();
        match allocator.allocate(request) {
            Ok(slice) => slices.push(slice),
            Err(error) => {
                assert_eq!(device.calls(), calls, "the device was called for what a limit forbids");
                return (slices, error);
            }
        }
    }
}

/// A request of a size.
type Ask = fn(u64) -> Request;

/// A pool of each kind, and how requests get there.
fn kinds_and_persistent() -> Vec<(&'static str, PoolOptions, Ask)> {
    let ordinary: Ask = Request::new;
    let persistent: Ask = |size| Request::new(size).persistent();
    let named = KINDS.map(|(name, pool)| (name, pool, ordinary));
    named.into_iter().chain([("persistent", direct(None), persistent)]).collect()
}

// ---- each way to a page

/// On bytes: whatever the kind of the pool, the limit can be reached and is not passed.
#[test]
fn the_limit_on_bytes_holds_for_pools_of_every_kind() {
    for (name, pool, request) in kinds_and_persistent() {
        for limit in [8 * SIZE, 8 * SIZE + 1, 8 * SIZE + SIZE / 2] {
            let device = LedgerDevice::new();
            let allocator = over(&device, std::slice::from_ref(&pool), limited(Some(limit), None));
            let (slices, error) = fill(&allocator, &device, &request(SIZE));
            assert_eq!(slices.len(), 8, "{name}, {limit}");
            assert_eq!(error, Error::BudgetExceeded { size: SIZE, limit, reserved: 8 * SIZE }, "{name}, {limit}");
            assert_eq!(device.bytes(), 8 * SIZE);
            assert_eq!(allocator.check(), Ok(()));
            // One that is freed makes room for one, also where that needs another page; but for persistent ones.
            allocator.free(slices[3].id).unwrap();
            assert_eq!(allocator.allocate(&request(SIZE / 4 * 3)).is_ok(), name != "persistent", "{name}");
            assert!(device.bytes_peak() <= limit, "{name}");
            assert_eq!(allocator.check(), Ok(()));
        }
        // Nothing at all.
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool], limited(Some(0), None));
        let error = Error::BudgetExceeded { size: SIZE, limit: 0, reserved: 0 };
        assert_eq!((fill(&allocator, &device, &request(SIZE)), device.calls()), ((vec![], error), 0), "{name}");
    }
}

/// Scenario 8: the 17th page is refused before the device is called, on every way to a page.
#[test]
fn the_seventeenth_page_is_refused_before_the_device_is_called() {
    for (name, pool, request) in kinds_and_persistent() {
        // With that cap the pool itself would be full at the same time.
        if name == "capped" {
            continue;
        }
        // Requests that fill a page for themselves.
        let request = request(4 * SIZE);
        let pool = if name == "sliced" { sliced(4 * SIZE, 4 * SIZE, None) } else { pool };
        let pool = if name == "exclusive" { exclusive(4 * SIZE) } else { pool };
        let pool = if name == "growing up to a cap" { capped(growing(1 << 14, 1 << 18), 1 << 30) } else { pool };
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool], limited(None, Some(16)));
        let (slices, error) = fill(&allocator, &device, &request);
        assert_eq!((slices.len(), device.pages()), (16, 16), "{name}");
        assert_eq!(error, Error::PageCountExceeded { size: 4 * SIZE, limit: 16 }, "{name}");
        assert_eq!(error.to_string(), "page count exceeded: 16 pages are held");
        allocator.free(slices[7].id).unwrap();
        allocator.allocate(&request).unwrap();
        assert_eq!((device.pages(), device.given()), (16, 16), "{name}");
        assert_eq!(allocator.check(), Ok(()));
    }
}

/// Scenario 8: pages of all pools count together, those of a single slice and of persistent ones too.
#[test]
fn pages_of_all_pools_count_together() {
    let device = LedgerDevice::new();
    let pools = [sliced(SIZE, SIZE, None), exclusive(M), direct(None), growing(SIZE, SIZE)];
    let allocator = over(&device, &pools, limited(None, Some(16)));
    let mut held = Vec::new();
    for i in 0..16 {
        let request = Request::new(SIZE);
        let request = if i % 5 == 4 { request.persistent() } else { request.in_pool(i % 5) };
        held.push(allocator.allocate(&request).unwrap());
    }
    assert_eq!(device.pages(), 16);
    let calls = device.calls();
    let named = [0, 1, 2, 3].map(|pool| Request::new(SIZE).in_pool(pool));
    for request in named.into_iter().chain([Request::new(SIZE).persistent()]) {
        let error = Error::PageCountExceeded { size: SIZE, limit: 16 };
        assert_eq!(allocator.allocate(&request), Err(error), "{request:?}");
    }
    assert_eq!(device.calls(), calls);
    // An idle page of one pool makes room in another. Those of persistent slices do not, until they are cleaned up.
    allocator.free(held[1].id).unwrap();
    held.push(allocator.allocate(&Request::new(SIZE).in_pool(2)).unwrap());
    allocator.free(held[4].id).unwrap();
    assert!(allocator.allocate(&Request::new(SIZE).in_pool(2)).is_err());
    allocator.cleanup().unwrap();
    allocator.allocate(&Request::new(SIZE).in_pool(2)).unwrap();
    assert_agree_with_persistent(&allocator, &device);
}

fn assert_agree_with_persistent(allocator: &Allocator<&LedgerDevice>, device: &LedgerDevice) {
    let figures = allocator.statistics();
    assert_eq!((figures.reserved, u64::from(figures.pages)), (device.bytes(), device.pages()));
    assert_eq!(allocator.check(), Ok(()));
}

/// Scenario 1: an idle page that is in the way goes.
#[test]
fn an_idle_page_does_not_keep_the_limit_from_being_reached() {
    for limits in [limited(Some(1024), None), limited(None, Some(1)), limited(Some(1024), Some(1))] {
        for pool in [growing(256, M), exclusive(M), direct(None)] {
            let device = LedgerDevice::new();
            let allocator = over(&device, &[pool], limits.clone());
            let small = place(&allocator, 256);
            allocator.free(small.id).unwrap();
            assert_eq!((device.bytes(), device.pages()), (256, 1));
            place(&allocator, 1024);
            assert_eq!((device.bytes(), device.pages(), device.bytes_peak()), (1024, 1, 1024));
            assert_agree(&allocator, &device);
        }
    }
}

/// Scenario 2.
#[test]
fn the_adaptive_list_reaches_its_limit() {
    for (count, size) in [(8, 8 * M), (2, 32 * M), (16, 4 * M), (1, 64 * M), (64, M), (128, M / 2)] {
        let device = LedgerDevice::new();
        let options = AllocatorOptions::default().with_max_bytes(Some(64 * M));
        let allocator = over(&device, &adaptive(&Properties::new(u64::MAX)).unwrap(), options);
        for i in 0..count {
            let placed = allocator.allocate(&Request::new(size));
            assert!(placed.is_ok(), "{i} of {count} x {size}: {placed:?}");
        }
        assert!(device.bytes() <= 64 * M);
        assert_agree(&allocator, &device);
    }
}

/// Pages that grow have no more than there is room for, but never less than the request.
#[test]
fn pages_that_grow_shrink_to_the_room_that_is_left() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[growing(4 * M, 64 * M)], limited(Some(9 * M + 1000), None));
    place(&allocator, 3 * M);
    place(&allocator, 3 * M);
    place(&allocator, M + 960);
    assert_eq!(device.sizes(), [4 * M, 4 * M, M + 992]);
    let error = allocator.allocate(&Request::new(M + 1)).unwrap_err();
    assert_eq!(error, Error::BudgetExceeded { size: M + 32, limit: 9 * M + 1000, reserved: 9 * M + 992 });
    // What is held already serves.
    place(&allocator, M);
    assert_agree(&allocator, &device);
}

// ---- what was reserved is returned

/// Pages that went back, for whatever reason, can be had again to the byte.
#[test]
fn what_is_trimmed_or_grows_old_can_be_had_again() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let pools = [pool.with_dealloc_period(Some(5)), direct(None)];
        let allocator = over(&device, &pools, limited(Some(8 * SIZE), Some(8)));
        let request = Request::new(SIZE).in_pool(0);
        for round in 0..6 {
            let (slices, _) = fill(&allocator, &device, &request);
            assert_eq!((slices.len(), device.bytes()), (8, 8 * SIZE), "{name}, {round}");
            for slice in &slices[1..] {
                allocator.free(slice.id).unwrap();
            }
            match round % 3 {
                0 => allocator.trim(0).unwrap(),
                1 => allocator.cleanup().unwrap(),
                _ => {
                    for _ in 0..20 {
                        allocator.allocate(&request).and_then(|slice| allocator.free(slice.id)).unwrap();
                    }
                }
            }
            assert!(device.pages() <= 2, "{name}, {round}");
            allocator.free(slices[0].id).unwrap();
        }
        assert_agree(&allocator, &device);
    }
}

/// A device that refuses to take pages back still holds them: they count until it takes them.
#[test]
fn pages_that_the_device_does_not_take_back_count() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(SIZE, SIZE, None)], limited(Some(4 * SIZE), Some(4)));
    let request = Request::new(SIZE);
    let (slices, _) = fill(&allocator, &device, &request);
    for slice in &slices[..3] {
        allocator.free(slice.id).unwrap();
    }
    device.keep_everything(true);
    assert!(matches!(allocator.trim(0), Err(Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT })));
    let error = Error::BudgetExceeded { size: SIZE, limit: 4 * SIZE, reserved: 4 * SIZE };
    assert_eq!(allocator.allocate(&request), Err(error));
    assert_eq!(device.bytes(), 4 * SIZE);
    assert_agree(&allocator, &device);
    device.keep_everything(false);
    // The request itself has them offered again.
    let (slices, _) = fill_after_retry(&allocator, &request);
    assert_eq!((slices, device.bytes_peak()), (3, 4 * SIZE));
    assert_agree(&allocator, &device);
}

fn fill_after_retry(allocator: &Allocator<&LedgerDevice>, request: &Request) -> (usize, Error) {
    let mut count = 0;
    loop {
        match allocator.allocate(request) {
            Ok(_) => count += 1,
            Err(error) => return (count, error),
        }
    }
}

/// What was reserved for a page that came to nothing is returned: the device refuses, fails, or breaks its rules.
#[test]
fn a_growth_that_fails_returns_what_it_reserved() {
    let ledger = LedgerDevice::new();
    let fault = Cell::new(0);
    let first = Cell::new(None);
    let device = ScriptedDevice {
        allocate: |request: &PageRequest| match fault.get() {
            0 => ledger.allocate(request).inspect(|memory| first.set(first.get().or(Some(*memory)))),
            1 => Err(slicepool_core::DeviceError::OutOfMemory(NONE_LEFT)),
            2 => Err(slicepool_core::DeviceError::Failed(1)),
            3 => Ok(DeviceMemory::new(u64::MAX)),
            4 => Ok(first.get().unwrap()),
            _ => ledger.allocate(request).map(|memory| DeviceMemory { address: memory.address + 1, ..memory }),
        },
        deallocate: |memory: &DeviceMemory| {
            ledger.deallocate(&DeviceMemory { address: memory.address & !1, ..*memory })
        },
    };
    let limits = limited(Some(4 * SIZE), Some(4));
    let allocator = Allocator::try_new(&device, &[sliced(SIZE, SIZE, None)], limits).unwrap();
    place(&allocator, SIZE);
    let before = Snapshot::of(&allocator);
    for kind in 1..=5 {
        for _ in 0..10 {
            fault.set(kind);
            assert!(matches!(
                allocator.allocate(&Request::new(SIZE)),
                Err(Error::OutOfDeviceMemory { .. } | Error::DeviceFailed { .. })
            ));
            allocator.trim(u64::MAX).unwrap();
        }
        assert_eq!(Snapshot::of(&allocator), before, "{kind}");
    }
    fault.set(0);
    let slices = [0; 3].map(|_| place(&allocator, SIZE));
    assert!(allocator.allocate(&Request::new(SIZE)).is_err());
    assert_eq!((ledger.bytes(), slices.len()), (4 * SIZE, 3));
}

/// The same where host memory runs out, at every place.
#[test]
fn a_growth_for_which_there_is_no_host_memory_returns_what_it_reserved() {
    for (name, pool, request) in kinds_and_persistent() {
        for k in 1.. {
            let host = HostLedger::new();
            let device = LedgerDevice::new();
            let request = request(SIZE);
            let limits = limited(Some(4 * SIZE), Some(4)).with_memory(host.memory());
            let allocator = over(&device, std::slice::from_ref(&pool), limits);
            host.fail_once(k);
            let failed = allocator.allocate(&request);
            let refused = host.refused();
            host.stop_failing();
            if refused != 0 {
                assert!(matches!(failed, Err(Error::OutOfHostMemory { .. })), "{name}, {k}: {failed:?}");
                assert_eq!((device.pages(), allocator.statistics().reserved), (0, 0), "{name}, {k}");
            }
            let (slices, _) = fill(&allocator, &device, &request);
            assert_eq!(slices.len(), if refused != 0 { 4 } else { 3 }, "{name}, {k}");
            assert_eq!((device.bytes(), allocator.check()), (4 * SIZE, Ok(())), "{name}, {k}");
            if refused == 0 {
                assert!(k > 1, "{name}: no host memory was needed");
                break;
            }
        }
    }
}

/// Batches that fail half way return what they took.
#[test]
fn a_batch_that_passes_the_limit_returns_what_it_reserved() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool], limited(Some(4 * SIZE), None));
        place(&allocator, SIZE);
        let before = Snapshot::of(&allocator);
        for _ in 0..3 {
            let refused = allocator.allocate_many(&[Request::new(SIZE); 4]).unwrap_err();
            let error = Error::BudgetExceeded { size: SIZE, limit: 4 * SIZE, reserved: 4 * SIZE };
            assert_eq!((refused.index, refused.error), (3, error), "{name}");
            assert_eq!(Snapshot::of(&allocator), before, "{name}");
        }
        assert_eq!(allocator.allocate_many(&[Request::new(SIZE); 3]).unwrap().len(), 3);
        assert_agree(&allocator, &device);
    }
}
