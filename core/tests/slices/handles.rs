//! Handles and misuse, and slices that change their size.

use crate::common::books::{Snapshot, assert_agree, ranges};
use crate::common::devices::{KEPT, LedgerDevice};
use crate::common::pools::KINDS;
use crate::common::random::Random;
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, BatchError, Device, DeviceFault, Error, LiveSlices, PoolOptions, Request, Slice,
    SliceId, Space, SpaceOptions,
};

fn over<'a>(device: &'a LedgerDevice, pools: &[PoolOptions]) -> Allocator<&'a LedgerDevice> {
    Allocator::try_new(device, pools, AllocatorOptions::default()).unwrap()
}

fn place<D: Device>(allocator: &Allocator<D>, size: u64) -> Slice {
    allocator.allocate(&Request::new(size)).unwrap()
}

fn pool(page_size: u64) -> PoolOptions {
    PoolOptions::sliced_pages(page_size, page_size, None)
}

// ---- handles

/// Scenario 34.
#[test]
fn a_second_free_is_refused_and_does_not_free_what_came_after() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(M)]);
    let first = place(&allocator, 1000);
    let neighbour = place(&allocator, 1000);
    allocator.free(first.id).unwrap();
    let before = Snapshot::of(&allocator);
    assert_eq!(allocator.free(first.id), Err(Error::StaleHandle));
    assert_eq!(Snapshot::of(&allocator), before);

    let bigger = place(&allocator, 5000);
    let before = Snapshot::of(&allocator);
    assert_eq!(allocator.free(first.id), Err(Error::StaleHandle));
    assert_eq!(allocator.get(first.id), Err(Error::StaleHandle));
    assert_eq!(allocator.try_resize(first.id, 10), Err(Error::StaleHandle));
    assert_eq!(Snapshot::of(&allocator), before);
    assert_eq!((allocator.get(neighbour.id), allocator.get(bigger.id)), (Ok(neighbour), Ok(bigger)));
    assert!(bigger.offset >= neighbour.offset + neighbour.size);
    assert_agree(&allocator, &device);
}

/// Scenario 34: every handle a slot ever had.
#[test]
fn freed_handle_is_refused_after_its_slot_is_reused() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(4096)]);
    let mut old: Vec<SliceId> = Vec::new();
    for _ in 0..2_000 {
        // The page has room for one slice, so slots are used again and again.
        let slice = place(&allocator, 4096);
        assert!(!old.contains(&slice.id));
        for id in old.iter().rev().take(3).chain(old.first()) {
            assert_eq!(allocator.free(*id), Err(Error::StaleHandle));
            assert_eq!(allocator.get(*id), Err(Error::StaleHandle));
        }
        assert_eq!(allocator.get(slice.id), Ok(slice));
        allocator.free(slice.id).unwrap();
        old.push(slice.id);
    }
    let slots = old.iter().map(|id| id.to_raw() & 0xFF_FFFF).collect::<std::collections::HashSet<_>>().len();
    assert!(slots < 10, "{slots} slots");
    assert_eq!(device.given(), 1);
}

/// Scenario 35.
#[test]
fn the_slice_of_the_middle_page_resolves_to_the_same_memory_after_a_cleanup() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(4096)]);
    let slices = [(); 3].map(|()| place(&allocator, 4096));
    allocator.free(slices[0].id).unwrap();
    allocator.free(slices[2].id).unwrap();
    allocator.cleanup().unwrap();
    assert_eq!(allocator.get(slices[1].id), Ok(slices[1]));
    assert_eq!((device.pages(), device.is_out(slices[1].memory)), (1, true));
    // New pages take the place of the old ones and do not disturb it.
    let more = [(); 3].map(|()| place(&allocator, 4096));
    assert!(more.iter().all(|slice| slice.memory != slices[1].memory));
    assert_eq!(allocator.get(slices[1].id), Ok(slices[1]));
    assert_agree(&allocator, &device);
}

/// Scenario 37: another allocator, in both directions.
#[test]
fn a_handle_of_another_allocator_is_foreign_and_changes_nothing() {
    let device = LedgerDevice::new();
    let one = over(&device, &[pool(M), pool(4 * M)]);
    let other = over(&device, &[pool(M), pool(4 * M)]);
    let mine = [place(&one, 100), place(&one, 2 * M)];
    let theirs = [place(&other, 100), place(&other, 2 * M)];
    let before = (Snapshot::of(&one), Snapshot::of(&other));
    for (allocator, slices) in [(&one, theirs), (&other, mine)] {
        for slice in slices {
            assert_eq!(allocator.free(slice.id), Err(Error::ForeignHandle));
            assert_eq!(allocator.get(slice.id), Err(Error::ForeignHandle));
            assert_eq!(allocator.try_resize(slice.id, 1), Err(Error::ForeignHandle));
            assert_eq!(allocator.free_many(&[slice.id]), Err(BatchError { index: 0, error: Error::ForeignHandle }));
        }
    }
    assert_eq!((Snapshot::of(&one), Snapshot::of(&other)), before);
    drop(other);
    for slice in theirs {
        assert_eq!(one.free(slice.id), Err(Error::ForeignHandle));
    }
    // Allocators that come later do not take an old one's place.
    let later = over(&device, &[pool(M), pool(4 * M)]);
    place(&later, 100);
    for slice in theirs.iter().chain(&mine) {
        assert_eq!(later.free(slice.id), Err(Error::ForeignHandle));
    }
}

/// Scenario 37: a space, in both directions.
#[test]
fn handles_of_spaces_and_allocators_are_foreign_to_each_other() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(M)]);
    let mut one = Space::try_new(SpaceOptions::new(1000)).unwrap();
    let mut other = Space::try_new(SpaceOptions::new(1000)).unwrap();
    let slice = place(&allocator, 100);
    let ids = [one.allocate(10, 1).unwrap().id, other.allocate(10, 1).unwrap().id];
    assert_eq!(one.free(ids[1]), Err(Error::ForeignHandle));
    assert_eq!(other.get(ids[0]), Err(Error::ForeignHandle));
    assert_eq!(one.free(slice.id), Err(Error::ForeignHandle));
    assert_eq!(one.try_resize(slice.id, 5), Err(Error::ForeignHandle));
    for id in ids {
        assert_eq!(allocator.free(id), Err(Error::ForeignHandle));
    }
    one.free(ids[0]).unwrap();
    other.free(ids[1]).unwrap();
    assert_eq!((one.largest_free(), other.largest_free()), (1000, 1000));
    assert_agree(&allocator, &device);
}

/// Random numbers are refused.
#[test]
fn numbers_that_are_nobodys_handles_are_refused() {
    let mut random = Random::with_seed_or(37);
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(M)]);
    let slices: Vec<_> = (0..100).map(|_| place(&allocator, 1000)).collect();
    let before = Snapshot::of(&allocator);
    assert_eq!(SliceId::from_raw(0), None);
    let known: Vec<_> = slices.iter().map(|slice| slice.id.to_raw()).collect();
    let near = known.iter().flat_map(|&raw| (0..64).map(move |bit| raw ^ (1 << bit)));
    let far = (0..10_000).map(|_| random.any());
    for raw in near.chain(far).chain([1, u64::MAX, u64::MAX << 24]) {
        let Some(id) = SliceId::from_raw(raw).filter(|id| !known.contains(&id.to_raw())) else { continue };
        assert!(matches!(allocator.free(id), Err(Error::ForeignHandle | Error::StaleHandle)), "{raw:x}");
        assert!(allocator.get(id).is_err());
    }
    assert_eq!(Snapshot::of(&allocator), before);
    for slice in slices {
        assert_eq!(allocator.get(slice.id), Ok(slice));
        allocator.free(slice.id).unwrap();
    }
    assert_agree(&allocator, &device);
}

/// Only the id is trusted: what else stands in a slice is for the caller.
#[test]
fn an_edited_copy_of_a_slice_frees_what_its_handle_names() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(M)]);
    let mut slice = place(&allocator, 1000);
    let other = place(&allocator, 1000);
    (slice.offset, slice.size, slice.memory) = (other.offset, u64::MAX, other.memory + 9);
    allocator.free(slice.id).unwrap();
    assert_eq!(allocator.get(other.id), Ok(other));
    assert_agree(&allocator, &device);
}

/// Scenario 37: destroy refused.
#[test]
fn after_destroy_answers_busy_every_handle_works_as_before() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(4096), pool(M)]);
    let slices = [100, 3000, 200_000].map(|size| place(&allocator, size));
    let freed = place(&allocator, 10);
    allocator.free(freed.id).unwrap();
    let before = Snapshot::of(&allocator);
    let busy = Error::Busy { live: 3, pending: 0, in_use: 203_100, in_flight: 0 };
    assert_eq!(allocator.can_destroy(slicepool_core::LiveSlices::Refuse), Err(busy));
    assert_eq!(allocator.can_destroy(slicepool_core::LiveSlices::Free), Ok(()));
    let Err((allocator, error)) = allocator.destroy() else { panic!("slices are live") };
    assert_eq!(error, busy);
    assert_eq!(Snapshot::of(&allocator), before);
    for slice in slices {
        assert_eq!(allocator.get(slice.id), Ok(slice));
    }
    assert_eq!(allocator.free(freed.id), Err(Error::StaleHandle));
    for (i, slice) in slices.iter().enumerate() {
        allocator.free(slice.id).unwrap();
        assert_eq!(allocator.free(slice.id), Err(Error::StaleHandle));
        assert_eq!(allocator.can_destroy(slicepool_core::LiveSlices::Refuse).is_ok(), i == 2);
    }
    assert_agree(&allocator, &device);
    assert!(allocator.destroy().is_ok());
    assert_eq!((device.pages(), device.given(), device.taken()), (0, 2, 2));
}

/// Closing by force frees what is live, once and for all.
#[test]
fn closing_by_force_frees_live_slices_and_returns_their_pages() {
    close_by_force(&[pool(4096), pool(M)]);
    for (_, kind) in KINDS {
        close_by_force(&[kind, pool(M)]);
    }
}

fn close_by_force(pools: &[PoolOptions]) {
    let device = LedgerDevice::new();
    let allocator = over(&device, pools);
    let slices: Vec<_> = (0..100).map(|i| place(&allocator, 1 + i * 500)).collect();
    let in_use = slices.iter().enumerate().map(|(i, _)| 1 + i as u64 * 500).sum();
    let busy = Error::Busy { live: 100, pending: 0, in_use, in_flight: 0 };
    assert_eq!(allocator.close(LiveSlices::Refuse), Err(busy));
    assert_agree(&allocator, &device);
    // The device refuses at first: nothing is lost, the slices are gone.
    device.keep_everything(true);
    let refused = Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT };
    assert_eq!(allocator.close(LiveSlices::Free), Err(refused));
    assert_eq!((allocator.statistics().slices, allocator.statistics().pages), (0, 0));
    assert_agree(&allocator, &device);
    device.keep_everything(false);
    assert_eq!(allocator.close(LiveSlices::Free), Ok(()));
    for slice in slices {
        assert_eq!(allocator.free(slice.id), Err(Error::StaleHandle));
    }
    assert_eq!((device.pages(), device.given()), (0, device.taken()));
    assert_agree(&allocator, &device);
}

// ---- resizing in place

/// Growing into the hole behind, into the untouched end, and shrinking again.
#[test]
fn a_slice_grows_into_what_is_free_behind_it_and_shrinks_again() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(64 * K)]);
    let [a, b, c] = [1000, 2000, 3000].map(|size| place(&allocator, size));
    let sizes =
        || -> Vec<(bool, u64)> { ranges(&allocator).iter().map(|range| (range.id.is_some(), range.size)).collect() };
    let (rest, no_room) = (64 * K - 6144, |size, available| Err(Error::NoRoom { size, available }));
    assert_eq!(sizes(), [(true, 1024), (true, 2048), (true, 3072), (false, rest)]);

    // Within its granules, a slice always can.
    assert_eq!(allocator.try_resize(a.id, 1024), Ok(a));
    assert_eq!((allocator.statistics().in_use, allocator.statistics().padding), (6024, 120));
    assert_eq!(allocator.try_resize(a.id, 1025), no_room(1025, 1024));
    // Into part of a hole, then all of it.
    allocator.free(b.id).unwrap();
    assert_eq!(allocator.try_resize(a.id, 1025), Ok(Slice { size: 1280, ..a }));
    assert_eq!(sizes(), [(true, 1280), (false, 1792), (true, 3072), (false, rest)]);
    assert_eq!(allocator.try_resize(a.id, 3073), no_room(3073, 3072));
    assert_eq!(allocator.try_resize(a.id, 3072), Ok(Slice { size: 3072, ..a }));
    assert_eq!(sizes(), [(true, 3072), (true, 3072), (false, rest)]);
    assert_agree(&allocator, &device);
    // Shrinking makes a hole, shrinking further enlarges it.
    assert_eq!(allocator.try_resize(a.id, 2000), Ok(Slice { size: 2048, ..a }));
    assert_eq!(sizes(), [(true, 2048), (false, 1024), (true, 3072), (false, rest)]);
    assert_eq!(allocator.try_resize(a.id, 1), Ok(Slice { size: 256, ..a }));
    assert_eq!(sizes(), [(true, 256), (false, 2816), (true, 3072), (false, rest)]);
    assert_agree(&allocator, &device);
    // Into the untouched end and out of it again.
    assert_eq!(allocator.try_resize(c.id, 64 * K - 3072 + 1), no_room(64 * K - 3071, 64 * K - 3072));
    assert_eq!(allocator.try_resize(c.id, 64 * K - 3072), Ok(Slice { size: 64 * K - 3072, ..c }));
    assert_eq!(sizes(), [(true, 256), (false, 2816), (true, 64 * K - 3072)]);
    assert_agree(&allocator, &device);
    assert_eq!(allocator.try_resize(c.id, 3000), Ok(c));
    assert_eq!(sizes(), [(true, 256), (false, 2816), (true, 3072), (false, rest)]);
    assert_eq!(allocator.get(c.id), Ok(c));

    assert_eq!(allocator.try_resize(b.id, 10), Err(Error::StaleHandle));
    let before = Snapshot::of(&allocator);
    assert_eq!(allocator.try_resize(c.id, 64 * K + 1), Err(Error::TooLarge { size: 64 * K + 1, limit: 64 * K }));
    assert_eq!(Snapshot::of(&allocator), before);
    for id in [a.id, c.id] {
        allocator.free(id).unwrap();
    }
    assert_eq!(sizes(), [(false, 64 * K)]);
    assert_eq!(device.calls(), 1);
    assert_agree(&allocator, &device);
}

/// The last slice of a page that is not the newest has a hole behind it, or nothing.
#[test]
fn a_slice_never_grows_over_the_end_of_its_page() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(4096)]);
    let first = place(&allocator, 3000);
    let second = place(&allocator, 4096);
    assert_eq!(allocator.try_resize(first.id, 4096), Ok(Slice { size: 4096, ..first }));
    assert_eq!(allocator.try_resize(first.id, 3000), Ok(first));
    assert_eq!(allocator.try_resize(second.id, 256).map(|slice| slice.size), Ok(256));
    assert_eq!(place(&allocator, 3840).memory, second.memory);
    assert_eq!(allocator.try_resize(second.id, 257), Err(Error::NoRoom { size: 257, available: 256 }));
    assert_agree(&allocator, &device);
}

/// Resizing among random neighbours, watched by the books.
#[test]
fn slices_that_change_their_size_at_random_keep_the_books_balanced() {
    let mut random = Random::with_seed_or(41);
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(64 * K)]);
    let mut live: Vec<Slice> = Vec::new();
    let mut resized = [0; 2];
    for operation in 0..30_000 {
        match random.below(4) {
            0 if live.len() < 60 => live.push(place(&allocator, random.scaled(8 * K))),
            1 if !live.is_empty() => allocator.free(random.take(&mut live).id).unwrap(),
            _ if !live.is_empty() => {
                let index = random.below(live.len() as u64) as usize;
                let old = live[index];
                let size = random.scaled(12 * K);
                match allocator.try_resize(old.id, size) {
                    Ok(new) => {
                        assert_eq!(new, Slice { size: size.next_multiple_of(256), ..old });
                        resized[usize::from(new.size > old.size)] += 1;
                        live[index] = new;
                    }
                    Err(error) => {
                        let Error::NoRoom { size: asked, available } = error else { panic!("{error}") };
                        assert!(asked == size && available >= old.size && available < size);
                        // What is available can be had.
                        if random.below(2) == 0 {
                            live[index] = allocator.try_resize(old.id, available).unwrap();
                        }
                    }
                }
                assert_eq!(allocator.get(old.id), Ok(live[index]));
            }
            _ => {}
        }
        if operation % 100 == 0 {
            assert_agree(&allocator, &device);
        }
    }
    assert!(resized.iter().all(|&count| count > 500), "{resized:?}");
    for slice in live {
        allocator.free(slice.id).unwrap();
    }
    assert_eq!(allocator.statistics().free_ranges, allocator.statistics().pages);
    assert_agree(&allocator, &device);
}
