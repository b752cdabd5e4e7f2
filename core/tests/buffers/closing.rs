//! The end of a pool: when the device's memory goes back, and when the books do.

use crate::common::devices::{KEPT, LedgerDevice};
use crate::world::{Buffer, Cache, Figures, PAGE, Pool, World, class, classes, free, id, some, take};
use slicepool_core::{BufferPoolConfig, DeviceFault, Error, HostDevice};

fn two_classes() -> BufferPoolConfig {
    classes(&[(PAGE, 4), (1 << 16, 4)]).with_max_thread_cache_capacity(some(4))
}

/// Calls `each` with every order of `0..count`.
fn orders(count: usize, mut each: impl FnMut(&[usize])) {
    fn extend(order: &mut Vec<usize>, count: usize, each: &mut impl FnMut(&[usize])) {
        if order.len() == count {
            return each(order);
        }
        for next in 0..count {
            if !order.contains(&next) {
                order.push(next);
                extend(order, count, each);
                order.pop();
            }
        }
    }
    extend(&mut Vec::new(), count, &mut each);
}

/// What is dropped in some order.
#[allow(dead_code, reason = "what is in it is only dropped")]
enum Part<'a> {
    Pool(Pool<'a>),
    Buffer(Buffer<'a>),
    Cache(Cache<'a>),
}

#[test]
fn in_every_order_memory_goes_back_with_the_last_buffer_and_the_books_with_the_last_of_all() {
    const PARTS: usize = 7;
    let mut number = 0;
    orders(PARTS, |order| {
        number += 1;
        if cfg!(miri) && number % 397 != 0 {
            return;
        }
        let world = World::new();
        let pool = world.pool(two_classes());
        let (mut full, empty) = (pool.cache().unwrap(), pool.cache().unwrap());
        for buffer in take(&pool, PAGE, 2) {
            full.release(buffer);
        }
        let (page, large) = (pool.try_alloc(PAGE).unwrap(), pool.try_alloc(1 << 16).unwrap());
        let slabs = world.device.bytes();
        let beyond = pool.alloc(100_000).unwrap();
        let page_of_its_own = world.device.bytes() - slabs;
        assert!(page_of_its_own >= 100_000);
        let mut parts = [
            Part::Pool(pool.clone()),
            Part::Pool(pool),
            Part::Buffer(page),
            Part::Buffer(large),
            Part::Buffer(beyond),
            Part::Cache(full),
            Part::Cache(empty),
        ]
        .map(Some);
        for &dropped in order {
            parts[dropped] = None;
            let there = |part: usize| parts[part].is_some();
            let open = there(0) || there(1);
            let held = open || there(2) || there(3) || there(4) || there(5);
            let expected = if held { slabs } else { 0 } + if there(4) { page_of_its_own } else { 0 };
            assert_eq!(world.device.bytes(), expected, "{dropped} of {order:?}");
            assert_eq!(world.host.bytes() == 0, !(0..PARTS).any(there), "{dropped} of {order:?}");
        }
        world.device.assert_all_returned();
        world.host.assert_all_returned();
    });
    assert_eq!(number, 5040);
}

/// The same where buffers go into caches of a pool that may be gone.
#[test]
fn in_every_order_a_cache_keeps_nothing_that_it_gets_after_its_pool_is_gone() {
    #[derive(Debug, PartialEq)]
    enum Step {
        DropPool,
        ReleaseInto(usize),
        DropCache(usize),
    }
    orders(5, |order| {
        if cfg!(miri) && (order[0] + 2 * order[1] + order[2]) % 5 != 0 {
            return;
        }
        let world = World::new();
        let mut pool = Some(world.pool(two_classes()));
        let mut caches = [(); 2].map(|()| pool.as_ref().unwrap().cache().ok());
        let mut buffers = take(pool.as_ref().unwrap(), PAGE, 2);
        let mut in_caches = [0, 0];
        for &step in order {
            let step = match step {
                0 => Step::DropPool,
                1 | 2 => Step::ReleaseInto(step - 1),
                _ => Step::DropCache(step - 3),
            };
            match step {
                Step::DropPool => pool = None,
                Step::ReleaseInto(cache) => {
                    let buffer = buffers.pop().unwrap();
                    match &mut caches[cache] {
                        Some(cache) => cache.release(buffer),
                        None => drop(buffer),
                    }
                    // A cache of a pool that is gone gives back what it had, too.
                    let kept = caches[cache].is_some() && pool.is_some();
                    in_caches[cache] = if kept { in_caches[cache] + 1 } else { 0 };
                }
                Step::DropCache(cache) => {
                    caches[cache] = None;
                    in_caches[cache] = 0;
                }
            }
            let out = buffers.len() + in_caches[0] + in_caches[1];
            assert_eq!(world.device.bytes() == 0, pool.is_none() && out == 0, "{step:?} of {order:?}");
            for (cache, count) in caches.iter().zip(in_caches) {
                assert_eq!(cache.as_ref().map_or(0, |cache| cache.len_of(PAGE)) as usize, count, "{order:?}");
            }
            let all_gone = pool.is_none() && buffers.is_empty() && caches.iter().all(Option::is_none);
            assert_eq!(world.host.bytes() == 0, all_gone, "{step:?} of {order:?}");
        }
    });
}

#[test]
fn a_closed_pool_hands_out_nothing_but_empty_buffers_and_makes_no_caches() {
    let world = World::new();
    let pool = world.pool(two_classes().with_pool_min_size(100));
    let mut cache = pool.cache().unwrap();
    drop(take(&pool, PAGE, 3));
    assert!(!pool.is_closed());
    pool.close();
    pool.close();
    assert!(pool.is_closed() && pool.clone().is_closed());
    // Free buffers, ones to be created, beyond the ceiling, below the least size.
    for size in [PAGE, 1 << 16, 50] {
        assert_eq!(pool.try_alloc(size).unwrap_err(), Error::Closed, "{size}");
        assert_eq!(pool.alloc(size).unwrap_err(), Error::Closed);
        assert_eq!(pool.try_alloc_zeroed(size).unwrap_err(), Error::Closed);
        assert_eq!(pool.take(size, true, false).unwrap_err(), Error::Closed);
        assert_eq!(cache.try_alloc(size).unwrap_err(), Error::Closed);
        assert_eq!(cache.alloc(size).unwrap_err(), Error::Closed);
        assert_eq!(cache.take(size, false, true).unwrap_err(), Error::Closed);
    }
    assert_eq!(pool.alloc(1 << 20).unwrap_err(), Error::Closed);
    assert_eq!(pool.cache().map(drop).unwrap_err(), Error::Closed);
    assert_eq!((pool.try_alloc(0).unwrap().capacity(), class(&pool, PAGE).exhausted), (0, 0));
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn an_empty_pool_gives_its_memory_back_when_it_is_closed() {
    let world = World::new();
    let pool = world.pool(two_classes());
    drop(take(&pool, PAGE, 3));
    drop(pool.try_alloc(1 << 16).unwrap());
    let cache = pool.cache().unwrap();
    assert_ne!(world.device.bytes(), 0);
    pool.close();
    assert_eq!((world.device.bytes(), pool.statistics().reserved), (0, 0));
    drop(cache);
    drop(pool);
}

/// Scenario 54.
#[test]
fn the_last_return_to_a_closed_pool_frees_everything_and_what_is_out_stays_as_it_is() {
    let world = World::new();
    let pool = world.pool(two_classes());
    let mut cache = pool.cache().unwrap();
    let mut out = take(&pool, PAGE, 3);
    out.iter_mut().enumerate().for_each(|(index, buffer)| buffer.resize(PAGE, index as u8));
    cache.release(out.pop().unwrap());
    let raw = pool.try_alloc(1 << 16).unwrap().into_raw();
    let bytes = world.device.bytes();
    pool.close();
    assert_eq!((world.device.bytes(), cache.len_of(PAGE)), (bytes, 1));
    assert_eq!(pool.get(id(&raw)), Ok(raw));
    for (index, buffer) in out.iter().enumerate() {
        assert!(buffer.len() == PAGE && buffer.iter().all(|&byte| byte == index as u8));
    }
    cache.release(out.pop().unwrap());
    assert_eq!((world.device.bytes(), cache.len_of(PAGE)), (bytes, 0), "neither this one nor the other is kept");
    let adopted = pool.adopt(id(&raw)).unwrap();
    drop(out);
    assert_eq!(world.device.bytes(), bytes);
    drop(adopted);
    assert_eq!(world.device.bytes(), 0);
    assert_eq!(pool.release(id(&raw)), Err(Error::StaleHandle));
    assert!(world.host.bytes() > 0);
    drop(pool);
    drop(cache);
    assert_eq!(world.host.bytes(), 0);
}

/// A cache of a closed pool drains whatever its owner does next.
#[test]
fn a_cache_of_a_closed_pool_drains_at_its_next_use_of_any_kind() {
    let mut faults = Vec::new();
    let kinds = ["try_alloc", "other class", "alloc", "zeroed", "take", "release", "release_raw", "flush", "drop"];
    for kind in kinds {
        let world = World::new();
        let pool = world.pool(two_classes());
        let mut cache = pool.cache().unwrap();
        let mut out = take(&pool, PAGE, 4);
        let last = out.pop().unwrap();
        out.into_iter().for_each(|buffer| cache.release(buffer));
        let mut last = Some(last);
        if !kind.starts_with("release") {
            last = None;
        }
        pool.close();
        assert_ne!(world.device.bytes(), 0);
        match kind {
            "try_alloc" => assert_eq!(cache.try_alloc(PAGE).unwrap_err(), Error::Closed),
            "other class" => assert_eq!(cache.try_alloc(PAGE + 1).unwrap_err(), Error::Closed),
            "alloc" => assert_eq!(cache.alloc(PAGE).unwrap_err(), Error::Closed),
            "zeroed" => assert_eq!(cache.alloc_zeroed(PAGE).unwrap_err(), Error::Closed),
            "take" => assert_eq!(cache.take(PAGE, true, false).unwrap_err(), Error::Closed),
            "release" => cache.release(last.take().unwrap()),
            "release_raw" => cache.release_raw(id(&last.take().unwrap().into_raw())).unwrap(),
            "flush" => cache.flush(),
            _ => drop(cache),
        }
        if world.device.bytes() != 0 {
            faults.push(kind);
        }
        assert_eq!(pool.check(), Ok(()));
    }
    assert_eq!(faults, [] as [&str; 0], "after these the cache still held buffers");
}

#[test]
fn a_pool_is_closed_with_its_last_owner_and_not_before() {
    let world = World::new();
    let pool = world.pool(two_classes());
    let others = [pool.clone(), pool.clone(), pool.clone()];
    drop(pool.try_alloc(PAGE).unwrap());
    drop(pool);
    for pool in others {
        assert!(!pool.is_closed() && world.device.bytes() != 0);
        assert!(pool.try_alloc(PAGE).is_ok());
    }
    assert_eq!(world.device.bytes(), 0);
}

#[test]
fn what_is_parked_in_a_cache_outlives_the_pool_until_the_cache_goes() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 2)]));
    let mut cache = pool.cache().unwrap();
    for buffer in take(&pool, PAGE, 2) {
        cache.release(buffer);
    }
    assert_eq!((cache.len_of(PAGE), free(&pool, PAGE), class(&pool, PAGE).created), (1, 1, 2));
    drop(pool);
    assert_eq!((cache.len_of(PAGE), world.device.pages()), (1, 1));
    drop(cache);
    assert_eq!((world.device.pages(), world.host.bytes()), (0, 0));
}

/// Buffers that go back together, several of a word of the freelist's.
#[test]
fn a_cache_full_of_buffers_gives_all_of_them_back_to_a_closed_pool() {
    for kind in ["flush", "drop", "release", "raw"] {
        let world = World::new();
        let pool = world.pool(classes(&[(64, 200), (PAGE, 30)]).with_max_thread_cache_capacity(some(200)));
        let mut cache = pool.cache().unwrap();
        let mut out = take(&pool, 64, 200);
        out.extend(take(&pool, PAGE, 30));
        let last = out.pop().unwrap();
        out.into_iter().for_each(|buffer| cache.release(buffer));
        let last = if kind == "release" { Ok(last) } else { Err(id(&last.into_raw())) };
        pool.close();
        assert_eq!(world.device.pages(), 2);
        match (kind, last) {
            ("release", Ok(buffer)) => cache.release(buffer),
            ("raw", Err(raw)) => cache.release_raw(raw).unwrap(),
            (kind, raw) => {
                pool.release(raw.unwrap_err()).unwrap();
                assert_eq!(world.device.pages(), 2);
                if kind == "flush" { cache.flush() } else { drop(cache) }
            }
        }
        assert_eq!((world.device.pages(), pool.check()), (0, Ok(())), "{kind}");
        assert_eq!((free(&pool, 64), free(&pool, PAGE)), (200, 30));
    }
}

#[test]
fn a_buffer_outlives_its_pool_and_can_be_read_and_written() {
    let world = World::new();
    let pool = world.pool(two_classes());
    let mut buffer = pool.try_alloc(PAGE).unwrap();
    buffer.extend_from_slice(b"before");
    drop(pool);
    assert_eq!(&buffer[..], b"before");
    buffer.extend_from_slice(b" and after");
    assert_eq!((&buffer[..], buffer.capacity(), buffer.is_tracked()), (&b"before and after"[..], PAGE, true));
    drop(buffer);
    assert_eq!((world.device.pages(), world.host.bytes()), (0, 0));
}

/// There is no owner left that a raw buffer could be released to: it is the caches that can.
#[test]
fn a_raw_buffer_can_be_released_through_a_cache_after_the_pool_is_gone() {
    let world = World::new();
    let pool = world.pool(two_classes());
    let mut cache = pool.cache().unwrap();
    let (raw, beyond) = (pool.take(PAGE, false, false).unwrap(), pool.take(1 << 20, true, false).unwrap());
    drop(pool);
    assert_eq!(world.device.pages(), 2);
    assert_eq!(cache.release_raw(id(&raw)), Ok(()));
    assert_eq!(cache.release_raw(id(&raw)), Err(Error::StaleHandle));
    assert_eq!(world.device.pages(), 2);
    assert_eq!(cache.release_raw(id(&beyond)), Ok(()));
    assert_eq!(world.device.pages(), 0);
    assert_eq!(cache.release_raw(id(&beyond)), Err(Error::StaleHandle));
}

#[test]
fn figures_of_a_closed_pool_are_right() {
    let world = World::new();
    let pool = world.pool(two_classes());
    let mut cache = pool.cache().unwrap();
    let mut out = take(&pool, PAGE, 4);
    cache.release(out.pop().unwrap());
    drop(out.pop());
    let before = Figures::of(&pool);
    pool.close();
    assert_eq!(Figures::of(&pool), before);
    cache.flush();
    let figures = class(&pool, PAGE);
    assert_eq!((figures.created, figures.in_use, figures.cached, figures.free), (4, 2, 0, 2));
    assert_eq!((pool.check(), pool.regions().count()), (Ok(()), 1));
    drop(out);
    assert_eq!((class(&pool, PAGE).in_use, class(&pool, PAGE).free, pool.check()), (0, 4, Ok(())));
}

// ---- devices that take nothing back

#[test]
fn memory_that_the_device_does_not_take_back_is_offered_again_when_the_last_owner_goes() {
    let world = World::new();
    let pool = world.pool(two_classes());
    let cache = pool.cache().unwrap();
    drop((pool.try_alloc(PAGE).unwrap(), pool.try_alloc(1 << 16).unwrap()));
    world.device.keep_everything(true);
    pool.close();
    assert_eq!((world.device.pages(), world.device.deallocate_refused()), (2, 2));
    drop(pool);
    world.device.keep_everything(false);
    drop(cache);
    assert_eq!((world.device.pages(), world.host.bytes()), (0, 0));
}

#[test]
fn a_page_of_an_untracked_buffer_that_is_not_taken_back_is_offered_again_later() {
    let world = World::new();
    let pool = world.pool(two_classes());
    world.device.keep_everything(true);
    drop(pool.alloc(1 << 20).unwrap());
    assert_eq!((pool.statistics().untracked, world.device.pages()), (0, 1));
    world.device.keep_everything(false);
    drop(pool.alloc(1 << 20).unwrap());
    assert_eq!(world.device.pages(), 0);
}

// ---- destroy

#[allow(clippy::result_large_err, reason = "as the function itself")]
fn destroy(pool: Pool<'_>) -> Result<(), (Pool<'_>, Error)> {
    // SAFETY: without force.
    unsafe { pool.destroy(false) }
}

#[test]
fn destroy_is_busy_while_buffers_or_caches_exist_and_hands_the_pool_back() {
    let world = World::new();
    let pool = world.pool(two_classes());
    let mut cache = pool.cache().unwrap();
    let (page, large) = (pool.try_alloc(PAGE).unwrap(), pool.try_alloc(1 << 16).unwrap());
    let raw = pool.alloc(1 << 20).unwrap().into_raw();
    let (pool, error) = destroy(pool).unwrap_err();
    assert!(matches!(error, Error::Busy { live: 3, pending: 0, in_flight: 1, .. }), "{error:?}");
    assert!(!pool.is_closed(), "a refused call has changed nothing");
    cache.release(page);
    drop(large);
    // What is in caches is not free, so that it counts as live.
    let (pool, error) = destroy(pool).unwrap_err();
    assert!(matches!(error, Error::Busy { in_flight: 1, .. }), "{error:?}");
    drop(cache);
    let (pool, error) = destroy(pool).unwrap_err();
    assert!(matches!(error, Error::Busy { live: 1, in_flight: 0, .. }), "{error:?}");
    assert!(pool.try_alloc(PAGE).is_ok());
    pool.release(id(&raw)).unwrap();
    destroy(pool).unwrap();
    assert_eq!((world.device.pages(), world.host.bytes()), (0, 0));
}

#[test]
fn force_destroys_a_pool_with_buffers_out_but_not_with_caches() {
    for closed in [false, true] {
        let world = World::new();
        let pool = world.pool(two_classes());
        let raws = [PAGE, 1 << 16, 1 << 20].map(|size| pool.take(size, true, false).unwrap());
        drop(pool.try_alloc(PAGE).unwrap());
        let cache = pool.cache().unwrap();
        if closed {
            pool.close();
        }
        // SAFETY: nobody uses a buffer, and there is no owner of one.
        let (pool, error) = unsafe { pool.destroy(true) }.unwrap_err();
        assert!(matches!(error, Error::Busy { live: 3, in_flight: 1, .. }), "{error:?}");
        assert_eq!((pool.is_closed(), world.device.pages()), (closed, 3));
        assert_eq!(pool.get(id(&raws[0])), Ok(raws[0]));
        drop(cache);
        // SAFETY: as above.
        assert!(unsafe { pool.destroy(true) }.is_ok());
        assert_eq!((world.device.pages(), world.host.bytes()), (0, 0));
    }
}

#[test]
fn destroy_tells_that_the_device_keeps_memory_and_can_be_tried_again() {
    let world = World::new();
    let pool = world.pool(two_classes());
    drop((pool.try_alloc(PAGE).unwrap(), pool.try_alloc(1 << 16).unwrap()));
    world.device.keep_everything(true);
    // SAFETY: without force.
    let (pool, error) = unsafe { pool.destroy(false) }.unwrap_err();
    assert_eq!(error, Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT });
    assert_eq!(world.device.pages(), 2);
    world.device.keep_everything(false);
    // SAFETY: without force.
    assert!(unsafe { pool.destroy(false) }.is_ok());
    assert_eq!((world.device.pages(), world.host.bytes()), (0, 0));
}

#[test]
fn destroy_of_a_pool_that_is_closed_and_empty_succeeds() {
    let world = World::new();
    let pool = world.pool(two_classes());
    drop(pool.try_alloc(PAGE).unwrap());
    pool.close();
    // SAFETY: without force.
    assert!(unsafe { pool.destroy(false) }.is_ok());
    let unused = world.pool(two_classes());
    // SAFETY: without force.
    assert!(unsafe { unused.destroy(false) }.is_ok());
    assert_eq!(world.host.bytes(), 0);
}

// ---- abandon

#[test]
fn an_abandoned_pool_says_nothing_to_the_device_and_frees_its_books() {
    for closed in [false, true] {
        let world = World::new();
        let pool = world.pool(two_classes());
        pool.take(PAGE, false, false).unwrap();
        pool.take(1 << 20, true, false).unwrap();
        drop(pool.try_alloc(1 << 16).unwrap());
        let (other, cache) = (pool.clone(), pool.cache().unwrap());
        if closed {
            pool.close();
        }
        // SAFETY: nobody uses a buffer, and there is no owner of one.
        let (pool, error) = unsafe { pool.abandon() }.unwrap_err();
        assert!(matches!(error, Error::Busy { in_flight: 2, .. }), "{error:?}");
        drop((other, cache));
        let calls = world.device.calls();
        // SAFETY: as above.
        assert!(unsafe { pool.abandon() }.is_ok());
        assert_eq!((world.device.calls(), world.device.pages(), world.host.bytes()), (calls, 3, 0));
        world.device.write_off();
    }
}

#[test]
fn a_pool_whose_memory_has_gone_back_can_be_abandoned() {
    let world: World<LedgerDevice<HostDevice>> = World::new();
    let pool = world.pool(two_classes());
    drop(pool.try_alloc(PAGE).unwrap());
    pool.close();
    assert_eq!(world.device.pages(), 0);
    // SAFETY: there is no buffer.
    assert!(unsafe { pool.abandon() }.is_ok());
    assert_eq!(world.host.bytes(), 0);
}

#[test]
fn a_pool_that_cannot_go_tells_the_bytes_that_are_out_those_beyond_the_classes_too() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 3)]));
    let (page, beyond, other) =
        (pool.try_alloc(PAGE).unwrap(), pool.alloc(2 * PAGE + 5), pool.alloc(3 * PAGE).unwrap());
    drop(other);
    let (pool, error) = destroy(pool).unwrap_err();
    let in_use = 3 * PAGE as u64 + 5;
    assert_eq!(error, Error::Busy { live: 2, pending: 0, in_use, in_flight: 0 });
    drop(beyond);
    let (pool, error) = destroy(pool).unwrap_err();
    assert_eq!(error, Error::Busy { live: 1, pending: 0, in_use: PAGE as u64, in_flight: 0 });
    drop(page);
    destroy(pool).unwrap();
}
