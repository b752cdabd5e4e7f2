//! The header is generated from the sources and checked in: this regenerates it and compares bytes. What its comments have to
//! say, and that their examples work.

use slicepool_tests::{STRICT, compiler, header, library, root, run, scratch};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use std::{env, fs, process};

/// The sections of the header in order, and the files they are made from: `capi/src/pool.rs`, and what comes before that,
/// `capi/header/pool.txt`, if there is such a file.
const SECTIONS: &[(&str, &str)] = &[
    ("Version", "version"),
    ("Results", "result"),
    ("Pages", "page"),
    ("Events", "event"),
    ("Device", "device"),
    ("Host", "host"),
    ("Memory: types, heaps, sizes of blocks", "memory"),
    ("Pools", "pool"),
    ("Budgets: limits that allocators share", "budget"),
    ("Allocator", "allocator"),
    ("Requests", "request"),
    ("Slices", "slice"),
    ("Names and user data", "label"),
    ("Mapping and caches", "mapping"),
    ("Frees that wait for the device", "waiting"),
    ("Dry runs and plans", "planning"),
    ("Statistics", "statistics"),
    ("Space: the slicer alone, for any index space", "space"),
    ("Buffer pools: configuration", "buffer/config"),
    ("Buffer pools: what a configuration comes to", "buffer/classes"),
    ("Buffer pools", "buffer/pool"),
    ("Buffer caches: buffers that one thread keeps for itself", "buffer/cache"),
    ("Buffers", "buffer/raw"),
    ("Buffer pools: figures and regions", "buffer/statistics"),
    ("For bindings", "abi"),
];

fn generate() -> String {
    let root = root();
    let text = |path: &str| fs::read_to_string(root.join(path)).expect("the file is there");
    let introduction = text("capi/header/introduction.txt");
    let titles: String = SECTIONS.iter().map(|(title, _)| format!("\n    {title}")).collect();
    let mut header = comment(&format!("{introduction}\nSECTIONS, in this order:\n{titles}"));
    header.push_str(
        "\n#ifndef SLICEPOOL_H\n#define SLICEPOOL_H\n\n/* Generated from capi/src; do not edit: `make bless`. */\n\n",
    );
    header.push_str("#include <stddef.h>\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml is valid");
    for (title, module) in SECTIONS {
        let source = root.join("capi/src").join(module).with_extension("rs");
        let mut config = config.clone();
        // Types that no function of their own section names would be left out.
        config.export.include = public_types(&fs::read_to_string(&source).expect("the file is there"));
        let bindings = cbindgen::Builder::new().with_config(config).with_src(source).generate();
        let mut section = Vec::new();
        bindings.unwrap_or_else(|error| panic!("{module}: {error}")).write(&mut section);
        let section = String::from_utf8(section).expect("cbindgen writes UTF-8");
        let rule = "-".repeat(114);
        let section = tidy(section.trim());
        let words = fs::read_to_string(root.join("capi/header").join(module).with_extension("txt"));
        let words = words.map_or(String::new(), |words| comment(&words) + "\n");
        write!(header, "\n/* {rule}\n * {title}\n * {rule} */\n\n{words}{section}\n").expect("writing to a string");
    }
    header.push('\n');
    header.push_str(&text("capi/header/initialisers.h"));
    header.push_str("\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n\n#endif /* SLICEPOOL_H */\n");
    header
}

fn comment(text: &str) -> String {
    let lines: String = text.trim_end().lines().map(|line| format!(" * {line}").trim_end().to_owned() + "\n").collect();
    format!("/*\n{lines} */\n")
}

fn public_types(source: &str) -> Vec<String> {
    let name = |line: &str| {
        let rest = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub type "))?;
        Some(rest.split([' ', ';']).next()?.to_owned())
    };
    source.lines().filter_map(name).collect()
}

/// Comments of one line on one line, and negative constants in parentheses.
fn tidy(section: &str) -> String {
    let lines: Vec<_> = section.lines().collect();
    let mut tidied = Vec::new();
    let mut i = 0;
    while i < lines.len() {
        let (indent, text) = lines[i].split_at(lines[i].len() - lines[i].trim_start().len());
        if text == "/**" && lines.get(i + 2).is_some_and(|end| end.trim() == "*/") {
            tidied.push(format!("{indent}/** {} */", lines[i + 1].trim().trim_start_matches("* ")));
            i += 3;
            continue;
        }
        match text.split_once(" -") {
            Some((name, value)) if name.starts_with("#define ") => tidied.push(format!("{name} (-{value})")),
            _ => tidied.push(lines[i].to_owned()),
        }
        i += 1;
    }
    tidied.join("\n")
}

#[test]
fn the_header_that_is_checked_in_is_what_the_sources_say() {
    let path = root().join("include/slicepool.h");
    let generated = generate();
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &generated).expect("the header is writable");
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    if let Some((line, (is, should))) =
        present.lines().zip(generated.lines()).enumerate().find(|(_, (is, should))| is != should)
    {
        panic!("include/slicepool.h is stale at line {}: `{is}` should be `{should}`; run `make bless`", line + 1);
    }
    assert!(present == generated, "include/slicepool.h is stale: it ends too early or too late; run `make bless`");
}

#[test]
fn every_source_file_with_public_items_has_a_section() {
    let modules_in = |file: &str| -> Vec<String> {
        let text = fs::read_to_string(root().join("capi/src").join(file)).expect("the file is there");
        text.lines().filter_map(|line| Some(line.strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned())).collect()
    };
    // A folder's modules have sections, it has none.
    let below = |module: String| match root().join("capi/src").join(&module).is_dir() {
        true => modules_in(&format!("{module}/mod.rs")).iter().map(|below| format!("{module}/{below}")).collect(),
        false => vec![module],
    };
    let modules: Vec<_> = modules_in("lib.rs").into_iter().flat_map(below).collect();
    let sections: Vec<_> = SECTIONS.iter().map(|(_, module)| *module).collect();
    assert_eq!(modules, sections);
    assert!(Path::new(&root().join("capi/src/runtime.rs")).exists());
}

/// A comment of the header, and the declaration behind it.
struct Documented {
    comment: String,
    declaration: String,
}

fn documented() -> Vec<Documented> {
    let text = fs::read_to_string(root().join("include/slicepool.h")).expect("the header is there");
    let parts = text.split("/*").skip(1).filter_map(|part| part.split_once("*/"));
    let words = |comment: &str| {
        let lines = comment.lines().map(|line| line.trim_start().trim_start_matches(['*']).trim_end());
        lines.map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n").collect()
    };
    parts
        .map(|(comment, behind)| Documented { comment: words(comment), declaration: behind.trim().to_owned() })
        .collect()
}

#[test]
fn every_function_says_what_it_answers_who_may_call_it_and_what_it_costs() {
    let comments = documented();
    for name in header().functions {
        // The size of a struct says it all.
        if name.starts_with("slicepool_sizeof_") {
            continue;
        }
        let call = format!("{name}(");
        let of_the_function = comments.iter().filter(|it| {
            let declaration = it.declaration.split(';').next().unwrap_or_default();
            !declaration.contains("typedef") && declaration.contains(&call)
        });
        let [Documented { comment, .. }] = of_the_function.collect::<Vec<_>>()[..] else {
            panic!("{name}: no comment")
        };
        for wanted in ["@return ", "Threads: ", "Cost: "] {
            assert!(comment.contains(wanted), "{name}: no `{wanted}` in:\n{comment}");
        }
    }
}

#[test]
fn no_comment_has_lines_that_are_too_long_to_read() {
    let text = fs::read_to_string(root().join("include/slicepool.h")).expect("the header is there");
    let is_comment = |line: &str| line.trim_start().starts_with('*') || line.trim_start().starts_with("/**");
    let long: Vec<_> = text.lines().filter(|line| is_comment(line) && line.chars().count() > 120).collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// What surrounds an example that is no program of its own.
const AROUND: (&str, &str) = (
    "#include \"slicepool.h\"\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\nint main(void) {\n\
     slicepool_device device = SLICEPOOL_DEVICE_INIT;\nslicepool_allocator *allocator = NULL;\n\
     if (slicepool_host_device(&device) != SLICEPOOL_OK) return 101;\n\
     if (slicepool_allocator_create(&device, NULL, &allocator) != SLICEPOOL_OK) return 102;\n{\n",
    "}\nreturn slicepool_allocator_destroy(allocator, 0, NULL) == SLICEPOOL_OK ? 0 : 103;\n}\n",
);

#[test]
fn the_examples_in_comments_compile_without_warnings_and_work() {
    let mut examples = 0;
    for Documented { comment, .. } in documented() {
        let Some((_, code)) = comment.split_once("@code\n") else { continue };
        let (code, _) = code.split_once("@endcode").expect("an example ends");
        let program = match code.contains("int main(") {
            true => format!("#include \"slicepool.h\"\n#include <stdlib.h>\n#include <string.h>\n\n{code}"),
            false => format!("{}{code}{}", AROUND.0, AROUND.1),
        };
        examples += 1;
        let source = scratch().join(format!("example-{examples}-{}.c", process::id()));
        fs::write(&source, program).expect("the scratch directory is writable");
        let built = source.with_extension("");
        let output = compiler(false)
            .args(STRICT)
            .arg("-std=c11")
            .arg("-I")
            .arg(root().join("include"))
            .args([&source, &library("dev").archive])
            .arg("-o")
            .arg(&built)
            .output()
            .expect("the compiler runs");
        assert!(output.status.success(), "{code}\n{}", String::from_utf8_lossy(&output.stderr));
        println!("{code}");
        run(&built, &[], Duration::from_secs(10));
        let _ = (fs::remove_file(source), fs::remove_file(built));
    }
    assert!(examples >= 10, "{examples} examples");
}
