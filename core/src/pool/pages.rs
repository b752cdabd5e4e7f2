//! The pages of a pool: which there are, which hold nothing, since when, and when they have to go.
#![forbid(unsafe_code)]

use super::ageing::{Ageing, STALE, STALENESS_AT_FIRST};
use super::page::{By, ByOrder, Links, List, NONE, Page, Set, State};
use super::records::Records;
use crate::allocator::sizing::Needs;
use crate::canary::broken;
use crate::device::DeviceMemory;
use crate::error::Error;
use crate::metadata::{Chunk, ChunkPlan, Chunked, HostMemory};
use crate::parts::COMPLETE;
use crate::sync::{AtomicPtr, Ordering};
use core::cell::Cell;
use core::ops::Index;
use core::ptr;

pub(crate) struct Pages {
    pages: Records,
    idle: List<ByOrder>,
    /// When the last page became idle, by the allocator's clock, as long as any is.
    last_idle: u32,
    stuck: List<ByOrder>,
    ageing: Ageing,
    /// Whether the idle page of the lowest index is asked for.
    marks_idle: bool,
    /// How stale pages are when they come.
    staleness_at_first: u8,
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
    /// Pages of a dry run that have no memory of the device, and their bytes.
    unmapped_count: u32,
    unmapped_bytes: u64,
}

/// What [`Pages::begin_mapping`] has come to.
pub(crate) enum Mapping {
    /// The page is mapped there.
    Shared(*mut u8),
    /// The device has to be asked.
    Begun,
    /// Another call is asking it.
    Busy,
}

impl Pages {
    /// No pages yet. They age if there is a `dealloc_period`, and are too old as soon as they are idle if they serve only
    /// `once`; [`Pages::lowest_idle`] needs `marks_idle`.
    pub(crate) fn new(memory: HostMemory, dealloc_period: Option<u64>, once: bool, marks_idle: bool) -> Self {
        Self {
            pages: Records::new(memory),
            idle: List::EMPTY,
            last_idle: 0,
            stuck: List::EMPTY,
            ageing: Ageing::new(dealloc_period),
            marks_idle,
            staleness_at_first: match once {
                true => STALE as u8,
                false => STALENESS_AT_FIRST - u8::from(broken("age_off_by_one")),
            },
            vacant_count: 0,
            promised: 0,
            // 0 is for pages that have been held for longer.
            next_serial: 1,
            count: 0,
            idle_count: 0,
            stuck_count: 0,
            reserved: 0,
            leaving: 0,
            leaving_count: 0,
            stuck_bytes: 0,
            unmapped_count: 0,
            unmapped_bytes: 0,
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

    pub(crate) fn plan(&self) -> Result<ChunkPlan, Error> {
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
        if COMPLETE && !memory.is_mapped() {
            self.unmapped_count += 1;
            self.unmapped_bytes += memory.size;
        }
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
            staleness: Cell::new(self.staleness_at_first),
            is_mapping: Cell::new(false),
            order: Links::none(),
            idle_since: Cell::new(0),
            map_count: Cell::new(0),
            expiry: Cell::new(0),
            age: Links::none(),
            serial: self.next_serial - 1,
            marks,
            mapping: AtomicPtr::new(ptr::null_mut()),
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
        let is_later = self.idle.newest == NONE || now.wrapping_sub(self.last_idle) as i32 >= 0;
        self.last_idle = if is_later { now } else { self.last_idle };
        page.idle_since.set(self.last_idle);
        self.idle_count += 1;
        self.idle.append(&self.pages, index, page);
        if self.ageing.is_on() {
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
        if self.ageing.is_on() {
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

    /// The device has taken a page back, or another pool has.
    pub(crate) fn set_vacant(&mut self, index: u32) {
        self.end_leaving(index);
        let memory = self.pages[index].memory;
        self.pages[index].state.set(State::Vacant);
        self.reserved -= memory.size;
        if COMPLETE && !memory.is_mapped() {
            self.note_mapped(memory.size);
        }
        self.vacant_count += 1;
        self.mark(Set::Vacant, index);
    }

    /// The device has refused to take a page back.
    pub(crate) fn set_stuck(&mut self, index: u32) {
        self.end_leaving(index);
        self.pages[index].state.set(State::Stuck);
        self.enter_stuck(index);
    }

    fn note_mapped(&mut self, bytes: u64) {
        self.unmapped_count -= 1;
        self.unmapped_bytes -= bytes;
    }

    /// A page that has had no memory gets some.
    pub(crate) fn set_memory(&mut self, index: u32, memory: DeviceMemory) {
        debug_assert!(!self.pages[index].memory.is_mapped() && memory.is_mapped());
        self.note_mapped(memory.size);
        self.pages[index].memory = memory;
    }

    /// Whether memory of the device is one of the pages, and not on its way back.
    pub(crate) fn hold(&self, memory: &DeviceMemory) -> bool {
        self.pages.indices().map(|index| &self.pages[index]).any(|page| {
            !page.is(State::Vacant)
                && !page.is(State::Leaving)
                && page.memory.handle == memory.handle
                && page.memory.address == memory.address
        })
    }

    // ---- mapping

    /// Takes part in a page's mapping, or begins one: then [`Pages::end_mapping`] has to follow.
    pub(crate) fn begin_mapping(&self, index: u32) -> Mapping {
        let page = &self.pages[index];
        if page.is_mapping.get() {
            return Mapping::Busy;
        }
        let at = if page.memory.mapped.is_null() { page.mapping.load(Ordering::Relaxed) } else { page.memory.mapped };
        if at.is_null() {
            page.is_mapping.set(true);
            return Mapping::Begun;
        }
        let Some(count) = page.map_count.get().checked_add(1) else { return Mapping::Busy };
        page.map_count.set(count);
        Mapping::Shared(at)
    }

    /// The device has mapped a page there, or has not.
    pub(crate) fn end_mapping(&self, index: u32, at: *mut u8) {
        let page = &self.pages[index];
        page.is_mapping.set(false);
        page.mapping.store(at, Ordering::Relaxed);
        page.map_count.set(u32::from(!at.is_null()));
    }

    /// Gives up a part in a page's mapping: `None` if there was none. If it was the last and the device has mapped the
    /// page on demand, unmapping begins with that, and [`Pages::end_mapping`] has to follow: where it was mapped;
    /// otherwise NULL.
    pub(crate) fn end_share(&self, index: u32) -> Option<*mut u8> {
        let page = &self.pages[index];
        let left = page.map_count.get().checked_sub(1)?;
        page.map_count.set(left);
        let at = if left == 0 { page.mapping.load(Ordering::Relaxed) } else { ptr::null_mut() };
        page.is_mapping.set(!at.is_null());
        Some(at)
    }

    /// Whether a page is being mapped or unmapped: who does that then gives it back.
    pub(crate) fn is_mapping(&self, index: u32) -> bool {
        self.pages[index].is_mapping.get()
    }

    /// A page's mapping and how often it has been asked for, which go with the page to another pool.
    pub(crate) fn take_mapping(&self, index: u32) -> (*mut u8, u32) {
        let page = &self.pages[index];
        (page.mapping.swap(ptr::null_mut(), Ordering::Relaxed), page.map_count.replace(0))
    }

    /// A page that has just been added was another pool's: it has been held for longer, and may be mapped.
    pub(crate) fn set_moved(&mut self, index: u32, (at, count): (*mut u8, u32)) {
        let page = &mut self.pages[index];
        page.serial = 0;
        page.mapping.store(at, Ordering::Relaxed);
        page.map_count.set(count);
    }

    /// Forgets a page's mapping, since it leaves: where it was, if there was one that the device has to undo, otherwise
    /// NULL.
    pub(crate) fn forget_mapping(&self, index: u32) -> *mut u8 {
        let page = &self.pages[index];
        page.map_count.set(0);
        let at = page.mapping.load(Ordering::Relaxed);
        page.mapping.store(ptr::null_mut(), Ordering::Relaxed);
        if broken("returned_while_mapped") { ptr::null_mut() } else { at }
    }

    /// Whether a page is on its way back.
    pub(crate) fn is_leaving(&self, index: u32) -> bool {
        self.pages[index].is(State::Leaving)
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

    /// The first check of ages is due one period after `now` allocations. For a pool that comes later than others.
    pub(crate) fn start_ageing_at(&mut self, now: u32) {
        self.ageing.next = now.wrapping_add(self.ageing.interval);
    }

    /// Whether pages age, and at which count of allocations the next check is due.
    pub(crate) fn next_check(&self) -> Option<u32> {
        (self.ageing.is_on()).then_some(self.ageing.next)
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

    /// Pages of a dry run that have no memory of the device, and their bytes.
    pub(crate) fn unmapped(&self) -> (u32, u64) {
        (self.unmapped_count, self.unmapped_bytes)
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
        self.check_sums()?;
        self.check_marks()?;
        let mut last = None;
        let in_order = |page: &Page| {
            let later = last.is_none_or(|last| page.idle_since().wrapping_sub(last) as i32 >= 0);
            last = Some(page.idle_since());
            later
        };
        let idle = self.count_list(&self.idle, State::Idle, in_order)?;
        let stuck = self.count_list(&self.stuck, State::Stuck, |_| true)?;
        if (idle, stuck) != (self.idle_count, self.stuck_count) {
            return Err("a list of pages is incomplete");
        }
        if !self.ageing.is_on() {
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

    fn check_sums(&self) -> Result<(), &'static str> {
        let (mut idle, mut vacant, mut unmapped) = (0, 0, (0, 0));
        let (mut serving, mut leaving, mut stuck) = ((0, 0), (0, 0), (0, 0));
        for page in self.pages.indices().map(|index| &self.pages[index]) {
            idle += u32::from(page.is_idle());
            let (count, bytes) = match page.state.get() {
                State::Vacant => {
                    vacant += 1;
                    continue;
                }
                State::Busy | State::Idle => &mut serving,
                State::Leaving => &mut leaving,
                State::Stuck => &mut stuck,
            };
            (*count, *bytes) = (*count + 1, *bytes + page.memory.size);
            if !page.memory.is_mapped() {
                unmapped = (unmapped.0 + 1, unmapped.1 + page.memory.size);
            }
        }
        if (serving.0, leaving.0, stuck.0) != (self.count, self.leaving_count, self.stuck_count)
            || (idle, vacant, unmapped) != (self.idle_count, self.vacant_count, self.unmapped())
        {
            return Err("a count of pages differs from a walk");
        }
        if (serving.1, leaving.1, stuck.1) != (self.staying(), self.leaving, self.stuck_bytes) {
            return Err("the bytes of pages differ from a walk");
        }
        Ok(())
    }

    /// The sets hold those pages that they are for.
    fn check_marks(&self) -> Result<(), &'static str> {
        for (set, state) in [(Set::Vacant, State::Vacant), (Set::Idle, State::Idle)] {
            for index in self.pages.indices() {
                let (bits, groups) = self.marks_of(set, index);
                let is_member = self.pages[index].is(state) && (state == State::Vacant || self.marks_idle);
                if (bits.get() >> (index & 63) & 1 == 1) != is_member
                    || (groups.get() >> (index >> 6 & 63) & 1 == 1) != (bits.get() != 0)
                {
                    return Err("a set of pages does not hold those it is for");
                }
            }
        }
        Ok(())
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

#[cfg(test)]
mod damage;
#[cfg(test)]
mod tests;
