//! The churn at the granule's alignment.

use crate::contenders::{self, Contender, fill, roomy};
use crate::goals::{Goals, worst};
use crate::turns::{self, PAIRS, TURNS, Times, Turns, ratio, take_some, take_turns};
use slicepool_bench::c_churn::CChurn;
use slicepool_bench::churn::{Churn, Running};
use slicepool_bench::peers::VmaPool;
use slicepool_bench::plot::{self, Line, Point};
use slicepool_bench::quartiles::Quartiles;
use slicepool_bench::subjects::{OffsetAllocator, Pool, Subject, VirtualBlock};
use slicepool_core::layout::{self, Properties};
use slicepool_core::{PoolOptions, Space};
use std::time::Instant;

const LIVE: [usize; 5] = [1_000, 3_000, 10_000, 30_000, 100_000];

/// Characters of a column, and of the names before the first.
const WIDTH: usize = 22;
const NAMES: usize = 22;

/// What all contenders took, with each number of live slices.
struct Table {
    contenders: Vec<Contender>,
    /// By number of live slices, then by contender.
    times: Vec<Vec<Option<Times>>>,
    /// Bytes that the pool's books take for each live slice.
    metadata: Vec<f64>,
}

impl Table {
    fn measure() -> Self {
        let contenders = contenders::all();
        let (mut times, mut metadata) = (Vec::new(), Vec::new());
        for live in LIVE {
            let churn = Churn::new(42, live, 1_000_000);
            let bytes = fill::<Pool>(&churn).subject().allocator().statistics().metadata;
            metadata.push(bytes as f64 / live as f64);
            let start = |one: &Contender| if live <= one.most { (one.start)(&churn) } else { None };
            times.push(take_some(contenders.iter().map(start).collect()));
        }
        Self { contenders, times, metadata }
    }

    fn column(&self, name: &str) -> usize {
        self.contenders.iter().position(|one| one.name == name).expect("it takes part")
    }

    /// Something of two contenders, where both took part: the worst of it over all numbers of live slices.
    fn worst(&self, of: &str, to: &str, what: fn(&Times, &Times) -> Quartiles) -> Option<Quartiles> {
        let (of, to) = (self.column(of), self.column(to));
        let both = self.times.iter().filter_map(|row| row[of].as_ref().zip(row[to].as_ref()));
        let all: Vec<_> = both.map(|(of, to)| what(of, to)).collect();
        (!all.is_empty()).then(|| worst(all))
    }

    fn print(&self) {
        println!(
            "ns of CPU per pair (free one, allocate one) by live slices, and ratio to the first line: medians of {TURNS} \
             turns, and half the distance between the quartiles of the turns' ratios"
        );
        println!("{:NAMES$} {}", "", LIVE.map(|live| format!("{live:>WIDTH$}")).join(" "));
        for (index, one) in self.contenders.iter().enumerate() {
            let cell = |row: &Vec<Option<Times>>| match (&row[index], &row[0]) {
                (Some(pool), _) if index == 0 => turns::alone(pool),
                (Some(times), Some(pool)) => times.beside(pool),
                _ => "-".into(),
            };
            let cells: Vec<_> = self.times.iter().map(|row| format!("{:>WIDTH$}", cell(row))).collect();
            println!("{:NAMES$} {}", one.name, cells.join(" "));
        }
        let metadata: Vec<_> = self.metadata.iter().map(|bytes| format!("{bytes:>WIDTH$.1}")).collect();
        println!("{:NAMES$} {}", "metadata, B per slice", metadata.join(" "));
        for one in self.contenders.iter().filter(|one| one.most != usize::MAX) {
            println!("{}: not with more than {} live: {}", one.name, one.most, one.why);
        }
        if self.times.iter().all(|row| row[self.column(CChurn::NAME)].is_none()) {
            println!("SKIPPED: {}: the C library is not there; make builds it", CChurn::NAME);
        }
    }

    fn save(&self, goals: &mut Goals) {
        for (live, row) in LIVE.iter().zip(&self.times) {
            let workload = format!("churn, {live} live");
            for (one, times) in self.contenders.iter().zip(row) {
                let Some(times) = times else { continue };
                goals.results().add_quartiles(&workload, one.name, "pair, CPU time", "ns", times.ns());
                let beside = [Pool::NAME, OffsetAllocator::NAME, VirtualBlock::NAME];
                for other in beside.into_iter().filter(|other| *other != one.name) {
                    if let Some(to) = &row[self.column(other)] {
                        let figure = format!("pair, to {other}");
                        goals.results().add_quartiles(&workload, one.name, &figure, "", times.to(to));
                    }
                }
            }
        }
    }

    fn plot(&self) -> String {
        let line = |(index, one): (usize, &Contender)| {
            let points =
                LIVE.iter().zip(&self.times).filter_map(|(&live, row)| Some((live, row[index].as_ref()?.ns())));
            let points =
                points.map(|(live, ns)| Point { live: live as u64, nanoseconds: ns.median, spread: ns.spread() });
            Line { name: one.name, points: points.collect() }
        };
        let lines: Vec<_> =
            self.contenders.iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect();
        plot::cost_against_live("Cost of freeing a random slice and allocating another", &lines)
    }
}

/// Nanoseconds per pair of every peer; a plot of them.
pub fn speed(goals: &mut Goals) -> String {
    let table = Table::measure();
    table.print();
    table.save(goals);
    let mut at_most = |what: &str, value: Option<Quartiles>, limit: f64| {
        if let Some(value) = value {
            goals.at_most(what, value, limit);
        }
    };
    let (pool, c, offset, block) = (Pool::NAME, CChurn::NAME, OffsetAllocator::NAME, VirtualBlock::NAME);
    at_most("pool to offset-allocator", table.worst(pool, offset, Times::to), 0.9);
    at_most("pool to VMA's virtual block", table.worst(pool, block, Times::to), 0.45);
    at_most("pool through C to offset-allocator", table.worst(c, offset, Times::to), 1.0);
    at_most("ns of a C pair over the Rust pair, two calls each", table.worst(c, pool, Times::over), 10.0);
    at_most(
        "metadata, bytes per live slice",
        Some(worst(table.metadata.iter().map(|&bytes| Quartiles::exactly(bytes)))),
        56.0,
    );
    table.plot()
}

/// What ageing costs, and pages that grow, and a second pool.
pub fn layouts(goals: &mut Goals) {
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
    let names = ["one page", "that ages", "pages that grow", "adaptive"];
    println!("{}", names.map(|name| format!("{name:>WIDTH$}")).join(" "));
    println!("{}", times.each_ref().map(|one| format!("{:>WIDTH$}", one.beside(&times[0]))).join(" "));
    for (name, times_of_one) in names.iter().zip(&times) {
        let (subject, ratio) = (format!("{}, {name}", Pool::NAME), times_of_one.to(&times[0]));
        goals.results().add_quartiles("churn, layouts", &subject, "pair, to one page", "", ratio);
    }
}

/// Parts of a churn of which each operation is measured, and its pairs.
const PARTS: usize = 9;
const PART: usize = 50_000;

/// Single operations.
pub fn latency(goals: &mut Goals) {
    println!("\nns of a single pair in a churn of 10,000 live: p50 / p99 / p99.9 / max; p99.9 to the virtual block's");
    let churn = Churn::new(42, 10_000, 1_000_000);
    let mut singles = [
        Singles::of::<OffsetAllocator>(&churn),
        Singles::of::<VirtualBlock>(&churn),
        Singles::of::<VmaPool>(&churn),
        Singles::of::<Space>(&churn),
        Singles::of::<Pool>(&churn),
    ];
    for _ in 0..PARTS {
        singles.iter_mut().for_each(Singles::measure);
    }
    let [_, block, _, _, pool] = &singles;
    for one in &singles {
        one.print(block);
    }
    let to_block = Quartiles::of_ratios(&pool.rare, &block.rare);
    goals.at_most("p99.9 of a pair, pool to VMA's virtual block", to_block, 0.8);
}

/// A subject whose pairs are measured one by one.
struct Singles<'a> {
    name: &'static str,
    pair: Box<dyn FnMut() + 'a>,
    /// Of all parts.
    times: Vec<u64>,
    /// What one of a thousand pairs takes at least, in each part.
    rare: Vec<f64>,
}

impl<'a> Singles<'a> {
    fn of<S: Subject + 'a>(churn: &'a Churn) -> Self {
        let mut running = fill::<S>(churn);
        running.pairs(churn, 2 * PART);
        let pair = Box::new(move || assert!(running.pairs(churn, 1), "the space is roomy"));
        Self { name: S::NAME, pair, times: Vec::with_capacity(PARTS * PART), rare: Vec::new() }
    }

    fn measure(&mut self) {
        let from = self.times.len();
        for _ in 0..PART {
            let start = Instant::now();
            (self.pair)();
            self.times.push(start.elapsed().as_nanos() as u64);
        }
        self.rare.push(share(&mut self.times[from..], 0.999) as f64);
    }

    fn print(&self, block: &Self) {
        let mut times = self.times.clone();
        let [half, hundredth, rare, max] = [0.5, 0.99, 0.999, 1.0].map(|of| share(&mut times, of));
        let to_block = ratio(Quartiles::of_ratios(&self.rare, &block.rare));
        println!("{:>20}: {half} / {hundredth} / {rare} / {max}; {to_block}", self.name);
    }
}

/// So large a share of times is not above it.
fn share(times: &mut [u64], share: f64) -> u64 {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * share) as usize]
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
    for (pages, times_of_one) in held.iter().zip(&times) {
        println!("{pages:>9}  {:>20}", times_of_one.beside(&times[0]));
        let (workload, ratio) = (format!("churn, {pages} pages"), times_of_one.to(&times[0]));
        goals.results().add_quartiles(&workload, Pool::NAME, "pair, to one page", "", ratio);
    }
    goals.at_most("many pages to one", worst(times[1..].iter().map(|many| many.to(&times[0]))), 1.3);
}
