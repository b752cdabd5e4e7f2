//! Every sequence of a few operations on a tiny pool, each checked completely against a map of its granules.
//!
//! The operations: allocate in three sizes and two alignments, free each live slice, free a stale handle, and for an
//! allocator clean up; with slightly shorter sequences also resize each live slice to each size. `SLICEPOOL_DEPTH` sets
//! the length of the sequences.

use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceMemory, Error, MemoryType, PageRequest, PoolOptions,
    Request, SliceId, Space, SpaceOptions,
};
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;

/// Granules of the one page.
const GRANULES: usize = 8;
/// Bytes of a granule, so that sizes need rounding.
const GRANULE: u64 = 4;
const PAGE: u64 = GRANULES as u64 * GRANULE;

/// Sizes in bytes and alignments in bytes that are tried together.
#[derive(Clone, Copy, Debug)]
struct Menu {
    sizes: [u64; 3],
    alignments: [u64; 2],
    resizes: bool,
}

/// Neighbouring sizes, and sizes that hardly fit together.
const MENUS: [Menu; 3] = [
    Menu { sizes: [4, 7, 12], alignments: [1, 8], resizes: false },
    Menu { sizes: [3, 12, 17], alignments: [4, 16], resizes: false },
    Menu { sizes: [4, 7, 12], alignments: [1, 8], resizes: true },
];

impl Menu {
    fn requests(self) -> impl Iterator<Item = (u64, u64)> {
        self.sizes.into_iter().flat_map(move |size| self.alignments.map(|alignment| (size, alignment)))
    }
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Allocate {
        size: u64,
        alignment: u64,
    },
    /// The k-th of the slices that are live, oldest first.
    Free(usize),
    Resize(usize, u64),
    /// Every handle freed so far.
    FreeStale,
    Cleanup,
}

/// A range as a subject shows it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    offset: u64,
    size: u64,
    id: Option<SliceId>,
}

/// Figures that every subject has.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    reserved: u64,
    in_use: u64,
    padding: u64,
    free: u64,
    in_use_peak: u64,
    slices: u32,
    free_ranges: u32,
}

/// What is tried.
trait Subject {
    /// Whether cleaning up takes the idle page away.
    const CLEANS_UP: bool;
    fn new() -> Self;
    fn allocate(&mut self, size: u64, alignment: u64) -> Result<Piece, Error>;
    fn free(&mut self, id: SliceId) -> Result<(), Error>;
    fn resize(&mut self, id: SliceId, size: u64) -> Result<Piece, Error>;
    fn get(&self, id: SliceId) -> Result<Piece, Error>;
    fn cleanup(&mut self);
    fn would_fit(&self, size: u64, alignment: u64) -> Option<bool>;
    fn largest_free(&self) -> u64;
    fn pieces(&self, into: &mut Vec<Piece>);
    fn figures(&self) -> Figures;
    fn check(&self) -> Result<(), &'static str>;
}

impl Subject for Space {
    const CLEANS_UP: bool = false;

    fn new() -> Self {
        Self::try_new(SpaceOptions::new(PAGE).with_granule(GRANULE)).unwrap()
    }

    fn allocate(&mut self, size: u64, alignment: u64) -> Result<Piece, Error> {
        self.allocate(size, alignment).map(|slice| Piece { offset: slice.offset, size: slice.size, id: Some(slice.id) })
    }

    fn free(&mut self, id: SliceId) -> Result<(), Error> {
        self.free(id)
    }

    fn resize(&mut self, id: SliceId, size: u64) -> Result<Piece, Error> {
        self.try_resize(id, size).map(|slice| Piece { offset: slice.offset, size: slice.size, id: Some(slice.id) })
    }

    fn get(&self, id: SliceId) -> Result<Piece, Error> {
        self.get(id).map(|slice| Piece { offset: slice.offset, size: slice.size, id: Some(slice.id) })
    }

    fn cleanup(&mut self) {}

    fn would_fit(&self, _: u64, _: u64) -> Option<bool> {
        None
    }

    fn largest_free(&self) -> u64 {
        self.largest_free()
    }

    fn pieces(&self, into: &mut Vec<Piece>) {
        into.extend(self.pieces().map(|slice| Piece { offset: slice.offset, size: slice.size, id: slice.id }));
    }

    fn figures(&self) -> Figures {
        let found = self.statistics();
        Figures {
            reserved: found.size,
            in_use: found.in_use,
            padding: found.padding,
            free: found.free,
            in_use_peak: found.in_use_peak,
            slices: found.slices,
            free_ranges: found.free_ranges,
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        self.check()
    }
}

/// Gives out pages that are only names.
struct Names;

impl Device for Names {
    fn allocate(&self, _: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        Ok(DeviceMemory::new(1))
    }

    fn deallocate(&self, _: &DeviceMemory) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Subject for Allocator<Names> {
    const CLEANS_UP: bool = true;

    fn new() -> Self {
        // A cap of one page.
        let pools = [PoolOptions::sliced_pages(PAGE, PAGE, Some(PAGE)).with_granule(GRANULE)];
        let options = AllocatorOptions::default().with_memory_type(MemoryType::new(PAGE, PAGE));
        Self::try_new(Names, &pools, options).unwrap()
    }

    fn allocate(&mut self, size: u64, alignment: u64) -> Result<Piece, Error> {
        let slice = Allocator::allocate(self, &Request::new(size).aligned(alignment))?;
        Ok(Piece { offset: slice.offset, size: slice.size, id: Some(slice.id) })
    }

    fn free(&mut self, id: SliceId) -> Result<(), Error> {
        Allocator::free(self, id)
    }

    fn resize(&mut self, id: SliceId, size: u64) -> Result<Piece, Error> {
        self.try_resize(id, size).map(|slice| Piece { offset: slice.offset, size: slice.size, id: Some(slice.id) })
    }

    fn get(&self, id: SliceId) -> Result<Piece, Error> {
        self.get(id).map(|slice| Piece { offset: slice.offset, size: slice.size, id: Some(slice.id) })
    }

    fn cleanup(&mut self) {
        Allocator::cleanup(self).unwrap();
    }

    fn would_fit(&self, size: u64, alignment: u64) -> Option<bool> {
        Some(self.would_fit(&Request::new(size).aligned(alignment)).unwrap())
    }

    fn largest_free(&self) -> u64 {
        self.largest_free()
    }

    fn pieces(&self, into: &mut Vec<Piece>) {
        let end = self.walk(|range| {
            into.push(Piece { offset: range.offset, size: range.size, id: range.id });
            ControlFlow::<()>::Continue(())
        });
        assert!(end.is_continue());
    }

    fn figures(&self) -> Figures {
        let found = self.statistics();
        Figures {
            reserved: found.reserved,
            in_use: found.in_use,
            padding: found.padding,
            free: found.free,
            in_use_peak: found.in_use_peak,
            slices: found.slices,
            free_ranges: found.free_ranges,
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        self.check()
    }
}

/// A granule that belongs to nobody.
const FREE: u8 = 0;

/// A subject, and a byte for each granule: the number of the slice that has it.
struct State<S> {
    /// Dropped only after it has passed: dropping a broken one might do anything.
    subject: ManuallyDrop<S>,
    map: [u8; GRANULES],
    /// Whether the page is there.
    page: bool,
    /// Live slices with their numbers and requested bytes, oldest first.
    live: Vec<(u8, Piece, u64)>,
    freed: Vec<SliceId>,
    slices: u8,
    in_use_peak: u64,
}

impl<S: Subject> State<S> {
    fn new() -> Self {
        let subject = ManuallyDrop::new(S::new());
        let page = !S::CLEANS_UP;
        Self { subject, map: [FREE; GRANULES], page, live: Vec::new(), freed: Vec::new(), slices: 0, in_use_peak: 0 }
    }

    /// Where a request could go, as the map has it.
    fn first_fit(&self, size: u64, alignment: u64) -> Option<usize> {
        let granules = size.div_ceil(GRANULE) as usize;
        (0..=GRANULES - granules)
            .filter(|&start| start as u64 * GRANULE % alignment == 0)
            .find(|&start| self.map[start..start + granules].iter().all(|&owner| owner == FREE))
    }

    fn in_use(&self) -> u64 {
        self.live.iter().map(|live| live.2).sum()
    }

    /// Carries an operation out in both.
    fn apply(&mut self, op: Op) {
        match op {
            Op::Allocate { size, alignment } => self.allocate(size, alignment),
            Op::Free(k) => {
                let (number, piece, _) = self.live.remove(k);
                let id = piece.id.unwrap();
                assert_eq!(self.subject.free(id), Ok(()));
                self.erase(number);
                self.freed.push(id);
            }
            Op::Resize(k, size) => self.resize(k, size),
            Op::FreeStale => {
                let expected = Err(Error::StaleHandle);
                self.freed.iter().for_each(|&id| assert_eq!(self.subject.free(id), expected));
            }
            Op::Cleanup => {
                self.subject.cleanup();
                self.page &= !self.live.is_empty();
            }
        }
    }

    fn allocate(&mut self, size: u64, alignment: u64) {
        let fits = !self.page || self.first_fit(size, alignment).is_some();
        let piece = match self.subject.allocate(size, alignment) {
            Ok(piece) => piece,
            Err(error) => {
                assert!(!fits, "what fits was refused: {error:?}");
                assert!(matches!(error, Error::PoolCapacityExceeded { .. }), "{error:?}");
                return;
            }
        };
        self.page = true;
        let id = piece.id.expect("a slice has a handle");
        assert!(!self.freed.contains(&id), "a handle was given out again");
        assert_eq!(piece.size, size.next_multiple_of(GRANULE));
        assert_eq!((piece.offset % GRANULE, piece.offset % alignment), (0, 0), "{piece:?} is not aligned");
        assert!(piece.offset + piece.size <= PAGE, "{piece:?} is outside of the page");
        self.slices += 1;
        self.draw(self.slices, piece);
        self.live.push((self.slices, piece, size));
        self.in_use_peak = self.in_use_peak.max(self.in_use());
    }

    fn resize(&mut self, k: usize, size: u64) {
        let (number, old, _) = self.live[k];
        let rounded = size.next_multiple_of(GRANULE);
        let mine = |&&owner: &&u8| owner == FREE || owner == number;
        let room = self.map[(old.offset / GRANULE) as usize..].iter().take_while(mine).count() as u64 * GRANULE;
        let expected = if rounded <= room {
            Ok(Piece { size: rounded, ..old })
        } else {
            Err(Error::NoRoom { size, available: room })
        };
        let found = self.subject.resize(old.id.unwrap(), size);
        assert_eq!(found, expected, "try_resize({size}) of {old:?}");
        if let Ok(piece) = found {
            self.erase(number);
            self.draw(number, piece);
            self.live[k] = (number, piece, size);
            self.in_use_peak = self.in_use_peak.max(self.in_use());
        }
    }

    /// Takes free granules into a slice.
    fn draw(&mut self, number: u8, piece: Piece) {
        for owner in &mut self.map[(piece.offset / GRANULE) as usize..][..(piece.size / GRANULE) as usize] {
            assert_eq!(*owner, FREE, "{piece:?} overlaps a slice");
            *owner = number;
        }
    }

    fn erase(&mut self, number: u8) {
        self.map.iter_mut().filter(|owner| **owner == number).for_each(|owner| *owner = FREE);
    }

    /// The ranges of the map: slices, and runs of free granules between them.
    fn expected_pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut start = 0;
        while self.page && start < GRANULES {
            let owner = self.map[start];
            let length = self.map[start..].iter().take_while(|&&other| other == owner).count();
            let id = self.live.iter().find(|live| live.0 == owner).and_then(|live| live.1.id);
            pieces.push(Piece { offset: start as u64 * GRANULE, size: length as u64 * GRANULE, id });
            start += length;
        }
        pieces
    }

    /// Compares everything there is to see.
    fn check(&self, menu: Menu) {
        let expected = self.expected_pieces();
        let mut found = Vec::with_capacity(GRANULES);
        self.subject.pieces(&mut found);
        found.sort_unstable();
        assert_eq!(found, expected, "the pieces are not those of the map");
        let free = || expected.iter().filter(|piece| piece.id.is_none());
        let free_bytes: u64 = free().map(|piece| piece.size).sum();
        let reserved = if self.page { PAGE } else { 0 };
        let in_use = self.in_use();
        let figures = Figures {
            reserved,
            in_use,
            padding: reserved - free_bytes - in_use,
            free: free_bytes,
            in_use_peak: self.in_use_peak,
            slices: self.live.len() as u32,
            free_ranges: free().count() as u32,
        };
        assert_eq!(self.subject.figures(), figures);
        assert_eq!(self.subject.largest_free(), free().map(|piece| piece.size).max().unwrap_or(0));
        for (size, alignment) in menu.requests() {
            let expected = self.page && self.first_fit(size, alignment).is_some();
            let found = self.subject.would_fit(size, alignment).unwrap_or(expected);
            assert_eq!(found, expected, "would_fit({size}, {alignment})");
        }
        for (_, piece, _) in &self.live {
            assert_eq!(self.subject.get(piece.id.unwrap()).as_ref(), Ok(piece));
        }
        for &id in &self.freed {
            assert_eq!(self.subject.get(id), Err(Error::StaleHandle));
        }
        assert_eq!(self.subject.check(), Ok(()));
    }
}

/// Goes through all sequences that begin with `path`, which has not been carried out yet; counts them.
fn explore<S: Subject>(path: &mut Vec<Op>, depth: usize, menu: Menu) -> u64 {
    let mut state = State::<S>::new();
    for &op in &*path {
        state.apply(op);
    }
    state.check(menu);
    let mut next: Vec<Op> = menu.requests().map(|(size, alignment)| Op::Allocate { size, alignment }).collect();
    next.extend((0..state.live.len()).map(Op::Free));
    if menu.resizes {
        next.extend((0..state.live.len()).flat_map(|k| menu.sizes.map(|size| Op::Resize(k, size))));
    }
    next.extend((!state.freed.is_empty()).then_some(Op::FreeStale));
    next.extend(S::CLEANS_UP.then_some(Op::Cleanup));
    drop(ManuallyDrop::into_inner(state.subject));
    if path.len() == depth {
        return 1;
    }
    let mut count = 0;
    for op in next {
        path.push(op);
        count += explore::<S>(path, depth, menu);
        path.pop();
    }
    count
}

/// Names the sequence that a panic came from.
struct Blame(Vec<Op>, Menu);

impl Drop for Blame {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the sequence was {:?} of {:?}", self.0, self.1);
        }
    }
}

fn explore_all<S: Subject>(what: &str, depth: usize) {
    let depth = std::env::var("SLICEPOOL_DEPTH").map_or(depth, |text| text.parse().expect("a number"));
    for menu in MENUS {
        let mut blame = Blame(Vec::new(), menu);
        let depth = depth - usize::from(menu.resizes);
        let count = explore::<S>(&mut blame.0, depth, menu);
        println!("{what}: {count} sequences of {depth} operations with {menu:?}");
    }
}

#[test]
fn every_short_sequence_on_a_space_keeps_to_the_map() {
    explore_all::<Space>("a space", 6);
}

#[test]
fn every_short_sequence_on_a_page_keeps_to_the_map() {
    explore_all::<Allocator<Names>>("an allocator of one page", 6);
}
