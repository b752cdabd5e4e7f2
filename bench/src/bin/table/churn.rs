//! The churn at the granule's alignment.

use crate::goals::{Goals, worst};
use crate::turns::{TURNS, Turns, take_turns};
use slicepool_bench::GRANULE;
use slicepool_bench::c_churn::CChurn;
use slicepool_bench::churn::{Churn, Running};
use slicepool_bench::plot::{self, Line, Point};
use slicepool_bench::subjects::{OffsetAllocator, Pool, Subject, UnlockedPool, VirtualBlock};
use slicepool_core::layout::{self, Properties};
use slicepool_core::{PoolOptions, Space};
use std::time::Instant;

/// Pairs of one turn.
const PAIRS: usize = 20_000;

/// A space that holds the churn with room to spare.
fn roomy(churn: &Churn) -> u64 {
    churn.peak() * 3 / 2 / GRANULE * GRANULE
}

fn fill<S: Subject>(churn: &Churn) -> Running<S> {
    Running::fill(churn, roomy(churn)).expect("roomy")
}

const LIVE: [usize; 5] = [1_000, 3_000, 10_000, 30_000, 100_000];

/// The columns.
const NAMES: [&str; 6] =
    [OffsetAllocator::NAME, VirtualBlock::NAME, Space::NAME, Pool::NAME, UnlockedPool::NAME, CChurn::NAME];

/// Nanoseconds per pair of every peer; a plot of them.
pub fn speed(goals: &mut Goals) -> String {
    println!(
        "ns of CPU per pair (free one, allocate one): lower quartile of {TURNS} turns, and ratios to the first two columns"
    );
    println!("{:>9}  {}", "live", NAMES.map(|name| format!("{name:>20}")).join(" "));
    let (mut all, mut metadata_of_each) = (Vec::new(), Vec::new());
    for live in LIVE {
        let churn = Churn::new(42, live, 1_000_000);
        let pool = fill::<Pool>(&churn);
        let metadata = pool.subject().allocator().statistics().metadata;
        let mut c = CChurn::fill(&churn, roomy(&churn));
        if c.is_none() {
            println!("SKIPPED: the C library is not there; make builds it");
        }
        let times = take_turns([
            Turns::churn(&churn, fill::<OffsetAllocator>(&churn), PAIRS),
            Turns::churn(&churn, fill::<VirtualBlock>(&churn), PAIRS),
            Turns::churn(&churn, fill::<Space>(&churn), PAIRS),
            Turns::churn(&churn, pool, PAIRS),
            Turns::churn(&churn, fill::<UnlockedPool>(&churn), PAIRS),
            Turns::new(PAIRS, |pairs| c.iter_mut().for_each(|c| c.pairs(pairs))),
        ]);
        let cells = times.map(|ns| format!("{ns:.1} ({:.2}, {:.2})", ns / times[0], ns / times[1]));
        let cells = cells.map(|cell| format!("{cell:>20}")).join(" ");
        println!("{live:>9}  {cells}");
        println!("{:>9}  metadata of the pool: {:.1} bytes per live slice", "", metadata as f64 / live as f64);
        let workload = format!("churn, {live} live");
        for (name, ns) in NAMES.iter().zip(times).filter(|(_, ns)| *ns > 1.0) {
            goals.results().add(&workload, name, "pair, CPU time", "ns", ns);
        }
        all.push(times);
        metadata_of_each.push(metadata as f64 / live as f64);
    }
    let ratio = |of: usize, to: usize| worst(all.iter().map(|times| times[of] / times[to]));
    goals.at_most("pool to offset-allocator", ratio(3, 0), 0.9);
    goals.at_most("pool to VMA's virtual block", ratio(3, 1), 0.45);
    if all[0][5] > 1.0 {
        goals.at_most("pool through C to offset-allocator", ratio(5, 0), 1.0);
        goals.at_most(
            "ns of a C pair over the Rust pair, two calls each",
            worst(all.iter().map(|times| times[5] - times[3])),
            10.0,
        );
    }
    goals.at_most("metadata, bytes per live slice", worst(metadata_of_each), 56.0);
    let points = |column: usize| {
        let points = LIVE.iter().zip(&all).filter(|(_, times)| times[column] > 1.0);
        points.map(|(&live, times)| Point { live: live as u64, nanoseconds: times[column], spread: 0.0 }).collect()
    };
    let lines: Vec<_> = (0..NAMES.len()).map(|column| Line { name: NAMES[column], points: points(column) }).collect();
    let lines: Vec<_> = lines.into_iter().filter(|line: &Line| !line.points.is_empty()).collect();
    plot::cost_against_live("Cost of freeing a random slice and allocating another", &lines)
}

/// What ageing costs, and pages that grow, and a second pool.
pub fn layouts() {
    let live = 10_000;
    let churn = Churn::new(42, live, 1_000_000);
    let bytes = roomy(&churn);
    let plain = PoolOptions::sliced_pages(bytes, bytes, Some(bytes));
    let ageing = plain.clone().with_dealloc_period(Some(1024));
    let growing = PoolOptions::growing_pages(4 << 20, 256 << 20).with_dealloc_period(Some(1024));
    let adaptive = layout::adaptive(&Properties::new(u64::MAX)).expect("valid properties");
    let run = |pools: &[PoolOptions]| {
        let running = Running::fill_subject(&churn, Pool::of(pools)).expect("roomy");
        Turns::churn(&churn, running, PAIRS)
    };
    let times = take_turns([run(&[plain]), run(&[ageing]), run(&[growing]), run(&adaptive)]);
    println!("\nns per pair with {live} live, and ratio to the first column");
    println!("{:>20} {:>20} {:>20} {:>20}", "one page", "that ages", "pages that grow", "adaptive");
    let cells = times.map(|ns| format!("{ns:.1} ({:.2})", ns / times[0]));
    println!("{:>20} {:>20} {:>20} {:>20}", cells[0], cells[1], cells[2], cells[3]);
}

/// Single operations.
pub fn latency(goals: &mut Goals) {
    println!("\nns of a single pair in a churn of 10,000 live: p50 / p99 / p99.9 / max");
    latency_of::<OffsetAllocator>();
    let block = latency_of::<VirtualBlock>();
    latency_of::<Space>();
    let pool = latency_of::<Pool>();
    goals.at_most("p99.9 of a pair, pool to VMA's virtual block", pool / block, 0.8);
}

/// Prints them; p99.9.
fn latency_of<S: Subject>() -> f64 {
    let churn = Churn::new(42, 10_000, 1_000_000);
    let mut running = fill::<S>(&churn);
    running.pairs(&churn, 100_000);
    let mut times: Vec<_> = (0..400_000)
        .map(|_| {
            let start = Instant::now();
            running.pairs(&churn, 1);
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{:>20}: {} / {} / {} / {}", S::NAME, at(0.5), at(0.99), at(0.999), at(1.0));
    at(0.999) as f64
}

/// Cost against the number of pages.
pub fn pages(goals: &mut Goals) {
    let churn = Churn::new(42, 10_000, 1_000_000);
    let bytes = roomy(&churn).next_multiple_of(4096 * (1 << 20));
    let mut held = Vec::new();
    let turns = [1, 64, 4096].map(|pages| {
        let page = (bytes / pages).max(1 << 20);
        let running = Running::fill_subject(&churn, Pool::with_pages(page, page * pages)).expect("roomy");
        held.push(running.subject().allocator().statistics().pages);
        Turns::churn(&churn, running, PAIRS)
    });
    let times = take_turns(turns);
    println!("\nns per pair of the pool with 10,000 live, by pages held, and ratio to one page");
    for (pages, ns) in held.iter().zip(times) {
        println!("{pages:>9}  {ns:>8.1} ({:.2})", ns / times[0]);
    }
    goals.at_most("many pages to one", worst(times) / times[0], 1.3);
}
