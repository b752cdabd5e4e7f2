//! The allocator: pools over one device, and what happens between a request and a slice.
//!
//! A request goes first to the pools that take it, in order, for memory that is held already; then to the same pools
//! for a new page (`grow`); then once more for the last hole that could hold it. Pages that hold nothing go back by age,
//! by a trim, or because they are in the way of another (`give_back`). Device callbacks and host-memory functions run with
//! no lock held.

mod batch;
mod give_back;
mod grow;
mod inspect;
pub(crate) mod sizing;

pub use batch::{Batch, BatchError};
pub use sizing::{block_bytes, block_bytes_of};

use crate::clock::{Clock, Turn};
use crate::device::{Device, MemoryType};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::metadata::{Array, Chunk, HostMemory};
use crate::pool::{Pool, PoolOptions, Rules};
use crate::report::Statistics;
use crate::slice::{Request, Slice};
use crate::slots::{SliceId, new_tags};
use crate::sync::{AtomicU32, Guard, Lock, LockKind, Ordering};
use core::mem::ManuallyDrop;
use core::ops::{ControlFlow, Range};

/// How an allocator is made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AllocatorOptions {
    /// Where the books are kept.
    pub memory: HostMemory,
    /// How threads are kept apart.
    pub lock: LockKind,
    /// What the device gives out.
    pub memory_type: MemoryType,
    /// A request that would fit into a page which another call is just getting waits for it this many back-off steps
    /// before it gets a page of its own.
    pub growth_wait_steps: u32,
}

impl Default for AllocatorOptions {
    fn default() -> Self {
        Self {
            memory: HostMemory::global(),
            lock: LockKind::spin(),
            memory_type: MemoryType::default(),
            growth_wait_steps: 32,
        }
    }
}

impl AllocatorOptions {
    /// The same with the books in other memory.
    #[must_use]
    pub const fn with_memory(mut self, memory: HostMemory) -> Self {
        self.memory = memory;
        self
    }

    /// The same with another kind of lock.
    #[must_use]
    pub const fn with_lock(mut self, lock: LockKind) -> Self {
        self.lock = lock;
        self
    }

    /// The same for a device with other memory.
    #[must_use]
    pub const fn with_memory_type(mut self, memory_type: MemoryType) -> Self {
        self.memory_type = memory_type;
        self
    }

    /// The same with another number of back-off steps.
    #[must_use]
    pub const fn with_growth_wait_steps(mut self, steps: u32) -> Self {
        self.growth_wait_steps = steps;
        self
    }
}

/// The most pools an allocator can have.
const MAX_POOLS: usize = 256;

fn check_pool_count(pools: &[PoolOptions]) -> Result<(), Error> {
    if pools.is_empty() || pools.len() > MAX_POOLS {
        return Err(Error::InvalidArgument { field: c"pools", value: pools.len() as u64 });
    }
    Ok(())
}

/// A pool and its lock.
struct Cell {
    rules: Rules,
    /// For the growth that gives pages back which are in its way.
    clearing: Turn,
    pool: Lock<Pool>,
}

/// Pools over one device. Usable from any number of threads at once.
///
/// Dropping an allocator gives every page back to the device, whatever lies in it; [`Allocator::destroy`] can refuse
/// while slices are live, and says so if the device refuses.
pub struct Allocator<D: Device> {
    device: D,
    options: AllocatorOptions,
    /// Tag of the first pool; the others follow.
    first_tag: u16,
    /// Whether any pool's pages age.
    ages: bool,
    pools: Array<Cell>,
    clock: Clock,
    ledger: Lock<Ledger>,
    /// Growths, and callbacks that are running: while there are any, the allocator cannot go away.
    in_flight: AtomicU32,
    /// Calls that are closing the allocator, or have closed it: if any, it takes no more pages.
    closing: AtomicU32,
}

/// What closing an allocator does with slices that are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveSlices {
    /// It is refused.
    Refuse,
    /// They are freed.
    Free,
}

/// Counts something in flight for as long as it exists.
struct InFlight<'a>(&'a AtomicU32);

impl<'a> InFlight<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        // Read by `Allocator::destroy` on a thread that the caller has synchronised with this one; counting is all.
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<D: Device> Allocator<D> {
    /// An allocator over `device` with the pools of `pools`, tried in that order. Takes nothing from the device yet.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names the field that cannot work; [`Error::OutOfHostMemory`]. The device is dropped.
    #[cold]
    pub fn try_new(device: D, pools: &[PoolOptions], options: AllocatorOptions) -> Result<Self, Error> {
        check_pool_count(pools)?;
        for pool in pools {
            Rules::try_new(pool, &options.memory_type)?;
        }
        let first_tag = new_tags(pools.len() as u16);
        let cells = Array::try_new(options.memory, pools.len() as u32, |i| {
            let rules = Rules::try_new(&pools[i as usize], &options.memory_type)?;
            let pool = Pool::try_new(options.memory, rules, first_tag.wrapping_add(i as u16))?;
            Ok(Cell { rules, clearing: Turn::new(), pool: Lock::new(options.lock, pool) })
        })?;
        let next_check = cells.iter().filter_map(|cell| cell.pool.lock().pages.next_check()).min();
        let clock = Clock::new();
        clock.set_next_check(next_check.unwrap_or(0));
        Ok(Self {
            device,
            options,
            first_tag,
            ages: next_check.is_some(),
            pools: cells,
            clock,
            ledger: Lock::new(options.lock, Ledger::new(options.memory)),
            in_flight: AtomicU32::new(0),
            closing: AtomicU32::new(0),
        })
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Hands out a slice.
    ///
    /// Constant time where memory that is held serves the request by size class; otherwise a page is taken from the
    /// device, on this thread and with no lock held. Before a refusal every hole that could hold the request is
    /// looked at. Where pages age, some of those that are too old may be given back, at most four.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for size 0 where no pool takes it, an alignment that is no power of two or above the
    /// page alignment, a pool that does not exist; [`Error::TooLarge`]; [`Error::PoolCapacityExceeded`];
    /// [`Error::OutOfDeviceMemory`]; [`Error::DeviceFailed`]; [`Error::OutOfHostMemory`]; [`Error::TooManySlices`];
    /// [`Error::Busy`] if a page is needed while the allocator is being closed, or after. Pages that hold nothing may
    /// have been given back on the way.
    #[inline]
    pub fn allocate(&self, request: &Request) -> Result<Slice, Error> {
        request.check()?;
        let slice = 'placed: {
            for index in self.route(request)? {
                let cell = &self.pools[index];
                let Ok(fit) = cell.rules.fit(request) else { continue };
                let mut pool = cell.pool.lock_hot();
                if !pool.slicer.has_nodes() {
                    // Its turn is now, not after the others.
                    break;
                }
                if let Some(slice) = pool.place(&fit) {
                    break 'placed slice;
                }
            }
            self.allocate_slowly(request)?
        };
        if self.ages {
            self.count_allocation();
        }
        Ok(slice)
    }

    /// [`Allocator::allocate`] off the hot path.
    #[inline(never)]
    fn allocate_elsewhere(&self, request: &Request) -> Result<Slice, Error> {
        self.allocate(request)
    }

    /// Indices of the pools that may serve a request, in order.
    #[inline(always)]
    fn route(&self, request: &Request) -> Result<Range<u32>, Error> {
        match request.pool.filter(|_| !cfg!(slicepool_canary = "any_pool")) {
            None => Ok(0..self.pools.len()),
            Some(index) if index < self.pools.len() => Ok(index..index + 1),
            Some(index) => Err(Error::InvalidArgument { field: c"pool", value: u64::from(index) }),
        }
    }

    /// Takes a slice back. Its page stays with the allocator until it is trimmed.
    ///
    /// Constant time, whatever lies around the slice. Any thread may free what another allocated.
    ///
    /// # Errors
    /// [`Error::StaleHandle`] if the slice has been freed before, [`Error::ForeignHandle`] if it was never this
    /// allocator's. Nothing changes then.
    #[inline]
    pub fn free(&self, id: SliceId) -> Result<(), Error> {
        self.cell(id)?.pool.lock_hot().free(id, &self.clock)
    }

    /// The slice of a handle, as [`Allocator::allocate`] returned it (or [`Allocator::try_resize`] left it).
    /// Constant time.
    ///
    /// # Errors
    /// As [`Allocator::free`].
    pub fn get(&self, id: SliceId) -> Result<Slice, Error> {
        self.cell(id)?.pool.lock().get(id)
    }

    /// Gives a slice `size` bytes where it lies, and returns it as it is then. Constant time; never calls the device.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if what follows the slice is in use or its page ends; as [`Allocator::free`] for the handle;
    /// [`Error::InvalidArgument`] for size 0; [`Error::TooLarge`] above the pool's limit. The slice is unchanged then.
    pub fn try_resize(&self, id: SliceId, size: u64) -> Result<Slice, Error> {
        let cell = self.cell(id)?;
        cell.pool.lock().slicer.resolve(id)?;
        let request = Request::new(size);
        request.check()?;
        let fit = cell.rules.fit(&request)?;
        self.lock_with_nodes(cell)?.resize(id, &fit)
    }

    /// The pool that a handle names by its tag.
    #[inline(always)]
    fn cell(&self, id: SliceId) -> Result<&Cell, Error> {
        let index = u32::from(id.tag().wrapping_sub(self.first_tag));
        if index < self.pools.len() { Ok(&self.pools[index]) } else { Err(Error::ForeignHandle) }
    }

    /// Locks a pool whose slicer has the nodes for any one operation, getting host memory first if need be.
    #[cold]
    fn lock_with_nodes<'a>(&self, cell: &'a Cell) -> Result<Guard<'a, Pool>, Error> {
        loop {
            let pool = cell.pool.lock();
            if pool.slicer.has_nodes() {
                return Ok(pool);
            }
            let plan = pool.slicer.plan()?;
            drop(pool);
            let chunk = Chunk::allocate(self.options.memory, plan)?;
            // A chunk that came too late is dropped here, after the lock.
            let late = cell.pool.lock().slicer.install(chunk);
            drop(late);
        }
    }

    // ---- the end

    /// Gives every page back to the device, so that the allocator can go away. What [`Allocator::destroy`] does, for
    /// owners of a shared allocator; nothing can be allocated that would need another page while it runs, nor after
    /// it has succeeded.
    ///
    /// # Errors
    /// [`Error::Busy`] while a growth or a callback is in flight, so also from within one, and with
    /// [`LiveSlices::Refuse`] while slices are live; [`Error::DeviceFailed`] if the device refuses to take a page
    /// back. The allocator is as usable as before then, and so are its slices (with [`LiveSlices::Free`] they have
    /// been freed if the error came from the device).
    #[cold]
    pub fn close(&self, live: LiveSlices) -> Result<(), Error> {
        self.can_destroy(live)?;
        self.closing.fetch_add(1, Ordering::AcqRel);
        let closed = self.give_everything_back(live);
        if closed.is_err() {
            self.closing.fetch_sub(1, Ordering::AcqRel);
        }
        closed
    }

    #[cold]
    fn give_everything_back(&self, live: LiveSlices) -> Result<(), Error> {
        let busy = |figures: Statistics| {
            let (live, in_flight) = (u64::from(figures.slices), figures.growths_in_flight);
            Err(Error::Busy { live, in_use: figures.in_use, in_flight })
        };
        // No pages come any more. A callback that allocates in what is left makes another round necessary, but not
        // again and again.
        for _ in 0..=self.statistics().pages {
            let figures = self.statistics();
            // A growth either began before `closing` was set, and its pool shows it here, or it is refused.
            if figures.growths_in_flight != 0 || (figures.slices != 0 && live == LiveSlices::Refuse) {
                return busy(figures);
            }
            if figures.slices != 0 {
                self.free_everything();
            }
            let refusal = self.cleanup();
            if self.statistics().pages == 0 {
                return refusal;
            }
        }
        busy(self.statistics())
    }

    #[cold]
    fn free_everything(&self) {
        let _: ControlFlow<()> = self.walk(|range| {
            if let Some(id) = range.id {
                // Another call may have been faster.
                let _ = self.free(id);
            }
            ControlFlow::Continue(())
        });
    }

    /// Gives every page back to the device and returns the device.
    ///
    /// # Errors
    /// [`Error::Busy`] while slices are live, and otherwise as [`Allocator::close`]; the allocator is unharmed.
    #[allow(clippy::result_large_err, reason = "a refused allocator is handed back; there is no heap to box it on")]
    pub fn destroy(self) -> Result<D, (Self, Error)> {
        match self.close(LiveSlices::Refuse) {
            Ok(()) => Ok(self.into_device()),
            Err(error) => Err((self, error)),
        }
    }

    /// Whether the allocator could be closed or, with [`LiveSlices::Free`], abandoned now.
    ///
    /// # Errors
    /// [`Error::Busy`] while a growth or a callback is in flight, and with [`LiveSlices::Refuse`] while slices are live.
    #[cold]
    pub fn can_destroy(&self, live: LiveSlices) -> Result<(), Error> {
        let in_flight = self.in_flight.load(Ordering::Acquire);
        // A callback may run while its thread is inside; the locks are free then, so looking is safe.
        let figures = self.statistics();
        if in_flight != 0 || (figures.slices != 0 && live == LiveSlices::Refuse) {
            return Err(Error::Busy { live: u64::from(figures.slices), in_use: figures.in_use, in_flight });
        }
        Ok(())
    }

    /// Forgets all pages without a word to the device, frees the books and returns the device: for a device that is
    /// lost, or memory that goes away with the process.
    pub fn abandon(self) -> D {
        self.into_device()
    }

    fn into_device(self) -> D {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never used again and never dropped, so each field is moved out once.
        unsafe {
            drop(core::ptr::read(&raw const this.pools));
            drop(core::ptr::read(&raw const this.ledger));
            core::ptr::read(&raw const this.device)
        }
    }
}

impl<D: Device> Drop for Allocator<D> {
    fn drop(&mut self) {
        // A page that the device refuses stays lost: it has been asked, and nobody is left to tell.
        let _ = self.close(LiveSlices::Free);
    }
}
