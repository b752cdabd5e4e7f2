//! Every handle that was ever given out, and what it stands for.

use crate::oracle::{Checked, ensure};
use slicepool_core::Error;
use std::collections::HashMap;

/// Where a live slice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pool: usize,
    pub(crate) page: u64,
    pub(crate) offset: u64,
}

/// Every handle ever given out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handles {
    places: HashMap<u64, Place>,
    /// Live handles, so that a number can choose one.
    pub(crate) live: Vec<u64>,
    /// Handles of slices that were freed, and their pools.
    freed: HashMap<u64, usize>,
    pub(crate) stale: Vec<u64>,
    /// Whether there are freed ones that were never given out.
    pub(crate) some_unseen: bool,
}

impl Handles {
    pub(crate) fn add(&mut self, id: u64, place: Place) -> Checked {
        ensure!(!self.freed.contains_key(&id), "the freed handle {id:#x} was given out again");
        ensure!(self.places.insert(id, place).is_none(), "the handle {id:#x} was given out twice");
        self.live.push(id);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let place = self.places.remove(&id).expect("the oracle knows the handle");
        let index = self.live.iter().position(|&live| live == id).expect("the oracle knows the handle");
        self.live.swap_remove(index);
        self.freed.insert(id, place.pool);
        self.stale.push(id);
    }

    /// A slice was freed that nobody has ever seen.
    pub(crate) fn forget_unseen(&mut self, id: u64) {
        self.places.remove(&id);
        self.live.retain(|&live| live != id);
        self.some_unseen = true;
    }

    /// Handles of slices that were freed are remembered only of some pools; those of the others are foreign.
    pub(crate) fn forget_freed(&mut self, is_remembered: impl Fn(usize) -> bool) {
        self.freed.retain(|_, &mut pool| is_remembered(pool));
        self.stale.retain(|id| self.freed.contains_key(id));
    }

    /// What any number is as a handle.
    pub(crate) fn look_up(&self, id: u64) -> Result<Place, Error> {
        match self.places.get(&id) {
            Some(&place) => Ok(place),
            None if self.freed.contains_key(&id) => Err(Error::StaleHandle),
            None => Err(Error::ForeignHandle),
        }
    }
}
