//! Buffers in their owners' hands: [`PooledBuffer`], which goes back by itself, and [`RawBuffer`], which is named by its
//! handle.

use super::inner::Inner;
use super::slot::{BufferId, NO_CLASS, Slab, Slot};
use crate::device::{Device, HostDevice};
use crate::error::Error;
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

/// A buffer of a [`BufferPool`](super::BufferPool), which goes back when it is dropped.
///
/// It has a capacity, that of its class, and a length, 0 at first: so many bytes from the start have been written to, and
/// can be seen. A buffer whose memory the CPU does not see has no bytes that can; it is named by
/// [`PooledBuffer::memory`] and [`PooledBuffer::offset`] there.
///
/// Dropped, it goes to the pool's freelist; [`BufferCache::release`](super::BufferCache::release) keeps it in a cache. It may
/// outlive the pool.
pub struct PooledBuffer<D: Device = HostDevice> {
    inner: NonNull<Inner<D>>,
    /// NULL if the buffer is empty, and so nowhere.
    slot: *const Slot,
    /// Where the CPU sees it; NULL if it does not.
    mapped: *mut u8,
    len: usize,
}

// SAFETY: the buffer's memory is its own; the pool is shared through locks and atomics.
unsafe impl<D: Device + Send + Sync> Send for PooledBuffer<D> {}
// SAFETY: as above; shared references only read.
unsafe impl<D: Device + Send + Sync> Sync for PooledBuffer<D> {}

impl<D: Device> PooledBuffer<D> {
    /// A buffer that the caller owns.
    #[inline(always)]
    pub(super) fn new(inner: NonNull<Inner<D>>, slot: Option<NonNull<Slot>>) -> Self {
        match slot {
            // SAFETY: slots live as long as the pool, which a buffer that is out keeps alive.
            Some(slot) => Self { inner, slot: slot.as_ptr(), mapped: unsafe { slot.as_ref() }.mapped(), len: 0 },
            None => Self { inner, slot: ptr::null(), mapped: ptr::null_mut(), len: 0 },
        }
    }

    #[inline(always)]
    pub(super) fn is_of(&self, inner: NonNull<Inner<D>>) -> bool {
        self.inner == inner
    }

    #[inline(always)]
    pub(super) fn into_slot(self) -> Option<NonNull<Slot>> {
        NonNull::new(ManuallyDrop::new(self).slot.cast_mut())
    }

    #[inline(always)]
    fn slot(&self) -> Option<&Slot> {
        // SAFETY: slots live as long as the pool.
        unsafe { self.slot.as_ref() }
    }

    fn slab(&self) -> Option<&Slab> {
        self.slot().map(Slot::slab)
    }

    /// The same with its first `size` bytes zero, and that length where the CPU sees them.
    pub(super) fn zeroed(mut self, size: usize) -> Result<Self, Error> {
        if let Some(slot) = self.slot() {
            // SAFETY: a buffer that is out keeps the pool alive.
            unsafe { self.inner.as_ref() }.zero(slot, size)?;
        }
        if self.is_mapped() {
            self.len = size;
        }
        Ok(self)
    }

    /// Bytes that have been written to.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none have.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the buffer has room for: those of its class, or exactly those asked for if it belongs to none.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.slab().map_or(0, |slab| slab.capacity)
    }

    /// Whether the buffer belongs to a class, and so counts towards its limit.
    #[inline]
    pub fn is_tracked(&self) -> bool {
        self.slab().is_some_and(|slab| slab.class != NO_CLASS)
    }

    /// Whether the CPU sees the memory. Of an empty buffer: no.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        !self.mapped.is_null()
    }

    /// Handle of the device memory that the buffer lies in; 0 for an empty buffer.
    pub fn memory(&self) -> u64 {
        self.slab().map_or(0, |slab| slab.memory.memory)
    }

    /// Bytes from the start of that memory.
    pub fn offset(&self) -> u64 {
        self.slot().map_or(0, |slot| slot.slab().memory.offset + slot.offset())
    }

    /// Address as the device sees it; 0 if the device gives none.
    pub fn address(&self) -> u64 {
        self.slot().map_or(0, address)
    }

    /// Where the CPU sees the buffer; NULL if it does not, and for an empty one.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.mapped
    }

    /// Where the CPU sees the buffer; NULL if it does not. The first [`PooledBuffer::capacity`] bytes may be written to.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.mapped
    }

    /// Sets the length.
    ///
    /// # Safety
    /// The CPU sees the memory, `len` is at most the capacity, and the first `len` bytes have been written to.
    #[inline]
    pub unsafe fn set_len(&mut self, len: usize) {
        debug_assert!(len == 0 || (len <= self.capacity() && self.is_mapped()));
        self.len = len;
    }

    /// Forgets what was written.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Forgets what was written behind `len`; nothing if there is no more.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// What has not been written to yet; empty if the CPU does not see the memory.
    #[inline]
    pub fn spare_capacity_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        if !self.is_mapped() {
            return &mut [];
        }
        // SAFETY: inside the buffer, which is this owner's.
        unsafe {
            let rest = self.capacity() - self.len;
            core::slice::from_raw_parts_mut(self.mapped.add(self.len).cast(), rest)
        }
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If there is no room for them, or the CPU does not see the memory.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let spare = self.spare_capacity_mut();
        assert!(bytes.len() <= spare.len(), "the buffer has no room for {} bytes more", bytes.len());
        // SAFETY: there is room, and nobody else has a reference to it.
        unsafe { spare.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.len += bytes.len();
    }

    /// Makes the length `len`; bytes that come in have the value.
    ///
    /// # Panics
    /// As [`PooledBuffer::extend_from_slice`].
    pub fn resize(&mut self, len: usize, value: u8) {
        if let Some(more) = len.checked_sub(self.len) {
            let spare = self.spare_capacity_mut();
            assert!(more <= spare.len(), "the buffer has no room for {more} bytes more");
            // SAFETY: there is room, and nobody else has a reference to it.
            unsafe { spare.as_mut_ptr().cast::<u8>().write_bytes(value, more) };
        }
        self.len = len;
    }

    /// Gives up the owner for a handle: the buffer is out until [`BufferPool::release`](super::BufferPool::release) or
    /// [`BufferPool::adopt`](super::BufferPool::adopt) gets the handle.
    #[inline]
    pub fn into_raw(self) -> RawBuffer {
        let this = ManuallyDrop::new(self);
        this.slot().map_or(RawBuffer::EMPTY, RawBuffer::of)
    }
}

impl<D: Device> Drop for PooledBuffer<D> {
    #[inline]
    fn drop(&mut self) {
        let Some(slot) = NonNull::new(self.slot.cast_mut()) else { return };
        // SAFETY: the buffer keeps the pool alive until it is put back. If that was an open pool, nothing of it is touched
        // afterwards; if not, the reference that comes with the buffer keeps it alive until that is given up.
        unsafe {
            let returned = self.inner.as_ref().put_back(Inner::thread_cache(self.inner), slot.as_ref());
            if returned != 0 {
                Inner::give_up(self.inner, returned);
            }
        }
    }
}

impl<D: Device> Deref for PooledBuffer<D> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: a length means that the CPU sees so many bytes, and that they have been written to.
        unsafe { core::slice::from_raw_parts(self.mapped, self.len) }
    }
}

impl<D: Device> DerefMut for PooledBuffer<D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: as above, and the buffer is this owner's.
        unsafe { core::slice::from_raw_parts_mut(self.mapped, self.len) }
    }
}

impl<D: Device> AsRef<[u8]> for PooledBuffer<D> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<D: Device> AsMut<[u8]> for PooledBuffer<D> {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl<D: Device> fmt::Debug for PooledBuffer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledBuffer")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .field("tracked", &self.is_tracked())
            .finish_non_exhaustive()
    }
}

/// A buffer that is named by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawBuffer {
    /// What releases it; `None` for an empty buffer.
    pub id: Option<BufferId>,
    /// Handle of the device memory that it lies in.
    pub memory: u64,
    /// Bytes from the start of that memory.
    pub offset: u64,
    /// Bytes that it has room for.
    pub capacity: u64,
    /// Address as the device sees it; 0 if the device gives none.
    pub address: u64,
    /// Where the CPU sees it; NULL if it does not.
    pub mapped: *mut u8,
}

impl RawBuffer {
    pub(super) const EMPTY: Self =
        Self { id: None, memory: 0, offset: 0, capacity: 0, address: 0, mapped: ptr::null_mut() };

    /// A buffer that the caller owns, by a handle that names it from now on.
    #[inline(always)]
    pub(super) fn of(slot: &Slot) -> Self {
        Self::new(slot.issue(), slot)
    }

    #[inline(always)]
    pub(super) fn new(id: BufferId, slot: &Slot) -> Self {
        let slab = slot.slab();
        Self {
            id: Some(id),
            memory: slab.memory.memory,
            offset: slab.memory.offset + slot.offset(),
            capacity: slab.capacity as u64,
            address: address(slot),
            mapped: slot.mapped(),
        }
    }
}

/// Address of a buffer as the device sees it.
#[inline(always)]
fn address(slot: &Slot) -> u64 {
    let start = slot.slab().memory.address;
    if start == 0 { 0 } else { start.wrapping_add(slot.offset()) }
}
