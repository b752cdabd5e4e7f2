//! What was to be reached, beside what has been.

use slicepool_bench::quartiles::Quartiles;
use slicepool_bench::results::Results;

/// Goals with their figures, printed at the end, and all figures that are worth keeping.
pub struct Goals {
    lines: Vec<String>,
    results: Results,
}

impl Goals {
    /// None yet.
    pub fn new() -> Self {
        Self { lines: Vec::new(), results: Results::new("table") }
    }

    /// Where figures go.
    pub fn results(&mut self) -> &mut Results {
        &mut self.results
    }

    /// That a figure is at most so large.
    pub fn at_most(&mut self, what: &str, value: Quartiles, limit: f64) {
        self.note(what, value, "<=", limit, value.median <= limit);
    }

    /// That a figure is at least so large.
    pub fn at_least(&mut self, what: &str, value: Quartiles, limit: f64) {
        self.note(what, value, ">=", limit, value.median >= limit);
    }

    fn note(&mut self, what: &str, value: Quartiles, relation: &str, limit: f64, reached: bool) {
        let verdict = if reached { "reached" } else { "MISSED" };
        let spread = if value.turns > 1 { format!("±{:.3}", value.spread()) } else { String::new() };
        self.lines.push(format!("{verdict:>8}  {:>10.3} {spread:<8} {relation} {limit:<8} {what}", value.median));
        self.results.add_quartiles("goal", what, &format!("{relation} {limit}: {verdict}"), "", value);
    }

    /// Prints them all.
    pub fn print(&self) {
        println!("\ngoals, with the worst figure of each: median, and half the distance between the quartiles");
        self.lines.iter().for_each(|line| println!("{line}"));
    }
}

/// The one of the largest median.
pub fn worst(figures: impl IntoIterator<Item = Quartiles>) -> Quartiles {
    figures.into_iter().max_by(|a, b| a.median.total_cmp(&b.median)).expect("there is a figure")
}
