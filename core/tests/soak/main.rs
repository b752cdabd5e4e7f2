//! Two threads with one allocator and two with one buffer pool, for as long as one likes: nothing that is held grows.
//!
//! `SLICEPOOL_SOAK_OPS` sets the number of operations, of all threads together; `SLICEPOOL_SEED` begins another run. What a
//! thread asks for depends on the seed alone; what it meets does not.
//!
//! All threads stop every million operations, and all books are checked. Ten times in a run everything is freed. The first
//! tenth is the warm-up; [`flat`] says what is flat after it.

#[path = "../common/mod.rs"]
mod common;

mod buffers;
mod device;
mod flat;
mod slices;
mod stamp;

use common::random::Random;
use flat::Flat;
use std::time::Instant;

/// Operations between two looks at the books, at most.
const PERIOD: u64 = 1_000_000;
/// Tenths: the first is the warm-up, each ends with everything freed.
const TENTHS: u64 = 10;
/// Threads of each kind.
const THREADS: u64 = 2;

/// How many operations this run has.
fn operations() -> u64 {
    match std::env::var("SLICEPOOL_SOAK_OPS") {
        Ok(text) => text.trim().parse().expect("SLICEPOOL_SOAK_OPS is a decimal number"),
        Err(_) => 10 * PERIOD,
    }
}

#[test]
fn what_four_threads_hold_is_flat_after_the_warm_up() {
    let mut random = Random::with_seed_or(14);
    let operations = operations();
    // So that there are some looks in every tenth.
    let periods = (operations / PERIOD / TENTHS).max(4) * TENTHS;
    let each = operations.div_ceil(periods * 2 * THREADS);
    println!("{operations} operations in {periods} periods");
    let begin = Instant::now();

    let slice_world = slices::World::new();
    let allocator = slice_world.allocator();
    let mut slice_workers = slice_world.workers(&allocator, THREADS, &mut random);
    let buffer_world = buffers::World::new();
    let pool = buffer_world.pool(THREADS);
    let mut buffer_workers = buffer_world.workers(&pool, THREADS, &mut random);

    slice_world.tide(&allocator);
    buffer_world.tide(&pool);

    let mut flat = Flat::default();
    for period in 0..periods {
        std::thread::scope(|scope| {
            for worker in &mut slice_workers {
                scope.spawn(|| worker.work(each));
            }
            for worker in &mut buffer_workers {
                scope.spawn(|| worker.work(each));
            }
        });
        let tenth = period * TENTHS / periods;
        slice_world.check(&allocator, &slice_workers);
        buffer_world.check(&pool, &buffer_workers);
        flat.note(tenth, &slice_world.figures());
        flat.note(tenth, &buffer_world.figures(&pool, &buffer_workers));
        if (period + 1) * TENTHS / periods != tenth {
            slice_world.drain(&allocator, &mut slice_workers);
            buffer_world.drain(&pool, &mut buffer_workers);
            println!("{} tenths: {:.0} s", tenth + 1, begin.elapsed().as_secs_f64());
        }
    }
    println!("{} device calls of the allocator", slice_world.device_calls());
    drop((slice_workers, buffer_workers));
    flat.assert_flat();
}
