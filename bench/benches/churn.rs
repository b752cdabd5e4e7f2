//! The churn under criterion, for looking at one subject closely: `cargo bench -- "10000/slicepool pool"`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use slicepool_bench::{Churn, GRANULE, OffsetAllocator, Pool, Running, Subject, VirtualBlock};
use slicepool_core::Space;

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

fn all(criterion: &mut Criterion) {
    for live in [1_000, 10_000, 100_000] {
        churn::<OffsetAllocator>(criterion, live);
        churn::<VirtualBlock>(criterion, live);
        churn::<Space>(criterion, live);
        churn::<Pool>(criterion, live);
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
