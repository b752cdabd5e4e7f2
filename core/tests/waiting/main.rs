//! Slices that were freed but wait for the device.

#[path = "../common/mod.rs"]
mod common;

mod block;
mod due;
mod memory;
mod pages;
