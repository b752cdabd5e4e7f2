//! Plots as SVG: 800 pixels wide, on white, in colours that the colour-blind can tell apart, with their numbers beside
//! them.

mod axis;
mod bars;
mod lines;
mod svg;

pub use bars::{BarRow, grouped_bars};
pub use lines::{Line, Point, cost_against_live};

/// Pixels from left to right.
const WIDTH: f64 = 800.0;

/// The colour of the n-th subject: grey for the first, which others are compared with, then those of Okabe and Ito that
/// show on white.
fn colour(subject: usize) -> &'static str {
    const COLOURS: [&str; 7] = ["#7f7f7f", "#0072b2", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#56b4e9"];
    COLOURS[subject % COLOURS.len()]
}
