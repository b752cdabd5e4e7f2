//! Failure injection, as in `injection.rs`: slabs of buffer pools, also when they are all taken beforehand.
//!
//! `buffers/failures.rs` has more scenarios, each failure by itself.

mod common;
#[path = "injection/failures.rs"]
mod failures;

use common::devices::NONE_LEFT;
use common::lock::WatchedLock;
use failures::{Failures, Outcome, Played, Refusing, RefusingHost, with_every_failure};
use slicepool_core::{
    AllocatorOptions, BufferClassStatistics, BufferPool, BufferPoolConfig, BufferPoolError, BufferPoolStatistics,
    Error, MemoryType, PooledBuffer,
};
use std::num::{NonZeroU32, NonZeroUsize};

type Pool<'a> = BufferPool<&'a Refusing>;
type Buffer<'a> = PooledBuffer<&'a Refusing>;

const MEMORY: MemoryType = MemoryType::new(u64::MAX, 64);

fn classes(classes: &[(usize, u32)]) -> BufferPoolConfig {
    let classes =
        classes.iter().map(|&(size, limit)| (NonZeroUsize::new(size).unwrap(), NonZeroU32::new(limit).unwrap()));
    BufferPoolConfig::default().with_size_classes(classes)
}

/// What a refused call must leave as it was: all figures but the count of refusals, and host memory, which stays for
/// the next try.
fn state(pool: &Pool<'_>) -> (BufferPoolStatistics, Vec<BufferClassStatistics>) {
    let mut figures = pool.statistics();
    figures.metadata = 0;
    let class = |index| {
        let mut figures = pool.class_statistics(index)?;
        figures.exhausted = 0;
        Some(figures)
    };
    (figures, (0..).map_while(class).collect())
}

/// Whether an error says what has failed.
fn is_explained((of_device, of_host): (bool, bool), error: &Error) -> bool {
    match error {
        Error::OutOfDeviceMemory { size: 1.., code: NONE_LEFT } => of_device,
        Error::OutOfHostMemory { bytes: 1.. } => of_host,
        _ => false,
    }
}

/// Which of the two have refused something since.
fn is_more(now: (u64, u64), before: (u64, u64)) -> (bool, bool) {
    (now.0 != before.0, now.1 != before.1)
}

struct World<'a> {
    device: &'a Refusing,
    host: &'a RefusingHost,
    failures: Failures,
}

impl World<'_> {
    /// Calls until it succeeds; `look` says whether everything is as it was.
    fn call_until_it_succeeds<T>(
        &self,
        mut call: impl FnMut() -> Result<T, BufferPoolError>,
        look: impl Fn(&BufferPoolError, (bool, bool)),
    ) -> (T, Outcome) {
        let mut refused = (0, 0);
        let mut failed = false;
        // The device is left alone for a while after a refusal.
        for _ in 0..1 << 18 {
            if failed {
                self.failures.resume(self.device, self.host);
            } else {
                self.failures.begin(self.device, self.host);
            }
            let answer = call();
            let now = Failures::end(self.device, self.host);
            self.host.ledger.assert_used_rightly();
            match answer {
                Ok(value) => return (value, Outcome { refused: now, failed }),
                Err(error) => {
                    // While the device is left alone, what it has said before is the reason.
                    let reason = is_more(now, refused);
                    let reason = if reason == (false, false) { is_more(now, (0, 0)) } else { reason };
                    look(&error, reason);
                }
            }
            failed = true;
            refused = now;
        }
        panic!("{:?}: refused for ever", self.failures);
    }
}

/// Of a pool with some buffers out: one more, for which it needs a slab.
fn grow(config: BufferPoolConfig, size: usize, out: u32) -> Played {
    with_every_failure(|failures| {
        let (host, lock, device) = (RefusingHost::new(), WatchedLock::new(), Refusing::new());
        let options = AllocatorOptions::default().with_memory(host.memory()).with_lock(lock.kind());
        let pool = BufferPool::with_device(&device, config, options.with_memory_type(MEMORY)).unwrap();
        let held: Vec<Buffer<'_>> = (0..out).map(|_| pool.try_alloc(size).unwrap()).collect();
        let before = state(&pool);
        let world = World { device: &device, host: &host, failures };
        let call = || pool.try_alloc(size).map_err(BufferPoolError::Failed);
        let (buffer, outcome) = world.call_until_it_succeeds(call, |error, reason| {
            let BufferPoolError::Failed(error) = error else { panic!("{failures:?}: {error:?}") };
            assert!(is_explained(reason, error), "{failures:?}: {error:?}");
            assert_eq!((pool.check(), state(&pool)), (Ok(()), before.clone()), "{failures:?}: {error:?}");
            assert_eq!(pool.statistics().reserved, device.ledger.bytes());
        });
        assert_eq!(pool.check(), Ok(()));
        drop((buffer, held));
        pool.close();
        drop(pool);
        lock.assert_used_rightly();
        device.ledger.assert_all_returned();
        assert_eq!(device.ledger.given(), device.ledger.taken(), "{failures:?}");
        outcome
    })
    .assert_tried()
}

#[test]
fn the_first_slab_of_a_class_survives_every_failure_and_every_two() {
    for size in [64, 1024, 1 << 16] {
        let played = grow(classes(&[(64, 100), (1024, 50), (1 << 16, 7)]), size, 0);
        assert!(played.by_device >= 1 && played.by_host >= 8, "{played:?}");
    }
}

#[test]
fn a_further_slab_survives_every_failure_and_every_two() {
    let played = grow(classes(&[(1 << 16, 100), (1 << 18, 40)]), 1 << 18, 16);
    assert!(played.by_device >= 2 && played.by_host >= 2, "{played:?}");
}

/// Nothing is left of a pool that was not made.
#[test]
fn prefilling_survives_every_failure_and_every_two() {
    let config = classes(&[(64, 100), (1024, 50), (1 << 16, 7)]).with_prefill(true);
    let played = with_every_failure(|failures| {
        let (host, lock, device) = (RefusingHost::new(), WatchedLock::new(), Refusing::new());
        // What was prefilled in vain goes back.
        device.takes_back.set(true);
        let options = AllocatorOptions::default().with_memory(host.memory()).with_lock(lock.kind());
        let options = options.with_memory_type(MEMORY);
        let world = World { device: &device, host: &host, failures };
        let call = || BufferPool::with_device(&device, config, options.clone());
        let (pool, outcome) = world.call_until_it_succeeds(call, |error, reason| {
            let (BufferPoolError::Failed(why) | BufferPoolError::Prefill { size: 64 | 1024 | 65_536, error: why }) =
                error
            else {
                panic!("{failures:?}: {error:?}")
            };
            assert!(is_explained(reason, why), "{failures:?}: {error:?}");
            assert_eq!((device.ledger.bytes(), host.ledger.bytes()), (0, 0), "{failures:?}: {error:?}");
        });
        let free: Vec<_> = state(&pool).1.iter().map(|class| class.free).collect();
        assert_eq!((free, pool.check()), (vec![100, 50, 7], Ok(())));
        drop(pool);
        lock.assert_used_rightly();
        device.ledger.assert_all_returned();
        assert_eq!(device.ledger.given(), device.ledger.taken(), "{failures:?}");
        outcome
    });
    let played = played.assert_tried();
    assert!(played.by_device == 6 && played.by_host >= 12, "{played:?}");
}
