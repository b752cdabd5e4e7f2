//! Limits that an allocator shares with another, which takes and gives back as it likes.

use crate::allocator::Subject;
use crate::device::{Events, Naming, VirtualDevice};
use crate::oracle::{Checked, ensure};
use crate::pools::Model;
use slicepool_core::{Allocator, AllocatorOptions, Budget, Error, HostMemory, LockKind, PoolOptions, Request, SliceId};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

/// What is known of a budget, but for what the allocator itself holds.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    max_bytes: u64,
    max_pages: u32,
    /// Held by the other.
    other_bytes: u64,
    other_pages: u32,
    /// Reservations that were refused, and the largest of them as long as nobody has looked whether it would fit.
    pressure: u32,
    wanted: u64,
    /// The pressure that each has given way to.
    seen: u32,
    seen_by_other: u32,
}

impl Shared {
    pub(crate) fn new((max_bytes, max_pages): (u64, u32)) -> Self {
        let (other_bytes, other_pages, pressure, wanted, seen, seen_by_other) = (0, 0, 0, 0, 0, 0);
        Self { max_bytes, max_pages, other_bytes, other_pages, pressure, wanted, seen, seen_by_other }
    }

    /// Bytes that the next page may have while the allocator holds so many bytes and pages.
    pub(crate) fn room(&self, (bytes, pages): (u64, usize)) -> u64 {
        let free = self.max_bytes - self.other_bytes - bytes;
        if pages + (self.other_pages as usize) < self.max_pages as usize { free } else { 0 }
    }

    /// The error for a page that has too many bytes while the allocator holds `bytes`.
    pub(crate) fn too_many_bytes(&self, size: u64, bytes: u64) -> Option<Error> {
        let (reserved, limit) = (self.other_bytes + bytes, self.max_bytes);
        (size > limit - reserved).then_some(Error::BudgetExceeded { size, limit, reserved })
    }

    /// The error for a page that is one too many, which both feel from then on.
    pub(crate) fn refuses(&mut self, size: u64, (bytes, pages): (u64, usize)) -> Option<Error> {
        let limit = self.max_bytes;
        let error = if let Some(error) = self.too_many_bytes(size, bytes) {
            error
        } else if pages + self.other_pages as usize >= self.max_pages as usize {
            Error::PageCountExceeded { size, limit: self.max_pages }
        } else {
            return None;
        };
        // What could never be had is nobody's concern.
        if size <= limit && self.max_pages != 0 {
            self.pressure += 1;
            self.wanted = self.wanted.max(size);
        }
        Some(error)
    }

    /// A page of so many bytes was reserved: what was wanted has been had, if it is as large.
    pub(crate) fn reserved(&mut self, size: u64) {
        if size >= self.wanted {
            self.wanted = 0;
        }
    }

    /// What was reserved for a page was returned.
    pub(crate) fn released(&mut self, held: (u64, usize)) {
        if self.room(held) >= self.wanted {
            self.wanted = 0;
        }
    }

    fn is_short(&self, held: (u64, usize)) -> bool {
        self.room(held) < self.wanted
    }
}

impl Model {
    /// After a call: if a reservation was refused since the last, pages that hold nothing go back until it would fit.
    pub(crate) fn give_way(&mut self, events: &mut Events) -> Checked {
        let Some(shared) = &mut self.shared else { return Ok(()) };
        if shared.seen == shared.pressure {
            return Ok(());
        }
        while let Some((pool, page)) = self.next_to_go(0) {
            let held = self.held();
            if !self.shared.as_ref().is_some_and(|shared| shared.is_short(held)) {
                break;
            }
            self.page_leaves(pool, page, events)?;
        }
        // What was not enough is gone on with at the next call.
        let held = self.held();
        if let Some(shared) = self.shared.as_mut().filter(|shared| !shared.is_short(held)) {
            shared.seen = shared.pressure;
        }
        Ok(())
    }
}

/// Another allocator that shares the budget: whatever it has no use for goes back at once.
pub(crate) struct Neighbour {
    budget: Budget,
    /// Dropped by [`Neighbour::leave_alone`] alone: in a build that has just failed, dropping might do anything.
    allocator: ManuallyDrop<Allocator<VirtualDevice>>,
    slices: VecDeque<(SliceId, u64)>,
}

impl Neighbour {
    pub(crate) fn new((max_bytes, max_pages): (u64, u32)) -> Checked<Self> {
        let failed = |error| format!("a budget cannot be shared: {error:?}");
        let budget = Budget::try_new(HostMemory::global(), LockKind::spin(), Some(max_bytes), Some(max_pages));
        let budget = budget.map_err(failed)?;
        let device = VirtualDevice::new(Naming::Handle, 1 << 60, vec![4096; 2], false, false);
        let pools = [PoolOptions::direct(None).with_granule(1)];
        let options = AllocatorOptions::default().with_budget(&budget);
        let allocator = ManuallyDrop::new(Allocator::try_new(device, &pools, options).map_err(failed)?);
        Ok(Self { budget, allocator, slices: VecDeque::new() })
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The allocator that is tested is gone: nothing of the budget is used by it any more.
    pub(crate) fn leave_alone(self) -> Checked {
        let found = self.budget.statistics();
        let expected = (self.slices.iter().map(|&(_, size)| size).sum(), self.slices.len() as u32);
        ensure!((found.bytes, found.pages) == expected, "{found:?} instead of {expected:?}");
        drop(ManuallyDrop::into_inner(self.allocator));
        let found = self.budget.statistics();
        ensure!((found.bytes, found.pages) == (0, 0), "nobody uses the budget, but {found:?}");
        Ok(())
    }
}

impl Subject {
    /// The neighbour takes so many bytes, or gives back what it took first.
    pub(crate) fn neighbour(&mut self, take: Option<u64>) -> Checked {
        let held = self.model.held();
        let (Some(neighbour), Some(shared)) = (&mut self.neighbour, &mut self.model.shared) else { return Ok(()) };
        let Some(size) = take else {
            let Some((id, size)) = neighbour.slices.pop_front() else { return Ok(()) };
            let found = (neighbour.allocator.free(id), neighbour.allocator.cleanup());
            ensure!(found == (Ok(()), Ok(())), "the neighbour gives back: {found:?}");
            shared.seen_by_other = shared.pressure;
            shared.other_bytes -= size;
            shared.other_pages -= 1;
            shared.released(held);
            return Ok(());
        };
        let size = size.clamp(1, 1 << 30);
        let expected = shared.refuses(size, held);
        let found = neighbour.allocator.allocate(&Request::new(size));
        ensure!(found.err() == expected, "the neighbour is answered {found:?} instead of {expected:?}");
        if let Ok(slice) = found {
            neighbour.slices.push_back((slice.id, size));
            shared.other_bytes += size;
            shared.other_pages += 1;
            shared.reserved(size);
            shared.seen_by_other = shared.pressure;
        }
        Ok(())
    }

    pub(crate) fn check_budget(&self) -> Checked {
        let (Some(neighbour), Some(shared)) = (&self.neighbour, &self.model.shared) else { return Ok(()) };
        let found = neighbour.budget.statistics();
        let (bytes, pages) = self.model.held();
        let expected = (shared.other_bytes + bytes, shared.other_pages + pages as u32, shared.pressure);
        ensure!((found.bytes, found.pages, found.pressure) == expected, "{found:?} instead of {expected:?}");
        Ok(())
    }
}
