//! What real and synthetic programs would reserve: `make bench-traces`.

mod layouts;
mod stalls;
mod tables;

use layouts::Layout;
use slicepool_bench::plot::{self, BarRow};
use slicepool_bench::replay::Cost;
use slicepool_bench::results::{Folders, Results};
use slicepool_bench::traces::{self, Trace};
use std::time::{Duration, Instant};
use std::{fs, io};

const MIB: u64 = 1 << 20;

/// What a device call takes.
const DELAY: Duration = Duration::from_micros(100);

/// The figures of a trace.
struct Row {
    name: String,
    /// The most bytes live.
    peak: u64,
    /// Of each layout.
    costs: [Cost; Layout::ALL.len()],
    /// The largest stall that was measured, where a device slept.
    measured: [Option<Duration>; Layout::ALL.len()],
}

impl Row {
    fn of(trace: &Trace) -> Self {
        let costs = Layout::ALL.map(|layout| layout.cost(trace));
        let measured = Layout::ALL.map(|layout| stalls::measure(trace, layout, &costs[layout as usize]));
        Self { name: trace.name.clone(), peak: trace.peak(), costs, measured }
    }

    fn cost(&self, layout: Layout) -> &Cost {
        &self.costs[layout as usize]
    }

    fn waste(&self, layout: Layout) -> f64 {
        self.cost(layout).waste
    }
}

fn main() -> io::Result<()> {
    let (start, folders) = (Instant::now(), Folders::from_arguments());
    let mut all = traces::recorded().unwrap_or_else(|reason| {
        println!("SKIPPED the recorded traces: {reason}");
        Vec::new()
    });
    let own = traces::synthetic().into_iter().filter(|own| all.iter().all(|recorded| recorded.events != own.events));
    let own: Vec<_> = own.collect();
    all.extend(own);
    let rows: Vec<_> = all.iter().map(Row::of).collect();
    tables::print(&rows);
    goals(&rows);
    println!("\nwritten: {}", results(&rows).save(&folders.results)?.display());
    if let Some(folder) = folders.plots {
        fs::create_dir_all(&folder)?;
        let path = folder.join("waste.svg");
        fs::write(&path, plot(&rows))?;
        println!("written: {}", path.display());
    }
    println!("this run took {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn goals(rows: &[Row]) {
    use Layout::{Adaptive, BestFit, Fixed64, Fixed256, Space};
    println!();
    goal("adaptive, less waste than fixed 64 MiB", rows, 2, |row| row.waste(Adaptive) < row.waste(Fixed64));
    goal("adaptive, less waste than fixed 256 MiB", rows, 2, |row| row.waste(Adaptive) < row.waste(Fixed256));
    goal("space, within a point of best fit", rows, 0, |row| row.waste(Space) <= row.waste(BestFit) + 1.0);
}

/// Says whether something holds for every trace but at most `exceptions`, and for which it does not.
fn goal(what: &str, rows: &[Row], exceptions: usize, holds: impl Fn(&Row) -> bool) {
    let not: Vec<_> = rows.iter().filter(|row| !holds(row)).map(|row| row.name.as_str()).collect();
    let verdict = if not.len() <= exceptions { "reached" } else { "MISSED" };
    let but = if not.is_empty() { String::new() } else { format!(", not on {}", not.join(", ")) };
    println!("{verdict}: {what}, on {} of {} traces{but}", rows.len() - not.len(), rows.len());
}

fn results(rows: &[Row]) -> Results {
    let mut results = Results::new("traces");
    for row in rows {
        results.add(&row.name, "trace", "peak of live bytes", "B", row.peak as f64);
        for layout in Layout::ALL {
            let cost = row.cost(layout);
            let mut add = |figure, unit, value| results.add(&row.name, layout.name(), figure, unit, value);
            add("waste", "%", cost.waste);
            add("padding at the peak", "%", cost.padding);
            add("device calls", "calls", cost.calls as f64);
            add("device calls of the second half", "calls", cost.late_calls as f64);
            add("bytes moved", "B", cost.moved as f64);
            add("largest stall", "us", micros(stalls::virtual_stall(cost)));
            if let Some(stall) = row.measured[layout as usize] {
                add("largest stall, measured", "us", micros(stall));
            }
        }
    }
    results
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// Waste of each trace; those that fit into one page of the smallest size apart.
fn plot(rows: &[Row]) -> String {
    let bars = |rows: &mut dyn Iterator<Item = &Row>| -> Vec<_> {
        rows.map(|row| BarRow::new(&row.name, Layout::PLOTTED.map(|layout| row.waste(layout)))).collect()
    };
    let is_tiny = |row: &&Row| row.peak < 4 * MIB;
    let groups = [
        ("", bars(&mut rows.iter().filter(|row| !is_tiny(row)))),
        ("Less than 4 MiB live: any page is too large", bars(&mut rows.iter().filter(is_tiny))),
    ];
    let title = "Memory reserved and not used";
    let axis = "peak of reserved over peak of live bytes, percent above 1";
    plot::grouped_bars(title, axis, 60.0, &Layout::PLOTTED.map(Layout::name), &groups)
}
