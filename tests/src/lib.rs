//! What the tests of the C library share: building it, compiling C programs against it, running them.
//!
//! Nothing here guesses a path: the library is where Cargo says it is, the compiler is the one the `cc` crate finds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

mod header;
#[path = "../../capi/naming.rs"]
#[allow(dead_code)] // The rest is for the build script.
mod naming;
mod suite;

pub use header::{Header, Struct, header};
pub use suite::{Suite, assert_every_callback_calls_everything, golden};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_path_buf()
}

/// Where tests put what they build.
pub fn scratch() -> PathBuf {
    let dir = root().join("target").join("c-tests");
    fs::create_dir_all(&dir).expect("the target directory is writable");
    dir
}

/// A build of the C library.
#[derive(Clone, Debug)]
pub struct Library {
    /// The static library.
    pub archive: PathBuf,
    /// The shared library.
    pub shared: PathBuf,
}

/// Builds the C library with a Cargo profile (`dev` checks its own invariants, `release` is what users get).
pub fn library(profile: &str) -> Library {
    library_with(profile, "capi", &[])
}

/// Builds the C library with further settings of Cargo (as after `--config`), in a target directory of its own.
pub fn library_with(profile: &str, target: &str, settings: &[&str]) -> Library {
    static BUILT: Mutex<BTreeMap<String, Library>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let key = format!("{profile} {target} {settings:?}");
    built.entry(key).or_insert_with(|| build(profile, target, settings)).clone()
}

/// Builds the released C library for another target of Rust; `None` where that target is not installed, which it says.
pub fn library_for(target: &str) -> Option<Library> {
    has_target(target).then(|| library_with("release", "capi", &[&format!("build.target={target:?}")]))
}

fn build(profile: &str, target: &str, settings: &[&str]) -> Library {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "-p", "slicepool-capi", "--message-format=json", "--profile", profile])
        .args(settings.iter().flat_map(|setting| ["--config", setting]))
        .arg("--target-dir")
        .arg(root().join("target").join(target))
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "the C library does not build");
    let mut files = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        if message["reason"] == "compiler-artifact" && message["target"]["name"] == "slicepool" {
            for file in message["filenames"].as_array().into_iter().flatten() {
                files.extend(file.as_str().map(PathBuf::from));
            }
        }
    }
    let with = |endings: &[&str]| {
        let found = files.iter().find(|file| {
            let name = file.to_string_lossy();
            // That is for linking with a .dll.
            endings.iter().any(|ending| name.ends_with(ending)) && !name.ends_with(".dll.a")
        });
        found.unwrap_or_else(|| panic!("Cargo names no {endings:?} among {files:?}")).clone()
    };
    Library { archive: with(&[".a"]), shared: with(&[".so", ".dylib", ".dll"]) }
}

/// How a C program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The static library goes into the program.
    Static,
    /// The program loads the shared library.
    Shared,
    /// Neither: the program opens the shared library itself, if at all.
    Nothing,
}

/// Warnings that users may turn on; headers and examples have to be clean.
pub const STRICT: &[&str] = &["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"];

/// A C or C++ compiler, as a command to add arguments to.
pub fn compiler(cpp: bool) -> Command {
    let target = env::var("TARGET").unwrap_or_else(|_| format!("{}-unknown-linux-gnu", env::consts::ARCH));
    // With `warnings(false)` it would pass -w, which silences all that tests ask for.
    cc::Build::new()
        .cpp(cpp)
        .target(&target)
        .host(&target)
        .opt_level(1)
        .cargo_metadata(false)
        .get_compiler()
        .to_command()
}

/// Compiles one C or C++ file of the repository into a program and returns its path, which tells file and flags apart. The
/// same file with the same flags is compiled once per process.
pub fn compile(source: &str, library: &Library, link: Link, flags: &[&str]) -> PathBuf {
    /// One of these for each program: others are compiled meanwhile.
    static COMPILED: Mutex<BTreeMap<PathBuf, Arc<OnceLock<()>>>> = Mutex::new(BTreeMap::new());
    let path = root().join(source);
    let stem = Path::new(source).with_extension("").to_string_lossy().into_owned();
    let profile = library.archive.parent().map(|dir| dir.strip_prefix(root().join("target")).unwrap_or(dir));
    let words = profile.iter().flat_map(|dir| dir.iter()).map(|part| part.to_string_lossy().into_owned());
    let flag_words = flags.iter().filter(|flag| !STRICT.contains(flag)).map(|flag| (*flag).to_owned());
    let name = words.chain(flag_words).fold(format!("{stem}-{link:?}"), |name, word| format!("{name}-{word}"));
    let program = scratch().join(name.replace(['/', '=', ','], "_"));
    let compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner).entry(program.clone()).or_default().clone();
    compiled.get_or_init(|| compile_to(&program, &path, library, link, flags));
    program
}

fn compile_to(program: &Path, source: &Path, library: &Library, link: Link, flags: &[&str]) {
    // Another test run may be using the program of that name.
    let fresh = program.with_extension(format!("{}.new", process::id()));
    let mut command = compiler(source.extension().is_some_and(|extension| extension == "cpp"));
    command.arg(source).arg("-I").arg(root().join("include")).args(flags).arg("-g").arg("-o").arg(&fresh);
    match link {
        Link::Static => {
            command.arg(&library.archive);
        }
        Link::Shared => {
            // Consumers find it by its SONAME, so that name has to exist.
            let dir = library.shared.parent().expect("a file in a directory");
            let link = dir.join(runtime_name());
            let file = library.shared.file_name().expect("a file in a directory");
            let _ = std::os::unix::fs::symlink(file, link);
            command.arg(&library.shared).arg(format!("-Wl,-rpath,{}", dir.display()));
        }
        Link::Nothing => {}
    }
    command.args(["-lpthread", "-ldl"]);
    let output = command.output().expect("the C compiler runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{} does not compile:\n{text}", source.display());
    fs::rename(&fresh, program).expect("the scratch directory is writable");
}

/// Writes a source among what is built, and returns its name for [`compile`].
pub fn write_source(name: &str, text: &str) -> String {
    let path = scratch().join(name);
    fs::write(&path, text).expect("the scratch directory is writable");
    path.strip_prefix(root()).unwrap_or(&path).to_str().expect("a path in UTF-8").to_owned()
}

/// The first example in the comments of a header.
pub fn example_in(header: &str) -> String {
    let header = fs::read_to_string(root().join(header)).expect("the file is there");
    let code = header.split("@code\n").nth(1).and_then(|rest| rest.split(" * @endcode").next()).expect("an example");
    code.lines().map(|line| line.strip_prefix(" *").unwrap_or(line).trim_end().to_owned() + "\n").collect()
}

/// The name by which programs look for the shared library.
pub fn runtime_name() -> String {
    naming::runtime_name("linux", env!("CARGO_PKG_VERSION")).expect("shared libraries have names there")
}

/// A folder in which the shared library of users lies under the names by which linkers and programs look for it.
pub fn library_folder() -> PathBuf {
    let folder = scratch().join("library");
    fs::create_dir_all(&folder).expect("the scratch directory is writable");
    for name in ["libslicepool.so".to_owned(), runtime_name()] {
        // Tests run side by side: each makes its own link and puts it in place in one step.
        let fresh = folder.join(format!("{name}.{}.{:?}", process::id(), thread::current().id()));
        std::os::unix::fs::symlink(library("release").shared, &fresh).expect("links can be made");
        fs::rename(fresh, folder.join(name)).expect("the scratch directory is writable");
    }
    folder
}

/// Runs a program; panics with its output if it fails or takes longer than `limit`.
pub fn run(program: &Path, arguments: &[&str], limit: Duration) -> String {
    let output = run_any(program, arguments, limit);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{} {arguments:?}: {}\n{text}\n{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Runs a program to its end, whatever that is; panics if it takes longer than `limit`.
pub fn run_any(program: &Path, arguments: &[&str], limit: Duration) -> Output {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let id = child.id().to_string();
    let waiter = thread::spawn(move || child.wait_with_output());
    let start = Instant::now();
    while !waiter.is_finished() {
        if start.elapsed() > limit {
            let _ = Command::new("kill").args(["-9", &id]).status();
            panic!("{} {arguments:?} takes longer than {limit:?}", program.display());
        }
        thread::sleep(Duration::from_millis(2));
    }
    waiter.join().expect("the waiting thread does not panic").expect("the program was started")
}

/// Whether a tool is there. If not, says that the test is skipped and what to install; where everything is required
/// (`SLICEPOOL_REQUIRE=all`), panics instead.
pub fn has_tool(tool: &str, package: &str) -> bool {
    let found = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        skip(&format!("{tool} is missing; install {package}"));
    }
    found
}

/// Whether a target of Rust is installed; otherwise as [`has_tool`].
pub fn has_target(target: &str) -> bool {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    let dir = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let found = !dir.is_empty() && Path::new(&dir).is_dir();
    if !found {
        skip(&format!("the target is missing; rustup target add {target}"));
    }
    found
}

/// Whether a C header is there; otherwise as [`has_tool`].
pub fn has_header(header: &str, package: &str) -> bool {
    let arguments = ["-E", "-include", header, "-x", "c", "/dev/null", "-o", "/dev/null"];
    let found = compiler(false).args(arguments).output().expect("the compiler runs").status.success();
    if !found {
        skip(&format!("{header} is missing; install {package}"));
    }
    found
}

/// Says that a test is skipped and why.
pub fn skip(why: &str) {
    assert!(env::var("SLICEPOOL_REQUIRE").as_deref() != Ok("all"), "required, but {why}");
    println!("SKIPPED: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a program is clean under all that [`STRICT`] asks for.
    fn is_clean(name: &str, text: &str, cpp: bool) -> bool {
        let source = scratch().join(format!("{name}-{}.{}", process::id(), if cpp { "cpp" } else { "c" }));
        fs::write(&source, text).expect("the scratch directory is writable");
        let output =
            compiler(cpp).args(STRICT).arg("-c").arg(&source).args(["-o", "/dev/null"]).output().expect("it runs");
        let _ = fs::remove_file(source);
        output.status.success()
    }

    #[test]
    fn what_compilers_warn_about_is_an_error() {
        for cpp in [false, true] {
            assert!(is_clean("clean", "int add(int a, int b);\nint add(int a, int b) { return a + b; }\n", cpp));
            for unclean in [
                "static int unused(void) { return 1; }\n",
                "int shadow(int a);\nint shadow(int a) { { int a = 2; (void)a; } return a; }\n",
                "int convert(long a);\nint convert(long a) { return (int)a + (char)1 + a; }\n",
                "int compare(int a, unsigned b);\nint compare(int a, unsigned b) { return a < b; }\n",
            ] {
                assert!(!is_clean("unclean", unclean, cpp), "{unclean}");
            }
        }
    }
}

/// The Rust program of the README, as a documentation test. Its C program is compiled by `tests/examples.rs`.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
