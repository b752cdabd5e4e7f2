//! Many slices in one call: all or nothing.

use crate::common::M;
use crate::common::books::{Snapshot, assert_agree};
use crate::common::devices::{LedgerDevice, NONE_LEFT};
use slicepool_core::{Allocator, AllocatorOptions, BatchError, Device, Error, PoolOptions, Request, Slice};

fn over<'a>(device: &'a LedgerDevice, pools: &[PoolOptions]) -> Allocator<&'a LedgerDevice> {
    Allocator::try_new(device, pools, AllocatorOptions::default()).unwrap()
}

fn place<D: Device>(allocator: &Allocator<D>, size: u64) -> Slice {
    allocator.allocate(&Request::new(size)).unwrap()
}

fn pool(page_size: u64) -> PoolOptions {
    PoolOptions::sliced_pages(page_size, page_size, None)
}

/// All or nothing: the device refuses half way.
#[test]
fn a_batch_that_the_device_refuses_half_way_gives_back_the_pages_taken_for_it() {
    for served in 0..5 {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool(4096)]);
        // One page with room for one of the batch, one that is idle.
        let live = place(&allocator, 2048);
        let idle = place(&allocator, 4096);
        allocator.free(idle.id).unwrap();
        let before = Snapshot::of(&allocator);
        device.refuse_after(served);
        let requests = [Request::new(2048); 20];
        let refused = Error::OutOfDeviceMemory { size: 4096, code: NONE_LEFT };
        // One fits into the first page, two into the idle one, two into each page that is taken.
        let index = 3 + 2 * served as u32;
        assert_eq!(allocator.allocate_many(&requests).err(), Some(BatchError { index, error: refused }));
        assert_eq!(Snapshot::of(&allocator), before);
        assert_eq!((device.given(), device.taken()), (2 + served, served));
        assert_agree(&allocator, &device);

        // The device is asked again after a trim, whatever that gives back.
        allocator.trim(u64::MAX).unwrap();
        let batch = allocator.allocate_many(&requests).unwrap();
        assert_eq!((batch.len(), batch.is_empty()), (20, false));
        assert_eq!(allocator.statistics().slices, 21);
        for (i, slice) in batch.iter().enumerate() {
            assert_eq!(allocator.get(slice.id), Ok(batch[i]));
        }
        assert_eq!(allocator.get(live.id), Ok(live));
        assert_agree(&allocator, &device);
    }
}

/// All or nothing: a cap, and a request that nothing could serve, in the middle.
#[test]
fn a_batch_with_one_impossible_request_changes_nothing() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[PoolOptions::sliced_pages(4096, 4096, Some(3 * 4096))]);
    place(&allocator, 1000);
    let before = Snapshot::of(&allocator);
    let mut requests = vec![Request::new(1024); 12];
    let refused = allocator.allocate_many(&requests).unwrap_err();
    assert_eq!(refused.index, 11);
    assert!(matches!(refused.error, Error::PoolCapacityExceeded { size: 1024, capacity: 12_288, .. }));
    assert_eq!(Snapshot::of(&allocator), before);
    requests.truncate(11);
    requests[7] = Request::new(0);
    let refused = allocator.allocate_many(&requests).unwrap_err();
    assert_eq!(refused, BatchError { index: 7, error: Error::InvalidArgument { field: c"size", value: 0 } });
    assert_eq!(refused.to_string(), "element 7: invalid argument: size = 0");
    assert_eq!(Snapshot::of(&allocator), before);
    assert_agree(&allocator, &device);
    requests[7] = Request::new(1024);
    assert_eq!(allocator.allocate_many(&requests).unwrap().len(), 11);
    assert_eq!(allocator.statistics().free, 0);
    assert_agree(&allocator, &device);
}

/// Requests that are made one by one are asked for in order, each once, up to the one that is refused.
#[test]
fn requests_of_a_batch_are_asked_for_once_and_in_order() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(4096)]);
    let mut asked = Vec::new();
    let batch = allocator.allocate_each(5, |i| {
        asked.push(i);
        Ok(Request::new(u64::from(i) * 256 + 1))
    });
    let sizes: Vec<_> = batch.unwrap().iter().map(|slice| slice.size).collect();
    assert_eq!((asked, sizes), (vec![0, 1, 2, 3, 4], vec![256, 512, 768, 1024, 1280]));
    let before = Snapshot::of(&allocator);
    let mut asked = 0;
    let refused = allocator.allocate_each(5, |i| {
        asked += 1;
        if i == 3 { Err(Error::StaleHandle) } else { Ok(Request::new(1)) }
    });
    assert_eq!((refused.err(), asked), (Some(BatchError { index: 3, error: Error::StaleHandle }), 4));
    assert_eq!(Snapshot::of(&allocator), before);
    assert!(allocator.allocate_many(&[]).unwrap().is_empty());
    assert_eq!(allocator.free_many(&[]), Ok(()));
}

/// Nothing is freed if one handle of many is wrong: a duplicate, a stale one, a foreign one, at any place.
#[test]
fn freeing_many_with_one_wrong_handle_frees_none() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[pool(4096), pool(M)]);
    let other = over(&device, &[pool(4096)]);
    let foreign = place(&other, 1).id;
    let stale = place(&allocator, 1).id;
    allocator.free(stale).unwrap();
    // Slices of both pools in turn, and enough of them for several lock holds.
    let good: Vec<_> = (0..300).map(|i| place(&allocator, if i % 7 == 0 { 8000 } else { 1 + i }).id).collect();
    let before = Snapshot::of(&allocator);
    for place in [0, 1, 63, 64, 65, 150, 299, 300] {
        for (wrong, error) in [(stale, Error::StaleHandle), (foreign, Error::ForeignHandle)] {
            let mut ids = good.clone();
            ids.insert(place, wrong);
            let index = place as u32;
            assert_eq!(allocator.free_many(&ids), Err(BatchError { index, error }));
            assert_eq!(Snapshot::of(&allocator), before);
        }
        let mut ids = good.clone();
        let duplicate = ids[40];
        ids.insert(place, duplicate);
        let index = (place as u32).max(if place <= 40 { 41 } else { 0 });
        assert_eq!(allocator.free_many(&ids), Err(BatchError { index, error: Error::StaleHandle }));
        assert_eq!(Snapshot::of(&allocator), before);
        assert_agree_of_two(&allocator, &other, &device);
    }
    for id in &good {
        allocator.get(*id).unwrap();
    }
    assert_eq!(
        allocator.free_after_each(600, &|i| if i % 2 == 0 { None } else { Some(good[i as usize / 2]) }, &[]),
        Ok(())
    );
    assert_eq!(allocator.statistics().slices, 0);
    assert_eq!(allocator.free_many(&good), Err(BatchError { index: 0, error: Error::StaleHandle }));
    assert_agree_of_two(&allocator, &other, &device);
}

/// Two allocators share a device: their books together are the device's.
fn assert_agree_of_two(one: &Allocator<&LedgerDevice>, other: &Allocator<&LedgerDevice>, device: &LedgerDevice) {
    crate::common::books::assert_balanced(one);
    crate::common::books::assert_balanced(other);
    assert_eq!(one.statistics().reserved + other.statistics().reserved, device.bytes());
}
