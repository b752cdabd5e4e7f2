//! What a pool remembers of a device that had no memory: which sizes it need not ask for, and for how long.
#![forbid(unsafe_code)]

use crate::canary::broken;
use crate::error::Error;
use crate::int::align_down;

/// Requests that fail without another device call after the first refusal. Doubles with each further one.
const FIRST_PAUSE: u32 = 64;
const LONGEST_PAUSE: u32 = 1 << 16;

/// Pages that grow are halved down to this size after a refusal.
pub(crate) const LEAST_HALF: u64 = 1 << 20;

/// Everything is forgotten as soon as the allocator has given a page back, or is trimmed: then there may be memory again.
pub(super) struct Refusals {
    /// Bytes of the smallest page that was refused.
    at: u64,
    code: i32,
    /// Requests to fail before the device is asked for such a page again, and how many after the next refusal.
    left: u32,
    next: u32,
    /// The allocator's count of returned pages that all this belongs to.
    returns: u32,
}

impl Refusals {
    pub(super) const fn new() -> Self {
        Self { at: u64::MAX, code: 0, left: 0, next: FIRST_PAUSE, returns: 0 }
    }

    /// Forgets everything if a page was returned since.
    pub(super) fn look_at_returns(&mut self, returns: u32) {
        if self.returns != returns {
            *self = Self { returns, ..Self::new() };
        }
    }

    /// Bytes to ask for where pages may be smaller than `page`, but not than `least`: at most half of what was refused, as
    /// long as that is not too small; then exactly what is needed.
    pub(super) fn shrink(&self, page: u64, least: u64, granule: u64) -> u64 {
        let floor = least.max(align_down(LEAST_HALF, granule)).min(page);
        let mut page = page.min(self.at.max(floor));
        while page >= self.at && page > floor {
            page = align_down(page / 2, granule).max(floor);
        }
        if page >= self.at && !self.asked_for_least() { least } else { page }
    }

    /// Even the smallest page was refused: from then on the device is asked once at a time.
    fn asked_for_least(&self) -> bool {
        self.next != FIRST_PAUSE
    }

    /// Refuses a page without asking the device, for as long as that makes sense.
    pub(super) fn pause(&mut self, page: u64) -> Result<(), Error> {
        if page < self.at || self.left == 0 || broken("ask_for_ever") {
            return Ok(());
        }
        self.left -= 1;
        Err(Error::OutOfDeviceMemory { size: page, code: self.code })
    }

    /// The device had no memory for a page; whether a smaller one should be asked for, `least` being the smallest.
    pub(super) fn note(&mut self, page: u64, least: u64, code: i32) -> bool {
        self.at = self.at.min(page);
        self.code = code;
        if page > least && !self.asked_for_least() {
            return true;
        }
        self.left = self.next;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        false
    }

    /// The device gave a page.
    pub(super) fn note_success(&mut self, page: u64) {
        if page >= self.at {
            *self = Self { returns: self.returns, ..Self::new() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// The sizes a device is asked for that has room for pages of `room` bytes, until it is asked for nothing any more.
    fn asked(refusals: &mut Refusals, page: u64, least: u64, room: u64) -> Vec<u64> {
        let mut asked = Vec::new();
        loop {
            let page = refusals.shrink(page, least, 256);
            if refusals.pause(page).is_err() {
                return asked;
            }
            asked.push(page);
            if page <= room {
                refusals.note_success(page);
                return asked;
            }
            if !refusals.note(page, least, -2) {
                return asked;
            }
        }
    }

    #[test]
    fn pages_are_halved_down_to_a_megabyte_and_then_have_exactly_what_is_needed() {
        let mib = 1 << 20;
        let mut refusals = Refusals::new();
        assert_eq!(asked(&mut refusals, 8 * mib, 512, 3 * mib), [8 * mib, 4 * mib, 2 * mib]);
        // What was refused is not asked for again.
        assert_eq!(asked(&mut refusals, 8 * mib, 512, mib), [2 * mib, mib]);
        assert_eq!(asked(&mut refusals, 8 * mib, 512, 512), [mib, 512]);
        let mut refusals = Refusals::new();
        assert_eq!(asked(&mut refusals, 12 * mib, 5 * mib, 0), [12 * mib, 6 * mib, 5 * mib]);
    }

    #[test]
    fn four_thousand_requests_ask_an_empty_device_a_few_times() {
        let mut refusals = Refusals::new();
        let mut calls = Vec::new();
        for request in 0..4000 {
            for _ in asked(&mut refusals, 8 << 20, 512, 0) {
                calls.push(request);
            }
        }
        assert_eq!(calls, [0, 0, 0, 0, 0, 65, 194, 451, 964, 1989]);
        refusals.look_at_returns(1);
        assert_eq!(asked(&mut refusals, 8 << 20, 512, u64::MAX), [8 << 20]);
    }

    #[test]
    fn a_page_of_the_refused_size_makes_up_for_the_refusal_and_a_smaller_one_does_not() {
        let mib = 1 << 20;
        let mut refusals = Refusals::new();
        refusals.look_at_returns(3);
        assert!(!refusals.note(8 * mib, 8 * mib, -2));
        refusals.note_success(8 * mib - 256);
        assert!(refusals.pause(8 * mib).is_err());
        refusals.note_success(8 * mib);
        assert_eq!((refusals.pause(8 * mib), refusals.shrink(16 * mib, 512, 256)), (Ok(()), 16 * mib));
        // Pages that were returned before have nothing to do with what is refused after it.
        assert!(!refusals.note(8 * mib, 8 * mib, -2));
        refusals.look_at_returns(3);
        assert!(refusals.pause(8 * mib).is_err());
    }

    #[test]
    fn smaller_pages_are_asked_for_all_the_same() {
        let mut refusals = Refusals::new();
        assert!(!refusals.note(1 << 30, 1 << 30, -2));
        assert!(refusals.pause(1 << 30).is_err());
        assert!(refusals.pause((1 << 30) - 256).is_ok());
    }
}
