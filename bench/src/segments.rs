//! How PyTorch keeps device memory: a yardstick of packing, written from what is known of its rules.
//!
//! Segments are taken from the device and kept. Requests up to 1 MiB share small segments, others large ones. A request
//! takes the smallest free block of its kind that holds it; the rest of the block is split off if it is large enough to
//! be of use, and blocks that are freed join their free neighbours within the segment.

use crate::replay::Growing;
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;

/// Requests are rounded up to multiples of this.
const UNIT: u64 = 512;
/// The largest small request, and the bytes of the segments for those.
const SMALL: u64 = MIB;
const SMALL_SEGMENT: u64 = 2 * MIB;
/// Large requests below this share segments of that size.
const SHARED: u64 = 10 * MIB;
const SHARED_SEGMENT: u64 = 20 * MIB;
/// Others have a segment of their own size, rounded up to a multiple of this.
const OWN_STEP: u64 = 2 * MIB;

/// What requests and segments belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Small,
    Large,
}

impl Kind {
    fn of(size: u64) -> Self {
        if size <= SMALL { Self::Small } else { Self::Large }
    }

    /// Whether the rest of a block is worth being split off.
    fn splits(self, rest: u64) -> bool {
        match self {
            Self::Small => rest >= UNIT,
            Self::Large => rest > SMALL,
        }
    }
}

/// Bytes of a new segment for a request that has been rounded.
fn segment_for(size: u64) -> u64 {
    match Kind::of(size) {
        Kind::Small => SMALL_SEGMENT,
        Kind::Large if size < SHARED => SHARED_SEGMENT,
        Kind::Large => size.next_multiple_of(OWN_STEP),
    }
}

struct Block {
    size: u64,
    kind: Kind,
    free: bool,
}

/// Segments, and the blocks that they are cut into.
#[derive(Default)]
pub struct Segments {
    /// By address. Between segments there is a gap, so that blocks of different ones never touch.
    blocks: BTreeMap<u64, Block>,
    /// Free blocks of each kind, by size, then address.
    free: [BTreeSet<(u64, u64)>; 2],
    /// Where the next segment begins.
    end: u64,
    reserved: u64,
    segments: u64,
    occupied: u64,
}

impl Segments {
    fn take_segment(&mut self, size: u64, kind: Kind) -> u64 {
        let address = self.end;
        self.end += size + UNIT;
        self.reserved += size;
        self.segments += 1;
        self.blocks.insert(address, Block { size, kind, free: false });
        address
    }

    fn insert_free(&mut self, address: u64, size: u64, kind: Kind) {
        self.blocks.insert(address, Block { size, kind, free: true });
        self.free[kind as usize].insert((size, address));
    }

    /// Takes a free block out of all books.
    fn remove_free(&mut self, address: u64, size: u64, kind: Kind) {
        self.free[kind as usize].remove(&(size, address));
        self.blocks.remove(&address);
    }
}

impl Growing for Segments {
    /// The address of a block.
    type Handle = u64;

    fn allocate(&mut self, bytes: u64) -> u64 {
        let needed = bytes.next_multiple_of(UNIT);
        let kind = Kind::of(needed);
        let best = self.free[kind as usize].range((needed, 0)..).next().copied();
        let address = match best {
            Some((size, address)) => {
                self.free[kind as usize].remove(&(size, address));
                address
            }
            None => self.take_segment(segment_for(needed), kind),
        };
        let block = self.blocks.get_mut(&address).expect("found or made above");
        block.free = false;
        let rest = block.size - needed;
        let splits = kind.splits(rest);
        if splits {
            block.size = needed;
        }
        self.occupied += block.size;
        if splits {
            self.insert_free(address + needed, rest, kind);
        }
        address
    }

    fn free(&mut self, handle: u64) {
        let Block { mut size, kind, free } = self.blocks.remove(&handle).expect("a block");
        assert!(!free, "live");
        self.occupied -= size;
        let mut address = handle;
        if let Some(behind) = self.blocks.get(&(address + size)).filter(|block| block.free).map(|block| block.size) {
            self.remove_free(address + size, behind, kind);
            size += behind;
        }
        let before = self.blocks.range(..address).next_back().filter(|(_, block)| block.free);
        let before = before.map(|(&start, block)| (start, block.size));
        if let Some((start, length)) = before.filter(|(start, length)| start + length == address) {
            self.remove_free(start, length, kind);
            (address, size) = (start, size + length);
        }
        self.insert_free(address, size, kind);
    }

    fn reserved_peak(&self) -> u64 {
        self.reserved
    }

    fn occupied(&self) -> u64 {
        self.occupied
    }

    fn calls(&self) -> u64 {
        self.segments
    }

    fn moved(&self) -> u64 {
        self.reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_have_the_size_of_their_kind() {
        let sizes = [UNIT, MIB, MIB + UNIT, 10 * MIB - UNIT, 10 * MIB, 10 * MIB + UNIT, 75 * MIB + 1];
        assert_eq!(sizes.map(|size| segment_for(size) / MIB), [2, 2, 20, 20, 10, 12, 76]);
    }

    #[test]
    fn requests_are_rounded_to_512_bytes_and_small_blocks_split_down_to_that() {
        let mut segments = Segments::default();
        let slices = [1, 512, 513, 1000].map(|bytes| segments.allocate(bytes));
        assert_eq!(slices, [0, 512, 1024, 2048]);
        assert_eq!((segments.occupied(), segments.reserved_peak(), segments.calls()), (3072, 2 * MIB, 1));
        // The last 512 bytes are a block, too.
        [MIB, MIB - 3072 - 512].into_iter().for_each(|bytes| _ = segments.allocate(bytes));
        assert_eq!(segments.free[0], BTreeSet::from([(512, 2 * MIB - 512)]));
    }

    #[test]
    fn large_blocks_split_if_more_than_a_mib_is_left() {
        let of = |requests: [u64; 2]| {
            let mut segments = Segments::default();
            requests.into_iter().for_each(|bytes| _ = segments.allocate(bytes));
            assert_eq!((segments.calls(), segments.reserved_peak()), (1, 20 * MIB));
            (segments.occupied(), segments.free[1].clone())
        };
        let rest = (MIB + UNIT, 19 * MIB - UNIT);
        assert_eq!(of([9 * MIB, 10 * MIB - UNIT]), (19 * MIB - UNIT, BTreeSet::from([rest])));
        assert_eq!(of([9 * MIB, 10 * MIB]), (20 * MIB, BTreeSet::new()));
    }

    #[test]
    fn a_block_that_was_not_split_comes_back_as_it_was() {
        let mut segments = Segments::default();
        let whole = segments.allocate(13 * MIB);
        assert_eq!((segments.occupied(), segments.reserved_peak()), (14 * MIB, 14 * MIB));
        segments.free(whole);
        assert_eq!((segments.occupied(), segments.free[1].clone()), (0, BTreeSet::from([(14 * MIB, whole)])));
    }

    #[test]
    fn the_smallest_block_serves_and_small_requests_never_use_large_segments() {
        let mut segments = Segments::default();
        let large = [30, 20, 25].map(|mib| segments.allocate(mib * MIB));
        large.into_iter().for_each(|slice| segments.free(slice));
        assert_eq!(segments.allocate(20 * MIB), large[1]);
        assert_eq!(segments.allocate(21 * MIB), large[2]);
        assert_eq!(segments.calls(), 3);
        segments.allocate(MIB);
        assert_eq!((segments.calls(), segments.reserved_peak()), (4, 78 * MIB));
    }

    #[test]
    fn freed_blocks_join_their_neighbours_but_not_those_of_other_segments() {
        let mut segments = Segments::default();
        let slices = [0; 8].map(|_| segments.allocate(5 * MIB));
        assert_eq!((segments.calls(), segments.reserved_peak()), (2, 40 * MIB));
        slices.into_iter().for_each(|slice| segments.free(slice));
        let free: Vec<_> = segments.free[1].iter().map(|&(size, _)| size / MIB).collect();
        assert_eq!((free, segments.blocks.len()), (vec![20, 20], 2));
        assert_eq!(segments.allocate(20 * MIB), 0);
        assert_eq!(segments.calls(), 2);
    }
}
