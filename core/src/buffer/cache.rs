//! Buffers that one thread keeps for itself: [`BufferCache`].
//!
//! A cache has a list for each class, linked through the slots, so it takes no memory however much it may hold. Its owner
//! alone touches the lists; what others may want to know (how long they are, what was counted) is in atomics that only
//! the owner writes. The pool has a list of all caches, under a lock, for the sake of those figures.

use super::class::Class;
use super::slot::Slot;
use super::sync::{AtomicU32, Ordering};
use crate::canary::broken;
use crate::metadata::Array;
use crate::sync::{Count, Lock, LockKind};
use core::cell::Cell;
use core::ptr::{self, NonNull};

/// The list of one class.
pub(super) struct Entry {
    /// The newest; NULL if there is none.
    head: Cell<*mut Slot>,
    len: AtomicU32,
    capacity: u32,
    /// The class's pressure that has been given way to.
    pressure: Cell<u32>,
    hits: Count,
    refills: Count,
    spills: Count,
}

impl Entry {
    fn new(class: Option<&Class>) -> Self {
        let pressure = class.map_or(0, |class| class.pressure.load(Ordering::Relaxed));
        Self {
            head: Cell::new(ptr::null_mut()),
            len: AtomicU32::new(0),
            capacity: class.map_or(0, |class| class.cache_capacity),
            pressure: Cell::new(pressure),
            hits: Count::new(),
            refills: Count::new(),
            spills: Count::new(),
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    /// The newest buffer, as a hit.
    #[inline(always)]
    pub(super) fn hit(&self) -> Option<NonNull<Slot>> {
        let slot = self.pop()?;
        self.hits.raise_alone();
        Some(slot)
    }

    #[inline(always)]
    fn pop(&self) -> Option<NonNull<Slot>> {
        let slot = NonNull::new(self.head.get())?;
        // SAFETY: slots in the list are this cache's, and live as long as the class.
        self.head.set(unsafe { slot.as_ref() }.next.load(Ordering::Relaxed));
        self.len.store(self.len() - 1, Ordering::Relaxed);
        Some(slot)
    }

    #[inline(always)]
    fn push(&self, slot: &Slot) {
        slot.next.store(self.head.get(), Ordering::Relaxed);
        self.head.set(ptr::from_ref(slot).cast_mut());
        self.len.store(self.len() + 1, Ordering::Relaxed);
    }

    /// Keeps a buffer that the caller owns, if there is room.
    #[inline(always)]
    fn keep(&self, slot: &Slot) -> bool {
        let room = self.len() < self.capacity + u32::from(broken("buffer_cache_grows"));
        if room {
            self.push(slot);
        }
        room
    }

    /// Takes in a buffer that the caller owns. As [`Class::put`].
    #[inline(always)]
    pub(super) fn accept(&self, class: &Class, slot: &Slot) -> u32 {
        if self.keep(slot) { 0 } else { self.spill(class, slot) }
    }

    /// Whether buffers move between cache and class several at a time.
    fn moves_batches(&self) -> bool {
        self.capacity >= 4
    }

    /// Gets buffers from the class: one for the caller, and others for the cache.
    #[inline(never)]
    pub(super) fn refill<'a>(&self, class: &'a Class, home: u32) -> Option<&'a Slot> {
        debug_assert!(self.head.get().is_null());
        let most = if self.moves_batches() { self.capacity / 2 } else { 1 };
        // Appended one behind the other, so that they are handed out in the order in which they were taken.
        let (mut first, mut last): (Option<&Slot>, Option<&Slot>) = (None, None);
        let mut kept = 0;
        class.take(home, most, |slot| {
            if first.is_none() {
                first = Some(slot);
                return;
            }
            let at = ptr::from_ref(slot).cast_mut();
            match last {
                None => self.head.set(at),
                Some(last) => last.next.store(at, Ordering::Relaxed),
            }
            last = Some(slot);
            kept += 1;
        });
        if let Some(last) = last {
            last.next.store(ptr::null_mut(), Ordering::Relaxed);
            self.len.store(kept, Ordering::Relaxed);
        }
        if first.is_some() && self.capacity != 0 {
            self.refills.raise_alone();
        }
        first
    }

    /// Keeps a buffer that the caller owns although the list is full: the newer half of it goes to the class, or, if the
    /// list is too short for that, the buffer itself. As [`Class::put`].
    #[inline(never)]
    fn spill(&self, class: &Class, slot: &Slot) -> u32 {
        if !self.moves_batches() {
            return class.put(slot);
        }
        self.spills.raise_alone();
        let returned = self.give(class, self.capacity / 2);
        self.push(slot);
        returned
    }

    /// Gives the class all buffers. As [`Class::put`].
    #[cold]
    pub(super) fn flush(&self, class: &Class) -> u32 {
        self.give(class, self.len())
    }

    fn give(&self, class: &Class, count: u32) -> u32 {
        class.put_many(core::iter::from_fn(|| self.pop()).take(count as usize))
    }

    /// Gives everything back if the class asks for that. As [`Class::put`].
    fn give_way(&self, class: &Class) -> u32 {
        let pressure = class.pressure.load(Ordering::Relaxed);
        if self.pressure.replace(pressure) == pressure { 0 } else { self.flush(class) }
    }

    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.hits.get(), self.refills.get(), self.spills.get())
    }
}

/// What a cache consists of. Stays where it is, so that the pool's list can name it.
pub(super) struct Node {
    /// Neighbours in the pool's list, changed under its lock.
    next: Cell<Option<NonNull<Node>>>,
    previous: Cell<Option<NonNull<Node>>>,
    /// Number of the cache, by which it has its home among the stripes.
    pub(super) home: u32,
    /// The pool's epoch that has been caught up with.
    pub(super) epoch: Cell<u32>,
    /// The lists of the classes, and one behind them that is always empty, for sizes without a class.
    entries: Array<Entry>,
}

impl Node {
    pub(super) fn try_new(classes: &Array<Class>, home: u32, epoch: u32) -> Result<Self, crate::error::Error> {
        Ok(Self {
            next: Cell::new(None),
            previous: Cell::new(None),
            home,
            epoch: Cell::new(epoch),
            entries: Array::try_new(classes.memory(), classes.len() + 1, |i| {
                Ok(Entry::new(classes.as_slice().get(i as usize)))
            })?,
        })
    }

    /// The list of a class, or the one behind them.
    ///
    /// # Safety
    /// There is one.
    #[inline(always)]
    pub(super) unsafe fn entry(&self, class: u32) -> &Entry {
        debug_assert!(class < self.entries.len());
        // SAFETY: the caller's promise.
        unsafe { self.entries.as_slice().get_unchecked(class as usize) }
    }

    /// Gives back what classes ask for or, with `all`, everything. As [`Class::put`].
    #[cold]
    pub(super) fn give_back(&self, classes: &Array<Class>, all: bool) -> u32 {
        let give = |(entry, class): (&Entry, &Class)| if all { entry.flush(class) } else { entry.give_way(class) };
        self.entries.iter().zip(classes.iter()).map(give).sum()
    }
}

/// All caches of a pool, in a list.
pub(super) struct Caches(Lock<List>);

struct List {
    first: Option<NonNull<Node>>,
    count: u32,
}

// SAFETY: nodes are reached under the lock, and there only what is atomic.
unsafe impl Send for List {}

impl Caches {
    pub(super) fn new(lock: LockKind) -> Self {
        Self(Lock::new(lock, List { first: None, count: 0 }))
    }

    pub(super) fn count(&self) -> u32 {
        self.0.lock().count
    }

    /// # Safety
    /// The node lives where it is until it is removed.
    #[cold]
    pub(super) unsafe fn add(&self, node: NonNull<Node>) {
        let mut list = self.0.lock();
        // SAFETY: nodes in the list live, and their links are changed under this lock only.
        unsafe {
            node.as_ref().next.set(list.first);
            if let Some(first) = list.first {
                first.as_ref().previous.set(Some(node));
            }
        }
        list.first = Some(node);
        list.count += 1;
    }

    /// Takes a cache, which is empty, off the list, and adds what it has counted to its classes.
    ///
    /// # Safety
    /// It is in the list.
    #[cold]
    pub(super) unsafe fn remove(&self, node: NonNull<Node>, classes: &Array<Class>) {
        let mut list = self.0.lock();
        // SAFETY: as above.
        unsafe {
            let (next, previous) = (node.as_ref().next.get(), node.as_ref().previous.get());
            match previous {
                Some(previous) => previous.as_ref().next.set(next),
                None => list.first = next,
            }
            if let Some(next) = next {
                next.as_ref().previous.set(previous);
            }
            list.count -= 1;
            for (entry, class) in node.as_ref().entries.iter().zip(classes.iter()) {
                let (hits, refills, spills) = entry.counts();
                class.hits.add(hits);
                class.refills.add(refills);
                class.spills.add(spills);
            }
        }
    }

    /// Calls `look` with every cache's list of a class, under the lock of the list.
    pub(super) fn for_each(&self, class: u32, mut look: impl FnMut(&Entry)) {
        let list = self.0.lock();
        let mut at = list.first;
        while let Some(node) = at {
            // SAFETY: nodes in the list live, with a list for each class, of which only atomics are read.
            unsafe {
                look(node.as_ref().entry(class));
                at = node.as_ref().next.get();
            }
        }
    }
}
