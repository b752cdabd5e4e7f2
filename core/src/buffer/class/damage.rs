//! Damage to the books of a class, and of a pool of one, that [`BufferPool::check`] must notice.

use super::super::BufferPool;
use super::super::config::BufferPoolConfig;
use super::*;
use core::num::{NonZeroU32, NonZeroUsize};
use std::vec::Vec;

const SIZE: usize = 64 << 10;

/// A class of 11 buffers, of which four fit on a slab and five were created.
fn pool() -> BufferPool {
    let size = NonZeroUsize::new(SIZE).unwrap();
    let config = BufferPoolConfig::default().with_size_classes([(size, NonZeroU32::new(11).unwrap())]);
    let pool = BufferPool::try_new(config.with_max_thread_cache_capacity(NonZeroUsize::MIN)).unwrap();
    let out: Vec<_> = (0..5).map(|_| pool.try_alloc(SIZE).unwrap()).collect();
    drop(out);
    assert_eq!(pool.check(), Ok(()));
    pool
}

fn class_of(pool: &BufferPool) -> &Class {
    &pool.inner().classes.as_slice()[0]
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn room_that_is_reserved_is_that_of_the_slabs_and_of_those_on_their_way() {
    let pool = pool();
    let class = class_of(&pool);
    for (growing, reserved, is_right) in [
        (0, 8, true),
        (0, 7, false),
        (0, 9, false),
        (0, 11, false),
        (1, 7, false),
        (1, 8, true),
        (1, 9, true),
        (1, 11, true),
        (1, 12, false),
    ] {
        class.growing.store(growing, Ordering::Relaxed);
        class.carving.lock().reserved = reserved;
        assert_eq!(pool.check().is_ok(), is_right, "{growing} {reserved}");
    }
    class.growing.store(0, Ordering::Relaxed);
    class.carving.lock().reserved = 8;
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_slab_whose_room_is_not_known_or_not_there_is_noticed() {
    let pool = pool();
    let class = class_of(&pool);
    let [full, other] = class.slabs().collect::<Vec<_>>()[..] else { panic!("not two slabs") };
    assert_eq!((full.count, other.count, class.carving.lock().room), (4, 4, 1));
    for (slab, right) in [(full, 4), (other, 1)] {
        for wrong in (0..6).filter(|&wrong| wrong != right) {
            slab.carved.store(wrong, Ordering::Relaxed);
            assert!(pool.check().is_err(), "{wrong}");
        }
        slab.carved.store(right, Ordering::Relaxed);
    }
    for wrong in [0, 2, NONE] {
        class.carving.lock().room = wrong;
        assert!(pool.check().is_err(), "{wrong}");
    }
    class.carving.lock().room = 1;
    for wrong in [0, 1] {
        other.next.store(wrong, Ordering::Relaxed);
        assert!(pool.check().is_err(), "{wrong}");
    }
    other.next.store(NONE, Ordering::Relaxed);
    // As many are carved as were created, but not where the list says.
    full.carved.store(3, Ordering::Relaxed);
    other.carved.store(2, Ordering::Relaxed);
    assert!(pool.check().is_err());
    full.next.store(1, Ordering::Relaxed);
    class.carving.lock().room = 0;
    assert_eq!(pool.check(), Ok(()));
    full.next.store(NONE, Ordering::Relaxed);
    assert!(pool.check().is_err());
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn what_a_stripe_does_not_agree_with_itself_or_its_class_about_is_noticed() {
    let pool = pool();
    let class = class_of(&pool);
    let (_, hint) = class.stripe(0);
    let right = hint.swap(0, Ordering::Relaxed);
    assert!(pool.check().is_err());
    hint.store(right, Ordering::Relaxed);
    assert_eq!(pool.check(), Ok(()));
    // A class of one buffer less with the same stripes.
    let plan =
        |limit| Plan { index: 0, size_log2: 6, limit, cache_capacity: 0, stripes: 8, tag: 1, max_page: u64::MAX };
    for limit in [11, 12] {
        let mut class = Class::try_new(&plan(limit), HostMemory::global(), LockKind::spin()).unwrap();
        assert_eq!(class.check(), Ok(()));
        class.configured += 1;
        assert!(class.check().is_err());
        class.configured -= 2;
        assert!(class.check().is_err());
    }
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_buffer_that_is_free_and_in_a_cache_is_noticed() {
    let pool = pool();
    let class = class_of(&pool);
    let mut cache = pool.cache().unwrap();
    let out: Vec<_> = (0..5).map(|_| pool.try_alloc(SIZE).unwrap()).collect();
    assert_eq!(pool.check(), Ok(()));
    let slots: Vec<_> = out.into_iter().map(|buffer| buffer.into_slot().unwrap()).collect();
    for slot in &slots[1..] {
        // SAFETY: slots live as long as the pool.
        class.put(unsafe { slot.as_ref() });
    }
    // SAFETY: as above; it was taken out of the pool.
    let first = unsafe { slots[0].as_ref() };
    let id = first.issue();
    cache.release_raw(id).unwrap();
    // All that is out is in the cache.
    assert_eq!((cache.len_of(SIZE), pool.check()), (1, Ok(())));
    class.put(first);
    assert_eq!(pool.check(), Err("more buffers are free or cached than there are"));
    let mut taken = Vec::new();
    class.take(0, 5, |slot| taken.push(NonNull::from(slot)));
    assert_eq!((taken.len(), pool.check()), (5, Ok(())));
    taken.retain(|slot| *slot != slots[0]);
    class.put_many(taken.into_iter());
    assert_eq!(pool.check(), Ok(()));
}
