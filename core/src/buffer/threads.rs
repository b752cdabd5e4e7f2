//! Caches that threads have of their own accord, for pools made with
//! [`BufferPool::with_thread_caches`](super::BufferPool::with_thread_caches).
//!
//! Each thread has a list of its caches, one for each pool it has used. In front of that is the pool used last, in a
//! variable without a destructor: looking it up costs two loads. A cache is an owner of its pool's books, so no other pool
//! can have its address.

use super::BufferCache;
use super::cache::Node;
use super::inner::Inner;
use crate::device::Device;
use core::cell::{Cell, RefCell, RefMut};
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use std::vec::Vec;

/// A cache, of a pool of any device.
struct Entry {
    pool: *const (),
    node: NonNull<Node>,
    is_closed: unsafe fn(*const ()) -> bool,
    end: unsafe fn(*const (), NonNull<Node>),
}

/// All caches of a thread.
struct Caches(RefCell<Vec<Entry>>);

std::thread_local! {
    static LAST: Cell<(*const (), Option<NonNull<Node>>)> = const { Cell::new((ptr::null(), None)) };
    static CACHES: Caches = const { Caches(RefCell::new(Vec::new())) };
}

impl Drop for Caches {
    fn drop(&mut self) {
        // Whatever runs on this thread from here on does without.
        end(self.0.take());
    }
}

/// Drops caches that are in no list any more: what they give back may call anything.
fn end(entries: Vec<Entry>) {
    LAST.set((ptr::null(), None));
    for entry in entries {
        // SAFETY: entries are made in `find` and dropped here alone.
        unsafe { (entry.end)(entry.pool, entry.node) };
    }
}

/// Gives back what the calling thread's caches hold, of all pools, and forgets the caches.
///
/// Caches are otherwise given back when the thread ends: whoever has joined it finds them given back. The end of a
/// [`std::thread::scope`] alone says only that the threads' closures have returned; join their handles.
pub fn flush_thread_caches() {
    // While the thread ends there are none.
    if let Ok(entries) = CACHES.try_with(|caches| caches.0.take()) {
        end(entries);
    }
}

/// The calling thread's cache of a pool; `None` if there is none, and none can be had.
#[inline(always)]
pub(super) fn cache_of<D: Device>(pool: NonNull<Inner<D>>) -> Option<NonNull<Node>> {
    let (last, node) = LAST.get();
    if ptr::eq(last, pool.as_ptr().cast()) {
        return node;
    }
    find(pool)
}

#[cold]
#[inline(never)]
fn find<D: Device>(pool: NonNull<Inner<D>>) -> Option<NonNull<Node>> {
    let at = pool.as_ptr().cast_const().cast::<()>();
    let known = |caches: &Caches| {
        let entries = caches.0.try_borrow().ok()?;
        entries.iter().find(|entry| ptr::eq(entry.pool, at)).map(|entry| entry.node)
    };
    let node = match CACHES.try_with(known).ok()? {
        Some(node) => node,
        None => add(pool)?,
    };
    LAST.set((at, Some(node)));
    Some(node)
}

/// A new cache. Those of closed pools go first: what they give back may call anything, and nothing must once the new one is
/// about to be used.
fn add<D: Device>(pool: NonNull<Inner<D>>) -> Option<NonNull<Node>> {
    let take_closed = |caches: &Caches| caches.0.try_borrow_mut().map_or_else(|_| Vec::new(), take_closed);
    end(CACHES.try_with(take_closed).ok()?);
    // SAFETY: the caller has a pool or a buffer of it.
    let cache = ManuallyDrop::new(Inner::cache(pool, unsafe { pool.as_ref() }).ok()?);
    let entry = Entry {
        pool: pool.as_ptr().cast_const().cast(),
        node: cache.node,
        // SAFETY: the entry is of a pool of this type, which its cache keeps alive.
        is_closed: |pool| unsafe { (*pool.cast::<Inner<D>>()).is_closed() },
        // SAFETY: as above; the cache was made here, and is dropped once.
        end: |pool, node| unsafe {
            drop(BufferCache { inner: NonNull::new_unchecked(pool.cast_mut().cast::<Inner<D>>()), node });
        },
    };
    let node = entry.node;
    let insert = |caches: &Caches| {
        let mut entries = caches.0.try_borrow_mut().ok()?;
        entries.try_reserve(1).ok()?;
        entries.push(entry);
        Some(node)
    };
    let node = CACHES.try_with(insert).ok().flatten();
    if node.is_none() {
        drop(ManuallyDrop::into_inner(cache));
    }
    node
}

/// Takes the caches of closed pools out of a list.
fn take_closed(mut entries: RefMut<'_, Vec<Entry>>) -> Vec<Entry> {
    let mut closed = Vec::new();
    let mut i = 0;
    while i < entries.len() {
        // SAFETY: the entry's own pool.
        let is_closed = unsafe { (entries[i].is_closed)(entries[i].pool) };
        // Without memory for the list of those that go, they go another time.
        if is_closed && closed.try_reserve(1).is_ok() {
            closed.push(entries.swap_remove(i));
        } else {
            i += 1;
        }
    }
    closed
}
