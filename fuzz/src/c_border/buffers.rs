//! Buffer pools of C, and their caches.

use super::device::World;
use super::others::Budgets;
use super::structs::{Struct, zeroed};
use super::{failure, handle, pointer, succeeded};
use crate::input::Input;
use slicepool_border::buffer::{cache::*, classes::*, config::*, pool::*, raw::*, statistics::*};
use slicepool_border::host::slicepool_host;
use std::mem::offset_of;
use std::ptr;

const MOST_BUFFERS: usize = 60;

/// A buffer pool, its caches, and what is known of both.
struct Object {
    pool: *mut slicepool_buffer_pool,
    world: Box<World>,
    caches: Vec<*mut slicepool_buffer_cache>,
    live: Vec<slicepool_buffer>,
    used: Vec<u64>,
    has_device: bool,
    is_closed: bool,
    /// The memory that buffers lie in, if the device has none.
    _block: Vec<u64>,
}

#[derive(Default)]
pub(super) struct Buffers(Option<Object>);

/// Does something to a configuration.
fn change(input: &mut Input<'_>, config: *mut slicepool_buffer_pool_config) {
    let (one, other, most) = (1_u64 << (input.byte() & 63), input.number(), input.count() & 31);
    let (sizes, limits) = ([one, other], [most, 1]);
    // SAFETY: a struct that is there, and lists of as many as are said to be.
    let result = unsafe {
        match input.byte() & 15 {
            0 => slicepool_buffer_pool_config_for_network(config),
            1 => slicepool_buffer_pool_config_for_storage_with_page_size(config, one),
            2 => slicepool_buffer_pool_config_with_size_class_range(config, one, one.saturating_mul(8), most),
            3 => {
                let (sizes, limits) = (sizes.as_ptr(), limits.as_ptr());
                slicepool_buffer_pool_config_with_size_classes(config, sizes, limits, 2)
            }
            4 => slicepool_buffer_pool_config_with_size_class(config, other, most),
            5 => slicepool_buffer_pool_config_without_size_class(config, one),
            6 => slicepool_buffer_pool_config_with_max_per_class(config, most),
            7 => slicepool_buffer_pool_config_with_bytes_per_class(config, other),
            8 => slicepool_buffer_pool_config_with_budget_bytes(config, other),
            9 => slicepool_buffer_pool_config_with_parallelism(config, other),
            10 => slicepool_buffer_pool_config_with_max_thread_cache_capacity(config, other),
            11 => slicepool_buffer_pool_config_with_thread_cache_disabled(config),
            12 => slicepool_buffer_pool_config_with_alignment(config, one),
            13 => slicepool_buffer_pool_config_with_pool_min_size(config, other),
            14 => slicepool_buffer_pool_config_check(config),
            _ => {
                let (mut size, mut count) = (0, 0);
                let result = slicepool_buffer_pool_config_class_for(config, other, &raw mut size, &raw mut count);
                assert!(result != 0 || size >= other, "a class smaller than its request");
                result
            }
        }
    };
    succeeded(result, None);
}

impl Buffers {
    pub(super) fn step(&mut self, input: &mut Input<'_>, host: &slicepool_host, budgets: &Budgets) {
        let Some(object) = &mut self.0 else {
            self.0 = create(input, host, budgets);
            return;
        };
        if !input.one_in(64) {
            return object.step(input);
        }
        if let Some(object) = self.0.take() {
            self.0 = object.go(input);
        }
    }

    pub(super) fn end(self) {
        let Some(object) = self.0 else { return };
        object.world.script.borrow_mut().clear();
        // SAFETY: caches first, and nobody uses a buffer any more.
        unsafe {
            for cache in object.caches {
                assert_eq!(slicepool_buffer_cache_destroy(cache), 0);
            }
            assert_eq!(slicepool_buffer_pool_destroy(object.pool, 1, ptr::null_mut()), 0, "nothing is in the way");
        }
        assert!(object.world.is_empty(), "the device has not got everything back");
    }
}

fn create(input: &mut Input<'_>, host: &slicepool_host, budgets: &Budgets) -> Option<Object> {
    let world = Box::new(World::default());
    world.is_seen.set(input.one_in(2));
    let with_device = !input.one_in(4);
    let device = Struct::random(input, world.device(true), &(8..112).step_by(8).collect::<Vec<_>>());
    let mut failure = failure(input);
    let mut config: slicepool_buffer_pool_config = zeroed();
    for _ in 0..input.below(4) {
        config.limits[input.below(20)] = u32::from(input.byte() & 15);
    }
    let mut block = vec![0_u64; if input.one_in(8) { input.below(1 << 12) } else { 0 }];
    if !block.is_empty() && !with_device {
        config.memory = block.as_mut_ptr().cast();
        config.memory_bytes = block.len() as u64 * 8;
    }
    config.host = host;
    config.budget = budgets.any(input);
    config.failure = pointer(&mut failure);
    if !with_device {
        // Real memory, of which there is not much.
        config.max_bytes = 1 << 20;
    }
    let pointers = offset_of!(slicepool_buffer_pool_config, memory)..size_of::<slicepool_buffer_pool_config>();
    let kept =
        [offset_of!(slicepool_buffer_pool_config, memory_bytes), offset_of!(slicepool_buffer_pool_config, max_bytes)];
    let kept: Vec<_> = pointers.step_by(8).chain(kept).collect();
    let mut config = Struct::random(input, config, &kept);
    for _ in 0..input.below(4) {
        change(input, config.as_mut_ptr());
    }
    let device = if with_device { device.as_ptr() } else { ptr::null() };
    let mut pool = ptr::null_mut();
    // SAFETY: every pointer leads to what the header demands, for as long as it demands.
    let result = unsafe { slicepool_buffer_pool_create(device, config.as_ptr(), &raw mut pool) };
    assert_eq!(succeeded(result, failure.as_ref()), !pool.is_null(), "{result}");
    if pool.is_null() {
        assert!(world.is_empty(), "something was left with the device");
        return None;
    }
    let (caches, live, used) = (Vec::new(), Vec::new(), Vec::new());
    Some(Object { pool, world, caches, live, used, has_device: with_device, is_closed: false, _block: block })
}

impl Object {
    fn go(mut self, input: &mut Input<'_>) -> Option<Self> {
        let (flags, mut failure) = (u32::from(input.byte() & 3), failure(input));
        // Memory of the C library's would be lost.
        let abandons = input.one_in(4) && self.has_device;
        // SAFETY: it is alive, and is not used any more if it goes; neither are its buffers.
        let result = unsafe {
            if abandons {
                slicepool_buffer_pool_abandon(self.pool, flags & !1)
            } else {
                slicepool_buffer_pool_destroy(self.pool, flags, pointer(&mut failure))
            }
        };
        if !succeeded(result, failure.as_ref()) {
            // If the device has refused, all are void.
            if result == -9 {
                self.is_closed = true;
                self.used.extend(self.live.drain(..).map(|buffer| buffer.id));
            }
            return Some(self);
        }
        assert!(self.caches.is_empty(), "it has caches");
        if abandons || flags & 1 != 0 {
            self.world.take_all();
        }
        assert!(self.world.is_empty(), "the device has not got everything back");
        None
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let ids: Vec<_> = self.live.iter().map(|buffer| buffer.id).collect();
        let id = handle(input, &ids, &self.used);
        let cache = self.caches.get(input.below(4)).copied().unwrap_or(ptr::null_mut());
        // SAFETY: what is passed is alive, and every pointer leads to what it says.
        unsafe {
            match input.byte() & 15 {
                0..6 => self.acquire(input, cache),
                6..9 => {
                    let result = slicepool_buffer_release(self.pool, cache, id);
                    assert_eq!(succeeded(result, None), ids.contains(&id) || id == 0, "{id:#x}: {result}");
                    if result == 0 && id != 0 {
                        self.live.retain(|buffer| buffer.id != id);
                        self.used.push(id);
                    }
                }
                9 => {
                    let mut buffer = Struct::<slicepool_buffer>::out(input);
                    let result = slicepool_buffer_get(self.pool, id, buffer.as_mut_ptr());
                    assert!(!succeeded(result, None) || ids.contains(&id) || id == 0, "{id:#x} is not out");
                }
                10 if self.caches.len() < 3 => {
                    let mut made = ptr::null_mut();
                    if succeeded(slicepool_buffer_cache_create(self.pool, &raw mut made), None) {
                        self.caches.push(made);
                    }
                }
                11 => _ = succeeded(slicepool_buffer_cache_flush(cache), None),
                12 => {
                    if succeeded(slicepool_buffer_cache_destroy(cache), None) {
                        self.caches.retain(|&other| other != cache);
                    }
                }
                13 => self.world.script.get_mut().extend((0..input.below(6)).map(|_| input.byte() & 15)),
                14 if input.one_in(16) => {
                    assert_eq!(slicepool_buffer_pool_close(self.pool), 0);
                    self.is_closed = true;
                }
                _ => self.look(input),
            }
        }
    }

    fn acquire(&mut self, input: &mut Input<'_>, cache: *mut slicepool_buffer_cache) {
        if self.live.len() >= MOST_BUFFERS {
            return;
        }
        let mut failure = failure(input);
        let size = input.size(64, 1 << 12);
        let flags = if input.one_in(3) { u32::from(input.byte() & 7) } else { 0 };
        // Real memory, if it is the host's.
        let flags = if size > 1 << 16 { flags & !SLICEPOOL_BUFFER_UNTRACKED } else { flags };
        let mut out = Struct::<slicepool_buffer>::out(input);
        let before = out.words();
        // SAFETY: what is passed is alive, and every pointer leads to what it says.
        let result = unsafe {
            let (to, details) = (out.as_mut_ptr(), pointer(&mut failure));
            slicepool_buffer_acquire(self.pool, cache, size, flags, to, details)
        };
        if !succeeded(result, failure.as_ref()) {
            assert_eq!(out.words(), before, "what is refused touches nothing");
            return;
        }
        let id = out.get().id;
        if id == 0 {
            return assert_eq!(size, 0, "an empty buffer");
        }
        let mut buffer = Struct::<slicepool_buffer>::new(zeroed());
        // SAFETY: it is out.
        assert_eq!(unsafe { slicepool_buffer_get(self.pool, id, buffer.as_mut_ptr()) }, 0);
        let buffer = buffer.get();
        assert!(buffer.size >= size && !self.used.contains(&id));
        for other in &self.live {
            let apart = buffer.memory != other.memory
                || buffer.offset >= other.offset + other.size
                || other.offset >= buffer.offset + buffer.size;
            assert!(apart && other.id != id, "a buffer is out twice");
        }
        if !buffer.mapped.is_null() {
            // SAFETY: the buffer's own bytes; the sanitizer looks whether they are there.
            unsafe { buffer.mapped.cast::<u8>().write_bytes(0x5A, buffer.size as usize) };
        }
        self.live.push(buffer);
    }

    fn look(&mut self, input: &mut Input<'_>) {
        let mut figures = Struct::<slicepool_buffer_pool_statistics>::out(input);
        let mut class = Struct::<slicepool_buffer_class_statistics>::out(input);
        let mut regions = Struct::<slicepool_buffer_region>::out(input);
        let (index, mut count) = (u32::from(input.byte() & 31), 0);
        // SAFETY: it is alive, and every pointer leads to what it says.
        let result = unsafe {
            match input.byte() & 3 {
                0 => slicepool_buffer_pool_statistics_get(self.pool, figures.as_mut_ptr()),
                1 => slicepool_buffer_pool_regions(self.pool, regions.as_mut_ptr(), 1, &raw mut count),
                2 => slicepool_buffer_pool_statistics_get(ptr::null_mut(), figures.as_mut_ptr()),
                _ => slicepool_buffer_class_statistics_get(self.pool, index, class.as_mut_ptr()),
            }
        };
        if succeeded(result, None) && class.is_whole() {
            let told = class.get();
            assert!(told.created <= told.limit);
            let sum = told.in_use + told.cached + told.free + told.retired;
            assert!(sum == told.created || self.is_closed, "{sum} of {} buffers are known", told.created);
        }
    }
}
