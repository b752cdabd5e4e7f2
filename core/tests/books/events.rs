//! What an allocator tells of itself.

use crate::common::devices::{KEPT, NONE_LEFT};
use crate::common::filler::{Fill, Filler};
use crate::common::listening::Listening;
use crate::common::lock::{WatchedLock, yielding};
use crate::common::meeting::Meeting;
use crate::common::pools::{direct, exclusive, options, place, sliced};
use crate::common::sums::{all_ranges, assert_held};
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Debugging, Device, DeviceFault, DeviceLayout, Error, Event, EventKind, Label,
    LiveSlices, MemoryChoice, MemoryType, OwnPages, PageRequest, Point, PoolKinds, Request, ResourceKind, Slice,
    SliceId,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;

/// What an event says, but for its number.
type Told = (EventKind, u32, u32, Option<SliceId>, [u64; 4], Option<Error>, Label);

fn told(event: &Event) -> Told {
    let Event { kind, pool, memory_type, id, memory, offset, size, requested, error, label, .. } = *event;
    (kind, pool, memory_type, id, [memory, offset, size, requested], error, label)
}

/// What was told since the last call of this.
fn listen(allocator: &Allocator<Listening>) -> Vec<Told> {
    let events = allocator.device().take_events();
    let rises = events.windows(2).all(|pair| pair[0].sequence < pair[1].sequence);
    assert!(rises, "one thread hears them in order: {events:?}");
    events.iter().map(told).collect()
}

const fn page(kind: EventKind, pool: u32, memory_type: u32, memory: u64, size: u64) -> Told {
    (kind, pool, memory_type, None, [memory, 0, size, 0], None, Label::NONE)
}

fn of(kind: EventKind, pool: u32, slice: &Slice, requested: u64, label: Label) -> Told {
    (kind, pool, pool, Some(slice.id), [slice.memory, slice.offset, slice.size, requested], None, label)
}

/// Two memory types with a pool of sliced pages each.
fn two_types(options: AllocatorOptions) -> Arc<Allocator<Listening>> {
    let types = [MemoryType::new(128 * M, 32), MemoryType::new(64 * M, 32)];
    let pools = [sliced(64 * K, 64 * K, None), sliced(M, M, None).in_memory_type(1)];
    Listening::with_memory(&DeviceLayout::new(&types, &[]), &pools, options)
}

// ---- fields

#[test]
fn a_slice_is_told_of_from_its_allocation_to_its_end() {
    let allocator = two_types(AllocatorOptions::default().with_slice_events());
    let label = Label::named("a slice").with_user_data(5);
    let request = Request::new(1000).from_memory(MemoryChoice::of_types(2));
    let slice = allocator.allocate_labelled(&request, &label).unwrap();
    assert_eq!(
        listen(&allocator),
        [page(EventKind::PageAllocated, 1, 1, slice.memory, M), of(EventKind::SliceAllocated, 1, &slice, 1000, label)]
    );
    let slice = allocator.try_resize(slice.id, 100).unwrap();
    assert_eq!(listen(&allocator), [of(EventKind::SliceResized, 1, &slice, 100, label)]);
    allocator.set_name(slice.id, "renamed").unwrap();
    let label = Label::named("renamed").with_user_data(5);
    assert_eq!(listen(&allocator), []);
    allocator.free_after(slice.id, &[Point { timeline: 1, value: 2 }]).unwrap();
    assert_eq!(listen(&allocator), [of(EventKind::SlicePending, 1, &slice, 0, label)]);
    allocator.collect(1, 1).unwrap();
    assert_eq!(listen(&allocator), []);
    allocator.collect(1, 2).unwrap();
    assert_eq!(listen(&allocator), [of(EventKind::SliceFreed, 1, &slice, 0, label)]);
    // One that waits for nothing is not told of as pending.
    for points in [&[][..], &[Point { timeline: 1, value: 2 }]] {
        let slice = allocator.allocate(&request).unwrap();
        allocator.free_after(slice.id, points).unwrap();
        let many = [(); 2].map(|()| allocator.allocate(&request).unwrap());
        allocator.free_after_many(&many.map(|slice| slice.id), points).unwrap();
        let kinds = [EventKind::SliceAllocated, EventKind::SliceFreed];
        let heard = listen(&allocator);
        assert_eq!(heard.len(), 6);
        for slice in [slice].iter().chain(&many) {
            let its: Vec<_> = heard.iter().filter(|told| told.3 == Some(slice.id)).map(|told| told.0).collect();
            assert_eq!(its, kinds);
        }
    }
    allocator.close(LiveSlices::Refuse).unwrap();
}

#[test]
fn pages_are_told_of_when_they_come_and_go() {
    let pools = [sliced(64 * K, 64 * K, None).with_min_pages(2), direct(None)];
    let allocator = Listening::under(&pools, options());
    let taken = [1, 2].map(|memory| page(EventKind::PageAllocated, 0, 0, memory, 64 * K));
    assert_eq!(listen(&allocator), taken);
    allocator.prefill(0, 3).unwrap();
    assert_eq!(listen(&allocator), [page(EventKind::PageAllocated, 0, 0, 3, 64 * K)]);
    let mut memory = allocator.device().ledger.allocate(&PageRequest::new(32 * K, 32)).unwrap();
    memory.size = 32 * K;
    allocator.adopt(1, &memory).unwrap();
    assert_eq!(listen(&allocator), [page(EventKind::PageAdopted, 1, 0, 4, 32 * K)]);
    assert!(allocator.adopt(1, &memory).is_err() && listen(&allocator).is_empty());

    allocator.device().ledger.keep_everything(true);
    allocator.trim(160 * K).unwrap_err();
    allocator.device().ledger.keep_everything(false);
    let refused = Some(Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT });
    let heard = listen(&allocator);
    assert!(!heard.is_empty());
    for told in &heard {
        assert_eq!((told.0, told.5, told.6), (EventKind::PageRefused, refused, Label::NONE));
    }
    allocator.cleanup().unwrap();
    let mut gone: Vec<_> = listen(&allocator);
    gone.sort_by_key(|told| told.4);
    let mut all: Vec<_> = (1..4).map(|memory| page(EventKind::PageReturned, 0, 0, memory, 64 * K)).collect();
    all.push(page(EventKind::PageReturned, 1, 0, 4, 32 * K));
    assert_eq!(gone, all);
}

#[test]
fn a_page_that_serves_another_pool_is_told_of_with_that_pool() {
    let memory = MemoryType::new(128 * M, 32).with_granularity(4 * K);
    let pools = [PoolKinds::Linear, PoolKinds::Optimal].map(|kinds| sliced(M, M, None).with_kinds(kinds));
    let allocator = Listening::under(&pools, options().with_memory_type(memory).with_slice_events());
    let slice = place(&allocator, 100);
    allocator.free(slice.id).unwrap();
    listen(&allocator);
    let image = allocator.allocate(&Request::new(100).of_kind(ResourceKind::Optimal)).unwrap();
    let heard = listen(&allocator);
    assert_eq!(heard[0], page(EventKind::PageMoved, 1, 0, slice.memory, M));
    assert_eq!((heard.len(), heard[1].0, heard[1].3), (2, EventKind::SliceAllocated, Some(image.id)));
    allocator.close(LiveSlices::Free).unwrap();
}

#[test]
fn pages_of_slices_own_are_told_of_with_what_stands_for_their_pool() {
    let allocator = two_types(AllocatorOptions::default().with_slice_events());
    let data = std::ptr::without_provenance_mut(1);
    for memory_type in 0..2 {
        let request = Request::new(1000).from_memory(MemoryChoice::of_types(1 << memory_type));
        for (pages, request) in [
            (OwnPages::Persistent, request.persistent()),
            (OwnPages::Dedicated, request.dedicated()),
            (OwnPages::Once, request.with_device_data(data)),
        ] {
            let slice = allocator.allocate(&request).unwrap();
            let pool = pages.pool(memory_type);
            let mut allocated = of(EventKind::SliceAllocated, pool, &slice, 1000, Label::NONE);
            allocated.2 = memory_type;
            let taken = page(EventKind::PageAllocated, pool, memory_type, slice.memory, slice.size);
            assert_eq!(listen(&allocator), [taken, allocated]);
        }
    }
    allocator.close(LiveSlices::Free).unwrap();
}

#[test]
fn a_request_that_is_refused_for_want_of_memory_is_told_of_with_the_error() {
    let allocator = two_types(AllocatorOptions::default());
    allocator.device().ledger.limit_to(0);
    for (memory_type, size, page) in [(0, 1000, 64 * K), (1, 5000, M)] {
        let request = Request::new(size).from_memory(MemoryChoice::of_types(1 << memory_type));
        let error = Error::OutOfDeviceMemory { size: page, code: NONE_LEFT };
        assert_eq!(allocator.allocate(&request), Err(error));
        let heard = listen(&allocator);
        let [(kind, _, of_type, id, [_, offset, asked, requested], why, label)] = heard[..] else {
            panic!("{heard:?}")
        };
        assert_eq!((kind, of_type, id, why), (EventKind::OutOfMemory, memory_type, None, Some(error)));
        assert_eq!((offset, asked, requested, label), (0, size, size, Label::NONE));
        // What can never be served is no want of memory.
        assert!(allocator.allocate(&Request::new(u64::MAX)).is_err());
        assert!(allocator.allocate(&Request::new(0)).is_err());
        assert_eq!(listen(&allocator), []);
    }
}

#[test]
fn each_live_slice_is_told_of_when_the_allocator_is_to_go() {
    for slice_events in [false, true] {
        let mut options = options().with_slice_events();
        options.slice_events = slice_events;
        let allocator = Listening::under(&[sliced(M, M, None), direct(None), exclusive(M)], options);
        let slices: Vec<_> = (0..9)
            .map(|i| {
                let request = Request::new(1000 + i).in_pool(i as u32 % 3);
                let label = if i == 4 { Label::NONE } else { Label::named(&format!("slice {i}")).with_user_data(i) };
                (allocator.allocate_labelled(&request, &label).unwrap(), 1000 + i, label)
            })
            .collect();
        let waiting = allocator.allocate_labelled(&Request::new(50), &Label::named("not live")).unwrap();
        allocator.free_after(waiting.id, &[Point { timeline: 1, value: 1 }]).unwrap();
        listen(&allocator);
        for live in [LiveSlices::Refuse, LiveSlices::Refuse, LiveSlices::Free] {
            assert_eq!(allocator.close(live).is_ok(), live == LiveSlices::Free);
            let mut leaks: Vec<_> =
                listen(&allocator).into_iter().filter(|it| it.0 == EventKind::SliceLeaked).collect();
            leaks.sort_by_key(|told| told.4[3]);
            let expected = slices.iter().enumerate().map(|(i, (slice, requested, label))| {
                let mut told = of(EventKind::SliceLeaked, i as u32 % 3, slice, *requested, *label);
                told.2 = 0;
                told
            });
            assert_eq!(leaks, expected.collect::<Vec<_>>());
        }
        assert_eq!(allocator.close(LiveSlices::Free), Ok(()));
        assert_eq!(listen(&allocator), []);
    }
}

/// Whoever drops it hears of it, too.
#[test]
fn a_dropped_allocator_tells_of_what_was_live() {
    static HEARD: Mutex<Vec<(EventKind, Label)>> = Mutex::new(Vec::new());
    struct Dropped(Listening);
    impl Device for Dropped {
        fn allocate(&self, request: &PageRequest) -> Result<slicepool_core::DeviceMemory, slicepool_core::DeviceError> {
            self.0.allocate(request)
        }
        fn deallocate(&self, memory: &slicepool_core::DeviceMemory) -> Result<(), slicepool_core::DeviceError> {
            self.0.deallocate(memory)
        }
        fn hears_events(&self) -> bool {
            true
        }
        fn event(&self, event: &Event) {
            HEARD.lock().unwrap().push((event.kind, event.label));
        }
    }
    let allocator = Allocator::try_new(Dropped(Listening::new()), &[sliced(M, M, None)], options()).unwrap();
    allocator.allocate_labelled(&Request::new(1), &Label::named("forgotten")).unwrap();
    drop(allocator);
    let heard: Vec<_> = HEARD.lock().unwrap().drain(..).collect();
    let expected = [
        (EventKind::PageAllocated, Label::NONE),
        (EventKind::SliceLeaked, Label::named("forgotten")),
        (EventKind::PageReturned, Label::NONE),
    ];
    assert_eq!(heard, expected);
}

// ---- which

#[test]
fn slices_are_not_told_of_unless_that_was_asked_for() {
    let allocator = Listening::under(&[sliced(M, M, None)], options());
    let request = Request::new(1000);
    for request in [request, request.scrubbed(), request.zeroed(), request.persistent()] {
        let slice = allocator.allocate_labelled(&request, &Label::named("a")).unwrap();
        let _ = allocator.try_resize(slice.id, 100);
        allocator.free(slice.id).unwrap();
        let batch = allocator.allocate_many(&[request; 3]).unwrap();
        let ids: Vec<_> = batch.iter().map(|slice| slice.id).collect();
        allocator.free_after_many(&ids, &[Point { timeline: 1, value: 1 }]).unwrap();
        allocator.collect(1, 1).unwrap();
        let kinds = allocator.device().take_kinds();
        assert!(kinds.iter().all(|kind| *kind == EventKind::PageAllocated), "{kinds:?}");
    }
    assert_held(&allocator, &allocator.device().ledger);
}

/// Undone before anybody knew.
#[test]
fn a_batch_that_is_refused_takes_back_what_it_has_told() {
    let allocator = Listening::under(&[sliced(64 * K, 64 * K, Some(128 * K))], options().with_slice_events());
    let refused = allocator.allocate_many(&[Request::new(30 * K); 5]).map(drop).unwrap_err();
    assert_eq!(refused.index, 4);
    let heard = listen(&allocator);
    let count = |kind| heard.iter().filter(|told| told.0 == kind).count();
    assert_eq!([EventKind::SliceAllocated, EventKind::SliceFreed].map(count), [4, 4]);
    assert_eq!([EventKind::PageAllocated, EventKind::PageReturned].map(count), [2, 2]);
    assert_eq!((count(EventKind::OutOfMemory), heard.len()), (1, 13));
}

// ---- callbacks

#[test]
fn who_is_told_may_use_the_whole_interface_but_not_end_the_allocator() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let lock = WatchedLock::new();
    let options = options().with_lock(lock.kind()).with_slice_events();
    let allocator = Listening::under(&[sliced(64 * K, 64 * K, None), direct(None)], options);
    allocator.device().in_each_event(|it, event| {
        CALLS.fetch_add(1, Ordering::Relaxed);
        let slice = it.allocate_labelled(&Request::new(500), &Label::named("inner")).unwrap();
        if let Some(id) = event.id {
            let live = !matches!(event.kind, EventKind::SliceFreed | EventKind::SlicePending);
            assert_eq!(it.get(id).is_ok(), live, "{event:?}");
            assert_eq!(it.label(id), if live { Ok(event.label) } else { Err(Error::StaleHandle) });
        }
        it.set_name(slice.id, "renamed").unwrap();
        it.statistics();
        it.write_json(&mut String::new()).unwrap();
        assert!(it.find(slice.memory, slice.offset).is_some());
        it.try_resize(slice.id, 100).unwrap();
        it.free(slice.id).unwrap();
        let batch = it.allocate_many(&[Request::new(500); 3]).unwrap();
        it.free_many(&[batch[0].id]).unwrap();
        it.free_after_many(&[batch[1].id, batch[2].id], &[Point { timeline: 9, value: 0 }]).unwrap();
        it.collect(8, 1).unwrap();
        it.trim(64 * K).unwrap();
        for live in [LiveSlices::Refuse, LiveSlices::Free] {
            assert!(matches!(it.close(live), Err(Error::Busy { in_flight: 1.., .. })));
            assert!(matches!(it.can_destroy(live), Err(Error::Busy { in_flight: 1.., .. })));
        }
        it.check().unwrap();
    });
    let mut live = Vec::new();
    for i in 0..100 {
        live.push(place(&allocator, 100 + i * 200));
        if i % 3 == 0 {
            let slice = live.swap_remove(i as usize % live.len());
            allocator.try_resize(slice.id, 50).unwrap();
            allocator.free_after(slice.id, &[Point { timeline: 1, value: i }]).unwrap();
        }
        if i % 10 == 0 {
            allocator.collect(1, i).unwrap();
            allocator.trim(0).unwrap();
        }
    }
    let ids: Vec<_> = live.iter().map(|slice| slice.id).collect();
    allocator.free_many(&ids).unwrap();
    allocator.collect(1, 1000).unwrap();
    allocator.trim(0).unwrap();
    assert!(CALLS.load(Ordering::Relaxed) > 300);
    assert_eq!(allocator.statistics().slices, 0);
    assert!(all_ranges(&allocator).iter().all(|range| range.id.is_none()));
    assert_held(&allocator, &allocator.device().ledger);
    drop(allocator);
    lock.assert_used_rightly();
}

// ---- waiting for more than points

#[test]
fn a_scrubbed_slice_is_pending_while_it_is_overwritten() {
    let allocator = Listening::under(&[sliced(M, M, None)], options().with_slice_events());
    let slice = allocator.allocate(&Request::new(1000).scrubbed()).unwrap();
    allocator.device().fill_so(Fill::Until(Point { timeline: 1, value: 1 }));
    listen(&allocator);
    allocator.free(slice.id).unwrap();
    let pending = of(EventKind::SlicePending, 0, &slice, 1000, Label::NONE);
    assert_eq!(listen(&allocator).iter().map(|told| (told.0, told.3)).collect::<Vec<_>>(), [(pending.0, pending.3)]);
    allocator.collect(1, 1).unwrap();
    assert_eq!(listen(&allocator), [of(EventKind::SliceFreed, 0, &slice, 0, Label::NONE)]);
}

#[test]
fn what_a_callback_frees_together_is_free_when_all_calls_have_returned() {
    let allocator = Listening::under(&[sliced(M, M, None)], options().with_slice_events());
    let others = [(); 3].map(|()| place(&allocator, 100).id);
    let slice = place(&allocator, 100);
    allocator.device().in_each_event(move |it, event| {
        if event.kind == EventKind::SliceFreed && it.get(others[0]).is_ok() {
            it.free_many(&others).unwrap();
        }
    });
    allocator.free_many(&[slice.id]).unwrap();
    let figures = allocator.statistics();
    assert_eq!((figures.slices, figures.slices_pending), (0, 0));
    assert_eq!(allocator.can_destroy(LiveSlices::Refuse), Ok(()));
}

/// As many as there were at first; and none that has been freed meanwhile.
#[test]
fn a_callback_that_allocates_for_each_leaked_slice_or_frees_others_comes_to_an_end() {
    for frees in [false, true] {
        let allocator = Listening::under(&[sliced(M, M, None)], options());
        let slices: Vec<_> = (0..20).map(|_| place(&allocator, 100)).collect();
        let ids: Vec<_> = slices.iter().map(|slice| slice.id).collect();
        allocator.device().in_each_event(move |allocator, event| {
            if event.kind == EventKind::SliceLeaked && frees {
                ids.iter().filter(|&&id| Some(id) != event.id).for_each(|&id| _ = allocator.free(id));
            } else if event.kind == EventKind::SliceLeaked {
                place(allocator, 100);
            }
        });
        allocator.device().take_events();
        let _ = allocator.close(LiveSlices::Refuse);
        let told = allocator.device().take_kinds();
        let leaked = told.iter().filter(|&&kind| kind == EventKind::SliceLeaked).count();
        assert_eq!(leaked, if frees { 1 } else { 20 }, "{frees}");
    }
}

/// A device that tries to close the allocator whenever it is told of something, and gives up some time.
#[test]
fn closing_from_within_an_event_is_refused_at_once() {
    type Inner = OnceLock<Weak<Allocator<Closing>>>;
    struct Closing(Listening, Inner, AtomicU64);
    impl Device for Closing {
        fn allocate(&self, request: &PageRequest) -> Result<slicepool_core::DeviceMemory, slicepool_core::DeviceError> {
            self.0.allocate(request)
        }
        fn deallocate(&self, memory: &slicepool_core::DeviceMemory) -> Result<(), slicepool_core::DeviceError> {
            self.0.deallocate(memory)
        }
        fn hears_events(&self) -> bool {
            true
        }
        fn event(&self, _: &Event) {
            let allocator = self.1.get().and_then(Weak::upgrade);
            if let Some(allocator) = allocator.filter(|_| self.2.fetch_add(1, Ordering::Relaxed) < 100) {
                assert!(matches!(allocator.close(LiveSlices::Free), Err(Error::Busy { in_flight: 1.., .. })));
            }
        }
    }
    let device = Closing(Listening::new(), OnceLock::new(), AtomicU64::new(0));
    let allocator = Arc::new(Allocator::try_new(device, &[sliced(M, M, None)], options()).unwrap());
    assert!(allocator.device().1.set(Arc::downgrade(&allocator)).is_ok());
    place(&allocator, 100);
    assert_eq!(allocator.device().2.load(Ordering::Relaxed), 1, "one page was taken");
}

/// Without their margins.
#[test]
fn slices_are_told_of_as_large_as_they_were_handed_out() {
    let options = options().with_slice_events().with_debugging(Debugging::new(false, 64));
    let allocator = Listening::under(&[sliced(M, M, None)], options);
    let slice = place(&allocator, 1000);
    allocator.close(LiveSlices::Refuse).unwrap_err();
    let sizes: Vec<_> = listen(&allocator).iter().skip(1).map(|told| (told.0, told.4[2])).collect();
    assert_eq!(sizes, [(EventKind::SliceAllocated, slice.size), (EventKind::SliceLeaked, slice.size)]);
}

/// The other call has looked for the last time before.
#[test]
fn what_two_threads_free_together_is_free_when_both_calls_have_returned() {
    let device = Filler::new();
    let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options().with_lock(yielding())).unwrap();
    let slices = [(); 2].map(|()| allocator.allocate(&Request::new(100).scrubbed()).unwrap().id);
    let meetings = Arc::new([Meeting::of(2), Meeting::of(2)]);
    let met = meetings.clone();
    let first = AtomicU64::new(0);
    device.in_each_fill(move |_| {
        if first.fetch_add(1, Ordering::Relaxed) == 0 {
            met.iter().for_each(Meeting::wait);
        }
    });
    thread::scope(|scope| {
        let other = scope.spawn(|| allocator.free_many(&slices[..1]));
        meetings[0].wait();
        allocator.free_many(&slices[1..]).unwrap();
        meetings[1].wait();
        other.join().unwrap().unwrap();
    });
    let figures = allocator.statistics();
    assert_eq!((figures.slices, figures.slices_pending), (0, 0));
}
