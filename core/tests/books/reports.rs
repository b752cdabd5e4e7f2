//! What an allocator says about itself.

use crate::common::books::{assert_agree, ranges};
use crate::common::devices::LedgerDevice;
use crate::common::json::Json;
use crate::common::pools::{
    KINDS, MEMORY, allocate, capped, direct, exclusive, free_all, growing, options, over, place, sliced, touch,
};
use crate::common::random::Random;
use crate::common::{G, K, M};
use slicepool_core::layout::{self, Properties};
use slicepool_core::{
    Allocator, AllocatorOptions, Error, MemoryType, NearPage, PoolOptions, PoolType, Request, Slice, Statistics,
};

/// Options that are adjusted in one way or another, and others.
fn options_of_every_kind() -> Vec<PoolOptions> {
    let mut all = vec![
        sliced(1000, 1000, None),
        sliced(1000, 5000, Some(10_000)),
        sliced(32_000, 32, None),
        sliced(32_000, 32, None).with_near_page(NearPage::Never),
        sliced(32_000, 32, Some(64_000)).with_near_page(NearPage::Always),
        sliced(1024, 1024, Some(1000)),
        sliced(1024, 1024, Some(2047)),
        growing(1000, 10),
        growing(K, u64::MAX),
        capped(growing(K, 8 * K), 5000),
        capped(growing(K, 8 * K), 100),
        exclusive(0),
        exclusive(1000),
        exclusive(u64::MAX),
        direct(None),
        direct(Some(1000)),
        direct(Some(u64::MAX)),
    ];
    all.extend(KINDS.map(|(_, pool)| pool));
    let aged = all.iter().map(|pool| pool.clone().with_dealloc_period(Some(7)).with_keep_bytes(3 * K));
    all.extend(aged.collect::<Vec<_>>());
    all
}

/// What becomes of some hundred requests.
fn play(pool: &PoolOptions) -> Vec<Result<(u64, u64), Error>> {
    let mut random = Random::from(1);
    let device = LedgerDevice::new();
    let allocator = over(&device, std::slice::from_ref(pool));
    let mut live: Vec<Slice> = Vec::new();
    let mut outcome = Vec::new();
    for _ in 0..500 {
        if live.len() > 5 || (random.below(3) == 0 && !live.is_empty()) {
            allocator.free(random.take(&mut live).id).unwrap();
            continue;
        }
        let size = random.scaled(40 * K);
        let placed = allocator.allocate(&Request::new(size));
        live.extend(placed.ok());
        outcome.push(placed.map(|slice| (slice.offset, slice.size)));
    }
    outcome.extend(device.sizes().into_iter().map(|size| Ok((0, size))));
    outcome
}

/// The reported configuration is the same pool.
#[test]
fn a_pool_made_of_what_another_reports_does_the_same_and_reports_the_same() {
    let device = LedgerDevice::new();
    for pool in options_of_every_kind() {
        let report = over(&device, std::slice::from_ref(&pool)).pool_report(0).unwrap();
        assert_eq!(report.options.validate(&MEMORY), Ok(()), "{pool:?} is {:?}", report.options);
        let again = over(&device, std::slice::from_ref(&report.options)).pool_report(0).unwrap();
        assert_eq!((again.options, again.page_alignment), (report.options.clone(), report.page_alignment));
        assert!(play(&report.options) == play(&pool), "{pool:?} is not {:?}", report.options);
        assert_eq!((report.options.dealloc_period, report.options.keep_bytes), (pool.dealloc_period, pool.keep_bytes));
    }
    for properties in [Properties::new(128 * M), Properties::new(100_000), Properties::new(128 * M).with_heap_size(G)] {
        for make in [layout::adaptive, layout::sub_slices, layout::exclusive_pages] {
            let pools = make(&properties.with_alignment(32)).unwrap();
            let allocator = over(&device, &pools);
            let reported: Vec<_> = (0..pools.len()).map(|pool| allocator.pool_report(pool).unwrap().options).collect();
            let again = over(&device, &reported);
            for (pool, options) in reported.iter().enumerate() {
                assert_eq!(&again.pool_report(pool).unwrap().options, options);
                assert_eq!(options.validate(&MEMORY), Ok(()));
            }
        }
    }
    assert_eq!(device.calls(), 0);
}

/// The same for a pool that cannot have a page.
#[test]
fn a_pool_whose_cap_has_no_room_for_a_page_can_be_made_of_its_report() {
    let device = LedgerDevice::new();
    for pool in [sliced(1024, 1024, Some(16)), capped(growing(1024, 4096), 16)] {
        let report = over(&device, &[pool]).pool_report(0).unwrap();
        let again = Allocator::try_new(&device, std::slice::from_ref(&report.options), options());
        assert_eq!(again.map(|again| again.pool_report(0).unwrap().options), Ok(report.options));
    }
}

#[test]
fn the_report_of_each_kind_shows_what_is_in_effect() {
    let device = LedgerDevice::new();
    let sliced = sliced(1000, 32, Some(10_000));
    let pools = [sliced, growing(1000, 5000).with_keep_bytes(5), exclusive(u64::MAX), direct(Some(77))];
    let pools = pools.map(|pool| pool.with_dealloc_period(Some(9)));
    let memory_type = MemoryType::new(128 * M + 31, 64);
    let options = AllocatorOptions::default().with_memory_type(memory_type);
    let allocator = Allocator::try_new(&device, &pools, options).unwrap();
    let reports: Vec<_> = (0..4).map(|pool| allocator.pool_report(pool).unwrap()).collect();
    assert!(reports.iter().all(|report| report.page_alignment == 64 && report.options.granule == 32));
    assert!(reports.iter().all(|report| report.options.dealloc_period == Some(9)));
    assert!(reports.iter().all(|report| (report.statistics.reserved, report.statistics.slices) == (0, 0)));
    let types: Vec<_> = reports.iter().map(|report| report.options.pool_type.clone()).collect();
    assert_eq!(
        types,
        [
            PoolType::SlicedPages { page_size: 1024, max_slice_size: 32, max_pool_size: Some(9216) },
            PoolType::SlicedPages { page_size: 1024, max_slice_size: 128 * M, max_pool_size: None },
            PoolType::ExclusivePages { max_alloc_size: 128 * M },
            PoolType::Direct { reclaim_at: Some(77) },
        ]
    );
    let rules: Vec<_> = reports.iter().map(|report| (report.options.near_page, report.options.max_page_size)).collect();
    assert_eq!(rules[..2], [(NearPage::Never, None), (NearPage::Always, Some(4992))]);
    assert_eq!((rules[2].1, rules[3].1, reports[1].options.keep_bytes), (None, None, 5));
    assert_eq!(allocator.pool_report(4), None);
    assert_eq!(allocator.pool_report(usize::MAX), None);
}

// ---- figures

/// By hand, for each kind.
#[test]
fn the_figures_of_each_kind_are_those_of_its_slices_and_pages() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        let mut expected = (0, 0, 0);
        let slices: Vec<_> = (1..=20).map(|i| place(&allocator, i * 333)).collect();
        for (i, slice) in slices.iter().enumerate() {
            expected.0 += (i as u64 + 1) * 333;
            expected.1 += slice.size - (i as u64 + 1) * 333;
            expected.2 += 1;
        }
        let figures = allocator.statistics();
        assert_eq!((figures.in_use, figures.padding, figures.slices), expected, "{name}");
        assert_eq!((figures.in_use_peak, figures.largest_allocation), (expected.0, 20 * 333));
        assert_eq!(figures.reserved, device.bytes());
        assert_eq!(allocator.pool_report(0).unwrap().statistics, allocator.pool_statistics(0).unwrap());
        assert_agree(&allocator, &device);
        free_all(&allocator, &slices);
        let figures = allocator.statistics();
        assert_eq!((figures.in_use, figures.padding, figures.slices, figures.free), (0, 0, 0, device.bytes()));
        assert_eq!((figures.in_use_peak, figures.pages_idle), (expected.0, device.pages() as u32));
        assert_eq!(ranges(&allocator).len(), device.pages() as usize);
        assert_agree(&allocator, &device);
    }
}

#[test]
fn the_largest_allocation_is_that_of_the_largest_request_ever_served() {
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool, exclusive(100)]);
        let largest = || {
            [Some(0), Some(1), None].map(|pool: Option<usize>| match pool {
                Some(pool) => allocator.pool_statistics(pool).unwrap().largest_allocation,
                None => allocator.statistics().largest_allocation,
            })
        };
        assert_eq!(largest(), [0, 0, 0]);
        let small = place(&allocator, 5000);
        touch(&allocator, 50_000);
        touch(&allocator, 10_000);
        // What is refused does not count, what is resized does.
        allocator.allocate(&Request::new(u64::MAX)).unwrap_err();
        device.limit_to(0);
        let _ = allocator.allocate(&Request::new(64 * K).in_pool(0));
        let before = largest()[0];
        assert!(before == 50_000 || before == 64 * K, "{name}");
        if let Ok(slice) = allocator.try_resize(small.id, 60_000) {
            assert!(slice.size >= 60_000);
            assert_eq!(largest(), [before.max(60_000), 0, before.max(60_000)], "{name}");
        }
        allocator.trim(0).unwrap();
        assert!(largest()[0] >= before);
    }
}

/// One after the other: the allocator's peak is not the sum of its pools'.
#[test]
fn the_peak_of_what_is_reserved_is_of_all_pools_at_one_time() {
    for first in KINDS.map(|(_, pool)| pool) {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[first, exclusive(M), direct(None)]);
        let mut peak = 0;
        let mut pages_peak = 0;
        for pool in [0, 1, 2, 1, 0] {
            let slices: Vec<_> =
                (0..3).map(|i| allocator.allocate(&Request::new(60_000 - i * 1000).in_pool(pool)).unwrap()).collect();
            peak = peak.max(device.bytes());
            pages_peak = pages_peak.max(device.pages());
            free_all(&allocator, &slices);
            allocator.cleanup().unwrap();
            let figures = allocator.statistics();
            assert_eq!((figures.reserved, figures.pages), (0, 0));
            assert_eq!((figures.reserved_peak, u64::from(figures.pages_peak)), (device.bytes_peak(), pages_peak));
            assert_eq!(figures.reserved_peak, peak);
        }
        let parts: Vec<_> = (0..3).map(|pool| allocator.pool_statistics(pool).unwrap()).collect();
        assert!(parts.iter().map(|figures| figures.reserved_peak).sum::<u64>() > peak);
        assert_eq!(allocator.statistics().in_use_peak, parts.iter().map(|figures| figures.in_use_peak).sum());
        assert_agree(&allocator, &device);
    }
}

// ---- JSON

/// Every number of a pool or an allocator in its JSON form.
fn assert_same_figures(json: &Json, figures: &Statistics) {
    for (name, figure) in [
        ("reserved_bytes", figures.reserved),
        ("in_use_bytes", figures.in_use),
        ("padding_bytes", figures.padding),
        ("free_bytes", figures.free),
        ("leaving_bytes", figures.leaving),
        ("stuck_bytes", figures.stuck),
        ("reserved_peak_bytes", figures.reserved_peak),
        ("in_use_peak_bytes", figures.in_use_peak),
        ("largest_allocation_bytes", figures.largest_allocation),
        ("largest_free_bound_bytes", figures.largest_free_bound),
        ("metadata_bytes", figures.metadata),
        ("device_allocations", figures.device_allocations),
        ("device_deallocations", figures.device_deallocations),
        ("slices", u64::from(figures.slices)),
        ("free_ranges", u64::from(figures.free_ranges)),
        ("pages", u64::from(figures.pages)),
        ("pages_idle", u64::from(figures.pages_idle)),
        ("pages_stuck", u64::from(figures.pages_stuck)),
        ("pages_peak", u64::from(figures.pages_peak)),
        ("growths_in_flight", u64::from(figures.growths_in_flight)),
    ] {
        assert_eq!(json.number(name), figure, "{name}");
    }
}

fn optional(value: Option<u64>) -> Json {
    value.map_or(Json::Null, Json::Number)
}

#[test]
fn the_report_is_json_with_every_figure_and_field_of_every_kind() {
    let device = LedgerDevice::new();
    let pools = options_of_every_kind();
    let allocator = over(&device, &pools);
    let mut random = Random::with_seed_or(9);
    for _ in 0..400 {
        let size = random.scaled(30 * K);
        let request = Request::new(size).in_pool(random.below(pools.len() as u64) as u32);
        if let Ok(slice) = allocator.allocate(&request) {
            if random.below(3) == 0 {
                allocator.free(slice.id).unwrap();
            }
        }
    }
    device.keep_everything(true);
    allocator.cleanup().unwrap_err();
    device.keep_everything(false);
    let mut text = String::new();
    allocator.write_json(&mut text).unwrap();
    let json = Json::read(&text);
    assert_eq!(json.get("slicepool"), &Json::Text(env!("CARGO_PKG_VERSION").to_owned()));
    assert_same_figures(json.get("allocator"), &allocator.statistics());
    let shown = json.list("pools");
    assert_eq!(shown.len(), pools.len());
    for (pool, shown) in shown.iter().enumerate() {
        let report = allocator.pool_report(pool).unwrap();
        assert_same_figures(shown, &report.statistics);
        let options = report.options;
        let (kind, members) = match options.pool_type {
            PoolType::SlicedPages { page_size, max_slice_size, max_pool_size } => (
                "sliced_pages",
                vec![
                    ("page_size", Json::Number(page_size)),
                    ("max_slice_size", Json::Number(max_slice_size)),
                    ("max_pool_size", optional(max_pool_size)),
                    ("max_page_size", optional(options.max_page_size)),
                    ("page_growth", Json::Text("share".to_owned())),
                    ("kinds", Json::Text("both".to_owned())),
                    ("min_pages", Json::Number(u64::from(options.min_pages))),
                ],
            ),
            PoolType::ExclusivePages { max_alloc_size } => {
                ("exclusive_pages", vec![("max_alloc_size", Json::Number(max_alloc_size))])
            }
            PoolType::Direct { reclaim_at } => ("direct", vec![("reclaim_at", optional(reclaim_at))]),
        };
        assert_eq!(shown.get("type"), &Json::Text(kind.to_owned()));
        for (name, value) in members {
            assert_eq!(shown.get(name), &value, "{name}");
        }
        assert_eq!(shown.get("dealloc_period"), &optional(options.dealloc_period));
        assert_eq!((shown.number("keep_bytes"), shown.number("memory_type")), (options.keep_bytes, 0));
        assert_eq!((shown.number("granule"), shown.number("page_alignment")), (32, report.page_alignment));
    }
}

/// To the letter, so that who reads it need not guess.
#[test]
fn the_report_of_two_pools_reads_like_this() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[exclusive(1000), direct(Some(64)).with_dealloc_period(Some(7)).with_keep_bytes(5)]);
    allocate(&allocator, 100);
    let mut text = String::new();
    allocator.write_json(&mut text).unwrap();
    let figures = |head: &str, reserved: u64, metadata: u64| {
        let (in_use, one) = if reserved == 0 { (0, 0) } else { (100, 1) };
        format!(
            "{head}\"reserved_bytes\":{reserved},\"in_use_bytes\":{in_use},\"padding_bytes\":{},\"pending_bytes\":0,\"free_bytes\":0,\
             \"leaving_bytes\":0,\"stuck_bytes\":0,\"unmapped_bytes\":0,\"reserved_peak_bytes\":{reserved},\"in_use_peak_bytes\":{in_use},\
             \"largest_allocation_bytes\":{in_use},\"largest_free_bound_bytes\":0,\"metadata_bytes\":{metadata},\
             \"device_allocations\":{one},\"device_deallocations\":0,\"slices\":{one},\"slices_pending\":0,\"free_ranges\":0,\"pages\":{one},\
             \"pages_idle\":0,\"pages_stuck\":0,\"pages_unmapped\":0,\"pages_peak\":{one},\"growths_in_flight\":0}}",
            reserved - in_use
        )
    };
    let metadata = |pool| allocator.pool_statistics(pool).unwrap().metadata;
    let head = format!("{{\"slicepool\":\"{}\",\"name\":\"\",\"allocator\":{{", env!("CARGO_PKG_VERSION"));
    let parts = metadata(0) + metadata(1);
    let expected = [
        figures(&head, 128, allocator.statistics().metadata),
        figures(",\"heaps\":[{\"size\":null,\"limit\":null,\"device_usage\":null,\"device_budget\":null,", 128, parts),
        figures(
            "],\"memory_types\":[{\"heap\":0,\"properties\":0,\"max_page\":134217728,\"alignment\":32,\"granularity\":1,\
             \"non_coherent_atom\":1,\"host_visible\":false,\"mapped_anywhere\":false,",
            128,
            parts,
        ),
        "],\"pools\":[".to_owned(),
        figures(
            "{\"type\":\"exclusive_pages\",\"max_alloc_size\":1000,\"memory_type\":0,\"dealloc_period\":null,\"keep_bytes\":0,\
             \"granule\":32,\"page_alignment\":32,",
            128,
            metadata(0),
        ),
        ",".to_owned(),
        figures(
            "{\"type\":\"direct\",\"reclaim_at\":64,\"memory_type\":0,\"dealloc_period\":7,\"keep_bytes\":5,\"granule\":32,\
             \"page_alignment\":32,",
            0,
            metadata(1),
        ),
        "],\"own_pages\":[]}".to_owned(),
    ];
    assert_eq!(text, expected.concat());
}
