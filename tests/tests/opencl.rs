//! The device adapter for OpenCL: `include/slicepool_opencl.h`, with a real device where there is one (PoCL will do).

use slicepool_tests::{
    Link, STRICT, Suite, compile, compiler, example_in, has_header, library, root, run, scratch, skip, write_source,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const DRIVER: &str = "install pocl-opencl-icd ocl-icd-libopencl1 opencl-c-headers";

const SLICES: &str = "tests/c/opencl.c";
const TYPES: &str = "tests/c/opencl_types.c";
const FAILURES: &str = "tests/c/opencl_failures.c";

/// Whether the headers are there; otherwise says that the test is skipped.
fn has_headers() -> bool {
    has_header("CL/cl.h", "opencl-c-headers")
}

/// Whether there is a device; otherwise says that the test is skipped.
fn has_device() -> bool {
    static ANSWER: OnceLock<String> = OnceLock::new();
    if !has_headers() {
        return false;
    }
    let answer = ANSWER.get_or_init(|| run(&Suite::checked(SLICES).program(&[]), &["--probe"], LIMIT));
    let found = answer.trim() == "found";
    if !found {
        skip(&format!("OpenCL: {}; {DRIVER}", answer.trim()));
    }
    found
}

/// Makes a test of each test of a C program, as `c_tests!` does, but only where there is a device.
macro_rules! device_tests {
    ($name:ident, $source:expr; $($test:ident),+ $(,)?) => {
        mod $name {
            mod checked_and_static {
                $(#[test] fn $test() {
                    if crate::has_device() { crate::Suite::checked($source).run(stringify!($test)); }
                })+
                #[test]
                fn every_test_of_the_program_is_run() {
                    if crate::has_headers() { crate::Suite::checked($source).assert_complete(&[$(stringify!($test)),+]); }
                }
            }
            mod released_and_shared {
                $(#[test] fn $test() {
                    if crate::has_device() { crate::Suite::released($source).run(stringify!($test)); }
                })+
                #[test]
                fn every_test_of_the_program_is_run() {
                    if crate::has_headers() { crate::Suite::released($source).assert_complete(&[$(stringify!($test)),+]); }
                }
            }
        }
    };
}

device_tests! { slices, crate::SLICES;
    neighbours_that_kernels_write_to_do_not_touch_each_other,
    an_overlap_of_one_granule_is_found,
    many_slices_of_random_sizes_keep_what_was_written_to_them,
    sub_buffers_begin_where_slices_do,
    requests_are_aligned_to_what_the_device_wants,
    sub_buffers_that_cannot_be_are_refused,
    pages_of_the_host_are_mapped_for_a_time,
    one_slice_can_be_mapped_while_a_kernel_writes_to_its_neighbour,
    pages_of_the_device_can_be_mapped_too,
    a_page_is_unmapped_from_where_it_was_mapped,
    coarse_grain_memory_is_mapped_and_kernels_take_its_address,
    fine_grain_memory_is_mapped_for_good,
    shared_virtual_memory_is_aligned_above_what_the_driver_knows,
    zeroed_slices_are_zero_and_their_neighbours_are_not,
    scrubbed_slices_are_zero_once_they_are_freed,
    without_a_queue_nothing_is_filled_or_mapped,
}

device_tests! { types, crate::TYPES;
    what_the_device_says_is_what_is_described,
    a_device_with_memory_of_its_own_has_two_heaps,
    shared_virtual_memory_is_described_as_far_as_it_is_there,
    pages_are_made_with_the_flags_of_their_type,
    without_shared_virtual_memory_there_are_two_types,
    a_request_chooses_by_properties,
    who_wants_a_buffer_never_gets_shared_virtual_memory,
    bad_arguments_are_refused_and_change_nothing,
    functions_are_loaded_by_name_and_some_may_be_missing,
}

device_tests! { failures, crate::FAILURES;
    a_tebibyte_is_refused_by_the_driver_and_changes_nothing,
    what_the_device_cannot_have_is_refused_before_it_is_asked,
    resident_pages_say_at_once_that_there_is_no_memory,
    whichever_call_fails_nothing_is_left_and_the_result_is_right,
    codes_mean_what_they_say,
    a_command_that_fails_later_tells_its_own_code,
    a_buffer_that_is_not_released_stays_and_is_released_later,
    a_buffer_of_the_program_is_adopted_and_released,
    shared_virtual_memory_of_the_program_is_adopted_and_freed,
    callbacks_of_the_program_find_its_own_data,
    threads_share_an_adapter,
}

/// The example, compiled.
fn example(link: Link) -> PathBuf {
    compile("examples-c/opencl.c", &library("release"), link, &[&["-std=c11"], STRICT].concat())
}

#[test]
fn the_example_adds_slices_of_one_buffer() {
    if !has_device() {
        return;
    }
    for link in [Link::Shared, Link::Static] {
        let printed = run(&example(link), &[], LIMIT);
        let lines: Vec<_> = printed.lines().collect();
        let [first, second, third, buffers, sums] = lines[..] else { panic!("other lines:\n{printed}") };
        assert_eq!(buffers, "buffers: 1");
        assert_eq!(sums, "sums: 100000 of 100000 right");
        // The slices lie one behind the other.
        let mut end = 0;
        for (i, line) in [first, second, third].into_iter().enumerate() {
            let rest = line.strip_prefix(&format!("slice {i}: ")).expect("a slice");
            let (size, offset) = rest.split_once(" bytes at ").expect("size and offset");
            assert_eq!(offset.parse(), Ok(end));
            end += size.parse::<u64>().expect("a number");
        }
    }
}

#[test]
fn the_example_says_that_it_is_skipped_where_there_is_no_driver() {
    if !has_device() {
        return;
    }
    // The loader looks for drivers there.
    let output = Command::new(example(Link::Static))
        .env("OCL_ICD_VENDORS", "/nonexistent/")
        .env("OCL_ICD_FILENAMES", "")
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "SKIPPED: no OpenCL device\n");
}

#[test]
fn the_example_is_short_enough_to_read() {
    let source = fs::read_to_string(root().join("examples-c/opencl.c")).expect("the file is there");
    assert!(source.lines().count() <= 150);
}

/// Everything in the header is used, in words that are both C99 and C++11.
const UNIT: &str = r#"
#include "slicepool_opencl.h"
#include "slicepool_opencl.h"

slicepool_result use(slicepool_opencl *opencl, slicepool_opencl_getter_fn getter, cl_context context, cl_device_id id,
                     cl_command_queue queue, const slicepool_slice *slice, cl_mem *buffer);

slicepool_result use(slicepool_opencl *opencl, slicepool_opencl_getter_fn getter, cl_context context, cl_device_id id,
                     cl_command_queue queue, const slicepool_slice *slice, cl_mem *buffer) {
  slicepool_opencl_functions functions;
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_result result;
  int32_t code = 0;
  SLICEPOOL_OPENCL_LINKED(&functions);
  result = slicepool_opencl_load(&functions, getter, opencl);
  if (result != SLICEPOOL_OK) return result;
  opencl->flags = SLICEPOOL_OPENCL_FLAG_SVM | SLICEPOOL_OPENCL_FLAG_RESIDENT;
  result = slicepool_opencl_init(opencl, &functions, context, id, queue);
  if (result != SLICEPOOL_OK) return result;
  slicepool_opencl_device(opencl, &device);
  slicepool_opencl_describe(opencl, &config);
  slicepool_opencl_request(opencl, 4096, SLICEPOOL_OPENCL_HOST | SLICEPOOL_OPENCL_DEVICE, &request);
  if (slicepool_opencl_buffer(slice) == *buffer) return slicepool_opencl_result(code);
  return slicepool_opencl_sub_buffer(opencl, slice, 0, buffer, &code);
}
"#;

/// Compiles a text, and returns what the compiler says.
fn said_of(text: &str, cpp: bool, flags: &[&str]) -> Result<(), String> {
    let source = scratch().join(format!("opencl-unit-{}.{}", process::id(), if cpp { "cpp" } else { "c" }));
    fs::write(&source, text).expect("it is writable");
    let mut command = compiler(cpp);
    command.args(STRICT).args(flags).arg("-fsyntax-only").arg("-I").arg(root().join("include")).arg(&source);
    let output = command.output().expect("the compiler runs");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn everything_in_the_header_can_be_used_in_both_languages_and_for_every_version_of_opencl() {
    if !has_headers() {
        return;
    }
    for (standard, cpp) in [("-std=c99", false), ("-std=c++11", true)] {
        for version in [120, 200, 210, 220, 300] {
            let version = format!("-DCL_TARGET_OPENCL_VERSION={version}");
            assert_eq!(said_of(UNIT, cpp, &[standard, &version]), Ok(()));
        }
        assert_eq!(said_of(UNIT, cpp, &[standard]), Ok(()));
        let said = said_of(UNIT, cpp, &[standard, "-DCL_TARGET_OPENCL_VERSION=110"]).expect_err("that is too old");
        assert!(said.contains("needs the headers of OpenCL 1.2"), "{said}");
    }
}

/// Parts of a program may be compiled for different versions of OpenCL.
#[test]
fn the_adapter_is_laid_out_alike_for_every_version_of_opencl() {
    if !has_headers() {
        return;
    }
    let text = "#include \"slicepool_opencl.h\"\n#include <stdio.h>\nint main(void) {\n\
        printf(\"%zu %zu %zu %zu %zu\", sizeof(slicepool_opencl), sizeof(slicepool_opencl_functions),\n\
        offsetof(slicepool_opencl, context), offsetof(slicepool_opencl, memory_flags),\n\
        offsetof(slicepool_opencl_functions, clSVMAlloc));\n  return 0;\n}\n";
    let source = write_source("opencl_layout.c", text);
    let printed = [120, 200, 210, 220, 300].map(|version| {
        let version = format!("-DCL_TARGET_OPENCL_VERSION={version}");
        let flags = [&["-std=c11", &version], STRICT].concat();
        run(&compile(&source, &library("release"), Link::Nothing, &flags), &[], LIMIT)
    });
    assert!(!printed[0].is_empty() && printed.iter().all(|one| *one == printed[0]), "{printed:?}");
}

#[test]
fn sanitizers_find_nothing() {
    if !has_device() {
        return;
    }
    let flags = [STRICT, &["-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]].concat();
    for source in [SLICES, TYPES, FAILURES, "examples-c/opencl.c"] {
        let program = compile(source, &library("dev"), Link::Static, &flags);
        // Drivers leak.
        let arguments = ["ASAN_OPTIONS=detect_leaks=0", program.to_str().expect("a path in UTF-8")];
        run(Path::new("env"), &arguments, Duration::from_secs(120));
    }
}

/// The program in the header's introduction, linked with OpenCL.
#[test]
fn the_program_in_the_header_runs() {
    if !has_device() {
        return;
    }
    let code = example_in("include/slicepool_opencl.h");
    let text = format!(
        "#define CL_TARGET_OPENCL_VERSION 300\n#include \"slicepool_opencl.h\"\n{code}\n\
        int main(void) {{\n  const char *source = \"kernel void one(global int *memory) {{ *memory = 1; }}\";\n\
        cl_platform_id platform;\n  cl_device_id id;\n\
        if (clGetPlatformIDs(1, &platform, NULL) != 0) return 1;\n\
        if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &id, NULL) != 0) return 2;\n\
        cl_context context = clCreateContext(NULL, 1, &id, NULL, NULL, NULL);\n\
        cl_command_queue queue = clCreateCommandQueueWithProperties(context, id, NULL, NULL);\n\
        cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, NULL);\n\
        if (clBuildProgram(program, 1, &id, \"\", NULL, NULL) != 0) return 3;\n\
        return run(context, id, queue, clCreateKernel(program, \"one\", NULL)) == SLICEPOOL_OK ? 0 : 4;\n}}\n"
    );
    let source = write_source("opencl_header.c", &text);
    // By its file name, which is there without files for developers.
    let flags = [&["-std=c11", "-l:libOpenCL.so.1"], STRICT].concat();
    run(&compile(&source, &library("release"), Link::Static, &flags), &[], LIMIT);
}
