//! Memory pools for memory that the CPU may not be able to touch.
//!
//! A [`Device`] gives out *pages*: GPU memory, a firmware heap, pinned host memory. An [`Allocator`] cuts them into
//! [`Slice`]s, joins freed slices again, and keeps its books in host memory, never in the device's. Allocating and
//! freeing take constant time; nothing that fits is refused; the same calls give the same placements.
//!
//! ```
//! use slicepool_core::{Allocator, AllocatorOptions, Device, DeviceError, DeviceMemory, PageRequest};
//! use slicepool_core::{PoolOptions, Request};
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! /// Stands for a GPU driver.
//! struct Gpu(AtomicU64);
//!
//! impl Device for Gpu {
//!     fn allocate(&self, _: &PageRequest) -> Result<DeviceMemory, DeviceError> {
//!         Ok(DeviceMemory::new(self.0.fetch_add(1, Ordering::Relaxed)))
//!     }
//!     fn deallocate(&self, _: &DeviceMemory) -> Result<(), DeviceError> {
//!         Ok(())
//!     }
//! }
//!
//! let pools = [PoolOptions::sliced_pages(64 << 20, 64 << 20, None)];
//! let allocator = Allocator::try_new(Gpu(AtomicU64::new(0)), &pools, AllocatorOptions::default())?;
//! let vertices = allocator.allocate(&Request::new(300_000))?;
//! let texture = allocator.allocate(&Request::new(1 << 20).aligned(4096))?;
//! assert_eq!(vertices.memory, texture.memory);
//! allocator.free(vertices.id)?;
//! # Ok::<(), slicepool_core::Error>(())
//! ```
//!
//! # Where to look
//!
//! - [`Allocator`]: pools over a device. [`PoolOptions`] say what a pool is like, [`layout`] has lists of them ready,
//!   [`AllocatorOptions`] say where the books are kept ([`HostMemory`]) and how threads are kept apart ([`LockKind`]).
//! - [`DeviceLayout`]: devices with several [`MemoryType`]s and [`Heap`]s; [`AllocationSizes`] and [`layout::blocks`] for shared
//!   blocks in each of them.
//! - [`BufferPool`]: fixed-capacity classes of recyclable buffers, for I/O, DMA and registered memory.
//! - [`Space`]: the slicer alone, for any space of indices, without a device.
//! - [`Statistics`], [`Allocator::walk`], [`Allocator::write_json`], [`Allocator::find`], [`Event`]: what is going on.
//! - `docs/algorithm.md` and `docs/guarantees.md` in the repository: how it works, and what is promised.
//!
//! # Errors
//!
//! [`Error`] has one variant per cause that a caller can act on, with its numbers. A call that fails has changed
//! nothing. Host memory running out is an error too, never an abort.
//!
//! # Features
//!
//! - `complete`, on by default: everything an [`Allocator`] can do beside pools of equal pages of one kind of memory. For the
//!   smallest firmware; whatever is asked for without it is refused with [`Error::NotSupported`], [`BufferPool`]s among it.
//! - `std`: [`BufferPool`]s can have a cache for every thread that uses them.
//! - `portable-atomic` takes atomics from that crate, for cores without compare-and-swap; `critical-section` makes it use the
//!   program's critical sections.

#![no_std]
#![warn(missing_docs)]

#[cfg(any(test, feature = "std"))]
extern crate std;

mod allocator;
mod arena;
mod budget;
mod buffer;
mod canary;
mod clock;
pub mod device;
mod error;
mod event;
mod int;
pub mod layout;
mod ledger;
mod metadata;
mod parts;
mod pool;
mod report;
mod sizes;
mod slice;
mod slicer;
mod slots;
mod space;
mod sync;

pub use allocator::{
    Allocator, AllocatorOptions, Batch, BatchError, Debugging, LiveSlices, NewPools, OwnPages, PERSISTENT_POOL,
    PoolSource, block_bytes, block_bytes_of, block_bytes_with,
};
pub use arena::BlockStatistics;
pub use budget::{Budget, BudgetStatistics};
pub use buffer::config::{BufferConfigError, BufferPoolClassConfig, BufferPoolConfig, ThreadCache};
#[cfg(feature = "std")]
pub use buffer::flush_thread_caches;
pub use buffer::{
    BufferCache, BufferClassStatistics, BufferId, BufferPool, BufferPoolError, BufferPoolStatistics, BufferRegion,
    PooledBuffer, RawBuffer,
};
pub use device::{
    CacheRange, Device, DeviceError, DeviceLayout, DeviceMemory, FillReason, FillRequest, Heap, HeapBudget, HostDevice,
    MemoryType, PageRequest, Shortage,
};
pub use error::{DeviceFault, Error};
pub use event::{Event, EventKind, Label, Name};
pub use metadata::{HostAllocateFn, HostDeallocateFn, HostMemory};
pub use pool::{NearPage, PageGrowth, PoolKinds, PoolOptions, PoolType, Range};
pub use report::{HeapReport, PoolReport, Statistics};
pub use sizes::AllocationSizes;
pub use slice::{MemoryChoice, Request, ResourceKind, Slice};
pub use slicer::timelines::Point;
pub use slots::SliceId;
pub use space::{Space, SpaceOptions, SpacePiece, SpaceSlice, SpaceStatistics};
pub use sync::{BackOffFn, LockFn, LockKind, back_off};
