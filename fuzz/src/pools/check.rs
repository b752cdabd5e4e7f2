//! What must be true after every step.

use super::subject::Subject;
use slicepool_core::{Error, PoolType, Range, SliceId, Statistics};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Sums over what a walk shows.
#[derive(Debug, Default)]
struct Shown {
    in_use: u128,
    live_bytes: u128,
    pending: u128,
    free: u128,
    slices: u32,
    slices_pending: u32,
    free_ranges: u32,
}

impl Subject {
    fn walk(&self) -> Vec<Range> {
        let mut ranges = Vec::new();
        let _: ControlFlow<()> = self.allocator().walk(|range| {
            ranges.push(*range);
            ControlFlow::Continue(())
        });
        ranges
    }

    /// Compares everything that can be seen with what is known.
    pub(super) fn check(&self) {
        assert!(!self.world.is_inside());
        assert_eq!(self.allocator().check(), Ok(()));
        let ranges = self.walk();
        self.follow_resolved(&ranges);
        self.check_live(&ranges);
        self.check_pending(&ranges);
        if !self.world.state.borrow().habits.dry_run {
            self.check_pages(&ranges);
        }
        self.check_figures(&ranges);
        self.check_stale();
    }

    /// A page of a dry run that has its memory now has given it to all slices in it.
    fn follow_resolved(&self, ranges: &[Range]) {
        let mut state = self.world.state.borrow_mut();
        if !state.habits.dry_run {
            return;
        }
        for range in ranges {
            let Some(live) = range.id.and_then(|id| state.live.get_mut(&id.to_raw())) else { continue };
            if live.slice.memory == u64::MAX && range.memory != u64::MAX {
                live.slice = self.allocator().get(live.slice.id).expect("it is live");
            }
        }
    }

    fn check_live(&self, ranges: &[Range]) {
        let state = self.world.state.borrow();
        let mut left = state.live.clone();
        for range in ranges {
            let Some(id) = range.id else { continue };
            let live = left.remove(&id.to_raw()).unwrap_or_else(|| panic!("{range:?} is shown, but nobody has it"));
            let found = (range.memory, range.offset, range.size, range.requested, range.address);
            let slice = live.slice;
            assert_eq!(found, (slice.memory, slice.offset, slice.size, live.asked, slice.address), "{id:?}");
            assert!(!range.pending);
            assert_eq!(self.allocator().get(id), Ok(slice));
        }
        assert!(left.is_empty(), "not shown: {left:?}");
    }

    /// What waits is shown until it is due; what is not shown any more is free.
    fn check_pending(&self, ranges: &[Range]) {
        let state = &mut *self.world.state.borrow_mut();
        if state.habits.dry_run {
            state.pending.clear();
            return;
        }
        let shown: BTreeMap<_, _> = ranges
            .iter()
            .filter(|range| range.pending)
            .map(|range| ((range.memory, range.offset), range.size))
            .collect();
        let mut pending = std::mem::take(&mut state.pending);
        let mut known = 0;
        pending.retain(|slice| {
            if let Some(&size) = shown.get(&(slice.memory, slice.offset)) {
                assert_eq!(size, slice.size, "{slice:?}");
                known += 1;
                return true;
            }
            assert!(state.is_due(slice), "{slice:?} is free already; known: {:?}", state.told);
            false
        });
        // Of several that lay in one place one after the other, all but the last are free.
        assert!(known >= shown.len() || state.unseen, "{shown:?} wait, of which only these are known to: {pending:?}");
        state.pending = pending;
    }

    /// Every page that is held is shown from its start to its end, without two holes side by side.
    fn check_pages(&self, ranges: &[Range]) {
        let state = self.world.state.borrow();
        let mut pages: BTreeMap<u64, Vec<&Range>> = BTreeMap::new();
        for range in ranges {
            pages.entry(range.memory).or_default().push(range);
        }
        for (memory, held) in state.held.iter().filter(|(_, held)| !held.stuck) {
            let mut inside = pages.remove(memory).unwrap_or_else(|| panic!("{held:?} is not shown"));
            inside.sort_unstable_by_key(|range| (range.offset, range.size));
            let mut at = 0;
            let mut after_hole = false;
            for range in inside {
                assert_eq!(range.offset, at, "{range:?} in {held:?}");
                let is_hole = range.id.is_none() && !range.pending;
                assert!(!(is_hole && after_hole), "{range:?} was not joined with the hole before it");
                after_hole = is_hole;
                at += range.size;
            }
            assert_eq!(at, held.memory.size, "{held:?}");
        }
        // A device that has refused a page once may have to keep it in use.
        pages.retain(|memory, _| !state.held.contains_key(memory));
        assert!(pages.is_empty(), "in pages that are not held: {pages:?}");
    }

    fn check_figures(&self, ranges: &[Range]) {
        let allocator = self.allocator();
        let mut shown = Shown::default();
        for range in ranges {
            let size = u128::from(range.size);
            if range.id.is_some() {
                shown.in_use += u128::from(range.requested);
                shown.live_bytes += size;
                shown.slices += 1;
            } else if range.pending {
                shown.pending += size;
                shown.slices_pending += 1;
            } else {
                shown.free += size;
                shown.free_ranges += 1;
            }
        }
        let told = allocator.statistics();
        let same = |told: u64, sum: u128, what| {
            let sum = u64::try_from(sum).unwrap_or(u64::MAX);
            assert!(told == sum || told == u64::MAX, "{what}: {told} is told, {sum} is shown");
        };
        same(told.in_use, shown.in_use, "in use");
        same(told.padding, shown.live_bytes - shown.in_use, "padding");
        same(told.pending, shown.pending, "pending");
        same(told.free, shown.free, "free");
        assert_eq!(
            (told.slices, told.slices_pending, told.free_ranges),
            (shown.slices, shown.slices_pending, shown.free_ranges)
        );
        assert_eq!((told.leaving, told.growths_in_flight), (0, 0));
        check_sum(&told);
        let state = self.world.state.borrow();
        same(told.reserved - told.unmapped, state.bytes, "held");
        let stuck = state.held.values().filter(|held| held.stuck).count();
        assert!(told.pages_stuck as usize <= stuck, "{} pages are stuck, {stuck} were refused", told.pages_stuck);
        let pages = told.pages + told.pages_stuck;
        assert_eq!((pages - told.pages_unmapped) as usize, state.held.len(), "pages held");
        if let Some(limit) = state.habits.max_bytes {
            assert!(state.bytes <= u128::from(limit), "{} bytes are held, {limit} may be", state.bytes);
        }
        if let Some(budget) = &self.budget {
            let used = budget.statistics();
            let held = (state.bytes, state.held.len() as u32);
            assert_eq!((u128::from(used.bytes), used.pages), held, "the budget's account");
        }
        drop(state);
        let types = (0..allocator.memory_type_count()).filter_map(|index| allocator.type_statistics(index));
        let mut reserved = 0_u128;
        for figures in types {
            check_sum(&figures);
            reserved += u128::from(figures.reserved);
        }
        same(told.reserved, reserved, "held of all types");
        for index in 0..allocator.pool_count() {
            let report = allocator.pool_report(index).expect("there is such a pool");
            check_sum(&report.statistics);
            if let PoolType::SlicedPages { max_pool_size: Some(cap), .. } = report.options.pool_type {
                assert!(report.statistics.reserved <= cap, "{report:?}");
            }
        }
        let largest = allocator.largest_free();
        let shown = ranges.iter().filter(|range| range.id.is_none() && !range.pending);
        assert_eq!(largest, shown.map(|range| range.size).max().unwrap_or(0), "the largest hole");
        let bound = told.largest_free_bound;
        assert!(bound <= largest && (bound == 0) == (largest == 0), "{bound} is no bound on {largest}");
    }

    fn check_stale(&self) {
        let stale = self.stale.borrow();
        for &raw in stale.iter().rev().take(2).chain(stale.first()) {
            let id = SliceId::from_raw(raw).expect("no handle is 0");
            assert_eq!(self.allocator().get(id), Err(Error::StaleHandle), "{raw:#x} was freed");
        }
    }

    /// Every page is one hole.
    pub(super) fn check_that_all_is_free(&self) {
        let ranges = self.walk();
        let free = ranges.iter().all(|range| range.id.is_none() && !range.pending && range.offset == 0);
        assert!(free, "everything was freed: {ranges:?}");
        assert_eq!(self.allocator().statistics().pages as usize, ranges.len(), "each page is one hole: {ranges:?}");
    }
}

/// What is held is used in one way or another.
fn check_sum(told: &Statistics) {
    let parts = [told.in_use, told.padding, told.pending, told.free, told.leaving, told.stuck];
    let sum: u128 = parts.into_iter().map(u128::from).sum();
    assert!(u128::from(told.reserved) == sum || told.reserved == u64::MAX, "{told:?}");
    assert!(told.reserved_peak >= told.reserved && told.in_use_peak >= told.in_use, "{told:?}");
}
