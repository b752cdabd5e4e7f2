//! What is asked for, and what is handed out.

use crate::error::Error;
use crate::slots::SliceId;

/// What a slice must be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Bytes, at least 1.
    pub size: u64,
    /// The slice's offset, and its address where it has one, will be a multiple of this. A power of two; values below
    /// the pool's granule mean the granule.
    pub alignment: u64,
}

impl Request {
    /// `size` bytes, aligned to the pool's granule.
    pub const fn new(size: u64) -> Self {
        Self { size, alignment: 1 }
    }

    /// The same with another alignment.
    #[must_use]
    pub const fn aligned(self, alignment: u64) -> Self {
        Self { alignment, ..self }
    }

    /// Refuses what no pool could take.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.size == 0 {
            return Err(Error::InvalidArgument { field: c"size", value: 0 });
        }
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
    /// Usable bytes: those asked for, rounded up to the granule.
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
