//! Compiles the churn as a program in C does it.

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=../include/slicepool.h");
    cc::Build::new().file("c/churn.c").include("../include").std("c11").opt_level(2).compile("c_churn");
}
