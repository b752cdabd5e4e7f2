//! Small changes to slicepool's core that its tests must notice: the changes that cargo-mutants lists, but all of them in one
//! build, where an environment variable says which one is on. One compilation instead of thousands.
//!
//!     cargo mutants --package slicepool-core --list --json -f FILE... >LIST
//!     slicepool-mutants REPOSITORY FOLDER LIST RESULTS TEST... [OPTION...]
//!
//! Copies `REPOSITORY` into `FOLDER`, builds there, runs core's unit tests and the programs `TEST` for every change of `LIST`,
//! the quickest program first, and adds a line for each to `RESULTS`. Those that stand there already are not tried again, so
//! what was interrupted goes on. The few changes that cannot be switched (in what the compiler works out) are built alone.
//!
//! `SLICEPOOL_MUTANTS_SHARD=1/8` tries every eighth of them, from 0/8 to 7/8.
//!
//! `tests/mutants/unnoticed.txt` names changes that need not be noticed, and says why. Exit status 1 if another goes unnoticed.

mod build;
mod list;
mod run;
mod weave;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use build::{Program, Refusal, Tests, Tree};
use list::{Genre, Mutant};
use run::{Ending, run};

/// The environment variable that says which change is on.
const SWITCH: &str = "SLICEPOOL_MUTANT";
/// Where the switch is.
const ROOT: &str = "core/src/lib.rs";
/// What precedes the number of a change, in what is woven.
const IS: &str = "crate :: mutant :: is (";

/// Values of another type, of types that have no such value, and of types that are not there.
const WRONG_TYPE: [&str; 9] = ["E0308", "E0277", "E0599", "E0425", "E0432", "E0433", "E0423", "E0061", "E0107"];
/// Marks them among what was refused the last time.
const UNVIABLE: &str = "unviable ";

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().ok_or(format!("{what} is missing"));
    let repository = PathBuf::from(next("REPOSITORY")?);
    let folder = PathBuf::from(next("FOLDER")?);
    let mut mutants = list::read(&fs::read_to_string(next("LIST")?)?, &repository)?;
    let results = next("RESULTS")?;
    let tests = Tests { programs: arguments.collect() };
    // Only now: what a change is called depends on those before it.
    if let Ok(shard) = std::env::var("SLICEPOOL_MUTANTS_SHARD") {
        let (part, of) = shard.split_once('/').ok_or("SLICEPOOL_MUTANTS_SHARD is like 1/8")?;
        let (part, of): (usize, usize) = (part.parse()?, of.parse()?);
        mutants.retain(|m| m.number % of.max(1) == part);
    }

    let known: HashMap<String, String> = fs::read_to_string(&results)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once(' ').map(|(outcome, key)| (key_of(key), outcome.to_owned())))
        .collect();
    let begin = Instant::now();
    let log = Mutex::new(OpenOptions::new().create(true).append(true).open(&results)?);
    let missed = Mutex::new(BTreeSet::new());
    let note = |mutant: &Mutant, outcome: &str, by: &str| {
        let by = if by.is_empty() { String::new() } else { format!(" <- {by}") };
        writeln!(log.lock().unwrap(), "{outcome} {}{by}", mutant.key).expect("results can be written");
        if outcome == "missed" {
            println!("missed {}", mutant.key);
            missed.lock().unwrap().insert(mutant.key.clone());
        }
    };

    let woven = Woven::build(&repository, &folder, &mutants, &tests)?;
    println!("{} changes in one build, {:.0} s", woven.numbers.len(), begin.elapsed().as_secs_f32());
    let core = woven.core.clone();
    let programs = measure(&woven.programs, &core)?;

    // Those that may only look as if nobody noticed them.
    let again = Mutex::new(BTreeSet::new());
    let queue: Vec<_> =
        mutants.iter().filter(|m| woven.numbers.contains(&m.number) && !known.contains_key(&m.key)).collect();
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let Some(mutant) = queue.get(taken.fetch_add(1, Ordering::Relaxed)) {
                    let (outcome, by) = try_one(&programs, mutant.number, &core);
                    if outcome == "missed" && woven.constant.contains(&mutant.number) {
                        again.lock().unwrap().insert(mutant.number);
                    } else {
                        note(mutant, outcome, &by);
                    }
                }
            });
        }
    });
    println!("{} tried, {:.0} s", queue.len(), begin.elapsed().as_secs_f32());

    let again = again.into_inner()?;
    let is_alone = |number| !woven.numbers.contains(number) || again.contains(number);
    let alone: Vec<_> = mutants.iter().filter(|m| is_alone(&m.number) && !known.contains_key(&m.key)).collect();
    let tree = Tree::copy(&repository, folder.join("alone"), folder.join("alone-target"))?;
    for mutant in &alone {
        if woven.unviable.contains(&mutant.number) {
            note(mutant, "unviable", "");
            continue;
        }
        let source = fs::read_to_string(repository.join(&mutant.file))?;
        tree.write(&mutant.file, &replaced(&source, mutant))?;
        // Most are noticed by the unit tests, which are built soonest.
        let mut tried = ("missed", String::new());
        for tests in [&Tests { programs: tests.options() }, &tests] {
            tried = match tree.build(tests)? {
                Ok(built) => try_one(&timed_as(&built, &programs), 0, &tree.root.join("core")),
                Err(refusals) if refusals.is_empty() => return Err("cargo fails, and names no place".into()),
                Err(_) => ("unviable", String::new()),
            };
            if tried.0 != "missed" {
                break;
            }
        }
        let (outcome, by) = tried;
        note(mutant, outcome, &by);
        tree.write(&mutant.file, &source)?;
    }
    println!("{} tried alone, {:.0} s", alone.len(), begin.elapsed().as_secs_f32());

    let missed = missed.into_inner()?;
    let missed: Vec<_> = mutants
        .iter()
        .filter(|m| missed.contains(&m.key) || known.get(&m.key).is_some_and(|outcome| outcome == "missed"))
        .collect();
    let explained = fs::read_to_string(repository.join("tests/mutants/unnoticed.txt"))?;
    let explained: BTreeSet<&str> = explained.lines().map(str::trim).collect();
    let (explained, missed): (Vec<_>, Vec<_>) = missed.into_iter().partition(|m| explained.contains(&*m.key));
    println!("{} changes; not noticed: {} that need not be, {} others", mutants.len(), explained.len(), missed.len());
    for mutant in &missed {
        println!("    {}", mutant.key);
    }
    std::process::exit(i32::from(!missed.is_empty()));
}

/// What is before the name of the test that noticed.
fn key_of(line: &str) -> String {
    line.split(" <- ").next().unwrap_or(line).to_owned()
}

/// A program and how long it may take.
type Timed = (Program, Duration);

/// Runs all programs without a change: they must pass. The quickest first.
fn measure(programs: &[Program], core: &Path) -> Result<Vec<Timed>, Failure> {
    let mut timed = Vec::new();
    for program in programs {
        let begin = Instant::now();
        let ending = run(program, 0, Duration::from_secs(600), core);
        if ending != Ending::Passed {
            return Err(format!("{} does not pass without a change: {ending:?}", program.name).into());
        }
        timed.push((begin.elapsed(), program));
    }
    timed.sort_by_key(|(time, _)| *time);
    for (time, program) in &timed {
        println!("{:8.2} s  {}", time.as_secs_f32(), program.name);
    }
    Ok(timed.into_iter().map(|(time, program)| (program.clone(), time * 8 + Duration::from_secs(10))).collect())
}

/// The programs of another build, in the order and with the limits of `programs`.
fn timed_as(built: &[Program], programs: &[Timed]) -> Vec<Timed> {
    let find = |name: &str| built.iter().find(|program| program.name == name).cloned();
    programs.iter().filter_map(|(program, limit)| Some((find(&program.name)?, *limit * 2))).collect()
}

fn try_one(programs: &[Timed], number: usize, core: &Path) -> (&'static str, String) {
    for (program, limit) in programs {
        match run(program, number, *limit, core) {
            Ending::Passed => {}
            Ending::Failed(test) => return ("caught", format!("{} {test}", program.name)),
            Ending::TimedOut => return ("timeout", program.name.clone()),
        }
    }
    ("missed", String::new())
}

/// `source` with the change in it.
fn replaced(source: &str, mutant: &Mutant) -> String {
    let byte = |(line, column): (usize, usize)| {
        let begin: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
        begin + source[begin..].chars().take(column - 1).map(char::len_utf8).sum::<usize>()
    };
    format!("{}{}{}", &source[..byte(mutant.start)], mutant.replacement, &source[byte(mutant.end)..])
}

/// The build with all changes that can be switched.
struct Woven {
    programs: Vec<Program>,
    numbers: BTreeSet<usize>,
    /// Those of them that do nothing in what the compiler works out.
    constant: BTreeSet<usize>,
    /// Others, which the compiler cannot accept however they are written.
    unviable: BTreeSet<usize>,
    core: PathBuf,
}

impl Woven {
    /// Leaves out whatever the compiler does not accept, until it accepts the rest.
    fn build(repository: &Path, folder: &Path, mutants: &[Mutant], tests: &Tests) -> Result<Self, Failure> {
        let tree = Tree::copy(repository, folder.join("woven"), folder.join("woven-target"))?;
        let mut files: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
        for mutant in mutants {
            files.entry(&mutant.file).or_default().push(mutant);
        }
        files.entry(ROOT).or_default();
        // What was found the last time is right for most of it this time.
        let notes = folder.join("refused.txt");
        let known = fs::read_to_string(&notes).unwrap_or_default();
        let (known, unviable): (BTreeSet<&str>, BTreeSet<&str>) = (
            known.lines().map(|line| line.strip_prefix(UNVIABLE).unwrap_or(line)).collect(),
            known.lines().filter_map(|line| line.strip_prefix(UNVIABLE)).collect(),
        );
        let numbers_of = |keys: &BTreeSet<&str>| -> BTreeSet<usize> {
            mutants.iter().filter(|m| keys.contains(&*m.key)).map(|m| m.number).collect()
        };
        let (mut refused, mut unviable) = (numbers_of(&known), numbers_of(&unviable));
        loop {
            let (mut texts, mut numbers, mut constant) = (HashMap::new(), BTreeSet::new(), BTreeSet::new());
            for (file, mutants) in &files {
                let source = fs::read_to_string(repository.join(file))?;
                let mutants: Vec<_> = mutants.iter().copied().filter(|m| !refused.contains(&m.number)).collect();
                let (mut text, woven) = weave::weave(&source, &mutants)?;
                if *file == ROOT {
                    let features = "#![feature(core_intrinsics, const_eval_select)]\n#![allow(internal_features)]\n";
                    text = format!("{features}{text}{}", include_str!("switch.rs"));
                }
                tree.write(file, &text)?;
                texts.insert((*file).to_owned(), text);
                numbers.extend(woven.numbers);
                constant.extend(woven.constant);
            }
            let names = mutants.iter().filter(|m| refused.contains(&m.number)).map(|m| {
                let mark = if unviable.contains(&m.number) { UNVIABLE } else { "" };
                format!("{mark}{}\n", m.key)
            });
            fs::write(&notes, names.collect::<String>())?;
            let refusals = match tree.build(tests)? {
                Ok(programs) => {
                    return Ok(Self { programs, numbers, constant, unviable, core: tree.root.join("core") });
                }
                Err(refusals) => refusals,
            };
            let known = refused.len();
            for refusal in &refusals {
                let file = if texts.contains_key(&refusal.file) {
                    refusal.file.clone()
                } else {
                    format!("core/{}", refusal.file)
                };
                if let Some(number) = texts.get(&file).and_then(|text| blamed(text, refusal)) {
                    refused.insert(number);
                    // What a function cannot return here it cannot return as all that it does, either.
                    let returns = mutants.iter().any(|m| m.number == number && m.genre == Genre::FnValue);
                    if returns && WRONG_TYPE.contains(&&*refusal.code) {
                        unviable.insert(number);
                    }
                }
            }
            println!("{} refused", refused.len());
            if refused.len() == known {
                let messages: Vec<_> =
                    refusals.iter().map(|r| format!("{}:{} {}", r.file, r.byte, r.message)).collect();
                return Err(format!("does not compile, and no change is to blame: {messages:#?}").into());
            }
        }
    }
}

/// The change whose switch is nearest: what it does stands behind it, or it is for an arm of a `match` and stands in that.
fn blamed(text: &str, refusal: &Refusal) -> Option<usize> {
    let (before, after) = text.split_at(refusal.byte);
    let digits = if refusal.message.starts_with("non-exhaustive patterns") {
        &after[after.find(IS)? + IS.len()..]
    } else {
        let function = before.rfind(IS).map(|at| at + IS.len());
        let arm = before
            .rfind("usize =>")
            .map(|end| before[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1));
        &before[function.max(arm)?..]
    };
    digits[..digits.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}
