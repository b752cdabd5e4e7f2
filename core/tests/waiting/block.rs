//! Slices that wait for the device, where the books are in one block: how large that must be.

use crate::common::books::Snapshot;
use crate::common::devices::LedgerDevice;
use crate::common::pools::{KINDS, options};
use crate::common::random::Random;
use crate::common::waiting::{assert_agree, waiting};
use slicepool_core::{Allocator, Error, HostMemory, LockKind, Point, PoolOptions, Request, SliceId, block_bytes};
use std::ptr::NonNull;

/// Lets up to `slices` slices live or wait in a block that was counted for them and as many timelines.
fn live_in_a_block(pools: &[PoolOptions], slices: u32, pages: u32, timelines: u32, random: &mut Random) {
    let bytes = block_bytes(pools, &options(), slices, pages, timelines).unwrap();
    let mut block = vec![0u128; (bytes as usize).div_ceil(16)];
    let start = NonNull::new(block.as_mut_ptr().cast()).unwrap();
    // SAFETY: nobody else uses the block, and it outlives the allocator.
    let memory = unsafe { HostMemory::in_block(start, bytes as usize, LockKind::spin()) }.unwrap();
    let device = LedgerDevice::new();
    let allocator = Allocator::try_new(&device, pools, options().with_memory(memory)).unwrap();
    let mut live: Vec<SliceId> = Vec::new();
    let mut next = vec![1u64; timelines as usize];
    let context = format!("{slices} slices, {pages} pages and {timelines} timelines in {pools:?}");
    for _ in 0..5000 {
        let timeline = random.below(timelines.into()) as usize;
        let point = Point::new((timeline as u32).wrapping_mul(0x4567_1235), next[timeline]);
        match random.below(8) {
            0..=3 => {
                if allocator.statistics().pages == pages {
                    allocator.cleanup().unwrap();
                }
                let figures = allocator.statistics();
                if figures.slices + figures.slices_pending == slices || figures.pages == pages {
                    continue;
                }
                match allocator.allocate(&Request::new(random.scaled(1 << 16))) {
                    Ok(slice) => live.push(slice.id),
                    Err(Error::PoolCapacityExceeded { .. }) => {}
                    Err(error) => panic!("{error} with {context}"),
                }
            }
            4 if !live.is_empty() => {
                let id = random.take(&mut live);
                next[timeline] += 1;
                allocator.free_after(id, &[point]).unwrap_or_else(|error| panic!("{error} with {context}"));
            }
            5 => {
                let ids: Vec<_> = live.drain(live.len() / 2..).collect();
                next[timeline] += 1;
                allocator.free_after_many(&ids, &[point]).unwrap_or_else(|error| panic!("{error} with {context}"));
            }
            _ => {
                let completed = point.value - random.below(2);
                allocator.collect(point.timeline, completed).unwrap_or_else(|error| panic!("{error} with {context}"));
                if allocator.timeline_forget(point.timeline).is_ok() {
                    next[timeline] = 1;
                }
            }
        }
    }
    assert_agree(&allocator, &device);
    drop(allocator);
}

/// The bound that can be computed beforehand, while slices wait on so many timelines.
#[test]
fn a_block_that_was_counted_for_slices_that_wait_never_runs_out() {
    let mut random = Random::with_seed_or(6);
    let mut lists: Vec<_> = KINDS.map(|(_, pool)| vec![pool]).to_vec();
    lists.push(KINDS.map(|(_, pool)| pool).to_vec());
    for pools in lists {
        for (slices, pages) in [(1, 1), (10, 10), (100, 30)] {
            for timelines in [1, 2, 15, 100] {
                live_in_a_block(&pools, slices, pages, timelines, &mut random);
            }
        }
    }
}

/// If the block is full, nothing changes, and what waits can still be released.
#[test]
fn where_a_block_is_full_slices_stay_live_and_what_waits_is_released() {
    for (name, pool) in KINDS {
        let pools = std::slice::from_ref(&pool);
        let bytes = block_bytes(pools, &options(), 8, 8, 1).unwrap();
        let mut block = vec![0u128; (bytes as usize).div_ceil(16)];
        let start = NonNull::new(block.as_mut_ptr().cast()).unwrap();
        // SAFETY: nobody else uses the block, and it outlives the allocator.
        let memory = unsafe { HostMemory::in_block(start, bytes as usize, LockKind::spin()) }.unwrap();
        let device = LedgerDevice::new();
        let allocator = Allocator::try_new(&device, pools, options().with_memory(memory)).unwrap();
        let slices = [0; 8].map(|_| allocator.allocate(&Request::new(1 << 15)).unwrap());
        allocator.free_after(slices[0].id, &[Point::new(1, 1)]).unwrap();
        // More timelines than there is room for.
        let full = (2..10_000).find(|&timeline| allocator.collect(timeline, 1).is_err());
        assert!(full.is_some(), "{name}");
        let before = Snapshot::of(&allocator);
        let refused = allocator.free_after(slices[1].id, &[Point::new(20_000, 1)]);
        assert!(matches!(refused, Err(Error::OutOfHostMemory { .. })), "{name}: {refused:?}");
        let several = [Point::new(1, 1), Point::new(2, 2)];
        assert!(matches!(allocator.free_after(slices[1].id, &several), Err(Error::OutOfHostMemory { .. })), "{name}");
        assert_eq!(Snapshot::of(&allocator), before, "{name}");
        for slice in &slices[1..] {
            allocator.free_after(slice.id, &[Point::new(1, 1)]).unwrap();
        }
        assert_eq!(waiting(&allocator), 8, "{name}");
        allocator.collect(1, 1).unwrap();
        assert_eq!((waiting(&allocator), allocator.check()), (0, Ok(())), "{name}");
    }
}
