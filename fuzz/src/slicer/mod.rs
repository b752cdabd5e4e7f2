//! The slicer: a space against a set of intervals, or a pool of sliced pages as [`pools`](crate::pools) plays it, over a
//! device that does what it should.

mod intervals;
mod space;

use crate::input::Input;
use crate::pools;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.byte() % 2 == 0 {
        space::play(&mut input);
    } else {
        pools::play_one_sliced(&mut input);
    }
}
