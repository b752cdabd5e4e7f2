//! The files that are shipped: what they export, what they need, how large they are, how they link.

use slicepool_tests::{
    Library, Link, STRICT, compile, compiler, golden, has_tool, header, library, library_with, root, run, runtime_name,
    scratch,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs, process};

/// Budget for the shared library, without symbols: more than twice what it was meant to be, a fifth of it for buffer pools.
const MOST_BYTES: u64 = 320 << 10;

fn output_of(tool: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(tool).args(arguments).arg(file).output().expect("the tool runs");
    assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Names that a file of symbols defines, of the kinds in `kinds`.
fn defined(file: &Path, arguments: &[&str], kinds: &str) -> BTreeSet<String> {
    let lines = output_of("nm", arguments, file);
    let symbols = lines.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, name) = (words.next()?, words.next()?);
        kinds.contains(kind).then(|| name.to_owned())
    });
    symbols.collect()
}

fn temporary(name: &str) -> PathBuf {
    scratch().join(format!("{}-{name}", process::id()))
}

#[test]
fn the_shared_library_exports_the_functions_of_the_header_and_nothing_else() {
    if !has_tool("nm", "binutils") {
        return;
    }
    let functions = header().functions;
    for profile in ["dev", "release"] {
        let exported = defined(&library(profile).shared, &["-D", "--defined-only"], "TtWwBbDdRrVvuiAC");
        assert_eq!(exported, functions, "{profile}");
    }
    let list: Vec<_> = functions.into_iter().collect();
    golden("symbols.txt", &(list.join("\n") + "\n"));
}

#[test]
fn the_static_library_defines_the_functions_of_the_header() {
    if !has_tool("nm", "binutils") {
        return;
    }
    for profile in ["dev", "release"] {
        let defined = defined(&library(profile).archive, &["-g", "--defined-only", "--quiet"], "T");
        let ours: BTreeSet<_> = defined.into_iter().filter(|name| name.starts_with("slicepool")).collect();
        assert_eq!(ours, header().functions, "{profile}");
    }
}

#[test]
fn the_shared_library_needs_the_c_library_only_and_has_a_name_with_its_version() {
    if !has_tool("readelf", "binutils") {
        return;
    }
    for profile in ["dev", "release"] {
        let dynamic = output_of("readelf", &["-d", "-W"], &library(profile).shared);
        let quoted = |tag: &str| -> Vec<String> {
            let lines = dynamic.lines().filter(|line| line.contains(tag));
            lines.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned())).collect()
        };
        let needed = quoted("(NEEDED)");
        assert!(
            needed.iter().all(|name| name.starts_with("libc.so.") || name.starts_with("ld-linux")),
            "{profile}: {needed:?}"
        );
        assert_eq!(quoted("(SONAME)"), [runtime_name()]);
        assert!(quoted("(RPATH)").is_empty() && quoted("(RUNPATH)").is_empty(), "{profile}: {dynamic}");
        assert!(!dynamic.contains("TEXTREL"), "{profile}: {dynamic}");
    }
}

/// Memory, a yield, an abort: no environment, no files, no output, no threads.
#[test]
fn the_shared_library_imports_next_to_nothing() {
    if !has_tool("nm", "binutils") {
        return;
    }
    const ALLOWED: &[&str] = &[
        "malloc",
        "free",
        "posix_memalign",
        "sched_yield",
        "nanosleep",
        "sysconf",
        "abort",
        "memcpy",
        "memmove",
        "memset",
        "memcmp",
        "bcmp",
        // The compiler's own.
        "_ITM_deregisterTMCloneTable",
        "_ITM_registerTMCloneTable",
        "__cxa_finalize",
        "__gmon_start__",
    ];
    for profile in ["dev", "release"] {
        let symbols = output_of("nm", &["-D", "--undefined-only"], &library(profile).shared);
        let names = symbols.lines().filter_map(|line| line.split_whitespace().last()?.split('@').next());
        let others: Vec<_> = names.filter(|name| !ALLOWED.contains(name)).collect();
        assert!(others.is_empty(), "{profile}: {others:?}");
    }
}

/// Sections of a file with their sizes.
fn sections(file: &Path) -> Vec<(String, u64)> {
    let text = output_of("readelf", &["-S", "-W"], file);
    let lines = text.lines().filter_map(|line| {
        let words: Vec<_> = line.split_once(']')?.1.split_whitespace().collect();
        let [name, _kind, _address, _offset, size, ..] = words[..] else { return None };
        name.starts_with('.').then(|| (name.to_owned(), u64::from_str_radix(size, 16).unwrap_or(0)))
    });
    lines.collect()
}

#[test]
fn there_is_no_thread_local_storage_and_no_constructor() {
    if !has_tool("readelf", "binutils") {
        return;
    }
    for profile in ["dev", "release"] {
        let sections = sections(&library(profile).shared);
        let size = |wanted: &str| sections.iter().find(|(name, _)| name == wanted).map(|&(_, size)| size);
        assert!(size(".text").is_some_and(|bytes| bytes > 1000), "{sections:?}");
        assert_eq!((size(".tdata"), size(".tbss")), (None, None), "{profile}");
        // The compiler's own frame_dummy and its counterpart.
        let pointer = size_of::<usize>() as u64;
        for array in [".init_array", ".fini_array"] {
            assert!(size(array).unwrap_or(0) <= pointer, "{profile}: {array}: {sections:?}");
        }
        assert_eq!((size(".ctors"), size(".dtors")), (None, None), "{profile}");
    }
}

#[test]
fn the_only_writable_global_is_the_counter_of_tags() {
    if !has_tool("nm", "binutils") {
        return;
    }
    /// What the compiler and the linker put into every shared library.
    const THEIRS: &[&str] = &[
        "_DYNAMIC",
        "_GLOBAL_OFFSET_TABLE_",
        "__TMC_END__",
        "__TMC_LIST__",
        "__dso_handle",
        "__do_global_dtors_aux_fini_array_entry",
        "__frame_dummy_init_array_entry",
        "_edata",
        "_end",
        "__bss_start",
    ];
    for profile in ["dev", "release"] {
        let shared = library(profile).shared;
        let is_theirs = |name: &String| {
            THEIRS.contains(&name.as_str()) || name.starts_with("completed.") || name.starts_with("DW.ref.")
        };
        // Read-only data with addresses in it is of kind d too, but lies in .data.rel.ro.
        let writable: Vec<_> = writable_symbols(&shared).into_iter().filter(|name| !is_theirs(name)).collect();
        assert_eq!(writable.len(), 1, "{profile}: {writable:?}");
        assert!(writable[0].contains("new_tags"), "{profile}: {writable:?}");
        let bytes: u64 =
            sections(&shared).iter().filter(|(name, _)| name == ".data" || name == ".bss").map(|(_, size)| size).sum();
        assert!(bytes <= 64, "{profile}: {bytes} bytes of writable data");
    }
}

/// Names of the symbols in .data and .bss.
fn writable_symbols(file: &Path) -> Vec<String> {
    let headers = output_of("readelf", &["-S", "-W"], file);
    let index_of = |wanted: &str| {
        headers.lines().find_map(|line| {
            let (index, rest) = line.trim_start().strip_prefix('[')?.split_once(']')?;
            (rest.split_whitespace().next()? == wanted).then(|| index.trim().to_owned())
        })
    };
    let writable: Vec<_> = [".data", ".bss"].iter().filter_map(|name| index_of(name)).collect();
    let symbols = output_of("readelf", &["-s", "-W"], file);
    let names = symbols.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, _, _, kind, _, _, section, name, ..] = words[..] else { return None };
        (kind != "SECTION" && writable.iter().any(|index| index == section)).then(|| name.to_owned())
    });
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn the_shared_library_is_small() {
    if !has_tool("strip", "binutils") {
        return;
    }
    let stripped = temporary("stripped.so");
    let status = Command::new("strip").arg("-o").arg(&stripped).arg(library("release").shared).status();
    assert!(status.expect("strip runs").success());
    let bytes = fs::metadata(&stripped).expect("it was written").len();
    let _ = fs::remove_file(stripped);
    println!("{bytes} bytes");
    assert!(bytes <= MOST_BYTES, "{bytes} bytes, more than {MOST_BYTES}");
}

// ---- linking

/// Links object files and libraries in this order into a program and runs it.
fn link_and_run(what: &str, inputs: &[&Path], flags: &[&str]) -> PathBuf {
    let program = temporary(what);
    let output = compiler(false)
        .args(STRICT)
        .arg("-std=c11")
        .arg("-I")
        .arg(root().join("include"))
        .args(inputs)
        .args(flags)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{what} does not link:\n{}", String::from_utf8_lossy(&output.stderr));
    run(&program, &[], Duration::from_secs(10));
    program
}

fn without_lto() -> Library {
    library_with("release", "capi-without-lto", &["profile.release.lto=\"off\"", "profile.release.codegen-units=16"])
}

#[test]
fn the_static_library_links_without_further_libraries() {
    let source = root().join("tests/c/link.c");
    for (name, library) in [("dev", library("dev")), ("release", library("release")), ("no-lto", without_lto())] {
        let program = link_and_run(&format!("link-{name}"), &[&source, &library.archive], &[]);
        let _ = fs::remove_file(program);
    }
}

/// The compiler adds its own support libraries by itself; what is released does not even need those.
#[test]
fn the_released_static_library_links_with_the_c_library_alone() {
    let source = root().join("tests/c/link.c");
    let program = link_and_run("link-libc", &[&source, &library("release").archive], &["-nodefaultlibs", "-lc"]);
    if has_tool("readelf", "binutils") {
        let dynamic = output_of("readelf", &["-d", "-W"], &program);
        let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
        assert!(needed.clone().all(|line| line.contains("[libc.so.") || line.contains("[ld-linux")), "{dynamic}");
    }
    let _ = fs::remove_file(program);
}

#[test]
fn a_program_without_any_shared_library_works() {
    let source = root().join("tests/c/link.c");
    for profile in ["dev", "release"] {
        let what = format!("link-static-{profile}");
        let program = link_and_run(&what, &[&source, &library(profile).archive], &["-static"]);
        let _ = fs::remove_file(program);
    }
}

#[test]
fn a_static_and_a_shared_copy_work_in_one_process() {
    let flags = [STRICT, &["-std=c11"]].concat();
    let shared = library("release").shared;
    let shared = shared.to_str().expect("a path in UTF-8");
    for profile in ["dev", "release"] {
        let program = compile("tests/c/two_copies.c", &library(profile), Link::Static, &flags);
        run(&program, &["--library", shared], Duration::from_secs(30));
    }
}

#[test]
fn two_copies_of_the_released_static_library_link_into_one_program() {
    if !has_tool("objcopy", "binutils") {
        return;
    }
    let archive = library("release").archive;
    let (renames, other) = (temporary("renames.txt"), temporary("other.a"));
    let list: String = header().functions.iter().map(|name| format!("{name} other_{name}\n")).collect();
    fs::write(&renames, list).expect("the scratch directory is writable");
    let mut option = std::ffi::OsString::from("--redefine-syms=");
    option.push(&renames);
    let status = Command::new("objcopy").arg(option).arg(&archive).arg(&other).status();
    assert!(status.expect("objcopy runs").success());
    let program = link_and_run("two-archives", &[&root().join("tests/c/two_archives.c"), &archive, &other], &[]);
    for file in [renames, other, program] {
        let _ = fs::remove_file(file);
    }
}

/// A static library of another project, with the standard library in it.
const OTHER_LIBRARY: &str = r#"
#[unsafe(no_mangle)]
pub extern "C" fn other_answer() -> u32 {
    let numbers: Vec<u32> = (0..10).collect();
    std::panic::catch_unwind(|| numbers.iter().sum()).unwrap_or(0)
}
"#;

const OTHER_PROGRAM: &str = r#"
#include "slicepool.h"
uint32_t other_answer(void);
int main(void) {
  slicepool_space_config config = SLICEPOOL_SPACE_CONFIG_INIT;
  slicepool_space *space = NULL;
  config.size = 100;
  if (slicepool_space_create(&config, &space) != SLICEPOOL_OK) return 1;
  if (other_answer() != 45) return 2;
  return slicepool_space_destroy(space);
}
"#;

#[test]
fn the_released_static_library_links_beside_another_one_made_by_rust() {
    let (rust, c, other) = (temporary("other.rs"), temporary("beside.c"), temporary("libother.a"));
    fs::write(&rust, OTHER_LIBRARY).expect("the scratch directory is writable");
    fs::write(&c, OTHER_PROGRAM).expect("the scratch directory is writable");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(rustc)
        .args(["--edition", "2024", "--crate-name", "other", "--crate-type", "staticlib", "-O", "-o"])
        .args([&other, &rust])
        .status();
    assert!(status.expect("rustc runs").success());
    let ours = library("release").archive;
    for (name, archives) in [("ours-first", [&ours, &other]), ("ours-last", [&other, &ours])] {
        let inputs: [&Path; 3] = [&c, archives[0], archives[1]];
        let program = link_and_run(name, &inputs, &["-lpthread", "-ldl", "-lm"]);
        let _ = fs::remove_file(program);
    }
    for file in [rust, c, other] {
        let _ = fs::remove_file(file);
    }
}
