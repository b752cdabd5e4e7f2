//! Kinds of memory: types and heaps, blocks and pages of one slice, resources that must not meet, mapping and caches.

#[path = "../common/mod.rs"]
mod common;

mod blocks;
mod blocks_limits;
mod books;
mod caches;
mod granularity;
mod mapping;
mod odd;
mod own_pages;
mod sizes;
mod types;
