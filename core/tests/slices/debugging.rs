//! Help in finding programs' faults: patterns in slices, and margins behind them.

use crate::common::devices::LedgerDevice;
use crate::common::filler::{Fill, Filler, bytes_of, is_full_of, write_all, write_at};
use crate::common::lock::{self, WatchedLock};
use crate::common::pools::{KINDS, MEMORY, capped, direct, exclusive, full, growing, options, place, sliced};
use crate::common::sums::{State, all_ranges, assert_held};
use crate::common::{K, M};
use slicepool_core::{
    Allocator, BatchError, Debugging, Device, DeviceError, Error, FillReason, LiveSlices, MemoryType, NearPage, Point,
    PoolOptions, Request, Slice,
};
use std::sync::{Arc, Mutex};

const fn pattern() -> Debugging {
    Debugging::new(true, 0)
}

const fn margin(bytes: u64) -> Debugging {
    Debugging::new(false, bytes)
}

fn make<D: Device>(device: D, pools: &[PoolOptions], debugging: Debugging) -> Allocator<D> {
    let options = options().with_debugging(debugging).with_persistent_granule(32);
    Allocator::try_new(device, pools, options).unwrap()
}

/// A pool of each kind, and whether requests are persistent.
fn kinds() -> impl Iterator<Item = (&'static str, PoolOptions, Request)> {
    let ordinary = KINDS.into_iter().map(|(name, pool)| (name, pool, Request::new(1)));
    ordinary.chain([("persistent", direct(None), Request::new(1).persistent())])
}

const fn sized(request: Request, size: u64) -> Request {
    let mut request = request;
    request.size = size;
    request
}

/// The damage at a byte behind a slice's start.
const fn damaged(slice: &Slice, offset: u64) -> Error {
    Error::MarginDamaged { memory: slice.memory, offset: slice.offset + offset }
}

// ---- patterns

/// The patterns are values of the interface.
#[test]
fn new_slices_are_full_of_one_pattern_and_freed_ones_of_another() {
    assert_eq!((Debugging::NEW, Debugging::FREED, Debugging::MARGIN), (0xDC, 0xEF, 0xFD));
    for (name, pool, request) in kinds() {
        let device = Filler::new();
        let allocator = make(&device, &[pool], pattern());
        let slices = [1000, 50, 5000].map(|size| allocator.allocate(&sized(request, size)).unwrap());
        assert!(slices.iter().all(|slice| is_full_of(slice, Debugging::NEW)), "{name}");
        slices.iter().for_each(|slice| write_all(slice, 0xAA));
        allocator.free(slices[1].id).unwrap();
        assert!(is_full_of(&slices[1], Debugging::FREED), "{name}");
        assert!(is_full_of(&slices[0], 0xAA) && is_full_of(&slices[2], 0xAA), "{name}");
        assert_eq!(allocator.free(slices[1].id), Err(Error::StaleHandle), "{name}");
        let again = allocator.allocate(&sized(request, 50)).unwrap();
        assert!(again.memory == slices[1].memory && is_full_of(&again, Debugging::NEW), "{name}");
        let ids = [again.id, slices[0].id, slices[2].id];
        allocator.free_many(&ids).unwrap();
        assert!(slices.iter().all(|slice| is_full_of(slice, Debugging::FREED)), "{name}");
        assert_eq!(device.take_filled(), [], "{name}: the device is not asked");
        assert_held(&allocator, &device.ledger);
    }
}

/// Memory that the device still uses is left alone.
#[test]
fn a_slice_that_waits_keeps_its_contents_until_it_has_waited() {
    for (name, pool, request) in kinds() {
        let device = Filler::new();
        let allocator = make(&device, &[pool], pattern());
        let slices = [1000; 2].map(|size| allocator.allocate(&sized(request, size)).unwrap());
        slices.iter().for_each(|slice| write_all(slice, 0xAA));
        allocator.free_after(slices[0].id, &[Point { timeline: 1, value: 1 }]).unwrap();
        allocator.free_after_many(&[slices[1].id], &[Point { timeline: 1, value: 2 }]).unwrap();
        assert!(slices.iter().all(|slice| is_full_of(slice, 0xAA)), "{name}");
        allocator.collect(1, 1).unwrap();
        assert!(is_full_of(&slices[0], Debugging::FREED) && is_full_of(&slices[1], 0xAA), "{name}");
        allocator.collect(1, 2).unwrap();
        assert!(is_full_of(&slices[1], Debugging::FREED), "{name}");
        assert_eq!(allocator.statistics().slices_pending, 0, "{name}");
        assert_held(&allocator, &device.ledger);
    }
}

/// What the device fills with zeros is full of zeros.
#[test]
fn zeros_take_the_place_of_patterns() {
    let device = Filler::new();
    let allocator = make(&device, &[sliced(M, M, None)], Debugging::new(true, 32));
    let slice = allocator.allocate(&Request::new(1000).zeroed().scrubbed()).unwrap();
    assert!(is_full_of(&slice, 0));
    write_all(&slice, 0xAA);
    allocator.free(slice.id).unwrap();
    assert!(bytes_of(&slice, 32).iter().all(|&byte| byte == 0));
    assert_eq!(
        device.take_filled().iter().map(|it| (it.0, it.3)).collect::<Vec<_>>(),
        [
            (FillReason::Zero, 1024),
            // The margin may have seen something too.
            (FillReason::Scrub, 1024 + 32),
        ]
    );
    device.fill_so(Fill::Never(DeviceError::Failed(3)));
    let before = State::of(&allocator);
    assert!(allocator.allocate(&Request::new(1000).zeroed()).is_err());
    assert_eq!(State::of(&allocator), before);
}

// ---- where slices lie with margins

/// Rounded up to the granule.
#[test]
fn margins_lie_between_slices_and_are_no_part_of_their_size() {
    for (asked, taken) in [(1, 32), (32, 32), (33, 64), (100, 128)] {
        let device = Filler::new();
        let options = options().with_memory_type(MemoryType::new(M, 4096)).with_debugging(margin(asked));
        let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options).unwrap();
        let slices = [100, 128, 31].map(|size| place(&allocator, size));
        let places = slices.map(|slice| (slice.offset, slice.size));
        assert_eq!(places, [(0, 128), (128 + taken, 128), (256 + 2 * taken, 32)]);
        for slice in &slices {
            assert_eq!(allocator.get(slice.id), Ok(*slice));
            // Contents are left as they are; what is behind them is not.
            let bytes = bytes_of(slice, taken);
            let (contents, margin) = bytes.split_at(slice.size as usize);
            assert!(contents.iter().all(|&byte| byte == Filler::OLD));
            assert!(margin.iter().all(|&byte| byte == Debugging::MARGIN));
        }
        let figures = allocator.statistics();
        assert_eq!((figures.in_use, figures.padding), (259, 28 + 1 + 3 * taken));
        let ranges: Vec<_> = all_ranges(&allocator).iter().map(|range| (range.offset, range.size)).collect();
        assert_eq!(ranges[..3], [(0, 128 + taken), (128 + taken, 128 + taken), (256 + 2 * taken, 32 + taken)]);
        let aligned = allocator.allocate(&Request::new(10).aligned(4096)).unwrap();
        assert_eq!(aligned.offset % 4096, 0);
        assert_held(&allocator, &device.ledger);
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// The largest request leaves room for the margin, and whoever asks for more is told so.
#[test]
fn the_largest_request_is_a_margin_smaller_than_the_largest_page() {
    let page = 64 * K;
    let small = MemoryType::new(page, 32);
    let pools = [
        ("sliced", sliced(page, page, None), page - 64),
        ("capped", sliced(page, page, Some(page)), page - 64),
        ("half a page", sliced(page, page / 2, None).with_near_page(NearPage::Never), page / 2),
        ("growing", growing(4 * K, page), page - 64),
        ("growing up to a cap", capped(growing(4 * K, page), 32 * K), 32 * K - 64),
        ("exclusive", exclusive(page), page - 64),
        ("direct", direct(None), page - 64),
    ];
    for (name, pool, largest) in pools {
        let device = Filler::new();
        let options = options().with_memory_type(small).with_debugging(margin(33));
        let allocator = Allocator::try_new(&device, &[pool], options).unwrap();
        let slice = place(&allocator, largest);
        assert_eq!((slice.offset, slice.size), (0, largest), "{name}");
        write_at(&slice, largest + 63, 1);
        assert_eq!(allocator.free(slice.id), Err(damaged(&slice, largest + 63)), "{name}");
        allocator.free(slice.id).unwrap();
        for size in [largest + 1, page, page + 1, u64::MAX] {
            let refused = allocator.allocate(&Request::new(size));
            assert_eq!(refused, Err(Error::TooLarge { size, limit: largest }), "{name}, {size}");
        }
        assert_held(&allocator, &device.ledger);
    }
}

/// A page of its own has the margin on top, so the pool takes what it takes without.
#[test]
fn exclusive_pages_take_what_they_take_without_a_margin() {
    let device = Filler::new();
    let options = options().with_memory_type(MemoryType::new(16 * K, 32)).with_debugging(margin(33));
    let allocator = Allocator::try_new(&device, &[exclusive(1000)], options).unwrap();
    let slice = place(&allocator, 1000);
    assert!((1024..=1152).contains(&slice.size), "{slice:?}");
    assert_eq!(device.ledger.sizes(), [slice.size + 64]);
    assert_eq!(allocator.allocate(&Request::new(1001)), Err(Error::TooLarge { size: 1001, limit: 1000 }));
    allocator.free(slice.id).unwrap();
}

/// Of sizes that nearly fill a page the limit is that of the page, as it is without margins.
#[test]
fn the_largest_request_that_nearly_fills_a_page_is_a_margin_smaller_than_the_page() {
    for bytes in [0, 64] {
        let device = Filler::new();
        let pool = sliced(64 * K, K, None).with_near_page(NearPage::Always);
        let allocator = make(&device, &[pool], margin(bytes));
        let largest = 64 * K - bytes;
        assert_eq!(place(&allocator, largest).size, largest);
        assert_eq!(allocator.allocate(&Request::new(K + 1)), Err(Error::TooLarge { size: K + 1, limit: K }));
        for size in [64 * K + 1, largest + 1] {
            let refused = allocator.allocate(&Request::new(size));
            assert_eq!(refused, Err(Error::TooLarge { size, limit: largest }), "margin {bytes}");
        }
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// Neither a slice and its margin, nor a slice that nearly fills a page and its margin.
#[test]
fn sizes_that_leave_no_room_for_a_margin_are_refused() {
    let device = Filler::new();
    let near = sliced(1024, 32, None).with_near_page(NearPage::Always);
    for (pool, bytes, limit) in [(sliced(64, 64, None), 64, 0), (sliced(64, 64, None), 96, 0), (near, 512, 32)] {
        let allocator = make(&device, &[pool], margin(bytes));
        for size in [limit + 1, 512, 1024] {
            assert_eq!(allocator.allocate(&Request::new(size)), Err(Error::TooLarge { size, limit }));
        }
    }
}

/// A pool without room for a page still says what it could take: as many granules as can be counted with the margin.
#[test]
fn the_largest_size_of_a_pool_without_room_is_countable_with_its_margin() {
    let most = u64::from(u32::MAX) * 32;
    let device = Filler::new();
    let options = options().with_memory_type(MemoryType::new(u64::MAX, 32)).with_debugging(margin(32));
    let allocator = Allocator::try_new(&device, &[sliced(most, most, Some(16))], options).unwrap();
    assert_eq!(allocator.allocate(&Request::new(most - 32)), Err(full(most - 32, 0, 0, 0)));
    let (size, limit) = (most - 31, most - 32);
    assert_eq!(allocator.allocate(&Request::new(size)), Err(Error::TooLarge { size, limit }));
}

/// Sizes of 0 have a margin as others have.
#[test]
fn a_slice_of_no_bytes_has_a_margin_too() {
    for bytes in [1, 32, 33, 64] {
        let device = Filler::new();
        let allocator = make(&device, &[exclusive(0), sliced(M, M, None)], margin(bytes));
        for _ in 0..3 {
            let slice = place(&allocator, 0);
            assert_eq!(allocator.free(slice.id), Ok(()));
        }
        assert_eq!(device.ledger.given(), 1, "the page serves again");
        assert_held(&allocator, &device.ledger);
    }
}

/// At creation.
#[test]
fn margins_that_are_too_large_are_refused() {
    let device = Filler::new();
    let create = |pool: &PoolOptions, bytes| {
        let options = options().with_memory_type(MemoryType::new(16 * M, 32)).with_debugging(margin(bytes));
        Allocator::try_new(&device, std::slice::from_ref(pool), options).map(drop)
    };
    let refused = |value| Err(Error::InvalidArgument { field: c"debug_margin", value });
    assert_eq!(create(&direct(None), Debugging::MAX_MARGIN), Ok(()));
    assert_eq!(create(&direct(None), Debugging::MAX_MARGIN + 1), refused(Debugging::MAX_MARGIN + 1));
    assert_eq!(create(&direct(None).with_granule(Debugging::MAX_MARGIN), 1), Ok(()));
    assert_eq!(create(&direct(None).with_granule(2 * M), 1), refused(1));
    assert_eq!(create(&direct(None).with_granule(2 * M), 0), Ok(()));
    let options = options().with_debugging(margin(u64::MAX));
    assert_eq!(Allocator::try_new(&device, &[direct(None)], options).map(drop), refused(u64::MAX));
}

// ---- damage

type Free = fn(&Allocator<&Filler>, &Slice) -> Result<(), Error>;

/// The first damaged byte is named; then the margin is mended, so that the slice can be freed.
#[test]
fn a_damaged_margin_is_found_when_the_slice_is_freed_and_reported_once() {
    let frees: [Free; 4] = [
        |it, slice| it.free(slice.id),
        |it, slice| it.free_after(slice.id, &[Point { timeline: 1, value: 1 }]),
        |it, slice| it.free_after(slice.id, &[]),
        |it, slice| it.free_many(&[slice.id]).map_err(|refused| refused.error),
    ];
    for (name, pool, request) in kinds() {
        for (i, free) in frees.iter().enumerate() {
            let device = Filler::new();
            let allocator = make(&device, std::slice::from_ref(&pool), margin(64));
            let slices = [1000; 3].map(|size| allocator.allocate(&sized(request, size)).unwrap());
            let (slice, other) = (slices[1], slices[2]);
            let before = State::of(&allocator);
            for offset in [0, 5, 63] {
                // From there to the end: the first byte counts.
                (offset..64).for_each(|offset| write_at(&slice, slice.size + offset, 0xFE));
                assert_eq!(free(&allocator, &slice), Err(damaged(&slice, slice.size + offset)), "{name}, {i}");
                assert_eq!(
                    (State::of(&allocator), allocator.get(slice.id)),
                    (before.clone(), Ok(slice)),
                    "{name}, {i}"
                );
                assert_eq!(allocator.check_margins(), Ok(()), "{name}, {i}: mended");
            }
            // The last byte of a slice is its own.
            write_at(&slice, slice.size - 1, 0xFE);
            assert_eq!(free(&allocator, &slice), Ok(()), "{name}, {i}");
            assert_eq!(allocator.free(slice.id), Err(Error::StaleHandle), "{name}, {i}");
            assert_eq!(free(&allocator, &other), Ok(()), "{name}, {i}");
            allocator.close(LiveSlices::Free).unwrap();
        }
    }
}

/// A batch is all or nothing.
#[test]
fn a_batch_with_a_damaged_margin_is_refused_with_the_place_of_its_slice() {
    let device = Filler::new();
    let allocator = make(&device, &[sliced(M, M, None), direct(None)], Debugging::new(true, 32));
    let requests: Vec<_> = (0..40).map(|i| Request::new(100 + i).in_pool(i as u32 % 2)).collect();
    let batch = allocator.allocate_many(&requests).unwrap();
    assert!(batch.iter().all(|slice| is_full_of(slice, Debugging::NEW)));
    let ids: Vec<_> = batch.iter().map(|slice| slice.id).collect();
    let before = State::of(&allocator);
    for bad in [37, 20, 0] {
        write_at(&batch[bad], batch[bad].size, 0);
        let refused = BatchError { index: bad as u32, error: damaged(&batch[bad], batch[bad].size) };
        assert_eq!(allocator.free_many(&ids), Err(refused));
        assert_eq!(State::of(&allocator), before);
        assert!(batch.iter().all(|slice| is_full_of(slice, Debugging::NEW)), "nothing was freed");
    }
    assert_eq!(allocator.free_many(&ids), Ok(()));
    assert_held(&allocator, &device.ledger);
}

/// One after the other.
#[test]
fn a_look_at_all_margins_tells_of_each_damage_once() {
    let device = Filler::new();
    let pools = [sliced(M, M, None), direct(None), exclusive(M)];
    let allocator = make(&device, &pools, margin(32));
    let mut slices: Vec<_> = (0..3).map(|pool| allocator.allocate(&Request::new(500).in_pool(pool)).unwrap()).collect();
    slices.push(allocator.allocate(&Request::new(500).persistent()).unwrap());
    slices.push(place(&allocator, 700));
    assert_eq!(allocator.check_margins(), Ok(()));
    slices.iter().for_each(|slice| write_at(slice, slice.size + 7, 0));
    let mut told: Vec<_> = (0..slices.len()).map(|_| allocator.check_margins().unwrap_err()).collect();
    assert_eq!(allocator.check_margins(), Ok(()));
    let mut expected: Vec<_> = slices.iter().map(|slice| damaged(slice, slice.size + 7)).collect();
    let key = |error: &Error| format!("{error:?}");
    told.sort_by_key(key);
    expected.sort_by_key(key);
    assert_eq!(told, expected);
    // Free memory and slices that wait have no margin.
    allocator.free_after(slices[0].id, &[Point { timeline: 1, value: 1 }]).unwrap();
    allocator.free(slices[1].id).unwrap();
    slices[..2].iter().for_each(|slice| write_at(slice, slice.size + 7, 0));
    assert_eq!(allocator.check_margins(), Ok(()));
    assert_eq!(allocator.check(), Ok(()));
    // Damage is no reason to keep an allocator.
    write_at(&slices[4], slices[4].size, 0);
    assert_eq!(allocator.close(LiveSlices::Free), Ok(()));
    assert_eq!(device.ledger.pages(), 0);
}

/// While another thread is just being handed a slice, its margin may not be there yet.
#[test]
fn a_look_at_all_margins_finds_nothing_wrong_with_a_slice_that_is_being_allocated() {
    let watched = WatchedLock::new();
    let options = options().with_debugging(margin(32)).with_lock(watched.kind());
    let allocator = Arc::new(Allocator::try_new(Filler::new(), &[sliced(M, M, None)], options).unwrap());
    place(&*allocator, 100);
    let seen = Arc::new(Mutex::new(None));
    let (other, answer) = (allocator.clone(), seen.clone());
    // The second lock is the one after that under which the slice gets its place.
    lock::before_next(move || {
        lock::before_next(move || *answer.lock().unwrap() = Some(other.check_margins()));
    });
    let slice = place(&*allocator, 100);
    assert_eq!(*seen.lock().unwrap(), Some(Ok(())), "nobody has written anything");
    assert_eq!(allocator.free(slice.id), Ok(()));
    allocator.close(LiveSlices::Free).unwrap();
}

#[test]
fn a_slice_with_a_page_of_its_own_has_room_up_to_its_margin() {
    for pool in [direct(None), exclusive(M)] {
        let device = Filler::new();
        let allocator = make(&device, &[pool], margin(32));
        let slice = place(&allocator, 1000);
        assert_eq!(allocator.try_resize(slice.id, slice.size), Ok(slice));
        let (size, available) = (slice.size + 1, slice.size);
        assert_eq!(allocator.try_resize(slice.id, size), Err(Error::NoRoom { size, available }));
    }
}

/// The margin goes along.
#[test]
fn a_slice_that_is_resized_has_its_margin_behind_its_new_end() {
    let device = Filler::new();
    let allocator = make(&device, &[sliced(M, M, None)], margin(32));
    let slice = place(&allocator, 1024);
    for size in [256, 4096, 96] {
        let resized = allocator.try_resize(slice.id, size).unwrap();
        assert_eq!((resized.offset, resized.size), (slice.offset, size));
        write_all(&resized, 0xAA);
        assert_eq!(allocator.check_margins(), Ok(()));
        write_at(&resized, size, 0xAA);
        assert_eq!(allocator.check_margins(), Err(damaged(&resized, size)));
    }
    let limit = M - 32;
    let refused = allocator.try_resize(slice.id, M);
    assert_eq!(refused, Err(Error::TooLarge { size: M, limit }));
    assert_eq!(allocator.try_resize(slice.id, limit).map(|slice| slice.size), Ok(limit));
    let next = allocator.try_resize(slice.id, 32).and_then(|_| allocator.allocate(&Request::new(32))).unwrap();
    assert_eq!(next.offset, 64);
    assert_eq!(allocator.try_resize(slice.id, 33), Err(Error::NoRoom { size: 33, available: 32 }));
    allocator.close(LiveSlices::Free).unwrap();
}

// ---- memory that nobody sees

/// Where memory is mapped. A virtual device has none: whoever touched it would crash.
#[test]
fn memory_that_the_cpu_does_not_see_is_not_touched() {
    for (name, pool, request) in kinds() {
        let device = LedgerDevice::new();
        let allocator = make(&device, &[pool], Debugging::new(true, 32));
        let slices = [100, 1000, 5000].map(|size| allocator.allocate(&sized(request, size)).unwrap());
        assert_eq!(allocator.check_margins(), Ok(()), "{name}");
        allocator.try_resize(slices[1].id, 900).unwrap();
        allocator.free_after(slices[0].id, &[Point { timeline: 1, value: 1 }]).unwrap();
        allocator.collect(1, 1).unwrap();
        allocator.free_many(&[slices[1].id, slices[2].id]).unwrap();
        assert_held(&allocator, &device);
    }
}

/// In a dry run there is nothing to look at, until there is.
#[test]
fn slices_that_get_their_memory_late_have_margins_from_then_on() {
    let device = Filler::new();
    let dry = options().with_memory_type(MEMORY).with_debugging(Debugging::new(true, 32)).with_dry_run();
    let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], dry).unwrap();
    let slices = [100, 1000, 500].map(|size| place(&allocator, size));
    assert_eq!(allocator.check_margins(), Ok(()));
    allocator.free(slices[2].id).unwrap();
    let resolved = allocator.resolve(slices[1].id).unwrap();
    assert_eq!(allocator.check_margins(), Ok(()), "nobody has written anything");
    write_at(&resolved, resolved.size + 3, 1);
    assert_eq!(allocator.free(resolved.id), Err(damaged(&resolved, resolved.size + 3)));
    assert_eq!(allocator.free(resolved.id), Ok(()));
    assert_eq!(allocator.free(slices[0].id), Ok(()));
}
