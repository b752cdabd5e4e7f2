//! One subject under criterion, for looking at it closely: `cargo bench -- "10000/slicepool pool"`, or `-- direct`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use slicepool_bench::GRANULE;
use slicepool_bench::churn::{Churn, Running};
use slicepool_bench::peers::{Buddy, VmaPool};
use slicepool_bench::subjects::{OffsetAllocator, Pool, Subject, VirtualBlock};
use slicepool_core::{PoolOptions, Space};

fn churn<S: Subject>(criterion: &mut Criterion, live: usize) {
    let churn = Churn::new(42, live, 1_000_000);
    let bytes = churn.peak() * 3 / 2 / GRANULE * GRANULE;
    let mut running = Running::<S>::fill(&churn, bytes).expect("roomy");
    let mut group = criterion.benchmark_group("churn");
    group.throughput(Throughput::Elements(1));
    group.bench_function(BenchmarkId::new(live.to_string(), S::NAME), |bencher| {
        bencher.iter(|| running.pairs(&churn, 1));
    });
    group.finish();
}

/// A page of every size is free, and one after the other is used.
fn direct(criterion: &mut Criterion, sizes: u64) {
    let mut pool = Pool::of(&[PoolOptions::direct(None)]);
    let live: Vec<_> = (1..=sizes).filter_map(|size| pool.allocate(size * GRANULE)).collect();
    live.into_iter().for_each(|slice| pool.free(slice));
    let mut next = 0;
    criterion.bench_function(&format!("direct/{sizes}"), |bencher| {
        bencher.iter(|| {
            // Coprime to every number of sizes that is measured, and not a step to the neighbour.
            next = (next + 7919) % sizes;
            let slice = pool.allocate((next + 1) * GRANULE).expect("there is no limit");
            pool.free(slice);
        });
    });
}

fn all(criterion: &mut Criterion) {
    for live in [1_000, 10_000, 100_000] {
        churn::<OffsetAllocator>(criterion, live);
        churn::<VirtualBlock>(criterion, live);
        churn::<VmaPool>(criterion, live);
        churn::<Buddy>(criterion, live);
        churn::<Space>(criterion, live);
        churn::<Pool>(criterion, live);
    }
    for sizes in [1, 1_000, 10_000] {
        direct(criterion, sizes);
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
