//! What "flat" means.
//!
//! Host memory, metadata and the buffer pool's memory must never be more than the most there was in the warm-up: that
//! begins with a tide, in which more is live at once than ever again, so that all books have their final size.
//!
//! How much an allocator has from its device depends on which sizes happen to be live together, and the most there ever was
//! rises for as long as one waits. Its average in each tenth may be [`NOISE_PER_CENT`] above that of the warm-up: what leaks
//! adds up, and passes that after so many operations however little it is.

use std::collections::BTreeMap;

/// Averages of runs of 10^7 operations differ by 30 per cent, of 10^8 by 10.
const NOISE_PER_CENT: u64 = 50;

/// Something that must not grow.
pub(crate) enum Figure {
    /// Never more than in the warm-up.
    Most(&'static str, u64),
    /// On average not more than in the warm-up.
    Average(&'static str, u64),
}

/// The most there was in the warm-up, and after it.
#[derive(Default)]
struct Most {
    warm: u64,
    after: u64,
}

/// Sums and numbers of values: of the warm-up, and of each tenth.
type Averages = Vec<(u64, u64)>;

#[derive(Default)]
pub(crate) struct Flat {
    most: BTreeMap<&'static str, Most>,
    averages: BTreeMap<&'static str, Averages>,
}

impl Flat {
    /// Notes figures of a tenth, the first of which is the warm-up.
    pub(crate) fn note(&mut self, tenth: u64, figures: &[Figure]) {
        for figure in figures {
            match *figure {
                Figure::Most(name, value) => {
                    let most = self.most.entry(name).or_default();
                    let place = if tenth == 0 { &mut most.warm } else { &mut most.after };
                    *place = value.max(*place);
                }
                Figure::Average(name, value) => {
                    let averages = self.averages.entry(name).or_default();
                    averages.resize(tenth as usize + 1, (0, 0));
                    averages[tenth as usize].0 += value;
                    averages[tenth as usize].1 += 1;
                }
            }
        }
    }

    /// Panics if something has grown.
    pub(crate) fn assert_flat(&self) {
        let mut grown = Vec::new();
        for (name, Most { warm, after }) in &self.most {
            println!("{name}: at most {warm} in the warm-up, {after} after it");
            if after > warm {
                grown.push(*name);
            }
        }
        for (name, averages) in &self.averages {
            let averages: Vec<_> = averages.iter().map(|(sum, count)| sum / count).collect();
            println!("{name}: {averages:?} on average in each tenth");
            if averages.iter().any(|after| *after > averages[0] + averages[0] * NOISE_PER_CENT / 100) {
                grown.push(*name);
            }
        }
        assert!(grown.is_empty(), "after the warm-up has grown: {}", grown.join(", "));
    }
}

/// Flat figures, of which the last tenth has one more byte, or on average so much more.
fn with_growth(most: u64, average: u64) -> Flat {
    let mut flat = Flat::default();
    for tenth in 0..10 {
        let last = u64::from(tenth == 9);
        flat.note(tenth, &[Figure::Most("most", 1000 - tenth + (tenth + most) * last)]);
        flat.note(tenth, &[Figure::Average("average", 900), Figure::Average("average", 1100 + 2 * average * last)]);
    }
    flat
}

#[test]
fn what_is_flat_passes() {
    with_growth(0, NOISE_PER_CENT * 10).assert_flat();
}

#[test]
#[should_panic(expected = "has grown: most")]
fn one_byte_more_than_ever_in_the_warm_up_is_growth() {
    with_growth(1, 0).assert_flat();
}

#[test]
#[should_panic(expected = "has grown: average")]
fn an_average_above_the_noise_is_growth() {
    with_growth(0, NOISE_PER_CENT * 10 + 1).assert_flat();
}
