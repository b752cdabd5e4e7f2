//! The example in C#, compiled and run by Mono.

use slicepool_tests::{has_tool, library_folder, root, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CHECKS: &[&str] = &[
    "structs are those of the library",
    "slices are memory",
    "errors carry code and details",
    "an exception of the device reaches the caller",
    "a page that is refused can be given back later",
    "a device may use its allocator",
    "four threads allocate and free",
];

fn compiled() -> PathBuf {
    let program = scratch().join("csharp-example.exe");
    let mut sources: Vec<_> = fs::read_dir(root().join("examples-ffi/csharp"))
        .expect("the example is there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cs"))
        .collect();
    sources.sort();
    let output = Command::new("mcs")
        .args(["-unsafe", "-warnaserror", "-warn:4"])
        .arg(format!("-out:{}", program.display()))
        .args(sources)
        .output()
        .expect("mcs runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn mono(program: &Path, library: &Path, arguments: &[&str]) -> Output {
    // A program that hangs is ended, as a test that never ends tells nothing.
    Command::new("timeout")
        .args(["-s", "KILL", "120", "mono"])
        .arg(program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", library)
        .output()
        .expect("timeout runs")
}

#[test]
fn the_example_passes_its_checks_and_fails_as_its_device_does() {
    if !(has_tool("mcs", "mono-mcs") && has_tool("mono", "mono-runtime")) {
        return;
    }
    let (program, library) = (compiled(), library_folder());

    let output = mono(&program, &library, &[]);
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}:\n{text}\n{errors}", output.status);
    let passed: Vec<_> = text.lines().map(|line| line.strip_prefix("ok ").unwrap_or(line)).collect();
    assert_eq!(passed, CHECKS);

    let output = mono(&program, &library, &["refused"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("device failed (-9)") && errors.contains("the device is lost"), "{errors}");
}
