//! What `docs/security.md` claims: by the program `tests/c/security.c`, and of the library as a file.

use slicepool_tests::{has_tool, library, root};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

slicepool_tests::c_tests! { "tests/c/security.c":
    a_device_that_lies_at_random_corrupts_nothing_and_loses_nothing,
    a_device_that_lies_at_random_corrupts_no_buffers_and_loses_none,
    pages_that_overlap_under_different_names_are_believed,
    a_callback_that_does_not_return_holds_up_nobody_else,
    the_next_handle_follows_from_the_last,
    a_slice_shows_what_its_last_owner_wrote_unless_one_of_them_asked_for_zeros,
    what_a_zeroed_slice_grows_by_shows_what_was_there,
    a_buffer_shows_what_its_last_owner_wrote_unless_it_is_zeroed,
    every_timeline_that_is_told_of_takes_host_memory_until_it_is_forgotten,
    calls_that_are_refused_take_no_host_memory,
    a_page_given_out_again_while_it_is_taken_back_is_held_once,
    a_page_that_ends_above_the_last_address_is_given_back_and_refused,
    figures_agree_in_the_events_of_a_page_that_is_of_no_use,
}

fn output_of(command: &mut Command) -> String {
    let output = command.output().expect("the tool runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What loaders are told of a library that could be written to where it must not be.
fn faults_of(program_headers: &str, dynamic: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let segments: Vec<Vec<_>> = program_headers.lines().map(|line| line.split_whitespace().collect()).collect();
    // Type, offset, two addresses, two sizes, flags of up to three letters, alignment.
    let flags = |segment: &[&str]| segment.get(6..segment.len().saturating_sub(1)).unwrap_or_default().concat();
    let of_type = |wanted: &str| segments.iter().filter(|segment| segment.first() == Some(&wanted)).collect::<Vec<_>>();
    if of_type("LOAD").len() < 2 {
        faults.push("no segments".to_owned());
    }
    for segment in of_type("LOAD").iter().filter(|segment| flags(segment) == "RWE" || flags(segment) == "WE") {
        faults.push(format!("written to and run: {}", segment.join(" ")));
    }
    match of_type("GNU_STACK")[..] {
        [stack] if flags(stack) == "RW" => {}
        _ => faults.push("an executable stack".to_owned()),
    }
    if of_type("GNU_RELRO").is_empty() {
        faults.push("relocations stay writable".to_owned());
    }
    let is_now = |line: &str| (line.contains("(FLAGS)") && line.contains("BIND_NOW")) || line.contains("(BIND_NOW)");
    if !dynamic.lines().any(is_now) {
        faults.push("relocations are bound late".to_owned());
    }
    faults
}

#[test]
fn nothing_is_written_to_and_run_and_relocations_are_read_only() {
    if !has_tool("readelf", "binutils") {
        return;
    }
    for profile in ["dev", "release"] {
        let shared = library(profile).shared;
        let headers = output_of(Command::new("readelf").args(["-l", "-W"]).arg(&shared));
        let dynamic = output_of(Command::new("readelf").args(["-d", "-W"]).arg(&shared));
        assert_eq!(faults_of(&headers, &dynamic), Vec::<String>::new(), "{profile}:\n{headers}{dynamic}");
    }
}

#[test]
fn a_library_that_can_be_written_to_is_noticed() {
    let good = "
  LOAD           0x000000 0x0 0x0 0x00e19c 0x00e19c R   0x1000
  LOAD           0x00e19c 0xf 0xf 0x03e2e4 0x03e2e4 R E 0x1000
  GNU_RELRO      0x04c480 0x4 0x4 0x000540 0x000b80 R   0x1
  GNU_STACK      0x000000 0x0 0x0 0x000000 0x000000 RW  0
";
    let now = " 0x000000000000001e (FLAGS)              BIND_NOW";
    assert_eq!(faults_of(good, now), Vec::<String>::new());
    for (from, to, fault) in [
        ("R E", "RWE", "written to and run: LOAD 0x00e19c 0xf 0xf 0x03e2e4 0x03e2e4 RWE 0x1000"),
        ("RW ", "RWE", "an executable stack"),
        ("GNU_STACK", "NOTE", "an executable stack"),
        ("GNU_RELRO", "NOTE", "relocations stay writable"),
        ("LOAD", "NOTE", "no segments"),
    ] {
        assert_eq!(faults_of(&good.replace(from, to), now), [fault]);
    }
    assert_eq!(faults_of(good, ""), ["relocations are bound late"]);
}

/// Indices and numbers that only a fault in the books could make wrong.
const CHECKS: &[&str] = &[
    "panic_bounds_check",
    "slice_index_fail",
    // Logarithms and quotients of numbers that are not 0.
    "panic_for_nonpositive_argument",
    "panic_const_div_by_zero",
    // What all of them end in.
    "panic_nounwind_fmt",
    "panic_fmt",
    "panic_display",
];

#[test]
fn what_is_left_of_panics_are_checks_of_the_books() {
    if !has_tool("nm", "binutils") {
        return;
    }
    let symbols = output_of(Command::new("nm").arg(library("release").shared));
    let names: Vec<_> = symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert!(names.iter().any(|name| name.contains("slicepool_core")), "the library has symbols: {names:?}");
    let is_core = |name: &&&str| name.contains("4core") && !name.contains("slicepool");
    let is_panic = |name: &&&str| ["panic", "_fail", "unwrap", "expect"].iter().any(|word| name.contains(word));
    let is_check = |name: &&str| CHECKS.iter().any(|check| name.contains(check));
    let left: Vec<_> = names.iter().filter(is_core).filter(is_panic).collect();
    let others: Vec<_> = left.iter().filter(|name| !is_check(name)).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(left.iter().any(|name| name.contains(CHECKS[0])), "the names of panics are as they were: {left:?}");
}

// ---- what the review lists

/// The words in backquotes of the list after a line.
fn listed(heading: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("docs/security.md")).expect("the review is there");
    let (_, rest) = text.split_once(&format!("\n{heading}:\n\n")).expect("the list is there");
    let list = rest.split("\n\n").next().unwrap_or_default();
    let mut words = BTreeSet::new();
    for item in list.split("\n- ").map(|item| item.trim_start_matches("- ")) {
        // What stands before the colon; the rest says why.
        let names = item.split(": ").next().unwrap_or_default();
        words.extend(names.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    words
}

#[test]
fn the_library_is_made_of_the_crates_that_the_review_lists() {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["tree", "-p", "slicepool-capi", "-e", "normal", "--prefix", "none", "--format", "{p}", "--locked"]);
    let tree = output_of(command.current_dir(root()));
    let names = tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    assert_eq!(names.collect::<BTreeSet<_>>(), listed("Crates"));
}

/// Whether a source has unsafe code outside its tests.
fn has_unsafe_code(text: &str) -> bool {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let words = code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words.into_iter().any(|word| word == "unsafe")
}

fn find_unsafe_code(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        if path.is_dir() {
            find_unsafe_code(&path, found);
        } else if name.ends_with(".rs") && !["tests.rs", "models.rs", "damage.rs"].contains(&&*name) {
            let text = fs::read_to_string(&path).expect("sources are text");
            if has_unsafe_code(&text) {
                let path = path.strip_prefix(root()).expect("it is in the repository");
                found.insert(path.to_string_lossy().replace('\\', "/"));
            }
        }
    }
}

#[test]
fn unsafe_code_stands_in_the_files_that_the_review_lists() {
    let mut found = BTreeSet::new();
    find_unsafe_code(&root().join("core/src"), &mut found);
    let mut listed = listed("Unsafe code");
    assert!(listed.remove("capi/src"), "the border is listed as a folder");
    assert_eq!(found, listed);
}

#[test]
fn unsafe_code_is_told_from_words_about_it() {
    for (text, has) in [
        ("fn a() { unsafe { b() } }", true),
        ("unsafe impl Send for A {}", true),
        ("// unsafe\n#![forbid(unsafe_code)]\n#![deny(unsafe_op_in_unsafe_fn)]", false),
        ("fn a() {}\n#[cfg(test)]\nmod tests {\n    unsafe { b() }\n}", false),
    ] {
        assert_eq!(has_unsafe_code(text), has, "{text}");
    }
}
