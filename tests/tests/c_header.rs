//! The header as compilers see it: every standard, C and C++, alone, twice, from two units, on other machines.

use slicepool_tests::{STRICT, compiler, has_header, has_tool, library, root, run, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::Duration;

const STANDARDS: &[(&str, bool)] = &[
    ("c99", false),
    ("c11", false),
    ("c17", false),
    ("gnu11", false),
    ("c++11", true),
    ("c++14", true),
    ("c++17", true),
    ("c++20", true),
];

/// A directory for this process and test.
fn directory(test: &str) -> PathBuf {
    let dir = scratch().join(format!("{test}-{}", process::id()));
    fs::create_dir_all(&dir).expect("the scratch directory is writable");
    dir
}

fn strict(standard: &str, cpp: bool) -> Vec<String> {
    let mut flags: Vec<_> = STRICT.iter().map(|flag| (*flag).to_owned()).collect();
    flags.push(format!("-std={standard}"));
    flags.extend(
        if cpp { ["-Wnon-virtual-dtor", "-Woverloaded-virtual"] } else { ["-Wstrict-prototypes", "-Wundef"] }
            .map(str::to_owned),
    );
    flags
}

fn compile_object(dir: &Path, name: &str, text: &str, standard: &str, cpp: bool, more: &[&str]) -> PathBuf {
    let source = dir.join(format!("{name}.{}", if cpp { "cpp" } else { "c" }));
    fs::write(&source, text).expect("the scratch directory is writable");
    let object = dir.join(format!("{name}.o"));
    let output = compiler(cpp)
        .args(strict(standard, cpp))
        .args(more)
        .arg("-I")
        .arg(root().join("include"))
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .expect("the compiler runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{standard}: {name}:\n{errors}");
    object
}

#[test]
fn the_header_compiles_alone_and_twice_under_every_standard() {
    let dir = directory("alone");
    for &(standard, cpp) in STANDARDS {
        compile_object(&dir, "alone", "#include \"slicepool.h\"\nint unused_name;\n", standard, cpp, &[]);
        let twice = "#include \"slicepool.h\"\n#include \"slicepool.h\"\nint unused_name;\n";
        compile_object(&dir, "twice", twice, standard, cpp, &[]);
    }
    let _ = fs::remove_dir_all(dir);
}

/// A compiler by name, what it comes with, and its flags.
const COMPILERS: &[(&str, &str, &[&str])] = &[
    ("gcc", "gcc", &[]),
    ("gcc", "gcc-multilib", &["-m32"]),
    ("clang", "clang", &[]),
    (
        "clang",
        "clang",
        &["-Weverything", "-Wno-padded", "-Wno-c++98-compat-pedantic", "-Wno-documentation-unknown-command"],
    ),
    ("arm-none-eabi-gcc", "gcc-arm-none-eabi", &["-ffreestanding", "-mthumb", "-mcpu=cortex-m4"]),
    ("x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64", &[]),
];

#[test]
fn the_header_is_clean_for_every_compiler_and_machine() {
    let dir = directory("compilers");
    let source = dir.join("alone.h");
    fs::write(&source, "#include \"slicepool.h\"\n").expect("the scratch directory is writable");
    for &(name, package, flags) in COMPILERS {
        if !has_tool(name, package) {
            continue;
        }
        // The cross compiler for Windows is one for C alone.
        for &(standard, cpp) in STANDARDS.iter().filter(|(_, cpp)| !(*cpp && name.contains("mingw"))) {
            let output = Command::new(name)
                .args(["-fsyntax-only", "-x", if cpp { "c++" } else { "c" }])
                .args(strict(standard, cpp))
                .args(flags)
                .arg("-I")
                .arg(root().join("include"))
                .arg(&source)
                .output()
                .expect("it was found");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && errors.is_empty(), "{name} {flags:?} {standard}:\n{errors}");
        }
    }
    let _ = fs::remove_dir_all(dir);
}

/// An adapter for devices.
struct Adapter {
    name: &'static str,
    /// A header that it includes, and what that comes with.
    needs: Option<(&'static str, &'static str)>,
    /// Ways to include it: each `@` stands for that line.
    texts: &'static [&'static str],
}

const ADAPTERS: &[Adapter] = &[
    Adapter {
        name: "slicepool_vulkan.h",
        needs: Some(("vulkan/vulkan_core.h", "libvulkan-dev")),
        texts: &["@@", "#define VK_NO_PROTOTYPES\n@"],
    },
    Adapter {
        name: "slicepool_opencl.h",
        needs: Some(("CL/cl.h", "opencl-c-headers")),
        texts: &["@@", "#define CL_TARGET_OPENCL_VERSION 120\n@"],
    },
    Adapter {
        name: "slicepool_cuda.h",
        needs: None,
        texts: &["@@", "#define SLICEPOOL_CUDA_OPEN\n@@", "@#define SLICEPOOL_CUDA_OPEN\n@"],
    },
];

#[test]
fn the_adapters_compile_alone_and_twice_under_every_standard_with_every_compiler() {
    let dir = directory("adapters");
    for &Adapter { name: adapter, needs, texts } in ADAPTERS {
        if needs.is_some_and(|(header, package)| !has_header(header, package)) {
            continue;
        }
        let sources: Vec<_> = (0..texts.len()).map(|number| dir.join(format!("{adapter}-{number}.h"))).collect();
        for (source, text) in sources.iter().zip(texts) {
            let text = text.replace('@', &format!("#include \"{adapter}\"\n"));
            fs::write(source, text).expect("the scratch directory is writable");
        }
        for &(name, package, flags) in COMPILERS {
            // Other machines' headers are not those of this one. Users' C++ compilers see installed headers as the
            // system's, where old-style casts are no matter.
            let elsewhere = name.contains('-') && needs.is_some();
            if elsewhere || name.contains("arm") || !has_tool(name, package) {
                continue;
            }
            let everything = flags.contains(&"-Weverything");
            for &(standard, cpp) in
                STANDARDS.iter().filter(|(_, cpp)| !(*cpp && (name.contains("mingw") || everything)))
            {
                let output = Command::new(name)
                    .args(["-fsyntax-only", "-x", if cpp { "c++" } else { "c" }])
                    .args(strict(standard, cpp))
                    .args(flags)
                    .arg("-I")
                    .arg(root().join("include"))
                    .args(&sources)
                    .output()
                    .expect("it was found");
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(
                    output.status.success() && errors.is_empty(),
                    "{adapter} {name} {flags:?} {standard}:\n{errors}"
                );
            }
        }
    }
    let _ = fs::remove_dir_all(dir);
}

#[test]
fn no_line_of_an_adapter_is_too_wide() {
    for Adapter { name, .. } in ADAPTERS {
        let header = root().join("include").join(name);
        let text = fs::read_to_string(&header).expect("the file is there");
        for (number, line) in text.lines().enumerate() {
            assert!(line.chars().count() <= 120, "{}:{}", header.display(), number + 1);
        }
    }
}

#[test]
fn the_header_needs_nothing_before_it_and_disturbs_nothing_after_it() {
    let dir = directory("order");
    let before = "#include \"slicepool.h\"\n#include <stdlib.h>\n#include <string.h>\n#include <stdbool.h>\n#include <math.h>\n\
        #include <unistd.h>\n#include <sched.h>\nint unused_name;\n";
    let after = "#include <stdlib.h>\n#include <string.h>\n#include <stdbool.h>\n#include <math.h>\n#include <unistd.h>\n\
        #include <sched.h>\n#include \"slicepool.h\"\nint unused_name;\n";
    for &(standard, cpp) in STANDARDS {
        compile_object(&dir, "before", before, standard, cpp, &[]);
        compile_object(&dir, "after", after, standard, cpp, &[]);
    }
    let _ = fs::remove_dir_all(dir);
}

/// All initialisers and some calls, in words that are both C99 and C++11.
const UNIT: &str = r#"
#include "slicepool.h"

int NAME(void);

static int32_t visit(void *user_data, const slicepool_range *range) {
  (void)range;
  ++*(int *)user_data;
  return SLICEPOOL_WALK_CONTINUE;
}

int NAME(void) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_host host = SLICEPOOL_HOST_INIT;
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  slicepool_space_config space_config = SLICEPOOL_SPACE_CONFIG_INIT;
  slicepool_space_slice piece = SLICEPOOL_SPACE_SLICE_INIT;
  slicepool_space_statistics space_figures = SLICEPOOL_SPACE_STATISTICS_INIT;
  slicepool_allocator *allocator = NULL;
  slicepool_space *space = NULL;
  int ranges = 0;
  pool.kind = SLICEPOOL_POOL_SLICED_PAGES;
  pool.page_size = 65536;
  config.pools = &pool;
  config.pool_count = 1;
  config.host = &host;
  config.failure = &failure;
  request.size = 100;
  space_config.size = 100;
  if (slicepool_host_device(&device) != SLICEPOOL_OK) return 1;
  if (slicepool_allocator_create(&device, &config, &allocator) != SLICEPOOL_OK) return 2;
  if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK) return 3;
  if (slicepool_statistics_get(allocator, &figures) != SLICEPOOL_OK || figures.slices != 1) return 4;
  if (slicepool_walk(allocator, visit, &ranges) != SLICEPOOL_OK || ranges != 2) return 5;
  if (slicepool_allocator_destroy(allocator, 0, &failure) != SLICEPOOL_ERROR_BUSY || failure.live != 1) return 6;
  if (slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL) != SLICEPOOL_OK) return 7;
  if (slicepool_space_create(&space_config, &space) != SLICEPOOL_OK) return 8;
  if (slicepool_space_allocate(space, 10, 1, &piece, NULL) != SLICEPOOL_OK || piece.size != 10) return 9;
  if (slicepool_space_statistics_get(space, &space_figures) != SLICEPOOL_OK || space_figures.free != 90) return 10;
  return slicepool_space_destroy(space);
}
"#;

#[test]
fn two_units_and_both_languages_make_one_program() {
    let dir = directory("units");
    for &(standard, cpp) in STANDARDS {
        let c = compile_object(&dir, "first", &UNIT.replace("NAME", "first"), "c99", false, &[]);
        let second = UNIT.replace("NAME", "second").replace("int second(void);", "LINKAGE int second(void);");
        let second = second.replace("LINKAGE", if cpp { "extern \"C\"" } else { "extern" });
        let second = compile_object(&dir, "second", &second, standard, cpp, &[]);
        let main = "int first(void);\nint second(void);\nint main(void) { return first() * 100 + second(); }\n";
        let main = compile_object(&dir, "main", main, "c11", false, &[]);
        let program = dir.join("program");
        let archive = library("dev").archive;
        let linked = compiler(cpp).args([&c, &second, &main, &archive]).arg("-o").arg(&program).status();
        assert!(linked.expect("the linker runs").success(), "{standard}");
        run(&program, &[], Duration::from_secs(10));
    }
    let _ = fs::remove_dir_all(dir);
}

#[test]
fn the_header_is_valid_without_a_hosted_c_library() {
    let dir = directory("freestanding");
    let text = "#include \"slicepool.h\"\nint unused_name;\n";
    compile_object(
        &dir,
        "freestanding",
        text,
        "c11",
        false,
        &["-ffreestanding", "-nostdinc", "-isystem", &builtin_headers()],
    );
    let _ = fs::remove_dir_all(dir);
}

/// Where the compiler keeps stddef.h and stdint.h of its own.
fn builtin_headers() -> String {
    let output = compiler(false).arg("-print-file-name=include").output().expect("the compiler runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
