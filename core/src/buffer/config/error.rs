//! Why a configuration is refused: [`BufferConfigError`].
#![forbid(unsafe_code)]

use crate::error::Error;
use core::fmt;

/// Why there is no such configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferConfigError {
    /// A class has a size that is not a power of two.
    SizeNotPowerOfTwo {
        /// The size in bytes.
        size: u64,
    },
    /// A class has a size above `isize::MAX`.
    SizeTooLarge {
        /// The size in bytes.
        size: u64,
    },
    /// The largest class of a range is below the smallest.
    RangeReversed {
        /// Bytes of what should be the smallest class.
        min: u64,
        /// Bytes of what should be the largest class.
        max: u64,
    },
    /// Two classes of a list have the same size.
    DuplicateSize {
        /// The size in bytes.
        size: u64,
    },
    /// A list of classes is empty.
    NoClasses,
    /// The class to remove is not enabled.
    NotEnabled {
        /// Its size in bytes.
        size: u64,
    },
    /// The class to remove is the only one.
    LastClass {
        /// Its size in bytes.
        size: u64,
    },
    /// The page size is not a power of two of at most 8 MiB.
    PageSize {
        /// The page size in bytes.
        page_size: u64,
    },
    /// So many bytes of a class are more than `u32::MAX` buffers.
    BytesTooLarge {
        /// The bytes asked for.
        bytes: u64,
        /// Size of the class in bytes.
        size: u64,
    },
    /// The budget is less than one buffer of every class.
    BudgetTooSmall {
        /// The budget in bytes.
        budget: u64,
        /// The smallest budget that works, in bytes.
        least: u64,
    },
    /// The budget has room for more than `u32::MAX` buffers of a class.
    BudgetTooLarge {
        /// The budget in bytes.
        budget: u64,
        /// Size of the class in bytes.
        size: u64,
    },
    /// The alignment is not a power of two.
    AlignmentNotPowerOfTwo {
        /// The alignment in bytes.
        alignment: u64,
    },
    /// The alignment is above the smallest class.
    AlignmentTooLarge {
        /// The alignment in bytes.
        alignment: u64,
        /// Bytes of the smallest class.
        min_size: u64,
    },
    /// The smallest pooled request is above the smallest class.
    PoolMinSizeTooLarge {
        /// Bytes of the smallest pooled request.
        pool_min_size: u64,
        /// Bytes of the smallest class.
        min_size: u64,
    },
}

impl fmt::Display for BufferConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SizeNotPowerOfTwo { size } => write!(f, "size not a power of two: a class of {size} bytes"),
            Self::SizeTooLarge { size } => {
                write!(f, "size too large: a class of {size} bytes, at most {} can be addressed", isize::MAX)
            }
            Self::RangeReversed { min, max } => write!(f, "range reversed: classes from {min} to {max} bytes"),
            Self::DuplicateSize { size } => write!(f, "duplicate size: two classes of {size} bytes"),
            Self::NoClasses => f.write_str("no classes: a pool has at least one"),
            Self::NotEnabled { size } => write!(f, "not enabled: there is no class of {size} bytes to remove"),
            Self::LastClass { size } => {
                write!(f, "last class: a pool needs one, and {size} bytes is the only one left")
            }
            Self::PageSize { page_size } => {
                write!(f, "page size not usable: {page_size} is not a power of two of at most 8 MiB")
            }
            Self::BytesTooLarge { bytes, size } => {
                write!(f, "bytes too large: {bytes} are more than {} buffers of {size} bytes", u32::MAX)
            }
            Self::BudgetTooSmall { budget, least } => {
                write!(f, "budget too small: {budget} bytes, one buffer of every class takes {least}")
            }
            Self::BudgetTooLarge { budget, size } => {
                write!(f, "budget too large: {budget} bytes hold more than {} buffers of {size} bytes", u32::MAX)
            }
            Self::AlignmentNotPowerOfTwo { alignment } => write!(f, "alignment not a power of two: {alignment} bytes"),
            Self::AlignmentTooLarge { alignment, min_size } => {
                write!(f, "alignment too large: {alignment} bytes, the smallest class has {min_size}")
            }
            Self::PoolMinSizeTooLarge { pool_min_size, min_size } => {
                write!(f, "pool_min_size too large: {pool_min_size} bytes, the smallest class has {min_size}")
            }
        }
    }
}

impl core::error::Error for BufferConfigError {}

impl From<BufferConfigError> for Error {
    /// Names the argument that is to blame, with its value.
    fn from(error: BufferConfigError) -> Self {
        use BufferConfigError as E;
        let (field, value) = match error {
            E::SizeNotPowerOfTwo { size }
            | E::SizeTooLarge { size }
            | E::DuplicateSize { size }
            | E::NotEnabled { size }
            | E::LastClass { size } => (c"size", size),
            E::RangeReversed { max, .. } => (c"max_size", max),
            E::NoClasses => (c"classes", 0),
            E::PageSize { page_size } => (c"page_size", page_size),
            E::BytesTooLarge { bytes, .. } => (c"bytes", bytes),
            E::BudgetTooSmall { budget, .. } | E::BudgetTooLarge { budget, .. } => (c"budget", budget),
            E::AlignmentNotPowerOfTwo { alignment } | E::AlignmentTooLarge { alignment, .. } => {
                (c"alignment", alignment)
            }
            E::PoolMinSizeTooLarge { pool_min_size, .. } => (c"pool_min_size", pool_min_size),
        };
        Error::InvalidArgument { field, value }
    }
}
