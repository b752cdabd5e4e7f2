//! Arithmetic of configurations: whatever the numbers are, an answer comes, and it is the right one.

mod buffers;
mod pools;

use crate::input::Input;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    while !input.is_over() {
        match input.byte() % 6 {
            0 => pools::options(&mut input),
            1 => pools::lists(&mut input),
            2 => pools::blocks(&mut input),
            3 => pools::books(&mut input),
            4 => buffers::budget(&mut input),
            _ => buffers::builders(&mut input),
        }
    }
}
