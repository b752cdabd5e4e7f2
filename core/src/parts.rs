//! Parts that a build can leave out.
//!
//! Whether a part is there is a constant, looked at where a request or an option would make use of it, or a value that
//! only exists if it is: what is behind either is not linked otherwise. The functions stay, and answer that it is not
//! supported.
#![forbid(unsafe_code)]

use crate::error::Error;
use core::ffi::CStr;

/// Whether an allocator can do more than pools of equal pages of one kind of memory.
pub(crate) const COMPLETE: bool = cfg!(feature = "complete");

/// A member of what only a complete allocator has: without it, that cannot be made.
#[cfg(feature = "complete")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    There,
}

/// A member of what only a complete allocator has: without it, that cannot be made.
#[cfg(not(feature = "complete"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {}

/// The member, for whoever makes such a thing.
///
/// # Errors
/// [`Error::NotSupported`] if there is none.
#[cfg(feature = "complete")]
pub(crate) fn part(_: &'static CStr) -> Result<Part, Error> {
    Ok(Part::There)
}

/// The member, for whoever makes such a thing.
///
/// # Errors
/// [`Error::NotSupported`] if there is none.
#[cfg(not(feature = "complete"))]
pub(crate) fn part(what: &'static CStr) -> Result<Part, Error> {
    Err(Error::NotSupported { what })
}

/// Refuses what only a complete allocator can do.
pub(crate) fn need_complete(what: &'static CStr) -> Result<(), Error> {
    if COMPLETE { Ok(()) } else { Err(Error::NotSupported { what }) }
}
