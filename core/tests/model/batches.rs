//! Batches of requests against the model, one request after the other.

use crate::allocator::{Subject, all_accounted_for};
use crate::device::VirtualDevice;
use crate::oracle::{Checked, ensure};
use crate::pools::Model;
use slicepool_core::{Allocator, BatchError, Error, Request, Slice, SliceId};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// The slices that a batch has placed so far, which it has not shown to anybody yet.
struct Placed<'a> {
    allocator: &'a Allocator<VirtualDevice>,
    model: &'a mut Model,
    slices: &'a mut HashMap<u64, Slice>,
    ids: Vec<u64>,
}

impl Placed<'_> {
    /// Accounts for the slice that has just been placed for `request`: a walk shows it.
    fn note(&mut self, request: &Request) -> Checked {
        let mut events = self.allocator.device().take_events()?;
        let slices = &self.slices;
        let walk = self.allocator.walk(|range| match range.id {
            Some(id) if !slices.contains_key(&id.to_raw()) => ControlFlow::Break(id),
            _ => ControlFlow::Continue(()),
        });
        let ControlFlow::Break(id) = walk else { return Err(format!("nothing was placed for {request:?}")) };
        let slice = self.allocator.get(id).map_err(|error| format!("a new slice: {error}"))?;
        self.slices.insert(id.to_raw(), slice);
        self.ids.push(id.to_raw());
        self.model.asked(request, Ok(slice), &mut events)?;
        all_accounted_for(&events)
    }
}

impl Subject {
    pub(crate) fn allocate_many(&mut self, requests: &[Request], refuse_at: Option<usize>) -> Checked {
        if requests.len() < 2 && refuse_at.is_none() {
            return self.allocate_few(requests);
        }
        // An error that nothing else answers.
        let refusal = Error::OutOfHostMemory { bytes: 12_345 };
        let serial = self.model.next_serial;
        let Self { allocator, model, slices, .. } = self;
        let mut placed = Placed { allocator, model, slices, ids: Vec::new() };
        let mut noted = Ok(());
        let result = allocator.allocate_each(requests.len() as u32, |index| {
            // No lock is held: the allocator may be used.
            let index = index as usize;
            noted = std::mem::replace(&mut noted, Ok(())).and_then(|()| {
                ensure!(index == 0 || placed.ids.len() == index - 1, "request {index} was called for out of turn");
                requests[..index].last().map_or(Ok(()), |request| placed.note(request))?;
                allocator.check().map_err(String::from)
            });
            if noted.is_err() || Some(index) == refuse_at { Err(refusal) } else { Ok(requests[index]) }
        });
        noted?;
        match result {
            Ok(batch) => {
                requests.last().map_or(Ok(()), |request| placed.note(request))?;
                let found: Vec<_> = batch.iter().copied().collect();
                let expected: Vec<_> = placed.ids.iter().map(|id| placed.slices[id]).collect();
                ensure!(found == expected, "the batch has {found:?} instead of {expected:?}");
                Ok(())
            }
            Err(BatchError { index, error }) => {
                let ids = placed.ids;
                ensure!(ids.len() == index as usize, "refused at {index} with {} slices placed", ids.len());
                let mut events = self.events()?;
                if error != refusal {
                    self.model.asked(&requests[index as usize], Err(error), &mut events)?;
                }
                self.model.undo(&ids, serial, &mut events)?;
                self.slices.retain(|id, _| !ids.contains(id));
                all_accounted_for(&events)
            }
        }
    }

    /// A batch of one request, or none.
    fn allocate_few(&mut self, requests: &[Request]) -> Checked {
        let result = self.allocator.allocate_many(requests);
        let mut events = self.events()?;
        let Some(request) = requests.first() else {
            ensure!(result.is_ok_and(|batch| batch.is_empty()), "an empty batch is refused");
            return all_accounted_for(&events);
        };
        let answer = match result {
            Ok(batch) => {
                ensure!(batch.len() == 1, "{batch:?} for one request");
                self.slices.insert(batch[0].id.to_raw(), batch[0]);
                Ok(batch[0])
            }
            Err(BatchError { index, error }) => {
                ensure!(index == 0, "{error:?} at {index} of one request");
                Err(error)
            }
        };
        self.model.asked(request, answer, &mut events)?;
        all_accounted_for(&events)
    }

    /// The handles of live slices in the order of a walk.
    pub(crate) fn ids_in_order(&self) -> Vec<SliceId> {
        let mut ids = Vec::new();
        let _: ControlFlow<()> = self.allocator.walk(|range| {
            ids.extend(range.id);
            ControlFlow::Continue(())
        });
        ids
    }
}
