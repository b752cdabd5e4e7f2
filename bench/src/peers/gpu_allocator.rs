//! gpu-allocator 0.28: best fit over a list, as it comes. Not locked; a handle is moved into `free`, so none is used twice.

use super::Vulkan;
use crate::GRANULE;
use crate::placement::{Place, Placed};
use crate::subjects::Subject;
use ash::vk::{self, Handle as _};
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc};
use gpu_allocator::{AllocationSizes, AllocatorDebugSettings, MemoryLocation};

/// Blocks of 256 MiB, as many as are needed.
pub struct GpuAllocator {
    // Dropped in this order: what is over the device before the device.
    allocator: Allocator,
    vulkan: Vulkan,
}

impl Subject for GpuAllocator {
    type Handle = Allocation;
    const NAME: &'static str = "gpu-allocator";

    fn new(_: u64, _: usize) -> Self {
        let vulkan = Vulkan::new();
        let mut debug_settings = AllocatorDebugSettings::default();
        debug_settings.log_leaks_on_shutdown = false;
        let options = AllocatorCreateDesc {
            instance: vulkan.instance.clone(),
            device: vulkan.device.clone(),
            physical_device: vulkan.physical_device,
            debug_settings,
            buffer_device_address: false,
            allocation_sizes: AllocationSizes::default(),
        };
        Self { allocator: Allocator::new(&options).expect("valid options"), vulkan }
    }

    fn allocate(&mut self, bytes: u64) -> Option<Allocation> {
        let request = AllocationCreateDesc {
            name: "",
            requirements: vk::MemoryRequirements { size: bytes, alignment: GRANULE, memory_type_bits: 1 },
            location: MemoryLocation::GpuOnly,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        self.allocator.allocate(&request).ok()
    }

    fn free(&mut self, handle: Allocation) {
        self.allocator.free(handle).expect("live");
    }
}

impl Placed for GpuAllocator {
    fn place(&self, handle: &Allocation, _: u64) -> Place {
        // SAFETY: the memory is only named.
        let page = unsafe { handle.memory() }.as_raw();
        Place { page, offset: handle.offset(), bytes: handle.size() }
    }

    fn page_bytes(&self, page: u64) -> Option<u64> {
        self.vulkan.memory().page_bytes(page)
    }
}
