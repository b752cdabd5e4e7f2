//! Traces of programs that do not exist, with fixed seeds.

use crate::{Event, Random, Trace};
use std::collections::VecDeque;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Writes a trace down.
#[derive(Default)]
struct Recorder {
    events: Vec<Event>,
    slices: usize,
}

impl Recorder {
    fn allocate(&mut self, bytes: u64) -> usize {
        self.events.push(Event::Allocate(bytes));
        self.slices += 1;
        self.slices - 1
    }

    fn free(&mut self, slice: usize) {
        self.events.push(Event::Free(slice));
    }

    fn finish(self, name: &str) -> Trace {
        Trace { name: name.into(), events: self.events }
    }
}

/// The synthetic traces.
pub fn synthetic() -> Vec<Trace> {
    vec![game_streaming(), growing_batches(), video_surfaces()]
}

/// A game that streams textures: up to four new ones a frame under a cap of 2 GiB, for which others of any age go; 1,500
/// buffers, replaced one by one; and render targets that live for a frame.
fn game_streaming() -> Trace {
    const FRAMES: u64 = 3000;
    const TEXTURES: u64 = 2 << 30;
    const BUFFERS: usize = 1500;
    const TRANSIENTS: [u64; 7] =
        [3840 * 2160 * 2, 3840 * 2160, 3840 * 2160, 1920 * 1080 * 2, 1920 * 540, 16 * KIB, 64 * KIB];
    let mut random = Random::new(42);
    let mut trace = Recorder::default();
    let (mut textures, mut buffers, mut held): (Vec<(usize, u64)>, Vec<usize>, u64) = (Vec::new(), Vec::new(), 0);
    for _ in 0..FRAMES {
        for _ in 0..random.below(5) {
            let bytes = texture(&mut random);
            while held + bytes > TEXTURES {
                // The younger half stays: it has just been asked for.
                let (slice, freed) = textures.remove(random.below(textures.len() as u64 / 2) as usize);
                trace.free(slice);
                held -= freed;
            }
            held += bytes;
            textures.push((trace.allocate(bytes), bytes));
        }
        for _ in 0..random.below(4) {
            if buffers.len() == BUFFERS {
                trace.free(buffers.swap_remove(random.below(BUFFERS as u64) as usize));
            }
            let bytes = log_uniform(&mut random, KIB, 8 * MIB);
            buffers.push(trace.allocate(bytes));
        }
        let transients = TRANSIENTS.map(|bytes| trace.allocate(bytes));
        transients.into_iter().for_each(|slice| trace.free(slice));
    }
    trace.finish("own: game streaming")
}

/// Bytes of a square texture of one byte a texel with its mip levels, a multiple of 64 KiB.
fn texture(random: &mut Random) -> u64 {
    let side: u64 = match random.below(20) {
        0..4 => 256,
        4..10 => 512,
        10..16 => 1024,
        16..19 => 2048,
        _ => 4096,
    };
    let levels = side.ilog2() + 1;
    let bytes: u64 = (0..levels).map(|level| (side >> level).max(4).pow(2)).sum();
    bytes.next_multiple_of(64 * KIB)
}

fn log_uniform(random: &mut Random, low: u64, high: u64) -> u64 {
    (low as f64 * (high as f64 / low as f64).powf(random.unit())) as u64
}

/// Training with a batch that grows by one each step: every size is new, and a little larger than the last.
fn growing_batches() -> Trace {
    const LAYERS: usize = 48;
    const PER_ITEM: [u64; 3] = [40 * KIB, 160 * KIB, 64 * KIB];
    let mut trace = Recorder::default();
    for batch in 16..80 {
        let step: Vec<_> = (0..LAYERS).flat_map(|_| PER_ITEM).map(|bytes| trace.allocate(batch * bytes)).collect();
        step.into_iter().rev().for_each(|slice| trace.free(slice));
    }
    trace.finish("own: growing batches")
}

/// A decoder whose stream changes its format 60 times: 17 surfaces each time, and six bitstream buffers in flight.
fn video_surfaces() -> Trace {
    const FORMATS: [(u64, u64, u64); 4] = [(1280, 720, 1), (1920, 1080, 1), (2560, 1440, 1), (3840, 2160, 2)];
    const SURFACES: usize = 17;
    const FRAMES: usize = 120;
    const IN_FLIGHT: usize = 6;
    let mut random = Random::new(42);
    let mut trace = Recorder::default();
    let mut surfaces = Vec::new();
    let mut bitstreams = VecDeque::new();
    for _ in 0..60 {
        surfaces.drain(..).for_each(|slice| trace.free(slice));
        let (width, height, bytes) = FORMATS[random.below(4) as usize];
        surfaces.extend((0..SURFACES).map(|_| trace.allocate(width * height * bytes * 3 / 2)));
        for _ in 0..FRAMES {
            if bitstreams.len() == IN_FLIGHT {
                bitstreams.pop_front().into_iter().for_each(|slice| trace.free(slice));
            }
            let bytes = width as f64 * height as f64 / 16.0 * log_normal(&mut random);
            bitstreams.push_back(trace.allocate(1 + bytes as u64));
        }
    }
    trace.finish("own: video surfaces")
}

/// `e` to the power of a normal number of mean 0 and deviation 0.6.
fn log_normal(random: &mut Random) -> f64 {
    let (u, v) = (1.0 - random.unit(), random.unit());
    let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    (0.6 * normal).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synthetic_traces_are_the_same_every_time_and_free_nothing_twice() {
        for (trace, again) in synthetic().iter().zip(synthetic()) {
            assert_eq!(trace.events, again.events);
            let mut live = vec![];
            for event in &trace.events {
                match *event {
                    Event::Allocate(_) => live.push(true),
                    Event::Free(slice) => assert!(std::mem::replace(&mut live[slice], false)),
                }
            }
            assert_eq!(live.len(), trace.slices());
        }
    }
}
