//! Memory that serves again: one slice at a time, whose page was held before.

use crate::goals::{Goals, worst};
use crate::turns::{Turns, take_turns};
use slicepool_bench::replay::Gauge;
use slicepool_bench::subjects::{Pool, Subject};
use slicepool_bench::{GRANULE, Random};
use slicepool_core::layout::{self, Properties};
use slicepool_core::{Allocator, AllocatorOptions, PoolOptions, Request};
use std::collections::{BTreeSet, VecDeque};

/// Pairs of one turn.
const PAIRS: usize = 20_000;

/// Bytes of the largest slice.
const LARGEST: u64 = 1 << 30;

/// So many different sizes.
fn distinct_sizes(count: usize) -> Vec<u64> {
    let mut random = Random::new(count as u64);
    let mut sizes = BTreeSet::new();
    while sizes.len() < count {
        sizes.insert((1 + random.below(LARGEST / GRANULE)) * GRANULE);
    }
    sizes.into_iter().collect()
}

/// Holds a page for every one of some slices, all of them free.
fn with_free_pages(pool: &PoolOptions, sizes: impl Iterator<Item = u64>) -> Pool {
    let mut subject = Pool::of(std::slice::from_ref(pool));
    let live: Vec<_> = sizes.map(|bytes| subject.allocate(bytes).expect("there is no limit")).collect();
    live.into_iter().for_each(|slice| subject.free(slice));
    subject
}

/// Allocates and frees one size after the other, from the start again after the last.
fn pairs<'a>(mut subject: Pool, sizes: &'a [u64]) -> Turns<'a> {
    let mut sizes = sizes.iter().cycle();
    Turns::new(PAIRS, move |pairs| {
        for &bytes in sizes.by_ref().take(pairs) {
            let slice = subject.allocate(bytes).expect("there is no limit");
            subject.free(slice);
        }
    })
}

fn kinds() -> [PoolOptions; 3] {
    [
        PoolOptions::direct(None),
        PoolOptions::exclusive_pages(LARGEST),
        PoolOptions::sliced_pages(LARGEST, LARGEST, None),
    ]
}

/// Cost against the number of different sizes.
pub fn speed(goals: &mut Goals) {
    println!("\nns per pair (allocate one, free it) of random sizes, and ratio to one size");
    println!("{:>9}  {:>16} {:>16} {:>16}", "sizes", "direct", "exclusive", "sliced");
    let mut first = None;
    for count in [1, 16, 128, 1_024, 8_192, 10_000] {
        let sizes = distinct_sizes(count);
        let mut random = Random::new(7);
        let order: Vec<_> = (0..1 << 16).map(|_| sizes[random.below(count as u64) as usize]).collect();
        let times = take_turns(kinds().map(|pool| pairs(with_free_pages(&pool, sizes.iter().copied()), &order)));
        print_row(&count.to_string(), times, *first.get_or_insert(times));
        if count == 10_000 {
            goals.at_most("direct, ns of a pair with 10,000 sizes", times[0], 30.0);
        }
    }
}

/// Cost against the number of pages that are free besides.
pub fn free_pages(goals: &mut Goals) {
    println!("\nns per pair of one size, by free pages besides, and ratio to none");
    println!("{:>20}  {:>16} {:>16}", "free pages", "direct", "exclusive");
    let hot = [LARGEST / 2];
    let none = row_of_free(&hot, &[]);
    print_row("none", none, none);
    let mut ratios = Vec::new();
    for count in [10, 1_000, 100_000] {
        for (name, besides) in [("other sizes", distinct_sizes(count)), ("the same", vec![hot[0]; count])] {
            let row = row_of_free(&hot, &besides);
            print_row(&format!("{count} of {name}"), row, none);
            ratios.push(row[0] / none[0]);
        }
    }
    goals.at_most("direct, many free pages to none", worst(ratios), 1.3);
}

fn row_of_free(hot: &[u64], besides: &[u64]) -> [f64; 2] {
    let [direct, exclusive, _] = kinds();
    take_turns([direct, exclusive].map(|pool| pairs(with_free_pages(&pool, hot.iter().chain(besides).copied()), hot)))
}

fn print_row<const N: usize>(name: &str, row: [f64; N], first: [f64; N]) {
    let width = if N == 2 { 20 } else { 9 };
    print!("{name:>width$} ");
    for (ns, first) in row.iter().zip(first) {
        print!(" {:>16}", format!("{ns:.1} ({:.2})", ns / first));
    }
    println!();
}

/// Whether anything grows while a program does the same for ever.
pub fn steady() {
    println!(
        "\n100,000 allocations of one size, 1 and 17 live: MiB reserved and device calls after the first, at the end"
    );
    let adaptive = layout::adaptive(&Properties::new(u64::MAX)).expect("valid properties");
    let [direct, exclusive, _] = kinds();
    let sliced = PoolOptions::sliced_pages(64 << 20, 64 << 20, None);
    for (name, pools) in
        [("direct", &[direct][..]), ("exclusive", &[exclusive]), ("sliced", &[sliced]), ("adaptive", &adaptive)]
    {
        let cells = [1, 17].map(|live| {
            let [first, last] = repeat(pools, live);
            format!("{} MiB, {} calls; {} MiB, {} calls", first.0, first.1, last.0, last.1)
        });
        println!("{name:>9}  {:>40} {:>40}", cells[0], cells[1]);
    }
}

/// MiB reserved and device calls when `live` slices are there, and after many that took turns with them.
fn repeat(pools: &[PoolOptions], live: usize) -> [(u64, u64); 2] {
    let allocator = Allocator::try_new(Gauge::default(), pools, AllocatorOptions::default()).expect("valid options");
    let figures = || (allocator.statistics().reserved >> 20, allocator.device().calls());
    let mut slices = VecDeque::new();
    let mut first = None;
    for _ in 0..100_000 {
        if slices.len() == live {
            first.get_or_insert_with(figures);
            slices.pop_front().into_iter().for_each(|slice| allocator.free(slice).expect("live"));
        }
        slices.push_back(allocator.allocate(&Request::new(3 << 20)).expect("there is no limit").id);
    }
    [first.unwrap_or_default(), figures()]
}
