//! rlsf 0.2.3: a TLSF for host memory, which keeps its books in front of each slice. Neither locked nor checked.

use crate::GRANULE;
use crate::placement::{Place, Placed};
use crate::subjects::Subject;
use rlsf::Tlsf;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

/// Half of its unit: what it aligns to for nothing.
const ALIGNMENT: usize = rlsf::GRANULARITY / 2;

/// Bytes of the system's pages, or fewer.
const PAGE: usize = 4096;

/// Host memory that is there in full, so that nobody waits for the system to find it.
struct Arena {
    start: NonNull<u8>,
    layout: Layout,
}

impl Arena {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, PAGE).expect("it fits the address space");
        // SAFETY: it is not empty.
        let start = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        for offset in (0..bytes).step_by(PAGE) {
            // SAFETY: within the arena. Volatile, so that it is done.
            unsafe { start.add(offset).write_volatile(0) };
        }
        Self { start, layout }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated above with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Size classes in 32 steps, as those of the others.
pub struct InBand {
    tlsf: Tlsf<'static, u32, u32, 28, 32>,
    arena: Arena,
}

impl InBand {
    fn layout(bytes: u64) -> Layout {
        Layout::from_size_align(bytes as usize, ALIGNMENT).expect("a size of the workload")
    }
}

impl Subject for InBand {
    type Handle = NonNull<u8>;
    const NAME: &'static str = "rlsf (in the memory)";

    fn new(bytes: u64, _: usize) -> Self {
        let arena = Arena::new(usize::try_from(bytes.max(GRANULE)).expect("it fits the address space"));
        let mut tlsf = Tlsf::new();
        let all = NonNull::new(ptr::slice_from_raw_parts_mut(arena.start.as_ptr(), arena.layout.size()));
        // SAFETY: the arena is there for as long as the allocator, and nobody else's.
        let given = unsafe { tlsf.insert_free_block_ptr(all.expect("not NULL")) };
        assert!(given.is_some(), "it has room for something");
        Self { tlsf, arena }
    }

    fn allocate(&mut self, bytes: u64) -> Option<Self::Handle> {
        self.tlsf.allocate(Self::layout(bytes))
    }

    fn free(&mut self, handle: Self::Handle) {
        // SAFETY: allocated above with this alignment and freed once.
        unsafe { self.tlsf.deallocate(handle, ALIGNMENT) }
    }
}

impl Placed for InBand {
    const ALIGNMENT: u64 = ALIGNMENT as u64;

    fn place(&self, handle: &Self::Handle, asked: u64) -> Place {
        Place { page: 0, offset: handle.as_ptr() as u64 - self.arena.start.as_ptr() as u64, bytes: asked }
    }

    fn page_bytes(&self, _: u64) -> Option<u64> {
        Some(self.arena.layout.size() as u64)
    }
}
