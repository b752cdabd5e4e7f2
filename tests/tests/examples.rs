//! Every example is compiled with strict warnings and run, and so is the C program in the README.

use slicepool_tests::{Link, STRICT, compile, library, root, run, scratch};
use std::fs;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// Compiles and runs an example both ways, and returns what it prints.
fn example(name: &str) -> String {
    let [shared, printed] = example_with_threads(name);
    assert_eq!(shared, printed);
    printed
}

/// The same of one that does not print the same every time.
fn example_with_threads(name: &str) -> [String; 2] {
    let library = library("release");
    let source = format!("examples-c/{name}.c");
    let flags = [&["-std=c11"], STRICT].concat();
    [Link::Shared, Link::Static].map(|link| run(&compile(&source, &library, link, &flags), &[], LIMIT))
}

fn line<'a>(printed: &'a str, beginning: &str) -> &'a str {
    let found = printed.lines().find_map(|line| line.strip_prefix(beginning));
    found.unwrap_or_else(|| panic!("no line begins with `{beginning}`:\n{printed}")).trim()
}

#[test]
fn quickstart_reuses_the_freed_hole_and_gives_every_page_back() {
    let printed = example("quickstart");
    let offsets: Vec<_> = printed.lines().filter(|line| line.contains("262144 bytes of page 1 at")).collect();
    assert_eq!(offsets.len(), 2);
    assert_eq!(offsets[0], offsets[1], "the freed hole's offset appears again");
    assert_eq!(line(&printed, "reused:"), "yes, the hole at the same offset");
    assert_eq!(line(&printed, "end:"), "0 pages still with us");
    let report: serde_json::Value = serde_json::from_str(line(&printed, "report:")).expect("the report is JSON");
    let figures = &report["allocator"];
    assert_eq!(figures["slices"], 0);
    assert_eq!(figures["reserved_bytes"], 0);
    assert_eq!(figures["device_allocations"], 2);
    assert_eq!(figures["device_deallocations"], 2);
    assert_eq!(report["pools"][0]["page_size"], 1 << 20);
}

#[test]
fn quickstart_is_short_enough_to_read() {
    let source = fs::read_to_string(root().join("examples-c/quickstart.c")).expect("the file is there");
    assert!(source.lines().count() <= 100);
}

#[test]
fn space_shows_a_descriptor_table() {
    let printed = example("space");
    assert_eq!(line(&printed, "material 1:"), "descriptors 8 to 19");
    assert_eq!(line(&printed, "another material:"), "descriptors 8 to 17");
    assert_eq!(line(&printed, "cleared:"), "8192 of 8192 free in 1 piece");
}

#[test]
fn memory_types_do_what_a_renderer_needs() {
    let printed = example("memory_types");
    assert_eq!(line(&printed, "readback:"), "right");
    assert_eq!(line(&printed, "render target:"), "a page for itself, at 0");
    assert_eq!(line(&printed, "streaming cache:"), "in upload memory");
    assert_eq!(line(&printed, "video memory only:"), "budget exceeded (video: budget exceeded)");
    assert_eq!(line(&printed, "never grow:"), "fits, 0 pages more");
    assert_eq!(line(&printed, "leaked:"), "streaming cache, 471859200 bytes of upload memory");
    assert_eq!(line(&printed, "end:"), "0 pages with us, 2 maps, 2 invalidations");
    let report: serde_json::Value = serde_json::from_str(line(&printed, "report:")).expect("the report is JSON");
    assert_eq!(report["name"], "renderer");
    let sum = |list: &str, member: &str| -> u64 {
        let list = report[list].as_array().expect("a list");
        list.iter().map(|one| one[member].as_u64().expect("a number")).sum()
    };
    for member in ["reserved_bytes", "in_use_bytes", "padding_bytes", "free_bytes", "slices", "pages"] {
        let whole = report["allocator"][member].as_u64().expect("a number");
        assert_eq!(sum("memory_types", member), whole, "{member}");
        assert_eq!(sum("heaps", member), whole, "{member}");
        assert_eq!(sum("pools", member) + sum("own_pages", member), whole, "{member}");
    }
    // Pages for linear and for optimal resources apart, in each of the three types; and pages of their own in two.
    let kinds: Vec<_> = report["pools"].as_array().expect("a list").iter().map(|pool| &pool["kinds"]).collect();
    assert_eq!(kinds, ["linear", "optimal", "linear", "optimal", "linear", "optimal"]);
    assert_eq!(report["own_pages"].as_array().expect("a list").len(), 2);
}

#[test]
fn pools_print_a_table_of_what_each_pool_does() {
    let printed = example("pools");
    let row = |name: &str| -> Vec<u64> {
        line(&printed, name).split_whitespace().skip(1).map(|cell| cell.parse().expect("a number")).collect()
    };
    let (small, large, targets) = (row("small"), row("large"), row("targets"));
    for row in [&small, &large, &targets] {
        let [reserved, in_use, padding, free, pages, peak, largest, device] = row[..] else {
            panic!("a table of other columns: {printed}")
        };
        assert_eq!(reserved, in_use + padding + free);
        assert!(pages <= peak && largest != 0 && device >= pages);
    }
    // One page serves the constants of every frame.
    assert_eq!((small[0], small[1], small[4], small[7]), (1 << 20, 0, 1, 1));
    assert!(small[6] < 8064);
    // The textures live at the end, with a quarter of what they need on top at most.
    assert!(large[0] < large[1] / 4 * 5, "{large:?}");
    // Four targets are in use; those of the first size have given way to those of the last.
    let target = 1920 * 1080 * 8;
    assert_eq!((targets[1], targets[6]), (5 * target, 2 * target));
    assert!(targets[0] <= 128 << 20 && targets[7] > targets[5], "{targets:?}");
    assert!(line(&printed, "held:").ends_with("at the end 0"));
}

#[test]
fn frames_call_no_device_after_the_warm_up_and_hold_little_more_than_they_use() {
    let printed = example("frames");
    assert_eq!(line(&printed, "device calls after the warm-up:"), "0");
    let held = line(&printed, "held at most:").split(' ').next().and_then(|ratio| ratio.parse::<f64>().ok());
    assert!(held.is_some_and(|ratio| (1.0..=1.25).contains(&ratio)), "{held:?}");
    // Something is pending in every row: frames are in flight.
    let rows = printed.lines().filter(|line| line.starts_with("  ") && !line.contains("MiB"));
    let pending = rows.map(|row| row.split_whitespace().nth(3).and_then(|cell| cell.parse::<f64>().ok()));
    assert!(pending.clone().count() >= 20 && pending.into_iter().all(|cell| cell > Some(1.0)), "{printed}");
}

#[test]
fn a_plan_measured_without_memory_fits_a_machine_of_exactly_that_size() {
    let printed = example("plan");
    let measured = line(&printed, "measured:").split(',').next();
    assert!(line(&printed, "measured:").ends_with(", 0 device calls"));
    assert_eq!(line(&printed, "run:").split(',').next(), measured);
    assert_eq!(line(&printed, "resolve:"), "mapping failed: the plan is larger than the device");
    assert_eq!(line(&printed, "end:"), "0 bytes still with us");
    // More than a terabyte was planned, in both pools.
    assert!(line(&printed, "pool 0:").starts_with("at most 64 MiB"));
    assert!(line(&printed, "pool 1:").starts_with("at most 1032192 MiB"));
}

#[test]
fn buffers_of_a_reader_are_hashed_and_released_by_another_thread() {
    for printed in example_with_threads("io_buffers") {
        assert_eq!(line(&printed, "hashed:"), "8388731 bytes, right");
        assert_eq!(line(&printed, "ceiling:"), "1984 KiB");
        let numbers = line(&printed, "16 KiB:").split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
        let numbers: Vec<u64> = numbers.map(|word| word.parse().expect("a number")).collect();
        let [created, limit, in_use, cached, free, hits, refills, spills, _exhausted] = numbers[..] else {
            panic!("a line of other figures: {printed}")
        };
        assert!(created <= limit && limit == 16, "{printed}");
        assert_eq!((in_use, cached, free), (0, 0, created));
        assert!(hits != 0 && refills != 0 && spills != 0, "{printed}");
    }
}

#[test]
fn a_card_gets_one_registered_region_and_offsets_in_it() {
    let printed = example("dma");
    assert_eq!(line(&printed, "regions:"), "1, of 64 buffers of 2048 bytes");
    assert_eq!(line(&printed, "posted:"), "48");
    assert_eq!(line(&printed, "packets:"), "1000 of 1000 right, many bytes");
    assert!(line(&printed, "twice:").starts_with("stale handle"));
    assert!(line(&printed, "made up:").starts_with("foreign handle"));
    assert!(line(&printed, "end:").starts_with("1 registration, 0 in use, "));
}

#[test]
fn the_c_program_in_the_readme_runs() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the file is there");
    let program = readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a C program");
    let relative = "target/c-tests/readme.c";
    scratch();
    fs::write(root().join(relative), program).expect("the scratch folder is writable");
    let flags = [&["-std=c11"], STRICT].concat();
    let printed = run(&compile(relative, &library("release"), Link::Static, &flags), &[], LIMIT);
    assert_eq!(printed, "100096 bytes at 0\n");
}
