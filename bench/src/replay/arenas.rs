//! One arena that grows by what is missing.

use super::Growing;
use crate::GRANULE;
use crate::best_fit::BestFit;
use crate::subjects::Subject;
use slicepool_core::{SliceId, Space, SpaceOptions};

impl Growing for BestFit {
    type Handle = u64;

    fn allocate(&mut self, bytes: u64) -> u64 {
        if let Some(slice) = Subject::allocate(self, bytes) {
            return slice;
        }
        self.grow(bytes.next_multiple_of(GRANULE) - self.tail());
        Subject::allocate(self, bytes).expect("it has grown")
    }

    fn free(&mut self, handle: u64) {
        Subject::free(self, handle);
    }

    fn reserved_peak(&self) -> u64 {
        self.bytes()
    }

    fn occupied(&self) -> u64 {
        BestFit::occupied(self)
    }

    fn calls(&self) -> u64 {
        self.growths()
    }

    fn moved(&self) -> u64 {
        self.bytes()
    }
}

/// A space that grows by what is missing behind its last slice.
pub struct GrowingSpace {
    space: Space,
    growths: u64,
}

impl Default for GrowingSpace {
    fn default() -> Self {
        let space = Space::try_new(SpaceOptions::new(GRANULE).with_granule(GRANULE)).expect("valid options");
        Self { space, growths: 0 }
    }
}

impl GrowingSpace {
    fn tail(&self) -> u64 {
        let end = self.space.statistics().size;
        let last = self.space.pieces().find(|piece| piece.id.is_none() && piece.offset + piece.size == end);
        last.map_or(0, |piece| piece.size)
    }

    fn grow_for(&mut self, bytes: u64) {
        self.space.grow(bytes.next_multiple_of(GRANULE) - self.tail()).expect("few enough granules");
        self.growths += 1;
    }
}

impl Growing for GrowingSpace {
    type Handle = SliceId;

    fn allocate(&mut self, bytes: u64) -> SliceId {
        // A request above the space is an error of another kind, not a different case.
        let slice = self.space.allocate(bytes, 1).or_else(|_| {
            self.grow_for(bytes);
            self.space.allocate(bytes, 1)
        });
        slice.expect("it has grown").id
    }

    fn free(&mut self, handle: SliceId) {
        self.space.free(handle).expect("live");
    }

    fn reserved_peak(&self) -> u64 {
        self.space.statistics().size
    }

    fn occupied(&self) -> u64 {
        let statistics = self.space.statistics();
        statistics.in_use + statistics.padding
    }

    fn calls(&self) -> u64 {
        self.growths
    }

    fn moved(&self) -> u64 {
        self.reserved_peak()
    }
}
