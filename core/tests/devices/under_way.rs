//! What must hold while a callback is under way: the allocator stays, answers are not taken for others, nothing is done
//! twice, and what was asked for in vain is given as soon as there is some.

use crate::common::devices::LedgerDevice;
use crate::common::pools::{direct, options, place, sliced, touch};
use crate::common::{K, M};
use slicepool_core::{
    Allocator, Budget, Device, DeviceError, DeviceMemory, Error, FillReason, FillRequest, HostMemory, LiveSlices,
    LockKind, PageRequest, Point, Request,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;

type Hook = Box<dyn Fn(&Allocator<Hooked>) + Send + Sync>;

/// A device whose callbacks do what a test says with the allocator they serve.
#[derive(Default)]
struct Hooked {
    ledger: Option<LedgerDevice>,
    allocator: OnceLock<Weak<Allocator<Hooked>>>,
    deallocating: Mutex<Option<Arc<Hook>>>,
    completed: Mutex<Option<(u64, Arc<Hook>)>>,
    filling: Mutex<Option<Arc<Hook>>>,
    fills: AtomicU32,
}

impl Hooked {
    fn ledger(&self) -> &LedgerDevice {
        self.ledger.as_ref().unwrap()
    }

    fn call(&self, hook: &Mutex<Option<Arc<Hook>>>) {
        let hook = hook.lock().unwrap().clone();
        if let (Some(hook), Some(allocator)) = (hook, self.allocator.get().and_then(Weak::upgrade)) {
            hook(&allocator);
        }
    }
}

impl Device for Hooked {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.ledger().allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.call(&self.deallocating);
        self.ledger().deallocate(memory)
    }

    fn completed(&self, _: u32) -> Option<u64> {
        let (answer, hook) = self.completed.lock().unwrap().clone()?;
        let allocator = self.allocator.get().and_then(Weak::upgrade)?;
        hook(&allocator);
        Some(answer)
    }

    fn can_fill(&self) -> bool {
        true
    }

    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        self.fills.fetch_add(1, Ordering::SeqCst);
        if request.reason == FillReason::Zero {
            return Err(DeviceError::Failed(-5));
        }
        self.call(&self.filling);
        Err(DeviceError::Failed(-4))
    }
}

fn hooked(options: slicepool_core::AllocatorOptions) -> Arc<Allocator<Hooked>> {
    let device = Hooked { ledger: Some(LedgerDevice::new()), ..Hooked::default() };
    let allocator = Arc::new(Allocator::try_new(device, &[sliced(M, M, None)], options).unwrap());
    allocator.device().allocator.set(Arc::downgrade(&allocator)).unwrap();
    allocator
}

/// Whatever makes a page go back: the allocator cannot go away under the call that gives it back.
#[test]
fn an_allocator_cannot_be_closed_by_the_device_that_takes_a_page_back() {
    let made: [fn(&Allocator<Hooked>); 3] = [
        // A page that holds nothing makes room.
        |allocator| {
            touch(allocator, 100);
            allocator.allocate(&Request::new(100).persistent()).unwrap();
        },
        // One that was refused before does.
        |allocator| {
            touch(allocator, 100);
            allocator.device().ledger().keep_everything(true);
            assert!(allocator.trim(0).is_err());
            allocator.device().ledger().keep_everything(false);
            allocator.allocate(&Request::new(100)).unwrap();
        },
        // One was taken for a slice that could not be filled.
        |allocator| assert!(allocator.allocate(&Request::new(100).zeroed()).is_err()),
    ];
    for (case, call) in made.into_iter().enumerate() {
        let allocator = hooked(options().with_max_bytes(Some(M)));
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let hook: Hook = Box::new(move |allocator| {
            count.fetch_add(1, Ordering::SeqCst);
            let busy = allocator.can_destroy(LiveSlices::Free);
            assert!(matches!(busy, Err(Error::Busy { in_flight: 1.., .. })), "{busy:?}");
            assert!(allocator.close(LiveSlices::Free).is_err());
        });
        *allocator.device().deallocating.lock().unwrap() = Some(Arc::new(hook));
        call(&allocator);
        assert!(asked.load(Ordering::SeqCst) >= 1, "{case}");
        *allocator.device().deallocating.lock().unwrap() = None;
        allocator.close(LiveSlices::Free).unwrap();
        allocator.device().ledger().assert_all_returned();
    }
}

/// The number stands for another timeline by the time the answer comes.
#[test]
fn what_a_device_says_of_a_timeline_is_not_taken_for_one_that_took_its_number() {
    let allocator = hooked(options().with_max_bytes(Some(2 * M)));
    let (old, new) = (place(&allocator, M), place(&allocator, M));
    allocator.free_after(old.id, &[Point::new(7, 90)]).unwrap();
    let hook: Hook = Box::new(move |allocator| {
        if allocator.get(new.id).is_ok() {
            allocator.collect(7, 100).unwrap();
            allocator.timeline_forget(7).unwrap();
            allocator.free_after(new.id, &[Point::new(7, 50)]).unwrap();
        }
    });
    *allocator.device().completed.lock().unwrap() = Some((100, Arc::new(hook)));
    let slice = place(&allocator, M);
    assert_eq!((slice.memory, allocator.statistics().slices_pending), (old.memory, 1));
    *allocator.device().completed.lock().unwrap() = None;
    // Nor is it remembered.
    allocator.collect(7, 49).unwrap();
    allocator.free_after(slice.id, &[Point::new(7, 50)]).unwrap();
    assert_eq!(allocator.statistics().slices_pending, 2);
    allocator.collect(7, 50).unwrap();
    assert_eq!(allocator.statistics().slices_pending, 0);
}

/// Each is tried once by the call that began with it, however often a callback collects.
#[test]
fn collecting_from_within_a_fill_that_fails_tries_nothing_again() {
    let allocator = hooked(options());
    for _ in 0..50 {
        let slice = allocator.allocate(&Request::new(1000).scrubbed()).unwrap();
        allocator.free_after(slice.id, &[Point::new(1, 1)]).unwrap();
    }
    let hook: Hook = Box::new(|allocator| _ = allocator.collect(1, 1));
    *allocator.device().filling.lock().unwrap() = Some(Arc::new(hook));
    assert_eq!(allocator.device().fills.load(Ordering::SeqCst), 0);
    assert!(allocator.collect(1, 1).is_err());
    assert_eq!(allocator.device().fills.load(Ordering::SeqCst), 50);
    assert_eq!(allocator.statistics().slices_pending, 50);
    *allocator.device().filling.lock().unwrap() = None;
    allocator.close(LiveSlices::Free).unwrap();
}

/// Limits have room for one page, so of those that try at once all but one are refused on the way.
#[test]
fn a_slice_that_another_thread_has_just_resolved_is_resolved() {
    for _ in 0..500 {
        let device = LedgerDevice::new();
        let options = options().with_dry_run().with_max_pages(Some(1));
        let allocator = Allocator::try_new(&device, &[sliced(64 * K, 64 * K, None)], options).unwrap();
        let slices = [place(&allocator, 100), place(&allocator, 100)];
        thread::scope(|scope| {
            for slice in slices {
                let allocator = &allocator;
                // Either it has its memory, or the other has just begun to get it.
                scope.spawn(move || match allocator.resolve(slice.id) {
                    Ok(found) => assert_ne!(found.memory, u64::MAX),
                    Err(error) => assert!(matches!(error, Error::PageCountExceeded { .. }), "{error:?}"),
                });
            }
        });
        assert_eq!(device.pages(), 1);
        for slice in slices {
            assert_ne!(allocator.resolve(slice.id).unwrap().memory, u64::MAX);
        }
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// What becomes idle only later goes too, as long as it is wanted.
#[test]
fn pages_above_a_limit_that_fell_go_when_they_become_idle() {
    let device = LedgerDevice::new();
    let budget = Budget::try_new(HostMemory::global(), LockKind::spin(), None, None).unwrap();
    let allocator = Allocator::try_new(&device, &[direct(None)], options().with_budget(&budget)).unwrap();
    let slices = [0; 4].map(|_| place(&allocator, M));
    budget.set_limits(Some(M), None);
    for slice in slices {
        allocator.free(slice.id).unwrap();
    }
    assert_eq!((device.bytes(), allocator.statistics().pages_idle), (M, 1));
    // And no more than that: it is under its limit.
    touch(&allocator, M);
    assert_eq!(device.bytes(), M);
}

/// Otherwise whatever becomes idle would go for it for ever.
#[test]
fn what_a_lower_limit_puts_out_of_reach_is_not_wanted_any_more() {
    let device = LedgerDevice::new();
    let budget = Budget::try_new(HostMemory::global(), LockKind::spin(), Some(4 * M), None).unwrap();
    let make = || Allocator::try_new(&device, &[direct(None)], options().with_budget(&budget)).unwrap();
    let (one, other) = (make(), make());
    let held = place(&one, M);
    assert!(matches!(other.allocate(&Request::new(4 * M)), Err(Error::BudgetExceeded { .. })));
    budget.set_limits(Some(3 * M), None);
    touch(&one, M);
    assert_eq!((device.bytes(), one.statistics().pages_idle), (2 * M, 1));
    one.free(held.id).unwrap();
    assert_eq!(one.statistics().pages_idle, 2);
    // Nor when the other has gone.
    assert!(matches!(other.allocate(&Request::new(2 * M)), Err(Error::BudgetExceeded { .. })));
    drop(one);
    touch(&other, M);
    assert_eq!(other.statistics().pages_idle, 1);
}
