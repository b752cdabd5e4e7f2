//! Paths of slices. A walk of a churn frees a random slice of those that are live and allocates another; sizes and victims
//! are made before, so many of them however long the walk is.

use crate::NamedPath;
use slicepool_core::layout::{self, Properties};
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceLayout, DeviceMemory, Heap, MemoryChoice, MemoryType,
    PageRequest, Point, PoolOptions, Request, SliceId, Space, SpaceOptions,
};
use std::cell::Cell;
use std::hint::black_box;

/// All of them.
pub const PATHS: [NamedPath; 9] = [
    ("churn_1000", "a slice freed and one allocated, 1,000 live on one page", churn_1000),
    ("churn_10000", "the same with 10,000 live", churn_10000),
    ("churn_64_pages", "the same on 64 pages, 10,000 live", churn_64_pages),
    ("churn_aligned", "the same with 1,000 live, a quarter of them aligned to 4 KiB", churn_aligned),
    ("churn_adaptive", "the same with the adaptive pools", churn_adaptive),
    ("churn_types", "the same by properties of the second of three memory types", churn_types),
    ("churn_space", "the same in a space", churn_space),
    ("direct_10000", "one of 10,000 sizes allocated and freed, each with a page that is free", direct_10000),
    ("free_after", "a slice allocated and freed behind a point, which has passed 16 walks later", free_after),
];

/// Victims and sizes that there are, for all walks in turn.
pub const MADE: usize = 1 << 14;

/// Room for the churn with 10,000 live.
pub const PAGE: u64 = 16 << 30;

#[derive(Default)]
struct NoDevice(Cell<u64>);

impl Device for NoDevice {
    fn allocate(&self, _: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.0.set(self.0.get() + 1);
        Ok(DeviceMemory::new(self.0.get()))
    }

    fn deallocate(&self, _: &DeviceMemory) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Random numbers, always the same.
pub struct Random(u64);

impl Random {
    /// From the start.
    pub const fn new() -> Self {
        Self(42)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 16
    }

    /// A number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    /// 256 B to 1 MiB, about as many of each magnitude.
    pub fn size(&mut self) -> u64 {
        let shift = self.next() % 12;
        (256 + self.next() % 256) << shift
    }
}

/// Walks a churn: `allocate` gets a size and a number that counts, `free` what that has answered.
fn churn<H>(live: usize, walks: u64, mut allocate: impl FnMut(u64, u64) -> H, mut free: impl FnMut(H)) {
    let mut random = Random::new();
    let mut slices: Vec<Option<H>> = (0..live).map(|i| Some(allocate(random.size(), i as u64))).collect();
    let made: Vec<_> = (0..MADE).map(|_| (random.below(live), random.size())).collect();
    for walk in 0..walks {
        let (victim, size) = made[walk as usize % MADE];
        free(slices[victim].take().expect("it was allocated"));
        slices[victim] = Some(allocate(black_box(size), walk));
    }
}

fn churn_in(allocator: &Allocator<NoDevice>, live: usize, walks: u64, request: fn(u64, u64) -> Request) {
    let allocate = |size, number| allocator.allocate(&request(size, number)).expect("there is room").id;
    churn(live, walks, allocate, |id: SliceId| allocator.free(black_box(id)).expect("live"));
}

fn of(pools: &[PoolOptions]) -> Allocator<NoDevice> {
    Allocator::try_new(NoDevice::default(), pools, AllocatorOptions::default()).expect("valid options")
}

fn one_page(live: usize, walks: u64) {
    let pools = [PoolOptions::sliced_pages(PAGE, PAGE, Some(PAGE))];
    churn_in(&of(&pools), live, walks, |size, _| Request::new(size));
}

fn churn_1000(walks: u64) {
    one_page(1_000, walks);
}

fn churn_10000(walks: u64) {
    one_page(10_000, walks);
}

fn churn_64_pages(walks: u64) {
    let allocator = of(&[PoolOptions::sliced_pages(48 << 20, 48 << 20, None)]);
    churn_in(&allocator, 10_000, walks, |size, _| Request::new(size));
}

fn churn_aligned(walks: u64) {
    let allocator = of(&[PoolOptions::sliced_pages(PAGE, PAGE, Some(PAGE))]);
    let request = |size, number| Request::new(size).aligned(if number % 4 == 0 { 4096 } else { 1 });
    churn_in(&allocator, 1_000, walks, request);
}

fn churn_adaptive(walks: u64) {
    let pools = layout::adaptive(&Properties::new(u64::MAX)).expect("valid properties");
    churn_in(&of(&pools), 1_000, walks, |size, _| Request::new(size));
}

fn churn_types(walks: u64) {
    const SEEN: u32 = 2;
    let types = [0, SEEN, SEEN | 8].map(|properties| MemoryType::new(PAGE, 4096).with_properties(properties));
    let heaps = [Heap::new(u64::MAX)];
    let pools = [0, 1, 2].map(|index| PoolOptions::sliced_pages(PAGE, PAGE, None).in_memory_type(index));
    let memory = DeviceLayout::new(&types, &heaps);
    let options = AllocatorOptions::default();
    let allocator = Allocator::with_memory_types(NoDevice::default(), &memory, &pools, options).expect("valid options");
    let request = |size, _| Request::new(size).from_memory(MemoryChoice::ANY.requiring(SEEN));
    churn_in(&allocator, 1_000, walks, request);
}

fn churn_space(walks: u64) {
    let space = Space::try_new(SpaceOptions::new(PAGE).with_granule(256)).expect("valid options");
    let space = std::cell::RefCell::new(space);
    let allocate = |size, _| space.borrow_mut().allocate(size, 1).expect("there is room").id;
    churn(1_000, walks, allocate, |id| space.borrow_mut().free(black_box(id)).expect("live"));
}

fn direct_10000(walks: u64) {
    let allocator = of(&[PoolOptions::direct(None)]);
    let take = |size| allocator.allocate(&Request::new(size)).expect("there is no limit").id;
    let live: Vec<_> = (1..=10_000).map(|size| take(size * 256)).collect();
    live.into_iter().for_each(|id| allocator.free(id).expect("live"));
    let mut size = 0;
    for _ in 0..walks {
        // Coprime to the number of sizes, and not a step to the neighbour.
        size = (size + 7919) % 10_000;
        allocator.free(black_box(take(black_box((size + 1) * 256)))).expect("live");
    }
}

fn free_after(walks: u64) {
    let allocator = of(&[PoolOptions::sliced_pages(PAGE, PAGE, Some(PAGE))]);
    for walk in 0..walks {
        let slice = allocator.allocate(&Request::new(black_box(4096))).expect("there is room");
        allocator.free_after(slice.id, &[Point::new(1, walk + 1)]).expect("live");
        if walk % 16 == 15 {
            allocator.collect(1, black_box(walk - 15)).expect("the timeline is known");
        }
    }
}
