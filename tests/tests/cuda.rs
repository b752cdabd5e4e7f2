//! slicepool_cuda.h over a double of the driver (`tests/c/cuda_double.c`): `tests/c/cuda.c`, the examples, the script that
//! tries a real driver, and the header as compilers see it. There is no driver without a GPU.

use slicepool_tests::{
    Link, STRICT, Suite, compile, compiler, example_in, has_tool, library, root, run, scratch, write_source,
};
use std::fs;
use std::path::Path;
use std::process;
use std::sync::OnceLock;
use std::time::Duration;

const SOURCE: &str = "tests/c/cuda.c";
const CHECKED: Suite = Suite::checked(SOURCE);
const RELEASED: Suite = Suite::released(SOURCE);
const LIMIT: Duration = Duration::from_secs(120);

/// The double as a shared library, under the name of the driver's in a folder of its own.
fn build(folder: &str, flags: &[&str]) -> String {
    let folder = scratch().join(folder);
    fs::create_dir_all(&folder).expect("the scratch directory is writable");
    let (fresh, path) = (folder.join(format!("double.{}", process::id())), folder.join("libcuda.so.1"));
    let output = compiler(false)
        .args(STRICT)
        .args(flags)
        .args(["-std=c11", "-g", "-shared", "-fPIC", "-lpthread", "-o"])
        .arg(&fresh)
        .arg(root().join("tests/c/cuda_double.c"))
        .output()
        .expect("the C compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(fresh, &path).expect("the scratch directory is writable");
    path.into_os_string().into_string().expect("a path in UTF-8")
}

/// The double that tests may look into.
fn double() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| build("cuda", &[]))
}

/// Runs a program with another environment.
fn run_with(variable: &str, value: &str, program: &Path, arguments: &[&str]) -> String {
    let setting = format!("{variable}={value}");
    let program = program.to_str().expect("a path in UTF-8");
    run(Path::new("env"), &[&[setting.as_str(), program], arguments].concat(), LIMIT)
}

fn line<'a>(printed: &'a str, beginning: &str) -> &'a str {
    let found = printed.lines().find_map(|line| line.strip_prefix(beginning));
    found.unwrap_or_else(|| panic!("no line begins with `{beginning}`:\n{printed}")).trim()
}

macro_rules! tests {
    ($($name:ident),+ $(,)?) => {
        const TESTS: &[&str] = &[$(stringify!($name)),+];
        mod checked_and_static {
            use super::*;
            $(#[test] fn $name() {
                run(&CHECKED.program(&[]), &["--library", double(), "--divide", "4", stringify!($name)], LIMIT);
            })+
        }
        mod released_and_shared {
            use super::*;
            $(#[test] fn $name() {
                run(&RELEASED.program(&[]), &["--library", double(), stringify!($name)], LIMIT);
            })+
        }
    };
}

tests! {
    loading_tells_which_function_is_missing,
    an_older_driver_will_do,
    a_library_that_is_not_the_driver_is_refused,
    bad_arguments_change_nothing,
    memory_is_described_as_the_driver_says,
    only_the_wanted_types_are_there,
    what_a_device_lacks_is_left_out,
    an_integrated_device_has_one_heap,
    types_are_chosen_by_their_properties,
    device_memory_has_addresses_and_is_not_mapped,
    neighbours_keep_their_bytes,
    pinned_memory_is_mapped_where_the_device_sees_it,
    managed_memory_has_one_address_for_both_sides,
    zeros_are_there_when_a_request_returns,
    scrubbed_memory_is_overwritten_before_anybody_else_has_it,
    without_waiting_zeros_are_written_by_the_stream,
    the_budget_is_what_the_driver_says,
    a_request_stays_within_what_other_programs_leave,
    the_current_context_stays_the_same,
    four_threads_share_an_allocator_and_keep_their_contexts,
    no_memory_left_is_told_with_the_drivers_code,
    callbacks_of_the_program_find_their_data,
    every_failing_call_of_a_callback_is_reported,
    every_failing_call_leaves_the_allocator_as_it_was,
    a_page_that_the_driver_keeps_is_asked_for_again,
    a_driver_that_shuts_down_takes_everything_with_it,
    a_larger_alignment_than_promised_is_checked,
    memory_of_the_program_is_adopted_and_given_back,
    destroying_gives_everything_back,
    held_memory_serves_without_the_driver,
}

#[test]
fn every_test_of_the_program_is_run() {
    CHECKED.assert_complete(TESTS);
}

#[test]
fn all_tests_pass_one_after_the_other() {
    let printed = run(&RELEASED.program(&[]), &["--library", double()], LIMIT);
    assert_eq!(printed.lines().filter(|line| line.starts_with("ok ")).count(), TESTS.len());
    assert!(!printed.contains("needs the double"), "{printed}");
}

/// What is left out over a driver is the same as over a double that nobody can look into.
#[test]
fn tests_do_without_what_only_the_double_has() {
    let printed = run(&RELEASED.program(&[]), &["--library", &build("cuda-plain", &["-DCUDA_DOUBLE_PLAIN"])], LIMIT);
    assert_eq!(printed.lines().filter(|line| line.starts_with("ok ")).count(), TESTS.len());
    assert_eq!(printed.matches("needs the double of the driver").count(), 10, "{printed}");
}

#[test]
fn valgrind_finds_nothing() {
    if !has_tool("valgrind", "valgrind") {
        return;
    }
    let program = CHECKED.program(&[]);
    let program = program.to_str().expect("a path in UTF-8");
    let tool = ["--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite", program];
    run(Path::new("valgrind"), &[&tool[..], &["--library", double(), "--divide", "50"]].concat(), LIMIT);
}

#[test]
fn the_example_checks_every_byte() {
    let flags = [&["-std=c11"], STRICT].concat();
    for link in [Link::Shared, Link::Static] {
        let program = compile("examples-c/cuda.c", &library("release"), link, &flags);
        let printed = run_with("SLICEPOOL_CUDA_LIBRARY", double(), &program, &[]);
        assert_eq!(line(&printed, "slices:"), "128 of device memory, 0 of 13558592 bytes wrong, 0 not zero");
        assert!(line(&printed, "device memory:").starts_with("13558592 bytes in use of "));
        assert_eq!(line(&printed, "end:"), "everything given back");
        let printed = run_with("SLICEPOOL_CUDA_LIBRARY", "/nowhere/libcuda.so.1", &program, &[]);
        assert_eq!(printed, "SKIPPED: no CUDA driver\n");
    }
}

#[test]
fn the_example_in_the_header_runs() {
    let text = example_in("include/slicepool_cuda.h");
    // There the loader looks first.
    let folder = Path::new(double()).parent().and_then(Path::to_str).expect("a path in UTF-8");
    for (extension, standard) in [("c", "-std=c99"), ("cpp", "-std=c++11")] {
        let source = write_source(&format!("cuda_header.{extension}"), &text);
        let program = compile(&source, &library("release"), Link::Static, &[&[standard], STRICT].concat());
        run_with("LD_LIBRARY_PATH", folder, &program, &[]);
    }
}

/// The script that tries a real driver; here it uses the double if there is none.
#[test]
fn the_script_says_what_it_has_run_over_and_that_all_passed() {
    let printed = run(&root().join("tests/cuda.sh"), &[], Duration::from_secs(600));
    let real = printed.contains("== Over the driver of this machine");
    assert!(real != printed.contains("The times below are NOT measurements."), "{printed}");
    for size in ["4 KiB", "1 MiB", "64 MiB"] {
        assert!(line(&printed, &format!("pair of {size}: ")).starts_with("slicepool "));
    }
    assert!(line(&printed, "churn of mixed sizes:").contains("(100000 and "));
    assert!(line(&printed, "wrong words:").starts_with("0 of "));
    assert_eq!(line(&printed, "wrong words after a slice was written 256 bytes too far:"), "64, 64 expected");
    assert!(printed.ends_with("== All passed\n"), "{printed}");
}
