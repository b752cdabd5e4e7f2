//! Gives the shared library its name for the linker and the loader.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let (major, minor) = (var("CARGO_PKG_VERSION_MAJOR"), var("CARGO_PKG_VERSION_MINOR"));
    // Before 1.0 every minor version may break programs, so it is part of the name.
    let suffix = if major == "0" { format!("{major}.{minor}") } else { major };
    match var("CARGO_CFG_TARGET_OS").as_str() {
        "linux" | "android" | "freebsd" | "netbsd" | "openbsd" | "dragonfly" | "illumos" | "solaris" => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libslicepool.so.{suffix}");
        }
        "macos" | "ios" => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libslicepool.{suffix}.dylib");
        }
        _ => {}
    }
}
