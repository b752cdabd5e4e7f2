//! The record of a page, and lists of pages that run through their records.
#![forbid(unsafe_code)]

use super::records::Records;
use crate::device::DeviceMemory;
use crate::sync::AtomicPtr;
use core::cell::Cell;
use core::marker::PhantomData;

/// No page.
pub(super) const NONE: u32 = u32::MAX;

/// What a page record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
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
#[cfg_attr(feature = "complete", repr(C, align(64)))]
#[cfg_attr(not(feature = "complete"), repr(C))]
pub(crate) struct Page {
    // The first cache line is what becoming idle and becoming busy touch.
    pub(crate) memory: DeviceMemory,
    /// The page's edge in the slicer, or its only node.
    pub(super) edge: Cell<u32>,
    pub(super) state: Cell<State>,
    /// Of a busy page: what an idle one has derives from `expiry`.
    pub(super) staleness: Cell<u8>,
    /// Whether the device is mapping or unmapping it at this moment.
    pub(super) is_mapping: Cell<bool>,
    /// Neighbours in the list of idle or stuck pages.
    pub(super) order: Links,
    /// When the page became idle, by the allocator's clock.
    pub(super) idle_since: Cell<u32>,
    /// How often it has been asked to be mapped and not yet to be unmapped.
    pub(super) map_count: Cell<u32>,
    // The second line is for pages that age, and for what happens once in a page's life.
    /// The check at which an idle page has grown too old.
    pub(super) expiry: Cell<u64>,
    /// Neighbours in the list of idle pages that expire together, or have expired.
    pub(super) age: Links,
    /// Counts pages in the order in which they were installed.
    pub(crate) serial: u64,
    /// Part of the sets of idle and of vacant pages; says nothing about this page itself.
    pub(super) marks: [Marks; 2],
    /// Where the device has mapped it on demand, NULL if it has not.
    pub(super) mapping: AtomicPtr<u8>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Page>() == 128);
#[cfg(not(target_pointer_width = "64"))]
const _: () = assert!(size_of::<Page>() <= 128);

impl Page {
    pub(crate) fn is_idle(&self) -> bool {
        self.is(State::Idle)
    }

    #[inline(always)]
    pub(super) fn is(&self, state: State) -> bool {
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
pub(super) struct Links {
    pub(super) before: Cell<u32>,
    pub(super) after: Cell<u32>,
}

impl Links {
    pub(super) fn none() -> Self {
        Links { before: Cell::new(NONE), after: Cell::new(NONE) }
    }
}

/// A set of pages by index, whose lowest member is found in a few steps: `bits` of every 64th page are the marks of the
/// 64 pages from there on, `groups` of every 4,096th page say which `bits` from there on are not zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    pub(super) bits: Cell<u64>,
    pub(super) groups: Cell<u64>,
}

/// The sets that pages are in: places in `Page::marks`.
#[derive(Clone, Copy)]
pub(super) enum Set {
    Idle = 0,
    Vacant = 1,
}

/// The lists that a page can be in by one pair of links each.
pub(super) trait By {
    fn links(page: &Page) -> &Links;
}

/// Idle or stuck pages in the order in which they became so.
pub(super) struct ByOrder;

impl By for ByOrder {
    #[inline(always)]
    fn links(page: &Page) -> &Links {
        &page.order
    }
}

/// Idle pages by when they expire.
pub(super) struct ByAge;

impl By for ByAge {
    #[inline(always)]
    fn links(page: &Page) -> &Links {
        &page.age
    }
}

/// A list of pages in the order in which they entered it.
pub(super) struct List<B> {
    pub(super) oldest: u32,
    pub(super) newest: u32,
    by: PhantomData<B>,
}

impl<B: By> List<B> {
    pub(super) const EMPTY: Self = List { oldest: NONE, newest: NONE, by: PhantomData };

    pub(super) fn first(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    #[inline(always)]
    pub(super) fn append(&mut self, pages: &Records, index: u32, page: &Page) {
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
    pub(super) fn remove(&mut self, pages: &Records, page: &Page) {
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
    pub(super) fn take_all(&mut self, other: &mut Self, pages: &Records) {
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
