//! Handles: each names one buffer once, and everything else is refused.

use crate::common::random::Random;
use crate::world::{Figures, PAGE, Pool, World, classes, free, id, rounds, some};
use slicepool_core::{BufferId, BufferPoolConfig, Error, RawBuffer};
use std::collections::HashSet;

fn two_classes() -> BufferPoolConfig {
    classes(&[(64, 50), (PAGE, 20)]).with_max_thread_cache_capacity(some(8))
}

/// A pool with buffers out of every kind, free ones, used ones and ones in a cache.
fn populate(pool: &Pool<'_>) -> Vec<RawBuffer> {
    let mut live = Vec::new();
    for round in 0..40 {
        let size = [64, PAGE][round % 2];
        let raw = pool.take(size, false, false).unwrap();
        if round % 3 == 0 {
            pool.release(id(&raw)).unwrap();
        } else {
            live.push(raw);
        }
    }
    live.push(pool.take(3 * PAGE, true, false).unwrap());
    let gone = pool.take(5 * PAGE, true, false).unwrap();
    pool.release(id(&gone)).unwrap();
    live
}

/// Every call that takes a handle refuses this one, and nothing changes.
fn assert_refused(pool: &Pool<'_>, handle: BufferId, expected: Option<Error>) {
    let mut cache = pool.cache().unwrap();
    let before = Figures::of(pool);
    let answers = [
        pool.get(handle).map(drop),
        pool.release(handle),
        cache.release_raw(handle),
        pool.adopt(handle).map(drop),
        pool.release(handle),
    ];
    for answer in answers {
        match (answer, expected) {
            (Err(error), Some(expected)) => assert_eq!(error, expected, "{handle:?}"),
            (Err(Error::StaleHandle | Error::ForeignHandle), None) => {}
            other => panic!("{handle:?}: {other:?}"),
        }
    }
    assert_eq!(Figures::of(pool), before, "{handle:?}");
}

#[test]
fn a_buffer_released_twice_is_refused_and_nothing_changes() {
    let world = World::new();
    let pool = world.pool(two_classes());
    for raw in populate(&pool) {
        pool.release(id(&raw)).unwrap();
        assert_refused(&pool, id(&raw), Some(Error::StaleHandle));
    }
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn a_handle_is_refused_after_its_buffer_was_handed_out_again() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]));
    for beyond in [false, true] {
        let _hold = beyond.then(|| pool.try_alloc(PAGE).unwrap());
        let old = pool.take(PAGE, beyond, false).unwrap();
        pool.release(id(&old)).unwrap();
        let new = pool.take(PAGE, beyond, false).unwrap();
        assert_ne!(old.id, new.id);
        assert_refused(&pool, id(&old), Some(Error::StaleHandle));
        assert_eq!(pool.get(id(&new)), Ok(new));
        pool.release(id(&new)).unwrap();
    }
}

#[test]
fn no_handle_is_ever_given_twice() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 3)]));
    let mut cache = pool.cache().unwrap();
    let mut seen = HashSet::new();
    for round in 0..rounds(100_000) {
        let raw = if round % 2 == 0 { cache.take(64, false, false) } else { pool.take(64, false, false) }.unwrap();
        assert!(seen.insert(id(&raw)));
        let owner = pool.adopt(id(&raw)).unwrap();
        let again = owner.into_raw();
        assert!(seen.insert(id(&again)), "also one that was given up and taken back");
        if round % 3 == 0 { cache.release_raw(id(&again)) } else { pool.release(id(&again)) }.unwrap();
    }
}

#[test]
fn a_handle_of_another_pool_is_foreign() {
    let world = World::new();
    let (one, other) = (world.pool(two_classes()), world.pool(two_classes()));
    let third = world.pool(classes(&[(32, 4), (128, 4)]));
    let (live, foreign) = (populate(&one), populate(&other));
    assert!(third.take(32, false, false).unwrap().id.is_some());
    for raw in foreign {
        assert_refused(&one, id(&raw), Some(Error::ForeignHandle));
        assert_refused(&third, id(&raw), Some(Error::ForeignHandle));
        assert_eq!(other.release(id(&raw)), Ok(()));
        assert_refused(&one, id(&raw), Some(Error::ForeignHandle));
    }
    for raw in live {
        assert_eq!(one.get(id(&raw)), Ok(raw));
        one.release(id(&raw)).unwrap();
    }
    third.take(128, true, false).unwrap();
    for pool in [one, other, third] {
        // SAFETY: nobody uses a buffer any more.
        unsafe { pool.destroy(true) }.unwrap();
    }
}

#[test]
fn forged_handles_are_refused_and_nothing_changes() {
    let world = World::new();
    let pool = world.pool(two_classes());
    let raws = populate(&pool);
    let live: HashSet<_> = raws.iter().map(|raw| id(raw).to_raw()).collect();
    let mut forged = Vec::new();
    for &handle in &live {
        forged.extend((0..64).map(|bit| handle ^ 1 << bit));
        forged.extend([handle.wrapping_add(1), handle.wrapping_sub(1), !handle, handle.swap_bytes()]);
    }
    forged.extend(0..1000);
    forged.extend([u64::MAX, u64::MAX - 1, 1 << 63, u64::from(u32::MAX), 63, 62, 12, 6]);
    let mut random = Random::with_seed_or(21);
    forged.extend((0..rounds(100_000)).map(|_| random.any()));
    // Near to what there is: the low bits of a live one, and the high bits of another.
    let all: Vec<_> = live.iter().copied().collect();
    for _ in 0..rounds(10_000) {
        let (one, two) = (all[random.below(all.len() as u64) as usize], random.any());
        let mask = u64::MAX >> random.below(64);
        forged.push(one & mask | two & !mask);
    }
    if cfg!(miri) {
        forged = forged.into_iter().step_by(13).collect();
    }
    let before = Figures::of(&pool);
    let mut cache = pool.cache().unwrap();
    let mut refused = 0;
    for number in forged {
        let Some(handle) = BufferId::from_raw(number) else { continue };
        if live.contains(&number) {
            continue;
        }
        for answer in
            [pool.get(handle).map(drop), pool.release(handle), cache.release_raw(handle), pool.adopt(handle).map(drop)]
        {
            assert!(matches!(answer, Err(Error::StaleHandle | Error::ForeignHandle)), "{number:#x}: {answer:?}");
        }
        refused += 1;
    }
    assert!(refused > 100);
    drop(cache);
    let mut after = Figures::of(&pool);
    after.pool = before.pool;
    assert_eq!((after, pool.check()), (before, Ok(())));
    for raw in raws {
        assert_eq!(pool.get(id(&raw)), Ok(raw));
        pool.release(id(&raw)).unwrap();
    }
    assert_eq!((free(&pool, 64) + free(&pool, PAGE), pool.statistics().untracked), (40 - 13, 0));
}

/// The number of a buffer that the class may have but has not.
#[test]
fn handles_of_buffers_that_were_never_created_are_foreign() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 1000)]));
    let raw = pool.take(64, false, false).unwrap();
    for number in 1..1000 {
        // Numbers lie above the six bits of the class.
        let handle = BufferId::from_raw(id(&raw).to_raw() ^ number << 6).unwrap();
        assert_eq!(pool.release(handle), Err(Error::ForeignHandle), "{number}");
    }
    pool.release(id(&raw)).unwrap();
}

#[test]
fn get_says_what_was_said_when_the_buffer_became_raw() {
    let world = World::new();
    let pool = world.pool(two_classes().with_alignment(some(64)));
    for raw in populate(&pool) {
        assert_eq!(pool.get(id(&raw)), Ok(raw));
        assert_eq!((raw.address, raw.mapped.addr() as u64 % 64), (raw.mapped.addr() as u64, 0));
        assert!(world.device.is_out(raw.memory));
        let owner = pool.adopt(id(&raw)).unwrap();
        assert_eq!((owner.memory(), owner.offset(), owner.capacity() as u64), (raw.memory, raw.offset, raw.capacity));
        assert_eq!((owner.as_ptr(), owner.address(), owner.len()), (raw.mapped.cast_const(), raw.address, 0));
        assert_eq!(owner.is_tracked(), raw.capacity != 3 * PAGE as u64);
    }
}

#[test]
fn while_an_owner_has_the_buffer_no_handle_names_it() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]));
    for size in [PAGE, 2 * PAGE] {
        let raw = pool.take(size, true, false).unwrap();
        let owner = pool.adopt(id(&raw)).unwrap();
        assert_refused(&pool, id(&raw), Some(Error::StaleHandle));
        let again = owner.into_raw();
        assert_refused(&pool, id(&raw), Some(Error::StaleHandle));
        assert_eq!(pool.release(id(&again)), Ok(()));
        // Nor while it is free.
        assert_refused(&pool, id(&again), Some(Error::StaleHandle));
    }
}

/// The handle that a buffer will have next was never given out.
#[test]
fn the_next_handle_of_a_buffer_is_refused_before_it_is_given_out() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]));
    let handles: Vec<_> = (0..3)
        .map(|_| {
            let raw = pool.take(PAGE, false, false).unwrap();
            pool.release(id(&raw)).unwrap();
            id(&raw).to_raw()
        })
        .collect();
    let step = handles[1] - handles[0];
    assert_eq!(handles[2] - handles[1], step);
    let next = BufferId::from_raw(handles[2] + step).unwrap();
    assert_refused(&pool, next, None);
    let owner = pool.try_alloc(PAGE).unwrap();
    assert_refused(&pool, next, None);
    assert_eq!(id(&owner.into_raw()), next);
    assert_eq!(pool.release(next), Ok(()));
}

#[test]
fn handles_stay_good_when_the_pool_is_closed_and_until_they_are_used() {
    let world = World::new();
    let pool = world.pool(two_classes());
    let live = populate(&pool);
    pool.close();
    for raw in &live {
        assert_eq!(pool.get(id(raw)), Ok(*raw));
    }
    for raw in &live {
        assert_ne!(world.device.pages(), 0);
        assert_eq!(pool.release(id(raw)), Ok(()));
        assert_eq!(pool.release(id(raw)), Err(Error::StaleHandle));
    }
    assert_eq!((world.device.pages(), pool.check()), (0, Ok(())));
}

#[test]
fn numbers_and_handles_are_the_same_thing() {
    let world = World::new();
    let pool = world.pool(two_classes());
    let raw = pool.take(64, false, false).unwrap();
    let number = id(&raw).to_raw();
    assert_eq!((BufferId::from_raw(number), BufferId::from_raw(0)), (raw.id, None));
    assert_ne!(number, 0);
    pool.release(BufferId::from_raw(number).unwrap()).unwrap();
}

#[test]
fn owners_and_raw_handles_mix_in_any_order() {
    let world = World::new();
    let pool = world.pool(two_classes());
    let mut cache = pool.cache().unwrap();
    let mut random = Random::with_seed_or(22);
    let (mut owners, mut raws, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds(20_000) {
        let size = [10, 64, 65, PAGE][random.below(4) as usize];
        match random.below(8) {
            0 => owners.extend(pool.try_alloc(size).ok()),
            1 => owners.extend(cache.alloc(size).ok()),
            2 => raws.extend(cache.take(size, false, false).ok()),
            3 if !owners.is_empty() => raws.push(random.take(&mut owners).into_raw()),
            4 if !raws.is_empty() => {
                let raw: RawBuffer = random.take(&mut raws);
                owners.push(pool.adopt(id(&raw)).unwrap());
                gone.push(raw);
            }
            5 if !raws.is_empty() => {
                let raw = random.take(&mut raws);
                if random.below(2) == 0 { cache.release_raw(id(&raw)) } else { pool.release(id(&raw)) }.unwrap();
                gone.push(raw);
            }
            6 if !owners.is_empty() => cache.release(random.take(&mut owners)),
            _ if !owners.is_empty() => drop(random.take(&mut owners)),
            _ => {}
        }
        if let Some(raw) = gone.last() {
            assert_eq!(pool.get(id(raw)), Err(Error::StaleHandle));
        }
        // Nothing is out twice.
        if random.below(50) == 0 {
            let at = owners.iter().map(|owner| (owner.memory(), owner.offset()));
            let places: HashSet<_> = at.chain(raws.iter().map(|raw| (raw.memory, raw.offset))).collect();
            assert_eq!((places.len(), pool.check()), (owners.len() + raws.len(), Ok(())));
            raws.iter().for_each(|raw| assert_eq!(pool.get(id(raw)), Ok(*raw)));
        }
    }
    for raw in raws {
        pool.release(id(&raw)).unwrap();
    }
}
