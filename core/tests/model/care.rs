//! What the device is told to do with the memory of slices: fill it when they are new, overwrite it when they are
//! freed.

use crate::device::{Event, Events};
use crate::oracle::{Checked, check_error, ensure};
use crate::pools::Model;
use slicepool_core::{DeviceError, DeviceFault, Error, FillReason, Request, Slice, SliceId};

/// What an answer to an order to fill `size` bytes means for the caller.
fn error_of(answer: DeviceError, size: u64) -> Error {
    match answer {
        DeviceError::OutOfMemory(code) => Error::OutOfDeviceMemory { size, code },
        DeviceError::Failed(code) => Error::DeviceFailed { fault: DeviceFault::Reported, code },
        DeviceError::UnknownResult(code) => Error::DeviceFailed { fault: DeviceFault::UnknownResult, code },
    }
}

impl Model {
    /// A pending slice is overwritten: then it is free, or waits for a point. The error if it is not, and waits for the
    /// next try.
    pub(crate) fn scrub(&mut self, id: u64, events: &mut Events) -> Checked<Option<Error>> {
        let place = self.waits.place_of(id)?;
        let slice = *self.pools[place.pool].books.slice(place.page, place.offset);
        let event = events.pop_front();
        let Some(Event::Filled { handle, offset, size, reason: FillReason::Scrub, answer }) = event else {
            return Err(format!("{slice:?} was not overwritten: {event:?}"));
        };
        let expected = (place.page, place.offset, slice.size);
        ensure!((handle, offset, size) == expected, "{event:?} for the slice at {expected:?}");
        match answer {
            Ok(None) => self.end_wait(id)?,
            Ok(Some(point)) => self.wait_once_more(id, point)?,
            Err(error) => {
                self.pools[place.pool].to_scrub.push_back(id);
                return Ok(Some(error_of(error, size)));
            }
        }
        Ok(None)
    }

    /// What could not be overwritten before, or is to be now, is tried once; the last error.
    pub(crate) fn scrub_again(&mut self, pool: usize, events: &mut Events) -> Checked<Option<Error>> {
        let mut refusal = None;
        for _ in 0..self.pools[pool].to_scrub.len() {
            let Some(id) = self.pools[pool].to_scrub.pop_front() else { break };
            refusal = self.scrub(id, events)?.or(refusal);
        }
        Ok(refusal)
    }

    /// The slice that was placed for a request and taken back because it could not be filled.
    pub(crate) fn unfilled(events: &Events) -> Option<Slice> {
        events.iter().find_map(|event| match *event {
            Event::Filled { handle, offset, size, reason: FillReason::Zero, .. } => {
                // Nobody has ever seen its handle.
                let id = SliceId::from_raw(u64::MAX)?;
                Some(Slice { id, memory: handle, offset, size, address: 0, mapped: std::ptr::null_mut() })
            }
            _ => None,
        })
    }

    /// A new slice is filled; the error if it is not.
    pub(crate) fn filled(&mut self, slice: &Slice, events: &mut Events) -> Checked<Option<Error>> {
        let event = events.pop_front();
        let Some(Event::Filled { handle, offset, size, reason: FillReason::Zero, answer }) = event else {
            return Err(format!("{slice:?} was not filled: {event:?}"));
        };
        let expected = (slice.memory, slice.offset, slice.size);
        ensure!((handle, offset, size) == expected, "{event:?} for {slice:?}");
        Ok(match answer {
            Ok(None) => None,
            // It would not be full of zeros when it is handed out.
            Ok(Some(_)) => Some(Error::DeviceFailed { fault: DeviceFault::NotFilled, code: 0 }),
            Err(error) => Some(error_of(error, size)),
        })
    }

    /// A request was refused for which a slice had been placed that could not be filled: all but the peaks, the count
    /// of allocations, and pages that were given back on the way is as it was before.
    pub(crate) fn taken_back(
        &mut self,
        request: &Request,
        slice: &Slice,
        error: Error,
        events: &mut Events,
    ) -> Checked {
        let new_page = self.served(request, slice, events)?;
        let Some(expected) = self.filled(slice, events)? else {
            return Err(format!("{request:?} was served and filled, but refused with {error:?}"));
        };
        check_error(error, expected, 0)?;
        let place = self.handles.look_up(slice.id.to_raw()).map_err(|error| format!("a slice taken back: {error}"))?;
        self.handles.forget_unseen(slice.id.to_raw());
        self.release(place);
        if new_page && self.pools[place.pool].books.pages[&place.page].live.is_empty() {
            self.page_leaves(place.pool, place.page, events)?;
        }
        Ok(())
    }
}
