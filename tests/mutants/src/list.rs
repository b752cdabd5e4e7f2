//! The changes, as `cargo mutants --list --json` names them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::path::Path;

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Genre {
    /// A function returns something else at once.
    FnValue,
    BinaryOperator,
    UnaryOperator,
    /// A guard is always, or never, true.
    MatchArmGuard,
    /// An arm is gone.
    MatchArm,
    /// A field of a structure is what the rest of it says.
    StructField,
}

/// One change.
pub(crate) struct Mutant {
    /// From 1; 0 is none.
    pub(crate) number: usize,
    pub(crate) name: String,
    /// The name without the place, and the line that is changed: what lines above may come and go.
    pub(crate) key: String,
    /// Below the root of the repository.
    pub(crate) file: String,
    pub(crate) genre: Genre,
    /// What stands between `start` and `end` is replaced with this.
    pub(crate) replacement: String,
    /// Line and column, both from 1.
    pub(crate) start: (usize, usize),
    pub(crate) end: (usize, usize),
}

/// Reads the list of changes to the files below `repository`.
pub(crate) fn read(json: &str, repository: &Path) -> Result<Vec<Mutant>, String> {
    let list: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let list = list.as_array().ok_or("not a list")?;
    let mutants = list.iter().enumerate();
    let mut mutants = mutants
        .map(|(index, value)| mutant(index + 1, value).ok_or(format!("not a mutant: {value}")))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut sources, mut seen) = (HashMap::new(), HashMap::new());
    for mutant in &mut mutants {
        let source = match sources.entry(mutant.file.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(fs::read_to_string(repository.join(&mutant.file)).map_err(|error| error.to_string())?)
            }
        };
        let what = mutant.name.split_once(": ").map_or("", |(_, what)| what);
        let line = source.lines().nth(mutant.start.0 - 1).unwrap_or_default().trim();
        let key = format!("{}: {what} | {line}", mutant.file);
        let count: &mut usize = seen.entry(key.clone()).or_default();
        *count += 1;
        mutant.key = if *count == 1 { key } else { format!("{key} #{count}") };
    }
    Ok(mutants)
}

fn mutant(number: usize, value: &Value) -> Option<Mutant> {
    let text = |key: &str| Some(value[key].as_str()?.to_owned());
    let place = |key: &str| {
        let place = &value["span"][key];
        Some((place["line"].as_u64()? as usize, place["column"].as_u64()? as usize))
    };
    let genre = match value["genre"].as_str()? {
        "FnValue" => Genre::FnValue,
        "BinaryOperator" => Genre::BinaryOperator,
        "UnaryOperator" => Genre::UnaryOperator,
        "MatchArmGuard" => Genre::MatchArmGuard,
        "MatchArm" => Genre::MatchArm,
        "StructField" => Genre::StructField,
        _ => return None,
    };
    Some(Mutant {
        number,
        name: text("name")?,
        key: String::new(),
        file: text("file")?,
        genre,
        replacement: text("replacement")?,
        start: place("start")?,
        end: place("end")?,
    })
}
