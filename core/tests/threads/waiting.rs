//! Slices that wait for the device, freed and collected by several threads at once.

use crate::common::devices::LedgerDevice;
use crate::common::lock::{self, WatchedLock};
use crate::common::meeting::{AtEnd, Meeting};
use crate::common::pools::{exclusive, options, over, place, sliced};
use crate::common::random::Random;
use crate::common::waiting::{assert_agree, waiting};
use crate::common::{K, M};
use slicepool_core::{Allocator, Error, Point, PoolOptions, Request, Slice};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TIMELINES: usize = 3;
const THREADS: u32 = 4;

/// Slices that come and go in all threads together.
const SLICES: u32 = 100_000;

/// What the granules of all pages were last freed with: for each timeline the value that must have been passed.
struct Stamps {
    values: Vec<[AtomicU64; TIMELINES]>,
    granules_per_page: u64,
    granule: u64,
    /// What each timeline has completed: written before it is collected, so that nothing is released before.
    completed: [AtomicU64; TIMELINES],
}

impl Stamps {
    fn new(pages: u64, page_size: u64, granule: u64) -> Self {
        let granules_per_page = page_size / granule;
        let stamps = (0..pages * granules_per_page).map(|_| [const { AtomicU64::new(0) }; TIMELINES]);
        Self { values: stamps.collect(), granules_per_page, granule, completed: Default::default() }
    }

    /// The stamps of a slice's granules. Handles of the device count from 1.
    fn of(&self, slice: &Slice) -> &[[AtomicU64; TIMELINES]] {
        let first = (slice.memory - 1) * self.granules_per_page + slice.offset / self.granule;
        &self.values[first as usize..][..(slice.size / self.granule) as usize]
    }

    /// Panics if any byte of a slice that was just handed out is still waited for.
    fn check(&self, slice: &Slice) {
        for granule in self.of(slice) {
            for (value, completed) in granule.iter().zip(&self.completed) {
                let (value, completed) = (value.load(Ordering::Relaxed), completed.load(Ordering::SeqCst));
                assert!(value <= completed, "reused at {completed}, but waits for {value}: {slice:?}");
            }
        }
    }

    /// The slice is about to be freed after these points.
    fn stamp(&self, slice: &Slice, points: &[Point]) {
        for granule in self.of(slice) {
            for point in points {
                granule[point.timeline as usize].store(point.value, Ordering::Relaxed);
            }
        }
    }
}

/// Frees slices on one or two of the timelines, whose values rise with every free of any thread.
fn work(allocator: &Allocator<&LedgerDevice>, stamps: &Stamps, next: &[AtomicU64; TIMELINES], mut random: Random) {
    let mut live = Vec::new();
    for i in 0..SLICES / THREADS {
        let slice = allocator.allocate(&Request::new(random.within(1, 8 * 256))).unwrap();
        stamps.check(&slice);
        live.push(slice);
        if i % 3 == 0 {
            continue;
        }
        let slice = random.take(&mut live);
        let first = random.below(TIMELINES as u64) as usize;
        let count = random.within(1, 2) as usize;
        let points: Vec<_> = (0..count)
            .map(|i| {
                let timeline = (first + i) % TIMELINES;
                // Threads that get their values in one order may free in another.
                Point::new(timeline as u32, next[timeline].fetch_add(1, Ordering::SeqCst))
            })
            .collect();
        stamps.stamp(&slice, &points);
        if i % 2 == 0 {
            allocator.free_after(slice.id, &points).unwrap();
        } else {
            allocator.free_after_many(&[slice.id], &points).unwrap();
        }
        assert_eq!(allocator.free(slice.id), Err(Error::StaleHandle));
        if i % 64 == 1 {
            let timeline = random.below(TIMELINES as u64) as usize;
            let completed = next[timeline].load(Ordering::SeqCst).saturating_sub(random.within(1, 100));
            stamps.completed[timeline].fetch_max(completed, Ordering::SeqCst);
            allocator.collect(timeline as u32, completed).unwrap();
        }
    }
    for slice in live {
        stamps.stamp(&slice, &[Point::new(0, 1)]);
        allocator.free_after(slice.id, &[Point::new(0, 1)]).unwrap();
    }
}

/// Scenario 49: 10^5 slices on three timelines from four threads: nothing leaks, nothing is reused too early.
#[test]
fn a_hundred_thousand_slices_on_three_timelines_from_four_threads_are_neither_lost_nor_reused_early() {
    const PAGE: u64 = M;
    const GRANULE: u64 = 256;
    let mut random = Random::with_seed_or(49);
    let device = LedgerDevice::new();
    let pool = PoolOptions::sliced_pages(PAGE, PAGE, Some(128 * PAGE));
    let options = options().with_lock(lock::yielding());
    let allocator = Allocator::try_new(&device, &[pool.with_granule(GRANULE)], options).unwrap();
    let stamps = Stamps::new(128, PAGE, GRANULE);
    let next: [AtomicU64; TIMELINES] = [const { AtomicU64::new(1) }; TIMELINES];
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let random = random.split();
            let (allocator, stamps, next) = (&allocator, &stamps, &next);
            scope.spawn(move || work(allocator, stamps, next, random));
        }
    });
    assert_agree(&allocator, &device);
    assert!(waiting(&allocator) != 0);
    let busy = |timeline| matches!(allocator.timeline_forget(timeline), Err(Error::Busy { live: 0, .. }));
    assert!((0..TIMELINES as u32).any(busy));
    for (timeline, next) in (0..).zip(&next) {
        allocator.collect(timeline, next.load(Ordering::SeqCst) - 1).unwrap();
    }
    let figures = allocator.statistics();
    assert_eq!((figures.slices, figures.slices_pending, figures.pending, figures.in_use), (0, 0, 0, 0));
    assert_eq!((figures.free, figures.pages_idle), (figures.reserved, figures.pages));
    assert_agree(&allocator, &device);
    allocator.cleanup().unwrap();
    assert_eq!(device.pages(), 0);
    (0..TIMELINES as u32).for_each(|timeline| allocator.timeline_forget(timeline).unwrap());
}

/// Many slices wait for one point.
fn many_that_wait(allocator: &Allocator<&LedgerDevice>, count: u32, point: Point) {
    let before = waiting(allocator);
    let requests = vec![Request::new(32); count as usize];
    let ids: Vec<_> = allocator.allocate_many(&requests).unwrap().iter().map(|slice| slice.id).collect();
    allocator.free_after_many(&ids, &[point]).unwrap();
    assert_eq!(waiting(allocator), before + count);
}

/// Looks, each time this thread is about to take a lock, at how many slices wait; the figures go to `seen`.
fn watch(allocator: &'static Allocator<&'static LedgerDevice>, seen: Rc<RefCell<Vec<u32>>>, watching: Rc<Cell<bool>>) {
    lock::before_next(move || {
        if watching.get() {
            seen.borrow_mut().push(waiting(allocator));
            watch(allocator, seen, watching);
        }
    });
}

/// Scenario 49: at most 64 slices are released per lock hold, so that other threads get in.
#[test]
fn collecting_many_slices_releases_at_most_64_per_lock_hold() {
    for timelines in [1, 2] {
        // What watches lives as long as the program, since it is called from a place without a lifetime.
        let lock: &'static WatchedLock = Box::leak(Box::default());
        let device: &'static LedgerDevice = Box::leak(Box::new(LedgerDevice::new()));
        let options = options().with_lock(lock.kind());
        let allocator = Allocator::try_new(device, &[sliced(M, M, None)], options).unwrap();
        let allocator: &'static Allocator<_> = Box::leak(Box::new(allocator));
        for timeline in 0..timelines {
            many_that_wait(allocator, SLICES / timelines, Point::new(timeline, 5));
        }
        let (seen, watching) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(true)));
        watch(allocator, seen.clone(), watching.clone());
        let stop = AtEnd(|| watching.set(false));
        for timeline in 0..timelines {
            allocator.collect(timeline, 5).unwrap();
        }
        drop(stop);
        assert_eq!(waiting(allocator), 0);
        let seen = seen.take();
        for pair in seen.windows(2) {
            assert!(pair[0] - pair[1] <= 64, "{} slices were released under one lock", pair[0] - pair[1]);
        }
        // Not fewer either: each lock hold costs the others something, too.
        let holds = seen.windows(2).filter(|pair| pair[0] != pair[1]).count() as u32;
        assert!(holds <= SLICES.div_ceil(64) + 2 * timelines, "{holds} lock holds");
        assert!(seen.len() as u32 <= holds + 16 * timelines, "{} locks were taken", seen.len());
        lock.assert_used_rightly();
        allocator.cleanup().unwrap();
    }
}

/// Scenario 49: while 10^5 slices are released, another thread's allocation waits for less than 100 microseconds. Most of
/// the time: a machine that is busy with something else may put any thread to sleep.
#[test]
fn allocations_of_another_thread_wait_less_than_100_microseconds_while_many_slices_are_released() {
    let device = LedgerDevice::new();
    let options = options().with_lock(lock::yielding());
    let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options).unwrap();
    let mut waits = Vec::new();
    for round in 1..=5 {
        many_that_wait(&allocator, SLICES, Point::new(1, round));
        let (meeting, collecting) = (Meeting::of(2), AtomicBool::new(true));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _end = AtEnd(|| collecting.store(false, Ordering::SeqCst));
                meeting.wait();
                allocator.collect(1, round).unwrap();
            });
            meeting.wait();
            while collecting.load(Ordering::SeqCst) {
                let begin = Instant::now();
                let slice = place(&allocator, K);
                waits.push(begin.elapsed());
                allocator.free(slice.id).unwrap();
            }
        });
        assert_eq!(waiting(&allocator), 0);
        if waits.len() > 10_000 {
            break;
        }
    }
    waits.sort_unstable();
    let [median, high, most] = [waits.len() / 2, waits.len() * 99 / 100, waits.len() - 1].map(|at| waits[at]);
    println!("{} allocations during the release: median {median:?}, 99 of 100 {high:?}, longest {most:?}", waits.len());
    assert!(median < Duration::from_micros(100), "{median:?}");
    assert_agree(&allocator, &device);
}

/// Several threads collect one timeline at once, and others forget it: each slice is released once.
#[test]
fn threads_that_collect_and_forget_one_timeline_release_each_slice_once() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(M, M, None), exclusive(M)]);
    for round in 0..200 {
        let slices: Vec<_> = (0..100).map(|i| place(&allocator, if i % 10 == 0 { M / 2 } else { 300 })).collect();
        let meeting = Meeting::of(THREADS);
        thread::scope(|scope| {
            for part in slices.chunks(25) {
                let (allocator, meeting) = (&allocator, &meeting);
                scope.spawn(move || {
                    meeting.wait();
                    for (i, slice) in part.iter().enumerate() {
                        let points = [Point::new(1, i as u64 + 1), Point::new(2, 1)];
                        allocator.free_after(slice.id, &points[..1 + i % 2]).unwrap();
                        allocator.collect(1, i as u64).unwrap();
                        let forgotten = allocator.timeline_forget(2);
                        assert!(matches!(forgotten, Ok(()) | Err(Error::Busy { .. })));
                    }
                    allocator.collect(2, 1).unwrap();
                });
            }
        });
        assert_eq!(allocator.check(), Ok(()), "{round}");
        for timeline in [1, 2] {
            allocator.collect(timeline, 100).unwrap();
        }
        assert_eq!((waiting(&allocator), allocator.statistics().slices), (0, 0), "{round}");
        for timeline in [1, 2] {
            allocator.timeline_forget(timeline).unwrap();
        }
    }
    assert_agree(&allocator, &device);
}
