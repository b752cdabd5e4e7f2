//! Failure injection: the k-th device call and the k-th host allocation fail, for every k, once and from then on.
//!
//! Each time: the right error, the pool as before, nothing leaked and nothing returned twice, and the same call succeeds
//! afterwards.

use crate::common::devices::NONE_LEFT;
use crate::common::host::HostLedger;
use crate::common::lock::WatchedLock;
use crate::common::shaky::{Failing, Part, Shaky, end_failing, with_every_failure};
use crate::world::{Buffer, Cache, Figures, MEMORY, Pool, classes, id, some, take};
use slicepool_core::{AllocatorOptions, BufferPool, BufferPoolConfig, BufferPoolError, Error};

/// What a scenario plays with.
struct Stage<'a> {
    device: &'a Shaky,
    host: &'a HostLedger,
    options: AllocatorOptions,
    pool: Option<Pool<'a, Shaky>>,
    caches: Vec<Cache<'a, Shaky>>,
    buffers: Vec<Buffer<'a, Shaky>>,
}

impl<'a> Stage<'a> {
    fn pool(&self) -> &Pool<'a, Shaky> {
        self.pool.as_ref().unwrap()
    }

    fn make(&self, config: BufferPoolConfig) -> Result<Pool<'a, Shaky>, BufferPoolError> {
        BufferPool::with_device(self.device, config, self.options.clone())
    }

    /// What a refused call must leave as it was, but for host memory, which stays for the next try, and counts.
    fn state(&self) -> Option<Figures> {
        let mut figures = Figures::of(self.pool.as_ref()?);
        figures.pool.metadata = 0;
        (figures.pool.bypassed, figures.pool.oversized) = (0, 0);
        figures.classes.iter_mut().for_each(|class| class.exhausted = 0);
        Some(figures)
    }

    fn check(&self) {
        let Some(pool) = &self.pool else {
            assert_eq!((self.device.ledger.bytes(), self.host.bytes()), (0, 0));
            return;
        };
        assert_eq!(pool.check(), Ok(()));
        assert_eq!(pool.statistics().reserved, self.device.ledger.bytes());
        let out = self.buffers.iter().filter(|buffer| buffer.is_tracked()).count();
        let figures = Figures::of(pool);
        assert_eq!(figures.classes.iter().map(|class| class.in_use as usize).sum::<usize>(), out);
        assert_eq!(figures.pool.untracked as usize, self.buffers.len() - out);
    }
}

struct Scenario<'s> {
    config: Option<BufferPoolConfig>,
    prepare: &'s dyn Fn(&mut Stage<'_>),
    call: &'s dyn Fn(&mut Stage<'_>) -> Result<(), BufferPoolError>,
    /// Whether an error is what a failing device, or else host, explains.
    explains: &'s dyn Fn(bool, &BufferPoolError) -> bool,
}

impl Scenario<'_> {
    /// Plays it with every failure; how many calls were refused because of the device, and because of the host.
    fn play(&self) -> (u64, u64) {
        with_every_failure(|part, failing| self.play_once(part, failing))
    }

    /// Whether anything failed, and whether the call was refused.
    fn play_once(&self, part: Part, failing: Failing) -> (bool, bool) {
        let name = format!("{part:?}, {failing:?}");
        let (host, lock, device) = (HostLedger::new(), WatchedLock::new(), Shaky::new());
        // What was prefilled in vain goes back.
        device.takes_back.set(true);
        let options = AllocatorOptions::default().with_memory(host.memory()).with_lock(lock.kind());
        let options = options.with_memory_type(MEMORY);
        let (caches, buffers) = (Vec::new(), Vec::new());
        let mut stage = Stage { device: &device, host: &host, options, pool: None, caches, buffers };
        stage.pool = self.config.map(|config| stage.make(config).unwrap());
        (self.prepare)(&mut stage);
        stage.check();
        let before = stage.state();

        part.fail(failing, &device, &host);
        let answer = (self.call)(&mut stage);
        let failed = end_failing(&device, &host);

        host.assert_used_rightly();
        stage.check();
        if let Err(error) = answer {
            assert!(failed, "{name}: {error} for no reason");
            assert!((self.explains)(part == Part::Device, &error), "{name}: {error:?}");
            assert_eq!(stage.state(), before, "{name}: {error}");
            // The device is left alone for a while.
            let tries = if part == Part::Device { 1 << 17 } else { 1 };
            let again = (0..tries).map(|_| (self.call)(&mut stage)).find(|answer| answer.is_ok());
            assert_eq!(again, Some(Ok(())), "{name}: {error}, tried again");
            stage.check();
        }
        drop(stage);
        lock.assert_used_rightly();
        host.assert_all_returned();
        device.ledger.assert_all_returned();
        assert_eq!(device.ledger.given(), device.ledger.taken(), "{name}");
        (failed, answer.is_err())
    }
}

fn failed<T>(answer: Result<T, Error>) -> Result<T, BufferPoolError> {
    answer.map_err(BufferPoolError::Failed)
}

/// Out of device memory, or of host memory.
fn is_shortage(of_device: bool, error: &Error) -> bool {
    match error {
        Error::OutOfDeviceMemory { size: 1.., code: NONE_LEFT } => of_device,
        Error::OutOfHostMemory { bytes: 1.. } => !of_device,
        _ => false,
    }
}

fn explains(of_device: bool, error: &BufferPoolError) -> bool {
    matches!(error, BufferPoolError::Failed(error) if is_shortage(of_device, error))
}

fn three_classes() -> BufferPoolConfig {
    classes(&[(64, 100), (1024, 50), (1 << 16, 7)]).with_max_thread_cache_capacity(some(6))
}

#[test]
fn the_creation_of_a_pool_survives_every_failure() {
    let refused = Scenario {
        config: None,
        prepare: &|_| {},
        call: &|stage| stage.make(three_classes()).map(|pool| stage.pool = Some(pool)),
        explains: &explains,
    }
    .play();
    // Classes, for each its hints and stripes, the allocator's own, and the pool; the device has nothing to do with it.
    assert!(refused.0 == 0 && refused.1 >= if cfg!(miri) { 8 } else { 20 }, "{refused:?}");
}

#[test]
fn prefilling_three_classes_survives_every_failure_half_way_and_names_the_class() {
    let refused = Scenario {
        config: None,
        prepare: &|_| {},
        call: &|stage| {
            let made = stage.make(three_classes().with_prefill(true));
            if made.is_err() {
                // At once, and not when somebody looks.
                assert_eq!((stage.device.ledger.bytes(), stage.host.bytes()), (0, 0));
            }
            made.map(|pool| {
                assert_eq!(Figures::of(&pool).classes.iter().map(|class| class.free).sum::<u32>(), 157);
                stage.pool = Some(pool);
            })
        },
        explains: &|of_device, error| match error {
            BufferPoolError::Failed(error) => !of_device && is_shortage(of_device, error),
            BufferPoolError::Prefill { size: 64 | 1024 | 65_536, error } => is_shortage(of_device, error),
            _ => false,
        },
    }
    .play();
    assert!(refused.0 == 6 && refused.1 >= if cfg!(miri) { 12 } else { 80 }, "{refused:?}");
}

/// Which class it is.
#[test]
fn the_class_that_cannot_be_prefilled_is_the_one_that_is_named() {
    for (k, size) in [(1, 64), (2, 1024), (3, 1 << 16)] {
        let (host, device) = (HostLedger::new(), Shaky::new());
        device.takes_back.set(true);
        let options = AllocatorOptions::default().with_memory(host.memory()).with_memory_type(MEMORY);
        device.fail(Some(Failing { k, for_ever: true }));
        let refused = BufferPool::with_device(&device, three_classes().with_prefill(true), options).unwrap_err();
        assert!(matches!(refused, BufferPoolError::Prefill { size: named, .. } if named == size), "{refused:?}");
        assert_eq!((device.ledger.given(), device.ledger.taken(), host.bytes()), (k - 1, k - 1, 0));
    }
}

#[test]
fn the_first_request_of_every_class_survives_every_failure_of_its_slab() {
    for size in [64, 1024, 1 << 16] {
        for by_cache in [false, true] {
            let refused = Scenario {
                config: Some(three_classes()),
                prepare: &|stage| stage.caches.push(stage.pool().cache().unwrap()),
                call: &|stage| {
                    let answer = if by_cache { stage.caches[0].try_alloc(size) } else { stage.pool().try_alloc(size) };
                    failed(answer.map(|buffer| stage.buffers.push(buffer)))
                },
                explains: &explains,
            }
            .play();
            // A slab that is refused once is asked for smaller; one buffer is not.
            assert!(refused.0 >= 1 && refused.1 >= 2 * 4, "{refused:?}");
        }
    }
}

#[test]
fn growth_by_a_further_slab_survives_every_failure() {
    let refused = Scenario {
        config: Some(classes(&[(1 << 16, 100), (1 << 18, 40)])),
        prepare: &|stage| {
            // Until the next one needs a slab, a chunk for it in the table, and a chunk for itself.
            stage.buffers = take(stage.pool(), 1 << 18, 16);
        },
        call: &|stage| failed(stage.pool().try_alloc(1 << 18)).map(|buffer| stage.buffers.push(buffer)),
        explains: &explains,
    }
    .play();
    assert!(refused.0 >= 2 && refused.1 >= 2, "{refused:?}");
}

/// Every number that there can be before it: books grow at some of them.
#[test]
fn creating_one_buffer_more_survives_every_failure_however_many_there_are() {
    let mut refused = (0, 0);
    for count in (0..200).step_by(if cfg!(miri) { 99 } else { 3 }) {
        let (device, host) = Scenario {
            config: Some(classes(&[(1 << 18, 1000)]).with_parallelism(some(1))),
            prepare: &|stage| stage.buffers = take(stage.pool(), 1 << 18, count),
            call: &|stage| failed(stage.pool().try_alloc(1 << 18)).map(|buffer| stage.buffers.push(buffer)),
            explains: &explains,
        }
        .play();
        refused = (refused.0 + device, refused.1 + host);
    }
    assert!(refused.0 >= 6 && refused.1 >= if cfg!(miri) { 4 } else { 20 }, "{refused:?}");
}

#[test]
fn making_a_cache_survives_every_failure() {
    let refused = Scenario {
        config: Some(three_classes()),
        prepare: &|stage| stage.caches.push(stage.pool().cache().unwrap()),
        call: &|stage| failed(stage.pool().cache()).map(|cache| stage.caches.push(cache)),
        explains: &explains,
    }
    .play();
    assert_eq!(refused, (0, 4), "two host allocations, once and for ever");
}

#[test]
fn going_beyond_the_ceiling_survives_every_failure() {
    for size in [5000, 1 << 20] {
        let refused = Scenario {
            config: Some(classes(&[(8192, 2)])),
            prepare: &|stage| stage.buffers = take(stage.pool(), 8192, 2),
            call: &|stage| failed(stage.pool().alloc(size)).map(|buffer| stage.buffers.push(buffer)),
            explains: &explains,
        }
        .play();
        assert!(refused.0 >= 2 && refused.1 >= 2, "{refused:?}");
    }
    // Of a pool that has nothing yet: the class is tried first, and what comes of both counts.
    let refused = Scenario {
        config: Some(three_classes().with_pool_min_size(64)),
        prepare: &|_| {},
        call: &|stage| {
            let raw = failed(stage.pool().take(10, true, false))?;
            let buffer = failed(stage.pool().adopt(id(&raw)))?;
            stage.buffers.push(buffer);
            Ok(())
        },
        explains: &explains,
    }
    .play();
    assert!(refused.0 >= 2 && refused.1 >= 4, "{refused:?}");
}

#[test]
fn many_buffers_beyond_the_ceiling_survive_every_failure() {
    let mut refused = (0, 0);
    for count in [0, 1, 7, 15, 16, 31, 32, 63, 64, 65] {
        let (device, host) = Scenario {
            config: Some(classes(&[(8192, 2)]).with_pool_min_size(8192)),
            prepare: &|stage| stage.buffers = take(stage.pool(), 100, count),
            call: &|stage| failed(stage.pool().try_alloc(100)).map(|buffer| stage.buffers.push(buffer)),
            explains: &explains,
        }
        .play();
        refused = (refused.0 + device, refused.1 + host);
    }
    assert!(refused.0 >= 20 && refused.1 >= 6, "{refused:?}");
}

/// What takes nothing cannot fail.
#[test]
fn taking_and_giving_back_what_is_there_needs_neither_device_nor_host() {
    let refused = Scenario {
        config: Some(three_classes().with_prefill(true)),
        prepare: &|stage| stage.caches.push(stage.pool().cache().unwrap()),
        call: &|stage| {
            for size in [64, 1024, 1 << 16] {
                let cache = &mut stage.caches[0];
                let mut out = Vec::new();
                while let Ok(buffer) = cache.try_alloc(size) {
                    out.push(buffer);
                }
                out.into_iter().for_each(|buffer| cache.release(buffer));
                cache.flush();
            }
            assert_eq!(stage.device.failed.get() + stage.host.refused(), 0);
            Ok(())
        },
        explains: &explains,
    }
    .play();
    assert_eq!(refused, (0, 0));
}
