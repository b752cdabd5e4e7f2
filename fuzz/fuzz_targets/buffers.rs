//! See `slicepool_fuzz::buffers`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slicepool_fuzz::buffers::run(bytes));

#[cfg(not(fuzzing))]
fn main() {
    slicepool_fuzz::replay(slicepool_fuzz::buffers::run);
}
