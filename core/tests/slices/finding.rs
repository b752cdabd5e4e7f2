//! Whose memory a place is, as far as the allocator knows.

use crate::common::devices::{LedgerDevice, ScriptedDevice};
use crate::common::pools::{KINDS, direct, options, over, place, sliced};
use crate::common::random::Random;
use crate::common::sums::all_ranges;
use crate::common::{K, M};
use slicepool_core::{Allocator, Device, DeviceMemory, PageRequest, Point, Range, Request, Slice};

/// What is found at a byte of a slice's page, by its handle and by its address.
fn at<D: Device>(allocator: &Allocator<D>, slice: &Slice, offset: u64) -> Option<Range> {
    let found = allocator.find(slice.memory, offset);
    let by_address = allocator.find_address(slice.address.wrapping_add(offset.wrapping_sub(slice.offset)));
    assert_eq!(found, by_address, "{offset}");
    found
}

fn bounds(range: Option<Range>) -> Option<(u64, u64)> {
    range.map(|range| (range.offset, range.size))
}

#[test]
fn live_slices_waiting_ones_and_free_ranges_are_found_from_their_first_byte_to_their_last() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(64 * K, 64 * K, None)]);
    let slices = [1000, 2000, 3000, 4000].map(|size| place(&allocator, size));
    allocator.free(slices[0].id).unwrap();
    allocator.free_after(slices[1].id, &[Point { timeline: 1, value: 1 }]).unwrap();
    let tail = slices[3].offset + slices[3].size;
    assert_eq!((slices[0].offset, slices[1].offset, tail < 64 * K), (0, 1024, true));
    let parts = [
        (0, 1024, None, false),
        (1024, 2016, None, true),
        (slices[2].offset, slices[2].size, Some((slices[2].id, 3000)), false),
        (slices[3].offset, slices[3].size, Some((slices[3].id, 4000)), false),
        (tail, 64 * K - tail, None, false),
    ];
    for (offset, size, live, pending) in parts {
        for place in [offset, offset + 1, offset + size / 2, offset + size - 1] {
            let found = at(&allocator, &slices[0], place).unwrap();
            assert_eq!((found.offset, found.size, found.pending), (offset, size, pending));
            assert_eq!(found.id, live.map(|(id, _)| id));
            assert_eq!(found.requested, live.map_or(0, |(_, requested)| requested));
            assert_eq!((found.pool, found.memory_type, found.memory), (0, 0, slices[0].memory));
            assert_eq!(found.address, slices[0].address + offset);
        }
    }
    allocator.collect(1, 1).unwrap();
    assert_eq!(bounds(at(&allocator, &slices[0], 1500)), Some((0, 1024 + 2016)));
}

#[test]
fn nothing_is_found_beside_the_pages() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(64 * K, 64 * K, None), direct(None)]);
    assert_eq!((allocator.find(1, 0), allocator.find_address(1 << 40)), (None, None));
    let slice = place(&allocator, 1000);
    for offset in [64 * K, 64 * K + 1, u64::MAX, u64::MAX / 2] {
        assert_eq!(at(&allocator, &slice, offset), None, "{offset}");
    }
    for memory in [0, slice.memory + 1, u64::MAX] {
        assert_eq!((allocator.find(memory, 0), allocator.find(memory, 64 * K)), (None, None));
    }
    for address in [0, 1, slice.address - 1, u64::MAX] {
        assert_eq!(allocator.find_address(address), None);
    }
    allocator.free(slice.id).unwrap();
    assert_eq!(bounds(at(&allocator, &slice, 0)), Some((0, 64 * K)));
    allocator.trim(0).unwrap();
    assert_eq!(at(&allocator, &slice, 0), None);
}

#[test]
fn pages_without_addresses_are_found_by_their_handles_only() {
    let ledger = LedgerDevice::new();
    let device = ScriptedDevice {
        allocate: |request: &PageRequest| {
            ledger.allocate(request).map(|memory| DeviceMemory { address: 0, context: memory.context, ..memory })
        },
        deallocate: |_: &DeviceMemory| Ok(()),
    };
    let allocator = Allocator::try_new(&device, &[sliced(64 * K, 64 * K, None)], options()).unwrap();
    let slices = [place(&allocator, 1000), place(&allocator, 1000)];
    for slice in &slices {
        let found = allocator.find(slice.memory, slice.offset).unwrap();
        assert_eq!((found.id, found.address), (Some(slice.id), 0));
        assert_eq!(allocator.find_address(slice.offset), None);
    }
    drop(allocator);
    ledger.write_off();
}

/// Every place of every range, whatever the kind of the pool.
#[test]
fn what_is_found_is_what_a_walk_shows() {
    let mut random = Random::with_seed_or(91);
    let pools = KINDS.map(|(_, pool)| pool);
    let device = LedgerDevice::new();
    let allocator = over(&device, &pools);
    let mut live: Vec<Slice> = Vec::new();
    for i in 0..300 {
        let request = Request::new(random.scaled(60 * K));
        let request = match random.below(4) {
            0 if i % 2 == 0 => request.persistent(),
            0 => request.dedicated(),
            _ => request.in_pool(random.below(7) as u32),
        };
        live.extend(allocator.allocate(&request).ok());
        if random.below(2) == 0 && !live.is_empty() {
            let slice = random.take(&mut live);
            let wait = [Point { timeline: 1, value: random.below(2) }];
            allocator.free_after(slice.id, &wait).unwrap();
        }
    }
    let ranges = all_ranges(&allocator);
    assert!(ranges.iter().any(|range| range.pending) && ranges.iter().any(|range| range.id.is_none()));
    for range in &ranges {
        for inside in [0, random.below(range.size), range.size - 1] {
            assert_eq!(allocator.find(range.memory, range.offset + inside), Some(*range));
            assert_eq!(allocator.find_address(range.address + inside), Some(*range));
        }
    }
    for slice in &live {
        assert_eq!(allocator.find(slice.memory, slice.offset).and_then(|range| range.id), Some(slice.id));
    }
    // Looking is all that was done.
    assert_eq!(all_ranges(&allocator), ranges);
}

/// From 64 bits' end.
#[test]
fn pages_at_the_end_of_all_addresses_are_found() {
    let device = ScriptedDevice {
        allocate: |request: &PageRequest| {
            let handle = request.size;
            Ok(DeviceMemory { address: u64::MAX - request.size + 1, ..DeviceMemory::new(handle) })
        },
        deallocate: |_: &DeviceMemory| Ok(()),
    };
    let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options()).unwrap();
    let slices = [place(&allocator, M / 2), place(&allocator, M / 2)];
    for slice in &slices {
        for inside in [0, slice.size - 1] {
            let found = at(&allocator, slice, slice.offset + inside);
            assert_eq!(found.and_then(|range| range.id), Some(slice.id));
        }
    }
    assert_eq!((allocator.find_address(0), allocator.find_address(u64::MAX - M)), (None, None));
}
