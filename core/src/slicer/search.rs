//! The searches that look at more than a fixed number of holes: before a refusal, and for the largest hole.
//!
//! They go on from call to call, so that their owner can give up its lock in between.
#![forbid(unsafe_code)]

use super::bins::{Bins, class_of};
use super::nodes::Kind;
use super::{Slicer, gap_in};
use crate::canary::broken;
use crate::int::mask;
use crate::parts::COMPLETE;

/// Entries of one list that are looked at before the lock is given up (or another page is taken).
pub(crate) const SCAN_STEP: u32 = 64;

/// The most entries that are looked at per lock hold.
const MAX_STEP: u32 = 1024;

/// A search that is disturbed so often by other threads goes on from where it is, as long as that still exists, and
/// no longer starts again: so that it ends.
const START_AGAIN: u32 = 8;

/// A search that is disturbed so often gives up.
const GIVE_UP: u32 = 1 << 16;

/// Where a search left off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Whether the holes are done with, and idle pages are looked at: for pages that are not equal.
    idle: bool,
    /// Whether nothing but the request's own class is looked at.
    own_class: bool,
    class: u32,
    node: u32,
    /// Value of [`Slicer::changes`] that `node` belongs to.
    changes: u32,
    /// Entries to look at per call. Doubles whenever the search starts again, up to [`MAX_STEP`].
    step: u32,
    /// How often something has changed under the search.
    disturbed: u32,
    /// Entries left to look at, over all calls.
    budget: u32,
}

/// What one call of [`Slicer::scan`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// The slot of the new slice.
    Placed(u32),
    /// The edge of an idle page that would hold it, to be taken into use first.
    Idle(u32),
    /// Nothing fits.
    Nothing,
    /// There is more to look at; call again.
    More(Scan),
}

enum Searched {
    Found { hole: u32, gap: u32 },
    Tail,
    Idle(u32),
    Nothing,
    More(Scan),
}

impl Slicer {
    /// Begins a search through every hole that could hold the request; at most `budget` holes are looked at.
    pub(crate) fn begin_scan(&self, size: u32, budget: u32) -> Scan {
        let class = self.bins.at_or_above(class_of(size));
        let node = self.bins.first(class);
        Scan {
            idle: false,
            own_class: false,
            class,
            node,
            changes: self.changes,
            step: SCAN_STEP,
            disturbed: 0,
            budget,
        }
    }

    /// Begins a search through at most `budget` holes of the request's own class.
    pub(crate) fn begin_scan_of_class(&self, size: u32, budget: u32) -> Scan {
        let class = class_of(size);
        Scan { own_class: true, class, node: self.bins.first(class), ..self.begin_scan(size, budget) }
    }

    /// Looks at up to `scan.step` holes and places the slice in the first that fits.
    ///
    /// Only own-class holes need looking at when the alignment is one granule: any hole above would have been found
    /// in constant time. Needs [`Slicer::has_nodes`].
    pub(crate) fn scan(&mut self, size: u32, align_mask: u32, scan: Scan) -> Scanned {
        match self.search(size, align_mask, scan) {
            Searched::Found { hole, gap } => Scanned::Placed(self.carve_behind(hole, gap, size)),
            Searched::Tail => Scanned::Placed(self.allocate_from_tail(size, align_mask)),
            Searched::Idle(edge) => Scanned::Idle(edge),
            Searched::Nothing => Scanned::Nothing,
            Searched::More(scan) => Scanned::More(scan),
        }
    }

    /// Whether [`Slicer::scan`] would place a slice; where to go on if there is more to look at.
    pub(crate) fn would_fit(&self, size: u32, align_mask: u32, scan: Scan) -> Result<bool, Scan> {
        match self.search(size, align_mask, scan) {
            Searched::Found { .. } | Searched::Tail | Searched::Idle(_) => Ok(true),
            Searched::Nothing => Ok(false),
            Searched::More(scan) => Err(scan),
        }
    }

    /// What to go on with after the lock was given up. If something changed meanwhile, holes may have come up behind the
    /// search, and it starts again; but not for ever.
    fn resume(&self, scan: Scan, fresh: impl FnOnce() -> Scan) -> Option<Scan> {
        if scan.changes == self.changes {
            return Some(scan);
        }
        let node = &self.nodes[scan.node];
        let in_place = !(COMPLETE && scan.idle)
            && (scan.node == 0 || (node.is(Kind::Hole) && class_of(node.size.get()) == scan.class));
        let disturbed = scan.disturbed + 1;
        if disturbed > GIVE_UP {
            None
        } else if disturbed <= START_AGAIN || !in_place {
            Some(Scan { step: (scan.step * 2).min(MAX_STEP), disturbed, ..fresh() })
        } else {
            Some(Scan { changes: self.changes, disturbed, ..scan })
        }
    }

    fn search(&self, size: u32, align_mask: u32, mut scan: Scan) -> Searched {
        let fresh = || match scan.own_class && COMPLETE {
            true => self.begin_scan_of_class(size, scan.budget),
            false => self.begin_scan(size, scan.budget),
        };
        match self.resume(scan, fresh) {
            Some(resumed) => scan = resumed,
            None => return Searched::Nothing,
        }
        if broken("refuse_what_fits") {
            scan.budget = 0;
        }
        let mut looked = 0;
        loop {
            let Some(bins) = self.bins_of(&scan) else { return Searched::Nothing };
            while scan.class != 0 {
                while scan.node != 0 {
                    if scan.budget == 0 {
                        return Searched::Nothing;
                    }
                    if looked == scan.step {
                        return Searched::More(scan);
                    }
                    if let Some(gap) = gap_in(&self.nodes[scan.node], size, align_mask) {
                        let found = scan.node;
                        return if COMPLETE && scan.idle {
                            Searched::Idle(found)
                        } else {
                            Searched::Found { hole: found, gap }
                        };
                    }
                    scan.node = bins.after(&self.nodes, scan.class, scan.node);
                    scan.budget = scan.budget.saturating_sub(1);
                    looked += 1;
                }
                if COMPLETE && scan.own_class {
                    return Searched::Nothing;
                }
                scan.class = bins.at_or_above(scan.class + 1);
                scan.node = bins.first(scan.class);
            }
            if COMPLETE && scan.own_class {
                return Searched::Nothing;
            }
            if COMPLETE && scan.idle {
                return Searched::Nothing;
            }
            if gap_in(&self.nodes[self.tail], size, align_mask).is_some() {
                return Searched::Tail;
            }
            if !COMPLETE {
                return Searched::Nothing;
            }
            scan.idle = true;
            if let Some(idle) = &self.idle_bins {
                scan.class = idle.at_or_above(class_of(size));
                scan.node = idle.first(scan.class);
            }
        }
    }

    /// The lists that a search is in.
    fn bins_of(&self, scan: &Scan) -> Option<&Bins> {
        if COMPLETE && scan.idle { self.idle_bins.as_ref() } else { Some(&self.bins) }
    }

    /// A free range of at least this many granules exists; 0 if nothing is free. O(1).
    pub(crate) fn largest_bound(&self) -> u32 {
        let first = |bins: &Bins| {
            let class = bins.highest();
            self.nodes[bins.first(class)].size.get() & mask(class != 0)
        };
        let idle = self.idle_bins.as_ref().filter(|_| COMPLETE).map_or(self.idle_size, first);
        first(&self.bins).max(self.nodes[self.tail].size.get()).max(idle)
    }

    /// Begins the search for the largest free range.
    pub(crate) fn begin_largest(&self) -> (Scan, u32) {
        let class = self.bins.highest();
        let scan = Scan {
            idle: false,
            own_class: false,
            class,
            node: self.bins.first(class),
            changes: self.changes,
            step: SCAN_STEP,
            disturbed: 0,
            budget: u32::MAX,
        };
        (scan, self.nodes[self.tail].size.get().max(self.idle_size))
    }

    /// Goes on with it: the largest so far, and where to go on if there is more to look at.
    pub(crate) fn largest(&self, mut scan: Scan, mut largest: u32) -> (u32, Option<Scan>) {
        let (fresh, least) = self.begin_largest();
        let before = scan;
        match self.resume(scan, || fresh) {
            Some(resumed) => scan = resumed,
            None => return (largest, None),
        }
        if scan.disturbed != before.disturbed && scan.node == fresh.node {
            largest = least;
        }
        let mut looked = 0;
        loop {
            while scan.node != 0 {
                if looked == scan.step {
                    return (largest, Some(scan));
                }
                largest = largest.max(self.nodes[scan.node].size.get());
                let Some(bins) = self.bins_of(&scan) else { return (largest, None) };
                scan.node = bins.after(&self.nodes, scan.class, scan.node);
                looked += 1;
            }
            match &self.idle_bins {
                Some(idle) if !scan.idle => {
                    scan.idle = true;
                    scan.class = idle.highest();
                    scan.node = idle.first(scan.class);
                }
                _ => return (largest, None),
            }
        }
    }
}
