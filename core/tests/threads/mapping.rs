//! Memory that the CPU sees for a time, with several threads.

use crate::common::M;
use crate::common::lock::sleeping;
use crate::common::mapped::{Mapped, Visible, base_of};
use crate::common::meeting::Meeting;
use crate::common::pools::{options, place, sliced};
use crate::common::random::Random;
use crate::common::sums::assert_held;
use slicepool_core::{Allocator, Error, LockKind, Slice};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

fn make(lock: LockKind) -> Arc<Allocator<Mapped>> {
    Mapped::under(Visible::OnDemand, &[sliced(M, M, None)], options().with_lock(lock))
}

fn map(allocator: &Allocator<Mapped>, slice: &Slice) -> Result<u64, Error> {
    allocator.map(slice.id).map(|at| at.addr() as u64)
}

/// Where a slice is mapped.
fn place_of(slice: &Slice) -> u64 {
    base_of(slice.memory) + slice.offset
}

#[test]
fn a_page_that_another_thread_trims_while_it_is_mapped_goes_once_and_after_that() {
    for _ in 0..20 {
        let allocator = make(sleeping());
        let slice = place(&allocator, 100);
        let met = Arc::new((Meeting::of(2), Meeting::of(2)));
        let meetings = met.clone();
        allocator.device().in_next_map(move |_| {
            meetings.0.wait();
            meetings.1.wait();
        });
        thread::scope(|scope| {
            scope.spawn(|| {
                met.0.wait();
                allocator.free(slice.id).unwrap();
                allocator.trim(0).unwrap();
                assert!(allocator.device().ledger.is_out(slice.memory));
                let next = place(&allocator, 100);
                assert_ne!(next.memory, slice.memory);
                assert_eq!(map(&allocator, &next), Ok(place_of(&next)));
                met.1.wait();
            });
            assert_eq!(allocator.map(slice.id), Err(Error::StaleHandle));
        });
        assert!(!allocator.device().ledger.is_out(slice.memory));
        assert_eq!((allocator.device().calls(), allocator.device().mapped()), ((2, 1), 1));
        assert_held(&allocator, &allocator.device().ledger);
    }
}

#[test]
fn a_thread_waits_for_another_that_maps_the_same_page() {
    let allocator = make(sleeping());
    let slices = [100, 200].map(|size| place(&allocator, size));
    let begun = Arc::new(Meeting::of(2));
    let seen = begun.clone();
    allocator.device().in_next_map(move |_| {
        seen.wait();
        thread::sleep(Duration::from_millis(20));
    });
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(map(&allocator, &slices[0]), Ok(place_of(&slices[0]))));
        begun.wait();
        assert_eq!(map(&allocator, &slices[1]), Ok(place_of(&slices[1])));
    });
    assert_eq!(allocator.device().calls(), (1, 0));
}

/// The device panics if it is asked for the same twice.
#[test]
fn threads_that_map_slices_of_one_page_map_it_once_at_a_time() {
    const THREADS: u32 = 4;
    let rounds = if cfg!(miri) { 50 } else { 10_000 };
    let mut random = Random::with_seed_or(71);
    let allocator = make(sleeping());
    let start = Meeting::of(THREADS);
    let others = (0..THREADS).map(|_| random.split()).collect::<Vec<_>>();
    thread::scope(|scope| {
        for mut random in others {
            let (allocator, start) = (&allocator, &start);
            scope.spawn(move || {
                start.wait();
                let mut slice = place(allocator, random.within(1, 5000));
                for _ in 0..rounds {
                    let times = random.within(1, 3);
                    (0..times).for_each(|_| assert_eq!(map(allocator, &slice), Ok(place_of(&slice))));
                    (0..times).for_each(|_| assert_eq!(allocator.unmap(slice.id), Ok(())));
                    if random.below(20) == 0 {
                        allocator.free(slice.id).unwrap();
                        if random.below(3) == 0 {
                            allocator.trim(0).unwrap();
                        }
                        slice = place(allocator, random.within(1, 5000));
                    }
                }
                allocator.free(slice.id).unwrap();
            });
        }
    });
    let (maps, unmaps) = allocator.device().calls();
    assert!(maps == unmaps && maps > 10, "{maps} {unmaps}");
    assert_eq!(allocator.device().mapped(), 0);
    assert_held(&allocator, &allocator.device().ledger);
}

/// With a lock that sleeps while it waits.
#[test]
fn a_thread_waits_for_another_that_maps_the_same_page_for_tenths_of_a_second() {
    let allocator = make(sleeping());
    let slices = [100, 200].map(|size| place(&allocator, size));
    let begun = Arc::new(Meeting::of(2));
    let seen = begun.clone();
    allocator.device().in_next_map(move |_| {
        seen.wait();
        thread::sleep(Duration::from_millis(50));
    });
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(map(&allocator, &slices[0]), Ok(place_of(&slices[0]))));
        begun.wait();
        assert_eq!(map(&allocator, &slices[1]), Ok(place_of(&slices[1])));
    });
}
