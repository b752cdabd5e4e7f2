//! Every target with its corpus, and with bytes that are drawn: what needs neither libFuzzer nor a nightly compiler.
//!
//! `SLICEPOOL_SEED` sets the seed of what is drawn, `SLICEPOOL_FUZZ_INPUTS` how many inputs there are.

use slicepool_fuzz::TARGETS;
use std::fs;
use std::panic;
use std::path::Path;

/// A target's files, in order of their names.
fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("the folder can be read").path();
            let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.display().to_string(), bytes)
        })
        .collect();
    files.sort();
    files
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

/// Draws bytes: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.next() % 600).map(|_| self.next() as u8).collect()
    }
}

/// Runs a target with its corpus, then with what is drawn.
fn run(name: &str) {
    let (_, run) = TARGETS.into_iter().find(|target| target.0 == name).expect("there is such a target");
    let files = corpus(name);
    assert!(!files.is_empty(), "{name} has no corpus");
    for (path, bytes) in &files {
        println!("{path}");
        run(bytes);
    }
    let (seed, inputs) = (number("SLICEPOOL_SEED", 0), number("SLICEPOOL_FUZZ_INPUTS", 1000));
    println!("{} inputs of the corpus pass; SLICEPOOL_SEED={seed}", files.len());
    let mut random = Random(seed);
    for input in 0..inputs {
        let bytes = random.bytes();
        if let Err(cause) = panic::catch_unwind(|| run(&bytes)) {
            println!("input {input}: {bytes:?}");
            panic::resume_unwind(cause);
        }
    }
}

#[test]
fn slicer_inputs_pass() {
    run("slicer");
}

#[test]
fn pools_inputs_pass() {
    run("pools");
}

#[test]
fn buffers_inputs_pass() {
    run("buffers");
}

#[test]
fn c_border_inputs_pass() {
    run("c_border");
}

#[test]
fn config_inputs_pass() {
    run("config");
}

#[test]
fn the_corpus_is_small() {
    for (name, _) in TARGETS {
        let files = corpus(name);
        let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(files.len() <= 40 && bytes <= 100 << 10, "{name}: {} files, {bytes} bytes", files.len());
    }
}
