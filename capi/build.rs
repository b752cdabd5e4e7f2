//! Gives the shared library its name for the linker and the loader.

mod naming;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=naming.rs");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    if let Some(argument) = naming::linker_argument(&var("CARGO_CFG_TARGET_OS"), &var("CARGO_PKG_VERSION")) {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
