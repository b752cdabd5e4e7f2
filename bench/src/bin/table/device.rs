//! A device that takes its time.

use crate::goals::Goals;
use slicepool_bench::churn::Churn;
use slicepool_bench::quartiles::Quartiles;
use slicepool_core::layout::{self, Properties};
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceMemory, PageRequest, PoolOptions, Request,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A device whose calls take so long.
struct Slow {
    time: Duration,
    calls: AtomicU64,
}

impl Slow {
    fn new(time: Duration) -> Self {
        Self { time, calls: AtomicU64::new(0) }
    }

    fn work(&self) -> u64 {
        let end = Instant::now() + self.time;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}

impl Device for Slow {
    fn allocate(&self, _: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        Ok(DeviceMemory::new(self.work()))
    }

    fn deallocate(&self, _: &DeviceMemory) -> Result<(), DeviceError> {
        self.work();
        Ok(())
    }
}

fn over(device: Slow, pools: &[PoolOptions]) -> Allocator<Slow> {
    Allocator::try_new(device, pools, AllocatorOptions::default()).expect("valid options")
}

/// The churn from an empty allocator on, with calls that take 100 microseconds; and what another thread sees of calls that
/// take a hundred times as long.
pub fn latency(goals: &mut Goals) {
    let adaptive = layout::adaptive(&Properties::new(u64::MAX)).expect("valid properties");
    println!("\n200,000 pairs with 1,000 live from an empty adaptive allocator, device calls of 100 microseconds");
    let allocator = over(Slow::new(Duration::from_micros(100)), &adaptive);
    let churn = Churn::new(42, 1_000, 200_000);
    let take = |size| allocator.allocate(&Request::new(size)).expect("there is no limit").id;
    let begin = Instant::now();
    let mut live: Vec<_> = churn.fill.iter().map(|&size| take(size)).collect();
    let filled = allocator.device().calls.load(Ordering::Relaxed);
    let mut late = 0;
    for (i, &(victim, size)) in churn.pairs.iter().enumerate() {
        if i == churn.pairs.len() / 2 {
            late = allocator.device().calls.load(Ordering::Relaxed);
        }
        allocator.free(live[victim as usize]).expect("live");
        live[victim as usize] = take(size);
    }
    let calls = allocator.device().calls.load(Ordering::Relaxed);
    let took = begin.elapsed();
    println!("{:>20} {took:.1?}, {calls} device calls: {filled} of them in the fill", "");
    goals.at_most("device calls in the second half of a churn", Quartiles::exactly((calls - late) as f64), 0.0);
    drop(live);

    let allocator = over(Slow::new(Duration::from_millis(10)), &[PoolOptions::sliced_pages(1 << 20, 1 << 20, None)]);
    let first = allocator.allocate(&Request::new(256)).expect("there is no limit");
    let done = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let begin = Instant::now();
                let slice = allocator.allocate(&Request::new(256)).expect("there is room");
                allocator.free(slice.id).expect("live");
                longest = longest.max(begin.elapsed());
            }
            longest
        });
        for _ in 0..20 {
            // A page each.
            allocator.allocate(&Request::new(1 << 20)).expect("there is no limit");
        }
        done.store(true, Ordering::Relaxed);
        other.join().expect("it does not panic")
    });
    allocator.free(first.id).expect("live");
    println!("longest pair of one thread while another waits 20 times 10 ms for a page: {longest:.1?}");
    goals.at_most(
        "longest pair beside a device call, in such calls",
        Quartiles::exactly(longest.as_secs_f64() / 0.01),
        1.0,
    );
}
