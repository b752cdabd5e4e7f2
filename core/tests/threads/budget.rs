//! Limits that hold although several threads grow at once.

use crate::common::M;
use crate::common::devices::{LedgerDevice, NONE_LEFT};
use crate::common::lock;
use crate::common::meeting::Meeting;
use crate::common::pools::{KINDS, direct, options, sliced};
use crate::common::random::Random;
use slicepool_core::{Allocator, AllocatorOptions, Budget, Error, HostMemory, PoolOptions, Request, SliceId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const PAGES: u32 = 10;

fn shared(bytes: Option<u64>, pages: Option<u32>) -> Budget {
    Budget::try_new(HostMemory::global(), lock::yielding(), bytes, pages).unwrap()
}

fn threaded(budget: &Budget) -> AllocatorOptions {
    options().with_lock(lock::yielding()).with_budget(budget)
}

/// What happened to the requests of all threads.
#[derive(Default)]
struct Outcomes {
    served: AtomicU64,
    over: AtomicU64,
    /// Refused by the device itself.
    none_left: AtomicU64,
}

/// Takes and frees pages, and gives some back now and then; ends with none.
fn work(allocator: &Allocator<&LedgerDevice>, size: u64, rounds: u32, mut random: Random, outcomes: &Outcomes) {
    let mut live: Vec<SliceId> = Vec::new();
    for round in 0..rounds {
        match allocator.allocate(&Request::new(size)) {
            Ok(slice) => {
                outcomes.served.fetch_add(1, Ordering::Relaxed);
                live.push(slice.id);
            }
            Err(Error::BudgetExceeded { .. } | Error::PageCountExceeded { limit: PAGES, .. }) => {
                outcomes.over.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::OutOfDeviceMemory { code: NONE_LEFT, .. }) => {
                outcomes.none_left.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => panic!("{error}"),
        }
        while !live.is_empty() && random.below(u64::from(PAGES)) < live.len() as u64 {
            allocator.free(random.take(&mut live)).unwrap();
        }
        if round % 7 == 0 {
            allocator.trim(random.below(3) * size).unwrap();
        }
    }
    for id in live {
        allocator.free(id).unwrap();
    }
}

/// Two threads with an allocator each and a budget of ten pages: the device, which counts, never has more out.
fn race(budget: &Budget, pool: &PoolOptions, size: u64, rounds: u32) -> Outcomes {
    let mut random = Random::with_seed_or(10);
    let device = LedgerDevice::new();
    let outcomes = Outcomes::default();
    let members = [(); 2].map(|()| Allocator::try_new(&device, std::slice::from_ref(pool), threaded(budget)).unwrap());
    let meeting = Meeting::of(2);
    thread::scope(|scope| {
        for member in &members {
            let random = random.split();
            let (meeting, outcomes) = (&meeting, &outcomes);
            scope.spawn(move || {
                meeting.wait();
                work(member, size, rounds, random, outcomes);
            });
        }
    });
    let figures = budget.statistics();
    assert!(device.bytes_peak() <= u64::from(PAGES) * size, "{} bytes were out", device.bytes_peak());
    assert!(figures.bytes_peak <= u64::from(PAGES) * size && figures.pages_peak <= PAGES, "{figures:?}");
    assert_eq!((figures.bytes, u64::from(figures.pages)), (device.bytes(), device.pages()));
    for member in &members {
        assert_eq!((member.check(), member.statistics().slices), (Ok(()), 0));
        member.trim(0).unwrap();
    }
    assert_eq!((budget.statistics().bytes, budget.statistics().pages, device.pages()), (0, 0, 0));
    // All of it can be had by one.
    let slices: Vec<_> = (0..PAGES).map(|_| members[0].allocate(&Request::new(size)).unwrap()).collect();
    assert!(members[0].allocate(&Request::new(size)).is_err());
    assert_eq!((slices.len() as u32, device.pages()), (PAGES, u64::from(PAGES)));
    outcomes
}

/// A budget of ten pages, 10^5 rounds of two threads.
#[test]
fn two_threads_that_grow_against_a_budget_of_ten_pages_never_pass_it_and_never_leak() {
    for budget in [shared(Some(u64::from(PAGES) * M), None), shared(None, Some(PAGES))] {
        let Outcomes { served, over, .. } = race(&budget, &sliced(M, M, None), M, 50_000);
        let (served, over) = (served.into_inner(), over.into_inner());
        println!("{served} served, {over} refused");
        assert!(served > 1000 && over > 100, "{served} served, {over} refused");
    }
}

/// The same with pools of every kind.
#[test]
fn pools_of_every_kind_never_pass_a_budget_of_ten_pages() {
    for (name, pool) in KINDS {
        println!("{name}");
        let size = 1 << 16;
        race(&shared(Some(u64::from(PAGES) * size), None), &pool, size, 2000);
    }
}

/// The same where the device refuses every third page or so.
#[test]
fn pages_that_the_device_refuses_do_not_use_up_a_budget() {
    let mut random = Random::with_seed_or(11);
    let budget = shared(Some(u64::from(PAGES) * M), Some(PAGES));
    let device = LedgerDevice::new();
    let outcomes = Outcomes::default();
    let pools = [sliced(M, M, None)];
    let members = [(); 2].map(|()| Allocator::try_new(&device, &pools, threaded(&budget)).unwrap());
    thread::scope(|scope| {
        for member in &members {
            let mut random = random.split();
            let (device, outcomes) = (&device, &outcomes);
            scope.spawn(move || {
                for _ in 0..2000 {
                    device.refuse_after(random.below(3));
                    work(member, M, 5, random.split(), outcomes);
                    // Pages that are taken back end every pause.
                    member.trim(0).unwrap();
                }
            });
        }
    });
    device.refuse_after(u64::MAX);
    let refused = outcomes.none_left.into_inner();
    assert!(refused > 100, "{refused}");
    assert_eq!((budget.statistics().bytes, budget.statistics().pages, device.pages()), (0, 0, 0));
    assert!(device.bytes_peak() <= u64::from(PAGES) * M);
}

/// Allocators that come and go in several threads, by all ways, leave a budget as it was.
#[test]
fn members_that_come_and_go_in_several_threads_leave_nothing_behind() {
    let budget = shared(Some(u64::from(PAGES) * M), Some(PAGES));
    let device = LedgerDevice::new();
    let meeting = Meeting::of(4);
    thread::scope(|scope| {
        for thread in 0..4u32 {
            let budget = budget.clone();
            let (device, meeting) = (&device, &meeting);
            scope.spawn(move || {
                meeting.wait();
                for round in 0..2000 {
                    let member = Allocator::try_new(device, &[direct(None)], threaded(&budget)).unwrap();
                    let mut last = None;
                    for size in [3 * M, 2 * M, 4 * M] {
                        last = member.allocate(&Request::new(size)).ok().or(last);
                    }
                    if let Some(slice) = last.filter(|_| (round + thread) % 2 == 0) {
                        member.free(slice.id).unwrap();
                        member.trim(0).unwrap();
                    }
                    drop(budget.clone());
                }
            });
        }
    });
    assert!(device.bytes_peak() <= u64::from(PAGES) * M);
    assert_eq!((budget.statistics().bytes, budget.statistics().pages, device.pages()), (0, 0, 0));
    assert!(budget.statistics().pressure > 0, "the threads never met");
}
