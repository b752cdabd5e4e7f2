//! What pools do with requests, as the documentation of their options has it; `sliced` and `whole` are about the kinds.

use crate::ops::Scale;
use crate::shapes::{KindShape, PoolShape, Shape};
use crate::sliced::Sliced;
use crate::whole::{Direct, Exclusive};
use slicepool_core::{Error, Request};

/// The rules of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Sliced(Sliced),
    Exclusive(Exclusive),
    Direct(Direct),
}

/// The rules of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) kind: Kind,
    pub(crate) granule: u64,
    pub(crate) page_alignment: u64,
    /// Allocations from one check of age to the next, where pages age.
    pub(crate) interval: Option<u64>,
    /// Bytes that ageing leaves.
    pub(crate) keep_bytes: u64,
}

impl Rules {
    pub(crate) fn new(pool: &PoolShape, shape: &Shape) -> Self {
        let granule = pool.granule;
        // What the device gives, in at most 2^32 - 1 granules.
        let most = u128::from(u32::MAX) * u128::from(granule);
        let limit = (shape.max_page / granule * granule).min(u64::try_from(most).unwrap_or(u64::MAX));
        let kind = match pool.kind {
            KindShape::Sliced { .. } => Kind::Sliced(Sliced::new(&pool.kind, granule, limit)),
            KindShape::Exclusive { max_alloc_size } => Kind::Exclusive(Exclusive::new(max_alloc_size, granule, limit)),
            KindShape::Direct { reclaim_at } => Kind::Direct(Direct { reclaim_at, limit, granule }),
        };
        Self {
            kind,
            granule,
            page_alignment: shape.page_alignment.max(granule),
            interval: pool.dealloc_period.map(|period| (period / 5).clamp(1, 1 << 30)),
            keep_bytes: pool.keep_bytes,
        }
    }

    /// Whether every slice has a page of its own.
    pub(crate) fn whole_pages(&self) -> bool {
        !matches!(self.kind, Kind::Sliced(_))
    }

    /// The error for a request that the pool never takes.
    pub(crate) fn refusal(&self, request: &Request) -> Option<Error> {
        let Request { size, alignment, .. } = *request;
        let refusal = match &self.kind {
            Kind::Sliced(sliced) => sliced.refusal(size),
            Kind::Exclusive(exclusive) => exclusive.refusal(size),
            Kind::Direct(direct) => direct.refusal(size),
        };
        let too_strict = alignment > self.page_alignment;
        refusal.or_else(|| too_strict.then_some(Error::InvalidArgument { field: c"alignment", value: alignment }))
    }

    /// Bytes of the next page, which is for a request of `size` bytes, when the pool holds `reserved` bytes; `None` at
    /// its cap.
    pub(crate) fn next_page(&self, size: u64, reserved: u128) -> Option<u64> {
        let page = match &self.kind {
            Kind::Sliced(sliced) => sliced.next_page(size, reserved)?,
            Kind::Exclusive(exclusive) => exclusive.page_for(size),
            Kind::Direct(direct) => direct.page_for(size),
        };
        // Figures have 64 bits.
        let counts = reserved + u128::from(page) <= u128::from(u64::MAX);
        counts.then_some(page)
    }

    /// The cap, as errors name it.
    pub(crate) fn capacity(&self) -> u64 {
        if let Kind::Sliced(sliced) = &self.kind { sliced.cap.unwrap_or(u64::MAX) } else { u64::MAX }
    }

    /// What sizes for this pool are measured against.
    pub(crate) fn scale(&self) -> Scale {
        let (page, largest_slice) = match &self.kind {
            Kind::Sliced(sliced) => (sliced.page, sliced.max_slice),
            Kind::Exclusive(exclusive) => (exclusive.largest, exclusive.max_alloc_size),
            Kind::Direct(direct) => (direct.reclaim_at.unwrap_or(0).max(self.granule * 100), direct.limit),
        };
        Scale { granule: self.granule, page, largest_slice, page_alignment: self.page_alignment }
    }
}

/// Of the errors of several pools the one that is reported.
pub(crate) fn reported(errors: &[Error]) -> Error {
    let rank = |error: &Error| match error {
        Error::OutOfHostMemory { .. } | Error::TooManySlices { .. } => 0,
        Error::OutOfDeviceMemory { .. } | Error::DeviceFailed { .. } => 1,
        Error::BudgetExceeded { .. } => 2,
        Error::PageCountExceeded { .. } => 3,
        Error::PoolCapacityExceeded { .. } => 4,
        Error::TooLarge { .. } => 6,
        _ => 5,
    };
    let limit = |error: &Error| if let Error::TooLarge { limit, .. } = *error { u64::MAX - limit } else { 0 };
    *errors.iter().min_by_key(|error| (rank(error), limit(error))).expect("there is a pool")
}
