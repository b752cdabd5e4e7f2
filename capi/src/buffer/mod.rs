//! Buffer pools: fixed-capacity pools of recyclable buffers.

// In the order of the header.
pub mod config;

pub mod classes;

pub mod pool;

pub mod cache;

pub mod raw;

pub mod statistics;
