//! Random sequences of every public operation against a model: sets of intervals, kept in the plainest way.
//!
//! After every operation the whole state is compared: a walk must show exactly the model's live ranges and the gaps
//! between them, every figure and every error must be the model's, and `check` must find nothing.
//!
//! `SLICEPOOL_MODEL_OPS` sets the number of operations, `SLICEPOOL_SEED` another seed, `SLICEPOOL_CASE` replays one
//! case of it. A failing case is shrunk, in `SLICEPOOL_MODEL_SHRINK` steps at most, and printed.

#[path = "model/allocator.rs"]
mod allocator;
#[path = "model/batches.rs"]
mod batches;
#[path = "model/compare.rs"]
mod compare;
#[path = "model/device.rs"]
mod device;
#[path = "model/ends.rs"]
mod ends;
#[path = "model/giving.rs"]
mod giving;
#[path = "model/ops.rs"]
mod ops;
#[path = "model/oracle.rs"]
mod oracle;
#[path = "model/pools.rs"]
mod pools;
#[path = "model/rules.rs"]
mod rules;
#[path = "model/run.rs"]
mod run;
#[path = "model/serve.rs"]
mod serve;
#[path = "model/shapes.rs"]
mod shapes;
#[path = "model/sliced.rs"]
mod sliced;
#[path = "model/space.rs"]
mod space;
#[path = "model/whole.rs"]
mod whole;

#[test]
fn sliced_pools_do_what_the_model_does() {
    run::run("sliced pools", 25, &allocator::cases(shapes::SLICED, 800, false));
}

#[test]
fn crowded_sliced_pools_do_what_the_model_does() {
    run::run("crowded sliced pools", 10, &allocator::cases(shapes::SLICED, 4000, true));
}

#[test]
fn pools_of_all_kinds_do_what_the_model_does() {
    run::run("all kinds of pools", 30, &allocator::cases(shapes::KINDS, 800, false));
}

#[test]
fn crowded_pools_of_all_kinds_do_what_the_model_does() {
    run::run("crowded pools of all kinds", 10, &allocator::cases(shapes::KINDS, 3000, true));
}

#[test]
fn spaces_do_what_the_model_does() {
    run::run("spaces", 20, &space::cases(800, false));
}

#[test]
fn crowded_spaces_do_what_the_model_does() {
    run::run("crowded spaces", 5, &space::cases(4000, true));
}
