//! All bookkeeping in one block of memory that is handed over once and never added to.
//!
//! The block holds nothing but allocations, the gaps between them, and at its start a [`Header`] with a lock. Gaps
//! describe themselves in their own first bytes; allocations carry no description, because whoever gives one back
//! says how large it is. A request gets the lowest place that fits. What comes back joins the gaps it touches, so
//! nothing is lost however long this goes on, and when all is given back there is one gap again.
//!
//! Invariants of [`Gaps`], checked in debug builds at every step of a walk:
//!
//! - gaps are listed in the order of their addresses, and no two of them touch;
//! - every gap lies within the block; it begins and ends at multiples of [`UNIT`] and is not empty;
//! - every unit is in a gap or in one allocation, never in both.
//!
//! Taking and giving back take time in proportion to the number of gaps. That is spent under the lock, which is fine
//! where it is used: books grow rarely, and the steady path asks for no host memory at all.

use crate::error::Error;
use crate::metadata::HostMemory;
use crate::sync::{Lock, LockKind};
use core::ffi::c_void;
use core::ptr::{self, NonNull};

/// Sizes are rounded up to whole units, so that whatever is given back can hold a [`Gap`].
const UNIT: usize = 16;

const _: () = assert!(size_of::<Gap>() <= UNIT && UNIT % align_of::<Gap>() == 0);

/// Bytes of a block that no allocation ever gets: the header, and what it takes to align it wherever the block starts.
pub(crate) const ARENA_OVERHEAD: u64 = (size_of::<Header>() + align_of::<Header>() - 1) as u64;

/// The most by which one allocation raises the peak of a block; `u64::MAX` where that is too large to be had.
///
/// [`ARENA_OVERHEAD`] and the sum of this over all allocations ever made, those given back included, are always
/// enough: a request that no gap further down can serve goes right behind the highest end so far.
pub(crate) const fn rounded(size: u64, alignment: u64) -> u64 {
    // Every place is a multiple of the unit, so the next aligned one is at most this far away.
    let skipped = alignment.saturating_sub(UNIT as u64);
    match size.checked_next_multiple_of(UNIT as u64) {
        Some(size) => size.saturating_add(skipped),
        None => u64::MAX,
    }
}

/// Figures of a block made host memory by [`HostMemory::in_block`], at one instant. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockStatistics {
    /// In gaps.
    pub free: u64,
    /// In the largest gap. A larger request is refused now, however much is free.
    pub largest_free: u64,
    /// The highest end of anything ever placed in the block, counted from the block's start: what comes behind has
    /// never been used. The same calls on a block of just so many bytes succeed and are given the same places, if it
    /// starts as far behind a multiple of the largest alignment (64, unless a program asks for more itself).
    pub peak: u64,
}

impl HostMemory {
    /// Host memory from a block that the caller hands over. It never asks for more: what no longer fits is refused with
    /// [`Error::OutOfHostMemory`].
    ///
    /// The block may start anywhere and may be shared by any number of allocators and spaces; `lock` keeps them apart.
    /// Less than 200 bytes at its start are used for the block's own books, and sizes are rounded up to multiples
    /// of 16. Asking for memory and giving it back take time in proportion to the number of gaps in the block, with the
    /// lock held.
    ///
    /// To find out how large the block must be, run the program with one that is too large and look at the `peak` of
    /// [`HostMemory::block_statistics`].
    ///
    /// ```
    /// use slicepool_core::{Allocator, AllocatorOptions, HostDevice, HostMemory, LockKind, PoolOptions, Request};
    /// use std::ptr::NonNull;
    ///
    /// let mut block = vec![0u8; 64 << 10];
    /// let start = NonNull::new(block.as_mut_ptr()).unwrap();
    /// // SAFETY: nobody touches the block again before the allocator is gone.
    /// let memory = unsafe { HostMemory::in_block(start, block.len(), LockKind::spin())? };
    ///
    /// let pools = [PoolOptions::sliced_pages(4096, 4096, None)];
    /// let options = AllocatorOptions::default().with_memory(memory);
    /// let allocator = Allocator::try_new(HostDevice::new(), &pools, options)?;
    /// let slice = allocator.allocate(&Request::new(100))?;
    /// allocator.free(slice.id)?;
    /// # Ok::<(), slicepool_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the field `bytes` if there is not even room for the block's own books and the
    /// smallest allocation.
    ///
    /// # Safety
    /// The `bytes` bytes from `memory` on are one piece of memory that can be read and written through `memory`, and
    /// nobody else touches them as long as this host memory, a copy of it, or anything made with one is in use.
    /// The contracts of `lock` hold for the block as a whole: a block with [`LockKind::unlocked`] is used by one thread
    /// at a time even if several allocators share it.
    pub unsafe fn in_block(memory: NonNull<u8>, bytes: usize, lock: LockKind) -> Result<Self, Error> {
        let skipped = to_multiple(memory.addr().get(), align_of::<Header>());
        let lead = skipped + size_of::<Header>();
        let end = bytes.saturating_sub(lead) / UNIT * UNIT;
        if end == 0 {
            return Err(Error::InvalidArgument { field: c"bytes", value: bytes as u64 });
        }
        debug_assert!(lead as u64 <= ARENA_OVERHEAD);
        // SAFETY: `end` is not 0, so more than `lead` bytes are there.
        let (header, start) = unsafe { (memory.byte_add(skipped).cast::<Header>(), memory.byte_add(lead)) };
        debug_assert!(start.addr().get() % UNIT == 0, "the header does not fill whole units");
        let mut gaps = Gaps { start, end, first: 0, lead, peak: 0 };
        // SAFETY: the block is the caller's gift; from `start` on it has `end` bytes, and none is allocated.
        unsafe { gaps.write(0, Gap { bytes: end, next: end }) };
        // SAFETY: aligned by `skipped`, inside the block and in front of all gaps.
        unsafe { header.write(Lock::new(lock, gaps)) };
        // SAFETY: the lock makes both functions callable from every thread, as far as its contract goes. They call
        // nothing but the lock's own functions and do not unwind. Memory is not given out twice.
        Ok(unsafe { Self::new(header.as_ptr().cast(), allocate, deallocate) })
    }

    /// How much of the block is free and how much has ever been used. Takes the block's lock, and time in proportion to
    /// the number of gaps.
    ///
    /// # Safety
    /// This host memory came from [`HostMemory::in_block`], whose contract still holds.
    pub unsafe fn block_statistics(&self) -> BlockStatistics {
        // SAFETY: passed on from the caller.
        let gaps = unsafe { header(self.user_data) }.lock();
        let sizes = || gaps.iter().map(|(_, gap)| gap.bytes as u64);
        BlockStatistics {
            free: sizes().sum(),
            largest_free: sizes().max().unwrap_or(0),
            peak: (gaps.lead + gaps.peak) as u64,
        }
    }
}

/// What stands at the start of a block, at the first place that is aligned for it.
type Header = Lock<Gaps>;

// A block is the caller's again without a word to us.
#[cfg(not(shuttle))]
const _: () = assert!(!core::mem::needs_drop::<Header>());

/// The header that the functions below were given.
///
/// # Safety
/// `user_data` is that of a [`HostMemory::in_block`] whose block is still there.
unsafe fn header<'a>(user_data: *mut c_void) -> &'a Header {
    // SAFETY: `in_block` wrote a header there; nobody has exclusive access to it, and its value is behind a lock.
    unsafe { &*user_data.cast::<Header>() }
}

unsafe extern "C" fn allocate(user_data: *mut c_void, size: u64, alignment: u64) -> *mut c_void {
    let (Some(bytes), Ok(alignment)) = (whole_units(size), usize::try_from(alignment)) else {
        return ptr::null_mut();
    };
    if !alignment.is_power_of_two() {
        return ptr::null_mut();
    }
    // SAFETY: `in_block` made this function host memory together with its header.
    let taken = unsafe { header(user_data) }.lock().take(bytes, alignment);
    taken.map_or(ptr::null_mut(), |memory| memory.as_ptr().cast())
}

unsafe extern "C" fn deallocate(user_data: *mut c_void, memory: *mut c_void, size: u64, alignment: u64) {
    debug_assert!(memory.addr() as u64 % alignment == 0, "memory is given back that was never given out");
    // What was given out had a size and an address.
    if let (Some(bytes), Some(memory)) = (whole_units(size), NonNull::new(memory)) {
        // SAFETY: as in `allocate`, which gave this memory out for an equal size.
        unsafe { header(user_data).lock().give_back(memory.cast(), bytes) };
    }
}

/// The size in whole units, `None` if there is nothing to be had for it: zero, or more than addresses reach.
fn whole_units(size: u64) -> Option<usize> {
    usize::try_from(size).ok().filter(|&size| size != 0)?.checked_next_multiple_of(UNIT)
}

/// What must be added to an address to reach a multiple of `alignment`, which is a power of two.
fn to_multiple(address: usize, alignment: usize) -> usize {
    address.wrapping_neg() & (alignment - 1)
}

/// A gap, written at its own start.
#[derive(Clone, Copy)]
struct Gap {
    bytes: usize,
    /// Where the next gap begins, or `Gaps::end` if there is none.
    next: usize,
}

/// The gaps of a block. Places are counted in bytes from `start`.
///
/// Every pointer into the block is made from `start`, never from one that comes back: what a caller did to its own
/// pointer meanwhile must not matter for what the whole block may be used for.
struct Gaps {
    /// Where the part begins that is given out.
    start: NonNull<u8>,
    /// Bytes of that part. As a place: there is no gap.
    end: usize,
    /// The lowest gap, or `end`.
    first: usize,
    /// Bytes of the block in front of `start`.
    lead: usize,
    /// The highest end of an allocation so far.
    peak: usize,
}

// SAFETY: the memory from `start` on belongs to the gaps as if it were a `Box`.
unsafe impl Send for Gaps {}

impl Gaps {
    /// Every gap and its place, in the order of places.
    fn iter(&self) -> impl Iterator<Item = (usize, Gap)> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            if next == self.end {
                return None;
            }
            let at = next;
            debug_assert!(at < self.end && at % UNIT == 0, "a gap's place was overwritten");
            // SAFETY: `first` and every `next` but `end` name a place in the block at which `write` put a gap, and
            // places are multiples of what a gap needs.
            let gap = unsafe { self.start.byte_add(at).cast::<Gap>().read() };
            debug_assert!(
                gap.bytes != 0 && gap.bytes % UNIT == 0 && gap.bytes <= self.end - at,
                "a gap's size was overwritten: memory was used after it had been given back"
            );
            debug_assert!(
                gap.next == self.end || (gap.next > at + gap.bytes && gap.next < self.end),
                "gaps touch or are out of order"
            );
            next = gap.next;
            Some((at, gap))
        })
    }

    /// Notes down a gap at its place.
    ///
    /// # Safety
    /// All its bytes are inside the block and allocated to nobody; the place is a multiple of the unit.
    unsafe fn write(&mut self, at: usize, gap: Gap) {
        debug_assert!(at % UNIT == 0 && at < self.end && gap.bytes != 0 && gap.bytes <= self.end - at);
        // SAFETY: inside the block, free, and aligned because `start` is a multiple of the unit. A gap's description
        // is no longer than a unit, and a gap no shorter.
        unsafe { self.start.byte_add(at).cast::<Gap>().write(gap) };
    }

    /// Makes `next` the gap that follows `before`, or the first one.
    fn link(&mut self, before: Option<(usize, Gap)>, next: usize) {
        match before {
            // SAFETY: the gap is there already.
            Some((at, gap)) => unsafe { self.write(at, Gap { next, ..gap }) },
            None => self.first = next,
        }
    }

    /// The lowest place for `bytes`, which are whole units, at a multiple of `alignment`, a power of two.
    fn take(&mut self, bytes: usize, alignment: usize) -> Option<NonNull<u8>> {
        debug_assert!(bytes != 0 && bytes % UNIT == 0 && alignment.is_power_of_two());
        let mut before = None;
        let (at, gap, begin) = self.iter().find_map(|(at, gap)| {
            let skipped = to_multiple(self.start.addr().get().wrapping_add(at), alignment);
            if gap.bytes.checked_sub(skipped).is_some_and(|room| room >= bytes) {
                return Some((at, gap, at + skipped));
            }
            before = Some((at, gap));
            None
        })?;
        debug_assert!((begin - at + bytes) as u64 <= rounded(bytes as u64, alignment as u64));
        let (end, gap_end) = (begin + bytes, at + gap.bytes);
        let mut next = gap.next;
        if end < gap_end {
            // SAFETY: the rear of a gap.
            unsafe { self.write(end, Gap { bytes: gap_end - end, next }) };
            next = end;
        }
        if at < begin {
            // What is skipped to align the allocation stays a gap.
            // SAFETY: the front of a gap.
            unsafe { self.write(at, Gap { bytes: begin - at, next }) };
        } else {
            self.link(before, next);
        }
        self.peak = self.peak.max(end);
        // SAFETY: the gap was inside the block.
        Some(unsafe { self.start.byte_add(begin) })
    }

    /// Makes an allocation a gap and joins it with those it touches.
    ///
    /// # Safety
    /// `memory` came from [`Gaps::take`] of `bytes` and has not been given back since.
    unsafe fn give_back(&mut self, memory: NonNull<u8>, bytes: usize) {
        let begin = memory.addr().get().wrapping_sub(self.start.addr().get());
        debug_assert!(begin % UNIT == 0 && begin < self.end, "memory is given back that is not of this block");
        let mut before = None;
        let mut behind = None;
        for (at, gap) in self.iter() {
            if at >= begin {
                behind = Some((at, gap));
                break;
            }
            before = Some((at, gap));
        }
        let limit = behind.map_or(self.end, |(at, _)| at);
        debug_assert!(begin < limit && bytes <= limit - begin, "memory is given back twice");
        debug_assert!(before.is_none_or(|(at, gap)| at + gap.bytes <= begin), "memory is given back twice");
        let joined = match behind {
            Some((at, gap)) if at == begin + bytes => Gap { bytes: bytes + gap.bytes, next: gap.next },
            _ => Gap { bytes, next: limit },
        };
        match before {
            Some((at, gap)) if at + gap.bytes == begin => {
                // SAFETY: a gap, the allocation that ends here, and perhaps another gap, without a break.
                unsafe { self.write(at, Gap { bytes: gap.bytes + joined.bytes, next: joined.next }) };
            }
            _ => {
                // SAFETY: the allocation that ends here, and perhaps the gap behind it.
                unsafe { self.write(begin, joined) };
                self.link(before, begin);
            }
        }
    }
}

#[cfg(test)]
mod tests;
