//! The workloads, and slicepool and its peers behind one interface.
//!
//! Machines are shared and noisy, so only ratios measured in one run count: subjects take turns in short rounds, and
//! sizes and victims are made before anything is timed.

pub mod best_fit;
pub mod replay;
pub mod traces;

use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceMemory, PageRequest, PoolOptions, Request, SliceId, Space,
    SpaceOptions,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the smallest unit in all workloads.
pub const GRANULE: u64 = 256;

/// A small generator whose sequence is the same everywhere: splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Fill to `live` slices, then free a uniformly random one and allocate anew, again and again. Sizes are log-uniform
/// from 256 B to 1 MiB, rounded up to the granule.
pub struct Churn {
    /// Sizes of the slices of the fill.
    pub fill: Vec<u64>,
    /// Victim and new size of each pair.
    pub pairs: Vec<(u32, u64)>,
}

impl Churn {
    /// Makes the workload from a seed.
    pub fn new(seed: u64, live: usize, pairs: usize) -> Self {
        let mut random = Random::new(seed);
        let (low, high) = (256f64.ln(), ((1 << 20) as f64).ln());
        let size = move |random: &mut Random| {
            let bytes = (low + (high - low) * random.unit()).exp() as u64;
            bytes.div_ceil(GRANULE) * GRANULE
        };
        let fill = (0..live).map(|_| size(&mut random)).collect();
        let pairs = (0..pairs).map(|_| (random.below(live as u64) as u32, size(&mut random))).collect();
        Self { fill, pairs }
    }

    /// The most bytes that are live at any time.
    pub fn peak(&self) -> u64 {
        let mut live = self.fill.clone();
        let mut sum: u64 = live.iter().sum();
        let mut peak = sum;
        for &(victim, size) in &self.pairs {
            sum = sum - live[victim as usize] + size;
            live[victim as usize] = size;
            peak = peak.max(sum);
        }
        peak
    }
}

/// Something that cuts slices out of a space of bytes.
pub trait Subject {
    /// What frees a slice.
    type Handle;
    /// Its name in tables.
    const NAME: &'static str;
    /// One over `bytes`, for at most `live` slices at a time.
    fn new(bytes: u64, live: usize) -> Self;
    /// A slice, or none if there is no room.
    fn allocate(&mut self, bytes: u64) -> Option<Self::Handle>;
    /// Takes a slice back.
    fn free(&mut self, handle: Self::Handle);
}

/// A device that makes handles up.
#[derive(Debug, Default)]
pub struct NoDevice(AtomicU64);

impl Device for NoDevice {
    fn allocate(&self, _: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        Ok(DeviceMemory::new(self.0.fetch_add(1, Ordering::Relaxed)))
    }

    fn deallocate(&self, _: &DeviceMemory) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A sliced pool of one page: locked, handle-checked.
pub struct Pool(Allocator<NoDevice>);

impl Pool {
    /// A pool of pages of `page` bytes, at most as many as `bytes` hold.
    pub fn with_pages(page: u64, bytes: u64) -> Self {
        let options = PoolOptions::sliced_pages(page, page, Some(bytes)).with_granule(GRANULE);
        Self(Allocator::try_new(NoDevice::default(), &[options], AllocatorOptions::default()).expect("valid options"))
    }

    /// The allocator.
    pub fn allocator(&self) -> &Allocator<NoDevice> {
        &self.0
    }
}

impl Subject for Pool {
    type Handle = SliceId;
    const NAME: &'static str = "slicepool pool";

    fn new(bytes: u64, _: usize) -> Self {
        Self::with_pages(bytes, bytes)
    }

    fn allocate(&mut self, bytes: u64) -> Option<SliceId> {
        self.0.allocate(&Request::new(bytes)).ok().map(|slice| slice.id)
    }

    fn free(&mut self, handle: SliceId) {
        self.0.free(handle).expect("live");
    }
}

impl Subject for Space {
    type Handle = SliceId;
    const NAME: &'static str = "slicepool space";

    fn new(bytes: u64, _: usize) -> Self {
        Space::try_new(SpaceOptions::new(bytes).with_granule(GRANULE)).expect("valid options")
    }

    fn allocate(&mut self, bytes: u64) -> Option<SliceId> {
        Space::allocate(self, bytes, 1).ok().map(|slice| slice.id)
    }

    fn free(&mut self, handle: SliceId) {
        Space::free(self, handle).expect("live");
    }
}

/// offset-allocator 0.2.0: neither locked nor handle-checked, sizes of 32 bits.
pub struct OffsetAllocator(offset_allocator::Allocator<u32>);

impl Subject for OffsetAllocator {
    type Handle = offset_allocator::Allocation<u32>;
    const NAME: &'static str = "offset-allocator";

    fn new(bytes: u64, live: usize) -> Self {
        let units = u32::try_from(bytes / GRANULE).expect("few enough granules");
        Self(offset_allocator::Allocator::with_max_allocs(units, 3 * live as u32 + 1000))
    }

    fn allocate(&mut self, bytes: u64) -> Option<Self::Handle> {
        self.0.allocate((bytes / GRANULE) as u32)
    }

    fn free(&mut self, handle: Self::Handle) {
        self.0.free(handle);
    }
}

/// The virtual block of the Vulkan Memory Allocator (vk-mem 0.5.0): not locked, not handle-checked.
pub struct VirtualBlock(vk_mem::VirtualBlock);

impl Subject for VirtualBlock {
    type Handle = vk_mem::VirtualAllocation;
    const NAME: &'static str = "VMA virtual block";

    fn new(bytes: u64, _: usize) -> Self {
        let info = vk_mem::VirtualBlockCreateInfo { size: bytes, ..Default::default() };
        Self(vk_mem::VirtualBlock::new(info).expect("host memory"))
    }

    fn allocate(&mut self, bytes: u64) -> Option<Self::Handle> {
        let info = vk_mem::VirtualAllocationCreateInfo {
            size: bytes,
            alignment: GRANULE,
            user_data: 0,
            flags: vk_mem::VirtualAllocationCreateFlags::empty(),
        };
        // SAFETY: the block is live; the allocation is freed or cleared before it goes.
        unsafe { self.0.allocate(info) }.ok().map(|(allocation, _)| allocation)
    }

    fn free(&mut self, mut handle: Self::Handle) {
        // SAFETY: allocated by this block and freed once.
        unsafe { self.0.free(&mut handle) }
    }
}

impl Drop for VirtualBlock {
    fn drop(&mut self) {
        // SAFETY: no allocation is used any more.
        unsafe { self.0.clear() }
    }
}

/// A subject in the middle of a churn.
pub struct Running<S: Subject> {
    subject: S,
    live: Vec<Option<S::Handle>>,
    next: usize,
}

impl<S: Subject> Running<S> {
    /// Fills a subject over `bytes`; none if the fill does not fit.
    pub fn fill(churn: &Churn, bytes: u64) -> Option<Self> {
        Self::fill_subject(churn, S::new(bytes, churn.fill.len()))
    }

    /// Fills a subject that exists.
    pub fn fill_subject(churn: &Churn, mut subject: S) -> Option<Self> {
        let live = churn.fill.iter().map(|&size| subject.allocate(size).map(Some)).collect::<Option<_>>()?;
        Some(Self { subject, live, next: 0 })
    }

    /// Goes on with `pairs` pairs, from the start again after the last; `false` if one does not fit.
    pub fn pairs(&mut self, churn: &Churn, pairs: usize) -> bool {
        for _ in 0..pairs {
            let (victim, size) = churn.pairs[self.next];
            self.next = if self.next + 1 == churn.pairs.len() { 0 } else { self.next + 1 };
            let place = &mut self.live[victim as usize];
            if let Some(handle) = place.take() {
                self.subject.free(handle);
            }
            *place = self.subject.allocate(size);
            if place.is_none() {
                return false;
            }
        }
        true
    }

    /// The subject.
    pub fn subject(&self) -> &S {
        &self.subject
    }
}

/// The smallest space, as a multiple of the peak of live bytes, in which the churn completes; to half a percent.
pub fn smallest_space<S: Subject>(churn: &Churn) -> f64 {
    let peak = churn.peak();
    let fits = |factor: f64| {
        let bytes = (peak as f64 * factor) as u64 / GRANULE * GRANULE;
        Running::<S>::fill(churn, bytes).is_some_and(|mut running| running.pairs(churn, churn.pairs.len()))
    };
    let (mut low, mut high) = (1.0, 1.0);
    while !fits(high) {
        low = high;
        high *= 1.08;
    }
    while high - low > 0.005 {
        let middle = (low + high) / 2.0;
        if fits(middle) { high = middle } else { low = middle }
    }
    high
}
