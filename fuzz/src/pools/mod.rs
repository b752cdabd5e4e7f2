//! Allocators: lists of pools of every kind over a device that fails, lies and calls back.
//!
//! What is live and what waits is written down, and after every step everything that the allocator shows is compared with
//! it: what lies in each page, every figure, and what the device holds. In the end everything is freed, and each page must
//! have gone back once.

mod check;
mod device;
mod reentry;
pub(crate) mod shape;
mod steps;
mod subject;

use crate::input::Input;
use subject::Subject;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let shape = shape::any(&mut input);
    play(shape, &mut input);
}

/// A pool of sliced pages whose device does what it should: for what is refused, there is no room.
pub(crate) fn play_one_sliced(input: &mut Input<'_>) {
    let shape = shape::one_sliced(input);
    play(shape, input);
}

fn play(shape: shape::Shape, input: &mut Input<'_>) {
    let Some(subject) = Subject::new(shape) else { return };
    let end = input.byte();
    while !input.is_over() {
        subject.step(input);
        subject.check();
    }
    subject.end(end);
}
