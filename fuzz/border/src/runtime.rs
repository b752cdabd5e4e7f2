//! What the C library takes from its operating system, without an end for panics: Rust has one.

#[allow(dead_code)]
#[path = "../../../capi/src/runtime/hosted.rs"]
mod system;

pub(crate) use system::{default_lock, page_size};
