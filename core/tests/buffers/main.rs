//! Buffer pools: every behaviour has a test here, but for what must not take host memory (`buffers_alone`) and what only a
//! configuration says (`buffer_config`).
//!
//! A pool of [`world::World`] is over a device, host memory and locks that keep books: every test ends with all of them
//! in order, and nothing out.

#[path = "../common/mod.rs"]
mod common;

mod caches;
mod closing;
mod exhaustion;
mod failures;
mod figures;
mod growth;
mod handles;
mod memory;
mod model;
mod owners;
mod prefill;
mod routing;
mod stripes;
mod threads;
mod world;
mod zeroing;
