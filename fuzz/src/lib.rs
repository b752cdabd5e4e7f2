//! Programs made of bytes: what is done with slicepool, how its devices behave and what it is asked for is read from an
//! input, every answer is compared with what is known, and in the end everything has to be where it was.
//!
//! Each module is a target; `run` takes one input and panics if something is wrong. Under `cargo fuzz` the inputs come
//! from libFuzzer. Without it, the programs of this package replay the files that they are given, on stable Rust:
//! `cargo run --bin slicer FILE...`.

pub mod buffers;
pub mod c_border;
pub mod config;
mod host;
mod input;
pub mod pools;
pub mod slicer;

pub use input::Input;

/// A target: its name, which is that of its program and its corpus, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 5] = [
    ("slicer", slicer::run),
    ("pools", pools::run),
    ("buffers", buffers::run),
    ("c_border", c_border::run),
    ("config", config::run),
];

/// Runs a target with the files that the program was given.
pub fn replay(run: fn(&[u8])) {
    let files: Vec<_> = std::env::args_os().skip(1).map(std::path::PathBuf::from).collect();
    assert!(!files.is_empty(), "which files?");
    for file in files {
        let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        println!("{}: {} bytes", file.display(), bytes.len());
        run(&bytes);
    }
}
