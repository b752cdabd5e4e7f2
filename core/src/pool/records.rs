//! The records of a pool's pages, by their numbers.

use super::page::Page;
use crate::metadata::{Chunked, HostMemory};
use core::ops::{Deref, DerefMut, Index, IndexMut};

/// All records of a pool, in use or vacant. They never go away.
pub(super) struct Records(Chunked<Page>);

impl Records {
    pub(super) const fn new(memory: HostMemory) -> Self {
        Self(Chunked::new(memory))
    }
}

impl Deref for Records {
    type Target = Chunked<Page>;
    fn deref(&self) -> &Chunked<Page> {
        &self.0
    }
}

impl DerefMut for Records {
    fn deref_mut(&mut self) -> &mut Chunked<Page> {
        &mut self.0
    }
}

impl Index<u32> for Records {
    type Output = Page;
    /// Looks a record up without a check, as the slicer does with its nodes (a check costs a sixth of an exclusive or
    /// direct page's way out and back).
    ///
    /// Every number of a page in a node, in a list or in a set was handed out by [`Chunked::push`], and so were those of
    /// the records in front of it that hold parts of sets. Numbers from outside pass through [`Chunked::index_from`] first.
    /// Builds with debug assertions check all the same.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn index(&self, index: u32) -> &Page {
        // SAFETY: see above.
        unsafe { self.0.get_unchecked(index) }
    }
}

impl IndexMut<u32> for Records {
    fn index_mut(&mut self, index: u32) -> &mut Page {
        &mut self.0[index]
    }
}
