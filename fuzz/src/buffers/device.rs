//! Memory for buffers: the host's where pages are small, none where they are large; and refusals.

use slicepool_core::{Device, DeviceError, DeviceMemory, FillRequest, HostDevice, PageRequest, Point};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Larger pages have no memory that the CPU sees.
const LARGEST_SEEN: u64 = 1 << 18;

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) held: RefCell<BTreeMap<(u64, u64), DeviceMemory>>,
    /// Answers to the next calls: bits, of which each 1 is a refusal.
    pub(super) refusals: Cell<u16>,
    /// How many calls were refused.
    pub(super) refused: Cell<u64>,
    pub(super) can_fill: Cell<bool>,
    next: Cell<u64>,
}

impl World {
    fn refuses(&self) -> bool {
        let refusals = self.refusals.get();
        self.refusals.set(refusals >> 1);
        self.refused.set(self.refused.get() + u64::from(refusals & 1));
        refusals & 1 != 0
    }
}

/// The device.
pub(super) struct BufferDevice<'a>(pub(super) &'a World);

impl Device for BufferDevice<'_> {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        if self.0.refuses() {
            return Err(DeviceError::OutOfMemory(-1));
        }
        let memory = if request.size <= LARGEST_SEEN && request.alignment <= 4096 {
            HostDevice::new().allocate(request)?
        } else {
            self.0.next.set(self.0.next.get() + 1);
            DeviceMemory { size: request.size, ..DeviceMemory::new(self.0.next.get()) }
        };
        let before = self.0.held.borrow_mut().insert((memory.handle, memory.address), memory);
        assert!(before.is_none(), "memory is there twice");
        Ok(memory)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        if self.0.refuses() {
            return Err(DeviceError::Failed(-2));
        }
        let held = self.0.held.borrow_mut().remove(&(memory.handle, memory.address));
        assert_eq!(held, Some(*memory), "memory comes back as it was given, and once");
        if memory.mapped.is_null() { Ok(()) } else { HostDevice::new().deallocate(memory) }
    }

    fn can_fill(&self) -> bool {
        self.0.can_fill.get()
    }

    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        // Whole words, but for classes that are smaller.
        assert!(request.size % 4 == 0 || request.size < 4, "{request:?}");
        assert!(request.offset + request.size <= request.memory.size, "{request:?}");
        if self.0.refuses() { Err(DeviceError::Failed(-3)) } else { Ok(None) }
    }
}
