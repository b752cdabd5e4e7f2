//! Replays traces, and measures what is reserved for them and what the device has to do.

mod arenas;
mod buffers;
mod pools;

pub use arenas::GrowingSpace;
pub use buffers::BufferClasses;
pub use pools::{Gauge, Pools};

use slicepool_traces::{Event, Trace};
use std::time::{Duration, Instant};

/// Memory that grows by itself as requests need it.
pub trait Growing {
    /// What frees a slice.
    type Handle;
    /// A slice.
    fn allocate(&mut self, bytes: u64) -> Self::Handle;
    /// Takes a slice back.
    fn free(&mut self, handle: Self::Handle);
    /// The most bytes that were reserved at any time.
    fn reserved_peak(&self) -> u64;
    /// Bytes of live slices with all that rounding adds to them.
    fn occupied(&self) -> u64;
    /// How often memory was taken from the device or given back.
    fn calls(&self) -> u64;
    /// Bytes that were taken or given back.
    fn moved(&self) -> u64;
}

/// A trace on its way through some memory.
struct Replay<'a, G: Growing> {
    trace: &'a Trace,
    next: usize,
    slices: Vec<Option<G::Handle>>,
    memory: G,
    most_calls: u64,
    slowest: Duration,
}

impl<'a, G: Growing> Replay<'a, G> {
    fn new(trace: &'a Trace, memory: G) -> Self {
        let slices = Vec::with_capacity(trace.slices());
        Self { trace, next: 0, slices, memory, most_calls: 0, slowest: Duration::ZERO }
    }

    /// Goes on to an event.
    fn until(&mut self, end: usize) {
        for event in &self.trace.events[self.next..end] {
            match *event {
                Event::Allocate(bytes) => {
                    let (calls, start) = (self.memory.calls(), Instant::now());
                    self.slices.push(Some(self.memory.allocate(bytes)));
                    self.slowest = self.slowest.max(start.elapsed());
                    self.most_calls = self.most_calls.max(self.memory.calls() - calls);
                }
                Event::Free(slice) => self.memory.free(self.slices[slice].take().expect("live")),
            }
        }
        self.next = end;
    }
}

/// What a trace costs over some memory.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Peak of reserved over peak of live bytes, in percent above 1.
    pub waste: f64,
    /// What rounding adds to the slices that are live at the peak, in percent of them.
    pub padding: f64,
    /// How often memory was taken from the device or given back.
    pub calls: u64,
    /// The same in the second half of the trace: near 0 where a program repeats itself.
    pub late_calls: u64,
    /// The most within one allocation.
    pub most_calls: u64,
    /// Bytes that were taken or given back.
    pub moved: u64,
    /// The time of the slowest allocation: of use where the device takes much longer than all else.
    pub slowest: Duration,
}

impl Cost {
    /// Replays a trace.
    pub fn of<G: Growing>(trace: &Trace, memory: G) -> Self {
        let (at_peak, live) = trace.peak_at();
        let halfway = trace.events.len() / 2;
        let mut replay = Replay::new(trace, memory);
        let (mut early, mut occupied) = (0, 0);
        for stop in [at_peak.min(halfway), at_peak.max(halfway)] {
            replay.until(stop);
            if stop == halfway {
                early = replay.memory.calls();
            }
            if stop == at_peak {
                occupied = replay.memory.occupied();
            }
        }
        replay.until(trace.events.len());
        Self {
            waste: percent_above(replay.memory.reserved_peak(), live),
            padding: percent_above(occupied, live),
            calls: replay.memory.calls(),
            late_calls: replay.memory.calls() - early,
            most_calls: replay.most_calls,
            moved: replay.memory.moved(),
            slowest: replay.slowest,
        }
    }
}

fn percent_above(whole: u64, part: u64) -> f64 {
    (whole as f64 / part as f64 - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use slicepool_core::PoolOptions;

    const MIB: u64 = 1 << 20;

    fn trace() -> Trace {
        use Event::{Allocate, Free};
        let events = vec![Allocate(MIB), Free(0), Allocate(3 * MIB - 1), Allocate(MIB), Free(1), Allocate(2 * MIB)];
        Trace { name: String::new(), events }
    }

    #[test]
    fn a_page_for_each_slice_is_counted_as_it_is_taken() {
        let cost = Cost::of(&trace(), Pools::new(&[PoolOptions::direct(None)]));
        // Pages of 1, 3 and 2 MiB, of which the first is used twice.
        assert_eq!((cost.calls, cost.late_calls, cost.most_calls, cost.moved), (3, 1, 1, 6 * MIB));
        assert!((cost.waste - percent_above(6 * MIB, 4 * MIB - 1)).abs() < 1e-9);
        assert!((cost.padding - percent_above(4 * MIB, 4 * MIB - 1)).abs() < 1e-9);
    }

    #[test]
    fn one_that_grows_by_what_is_missing_takes_no_more() {
        let cost = Cost::of(&trace(), GrowingSpace::default());
        assert_eq!((cost.calls, cost.late_calls, cost.most_calls, cost.moved), (3, 1, 1, 4 * MIB));
        assert!(cost.waste < 1e-4 && cost.waste == cost.padding);
    }

    #[test]
    fn what_sleeps_shows_in_the_slowest_allocation() {
        let delay = Duration::from_millis(2);
        let slow = Cost::of(&trace(), Pools::with_delay(&[PoolOptions::direct(None)], delay));
        assert!(slow.slowest >= delay);
    }
}
