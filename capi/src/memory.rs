//! What memory a device has: its types, its heaps, and how large shared blocks are.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::budget::limit;
use crate::result::{finish, slicepool_result};
use slicepool_core::{AllocationSizes, DeviceLayout, Heap, MemoryType};

/// The host sees the memory.
pub const SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE: u32 = 1;
/// The CPU may see a page at any address, which says nothing of how the page is aligned for the device (Vulkan).
/// Otherwise `mapped` of a page without an address has to be aligned as the page was asked for.
pub const SLICEPOOL_MEMORY_TYPE_MAPPED_ANYWHERE: u32 = 2;

/// One kind of memory of a device. All zero but `struct_size` is a good start.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_memory_type {
    /// sizeof(slicepool_memory_type), set by the caller.
    pub struct_size: u32,
    /// Position of the heap that the memory is taken from.
    pub heap: u32,
    /// The largest page the device gives out; 0: no limit.
    pub max_page: u64,
    /// Every page is asked for at a multiple of this power of two, which is also the largest alignment a request may
    /// have (unless a pool's granule is larger); 0: 4096.
    pub page_alignment: u64,
    /// Linear and optimal resources never share a range of this many bytes at a multiple of it (Vulkan's
    /// bufferImageGranularity): a power of two of at most 2^32; 0: 1. Above a pool's granule, the two kinds have pages
    /// of their own if there are pools for each (slicepool_pool_options.kinds); in a pool for both it takes the
    /// granule's place.
    pub granularity: u64,
    /// What is flushed and invalidated are multiples of this many bytes, a power of two of at most 2^32; 0 and 1: the
    /// memory is coherent, and nothing has to be. No pool has a smaller granule, so that nobody flushes another's
    /// bytes.
    pub non_coherent_atom: u64,
    /// What the memory is like, in bits of the program's own (VkMemoryPropertyFlags, say), which requests select by.
    pub properties: u32,
    /// SLICEPOOL_MEMORY_TYPE_ flags.
    pub flags: u32,
}

/// What several memory types share: the memory they are taken from.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_heap {
    /// sizeof(slicepool_heap), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Bytes; 0: not known. A request above it is too large, and blocks are an eighth of it at most, but not below 4
    /// MiB.
    pub size: u64,
    /// Bytes that the allocator may hold of it; 0: as many as the device gives.
    pub limit: u64,
}

/// The sizes of shared memory blocks: of each memory type the first block has the smallest, and the next has twice that
/// for every block that the type has at that time, up to seven times and to the maximum.
///
/// Sizes are clamped to 4 MiB and 256 MiB, and then rounded up to a multiple of 4 MiB. They are what is asked for;
/// slicepool_allocation_sizes_adjust() tells what is used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_allocation_sizes {
    /// sizeof(slicepool_allocation_sizes), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// The smallest block of memory that the host does not see; 0: 256 MiB.
    pub min_device_memblock_size: u64,
    /// The largest; 0: the same.
    pub max_device_memblock_size: u64,
    /// The smallest block of memory that the host sees; 0: 64 MiB.
    pub min_host_memblock_size: u64,
    /// The largest; 0: the same.
    pub max_host_memblock_size: u64,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers.
unsafe impl Struct for slicepool_memory_type {
    const NAME: &'static core::ffi::CStr = c"memory_types";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_heap {
    const NAME: &'static core::ffi::CStr = c"heaps";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_allocation_sizes {
    const NAME: &'static core::ffi::CStr = c"sizes";
}

impl slicepool_memory_type {
    fn to_core(self) -> Result<MemoryType, Refusal> {
        if self.flags & !(SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE | SLICEPOOL_MEMORY_TYPE_MAPPED_ANYWHERE) != 0 {
            return Err(invalid(c"flags", u64::from(self.flags)));
        }
        let or = |value: u64, default| if value == 0 { default } else { value };
        Ok(MemoryType::new(or(self.max_page, u64::MAX), or(self.page_alignment, MemoryType::DEFAULT_ALIGNMENT))
            .in_heap(self.heap)
            .with_properties(self.properties)
            .with_host_visible(self.flags & SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE != 0)
            .with_mapped_anywhere(self.flags & SLICEPOOL_MEMORY_TYPE_MAPPED_ANYWHERE != 0)
            .with_granularity(self.granularity.max(1))
            .with_non_coherent_atom(self.non_coherent_atom.max(1)))
    }
}

impl slicepool_heap {
    fn to_core(self) -> Result<Heap, Refusal> {
        if self.reserved != 0 {
            return Err(invalid(c"reserved", u64::from(self.reserved)));
        }
        Ok(Heap::new(if self.size == 0 { u64::MAX } else { self.size }).with_limit(limit(self.limit)))
    }
}

impl slicepool_allocation_sizes {
    /// The sizes as core's.
    pub(crate) fn to_core(self) -> Result<AllocationSizes, Refusal> {
        if self.reserved != 0 {
            return Err(invalid(c"reserved", u64::from(self.reserved)));
        }
        let or = |value: u64, default| if value == 0 { default } else { value };
        let default = AllocationSizes::default();
        let mut sizes = AllocationSizes::new(
            or(self.min_device_memblock_size, default.min_device_memblock_size()),
            or(self.min_host_memblock_size, default.min_host_memblock_size()),
        );
        if self.max_device_memblock_size != 0 {
            sizes = sizes.with_max_device_memblock_size(self.max_device_memblock_size);
        }
        if self.max_host_memblock_size != 0 {
            sizes = sizes.with_max_host_memblock_size(self.max_host_memblock_size);
        }
        Ok(sizes)
    }
}

#[cfg(feature = "complete")]
impl slicepool_allocation_sizes {
    /// What is asked for.
    pub(crate) fn as_list(&self) -> [u64; 4] {
        [
            self.min_device_memblock_size,
            self.max_device_memblock_size,
            self.min_host_memblock_size,
            self.max_host_memblock_size,
        ]
    }
}

/// The caller's memory types and heaps as core's.
pub(crate) struct Memory {
    types: [MemoryType; DeviceLayout::MAX_TYPES],
    type_count: usize,
    heaps: [Heap; DeviceLayout::MAX_HEAPS],
    heap_count: usize,
}

impl Memory {
    /// # Safety
    /// The arrays have as many structs of equal size as their counts say.
    #[cold]
    pub(crate) unsafe fn read(
        types: *const slicepool_memory_type,
        type_count: u32,
        heaps: *const slicepool_heap,
        heap_count: u32,
    ) -> Result<Self, Refusal> {
        let mut memory = Self {
            types: [MemoryType::default(); DeviceLayout::MAX_TYPES],
            type_count: type_count as usize,
            heaps: [Heap::new(u64::MAX); DeviceLayout::MAX_HEAPS],
            heap_count: heap_count as usize,
        };
        // SAFETY: passed on from the caller.
        unsafe {
            if type_count as usize > memory.types.len() {
                return Err(invalid(c"memory_type_count", u64::from(type_count)));
            }
            if heap_count as usize > memory.heaps.len() {
                return Err(invalid(c"heap_count", u64::from(heap_count)));
            }
            if type_count != 0 {
                let stride = abi::struct_size(types)?;
                for (i, to) in (0..type_count).zip(&mut memory.types) {
                    *to = abi::element(types, stride, i)?.to_core()?;
                }
            }
            if heap_count != 0 {
                let stride = abi::struct_size(heaps)?;
                for (i, to) in (0..heap_count).zip(&mut memory.heaps) {
                    *to = abi::element(heaps, stride, i)?.to_core()?;
                }
            }
        }
        Ok(memory)
    }

    /// Memory of one kind only.
    pub(crate) fn of_one(memory_type: MemoryType, heap: Heap) -> Self {
        let types = [memory_type; DeviceLayout::MAX_TYPES];
        Self { types, type_count: 1, heaps: [heap; DeviceLayout::MAX_HEAPS], heap_count: 1 }
    }

    pub(crate) fn layout(&self) -> DeviceLayout<'_> {
        let types = self.types.get(..self.type_count).unwrap_or_default();
        DeviceLayout::new(types, self.heaps.get(..self.heap_count).unwrap_or_default())
    }
}

/// What is used of the sizes that are asked for: clamped, rounded, and with their defaults.
///
/// @param asked  read only; may be NULL for the defaults
/// @param used   filled in; its struct_size must be set; may be `asked`
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_VERSION_MISMATCH
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_allocation_sizes_adjust(
    asked: *const slicepool_allocation_sizes,
    used: *mut slicepool_allocation_sizes,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let size = abi::struct_size(used)?;
            let sizes = read_sizes(asked)?;
            let used_sizes = slicepool_allocation_sizes {
                struct_size: size,
                reserved: 0,
                min_device_memblock_size: sizes.min_device_memblock_size(),
                max_device_memblock_size: sizes.max_device_memblock_size(),
                min_host_memblock_size: sizes.min_host_memblock_size(),
                max_host_memblock_size: sizes.max_host_memblock_size(),
            };
            abi::write(used, size, &used_sizes);
            Ok(())
        })()
    })
}

/// Bytes of the next block of a memory type.
///
/// @param sizes    read only; may be NULL for the defaults
/// @param is_host  1 if the host sees the memory, otherwise 0
/// @param count    shared blocks that the type has
/// @param bytes    set on success
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_VERSION_MISMATCH
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_memblock_size(
    sizes: *const slicepool_allocation_sizes,
    is_host: u32,
    count: u32,
    bytes: *mut u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let bytes = abi::out(bytes, c"bytes")?;
            if is_host > 1 {
                return Err(invalid(c"is_host", u64::from(is_host)));
            }
            bytes.write(read_sizes(sizes)?.memblock_size(is_host == 1, count as usize));
            Ok(())
        })()
    })
}

/// # Safety
/// `sizes` is NULL or points to a struct.
pub(crate) unsafe fn read_sizes(sizes: *const slicepool_allocation_sizes) -> Result<AllocationSizes, Refusal> {
    // SAFETY: passed on from the caller.
    if sizes.is_null() { Ok(AllocationSizes::default()) } else { unsafe { abi::read(sizes)? }.to_core() }
}

/// sizeof(slicepool_memory_type) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_memory_type() -> u32 {
    size_of::<slicepool_memory_type>() as u32
}

/// sizeof(slicepool_heap) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_heap() -> u32 {
    size_of::<slicepool_heap>() as u32
}

/// sizeof(slicepool_allocation_sizes) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_allocation_sizes() -> u32 {
    size_of::<slicepool_allocation_sizes>() as u32
}
