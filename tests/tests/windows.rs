//! The library built for Windows: what it exports and needs, and that programs linked with it run.

use slicepool_tests::{Library, STRICT, has_tool, header, library_for, root, run_any, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::Duration;

const TARGET: &str = "x86_64-pc-windows-gnu";
const COMPILER: &str = "x86_64-w64-mingw32-gcc";
const TOOL: &str = "x86_64-w64-mingw32-objdump";

fn built() -> Option<Library> {
    let tools = [COMPILER, TOOL].iter().all(|tool| has_tool(tool, "gcc-mingw-w64-x86-64"));
    if tools { library_for(TARGET) } else { None }
}

fn headers(file: &Path) -> String {
    let output = Command::new(TOOL).arg("-p").arg(file).output().expect("it was found");
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn needed(file: &Path) -> BTreeSet<String> {
    let text = headers(file);
    text.lines().filter_map(|line| Some(line.trim().strip_prefix("DLL Name: ")?.to_lowercase())).collect()
}

#[test]
fn the_dll_exports_the_functions_of_the_header_and_nothing_else() {
    let Some(library) = built() else { return };
    let text = headers(&library.shared);
    let (_, table) = text.split_once("[Ordinal/Name Pointer] Table").expect("it exports something");
    let lines = table.lines().skip(1).take_while(|line| !line.trim().is_empty());
    // The last word is the name, whatever numbers stand before it.
    let exported: BTreeSet<_> = lines.filter_map(|line| line.split_whitespace().last().map(str::to_owned)).collect();
    assert_eq!(exported, header().functions);
}

#[test]
fn the_dll_needs_what_every_windows_has() {
    let Some(library) = built() else { return };
    let others: Vec<_> = needed(&library.shared)
        .into_iter()
        .filter(|name| !["kernel32.dll", "msvcrt.dll"].contains(&name.as_str()))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

fn compile(name: &str, source: &str, inputs: &[PathBuf]) -> PathBuf {
    let program = folder().join(format!("{name}.exe"));
    let output = Command::new(COMPILER)
        .args(STRICT)
        // What printf of the old C runtime there does not know.
        .args(["-std=c11", "-D__USE_MINGW_ANSI_STDIO=1", "-I"])
        .arg(root().join("include"))
        .arg(root().join(source))
        .args(inputs)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("it was found");
    assert!(output.status.success(), "{source}:\n{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A folder of this process, where programs find the DLL beside them.
fn folder() -> PathBuf {
    let dir = scratch().join(format!("windows-{}", process::id()));
    fs::create_dir_all(&dir).expect("the scratch directory is writable");
    dir
}

/// What runs programs for Windows here.
fn emulator() -> Option<&'static str> {
    let found = ["wine64", "/usr/lib/wine/wine64", "wine"]
        .into_iter()
        .find(|wine| Command::new(wine).arg("--version").output().is_ok());
    if found.is_none() {
        has_tool("wine64", "wine64");
    }
    found
}

#[test]
fn programs_linked_with_either_library_run() {
    let Some(library) = built() else { return };
    let import = library.archive.with_file_name("libslicepool.dll.a");
    let dll = folder().join(library.shared.file_name().expect("a file"));
    fs::copy(&library.shared, dll).expect("the scratch directory is writable");
    let programs = [
        compile("static", "examples-c/quickstart.c", &[library.archive]),
        compile("shared", "examples-c/quickstart.c", &[import]),
        compile("space", "examples-c/space.c", &[library.shared]),
    ];
    assert!(!needed(&programs[0]).contains("slicepool.dll"));
    assert!(needed(&programs[1]).contains("slicepool.dll"));
    let Some(wine) = emulator() else { return };
    // The first run makes a Windows of its own.
    let prefix = format!("WINEPREFIX={}", folder().join("prefix").display());
    for program in &programs {
        let arguments = [&prefix, "WINEDEBUG=-all", wine, program.to_str().expect("a path of text")];
        let output = run_any(Path::new("env"), &arguments, Duration::from_secs(120));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {}\n{text}", program.display(), output.status);
        assert!(!text.trim().is_empty(), "{} prints nothing", program.display());
    }
    let _ = fs::remove_dir_all(folder());
}
