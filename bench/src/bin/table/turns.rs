//! Subjects take turns, so that whatever disturbs the machine disturbs all of them.

use slicepool_bench::churn::{Churn, Running};
use slicepool_bench::subjects::Subject;
use std::time::Duration;

/// Turns of each subject. They are short, so that most are not interrupted.
pub const TURNS: usize = 41;

/// A subject in the middle of its work.
pub struct Turns<'a> {
    work: Box<dyn FnMut(usize) + 'a>,
    /// Pairs of one turn.
    pairs: usize,
    times: Vec<Duration>,
}

impl<'a> Turns<'a> {
    /// One whose turn is to do so many pairs.
    pub fn new(pairs: usize, work: impl FnMut(usize) + 'a) -> Self {
        Self { work: Box::new(work), pairs, times: Vec::new() }
    }

    /// One that churns.
    pub fn churn<S: Subject + 'a>(churn: &'a Churn, mut running: Running<S>, pairs: usize) -> Self {
        Self::new(pairs, move |pairs| assert!(running.pairs(churn, pairs), "the space is roomy"))
    }

    fn take(&mut self) {
        let start = cpu_time();
        (self.work)(self.pairs);
        self.times.push(cpu_time() - start);
    }

    /// The lower quartile of all turns: what disturbs only makes them longer.
    fn ns_per_pair(&mut self) -> f64 {
        self.times.sort();
        self.times[self.times.len() / 4].as_nanos() as f64 / self.pairs as f64
    }
}

/// What this thread has had of a CPU: others that want it too do not count.
fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable for the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(failed, 0, "there is a clock for each thread");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Nanoseconds per pair of each subject.
pub fn take_turns<const N: usize>(mut subjects: [Turns; N]) -> [f64; N] {
    for _ in 0..TURNS {
        subjects.iter_mut().for_each(Turns::take);
    }
    subjects.map(|mut subject| subject.ns_per_pair())
}
