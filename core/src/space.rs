//! The slicer on its own, for any space of indices: no device, no pages, no lock.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::int::granules_up;
use crate::metadata::{Chunk, HostMemory};
use crate::slicer::nodes::Node;
use crate::slicer::{PageKind, Scanned, Slicer};
use crate::slots::{SliceId, new_tags};

/// How a space is made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SpaceOptions {
    /// Units of the space: bytes, descriptors, texels. What is above a multiple of the granule is not used.
    pub size: u64,
    /// The smallest piece that is cut, a power of two of at most 2^32. A space has at most 2^32 - 1 granules.
    pub granule: u64,
    /// Where the books are kept.
    pub memory: HostMemory,
}

impl SpaceOptions {
    /// A space of `size` units, cut to the unit.
    pub const fn new(size: u64) -> Self {
        Self { size, granule: 1, memory: HostMemory::global() }
    }

    /// The same with another granule.
    #[must_use]
    pub const fn with_granule(mut self, granule: u64) -> Self {
        self.granule = granule;
        self
    }

    /// The same with the books in other memory.
    #[must_use]
    pub const fn with_memory(mut self, memory: HostMemory) -> Self {
        self.memory = memory;
        self
    }
}

/// A piece of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceSlice {
    /// What frees it.
    pub id: SliceId,
    /// First unit.
    pub offset: u64,
    /// Units: those asked for, rounded up to the granule.
    pub size: u64,
}

/// A slice or a free piece of a space, as [`Space::pieces`] shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpacePiece {
    /// The slice's handle, `None` for a free piece.
    pub id: Option<SliceId>,
    /// First unit.
    pub offset: u64,
    /// Units.
    pub size: u64,
}

/// Figures of a space, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceStatistics {
    /// Usable units: the size rounded down to the granule.
    pub size: u64,
    /// Asked for by live slices.
    pub in_use: u64,
    /// Added to that by rounding to the granule.
    pub padding: u64,
    /// In free pieces.
    pub free: u64,
    /// The most `in_use` has been.
    pub in_use_peak: u64,
    /// A free piece of at least this size exists; [`Space::largest_free`] is exact.
    pub largest_free_bound: u64,
    /// Bytes of host memory held.
    pub metadata: u64,
    /// Live slices.
    pub slices: u32,
    /// Free pieces.
    pub free_ranges: u32,
}

/// Cuts any space of indices into slices: a buffer, a descriptor heap, a texture atlas row, a file.
///
/// The same slicer that serves the pools, without device and lock: constant time to allocate and to free, all books
/// in host memory. Threads have to be kept apart by the caller, which `&mut` sees to.
///
/// ```
/// use slicepool_core::{Space, SpaceOptions};
/// let mut table = Space::try_new(SpaceOptions::new(1000))?;
/// let a = table.allocate(100, 1)?;
/// let b = table.allocate(64, 64)?;
/// assert_eq!((a.offset, b.offset), (0, 128));
/// table.free(a.id)?;
/// assert_eq!(table.largest_free(), 1000 - 192);
/// # Ok::<(), slicepool_core::Error>(())
/// ```
pub struct Space {
    slicer: Slicer,
    memory: HostMemory,
    edge: u32,
    granule_shift: u32,
    in_use: u64,
    padding: u64,
    in_use_peak: u64,
    granules: u32,
}

impl Space {
    /// A space with nothing in it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a size below one granule or of more than 2^32 - 1 granules, and for a granule
    /// that is no power of two; [`Error::OutOfHostMemory`].
    #[cold]
    pub fn try_new(options: SpaceOptions) -> Result<Self, Error> {
        let SpaceOptions { size, granule, memory } = options;
        if !granule.is_power_of_two() || granule > 1 << 32 {
            return Err(Error::InvalidArgument { field: c"granule", value: granule });
        }
        let shift = granule.trailing_zeros();
        let granules = match u32::try_from(size >> shift) {
            Ok(granules) if granules != 0 => granules,
            _ => return Err(Error::InvalidArgument { field: c"size", value: size }),
        };
        let mut slicer = Slicer::try_new(memory, granules, PageKind::Equal, new_tags(1))?;
        reserve_nodes(&mut slicer, memory)?;
        let edge = slicer.add_page(0, granules);
        Ok(Self { slicer, memory, edge, granule_shift: shift, in_use: 0, padding: 0, in_use_peak: 0, granules })
    }

    /// Takes `size` units at a multiple of `alignment`. Constant time, but for the walk before a refusal, which looks
    /// at every free piece that could hold the request.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for size 0 or an alignment that is no power of two; [`Error::TooLarge`] above the
    /// size of the space; [`Error::PoolCapacityExceeded`] if no free piece holds it; [`Error::OutOfHostMemory`];
    /// [`Error::TooManySlices`].
    #[inline]
    pub fn allocate(&mut self, size: u64, alignment: u64) -> Result<SpaceSlice, Error> {
        let (granules, align_mask) = self.fit(size, alignment)?;
        if !self.slicer.has_nodes() {
            reserve_nodes(&mut self.slicer, self.memory)?;
        }
        let mut slot = self.slicer.allocate(granules, align_mask);
        if slot == 0 {
            slot = self.search(granules, align_mask).ok_or_else(|| self.capacity_error(size))?;
        }
        Ok(self.settle(slot, size))
    }

    /// A request in granules.
    #[inline(always)]
    fn fit(&self, size: u64, alignment: u64) -> Result<(u32, u32), Error> {
        if size == 0 {
            return Err(Error::InvalidArgument { field: c"size", value: size });
        }
        if !alignment.is_power_of_two() {
            return Err(Error::InvalidArgument { field: c"alignment", value: alignment });
        }
        let granules = granules_up(size, self.granule_shift);
        if granules > u64::from(self.granules) {
            return Err(Error::TooLarge { size, limit: u64::from(self.granules) << self.granule_shift });
        }
        // The mask of a power of two, of which 32 bits are enough.
        Ok((granules as u32, ((alignment - 1) >> self.granule_shift) as u32))
    }

    #[cold]
    fn search(&mut self, granules: u32, align_mask: u32) -> Option<u32> {
        let mut scan = self.slicer.begin_scan(granules, u32::MAX);
        loop {
            match self.slicer.scan(granules, align_mask, scan) {
                Scanned::Placed(slot) => return Some(slot),
                // A space is one page, which is never idle.
                Scanned::Nothing | Scanned::Idle(_) => return None,
                Scanned::More(more) => scan = more,
            }
        }
    }

    #[cold]
    fn capacity_error(&self, size: u64) -> Error {
        Error::PoolCapacityExceeded {
            size,
            capacity: u64::from(self.granules) << self.granule_shift,
            in_use: self.in_use,
            pending: 0,
            largest_free: u64::from(self.slicer.largest_bound()) << self.granule_shift,
            growths_in_flight: 0,
        }
    }

    #[inline(always)]
    fn settle(&mut self, slot: u32, requested: u64) -> SpaceSlice {
        let node = self.slicer.node(slot);
        let slice = self.slice_of_node(slot, node);
        let padding = slice.size - requested;
        node.link_a.set(padding as u32);
        self.in_use += requested;
        self.padding += padding;
        self.in_use_peak = self.in_use_peak.max(self.in_use);
        slice
    }

    #[inline(always)]
    fn slice_at(&self, slot: u32) -> SpaceSlice {
        self.slice_of_node(slot, self.slicer.node(slot))
    }

    #[inline(always)]
    fn slice_of_node(&self, slot: u32, node: &Node) -> SpaceSlice {
        SpaceSlice {
            id: self.slicer.id_of(slot, node),
            offset: u64::from(node.offset.get()) << self.granule_shift,
            size: u64::from(node.size.get()) << self.granule_shift,
        }
    }

    /// Books a slice out that is about to be freed or resized.
    #[inline(always)]
    fn unsettle(&mut self, slot: u32) {
        let node = self.slicer.node(slot);
        let padding = u64::from(node.link_a.get());
        self.in_use -= (u64::from(node.size.get()) << self.granule_shift) - padding;
        self.padding -= padding;
    }

    /// Takes a slice back. Constant time.
    ///
    /// # Errors
    /// [`Error::StaleHandle`], [`Error::ForeignHandle`]. Nothing changes then.
    #[inline]
    pub fn free(&mut self, id: SliceId) -> Result<(), Error> {
        let slot = self.slicer.resolve(id)?;
        self.unsettle(slot);
        self.slicer.free(slot);
        Ok(())
    }

    /// The slice of a handle. Constant time.
    ///
    /// # Errors
    /// As [`Space::free`].
    pub fn get(&self, id: SliceId) -> Result<SpaceSlice, Error> {
        Ok(self.slice_at(self.slicer.resolve(id)?))
    }

    /// Gives a slice `size` units where it lies, and returns it as it is then. Constant time.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if what follows the slice is in use; otherwise as [`Space::free`] and [`Space::allocate`].
    /// The slice is unchanged then.
    #[cold]
    pub fn try_resize(&mut self, id: SliceId, size: u64) -> Result<SpaceSlice, Error> {
        let slot = self.slicer.resolve(id)?;
        let (granules, _) = self.fit(size, 1)?;
        let available = self.slicer.available_at(slot);
        if u64::from(granules) > available {
            return Err(Error::NoRoom { size, available: available << self.granule_shift });
        }
        reserve_nodes(&mut self.slicer, self.memory)?;
        self.unsettle(slot);
        self.slicer.resize(slot, granules);
        Ok(self.settle(slot, size))
    }

    /// Makes the space `additional` units larger at its end. What is there stays as it is.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `additional` is no multiple of the granule or the space would have more than
    /// 2^32 - 1 granules; [`Error::OutOfHostMemory`].
    #[cold]
    pub fn grow(&mut self, additional: u64) -> Result<(), Error> {
        let refused = Error::InvalidArgument { field: c"additional", value: additional };
        let granules = additional >> self.granule_shift;
        let total = u64::from(self.granules).checked_add(granules).and_then(|total| u32::try_from(total).ok());
        let Some(total) = total.filter(|_| granules << self.granule_shift == additional) else {
            return Err(refused);
        };
        self.slicer.extend_tail(self.memory, total - self.granules)?;
        self.granules = total;
        Ok(())
    }

    /// Frees everything at once, in O(slots). Every handle is stale from now on.
    #[cold]
    pub fn clear(&mut self) {
        self.slicer.clear();
        self.in_use = 0;
        self.padding = 0;
    }

    /// Units of the largest free piece, exactly. Walks through one size class.
    pub fn largest_free(&self) -> u64 {
        let (mut scan, mut largest) = self.slicer.begin_largest();
        loop {
            let (so_far, more) = self.slicer.largest(scan, largest);
            largest = so_far;
            match more {
                Some(next) => scan = next,
                None => return u64::from(largest) << self.granule_shift,
            }
        }
    }

    /// Every slice and every free piece, in no particular order. O(slots).
    pub fn pieces(&self) -> impl Iterator<Item = SpacePiece> + '_ {
        let mut cursor = 0;
        core::iter::from_fn(move || self.next_piece(&mut cursor))
    }

    /// Steps through the same pieces as [`Space::pieces`] without borrowing the space in between: `cursor` starts at 0.
    /// What changes between two steps may be shown or not; everything else is shown exactly once.
    #[cold]
    pub fn next_piece(&self, cursor: &mut u32) -> Option<SpacePiece> {
        while let Some((slot, node)) = self.slicer.node_from(*cursor + 1) {
            *cursor = slot;
            if node.is_free() || node.is_slice() {
                return Some(SpacePiece {
                    id: node.is_slice().then(|| self.slicer.id(slot)),
                    offset: u64::from(node.offset.get()) << self.granule_shift,
                    size: u64::from(node.size.get()) << self.granule_shift,
                });
            }
        }
        None
    }

    /// Figures, in constant time.
    pub fn statistics(&self) -> SpaceStatistics {
        SpaceStatistics {
            size: u64::from(self.granules) << self.granule_shift,
            in_use: self.in_use,
            padding: self.padding,
            free: self.slicer.free_granules() << self.granule_shift,
            in_use_peak: self.in_use_peak,
            largest_free_bound: u64::from(self.slicer.largest_bound()) << self.granule_shift,
            metadata: self.slicer.bytes(),
            slices: self.slicer.live(),
            free_ranges: self.slicer.free_ranges(),
        }
    }

    /// Verifies every invariant of the books from scratch, for tests: which one does not hold. O(slots).
    pub fn check(&self) -> Result<(), &'static str> {
        self.slicer.check([(self.edge, self.granules)].into_iter())?;
        let figures = self.statistics();
        if figures.in_use + figures.padding + figures.free != figures.size {
            return Err("the size is not the sum of its parts");
        }
        Ok(())
    }
}

/// Gets host memory until any one operation can be carried out.
fn reserve_nodes(slicer: &mut Slicer, memory: HostMemory) -> Result<(), Error> {
    while !slicer.has_nodes() {
        let chunk = Chunk::allocate(memory, slicer.plan()?)?;
        drop(slicer.install(chunk));
    }
    Ok(())
}
