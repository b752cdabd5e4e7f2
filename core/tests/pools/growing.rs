//! Pages that grow with what is held, and the list of pools that is made of them.

use crate::common::books::{Snapshot, assert_agree};
use crate::common::devices::{KEPT, LedgerDevice, NONE_LEFT};
use crate::common::pools::{allocate, capped, free_all, full, growing, options, over, place, sliced, touch};
use crate::common::random::Random;
use crate::common::{G, K, M};
use slicepool_core::layout::{self, Properties};
use slicepool_core::{
    Allocator, AllocatorOptions, DeviceFault, Error, MemoryType, PageGrowth, PoolOptions, Request, Slice,
};

/// An allocator with the adaptive list for a device with pages of any size.
fn adaptive(device: &LedgerDevice) -> Allocator<&LedgerDevice> {
    let pools = layout::adaptive(&Properties::new(u64::MAX)).unwrap();
    Allocator::try_new(device, &pools, AllocatorOptions::default()).unwrap()
}

// ---- how large a page is

/// Scenario 12.
#[test]
fn a_program_that_allocates_one_byte_takes_four_megabytes_at_most() {
    for (max_page, heap, page) in [
        (u64::MAX, u64::MAX, 4 * M),
        (128 * M, G, 4 * M),
        (128 * M, 0, 4 * M),
        (4 * M, 64 * M, 4 * M),
        (3 * M, u64::MAX, 3 * M),
        (1000, u64::MAX, 768),
    ] {
        let device = LedgerDevice::new();
        let pools = layout::adaptive(&Properties::new(max_page).with_heap_size(heap)).unwrap();
        let options = AllocatorOptions::default().with_memory_type(MemoryType::new(max_page, 4096));
        let allocator = Allocator::try_new(&device, &pools, options).unwrap();
        allocate(&allocator, 1);
        assert_eq!((device.sizes(), allocator.statistics().reserved), (vec![page], page));
        assert_agree(&allocator, &device);
    }
}

/// A megabyte that is first finds its page used by what is smaller.
#[test]
fn small_requests_have_pages_of_their_own_only_if_no_other_page_has_room() {
    let device = LedgerDevice::new();
    let allocator = adaptive(&device);
    let slices = |pool| allocator.pool_statistics(pool).unwrap().slices;
    allocate(&allocator, 64 * K + 1);
    allocate(&allocator, 1);
    assert_eq!((slices(0), slices(1), device.sizes()), (0, 2, vec![4 * M]));
    let device = LedgerDevice::new();
    let allocator = adaptive(&device);
    let slices = |pool| allocator.pool_statistics(pool).unwrap().slices;
    allocate(&allocator, 64 * K);
    allocate(&allocator, 64 * K + 1);
    allocate(&allocator, 64 * K);
    assert_eq!((slices(0), slices(1), device.sizes()), (2, 1, vec![4 * M, 4 * M]));
}

/// Never less than the first, never more than the largest; in between an eighth of what is held, and a sixty-fourth
/// beyond sixteen times the first. So what lies unused in the page that is being filled is little, and pages are few.
#[test]
fn pages_grow_with_what_is_held_up_to_the_largest() {
    for (pool, slice, end) in [
        (PoolOptions::growing_pages(4 * M, 256 * M), M, 8 * G),
        (PoolOptions::growing_pages(4 * M, 16 * M), M, G),
        (PoolOptions::growing_pages(64 * K, 2 * M), 16 * K, 128 * M),
        (PoolOptions::growing_pages(4 * K, 4 * K), K, M),
    ] {
        let device = LedgerDevice::new();
        let allocator = Allocator::try_new(&device, std::slice::from_ref(&pool), AllocatorOptions::default()).unwrap();
        let slicepool_core::PoolType::SlicedPages { page_size: first, .. } = pool.pool_type else { unreachable!() };
        let largest = pool.max_page_size.unwrap();
        for _ in 0..end / slice {
            allocate(&allocator, slice);
            let figures = allocator.statistics();
            // What does not make a whole slice at the end of a page is never used here.
            let unused = figures.free.saturating_sub(u64::from(figures.pages) * (slice - 1));
            assert!(unused <= first.max(figures.reserved / 8).min(largest), "{figures:?}");
        }
        let sizes = device.sizes();
        let mut held = 0;
        for &size in &sizes {
            let usual = (held / 8).min(16 * first).max(held / 64).max(first).min(largest);
            assert!(size >= first && size <= usual, "{size} after {held} bytes");
            assert!(size > usual - slice - first / 16, "{size} after {held} bytes");
            assert_eq!(size % 256, 0);
            held += size;
        }
        assert_agree(&allocator, &device);
    }
}

/// Seen here: an eighth of what is held was no multiple of the granule, and bytes were lost.
#[test]
fn every_page_is_a_multiple_of_the_granule() {
    for (granule, page) in [(256, 4 * K), (4 * K, 4 * K), (M, M), (4 * M, 4 * M), (1, 1000)] {
        let device = LedgerDevice::new();
        let pools = [PoolOptions::growing_pages(page, 1000 * page).with_granule(granule)];
        let allocator = Allocator::try_new(&device, &pools, AllocatorOptions::default()).unwrap();
        for _ in 0..200 {
            allocate(&allocator, page / 2 + 1);
            assert_agree(&allocator, &device);
        }
        assert!(device.sizes().iter().all(|size| size % granule == 0), "{granule}: {:?}", device.sizes());
        assert!(*device.sizes().last().unwrap() > page);
    }
}

#[test]
fn a_request_above_what_a_page_would_have_gets_its_own_size_rounded_up_to_a_sixteenth_of_the_smallest() {
    for (size, page) in [
        (1, M),
        (M, M),
        (M + 1, M + 64 * K),
        (2 * M, 2 * M),
        (2 * M + 1, 2 * M + 64 * K),
        (9 * M + 1, 9 * M + 64 * K),
        (127 * M + 1, 127 * M + 64 * K),
        (128 * M, 128 * M),
    ] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[growing(M, 4 * M)]);
        let slice = place(&allocator, size);
        assert_eq!((slice.offset, slice.size, device.sizes()), (0, size.next_multiple_of(32), vec![page]), "{size}");
        // What is left serves others.
        if slice.size < page {
            assert_eq!(place(&allocator, page - slice.size).memory, slice.memory);
        }
        assert_agree(&allocator, &device);
    }
}

#[test]
fn a_request_above_the_largest_page_of_those_that_double_gets_a_page_of_its_own_size() {
    let device = LedgerDevice::new();
    let mut pool = sliced(M, 64 * M, None);
    (pool.max_page_size, pool.page_growth) = (Some(4 * M), PageGrowth::Doubling);
    let allocator = over(&device, &[pool]);
    for size in [4 * M + 1, 4 * M, 9 * M] {
        allocate(&allocator, size);
    }
    assert_eq!(device.sizes(), [4 * M + 32, 4 * M, 9 * M]);
    assert_agree(&allocator, &device);
}

/// The device's largest page is no multiple of 2 MiB.
#[test]
fn no_page_is_larger_than_the_device_gives() {
    let device = LedgerDevice::new();
    let options = options().with_memory_type(MemoryType::new(9 * M + 100, 32));
    let allocator = Allocator::try_new(&device, &[growing(M, u64::MAX)], options).unwrap();
    for size in [8 * M + 1, 9 * M, 9 * M + 96] {
        allocate(&allocator, size);
        let page = size.next_multiple_of(64 * K).min(9 * M + 96);
        assert_eq!(device.sizes().last(), Some(&page));
    }
    for size in [9 * M + 97, 9 * M + 100, u64::MAX] {
        assert_eq!(allocator.allocate(&Request::new(size)), Err(Error::TooLarge { size, limit: 9 * M + 96 }));
    }
    for _ in 0..200 {
        allocate(&allocator, M);
    }
    assert!(device.sizes().iter().all(|&size| size <= 9 * M + 96));
    assert_agree(&allocator, &device);
}

#[test]
fn the_last_page_before_a_cap_has_what_is_left_and_the_cap_is_reached_exactly() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[capped(growing(M, 4 * M), 8 * M + 100)]);
    allocate(&allocator, 5 * M);
    assert_eq!(device.sizes(), [5 * M]);
    // 3 MiB and three units of 32 bytes are left.
    let refused = Err(full(3 * M + 97, 8 * M + 96, 5 * M, 0));
    assert_eq!(allocator.allocate(&Request::new(3 * M + 97)), refused);
    allocate(&allocator, 3 * M + 96);
    assert_eq!(device.sizes(), [5 * M, 3 * M + 96]);
    assert_eq!(allocator.allocate(&Request::new(1)), Err(full(1, 8 * M + 96, 8 * M + 96, 0)));
    assert_eq!(
        allocator.allocate(&Request::new(8 * M + 97)),
        Err(Error::TooLarge { size: 8 * M + 97, limit: 8 * M + 96 })
    );
    assert_eq!((allocator.statistics().reserved, device.bytes_peak()), (8 * M + 96, 8 * M + 96));
    assert_agree(&allocator, &device);
}

// ---- pages that hold nothing

#[test]
fn idle_pages_that_are_too_small_go_back_before_a_larger_one_is_taken() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[growing(M, 16 * M)]);
    let live = place(&allocator, M);
    let idle = [M, M, 4 * M].map(|size| place(&allocator, size));
    free_all(&allocator, &idle);
    assert_eq!((allocator.statistics().reserved, device.taken()), (7 * M, 0));
    allocate(&allocator, 5 * M);
    assert_eq!((device.taken(), allocator.statistics().reserved, device.bytes_peak()), (3, 6 * M, 7 * M));
    assert_eq!(allocator.get(live.id), Ok(live));
    assert_agree(&allocator, &device);
}

#[test]
fn no_more_idle_pages_go_back_than_the_new_one_has_bytes() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[growing(M, 16 * M)]);
    let idle = [M; 3].map(|size| place(&allocator, size));
    free_all(&allocator, &idle);
    allocate(&allocator, 2 * M);
    assert_eq!(device.sizes(), [M, M, M, 2 * M]);
    assert_eq!(idle.map(|slice| device.is_out(slice.memory)), [false, false, true]);
    assert_agree(&allocator, &device);
}

/// Scenario 1.
#[test]
fn an_idle_page_does_not_keep_a_larger_one_from_fitting_under_a_limit() {
    let device = LedgerDevice::new();
    device.limit_to(2 * M);
    let allocator = over(&device, &[growing(256, M)]);
    touch(&allocator, 256);
    allocate(&allocator, 2 * M);
    assert_eq!(device.sizes(), [256, 2 * M]);
    assert_agree(&allocator, &device);
    // The pool's own limit, of which the idle page is a part.
    let device = LedgerDevice::new();
    let allocator = over(&device, &[capped(growing(256, M), 1024)]);
    touch(&allocator, 256);
    allocate(&allocator, 1024);
    assert_eq!((device.sizes(), allocator.statistics().reserved), (vec![256, 1024], 1024));
    assert_agree(&allocator, &device);
}

/// Scenarios 2, 4 and 5: what has been freed does not count against a limit, and the limit can be reached.
#[test]
fn what_was_freed_does_not_keep_the_rest_from_fitting_under_a_limit() {
    for (limit, first, freed, then) in [
        (64 * M, vec![8 * M; 8], 0, vec![]),
        (64 * M, vec![8 * M; 8], 8, vec![32 * M; 2]),
        (64 * M, vec![32 * M; 2], 2, vec![8 * M; 8]),
        (G, vec![512 * M], 1, vec![768 * M]),
        (100 * M, vec![10 * M; 6], 3, vec![60 * M]),
        (100 * M, vec![30 * M; 2], 1, vec![60 * M]),
    ] {
        let device = LedgerDevice::new();
        device.limit_to(limit);
        let allocator = adaptive(&device);
        let slices: Vec<_> = first.iter().map(|&size| place(&allocator, size)).collect();
        free_all(&allocator, &slices[..freed]);
        for size in then {
            allocate(&allocator, size);
        }
        for slice in &slices[freed..] {
            assert_eq!(allocator.get(slice.id), Ok(*slice));
        }
        assert_agree(&allocator, &device);
    }
}

#[test]
fn an_idle_page_that_is_large_enough_serves_and_of_several_the_smallest() {
    let sizes = [2 * M, 4 * M, 8 * M, 16 * M];
    for first in 0..4 {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[growing(M, 16 * M)]);
        let slices = sizes.map(|size| place(&allocator, size));
        for i in 0..4 {
            allocator.free(slices[(first + i * 3) % 4].id).unwrap();
        }
        // No request finds room in what is left of a page that is used.
        for (size, index) in [(7 * M, 2), (3 * M, 1), (15 * M, 3), (3 * M / 2, 0)] {
            assert_eq!(place(&allocator, size).memory, slices[index].memory, "{size}");
        }
        assert_eq!((device.given(), device.taken()), (4, 0));
        assert_agree(&allocator, &device);
    }
}

#[test]
fn a_page_that_the_device_keeps_is_stuck_and_the_growth_goes_on() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[growing(M, 16 * M)]);
    free_all(&allocator, &[M, M].map(|size| place(&allocator, size)));
    device.keep_everything(true);
    allocate(&allocator, 2 * M);
    let figures = allocator.statistics();
    assert_eq!((figures.pages_stuck, figures.stuck, figures.pages), (2, 2 * M, 1));
    assert_eq!(device.deallocate_refused(), 2);
    assert_eq!(allocator.cleanup(), Err(Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT }));
    device.keep_everything(false);
    allocator.cleanup().unwrap();
    assert_eq!(allocator.statistics().reserved, 2 * M);
    assert_agree(&allocator, &device);
}

/// Nothing but idle pages is lost.
#[test]
fn a_growth_that_the_device_refuses_leaves_every_slice() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[growing(M, 16 * M)]);
    let live = [M / 2, M].map(|size| place(&allocator, size));
    device.limit_to(2 * M);
    let before = Snapshot::of(&allocator);
    let refused = Error::OutOfDeviceMemory { size: 3 * M, code: NONE_LEFT };
    assert_eq!(allocator.allocate(&Request::new(3 * M)), Err(refused));
    assert_eq!(Snapshot::of(&allocator), before);
    assert_eq!(live.map(|slice| allocator.get(slice.id)), live.map(Ok));
    allocate(&allocator, M / 2);
    assert_agree(&allocator, &device);
}

// ---- whole programs

/// Scenario 6: one resource that is replaced by a larger one again and again.
#[test]
fn a_program_that_grows_step_by_step_holds_little_more_than_its_peak() {
    for (numerator, denominator) in [(21, 20), (5, 4), (3, 2), (2, 1)] {
        let device = LedgerDevice::new();
        let allocator = adaptive(&device);
        let mut size = M;
        let mut old = place(&allocator, size);
        while size < 2 * G {
            size = size * numerator / denominator;
            let new = place(&allocator, size);
            allocator.free(old.id).unwrap();
            old = new;
        }
        let figures = allocator.statistics();
        assert!(figures.reserved * 2 <= figures.in_use_peak * 3, "{figures:?}");
        assert_agree(&allocator, &device);
    }
}

/// Everything that is asked for stays.
#[test]
fn a_program_that_loads_more_and_more_wastes_at_most_a_quarter() {
    let mut random = Random::with_seed_or(6);
    let device = LedgerDevice::new();
    let allocator = adaptive(&device);
    while allocator.statistics().in_use < 4 * G {
        allocate(&allocator, random.scaled(64 * M));
        let figures = allocator.statistics();
        assert!(figures.reserved <= figures.in_use + figures.in_use / 4 + 12 * M, "{figures:?}");
    }
    assert!(device.given() < 300, "{} pages", device.given());
    assert_agree(&allocator, &device);
}

/// The first frame shows what the others need; what it begins with too small may be replaced in the second.
#[test]
fn frames_call_the_device_no_more_once_they_are_all_alike() {
    let mut random = Random::with_seed_or(13);
    for largest in [100 * K, 6 * M, 40 * M] {
        let device = LedgerDevice::new();
        let allocator = adaptive(&device);
        let sizes: Vec<_> = (0..40).map(|_| random.scaled(largest)).collect();
        let mut settled = 0;
        for frame in 0..1000 {
            let slices: Vec<_> = sizes.iter().map(|&size| place(&allocator, size)).collect();
            free_all(&allocator, &slices);
            if frame == 5 {
                settled = device.calls();
            }
        }
        assert_eq!(device.calls(), settled, "frames of up to {largest} bytes");
        let figures = allocator.statistics();
        assert!(figures.reserved <= figures.in_use_peak * 3 / 2 + 8 * M, "{figures:?}");
        assert_agree(&allocator, &device);
    }
}

/// A program that has become small gives back what it does not need any more.
#[test]
fn what_is_not_used_any_more_goes_back_after_some_thousand_allocations() {
    let device = LedgerDevice::new();
    let allocator = adaptive(&device);
    let slices: Vec<_> = (0..100).map(|_| place(&allocator, 10 * M)).collect();
    free_all(&allocator, &slices);
    assert!(device.bytes() >= 1000 * M);
    for _ in 0..20_000 + 100 {
        touch(&allocator, 10 * K);
    }
    // One page of those it had is enough now.
    assert_eq!((device.pages(), device.bytes()), (1, 10 * M));
    assert_agree(&allocator, &device);
}

/// All sizes at once, watched by the books.
#[test]
fn a_life_of_random_sizes_keeps_the_books_balanced() {
    let mut random = Random::with_seed_or(3);
    for pool in [growing(4 * K, M), capped(growing(K, 256 * K), 9 * M), growing(M, M)] {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool.with_dealloc_period(Some(200))]);
        let mut live: Vec<Slice> = Vec::new();
        for operation in 0..20_000 {
            // Much and little by turns, so that pages grow too old.
            if operation % 1000 == 0 {
                free_all(&allocator, &std::mem::take(&mut live));
            }
            let most = if operation / 1000 % 2 == 0 { 60 } else { 1 };
            if live.len() > most || (!live.is_empty() && random.below(5) < 2) {
                allocator.free(random.take(&mut live).id).unwrap();
            } else if let Ok(slice) = allocator.allocate(&Request::new(random.within(1, 600 * K))) {
                assert!(slice.offset + slice.size <= 4 * M);
                live.push(slice);
            }
            if operation % 200 == 0 {
                assert_agree(&allocator, &device);
            }
        }
        free_all(&allocator, &live);
        assert_eq!(allocator.statistics().free_ranges, allocator.statistics().pages);
        assert!(device.taken() > 10, "{} pages went back", device.taken());
        assert_agree(&allocator, &device);
    }
}
