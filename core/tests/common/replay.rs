//! Pages and slices, rebuilt from nothing but events.

use super::sums::all_ranges;
use slicepool_core::{Allocator, Device, Event, EventKind, SliceId};
use std::collections::{BTreeMap, HashMap};

#[derive(Debug)]
struct Page {
    pool: u32,
    size: u64,
    /// Whether the device has refused to take it back.
    stuck: bool,
    /// What is in use: the end, the slice, and whether it waits for the device.
    used: BTreeMap<u64, (u64, SliceId, bool)>,
}

/// Panics at an event that cannot have happened after those before it.
#[derive(Default)]
pub(crate) struct Replay {
    last: Option<u64>,
    pages: HashMap<u64, Page>,
    /// How often each kind has occurred.
    pub(crate) counts: HashMap<String, u64>,
}

impl Replay {
    /// Goes on with events that happened after those before, in any order.
    pub(crate) fn go_on(&mut self, mut events: Vec<Event>) {
        events.sort_by_key(|event| event.sequence);
        for event in &events {
            assert!(self.last.is_none_or(|last| last < event.sequence), "a number was given twice: {event:?}");
            self.last = Some(event.sequence);
            *self.counts.entry(format!("{:?}", event.kind)).or_default() += 1;
            if let Err(why) = self.apply(event) {
                panic!("{why}: {event:?}, while the page is {:?}", self.pages.get(&event.memory));
            }
        }
    }

    fn apply(&mut self, event: &Event) -> Result<(), &'static str> {
        let Event { kind, pool, id, memory, offset, size, .. } = *event;
        match kind {
            EventKind::PageAllocated | EventKind::PageAdopted => {
                let page = Page { pool, size, stuck: false, used: BTreeMap::new() };
                return if self.pages.insert(memory, page).is_none() { Ok(()) } else { Err("the page is there") };
            }
            EventKind::OutOfMemory => return if event.error.is_some() { Ok(()) } else { Err("without an error") },
            _ => {}
        }
        let page = self.pages.get_mut(&memory).ok_or("there is no such page")?;
        if matches!(kind, EventKind::PageMoved | EventKind::PageReturned | EventKind::PageRefused) {
            if !page.used.is_empty() || page.size != size {
                return Err("the page is in use, or has another size");
            }
            match kind {
                EventKind::PageMoved => page.pool = pool,
                EventKind::PageRefused => page.stuck = true,
                _ => drop(self.pages.remove(&memory)),
            }
            return Ok(());
        }
        if page.pool != pool || page.stuck || offset + size > page.size {
            return Err("the page is not one for this slice");
        }
        let id = id.ok_or("which slice?")?;
        if kind != EventKind::SliceAllocated {
            let (end, owner, waits) = page.used.remove(&offset).ok_or("nothing is in use there")?;
            let same = owner == id && (end == offset + size || kind == EventKind::SliceResized);
            if !same || (waits && !matches!(kind, EventKind::SliceFreed | EventKind::SlicePending)) {
                return Err("another slice is in use there");
            }
        }
        let before = page.used.range(..offset + size).next_back();
        if before.is_some_and(|(_, &(end, ..))| end > offset) {
            return Err("something else is in use there");
        }
        if kind != EventKind::SliceFreed {
            page.used.insert(offset, (offset + size, id, kind == EventKind::SlicePending));
        }
        Ok(())
    }

    /// Panics unless the allocator shows what the events come to.
    pub(crate) fn assert_is<D: Device>(&self, allocator: &Allocator<D>) {
        let mut shown = BTreeMap::new();
        let ranges = all_ranges(allocator);
        for range in ranges.iter().filter(|range| range.id.is_some() || range.pending) {
            shown.insert((range.memory, range.offset), (range.pool, range.size));
        }
        let mut told = BTreeMap::new();
        for (memory, page) in &self.pages {
            for (offset, (end, ..)) in &page.used {
                told.insert((*memory, *offset), (page.pool, end - offset));
            }
        }
        assert_eq!(told, shown);
        let figures = allocator.statistics();
        assert_eq!(self.pages.len() as u32, figures.pages + figures.pages_stuck);
        assert_eq!(self.pages.values().map(|page| page.size).sum::<u64>(), figures.reserved);
        assert_eq!(self.pages.values().filter(|page| page.stuck).count() as u32, figures.pages_stuck);
    }

    /// How often a kind has occurred.
    pub(crate) fn count(&self, kind: EventKind) -> u64 {
        self.counts.get(&format!("{kind:?}")).copied().unwrap_or(0)
    }
}
