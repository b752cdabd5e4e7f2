//! Structs, constants and initialisers as C sees them.

use slicepool_tests::{Link, STRICT, compile, compiler, golden, header, library, root, run, scratch, skip};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::OnceLock;
use std::time::Duration;

/// A program made from the header, so that it forgets nothing.
fn generated(name: &str, body: &str) -> String {
    let text = format!(
        "#include <stdio.h>\n#include <string.h>\n#include \"slicepool.h\"\n\nint main(void) {{\n{body}  return 0;\n}}\n"
    );
    let path = scratch().join(format!("{name}-{}.c", process::id()));
    fs::write(&path, text).expect("the scratch directory is writable");
    let flags = [STRICT, &["-std=c11"]].concat();
    let program = compile(path.to_str().expect("a path in UTF-8"), &library("dev"), Link::Static, &flags);
    let output = run(&program, &[], Duration::from_secs(10));
    let _ = fs::remove_file(program);
    let _ = fs::remove_file(path);
    output
}

fn constants_as_c_sees_them() -> &'static BTreeMap<String, i64> {
    static SEEN: OnceLock<BTreeMap<String, i64>> = OnceLock::new();
    SEEN.get_or_init(|| {
        let mut body = String::new();
        for (name, _) in &header().constants {
            writeln!(body, "  printf(\"{name} %lld\\n\", (long long){name});").expect("writing to a string");
        }
        let value = |line: &str| {
            let (name, value) = line.split_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        };
        generated("constants", &body).lines().map(value).collect()
    })
}

/// The `pub const`s of the sources.
fn constants_of_the_sources() -> BTreeMap<String, i64> {
    let mut constants = BTreeMap::new();
    let files = ["capi/src", "capi/src/buffer"].map(|folder| fs::read_dir(root().join(folder)).expect("a folder"));
    for path in files.into_iter().flatten().map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()) {
        let text = fs::read_to_string(path).expect("a text");
        for line in text.lines().filter_map(|line| line.strip_prefix("pub const ")) {
            let (name, rest) = line.split_once(':').expect("a constant has a type");
            let (_, value) = rest.split_once('=').expect("a constant has a value");
            let value = value.trim().trim_end_matches(';').replace('_', "");
            constants.insert(name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{name} is {value}")));
        }
    }
    constants
}

#[test]
fn every_constant_has_the_value_of_the_sources() {
    let seen = constants_as_c_sees_them();
    assert_eq!(*seen, constants_of_the_sources());
    assert!(seen.len() > 30, "{seen:?}");
}

#[test]
fn numbers_of_constants_are_pinned() {
    let mut text = String::new();
    for (name, value) in constants_as_c_sees_them() {
        if !name.contains("_VERSION_") || name.contains("ERROR") {
            writeln!(text, "{name} {value}").expect("writing to a string");
        }
    }
    golden("constants.txt", &text);
}

#[test]
fn result_codes_are_distinct() {
    let seen = constants_as_c_sees_them();
    let codes: BTreeMap<_, _> =
        seen.iter().filter(|(name, _)| name.starts_with("SLICEPOOL_ERROR_")).map(|(name, code)| (code, name)).collect();
    assert_eq!(codes.len(), seen.keys().filter(|name| name.starts_with("SLICEPOOL_ERROR_")).count());
    assert!(codes.keys().all(|&&code| code < 0));
}

#[test]
fn the_version_is_composed_right_and_that_of_the_library() {
    let output = generated(
        "version",
        "  printf(\"%u %u %u %u %u\\n\", (unsigned)SLICEPOOL_VERSION_MAJOR, (unsigned)SLICEPOOL_VERSION_MINOR,\n\
         (unsigned)SLICEPOOL_VERSION_PATCH, (unsigned)SLICEPOOL_VERSION_NUMBER, (unsigned)slicepool_version());\n",
    );
    let numbers: Vec<u32> = output.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    let [major, minor, patch, composed, library] = numbers[..] else { panic!("{output}") };
    assert_eq!(format!("{major}.{minor}.{patch}"), env!("CARGO_PKG_VERSION"));
    assert_eq!(composed, major * 1_000_000 + minor * 1000 + patch);
    assert_eq!(library, composed);
}

#[test]
fn structs_lie_in_memory_as_pinned_and_without_holes() {
    let mut body = String::new();
    for object in &header().structs {
        let name = &object.name;
        writeln!(body, "  {{ size_t end = 0;").expect("writing to a string");
        for field in &object.fields {
            writeln!(
                body,
                "    if (offsetof({name}, {field}) != end) return 1;\n    end += sizeof((({name} *)0)->{field});\n    \
                 printf(\"{name}.{field} %d %d\\n\", (int)offsetof({name}, {field}), (int)sizeof((({name} *)0)->{field}));"
            )
            .expect("writing to a string");
        }
        writeln!(body, "    if (sizeof({name}) != end) return 2;\n    printf(\"{name} %d\\n\", (int)end); }}")
            .expect("writing to a string");
    }
    let output = generated("layout", &body);
    if cfg!(target_pointer_width = "64") {
        golden("layout-64.txt", &output);
    }
}

/// Structs that will not grow, and so do not tell their size.
const FIXED: &[&str] = &["slicepool_point"];

/// Assertions that hold for a struct without holes, wherever 64-bit numbers are aligned to 8 bytes (ARM) or to 4 (x86).
fn assertions() -> String {
    let mut text = "#include \"slicepool.h\"\n".to_owned();
    for object in &header().structs {
        let name = &object.name;
        let mut sum = "0".to_owned();
        for field in &object.fields {
            let size = format!("sizeof((({name} *)0)->{field})");
            writeln!(text, "_Static_assert(offsetof({name}, {field}) == {sum}, \"{name}.{field}\");")
                .expect("writing to a string");
            // The only arrays are of numbers of 32 bits.
            writeln!(
                text,
                "_Static_assert(offsetof({name}, {field}) % ({size} > 8 ? 4 : {size}) == 0, \"{name}.{field} is not \
                 aligned\");"
            )
            .expect("writing to a string");
            write!(sum, " + {size}").expect("writing to a string");
        }
        writeln!(text, "_Static_assert(sizeof({name}) == {sum}, \"{name}\");").expect("writing to a string");
        writeln!(
            text,
            "_Static_assert(sizeof({name}) % 8 == 0, \"{name} ends with a hole where 64-bit numbers are aligned\");"
        )
        .expect("writing to a string");
        if !FIXED.contains(&name.as_str()) {
            writeln!(text, "_Static_assert(offsetof({name}, struct_size) == 0, \"{name}\");")
                .expect("writing to a string");
        }
    }
    text
}

fn compiles(name: &str, text: &str, flags: &[&str]) -> Result<(), String> {
    let source = scratch().join(format!("{name}-{}.c", process::id()));
    let object: PathBuf = source.with_extension("o");
    fs::write(&source, text).expect("the scratch directory is writable");
    let output = compiler(false)
        .args(STRICT)
        .arg("-std=c11")
        .args(flags)
        .arg("-I")
        .arg(root().join("include"))
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .expect("the compiler runs");
    let _ = fs::remove_file(&source);
    let _ = fs::remove_file(&object);
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn structs_have_no_holes_on_64_bit_hosts() {
    compiles("holes-64", &assertions(), &[]).unwrap_or_else(|errors| panic!("{errors}"));
}

#[test]
fn structs_have_no_holes_on_32_bit_hosts() {
    // Freestanding, so that the compiler's own headers are enough.
    let flags = ["-m32", "-ffreestanding"];
    if compiles("empty-32", "#include <stdint.h>\nint unused_name;\n", &flags).is_err() {
        return skip("the compiler does not know -m32; install gcc-multilib");
    }
    let narrow = "_Static_assert(sizeof(void *) == 4, \"32 bits\");\n";
    compiles("holes-32", &(assertions() + narrow), &flags).unwrap_or_else(|errors| panic!("{errors}"));
}

#[test]
fn every_struct_has_a_function_that_tells_its_size() {
    let header = header();
    let mut body = String::new();
    for object in &header.structs {
        let (name, sizeof) = (&object.name, object.name.replacen("slicepool_", "slicepool_sizeof_", 1));
        assert!(header.functions.contains(&sizeof), "{sizeof} is missing");
        writeln!(body, "  printf(\"{name} %d\\n\", {sizeof}() == sizeof({name}));").expect("writing to a string");
    }
    let output = generated("sizeof", &body);
    assert!(output.lines().all(|line| line.ends_with(" 1")), "{output}");
    assert_eq!(output.lines().count(), header.structs.len());
    let sizeof_functions = header.functions.iter().filter(|name| name.starts_with("slicepool_sizeof_")).count();
    assert_eq!(sizeof_functions, header.structs.len());
}

/// Structs that only the library fills in, and hands to callbacks.
const OF_THE_LIBRARY: &[&str] = &[
    "slicepool_page_request",
    "slicepool_cache_range",
    "slicepool_event",
    "slicepool_shortage",
    "slicepool_fill_request",
];

#[test]
fn initialisers_are_the_defaults() {
    let header = header();
    let mut body = String::new();
    for object in &header.structs {
        let name = &object.name;
        let initialiser = format!("{}_INIT", name.to_uppercase());
        let has_none = [OF_THE_LIBRARY, FIXED].concat().contains(&name.as_str());
        assert_ne!(header.initialisers.contains(&initialiser), has_none, "{initialiser}");
        if has_none {
            continue;
        }
        writeln!(
            body,
            "  {{ const {name} written = {initialiser};\n    {name} filled;\n    memset(&filled, 0xEE, sizeof filled);\n    \
             if (slicepool_struct_default(&filled, (uint32_t)sizeof filled) != SLICEPOOL_OK) return 1;\n    \
             if (written.struct_size != sizeof written) return 2;\n    \
             printf(\"{name} %d\\n\", memcmp(&written, &filled, sizeof filled) == 0); }}"
        )
        .expect("writing to a string");
    }
    let output = generated("initialisers", &body);
    assert!(output.lines().all(|line| line.ends_with(" 1")), "{output}");
    assert_eq!(output.lines().count(), header.initialisers.len());
}
