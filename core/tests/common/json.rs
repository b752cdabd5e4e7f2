//! A reader of JSON that accepts nothing else, and no name twice in an object.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Truth(bool),
    Number(u64),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// Panics unless `text` is one value: an object, a list, a string in which only quotes and
    /// backslashes are escaped, a natural number, a truth value or `null`.
    pub(crate) fn read(text: &str) -> Json {
        let mut rest = text;
        let value = value(&mut rest);
        assert_eq!(rest, "", "something follows the value");
        value
    }

    /// A member of an object.
    pub(crate) fn get(&self, name: &str) -> &Json {
        let Json::Object(members) = self else { panic!("{self:?} is no object") };
        members.get(name).unwrap_or_else(|| panic!("there is no {name} in {self:?}"))
    }

    /// The elements of a list that is a member of an object.
    pub(crate) fn list(&self, name: &str) -> &[Json] {
        let Json::List(list) = self.get(name) else { panic!("{name} is no list in {self:?}") };
        list
    }

    /// The number that a member of an object is.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let Json::Number(number) = self.get(name) else { panic!("{name} is no number in {self:?}") };
        *number
    }
}

fn skip(rest: &mut &str, token: &str) -> bool {
    let found = rest.strip_prefix(token);
    *rest = found.unwrap_or(rest);
    found.is_some()
}

fn expect(rest: &mut &str, token: &str) {
    assert!(skip(rest, token), "{token} is missing before {rest}");
}

fn text(rest: &mut &str) -> String {
    expect(rest, "\"");
    let mut found = String::new();
    loop {
        let end = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').expect("a string ends");
        found.push_str(&rest[..end]);
        *rest = &rest[end..];
        if skip(rest, "\"") {
            return found;
        }
        expect(rest, "\\");
        let escaped = rest.chars().next().filter(|c| "\"\\/".contains(*c)).expect("nothing else is escaped");
        found.push(escaped);
        *rest = &rest[1..];
    }
}

/// Calls `element` for each of a sequence that ends with `close`.
fn sequence<'a>(rest: &mut &'a str, close: &str, mut element: impl FnMut(&mut &'a str)) {
    if skip(rest, close) {
        return;
    }
    loop {
        element(rest);
        if !skip(rest, ",") {
            return expect(rest, close);
        }
    }
}

fn value(rest: &mut &str) -> Json {
    if skip(rest, "null") {
        return Json::Null;
    }
    if skip(rest, "true") {
        return Json::Truth(true);
    }
    if skip(rest, "false") {
        return Json::Truth(false);
    }
    if rest.starts_with('"') {
        return Json::Text(text(rest));
    }
    if skip(rest, "[") {
        let mut list = Vec::new();
        sequence(rest, "]", |rest| list.push(value(rest)));
        return Json::List(list);
    }
    if skip(rest, "{") {
        let mut members = BTreeMap::new();
        sequence(rest, "}", |rest| {
            let name = text(rest);
            expect(rest, ":");
            let known = members.insert(name, value(rest));
            assert_eq!(known, None, "a name occurs twice");
        });
        return Json::Object(members);
    }
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, behind) = rest.split_at(end);
    assert!(digits == "0" || !digits.starts_with('0'), "{digits} is no number");
    *rest = behind;
    Json::Number(digits.parse().unwrap_or_else(|_| panic!("{digits} is no number before {behind}")))
}
