//! The C programs again under tools that see what the programs themselves cannot.

use slicepool_tests::{Link, STRICT, Suite, compile, compiler, has_tool, library, root, run, scratch, skip};
use std::path::Path;
use std::process::{self, Command};
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, fs};

/// Tests that need threads to meet or that measure time: under these tools neither is as usual.
const TIMED: &[&str] = &[
    "a_refusal_with_holes_of_smaller_classes_takes_constant_time",
    "a_miss_costs_the_same_however_many_buffers_there_are",
    "the_wait_hook_serves_a_contended_spin_lock",
];

fn tests_of(suite: &Suite) -> Vec<String> {
    suite.tests().into_iter().filter(|test| !TIMED.contains(&test.as_str())).collect()
}

/// Runs the tests of a program under valgrind, with hardly any rounds.
fn run_under_valgrind(source: &'static str) {
    if !has_tool("valgrind", "valgrind") {
        return;
    }
    let suite = Suite::checked(source);
    let program = suite.program(&[]);
    let mut arguments: Vec<_> =
        ["--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]
            .map(str::to_owned)
            .to_vec();
    arguments.push(program.to_str().expect("a path in UTF-8").to_owned());
    arguments.extend(["--divide".to_owned(), "2000".to_owned()]);
    arguments.extend(tests_of(&suite));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    run(Path::new("valgrind"), &arguments, Duration::from_secs(300));
}

macro_rules! programs {
    ($run:ident: $($name:ident $source:literal),+ $(,)?) => {
        $(#[test] fn $name() { $run($source); })+
    };
}

programs! { run_under_valgrind:
    valgrind_finds_nothing_in_pools "tests/c/pools.c",
    valgrind_finds_nothing_in_exclusive_direct "tests/c/exclusive_direct.c",
    valgrind_finds_nothing_in_ageing "tests/c/ageing.c",
    valgrind_finds_nothing_in_lists "tests/c/lists.c",
    valgrind_finds_nothing_in_kinds "tests/c/kinds.c",
    valgrind_finds_nothing_in_block "tests/c/block.c",
    valgrind_finds_nothing_in_scenarios_leaks "tests/c/scenarios_leaks.c",
    valgrind_finds_nothing_in_scenarios_fit "tests/c/scenarios_fit.c",
    valgrind_finds_nothing_in_scenarios_handles "tests/c/scenarios_handles.c",
    valgrind_finds_nothing_in_scenarios_threads "tests/c/scenarios_threads.c",
    valgrind_finds_nothing_in_hooks "tests/c/hooks.c",
    valgrind_finds_nothing_in_waiting "tests/c/waiting.c",
    valgrind_finds_nothing_in_waiting_threads "tests/c/waiting_threads.c",
    valgrind_finds_nothing_in_short "tests/c/short.c",
    valgrind_finds_nothing_in_ladder "tests/c/ladder.c",
    valgrind_finds_nothing_in_budgets "tests/c/budgets.c",
    valgrind_finds_nothing_in_planning "tests/c/planning.c",
    valgrind_finds_nothing_in_install "tests/c/install.c",
    valgrind_finds_nothing_in_persistent "tests/c/persistent.c",
    valgrind_finds_nothing_in_filling "tests/c/filling.c",
    valgrind_finds_nothing_in_debugging "tests/c/debugging.c",
    valgrind_finds_nothing_in_mixture "tests/c/mixture.c",
    valgrind_finds_nothing_in_memory_types "tests/c/memory_types.c",
    valgrind_finds_nothing_in_blocks "tests/c/blocks.c",
    valgrind_finds_nothing_in_own_pages "tests/c/own_pages.c",
    valgrind_finds_nothing_in_requests "tests/c/requests.c",
    valgrind_finds_nothing_in_mapping "tests/c/mapping.c",
    valgrind_finds_nothing_in_events "tests/c/events.c",
    valgrind_finds_nothing_in_labels "tests/c/labels.c",
    valgrind_finds_nothing_in_security "tests/c/security.c",
    valgrind_finds_nothing_in_buffer_config "tests/c/buffer_config.c",
    valgrind_finds_nothing_in_buffer_pools "tests/c/buffer_pools.c",
    valgrind_finds_nothing_in_buffer_caches "tests/c/buffer_caches.c",
    valgrind_finds_nothing_in_buffer_failures "tests/c/buffer_failures.c",
    valgrind_finds_nothing_in_buffer_threads "tests/c/buffer_threads.c",
    valgrind_finds_nothing_in_buffer_reentrancy "tests/c/buffer_reentrancy.c",
    valgrind_finds_nothing_in_reentrancy "tests/c/reentrancy.c",
    valgrind_finds_nothing_in_reentrancy_memory "tests/c/reentrancy_memory.c",
}

/// Examples over drivers, which have leaks of their own and compile code while they run: their tests go through sanitizers.
const OVER_DRIVERS: &[&str] = &["vulkan.c", "opencl.c"];

/// The examples that a reader may copy, in C and C++.
#[test]
fn valgrind_finds_nothing_in_the_examples() {
    if !has_tool("valgrind", "valgrind") {
        return;
    }
    for folder in ["examples-c", "examples-cpp"] {
        for entry in fs::read_dir(root().join(folder)).expect("the folder is there") {
            let name = entry.expect("it can be read").file_name().to_string_lossy().into_owned();
            if OVER_DRIVERS.contains(&name.as_str()) {
                continue;
            }
            let standard = match name.rsplit_once('.') {
                Some((_, "c")) => "-std=c11",
                Some((_, "cpp")) => "-std=c++17",
                _ => continue,
            };
            let flags = [STRICT, &[standard]].concat();
            let program = compile(&format!("{folder}/{name}"), &library("dev"), Link::Static, &flags);
            let arguments = ["--quiet", "--error-exitcode=99", "--leak-check=full", program.to_str().expect("a path")];
            run(Path::new("valgrind"), &arguments, Duration::from_secs(300));
        }
    }
}

const SANITIZE: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

/// Whether programs can be made and run with sanitizers here.
fn has_sanitizers() -> bool {
    static WORK: OnceLock<Result<(), String>> = OnceLock::new();
    let work =
        WORK.get_or_init(|| {
            let source = scratch().join(format!("{}-sanitized.c", process::id()));
            let program = source.with_extension("");
            fs::write(&source, "int main(void) { return 0; }\n").expect("the scratch directory is writable");
            let compiled = compiler(false).args(SANITIZE).arg(&source).arg("-o").arg(&program).output();
            let ran = compiled.and_then(|compiled| {
                if compiled.status.success() { Command::new(&program).output() } else { Ok(compiled) }
            });
            let _ = fs::remove_file(source);
            let _ = fs::remove_file(program);
            match ran {
                Ok(output) if output.status.success() => Ok(()),
                Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
                Err(error) => Err(error.to_string()),
            }
        });
    if let Err(why) = work {
        skip(&format!("the compiler's sanitizers do not work; install libasan and libubsan: {why}"));
    }
    work.is_ok()
}

/// A child that is forked beside threads which allocate may find AddressSanitizer's own allocator locked for ever: it does
/// not prepare for a fork as the C library does. The plain runs and valgrind have this test.
const NOT_SANITIZED: &[&str] = &[
    "a_child_abandons_while_threads_of_the_parent_were_at_work",
    "a_child_abandons_a_pool_and_its_caches_while_threads_are_at_work",
];

fn run_sanitized(source: &'static str) {
    if !has_sanitizers() {
        return;
    }
    let suite = Suite::checked(source);
    let program = suite.program(SANITIZE);
    let mut arguments = vec!["--divide".to_owned(), "200".to_owned()];
    arguments.extend(tests_of(&suite).into_iter().filter(|test| !NOT_SANITIZED.contains(&test.as_str())));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    run(&program, &arguments, Duration::from_secs(300));
    assert!(env::var_os("ASAN_OPTIONS").is_none(), "leaks are to be found");
}

// Those that valgrind cannot run, and those in which threads meet or callbacks write: of the others valgrind sees all that a
// sanitized program would, and what the library does besides.
programs! { run_sanitized:
    sanitizers_find_nothing_in_block "tests/c/block.c",
    sanitizers_find_nothing_in_buffer_pools "tests/c/buffer_pools.c",
    sanitizers_find_nothing_in_buffer_threads "tests/c/buffer_threads.c",
    sanitizers_find_nothing_in_buffer_reentrancy "tests/c/buffer_reentrancy.c",
    sanitizers_find_nothing_in_scenarios_threads "tests/c/scenarios_threads.c",
    sanitizers_find_nothing_in_hooks "tests/c/hooks.c",
    sanitizers_find_nothing_in_waiting_threads "tests/c/waiting_threads.c",
    sanitizers_find_nothing_in_filling "tests/c/filling.c",
    sanitizers_find_nothing_in_debugging "tests/c/debugging.c",
    sanitizers_find_nothing_in_mixture "tests/c/mixture.c",
    sanitizers_find_nothing_in_mapping "tests/c/mapping.c",
    sanitizers_find_nothing_in_events "tests/c/events.c",
    sanitizers_find_nothing_in_labels "tests/c/labels.c",
    sanitizers_find_nothing_in_reentrancy "tests/c/reentrancy.c",
    sanitizers_find_nothing_in_reentrancy_memory "tests/c/reentrancy_memory.c",
    sanitizers_find_nothing_in_bad_arguments "tests/c/bad_arguments.c",
    sanitizers_find_nothing_in_bad_handles "tests/c/bad_handles.c",
    sanitizers_find_nothing_in_bad_nulls "tests/c/bad_nulls.c",
    sanitizers_find_nothing_in_bad_numbers "tests/c/bad_numbers.c",
    sanitizers_find_nothing_in_bad_outputs "tests/c/bad_outputs.c",
    sanitizers_find_nothing_in_bad_structs "tests/c/bad_structs.c",
    sanitizers_find_nothing_in_failures "tests/c/failures.c",
    sanitizers_find_nothing_in_fork "tests/c/fork.c",
}
