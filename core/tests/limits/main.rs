//! Limits on what is held, and memory that is short: what is tried before a request is refused.

#[path = "../common/mod.rs"]
mod common;

mod budget;
mod growth_flags;
mod heaps;
mod shared;
mod short;
mod short_callbacks;
mod short_device;
mod short_help;
