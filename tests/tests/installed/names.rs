//! How files are called, on this system and on others.

use super::*;

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
