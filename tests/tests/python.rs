//! The examples in Python: with ctypes alone, and with cffi.

use slicepool_tests::{library, root, skip};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output, Stdio};

/// Pythons to try: the one that is found first need not be the one that has cffi.
const PYTHONS: &[&str] = &["python3", "/usr/bin/python3"];

/// The first Python that can import a module.
fn python_with(module: &str, package: &str) -> Option<&'static str> {
    let found = PYTHONS.iter().find(|python| {
        let mut command = Command::new(python);
        command.args(["-c", &format!("import {module}")]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    });
    if found.is_none() {
        skip(&format!("Python with {module} is missing; install {package}"));
    }
    found.copied()
}

/// Runs a program of an example with the released shared library.
fn python(python: &str, example: &str, arguments: &[&str]) -> Output {
    // A program that hangs is ended, as a test that never ends tells nothing.
    Command::new("timeout")
        .args(["-s", "KILL", "120", python])
        .args(arguments)
        .current_dir(root().join("examples-ffi").join(example))
        .env("SLICEPOOL_LIBRARY", library("release").shared)
        .env("SLICEPOOL_INCLUDE", root().join("include"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("timeout runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Panics unless a program passes exactly these checks. With `-X dev` Python says of what is left open, and checks itself.
fn assert_passes(interpreter: &str, example: &str, checks: &[&str]) {
    let output = python(interpreter, example, &["-X", "dev", "example.py"]);
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{}:\n{}\n{errors}", output.status, text(&output.stdout));
    assert_eq!(errors, "");
    let output = text(&output.stdout);
    let passed: Vec<_> = output.lines().map(|line| line.strip_prefix("ok ").unwrap_or(line)).collect();
    assert_eq!(passed, checks);
}

/// Panics unless a program ends with the exception that its device raises on purpose, and with what the library says of it.
fn assert_fails_as_its_device_does(interpreter: &str, example: &str) {
    let output = python(interpreter, example, &["example.py", "refused"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    let errors = text(&output.stderr);
    assert!(errors.contains("device failed (-9)"), "{errors}");
    assert!(errors.lines().last().is_some_and(|line| line.ends_with("Lost: the device is lost")), "{errors}");
    // What runs through C unnoticed is told by this word.
    assert!(!errors.contains("ignored"), "{errors}");
}

/// Panics unless a program that closes nothing ends like any other, without a word.
fn assert_ends_normally(interpreter: &str, example: &str, arguments: &[&str]) {
    let output = python(interpreter, example, arguments);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert!(text(&output.stdout).contains("live"), "it does not say that something is live");
}

#[test]
fn the_example_with_ctypes_passes_its_checks_and_fails_as_its_device_does() {
    let Some(interpreter) = python_with("ctypes", "python3") else { return };
    let checks = [
        "structs are those of the library",
        "slices are memory",
        "errors carry code and details",
        "an exception of the device reaches the caller",
        "a page that is refused can be given back later",
        "a device may use its allocator",
        "four threads allocate and free",
        "buffers are memory that is used again",
    ];
    assert_passes(interpreter, "python-ctypes", &checks);
    assert_fails_as_its_device_does(interpreter, "python-ctypes");
}

#[test]
fn the_example_with_cffi_passes_its_checks_and_fails_as_its_device_does() {
    let Some(interpreter) = python_with("cffi", "python3-cffi") else { return };
    let checks = [
        "structs are those of the library",
        "slices are memory",
        "errors carry code and details",
        "an exception of the device reaches the caller",
        "four threads allocate and free",
    ];
    assert_passes(interpreter, "python-cffi", &checks);
    assert_fails_as_its_device_does(interpreter, "python-cffi");
}

#[test]
fn a_program_that_forgets_to_close_ends_normally() {
    if let Some(interpreter) = python_with("ctypes", "python3") {
        assert_ends_normally(interpreter, "python-ctypes", &["forgetful.py"]);
    }
    if let Some(interpreter) = python_with("cffi", "python3-cffi") {
        assert_ends_normally(interpreter, "python-cffi", &["example.py", "forget"]);
    }
}

/// Sizes alone would not tell two fields that have changed places.
#[test]
fn the_structs_for_ctypes_have_the_fields_of_the_header() {
    let Some(interpreter) = python_with("ctypes", "python3") else { return };
    if cfg!(not(target_pointer_width = "64")) {
        skip("the pinned layout is that of 64-bit machines");
        return;
    }
    let output = python(interpreter, "python-ctypes", &["example.py", "layout"]);
    let lines: BTreeSet<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    let pinned = fs::read_to_string(root().join("tests/golden/layout-64.txt")).expect("the layout is pinned");
    let structs: BTreeSet<_> = lines.iter().filter_map(|line| line.split(['.', ' ']).next()).collect();
    assert!(structs.contains("slicepool_device"), "{}", text(&output.stderr));
    let expected: BTreeSet<_> = pinned
        .lines()
        .filter(|line| line.split(['.', ' ']).next().is_some_and(|name| structs.contains(name)))
        .map(str::to_owned)
        .collect();
    assert_eq!(lines, expected);
}
