//! What is in use of a range of numbers: a sorted map of intervals. What is free is what lies between.

use std::collections::BTreeMap;

/// An interval in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) id: u64,
    pub(super) size: u64,
    pub(super) asked: u64,
}

/// The intervals in use from 0 to `end`.
#[derive(Debug)]
pub(super) struct Intervals {
    pub(super) granule: u64,
    pub(super) end: u64,
    pub(super) used: BTreeMap<u64, Used>,
}

impl Intervals {
    pub(super) fn new(granule: u64, end: u64) -> Self {
        Self { granule, end, used: BTreeMap::new() }
    }

    /// A size in whole granules.
    pub(super) fn rounded(&self, size: u64) -> u128 {
        u128::from(size).next_multiple_of(u128::from(self.granule))
    }

    /// Every free interval: where, and how large.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = 0;
        let used = self.used.iter().map(|(&start, used)| (start, start + used.size));
        used.chain([(self.end, self.end)]).filter_map(move |(start, end)| {
            let gap = (at, start - at);
            at = end;
            (gap.1 != 0).then_some(gap)
        })
    }

    /// Whether there is room for so much at a multiple of `alignment`.
    pub(super) fn fits(&self, size: u64, alignment: u64) -> bool {
        let alignment = u128::from(alignment.max(self.granule));
        self.gaps().any(|(start, free)| {
            let (start, end) = (u128::from(start), u128::from(start) + u128::from(free));
            start.next_multiple_of(alignment) + self.rounded(size) <= end
        })
    }

    pub(super) fn add(&mut self, start: u64, used: Used, alignment: u64) {
        assert_eq!((start % alignment, start % self.granule), (0, 0), "{start} is not aligned to {alignment}");
        assert_eq!(u128::from(used.size), self.rounded(used.asked), "so much is taken for {}", used.asked);
        let end = start.checked_add(used.size).filter(|&end| end <= self.end);
        let end = end.unwrap_or_else(|| panic!("{start} + {} is beyond {}", used.size, self.end));
        if let Some((at, other)) = self.used.range(..end).next_back() {
            assert!(at + other.size <= start, "{used:?} at {start} overlaps {other:?} at {at}");
        }
        self.used.insert(start, used);
    }

    /// So much could the interval at `start` have where it lies.
    pub(super) fn available(&self, start: u64) -> u64 {
        self.used.range(start + 1..).next().map_or(self.end, |(&next, _)| next) - start
    }

    /// Asked for, and in use, rounding included.
    pub(super) fn sums(&self) -> (u64, u64) {
        self.used.values().fold((0, 0), |(asked, size), used| (asked + used.asked, size + used.size))
    }
}
