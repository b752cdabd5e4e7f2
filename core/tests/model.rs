//! Random sequences of every public operation against a model: sets of intervals, kept in the plainest way.
//!
//! After every operation the whole state is compared: a walk must show exactly the model's live ranges and the gaps
//! between them, every figure and every error must be the model's, and `check` must find nothing. What the device is
//! asked for, and what goes back to it, is foretold call by call. Dry runs are held against allocators that do the same.
//!
//! `SLICEPOOL_MODEL_OPS` sets the number of operations, `SLICEPOOL_SEED` another seed, `SLICEPOOL_CASE` replays one
//! case of it. A failing case is shrunk, in `SLICEPOOL_MODEL_SHRINK` steps at most, and printed.

#[path = "model/allocator.rs"]
mod allocator;
#[path = "model/batches.rs"]
mod batches;
#[path = "model/budget.rs"]
mod budget;
#[path = "model/care.rs"]
mod care;
#[path = "model/compare.rs"]
mod compare;
#[path = "model/device.rs"]
mod device;
#[path = "model/dry.rs"]
mod dry;
#[path = "model/ends.rs"]
mod ends;
#[path = "model/freeing.rs"]
mod freeing;
#[path = "model/giving.rs"]
mod giving;
#[path = "model/growth.rs"]
mod growth;
#[path = "model/handles.rs"]
mod handles;
#[path = "model/install.rs"]
mod install;
#[path = "model/ops.rs"]
mod ops;
#[path = "model/oracle.rs"]
mod oracle;
#[path = "model/pools.rs"]
mod pools;
#[path = "model/refusals.rs"]
mod refusals;
#[path = "model/rules.rs"]
mod rules;
#[path = "model/run.rs"]
mod run;
#[path = "model/scarce.rs"]
mod scarce;
#[path = "model/serve.rs"]
mod serve;
#[path = "model/shapes.rs"]
mod shapes;
#[path = "model/short.rs"]
mod short;
#[path = "model/sliced.rs"]
mod sliced;
#[path = "model/space.rs"]
mod space;
#[path = "model/steps.rs"]
mod steps;
#[path = "model/twins.rs"]
mod twins;
#[path = "model/waiting.rs"]
mod waiting;
#[path = "model/waits.rs"]
mod waits;
#[path = "model/whole.rs"]
mod whole;

#[test]
fn sliced_pools_do_what_the_model_does() {
    run::run("sliced pools", 15, &allocator::cases(shapes::SLICED, 800, false));
}

#[test]
fn crowded_sliced_pools_do_what_the_model_does() {
    run::run("crowded sliced pools", 5, &allocator::cases(shapes::SLICED, 4000, true));
}

#[test]
fn pools_of_all_kinds_do_what_the_model_does() {
    run::run("all kinds of pools", 15, &allocator::cases(shapes::KINDS, 800, false));
}

#[test]
fn crowded_pools_of_all_kinds_do_what_the_model_does() {
    run::run("crowded pools of all kinds", 10, &allocator::cases(shapes::KINDS, 3000, true));
}

#[test]
fn pools_that_are_short_of_memory_do_what_the_model_does() {
    run::run("pools that are short of memory", 15, &allocator::cases(scarce::SCARCE, 1200, false));
}

#[test]
fn slices_that_wait_do_what_the_model_does() {
    run::run("slices that wait", 15, &allocator::cases(waiting::WAITING, 1200, false));
}

#[test]
fn dry_runs_do_what_others_do() {
    run::run("dry runs", 5, &dry::cases(800));
}

#[test]
fn spaces_do_what_the_model_does() {
    run::run("spaces", 15, &space::cases(800, false));
}

#[test]
fn crowded_spaces_do_what_the_model_does() {
    run::run("crowded spaces", 5, &space::cases(4000, true));
}
