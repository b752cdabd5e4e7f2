//! The churn with slices that are aligned to more than the granule.

use crate::goals::{Goals, worst};
use crate::turns::{PAIRS, Turns, take_turns};
use slicepool_bench::churn::{Churn, Running};
use slicepool_bench::quartiles::Quartiles;
use slicepool_bench::subjects::{Aligned, AlignedSubject, Pool, Subject, VirtualBlock};

/// Nanoseconds per pair beside the one peer that aligns.
pub fn speed(goals: &mut Goals) {
    println!("\nns per pair with aligned slices, and ratio of the pool to the virtual block");
    println!("{:>9}  {:>28} {:>20} {:>20}", "live", "aligned to", VirtualBlock::NAME, Pool::NAME);
    let mut ratios = Vec::new();
    for live in [1_000, 10_000, 100_000] {
        for (what, row) in [
            ("4 KiB, a quarter of them", row::<4096, 4> as fn(usize, &str) -> Quartiles),
            ("64 KiB, all of them", row::<{ Pool::MAX_ALIGNMENT }, 1>),
        ] {
            let ratio = row(live, what);
            let workload = format!("churn, {live} live, aligned to {what}");
            goals.results().add_quartiles(&workload, Pool::NAME, "pair, to the virtual block", "", ratio);
            ratios.push(ratio);
        }
    }
    goals.at_most("aligned slices, pool to VMA's virtual block", worst(ratios), 1.0);
}

/// Prints it; the ratio.
fn row<const ALIGNMENT: u64, const EVERY: u32>(live: usize, what: &str) -> Quartiles {
    let churn = Churn::new(42, live, 1_000_000);
    // The block becomes slower with every pair where all slices are aligned so: to hundreds of microseconds.
    let few = if EVERY == 1 { 10_000_000 / live } else { PAIRS };
    let [block, pool] = take_turns([
        Turns::churn(&churn, fill::<VirtualBlock, ALIGNMENT, EVERY>(&churn), few.min(PAIRS)),
        Turns::churn(&churn, fill::<Pool, ALIGNMENT, EVERY>(&churn), PAIRS),
    ]);
    println!("{live:>9}  {what:>28} {:>20.1} {:>20}", block.ns().median, pool.beside(&block));
    pool.to(&block)
}

/// A subject that is filled, with half as much again as its slices need.
fn fill<S: AlignedSubject, const ALIGNMENT: u64, const EVERY: u32>(
    churn: &Churn,
) -> Running<Aligned<S, ALIGNMENT, EVERY>> {
    let gaps = churn.fill.len() as u64 * ALIGNMENT / u64::from(EVERY);
    let bytes = ((churn.peak() + gaps) * 3 / 2).next_multiple_of(ALIGNMENT);
    Running::fill(churn, bytes).unwrap_or_else(|| panic!("{} has room", S::NAME))
}
