//! Programs that are built against what was installed, also after it was moved.

use super::*;

/// Names of the shared libraries that a program says it needs, of ours.
fn needed(program: &Path) -> Vec<String> {
    let dynamic = succeed(command("readelf").args(["-d", "-W"]).arg(program));
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)") && line.contains("slicepool"));
    needed.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned())).collect()
}

/// Runs a program and compares which library it says it needs: a name, never a path.
fn check(program: &Path, prints: &str, shared: bool) {
    assert_eq!(run(program, &[], LIMIT), prints, "{}", program.display());
    let name = runtime_name();
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
        assert_eq!(said["name"], runtime_name());
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
    fs::remove_file(now.join(format!("lib/{}", runtime_name()))).expect("it is there");
    assert!(!run_any(&program, &[], LIMIT).status.success(), "the program has the library from elsewhere");
}
