//! Devices that break the rules, refuse or run out; and a bit of everything, with whatever watches it.

use crate::common::books::{Snapshot, assert_agree, assert_balanced};
use crate::common::devices::{KEPT, LedgerDevice, NONE_LEFT, ScriptedDevice, VirtualDevice};
use crate::common::host::HostLedger;
use crate::common::lock::{self, WatchedLock};
use crate::common::pools::KINDS;
use crate::common::random::Random;
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceFault, DeviceMemory, Error, PageRequest, PoolOptions,
    Request,
};
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

fn pool(page_size: u64) -> PoolOptions {
    PoolOptions::sliced_pages(page_size, page_size, None)
}

// ---- devices that break the rules

type Answer = dyn Fn(&LedgerDevice, &PageRequest) -> Result<DeviceMemory, DeviceError>;

/// Runs `answer` instead of the device for the second page of an allocator: the request must fail with `error`, change
/// nothing, and be served when the device is in order again.
fn second_page_fails(answer: &Answer, error: Error) {
    let ledger = LedgerDevice::new();
    let broken = Cell::new(false);
    let device = ScriptedDevice {
        allocate: |request: &PageRequest| {
            if broken.get() { answer(&ledger, request) } else { ledger.allocate(request) }
        },
        deallocate: |memory: &DeviceMemory| ledger.deallocate(memory),
    };
    let allocator = Allocator::try_new(&device, &[pool(4096), pool(8192)], AllocatorOptions::default()).unwrap();
    let first = allocator.allocate(&Request::new(4096)).unwrap();
    let before = Snapshot::of(&allocator);
    let figures = allocator.statistics();
    for _ in 0..3 {
        broken.set(true);
        assert_eq!(allocator.allocate(&Request::new(4000)), Err(error));
        let batch = allocator.allocate_many(&[Request::new(4000); 2]).unwrap_err();
        assert_eq!((batch.index, batch.error), (0, error));
        assert_eq!(Snapshot::of(&allocator), before);
        assert_eq!(allocator.statistics().device_allocations, figures.device_allocations);
        assert_eq!((ledger.given(), ledger.taken()), (1, 0), "nothing is given back that was never given");
        assert_agree(&allocator, &ledger);
    }
    broken.set(false);
    allocator.trim(u64::MAX).unwrap();
    let second = allocator.allocate(&Request::new(4000)).unwrap();
    assert_eq!((allocator.get(first.id), allocator.get(second.id)), (Ok(first), Ok(second)));
    assert_agree(&allocator, &ledger);
    drop(allocator);
    assert_eq!((ledger.given(), ledger.taken()), (2, 2));
}

/// Scenario 42.
#[test]
fn a_device_that_reports_success_without_an_answer_has_failed() {
    let not_filled = Error::DeviceFailed { fault: DeviceFault::NotFilled, code: 0 };
    second_page_fails(&|_, _| Ok(DeviceMemory::new(u64::MAX)), not_filled);
    second_page_fails(&|_, _| Ok(DeviceMemory { address: 4096, ..DeviceMemory::new(u64::MAX) }), not_filled);
}

/// Scenario 42.
#[test]
fn a_result_that_does_not_exist_is_a_failure_of_the_device() {
    for code in [12_345, -1, i32::MIN] {
        let unknown = Error::DeviceFailed { fault: DeviceFault::UnknownResult, code };
        second_page_fails(&move |_, _| Err(DeviceError::UnknownResult(code)), unknown);
    }
}

/// Scenario 42.
#[test]
fn memory_that_is_live_already_is_not_accepted_again_and_not_given_back() {
    let duplicate = Error::DeviceFailed { fault: DeviceFault::Duplicate, code: 0 };
    // Every virtual device begins with the same page.
    let first = VirtualDevice::new().allocate(&PageRequest::new(4096, 4096)).unwrap();
    second_page_fails(&move |_, _| Ok(first), duplicate);
    // What the device says about its size does not make it another.
    second_page_fails(&move |_, _| Ok(DeviceMemory { size: 1, ..first }), duplicate);
}

/// What the device reports itself.
#[test]
fn codes_of_the_device_reach_the_caller() {
    let reported = Error::DeviceFailed { fault: DeviceFault::Reported, code: 5 };
    second_page_fails(&|_, _| Err(DeviceError::Failed(5)), reported);
    // Of the pools that were tried, the first one's page is named.
    let out = Error::OutOfDeviceMemory { size: 4096, code: -13 };
    second_page_fails(&|_, _| Err(DeviceError::OutOfMemory(-13)), out);
}

/// Scenario 42: what was given back may come again, and handles are told apart by their address.
#[test]
fn memory_that_was_given_back_may_be_given_out_again() {
    let out: RefCell<Vec<u64>> = RefCell::default();
    let next = Cell::new(7);
    let device = ScriptedDevice {
        allocate: |_: &PageRequest| {
            out.borrow_mut().push(next.get());
            Ok(DeviceMemory { address: next.get() * 4096, ..DeviceMemory::new(1) })
        },
        deallocate: |memory: &DeviceMemory| {
            let place = out.borrow().iter().position(|&page| page * 4096 == memory.address).unwrap();
            out.borrow_mut().remove(place);
            Ok(())
        },
    };
    let allocator = Allocator::try_new(&device, &[pool(4096)], AllocatorOptions::default()).unwrap();
    for _ in 0..100 {
        next.set(7);
        let one = allocator.allocate(&Request::new(4096)).unwrap();
        next.set(8);
        let other = allocator.allocate(&Request::new(4096)).unwrap();
        assert_eq!((one.address, other.address), (7 * 4096, 8 * 4096));
        allocator.free(one.id).unwrap();
        allocator.cleanup().unwrap();
        next.set(7);
        let again = allocator.allocate(&Request::new(4096)).unwrap();
        for slice in [other, again] {
            allocator.free(slice.id).unwrap();
        }
        allocator.cleanup().unwrap();
        assert!(out.borrow().is_empty());
    }
    assert_eq!(allocator.statistics().device_allocations, 300);
    assert_balanced(&allocator);
}

// ---- everything at once

/// A bit of everything, with whatever goes wrong on the way. Leaves what it has not freed.
fn work_out<D: Device>(allocator: &Allocator<D>, random: &mut Random, operations: u32) {
    let mut live = Vec::new();
    for _ in 0..operations {
        match random.below(16) {
            0..6 => {
                let request = Request::new(random.scaled(70 * K)).aligned(1 << random.below(13));
                if let Ok(slice) = allocator.allocate(&request) {
                    live.push(slice.id);
                }
            }
            6..11 if !live.is_empty() => allocator.free(random.take(&mut live)).unwrap(),
            11 => {
                let count = random.within(1, 30) as u32;
                // Some batches end with a request that nobody can serve.
                let spoiled = random.below(3) == 0;
                let batch = allocator.allocate_each(count, |i| {
                    Ok(Request::new(if spoiled && i + 1 == count { 0 } else { random.scaled(20 * K) }))
                });
                assert!(!spoiled || batch.is_err());
                live.extend(batch.iter().flat_map(|batch| batch.iter()).map(|slice| slice.id));
            }
            12 if live.len() > 3 => {
                let many: Vec<_> = (0..3).map(|_| random.take(&mut live)).collect();
                let spoiled = [many[0], many[1], many[2], many[0]];
                assert_eq!(allocator.free_many(&spoiled).unwrap_err().index, 3);
                allocator.free_many(&many).unwrap();
            }
            13 if !live.is_empty() => {
                let id = live[random.below(live.len() as u64) as usize];
                let _ = allocator.try_resize(id, random.scaled(20 * K));
                allocator.get(id).unwrap();
            }
            14 => {
                // The device may refuse.
                let _ = allocator.trim(random.below(512 * K));
            }
            15 => {
                let _ = allocator.would_fit(&Request::new(random.scaled(70 * K)));
                allocator.largest_free();
                let _ = allocator.walk(|_| ControlFlow::<()>::Continue(()));
                allocator.write_json(&mut String::new()).unwrap();
            }
            _ => {}
        }
        if live.len() > 100 {
            allocator.free(live.swap_remove(0)).unwrap();
        }
    }
}

/// Sliced pools, all kinds at once, and each by itself.
fn lists_of_a_workout() -> Vec<Vec<PoolOptions>> {
    let sliced = vec![
        PoolOptions::sliced_pages(16 * K, K, Some(64 * K)),
        PoolOptions::sliced_pages(64 * K, 32 * K, Some(256 * K)).with_granule(64),
        PoolOptions::sliced_pages(128 * K, 128 * K, Some(M)).with_granule(1024),
    ];
    let kinds = KINDS.map(|(_, pool)| pool.with_dealloc_period(Some(100)));
    let mut lists = vec![sliced, kinds.to_vec()];
    lists.extend(kinds.map(|pool| vec![pool]));
    lists
}

/// Scenario 44: for k after k, the k-th call for a page is refused; at the end each page that was given has been taken
/// back once, with its size. The device checks that, and panics where it is not so.
#[test]
fn every_page_is_given_back_once_with_its_size_whichever_call_the_device_refuses() {
    let seed = Random::with_seed_or(43).any();
    for (list, pools) in lists_of_a_workout().iter().enumerate() {
        let mut refused = 0;
        loop {
            let device = LedgerDevice::new();
            device.refuse_after(refused);
            let allocator = Allocator::try_new(&device, pools, AllocatorOptions::default()).unwrap();
            work_out(&allocator, &mut Random::from(seed), 1_500);
            assert_agree(&allocator, &device);
            drop(allocator);
            assert_eq!((device.pages(), device.bytes()), (0, 0));
            assert_eq!(device.given(), device.taken());
            if device.allocate_refused() == 0 {
                assert!(refused > if list == 0 { 5 } else { 0 }, "{refused}");
                break;
            }
            // Each for the first list; fewer and fewer for those that call the device all the time.
            refused += if list == 0 { 1 } else { 1 + refused / 10 };
        }
    }
}

/// Scenario 44: a device with little memory, that now and then keeps what it should take back.
#[test]
fn every_page_is_given_back_once_with_its_size_after_a_life_with_a_difficult_device() {
    let mut random = Random::with_seed_or(44);
    for pools in lists_of_a_workout().iter().cycle().take(90) {
        let device = LedgerDevice::new();
        device.limit_to(random.within(100 * K, 600 * K));
        let allocator = Allocator::try_new(&device, pools, AllocatorOptions::default()).unwrap();
        for _ in 0..10 {
            device.keep_everything(random.below(3) == 0);
            let before: Vec<_> = crate::common::books::ranges(&allocator).iter().filter_map(|range| range.id).collect();
            allocator.free_many(&before).unwrap();
            work_out(&allocator, &mut random, 100);
            assert_agree(&allocator, &device);
        }
        device.keep_everything(false);
        allocator.cleanup().unwrap();
        assert_eq!(allocator.statistics().pages_stuck, 0);
        assert_agree(&allocator, &device);
        drop(allocator);
        assert_eq!((device.pages(), device.given()), (0, device.taken()));
    }
}

/// Scenario 44: a batch that fails half way and a device that then refuses to take back: nothing is lost.
#[test]
fn pages_that_a_refused_batch_cannot_give_back_are_stuck_and_not_lost() {
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, &[pool(4096)], AllocatorOptions::default()).unwrap();
    device.keep_everything(true);
    device.refuse_after(3);
    let refused = allocator.allocate_many(&[Request::new(4096); 5]).unwrap_err();
    assert_eq!((refused.index, refused.error), (3, Error::OutOfDeviceMemory { size: 4096, code: NONE_LEFT }));
    let figures = allocator.statistics();
    assert_eq!((figures.slices, figures.pages, figures.pages_stuck), (0, 0, 3));
    assert_eq!(device.deallocate_refused(), 3);
    assert_agree(&allocator, &device);
    assert_eq!(allocator.cleanup(), Err(Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT }));
    device.keep_everything(false);
    assert!(allocator.destroy().is_ok());
    assert_eq!((device.given(), device.taken()), (3, 3));
}

/// No lock is held while a callback or a host-memory function runs, and a thread holds one at a time. Devices
/// and host memory of these tests check the first themselves.
#[test]
fn lock_hooks_are_never_nested_and_never_held_while_foreign_functions_run() {
    let mut random = Random::with_seed_or(46);
    for pools in lists_of_a_workout() {
        let (host, lock, device) = (HostLedger::new(), WatchedLock::new(), LedgerDevice::new());
        let options = AllocatorOptions::default().with_memory(host.memory()).with_lock(lock.kind());
        let allocator = Allocator::try_new(&device, &pools, options).unwrap();
        device.limit_to(M);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let mut random = random.split();
                let allocator = &allocator;
                scope.spawn(move || work_out(allocator, &mut random, 2_000));
            }
        });
        let _ = allocator.walk(|_| {
            assert!(!lock::is_held_here());
            ControlFlow::<()>::Continue(())
        });
        device.keep_everything(true);
        work_out(&allocator, &mut random, 500);
        device.keep_everything(false);
        assert_agree(&allocator, &device);
        assert!(matches!(
            allocator.can_destroy(slicepool_core::LiveSlices::Refuse),
            Err(Error::Busy { in_flight: 0, .. })
        ));
        let slices: Vec<_> = crate::common::books::ranges(&allocator).iter().filter_map(|range| range.id).collect();
        allocator.free_many(&slices).unwrap();
        assert!(allocator.destroy().is_ok());
        lock.assert_used_rightly();
        host.assert_all_returned();
    }
}

/// An externally synchronised allocator behaves the same.
#[test]
fn an_allocator_without_a_lock_does_the_same_as_one_with() {
    let seed = Random::with_seed_or(47).any();
    let play = |pools: &[PoolOptions], options: AllocatorOptions| {
        let device = LedgerDevice::new();
        device.limit_to(M);
        let allocator = Allocator::try_new(&device, pools, options).unwrap();
        work_out(&allocator, &mut Random::from(seed), 5_000);
        assert_agree(&allocator, &device);
        let places: Vec<_> = crate::common::books::ranges(&allocator)
            .iter()
            .map(|range| (range.pool, range.memory, range.offset, range.size, range.requested))
            .collect();
        (places, device.calls())
    };
    for pools in lists_of_a_workout() {
        let with_lock = play(&pools, AllocatorOptions::default());
        // SAFETY: one thread.
        let without_lock = AllocatorOptions::default().with_lock(unsafe { slicepool_core::LockKind::unlocked() });
        assert!(with_lock == play(&pools, without_lock));
    }
}
