//! gpu-alloc 0.6.2: a buddy system, and a list for what lives shortly. Not locked; blocks have an owner and count the
//! users of their memory.

use super::Memory;
use super::mock::HEAP;
use crate::GRANULE;
use crate::placement::{Place, Placed};
use crate::subjects::Subject;
use gpu_alloc::{
    AllocationFlags, Config, DeviceMapError, DeviceProperties, GpuAllocator, MappedMemoryRange, MemoryBlock,
    MemoryDevice, MemoryHeap, MemoryPropertyFlags, MemoryType, OutOfMemory, Request, UsageFlags,
};
use std::ptr::NonNull;

const MIB: u64 = 1 << 20;

/// A page of the device.
#[derive(Debug)]
pub struct Page(u64);

impl MemoryDevice<Page> for Memory {
    unsafe fn allocate_memory(&self, size: u64, _: u32, _: AllocationFlags) -> Result<Page, OutOfMemory> {
        Ok(Page(self.take(size)))
    }

    unsafe fn deallocate_memory(&self, memory: Page) {
        self.give_back(memory.0);
    }

    unsafe fn map_memory(&self, _: &mut Page, _: u64, _: u64) -> Result<NonNull<u8>, DeviceMapError> {
        Err(DeviceMapError::MapFailed)
    }

    unsafe fn unmap_memory(&self, _: &mut Page) {}

    unsafe fn invalidate_memory_ranges(&self, _: &[MappedMemoryRange<'_, Page>]) -> Result<(), OutOfMemory> {
        Ok(())
    }

    unsafe fn flush_memory_ranges(&self, _: &[MappedMemoryRange<'_, Page>]) -> Result<(), OutOfMemory> {
        Ok(())
    }
}

/// The allocator, all of whose requests are of one kind.
struct Inner {
    allocator: GpuAllocator<Page>,
    memory: Memory,
    usage: UsageFlags,
}

impl Inner {
    fn new(usage: UsageFlags) -> Self {
        // What it calls a beginning, but pieces of a granule, and chunks as large as those of other peers.
        let config = Config {
            minimal_buddy_size: GRANULE,
            initial_buddy_dedicated_size: 256 * MIB,
            starting_free_list_chunk: 256 * MIB,
            final_free_list_chunk: 256 * MIB,
            ..Config::i_am_prototyping()
        };
        let memory_type = MemoryType { heap: 0, props: MemoryPropertyFlags::DEVICE_LOCAL };
        let properties = DeviceProperties {
            memory_types: vec![memory_type].into(),
            memory_heaps: vec![MemoryHeap { size: HEAP }].into(),
            max_memory_allocation_count: u32::MAX,
            max_memory_allocation_size: HEAP,
            non_coherent_atom_size: 1,
            buffer_device_address: false,
        };
        Self { allocator: GpuAllocator::new(config, properties), memory: Memory::default(), usage }
    }

    #[inline]
    fn allocate(&mut self, bytes: u64) -> Option<MemoryBlock<Page>> {
        let request = Request { size: bytes, align_mask: GRANULE - 1, usage: self.usage, memory_types: 1 };
        // SAFETY: it is always the same device.
        unsafe { self.allocator.alloc(&self.memory, request) }.ok()
    }

    #[inline]
    fn free(&mut self, block: MemoryBlock<Page>) {
        // SAFETY: it is always the same device, and the block is from this allocator.
        unsafe { self.allocator.dealloc(&self.memory, block) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: it is always the same device.
        unsafe { self.allocator.cleanup(&self.memory) }
    }
}

/// What it does with ordinary requests: sizes are rounded up to powers of two.
pub struct Buddy(Inner);

/// What it does with requests that are said to live shortly.
pub struct FreeList(Inner);

macro_rules! subject {
    ($subject:ident, $name:literal, $usage:expr) => {
        impl Subject for $subject {
            type Handle = MemoryBlock<Page>;
            const NAME: &'static str = $name;

            fn new(_: u64, _: usize) -> Self {
                Self(Inner::new($usage))
            }

            fn allocate(&mut self, bytes: u64) -> Option<Self::Handle> {
                self.0.allocate(bytes)
            }

            fn free(&mut self, handle: Self::Handle) {
                self.0.free(handle);
            }
        }

        impl Placed for $subject {
            fn place(&self, handle: &Self::Handle, _: u64) -> Place {
                Place { page: handle.memory().0, offset: handle.offset(), bytes: handle.size() }
            }

            fn page_bytes(&self, page: u64) -> Option<u64> {
                self.0.memory.page_bytes(page)
            }
        }
    };
}

subject!(Buddy, "gpu-alloc, buddies", UsageFlags::empty());
subject!(FreeList, "gpu-alloc, free list", UsageFlags::TRANSIENT);
