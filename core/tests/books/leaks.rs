//! Nothing grows for ever and nothing is called for nothing.

use crate::common::books::{assert_agree, ranges};
use crate::common::devices::LedgerDevice;
use crate::common::host::HostLedger;
use crate::common::random::Random;
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Device, Error, MemoryType, PoolOptions, Request, SliceId, Space, SpaceOptions,
};
use std::collections::VecDeque;
use std::fmt::Debug;

fn over(device: &LedgerDevice, page_size: u64) -> Allocator<&LedgerDevice> {
    let pools = [PoolOptions::sliced_pages(page_size, page_size, None)];
    Allocator::try_new(device, &pools, AllocatorOptions::default()).unwrap()
}

fn allocate<D: Device>(allocator: &Allocator<D>, size: u64) -> SliceId {
    allocator.allocate(&Request::new(size)).unwrap().id
}

/// Scenario 13.
#[test]
fn frames_that_cross_a_page_border_call_the_device_in_the_first_frame_only() {
    let page = 4 * M;
    for parts in [2, 3, 6, 24] {
        let device = LedgerDevice::new();
        let allocator = over(&device, page);
        for frame in 0..1000 {
            let ids: Vec<_> = (0..parts).map(|_| allocate(&allocator, page * 3 / 2 / parts)).collect();
            for id in ids {
                allocator.free(id).unwrap();
            }
            assert_eq!((device.given(), device.taken()), (2, 0), "{parts} slices, frame {frame}");
        }
        assert_agree(&allocator, &device);
    }
}

/// Scenario 14.
#[test]
fn a_million_frames_of_five_equal_slices_keep_the_metadata_constant() {
    let host = HostLedger::new();
    let device = LedgerDevice::new();
    let pools = [PoolOptions::sliced_pages(M, M, None)];
    let allocator =
        Allocator::try_new(&device, &pools, AllocatorOptions::default().with_memory(host.memory())).unwrap();
    let mut settled = None;
    for frame in 0..1_000_000 {
        let ids = [(); 5].map(|()| allocate(&allocator, 100 * K));
        for id in ids {
            allocator.free(id).unwrap();
        }
        if frame % 1000 == 0 {
            let now = (allocator.statistics().metadata, host.bytes(), host.calls(), device.calls());
            assert_eq!(now, *settled.get_or_insert(now), "frame {frame}");
        }
    }
    assert_eq!(device.calls(), 1);
    assert_agree(&allocator, &device);
}

/// Scenario 15.
#[test]
fn a_loop_of_varying_sizes_with_three_megabytes_live_stops_growing_after_its_warm_up() {
    let mut random = Random::with_seed_or(15);
    let host = HostLedger::new();
    let device = LedgerDevice::new();
    let pools = [PoolOptions::sliced_pages(M, M, None)];
    let allocator =
        Allocator::try_new(&device, &pools, AllocatorOptions::default().with_memory(host.memory())).unwrap();
    // More slices than ever again: what follows can need no more nodes.
    let many: Vec<_> = (0..1000).map(|_| allocate(&allocator, 256)).collect();
    for id in many {
        allocator.free(id).unwrap();
    }
    let (mut live, mut bytes) = (Vec::new(), 0);
    let mut settled = None;
    for round in 0..1_000_000 {
        let size = random.within(1, 16 * K);
        while bytes + size > 3 * M {
            let (id, size) = random.take(&mut live);
            allocator.free(id).unwrap();
            bytes -= size;
        }
        live.push((allocate(&allocator, size), size));
        bytes += size;
        if round == 200_000 {
            settled = Some((allocator.statistics().metadata, device.bytes(), device.calls(), host.calls()));
        }
    }
    let figures = allocator.statistics();
    assert_eq!(settled, Some((figures.metadata, device.bytes(), device.calls(), host.calls())));
    assert!(figures.in_use_peak <= 3 * M);
    assert!(device.bytes_peak() <= 4 * M, "{} bytes for 3 MiB", device.bytes_peak());
    assert_agree(&allocator, &device);
}

/// Scenario 16.
#[test]
fn a_million_transient_slices_of_which_a_thousand_live_call_the_device_in_the_warm_up_only() {
    let mut random = Random::with_seed_or(16);
    for equal in [true, false] {
        let device = LedgerDevice::new();
        let allocator = over(&device, 4 * M);
        let mut live = VecDeque::new();
        let mut settled = None;
        for round in 0..1_000_000 {
            if live.len() == 1000 {
                allocator.free(live.pop_front().unwrap()).unwrap();
            }
            let size = if equal { 4000 } else { random.within(1, 8000) };
            live.push_back(allocate(&allocator, size));
            if round == 50_000 {
                settled = Some((allocator.statistics().metadata, device.calls()));
            }
        }
        assert_eq!(settled, Some((allocator.statistics().metadata, device.calls())), "equal: {equal}");
        assert!(device.bytes() <= 8 * M);
        assert_agree(&allocator, &device);
    }
}

/// One sequence of 5,000 allocations and 5,000 frees; returns where everything was placed, page by page.
fn play(allocator: &Allocator<&LedgerDevice>, random: &mut Random, largest: u64) -> Vec<(u64, u64)> {
    let (mut live, mut places) = (Vec::new(), Vec::new());
    while places.len() < 5000 {
        if live.len() > 200 || (!live.is_empty() && random.below(5) < 2) {
            allocator.free(random.take(&mut live)).unwrap();
        } else {
            let request = Request::new(random.scaled(largest)).aligned(1 << random.below(13));
            let slice = allocator.allocate(&request).unwrap();
            places.push((slice.memory, slice.offset));
            live.push(slice.id);
        }
    }
    while !live.is_empty() {
        allocator.free(random.take(&mut live)).unwrap();
    }
    places
}

/// Compares without printing thousands of places.
fn assert_same<T: PartialEq + Debug>(places: &[T], first: &[T], round: u32) {
    if let Some(i) = (0..first.len()).find(|&i| places.get(i) != first.get(i)) {
        panic!("round {round}: allocation {i} is at {:?} instead of {:?}", places.get(i), first[i]);
    }
    assert_eq!(places.len(), first.len());
}

/// Scenario 17: in one page.
#[test]
fn the_same_calls_after_everything_was_freed_give_the_same_offsets() {
    let device = LedgerDevice::new();
    let allocator = over(&device, 64 * M);
    let seed = Random::with_seed_or(17).any();
    let first = play(&allocator, &mut Random::from(seed), 256 * K);
    for round in 1..3 {
        assert_same(&play(&allocator, &mut Random::from(seed), 256 * K), &first, round);
    }
    assert_eq!(device.given(), 1);
    assert_agree(&allocator, &device);
}

/// Scenario 17: in several pages, which are given back in between.
#[test]
fn the_same_calls_after_a_cleanup_give_the_same_offsets_in_the_same_pages() {
    let device = LedgerDevice::new();
    let allocator = over(&device, M);
    let seed = Random::with_seed_or(18).any();
    let mut first: Option<Vec<(u64, u64)>> = None;
    for round in 0..3 {
        let given = device.given();
        // Handles of this device are consecutive numbers.
        let places: Vec<_> = play(&allocator, &mut Random::from(seed), 256 * K)
            .into_iter()
            .map(|(memory, offset)| (memory - given, offset))
            .collect();
        allocator.cleanup().unwrap();
        assert_eq!(device.pages(), 0);
        assert_same(&places, first.get_or_insert_with(|| places.clone()), round);
    }
}

/// Scenario 17: the same in a nutshell. Two holes of one size in two pages: the one in the older page is taken, also
/// when pages were given back before, in whatever order.
#[test]
fn of_two_equal_holes_the_one_in_the_older_page_is_taken_also_after_a_cleanup() {
    let device = LedgerDevice::new();
    let allocator = over(&device, 4096);
    for _ in 0..2 {
        let slices = [256, 3840, 256, 3840].map(|size| allocator.allocate(&Request::new(size)).unwrap());
        allocator.free(slices[0].id).unwrap();
        allocator.free(slices[2].id).unwrap();
        let again = allocator.allocate(&Request::new(256)).unwrap();
        assert_eq!(again.memory, slices[0].memory);
        for slice in [again, slices[1], slices[3]] {
            allocator.free(slice.id).unwrap();
        }
        allocator.cleanup().unwrap();
    }
}

/// Scenario 17: in several pages that are kept.
#[test]
fn the_same_calls_in_pages_that_were_kept_give_the_same_offsets() {
    let device = LedgerDevice::new();
    let allocator = over(&device, M);
    let seed = Random::with_seed_or(18).any();
    let first = play(&allocator, &mut Random::from(seed), 256 * K);
    for round in 1..3 {
        assert_same(&play(&allocator, &mut Random::from(seed), 256 * K), &first, round);
    }
}

/// Scenario 17: the same in a nutshell. The untouched end of a page is used last; a page that was kept is to be as
/// untouched as it was at first.
#[test]
fn a_page_that_was_kept_is_cut_as_it_was_when_it_was_new() {
    let device = LedgerDevice::new();
    let allocator = over(&device, 4096);
    for round in 0..2 {
        let place = |size| allocator.allocate(&Request::new(size)).unwrap();
        let (a, b) = (place(2048), place(1024));
        allocator.free(a.id).unwrap();
        let (c, d) = (place(1024), place(4096));
        assert_eq!([a.offset, b.offset, c.offset, d.offset], [0, 2048, 0, 0], "round {round}");
        for slice in [b, c, d] {
            allocator.free(slice.id).unwrap();
        }
    }
}

/// Scenario 17: a space that is cleared is as new.
#[test]
fn the_same_calls_after_a_clear_give_the_same_offsets() {
    let seed = Random::with_seed_or(19).any();
    let mut space = Space::try_new(SpaceOptions::new(M)).unwrap();
    let mut first: Option<Vec<u64>> = None;
    for round in 0..3 {
        let mut random = Random::from(seed);
        let (mut live, mut offsets) = (Vec::new(), Vec::new());
        for _ in 0..10_000 {
            if !live.is_empty() && random.below(2) == 0 {
                space.free(random.take(&mut live)).unwrap();
            } else if let Ok(slice) = space.allocate(random.scaled(16 * K), 1 << random.below(10)) {
                offsets.push(slice.offset);
                live.push(slice.id);
            }
        }
        live.push(space.allocate(1, 1).unwrap().id);
        space.clear();
        assert_eq!(space.check(), Ok(()));
        assert_eq!(space.free(live[0]), Err(Error::StaleHandle));
        assert_same(&offsets, first.get_or_insert_with(|| offsets.clone()), round);
    }
}

/// Scenario 18.
#[test]
fn five_rounds_of_the_same_two_slices_call_the_device_once() {
    let device = LedgerDevice::new();
    // 1032 is 64.5 units of 16: each slice takes 1040, and both fill the page.
    let pools = [PoolOptions::sliced_pages(2080, 2080, None).with_granule(16)];
    let options = AllocatorOptions::default().with_memory_type(MemoryType::new(M, 16));
    let allocator = Allocator::try_new(&device, &pools, options).unwrap();
    for _ in 0..5 {
        let slices = [(); 2].map(|()| allocator.allocate(&Request::new(1032).aligned(16)).unwrap());
        assert_eq!(slices.map(|slice| (slice.offset, slice.size)), [(0, 1040), (1040, 1040)]);
        for slice in slices {
            allocator.free(slice.id).unwrap();
        }
        assert_agree(&allocator, &device);
    }
    assert_eq!(device.calls(), 1);
}

/// Scenario 20.
#[test]
fn trim_returns_every_page_that_holds_nothing_live_and_no_other() {
    let mut random = Random::with_seed_or(20);
    let device = LedgerDevice::new();
    let allocator = over(&device, M);
    let mut live = Vec::new();
    // The long-lived slice comes in the middle of the first big ones.
    for _ in 0..20 {
        live.push(allocate(&allocator, random.within(300 * K, 700 * K)));
    }
    let long = allocator.allocate(&Request::new(100)).unwrap();
    for _ in 0..2000 {
        allocator.free(random.take(&mut live)).unwrap();
        live.push(allocate(&allocator, random.within(300 * K, 700 * K)));
    }
    for id in live {
        allocator.free(id).unwrap();
    }
    assert!(device.pages() >= 10);
    allocator.trim(0).unwrap();
    assert_eq!((device.pages(), device.is_out(long.memory)), (1, true));
    let left: Vec<_> = ranges(&allocator).iter().filter(|range| range.id.is_some()).map(|range| range.size).collect();
    assert_eq!(left, [256]);
    assert_eq!(allocator.get(long.id), Ok(long));
    assert_agree(&allocator, &device);
}
