//! The pages of a pool: which there are, which hold nothing, since when.
#![forbid(unsafe_code)]

use crate::device::DeviceMemory;
use crate::metadata::{Chunk, ChunkPlan, Chunked, HostMemory};
use core::ops::Index;

/// No page.
const NONE: u32 = u32::MAX;

/// What a page record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
pub(crate) struct Page {
    pub(crate) memory: DeviceMemory,
    /// The page's edge in the slicer.
    pub(crate) edge: u32,
    state: State,
    /// Neighbours in the list of idle or stuck pages.
    before: u32,
    after: u32,
    /// Counts pages in the order in which they were installed.
    pub(crate) serial: u64,
    /// Part of the sets of idle and of vacant pages; says nothing about this page itself.
    marks: [Marks; 2],
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
}

pub(crate) struct Pages {
    pages: Chunked<Page>,
    idle: List,
    stuck: List,
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
    pub(crate) fn new(memory: HostMemory) -> Self {
        Self {
            pages: Chunked::new(memory),
            idle: List::EMPTY,
            stuck: List::EMPTY,
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

    /// Adds a page that is busy from the start. Needs a promised record.
    pub(crate) fn add(&mut self, memory: DeviceMemory, edge: u32) -> u32 {
        let marks = [Marks::default(); 2];
        let page =
            Page { memory, edge, state: State::Busy, before: NONE, after: NONE, serial: self.next_serial, marks };
        self.next_serial += 1;
        self.count += 1;
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

    /// The last slice of a page is gone.
    pub(crate) fn set_idle(&mut self, index: u32) {
        debug_assert_eq!(self.pages[index].state, State::Busy);
        self.pages[index].state = State::Idle;
        self.idle_count += 1;
        self.mark(Set::Idle, index);
        Self::append(&mut self.pages, &mut self.idle, index);
    }

    /// A slice was placed in an idle page.
    #[cold]
    pub(crate) fn set_busy(&mut self, index: u32) {
        debug_assert_eq!(self.pages[index].state, State::Idle);
        self.pages[index].state = State::Busy;
        self.idle_count -= 1;
        self.unmark(Set::Idle, index);
        Self::remove(&mut self.pages, &mut self.idle, index);
    }

    /// The idle page with the lowest index: the one to use next.
    pub(crate) fn lowest_idle(&self) -> Option<u32> {
        self.lowest(Set::Idle)
    }

    pub(crate) fn is_idle(&self, index: u32) -> bool {
        self.pages[index].state == State::Idle
    }

    /// The page that has been idle the longest.
    pub(crate) fn oldest_idle(&self) -> Option<u32> {
        (self.idle.oldest != NONE).then_some(self.idle.oldest)
    }

    /// An idle page is being given back: it counts as reserved until the device has taken it.
    pub(crate) fn set_leaving(&mut self, index: u32) {
        self.set_busy(index);
        self.count -= 1;
        self.pages[index].state = State::Leaving;
        self.leaving += self.pages[index].memory.size;
        self.leaving_count += 1;
    }

    /// The device has taken a page back.
    pub(crate) fn set_vacant(&mut self, index: u32) {
        let page = &mut self.pages[index];
        debug_assert_eq!(page.state, State::Leaving);
        page.state = State::Vacant;
        self.leaving -= page.memory.size;
        self.leaving_count -= 1;
        self.reserved -= page.memory.size;
        self.vacant_count += 1;
        self.mark(Set::Vacant, index);
    }

    /// The device has refused to take a page back.
    pub(crate) fn set_stuck(&mut self, index: u32) {
        let page = &mut self.pages[index];
        debug_assert_eq!(page.state, State::Leaving);
        page.state = State::Stuck;
        self.leaving -= page.memory.size;
        self.leaving_count -= 1;
        self.stuck_bytes += page.memory.size;
        self.stuck_count += 1;
        Self::append(&mut self.pages, &mut self.stuck, index);
    }

    /// Takes the page that has been stuck the longest for another try.
    pub(crate) fn retry_stuck(&mut self) -> Option<u32> {
        let index = self.stuck.oldest;
        if index == NONE {
            return None;
        }
        Self::remove(&mut self.pages, &mut self.stuck, index);
        let page = &mut self.pages[index];
        page.state = State::Leaving;
        self.stuck_count -= 1;
        self.stuck_bytes -= page.memory.size;
        self.leaving += page.memory.size;
        self.leaving_count += 1;
        Some(index)
    }

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

    fn append(pages: &mut Chunked<Page>, list: &mut List, index: u32) {
        pages[index].before = list.newest;
        pages[index].after = NONE;
        if list.newest == NONE {
            list.oldest = index;
        } else {
            pages[list.newest].after = index;
        }
        list.newest = index;
    }

    fn remove(pages: &mut Chunked<Page>, list: &mut List, index: u32) {
        let Page { before, after, .. } = pages[index];
        if before == NONE {
            list.oldest = after;
        } else {
            pages[before].after = after;
        }
        if after == NONE {
            list.newest = before;
        } else {
            pages[after].before = before;
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

    pub(crate) fn next_serial(&self) -> u64 {
        self.next_serial
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pages.bytes()
    }

    /// Pages in the slicer, in no particular order.
    pub(crate) fn in_slicer(&self) -> impl Iterator<Item = &Page> {
        self.pages.indices().map(|i| &self.pages[i]).filter(|page| matches!(page.state, State::Busy | State::Idle))
    }
}

impl Index<u32> for Pages {
    type Output = Page;
    #[inline(always)]
    fn index(&self, index: u32) -> &Page {
        &self.pages[index]
    }
}
