//! What callers need to whom the compiler cannot give its word: the C library's side of [`BufferPool`].

use super::inner::Inner;
use super::{BufferCache, BufferPool, RawBuffer};
use crate::allocator::{Allocator, LiveSlices};
use crate::device::Device;
use crate::error::Error;
use core::mem::ManuallyDrop;

impl<D: Device> BufferPool<D> {
    /// Whether no callback of the device is running, so that the pool can go away: from within one it cannot.
    ///
    /// # Errors
    /// [`Error::Busy`]
    pub fn check_idle(&self) -> Result<(), Error> {
        self.inner().allocator.can_destroy(LiveSlices::Free)
    }

    /// [`BufferPool::abandon`] in a forked child: takes no lock, since threads of the parent may have held it at the fork, and
    /// does not look for caches, whose host memory is lost. A shared budget, of which the child has a copy, counts the memory
    /// for ever.
    ///
    /// # Safety
    /// Nobody uses the pool, a cache or a buffer of it any more, and no [`PooledBuffer`](super::PooledBuffer) or other
    /// owner of the pool exists.
    pub unsafe fn abandon_forked(self) {
        // SAFETY: passed on from the caller.
        unsafe { Inner::forget(ManuallyDrop::new(self).inner, Allocator::abandon_forked) };
    }
}

impl<D: Device> BufferCache<D> {
    /// A buffer that the cache holds: what [`BufferCache::take`] does without flags, where it needs nothing from anybody else.
    #[inline(always)]
    pub fn take_cached(&mut self, size: usize) -> Option<RawBuffer> {
        let slot = self.inner().front.take(Some(self.node()), size)?;
        // SAFETY: slots live as long as the pool.
        Some(RawBuffer::of(unsafe { slot.as_ref() }))
    }
}
