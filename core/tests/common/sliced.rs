//! Allocators with sliced pools of granule 32 on a device whose pages have at most 128 MiB.

use super::M;
use super::devices::LedgerDevice;
use slicepool_core::{Allocator, AllocatorOptions, Error, MemoryType, PoolOptions, Request, SliceId};

/// Largest page 128 MiB, alignment 32.
pub(crate) const MEMORY: MemoryType = MemoryType::new(128 * M, 32);

pub(crate) fn sliced(page_size: u64, max_slice_size: u64, max_pool_size: Option<u64>) -> PoolOptions {
    PoolOptions::sliced_pages(page_size, max_slice_size, max_pool_size).with_granule(32)
}

pub(crate) fn over<'a>(device: &'a LedgerDevice, pools: &[PoolOptions]) -> Allocator<&'a LedgerDevice> {
    Allocator::try_new(device, pools, AllocatorOptions::default().with_memory_type(MEMORY)).unwrap()
}

pub(crate) fn allocate(allocator: &Allocator<&LedgerDevice>, size: u64) -> SliceId {
    allocator.allocate(&Request::new(size)).unwrap().id
}

/// The capacity error with no growth under way.
pub(crate) fn full(size: u64, capacity: u64, in_use: u64, largest_free: u64) -> Error {
    Error::PoolCapacityExceeded { size, capacity, in_use, largest_free, growths_in_flight: 0 }
}
