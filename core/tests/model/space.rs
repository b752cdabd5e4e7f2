//! Spaces against the model.

use crate::handles::{Handles, Place};
use crate::ops::{Alignment, Pick, Scale, Size, pick, request, size};
use crate::oracle::{Books, Checked, Live, Page, Shown, check_bound, check_error, ensure};
use crate::run::Case;
use proptest::collection::vec;
use proptest::prelude::*;
use slicepool_core::{Error, SliceId, Space, SpaceOptions, SpacePiece, SpaceSlice};

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Free(Pick),
    Allocate(Size, Alignment),
    Resize(Pick, Size),
    Get(Pick),
    /// So many granules, and a little.
    Grow {
        granules: u32,
        extra: u64,
    },
    Clear,
}

/// A space and what is done with it.
#[derive(Clone, Debug)]
pub(crate) struct SpaceCase {
    size: u64,
    granule: u64,
    ops: Vec<Op>,
}

/// Cases of up to `most` operations; `crowded` lets slices pile up.
pub(crate) fn cases(most: usize, crowded: bool) -> impl Strategy<Value = SpaceCase> {
    // Granules such that there are at most 2^32 - 1 of them, but at least one.
    let around_powers = (1u32..64, -1i64..=1, prop_oneof![3 => 0u32..4, 1 => 0u32..32]).prop_map(|(k, delta, more)| {
        let shift = (k.saturating_sub(31) + more).min(k - 1).min(32);
        ((1u64 << k).wrapping_add_signed(delta), 1 << shift)
    });
    let largest = (0u32..=32, 0u64..3).prop_map(|(shift, less)| ((MOST_GRANULES << shift) - less, 1 << shift));
    let shape = prop_oneof![
        1 => Just((48 << 20, 1)),
        1 => Just((48 << 20, 256)),
        1 => (1u64..2000, prop_oneof![9 => Just(1u64), 9 => Just(8), 1 => Just(24)]),
        6 => around_powers,
        1 => largest,
        1 => (0u32..64, 0u32..36).prop_map(|(k, shift)| (1 << k, 1 << shift)),
    ];
    (shape, vec(op(crowded), 1..most)).prop_map(|((size, granule), ops)| SpaceCase { size, granule, ops })
}

fn op(crowded: bool) -> impl Strategy<Value = Op> {
    let extra = prop_oneof![4 => Just(0u64), 1 => Just(1), 1 => any::<u64>()];
    let granules = prop_oneof![6 => 0u32..100, 1 => any::<u32>()];
    let rare = if crowded { 1 } else { 5 };
    prop_oneof![
        220 => pick().prop_map(Op::Free),
        420 => request().prop_map(|(size, alignment)| Op::Allocate(size, alignment)),
        90 => (pick(), size()).prop_map(|(pick, size)| Op::Resize(pick, size)),
        10 => pick().prop_map(Op::Get),
        20 => (granules, extra).prop_map(|(granules, extra)| Op::Grow { granules, extra }),
        rare => Just(Op::Clear),
    ]
}

impl Case for SpaceCase {
    fn describe(&self) -> String {
        let ops: String = self.ops.iter().map(|op| format!("  {op:?}\n")).collect();
        format!("a space of {} units, granule {}\n{ops}", self.size, self.granule)
    }

    fn check(&self) -> Checked<usize> {
        let Some(mut subject) = Subject::new(self.size, self.granule)? else { return Ok(1) };
        for (index, op) in self.ops.iter().enumerate() {
            let step = subject.step(op).and_then(|()| subject.check_everything(index));
            step.map_err(|error| format!("{error} (operation {index}: {op:?})"))?;
        }
        subject.check_stale_handles(0, 500)?;
        Ok(self.ops.len())
    }
}

/// The space is the one page of its books.
const PAGE: u64 = 0;

const MOST_GRANULES: u64 = u32::MAX as u64;

struct Subject {
    space: Space,
    books: Books,
    handles: Handles,
    granule: u64,
    stranger: Space,
}

impl Subject {
    /// `None` if there can be no such space.
    fn new(size: u64, granule: u64) -> Checked<Option<Self>> {
        let expected = if !granule.is_power_of_two() || granule > 1 << 32 {
            Err(Error::InvalidArgument { field: c"granule", value: granule })
        } else if size < granule || size / granule > MOST_GRANULES {
            Err(Error::InvalidArgument { field: c"size", value: size })
        } else {
            Ok(())
        };
        let space = match (Space::try_new(SpaceOptions::new(size).with_granule(granule)), expected) {
            (Ok(space), Ok(())) => space,
            (Err(found), Err(expected)) if found == expected => return Ok(None),
            (found, _) => return Err(format!("try_new answers {:?} instead of {expected:?}", found.map(|_| ()))),
        };
        let mut books = Books::new(granule, false);
        books.add_page(PAGE, Page::new(size / granule * granule, 0, 0))?;
        let stranger = Space::try_new(SpaceOptions::new(100)).map_err(|error| error.to_string())?;
        Ok(Some(Self { space, books, handles: Handles::default(), granule, stranger }))
    }

    fn size(&self) -> u64 {
        self.books.pages[&PAGE].size
    }

    fn scale(&self) -> Scale {
        let size = self.size();
        Scale { granule: self.granule, page: size, largest_slice: size, page_alignment: self.granule.max(4096) }
    }

    /// The handle of a pick; `None` if the pick comes to nothing.
    fn handle(&mut self, pick: Pick) -> Option<SliceId> {
        let kth = |ids: &[u64], k: u16| (!ids.is_empty()).then(|| ids[usize::from(k) % ids.len()]);
        let raw = match pick {
            Pick::Live(k) => kth(&self.handles.live, k)?,
            Pick::Stale(k) => kth(&self.handles.stale, k)?,
            Pick::Foreign => self.stranger.allocate(1, 1).ok()?.id.to_raw(),
            Pick::Altered { live, bit } => kth(&self.handles.live, live)? ^ (1 << bit),
            Pick::Number(number) => number,
        };
        SliceId::from_raw(raw)
    }

    fn step(&mut self, op: &Op) -> Checked {
        let scale = self.scale();
        match *op {
            Op::Free(pick) => self.free(pick),
            Op::Allocate(size, alignment) => self.allocate(size.bytes(&scale), alignment.bytes(&scale)),
            Op::Resize(pick, size) => self.resize(pick, size.bytes(&scale)),
            Op::Get(pick) => self.get(pick),
            Op::Grow { granules, extra } => self.grow((u64::from(granules) * self.granule).wrapping_add(extra)),
            Op::Clear => {
                self.clear();
                Ok(())
            }
        }
    }

    // ---- operations

    fn free(&mut self, pick: Pick) -> Checked {
        let Some(id) = self.handle(pick) else { return Ok(()) };
        let expected = self.handles.look_up(id.to_raw());
        let found = self.space.free(id);
        ensure!(found == expected.map(|_| ()), "free answers {found:?} instead of {expected:?}");
        if let Ok(place) = expected {
            self.books.remove(PAGE, place.offset, 0);
            self.handles.remove(id.to_raw());
        }
        Ok(())
    }

    /// The error for a size that the space can never hold.
    fn refusal(&self, size: u64) -> Option<Error> {
        if size == 0 {
            return Some(Error::InvalidArgument { field: c"size", value: 0 });
        }
        let limit = self.size();
        (size > limit).then_some(Error::TooLarge { size, limit })
    }

    fn allocate(&mut self, size: u64, alignment: u64) -> Checked {
        let misaligned = Error::InvalidArgument { field: c"alignment", value: alignment };
        let never = match self.refusal(size) {
            Some(Error::TooLarge { .. }) | None if !alignment.is_power_of_two() => Some(misaligned),
            refusal => refusal,
        };
        let fits = never.is_none() && self.books.fits(size, alignment);
        match self.space.allocate(size, alignment) {
            Ok(SpaceSlice { id, offset, size: rounded }) => {
                ensure!(fits, "{size} at {alignment} was served instead of {never:?}");
                let id = id.to_raw();
                self.books.place(PAGE, offset, Live::new(id, rounded, size), alignment)?;
                self.handles.add(id, Place { pool: 0, page: PAGE, offset })
            }
            Err(error) => {
                ensure!(!fits, "{size} at {alignment} fits, but was refused: {error:?}");
                let largest_free = self.books.largest_free();
                let expected = never.unwrap_or(Error::PoolCapacityExceeded {
                    size,
                    capacity: self.size(),
                    in_use: self.books.in_use,
                    pending: 0,
                    largest_free,
                    growths_in_flight: 0,
                });
                check_error(error, expected, largest_free)
            }
        }
    }

    fn resize(&mut self, pick: Pick, size: u64) -> Checked {
        let Some(id) = self.handle(pick) else { return Ok(()) };
        let found = self.space.try_resize(id, size);
        let expected = self.handles.look_up(id.to_raw()).and_then(|place| {
            let available = self.books.available(PAGE, place.offset);
            match self.refusal(size) {
                Some(error) => Err(error),
                None if size > available => Err(Error::NoRoom { size, available }),
                None => Ok(place.offset),
            }
        });
        match (found, expected) {
            (Ok(slice), Ok(offset)) => {
                let resized = SpaceSlice { id, offset, size: self.books.rounded(size) as u64 };
                ensure!(slice == resized, "try_resize({size}) made {slice:?} instead of {resized:?}");
                self.books.resize(PAGE, offset, size);
                Ok(())
            }
            (Err(found), Err(expected)) => check_error(found, expected, 0),
            (found, expected) => Err(format!("try_resize({size}) answers {found:?} instead of {expected:?}")),
        }
    }

    fn get(&mut self, pick: Pick) -> Checked {
        let Some(id) = self.handle(pick) else { return Ok(()) };
        let expected = self.handles.look_up(id.to_raw()).map(|place| {
            let size = self.books.pages[&PAGE].live[&place.offset].size;
            SpaceSlice { id, offset: place.offset, size }
        });
        let found = self.space.get(id);
        ensure!(found == expected, "get answers {found:?} instead of {expected:?}");
        Ok(())
    }

    fn grow(&mut self, additional: u64) -> Checked {
        let total = self.size().checked_add(additional).filter(|total| total / self.granule <= MOST_GRANULES);
        let total = total.filter(|_| additional % self.granule == 0);
        let expected = match total {
            Some(_) => Ok(()),
            None => Err(Error::InvalidArgument { field: c"additional", value: additional }),
        };
        let found = self.space.grow(additional);
        ensure!(found == expected, "grow({additional}) answers {found:?} instead of {expected:?}");
        if let (Some(total), Some(page)) = (total, self.books.pages.get_mut(&PAGE)) {
            page.size = total;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.space.clear();
        for id in self.handles.live.clone() {
            if let Ok(place) = self.handles.look_up(id) {
                self.books.remove(PAGE, place.offset, 0);
                self.handles.remove(id);
            }
        }
    }

    // ---- after every operation

    fn check_everything(&mut self, step: usize) -> Checked {
        let pieces = self.space.pieces().map(|piece| {
            let SpacePiece { id, offset, size } = piece;
            Shown { page: PAGE, offset, size, id: id.map(SliceId::to_raw), pending: false, requested: None }
        });
        let figures = self.books.compare(&mut pieces.collect::<Vec<_>>())?;
        let found = self.space.statistics();
        let mut expected = found;
        expected.size = self.size();
        expected.in_use = figures.in_use;
        expected.padding = figures.padding;
        expected.free = figures.free;
        expected.in_use_peak = self.books.in_use_peak;
        expected.slices = figures.slices;
        expected.free_ranges = figures.free_ranges;
        ensure!(found == expected, "the statistics are {found:?} instead of {expected:?}");
        check_bound(found.largest_free_bound, figures.largest)?;
        ensure!(found.metadata != 0, "no host memory is counted");
        let found = self.space.largest_free();
        ensure!(found == figures.largest, "the largest free piece has {} units, not {found}", figures.largest);
        self.check_stale_handles(step, 2)?;
        self.space.check().map_err(String::from)
    }

    /// Freed handles are refused for ever: `count` of them, others at every step.
    fn check_stale_handles(&mut self, step: usize, count: usize) -> Checked {
        let stale = &self.handles.stale;
        for probe in 0..count.min(stale.len()) {
            let raw = stale[(step * 7 + probe * 3) % stale.len()];
            let Some(id) = SliceId::from_raw(raw) else { return Err("a handle is 0".into()) };
            let found = self.space.get(id);
            ensure!(found == Err(Error::StaleHandle), "the freed handle {raw:#x} is {found:?}");
            let found = self.space.free(id);
            ensure!(found == Err(Error::StaleHandle), "freeing {raw:#x} again answers {found:?}");
        }
        Ok(())
    }
}
