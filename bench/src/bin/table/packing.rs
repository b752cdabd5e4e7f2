//! How much room the churn needs.

use crate::goals::{Goals, worst};
use slicepool_bench::best_fit::BestFit;
use slicepool_bench::churn::{Churn, smallest_space};
use slicepool_bench::quartiles::Quartiles;
use slicepool_bench::subjects::{OffsetAllocator, Subject, VirtualBlock};
use slicepool_core::Space;

/// The smallest space in which the churn completes, beside exact best fit.
pub fn smallest_spaces(goals: &mut Goals) {
    println!("\nsmallest space over peak live bytes, 200,000 pairs, mean of three seeds: the same in every run");
    println!(
        "{:>9}  {:>20} {:>20} {:>20} {:>20}",
        "live",
        OffsetAllocator::NAME,
        VirtualBlock::NAME,
        BestFit::NAME,
        Space::NAME
    );
    let mut to_block = Vec::new();
    for live in [1_000, 10_000] {
        let mean = |f: fn(&Churn) -> f64| (1..=3).map(|seed| f(&Churn::new(seed, live, 200_000))).sum::<f64>() / 3.0;
        let (a, b, c, d) = (
            mean(smallest_space::<OffsetAllocator>),
            mean(smallest_space::<VirtualBlock>),
            mean(smallest_space::<BestFit>),
            mean(smallest_space::<Space>),
        );
        let workload = format!("churn, {live} live, smallest space");
        let names = [OffsetAllocator::NAME, VirtualBlock::NAME, BestFit::NAME, Space::NAME];
        for (name, factor) in names.into_iter().zip([a, b, c, d]) {
            goals.results().add(&workload, name, "mean of three seeds, to peak of live bytes", "", factor);
        }
        println!("{live:>9}  {a:>20.3} {b:>20.3} {c:>20.3} {d:>20.3}");
        to_block.push(Quartiles::exactly(d / b));
        if live == 10_000 {
            goals.at_most("smallest space with 10,000 live, to exact best fit", Quartiles::exactly(d / c), 1.01);
        }
    }
    goals.at_most("smallest space to VMA's virtual block", worst(to_block), 1.0);
}
