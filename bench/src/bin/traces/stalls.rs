//! How long a program waits for one allocation.

use crate::DELAY;
use crate::layouts::Layout;
use slicepool_bench::replay::Cost;
use slicepool_bench::traces::Trace;
use std::time::Duration;

/// More device calls are not slept through: it would take long and say the same.
const MOST_CALLS: u64 = 1_000;

/// Others want the CPU, too: the least of so many runs counts.
const RUNS: usize = 3;

/// The most device calls of one allocation, each of them as long as it is said to take.
pub fn virtual_stall(cost: &Cost) -> Duration {
    DELAY * cost.most_calls as u32
}

/// The slowest allocation over a device that sleeps that long in each call; a sleep takes a little more than it is told.
/// None where there is no device, or too much to sleep.
pub fn measure(trace: &Trace, layout: Layout, cost: &Cost) -> Option<Duration> {
    let runs = (layout.has_device() && cost.calls <= MOST_CALLS).then_some(RUNS)?;
    (0..runs).map(|_| layout.cost_with_delay(trace, DELAY).slowest).min()
}
