//! Copies of the repository, changed, and what cargo makes of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use serde_json::Value;

/// What is compiled and run.
pub(crate) struct Tests {
    /// Names of test programs; core's own unit tests are always among them. What begins with `-` is for cargo.
    pub(crate) programs: Vec<String>,
}

impl Tests {
    /// What is for cargo.
    pub(crate) fn options(&self) -> Vec<String> {
        self.programs.iter().filter(|program| program.starts_with('-')).cloned().collect()
    }
}

/// A test program that was built.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Where and why the compiler refused something.
pub(crate) struct Refusal {
    pub(crate) message: String,
    /// Such as `E0308`.
    pub(crate) code: String,
    /// Below the root of the copy.
    pub(crate) file: String,
    pub(crate) byte: usize,
}

/// A copy of the repository.
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    target: PathBuf,
}

impl Tree {
    /// Copies `from` to `root`, without what is built; a copy that is there is brought up to date, so that cargo finds what
    /// has not changed.
    pub(crate) fn copy(from: &Path, root: PathBuf, target: PathBuf) -> io::Result<Self> {
        copy_folder(from, &root, true)?;
        Ok(Self { root, target })
    }

    /// Writes one file, unless that is what it says already.
    pub(crate) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write(&self.root.join(file), text.as_bytes())
    }

    /// Builds the tests of core.
    pub(crate) fn build(&self, tests: &Tests) -> io::Result<Result<Vec<Program>, Vec<Refusal>>> {
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "-q", "--no-run", "--message-format=json", "--package", "slicepool-core", "--lib"]);
        for program in &tests.programs {
            if program.starts_with('-') {
                cargo.arg(program);
            } else {
                cargo.args(["--test", program]);
            }
        }
        let output = cargo
            .current_dir(self.root.join("core"))
            .env("CARGO_TARGET_DIR", &self.target)
            .env("RUSTFLAGS", "--cap-lints=allow")
            // For the switch in what may also be worked out by the compiler.
            .env("RUSTC_BOOTSTRAP", "1")
            .stderr(Stdio::inherit())
            .output()?;
        let (mut programs, mut refusals) = (BTreeMap::new(), Vec::new());
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
            if let Some(path) = message["executable"].as_str() {
                let name = message["target"]["name"].as_str().unwrap_or_default().to_owned();
                programs.insert(name.clone(), Program { name, path: path.into() });
            }
            let message = &message["message"];
            if message["level"] == "error" {
                refusals.extend(refusal(message));
            }
        }
        if output.status.success() {
            return Ok(Ok(programs.into_values().collect()));
        }
        Ok(Err(refusals))
    }
}

fn refusal(message: &Value) -> Option<Refusal> {
    let spans = message["spans"].as_array()?;
    let span = spans.iter().find(|span| span["is_primary"] == true)?;
    Some(Refusal {
        message: message["message"].as_str()?.to_owned(),
        code: message["code"]["code"].as_str().unwrap_or_default().to_owned(),
        file: span["file_name"].as_str()?.to_owned(),
        byte: span["byte_start"].as_u64()? as usize,
    })
}

fn copy_folder(from: &Path, to: &Path, top: bool) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        // What is large, built, or not needed by the tests of core.
        if name == "target" || name == ".git" || (top && (name == "bench" || name == "fuzz")) {
            continue;
        }
        let (path, copy) = (entry.path(), to.join(&name));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_folder(&path, &copy, false)?;
        } else if kind.is_file() {
            write(&copy, &fs::read(&path)?)?;
        }
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::write(path, bytes)
}
