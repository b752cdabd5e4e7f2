//! What the books must say at any time, whatever there is: persistent slices, slices that wait, pages without memory.

use super::devices::LedgerDevice;
use slicepool_core::{Allocator, Device, OwnPages, Range, Statistics};
use std::ops::ControlFlow;

/// What stands for the pools of slices with pages of their own, those of persistent ones first.
fn own_pools<D: Device>(allocator: &Allocator<D>) -> impl Iterator<Item = u32> {
    let types = 0..allocator.memory_type_count();
    let kinds = [OwnPages::Persistent, OwnPages::Dedicated, OwnPages::Once];
    kinds.into_iter().flat_map(move |pages| types.clone().map(move |memory_type| pages.pool(memory_type)))
}

/// Figures of every pool, those of slices with pages of their own last if there has been one.
pub(crate) fn parts<D: Device>(allocator: &Allocator<D>) -> Vec<Statistics> {
    let own = own_pools(allocator).filter_map(|pool| allocator.pool_statistics(pool as usize));
    (0..allocator.pool_count()).filter_map(|index| allocator.pool_statistics(index)).chain(own).collect()
}

/// Every range, in an order that does not depend on that of the walk. Pages without memory cannot be told apart in it.
pub(crate) fn all_ranges<D: Device>(allocator: &Allocator<D>) -> Vec<Range> {
    let mut ranges = Vec::new();
    let _ = allocator.walk(|range| {
        ranges.push(*range);
        ControlFlow::<()>::Continue(())
    });
    ranges.sort_by_key(|range| (range.pool, range.memory, range.offset, range.id, range.size));
    ranges
}

/// Panics unless the books agree with themselves: each pool's figures, their sums, and a walk.
pub(crate) fn assert_sums<D: Device>(allocator: &Allocator<D>) {
    assert_eq!(allocator.check(), Ok(()));
    let (sum, parts) = (allocator.statistics(), parts(allocator));
    for figures in parts.iter().chain([&sum]) {
        let Statistics { in_use, padding, pending, free, leaving, stuck, .. } = *figures;
        assert_eq!(figures.reserved, in_use + padding + pending + free + leaving + stuck, "{figures:?}");
        assert!(figures.unmapped <= figures.reserved && figures.pages_unmapped <= figures.pages, "{figures:?}");
        assert!(in_use <= figures.in_use_peak && figures.reserved <= figures.reserved_peak, "{figures:?}");
        assert!(figures.pages_idle <= figures.pages && figures.pages <= figures.pages_peak, "{figures:?}");
    }
    let figures: [fn(&Statistics) -> u64; 13] = [
        |s| s.reserved,
        |s| s.in_use,
        |s| s.padding,
        |s| s.pending,
        |s| s.free,
        |s| s.stuck,
        |s| s.unmapped,
        |s| s.slices.into(),
        |s| s.slices_pending.into(),
        |s| s.pages.into(),
        |s| s.pages_idle.into(),
        |s| s.pages_unmapped.into(),
        |s| s.pages_stuck.into(),
    ];
    for (i, figure) in figures.iter().enumerate() {
        assert_eq!(figure(&sum), parts.iter().map(figure).sum::<u64>(), "figure {i} of {sum:?}");
    }
    let ranges = all_ranges(allocator);
    let bytes = |wanted: fn(&&Range) -> bool| ranges.iter().filter(wanted).map(|range| range.size).sum::<u64>();
    assert_eq!(ranges.iter().map(|range| range.requested).sum::<u64>(), sum.in_use);
    assert_eq!(bytes(|range| range.id.is_some()), sum.in_use + sum.padding);
    assert_eq!(bytes(|range| range.pending), sum.pending);
    assert_eq!(bytes(|range| range.id.is_none() && !range.pending), sum.free);
}

/// [`assert_sums`], and the device has given out what the allocator says it holds, but for what has no memory yet.
pub(crate) fn assert_held<A: Device, D: Device>(allocator: &Allocator<A>, device: &LedgerDevice<D>) {
    assert_sums(allocator);
    let figures = allocator.statistics();
    assert_eq!(figures.reserved - figures.unmapped, device.bytes(), "{figures:?}");
    assert_eq!(u64::from(figures.pages + figures.pages_stuck - figures.pages_unmapped), device.pages(), "{figures:?}");
    let out = device.handles();
    for range in all_ranges(allocator) {
        assert!(range.memory == u64::MAX || out.contains(&range.memory), "{range:?} lies in a page that went back");
    }
}

/// Figures without those that only ever rise: peaks, counts of device calls, and host memory, which stays for the next try.
pub(crate) fn lasting(figures: Statistics) -> Statistics {
    let mut figures = figures;
    figures.reserved_peak = 0;
    figures.in_use_peak = 0;
    figures.largest_allocation = 0;
    figures.pages_peak = 0;
    figures.device_allocations = 0;
    figures.device_deallocations = 0;
    figures.metadata = 0;
    figures.largest_free_bound = 0;
    figures
}

/// What a refused call must leave as it was: every slice, hole and page. A pool of slices with pages of their own that has
/// none is as good as none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    pools: Vec<Statistics>,
    own: Vec<(u32, Statistics)>,
    ranges: Vec<Range>,
}

impl State {
    pub(crate) fn of<D: Device>(allocator: &Allocator<D>) -> Self {
        let figures = |pool: u32| allocator.pool_statistics(pool as usize).map(lasting);
        let pools = (0..allocator.pool_count() as u32).filter_map(figures).collect();
        let own = own_pools(allocator).filter_map(|pool| Some((pool, figures(pool)?)));
        let own = own.filter(|(_, figures)| *figures != Statistics::default()).collect();
        Self { pools, own, ranges: all_ranges(allocator) }
    }
}
