//! Allocators over a device that logs what it is asked for.

use super::devices::{LoggedDevice, NONE_LEFT};
use slicepool_core::{Allocator, AllocatorOptions, Error, PoolOptions, Request, Slice};

pub(crate) type Short<'a> = Allocator<&'a LoggedDevice>;

pub(crate) fn over<'a>(device: &'a LoggedDevice, pools: &[PoolOptions]) -> Short<'a> {
    Allocator::try_new(device, pools, AllocatorOptions::default()).unwrap()
}

pub(crate) fn place(allocator: &Short, size: u64) -> Slice {
    allocator.allocate(&Request::new(size)).unwrap()
}

pub(crate) fn place_in(allocator: &Short, size: u64, pool: u32) -> Slice {
    allocator.allocate(&Request::new(size).in_pool(pool)).unwrap()
}

pub(crate) fn free_all<'a>(allocator: &Short, slices: impl IntoIterator<Item = &'a Slice>) {
    for slice in slices {
        allocator.free(slice.id).unwrap();
    }
}

/// The error of a device that has nothing left.
pub(crate) fn none_left(size: u64) -> Error {
    Error::OutOfDeviceMemory { size, code: NONE_LEFT }
}
