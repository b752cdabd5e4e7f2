//! Where a request goes: which memory types suit it, in which order, and which of their pools take it.

use super::own_pages::{OwnPages, Types};
use super::{Allocator, Cell};
use crate::device::{Device, DeviceLayout};
use crate::error::Error;
use crate::slice::Request;

/// The pools of one memory type that a request goes to.
#[derive(Clone, Copy)]
pub(super) struct Route<'a> {
    cells: &'a [Cell],
    /// Which of them; `None`: all.
    memory_type: Option<u32>,
}

impl<'a> Route<'a> {
    fn to(cell: &'a Cell) -> Self {
        Self { cells: core::slice::from_ref(cell), memory_type: None }
    }

    pub(super) fn iter(self) -> impl Iterator<Item = &'a Cell> {
        let Self { cells, memory_type } = self;
        cells.iter().filter(move |cell| memory_type.is_none_or(|wanted| cell.rules.memory_type == wanted))
    }
}

/// Where in the list the pools of a memory type are: all between these two, others may be among them.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    first: u16,
    end: u16,
}

impl Span {
    /// The spans of all memory types.
    #[cold]
    pub(super) fn of_types(cells: &[Cell]) -> [Span; DeviceLayout::MAX_TYPES] {
        let mut spans = [Span::default(); DeviceLayout::MAX_TYPES];
        for (i, cell) in cells.iter().enumerate() {
            if let Some(span) = spans.get_mut(cell.rules.memory_type as usize) {
                span.first = if span.end == 0 { i as u16 } else { span.first };
                span.end = i as u16 + 1;
            }
        }
        spans
    }
}

/// The memory types that suit a request, in the order in which they are tried.
pub(super) struct Candidates<'a> {
    types: &'a Types,
    /// Those that have not been tried.
    left: u32,
    preferred: u32,
}

impl Iterator for Candidates<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.left == 0 {
            return None;
        }
        let mut best = self.left.trailing_zeros();
        if self.preferred != 0 {
            best = self.best();
        }
        self.left &= !(1 << best);
        Some(best)
    }
}

impl Candidates<'_> {
    /// The type that lacks the fewest of the preferred properties; of equal ones the first. There is one.
    #[inline]
    fn best(&self) -> u32 {
        let (mut best, mut least) = (self.left.trailing_zeros(), u32::MAX);
        for (i, &properties) in self.types.properties().iter().enumerate() {
            let lacks = (self.preferred & !properties).count_ones();
            if self.left >> i & 1 != 0 && lacks < least {
                (best, least) = (i as u32, lacks);
            }
        }
        best
    }
}

/// Why a memory type, of whose heap not even a granule can be had, does not serve a request.
#[cold]
pub(super) fn without_a_page(request: &Request, error: Error) -> Error {
    match error {
        Error::InvalidArgument { field, .. } if field == c"max_page" => {
            Error::TooLarge { size: request.size, limit: 0 }
        }
        other => other,
    }
}

impl<D: Device> Allocator<D> {
    /// The memory types that a request may be served from.
    #[inline]
    pub(super) fn candidates(&self, request: &Request) -> Result<Candidates<'_>, Error> {
        let choice = request.memory();
        let mut left = 0;
        for (i, &properties) in self.types.properties().iter().enumerate() {
            let suits = (properties & choice.required == choice.required) & (properties & choice.forbidden == 0);
            left |= u32::from(suits) << i;
        }
        left &= choice.types;
        if request.pool.is_some() {
            left &= self.type_of_named_pool(request)?;
        }
        if left == 0 {
            return Err(Error::NotSupported { what: c"memory_types" });
        }
        Ok(Candidates { types: &self.types, left, preferred: choice.preferred })
    }

    /// The bit of the memory type of the one pool that a request names.
    #[cold]
    fn type_of_named_pool(&self, request: &Request) -> Result<u32, Error> {
        let index = request.pool.unwrap_or(0);
        if request.is_persistent() || request.is_dedicated() {
            return Err(Error::InvalidArgument { field: c"pool", value: u64::from(index) });
        }
        Ok(1 << self.named_pool(index)?.rules.memory_type)
    }

    /// The pools of a memory type that a request goes to.
    pub(super) fn route(&self, memory_type: u32, request: &Request) -> Result<Route<'_>, Error> {
        if let Some(pages) = Self::own_pages_for(request) {
            return self.need_own_for(memory_type, pages, request);
        }
        let route = self.listed_route(memory_type, request)?;
        if self.options.dedicated_when_too_large && self.is_too_large(route, request) {
            return self.need_own_for(memory_type, OwnPages::Dedicated, request);
        }
        Ok(route)
    }

    fn need_own_for(&self, memory_type: u32, pages: OwnPages, request: &Request) -> Result<Route<'_>, Error> {
        self.need_own(memory_type, pages).map(Route::to).map_err(|error| without_a_page(request, error))
    }

    /// The pages of its own that a request asks for.
    #[inline]
    pub(super) fn own_pages_for(request: &Request) -> Option<OwnPages> {
        match (request.device_data().is_null(), request.is_persistent(), request.is_dedicated()) {
            (false, ..) => Some(OwnPages::Once),
            (_, true, _) => Some(OwnPages::Persistent),
            (_, _, true) => Some(OwnPages::Dedicated),
            _ => None,
        }
    }

    /// The pools of the list that a request goes to.
    #[inline]
    pub(super) fn listed_route(&self, memory_type: u32, request: &Request) -> Result<Route<'_>, Error> {
        match request.pool {
            Some(index) => self.named_pool(index).map(Route::to),
            None => {
                let Span { first, end } = self.spans.get(memory_type as usize).copied().unwrap_or_default();
                let cells = self.pools.as_slice().get(usize::from(first)..usize::from(end)).unwrap_or_default();
                Ok(Route { cells, memory_type: Some(memory_type) })
            }
        }
    }

    /// Whether the request goes to any pool, and is larger than what all of them take.
    pub(super) fn is_too_large(&self, route: Route<'_>, request: &Request) -> bool {
        let takes = |cell: &Cell| {
            let fit = cell.rules.fit(request);
            !matches!(fit, Err(Error::TooLarge { .. } | Error::NotSupported { .. }))
        };
        request.pool.is_none() && !route.iter().any(takes)
    }
}
