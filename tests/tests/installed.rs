//! Installing as users do it: what lies where, that it may be moved, that programs build against it in every way, and that
//! nothing is left after it was removed.

#[path = "../../capi/naming.rs"]
mod naming;

use slicepool_tests::{has_tool, library, root, run, run_any, scratch, version_suffix};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::time::Duration;
use std::{env, fs, process};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const LIMIT: Duration = Duration::from_secs(10);

/// A folder of its own for a test; gone when the test has passed.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = scratch().join(format!("installed-{test}-{}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the scratch directory is writable");
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A command that knows nothing of the settings under which the tests themselves run.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR", "PREFIX", "LIBDIR", "INCLUDEDIR", "RUST_TARGET"] {
        command.env_remove(name);
    }
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a command that has to succeed, and returns what it writes.
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output));
    text(&output)
}

fn make(arguments: &[&str]) -> Command {
    let mut make = command("make");
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    make.arg("-C").arg(root()).arg(format!("CARGO={cargo}")).args(arguments);
    make
}

/// Builds what is installed. False where a tool for that is missing.
fn built() -> bool {
    static BUILT: Once = Once::new();
    if !has_tool("make", "make") {
        return false;
    }
    BUILT.call_once(|| {
        library("release");
        succeed(&mut make(&["all"]));
    });
    true
}

fn install(variables: &[String]) {
    let variables: Vec<_> = variables.iter().map(String::as_str).collect();
    succeed(&mut make(&[&["install"], &variables[..]].concat()));
}

fn prefix(path: &Path) -> String {
    format!("PREFIX={}", path.display())
}

/// All files and links below a folder, and the folders that are empty, as paths relative to it.
fn tree(folder: &Path) -> BTreeSet<String> {
    fn walk(folder: &Path, base: &Path, found: &mut BTreeSet<String>) {
        let entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
        if entries.is_empty() && folder != base {
            found.insert(format!("{}/", folder.strip_prefix(base).expect("it lies below").display()));
        }
        for entry in entries {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                walk(&path, base, found);
            } else {
                found.insert(path.strip_prefix(base).expect("it lies below").display().to_string());
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(folder, folder, &mut found);
    found
}

/// Headers that are there to be installed.
fn headers() -> BTreeSet<String> {
    let files = tree(&root().join("include")).into_iter();
    files.filter(|name| name.ends_with(".h") || name.ends_with(".hpp")).collect()
}

fn expected(libraries: &[&str]) -> BTreeSet<String> {
    let package = [
        "lib/pkgconfig/slicepool.pc",
        "lib/cmake/slicepool/slicepoolConfig.cmake",
        "lib/cmake/slicepool/slicepoolConfigVersion.cmake",
    ];
    let headers = headers().into_iter().map(|name| format!("include/{name}"));
    headers.chain([libraries, &package].concat().into_iter().map(str::to_owned)).collect()
}

/// What the names of files are on a target of Rust.
fn names(version: &str, target: &str) -> BTreeMap<String, String> {
    let printed = succeed(command("sh").arg(root().join("packaging/names.sh")).arg(version).arg(target));
    let pairs = printed.lines().map(|line| line.split_once('=').expect("an assignment"));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

// ---- names

#[test]
fn the_build_script_and_the_installation_call_the_shared_library_alike() {
    let targets = [
        ("linux", "x86_64-unknown-linux-gnu"),
        ("linux", "arm-unknown-linux-musleabihf"),
        ("android", "aarch64-linux-android"),
        ("freebsd", "x86_64-unknown-freebsd"),
        ("macos", "aarch64-apple-darwin"),
        ("ios", "aarch64-apple-ios"),
    ];
    for version in [VERSION, "0.12.3", "1.0.0", "3.4.5-rc.1"] {
        for (os, target) in targets {
            let names = names(version, target);
            let name = naming::runtime_name(os, version).expect("shared libraries have names there");
            assert_eq!(names["runtime_name"], name, "{target} {version}");
            assert!(name.ends_with(&names["runtime"]), "{target} {version}: {names:?}");
            let argument = naming::linker_argument(os, version).expect("shared libraries have names there");
            assert!(argument.ends_with(&format!(",{name}")), "{argument}");
        }
    }
    assert_eq!(naming::linker_argument("windows", VERSION), None);
    assert_eq!(naming::runtime_name("none", VERSION), None);
}

#[test]
fn names_are_those_that_linkers_and_loaders_look_for() {
    let values = |version, target| {
        let names = names(version, target);
        ["static", "built", "shared", "runtime", "link", "runtime_name"].map(|name| names[name].clone())
    };
    assert_eq!(
        values("0.1.0", "x86_64-unknown-linux-gnu"),
        [
            "libslicepool.a",
            "libslicepool.so",
            "libslicepool.so.0.1.0",
            "libslicepool.so.0.1",
            "libslicepool.so",
            "libslicepool.so.0.1"
        ]
    );
    assert_eq!(
        values("2.3.4", "aarch64-apple-darwin"),
        [
            "libslicepool.a",
            "libslicepool.dylib",
            "libslicepool.2.3.4.dylib",
            "libslicepool.2.dylib",
            "libslicepool.dylib",
            "@rpath/libslicepool.2.dylib"
        ]
    );
    assert_eq!(
        values("0.1.0", "x86_64-pc-windows-gnu"),
        ["libslicepool.a", "slicepool.dll", "slicepool.dll", "slicepool.dll", "libslicepool.dll.a", "slicepool.dll"]
    );
    assert_eq!(values("0.1.0", "thumbv7em-none-eabihf"), ["libslicepool.a", "", "", "", "", ""]);
    assert_eq!(
        naming::linker_argument("macos", "0.1.0").as_deref(),
        Some("-Wl,-install_name,@rpath/libslicepool.0.1.dylib")
    );
    assert_eq!(naming::linker_argument("linux", "0.1.0").as_deref(), Some("-Wl,-soname,libslicepool.so.0.1"));
    for target in ["x86_64-pc-windows-msvc", "wasm32-unknown-unknown", "nonsense"] {
        let output = command("sh").arg(root().join("packaging/names.sh")).args([VERSION, target]).output();
        let output = output.expect("a shell runs");
        assert!(!output.status.success() && text(&output).contains(target), "{target}: {}", text(&output));
    }
}

/// Installs empty files as if they were libraries for another target; the folder has what was installed.
fn install_for(target: &str, files: &[&str]) -> Folder {
    let folder = Folder::new(target);
    let build = folder.join("build");
    fs::create_dir_all(&build).expect("the scratch directory is writable");
    for file in files {
        fs::write(build.join(file), file).expect("the scratch directory is writable");
    }
    let mut script = command("sh");
    script.arg(root().join("packaging/install.sh")).arg("install").current_dir(&folder.0).env("BUILD", &build);
    for (name, value) in
        [("PREFIX", "to"), ("LIBDIR", "lib"), ("INCLUDEDIR", "include"), ("DESTDIR", ""), ("VERSION", "0.1.0")]
    {
        script.env(name, value);
    }
    succeed(script.env("TARGET", target).env("URL", "https://example.com"));
    folder
}

#[test]
fn libraries_for_macos_windows_and_bare_metal_get_their_files_and_links() {
    let mac = install_for("aarch64-apple-darwin", &["libslicepool.a", "libslicepool.dylib"]);
    let to = mac.join("to");
    let libraries =
        ["lib/libslicepool.a", "lib/libslicepool.0.1.0.dylib", "lib/libslicepool.0.1.dylib", "lib/libslicepool.dylib"];
    assert_eq!(tree(&to), expected(&libraries));
    let leads = |link: &str| fs::read_link(to.join("lib").join(link)).expect("a link");
    assert_eq!(leads("libslicepool.0.1.dylib"), Path::new("libslicepool.0.1.0.dylib"));
    assert_eq!(leads("libslicepool.dylib"), Path::new("libslicepool.0.1.dylib"));
    let config = fs::read_to_string(to.join("lib/cmake/slicepool/slicepoolConfig.cmake")).expect("it is there");
    assert!(config.contains("IMPORTED_SONAME \"@rpath/libslicepool.0.1.dylib\""), "{config}");

    let files = ["libslicepool.a", "slicepool.dll", "libslicepool.dll.a"];
    let windows = install_for("x86_64-pc-windows-gnu", &files);
    let libraries = ["lib/libslicepool.a", "bin/slicepool.dll", "lib/libslicepool.dll.a"];
    assert_eq!(tree(&windows.join("to")), expected(&libraries));

    let bare = install_for("thumbv7em-none-eabihf", &["libslicepool.a"]);
    assert_eq!(tree(&bare.join("to")), expected(&["lib/libslicepool.a"]));
}

// ---- what is installed

#[test]
fn everything_is_installed_where_it_belongs_and_nothing_is_left_after_it_was_removed() {
    if !built() {
        return;
    }
    let folder = Folder::new("tree");
    let to = folder.join("to");
    install(&[prefix(&to)]);
    let names = names(VERSION, "x86_64-unknown-linux-gnu");
    let [shared, runtime, link] = ["shared", "runtime", "link"].map(|name| names[name].as_str());
    assert_eq!(runtime, format!("libslicepool.so.{}", version_suffix()));
    let libraries = ["libslicepool.a", shared, runtime, link].map(|name| format!("lib/{name}"));
    let files = expected(&libraries.each_ref().map(String::as_str));
    assert_eq!(tree(&to), files);

    assert!(fs::symlink_metadata(to.join("lib").join(shared)).is_ok_and(|file| file.is_file()));
    assert_eq!(fs::read_link(to.join("lib").join(runtime)).expect("a link"), Path::new(shared));
    assert_eq!(fs::read_link(to.join("lib").join(link)).expect("a link"), Path::new(runtime));
    let same = |a: PathBuf, b: PathBuf| fs::read(a).expect("it is there") == fs::read(b).expect("it is there");
    let build = root().join("target/capi/release");
    assert!(same(to.join("lib").join(shared), build.join("libslicepool.so")));
    assert!(same(to.join("lib/libslicepool.a"), build.join("libslicepool.a")));
    for header in headers() {
        assert!(same(to.join("include").join(&header), root().join("include").join(&header)), "{header}");
    }

    // Again, over what is there; then a file of somebody else's, which stays.
    install(&[prefix(&to)]);
    assert_eq!(tree(&to), files);
    let other = to.join("lib/pkgconfig/other.pc");
    fs::write(&other, "").expect("the scratch directory is writable");
    succeed(&mut make(&["uninstall", &prefix(&to)]));
    assert_eq!(tree(&to), ["lib/pkgconfig/other.pc", "include/"].map(str::to_owned).into());
    fs::remove_file(other).expect("it is there");
    succeed(&mut make(&["uninstall", &prefix(&to)]));
    assert_eq!(tree(&to), ["lib/", "include/"].map(str::to_owned).into());
}

#[test]
fn a_tree_for_a_package_does_not_know_where_it_was_put_together() {
    if !built() {
        return;
    }
    let folder = Folder::new("destdir");
    let stage = folder.join("stage");
    let destdir = format!("DESTDIR={}", stage.display());
    install(&[destdir.clone(), "PREFIX=/opt/slicepool/".to_owned(), "LIBDIR=/opt/lib64//".to_owned()]);
    let files = tree(&stage);
    assert!(files.contains("opt/slicepool/include/slicepool.h"), "{files:?}");
    assert!(
        files.contains("opt/lib64/libslicepool.a") && files.contains("opt/lib64/pkgconfig/slicepool.pc"),
        "{files:?}"
    );
    for file in files.iter().filter(|file| file.ends_with(".pc") || file.ends_with(".cmake")) {
        let text = fs::read_to_string(stage.join(file)).expect("it is there");
        assert!(!text.contains(&*stage.to_string_lossy()), "{file}:\n{text}");
        assert!(!text.contains('@'), "{file} has a gap:\n{text}");
    }
    let pc = fs::read_to_string(stage.join("opt/lib64/pkgconfig/slicepool.pc")).expect("it is there");
    assert!(pc.contains("prefix=/opt/slicepool\nlibdir=/opt/lib64\nincludedir=${prefix}/include\n"), "{pc}");
    assert!(pc.contains(&format!("\nVersion: {VERSION}\n")), "{pc}");

    // The root of the file system is a prefix, too.
    let stage = folder.join("root");
    install(&[format!("DESTDIR={}", stage.display()), "PREFIX=/".to_owned()]);
    assert!(tree(&stage).contains("include/slicepool.h"), "{:?}", tree(&stage));
    let pc = fs::read_to_string(stage.join("lib/pkgconfig/slicepool.pc")).expect("it is there");
    assert!(pc.contains("prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\n"), "{pc}");
}

/// As root, who has no Cargo, after somebody else has built.
#[test]
fn what_is_built_is_installed_without_cargo_and_what_is_not_is_not() {
    if !built() {
        return;
    }
    let folder = Folder::new("cargo");
    let to = folder.join("to");
    succeed(&mut make(&["CARGO=/nonexistent/cargo", "install", &prefix(&to)]));
    assert!(to.join("lib/libslicepool.a").is_file());
    succeed(&mut make(&["CARGO=/nonexistent/cargo", "uninstall", &prefix(&to)]));

    let again = folder.join("again");
    let mut changed = make(&["CARGO=/nonexistent/cargo", "-W", "core/src/lib.rs", "install", &prefix(&again)]);
    let output = changed.output().expect("make runs");
    assert!(!output.status.success() && text(&output).contains("/nonexistent/cargo"), "{}", text(&output));
    assert!(!again.exists());
}

#[test]
fn places_that_make_no_sense_are_refused_and_nothing_is_written() {
    if !built() {
        return;
    }
    let folder = Folder::new("refused");
    let to = folder.join("to");
    for (variables, complaint) in [
        (vec![prefix(&to), "LIBDIR=../lib".to_owned()], "LIBDIR"),
        (vec![prefix(&to), "INCLUDEDIR=include/./x".to_owned()], "INCLUDEDIR"),
        (vec![prefix(&to), "LIBDIR=".to_owned()], "LIBDIR"),
        (vec!["PREFIX=".to_owned()], "PREFIX"),
        (
            vec![
                prefix(&to),
                "RUST_TARGET=nonsense".to_owned(),
                "-o".to_owned(),
                "target/capi/nonsense/release/built".to_owned(),
            ],
            "nonsense",
        ),
    ] {
        let words: Vec<_> = variables.iter().map(String::as_str).collect();
        for goal in ["install", "uninstall"] {
            let output = make(&[&[goal], &words[..]].concat()).output().expect("make runs");
            assert!(!output.status.success() && text(&output).contains(complaint), "{words:?}: {}", text(&output));
        }
    }
    assert!(tree(&folder.0).is_empty(), "{:?}", tree(&folder.0));
}

// ---- building against it

/// Names of the shared libraries that a program says it needs, of ours.
fn needed(program: &Path) -> Vec<String> {
    let dynamic = succeed(command("readelf").args(["-d", "-W"]).arg(program));
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)") && line.contains("slicepool"));
    needed.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned())).collect()
}

/// Runs a program and compares which library it says it needs: a name, never a path.
fn check(program: &Path, prints: &str, shared: bool) {
    assert_eq!(run(program, &[], LIMIT), prints, "{}", program.display());
    let name = format!("libslicepool.so.{}", version_suffix());
    assert_eq!(needed(program), if shared { vec![name] } else { vec![] }, "{}", program.display());
}

/// Where libraries and headers may go, beside a prefix: the values of LIBDIR and INCLUDEDIR, and whether the tree may be
/// moved afterwards.
fn places(folder: &Folder, to: &Path) -> Vec<(String, String, bool)> {
    let (outside, inside) = (folder.join("elsewhere"), to.join("own"));
    let place = |lib: &str, include: &str, may_move| (lib.to_owned(), include.to_owned(), may_move);
    vec![
        place("lib", "include", true),
        place(&format!("lib/{}-linux-gnu", env::consts::ARCH), "include", true),
        place("lib64", "include/slicepool-0", true),
        (inside.join("lib").display().to_string(), inside.join("include").display().to_string(), true),
        (outside.join("lib").display().to_string(), "include".to_owned(), false),
        ("lib".to_owned(), outside.join("include").display().to_string(), false),
    ]
}

/// Installs for each of these places, moves what may be moved, and shows it to `use_it` with the folder of the libraries.
fn in_every_place(test: &str, use_it: impl Fn(&Folder, &Path, &Path)) {
    let folder = Folder::new(test);
    let count = places(&folder, Path::new("/")).len();
    for at in 0..count {
        let first = folder.join(&format!("at-first-{at}"));
        let (lib, include, may_move) = places(&folder, &first).swap_remove(at);
        install(&[prefix(&first), format!("LIBDIR={lib}"), format!("INCLUDEDIR={include}")]);
        let now = if may_move { folder.join(&format!("moved-{at}/deeper")) } else { first.clone() };
        if may_move {
            fs::create_dir_all(folder.join(&format!("moved-{at}"))).expect("the scratch directory is writable");
            fs::rename(&first, &now).expect("the scratch directory is writable");
        }
        let lib = first.join(lib);
        let lib = lib.strip_prefix(&first).map_or(lib.clone(), |relative| now.join(relative));
        use_it(&folder, &now, &lib);
        let _ = fs::remove_dir_all(folder.join("elsewhere"));
    }
}

#[test]
fn pkg_config_builds_programs_of_every_kind_wherever_the_tree_lies() {
    if !built() || !has_tool("pkg-config", "pkgconf") || !has_tool("readelf", "binutils") {
        return;
    }
    in_every_place("pkg-config", |folder, _, lib| {
        let project = folder.join("project");
        let _ = fs::remove_dir_all(&project);
        fs::create_dir_all(&project).expect("the scratch directory is writable");
        let source = root().join("tests/install/make/Makefile");
        let mut make = command("make");
        make.arg("-f").arg(source).arg(format!("PROGRAM={}", root().join("tests/install/program.c").display()));
        make.args(["shared", "static", "alone"]).current_dir(&project).env("PKG_CONFIG_LIBDIR", lib.join("pkgconfig"));
        succeed(&mut make);
        for name in ["shared", "static", "alone"] {
            check(&project.join(name), "works in C\n", name == "shared");
        }
        let mut version = command("pkg-config");
        version.args(["--modversion", "slicepool"]).env("PKG_CONFIG_LIBDIR", lib.join("pkgconfig"));
        assert_eq!(succeed(&mut version).trim(), VERSION);
    });
}

/// Lines of the form `-- NAME: VALUE` that CMake prints.
fn said(printed: &str) -> BTreeMap<String, String> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix("-- ")?.split_once(": "));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn cmake(project: &str, build: &Path, prefixes: &[&Path]) -> Command {
    let mut cmake = command("cmake");
    let prefixes: Vec<_> = prefixes.iter().map(|path| path.display().to_string()).collect();
    cmake.arg("-S").arg(root().join("tests/install").join(project)).arg("-B").arg(build);
    cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefixes.join(";")));
    cmake
}

#[test]
fn the_cmake_package_finds_its_files_wherever_the_tree_lies() {
    if !built() || !has_tool("cmake", "cmake") {
        return;
    }
    in_every_place("package", |folder, now, lib| {
        let build = folder.join("build");
        let _ = fs::remove_dir_all(&build);
        let mut cmake = cmake("package", &build, &[lib.parent().expect("a folder"), now]);
        // Where CMake does not look on every system.
        if lib.ends_with("lib64") {
            cmake.arg(format!("-DPACKAGE={}", lib.join("cmake/slicepool").display()));
        }
        let said = said(&succeed(&mut cmake));
        let lib = lib.canonicalize().expect("it is there");
        assert!(Path::new(&said["headers"]).join("slicepool.h").is_file(), "{said:?}");
        assert_eq!(Path::new(&said["static"]), lib.join("libslicepool.a"));
        assert_eq!(Path::new(&said["shared"]), lib.join(format!("libslicepool.so.{VERSION}")));
        assert_eq!(said["name"], format!("libslicepool.so.{}", version_suffix()));
        assert_eq!(said["slicepool_VERSION"], VERSION);
        assert_eq!(said["nonsense"], "0", "{said:?}");
    });
}

#[test]
fn the_cmake_package_stands_in_for_its_own_minor_version_only() {
    if !built() || !has_tool("cmake", "cmake") {
        return;
    }
    let folder = Folder::new("versions");
    let to = folder.join("to");
    install(&[prefix(&to)]);
    let numbers: Vec<u32> = VERSION.split('.').map(|part| part.parse().expect("a number")).collect();
    let [major, minor, patch] = numbers[..] else { panic!("{VERSION}") };
    assert_eq!(major, 0, "from 1.0 on, the same major version has to do");
    let cases = [
        (format!("{major}"), true),
        (format!("{major}.{minor}"), true),
        (VERSION.to_owned(), true),
        (format!("{major}.{minor}.{}", patch + 1), false),
        (format!("{major}.{}", minor + 1), false),
        (format!("{major}.{}", minor - 1), false),
        (format!("{}", major + 1), false),
        (format!("{VERSION} EXACT"), true),
        (format!("{major}.{minor}.{} EXACT", patch + 1), false),
        (format!("0.0...{major}.{}", minor + 1), true),
        (format!("0.0...{VERSION}"), true),
        (format!("0.0...<{VERSION}"), false),
        (format!("{major}.{}...9", minor + 1), false),
    ];
    let wanted: Vec<_> = cases.iter().map(|(version, _)| version.as_str()).collect();
    let mut cmake = cmake("package", &folder.join("build"), &[&to]);
    let said = said(&succeed(cmake.arg(format!("-DWANTED={}", wanted.join(";")))));
    for (version, fits) in &cases {
        assert_eq!(said[version], if *fits { "1" } else { "0" }, "{version}: {said:?}");
    }
}

#[test]
fn programs_in_c_and_cpp_build_with_cmake_from_a_tree_that_was_moved() {
    if !built() || !has_tool("cmake", "cmake") || !has_tool("readelf", "binutils") || !has_tool("c++", "g++") {
        return;
    }
    let folder = Folder::new("cmake");
    let (first, now) = (folder.join("first"), folder.join("moved with spaces"));
    install(&[prefix(&first)]);
    fs::rename(&first, &now).expect("the scratch directory is writable");
    for shared in [false, true] {
        let build = folder.join(if shared { "build-shared" } else { "build-static" });
        let mut configure = cmake("cmake", &build, &[&now]);
        succeed(configure.arg(format!("-DBUILD_SHARED_LIBS={}", if shared { "ON" } else { "OFF" })));
        succeed(command("cmake").arg("--build").arg(&build));
        for (language, prints) in [("c", "works in C\n"), ("cpp", "works in C++\n")] {
            for (kind, needs_shared) in [("shared", true), ("static", false), ("slicepool", shared)] {
                check(&build.join(format!("{language}_{kind}")), prints, needs_shared);
            }
        }
    }
    // Programs run without what only linkers need, and not without the library.
    let program = folder.join("build-shared/c_shared");
    fs::remove_file(now.join("lib/libslicepool.so")).expect("it is there");
    run(&program, &[], LIMIT);
    fs::remove_file(now.join(format!("lib/libslicepool.so.{}", version_suffix()))).expect("it is there");
    assert!(!run_any(&program, &[], LIMIT).status.success(), "the program has the library from elsewhere");
}

// ---- cargo-c

/// Settings for `cargo cinstall`, which some distributions use: the same names and headers as `make install`.
#[test]
fn cargo_c_is_told_the_same_names_and_headers() {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = command(cargo);
    metadata.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root());
    let output = metadata.output().expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    let capi = packages.iter().find(|package| package["name"] == "slicepool-capi").expect("the package is there");
    // It turns on a feature of that name and fails if there is none.
    assert!(capi["features"]["capi"].is_array(), "{}", capi["features"]);
    let settings = &capi["metadata"]["capi"];
    assert_eq!(settings["library"]["name"], "slicepool");
    assert_eq!(settings["pkg_config"]["filename"], "slicepool");
    // The version in the name of the library ends after so many numbers.
    let parts = naming::interface_version(VERSION).split('.').count();
    assert_eq!(settings["library"]["version_suffix_components"], parts);
    assert_eq!(settings["header"]["subdirectory"], false);
    assert_eq!(settings["header"]["generation"], false);

    let assets = settings["install"]["include"]["asset"].as_array().expect("a list");
    let mut installed = BTreeSet::new();
    for asset in assets {
        assert_eq!(asset["to"], "", "{asset}");
        let from = asset["from"].as_str().expect("a pattern");
        let ending = from.strip_prefix("../include/**/*").unwrap_or_else(|| panic!("{from}"));
        installed.extend(headers().into_iter().filter(|name| name.ends_with(ending)));
    }
    assert_eq!(installed, headers());
}
