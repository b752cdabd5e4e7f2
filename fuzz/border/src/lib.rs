//! The sources of the C library, which is built for C alone, as a library that a fuzz target can link: with the same
//! instrumentation as everything else, and with its structs. What it lacks are its version, and an end for panics.
#![no_std]
#![allow(non_camel_case_types)]
#![allow(clippy::missing_safety_doc)]

#[path = "../../../capi/src/abi.rs"]
pub mod abi;
#[path = "../../../capi/src/allocator.rs"]
pub mod allocator;
#[path = "../../../capi/src/budget.rs"]
pub mod budget;
#[path = "../../../capi/src/buffer/mod.rs"]
pub mod buffer;
#[path = "../../../capi/src/device.rs"]
pub mod device;
#[path = "../../../capi/src/event.rs"]
pub mod event;
#[path = "../../../capi/src/host.rs"]
pub mod host;
#[path = "../../../capi/src/label.rs"]
pub mod label;
#[path = "../../../capi/src/mapping.rs"]
pub mod mapping;
#[path = "../../../capi/src/memory.rs"]
pub mod memory;
#[path = "../../../capi/src/page.rs"]
pub mod page;
#[path = "../../../capi/src/parts.rs"]
mod parts;
#[path = "../../../capi/src/planning.rs"]
pub mod planning;
#[path = "../../../capi/src/pool.rs"]
pub mod pool;
#[path = "../../../capi/src/request.rs"]
pub mod request;
#[path = "../../../capi/src/result.rs"]
pub mod result;
mod runtime;
#[path = "../../../capi/src/slice.rs"]
pub mod slice;
#[path = "../../../capi/src/space.rs"]
pub mod space;
#[path = "../../../capi/src/statistics.rs"]
pub mod statistics;
#[path = "../../../capi/src/waiting.rs"]
pub mod waiting;
