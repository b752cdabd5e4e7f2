//! What is asked for, and what is handed out.

use crate::error::Error;
use crate::slots::SliceId;

/// What a slice must be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Bytes. 0 is refused unless the allocator has a pool of exclusive pages with `max_alloc_size` 0.
    pub size: u64,
    /// The slice's offset, and its address where it has one, will be a multiple of this. A power of two; values below
    /// the pool's granule mean the granule.
    pub alignment: u64,
    /// Index of the only pool that may serve the request; `None`: any that takes it, in order.
    pub pool: Option<u32>,
    /// For what lives as long as the program: a device allocation of its own of this size, rounded up to the granule, so that
    /// no page of other slices is kept by it. Not for size 0. Freed, it serves requests of the same size that are persistent too, and only
    /// [`Allocator::cleanup`](crate::Allocator::cleanup) gives it back. No `pool` can be named with it.
    pub persistent: bool,
    /// The device fills the slice with zeros before it is handed out.
    pub zero: bool,
    /// The device overwrites the slice with zeros after it was freed, before anything else is placed there.
    pub scrub: bool,
}

impl Request {
    /// `size` bytes, aligned to the pool's granule.
    pub const fn new(size: u64) -> Self {
        Self { size, alignment: 1, pool: None, persistent: false, zero: false, scrub: false }
    }

    /// The same with another alignment.
    #[must_use]
    pub const fn aligned(self, alignment: u64) -> Self {
        Self { alignment, ..self }
    }

    /// The same from one pool only.
    #[must_use]
    pub const fn in_pool(self, index: u32) -> Self {
        Self { pool: Some(index), ..self }
    }

    /// The same for a slice that lives as long as the program.
    #[must_use]
    pub const fn persistent(self) -> Self {
        Self { persistent: true, ..self }
    }

    /// The same for a slice that is handed out full of zeros. Needs [`Device::fill`](crate::Device::fill).
    #[must_use]
    pub const fn zeroed(self) -> Self {
        Self { zero: true, ..self }
    }

    /// The same for a slice whose bytes nobody shall see after it. Needs [`Device::fill`](crate::Device::fill).
    #[must_use]
    pub const fn scrubbed(self) -> Self {
        Self { scrub: true, ..self }
    }

    /// Whether anything but placing it has to be done.
    #[inline(always)]
    pub(crate) fn is_unusual(&self) -> bool {
        self.persistent | self.zero | self.scrub
    }

    /// Refuses what no pool could take.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !self.alignment.is_power_of_two() {
            return Err(Error::InvalidArgument { field: c"alignment", value: self.alignment });
        }
        Ok(())
    }
}

/// A piece of a page, handed to a caller: `[offset, offset + size)` of the device memory named `memory`.
///
/// A plain value: copies are fine, and only [`Slice::id`] is ever trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// What frees the slice.
    pub id: SliceId,
    /// Handle of the page's device memory.
    pub memory: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Usable bytes: those asked for, rounded up to the granule, or the whole page where every slice has its own.
    pub size: u64,
    /// Address of the slice as the device sees it, 0 if the device gives none.
    pub address: u64,
    /// Where the CPU sees the slice, NULL if it does not.
    pub mapped: *mut u8,
}

// SAFETY: a plain description; nothing in this crate dereferences `mapped`.
unsafe impl Send for Slice {}
// SAFETY: as above.
unsafe impl Sync for Slice {}
