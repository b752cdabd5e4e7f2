//! Allocators to try.

use crate::device::{Naming, VirtualDevice};
use crate::rules::Rules;
use slicepool_core::{AllocatorOptions, MemoryType, NearPage, PoolOptions};

/// The kind of a pool and what belongs to it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KindShape {
    Sliced { page_size: u64, max_slice_size: u64, cap: Option<u64>, near_page: NearPage, max_page_size: Option<u64> },
    Exclusive { max_alloc_size: u64 },
    Direct { reclaim_at: Option<u64> },
}

/// A pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolShape {
    pub(crate) kind: KindShape,
    pub(crate) granule: u64,
    pub(crate) dealloc_period: Option<u64>,
    pub(crate) keep_bytes: u64,
}

const fn of_kind(kind: KindShape, granule: u64) -> PoolShape {
    PoolShape { kind, granule, dealloc_period: None, keep_bytes: 0 }
}

/// Equal pages.
pub(crate) const fn pool(page_size: u64, max_slice_size: u64, cap: Option<u64>, granule: u64) -> PoolShape {
    near(NearPage::WhenUncapped, page_size, max_slice_size, cap, granule)
}

pub(crate) const fn near(
    near_page: NearPage,
    page_size: u64,
    max_slice_size: u64,
    cap: Option<u64>,
    granule: u64,
) -> PoolShape {
    of_kind(KindShape::Sliced { page_size, max_slice_size, cap, near_page, max_page_size: None }, granule)
}

/// Pages that grow.
pub(crate) const fn growing(page_size: u64, max_page_size: u64, cap: Option<u64>, granule: u64) -> PoolShape {
    let (max_slice_size, near_page) = (u64::MAX, NearPage::WhenUncapped);
    let max_page_size = Some(max_page_size);
    of_kind(KindShape::Sliced { page_size, max_slice_size, cap, near_page, max_page_size }, granule)
}

pub(crate) const fn exclusive(max_alloc_size: u64, granule: u64) -> PoolShape {
    of_kind(KindShape::Exclusive { max_alloc_size }, granule)
}

pub(crate) const fn direct(reclaim_at: Option<u64>, granule: u64) -> PoolShape {
    of_kind(KindShape::Direct { reclaim_at }, granule)
}

impl PoolShape {
    /// The same with pages that age.
    pub(crate) const fn ages(mut self, period: u64, keep_bytes: u64) -> Self {
        self.dealloc_period = Some(period);
        self.keep_bytes = keep_bytes;
        self
    }

    fn options(&self) -> PoolOptions {
        let options = match self.kind {
            KindShape::Sliced { page_size, max_slice_size, cap, near_page, max_page_size } => {
                let mut options = PoolOptions::sliced_pages(page_size, max_slice_size, cap).with_near_page(near_page);
                options.max_page_size = max_page_size;
                options
            }
            KindShape::Exclusive { max_alloc_size } => PoolOptions::exclusive_pages(max_alloc_size),
            KindShape::Direct { reclaim_at } => PoolOptions::direct(reclaim_at),
        };
        options.with_granule(self.granule).with_dealloc_period(self.dealloc_period).with_keep_bytes(self.keep_bytes)
    }
}

/// An allocator and its device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) pools: &'static [PoolShape],
    pub(crate) page_alignment: u64,
    pub(crate) max_page: u64,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) max_pages: Option<u32>,
    /// Bytes and pages of a budget that it shares.
    pub(crate) shared: Option<(u64, u32)>,
    naming: Naming,
    device_bytes: u64,
    /// Whether the device says how far its timelines are.
    tells: bool,
    /// Whether it fills memory.
    pub(crate) can_fill: bool,
}

pub(crate) const fn shape(pools: &'static [PoolShape], page_alignment: u64, naming: Naming) -> Shape {
    Shape {
        pools,
        page_alignment,
        max_page: u64::MAX,
        max_bytes: None,
        max_pages: None,
        shared: None,
        naming,
        device_bytes: 1 << 50,
        tells: false,
        can_fill: false,
    }
}

impl Shape {
    /// The same on a device with so many bytes: soon full.
    pub(crate) const fn of(mut self, device_bytes: u64) -> Self {
        self.device_bytes = device_bytes;
        self
    }

    /// The same on a device with pages of so many bytes at most.
    pub(crate) const fn up_to(mut self, max_page: u64) -> Self {
        self.max_page = max_page;
        self
    }

    /// The same for an allocator that may hold so many bytes and pages.
    pub(crate) const fn at_most(mut self, max_bytes: Option<u64>, max_pages: Option<u32>) -> Self {
        (self.max_bytes, self.max_pages) = (max_bytes, max_pages);
        self
    }

    /// The same on a device that can do more.
    pub(crate) fn besides(mut self, tells: bool, can_fill: bool) -> Self {
        self.tells |= tells;
        self.can_fill |= can_fill;
        self
    }

    /// The same with a budget of so many bytes and pages that it shares with another.
    pub(crate) const fn shares(mut self, bytes: u64, pages: u32) -> Self {
        self.shared = Some((bytes, pages));
        self
    }

    /// The same on a device that says how far its timelines are.
    pub(crate) const fn tells(mut self) -> Self {
        self.tells = true;
        self
    }

    /// The same on a device that fills memory.
    pub(crate) const fn fills(mut self) -> Self {
        self.can_fill = true;
        self
    }

    pub(crate) fn options(&self) -> (Vec<PoolOptions>, AllocatorOptions) {
        let memory_type = MemoryType::new(self.max_page, self.page_alignment);
        let pools = self.pools.iter().map(PoolShape::options);
        let options = AllocatorOptions::default().with_memory_type(memory_type);
        let options = options.with_max_bytes(self.max_bytes).with_max_pages(self.max_pages);
        let options = options.with_dedicated_period(self.dedicated().dealloc_period);
        (pools.collect(), options.with_persistent_granule(self.persistent().granule))
    }

    /// The pool of dedicated slices.
    fn dedicated(&self) -> PoolShape {
        PoolShape { dealloc_period: Some(25), ..direct(None, PoolOptions::DEFAULT_GRANULE) }
    }

    /// The pool of persistent slices.
    fn persistent(&self) -> PoolShape {
        direct(None, self.pools[0].granule)
    }

    /// The rules of the pools, of that of dedicated slices, and of that of persistent ones.
    pub(crate) fn rules(&self) -> Vec<Rules> {
        self.pools.iter().chain([&self.dedicated(), &self.persistent()]).map(|pool| Rules::new(pool, self)).collect()
    }

    /// The pools in another order: from the one of that place on, round and round.
    pub(crate) fn rotated(&self, first: usize) -> (Vec<PoolOptions>, Vec<Rules>) {
        let places = (0..self.pools.len()).map(|i| (i + first) % self.pools.len());
        let pools: Vec<_> = places.map(|place| &self.pools[place]).collect();
        let rules = pools.iter().map(|pool| Rules::new(pool, self));
        (pools.iter().map(|pool| pool.options()).collect(), rules.collect())
    }

    pub(crate) fn device(&self) -> VirtualDevice {
        let alignments = self.rules().iter().map(|rules| rules.page_alignment).collect();
        VirtualDevice::new(self.naming, self.device_bytes, alignments, self.tells, self.can_fill)
    }
}

/// Pools of equal pages that are cut. From the simplest on, which is what a failing case shrinks to.
pub(crate) const SLICED: &[Shape] = &[
    shape(&[pool(1024, 1024, None, 32)], 256, Naming::Handle),
    shape(&[pool(256, 256, Some(1024), 32)], 32, Naming::Address),
    shape(&[pool(1 << 20, 1 << 20, Some((3 << 20) + 5), 256)], 4096, Naming::Mapping),
    shape(&[pool(32_000, 32, None, 32)], 4096, Naming::Address),
    shape(&[pool(32_000, 8_000, Some(128_000), 32)], 64, Naming::Handle),
    shape(&[near(NearPage::Always, 32_000, 3_000, Some(96_000), 32)], 64, Naming::Handle),
    shape(&[near(NearPage::Never, 10_000, 5_000, None, 1)], 1, Naming::Address),
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
    shape(&[pool(u64::MAX << 32, u64::MAX, Some(u64::MAX), 1 << 32)], 1, Naming::Handle).of(u64::MAX),
    shape(&[pool(4096, 4096, None, 64)], 256, Naming::Address).of(10_000),
    // Several pools over one device.
    shape(&[pool(1024, 64, Some(4096), 32), pool(1 << 16, 1 << 16, None, 256)], 4096, Naming::Address),
    shape(
        &[pool(2048, 2048, Some(4096), 1), pool(8192, 6000, Some(20_000), 64), pool(16_384, 16_384, None, 8192)],
        512,
        Naming::Mapping,
    )
    .of(50_000),
    // Pages that age.
    shape(&[pool(1024, 1024, None, 32).ages(5, 0)], 256, Naming::Handle),
    shape(&[pool(2048, 2048, Some(30_000), 64).ages(20, 8192)], 64, Naming::Address),
    shape(
        &[pool(512, 300, None, 1).ages(40, 0), pool(4096, 4096, None, 64), pool(65_536, 65_536, None, 256).ages(3, 1)],
        256,
        Naming::Mapping,
    )
    .of(300_000),
];

/// Pools of all other kinds, and lists of them.
pub(crate) const KINDS: &[Shape] = &[
    // Exclusive pages.
    shape(&[exclusive(100_000, 32)], 256, Naming::Handle),
    shape(&[exclusive(0, 256)], 4096, Naming::Address),
    shape(&[exclusive(12_345, 1)], 64, Naming::Address),
    shape(&[exclusive(1 << 20, 256).ages(25, 0)], 4096, Naming::Mapping),
    shape(&[exclusive(3_333_333, 256).ages(7, 1 << 20)], 2048, Naming::Handle),
    shape(&[exclusive(5_000, 64)], 512, Naming::Address).of(20_000),
    shape(&[exclusive(70_000, 8).ages(100, 3_000)], 8, Naming::Address).of(90_000),
    shape(&[exclusive(u64::MAX, 1 << 16)], 1 << 20, Naming::Handle),
    shape(&[exclusive(1 << 40, 32)], 1 << 12, Naming::Handle).up_to(1_000_000),
    // Direct ones.
    shape(&[direct(None, 32)], 256, Naming::Handle),
    shape(&[direct(Some(5_000), 64)], 1024, Naming::Address),
    shape(&[direct(Some(0), 256)], 2048, Naming::Mapping),
    shape(&[direct(None, 1).ages(5, 0)], 64, Naming::Handle),
    shape(&[direct(Some(20_000), 32).ages(50, 4096)], 256, Naming::Address).of(40_000),
    shape(&[direct(None, 16)], 16, Naming::Address).up_to(10_007),
    // Pages that grow.
    shape(&[growing(8192, 1 << 16, None, 32)], 256, Naming::Handle).of(1_500_000),
    shape(&[growing(1000, 100_000, None, 1)], 64, Naming::Address).of(30_000),
    shape(&[growing(1024, 1 << 20, Some(20_001), 8)], 256, Naming::Address),
    shape(&[growing(1 << 20, 1 << 24, None, 4096).ages(25, 0)], 4096, Naming::Mapping),
    shape(&[growing(1024, 1 << 20, None, 32)], 256, Naming::Handle).up_to(50_000).of(400_000),
    shape(&[growing(2048, 1024, None, 64).ages(10, 4096)], 4096, Naming::Address),
    shape(&[growing(128, 1 << 40, None, 8).ages(200, 0)], 32, Naming::Handle),
    // A cap below the smallest page, and one below a granule.
    shape(&[growing(1 << 16, 1 << 20, Some(10_000), 64)], 512, Naming::Address),
    shape(&[growing(1 << 16, 1 << 20, Some(100), 256)], 256, Naming::Handle),
    // Pages that no machine has.
    shape(&[exclusive(u64::MAX, 1 << 32), direct(Some(1 << 63), 1 << 32)], 1, Naming::Handle).of(u64::MAX),
    // Lists.
    shape(
        &[exclusive(0, 32), pool(1024, 1024, Some(4096), 32), growing(2048, 1 << 16, None, 64), direct(None, 256)],
        256,
        Naming::Address,
    ),
    shape(
        &[exclusive(500, 32).ages(15, 0), pool(4096, 2048, None, 32).ages(25, 8192), direct(Some(10_000), 32)],
        64,
        Naming::Mapping,
    ),
    shape(&[direct(Some(3_000), 64), direct(None, 32)], 64, Naming::Address).of(9_000),
    shape(
        &[exclusive(0, 1), exclusive(2_000, 8).ages(10, 5_000), exclusive(50_000, 256).ages(30, 0)],
        256,
        Naming::Address,
    )
    .of(200_000),
    shape(
        &[growing(512, 8192, Some(40_000), 32).ages(15, 0), exclusive(1 << 16, 64).ages(5, 10_000), direct(None, 64)],
        128,
        Naming::Address,
    )
    .of(100_000),
    shape(
        &[
            near(NearPage::Always, 4096, 700, Some(8192), 64),
            direct(None, 64).ages(35, 0),
            growing(4096, 1 << 15, None, 64),
        ],
        256,
        Naming::Handle,
    )
    .of(60_000),
    shape(
        &[direct(Some(50_000), 32).ages(5, 0), exclusive(3_000, 32).ages(5, 0), pool(1024, 1024, None, 32).ages(5, 0)],
        32,
        Naming::Handle,
    ),
];
