//! Sequences of allocations to replay: recorded ones, read at run time, and synthetic ones with fixed seeds.

mod random;
mod recorded;
mod synthetic;

pub use random::Random;
pub use recorded::{FOLDER, recorded};
pub use synthetic::synthetic;

/// One step of a trace. Slices are numbered in the order in which they are allocated, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The next slice, of that many bytes.
    Allocate(u64),
    /// The slice of that number, which is live.
    Free(usize),
}

/// What a program allocated and freed, in order. What is never freed is live at the end.
pub struct Trace {
    /// Its name in tables.
    pub name: String,
    /// The steps.
    pub events: Vec<Event>,
}

impl Trace {
    /// How many slices it allocates.
    pub fn slices(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Allocate(_))).count()
    }

    /// The most bytes that are live at any time.
    pub fn peak(&self) -> u64 {
        self.peak_at().1
    }

    /// After how many events the most bytes are live for the first time, and how many those are.
    pub fn peak_at(&self) -> (usize, u64) {
        let (mut sizes, mut live, mut peak) = (Vec::new(), 0, (0, 0));
        for (index, event) in self.events.iter().enumerate() {
            match *event {
                Event::Allocate(size) => {
                    sizes.push(size);
                    live += size;
                    if live > peak.1 {
                        peak = (index + 1, live);
                    }
                }
                Event::Free(slice) => live -= sizes[slice],
            }
        }
        peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_counts_live_bytes() {
        let events = vec![Event::Allocate(10), Event::Allocate(20), Event::Free(0), Event::Allocate(15)];
        assert_eq!(Trace { name: String::new(), events }.peak_at(), (4, 35));
    }
}
