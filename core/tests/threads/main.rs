//! Several threads in one allocator, or under one limit.

#[path = "../common/mod.rs"]
mod common;

mod budget;
mod mapping;
mod mixed;
mod shared;
mod waiting;
