//! Figures about what is held and what it is used for, and their JSON form.
#![forbid(unsafe_code)]

use crate::pool::{PoolOptions, PoolType};
use core::fmt::{self, Write};

/// Figures of a pool or of a whole allocator at one instant. Sizes are bytes.
///
/// `reserved == in_use + padding + free + leaving + stuck`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Held from the device.
    pub reserved: u64,
    /// Asked for by live slices.
    pub in_use: u64,
    /// Added to that by rounding to the granule, or to the page where every slice has its own.
    pub padding: u64,
    /// In free ranges.
    pub free: u64,
    /// In pages that are on their way back to the device.
    pub leaving: u64,
    /// In pages that the device has refused to take back.
    pub stuck: u64,
    /// The most `reserved` has been.
    pub reserved_peak: u64,
    /// The most `in_use` has been. Of an allocator: the sum over its pools.
    pub in_use_peak: u64,
    /// Bytes of the largest request that was ever served.
    pub largest_allocation: u64,
    /// A free range of at least this size exists; the exact largest is a query of its own.
    pub largest_free_bound: u64,
    /// Host memory held for slices and pages.
    pub metadata: u64,
    /// Pages ever taken from the device.
    pub device_allocations: u64,
    /// Pages ever given back.
    pub device_deallocations: u64,
    /// Live slices.
    pub slices: u32,
    /// Free ranges.
    pub free_ranges: u32,
    /// Pages held, those leaving or stuck apart.
    pub pages: u32,
    /// Pages among them that hold no slice.
    pub pages_idle: u32,
    /// Pages that the device has refused to take back.
    pub pages_stuck: u32,
    /// The most `pages` has been.
    pub pages_peak: u32,
    /// Pages being taken from the device.
    pub growths_in_flight: u32,
}

impl Statistics {
    /// Adds a pool's figures to an allocator's, which keeps its own peaks of what it holds. No sum overflows, whatever a device claims to have.
    pub(crate) fn add(&mut self, pool: &Statistics) {
        self.reserved = self.reserved.saturating_add(pool.reserved);
        self.in_use = self.in_use.saturating_add(pool.in_use);
        self.padding = self.padding.saturating_add(pool.padding);
        self.free = self.free.saturating_add(pool.free);
        self.leaving = self.leaving.saturating_add(pool.leaving);
        self.stuck = self.stuck.saturating_add(pool.stuck);
        self.in_use_peak = self.in_use_peak.saturating_add(pool.in_use_peak);
        self.largest_allocation = self.largest_allocation.max(pool.largest_allocation);
        self.largest_free_bound = self.largest_free_bound.max(pool.largest_free_bound);
        self.metadata += pool.metadata;
        self.device_allocations += pool.device_allocations;
        self.device_deallocations += pool.device_deallocations;
        self.slices += pool.slices;
        self.free_ranges += pool.free_ranges;
        self.pages += pool.pages;
        self.pages_idle += pool.pages_idle;
        self.pages_stuck += pool.pages_stuck;
        self.growths_in_flight += pool.growths_in_flight;
    }

    /// The figures as the members of a JSON object, without its braces.
    fn write_members(&self, out: &mut dyn Write) -> fmt::Result {
        let members: [(&str, u64); 20] = [
            ("reserved_bytes", self.reserved),
            ("in_use_bytes", self.in_use),
            ("padding_bytes", self.padding),
            ("free_bytes", self.free),
            ("leaving_bytes", self.leaving),
            ("stuck_bytes", self.stuck),
            ("reserved_peak_bytes", self.reserved_peak),
            ("in_use_peak_bytes", self.in_use_peak),
            ("largest_allocation_bytes", self.largest_allocation),
            ("largest_free_bound_bytes", self.largest_free_bound),
            ("metadata_bytes", self.metadata),
            ("device_allocations", self.device_allocations),
            ("device_deallocations", self.device_deallocations),
            ("slices", u64::from(self.slices)),
            ("free_ranges", u64::from(self.free_ranges)),
            ("pages", u64::from(self.pages)),
            ("pages_idle", u64::from(self.pages_idle)),
            ("pages_stuck", u64::from(self.pages_stuck)),
            ("pages_peak", u64::from(self.pages_peak)),
            ("growths_in_flight", u64::from(self.growths_in_flight)),
        ];
        let mut separator = "";
        for (name, value) in members {
            write!(out, "{separator}\"{name}\":{value}")?;
            separator = ",";
        }
        Ok(())
    }
}

/// A pool's configuration as it is in effect, and its figures, all of one instant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PoolReport {
    /// The configuration after rounding, clamping and defaults: giving it to a new allocator makes the same pool.
    pub options: PoolOptions,
    /// Every page is asked for at a multiple of this many bytes.
    pub page_alignment: u64,
    /// The figures.
    pub statistics: Statistics,
}

/// Writes a pool's report as a JSON object.
pub(crate) fn write_pool(out: &mut dyn Write, report: &PoolReport) -> fmt::Result {
    let options = &report.options;
    match options.pool_type {
        PoolType::SlicedPages { page_size, max_slice_size, max_pool_size } => {
            write!(out, "{{\"type\":\"sliced_pages\",\"page_size\":{page_size},\"max_slice_size\":{max_slice_size}")?;
            write_optional(out, "max_pool_size", max_pool_size)?;
            write_optional(out, "max_page_size", options.max_page_size)?;
        }
        PoolType::ExclusivePages { max_alloc_size } => {
            write!(out, "{{\"type\":\"exclusive_pages\",\"max_alloc_size\":{max_alloc_size}")?;
        }
        PoolType::Direct { reclaim_at } => {
            out.write_str("{\"type\":\"direct\"")?;
            write_optional(out, "reclaim_at", reclaim_at)?;
        }
    }
    write_optional(out, "dealloc_period", options.dealloc_period)?;
    write!(
        out,
        ",\"keep_bytes\":{},\"granule\":{},\"page_alignment\":{},",
        options.keep_bytes, options.granule, report.page_alignment
    )?;
    report.statistics.write_members(out)?;
    out.write_char('}')
}

fn write_optional(out: &mut dyn Write, name: &str, value: Option<u64>) -> fmt::Result {
    match value {
        Some(value) => write!(out, ",\"{name}\":{value}"),
        None => write!(out, ",\"{name}\":null"),
    }
}

/// Opens the report with the allocator's own figures, up to the list of pools.
pub(crate) fn write_head(out: &mut dyn Write, figures: &Statistics) -> fmt::Result {
    out.write_str("{\"slicepool\":\"")?;
    out.write_str(env!("CARGO_PKG_VERSION"))?;
    out.write_str("\",\"allocator\":{")?;
    figures.write_members(out)?;
    out.write_str("},\"pools\":[")
}

/// Ends the report.
pub(crate) fn write_tail(out: &mut dyn Write) -> fmt::Result {
    out.write_str("]}")
}
