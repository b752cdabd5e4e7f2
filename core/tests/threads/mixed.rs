//! Threads that do everything at once: what is left in the end, and what no other may see meanwhile.

use crate::common::devices::LedgerDevice;
use crate::common::lock::yielding;
use crate::common::pools::{direct, exclusive, growing, options, sliced};
use crate::common::random::Random;
use crate::common::{K, M};
use slicepool_core::{
    Allocator, Budget, Device, DeviceError, DeviceMemory, Error, FillRequest, HostMemory, LiveSlices, LockKind,
    PageRequest, Point, PoolOptions, Request, Slice, SliceId,
};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const TIMELINES: u32 = 3;

/// Pools of every kind, small ones, so that all of them are short of memory now and then.
fn pools() -> [PoolOptions; 4] {
    let small = sliced(64 * K, 4 * K, Some(128 * K)).with_dealloc_period(Some(500));
    [small, growing(64 * K, M), exclusive(32 * K).with_dealloc_period(Some(200)), direct(Some(512 * K))]
}

/// Completes what it is told to, fills slices at once, later or not at all, and frees something when memory is short.
struct BusyDevice {
    ledger: LedgerDevice,
    completed: [AtomicU64; TIMELINES as usize],
    fills: AtomicU64,
    pleas: AtomicU64,
}

impl BusyDevice {
    fn new() -> Self {
        let ledger = LedgerDevice::new();
        Self { ledger, completed: Default::default(), fills: AtomicU64::new(0), pleas: AtomicU64::new(0) }
    }

    fn completed_of(&self, timeline: u32) -> &AtomicU64 {
        &self.completed[timeline as usize % self.completed.len()]
    }
}

impl Device for BusyDevice {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.ledger.allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.ledger.deallocate(memory)
    }

    fn completed(&self, timeline: u32) -> Option<u64> {
        Some(self.completed_of(timeline).load(Ordering::SeqCst))
    }

    fn out_of_memory(&self, _: &slicepool_core::Shortage) -> bool {
        self.pleas.fetch_add(1, Ordering::SeqCst) % 3 == 0
    }

    fn can_fill(&self) -> bool {
        true
    }

    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        let turn = self.fills.fetch_add(1, Ordering::SeqCst);
        let scrub = request.reason == slicepool_core::FillReason::Scrub;
        match turn % 8 {
            0 => Err(DeviceError::Failed(-9)),
            1 | 2 if scrub => {
                let timeline = (turn % u64::from(TIMELINES)) as u32;
                Ok(Some(Point::new(timeline, self.completed_of(timeline).load(Ordering::SeqCst) + 2)))
            }
            _ => Ok(None),
        }
    }
}

/// Every byte that is handed out, by page and offset: whoever enters what another has not left yet overlaps with it.
#[derive(Default)]
struct Map(Mutex<HashMap<u64, Vec<(u64, u64)>>>);

impl Map {
    fn enter(&self, slice: &Slice) {
        let mut map = self.0.lock().unwrap();
        let page = map.entry(slice.memory).or_default();
        let end = slice.offset + slice.size;
        assert!(page.iter().all(|&(from, to)| end <= from || to <= slice.offset), "{slice:?} overlaps with another");
        page.push((slice.offset, end));
    }

    /// To be called before the slice is freed, or before what it waits for has passed.
    fn leave(&self, slice: &Slice) {
        let mut map = self.0.lock().unwrap();
        map.get_mut(&slice.memory).unwrap().retain(|&(from, _)| from != slice.offset);
    }
}

/// Slices that wait, and may be had again once all their points have been passed.
struct Waiting {
    slice: Slice,
    points: Vec<Point>,
}

#[derive(Clone, Copy)]
struct Shared<'a> {
    allocator: &'a Allocator<&'a BusyDevice>,
    device: &'a BusyDevice,
    map: &'a Map,
    waiting: &'a Mutex<Vec<Waiting>>,
}

impl Shared<'_> {
    /// The device completes more of a timeline. The map lets go of what may be reused before the allocator is told.
    fn advance(&self, timeline: u32) {
        let mut waiting = self.waiting.lock().unwrap();
        let completed = self.device.completed_of(timeline);
        let value = completed.load(Ordering::SeqCst) + 1;
        let passed = |point: &Point| {
            let known = if point.timeline == timeline {
                value
            } else {
                self.device.completed_of(point.timeline).load(Ordering::SeqCst)
            };
            known >= point.value
        };
        waiting.retain(|it| {
            let over = it.points.iter().all(passed);
            if over {
                self.map.leave(&it.slice);
            }
            !over
        });
        completed.store(value, Ordering::SeqCst);
        drop(waiting);
        match self.allocator.collect(timeline, value) {
            Ok(()) | Err(Error::DeviceFailed { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn free(&self, slice: &Slice, random: &mut Random) {
        if random.below(2) == 0 {
            self.map.leave(slice);
            return self.allocator.free(slice.id).unwrap();
        }
        // Held, so that the device completes nothing between the points being chosen and the slice being entered.
        let mut waiting = self.waiting.lock().unwrap();
        let count = random.within(1, 3);
        let points: Vec<_> = (0..count)
            .map(|_| {
                let timeline = random.below(u64::from(TIMELINES)) as u32;
                let now = self.device.completed_of(timeline).load(Ordering::SeqCst);
                Point::new(timeline, now + random.within(1, 3))
            })
            .collect();
        waiting.push(Waiting { slice: *slice, points: points.clone() });
        self.allocator.free_after(slice.id, &points).unwrap();
    }

    fn work(&self, mut random: Random, rounds: u32) {
        let mut live: Vec<Slice> = Vec::new();
        for _ in 0..rounds {
            match random.below(100) {
                0..=49 => {
                    let mut request = Request::new(random.scaled(64 * K));
                    for (one_in, special) in [
                        (20, Request::persistent as fn(Request) -> Request),
                        (10, Request::zeroed),
                        (10, Request::scrubbed),
                    ] {
                        if random.below(one_in) == 0 {
                            request = special(request);
                        }
                    }
                    match self.allocator.allocate(&request) {
                        Ok(slice) => {
                            self.map.enter(&slice);
                            live.push(slice);
                        }
                        Err(Error::InvalidArgument { .. }) => panic!("{request:?}"),
                        Err(_) => {
                            if !live.is_empty() {
                                self.free(&random.take(&mut live), &mut random);
                            }
                        }
                    }
                }
                50..=93 if !live.is_empty() => self.free(&random.take(&mut live), &mut random),
                94..=97 => self.advance(random.below(u64::from(TIMELINES)) as u32),
                98 => {
                    let _ = self.allocator.trim(random.scaled(M));
                }
                _ => {
                    let _ = self.allocator.cleanup();
                }
            }
            if let Some(slice) = live.last() {
                assert_eq!(self.allocator.get(slice.id), Ok(*slice));
            }
        }
        for slice in live {
            self.free(&slice, &mut random);
        }
    }
}

fn all_at_once(seed: u64, lock: LockKind) {
    let mut random = Random::with_seed_or(seed);
    let device = BusyDevice::new();
    device.ledger.limit_to(3 * M);
    let budget = Budget::try_new(HostMemory::global(), lock, Some(2 * M), Some(300)).unwrap();
    let options = options().with_lock(lock).with_budget(&budget).with_max_pages(Some(250));
    let allocator = Allocator::try_new(&device, &pools(), options).unwrap();
    let (map, waiting) = (Map::default(), Mutex::default());
    let shared = Shared { allocator: &allocator, device: &device, map: &map, waiting: &waiting };
    thread::scope(|scope| {
        for _ in 0..3 {
            let random = random.split();
            scope.spawn(move || shared.work(random, 20_000));
        }
    });
    let figures = allocator.statistics();
    assert_eq!((figures.slices, figures.in_use, figures.padding), (0, 0, 0));
    allocator.check().unwrap();
    let mut value = 0;
    while allocator.statistics().slices_pending != 0 {
        value += 1;
        assert!(value < 100, "{} slices are never released", allocator.statistics().slices_pending);
        for timeline in 0..TIMELINES {
            let _ = allocator.collect(timeline, u64::MAX / 200 * value);
        }
        allocator.check().unwrap();
    }
    for timeline in 0..TIMELINES {
        allocator.timeline_forget(timeline).unwrap();
    }
    assert!(budget.statistics().bytes_peak <= 2 * M && budget.statistics().pages_peak <= 250);
    allocator.close(LiveSlices::Refuse).unwrap();
    drop(allocator);
    let left = budget.statistics();
    assert_eq!((left.bytes, left.pages), (0, 0));
    device.ledger.assert_all_returned();
}

#[test]
fn threads_that_do_everything_at_once_never_overlap_and_leave_nothing() {
    for seed in 0..4 {
        all_at_once(seed, LockKind::spin());
        all_at_once(seed + 100, yielding());
    }
}

/// A handle is good once, whoever frees it and however.
#[test]
fn of_threads_that_free_the_same_slices_one_succeeds() {
    let device = BusyDevice::new();
    let allocator = Allocator::try_new(&device, &pools(), options()).unwrap();
    for round in 0..200u64 {
        let ids: Vec<SliceId> = (1..20).map(|i| allocator.allocate(&Request::new(i * 100)).unwrap().id).collect();
        let freed = AtomicU64::new(0);
        thread::scope(|scope| {
            for worker in 0..3 {
                let (ids, allocator, freed) = (&ids, &allocator, &freed);
                scope.spawn(move || {
                    for &id in ids {
                        let answer = match worker {
                            0 => allocator.free(id),
                            1 => allocator.free_after(id, &[Point::new(0, round + 1)]),
                            _ => allocator
                                .free_after_many(&[id], &[Point::new(1, round + 1), Point::new(2, 1)])
                                .map_err(|it| it.error),
                        };
                        match answer {
                            Ok(()) => _ = freed.fetch_add(1, Ordering::SeqCst),
                            Err(error) => assert_eq!(error, Error::StaleHandle),
                        }
                    }
                });
            }
        });
        assert_eq!(freed.into_inner(), ids.len() as u64);
        for timeline in 0..3 {
            allocator.collect(timeline, round + 1).unwrap();
        }
        let figures = allocator.statistics();
        assert_eq!((figures.slices, figures.slices_pending, figures.pending), (0, 0, 0));
        allocator.check().unwrap();
    }
}
