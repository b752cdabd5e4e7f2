//! Subjects take turns in random order, so that whatever disturbs the machine disturbs all of them.

use slicepool_bench::Random;
use slicepool_bench::buffers::ring::{Ring, spin_until};
use slicepool_bench::buffers::work::{Work, Worker};
use slicepool_bench::buffers::{Buffers, Setup};
use slicepool_bench::quartiles::Quartiles;
use std::array;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Rounds in which all rows are measured, so that what disturbs the machine for a second does not decide a row.
pub const ROUNDS: usize = 5;

/// Turns of each subject in a round. They are short, so that most are not interrupted.
pub const TURNS: usize = 21;

/// A turn takes at least so long, or ten times as long with threads that are started for it.
const TURN: Duration = Duration::from_micros(200);

/// How long some pairs took, and how many they were.
type Took = (Duration, usize);

/// A subject that does about so many pairs at a time.
pub struct Subject {
    turn: Box<dyn FnMut(usize) -> Took>,
    pairs: usize,
    /// Nanoseconds per pair, of each turn.
    times: Vec<f64>,
    allocations: u64,
}

/// What has come of all turns.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Nanoseconds per pair.
    pub ns: Quartiles,
    /// What the program allocated from its global allocator while it took its turns.
    pub allocations: u64,
    times: Vec<f64>,
}

impl Figures {
    /// Ratio to another that took its turns at the same time.
    pub fn to(&self, other: &Self) -> Quartiles {
        Quartiles::of_ratios(&self.times, &other.times)
    }
}

impl Subject {
    /// One that works with as many threads as the setup says.
    pub fn new<B: Buffers>(setup: Setup, work: Work) -> Self {
        let pool = B::new(&setup);
        let turn: Box<dyn FnMut(usize) -> Took> = match work {
            Work::Across => Box::new(move |pairs| across(&pool, &setup, pairs)),
            Work::Together(count) if setup.threads > 1 => {
                Box::new(move |pairs| side_by_side(&pool, &setup, count, pairs))
            }
            Work::Together(count) => {
                let mut worker = Worker::new(pool.local(), setup.bytes);
                Box::new(move |pairs| {
                    let _alive = &pool;
                    timed(|| worker.together(count, pairs))
                })
            }
            Work::Miss => {
                let mut worker = Worker::new(pool.local(), setup.bytes);
                assert_eq!(worker.exhaust(), setup.limit as usize);
                Box::new(move |pairs| {
                    let _alive = &pool;
                    timed(|| worker.miss(pairs))
                })
            }
        };
        let mut subject = Self { turn, pairs: 1000, times: Vec::new(), allocations: 0 };
        let least = if setup.threads > 1 { 10 * TURN } else { TURN };
        while (subject.turn)(subject.pairs).0 < least {
            subject.pairs *= 2;
        }
        subject
    }

    fn take(&mut self, allocations: impl Fn() -> u64) {
        let before = allocations();
        let (time, pairs) = (self.turn)(self.pairs);
        self.allocations += allocations() - before;
        self.times.push(time.as_secs_f64() * 1e9 / pairs as f64);
    }

    /// What has come of all turns.
    pub fn figures(&self) -> Figures {
        let ns = Quartiles::of(self.times.iter().copied());
        Figures { ns, allocations: self.allocations, times: self.times.clone() }
    }
}

/// A round of turns.
pub fn take_turns<const N: usize>(
    subjects: &mut [Option<Subject>; N],
    random: &mut Random,
    allocations: impl Fn() -> u64 + Copy,
) {
    let mut order: [usize; N] = array::from_fn(|i| i);
    for _ in 0..TURNS {
        for i in (1..N).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        for &i in &order {
            subjects[i].iter_mut().for_each(|subject| subject.take(allocations));
        }
    }
}

/// Time of the CPU that this thread had: others that want it too do not count.
fn timed(work: impl FnOnce() -> usize) -> Took {
    let start = cpu_time();
    let pairs = work();
    (cpu_time() - start, pairs)
}

fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable for the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(failed, 0, "there is a clock for each thread");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Threads that begin at the same time.
struct Gate(AtomicUsize, usize);

impl Gate {
    fn new(threads: usize) -> Self {
        Self(AtomicUsize::new(0), threads)
    }

    fn pass(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
        spin_until(|| self.0.load(Ordering::Acquire) >= self.1);
    }
}

/// Each thread works for itself. The mean of their times.
fn side_by_side<B: Buffers>(pool: &B, setup: &Setup, count: usize, pairs: usize) -> Took {
    let gate = Gate::new(setup.threads);
    let one = || {
        let mut worker = Worker::new(pool.local(), setup.bytes);
        worker.together(count, pairs / 4);
        gate.pass();
        timed(|| worker.together(count, pairs))
    };
    let took: Vec<Took> = thread::scope(|scope| {
        let threads: Vec<_> = (0..setup.threads).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    (took.iter().map(|one| one.0).sum::<Duration>() / setup.threads as u32, took[0].1)
}

/// One thread acquires, another releases. The mean of their times.
fn across<B: Buffers>(pool: &B, setup: &Setup, pairs: usize) -> Took {
    let (gate, ring) = (Gate::new(2), Ring::default());
    let warm = pairs / 4;
    let (released, acquired) = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut worker = Worker::new(pool.local(), setup.bytes);
            worker.consume(&ring, warm);
            gate.pass();
            timed(|| worker.consume(&ring, pairs))
        });
        let mut worker = Worker::new(pool.local(), setup.bytes);
        worker.produce(&ring, warm);
        gate.pass();
        let acquired = timed(|| worker.produce(&ring, pairs));
        (consumer.join().expect("no panic"), acquired)
    });
    ((released.0 + acquired.0) / 2, pairs)
}
