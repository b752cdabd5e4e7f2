//! A table for each figure: traces below each other, layouts side by side.

use crate::layouts::Layout;
use crate::{DELAY, MIB, Row, stalls};
use std::time::Duration;

/// Prints all of them.
pub fn print(rows: &[Row]) {
    println!("peak of reserved over peak of live bytes, in percent above 1");
    table(rows, |row, layout| percent(row.waste(layout)));
    println!("\npadding: what rounding adds to the slices live at the peak, in percent of them");
    table(rows, |row, layout| percent(row.cost(layout).padding));
    println!("\ndevice calls (of one that grows: growths), and those of the second half");
    table(rows, |row, layout| format!("{} {:>5}", row.cost(layout).calls, row.cost(layout).late_calls));
    println!("\nMiB taken from the device and given back");
    table(rows, |row, layout| format!("{:.0}", row.cost(layout).moved as f64 / MIB as f64));
    println!(
        "\nlargest stall in microseconds: the most device calls of one allocation, {} each; measured, where it sleeps",
        DELAY.as_micros()
    );
    table(rows, stall);
    published(rows);
}

fn table(rows: &[Row], cell: impl Fn(&Row, Layout) -> String) {
    print!("{:>28} {:>9}", "trace", "peak MiB");
    Layout::ALL.iter().for_each(|layout| print!(" {:>15}", layout.name()));
    println!();
    for row in rows {
        print!("{:>28} {:>9.1}", row.name, row.peak as f64 / MIB as f64);
        Layout::ALL.iter().for_each(|&layout| print!(" {:>15}", cell(row, layout)));
        println!();
    }
}

fn percent(value: f64) -> String {
    if value < 10_000.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

fn stall(row: &Row, layout: Layout) -> String {
    let micros = |stall: Duration| stall.as_micros();
    let measured = row.measured[layout as usize].map_or("-".into(), |stall| micros(stall).to_string());
    format!("{} {measured:>6}", micros(stalls::virtual_stall(row.cost(layout))))
}

/// What PyTorch's segments leave unused of some recordings according to those who made them. Which of equal blocks is taken
/// matters: here it is the lowest.
const PUBLISHED: [(&str, f64); 9] = [
    ("alexnet_train", 48.61),
    ("game_streaming_synthetic", 10.94),
    ("gpt_forward_mixed", 3.96),
    ("gpt_medium_ctx1024_training", 3.94),
    ("gpt_medium_ctx128_training", 3.40),
    ("gpt_medium_ctx256_inference", 3.70),
    ("growing_batch_48layers", 24.18),
    ("hta_ddp_rank1", 9.29),
    ("kineto_resnet50_w0", 20.05),
];

/// How near our segments come to that.
fn published(rows: &[Row]) {
    let known =
        PUBLISHED.iter().filter_map(|(name, theirs)| Some((rows.iter().find(|row| row.name == *name)?, theirs)));
    let mut known = known.peekable();
    if known.peek().is_none() {
        return;
    }
    println!("\nPyTorch-like segments beside what came with the recordings, in percent, and the difference in points");
    println!("{:>28} {:>9} {:>9} {:>9}", "trace", "ours", "theirs", "points");
    for (row, theirs) in known {
        let ours = row.waste(Layout::Segments);
        // No difference is nothing, not less than nothing.
        let difference = ((ours - theirs) * 100.0).round() / 100.0 + 0.0;
        println!("{:>28} {ours:>9.2} {theirs:>9.2} {difference:>+9.2}", row.name);
    }
}
