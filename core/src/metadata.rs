//! Where all bookkeeping lives: arrays in host memory that grow without moving and without a lock.
//!
//! [`Chunked`] is an array made of chunks. Growing it takes three steps, so that no host-memory function runs under a
//! lock: plan the next chunk under the lock, get its memory without, install it under the lock again.
//! Elements never move: an index stays valid, and nothing is copied while others wait.

use crate::error::Error;
use core::alloc::Layout;
use core::ffi::c_void;
use core::ops::{Index, IndexMut};
use core::ptr::{self, NonNull};

extern crate alloc;

/// Allocates `size` bytes of host memory at a multiple of `alignment` (a power of two). NULL: none left.
pub type HostAllocateFn = unsafe extern "C" fn(user_data: *mut c_void, size: u64, alignment: u64) -> *mut c_void;

/// Takes back what a [`HostAllocateFn`] gave, with the same size and alignment.
pub type HostDeallocateFn =
    unsafe extern "C" fn(user_data: *mut c_void, memory: *mut c_void, size: u64, alignment: u64);

/// The host memory in which an allocator or a space keeps its books. Never device memory.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    user_data: *mut c_void,
    allocate: HostAllocateFn,
    deallocate: HostDeallocateFn,
}

// SAFETY: the contract of `HostMemory::new` demands functions that any thread may call.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Rust's global allocator.
    pub const fn global() -> Self {
        unsafe extern "C" fn allocate(_: *mut c_void, size: u64, alignment: u64) -> *mut c_void {
            let (Ok(size), Ok(alignment)) = (usize::try_from(size), usize::try_from(alignment)) else {
                return ptr::null_mut();
            };
            match Layout::from_size_align(size, alignment) {
                // SAFETY: the size is not zero.
                Ok(layout) if size != 0 => unsafe { alloc::alloc::alloc(layout) }.cast(),
                _ => ptr::null_mut(),
            }
        }
        unsafe extern "C" fn deallocate(_: *mut c_void, memory: *mut c_void, size: u64, alignment: u64) {
            // SAFETY: `allocate` above accepted this size and alignment and returned this memory.
            unsafe {
                let layout = Layout::from_size_align_unchecked(size as usize, alignment as usize);
                alloc::alloc::dealloc(memory.cast(), layout);
            }
        }
        Self { user_data: ptr::null_mut(), allocate, deallocate }
    }

    /// Host memory from the caller's own functions, both called with `user_data`.
    ///
    /// # Safety
    /// Both functions must be callable from every thread that uses the allocator, must not call into slicepool and
    /// must not unwind. `allocate` answers NULL or memory of at least the size, aligned as asked, that stays valid
    /// until it is given to `deallocate`.
    pub const unsafe fn new(user_data: *mut c_void, allocate: HostAllocateFn, deallocate: HostDeallocateFn) -> Self {
        Self { user_data, allocate, deallocate }
    }

    /// Uninitialised memory for one `layout`.
    pub fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, Error> {
        if layout.size() == 0 {
            let aligned = ptr::without_provenance_mut(layout.align());
            return NonNull::new(aligned).ok_or(Error::OutOfHostMemory { bytes: 0 });
        }
        // SAFETY: the contract of `new`.
        let memory = unsafe { (self.allocate)(self.user_data, layout.size() as u64, layout.align() as u64) };
        NonNull::new(memory.cast()).ok_or(Error::OutOfHostMemory { bytes: layout.size() as u64 })
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// `memory` came from [`HostMemory::allocate`] of an equal `HostMemory` with the same `layout` and is not used
    /// any more.
    pub unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the contract of `new` and of this function.
            unsafe {
                (self.deallocate)(self.user_data, memory.as_ptr().cast(), layout.size() as u64, layout.align() as u64);
            }
        }
    }
}

// SAFETY: memory comes from and goes to the same pair of functions, whose contract is that of `HostMemory::new`;
// a copy of a `HostMemory` is interchangeable with its original.
unsafe impl allocator_api2::alloc::Allocator for HostMemory {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, allocator_api2::alloc::AllocError> {
        match HostMemory::allocate(self, layout) {
            Ok(memory) => Ok(NonNull::slice_from_raw_parts(memory, layout.size())),
            Err(_) => Err(allocator_api2::alloc::AllocError),
        }
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on from the caller.
        unsafe { HostMemory::deallocate(self, memory, layout) }
    }
}

/// A fixed number of elements in host memory.
pub(crate) struct Array<T> {
    elements: NonNull<T>,
    len: u32,
    memory: HostMemory,
}

// SAFETY: an `Array` owns its elements.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: shared access gives out shared references only.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T> Array<T> {
    /// `len` elements, the i-th made by `make(i)`. If one cannot be made, those before it are dropped.
    pub(crate) fn try_new(
        memory: HostMemory,
        len: u32,
        mut make: impl FnMut(u32) -> Result<T, Error>,
    ) -> Result<Self, Error> {
        let layout = Self::layout(len)?;
        let elements = memory.allocate(layout)?.cast::<T>();
        let mut array = Self { elements, len: 0, memory };
        // From here on `Drop` cleans up; it derives the layout from `len`, so the block is shrunk to nothing by hand
        // when an element fails.
        for i in 0..len {
            match make(i) {
                // SAFETY: i < len, inside the block.
                Ok(value) => unsafe { array.elements.as_ptr().add(i as usize).write(value) },
                Err(error) => {
                    for done in 0..i {
                        // SAFETY: elements below i were written above.
                        unsafe { ptr::drop_in_place(array.elements.as_ptr().add(done as usize)) };
                    }
                    // SAFETY: allocated above with this layout.
                    unsafe { memory.deallocate(elements.cast(), layout) };
                    core::mem::forget(array);
                    return Err(error);
                }
            }
        }
        array.len = len;
        Ok(array)
    }

    fn layout(len: u32) -> Result<Layout, Error> {
        Layout::array::<T>(len as usize)
            .map_err(|_| Error::OutOfHostMemory { bytes: u64::from(len).saturating_mul(size_of::<T>() as u64) })
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).map(|i| &self[i])
    }

    /// Host bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.len) * size_of::<T>() as u64
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: the first `len` elements are initialised, the block was allocated for `len` elements.
        unsafe {
            ptr::drop_in_place(ptr::slice_from_raw_parts_mut(self.elements.as_ptr(), self.len as usize));
            let layout = Layout::from_size_align_unchecked(size_of::<T>() * self.len as usize, align_of::<T>());
            self.memory.deallocate(self.elements.cast(), layout);
        }
    }
}

impl<T> Index<u32> for Array<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, index: u32) -> &T {
        if index >= self.len {
            out_of_range();
        }
        // SAFETY: just checked.
        unsafe { &*self.elements.as_ptr().add(index as usize) }
    }
}

impl<T> IndexMut<u32> for Array<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut T {
        if index >= self.len {
            out_of_range();
        }
        // SAFETY: just checked; `&mut self` makes the access unique.
        unsafe { &mut *self.elements.as_ptr().add(index as usize) }
    }
}

/// The largest number of elements of a [`Chunked`]: slot numbers have 24 bits.
pub(crate) const CHUNKED_LIMIT: u32 = 1 << 24;

/// Elements of the first chunk, as a power of two.
const FIRST_BITS: u32 = 5;
/// Chunks per doubling, as a power of two: at most half (a third, ...) of the capacity is unused after growing.
const STEP_BITS: u32 = 1;
const CHUNKS: usize = chunk_of(CHUNKED_LIMIT - 1).0 + 1;

/// The chunk of an index, and log2 of that chunk's number of elements.
///
/// With `j = index + 2^FIRST_BITS`, the top `1 + STEP_BITS` bits of `j` name the chunk and the others the place in it.
#[inline(always)]
const fn chunk_of(index: u32) -> (usize, u32) {
    let j = index + (1 << FIRST_BITS);
    let bits = 31 - j.leading_zeros() - STEP_BITS;
    let chunk = ((bits - (FIRST_BITS - STEP_BITS)) << STEP_BITS) + (j >> bits) - (1 << STEP_BITS);
    (chunk as usize, bits)
}

/// A growable array whose elements never move.
///
/// Invariant: every chunk that holds an index below `capacity` is installed, and elements below `len` are
/// initialised. `chunks[c]` is moved back by the number of elements before the chunk (plus the offset of
/// [`chunk_of`]), so that `chunks[c] + (index + 2^FIRST_BITS)` is the element.
pub(crate) struct Chunked<T> {
    chunks: [*mut T; CHUNKS],
    len: u32,
    capacity: u32,
    memory: HostMemory,
}

// SAFETY: a `Chunked` owns its elements.
unsafe impl<T: Send> Send for Chunked<T> {}
// SAFETY: shared access gives out shared references only.
unsafe impl<T: Sync> Sync for Chunked<T> {}

/// Which chunk comes next; made under the lock, turned into a [`Chunk`] without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlan {
    first: u32,
    count: u32,
}

/// Memory for a chunk, not yet installed. Gives itself back when dropped.
pub(crate) struct Chunk<T> {
    elements: NonNull<T>,
    plan: ChunkPlan,
    memory: HostMemory,
}

impl<T> Chunk<T> {
    pub(crate) fn allocate(memory: HostMemory, plan: ChunkPlan) -> Result<Self, Error> {
        let elements = memory.allocate(Array::<T>::layout(plan.count)?)?.cast();
        Ok(Self { elements, plan, memory })
    }
}

impl<T> Drop for Chunk<T> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `allocate`; elements, if any, were dropped by the owner.
        unsafe {
            let layout = Layout::from_size_align_unchecked(size_of::<T>() * self.plan.count as usize, align_of::<T>());
            self.memory.deallocate(self.elements.cast(), layout);
        }
    }
}

impl<T> Chunked<T> {
    pub(crate) const fn new(memory: HostMemory) -> Self {
        Self { chunks: [ptr::null_mut(); CHUNKS], len: 0, capacity: 0, memory }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Elements that can be pushed before the next chunk is needed.
    #[inline(always)]
    pub(crate) fn spare(&self) -> u32 {
        self.capacity - self.len
    }

    /// Host bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.capacity) * size_of::<T>() as u64
    }

    /// The chunk to get next, `None` at the limit of 2^24 elements.
    pub(crate) fn plan(&self) -> Option<ChunkPlan> {
        if self.capacity >= CHUNKED_LIMIT {
            return None;
        }
        let (_, bits) = chunk_of(self.capacity);
        Some(ChunkPlan { first: self.capacity, count: (1 << bits).min(CHUNKED_LIMIT - self.capacity) })
    }

    /// Makes the chunk part of the array; hands it back if another thread has installed the same one meanwhile.
    pub(crate) fn install(&mut self, chunk: Chunk<T>) -> Option<Chunk<T>> {
        if chunk.plan.first != self.capacity {
            return Some(chunk);
        }
        let (index, _) = chunk_of(self.capacity);
        self.chunks[index] = chunk.elements.as_ptr().wrapping_sub(self.capacity as usize).wrapping_sub(1 << FIRST_BITS);
        self.capacity += chunk.plan.count;
        core::mem::forget(chunk);
        None
    }

    /// Plans, gets and installs chunks until `count` elements can be pushed. For owners without a lock.
    pub(crate) fn reserve(&mut self, count: u32) -> Result<(), Error> {
        while self.spare() < count {
            let plan = self.plan().ok_or(Error::TooManySlices { limit: CHUNKED_LIMIT })?;
            let chunk = Chunk::allocate(self.memory, plan)?;
            drop(self.install(chunk));
        }
        Ok(())
    }

    /// Appends an element and returns its index. The caller has made sure of the room.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: T) -> u32 {
        let index = self.len;
        if index >= self.capacity {
            out_of_range();
        }
        // SAFETY: index < capacity, so its chunk is installed.
        unsafe { self.element(index).write(value) };
        self.len = index + 1;
        index
    }

    /// Address of an element.
    ///
    /// # Safety
    /// `index < capacity`.
    #[inline(always)]
    unsafe fn element(&self, index: u32) -> *mut T {
        let (chunk, _) = chunk_of(index);
        debug_assert!(index < self.capacity && chunk < CHUNKS);
        // SAFETY: `chunk_of` of an index below the limit is below `CHUNKS`. The chunk's pointer was moved back by
        // exactly what is added here, so the result lies inside the chunk.
        unsafe { self.chunks.get_unchecked(chunk).wrapping_add(index as usize + (1 << FIRST_BITS)) }
    }
}

impl<T> Drop for Chunked<T> {
    fn drop(&mut self) {
        for index in 0..self.len {
            // SAFETY: elements below `len` are initialised.
            unsafe { ptr::drop_in_place(self.element(index)) };
        }
        let mut first = 0;
        while first < self.capacity {
            let (_, bits) = chunk_of(first);
            let count = (1u32 << bits).min(CHUNKED_LIMIT - first);
            // SAFETY: `first` is below `capacity` and begins a chunk.
            let elements = unsafe { NonNull::new_unchecked(self.element(first)) };
            drop(Chunk { elements, plan: ChunkPlan { first, count }, memory: self.memory });
            first += count;
        }
    }
}

impl<T> Index<u32> for Chunked<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, index: u32) -> &T {
        if index >= self.len {
            out_of_range();
        }
        // SAFETY: index < len <= capacity, and elements below `len` are initialised.
        unsafe { &*self.element(index) }
    }
}

impl<T> IndexMut<u32> for Chunked<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut T {
        if index >= self.len {
            out_of_range();
        }
        // SAFETY: as in `index`; `&mut self` makes the access unique.
        unsafe { &mut *self.element(index) }
    }
}

/// An index that the bookkeeping itself got wrong: a bug in this crate, never the caller's.
#[cold]
#[inline(never)]
fn out_of_range() -> ! {
    panic!("slicepool: bookkeeping index out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_tile_the_index_space_without_gap_or_overlap() {
        let mut first = 0u32;
        let mut expected = 0;
        while first < CHUNKED_LIMIT {
            let (chunk, bits) = chunk_of(first);
            assert_eq!(chunk, expected);
            let last = (first + (1 << bits) - 1).min(CHUNKED_LIMIT - 1);
            assert_eq!(chunk_of(last), (chunk, bits));
            first += 1 << bits;
            expected += 1;
        }
        assert_eq!(expected, CHUNKS);
    }

    #[test]
    fn elements_stay_where_they_are_while_the_array_grows() {
        let mut array = Chunked::new(HostMemory::global());
        array.reserve(1).unwrap();
        array.push(0u64);
        let address = &raw const array[0];
        for i in 1..10_000u64 {
            array.reserve(1).unwrap();
            array.push(i);
        }
        assert_eq!(address, &raw const array[0]);
        assert!((0..10_000).all(|i| array[i] == u64::from(i)));
    }

    #[test]
    fn two_threads_that_planned_the_same_chunk_install_it_once() {
        let mut array = Chunked::<u32>::new(HostMemory::global());
        let plan = array.plan().unwrap();
        let one = Chunk::allocate(array.memory, plan).unwrap();
        let two = Chunk::allocate(array.memory, plan).unwrap();
        assert!(array.install(one).is_none());
        assert!(array.install(two).is_some());
    }

    #[test]
    fn an_array_whose_last_element_fails_drops_the_others() {
        use std::rc::Rc;
        let token = Rc::new(());
        let result = Array::try_new(HostMemory::global(), 4, |i| {
            if i < 3 { Ok(token.clone()) } else { Err(Error::OutOfHostMemory { bytes: 1 }) }
        });
        assert!(result.is_err());
        assert_eq!(Rc::strong_count(&token), 1);
    }
}
