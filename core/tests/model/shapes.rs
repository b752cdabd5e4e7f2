//! Allocators to try, and the rules of their pools as the specification has them.

use crate::device::{Naming, VirtualDevice};
use crate::ops::Scale;
use slicepool_core::{AllocatorOptions, Error, MemoryType, NearPage, PoolOptions, Request};

/// A pool of sliced pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolShape {
    page_size: u64,
    max_slice_size: u64,
    cap: Option<u64>,
    granule: u64,
    near_page: NearPage,
}

const fn pool(page_size: u64, max_slice_size: u64, cap: Option<u64>, granule: u64) -> PoolShape {
    PoolShape { page_size, max_slice_size, cap, granule, near_page: NearPage::WhenUncapped }
}

const fn near(near_page: NearPage, pool: PoolShape) -> PoolShape {
    PoolShape { near_page, ..pool }
}

/// An allocator and its device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) pools: &'static [PoolShape],
    page_alignment: u64,
    naming: Naming,
    device_bytes: u64,
}

const fn shape(pools: &'static [PoolShape], page_alignment: u64, naming: Naming) -> Shape {
    Shape { pools, page_alignment, naming, device_bytes: 1 << 50 }
}

/// From the simplest on, which is what a failing case shrinks to.
pub(crate) const SHAPES: &[Shape] = &[
    shape(&[pool(1024, 1024, None, 32)], 256, Naming::Handle),
    shape(&[pool(256, 256, Some(1024), 32)], 32, Naming::Address),
    shape(&[pool(1 << 20, 1 << 20, Some((3 << 20) + 5), 256)], 4096, Naming::Mapping),
    shape(&[pool(32_000, 32, None, 32)], 4096, Naming::Address),
    shape(&[pool(32_000, 8_000, Some(128_000), 32)], 64, Naming::Handle),
    shape(&[near(NearPage::Always, pool(32_000, 3_000, Some(96_000), 32))], 64, Naming::Handle),
    shape(&[near(NearPage::Never, pool(10_000, 5_000, None, 1))], 1, Naming::Address),
    shape(&[pool(100, 100, Some(700), 1)], 64, Naming::Address),
    shape(&[pool(1000, 700, None, 256)], 1 << 12, Naming::Mapping),
    // A page larger than the cap shrinks; a cap below a granule leaves none.
    shape(&[pool(1 << 20, 1 << 20, Some(1000), 32)], 32, Naming::Handle),
    shape(&[pool(1 << 20, 1 << 20, Some(100), 256)], 4096, Naming::Handle),
    shape(&[pool(1 << 22, 1 << 22, Some(1 << 24), 1 << 16)], 1 << 12, Naming::Mapping),
    // Pages that no machine has.
    shape(&[pool(1 << 40, 1 << 40, None, 1 << 16)], 1 << 30, Naming::Address),
    shape(&[pool(1 << 40, 1 << 39, Some(3 << 40), 512)], 1 << 40, Naming::Address),
    shape(&[pool((1 << 40) - 256, 1 << 40, None, 256)], 1 << 63, Naming::Handle),
    shape(&[pool((1 << 32) - 1, (1 << 32) - 1, Some(1 << 34), 1)], 1 << 33, Naming::Address),
    shape(&[pool(1 << 31, 1 << 31, None, 1)], 1 << 32, Naming::Handle),
    Shape {
        device_bytes: u64::MAX,
        ..shape(&[pool(u64::MAX << 32, u64::MAX, Some(u64::MAX), 1 << 32)], 1, Naming::Handle)
    },
    // A device that is soon full.
    Shape { device_bytes: 10_000, ..shape(&[pool(4096, 4096, None, 64)], 256, Naming::Address) },
    // Several pools over one device.
    shape(&[pool(1024, 64, Some(4096), 32), pool(1 << 16, 1 << 16, None, 256)], 4096, Naming::Address),
    Shape {
        device_bytes: 50_000,
        ..shape(
            &[pool(2048, 2048, Some(4096), 1), pool(8192, 6000, Some(20_000), 64), pool(16_384, 16_384, None, 8192)],
            512,
            Naming::Mapping,
        )
    },
];

impl Shape {
    pub(crate) fn options(&self) -> (Vec<PoolOptions>, AllocatorOptions) {
        let pools = self.pools.iter().map(|pool| {
            PoolOptions::sliced_pages(pool.page_size, pool.max_slice_size, pool.cap)
                .with_granule(pool.granule)
                .with_near_page(pool.near_page)
        });
        let memory_type = MemoryType::new(u64::MAX, self.page_alignment);
        (pools.collect(), AllocatorOptions::default().with_memory_type(memory_type))
    }

    pub(crate) fn rules(&self) -> Vec<Rules> {
        self.pools.iter().map(|pool| Rules::new(pool, self.page_alignment)).collect()
    }

    pub(crate) fn device(&self) -> VirtualDevice {
        let rules = self.rules();
        let page_sizes = rules.iter().map(|rules| rules.page).collect();
        let alignments = rules.iter().map(|rules| rules.page_alignment).collect();
        VirtualDevice::new(self.naming, self.device_bytes, page_sizes, alignments)
    }
}

/// What a pool does with requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) granule: u64,
    pub(crate) page: u64,
    pub(crate) max_pages: Option<u64>,
    max_slice: u64,
    takes_near_page: bool,
    page_alignment: u64,
}

impl Rules {
    fn new(pool: &PoolShape, page_alignment: u64) -> Self {
        let mut page = pool.page_size.next_multiple_of(pool.granule);
        let mut max_slice = pool.max_slice_size.min(pool.page_size);
        if pool.cap.is_some_and(|cap| cap < page) {
            page = pool.cap.unwrap_or(0) / pool.granule * pool.granule;
            if page != 0 {
                max_slice = max_slice.min(page);
            }
        }
        let takes_near_page = match pool.near_page {
            NearPage::WhenUncapped => pool.cap.is_none(),
            NearPage::Always => true,
            NearPage::Never => false,
        };
        Self {
            granule: pool.granule,
            page,
            max_pages: pool.cap.map(|cap| cap.checked_div(page).unwrap_or(0)),
            max_slice,
            takes_near_page,
            page_alignment: page_alignment.max(pool.granule),
        }
    }

    /// The error for a request that the pool never takes.
    pub(crate) fn refusal(&self, request: &Request) -> Option<Error> {
        let Request { size, alignment, .. } = *request;
        let nearly_a_page = size <= self.page && u128::from(self.page - size) * 5 < u128::from(self.page);
        if size > self.max_slice && !(self.takes_near_page && nearly_a_page) {
            // The largest request below this one that it takes.
            let limit = if self.takes_near_page && size > self.page { self.page } else { self.max_slice };
            return Some(Error::TooLarge { size, limit });
        }
        (alignment > self.page_alignment).then_some(Error::InvalidArgument { field: c"alignment", value: alignment })
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.max_pages.map_or(u64::MAX, |pages| pages * self.page)
    }

    pub(crate) fn scale(&self) -> Scale {
        Scale {
            granule: self.granule,
            page: self.page,
            largest_slice: self.max_slice,
            page_alignment: self.page_alignment,
        }
    }
}

/// The error for a request that no pool whatever takes.
pub(crate) fn malformed(request: &Request) -> Option<Error> {
    let Request { size, alignment, .. } = *request;
    if !alignment.is_power_of_two() {
        return Some(Error::InvalidArgument { field: c"alignment", value: alignment });
    }
    (size == 0).then_some(Error::InvalidArgument { field: c"size", value: 0 })
}

/// Of the errors of several pools the one that is reported.
pub(crate) fn reported(errors: &[Error]) -> Error {
    let rank = |error: &Error| match error {
        Error::OutOfHostMemory { .. } | Error::TooManySlices { .. } => 0,
        Error::OutOfDeviceMemory { .. } | Error::DeviceFailed { .. } => 1,
        Error::PoolCapacityExceeded { .. } => 2,
        Error::TooLarge { .. } => 3,
        _ => 4,
    };
    let limit = |error: &Error| if let Error::TooLarge { limit, .. } = *error { u64::MAX - limit } else { 0 };
    *errors.iter().min_by_key(|error| (rank(error), limit(error))).expect("there is a pool")
}
