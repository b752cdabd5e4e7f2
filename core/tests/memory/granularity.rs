//! Linear and optimal resources: never on one range of the device's granularity, in whatever order they come and go.

use crate::common::memory::{Heaps, Over, assert_whole, over, own, place};
use crate::common::random::Random;
use crate::common::{G, K, M};
use slicepool_core::layout::PoolList;
use slicepool_core::{
    AllocationSizes, Allocator, AllocatorOptions, DeviceLayout, Error, EventKind, Heap, MemoryType, OwnPages,
    PoolKinds, PoolOptions, Request, ResourceKind, Slice, layout,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const KINDS: [ResourceKind; 2] = [ResourceKind::Linear, ResourceKind::Optimal];

fn of_granularity(bytes: u64) -> MemoryType {
    MemoryType::new(u64::MAX, 64 * K).with_granularity(bytes)
}

fn blocks(memory: &DeviceLayout<'_>) -> PoolList {
    layout::blocks(&AllocationSizes::new(4 * M, 4 * M).with_max_device_memblock_size(16 * M), memory).unwrap()
}

fn adaptive(memory: &DeviceLayout<'_>) -> PoolList {
    layout::adaptive_types(memory).unwrap()
}

/// One pool for both kinds.
fn plain(options: PoolOptions) -> PoolList {
    let mut pools = PoolList::new();
    pools.push(&options).unwrap();
    pools
}

fn sliced(_: &DeviceLayout<'_>) -> PoolList {
    plain(PoolOptions::sliced_pages(M, M, None).with_granule(32).with_dealloc_period(Some(1000)))
}

fn growing(_: &DeviceLayout<'_>) -> PoolList {
    plain(PoolOptions::growing_pages(256 * K, 4 * M))
}

type Make = fn(&DeviceLayout<'_>) -> PoolList;

const LISTS: [(&str, Make); 4] = [("blocks", blocks), ("adaptive", adaptive), ("sliced", sliced), ("growing", growing)];

fn with<'a>(device: &'a Heaps, granularity: u64, make: Make) -> Over<'a> {
    let options = AllocatorOptions::default().with_dedicated_when_too_large();
    over(device, &[of_granularity(granularity)], &[Heap::new(8 * G)], make, options)
}

/// What every byte of every page holds, as far as that matters: slices by where they begin, which do not overlap, and for
/// the ranges of the granularity in which they begin and end, how many of either kind do so. (Those in between are one
/// slice's.)
struct Map {
    granularity: u64,
    slices: HashMap<u64, BTreeMap<u64, u64>>,
    touched: HashMap<(u64, u64), [u32; 2]>,
}

impl Map {
    fn new(granularity: u64) -> Self {
        Self { granularity, slices: HashMap::new(), touched: HashMap::new() }
    }

    fn change(&mut self, slice: &Slice, kind: ResourceKind, change: impl Fn(&mut u32)) {
        let ends = [slice.offset, slice.offset + slice.size - 1].map(|offset| offset / self.granularity);
        for range in BTreeSet::from(ends) {
            let counts = self.touched.entry((slice.memory, range)).or_default();
            change(&mut counts[kind as usize]);
            assert!(counts.contains(&0), "{slice:?} of kind {kind:?} shares a range of the granularity with another");
        }
    }

    fn enter(&mut self, slice: &Slice, kind: ResourceKind) {
        let page = self.slices.entry(slice.memory).or_default();
        let before = page.range(..=slice.offset).next_back();
        assert!(before.is_none_or(|(offset, size)| offset + size <= slice.offset), "{slice:?} overlaps");
        let after = page.range(slice.offset..).next();
        assert!(after.is_none_or(|(offset, _)| slice.offset + slice.size <= *offset), "{slice:?} overlaps");
        page.insert(slice.offset, slice.size);
        self.change(slice, kind, |count| *count += 1);
    }

    fn leave(&mut self, slice: &Slice, kind: ResourceKind) {
        assert_eq!(self.slices.get_mut(&slice.memory).unwrap().remove(&slice.offset), Some(slice.size));
        self.change(slice, kind, |count| *count -= 1);
    }
}

/// Random slices of both kinds, as many as `most`, in an allocator of a list; how many pages went from one kind to the
/// other.
fn churn(granularity: u64, make: Make, random: &mut Random, operations: u32) -> usize {
    let device = Heaps::new(&[of_granularity(granularity)]);
    let allocator = with(&device, granularity, make);
    let (mut map, mut live, mut moved, mut most, mut linear) = (Map::new(granularity), Vec::new(), 0, 0, 0);
    for i in 0..operations {
        if i % 500 == 0 {
            // Between next to nothing, where pages become idle, and some pages full, mostly of one kind or of both.
            most = [3, 30, 300][random.below(3) as usize];
            linear = [1, 10, 19][random.below(3) as usize];
            assert_whole(&allocator, &device);
            moved += device.event_kinds().iter().filter(|kind| **kind == EventKind::PageMoved).count();
        }
        if live.len() > most || (!live.is_empty() && random.below(2) == 0) {
            let (slice, kind): (Slice, _) = random.take(&mut live);
            allocator.free(slice.id).unwrap();
            map.leave(&slice, kind);
            continue;
        }
        let kind = KINDS[usize::from(random.below(20) >= linear)];
        let request = Request::new(random.scaled(2 * M)).aligned(1 << random.below(17)).of_kind(kind);
        let request = if random.below(100) == 0 { request.dedicated() } else { request };
        let slice = place(&allocator, &request);
        map.enter(&slice, kind);
        live.push((slice, kind));
        // What is made larger or smaller in place keeps away from others too.
        if random.below(8) == 0 {
            if let Ok(resized) = allocator.try_resize(slice.id, random.scaled(256 * K)) {
                map.leave(&slice, kind);
                map.enter(&resized, kind);
                live.pop();
                live.push((resized, kind));
            }
        }
        if random.below(1000) == 0 {
            allocator.trim(random.below(8 * M)).unwrap();
        }
    }
    moved
}

#[test]
fn slices_of_different_kinds_never_share_a_range_of_the_granularity() {
    let mut random = Random::with_seed_or(0x9AA1);
    for (name, make) in LISTS {
        for granularity in [1, 64, 1024, 4096] {
            // Where the kinds have pages of their own, those that were emptied have served the other, sooner or later.
            let parted = granularity > 256 && ["blocks", "adaptive"].contains(&name);
            let rounds = (0..if parted { 100 } else { 1 }).map(|_| churn(granularity, make, &mut random, 8000));
            let moved = rounds.into_iter().find(|moved| *moved != 0);
            assert_eq!(moved.is_some(), parted, "{name}, {granularity}");
        }
    }
}

// ---- neighbours

fn ranges_of(slice: &Slice, granularity: u64) -> std::ops::RangeInclusive<u64> {
    slice.offset / granularity..=(slice.offset + slice.size - 1) / granularity
}

fn assert_apart(one: &Slice, other: &Slice, granularity: u64) {
    let (a, b) = (ranges_of(one, granularity), ranges_of(other, granularity));
    let apart = one.memory != other.memory || a.end() < b.start() || b.end() < a.start();
    assert!(apart, "{one:?} and {other:?} share a range of {granularity} bytes");
}

/// A hole between two of one kind, of which the second is freed first or last, and the other kind in its place: a
/// neighbour to the left and to the right. Of sizes that end within a range of the granularity, and begin within one.
#[test]
fn a_slice_of_the_other_kind_in_a_hole_keeps_away_from_its_left_and_its_right_neighbour() {
    for (name, make) in LISTS {
        for (granularity, kind) in [(1024, 0), (1024, 1), (4096, 0), (4096, 1)] {
            let (these, others) = (KINDS[kind], KINDS[1 - kind]);
            let device = Heaps::new(&[of_granularity(granularity)]);
            let allocator = with(&device, granularity, make);
            for size in [1, 256, granularity - 256, granularity, granularity + 256, 3 * granularity / 2] {
                let neighbours: Vec<_> =
                    (0..5).map(|_| place(&allocator, &Request::new(size).of_kind(these))).collect();
                allocator.free(neighbours[1].id).unwrap();
                allocator.free(neighbours[3].id).unwrap();
                for asked in [1, 256, size] {
                    let other = place(&allocator, &Request::new(asked).of_kind(others));
                    for neighbour in [0, 2, 4] {
                        assert_apart(&neighbours[neighbour], &other, granularity);
                    }
                    // Its like comes as close as it wants.
                    let like = place(&allocator, &Request::new(asked).of_kind(these));
                    assert_apart(&like, &other, granularity);
                    [like, other].iter().for_each(|slice| allocator.free(slice.id).unwrap());
                }
                [0, 2, 4].iter().for_each(|i| allocator.free(neighbours[*i].id).unwrap());
            }
            assert_eq!(allocator.statistics().slices, 0, "{name}");
        }
    }
}

/// In one pool for both, where a range of the granularity belongs to one slice: each comes right behind the other.
#[test]
fn a_pool_for_both_kinds_cuts_in_ranges_of_the_granularity() {
    let device = Heaps::new(&[of_granularity(1024)]);
    let allocator = with(&device, 1024, sliced);
    assert_eq!(allocator.pool_report(0).unwrap().options.granule, 1024);
    let place = |size, kind| place(&allocator, &Request::new(size).of_kind(kind));
    let left = place(100, ResourceKind::Linear);
    let hole = place(1500, ResourceKind::Linear);
    let right = place(100, ResourceKind::Linear);
    allocator.free(hole.id).unwrap();
    let between = place(1025, ResourceKind::Optimal);
    assert_eq!([left, between, right].map(|slice| (slice.offset, slice.size)), [(0, 1024), (1024, 2048), (3072, 1024)]);
    assert_eq!(left.memory, between.memory);
    // Where the kinds are parted no slice has to be so large.
    let device = Heaps::new(&[of_granularity(1024)]);
    let allocator = with(&device, 1024, blocks);
    let sizes: Vec<_> =
        (0..allocator.pool_count()).map(|i| allocator.pool_report(i).unwrap().options.granule).collect();
    assert_eq!(sizes, [256, 256]);
}

/// A pool for one kind refuses the other, by name or not.
#[test]
fn a_pool_for_one_kind_takes_no_other() {
    let device = Heaps::new(&[of_granularity(1024)]);
    let linear = |_: &DeviceLayout<'_>| plain(PoolOptions::sliced_pages(M, M, None).with_kinds(PoolKinds::Linear));
    let options = AllocatorOptions::default();
    let allocator = over(&device, &[of_granularity(1024)], &[Heap::new(G)], linear, options);
    place(&allocator, &Request::new(1));
    device.arm(true);
    let optimal = Request::new(1).of_kind(ResourceKind::Optimal);
    for request in [optimal, optimal.in_pool(0), optimal.never_growing()] {
        assert_eq!(allocator.allocate(&request), Err(Error::NotSupported { what: c"kind" }));
        assert_eq!(allocator.would_fit(&request), Err(Error::NotSupported { what: c"kind" }));
    }
    device.arm(false);
    // The last word counts.
    place(&allocator, &optimal.of_kind(ResourceKind::Linear));
}

/// Nobody shares their pages.
#[test]
fn pools_with_a_page_for_each_slice_take_both_kinds_whatever_they_are_told() {
    for pool in [PoolOptions::exclusive_pages(M), PoolOptions::direct(None)] {
        for kinds in [PoolKinds::Linear, PoolKinds::Optimal] {
            let device = Heaps::new(&[of_granularity(1024)]);
            let pools = |_: &DeviceLayout<'_>| plain(pool.clone().with_kinds(kinds));
            let options = AllocatorOptions::default();
            let allocator = over(&device, &[of_granularity(1024)], &[Heap::new(G)], pools, options);
            assert_eq!(allocator.pool_report(0).unwrap().options.kinds, PoolKinds::Both);
            for kind in KINDS {
                place(&allocator, &Request::new(1000).of_kind(kind));
            }
        }
    }
}

// ---- pages that change their kind

/// In both directions, and back again.
/// The pools of the other kind have nothing to say about that, whichever are asked first.
#[test]
fn a_request_that_is_too_large_is_told_so_whatever_its_kind() {
    let of_kind = |kinds| PoolOptions::sliced_pages(M, M, None).with_kinds(kinds);
    for kinds in [[PoolKinds::Linear, PoolKinds::Optimal], [PoolKinds::Optimal, PoolKinds::Linear]] {
        let options = AllocatorOptions::default().with_memory_type(of_granularity(64 * K));
        let allocator =
            Allocator::try_new(Heaps::new(&[of_granularity(64 * K)]), &kinds.map(of_kind), options).unwrap();
        for kind in KINDS {
            let refused = allocator.allocate(&Request::new(M + 1).of_kind(kind));
            assert_eq!(refused, Err(Error::TooLarge { size: M + 1, limit: M }), "{kind:?} of {kinds:?}");
        }
    }
}

#[test]
fn a_page_that_was_emptied_serves_the_other_kind_without_a_device_call() {
    for (name, make, pools) in [("blocks", blocks as Make, [0, 1]), ("adaptive", adaptive, [1, 3])] {
        for first in [0, 1] {
            let device = Heaps::new(&[of_granularity(4096)]);
            let allocator = with(&device, 4096, make);
            let ask = |kind: usize| place(&allocator, &Request::new(M).of_kind(KINDS[kind]));
            let slice = ask(first);
            allocator.free(slice.id).unwrap();
            let (calls, page) = (device.ledger.calls(), device.ledger.bytes());
            let mut kind = first;
            for _ in 0..4 {
                device.events();
                kind = 1 - kind;
                let other = ask(kind);
                assert_eq!((other.memory, device.ledger.calls()), (slice.memory, calls), "{name}");
                let events = device.events();
                assert_eq!(events.len(), 1, "{events:?}");
                let event = events[0];
                assert_eq!((event.kind, event.pool as usize), (EventKind::PageMoved, pools[kind]));
                assert_eq!((event.memory, event.size, event.memory_type), (slice.memory, page, 0));
                let held = pools.map(|pool| allocator.pool_statistics(pool).unwrap());
                assert_eq!((held[kind].pages, held[kind].reserved, held[kind].slices), (1, page, 1));
                let before = &held[1 - kind];
                assert_eq!((before.pages, before.reserved, before.free, before.leaving), (0, 0, 0, 0));
                // It was never more than one, whichever pool had it.
                let figures = allocator.statistics();
                assert_eq!((figures.pages_peak, figures.reserved_peak), (1, page));
                assert_eq!((figures.device_allocations, figures.device_deallocations), (1, 0));
                assert_whole(&allocator, &device);
                allocator.free(other.id).unwrap();
            }
            allocator.trim(0).unwrap();
            assert_eq!(device.ledger.pages(), 0);
            assert_whole(&allocator, &device);
        }
    }
}

/// One slice of a page is enough.
#[test]
fn a_page_in_use_keeps_its_kind() {
    for (name, make) in [("blocks", blocks as Make), ("adaptive", adaptive)] {
        let device = Heaps::new(&[of_granularity(1024)]);
        let allocator = with(&device, 1024, make);
        let linear = [place(&allocator, &Request::new(M)), place(&allocator, &Request::new(256 * K))];
        allocator.free(linear[0].id).unwrap();
        device.asked();
        let optimal = place(&allocator, &Request::new(K * 256).of_kind(ResourceKind::Optimal));
        assert_ne!(optimal.memory, linear[1].memory, "{name}");
        assert_eq!(device.asked().len(), 1);
        assert!(!device.event_kinds().contains(&EventKind::PageMoved));
        assert_whole(&allocator, &device);
    }
}

/// The ladder counts both kinds, and a page that moves once.
#[test]
fn the_ladder_goes_on_where_a_page_has_moved() {
    let device = Heaps::new(&[of_granularity(1024)]);
    let allocator = with(&device, 1024, blocks);
    let ask = |kind| place(&allocator, &Request::new(4 * M).of_kind(kind));
    let slice = ask(ResourceKind::Linear);
    allocator.free(slice.id).unwrap();
    ask(ResourceKind::Optimal);
    assert_eq!(device.asked_sizes(), [4 * M]);
    ask(ResourceKind::Linear);
    assert_eq!(device.asked_sizes(), [8 * M]);
    (0..3).for_each(|_| _ = ask(ResourceKind::Optimal));
    assert_eq!(device.asked_sizes(), [16 * M]);
    assert_whole(&allocator, &device);
}

/// Too small for what is asked; persistent and dedicated ones are for their own.
#[test]
fn a_page_that_does_not_hold_the_request_stays_where_it_is() {
    let device = Heaps::new(&[of_granularity(1024)]);
    let allocator = with(&device, 1024, blocks);
    let slice = place(&allocator, &Request::new(M));
    allocator.free(slice.id).unwrap();
    let optimal = |size| Request::new(size).of_kind(ResourceKind::Optimal);
    let dedicated = place(&allocator, &optimal(M).dedicated());
    assert_ne!(dedicated.memory, slice.memory);
    let large = place(&allocator, &optimal(5 * M));
    assert_ne!(large.memory, slice.memory);
    assert!(!device.event_kinds().contains(&EventKind::PageMoved));
    assert_eq!(own(&allocator, OwnPages::Dedicated, 0).unwrap().pages, 1);
    assert_whole(&allocator, &device);
}

#[test]
fn what_never_grows_finds_idle_pages_of_the_other_kind_and_would_fit_foresees_that() {
    let device = Heaps::new(&[of_granularity(1024)]);
    let allocator = with(&device, 1024, blocks);
    let slice = place(&allocator, &Request::new(M));
    allocator.free(slice.id).unwrap();
    let optimal = Request::new(M).of_kind(ResourceKind::Optimal);
    device.arm(true);
    assert_eq!((allocator.would_fit(&optimal), allocator.would_grow(&optimal)), (Ok(true), Ok(false)));
    assert_eq!(place(&allocator, &optimal.never_growing()).memory, slice.memory);
    device.arm(false);
}

/// In the dry run a page of one kind has come to serve the other; under the caps of the plan it does so again.
#[test]
fn a_plan_fits_where_pages_have_moved() {
    let types = [of_granularity(4096)];
    let memory = DeviceLayout::new(&types, &[]);
    let sizes = AllocationSizes::new(4 * M, 4 * M).with_max_device_memblock_size(16 * M);
    let device = Heaps::new(&types);
    let calls = |allocator: &Over<'_>| {
        let optimal = |size| Request::new(size).of_kind(ResourceKind::Optimal);
        let first = allocator.allocate(&Request::new(3 * M)).unwrap();
        allocator.free(first.id).unwrap();
        for request in [optimal(3 * M), optimal(8 * M), Request::new(3 * M)] {
            allocator.allocate(&request).unwrap();
        }
    };
    let pools = layout::blocks(&sizes, &memory).unwrap();
    let options = AllocatorOptions::default().with_dry_run();
    let dry = Allocator::with_memory_types(&device, &memory, &pools, options).unwrap();
    calls(&dry);
    let plan: Vec<_> = (0..dry.pool_count()).map(|pool| dry.pool_report(pool).unwrap().plan()).collect();
    let real = Allocator::with_memory_types(&device, &memory, &plan, AllocatorOptions::default()).unwrap();
    calls(&real);
    for pool in 0..plan.len() {
        let peak = |allocator: &Over<'_>| allocator.pool_statistics(pool).unwrap().reserved_peak;
        assert_eq!(peak(&real), peak(&dry), "{pool}");
    }
}

#[test]
fn a_batch_that_is_refused_leaves_pages_that_were_held() {
    let device = Heaps::new(&[of_granularity(1024)]);
    let allocator = with(&device, 1024, blocks);
    let slice = place(&allocator, &Request::new(M));
    allocator.free(slice.id).unwrap();
    let optimal = Request::new(M).of_kind(ResourceKind::Optimal);
    let refused = allocator.allocate_many(&[optimal, Request::new(16 * G)]).map(|_| ()).unwrap_err();
    assert_eq!((refused.index, refused.error), (1, Error::TooLarge { size: 16 * G, limit: 8 * G }));
    assert_whole(&allocator, &device);
    assert_eq!((device.ledger.pages(), device.ledger.taken()), (1, 0));
}

// ---- where the kinds need not be parted

#[test]
fn where_the_granularity_is_no_more_than_the_granule_one_pool_serves_both_kinds() {
    for (granularity, atom, parted) in [
        (1, 1, false),
        (64, 1, false),
        (256, 1, false),
        (512, 1, true),
        (512, 512, false),
        (4096, 2048, true),
        (4096, 4096, false),
        (1 << 20, 1, true),
    ] {
        let types = [of_granularity(granularity).with_non_coherent_atom(atom)];
        let heaps = [Heap::new(8 * G)];
        let memory = DeviceLayout::new(&types, &heaps);
        for (make, per_kind) in [(blocks as Make, 1), (adaptive, 2)] {
            let kinds: Vec<_> = make(&memory).iter().map(|pool| pool.kinds).collect();
            let expected = match parted {
                true => [PoolKinds::Linear, PoolKinds::Optimal].map(|kind| vec![kind; per_kind]).concat(),
                false => vec![PoolKinds::Both; per_kind],
            };
            assert_eq!(kinds, expected, "{granularity}, {atom}");
        }
        let counts = (layout::block_pool_count(&memory), layout::adaptive_pool_count(&memory));
        assert_eq!(counts, if parted { (2, 4) } else { (1, 2) });
        let device = Heaps::new(&types);
        let options = AllocatorOptions::default();
        let allocator = over(&device, &types, &heaps, blocks, options);
        let slices = KINDS.map(|kind| place(&allocator, &Request::new(M).of_kind(kind)));
        assert_eq!(slices[0].memory == slices[1].memory, !parted, "{granularity}, {atom}");
        assert_eq!(device.asked().len(), if parted { 2 } else { 1 });
    }
}
