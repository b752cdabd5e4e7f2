//! Subjects take turns in random order, so that whatever disturbs the machine disturbs all of them.

use slicepool_bench::Random;
use slicepool_bench::churn::{Churn, Running};
use slicepool_bench::quartiles::Quartiles;
use slicepool_bench::subjects::Subject;
use std::time::Duration;

/// Turns of each subject. They are short, so that most are not interrupted.
pub const TURNS: usize = 41;

/// Pairs of one turn, if they do not take long.
pub const PAIRS: usize = 20_000;

/// Decides on the order.
const SEED: u64 = 11;

/// A subject is slow if a pair takes so long.
const SLOW: Duration = Duration::from_micros(2);

/// A turn of a slow subject takes about so long, and is as many pairs at least.
const LONGEST: Duration = Duration::from_millis(10);
const FEWEST: usize = 50;

/// A subject in the middle of its work.
pub struct Turns<'a> {
    work: Box<dyn FnMut(usize) + 'a>,
    /// Pairs of one turn.
    pairs: usize,
    /// Pairs before those of a turn: others have had the CPU's caches meanwhile.
    warm: usize,
    /// Nanoseconds per pair, of each turn.
    times: Vec<f64>,
}

impl<'a> Turns<'a> {
    /// One whose turn is to do so many pairs, or fewer if they take long. It touches about `live` slices again and again.
    pub fn new(pairs: usize, live: usize, mut work: impl FnMut(usize) + 'a) -> Self {
        let warm = (2 * live).min(5 * pairs);
        let most = slow(&mut work).map_or(usize::MAX, |pair| (LONGEST.div_duration_f64(pair) as usize).max(FEWEST));
        Self { work: Box::new(work), pairs: pairs.min(most), warm: warm.min(most), times: Vec::with_capacity(TURNS) }
    }

    /// One that churns.
    pub fn churn<S: Subject + 'a>(churn: &'a Churn, mut running: Running<S>, pairs: usize) -> Self {
        let live = churn.fill.len();
        Self::new(pairs, live, move |pairs| assert!(running.pairs(churn, pairs), "the space is roomy"))
    }

    fn take(&mut self) {
        (self.work)(self.warm);
        let start = cpu_time();
        (self.work)(self.pairs);
        self.times.push((cpu_time() - start).as_nanos() as f64 / self.pairs as f64);
    }
}

/// How long a pair takes, if that is long. The first ones say little: nothing is in the CPU's caches.
fn slow(work: &mut impl FnMut(usize)) -> Option<Duration> {
    let mut mean = |pairs: usize| {
        let start = cpu_time();
        work(pairs);
        (cpu_time() - start).div_f64(pairs as f64)
    };
    (mean(FEWEST) >= SLOW).then(|| mean(10 * FEWEST)).filter(|pair| *pair >= SLOW)
}

/// What this thread has had of a CPU: others that want it too do not count.
fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable for the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(failed, 0, "there is a clock for each thread");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Nanoseconds per pair, of each turn.
#[derive(Clone, Debug)]
pub struct Times(Vec<f64>);

impl Times {
    /// Nanoseconds per pair.
    pub fn ns(&self) -> Quartiles {
        Quartiles::of(self.0.iter().copied())
    }

    /// Ratio to another that took the same turns.
    pub fn to(&self, other: &Self) -> Quartiles {
        Quartiles::of_ratios(&self.0, &other.0)
    }

    /// Nanoseconds more than another.
    pub fn over(&self, other: &Self) -> Quartiles {
        Quartiles::of(self.0.iter().zip(&other.0).map(|(of, to)| of - to))
    }

    /// A cell of a table: nanoseconds, and the ratio to another with its spread.
    pub fn beside(&self, other: &Self) -> String {
        format!("{} ({})", short(self.ns().median), ratio(self.to(other)))
    }
}

/// Nanoseconds, with their spread.
pub fn alone(times: &Times) -> String {
    let ns = times.ns();
    format!("{} ±{:.0}%", short(ns.median), 100.0 * ns.spread() / ns.median)
}

/// A ratio with its spread: half the distance between the quartiles, in percent of the ratio.
pub fn ratio(ratio: Quartiles) -> String {
    let digits = if ratio.median < 0.095 { 3 } else { 2 };
    let digits = if ratio.median < 9.95 { digits } else { 0 };
    format!("{:.digits$} ±{:.0}%", ratio.median, 100.0 * ratio.spread() / ratio.median)
}

fn short(ns: f64) -> String {
    if ns < 1000.0 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

/// Times of each subject.
pub fn take_turns<const N: usize>(mut subjects: [Turns; N]) -> [Times; N] {
    take_all(subjects.each_mut());
    subjects.map(|subject| Times(subject.times))
}

/// The same of a list, where there need not be a subject everywhere.
pub fn take_some(mut subjects: Vec<Option<Turns>>) -> Vec<Option<Times>> {
    take_all(subjects.iter_mut().flatten());
    subjects.into_iter().map(|subject| subject.map(|subject| Times(subject.times))).collect()
}

fn take_all<'a, 'b: 'a>(subjects: impl IntoIterator<Item = &'a mut Turns<'b>>) {
    let mut subjects: Vec<_> = subjects.into_iter().collect();
    let mut random = Random::new(SEED);
    for _ in 0..TURNS {
        for i in (1..subjects.len()).rev() {
            subjects.swap(i, random.below(i as u64 + 1) as usize);
        }
        subjects.iter_mut().for_each(|subject| subject.take());
    }
}
