//! The JSON report as a program gets it: `tests/c/report.c`.

use serde_json::{Value, json};
use slicepool_tests::{Link, STRICT, compile, library, run};
use std::time::Duration;

#[test]
fn the_report_is_valid_json_and_says_what_the_figures_say() {
    let flags = [STRICT, &["-std=c11"]].concat();
    let program = compile("tests/c/report.c", &library("dev"), Link::Static, &flags);
    let report: Value = serde_json::from_str(&run(&program, &[], Duration::from_secs(10))).expect("valid JSON");
    assert_eq!(report["slicepool"], env!("CARGO_PKG_VERSION"));
    let allocator = &report["allocator"];
    for (name, value) in [
        ("reserved_bytes", 69_632 + 768),
        ("in_use_bytes", 62_000 + 700),
        ("padding_bytes", 24 + 24 + 160 + 68),
        ("pending_bytes", 512),
        ("free_bytes", 69_632 - 62_000 - 208 - 512),
        ("unmapped_bytes", 0),
        ("slices", 4),
        ("slices_pending", 1),
        ("free_ranges", 2),
        ("pages", 3),
        ("pages_idle", 0),
        ("pages_unmapped", 0),
        ("pages_peak", 3),
        ("device_allocations", 3),
        ("device_deallocations", 0),
        ("growths_in_flight", 0),
    ] {
        assert_eq!(allocator[name], json!(value), "{name}");
    }
    let pools = report["pools"].as_array().expect("a list of pools");
    assert_eq!(pools.len(), 5);
    assert_eq!(pools[0]["type"], "sliced_pages");
    assert_eq!(pools[0]["page_size"], 4096);
    assert_eq!(pools[0]["max_slice_size"], 1024);
    assert_eq!(pools[0]["max_pool_size"], 8192);
    assert_eq!(pools[0]["granule"], 64);
    assert_eq!(pools[0]["in_use_bytes"], 2000);
    assert_eq!(pools[1]["max_slice_size"], 65_536);
    assert_eq!(pools[1]["max_pool_size"], Value::Null);
    assert_eq!(pools[1]["in_use_bytes"], 60_000);
    assert_eq!(pools[1]["max_page_size"], Value::Null);
    assert_eq!(pools[1]["dealloc_period"], Value::Null);
    assert_eq!(pools[2]["type"], "exclusive_pages");
    assert_eq!(pools[2]["max_alloc_size"], 1000);
    assert_eq!(pools[2]["dealloc_period"], 77);
    assert_eq!(pools[2]["granule"], 32);
    assert_eq!(pools[2]["reserved_bytes"], 0);
    assert_eq!(pools[3]["type"], "direct");
    assert_eq!(pools[3]["reclaim_at"], 5000);
    assert_eq!(pools[4]["type"], "sliced_pages");
    assert_eq!(pools[4]["max_page_size"], 8192);
    assert_eq!(pools[4]["max_pool_size"], Value::Null);
    assert_eq!(pools[0]["pending_bytes"], 512);
    assert_eq!(pools[0]["memory_type"], 0);
    assert_eq!(pools[0]["kinds"], "both");
    assert_eq!(pools[0]["min_pages"], 0);
    assert_eq!(pools[4]["page_growth"], "share");
    // What cannot be read need not be kept.
    assert_eq!(report["name"], "the \"first\" of two lines \\ \u{e4}");
    let own = report["own_pages"].as_array().expect("a list of pools");
    assert_eq!(own.len(), 1);
    assert_eq!(own[0]["slices"], 1);
    assert_eq!(own[0]["granule"], 256);
    assert_eq!(own[0]["in_use_bytes"], 700);
    assert_eq!(own[0]["padding_bytes"], 68);
    let heaps = report["heaps"].as_array().expect("a list of heaps");
    assert_eq!(heaps.len(), 1);
    assert_eq!(heaps[0]["size"], 1 << 30);
    assert_eq!(heaps[0]["limit"], 512 << 20);
    assert_eq!(heaps[0]["device_usage"], 69_632 + 768);
    assert_eq!(heaps[0]["device_budget"], 300 << 20);
    assert_eq!(heaps[0]["reserved_bytes"], allocator["reserved_bytes"]);
    let types = report["memory_types"].as_array().expect("a list of memory types");
    assert_eq!(types.len(), 1);
    assert_eq!(types[0]["heap"], 0);
    assert_eq!(types[0]["properties"], 9);
    assert_eq!(types[0]["host_visible"], true);
    assert_eq!(types[0]["alignment"], 4096);
    assert_eq!(types[0]["granularity"], 1);
    assert_eq!(types[0]["non_coherent_atom"], 1);
    assert_eq!(types[0]["in_use_bytes"], allocator["in_use_bytes"]);
}
