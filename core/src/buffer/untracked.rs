//! Buffers that belong to no class: for requests that the classes do not serve.
//!
//! Each is a page of the device, which goes back as soon as the buffer does. Their books are under one lock, since
//! every one of them costs two device calls anyway. To whoever holds one it looks like any other: it has a slot, and a
//! slab of its own.

use super::pooled::RawBuffer;
use super::slot::{BufferId, Claimed, NO_CLASS, Names, Slab, Slot, UNTRACKED};
use super::sync::{AtomicU32, Ordering};
use super::table::TABLE_LIMIT;
use crate::error::Error;
use crate::metadata::{Chunk, Chunked, HostMemory};
use crate::slice::Slice;
use crate::sync::{Lock, LockKind};
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};

/// No entry.
const NONE: u32 = u32::MAX;

struct Entry {
    slot: Slot,
    /// What the slot points to: changed only while no buffer is out with it.
    slab: UnsafeCell<Option<Slab>>,
    /// The next entry that is free. Changed under the lock, through a shared reference: whoever puts a buffer back still has
    /// one to the slot.
    next: AtomicU32,
}

// SAFETY: the slab is written by the one who has reserved the entry, and then read by those who have the buffer.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

struct Books {
    entries: Chunked<Entry>,
    /// Entries that are free, in a list.
    free: u32,
    out: u32,
    /// Bytes that were asked for, of those that are there.
    bytes: u64,
    closed: bool,
}

pub(super) struct Untracked {
    pub(super) names: Names,
    books: Lock<Books>,
    memory: HostMemory,
}

impl Untracked {
    pub(super) fn new(tag: u16, memory: HostMemory, lock: LockKind) -> Self {
        let books = Books { entries: Chunked::new(memory), free: NONE, out: 0, bytes: 0, closed: false };
        Self { names: Names::new(UNTRACKED, TABLE_LIMIT, tag), books: Lock::new(lock, books), memory }
    }

    /// An entry for a buffer that is about to be had, counted as one that is out.
    pub(super) fn reserve(&self) -> Result<u32, Error> {
        loop {
            let mut books = self.books.lock();
            if books.closed {
                return Err(Error::Closed);
            }
            if books.free != NONE {
                let index = books.free;
                books.free = books.entries[index].next.load(Ordering::Relaxed);
                books.out += 1;
                return Ok(index);
            }
            if books.entries.spare() != 0 {
                books.out += 1;
                let index = books.entries.next_index();
                let slot = Slot::new(&self.names, ptr::null(), 0, index);
                return Ok(books.entries.push(Entry { slot, slab: UnsafeCell::new(None), next: AtomicU32::new(NONE) }));
            }
            let plan = books.entries.plan()?;
            drop(books);
            let chunk = Chunk::allocate(self.memory, plan)?;
            let late = self.books.lock().entries.install(chunk);
            drop(late);
        }
    }

    /// The buffer is there: `requested` bytes of a page.
    pub(super) fn enter(&self, index: u32, memory: Slice, requested: usize) -> NonNull<Slot> {
        let mut books = self.books.lock();
        books.bytes += requested as u64;
        let entry = &mut books.entries[index];
        let slab = Slab {
            memory,
            capacity: requested,
            shift: 0,
            class: NO_CLASS,
            count: 1,
            carved: AtomicU32::new(1),
            next: AtomicU32::new(NONE),
        };
        // SAFETY: the caller has reserved the entry, and nobody has a buffer with it.
        unsafe {
            let at = (*entry.slab.get()).insert(slab);
            entry.slot.set_slab(at);
        }
        NonNull::from(&entry.slot)
    }

    /// There is no buffer for the entry. Whether the pool is closed: if so, the caller gives up a reference.
    pub(super) fn give_up(&self, index: u32) -> bool {
        let mut books = self.books.lock();
        let mut bytes = 0;
        if let Some(entry) = books.entries.get(index) {
            entry.next.store(books.free, Ordering::Relaxed);
            // SAFETY: the caller has the entry, and looks at the slab no more. It is empty if the buffer never came to be.
            bytes = unsafe { (*entry.slab.get()).take() }.map_or(0, |slab| slab.capacity as u64);
        }
        books.bytes -= bytes;
        books.free = index;
        books.out -= 1;
        books.closed
    }

    /// The buffer of a handle. Looked at under the lock: released meanwhile, the entry might have another page already.
    pub(super) fn get(&self, id: BufferId) -> Result<RawBuffer, Error> {
        let books = self.books.lock();
        let entry = books.entries.get(self.names.number(id)).ok_or(Error::ForeignHandle)?;
        entry.slot.is_out(&self.names, id)?;
        Ok(RawBuffer::new(id, &entry.slot))
    }

    /// Takes a buffer over by its handle.
    pub(super) fn claim(&self, id: BufferId) -> Result<NonNull<Slot>, Error> {
        let books = self.books.lock();
        let entry = books.entries.get(self.names.number(id)).ok_or(Error::ForeignHandle)?;
        match entry.slot.claim(&self.names, id)? {
            // All generations are used up after 2^33 pairs of device calls or more for this one entry: it begins anew.
            Claimed::Yes | Claimed::Worn => Ok(NonNull::from(&entry.slot)),
        }
    }

    /// Closes; `count` is told, under the lock, how many buffers are out or about to be.
    pub(super) fn close(&self, count: impl FnOnce(u32)) {
        let mut books = self.books.lock();
        books.closed = true;
        count(books.out);
    }

    /// Buffers that are out.
    pub(super) fn out(&self) -> u32 {
        self.books.lock().out
    }

    /// The same, and the bytes that were asked for.
    pub(super) fn in_use(&self) -> (u64, u64) {
        let books = self.books.lock();
        (u64::from(books.out), books.bytes)
    }

    /// Host bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.books.lock().entries.bytes()
    }
}
