//! Memory that serves again: one slice at a time, whose page was held before.

use crate::goals::{Goals, worst};
use crate::turns::{PAIRS, Turns, take_some};
use slicepool_bench::replay::Gauge;
use slicepool_bench::subjects::{Pool, Subject};
use slicepool_bench::{GRANULE, Random};
use slicepool_core::layout::{self, Properties};
use slicepool_core::{Allocator, AllocatorOptions, PoolOptions, Request};
use std::collections::{BTreeSet, VecDeque};

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
fn with_free_pages<S: Subject>(mut subject: S, sizes: impl Iterator<Item = u64>) -> S {
    let live: Vec<_> = sizes.map(|bytes| subject.allocate(bytes).expect("there is no limit")).collect();
    live.into_iter().for_each(|slice| subject.free(slice));
    subject
}

/// Allocates and frees one size after the other, from the start again after the last. So many of them differ.
fn pairs<'a, S: Subject + 'a>(mut subject: S, sizes: &'a [u64], distinct: usize) -> Turns<'a> {
    let mut sizes = sizes.iter().cycle();
    Turns::new(PAIRS, distinct, move |pairs| {
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

fn pool(kind: &PoolOptions) -> Pool {
    Pool::of(std::slice::from_ref(kind))
}

/// The pool of a peer that does what the direct one does.
#[cfg(feature = "heavy")]
fn peer<'a>(sizes: &[u64], order: &'a [u64]) -> Option<Turns<'a>> {
    use slicepool_bench::peers::cubecl::{Cubecl, Direct};
    Some(pairs(with_free_pages(Cubecl::<Direct>::new(0, 0), sizes.iter().copied()), order, sizes.len()))
}

#[cfg(not(feature = "heavy"))]
fn peer<'a>(_: &[u64], _: &'a [u64]) -> Option<Turns<'a>> {
    None
}

/// Cost against the number of different sizes.
pub fn speed(goals: &mut Goals) {
    println!(
        "\nns per pair (allocate one, free it) of random sizes, and ratio to one size; of the peer, ratio to direct"
    );
    let names = ["direct", "exclusive", "sliced", "cubecl, direct"];
    println!("{:>9}  {}", "sizes", names.map(|name| format!("{name:>20}")).join(" "));
    let counts = [1, 16, 128, 1_024, 8_192, 10_000];
    let work = counts.map(|count| {
        let sizes = distinct_sizes(count);
        let mut random = Random::new(7);
        let order: Vec<_> = (0..1 << 16).map(|_| sizes[random.below(count as u64) as usize]).collect();
        (sizes, order)
    });
    let mut subjects = Vec::new();
    for (sizes, order) in &work {
        let own =
            kinds().map(|kind| Some(pairs(with_free_pages(pool(&kind), sizes.iter().copied()), order, sizes.len())));
        subjects.extend(own);
        subjects.push(peer(sizes, order));
    }
    let times = take_some(subjects);
    let rows: Vec<_> = times.chunks(names.len()).collect();
    for (count, row) in counts.iter().zip(&rows) {
        let mut cells = Vec::new();
        for (column, name) in names.iter().enumerate() {
            // What slicepool is compared with is itself, with one size; a peer with slicepool.
            let (to, figure) =
                if column < 3 { (&rows[0][column], "pair, to one size") } else { (&row[0], "pair, to direct") };
            let cell = row[column].as_ref().zip(to.as_ref()).map(|(times, to)| {
                let workload = format!("reuse, {count} sizes");
                goals.results().add_quartiles(&workload, name, "pair, CPU time", "ns", times.ns());
                goals.results().add_quartiles(&workload, name, figure, "", times.to(to));
                times.beside(to)
            });
            cells.push(format!("{:>20}", cell.unwrap_or("-".into())));
        }
        println!("{count:>9}  {}", cells.join(" "));
    }
    if let Some(direct) = rows.last().and_then(|row| row[0].as_ref()) {
        goals.at_most("direct, ns of a pair with 10,000 sizes", direct.ns(), 30.0);
    }
}

/// Cost against the number of pages that are free besides.
pub fn free_pages(goals: &mut Goals) {
    println!("\nns per pair of one size, by free pages besides, and ratio to none");
    println!("{:>22}  {:>20} {:>20}", "free pages", "direct", "exclusive");
    let hot = [LARGEST / 2];
    let mut besides = vec![("none".to_string(), Vec::new())];
    for count in [10, 1_000, 100_000] {
        besides.push((format!("{count} of other sizes"), distinct_sizes(count)));
        besides.push((format!("{count} of the same"), vec![hot[0]; count]));
    }
    let [direct, exclusive, _] = kinds();
    let start = |kind: &PoolOptions, sizes: &[u64]| {
        Some(pairs(with_free_pages(pool(kind), hot.iter().chain(sizes).copied()), &hot, 1))
    };
    let subjects = besides.iter().flat_map(|(_, sizes)| [start(&direct, sizes), start(&exclusive, sizes)]);
    let times: Vec<_> = take_some(subjects.collect()).into_iter().flatten().collect();
    let (first, mut ratios) = (&times[..2], Vec::new());
    for ((name, _), row) in besides.iter().zip(times.chunks(2)) {
        println!("{name:>22}  {:>20} {:>20}", row[0].beside(&first[0]), row[1].beside(&first[1]));
        for (kind, (times, to)) in ["direct", "exclusive"].into_iter().zip(row.iter().zip(first)) {
            let workload = format!("reuse, free pages besides: {name}");
            goals.results().add_quartiles(&workload, kind, "pair, to none", "", times.to(to));
        }
        ratios.push(row[0].to(&first[0]));
    }
    goals.at_most("direct, many free pages to none", worst(ratios), 1.3);
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
