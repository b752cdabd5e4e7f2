//! A space against its intervals.

use super::intervals::{Intervals, Used};
use crate::host::Host;
use crate::input::Input;
use slicepool_core::{Error, SliceId, Space, SpaceOptions, SpaceSlice};
use std::collections::BTreeMap;

const MOST_GRANULES: u64 = u32::MAX as u64;

/// More slices take too long to look at.
const MOST_SLICES: usize = 300;

/// Freed handles that are remembered.
const MOST_STALE: usize = 100;

struct Subject<'a> {
    space: Space,
    host: &'a Host,
    intervals: Intervals,
    /// Where each live handle's slice lies.
    places: BTreeMap<u64, u64>,
    stale: Vec<u64>,
    most_asked: u64,
    stranger: Space,
}

/// Makes a space and does with it what the input says.
pub(super) fn play(input: &mut Input<'_>) {
    let host = Host::default();
    let granule = input.pick(&[1, 1, 1, 4, 64, 256, 1 << 16, 1 << 31, 1 << 32, 1 << 33, 24, 0]);
    let size = match input.byte() {
        0..128 => (input.below(1 << 12) as u64 + 1).saturating_mul(granule),
        128..144 => MOST_GRANULES.saturating_mul(granule).saturating_sub(u64::from(input.byte())),
        _ => input.number(),
    };
    let expected = if !granule.is_power_of_two() || granule > 1 << 32 {
        Err(Error::InvalidArgument { field: c"granule", value: granule })
    } else if size < granule || size / granule > MOST_GRANULES {
        Err(Error::InvalidArgument { field: c"size", value: size })
    } else {
        Ok(())
    };
    let space = Space::try_new(SpaceOptions::new(size).with_granule(granule).with_memory(host.memory()));
    assert_eq!(space.as_ref().map(|_| ()).map_err(|&error| error), expected);
    if let Ok(space) = space {
        let mut subject = Subject {
            space,
            host: &host,
            intervals: Intervals::new(granule, size / granule * granule),
            places: BTreeMap::new(),
            stale: Vec::new(),
            most_asked: 0,
            stranger: Space::try_new(SpaceOptions::new(100)).expect("there is memory"),
        };
        while !input.is_over() {
            subject.step(input);
            subject.check();
        }
        subject.end();
    }
    assert!(host.is_empty(), "the host's memory has not all come back");
}

impl Subject<'_> {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() & 15 {
            0..=5 => {
                let (size, alignment) = self.request(input);
                self.allocate(size, alignment);
            }
            6..=9 => {
                let id = self.live(input);
                self.free(id);
            }
            10 => {
                let id = if input.one_in(4) { self.any(input) } else { self.live(input) };
                let (size, _) = self.request(input);
                self.resize(id, size);
            }
            11 => {
                let id = self.any(input);
                self.free(id);
            }
            12 => {
                let id = self.any(input);
                self.get(id);
            }
            13 => {
                let additional = input.number().wrapping_mul(if input.one_in(4) { 1 } else { self.intervals.granule });
                self.grow(additional);
            }
            14 if input.one_in(8) => self.clear(),
            14 => self.host.fail_in(Some(u32::from(input.byte() & 3))),
            _ => {
                // A perfect fill, as far as that goes.
                let size = (self.intervals.end >> (input.byte() & 7)).max(1);
                (0..16).for_each(|_| self.allocate(size, 1));
            }
        }
        self.host.fail_in(None);
    }

    fn request(&self, input: &mut Input<'_>) -> (u64, u64) {
        (input.size(self.intervals.granule, self.intervals.end), input.alignment())
    }

    fn live(&self, input: &mut Input<'_>) -> Option<u64> {
        let index = input.below(self.places.len().max(1));
        self.places.keys().nth(index).copied()
    }

    /// A handle that may be good, freed, another's or none at all.
    fn any(&mut self, input: &mut Input<'_>) -> Option<u64> {
        match input.byte() & 7 {
            0 | 1 => self.live(input),
            2 | 3 => self.stale.get(input.below(self.stale.len().max(1))).copied(),
            4 => self.stranger.allocate(1, 1).ok().map(|slice| slice.id.to_raw()),
            5 | 6 => self.live(input).map(|id| id ^ 1 << (input.byte() & 63)),
            _ => Some(input.word()),
        }
    }

    /// Where a handle's slice lies, or what it is refused with, as far as that is known.
    fn look_up(&self, id: u64) -> Result<u64, Option<Error>> {
        match self.places.get(&id) {
            Some(&place) => Ok(place),
            None if self.stale.contains(&id) => Err(Some(Error::StaleHandle)),
            None => Err(None),
        }
    }

    fn check_refusal(&self, found: Error, expected: Option<Error>) {
        match expected {
            Some(expected) => assert_eq!(found, expected),
            None => assert!(matches!(found, Error::StaleHandle | Error::ForeignHandle), "{found:?}"),
        }
    }

    /// What the size alone is refused with.
    fn refusal(&self, size: u64) -> Option<Error> {
        match size {
            0 => Some(Error::InvalidArgument { field: c"size", value: 0 }),
            _ if size > self.intervals.end => Some(Error::TooLarge { size, limit: self.intervals.end }),
            _ => None,
        }
    }

    fn allocate(&mut self, size: u64, alignment: u64) {
        if self.places.len() >= MOST_SLICES {
            return;
        }
        let misaligned = Error::InvalidArgument { field: c"alignment", value: alignment };
        let never = match self.refusal(size) {
            Some(Error::TooLarge { .. }) | None if !alignment.is_power_of_two() => Some(misaligned),
            refusal => refusal,
        };
        let fits = never.is_none() && self.intervals.fits(size, alignment);
        let failures = self.host.failures();
        match self.space.allocate(size, alignment) {
            Ok(SpaceSlice { id, offset, size: rounded }) => {
                assert!(fits, "{size} at {alignment} was served, and should have been refused with {never:?}");
                self.intervals.add(offset, Used { id: id.to_raw(), size: rounded, asked: size }, alignment);
                assert!(!self.stale.contains(&id.to_raw()), "a freed handle has come back");
                assert_eq!(self.places.insert(id.to_raw(), offset), None, "a handle is given out twice");
            }
            Err(Error::OutOfHostMemory { .. }) => assert_ne!(self.host.failures(), failures, "the host has memory"),
            Err(Error::PoolCapacityExceeded { size: told, capacity, in_use, pending, largest_free, .. }) => {
                assert!(!fits, "{size} at {alignment} fits, and was refused");
                assert_eq!((never, told, capacity), (None, size, self.intervals.end));
                assert_eq!((in_use, pending), (self.intervals.sums().0, 0));
                self.check_bound(largest_free);
            }
            Err(error) => assert_eq!(Some(error), never, "{size} at {alignment}"),
        }
    }

    fn free(&mut self, id: Option<u64>) {
        let Some((raw, id)) = id.and_then(|raw| Some((raw, SliceId::from_raw(raw)?))) else { return };
        match (self.space.free(id), self.look_up(raw)) {
            (Ok(()), Ok(place)) => self.forget(raw, place),
            (Err(found), Err(expected)) => self.check_refusal(found, expected),
            (found, expected) => panic!("free({raw:#x}) answers {found:?} instead of {expected:?}"),
        }
    }

    fn forget(&mut self, id: u64, place: u64) {
        self.intervals.used.remove(&place);
        self.places.remove(&id);
        self.stale.push(id);
        if self.stale.len() > MOST_STALE {
            self.stale.remove(0);
        }
    }

    fn resize(&mut self, id: Option<u64>, size: u64) {
        let Some((raw, id)) = id.and_then(|raw| Some((raw, SliceId::from_raw(raw)?))) else { return };
        let failures = self.host.failures();
        let found = self.space.try_resize(id, size);
        let place = match self.look_up(raw) {
            Ok(place) => place,
            Err(expected) => return self.check_refusal(found.expect_err("no such slice"), expected),
        };
        let available = self.intervals.available(place);
        match found {
            Ok(slice) => {
                assert!(self.refusal(size).is_none() && size <= available);
                assert_eq!((slice.id, slice.offset), (id, place));
                assert_eq!(u128::from(slice.size), self.intervals.rounded(size));
                let used = self.intervals.used.get_mut(&place).expect("it is there");
                (used.size, used.asked) = (slice.size, size);
            }
            Err(Error::OutOfHostMemory { .. }) => assert_ne!(self.host.failures(), failures, "the host has memory"),
            Err(Error::NoRoom { size: told, available: left }) => {
                assert_eq!((told, left, self.refusal(size)), (size, available, None));
                assert!(self.intervals.rounded(size) > u128::from(available));
            }
            Err(error) => assert_eq!(Some(error), self.refusal(size)),
        }
    }

    fn get(&mut self, id: Option<u64>) {
        let Some((raw, id)) = id.and_then(|raw| Some((raw, SliceId::from_raw(raw)?))) else { return };
        match (self.space.get(id), self.look_up(raw)) {
            (Ok(slice), Ok(offset)) => {
                assert_eq!(slice, SpaceSlice { id, offset, size: self.intervals.used[&offset].size });
            }
            (Err(found), Err(expected)) => self.check_refusal(found, expected),
            (found, expected) => panic!("get({raw:#x}) answers {found:?} instead of {expected:?}"),
        }
    }

    fn grow(&mut self, additional: u64) {
        let granule = self.intervals.granule;
        let total = self.intervals.end.checked_add(additional).filter(|total| total / granule <= MOST_GRANULES);
        let failures = self.host.failures();
        match (self.space.grow(additional), total.filter(|_| additional % granule == 0)) {
            (Ok(()), Some(total)) => self.intervals.end = total,
            (Err(Error::OutOfHostMemory { .. }), Some(_)) => assert_ne!(self.host.failures(), failures),
            (Err(Error::InvalidArgument { field, value }), None) => {
                assert_eq!((field, value), (c"additional", additional));
            }
            (found, expected) => panic!("grow({additional}) answers {found:?}, the end should be {expected:?}"),
        }
    }

    fn clear(&mut self) {
        self.space.clear();
        while let Some((id, place)) = self.places.pop_first() {
            self.forget(id, place);
        }
    }

    fn check_bound(&self, bound: u64) {
        let largest = self.largest();
        assert!(bound <= largest && (bound == 0) == (largest == 0), "{bound} is no bound on {largest}");
    }

    fn largest(&self) -> u64 {
        self.intervals.gaps().map(|(_, size)| size).max().unwrap_or(0)
    }

    /// Compares everything that can be seen.
    fn check(&mut self) {
        self.space.check().expect("the invariants hold");
        let mut shown: Vec<_> = self.space.pieces().collect();
        shown.sort_unstable_by_key(|piece| piece.offset);
        let used = self.intervals.used.iter().map(|(&at, used)| (at, used.size, Some(used.id)));
        let mut expected: Vec<_> = used.chain(self.intervals.gaps().map(|(at, size)| (at, size, None))).collect();
        expected.sort_unstable();
        let shown: Vec<_> = shown.iter().map(|it| (it.offset, it.size, it.id.map(SliceId::to_raw))).collect();
        assert_eq!(shown, expected, "the pieces");
        let (asked, size) = self.intervals.sums();
        self.most_asked = self.most_asked.max(asked);
        let found = self.space.statistics();
        assert_eq!((found.size, found.in_use, found.padding), (self.intervals.end, asked, size - asked));
        assert_eq!(found.free, self.intervals.end - size);
        assert!(found.in_use_peak >= self.most_asked && found.in_use_peak <= self.intervals.end);
        let gaps = self.intervals.gaps().count();
        assert_eq!((found.slices as usize, found.free_ranges as usize), (self.places.len(), gaps));
        self.check_bound(found.largest_free_bound);
        assert_eq!(self.space.largest_free(), self.largest());
        for &raw in self.stale.iter().rev().take(2).chain(self.stale.first()) {
            let id = SliceId::from_raw(raw).expect("no handle is 0");
            assert_eq!(self.space.get(id), Err(Error::StaleHandle), "{raw:#x} was freed");
        }
    }

    /// Frees what is left: one hole is there then.
    fn end(mut self) {
        while let Some((&id, _)) = self.places.first_key_value() {
            self.free(Some(id));
        }
        self.check();
        let whole: Vec<_> = self.space.pieces().map(|piece| (piece.offset, piece.size)).collect();
        assert_eq!(whole, [(0, self.intervals.end)], "everything is free");
    }
}
