//! A pool: a policy over pages. What it is made of, and its state under its lock.
//!
//! [`Rules`] never change and are read without a lock; [`Pool`] is what the lock guards. Neither knows the device:
//! the allocator calls it, with no lock held, between [`Pool::begin_growth`] and [`Pool::commit_growth`].
//!
//! Pools are of two makes. Those of sliced pages cut them (`slicer`). Those of exclusive pages and direct ones have a
//! page for each slice, and differ in which free page serves a request: `whole` is about both.
#![deny(unsafe_code)]

mod ageing;
#[cfg(test)]
mod damage;
mod direct;
mod exact;
mod exclusive;
mod inspect;
mod labels;
mod moving;
mod options;
mod page;
mod pages;
pub(crate) mod pending;
mod records;
mod refusals;
mod rules;
mod sliced;
mod whole;

use crate::allocator::sizing::Needs;
use crate::canary::broken;
use crate::clock::Clock;
use crate::device::DeviceMemory;
use crate::error::Error;
use crate::int::align_down;
use crate::metadata::{Array, Chunk, ChunkPlan, HostMemory};
use crate::parts::{COMPLETE, Part};
use crate::slice::Slice;
use crate::slicer::nodes::Node;
use crate::slicer::{Scan, Scanned, Slicer};
use crate::slots::SliceId;
use exact::{Segment, SizeIndex};
pub use inspect::Range;
use labels::Labels;
pub use options::{NearPage, PageGrowth, PoolKinds, PoolOptions, PoolType};
use page::Page;
pub(crate) use pages::Mapping;
use pages::Pages;
pub(crate) use refusals::LEAST_HALF;
use refusals::Refusals;
pub(crate) use rules::{Fit, Kind, Rules};

/// What a pool's lock guards.
pub(crate) struct Pool {
    pub(crate) slicer: Slicer,
    pub(crate) pages: Pages,
    rules: Rules,
    /// Requested bytes of live slices, and what rounding added.
    in_use: u64,
    padding: u64,
    in_use_peak: u64,
    /// Bytes of the largest request that was ever served.
    largest_allocation: u64,
    reserved_peak: u64,
    pages_peak: u32,
    /// Pages being taken from the device, and their bytes.
    growing: u32,
    growing_bytes: u64,
    device_allocations: u64,
    device_deallocations: u64,
    refusals: Refusals,
    /// Free pages by their size: one, in a direct pool.
    by_size: Array<SizeIndex>,
    /// What the program has attached to slices, if it ever has.
    labels: Option<Array<Labels>>,
}

/// Host memory that a pool needs before it can grow.
pub(crate) enum Metadata {
    Node(ChunkPlan),
    Page(ChunkPlan),
    Sizes(u32, Part),
}

/// Such memory, to be installed.
pub(crate) enum MetadataChunk {
    Node(Chunk<Node>),
    Page(Chunk<Page>),
    Sizes(Segment, Part),
}

impl Metadata {
    #[cold]
    pub(crate) fn allocate(self, memory: HostMemory) -> Result<MetadataChunk, Error> {
        match self {
            Metadata::Node(plan) => Ok(MetadataChunk::Node(Chunk::allocate(memory, plan)?)),
            Metadata::Page(plan) => Ok(MetadataChunk::Page(Chunk::allocate(memory, plan)?)),
            Metadata::Sizes(plan, part) => Ok(MetadataChunk::Sizes(SizeIndex::allocate(memory, plan)?, part)),
        }
    }
}

impl Pool {
    pub(crate) fn try_new(memory: HostMemory, rules: Rules, tag: u16) -> Result<Self, Error> {
        let by_size = match rules.kind {
            Kind::Direct(_) if COMPLETE => Array::try_new(memory, 1, |_| Ok(SizeIndex::new()))?,
            _ => Array::empty(memory),
        };
        Ok(Self {
            slicer: Slicer::try_new(memory, rules.largest_range(), rules.page_kind(), tag)?,
            pages: Pages::new(memory, rules.dealloc_period, rules.once, rules.takes_lowest_idle()),
            rules,
            in_use: 0,
            padding: 0,
            in_use_peak: 0,
            largest_allocation: 0,
            reserved_peak: 0,
            pages_peak: 0,
            growing: 0,
            growing_bytes: 0,
            device_allocations: 0,
            device_deallocations: 0,
            refusals: Refusals::new(),
            by_size,
            labels: None,
        })
    }

    /// The most host memory that a pool with these rules asks for with that many slices and pages.
    pub(crate) fn add_needs(rules: &Rules, slices: u32, pages: u32, needs: &mut Needs) -> Result<(), Error> {
        Slicer::add_needs(rules.largest_range(), rules.page_kind(), slices, pages, needs)?;
        // A record more is promised before it is known that there is no page.
        Pages::add_needs(pages.saturating_add(1), needs)?;
        if let Kind::Direct(_) = rules.kind {
            needs.add::<SizeIndex>(1);
            SizeIndex::add_needs(pages.saturating_add(1), needs);
        }
        Ok(())
    }

    // ---- placing and freeing

    /// Places a slice in memory that is held already, in constant time. Needs [`Slicer::has_nodes`].
    #[inline(always)]
    pub(crate) fn place(&mut self, fit: &Fit) -> Option<Slice> {
        if !self.rules.cuts() {
            return self.place_whole(fit);
        }
        let mut slot = self.slicer.allocate(fit.size, fit.align_mask);
        if slot == 0 {
            slot = self.allocate_in_idle_page(fit);
            if slot == 0 {
                return None;
            }
        }
        Some(self.settle(slot, fit.requested))
    }

    /// Takes an idle page into use: of equal ones that of the lowest index, otherwise a small one that fits; 0 if there is
    /// none in sight.
    #[cold]
    fn allocate_in_idle_page(&mut self, fit: &Fit) -> u32 {
        if self.rules.grows() {
            match self.slicer.find_idle(fit.size) {
                0 => 0,
                edge => self.allocate_in_page(edge, fit),
            }
        } else {
            match self.pages.lowest_idle() {
                Some(page) => self.allocate_in_page(self.pages[page].edge(), fit),
                None => 0,
            }
        }
    }

    fn allocate_in_page(&mut self, edge: u32, fit: &Fit) -> u32 {
        self.pages.set_busy(self.slicer.node(edge).page.get(), edge);
        self.slicer.use_page(edge);
        self.slicer.allocate_from_tail(fit.size, fit.align_mask)
    }

    /// [`Pool::place`] off the hot path.
    #[inline(never)]
    pub(crate) fn place_elsewhere(&mut self, fit: &Fit) -> Option<Slice> {
        if !self.rules.cuts() {
            return self.place_whole_elsewhere(fit);
        }
        let mut slot = self.slicer.allocate_elsewhere(fit.size, fit.align_mask);
        if slot == 0 {
            slot = self.allocate_in_idle_page(fit);
        }
        (slot != 0).then(|| self.settle_elsewhere(slot, fit.requested))
    }

    /// One step of the exhaustive search. Needs [`Slicer::has_nodes`].
    pub(crate) fn scan(&mut self, fit: &Fit, scan: Scan) -> Result<Option<Slice>, Scan> {
        if !self.rules.cuts() {
            return Ok(self.place_whole_in_any(fit));
        }
        match self.slicer.scan(fit.size, fit.align_mask, scan) {
            Scanned::Placed(slot) => Ok(Some(self.settle_elsewhere(slot, fit.requested))),
            Scanned::Idle(edge) => {
                let slot = self.allocate_in_page(edge, fit);
                Ok(Some(self.settle_elsewhere(slot, fit.requested)))
            }
            Scanned::Nothing => Ok(None),
            Scanned::More(scan) => Err(scan),
        }
    }

    pub(crate) fn begin_scan(&self, fit: &Fit) -> Scan {
        self.slicer.begin_scan(fit.size, u32::MAX)
    }

    /// A search that looks at so many holes of the request's own class, and at nothing else.
    pub(crate) fn begin_scan_of_class(&self, fit: &Fit, holes: u32) -> Scan {
        self.slicer.begin_scan_of_class(fit.size, holes)
    }

    /// Whether such a search, or the one in constant time, would find room; where to go on if there is more to look at.
    #[cold]
    pub(crate) fn would_fit_so_deep(&self, fit: &Fit, scan: Scan) -> Result<bool, Scan> {
        Ok(self.slicer.would_fit(fit.size, fit.align_mask, scan)?
            || self.slicer.fits_at_once(fit.size, fit.align_mask)
            || (!self.rules.grows() && self.pages.idle_count() != 0)
            || (self.rules.grows() && self.slicer.find_idle(fit.size) != 0))
    }

    /// Bytes that were asked for by a live slice; of a pending one 0.
    pub(crate) fn requested(&self, slot: u32) -> u64 {
        let node = self.slicer.node(slot);
        if node.is_slice() { self.rules.bytes(node.size.get()) - self.padding_of(node) } else { 0 }
    }

    /// Whether [`Pool::place`] and [`Pool::scan`] would find room, `in_need`: in any page; where to go on if there is more to
    /// look at.
    #[cold]
    pub(crate) fn would_fit(&self, fit: &Fit, scan: Scan, in_need: bool) -> Result<bool, Scan> {
        if !self.rules.cuts() {
            return Ok(self.has_whole(fit, !in_need));
        }
        if !self.rules.grows() && self.pages.idle_count() != 0 {
            // Equal pages hold every request that the pool takes.
            return Ok(true);
        }
        self.slicer.would_fit(fit.size, fit.align_mask, scan)
    }

    /// Books a slice that the slicer has just placed.
    #[inline(always)]
    fn settle(&mut self, slot: u32, requested: u64) -> Slice {
        let node = self.slicer.node(slot);
        // Less than a granule, which is at most 2^32 bytes.
        let padding = self.rules.bytes(node.size.get()) - requested;
        node.link_a.set(padding as u32);
        let slice = self.slice_of_node(slot, node);
        self.note_in_use(requested, padding);
        slice
    }

    #[inline(always)]
    fn note_in_use(&mut self, requested: u64, padding: u64) {
        self.in_use += requested;
        self.padding += padding;
        self.in_use_peak = self.in_use_peak.max(self.in_use);
        self.largest_allocation = self.largest_allocation.max(requested);
    }

    /// Books a slice out that is about to be freed or resized; its page.
    #[inline(always)]
    fn unsettle(&mut self, slot: u32) -> u32 {
        let node = self.slicer.node(slot);
        let (page, padding) = (node.page.get(), u64::from(node.link_a.get()));
        self.note_not_in_use(self.rules.bytes(node.size.get()) - padding, padding);
        page
    }

    #[inline(always)]
    fn note_not_in_use(&mut self, requested: u64, padding: u64) {
        self.in_use -= requested;
        self.padding -= padding;
    }

    /// Books a slice out that is about to be freed or to wait.
    pub(super) fn unbook(&mut self, slot: u32) {
        if self.rules.cuts() {
            self.unsettle(slot);
        } else {
            self.unbook_whole(slot);
        }
    }

    /// [`Pool::settle`] off the hot path.
    #[inline(never)]
    fn settle_elsewhere(&mut self, slot: u32, requested: u64) -> Slice {
        self.settle(slot, requested)
    }

    #[inline(always)]
    fn slice_at(&self, slot: u32) -> Slice {
        self.slice_of_node(slot, self.slicer.node(slot))
    }

    #[inline(always)]
    fn slice_of_node(&self, slot: u32, node: &Node) -> Slice {
        let memory = &self.pages[node.page.get()].memory;
        let offset = self.rules.bytes(node.offset.get());
        Slice {
            id: self.slicer.id_of(slot, node),
            memory: memory.handle,
            offset,
            size: self.rules.bytes(node.size.get() - self.rules.margin),
            address: memory.address_at(offset),
            mapped: memory.mapped_at(offset),
        }
    }

    /// The slice of a handle.
    pub(crate) fn get(&self, id: SliceId) -> Result<Slice, Error> {
        Ok(self.slice_at(self.slicer.resolve_for_query(id)?))
    }

    /// The slice of a slot that is live or claimed.
    pub(crate) fn live_slice_of(&self, slot: u32) -> Slice {
        self.slice_at(slot)
    }

    /// Bytes behind each slice that belong to nobody.
    pub(crate) fn margin_bytes(&self) -> u64 {
        self.rules.margin_bytes()
    }

    /// The slice of a slot that is live, claimed or pending, with all of its range.
    pub(crate) fn slice_of(&self, slot: u32) -> Slice {
        let node = self.slicer.node(slot);
        let memory = &self.pages[node.page.get()].memory;
        let offset = self.rules.bytes(self.slicer.offset_of(node));
        Slice {
            id: self.slicer.id(slot),
            memory: memory.handle,
            offset,
            size: self.rules.bytes(self.slicer.size_of(node)),
            address: memory.address_at(offset),
            mapped: memory.mapped_at(offset),
        }
    }

    #[inline(always)]
    pub(crate) fn free(&mut self, id: SliceId, clock: &Clock) -> Result<(), Error> {
        let slot = self.slicer.resolve(id)?;
        self.free_slot(slot, clock);
        Ok(())
    }

    /// Frees a slot that is live or claimed. The page stays, whatever is left in it.
    #[inline(always)]
    pub(crate) fn free_slot(&mut self, slot: u32, clock: &Clock) {
        if !self.rules.cuts() {
            return self.free_whole(slot, clock);
        }
        let page = self.unsettle(slot);
        let edge = self.slicer.free(slot);
        if edge != 0 {
            self.slicer.set_page_idle(edge);
            self.pages.set_idle(page, clock.idle_event());
        }
    }

    /// [`Pool::free_slot`] off the hot path.
    #[inline(never)]
    pub(crate) fn free_slot_elsewhere(&mut self, slot: u32, clock: &Clock) {
        self.free_slot(slot, clock);
    }

    /// Grows or shrinks a slice where it lies. Needs [`Slicer::has_nodes`].
    pub(crate) fn resize(&mut self, slot: u32, fit: &Fit) -> Result<Slice, Error> {
        if !self.rules.cuts() {
            return self.resize_whole(slot, fit);
        }
        let available = self.slicer.available_at(slot);
        if u64::from(fit.size) > available {
            let available = (available << self.rules.granule_shift) - self.margin_bytes();
            return Err(Error::NoRoom { size: fit.requested, available });
        }
        self.unsettle(slot);
        self.slicer.resize(slot, fit.size);
        Ok(self.settle_elsewhere(slot, fit.requested))
    }

    // ---- growing: everything is set aside first, so that the commit cannot fail

    /// The host memory that is lacking before a growth can be begun; `None` if nothing is.
    #[cold]
    pub(crate) fn lacks(&self) -> Result<Option<Metadata>, Error> {
        if !self.slicer.has_nodes_for_page() {
            return Ok(Some(Metadata::Node(self.slicer.plan()?)));
        }
        if !self.pages.has_record() {
            return Ok(Some(Metadata::Page(self.pages.plan()?)));
        }
        match &self.rules.kind {
            Kind::Direct(direct) if !self.by_size[0].has_room(self.pages.count() + self.growing + 1) => {
                return Ok(Some(Metadata::Sizes(self.by_size[0].plan()?, direct.part)));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Installs what was lacking; hands it back if another thread was faster.
    #[cold]
    pub(crate) fn install(&mut self, chunk: MetadataChunk) -> Option<MetadataChunk> {
        match chunk {
            MetadataChunk::Node(chunk) => self.slicer.install(chunk).map(MetadataChunk::Node),
            MetadataChunk::Page(chunk) => self.pages.install_chunk(chunk).map(MetadataChunk::Page),
            MetadataChunk::Sizes(segment, part) => {
                self.by_size[0].install(segment).map(|segment| MetadataChunk::Sizes(segment, part))
            }
        }
    }

    /// Whether pages are cut.
    pub(crate) fn cuts(&self) -> bool {
        self.rules.cuts()
    }

    /// Bytes that were asked for, of live slices.
    pub(crate) fn in_use(&self) -> u64 {
        self.in_use
    }

    pub(crate) fn growing(&self) -> u32 {
        self.growing
    }

    /// Bytes held or about to be held.
    fn claimed_bytes(&self) -> Option<u64> {
        // Figures have 64 bits, whatever a device claims to have. Pages on their way back, and stuck ones, are held
        // until the device has taken them.
        self.pages.reserved().checked_add(self.growing_bytes)
    }

    /// Sets aside a page under the cap and the records for it; the page's bytes. Needs [`Slicer::has_nodes`], and nothing
    /// may be lacking.
    ///
    /// Pages that grow have no more than `room`, if that is enough for the request. `blocks`: pages of pools in which they
    /// double with their number. `returns` counts the pages that the allocator has given back.
    #[cold]
    pub(crate) fn begin_growth(&mut self, fit: &Fit, room: u64, blocks: u32, returns: u32) -> Result<u64, Error> {
        let page = self.claimed_bytes().and_then(|held| {
            let page = self.rules.next_page(fit, held, blocks)?;
            held.checked_add(page).map(|_| page)
        });
        let Some(mut page) = page else { return Err(self.capacity_error(fit)) };
        if !COMPLETE {
            self.set_aside(page);
            return Ok(page);
        }
        self.refusals.look_at_returns(returns);
        if self.rules.grows() {
            let (least, granule) = (self.rules.bytes(fit.size), self.rules.granule());
            page = self.refusals.shrink(page, least, granule).min(align_down(room, granule)).max(least);
        }
        self.refusals.pause(page)?;
        self.set_aside(page);
        Ok(page)
    }

    /// Sets the records for a page aside.
    fn set_aside(&mut self, page: u64) {
        self.slicer.promise_nodes();
        self.pages.promise();
        self.growing += 1;
        self.growing_bytes += page;
    }

    /// Why a request is refused that only memory which is held could serve.
    pub(crate) fn held_error(&self, fit: &Fit) -> Error {
        match self.capacity_error(fit) {
            Error::PoolCapacityExceeded { size, in_use, pending, largest_free, growths_in_flight, .. } => {
                let capacity = self.pages.reserved();
                Error::PoolCapacityExceeded { size, capacity, in_use, pending, largest_free, growths_in_flight }
            }
            other => other,
        }
    }

    pub(crate) fn capacity_error(&self, fit: &Fit) -> Error {
        Error::PoolCapacityExceeded {
            size: fit.requested,
            capacity: self.rules.capacity().unwrap_or(u64::MAX),
            in_use: self.in_use,
            pending: self.pending_bytes(),
            largest_free: self.largest_bound(),
            // Both mean that trying again may help.
            growths_in_flight: self.growing + self.pages.leaving_count(),
        }
    }

    /// Gives up what [`Pool::begin_growth`] set aside for a page of `bytes`.
    pub(crate) fn cancel_growth(&mut self, bytes: u64) {
        self.slicer.release_promise();
        self.pages.release_promise();
        self.growing -= 1;
        self.growing_bytes -= bytes;
    }

    /// The device had no memory for a page of `bytes`; whether the pool should ask for a smaller one.
    #[cold]
    pub(crate) fn note_refusal(&mut self, fit: &Fit, bytes: u64, code: i32) -> bool {
        let least = if self.rules.grows() { self.rules.bytes(fit.size) } else { bytes };
        self.refusals.note(bytes, least, code)
    }

    /// Installs the page that a growth got, and places the request that waits for it at its start.
    #[cold]
    pub(crate) fn commit_growth(&mut self, memory: DeviceMemory, fit: &Fit) -> Slice {
        if !COMPLETE || memory.is_mapped() {
            self.note_device_allocation();
            if COMPLETE {
                self.refusals.note_success(memory.size);
            }
        }
        let (_, slot) = self.add_page(memory, false);
        self.settle_in_new_page(slot, fit)
    }

    /// Adds a page for which everything has been set aside, `idle` or about to be used: its index, and its edge, or its slot
    /// where it is one slice.
    fn add_page(&mut self, memory: DeviceMemory, idle: bool) -> (u32, u32) {
        self.cancel_growth(memory.size);
        let index = self.pages.next_index();
        let granules = (memory.size >> self.rules.granule_shift) as u32;
        let edge = match (self.rules.cuts(), idle) {
            (false, _) => self.slicer.add_whole(index, granules),
            (true, false) => self.slicer.add_page(index, granules),
            (true, true) => self.slicer.add_idle_page(index, granules),
        };
        self.pages.add(memory, edge);
        self.note_reserved();
        if let Kind::Direct(_) = self.rules.kind {
            self.by_size[0].note_pages(&self.slicer, self.pages.count());
        }
        (index, edge)
    }

    /// Places the request for which a page was added.
    fn settle_in_new_page(&mut self, slot: u32, fit: &Fit) -> Slice {
        if !self.rules.cuts() {
            return self.book_whole(slot, fit.requested);
        }
        let slot = self.slicer.allocate_from_tail(fit.size, fit.align_mask);
        self.settle_elsewhere(slot, fit.requested)
    }

    /// Keeps a page that could be neither used nor given back, in place of the growth that got it.
    pub(crate) fn keep_refused_growth(&mut self, memory: DeviceMemory) {
        self.cancel_growth(memory.size);
        self.keep_stuck(memory);
    }

    /// A page of `bytes` was taken from the device and given back at once.
    pub(crate) fn cancel_returned_growth(&mut self, bytes: u64) {
        self.cancel_growth(bytes);
        self.note_returned_memory();
    }

    fn note_device_allocation(&mut self) {
        self.device_allocations += 1;
    }

    /// The live slices of a page: those in the ring of its nodes.
    pub(crate) fn live_slices_of_page(&self, page: u32) -> impl Iterator<Item = Slice> + '_ {
        let edge = self.pages[page].edge();
        let next = move |&slot: &u32| Some(self.slicer.node(slot).next.get()).filter(|&next| next != edge);
        let ring = core::iter::successors(Some(edge), next);
        ring.filter(|&slot| self.slicer.node(slot).is_slice()).map(|slot| self.slice_at(slot))
    }

    /// The device has given the memory of a page that had none.
    pub(crate) fn set_memory(&mut self, page: u32, memory: DeviceMemory) {
        self.note_device_allocation();
        self.pages.set_memory(page, memory);
    }

    /// The device has given memory that nobody needed any more, and has taken it back.
    pub(crate) fn note_returned_memory(&mut self) {
        self.note_device_allocation();
        self.device_deallocations += 1;
    }

    /// The device has given memory that nobody needed any more, and does not take it back.
    pub(crate) fn keep_refused_memory(&mut self, memory: DeviceMemory) {
        self.pages.release_promise();
        self.keep_stuck(memory);
    }

    fn keep_stuck(&mut self, memory: DeviceMemory) {
        self.note_device_allocation();
        self.pages.add_stuck(memory);
        self.note_reserved();
    }

    fn note_reserved(&mut self) {
        self.reserved_peak = self.reserved_peak.max(self.pages.reserved());
        self.pages_peak = self.pages_peak.max(self.pages.count());
    }

    // ---- giving pages back

    /// Takes an idle page out of the slicer. It counts as reserved until [`Pool::returned`] or [`Pool::refused`].
    #[cold]
    pub(crate) fn begin_return(&mut self, index: u32) -> DeviceMemory {
        let edge = self.pages[index].edge();
        if self.rules.cuts() {
            self.slicer.remove_page(edge);
        } else {
            self.remove_whole(edge);
        }
        self.pages.set_leaving(index);
        self.pages[index].memory
    }

    /// The page that has been idle the longest, and since when, if `floor` bytes of the pool stay reserved without it.
    pub(crate) fn idle_above(&self, floor: u64) -> Option<(u32, u32)> {
        let index = self.pages.oldest_idle()?;
        let page = &self.pages[index];
        (self.pages.staying() - page.memory.size >= floor).then_some((index, page.idle_since()))
    }

    /// The first page that is too old, if the pool keeps what it has to without it.
    pub(crate) fn expired(&self) -> Option<u32> {
        let index = self.pages.expired()?;
        let keep = if broken("keep_nothing") { 0 } else { self.rules.keep_bytes };
        (self.pages.staying() - self.pages[index].memory.size >= keep).then_some(index)
    }

    /// An idle page that has to go before the pool grows for `fit`, which no page it holds would serve; `given_back` bytes
    /// have gone for it already.
    ///
    /// Pages that grow: the oldest, until as much has gone as the new page has, so that what the pool holds does not rise
    /// while some of it is unused. Direct: the one with the lowest index, while the new page does not fit under the
    /// watermark.
    pub(crate) fn idle_before_growth(&self, fit: &Fit, given_back: u64, blocks: u32) -> Option<u32> {
        match &self.rules.kind {
            Kind::Sliced(_) if broken("growth_keeps_idle") => None,
            Kind::Sliced(_) if self.rules.doubles() => None,
            Kind::Sliced(sliced) if sliced.growth.is_some() => {
                // As much goes as a page without a cap has, so that a plan is enough for what it was made of; and where the
                // cap has no room for a page all the same, there may be some without the idle ones.
                let page = self.claimed_bytes().and_then(|held| {
                    self.rules.next_page(fit, held, blocks)?;
                    Some(sliced.usual_page(self.rules.bytes(fit.size), held, blocks))
                });
                if given_back < page.unwrap_or(u64::MAX) { self.pages.oldest_idle() } else { None }
            }
            Kind::Direct(direct) => {
                let held = self.claimed_bytes().and_then(|held| held.checked_add(self.rules.bytes(fit.size)));
                let fits = held.is_some_and(|held| held <= direct.reclaim_at.unwrap_or(u64::MAX));
                if fits || direct.reclaim_at.is_none() {
                    None
                } else if broken("reclaim_newest") {
                    self.pages.newest_idle()
                } else {
                    self.pages.lowest_idle()
                }
            }
            _ => None,
        }
    }

    /// The device has taken a page back, or has never given its memory.
    pub(crate) fn returned(&mut self, index: u32) {
        if self.pages[index].memory.is_mapped() {
            self.device_deallocations += 1;
        }
        self.pages.set_vacant(index);
    }

    /// The device has refused to take a page back.
    pub(crate) fn refused(&mut self, index: u32) {
        self.pages.set_stuck(index);
    }
}
