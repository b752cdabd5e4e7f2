//! Every test that the documents name exists, every situation has one, and so has every claim of the security review.

use slicepool_tests::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Situations that are numbered.
const SITUATIONS: u32 = 54;

/// Words that stand for several programs in C.
const FAMILIES: &[&str] = &["opencl"];

// ---- what there is

/// Names of the tests of every file, by its path from the root.
struct Sources {
    root: PathBuf,
    tests: BTreeMap<String, BTreeSet<String>>,
}

impl Sources {
    fn read() -> Self {
        let mut sources = Self { root: root(), tests: BTreeMap::new() };
        for folder in ["core/src", "core/tests", "capi/src", "tests/src", "tests/tests", "tests/c", "tests/cpp"] {
            sources.read_folder(folder);
        }
        sources
    }

    fn read_folder(&mut self, folder: &str) {
        for entry in fs::read_dir(self.root.join(folder)).expect("the folder is there") {
            let entry = entry.expect("the folder can be read");
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                self.read_folder(&path);
                continue;
            }
            let read = || fs::read_to_string(entry.path()).expect("sources are text");
            let tests = match Path::new(&path).extension().and_then(|extension| extension.to_str()) {
                Some("rs") => tests_in_rust(&read()),
                Some("c" | "cpp" | "h") => tests_in_c(&read()),
                _ => continue,
            };
            self.tests.insert(path, tests);
        }
    }

    /// The files that a word before a colon stands for, or a path.
    fn files(&self, place: &str) -> Vec<&str> {
        let is_it = |path: &&String| {
            let (stem, _) = path.rsplit_once('.').unwrap_or((path, ""));
            let in_c = |name: &str| {
                let short = name.strip_prefix("scenarios_").unwrap_or(name);
                name == place || short == place || FAMILIES.contains(&place) && name.starts_with(&format!("{place}_"))
            };
            let in_rust = |name: &str| {
                let rest = name.strip_prefix(place);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            matches(place, path)
                || stem.strip_prefix("tests/c/").or_else(|| stem.strip_prefix("tests/cpp/")).is_some_and(in_c)
                || ["core/tests/", "tests/tests/", "tests/src/"]
                    .iter()
                    .any(|folder| stem.strip_prefix(folder).is_some_and(in_rust))
                || ["tests/c/", "tests/tests/", "core/tests/"]
                    .iter()
                    .any(|folder| path.strip_prefix(folder) == Some(place))
                || path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'))
        };
        self.tests.keys().filter(is_it).map(String::as_str).collect()
    }

    /// Whether there is such a test, in one of the files of that place if one is named.
    fn has_test(&self, place: Option<&str>, name: &str) -> bool {
        let is_in = |path: &str| self.tests[path].iter().any(|test| matches(name, test));
        match place {
            Some(place) => self.files(place).into_iter().any(is_in),
            None => self.tests.keys().any(|path| is_in(path)),
        }
    }

    /// Whether there are tests at a place.
    fn has_tests_at(&self, place: &str) -> bool {
        self.files(place).iter().any(|path| !self.tests[*path].is_empty())
    }

    /// Whether a path leads to something, tests or not.
    fn has_path(&self, path: &str) -> bool {
        let folders = ["", "tests", "tests/c", "tests/tests", "core/tests", "include", "docs"];
        let Some((folder, name)) = path.rsplit_once('/') else {
            return folders.iter().any(|folder| self.root.join(folder).join(path).exists())
                || !self.files(path).is_empty();
        };
        if !path.contains('*') {
            return folders.iter().any(|start| self.root.join(start).join(path).exists());
        }
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| matches(name, &entry.file_name().to_string_lossy()))
    }
}

/// Functions that follow `#[test]`, and those that a list for `c_tests!` names.
fn tests_in_rust(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for part in text.split("#[test]").skip(1) {
        let rest = part.split("fn ").nth(1).unwrap_or_default();
        names.extend(rest.split(['(', '<']).next().filter(|name| is_word(name)).map(str::to_owned));
    }
    for part in text.split("c_tests! {").skip(1) {
        let list = part.split('}').next().unwrap_or_default();
        let list = list.split_once(':').map_or("", |(_, list)| list);
        names
            .extend(list.split([',', '\n', ' ']).filter(|name| is_word(name) && name.contains('_')).map(str::to_owned));
    }
    names
}

/// Functions in the list of a program's tests.
fn tests_in_c(text: &str) -> BTreeSet<String> {
    let parts = ["TEST(", "ALL_OF("].iter().flat_map(|opening| text.split(opening).skip(1));
    let names = parts.filter_map(|part| part.split(')').next());
    names.filter(|name| is_word(name)).map(str::to_owned).collect()
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Whether a name is meant by what is written of it: `...` and `*` stand for anything.
fn matches(written: &str, name: &str) -> bool {
    let written = written.replace("...", "*");
    let mut parts = written.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    // What ends with a part and no star ends the name.
    last.map_or(rest.is_empty(), |part| part.is_empty() || rest.is_empty() || name.ends_with(part))
}

// ---- what is written

/// What one cell of a table, or a line, names.
#[derive(Debug, Default, PartialEq)]
struct Named {
    /// Tests, with the place before the colon if there is one.
    tests: Vec<(Option<String>, String)>,
    /// Files and folders.
    paths: Vec<String>,
    /// Places that are named by a word, without any test.
    places: Vec<String>,
    /// Places with `the same name` as in the cell before.
    same: Vec<String>,
}

fn read_cell(cell: &str) -> Named {
    let mut named = Named::default();
    for segment in cell.split(';') {
        let (place, rest) = match segment.split_once(": ") {
            Some((head, rest)) if is_place(head.trim().trim_matches('`')) => {
                (Some(head.trim().trim_matches('`').to_owned()), rest)
            }
            _ => (None, segment),
        };
        if let (Some(place), "the same name") = (&place, rest.trim()) {
            named.same.push(place.clone());
            continue;
        }
        for (i, part) in rest.split('`').enumerate() {
            if i % 2 == 0 {
                let bare = part.split([',', ':']).map(str::trim).filter(|word| is_word(word) && word.contains('_'));
                named.places.extend(bare.map(str::to_owned));
            } else if is_path(part) {
                named.paths.push(part.to_owned());
            } else if is_test_name(part, place.is_some()) {
                named.tests.push((place.clone(), part.to_owned()));
            }
        }
    }
    named
}

/// In a sentence only whole paths and long names are meant.
fn read_prose(line: &str) -> Named {
    let mut named = Named::default();
    for word in line.split('`').skip(1).step_by(2) {
        if is_path(word) && has_ending(word) {
            named.paths.push(word.to_owned());
        } else if is_test_name(word, false) {
            named.tests.push((None, word.to_owned()));
        }
    }
    named
}

/// `slices/fit`, `c_layout`, `core/src/slicer/tests.rs`.
fn is_place(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/.*".contains(c);
    !text.is_empty() && text.chars().all(is_part)
}

fn is_path(text: &str) -> bool {
    is_place(text) && !text.contains("...") && (text.contains('/') || has_ending(text))
}

fn has_ending(text: &str) -> bool {
    [".rs", ".c", ".cpp", ".sh", ".txt", ".md", ".h", ".hpp", ".json"].iter().any(|end| text.ends_with(end))
}

/// Sentences; or any word where a place says what it is.
fn is_test_name(text: &str, has_place: bool) -> bool {
    let without_dots = text.replace("...", "");
    is_word(&without_dots) && (has_place || text.contains("...") || text.matches('_').count() >= 3)
}

/// The cells of the rows of a text's tables, without those that only draw lines and without headings.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<_> = text.lines().collect();
    let is_rule = |line: &str| line.starts_with("|--");
    let mut rows = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let is_heading = lines.get(i + 1).is_some_and(|next| is_rule(next));
        if line.starts_with('|') && !is_rule(line) && !is_heading {
            rows.push(line.trim_matches('|').split('|').map(str::trim).collect());
        }
    }
    rows
}

fn document(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("the document is there")
}

/// The part of a document under a heading of the second level.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let rest = text.split_once(&format!("\n## {heading}\n")).expect("the section is there").1;
    rest.split("\n## ").next().unwrap_or(rest)
}

// ---- comparing

/// What a document names and there is not.
fn missing(sources: &Sources, text: &str) -> Vec<String> {
    let mut missing = Vec::new();
    let mut look = |named: Named, before: &Named| {
        for (place, name) in &named.tests {
            if !sources.has_test(place.as_deref(), name) {
                missing.push(format!("the test `{name}` in {}", place.as_deref().unwrap_or("any file")));
            }
        }
        missing
            .extend(named.paths.iter().filter(|path| !sources.has_path(path)).map(|path| format!("the file {path}")));
        let is_there = |place: &&String| !sources.files(place).is_empty();
        missing.extend(named.places.iter().filter(|it| !is_there(it)).map(|place| format!("the place {place}")));
        for place in &named.same {
            if !before.tests.iter().any(|(_, name)| sources.has_test(Some(place), name)) {
                missing.push(format!("the same name in {place}"));
            }
        }
        named
    };
    for line in text.lines().filter(|line| !line.starts_with('|')) {
        look(read_prose(line), &Named::default());
    }
    for row in rows(text) {
        let mut before = Named::default();
        // The first cell says what it is about.
        for cell in row.iter().skip(1) {
            before = look(read_cell(cell), &before);
        }
    }
    missing
}

/// Whether a cell names something that tests.
fn names_a_test(sources: &Sources, cell: &str) -> bool {
    let named = read_cell(cell);
    named.tests.iter().any(|(place, name)| sources.has_test(place.as_deref(), name))
        || named.paths.iter().chain(&named.places).any(|path| sources.has_tests_at(path))
}

/// The numbers of situations in a text that have a test, or in which none is named.
fn situations(sources: &Sources, text: &str) -> (BTreeSet<u32>, Vec<u32>) {
    let (mut proved, mut bare) = (BTreeSet::new(), Vec::new());
    for row in rows(text) {
        let numbers = row[0].split(',').map(|number| number.trim().parse::<u32>().expect("a list of numbers"));
        let has_test = row.iter().skip(2).any(|cell| names_a_test(sources, cell));
        for number in numbers {
            if has_test { _ = proved.insert(number) } else { bare.push(number) }
        }
    }
    (proved, bare)
}

#[test]
fn every_test_and_file_that_a_document_names_exists() {
    let sources = Sources::read();
    for path in ["tests/README.md", "docs/guarantees.md", "docs/security.md"] {
        let missing = missing(&sources, &document(path));
        assert!(missing.is_empty(), "{path} names what there is not:\n{}", missing.join("\n"));
    }
}

#[test]
fn every_situation_has_a_test() {
    let text = document("tests/README.md");
    let (proved, bare) = situations(&Sources::read(), section(&text, "Situations"));
    assert_eq!((proved, bare), ((1..=SITUATIONS).collect(), Vec::new()));
}

#[test]
fn every_claim_of_the_security_review_names_its_test_or_says_that_it_is_open() {
    let (sources, text) = (Sources::read(), document("docs/security.md"));
    let claims = rows(&text);
    assert!(claims.len() > 30, "{} claims", claims.len());
    let is_backed = |row: &&Vec<&str>| {
        let last = row.last().copied().unwrap_or_default();
        names_a_test(&sources, last) || last.starts_with("open point: ")
    };
    let bare: Vec<_> = claims.iter().filter(|row| !is_backed(row)).collect();
    assert!(bare.is_empty(), "claims without a test: {bare:#?}");
}

// ---- that all of this would notice something

#[test]
fn what_is_not_there_is_found_missing() {
    let sources = Sources::read();
    let wrong = "
| a | `every_situation_has_a_test`, `every_situation_has_two_tests` |
| b | situations: `every_situation...`; header: `every_situation...` |
| c | `tests/tests/situations.rs`, `tests/tests/situation.rs`, `tests/tests/situ*.rs`, `tests/tests/none*.rs` |
| d | situations: `rows`; no_such_place; c_binary |
Words: `as_it_is_not_there_at_all`.
";
    let expected = [
        "the test `as_it_is_not_there_at_all` in any file",
        "the test `every_situation_has_two_tests` in any file",
        "the test `every_situation...` in header",
        "the file tests/tests/situation.rs",
        "the file tests/tests/none*.rs",
        "the test `rows` in situations",
        "the place no_such_place",
    ];
    assert_eq!(missing(&sources, wrong), expected);
}

#[test]
fn a_situation_without_a_test_is_found() {
    let text = "
| # | situation | Rust | C |
|---|---|---|---|
| 1, 2 | one | situations: `a_situation_without...` | |
| 3 | another | situations: `rows` | the words of it |
| 4 | in a file of its own | | `tests/tests/situations.rs` |
";
    assert_eq!(situations(&Sources::read(), text), (BTreeSet::from([1, 2, 4]), vec![3]));
}

#[test]
fn names_are_matched_whole_or_as_far_as_they_are_written() {
    for (written, name, is_meant) in [
        ("abc", "abc", true),
        ("abc", "abcd", false),
        ("abc...", "abcd", true),
        ("abc...", "xabcd", false),
        ("...bc...", "abcd", true),
        ("...cd", "abcd", true),
        ("...bc", "abcd", false),
        ("a...c", "abcbc", true),
        ("a...c", "ab", false),
    ] {
        assert_eq!(matches(written, name), is_meant, "{written} {name}");
    }
}

#[test]
fn the_same_name_is_that_of_the_cell_before() {
    let here = "| 1 | situations: `what_is_not_there_is_found_missing` | situations: the same name |";
    let elsewhere = "| 1 | situations: `what_is_not_there_is_found_missing` | header: the same name |";
    let sources = Sources::read();
    assert_eq!(missing(&sources, here), Vec::<String>::new());
    assert_eq!(missing(&sources, elsewhere), ["the same name in header"]);
}
