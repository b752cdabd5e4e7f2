//! Requests that say how far an allocator may go for them: never to the device, or how deep into its holes; and whether it
//! would have to.

use crate::common::devices::LedgerDevice;
use crate::common::memory::alone::{TYPE, blocks, device, untouched, with};
use crate::common::memory::{Heaps, Over, assert_whole, over, place};
use crate::common::pools::KINDS;
use crate::common::random::Random;
use crate::common::sums::{State, all_ranges};
use crate::common::{G, K, M};
use slicepool_core::{
    AllocationSizes, Allocator, AllocatorOptions, DeviceLayout, Error, Heap, Point, PoolOptions, Request, Slice, layout,
};

fn data() -> *mut u8 {
    std::ptr::without_provenance_mut(0xDA7A)
}

// ---- never growing

#[test]
fn what_never_grows_is_served_from_what_is_held_or_refused_without_a_call() {
    for (name, pool) in KINDS {
        let device = device();
        let allocator = with(&device, Heap::new(8 * G), &[pool]);
        let request = Request::new(1 << 14).never_growing();
        let refuse = |capacity, in_use| {
            let before = State::of(&allocator);
            let error = untouched(&device, || allocator.allocate(&request)).unwrap_err();
            let Error::PoolCapacityExceeded { size, capacity: told, in_use: used, pending: 0, .. } = error else {
                panic!("{name}: {error}")
            };
            assert_eq!((size, told, used), (1 << 14, capacity, in_use), "{name}");
            assert_eq!(State::of(&allocator), before, "{name}");
        };
        refuse(0, 0);
        let slice = place(&allocator, &Request::new(1 << 14));
        let held = device.ledger.bytes();
        allocator.free(slice.id).unwrap();
        let mut slices = Vec::new();
        untouched(&device, || {
            while let Ok(slice) = allocator.allocate(&request) {
                slices.push(slice);
            }
        });
        // All of it.
        assert_eq!(slices.len() as u64, held >> 14, "{name}");
        refuse(held, held);
        assert_whole(&allocator, &device);
    }
}

#[test]
fn what_never_grows_and_has_a_page_of_its_own_takes_only_one_of_its_kind() {
    for way in [Request::dedicated, Request::persistent] {
        let device = device();
        let allocator = with(&device, Heap::new(8 * G), &blocks(4 * M, 4 * M));
        let block = place(&allocator, &Request::new(M));
        allocator.free(block.id).unwrap();
        let request = way(Request::new(M));
        untouched(&device, || allocator.allocate(&request.never_growing()).unwrap_err());
        let slice = place(&allocator, &request);
        allocator.free(slice.id).unwrap();
        untouched(&device, || {
            allocator.allocate(&way(Request::new(M / 2)).never_growing()).unwrap_err();
            assert_eq!(place(&allocator, &request.never_growing()).memory, slice.memory);
        });
        assert_whole(&allocator, &device);
    }
    // Nothing is ever there for what has device data.
    let device = device();
    let allocator = with(&device, Heap::new(8 * G), &blocks(4 * M, 4 * M));
    let request = Request::new(M).with_device_data(data());
    let slice = place(&allocator, &request);
    allocator.free(slice.id).unwrap();
    untouched(&device, || allocator.allocate(&request.never_growing()).unwrap_err());
    assert_whole(&allocator, &device);
}

/// Nor does it count as an allocation that others grow old by, and pages that are too old already stay.
#[test]
fn what_never_grows_ages_nothing() {
    let device = device();
    let pools = [
        PoolOptions::sliced_pages(M, M, None).with_dealloc_period(Some(10)),
        PoolOptions::sliced_pages(2 * M, 2 * M, None),
    ];
    let allocator = with(&device, Heap::new(8 * G), &pools);
    let old = place(&allocator, &Request::new(M).in_pool(0));
    place(&allocator, &Request::new(M).in_pool(1));
    let once = place(&allocator, &Request::new(M).with_device_data(data()));
    allocator.free(old.id).unwrap();
    allocator.free(once.id).unwrap();
    untouched(&device, || {
        for _ in 0..1000 {
            let slice = place(&allocator, &Request::new(K).in_pool(1).never_growing());
            allocator.free(slice.id).unwrap();
        }
    });
    assert_eq!(device.ledger.taken(), 0);
    // The same without the flag.
    for _ in 0..20 {
        let slice = place(&allocator, &Request::new(K).in_pool(1));
        allocator.free(slice.id).unwrap();
    }
    assert!(!device.ledger.is_out(old.memory) && !device.ledger.is_out(once.memory));
    assert_whole(&allocator, &device);
}

#[test]
fn what_never_grows_does_not_ask_what_is_completed() {
    let device = device();
    let allocator = with(&device, Heap::new(8 * G), &blocks(4 * M, 4 * M));
    let slice = place(&allocator, &Request::new(4 * M));
    allocator.free_after(slice.id, &[Point::new(1, 7)]).unwrap();
    let refused = untouched(&device, || allocator.allocate(&Request::new(M).never_growing()));
    let (capacity, pending) = (4 * M, 4 * M);
    let error =
        Error::PoolCapacityExceeded { size: M, capacity, in_use: 0, pending, largest_free: 0, growths_in_flight: 0 };
    assert_eq!(refused, Err(error));
    allocator.collect(1, 7).unwrap();
    untouched(&device, || place(&allocator, &Request::new(M).never_growing()));
}

/// One full page but for holes of one size class: `count` of 1,000 granules, which are met first, and then one of 1,006.
fn with_holes(device: &Heaps, count: usize) -> (Over<'_>, Slice) {
    let allocator = with(device, Heap::new(8 * G), &[PoolOptions::sliced_pages(128 * M, 128 * M, None)]);
    let take = |granules: u64| place(&allocator, &Request::new(granules * 256));
    let holes: Vec<_> = (0..count).map(|_| [take(1000), take(1)][0]).collect();
    let hidden = take(1006);
    take(allocator.largest_free() / 256);
    holes.iter().for_each(|slice| allocator.free(slice.id).unwrap());
    allocator.free(hidden.id).unwrap();
    device.asked();
    (allocator, hidden)
}

#[test]
fn what_never_grows_finds_room_that_only_a_whole_search_finds() {
    let device = device();
    let (allocator, hidden) = with_holes(&device, 400);
    let request = Request::new(1003 * 256);
    untouched(&device, || {
        assert_eq!((allocator.would_fit(&request), allocator.would_grow(&request)), (Ok(true), Ok(false)));
        let found = place(&allocator, &request.never_growing());
        assert_eq!((found.memory, found.offset), (hidden.memory, hidden.offset));
        assert_eq!(allocator.would_fit(&request), Ok(false));
        allocator.allocate(&request.never_growing()).unwrap_err();
        allocator.free(found.id).unwrap();
    });
    // Otherwise a page is taken before all has been looked at.
    assert_ne!(place(&allocator, &request).memory, hidden.memory);
    assert_eq!(device.asked().len(), 1);
    assert_whole(&allocator, &device);
}

// ---- what would be

/// Random requests in pools of several kinds: what is said of each beforehand is what comes of it.
#[test]
fn would_fit_and_would_grow_say_what_then_happens_and_do_nothing() {
    let mut random = Random::with_seed_or(0xF17);
    for round in 0..8 {
        let device = device();
        let pools = match round % 4 {
            0 => vec![PoolOptions::sliced_pages(256 * K, 64 * K, None), PoolOptions::growing_pages(M, 8 * M)],
            1 => vec![PoolOptions::blocks(M, 8 * M).with_dealloc_period(Some(200))],
            2 => vec![PoolOptions::direct(None), PoolOptions::sliced_pages(M, M, Some(4 * M))],
            _ => vec![PoolOptions::sliced_pages(M, 128 * K, Some(8 * M)).with_dealloc_period(Some(100))],
        };
        let allocator = with(&device, Heap::new(8 * G), &pools);
        let mut live = Vec::new();
        let mut seen = [0_u32; 3];
        for _ in 0..3000 {
            if !live.is_empty() && (live.len() > 80 || random.below(2) == 0) {
                let slice: Slice = random.take(&mut live);
                allocator.free(slice.id).unwrap();
                continue;
            }
            let mut request = Request::new(random.scaled(M)).aligned(1 << random.below(18));
            request = match random.below(12) {
                0 => Request::new(random.within(1, 4) * 10_000).dedicated(),
                1 => Request::new(random.within(1, 4) * 10_000).persistent(),
                2 => request.with_device_data(data()),
                3 => request.within_budget(),
                4 => request.in_pool(random.below(3) as u32),
                _ => request,
            };
            if random.below(4) == 0 {
                request = request.never_growing();
                if random.below(2) == 0 {
                    request = request.with_search_depth(random.below(8) as u32);
                }
            }
            let before = State::of(&allocator);
            let fits = untouched(&device, || {
                let fits = allocator.would_fit(&request);
                assert_eq!(allocator.would_grow(&request), fits.map(|fits| !fits));
                fits
            });
            assert_eq!(State::of(&allocator), before);
            device.asked();
            let holes = allocator.statistics().free_ranges;
            let slice = allocator.allocate(&request);
            let asked = device.asked().len();
            match fits {
                Ok(true) => {
                    seen[0] += 1;
                    // With so few holes each look is a whole one.
                    assert!(slice.is_ok() && (asked == 0 || holes >= 60), "{request:?}: {slice:?}, {asked} calls");
                }
                Ok(false) => {
                    seen[1] += 1;
                    assert_eq!(slice.is_ok(), asked != 0, "{request:?}: {slice:?}, {asked} calls");
                    assert!(!request.never_grows() || slice.is_err());
                }
                Err(error) => {
                    seen[2] += 1;
                    assert_eq!((slice, asked), (Err(error), 0), "{request:?}");
                }
            }
            live.extend(slice);
        }
        assert!(seen.iter().all(|count| *count > 20), "{round}: {seen:?}");
        assert_whole(&allocator, &device);
    }
}

/// Exclusive pages have any page as a last resort, of more than twice the size too.
#[test]
fn would_fit_knows_of_exclusive_pages_that_serve_when_nothing_else_does() {
    let device = device();
    let allocator = with(&device, Heap::new(8 * G), &[PoolOptions::exclusive_pages(16 * M)]);
    let slice = place(&allocator, &Request::new(8 * M));
    allocator.free(slice.id).unwrap();
    let request = Request::new(M).never_growing();
    let fits = allocator.would_fit(&request);
    let found = untouched(&device, || allocator.allocate(&request));
    assert_eq!((fits, found.map(|slice| slice.memory)), (Ok(true), Ok(slice.memory)));
}

// ---- how deep

/// With three holes of the class in front of the one that fits, and room elsewhere.
#[test]
fn a_search_depth_says_how_many_holes_are_looked_at_before_a_larger_one_is_broken() {
    for (depth, finds) in [(0, false), (3, false), (4, true), (5, true), (u32::MAX, true)] {
        let device = device();
        let (allocator, hidden) = with_holes(&device, 3);
        // Another page, where there is room for anything.
        let other = place(&allocator, &Request::new(2000 * 256));
        let request = Request::new(1003 * 256).with_search_depth(depth);
        let fits = untouched(&device, || allocator.would_fit(&request));
        let found = untouched(&device, || place(&allocator, &request));
        assert_eq!(fits, Ok(true));
        assert_eq!(found.memory == hidden.memory, finds, "{depth}");
        assert_eq!(found.memory == other.memory, !finds, "{depth}");
    }
}

/// And before a page is taken.
#[test]
fn a_search_depth_says_how_many_holes_are_looked_at_before_a_page_is_taken() {
    for (depth, finds) in [(0, false), (1, false), (3, false), (4, true), (u32::MAX, true)] {
        let device = device();
        let (allocator, hidden) = with_holes(&device, 3);
        let request = Request::new(1003 * 256).with_search_depth(depth);
        assert_eq!(allocator.would_fit(&request), Ok(finds), "{depth}");
        let found = place(&allocator, &request);
        assert_eq!((found.memory == hidden.memory, device.asked().len()), (finds, usize::from(!finds)), "{depth}");
    }
}

/// Sizes of few classes in equal pages: the most pages that were held.
fn churned(seed: u64, depth: Option<u32>) -> u32 {
    let device = device();
    let allocator = with(&device, Heap::new(8 * G), &[PoolOptions::sliced_pages(M, M, None)]);
    let (mut random, mut live) = (Random::from(seed), Vec::new());
    for i in 0..20_000 {
        if live.len() > 600 || (!live.is_empty() && random.below(100) < 48) {
            let slice: Slice = random.take(&mut live);
            allocator.free(slice.id).unwrap();
            continue;
        }
        let alignment = 1 << random.below(14);
        let mut request = Request::new(random.within(48 * K, 64 * K)).aligned(alignment);
        if let Some(depth) = depth {
            request = request.with_search_depth(depth);
        }
        let slice = place(&allocator, &request);
        assert_eq!(slice.offset % alignment, 0);
        live.push(slice);
        if i % 1000 == 0 {
            assert_whole(&allocator, &device);
            let places: Vec<_> = all_ranges(&allocator).iter().map(|one| (one.memory, one.offset, one.size)).collect();
            let overlaps = |pair: &[(u64, u64, u64)]| pair[0].0 == pair[1].0 && pair[0].1 + pair[0].2 > pair[1].1;
            assert!(!places.windows(2).any(overlaps));
        }
    }
    allocator.statistics().pages_peak
}

#[test]
fn a_deeper_search_packs_no_worse() {
    let pages = |depth| (1..=10).map(|seed| churned(seed, depth)).sum::<u32>();
    let depths = [0, 4, 64, u32::MAX].map(|depth| pages(Some(depth)));
    assert!(depths.is_sorted_by(|more, fewer| more >= fewer), "{depths:?}");
    assert!(depths[0] > depths[3], "{depths:?}");
}

/// The smallest of the shared layouts, all flags together.
#[test]
fn flags_can_be_combined() {
    let device = device();
    let make = |memory: &DeviceLayout<'_>| layout::blocks(&AllocationSizes::default(), memory).unwrap();
    let allocator = over(&device, &[TYPE], &[Heap::new(G)], make, AllocatorOptions::default());
    let request = Request::new(M).within_budget().with_search_depth(8).aligned(4096);
    assert_eq!((request.search_depth(), request.is_within_budget(), request.never_grows()), (Some(8), true, false));
    allocator.allocate(&request.never_growing()).unwrap_err();
    let slice = place(&allocator, &request);
    assert_eq!(place(&allocator, &request.never_growing()).memory, slice.memory);
    let plain = Request::new(M);
    assert_eq!((plain.search_depth(), plain.is_within_budget(), plain.never_grows()), (None, false, false));
    assert!(!plain.is_dedicated() && plain.device_data().is_null());
    assert!(!plain.with_device_data(std::ptr::null_mut()).is_dedicated());
    assert!(plain.with_device_data(data()).is_dedicated());
}

/// However many nodes a pool has left: getting more of them is no reason to look elsewhere.
#[test]
fn a_request_that_must_not_grow_takes_a_page_of_twice_its_size_only_where_no_pool_serves_it_at_once() {
    for slices in 0..80 {
        let device = LedgerDevice::new();
        let pools = [
            PoolOptions::exclusive_pages(64 * K).with_granule(64),
            PoolOptions::sliced_pages(64 * K, 64 * K, None).with_granule(64),
        ];
        let allocator = Allocator::try_new(&device, &pools, AllocatorOptions::default()).unwrap();
        let large = allocator.allocate(&Request::new(832).in_pool(0)).unwrap();
        let in_use: Vec<_> = (0..=slices).map(|_| allocator.allocate(&Request::new(64).in_pool(1)).unwrap()).collect();
        allocator.free(large.id).unwrap();
        let slice = allocator.allocate(&Request::new(300).never_growing()).unwrap();
        assert_eq!(slice.memory, in_use[0].memory, "beside {slices} others");
    }
}
