//! The churn with slices that are aligned to more than the granule.

use crate::goals::{Goals, worst};
use crate::turns::{Turns, take_turns};
use slicepool_bench::churn::{Churn, Running};
use slicepool_bench::subjects::{Aligned, AlignedSubject, Pool, Subject, VirtualBlock};

/// Nanoseconds per pair beside the one peer that aligns.
pub fn speed(goals: &mut Goals) {
    println!("\nns per pair with aligned slices, and ratio of the pool to the virtual block");
    println!("{:>9}  {:>28} {:>20} {:>20}", "live", "aligned to", VirtualBlock::NAME, Pool::NAME);
    let ratios = [1_000, 10_000, 100_000].map(|live| {
        let quarter = row::<4096, 4>(live, "4 KiB, a quarter of them");
        quarter.max(row::<{ Pool::MAX_ALIGNMENT }, 1>(live, "64 KiB, all of them"))
    });
    goals.at_most("aligned slices, pool to VMA's virtual block", worst(ratios), 1.0);
}

/// Prints it; the ratio.
fn row<const ALIGNMENT: u64, const EVERY: u32>(live: usize, what: &str) -> f64 {
    let churn = Churn::new(42, live, 1_000_000);
    // The block's cost rises with the number of slices, to hundreds of times that of the pool.
    let few = 10_000_000 / live;
    let [block, pool] = take_turns([
        Turns::churn(&churn, fill::<VirtualBlock, ALIGNMENT, EVERY>(&churn), few.min(2_000)),
        Turns::churn(&churn, fill::<Pool, ALIGNMENT, EVERY>(&churn), 20_000),
    ]);
    println!("{live:>9}  {what:>28} {block:>20.1} {:>20}", format!("{pool:.1} ({:.3})", pool / block));
    pool / block
}

/// A subject that is filled, with half as much again as its slices need.
fn fill<S: AlignedSubject, const ALIGNMENT: u64, const EVERY: u32>(
    churn: &Churn,
) -> Running<Aligned<S, ALIGNMENT, EVERY>> {
    let gaps = churn.fill.len() as u64 * ALIGNMENT / u64::from(EVERY);
    let bytes = ((churn.peak() + gaps) * 3 / 2).next_multiple_of(ALIGNMENT);
    Running::fill(churn, bytes).unwrap_or_else(|| panic!("{} has room", S::NAME))
}
