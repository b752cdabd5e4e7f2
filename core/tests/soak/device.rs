//! The device of both.

use crate::stamp::stamp;
use slicepool_core::{Device, DeviceError, DeviceMemory, FillRequest, PageRequest, Point};
use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Each thread has two of these, which it alone completes.
pub(crate) const TIMELINES: usize = 4;

/// Real memory, used again and again: the operating system is asked for none after the warm-up.
pub(crate) struct RecyclingDevice {
    book: Mutex<Book>,
    completed: [AtomicU64; TIMELINES],
}

#[derive(Default)]
struct Book {
    /// Pages that are out: size and address, by handle.
    out: HashMap<u64, (u64, u64)>,
    /// Blocks that are not, by the power of two that is their size.
    spare: [Vec<Block>; 32],
    calls: u64,
    bytes: u64,
    /// Of what was out after each call since this was last asked for: the sum, and how often.
    sum: (u64, u64),
}

impl Book {
    fn called(&mut self) {
        self.calls += 1;
        self.sum = (self.sum.0 + self.bytes, self.sum.1 + 1);
    }
}

/// Memory of a power of two.
struct Block(*mut u8, Layout);

// SAFETY: it owns its memory.
unsafe impl Send for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.0, self.1) };
    }
}

impl RecyclingDevice {
    pub(crate) fn new() -> Self {
        Self { book: Mutex::default(), completed: Default::default() }
    }

    /// The block in which a page of so many bytes lies.
    fn layout(size: u64) -> Layout {
        Layout::from_size_align(size.next_power_of_two().max(4096) as usize, 4096).unwrap()
    }

    /// Bytes and pages that are out.
    pub(crate) fn out(&self) -> (u64, u64) {
        let book = self.book.lock().unwrap();
        (book.bytes, book.out.len() as u64)
    }

    /// How often memory was asked for or given back.
    pub(crate) fn calls(&self) -> u64 {
        self.book.lock().unwrap().calls
    }

    /// The value that a timeline has reached.
    pub(crate) fn reached(&self, timeline: usize) -> u64 {
        self.completed[timeline].load(Ordering::SeqCst)
    }

    pub(crate) fn reach(&self, timeline: usize, value: u64) {
        self.completed[timeline].store(value, Ordering::SeqCst);
    }

    /// Bytes that were out on average, over all calls since this was last asked for.
    pub(crate) fn average(&self) -> u64 {
        let mut book = self.book.lock().unwrap();
        let bytes = book.bytes;
        let (sum, calls) = std::mem::take(&mut book.sum);
        (sum + bytes) / (calls + 1)
    }
}

impl Device for RecyclingDevice {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        assert!(request.alignment <= 4096);
        let layout = Self::layout(request.size);
        let mut book = self.book.lock().unwrap();
        let spare = book.spare[layout.size().trailing_zeros() as usize].pop();
        let block = spare.unwrap_or_else(|| {
            // SAFETY: the size is not 0.
            let memory = unsafe { std::alloc::alloc(layout) };
            assert!(!memory.is_null());
            Block(memory, layout)
        });
        let memory = block.0;
        std::mem::forget(block);
        book.bytes += request.size;
        book.called();
        let (handle, address) = (book.calls, memory.addr() as u64);
        book.out.insert(handle, (request.size, address));
        Ok(DeviceMemory { address, mapped: memory, size: request.size, ..DeviceMemory::new(handle) })
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        let mut book = self.book.lock().unwrap();
        let out = book.out.remove(&memory.handle);
        assert_eq!(out, Some((memory.size, memory.address)), "memory came back that was not out like that");
        book.bytes -= memory.size;
        book.called();
        // SAFETY: nobody uses the page any more; it has 8 bytes at least.
        unsafe { stamp(memory.mapped, memory.size, u64::MAX) };
        let layout = Self::layout(memory.size);
        book.spare[layout.size().trailing_zeros() as usize].push(Block(memory.mapped, layout));
        Ok(())
    }

    fn completed(&self, timeline: u32) -> Option<u64> {
        Some(self.reached(timeline as usize))
    }

    fn can_fill(&self) -> bool {
        true
    }

    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        // SAFETY: the range lies in the page, and nobody else uses it.
        unsafe { request.memory.mapped.add(request.offset as usize).write_bytes(0, request.size as usize) };
        Ok(None)
    }
}
