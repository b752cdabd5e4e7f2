//! Memory for what a dry run has placed.

use crate::common::devices::{Gate, KEPT, LedgerDevice, NONE_LEFT, ScriptedDevice};
use crate::common::meeting::Meeting;
use crate::common::pools::{KINDS, MEMORY, direct, free_all, options, place, sliced};
use crate::common::reentrant::{Call, Reentrant, endlessly_reentrant};
use crate::common::sums::{State, assert_held, assert_sums};
use crate::common::{K, M};
use slicepool_core::{
    Allocator, Budget, Device, DeviceError, DeviceFault, DeviceMemory, Error, HostMemory, LiveSlices, LockKind,
    PageRequest, PoolOptions, Slice, SliceId,
};
use std::sync::{Arc, Mutex};
use std::thread;

fn dry<D: Device>(device: D, pools: &[PoolOptions]) -> Allocator<D> {
    Allocator::try_new(device, pools, options().with_dry_run()).unwrap()
}

// ---- what is resolved

/// The whole page for sliced pages.
#[test]
fn resolving_one_slice_of_a_sliced_page_resolves_all_of_that_page() {
    let device = LedgerDevice::new();
    let allocator = dry(&device, &[sliced(M, M, None)]);
    let page: Vec<_> = (0..3).map(|_| place(&allocator, 300 * K)).collect();
    let elsewhere = place(&allocator, 300 * K);
    let resolved = allocator.resolve(page[1].id).unwrap();
    assert_eq!((device.sizes(), resolved.offset), (vec![M], page[1].offset));
    for slice in &page {
        let now = allocator.get(slice.id).unwrap();
        assert_eq!((now.id, now.offset, now.size), (slice.id, slice.offset, slice.size));
        assert_eq!(now.memory, resolved.memory);
        assert_eq!(now.address, resolved.address - resolved.offset + now.offset);
        assert_eq!(allocator.resolve(slice.id), Ok(now));
    }
    assert_eq!(allocator.get(elsewhere.id), Ok(elsewhere));
    // What comes into that page has memory at once.
    let late = place(&allocator, 100);
    assert_eq!((late.memory, device.calls()), (resolved.memory, 1));
    assert_held(&allocator, &device);
    allocator.close(LiveSlices::Free).unwrap();
    assert_eq!((device.given(), device.taken()), (1, 1));
}

/// The one slice otherwise; and the page is what the slice's pool would have asked for.
#[test]
fn resolving_asks_for_the_page_that_was_planned_whatever_the_kind() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = dry(&device, &[pool]);
        let slices = [40 * K, 50 * K, 60 * K].map(|size| place(&allocator, size));
        let planned = allocator.statistics();
        for slice in &slices {
            allocator.resolve(slice.id).unwrap();
        }
        assert_eq!(device.bytes(), planned.reserved, "{name}");
        assert_eq!(device.pages(), u64::from(planned.pages), "{name}");
        assert_eq!(allocator.statistics().pages_unmapped, 0, "{name}");
        assert_held(&allocator, &device);
        // A page that is kept is used again with its memory.
        free_all(&allocator, &slices);
        let again = place(&allocator, 60 * K);
        assert!(device.is_out(again.memory), "{name}");
        assert_eq!(allocator.resolve(again.id), Ok(again), "{name}");
        assert_eq!(device.calls(), device.pages(), "{name}");
    }
}

/// Not a dry run: every slice has its memory.
#[test]
fn a_slice_that_has_its_memory_is_answered_as_it_is() {
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options()).unwrap();
    let slice = place(&allocator, 1000);
    assert_eq!(allocator.resolve(slice.id), Ok(slice));
    assert_eq!(device.calls(), 1);
}

/// As free does.
#[test]
fn handles_that_are_stale_or_foreign_are_not_resolved() {
    let device = LedgerDevice::new();
    let (allocator, other) = (dry(&device, &[sliced(M, M, None)]), dry(&device, &[sliced(M, M, None)]));
    let slices = [100; 2].map(|size| place(&allocator, size));
    allocator.free(slices[0].id).unwrap();
    assert_eq!(allocator.resolve(slices[0].id), Err(Error::StaleHandle));
    assert_eq!(other.resolve(slices[1].id), Err(Error::ForeignHandle));
    assert_eq!(allocator.resolve(SliceId::from_raw(12345).unwrap()), Err(Error::ForeignHandle));
    assert_eq!((allocator.statistics().pages_unmapped, device.calls()), (1, 0));
    allocator.free(slices[1].id).unwrap();
}

// ---- at the same time

/// The loser returns its memory and uses the winner's.
#[test]
fn of_two_threads_that_resolve_a_page_one_gets_its_memory_and_the_other_gives_its_back() {
    let (gate, reached, open) = Gate::new();
    let allocator = dry(gate, &[sliced(M, M, None)]);
    let slices = [100 * K; 2].map(|size| place(&allocator, size));
    thread::scope(|scope| {
        let slow = scope.spawn(|| allocator.resolve(slices[0].id));
        reached.recv().unwrap();
        let fast = allocator.resolve(slices[1].id).unwrap();
        assert_eq!(allocator.device().ledger.given(), 1);
        open.send(()).unwrap();
        let slow = slow.join().unwrap().unwrap();
        assert_eq!((slow.memory, slow.offset), (fast.memory, slices[0].offset));
    });
    let ledger = &allocator.device().ledger;
    assert_eq!((ledger.given(), ledger.taken(), ledger.pages()), (2, 1, 1));
    let figures = allocator.statistics();
    assert_eq!((figures.device_allocations, figures.device_deallocations, figures.pages_unmapped), (2, 1, 0));
    assert_held(&allocator, ledger);
    allocator.close(LiveSlices::Free).unwrap();
}

/// The same, as it may happen.
#[test]
fn threads_that_resolve_the_same_pages_at_once_agree_about_their_memory() {
    let device = LedgerDevice::new();
    let allocator = dry(&device, &[sliced(64 * K, 64 * K, None), direct(None)]);
    for _ in 0..50 {
        let slices: Vec<_> = [20 * K, 20 * K, 20 * K, 70 * K, 30 * K].map(|size| place(&allocator, size)).into();
        let together = Meeting::of(4);
        let seen: Vec<Vec<Slice>> = thread::scope(|scope| {
            let resolve = || {
                together.wait();
                slices.iter().map(|slice| allocator.resolve(slice.id).unwrap()).collect()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(resolve)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|other| other == &seen[0]));
        assert_held(&allocator, &device);
        assert_eq!(device.pages(), 3);
        free_all(&allocator, &slices);
        allocator.trim(0).unwrap();
    }
    assert_eq!((device.given(), device.pages()), (device.taken(), 0));
}

/// What a callback does while its caller resolves the first of two slices.
type Mischief = fn(&Allocator<Reentrant>, &[Slice; 2]);

/// Two slices in a page; while the first is resolved, `mischief` is done. Limits count what the device has given out.
fn resolve_with(mischief: Mischief) -> (Arc<Allocator<Reentrant>>, [Slice; 2], Result<Slice, Error>) {
    let budget = Budget::try_new(HostMemory::global(), LockKind::spin(), None, None).unwrap();
    let slices: Arc<Mutex<Option<[Slice; 2]>>> = Arc::default();
    let seen = slices.clone();
    let dry = options().with_dry_run().with_budget(&budget);
    let allocator = endlessly_reentrant(&[sliced(M, M, None)], dry, move |allocator, call| {
        // Only the first call is disturbed.
        let slices = if call == Call::Allocate { seen.lock().unwrap().take() } else { None };
        if let Some(slices) = slices {
            mischief(allocator, &slices);
        }
    });
    let placed = [100 * K; 2].map(|size| place(&*allocator, size));
    *slices.lock().unwrap() = Some(placed);
    let answer = allocator.resolve(placed[0].id);
    assert_eq!(*slices.lock().unwrap(), None, "the device was not called");
    assert_eq!(budget.statistics().bytes, allocator.device().ledger.bytes());
    assert_eq!(u64::from(budget.statistics().pages), allocator.device().ledger.pages());
    (allocator, placed, answer)
}

/// The memory goes back and the answer is stale.
#[test]
fn a_slice_that_is_freed_while_it_is_resolved_is_stale_and_its_memory_goes_back() {
    let (allocator, slices, answer) = resolve_with(|allocator, slices| allocator.free(slices[0].id).unwrap());
    let ledger = &allocator.device().ledger;
    assert_eq!(answer, Err(Error::StaleHandle));
    assert_eq!((ledger.given(), ledger.taken()), (1, 1));
    // The other slice of that page waits for its memory as before.
    assert_eq!(allocator.get(slices[1].id), Ok(slices[1]));
    assert_held(&allocator, ledger);
    let resolved = allocator.resolve(slices[1].id).unwrap();
    assert!(ledger.is_out(resolved.memory));
    allocator.free(slices[1].id).unwrap();
    allocator.cleanup().unwrap();
    assert_eq!((ledger.given(), ledger.taken(), allocator.statistics().pages), (2, 2, 0));
}

/// The same where the page goes too, or comes again as another.
#[test]
fn memory_for_a_page_that_has_gone_meanwhile_goes_back() {
    let all_free: Mischief = |allocator, slices| {
        free_all(allocator, slices);
        allocator.cleanup().unwrap();
    };
    let come_again: Mischief = |allocator, slices| {
        free_all(allocator, slices);
        allocator.cleanup().unwrap();
        assert_eq!(place(allocator, 100 * K).memory, u64::MAX);
    };
    for (mischief, pages) in [(all_free, 0), (come_again, 1)] {
        let (allocator, _, answer) = resolve_with(mischief);
        let ledger = &allocator.device().ledger;
        assert_eq!(answer, Err(Error::StaleHandle));
        assert_eq!((ledger.given(), ledger.taken()), (1, 1));
        let figures = allocator.statistics();
        assert_eq!((figures.pages, figures.pages_unmapped), (pages, pages));
        assert_held(&allocator, ledger);
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// The callback is the faster one.
#[test]
fn a_callback_that_resolves_the_same_slice_wins() {
    let (allocator, slices, answer) = resolve_with(|allocator, slices| {
        assert!(allocator.resolve(slices[0].id).unwrap().memory != u64::MAX);
    });
    let ledger = &allocator.device().ledger;
    assert_eq!(answer, allocator.get(slices[0].id));
    assert_eq!((ledger.given(), ledger.taken()), (2, 1));
    assert!(ledger.is_out(answer.unwrap().memory));
    assert_held(&allocator, ledger);
}

/// A page that the device refuses to take back is kept, counted as stuck, and offered again.
#[test]
fn memory_of_no_use_that_the_device_does_not_take_back_is_stuck_until_a_trim() {
    let lost: Mischief = |allocator, slices| {
        allocator.resolve(slices[1].id).unwrap();
        allocator.device().ledger.keep_everything(true);
    };
    let freed: Mischief = |allocator, slices| {
        allocator.free(slices[0].id).unwrap();
        allocator.device().ledger.keep_everything(true);
    };
    for (mischief, given) in [(lost, 2), (freed, 1)] {
        let (allocator, slices, answer) = resolve_with(mischief);
        let ledger = &allocator.device().ledger;
        match answer {
            Ok(slice) => assert_eq!(allocator.get(slices[1].id).map(|other| other.memory), Ok(slice.memory)),
            Err(error) => assert_eq!((error, given), (Error::StaleHandle, 1)),
        }
        let figures = allocator.statistics();
        assert_eq!((figures.pages, figures.pages_stuck, figures.stuck), (1, 1, M));
        assert_eq!((figures.reserved, ledger.given(), ledger.deallocate_refused()), (2 * M, given, 1));
        assert_held(&allocator, ledger);
        let refused = Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT };
        assert_eq!(allocator.trim(0), Err(refused));
        ledger.keep_everything(false);
        allocator.trim(0).unwrap();
        let figures = allocator.statistics();
        assert_eq!((figures.pages_stuck, figures.stuck, ledger.taken()), (0, 0, 1));
        assert_held(&allocator, ledger);
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// Destroy while any callback of this allocator is in flight is busy.
#[test]
fn an_allocator_is_not_closed_while_something_is_resolved() {
    let (allocator, _, answer) = resolve_with(|allocator, _| {
        for live in [LiveSlices::Refuse, LiveSlices::Free] {
            assert!(matches!(allocator.close(live), Err(Error::Busy { live: 2, in_flight: 1.., .. })), "{live:?}");
        }
    });
    assert!(answer.is_ok());
    assert_held(&allocator, &allocator.device().ledger);
}

/// The other way about.
#[test]
fn nothing_is_resolved_while_the_allocator_is_closed() {
    let asked = Arc::new(Mutex::new(None));
    let answer = asked.clone();
    let dry = options().with_dry_run();
    let allocator = endlessly_reentrant(&[sliced(M, M, None)], dry, move |allocator, call| {
        if call == Call::Deallocate {
            let slice = place(allocator, 100);
            assert_eq!(slice.memory, u64::MAX);
            *answer.lock().unwrap() = Some(allocator.resolve(slice.id));
            allocator.free(slice.id).unwrap();
        }
    });
    let slices = [M, M].map(|size| place(&*allocator, size));
    allocator.resolve(slices[0].id).unwrap();
    free_all(&*allocator, &slices);
    assert_eq!(allocator.close(LiveSlices::Refuse), Ok(()));
    let busy = Error::Busy { live: 0, pending: 0, in_use: 0, in_flight: 1 };
    assert_eq!(*asked.lock().unwrap(), Some(Err(busy)));
    assert_eq!(allocator.statistics().pages, 0);
}

// ---- a device that does not

/// A failure is MappingFailed and changes nothing.
#[test]
fn a_plan_that_is_larger_than_the_device_is_not_mapped_and_stays_as_it_was() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = dry(&device, &[pool]);
        let slices = [40 * K, 50 * K].map(|size| place(&allocator, size));
        device.limit_to(0);
        let before = State::of(&allocator);
        for slice in &slices {
            for _ in 0..3 {
                let answer = allocator.resolve(slice.id);
                assert!(
                    matches!(answer, Err(Error::MappingFailed { size, code: NONE_LEFT }) if size >= slice.size),
                    "{name}: {answer:?}"
                );
                assert_eq!(State::of(&allocator), before, "{name}");
            }
        }
        assert_eq!(device.given(), 0, "{name}");
        device.limit_to(u64::MAX);
        for slice in &slices {
            assert!(allocator.resolve(slice.id).is_ok(), "{name}");
        }
        assert_held(&allocator, &device);
    }
}

/// Pools that hold nothing give way first.
#[test]
fn pages_that_hold_nothing_go_back_before_a_page_is_not_mapped() {
    let device = LedgerDevice::new();
    let allocator = dry(&device, &[sliced(M, M, None), direct(None)]);
    let idle: Vec<_> = [M, M, 3 * M].map(|size| place(&allocator, size)).into();
    for slice in &idle {
        allocator.resolve(slice.id).unwrap();
    }
    let wanted = place(&allocator, 2 * M);
    free_all(&allocator, &idle);
    device.limit_to(5 * M);
    // The two that have been idle the longest are enough.
    let resolved = allocator.resolve(wanted.id).unwrap();
    assert!(device.is_out(resolved.memory));
    assert_eq!((device.allocate_refused(), device.taken(), device.bytes()), (1, 2, 5 * M));
    assert_held(&allocator, &device);
    // Now there is not enough, whatever goes.
    let larger = place(&allocator, 4 * M);
    assert_eq!(allocator.resolve(larger.id), Err(Error::MappingFailed { size: 4 * M, code: NONE_LEFT }));
    assert_eq!(device.bytes(), 2 * M);
    assert_eq!(allocator.get(larger.id), Ok(larger));
    allocator.close(LiveSlices::Free).unwrap();
}

/// The same where a page that holds nothing has never had memory: its going helps nobody.
#[test]
fn an_older_idle_page_without_memory_does_not_keep_one_with_memory_from_going_back() {
    let device = LedgerDevice::new();
    let limits = [
        (options(), Some(2 * M)),
        (options().with_max_bytes(Some(2 * M)), None),
        (options().with_max_pages(Some(1)), None),
    ];
    for (options, heap) in limits {
        let allocator = Allocator::try_new(&device, &[direct(None)], options.with_dry_run()).unwrap();
        let slices = [3 * M, 2 * M].map(|size| place(&allocator, size));
        allocator.resolve(slices[1].id).unwrap();
        // The one without memory has been idle the longest.
        free_all(&allocator, &slices);
        device.limit_to(heap.unwrap_or(u64::MAX));
        let wanted = place(&allocator, M);
        let resolved = allocator.resolve(wanted.id);
        assert!(resolved.is_ok(), "{resolved:?}");
        assert_eq!(device.bytes(), M);
        assert_held(&allocator, &device);
        allocator.close(LiveSlices::Free).unwrap();
    }
}

type Answer = fn(&LedgerDevice, &PageRequest) -> Result<DeviceMemory, DeviceError>;

/// A device that answers nonsense.
#[test]
fn memory_that_cannot_be_used_is_refused_when_a_slice_is_resolved() {
    let fault = |fault, code| Error::DeviceFailed { fault, code };
    let cases: [(Answer, Error); 4] = [
        (|_, _| Ok(DeviceMemory::new(u64::MAX)), fault(DeviceFault::NotFilled, 0)),
        (|_, _| Err(DeviceError::Failed(5)), fault(DeviceFault::Reported, 5)),
        (|_, _| Err(DeviceError::UnknownResult(9)), fault(DeviceFault::UnknownResult, 9)),
        (|_, _| Ok(DeviceMemory { address: 1 << 40, ..DeviceMemory::new(1) }), fault(DeviceFault::Duplicate, 0)),
    ];
    for (answer, error) in cases {
        let ledger = LedgerDevice::new();
        let broken = std::cell::Cell::new(false);
        let device = ScriptedDevice {
            allocate: |request: &PageRequest| {
                if broken.get() { answer(&ledger, request) } else { ledger.allocate(request) }
            },
            deallocate: |memory: &DeviceMemory| ledger.deallocate(memory),
        };
        let allocator = dry(&device, &[sliced(M, M, None)]);
        let slices = [M; 2].map(|size| place(&allocator, size));
        // The first page of a virtual device has handle 1 and lies at 2^40.
        let first = allocator.resolve(slices[0].id).unwrap();
        assert_eq!((first.memory, first.address), (1, 1 << 40));
        broken.set(true);
        let before = State::of(&allocator);
        for _ in 0..2 {
            assert_eq!(allocator.resolve(slices[1].id), Err(error));
            assert_eq!(State::of(&allocator), before, "{error}");
            assert_eq!((ledger.given(), ledger.taken()), (1, 0), "{error}");
        }
        broken.set(false);
        assert!(allocator.resolve(slices[1].id).is_ok(), "{error}");
        assert_held(&allocator, &ledger);
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// The same for memory that is misaligned, which goes back; or does not, and is stuck.
#[test]
fn misaligned_memory_goes_back_when_a_slice_is_resolved_or_is_stuck() {
    // The device gives out multiples of 4,096, and is asked for multiples of more.
    struct Crooked<'a>(&'a LedgerDevice);
    impl Device for Crooked<'_> {
        fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
            assert_eq!(request.alignment, 1 << 20);
            self.0.allocate(&PageRequest::new(request.size, 4096))
        }
        fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
            self.0.deallocate(memory)
        }
    }
    let memory_type = slicepool_core::MemoryType::new(MEMORY.max_page, 1 << 20);
    for stuck in [false, true] {
        let ledger = LedgerDevice::new();
        let limited = options().with_memory_type(memory_type).with_dry_run().with_max_bytes(Some(3 * 64 * K));
        let allocator = Allocator::try_new(Crooked(&ledger), &[sliced(64 * K, 64 * K, None)], limited).unwrap();
        let slices = [64 * K; 3].map(|size| place(&allocator, size));
        // The first page of all is aligned by chance.
        allocator.resolve(slices[0].id).unwrap();
        ledger.keep_everything(stuck);
        let before = State::of(&allocator);
        let misaligned = Error::DeviceFailed { fault: DeviceFault::Misaligned, code: 0 };
        assert_eq!(allocator.resolve(slices[1].id), Err(misaligned));
        let figures = allocator.statistics();
        assert_eq!((figures.pages_stuck, figures.pages_unmapped), (u32::from(stuck), 2));
        assert_eq!((figures.device_allocations, figures.device_deallocations), (2, u64::from(!stuck)));
        if !stuck {
            assert_eq!(State::of(&allocator), before);
        } else {
            // What is stuck counts in the limits.
            assert_eq!(allocator.resolve(slices[1].id), Err(misaligned));
            let full = Error::BudgetExceeded { size: 64 * K, limit: 192 * K, reserved: 192 * K };
            assert_eq!(allocator.resolve(slices[1].id), Err(full));
        }
        assert_held(&allocator, &ledger);
        assert_sums(&allocator);
        ledger.keep_everything(false);
        allocator.trim(0).unwrap();
        assert_eq!(State::of(&allocator), before);
        allocator.close(LiveSlices::Free).unwrap();
    }
}
