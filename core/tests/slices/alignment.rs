//! Alignment: of pages, of slices, of what lies in front of them; and arguments at the edge of 64 bits.

use crate::common::books::{Snapshot, assert_agree, ranges};
use crate::common::devices::{KEPT, LedgerDevice, ScriptedDevice, VirtualDevice};
use crate::common::random::Random;
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceFault, DeviceMemory, Error, HostDevice, MemoryType, PageRequest,
    PoolOptions, Request, Space, SpaceOptions,
};

/// A device whose pages lie at the addresses of a list, one after the other.
fn at_addresses(addresses: &'static [u64]) -> impl Device {
    let inner = VirtualDevice::new();
    let next = std::cell::Cell::new(0);
    let allocate = move |request: &PageRequest| {
        let memory = inner.allocate(request)?;
        let address = addresses[next.get()];
        next.set(next.get() + 1);
        Ok(DeviceMemory { address, ..memory })
    };
    ScriptedDevice { allocate, deallocate: |_: &DeviceMemory| Ok(()) }
}

/// Scenario 29.
#[test]
fn a_page_that_the_device_aligned_too_little_is_returned_and_reported() {
    let device = LedgerDevice::over(at_addresses(&[192, 192, 512, 192 * 5]));
    let pools = [PoolOptions::sliced_pages(4096, 4096, None).with_granule(64)];
    let options = AllocatorOptions::default().with_memory_type(MemoryType::new(M, 256));
    let allocator = Allocator::try_new(&device, &pools, options).unwrap();
    let misaligned = Error::DeviceFailed { fault: DeviceFault::Misaligned, code: 0 };
    for tries in 1..=2 {
        let before = Snapshot::of(&allocator);
        assert_eq!(allocator.allocate(&Request::new(100).aligned(256)), Err(misaligned));
        assert_eq!((device.given(), device.taken(), device.pages()), (tries, tries, 0));
        assert_eq!(Snapshot::of(&allocator), before);
        assert_agree(&allocator, &device);
    }
    assert_eq!(misaligned.to_string(), "device failed: Misaligned, code 0");
    let slice = allocator.allocate(&Request::new(100).aligned(256)).unwrap();
    assert_eq!((slice.address, slice.offset), (512, 0));
    // Once more, now that there is a page.
    assert_eq!(allocator.allocate(&Request::new(4096)), Err(misaligned));
    assert_eq!(device.pages(), 1);
    assert_agree(&allocator, &device);
}

/// What a GPU driver maps lies anywhere: only addresses tell then.
#[test]
fn a_mapping_tells_how_a_page_is_aligned_unless_the_memory_type_says_otherwise() {
    let mapped_at_192 = |address| {
        let inner = VirtualDevice::new();
        let allocate = move |request: &PageRequest| {
            let mapped = std::ptr::without_provenance_mut(192);
            Ok(DeviceMemory { address, mapped, ..inner.allocate(request)? })
        };
        LedgerDevice::over(ScriptedDevice { allocate, deallocate: |_: &DeviceMemory| Ok(()) })
    };
    let placed = |address, anywhere| {
        let device = mapped_at_192(address);
        let pools = [PoolOptions::sliced_pages(4096, 4096, None).with_granule(64)];
        let memory_type = MemoryType::new(M, 256).with_mapped_anywhere(anywhere);
        let options = AllocatorOptions::default().with_memory_type(memory_type);
        let allocator = Allocator::try_new(&device, &pools, options).unwrap();
        let answer = allocator.allocate(&Request::new(100).aligned(256));
        assert_agree(&allocator, &device);
        answer.map(|slice| (slice.offset, slice.mapped.addr()))
    };
    let misaligned = Err(Error::DeviceFailed { fault: DeviceFault::Misaligned, code: 0 });
    assert_eq!(placed(0, false), misaligned);
    assert_eq!(placed(0, true), Ok((0, 192)));
    assert_eq!(placed(512, false), Ok((0, 192)));
    assert_eq!(placed(512, true), Ok((0, 192)));
    assert_eq!(placed(192, true), misaligned);
}

/// Scenario 29, and the device does not even take the page back.
#[test]
fn a_misaligned_page_that_the_device_refuses_to_take_back_is_stuck_until_it_does() {
    let device = LedgerDevice::over(at_addresses(&[192, 256]));
    let pools = [PoolOptions::sliced_pages(4096, 4096, Some(8192)).with_granule(64)];
    let options = AllocatorOptions::default().with_memory_type(MemoryType::new(M, 256));
    let allocator = Allocator::try_new(&device, &pools, options).unwrap();
    device.keep_everything(true);
    let misaligned = Error::DeviceFailed { fault: DeviceFault::Misaligned, code: 0 };
    assert_eq!(allocator.allocate(&Request::new(100)), Err(misaligned));
    let figures = allocator.statistics();
    assert_eq!((figures.stuck, figures.pages_stuck, figures.pages, figures.free), (4096, 1, 0, 0));
    assert_agree(&allocator, &device);
    let slice = allocator.allocate(&Request::new(4096)).unwrap();
    assert_eq!(slice.address, 256);
    assert!(matches!(allocator.allocate(&Request::new(1)), Err(Error::PoolCapacityExceeded { capacity: 8192, .. })));
    let refused = Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT };
    assert_eq!(allocator.trim(0), Err(refused));
    device.keep_everything(false);
    allocator.trim(0).unwrap();
    assert_eq!((device.pages(), allocator.statistics().stuck), (1, 0));
    assert_agree(&allocator, &device);
}

/// Scenario 29: a device without addresses is judged by its mapping, or else trusted.
#[test]
fn the_mapping_is_checked_where_there_is_no_address_and_a_bare_handle_is_trusted() {
    let mapped = std::cell::Cell::new(192usize);
    let device = ScriptedDevice {
        allocate: |_: &PageRequest| {
            let mapped = std::ptr::without_provenance_mut(mapped.get());
            Ok(DeviceMemory { mapped, ..DeviceMemory::new(7) })
        },
        deallocate: |_: &DeviceMemory| Ok(()),
    };
    let pools = [PoolOptions::sliced_pages(4096, 4096, None).with_granule(64)];
    let options = AllocatorOptions::default().with_memory_type(MemoryType::new(M, 256));
    let allocator = Allocator::try_new(&device, &pools, options.clone()).unwrap();
    let request = Request::new(256).aligned(256);
    let misaligned = Error::DeviceFailed { fault: DeviceFault::Misaligned, code: 0 };
    assert_eq!(allocator.allocate(&request), Err(misaligned));
    mapped.set(512);
    allocator.allocate(&request).unwrap();
    let second = allocator.allocate(&request).unwrap();
    assert_eq!((second.mapped.addr(), second.address), (768, 0));
    drop(allocator);
    mapped.set(0);
    let allocator = Allocator::try_new(&device, &pools, options).unwrap();
    allocator.allocate(&request).unwrap();
    let second = allocator.allocate(&request).unwrap();
    assert_eq!((second.offset, second.mapped.addr(), second.address), (256, 0, 0));
}

/// The slice's own address is what has to be aligned, in every page.
#[test]
fn offsets_and_addresses_are_multiples_of_the_alignment_in_every_page() {
    let mut random = Random::with_seed_or(31);
    let device = LedgerDevice::over(HostDevice::new());
    let pools = [PoolOptions::sliced_pages(64 * K, 64 * K, None).with_granule(8)];
    let options = AllocatorOptions::default().with_memory_type(MemoryType::new(M, 4096));
    let allocator = Allocator::try_new(&device, &pools, options).unwrap();
    let mut live = Vec::new();
    for _ in 0..5_000 {
        let alignment = 1 << random.below(13);
        let slice = allocator.allocate(&Request::new(random.scaled(16 * K)).aligned(alignment)).unwrap();
        assert_eq!((slice.offset % alignment, slice.address % alignment), (0, 0));
        assert_eq!((slice.offset % 8, slice.mapped.addr() as u64), (0, slice.address));
        live.push(slice.id);
        if live.len() == 50 {
            allocator.free(random.take(&mut live)).unwrap();
        }
    }
    assert!(device.pages() > 1);
    assert_agree(&allocator, &device);
}

/// Scenario 30.
#[test]
fn small_requests_in_a_pool_of_large_granules_lie_at_multiples_of_the_granule() {
    let device = LedgerDevice::new();
    let pools = [PoolOptions::sliced_pages(M, M, Some(M)).with_granule(64 * K)];
    let options = AllocatorOptions::default().with_memory_type(MemoryType::new(M, 256));
    let allocator = Allocator::try_new(&device, &pools, options).unwrap();
    for i in 0..16 {
        let slice = allocator.allocate(&Request::new(32).aligned(32)).unwrap();
        assert_eq!((slice.offset, slice.size, slice.address % (64 * K)), (i * 64 * K, 64 * K, 0));
    }
    let figures = allocator.statistics();
    assert_eq!((figures.in_use, figures.padding, figures.free), (16 * 32, M - 16 * 32, 0));
    assert!(matches!(allocator.allocate(&Request::new(1)), Err(Error::PoolCapacityExceeded { in_use: 512, .. })));
    // The granule is larger than the device's alignment: pages and requests may have it.
    assert!(matches!(allocator.allocate(&Request::new(32).aligned(64 * K)), Err(Error::PoolCapacityExceeded { .. })));
    let too_aligned = Error::InvalidArgument { field: c"alignment", value: 128 * K };
    assert_eq!(allocator.allocate(&Request::new(32).aligned(128 * K)), Err(too_aligned));
    assert_agree(&allocator, &device);
}

/// Scenario 32, at the untouched end of a page and in a hole.
#[test]
fn the_gap_in_front_of_an_aligned_slice_is_allocated_and_merged_like_any_hole() {
    let device = LedgerDevice::new();
    let pools = [PoolOptions::sliced_pages(64 * K, 64 * K, Some(64 * K)).with_granule(32)];
    let allocator = Allocator::try_new(&device, &pools, AllocatorOptions::default()).unwrap();
    let place = |size: u64, alignment: u64| allocator.allocate(&Request::new(size).aligned(alignment)).unwrap();
    let first = place(32, 32);
    let aligned = place(96, 4096);
    assert_eq!((aligned.offset, aligned.size), (4096, 96));
    // The gap is a hole of 4064 bytes, and is used before the end of the page.
    assert_eq!(allocator.statistics().free_ranges, 2);
    let in_gap = place(4064, 32);
    assert_eq!(in_gap.offset, 32);
    assert_agree(&allocator, &device);

    allocator.free(in_gap.id).unwrap();
    // In the hole: 32..4096, first multiple of 1024 is 1024.
    let in_hole = place(32, 1024);
    assert_eq!(in_hole.offset, 1024);
    let sizes: Vec<_> = ranges(&allocator).iter().map(|range| (range.id.is_some(), range.size)).collect();
    let tail = 64 * K - 4096 - 96;
    assert_eq!(sizes, [(true, 32), (false, 992), (true, 32), (false, 3040), (true, 96), (false, tail)]);
    assert_eq!(place(992, 32).offset, 32);
    assert_agree(&allocator, &device);

    let ids: Vec<_> = ranges(&allocator).iter().filter_map(|range| range.id).collect();
    assert!(ids.contains(&first.id));
    for id in ids {
        allocator.free(id).unwrap();
    }
    let sizes: Vec<_> = ranges(&allocator).iter().map(|range| (range.id, range.size)).collect();
    assert_eq!(sizes, [(None, 64 * K)]);
    assert_agree(&allocator, &device);
}

/// Scenario 32: a hole that holds the request only where the alignment falls right.
#[test]
fn a_hole_that_fits_only_by_its_alignment_is_found() {
    let mut space = Space::try_new(SpaceOptions::new(1000)).unwrap();
    let before = space.allocate(64, 1).unwrap();
    let natural = space.allocate(64, 1).unwrap();
    let offset = space.allocate(63, 1).unwrap();
    let rest = space.largest_free();
    space.allocate(rest, 1).unwrap();
    space.free(natural.id).unwrap();
    assert_eq!(space.allocate(64, 64).map(|slice| slice.offset), Ok(64));
    // 128..191 holds no 64 at a multiple of 64, nor does anything else.
    space.free(offset.id).unwrap();
    assert!(matches!(space.allocate(64, 64), Err(Error::PoolCapacityExceeded { largest_free: 63, .. })));
    space.free(before.id).unwrap();
    // Now both ends of the second slice's place hold something: the smaller hole first.
    assert_eq!(space.allocate(33, 128).map(|slice| slice.offset), Ok(128));
    assert_eq!(space.allocate(64, 128).map(|slice| slice.offset), Ok(0));
    assert_eq!(space.check(), Ok(()));
}

/// Scenario 33.
#[test]
fn impossible_sizes_and_alignments_are_refused_without_any_change() {
    let device = LedgerDevice::new();
    let pools = [PoolOptions::sliced_pages(M, M, None), PoolOptions::sliced_pages(64 * M, 64 * M, None)];
    let allocator = Allocator::try_new(&device, &pools, AllocatorOptions::default()).unwrap();
    let live = allocator.allocate(&Request::new(1000)).unwrap();
    let before = Snapshot::of(&allocator);
    let calls = device.calls();
    let size = |value| Error::InvalidArgument { field: c"size", value };
    let alignment = |value| Error::InvalidArgument { field: c"alignment", value };
    let too_large = |size| Error::TooLarge { size, limit: 64 * M };
    for (request, error) in [
        (Request::new(0), size(0)),
        (Request::new(0).aligned(0), alignment(0)),
        (Request::new(1).aligned(0), alignment(0)),
        (Request::new(1).aligned(3), alignment(3)),
        (Request::new(1).aligned(1 << 63), alignment(1 << 63)),
        (Request::new(1).aligned(8192), alignment(8192)),
        (Request::new(u64::MAX).aligned(3), alignment(3)),
        (Request::new(u64::MAX), too_large(u64::MAX)),
        (Request::new(u64::MAX).aligned(1 << 63), too_large(u64::MAX)),
        (Request::new(u64::MAX - 4094).aligned(4096), too_large(u64::MAX - 4094)),
        (Request::new(1 << 63).aligned(1 << 63), too_large(1 << 63)),
        // Must not be taken for 0 or for 4 where pointers have 32 bits.
        (Request::new(1 << 40), too_large(1 << 40)),
        (Request::new((1 << 32) + 4), too_large((1 << 32) + 4)),
        (Request::new(64 * M + 1), too_large(64 * M + 1)),
    ] {
        assert_eq!(allocator.allocate(&request), Err(error), "{request:?}");
        assert_eq!(allocator.would_fit(&request), Err(error), "{request:?}");
        let batch = allocator.allocate_many(&[Request::new(5), request]).unwrap_err();
        assert_eq!((batch.index, batch.error), (1, error));
        assert_eq!(Snapshot::of(&allocator), before);
    }
    assert_eq!(allocator.try_resize(live.id, 0), Err(size(0)));
    assert_eq!(allocator.try_resize(live.id, u64::MAX), Err(Error::TooLarge { size: u64::MAX, limit: M }));
    assert_eq!(Snapshot::of(&allocator), before);
    assert_eq!(device.calls(), calls);
    assert_agree(&allocator, &device);
}

/// Scenario 33, on a space.
#[test]
fn a_space_refuses_impossible_sizes_and_alignments_without_any_change() {
    let mut space = Space::try_new(SpaceOptions::new(u64::MAX).with_granule(1 << 32)).unwrap();
    let limit = u64::MAX << 32;
    let live = space.allocate(1, 1).unwrap();
    let before = (space.statistics(), space.pieces().collect::<Vec<_>>());
    let invalid = |field, value| Error::InvalidArgument { field, value };
    for (size, alignment, error) in [
        (0, 1, invalid(c"size", 0)),
        (1, 0, invalid(c"alignment", 0)),
        (1, 3, invalid(c"alignment", 3)),
        (u64::MAX, 1, Error::TooLarge { size: u64::MAX, limit }),
        (limit + 1, 1, Error::TooLarge { size: limit + 1, limit }),
        (u64::MAX, 1 << 63, Error::TooLarge { size: u64::MAX, limit }),
    ] {
        assert_eq!(space.allocate(size, alignment), Err(error));
    }
    assert!(matches!(space.allocate(limit, 1), Err(Error::PoolCapacityExceeded { .. })));
    // The only multiple of 2^63 besides 0 leaves room for half of the space, not for more.
    assert!(matches!(space.allocate((1 << 63) + 1, 1 << 63), Err(Error::PoolCapacityExceeded { .. })));
    assert_eq!((space.statistics(), space.pieces().collect::<Vec<_>>()), before);
    let half = space.allocate(limit - (1 << 63), 1 << 63).unwrap();
    assert_eq!((half.offset, half.size), (1 << 63, limit - (1 << 63)));
    space.free(half.id).unwrap();
    space.free(live.id).unwrap();
    assert_eq!((space.check(), space.largest_free()), (Ok(()), limit));
}

/// A device may say any address; adding the offset of a slice to it must not end the program.
#[test]
fn a_page_at_the_very_end_of_the_address_space_is_cut_or_refused() {
    let device = LedgerDevice::over(at_addresses(&[u64::MAX - 4095]));
    let pools = [PoolOptions::sliced_pages(8192, 8192, None)];
    let allocator = Allocator::try_new(&device, &pools, AllocatorOptions::default()).unwrap();
    for _ in 0..2 {
        if let Err(error) = allocator.allocate(&Request::new(4096)) {
            assert!(matches!(error, Error::DeviceFailed { .. }), "{error}");
            break;
        }
    }
    assert_agree(&allocator, &device);
}
