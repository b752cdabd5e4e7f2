//! How allocators go away, against the model.

use crate::allocator::{End, Subject};
use crate::oracle::{Checked, ensure};
use slicepool_core::{Error, LiveSlices, Request, SliceId};
use std::mem::ManuallyDrop;

impl Subject {
    /// Lets the allocator go away.
    pub(crate) fn end(self, end: End) -> Checked {
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
                device.set_mood(&[], 0);
                let held = device.pages_held();
                drop(ManuallyDrop::into_inner(self.allocator));
                let events = device.take_events()?;
                ensure!(events.len() == held && device.pages_held() == 0, "dropped with {held} pages: {events:?}");
                Ok(())
            }
        }
    }

    fn close(mut self) -> Checked {
        if !self.model.handles.live.is_empty() {
            let found = self.allocator.close(LiveSlices::Refuse);
            ensure!(
                found == self.allocator.can_destroy(slicepool_core::LiveSlices::Refuse) && found.is_err(),
                "close answers {found:?}"
            );
            self.check_everything(0)?;
        }
        for attempt in 0..2 {
            let ids = self.ids_in_order();
            let closed = self.allocator.close(LiveSlices::Free);
            // They are freed as a walk shows them.
            ids.iter().for_each(|id| self.model.free(id.to_raw()));
            self.slices.clear();
            self.trimmed(0, closed)?;
            self.check_everything(0)?;
            if closed.is_ok() {
                break;
            }
            ensure!(attempt == 0, "cannot be closed though the device takes everything back");
            self.allocator.device().set_mood(&[], 0);
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

    fn destroy(mut self) -> Checked {
        if !self.model.handles.live.is_empty() {
            let Err((allocator, error)) = ManuallyDrop::into_inner(self.allocator).destroy() else {
                return Err("destroyed with live slices".into());
            };
            ensure!(matches!(error, Error::Busy { .. }), "destroy answers {error:?}");
            self.allocator = ManuallyDrop::new(allocator);
            self.check_everything(0)?;
            let ids: Vec<_> = self.model.handles.live.iter().map(|&id| SliceId::from_raw(id)).collect();
            self.free_many(&ids)?;
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
                    self.trimmed(0, Err(error))?;
                    self.check_everything(0)?;
                    self.allocator.device().set_mood(&[], 0);
                }
            }
        }
        Err("cannot be destroyed though the device takes everything back".into())
    }
}
