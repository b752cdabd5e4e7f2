//! Several memory types over several heaps: which of them serves a request, and what is tried when one is full.

use crate::common::devices::NONE_LEFT;
use crate::common::memory::{Heaps, Over, assert_whole, over, own, place};
use crate::common::sums::State;
use crate::common::{G, K, M};
use slicepool_core::{
    AllocationSizes, Allocator, AllocatorOptions, DeviceLayout, Error, Heap, Label, MemoryChoice, MemoryType, OwnPages,
    PERSISTENT_POOL, PoolOptions, Request, Slice, layout,
};

/// Properties.
const LOCAL: u32 = 1;
const VISIBLE: u32 = 2;
const CACHED: u32 = 4;
const PROTECTED: u32 = 8;

const PLAIN: MemoryType = MemoryType::new(u64::MAX, 64 * K);

/// Device memory, two kinds of host memory, and device memory that the host sees; the middle ones share a heap.
const TYPES: [MemoryType; 4] = [
    PLAIN.with_properties(LOCAL),
    PLAIN.in_heap(1).with_properties(VISIBLE).with_host_visible(true),
    PLAIN.in_heap(1).with_properties(VISIBLE | CACHED).with_host_visible(true),
    PLAIN.in_heap(2).with_properties(LOCAL | VISIBLE | PROTECTED).with_host_visible(true),
];

const HEAPS: [Heap; 3] = [Heap::new(8 * G), Heap::new(8 * G), Heap::new(2 * G)];

fn sizes() -> AllocationSizes {
    AllocationSizes::new(8 * M, 4 * M).with_max_device_memblock_size(64 * M).with_max_host_memblock_size(16 * M)
}

fn options() -> AllocatorOptions {
    AllocatorOptions::default().with_dedicated_when_too_large()
}

fn with<'a>(device: &'a Heaps, heaps: &[Heap], options: AllocatorOptions) -> Over<'a> {
    over(device, &TYPES, heaps, |memory| layout::blocks(&sizes(), memory).unwrap(), options)
}

fn device() -> Heaps {
    Heaps::new(&TYPES)
}

fn from(size: u64, memory: MemoryChoice) -> Request {
    Request::new(size).from_memory(memory)
}

/// The memory types that a choice leads to one after the other, as each becomes full.
fn order(memory: MemoryChoice) -> Vec<u32> {
    let device = device();
    let allocator = with(&device, &HEAPS, options());
    (0..3).for_each(|heap| device.limit(heap, 0));
    let mut told = Vec::new();
    let refused = allocator.allocate_explained(&from(M, memory), &Label::NONE, &mut |one, _| told.push(one));
    assert!(refused.is_err());
    told
}

// ---- the choice

#[test]
fn types_that_lack_the_fewest_preferred_properties_come_first_and_of_equal_ones_the_lowest() {
    let any = MemoryChoice::ANY;
    for (memory, expected) in [
        (any, vec![0, 1, 2, 3]),
        (any.preferring(LOCAL), vec![0, 3, 1, 2]),
        (any.preferring(VISIBLE), vec![1, 2, 3, 0]),
        (any.preferring(CACHED), vec![2, 0, 1, 3]),
        (any.preferring(LOCAL | VISIBLE), vec![3, 0, 1, 2]),
        (any.preferring(LOCAL | VISIBLE | CACHED), vec![2, 3, 0, 1]),
        (any.preferring(1 << 31), vec![0, 1, 2, 3]),
        (any.requiring(VISIBLE), vec![1, 2, 3]),
        (any.requiring(VISIBLE).preferring(LOCAL), vec![3, 1, 2]),
        (any.requiring(LOCAL | VISIBLE), vec![3]),
        (any.forbidding(PROTECTED), vec![0, 1, 2]),
        (any.forbidding(PROTECTED | CACHED).preferring(VISIBLE), vec![1, 0]),
        (MemoryChoice::of_types(0b1010), vec![1, 3]),
        (MemoryChoice::of_types(0b1010).preferring(LOCAL), vec![3, 1]),
        (MemoryChoice::of_types(0b0110).requiring(CACHED), vec![2]),
        (MemoryChoice::of_types(u32::MAX << 3), vec![3]),
    ] {
        assert_eq!(order(memory), expected, "{memory:?}");
        let device = device();
        let allocator = with(&device, &HEAPS, options());
        // Each way to memory leads to the first of them.
        for request in
            [from(M, memory), from(M, memory).dedicated(), from(M, memory).persistent(), from(100 * M, memory)]
        {
            let slice = place(&allocator, &request);
            assert_eq!(device.type_of(slice.memory), expected[0], "{request:?}");
        }
    }
}

#[test]
fn where_no_type_suits_the_request_is_not_supported() {
    let device = device();
    let allocator = with(&device, &HEAPS, options());
    device.arm(true);
    let any = MemoryChoice::ANY;
    let choices = [
        any.requiring(CACHED | PROTECTED),
        any.requiring(1 << 31),
        any.forbidding(LOCAL | VISIBLE),
        any.requiring(LOCAL).forbidding(LOCAL),
        MemoryChoice::of_types(0),
        MemoryChoice::of_types(!0b1111),
        MemoryChoice::of_types(0b0001).requiring(VISIBLE),
    ];
    let ways: [fn(Request) -> Request; 4] =
        [|request| request, Request::dedicated, Request::persistent, Request::never_growing];
    for (memory, way) in choices.iter().flat_map(|memory| ways.map(|way| (*memory, way))) {
        let mut told = 0;
        let request = way(from(M, memory));
        let refused = allocator.allocate_explained(&request, &Label::NONE, &mut |_, _| told += 1);
        assert_eq!(refused, Err(Error::NotSupported { what: c"memory_types" }));
        assert_eq!(allocator.would_fit(&request), Err(Error::NotSupported { what: c"memory_types" }));
        assert_eq!(told, 0, "none was tried");
    }
    device.arm(false);
}

/// A type without any pool serves what has a page of its own, and only that.
#[test]
fn a_type_without_pools_serves_only_what_has_pages_of_its_own() {
    for dedicates in [false, true] {
        let device = device();
        let memory = DeviceLayout::new(&TYPES, &HEAPS);
        let options = AllocatorOptions::default();
        let options = if dedicates { options.with_dedicated_when_too_large() } else { options };
        let pools = [PoolOptions::sliced_pages(4 * M, 4 * M, None).in_memory_type(1)];
        let allocator = Allocator::with_memory_types(&device, &memory, &pools, options).unwrap();
        let local = MemoryChoice::of_types(1);
        let found = allocator.allocate(&from(M, local));
        match dedicates {
            true => assert_eq!(device.type_of(found.unwrap().memory), 0),
            false => assert_eq!(found, Err(Error::NotSupported { what: c"memory_types" })),
        }
        assert_eq!(device.type_of(place(&allocator, &from(M, local).dedicated()).memory), 0);
        // Without a choice the next type serves it.
        let first = if dedicates { 0 } else { 1 };
        assert_eq!(device.type_of(place(&allocator, &Request::new(M)).memory), first);
        assert_whole(&allocator, &device);
    }
}

#[test]
fn a_named_pool_serves_from_its_type_if_that_suits() {
    let device = device();
    let allocator = with(&device, &HEAPS, options());
    for (pool, memory_type) in [(0, 0), (3, 3), (2, 2), (1, 1)] {
        let slice = place(&allocator, &Request::new(M).in_pool(pool));
        assert_eq!(device.type_of(slice.memory), memory_type);
        let asked = device.asked();
        assert_eq!((asked[0].pool, asked[0].memory_type, asked.len()), (pool, memory_type, 1));
    }
    let before = State::of(&allocator);
    device.arm(true);
    let refuse = |request: &Request, error| {
        assert_eq!(allocator.allocate(request), Err(error), "{request:?}");
        assert_eq!(allocator.would_fit(request), Err(error), "{request:?}");
    };
    let elsewhere = from(M, MemoryChoice::of_types(0b1101)).in_pool(1);
    refuse(&elsewhere, Error::NotSupported { what: c"memory_types" });
    refuse(&from(M, MemoryChoice::ANY.requiring(LOCAL)).in_pool(1), Error::NotSupported { what: c"memory_types" });
    // Too large for it, which is no reason to leave it.
    refuse(&Request::new(16 * M + 1).in_pool(1), Error::TooLarge { size: 16 * M + 1, limit: 16 * M });
    for pool in [4, PERSISTENT_POOL, OwnPages::Dedicated.pool(0), u32::MAX] {
        let error = Error::InvalidArgument { field: c"pool", value: u64::from(pool) };
        refuse(&Request::new(M).in_pool(pool), error);
        refuse(&from(M, MemoryChoice::ANY).in_pool(pool), error);
    }
    for request in [Request::dedicated, Request::persistent] {
        refuse(&request(Request::new(M).in_pool(1)), Error::InvalidArgument { field: c"pool", value: 1 });
    }
    assert_eq!(State::of(&allocator), before);
    device.arm(false);
}

#[test]
fn descriptions_that_contradict_themselves_are_refused_by_name() {
    let device = device();
    let make = |types: &[MemoryType], heaps: &[Heap], pool: PoolOptions| {
        let memory = DeviceLayout::new(types, heaps);
        let made = Allocator::with_memory_types(&device, &memory, &[pool], options()).map(|_| ());
        match made {
            Err(Error::InvalidArgument { field, value }) => (field.to_str().unwrap(), value),
            other => panic!("{other:?}"),
        }
    };
    let pool = || PoolOptions::sliced_pages(4 * M, 4 * M, None);
    assert_eq!(make(&TYPES, &HEAPS, pool().in_memory_type(4)), ("memory_type", 4));
    assert_eq!(make(&TYPES, &HEAPS, pool().in_memory_type(u32::MAX)), ("memory_type", u64::from(u32::MAX)));
    assert_eq!(make(&TYPES, &HEAPS[..2], pool()), ("heap", 2));
    assert_eq!(make(&TYPES[1..], &[], pool()), ("heap", 1));
    assert_eq!(make(&[], &HEAPS, pool()), ("memory_types", 0));
    assert_eq!(make(&[PLAIN; 33], &HEAPS, pool()), ("memory_types", 33));
    assert_eq!(make(&TYPES, &[HEAPS[0]; 33], pool()), ("heaps", 33));
    for (field, wrong) in [
        ("granularity", PLAIN.with_granularity(0)),
        ("granularity", PLAIN.with_granularity(3)),
        ("granularity", PLAIN.with_granularity(1 << 33)),
        ("non_coherent_atom", PLAIN.with_non_coherent_atom(0)),
        ("non_coherent_atom", PLAIN.with_non_coherent_atom(1 << 33)),
        ("page_alignment", MemoryType::new(u64::MAX, 3)),
    ] {
        assert_eq!(make(&[PLAIN, wrong], &HEAPS, pool()).0, field);
        assert!(layout::blocks(&sizes(), &DeviceLayout::new(&[PLAIN, wrong], &HEAPS)).is_err());
        assert!(layout::adaptive_types(&DeviceLayout::new(&[PLAIN, wrong], &HEAPS)).is_err());
    }
    assert_eq!(device.asked_sizes(), []);
}

/// All 32, the last one included.
#[test]
fn the_last_of_thirty_two_types_serves_like_the_first() {
    let types: Vec<_> = (0..32).map(|i| PLAIN.in_heap(31 - i).with_properties(1 << i)).collect();
    let heaps = [Heap::new(8 * G); 32];
    let device = Heaps::new(&types);
    let make = |memory: &DeviceLayout<'_>| layout::blocks(&sizes(), memory).unwrap();
    let allocator = over(&device, &types, &heaps, make, options());
    assert_eq!((allocator.memory_type_count(), allocator.heap_count(), allocator.pool_count()), (32, 32, 32));
    for wanted in [31, 0, 17] {
        for request in [Request::new(M), Request::new(M).dedicated(), Request::new(M).persistent()] {
            let memory = MemoryChoice::ANY.preferring(1 << wanted);
            assert_eq!(device.type_of(place(&allocator, &request.from_memory(memory)).memory), wanted);
            let memory = MemoryChoice::of_types(1 << wanted);
            assert_eq!(device.type_of(place(&allocator, &request.from_memory(memory)).memory), wanted);
        }
    }
    assert_whole(&allocator, &device);
}

// ---- full ones

type Reasons = Vec<(u32, Error)>;

fn explain(allocator: &Over, request: &Request) -> (Result<Slice, Error>, Reasons) {
    let mut reasons = Vec::new();
    let result = allocator.allocate_explained(request, &Label::NONE, &mut |one, error| reasons.push((one, error)));
    (result, reasons)
}

#[test]
fn when_a_type_is_full_the_next_serves_and_the_reason_is_told() {
    let heaps = [Heap::new(8 * G).with_limit(Some(8 * M)), HEAPS[1], HEAPS[2]];
    let device = device();
    let allocator = with(&device, &heaps, options());
    let request = from(4 * M, MemoryChoice::of_types(0b0111));
    for _ in 0..2 {
        let (slice, reasons) = explain(&allocator, &request);
        assert_eq!((device.type_of(slice.unwrap().memory), reasons), (0, vec![]));
    }
    // The limit of its heap, then what its device says.
    let full = Error::HeapBudgetExceeded { heap: 0, size: 4 * M, limit: 8 * M, reserved: 8 * M };
    let (slice, reasons) = explain(&allocator, &request);
    assert_eq!((device.type_of(slice.unwrap().memory), reasons), (1, vec![(0, full)]));
    device.limit(1, 4 * M);
    device.asked();
    let (refused, reasons) = explain(&allocator, &request);
    let none = Error::OutOfDeviceMemory { size: 4 * M, code: NONE_LEFT };
    assert_eq!(reasons, [(0, full), (1, none), (2, none)]);
    // What the device says leads.
    assert_eq!(refused, Err(none));
    assert_eq!(device.asked().iter().map(|page| page.memory_type).collect::<Vec<_>>(), [1, 1, 2]);
    // Told without being asked, too, and the same without an ear for it.
    assert_eq!(allocator.allocate(&request), Err(none));
    assert_whole(&allocator, &device);
}

/// Of each error one, in both orders.
#[test]
fn of_several_reasons_the_first_in_the_order_of_errors_leads() {
    let limited = |heap: u32| HEAPS[heap as usize].with_limit(Some(4 * M));
    for (order, memory) in
        [(false, MemoryChoice::of_types(0b0011)), (true, MemoryChoice::of_types(0b0011).preferring(VISIBLE))]
    {
        let types = if order { [1, 0] } else { [0, 1] };
        let told = |reasons: &Reasons| reasons.iter().map(|(one, _)| *one).collect::<Vec<_>>();
        // A limit and a request that is too large for the other type's heap.
        let device = device();
        let allocator = with(&device, &[limited(0), Heap::new(16 * M), HEAPS[2]], options());
        let (refused, reasons) = explain(&allocator, &from(17 * M, memory));
        assert_eq!(told(&reasons), types);
        assert_eq!(refused, Err(Error::HeapBudgetExceeded { heap: 0, size: 17 * M, limit: 4 * M, reserved: 0 }));
        assert!(reasons.contains(&(1, Error::TooLarge { size: 17 * M, limit: 16 * M })));
        // Two that are too large: the larger limit is of more use.
        let (refused, reasons) = explain(&allocator, &from(9 * G, memory));
        assert_eq!((told(&reasons), refused), (types.to_vec(), Err(Error::TooLarge { size: 9 * G, limit: 8 * G })));
        assert_eq!(device.asked_sizes(), []);
    }
}

#[test]
fn a_request_above_the_heaps_size_is_too_large_and_calls_no_device() {
    let device = device();
    let allocator = with(&device, &HEAPS, options());
    device.arm(true);
    for (memory_type, heap) in [(0, 8 * G), (1, 8 * G), (3, 2 * G)] {
        let request = from(heap + 1, MemoryChoice::of_types(1 << memory_type));
        let error = Error::TooLarge { size: heap + 1, limit: heap };
        for request in [request, request.dedicated(), request.persistent(), request.never_growing()] {
            assert_eq!(explain(&allocator, &request), (Err(error), vec![(memory_type, error)]));
            assert_eq!(allocator.would_fit(&request), Err(error));
        }
    }
    device.arm(false);
    // The next type may have a heap that is large enough.
    let request = from(3 * G, MemoryChoice::ANY.preferring(PROTECTED));
    let (slice, reasons) = explain(&allocator, &request);
    assert_eq!(device.type_of(slice.unwrap().memory), 0);
    assert_eq!(reasons, [(3, Error::TooLarge { size: 3 * G, limit: 2 * G })]);
}

// ---- heaps

/// Types 1 and 2 share one, which may hold 24 MiB.
#[test]
fn a_limit_of_a_heap_is_shared_by_its_types_and_idle_pages_of_the_heap_give_way() {
    let heaps = [HEAPS[0], HEAPS[1].with_limit(Some(24 * M)), HEAPS[2]];
    let device = device();
    let allocator = with(&device, &heaps, options());
    let request = |memory_type: u32, count: u64| from(count * M, MemoryChoice::of_types(1 << memory_type));
    let elsewhere = [0, 3].map(|memory_type| place(&allocator, &request(memory_type, 1)));
    elsewhere.iter().for_each(|slice| allocator.free(slice.id).unwrap());
    let first = place(&allocator, &request(1, 16));
    place(&allocator, &request(2, 4));
    place(&allocator, &request(2, 4));
    // What is left of the second type's block; then the heap is full for both, and on every way.
    assert_eq!(allocator.heap_report(1).unwrap().statistics.reserved, 24 * M);
    device.asked();
    let full = |size: u64| Error::HeapBudgetExceeded { heap: 1, size: size * M, limit: 24 * M, reserved: 24 * M };
    assert_eq!(allocator.allocate(&request(2, 4)), Err(full(4)));
    assert_eq!(allocator.allocate(&request(1, 1).dedicated()), Err(full(1)));
    assert_eq!(allocator.allocate(&request(2, 1).persistent()), Err(full(1)));
    assert_eq!(device.asked_sizes(), []);
    // Idle pages of other heaps were of no use, and stay.
    assert_eq!(device.ledger.taken(), 0);
    allocator.free(first.id).unwrap();
    let second = place(&allocator, &request(2, 10));
    assert_eq!((device.type_of(second.memory), device.ledger.taken()), (2, 1));
    assert!(!device.ledger.is_out(first.memory) && elsewhere.iter().all(|slice| device.ledger.is_out(slice.memory)));
    assert_whole(&allocator, &device);
    // More than the limit is never possible, and nothing is given back for it.
    allocator.free(second.id).unwrap();
    let taken = device.ledger.taken();
    let error =
        Error::HeapBudgetExceeded { heap: 1, size: 25 * M, limit: 24 * M, reserved: device.out_of(|one| one == 2).0 };
    assert_eq!(allocator.allocate(&request(1, 25)), Err(error));
    assert_eq!(device.ledger.taken(), taken);
}

#[test]
fn a_device_that_has_no_memory_of_a_heap_gets_idle_pages_of_that_heap_only() {
    let device = device();
    let allocator = with(&device, &HEAPS, options());
    let request = |memory_type: u32| from(4 * M, MemoryChoice::of_types(1 << memory_type));
    let slices = [0, 1, 3].map(|memory_type| place(&allocator, &request(memory_type)));
    slices.iter().for_each(|slice| allocator.free(slice.id).unwrap());
    device.limit(1, 4 * M);
    place(&allocator, &request(2));
    assert_eq!(device.ledger.taken(), 1);
    assert_eq!(slices.map(|slice| device.ledger.is_out(slice.memory)), [true, false, true]);
    // A limit on all bytes is another matter: whatever is idle helps.
    let device = Heaps::new(&TYPES);
    let allocator = with(&device, &HEAPS, options().with_max_bytes(Some(8 * M)));
    let slice = place(&allocator, &request(0));
    allocator.free(slice.id).unwrap();
    place(&allocator, &request(2));
    assert_eq!(device.out_of(|_| true), (4 * M, 1));
}

#[test]
fn each_type_has_a_ladder_of_its_own() {
    let device = device();
    let allocator = with(&device, &HEAPS, options());
    let fill = |memory_type: u32, slices: u64| {
        (0..slices).for_each(|_| _ = place(&allocator, &from(4 * M, MemoryChoice::of_types(1 << memory_type))));
        device.asked_sizes().iter().map(|size| size / M).collect::<Vec<_>>()
    };
    assert_eq!(fill(0, 6), [8, 16]);
    assert_eq!(fill(1, 3), [4, 8]);
    assert_eq!(fill(2, 1), [4]);
    assert_eq!(fill(0, 8), [32]);
    assert_eq!(fill(3, 1), [4]);
    assert_eq!(fill(1, 5), [16, 16]);
    assert_whole(&allocator, &device);
}

#[test]
fn each_type_has_pools_of_its_own_for_slices_with_pages_of_their_own() {
    let device = device();
    let allocator = with(&device, &HEAPS, options());
    let data = std::ptr::without_provenance_mut(0x10);
    for memory_type in 0..4 {
        let memory = MemoryChoice::of_types(1 << memory_type);
        let ways = [
            (OwnPages::Persistent, from(M, memory).persistent()),
            (OwnPages::Dedicated, from(M, memory).dedicated()),
            (OwnPages::Once, from(M, memory).with_device_data(data)),
        ];
        for (pages, request) in ways {
            assert_eq!(own(&allocator, pages, memory_type), None, "there has been no such slice");
            let slice = place(&allocator, &request);
            let asked = device.asked();
            assert_eq!((asked[0].pool, asked[0].memory_type, asked.len()), (pages.pool(memory_type), memory_type, 1));
            assert_eq!((asked[0].dedicated, asked[0].device_data), (true, request.device_data()));
            assert_eq!(own(&allocator, pages, memory_type).unwrap().in_use, M);
            assert_eq!(allocator.get(slice.id), Ok(slice));
            if pages == OwnPages::Once {
                continue;
            }
            // Its page serves its like, of its own type.
            allocator.free(slice.id).unwrap();
            assert_eq!(place(&allocator, &request).memory, slice.memory);
            allocator.free(place(&allocator, &request).id).unwrap();
            device.asked();
        }
        assert_whole(&allocator, &device);
    }
    assert_eq!(PERSISTENT_POOL, OwnPages::Persistent.pool(0));
}
