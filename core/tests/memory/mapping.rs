//! Memory that the CPU sees for a time.

use crate::common::devices::NONE_LEFT;
use crate::common::lock::{WatchedLock, yielding};
use crate::common::mapped::{Mapped, Visible, base_of};
use crate::common::pools::{KINDS, direct, options, place, sliced};
use crate::common::sums::{State, assert_held};
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, DeviceError, DeviceFault, Error, LiveSlices, LockKind, MemoryType, Point, PoolKinds,
    PoolOptions, Request, ResourceKind, Slice,
};
use std::sync::{Arc, OnceLock};

const NOT_MAPPED: Error = Error::InvalidArgument { field: c"map_count", value: 0 };

fn on_demand(pools: &[PoolOptions]) -> Arc<Allocator<Mapped>> {
    static LOCK: OnceLock<WatchedLock> = OnceLock::new();
    let lock = LOCK.get_or_init(WatchedLock::new);
    Mapped::under(Visible::OnDemand, pools, options().with_lock(lock.kind()))
}

fn map(allocator: &Allocator<Mapped>, slice: &Slice) -> Result<u64, Error> {
    allocator.map(slice.id).map(|at| at.addr() as u64)
}

/// Where a slice is mapped.
fn place_of(slice: &Slice) -> u64 {
    base_of(slice.memory) + slice.offset
}

// ---- counts

#[test]
fn pages_that_are_mapped_for_good_are_only_counted() {
    for (name, pool) in KINDS {
        let allocator = Mapped::under(Visible::Always, &[pool], options());
        let slices = [100, 5000].map(|size| place(&allocator, size));
        assert_eq!(allocator.unmap(slices[0].id), Err(NOT_MAPPED), "{name}");
        for slice in &slices {
            assert_eq!(slice.mapped.addr() as u64, place_of(slice), "{name}");
            assert_eq!(map(&allocator, slice), Ok(place_of(slice)), "{name}");
            assert_eq!(map(&allocator, slice), Ok(place_of(slice)), "{name}");
        }
        for slice in &slices {
            assert_eq!([(); 2].map(|()| allocator.unmap(slice.id)), [Ok(()); 2], "{name}");
        }
        assert_eq!(allocator.unmap(slices[1].id), Err(NOT_MAPPED), "{name}");
        assert_eq!(map(&allocator, &slices[1]), Ok(place_of(&slices[1])), "{name}");
        assert_eq!(allocator.device().calls(), (0, 0), "{name}");
        allocator.close(LiveSlices::Free).unwrap();
    }
}

#[test]
fn where_the_device_can_neither_map_nor_has_mapped_slices_are_not_mapped() {
    let allocator = Mapped::under(Visible::Never, &[sliced(M, M, None)], options());
    let slice = place(&allocator, 100);
    assert_eq!(allocator.map(slice.id), Err(Error::NotSupported { what: c"map" }));
    assert_eq!(allocator.unmap(slice.id), Err(NOT_MAPPED));
    assert_eq!(allocator.device().calls(), (0, 0));
}

#[test]
fn a_page_is_mapped_with_the_first_of_its_slices_and_unmapped_with_the_last() {
    let allocator = on_demand(&[sliced(64 * K, 64 * K, None)]);
    let slices: Vec<_> = (0..48).map(|i| place(&allocator, 2 * K + 32 * i)).collect();
    let pages = allocator.device().ledger.pages();
    assert!((2..10).contains(&pages));
    for _ in 0..3 {
        for slice in &slices {
            assert_eq!(map(&allocator, slice), Ok(place_of(slice)));
        }
    }
    assert_eq!((allocator.device().calls(), allocator.device().mapped() as u64), ((pages, 0), pages));
    let mut unmapped = 0;
    for (i, slice) in slices.iter().chain(&slices).chain(&slices).enumerate() {
        assert_eq!(allocator.unmap(slice.id), Ok(()));
        let left = slices.iter().chain(&slices).chain(&slices).skip(i + 1).any(|it| it.memory == slice.memory);
        if !left {
            assert_eq!(allocator.unmap(slice.id), Err(NOT_MAPPED));
        }
        unmapped += u64::from(!left);
        assert_eq!(allocator.device().calls(), (pages, unmapped));
    }
    assert_eq!((allocator.device().calls(), allocator.device().mapped()), ((pages, pages), 0));
    assert_eq!(map(&allocator, &slices[0]), Ok(place_of(&slices[0])));
    assert_eq!(allocator.device().calls(), (pages + 1, pages));
}

#[test]
fn slices_with_pages_of_their_own_are_mapped_like_others() {
    let allocator = on_demand(&[sliced(M, M, None)]);
    let data = std::ptr::without_provenance_mut(8);
    let request = Request::new(1000);
    for request in [request.persistent(), request.dedicated(), request.with_device_data(data)] {
        let slice = allocator.allocate(&request).unwrap();
        assert_eq!([(); 2].map(|()| map(&allocator, &slice)), [Ok(place_of(&slice)); 2]);
        assert_eq!([(); 3].map(|()| allocator.unmap(slice.id)), [Ok(()), Ok(()), Err(NOT_MAPPED)]);
        map(&allocator, &slice).unwrap();
        allocator.free(slice.id).unwrap();
        assert_eq!(
            (allocator.map(slice.id), allocator.unmap(slice.id)),
            (Err(Error::StaleHandle), Err(Error::StaleHandle))
        );
    }
    assert_eq!(allocator.device().calls(), (6, 3));
    allocator.cleanup().unwrap();
    assert_eq!((allocator.device().calls(), allocator.device().ledger.pages()), ((6, 6), 0));
}

#[test]
fn a_map_that_fails_leaves_the_count_as_it_was() {
    let allocator = on_demand(&[sliced(M, M, None)]);
    let slice = place(&allocator, 100);
    let failed = |fault, code| Error::DeviceFailed { fault, code };
    for (answer, error) in [
        (Err(DeviceError::OutOfMemory(NONE_LEFT)), Error::OutOfDeviceMemory { size: M, code: NONE_LEFT }),
        (Err(DeviceError::Failed(7)), failed(DeviceFault::Reported, 7)),
        (Err(DeviceError::UnknownResult(8)), failed(DeviceFault::UnknownResult, 8)),
        (Ok(()), failed(DeviceFault::NotFilled, 0)),
    ] {
        let before = State::of(&allocator);
        allocator.device().fail_next_map(answer);
        assert_eq!(allocator.map(slice.id), Err(error));
        assert_eq!((allocator.unmap(slice.id), State::of(&allocator)), (Err(NOT_MAPPED), before));
        assert_eq!(map(&allocator, &slice), Ok(place_of(&slice)));
        // What is mapped is not mapped again, so this does not fail.
        allocator.device().fail_next_map(answer);
        assert_eq!(map(&allocator, &slice), Ok(place_of(&slice)));
        assert_eq!([(); 3].map(|()| allocator.unmap(slice.id)), [Ok(()), Ok(()), Err(NOT_MAPPED)]);
        assert_eq!(allocator.map(slice.id), Err(error));
    }
    assert_eq!(allocator.device().calls(), (12, 4));
}

#[test]
fn handles_that_are_no_live_slices_are_refused() {
    let allocator = on_demand(&[sliced(M, M, None)]);
    let other = on_demand(&[sliced(M, M, None)]);
    let (slice, waiting, foreign) = (place(&allocator, 100), place(&allocator, 100), place(&other, 100));
    allocator.free(slice.id).unwrap();
    allocator.free_after(waiting.id, &[Point { timeline: 1, value: 1 }]).unwrap();
    for (id, error) in
        [(slice.id, Error::StaleHandle), (waiting.id, Error::StaleHandle), (foreign.id, Error::ForeignHandle)]
    {
        assert_eq!((allocator.map(id), allocator.unmap(id)), (Err(error), Err(error)));
        assert_eq!((allocator.flush(id, 0, 1), allocator.invalidate(id, 0, 1)), (Err(error), Err(error)));
    }
    assert_eq!(allocator.device().calls(), (0, 0));
    allocator.close(LiveSlices::Free).unwrap();
}

#[test]
fn a_slice_of_a_dry_run_is_not_mapped_before_it_has_memory() {
    let allocator = Mapped::under(Visible::OnDemand, &[sliced(M, M, None)], options().with_dry_run());
    let slice = place(&allocator, 100);
    assert_eq!(allocator.map(slice.id), Err(Error::MappingFailed { size: M, code: 0 }));
    assert_eq!((allocator.unmap(slice.id), allocator.flush(slice.id, 0, 1)), (Err(NOT_MAPPED), Ok(())));
    let slice = allocator.resolve(slice.id).unwrap();
    assert_eq!(map(&allocator, &slice), Ok(place_of(&slice)));
    assert_eq!((allocator.unmap(slice.id), allocator.device().calls()), (Ok(()), (1, 1)));
}

// ---- pages that go

#[test]
fn a_page_that_goes_back_is_unmapped_first_whatever_its_count() {
    type Give = fn(&Allocator<Mapped>);
    let gives: [(&str, Give); 4] = [
        ("trimmed", |allocator| allocator.trim(0).unwrap()),
        ("aged", |allocator| (0..50).for_each(|_| allocator.free(place(allocator, 32 * K).id).unwrap())),
        ("closed", |allocator| allocator.close(LiveSlices::Free).unwrap()),
        ("in the way", |allocator| {
            allocator.device().ledger.limit_to(300 * K);
            allocator.free(allocator.allocate(&Request::new(256 * K).in_pool(1)).unwrap().id).unwrap();
        }),
    ];
    for (name, give) in gives {
        for count in 1..4 {
            let pools = [direct(None).with_dealloc_period(Some(20)), sliced(256 * K, 256 * K, None)];
            let allocator = on_demand(&pools);
            let slice = place(&allocator, 64 * K);
            (0..count).for_each(|_| assert_eq!(map(&allocator, &slice), Ok(place_of(&slice))));
            allocator.free(slice.id).unwrap();
            assert_eq!((allocator.device().mapped(), allocator.device().calls()), (1, (1, 0)));
            give(&allocator);
            assert!(!allocator.device().ledger.is_out(slice.memory), "{name}");
            assert_eq!((allocator.device().mapped(), allocator.device().calls()), (0, (1, 1)), "{name}");
            assert_held(&allocator, &allocator.device().ledger);
        }
    }
}

/// A record of a page that serves the next one.
#[test]
fn a_new_page_in_the_place_of_one_that_was_mapped_is_not_mapped() {
    let allocator = on_demand(&[sliced(M, M, None)]);
    for _ in 0..3 {
        let slice = place(&allocator, 100);
        assert_eq!(allocator.unmap(slice.id), Err(NOT_MAPPED));
        assert_eq!([(); 3].map(|()| map(&allocator, &slice)), [Ok(place_of(&slice)); 3]);
        allocator.free(slice.id).unwrap();
        allocator.trim(0).unwrap();
    }
    assert_eq!(allocator.device().calls(), (3, 3));
}

#[test]
fn a_page_that_stays_keeps_its_mapping_for_its_next_slice() {
    let allocator = on_demand(&[sliced(M, M, None)]);
    let slice = place(&allocator, 100);
    map(&allocator, &slice).unwrap();
    allocator.free(slice.id).unwrap();
    let next = place(&allocator, 100);
    assert_eq!(map(&allocator, &next), Ok(place_of(&next)));
    assert_eq!([(); 3].map(|()| allocator.unmap(next.id)), [Ok(()), Ok(()), Err(NOT_MAPPED)]);
    assert_eq!(allocator.device().calls(), (1, 1));
}

#[test]
fn a_page_takes_its_mapping_along_to_another_pool() {
    let memory = MemoryType::new(128 * M, 32).with_granularity(4 * K);
    let pools = [PoolKinds::Linear, PoolKinds::Optimal].map(|kinds| sliced(M, M, None).with_kinds(kinds));
    let allocator = Mapped::under(Visible::OnDemand, &pools, options().with_memory_type(memory));
    let slice = place(&allocator, 100);
    map(&allocator, &slice).unwrap();
    allocator.free(slice.id).unwrap();
    let image = allocator.allocate(&Request::new(100).of_kind(ResourceKind::Optimal)).unwrap();
    assert_eq!((image.memory, allocator.device().ledger.given()), (slice.memory, 1));
    // Allocating calls no device for that.
    assert_eq!((allocator.device().mapped(), allocator.device().calls()), (1, (1, 0)));
    assert_eq!(map(&allocator, &image), Ok(place_of(&image)));
    assert_eq!([(); 3].map(|()| allocator.unmap(image.id)), [Ok(()), Ok(()), Err(NOT_MAPPED)]);
    assert_eq!((allocator.device().mapped(), allocator.device().calls()), (0, (1, 1)));
    assert_held(&allocator, &allocator.device().ledger);
    allocator.close(LiveSlices::Free).unwrap();
}

#[test]
fn a_page_that_is_being_mapped_does_not_serve_another_pool() {
    let memory = MemoryType::new(128 * M, 32).with_granularity(4 * K);
    let pools = [PoolKinds::Linear, PoolKinds::Optimal].map(|kinds| sliced(M, M, None).with_kinds(kinds));
    let allocator = Mapped::under(Visible::OnDemand, &pools, options().with_memory_type(memory));
    let slice = place(&allocator, 100);
    allocator.device().in_next_map(move |allocator| {
        allocator.free(slice.id).unwrap();
        let image = allocator.allocate(&Request::new(100).of_kind(ResourceKind::Optimal)).unwrap();
        assert_ne!(image.memory, slice.memory);
    });
    assert_eq!(allocator.map(slice.id), Err(Error::StaleHandle));
    assert_eq!((allocator.device().mapped(), allocator.device().calls()), (0, (1, 1)));
    assert_held(&allocator, &allocator.device().ledger);
    allocator.close(LiveSlices::Free).unwrap();
}

// ---- callbacks

/// It would wait for itself. How long it does is a matter of the lock's back-off.
#[test]
fn mapping_a_page_from_within_its_mapping_is_refused_and_does_not_hang() {
    // SAFETY: no other thread has the allocator.
    let unlocked = unsafe { LockKind::unlocked() };
    for lock in [unlocked, yielding()] {
        let allocator = Mapped::under(Visible::OnDemand, &[sliced(64 * K, 64 * K, None)], options().with_lock(lock));
        let slices = [place(&allocator, 100), place(&allocator, 100), place(&allocator, 64 * K)];
        allocator.device().in_next_map(move |allocator| {
            for slice in &slices[..2] {
                let busy = [allocator.map(slice.id).map(drop), allocator.unmap(slice.id)];
                assert!(busy.iter().all(|it| matches!(it, Err(Error::Busy { in_flight: 1.., .. }))), "{busy:?}");
            }
            assert_eq!(map(allocator, &slices[2]), Ok(place_of(&slices[2])));
            assert!(matches!(allocator.close(LiveSlices::Free), Err(Error::Busy { live: 3, in_flight: 1.., .. })));
        });
        assert_eq!(map(&allocator, &slices[0]), Ok(place_of(&slices[0])));
        assert_eq!(allocator.device().calls(), (2, 0));
        allocator.device().in_next_unmap(move |allocator| {
            let busy = [allocator.map(slices[1].id).map(drop), allocator.unmap(slices[0].id)];
            assert!(busy.iter().all(|it| matches!(it, Err(Error::Busy { in_flight: 1.., .. }))), "{busy:?}");
            assert_eq!(allocator.unmap(slices[2].id), Ok(()));
        });
        assert_eq!([(); 2].map(|()| allocator.unmap(slices[1].id)), [Ok(()), Err(NOT_MAPPED)]);
        assert_eq!(allocator.device().calls(), (2, 2));
        assert_eq!(map(&allocator, &slices[0]), Ok(place_of(&slices[0])));
    }
}

/// The page stays until the device is done with it.
#[test]
fn a_page_that_is_to_go_while_it_is_mapped_or_unmapped_goes_once_and_after_that() {
    for (case, failure) in [None, Some(Ok(())), Some(Err(DeviceError::Failed(1)))].into_iter().enumerate() {
        let allocator = on_demand(&[sliced(M, M, None), direct(None)]);
        for pool in 0..2 {
            let slice = allocator.allocate(&Request::new(M).in_pool(pool)).unwrap();
            allocator.device().in_next_map(move |allocator| {
                allocator.free(slice.id).unwrap();
                allocator.trim(0).unwrap();
                let figures = allocator.statistics();
                assert_eq!((figures.leaving, figures.pages, figures.reserved), (M, 0, M));
                assert!(allocator.device().ledger.is_out(slice.memory));
                allocator.trim(0).unwrap();
                assert!(matches!(allocator.close(LiveSlices::Free), Err(Error::Busy { in_flight: 1.., .. })));
            });
            if let Some(answer) = failure {
                allocator.device().fail_next_map(answer);
            }
            let answer = allocator.map(slice.id);
            assert_eq!(answer == Err(Error::StaleHandle), failure.is_none(), "{case}: {answer:?}");
            assert!(answer.is_err() && !allocator.device().ledger.is_out(slice.memory));
            assert_eq!((allocator.device().mapped(), allocator.statistics().reserved), (0, 0));
        }
        assert_eq!(allocator.device().calls(), (2, if failure.is_none() { 2 } else { 0 }));
        assert_eq!(allocator.device().ledger.taken(), 2);
        assert_held(&allocator, &allocator.device().ledger);
    }
    let allocator = on_demand(&[sliced(M, M, None)]);
    let slice = place(&allocator, 100);
    map(&allocator, &slice).unwrap();
    allocator.device().in_next_unmap(move |allocator| {
        allocator.free(slice.id).unwrap();
        allocator.trim(0).unwrap();
        assert_eq!(allocator.statistics().leaving, M);
    });
    assert_eq!(allocator.unmap(slice.id), Ok(()));
    assert_eq!((allocator.device().calls(), allocator.device().ledger.taken()), ((1, 1), 1));
    assert_held(&allocator, &allocator.device().ledger);
}

/// The slice in its place is not mapped by that.
#[test]
fn a_slice_that_is_freed_while_it_is_mapped_and_whose_place_is_taken_is_stale() {
    let allocator = on_demand(&[sliced(M, M, None)]);
    let slice = place(&allocator, 100);
    let other = place(&allocator, 5000);
    allocator.device().in_next_map(move |allocator| {
        allocator.free(slice.id).unwrap();
        assert_eq!(place(allocator, 100).offset, slice.offset);
    });
    assert_eq!(allocator.map(slice.id), Err(Error::StaleHandle));
    assert_eq!((allocator.device().calls(), allocator.device().mapped()), ((1, 1), 0));
    assert_eq!(allocator.unmap(other.id), Err(NOT_MAPPED));
    assert_eq!(map(&allocator, &other), Ok(place_of(&other)));
}

/// Never under an allocator that is gone.
#[test]
fn an_allocator_does_not_go_away_while_a_page_is_mapped() {
    let allocator = Mapped::under(Visible::OnDemand, &[sliced(M, M, None)], AllocatorOptions::default());
    let slice = place(&allocator, 100);
    let busy = |it: &Allocator<Mapped>| {
        [LiveSlices::Refuse, LiveSlices::Free]
            .map(|live| matches!(it.can_destroy(live), Err(Error::Busy { in_flight: 1.., .. })))
    };
    allocator.device().in_next_map(move |it| assert_eq!(busy(it), [true; 2]));
    map(&allocator, &slice).unwrap();
    allocator.device().in_next_unmap(move |it| assert_eq!(busy(it), [true; 2]));
    allocator.unmap(slice.id).unwrap();
    assert_eq!((busy(&allocator), allocator.device().calls()), ([false; 2], (1, 1)));
}
