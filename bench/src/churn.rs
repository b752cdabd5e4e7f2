//! The churn: a number of slices that stays the same while each is replaced again and again.

use crate::subjects::Subject;
use crate::{GRANULE, Random};

/// Fill to `live` slices, then free a uniformly random one and allocate anew, again and again. Sizes are log-uniform
/// from 256 B to 1 MiB, rounded up to the granule.
pub struct Churn {
    /// Sizes of the slices of the fill.
    pub fill: Vec<u64>,
    /// Victim and new size of each pair.
    pub pairs: Vec<(u32, u64)>,
}

impl Churn {
    /// Makes the workload from a seed.
    pub fn new(seed: u64, live: usize, pairs: usize) -> Self {
        let mut random = Random::new(seed);
        let (low, high) = (256f64.ln(), ((1 << 20) as f64).ln());
        let size = move |random: &mut Random| {
            let bytes = (low + (high - low) * random.unit()).exp() as u64;
            bytes.div_ceil(GRANULE) * GRANULE
        };
        let fill = (0..live).map(|_| size(&mut random)).collect();
        let pairs = (0..pairs).map(|_| (random.below(live as u64) as u32, size(&mut random))).collect();
        Self { fill, pairs }
    }

    /// The most bytes that are live at any time.
    pub fn peak(&self) -> u64 {
        let mut live = self.fill.clone();
        let mut sum: u64 = live.iter().sum();
        let mut peak = sum;
        for &(victim, size) in &self.pairs {
            sum = sum - live[victim as usize] + size;
            live[victim as usize] = size;
            peak = peak.max(sum);
        }
        peak
    }
}

/// A subject in the middle of a churn.
pub struct Running<S: Subject> {
    subject: S,
    live: Vec<Option<S::Handle>>,
    next: usize,
}

impl<S: Subject> Running<S> {
    /// Fills a subject over `bytes`; none if the fill does not fit.
    pub fn fill(churn: &Churn, bytes: u64) -> Option<Self> {
        Self::fill_subject(churn, S::new(bytes, churn.fill.len()))
    }

    /// Fills a subject that exists.
    pub fn fill_subject(churn: &Churn, mut subject: S) -> Option<Self> {
        let live = churn.fill.iter().map(|&size| subject.allocate(size).map(Some)).collect::<Option<_>>()?;
        Some(Self { subject, live, next: 0 })
    }

    /// Goes on with `pairs` pairs, from the start again after the last; `false` if one does not fit.
    pub fn pairs(&mut self, churn: &Churn, pairs: usize) -> bool {
        for _ in 0..pairs {
            let (victim, size) = churn.pairs[self.next];
            self.next = if self.next + 1 == churn.pairs.len() { 0 } else { self.next + 1 };
            let place = &mut self.live[victim as usize];
            if let Some(handle) = place.take() {
                self.subject.free(handle);
            }
            *place = self.subject.allocate(size);
            if place.is_none() {
                return false;
            }
        }
        true
    }

    /// The subject.
    pub fn subject(&self) -> &S {
        &self.subject
    }
}

/// Some peers complain of what is live at their end.
impl<S: Subject> Drop for Running<S> {
    fn drop(&mut self) {
        self.live.iter_mut().filter_map(Option::take).for_each(|handle| self.subject.free(handle));
    }
}

/// The smallest space, as a multiple of the peak of live bytes, in which the churn completes; to half a percent.
pub fn smallest_space<S: Subject>(churn: &Churn) -> f64 {
    let peak = churn.peak();
    let fits = |factor: f64| {
        let bytes = (peak as f64 * factor) as u64 / GRANULE * GRANULE;
        Running::<S>::fill(churn, bytes).is_some_and(|mut running| running.pairs(churn, churn.pairs.len()))
    };
    let (mut low, mut high) = (1.0, 1.0);
    while !fits(high) {
        low = high;
        high *= 1.08;
    }
    while high - low > 0.005 {
        let middle = (low + high) / 2.0;
        if fits(middle) { high = middle } else { low = middle }
    }
    high
}
