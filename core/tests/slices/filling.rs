//! Memory that is filled with zeros when it is handed out, or overwritten before it serves again.

use crate::common::devices::LedgerDevice;
use crate::common::filler::{Fill, Filler, bytes_of, filling, is_full_of, write_all};
use crate::common::host::HostLedger;
use crate::common::pools::{KINDS, direct, exclusive, full, options, over, place, sliced};
use crate::common::sums::{State, assert_held};
use crate::common::{K, M};
use slicepool_core::{
    Allocator, BatchError, Device, DeviceError, DeviceFault, Error, FillReason, LiveSlices, Point, PoolOptions,
    Request, Slice, SliceId,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

fn make<'a>(device: &'a Filler, pools: &[PoolOptions]) -> Allocator<&'a Filler> {
    Allocator::try_new(device, pools, options()).unwrap()
}

fn zeroed<D: Device>(allocator: &Allocator<D>, size: u64) -> Slice {
    allocator.allocate(&Request::new(size).zeroed()).unwrap()
}

fn secret<D: Device>(allocator: &Allocator<D>, size: u64) -> Slice {
    let slice = allocator.allocate(&Request::new(size).scrubbed()).unwrap();
    if !slice.mapped.is_null() {
        write_all(&slice, 0xAA);
    }
    slice
}

/// The error of a device that reports a code of its own.
const fn failed(code: i32) -> Error {
    Error::DeviceFailed { fault: DeviceFault::Reported, code }
}

/// Slices that are live, and that were freed and are not free.
fn counts<D: Device>(allocator: &Allocator<D>) -> (u32, u32) {
    let figures = allocator.statistics();
    (figures.slices, figures.slices_pending)
}

const fn point(timeline: u32, value: u64) -> Point {
    Point { timeline, value }
}

// ---- zeros for who asks

/// ZERO on allocate, whatever was there before; neighbours keep theirs.
#[test]
fn a_zeroed_slice_is_full_of_zeros_and_its_neighbours_are_not_touched() {
    for (name, pool) in KINDS {
        let device = Filler::new();
        let allocator = make(&device, &[pool]);
        let slices = [1000; 3].map(|size| place(&allocator, size));
        slices.iter().for_each(|slice| write_all(slice, 0xAA));
        allocator.free(slices[1].id).unwrap();
        assert_eq!(device.take_filled(), [], "{name}");
        let slice = zeroed(&allocator, 1000);
        assert_eq!((slice.memory, slice.offset), (slices[1].memory, slices[1].offset), "{name}");
        assert_eq!(device.take_filled(), [filling(FillReason::Zero, &slice)], "{name}");
        assert!(is_full_of(&slice, 0), "{name}");
        assert!(is_full_of(&slices[0], 0xAA) && is_full_of(&slices[2], 0xAA), "{name}");
        // In a new page too, and not when it is freed.
        let large = zeroed(&allocator, 60 * K);
        assert!(is_full_of(&large, 0), "{name}");
        allocator.free(large.id).unwrap();
        allocator.free(slice.id).unwrap();
        assert_eq!(device.take_filled(), [filling(FillReason::Zero, &large)], "{name}");
        assert_held(&allocator, &device.ledger);
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// Persistent slices with it.
#[test]
fn a_persistent_slice_is_zeroed_each_time_it_is_asked_for_so() {
    let device = Filler::new();
    let allocator = make(&device, &[direct(None)]);
    for _ in 0..3 {
        let slice = allocator.allocate(&Request::new(1000).persistent().zeroed()).unwrap();
        assert_eq!(device.take_filled(), [filling(FillReason::Zero, &slice)]);
        assert!(is_full_of(&slice, 0));
        write_all(&slice, 0xAA);
        allocator.free(slice.id).unwrap();
    }
    assert_eq!(device.ledger.given(), 1);
}

/// A device without it.
#[test]
fn filling_is_not_supported_by_a_device_that_cannot() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[direct(None)]);
    let refused = Err(Error::NotSupported { what: c"fill" });
    for request in [Request::new(100).zeroed(), Request::new(100).scrubbed(), Request::new(100).persistent().zeroed()] {
        assert_eq!(allocator.allocate(&request), refused);
        assert_eq!(allocator.allocate_many(&[request]).map(drop).map_err(|error| error.error), refused.map(drop));
    }
    assert_eq!((device.calls(), allocator.statistics().reserved), (0, 0));
}

/// Ways not to fill a new slice of 1,024 bytes, and what its request is refused with.
fn refusals() -> [(Fill, Error); 4] {
    let fault = |fault, code| Error::DeviceFailed { fault, code };
    [
        (Fill::Never(DeviceError::Failed(5)), fault(DeviceFault::Reported, 5)),
        (Fill::Never(DeviceError::UnknownResult(6)), fault(DeviceFault::UnknownResult, 6)),
        (Fill::Never(DeviceError::OutOfMemory(7)), Error::OutOfDeviceMemory { size: 1024, code: 7 }),
        // A new slice cannot wait.
        (Fill::Until(point(1, 1)), fault(DeviceFault::NotFilled, 0)),
    ]
}

/// If filling fails, the slice is freed again; and the page goes that was taken for it.
#[test]
fn a_slice_that_cannot_be_zeroed_is_refused_and_nothing_has_changed() {
    for (name, pool) in KINDS.iter().cloned().chain([("persistent", direct(None))]) {
        let request = if name == "persistent" { Request::new(1024).persistent() } else { Request::new(1024) };
        for (fill, error) in refusals() {
            let device = Filler::new();
            let allocator = make(&device, std::slice::from_ref(&pool));
            // Nothing is held, a page that is held is used by others, and it is free.
            for state in 0..3 {
                let other = (state > 0).then(|| allocator.allocate(&request).unwrap());
                if let (2, Some(other)) = (state, other) {
                    allocator.free(other.id).unwrap();
                }
                device.fill_so(fill);
                let (before, pages) = (State::of(&allocator), device.ledger.pages());
                for request in [request.zeroed(), request.zeroed().scrubbed()] {
                    assert_eq!(allocator.allocate(&request), Err(error), "{name}, {fill:?}");
                    assert_eq!(State::of(&allocator), before, "{name}, {fill:?}, {state}");
                    assert_eq!(device.ledger.pages(), pages, "{name}, {fill:?}, {state}");
                    let refused = allocator.allocate_many(&[Request::new(64), request]).map(drop);
                    assert_eq!(refused, Err(BatchError { index: 1, error }), "{name}, {fill:?}, {state}");
                    assert_eq!(State::of(&allocator), before, "{name}, {fill:?}, {state}, in a batch");
                }
                assert!(device.take_filled().iter().all(|&(reason, ..)| reason == FillReason::Zero));
                device.fill_so(Fill::Now);
                let slice = allocator.allocate(&request.zeroed()).unwrap();
                assert!(is_full_of(&slice, 0), "{name}");
                allocator.free(slice.id).unwrap();
                assert_held(&allocator, &device.ledger);
            }
            allocator.close(LiveSlices::Free).unwrap();
        }
    }
}

/// A place without memory cannot be filled.
#[test]
fn nothing_is_filled_in_a_dry_run_before_there_is_memory() {
    let device = Filler::new();
    let allocator = Allocator::try_new(&device, &[direct(None)], options().with_dry_run()).unwrap();
    let slices = [1000, 2000].map(|size| allocator.allocate(&Request::new(size).zeroed().scrubbed()).unwrap());
    allocator.free(slices[0].id).unwrap();
    assert_eq!((device.take_filled(), counts(&allocator)), (vec![], (1, 0)));
    let resolved = allocator.resolve(slices[1].id).unwrap();
    device.take_filled();
    write_all(&resolved, 0xAA);
    allocator.free(resolved.id).unwrap();
    assert_eq!(device.take_filled(), [filling(FillReason::Scrub, &resolved)]);
    assert!(is_full_of(&resolved, 0));
}

// ---- nothing for who comes after

/// SCRUB on free, before reuse.
#[test]
fn a_scrubbed_slice_is_overwritten_when_it_is_freed_and_others_are_not() {
    for (name, pool) in KINDS {
        let device = Filler::new();
        let allocator = make(&device, &[pool]);
        let slices = [false, true, false].map(|scrub| {
            let request = Request::new(1000);
            let slice = allocator.allocate(&if scrub { request.scrubbed() } else { request }).unwrap();
            write_all(&slice, 0xAA);
            slice
        });
        assert_eq!(device.take_filled(), [], "{name}: not before it is freed");
        allocator.free(slices[1].id).unwrap();
        assert_eq!(device.take_filled(), [filling(FillReason::Scrub, &slices[1])], "{name}");
        assert!(is_full_of(&slices[1], 0) && is_full_of(&slices[0], 0xAA) && is_full_of(&slices[2], 0xAA), "{name}");
        assert_eq!((counts(&allocator), allocator.free(slices[1].id)), ((2, 0), Err(Error::StaleHandle)), "{name}");
        // Whoever comes next has not asked for it.
        let next = place(&allocator, 1000);
        assert_eq!((next.memory, next.offset), (slices[1].memory, slices[1].offset), "{name}");
        for slice in [next, slices[0], slices[2]] {
            allocator.free(slice.id).unwrap();
        }
        assert_eq!(device.take_filled(), [], "{name}");
        assert_held(&allocator, &device.ledger);
    }
}

/// What a user may do to such a slice meanwhile.
#[test]
fn a_slice_that_is_to_be_scrubbed_is_not_resized() {
    let device = Filler::new();
    let allocator = make(&device, &[sliced(M, M, None)]);
    let slice = secret(&allocator, 1000);
    for size in [100, 1000, 2000, 0, u64::MAX] {
        assert_eq!(allocator.try_resize(slice.id, size), Err(Error::NotSupported { what: c"try_resize" }));
    }
    assert_eq!(allocator.get(slice.id), Ok(slice));
    allocator.free(slice.id).unwrap();
    assert_eq!(allocator.try_resize(slice.id, 100), Err(Error::StaleHandle));
}

type Retry = fn(&Allocator<&Filler>) -> Result<(), Error>;

/// On which the slice stays pending.
#[test]
fn a_slice_that_cannot_be_scrubbed_waits_and_serves_nobody_until_it_is() {
    let retries: [Retry; 3] = [|it| it.trim(0), |it| it.collect(9, 0), |it| it.cleanup()];
    for retry in retries {
        let device = Filler::new();
        let allocator = make(&device, &[sliced(1024, 1024, Some(1024))]);
        let slice = secret(&allocator, 1024);
        device.fill_so(Fill::Never(DeviceError::Failed(3)));
        assert_eq!(allocator.free(slice.id), Ok(()), "it is freed all the same");
        assert_eq!(allocator.free(slice.id), Err(Error::StaleHandle));
        assert_eq!((counts(&allocator), allocator.statistics().pending), ((0, 1), 1024));
        let refused = Error::PoolCapacityExceeded {
            size: 32,
            capacity: 1024,
            in_use: 0,
            pending: 1024,
            largest_free: 0,
            growths_in_flight: 0,
        };
        assert_eq!(allocator.allocate(&Request::new(32)), Err(refused));
        let busy = Error::Busy { live: 0, pending: 1, in_use: 0, in_flight: 0 };
        assert_eq!(allocator.close(LiveSlices::Refuse), Err(busy));
        assert_eq!(allocator.prepare_pools(&[direct(None)]).map(drop), Err(Error::PoolsInUse { bytes: 1024 }));
        device.take_filled();
        // Once more in vain, then for good.
        assert_eq!((retry(&allocator), counts(&allocator)), (Err(failed(3)), (0, 1)));
        assert!(is_full_of(&slice, 0xAA) && device.ledger.pages() == 1);
        device.fill_so(Fill::Now);
        assert_eq!((retry(&allocator), counts(&allocator)), (Ok(()), (0, 0)));
        assert_eq!(device.take_filled(), [filling(FillReason::Scrub, &slice); 2]);
        assert_held(&allocator, &device.ledger);
        if device.ledger.pages() == 1 {
            assert!(is_full_of(&slice, 0));
        }
        assert_eq!(place(&allocator, 1024).size, 1024);
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// The device is still at it.
#[test]
fn a_slice_whose_scrubbing_takes_its_time_waits_for_the_point() {
    for (name, pool) in KINDS {
        let device = Filler::new();
        let allocator = make(&device, &[pool]);
        device.fill_so(Fill::Until(point(4, 10)));
        let slice = secret(&allocator, 1000);
        allocator.free(slice.id).unwrap();
        assert_eq!(counts(&allocator), (0, 1), "{name}");
        allocator.trim(0).unwrap();
        allocator.collect(4, 9).unwrap();
        assert_eq!((counts(&allocator), device.ledger.pages()), ((0, 1), 1), "{name}");
        allocator.collect(4, 10).unwrap();
        assert_eq!(counts(&allocator), (0, 0), "{name}");
        assert_eq!(device.take_filled(), [filling(FillReason::Scrub, &slice)], "{name}: once is enough");
        // What has been passed is not waited for.
        allocator.free(secret(&allocator, 1000).id).unwrap();
        assert_eq!((counts(&allocator), device.take_filled().len()), ((0, 0), 1), "{name}");
        assert_held(&allocator, &device.ledger);
    }
}

/// First the device is done with it, then it is overwritten.
#[test]
fn a_slice_that_waits_is_scrubbed_when_it_has_waited() {
    for (name, pool) in KINDS {
        let device = Filler::new();
        let allocator = make(&device, &[pool]);
        let slice = secret(&allocator, 1000);
        allocator.free_after(slice.id, &[point(1, 5), point(2, 7)]).unwrap();
        allocator.collect(1, 5).unwrap();
        allocator.trim(0).unwrap();
        assert_eq!((device.take_filled(), counts(&allocator)), (vec![], (0, 1)), "{name}");
        device.fill_so(Fill::Never(DeviceError::Failed(3)));
        assert_eq!((allocator.collect(2, 7), counts(&allocator)), (Err(failed(3)), (0, 1)), "{name}");
        // What it waits for now is another point of its own.
        device.fill_so(Fill::Until(point(2, 8)));
        assert_eq!((allocator.collect(2, 7), counts(&allocator)), (Ok(()), (0, 1)), "{name}");
        assert_eq!((allocator.collect(2, 8), counts(&allocator)), (Ok(()), (0, 0)), "{name}");
        assert_eq!(device.take_filled(), [filling(FillReason::Scrub, &slice); 2], "{name}");
        // With points that have been passed it is as a free.
        device.fill_so(Fill::Now);
        let slice = secret(&allocator, 1000);
        allocator.free_after(slice.id, &[point(1, 5), point(2, 8)]).unwrap();
        assert_eq!((device.take_filled().len(), counts(&allocator)), (1, (0, 0)), "{name}");
        assert!(is_full_of(&slice, 0), "{name}");
        assert_held(&allocator, &device.ledger);
    }
}

/// What it waits with needs host memory now and then; without it, it is overwritten later, so that no answer is lost.
#[test]
fn a_slice_that_could_not_wait_for_want_of_host_memory_is_scrubbed_when_there_is_some() {
    let mut refused = 0;
    for count in 0..70 {
        let (host, device) = (HostLedger::new(), Filler::new());
        let with_books = options().with_memory(host.memory());
        let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], with_books).unwrap();
        let slice = secret(&allocator, 1000);
        // Every timeline that is known takes as much as a slice.
        (0..count).for_each(|i| allocator.collect(100 + i, 1).unwrap());
        device.fill_so(Fill::Until(point(9, 1)));
        host.fail_from(1);
        assert_eq!((allocator.free(slice.id), counts(&allocator)), (Ok(()), (0, 1)));
        let later = host.refused().min(1);
        assert_eq!(device.take_filled().len() as u64, 1 - later, "{count}");
        host.stop_failing();
        assert_eq!((allocator.collect(9, 1), counts(&allocator)), (Ok(()), (0, 0)));
        assert_eq!(device.take_filled().len() as u64, later, "{count}");
        refused += later;
        allocator.close(LiveSlices::Free).unwrap();
    }
    assert!(refused >= 1, "there was host memory for all of them");
}

/// Many at once.
#[test]
fn a_batch_is_scrubbed_slice_by_slice_and_what_cannot_be_waits() {
    for (name, pool) in KINDS {
        let device = Filler::new();
        let allocator = make(&device, &[pool]);
        let place_all = || -> Vec<Slice> {
            (0..20).map(|i| if i % 2 == 0 { secret(&allocator, 1000) } else { place(&allocator, 1000) }).collect()
        };
        let ids = |slices: &[Slice]| slices.iter().map(|slice| slice.id).collect::<Vec<SliceId>>();
        let scrubs = |slices: &[Slice]| {
            slices.iter().step_by(2).map(|slice| filling(FillReason::Scrub, slice)).collect::<Vec<_>>()
        };
        let slices = place_all();
        // A handle that is refused refuses all, and nothing is overwritten.
        let twice = [ids(&slices), vec![slices[0].id]].concat();
        assert_eq!(allocator.free_many(&twice), Err(BatchError { index: 20, error: Error::StaleHandle }), "{name}");
        assert_eq!((device.take_filled(), counts(&allocator)), (vec![], (20, 0)), "{name}");
        allocator.free_many(&ids(&slices)).unwrap();
        assert_eq!((device.take_filled(), counts(&allocator)), (scrubs(&slices), (0, 0)), "{name}");

        let slices = place_all();
        device.fill_so(Fill::Never(DeviceError::Failed(3)));
        allocator.free_many(&ids(&slices)).unwrap();
        assert_eq!((device.take_filled(), counts(&allocator)), (scrubs(&slices), (0, 10)), "{name}");
        device.fill_so(Fill::Now);
        allocator.trim(0).unwrap();
        assert_eq!((device.take_filled(), counts(&allocator)), (scrubs(&slices), (0, 0)), "{name}");

        let slices = place_all();
        allocator.free_after_many(&ids(&slices), &[point(1, 1)]).unwrap();
        assert_eq!((device.take_filled(), counts(&allocator)), (vec![], (0, 20)), "{name}");
        allocator.collect(1, 1).unwrap();
        assert_eq!((device.take_filled(), counts(&allocator)), (scrubs(&slices), (0, 0)), "{name}");
        // Nobody has seen slices of a batch that is refused.
        let requests = [Request::new(1000).scrubbed(), Request::new(u64::MAX)];
        assert_eq!(allocator.allocate_many(&requests).unwrap_err().index, 1, "{name}");
        assert_eq!(device.take_filled(), [], "{name}");
        assert_held(&allocator, &device.ledger);
    }
}

// ---- the end

/// A flag forces it.
#[test]
fn closing_by_force_scrubs_what_it_can_and_gives_everything_back() {
    for fill in [Fill::Now, Fill::Never(DeviceError::Failed(3)), Fill::Until(point(1, 1))] {
        let device = Filler::new();
        let allocator = make(&device, &[sliced(M, M, None), exclusive(0)]);
        let slices = [1000, 2000].map(|size| secret(&allocator, size));
        allocator.allocate(&Request::new(1000).scrubbed().persistent()).unwrap();
        allocator.free_after(secret(&allocator, 3000).id, &[point(2, 2)]).unwrap();
        device.fill_so(fill);
        allocator.free(slices[0].id).unwrap();
        assert_eq!(allocator.close(LiveSlices::Free), Ok(()), "{fill:?}");
        assert_eq!((device.ledger.pages(), counts(&allocator)), (0, (0, 0)), "{fill:?}");
        let filled: Vec<_> = device.take_filled().iter().map(|&(.., size)| size).collect();
        assert!([1024, 2016, 3008].iter().all(|size| filled.contains(size)), "{fill:?}: {filled:?}");
        drop(allocator);
        assert_eq!(device.ledger.taken(), 2, "{fill:?}");
    }
}

/// The same where the allocator is just dropped, and where it is abandoned.
#[test]
fn dropping_an_allocator_scrubs_its_slices_and_abandoning_it_does_not() {
    let device = Filler::new();
    let slice = {
        let allocator = make(&device, &[direct(None)]);
        secret(&allocator, 1000)
    };
    assert_eq!((device.take_filled(), device.ledger.pages()), (vec![filling(FillReason::Scrub, &slice)], 0));
    let allocator = make(&device, &[direct(None)]);
    let slice = secret(&allocator, 1000);
    let still_there = bytes_of(&slice, 0);
    allocator.abandon();
    assert_eq!((device.take_filled(), bytes_of(&slice, 0)), (vec![], still_there));
    device.ledger.write_off();
}

/// No lock is held, and destroy and install are busy.
#[test]
fn callbacks_that_fill_may_use_the_allocator_but_not_close_it_or_replace_its_pools() {
    let allocator = Arc::new(Allocator::try_new(Filler::new(), &[sliced(M, M, None)], options()).unwrap());
    let calls = Arc::new(AtomicU32::new(0));
    let (weak, count): (Weak<Allocator<Filler>>, _) = (Arc::downgrade(&allocator), calls.clone());
    allocator.device().in_each_fill(move |request| {
        let allocator = weak.upgrade().unwrap();
        for live in [LiveSlices::Refuse, LiveSlices::Free] {
            assert!(matches!(allocator.close(live), Err(Error::Busy { in_flight: 1.., .. })));
        }
        assert!(matches!(allocator.prepare_pools(&[direct(None)]).map(drop), Err(Error::Busy { in_flight: 1.., .. })));
        // What is being filled belongs to nobody else.
        let (offset, end) = (request.offset, request.offset + request.size);
        let slices: Vec<_> = (0..20).map(|_| place(&*allocator, 100)).collect();
        assert!(slices.iter().all(|it| it.offset + it.size <= offset || it.offset >= end));
        slices.iter().for_each(|slice| allocator.free(slice.id).unwrap());
        allocator.trim(0).unwrap();
        allocator.collect(1, 1).unwrap();
        count.fetch_add(1, Ordering::Relaxed);
    });
    let slices = [zeroed(&*allocator, 1000), secret(&*allocator, 1000), secret(&*allocator, 1000)];
    allocator.free(slices[1].id).unwrap();
    allocator.free_after(slices[2].id, &[point(5, 5)]).unwrap();
    allocator.collect(5, 5).unwrap();
    allocator.free(slices[0].id).unwrap();
    assert_eq!((calls.load(Ordering::Relaxed), counts(&*allocator)), (3, (0, 0)));
    assert_held(&*allocator, &allocator.device().ledger);
    assert_eq!(allocator.close(LiveSlices::Refuse), Ok(()));
}

/// The capacity error has its ordinary numbers again once a slice has been scrubbed.
#[test]
fn a_full_pool_of_scrubbed_slices_serves_again_after_each_free() {
    let device = Filler::new();
    let allocator = make(&device, &[sliced(1024, 1024, Some(1024))]);
    for _ in 0..100 {
        let slice = secret(&allocator, 1024);
        assert_eq!(allocator.allocate(&Request::new(1)), Err(full(1, 1024, 1024, 0)));
        allocator.free(slice.id).unwrap();
    }
    assert_eq!((device.take_filled().len(), device.ledger.given()), (100, 1));
}
