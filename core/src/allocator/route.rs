//! Where a request goes: which memory types suit it, in which order, and which of their pools take it.

use super::own_pages::{OwnPages, Types};
use super::{Allocator, Cell};
use crate::device::Device;
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

/// The memory types that suit a request, in the order in which they are tried.
pub(super) struct Candidates<'a> {
    types: &'a Types,
    /// Those that have not been tried.
    left: u32,
    preferred: u32,
}

impl Iterator for Candidates<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let mut best = None;
        let mut left = self.left;
        while left != 0 {
            let index = left.trailing_zeros();
            left &= left - 1;
            let Some(one) = self.types.get(index) else { continue };
            let lacks = (self.preferred & !one.memory_type.properties).count_ones();
            if best.is_none_or(|(_, least)| lacks < least) {
                best = Some((index, lacks));
            }
        }
        let (index, _) = best?;
        self.left &= !(1 << index);
        Some(index)
    }
}

impl<D: Device> Allocator<D> {
    /// The memory types that a request may be served from.
    pub(super) fn candidates(&self, request: &Request) -> Result<Candidates<'_>, Error> {
        let choice = request.memory();
        let mut left = 0;
        for (i, one) in self.types.iter().enumerate() {
            let properties = one.memory_type.properties;
            if properties & choice.required == choice.required && properties & choice.forbidden == 0 {
                left |= 1 << i;
            }
        }
        left &= choice.types;
        if let Some(index) = request.pool {
            if request.is_persistent() || request.is_dedicated() {
                return Err(Error::InvalidArgument { field: c"pool", value: u64::from(index) });
            }
            left &= 1 << self.named_pool(index)?.rules.memory_type;
        }
        if left == 0 {
            return Err(Error::NotSupported { what: c"memory_types" });
        }
        Ok(Candidates { types: &self.types, left, preferred: choice.preferred })
    }

    /// The pools of a memory type that a request goes to.
    pub(super) fn route(&self, memory_type: u32, request: &Request) -> Result<Route<'_>, Error> {
        if let Some(pages) = Self::own_pages_for(request) {
            return self.need_own(memory_type, pages).map(Route::to);
        }
        let route = self.listed_route(memory_type, request)?;
        if self.options.dedicated_when_too_large && self.is_too_large(route, request) {
            return self.need_own(memory_type, OwnPages::Dedicated).map(Route::to);
        }
        Ok(route)
    }

    /// The pages of its own that a request asks for.
    pub(super) fn own_pages_for(request: &Request) -> Option<OwnPages> {
        match (request.is_persistent(), request.is_dedicated(), request.device_data().is_null()) {
            (true, ..) => Some(OwnPages::Persistent),
            (_, true, true) => Some(OwnPages::Dedicated),
            (_, true, false) => Some(OwnPages::Once),
            _ => None,
        }
    }

    /// The pools of the list that a request goes to.
    pub(super) fn listed_route(&self, memory_type: u32, request: &Request) -> Result<Route<'_>, Error> {
        match request.pool {
            Some(index) => self.named_pool(index).map(Route::to),
            None => Ok(Route { cells: self.pools.as_slice(), memory_type: Some(memory_type) }),
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
