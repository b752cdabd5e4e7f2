//! Damage to the books of a stripe, one field at a time, that [`Stripe::check`] must notice.

use super::tests::{end, with_buffers};
use super::*;
use std::vec::Vec;

/// Buffers in chunks with one, two and three levels, the last of them with more than one word of the second.
const MANY: u32 = if cfg!(miri) { 300 } else { 9000 };

/// A stripe with some of its buffers free.
fn with_some_free(count: u32) -> (Stripe, AtomicU32) {
    let (stripe, hint) = with_buffers(count);
    for position in (0..count).filter(|position| position % 7 < 3 || position / 64 % 3 == 0) {
        // Some leaves have none.
        if position / 64 % 5 != 1 {
            let (leaf, bit) = Leaf::of(position);
            assert!(!stripe.put(leaf, bit, 1, &hint));
        }
    }
    assert_eq!(stripe.check(&hint), Ok(()));
    (stripe, hint)
}

/// Whether the damage that `change` does twice, the second time undoing it, is noticed.
fn is_noticed(stripe: &Stripe, hint: &AtomicU32, mut change: impl FnMut(&mut Free)) -> bool {
    change(&mut stripe.free.lock());
    let noticed = stripe.check(hint).is_err();
    change(&mut stripe.free.lock());
    assert_eq!(stripe.check(hint), Ok(()));
    noticed
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_wrong_bit_of_any_level_is_noticed() {
    for count in [1, 40, MANY] {
        let (stripe, hint) = with_some_free(count);
        for chunk in 0..CHUNKS {
            assert!(is_noticed(&stripe, &hint, |free| free.chunks ^= 1 << chunk), "{count}: {chunk}");
            if stripe.free.lock().words[chunk].is_none() {
                continue;
            }
            for index in 0..bits_of(chunk) / size_of::<u64>() {
                // Every bit of a few words, and some of all.
                for bit in (0..64).step_by(if index < 3 || index + 4 > leaves(chunk) { 1 } else { 21 }) {
                    let flip = |free: &mut Free| {
                        // SAFETY: a word of a chunk that is there; the lock is held.
                        unsafe { *free.word(chunk as u32, index).as_mut() ^= 1 << bit };
                    };
                    assert!(is_noticed(&stripe, &hint, flip), "{count}: {chunk} {index} {bit}");
                }
            }
        }
        assert!(is_noticed(&stripe, &hint, |free| free.chunks ^= 1 << CHUNKS), "{count}");
        end(&stripe);
    }
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_wrong_count_of_a_stripe_is_noticed() {
    let (stripe, hint) = with_buffers(20);
    let (leaf, _) = Leaf::of(0);
    stripe.put(leaf, 0b11_1111, 6, &hint);
    for change in [-1, 1, 6] {
        stripe.free.lock().free = 6u32.wrapping_add_signed(change);
        assert!(stripe.check(&hint).is_err(), "{change}");
    }
    stripe.free.lock().free = 6;
    // So many may have worn out; more than there are cannot.
    for retired in 0..=14 {
        stripe.free.lock().retired = retired;
        assert_eq!(stripe.check(&hint), Ok(()));
    }
    for retired in [15, 20, 100] {
        stripe.free.lock().retired = retired;
        assert_eq!(stripe.check(&hint), Err("a stripe has more buffers than it may have"));
    }
    stripe.free.lock().retired = 0;
    end(&stripe);
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn more_buffers_than_a_stripe_may_have_are_noticed_also_when_they_are_only_promised() {
    let (stripe, hint) = with_buffers(20);
    for (limit, promised) in [(20, 0), (25, 5), (21, 1)] {
        let mut free = stripe.free.lock();
        (free.limit, free.promised) = (limit, promised);
        drop(free);
        assert_eq!(stripe.check(&hint), Ok(()));
        // That there is no room is as right as before.
        stripe.free.lock().promised += 1;
        assert_eq!(stripe.check(&hint), Err("a stripe has more buffers than it may have"));
        stripe.free.lock().promised -= 1;
        // There is.
        stripe.free.lock().limit += 1;
        assert_eq!(stripe.check(&hint), Err("the hint of a stripe is wrong"));
    }
    end(&stripe);
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_wrong_hint_of_a_stripe_is_noticed() {
    let with = |limit: u32, is_free: bool, closed: bool| {
        let (stripe, hint) = with_buffers(3);
        if is_free {
            stripe.put(Leaf::of(1).0, Leaf::of(1).1, 1, &hint);
        }
        let mut free = stripe.free.lock();
        (free.limit, free.closed) = (limit, closed);
        stripe.tell(&mut free, &hint);
        drop(free);
        (stripe, hint)
    };
    let all: Vec<_> = [3, 4].into_iter().flat_map(|limit| [(limit, false), (limit, true)]).collect();
    for (limit, is_free) in all {
        for closed in [false, true] {
            let (stripe, hint) = with(limit, is_free, closed);
            let right = u32::from(is_free && !closed) * FREE + u32::from(limit == 4 && !closed) * ROOM;
            assert_eq!((hint.load(Ordering::Relaxed), stripe.check(&hint)), (right, Ok(())));
            for wrong in (0..8).filter(|&wrong| wrong != right) {
                hint.store(wrong, Ordering::Relaxed);
                assert!(stripe.check(&hint).is_err(), "{limit} {is_free} {closed}: {wrong}");
                // Also where what stands under the lock says the same.
                stripe.free.lock().room = wrong & ROOM;
                assert!(stripe.check(&hint).is_err(), "{limit} {is_free} {closed}: {wrong}");
                stripe.free.lock().room = right & ROOM;
            }
            hint.store(right, Ordering::Relaxed);
            // What stands under the lock alone.
            assert!(is_noticed(&stripe, &hint, |free| free.room ^= ROOM));
            end(&stripe);
        }
    }
}
