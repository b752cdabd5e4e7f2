//! Host memory as a device.

use super::{Device, DeviceError, DeviceMemory, PageRequest};
use crate::metadata::HostMemory;
use core::alloc::Layout;
use core::ptr::{self, NonNull};

/// Pages of host memory: for staging buffers, for tests, and for everybody without a device.
///
/// Handle and address of a page are its address; it is mapped where it lies.
#[derive(Clone, Copy, Debug)]
pub struct HostDevice {
    memory: HostMemory,
}

impl HostDevice {
    /// Pages from Rust's global allocator.
    pub const fn new() -> Self {
        Self::over(HostMemory::global())
    }

    /// Pages from other host memory.
    pub const fn over(memory: HostMemory) -> Self {
        Self { memory }
    }

    fn layout(size: u64, alignment: u64) -> Option<Layout> {
        Layout::from_size_align(usize::try_from(size).ok()?, usize::try_from(alignment).ok()?).ok()
    }
}

impl Default for HostDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl Device for HostDevice {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        let layout = Self::layout(request.size, request.alignment).ok_or(DeviceError::OutOfMemory(0))?;
        let memory = self.memory.allocate(layout).map_err(|_| DeviceError::OutOfMemory(0))?.as_ptr();
        Ok(DeviceMemory {
            handle: memory.addr() as u64,
            address: memory.addr() as u64,
            mapped: memory,
            size: request.size,
            // Taking memory back needs its alignment.
            context: ptr::without_provenance_mut(layout.align()),
        })
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        let layout = Self::layout(memory.size, memory.context.addr() as u64).ok_or(DeviceError::Failed(0))?;
        let mapped = NonNull::new(memory.mapped).ok_or(DeviceError::Failed(0))?;
        // SAFETY: `allocate` answered this mapping for this size, and put the alignment into `context`.
        unsafe { self.memory.deallocate(mapped, layout) };
        Ok(())
    }
}
