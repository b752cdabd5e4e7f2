//! One table of ratios, from one run: `make bench`.

use slicepool_bench::{Churn, GRANULE, OffsetAllocator, Pool, Running, Subject, VirtualBlock, smallest_space};
use slicepool_core::Space;
use std::time::{Duration, Instant};

/// Pairs of one turn, and turns of each subject.
const PAIRS: usize = 100_000;
const TURNS: usize = 11;

fn main() {
    println!("ns per pair (free one, allocate one): median of {TURNS} turns taken in rotation, and ratio");
    println!(
        "{:>9}  {:>20} {:>20} {:>20} {:>20}",
        "live",
        OffsetAllocator::NAME,
        VirtualBlock::NAME,
        Space::NAME,
        Pool::NAME
    );
    for live in [1_000, 10_000, 100_000] {
        speed(live);
    }
    println!("\nns of a single operation in a churn of 10,000 live: p50 / p99 / p99.9 / max");
    latency::<OffsetAllocator>();
    latency::<VirtualBlock>();
    latency::<Space>();
    latency::<Pool>();
    println!("\nsmallest space over peak live bytes, 200,000 pairs, mean of three seeds");
    println!("{:>9}  {:>20} {:>20} {:>20}", "live", OffsetAllocator::NAME, VirtualBlock::NAME, Space::NAME);
    for live in [1_000, 10_000] {
        let mean = |f: fn(&Churn) -> f64| (1..=3).map(|seed| f(&Churn::new(seed, live, 200_000))).sum::<f64>() / 3.0;
        let (a, b, c) = (
            mean(smallest_space::<OffsetAllocator>),
            mean(smallest_space::<VirtualBlock>),
            mean(smallest_space::<Space>),
        );
        println!("{live:>9}  {a:>20.3} {b:>20.3} {c:>20.3}");
    }
    println!("\npages: ns per pair of the pool with 10,000 live in 1, 64 and 4,096 pages, and ratio to one page");
    pages();
}

/// A space that holds the churn with room to spare.
fn roomy(churn: &Churn) -> u64 {
    churn.peak() * 3 / 2 / GRANULE * GRANULE
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64 / PAIRS as f64
}

fn turn<S: Subject>(running: &mut Running<S>, churn: &Churn) -> Duration {
    let start = Instant::now();
    assert!(running.pairs(churn, PAIRS), "the space is roomy");
    start.elapsed()
}

fn speed(live: usize) {
    let churn = Churn::new(42, live, 1_000_000);
    let bytes = roomy(&churn);
    let mut a = Running::<OffsetAllocator>::fill(&churn, bytes).expect("roomy");
    let mut b = Running::<VirtualBlock>::fill(&churn, bytes).expect("roomy");
    let mut c = Running::<Space>::fill(&churn, bytes).expect("roomy");
    let mut d = Running::<Pool>::fill(&churn, bytes).expect("roomy");
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..TURNS {
        times[0].push(turn(&mut a, &churn));
        times[1].push(turn(&mut b, &churn));
        times[2].push(turn(&mut c, &churn));
        times[3].push(turn(&mut d, &churn));
    }
    let medians = times.map(|mut times| median(&mut times));
    let cells = medians.map(|ns| format!("{ns:.1} ({:.2}, {:.2})", ns / medians[0], ns / medians[1]));
    println!("{live:>9}  {:>20} {:>20} {:>20} {:>20}", cells[0], cells[1], cells[2], cells[3]);
    let metadata = d.subject().allocator().statistics().metadata;
    println!("{:>9}  metadata of the pool: {:.1} bytes per live slice", "", metadata as f64 / live as f64);
}

fn latency<S: Subject>() {
    let churn = Churn::new(42, 10_000, 1_000_000);
    let mut running = Running::<S>::fill(&churn, roomy(&churn)).expect("roomy");
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
}

fn pages() {
    let churn = Churn::new(42, 10_000, 1_000_000);
    let bytes = roomy(&churn).next_multiple_of(4096 * (1 << 20));
    let mut subjects: Vec<_> = [1, 64, 4096]
        .into_iter()
        .map(|pages| {
            let page = (bytes / pages).max(1 << 20);
            (pages, Running::fill_subject(&churn, Pool::with_pages(page, page * pages)).expect("roomy"), Vec::new())
        })
        .collect();
    for _ in 0..TURNS {
        for (_, running, times) in &mut subjects {
            times.push(turn(running, &churn));
        }
    }
    let mut first = 0.0;
    for (pages, running, times) in &mut subjects {
        let ns = median(times);
        if *pages == 1 {
            first = ns;
        }
        let held = running.subject().allocator().statistics().pages;
        println!("{pages:>9}  {ns:>8.1} ({:.2}), {held} pages held", ns / first);
    }
}
