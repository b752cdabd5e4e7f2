//! How allocators go away, against the model.

use crate::allocator::{End, Subject};
use crate::device::{Event, Events, VirtualDevice};
use crate::ops::TIMELINES;
use crate::oracle::{Checked, ensure};
use slicepool_core::{Error, FillReason, LiveSlices, Request, SliceId};
use std::mem::ManuallyDrop;

impl Subject {
    /// Lets the allocator go away.
    pub(crate) fn end(mut self, end: End) -> Checked {
        let neighbour = self.neighbour.take();
        self.go_away(end)?;
        neighbour.map_or(Ok(()), |neighbour| neighbour.leave_alone())
    }

    fn go_away(self, end: End) -> Checked {
        self.check_stale_handles(0, 500)?;
        ensure!(self.stranger.get(self.foreign).is_ok(), "somebody else's slice is gone");
        match end {
            End::Destroy => self.destroy(),
            End::Close => self.close(),
            End::Abandon => {
                let held = self.allocator.device().pages_held();
                let device = ManuallyDrop::into_inner(self.allocator).abandon();
                let events = device.take_events()?;
                ensure!(events.is_empty() && device.pages_held() == held, "abandoned, but {events:?}");
                Ok(())
            }
            End::Drop => {
                let device = self.allocator.device().clone();
                Self::calm(&device);
                let held = device.pages_held();
                drop(ManuallyDrop::into_inner(self.allocator));
                let mut events = device.take_events()?;
                events.retain(|event| !matches!(event, Event::Filled { reason: FillReason::Scrub, .. }));
                ensure!(events.len() == held && device.pages_held() == 0, "dropped with {held} pages: {events:?}");
                Ok(())
            }
        }
    }

    /// The device takes everything back and does what it is told.
    fn calm(device: &VirtualDevice) {
        device.set_mood(&[], 0, 0);
        device.set_fills(&[]);
    }

    fn close(mut self) -> Checked {
        if self.is_used() {
            let found = self.allocator.close(LiveSlices::Refuse);
            let expected = Err(self.busy());
            ensure!(found == expected, "close answers {found:?} instead of {expected:?}");
            self.check_everything(0)?;
        }
        for attempt in 0..2 {
            let ids = self.ids_in_order();
            let waits = self.model.waits.count() != 0 || self.model.can_fill || self.model.shared.is_some();
            let closed = self.allocator.close(LiveSlices::Free);
            self.slices.clear();
            if waits {
                let mut events = self.events()?;
                let expected = self.model.closed_by_force(&mut events)?.map_or(Ok(()), Err);
                ensure!(closed == expected, "close answers {closed:?} instead of {expected:?}");
            } else {
                // They are freed as a walk shows them.
                ids.iter().try_for_each(|id| self.model.freed(id.to_raw(), &[], &mut Events::new()))?;
                self.cleaned_up(closed)?;
            }
            self.check_everything(0)?;
            if closed.is_ok() {
                break;
            }
            ensure!(attempt == 0, "cannot be closed though the device takes everything back");
            Self::calm(self.allocator.device());
        }
        // From now on there are no pages, and the device is not asked for any.
        let request = Request::new(1);
        let found = self.allocator.allocate(&request);
        let as_expected = match self.model.refusal(&request) {
            Some(error) => found == Err(error),
            None => matches!(found, Err(Error::Busy { .. })),
        };
        ensure!(as_expected, "a closed allocator answers {found:?}");
        ensure!(self.allocator.device().pages_held() == 0, "a closed allocator holds pages");
        self.check_everything(0)?;
        drop(ManuallyDrop::into_inner(self.allocator));
        Ok(())
    }

    /// Destroying is refused, and changes nothing.
    fn cannot_be_destroyed(mut self) -> Checked<Self> {
        let expected = self.busy();
        let Err((allocator, error)) = ManuallyDrop::into_inner(self.allocator).destroy() else {
            return Err("destroyed with slices".into());
        };
        self.allocator = ManuallyDrop::new(allocator);
        ensure!(error == expected, "destroy answers {error:?} instead of {expected:?}");
        self.check_everything(0)?;
        Ok(self)
    }

    fn destroy(mut self) -> Checked {
        if !self.model.handles.live.is_empty() {
            self = self.cannot_be_destroyed()?;
            let ids: Vec<_> = self.model.handles.live.iter().map(|&id| SliceId::from_raw(id)).collect();
            self.free_many(&ids, &[])?;
        }
        if self.model.waits.count() != 0 {
            self = self.cannot_be_destroyed()?;
            Self::calm(self.allocator.device());
            for timeline in TIMELINES {
                self.collect(timeline, u64::MAX)?;
            }
        }
        for _ in 0..2 {
            let expected_held = self.allocator.device().pages_held();
            match ManuallyDrop::into_inner(self.allocator).destroy() {
                Ok(device) => {
                    let events = device.take_events()?;
                    let held = device.pages_held();
                    ensure!(events.len() == expected_held && held == 0, "{held} pages are left: {events:?}");
                    return Ok(());
                }
                Err((allocator, error)) => {
                    // Only because the device refused; and then it can be tried again.
                    self.allocator = ManuallyDrop::new(allocator);
                    self.cleaned_up(Err(error))?;
                    self.check_everything(0)?;
                    Self::calm(self.allocator.device());
                }
            }
        }
        Err("cannot be destroyed though the device takes everything back".into())
    }
}
