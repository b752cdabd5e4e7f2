//! How the shared library is called, by operating system and version: for the build script, and for the tests that
//! compare it with `packaging/names.sh`.

/// The part of a version that programs depend on: before 1.0 every minor version may break them.
pub(crate) fn interface_version(version: &str) -> String {
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or("0"), parts.next().unwrap_or("0"));
    if major == "0" { format!("{major}.{minor}") } else { major.to_owned() }
}

/// The name that lies in the shared library, and that programs linked with it look for. `None` where there is no such
/// name beside that of the file.
pub(crate) fn runtime_name(target_os: &str, version: &str) -> Option<String> {
    let version = interface_version(version);
    match target_os {
        "linux" | "android" | "freebsd" | "netbsd" | "openbsd" | "dragonfly" | "illumos" | "solaris" => {
            Some(format!("libslicepool.so.{version}"))
        }
        "macos" | "ios" => Some(format!("@rpath/libslicepool.{version}.dylib")),
        _ => None,
    }
}

/// What the linker is told so that the shared library gets its name.
pub(crate) fn linker_argument(target_os: &str, version: &str) -> Option<String> {
    let option = if matches!(target_os, "macos" | "ios") { "-install_name" } else { "-soname" };
    runtime_name(target_os, version).map(|name| format!("-Wl,{option},{name}"))
}
