//! What is known of one buffer, and the handles it is named by.
//!
//! A handle names the class, the buffer's number in it and a generation. Every handle that comes back raises the
//! generation, so it never matches again. Generations begin with a tag that no other class of the process has had (among the
//! first 65,536), and are as long as the class's numbers leave room for: a class can give out 2^57 handles, whatever its
//! limit. A buffer whose generation has gone all the way round is retired.
//!
//! ```text
//!  63      58                               32                                0
//! | class   | number | generation, high bits | generation, low bits   | is out |
//! ```
//!
//! A slot has both halves ready. In the lower one bit 0 says whether a handle is out, so handing one out and taking it back
//! both add 1 to it.

use super::sync::{AtomicPtr, AtomicU32, Ordering};
use crate::canary::broken;
use crate::error::Error;
use crate::slice::Slice;
use core::num::NonZero;
use core::ptr;

/// Names a buffer that is out. Copyable, comparable, never reused; only its pool's `release` gives it meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct BufferId(NonZero<u64>);

impl BufferId {
    /// The handle as the number that C sees; 0 stands for none there.
    #[inline(always)]
    pub const fn to_raw(self) -> u64 {
        self.0.get()
    }

    /// The handle of a number, `None` for 0. Any number may be tried: a wrong one is refused where it is used.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Option<Self> {
        match NonZero::new(raw) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// Index of the class that the handle names, or [`UNTRACKED`].
    #[inline(always)]
    pub(super) fn class(self) -> u32 {
        self.high() >> CLASS_SHIFT
    }

    #[inline(always)]
    fn high(self) -> u32 {
        (self.to_raw() >> 32) as u32
    }

    #[inline(always)]
    fn low(self) -> u32 {
        self.to_raw() as u32
    }
}

/// Where the class is in the upper half of a handle.
const CLASS_SHIFT: u32 = 26;

/// In place of a class's index in handles: buffers that belong to none. There are 63 sizes at most.
pub(super) const UNTRACKED: u32 = 63;

/// How the handles of a class are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    class: u32,
    number_mask: u32,
    /// Bits of the generation in the upper half.
    high_bits: u32,
    /// The first generation of every buffer.
    start: u64,
    /// The lower half of a slot that has gone around to that generation.
    start_low: u32,
}

/// Bits of the generation in the lower half.
const LOW_BITS: u32 = 31;

impl Names {
    /// Handles of a class with numbers below `numbers`, at most 2^24.
    pub(super) fn new(class: u32, numbers: u32, tag: u16) -> Self {
        let number_bits = u32::BITS - numbers.saturating_sub(1).leading_zeros();
        let high_bits = CLASS_SHIFT - number_bits;
        let start = u64::from(tag) << (LOW_BITS + high_bits - u16::BITS);
        let number_mask = (1 << number_bits) - 1;
        Self { class, number_mask, high_bits, start, start_low: (start as u32) << 1 }
    }

    /// All bits of a generation.
    fn mask(&self) -> u64 {
        (1 << (LOW_BITS + self.high_bits)) - 1
    }

    #[inline(always)]
    pub(super) fn number(&self, id: BufferId) -> u32 {
        (id.high() >> self.high_bits) & self.number_mask
    }

    /// Both halves of a slot that is at a generation and has no handle out.
    fn halves(&self, number: u32, generation: u64) -> (u32, u32) {
        let high = (generation >> LOW_BITS) as u32;
        (self.class << CLASS_SHIFT | number << self.high_bits | high, (generation as u32) << 1)
    }

    fn generation(&self, high: u32, low: u32) -> u64 {
        (u64::from(high) << LOW_BITS | u64::from(low >> 1)) & self.mask()
    }

    /// The generation after this one; `None` if all have been used.
    fn next(&self, generation: u64) -> Option<u64> {
        let next = (generation + 1) & self.mask();
        (next != self.start).then_some(next)
    }

    /// What is wrong with a handle that a slot with these halves does not have out.
    #[cold]
    fn refuse(&self, id: BufferId, high: u32, low: u32) -> Error {
        // Distances around the circle, which begins at `start`.
        let age = |high, low| self.generation(high, low).wrapping_sub(self.start) & self.mask();
        let was = id.low() & 1 == 1 && id.high() >> self.high_bits == high >> self.high_bits;
        if was && age(id.high(), id.low()) < age(high, low) { Error::StaleHandle } else { Error::ForeignHandle }
    }
}

/// In place of a class's index: none.
pub(super) const NO_CLASS: u32 = u8::MAX as u32;

/// A piece of memory that buffers are carved from.
pub(super) struct Slab {
    /// Where it is.
    pub(super) memory: Slice,
    /// Bytes of each buffer: of a class, two to the power of `shift`.
    pub(super) capacity: usize,
    pub(super) shift: u32,
    /// Index of the class, or [`NO_CLASS`].
    pub(super) class: u32,
    /// Buffers that it has room for.
    pub(super) count: u32,
    /// Buffers carved. Changed under the lock for carving, as is the next one.
    pub(super) carved: AtomicU32,
    /// The next slab with room.
    pub(super) next: AtomicU32,
}

/// What is known of one buffer: half a cache line.
///
/// A slot has one owner at a time: the lock of its stripe while it is free, a cache, or whoever holds the buffer.
/// Everything but the two halves of the handle is the owner's; a handle's check looks at these of anybody's.
#[repr(C)]
pub(super) struct Slot {
    /// The lower half of the next handle, without bit 0, or of the one that is out.
    low: AtomicU32,
    /// The upper half.
    high: AtomicU32,
    /// The slot below it in its cache. The owner's.
    pub(super) next: AtomicPtr<Slot>,
    slab: *const Slab,
    /// Buffers that lie before it in the slab.
    place: u32,
    /// Number in the class.
    pub(super) number: u32,
}

// SAFETY: the slab lives as long as the slot, and is never changed but for atomics.
unsafe impl Send for Slot {}
// SAFETY: as above; the other fields are atomics or constant.
unsafe impl Sync for Slot {}

/// What became of a handle that was good.
pub(super) enum Claimed {
    /// The buffer is the claimer's.
    Yes,
    /// So it is, but it has no generation left: it must not be handed out again.
    Worn,
}

impl Slot {
    pub(super) fn new(names: &Names, slab: *const Slab, place: u32, number: u32) -> Self {
        let (high, low) = names.halves(number, names.start);
        let next = AtomicPtr::new(ptr::null_mut());
        Self { low: AtomicU32::new(low), high: AtomicU32::new(high), next, slab, place, number }
    }

    /// Moves the slot to another slab. Its owner does that.
    pub(super) fn set_slab(&mut self, slab: *const Slab) {
        self.slab = slab;
    }

    fn set_generation(&self, names: &Names, generation: u64) {
        let (high, low) = names.halves(self.number, generation);
        self.high.store(high, Ordering::Relaxed);
        self.low.store(low, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn slab(&self) -> &Slab {
        // SAFETY: slabs live as long as slots.
        unsafe { &*self.slab }
    }

    /// Bytes between the start of the slab and the buffer.
    #[inline(always)]
    pub(super) fn offset(&self) -> u64 {
        u64::from(self.place) << self.slab().shift
    }

    /// Where the CPU sees the buffer; NULL if it does not.
    #[inline(always)]
    pub(super) fn mapped(&self) -> *mut u8 {
        let slab = self.slab();
        let mapped = slab.memory.mapped;
        if mapped.is_null() { mapped } else { mapped.wrapping_add((self.place as usize) << slab.shift) }
    }

    /// A handle for the buffer. The caller owns it and gives that up with this.
    #[inline(always)]
    pub(super) fn issue(&self) -> BufferId {
        let low = self.low.load(Ordering::Relaxed);
        debug_assert!(low & 1 == 0, "a buffer was handed out twice");
        // Whoever brings the handle back got it from the caller, who has to take care of the order.
        self.low.store(low | 1, Ordering::Relaxed);
        let id = u64::from(self.high.load(Ordering::Relaxed)) << 32 | u64::from(low | 1);
        // SAFETY: bit 0 is set.
        BufferId(unsafe { NonZero::new_unchecked(id) })
    }

    /// Takes the buffer over from whoever holds the handle. Of several threads with one handle one succeeds.
    #[inline(always)]
    pub(super) fn claim(&self, names: &Names, id: BufferId) -> Result<Claimed, Error> {
        let (high, low) = (id.high(), id.low());
        let free = low.wrapping_add(1);
        if broken("buffer_claim") && self.low.load(Ordering::Relaxed) == low {
            self.low.store(free, Ordering::Relaxed);
            return Ok(Claimed::Yes);
        }
        // The high bits change only by who has claimed the last low generation; 2^31 handles would have to come and go
        // between these two looks for another one to match.
        let same = low & 1 == 1
            && self.high.load(Ordering::Relaxed) == high
            && (self.low.compare_exchange(low, free, Ordering::AcqRel, Ordering::Relaxed)).is_ok();
        if !same {
            return Err(self.refuse(names, id));
        }
        if free == 0 || free == names.start_low {
            return Ok(self.turn(names, id));
        }
        Ok(Claimed::Yes)
    }

    /// What an owner does whose generation may be the last one with these high bits, or the last of all.
    #[cold]
    fn turn(&self, names: &Names, id: BufferId) -> Claimed {
        let next = names.next(names.generation(id.high(), id.low()));
        self.set_generation(names, next.unwrap_or(names.start));
        if next.is_some() { Claimed::Yes } else { Claimed::Worn }
    }

    #[cold]
    fn refuse(&self, names: &Names, id: BufferId) -> Error {
        names.refuse(id, self.high.load(Ordering::Relaxed), self.low.load(Ordering::Relaxed))
    }

    /// Whether a handle names the buffer as it is now.
    pub(super) fn is_out(&self, names: &Names, id: BufferId) -> Result<(), Error> {
        let is_out = id.low() & 1 == 1
            && self.high.load(Ordering::Relaxed) == id.high()
            && self.low.load(Ordering::Relaxed) == id.low();
        if is_out { Ok(()) } else { Err(self.refuse(names, id)) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::BufferPool;
    use super::super::config::BufferPoolConfig;
    use super::*;
    use core::num::{NonZeroU32, NonZeroUsize};

    fn slot(names: &Names) -> Slot {
        Slot::new(names, ptr::null(), 0, 5)
    }

    #[test]
    fn a_handle_names_its_class_and_number_whatever_the_generation() {
        for numbers in [1, 2, 3, 64, 65, 4096, 1 << 24] {
            for class in [0, 10, 62, UNTRACKED] {
                let names = Names::new(class, numbers, 0xABCD);
                for number in [0, numbers / 2, numbers - 1] {
                    for generation in [names.start, 0, 1, names.mask()] {
                        let slot = Slot::new(&names, ptr::null(), 0, number);
                        slot.set_generation(&names, generation);
                        let id = slot.issue();
                        assert_eq!((id.class(), names.number(id)), (class, number));
                        assert_eq!(names.generation(id.high(), id.low()), generation);
                        assert_eq!(BufferId::from_raw(id.to_raw()), Some(id));
                        assert_eq!(slot.is_out(&names, id), Ok(()));
                    }
                }
            }
        }
        assert_eq!(BufferId::from_raw(0), None);
    }

    #[test]
    fn a_handle_counts_once() {
        let names = Names::new(3, 64, 7);
        let slot = slot(&names);
        let first = slot.issue();
        assert!(slot.claim(&names, first).is_ok());
        assert_eq!(slot.claim(&names, first).err(), Some(Error::StaleHandle));
        assert_eq!(slot.is_out(&names, first), Err(Error::StaleHandle));
        // The one that would come next has never been given out, nor has any that says it is not out.
        let next = BufferId::from_raw(first.to_raw() + 2).unwrap();
        assert_eq!(slot.claim(&names, next).err(), Some(Error::ForeignHandle));
        let free = BufferId::from_raw(first.to_raw() + 1).unwrap();
        assert_eq!(slot.claim(&names, free).err(), Some(Error::ForeignHandle));
        assert_eq!(slot.issue(), next);
        assert_eq!(slot.claim(&names, first).err(), Some(Error::StaleHandle));
        // Neither was the first one ever without the mark of those that are out, nor of another class.
        for never in [first.to_raw() - 1, first.to_raw() ^ 1 << 58] {
            let never = BufferId::from_raw(never).unwrap();
            assert_eq!(slot.claim(&names, never).err(), Some(Error::ForeignHandle));
            assert_eq!(slot.is_out(&names, never), Err(Error::ForeignHandle));
        }
        let foreign = Slot::new(&Names::new(3, 64, 8), ptr::null(), 0, 5).issue();
        assert_eq!(slot.claim(&names, foreign).err(), Some(Error::ForeignHandle));
        assert!(slot.claim(&names, next).is_ok());
    }

    #[test]
    fn generations_carry_into_their_high_bits_and_around_and_end_where_they_began() {
        for (numbers, tag) in [(64, u16::MAX), (1 << 24, 0xABCD), (1, 1)] {
            let names = Names::new(3, numbers, tag);
            let low = (1 << LOW_BITS) - 1;
            for (from, to) in [(low, low + 1), (1 << LOW_BITS | low, 2 << LOW_BITS), (names.mask(), 0)] {
                let slot = Slot::new(&names, ptr::null(), 0, 0);
                slot.set_generation(&names, from);
                let id = slot.issue();
                assert!(matches!(slot.claim(&names, id), Ok(Claimed::Yes)), "{numbers} {from:#x}");
                let now = slot.issue();
                assert_eq!(names.generation(now.high(), now.low()), to & names.mask());
                assert_eq!((now.class(), names.number(now)), (3, 0));
            }
            let slot = Slot::new(&names, ptr::null(), 0, 0);
            slot.set_generation(&names, names.start.wrapping_sub(1) & names.mask());
            let id = slot.issue();
            assert!(matches!(slot.claim(&names, id), Ok(Claimed::Worn)));
        }
    }

    /// A pool of one buffer, which is out with its last handle.
    fn worn_out() -> (BufferPool, BufferId) {
        let size = NonZeroUsize::new(64).unwrap();
        let config = BufferPoolConfig::default().with_size_classes([(size, NonZeroU32::MIN)]);
        let pool = BufferPool::try_new(config).unwrap();
        let id = pool.take(64, false, false).unwrap().id.unwrap();
        let class = &pool.inner().classes.as_slice()[0];
        let slot = class.slot(id).unwrap();
        pool.release(id).unwrap();
        slot.set_generation(&class.names, class.names.start.wrapping_sub(1) & class.names.mask());
        let id = pool.take(64, false, false).unwrap().id.unwrap();
        (pool, id)
    }

    #[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
    #[test]
    fn a_buffer_that_comes_back_with_its_last_handle_is_put_away_for_good() {
        for adopts in [false, true] {
            let (pool, id) = worn_out();
            if adopts {
                assert_eq!(pool.adopt(id).err(), Some(Error::TooManySlices { limit: 1 }));
            } else {
                assert_eq!(pool.release(id), Ok(()));
            }
            let figures = pool.class_statistics(0).unwrap();
            assert_eq!((figures.created, figures.retired, figures.free, figures.in_use), (1, 1, 0, 0));
            assert!(matches!(pool.try_alloc(64), Err(Error::Exhausted { .. })));
            assert_eq!((pool.release(id), pool.statistics().reserved), (Err(Error::ForeignHandle), 64));
            assert_eq!(pool.check(), Ok(()));
            // It is not waited for.
            pool.close();
            assert_eq!(pool.statistics().reserved, 0);
        }
    }

    #[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
    #[test]
    fn the_memory_of_a_closed_pool_goes_back_also_when_its_last_buffer_is_put_away_for_good() {
        for adopts in [false, true] {
            let (pool, id) = worn_out();
            pool.close();
            assert_eq!(pool.statistics().reserved, 64);
            let outcome = if adopts { pool.adopt(id).map(drop) } else { pool.release(id) };
            assert_eq!(outcome.is_err(), adopts);
            assert_eq!((pool.statistics().reserved, pool.check()), (0, Ok(())));
        }
    }

    #[test]
    fn a_slot_is_half_a_cache_line() {
        assert_eq!(size_of::<Slot>(), if cfg!(target_pointer_width = "64") { 32 } else { 24 });
    }
}
