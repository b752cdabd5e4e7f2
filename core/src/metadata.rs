//! Where all bookkeeping lives: arrays in host memory that grow without moving and without a lock.
//!
//! [`Chunked`] is an array made of chunks. Growing it takes three steps, so that no host-memory function runs under a
//! lock: plan the next chunk under the lock, get its memory without, install it under the lock again.
//! Elements never move: an index stays valid, and nothing is copied while others wait.

use crate::allocator::sizing::Needs;
use crate::error::Error;
use crate::parts::COMPLETE;
use core::alloc::Layout;
use core::ffi::c_void;
use core::marker::PhantomData;
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
    pub(crate) user_data: *mut c_void,
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
        let none = Error::OutOfHostMemory { bytes: layout.size() as u64 };
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(none)?;
        if memory.addr().get() % layout.align() != 0 {
            // A function that forgets about alignment: memory that cannot be used is none.
            // SAFETY: it came from `allocate` just now.
            unsafe { self.deallocate(memory, layout) };
            return Err(none);
        }
        Ok(memory)
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
    /// No elements.
    pub(crate) const fn empty(memory: HostMemory) -> Self {
        Self { elements: NonNull::dangling(), len: 0, memory }
    }

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

    /// The host memory that it lies in.
    pub(crate) fn memory(&self) -> HostMemory {
        self.memory
    }

    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: the first `len` elements are initialised, and `self` owns them.
        unsafe { core::slice::from_raw_parts(self.elements.as_ptr(), self.len as usize) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and `&mut self` makes the access unique.
        unsafe { core::slice::from_raw_parts_mut(self.elements.as_ptr(), self.len as usize) }
    }

    pub(crate) fn iter(&self) -> core::slice::Iter<'_, T> {
        self.as_slice().iter()
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

/// An index of a [`Chunked`] names a chunk in its top bits and an element in these lower bits.
const OFFSET_BITS: u32 = 17;
const CHUNKS: u32 = if COMPLETE { 128 } else { 16 };
/// Elements of the first chunk, as a power of two: about half a KiB. Every second chunk is twice as large, up to 2^17
/// elements.
const fn first_bits<T>() -> u32 {
    let bytes_bits = if COMPLETE { 9 } else { 8 };
    let element_bits = size_of::<T>().next_power_of_two().trailing_zeros();
    let bits = u32::saturating_sub(bytes_bits, element_bits);
    if bits < MOST_FIRST_BITS { bits } else { MOST_FIRST_BITS }
}
const MOST_FIRST_BITS: u32 = if COMPLETE { 4 } else { 3 };

const fn chunk_len<T>(chunk: u32) -> u32 {
    let bits = first_bits::<T>() + chunk / 2;
    1 << if bits < OFFSET_BITS { bits } else { OFFSET_BITS }
}

/// A growable array whose elements never move.
///
/// Indices are handed out in rising order but not without gaps: they name a chunk and a place in it, which makes
/// finding an element a shift, a load and a compare. At most a third of the memory is unused after growing.
///
/// Invariant: the first `lens[c]` elements of chunk `c` are initialised, and its memory has room for `chunk_len(c)` if
/// `c < installed`, for none otherwise.
pub(crate) struct Chunked<T> {
    /// Where each chunk's elements would begin with index 0: moved back by the index of its first, so that an element is
    /// found with its whole index.
    bases: [*mut T; CHUNKS as usize],
    lens: [u32; CHUNKS as usize],
    /// Chunks whose memory is there.
    installed: u32,
    /// The chunk that is being filled.
    filling: u32,
    /// Elements that fit in without another chunk.
    spare: u32,
    /// Elements that all chunks have room for.
    capacity: u32,
    memory: HostMemory,
}

// SAFETY: a `Chunked` owns its elements.
unsafe impl<T: Send> Send for Chunked<T> {}
// SAFETY: shared access gives out shared references only.
unsafe impl<T: Sync> Sync for Chunked<T> {}

/// Which chunk comes next; made under the lock, turned into a [`Chunk`] without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlan(u32);

/// Memory for a chunk, not yet installed. Gives itself back when dropped.
pub(crate) struct Chunk<T> {
    elements: NonNull<T>,
    plan: ChunkPlan,
    memory: HostMemory,
}

impl<T> Chunk<T> {
    pub(crate) fn allocate(memory: HostMemory, plan: ChunkPlan) -> Result<Self, Error> {
        let elements = memory.allocate(Array::<T>::layout(chunk_len::<T>(plan.0))?)?.cast();
        Ok(Self { elements, plan, memory })
    }
}

impl<T> Drop for Chunk<T> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `allocate`; elements, if any, were dropped by the owner.
        unsafe {
            let size = size_of::<T>() * chunk_len::<T>(self.plan.0) as usize;
            self.memory.deallocate(self.elements.cast(), Layout::from_size_align_unchecked(size, align_of::<T>()));
        }
    }
}

impl<T> Chunked<T> {
    pub(crate) const fn new(memory: HostMemory) -> Self {
        let (bases, lens) = ([ptr::null_mut(); CHUNKS as usize], [0; CHUNKS as usize]);
        Self { bases, lens, installed: 0, filling: 0, spare: 0, capacity: 0, memory }
    }

    /// The most elements; every index is below 2^24.
    pub(crate) const LIMIT: u32 = {
        let (mut sum, mut chunk) = (0, 0);
        while chunk < CHUNKS {
            sum += chunk_len::<T>(chunk);
            chunk += 1;
        }
        sum
    };

    /// The element of an index, which need not be initialised. The index is counted round and round.
    #[inline(always)]
    fn at(&self, index: u32) -> *mut T {
        let index = index % (CHUNKS << OFFSET_BITS);
        self.bases[(index >> OFFSET_BITS) as usize].wrapping_add(index as usize)
    }

    /// The host memory that `count` elements ask for.
    pub(crate) fn add_needs(count: u32, needs: &mut Needs) -> Result<(), Error> {
        let (mut chunk, mut room) = (0, 0);
        while room < count {
            if chunk == CHUNKS {
                return Err(Error::TooManySlices { limit: Self::LIMIT });
            }
            needs.add::<T>(u64::from(chunk_len::<T>(chunk)));
            room += chunk_len::<T>(chunk);
            chunk += 1;
        }
        Ok(())
    }

    /// Elements that can be pushed before the next chunk is needed.
    #[inline(always)]
    pub(crate) fn spare(&self) -> u32 {
        self.spare
    }

    /// Host bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.capacity) * size_of::<T>() as u64
    }

    /// The chunk to get next.
    ///
    /// # Errors
    /// [`Error::TooManySlices`] at the limit.
    pub(crate) fn plan(&self) -> Result<ChunkPlan, Error> {
        if self.installed < CHUNKS {
            Ok(ChunkPlan(self.installed))
        } else {
            Err(Error::TooManySlices { limit: Self::LIMIT })
        }
    }

    /// Makes the chunk part of the array; hands it back if another thread has installed the same one meanwhile.
    pub(crate) fn install(&mut self, chunk: Chunk<T>) -> Option<Chunk<T>> {
        if chunk.plan.0 != self.installed || self.installed >= CHUNKS {
            return Some(chunk);
        }
        let first = (self.installed << OFFSET_BITS) as usize;
        self.bases[self.installed as usize] = chunk.elements.as_ptr().wrapping_sub(first);
        self.spare += chunk_len::<T>(self.installed);
        self.capacity += chunk_len::<T>(self.installed);
        self.installed += 1;
        core::mem::forget(chunk);
        None
    }

    /// Plans, gets and installs chunks until `count` elements can be pushed. For owners without a lock.
    pub(crate) fn reserve(&mut self, count: u32) -> Result<(), Error> {
        while self.spare < count {
            let plan = self.plan()?;
            let chunk = Chunk::allocate(self.memory, plan)?;
            drop(self.install(chunk));
        }
        Ok(())
    }

    /// The index that the next element gets.
    pub(crate) fn next_index(&self) -> u32 {
        let full = self.lens[self.filling as usize] == chunk_len::<T>(self.filling);
        if full {
            (self.filling + 1) << OFFSET_BITS
        } else {
            self.filling << OFFSET_BITS | self.lens[self.filling as usize]
        }
    }

    /// Appends an element and returns its index. The caller has made sure of the room.
    pub(crate) fn push(&mut self, value: T) -> u32 {
        let index = self.next_index();
        let (chunk, _) = split(index);
        if self.spare == 0 || chunk as u32 >= self.installed {
            out_of_range();
        }
        // SAFETY: the chunk is installed, and `next_index` names a place in it.
        unsafe { self.at(index).write(value) };
        self.filling = chunk as u32;
        self.lens[chunk] += 1;
        self.spare -= 1;
        index
    }

    /// Whether an index, which may be anything, is that of an element.
    #[inline(always)]
    pub(crate) fn has(&self, index: u32) -> bool {
        let (chunk, offset) = split(index);
        offset < self.lens[chunk] as usize
    }

    /// The element of an index that may be anything.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, offset) = split(index);
        if offset >= self.lens[chunk] as usize {
            return None;
        }
        // SAFETY: the first `lens[chunk]` elements of a chunk are initialised.
        Some(unsafe { &*self.at(index) })
    }

    /// The element of an index that came from [`Chunked::push`], without looking whether it did.
    ///
    /// # Safety
    /// `index` was handed out by [`Chunked::push`] of this array.
    #[inline(always)]
    pub(crate) unsafe fn get_unchecked(&self, index: u32) -> &T {
        debug_assert!(self.get(index).is_some(), "an index that was never handed out");
        let chunk = (index >> OFFSET_BITS) as usize;
        // SAFETY: an index that was handed out names an initialised element of an installed chunk.
        unsafe { &*self.bases.get_unchecked(chunk).wrapping_add(index as usize) }
    }

    /// The element that lies so many bytes from where the array would begin if it were in one piece: its index times its
    /// size. Elements are a power of two large.
    ///
    /// # Safety
    /// `place` is such a multiple of an index that was handed out by [`Chunked::push`] of this array.
    #[inline(always)]
    pub(crate) unsafe fn get_at_unchecked(&self, place: u32) -> &T {
        const { assert!(size_of::<T>().is_power_of_two() && (size_of::<T>() as u64) << 24 <= 1 << 32) };
        let bits = const { size_of::<T>().trailing_zeros() };
        debug_assert!(place & ((1 << bits) - 1) == 0 && self.get(place >> bits).is_some(), "no place of an element");
        let chunk = (place >> (OFFSET_BITS + bits)) as usize;
        // SAFETY: an index that was handed out names an initialised element of an installed chunk; the addition is that of
        // the whole index, in bytes.
        unsafe { &*self.bases.get_unchecked(chunk).wrapping_byte_add(place as usize) }
    }

    /// Every index in order.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + use<T> {
        let (lens, filling) = (self.lens, self.filling);
        (0..=filling).flat_map(move |chunk| (0..lens[chunk as usize]).map(move |i| chunk << OFFSET_BITS | i))
    }

    /// The first index at or above `index`.
    pub(crate) fn index_from(&self, index: u32) -> Option<u32> {
        // Chunks are counted round and round where an index is looked up; here they are not.
        let chunk = index >> OFFSET_BITS;
        if chunk >= CHUNKS {
            return None;
        }
        if self.get(index).is_some() {
            return Some(index);
        }
        if chunk + 1 == CHUNKS {
            return None;
        }
        let next = (chunk + 1) << OFFSET_BITS;
        self.get(next).map(|_| next)
    }
}

/// Values beside the elements of a [`Chunked`], for few of them: there is memory only for chunks in which an index has a
/// value.
pub(crate) struct Beside<E, T> {
    chunks: [Option<Array<T>>; CHUNKS as usize],
    elements: PhantomData<E>,
}

impl<E, T: Default> Beside<E, T> {
    pub(crate) fn new() -> Self {
        Self { chunks: [const { None }; CHUNKS as usize], elements: PhantomData }
    }

    /// Memory for the values of a chunk: that of `index`.
    pub(crate) fn allocate(memory: HostMemory, index: u32) -> Result<Array<T>, Error> {
        Array::try_new(memory, chunk_len::<E>(split(index).0 as u32), |_| Ok(T::default()))
    }

    /// Makes such memory part of this; hands it back if another thread was faster.
    pub(crate) fn install(&mut self, index: u32, chunk: Array<T>) -> Option<Array<T>> {
        let place = &mut self.chunks[split(index).0];
        if place.is_some() {
            return Some(chunk);
        }
        *place = Some(chunk);
        None
    }

    /// The value beside an index, if there is memory for it.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, place) = split(index);
        self.chunks[chunk].as_ref()?.as_slice().get(place)
    }

    /// Host bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunks.iter().flatten().map(Array::bytes).sum()
    }
}

/// Chunk and place of an index; the chunk is in range whatever the index is.
#[inline(always)]
const fn split(index: u32) -> (usize, usize) {
    ((index >> OFFSET_BITS) as usize % CHUNKS as usize, (index & ((1 << OFFSET_BITS) - 1)) as usize)
}

impl<T> Drop for Chunked<T> {
    fn drop(&mut self) {
        for chunk in 0..self.installed {
            let elements = self.at(chunk << OFFSET_BITS);
            // SAFETY: the first `lens[chunk]` elements are initialised; the chunk was allocated by `Chunk::allocate`.
            unsafe {
                ptr::drop_in_place(ptr::slice_from_raw_parts_mut(elements, self.lens[chunk as usize] as usize));
                drop(Chunk { elements: NonNull::new_unchecked(elements), plan: ChunkPlan(chunk), memory: self.memory });
            }
        }
    }
}

impl<T> Index<u32> for Chunked<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, index: u32) -> &T {
        match self.get(index) {
            Some(element) => element,
            None => out_of_range(),
        }
    }
}

impl<T> IndexMut<u32> for Chunked<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut T {
        let (chunk, offset) = split(index);
        if offset >= self.lens[chunk] as usize {
            out_of_range();
        }
        // SAFETY: the first `lens[chunk]` elements of a chunk are initialised; `&mut self` makes the access unique.
        unsafe { &mut *self.at(index) }
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

    #[cfg(feature = "complete")]
    #[test]
    fn the_limit_is_close_to_what_24_bits_can_name() {
        const { assert!(Chunked::<u64>::LIMIT > 13_000_000 && Chunked::<u64>::LIMIT < 1 << 24) };
        const { assert!(Chunked::<[u64; 16]>::LIMIT > 13_000_000) };
        assert_eq!(split(u32::MAX).0, CHUNKS as usize - 1);
    }

    #[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
    #[test]
    fn elements_stay_where_they_are_while_the_array_grows() {
        let mut array = Chunked::new(HostMemory::global());
        array.reserve(1).unwrap();
        assert_eq!(array.next_index(), 0);
        array.push(0u64);
        let address = &raw const array[0];
        let mut indices = std::vec![0];
        for i in 1..300_000u64 {
            array.reserve(1).unwrap();
            let next = array.next_index();
            assert_eq!(array.push(i), next);
            indices.push(next);
        }
        assert_eq!(address, &raw const array[0]);
        assert!(indices.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(indices.iter().enumerate().all(|(i, &index)| array[index] == i as u64));
        assert!(array.indices().eq(indices.iter().copied()));
        assert!(array.bytes() < 300_000 * 8 * 3 / 2 + 1024);
    }

    #[test]
    fn indices_that_were_never_handed_out_name_nothing() {
        let mut array = Chunked::new(HostMemory::global());
        assert_eq!(array.get(0), None);
        array.reserve(1).unwrap();
        array.push(7u8);
        for index in [1, 15, 16, 1 << OFFSET_BITS, (1 << 24) - 1] {
            assert_eq!(array.get(index), None, "{index}");
        }
        assert_eq!((array.index_from(0), array.index_from(1)), (Some(0), None));
        // Behind the last chunk there is no first one again.
        let last = (CHUNKS - 1) << OFFSET_BITS;
        assert_eq!([last, last | 5, CHUNKS << OFFSET_BITS, u32::MAX].map(|index| array.index_from(index)), [None; 4]);
        for i in 0..16 {
            array.reserve(1).unwrap();
            array.push(i);
        }
        assert_eq!(array.index_from(16), Some(1 << OFFSET_BITS));
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
    fn host_memory_that_is_not_aligned_as_asked_is_given_back_and_counts_as_none() {
        use core::cell::Cell;
        unsafe extern "C" fn allocate(user_data: *mut c_void, size: u64, _: u64) -> *mut c_void {
            // SAFETY: the test passes a cell that outlives the host memory.
            let held = unsafe { &*user_data.cast::<Cell<i64>>() };
            held.set(held.get() + 1);
            let layout = Layout::from_size_align(size as usize + 8, 64).unwrap();
            // SAFETY: not empty; eight bytes behind a multiple of 64 there is room for `size`.
            unsafe { alloc::alloc::alloc(layout).add(8).cast() }
        }
        unsafe extern "C" fn deallocate(user_data: *mut c_void, memory: *mut c_void, size: u64, _: u64) {
            // SAFETY: as above; the memory came from `allocate`.
            unsafe {
                let held = &*user_data.cast::<Cell<i64>>();
                held.set(held.get() - 1);
                let layout = Layout::from_size_align(size as usize + 8, 64).unwrap();
                alloc::alloc::dealloc(memory.cast::<u8>().sub(8), layout);
            }
        }
        let held = Cell::new(0i64);
        // SAFETY: one thread; `held` outlives the host memory.
        let memory = unsafe { HostMemory::new((&raw const held).cast_mut().cast(), allocate, deallocate) };
        let layout = Layout::from_size_align(100, 32).unwrap();
        assert_eq!(memory.allocate(layout), Err(Error::OutOfHostMemory { bytes: 100 }));
        assert_eq!(held.get(), 0);
        let layout = Layout::from_size_align(100, 8).unwrap();
        let given = memory.allocate(layout).unwrap();
        assert_eq!(held.get(), 1);
        // SAFETY: given just now, not used.
        unsafe { memory.deallocate(given, layout) };
        assert_eq!(held.get(), 0);
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
