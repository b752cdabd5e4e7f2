//! Dry runs: everything is placed and counted as always and the device is not called; plans that come of it.

use crate::common::devices::LedgerDevice;
use crate::common::pools::{KINDS, capped, direct, exclusive, free_all, full, growing, options, place, sliced, touch};
use crate::common::random::Random;
use crate::common::sums::{State, assert_held, assert_sums};
use crate::common::{G, K, M};
use slicepool_core::{
    Allocator, Budget, Device, Error, HostMemory, LiveSlices, LockKind, NearPage, PERSISTENT_POOL, PoolOptions,
    PoolType, Request, Slice, SliceId, Statistics,
};

fn dry<'a>(device: &'a LedgerDevice, pools: &[PoolOptions]) -> Allocator<&'a LedgerDevice> {
    Allocator::try_new(device, pools, options().with_dry_run()).unwrap()
}

// ---- pages without memory

/// Item 13.
#[test]
fn two_slices_that_need_two_pages_leave_both_unmapped_until_one_is_resolved() {
    let device = LedgerDevice::new();
    let allocator = dry(&device, &[sliced(M, M, None)]);
    let slices = [600 * K; 2].map(|size| place(&allocator, size));
    let figures = allocator.statistics();
    assert_eq!((figures.pages, figures.pages_peak, figures.pages_unmapped), (2, 2, 2));
    assert_eq!((figures.reserved, figures.unmapped, figures.in_use), (2 * M, 2 * M, 1200 * K));
    assert_eq!((figures.device_allocations, device.calls()), (0, 0));

    let resolved = allocator.resolve(slices[1].id).unwrap();
    assert!(device.is_out(resolved.memory));
    let figures = allocator.statistics();
    assert_eq!((figures.pages, figures.pages_unmapped, figures.unmapped), (2, 1, M));
    assert_eq!((figures.device_allocations, device.sizes()), (1, vec![M]));
    assert_held(&allocator, &device);
    free_all(&allocator, &slices);
}

/// Item 13.
#[test]
fn a_page_that_was_resolved_goes_back_with_a_cleanup() {
    let device = LedgerDevice::new();
    let allocator = dry(&device, &[sliced(M, M, None)]);
    let slice = place(&allocator, 600 * K);
    allocator.resolve(slice.id).unwrap();
    allocator.free(slice.id).unwrap();
    allocator.cleanup().unwrap();
    let figures = allocator.statistics();
    assert_eq!((figures.pages, figures.pages_unmapped, figures.reserved), (0, 0, 0));
    assert_eq!((device.given(), device.taken()), (1, 1));
    assert_eq!((figures.device_allocations, figures.device_deallocations), (1, 1));
    assert_held(&allocator, &device);
}

/// Item 13.
#[test]
fn a_persistent_slice_is_unmapped_until_it_is_resolved() {
    let device = LedgerDevice::new();
    let allocator = dry(&device, &[sliced(M, M, None)]);
    let slice = allocator.allocate(&Request::new(512 * K).persistent()).unwrap();
    let unmapped = || allocator.pool_statistics(PERSISTENT_POOL as usize).unwrap().pages_unmapped;
    assert_eq!((slice.memory, unmapped(), allocator.statistics().pages_unmapped, device.calls()), (u64::MAX, 1, 1, 0));
    let resolved = allocator.resolve(slice.id).unwrap();
    assert_eq!((resolved.size, unmapped(), allocator.statistics().pages_unmapped), (512 * K, 0, 0));
    assert_eq!(device.sizes(), [512 * K]);
    assert_held(&allocator, &device);
}

/// What a slice says before it has memory.
#[test]
fn an_unresolved_slice_has_a_place_but_neither_memory_nor_an_address() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = dry(&device, &[pool]);
        for size in [100, 5000] {
            let slice = place(&allocator, size);
            assert_eq!((slice.memory, slice.address, slice.mapped.is_null()), (u64::MAX, 0, true), "{name}");
            assert!(slice.size >= size, "{name}");
            assert_eq!(allocator.get(slice.id), Ok(slice), "{name}");
        }
        assert_eq!(device.calls(), 0, "{name}");
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// Freeing and cleaning up, and whatever else gives pages back, calls no device for what it has never given.
#[test]
fn unresolved_pages_come_and_go_without_a_device_call() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let pools = [pool.with_dealloc_period(Some(20)), exclusive(M)];
        let allocator = dry(&device, &pools);
        let slices: Vec<_> = (1..100).map(|i| place(&allocator, 32 * K + i * 64)).collect();
        assert!(allocator.statistics().pages > 10, "{name}");
        free_all(&allocator, &slices);
        (0..100).for_each(|_| {
            touch(&allocator, 32);
        });
        allocator.trim(0).unwrap();
        let figures = allocator.statistics();
        assert_eq!((figures.pages, figures.reserved, figures.unmapped), (0, 0, 0), "{name}");
        let persistent = allocator.allocate(&Request::new(100).persistent()).unwrap();
        allocator.free(persistent.id).unwrap();
        allocator.cleanup().unwrap();
        let kept = place(&allocator, 100);
        assert_sums(&allocator);
        assert!(matches!(allocator.close(LiveSlices::Refuse), Err(Error::Busy { live: 1, .. })), "{name}");
        allocator.free(kept.id).unwrap();
        assert!(allocator.destroy().is_ok(), "{name}");
        assert_eq!(device.calls(), 0, "{name}");
    }
}

/// None or all, and again without a device call.
#[test]
fn a_batch_that_is_refused_leaves_no_page_in_a_dry_run_either() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = dry(&device, &[pool]);
        let resolved = allocator.resolve(place(&allocator, 100).id).unwrap();
        let (before, calls) = (State::of(&allocator), device.calls());
        let requests = [Request::new(60 * K), Request::new(100).persistent(), Request::new(50 * K), Request::new(G)];
        let refused = allocator.allocate_many(&requests).unwrap_err();
        assert_eq!((refused.index, State::of(&allocator), device.calls()), (3, before, calls), "{name}");
        assert_eq!(allocator.allocate_many(&requests[..3]).unwrap().len(), 3, "{name}");
        assert_eq!((allocator.get(resolved.id), device.calls()), (Ok(resolved), calls), "{name}");
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// What was resolved is forgotten with the rest.
#[test]
fn an_abandoned_dry_run_returns_to_its_budget_what_it_has_resolved() {
    let budget = Budget::try_new(HostMemory::global(), LockKind::spin(), Some(9 * M), None).unwrap();
    let device = LedgerDevice::new();
    let allocator =
        Allocator::try_new(&device, &[sliced(M, M, None)], options().with_dry_run().with_budget(&budget)).unwrap();
    let slices = [M; 3].map(|size| place(&allocator, size));
    allocator.resolve(slices[1].id).unwrap();
    assert_eq!((budget.statistics().bytes, budget.statistics().pages), (M, 1));
    allocator.abandon();
    assert_eq!((budget.statistics().bytes, budget.statistics().pages, device.taken()), (0, 0, 0));
    device.write_off();
}

/// Caps are charged at once.
#[test]
fn the_cap_of_a_pool_holds_in_a_dry_run_too() {
    let device = LedgerDevice::new();
    let allocator = dry(&device, &[sliced(M, M, Some(2 * M))]);
    let slices = [M, M].map(|size| place(&allocator, size));
    assert_eq!(allocator.allocate(&Request::new(M)), Err(full(M, 2 * M, 2 * M, 0)));
    allocator.free(slices[0].id).unwrap();
    assert_eq!(place(&allocator, M).memory, u64::MAX);
    assert_eq!((allocator.statistics().pages_peak, device.calls()), (2, 0));
    allocator.close(LiveSlices::Free).unwrap();
}

/// The other limits are charged when the device is called.
#[test]
fn limits_and_budgets_count_what_has_been_resolved_and_nothing_else() {
    let budget = Budget::try_new(HostMemory::global(), LockKind::spin(), Some(3 * M), Some(3)).unwrap();
    let device = LedgerDevice::new();
    let limited = options().with_dry_run().with_max_bytes(Some(2 * M)).with_max_pages(Some(2)).with_budget(&budget);
    let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], limited).unwrap();
    let slices: Vec<_> = (0..5).map(|_| place(&allocator, M)).collect();
    assert_eq!((allocator.statistics().reserved, budget.statistics().bytes, budget.statistics().pages), (5 * M, 0, 0));
    for slice in &slices[..2] {
        allocator.resolve(slice.id).unwrap();
    }
    assert_eq!((budget.statistics().bytes, budget.statistics().pages), (2 * M, 2));
    let refused = allocator.resolve(slices[2].id);
    assert_eq!(refused, Err(Error::BudgetExceeded { size: M, limit: 2 * M, reserved: 2 * M }));
    assert_eq!((allocator.get(slices[2].id), device.given()), (Ok(slices[2]), 2));
    // A page that goes back leaves room; one that was never resolved does not count when it goes.
    allocator.free(slices[4].id).unwrap();
    allocator.trim(0).unwrap();
    assert_eq!(budget.statistics().bytes, 2 * M);
    allocator.free(slices[0].id).unwrap();
    allocator.trim(0).unwrap();
    assert_eq!(budget.statistics().bytes, M);
    allocator.resolve(slices[2].id).unwrap();
    assert_held(&allocator, &device);
    drop(allocator);
    assert_eq!((budget.statistics().bytes, budget.statistics().pages), (0, 0));
}

/// The same with the limit of pages, and with what others take of a budget.
#[test]
fn a_page_is_resolved_only_under_all_limits() {
    let budget = Budget::try_new(HostMemory::global(), LockKind::spin(), Some(3 * M), None).unwrap();
    let device = LedgerDevice::new();
    let pages = Allocator::try_new(&device, &[direct(None)], options().with_dry_run().with_max_pages(Some(1))).unwrap();
    let slices = [K, 2 * K].map(|size| place(&pages, size));
    pages.resolve(slices[0].id).unwrap();
    assert_eq!(pages.resolve(slices[1].id), Err(Error::PageCountExceeded { size: 2 * K, limit: 1 }));

    let shared = |dry: bool| {
        let options = options().with_budget(&budget);
        let options = if dry { options.with_dry_run() } else { options };
        Allocator::try_new(&device, &[direct(None)], options).unwrap()
    };
    let (other, planned) = (shared(false), shared(true));
    let taken = place(&other, 2 * M);
    let slice = place(&planned, 2 * M);
    assert_eq!(planned.resolve(slice.id), Err(Error::BudgetExceeded { size: 2 * M, limit: 3 * M, reserved: 2 * M }));
    assert_eq!(planned.get(slice.id), Ok(slice));
    // What was refused made the other give way as soon as it can.
    other.free(taken.id).unwrap();
    assert_eq!(budget.statistics().bytes, 0);
    assert_eq!(planned.resolve(slice.id).map(|slice| slice.size), Ok(2 * M));
    assert_eq!(budget.statistics().bytes, 2 * M);
}

/// Limits that count nothing yet do not make pages smaller either.
#[test]
fn pages_that_grow_are_planned_as_large_as_if_there_were_no_limits() {
    let device = LedgerDevice::new();
    let pages = |options| {
        let allocator = Allocator::try_new(&device, &[growing(64 * K, M)], options).unwrap();
        let slices = [100 * K; 20].map(|size| place(&allocator, size).offset);
        allocator.close(LiveSlices::Free).unwrap();
        (slices, allocator.statistics().reserved_peak, allocator.statistics().pages_peak)
    };
    let planned = options().with_dry_run();
    assert_eq!(pages(planned.clone().with_max_bytes(Some(150 * K)).with_max_pages(Some(1))), pages(planned));
}

// ---- as on a device

/// What has to be the same in a dry run and on a device.
fn comparable(figures: Statistics) -> Statistics {
    let mut figures = figures;
    figures.unmapped = 0;
    figures.pages_unmapped = 0;
    figures.device_allocations = 0;
    figures.device_deallocations = 0;
    figures.metadata = 0;
    figures
}

/// Some thousand calls of every sort; what they answered, and the figures on the way.
fn live_through<D: Device>(allocator: &Allocator<D>, seed: u64) -> (Vec<(u64, u64)>, Vec<Statistics>) {
    let mut random = Random::from(seed);
    let (mut live, mut places, mut figures): (Vec<SliceId>, _, _) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..4000 {
        let request = Request::new(random.scaled(64 * K)).aligned(1 << random.below(6));
        let request = if random.below(20) == 0 { request.persistent() } else { request };
        match random.below(12) {
            0..6 => match allocator.allocate(&request) {
                Ok(Slice { id, offset, size, .. }) => {
                    places.push((offset, size));
                    live.push(id);
                }
                Err(Error::PoolCapacityExceeded { size, in_use, .. }) => places.push((size, in_use)),
                Err(error) => panic!("{error:?}"),
            },
            6..11 if !live.is_empty() => allocator.free(random.take(&mut live)).unwrap(),
            11 if step % 17 == 0 => allocator.trim(random.below(4) * 64 * K).unwrap(),
            _ => {}
        }
        if step % 50 == 0 {
            figures.push(comparable(allocator.statistics()));
        }
    }
    let pools = (0..allocator.pool_count()).filter_map(|pool| allocator.pool_statistics(pool));
    figures.extend(pools.chain(allocator.pool_statistics(PERSISTENT_POOL as usize)).map(comparable));
    allocator.close(LiveSlices::Free).unwrap();
    (places, figures)
}

/// Pools carve, count pages and peaks exactly as always.
#[test]
fn a_dry_run_places_and_counts_as_the_same_calls_do_on_a_device() {
    let seed = Random::with_seed_or(13).any();
    let mut lists: Vec<_> = KINDS.map(|(name, pool)| (name, vec![pool.with_dealloc_period(Some(100))])).into();
    lists.push(("all", KINDS.map(|(_, pool)| pool).into()));
    for (name, pools) in lists {
        let device = LedgerDevice::new();
        let planned = live_through(&dry(&device, &pools), seed);
        assert_eq!(device.calls(), 0, "{name}");
        let real = live_through(&Allocator::try_new(&device, &pools, options()).unwrap(), seed);
        assert!(device.given() > 5, "{name}");
        assert!(planned.0 == real.0, "{name}: other places than on a device");
        assert_eq!(planned.1, real.1, "{name}");
    }
}

// ---- plans

/// The plan of an allocator's only pool.
fn plan_of<D: Device>(allocator: &Allocator<D>) -> PoolOptions {
    allocator.pool_report(0).unwrap().plan()
}

/// A cap switches the rule for requests that nearly fill a page off, unless the plan says otherwise.
#[test]
fn a_slice_that_nearly_fills_a_page_fits_into_the_plan_that_comes_of_it() {
    let device = LedgerDevice::new();
    let pools = [sliced(32_000, 32, None)];
    let dry = dry(&device, &pools);
    place(&dry, 25_601);
    let plan = plan_of(&dry);
    assert_eq!(plan, sliced(32_000, 32, Some(32_000)).with_near_page(NearPage::Always));
    dry.close(LiveSlices::Free).unwrap();

    let real = Allocator::try_new(&device, &[plan], options()).unwrap();
    let slice = place(&real, 25_601);
    assert_eq!((device.sizes(), slice.size), (vec![32_000], 25_632));
    assert_eq!(real.allocate(&Request::new(25_600)), Err(Error::TooLarge { size: 25_600, limit: 32 }));
    assert!(matches!(real.allocate(&Request::new(25_601)), Err(Error::PoolCapacityExceeded { capacity: 32_000, .. })));
}

/// The cap is what was held at most, whatever is held now; the rest of the configuration stays.
#[test]
fn a_plan_has_the_peak_as_its_cap_and_is_otherwise_the_same_pool() {
    let device = LedgerDevice::new();
    let pool = sliced(M, 512 * K, None).with_near_page(NearPage::Never).with_keep_bytes(7).with_dealloc_period(Some(9));
    let allocator = dry(&device, std::slice::from_ref(&pool));
    let slices: Vec<_> = (0..5).map(|_| place(&allocator, 400 * K)).collect();
    free_all(&allocator, &slices);
    allocator.trim(0).unwrap();
    let mut expected = pool;
    expected.pool_type = PoolType::SlicedPages { page_size: M, max_slice_size: 512 * K, max_pool_size: Some(3 * M) };
    assert_eq!(plan_of(&allocator), expected);
    assert_eq!(allocator.pool_report(0).unwrap().statistics.pages_peak, 3);
    // A pool that was never used may have no page.
    let unused = dry(&device, &[sliced(M, M, None)]);
    let real = Allocator::try_new(&device, &[plan_of(&unused)], options()).unwrap();
    assert_eq!(real.allocate(&Request::new(1)), Err(full(1, 0, 0, 0)));
}

/// Only sliced pages have caps.
#[test]
fn plans_of_pools_without_pages_to_share_are_the_pools_themselves() {
    for pool in [exclusive(M), direct(None), direct(Some(M))] {
        let device = LedgerDevice::new();
        let allocator = dry(&device, std::slice::from_ref(&pool));
        place(&allocator, 1000);
        assert_eq!(plan_of(&allocator), pool);
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// Where pages grow: the same calls fit again.
#[test]
fn a_plan_for_pages_that_grow_serves_the_same_calls_with_the_bytes_it_names() {
    for pool in [growing(64 * K, M), capped(growing(64 * K, M), 64 * M)] {
        let device = LedgerDevice::new();
        let sizes = [40 * K, 3 * K, 200 * K, 31, M, 5 * K, 700 * K, 64 * K, 2 * M];
        let dry = dry(&device, &[pool]);
        let planned = sizes.map(|size| place(&dry, size)).map(|slice| (slice.offset, slice.size));
        let plan = plan_of(&dry);
        let needed = dry.statistics().reserved_peak;
        assert_eq!(device.calls(), 0);
        let real = Allocator::try_new(&device, &[plan], options()).unwrap();
        assert_eq!(sizes.map(|size| place(&real, size)).map(|slice| (slice.offset, slice.size)), planned);
        assert_eq!(device.bytes_peak(), needed);
        dry.close(LiveSlices::Free).unwrap();
    }
}
