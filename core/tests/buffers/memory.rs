//! Where the memory comes from: slabs, regions, pages of their own, a block.

use crate::common::devices::LedgerDevice;
use crate::common::random::Random;
use crate::world::{
    Figures, MEMORY, PAGE, World, class, classes, exhausted, free, id, limit, place, rounds, some, take, until_served,
};
use slicepool_core::{
    AllocatorOptions, BufferPool, BufferPoolConfig, BufferPoolError, Device, DeviceError, DeviceMemory, Error,
    HostDevice, PageRequest,
};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Mutex;

/// Bytes of a slab of small buffers.
const SLAB: u64 = 256 << 10;

/// The sizes of all slabs of a class.
fn slabs(size: u64, limit: u64) -> Vec<u64> {
    let mut left = limit;
    let mut sizes = Vec::new();
    while left != 0 {
        let count = left.min(SLAB / size).max(1);
        sizes.push(count * size);
        left -= count;
    }
    sizes
}

#[test]
fn a_pool_takes_nothing_from_the_device_before_the_first_request() {
    let world = World::new();
    let pool = world.pool(BufferPoolConfig::for_network());
    let cache = pool.cache().unwrap();
    assert_eq!((world.device.calls(), pool.statistics().reserved, pool.regions().count()), (0, 0, 0));
    drop(cache);
    drop(pool);
    assert_eq!(world.device.calls(), 0);
}

/// Without memory, so that the largest cost nothing.
#[test]
fn slabs_have_256_kib_or_one_buffer_or_what_the_limit_leaves() {
    for (size, limit) in [
        (64, 1),
        (64, 5000),
        (1024, 255),
        (1024, 256),
        (1024, 257),
        (4096, 200),
        (1 << 16, 3),
        (1 << 16, 4),
        (1 << 16, 9),
        (1 << 17, 5),
        (SLAB, 3),
        (SLAB * 2, 3),
        (1 << 30, 2),
        (1 << 39, 2),
    ] {
        if usize::try_from(size).is_err() {
            continue;
        }
        let world = World::without_memory();
        let pool = world.pool(classes(&[(size as usize, limit)]));
        let out = take(&pool, size as usize, limit);
        let expected = slabs(size, limit.into());
        assert_eq!(world.device.sizes(), expected, "{limit} of {size}");
        assert_eq!(world.device.bytes(), pool.config().max_tracked_bytes() as u64);
        assert!(pool.regions().map(|region| region.bytes).eq(expected));
        assert_eq!(pool.try_alloc(size as usize).unwrap_err(), exhausted(size as usize, limit));
        drop(out);
    }
}

#[test]
fn classes_of_a_few_bytes_have_slabs_like_any_other() {
    for size in [1, 2, 32] {
        let world = World::new();
        let pool = world.pool(classes(&[(size, 1000)]));
        let out = take(&pool, size, 1000);
        assert_eq!(world.device.sizes(), [1000 * size as u64]);
        drop(out);
    }
}

#[test]
fn what_is_not_carved_of_a_slab_is_neither_created_nor_parked() {
    let world = World::new();
    let pool = world.pool(classes(&[(1024, 1000)]));
    let mut out = Vec::new();
    for count in 1..=300 {
        out.push(pool.try_alloc(1024).unwrap());
        let figures = class(&pool, 1024);
        assert_eq!((figures.created, figures.in_use, figures.free), (count, count, 0));
        assert_eq!(world.device.calls(), if count <= 256 { 1 } else { 2 });
        assert_eq!(pool.check(), Ok(()));
    }
    assert_eq!(pool.regions().map(|region| region.bytes).sum::<u64>(), 2 * SLAB);
    // Buffers lie one behind the other in the order in which they are created.
    let places: Vec<_> = out[..256].iter().map(place).collect();
    let first = places[0].0;
    assert!(places.iter().copied().eq((0..256).map(|k| (first, k * 1024))));
}

#[test]
fn a_buffer_that_comes_back_is_used_before_another_is_created() {
    let world = World::new();
    let pool = world.pool(classes(&[(1024, 1000)]));
    for _ in 0..100 {
        drop(take(&pool, 1024, 3));
    }
    assert_eq!((class(&pool, 1024).created, free(&pool, 1024)), (3, 3));
}

#[test]
fn buffers_lie_in_the_regions_of_their_class_and_do_not_overlap() {
    let world = World::new();
    let sizes = [(32, 300), (64, 5000), (1024, 300), (1 << 17, 5)];
    let pool = world.pool(classes(&sizes));
    let mut all = Vec::new();
    let mut random = Random::from(31);
    let mut left: Vec<_> =
        sizes.iter().flat_map(|&(size, count)| (0..rounds(count).min(count)).map(move |_| size)).collect();
    while !left.is_empty() {
        all.push(pool.try_alloc(random.take(&mut left)).unwrap());
    }
    let mut ranges = Vec::new();
    let regions: Vec<_> = pool.regions().collect();
    for buffer in &all {
        let (memory, offset) = place(buffer);
        let end = offset + buffer.capacity() as u64;
        let inside = |region: &&slicepool_core::BufferRegion| {
            region.memory == memory && region.base <= offset && end <= region.base + region.bytes
        };
        let region = regions.iter().find(inside).expect("the buffer lies in a region");
        assert_eq!(region.buffer_size, buffer.capacity() as u64);
        assert_eq!(buffer.as_ptr(), region.mapped.wrapping_add((offset - region.base) as usize));
        ranges.push((buffer.as_ptr().addr(), buffer.capacity()));
    }
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    let held: u64 = regions.iter().map(|region| region.bytes).sum();
    assert_eq!((held, pool.statistics().reserved), (world.device.bytes(), world.device.bytes()));
}

#[test]
fn a_device_that_refuses_large_slabs_is_asked_for_smaller_ones() {
    let world = World::without_memory();
    let pool = world.pool(classes(&[(1024, 1000)]));
    // 256 and 128 buffers are not to be had, and 64 are.
    world.device.limit_to(100 * 1024);
    let mut out = take(&pool, 1024, 64);
    assert_eq!((world.device.sizes(), world.device.allocate_refused()), (vec![64 * 1024], 2));
    assert_eq!((class(&pool, 1024).created, pool.check()), (64, Ok(())));
    // 36 are left: 32, and 4.
    out.extend(take(&pool, 1024, 36));
    assert_eq!(world.device.sizes(), [64, 32, 4].map(|count| count * 1024));
    assert_eq!(world.device.bytes(), 100 * 1024);
    let error = pool.try_alloc(1024).unwrap_err();
    assert!(matches!(error, Error::OutOfDeviceMemory { size: 1024, .. }), "the smallest: {error:?}");
    assert_eq!((class(&pool, 1024).created, class(&pool, 1024).exhausted, pool.check()), (100, 0, Ok(())));
    drop(out.pop());
    out.push(pool.try_alloc(1024).unwrap());
    // Nothing is lost of the limit.
    world.device.limit_to(u64::MAX);
    out.push(until_served(&pool, 1024).0);
    out.extend(take(&pool, 1024, 899));
    assert_eq!((world.device.bytes(), class(&pool, 1024).created), (1000 * 1024, 1000));
}

/// A device is left alone for 64 requests after it has refused one; the slabs that were tried are one refusal together.
#[test]
fn a_device_that_has_memory_again_is_asked_again_after_at_most_64_refused_requests() {
    for (size, limit) in [(SLAB as usize, 2), (1024, 1000)] {
        let world = World::without_memory();
        let pool = world.pool(classes(&[(size, limit)]));
        world.device.limit_to(0);
        assert!(matches!(pool.try_alloc(size), Err(Error::OutOfDeviceMemory { .. })));
        world.device.limit_to(u64::MAX);
        let (buffer, refused) = until_served(&pool, size);
        assert!(refused <= 64, "{size}: {refused} requests were refused without a word to the device");
        drop(buffer);
    }
}

/// Whatever the smallest class is.
#[test]
fn a_class_of_tiny_buffers_takes_nothing_from_what_other_classes_may_be() {
    let world = World::without_memory();
    let config = classes(&[(1, 8), (1 << 20, 8192)]).with_prefill(true);
    let pool = world.try_pool(config).map_err(|error| error.to_string());
    assert_eq!(pool.map(|pool| pool.statistics().reserved), Ok(8 + (8192 << 20)));
}

#[test]
fn a_device_that_fails_otherwise_is_asked_once() {
    let asked = Mutex::new(Vec::new());
    let device = crate::common::devices::ScriptedDevice {
        allocate: |request: &PageRequest| {
            asked.lock().unwrap().push(request.size);
            Err::<DeviceMemory, _>(DeviceError::Failed(-9))
        },
        deallocate: |_: &DeviceMemory| Ok(()),
    };
    let world = World::over(&device);
    let pool = world.pool(classes(&[(1024, 1000)]));
    let error = pool.try_alloc(1024).unwrap_err();
    assert!(matches!(error, Error::DeviceFailed { code: -9, .. }), "{error:?}");
    assert_eq!((asked.lock().unwrap().clone(), pool.check()), (vec![SLAB], Ok(())));
    assert_eq!((class(&pool, 1024).created, class(&pool, 1024).exhausted), (0, 0));
}

#[test]
fn budgets_are_kept_by_smaller_slabs_and_named_when_there_is_no_room_for_one_buffer() {
    let world = World::without_memory();
    let options = world.options().with_max_bytes(Some(300 * 1024));
    let pool = BufferPool::with_device(&world.device, classes(&[(1024, 1000)]), options).unwrap();
    let out = take(&pool, 1024, 300);
    assert_eq!(world.device.bytes(), 300 * 1024);
    assert_eq!(world.device.sizes(), [256, 32, 8, 4].map(|count| count * 1024));
    let error = pool.try_alloc(1).unwrap_err();
    assert_eq!(error, Error::BudgetExceeded { size: 1024, limit: 300 * 1024, reserved: 300 * 1024 });
    // Also beyond the classes.
    assert!(matches!(pool.alloc(1), Err(Error::BudgetExceeded { .. })));
    assert_eq!((pool.check(), world.device.allocate_refused()), (Ok(()), 0));
    drop(out);
    assert_eq!(free(&pool, 1024), 300);
}

#[test]
fn a_limit_on_pages_is_a_limit_on_slabs() {
    let world = World::without_memory();
    let options = world.options().with_max_pages(Some(2));
    let pool = BufferPool::with_device(&world.device, classes(&[(1024, 1000)]), options).unwrap();
    let out = take(&pool, 1024, 512);
    let error = pool.try_alloc(1024).unwrap_err();
    assert_eq!(error, Error::PageCountExceeded { size: SLAB, limit: 2 });
    assert_eq!((class(&pool, 1024).created, pool.check()), (512, Ok(())));
    drop(out);
}

#[test]
fn no_slab_is_larger_than_the_device_s_pages() {
    let world = World::without_memory();
    let mut memory = MEMORY;
    memory.max_page = 100_000;
    let options = world.options().with_memory_type(memory);
    let pool = BufferPool::with_device(&world.device, classes(&[(1024, 300), (1 << 16, 2)]), options).unwrap();
    let out = (take(&pool, 1024, 300), take(&pool, 1 << 16, 2));
    assert_eq!(world.device.sizes(), [97 * 1024, 97 * 1024, 97 * 1024, 9 * 1024, 1 << 16, 1 << 16]);
    let beyond = pool.alloc(100_001).unwrap_err();
    assert!(matches!(beyond, Error::TooLarge { size: 100_001, .. }), "{beyond:?}");
    drop(out);
}

#[test]
fn a_buffer_may_be_as_large_as_the_device_s_pages_and_no_larger() {
    let world = World::without_memory();
    for (max_page, expected) in [
        (1 << 16, Ok(1 << 16)),
        ((1 << 16) - 1, Err(BufferPoolError::Failed(Error::InvalidArgument { field: c"size", value: 1 << 16 }))),
    ] {
        let mut memory = MEMORY;
        memory.max_page = max_page;
        let options = world.options().with_memory_type(memory);
        let pool = BufferPool::with_device(&world.device, classes(&[(1 << 16, 2)]), options);
        assert_eq!(pool.map(|pool| pool.try_alloc(1 << 16).unwrap().capacity()), expected);
    }
}

/// The pool of slabs counts in granules, and has as many as fit in 32 bits.
#[cfg(target_pointer_width = "64")]
#[test]
fn what_is_too_large_for_the_pool_of_slabs_has_another_one() {
    const SLABS: u32 = 0;
    let ledger = LedgerDevice::new();
    let asked = Mutex::new(Vec::new());
    let device = crate::common::devices::ScriptedDevice {
        allocate: |request: &PageRequest| {
            asked.lock().unwrap().push((request.size, request.pool == SLABS));
            ledger.allocate(request)
        },
        deallocate: |memory: &DeviceMemory| ledger.deallocate(memory),
    };
    let world = World::over(&device);
    // Granules of four bytes, with which the class fits.
    let pool = world.pool(classes(&[(1 << 33, 1)]));
    let _all = pool.try_alloc(1 << 33).unwrap();
    let most = u64::from(u32::MAX) * 4;
    for size in [4, most - 4, most, most + 4, 2 * most] {
        drop(pool.alloc(size as usize).unwrap());
        let (page, is_of_slabs) = asked.lock().unwrap().pop().unwrap();
        assert!(page == size || (page > size && !is_of_slabs));
        assert_eq!(is_of_slabs, size <= most, "{size}");
    }
}

/// The ceiling.
#[test]
fn without_untracked_buffers_the_device_never_gives_more_than_the_configuration_says() {
    let config = classes(&[(32, 100), (256, 77), (1024, 300), (1 << 15, 11), (1 << 18, 2)]);
    let world = World::without_memory();
    let pool = world.pool(config.with_pool_min_size(10));
    let mut random = Random::with_seed_or(33);
    let mut cache = pool.cache().unwrap();
    let mut out = Vec::new();
    for _ in 0..rounds(20_000) {
        if random.below(8) == 0 && !out.is_empty() {
            pool.release(random.take(&mut out)).unwrap();
            continue;
        }
        let size = random.scaled(1 << 19) as usize - 1;
        let raw = if random.below(2) == 0 { cache.take(size, false, false) } else { pool.take(size, false, false) };
        out.extend(raw.ok().and_then(|raw| raw.id));
        assert!(world.device.bytes_peak() <= config.max_tracked_bytes() as u64);
    }
    if !cfg!(miri) {
        assert!(class(&pool, 256).exhausted > 0 && class(&pool, 1024).exhausted > 0);
        assert!(world.device.bytes() > config.max_tracked_bytes() as u64 / 2);
    }
    for handle in out {
        pool.release(handle).unwrap();
    }
}

#[test]
fn every_buffer_is_aligned_as_configured_and_so_is_one_beyond_the_classes() {
    for alignment in [1, 64, 256, 4096] {
        let world = World::new();
        let config = classes(&[(4096, 70), (1 << 14, 3)]).with_alignment(some(alignment));
        let pool = world.pool(config.with_pool_min_size(4096));
        let mut cache = pool.cache().unwrap();
        let mut out = take(&pool, 4096, 70);
        out.extend(take(&pool, 1 << 14, 3));
        out.extend([1, 99, 4095, 5000, 100_000].map(|size| pool.alloc(size).unwrap()));
        out.extend([1, 99, 4095, 5000].map(|size| cache.alloc(size).unwrap()));
        assert!(out.iter().all(|buffer| buffer.as_ptr().addr() % alignment == 0), "{alignment}");
    }
    let world = World::new();
    let pool = world.pool(classes(&[(4096, 7)]).with_alignment(some(4096)).with_prefill(true));
    assert!(take(&pool, 4096, 7).iter().all(|buffer| buffer.as_ptr().addr() % 4096 == 0));
}

/// What [`LedgerDevice`] does not look at: which alignment is asked for.
#[test]
fn the_device_is_asked_for_its_own_alignment_and_the_configured_one() {
    for (own, configured, expected) in [(64, 1, 64), (64, 256, 256), (4096, 256, 4096), (1, 512, 512)] {
        let asked = Mutex::new(Vec::new());
        let ledger = LedgerDevice::new();
        let device = crate::common::devices::ScriptedDevice {
            allocate: |request: &PageRequest| {
                asked.lock().unwrap().push(request.alignment);
                ledger.allocate(request)
            },
            deallocate: |memory: &DeviceMemory| ledger.deallocate(memory),
        };
        let world = World::over(&device);
        let mut memory = MEMORY;
        memory.alignment = own;
        let options = world.options().with_memory_type(memory);
        let config = classes(&[(1024, 4)]).with_alignment(some(configured));
        let pool = BufferPool::with_device(&world.device, config, options).unwrap();
        drop((pool.try_alloc(1024).unwrap(), pool.alloc(5000).unwrap()));
        drop(pool);
        let fits = |&alignment: &u64| alignment >= expected && alignment.is_power_of_two();
        assert!(asked.lock().unwrap().iter().all(fits), "{asked:?}");
        assert_eq!(asked.lock().unwrap().len(), 2);
    }
}

#[test]
fn an_untracked_buffer_is_a_page_of_its_own_which_goes_back_with_it() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]));
    let _one = pool.try_alloc(PAGE).unwrap();
    let mut out = Vec::new();
    for (count, size) in [PAGE, PAGE + 1, 1_000_000].into_iter().enumerate() {
        let buffer = pool.alloc(size).unwrap();
        assert_eq!((buffer.offset(), world.device.pages()), (0, 2 + count as u64));
        assert!((size as u64..size as u64 + 256).contains(world.device.sizes().last().unwrap()));
        out.push(buffer);
    }
    while let Some(buffer) = out.pop() {
        let memory = buffer.memory();
        drop(buffer);
        assert!(!world.device.is_out(memory));
        assert_eq!(world.device.pages(), 1 + out.len() as u64);
    }
    // Two device calls for each, and its books are used again.
    let (calls, bytes) = (world.device.calls(), world.host.bytes());
    for _ in 0..100 {
        drop(pool.alloc(5000).unwrap());
    }
    assert_eq!((world.device.calls(), world.host.bytes()), (calls + 200, bytes));
}

#[test]
fn many_untracked_buffers_are_out_at_a_time_and_each_has_its_place() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]).with_pool_min_size(PAGE));
    let mut random = Random::from(34);
    let mut out = Vec::new();
    for round in 0..rounds(1000) {
        let mut buffer = pool.try_alloc(1 + random.below(300) as usize).unwrap();
        buffer.resize(buffer.capacity(), round as u8);
        out.push((buffer, round as u8));
        if random.below(3) == 0 {
            let (buffer, byte) = random.take(&mut out);
            assert!(buffer.iter().all(|&at| at == byte));
        }
    }
    assert_eq!((pool.statistics().untracked as usize, world.device.pages() as usize), (out.len(), out.len()));
    assert!(out.iter().all(|(buffer, byte)| buffer.iter().all(|at| at == byte)));
}

/// From Rust's own memory, as most programs will have it.
#[test]
fn a_pool_in_host_memory_needs_nothing_but_a_configuration() {
    let pool = BufferPool::try_new(BufferPoolConfig::default().with_max_per_class(limit(3))).unwrap();
    let mut cache = pool.cache().unwrap();
    let mut buffer = cache.try_alloc(1500).unwrap();
    buffer.extend_from_slice(b"a packet");
    assert_eq!((&buffer[..], buffer.capacity()), (&b"a packet"[..], 2048));
    assert_eq!(buffer.as_ptr().addr() % 64, 0, "no cache line is shared with anything else");
    cache.release(buffer);
    assert_eq!(format!("{:?}", pool.device()), format!("{:?}", HostDevice::new()));
    let other = pool.try_alloc(1 << 17).unwrap();
    drop((cache, pool, other));
}

// ---- a block

/// What a program without an allocator has.
#[repr(align(64))]
struct Block<const BYTES: usize>(UnsafeCell<MaybeUninit<[u8; BYTES]>>);

// SAFETY: one test uses each.
unsafe impl<const BYTES: usize> Sync for Block<BYTES> {}

impl<const BYTES: usize> Block<BYTES> {
    const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.0.get().cast()).unwrap()
    }

    fn contains(&self, at: *const u8, bytes: usize) -> bool {
        let start = self.start().addr().get();
        start <= at.addr() && at.addr() + bytes <= start + BYTES
    }
}

#[test]
fn in_a_block_every_buffer_lies_inside_and_is_aligned_and_a_full_one_is_an_error() {
    static BLOCK: Block<{ 512 << 10 }> = Block::new();
    for alignment in [1, 1024] {
        let world = World::new();
        let config = classes(&[(1024, 4000), (1 << 15, 80)]).with_alignment(some(alignment));
        // SAFETY: the block is this test's, and the pool is gone before the next one has it.
        let pool = unsafe { BufferPool::in_memory(BLOCK.start(), 512 << 10, config, world.options()) }.unwrap();
        let mut out = Vec::new();
        let error = loop {
            match pool.try_alloc(if out.len() % 8 == 0 { 1 << 15 } else { 1024 }) {
                Ok(mut buffer) => {
                    buffer.resize(buffer.capacity(), out.len() as u8);
                    out.push(buffer);
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::OutOfDeviceMemory { .. }), "{error:?}");
        assert!(matches!(pool.alloc(100_000), Err(Error::OutOfDeviceMemory { .. })));
        let bytes: usize = out.iter().map(|buffer| buffer.capacity()).sum();
        // The first slabs are 256 KiB, or whatever of that is to be had.
        assert!(bytes > 100 << 10, "{bytes}");
        for (index, buffer) in out.iter().enumerate() {
            assert!(BLOCK.contains(buffer.as_ptr(), buffer.capacity()));
            assert_eq!(buffer.as_ptr().addr() % alignment.max(64), 0);
            assert!(buffer.iter().all(|&byte| byte == index as u8), "{index}");
        }
        assert_eq!(pool.check(), Ok(()));
        // Still of use.
        let at = out.pop().map(|buffer| buffer.as_ptr());
        let again = pool.try_alloc(1 << 10).or_else(|_| pool.try_alloc(1 << 15)).unwrap();
        assert!(at == Some(again.as_ptr()) || BLOCK.contains(again.as_ptr(), again.capacity()));
        drop(again);
        let count = out.len();
        drop(out);
        let created = Figures::of(&pool).classes.iter().map(|class| class.created as usize).sum::<usize>();
        assert!(created > count && pool.check().is_ok());
        drop(pool);
    }
}

#[test]
fn a_block_can_be_filled_to_the_last_buffer_by_smaller_and_smaller_slabs() {
    static BLOCK: Block<{ 100 << 10 }> = Block::new();
    let world = World::new();
    // SAFETY: the block is this test's.
    let pool = unsafe { BufferPool::in_memory(BLOCK.start(), 100 << 10, classes(&[(1024, 1000)]), world.options()) };
    let pool = pool.unwrap();
    let mut out = Vec::new();
    while let Ok(buffer) = pool.try_alloc(1024) {
        out.push(buffer);
    }
    // The block's own books take less than 200 bytes.
    assert_eq!(out.len(), 99);
    assert_eq!(pool.check(), Ok(()));
    drop(out.pop());
    assert!(pool.try_alloc(1024).is_ok() && class(&pool, 1024).created == 99);
}

#[test]
fn a_prefilled_pool_in_a_block_is_there_or_not() {
    static BLOCK: Block<{ 70 << 10 }> = Block::new();
    let world = World::new();
    for (count, fits) in [(60, true), (69, true), (70, false), (10_000, false)] {
        let config = classes(&[(1024, count)]).with_prefill(true);
        // SAFETY: the block is this test's, and one pool at a time has it.
        let pool = unsafe { BufferPool::in_memory(BLOCK.start(), 70 << 10, config, world.options()) };
        match pool {
            Ok(pool) => assert!(fits && take(&pool, 1024, count).len() == count as usize),
            Err(error) => {
                assert!(matches!(error, BufferPoolError::Prefill { size: 1024, .. }) && !fits, "{count}: {error:?}");
            }
        }
    }
}

#[test]
fn a_block_without_room_for_anything_is_an_invalid_argument() {
    static BLOCK: Block<1024> = Block::new();
    let options = AllocatorOptions::default;
    for bytes in [0, 1, 15, 64] {
        // SAFETY: the block is this test's.
        let refused = unsafe { BufferPool::in_memory(BLOCK.start(), bytes, classes(&[(64, 1)]), options()) };
        let error = Error::InvalidArgument { field: c"bytes", value: bytes as u64 };
        assert_eq!(refused.unwrap_err(), BufferPoolError::Failed(error));
    }
    // SAFETY: as above.
    let pool = unsafe { BufferPool::in_memory(BLOCK.start(), 1024, classes(&[(64, 100)]), options()) }.unwrap();
    let raw = pool.take(64, false, false).unwrap();
    assert!(BLOCK.contains(raw.mapped, 64));
    pool.release(id(&raw)).unwrap();
}
