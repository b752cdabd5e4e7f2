//! What lies where after an installation, and what is left after it was removed.

use super::*;

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
    assert_eq!(runtime, runtime_name());
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
