//! Two threads: in one pool, and in a pool each.

use crate::goals::Goals;
use crate::turns::ratio;
use slicepool_bench::GRANULE;
use slicepool_bench::churn::Churn;
use slicepool_bench::quartiles::Quartiles;
use slicepool_bench::subjects::NoDevice;
use slicepool_core::{Allocator, AllocatorOptions, PoolOptions, Request};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Pairs of one turn of one thread.
const PAIRS: usize = 200_000;
/// Turns of each case.
const TURNS: usize = 9;
/// Slices of each thread.
const LIVE: usize = 1_000;

fn allocator(bytes: u64) -> Allocator<NoDevice> {
    let pools = [PoolOptions::sliced_pages(bytes, bytes, Some(bytes)).with_granule(GRANULE)];
    Allocator::try_new(NoDevice::default(), &pools, AllocatorOptions::default()).expect("valid options")
}

/// Churns with slices of this thread's own; the time that the pairs took, and those of single ones if they are wanted.
fn churn(allocator: &Allocator<NoDevice>, churn: &Churn, start: &Barrier, single: bool) -> (Duration, Vec<u64>) {
    let take = |size| allocator.allocate(&Request::new(size)).expect("there is room").id;
    let mut live: Vec<_> = churn.fill.iter().map(|&size| take(size)).collect();
    let mut times = Vec::with_capacity(if single { PAIRS } else { 0 });
    start.wait();
    let begin = Instant::now();
    for &(victim, size) in &churn.pairs {
        let pair = single.then(Instant::now);
        allocator.free(live[victim as usize]).expect("live");
        live[victim as usize] = take(size);
        times.extend(pair.map(|pair| pair.elapsed().as_nanos() as u64));
    }
    let took = begin.elapsed();
    live.into_iter().for_each(|id| allocator.free(id).expect("live"));
    (took, times)
}

/// Pairs per microsecond of so many threads together, in allocators that they take by turns.
fn throughput(threads: usize, allocators: &[Allocator<NoDevice>], churns: &[Churn]) -> f64 {
    let start = Barrier::new(threads);
    let slowest = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|i| {
                let (allocator, work, start) = (&allocators[i % allocators.len()], &churns[i], &start);
                scope.spawn(move || churn(allocator, work, start, false).0)
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("it does not panic")).max()
    });
    (threads * PAIRS) as f64 / slowest.unwrap_or_default().as_nanos() as f64 * 1e3
}

/// What contention costs, by the clock on the wall: needs two processors with nothing else to do.
pub fn contention(goals: &mut Goals) {
    let churns = [1, 2].map(|seed| Churn::new(seed, LIVE, PAIRS));
    let bytes = churns.iter().map(Churn::peak).sum::<u64>() * 3 / 2 / GRANULE * GRANULE;
    let two = [allocator(bytes), allocator(bytes)];
    let mut figures = [const { Vec::new() }; 3];
    for _ in 0..TURNS {
        figures[0].push(throughput(1, &two[..1], &churns));
        figures[1].push(throughput(2, &two[..1], &churns));
        figures[2].push(throughput(2, &two, &churns));
    }
    let [one, shared, apart] = figures.each_ref().map(|turns| Quartiles::of_ratios(turns, &figures[0]));
    println!(
        "\npairs per microsecond, 1,000 slices live for each thread, median of {TURNS} turns, and ratio to one thread"
    );
    println!("{:>20} {:>20} {:>20}", "one thread", "two in one pool", "two in two pools");
    let cells: [_; 3] = std::array::from_fn(|i| {
        let median = Quartiles::of(figures[i].iter().copied()).median;
        format!("{median:.1} ({})", ratio([one, shared, apart][i]))
    });
    println!("{:>20} {:>20} {:>20}", cells[0], cells[1], cells[2]);
    goals.at_least("two threads in one pool, throughput of one", shared, 0.75);
    goals.at_least("two threads in two pools, throughput of one", apart, 1.8);

    let start = Barrier::new(2);
    let mut times: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = churns.iter().map(|work| scope.spawn(|| churn(&two[0], work, &start, true).1)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("it does not panic")).collect()
    });
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("ns of a single pair of two threads in one pool: p50 / p99 / p99.9 / max");
    println!("{:>20} {} / {} / {} / {}", "", at(0.5), at(0.99), at(0.999), at(1.0));
}
