//! Other pools in place of those an allocator has.

use super::own_pages::Types;
use super::route::Span;
use super::{Allocator, AllocatorOptions, Cell, PoolSource, check_pool_count};
use crate::clock::Turn;
use crate::device::Device;
use crate::error::Error;
use crate::metadata::Array;
use crate::parts::{COMPLETE, need_complete};
use crate::pool::{Pool, PoolOptions, Rules};
use crate::slots::new_tags;
use crate::sync::{AtomicU32, Lock, Ordering};

impl Cell {
    #[cold]
    pub(super) fn with_rules(rules: Rules, index: u32, tag: u16, options: &AllocatorOptions) -> Result<Self, Error> {
        let pool = Pool::try_new(options.memory, rules, tag)?;
        Ok(Cell {
            rules,
            index,
            tag,
            clearing: Turn::new(),
            attending: Turn::new(),
            pool: Lock::new(options.lock, pool),
        })
    }
}

/// Pools that are ready to take the place of others: see [`Allocator::prepare_pools`].
pub struct NewPools {
    pub(super) cells: Array<Cell>,
    /// Tag of the first pool; the others follow.
    pub(super) first_tag: u16,
    /// The count of allocations at which the first check of ages is due, if pages age.
    pub(super) next_check: Option<u32>,
}

impl NewPools {
    #[cold]
    pub(super) fn try_new(pools: PoolSource<'_>, options: &AllocatorOptions, types: &Types) -> Result<Self, Error> {
        let count = check_pool_count(pools.count as usize)?;
        let rules = |i| {
            let pool = (pools.pool)(i)?;
            let refused = Error::InvalidArgument { field: c"memory_type", value: u64::from(pool.memory_type) };
            let memory_type = types.get(pool.memory_type).ok_or(refused)?.memory_type;
            Rules::try_new(&pool, &memory_type, options.debugging.margin)
        };
        if COMPLETE {
            // Before anything is made.
            (0..count).try_for_each(|i| rules(i).map(|_| ()))?;
        }
        let first_tag = new_tags_but(count as u16, |first| {
            types.own_cells().any(|cell| u32::from(cell.tag.wrapping_sub(first)) < count)
        });
        let cells = Array::try_new(options.memory, count, |i| {
            Cell::with_rules(rules(i)?, i, first_tag.wrapping_add(i as u16), options)
        })?;
        let next_check = cells.iter().filter(|_| COMPLETE).filter_map(|cell| cell.pool.lock().pages.next_check()).min();
        Ok(Self { cells, first_tag, next_check })
    }
}

/// [`new_tags`] that are not among those `taken` by the allocator itself: tags come again after 65,536.
pub(super) fn new_tags_but(count: u16, taken: impl Fn(u16) -> bool) -> u16 {
    loop {
        let first = new_tags(count);
        if !taken(first) {
            return first;
        }
    }
}

impl<D: Device> Allocator<D> {
    /// Puts the pools of `pools` in place of those there are, whose pages go back to the device. Figures and peaks begin
    /// anew; persistent slices stay, and so do the limits. All older handles of the pools are foreign from then on.
    ///
    /// # Errors
    /// [`Error::PoolsInUse`] while the pools hold slices that are live or wait for the device, slices of no bytes among
    /// them; [`Error::Busy`] while a growth or a callback is in flight, so also from within one; those of
    /// [`Allocator::try_new`] for `pools`; [`Error::DeviceFailed`] if the device refuses to take a page back. The pools
    /// stay as they are then, but for pages that held nothing. Those of the device if it refuses
    /// [`PoolOptions::min_pages`]: the new pools are in place then, with the pages they got.
    pub fn install_pools(&mut self, pools: &[PoolOptions]) -> Result<(), Error> {
        let pools = self.prepare_pools(pools)?;
        self.replace_pools(pools)?;
        self.prefill_all()
    }

    /// The first part of [`Allocator::install_pools`], in which the device is called, for owners of a shared allocator. It
    /// leaves the allocator without pages.
    ///
    /// # Errors
    /// As [`Allocator::install_pools`].
    #[cold]
    pub fn prepare_pools(&self, pools: &[PoolOptions]) -> Result<NewPools, Error> {
        PoolSource::with_list(pools, |pools| self.prepare_pools_of(pools))
    }

    /// [`Allocator::prepare_pools`] with pools that are described one by one.
    ///
    /// # Errors
    /// As [`Allocator::install_pools`], and those of `pools`.
    #[cold]
    pub fn prepare_pools_of(&self, pools: PoolSource<'_>) -> Result<NewPools, Error> {
        need_complete(c"install_pools")?;
        self.can_replace_pools()?;
        let pools = NewPools::try_new(pools, &self.options, &self.types)?;
        self.trim(0)?;
        for cell in pools.cells.iter() {
            self.pass_timelines_on(cell)?;
        }
        Ok(pools)
    }

    /// The second part of [`Allocator::install_pools`], in which nobody else may use the allocator. Calls no device:
    /// [`Allocator::prefill_all`] follows, when others may use it again.
    ///
    /// # Errors
    /// [`Error::PoolsInUse`] and [`Error::Busy`] as [`Allocator::install_pools`]: a callback may have changed its mind.
    #[cold]
    pub fn replace_pools(&mut self, pools: NewPools) -> Result<(), Error> {
        self.can_replace_pools()?;
        if self.pools.iter().any(|cell| cell.pool.lock().pages.reserved() != 0) {
            return Err(self.statistics().busy(0));
        }
        let NewPools { cells, first_tag, next_check } = pools;
        self.spans = Span::of_types(cells.as_slice());
        let old = core::mem::replace(&mut self.pools, cells);
        drop(old);
        self.first_tag = first_tag;
        self.ages = AtomicU32::new(u32::from(next_check.is_some()));
        self.clock.restart(next_check.unwrap_or(0));
        for cell in self.types.own_cells() {
            self.begin_ageing(cell);
        }
        self.gave_all_at = AtomicU32::new(u32::MAX);
        self.ledger.lock().forget_peaks();
        Ok(())
    }

    fn can_replace_pools(&self) -> Result<(), Error> {
        let in_flight = self.in_flight.load(Ordering::Acquire);
        let (mut used, mut bytes) = (false, 0u64);
        for cell in self.pools.iter() {
            let figures = cell.pool.lock().statistics();
            used |= figures.is_used();
            bytes = bytes.saturating_add(figures.in_use + figures.padding + figures.pending);
        }
        if in_flight != 0 {
            return Err(self.statistics().busy(in_flight));
        }
        if used { Err(Error::PoolsInUse { bytes }) } else { Ok(()) }
    }
}
