//! The pages of a pool: which there are, which hold nothing, since when, and when they have to go.
#![forbid(unsafe_code)]

use crate::allocator::sizing::Needs;
use crate::device::DeviceMemory;
use crate::error::Error;
use crate::metadata::{Chunk, ChunkPlan, Chunked, HostMemory};
use core::cell::Cell;
use core::marker::PhantomData;
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
///
/// Cells, so that an operation looks each of its pages up once and then reads and writes them as it likes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Page {
    // The first cache line is what becoming idle and becoming busy touch.
    pub(crate) memory: DeviceMemory,
    /// The page's edge in the slicer, or its only node.
    edge: Cell<u32>,
    state: Cell<State>,
    /// Of a busy page: what an idle one has derives from `expiry`.
    staleness: Cell<u8>,
    /// Neighbours in the list of idle or stuck pages.
    order: Links,
    /// When the page became idle, by the allocator's clock.
    idle_since: Cell<u32>,
    // The second line is for pages that age, and for what happens once in a page's life.
    /// The check at which an idle page has grown too old.
    expiry: Cell<u64>,
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
        self.is(State::Idle)
    }

    #[inline(always)]
    fn is(&self, state: State) -> bool {
        self.state.get() == state
    }

    /// The page's edge in the slicer, or its only node.
    #[inline(always)]
    pub(crate) fn edge(&self) -> u32 {
        self.edge.get()
    }

    /// When the page became idle, by the allocator's clock.
    pub(crate) fn idle_since(&self) -> u32 {
        self.idle_since.get()
    }
}

/// Neighbours in a list.
#[derive(Clone, Debug)]
struct Links {
    before: Cell<u32>,
    after: Cell<u32>,
}

impl Links {
    fn none() -> Self {
        Links { before: Cell::new(NONE), after: Cell::new(NONE) }
    }
}

/// A set of pages by index, whose lowest member is found in a few steps: `bits` of every 64th page are the marks of the
/// 64 pages from there on, `groups` of every 4,096th page say which `bits` from there on are not zero.
#[derive(Clone, Debug, Default)]
struct Marks {
    bits: Cell<u64>,
    groups: Cell<u64>,
}

/// The sets that pages are in: places in `Page::marks`.
#[derive(Clone, Copy)]
enum Set {
    Idle = 0,
    Vacant = 1,
}

/// The lists that a page can be in by one pair of links each.
trait By {
    fn links(page: &Page) -> &Links;
}

/// Idle or stuck pages in the order in which they became so.
struct ByOrder;

impl By for ByOrder {
    #[inline(always)]
    fn links(page: &Page) -> &Links {
        &page.order
    }
}

/// Idle pages by when they expire.
struct ByAge;

impl By for ByAge {
    #[inline(always)]
    fn links(page: &Page) -> &Links {
        &page.age
    }
}

/// A list of pages in the order in which they entered it.
struct List<B> {
    oldest: u32,
    newest: u32,
    by: PhantomData<B>,
}

impl<B: By> List<B> {
    const EMPTY: Self = List { oldest: NONE, newest: NONE, by: PhantomData };

    fn first(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    #[inline(always)]
    fn append(&mut self, pages: &Chunked<Page>, index: u32, page: &Page) {
        let links = B::links(page);
        links.before.set(self.newest);
        links.after.set(NONE);
        if self.newest == NONE {
            self.oldest = index;
        } else {
            B::links(&pages[self.newest]).after.set(index);
        }
        self.newest = index;
    }

    #[inline(always)]
    fn remove(&mut self, pages: &Chunked<Page>, page: &Page) {
        let links = B::links(page);
        let (before, after) = (links.before.get(), links.after.get());
        if before == NONE {
            self.oldest = after;
        } else {
            B::links(&pages[before]).after.set(after);
        }
        if after == NONE {
            self.newest = before;
        } else {
            B::links(&pages[after]).before.set(before);
        }
    }

    /// Moves all of `other` to the end of this list.
    fn take_all(&mut self, other: &mut Self, pages: &Chunked<Page>) {
        if other.oldest == NONE {
            return;
        }
        if self.newest == NONE {
            self.oldest = other.oldest;
        } else {
            B::links(&pages[self.newest]).after.set(other.oldest);
            B::links(&pages[other.oldest]).before.set(self.newest);
        }
        self.newest = other.newest;
        *other = Self::EMPTY;
    }
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
    due: [List<ByAge>; STALE as usize],
    expired: List<ByAge>,
}

impl Ageing {
    /// A page has become idle.
    #[inline]
    fn enter(&mut self, pages: &Chunked<Page>, index: u32, page: &Page) {
        let expiry = self.checks + STALE - u64::from(page.staleness.get());
        page.expiry.set(expiry);
        // The list of the check that has just been made is empty, so no list holds pages of two checks.
        self.due[(expiry % STALE) as usize].append(pages, index, page);
    }

    /// An idle page is used again: what it has aged remains, less one.
    #[inline]
    fn leave(&mut self, pages: &Chunked<Page>, page: &Page) {
        let expiry = page.expiry.get();
        let left = expiry.saturating_sub(self.checks);
        let list = if left == 0 { &mut self.expired } else { &mut self.due[(expiry % STALE) as usize] };
        list.remove(pages, page);
        page.staleness.set((STALE - left).saturating_sub(1) as u8);
    }

    fn check(&mut self, pages: &Chunked<Page>) {
        self.next = self.next.wrapping_add(self.interval);
        self.checks += 1;
        self.expired.take_all(&mut self.due[(self.checks % STALE) as usize], pages);
    }
}

pub(crate) struct Pages {
    pages: Chunked<Page>,
    idle: List<ByOrder>,
    stuck: List<ByOrder>,
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
        let due = [const { List::EMPTY }; STALE as usize];
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
        self.next_serial += 1;
        self.reserved += memory.size;
        let vacant = self.lowest(Set::Vacant);
        let marks = match vacant {
            None => Default::default(),
            Some(index) => {
                self.unmark(Set::Vacant, index);
                self.pages[index].marks.clone()
            }
        };
        let page = Page {
            memory,
            edge: Cell::new(edge),
            state: Cell::new(state),
            staleness: Cell::new(STALENESS_AT_FIRST),
            order: Links::none(),
            idle_since: Cell::new(0),
            expiry: Cell::new(0),
            age: Links::none(),
            serial: self.next_serial - 1,
            marks,
        };
        match vacant {
            None => self.pages.push(page),
            Some(index) => {
                self.vacant_count -= 1;
                self.pages[index] = page;
                index
            }
        }
    }

    /// The last slice of a page is gone; `now` by the allocator's clock.
    #[inline]
    pub(crate) fn set_idle(&mut self, index: u32, now: u32) {
        let page = &self.pages[index];
        debug_assert!(page.is(State::Busy));
        page.state.set(State::Idle);
        // Threads that free in other pools may have set the clock back.
        let last = if self.idle.newest == NONE { now } else { self.pages[self.idle.newest].idle_since.get() };
        page.idle_since.set(if now.wrapping_sub(last) as i32 >= 0 { now } else { last });
        self.idle_count += 1;
        self.idle.append(&self.pages, index, page);
        if self.ageing.interval != 0 {
            self.ageing.enter(&self.pages, index, page);
        }
        if self.marks_idle {
            self.mark(Set::Idle, index);
        }
    }

    /// A slice was placed in an idle page; `edge` is what the page's edge is from now on.
    #[inline]
    pub(crate) fn set_busy(&mut self, index: u32, edge: u32) -> &Page {
        if self.marks_idle {
            self.unmark(Set::Idle, index);
        }
        let page = &self.pages[index];
        debug_assert!(page.is(State::Idle));
        page.state.set(State::Busy);
        page.edge.set(edge);
        self.idle_count -= 1;
        self.idle.remove(&self.pages, page);
        if self.ageing.interval != 0 {
            self.ageing.leave(&self.pages, page);
        }
        page
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
        self.set_busy(index, self.pages[index].edge());
        self.count -= 1;
        self.enter_leaving(index);
    }

    fn enter_leaving(&mut self, index: u32) {
        self.pages[index].state.set(State::Leaving);
        self.leaving += self.pages[index].memory.size;
        self.leaving_count += 1;
    }

    fn end_leaving(&mut self, index: u32) {
        debug_assert!(self.pages[index].is(State::Leaving));
        self.leaving -= self.pages[index].memory.size;
        self.leaving_count -= 1;
    }

    /// The device has taken a page back.
    pub(crate) fn set_vacant(&mut self, index: u32) {
        self.end_leaving(index);
        self.pages[index].state.set(State::Vacant);
        self.reserved -= self.pages[index].memory.size;
        self.vacant_count += 1;
        self.mark(Set::Vacant, index);
    }

    /// The device has refused to take a page back.
    pub(crate) fn set_stuck(&mut self, index: u32) {
        self.end_leaving(index);
        self.pages[index].state.set(State::Stuck);
        self.enter_stuck(index);
    }

    fn enter_stuck(&mut self, index: u32) {
        let page = &self.pages[index];
        self.stuck_bytes += page.memory.size;
        self.stuck_count += 1;
        self.stuck.append(&self.pages, index, page);
    }

    /// Takes the page that has been stuck the longest for another try.
    pub(crate) fn retry_stuck(&mut self) -> Option<u32> {
        let index = self.stuck.first()?;
        self.stuck.remove(&self.pages, &self.pages[index]);
        self.stuck_count -= 1;
        self.stuck_bytes -= self.pages[index].memory.size;
        self.enter_leaving(index);
        Some(index)
    }

    // ---- ageing

    /// Whether pages age, and at which count of allocations the next check is due.
    pub(crate) fn next_check(&self) -> Option<u32> {
        (self.ageing.interval != 0).then_some(self.ageing.next)
    }

    /// Makes the checks that are due when there have been `now` allocations. Needs pages that age.
    pub(crate) fn check_age(&mut self, now: u32) {
        while self.ageing.next.wrapping_sub(now) as i32 <= 0 {
            self.ageing.check(&self.pages);
        }
    }

    /// The first of the pages that are too old.
    pub(crate) fn expired(&self) -> Option<u32> {
        self.ageing.expired.first()
    }

    // ---- sets

    fn mark(&self, set: Set, index: u32) {
        let (bits, groups) = self.marks_of(set, index);
        bits.set(bits.get() | 1 << (index & 63));
        groups.set(groups.get() | 1 << (index >> 6 & 63));
    }

    fn unmark(&self, set: Set, index: u32) {
        let (bits, groups) = self.marks_of(set, index);
        bits.set(bits.get() & !(1 << (index & 63)));
        if bits.get() == 0 {
            groups.set(groups.get() & !(1 << (index >> 6 & 63)));
        }
    }

    fn marks_of(&self, set: Set, index: u32) -> (&Cell<u64>, &Cell<u64>) {
        let bits = &self.pages[index & !63].marks[set as usize].bits;
        (bits, &self.pages[index & !4095].marks[set as usize].groups)
    }

    /// The lowest index in a set. One step per 4,096 pages.
    fn lowest(&self, set: Set) -> Option<u32> {
        let mut at = self.pages.index_from(0)?;
        loop {
            let groups = self.pages[at].marks[set as usize].groups.get();
            if groups != 0 {
                let group = at + 64 * groups.trailing_zeros();
                return Some(group + self.pages[group].marks[set as usize].bits.get().trailing_zeros());
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
        self.pages.indices().map(|i| &self.pages[i]).filter(|page| page.is(State::Busy) || page.is(State::Idle))
    }

    /// Verifies the lists from scratch: that every idle page is in the list of idle ones, in the order in which they
    /// became idle, and in the list of its age.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let mut last = None;
        let in_order = |page: &Page| {
            let later = last.is_none_or(|last| page.idle_since().wrapping_sub(last) as i32 >= 0);
            last = Some(page.idle_since());
            later
        };
        let idle = self.count_list(&self.idle, State::Idle, in_order)?;
        let stuck = self.count_list(&self.stuck, State::Stuck, |_| true)?;
        let there = |state| self.pages.indices().filter(|&i| self.pages[i].is(state)).count();
        if (idle, stuck) != (self.idle_count, self.stuck_count)
            || (idle as usize, stuck as usize) != (there(State::Idle), there(State::Stuck))
        {
            return Err("a list of pages is incomplete");
        }
        if self.ageing.interval == 0 {
            return Ok(());
        }
        let mut listed = 0;
        for left in 1..=STALE {
            let expiry = self.ageing.checks + left;
            let list = &self.ageing.due[(expiry % STALE) as usize];
            listed += self.count_list(list, State::Idle, |page| page.expiry.get() == expiry)?;
        }
        let stale = |page: &Page| page.expiry.get() <= self.ageing.checks;
        listed += self.count_list(&self.ageing.expired, State::Idle, stale)?;
        if listed == self.idle_count { Ok(()) } else { Err("an idle page is in no list of its age") }
    }

    /// Verifies a list and counts its pages.
    fn count_list<B: By>(
        &self,
        list: &List<B>,
        state: State,
        mut holds: impl FnMut(&Page) -> bool,
    ) -> Result<u32, &'static str> {
        let (mut at, mut before, mut count) = (list.oldest, NONE, 0);
        while at != NONE {
            let page = &self.pages[at];
            if !page.is(state) || B::links(page).before.get() != before || !holds(page) {
                return Err("a list holds a page that does not belong there");
            }
            (before, at) = (at, B::links(page).after.get());
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
