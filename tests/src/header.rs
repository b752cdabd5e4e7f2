//! What `include/slicepool.h` declares, read from its text: so that no test can forget what is new.

use crate::root;
use std::collections::BTreeSet;
use std::fs;

/// A struct of the header.
#[derive(Clone, Debug)]
pub struct Struct {
    /// Its name.
    pub name: String,
    /// Names of its fields, in order.
    pub fields: Vec<String>,
}

/// The declarations of the header.
#[derive(Clone, Debug)]
pub struct Header {
    /// Names of all functions.
    pub functions: BTreeSet<String>,
    /// All structs whose fields are visible, in order.
    pub structs: Vec<Struct>,
    /// Names and values of the constants, in order, as they are written.
    pub constants: Vec<(String, String)>,
    /// Names of the macros that initialise a struct.
    pub initialisers: Vec<String>,
}

/// Reads the header that is checked in.
pub fn header() -> Header {
    let text = fs::read_to_string(root().join("include/slicepool.h")).expect("the header is there");
    parse(&text)
}

fn parse(text: &str) -> Header {
    let mut header =
        Header { functions: BTreeSet::new(), structs: Vec::new(), constants: Vec::new(), initialisers: Vec::new() };
    let text = without_comments(text).replace("\\\n", " ");
    let mut code = String::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(define) = line.strip_prefix("#define ") {
            let (name, value) = define.split_once(' ').unwrap_or((define, ""));
            match value.trim() {
                "" => {}
                value if value.starts_with('{') => header.initialisers.push(name.to_owned()),
                value => header.constants.push((name.to_owned(), value.trim_matches(['(', ')']).to_owned())),
            }
        } else if !line.starts_with('#') {
            code.push_str(line);
            code.push('\n');
        }
    }
    read_structs(&code, &mut header.structs);
    read_functions(&code, &mut header.functions);
    header
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let mut code = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        code.push_str(part.split_once("*/").map_or("", |(_, after)| after));
    }
    code
}

fn read_structs(code: &str, structs: &mut Vec<Struct>) {
    for part in code.split("typedef struct ").skip(1) {
        let Some((name, rest)) = part.split_once(|c: char| c.is_whitespace()) else { continue };
        let Some(body) = rest.trim_start().strip_prefix('{') else { continue };
        let Some((body, _)) = body.split_once('}') else { continue };
        let fields = body.split(';').filter_map(|field| {
            let name = field.trim().rsplit([' ', '*']).next()?.split('[').next()?;
            (!name.is_empty()).then(|| name.to_owned())
        });
        structs.push(Struct { name: name.to_owned(), fields: fields.collect() });
    }
}

fn read_functions(code: &str, functions: &mut BTreeSet<String>) {
    let mut before = code;
    while let Some(at) = before.rfind('(') {
        before = &before[..at];
        let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        if name.starts_with("slicepool_") && name != "slicepool_result" {
            functions.insert(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_of_every_kind_are_found() {
        let text = "/* slicepool_no(void); */\n#ifndef X\n#define X\n/** One. */\n#define A_ONE 1\n#define A_TWO (-2)\n\
            #define B_INIT \\\n  { 0, NULL }\ntypedef int32_t slicepool_result;\ntypedef struct slicepool_opaque \
            slicepool_opaque;\ntypedef struct slicepool_b {\n  /** Size; always. */\n  uint32_t size;\n  int32_t list[32];\n  void *at;\n} \
            slicepool_b;\ntypedef slicepool_result (*slicepool_call_fn)(void *p,\n  int q);\nslicepool_result \
            slicepool_c(struct slicepool_b *b,\n  slicepool_call_fn call);\nuint32_t slicepool_d(void);\n";
        let header = parse(text);
        assert_eq!(header.functions.iter().collect::<Vec<_>>(), ["slicepool_c", "slicepool_d"]);
        assert_eq!(header.structs.len(), 1);
        assert_eq!(header.structs[0].fields, ["size", "list", "at"]);
        let constants: Vec<_> = header.constants.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(constants, [("A_ONE", "1"), ("A_TWO", "-2")]);
        assert_eq!(header.initialisers, ["B_INIT"]);
    }
}
