//! Spaces and budgets of C, and functions that need no object.

use super::structs::{Struct, zeroed};
use super::{failure, handle, pointer, succeeded};
use crate::input::Input;
use slicepool_border::budget::*;
use slicepool_border::host::slicepool_host;
use slicepool_border::memory::*;
use slicepool_border::pool::*;
use slicepool_border::space::*;
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr;

/// A space, and what is known of it.
struct Space {
    space: *mut slicepool_space,
    live: Vec<slicepool_space_slice>,
    used: Vec<u64>,
}

#[derive(Default)]
pub(super) struct Spaces(Vec<Space>);

impl Spaces {
    pub(super) fn step(&mut self, input: &mut Input<'_>, host: &slicepool_host) {
        if self.0.is_empty() || (self.0.len() < 2 && input.one_in(16)) {
            return self.create(input, host);
        }
        let index = input.below(self.0.len());
        if input.one_in(64) {
            // SAFETY: it is alive, and gone afterwards.
            assert_eq!(unsafe { slicepool_space_destroy(self.0.swap_remove(index).space) }, 0);
            return;
        }
        self.0[index].step(input);
    }

    fn create(&mut self, input: &mut Input<'_>, host: &slicepool_host) {
        let mut failure = failure(input);
        let mut config: slicepool_space_config = zeroed();
        config.size = input.number();
        config.granule = if input.one_in(3) { input.alignment() } else { 0 };
        config.host = host;
        config.failure = pointer(&mut failure);
        let kept = [offset_of!(slicepool_space_config, host), offset_of!(slicepool_space_config, failure)];
        let config = Struct::random(input, config, &kept);
        let mut space = ptr::null_mut();
        // SAFETY: every pointer leads to what it says.
        let result = unsafe { slicepool_space_create(config.as_ptr(), &raw mut space) };
        assert_eq!(succeeded(result, failure.as_ref()), !space.is_null());
        if !space.is_null() {
            self.0.push(Space { space, live: Vec::new(), used: Vec::new() });
        }
    }

    pub(super) fn end(self) {
        for space in self.0 {
            // SAFETY: it is alive, and gone afterwards.
            assert_eq!(unsafe { slicepool_space_destroy(space.space) }, 0);
        }
    }
}

unsafe extern "C" fn visit(user_data: *mut c_void, piece: *const slicepool_space_slice) -> i32 {
    // SAFETY: a number, and a struct of the library's.
    unsafe { *user_data.cast::<u64>() += u64::from((*piece).id != 0) };
    0
}

impl Space {
    fn step(&mut self, input: &mut Input<'_>) {
        let ids: Vec<_> = self.live.iter().map(|slice| slice.id).collect();
        let id = handle(input, &ids, &self.used);
        let live = ids.contains(&id);
        let mut failure = failure(input);
        let mut slice = Struct::<slicepool_space_slice>::out(input);
        let before = slice.words();
        let (size, alignment) = (input.number(), if input.one_in(3) { input.alignment() } else { 0 });
        let mut figures = Struct::<slicepool_space_statistics>::out(input);
        let (mut number, space) = (0, self.space);
        // SAFETY: it is alive, and every pointer leads to what it says.
        unsafe {
            match input.byte() & 15 {
                0..5 if self.live.len() < 60 => {
                    let (out, details) = (slice.as_mut_ptr(), pointer(&mut failure));
                    let result = slicepool_space_allocate(space, size, alignment, out, details);
                    if succeeded(result, failure.as_ref()) {
                        self.add(slice.get().id, size);
                    } else {
                        assert_eq!(slice.words(), before, "what is refused touches nothing");
                    }
                }
                5..9 => {
                    let result = slicepool_space_free(space, id);
                    assert_eq!(succeeded(result, None), live || id == 0, "{id:#x}: {result}");
                    self.forget(id);
                }
                9 => {
                    let result = slicepool_space_try_resize(space, id, size, slice.as_mut_ptr(), pointer(&mut failure));
                    if succeeded(result, failure.as_ref()) {
                        assert!(live);
                        self.live.retain(|slice| slice.id != id);
                        self.add(id, size);
                    }
                }
                10 => _ = succeeded(slicepool_space_slice_get(space, id, slice.as_mut_ptr()), None),
                11 => _ = succeeded(slicepool_space_grow(space, size), None),
                12 if input.one_in(8) => {
                    assert_eq!(slicepool_space_clear(space), 0);
                    ids.iter().for_each(|&id| self.forget(id));
                }
                12 | 13 => {
                    assert_eq!(slicepool_space_walk(space, Some(visit), (&raw mut number).cast()), 0);
                    assert_eq!(number, self.live.len() as u64, "the walk shows what is live");
                }
                14 => assert_eq!(slicepool_space_largest_free(space, &raw mut number), 0),
                _ => _ = succeeded(slicepool_space_statistics_get(space, figures.as_mut_ptr()), None),
            }
        }
    }

    fn add(&mut self, id: u64, size: u64) {
        let mut slice = Struct::<slicepool_space_slice>::new(zeroed());
        // SAFETY: it is alive.
        assert_eq!(unsafe { slicepool_space_slice_get(self.space, id, slice.as_mut_ptr()) }, 0);
        let slice = slice.get();
        assert!(id != 0 && !self.used.contains(&id) && slice.size >= size);
        for other in &self.live {
            let apart = slice.offset >= other.offset + other.size || other.offset >= slice.offset + slice.size;
            assert!(apart && other.id != id, "two slices overlap");
        }
        self.live.push(slice);
    }

    fn forget(&mut self, id: u64) {
        let before = self.live.len();
        self.live.retain(|slice| slice.id != id);
        if self.live.len() != before {
            self.used.push(id);
        }
    }
}

/// Budgets, each with the number of references that the program has.
#[derive(Default)]
pub(super) struct Budgets(Vec<(*mut slicepool_budget, u32)>);

impl Budgets {
    /// One of them, or NULL.
    pub(super) fn any(&self, input: &mut Input<'_>) -> *mut slicepool_budget {
        match self.0.get(input.below(4)) {
            Some((budget, _)) => *budget,
            None => ptr::null_mut(),
        }
    }

    pub(super) fn step(&mut self, input: &mut Input<'_>, host: &slicepool_host) {
        if self.0.is_empty() || (self.0.len() < 2 && input.one_in(4)) {
            return self.create(input, host);
        }
        let index = input.below(self.0.len());
        let (budget, references) = &mut self.0[index];
        let mut figures = Struct::<slicepool_budget_statistics>::out(input);
        // SAFETY: the program has a reference.
        unsafe {
            match input.byte() & 7 {
                0 => {
                    assert_eq!(slicepool_budget_retain(*budget), 0);
                    *references += 1;
                }
                1 => {
                    assert_eq!(slicepool_budget_release(*budget), 0);
                    *references -= 1;
                }
                2..5 => {
                    let (bytes, pages) = (input.maybe().unwrap_or(0) << 12, input.maybe().unwrap_or(0) as u32);
                    assert_eq!(slicepool_budget_limits_set(*budget, bytes, pages), 0);
                }
                _ => _ = succeeded(slicepool_budget_statistics_get(*budget, figures.as_mut_ptr()), None),
            }
        }
        if *references == 0 {
            self.0.swap_remove(index);
        }
    }

    fn create(&mut self, input: &mut Input<'_>, host: &slicepool_host) {
        let mut failure = failure(input);
        let mut config: slicepool_budget_config = zeroed();
        (config.max_bytes, config.max_pages) = (input.maybe().unwrap_or(0) << 12, input.maybe().unwrap_or(0) as u32);
        config.host = host;
        config.failure = pointer(&mut failure);
        let kept = [offset_of!(slicepool_budget_config, host), offset_of!(slicepool_budget_config, failure)];
        let config = Struct::random(input, config, &kept);
        let mut budget = ptr::null_mut();
        // SAFETY: every pointer leads to what it says.
        let result = unsafe { slicepool_budget_create(config.as_ptr(), &raw mut budget) };
        assert_eq!(succeeded(result, failure.as_ref()), !budget.is_null());
        if !budget.is_null() {
            self.0.push((budget, 1));
        }
    }

    pub(super) fn end(self) {
        for (budget, references) in self.0 {
            let mut figures = Struct::<slicepool_budget_statistics>::new(zeroed());
            // SAFETY: the program has a reference.
            assert_eq!(unsafe { slicepool_budget_statistics_get(budget, figures.as_mut_ptr()) }, 0);
            assert_eq!((figures.get().bytes, figures.get().pages), (0, 0), "nobody holds anything any more");
            // SAFETY: the program has so many references.
            (0..references).for_each(|_| assert_eq!(unsafe { slicepool_budget_release(budget) }, 0));
        }
    }
}

/// Functions that need no object, and functions without theirs.
pub(super) fn without_object(input: &mut Input<'_>) {
    let properties = slicepool_layout_properties {
        max_page: input.number(),
        alignment: input.alignment(),
        heap_size: input.number(),
        struct_size: size_of::<slicepool_layout_properties>() as u32,
        reserved: 0,
    };
    let properties = Struct::random(input, properties, &[]);
    let capacity = input.below(40);
    let options = slicepool_pool_options { struct_size: size_of::<slicepool_pool_options>() as u32, ..zeroed() };
    let mut pools = vec![options; capacity];
    let at = if pools.is_empty() { ptr::null_mut() } else { pools.as_mut_ptr() };
    let (mut count, mut bytes) = (u32::MAX, 0);
    let sizes: slicepool_allocation_sizes = slicepool_allocation_sizes {
        min_device_memblock_size: input.number(),
        max_device_memblock_size: input.number(),
        ..zeroed()
    };
    let mut sizes = Struct::random(input, sizes, &[]);
    let mut used = Struct::<slicepool_allocation_sizes>::out(input);
    // SAFETY: every pointer is NULL or leads to what it says.
    let result = unsafe {
        match input.byte() & 7 {
            0 => slicepool_layout_adaptive(properties.as_ptr(), at, capacity as u32, &raw mut count),
            1 => slicepool_layout_sub_slices(properties.as_ptr(), at, capacity as u32, &raw mut count),
            2 => slicepool_layout_exclusive_pages(properties.as_ptr(), at, capacity as u32, &raw mut count),
            3 => slicepool_allocation_sizes_adjust(sizes.as_ptr(), used.as_mut_ptr()),
            4 => slicepool_memblock_size(sizes.as_ptr(), 1, input.count(), &raw mut bytes),
            5 => slicepool_allocation_sizes_adjust(sizes.as_ptr(), sizes.as_mut_ptr()),
            6 => slicepool_budget_retain(ptr::null_mut()),
            _ => slicepool_space_destroy(ptr::null_mut()),
        }
    };
    if succeeded(result, None) && count != u32::MAX {
        let written = pools.first().is_some_and(|pool| pool.kind != 0);
        assert_eq!(written, count as usize <= capacity, "{count} pools in room for {capacity}");
    }
}
