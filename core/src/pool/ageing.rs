//! When pages that hold nothing grow too old to be kept.
#![forbid(unsafe_code)]

use super::page::{ByAge, List, Page};
use super::records::Records;
use crate::canary::broken;
use crate::parts::COMPLETE;

/// An idle page goes when its staleness reaches this.
pub(super) const STALE: u64 = 5;

/// Staleness of a page that has just been taken from the device.
pub(super) const STALENESS_AT_FIRST: u8 = 4;

/// When idle pages grow too old. Every check makes all of them staler by one, without touching any: the list of those
/// that reach [`STALE`] with it joins the list of those that have.
pub(super) struct Ageing {
    /// Allocations between two checks; 0: pages do not age.
    pub(super) interval: u32,
    /// The count of allocations at which the next check is due.
    pub(super) next: u32,
    /// Checks so far.
    pub(super) checks: u64,
    /// Idle pages by the check that makes them stale, modulo their number.
    pub(super) due: [List<ByAge>; STALE as usize],
    pub(super) expired: List<ByAge>,
}

impl Ageing {
    /// Pages age if there is a period.
    pub(super) fn new(dealloc_period: Option<u64>) -> Self {
        let interval = match dealloc_period {
            Some(_) if !COMPLETE => 0,
            // Counts of allocations wrap: half of their range tells before from after.
            Some(period) => (period / STALE).clamp(1, 1 << 30) as u32,
            None => 0,
        };
        let due = [const { List::EMPTY }; STALE as usize];
        Self { interval, next: interval, checks: 0, due, expired: List::EMPTY }
    }

    /// Whether pages age.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        COMPLETE && self.interval != 0
    }

    /// A page has become idle.
    #[inline]
    pub(super) fn enter(&mut self, pages: &Records, index: u32, page: &Page) {
        let expiry = self.checks + STALE - u64::from(page.staleness.get());
        page.expiry.set(expiry);
        // The list of the check that has just been made is empty, so no list holds pages of two checks. A page that served
        // once has expired at once.
        let list = if expiry == self.checks { &mut self.expired } else { &mut self.due[(expiry % STALE) as usize] };
        list.append(pages, index, page);
    }

    /// An idle page is used again: what it has aged remains, less one.
    #[inline]
    pub(super) fn leave(&mut self, pages: &Records, page: &Page) {
        let expiry = page.expiry.get();
        let left = expiry.saturating_sub(self.checks);
        let list = if left == 0 { &mut self.expired } else { &mut self.due[(expiry % STALE) as usize] };
        list.remove(pages, page);
        page.staleness.set((STALE - left).saturating_sub(u64::from(!broken("age_never_reset"))) as u8);
    }

    pub(super) fn check(&mut self, pages: &Records) {
        self.next = self.next.wrapping_add(self.interval);
        self.checks += 1;
        self.expired.take_all(&mut self.due[(self.checks % STALE) as usize], pages);
    }
}
