//! Slabs that several calls want at the same time, and devices that use the pool they serve.

use crate::common::devices::{Gate, LedgerDevice};
use crate::common::lock::sleeping;
use crate::common::meeting::AtEnd;
use crate::world::{Pool, World, class, classes, exhausted, id, some, take, until_served};
use slicepool_core::{
    BufferPool, BufferPoolConfig, Device, DeviceError, DeviceMemory, Error, HostDevice, LockKind, PageRequest,
};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

const SLAB: usize = 256 << 10;

// ---- several calls

/// A device in which every call waits until it is opened.
struct Slow {
    ledger: LedgerDevice,
    /// Calls that have come, and whether they may go on.
    calls: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl Slow {
    fn new() -> Self {
        Self { ledger: LedgerDevice::new(), calls: Mutex::new((0, false)), changed: Condvar::new() }
    }

    /// Waits until so many calls have come.
    fn await_calls(&self, count: u32) {
        let calls = self.calls.lock().unwrap();
        let (_calls, result) =
            self.changed.wait_timeout_while(calls, Duration::from_secs(60), |it| it.0 < count).unwrap();
        assert!(!result.timed_out(), "calls to the device do not come");
    }

    fn open(&self) {
        self.calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).1 = true;
        self.changed.notify_all();
    }
}

impl Device for Slow {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        let mut calls = self.calls.lock().unwrap();
        calls.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(calls, |it| !it.1).unwrap());
        self.ledger.allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.ledger.deallocate(memory)
    }
}

/// A pool whose calls do not wait for each other's slabs.
fn impatient<D: Device>(world: &World<D>, config: BufferPoolConfig) -> Pool<'_, D> {
    let options = world.options().with_lock(sleeping()).with_growth_wait_steps(0);
    BufferPool::with_device(&world.device, config, options).unwrap()
}

#[test]
fn exhausted_tells_of_a_slab_that_another_call_is_just_getting() {
    let (gate, reached, open) = Gate::new();
    let world = World::over(gate);
    let pool = impatient(&world, classes(&[(SLAB, 1)]));
    thread::scope(|scope| {
        let _open = AtEnd(|| _ = open.send(()));
        let first = scope.spawn(|| pool.try_alloc(SLAB).map(|buffer| buffer.memory()));
        reached.recv_timeout(Duration::from_secs(60)).unwrap();
        let refused = pool.try_alloc(SLAB).unwrap_err();
        assert_eq!(refused, Error::Exhausted { size: SLAB as u64, limit: 1, cached: 0, growths_in_flight: 1 });
        assert_eq!(pool.statistics_of(some(SLAB)).unwrap().exhausted, 1);
        open.send(()).unwrap();
        assert!(first.join().unwrap().is_ok());
    });
    assert!(pool.try_alloc(SLAB).is_ok());
}

#[test]
fn calls_that_grow_at_the_same_time_stay_below_the_limit_and_all_of_it_is_used() {
    let world = World::over(Slow::new());
    // Five slabs of four.
    let (size, limit) = (SLAB / 4, 20);
    let pool = impatient(&world, classes(&[(size, limit)]));
    let served = AtomicU32::new(0);
    thread::scope(|scope| {
        let _open = AtEnd(|| world.device.open());
        for _ in 0..5 {
            scope.spawn(|| {
                let got = pool.try_alloc(size).unwrap();
                served.fetch_add(1, Ordering::Relaxed);
                std::mem::forget(got);
            });
        }
        world.device.await_calls(5);
        // All that the limit allows is on its way, though not one buffer is there.
        let expected = Error::Exhausted { size: size as u64, limit, cached: 0, growths_in_flight: 5 };
        for _ in 0..3 {
            assert_eq!(pool.try_alloc(size).unwrap_err(), expected);
        }
        assert_eq!(world.device.ledger.bytes(), 0);
        world.device.open();
    });
    assert_eq!((served.load(Ordering::Relaxed), world.device.ledger.sizes()), (5, vec![SLAB as u64; 5]));
    let rest = take(&pool, size, limit - 5);
    assert_eq!(pool.try_alloc(size).unwrap_err(), exhausted(size, limit));
    assert_eq!((world.device.ledger.bytes(), pool.check()), (u64::from(limit) * size as u64, Ok(())));
    drop(rest);
    // SAFETY: what was forgotten is used by nobody.
    unsafe { pool.destroy(true) }.unwrap();
}

#[test]
fn calls_that_wait_for_the_slab_of_another_share_it() {
    let world = World::over(Slow::new());
    let options = world.options().with_lock(sleeping()).with_growth_wait_steps(1_000_000);
    let pool = BufferPool::with_device(&world.device, classes(&[(SLAB / 4, 8)]), options).unwrap();
    thread::scope(|scope| {
        let _open = AtEnd(|| world.device.open());
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| pool.try_alloc(SLAB / 4).unwrap())).collect();
        world.device.await_calls(1);
        thread::sleep(Duration::from_millis(20));
        world.device.open();
        let out: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(out.iter().all(|buffer| buffer.memory() == out[0].memory()));
    });
    assert_eq!((world.device.ledger.given(), class(&pool, SLAB / 4).created), (1, 4));
}

#[test]
fn a_slab_that_cannot_be_had_leaves_its_share_to_others() {
    let world = World::over(Slow::new());
    let pool = impatient(&world, classes(&[(SLAB, 3)]));
    world.device.ledger.limit_to(2 * SLAB as u64);
    thread::scope(|scope| {
        let _open = AtEnd(|| world.device.open());
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| pool.try_alloc(SLAB))).collect();
        world.device.await_calls(3);
        assert!(matches!(pool.try_alloc(SLAB), Err(Error::Exhausted { growths_in_flight: 3, .. })));
        world.device.open();
        let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let refused = answers.iter().filter(|answer| matches!(answer, Err(Error::OutOfDeviceMemory { .. })));
        assert_eq!((refused.count(), answers.iter().filter(|answer| answer.is_ok()).count()), (1, 2));
        assert_eq!((class(&pool, SLAB).created, pool.check()), (2, Ok(())));
        world.device.ledger.limit_to(u64::MAX);
        let third = until_served(&pool, SLAB);
        assert_eq!(class(&pool, SLAB).created, 3);
        drop(third);
    });
}

#[test]
fn a_buffer_that_comes_back_while_the_device_is_slow_serves_others() {
    let (gate, reached, open) = Gate::new();
    let world = World::over(gate);
    let pool = impatient(&world, classes(&[(64, 100), (SLAB, 3)]));
    open.send(()).unwrap();
    let one = pool.try_alloc(64).unwrap();
    drop(reached);
    let place = (one.memory(), one.offset());
    drop(one);
    assert_eq!(pool.try_alloc(64).map(|buffer| (buffer.memory(), buffer.offset())), Ok(place));
}

/// The call gets what it has begun to create, or is told; in any case the memory goes back.
#[test]
fn closing_while_the_device_is_called_loses_nothing() {
    for out_before in [false, true] {
        let (gate, reached, open) = Gate::new();
        let world = World::over(gate);
        let pool = impatient(&world, classes(&[(SLAB, 2), (64, 1)]));
        thread::scope(|scope| {
            let _open = AtEnd(|| _ = open.send(()));
            let call = scope.spawn(|| pool.try_alloc(SLAB));
            reached.recv_timeout(Duration::from_secs(60)).unwrap();
            let other = out_before.then(|| pool.try_alloc(64).unwrap());
            pool.close();
            drop(other);
            assert_eq!(pool.try_alloc(SLAB).unwrap_err(), Error::Closed);
            open.send(()).unwrap();
            match call.join().unwrap() {
                Ok(buffer) => {
                    assert_eq!(buffer.capacity(), SLAB);
                    assert!(world.device.ledger.pages() > 0);
                    drop(buffer);
                }
                Err(error) => assert_eq!(error, Error::Closed),
            }
        });
        assert_eq!((world.device.ledger.pages(), pool.check()), (0, Ok(())));
    }
}

// ---- devices that use the pool

#[derive(Clone, Copy, PartialEq)]
enum Call {
    Allocate,
    Deallocate,
}

type During = dyn Fn(&BufferPool<Nested>, Call) + Send + Sync;

/// A device whose callbacks use the pool they serve.
struct Nested {
    ledger: LedgerDevice<HostDevice>,
    pool: Mutex<Option<BufferPool<Nested>>>,
    during: Box<During>,
    calls: AtomicU32,
}

impl Nested {
    fn call_back(&self, call: Call) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let pool = self.pool.lock().unwrap().clone();
        if let Some(pool) = pool {
            (self.during)(&pool, call);
        }
    }
}

impl Device for Nested {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.call_back(Call::Allocate);
        self.ledger.allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.call_back(Call::Deallocate);
        self.ledger.deallocate(memory)
    }
}

/// A pool whose device knows it.
struct Knot(BufferPool<Nested>);

impl Knot {
    fn tie(
        world: &World<LedgerDevice>,
        config: BufferPoolConfig,
        during: impl Fn(&BufferPool<Nested>, Call) + Send + Sync + 'static,
    ) -> Self {
        let ledger = LedgerDevice::over(HostDevice::new());
        let device = Nested { ledger, pool: Mutex::new(None), during: Box::new(during), calls: AtomicU32::new(0) };
        let pool = BufferPool::with_device(device, config, world.options()).unwrap();
        *pool.device().pool.lock().unwrap() = Some(pool.clone());
        Self(pool)
    }

    fn calls(&self) -> u32 {
        self.device().calls.load(Ordering::Relaxed)
    }
}

impl Deref for Knot {
    type Target = BufferPool<Nested>;

    fn deref(&self) -> &BufferPool<Nested> {
        &self.0
    }
}

impl Drop for Knot {
    fn drop(&mut self) {
        let known = self.device().pool.lock().unwrap().take();
        drop(known);
    }
}

#[test]
fn a_device_that_wants_a_buffer_of_the_class_it_serves_comes_to_an_end_at_the_limit() {
    let world = World::without_memory();
    let depth = std::sync::Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let seen = depth.clone();
    let knot = Knot::tie(&world, classes(&[(SLAB, 5)]), move |pool, call| {
        if call == Call::Allocate {
            let answer = pool.take(SLAB, false, false);
            let mut seen = seen.lock().unwrap();
            match answer {
                Ok(raw) => seen.0.push(id(&raw)),
                Err(error) => seen.1.push(error),
            }
        }
    });
    let buffer = knot.try_alloc(SLAB).unwrap();
    let (got, refused) = std::mem::take(&mut *depth.lock().unwrap());
    // Five slabs, the innermost of which found nothing left.
    assert_eq!((got.len(), knot.calls()), (4, 5));
    let exhausted = Error::Exhausted { size: SLAB as u64, limit: 5, cached: 0, growths_in_flight: 5 };
    assert_eq!(refused, [exhausted]);
    assert_eq!((class(&knot, SLAB).created, class(&knot, SLAB).in_use, knot.check()), (5, 5, Ok(())));
    for handle in got {
        knot.release(handle).unwrap();
    }
    drop(buffer);
    assert_eq!(knot.device().ledger.bytes(), 5 * SLAB as u64);
    drop(knot);
    assert_eq!(world.host.bytes(), 0);
}

#[test]
fn a_device_that_wants_small_buffers_of_the_class_it_serves_comes_to_an_end() {
    let world = World::without_memory();
    let knot = Knot::tie(&world, classes(&[(1024, 1000)]), |pool, call| {
        if call == Call::Allocate {
            drop(pool.try_alloc(1024));
        }
    });
    let buffer = knot.try_alloc(1024).unwrap();
    // 256, 256, 256 and 232.
    assert_eq!(knot.calls(), 4);
    assert_eq!((knot.device().ledger.bytes(), class(&knot, 1024).exhausted), (1_024_000, 1));
    assert_eq!((class(&knot, 1024).in_use, knot.check()), (1, Ok(())));
    drop(buffer);
}

#[test]
fn a_device_may_do_everything_with_the_pool_while_it_is_called() {
    let world = World::without_memory();
    let config = classes(&[(64, 4), (SLAB, 2)]).with_max_thread_cache_capacity(some(4));
    let inside = AtomicU32::new(0);
    let knot = Knot::tie(&world, config, move |pool, call| {
        if inside.fetch_add(1, Ordering::Relaxed) != 0 {
            inside.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let buffer = pool.try_alloc(64);
        assert_eq!(buffer.is_err(), pool.is_closed());
        let beyond = pool.alloc(64);
        if let Ok(mut cache) = pool.cache() {
            let raw = cache.take(64, false, true);
            buffer.into_iter().for_each(|buffer| cache.release(buffer));
            if let Ok(raw) = raw {
                pool.release(id(&raw)).unwrap();
            }
        }
        drop(beyond);
        let figures = (pool.statistics(), pool.regions().count(), class(pool, SLAB));
        assert!(figures.0.classes == 2 && (call == Call::Allocate || figures.2.created <= 2));
        inside.fetch_sub(1, Ordering::Relaxed);
    });
    for _ in 0..3 {
        let out = take(&knot, SLAB, 2);
        assert!(knot.try_alloc(SLAB).is_err());
        drop(out);
    }
    assert_eq!((class(&knot, SLAB).created, knot.statistics().caches, knot.check()), (2, 0, Ok(())));
    assert_eq!((class(&knot, 64).in_use, knot.statistics().untracked), (0, 0));
    // Again when everything goes back.
    let calls = knot.calls();
    knot.close();
    assert!(knot.calls() >= calls + 2);
    assert_eq!(knot.device().ledger.pages(), 0);
}

#[test]
fn a_device_may_close_the_pool_while_it_is_called() {
    for deep in [false, true] {
        let world = World::without_memory();
        let knot = Knot::tie(&world, classes(&[(SLAB, 3)]), move |pool, call| {
            if call == Call::Allocate && deep && class(pool, SLAB).created == 0 && pool.statistics().reserved == 0 {
                drop(pool.try_alloc(SLAB));
            }
            pool.close();
        });
        match knot.try_alloc(SLAB) {
            Ok(buffer) => assert_eq!(buffer.capacity(), SLAB),
            Err(error) => assert_eq!(error, Error::Closed),
        }
        assert!(knot.is_closed());
        assert_eq!(knot.try_alloc(SLAB).unwrap_err(), Error::Closed);
        assert_eq!((class(&knot, SLAB).in_use, knot.device().ledger.pages(), knot.check()), (0, 0, Ok(())));
    }
}

#[test]
fn a_device_may_use_the_pool_while_untracked_buffers_come_and_go() {
    let world = World::without_memory();
    let knot = Knot::tie(&world, classes(&[(64, 10)]).with_pool_min_size(10), |pool, call| {
        if call == Call::Deallocate {
            drop(pool.try_alloc(64));
        } else if pool.statistics().untracked < 5 {
            drop(pool.alloc(5));
        }
    });
    for size in [5, 1000] {
        let buffer = knot.alloc(size).unwrap();
        assert_eq!((buffer.capacity(), knot.statistics().untracked), (size, 1));
    }
    assert_eq!((knot.statistics().untracked, knot.check()), (0, Ok(())));
}

/// From within a callback a pool cannot go away.
#[test]
fn a_pool_whose_device_is_being_called_is_not_idle_and_not_destroyed() {
    let world = World::without_memory();
    let knot = Knot::tie(&world, classes(&[(64, 10)]), |pool, call| {
        assert!(matches!(pool.check_idle(), Err(Error::Busy { .. })));
        if call == Call::Allocate {
            // Two caches, and the call that creates the first buffer.
            let busy = Error::Busy { live: 0, pending: 0, in_use: 0, in_flight: 3 };
            // SAFETY: it is refused.
            assert_eq!(unsafe { pool.clone().destroy(true) }.map_err(|(_, error)| error), Err(busy));
        }
    });
    assert_eq!(knot.check_idle(), Ok(()));
    let caches = [knot.cache().unwrap(), knot.cache().unwrap()];
    drop(knot.try_alloc(64).unwrap());
    assert_eq!((knot.calls(), knot.check_idle(), knot.is_closed()), (1, Ok(()), false));
    drop(caches);
    knot.close();
    assert_eq!((knot.calls(), knot.check_idle()), (2, Ok(())));
}

#[test]
fn a_call_waits_for_the_slab_of_another_for_as_many_steps_as_it_may() {
    unsafe extern "C" fn count(steps: *mut std::ffi::c_void, _: u32) {
        // SAFETY: the test below passes a counter, which outlives the pool.
        unsafe { &*steps.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    }
    for steps in [0, 1, 5] {
        let (gate, reached, open) = Gate::new();
        let waited = AtomicU32::new(0);
        let world = World::over(gate);
        // SAFETY: the function only counts.
        let lock = unsafe { LockKind::spin_with((&raw const waited).cast_mut().cast(), count) };
        let options = world.options().with_lock(lock).with_growth_wait_steps(steps);
        let pool = BufferPool::with_device(&world.device, classes(&[(SLAB / 2, 2)]), options).unwrap();
        thread::scope(|scope| {
            let _open = AtEnd(|| _ = open.send(()));
            let first = scope.spawn(|| pool.try_alloc(SLAB / 2).map(drop));
            reached.recv_timeout(Duration::from_secs(60)).unwrap();
            let refused = Error::Exhausted { size: SLAB as u64 / 2, limit: 2, cached: 0, growths_in_flight: 1 };
            assert_eq!((pool.try_alloc(SLAB / 2).unwrap_err(), waited.load(Ordering::Relaxed)), (refused, steps));
            open.send(()).unwrap();
            assert_eq!(first.join().unwrap(), Ok(()));
        });
    }
}
