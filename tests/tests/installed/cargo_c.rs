//! Settings for `cargo cinstall`, which some distributions use.

use super::*;

/// The same as those of `make install`.
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
