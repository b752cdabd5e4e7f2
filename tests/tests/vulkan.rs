//! slicepool_vulkan.h over a real driver: `tests/c/vulkan.c`, and the example.

use slicepool_tests::{
    Link, STRICT, Suite, compile, example_in, has_header, library, run, scratch, skip, write_source,
};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

const LINKED: &[&str] = &["-lvulkan"];

/// What the example prints of a driver with the validation layer; `None` where one of them is missing.
fn example() -> Option<&'static str> {
    static PRINTED: OnceLock<Option<String>> = OnceLock::new();
    let printed = PRINTED.get_or_init(|| {
        if !has_header("vulkan/vulkan.h", "libvulkan-dev") {
            return None;
        }
        let flags = [&["-std=c11"], STRICT, LINKED].concat();
        let program = compile("examples-c/vulkan.c", &library("release"), Link::Shared, &flags);
        let picture = scratch().join("mirrored.ppm");
        Some(run(&program, &[picture.to_str().expect("a path in UTF-8"), "7"], Duration::from_secs(60)))
    });
    let printed = printed.as_deref()?;
    for (line, missing) in [
        ("SKIPPED:", "there is no Vulkan device; install mesa-vulkan-drivers"),
        ("validation layer: not there", "the validation layer is missing; install vulkan-validationlayers"),
    ] {
        if printed.lines().any(|printed| printed.starts_with(line)) {
            skip(missing);
            return None;
        }
    }
    Some(printed)
}

fn run_on_a_device(suite: Suite, test: &str) {
    if example().is_some() {
        suite.with_flags(LINKED).run(test);
    }
}

macro_rules! device_tests {
    ($source:literal: $($name:ident),+ $(,)?) => {
        device_tests! { checked_and_static, Suite::checked($source), $($name),+ }
        device_tests! { released_and_shared, Suite::released($source), $($name),+ }
    };
    ($module:ident, $suite:expr, $($name:ident),+) => {
        mod $module {
            use super::*;
            $(#[test] fn $name() { run_on_a_device($suite, stringify!($name)); })+
            #[test]
            fn every_test_of_the_program_is_run() {
                if example().is_some() {
                    $suite.with_flags(LINKED).assert_complete(&[$(stringify!($name)),+]);
                }
            }
        }
    };
}

device_tests! { "tests/c/vulkan.c":
    neighbours_that_the_device_fills_keep_their_words,
    an_overlap_of_one_granule_is_seen,
    a_thousand_buffers_of_random_sizes_keep_their_words,
    the_host_reads_and_writes_what_is_mapped_for_good_or_for_a_time,
    images_and_buffers_never_share_a_granularity_page,
    a_forgotten_slice_is_reported_before_the_validation_layer_sees_it,
    what_is_left_behind_is_what_the_validation_layer_sees,
    out_of_memory_of_the_driver_comes_back_with_its_code_and_changes_nothing,
    a_device_of_64_allocations_serves_for_as_long_as_one_likes,
    the_65th_allocation_is_refused_before_the_device_is_asked,
    whatever_fails_nothing_is_leaked_and_the_code_comes_back,
    what_needs_memory_of_its_own_gets_exactly_as_much_as_it_needs,
    what_only_prefers_memory_of_its_own_shares_where_there_is_none,
    what_only_prefers_memory_of_its_own_stays_in_the_best_memory,
    memory_that_the_host_does_not_see_is_not_mapped,
    nothing_is_bound_in_a_dry_run_before_it_is_resolved,
    adopted_memory_is_filled_whether_its_bytes_are_told_or_not,
    imported_memory_is_shared_with_who_exported_it_and_its_handle_is_used_once,
    without_the_extension_nothing_is_named_as_what_memory_is_for,
    nothing_is_bound_to_memory_while_another_thread_maps_it,
    a_page_of_its_own_carries_priority_and_handles_to_export,
    buffers_have_addresses_where_the_feature_is_enabled,
    what_is_flushed_are_whole_atoms_or_the_end_of_the_memory,
    coherent_memory_is_not_flushed,
    the_budget_of_the_extension_is_heeded_by_those_who_ask_for_it,
    mapped_memory_is_filled_and_other_memory_is_left_to_the_program,
    a_slice_waits_for_a_timeline_semaphore_that_the_allocator_asks,
    what_a_loader_lacks_is_named,
    what_cannot_work_is_refused_and_changes_nothing,
    functions_of_version_1_1_are_called_where_instance_and_device_have_it,
    a_device_without_the_newer_functions_is_enough,
    a_request_says_what_its_use_needs,
}

#[test]
fn the_example_brings_a_picture_back_mirrored_and_the_validation_layer_has_nothing_to_say() {
    let Some(printed) = example() else { return };
    for line in ["wrong bytes: 0 of 256000", "validation messages: 0"] {
        assert!(printed.lines().any(|printed| printed == line), "{line} is missing:\n{printed}");
    }
    assert!(printed.lines().any(|line| line.starts_with("1000 buffers (seed 7): ")), "{printed}");
    let picture = fs::read(scratch().join("mirrored.ppm")).expect("the example wrote it");
    let pixels = picture.strip_prefix(b"P6\n320 200\n255\n").expect("a PPM of the picture's size");
    assert_eq!(pixels.len(), 320 * 200 * 3);
    // The disc is painted at (90, 80), and lies at (229, 80) now.
    let at = |x: usize, y: usize| &pixels[3 * (y * 320 + x)..][..3];
    assert_eq!((at(229, 80)[0], at(229, 80)[1]), (250, 120));
    assert_eq!(usize::from(at(90, 80)[0]), 229 * 255 / 320);
}

#[test]
fn sanitizers_find_nothing() {
    if example().is_none() {
        return;
    }
    let sanitize = ["-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let flags = [STRICT, &sanitize, LINKED].concat();
    for (source, arguments) in [("tests/c/vulkan.c", &["--divide", "20"][..]), ("examples-c/vulkan.c", &[])] {
        let program = compile(source, &library("dev"), Link::Static, &flags);
        // Drivers leak, and one of the tests asks for a TiB.
        let options = "ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1";
        let arguments = [&[options, program.to_str().expect("a path in UTF-8")], arguments].concat();
        run(Path::new("env"), &arguments, Duration::from_secs(120));
    }
}

#[test]
fn the_example_in_the_header_compiles() {
    if !has_header("vulkan/vulkan.h", "libvulkan-dev") {
        return;
    }
    let code = example_in("include/slicepool_vulkan.h");
    let text = format!(
        "#include <vulkan/vulkan.h>\n#include \"slicepool_vulkan.h\"\n\
         int example(VkInstance instance, VkPhysicalDevice gpu, VkDevice logical, VkBuffer buffer, const void *vertices,\n\
         size_t size);\n\
         int example(VkInstance instance, VkPhysicalDevice gpu, VkDevice logical, VkBuffer buffer, const void *vertices,\n\
         size_t size) {{\n{code}\nreturn 0;\n}}\nint main(void) {{ return 0; }}\n"
    );
    for (extension, standard) in [("c", "-std=c99"), ("cpp", "-std=c++11")] {
        let source = write_source(&format!("vulkan_header.{extension}"), &text);
        compile(&source, &library("release"), Link::Static, &[&[standard], STRICT, LINKED].concat());
    }
}
