//! The same calls give the same placements: on every platform, in every build, in every run.
//!
//! A change of these constants is a change of placement policy: intended or not, users will see it.

use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceMemory, Error, MemoryType, PageRequest, PoolOptions,
    Request, SliceId, Space, SpaceOptions,
};
use std::cell::Cell;

const OPERATIONS: u32 = 200_000;
/// Many slices are live, then few, then many again.
const fn most_live(operation: u32) -> u64 {
    if operation / 5_000 % 2 == 0 { 2_000 } else { 20 }
}

/// Hashes of all placements.
const ALLOCATOR_PLACEMENTS: u64 = 0xE4F3_87AC_72E1_BC25;
const SPACE_PLACEMENTS: u64 = 0x57DD_4842_EE52_B996;

/// FNV-1a, 64 bits.
struct Hash(u64);

impl Hash {
    const fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    fn add(&mut self, number: u64) {
        for byte in number.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    fn add_refusal(&mut self, error: &Error) {
        // Which error it is, as a number that does not depend on the order of the variants.
        self.add(match error {
            Error::PoolCapacityExceeded { .. } => u64::MAX,
            Error::OutOfDeviceMemory { .. } => u64::MAX - 1,
            Error::NoRoom { .. } => u64::MAX - 2,
            Error::TooLarge { .. } => u64::MAX - 3,
            other => panic!("{other:?}"),
        });
    }
}

/// Marsaglia's 64-bit xorshift generator with a multiplier at the end.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }

    /// Bytes: mostly few, sometimes many.
    fn size(&mut self) -> u64 {
        let most = [300, 5_000, 5_000, 60_000, 400_000][self.below(5) as usize];
        1 + self.below(most)
    }

    /// One in three is aligned to more than the granule.
    fn alignment(&mut self) -> u64 {
        if self.below(3) == 0 { 1 << self.below(13) } else { 1 }
    }
}

/// Numbers its pages from 1 on and has a limit.
struct Numbers {
    next: Cell<u64>,
    bytes_left: Cell<u64>,
}

impl Device for Numbers {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        let left = self.bytes_left.get().checked_sub(request.size).ok_or(DeviceError::OutOfMemory(0))?;
        self.bytes_left.set(left);
        let number = self.next.get();
        self.next.set(number + 1);
        Ok(DeviceMemory::new(number))
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.bytes_left.set(self.bytes_left.get() + memory.size);
        Ok(())
    }
}

#[test]
fn an_allocator_places_slices_as_it_always_did() {
    let device = Numbers { next: Cell::new(1), bytes_left: Cell::new(24 << 20) };
    let pools = [
        PoolOptions::sliced_pages(1 << 16, 2_000, Some(1 << 20)).with_granule(32),
        PoolOptions::sliced_pages(1 << 20, 1 << 20, None),
    ];
    let options = AllocatorOptions::default().with_memory_type(MemoryType::new(u64::MAX, 4096));
    let allocator = Allocator::try_new(device, &pools, options).unwrap();
    let mut random = Random(0x0123_4567_89AB_CDEF);
    let mut hash = Hash::new();
    let mut live: Vec<SliceId> = Vec::new();
    for operation in 0..OPERATIONS {
        let choice = random.below(1_000);
        if choice < 10 {
            allocator.trim(random.below(8) << 20).unwrap();
        } else if choice < 100 && !live.is_empty() {
            let id = live[random.below(live.len() as u64) as usize];
            match allocator.try_resize(id, random.size()) {
                Ok(slice) => hash.add(slice.size),
                Err(error) => hash.add_refusal(&error),
            }
        } else if random.below(most_live(operation)) < live.len() as u64 {
            let id = live.swap_remove(random.below(live.len() as u64) as usize);
            allocator.free(id).unwrap();
        } else if choice < 130 {
            let requests: Vec<Request> =
                (0..5).map(|_| Request::new(random.size()).aligned(random.alignment())).collect();
            match allocator.allocate_many(&requests) {
                Ok(batch) => batch.iter().for_each(|slice| {
                    hash.add(slice.memory);
                    hash.add(slice.offset);
                    live.push(slice.id);
                }),
                Err(refused) => hash.add_refusal(&refused.error),
            }
        } else {
            match allocator.allocate(&Request::new(random.size()).aligned(random.alignment())) {
                Ok(slice) => {
                    hash.add(slice.memory);
                    hash.add(slice.offset);
                    live.push(slice.id);
                }
                Err(error) => hash.add_refusal(&error),
            }
        }
    }
    assert_eq!(allocator.check(), Ok(()));
    let figures = allocator.statistics();
    let busy = figures.device_allocations > 100 && figures.pages_peak > 20;
    assert!(busy, "the churn does not do much: {figures:?}");
    assert_eq!(hash.0, ALLOCATOR_PLACEMENTS, "the placements have changed: 0x{:016X}", hash.0);
}

#[test]
fn a_space_places_slices_as_it_always_did() {
    let mut space = Space::try_new(SpaceOptions::new(12 << 20).with_granule(64)).unwrap();
    let mut random = Random(0xFEDC_BA98_7654_3210);
    let mut hash = Hash::new();
    let mut live: Vec<SliceId> = Vec::new();
    for operation in 0..OPERATIONS {
        let choice = random.below(1_000);
        if operation % 60_000 == 59_999 {
            space.clear();
            live.clear();
            space.grow(1 << 20).unwrap();
        } else if choice < 100 && !live.is_empty() {
            let id = live[random.below(live.len() as u64) as usize];
            match space.try_resize(id, random.size()) {
                Ok(slice) => hash.add(slice.size),
                Err(error) => hash.add_refusal(&error),
            }
        } else if random.below(most_live(operation)) < live.len() as u64 {
            let id = live.swap_remove(random.below(live.len() as u64) as usize);
            space.free(id).unwrap();
        } else {
            match space.allocate(random.size(), random.alignment()) {
                Ok(slice) => {
                    hash.add(slice.offset);
                    live.push(slice.id);
                }
                Err(error) => hash.add_refusal(&error),
            }
        }
    }
    assert_eq!(space.check(), Ok(()));
    let figures = space.statistics();
    assert!(figures.slices > 0 && figures.in_use_peak > 10 << 20, "the churn does not do much: {figures:?}");
    assert_eq!(hash.0, SPACE_PLACEMENTS, "the placements have changed: 0x{:016X}", hash.0);
}
