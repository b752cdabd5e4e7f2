//! slicepool.hpp: its tests in C++17 and C++20, with sanitizers, with and without exceptions; the headers as compilers see
//! them; the example.

use slicepool_tests::{Link, STRICT, Suite, compile, compiler, has_tool, library, root, run, scratch};
use std::fs;
use std::path::PathBuf;
use std::process::{self, Command};
use std::time::Duration;

const WITH_EXCEPTIONS: &[&str] = &[];
const WITHOUT_EXCEPTIONS: &[&str] = &["-fno-exceptions", "-fno-rtti"];

const SANITIZE: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

/// Runs one test of a program, compiled as C++17 in the least time, which has to have these tests and no others.
fn check(source: &'static str, flags: &[&str], test: &str, all: &[&str]) {
    let program = Suite::checked(source).program(&[&["-O0"], flags].concat());
    let listed = run(&program, &["--list"], Duration::from_secs(10));
    let (mut listed, mut all): (Vec<_>, Vec<_>) = (listed.lines().collect(), all.to_vec());
    listed.sort_unstable();
    all.sort_unstable();
    assert_eq!(listed, all, "the tests of {source} and those that are run differ");
    run(&program, &["--divide", "20", test], Duration::from_secs(60));
}

macro_rules! cpp_tests {
    ($source:literal, $flags:ident: $($name:ident),+ $(,)?) => {
        const TESTS: &[&str] = &[$(stringify!($name)),+];
        $(#[test] fn $name() { check($source, super::$flags, stringify!($name), TESTS); })+
    };
}

mod owners {
    use super::check;
    cpp_tests! { "tests/cpp/owners.cpp", WITH_EXCEPTIONS:
        slices_are_freed_at_the_end_of_their_scope,
        owners_that_were_moved_from_are_empty,
        moving_to_itself_changes_nothing,
        what_is_given_back_twice_is_refused,
        slices_that_were_let_go_of_can_be_owned_again,
        what_is_left_is_reported_and_the_device_has_its_memory_back,
        owners_that_let_go_leave_everything_to_the_caller,
        abandoned_owners_say_no_word_to_the_device,
        frees_wait_for_points,
        many_slices_come_all_or_none,
        errors_carry_codes_and_details,
        results_hold_a_value_or_a_failure,
        a_walk_shows_everything_until_it_is_told_to_stop,
        figures_and_reports_are_values,
        a_damaged_margin_is_reported_and_the_slice_freed,
        books_can_live_in_a_block,
        spaces_cut_numbers,
        buffers_come_back_with_their_figures,
    }
}

mod devices {
    use super::check;
    cpp_tests! { "tests/cpp/devices.cpp", WITH_EXCEPTIONS:
        pages_come_in_every_form_that_is_offered,
        what_a_device_lacks_is_not_supported,
        every_function_that_a_device_has_is_called,
        a_device_that_was_handed_over_goes_after_its_last_page,
        a_device_may_be_borrowed_or_shared,
        what_allocate_throws_is_thrown_by_the_call_that_needed_it,
        what_is_thrown_in_an_attempt_is_lost_if_the_call_succeeds,
        what_deallocate_throws_is_thrown_by_the_call_that_gave_back,
        what_other_callbacks_throw_is_thrown_by_their_calls,
        calls_in_callbacks_keep_their_exceptions_apart,
        each_thread_gets_its_own_exception,
    }
}

mod memory_resources {
    use super::check;
    cpp_tests! { "tests/cpp/memory_resources.cpp", WITH_EXCEPTIONS:
        containers_live_in_slices,
        four_threads_share_a_resource,
        blocks_are_aligned_as_asked_whatever_the_device_does,
        memory_that_cannot_be_had_is_bad_alloc,
        a_resource_frees_what_was_not_given_back,
        containers_live_in_buffers,
        requests_of_a_resource_are_like_the_one_it_was_given,
        a_block_that_was_written_beyond_its_end_is_reported_and_freed,
        what_is_given_back_after_the_pool_has_gone_is_no_failure,
    }
}

mod thread_caches {
    use super::check;
    cpp_tests! { "tests/cpp/thread_caches.cpp", WITH_EXCEPTIONS:
        a_thread_keeps_what_it_releases_until_it_ends,
        a_pool_may_go_before_its_threads,
        a_thread_gets_a_new_cache_for_the_pool_that_takes_the_place_of_another,
        a_thread_may_use_many_pools,
        threads_that_end_and_pools_that_go_meet_without_harm,
        threads_exchange_buffers,
        a_static_pool_is_used_by_destructors_of_thread_locals,
        a_refused_destruction_takes_caches_and_threads_get_new_ones,
        caches_may_outlive_their_pool,
        threads_have_no_caches_where_they_are_not_wanted,
        a_closed_pool_gives_its_memory_back_when_its_threads_end,
        a_device_may_use_the_pool_while_a_thread_gives_its_cache_back,
        a_forked_child_abandons_pools_that_its_thread_had_caches_of,
        a_pool_is_not_destroyed_in_a_callback_of_its_own_whichever_way_that_is_reached,
    }
}

mod no_exceptions {
    use super::check;
    cpp_tests! { "tests/cpp/no_exceptions.cpp", WITHOUT_EXCEPTIONS:
        calls_answer_results,
        buffers_and_spaces_answer_results,
        containers_have_memory,
        a_value_that_is_not_there_ends_the_process,
    }
}

/// Runs tests of a program once more, built in another way: all but some.
fn run_otherwise(source: &str, link: Link, profile: &str, flags: &[&str], but: &[&str]) {
    let flags: Vec<_> = STRICT.iter().chain(flags).copied().collect();
    let program = compile(source, &library(profile), link, &flags);
    let listed = run(&program, &["--list"], Duration::from_secs(10));
    let tests = listed.lines().filter(|test| !but.contains(test));
    let arguments: Vec<_> = ["--divide", "200"].into_iter().chain(tests).collect();
    run(&program, &arguments, Duration::from_secs(120));
}

#[test]
fn programs_are_also_cpp20_and_work_with_the_library_that_users_get() {
    // Of these two all of what the header has.
    for source in ["tests/cpp/owners.cpp", "tests/cpp/thread_caches.cpp"] {
        run_otherwise(source, Link::Shared, "release", &["-std=c++20"], &[]);
    }
}

/// What a forked child abandons is lost to it: the device's memory and the books of caches.
const LEAKS: &[&str] = &["a_forked_child_abandons_pools_that_its_thread_had_caches_of"];

fn run_sanitized(source: &str, flags: &[&str]) {
    run_otherwise(source, Link::Static, "dev", &[&["-std=c++17", "-O0"], flags, SANITIZE].concat(), LEAKS);
}

macro_rules! sanitized {
    ($($name:ident $source:literal $flags:ident),+ $(,)?) => { $(#[test] fn $name() { run_sanitized($source, $flags); })+ };
}

sanitized! {
    sanitizers_find_nothing_in_owners "tests/cpp/owners.cpp" WITH_EXCEPTIONS,
    sanitizers_find_nothing_in_devices "tests/cpp/devices.cpp" WITH_EXCEPTIONS,
    sanitizers_find_nothing_in_memory_resources "tests/cpp/memory_resources.cpp" WITH_EXCEPTIONS,
    sanitizers_find_nothing_in_thread_caches "tests/cpp/thread_caches.cpp" WITH_EXCEPTIONS,
    sanitizers_find_nothing_without_exceptions "tests/cpp/no_exceptions.cpp" WITHOUT_EXCEPTIONS,
}

/// The headers, each of which can be included by itself.
fn headers() -> Vec<String> {
    let include = root().join("include");
    let listed = fs::read_dir(include.join("slicepool")).expect("the folder is there");
    let names =
        listed.map(|entry| format!("slicepool/{}", entry.expect("it can be read").file_name().to_string_lossy()));
    names.chain(["slicepool.hpp".to_owned()]).collect()
}

#[test]
fn each_header_is_clean_alone_and_twice_for_every_compiler_and_standard() {
    let source = scratch().join(format!("headers-{}.cpp", process::id()));
    let compilers = ["g++", "clang++"].into_iter().filter(|name| has_tool(name, name.trim_end_matches("++")));
    for name in compilers {
        for header in headers() {
            fs::write(&source, format!("#include \"{header}\"\n#include \"{header}\"\n")).expect("it is writable");
            for standard in ["-std=c++17", "-std=c++20"] {
                // The whole is looked at more closely than its parts.
                let modes = if header == "slicepool.hpp" {
                    &[WITH_EXCEPTIONS, WITHOUT_EXCEPTIONS][..]
                } else {
                    &[WITH_EXCEPTIONS]
                };
                for mode in modes {
                    let output = Command::new(name)
                        .args(["-fsyntax-only", "-Wnon-virtual-dtor", "-Woverloaded-virtual", standard])
                        .args(STRICT)
                        .args(*mode)
                        .arg("-I")
                        .arg(root().join("include"))
                        .arg(&source)
                        .output()
                        .expect("it was found");
                    let errors = String::from_utf8_lossy(&output.stderr);
                    assert!(
                        output.status.success() && errors.is_empty(),
                        "{name} {standard} {mode:?} {header}:\n{errors}"
                    );
                }
                if header != "slicepool.hpp" {
                    break;
                }
            }
        }
    }
    let _ = fs::remove_file(source);
}

fn object(name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let source = scratch().join(format!("{name}-{}.cpp", process::id()));
    fs::write(&source, text).expect("the scratch directory is writable");
    let object = source.with_extension("o");
    let output = compiler(true)
        .args(["-std=c++17", "-c", "-I"])
        .arg(root().join("include"))
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let _ = fs::remove_file(source);
    object
}

/// Links two units, of which the first takes a slice from the second.
fn links(name: &str, flags: &[&str]) -> bool {
    const USER: &str = "#include \"slicepool.hpp\"\nslicepool::Slice give(slicepool::Allocator &);\n\
        int main() {\n  auto made = slicepool::Allocator::try_create(slicepool::host_memory{});\n  \
        if (!made) return 1;\n  auto slice = give(*made);\n  return slice.size() >= 100 ? 0 : 2;\n}\n";
    const GIVER: &str = "#include \"slicepool.hpp\"\nslicepool::Slice give(slicepool::Allocator &);\n\
        slicepool::Slice give(slicepool::Allocator &from) { return std::move(*from.try_allocate(100)); }\n";
    let user = object(&format!("{name}-user"), USER, &[]);
    let giver = object(&format!("{name}-giver"), GIVER, flags);
    let program = user.with_extension("linked");
    let archive = library("dev").archive;
    let output =
        compiler(true).args([&user, &giver, &archive]).args(["-lpthread", "-ldl", "-o"]).arg(&program).output();
    let linked = output.expect("the linker runs").status.success();
    if linked {
        run(&program, &[], Duration::from_secs(10));
    }
    for file in [user, giver, program] {
        let _ = fs::remove_file(file);
    }
    linked
}

#[test]
fn two_units_make_one_program_and_those_of_different_kinds_do_not() {
    assert!(links("alike", &[]));
    assert!(!links("different", WITHOUT_EXCEPTIONS));
}

#[test]
fn the_example_runs() {
    for (link, profile) in [(Link::Static, "dev"), (Link::Shared, "release")] {
        let flags = [STRICT, &["-std=c++17"]].concat();
        let text =
            run(&compile("examples-cpp/quickstart.cpp", &library(profile), link, &flags), &[], Duration::from_secs(10));
        for wanted in ["slice: ", "refused: ", "buffer: room for 2048 bytes", "given back"] {
            assert!(text.contains(wanted), "{text}");
        }
    }
}
