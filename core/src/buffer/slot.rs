//! What is known of one buffer, and the handles it is named by.
//!
//! A handle packs a generation, the number of the buffer in its class and the class. Every handle that comes back raises
//! the generation, so it never matches again. The generation begins with a tag that no other class of the process has had
//! (among the first 65,536); the bits are divided so that a class outlives its program: 2^58 handles, whatever its
//! limit. A buffer whose generation has gone all the way round is retired.

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

    /// The class that the handle names: the logarithm of its size, or [`UNTRACKED`].
    #[inline(always)]
    pub(super) fn class(self) -> u32 {
        self.to_raw() as u32 & CLASS_MASK
    }
}

const CLASS_BITS: u32 = 6;
const CLASS_MASK: u32 = (1 << CLASS_BITS) - 1;

/// In place of a class: buffers that belong to none. No class has buffers of 2^63 bytes.
pub(super) const UNTRACKED: u32 = CLASS_MASK;

/// How the handles of a class are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    class: u32,
    number_bits: u32,
    /// The first generation of every buffer. Not 0, and no generation is: so no handle is 0 either.
    start: u64,
    /// What the state of a slot is when it has gone around to that generation.
    start_state: u32,
}

impl Names {
    /// Handles of a class with numbers below `numbers`.
    pub(super) fn new(class: u32, numbers: u32, tag: u16) -> Self {
        let number_bits = u32::BITS - numbers.saturating_sub(1).leading_zeros();
        let names = Self { class, number_bits, start: 0, start_state: 0 };
        let start = (u64::from(tag) << (names.generation_bits() - 16)).max(1);
        Self { start, start_state: ((start & LOW_MASK) as u32) << 1, ..names }
    }

    fn generation_bits(&self) -> u32 {
        u64::BITS - CLASS_BITS - self.number_bits
    }

    #[inline(always)]
    pub(super) fn pack(&self, generation: u64, number: u32) -> BufferId {
        debug_assert!(generation != 0 && u64::from(number) >> self.number_bits == 0);
        let id = (generation << self.number_bits | u64::from(number)) << CLASS_BITS | u64::from(self.class);
        match NonZero::new(id) {
            Some(id) => BufferId(id),
            None => BufferId(NonZero::<u64>::MIN),
        }
    }

    #[inline(always)]
    pub(super) fn number(&self, id: BufferId) -> u32 {
        (id.to_raw() >> CLASS_BITS) as u32 & ((1u64 << self.number_bits) - 1) as u32
    }

    #[inline(always)]
    pub(super) fn generation(&self, id: BufferId) -> u64 {
        id.to_raw() >> CLASS_BITS >> self.number_bits
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The generation after this one; `None` if all have been used.
    fn next(&self, generation: u64) -> Option<u64> {
        let mut next = (generation + 1) & (u64::MAX >> (u64::BITS - self.generation_bits()));
        if next == 0 {
            next = 1;
        }
        (next != self.start).then_some(next)
    }

    /// What is wrong with a handle of `generation`, of a buffer that is at `now` and for which it does not count.
    #[cold]
    pub(super) fn refuse(&self, generation: u64, now: u64) -> Error {
        // Distances around the circle, which begins at `start`.
        let mask = u64::MAX >> (u64::BITS - self.generation_bits());
        let age = |generation: u64| generation.wrapping_sub(self.start) & mask;
        if generation != 0 && age(generation) < age(now) { Error::StaleHandle } else { Error::ForeignHandle }
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
/// Everything but `state` and `high` is the owner's; a handle's check looks at these two of anybody's.
#[repr(C)]
pub(super) struct Slot {
    /// The low 31 bits of the generation and, in bit 0, whether a handle of that generation is out.
    state: AtomicU32,
    /// The other bits of the generation.
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

const LOW_BITS: u32 = 31;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;

impl Slot {
    pub(super) fn new(names: &Names, slab: *const Slab, place: u32, number: u32) -> Self {
        let slot = Self {
            state: AtomicU32::new(0),
            high: AtomicU32::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            slab,
            place,
            number,
        };
        slot.set_generation(names.start());
        slot
    }

    /// Moves the slot to another slab. Its owner does that.
    pub(super) fn set_slab(&mut self, slab: *const Slab) {
        self.slab = slab;
    }

    fn set_generation(&self, generation: u64) {
        self.high.store((generation >> LOW_BITS) as u32, Ordering::Relaxed);
        self.state.store(((generation & LOW_MASK) as u32) << 1, Ordering::Relaxed);
    }

    fn generation(&self) -> u64 {
        let low = self.state.load(Ordering::Relaxed) >> 1;
        u64::from(self.high.load(Ordering::Relaxed)) << LOW_BITS | u64::from(low)
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
    pub(super) fn issue(&self, names: &Names) -> BufferId {
        let state = self.state.load(Ordering::Relaxed);
        debug_assert!(state & 1 == 0, "a buffer was handed out twice");
        // Whoever brings the handle back got it from the caller, who has to take care of the order.
        self.state.store(state | 1, Ordering::Relaxed);
        let generation = u64::from(self.high.load(Ordering::Relaxed)) << LOW_BITS | u64::from(state >> 1);
        names.pack(generation, self.number)
    }

    /// Takes the buffer over from whoever holds the handle. Of several threads with one handle one succeeds.
    #[inline(always)]
    pub(super) fn claim(&self, names: &Names, id: BufferId) -> Result<Claimed, Error> {
        let generation = names.generation(id);
        // The low bits, shifted past bit 0.
        let free = (generation as u32).wrapping_shl(1);
        let after = free.wrapping_add(2);
        // The high bits change only by who has claimed the last low generation; 2^31 handles would have to come and go
        // between these two looks for another one to match.
        if broken("buffer_claim") && self.state.load(Ordering::Relaxed) == free | 1 {
            self.state.store(after, Ordering::Relaxed);
            return Ok(Claimed::Yes);
        }
        let same = u64::from(self.high.load(Ordering::Relaxed)) == generation >> LOW_BITS
            && (self.state.compare_exchange(free | 1, after, Ordering::AcqRel, Ordering::Relaxed)).is_ok();
        if !same {
            return Err(names.refuse(generation, self.generation()));
        }
        if after == 0 || after == names.start_state {
            return Ok(self.turn(names, generation));
        }
        Ok(Claimed::Yes)
    }

    /// What an owner does whose generation may be the last one with these high bits, or the last of all.
    #[cold]
    fn turn(&self, names: &Names, generation: u64) -> Claimed {
        let next = names.next(generation);
        self.set_generation(next.unwrap_or(names.start()));
        if next.is_some() { Claimed::Yes } else { Claimed::Worn }
    }

    /// Whether a handle names the buffer as it is now.
    pub(super) fn is_out(&self, names: &Names, id: BufferId) -> Result<(), Error> {
        let generation = names.generation(id);
        if self.generation() == generation && self.state.load(Ordering::Relaxed) & 1 == 1 {
            return Ok(());
        }
        Err(names.refuse(generation, self.generation()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn slot(names: &Names) -> Slot {
        Slot::new(names, ptr::null(), 0, 5)
    }

    #[test]
    fn a_handle_gives_back_what_was_packed() {
        for numbers in [1, 2, 3, 64, 65, 4096, 1 << 24] {
            for class in [0, 10, 62, UNTRACKED] {
                let names = Names::new(class, numbers, 0xABCD);
                for number in [0, numbers / 2, numbers - 1] {
                    for generation in [names.start(), 1, u64::MAX >> (64 - names.generation_bits())] {
                        let id = names.pack(generation, number);
                        assert_eq!((id.class(), names.number(id), names.generation(id)), (class, number, generation));
                        assert_eq!(BufferId::from_raw(id.to_raw()), Some(id));
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
        let first = slot.issue(&names);
        assert!(slot.claim(&names, first).is_ok());
        assert_eq!(slot.claim(&names, first).err(), Some(Error::StaleHandle));
        let second = slot.issue(&names);
        assert_ne!(first, second);
        assert_eq!(slot.claim(&names, first).err(), Some(Error::StaleHandle));
        assert!(slot.claim(&names, second).is_ok());
        // The one that would come next has never been given out.
        let third = names.pack(names.generation(second) + 1, 5);
        assert_eq!(slot.claim(&names, third).err(), Some(Error::ForeignHandle));
        assert_eq!(slot.claim(&names, Names::new(3, 64, 8).pack(8 << 36, 5)).err(), Some(Error::ForeignHandle));
    }

    #[test]
    fn generations_carry_into_their_high_bits_and_around_and_end_where_they_began() {
        let names = Names::new(3, 64, u16::MAX);
        let last = u64::MAX >> (64 - names.generation_bits());
        for (from, to) in [(LOW_MASK, LOW_MASK + 1), (5 << LOW_BITS | LOW_MASK, 6 << LOW_BITS), (last, 1)] {
            let slot = slot(&names);
            slot.set_generation(from);
            let id = slot.issue(&names);
            assert!(matches!(slot.claim(&names, id), Ok(Claimed::Yes)));
            assert_eq!(slot.generation(), to);
            assert_eq!(slot.claim(&names, id).err(), Some(Error::StaleHandle));
        }
        let slot = slot(&names);
        slot.set_generation(names.start() - 1);
        let id = slot.issue(&names);
        assert!(matches!(slot.claim(&names, id), Ok(Claimed::Worn)));
    }

    #[test]
    fn a_slot_is_half_a_cache_line() {
        assert_eq!(size_of::<Slot>(), if cfg!(target_pointer_width = "64") { 32 } else { 24 });
    }
}
