//! What fits is served, what was freed merges, and what does not fit is refused at a known price.

use crate::common::books::{assert_agree, ranges};
use crate::common::devices::LedgerDevice;
use crate::common::lock::WatchedLock;
use crate::common::random::Random;
use crate::common::{G, K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Error, MemoryType, PoolOptions, Request, SliceId, Space, SpaceOptions, SpacePiece,
    SpaceSlice,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

fn space(size: u64, granule: u64) -> Space {
    Space::try_new(SpaceOptions::new(size).with_granule(granule)).unwrap()
}

/// Allocates without alignment and returns handle and offset.
fn place(space: &mut Space, size: u64) -> (SliceId, u64) {
    let slice = space.allocate(size, 1).unwrap();
    (slice.id, slice.offset)
}

/// Panics unless the whole space is one free piece and all counters say so.
fn assert_one_hole(space: &Space) {
    assert_eq!(space.check(), Ok(()));
    let figures = space.statistics();
    let pieces: Vec<_> = space.pieces().collect();
    assert_eq!(pieces, [SpacePiece { id: None, offset: 0, size: figures.size }]);
    assert_eq!((figures.in_use, figures.padding, figures.free), (0, 0, figures.size));
    assert_eq!((figures.slices, figures.free_ranges, figures.largest_free_bound), (0, 1, figures.size));
    assert_eq!(space.largest_free(), figures.size);
}

fn full(size: u64, capacity: u64, in_use: u64, largest_free: u64) -> Error {
    Error::PoolCapacityExceeded { size, capacity, in_use, pending: 0, largest_free, growths_in_flight: 0 }
}

// ---- what fits

/// Scenario 21: sizes between two classes.
#[test]
fn a_request_between_two_size_classes_fits_where_there_is_room() {
    let mut one = space(699_050, 1);
    assert_eq!(place(&mut one, 664_908).1, 0);
    assert_eq!(one.largest_free(), 699_050 - 664_908);

    let mut two = space(324, 1);
    place(&mut two, 255);
    assert_eq!(two.largest_free(), 69);
    assert_eq!(place(&mut two, 67).1, 255);
    assert_eq!(two.largest_free(), 2);
}

/// Scenario 21: the same, where the room is a hole and not the untouched end.
#[test]
fn a_request_between_two_size_classes_fits_into_a_hole_of_its_own_class() {
    for (size, request) in [(699_050, 664_908), (69, 67), (69, 69), (65, 65), (1025, 1024), (u32::MAX.into(), 1 << 31)]
    {
        let mut space = space(u64::from(u32::MAX), 1);
        let hole = place(&mut space, size.min(u64::from(u32::MAX) - 1));
        let rest = space.largest_free();
        place(&mut space, rest);
        space.free(hole.0).unwrap();
        assert_eq!(place(&mut space, request).1, 0, "{request} in a hole of {size}");
        assert_eq!(space.check(), Ok(()));
    }
}

/// Scenario 21: room for n slices means n.
#[test]
fn room_for_n_slices_means_n() {
    for n in [1, 2, 3, 8] {
        let mut space = space(n * 100, 1);
        let ids: Vec<_> = (0..n).map(|_| place(&mut space, 100).0).collect();
        assert_eq!(space.allocate(100, 1), Err(full(100, n * 100, n * 100, 0)));
        assert_eq!(space.statistics().slices, n as u32);
        for id in ids {
            space.free(id).unwrap();
        }
        assert_one_hole(&space);

        let device = LedgerDevice::new();
        let pools = [PoolOptions::sliced_pages(1024, 1024, Some(n * 1024))];
        let allocator = Allocator::try_new(&device, &pools, AllocatorOptions::default()).unwrap();
        for _ in 0..n {
            allocator.allocate(&Request::new(1024)).unwrap();
        }
        let refused = allocator.allocate(&Request::new(1));
        assert_eq!(refused, Err(full(1, n * 1024, n * 1024, 0)));
        assert_eq!((allocator.statistics().slices, device.pages()), (n as u32, n));
    }
}

/// Scenario 22, its first half.
#[test]
fn three_slices_freed_in_any_order_leave_one_hole() {
    let mut space = space(50_331_648, 2);
    let a = place(&mut space, 576);
    let b = place(&mut space, 648);
    space.free(a.0).unwrap();
    let c = place(&mut space, 720);
    assert_eq!((a.1, b.1, c.1), (0, 576, 1224));
    assert_eq!(space.statistics().free_ranges, 2);
    for id in [b.0, c.0] {
        space.free(id).unwrap();
    }
    assert_one_hole(&space);
}

/// An independent opinion of what lies where.
#[derive(Default)]
struct Oracle {
    /// Size and handle of every live slice, by offset.
    live: BTreeMap<u64, (u64, SliceId)>,
}

impl Oracle {
    fn add(&mut self, slice: &SpaceSlice, size: u64) {
        let end = slice.offset.checked_add(slice.size).expect("a slice ends within 64 bits");
        assert!(end <= size);
        if let Some((&offset, &(before, _))) = self.live.range(..=slice.offset).next_back() {
            assert!(offset + before <= slice.offset, "{slice:?} overlaps what begins at {offset}");
        }
        if let Some((&offset, _)) = self.live.range(slice.offset..).next() {
            assert!(end <= offset, "{slice:?} overlaps what begins at {offset}");
        }
        self.live.insert(slice.offset, (slice.size, slice.id));
    }

    fn fits(&self, size: u64, alignment: u64, space: u64) -> bool {
        let fits_between = |start: u64, end: u64| {
            let place = u128::from(start).next_multiple_of(u128::from(alignment));
            place + u128::from(size) <= u128::from(end)
        };
        let mut free_from = 0;
        for (&offset, &(held, _)) in &self.live {
            if fits_between(free_from, offset) {
                return true;
            }
            free_from = offset + held;
        }
        fits_between(free_from, space)
    }
}

/// `operations` random calls on a space of `size` units, watched by an oracle; then everything is freed.
fn exercise(size: u64, granule: u64, operations: u32, random: &mut Random) {
    let mut space = space(size, granule);
    let usable = size / granule * granule;
    let mut oracle = Oracle::default();
    let mut ids = Vec::new();
    for _ in 0..operations {
        let rather_free = if ids.len() > 60 { 3 } else { 2 };
        if !ids.is_empty() && random.below(5) < rather_free {
            let (id, offset) = random.take(&mut ids);
            assert_eq!(space.get(id).unwrap().offset, offset);
            space.free(id).unwrap();
            assert_eq!(space.free(id), Err(Error::StaleHandle));
            oracle.live.remove(&offset);
            continue;
        }
        let request = if random.below(8) == 0 { random.within(1, usable) } else { random.scaled(usable) };
        let alignment = if random.below(2) == 0 { 1 } else { 1 << random.below(u64::from(size.ilog2()) + 1) };
        match space.allocate(request, alignment) {
            Ok(slice) => {
                assert!(slice.offset % alignment == 0 && slice.offset % granule == 0);
                assert_eq!(slice.size, request.next_multiple_of(granule));
                oracle.add(&slice, usable);
                ids.push((slice.id, slice.offset));
            }
            Err(error) => {
                let needed = request.div_ceil(granule).checked_mul(granule);
                let fits = needed.is_some_and(|needed| oracle.fits(needed, alignment.max(granule), usable));
                assert!(!fits, "size {size}: {request} at {alignment} would fit, but {error}");
            }
        }
    }
    assert_eq!(space.check(), Ok(()), "size {size}");
    assert_eq!(space.statistics().slices as usize, oracle.live.len());
    while !ids.is_empty() {
        space.free(random.take(&mut ids).0).unwrap();
    }
    assert_one_hole(&space);
}

/// Scenario 22, its second half: a million operations over spaces of 48M, 2^k - 1, 2^k and 2^k + 1 units up to 2^63.
/// Above 2^32 - 1 units the granule grows with the space.
#[test]
fn spaces_of_every_magnitude_neither_overlap_nor_refuse_what_fits() {
    let mut random = Random::with_seed_or(22);
    exercise(48 * M, 1, 5_000, &mut random);
    exercise(48 * M, 2, 5_000, &mut random);
    for k in 0..64u32 {
        let power = 1u64 << k;
        let sizes = [power - 1, power, power + 1];
        for size in sizes.into_iter().filter(|&size| size != 0) {
            // As finely as possible, and a little coarser.
            let finest = if size >> 32 == 0 { 1 } else { 1 << (k - 31) };
            for granule in [finest, finest * 4].into_iter().filter(|&granule| granule <= size.min(1 << 32)) {
                exercise(size, granule, 2_600, &mut random);
            }
        }
    }
}

/// The documented limits of a space.
#[test]
fn a_space_has_at_least_one_granule_and_fewer_than_two_to_the_32() {
    let refusal = |size, granule| Space::try_new(SpaceOptions::new(size).with_granule(granule)).err();
    for (size, granule) in [(0, 1), (255, 256), (1 << 32, 1), (u64::MAX, 1), (u64::MAX, 1 << 31)] {
        assert_eq!(refusal(size, granule), Some(Error::InvalidArgument { field: c"size", value: size }));
    }
    for granule in [0, 3, 1 << 33, u64::MAX] {
        assert_eq!(refusal(1000, granule), Some(Error::InvalidArgument { field: c"granule", value: granule }));
    }
    for (size, granule) in [(1, 1), (256, 256), ((1 << 32) - 1, 1), (u64::MAX, 1 << 32)] {
        let mut space = space(size, granule);
        let usable = size / granule * granule;
        assert_eq!(place(&mut space, usable).1, 0);
        assert_eq!(space.allocate(1, 1), Err(full(1, usable, usable, 0)));
    }
}

/// Scenario 23.
#[test]
fn a_space_has_no_hidden_margin() {
    let mut space = space(16 * M, 256);
    let place_aligned = |space: &mut Space, size| space.allocate(size, 256).map(|slice| (slice.id, slice.offset));
    place_aligned(&mut space, 8 * M).unwrap();
    let four = place_aligned(&mut space, 4 * M).unwrap();
    assert_eq!(four.1, 8 * M);
    assert_eq!(place_aligned(&mut space, 8 * M), Err(full(8 * M, 16 * M, 12 * M, 4 * M)));
    space.free(four.0).unwrap();
    assert_eq!(place_aligned(&mut space, 8 * M).map(|(_, offset)| offset), Ok(8 * M));
    assert_eq!(space.statistics().free, 0);

    let mut ten = Space::try_new(SpaceOptions::new(10 * M).with_granule(256)).unwrap();
    for i in 0..10 {
        assert_eq!(place_aligned(&mut ten, M).map(|(_, offset)| offset), Ok(i * M));
    }
    assert_eq!(ten.allocate(1, 1), Err(full(1, 10 * M, 10 * M, 0)));
}

/// Scenario 24.
#[test]
fn halving_the_newest_slice_of_a_full_space_again_and_again_never_fails() {
    let mut space = space(1 << 11, 1);
    let (mut newest, mut size) = (place(&mut space, 1 << 11), 1 << 11);
    for _ in 0..11 {
        space.free(newest.0).unwrap();
        size /= 2;
        place(&mut space, size);
        newest = place(&mut space, size);
        assert_eq!((space.statistics().free, space.check()), (0, Ok(())));
        assert_eq!(space.allocate(1, 1), Err(full(1, 1 << 11, 1 << 11, 0)));
    }
    assert_eq!((size, space.statistics().slices), (1, 12));
}

/// Scenario 25, with the 4 GiB freed before and after B is placed.
#[test]
fn the_largest_hole_is_not_broken_when_a_smaller_one_serves() {
    for freed_first in [true, false] {
        let mut space = space(8 * G, 256);
        let a = place(&mut space, G);
        let big = place(&mut space, 4 * G);
        if freed_first {
            space.free(big.0).unwrap();
            assert_eq!(place(&mut space, G).1, G);
        } else {
            assert_eq!(place(&mut space, G).1, 5 * G);
            space.free(big.0).unwrap();
        }
        space.free(a.0).unwrap();
        assert_eq!(place(&mut space, G).1, 0);
        place(&mut space, 4 * G);
        assert_eq!((space.statistics().in_use, space.check()), (6 * G, Ok(())));
    }
}

/// Scenario 25: among holes of several classes the smallest that serves is taken.
#[test]
fn of_holes_of_different_classes_the_smallest_that_serves_is_taken() {
    let mut space = space(64 * M, 256);
    let mut holes = Vec::new();
    for size in [8 * M, 2 * M, 4 * M, M, 16 * M] {
        holes.push((size, place(&mut space, size)));
        place(&mut space, 256);
    }
    for (_, (id, _)) in &holes {
        space.free(*id).unwrap();
    }
    holes.sort_by_key(|&(size, _)| size);
    for &(size, (_, offset)) in &holes {
        assert_eq!(place(&mut space, size - 300).1, offset, "{size}");
    }
    assert_eq!(space.check(), Ok(()));
}

// ---- refusals

/// A full pool of one page with `holes` holes of `size` bytes, in which nothing else is free.
fn perforated<'a>(device: &'a LedgerDevice, lock: &WatchedLock, holes: u64, size: u64) -> Allocator<&'a LedgerDevice> {
    let bytes = holes * 2 * size;
    let pools = [PoolOptions::sliced_pages(bytes, bytes, Some(bytes)).with_granule(1)];
    let options = AllocatorOptions::default().with_lock(lock.kind());
    let allocator = Allocator::try_new(device, &pools, options).unwrap();
    let ids: Vec<_> = (0..holes * 2).map(|_| allocator.allocate(&Request::new(size)).unwrap().id).collect();
    for id in ids.iter().step_by(2) {
        allocator.free(*id).unwrap();
    }
    let figures = allocator.statistics();
    assert_eq!((u64::from(figures.free_ranges), figures.free, figures.in_use), (holes, holes * size, holes * size));
    allocator
}

/// How often the lock is taken, and how long it takes at best, to refuse `request`.
fn price_of_refusal(allocator: &Allocator<&LedgerDevice>, lock: &WatchedLock, request: u64) -> (u64, Duration) {
    let mut best = Duration::MAX;
    let before = lock.taken();
    let rounds = 50;
    for _ in 0..rounds {
        let start = Instant::now();
        let refused = allocator.allocate(&Request::new(request));
        best = best.min(start.elapsed());
        assert!(matches!(refused, Err(Error::PoolCapacityExceeded { .. })), "{refused:?}");
    }
    ((lock.taken() - before) / rounds, best)
}

/// Scenario 26: holes of smaller classes. Constant time: as many lock holds, and about as long.
#[test]
fn a_refusal_does_not_walk_through_holes_of_smaller_classes() {
    let price = |holes, size, request| {
        let (device, lock) = (LedgerDevice::new(), WatchedLock::new());
        let allocator = perforated(&device, &lock, holes, size);
        let price = price_of_refusal(&allocator, &lock, request);
        let error = full(request, holes * 2 * size, holes * size, size);
        assert_eq!(allocator.allocate(&Request::new(request)), Err(error));
        assert_eq!(allocator.largest_free(), size);
        assert_eq!(allocator.would_fit(&Request::new(request)), Ok(false));
        price
    };
    for (size, request) in [(1, 2), (64, 66), (100, 1000)] {
        let (few_locks, few) = price(1_000, size, request);
        let (many_locks, many) = price(100_000, size, request);
        assert_eq!(few_locks, many_locks);
        assert!(many_locks <= 7, "{many_locks} lock holds");
        // A walk would take a hundred times as long.
        assert!(many <= 20 * few + Duration::from_micros(20), "{many:?} with 10^5 holes, {few:?} with 10^3");
    }
}

/// Scenario 26: holes of the request's own class. One walk, 64 entries per lock hold.
#[test]
fn a_refusal_walks_once_through_the_holes_of_its_own_class() {
    let holes = 100_000;
    let (device, lock) = (LedgerDevice::new(), WatchedLock::new());
    // Sizes 64 and 65 have one class.
    let allocator = perforated(&device, &lock, holes, 64);
    let (locks, _) = price_of_refusal(&allocator, &lock, 65);
    let walk = holes / 64;
    assert!(locks >= walk && locks <= walk + 10, "{locks} lock holds for {holes} holes");
    assert_eq!(allocator.allocate(&Request::new(65)), Err(full(65, holes * 128, holes * 64, 64)));
    assert_agree(&allocator, &device);
    lock.assert_used_rightly();
}

/// Scenario 26: the walk finds the one hole that serves, wherever it is in the list.
#[test]
fn the_one_hole_among_many_of_its_class_that_serves_is_found() {
    let holes = 10_000;
    for wanted in [0, 1, 63, 64, 65, 5_000, holes - 1] {
        let (device, lock) = (LedgerDevice::new(), WatchedLock::new());
        let bytes = holes * 128 + 1;
        let pools = [PoolOptions::sliced_pages(bytes, bytes, Some(bytes)).with_granule(1)];
        let options = AllocatorOptions::default().with_lock(lock.kind());
        let allocator = Allocator::try_new(&device, &pools, options).unwrap();
        let slices: Vec<_> = (0..holes * 2)
            .map(|i| allocator.allocate(&Request::new(if i == wanted * 2 { 65 } else { 64 })).unwrap())
            .collect();
        for slice in slices.iter().step_by(2) {
            allocator.free(slice.id).unwrap();
        }
        assert_eq!(allocator.largest_free(), 65);
        assert_eq!(allocator.would_fit(&Request::new(65)), Ok(true));
        let slice = allocator.allocate(&Request::new(65)).unwrap();
        assert_eq!(slice.offset, slices[wanted as usize * 2].offset);
        assert_eq!(allocator.largest_free(), 64);
        assert_eq!(allocator.would_fit(&Request::new(65)), Ok(false));
        assert_eq!(allocator.check(), Ok(()));
    }
}

/// Scenario 26: the bound in the error is one, the query is exact.
#[test]
fn the_error_carries_a_bound_and_the_query_the_exact_largest_hole() {
    let mut space = space(100_000, 1);
    // The class of these sizes is the highest of all; the first entry of its list is not the largest.
    let holes = [2048, 2060, 2111, 2050];
    let mut ids = Vec::new();
    for size in holes {
        ids.push(place(&mut space, size).0);
        place(&mut space, 1);
    }
    let rest = space.largest_free();
    place(&mut space, rest);
    for id in ids {
        space.free(id).unwrap();
    }
    assert_eq!(space.largest_free(), 2111);
    let Err(Error::PoolCapacityExceeded { largest_free, .. }) = space.allocate(3000, 1) else {
        panic!("nothing has 3000 units");
    };
    assert!((2048..=2111).contains(&largest_free));
    assert_eq!(space.statistics().largest_free_bound, largest_free);
    // The bound can be had.
    place(&mut space, largest_free);
}

// ---- merging

/// Scenario 27.
#[test]
fn a_mix_of_alignments_freed_in_random_order_leaves_one_hole_and_all_counters_at_zero() {
    let mut random = Random::with_seed_or(27);
    let device = LedgerDevice::new();
    let pools = [PoolOptions::sliced_pages(G, G, Some(G)).with_granule(1)];
    let options = AllocatorOptions::default().with_memory_type(MemoryType::new(G, 64 * K));
    let allocator = Allocator::try_new(&device, &pools, options).unwrap();
    let mut live = Vec::new();
    for operation in 0..100_000 {
        let alignment = 1 << random.below(17);
        let slice = allocator.allocate(&Request::new(random.scaled(100_000)).aligned(alignment)).unwrap();
        assert!(slice.offset % alignment == 0 && slice.address % alignment == 0);
        live.push(slice.id);
        if live.len() > 1000 {
            allocator.free(random.take(&mut live)).unwrap();
        }
        if operation % 10_000 == 0 {
            assert_agree(&allocator, &device);
        }
    }
    while !live.is_empty() {
        allocator.free(random.take(&mut live)).unwrap();
    }
    let left: Vec<_> = ranges(&allocator).iter().map(|range| (range.id, range.offset, range.size)).collect();
    assert_eq!(left, [(None, 0, G)]);
    let figures = allocator.statistics();
    assert_eq!((figures.in_use, figures.padding, figures.slices, figures.pages_idle), (0, 0, 0, 1));
    assert_eq!((figures.free, figures.free_ranges, figures.largest_free_bound), (G, 1, G));
    assert_agree(&allocator, &device);
}

/// Scenario 28.
#[test]
fn a_pool_of_four_pages_is_filled_exactly_and_one_free_makes_exactly_one_hole() {
    let device = LedgerDevice::new();
    let pools = [PoolOptions::sliced_pages(25 * M, 25 * M, Some(100 * M)).with_granule(4)];
    let allocator = Allocator::try_new(&device, &pools, AllocatorOptions::default()).unwrap();
    let ids: Vec<_> = (0..100).map(|_| allocator.allocate(&Request::new(M)).unwrap().id).collect();
    assert_eq!(device.sizes(), [25 * M; 4]);
    assert_eq!(allocator.allocate(&Request::new(M)), Err(full(M, 100 * M, 100 * M, 0)));
    assert_eq!(allocator.statistics().free_ranges, 0);
    allocator.free(ids[57]).unwrap();
    let holes: Vec<_> = ranges(&allocator).into_iter().filter(|range| range.id.is_none()).collect();
    assert_eq!(holes.iter().map(|hole| (hole.offset, hole.size)).collect::<Vec<_>>(), [(7 * M, M)]);
    assert_eq!((allocator.largest_free(), allocator.statistics().free), (M, M));
    let too_large = Error::TooLarge { size: 25 * M + 4, limit: 25 * M };
    assert_eq!(allocator.allocate(&Request::new(25 * M + 4)), Err(too_large));
    assert_agree(&allocator, &device);
}
