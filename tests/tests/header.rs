//! The header is generated from the sources and checked in: this regenerates it and compares bytes.

use slicepool_tests::root;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

/// The sections of the header in order, and the files they are made from.
const SECTIONS: &[(&str, &str)] = &[
    ("Version", "version"),
    ("Results", "result"),
    ("Memory: types, heaps, sizes of blocks", "memory"),
    ("Pages", "page"),
    ("Events", "event"),
    ("Device", "device"),
    ("Host", "host"),
    ("Pools", "pool"),
    ("Budgets: limits that allocators share", "budget"),
    ("Allocator", "allocator"),
    ("Slices", "slice"),
    ("Names and user data", "label"),
    ("Mapping and caches", "mapping"),
    ("Frees that wait for the device", "waiting"),
    ("Dry runs and plans", "planning"),
    ("Statistics", "statistics"),
    ("Space: the slicer alone, for any index space", "space"),
    ("Buffer pools: what they are asked for", "buffer/config"),
    ("Buffer pools: what a config comes to", "buffer/classes"),
    ("Buffer pools", "buffer/pool"),
    ("Caches: buffers that one thread keeps for itself", "buffer/cache"),
    ("Buffers", "buffer/raw"),
    ("Figures and regions of buffer pools", "buffer/statistics"),
    ("For bindings", "abi"),
];

fn generate() -> String {
    let root = root();
    let text = |path: &str| fs::read_to_string(root.join(path)).expect("the file is there");
    let mut header = text("capi/header/introduction.h");
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
        let rule = "-".repeat(116);
        let section = tidy(section.trim());
        write!(header, "\n/* {rule}\n * {title}\n * {rule} */\n\n{section}\n").expect("writing to a string");
    }
    header.push('\n');
    header.push_str(&text("capi/header/initialisers.h"));
    header.push_str("\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n\n#endif /* SLICEPOOL_H */\n");
    header
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
