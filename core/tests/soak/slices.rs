//! Threads with one allocator.

use crate::common::books::assert_balanced;
use crate::common::host::HostLedger;
use crate::common::lock::yielding;
use crate::common::pools::{direct, exclusive, growing, options, sliced};
use crate::common::random::Random;
use crate::common::{K, M};
use crate::device::{RecyclingDevice, TIMELINES};
use crate::flat::Figure;
use crate::stamp::{assert_stamped, stamp};
use slicepool_core::{Allocator, Budget, Error, HostMemory, MemoryType, Point, Request, Slice};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Slices that a thread holds, and bytes that it has asked for, at most.
const LIVE: usize = 256;
const LIVE_BYTES: u64 = 4 * M;
/// Slices of a wave of the tide, and their bytes: more than all threads hold, and than wait at the same time.
const TIDE: u64 = 2048;
const TIDE_BYTES: u64 = 32 * M;
/// Pools: one of each kind.
const POOLS: u32 = 4;
/// Slices that lie where any thread takes them from.
const BASKET: usize = 32;
const LARGEST: u64 = 64 * K;
/// A slice that a thread has, and what it has written into it.
type Stamped = (Slice, u64);

/// What the allocator and its threads are made over.
pub(crate) struct World {
    device: RecyclingDevice,
    host: HostLedger,
    budget: Budget,
    basket: Mutex<Vec<Stamped>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            device: RecyclingDevice::new(),
            host: HostLedger::new(),
            budget: Budget::try_new(HostMemory::global(), yielding(), None, None).unwrap(),
            basket: Mutex::default(),
        }
    }

    /// A pool of every kind.
    pub(crate) fn allocator(&self) -> Allocator<&RecyclingDevice> {
        let pools: [_; POOLS as usize] = [
            sliced(64 * K, 4 * K, None).with_dealloc_period(Some(5000)),
            growing(64 * K, M),
            exclusive(32 * K).with_dealloc_period(Some(2000)),
            direct(Some(512 * K)),
        ];
        let options = options().with_memory(self.host.memory()).with_lock(yielding()).with_budget(&self.budget);
        let options = options.with_memory_type(MemoryType::new(128 * M, 256)).with_dedicated_period(Some(1000));
        Allocator::try_new(&self.device, &pools, options).unwrap()
    }

    pub(crate) fn workers<'a>(
        &'a self,
        allocator: &'a Allocator<&'a RecyclingDevice>,
        threads: u64,
        random: &mut Random,
    ) -> Vec<Worker<'a>> {
        let worker = |number| Worker {
            world: self,
            allocator,
            random: random.split(),
            number,
            stamped: 0,
            live: Vec::with_capacity(LIVE),
            bytes: 0,
            waiting: Default::default(),
            reached: [0; TIMELINES],
        };
        (0..threads).map(worker).collect()
    }

    /// Panics unless the books agree with each other: those of the allocator, the device, the budget and the threads.
    pub(crate) fn check(&self, allocator: &Allocator<&RecyclingDevice>, workers: &[Worker<'_>]) {
        let figures = allocator.statistics();
        assert_eq!(allocator.check(), Ok(()));
        let live = workers.iter().map(|worker| worker.live.len()).sum::<usize>() + self.basket.lock().unwrap().len();
        assert_eq!(figures.slices as usize, live);
        let budget = self.budget.statistics();
        let out = self.device.out();
        assert_eq!((figures.reserved, u64::from(figures.pages)), out, "{figures:?}");
        assert_eq!((budget.bytes, u64::from(budget.pages)), out, "the budget's books");
        let parts = figures.in_use + figures.padding + figures.pending + figures.free;
        assert_eq!(parts, figures.reserved, "{figures:?}");
        assert_eq!(figures.metadata, self.host.bytes());
        self.host.assert_used_rightly();
    }

    pub(crate) fn figures(&self) -> [Figure; 2] {
        [
            Figure::Average("device bytes of the allocator", self.device.average()),
            Figure::Most("host bytes of the allocator", self.host.bytes()),
        ]
    }

    /// More slices at once, in every kind of pool, than there will ever be again; every other one is freed first and waits,
    /// so that there are as many holes and as many that wait.
    pub(crate) fn tide(&self, allocator: &Allocator<&RecyclingDevice>) {
        for kind in 0..POOLS + 2 {
            for size in [64, 4 * K, 32 * K, 64 * K] {
                let request = match kind {
                    0..POOLS => Request::new(size).in_pool(kind),
                    POOLS => Request::new(size).dedicated(),
                    _ => Request::new(size).persistent(),
                };
                self.wave(allocator, &request);
            }
        }
        allocator.cleanup().unwrap();
        assert_eq!(self.device.out(), (0, 0));
        self.device.average();
    }

    /// As many slices of one request as [`TIDE`] and [`TIDE_BYTES`] allow. No pool takes all sizes.
    fn wave(&self, allocator: &Allocator<&RecyclingDevice>, request: &Request) {
        let slices: Vec<_> =
            (0..TIDE.min(TIDE_BYTES / request.size)).map_while(|_| allocator.allocate(request).ok()).collect();
        let points: [_; TIMELINES] =
            std::array::from_fn(|timeline| Point::new(timeline as u32, self.device.reached(timeline) + 1));
        for slice in slices.iter().step_by(2) {
            allocator.free_after(slice.id, &points).unwrap();
        }
        for point in points {
            self.device.reach(point.timeline as usize, point.value);
            allocator.collect(point.timeline, point.value).unwrap();
        }
        for slice in slices.iter().skip(1).step_by(2) {
            allocator.free(slice.id).unwrap();
        }
    }

    pub(crate) fn device_calls(&self) -> u64 {
        self.device.calls()
    }

    /// Frees everything: nothing may be left but the books themselves.
    pub(crate) fn drain(&self, allocator: &Allocator<&RecyclingDevice>, workers: &mut [Worker<'_>]) {
        for (slice, stamped) in self.basket.lock().unwrap().drain(..) {
            // SAFETY: as in `Worker::free`.
            unsafe { assert_stamped(slice.mapped, slice.size, stamped) };
            allocator.free(slice.id).unwrap();
        }
        for worker in workers {
            worker.free_everything();
        }
        allocator.cleanup().unwrap();
        let figures = allocator.statistics();
        assert_eq!((figures.slices, figures.slices_pending, figures.pages, figures.reserved), (0, 0, 0, 0));
        assert_balanced(allocator);
    }
}

/// A thread that uses the allocator.
pub(crate) struct Worker<'a> {
    world: &'a World,
    allocator: &'a Allocator<&'a RecyclingDevice>,
    random: Random,
    number: u64,
    stamped: u64,
    live: Vec<Stamped>,
    bytes: u64,
    /// Slices that wait for each of the thread's timelines, and for which value.
    waiting: [VecDeque<(Stamped, u64)>; TIMELINES],
    /// The highest value of each that anything waits for.
    reached: [u64; TIMELINES],
}

impl Worker<'_> {
    pub(crate) fn work(&mut self, operations: u64) {
        for _ in 0..operations {
            let is_full = self.live.len() >= LIVE || self.bytes >= LIVE_BYTES;
            match self.random.below(1024) {
                0..16 => self.advance(),
                16..32 => self.resize(),
                32..48 => self.exchange(),
                48..52 if !is_full => self.allocate_many(),
                // Now and then in a million.
                52 if self.random.below(64) == 0 => match self.random.below(4) {
                    0 => self.allocator.cleanup().unwrap(),
                    _ => self.allocator.trim(self.random.scaled(8 * M)).unwrap(),
                },
                53..560 if !is_full => self.allocate(),
                _ => {
                    if !self.live.is_empty() {
                        let taken = self.random.take(&mut self.live);
                        self.free(taken);
                    }
                }
            }
        }
    }

    fn request(&mut self) -> Request {
        let request = Request::new(self.random.scaled(LARGEST));
        match self.random.below(64) {
            0..8 => request.in_pool(1),
            8..12 => Request::new(request.size.min(32 * K)).in_pool(2),
            12..20 => request.in_pool(3),
            20 => request.dedicated(),
            21 => request.persistent(),
            22 => request.zeroed(),
            23 => request.scrubbed(),
            24..32 => request.aligned(1 << self.random.below(9)),
            _ => request,
        }
    }

    fn keep(&mut self, slice: Slice) {
        self.stamped += 1;
        let number = self.stamped << 8 | self.number;
        // SAFETY: the slice is this thread's, and has a granule at least.
        unsafe { stamp(slice.mapped, slice.size, number) };
        self.live.push((slice, number));
        self.bytes += slice.size;
    }

    fn allocate(&mut self) {
        let request = self.request();
        match self.allocator.allocate(&request) {
            Ok(slice) => self.keep(slice),
            Err(error) => panic!("{error}: {request:?}"),
        }
    }

    fn allocate_many(&mut self) {
        let requests: [Request; 4] = std::array::from_fn(|_| self.request());
        match self.allocator.allocate_many(&requests) {
            Ok(batch) => batch.iter().for_each(|slice| self.keep(*slice)),
            Err(refused) => panic!("{refused:?}: {requests:?}"),
        }
    }

    fn resize(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let (slice, stamped) = self.random.take(&mut self.live);
        self.bytes -= slice.size;
        // SAFETY: as in `free`.
        unsafe { assert_stamped(slice.mapped, slice.size, stamped) };
        match self.allocator.try_resize(slice.id, self.random.scaled(LARGEST)) {
            Ok(slice) => self.keep(slice),
            Err(Error::NoRoom { .. } | Error::TooLarge { .. } | Error::NotSupported { .. }) => self.keep(slice),
            Err(error) => panic!("{error}"),
        }
    }

    /// Leaves a slice to whoever comes, or takes one that was left.
    fn exchange(&mut self) {
        let mut basket = self.world.basket.lock().unwrap();
        if basket.len() < BASKET && !self.live.is_empty() && self.random.below(2) == 0 {
            let given = self.random.take(&mut self.live);
            self.bytes -= given.0.size;
            basket.push(given);
        } else if let Some(taken) = basket.pop() {
            self.bytes += taken.0.size;
            self.live.push(taken);
        }
    }

    fn free(&mut self, (slice, stamped): Stamped) {
        // SAFETY: the slice is this thread's, and was stamped when it became so.
        unsafe { assert_stamped(slice.mapped, slice.size, stamped) };
        self.bytes -= slice.size;
        if self.random.below(4) != 0 {
            return self.allocator.free(slice.id).unwrap();
        }
        let first = self.number as usize * 2;
        let timeline = first + self.random.below(2) as usize;
        let now = self.world.device.reached(timeline);
        let value = self.reached[timeline].max(now + self.random.within(1, 3));
        self.reached[timeline] = value;
        // What the other timeline has passed delays nothing.
        let other = first + (timeline + 1) % 2;
        let passed = self.world.device.reached(other);
        let points = [Point::new(timeline as u32, value), Point::new(other as u32, passed)];
        let count = self.random.within(1, 2) as usize;
        self.waiting[timeline].push_back(((slice, stamped), value));
        self.allocator.free_after(slice.id, &points[..count]).unwrap();
    }

    /// Completes the next value of a timeline, and finds all that waits for it as it was left.
    fn advance(&mut self) {
        let timeline = self.number as usize * 2 + self.random.below(2) as usize;
        let value = self.world.device.reached(timeline) + 1;
        self.complete(timeline, value);
    }

    fn complete(&mut self, timeline: usize, value: u64) {
        while let Some(&((slice, stamped), _)) = self.waiting[timeline].front().filter(|(_, after)| *after <= value) {
            // SAFETY: the slice has not been released, and was stamped when it became this thread's.
            unsafe { assert_stamped(slice.mapped, slice.size, stamped) };
            self.waiting[timeline].pop_front();
        }
        self.world.device.reach(timeline, value);
        self.allocator.collect(timeline as u32, value).unwrap();
    }

    fn free_everything(&mut self) {
        while let Some(taken) = self.live.pop() {
            self.free(taken);
        }
        for timeline in [2 * self.number as usize, 2 * self.number as usize + 1] {
            self.complete(timeline, self.reached[timeline]);
            assert!(self.waiting[timeline].is_empty());
        }
        assert_eq!(self.bytes, 0);
    }
}
