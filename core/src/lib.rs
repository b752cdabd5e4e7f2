//! Memory pools for memory that the CPU may not be able to touch.

#![no_std]
#![warn(missing_docs)]

#[cfg(test)]
extern crate std;

mod allocator;
pub mod device;
mod error;
mod int;
mod ledger;
mod metadata;
mod pool;
mod report;
mod slice;
mod slicer;
mod slots;
mod space;
mod sync;

pub use allocator::{Allocator, AllocatorOptions, Batch, BatchError};
pub use device::{Device, DeviceError, DeviceMemory, HostDevice, MemoryType, PageRequest};
pub use error::{DeviceFault, Error};
pub use metadata::{HostAllocateFn, HostDeallocateFn, HostMemory};
pub use pool::{NearPage, PoolOptions, PoolType, Range};
pub use report::Statistics;
pub use slice::{Request, Slice};
pub use slots::SliceId;
pub use space::{Space, SpaceOptions, SpaceSlice, SpaceStatistics};
pub use sync::{BackOffFn, LockFn, LockKind, back_off};
