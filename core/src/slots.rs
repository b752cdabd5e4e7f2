//! Generation-tagged handles that never come back.
//!
//! A [`SliceId`] packs a pool's 16-bit tag, a 24-bit generation and a 24-bit slot. Freeing a slice raises its slot's
//! generation, so an old handle never matches again; a slot whose generation would wrap is retired instead.
//! Tags are consecutive numbers from one counter, the only global of the crate: a handle of another pool is told
//! apart with certainty among the first 65,536 pools of a process, and with high probability after.
#![forbid(unsafe_code)]

use crate::slicer::nodes::{number_of, place_of};
use crate::sync::{AtomicU32, Ordering};
use core::num::NonZero;

/// Names a live slice. Copyable, comparable, never reused; only its owner's `free` gives it meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct SliceId(NonZero<u64>);

const SLOT_BITS: u32 = 24;
const GENERATION_BITS: u32 = 24;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

/// The generation of a slot that is never handed out again.
pub(crate) const GENERATION_RETIRED: u32 = (1 << GENERATION_BITS) - 1;

impl SliceId {
    /// The handle of a node's place. Slot 0 is never handed out, which keeps the number from being zero.
    #[inline(always)]
    pub(crate) fn pack(tag: u16, generation: u32, place: u32) -> Self {
        let slot = number_of(place);
        debug_assert!(slot != 0 && slot <= SLOT_MASK && generation < GENERATION_RETIRED);
        let id = (u64::from(tag) << 48) | (u64::from(generation) << SLOT_BITS) | u64::from(slot);
        match NonZero::new(id) {
            Some(id) => Self(id),
            None => Self(NonZero::<u64>::MIN),
        }
    }

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

    #[inline(always)]
    pub(crate) fn tag(self) -> u16 {
        (self.0.get() >> 48) as u16
    }

    #[inline(always)]
    pub(crate) fn generation(self) -> u32 {
        (self.0.get() >> SLOT_BITS) as u32 & GENERATION_RETIRED
    }

    /// The place of the slot's node.
    #[inline(always)]
    pub(crate) fn slot(self) -> u32 {
        place_of(self.0.get() as u32 & SLOT_MASK)
    }
}

/// The first of `count` consecutive tags, never handed out before (until 65,536 have been).
pub(crate) fn new_tags(count: u16) -> u16 {
    // Only uniqueness matters, so no ordering with other memory is needed. Starting above 0 keeps small numbers from
    // being anybody's handles.
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(u32::from(count), Ordering::Relaxed) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_gives_back_what_was_packed() {
        let id = SliceId::pack(0xABCD, 0x12_3456, place_of(0xFF_FFFF));
        assert_eq!((id.tag(), id.generation(), id.slot()), (0xABCD, 0x12_3456, place_of(0xFF_FFFF)));
        assert_eq!(id.to_raw(), 0xABCD_1234_56FF_FFFF);
        assert_eq!(SliceId::from_raw(id.to_raw()), Some(id));
        assert_eq!(SliceId::from_raw(0), None);
    }

    #[test]
    fn tags_are_consecutive_and_distinct() {
        let (a, b) = (new_tags(3), new_tags(1));
        assert!(b.wrapping_sub(a) >= 3);
    }
}
