//! Callbacks of C: a device with a little real memory that fails, lies and calls back.

use super::structs::zeroed;
use slicepool_border::allocator::slicepool_allocator;
use slicepool_border::device::{slicepool_device, slicepool_fill_request, slicepool_point, slicepool_shortage};
use slicepool_border::event::slicepool_event;
use slicepool_border::page::{slicepool_cache_range, slicepool_device_memory, slicepool_page_request};
use slicepool_border::{slice, statistics, waiting};
use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, c_void};
use std::ptr;

/// Larger pages have no memory.
const LARGEST_SEEN: u64 = 1 << 16;

/// A device; its address is the `user_data` of its callbacks.
#[derive(Default)]
pub(super) struct World {
    held: RefCell<BTreeMap<u64, (slicepool_device_memory, Option<Layout>)>>,
    /// How to answer, and what to do meanwhile, one byte for each call.
    pub(super) script: RefCell<VecDeque<u8>>,
    /// Who is called back.
    pub(super) allocator: Cell<*mut slicepool_allocator>,
    depth: Cell<u32>,
    /// Whether pages have memory.
    pub(super) is_seen: Cell<bool>,
}

impl World {
    fn answer(&self) -> u8 {
        let byte = self.script.borrow_mut().pop_front().unwrap_or(0);
        let allocator = self.allocator.get();
        if byte >> 4 != 0 && !allocator.is_null() && self.depth.get() < 2 {
            self.depth.set(self.depth.get() + 1);
            // SAFETY: the allocator that called is alive; callbacks may call back.
            unsafe { call_back(allocator, byte >> 4) };
            self.depth.set(self.depth.get() - 1);
        }
        byte & 15
    }

    /// The callbacks, all of them or only those that have to be there.
    pub(super) fn device(&self, all: bool) -> slicepool_device {
        let mut device: slicepool_device = zeroed();
        device.struct_size = size_of::<slicepool_device>() as u32;
        device.user_data = ptr::from_ref(self).cast_mut().cast();
        device.allocate = Some(allocate);
        device.deallocate = Some(deallocate);
        if all {
            device.completed = Some(completed);
            device.out_of_memory = Some(out_of_memory);
            device.fill = Some(fill);
            device.map = Some(map);
            device.unmap = Some(unmap);
            device.flush = Some(flush);
            device.invalidate = Some(flush);
            device.event = Some(event);
        }
        device
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.borrow().is_empty()
    }

    /// Memory of the program's becomes a page, unless it is one; whether it is one already.
    pub(super) fn adopts(&self, memory: &slicepool_device_memory) -> bool {
        let mut held = self.held.borrow_mut();
        let known = held.contains_key(&memory.handle);
        held.entry(memory.handle).or_insert((*memory, None));
        known
    }

    /// It did not.
    pub(super) fn take_back(&self, handle: u64) {
        assert!(self.held.borrow_mut().remove(&handle).is_some());
    }

    /// Takes everything back that was abandoned.
    pub(super) fn take_all(&self) {
        let held = std::mem::take(&mut *self.held.borrow_mut());
        held.values().for_each(|(memory, layout)| give_back(memory, *layout));
    }
}

/// Does something with an allocator from within a callback.
unsafe fn call_back(allocator: *mut slicepool_allocator, action: u8) {
    let mut figures: statistics::slicepool_statistics = zeroed();
    figures.struct_size = size_of::<statistics::slicepool_statistics>() as u32;
    let mut found: slice::slicepool_slice = zeroed();
    found.struct_size = size_of::<slice::slicepool_slice>() as u32;
    let mut request: slicepool_border::request::slicepool_request = zeroed();
    request.struct_size = size_of::<slicepool_border::request::slicepool_request>() as u32;
    request.size = 64 << action;
    // SAFETY: the allocator is alive, and the structs are well-formed.
    unsafe {
        match action {
            1..4 => {
                // Not kept: freed at once.
                if slice::slicepool_allocate(allocator, &raw const request, &raw mut found) == 0 {
                    assert_eq!(slice::slicepool_free(allocator, found.id), 0);
                }
            }
            4..6 => {
                assert_eq!(
                    slicepool_border::allocator::slicepool_allocator_destroy(allocator, 1, ptr::null_mut()),
                    -11
                );
            }
            6..8 => {
                slicepool_border::allocator::slicepool_trim(allocator, 0, ptr::null_mut());
            }
            8..10 => {
                waiting::slicepool_collect(allocator, 0, 1, ptr::null_mut());
            }
            _ => assert_eq!(statistics::slicepool_statistics_get(allocator, &raw mut figures), 0),
        }
    }
}

fn give_back(memory: &slicepool_device_memory, layout: Option<Layout>) {
    if let Some(layout) = layout {
        // SAFETY: came from `allocate` with this layout.
        unsafe { std::alloc::dealloc(ptr::with_exposed_provenance_mut(memory.context.addr()), layout) };
    }
}

/// The device of a callback.
unsafe fn world<'a>(user_data: *mut c_void) -> &'a World {
    // SAFETY: what `World::device` has put there.
    unsafe { &*user_data.cast::<World>() }
}

unsafe extern "C" fn allocate(
    user_data: *mut c_void,
    request: *const slicepool_page_request,
    memory: *mut slicepool_device_memory,
) -> i32 {
    // SAFETY: the library calls with its own structs.
    let (world, request) = unsafe { (world(user_data), *request) };
    assert!(request.size != 0 && request.alignment.is_power_of_two() && request.reserved.is_null());
    let answer = world.answer();
    // SAFETY: as above.
    let memory = unsafe { &mut *memory };
    assert_eq!(memory.handle, u64::MAX);
    match answer {
        8 | 9 => {
            memory.device_code = -7;
            return -8;
        }
        10 => return -9,
        11 => return 77,
        12 => return 0,
        13 => {
            if let Some((held, _)) = world.held.borrow().values().next() {
                (memory.handle, memory.address, memory.mapped) = (held.handle, held.address, held.mapped);
                return 0;
            }
        }
        _ => {}
    }
    let mut held = world.held.borrow_mut();
    let handle = (0..).find(|handle| !held.contains_key(handle)).expect("a number that is free");
    memory.handle = handle;
    let mut layout = None;
    if world.is_seen.get() && request.size <= LARGEST_SEEN && request.alignment <= LARGEST_SEEN {
        let made = Layout::from_size_align(request.size as usize, request.alignment as usize).expect("a layout");
        layout = Some(made);
        // SAFETY: the size is not 0.
        let at = unsafe { std::alloc::alloc_zeroed(made) };
        at.expose_provenance();
        (memory.mapped, memory.context, memory.address) = (at.cast(), at.cast(), at.addr() as u64);
    }
    if answer == 15 && memory.address != 0 {
        memory.address ^= 1;
    }
    held.insert(handle, (slicepool_device_memory { size: request.size, ..*memory }, layout));
    0
}

unsafe extern "C" fn deallocate(user_data: *mut c_void, memory: *const slicepool_device_memory) -> i32 {
    // SAFETY: as above.
    let (world, memory) = unsafe { (world(user_data), *memory) };
    assert!(world.held.borrow().contains_key(&memory.handle), "memory that is not held comes back");
    if world.answer() >= 12 {
        return -9;
    }
    let (held, layout) = world.held.borrow_mut().remove(&memory.handle).expect("memory comes back twice");
    let all = |memory: &slicepool_device_memory| (memory.address, memory.size, memory.mapped, memory.context);
    assert_eq!(all(&held), all(&memory), "memory comes back as it was given");
    give_back(&held, layout);
    0
}

unsafe extern "C" fn completed(user_data: *mut c_void, timeline: u32, completed: *mut u64) -> i32 {
    // SAFETY: as above.
    unsafe {
        let answer = world(user_data).answer();
        completed.write(u64::from(timeline) + u64::from(answer));
        if answer >= 8 { -9 } else { 0 }
    }
}

unsafe extern "C" fn out_of_memory(user_data: *mut c_void, shortage: *const slicepool_shortage) -> i32 {
    // SAFETY: as above.
    unsafe {
        assert!((*shortage).attempt < 8 && (*shortage).result < 0);
        i32::from(world(user_data).answer())
    }
}

unsafe extern "C" fn fill(
    user_data: *mut c_void,
    request: *const slicepool_fill_request,
    point: *mut slicepool_point,
) -> i32 {
    // SAFETY: as above.
    unsafe {
        let (world, request) = (world(user_data), *request);
        assert!(world.held.borrow().contains_key(&request.memory), "what is filled is held");
        if !request.mapped.is_null() {
            // SAFETY: the sanitizer looks whether it is there.
            request.mapped.cast::<u8>().write_bytes(0, request.size as usize);
        }
        match world.answer() {
            12 | 13 => -9,
            14 => 99,
            11 => {
                point.write(slicepool_point { timeline: 1, reserved: 0, value: 3 });
                0
            }
            _ => 0,
        }
    }
}

unsafe extern "C" fn map(
    user_data: *mut c_void,
    memory: *const slicepool_device_memory,
    mapped: *mut *mut c_void,
) -> i32 {
    // SAFETY: as above.
    unsafe {
        assert!((*memory).mapped.is_null());
        match world(user_data).answer() {
            12 => return -9,
            13 => return -8,
            14 => {}
            _ => mapped.write(ptr::without_provenance_mut(((*memory).handle as usize + 1) << 20)),
        }
        0
    }
}

unsafe extern "C" fn unmap(user_data: *mut c_void, memory: *const slicepool_device_memory) {
    // SAFETY: as above.
    unsafe {
        assert!(!(*memory).mapped.is_null());
        world(user_data).answer();
    }
}

unsafe extern "C" fn flush(user_data: *mut c_void, range: *const slicepool_cache_range) -> i32 {
    // SAFETY: as above.
    unsafe {
        assert!(world(user_data).held.borrow().contains_key(&(*range).memory));
        if world(user_data).answer() >= 12 { -9 } else { 0 }
    }
}

unsafe extern "C" fn event(user_data: *mut c_void, event: *const slicepool_event) {
    // SAFETY: as above; names end.
    unsafe {
        assert!((1..=12).contains(&(*event).kind));
        assert!((*event).name.is_null() || CStr::from_ptr((*event).name).to_bytes().len() <= 55);
        world(user_data).answer();
    }
}
