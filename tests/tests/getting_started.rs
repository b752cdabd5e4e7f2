//! Runs docs/getting-started.md from top to bottom, as a new user would: every file and every command of it.
//!
//! A block of `sh` is run; one of `text` is what the commands before it print; any other is a file, named by the line before
//! it. Whatever else stands between fences fails the test.

use slicepool_tests::{has_tool, root, run_any, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, process};

/// For one block, which may build the library.
const LIMIT: Duration = Duration::from_secs(600);

/// What a block is there for.
#[derive(Debug, PartialEq, Eq)]
enum Purpose {
    /// Commands.
    Run,
    /// What the commands before print.
    Printed,
    /// Text of a file.
    File(String),
}

/// Text between fences.
#[derive(Debug)]
struct Block {
    chapter: String,
    purpose: Purpose,
    text: String,
}

/// All blocks of a document, in order; or what is wrong with one.
fn blocks(document: &str) -> Result<Vec<Block>, String> {
    let (mut blocks, mut chapter, mut before) = (Vec::new(), String::new(), "");
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut chapter);
        }
        let Some(language) = line.strip_prefix("```") else {
            if !line.trim().is_empty() {
                before = line;
            }
            continue;
        };
        let name = before.strip_prefix('`').and_then(|rest| rest.strip_suffix("`:"));
        let purpose = match (language, name) {
            ("sh", None) => Purpose::Run,
            ("text", None) => Purpose::Printed,
            ("c" | "make" | "cmake" | "rust" | "toml", Some(name)) => Purpose::File(name.to_owned()),
            _ => {
                return Err(format!(
                    "nobody can tell what is to be done with the block of `{language}` after: {before}"
                ));
            }
        };
        let mut text = String::new();
        loop {
            match lines.next() {
                Some("```") => break,
                Some(line) => text += &format!("{line}\n"),
                None => return Err(format!("the block of `{language}` in \"{chapter}\" has no end")),
            }
        }
        before = "";
        blocks.push(Block { chapter: chapter.clone(), purpose, text });
    }
    Ok(blocks)
}

/// The folder in which the document is followed, with a home of its own.
struct Sandbox {
    folder: PathBuf,
    settings: String,
}

impl Sandbox {
    fn new() -> Self {
        // Below the repository Cargo would take new packages for parts of it.
        let folder = env::temp_dir().join(format!("slicepool-getting-started-{}", process::id()));
        let _ = fs::remove_dir_all(&folder);
        let home = folder.join("home");
        fs::create_dir_all(&home).expect("the folder for temporary files is writable");
        let origin = folder.join("origin");
        publish(&origin);

        let mut sandbox = Self { folder, settings: String::new() };
        let own_home = PathBuf::from(env::var_os("HOME").unwrap_or_default());
        for (name, usual) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            let value = env::var_os(name).map_or_else(|| own_home.join(usual), PathBuf::from);
            sandbox.set(name, &value.display().to_string());
        }
        sandbox.set("HOME", &home.display().to_string());
        // Whoever asks for the repository gets this working tree.
        sandbox.set("GIT_CONFIG_COUNT", "1");
        sandbox.set("GIT_CONFIG_KEY_0", &format!("url.file://{}.insteadOf", origin.display()));
        sandbox.set("GIT_CONFIG_VALUE_0", &repository());
        sandbox.set("CARGO_NET_GIT_FETCH_WITH_CLI", "true");
        // What is released is built by other tests; here it need not be fast.
        sandbox.set("CARGO_PROFILE_RELEASE_LTO", "off");
        sandbox.set("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        sandbox.set("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
        for name in
            ["MAKEFLAGS", "MAKELEVEL", "CARGO_TARGET_DIR", "PREFIX", "DESTDIR", "RUST_TARGET", "PKG_CONFIG_PATH"]
        {
            sandbox.settings += &format!("unset {name}\n");
        }
        sandbox
    }

    fn set(&mut self, name: &str, value: &str) {
        self.settings += &format!("export {name}='{value}'\n");
    }

    /// Runs commands; what they print, or what they complain about.
    fn run(&self, commands: &str) -> Result<String, String> {
        let script = self.folder.join("commands.sh");
        let lines = format!("set -e\ncd '{}'\n{}{commands}", self.folder.display(), self.settings);
        fs::write(&script, lines).expect("the folder for temporary files is writable");
        let output = run_any(Path::new("sh"), &[script.to_str().expect("a path in UTF-8")], LIMIT);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(printed);
        }
        Err(format!("{}\n{commands}\n{printed}{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }

    fn write(&self, name: &str, text: &str) {
        assert!(!name.starts_with('/') && !name.contains(".."), "{name} is outside");
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder for temporary files is writable");
        fs::write(path, text).expect("the folder for temporary files is writable");
    }
}

/// Where the document says that the repository is.
fn repository() -> String {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the file is there");
    let line = manifest.lines().find_map(|line| line.strip_prefix("repository = \""));
    line.and_then(|rest| rest.strip_suffix('"')).expect("the manifest names the repository").to_owned()
}

/// Makes a repository of this working tree, whether or not it is one itself.
fn publish(origin: &Path) {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-c", "core.safecrlf=false"]);
        git.arg("--git-dir").arg(origin).args(arguments).current_dir(root());
        let output = git.output().expect("git runs");
        assert!(output.status.success(), "{git:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let tree = format!("--work-tree={}", root().display());
    git(&["init", "--quiet", "--bare", "--initial-branch=main"]);
    git(&[&tree, "add", "--all"]);
    git(&[&tree, "commit", "--quiet", "--message=all"]);
}

/// Whether Cargo can ask for packages that it has never seen.
fn has_registry(sandbox: &Sandbox) -> bool {
    sandbox.write("asks/Cargo.toml", "[package]\nname = \"asks\"\n[dependencies]\nshlex = \"1\"\n[workspace]\n");
    sandbox.write("asks/src/lib.rs", "");
    sandbox.run("cargo fetch --quiet --manifest-path asks/Cargo.toml").is_ok()
}

fn has_target(target: &str) -> bool {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// Whether what the commands or the file of a block need is there.
fn has_what_it_needs(text: &str, online: bool) -> bool {
    let bare = "thumbv7em-none-eabihf";
    for (word, tool, package) in [("cmake ", "cmake", "cmake"), ("pkg-config", "pkg-config", "pkgconf")] {
        if text.contains(word) && !has_tool(tool, package) {
            return false;
        }
    }
    if text.contains(bare) && !has_target(bare) {
        skip(&format!("the target is missing; rustup target add {bare}"));
        return false;
    }
    if text.contains("git = ") && !online {
        skip("the registry of packages cannot be reached");
        return false;
    }
    true
}

#[test]
fn everything_in_the_document_works_in_this_order() {
    if !has_tool("git", "git") || !has_tool("make", "make") {
        return;
    }
    let document = fs::read_to_string(root().join("docs/getting-started.md")).expect("the file is there");
    let blocks = blocks(&document).unwrap_or_else(|problem| panic!("{problem}"));
    assert!(blocks.iter().filter(|block| block.purpose == Purpose::Run).count() >= 10, "most of it is missing");

    let mut sandbox = Sandbox::new();
    let online = has_registry(&sandbox);
    if !online {
        sandbox.set("CARGO_NET_OFFLINE", "true");
    }
    let (mut skipped, mut printed) = (String::new(), None);
    for block in &blocks {
        if block.chapter == skipped || !has_what_it_needs(&block.text, online) {
            skipped.clone_from(&block.chapter);
            continue;
        }
        match &block.purpose {
            Purpose::File(name) => sandbox.write(name, &block.text),
            Purpose::Run => {
                let start = Instant::now();
                let result = sandbox.run(&block.text);
                println!("{}: {:.1} s", block.chapter, start.elapsed().as_secs_f64());
                printed = Some(result.unwrap_or_else(|problem| panic!("{}: {problem}", block.chapter)));
            }
            Purpose::Printed => {
                let printed = printed.take().expect("commands stand before what they print");
                assert_eq!(printed, block.text, "{}", block.chapter);
            }
        }
    }
    // Everything that was built says the same.
    for program in ["hello/with-shared", "hello/with-static", "hello/build/hello", "fetched/build/fetched"] {
        if sandbox.folder.join(program).exists() {
            assert_eq!(sandbox.run(program).expect("it runs"), "100096 bytes at 0\n", "{program}");
        }
    }
    let _ = fs::remove_dir_all(&sandbox.folder);
}

#[test]
fn blocks_that_nobody_could_follow_are_noticed() {
    let good = "# T\n\n## C\n\n`a/b.c`:\n\n```c\nint a;\n```\n\n```sh\ncc a\n```\n\nprints:\n\n```text\nx\n```\n";
    let found = blocks(good).expect("it is good");
    let purposes: Vec<_> = found.iter().map(|block| &block.purpose).collect();
    assert_eq!(purposes, [&Purpose::File("a/b.c".to_owned()), &Purpose::Run, &Purpose::Printed]);
    assert_eq!((found[0].chapter.as_str(), found[0].text.as_str()), ("C", "int a;\n"));
    for bad in [
        "```c\nint a;\n```\n",
        "As in `a.c`:\n\n```c\nint a;\n```\n",
        "`a.c`:\n\n```\nint a;\n```\n",
        "`a.py`:\n\n```python\n1\n```\n",
        "`a.sh`:\n\n```sh\ntrue\n```\n",
        "`a.c`:\n\n```c\nint a;\n```\n\n```c\nint b;\n```\n",
        "```sh\ntrue\n",
    ] {
        assert!(blocks(bad).is_err(), "{bad}");
    }
}
