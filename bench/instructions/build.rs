//! Compiles the paths that programs in C walk.

fn main() {
    println!("cargo::rerun-if-changed=src/paths.c");
    println!("cargo::rerun-if-changed=../../include/slicepool.h");
    cc::Build::new().file("src/paths.c").include("../../include").std("c11").opt_level(2).compile("paths");
}
