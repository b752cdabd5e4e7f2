//! Shared memory blocks and dedicated pages: how large blocks are, what is shared, and what goes back.

use crate::common::memory::{Heaps, Over, assert_whole, over, place};
use crate::common::random::Random;
use crate::common::sums::all_ranges;
use crate::common::{G, K, M};
use slicepool_core::{
    AllocationSizes, AllocatorOptions, DeviceLayout, Error, Heap, MemoryType, OwnPages, Request, Slice, layout,
};

const TYPE: MemoryType = MemoryType::new(u64::MAX, 64 * K);

fn options() -> AllocatorOptions {
    AllocatorOptions::default().with_dedicated_when_too_large()
}

/// Device blocks from `least` to `most` MiB.
fn sizes(least: u64, most: u64) -> AllocationSizes {
    AllocationSizes::new(least * M, 64 * M).with_max_device_memblock_size(most * M)
}

fn blocks_with<'a>(device: &'a Heaps, sizes: &AllocationSizes, heap: u64, options: AllocatorOptions) -> Over<'a> {
    over(device, &[TYPE], &[Heap::new(heap)], |memory| layout::blocks(sizes, memory).unwrap(), options)
}

fn blocks<'a>(device: &'a Heaps, least: u64, most: u64) -> Over<'a> {
    blocks_with(device, &sizes(least, most), 8 * G, options())
}

fn device() -> Heaps {
    Heaps::new(&[TYPE])
}

fn mebibytes(allocator: &Over, count: u64) -> Slice {
    place(allocator, &Request::new(count * M))
}

/// Every way to a page of its own: its name, a request for it, and the pool that it leads to.
fn own_ways() -> [(&'static str, Request, OwnPages); 4] {
    let data = std::ptr::without_provenance_mut(0x5150);
    [
        ("too large", Request::new(300 * M), OwnPages::Dedicated),
        ("dedicated", Request::new(M).dedicated(), OwnPages::Dedicated),
        ("device data", Request::new(M).with_device_data(data), OwnPages::Once),
        ("persistent", Request::new(M).persistent(), OwnPages::Persistent),
    ]
}

// ---- the ladder

/// Filled with slices of 4 MiB, so that no request is larger than a step. For device memory and for host memory.
#[test]
fn each_block_is_twice_the_one_before_when_every_block_is_filled() {
    let ladders: [(u64, u64, &[u64]); 9] = [
        (4, 256, &[4, 8, 16, 32, 64, 128, 256, 256, 256]),
        (8, 256, &[8, 16, 32, 64, 128, 256, 256, 256]),
        (12, 256, &[12, 24, 48, 96, 192, 256, 256]),
        (20, 100, &[20, 40, 80, 100, 100, 100]),
        (36, 256, &[36, 72, 144, 256, 256, 256]),
        (64, 256, &[64, 128, 256, 256, 256]),
        (256, 256, &[256, 256, 256, 256]),
        (8, 8, &[8, 8, 8, 8]),
        (4, 16, &[4, 8, 16, 16, 16]),
    ];
    let both = [2 * G, 8 * G, u64::MAX].map(|heap| [(heap, false), (heap, true)]);
    for ((least, most, ladder), (heap, host)) in
        ladders.iter().flat_map(|one| both.as_flattened().iter().map(move |of| (one, *of)))
    {
        let types = [TYPE.with_host_visible(host)];
        let device = Heaps::new(&types);
        let named = match host {
            true => AllocationSizes::new(128 * M, least * M).with_max_host_memblock_size(most * M),
            false => AllocationSizes::new(least * M, 128 * M).with_max_device_memblock_size(most * M),
        };
        let make = |memory: &DeviceLayout<'_>| layout::blocks(&named, memory).unwrap();
        let allocator = over(&device, &types, &[Heap::new(heap)], make, options());
        for _ in 0..ladder.iter().sum::<u64>() / 4 {
            mebibytes(&allocator, 4);
        }
        let expected: Vec<_> = ladder.iter().map(|mebibytes| mebibytes * M).collect();
        assert_eq!(device.ledger.sizes(), expected, "{least}, {most}, heap of {heap}, host: {host}");
        assert_eq!(allocator.statistics().free, 0);
        assert!(device.asked().iter().all(|request| !request.dedicated && request.pool == 0));
        assert_whole(&allocator, &device);
    }
}

/// With 8, 16 and 32 live.
#[test]
fn the_next_block_is_smaller_again_when_blocks_have_gone() {
    let device = device();
    let allocator = blocks(&device, 8, 64);
    let slices: Vec<_> = (0..14).map(|_| mebibytes(&allocator, 4)).collect();
    assert_eq!(device.asked_sizes(), [8 * M, 16 * M, 32 * M]);
    slices[2..].iter().for_each(|slice| allocator.free(slice.id).unwrap());
    // As long as they are held they count, and serve.
    let more: Vec<_> = (0..12).map(|_| mebibytes(&allocator, 4)).collect();
    assert_eq!(device.asked_sizes(), []);
    more.iter().for_each(|slice| allocator.free(slice.id).unwrap());
    allocator.trim(0).unwrap();
    assert_eq!(device.ledger.bytes(), 8 * M);
    mebibytes(&allocator, 4);
    assert_eq!(device.asked_sizes(), [16 * M]);
    assert_whole(&allocator, &device);
}

#[test]
fn pages_of_their_own_never_count_for_the_size_of_blocks() {
    let device = device();
    let allocator = blocks(&device, 8, 256);
    for (name, request, pages) in own_ways() {
        (0..3).for_each(|_| _ = place(&allocator, &request));
        let asked = device.asked();
        assert!(asked.len() == 3 && asked.iter().all(|page| page.dedicated && page.pool == pages.pool(0)), "{name}");
    }
    mebibytes(&allocator, 4);
    assert_eq!(device.asked_sizes(), [8 * M]);
}

/// A block that was refused, and one that the device gave at the wrong place, are none.
#[test]
fn blocks_that_came_to_nothing_do_not_count() {
    let device = device();
    let allocator = blocks(&device, 8, 256);
    device.limit(0, 0);
    for _ in 0..5 {
        allocator.allocate(&Request::new(8 * M)).unwrap_err();
    }
    device.limit(0, u64::MAX);
    allocator.trim(0).unwrap();
    device.asked();
    mebibytes(&allocator, 4);
    assert_eq!(device.asked_sizes(), [8 * M]);
}

// ---- what is shared

/// Four requests of 10 MiB where the ladder begins with 8.
#[test]
fn a_request_above_the_current_step_takes_the_first_step_that_holds_it_and_shares_it() {
    let device = device();
    let allocator = blocks(&device, 8, 256);
    let slices: Vec<_> = (0..4).map(|_| mebibytes(&allocator, 10)).collect();
    let asked = device.asked();
    assert_eq!(asked.iter().map(|page| page.size).collect::<Vec<_>>(), [16 * M, 16 * M, 32 * M]);
    assert!(asked.iter().all(|page| !page.dedicated && page.pool == 0));
    // What is left of the first is not lost.
    assert_eq!(mebibytes(&allocator, 6).memory, slices[0].memory);
    assert_eq!(
        (mebibytes(&allocator, 6).memory, mebibytes(&allocator, 12).memory),
        (slices[1].memory, slices[2].memory)
    );
    assert_eq!(device.asked_sizes(), []);
    // The first step may be the largest one.
    for (ask, step) in [(4, 8), (8, 8), (9, 16), (100, 128), (129, 256), (256, 256)] {
        let device = Heaps::new(&[TYPE]);
        let allocator = blocks(&device, 8, 256);
        mebibytes(&allocator, ask);
        assert_eq!(device.asked_sizes(), [step * M], "{ask}");
    }
    // It is one of the ladder's steps, which need not be twice the last one.
    let device = Heaps::new(&[TYPE]);
    let allocator = blocks(&device, 20, 100);
    mebibytes(&allocator, 90);
    mebibytes(&allocator, 41);
    assert_eq!(device.asked_sizes(), [100 * M, 80 * M]);
}

#[test]
fn above_the_largest_block_a_request_has_a_page_of_its_own_size() {
    let device = device();
    let allocator = blocks(&device, 8, 64);
    let slice = place(&allocator, &Request::new(64 * M + 1));
    let asked = device.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].size, asked[0].dedicated, asked[0].pool), (64 * M + 256, true, OwnPages::Dedicated.pool(0)));
    assert_eq!((slice.offset, slice.size), (0, 64 * M + 256));
    // Just not above.
    mebibytes(&allocator, 64);
    let asked = device.asked();
    assert_eq!((asked[0].size, asked[0].dedicated, asked[0].pool), (64 * M, false, 0));
    // Without the option it is refused.
    let device = Heaps::new(&[TYPE]);
    let allocator = blocks_with(&device, &sizes(8, 64), 8 * G, AllocatorOptions::default());
    let error = Error::TooLarge { size: 64 * M + 1, limit: 64 * M };
    assert_eq!(allocator.allocate(&Request::new(64 * M + 1)), Err(error));
    assert_eq!(device.asked_sizes(), []);
}

/// A block of 16 MiB that is empty, or nearly, where the ladder says something else.
#[test]
fn room_in_live_blocks_is_looked_for_first() {
    let device = device();
    let allocator = blocks(&device, 8, 256);
    let slice = mebibytes(&allocator, 16);
    allocator.free(slice.id).unwrap();
    assert_eq!(device.asked_sizes(), [16 * M]);
    assert_eq!((mebibytes(&allocator, 12).memory, device.asked_sizes()), (slice.memory, vec![]));
    // In a hole between others, in a block that is not the newest.
    let device = Heaps::new(&[TYPE]);
    let allocator = blocks(&device, 8, 256);
    let slices: Vec<_> = (0..14).map(|_| mebibytes(&allocator, 4)).collect();
    device.asked();
    slices[3..6].iter().for_each(|slice| allocator.free(slice.id).unwrap());
    let found = mebibytes(&allocator, 12);
    assert_eq!((found.memory, found.offset, device.asked_sizes()), (slices[3].memory, slices[3].offset, vec![]));
}

#[test]
fn what_lies_in_front_of_an_aligned_slice_stays_free_and_reports_show_what_was_handed_out() {
    let device = device();
    let allocator = blocks(&device, 8, 256);
    let first = place(&allocator, &Request::new(256));
    let aligned = place(&allocator, &Request::new(64 * K).aligned(64 * K));
    assert_eq!((first.offset, aligned.offset, aligned.size), (0, 64 * K, 64 * K));
    let shown: Vec<_> = all_ranges(&allocator).iter().map(|range| (range.id, range.offset, range.size)).collect();
    let expected = [
        (Some(first.id), 0, 256),
        (None, 256, 64 * K - 256),
        (Some(aligned.id), 64 * K, 64 * K),
        (None, 128 * K, 8 * M - 128 * K),
    ];
    assert_eq!(shown, expected);
    let gap = place(&allocator, &Request::new(64 * K - 256));
    assert_eq!((gap.memory, gap.offset), (first.memory, 256));
    assert_eq!(allocator.statistics().padding, 0);
    for slice in [first, aligned, gap] {
        assert_eq!(allocator.get(slice.id), Ok(slice));
        allocator.free(slice.id).unwrap();
    }
    assert_eq!(allocator.statistics().free_ranges, 1);
    assert_eq!(allocator.largest_free(), 8 * M);
}

#[test]
fn the_same_calls_lead_to_the_same_places() {
    let mut random = Random::with_seed_or(0xB10C);
    let seed = random.any();
    let run = || {
        let device = device();
        let allocator = blocks(&device, 4, 32);
        let (mut random, mut live, mut trace) = (Random::from(seed), Vec::new(), Vec::new());
        for _ in 0..10_000 {
            if live.len() < 200 && random.below(5) < 3 {
                let request = Request::new(random.scaled(40 * M)).aligned(1 << random.below(17));
                let request = if random.below(50) == 0 { request.dedicated() } else { request };
                let slice = place(&allocator, &request);
                trace.push((slice.memory, slice.offset, slice.size));
                live.push(slice);
            } else if !live.is_empty() {
                allocator.free(random.take(&mut live).id).unwrap();
            }
        }
        (trace, device.asked_sizes())
    };
    assert_eq!(run(), run());
}

// ---- what goes back

/// One block of small slices, in which something always lives, and a larger one that is not needed any more.
fn with_an_idle_block(device: &Heaps, keep: u64) -> Over<'_> {
    let make = |memory: &DeviceLayout<'_>| {
        let mut pools = layout::blocks(&sizes(8, 256), memory).unwrap();
        assert_eq!(pools[0].dealloc_period, Some(1024));
        pools[0].keep_bytes = keep;
        pools
    };
    let allocator = over(device, &[TYPE], &[Heap::new(8 * G)], make, options());
    mebibytes(&allocator, 7);
    let large = mebibytes(&allocator, 256);
    assert_eq!(device.ledger.sizes(), [8 * M, 256 * M]);
    allocator.free(large.id).unwrap();
    assert_eq!(device.ledger.bytes(), 264 * M);
    allocator
}

fn touch(allocator: &Over, times: u32) {
    for _ in 0..times {
        allocator.free(place(allocator, &Request::new(256)).id).unwrap();
    }
}

#[test]
fn an_idle_block_goes_back_after_some_thousand_allocations_or_with_a_trim() {
    let aged = device();
    let allocator = with_an_idle_block(&aged, 0);
    touch(&allocator, 100);
    assert_eq!(aged.ledger.bytes(), 264 * M, "not at once");
    touch(&allocator, 924);
    assert_eq!(aged.ledger.bytes(), 8 * M);
    // The ladder has come down with it.
    aged.asked();
    mebibytes(&allocator, 4);
    assert_eq!(aged.asked_sizes(), [16 * M]);

    let trimmed = device();
    let allocator = with_an_idle_block(&trimmed, 0);
    allocator.trim(264 * M).unwrap();
    assert_eq!(trimmed.ledger.bytes(), 264 * M);
    allocator.trim(9 * M).unwrap();
    assert_eq!(trimmed.ledger.bytes(), 264 * M, "what is to stay would not");
    allocator.trim(8 * M).unwrap();
    assert_eq!(trimmed.ledger.bytes(), 8 * M);
}

#[test]
fn blocks_are_kept_as_far_as_the_pool_says() {
    let kept = device();
    let allocator = with_an_idle_block(&kept, 9 * M);
    touch(&allocator, 5000);
    assert_eq!(kept.ledger.bytes(), 264 * M);
    let gone = device();
    let allocator = with_an_idle_block(&gone, 8 * M);
    touch(&allocator, 5000);
    assert_eq!(gone.ledger.bytes(), 8 * M);
}

/// Of pages that grow in another way, what is idle would make room for the new one.
#[test]
fn an_idle_block_that_is_too_small_stays_beside_a_larger_one() {
    let device = device();
    let allocator = blocks(&device, 8, 256);
    let small = mebibytes(&allocator, 8);
    allocator.free(small.id).unwrap();
    let large = mebibytes(&allocator, 12);
    assert_eq!((device.ledger.sizes(), device.ledger.pages()), (vec![8 * M, 16 * M], 2));
    assert_eq!((mebibytes(&allocator, 8).memory, mebibytes(&allocator, 4).memory), (small.memory, large.memory));
    assert_whole(&allocator, &device);
}

/// A dedicated page is kept for its like, and then goes: with the period of the options.
#[test]
fn dedicated_pages_age_like_blocks() {
    let device = device();
    let allocator = blocks(&device, 8, 64);
    mebibytes(&allocator, 7);
    let large = mebibytes(&allocator, 100);
    allocator.free(large.id).unwrap();
    device.asked();
    let again = mebibytes(&allocator, 100);
    assert_eq!((again.memory, device.asked_sizes()), (large.memory, vec![]));
    allocator.free(again.id).unwrap();
    touch(&allocator, 1100);
    assert_eq!(device.ledger.bytes(), 8 * M);
}

/// Blocks of 8 MiB, of which one is nearly full.
#[test]
fn a_thousand_frames_across_the_border_of_a_block_call_the_device_once() {
    for (least, most) in [(8, 8), (8, 256)] {
        let device = device();
        let allocator = blocks(&device, least, most);
        mebibytes(&allocator, 7);
        let frame = || {
            let slices = [1, 2, 1].map(|count| mebibytes(&allocator, count));
            assert_ne!(slices[0].memory, slices[1].memory);
            slices.iter().for_each(|slice| allocator.free(slice.id).unwrap());
        };
        frame();
        let calls = device.ledger.calls();
        assert_eq!(calls, 2);
        (0..1000).for_each(|_| frame());
        assert_eq!(device.ledger.calls(), calls);
    }
}
