//! What was to be reached, beside what has been.

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
    pub fn at_most(&mut self, what: &str, value: f64, limit: f64) {
        self.note(what, value, "<=", limit, value <= limit);
    }

    /// That a figure is at least so large.
    pub fn at_least(&mut self, what: &str, value: f64, limit: f64) {
        self.note(what, value, ">=", limit, value >= limit);
    }

    fn note(&mut self, what: &str, value: f64, relation: &str, limit: f64, reached: bool) {
        let verdict = if reached { "reached" } else { "MISSED" };
        self.lines.push(format!("{verdict:>8}  {value:>10.3} {relation} {limit:<8} {what}"));
        self.results.add("goal", what, &format!("{relation} {limit}: {verdict}"), "", value);
    }

    /// Prints them all.
    pub fn print(&self) {
        println!("\ngoals, with the worst figure of each");
        self.lines.iter().for_each(|line| println!("{line}"));
    }
}

/// The largest of some figures.
pub fn worst(figures: impl IntoIterator<Item = f64>) -> f64 {
    figures.into_iter().fold(f64::NEG_INFINITY, f64::max)
}
