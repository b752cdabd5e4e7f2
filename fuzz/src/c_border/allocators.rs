//! Allocators of C.

use super::creation::{array, pool};
use super::device::World;
use super::others::Budgets;
use super::structs::{Struct, zeroed};
use super::{failure, handle, pointer, succeeded};
use crate::input::Input;
use slicepool_border::allocator::*;
use slicepool_border::device::slicepool_point;
use slicepool_border::host::slicepool_host;
use slicepool_border::pool::slicepool_pool_options;
use slicepool_border::request::slicepool_request;
use slicepool_border::slice::*;
use slicepool_border::statistics::*;
use slicepool_border::{label, mapping, page, planning, waiting};
use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::ptr;

const MOST_ALLOCATORS: usize = 2;
const MOST_SLICES: usize = 60;

/// An allocator, and what is known of it.
pub(super) struct Object {
    pub(super) allocator: *mut slicepool_allocator,
    pub(super) world: Box<World>,
    pub(super) live: Vec<slicepool_slice>,
    pub(super) used: Vec<u64>,
    /// Its books, if they lie there.
    pub(super) _block: Vec<u64>,
}

#[derive(Default)]
pub(super) struct Allocators(pub(super) Vec<Object>);

impl Allocators {
    pub(super) fn step(&mut self, input: &mut Input<'_>, host: &slicepool_host, budgets: &Budgets) {
        if self.0.is_empty() || (self.0.len() < MOST_ALLOCATORS && input.one_in(16)) {
            return self.create(input, host, budgets);
        }
        let index = input.below(self.0.len());
        if input.one_in(64) {
            let object = self.0.swap_remove(index);
            if let Some(object) = object.go(input) {
                self.0.push(object);
            }
            return;
        }
        self.0[index].step(input);
    }

    pub(super) fn end(self) {
        for mut object in self.0 {
            object.world.script.get_mut().clear();
            object.world.allocator.set(ptr::null_mut());
            // SAFETY: nobody uses it any more.
            let result = unsafe { slicepool_allocator_destroy(object.allocator, 1, ptr::null_mut()) };
            assert_eq!(result, 0, "nothing is in the way");
            assert!(object.world.is_empty(), "the device has not got everything back");
        }
    }
}

impl Object {
    /// Lets it go, if it does.
    fn go(mut self, input: &mut Input<'_>) -> Option<Self> {
        let flags = if input.one_in(4) { input.count() } else { u32::from(input.byte() & 1) };
        let mut failure = failure(input);
        let abandons = input.one_in(4);
        self.world.allocator.set(ptr::null_mut());
        // SAFETY: it is alive, and is not used any more if it goes.
        let result = unsafe {
            if abandons {
                slicepool_allocator_abandon(self.allocator, flags & !1)
            } else {
                slicepool_allocator_destroy(self.allocator, flags, pointer(&mut failure))
            }
        };
        if !succeeded(result, failure.as_ref()) {
            self.world.allocator.set(self.allocator);
            self.follow();
            return Some(self);
        }
        if abandons || flags & 1 != 0 {
            // With force, a device that refuses is left with what it has.
            self.world.take_all();
        }
        assert!(self.world.is_empty(), "the device has not got everything back");
        None
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let id = handle(input, &self.ids(), &self.used);
        match input.byte() & 31 {
            0..=7 => self.allocate(input),
            8..=11 => self.free(id),
            12 => self.allocate_many(input),
            13 => self.free_many(input),
            14 => self.world.script.get_mut().extend((0..input.below(6)).map(|_| input.byte())),
            15..18 => self.wait(input, id),
            18 => self.give_back(input),
            19 => self.resize(input, id),
            20 => self.map(input, id),
            21 => self.install(input),
            22 | 23 => self.look(input, id),
            24 => self.tell(input),
            25 => self.label(input, id),
            26 => self.adopt(input),
            _ => self.would_fit(input),
        }
    }

    fn ids(&self) -> Vec<u64> {
        self.live.iter().map(|slice| slice.id).collect()
    }

    fn request(
        &self,
        input: &mut Input<'_>,
        failure: *mut slicepool_border::result::slicepool_failure,
    ) -> slicepool_request {
        let mut request: slicepool_request = zeroed();
        request.struct_size = size_of::<slicepool_request>() as u32;
        request.size = input.size(256, 1 << 12);
        request.alignment = input.alignment();
        if input.one_in(4) {
            request.flags = 1 << (input.byte() & 15);
            request.pool = u32::from(input.byte() & 3);
            request.search_depth = u32::from(input.byte() & 3);
            request.memory_types = u32::from(input.byte() & 7);
            request.device_data = ptr::without_provenance_mut(usize::from(input.byte() & 1));
            request.user_data = ptr::without_provenance_mut(input.below(7));
            request.name = input.pick(&[ptr::null(), c"x".as_ptr(), c"\xff".as_ptr()]);
        }
        request.failure = failure;
        request
    }

    fn add(&mut self, slice: slicepool_slice, size: u64, alignment: u64) {
        assert_eq!((slice.offset % alignment.max(1), slice.address % alignment.max(1)), (0, 0), "it is aligned");
        assert!(slice.id != 0 && !self.used.contains(&slice.id), "{:#x} has come back", slice.id);
        assert!(slice.size >= size && slice.reserved == 0);
        for other in &self.live {
            let apart = slice.memory != other.memory
                || slice.offset >= other.offset + other.size
                || other.offset >= slice.offset + slice.size;
            assert!(apart || slice.memory == u64::MAX, "two slices overlap");
            assert_ne!(slice.id, other.id);
        }
        self.live.push(slice);
    }

    fn forget(&mut self, id: u64) {
        self.live.retain(|slice| slice.id != id);
        if id != 0 {
            self.used.push(id);
        }
    }

    /// Freed behind our back.
    fn follow(&mut self) {
        for id in self.ids() {
            let mut slice = Struct::<slicepool_slice>::new(zeroed());
            // SAFETY: it is alive.
            if unsafe { slicepool_slice_get(self.allocator, id, slice.as_mut_ptr()) } != 0 {
                self.forget(id);
            }
        }
    }

    fn allocate(&mut self, input: &mut Input<'_>) {
        if self.live.len() >= MOST_SLICES {
            return;
        }
        let mut failure = failure(input);
        let kept = [offset_of!(slicepool_request, device_data), offset_of!(slicepool_request, name)];
        let kept = [kept[0], kept[1], offset_of!(slicepool_request, user_data), offset_of!(slicepool_request, failure)];
        let request = self.request(input, pointer(&mut failure));
        let mut request = Some(Struct::random(input, request, &kept)).filter(|_| !input.one_in(32));
        let mut slice = Some(Struct::<slicepool_slice>::out(input)).filter(|_| !input.one_in(32));
        let before = slice.as_ref().map(Struct::words);
        // SAFETY: every pointer is NULL or leads to what it says.
        let result = unsafe { slicepool_allocate(self.allocator, pointer(&mut request), pointer(&mut slice)) };
        if succeeded(result, failure.as_ref()) {
            let (slice, request) = (slice.expect("it was not NULL"), request.expect("it was not NULL"));
            let mut found = Struct::<slicepool_slice>::new(zeroed());
            let id = slice.get().id;
            // SAFETY: it is alive.
            assert_eq!(unsafe { slicepool_slice_get(self.allocator, id, found.as_mut_ptr()) }, 0);
            if slice.is_whole() {
                let (told, found) = (slice.get(), found.get());
                assert_eq!((told.memory, told.offset, told.size), (found.memory, found.offset, found.size));
                assert_eq!(told.user_data, found.user_data);
            }
            let asked = request.get();
            self.add(found.get(), asked.size, asked.alignment);
        } else {
            assert_eq!(slice.as_ref().map(Struct::words), before, "what is refused touches nothing");
        }
    }

    fn free(&mut self, id: u64) {
        let live = self.live.iter().any(|slice| slice.id == id);
        // SAFETY: it is alive.
        let result = unsafe { slicepool_free(self.allocator, id) };
        assert_eq!(succeeded(result, None), live || id == 0, "{id:#x}: {result}");
        assert!(live || id == 0 || result == -2 || (result == -3 && !self.used.contains(&id)), "{result}");
        if live {
            self.forget(id);
        }
    }

    fn allocate_many(&mut self, input: &mut Input<'_>) {
        let count = input.below(4);
        if self.live.len() + count > MOST_SLICES {
            return;
        }
        let mut failure = failure(input);
        let requests = array(input, count, |input| self.request(input, pointer(&mut failure)));
        let mut slices = array(input, count, |input| slicepool_slice {
            struct_size: if input.one_in(32) { 16 } else { size_of::<slicepool_slice>() as u32 },
            ..zeroed()
        });
        let (from, to) = (requests.as_ptr(), slices.as_mut_ptr());
        // SAFETY: as many structs as are said to be there.
        let result = unsafe { slicepool_allocate_many(self.allocator, from, count as u32, to) };
        let uniform = slices.windows(2).all(|pair| pair[0].struct_size == pair[1].struct_size);
        if succeeded(result, failure.as_ref()) && count != 0 && slices[0].struct_size != 16 {
            assert!(uniform);
            slices.iter().zip(&requests).for_each(|(slice, request)| self.add(*slice, request.size, request.alignment));
        } else if result == 0 && count != 0 {
            // Cut short: each is where the ones before it leave off.
            let at = slices.as_ptr().cast::<u8>();
            for i in 0..count {
                // SAFETY: ids lie behind the first eight bytes of each.
                let id = unsafe { at.add(16 * i + 8).cast::<u64>().read_unaligned() };
                // SAFETY: it is alive.
                assert_eq!(unsafe { slicepool_free(self.allocator, id) }, 0);
            }
        }
    }

    fn free_many(&mut self, input: &mut Input<'_>) {
        let (live, count) = (self.ids(), input.below(5));
        let ids: Vec<_> = (0..count).map(|_| handle(input, &live, &self.used)).collect();
        let mut failure = failure(input);
        let at = if ids.is_empty() { ptr::null() } else { ids.as_ptr() };
        // SAFETY: as many handles as are said to be there.
        let result = unsafe { slicepool_free_many(self.allocator, at, ids.len() as u32, pointer(&mut failure)) };
        let (mut distinct, all) = (ids.clone(), ids.iter().all(|id| *id == 0 || live.contains(id)));
        distinct.sort_unstable();
        let twice = distinct.windows(2).any(|pair| pair[0] == pair[1] && pair[0] != 0);
        assert_eq!(succeeded(result, failure.as_ref()), all && !twice, "{ids:x?}: {result}");
        if result == 0 {
            ids.iter().for_each(|&id| self.forget(id));
        }
    }

    fn wait(&mut self, input: &mut Input<'_>, id: u64) {
        let mut failure = failure(input);
        let (timeline, value) = (u32::from(input.byte() & 1), input.number());
        let points = array(input, timeline as usize + 1, |input| slicepool_point {
            timeline: u32::from(input.byte() & 3),
            reserved: u32::from(input.one_in(16)),
            value: u64::from(input.byte()),
        });
        // SAFETY: as many points as are said to be there.
        let (result, frees) = unsafe {
            match input.byte() & 3 {
                0 => (waiting::slicepool_collect(self.allocator, timeline, value, pointer(&mut failure)), false),
                1 if input.one_in(8) => (waiting::slicepool_timeline_forget(self.allocator, timeline), false),
                _ => {
                    let (at, count) = (points.as_ptr(), points.len() as u32);
                    (waiting::slicepool_free_after(self.allocator, id, at, count, pointer(&mut failure)), true)
                }
            }
        };
        if succeeded(result, failure.as_ref()) && frees {
            assert!(id == 0 || self.live.iter().any(|slice| slice.id == id), "{id:#x} is not live");
            self.forget(id);
        }
    }

    fn give_back(&mut self, input: &mut Input<'_>) {
        let mut failure = failure(input);
        // SAFETY: it is alive.
        let result = unsafe {
            match input.byte() & 3 {
                0 | 1 => slicepool_trim(self.allocator, input.number(), pointer(&mut failure)),
                2 => slicepool_cleanup(self.allocator, pointer(&mut failure)),
                _ => slicepool_prefill(self.allocator, u32::from(input.byte() & 3), 2, pointer(&mut failure)),
            }
        };
        succeeded(result, failure.as_ref());
    }

    fn resize(&mut self, input: &mut Input<'_>, id: u64) {
        let (mut failure, mut slice) = (failure(input), Struct::<slicepool_slice>::out(input));
        let (size, resolves) = (input.size(256, 1 << 12), input.one_in(3));
        let out = slice.as_mut_ptr();
        // SAFETY: it is alive.
        let result = unsafe {
            if resolves {
                planning::slicepool_resolve(self.allocator, id, out, pointer(&mut failure))
            } else {
                slicepool_try_resize(self.allocator, id, size, out, pointer(&mut failure))
            }
        };
        if succeeded(result, failure.as_ref()) {
            let mut found = Struct::<slicepool_slice>::new(zeroed());
            // SAFETY: it is alive.
            assert_eq!(unsafe { slicepool_slice_get(self.allocator, id, found.as_mut_ptr()) }, 0);
            self.live.retain(|slice| slice.id != id);
            self.add(found.get(), if resolves { 0 } else { size }, 1);
        }
    }

    fn map(&mut self, input: &mut Input<'_>, id: u64) {
        let (mut failure, mut mapped) = (failure(input), ptr::null_mut());
        let (offset, size) = (input.number(), input.number());
        // SAFETY: it is alive.
        let result = unsafe {
            match input.byte() & 3 {
                0 => mapping::slicepool_map(self.allocator, id, &raw mut mapped, pointer(&mut failure)),
                1 => mapping::slicepool_unmap(self.allocator, id),
                2 => mapping::slicepool_flush(self.allocator, id, offset, size, pointer(&mut failure)),
                _ => mapping::slicepool_invalidate(self.allocator, id, 0, u64::MAX, pointer(&mut failure)),
            }
        };
        succeeded(result, failure.as_ref());
    }

    fn install(&mut self, input: &mut Input<'_>) {
        let (mut failure, wanted) = (failure(input), input.below(3));
        let pools = array(input, wanted, pool);
        let at = if pools.is_empty() { ptr::null() } else { pools.as_ptr() };
        self.world.allocator.set(ptr::null_mut());
        // SAFETY: as many pools as are said to be there; nobody else uses the allocator, callbacks neither.
        let result =
            unsafe { planning::slicepool_install_pools(self.allocator, at, wanted as u32, pointer(&mut failure)) };
        self.world.allocator.set(self.allocator);
        succeeded(result, failure.as_ref());
        // Their handles are foreign from now on, or not.
        self.used.clear();
    }

    fn look(&mut self, input: &mut Input<'_>, id: u64) {
        let mut figures = Struct::<slicepool_statistics>::out(input);
        let mut range = Struct::<slicepool_range>::out(input);
        let mut options = Struct::<slicepool_pool_options>::out(input);
        let (mut count, mut needed) = (0, 0);
        let mut text = vec![0_u8; input.below(1 << 12)];
        let index = if input.one_in(4) { input.count() } else { u32::from(input.byte() & 3) };
        let allocator = self.allocator;
        // SAFETY: every pointer leads to what it says.
        let result = unsafe {
            match input.byte() & 15 {
                0 => slicepool_statistics_get(allocator, figures.as_mut_ptr()),
                1 => slicepool_pool_statistics_get(allocator, index, figures.as_mut_ptr()),
                2 => slicepool_type_statistics_get(allocator, index, figures.as_mut_ptr()),
                3 => slicepool_heap_statistics_get(allocator, index, figures.as_mut_ptr(), ptr::null_mut()),
                4 => slicepool_find(allocator, input.number(), input.number(), range.as_mut_ptr()),
                5 => slicepool_find_address(allocator, input.number(), range.as_mut_ptr()),
                6 => slicepool_pool_options_get(allocator, index, options.as_mut_ptr()),
                7 => planning::slicepool_plan(allocator, options.as_mut_ptr(), 1, &raw mut count),
                8 => {
                    let (at, len) = (text.as_mut_ptr().cast::<c_char>(), text.len() as u64);
                    slicepool_report_json(allocator, at, len, &raw mut needed)
                }
                9 => slicepool_check_margins(allocator, ptr::null_mut()),
                10 => slicepool_walk(allocator, None, ptr::null_mut()),
                11 => slicepool_largest_free(allocator, &raw mut needed),
                12 => {
                    let mut slice = Struct::<slicepool_slice>::out(input);
                    slicepool_slice_get(allocator, id, slice.as_mut_ptr())
                }
                _ => slicepool_statistics_get(ptr::null_mut(), figures.as_mut_ptr()),
            }
        };
        succeeded(result, None);
    }

    /// What is told agrees with what is known.
    fn tell(&mut self, input: &mut Input<'_>) {
        unsafe extern "C" fn visit(user_data: *mut c_void, range: *const slicepool_range) -> i32 {
            // SAFETY: a list of handles, and a struct of the library's.
            unsafe {
                if (*range).kind == SLICEPOOL_RANGE_SLICE {
                    (*user_data.cast::<Vec<u64>>()).push((*range).id);
                }
            }
            0
        }
        let mut ids = Vec::<u64>::new();
        let mut figures = Struct::<slicepool_statistics>::new(zeroed());
        // SAFETY: every pointer leads to what it says.
        unsafe {
            assert_eq!(slicepool_walk(self.allocator, Some(visit), (&raw mut ids).cast()), 0);
            assert_eq!(slicepool_statistics_get(self.allocator, figures.as_mut_ptr()), 0);
        }
        let mut live = self.ids();
        live.sort_unstable();
        ids.sort_unstable();
        assert_eq!(ids, live, "the walk shows what is live");
        let told = figures.get();
        let parts = [told.in_use_bytes, told.padding_bytes, told.pending_bytes, told.free_bytes, told.stuck_bytes];
        let sum: u128 = parts.into_iter().map(u128::from).sum();
        assert!(u128::from(told.reserved_bytes) == sum || told.reserved_bytes == u64::MAX);
        assert_eq!(told.slices as usize, live.len());
        let _ = input;
    }

    fn label(&mut self, input: &mut Input<'_>, id: u64) {
        let name = input.pick(&[ptr::null(), c"".as_ptr(), c"a name".as_ptr(), c"\xe2\x82".as_ptr()]);
        let mut text = [0x55_u8; 64];
        let capacity = input.below(57) as u32;
        let mut user_data = ptr::null_mut();
        // SAFETY: names end; there are more bytes than are said to be there.
        let results = unsafe {
            [
                label::slicepool_name_set(self.allocator, id, name),
                label::slicepool_name_get(self.allocator, id, text.as_mut_ptr().cast(), capacity),
                label::slicepool_user_data_set(self.allocator, id, ptr::without_provenance_mut(input.below(9))),
                label::slicepool_allocator_user_data_get(self.allocator, &raw mut user_data),
            ]
        };
        results.into_iter().for_each(|result| _ = succeeded(result, None));
        assert!(text[capacity as usize..].iter().all(|&byte| byte == 0x55), "a name is longer than its room");
    }

    fn adopt(&mut self, input: &mut Input<'_>) {
        let mut memory: page::slicepool_device_memory = zeroed();
        memory.handle = u64::from(input.byte()) + (1 << 40);
        memory.size = (1 + u64::from(input.byte())) << 8;
        let memory = Struct::random(input, memory, &[8, 16, 32, 40]);
        let known = self.world.adopts(&memory.get());
        let mut failure = failure(input);
        // SAFETY: it is alive.
        let result = unsafe {
            slicepool_adopt(self.allocator, u32::from(input.byte() & 1), memory.as_ptr(), pointer(&mut failure))
        };
        if !succeeded(result, failure.as_ref()) && !known {
            self.world.take_back(memory.get().handle);
        }
    }

    fn would_fit(&mut self, input: &mut Input<'_>) {
        let mut failure = failure(input);
        let request = self.request(input, pointer(&mut failure));
        let (mut fits, mut grows) = (7, 7);
        // SAFETY: every pointer leads to what it says.
        let results = unsafe {
            [
                slicepool_would_fit(self.allocator, &raw const request, &raw mut fits),
                slicepool_would_grow(self.allocator, &raw const request, &raw mut grows),
            ]
        };
        assert_eq!(results[0], results[1]);
        let answered = succeeded(results[0], failure.as_ref());
        assert!(if answered { fits + grows == 1 } else { fits == 7 && grows == 7 });
    }
}
