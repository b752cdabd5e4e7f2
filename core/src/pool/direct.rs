//! The rules of direct pools: one page for each slice, of its size exactly.
#![forbid(unsafe_code)]

use crate::parts::Part;

/// The effective configuration of a direct pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct {
    /// Bytes above which free pages go back when none of them has the size; `None`: no such watermark.
    pub(crate) reclaim_at: Option<u64>,
    /// Bytes of the largest page there can be: a multiple of the granule.
    pub(crate) limit: u64,
    pub(crate) part: Part,
}
