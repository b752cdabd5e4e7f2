//! Figures about what is held and what it is used for, and their JSON form.
#![forbid(unsafe_code)]

use crate::pool::Rules;
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
    /// Added to that by rounding to the granule.
    pub padding: u64,
    /// In free ranges.
    pub free: u64,
    /// In pages that are on their way back to the device.
    pub leaving: u64,
    /// In pages that the device has refused to take back.
    pub stuck: u64,
    /// The most `reserved` has been. Of an allocator: the sum over its pools.
    pub reserved_peak: u64,
    /// The most `in_use` has been. Of an allocator: the sum over its pools.
    pub in_use_peak: u64,
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
    /// The most `pages` has been. Of an allocator: the sum over its pools.
    pub pages_peak: u32,
    /// Pages being taken from the device.
    pub growths_in_flight: u32,
}

impl Statistics {
    /// Adds a pool's figures to an allocator's. No sum overflows, whatever a device claims to have.
    pub(crate) fn add(&mut self, pool: &Statistics) {
        self.reserved = self.reserved.saturating_add(pool.reserved);
        self.in_use = self.in_use.saturating_add(pool.in_use);
        self.padding = self.padding.saturating_add(pool.padding);
        self.free = self.free.saturating_add(pool.free);
        self.leaving = self.leaving.saturating_add(pool.leaving);
        self.stuck = self.stuck.saturating_add(pool.stuck);
        self.reserved_peak = self.reserved_peak.saturating_add(pool.reserved_peak);
        self.in_use_peak = self.in_use_peak.saturating_add(pool.in_use_peak);
        self.largest_free_bound = self.largest_free_bound.max(pool.largest_free_bound);
        self.metadata += pool.metadata;
        self.device_allocations += pool.device_allocations;
        self.device_deallocations += pool.device_deallocations;
        self.slices += pool.slices;
        self.free_ranges += pool.free_ranges;
        self.pages += pool.pages;
        self.pages_idle += pool.pages_idle;
        self.pages_stuck += pool.pages_stuck;
        self.pages_peak += pool.pages_peak;
        self.growths_in_flight += pool.growths_in_flight;
    }

    /// The figures as the members of a JSON object, without its braces.
    fn write_members(&self, out: &mut dyn Write) -> fmt::Result {
        let members: [(&str, u64); 19] = [
            ("reserved_bytes", self.reserved),
            ("in_use_bytes", self.in_use),
            ("padding_bytes", self.padding),
            ("free_bytes", self.free),
            ("leaving_bytes", self.leaving),
            ("stuck_bytes", self.stuck),
            ("reserved_peak_bytes", self.reserved_peak),
            ("in_use_peak_bytes", self.in_use_peak),
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

/// One line of a report: a pool's effective configuration and figures.
pub(crate) fn write_pool(out: &mut dyn Write, rules: &Rules, figures: &Statistics) -> fmt::Result {
    write!(
        out,
        "{{\"type\":\"sliced_pages\",\"page_size\":{},\"max_slice_size\":{},\"max_pool_size\":",
        rules.page_size(),
        rules.max_slice_size()
    )?;
    match rules.capacity() {
        Some(capacity) => write!(out, "{capacity}")?,
        None => out.write_str("null")?,
    }
    write!(out, ",\"granule\":{},\"page_alignment\":{},", rules.granule(), rules.page_alignment)?;
    figures.write_members(out)?;
    out.write_char('}')
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
