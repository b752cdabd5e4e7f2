//! Buffers that are asked for with zeros in them, and memory that the CPU does not see.

use crate::common::filler::{Fill, Filler};
use crate::world::{PAGE, Pool, World, class, classes, free, id, some};
use slicepool_core::{
    Device, DeviceError, DeviceFault, DeviceMemory, Error, FillReason, FillRequest, PageRequest, Point,
};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn a_used_buffer_comes_back_all_zero_and_is_the_same() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]));
    let mut buffer = pool.try_alloc(PAGE).unwrap();
    buffer.resize(PAGE, 0xAB);
    let at = buffer.as_ptr();
    drop(buffer);
    let buffer = pool.try_alloc_zeroed(PAGE).unwrap();
    assert_eq!((buffer.as_ptr(), buffer.is_tracked(), buffer.len()), (at, true, PAGE));
    assert!(buffer.iter().all(|&byte| byte == 0));
}

#[test]
fn every_zeroed_variant_has_the_length_asked_for_and_zeros_in_it() {
    let world = World::new();
    let pool = world.pool(classes(&[(1024, 1)]).with_max_thread_cache_capacity(some(1)).with_pool_min_size(8));
    let mut cache = pool.cache().unwrap();
    for size in [1, 7, 8, 9, 1000, 1024, 5000] {
        let soil = |buffer: &mut slicepool_core::PooledBuffer<_>| buffer.resize(buffer.capacity(), 0xAB);
        if size <= 1024 {
            soil(&mut pool.alloc(1024).unwrap());
            let clean = pool.try_alloc_zeroed(size).unwrap();
            assert_eq!((clean.len(), clean.iter().any(|&byte| byte != 0)), (size, false));
            drop(clean);
            let mut dirty = cache.try_alloc(1024).unwrap();
            soil(&mut dirty);
            cache.release(dirty);
            let clean = cache.try_alloc_zeroed(size).unwrap();
            assert_eq!((clean.len(), clean.iter().any(|&byte| byte != 0)), (size, false));
        }
        for clean in [pool.alloc_zeroed(size).unwrap(), cache.alloc_zeroed(size).unwrap()] {
            assert_eq!((clean.len(), clean.iter().any(|&byte| byte != 0)), (size, false));
        }
        cache.flush();
    }
}

#[test]
fn a_zeroed_raw_buffer_is_zero_as_far_as_was_asked() {
    let world = World::new();
    let pool = world.pool(classes(&[(1024, 1)]).with_max_thread_cache_capacity(some(1)));
    let mut cache = pool.cache().unwrap();
    for (size, through_cache) in [(1, false), (1000, false), (1024, false), (3, true), (1024, true)] {
        pool.alloc(1024).unwrap().resize(1024, 0xAB);
        let raw = if through_cache { cache.take(size, false, true) } else { pool.take(size, false, true) }.unwrap();
        // SAFETY: the buffer is out, mapped, and so long; its first bytes have been written to.
        let bytes = unsafe { std::slice::from_raw_parts(raw.mapped, size) };
        assert!(bytes.iter().all(|&byte| byte == 0), "{size}");
        if through_cache { cache.release_raw(id(&raw)) } else { pool.release(id(&raw)) }.unwrap();
        cache.flush();
    }
}

#[test]
fn a_buffer_that_is_not_asked_for_zeros_is_not_touched() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]));
    let mut buffer = pool.try_alloc(PAGE).unwrap();
    buffer.resize(PAGE, 0xAB);
    drop(buffer);
    let mut buffer = pool.try_alloc(PAGE).unwrap();
    assert!(buffer.is_empty());
    // SAFETY: the first user has written to all of it, and the memory is the same.
    unsafe { buffer.set_len(PAGE) };
    assert!(buffer.iter().all(|&byte| byte == 0xAB));
}

// ---- memory that the CPU does not see

/// Hides where the pages of a [`Filler`] are.
struct Unseen {
    beneath: Filler,
    pages: Mutex<HashMap<u64, DeviceMemory>>,
    can_fill: bool,
    /// Calls for what are not whole words.
    broken_words: AtomicU32,
}

impl Unseen {
    fn world(can_fill: bool) -> World<Self> {
        World::over(Self { beneath: Filler::new(), pages: Mutex::default(), can_fill, broken_words: AtomicU32::new(0) })
    }

    fn page(&self, handle: u64) -> DeviceMemory {
        self.pages.lock().unwrap()[&handle]
    }

    /// The bytes at a place.
    fn look(&self, handle: u64, offset: u64, size: usize) -> Vec<u8> {
        // SAFETY: the page is out and as large; `Filler` has filled it, and nobody writes there meanwhile.
        unsafe { std::slice::from_raw_parts(self.page(handle).mapped.add(offset as usize), size).to_vec() }
    }

    /// Writes as the device would.
    fn soil(&self, handle: u64, offset: u64, size: usize) {
        // SAFETY: as above.
        unsafe { self.page(handle).mapped.add(offset as usize).write_bytes(0xAB, size) };
    }
}

impl Device for Unseen {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        let memory = self.beneath.allocate(request)?;
        self.pages.lock().unwrap().insert(memory.handle, memory);
        Ok(DeviceMemory { mapped: std::ptr::null_mut(), ..memory })
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        assert!(memory.mapped.is_null());
        let page = self.page(memory.handle);
        self.beneath.deallocate(&DeviceMemory { size: memory.size, ..page })?;
        self.pages.lock().unwrap().remove(&memory.handle);
        Ok(())
    }

    fn can_fill(&self) -> bool {
        self.can_fill
    }

    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        let FillRequest { memory, offset, size, .. } = *request;
        self.broken_words.fetch_add(u32::from(offset % 4 != 0 || size % 4 != 0), Ordering::Relaxed);
        let page = self.page(memory.handle);
        let mut real = *request;
        real.memory = DeviceMemory { size: memory.size, ..page };
        self.beneath.fill(&real)
    }
}

fn unseen_classes() -> slicepool_core::BufferPoolConfig {
    classes(&[(256, 1), (4096, 3)]).with_max_thread_cache_capacity(some(3))
}

#[test]
fn a_buffer_that_the_cpu_does_not_see_has_no_bytes_and_is_named_by_its_place() {
    let world = Unseen::world(true);
    let pool = world.pool(unseen_classes());
    let mut buffers = crate::world::take(&pool, 4096, 3);
    for (index, buffer) in buffers.iter_mut().enumerate() {
        assert_eq!((buffer.len(), buffer.is_empty(), buffer.is_mapped(), buffer.capacity()), (0, true, false, 4096));
        assert_eq!((buffer.as_ptr(), buffer.as_mut_ptr()), (std::ptr::null(), std::ptr::null_mut()));
        assert_eq!(buffer.spare_capacity_mut().len(), 0);
        assert_eq!(&buffer[..], &[] as &[u8]);
        assert_eq!((buffer.memory() != 0, buffer.offset()), (true, 4096 * index as u64));
        assert_eq!(buffer.address(), buffer.memory() + buffer.offset(), "the device gives an address");
        buffer.clear();
        buffer.truncate(7);
        assert!(buffer.is_tracked() && buffer.is_empty());
    }
    assert!(pool.alloc(5000).unwrap().as_ptr().is_null());
}

#[test]
#[cfg(panic = "unwind")]
fn a_buffer_that_the_cpu_does_not_see_cannot_be_appended_to() {
    let world = Unseen::world(true);
    let pool = world.pool(unseen_classes());
    let append = || pool.try_alloc(100).unwrap().extend_from_slice(&[1]);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(append)).is_err());
    let resize = || pool.try_alloc(100).unwrap().resize(1, 1);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(resize)).is_err());
    assert_eq!((free(&pool, 256), class(&pool, 256).created), (1, 1), "unwinding has put them back");
}

#[test]
fn the_device_zeroes_what_the_cpu_does_not_see_and_nothing_behind_it() {
    let world = Unseen::world(true);
    let pool = world.pool(unseen_classes());
    let mut cache = pool.cache().unwrap();
    for (size, filled) in [(1, 4), (4, 4), (5, 8), (4095, 4096), (4096, 4096)] {
        let kept = pool.try_alloc(4096).unwrap();
        for through_cache in [false, true] {
            let dirty = pool.try_alloc(4096).unwrap();
            let (memory, offset) = (dirty.memory(), dirty.offset());
            world.device.soil(memory, offset, 4096);
            cache.release(dirty);
            if !through_cache {
                cache.flush();
            }
            let raw =
                if through_cache { cache.take(size.max(257), false, false) } else { pool.take(4096, false, false) };
            let raw = raw.unwrap();
            assert_eq!((raw.memory, raw.offset), (memory, offset));
            pool.release(id(&raw)).unwrap();
            let raw = pool.take(size.max(257), false, true).unwrap();
            let expected = (FillReason::Zero, memory, offset, filled.max(260));
            assert_eq!(world.device.beneath.take_filled(), [expected]);
            let seen = world.device.look(memory, offset, 4096);
            assert!(seen[..size.max(257)].iter().all(|&byte| byte == 0));
            assert!(seen[filled.max(260) as usize..].iter().all(|&byte| byte == 0xAB));
            pool.release(id(&raw)).unwrap();
        }
        drop(kept);
    }
    // Of an owner, too; its length says nothing of what nobody can look at.
    let buffer = pool.try_alloc_zeroed(100).unwrap();
    assert_eq!((buffer.len(), world.device.beneath.take_filled().len()), (0, 1));
    assert_eq!(world.device.look(buffer.memory(), buffer.offset(), 100), [0; 100]);
    let beyond = pool.alloc_zeroed(5000).unwrap();
    assert_eq!(world.device.look(beyond.memory(), beyond.offset(), 5000), [0; 5000]);
    assert_eq!(world.device.broken_words.load(Ordering::Relaxed), 0);
}

/// Functions of devices clear words: also of a buffer whose size is no multiple of one, since its page is.
#[test]
fn the_device_is_asked_for_whole_words_also_beyond_the_classes() {
    let world = Unseen::world(true);
    let pool = world.pool(classes(&[(4096, 1)]).with_pool_min_size(4096));
    for size in 1..9 {
        let buffer = pool.alloc_zeroed(size).unwrap();
        let filled = world.device.beneath.take_filled();
        assert_eq!(filled.len(), 1);
        assert_eq!(world.device.look(buffer.memory(), buffer.offset(), size), vec![0; size]);
        assert_eq!(world.device.broken_words.load(Ordering::Relaxed), 0, "{size} bytes: {filled:?}");
    }
}

/// Everything that can be asked for zeros.
fn ask_for_zeros(pool: &Pool<'_, Unseen>, expected: Error) {
    let mut cache = pool.cache().unwrap();
    let before = (class(pool, 256), class(pool, 4096));
    for size in [100, 256, 4096] {
        assert_eq!(pool.try_alloc_zeroed(size).unwrap_err(), expected);
        assert_eq!(pool.alloc_zeroed(size).unwrap_err(), expected);
        assert_eq!(cache.try_alloc_zeroed(size).unwrap_err(), expected);
        assert_eq!(cache.alloc_zeroed(size).unwrap_err(), expected);
        for untracked in [false, true] {
            assert_eq!(pool.take(size, untracked, true).unwrap_err(), expected);
            assert_eq!(cache.take(size, untracked, true).unwrap_err(), expected);
            cache.flush();
        }
    }
    assert_eq!(pool.alloc_zeroed(5000).unwrap_err(), expected);
    assert_eq!(cache.take(5000, true, true).unwrap_err(), expected);
    assert_eq!((pool.statistics().untracked, pool.check()), (0, Ok(())));
    cache.flush();
    let after = (class(pool, 256), class(pool, 4096));
    for (one, other) in [(before.0, after.0), (before.1, after.1)] {
        assert_eq!((one.created, one.free, one.in_use), (other.created, other.free, other.in_use));
    }
}

#[test]
fn without_a_way_to_fill_zeros_are_not_supported_and_nothing_is_lost() {
    let world = Unseen::world(false);
    let pool = world.pool(unseen_classes().with_prefill(true));
    ask_for_zeros(&pool, Error::NotSupported { what: c"fill" });
    assert_eq!((free(&pool, 256), free(&pool, 4096)), (1, 3));
    // No bytes need no filling.
    assert!(pool.try_alloc_zeroed(0).is_ok());
    assert_eq!(crate::world::take(&pool, 4096, 3).len(), 3);
}

#[test]
fn if_filling_fails_the_request_is_refused_and_nothing_is_lost() {
    let world = Unseen::world(true);
    let pool = world.pool(unseen_classes().with_prefill(true));
    let reported = |code| Error::DeviceFailed { fault: DeviceFault::Reported, code };
    world.device.beneath.fill_so(Fill::Never(DeviceError::Failed(-3)));
    ask_for_zeros(&pool, reported(-3));
    // A point is no answer: the buffer is handed out now.
    world.device.beneath.fill_so(Fill::Until(Point::new(1, 5)));
    ask_for_zeros(&pool, Error::DeviceFailed { fault: DeviceFault::NotFilled, code: 0 });
    world.device.beneath.fill_so(Fill::Now);
    assert!(pool.try_alloc_zeroed(4096).is_ok());
    assert_eq!((free(&pool, 256), free(&pool, 4096)), (1, 3));
}
