//! How a build without the parts that make an allocator complete allocates, grows and gives pages back: with the fewest
//! instructions. Pages are equal and of one kind of memory; a request is looked for in all memory that is held, then a page
//! is taken, then pages that hold nothing are given back for one.

use super::short::note;
use super::{Allocator, Cell, InFlight, LiveSlices};
use crate::device::{Device, DeviceError, DeviceMemory, PageRequest};
use crate::error::{DeviceFault, Error};
use crate::pool::Fit;
use crate::slice::{Request, Slice};
use crate::slots::SliceId;
use crate::sync::Ordering;

impl<D: Device> Allocator<D> {
    /// [`Allocator::allocate`] of a request that has been checked.
    pub(super) fn allocate_plainly(&self, request: &Request) -> Result<Slice, Error> {
        if request.is_unusual() {
            return Err(Error::NotSupported { what: c"flags" });
        }
        let cells = self.plain_route(request.pool)?;
        loop {
            let mut worst = None;
            for grows in [false, true] {
                for cell in cells {
                    let placed = cell.rules.fit_linear(request).and_then(|fit| match grows {
                        false => self.look_everywhere(cell, &fit),
                        true => self.take_page_for(cell, &fit).map(Some),
                    });
                    match placed {
                        Ok(Some(slice)) => return Ok(slice),
                        Ok(None) => {}
                        Err(error) => note(&mut worst, error),
                    }
                }
            }
            let error = worst.unwrap_or(Error::NotSupported { what: c"pools" });
            // Pages that hold nothing may be in the way of one that another pool needs.
            if error.bytes_to_give_back().is_none() || !self.give_idle_pages_back(&mut None) {
                return Err(error);
            }
        }
    }

    /// Looks at every hole that could hold the request, a few at a time per lock hold.
    fn look_everywhere(&self, cell: &Cell, fit: &Fit) -> Result<Option<Slice>, Error> {
        let mut scan = None;
        loop {
            let mut pool = self.lock_with_nodes(cell)?;
            if let Some(slice) = pool.place_elsewhere(fit) {
                return Ok(Some(slice));
            }
            let next = scan.unwrap_or_else(|| pool.begin_scan(fit));
            match pool.scan(fit, next) {
                Ok(slice) => return Ok(slice),
                Err(more) => scan = Some(more),
            }
        }
    }

    /// Takes a page from the device and places the request in it.
    fn take_page_for(&self, cell: &Cell, fit: &Fit) -> Result<Slice, Error> {
        let _in_flight = InFlight::new(&self.in_flight);
        let mut pool = self.lock_with_metadata(cell)?;
        // Another call may have brought a page meanwhile.
        if let Some(slice) = pool.place_elsewhere(fit) {
            return Ok(slice);
        }
        self.check_open()?;
        let bytes = pool.begin_growth(fit, u64::MAX, 0, self.returned_pages())?;
        drop(pool);
        // A statement of its own: the lock ends with it.
        let reserved = self.ledger.lock().reserve(0, bytes);
        let taken = reserved.and_then(|()| {
            let taken = self.ask_for_page(cell, bytes);
            if taken.is_err() {
                self.ledger.lock().release(0, bytes);
            }
            taken
        });
        let mut pool = cell.pool.lock();
        match taken {
            Ok(memory) => Ok(pool.commit_growth(memory, fit)),
            Err(error) => {
                pool.cancel_growth(bytes);
                Err(error)
            }
        }
    }

    /// Calls the device for a page and checks what it answers. A page that is no good goes back at once; one that the
    /// device does not take back then is lost.
    fn ask_for_page(&self, cell: &Cell, bytes: u64) -> Result<DeviceMemory, Error> {
        let mut request = PageRequest::new(bytes, cell.rules.page_alignment);
        request.pool = cell.index;
        let answer = self.device.allocate(&request).map_err(|error| match error {
            DeviceError::OutOfMemory(code) => Error::OutOfDeviceMemory { size: bytes, code },
            other => other.into(),
        })?;
        let memory = DeviceMemory { size: bytes, ..answer };
        let failed = |fault| Err(Error::DeviceFailed { fault, code: 0 });
        if !memory.is_mapped() {
            return failed(DeviceFault::NotFilled);
        }
        // Giving it back would free the page that is live.
        if self.pools.iter().any(|cell| cell.pool.lock().pages.hold(&memory)) {
            return failed(DeviceFault::Duplicate);
        }
        if let Some(fault) = memory.fault(&cell.rules) {
            let _ = self.device.deallocate(&memory);
            return failed(fault);
        }
        Ok(memory)
    }

    /// [`Allocator::free`].
    pub(super) fn free_plainly(&self, id: SliceId) -> Result<(), Error> {
        let mut pool = self.cell(id)?.pool.lock();
        let slot = pool.slicer.resolve_any(id)?;
        pool.free_slot_elsewhere(slot, &self.clock);
        Ok(())
    }

    /// Gives every page that holds nothing back to the device, and asks once more for those it has refused; whether it has
    /// taken any.
    pub(super) fn give_idle_pages_back(&self, refusal: &mut Option<Error>) -> bool {
        let _in_flight = InFlight::new(&self.in_flight);
        let mut taken = false;
        for cell in self.pools.iter() {
            let pool = cell.pool.lock();
            // Only as many as there are now: callbacks may make others idle for ever.
            let mut left = pool.pages.idle_count() + pool.pages.stuck_count();
            drop(pool);
            while left != 0 {
                left -= 1;
                let mut pool = cell.pool.lock();
                let (page, memory) = match (pool.pages.retry_stuck(), pool.pages.oldest_idle()) {
                    (Some(page), _) => (page, pool.pages[page].memory),
                    (None, Some(page)) => (page, pool.begin_return(page)),
                    (None, None) => break,
                };
                drop(pool);
                let answer = self.device.deallocate(&memory);
                let mut pool = cell.pool.lock();
                match answer {
                    Ok(()) => {
                        pool.returned(page);
                        drop(pool);
                        self.ledger.lock().release(0, memory.size);
                        self.note_return();
                        taken = true;
                    }
                    Err(error) => {
                        pool.refused(page);
                        *refusal = Some(Error::DeviceFailed { fault: DeviceFault::Refused, code: error.code() });
                    }
                }
            }
        }
        taken
    }

    /// [`Allocator::trim`], which can keep nothing here.
    pub(super) fn trim_plainly(&self, min_keep_bytes: u64) -> Result<(), Error> {
        if min_keep_bytes != 0 {
            return Err(Error::NotSupported { what: c"min_keep_bytes" });
        }
        let mut refusal = None;
        self.give_idle_pages_back(&mut refusal);
        refusal.map_or(Ok(()), Err)
    }

    /// [`Allocator::close`].
    pub(super) fn close_plainly(&self, live: LiveSlices) -> Result<(), Error> {
        self.can_destroy(live)?;
        self.closing.fetch_add(1, Ordering::AcqRel);
        let mut closed = Ok(());
        if live == LiveSlices::Free {
            self.free_all_plainly();
        }
        let mut refusal = None;
        self.give_idle_pages_back(&mut refusal);
        if let Some(error) = refusal {
            closed = Err(error);
        } else {
            let uses = self.uses();
            if uses.pages != 0 || uses.growths != 0 {
                closed = Err(uses.busy(uses.growths));
            }
        }
        if closed.is_err() {
            self.closing.fetch_sub(1, Ordering::AcqRel);
        }
        closed
    }

    fn free_all_plainly(&self) {
        for cell in self.pools.iter() {
            let mut next = 1;
            loop {
                let mut pool = cell.pool.lock();
                let Some((slot, node)) = pool.slicer.node_from(next) else { break };
                if node.is_slice() {
                    pool.free_slot_elsewhere(slot, &self.clock);
                }
                next = slot + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AllocatorOptions, PoolOptions};
    use std::sync::Mutex;
    use std::vec::Vec;

    /// Gives out numbered pages, up to a limit; can be told what to answer.
    #[derive(Default)]
    struct Counting {
        state: Mutex<State>,
    }

    #[derive(Default)]
    struct State {
        limit: usize,
        out: Vec<u64>,
        next: u64,
        answer: Option<DeviceMemory>,
        keeps: bool,
    }

    impl Device for &Counting {
        fn allocate(&self, _: &PageRequest) -> Result<DeviceMemory, DeviceError> {
            let mut state = self.state.lock().unwrap();
            if let Some(answer) = state.answer {
                return Ok(answer);
            }
            if state.out.len() == state.limit {
                return Err(DeviceError::OutOfMemory(-2));
            }
            let handle = state.next;
            state.next += 1;
            state.out.push(handle);
            Ok(DeviceMemory::new(handle))
        }

        fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
            let mut state = self.state.lock().unwrap();
            if state.keeps {
                return Err(DeviceError::Failed(-7));
            }
            let found = state.out.iter().position(|&handle| handle == memory.handle).unwrap();
            state.out.remove(found);
            Ok(())
        }
    }

    fn device(limit: usize) -> Counting {
        Counting { state: Mutex::new(State { limit, ..State::default() }) }
    }

    fn allocator(device: &Counting, pools: u32) -> Allocator<&Counting> {
        let pool = PoolOptions::sliced_pages(4096, 4096, None).with_granule(64);
        let pools = std::vec![pool; pools as usize];
        Allocator::try_new(device, &pools, AllocatorOptions::default()).unwrap()
    }

    #[test]
    fn slices_never_overlap_and_every_page_goes_back() {
        let device = device(5);
        let allocator = allocator(&device, 1);
        let mut live: Vec<Slice> = Vec::new();
        let mut random = 1u64;
        let mut refused = 0;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = random >> 33;
            if number % 2 == 0 && !live.is_empty() {
                let slice = live.swap_remove(number as usize / 2 % live.len());
                allocator.free_plainly(slice.id).unwrap();
                assert!(allocator.free_plainly(slice.id).is_err());
                continue;
            }
            match allocator.allocate_plainly(&Request::new(1 + number % 1500).aligned(64 << (number >> 20 & 3))) {
                Ok(slice) => {
                    let apart = |other: &Slice| {
                        other.memory != slice.memory
                            || other.offset + other.size <= slice.offset
                            || slice.offset + slice.size <= other.offset
                    };
                    assert!(live.iter().all(apart));
                    live.push(slice);
                }
                Err(error) => {
                    assert!(matches!(error, Error::OutOfDeviceMemory { size: 4096, code: -2 }), "{error:?}");
                    refused += 1;
                }
            }
            allocator.check().unwrap();
        }
        assert!(refused > 100 && !live.is_empty(), "{refused}");
        assert!(matches!(allocator.close_plainly(LiveSlices::Refuse), Err(Error::Busy { .. })));
        allocator.close_plainly(LiveSlices::Free).unwrap();
        assert!(device.state.lock().unwrap().out.is_empty());
    }

    #[test]
    fn a_page_that_holds_nothing_makes_room_for_another_pool() {
        let device = device(1);
        let allocator = allocator(&device, 2);
        let first = allocator.allocate_plainly(&Request::new(100).in_pool(0)).unwrap();
        assert!(allocator.allocate_plainly(&Request::new(100).in_pool(1)).is_err());
        allocator.free_plainly(first.id).unwrap();
        let second = allocator.allocate_plainly(&Request::new(100).in_pool(1)).unwrap();
        assert_ne!(first.memory, second.memory);
        allocator.free_plainly(second.id).unwrap();
        allocator.close_plainly(LiveSlices::Refuse).unwrap();
    }

    #[test]
    fn nonsense_of_a_device_is_found_out() {
        let device = device(2);
        let allocator = allocator(&device, 1);
        let slice = allocator.allocate_plainly(&Request::new(4096)).unwrap();
        let fault_of = |answer| {
            device.state.lock().unwrap().answer = Some(answer);
            match allocator.allocate_plainly(&Request::new(4096)) {
                Err(Error::DeviceFailed { fault, .. }) => fault,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(fault_of(DeviceMemory::new(slice.memory)), DeviceFault::Duplicate);
        assert_eq!(fault_of(DeviceMemory::new(u64::MAX)), DeviceFault::NotFilled);
        device.state.lock().unwrap().answer = None;
        allocator.free_plainly(slice.id).unwrap();
        // A page that is refused stays, and is tried again.
        device.state.lock().unwrap().keeps = true;
        let refused = Err(Error::DeviceFailed { fault: DeviceFault::Refused, code: -7 });
        assert_eq!(allocator.trim_plainly(0), refused);
        assert_eq!(allocator.close_plainly(LiveSlices::Refuse), refused);
        device.state.lock().unwrap().keeps = false;
        allocator.close_plainly(LiveSlices::Refuse).unwrap();
        assert!(device.state.lock().unwrap().out.is_empty());
    }
}
