//! What allocators call: devices that break the rules, callbacks that call back, host memory.

#[path = "../common/mod.rs"]
mod common;

mod callbacks;
mod host_memory;
mod under_way;
mod unruly;
