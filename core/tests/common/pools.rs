//! Allocators with pools of granule 32 on a device whose pages have at most 128 MiB.

use super::M;
use super::devices::LedgerDevice;
use slicepool_core::{Allocator, AllocatorOptions, Device, Error, MemoryType, PoolOptions, Request, Slice, SliceId};

/// Largest page 128 MiB, alignment 32.
pub(crate) const MEMORY: MemoryType = MemoryType::new(128 * M, 32);

pub(crate) const fn sliced(page_size: u64, max_slice_size: u64, max_pool_size: Option<u64>) -> PoolOptions {
    PoolOptions::sliced_pages(page_size, max_slice_size, max_pool_size).with_granule(32)
}

pub(crate) const fn growing(page_size: u64, max_page_size: u64) -> PoolOptions {
    PoolOptions::growing_pages(page_size, max_page_size).with_granule(32)
}

pub(crate) const fn exclusive(max_alloc_size: u64) -> PoolOptions {
    PoolOptions::exclusive_pages(max_alloc_size).with_granule(32)
}

pub(crate) const fn direct(reclaim_at: Option<u64>) -> PoolOptions {
    PoolOptions::direct(reclaim_at).with_granule(32)
}

/// A pool of each kind, with its name. All take requests of 1 to 2^16 bytes; the first two have room for 2^20.
pub(crate) const KINDS: [(&str, PoolOptions); 7] = [
    ("sliced", sliced(1 << 16, 1 << 16, None)),
    ("capped", sliced(1 << 16, 1 << 16, Some(1 << 20))),
    ("growing", growing(1 << 14, 1 << 18)),
    ("growing up to a cap", capped(growing(1 << 14, 1 << 18), 1 << 20)),
    ("exclusive", exclusive(1 << 16)),
    ("direct", direct(None)),
    ("direct with a watermark", direct(Some(1 << 18))),
];

/// A growing pool with a cap.
pub(crate) const fn capped(mut options: PoolOptions, cap: u64) -> PoolOptions {
    if let slicepool_core::PoolType::SlicedPages { max_pool_size, .. } = &mut options.pool_type {
        *max_pool_size = Some(cap);
    }
    options
}

pub(crate) fn options() -> AllocatorOptions {
    AllocatorOptions::default().with_memory_type(MEMORY)
}

pub(crate) fn over<'a>(device: &'a LedgerDevice, pools: &[PoolOptions]) -> Allocator<&'a LedgerDevice> {
    Allocator::try_new(device, pools, options()).unwrap()
}

pub(crate) fn place<D: Device>(allocator: &Allocator<D>, size: u64) -> Slice {
    allocator.allocate(&Request::new(size)).unwrap()
}

pub(crate) fn allocate<D: Device>(allocator: &Allocator<D>, size: u64) -> SliceId {
    place(allocator, size).id
}

/// Allocates and frees at once; the slice that was.
pub(crate) fn touch<D: Device>(allocator: &Allocator<D>, size: u64) -> Slice {
    let slice = place(allocator, size);
    allocator.free(slice.id).unwrap();
    slice
}

pub(crate) fn free_all<D: Device>(allocator: &Allocator<D>, slices: &[Slice]) {
    for slice in slices {
        allocator.free(slice.id).unwrap();
    }
}

/// The capacity error with no growth under way.
pub(crate) fn full(size: u64, capacity: u64, in_use: u64, largest_free: u64) -> Error {
    Error::PoolCapacityExceeded { size, capacity, in_use, pending: 0, largest_free, growths_in_flight: 0 }
}
