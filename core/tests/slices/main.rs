//! Slices: where they lie, what is written into them, their handles; and dry runs, where they have places only.

#[path = "../common/mod.rs"]
mod common;

mod alignment;
mod batches;
mod debugging;
mod filling;
mod finding;
mod fit;
mod handles;
mod persistent;
mod planning;
mod resolve;
