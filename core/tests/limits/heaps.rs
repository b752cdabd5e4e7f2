//! Budgets of heaps, as the device says them or as they are described: who keeps to them, and when they are asked for.

use crate::common::memory::alone::{TYPE, blocks, device, list, untouched, with};
use crate::common::memory::{Heaps, Over, assert_whole, over, place};
use crate::common::sums::State;
use crate::common::{G, K, M};
use slicepool_core::{AllocatorOptions, Error, Heap, Label, PoolOptions, Request};

fn data() -> *mut u8 {
    std::ptr::without_provenance_mut(0xDA7A)
}

/// 4 MiB are left.
fn short_of_budget(device: &Heaps) {
    device.say_budget(0, 10 * M, 14 * M);
}

#[test]
fn a_request_within_its_budget_is_refused_what_is_above_it() {
    let device = device();
    let allocator = with(&device, Heap::new(8 * G), &blocks(8 * M, 64 * M));
    short_of_budget(&device);
    let error = |size| Error::HeapBudgetExceeded { heap: 0, size, limit: 14 * M, reserved: 10 * M };
    let ways: [fn(Request) -> Request; 4] =
        [|request| request, Request::dedicated, Request::persistent, |request| request.with_device_data(data())];
    for way in ways {
        let request = way(Request::new(5 * M)).within_budget();
        let before = State::of(&allocator);
        assert_eq!(allocator.allocate(&request), Err(error(5 * M)));
        assert_eq!(State::of(&allocator), before);
    }
    assert_eq!(allocator.allocate(&Request::new(65 * M).within_budget()), Err(error(65 * M)));
    assert_eq!((device.asked_sizes(), device.ledger.calls()), (vec![], 0));
    // To the byte.
    for way in ways {
        place(&allocator, &way(Request::new(4 * M)).within_budget());
        assert_eq!(device.asked_sizes(), [4 * M]);
    }
    assert_whole(&allocator, &device);
}

#[test]
fn pages_shrink_to_the_budget_where_they_can() {
    let device = device();
    let allocator = with(&device, Heap::new(8 * G), &blocks(8 * M, 64 * M));
    short_of_budget(&device);
    place(&allocator, &Request::new(M).within_budget());
    assert_eq!(device.asked_sizes(), [4 * M]);
    // Also for those who do not insist.
    place(&allocator, &Request::new(4 * M));
    assert_eq!(device.asked_sizes(), [4 * M]);
    // Equal pages cannot: those who insist are refused.
    let other = Heaps::new(&[TYPE]);
    let equal = with(&other, Heap::new(8 * G), &[PoolOptions::sliced_pages(8 * M, 8 * M, None)]);
    short_of_budget(&other);
    let error = Error::HeapBudgetExceeded { heap: 0, size: 8 * M, limit: 14 * M, reserved: 10 * M };
    assert_eq!(equal.allocate(&Request::new(M).within_budget()), Err(error));
    assert_eq!(other.asked_sizes(), []);
    place(&equal, &Request::new(M));
    assert_eq!(other.asked_sizes(), [8 * M]);
}

#[test]
fn requests_that_do_not_insist_may_pass_the_budget() {
    let device = device();
    let allocator = with(&device, Heap::new(8 * G), &blocks(8 * M, 64 * M));
    short_of_budget(&device);
    place(&allocator, &Request::new(5 * M));
    place(&allocator, &Request::new(100 * M));
    place(&allocator, &Request::new(6 * M).dedicated());
    assert_eq!(device.asked_sizes(), [5 * M, 100 * M, 6 * M]);
    // More is used than may be.
    device.say_budget(0, 20 * M, 14 * M);
    place(&allocator, &Request::new(7 * M));
    let error = Error::HeapBudgetExceeded { heap: 0, size: 256, limit: 14 * M, reserved: 20 * M };
    assert_eq!(allocator.allocate(&Request::new(1).within_budget()), Err(error));
}

#[test]
fn the_budget_is_asked_for_when_an_allocator_grows_and_never_else() {
    let device = device();
    let allocator = with(&device, Heap::new(8 * G), &blocks(8 * M, 64 * M));
    device.say_budget(0, 0, 8 * G);
    for (expected, request) in (1..).zip([
        Request::new(M).within_budget(),
        Request::new(8 * M),
        Request::new(M).dedicated().within_budget(),
        Request::new(M).persistent(),
    ]) {
        place(&allocator, &request);
        assert_eq!(device.budget_calls(), expected, "{request:?}");
    }
    untouched(&device, || {
        for _ in 0..1000 {
            let slices = [place(&allocator, &Request::new(K)), place(&allocator, &Request::new(K).within_budget())];
            slices.iter().for_each(|slice| allocator.free(slice.id).unwrap());
            allocator.would_fit(&Request::new(M).within_budget()).unwrap();
        }
    });
    // It is read anew each time.
    device.say_budget(0, 8 * G, 8 * G);
    allocator.allocate(&Request::new(60 * M).within_budget()).unwrap_err();
    let calls = device.budget_calls();
    assert_eq!(allocator.heap_report(0).unwrap().budget.map(|budget| budget.usage), Some(8 * G));
    assert_eq!(device.budget_calls(), calls + 1);
}

/// A driver has some thousand pages for a program.
#[test]
fn where_the_budget_is_overspent_small_requests_share_pages_all_the_same() {
    let device = device();
    let allocator = with(&device, Heap::new(8 * G), &blocks(4 * M, 64 * M));
    device.say_budget(0, 20 * M, 14 * M);
    (0..4000).for_each(|_| _ = place(&allocator, &Request::new(K)));
    assert!(device.ledger.pages() <= 16, "{} pages", device.ledger.pages());
}

/// The limit of the heap, or else its size; of what nothing is known of, anything may be taken.
#[test]
fn a_device_that_says_nothing_has_the_heaps_limit_or_size_for_a_budget() {
    let ask = |allocator: &Over, count: u64| allocator.allocate(&Request::new(count * M).dedicated().within_budget());
    for (heap, budget) in [(Heap::new(16 * M), 16), (Heap::new(G).with_limit(Some(20 * M)), 20)] {
        let device = device();
        let allocator = with(&device, heap, &blocks(4 * M, 4 * M));
        let first = ask(&allocator, 12).unwrap();
        let more = budget - 12 + 1;
        let error = Error::HeapBudgetExceeded { heap: 0, size: more * M, limit: budget * M, reserved: 12 * M };
        assert_eq!(ask(&allocator, more), Err(error));
        assert_eq!(device.asked_sizes(), [12 * M]);
        // Who does not insist may take more than the heap is said to have, but not pass a limit.
        let passes = heap.limit.is_none();
        assert_eq!(allocator.allocate(&Request::new(more * M)).is_ok(), passes);
        let device = Heaps::new(&[TYPE]);
        let allocator = with(&device, heap, &blocks(4 * M, 4 * M));
        // What is idle gives way.
        allocator.free(ask(&allocator, 12).unwrap().id).unwrap();
        ask(&allocator, more).unwrap();
        assert_eq!((device.ledger.bytes(), device.ledger.taken()), (more * M, 1));
        assert_ne!(first.size, 0);
    }
    let device = device();
    let allocator = with(&device, Heap::new(u64::MAX), &blocks(4 * M, 4 * M));
    ask(&allocator, 1 << 19).unwrap();
}

#[test]
fn a_request_within_its_budget_goes_on_to_a_type_of_another_heap() {
    let types = [TYPE, TYPE.in_heap(1)];
    let device = Heaps::new(&types);
    let pools = [PoolOptions::blocks(4 * M, 16 * M), PoolOptions::blocks(4 * M, 16 * M).in_memory_type(1)];
    let heaps = [Heap::new(8 * G); 2];
    let allocator = over(&device, &types, &heaps, |_| list(&pools), AllocatorOptions::default());
    device.say_budget(0, 14 * M, 14 * M);
    let mut told = Vec::new();
    let request = Request::new(M).within_budget();
    let slice =
        allocator.allocate_explained(&request, &Label::NONE, &mut |one, error| told.push((one, error))).unwrap();
    assert_eq!(device.type_of(slice.memory), 1);
    assert_eq!(told, [(0, Error::HeapBudgetExceeded { heap: 0, size: M, limit: 14 * M, reserved: 14 * M })]);
    assert_eq!(device.asked().len(), 1);
    // Who does not insist stays where it is best.
    assert_eq!(device.type_of(place(&allocator, &Request::new(M)).memory), 0);
    assert_whole(&allocator, &device);
}
