//! What an allocator's books must say at any time, and what a refused call must leave as it was.

use super::devices::LedgerDevice;
use super::sums::lasting;
use slicepool_core::{Allocator, Device, Range, Statistics};
use std::ops::ControlFlow;

/// Every slice and free range, in the order of pools, pages and offsets.
pub(crate) fn ranges<D: Device>(allocator: &Allocator<D>) -> Vec<Range> {
    let mut ranges = Vec::new();
    let _ = allocator.walk(|range| {
        ranges.push(*range);
        ControlFlow::<()>::Continue(())
    });
    ranges.sort_by_key(|range| (range.pool, range.memory, range.offset));
    ranges
}

/// Panics unless the books agree with themselves: counters, a walk, and the sums over the pools.
pub(crate) fn assert_balanced<D: Device>(allocator: &Allocator<D>) {
    assert_eq!(allocator.check(), Ok(()));
    let sum = allocator.statistics();
    let mut parts = Vec::new();
    for index in 0..allocator.pool_count() {
        parts.push(allocator.pool_statistics(index).expect("the pool exists"));
    }
    assert_eq!(allocator.pool_statistics(allocator.pool_count()), None);
    for figures in parts.iter().chain([&sum]) {
        let Statistics { in_use, padding, pending, free, leaving, stuck, .. } = *figures;
        let held = in_use + padding + pending + free + leaving + stuck;
        assert_eq!(figures.reserved, held, "{figures:?}");
        assert!(figures.in_use <= figures.in_use_peak && figures.reserved <= figures.reserved_peak, "{figures:?}");
        assert!(figures.pages_idle <= figures.pages && figures.pages <= figures.pages_peak, "{figures:?}");
        assert!(figures.largest_free_bound <= figures.free, "{figures:?}");
    }
    let add = |figure: fn(&Statistics) -> u64| parts.iter().map(figure).sum::<u64>();
    assert_eq!(sum.reserved, add(|s| s.reserved));
    assert_eq!(sum.in_use, add(|s| s.in_use));
    assert_eq!(sum.padding, add(|s| s.padding));
    assert_eq!(sum.free, add(|s| s.free));
    assert_eq!(sum.stuck, add(|s| s.stuck));
    assert_eq!(u64::from(sum.slices), add(|s| u64::from(s.slices)));
    assert_eq!(u64::from(sum.pages), add(|s| u64::from(s.pages)));
    assert_eq!(u64::from(sum.free_ranges), add(|s| u64::from(s.free_ranges)));

    let ranges = ranges(allocator);
    let live = ranges.iter().filter(|range| range.id.is_some());
    assert_eq!(sum.in_use, live.clone().map(|range| range.requested).sum());
    assert_eq!(sum.padding, live.clone().map(|range| range.size - range.requested).sum());
    assert_eq!(sum.slices as usize, live.count());
    let free: Vec<_> = ranges.iter().filter(|range| range.id.is_none()).map(|range| range.size).collect();
    assert_eq!(sum.free, free.iter().sum());
    assert_eq!(sum.free_ranges as usize, free.len());
    assert_eq!(allocator.largest_free(), free.iter().copied().max().unwrap_or(0));
    for pair in ranges.windows(2) {
        let [one, two] = pair else { continue };
        if (one.pool, one.memory) == (two.pool, two.memory) {
            assert_eq!(one.offset + one.size, two.offset, "ranges of a page leave no gap and do not overlap");
            assert!(one.id.is_some() || two.id.is_some(), "two free ranges are neighbours: {one:?} {two:?}");
        } else {
            assert_eq!(two.offset, 0);
        }
    }
}

/// [`assert_balanced`], and the device's books say the same as the allocator's.
pub(crate) fn assert_agree<A: Device, D: Device>(allocator: &Allocator<A>, device: &LedgerDevice<D>) {
    assert_balanced(allocator);
    let figures = allocator.statistics();
    assert_eq!(figures.reserved, device.bytes());
    assert_eq!(u64::from(figures.pages) + u64::from(figures.pages_stuck), device.pages());
    assert_eq!(figures.device_allocations, device.given());
    assert_eq!(figures.device_deallocations, device.taken());
    let out = device.handles();
    for range in ranges(allocator) {
        assert!(out.contains(&range.memory), "{range:?} lies in a page that the device has back");
    }
}

/// What a refused call must leave as it was: every slice, hole and page, and all figures but those that only ever rise
/// (peaks, counts of device calls, host memory, which stays for the next try).
#[derive(Debug, PartialEq)]
pub(crate) struct Snapshot {
    pools: Vec<Statistics>,
    ranges: Vec<Range>,
}

impl Snapshot {
    pub(crate) fn of<D: Device>(allocator: &Allocator<D>) -> Self {
        let figures = |index| allocator.pool_statistics(index).expect("the pool exists");
        let pools = (0..allocator.pool_count()).map(figures).map(lasting);
        Self { pools: pools.collect(), ranges: ranges(allocator) }
    }
}
