//! Parts that a build can leave out; see `parts` of core.

use crate::abi::Refusal;
use core::ffi::CStr;
use slicepool_core::Error;

/// Whether an allocator can do more than pools of equal pages of one kind of memory.
pub(crate) const COMPLETE: bool = cfg!(feature = "complete");

/// Refuses what only a complete allocator can do, if it is `used`.
pub(crate) fn check_parts(used: bool, what: &'static CStr) -> Result<(), Refusal> {
    if used && !COMPLETE { Err(Error::NotSupported { what }.into()) } else { Ok(()) }
}
