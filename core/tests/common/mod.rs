//! Devices, host memory and locks that watch what an allocator does with them, for all test crates.
//!
//! Tests declare what watches before what is watched, so that it is dropped after.
#![allow(dead_code, reason = "every test crate uses its own part of this")]

pub(crate) mod books;
pub(crate) mod devices;
pub(crate) mod filler;
pub(crate) mod host;
pub(crate) mod json;
pub(crate) mod listening;
pub(crate) mod lock;
pub(crate) mod mapped;
pub(crate) mod meeting;
pub(crate) mod memory;
pub(crate) mod pools;
pub(crate) mod random;
pub(crate) mod reentrant;
pub(crate) mod replay;
pub(crate) mod shaky;
pub(crate) mod short;
pub(crate) mod sums;
pub(crate) mod waiting;

/// 2^10 bytes.
pub(crate) const K: u64 = 1 << 10;
/// 2^20 bytes.
pub(crate) const M: u64 = 1 << 20;
/// 2^30 bytes.
pub(crate) const G: u64 = 1 << 30;
