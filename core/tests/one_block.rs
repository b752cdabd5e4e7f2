//! All books in one block of memory, and not a byte anywhere else.

mod common;

use common::books::{Snapshot, assert_balanced};
use common::devices::{LedgerDevice, VirtualDevice};
use common::lock::yielding;
use common::pools::{KINDS, exclusive, free_all, options, place};
use common::random::Random;
use common::{K, M};
use slicepool_core::{
    Allocator, BlockStatistics, Device, Error, HostMemory, LockKind, PoolOptions, Request, Slice, SliceId, Space,
    SpaceOptions, block_bytes,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::{self, Write};
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::thread;

thread_local! {
    /// How often this thread has asked for memory.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// The system's memory, counted.
struct Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends may be past its counter.
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn asked() -> u64 {
    ASKED.get()
}

/// A block of memory. Must outlive what is made with it.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
    memory: HostMemory,
    whole: BlockStatistics,
}

impl Block {
    fn new(bytes: u64) -> Self {
        Self::with_lock(bytes, LockKind::spin())
    }

    fn with_lock(bytes: u64, lock: LockKind) -> Self {
        let layout = Layout::from_size_align(bytes as usize, 64).unwrap();
        // SAFETY: the size is not 0; the block is freed on drop, after all that was made with it.
        unsafe {
            let start = NonNull::new(std::alloc::alloc(layout)).unwrap();
            start.write_bytes(0xA5, layout.size());
            let memory = HostMemory::in_block(start, layout.size(), lock).unwrap();
            Self { start, layout, memory, whole: memory.block_statistics() }
        }
    }

    fn statistics(&self) -> BlockStatistics {
        // SAFETY: the memory came from `in_block`, and the block is there.
        unsafe { self.memory.block_statistics() }
    }

    /// Panics unless everything has been given back.
    fn assert_whole(&self) {
        let BlockStatistics { free, largest_free, .. } = self.statistics();
        assert_eq!((free, largest_free), (self.whole.free, self.whole.free), "the block is not whole");
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A text that is thrown away.
struct Nowhere(u64);

impl Write for Nowhere {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len() as u64;
        Ok(())
    }
}

/// All kinds in one allocator.
fn all_kinds() -> Vec<PoolOptions> {
    let kinds = KINDS.map(|(_, pool)| pool.with_dealloc_period(Some(300)));
    [kinds.as_slice(), &[exclusive(0)]].concat()
}

/// A life of `operations` in an allocator, which ends with nothing live; where everything was placed goes to `placed`.
fn live_through<D: Device>(
    allocator: &Allocator<D>,
    operations: u32,
    live: &mut Vec<SliceId>,
    placed: &mut impl FnMut(&Slice),
) -> Result<(), Error> {
    let mut random = Random::from(7);
    let pools = allocator.pool_count() as u64;
    for operation in 0..operations {
        if live.len() == 200 || (!live.is_empty() && random.below(2) == 0) {
            allocator.free(random.take(live))?;
        } else {
            let request = Request::new(random.scaled(9 * K)).in_pool(random.below(pools) as u32);
            match allocator.allocate(&request) {
                Ok(slice) => {
                    placed(&slice);
                    live.push(slice.id);
                }
                Err(Error::PoolCapacityExceeded { .. } | Error::TooLarge { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if operation % 1000 == 999 {
            let batch = allocator.allocate_many(&[Request::new(100); 20]).map_err(|refused| refused.error)?;
            for slice in batch.iter() {
                placed(slice);
                allocator.free(slice.id)?;
            }
            allocator.trim(100 * K)?;
        }
    }
    while let Some(id) = live.pop() {
        allocator.free(id)?;
    }
    Ok(())
}

// ---- no other memory

#[test]
fn an_allocator_in_a_block_asks_for_no_other_memory_in_all_its_life() {
    let pools = all_kinds();
    let block = Block::new(M);
    let (mut live, mut text) = (Vec::with_capacity(300), Nowhere(0));
    let before = asked();
    let options = options().with_memory(block.memory);
    let allocator = Allocator::try_new(VirtualDevice::new(), &pools, options).unwrap();
    live_through(&allocator, 20_000, &mut live, &mut |_| ()).unwrap();
    let slice = place(&allocator, 100);
    allocator.write_json(&mut text).unwrap();
    let mut seen = 0;
    let _ = allocator.walk(|_| {
        seen += 1;
        ControlFlow::<()>::Continue(())
    });
    allocator.would_fit(&Request::new(5000)).unwrap();
    let figures = (allocator.statistics(), allocator.pool_statistics(3), allocator.largest_free());
    assert_eq!(allocator.check(), Ok(()));
    allocator.free(slice.id).unwrap();
    assert!(allocator.destroy().is_ok());
    assert_eq!(asked(), before);
    assert!(figures.0.device_allocations > 1000 && figures.0.device_deallocations > 500, "{figures:?}");
    assert!(figures.1.is_some() && figures.2 > 0 && seen > 10 && text.0 > 3000);
    block.assert_whole();
    // The counter counts.
    drop(std::hint::black_box(vec![1]));
    assert_eq!(asked(), before + 1);
}

#[test]
fn a_space_in_a_block_asks_for_no_other_memory() {
    let block = Block::new(64 * K);
    let mut live = Vec::with_capacity(300);
    let before = asked();
    let mut random = Random::from(3);
    let mut space = Space::try_new(SpaceOptions::new(M).with_memory(block.memory)).unwrap();
    for _ in 0..20_000 {
        if live.len() == 200 || (!live.is_empty() && random.below(2) == 0) {
            space.free(random.take(&mut live)).unwrap();
        } else if let Ok(slice) = space.allocate(random.scaled(16 * K), 1) {
            live.push(slice.id);
        }
    }
    space.grow(M).unwrap();
    space.clear();
    drop(space);
    assert_eq!(asked(), before);
    block.assert_whole();
}

// ---- the block runs out

/// Whatever its size, the block serves as long as it can, refuses then, and is whole at the end.
#[test]
fn a_block_that_is_too_small_refuses_and_is_whole_in_the_end() {
    let mut lists: Vec<_> = KINDS.map(|(_, pool)| vec![pool]).to_vec();
    lists.push(all_kinds());
    for pools in lists {
        let (mut outcomes, mut bytes) = ([0; 3], 512);
        while outcomes[2] < 3 {
            let block = Block::new(bytes);
            let device = LedgerDevice::new();
            let made = Allocator::try_new(&device, &pools, options().with_memory(block.memory));
            let result = made.and_then(|allocator| {
                let mut live = Vec::new();
                let lived = live_through(&allocator, 2000, &mut live, &mut |_| ());
                assert_balanced(&allocator);
                // What lives is usable, and giving back needs no memory.
                if lived.is_err() {
                    outcomes[1] += 1;
                    for id in live {
                        allocator.get(id).unwrap();
                        allocator.free(id).unwrap();
                    }
                }
                allocator.cleanup().unwrap();
                assert_eq!((device.pages(), allocator.check()), (0, Ok(())));
                lived
            });
            match result {
                Ok(()) => outcomes[2] += 1,
                Err(error) => {
                    assert!(matches!(error, Error::OutOfHostMemory { bytes: 1.. }), "{error} with {bytes} bytes");
                    outcomes[0] += 1;
                }
            }
            block.assert_whole();
            bytes += (bytes / 45).next_multiple_of(16);
        }
        assert!(outcomes[0] > outcomes[1] && outcomes[1] > 5, "{outcomes:?}");
    }
}

/// The same request is served once there is room: here, because another user of the block is gone.
#[test]
fn what_was_refused_is_served_when_the_block_has_room_again() {
    for (name, pool) in KINDS {
        let block = Block::new(64 * K);
        let device = LedgerDevice::new();
        let allocator = Allocator::try_new(&device, &[pool], options().with_memory(block.memory)).unwrap();
        let first = place(&allocator, 10 * K);
        // The rest of the block, in pieces.
        let layout = Layout::from_size_align(16, 16).unwrap();
        let filling: Vec<_> = std::iter::from_fn(|| block.memory.allocate(layout).ok()).collect();
        assert_eq!(block.statistics().free, 0);
        let mut slices = Vec::new();
        let refused = loop {
            match allocator.allocate(&Request::new(10 * K)) {
                Ok(slice) => slices.push(slice),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::OutOfHostMemory { .. }), "{name}: {refused}");
        let before = Snapshot::of(&allocator);
        assert_eq!(allocator.allocate(&Request::new(10 * K)), Err(refused));
        assert_eq!(Snapshot::of(&allocator), before);
        for memory in filling {
            // SAFETY: allocated above with this layout.
            unsafe { block.memory.deallocate(memory, layout) };
        }
        for _ in 0..30 {
            slices.push(place(&allocator, 10 * K));
        }
        assert_eq!(allocator.get(first.id), Ok(first));
        free_all(&allocator, &slices);
        drop(allocator);
        block.assert_whole();
    }
}

#[test]
fn a_block_without_room_for_its_own_books_is_refused() {
    let mut bytes = [0u8; 400];
    let start = NonNull::new(bytes.as_mut_ptr()).unwrap();
    let least = (0..=bytes.len()).find(|&bytes| {
        // SAFETY: nobody else uses these bytes.
        let made = unsafe { HostMemory::in_block(start, bytes, LockKind::spin()) };
        let refused = Error::InvalidArgument { field: c"bytes", value: bytes as u64 };
        assert!(made.is_ok() || made.err() == Some(refused));
        made.is_ok()
    });
    assert!(matches!(least, Some(17..=216)), "{least:?}");
}

// ---- how large a block must be

/// A trial run tells.
#[test]
fn a_block_of_the_peak_of_a_trial_serves_the_same_calls() {
    let pools = all_kinds();
    let run = |bytes: u64, operations: u32| {
        let block = Block::new(bytes);
        let mut places = Vec::new();
        let made = Allocator::try_new(VirtualDevice::new(), &pools, options().with_memory(block.memory));
        let result = made.and_then(|allocator| {
            // The books of a large batch reach the farthest, and what they needed is free again soon.
            let batch = allocator.allocate_many(&[Request::new(32); 1000]).map_err(|refused| refused.error)?;
            for slice in batch.iter() {
                allocator.free(slice.id)?;
            }
            drop(batch);
            live_through(&allocator, operations, &mut Vec::new(), &mut |slice| {
                places.push((slice.memory, slice.offset));
            })
        });
        block.assert_whole();
        (result, places, block.statistics().peak)
    };
    for operations in [0, 5000] {
        let (result, places, peak) = run(M, operations);
        assert_eq!((result, places.len() >= operations as usize / 3, peak < M), (Ok(()), true, true));
        assert!(run(peak, operations) == (Ok(()), places, peak));
        assert!(matches!(run(peak / 2, operations).0, Err(Error::OutOfHostMemory { .. })));
    }
}

/// The bound that can be computed beforehand, whatever is done with so many slices and pages.
#[test]
fn a_block_of_the_computed_size_never_runs_out() {
    let mut lists: Vec<_> = KINDS.map(|(_, pool)| vec![pool]).to_vec();
    lists.push(all_kinds());
    let mut random = Random::with_seed_or(5);
    for pools in lists {
        for (slices, pages) in [(1, 1), (10, 10), (100, 30), (300, 100)] {
            let bytes = block_bytes(&pools, &options(), slices, pages, 0).unwrap();
            let block = Block::new(bytes);
            let options = options().with_memory(block.memory);
            let allocator = Allocator::try_new(VirtualDevice::new(), &pools, options).unwrap();
            let mut live: Vec<Slice> = Vec::new();
            for _ in 0..20_000 {
                // As many pages as slices at most: an idle one may have to be given back first.
                if allocator.statistics().pages == pages {
                    allocator.cleanup().unwrap();
                }
                let full = live.len() as u32 == slices || allocator.statistics().pages == pages;
                if full || (!live.is_empty() && random.below(3) == 0) {
                    allocator.free(random.take(&mut live).id).unwrap();
                    continue;
                }
                match allocator.allocate(&Request::new(random.scaled(64 * K))) {
                    Ok(slice) => live.push(slice),
                    Err(Error::PoolCapacityExceeded { .. }) => {}
                    Err(error) => panic!("{error} with {slices} slices, {pages} pages in {pools:?}"),
                }
                let some = live[random.below(live.len() as u64) as usize];
                match allocator.try_resize(some.id, random.scaled(64 * K)) {
                    Ok(_) | Err(Error::NoRoom { .. }) => {}
                    Err(error) => panic!("{error} with {slices} slices, {pages} pages in {pools:?}"),
                }
            }
            assert!(block.statistics().peak <= bytes);
            drop(allocator);
            block.assert_whole();
        }
    }
}

// ---- a block that is shared

#[test]
fn allocators_and_spaces_share_a_block_and_leave_it_whole() {
    let block = Block::new(2 * M);
    let device = LedgerDevice::new();
    let options = options().with_memory(block.memory);
    let mut free = Vec::new();
    for _ in 0..3 {
        let one = Allocator::try_new(&device, &all_kinds(), options.clone()).unwrap();
        let slices: Vec<_> = (0..100).map(|i| place(&one, 1 + i * 50)).collect();
        let other = Allocator::try_new(&device, &[exclusive(K)], options.clone()).unwrap();
        let mut space = Space::try_new(SpaceOptions::new(M).with_memory(block.memory)).unwrap();
        let id = space.allocate(1000, 1).unwrap().id;
        live_through(&other, 2000, &mut Vec::new(), &mut |_| ()).unwrap();
        free_all(&one, &slices[..50]);
        free.push(block.statistics().free);
        drop(other);
        assert_eq!((space.get(id).map(|slice| slice.id), one.get(slices[70].id)), (Ok(id), Ok(slices[70])));
        drop(space);
        assert_balanced(&one);
        drop(one);
        block.assert_whole();
    }
    assert!(free[0] == free[1] && free[1] == free[2] && free[0] < block.whole.free, "{free:?}");
}

#[test]
fn threads_with_allocators_of_their_own_share_a_block() {
    let block = Block::with_lock(4 * M, yielding());
    thread::scope(|scope| {
        for _ in 0..4 {
            let memory = block.memory;
            scope.spawn(move || {
                for _ in 0..10 {
                    let options = options().with_memory(memory);
                    let allocator = Allocator::try_new(VirtualDevice::new(), &all_kinds(), options).unwrap();
                    live_through(&allocator, 1000, &mut Vec::new(), &mut |_| ()).unwrap();
                    assert_balanced(&allocator);
                }
            });
        }
    });
    block.assert_whole();
}

/// Using a page again needs no record that it does not have: so what was freed serves although the block is full.
#[test]
fn pages_of_one_slice_are_used_again_although_the_block_is_full() {
    for (bytes, pool) in (12_000..20_000)
        .step_by(500)
        .flat_map(|bytes| [exclusive(4096), PoolOptions::direct(None).with_granule(32)].map(|pool| (bytes, pool)))
    {
        let block = Block::new(bytes);
        let options = options().with_memory(block.memory);
        let Ok(allocator) = Allocator::try_new(VirtualDevice::new(), std::slice::from_ref(&pool), options) else {
            continue;
        };
        let fill = || -> Vec<SliceId> {
            let slices = (0..).map_while(|_| allocator.allocate(&Request::new(64)).ok());
            slices.map(|slice| slice.id).collect()
        };
        let mut live = fill();
        let most = live.len();
        assert!(most != 0);
        for _ in 0..3 {
            for id in live {
                allocator.free(id).unwrap();
            }
            live = fill();
            assert_eq!(live.len(), most, "{bytes} bytes, {pool:?}");
        }
        assert_eq!(allocator.check(), Ok(()));
    }
}
