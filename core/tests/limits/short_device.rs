//! Memory is short: which pages the device is asked for after it has refused one, and how seldom.

use crate::common::books::{Snapshot, assert_agree};
use crate::common::devices::{Asked, LoggedDevice, NONE_LEFT};
use crate::common::pools::{KINDS, direct, exclusive, options, sliced};
use crate::common::short::{Short, free_all, none_left, over, place, place_in};
use crate::common::{G, K, M};
use slicepool_core::layout::{Properties, adaptive};
use slicepool_core::{Allocator, DeviceError, DeviceFault, Error, PoolOptions, Request};

/// Sizes of the pages that the device was asked for.
fn sizes(asked: &[Asked]) -> Vec<u64> {
    asked.iter().filter_map(|it| if let Asked::Page(size) = it { Some(*size) } else { None }).collect()
}

// ---- pages that grow

/// Scenario 3.
#[test]
fn a_smaller_page_serves_where_the_usual_one_is_refused() {
    let device = LoggedDevice::new();
    let allocator = over(&device, &adaptive(&Properties::new(u64::MAX)).unwrap());
    device.ledger.limit_to(6 * M);
    place(&allocator, 4 * M);
    place(&allocator, M);
    assert_eq!(sizes(&device.asked()), [4 * M, 4 * M, 2 * M]);
    // There is room for another of them, and then none.
    place(&allocator, M);
    assert_eq!(allocator.allocate(&Request::new(M)), Err(none_left(M)));
    assert_eq!((sizes(&device.asked()), device.ledger.bytes()), (vec![2 * M, M], 6 * M));
    assert_agree(&allocator, &device.ledger);
}

/// 4 MiB, 2 MiB, 1 MiB, and then exactly what is needed; never below the request.
#[test]
fn refused_pages_are_halved_down_to_a_megabyte_and_then_exactly_what_is_needed() {
    let exact: [(u64, u64, &[u64]); 6] = [
        (4 * M, 1000, &[4 * M, 2 * M, M, 1024]),
        (4 * M, M, &[4 * M, 2 * M, M]),
        (4 * M, M + 1, &[4 * M, 2 * M, M + 256]),
        (4 * M, 5 * M / 2, &[4 * M, 5 * M / 2]),
        (4 * M, 4 * M, &[4 * M]),
        (64 * K, 1000, &[64 * K, 1024]),
    ];
    for (page, request, asked) in exact {
        let device = LoggedDevice::new();
        let allocator = over(&device, &[PoolOptions::growing_pages(page, 64 * M)]);
        device.ledger.limit_to(0);
        let before = Snapshot::of(&allocator);
        assert_eq!(allocator.allocate(&Request::new(request)), Err(none_left(*asked.last().unwrap())));
        assert_eq!(sizes(&device.asked()), asked, "{request} of {page}");
        assert_eq!(Snapshot::of(&allocator), before);
        assert_agree(&allocator, &device.ledger);
    }
}

/// After a refusal at S no page of more than S / 2 is asked for, however much is held by then, until something has gone
/// back.
#[test]
fn after_a_refusal_pages_have_at_most_half_of_what_was_refused() {
    let device = LoggedDevice::new();
    let allocator = over(&device, &[PoolOptions::growing_pages(4 * M, 64 * M)]);
    // 60 MiB are held, so the next page would have 60 / 8 MiB.
    let held: Vec<_> = (0..15).map(|_| place(&allocator, 4 * M)).collect();
    device.asked();
    device.ledger.limit_to(67 * M);
    let mut small = vec![place(&allocator, M / 4)];
    let refused = 15 * M / 2;
    assert_eq!(sizes(&device.asked()), [refused, refused / 2]);
    // There is memory again, but nobody has said so. More is held now, so that the usual page is larger than the refused one.
    device.ledger.limit_to(G);
    small.extend((0..100).map(|_| place(&allocator, M / 4)));
    let asked = sizes(&device.asked());
    assert!(!asked.is_empty() && asked.iter().all(|&size| size <= refused / 2), "{asked:?}");
    free_all(&allocator, &small);
    allocator.trim(0).unwrap();
    device.asked();
    place(&allocator, M / 4);
    assert_eq!(sizes(&device.asked()), [refused], "as if nothing had been");
    free_all(&allocator, &held);
    assert_agree(&allocator, &device.ledger);
}

/// Scenario 10.
#[test]
fn thousands_of_small_requests_are_served_by_what_little_is_left_and_else_ask_seldom() {
    for (room, served) in [(6 * M, 4000), (0, 0)] {
        let device = LoggedDevice::new();
        let allocator = over(&device, &[PoolOptions::growing_pages(8 * M, 64 * M)]);
        device.ledger.limit_to(room);
        let results = (0..4000).map(|i| allocator.allocate(&Request::new(256 + i % 769)));
        assert_eq!(results.filter(Result::is_ok).count(), served);
        let asked = sizes(&device.asked());
        assert!(asked.len() <= if served == 0 { 16 } else { 3 }, "{asked:?}");
        assert_eq!(asked[..2], [8 * M, 4 * M]);
        assert_agree(&allocator, &device.ledger);
    }
}

/// Whatever a device has left is used up by small requests, in few calls.
#[test]
fn all_of_a_device_can_be_had_in_growing_pages() {
    for room in [K, 100 * K, M, 3 * M, 6 * M, 10 * M + 512] {
        let device = LoggedDevice::new();
        let allocator = over(&device, &adaptive(&Properties::new(u64::MAX)).unwrap());
        device.ledger.limit_to(room);
        let mut slices = 0;
        while allocator.allocate(&Request::new(512).in_pool(1)).is_ok() {
            slices += 1;
        }
        assert_eq!((slices, device.ledger.bytes()), (room / 512, room));
        assert!(device.asked().len() < 4000, "{room}");
    }
}

// ---- the device is not asked again and again

/// Sizes that the device is asked for by each of many requests that fail: which request, and how many calls.
fn calls_of_failing_requests(allocator: &Short, request: &Request, count: usize) -> Vec<(usize, usize)> {
    let device = allocator.device();
    device.asked();
    let mut calls = Vec::new();
    for i in 0..count {
        assert!(matches!(allocator.allocate(request), Err(Error::OutOfDeviceMemory { code: NONE_LEFT, .. })));
        match sizes(&device.asked()).len() {
            0 => {}
            asked => calls.push((i, asked)),
        }
    }
    calls
}

/// 64 requests fail without a call, then 128, then twice as many each time: with pages of every kind.
#[test]
fn a_device_without_memory_is_asked_after_64_requests_then_after_128_then_after_twice_as_many() {
    for (name, pool) in KINDS {
        let device = LoggedDevice::new();
        let allocator = Allocator::try_new(&device, &[pool], options()).unwrap();
        device.ledger.limit_to(0);
        let before = Snapshot::of(&allocator);
        let calls = calls_of_failing_requests(&allocator, &Request::new(10_000), 1000);
        // The first request also asks for smaller pages, where there are any.
        let first = if name.starts_with("growing") { 2 } else { 1 };
        assert_eq!(calls, [(0, first), (65, 1), (194, 1), (451, 1), (964, 1)], "{name}");
        assert_eq!(Snapshot::of(&allocator), before, "{name}");
        // There is memory again, but nobody has said so: the pause is over after 1,024 requests.
        device.ledger.limit_to(M);
        let served = (1000..).find(|_| allocator.allocate(&Request::new(10_000)).is_ok());
        assert_eq!(served, Some(964 + 1024 + 1), "{name}");
        allocator.allocate(&Request::new(10_000)).unwrap();
        assert_agree(&allocator, &device.ledger);
    }
}

/// A trim ends the pause, whether or not it gives anything back.
#[test]
fn a_trim_ends_the_pause() {
    for (name, pool) in KINDS {
        let device = LoggedDevice::new();
        let allocator = Allocator::try_new(&device, &[pool], options()).unwrap();
        device.ledger.limit_to(0);
        for keep in [0, u64::MAX] {
            let calls = calls_of_failing_requests(&allocator, &Request::new(10_000), 100);
            assert_eq!((calls.len(), calls[0].0, calls[1].0), (2, 0, 65), "{name}");
            allocator.trim(keep).unwrap();
        }
        device.ledger.limit_to(M);
        allocator.allocate(&Request::new(10_000)).unwrap();
        assert_agree(&allocator, &device.ledger);
    }
}

/// So does a page that goes back, whichever pool it was in and whatever for: here by age.
#[test]
fn a_page_that_goes_back_ends_the_pause() {
    let device = LoggedDevice::new();
    let allocator = over(&device, &[sliced(M, M, None), direct(None).with_dealloc_period(Some(5)), exclusive(2 * K)]);
    place(&allocator, M);
    let other = place_in(&allocator, M, 1);
    let small = place_in(&allocator, K, 2);
    device.ledger.limit_to(device.ledger.bytes());
    let request = Request::new(M).in_pool(0);
    let calls = calls_of_failing_requests(&allocator, &request, 10);
    assert_eq!(calls, [(0, 1)]);
    free_all(&allocator, [&small, &other]);
    // Allocations that succeed make it old.
    for _ in 0..5 {
        allocator.free(place_in(&allocator, K, 2).id).unwrap();
    }
    assert_eq!(device.asked(), [Asked::Back(other.memory)]);
    allocator.allocate(&request).unwrap();
    assert_eq!(device.asked(), [Asked::Page(M)]);
    assert_agree(&allocator, &device.ledger);
}

/// Pages as large as the refused one, and larger ones, are not asked for; smaller ones are.
#[test]
fn smaller_pages_are_asked_for_during_a_pause_and_larger_ones_are_not() {
    for pool in [direct(None), exclusive(16 * M)] {
        let device = LoggedDevice::new();
        let allocator = Allocator::try_new(&device, &[pool], options()).unwrap();
        device.ledger.limit_to(M);
        assert_eq!(allocator.allocate(&Request::new(4 * M)), Err(none_left(4 * M)));
        assert_eq!(allocator.allocate(&Request::new(4 * M)), Err(none_left(4 * M)));
        assert_eq!(allocator.allocate(&Request::new(8 * M)), Err(none_left(8 * M)));
        assert_eq!(allocator.allocate(&Request::new(2 * M)), Err(none_left(2 * M)));
        assert_eq!(sizes(&device.asked()), [4 * M, 2 * M]);
        assert_eq!(allocator.allocate(&Request::new(3 * M)), Err(none_left(3 * M)));
        assert_eq!(sizes(&device.asked()), []);
        allocator.allocate(&Request::new(M)).unwrap();
        assert_eq!(sizes(&device.asked()), [M]);
        assert_agree(&allocator, &device.ledger);
    }
    // The pools of an allocator are asked for their own pages each.
    let device = LoggedDevice::new();
    let allocator = over(&device, &[sliced(4 * M, M, None), sliced(M, M, None)]);
    device.ledger.limit_to(M);
    place(&allocator, M / 2);
    place(&allocator, M / 2);
    assert_eq!(sizes(&device.asked()), [4 * M, M]);
}

/// A device that fails for another reason is asked as often as before, and for the same pages.
#[test]
fn a_device_that_fails_is_neither_asked_for_less_nor_left_alone() {
    for (failure, fault) in
        [(DeviceError::Failed(-9), DeviceFault::Reported), (DeviceError::UnknownResult(-9), DeviceFault::UnknownResult)]
    {
        for (name, pool) in KINDS {
            let device = LoggedDevice::new();
            let allocator = Allocator::try_new(&device, &[pool], options()).unwrap();
            device.fail_with(Some(failure));
            let mut all = Vec::new();
            for _ in 0..70 {
                let error = Error::DeviceFailed { fault, code: -9 };
                assert_eq!(allocator.allocate(&Request::new(10_000)), Err(error), "{name}");
                all.extend(device.asked());
            }
            device.fail_with(None);
            allocator.allocate(&Request::new(10_000)).unwrap();
            all.extend(device.asked());
            assert_eq!((all.len(), sizes(&all).len()), (71, 71), "{name}: nobody is asked for help");
            assert!(all.iter().all(|it| *it == all[0]), "{name}");
            assert_agree(&allocator, &device.ledger);
        }
    }
}

/// Scenario 7: the n-th page is refused with the device's code; what is freed later serves the same request.
#[test]
fn a_request_for_which_the_device_has_no_page_is_served_after_a_free() {
    for (name, pool) in KINDS {
        for n in [1, 2, 7] {
            let device = LoggedDevice::new();
            let allocator = Allocator::try_new(&device, std::slice::from_ref(&pool), options()).unwrap();
            let request = Request::new(1 << 16);
            let held: Vec<_> = (1..n).map(|_| allocator.allocate(&request).unwrap()).collect();
            device.ledger.limit_to(device.ledger.bytes());
            let before = Snapshot::of(&allocator);
            assert_eq!(allocator.allocate(&request), Err(none_left(1 << 16)), "{name}, {n}");
            assert_eq!(Snapshot::of(&allocator), before, "{name}, {n}");
            match held.first() {
                // The same place, without a word to the device.
                Some(first) => {
                    allocator.free(first.id).unwrap();
                    device.asked();
                    let again = allocator.allocate(&request).unwrap();
                    assert_eq!((again.memory, again.offset, device.asked()), (first.memory, first.offset, vec![]));
                }
                None => {
                    device.ledger.limit_to(1 << 16);
                    allocator.trim(0).unwrap();
                    allocator.allocate(&request).unwrap();
                }
            }
            assert_agree(&allocator, &device.ledger);
        }
    }
}
