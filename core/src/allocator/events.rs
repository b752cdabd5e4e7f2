//! Telling the device what happens: what is told is gathered under the lock, and told without it.

use super::{Allocator, Cell, InFlight};
use crate::device::{Device, DeviceMemory};
use crate::error::Error;
use crate::event::{Event, EventKind, Label};
use crate::pool::Pool;
use core::ops::ControlFlow;

impl<D: Device> Allocator<D> {
    /// Whether slices are told of.
    pub(super) fn tells_slices(&self) -> bool {
        self.tells && self.options.slice_events
    }

    /// Tells of something, if there is anything to tell.
    #[cold]
    pub(super) fn tell(&self, event: Option<Event>) {
        if let Some(event) = event {
            let _in_flight = InFlight::new(&self.in_flight);
            self.device.event(&event);
        }
    }

    /// An event about a page, to be made while the pool's lock is held.
    #[cold]
    pub(super) fn page_event(&self, kind: EventKind, cell: &Cell, memory: &DeviceMemory) -> Option<Event> {
        // Of a dry run's pages the device has not heard.
        (self.tells && memory.is_mapped()).then(|| Event {
            sequence: self.sequence.next(),
            kind,
            pool: cell.index,
            memory_type: cell.rules.memory_type,
            id: None,
            memory: memory.handle,
            offset: 0,
            size: memory.size,
            requested: 0,
            error: None,
            label: Label::NONE,
        })
    }

    /// The events of a page that is of no use and not taken back, while the pool's lock is held.
    #[cold]
    pub(super) fn useless_page_events(&self, cell: &Cell, memory: &DeviceMemory) -> [Option<Event>; 2] {
        [EventKind::PageAllocated, EventKind::PageRefused].map(|kind| self.page_event(kind, cell, memory))
    }

    /// An event about a slice that is live, claimed or pending, whose pool's lock is held.
    #[cold]
    pub(super) fn slice_event(&self, kind: EventKind, cell: &Cell, pool: &Pool, slot: u32) -> Option<Event> {
        if !self.tells_slices() {
            return None;
        }
        let slice = pool.slice_of(slot);
        Some(Event {
            sequence: self.sequence.next(),
            kind,
            pool: cell.index,
            memory_type: cell.rules.memory_type,
            id: Some(slice.id),
            memory: slice.memory,
            offset: slice.offset,
            size: slice.size - pool.margin_bytes(),
            requested: match kind {
                EventKind::SliceAllocated | EventKind::SliceResized => pool.requested(slot),
                _ => 0,
            },
            error: None,
            label: pool.label(slot),
        })
    }

    /// Tells of a request that was refused for want of memory.
    #[cold]
    pub(super) fn tell_shortage(&self, memory_type: u32, size: u64, error: Error) {
        let event = self.tells.then(|| Event {
            sequence: self.sequence.next(),
            kind: EventKind::OutOfMemory,
            pool: 0,
            memory_type,
            id: None,
            memory: u64::MAX,
            offset: 0,
            size,
            requested: size,
            error: Some(error),
            label: Label::NONE,
        });
        self.tell(event);
    }

    /// Tells of every slice that is live.
    #[cold]
    pub(super) fn tell_leaks(&self) {
        if !self.tells {
            return;
        }
        // A callback that allocates must not make this go on for ever.
        let mut left = self.statistics().slices;
        let _: ControlFlow<()> = self.walk(|range| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            // What a callback or another thread has freed meanwhile has no label any more, and does not leak.
            let live = range.id.and_then(|id| Some((self.get(id).ok()?, self.label(id).ok()?)));
            if let Some((slice, label)) = live {
                left -= 1;
                let event = Event {
                    sequence: self.sequence.next(),
                    kind: EventKind::SliceLeaked,
                    pool: range.pool,
                    memory_type: range.memory_type,
                    id: Some(slice.id),
                    memory: range.memory,
                    offset: range.offset,
                    size: slice.size,
                    requested: range.requested,
                    error: None,
                    label,
                };
                self.tell(Some(event));
            }
            ControlFlow::Continue(())
        });
    }
}
