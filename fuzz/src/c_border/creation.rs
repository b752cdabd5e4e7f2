//! How allocators of C are made.

use super::allocators::{Allocators, Object};
use super::device::World;
use super::others::Budgets;
use super::structs::{Struct, zeroed};
use super::{failure, pointer, succeeded};
use crate::input::Input;
use slicepool_border::allocator::*;
use slicepool_border::host::slicepool_host;
use slicepool_border::memory::{slicepool_allocation_sizes, slicepool_heap, slicepool_memory_type};
use slicepool_border::pool::slicepool_pool_options;
use std::mem::offset_of;
use std::ptr;

pub(super) fn pool(input: &mut Input<'_>) -> slicepool_pool_options {
    let mut options: slicepool_pool_options = zeroed();
    options.struct_size = size_of::<slicepool_pool_options>() as u32;
    options.kind = input.pick(&[3, 3, 3, 1, 2, 0, 4]);
    match options.kind {
        1 => options.max_alloc_size = input.number() << 8,
        2 => options.reclaim_at = input.number(),
        _ => {
            options.page_size = (1 + u64::from(input.byte())) << 8;
            options.max_slice_size = options.page_size;
            options.max_pool_size = input.maybe().map_or(0, |bytes| bytes << 8);
            options.max_page_size = input.maybe().map_or(0, |bytes| bytes << 8);
        }
    }
    if input.one_in(3) {
        options.granule = input.alignment();
        options.dealloc_period = u64::from(input.byte() & 15);
        options.near_page = u32::from(input.byte() & 3);
        options.page_growth = u32::from(input.byte() & 1);
        options.kinds = u32::from(input.byte() & 3);
        options.min_pages = u32::from(input.byte() & 1);
    }
    options
}

/// Structs side by side.
pub(super) fn array<T: Copy>(input: &mut Input<'_>, count: usize, mut one: impl FnMut(&mut Input<'_>) -> T) -> Vec<T> {
    (0..count).map(|_| one(input)).collect()
}

impl Allocators {
    pub(super) fn create(&mut self, input: &mut Input<'_>, host: &slicepool_host, budgets: &Budgets) {
        let world = Box::new(World::default());
        world.is_seen.set(input.one_in(2));
        let all = input.one_in(2);
        let device = Struct::random(input, world.device(all), &callbacks());
        let mut failure = failure(input);
        let mut config: slicepool_allocator_config = zeroed();
        let pools_wanted = input.below(4);
        let pools = array(input, pools_wanted, pool);
        let (mut types, mut heaps) = (Vec::new(), Vec::new());
        let sizes: Struct<slicepool_allocation_sizes> = Struct::random(input, zeroed(), &[]);
        config.flags = if input.one_in(3) { u32::from(input.byte() & 63) } else { 0 };
        config.persistent_granule = input.maybe().unwrap_or(0);
        config.debug_margin = if input.one_in(4) { input.number() } else { 0 };
        config.max_bytes = input.maybe().map_or(0, |bytes| bytes << 10);
        if input.one_in(4) {
            let wanted = 1 + input.below(3);
            heaps = array(input, wanted, |input| slicepool_heap {
                size: input.number() << 12,
                limit: input.maybe().map_or(0, |bytes| bytes << 12),
                struct_size: size_of::<slicepool_heap>() as u32,
                reserved: 0,
            });
            types = array(input, wanted, |input| slicepool_memory_type {
                heap: input.below(wanted) as u32,
                max_page: input.maybe().map_or(0, |bytes| bytes << 12),
                // What is no power of two is `config`'s to try.
                granularity: 1 << (input.byte() & 15),
                non_coherent_atom: 1 << (input.byte() & 7),
                properties: u32::from(input.byte() & 3),
                struct_size: size_of::<slicepool_memory_type>() as u32,
                ..zeroed()
            });
        }
        if input.one_in(8) {
            config.blocks = sizes.as_ptr();
        } else {
            config.pool_count = pools.len() as u32;
            config.pools = if pools.is_empty() { ptr::null() } else { pools.as_ptr() };
        }
        config.memory_type_count = types.len() as u32;
        config.heap_count = heaps.len() as u32;
        config.memory_types = if types.is_empty() { ptr::null() } else { types.as_ptr() };
        config.heaps = if heaps.is_empty() { ptr::null() } else { heaps.as_ptr() };
        config.budget = budgets.any(input);
        config.failure = pointer(&mut failure);
        config.name = if input.one_in(4) { c"n\xc3\xa4me".as_ptr() } else { ptr::null() };
        let in_block = input.one_in(6);
        config.host = if in_block { ptr::null() } else { host };
        let config = Struct::random(input, config, &config_pointers());
        let config = if input.one_in(32) { None } else { Some(config) };
        let config = config.as_ref().map_or(ptr::null(), Struct::as_ptr);
        let mut allocator = ptr::null_mut();
        let mut block = vec![0_u64; if in_block { input.below(1 << 11) } else { 0 }];
        // SAFETY: every pointer leads to what the header demands, for as long as it demands.
        let result = unsafe {
            let mut bytes = 0;
            succeeded(slicepool_allocator_bytes_needed(config, 10, 10, 1, &raw mut bytes), None);
            let (mut out, mut count) = (Struct::<slicepool_pool_options>::out(input), 0);
            succeeded(slicepool_config_pools(config, out.as_mut_ptr(), 1, &raw mut count), None);
            if in_block {
                let (at, len) = (block.as_mut_ptr().cast(), block.len() as u64 * 8);
                slicepool_allocator_create_in(device.as_ptr(), config, at, len, &raw mut allocator)
            } else {
                slicepool_allocator_create(device.as_ptr(), config, &raw mut allocator)
            }
        };
        assert_eq!(succeeded(result, failure.as_ref()), !allocator.is_null(), "{result}");
        if allocator.is_null() {
            assert!(world.is_empty(), "something was left with the device");
            return;
        }
        world.allocator.set(allocator);
        self.0.push(Object { allocator, world, live: Vec::new(), used: Vec::new(), _block: block });
    }
}

fn callbacks() -> Vec<usize> {
    (8..size_of::<slicepool_border::device::slicepool_device>()).step_by(8).collect()
}

/// Pointers, and what says how much there is where they lead.
fn config_pointers() -> Vec<usize> {
    let counts = [
        offset_of!(slicepool_allocator_config, pool_count) / 8 * 8,
        offset_of!(slicepool_allocator_config, memory_type_count) / 8 * 8,
        offset_of!(slicepool_allocator_config, heap_count) / 8 * 8,
    ];
    let pointers = offset_of!(slicepool_allocator_config, memory_types)..size_of::<slicepool_allocator_config>();
    counts.into_iter().chain(pointers.step_by(8)).collect()
}
