//! Instructions that the hot paths take, counted by callgrind and compared with `baseline.txt`.
//!
//! Without arguments: counts all paths, prints them beside the baseline, and fails if one differs by more than 3 %, unless
//! the baseline is of another compiler.
//! `BLESS=1` rewrites the baseline instead. With a path and a number: walks the path so many times, for callgrind.

mod buffers;
mod c;
mod slices;

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.txt");

/// Percent that a path may differ from the baseline.
const TOLERANCE: f64 = 3.0;

/// Walks of the shorter run; the longer one has twice as many, and the difference is what they cost.
const WALKS: u64 = 5_000;

/// Name, meaning, and what walks the path so many times. What comes before is the same however often that is.
type NamedPath = (&'static str, &'static str, fn(u64));

/// All paths.
fn all() -> impl Iterator<Item = NamedPath> {
    slices::PATHS.into_iter().chain(buffers::PATHS).chain(c::PATHS)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [name, walks] = arguments.as_slice() {
        let (_, _, walk) = all().find(|(path, _, _)| path == name).expect("a path that there is");
        walk(walks.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: there is no valgrind");
        return ExitCode::SUCCESS;
    }
    let counts: Vec<(&str, &str, f64)> = all().map(|(name, what, _)| (name, what, per_walk(name))).collect();
    if env::var_os("BLESS").is_some() {
        let lines: String = counts.iter().map(|(name, _, count)| format!("{name} {count:.1}\n")).collect();
        let compiler = compiler().unwrap_or_default();
        let head = "# Instructions of each path. Written by BLESS=1; depends on the compiler:";
        fs::write(BASELINE, format!("{head}\n# {compiler}\n{lines}")).expect("the baseline can be written");
        println!("wrote {BASELINE}");
        return ExitCode::SUCCESS;
    }
    compare(&counts)
}

/// Prints all paths beside the baseline.
fn compare(counts: &[(&str, &str, f64)]) -> ExitCode {
    let baseline = fs::read_to_string(BASELINE).unwrap_or_default();
    let other = compiler().filter(|now| !baseline.contains(now.as_str()));
    let mut far = 0;
    for &(name, what, count) in counts {
        let before = baseline.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        let Some(before) = before else {
            far += 1;
            println!("{name:<18} {count:>8.1}  NOT IN THE BASELINE  {what}");
            continue;
        };
        let percent = 100.0 * (count / before - 1.0);
        let verdict = if percent.abs() <= TOLERANCE { "ok" } else { "CHANGED" };
        far += u32::from(percent.abs() > TOLERANCE);
        println!("{name:<18} {count:>8.1} {before:>8.1} {percent:>+6.1}%  {verdict:<7}  {what}");
    }
    if far == 0 {
        return ExitCode::SUCCESS;
    }
    if let Some(other) = other {
        println!("SKIPPED: the baseline is of another compiler than {other}");
        return ExitCode::SUCCESS;
    }
    println!("{far} paths differ by more than {TOLERANCE} %; BLESS=1 makes these the baseline");
    ExitCode::FAILURE
}

/// Instructions of one walk.
fn per_walk(name: &str) -> f64 {
    let (once, twice) = (instructions(name, WALKS), instructions(name, 2 * WALKS));
    (twice - once) as f64 / WALKS as f64
}

/// Instructions of a whole run.
fn instructions(name: &str, walks: u64) -> u64 {
    let program = env::current_exe().expect("this program has a path");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(Path::new(&program));
    let output = command.args([name, &walks.to_string()]).output().expect("valgrind runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected :")).expect("callgrind counts").1;
    collected.trim().parse().expect("a number")
}

/// The compiler, in words.
fn compiler() -> Option<String> {
    let output = Command::new("rustc").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
