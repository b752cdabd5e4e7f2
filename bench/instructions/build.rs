//! Compiles what walks paths of the C library.

fn main() {
    println!("cargo::rerun-if-changed=../c");
    println!("cargo::rerun-if-changed=../../include/slicepool.h");
    let mut build = cc::Build::new();
    build.files(["../c/churn.c", "../c/buffers.c"]).include("../../include");
    build.std("c11").opt_level(2).compile("paths");
}
