//! A size class: its buffers, the stripes they are parked in, and the slabs they are carved from.
//!
//! A buffer is created in three steps, so that no lock is held while the device is called and nothing can fail halfway: a
//! stripe permits it and sees to the books, a place is carved (from a new slab if need be), the buffer is created.
//! Stripes permit as many buffers together as the class may have, so never more places are carved than that.

use super::inner::Pages;
use super::slot::{BufferId, Names, Slab, Slot};
use super::stripe::{Counts, FREE, Leaf, Permit, ROOM, Stripe};
use super::sync::{AtomicU32, Ordering};
use super::table::{TABLE_LIMIT, Table};
use crate::allocator::Allocator;
use crate::canary::broken;
use crate::device::Device;
use crate::error::Error;
use crate::metadata::{Array, HostMemory};
use crate::slice::Slice;
use crate::sync::{Count, Lock, LockKind};
use core::ptr::NonNull;

/// Bytes of a slab, unless one buffer is larger.
const SLAB_BYTES: u64 = 256 << 10;

/// No slab.
const NONE: u32 = u32::MAX;

/// Groups of buffers that are put back together, at most.
const GROUPS: usize = 8;

/// Buffers of one leaf.
#[derive(Clone, Copy)]
struct Group {
    stripe: u32,
    leaf: Leaf,
    mask: u64,
    count: u32,
}

/// Where new buffers come from.
struct Carving {
    /// A slab with room, and others behind it.
    room: u32,
    /// Buffers that the slabs have room for, those of slabs just being taken included.
    reserved: u32,
    /// Buffers of the next slab, unless the limit leaves fewer.
    step: u32,
}

pub(super) struct Class {
    /// Position among the classes.
    pub(super) index: u32,
    pub(super) size_log2: u32,
    /// Buffers that the configuration allows.
    pub(super) configured: u32,
    pub(super) cache_capacity: u32,
    stripe_bits: u32,
    stripe_mask: u32,
    pub(super) names: Names,
    /// Raised to have caches give back what they hold.
    pub(super) pressure: AtomicU32,
    /// What each stripe can do at the moment.
    hints: Array<AtomicU32>,
    stripes: Array<Stripe>,
    slabs: Table<Slab>,
    carving: Lock<Carving>,
    /// Slabs just being taken. Changed under the lock for carving.
    growing: AtomicU32,
    /// Buffers of a slab where the device and the limit have them.
    slab: u32,
    pub(super) exhausted: Count,
    /// What caches that are gone have counted.
    pub(super) hits: Count,
    pub(super) refills: Count,
    pub(super) spills: Count,
}

/// How a class is made.
pub(super) struct Plan {
    pub(super) index: u32,
    pub(super) size_log2: u32,
    pub(super) limit: u32,
    pub(super) cache_capacity: u32,
    pub(super) stripes: u32,
    pub(super) tag: u16,
    /// The largest page of the device.
    pub(super) max_page: u64,
}

/// Buffers that can have a handle at a time; a limit above it is that one.
fn effective(limit: u32) -> u32 {
    limit.min(TABLE_LIMIT)
}

impl Class {
    #[cold]
    pub(super) fn try_new(plan: &Plan, host: HostMemory, lock: LockKind) -> Result<Self, Error> {
        let limit = effective(plan.limit);
        let size = 1u64 << plan.size_log2;
        if size > plan.max_page {
            return Err(Error::InvalidArgument { field: c"size", value: size });
        }
        let stripes = plan.stripes;
        debug_assert!(stripes.is_power_of_two() && stripes <= limit);
        let step = (SLAB_BYTES.min(plan.max_page) / size).max(1).min(u64::from(limit)) as u32;
        Ok(Self {
            index: plan.index,
            size_log2: plan.size_log2,
            configured: plan.limit,
            cache_capacity: plan.cache_capacity,
            stripe_bits: stripes.ilog2(),
            stripe_mask: stripes - 1,
            names: Names::new(plan.index, limit, plan.tag),
            pressure: AtomicU32::new(0),
            hints: Array::try_new(host, stripes, |_| Ok(AtomicU32::new(ROOM)))?,
            stripes: Array::try_new(host, stripes, |i| Ok(Stripe::new((limit - i).div_ceil(stripes), lock)))?,
            slabs: Table::new(limit, |_| 0),
            carving: Lock::new(lock, Carving { room: NONE, reserved: 0, step }),
            growing: AtomicU32::new(0),
            slab: step,
            exhausted: Count::new(),
            hits: Count::new(),
            refills: Count::new(),
            spills: Count::new(),
        })
    }

    #[inline(always)]
    pub(super) fn size(&self) -> u64 {
        1 << self.size_log2
    }

    /// Stripe, and position in it, of a number.
    #[inline(always)]
    fn split(&self, number: u32) -> (u32, u32) {
        (number & self.stripe_mask, number >> self.stripe_bits)
    }

    /// The buffer of a handle that may be anything.
    #[inline(always)]
    pub(super) fn slot(&self, id: BufferId) -> Result<&Slot, Error> {
        let (stripe, position) = self.split(self.names.number(id));
        self.stripe(stripe).0.get(position).ok_or(Error::ForeignHandle)
    }

    /// Stripes whose hint says `what`, beginning with `home`.
    #[inline(always)]
    fn stripes_with(&self, what: u32, home: u32) -> impl Iterator<Item = (&Stripe, &AtomicU32, u32)> {
        let mut from = 0;
        core::iter::from_fn(move || {
            while from <= self.stripe_mask {
                let index = home.wrapping_add(from) & self.stripe_mask;
                from += 1;
                let (stripe, hint) = self.stripe(index);
                if hint.load(Ordering::Relaxed) & what != 0 {
                    return Some((stripe, hint, index));
                }
            }
            None
        })
    }

    /// A stripe and its hint.
    #[inline(always)]
    fn stripe(&self, index: u32) -> (&Stripe, &AtomicU32) {
        debug_assert!(index < self.stripes.len());
        // SAFETY: callers have the index from `split` or a mask, and so below the number of stripes, a power of two, of
        // which there is one for each hint.
        unsafe {
            let index = index as usize;
            (self.stripes.as_slice().get_unchecked(index), self.hints.as_slice().get_unchecked(index))
        }
    }

    /// Takes up to `most` free buffers, which `each` is given.
    #[inline]
    pub(super) fn take<'a>(&'a self, home: u32, most: u32, mut each: impl FnMut(&'a Slot)) {
        let mut left = most;
        for (stripe, hint, _) in self.stripes_with(FREE, home) {
            while let Some((leaf, mask, count)) = stripe.take(left, hint) {
                // SAFETY: just taken from this stripe.
                unsafe { stripe.slots_of(leaf, mask) }.for_each(&mut each);
                left -= count;
                if left == 0 {
                    return;
                }
            }
        }
    }

    /// Takes one free buffer.
    #[inline]
    pub(super) fn take_one(&self, home: u32) -> Option<&Slot> {
        self.stripes_with(FREE, home).find_map(|(stripe, hint, _)| stripe.take_one(hint))
    }

    /// Puts back a buffer that the caller owns. How many references the caller has to give up for it: if none, it must not
    /// touch the pool again because of this buffer.
    #[inline]
    pub(super) fn put(&self, slot: &Slot) -> u32 {
        let (stripe, position) = self.split(slot.number);
        let (leaf, bit) = Leaf::of(position);
        let (stripe, hint) = self.stripe(stripe);
        u32::from(stripe.put(leaf, bit, 1, hint))
    }

    /// Puts back buffers that the caller owns, those of one leaf together. As [`Class::put`].
    pub(super) fn put_many(&self, slots: impl Iterator<Item = NonNull<Slot>>) -> u32 {
        let mut groups = [Group { stripe: 0, leaf: Leaf::of(0).0, mask: 0, count: 0 }; GROUPS];
        let (mut used, mut returned) = (0, 0);
        for slot in slots {
            // SAFETY: slots live as long as the class.
            let (stripe, position) = self.split(unsafe { slot.as_ref() }.number);
            let (leaf, bit) = Leaf::of(position);
            match groups[..used].iter_mut().rev().find(|group| (group.stripe, group.leaf) == (stripe, leaf)) {
                Some(group) => {
                    group.mask |= bit;
                    group.count += 1;
                }
                None => {
                    if used == GROUPS {
                        returned += self.put_groups(&groups);
                        used = 0;
                    }
                    groups[used] = Group { stripe, leaf, mask: bit, count: 1 };
                    used += 1;
                }
            }
        }
        returned + self.put_groups(&groups[..used])
    }

    fn put_groups(&self, groups: &[Group]) -> u32 {
        let put = |&Group { stripe, leaf, mask, count }: &Group| {
            let (stripe, hint) = self.stripe(stripe);
            if stripe.put(leaf, mask, count, hint) { count } else { 0 }
        };
        groups.iter().map(put).sum()
    }

    /// Puts a buffer away for good whose handles are used up. As [`Class::put`].
    #[cold]
    pub(super) fn retire(&self, slot: &Slot) -> u32 {
        u32::from(self.stripe(self.split(slot.number).0).0.retire())
    }

    // ---- buffers that are new

    /// Creates a buffer, if the class may have another one. `Ok(None)`: it may not.
    #[cold]
    pub(super) fn create<D: Device>(
        &self,
        home: u32,
        allocator: &Allocator<D>,
        pages: Pages,
        returned: impl FnOnce(u32),
    ) -> Result<Option<&Slot>, Error> {
        let host = allocator.options().memory;
        for (stripe, hint, i) in self.stripes_with(ROOM, home) {
            match stripe.reserve(host, hint)? {
                Permit::Granted => {}
                Permit::Full => continue,
                Permit::Closed => return Err(Error::Closed),
            }
            return match self.carve(allocator, pages) {
                Ok((slab, place)) => {
                    let number = |position| position << self.stripe_bits | i;
                    let slot = stripe.create(hint, |at| Slot::new(&self.names, slab, place, number(at)));
                    // SAFETY: slots live as long as the class.
                    Ok(Some(unsafe { slot.as_ref() }))
                }
                Err(error) => {
                    returned(u32::from(stripe.give_up(hint)));
                    Err(error)
                }
            };
        }
        Ok(None)
    }

    /// A place that no buffer has had.
    #[cold]
    fn carve<D: Device>(&self, allocator: &Allocator<D>, pages: Pages) -> Result<(&Slab, u32), Error> {
        let options = allocator.options();
        let mut attempt = 0;
        loop {
            let mut carving = self.carving.lock();
            if let Some(place) = self.carve_from_room(&mut carving) {
                return Ok(place);
            }
            let left = effective(self.configured) - carving.reserved;
            let growing = self.growing.load(Ordering::Relaxed);
            let waits = growing != 0 && attempt < options.growth_wait_steps && options.lock.is_shared();
            if waits {
                // What another call is just getting will most likely have room.
                drop(carving);
                options.lock.wait(attempt);
                attempt += 1;
                continue;
            }
            let count = left.min(carving.step);
            if count == 0 {
                // Slabs that other calls have not got yet have what is left.
                return Err(Error::Exhausted {
                    size: self.size(),
                    limit: self.configured,
                    cached: 0,
                    growths_in_flight: growing,
                });
            }
            if let Some(chunk) = self.slabs.missing(self.slabs.len() + growing) {
                drop(carving);
                let chunk = self.slabs.allocate(chunk, options.memory)?;
                let carving = self.carving.lock();
                let late = self.slabs.install(chunk).err();
                drop(carving);
                drop(late);
                continue;
            }
            carving.reserved += count;
            self.growing.store(growing + 1, Ordering::Relaxed);
            drop(carving);
            return self.grow(allocator, count, pages);
        }
    }

    fn carve_from_room(&self, carving: &mut Carving) -> Option<(&Slab, u32)> {
        let slab = self.slabs.get(carving.room)?;
        let place = slab.carved.load(Ordering::Relaxed);
        debug_assert!(place < slab.count);
        slab.carved.store(place + 1, Ordering::Relaxed);
        if place + 1 == slab.count {
            carving.room = slab.next.load(Ordering::Relaxed);
        }
        Some((slab, place))
    }

    /// Takes a slab of `count` buffers from the device, which are reserved, or of fewer if the device has no more, and
    /// carves one.
    fn grow<D: Device>(&self, allocator: &Allocator<D>, mut count: u32, pages: Pages) -> Result<(&Slab, u32), Error> {
        loop {
            let taken = allocator.allocate_elsewhere(&pages.request(u64::from(count) << self.size_log2));
            let mut carving = self.carving.lock();
            let error = match taken {
                Ok(memory) => {
                    self.end_growth();
                    // What was not to be had a while ago may be there again.
                    carving.step = carving.step.max(count.saturating_mul(2).min(self.slab));
                    self.install(&mut carving, memory, count);
                    return self.carve_from_room(&mut carving).ok_or(Error::ForeignHandle);
                }
                Err(error) => error,
            };
            if count == 1 || !is_shortage(&error) {
                self.end_growth();
                carving.reserved -= count;
                return Err(error);
            }
            carving.reserved -= count - count / 2;
            count /= 2;
            carving.step = carving.step.min(count);
            drop(carving);
            // That there is no memory for a larger slab does not say how long there is none for a smaller one.
            allocator.note_return();
        }
    }

    /// The lock for carving is held.
    fn end_growth(&self) {
        self.growing.store(self.growing.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// Makes a slab part of the class. Its chunk of the table is there.
    fn install(&self, carving: &mut Carving, memory: Slice, count: u32) {
        let index = self.slabs.len();
        let slab = Slab {
            memory,
            capacity: 1 << self.size_log2,
            shift: self.size_log2,
            class: self.index,
            count,
            carved: AtomicU32::new(0),
            next: AtomicU32::new(carving.room),
        };
        // SAFETY: the lock is held, and the chunk was seen to before the device was called, for this slab and all others
        // that were being taken.
        unsafe { self.slabs.push(slab) };
        carving.room = index;
    }

    /// Creates every buffer of the class, all in one piece, and parks them. For a pool that nobody else knows yet.
    #[cold]
    pub(super) fn prefill<D: Device>(&self, allocator: &Allocator<D>, pages: Pages) -> Result<(), Error> {
        let host = allocator.options().memory;
        let limit = effective(self.configured);
        if limit != self.configured {
            return Err(Error::TooManySlices { limit });
        }
        if let Some(chunk) = self.slabs.missing(0) {
            drop(self.slabs.install(self.slabs.allocate(chunk, host)?).err());
        }
        let bytes =
            u64::from(limit).checked_mul(self.size()).ok_or(Error::TooLarge { size: u64::MAX, limit: u64::MAX })?;
        let memory = allocator.allocate_elsewhere(&pages.request(bytes))?;
        let mut carving = self.carving.lock();
        carving.reserved = limit;
        self.install(&mut carving, memory, limit);
        drop(carving);
        for number in 0..limit {
            let (index, _) = self.split(number);
            let (stripe, hint) = self.stripe(index);
            stripe.reserve(host, hint)?;
            let Some((slab, place)) = self.carve_from_room(&mut self.carving.lock()) else { break };
            let slot = stripe.create(hint, |_| Slot::new(&self.names, slab, place, number));
            // SAFETY: slots live as long as the class.
            self.put(unsafe { slot.as_ref() });
        }
        Ok(())
    }

    // ---- the end

    /// Closes every stripe; see [`Stripe::close`].
    #[cold]
    pub(super) fn close(&self, mut count: impl FnMut(u32)) {
        for (stripe, hint) in self.stripes.iter().zip(self.hints.iter()) {
            stripe.close(hint, &mut count);
        }
    }

    pub(super) fn slabs(&self) -> impl Iterator<Item = &Slab> {
        self.slabs.iter()
    }

    // ---- figures

    #[cold]
    pub(super) fn counts(&self) -> Counts {
        self.stripes.iter().map(Stripe::counts).fold(Counts::default(), Counts::and)
    }

    pub(super) fn growths_in_flight(&self) -> u32 {
        self.growing.load(Ordering::Relaxed)
    }

    pub(super) fn stripe_count(&self) -> u32 {
        self.stripes.len()
    }

    /// Buffers that are free in each stripe, and may be there.
    pub(super) fn stripe_counts(&self) -> impl Iterator<Item = (u32, u32)> {
        self.stripes.iter().map(|stripe| (stripe.counts().free, stripe.limit()))
    }

    /// Bytes of host memory held.
    #[cold]
    pub(super) fn bytes(&self) -> u64 {
        let stripes: u64 = self.stripes.iter().map(Stripe::bytes).sum();
        self.hints.bytes() + self.stripes.bytes() + stripes + self.slabs.bytes()
    }

    /// Whether the books agree with themselves.
    #[cold]
    pub(super) fn check(&self) -> Result<(), &'static str> {
        for (stripe, hint) in self.stripes.iter().zip(self.hints.iter()) {
            stripe.check(hint)?;
        }
        if self.stripes.iter().map(Stripe::limit).sum::<u32>() != effective(self.configured) {
            return Err("stripes may have other buffers than the class");
        }
        let carving = self.carving.lock();
        let room: u64 = self.slabs.iter().map(|slab| u64::from(slab.count)).sum();
        let carved: u32 = self.slabs.iter().map(|slab| slab.carved.load(Ordering::Relaxed)).sum();
        if room > u64::from(carving.reserved) || carving.reserved > effective(self.configured) {
            return Err("slabs have more room than the class may have");
        }
        if self.growths_in_flight() == 0 && room != u64::from(carving.reserved) {
            return Err("room is reserved that no slab has");
        }
        // Each is in the list, and there is none but these: as many, and no other comes before its end.
        let has_room = |slab: &&Slab| slab.carved.load(Ordering::Relaxed) < slab.count;
        let mut at = carving.room;
        for _ in self.slabs.iter().filter(has_room) {
            let Some(slab) = self.slabs.get(at).filter(has_room) else {
                return Err("a slab with room is not in the list");
            };
            at = slab.next.load(Ordering::Relaxed);
        }
        if at != NONE {
            return Err("the list of slabs with room has another one");
        }
        drop(carving);
        if carved != self.counts().created {
            return Err("buffers were created that were not carved, or carved and not created");
        }
        Ok(())
    }
}

/// Whether less memory might be there.
fn is_shortage(error: &Error) -> bool {
    matches!(
        error,
        Error::OutOfDeviceMemory { .. }
            | Error::BudgetExceeded { .. }
            | Error::HeapBudgetExceeded { .. }
            | Error::TooLarge { .. }
    ) && !broken("buffer_slab_whole")
}

impl Drop for Class {
    fn drop(&mut self) {
        let host = self.hints.memory();
        for stripe in self.stripes.iter() {
            // SAFETY: nobody else knows the class; the books came from this memory.
            unsafe { stripe.free(host) };
        }
        // SAFETY: as above.
        unsafe { self.slabs.free(host) };
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod damage;

// SAFETY: slots and slabs are reached as their own rules say.
unsafe impl Sync for Class {}
// SAFETY: a class owns what it points to.
unsafe impl Send for Class {}
