//! The Vulkan Memory Allocator (vk-mem 0.5.0) as engines use it: a pool over device memory, behind its own lock.

use super::{Memory, Vulkan};
use crate::GRANULE;
use crate::placement::{Place, Placed};
use crate::subjects::Subject;
use ash::vk::{self, Handle as _};
use std::sync::Arc;
use vk_mem::{Alloc as _, AllocatorPool};

/// A pool of one block.
pub struct VmaPool {
    // Dropped in this order: what is over the device before the device.
    pool: AllocatorPool,
    allocator: Arc<vk_mem::Allocator>,
    vulkan: Vulkan,
}

impl VmaPool {
    /// What it has from the device.
    pub fn device(&self) -> &Memory {
        self.vulkan.memory()
    }
}

impl Subject for VmaPool {
    type Handle = vk_mem::Allocation;
    const NAME: &'static str = "VMA pool";

    fn new(bytes: u64, _: usize) -> Self {
        let vulkan = Vulkan::new();
        let info = vk_mem::AllocatorCreateInfo::new(&vulkan.instance, &vulkan.device, vulkan.physical_device);
        // SAFETY: the device outlives the allocator.
        let allocator = Arc::new(unsafe { vk_mem::Allocator::new(info) }.expect("valid options"));
        let info = vk_mem::PoolCreateInfo { block_size: bytes, max_block_count: 1, ..Default::default() };
        let pool = allocator.create_pool(&info).expect("valid options");
        Self { pool, allocator, vulkan }
    }

    fn allocate(&mut self, bytes: u64) -> Option<Self::Handle> {
        let requirements = vk::MemoryRequirements { size: bytes, alignment: GRANULE, memory_type_bits: 1 };
        // SAFETY: the pool is live.
        unsafe { self.pool.allocate_memory(&requirements, &vk_mem::AllocationCreateInfo::default()) }.ok()
    }

    fn free(&mut self, mut handle: Self::Handle) {
        // SAFETY: allocated by this allocator and freed once.
        unsafe { self.allocator.free_memory(&mut handle) }
    }
}

impl Placed for VmaPool {
    fn place(&self, handle: &Self::Handle, _: u64) -> Place {
        let info = self.allocator.get_allocation_info(handle);
        Place { page: info.device_memory.as_raw(), offset: info.offset, bytes: info.size }
    }

    fn page_bytes(&self, page: u64) -> Option<u64> {
        self.device().page_bytes(page)
    }
}
