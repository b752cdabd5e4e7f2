//! A stripe of a class's freelist: which of its buffers are free, in bitmaps under a lock of their own.
//!
//! A buffer belongs to the stripe it was created in: buffer `position * stripes + stripe` of the class. The bits of a
//! stripe lie behind its slots, chunk by chunk: leaves of 64 buffers each and, in chunks with more than one leaf, a
//! bit for each leaf that has any, and a bit for each word of those. So the next free buffer is found by looking at one
//! word of each level, and eight of the topmost in the largest chunk, however many there are.
//!
//! Invariants, checked by [`Stripe::check`]:
//! - a bit is set exactly where its slot is free; a summary bit exactly where what it stands for is not 0;
//! - `free + retired + promised <= created + promised <= limit`, and there is memory for all of these;
//! - the hint says what the lock guards: see [`FREE`] and [`ROOM`].

use super::slot::Slot;
use super::sync::{AtomicU32, Ordering};
use super::table::{Table, chunk_len, first_of, locate};
use crate::canary::broken;
use crate::error::Error;
use crate::metadata::HostMemory;
use crate::sync::{Lock, LockKind};
use core::ptr::NonNull;

/// In a stripe's hint: a buffer is free.
pub(super) const FREE: u32 = 1;
/// A buffer can be created.
pub(super) const ROOM: u32 = 2;

/// Chunks that a stripe can have: those of 2^21 buffers, the most there are.
const CHUNKS: usize = 18;

/// The first chunk with more than one leaf.
const LEVELLED: u32 = 3;

const fn leaves(chunk: usize) -> usize {
    let leaves = chunk_len(chunk) as usize / 64;
    if leaves == 0 { 1 } else { leaves }
}

/// Words of the level above so many.
const fn above(words: usize) -> usize {
    if words == 1 { 0 } else { words.div_ceil(64) }
}

/// Bytes of all bits of a chunk.
fn bits_of(chunk: usize) -> usize {
    let leaves = leaves(chunk);
    let summary = above(leaves);
    size_of::<u64>() * (leaves + summary + if summary == 0 { 0 } else { summary.div_ceil(64) })
}

/// Buffers of one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) chunk: u32,
    /// Its position in the chunk.
    pub(super) word: u32,
}

impl Leaf {
    /// Leaf and bit of a position.
    #[inline(always)]
    pub(super) fn of(position: u32) -> (Self, u64) {
        let (chunk, place) = locate(position);
        (Self { chunk: chunk as u32, word: place / 64 }, 1 << (place % 64))
    }

    /// Position of the leaf's first buffer.
    #[inline(always)]
    fn position(self) -> u32 {
        first_of(self.chunk as usize) + self.word * 64
    }
}

struct Free {
    /// Chunks in which a buffer is free.
    chunks: u32,
    /// The bits of each chunk that is there.
    words: [Option<NonNull<u64>>; CHUNKS],
    free: u32,
    /// Buffers that calls in flight are about to create.
    promised: u32,
    /// Buffers that have worn out.
    retired: u32,
    limit: u32,
    /// [`ROOM`] if another one can be created.
    room: u32,
    /// Nothing is taken or created any more, and each buffer that is out holds a reference.
    closed: bool,
}

// SAFETY: the words belong to the stripe and are touched under its lock only.
unsafe impl Send for Free {}

impl Free {
    /// # Safety
    /// The chunk is there, and has such a word.
    #[inline(always)]
    unsafe fn word(&self, chunk: u32, index: usize) -> NonNull<u64> {
        debug_assert!(self.words[chunk as usize].is_some() && index * size_of::<u64>() < bits_of(chunk as usize));
        // SAFETY: the caller's promise.
        unsafe { self.words.get_unchecked(chunk as usize).unwrap_unchecked().add(index) }
    }

    /// Marks `count` buffers of a leaf as free.
    #[inline(always)]
    fn set(&mut self, leaf: Leaf, mask: u64, count: u32) {
        debug_assert!(mask.count_ones() == count);
        // SAFETY: a slot of the leaf exists, so its chunk is there; the lock is held.
        let word = unsafe { self.word(leaf.chunk, leaf.word as usize).as_mut() };
        debug_assert!(*word & mask == 0, "a buffer was put back twice");
        let before = *word;
        *word |= mask;
        self.free += count;
        if before == 0 {
            self.chunks |= 1 << leaf.chunk;
            if leaf.chunk >= LEVELLED {
                self.set_summary(leaf);
            }
        }
    }

    /// Marks a leaf of a chunk with several as one that has free buffers.
    #[inline(never)]
    fn set_summary(&mut self, leaf: Leaf) {
        let (leaves, index) = (leaves(leaf.chunk as usize), leaf.word as usize);
        debug_assert!(index < leaves);
        // SAFETY: words of a chunk that is there; the lock is held.
        unsafe {
            let summary = self.word(leaf.chunk, leaves + index / 64).as_mut();
            let before = *summary;
            *summary |= 1 << (index % 64);
            if before == 0 {
                *self.word(leaf.chunk, leaves + above(leaves) + index / 4096).as_mut() |= 1 << (index / 64 % 64);
            }
        }
    }

    /// The first leaf that has free buffers.
    #[inline(always)]
    fn first(&self) -> Option<Leaf> {
        if self.chunks == 0 {
            return None;
        }
        let chunk = self.chunks.trailing_zeros();
        Some(Leaf { chunk, word: if chunk < LEVELLED { 0 } else { self.first_word(chunk) } })
    }

    /// The first leaf that has free buffers, of a chunk with several.
    #[inline(never)]
    fn first_word(&self, chunk: u32) -> u32 {
        let leaves = leaves(chunk as usize);
        // SAFETY: a chunk in which something is free is there, and every index is one of its words; the lock is held.
        let word = |index: usize| unsafe { *self.word(chunk, index).as_ref() };
        let tops = leaves + above(leaves);
        let mut top = 0;
        while word(tops + top) == 0 {
            top += 1;
        }
        let middle = top * 64 + word(tops + top).trailing_zeros() as usize;
        middle as u32 * 64 + word(leaves + middle).trailing_zeros()
    }

    /// Takes the lowest `most` buffers of a leaf, or all if there are no more, and says which and how many.
    #[inline(always)]
    fn take_from(&mut self, leaf: Leaf, most: u32) -> (u64, u32) {
        // SAFETY: as above.
        let word = unsafe { self.word(leaf.chunk, leaf.word as usize).as_mut() };
        let (mut rest, mut count) = (*word, 0);
        while rest != 0 && count < most {
            rest &= rest - 1;
            count += 1;
        }
        let mask = *word ^ rest;
        *word = rest;
        self.free -= count;
        if rest == 0 {
            if leaf.chunk < LEVELLED {
                self.chunks &= !(1 << leaf.chunk);
            } else {
                self.clear_summary(leaf);
            }
        }
        (mask, count)
    }

    /// Marks a leaf of a chunk with several as one that has no free buffers.
    #[inline(never)]
    fn clear_summary(&mut self, leaf: Leaf) {
        let (leaves, index) = (leaves(leaf.chunk as usize), leaf.word as usize);
        let tops = leaves + above(leaves);
        // SAFETY: words of a chunk that is there; the lock is held.
        unsafe {
            let summary = self.word(leaf.chunk, leaves + index / 64).as_mut();
            *summary &= !(1 << (index % 64));
            if *summary != 0 {
                return;
            }
            *self.word(leaf.chunk, tops + index / 4096).as_mut() &= !(1 << (index / 64 % 64));
            let last = above(leaves).div_ceil(64);
            if (0..last).all(|top| *self.word(leaf.chunk, tops + top).as_ref() == 0) {
                self.chunks &= !(1 << leaf.chunk);
            }
        }
    }
}

/// What a stripe, or a class, counts.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) created: u32,
    pub(super) free: u32,
    pub(super) retired: u32,
}

impl Counts {
    /// Buffers in caches or in users' hands.
    pub(super) fn out(self) -> u32 {
        self.created.saturating_sub(self.free + self.retired)
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            created: self.created + other.created,
            free: self.free + other.free,
            retired: self.retired + other.retired,
        }
    }
}

pub(super) struct Stripe {
    free: Lock<Free>,
    slots: Table<Slot>,
}

/// What a stripe says of a request for permission to create a buffer.
pub(super) enum Permit {
    Granted,
    /// As many as it may have are there or about to be.
    Full,
    Closed,
}

impl Stripe {
    pub(super) fn new(limit: u32, lock: LockKind) -> Self {
        let (words, room) = ([None; CHUNKS], ROOM);
        let free = Free { chunks: 0, words, free: 0, promised: 0, retired: 0, limit, room, closed: false };
        Self { free: Lock::new(lock, free), slots: Table::new(limit, bits_of) }
    }

    /// The slot of a position that may be anything.
    #[inline(always)]
    pub(super) fn get(&self, position: u32) -> Option<&Slot> {
        self.slots.get(position)
    }

    /// The slots of a leaf that are in `mask`, lowest first.
    ///
    /// # Safety
    /// They exist: the mask came from [`Stripe::take`].
    #[inline(always)]
    pub(super) unsafe fn slots_of(&self, leaf: Leaf, mut mask: u64) -> impl Iterator<Item = &Slot> {
        let first = leaf.position();
        core::iter::from_fn(move || {
            let bit = (mask != 0).then(|| mask.trailing_zeros())?;
            mask &= mask - 1;
            // SAFETY: passed on from the caller.
            Some(unsafe { self.slots.get_unchecked(first + bit) })
        })
    }

    /// Whether another buffer can be created, as a hint.
    fn room(&self, free: &Free) -> u32 {
        let room = !free.closed && self.slots.len() + free.promised < free.limit;
        u32::from(room) * ROOM
    }

    /// Sets the hint after a change of what can be created; the lock is held. Only what is under the lock counts: who reads
    /// a hint that is late looks elsewhere first.
    fn tell(&self, free: &mut Free, hint: &AtomicU32) {
        free.room = self.room(free);
        let any = free.free != 0 && !free.closed;
        hint.store(free.room | (u32::from(any) * FREE), Ordering::Relaxed);
    }

    /// Takes up to `most` free buffers, all of one leaf, and says which and how many. The caller owns them then.
    #[inline(always)]
    pub(super) fn take(&self, most: u32, hint: &AtomicU32) -> Option<(Leaf, u64, u32)> {
        let mut free = self.free.lock_hot();
        if free.closed {
            return None;
        }
        let leaf = free.first()?;
        let (mask, count) = free.take_from(leaf, most);
        if free.free == 0 {
            hint.store(free.room, Ordering::Relaxed);
        }
        Some((leaf, mask, count))
    }

    /// Takes one free buffer.
    #[inline(always)]
    pub(super) fn take_one(&self, hint: &AtomicU32) -> Option<&Slot> {
        let (leaf, mask, _) = self.take(1, hint)?;
        // SAFETY: just taken.
        Some(unsafe { self.slots.get_unchecked(leaf.position() + mask.trailing_zeros()) })
    }

    /// Puts back buffers of one leaf, which the caller owns. Whether the stripe is closed: if so, the caller gives up the
    /// references that they held, and otherwise must not touch the pool again because of them.
    #[inline(always)]
    pub(super) fn put(&self, leaf: Leaf, mask: u64, count: u32, hint: &AtomicU32) -> bool {
        let mut free = self.free.lock_hot();
        if broken("buffer_lost") && count > 1 {
            return free.closed;
        }
        free.set(leaf, mask, count);
        if free.free == count && !free.closed {
            hint.store(free.room | FREE, Ordering::Relaxed);
        }
        free.closed
    }

    /// Puts a buffer away for good that the caller owns. As [`Stripe::put`].
    #[cold]
    pub(super) fn retire(&self) -> bool {
        let mut free = self.free.lock();
        free.retired += 1;
        free.closed
    }

    /// Permission to create one buffer, with the memory for its books. To be followed by [`Stripe::create`] or
    /// [`Stripe::give_up`].
    #[cold]
    pub(super) fn reserve(&self, host: HostMemory, hint: &AtomicU32) -> Result<Permit, Error> {
        loop {
            let mut free = self.free.lock();
            if free.closed {
                return Ok(Permit::Closed);
            }
            let next = self.slots.len() + free.promised;
            if next >= free.limit {
                return Ok(Permit::Full);
            }
            let Some(chunk) = self.slots.missing(next) else {
                free.promised += 1;
                self.tell(&mut free, hint);
                return Ok(Permit::Granted);
            };
            drop(free);
            let chunk = self.slots.allocate(chunk, host)?;
            let mut free = self.free.lock();
            let late = match self.slots.install(chunk) {
                Ok((chunk, bits)) => {
                    free.words[chunk] = Some(bits.cast());
                    None
                }
                Err(chunk) => Some(chunk),
            };
            drop(free);
            drop(late);
        }
    }

    /// Creates a buffer, which the caller owns. `make` is told its position.
    #[cold]
    pub(super) fn create(&self, hint: &AtomicU32, make: impl FnOnce(u32) -> Slot) -> NonNull<Slot> {
        let mut free = self.free.lock();
        free.promised -= 1;
        // SAFETY: the lock is held, and `reserve` has seen to the chunk.
        let slot = unsafe { self.slots.push(make(self.slots.len())) };
        self.tell(&mut free, hint);
        slot
    }

    /// Gives up a permission. As [`Stripe::put`].
    #[cold]
    pub(super) fn give_up(&self, hint: &AtomicU32) -> bool {
        let mut free = self.free.lock();
        free.promised -= 1;
        self.tell(&mut free, hint);
        free.closed
    }

    /// Closes the stripe. `count` is told, under the lock, how many buffers are out or about to be created.
    #[cold]
    pub(super) fn close(&self, hint: &AtomicU32, count: impl FnOnce(u32)) {
        let mut free = self.free.lock();
        free.closed = true;
        let outstanding = self.outstanding(&free);
        self.tell(&mut free, hint);
        if broken("buffer_count_late") {
            drop(free);
        }
        count(outstanding);
    }

    fn outstanding(&self, free: &Free) -> u32 {
        self.slots.len() + free.promised - free.free - free.retired
    }

    pub(super) fn counts(&self) -> Counts {
        let free = self.free.lock();
        Counts { created: self.slots.len(), free: free.free, retired: free.retired }
    }

    pub(super) fn limit(&self) -> u32 {
        self.free.lock().limit
    }

    /// Host bytes held beside the stripe itself.
    pub(super) fn bytes(&self) -> u64 {
        let _free = self.free.lock();
        self.slots.bytes()
    }

    /// Whether the books agree with themselves.
    #[cold]
    pub(super) fn check(&self, hint: &AtomicU32) -> Result<(), &'static str> {
        let free = self.free.lock();
        Self::check_bits(&self.slots, &free)?;
        if free.free + free.retired > self.slots.len() || self.slots.len() + free.promised > free.limit {
            return Err("a stripe has more buffers than it may have");
        }
        let any = free.free != 0 && !free.closed;
        let says = hint.load(Ordering::Relaxed);
        if free.room != self.room(&free) || says != free.room | (u32::from(any) * FREE) {
            return Err("the hint of a stripe is wrong");
        }
        Ok(())
    }

    fn check_bits(slots: &Table<Slot>, free: &Free) -> Result<(), &'static str> {
        let (mut count, mut chunks) = (0, 0);
        for chunk in 0..CHUNKS as u32 {
            let Some(words) = free.words[chunk as usize] else { continue };
            let leaves = leaves(chunk as usize);
            let word = |index: usize| {
                // SAFETY: all indices are of words that the chunk has.
                unsafe { *words.add(index).as_ref() }
            };
            for index in 0..leaves {
                let leaf = word(index);
                count += leaf.count_ones();
                let first = Leaf { chunk, word: index as u32 }.position();
                if leaf != 0 && first + (63 - leaf.leading_zeros()) >= slots.len() {
                    return Err("a buffer is free that was never created");
                }
            }
            // Whether each bit of a level says whether its word of the level below is not 0, and no others are set.
            let sums_up = |level: usize, below: usize, words: usize| {
                (0..words.div_ceil(64)).all(|index| {
                    let bit = |bit: usize| u64::from(word(below + 64 * index + bit) != 0) << bit;
                    // As many as there are, or a multiple of 64.
                    word(level + index) == (0..words.min(64)).map(bit).sum()
                })
            };
            let summaries = above(leaves);
            if summaries != 0 && !sums_up(leaves, 0, leaves) {
                return Err("a summary is wrong");
            }
            if !sums_up(leaves + summaries, leaves, summaries) {
                return Err("a summary of summaries is wrong");
            }
            chunks += u32::from((0..leaves).any(|index| word(index) != 0)) << chunk;
        }
        if chunks != free.chunks {
            return Err("a chunk is marked wrongly");
        }
        if count == free.free { Ok(()) } else { Err("free buffers are miscounted") }
    }

    /// Gives the memory of the books back.
    ///
    /// # Safety
    /// `host` is what it came from, and nobody uses a slot any more.
    pub(super) unsafe fn free(&self, host: HostMemory) {
        // SAFETY: passed on from the caller.
        unsafe { self.slots.free(host) };
    }
}

const _: () = {
    // Chunks with one leaf have no other words.
    assert!(leaves(LEVELLED as usize) > 1 && leaves(LEVELLED as usize - 1) == 1);
    // The topmost level of the largest chunk.
    assert!(above(leaves(CHUNKS - 1)).div_ceil(64) == 8);
};

#[cfg(all(test, not(any(loom, shuttle))))]
mod damage;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::slot::Names;
    use super::*;
    use core::ptr;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    pub(super) fn with_buffers(count: u32) -> (Stripe, AtomicU32) {
        let (stripe, hint) = (Stripe::new(count, LockKind::spin()), AtomicU32::new(ROOM));
        let names = Names::new(0, count, 1);
        for _ in 0..count {
            assert!(matches!(stripe.reserve(HostMemory::global(), &hint), Ok(Permit::Granted)));
            stripe.create(&hint, |position| Slot::new(&names, ptr::null(), 0, position));
        }
        (stripe, hint)
    }

    pub(super) fn end(stripe: &Stripe) {
        // SAFETY: nobody uses it any more.
        unsafe { stripe.free(HostMemory::global()) };
    }

    #[test]
    fn no_more_buffers_are_created_than_the_stripe_may_have() {
        let (stripe, hint) = with_buffers(40);
        assert!(matches!(stripe.reserve(HostMemory::global(), &hint), Ok(Permit::Full)));
        assert_eq!(hint.load(Ordering::Relaxed), 0);
        assert_eq!(stripe.check(&hint), Ok(()));
        end(&stripe);
    }

    /// Positions that were taken, against a set, over chunks with one, two and three levels.
    #[test]
    fn what_is_taken_is_the_lowest_of_the_first_leaf_and_was_free() {
        for count in [1, 16, 17, 60, 500, 5_000, 300_000] {
            let (stripe, hint) = with_buffers(count);
            let mut model = BTreeSet::new();
            let mut state = 12_345u64 + u64::from(count);
            let mut random = move |below: u32| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) as u32) % below
            };
            for round in 0..20_000u32 {
                if random(2) == 0 {
                    let position = random(count);
                    if model.insert(position) {
                        let (leaf, bit) = Leaf::of(position);
                        assert!(!stripe.put(leaf, bit, 1, &hint));
                    }
                } else {
                    let most = 1 + random(10);
                    match stripe.take(most, &hint) {
                        None => assert!(model.is_empty()),
                        Some((leaf, mask, count)) => {
                            // SAFETY: just taken.
                            let taken: Vec<u32> =
                                unsafe { stripe.slots_of(leaf, mask) }.map(|slot| slot.number).collect();
                            assert!(taken.len() == count as usize && count >= 1 && count <= most);
                            let lowest: Vec<u32> = model.iter().copied().take(taken.len()).collect();
                            assert_eq!(taken, lowest);
                            for position in taken {
                                model.remove(&position);
                            }
                        }
                    }
                }
                if round % 997 == 0 {
                    assert_eq!(stripe.check(&hint), Ok(()));
                    assert_eq!(stripe.counts().free as usize, model.len());
                }
            }
            end(&stripe);
        }
    }

    #[test]
    fn a_closed_stripe_gives_nothing_and_counts_what_is_out() {
        let (stripe, hint) = with_buffers(20);
        let (leaf, bit) = Leaf::of(3);
        assert!(!stripe.put(leaf, bit, 1, &hint));
        let mut out = 0;
        stripe.close(&hint, |count| out = count);
        assert_eq!(out, 19);
        assert!(stripe.take(1, &hint).is_none());
        assert!(matches!(stripe.reserve(HostMemory::global(), &hint), Ok(Permit::Closed)));
        let (leaf, bit) = Leaf::of(4);
        assert!(stripe.put(leaf, bit, 1, &hint));
        assert_eq!(stripe.check(&hint), Ok(()));
        end(&stripe);
    }
}
