//! The pages of a pool: which there are, which hold nothing, since when, and when they have to go.
#![forbid(unsafe_code)]

use crate::allocator::sizing::Needs;
use crate::device::DeviceMemory;
use crate::error::Error;
use crate::metadata::{Chunk, ChunkPlan, Chunked, HostMemory};
use core::ops::Index;

/// No page.
const NONE: u32 = u32::MAX;

/// What a page record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// A record that is not used.
    Vacant,
    /// A page with at least one slice.
    Busy,
    /// A page without any, in the list of idle pages.
    Idle,
    /// On its way back to the device.
    Leaving,
    /// The device has refused to take it back.
    Stuck,
}

/// One device allocation.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Page {
    // The first cache line is what becoming idle and becoming busy touch.
    pub(crate) memory: DeviceMemory,
    /// The page's edge in the slicer, or its only node.
    pub(crate) edge: u32,
    state: State,
    /// Of a busy page: what an idle one has derives from `expiry`.
    staleness: u8,
    /// Neighbours in the list of idle or stuck pages.
    order: Links,
    /// When the page became idle, by the allocator's clock.
    pub(crate) idle_since: u32,
    // The second line is for pages that age, and for what happens once in a page's life.
    /// The check at which an idle page has grown too old.
    expiry: u64,
    /// Neighbours in the list of idle pages that expire together, or have expired.
    age: Links,
    /// Counts pages in the order in which they were installed.
    pub(crate) serial: u64,
    /// Part of the sets of idle and of vacant pages; says nothing about this page itself.
    marks: [Marks; 2],
}

const _: () = assert!(size_of::<Page>() == 128);

impl Page {
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }
}

/// Neighbours in a list.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    after: u32,
}

impl Links {
    const NONE: Links = Links { before: NONE, after: NONE };
}

/// A set of pages by index, whose lowest member is found in a few steps: `bits` of every 64th page are the marks of the
/// 64 pages from there on, `groups` of every 4,096th page say which `bits` from there on are not zero.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    bits: u64,
    groups: u64,
}

/// The sets that pages are in: places in `Page::marks`.
#[derive(Clone, Copy)]
enum Set {
    Idle = 0,
    Vacant = 1,
}

/// A list of pages in the order in which they entered it.
#[derive(Clone, Copy)]
struct List {
    oldest: u32,
    newest: u32,
}

impl List {
    const EMPTY: List = List { oldest: NONE, newest: NONE };

    fn first(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    fn append(&mut self, pages: &mut Chunked<Page>, links: fn(&mut Page) -> &mut Links, index: u32) {
        *links(&mut pages[index]) = Links { before: self.newest, after: NONE };
        if self.newest == NONE {
            self.oldest = index;
        } else {
            links(&mut pages[self.newest]).after = index;
        }
        self.newest = index;
    }

    fn remove(&mut self, pages: &mut Chunked<Page>, links: fn(&mut Page) -> &mut Links, index: u32) {
        let Links { before, after } = *links(&mut pages[index]);
        if before == NONE {
            self.oldest = after;
        } else {
            links(&mut pages[before]).after = after;
        }
        if after == NONE {
            self.newest = before;
        } else {
            links(&mut pages[after]).before = before;
        }
    }

    /// Moves all of `other` to the end of this list.
    fn take_all(&mut self, other: &mut List, pages: &mut Chunked<Page>, links: fn(&mut Page) -> &mut Links) {
        if other.oldest == NONE {
            return;
        }
        if self.newest == NONE {
            self.oldest = other.oldest;
        } else {
            links(&mut pages[self.newest]).after = other.oldest;
            links(&mut pages[other.oldest]).before = self.newest;
        }
        self.newest = other.newest;
        *other = List::EMPTY;
    }
}

fn order(page: &mut Page) -> &mut Links {
    &mut page.order
}

fn age(page: &mut Page) -> &mut Links {
    &mut page.age
}

/// An idle page goes when its staleness reaches this.
const STALE: u64 = 5;

/// Staleness of a page that has just been taken from the device.
const STALENESS_AT_FIRST: u8 = 4;

/// When idle pages grow too old. Every check makes all of them staler by one, without touching any: the list of those
/// that reach [`STALE`] with it joins the list of those that have.
struct Ageing {
    /// Allocations between two checks; 0: pages do not age.
    interval: u32,
    /// The count of allocations at which the next check is due.
    next: u32,
    /// Checks so far.
    checks: u64,
    /// Idle pages by the check that makes them stale, modulo their number.
    due: [List; STALE as usize],
    expired: List,
}

pub(crate) struct Pages {
    pages: Chunked<Page>,
    idle: List,
    stuck: List,
    ageing: Ageing,
    /// Whether the idle page of the lowest index is asked for.
    marks_idle: bool,
    /// Records to use again.
    vacant_count: u32,
    /// Records promised to growths in flight.
    promised: u32,
    next_serial: u64,
    /// Pages in the slicer, busy or idle.
    count: u32,
    idle_count: u32,
    stuck_count: u32,
    /// Bytes of all pages, of those that are leaving and of those that are stuck.
    reserved: u64,
    leaving: u64,
    leaving_count: u32,
    stuck_bytes: u64,
}

impl Pages {
    /// No pages yet. They age if there is a `dealloc_period`; [`Pages::lowest_idle`] needs `marks_idle`.
    pub(crate) fn new(memory: HostMemory, dealloc_period: Option<u64>, marks_idle: bool) -> Self {
        let interval = match dealloc_period {
            // Counts of allocations wrap: half of their range tells before from after.
            Some(period) => (period / STALE).clamp(1, 1 << 30) as u32,
            None => 0,
        };
        let due = [List::EMPTY; STALE as usize];
        Self {
            pages: Chunked::new(memory),
            idle: List::EMPTY,
            stuck: List::EMPTY,
            ageing: Ageing { interval, checks: 0, next: interval, due, expired: List::EMPTY },
            marks_idle,
            vacant_count: 0,
            promised: 0,
            next_serial: 0,
            count: 0,
            idle_count: 0,
            stuck_count: 0,
            reserved: 0,
            leaving: 0,
            leaving_count: 0,
            stuck_bytes: 0,
        }
    }

    /// The most host memory that `pages` pages ask for.
    pub(crate) fn add_needs(pages: u32, needs: &mut Needs) -> Result<(), Error> {
        Chunked::<Page>::add_needs(pages, needs)
    }

    // ---- records: the host memory is got by the owner, outside its lock

    pub(crate) fn has_record(&self) -> bool {
        self.vacant_count + self.pages.spare() > self.promised
    }

    pub(crate) fn plan(&self) -> Option<ChunkPlan> {
        self.pages.plan()
    }

    pub(crate) fn install_chunk(&mut self, chunk: Chunk<Page>) -> Option<Chunk<Page>> {
        self.pages.install(chunk)
    }

    /// Sets a record aside so that [`Pages::add`] cannot fail. Needs [`Pages::has_record`].
    pub(crate) fn promise(&mut self) {
        self.promised += 1;
    }

    pub(crate) fn release_promise(&mut self) {
        self.promised -= 1;
    }

    // ---- the life of a page: vacant -> busy <-> idle -> leaving -> vacant, or leaving -> stuck -> leaving

    /// The index that the next page will have: the lowest, since holes are ordered by the index of their page, and the
    /// same calls shall give the same placements once everything has been given back. Stable under the lock.
    pub(crate) fn next_index(&self) -> u32 {
        self.lowest(Set::Vacant).unwrap_or_else(|| self.pages.next_index())
    }

    /// Adds a page that is busy from the start. Needs a record.
    pub(crate) fn add(&mut self, memory: DeviceMemory, edge: u32) -> u32 {
        self.count += 1;
        self.add_record(memory, edge, State::Busy)
    }

    /// Adds a page that the device gave and does not take back. Needs a record.
    pub(crate) fn add_stuck(&mut self, memory: DeviceMemory) {
        let index = self.add_record(memory, 0, State::Stuck);
        self.enter_stuck(index);
    }

    fn add_record(&mut self, memory: DeviceMemory, edge: u32, state: State) -> u32 {
        let page = Page {
            memory,
            edge,
            state,
            staleness: STALENESS_AT_FIRST,
            order: Links::NONE,
            idle_since: 0,
            expiry: 0,
            age: Links::NONE,
            serial: self.next_serial,
            marks: [Marks::default(); 2],
        };
        self.next_serial += 1;
        self.reserved += memory.size;
        let Some(index) = self.lowest(Set::Vacant) else {
            return self.pages.push(page);
        };
        self.unmark(Set::Vacant, index);
        self.vacant_count -= 1;
        let marks = self.pages[index].marks;
        self.pages[index] = Page { marks, ..page };
        index
    }

    /// The last slice of a page is gone; `now` by the allocator's clock.
    pub(crate) fn set_idle(&mut self, index: u32, now: u32) {
        // Threads that free in other pools may have set the clock back.
        let last = if self.idle.newest == NONE { now } else { self.pages[self.idle.newest].idle_since };
        let page = &mut self.pages[index];
        debug_assert_eq!(page.state, State::Busy);
        page.state = State::Idle;
        page.idle_since = if now.wrapping_sub(last) as i32 >= 0 { now } else { last };
        self.idle_count += 1;
        if self.marks_idle {
            self.mark(Set::Idle, index);
        }
        self.idle.append(&mut self.pages, order, index);
        if self.ageing.interval != 0 {
            self.begin_ageing(index);
        }
    }

    /// A slice was placed in an idle page; `edge` is what the page's edge is from now on.
    pub(crate) fn set_busy(&mut self, index: u32, edge: u32) {
        debug_assert_eq!(self.pages[index].state, State::Idle);
        self.pages[index].state = State::Busy;
        self.pages[index].edge = edge;
        self.idle_count -= 1;
        if self.marks_idle {
            self.unmark(Set::Idle, index);
        }
        self.idle.remove(&mut self.pages, order, index);
        if self.ageing.interval != 0 {
            self.end_ageing(index);
        }
    }

    /// The idle page with the lowest index.
    pub(crate) fn lowest_idle(&self) -> Option<u32> {
        debug_assert!(self.marks_idle);
        self.lowest(Set::Idle)
    }

    /// The page that has been idle the longest.
    pub(crate) fn oldest_idle(&self) -> Option<u32> {
        self.idle.first()
    }

    /// The page that became idle last.
    pub(crate) fn newest_idle(&self) -> Option<u32> {
        (self.idle.newest != NONE).then_some(self.idle.newest)
    }

    /// An idle page is being given back: it counts as reserved until the device has taken it.
    pub(crate) fn set_leaving(&mut self, index: u32) {
        self.set_busy(index, self.pages[index].edge);
        self.count -= 1;
        self.enter_leaving(index);
    }

    fn enter_leaving(&mut self, index: u32) {
        self.pages[index].state = State::Leaving;
        self.leaving += self.pages[index].memory.size;
        self.leaving_count += 1;
    }

    fn end_leaving(&mut self, index: u32) {
        debug_assert_eq!(self.pages[index].state, State::Leaving);
        self.leaving -= self.pages[index].memory.size;
        self.leaving_count -= 1;
    }

    /// The device has taken a page back.
    pub(crate) fn set_vacant(&mut self, index: u32) {
        self.end_leaving(index);
        self.pages[index].state = State::Vacant;
        self.reserved -= self.pages[index].memory.size;
        self.vacant_count += 1;
        self.mark(Set::Vacant, index);
    }

    /// The device has refused to take a page back.
    pub(crate) fn set_stuck(&mut self, index: u32) {
        self.end_leaving(index);
        self.pages[index].state = State::Stuck;
        self.enter_stuck(index);
    }

    fn enter_stuck(&mut self, index: u32) {
        self.stuck_bytes += self.pages[index].memory.size;
        self.stuck_count += 1;
        self.stuck.append(&mut self.pages, order, index);
    }

    /// Takes the page that has been stuck the longest for another try.
    pub(crate) fn retry_stuck(&mut self) -> Option<u32> {
        let index = self.stuck.first()?;
        self.stuck.remove(&mut self.pages, order, index);
        self.stuck_count -= 1;
        self.stuck_bytes -= self.pages[index].memory.size;
        self.enter_leaving(index);
        Some(index)
    }

    // ---- ageing

    fn begin_ageing(&mut self, index: u32) {
        let page = &mut self.pages[index];
        page.expiry = self.ageing.checks + STALE - u64::from(page.staleness);
        // The list of the check that has just been made is empty, so no list holds pages of two checks.
        self.ageing.due[(page.expiry % STALE) as usize].append(&mut self.pages, age, index);
    }

    /// The page is used again: what it has aged remains, less one.
    fn end_ageing(&mut self, index: u32) {
        let expiry = self.pages[index].expiry;
        let left = expiry.saturating_sub(self.ageing.checks);
        let list = if left == 0 { &mut self.ageing.expired } else { &mut self.ageing.due[(expiry % STALE) as usize] };
        list.remove(&mut self.pages, age, index);
        self.pages[index].staleness = (STALE - left).saturating_sub(1) as u8;
    }

    /// Whether pages age, and at which count of allocations the next check is due.
    pub(crate) fn next_check(&self) -> Option<u32> {
        (self.ageing.interval != 0).then_some(self.ageing.next)
    }

    /// Makes the checks that are due when there have been `now` allocations. Needs pages that age.
    pub(crate) fn check_age(&mut self, now: u32) {
        while self.ageing.next.wrapping_sub(now) as i32 <= 0 {
            self.ageing.next = self.ageing.next.wrapping_add(self.ageing.interval);
            self.ageing.checks += 1;
            let due = &mut self.ageing.due[(self.ageing.checks % STALE) as usize];
            self.ageing.expired.take_all(due, &mut self.pages, age);
        }
    }

    /// The first of the pages that are too old.
    pub(crate) fn expired(&self) -> Option<u32> {
        self.ageing.expired.first()
    }

    // ---- sets

    fn mark(&mut self, set: Set, index: u32) {
        self.pages[index & !63].marks[set as usize].bits |= 1 << (index & 63);
        self.pages[index & !4095].marks[set as usize].groups |= 1 << (index >> 6 & 63);
    }

    fn unmark(&mut self, set: Set, index: u32) {
        let bits = &mut self.pages[index & !63].marks[set as usize].bits;
        *bits &= !(1 << (index & 63));
        if *bits == 0 {
            self.pages[index & !4095].marks[set as usize].groups &= !(1 << (index >> 6 & 63));
        }
    }

    /// The lowest index in a set. One step per 4,096 pages.
    fn lowest(&self, set: Set) -> Option<u32> {
        let mut at = self.pages.index_from(0)?;
        loop {
            let groups = self.pages[at].marks[set as usize].groups;
            if groups != 0 {
                let group = at + 64 * groups.trailing_zeros();
                return Some(group + self.pages[group].marks[set as usize].bits.trailing_zeros());
            }
            at = self.pages.index_from(at + 4096)?;
        }
    }

    // ---- figures

    /// Pages in the slicer.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn idle_count(&self) -> u32 {
        self.idle_count
    }

    pub(crate) fn stuck_count(&self) -> u32 {
        self.stuck_count
    }

    pub(crate) fn stuck_bytes(&self) -> u64 {
        self.stuck_bytes
    }

    /// Pages that are on their way back.
    pub(crate) fn leaving_count(&self) -> u32 {
        self.leaving_count
    }

    /// Bytes that are on their way back.
    pub(crate) fn leaving(&self) -> u64 {
        self.leaving
    }

    /// Bytes held from the device.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Bytes in pages that serve: neither on their way back nor stuck.
    pub(crate) fn staying(&self) -> u64 {
        self.reserved - self.leaving - self.stuck_bytes
    }

    pub(crate) fn next_serial(&self) -> u64 {
        self.next_serial
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pages.bytes()
    }

    /// The first page at or above an index that is in the slicer or was, with its own index.
    pub(crate) fn page_from(&self, index: u32) -> Option<(u32, &Page)> {
        self.pages.index_from(index).map(|index| (index, &self.pages[index]))
    }

    /// Pages in the slicer, in no particular order.
    pub(crate) fn in_slicer(&self) -> impl Iterator<Item = &Page> {
        self.pages.indices().map(|i| &self.pages[i]).filter(|page| matches!(page.state, State::Busy | State::Idle))
    }

    /// Verifies the lists from scratch: that every idle page is in the list of idle ones, in the order in which they
    /// became idle, and in the list of its age.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let mut last = None;
        self.check_list(
            &self.idle,
            State::Idle,
            |page| page.order,
            self.idle_count,
            |page| {
                let later = last.is_none_or(|last| page.idle_since.wrapping_sub(last) as i32 >= 0);
                last = Some(page.idle_since);
                later
            },
        )?;
        self.check_list(&self.stuck, State::Stuck, |page| page.order, self.stuck_count, |_| true)?;
        if self.ageing.interval == 0 {
            return Ok(());
        }
        let mut listed = 0;
        for left in 1..=STALE {
            let expiry = self.ageing.checks + left;
            let list = &self.ageing.due[(expiry % STALE) as usize];
            listed += self.count_list(list, State::Idle, |page| page.age, |page| page.expiry == expiry)?;
        }
        let checks = self.ageing.checks;
        let stale = |page: &Page| page.expiry <= checks;
        listed += self.count_list(&self.ageing.expired, State::Idle, |page| page.age, stale)?;
        if listed == self.idle_count { Ok(()) } else { Err("an idle page is in no list of its age") }
    }

    fn check_list(
        &self,
        list: &List,
        state: State,
        links: impl Fn(&Page) -> Links,
        expected: u32,
        holds: impl FnMut(&Page) -> bool,
    ) -> Result<(), &'static str> {
        let listed = self.count_list(list, state, links, holds)?;
        let there = self.pages.indices().filter(|&i| self.pages[i].state == state).count();
        if listed == expected && there == expected as usize { Ok(()) } else { Err("a list of pages is incomplete") }
    }

    fn count_list(
        &self,
        list: &List,
        state: State,
        links: impl Fn(&Page) -> Links,
        mut holds: impl FnMut(&Page) -> bool,
    ) -> Result<u32, &'static str> {
        let (mut at, mut before, mut count) = (list.oldest, NONE, 0);
        while at != NONE {
            let page = &self.pages[at];
            if page.state != state || links(page).before != before || !holds(page) {
                return Err("a list holds a page that does not belong there");
            }
            (before, at) = (at, links(page).after);
            count += 1;
        }
        if list.newest == before { Ok(count) } else { Err("a list of pages does not end with its newest") }
    }
}

impl Index<u32> for Pages {
    type Output = Page;
    #[inline(always)]
    fn index(&self, index: u32) -> &Page {
        &self.pages[index]
    }
}
