//! Buffer pools beside their peers, one table of ratios from one run: `cargo run --release --bin buffers`, and with
//! `--features heavy` beside commonware's too.

mod turns;

use slicepool_bench::Random;
use slicepool_bench::buffers::subjects::{Mimalloc, Owner, OwnerShared, Raw, RawShared, System};
use slicepool_bench::buffers::work::Work;
use slicepool_bench::buffers::{Buffers, Setup, c};
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering};
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
        Self { what, work, setup, subjects, figures: [None; COLUMNS.len()] }
    }

    fn ratio(&self, of: usize, to: usize) -> Option<f64> {
        Some(self.figures[of]?.ns / self.figures[to]?.ns)
    }

    fn print(&self) {
        print!("{:<35} {:>7} {:>7} ", self.what, self.setup.bytes, self.setup.threads);
        for (column, figures) in self.figures.iter().enumerate() {
            let cell = figures.map_or("-".into(), |one| {
                let ratios = [COMMONWARE, MIMALLOC, MALLOC].map(|to| self.ratio(column, to));
                let ratios = ratios.map(|ratio| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")));
                let time = format!("{:.1} ±{:.0}%", one.ns, 100.0 * one.spread / one.ns);
                if column < COMMONWARE { format!("{time} ({})", ratios.join(", ")) } else { time }
            });
            print!(" {cell:>width$}", width = width(column));
        }
        println!();
    }
}

/// Characters of a column.
fn width(column: usize) -> usize {
    if column < COMMONWARE { 29 } else { 13 }
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

fn main() {
    let mut rows = rows();
    let mut random = Random::new(11);
    for _ in 0..ROUNDS {
        for row in &mut rows {
            take_turns(&mut row.subjects, &mut random, || ALLOCATIONS.load(Ordering::Relaxed));
        }
    }
    println!(
        "buffers: ns per pair (acquire, write one byte, release): median of {} turns, half the distance between the \
         quartiles, and ratios to {}",
        ROUNDS * TURNS,
        COLUMNS[COMMONWARE..].join(", ")
    );
    print!("{:<35} {:>7} {:>7} ", "", "bytes", "threads");
    for (column, name) in COLUMNS.iter().enumerate() {
        print!(" {name:>width$}", width = width(column));
    }
    println!();
    for row in &mut rows {
        row.figures = row.subjects.each_mut().map(|subject| subject.as_mut().map(Subject::figures));
        row.print();
    }
    goals(&rows);
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
    let allocations = steady.flat_map(|row| [row.figures[OWNER], row.figures[HANDLE]]).flatten();
    let allocations = allocations.map(|one| one.allocations).sum::<u64>();
    println!("{}: no host allocation in all turns of one thread: {allocations}", verdict(allocations == 0));
    let misses = rows.iter().filter(|row| row.work == Work::Miss);
    let misses = misses.flat_map(|row| [row.figures[OWNER], row.figures[HANDLE], row.figures[C]]).flatten();
    let most = misses.map(|one| one.ns).fold(0.0, f64::max);
    println!("{}: refused in less than 100 ns at any limit: {most:.1} at most", verdict(most < 100.0));
}

fn ratios(what: &str, rows: &[&Row], of: usize, to: usize, goal: f64) {
    let ratios: Option<Vec<f64>> = rows.iter().map(|row| row.ratio(of, to)).collect();
    let Some(ratios) = ratios else {
        let missing = if of == C { "the shared library, from make" } else { "--features heavy" };
        println!("SKIPPED: {what}: needs {missing}");
        return;
    };
    let met = ratios.iter().all(|&ratio| ratio <= goal);
    let ratios: Vec<_> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    println!("{}: {what}: {}", verdict(met), ratios.join(", "));
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
