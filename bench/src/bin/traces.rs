//! What real and synthetic programs would reserve: `make bench-traces`.

use slicepool_bench::best_fit::BestFit;
use slicepool_bench::replay::{Cost, GrowingSpace, waste};
use slicepool_bench::traces::{self, Trace};
use slicepool_core::PoolOptions;
use slicepool_core::layout::{self, Properties};

const MIB: u64 = 1 << 20;

fn main() {
    let mut all = traces::recorded().unwrap_or_else(|reason| {
        println!("SKIPPED the recorded traces: {reason}");
        Vec::new()
    });
    let own = traces::synthetic().into_iter().filter(|own| all.iter().all(|recorded| recorded.events != own.events));
    let own: Vec<_> = own.collect();
    all.extend(own);
    println!("peak of reserved over peak of live bytes, in percent above 1");
    println!("device calls, and those of the second half; of adaptive also the bytes moved and the most calls at once");
    println!(
        "{:>28} {:>9}  {:>8} {:>8}  {:>19} {:>19} {:>19} {:>12} {:>5}",
        "trace", "peak MiB", "best fit", "space", "fixed 64 MiB", "fixed 256 MiB", "adaptive", "moved MiB", "most"
    );
    let rows: Vec<_> = all.iter().map(Row::of).collect();
    rows.iter().for_each(Row::print);
    goal("adaptive, less waste than fixed 64 MiB", &rows, 2, |row| row.adaptive.waste < row.fixed_64.waste);
    goal("adaptive, less waste than fixed 256 MiB", &rows, 2, |row| row.adaptive.waste < row.fixed_256.waste);
    goal("space, within a point of best fit", &rows, 0, |row| row.space <= row.best_fit + 1.0);
}

/// The figures of a trace.
struct Row {
    name: String,
    peak: u64,
    best_fit: f64,
    space: f64,
    fixed_64: Cost,
    fixed_256: Cost,
    adaptive: Cost,
}

impl Row {
    fn of(trace: &Trace) -> Self {
        let adaptive = layout::adaptive(&Properties::new(u64::MAX)).expect("valid properties");
        Self {
            name: trace.name.clone(),
            peak: trace.peak(),
            best_fit: waste(trace, BestFit::default()),
            space: waste(trace, GrowingSpace::default()),
            fixed_64: Cost::of(trace, &fixed(64 * MIB)),
            fixed_256: Cost::of(trace, &fixed(256 * MIB)),
            adaptive: Cost::of(trace, &adaptive),
        }
    }

    fn print(&self) {
        let cell = |cost: &Cost| format!("{:.2} {:>5} {:>5}", cost.waste, cost.calls, cost.late_calls);
        println!(
            "{:>28} {:>9.1}  {:>8.2} {:>8.2}  {:>19} {:>19} {:>19} {:>12.0} {:>5}",
            self.name,
            self.peak as f64 / MIB as f64,
            self.best_fit,
            self.space,
            cell(&self.fixed_64),
            cell(&self.fixed_256),
            cell(&self.adaptive),
            self.adaptive.moved as f64 / MIB as f64,
            self.adaptive.most_calls
        );
    }
}

/// Equal pages, and a page of its own for what is larger.
fn fixed(page: u64) -> [PoolOptions; 2] {
    [PoolOptions::sliced_pages(page, page, None), PoolOptions::direct(None)]
}

/// Says whether something holds for every trace but at most `exceptions`, and for which it does not.
fn goal(what: &str, rows: &[Row], exceptions: usize, holds: impl Fn(&Row) -> bool) {
    let not: Vec<_> = rows.iter().filter(|row| !holds(row)).map(|row| row.name.as_str()).collect();
    let verdict = if not.len() <= exceptions { "reached" } else { "MISSED" };
    let but = if not.is_empty() { String::new() } else { format!(", not on {}", not.join(", ")) };
    println!("{verdict}: {what}, on {} of {} traces{but}", rows.len() - not.len(), rows.len());
}
