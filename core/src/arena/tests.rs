//! Placements, refusals and figures against a plain model; joining; threads.

use super::*;
use core::alloc::Layout;
use std::boxed::Box;
use std::vec::Vec;

/// Fewer rounds where every step is interpreted.
const ROUNDS: usize = if cfg!(miri) { 400 } else { 40_000 };

/// Random numbers that can be had again with `SLICEPOOL_SEED`.
struct Random(u64);

impl Random {
    fn with_seed_or(default: u64) -> Self {
        let seed = match std::env::var("SLICEPOOL_SEED") {
            Ok(text) => text.trim().parse().expect("SLICEPOOL_SEED is a decimal number of 64 bits"),
            Err(_) => default,
        };
        std::println!("{}: SLICEPOOL_SEED={seed}", std::thread::current().name().unwrap_or("a thread"));
        Self(seed)
    }

    fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.any() % end as u64) as usize
    }

    /// Mostly small sizes, at mostly small alignments.
    fn layout(&mut self, largest: usize) -> Layout {
        let bits = 1 + self.below(largest.ilog2() as usize);
        let size = 1 + self.below(1 << bits);
        let alignment = if self.below(4) == 0 { 1 << self.below(10) } else { 8 };
        Layout::from_size_align(size, alignment).unwrap()
    }
}

/// A block that starts `skew` bytes behind a multiple of 4096, and the host memory made of it.
///
/// What lies around the block has a pattern, which must still be there at the end.
struct Block {
    around: NonNull<u8>,
    layout: Layout,
    skew: usize,
    bytes: usize,
    memory: HostMemory,
}

const FENCE: u8 = 0xFE;

impl Block {
    fn try_new(skew: usize, bytes: usize, lock: LockKind) -> Result<Self, Error> {
        let layout = Layout::from_size_align(skew + bytes + 64, 4096).unwrap();
        // SAFETY: the layout is not empty, and the block is inside it; `drop` frees it after the last use.
        unsafe {
            let around = NonNull::new(std::alloc::alloc(layout)).unwrap();
            around.write_bytes(FENCE, layout.size());
            let memory = HostMemory::in_block(around.byte_add(skew), bytes, lock);
            let memory = memory.inspect_err(|_| std::alloc::dealloc(around.as_ptr(), layout))?;
            Ok(Self { around, layout, skew, bytes, memory })
        }
    }

    fn new(skew: usize, bytes: usize) -> Self {
        Self::try_new(skew, bytes, LockKind::spin()).unwrap()
    }

    /// A block of which exactly so many bytes can be allocated.
    fn with_room(room: usize) -> Self {
        Self::new(0, size_of::<Header>() + room)
    }

    fn statistics(&self) -> BlockStatistics {
        // SAFETY: `memory` came from `in_block`, and the block is still there.
        unsafe { self.memory.block_statistics() }
    }

    /// Memory of that layout, filled with a pattern.
    fn place(&self, layout: Layout, pattern: u8) -> Option<Placed> {
        let memory = self.memory.allocate(layout).ok()?;
        let begin = memory.addr().get() - self.around.addr().get();
        assert_eq!(begin % layout.align(), 0);
        assert!(begin >= self.skew && begin + layout.size() <= self.skew + self.bytes);
        // SAFETY: just allocated.
        unsafe { memory.write_bytes(pattern, layout.size()) };
        Some(Placed { memory, begin, layout, pattern })
    }

    fn free(&self, placed: Placed) {
        placed.assert_untouched();
        // SAFETY: `place` allocated it; `placed` is not used any more.
        unsafe { self.memory.deallocate(placed.memory, placed.layout) };
    }

    /// Bytes that are neither the header nor lost to rounding.
    fn room(&self) -> u64 {
        self.gaps().end as u64
    }

    fn gaps(&self) -> crate::sync::Guard<'_, Gaps> {
        // SAFETY: as in `statistics`.
        unsafe { header(self.memory.user_data) }.lock()
    }

    fn assert_whole(&self) {
        let room = self.room();
        let BlockStatistics { free, largest_free, .. } = self.statistics();
        assert_eq!((free, largest_free), (room, room));
        assert_eq!(self.gaps().iter().count(), 1);
    }
}

// SAFETY: shared access goes through the host memory, which any thread may use.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; nothing made with the block is used any more.
        unsafe {
            let mut outside = (0..self.skew).chain(self.skew + self.bytes..self.layout.size());
            let whole = outside.all(|at| self.around.byte_add(at).read() == FENCE);
            std::alloc::dealloc(self.around.as_ptr(), self.layout);
            assert!(whole || std::thread::panicking(), "something was written outside the block");
        }
    }
}

struct Placed {
    memory: NonNull<u8>,
    /// Counted from a multiple of 4096.
    begin: usize,
    layout: Layout,
    pattern: u8,
}

// SAFETY: whoever has it is the only one to use the memory.
unsafe impl Send for Placed {}

impl Placed {
    fn assert_untouched(&self) {
        // SAFETY: live memory that `place` has filled.
        let bytes = unsafe { NonNull::slice_from_raw_parts(self.memory, self.layout.size()).as_ref() };
        assert!(bytes.iter().all(|&byte| byte == self.pattern), "memory was given out twice or overwritten");
    }
}

fn layout(size: usize, alignment: usize) -> Layout {
    Layout::from_size_align(size, alignment).unwrap()
}

/// What the block must do, on a list of units that are in use or not.
struct Model {
    /// Where the first unit lies, counted from a multiple of 4096.
    start: usize,
    used: Vec<bool>,
    peak: usize,
}

impl Model {
    fn new(skew: usize, bytes: usize) -> Self {
        let start = skew.next_multiple_of(align_of::<Header>()) + size_of::<Header>();
        Self { start, used: std::vec![false; (skew + bytes - start) / UNIT], peak: start - skew }
    }

    fn place(&mut self, skew: usize, layout: Layout) -> Option<usize> {
        let units = layout.size().div_ceil(UNIT);
        let first = (0..self.used.len()).find(|&first| {
            let fits = self.used.get(first..first + units).is_some_and(|units| !units.contains(&true));
            fits && (self.start + first * UNIT) % layout.align() == 0
        })?;
        self.used[first..first + units].fill(true);
        self.peak = self.peak.max(self.start + (first + units) * UNIT - skew);
        Some(self.start + first * UNIT)
    }

    fn free(&mut self, placed: &Placed) {
        let first = (placed.begin - self.start) / UNIT;
        let units = &mut self.used[first..first + placed.layout.size().div_ceil(UNIT)];
        assert!(!units.contains(&false));
        units.fill(false);
    }

    fn statistics(&self) -> BlockStatistics {
        let gaps = self.used.split(|&used| used).map(|gap| (gap.len() * UNIT) as u64);
        BlockStatistics { free: gaps.clone().sum(), largest_free: gaps.max().unwrap_or(0), peak: self.peak as u64 }
    }
}

#[test]
fn every_request_gets_the_lowest_place_that_fits_and_is_refused_only_if_there_is_none() {
    let mut random = Random::with_seed_or(1);
    for skew in [0, 1, 16, 63, 64, 100] {
        let bytes = 9000 + random.below(1000);
        let block = Block::new(skew, bytes);
        let mut model = Model::new(skew, bytes);
        let mut live = Vec::new();
        let mut refused = 0;
        for round in 0..ROUNDS / 4 {
            // Fills up and empties in turn.
            let growing = random.below(8) < if round / 200 % 2 == 0 { 5 } else { 3 };
            if growing || live.is_empty() {
                let layout = random.layout(1024);
                let expected = model.place(skew, layout);
                let placed = block.place(layout, round as u8);
                assert_eq!(placed.as_ref().map(|placed| placed.begin), expected, "{round}: {layout:?}");
                refused += usize::from(placed.is_none());
                live.extend(placed);
            } else {
                let placed: Placed = live.swap_remove(random.below(live.len()));
                model.free(&placed);
                block.free(placed);
            }
            assert_eq!(block.statistics(), model.statistics(), "{round}");
        }
        assert!(refused > 0 || cfg!(miri));
        live.into_iter().for_each(|placed| block.free(placed));
        block.assert_whole();
    }
}

#[test]
fn freed_memory_joins_into_one_gap_whatever_the_order() {
    // With and without something before and behind that stays.
    for (front, rear) in [(false, false), (true, false), (false, true), (true, true)] {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let block = Block::with_room(5 * 48);
            let mut all: [_; 5] = core::array::from_fn(|i| block.place(layout(40, 8), i as u8));
            assert!(block.place(layout(1, 1), 0).is_none());
            if !front {
                block.free(all[0].take().unwrap());
            }
            if !rear {
                block.free(all[4].take().unwrap());
            }
            for i in order {
                block.free(all[i + 1].take().unwrap());
            }
            let gaps: Vec<_> = block.gaps().iter().map(|(at, gap)| (at, gap.bytes)).collect();
            let (begin, end) = (if front { 48 } else { 0 }, if rear { 4 * 48 } else { 5 * 48 });
            assert_eq!(gaps, [(begin, end - begin)], "{front} {rear} {order:?}");
            all.into_iter().flatten().for_each(|placed| block.free(placed));
            block.assert_whole();
        }
    }
}

#[test]
fn a_full_block_refuses_until_something_is_freed() {
    let block = Block::with_room(4 * 32);
    let mut live: Vec<_> = (0..4).map(|i| block.place(layout(32, 8), i).unwrap()).collect();
    assert_eq!(block.statistics().largest_free, 0);
    assert_eq!(block.memory.allocate(layout(1, 1)), Err(Error::OutOfHostMemory { bytes: 1 }));
    block.free(live.remove(1));
    assert!(block.place(layout(33, 8), 0).is_none());
    live.push(block.place(layout(32, 8), 9).unwrap());
    assert!(block.place(layout(1, 1), 0).is_none());
    live.into_iter().for_each(|placed| block.free(placed));
    live = std::vec![block.place(layout(4 * 32, 8), 7).unwrap()];
    live.into_iter().for_each(|placed| block.free(placed));
    block.assert_whole();
}

#[test]
fn any_alignment_is_kept_and_what_is_skipped_for_it_stays_usable() {
    for skew in [0, 8, 48, 4000] {
        for bits in 0..=12 {
            let alignment = 1usize << bits;
            let block = Block::new(skew, 5 * 4096);
            // From an odd place on.
            let first = block.place(layout(1, 1), 1).unwrap();
            let placed = block.place(layout(100, alignment), 2).unwrap();
            let skipped = (first.begin + UNIT).next_multiple_of(alignment.max(UNIT)) - (first.begin + UNIT);
            assert_eq!(placed.begin, first.begin + UNIT + skipped);
            assert_eq!(block.statistics().free, block.room() - 16 - 112);
            if skipped != 0 {
                let between = block.place(layout(skipped, 1), 3).unwrap();
                assert_eq!(between.begin, first.begin + UNIT);
                block.free(between);
            }
            block.free(placed);
            block.free(first);
            block.assert_whole();
        }
    }
}

#[test]
fn requests_that_no_block_could_serve_are_refused() {
    let block = Block::new(0, 4096);
    let most = u64::MAX;
    let requests = [(0, 8), (most, 8), (most - 14, 8), (most / 2 + 1, 8), (4096, 8), (8, most), (8, 1 << 63), (8, 0)];
    for (size, alignment) in requests.into_iter().chain([(8, 3), (8, 24)]) {
        // SAFETY: the functions of a block take any numbers.
        let memory = unsafe { allocate(block.memory.user_data, size, alignment) };
        assert!(memory.is_null(), "{size} {alignment}");
    }
    block.assert_whole();
}

#[test]
fn a_block_must_hold_its_own_books_and_one_unit() {
    for skew in 0..=64usize {
        let least = skew.next_multiple_of(align_of::<Header>()) - skew + size_of::<Header>() + UNIT;
        assert!(least as u64 <= ARENA_OVERHEAD + UNIT as u64);
        for bytes in [0, 1, size_of::<Header>(), least - 1] {
            let error = Error::InvalidArgument { field: c"bytes", value: bytes as u64 };
            assert_eq!(Block::try_new(skew, bytes, LockKind::spin()).err(), Some(error));
        }
        let block = Block::new(skew, least);
        let placed = block.place(layout(UNIT, 8), 0).unwrap();
        assert!(block.place(layout(1, 1), 0).is_none());
        assert_eq!(block.statistics().peak, least as u64);
        block.free(placed);
        block.assert_whole();
    }
}

/// Random calls, up to the first that is refused. Answers the places, and the sum of what they cost at most.
fn play(block: &Block, seed: u64, rounds: usize) -> (Vec<usize>, u64) {
    let mut random = Random(seed);
    let (mut live, mut places, mut sum) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        if random.below(5) < 3 || live.is_empty() {
            let layout = random.layout(512);
            sum += rounded(layout.size() as u64, layout.align() as u64);
            match block.place(layout, round as u8) {
                Some(placed) => {
                    places.push(placed.begin);
                    live.push(placed);
                }
                None => break,
            }
        } else {
            block.free(live.swap_remove(random.below(live.len())));
        }
    }
    live.into_iter().for_each(|placed| block.free(placed));
    block.assert_whole();
    (places, sum)
}

#[test]
fn a_block_as_large_as_the_measured_peak_serves_the_same_calls_at_the_same_places() {
    let mut random = Random::with_seed_or(2);
    for _ in 0..if cfg!(miri) { 4 } else { 100 } {
        let (seed, skew) = (random.any(), random.below(100));
        let large = Block::new(skew, 1 << 18);
        let (places, _) = play(&large, seed, 300);
        let peak = large.statistics().peak;
        let exact = Block::new(skew, peak as usize);
        assert_eq!(play(&exact, seed, 300).0, places);
        assert_eq!(exact.statistics().peak, peak);
        let short = Block::new(skew, peak as usize - 1);
        assert!(play(&short, seed, 300).0.len() < places.len());
    }
}

#[test]
fn the_overhead_and_the_rounded_sizes_of_all_requests_are_enough_wherever_the_block_starts() {
    let mut random = Random::with_seed_or(3);
    for skew in 0..if cfg!(miri) { 3 } else { 100 } {
        let seed = random.any();
        let (places, sum) = play(&Block::new(skew, 1 << 18), seed, 200);
        let block = Block::new(skew, (ARENA_OVERHEAD + sum) as usize);
        assert_eq!(play(&block, seed, 200).0.len(), places.len());
    }
    assert_eq!((rounded(1, 1), rounded(16, 16), rounded(17, 32), rounded(16, 4096)), (16, 16, 48, 4096));
    assert_eq!((rounded(u64::MAX, 1), rounded(u64::MAX - 15, 1 << 63)), (u64::MAX, u64::MAX));
}

fn use_from_threads(lock: LockKind) {
    let block = Block::try_new(40, 1 << 14, lock).unwrap();
    let mut random = Random::with_seed_or(4);
    // Each thread frees what others have allocated, too.
    let shared = Lock::new(LockKind::spin(), Vec::<Placed>::new());
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let (mut random, shared, block) = (Random(random.any()), &shared, &block);
            scope.spawn(move || {
                for _ in 0..ROUNDS / 4 {
                    if random.below(2) == 0 {
                        if let Some(placed) = block.place(random.layout(512), thread) {
                            shared.lock().push(placed);
                        }
                    } else {
                        let mut placed = shared.lock();
                        let any = (!placed.is_empty()).then(|| random.below(placed.len()));
                        let any = any.map(|any| placed.swap_remove(any));
                        drop(placed);
                        any.into_iter().for_each(|placed| block.free(placed));
                    }
                }
            });
        }
    });
    shared.lock().drain(..).for_each(|placed| block.free(placed));
    block.assert_whole();
}

#[test]
fn threads_that_free_each_others_memory_leave_the_block_whole() {
    use_from_threads(LockKind::spin());
}

#[test]
fn lock_hooks_are_held_during_every_change_and_one_at_a_time() {
    use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    #[derive(Default)]
    struct Hook {
        held: AtomicBool,
        taken: AtomicU64,
    }
    unsafe extern "C" fn lock(user_data: *mut c_void) {
        // SAFETY: the test passes a `Hook` that outlives the block.
        let hook = unsafe { &*user_data.cast::<Hook>() };
        while hook.held.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        hook.taken.fetch_add(1, Ordering::Relaxed);
    }
    unsafe extern "C" fn unlock(user_data: *mut c_void) {
        // SAFETY: as above.
        let hook = unsafe { &*user_data.cast::<Hook>() };
        assert!(hook.held.swap(false, Ordering::Release));
    }
    let hook = Box::new(Hook::default());
    // SAFETY: one holder at a time, from any thread; nothing unwinds, since a failed assertion aborts.
    let kind = unsafe { LockKind::hooks((&raw const *hook).cast_mut().cast(), lock, unlock) };
    let block = Block::try_new(0, 1 << 12, kind).unwrap();
    assert_eq!(hook.taken.load(Ordering::Relaxed), 0);
    let placed = block.place(layout(8, 8), 0).unwrap();
    block.free(placed);
    block.statistics();
    assert_eq!(hook.taken.load(Ordering::Relaxed), 3);
    drop(block);
    use_from_threads(kind);
    assert!(!hook.held.load(Ordering::Relaxed));
}

#[test]
fn an_allocator_and_a_space_keep_their_books_in_one_block_and_leave_it_whole() {
    use crate::{Allocator, AllocatorOptions, HostDevice, PoolOptions, Request, Space, SpaceOptions};
    let block = Block::new(24, 1 << 17);
    for _ in 0..3 {
        let pools = [PoolOptions::sliced_pages(4096, 4096, None)];
        let options = AllocatorOptions::default().with_memory(block.memory);
        let allocator = Allocator::try_new(HostDevice::new(), &pools, options).unwrap();
        let space = Space::try_new(SpaceOptions::new(1 << 20).with_memory(block.memory)).unwrap();
        let mut live = Vec::new();
        let refused = loop {
            match allocator.allocate(&Request::new(100)) {
                Ok(slice) => live.push(slice.id),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::OutOfHostMemory { .. }), "{refused:?}");
        // The block is full; what is there still works.
        allocator.free(live.pop().unwrap()).unwrap();
        live.push(allocator.allocate(&Request::new(100)).unwrap().id);
        live.into_iter().for_each(|id| allocator.free(id).unwrap());
        assert!(allocator.destroy().is_ok());
        drop(space);
        block.assert_whole();
    }
    assert!(block.statistics().peak <= 1 << 17);
}
