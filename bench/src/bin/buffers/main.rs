//! Buffer pools beside their peers, one table of ratios from one run: `cargo run --release --bin buffers`, and with
//! `--features heavy` beside commonware's too.

mod turns;

use slicepool_bench::Random;
use slicepool_bench::buffers::subjects::{Mimalloc, Owner, OwnerShared, Raw, RawShared, System};
use slicepool_bench::buffers::work::Work;
use slicepool_bench::buffers::{Buffers, Setup, c};
use slicepool_bench::quartiles::Quartiles;
use slicepool_bench::results::{Folders, Results};
use std::alloc::{GlobalAlloc, Layout};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use turns::{Figures, ROUNDS, Subject, TURNS, take_turns};

/// What is measured: slicepool, and three that ratios are to.
const COLUMNS: [&str; 6] = ["Rust, owner", "Rust, handle", "C, handle", "commonware", "mimalloc", "malloc"];
const OWNER: usize = 0;
const HANDLE: usize = 1;
const C: usize = 2;
const COMMONWARE: usize = 3;
const MIMALLOC: usize = 4;
const MALLOC: usize = 5;

/// The global allocator, which counts.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is passed on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { std::alloc::System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { std::alloc::System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A line of the table.
struct Row {
    what: &'static str,
    work: Work,
    setup: Setup,
    subjects: [Option<Subject>; COLUMNS.len()],
    figures: [Option<Figures>; COLUMNS.len()],
}

impl Row {
    fn new(what: &'static str, work: Work, setup: Setup) -> Self {
        let cached = setup.cache.is_some();
        // Memory without a limit is never exhausted.
        let unlimited = work != Work::Miss;
        let subjects = [
            Some(if cached { start::<Owner>(setup, work) } else { start::<OwnerShared>(setup, work) }),
            Some(if cached { start::<Raw>(setup, work) } else { start::<RawShared>(setup, work) }),
            c::is_there().then(|| start::<c::C>(setup, work)),
            commonware(setup, work),
            unlimited.then(|| start::<Mimalloc>(setup, work)),
            unlimited.then(|| start::<System>(setup, work)),
        ];
        Self { what, work, setup, subjects, figures: [const { None }; COLUMNS.len()] }
    }

    fn ratio(&self, of: usize, to: usize) -> Option<Quartiles> {
        Some(self.figures[of].as_ref()?.to(self.figures[to].as_ref()?))
    }

    fn print(&self) {
        print!("{:<35} {:>7} {:>7} ", self.what, self.setup.bytes, self.setup.threads);
        for (column, figures) in self.figures.iter().enumerate() {
            let cell = figures.as_ref().map_or("-".into(), |one| {
                let ratios = [COMMONWARE, MIMALLOC, MALLOC].map(|to| self.ratio(column, to));
                let ratios = ratios.map(|ratio| ratio.map_or("-".into(), |ratio| short(ratio, 2)));
                let time = short(one.ns, 1);
                if column < COMMONWARE { format!("{time} ({})", ratios.join(", ")) } else { time }
            });
            print!(" {cell:>width$}", width = width(column));
        }
        println!();
    }

    fn save(&self, results: &mut Results) {
        let Setup { bytes, threads, .. } = self.setup;
        let workload = format!("{}; {bytes} bytes, {threads} threads", self.what);
        for (column, name) in COLUMNS.iter().enumerate() {
            let Some(figures) = &self.figures[column] else { continue };
            results.add_quartiles(&workload, name, "pair, CPU time", "ns", figures.ns);
            for to in [COMMONWARE, MIMALLOC, MALLOC].into_iter().filter(|&to| column < COMMONWARE && to != column) {
                if let Some(ratio) = self.ratio(column, to) {
                    results.add_quartiles(&workload, name, &format!("pair, to {}", COLUMNS[to]), "", ratio);
                }
            }
        }
    }
}

/// A median, and half the distance between the quartiles in percent of it.
fn short(figure: Quartiles, digits: usize) -> String {
    format!("{:.digits$}±{:.0}", figure.median, 100.0 * figure.spread() / figure.median)
}

/// Characters of a column.
fn width(column: usize) -> usize {
    if column < COMMONWARE { 34 } else { 12 }
}

fn start<B: Buffers>(setup: Setup, work: Work) -> Subject {
    Subject::new::<B>(setup, work)
}

#[cfg(feature = "heavy")]
fn commonware(setup: Setup, work: Work) -> Option<Subject> {
    Some(start::<slicepool_bench::buffers::subjects::commonware::Commonware>(setup, work))
}

#[cfg(not(feature = "heavy"))]
fn commonware(_: Setup, _: Work) -> Option<Subject> {
    None
}

fn main() -> io::Result<()> {
    let (start, folders) = (Instant::now(), Folders::from_arguments());
    let mut results = Results::new("buffers");
    let mut rows = rows();
    let mut random = Random::new(11);
    for _ in 0..ROUNDS {
        for row in &mut rows {
            take_turns(&mut row.subjects, &mut random, || ALLOCATIONS.load(Ordering::Relaxed));
        }
    }
    println!(
        "buffers: ns per pair (acquire, write one byte, release), and ratios to {}: medians of {} turns, ± half the \
         distance between the quartiles, of ratios that between the turns' ratios, in percent",
        COLUMNS[COMMONWARE..].join(", "),
        ROUNDS * TURNS
    );
    print!("{:<35} {:>7} {:>7} ", "", "bytes", "threads");
    for (column, name) in COLUMNS.iter().enumerate() {
        print!(" {name:>width$}", width = width(column));
    }
    println!();
    for row in &mut rows {
        row.figures = row.subjects.each_ref().map(|subject| subject.as_ref().map(Subject::figures));
        row.print();
        row.save(&mut results);
    }
    goals(&rows);
    println!("\nwritten: {}", results.save(&folders.results)?.display());
    println!("this run took {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Everything that is measured.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for threads in [1, 2] {
        for bytes in [1 << 10, 64 << 10] {
            let setup = Setup { bytes, limit: 4096, cache: Some(16), threads };
            let large = Setup { cache: Some(256), ..setup };
            let none = Setup { cache: None, ..setup };
            rows.push(Row::new("one, cache of 16", Work::Together(1), setup));
            rows.push(Row::new("17 together, cache of 16", Work::Together(17), setup));
            rows.push(Row::new("257 together, cache of 256", Work::Together(257), large));
            rows.push(Row::new("one, no cache", Work::Together(1), none));
        }
    }
    for bytes in [1 << 10, 64 << 10] {
        let setup = Setup { bytes, limit: 4096, cache: Some(64), threads: 2 };
        rows.push(Row::new("one thread to another, cache of 64", Work::Across, setup));
    }
    for cache in [Some(16), None] {
        for (bytes, limit) in [(1 << 10, 64), (64 << 10, 64), (64, 1_000_000)] {
            let what = match (cache, limit) {
                (Some(_), 64) => "refused, 64 are out, cache of 16",
                (Some(_), _) => "refused, 10^6 are out, cache of 16",
                (None, 64) => "refused, 64 are out, no cache",
                (None, _) => "refused, 10^6 are out, no cache",
            };
            rows.push(Row::new(what, Work::Miss, Setup { bytes, limit, cache, threads: 1 }));
        }
    }
    rows
}

/// Says which goals are met.
fn goals(rows: &[Row]) {
    println!();
    let alone = |count| move |row: &Row| row.work == Work::Together(count) && row.setup.threads == 1;
    let cached = |row: &Row| row.setup.cache.is_some();
    let hot: Vec<_> = rows.iter().filter(|row| alone(1)(row) && cached(row)).collect();
    let batch: Vec<_> = rows.iter().filter(|row| alone(17)(row)).collect();
    ratios("one with a cache, owner: at most commonware", &hot, OWNER, COMMONWARE, 1.0);
    ratios("one with a cache, C: at most mimalloc", &hot, C, MIMALLOC, 1.0);
    ratios("17 with a cache of 16, owner: at most 0.8 of commonware", &batch, OWNER, COMMONWARE, 0.8);
    let steady = rows.iter().filter(|row| row.setup.threads == 1);
    let allocations = steady.flat_map(|row| [&row.figures[OWNER], &row.figures[HANDLE]]).flatten();
    let allocations = allocations.map(|one| one.allocations).sum::<u64>();
    println!("{}: no host allocation in all turns of one thread: {allocations}", verdict(allocations == 0));
    let misses = rows.iter().filter(|row| row.work == Work::Miss);
    let misses = misses.flat_map(|row| [&row.figures[OWNER], &row.figures[HANDLE], &row.figures[C]]).flatten();
    let most = misses.map(|one| one.ns.median).fold(0.0, f64::max);
    println!("{}: refused in less than 100 ns at any limit: {most:.1} at most", verdict(most < 100.0));
}

fn ratios(what: &str, rows: &[&Row], of: usize, to: usize, goal: f64) {
    let ratios: Option<Vec<Quartiles>> = rows.iter().map(|row| row.ratio(of, to)).collect();
    let Some(ratios) = ratios else {
        let missing = if of == C { "the shared library, from make" } else { "--features heavy" };
        println!("SKIPPED: {what}: needs {missing}");
        return;
    };
    let met = ratios.iter().all(|ratio| ratio.median <= goal);
    let ratios: Vec<_> = ratios.iter().map(|&ratio| short(ratio, 2)).collect();
    println!("{}: {what}: {}", verdict(met), ratios.join(", "));
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
