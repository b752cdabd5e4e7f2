//! The allocator: pools over one device, and what happens between a request and a slice.
//!
//! A request goes first to the pools that take it, in order, for memory that is held already; if that does not serve it,
//! up a ladder of everything that may help (`short`), of which a new page is one step (`grow`). Pages that hold nothing go
//! back by age, by a trim, or because they are in the way of others (`give_back`). Slices may wait for the device before
//! their memory is free (`pending`), and may have their memory filled (`care`). Of several memory types, those that suit a
//! request are tried in order (`route`); some slices have pages of their own (`own_pages`). Device callbacks and host-memory
//! functions run with no lock held.

mod adopt;
mod batch;
mod care;
mod dry_run;
mod events;
mod give_back;
mod grow;
mod inspect;
mod install;
mod labels;
mod mapping;
mod options;
mod own_pages;
mod pending;
mod plain;
mod route;
mod short;
pub(crate) mod sizing;

pub use batch::{Batch, BatchError};
pub use install::NewPools;
pub use options::{AllocatorOptions, Debugging};
pub use own_pages::OwnPages;
use own_pages::Types;
use route::Span;
use short::Served;
pub use sizing::{block_bytes, block_bytes_of, block_bytes_with};

use crate::budget::{Account, Budget};
use crate::canary::broken;
use crate::clock::{Clock, Turn};
use crate::device::{Device, DeviceLayout, Heap};
use crate::error::Error;
use crate::event::{EventKind, Label};
use crate::ledger::Ledger;
use crate::metadata::{Array, Chunk};
use crate::parts::COMPLETE;
use crate::pool::{Pool, PoolOptions, Rules};
use crate::slice::{Request, Slice};
use crate::slots::SliceId;
use crate::sync::{AtomicU32, Guard, Lock, Ordering, Sequence};
use core::mem::ManuallyDrop;
use core::ops::ControlFlow;
use core::ptr;

/// The most pools an allocator can have.
const MAX_POOLS: usize = 256;

fn check_pool_count(count: usize) -> Result<u32, Error> {
    match count {
        1..=MAX_POOLS => Ok(count as u32),
        _ => Err(Error::InvalidArgument { field: c"pools", value: count as u64 }),
    }
}

/// In place of a pool's index: the pool of persistent slices of the first memory type.
pub const PERSISTENT_POOL: u32 = OwnPages::Persistent.pool(0);

/// Pools that are described one by one: how many there are, and the `i`-th of them.
#[derive(Clone, Copy)]
pub struct PoolSource<'a> {
    /// How many.
    pub count: u32,
    /// Called in order, some of them more than once.
    pub pool: &'a dyn Fn(u32) -> Result<PoolOptions, Error>,
}

impl PoolSource<'_> {
    /// Calls `make` with the pools of a list.
    fn with_list<T>(pools: &[PoolOptions], make: impl FnOnce(PoolSource<'_>) -> T) -> T {
        let count = u32::try_from(pools.len()).unwrap_or(u32::MAX);
        make(PoolSource { count, pool: &|i| Ok(pools[i as usize].clone()) })
    }
}

/// A pool and its lock.
struct Cell {
    rules: Rules,
    /// Position in the list of pools.
    index: u32,
    /// Tag of its handles.
    tag: u16,
    /// For the growth that gives pages back which are in its way.
    clearing: Turn,
    /// For the call that has slices overwritten which wait for that.
    attending: Turn,
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
    /// Whether no request is served like most: there are several memory types, or every slice is looked after.
    unusual: bool,
    /// Whether every slice is written to.
    debugs: bool,
    /// Whether the device is told of events.
    tells: bool,
    /// Whether any pool's pages age.
    ages: AtomicU32,
    pools: Array<Cell>,
    /// Where in that list the pools of each memory type are.
    spans: [Span; DeviceLayout::MAX_TYPES],
    /// The memory types, and their pools that are made on demand.
    types: Types,
    heaps: Array<Heap>,
    clock: Clock,
    ledger: Lock<Ledger>,
    /// Numbers of events.
    sequence: Sequence,
    /// The pressure of the shared budget that has been given way to.
    pressure: AtomicU32,
    /// How many pages had become idle when all of them were given and it was not enough.
    gave_all_at: AtomicU32,
    /// Counts pages given back to the device, and whatever else may mean that it has memory again.
    returns: AtomicU32,
    /// Calls of [`Device::out_of_memory`] that are running, and of [`Device::completed`] by requests.
    pleas: AtomicU32,
    asking: AtomicU32,
    /// Timelines that have been forgotten: those with the same last bits are counted together.
    forgets: [AtomicU32; 16],
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
struct InFlight<'a> {
    count: &'a AtomicU32,
    /// What was in flight before.
    others: u32,
}

impl<'a> InFlight<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        // Read by `Allocator::destroy` on a thread that the caller has synchronised with this one; counting is all.
        Self { others: count.fetch_add(1, Ordering::AcqRel), count }
    }

    fn others(&self) -> u32 {
        self.others
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<D: Device> Allocator<D> {
    /// An allocator over `device`, which has memory of the one kind that `options` name, with the pools of `pools`, tried in
    /// that order. Takes nothing from the device yet, unless pools have [`PoolOptions::min_pages`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names the field that cannot work; [`Error::OutOfHostMemory`]; those of
    /// [`Allocator::prefill`]. The device is dropped, and has all pages back.
    #[cold]
    pub fn try_new(device: D, pools: &[PoolOptions], options: AllocatorOptions) -> Result<Self, Error> {
        let types = [options.memory_type];
        Self::with_memory_types(device, &DeviceLayout::new(&types, &[]), pools, options)
    }

    /// An allocator over a device with several kinds of memory. The memory type in `options` means nothing here.
    ///
    /// # Errors
    /// As [`Allocator::try_new`].
    #[cold]
    pub fn with_memory_types(
        device: D,
        memory: &DeviceLayout<'_>,
        pools: &[PoolOptions],
        options: AllocatorOptions,
    ) -> Result<Self, Error> {
        PoolSource::with_list(pools, |pools| Self::with_pools_of(device, memory, pools, options))
    }

    /// [`Allocator::with_memory_types`] with pools that are described one by one.
    ///
    /// # Errors
    /// As [`Allocator::try_new`], and those of `pools`.
    #[cold]
    pub fn with_pools_of(
        device: D,
        memory: &DeviceLayout<'_>,
        pools: PoolSource<'_>,
        options: AllocatorOptions,
    ) -> Result<Self, Error> {
        memory.check()?;
        options.check_parts()?;
        let types = Types::try_new(memory, &options)?;
        let NewPools { cells, first_tag, next_check } = NewPools::try_new(pools, &options, &types)?;
        let clock = Clock::new();
        if COMPLETE {
            clock.set_next_check(next_check.unwrap_or(0));
        }
        let account = Account::new(options.max_bytes, options.max_pages);
        let heaps = match COMPLETE {
            true => Array::try_new(options.memory, memory.heaps.len().max(1) as u32, |i| {
                Ok(memory.heaps.get(i as usize).copied().unwrap_or(Heap::new(u64::MAX)))
            })?,
            false => Array::empty(options.memory),
        };
        let ledger = Ledger::try_new(options.memory, account, types.len(), memory.heaps)?;
        let debugs = options.debugging.is_on();
        let tells = COMPLETE && device.hears_events();
        let allocator = Self {
            device,
            first_tag,
            unusual: debugs || types.len() > 1 || (tells && options.slice_events),
            debugs,
            tells,
            ages: AtomicU32::new(u32::from(next_check.is_some())),
            spans: Span::of_types(cells.as_slice()),
            pools: cells,
            types,
            heaps,
            clock,
            ledger: Lock::new(options.lock, ledger),
            sequence: Sequence::new(),
            pressure: AtomicU32::new(options.budget.as_ref().map_or(0, Budget::pressure)),
            gave_all_at: AtomicU32::new(u32::MAX),
            returns: AtomicU32::new(0),
            pleas: AtomicU32::new(0),
            asking: AtomicU32::new(0),
            forgets: [const { AtomicU32::new(0) }; 16],
            in_flight: AtomicU32::new(0),
            closing: AtomicU32::new(0),
            options,
        };
        // Dropping the allocator gives back what there is if this fails.
        if COMPLETE {
            allocator.prefill_all()?;
        }
        Ok(allocator)
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// How the allocator was made.
    pub fn options(&self) -> &AllocatorOptions {
        &self.options
    }

    /// Hands out a slice.
    ///
    /// Constant time where memory that is held serves the request by size class; otherwise a page is taken from the
    /// device, on this thread and with no lock held. Before a refusal everything is tried that may help: what the device is
    /// done with ([`Device::completed`]), every hole that could hold the request, smaller pages where pages grow, pages
    /// that hold nothing in any pool, and [`Device::out_of_memory`]. Where pages age, some of those that are too old may be
    /// given back, at most four. Of several memory types those that suit ([`Request::from_memory`]) are tried one after the
    /// other, each with all of this but the last, before the request is told of.
    ///
    /// After a device has had no memory, it is not asked for a page of that size again for 64 requests that fail, twice as
    /// many after the next refusal, unless a page was given back or the allocator trimmed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for size 0 where no pool takes it, an alignment that is no power of two or above the
    /// page alignment, a pool that does not exist; [`Error::TooLarge`]; [`Error::PoolCapacityExceeded`];
    /// [`Error::BudgetExceeded`]; [`Error::HeapBudgetExceeded`]; [`Error::PageCountExceeded`];
    /// [`Error::OutOfDeviceMemory`]; [`Error::DeviceFailed`]; [`Error::NotSupported`], also if no memory type suits;
    /// [`Error::OutOfHostMemory`]; [`Error::TooManySlices`]; [`Error::Busy`] if a page is needed while the allocator is being closed, or after. Of several the first of: host, device, budget, page count, pool
    /// capacity, too large. Pages that hold nothing may have been given back on the way.
    #[inline]
    pub fn allocate(&self, request: &Request) -> Result<Slice, Error> {
        self.allocate_then(request, |slice| slice)
    }

    /// [`Allocator::allocate`] of a slice that becomes something else: on the hot path it is never in memory, from where
    /// it would have to be read while it is still being written.
    #[doc(hidden)]
    #[inline(always)]
    pub fn allocate_then<R>(&self, request: &Request, then: impl FnOnce(Slice) -> R) -> Result<R, Error> {
        if !COMPLETE {
            request.check()?;
            return self.allocate_plainly(request).map(then);
        }
        if request.is_unusual() | self.unusual {
            request.check()?;
            return self.allocate_with_care(request, None, &mut Served::default()).map(then);
        }
        self.allocate_usual_then(request.size, request.alignment, request.pool, then)
    }

    /// Whether requests that say no more than a size, an alignment and perhaps a pool may be made with
    /// [`Allocator::allocate_usual_then`].
    #[doc(hidden)]
    #[inline(always)]
    pub fn is_usual(&self) -> bool {
        COMPLETE && !self.unusual
    }

    /// [`Allocator::allocate_then`] of a request that is never in memory either. Needs [`Allocator::is_usual`].
    #[doc(hidden)]
    #[inline(always)]
    pub fn allocate_usual_then<R>(
        &self,
        size: u64,
        alignment: u64,
        pool: Option<u32>,
        then: impl FnOnce(Slice) -> R,
    ) -> Result<R, Error> {
        Request::check_alignment(alignment)?;
        for cell in self.plain_route(pool)? {
            let Some(fit) = cell.rules.fit_usual(size, alignment) else { continue };
            let mut pool = cell.pool.lock_hot();
            if !pool.slicer.has_nodes() {
                // Its turn is now, not after the others.
                break;
            }
            if let Some(slice) = pool.place(&fit) {
                drop(pool);
                self.note_allocation();
                return Ok(then(slice));
            }
        }
        let slice = self.allocate_usual_slowly(size, alignment, pool)?;
        self.note_allocation();
        Ok(then(slice))
    }

    #[cold]
    #[inline(never)]
    fn allocate_usual_slowly(&self, size: u64, alignment: u64, pool: Option<u32>) -> Result<Slice, Error> {
        let mut request = Request::new(size).aligned(alignment);
        request.pool = pool;
        self.allocate_slowly(&request, &mut Served::default())
    }

    /// [`Allocator::allocate`] of a slice that something is attached to from the start, as [`Allocator::set_label`] does.
    ///
    /// # Errors
    /// As [`Allocator::allocate`] and [`Allocator::set_label`]; there is no slice then.
    #[cold]
    pub fn allocate_labelled(&self, request: &Request, label: &Label) -> Result<Slice, Error> {
        request.check()?;
        self.allocate_with_care(request, Some(label).filter(|label| !label.is_none()), &mut Served::default())
    }

    /// [`Allocator::allocate_labelled`] that tells why a memory type did not serve the request: `tell` is called with its
    /// index for each that was tried, with no lock held. If the request is tried again, after
    /// [`Device::out_of_memory`], it is called again.
    ///
    /// # Errors
    /// As [`Allocator::allocate_labelled`]: of those that were told, the one that comes first in the order which
    /// [`Allocator::allocate`] names.
    pub fn allocate_explained(
        &self,
        request: &Request,
        label: &Label,
        tell: &mut dyn FnMut(u32, Error),
    ) -> Result<Slice, Error> {
        request.check()?;
        let label = Some(label).filter(|label| !label.is_none());
        self.allocate_with_care(request, label, &mut Served { fresh: false, tell: Some(tell) })
    }

    /// What every allocation does for the pages that others have left.
    #[inline(always)]
    fn note_allocation(&self) {
        if self.ages.load(Ordering::Relaxed) != 0 {
            self.count_allocation();
        }
        self.look_at_pressure();
    }

    /// The pools that may serve a request like most, in order.
    #[inline(always)]
    fn plain_route(&self, pool: Option<u32>) -> Result<&[Cell], Error> {
        match pool.filter(|_| !broken("any_pool")) {
            None => Ok(self.pools.as_slice()),
            Some(index) => self.named_pool(index).map(core::slice::from_ref),
        }
    }

    fn named_pool(&self, index: u32) -> Result<&Cell, Error> {
        let refused = Error::InvalidArgument { field: c"pool", value: u64::from(index) };
        self.pools.as_slice().get(index as usize).ok_or(refused)
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
        if self.free_usual(id) { Ok(()) } else { self.free_otherwise(id) }
    }

    /// [`Allocator::allocate`] off the hot paths.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate_elsewhere(&self, request: &Request) -> Result<Slice, Error> {
        self.allocate(request)
    }

    /// [`Allocator::free`] off the hot paths.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_elsewhere(&self, id: SliceId) -> Result<(), Error> {
        self.free(id)
    }

    /// Takes a slice back that nothing else has to be done for; `false` if that did not work, for whatever reason.
    #[doc(hidden)]
    #[inline(always)]
    pub fn free_usual(&self, id: SliceId) -> bool {
        if !COMPLETE {
            return false;
        }
        let Ok(cell) = self.cell(id) else { return false };
        let freed = cell.pool.lock_hot().free(id, &self.clock).is_ok();
        if freed {
            self.look_at_pressure();
        }
        freed
    }

    /// [`Allocator::free`] after [`Allocator::free_usual`] has not worked.
    #[doc(hidden)]
    #[cold]
    #[inline(never)]
    pub fn free_otherwise(&self, id: SliceId) -> Result<(), Error> {
        if COMPLETE { self.free_with_care(id) } else { self.free_plainly(id) }
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
    /// [`Error::InvalidArgument`] for size 0; [`Error::TooLarge`] above the pool's limit; [`Error::NotSupported`] for a
    /// slice that is to be scrubbed; [`Error::MarginDamaged`]. The slice is unchanged then.
    #[cold]
    pub fn try_resize(&self, id: SliceId, size: u64) -> Result<Slice, Error> {
        let cell = self.cell(id)?;
        let pool = cell.pool.lock();
        if pool.slicer.is_scrubbed(pool.slicer.resolve_any(id)?) {
            // What it gave up would not be.
            return Err(Error::NotSupported { what: c"try_resize" });
        }
        drop(pool);
        let fit = cell.rules.fit_any_kind(&Request::new(size))?;
        let mut pool = self.lock_with_nodes(cell)?;
        let slot = pool.slicer.resolve_any(id)?;
        self.check_margin(&pool, slot)?;
        let resized = pool.resize(slot, &fit)?;
        self.draw_margin(cell, &resized);
        let event = self.slice_event(EventKind::SliceResized, cell, &pool, slot);
        drop(pool);
        self.tell(event);
        Ok(resized)
    }

    /// The pool that a handle names by its tag.
    #[inline(always)]
    fn cell(&self, id: SliceId) -> Result<&Cell, Error> {
        let index = u32::from(id.tag().wrapping_sub(self.first_tag));
        match self.pools.as_slice().get(index as usize) {
            Some(cell) => Ok(cell),
            None => self.own_cell(id),
        }
    }

    #[cold]
    fn own_cell(&self, id: SliceId) -> Result<&Cell, Error> {
        self.types.own_cells().find(|cell| cell.tag == id.tag()).ok_or(Error::ForeignHandle)
    }

    /// Every pool: those of the list, then those that were made on demand.
    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.pools.iter().chain(self.types.own_cells())
    }

    /// One of the pools, for tests that tamper with it.
    #[cfg(test)]
    pub(crate) fn with_pool<R>(&self, index: usize, then: impl FnOnce(&mut Pool) -> R) -> R {
        then(&mut self.pools.as_slice()[index].pool.lock())
    }

    /// The pools whose pages go back by themselves.
    fn giving_cells(&self) -> impl Iterator<Item = &Cell> {
        self.pools.iter().chain(self.types.giving_cells())
    }

    /// Locks a pool whose slicer has the nodes for any one operation, getting host memory first if need be.
    #[cold]
    fn lock_with_nodes<'a>(&self, cell: &'a Cell) -> Result<Guard<'a, Pool>, Error> {
        loop {
            let pool = cell.pool.lock();
            if pool.slicer.has_nodes() {
                return Ok(pool);
            }
            self.add_nodes(cell, pool)?;
        }
    }

    /// Gets host memory for more nodes of a pool, whose lock ends with that.
    #[cold]
    fn add_nodes(&self, cell: &Cell, pool: Guard<'_, Pool>) -> Result<(), Error> {
        let plan = pool.slicer.plan()?;
        drop(pool);
        let chunk = Chunk::allocate(self.options.memory, plan)?;
        // A chunk that came too late is dropped after the lock.
        let late = cell.pool.lock().slicer.install(chunk);
        drop(late);
        Ok(())
    }

    // ---- the end

    /// Gives every page back to the device, so that the allocator can go away. What [`Allocator::destroy`] does, for
    /// owners of a shared allocator; nothing can be allocated that would need another page while it runs, nor after
    /// it has succeeded.
    ///
    /// # Errors
    /// [`Error::Busy`] while a growth or a callback is in flight, so also from within one, and with
    /// [`LiveSlices::Refuse`] while slices are live or wait for the device; [`Error::DeviceFailed`] if the device refuses to take a page
    /// back. The allocator is as usable as before then, and so are its slices (with [`LiveSlices::Free`] they have
    /// been freed if the error came from the device).
    #[cold]
    pub fn close(&self, live: LiveSlices) -> Result<(), Error> {
        if !COMPLETE {
            return self.close_plainly(live);
        }
        // From within a callback it is refused for that alone.
        self.can_destroy(LiveSlices::Free)?;
        if self.can_destroy(LiveSlices::Refuse).is_err() {
            self.tell_leaks();
        }
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
        // No pages come any more. A callback that allocates in what is left makes another round necessary, but not
        // again and again.
        for _ in 0..=self.uses().pages {
            let uses = self.uses();
            // A growth either began before `closing` was set, and its pool shows it here, or it is refused.
            if uses.growths != 0 || (uses.is_used() && live == LiveSlices::Refuse) {
                return Err(uses.busy(uses.growths));
            }
            if uses.is_used() {
                self.free_everything();
            }
            let refusal = self.cleanup();
            if self.uses().pages == 0 {
                return refusal;
            }
        }
        let uses = self.uses();
        Err(uses.busy(uses.growths))
    }

    #[cold]
    fn free_everything(&self) {
        let _: ControlFlow<()> = self.walk(|range| {
            if let Some(id) = range.id {
                // Another call may have been faster. A damaged margin is reported once, and then no longer in the way.
                if let Err(Error::MarginDamaged { .. }) = self.free_elsewhere(id) {
                    let _ = self.free_elsewhere(id);
                }
            }
            ControlFlow::Continue(())
        });
        self.release_everything();
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
    /// [`Error::Busy`] while a growth or a callback is in flight, and with [`LiveSlices::Refuse`] while slices are live or
    /// wait for the device.
    #[cold]
    pub fn can_destroy(&self, live: LiveSlices) -> Result<(), Error> {
        let in_flight = self.in_flight.load(Ordering::Acquire);
        // A callback may run while its thread is inside; the locks are free then, so looking is safe.
        let uses = self.uses();
        if in_flight != 0 || (uses.is_used() && live == LiveSlices::Refuse) {
            return Err(uses.busy(in_flight));
        }
        Ok(())
    }

    /// Forgets all pages without a word to the device, frees the books and returns the device: for a device that is
    /// lost, or memory that goes away with the process. What the pages took of a shared budget is returned.
    pub fn abandon(mut self) -> D {
        self.leave_budget();
        self.into_device()
    }

    /// [`Allocator::abandon`] in a forked child: takes no lock, since threads of the parent may have held it at the fork. A
    /// shared budget, of which the child has a copy, counts the pages for ever.
    pub fn abandon_forked(self) -> D {
        self.into_device()
    }

    fn leave_budget(&mut self) {
        if let (true, Some(budget)) = (COMPLETE, &self.options.budget) {
            budget.release_all(self.ledger.get_mut().account().used());
        }
    }

    fn into_device(self) -> D {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never used again and never dropped, so each field is moved out once.
        unsafe {
            drop(ptr::read(&raw const this.pools));
            drop(ptr::read(&raw const this.types));
            drop(ptr::read(&raw const this.heaps));
            drop(ptr::read(&raw const this.ledger));
            drop(ptr::read(&raw const this.options));
            ptr::read(&raw const this.device)
        }
    }
}

impl<D: Device> Drop for Allocator<D> {
    fn drop(&mut self) {
        // A page that the device refuses stays lost: it has been asked, and nobody is left to tell.
        let _ = self.close(LiveSlices::Free);
        self.leave_budget();
    }
}
