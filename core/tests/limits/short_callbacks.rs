//! Memory is short: callbacks that say how far timelines are, and use the allocator meanwhile.

use crate::common::M;
use crate::common::devices::{LedgerDevice, NONE_LEFT};
use crate::common::pools::{KINDS, options, sliced};
use slicepool_core::{
    Allocator, Device, DeviceError, DeviceMemory, Error, LiveSlices, PageRequest, Point, PoolOptions, Request, SliceId,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

type Tell = dyn Fn(&Allocator<Telling>, u32) -> Option<u64> + Send + Sync;

/// Answers how far a timeline is with `tell`.
struct Telling {
    ledger: LedgerDevice,
    allocator: OnceLock<Weak<Allocator<Telling>>>,
    tell: Box<Tell>,
}

impl Device for Telling {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.ledger.allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.ledger.deallocate(memory)
    }

    fn completed(&self, timeline: u32) -> Option<u64> {
        let allocator = self.allocator.get().and_then(Weak::upgrade).unwrap();
        (self.tell)(&allocator, timeline)
    }
}

fn telling(
    pool: &PoolOptions,
    tell: impl Fn(&Allocator<Telling>, u32) -> Option<u64> + Send + Sync + 'static,
) -> Arc<Allocator<Telling>> {
    let device = Telling { ledger: LedgerDevice::new(), allocator: OnceLock::new(), tell: Box::new(tell) };
    let allocator = Arc::new(Allocator::try_new(device, std::slice::from_ref(pool), options()).unwrap());
    allocator.device().allocator.set(Arc::downgrade(&allocator)).unwrap();
    allocator
}

/// Fills a device of one MiB with slices of 2^16 bytes, each of which waits for a timeline of its own.
fn fill(allocator: &Allocator<Telling>) {
    allocator.device().ledger.limit_to(M);
    let slices = [0; 16].map(|_| allocator.allocate(&Request::new(1 << 16)).unwrap());
    for (timeline, slice) in (0..).zip(slices) {
        allocator.free_after(slice.id, &[Point::new(timeline, 5)]).unwrap();
    }
    assert_eq!(allocator.statistics().slices_pending, 16);
}

/// A callback may collect what it knows of, and forget timelines, instead of answering or as well.
#[test]
fn a_callback_that_collects_and_forgets_timelines_itself_helps_as_well() {
    for (name, pool) in KINDS {
        for answer in [None, Some(3), Some(5)] {
            let asked: Arc<Mutex<Vec<u32>>> = Arc::default();
            let log = asked.clone();
            let allocator = telling(&pool, move |allocator, timeline| {
                log.lock().unwrap().push(timeline);
                // This one, and the next but one.
                for done in [timeline, (timeline + 2) % 16] {
                    allocator.collect(done, 5).unwrap();
                    allocator.timeline_forget(done).unwrap();
                }
                answer
            });
            fill(&allocator);
            allocator.allocate(&Request::new(1 << 16)).unwrap();
            assert_eq!(allocator.statistics().slices_pending, 0, "{name}: all are done with");
            let mut asked = asked.lock().unwrap();
            let count = asked.len();
            asked.sort_unstable();
            asked.dedup();
            assert!(count == asked.len() && count >= 8, "{name}: {asked:?}");
            assert_eq!(allocator.check(), Ok(()));
        }
    }
}

/// A callback may allocate and free what is held, and let other slices wait.
#[test]
fn a_callback_that_uses_the_allocator_finds_it_as_it_is() {
    for (name, pool) in KINDS {
        let spare: Arc<Mutex<Option<SliceId>>> = Arc::default();
        let slot = spare.clone();
        let allocator = telling(&pool, move |allocator, timeline| {
            if let Some(id) = slot.lock().unwrap().take() {
                allocator.free(id).unwrap();
                let again = allocator.allocate(&Request::new(1 << 16)).unwrap();
                allocator.free_after(again.id, &[Point::new(100, 1)]).unwrap();
            }
            if timeline == 100 { Some(1) } else { None }
        });
        fill(&allocator);
        // Timeline 100 is in use from the first callback on.
        allocator.collect(3, 5).unwrap();
        *spare.lock().unwrap() = Some(allocator.allocate(&Request::new(1 << 16)).unwrap().id);
        allocator.allocate(&Request::new(1 << 16)).unwrap();
        let figures = allocator.statistics();
        assert_eq!((figures.slices, figures.slices_pending, allocator.check()), (1, 15, Ok(())), "{name}");
    }
}

/// An allocator cannot go away while such a callback is running, forced or not.
#[test]
fn closing_from_within_a_callback_that_tells_what_is_completed_is_refused() {
    let results: Arc<Mutex<Vec<Result<(), Error>>>> = Arc::default();
    let log = results.clone();
    let allocator = telling(&sliced(M, M, None), move |allocator, _| {
        let mut log = log.lock().unwrap();
        for live in [LiveSlices::Refuse, LiveSlices::Free] {
            log.push(allocator.can_destroy(live));
            log.push(allocator.close(live));
        }
        None
    });
    allocator.device().ledger.limit_to(M);
    let id = allocator.allocate(&Request::new(M)).unwrap().id;
    allocator.free_after(id, &[Point::new(1, 5)]).unwrap();
    let refused = allocator.allocate(&Request::new(M));
    let results = results.lock().unwrap();
    assert!(results.iter().all(|it| matches!(it, Err(Error::Busy { in_flight: 1.., .. }))), "{results:?}");
    assert_eq!(refused, Err(Error::OutOfDeviceMemory { size: M, code: NONE_LEFT }));
}

/// A callback that allocates what does not fit either comes to an end, like one that is asked for help.
#[test]
fn a_callback_that_tells_what_is_completed_and_allocates_comes_to_an_end() {
    let (depth, deepest) = <(Arc<AtomicU64>, Arc<AtomicU64>)>::default();
    let (inside, most) = (depth.clone(), deepest.clone());
    let allocator = telling(&sliced(M, M, None), move |allocator, _| {
        let level = inside.fetch_add(1, Ordering::Relaxed) + 1;
        most.fetch_max(level, Ordering::Relaxed);
        // Ends in the end, so that the test fails and the stack does not overflow.
        if level < 100 {
            let refused = allocator.allocate(&Request::new(M));
            assert_eq!(refused, Err(Error::OutOfDeviceMemory { size: M, code: NONE_LEFT }));
        }
        inside.fetch_sub(1, Ordering::Relaxed);
        None
    });
    allocator.device().ledger.limit_to(M);
    let id = allocator.allocate(&Request::new(M)).unwrap().id;
    allocator.free_after(id, &[Point::new(1, 5)]).unwrap();
    assert_eq!(allocator.allocate(&Request::new(M)), Err(Error::OutOfDeviceMemory { size: M, code: NONE_LEFT }));
    let deepest = deepest.load(Ordering::Relaxed);
    assert!((1..=8).contains(&deepest), "{deepest} calls within one another");
}
