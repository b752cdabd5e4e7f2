//! Programs in C that hold many tests, each of which is a test of its own here.

use crate::{Link, STRICT, compile, header, library, root, run};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

/// A C or C++ program whose tests are named on its command line (`tests/c/check.h`), and how it is built.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    source: &'static str,
    profile: &'static str,
    link: Link,
    flags: &'static [&'static str],
    divide: u32,
}

impl Suite {
    /// With the library that checks its own invariants, linked into the program; with few rounds, as it is slow.
    pub const fn checked(source: &'static str) -> Self {
        Self { source, profile: "dev", link: Link::Static, flags: &[], divide: 20 }
    }

    /// With the shared library that users get, and the full number of rounds.
    pub const fn released(source: &'static str) -> Self {
        Self { source, profile: "release", link: Link::Shared, flags: &[], divide: 1 }
    }

    /// The same with more flags for the compiler.
    pub const fn with_flags(mut self, flags: &'static [&'static str]) -> Self {
        self.flags = flags;
        self
    }

    /// Compiles the program and returns its path.
    pub fn program(&self, flags: &[&str]) -> PathBuf {
        let standard = if self.source.ends_with(".cpp") { "-std=c++17" } else { "-std=c11" };
        let flags: Vec<_> = STRICT.iter().chain(&[standard]).chain(self.flags).chain(flags).copied().collect();
        compile(self.source, &library(self.profile), self.link, &flags)
    }

    /// Runs one test; panics with its output if it fails.
    pub fn run(&self, test: &str) {
        let limit = Duration::from_secs(180);
        run(&self.program(&[]), &["--divide", &self.divide.to_string(), test], limit);
    }

    /// Names of all tests of the program.
    pub fn tests(&self) -> BTreeSet<String> {
        run(&self.program(&[]), &["--list"], Duration::from_secs(10)).lines().map(str::to_owned).collect()
    }

    /// Panics if the program has other tests than these.
    pub fn assert_complete(&self, tests: &[&str]) {
        let listed: BTreeSet<_> = tests.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(self.tests(), listed, "the tests of {} and those that are run differ", self.source);
    }
}

/// Makes a test of each test of a C program: with the checking library linked in, and with the released shared one.
#[macro_export]
macro_rules! c_tests {
    ($source:literal: $($(#[$attribute:meta])* $name:ident),+ $(,)?) => {
        mod checked_and_static {
            use $crate::Suite;
            $(#[test] $(#[$attribute])* fn $name() { Suite::checked($source).run(stringify!($name)); })+
            #[test]
            fn every_test_of_the_program_is_run() { Suite::checked($source).assert_complete(&[$(stringify!($name)),+]); }
        }
        mod released_and_shared {
            use $crate::Suite;
            $(#[test] $(#[$attribute])* fn $name() { Suite::released($source).run(stringify!($name)); })+
            #[test]
            fn every_test_of_the_program_is_run() { Suite::released($source).assert_complete(&[$(stringify!($name)),+]); }
        }
    };
}

/// Runs a program that prints "callback function" for every call it makes from within a callback; panics if it makes not all
/// calls from all of so many callbacks.
pub fn assert_every_callback_calls_everything(source: &'static str, callbacks: usize) {
    let output = run(&Suite::checked(source).program(&[]), &[], Duration::from_secs(60));
    let mut called: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for line in output.lines().filter(|line| !line.starts_with("ok ")) {
        let (callback, function) = line.split_once(' ').expect("callback and function");
        called.entry(callback).or_default().insert(function.to_owned());
    }
    let expected = header().functions;
    assert_eq!(called.len(), callbacks, "{:?}", called.keys());
    for (callback, functions) in called {
        assert_eq!(functions, expected, "{callback}");
    }
}

/// Compares a text with a file under `tests/golden`, line by line; `BLESS=1` rewrites the file.
pub fn golden(name: &str, actual: &str) {
    let path = root().join("tests/golden").join(name);
    if env::var_os("BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).expect("the repository is writable");
        fs::write(&path, actual).expect("the golden file is writable");
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let (golden, actual): (Vec<_>, Vec<_>) = (golden.lines().collect(), actual.lines().collect());
    let gone: Vec<_> = golden.iter().filter(|line| !actual.contains(line)).collect();
    let new: Vec<_> = actual.iter().filter(|line| !golden.contains(line)).collect();
    assert!(golden == actual, "{}: gone: {gone:?}, new: {new:?} (BLESS=1 rewrites it)", path.display());
}
