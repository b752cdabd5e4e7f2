//! Whole programs planned in a dry run: the plan holds for the same calls on a device.

mod common;

use common::M;
use common::devices::LedgerDevice;
use slicepool_core::layout::{self, Properties};
use slicepool_core::{
    Allocator, AllocatorOptions, Device, Error, LiveSlices, PoolOptions, PoolReport, PoolType, Request, Statistics,
};
use slicepool_traces::{Event, Trace, recorded, synthetic};

/// Replays a trace: where each slice was placed, and what is live at the end.
fn replay<D: Device>(allocator: &Allocator<D>, trace: &Trace) -> Result<Vec<(u64, u64)>, (usize, Error)> {
    let mut slices = Vec::new();
    let mut places = Vec::new();
    for (step, event) in trace.events.iter().enumerate() {
        match *event {
            // What no pool takes by default; the programs that were recorded asked for it all the same.
            Event::Allocate(0) => slices.push(None),
            Event::Allocate(size) => {
                let slice = allocator.allocate(&Request::new(size)).map_err(|error| (step, error))?;
                places.push((slice.offset, slice.size));
                slices.push(Some(slice.id));
            }
            Event::Free(slice) => {
                slices[slice].take().into_iter().for_each(|id| allocator.free(id).expect("a trace frees what is live"));
            }
        }
    }
    Ok(places)
}

/// What has to be the same in a dry run and on a device.
fn comparable(mut figures: Statistics) -> Statistics {
    figures.unmapped = 0;
    figures.pages_unmapped = 0;
    figures.device_allocations = 0;
    figures.device_deallocations = 0;
    figures.metadata = 0;
    figures
}

fn reports<D: Device>(allocator: &Allocator<D>) -> Vec<PoolReport> {
    (0..allocator.pool_count()).filter_map(|pool| allocator.pool_report(pool)).collect()
}

/// Plans a trace with a list of pools, and holds the device to the plan.
fn plan_and_replay(name: &str, pools: &[PoolOptions], trace: &Trace) {
    let name = format!("{name}, {}", trace.name);
    let untouched = LedgerDevice::new();
    let dry = Allocator::try_new(&untouched, pools, AllocatorOptions::default().with_dry_run()).unwrap();
    let planned = replay(&dry, trace).unwrap_or_else(|refused| panic!("{name}: {refused:?}"));
    assert_eq!(untouched.calls(), 0, "{name}: a dry run called the device");
    let (needed, measured) = (dry.statistics(), reports(&dry));

    let plan: Vec<_> = measured.iter().map(PoolReport::plan).collect();
    for (planned, measured) in plan.iter().zip(&measured) {
        if let PoolType::SlicedPages { page_size, max_pool_size, .. } = planned.pool_type {
            let cap = max_pool_size.expect("a plan has a cap");
            assert_eq!(cap, measured.statistics.reserved_peak, "{name}");
            if planned.max_page_size.is_none() {
                assert_eq!(cap, u64::from(measured.statistics.pages_peak) * page_size, "{name}");
            }
        }
    }

    let device = LedgerDevice::new();
    device.limit_to(needed.reserved_peak);
    let real = Allocator::try_new(&device, &plan, AllocatorOptions::default()).unwrap();
    let placed = replay(&real, trace).unwrap_or_else(|refused| panic!("{name}, on the device: {refused:?}"));
    assert!(placed == planned, "{name}: a slice was placed elsewhere than planned");
    assert_eq!(device.allocate_refused(), 0, "{name}");
    assert_eq!(device.bytes_peak(), needed.reserved_peak, "{name}: the plan was not what is needed");
    for (real, planned) in reports(&real).into_iter().zip(measured) {
        assert_eq!(comparable(real.statistics), comparable(planned.statistics), "{name}");
    }
    dry.close(LiveSlices::Free).unwrap();
    real.close(LiveSlices::Free).unwrap();
}

/// Plans traces with pools that grow, and with equal pages.
fn plan_all(traces: &[Trace]) {
    let fixed = |page| [PoolOptions::sliced_pages(page, page, None), PoolOptions::direct(None)];
    for trace in traces {
        assert!(trace.peak() > 0, "{} allocates nothing", trace.name);
        let sizes = trace.events.iter().map(|event| if let Event::Allocate(size) = *event { size } else { 0 });
        let page = sizes.max().unwrap_or(0).next_power_of_two().max(64 * M);
        let adaptive = layout::adaptive(&Properties::new(u64::MAX)).unwrap();
        plan_and_replay("adaptive", &adaptive, trace);
        plan_and_replay("growing pages", &[PoolOptions::growing_pages(4 * M, 256 * M)], trace);
        plan_and_replay("equal pages for everything", &[PoolOptions::sliced_pages(page, page, None)], trace);
        plan_and_replay("16 MiB and direct", &fixed(16 * M), trace);
        // Pages go back and come again on the way, at the same places.
        let ageing = fixed(64 * M).map(|pool| pool.with_dealloc_period(Some(500)));
        plan_and_replay("64 MiB and direct, ageing", &ageing, trace);
    }
}

/// The measured-plan cycle of the synthetic programs.
#[test]
fn what_a_dry_run_of_a_synthetic_program_measures_is_what_the_program_needs() {
    let traces = synthetic();
    assert_eq!(traces.len(), 3);
    plan_all(&traces);
}

/// The same of recorded ones.
#[test]
fn what_a_dry_run_of_a_recorded_program_measures_is_what_the_program_needs() {
    match recorded() {
        Ok(traces) => {
            println!("{} recorded traces", traces.len());
            assert!(!traces.is_empty(), "the folder has no traces");
            plan_all(&traces);
        }
        Err(reason) => println!("SKIPPED the recorded traces: {reason}"),
    }
}
