//! Exact best fit: the yardstick of packing, not of speed.

use crate::GRANULE;
use crate::placement::{Place, Placed};
use crate::subjects::Subject;
use std::collections::{BTreeMap, BTreeSet};

/// Takes the smallest free range that holds the request, of equal ones the lowest.
#[derive(Default)]
pub struct BestFit {
    bytes: u64,
    growths: u64,
    /// Bytes of live slices.
    occupied: u64,
    /// Live slices and free ranges by their offset.
    live: BTreeMap<u64, u64>,
    free: BTreeMap<u64, u64>,
    /// Free ranges by size, then offset.
    by_size: BTreeSet<(u64, u64)>,
}

impl BestFit {
    /// Makes the space longer.
    pub fn grow(&mut self, additional: u64) {
        let end = self.bytes;
        self.bytes += additional;
        self.growths += 1;
        self.insert(end, additional);
    }

    /// Bytes of the space.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of live slices, rounded up to the granule.
    pub fn occupied(&self) -> u64 {
        self.occupied
    }

    /// How often it was made longer.
    pub fn growths(&self) -> u64 {
        self.growths
    }

    /// Free bytes at the end of the space.
    pub fn tail(&self) -> u64 {
        match self.free.last_key_value() {
            Some((&offset, &size)) if offset + size == self.bytes => size,
            _ => 0,
        }
    }

    /// Makes memory free, and joins it with what is free on either side.
    fn insert(&mut self, mut offset: u64, mut size: u64) {
        if let Some(&behind) = self.free.get(&(offset + size)) {
            self.remove(offset + size, behind);
            size += behind;
        }
        let before = self.free.range(..offset).next_back().map(|(&offset, &size)| (offset, size));
        if let Some((start, length)) = before.filter(|(start, length)| start + length == offset) {
            self.remove(start, length);
            (offset, size) = (start, size + length);
        }
        self.free.insert(offset, size);
        self.by_size.insert((size, offset));
    }

    fn remove(&mut self, offset: u64, size: u64) {
        self.free.remove(&offset);
        self.by_size.remove(&(size, offset));
    }
}

impl Subject for BestFit {
    type Handle = u64;
    const NAME: &'static str = "exact best fit";

    fn new(bytes: u64, _: usize) -> Self {
        let mut space = Self::default();
        space.grow(bytes);
        space
    }

    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let needed = bytes.next_multiple_of(GRANULE);
        let &(size, offset) = self.by_size.range((needed, 0)..).next()?;
        self.remove(offset, size);
        if size != needed {
            self.free.insert(offset + needed, size - needed);
            self.by_size.insert((size - needed, offset + needed));
        }
        self.live.insert(offset, needed);
        self.occupied += needed;
        Some(offset)
    }

    fn free(&mut self, offset: u64) {
        let size = self.live.remove(&offset).expect("live");
        self.occupied -= size;
        self.insert(offset, size);
    }
}

impl Placed for BestFit {
    fn place(&self, offset: &u64, _: u64) -> Place {
        Place { page: 0, offset: *offset, bytes: self.live[offset] }
    }

    fn page_bytes(&self, _: u64) -> Option<u64> {
        Some(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_range_serves_and_freed_ones_join() {
        let mut space = BestFit::new(10 * GRANULE, 0);
        let slices: Vec<_> = [3, 1, 2, 1, 3].map(|n| space.allocate(n * GRANULE)).into_iter().flatten().collect();
        assert_eq!(space.allocate(1), None);
        space.free(slices[0]);
        space.free(slices[2]);
        assert_eq!(space.allocate(2 * GRANULE), Some(slices[2]));
        space.free(slices[1]);
        assert_eq!(space.allocate(4 * GRANULE), Some(0));
        space.free(slices[4]);
        assert_eq!(space.tail(), 3 * GRANULE);
        space.grow(GRANULE);
        assert_eq!(space.allocate(4 * GRANULE), Some(slices[4]));
        assert_eq!(space.tail(), 0);
    }
}
