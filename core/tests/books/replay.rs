//! A log of events, sorted by their numbers, is enough to know at any time what was in use.

use crate::common::filler::Fill;
use crate::common::listening::Listening;
use crate::common::lock::yielding;
use crate::common::meeting::Meeting;
use crate::common::pools::{direct, exclusive, growing, options, place, sliced};
use crate::common::random::Random;
use crate::common::replay::Replay;
use crate::common::sums::assert_held;
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Debugging, Device, DeviceError, EventKind, LiveSlices, MemoryType, PageRequest, Point,
    PoolKinds, PoolOptions, Request, ResourceKind, Slice,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

fn pools() -> Vec<PoolOptions> {
    vec![
        sliced(64 * K, 64 * K, None).with_kinds(PoolKinds::Linear),
        sliced(64 * K, 64 * K, None).with_kinds(PoolKinds::Optimal),
        growing(4 * K, 64 * K).with_dealloc_period(Some(40)),
        exclusive(M),
        direct(Some(M)).with_dealloc_period(Some(60)),
    ]
}

fn slice_events() -> AllocatorOptions {
    options().with_memory_type(MemoryType::new(128 * M, 32).with_granularity(4 * K)).with_slice_events()
}

fn any_request(random: &mut Random) -> Request {
    let request = Request::new(random.scaled(40 * K)).aligned(1 << random.below(6));
    match random.below(12) {
        0 => request.persistent(),
        1 => request.dedicated(),
        2 => request.with_device_data(std::ptr::without_provenance_mut(1)),
        3 | 4 => request.of_kind(ResourceKind::Optimal).in_pool(1),
        5 => request.zeroed(),
        6 | 7 => request.scrubbed(),
        _ => request.in_pool([0, 2, 3, 4][random.below(4) as usize]),
    }
}

/// The last value that anything waits for.
#[derive(Default)]
struct Timelines {
    last: AtomicU64,
    /// Whether filling waits for some, too.
    filling: bool,
}

impl Timelines {
    /// Points that will be passed some time.
    fn points(&self, random: &mut Random) -> Vec<Point> {
        let value = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        (0..random.below(3)).map(|timeline| Point { timeline: timeline as u32, value }).collect()
    }

    fn collect(&self, random: &mut Random, allocator: &Allocator<Listening>) {
        let value = self.last.load(Ordering::Relaxed).saturating_sub(random.below(10));
        let _ = allocator.collect(random.below(3) as u32, value);
    }
}

/// One call of any kind, on slices of the caller's own.
fn step(random: &mut Random, allocator: &Allocator<Listening>, timelines: &Timelines, live: &mut Vec<Slice>) {
    let some = |random: &mut Random, live: &mut Vec<Slice>| {
        let count = random.within(1, 5).min(live.len() as u64);
        (0..count).map(|_| random.take(live).id).collect::<Vec<_>>()
    };
    match random.below(20) {
        0 => {
            // Half way, the last one is too large.
            let mut requests: Vec<_> = (0..random.within(2, 6)).map(|_| any_request(random)).collect();
            requests.push(Request::new(M).in_pool(0));
            assert!(allocator.allocate_many(&requests).is_err());
        }
        1 => {
            let requests: Vec<_> = (0..random.within(1, 6)).map(|_| any_request(random)).collect();
            live.extend(allocator.allocate_many(&requests).iter().flat_map(|batch| batch.iter()));
        }
        2 | 3 if !live.is_empty() => allocator.free_many(&some(random, live)).unwrap(),
        4 if !live.is_empty() => {
            allocator.free_after_many(&some(random, live), &timelines.points(random)).unwrap();
        }
        5 | 6 if !live.is_empty() => {
            allocator.free_after(random.take(live).id, &timelines.points(random)).unwrap();
        }
        7 => timelines.collect(random, allocator),
        8 if !live.is_empty() => {
            let at = random.below(live.len() as u64) as usize;
            if let Ok(resized) = allocator.try_resize(live[at].id, random.scaled(40 * K)) {
                live[at] = resized;
            }
        }
        9 => drop(allocator.trim(random.below(M))),
        10 => {
            let value = timelines.points(random).first().map_or(1, |point| point.value);
            let fill = match random.below(3) {
                0 => Fill::Now,
                1 if timelines.filling => Fill::Until(Point { timeline: 2, value }),
                _ => Fill::Never(DeviceError::Failed(1)),
            };
            allocator.device().fill_so(fill);
        }
        _ if live.len() > 60 || (random.below(3) == 0 && !live.is_empty()) => {
            allocator.free(random.take(live).id).unwrap();
        }
        _ => live.extend(allocator.allocate(&any_request(random)).ok()),
    }
}

/// Frees everything, and plays the log to its end.
fn end(allocator: &Allocator<Listening>, replay: &mut Replay) {
    allocator.device().ledger.limit_to(u64::MAX);
    allocator.device().fill_so(Fill::Now);
    assert_eq!(allocator.close(LiveSlices::Free), Ok(()));
    replay.go_on(allocator.device().take_events());
    replay.assert_is(allocator);
    assert_held(allocator, &allocator.device().ledger);
}

#[test]
fn what_is_in_use_can_be_rebuilt_from_the_events_of_one_thread() {
    play_with_one_thread(false);
}

#[test]
fn what_is_in_use_can_be_rebuilt_from_the_events_of_one_thread_while_filling_takes_time() {
    play_with_one_thread(true);
}

fn play_with_one_thread(filling: bool) {
    let mut random = Random::with_seed_or(81);
    for debugging in [Debugging::default(), Debugging::new(false, 40)] {
        let allocator = Listening::under(&pools(), slice_events().with_debugging(debugging));
        let (timelines, mut live, mut replay) =
            (Timelines { filling, ..Timelines::default() }, Vec::new(), Replay::default());
        for round in 0..4000 {
            step(&mut random, &allocator, &timelines, &mut live);
            match random.below(100) {
                0 => allocator.device().ledger.limit_to(allocator.device().ledger.bytes() + 20 * K),
                1 | 2 => allocator.device().ledger.limit_to(u64::MAX),
                3 => {
                    let size = 32 * random.within(1, 100);
                    let memory = allocator.device().ledger.allocate(&PageRequest::new(size, 32));
                    if let Ok(memory) = memory {
                        allocator.adopt(4, &slicepool_core::DeviceMemory { size, ..memory }).unwrap();
                    }
                }
                4 => drop(allocator.prefill(0, random.below(6) as u32)),
                6 | 7 => {
                    // Idle pages of both kinds, one after the other.
                    let ids: Vec<_> = live.drain(..).map(|slice: Slice| slice.id).collect();
                    allocator.free_many(&ids).unwrap();
                    let kind = if round % 2 == 0 { ResourceKind::Linear } else { ResourceKind::Optimal };
                    let request = Request::new(30 * K).of_kind(kind).in_pool(round % 2);
                    live.extend((0..10).filter_map(|_| allocator.allocate(&request).ok()));
                }
                5 => {
                    allocator.device().ledger.keep_everything(true);
                    let _ = allocator.trim(0);
                    allocator.device().ledger.keep_everything(false);
                }
                _ => {}
            }
            if round % 10 == 0 {
                replay.go_on(allocator.device().take_events());
                if debugging == Debugging::default() {
                    replay.assert_is(&allocator);
                }
            }
        }
        for kind in [
            EventKind::PageAllocated,
            EventKind::PageAdopted,
            EventKind::PageMoved,
            EventKind::PageReturned,
            EventKind::PageRefused,
            EventKind::SliceAllocated,
            EventKind::SliceResized,
            EventKind::SlicePending,
            EventKind::SliceFreed,
            EventKind::OutOfMemory,
        ] {
            assert!(replay.count(kind) >= 3, "{kind:?} has hardly occurred: {:?}", replay.counts);
        }
        // Leaks are told of slices that are there.
        allocator.close(LiveSlices::Refuse).unwrap_err();
        end(&allocator, &mut replay);
        assert!(replay.count(EventKind::SliceLeaked) >= live.len() as u64);
    }
}

#[test]
fn what_is_in_use_can_be_rebuilt_from_the_events_of_many_threads() {
    play_with_many_threads(false);
}

#[test]
fn what_is_in_use_can_be_rebuilt_from_the_events_of_many_threads_while_filling_takes_time() {
    play_with_many_threads(true);
}

fn play_with_many_threads(filling: bool) {
    const THREADS: u32 = 4;
    let rounds = if cfg!(miri) { 100 } else { 4000 };
    let mut random = Random::with_seed_or(82);
    let allocator = Listening::under(&pools(), slice_events().with_lock(yielding()));
    let (timelines, start, shared) =
        (Timelines { filling, ..Timelines::default() }, Meeting::of(THREADS), Mutex::new(Vec::new()));
    let generators: Vec<_> = (0..THREADS).map(|_| random.split()).collect();
    thread::scope(|scope| {
        for mut random in generators {
            let (allocator, timelines, start, shared) = (&allocator, &timelines, &start, &shared);
            scope.spawn(move || {
                start.wait();
                let mut live = Vec::new();
                for _ in 0..rounds {
                    step(&mut random, allocator, timelines, &mut live);
                    if random.below(10) == 0 {
                        // Slices change hands.
                        let mut shared = shared.lock().unwrap();
                        std::mem::swap(&mut *shared, &mut live);
                    }
                }
            });
        }
    });
    let mut replay = Replay::default();
    replay.go_on(allocator.device().take_events());
    replay.assert_is(&allocator);
    assert!(replay.count(EventKind::SliceAllocated) > u64::from(THREADS) * rounds / 4, "{:?}", replay.counts);
    end(&allocator, &mut replay);
}

/// The device gives the handle out again before the call that takes it back has returned.
#[test]
fn a_page_whose_handle_comes_again_at_once_has_gone_before() {
    let allocator = Listening::under(&[direct(None)], slice_events());
    let mut replay = Replay::default();
    for round in 0..3 {
        let slices = [(); 3].map(|()| place(&allocator, K));
        slices.iter().for_each(|slice| allocator.free(slice.id).unwrap());
        allocator.device().after_next_return(|it| assert!(it.allocate(&Request::new(2 * K)).is_ok()));
        allocator.trim(0).unwrap();
        replay.go_on(allocator.device().take_events());
        replay.assert_is(&allocator);
        assert_eq!(allocator.statistics().pages, round + 1);
    }
}

/// The same where the device has refused to take it back before.
#[test]
fn a_page_whose_handle_comes_again_at_once_has_gone_before_also_if_it_was_stuck() {
    let allocator = Listening::under(&[direct(None)], slice_events());
    let slice = place(&allocator, K);
    allocator.free(slice.id).unwrap();
    allocator.device().ledger.keep_everything(true);
    allocator.trim(0).unwrap_err();
    allocator.device().ledger.keep_everything(false);
    allocator.device().after_next_return(|it| assert!(it.allocate(&Request::new(2 * K)).is_ok()));
    allocator.trim(0).unwrap();
    let mut replay = Replay::default();
    replay.go_on(allocator.device().take_events());
    replay.assert_is(&allocator);
}

#[test]
fn pages_of_a_dry_run_are_told_of_when_the_device_gives_them() {
    let allocator = Listening::under(&[direct(None)], slice_events().with_dry_run());
    let slices = [K, 2 * K, 3 * K].map(|size| place(&allocator, size));
    let pages = |kind| allocator.device().take_events().iter().filter(|event| event.kind == kind).count();
    assert_eq!(pages(EventKind::PageAllocated), 0);
    let slice = allocator.resolve(slices[0].id).unwrap();
    let events = allocator.device().take_events();
    let told: Vec<_> = events.iter().map(|event| (event.kind, event.memory, event.size)).collect();
    assert_eq!(told, [(EventKind::PageAllocated, slice.memory, K)]);
    slices.iter().for_each(|slice| allocator.free(slice.id).unwrap());
    allocator.trim(0).unwrap();
    assert_eq!(pages(EventKind::PageReturned), 1);
}

/// Only the device knows of it, and the allocator until it is gone.
#[test]
fn a_page_that_is_no_good_and_that_the_device_does_not_take_back_is_told_of() {
    let allocator = Listening::under(&[direct(None).with_granule(4 * K)], slice_events());
    allocator.device().misalign_next();
    allocator.device().ledger.keep_everything(true);
    assert!(allocator.allocate(&Request::new(K)).is_err());
    allocator.device().ledger.keep_everything(false);
    assert_eq!(allocator.statistics().pages_stuck, 1);
    let mut replay = Replay::default();
    replay.go_on(allocator.device().take_events());
    replay.assert_is(&allocator);
    allocator.trim(0).unwrap();
    replay.go_on(allocator.device().take_events());
    replay.assert_is(&allocator);
}
