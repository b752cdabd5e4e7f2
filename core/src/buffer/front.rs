//! What every operation goes through before anything else: caches, stripes and handles, and no device.

use super::cache::Node;
use super::class::Class;
use super::slot::{self, BufferId, Claimed, Slot};
use super::sync::{AtomicU32, Ordering};
use crate::error::Error;
use crate::metadata::Array;
use core::ptr::NonNull;

/// What every operation looks at: written hardly ever. What happens here has nothing to do with the device, and is compiled
/// once for all of them.
pub(super) struct Front {
    /// Raised when caches have something to look at: pressure on a class, or that the pool is closed.
    pub(super) epoch: AtomicU32,
    pub(super) closed: AtomicU32,
    /// Whether threads have caches of their own accord.
    #[cfg(feature = "std")]
    pub(super) threaded: AtomicU32,
    /// Sizes below this one go ways of their own: 0, and those below `pool_min_size`.
    pub(super) small: usize,
    /// Index of the class of each size, by the number of bits that the size less 1 has; behind the last class if there is
    /// none.
    pub(super) route: [u8; usize::BITS as usize + 1],
    pub(super) classes: Array<Class>,
}

impl Front {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    pub(super) fn check_open(&self) -> Result<(), Error> {
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Index of the class that serves a size; behind the last if none does.
    #[inline(always)]
    pub(super) fn class_index(&self, size: usize) -> u32 {
        let bits = usize::BITS - size.saturating_sub(1).leading_zeros();
        u32::from(self.route[bits as usize])
    }

    /// The class of a slot's buffer.
    #[inline(always)]
    pub(super) fn class_of(&self, slot: &Slot) -> Option<&Class> {
        let index = slot.slab().class;
        debug_assert!(index < self.classes.len() || index == slot::NO_CLASS);
        if index == slot::NO_CLASS {
            return None;
        }
        // SAFETY: slabs name classes that there are.
        Some(unsafe { self.classes.as_slice().get_unchecked(index as usize) })
    }

    /// Does what the pool wants of a cache. As [`Class::put`].
    #[cold]
    pub(super) fn catch_up(&self, node: &Node) -> u32 {
        let epoch = self.epoch.load(Ordering::Acquire);
        let closed = self.is_closed();
        // A cache never catches up with a pool that is closed, so that it keeps nothing.
        if !closed {
            node.epoch.set(epoch);
        }
        node.give_back(&self.classes, closed)
    }

    /// A buffer that is free and needs nothing from anybody, which the caller owns then.
    #[inline(always)]
    pub(super) fn take(&self, cache: Option<&Node>, size: usize) -> Option<NonNull<Slot>> {
        if size < self.small {
            return None;
        }
        let index = self.class_index(size);
        match cache {
            // A size without a class has an empty list.
            Some(node) if node.epoch.get() == self.epoch.load(Ordering::Relaxed) => {
                // SAFETY: routes lead to lists.
                unsafe { node.entry(index) }.hit()
            }
            Some(_) => None,
            None => self.take_free(index),
        }
    }

    #[inline(never)]
    fn take_free(&self, index: u32) -> Option<NonNull<Slot>> {
        // Classes that are closed have nothing to take.
        self.classes.as_slice().get(index as usize)?.take_one(home_of_stack()).map(NonNull::from)
    }

    /// Takes back a buffer of a class from whoever owns it. As [`Class::put`].
    #[inline(always)]
    #[must_use]
    pub(super) fn put(&self, cache: Option<&Node>, class: &Class, slot: &Slot) -> u32 {
        let Some(node) = cache else { return class.put(slot) };
        if node.epoch.get() != self.epoch.load(Ordering::Relaxed) {
            return self.put_late(node, class, slot);
        }
        // SAFETY: the class has a list.
        unsafe { node.entry(class.index) }.accept(class, slot)
    }

    /// Takes back a buffer into a cache of which the pool wants something.
    #[cold]
    fn put_late(&self, node: &Node, class: &Class, slot: &Slot) -> u32 {
        let returned = self.catch_up(node);
        if self.is_closed() {
            return returned + class.put(slot);
        }
        debug_assert!(returned == 0, "stripes are closed after the pool is marked as closed");
        // SAFETY: the class has a list.
        unsafe { node.entry(class.index) }.accept(class, slot)
    }

    /// Takes back a buffer of a class by its handle; `None` if the handle is of none. As [`Class::put`].
    #[inline(always)]
    pub(super) fn release(&self, cache: Option<&Node>, id: BufferId) -> Option<Result<u32, Error>> {
        let class = self.class_of_id(id)?;
        let claimed = class.slot(id).and_then(|slot| Ok((slot, slot.claim(&class.names, id)?)));
        Some(match claimed {
            Ok((slot, Claimed::Yes)) => Ok(self.put(cache, class, slot)),
            Ok((slot, Claimed::Worn)) => Ok(class.retire(slot)),
            Err(error) => Err(error),
        })
    }

    /// The class that a handle names.
    #[inline(always)]
    pub(super) fn class_of_id(&self, id: BufferId) -> Option<&Class> {
        self.classes.as_slice().get(id.class() as usize)
    }
}

/// Where a thread without a cache begins to look: threads have stacks far apart.
#[inline(always)]
pub(super) fn home_of_stack() -> u32 {
    if cfg!(loom) {
        // Models have to do the same every time.
        return 0;
    }
    let here = 0u8;
    home_of(core::hint::black_box(&raw const here).addr() as u64)
}

/// The same for all that lies in 64 KiB; what is next to that is elsewhere.
#[inline(always)]
fn home_of(address: u64) -> u32 {
    ((address >> 16).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u32
}

#[cfg(test)]
mod tests {
    use super::home_of;

    #[test]
    fn a_thread_stays_where_it_is_and_others_are_elsewhere() {
        let stack = 0x7F12_3456_0000;
        assert!([1, 64, 0xFFF, 0xFFFF].into_iter().all(|depth| home_of(stack + depth) == home_of(stack)));
        // Sixteen stacks of 2 MiB, or of 8 MiB, with pages between them, and as many stripes.
        for distance in [0x20_1000, 0x80_1000] {
            let used = (0..16).fold(0u32, |used, thread| used | 1 << (home_of(stack + thread * distance) % 16));
            assert!(used.count_ones() >= 6, "{used:#b}");
        }
    }
}
