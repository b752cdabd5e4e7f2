//! Runs cases until the operations are used up; on failure shrinks and prints what is left.

use crate::oracle::Checked;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::Cell;
use std::fmt::Debug;
use std::time::Instant;

const DEFAULT_SEED: u64 = 20_260_101;
const DEFAULT_OPS: u64 = 1_000_000;

/// A decimal or `0x` number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// A sequence of operations on a subject.
pub(crate) trait Case: Debug + Clone {
    /// The case for a human, one operation a line.
    fn describe(&self) -> String;
    /// Carries it out and checks everything after every operation; how many there were.
    fn check(&self) -> Checked<usize>;
}

/// Runs cases of `strategy` until `percent` of all operations are done.
///
/// Case `i` depends on the seed, on `subject` and on `i` alone: `SLICEPOOL_CASE` replays one.
pub(crate) fn run<C: Case>(subject: &str, percent: u64, strategy: &impl Strategy<Value = C>) {
    let seed = number("SLICEPOOL_SEED").unwrap_or(DEFAULT_SEED);
    let quota = number("SLICEPOOL_MODEL_OPS").unwrap_or(DEFAULT_OPS).saturating_mul(percent).div_ceil(100);
    let only = number("SLICEPOOL_CASE");
    let shrink = number("SLICEPOOL_MODEL_SHRINK").map_or(100_000, |most| most as u32);
    let begin = Instant::now();
    let (mut done, mut cases) = (0, 0);
    println!("{subject}: {quota} operations, SLICEPOOL_SEED={seed}");
    while done < quota && (only.is_none() || cases == 0) {
        let index = only.unwrap_or(cases);
        let operations = Cell::new(0);
        let config = Config {
            cases: 1,
            failure_persistence: None,
            max_shrink_iters: shrink,
            max_shrink_time: 60_000,
            ..Config::default()
        };
        let mut runner = TestRunner::new_with_rng(config, random(seed, subject, index));
        let outcome = runner.run(strategy, |case| {
            operations.set(case.check().map_err(TestCaseError::fail)?);
            Ok(())
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(reason, case)) => panic!(
                "{subject}: {reason}\nafter\n{}\nSLICEPOOL_SEED={seed} SLICEPOOL_CASE={index} replays it",
                case.describe()
            ),
            Err(TestError::Abort(reason)) => panic!("{subject}: {reason}"),
        }
        done += operations.get() as u64;
        cases += 1;
    }
    println!("{subject}: {done} operations in {cases} cases, {:.1} s", begin.elapsed().as_secs_f64());
}

fn random(seed: u64, subject: &str, index: u64) -> TestRng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&index.to_le_bytes());
    for (place, byte) in key[16..].iter_mut().zip(subject.bytes()) {
        *place = byte;
    }
    TestRng::from_seed(RngAlgorithm::ChaCha, &key)
}
