//! Figures about what is held and what it is used for, and their JSON form.
#![forbid(unsafe_code)]

use crate::allocator::{AllocatorOptions, OwnPages};
use crate::device::{Heap, HeapBudget, MemoryType};
use crate::error::Error;
use crate::pool::{PageGrowth, PoolKinds, PoolOptions, PoolType};
use core::fmt::{self, Write};

/// Figures of a pool or of a whole allocator at one instant. Sizes are bytes.
///
/// `reserved == in_use + padding + pending + free + leaving + stuck`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Held from the device, or planned in a dry run.
    pub reserved: u64,
    /// Asked for by live slices.
    pub in_use: u64,
    /// Added to that by rounding to the granule, or to the page where every slice has its own.
    pub padding: u64,
    /// In slices that were freed but wait for the device, rounding included.
    pub pending: u64,
    /// In free ranges.
    pub free: u64,
    /// In pages that are on their way back to the device.
    pub leaving: u64,
    /// In pages that the device has refused to take back.
    pub stuck: u64,
    /// Part of `reserved` that a dry run has not got from the device.
    pub unmapped: u64,
    /// The most `reserved` has been.
    pub reserved_peak: u64,
    /// The most `in_use` has been. Of an allocator: the sum over its pools.
    pub in_use_peak: u64,
    /// Bytes of the largest request that was ever served. Like the peaks, it counts slices that were given up again because
    /// something else about their request has failed.
    pub largest_allocation: u64,
    /// A free range of at least this size exists; the exact largest is a query of its own.
    pub largest_free_bound: u64,
    /// Host memory held for slices and pages.
    pub metadata: u64,
    /// Pages ever taken from the device, or adopted: by the pool that did so, whichever they have served since.
    pub device_allocations: u64,
    /// Pages ever given back, by the pool that did so.
    pub device_deallocations: u64,
    /// Live slices.
    pub slices: u32,
    /// Slices that were freed but wait for the device.
    pub slices_pending: u32,
    /// Free ranges.
    pub free_ranges: u32,
    /// Pages held, those leaving or stuck apart.
    pub pages: u32,
    /// Pages among them that hold no slice.
    pub pages_idle: u32,
    /// Pages that the device has refused to take back.
    pub pages_stuck: u32,
    /// Pages of a dry run that it has not got from the device.
    pub pages_unmapped: u32,
    /// The most `pages` has been.
    pub pages_peak: u32,
    /// Pages being taken from the device.
    pub growths_in_flight: u32,
}

impl Statistics {
    /// Adds a pool's figures to an allocator's, which keeps its own peaks of what it holds. No sum overflows, whatever a
    /// device claims to have.
    #[cold]
    #[inline(never)]
    pub(crate) fn add(&mut self, pool: &Statistics) {
        self.reserved = self.reserved.saturating_add(pool.reserved);
        self.in_use = self.in_use.saturating_add(pool.in_use);
        self.padding = self.padding.saturating_add(pool.padding);
        self.pending = self.pending.saturating_add(pool.pending);
        self.free = self.free.saturating_add(pool.free);
        self.leaving = self.leaving.saturating_add(pool.leaving);
        self.stuck = self.stuck.saturating_add(pool.stuck);
        self.unmapped = self.unmapped.saturating_add(pool.unmapped);
        self.in_use_peak = self.in_use_peak.saturating_add(pool.in_use_peak);
        self.largest_allocation = self.largest_allocation.max(pool.largest_allocation);
        self.largest_free_bound = self.largest_free_bound.max(pool.largest_free_bound);
        self.metadata += pool.metadata;
        self.device_allocations += pool.device_allocations;
        self.device_deallocations += pool.device_deallocations;
        self.slices += pool.slices;
        self.slices_pending += pool.slices_pending;
        self.free_ranges += pool.free_ranges;
        self.pages += pool.pages;
        self.pages_idle += pool.pages_idle;
        self.pages_stuck += pool.pages_stuck;
        self.pages_unmapped += pool.pages_unmapped;
        self.growths_in_flight += pool.growths_in_flight;
    }

    /// Whether there are slices that are live or wait for the device.
    pub(crate) fn is_used(&self) -> bool {
        self.slices != 0 || self.slices_pending != 0
    }

    /// Why an allocator with these figures cannot go away.
    pub(crate) fn busy(&self, in_flight: u32) -> Error {
        let (live, pending) = (u64::from(self.slices), u64::from(self.slices_pending));
        Error::Busy { live, pending, in_use: self.in_use, in_flight }
    }

    /// The figures as members of a JSON object.
    fn write_members(&self, object: &mut Object) -> fmt::Result {
        for (name, value) in [
            ("reserved_bytes", self.reserved),
            ("in_use_bytes", self.in_use),
            ("padding_bytes", self.padding),
            ("pending_bytes", self.pending),
            ("free_bytes", self.free),
            ("leaving_bytes", self.leaving),
            ("stuck_bytes", self.stuck),
            ("unmapped_bytes", self.unmapped),
            ("reserved_peak_bytes", self.reserved_peak),
            ("in_use_peak_bytes", self.in_use_peak),
            ("largest_allocation_bytes", self.largest_allocation),
            ("largest_free_bound_bytes", self.largest_free_bound),
            ("metadata_bytes", self.metadata),
            ("device_allocations", self.device_allocations),
            ("device_deallocations", self.device_deallocations),
            ("slices", u64::from(self.slices)),
            ("slices_pending", u64::from(self.slices_pending)),
            ("free_ranges", u64::from(self.free_ranges)),
            ("pages", u64::from(self.pages)),
            ("pages_idle", u64::from(self.pages_idle)),
            ("pages_stuck", u64::from(self.pages_stuck)),
            ("pages_unmapped", u64::from(self.pages_unmapped)),
            ("pages_peak", u64::from(self.pages_peak)),
            ("growths_in_flight", u64::from(self.growths_in_flight)),
        ] {
            object.number(name, Some(value))?;
        }
        Ok(())
    }
}

/// A pool's configuration as it is in effect, and its figures, all of one instant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PoolReport {
    /// The configuration after rounding, clamping and defaults. Giving it to a new allocator makes the same pool.
    pub options: PoolOptions,
    /// Every page is asked for at a multiple of this many bytes.
    pub page_alignment: u64,
    /// The figures.
    pub statistics: Statistics,
}

impl PoolReport {
    /// The same pool with what it has turned out to need as its cap: after a dry run, the configuration in which the same
    /// calls fit, one thread making them, where none was refused. (What is refused may have pages given back that hold
    /// nothing, with a smaller cap others.) Only pools of sliced pages have caps; of others this is the configuration.
    ///
    /// Whether requests are taken that nearly fill a page is written down as it was, since a cap would change it.
    pub fn plan(&self) -> PoolOptions {
        let mut options = self.options.clone();
        if let PoolType::SlicedPages { max_pool_size, .. } = &mut options.pool_type {
            *max_pool_size = Some(self.statistics.reserved_peak);
        }
        options
    }
}

/// A heap, what the device says of it, and the figures of all that is held of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeapReport {
    /// As the allocator was made with it.
    pub heap: Heap,
    /// What the device says of it, if it does.
    pub budget: Option<HeapBudget>,
    /// The figures of all pools whose memory types are taken from it.
    pub statistics: Statistics,
}

/// A JSON object that is being written.
pub(crate) struct Object<'a> {
    out: &'a mut dyn Write,
    separator: &'static str,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut dyn Write) -> Result<Self, fmt::Error> {
        out.write_str("{")?;
        Ok(Self { out, separator: "" })
    }

    #[cold]
    fn name(&mut self, name: &str) -> fmt::Result {
        for part in [self.separator, "\"", name, "\":"] {
            self.out.write_str(part)?;
        }
        self.separator = ",";
        Ok(())
    }

    /// A number, or null.
    #[cold]
    fn number(&mut self, name: &str, value: Option<u64>) -> fmt::Result {
        self.name(name)?;
        let Some(mut value) = value else { return self.out.write_str("null") };
        // By hand: nothing else in the C library would need the formatting of the standard library.
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        digits[first..].iter().try_for_each(|&digit| self.out.write_char(char::from(digit)))
    }

    #[cold]
    fn numbers(&mut self, numbers: &[(&str, u64)]) -> fmt::Result {
        numbers.iter().try_for_each(|&(name, value)| self.number(name, Some(value)))
    }

    #[cold]
    fn truth(&mut self, name: &str, value: bool) -> fmt::Result {
        self.name(name)?;
        self.out.write_str(if value { "true" } else { "false" })
    }

    #[cold]
    fn text(&mut self, name: &str, text: &str) -> fmt::Result {
        self.name(name)?;
        self.out.write_str("\"")?;
        for c in text.chars() {
            match c {
                '"' | '\\' => {
                    self.out.write_char('\\')?;
                    self.out.write_char(c)?;
                }
                // Names are for people: what cannot be read need not be kept.
                c if c < ' ' => self.out.write_char(' ')?,
                c => self.out.write_char(c)?,
            }
        }
        self.out.write_str("\"")
    }

    fn end(self) -> fmt::Result {
        self.out.write_str("}")
    }
}

/// A report that is being written.
pub(crate) struct Report<'a>(Object<'a>);

/// Writes the `i`-th element of a list.
type WriteElement<'a> = &'a mut dyn FnMut(&mut dyn Write, u32) -> fmt::Result;

impl<'a> Report<'a> {
    #[cold]
    pub(crate) fn begin(
        out: &'a mut dyn Write,
        options: &AllocatorOptions,
        figures: &Statistics,
    ) -> Result<Self, fmt::Error> {
        let mut object = Object::begin(out)?;
        object.text("slicepool", env!("CARGO_PKG_VERSION"))?;
        object.text("name", options.name.as_str())?;
        object.name("allocator")?;
        let mut allocator = Object::begin(object.out)?;
        figures.write_members(&mut allocator)?;
        allocator.end()?;
        Ok(Self(object))
    }

    #[cold]
    pub(crate) fn list(&mut self, name: &str, count: u32, write: WriteElement<'_>) -> fmt::Result {
        self.0.name(name)?;
        self.0.out.write_str("[")?;
        for i in 0..count {
            if i != 0 {
                self.0.out.write_str(",")?;
            }
            write(self.0.out, i)?;
        }
        self.0.out.write_str("]")
    }

    pub(crate) fn end(self) -> fmt::Result {
        self.0.end()
    }
}

impl HeapReport {
    /// Writes the report as a JSON object.
    #[cold]
    pub(crate) fn write(&self, out: &mut dyn Write) -> fmt::Result {
        let mut object = Object::begin(out)?;
        object.number("size", Some(self.heap.size).filter(|&size| size != u64::MAX))?;
        object.number("limit", self.heap.limit)?;
        object.number("device_usage", self.budget.map(|budget| budget.usage))?;
        object.number("device_budget", self.budget.map(|budget| budget.budget))?;
        self.statistics.write_members(&mut object)?;
        object.end()
    }
}

/// Writes a memory type and its figures as a JSON object.
#[cold]
pub(crate) fn write_type(out: &mut dyn Write, memory_type: &MemoryType, figures: &Statistics) -> fmt::Result {
    let mut object = Object::begin(out)?;
    object.numbers(&[("heap", u64::from(memory_type.heap)), ("properties", u64::from(memory_type.properties))])?;
    object.number("max_page", Some(memory_type.max_page).filter(|&most| most != u64::MAX))?;
    object.numbers(&[
        ("alignment", memory_type.alignment),
        ("granularity", memory_type.granularity),
        ("non_coherent_atom", memory_type.non_coherent_atom),
    ])?;
    object.truth("host_visible", memory_type.host_visible)?;
    object.truth("mapped_anywhere", memory_type.mapped_anywhere)?;
    figures.write_members(&mut object)?;
    object.end()
}

impl PoolReport {
    /// Writes the report as a JSON object.
    #[cold]
    pub(crate) fn write(&self, out: &mut dyn Write, own_pages: Option<OwnPages>) -> fmt::Result {
        let options = &self.options;
        let mut object = Object::begin(out)?;
        if let Some(pages) = own_pages {
            object.text(
                "serves",
                match pages {
                    OwnPages::Persistent => "persistent",
                    OwnPages::Dedicated => "dedicated",
                    OwnPages::Once => "once",
                },
            )?;
        }
        match options.pool_type {
            PoolType::SlicedPages { page_size, max_slice_size, max_pool_size } => {
                object.text("type", "sliced_pages")?;
                object.numbers(&[("page_size", page_size), ("max_slice_size", max_slice_size)])?;
                object.number("max_pool_size", max_pool_size)?;
                object.number("max_page_size", options.max_page_size)?;
                object.text(
                    "page_growth",
                    match options.page_growth {
                        PageGrowth::Share => "share",
                        PageGrowth::Doubling => "doubling",
                    },
                )?;
                object.text(
                    "kinds",
                    match options.kinds {
                        PoolKinds::Both => "both",
                        PoolKinds::Linear => "linear",
                        PoolKinds::Optimal => "optimal",
                    },
                )?;
                object.number("min_pages", Some(u64::from(options.min_pages)))?;
            }
            PoolType::ExclusivePages { max_alloc_size } => {
                object.text("type", "exclusive_pages")?;
                object.number("max_alloc_size", Some(max_alloc_size))?;
            }
            PoolType::Direct { reclaim_at } => {
                object.text("type", "direct")?;
                object.number("reclaim_at", reclaim_at)?;
            }
        }
        object.number("memory_type", Some(u64::from(options.memory_type)))?;
        object.number("dealloc_period", options.dealloc_period)?;
        object.numbers(&[
            ("keep_bytes", options.keep_bytes),
            ("granule", options.granule),
            ("page_alignment", self.page_alignment),
        ])?;
        self.statistics.write_members(&mut object)?;
        object.end()
    }
}
