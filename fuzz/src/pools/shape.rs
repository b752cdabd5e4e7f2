//! What allocators are made of, read from an input.

use super::device::{Habits, Naming};
use crate::input::Input;
use slicepool_core::layout::{self, PoolList, Properties};
use slicepool_core::{
    AllocationSizes, AllocatorOptions, DeviceLayout, Heap, MemoryType, NearPage, PageGrowth, PoolKinds, PoolOptions,
    PoolType,
};

/// The granules of pools; the last cannot be.
const GRANULES: [u64; 10] = [256, 64, 32, 1, 8, 4096, 1 << 16, 1 << 20, 1 << 32, 48];

/// A number of bytes that is a few pages, as a rule.
fn bytes(input: &mut Input<'_>, granule: u64) -> u64 {
    match input.byte() {
        few @ 0..120 => u64::from(few).saturating_mul(granule),
        many @ 120..220 => (u64::from(many) << 4).saturating_mul(granule),
        odd @ 220..230 => granule.saturating_mul(8).saturating_add(u64::from(odd & 3)),
        _ => input.number(),
    }
}

/// Options of a pool of any kind.
pub(crate) fn pool(input: &mut Input<'_>, types: u32) -> PoolOptions {
    let granule = input.pick(&GRANULES);
    let mut options = match input.byte() & 7 {
        0..=2 => {
            let page = bytes(input, granule);
            let slice = if input.one_in(2) { bytes(input, granule) } else { page };
            PoolOptions::sliced_pages(page, slice, input.one_in(3).then(|| bytes(input, granule)))
        }
        3 => PoolOptions::growing_pages(bytes(input, granule), bytes(input, granule)),
        4 => PoolOptions::blocks(bytes(input, granule), bytes(input, granule)),
        5 => PoolOptions::exclusive_pages(bytes(input, granule)),
        6 => PoolOptions::exclusive_pages(0),
        _ => PoolOptions::direct(input.one_in(2).then(|| bytes(input, granule))),
    };
    options = options.with_granule(granule);
    let more = input.byte();
    if more & 1 != 0 {
        options = options.with_dealloc_period(Some(u64::from(input.byte()))).with_keep_bytes(bytes(input, granule));
    }
    if more & 2 != 0 {
        options = options.with_near_page(input.pick(&[NearPage::Never, NearPage::Always, NearPage::WhenUncapped]));
        options.page_growth = input.pick(&[PageGrowth::Share, PageGrowth::Doubling]);
        options.max_page_size = input.one_in(2).then(|| bytes(input, granule));
    }
    if more & 12 == 12 {
        options = options.with_kinds(input.pick(&[PoolKinds::Linear, PoolKinds::Optimal, PoolKinds::Both]));
    }
    if more & 48 == 48 && matches!(options.pool_type, PoolType::SlicedPages { .. }) {
        options = options.with_min_pages(u32::from(input.byte() & 3));
    }
    options.in_memory_type(if types > 1 { input.below(types as usize) as u32 } else { 0 })
}

/// One pool of sliced pages.
pub(super) fn sliced_pool(input: &mut Input<'_>) -> PoolOptions {
    let granule = input.pick(&GRANULES[..9]);
    let page = match input.byte() {
        0..16 => input.number().max(1),
        few => u64::from(few).saturating_mul(granule),
    };
    let pool = PoolOptions::sliced_pages(page, page, input.one_in(2).then(|| page.saturating_mul(4)));
    pool.with_granule(granule).with_near_page(input.pick(&[NearPage::WhenUncapped, NearPage::Always]))
}

fn memory_type(input: &mut Input<'_>, heaps: usize) -> MemoryType {
    let max_page = if input.one_in(4) { bytes(input, 4096) } else { u64::MAX };
    let alignment = input.pick(&[256, 4096, 1, 64, 1 << 16, 1 << 40, 1 << 63, 3]);
    let mut described = MemoryType::new(max_page, alignment).in_heap(input.below(heaps.max(1)) as u32);
    let more = input.byte();
    described = described.with_properties(u32::from(more & 7)).with_host_visible(more & 8 != 0);
    if more & 48 == 48 {
        described = described.with_granularity(input.pick(&[1, 1024, 1 << 16, 1 << 32, 5]));
    }
    if more & 192 == 192 {
        described = described.with_non_coherent_atom(input.pick(&[1, 64, 256, 1 << 12]));
    }
    described
}

/// An allocator and its device.
pub(super) struct Shape {
    pub(super) types: Vec<MemoryType>,
    pub(super) heaps: Vec<Heap>,
    pub(super) pools: Vec<PoolOptions>,
    pub(super) options: AllocatorOptions,
    pub(super) habits: Habits,
    /// Limits of a budget that it shares.
    pub(super) budget: Option<(Option<u64>, Option<u32>)>,
}

/// The lists that come with the library.
fn made_list(input: &mut Input<'_>, memory: &DeviceLayout<'_>) -> Option<PoolList> {
    let properties = Properties::new(bytes(input, 4096)).with_alignment(input.pick(&GRANULES));
    let list = match input.byte() & 7 {
        0 => layout::adaptive(&properties.with_heap_size(bytes(input, 1 << 20))),
        1 => layout::sub_slices(&properties),
        2 => layout::exclusive_pages(&properties),
        3 | 4 => layout::adaptive_types(memory),
        _ => layout::blocks(&AllocationSizes::new(input.number(), input.number()), memory),
    };
    list.ok()
}

/// Anything.
pub(super) fn any(input: &mut Input<'_>) -> Shape {
    let several = input.one_in(4);
    let heaps: Vec<_> = (0..if several { input.below(3) } else { 0 })
        .map(|_| Heap::new(bytes(input, 1 << 16)).with_limit(input.one_in(3).then(|| bytes(input, 4096))))
        .collect();
    let types: Vec<_> =
        (0..if several { 1 + input.below(3) } else { 1 }).map(|_| memory_type(input, heaps.len())).collect();
    let memory = DeviceLayout::new(&types, &heaps);
    let made = if input.one_in(8) { made_list(input, &memory) } else { None };
    let pools = match made {
        Some(list) => list.to_vec(),
        None => (0..1 + input.below(4)).map(|_| pool(input, types.len() as u32)).collect(),
    };
    let mut options = AllocatorOptions::default();
    let more = input.byte();
    options.max_bytes = (more & 3 == 3).then(|| bytes(input, 4096));
    options.max_pages = (more & 12 == 12).then(|| u32::from(input.byte() & 31));
    options.dry_run = more & 112 == 112;
    options.dedicated_when_too_large = more & 128 != 0;
    let more = input.byte();
    options.dedicated_period = input.pick(&[Some(1024), Some(10), None, Some(0)]);
    options.persistent_granule = (more & 3 == 3).then(|| input.pick(&GRANULES));
    options.slice_events = more & 12 == 12;
    options.growth_wait_steps = u32::from(input.byte() & 1);
    let budget = (more & 48 == 48).then(|| {
        let bytes = input.one_in(2).then(|| bytes(input, 4096));
        (bytes, input.one_in(2).then(|| u32::from(input.byte() & 31)))
    });
    let habits = Habits {
        naming: input.pick(&[Naming::Handle, Naming::Address, Naming::Mapped]),
        limit: if input.one_in(3) { u128::from(bytes(input, 4096)) } else { 1 << 80 },
        can_fill: more & 64 != 0,
        can_map: more & 128 != 0,
        can_flush: input.one_in(2),
        tells: input.one_in(2),
        hears: input.one_in(2),
        max_bytes: options.max_bytes,
        max_pages: options.max_pages,
        dry_run: options.dry_run,
        is_honest: false,
    };
    Shape { types, heaps, pools, options, habits, budget }
}

/// One pool of sliced pages over a device that does what it should.
pub(super) fn one_sliced(input: &mut Input<'_>) -> Shape {
    let types = vec![MemoryType::new(u64::MAX, input.pick(&[256, 4096, 1 << 20, 1 << 63]))];
    let pools = vec![sliced_pool(input)];
    let options = AllocatorOptions::default();
    let habits = Habits {
        naming: input.pick(&[Naming::Handle, Naming::Address]),
        limit: 1 << 80,
        can_fill: false,
        can_map: false,
        can_flush: false,
        tells: false,
        hears: false,
        max_bytes: None,
        max_pages: None,
        dry_run: false,
        is_honest: true,
    };
    Shape { types, heaps: Vec::new(), pools, options, habits, budget: None }
}
