//! Installing as users do it: what lies where, that it may be moved, that programs build against it in every way, and that
//! nothing is left after it was removed.

#[path = "../../../capi/naming.rs"]
mod naming;

mod building;
mod cargo_c;
mod names;
mod places;

use slicepool_tests::{has_tool, library, root, run, run_any, runtime_name, scratch};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::time::Duration;
use std::{env, fs, process};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const LIMIT: Duration = Duration::from_secs(10);

/// A folder of its own for a test; gone when the test has passed.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = scratch().join(format!("installed-{test}-{}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the scratch directory is writable");
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A command that knows nothing of the settings under which the tests themselves run.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR", "PREFIX", "LIBDIR", "INCLUDEDIR", "RUST_TARGET"] {
        command.env_remove(name);
    }
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a command that has to succeed, and returns what it writes.
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output));
    text(&output)
}

fn make(arguments: &[&str]) -> Command {
    let mut make = command("make");
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    make.arg("-C").arg(root()).arg(format!("CARGO={cargo}")).args(arguments);
    make
}

/// Builds what is installed. False where a tool for that is missing.
fn built() -> bool {
    static BUILT: Once = Once::new();
    if !has_tool("make", "make") {
        return false;
    }
    BUILT.call_once(|| {
        library("release");
        succeed(&mut make(&["all"]));
    });
    true
}

fn install(variables: &[String]) {
    let variables: Vec<_> = variables.iter().map(String::as_str).collect();
    succeed(&mut make(&[&["install"], &variables[..]].concat()));
}

fn prefix(path: &Path) -> String {
    format!("PREFIX={}", path.display())
}

/// All files and links below a folder, and the folders that are empty, as paths relative to it.
fn tree(folder: &Path) -> BTreeSet<String> {
    fn walk(folder: &Path, base: &Path, found: &mut BTreeSet<String>) {
        let entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
        if entries.is_empty() && folder != base {
            found.insert(format!("{}/", folder.strip_prefix(base).expect("it lies below").display()));
        }
        for entry in entries {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                walk(&path, base, found);
            } else {
                found.insert(path.strip_prefix(base).expect("it lies below").display().to_string());
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(folder, folder, &mut found);
    found
}

/// Headers that are there to be installed.
fn headers() -> BTreeSet<String> {
    let files = tree(&root().join("include")).into_iter();
    files.filter(|name| name.ends_with(".h") || name.ends_with(".hpp")).collect()
}

fn expected(libraries: &[&str]) -> BTreeSet<String> {
    let package = [
        "lib/pkgconfig/slicepool.pc",
        "lib/cmake/slicepool/slicepoolConfig.cmake",
        "lib/cmake/slicepool/slicepoolConfigVersion.cmake",
    ];
    let headers = headers().into_iter().map(|name| format!("include/{name}"));
    headers.chain([libraries, &package].concat().into_iter().map(str::to_owned)).collect()
}

/// What the names of files are on a target of Rust.
fn names(version: &str, target: &str) -> BTreeMap<String, String> {
    let printed = succeed(command("sh").arg(root().join("packaging/names.sh")).arg(version).arg(target));
    let pairs = printed.lines().map(|line| line.split_once('=').expect("an assignment"));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
