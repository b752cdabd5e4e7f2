//! What a program could keep its memory in.

use slicepool_bench::best_fit::BestFit;
use slicepool_bench::replay::{BufferClasses, Cost, GrowingSpace, Pools};
use slicepool_bench::segments::Segments;
use slicepool_bench::traces::Trace;
use slicepool_core::layout::{self, PoolList, Properties};
use slicepool_core::{Error, PoolOptions};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The device of the layouts that depend on one: the largest page is a quarter of 64 GiB, which runtimes for GPUs take.
const DEVICE: Properties = Properties::new(16 * GIB);

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    BestFit,
    Space,
    Adaptive,
    Fixed64,
    Fixed256,
    Segments,
    SubSlices,
    ExclusivePages,
    BufferClasses,
}

impl Layout {
    /// All, in the order of tables.
    pub const ALL: [Self; 9] = [
        Self::BestFit,
        Self::Space,
        Self::Adaptive,
        Self::Fixed64,
        Self::Fixed256,
        Self::Segments,
        Self::SubSlices,
        Self::ExclusivePages,
        Self::BufferClasses,
    ];

    /// Those of the plot.
    pub const PLOTTED: [Self; 6] =
        [Self::BestFit, Self::Space, Self::Adaptive, Self::Fixed64, Self::Fixed256, Self::Segments];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::BestFit => "best fit",
            Self::Space => "growing Space",
            Self::Adaptive => "adaptive",
            Self::Fixed64 => "fixed 64 MiB",
            Self::Fixed256 => "fixed 256 MiB",
            Self::Segments => "PyTorch-like",
            Self::SubSlices => "sub-slices",
            Self::ExclusivePages => "exclusive pages",
            Self::BufferClasses => "buffer classes",
        }
    }

    /// What a trace costs over it.
    pub fn cost(self, trace: &Trace) -> Cost {
        self.cost_with_delay(trace, Duration::ZERO)
    }

    /// The same where each device call takes a while; what has no device of its own knows none.
    pub fn cost_with_delay(self, trace: &Trace, delay: Duration) -> Cost {
        match self {
            Self::BestFit => Cost::of(trace, BestFit::default()),
            Self::Space => Cost::of(trace, GrowingSpace::default()),
            Self::Segments => Cost::of(trace, Segments::default()),
            Self::BufferClasses => Cost::of(trace, BufferClasses::with_delay(delay)),
            Self::Fixed64 => Cost::of(trace, Pools::with_delay(&fixed(64 * MIB), delay)),
            Self::Fixed256 => Cost::of(trace, Pools::with_delay(&fixed(256 * MIB), delay)),
            Self::Adaptive => over(trace, layout::adaptive, delay),
            Self::SubSlices => over(trace, layout::sub_slices, delay),
            Self::ExclusivePages => over(trace, layout::exclusive_pages, delay),
        }
    }

    /// Whether it takes memory from a device that can be made to sleep.
    pub fn has_device(self) -> bool {
        !matches!(self, Self::BestFit | Self::Space | Self::Segments)
    }
}

/// Equal pages, and a page of its own for what is larger.
fn fixed(page: u64) -> [PoolOptions; 2] {
    [PoolOptions::sliced_pages(page, page, None), PoolOptions::direct(None)]
}

fn over(trace: &Trace, preset: fn(&Properties) -> Result<PoolList, Error>, delay: Duration) -> Cost {
    Cost::of(trace, Pools::with_delay(&preset(&DEVICE).expect("valid properties"), delay))
}
