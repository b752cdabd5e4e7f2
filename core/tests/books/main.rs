//! What an allocator tells of itself: reports, events, names; and that nothing grows for ever.

#[path = "../common/mod.rs"]
mod common;

mod events;
mod labels;
mod leaks;
mod replay;
mod reports;
mod schema;
