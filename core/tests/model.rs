//! Random sequences of every public operation against a model: sets of intervals, kept in the plainest way.
//!
//! After every operation the whole state is compared: a walk must show exactly the model's live ranges and the gaps
//! between them, every figure and every error must be the model's, and `check` must find nothing.
//!
//! `SLICEPOOL_MODEL_OPS` sets the number of operations, `SLICEPOOL_SEED` another seed, `SLICEPOOL_CASE` replays one
//! case of it. A failing case is shrunk and printed.

#[path = "model/allocator.rs"]
mod allocator;
#[path = "model/device.rs"]
mod device;
#[path = "model/ends.rs"]
mod ends;
#[path = "model/ops.rs"]
mod ops;
#[path = "model/oracle.rs"]
mod oracle;
#[path = "model/pools.rs"]
mod pools;
#[path = "model/run.rs"]
mod run;
#[path = "model/shapes.rs"]
mod shapes;
#[path = "model/space.rs"]
mod space;

#[test]
fn sliced_pools_do_what_the_model_does() {
    run::run("sliced pools", 45, &allocator::cases(800, false));
}

#[test]
fn crowded_sliced_pools_do_what_the_model_does() {
    run::run("crowded sliced pools", 15, &allocator::cases(4000, true));
}

#[test]
fn spaces_do_what_the_model_does() {
    run::run("spaces", 30, &space::cases(800, false));
}

#[test]
fn crowded_spaces_do_what_the_model_does() {
    run::run("crowded spaces", 10, &space::cases(4000, true));
}
