//! A pool: a policy over pages. What it is made of, and its state under its lock.
//!
//! [`Rules`] never change and are read without a lock; [`Pool`] is what the lock guards. Neither knows the device:
//! the allocator calls it, with no lock held, between [`Pool::begin_growth`] and [`Pool::commit_growth`].
#![forbid(unsafe_code)]

pub(crate) mod pages;
mod sliced;

use crate::device::{DeviceMemory, MemoryType};
use crate::error::Error;
use crate::int::granules_up;
use crate::metadata::HostMemory;
use crate::report::Statistics;
use crate::slice::{Request, Slice};
use crate::slicer::nodes::Node;
use crate::slicer::{Scan, Scanned, Slicer};
use crate::slots::SliceId;
use pages::Pages;
use sliced::Sliced;

/// The kind of a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolType {
    /// Slices are cut from larger pages.
    SlicedPages {
        /// Bytes of every page, rounded up to the granule.
        page_size: u64,
        /// The largest slice the pool takes, in bytes.
        max_slice_size: u64,
        /// Cap on the bytes of all pages together: `floor(max_pool_size / page_size)` whole pages. A page larger than
        /// the cap shrinks to it, rounded down to the granule. `None`: no cap.
        ///
        /// The cap belongs to this pool of this allocator. A program with an allocator per stream has one cap per
        /// stream.
        max_pool_size: Option<u64>,
    },
}

/// Whether a sliced pool takes requests above `max_slice_size` that leave less than a fifth of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NearPage {
    /// Only if the pool has no cap.
    #[default]
    WhenUncapped,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// A pool's kind and how it is run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PoolOptions {
    /// The kind.
    pub pool_type: PoolType,
    /// The smallest unit the pool cuts, in bytes: every offset and size is a multiple of it. A power of two of at
    /// most 2^32; a page has at most 2^32 - 1 granules.
    pub granule: u64,
    /// Whether requests that nearly fill a page are taken.
    pub near_page: NearPage,
}

impl PoolOptions {
    /// The granule where nothing else is said: the strictest alignment that buffers commonly need.
    pub const DEFAULT_GRANULE: u64 = 256;

    /// Options of sliced pages.
    pub const fn sliced_pages(page_size: u64, max_slice_size: u64, max_pool_size: Option<u64>) -> Self {
        Self {
            pool_type: PoolType::SlicedPages { page_size, max_slice_size, max_pool_size },
            granule: Self::DEFAULT_GRANULE,
            near_page: NearPage::WhenUncapped,
        }
    }

    /// The same with another granule.
    #[must_use]
    pub const fn with_granule(mut self, granule: u64) -> Self {
        self.granule = granule;
        self
    }

    /// The same with another rule for requests that nearly fill a page.
    #[must_use]
    pub const fn with_near_page(mut self, near_page: NearPage) -> Self {
        self.near_page = near_page;
        self
    }

    /// Refuses what contradicts itself and would otherwise be adjusted: pages that are no multiple of the granule (they
    /// are rounded up to one), slices larger than a page, and pages larger than the cap. Errors name the field and its value. [`Allocator::try_new`](crate::Allocator::try_new) itself
    /// refuses only what cannot work.
    pub fn validate(&self, memory_type: &MemoryType) -> Result<(), Error> {
        let PoolType::SlicedPages { page_size, max_slice_size, max_pool_size } = self.pool_type;
        Rules::try_new(self, memory_type)?;
        if page_size % self.granule != 0 {
            return Err(Error::InvalidArgument { field: c"page_size", value: page_size });
        }
        if max_slice_size > page_size {
            return Err(Error::InvalidArgument { field: c"max_slice_size", value: max_slice_size });
        }
        match max_pool_size {
            Some(cap) if cap < page_size => Err(Error::InvalidArgument { field: c"max_pool_size", value: cap }),
            _ => Ok(()),
        }
    }
}

/// A request in a pool's own unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// Granules.
    pub(crate) size: u32,
    /// Alignment in granules, less one.
    pub(crate) align_mask: u32,
    /// Bytes asked for.
    pub(crate) requested: u64,
}

/// What never changes about a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    sliced: Sliced,
    granule_shift: u32,
    /// Alignment of pages, and the largest of requests.
    pub(crate) page_alignment: u64,
}

impl Rules {
    pub(crate) fn try_new(options: &PoolOptions, memory_type: &MemoryType) -> Result<Self, Error> {
        let granule = options.granule;
        if !granule.is_power_of_two() || granule > 1 << 32 {
            return Err(Error::InvalidArgument { field: c"granule", value: granule });
        }
        if !memory_type.alignment.is_power_of_two() {
            return Err(Error::InvalidArgument { field: c"page_alignment", value: memory_type.alignment });
        }
        let sliced = Sliced::try_new(options)?;
        if sliced.page_size > memory_type.max_page || sliced.page_size / granule > u64::from(u32::MAX) {
            let PoolType::SlicedPages { page_size, .. } = options.pool_type;
            return Err(Error::InvalidArgument { field: c"page_size", value: page_size });
        }
        Ok(Self { sliced, granule_shift: granule.trailing_zeros(), page_alignment: memory_type.alignment.max(granule) })
    }

    /// Whether and how the pool would serve a request that [`Request::check`] has passed.
    #[inline(always)]
    pub(crate) fn fit(&self, request: &Request) -> Result<Fit, Error> {
        if !self.sliced.accepts(request.size) {
            return Err(Error::TooLarge { size: request.size, limit: self.sliced.limit_below(request.size) });
        }
        if request.alignment > self.page_alignment {
            return Err(Error::InvalidArgument { field: c"alignment", value: request.alignment });
        }
        // A pool without room for a single page takes requests so that they get the right error; clamping keeps the
        // number in range, no page will ever hold it.
        let size = granules_up(request.size, self.granule_shift).min(u64::from(u32::MAX)) as u32;
        let align_mask = ((request.alignment >> self.granule_shift).max(1) - 1).min(u64::from(u32::MAX)) as u32;
        Ok(Fit { size, align_mask, requested: request.size })
    }

    pub(crate) fn bytes(&self, granules: u32) -> u64 {
        u64::from(granules) << self.granule_shift
    }

    pub(crate) fn granule(&self) -> u64 {
        1 << self.granule_shift
    }

    /// Bytes of the next page.
    pub(crate) fn page_size(&self) -> u64 {
        self.sliced.page_size
    }

    pub(crate) fn max_slice_size(&self) -> u64 {
        self.sliced.max_slice_size
    }

    /// The cap in bytes, `None` if there is none.
    pub(crate) fn capacity(&self) -> Option<u64> {
        self.sliced.max_pages.map(|_| self.sliced.capacity())
    }

    fn page_granules(&self) -> u32 {
        (self.sliced.page_size >> self.granule_shift) as u32
    }
}

/// A range of a pool as [`Allocator::walk`](crate::Allocator::walk) shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Index of the pool.
    pub pool: u32,
    /// The slice's handle, `None` for a free range.
    pub id: Option<SliceId>,
    /// Handle of the page's device memory.
    pub memory: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Bytes of the range.
    pub size: u64,
    /// Bytes asked for, 0 for a free range.
    pub requested: u64,
    /// Address of the range as the device sees it, 0 if the device gives none.
    pub address: u64,
}

/// What a pool's lock guards.
pub(crate) struct Pool {
    pub(crate) slicer: Slicer,
    pub(crate) pages: Pages,
    rules: Rules,
    /// Requested bytes of live slices, and what rounding added.
    in_use: u64,
    padding: u64,
    in_use_peak: u64,
    reserved_peak: u64,
    pages_peak: u32,
    /// Pages being taken from the device.
    growing: u32,
    device_allocations: u64,
    device_deallocations: u64,
}

impl Pool {
    pub(crate) fn try_new(memory: HostMemory, rules: Rules, tag: u16) -> Result<Self, Error> {
        Ok(Self {
            slicer: Slicer::try_new(memory, rules.page_granules(), tag)?,
            pages: Pages::new(memory),
            rules,
            in_use: 0,
            padding: 0,
            in_use_peak: 0,
            reserved_peak: 0,
            pages_peak: 0,
            growing: 0,
            device_allocations: 0,
            device_deallocations: 0,
        })
    }

    // ---- placing and freeing

    /// Places a slice in memory that is held already, in constant time. Needs [`Slicer::has_nodes`].
    #[inline(always)]
    pub(crate) fn place(&mut self, fit: &Fit) -> Option<Slice> {
        let mut slot = self.slicer.allocate(fit.size, fit.align_mask);
        if slot == 0 {
            slot = self.allocate_in_idle_page(fit);
            if slot == 0 {
                return None;
            }
        }
        Some(self.settle(slot, fit.requested))
    }

    /// Takes the idle page with the lowest index into use; 0 if there is none. Every page holds every request.
    #[cold]
    fn allocate_in_idle_page(&mut self, fit: &Fit) -> u32 {
        let Some(page) = self.pages.lowest_idle() else { return 0 };
        self.pages.set_busy(page);
        self.slicer.use_page(self.pages[page].edge);
        self.slicer.allocate_from_tail(fit.size, fit.align_mask)
    }

    /// [`Pool::place`] off the hot path.
    #[inline(never)]
    pub(crate) fn place_elsewhere(&mut self, fit: &Fit) -> Option<Slice> {
        self.place(fit)
    }

    /// One step of the exhaustive search. Needs [`Slicer::has_nodes`].
    pub(crate) fn scan(&mut self, fit: &Fit, scan: Scan) -> Result<Option<Slice>, Scan> {
        match self.slicer.scan(fit.size, fit.align_mask, scan) {
            Scanned::Placed(slot) => Ok(Some(self.settle_elsewhere(slot, fit.requested))),
            Scanned::Nothing => Ok(None),
            Scanned::More(scan) => Err(scan),
        }
    }

    pub(crate) fn begin_scan(&self, fit: &Fit) -> Scan {
        self.slicer.begin_scan(fit.size, u32::MAX)
    }

    /// Books a slice that the slicer has just placed.
    #[inline(always)]
    fn settle(&mut self, slot: u32, requested: u64) -> Slice {
        let node = self.slicer.node(slot);
        let size = self.rules.bytes(node.size.get());
        // Less than a granule, which is at most 2^32 bytes.
        let padding = size - requested;
        self.slicer.set_padding(slot, padding as u32);
        self.in_use += requested;
        self.padding += padding;
        self.in_use_peak = self.in_use_peak.max(self.in_use);
        self.slice_at(slot)
    }

    /// Books a slice out that is about to be freed or resized.
    #[inline(always)]
    fn unsettle(&mut self, slot: u32) {
        let node = self.slicer.node(slot);
        let padding = u64::from(node.link_a.get());
        self.in_use -= self.rules.bytes(node.size.get()) - padding;
        self.padding -= padding;
    }

    /// [`Pool::settle`] off the hot path.
    #[inline(never)]
    fn settle_elsewhere(&mut self, slot: u32, requested: u64) -> Slice {
        self.settle(slot, requested)
    }

    #[inline(always)]
    fn slice_at(&self, slot: u32) -> Slice {
        let node = self.slicer.node(slot);
        let memory = &self.pages[node.page.get()].memory;
        let offset = self.rules.bytes(node.offset.get());
        Slice {
            id: self.slicer.id(slot),
            memory: memory.handle,
            offset,
            size: self.rules.bytes(node.size.get()),
            address: memory.address_at(offset),
            mapped: if memory.mapped.is_null() { memory.mapped } else { memory.mapped.wrapping_add(offset as usize) },
        }
    }

    /// The slice of a handle.
    pub(crate) fn get(&self, id: SliceId) -> Result<Slice, Error> {
        Ok(self.slice_at(self.slicer.resolve_for_query(id)?))
    }

    #[inline(always)]
    pub(crate) fn free(&mut self, id: SliceId) -> Result<(), Error> {
        let slot = self.slicer.resolve(id)?;
        self.free_slot(slot);
        Ok(())
    }

    /// Frees a slot that is live or claimed. The page stays, whatever is left in it.
    #[inline(always)]
    pub(crate) fn free_slot(&mut self, slot: u32) {
        self.unsettle(slot);
        let page = self.slicer.node(slot).page.get();
        let edge = self.slicer.free(slot);
        if edge != 0 {
            self.slicer.set_page_idle(edge);
            self.pages.set_idle(page);
        }
    }

    /// [`Pool::free_slot`] off the hot path.
    #[inline(never)]
    pub(crate) fn free_slot_elsewhere(&mut self, slot: u32) {
        self.free_slot(slot);
    }

    /// Grows or shrinks a slice where it lies. Needs [`Slicer::has_nodes`].
    pub(crate) fn resize(&mut self, id: SliceId, fit: &Fit) -> Result<Slice, Error> {
        let slot = self.slicer.resolve(id)?;
        let available = self.slicer.available_at(slot);
        if u64::from(fit.size) > available {
            return Err(Error::NoRoom { size: fit.requested, available: available << self.rules.granule_shift });
        }
        self.unsettle(slot);
        self.slicer.resize(slot, fit.size);
        Ok(self.settle_elsewhere(slot, fit.requested))
    }

    // ---- growing: everything is set aside first, so that the commit cannot fail

    /// Whether a growth could be begun without more host memory.
    pub(crate) fn has_metadata(&self) -> bool {
        self.slicer.has_nodes() && self.pages.has_record()
    }

    pub(crate) fn growing(&self) -> u32 {
        self.growing
    }

    /// Sets aside a page under the cap and the records for it. Needs [`Pool::has_metadata`].
    pub(crate) fn begin_growth(&mut self, fit: &Fit) -> Result<(), Error> {
        if let Some(max_pages) = self.rules.sliced.max_pages {
            // Pages on their way back are held until the device has taken them.
            let others = u64::from(self.pages.stuck_count()) + u64::from(self.pages.leaving_count());
            if u64::from(self.pages.count()) + u64::from(self.growing) + others >= max_pages {
                return Err(self.capacity_error(fit));
            }
        }
        // Figures have 64 bits, whatever a device claims to have.
        let growing = self.rules.page_size().checked_mul(u64::from(self.growing) + 1);
        if growing.and_then(|bytes| self.pages.reserved().checked_add(bytes)).is_none() {
            return Err(self.capacity_error(fit));
        }
        self.slicer.promise_nodes();
        self.pages.promise();
        self.growing += 1;
        Ok(())
    }

    pub(crate) fn capacity_error(&self, fit: &Fit) -> Error {
        Error::PoolCapacityExceeded {
            size: fit.requested,
            capacity: self.rules.sliced.capacity(),
            in_use: self.in_use,
            largest_free: self.rules.bytes(self.slicer.largest_bound()),
            // Both mean that trying again may help.
            growths_in_flight: self.growing + self.pages.leaving_count(),
        }
    }

    /// Gives up what [`Pool::begin_growth`] set aside.
    pub(crate) fn cancel_growth(&mut self) {
        self.slicer.release_promise();
        self.pages.release_promise();
        self.growing -= 1;
    }

    /// Installs the page that a growth got, and places the request that waits for it at its start.
    pub(crate) fn commit_growth(&mut self, memory: DeviceMemory, fit: &Fit) -> Slice {
        self.cancel_growth();
        self.note_device_allocation();
        let index = self.pages.next_index();
        let granules = (memory.size >> self.rules.granule_shift) as u32;
        let edge = self.slicer.add_page(index, granules);
        self.pages.add(memory, edge);
        self.note_reserved();
        let slot = self.slicer.allocate_from_tail(fit.size, fit.align_mask);
        self.settle_elsewhere(slot, fit.requested)
    }

    /// Keeps a page that could be neither used nor given back, in place of the growth that got it.
    pub(crate) fn keep_refused_growth(&mut self, memory: DeviceMemory) {
        self.cancel_growth();
        self.note_device_allocation();
        let index = self.pages.add(memory, 0);
        self.pages.set_idle(index);
        self.pages.set_leaving(index);
        self.pages.set_stuck(index);
        self.note_reserved();
    }

    /// A page was taken from the device and given back at once.
    pub(crate) fn cancel_returned_growth(&mut self) {
        self.cancel_growth();
        self.note_device_allocation();
        self.device_deallocations += 1;
    }

    fn note_device_allocation(&mut self) {
        self.device_allocations += 1;
    }

    fn note_reserved(&mut self) {
        self.reserved_peak = self.reserved_peak.max(self.pages.reserved());
        self.pages_peak = self.pages_peak.max(self.pages.count());
    }

    // ---- giving pages back

    /// Takes an idle page out of the slicer. It counts as reserved until [`Pool::returned`] or [`Pool::refused`].
    pub(crate) fn begin_return(&mut self, index: u32) -> DeviceMemory {
        let edge = self.pages[index].edge;
        self.slicer.remove_page(edge);
        self.pages.set_leaving(index);
        self.pages[index].memory
    }

    /// The page that has been idle the longest, if `floor` bytes stay reserved without it.
    pub(crate) fn idle_above(&self, floor: u64) -> Option<u32> {
        let index = self.pages.oldest_idle()?;
        (self.staying() - self.pages[index].memory.size >= floor).then_some(index)
    }

    /// Bytes reserved in pages that serve: neither on their way back nor stuck.
    pub(crate) fn staying(&self) -> u64 {
        self.pages.reserved() - self.pages.leaving() - self.pages.stuck_bytes()
    }

    /// The device has taken a page back.
    pub(crate) fn returned(&mut self, index: u32) {
        self.pages.set_vacant(index);
        self.device_deallocations += 1;
    }

    /// The device has refused to take a page back.
    pub(crate) fn refused(&mut self, index: u32) {
        self.pages.set_stuck(index);
    }

    // ---- looking

    /// The range of a slot, `None` if the slot is neither slice nor free memory.
    pub(crate) fn range(&self, pool: u32, slot: u32, node: &Node) -> Option<Range> {
        let live = node.is_slice();
        if !live && !node.is_free() {
            return None;
        }
        let (offset, size) = (self.rules.bytes(node.offset.get()), self.rules.bytes(node.size.get()));
        let memory = &self.pages[node.page.get()].memory;
        Some(Range {
            pool,
            id: live.then(|| self.slicer.id(slot)),
            memory: memory.handle,
            offset,
            size,
            requested: if live { size - u64::from(node.link_a.get()) } else { 0 },
            address: memory.address_at(offset),
        })
    }

    pub(crate) fn statistics(&self) -> Statistics {
        Statistics {
            reserved: self.pages.reserved(),
            in_use: self.in_use,
            padding: self.padding,
            free: self.slicer.free_granules() << self.rules.granule_shift,
            leaving: self.pages.leaving(),
            stuck: self.pages.stuck_bytes(),
            reserved_peak: self.reserved_peak,
            in_use_peak: self.in_use_peak,
            largest_free_bound: self.rules.bytes(self.slicer.largest_bound()),
            metadata: self.slicer.bytes() + self.pages.bytes(),
            device_allocations: self.device_allocations,
            device_deallocations: self.device_deallocations,
            slices: self.slicer.live(),
            free_ranges: self.slicer.free_ranges(),
            pages: self.pages.count(),
            pages_idle: self.pages.idle_count(),
            pages_stuck: self.pages.stuck_count(),
            pages_peak: self.pages_peak,
            growths_in_flight: self.growing,
        }
    }

    /// Verifies every invariant from scratch, in O(slots).
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let edges =
            self.pages.in_slicer().map(|page| (page.edge, (page.memory.size >> self.rules.granule_shift) as u32));
        self.slicer.check(edges)?;
        let idle = self.pages.in_slicer().filter(|page| self.slicer.page_is_empty(page.edge)).count();
        if idle != self.pages.idle_count() as usize {
            return Err("the idle pages are not those that hold nothing");
        }
        let (mut in_use, mut padding) = (0, 0);
        for range in self.slicer.nodes().filter_map(|(slot, node)| self.range(0, slot, node)) {
            if range.id.is_some() {
                in_use += range.requested;
                padding += range.size - range.requested;
            }
        }
        let figures = self.statistics();
        if (in_use, padding) != (figures.in_use, figures.padding) {
            return Err("the bytes in use differ from a walk");
        }
        if figures.reserved != in_use + padding + figures.free + figures.leaving + figures.stuck {
            return Err("the reserved bytes are not the sum of their parts");
        }
        Ok(())
    }
}
