//! A growing array that is read without a lock: [`Table`].
//!
//! Its elements lie in chunks that double, got outside any lock and never moved. Whoever adds to it holds the owner's
//! lock; whoever reads sees the length first and so only elements that are complete.

use super::sync::{AtomicPtr, AtomicU32, Ordering};
use crate::error::Error;
use crate::metadata::HostMemory;
use core::alloc::Layout;
use core::ptr::{self, NonNull};

/// Elements of the first chunk, as a power of two.
const FIRST_BITS: u32 = 4;
const CHUNKS: usize = 21;

/// The most elements of a table.
pub(super) const TABLE_LIMIT: u32 = 1 << 24;

const _: () = assert!(locate(TABLE_LIMIT - 1).0 < CHUNKS);

/// Chunk and place in it of an index.
#[inline(always)]
pub(super) const fn locate(index: u32) -> (usize, u32) {
    let shifted = index + (1 << FIRST_BITS);
    let top = shifted.ilog2();
    ((top - FIRST_BITS) as usize, shifted - (1 << top))
}

/// Index of a chunk's first element.
pub(super) const fn first_of(chunk: usize) -> u32 {
    ((1 << FIRST_BITS) << chunk) - (1 << FIRST_BITS)
}

/// Elements that a whole chunk has.
pub(super) const fn chunk_len(chunk: usize) -> u32 {
    (1 << FIRST_BITS) << chunk
}

/// Invariants: the first `len` elements are initialised, and `chunks[c]` is NULL or memory for all elements of chunk `c`
/// below `limit`, with `tail(c)` bytes of zeros behind them. A chunk is there before any element of it.
pub(super) struct Table<T> {
    chunks: [AtomicPtr<T>; CHUNKS],
    /// Published with release order after the element was written.
    len: AtomicU32,
    limit: u32,
    tail: fn(usize) -> usize,
}

/// Memory for a chunk that is not part of a table yet.
pub(super) struct NewChunk<T> {
    memory: NonNull<T>,
    chunk: usize,
    layout: Layout,
    host: HostMemory,
}

impl<T> Drop for NewChunk<T> {
    fn drop(&mut self) {
        // SAFETY: from `Table::allocate` with this layout; never became part of a table.
        unsafe { self.host.deallocate(self.memory.cast(), self.layout) };
    }
}

impl<T> Table<T> {
    /// A table of at most `limit` elements, each of whose chunks has `tail` of its number bytes behind its elements.
    pub(super) fn new(limit: u32, tail: fn(usize) -> usize) -> Self {
        debug_assert!(limit <= TABLE_LIMIT);
        let chunks = core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Self { chunks, len: AtomicU32::new(0), limit, tail }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    /// The element of an index that may be anything.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        if index >= self.len() {
            return None;
        }
        // SAFETY: below the length, which was read with acquire order.
        Some(unsafe { self.get_unchecked(index) })
    }

    /// # Safety
    /// The element has been added, as this thread knows.
    #[inline(always)]
    pub(super) unsafe fn get_unchecked(&self, index: u32) -> &T {
        let (chunk, place) = locate(index);
        // SAFETY: an element that was added lies in a chunk that is there.
        unsafe { &*self.chunks.get_unchecked(chunk).load(Ordering::Relaxed).add(place as usize) }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        // SAFETY: below the length.
        (0..self.len()).map(|index| unsafe { self.get_unchecked(index) })
    }

    /// The chunk that has to be added before an element of `index` can be, if any.
    pub(super) fn missing(&self, index: u32) -> Option<usize> {
        let (chunk, _) = locate(index);
        self.chunks[chunk].load(Ordering::Relaxed).is_null().then_some(chunk)
    }

    /// Layout of a chunk, and where its tail begins.
    fn layout(&self, chunk: usize) -> (Layout, usize) {
        let elements = chunk_len(chunk).min(self.limit - first_of(chunk)) as usize;
        let tail_at = elements * size_of::<T>();
        let bytes = tail_at + (self.tail)(chunk);
        // SAFETY: a power of two; at most 2^24 elements and their tails, which no address space is too small for that has
        // room for as many.
        (unsafe { Layout::from_size_align_unchecked(bytes, 64) }, tail_at)
    }

    /// Gets memory for a chunk. No lock is held.
    #[cold]
    pub(super) fn allocate(&self, chunk: usize, host: HostMemory) -> Result<NewChunk<T>, Error> {
        let (layout, tail_at) = self.layout(chunk);
        let memory = host.allocate(layout)?;
        // SAFETY: the tail is inside the block.
        unsafe { memory.add(tail_at).write_bytes(0, layout.size() - tail_at) };
        Ok(NewChunk { memory: memory.cast(), chunk, layout, host })
    }

    /// Makes a chunk part of the table, and says where its tail is; hands it back if another thread was faster. The
    /// owner's lock is held.
    pub(super) fn install(&self, chunk: NewChunk<T>) -> Result<(usize, NonNull<u8>), NewChunk<T>> {
        let place = &self.chunks[chunk.chunk];
        if !place.load(Ordering::Relaxed).is_null() {
            return Err(chunk);
        }
        // What reads it has seen a length that was published later.
        place.store(chunk.memory.as_ptr(), Ordering::Relaxed);
        let (_, tail_at) = self.layout(chunk.chunk);
        // SAFETY: inside the block, or its end.
        let tail = unsafe { chunk.memory.cast::<u8>().add(tail_at) };
        let number = chunk.chunk;
        core::mem::forget(chunk);
        Ok((number, tail))
    }

    /// Adds an element and returns its place.
    ///
    /// # Safety
    /// The owner's lock is held, and the chunk of the next index is there.
    pub(super) unsafe fn push(&self, value: T) -> NonNull<T> {
        let index = self.len.load(Ordering::Relaxed);
        let (chunk, place) = locate(index);
        debug_assert!(index < self.limit && self.missing(index).is_none());
        // SAFETY: the chunk is there and has room for every index below the limit.
        unsafe {
            let at = self.chunks[chunk].load(Ordering::Relaxed).add(place as usize);
            at.write(value);
            self.len.store(index + 1, Ordering::Release);
            NonNull::new_unchecked(at)
        }
    }

    /// Gives the memory back. Elements are not dropped.
    ///
    /// # Safety
    /// `host` is what all chunks came from, and nobody reads the table any more.
    pub(super) unsafe fn free(&self, host: HostMemory) {
        for (number, chunk) in self.chunks.iter().enumerate() {
            if let Some(memory) = NonNull::new(chunk.load(Ordering::Relaxed)) {
                // SAFETY: allocated with this layout; the caller promises the rest.
                unsafe { host.deallocate(memory.cast(), self.layout(number).0) };
            }
        }
    }

    /// Host bytes held.
    pub(super) fn bytes(&self) -> u64 {
        let there = |(number, chunk): (usize, &AtomicPtr<T>)| {
            if chunk.load(Ordering::Relaxed).is_null() { 0 } else { self.layout(number).0.size() as u64 }
        };
        self.chunks.iter().enumerate().map(there).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn indices_fill_one_chunk_after_the_other() {
        let mut expected = (0, 0);
        for index in 0..10_000 {
            assert_eq!(locate(index), expected);
            assert_eq!(first_of(expected.0) + expected.1, index);
            expected.1 += 1;
            if expected.1 == chunk_len(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn elements_stay_where_they_are_and_the_last_chunk_is_cut_to_the_limit() {
        let host = HostMemory::global();
        let table = Table::<u64>::new(100, |_| 8);
        let mut places = std::vec::Vec::new();
        for i in 0..100u64 {
            if let Some(chunk) = table.missing(i as u32) {
                let (_, tail) = table.install(table.allocate(chunk, host).unwrap()).ok().unwrap();
                // SAFETY: eight bytes of zeros.
                assert_eq!(unsafe { tail.cast::<u64>().read() }, 0);
                assert!(table.install(table.allocate(chunk, host).unwrap()).is_err());
            }
            assert_eq!(table.get(i as u32), None);
            // SAFETY: one thread; the chunk is there.
            places.push(unsafe { table.push(i) });
        }
        assert_eq!(table.get(100), None);
        assert_eq!(table.get(u32::MAX - 16), None);
        assert!(table.iter().copied().eq(0..100));
        for (i, place) in places.iter().enumerate() {
            assert_eq!(ptr::from_ref(table.get(i as u32).unwrap()), place.as_ptr().cast_const());
        }
        // 16 + 32 + 52 elements, and three tails.
        assert_eq!(table.bytes(), 100 * 8 + 3 * 8);
        // SAFETY: nobody reads it any more.
        unsafe { table.free(host) };
    }
}
