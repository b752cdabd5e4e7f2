//! Which pages go back to the device: with age, in a trim, and when a batch is taken back.

use crate::device::{Event, Events};
use crate::oracle::{Checked, STALE, ensure};
use crate::pools::{Model, Pool};
use slicepool_core::{DeviceFault, Error, FillReason};

/// Pages that go because of their age in one call.
const AGED_PAGES_PER_CALL: usize = 4;

/// The error for a page that the device refuses to take back.
fn refused(code: i32) -> Error {
    Error::DeviceFailed { fault: DeviceFault::Refused, code }
}

impl Pool {
    /// One more check of age: pages that hold nothing grow staler.
    fn check_age(&mut self, interval: u64) {
        self.next_check += interval;
        self.checks += 1;
        for page in self.books.pages.values_mut().filter(|page| page.live.is_empty() && page.staleness < STALE) {
            page.staleness += 1;
            if page.staleness == STALE {
                page.expired_at = Some(self.checks);
            }
        }
    }

    /// The first page that is too old, those first that the same check found to be in the order in which they became
    /// idle, if the pool may do without it.
    fn aged_page(&self) -> Option<u64> {
        let expired = self.books.idle().filter(|(_, page)| page.expired_at.is_some());
        let (handle, first) = expired.min_by_key(|(_, page)| (page.expired_at, page.idle_since))?;
        (self.serving() - first.size >= self.rules.keep_bytes).then_some(handle)
    }
}

impl Model {
    /// A slice has been handed out: pages that have grown too old with it go back, then those that others want.
    pub(crate) fn count_allocation(&mut self, events: &mut Events) -> Checked {
        self.age(events)?;
        self.give_way(events)
    }

    fn age(&mut self, events: &mut Events) -> Checked {
        self.allocations += 1;
        if self.allocations < self.next_look {
            return Ok(());
        }
        let mut left = AGED_PAGES_PER_CALL;
        self.next_look = u64::MAX;
        for index in 0..self.pools.len() {
            let Some(interval) = self.pools[index].rules.interval else { continue };
            if self.allocations == self.pools[index].next_check {
                self.pools[index].check_age(interval);
            }
            let mut aged = self.pools[index].aged_page();
            while let (Some(handle), true) = (aged, left != 0) {
                left -= 1;
                self.page_leaves(index, handle, events)?;
                aged = self.pools[index].aged_page();
            }
            // What is left over goes with the next allocation.
            let look = if aged.is_some() { self.allocations + 1 } else { self.pools[index].next_check };
            self.next_look = self.next_look.min(look);
        }
        Ok(())
    }

    /// The page that is the next to go in a trim to `keep` bytes: the one of all pools that has been idle the longest.
    /// Of each pool only the oldest is looked at, and only if so much is left without it.
    pub(crate) fn next_to_go(&self, keep: u64) -> Option<(usize, u64)> {
        let giving = &self.pools[..self.giving()];
        let serving: u64 = giving.iter().map(Pool::serving).sum();
        let oldest = giving.iter().enumerate().filter_map(|(index, pool)| {
            let (handle, page) = pool.books.oldest_idle()?;
            (serving - page.size >= keep).then_some((page.idle_since, index, handle))
        });
        oldest.min().map(|(_, index, handle)| (index, handle))
    }

    /// The device was asked to take pages back down to `keep` bytes; the last error that it answered.
    pub(crate) fn trimmed(&mut self, keep: u64, events: &mut Events) -> Checked<Option<Error>> {
        let mut refusal = None;
        for pool in 0..self.pools.len() {
            refusal = self.scrub_again(pool, events)?.or(refusal);
        }
        refusal = self.retry_stuck(events)?.map(refused).or(refusal);
        while let Some((index, handle)) = self.next_to_go(keep) {
            refusal = self.page_leaves(index, handle, events)?.map(refused).or(refusal);
        }
        self.returns += 1;
        Ok(refusal)
    }

    /// As much as possible was given back, the pages of persistent slices too.
    pub(crate) fn cleaned_up(&mut self, events: &mut Events) -> Checked<Option<Error>> {
        let mut refusal = self.trimmed(0, events)?;
        let persistent = self.giving();
        while let Some((handle, _)) = self.pools[persistent].books.oldest_idle() {
            refusal = self.page_leaves(persistent, handle, events)?.map(refused).or(refusal);
        }
        Ok(refusal)
    }

    /// Everything was given back although slices were live or waited: in any order, since that in which they are
    /// released is not said.
    pub(crate) fn closed_by_force(&mut self, events: &mut Events) -> Checked<Option<Error>> {
        self.free_everything();
        let mut refusal = None;
        while let Some(&event) = events.front() {
            match event {
                Event::Filled { reason: FillReason::Scrub, .. } => {
                    events.pop_front();
                }
                Event::Returned { handle } | Event::NotReturned { handle, .. } => {
                    let stuck = |pool: &Pool| pool.stuck.iter().any(|stuck| stuck.handle == handle);
                    let held = |pool: &Pool| pool.books.pages.contains_key(&handle) || stuck(pool);
                    let pool = self.pools.iter().position(held).ok_or("a page went back that is not held")?;
                    refusal = self.page_leaves(pool, handle, events)?.map(refused).or(refusal);
                }
                other => return Err(format!("nobody expected {other:?}")),
            }
        }
        self.returns += 1;
        let left = self.pools.iter().any(|pool| !pool.books.pages.is_empty());
        ensure!(!left, "pages are left");
        Ok(refusal.filter(|_| self.pools.iter().any(|pool| !pool.stuck.is_empty())))
    }

    /// The device was asked once more for every page that it had refused to take back; the last code with which it did
    /// so again.
    fn retry_stuck(&mut self, events: &mut Events) -> Checked<Option<i32>> {
        let mut refusal = None;
        for index in 0..self.pools.len() {
            for stuck in self.pools[index].stuck.clone() {
                refusal = self.page_leaves(index, stuck.handle, events)?.or(refusal);
            }
        }
        Ok(refusal)
    }

    /// After no page could be had: what the device refused to take back is offered again, and what has been idle the
    /// longest goes until `wanted` bytes are gone. Whether anything went back.
    pub(crate) fn make_room(&mut self, wanted: u64, events: &mut Events) -> Checked<bool> {
        let before = self.returns;
        self.retry_stuck(events)?;
        let mut given = 0;
        while given < wanted {
            let Some((index, handle)) = self.next_to_go(0) else { break };
            let bytes = self.pools[index].books.pages[&handle].size;
            given += if self.page_leaves(index, handle, events)?.is_none() { bytes } else { 0 };
        }
        Ok(self.returns != before)
    }

    /// The slices of a batch are taken back, the last first, and the pages that came since `serial` with them.
    pub(crate) fn undo(&mut self, placed: &[u64], serial: u64, events: &mut Events) -> Checked {
        for &id in placed.iter().rev() {
            let place = self.handles.look_up(id).map_err(|error| format!("{id:#x} of a batch: {error}"))?;
            // Nobody has seen it, so nothing is overwritten.
            self.release(place);
            self.handles.remove(id);
            let page = &self.pools[place.pool].books.pages[&place.page];
            if page.live.is_empty() && page.serial >= serial {
                self.page_leaves(place.pool, place.page, events)?;
            }
        }
        let left = self.pools.iter().flat_map(|pool| pool.books.idle()).find(|(_, page)| page.serial >= serial);
        ensure!(left.is_none(), "a refused batch left {left:?}");
        Ok(())
    }
}
