//! What is measured: slicepool and its peers.

use crate::GRANULE;
use crate::placement::{Place, Placed};
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceMemory, LockKind, MemoryType, PageRequest, PoolOptions,
    Request, SliceId, Space, SpaceOptions,
};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// One that aligns slices to more than the granule.
pub trait AlignedSubject: Subject {
    /// A slice at a multiple of `alignment`, or none if there is no room.
    fn allocate_aligned(&mut self, bytes: u64, alignment: u64) -> Option<Self::Handle>;
}

/// A subject of which every `EVERY`-th request is aligned to `ALIGNMENT`.
pub struct Aligned<S, const ALIGNMENT: u64, const EVERY: u32> {
    subject: S,
    requests: u32,
}

impl<S: AlignedSubject, const ALIGNMENT: u64, const EVERY: u32> Subject for Aligned<S, ALIGNMENT, EVERY> {
    type Handle = S::Handle;
    const NAME: &'static str = S::NAME;

    fn new(bytes: u64, live: usize) -> Self {
        Self { subject: S::new(bytes, live), requests: 0 }
    }

    fn allocate(&mut self, bytes: u64) -> Option<S::Handle> {
        self.requests += 1;
        if self.requests < EVERY {
            return self.subject.allocate(bytes);
        }
        self.requests = 0;
        self.subject.allocate_aligned(bytes, ALIGNMENT)
    }

    fn free(&mut self, handle: S::Handle) {
        self.subject.free(handle);
    }
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

/// An allocator: locked, handle-checked. As a subject, one with a sliced pool of a single page.
pub struct Pool(Allocator<NoDevice>);

impl Pool {
    /// The largest alignment of requests.
    pub const MAX_ALIGNMENT: u64 = 64 << 10;

    /// One with a list of pools.
    pub fn of(pools: &[PoolOptions]) -> Self {
        Self::with_lock(pools, LockKind::spin())
    }

    fn with_lock(pools: &[PoolOptions], lock: LockKind) -> Self {
        let memory_type = MemoryType::new(u64::MAX, Self::MAX_ALIGNMENT);
        let options = AllocatorOptions::default().with_memory_type(memory_type).with_lock(lock);
        Self(Allocator::try_new(NoDevice::default(), pools, options).expect("valid options"))
    }

    /// A pool of pages of `page` bytes, at most as many as `bytes` hold.
    pub fn with_pages(page: u64, bytes: u64) -> Self {
        Self::of(&[PoolOptions::sliced_pages(page, page, Some(bytes)).with_granule(GRANULE)])
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

impl AlignedSubject for Pool {
    fn allocate_aligned(&mut self, bytes: u64, alignment: u64) -> Option<SliceId> {
        self.0.allocate(&Request::new(bytes).aligned(alignment)).ok().map(|slice| slice.id)
    }
}

/// The same where the program lets one thread at a time call: without a lock.
pub struct UnlockedPool(Pool);

impl Subject for UnlockedPool {
    type Handle = SliceId;
    const NAME: &'static str = "the same, unlocked";

    fn new(bytes: u64, _: usize) -> Self {
        let pools = [PoolOptions::sliced_pages(bytes, bytes, Some(bytes)).with_granule(GRANULE)];
        // SAFETY: a subject is used by one thread at a time.
        Self(Pool::with_lock(&pools, unsafe { LockKind::unlocked() }))
    }

    fn allocate(&mut self, bytes: u64) -> Option<SliceId> {
        self.0.allocate(bytes)
    }

    fn free(&mut self, handle: SliceId) {
        self.0.free(handle);
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

impl AlignedSubject for Space {
    fn allocate_aligned(&mut self, bytes: u64, alignment: u64) -> Option<SliceId> {
        Space::allocate(self, bytes, alignment).ok().map(|slice| slice.id)
    }
}

/// offset-allocator 0.2.0: neither locked nor handle-checked, sizes of 32 bits.
pub struct OffsetAllocator {
    allocator: offset_allocator::Allocator<u32>,
    bytes: u64,
}

impl Subject for OffsetAllocator {
    type Handle = offset_allocator::Allocation<u32>;
    const NAME: &'static str = "offset-allocator";

    fn new(bytes: u64, live: usize) -> Self {
        let units = u32::try_from(bytes / GRANULE).expect("few enough granules");
        Self { allocator: offset_allocator::Allocator::with_max_allocs(units, 3 * live as u32 + 1000), bytes }
    }

    fn allocate(&mut self, bytes: u64) -> Option<Self::Handle> {
        self.allocator.allocate((bytes / GRANULE) as u32)
    }

    fn free(&mut self, handle: Self::Handle) {
        self.allocator.free(handle);
    }
}

/// The virtual block of the Vulkan Memory Allocator (vk-mem 0.5.0): not locked, not handle-checked.
pub struct VirtualBlock {
    block: vk_mem::VirtualBlock,
    bytes: u64,
}

impl Subject for VirtualBlock {
    type Handle = vk_mem::VirtualAllocation;
    const NAME: &'static str = "VMA virtual block";

    fn new(bytes: u64, _: usize) -> Self {
        let info = vk_mem::VirtualBlockCreateInfo { size: bytes, ..Default::default() };
        Self { block: vk_mem::VirtualBlock::new(info).expect("host memory"), bytes }
    }

    fn allocate(&mut self, bytes: u64) -> Option<Self::Handle> {
        self.allocate_aligned(bytes, GRANULE)
    }

    fn free(&mut self, mut handle: Self::Handle) {
        // SAFETY: allocated by this block and freed once.
        unsafe { self.block.free(&mut handle) }
    }
}

impl AlignedSubject for VirtualBlock {
    #[inline]
    fn allocate_aligned(&mut self, bytes: u64, alignment: u64) -> Option<Self::Handle> {
        let info = vk_mem::VirtualAllocationCreateInfo {
            size: bytes,
            alignment,
            user_data: 0,
            flags: vk_mem::VirtualAllocationCreateFlags::empty(),
        };
        // SAFETY: the block is live; the allocation is freed or cleared before it goes.
        unsafe { self.block.allocate(info) }.ok().map(|(allocation, _)| allocation)
    }
}

impl Drop for VirtualBlock {
    fn drop(&mut self) {
        // SAFETY: no allocation is used any more.
        unsafe { self.block.clear() }
    }
}

impl Placed for Pool {
    fn place(&self, handle: &SliceId, _: u64) -> Place {
        let slice = self.0.get(*handle).expect("live");
        Place { page: slice.memory, offset: slice.offset, bytes: slice.size }
    }

    fn page_bytes(&self, _: u64) -> Option<u64> {
        let statistics = self.0.statistics();
        (statistics.pages == 1).then_some(statistics.reserved)
    }
}

impl Placed for UnlockedPool {
    fn place(&self, handle: &SliceId, asked: u64) -> Place {
        self.0.place(handle, asked)
    }

    fn page_bytes(&self, page: u64) -> Option<u64> {
        self.0.page_bytes(page)
    }
}

impl Placed for Space {
    fn place(&self, handle: &SliceId, _: u64) -> Place {
        let slice = self.get(*handle).expect("live");
        Place { page: 0, offset: slice.offset, bytes: slice.size }
    }

    fn page_bytes(&self, _: u64) -> Option<u64> {
        Some(self.statistics().size)
    }
}

impl Placed for OffsetAllocator {
    fn place(&self, handle: &Self::Handle, _: u64) -> Place {
        let units = self.allocator.allocation_size(*handle);
        Place { page: 0, offset: u64::from(handle.offset) * GRANULE, bytes: u64::from(units) * GRANULE }
    }

    fn page_bytes(&self, _: u64) -> Option<u64> {
        Some(self.bytes)
    }
}

impl Placed for VirtualBlock {
    fn place(&self, handle: &Self::Handle, _: u64) -> Place {
        // SAFETY: the slice is live.
        let info = unsafe { self.block.get_allocation_info(handle) }.expect("live");
        Place { page: 0, offset: info.offset, bytes: info.size }
    }

    fn page_bytes(&self, _: u64) -> Option<u64> {
        Some(self.bytes)
    }
}
