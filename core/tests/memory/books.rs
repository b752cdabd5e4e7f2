//! The figures of several memory types and heaps, after anything that can happen to them.

use crate::common::memory::{Heaps, Over, assert_whole, over};
use crate::common::random::Random;
use crate::common::{K, M};
use slicepool_core::layout::PoolList;
use slicepool_core::{
    AllocationSizes, AllocatorOptions, DeviceLayout, Error, Heap, MemoryChoice, MemoryType, Point, Request,
    ResourceKind, Slice, layout,
};

const PLAIN: MemoryType = MemoryType::new(u64::MAX, 64 * K);

/// Some part the kinds of resources, some do not; types 1 and 2 share a heap.
const TYPES: [MemoryType; 4] = [
    PLAIN.with_properties(1).with_granularity(1024),
    PLAIN.in_heap(1).with_properties(2).with_host_visible(true).with_non_coherent_atom(64),
    PLAIN.in_heap(1).with_properties(6).with_host_visible(true).with_granularity(4096),
    PLAIN.in_heap(2).with_properties(3).with_host_visible(true),
];

/// The first is smaller than the device says, the second has a limit.
const HEAPS: [Heap; 3] = [Heap::new(256 * M), Heap::new(256 * M).with_limit(Some(48 * M)), Heap::new(64 * M)];

fn sized(mut request: Request, size: u64) -> Request {
    request.size = size;
    request
}

struct Run<'a> {
    device: &'a Heaps,
    allocator: &'a Over<'a>,
    random: Random,
    live: Vec<Slice>,
    now: u64,
    served: u64,
    refused: u64,
}

impl Run<'_> {
    fn request(&mut self) -> Request {
        let random = &mut self.random;
        let mut request = Request::new(random.scaled(3 * M)).aligned(1 << random.below(17));
        if random.below(4) != 0 {
            let memory = MemoryChoice::of_types(random.below(16) as u32).preferring(random.below(8) as u32);
            request = request.from_memory(memory);
        }
        if random.below(3) == 0 {
            request = request.of_kind(ResourceKind::Optimal);
        }
        if random.below(10) == 0 {
            request = request.never_growing();
        }
        if random.below(10) == 0 {
            request = request.within_budget();
        }
        if random.below(10) == 0 {
            request = request.with_search_depth(random.below(5) as u32);
        }
        match random.below(30) {
            // A few sizes, so that pages serve again.
            0 | 1 => sized(request, (1 + random.below(4)) * 100_000).dedicated(),
            2 => sized(request, (1 + random.below(4)) * 100_000).persistent(),
            3 => request.with_device_data(std::ptr::without_provenance_mut(1)),
            4 => sized(request, random.within(8 * M, 24 * M)),
            5 => request.in_pool(random.below(self.allocator.pool_count() as u64 + 1) as u32),
            _ => request,
        }
    }

    fn allocate(&mut self) {
        let request = self.request();
        let calls = self.device.ledger.calls();
        let fits = if request.never_grows() { self.allocator.would_fit(&request) } else { Ok(true) };
        let result = self.allocator.allocate(&request);
        assert!(!request.never_grows() || fits.unwrap_or(false) == result.is_ok(), "{request:?}: {fits:?}, {result:?}");
        match result {
            Ok(slice) => {
                let memory_type = self.device.type_of(slice.memory);
                let memory = request.memory();
                assert_ne!(memory.types >> memory_type & 1, 0, "{request:?}");
                assert_eq!((slice.offset % request.alignment, slice.address % request.alignment), (0, 0));
                assert!(slice.size >= request.size);
                self.live.push(slice);
                self.served += 1;
            }
            Err(error) => {
                assert!(!matches!(error, Error::StaleHandle | Error::OutOfHostMemory { .. } | Error::Busy { .. }));
                self.refused += 1;
            }
        }
        assert!(!request.never_grows() || self.device.ledger.calls() == calls, "{request:?}");
    }

    fn free(&mut self) {
        let slice = self.random.take(&mut self.live);
        if self.random.below(4) != 0 {
            return self.allocator.free(slice.id).unwrap();
        }
        self.now += 1;
        let points = [Point::new(self.random.below(2) as u32, self.now), Point::new(2, self.random.below(self.now))];
        self.allocator.free_after(slice.id, &points[..self.random.below(3) as usize]).unwrap();
    }

    fn step(&mut self) {
        match self.random.below(200) {
            0 => self.allocator.trim(self.random.below(64 * M)).unwrap(),
            1 => {
                for timeline in 0..3 {
                    let completed = self.random.within(self.now.saturating_sub(50), self.now);
                    self.allocator.collect(timeline, completed).unwrap();
                }
            }
            // Up to a number that comes and goes.
            2..110 if self.live.len() < 20 + (self.served / 3000 % 2 * 130) as usize => self.allocate(),
            _ if !self.live.is_empty() => self.free(),
            _ => self.allocate(),
        }
    }
}

fn run(make: impl FnOnce(&DeviceLayout<'_>) -> PoolList, operations: u32) {
    let device = Heaps::new(&TYPES);
    device.limit(0, 40 * M);
    device.say_budget(2, 8 * M, 24 * M);
    let options = AllocatorOptions::default().with_dedicated_when_too_large().with_max_pages(Some(100));
    let allocator = over(&device, &TYPES, &HEAPS, make, options);
    let random = Random::with_seed_or(0x7E57);
    let (live, now, served, refused) = (Vec::new(), 0, 0, 0);
    let mut run = Run { device: &device, allocator: &allocator, random, live, now, served, refused };
    for i in 0..operations {
        run.step();
        if i % 100 == 0 {
            assert_whole(&allocator, &device);
            // Neither grows without bound.
            device.events();
            device.asked();
        }
    }
    assert!(run.served > u64::from(operations) / 4 && run.refused > 100, "{} and {}", run.served, run.refused);
    run.live.iter().for_each(|slice| allocator.free(slice.id).unwrap());
    (0..3).for_each(|timeline| allocator.collect(timeline, u64::MAX).unwrap());
    assert_whole(&allocator, &device);
    let figures = allocator.statistics();
    assert_eq!((figures.slices, figures.slices_pending, figures.in_use, figures.padding), (0, 0, 0, 0));
    assert_eq!(figures.free, figures.reserved);
    allocator.cleanup().unwrap();
    assert_whole(&allocator, &device);
    assert_eq!((device.ledger.pages(), allocator.statistics().reserved), (0, 0));
}

#[test]
fn figures_of_types_heaps_and_pools_agree_with_a_walk_and_with_the_device_where_blocks_double() {
    let sizes =
        AllocationSizes::new(4 * M, 4 * M).with_max_device_memblock_size(32 * M).with_max_host_memblock_size(8 * M);
    run(|memory| layout::blocks(&sizes, memory).unwrap(), 60_000);
}

#[test]
fn figures_of_types_heaps_and_pools_agree_with_a_walk_and_with_the_device_where_pages_adapt() {
    run(|memory| layout::adaptive_types(memory).unwrap(), 40_000);
}
