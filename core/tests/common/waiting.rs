//! What the tests of slices that wait for the device have in common.

use super::books::ranges;
use super::devices::LedgerDevice;
use slicepool_core::{Allocator, Device, Point, Range, Slice};

/// Points on timelines.
pub(crate) fn points(points: &[(u32, u64)]) -> Vec<Point> {
    points.iter().map(|&(timeline, value)| Point::new(timeline, value)).collect()
}

/// How many slices wait.
pub(crate) fn waiting<D: Device>(allocator: &Allocator<D>) -> u32 {
    allocator.statistics().slices_pending
}

/// The range that a walk shows where a slice lies or lay.
pub(crate) fn range_of<D: Device>(allocator: &Allocator<D>, slice: &Slice) -> Range {
    let there = |range: &Range| {
        range.memory == slice.memory && range.offset <= slice.offset && slice.offset < range.offset + range.size
    };
    *ranges(allocator).iter().find(|range| there(range)).expect("the slice's page is held")
}

/// Panics unless figures, a walk and the device agree, slices that wait among them.
pub(crate) fn assert_agree<A: Device, D: Device>(allocator: &Allocator<A>, device: &LedgerDevice<D>) {
    assert_eq!(allocator.check(), Ok(()));
    let sum = allocator.statistics();
    let held = sum.in_use + sum.padding + sum.pending + sum.free + sum.leaving + sum.stuck;
    assert_eq!((sum.reserved, device.bytes()), (held, held), "{sum:?}");
    assert_eq!(u64::from(sum.pages) + u64::from(sum.pages_stuck), device.pages());
    let ranges = ranges(allocator);
    let figures = |kind: fn(&Range) -> bool| {
        let found = ranges.iter().filter(|range| kind(range));
        found.fold((0, 0), |(count, bytes), range| (count + 1, bytes + range.size))
    };
    let is_live = |range: &Range| range.id.is_some();
    assert!(!ranges.iter().any(|range| is_live(range) && range.pending), "what waits has no handle");
    assert_eq!(figures(|range| range.pending), (sum.slices_pending, sum.pending));
    assert_eq!(figures(is_live), (sum.slices, sum.in_use + sum.padding));
    assert_eq!(figures(|range| range.id.is_none() && !range.pending), (sum.free_ranges, sum.free));
    assert!(sum.largest_free_bound <= allocator.largest_free());
    for pair in ranges.windows(2) {
        let [one, two] = pair else { continue };
        if (one.pool, one.memory) == (two.pool, two.memory) {
            assert_eq!(one.offset + one.size, two.offset, "{one:?} {two:?}");
            let free = |range: &Range| !is_live(range) && !range.pending;
            assert!(!(free(one) && free(two)), "two free ranges are neighbours: {one:?} {two:?}");
        } else {
            assert_eq!(two.offset, 0);
        }
    }
    for range in &ranges {
        assert!(device.is_out(range.memory), "{range:?} lies in a page that the device has back");
    }
}
