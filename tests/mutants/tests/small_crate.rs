//! The tool on a crate of a few lines: what is noticed, what is not, and what cannot be.

use std::fs;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = r#"
pub fn sum(a: u32, b: u32) -> u32 {
    a + b
}

pub fn is_between(x: u32, low: u32, high: u32) -> bool {
    low <= x && x < high
}

pub fn never_tried(x: u32) -> u32 {
    x * 2
}

pub fn name(x: u32) -> &'static str {
    match x {
        0 => "none",
        1 if x == 1 => "one",
        _ => "many",
    }
}

pub const SIZE: usize = 4 + 3;
pub const fn doubled(x: usize) -> usize {
    x * 2
}
pub const TWICE: usize = doubled(SIZE);

pub fn count(list: &mut Vec<u32>) {
    if !list.is_empty() {
        list[0] += 1;
    }
}

#[derive(Debug, Default, PartialEq)]
pub struct Pair {
    pub left: u32,
    pub right: u32,
}

pub fn pair() -> Pair {
    Pair { left: 3, ..Pair::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_works() {
        assert_eq!(sum(2, 3), 5);
        assert!(is_between(2, 2, 3) && !is_between(3, 2, 3) && !is_between(1, 2, 3));
        assert_eq!((name(0), name(1), name(2)), ("none", "one", "many"));
        assert_eq!((SIZE, TWICE), (7, 14));
        let mut list = vec![1];
        count(&mut list);
        count(&mut Vec::new());
        assert_eq!(list, [2]);
        assert_eq!(pair(), Pair { left: 3, right: 0 });
    }
}
"#;

/// A change to the `occurrence`th (from 0) `text` of the source.
fn change(genre: &str, text: &str, occurrence: usize, replacement: &str, name: &str) -> serde_json::Value {
    let begin = SOURCE.match_indices(text).nth(occurrence).expect(text).0;
    let place = |byte: usize| {
        let line = SOURCE[..byte].matches('\n').count() + 1;
        let column = byte - SOURCE[..byte].rfind('\n').map_or(0, |at| at + 1) + 1;
        serde_json::json!({ "line": line, "column": column })
    };
    serde_json::json!({
        "name": format!("core/src/lib.rs:1:1: {name}"),
        "file": "core/src/lib.rs",
        "genre": genre,
        "replacement": replacement,
        "span": { "start": place(begin), "end": place(begin + text.len()) },
    })
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn every_kind_of_change_is_tried_and_what_no_test_notices_is_named() {
    let folder = std::env::temp_dir().join(format!("slicepool-mutants-{}", std::process::id()));
    let repository = folder.join("repository");
    write(&repository.join("Cargo.toml"), "[workspace]\nmembers = [\"core\"]\nresolver = \"3\"\n");
    write(&repository.join("core/Cargo.toml"), "[package]\nname = \"slicepool-core\"\nedition = \"2024\"\n");
    write(&repository.join("core/src/lib.rs"), SOURCE);
    write(
        &repository.join("tests/mutants/unnoticed.txt"),
        "Nobody calls it.\n    core/src/lib.rs: explained | x * 2\n",
    );
    let changes = [
        ("caught", change("BinaryOperator", "+", 0, "-", "plus to minus")),
        ("caught", change("BinaryOperator", "+", 0, "*", "plus to times")),
        ("caught", change("FnValue", "a + b", 0, "0", "a sum of 0")),
        ("caught", change("FnValue", "a + b", 0, "1", "a sum of 1")),
        ("unviable", change("FnValue", "a + b", 0, "None", "a sum of another type")),
        ("caught", change("BinaryOperator", "<=", 0, "<", "below")),
        ("caught", change("BinaryOperator", "&&", 0, "||", "and to or")),
        ("caught", change("BinaryOperator", "<", 1, "<=", "up to")),
        ("missed", change("BinaryOperator", "* 2", 0, "+ 2", "unseen")),
        ("missed", change("FnValue", "x * 2", 0, "0", "explained")),
        ("caught", change("MatchArm", "0 => \"none\",", 0, "", "no none")),
        ("caught", change("MatchArmGuard", "x == 1", 0, "false", "never one")),
        ("missed", change("MatchArmGuard", "x == 1", 0, "true", "always one")),
        ("caught", change("BinaryOperator", "+", 2, "-", "a constant")),
        ("caught", change("BinaryOperator", "* 2", 1, "+ 2", "what a constant calls")),
        ("caught", change("UnaryOperator", "!", 0, "", "a not")),
        ("caught", change("BinaryOperator", "+=", 0, "-=", "plus-is to minus-is")),
        ("caught", change("StructField", "left: 3,", 0, "", "no field")),
    ];
    let list: Vec<_> = changes.iter().map(|(_, change)| change.clone()).collect();
    write(&folder.join("list.json"), &serde_json::to_string(&list).unwrap());
    let run = || {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_slicepool-mutants"));
        tool.arg(&repository).arg(folder.join("work")).arg(folder.join("list.json")).arg(folder.join("results.txt"));
        let output = tool.env_remove("CARGO_TARGET_DIR").output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = run();
    assert_eq!(code, Some(1), "{said}");
    let results = fs::read_to_string(folder.join("results.txt")).unwrap();
    for (outcome, change) in &changes {
        let name = change["name"].as_str().unwrap().replacen(":1:1", "", 1);
        let line = format!("{outcome} {name} | ");
        assert!(results.lines().any(|found| found.starts_with(&line)), "{line}, among\n{results}{said}");
    }
    assert_eq!(results.lines().count(), changes.len(), "{results}");
    assert!(said.contains("18 changes; not noticed: 1 that need not be, 2 others"), "{said}");
    assert!(said.contains("\n    core/src/lib.rs: unseen | x * 2\n"), "{said}");

    // What is known is not tried again, and counts all the same.
    let (code, again) = run();
    assert_eq!(code, Some(1), "{again}");
    assert!(
        again.contains("\n0 tried") && again.contains("18 changes; not noticed: 1 that need not be, 2 others"),
        "{again}"
    );

    // A part has the names it has in the whole.
    let mut part = Command::new(env!("CARGO_BIN_EXE_slicepool-mutants"));
    part.arg(&repository).arg(folder.join("work")).arg(folder.join("list.json")).arg(folder.join("part.txt"));
    let output = part.env_remove("CARGO_TARGET_DIR").env("SLICEPOOL_MUTANTS_SHARD", "1/6").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let part = fs::read_to_string(folder.join("part.txt")).unwrap();
    assert_eq!(part.lines().count(), changes.len() / 6, "{part}{said}");
    for line in part.lines() {
        assert!(results.contains(line), "{line}, among\n{results}");
    }
    fs::remove_dir_all(folder).unwrap();
}
