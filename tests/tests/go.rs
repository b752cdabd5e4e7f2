//! The example in Go: as programs are built, and with Go's race detector.

use slicepool_tests::{has_tool, library_folder, root, run, run_any, scratch, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

const CHECKS: &[&str] = &[
    "slices are memory",
    "errors carry code and details",
    "an error of the device reaches the caller",
    "a panic of the device is an error",
    "a page that is refused can be given back later",
    "a device may use its allocator",
    "four threads allocate and free",
];

/// Go with everything that it needs to know, in the folder of the example; without a network.
fn go(arguments: &[&str]) -> Command {
    let library = library_folder();
    let mut command = Command::new("go");
    command
        .args(arguments)
        .current_dir(root().join("examples-ffi/go"))
        .env("CGO_ENABLED", "1")
        .env("CGO_CFLAGS", format!("-O1 -Wall -Werror -I{}", root().join("include").display()))
        .env("CGO_LDFLAGS", format!("-L{0} -Wl,-rpath,{0}", library.display()))
        .env("GOCACHE", scratch().join("go-cache"))
        .env("GOFLAGS", "-mod=mod -buildvcs=false")
        .env("GOPROXY", "off");
    command
}

fn succeeds(mut command: Command) {
    let output = command.output().expect("go runs");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}:\n{text}\n{errors}");
}

fn has_go() -> bool {
    has_tool("go", "golang-go") && has_tool("gcc", "gcc")
}

fn program(name: &str, flags: &[&str]) -> PathBuf {
    let program = scratch().join(name);
    let path = program.to_str().expect("a path in UTF-8");
    succeeds(go(&[&["build", "-o", path], flags, &["."]].concat()));
    program
}

fn assert_passes(program: &Path) {
    let output = run(program, &[], LIMIT);
    let passed: Vec<_> = output.lines().map(|line| line.strip_prefix("ok ").unwrap_or(line)).collect();
    assert_eq!(passed, CHECKS);
}

#[test]
fn the_example_is_formatted_and_has_no_faults_that_vet_knows() {
    if !has_go() {
        return;
    }
    succeeds(go(&["vet", "./..."]));
    if has_tool("gofmt", "golang-go") {
        let example = root().join("examples-ffi/go");
        let output = run(Path::new("gofmt"), &["-l", &example.to_string_lossy()], LIMIT);
        assert_eq!(output, "", "gofmt -w these");
    }
}

#[test]
fn the_example_passes_its_checks_and_fails_as_its_device_does() {
    if !has_go() {
        return;
    }
    let program = program("go-example", &[]);
    assert_passes(&program);
    let output = run_any(&program, &["refused"], LIMIT);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("device failed (-9)") && errors.contains("the device is lost"), "{errors}");
}

#[test]
fn the_example_has_no_races() {
    if !has_go() {
        return;
    }
    // Go's detector is not there for every machine.
    if !cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
        skip("Go's race detector is missing for this machine");
        return;
    }
    assert_passes(&program("go-example-race", &["-race"]));
}
