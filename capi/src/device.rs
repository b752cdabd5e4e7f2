//! Device callbacks, and the device that is built in.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::event::{self, slicepool_device_event_fn};
#[cfg(feature = "buffers")]
use crate::host;
use crate::page::{
    SLICEPOOL_PAGE_DEDICATED, slicepool_cache_range, slicepool_device_allocate_fn, slicepool_device_cache_fn,
    slicepool_device_deallocate_fn, slicepool_device_map_fn, slicepool_device_memory, slicepool_device_unmap_fn,
    slicepool_page_request,
};
use crate::parts::{COMPLETE, check_parts};
use crate::result::{
    SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_OK, code_of, finish,
    slicepool_result,
};
use core::ffi::c_void;
use core::ptr;
#[cfg(feature = "complete")]
use slicepool_core::AllocationSizes;
#[cfg(feature = "buffers")]
use slicepool_core::HostMemory;
use slicepool_core::{
    CacheRange, Device, DeviceError, DeviceMemory, Event, FillReason, FillRequest, HeapBudget, HostDevice, PageRequest,
    Point, Shortage,
};

/// A place on a timeline of the device's work: a queue, a stream, a frame loop, numbered as the program likes. What
/// waits for it may be reused once the timeline has completed that value. Timelines begin at 0, which is completed from
/// the start, and rise. This struct will not grow.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_point {
    /// Number of the timeline.
    pub timeline: u32,
    /// 0.
    pub reserved: u32,
    /// The value.
    pub value: u64,
}

/// Says what a timeline has completed: sets `completed` and answers SLICEPOOL_OK. Any other answer means that it is not
/// known. Asked before an allocator that holds slices which wait for it takes more memory.
pub type slicepool_device_completed_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, timeline: u32, completed: *mut u64) -> slicepool_result>;

/// A request that cannot be served.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_shortage {
    /// sizeof(slicepool_shortage) as the library knows it.
    pub struct_size: u32,
    /// How often this request has been told of before.
    pub attempt: u32,
    /// Bytes asked for.
    pub size: u64,
    /// Alignment asked for, 1 if none.
    pub alignment: u64,
    /// What the request will be refused with.
    pub result: slicepool_result,
    /// 0.
    pub reserved: u32,
}

/// In answers of `out_of_memory`: refuse the request.
pub const SLICEPOOL_SHORTAGE_REFUSE: i32 = 0;
/// Something was freed, here or elsewhere on the device: try again.
pub const SLICEPOOL_SHORTAGE_RETRY: i32 = 1;

/// Is told of a request that cannot be served; may free or evict something, and answers SLICEPOOL_SHORTAGE_RETRY, or
/// anything else to have it refused. Called up to 8 times for a request; half as often for each such call that is
/// running already, of whatever thread, so that one which allocates comes to an end: beside four others, not at all.
pub type slicepool_device_out_of_memory_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, shortage: *const slicepool_shortage) -> i32>;

/// In `slicepool_fill_request.reason`: the slice has just been allocated with SLICEPOOL_REQUEST_ZERO.
pub const SLICEPOOL_FILL_ZERO: u32 = 1;
/// The slice was allocated with SLICEPOOL_REQUEST_SCRUB and has been freed.
pub const SLICEPOOL_FILL_SCRUB: u32 = 2;

/// Memory that is to be filled with zeros: a slice.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_fill_request {
    /// sizeof(slicepool_fill_request) as the library knows it.
    pub struct_size: u32,
    /// A SLICEPOOL_FILL_ reason.
    pub reason: u32,
    /// Handle of the page.
    pub memory: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Address of the slice as the device sees it, 0 if the device gives none.
    pub address: u64,
    /// Where the CPU sees the slice, NULL if it does not.
    pub mapped: *mut c_void,
    /// The device's own field of the page.
    pub context: *mut c_void,
}

/// Fills memory with zeros. SLICEPOOL_OK: done, or ordered before everything that the program does with the memory from
/// now on; if `point`, which is all 0 before, was set: under way until that has been passed, for which the slice waits.
/// A point is for SLICEPOOL_FILL_SCRUB only; for SLICEPOOL_FILL_ZERO it counts as a failure. Anything else: not done. A
/// new slice is freed again then and its request refused; a freed one stays pending, and is tried again by the next
/// slicepool_collect(), slicepool_trim() or free of many, but for those that are called while slices are being filled.
/// Without host memory for a point, a freed slice is not filled before there is some.
pub type slicepool_device_fill_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        request: *const slicepool_fill_request,
        point: *mut slicepool_point,
    ) -> slicepool_result,
>;

/// What a device says of a heap, as VK_EXT_memory_budget and cuMemGetInfo do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_heap_budget {
    /// sizeof(slicepool_heap_budget): set by the library for the callback, otherwise by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Bytes in use, by this program as far as the device knows.
    pub usage: u64,
    /// Bytes that this program can use without trouble.
    pub budget: u64,
}

/// Says how much of a heap is used and may be: fills in `budget` and answers SLICEPOOL_OK. Any other answer means that
/// it is not known. Asked when memory is about to be taken for a request with SLICEPOOL_REQUEST_WITHIN_BUDGET, and never
/// else but for slicepool_heap_statistics_get() and reports.
pub type slicepool_device_heap_budget_fn = Option<
    unsafe extern "C" fn(user_data: *mut c_void, heap: u32, budget: *mut slicepool_heap_budget) -> slicepool_result,
>;

/// What gives out memory. Copied when an allocator is created.
///
/// The callbacks run on the thread whose call needs them, with no lock held: they may be slow, and may call back into
/// the allocator (where destroying it answers SLICEPOOL_ERROR_BUSY). They must not throw, longjmp or unwind.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_device {
    /// sizeof(slicepool_device), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// First argument of every callback.
    pub user_data: *mut c_void,
    /// Required.
    pub allocate: slicepool_device_allocate_fn,
    /// Required.
    pub deallocate: slicepool_device_deallocate_fn,
    /// May be NULL.
    pub completed: slicepool_device_completed_fn,
    /// May be NULL.
    pub out_of_memory: slicepool_device_out_of_memory_fn,
    /// May be NULL: then requests with SLICEPOOL_REQUEST_ZERO or SLICEPOOL_REQUEST_SCRUB are not supported.
    pub fill: slicepool_device_fill_fn,
    /// May be NULL: then the budget of a heap is its limit, or its size.
    pub heap_budget: slicepool_device_heap_budget_fn,
    /// May be NULL, together with `unmap`: then only pages that come mapped can be.
    pub map: slicepool_device_map_fn,
    /// May be NULL, together with `map`.
    pub unmap: slicepool_device_unmap_fn,
    /// May be NULL, together with `invalidate`.
    pub flush: slicepool_device_cache_fn,
    /// May be NULL, together with `flush`.
    pub invalidate: slicepool_device_cache_fn,
    /// May be NULL.
    pub event: slicepool_device_event_fn,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers.
unsafe impl Struct for slicepool_heap_budget {
    const NAME: &'static core::ffi::CStr = c"budget";
}
// SAFETY: as above; NULL is a valid callback pointer.
unsafe impl Struct for slicepool_device {
    const NAME: &'static core::ffi::CStr = c"device";
}

type Allocate =
    unsafe extern "C" fn(*mut c_void, *const slicepool_page_request, *mut slicepool_device_memory) -> slicepool_result;
type Deallocate = unsafe extern "C" fn(*mut c_void, *const slicepool_device_memory) -> slicepool_result;

/// The caller's callbacks as core's device.
pub(crate) struct CallbackDevice {
    user_data: *mut c_void,
    allocate: Allocate,
    deallocate: Deallocate,
    completed: slicepool_device_completed_fn,
    out_of_memory: slicepool_device_out_of_memory_fn,
    fill: slicepool_device_fill_fn,
    heap_budget: slicepool_device_heap_budget_fn,
    map: slicepool_device_map_fn,
    unmap: slicepool_device_unmap_fn,
    flush: slicepool_device_cache_fn,
    invalidate: slicepool_device_cache_fn,
    event: slicepool_device_event_fn,
}

// SAFETY: the header demands callbacks that any thread may call.
unsafe impl Send for CallbackDevice {}
// SAFETY: as above.
unsafe impl Sync for CallbackDevice {}

impl CallbackDevice {
    /// # Safety
    /// `device` is NULL or points to `struct_size` readable bytes; the callbacks keep the promises of the header.
    #[cold]
    pub(crate) unsafe fn read(device: *const slicepool_device) -> Result<Self, Refusal> {
        // SAFETY: passed on from the caller.
        let device = unsafe { abi::read(device)? };
        if device.reserved != 0 {
            return Err(invalid(c"reserved", u64::from(device.reserved)));
        }
        for (name, is_there, other, other_is) in [
            (c"map", device.map.is_some(), c"unmap", device.unmap.is_some()),
            (c"flush", device.flush.is_some(), c"invalidate", device.invalidate.is_some()),
        ] {
            if is_there != other_is {
                return Err(invalid(if is_there { other } else { name }, 0));
            }
        }
        if !COMPLETE {
            return Self::read_plain(&device);
        }
        Ok(Self {
            user_data: device.user_data,
            allocate: device.allocate.ok_or_else(|| invalid(c"allocate", 0))?,
            deallocate: device.deallocate.ok_or_else(|| invalid(c"deallocate", 0))?,
            completed: device.completed,
            out_of_memory: device.out_of_memory,
            fill: device.fill,
            heap_budget: device.heap_budget,
            map: device.map,
            unmap: device.unmap,
            flush: device.flush,
            invalidate: device.invalidate,
            event: device.event,
        })
    }

    /// A device that is asked for nothing but pages.
    fn read_plain(device: &slicepool_device) -> Result<Self, Refusal> {
        let asks = device.completed.is_some() || device.out_of_memory.is_some() || device.heap_budget.is_some();
        let has = device.fill.is_some() || device.map.is_some() || device.unmap.is_some() || device.event.is_some();
        let caches = device.flush.is_some() || device.invalidate.is_some();
        check_parts(asks || has || caches, c"device")?;
        let allocate = device.allocate.ok_or_else(|| invalid(c"allocate", 0))?;
        let deallocate = device.deallocate.ok_or_else(|| invalid(c"deallocate", 0))?;
        Ok(Self::of(device.user_data, allocate, deallocate))
    }

    /// Pages of the C library's memory.
    #[cfg(feature = "buffers")]
    pub(crate) fn of_host() -> Self {
        Self::of(ptr::null_mut(), allocate_from_host, deallocate_to_host)
    }

    /// Pages of a block of memory. What names the block lies in it, and goes with it.
    ///
    /// # Safety
    /// `block` is host memory in a block that outlives the device and everything in it.
    #[cfg(feature = "buffers")]
    #[cold]
    pub(crate) unsafe fn of_block(block: HostMemory) -> Result<Self, Refusal> {
        let at = host::place(block, block).map_err(|(_, refusal)| refusal)?;
        Ok(Self::of(at.as_ptr().cast(), allocate_from_block, deallocate_to_block))
    }

    #[cold]
    fn of(user_data: *mut c_void, allocate: Allocate, deallocate: Deallocate) -> Self {
        Self {
            user_data,
            allocate,
            deallocate,
            completed: None,
            out_of_memory: None,
            fill: None,
            heap_budget: None,
            map: None,
            unmap: None,
            flush: None,
            invalidate: None,
            event: None,
        }
    }

    /// Tells of block sizes that were rounded up.
    #[cfg(feature = "complete")]
    pub(crate) fn tell_rounded(&self, asked: [u64; 4], used: &AllocationSizes) {
        // SAFETY: the contract of `read`.
        unsafe { event::tell_rounded(self.event, self.user_data, asked, used) };
    }
}

/// What a callback's answer means.
fn judge(answer: slicepool_result, device_code: i32) -> Result<(), DeviceError> {
    match answer {
        SLICEPOOL_OK => Ok(()),
        SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY => Err(DeviceError::OutOfMemory(device_code)),
        SLICEPOOL_ERROR_DEVICE_FAILED => Err(DeviceError::Failed(device_code)),
        unknown => Err(DeviceError::UnknownResult(unknown)),
    }
}

impl Device for CallbackDevice {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        let page = slicepool_page_request {
            struct_size: size_of::<slicepool_page_request>() as u32,
            pool: request.pool,
            size: request.size,
            alignment: request.alignment,
            memory_type: request.memory_type,
            flags: if request.dedicated { SLICEPOOL_PAGE_DEDICATED } else { 0 },
            device_data: request.device_data.cast(),
            reserved: ptr::null_mut(),
        };
        let unfilled = DeviceMemory { size: request.size, ..DeviceMemory::new(u64::MAX) };
        let mut memory = slicepool_device_memory::from(&unfilled);
        // SAFETY: the contract of `read`.
        let answer = unsafe { (self.allocate)(self.user_data, &raw const page, &raw mut memory) };
        judge(answer, memory.device_code)?;
        Ok(memory.to_core(request.size))
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        let memory = slicepool_device_memory::from(memory);
        // The callback has nowhere to put a code of its own, so the answer serves.
        // SAFETY: the contract of `read`.
        let answer = unsafe { (self.deallocate)(self.user_data, &raw const memory) };
        judge(answer, answer)
    }

    #[cold]
    fn completed(&self, timeline: u32) -> Option<u64> {
        let mut completed = 0;
        // SAFETY: the contract of `read`.
        let answer = unsafe { self.completed?(self.user_data, timeline, &raw mut completed) };
        (answer == SLICEPOOL_OK).then_some(completed)
    }

    #[cold]
    fn out_of_memory(&self, shortage: &Shortage) -> bool {
        let Some(out_of_memory) = self.out_of_memory else { return false };
        let shortage = slicepool_shortage {
            struct_size: size_of::<slicepool_shortage>() as u32,
            attempt: shortage.attempt,
            size: shortage.size,
            alignment: shortage.alignment,
            result: code_of(shortage.error),
            reserved: 0,
        };
        // SAFETY: the contract of `read`.
        unsafe { out_of_memory(self.user_data, &raw const shortage) == SLICEPOOL_SHORTAGE_RETRY }
    }

    fn can_fill(&self) -> bool {
        self.fill.is_some()
    }

    #[cold]
    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        let Some(fill) = self.fill else { return Err(DeviceError::Failed(0)) };
        let FillRequest { memory, offset, size, reason, .. } = *request;
        let request = slicepool_fill_request {
            struct_size: size_of::<slicepool_fill_request>() as u32,
            reason: if reason == FillReason::Zero { SLICEPOOL_FILL_ZERO } else { SLICEPOOL_FILL_SCRUB },
            memory: memory.handle,
            offset,
            size,
            address: if memory.address == 0 { 0 } else { memory.address.wrapping_add(offset) },
            mapped: if memory.mapped.is_null() {
                ptr::null_mut()
            } else {
                memory.mapped.wrapping_add(offset as usize).cast()
            },
            context: memory.context.cast(),
        };
        let mut point = slicepool_point { timeline: 0, reserved: 0, value: 0 };
        // SAFETY: the contract of `read`.
        let answer = unsafe { fill(self.user_data, &raw const request, &raw mut point) };
        // It has nowhere to put a code of its own.
        judge(answer, 0)?;
        if point.reserved != 0 {
            return Err(DeviceError::UnknownResult(answer));
        }
        Ok((point.value != 0).then(|| Point::new(point.timeline, point.value)))
    }

    #[cold]
    fn heap_budget(&self, heap: u32) -> Option<HeapBudget> {
        let mut budget = slicepool_heap_budget::new(&HeapBudget { usage: 0, budget: u64::MAX });
        // SAFETY: the contract of `read`.
        let answer = unsafe { self.heap_budget?(self.user_data, heap, &raw mut budget) };
        (answer == SLICEPOOL_OK).then_some(HeapBudget { usage: budget.usage, budget: budget.budget })
    }

    fn can_map(&self) -> bool {
        self.map.is_some()
    }

    #[cold]
    fn map(&self, memory: &DeviceMemory) -> Result<*mut u8, DeviceError> {
        let Some(map) = self.map else { return Err(DeviceError::Failed(0)) };
        let memory = slicepool_device_memory::from(memory);
        let mut mapped = ptr::null_mut();
        // SAFETY: the contract of `read`.
        let answer = unsafe { map(self.user_data, &raw const memory, &raw mut mapped) };
        judge(answer, 0)?;
        Ok(mapped.cast())
    }

    #[cold]
    fn unmap(&self, memory: &DeviceMemory) {
        if let Some(unmap) = self.unmap {
            let memory = slicepool_device_memory::from(memory);
            // SAFETY: the contract of `read`.
            unsafe { unmap(self.user_data, &raw const memory) };
        }
    }

    fn can_flush(&self) -> bool {
        self.flush.is_some()
    }

    fn flush(&self, range: &CacheRange) -> Result<(), DeviceError> {
        self.call_with(self.flush, range)
    }

    fn invalidate(&self, range: &CacheRange) -> Result<(), DeviceError> {
        self.call_with(self.invalidate, range)
    }

    fn hears_events(&self) -> bool {
        COMPLETE && self.event.is_some()
    }

    fn event(&self, event: &Event) {
        // SAFETY: the contract of `read`.
        unsafe { event::tell(self.event, self.user_data, event) };
    }
}

impl CallbackDevice {
    #[cold]
    fn call_with(&self, callback: slicepool_device_cache_fn, range: &CacheRange) -> Result<(), DeviceError> {
        let Some(callback) = callback else { return Err(DeviceError::Failed(0)) };
        let range = slicepool_cache_range::from(range);
        // SAFETY: the contract of `read`.
        let answer = unsafe { callback(self.user_data, &raw const range) };
        judge(answer, 0)
    }
}

impl slicepool_heap_budget {
    pub(crate) fn new(budget: &HeapBudget) -> Self {
        let struct_size = size_of::<Self>() as u32;
        Self { struct_size, reserved: 0, usage: budget.usage, budget: budget.budget }
    }
}

/// A page of host memory.
///
/// # Safety
/// The library passes whole structs; so does everybody else who calls a device.
#[cold]
unsafe fn allocate_page(
    device: HostDevice,
    request: *const slicepool_page_request,
    memory: *mut slicepool_device_memory,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    let (request, memory) = unsafe { (&*request, &mut *memory) };
    let mut page = PageRequest::new(request.size, request.alignment);
    page.pool = request.pool;
    match device.allocate(&page) {
        Ok(given) => {
            memory.handle = given.handle;
            memory.address = given.address;
            memory.mapped = given.mapped.cast();
            memory.context = given.context.cast();
            SLICEPOOL_OK
        }
        Err(_) => SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY,
    }
}

/// Takes it back.
///
/// # Safety
/// As [`allocate_page`].
#[cold]
unsafe fn deallocate_page(device: HostDevice, memory: *const slicepool_device_memory) -> slicepool_result {
    // SAFETY: passed on from the caller.
    let memory = unsafe { *memory };
    let memory = memory.to_core(memory.size);
    if device.deallocate(&memory).is_ok() { SLICEPOOL_OK } else { SLICEPOOL_ERROR_DEVICE_FAILED }
}

unsafe extern "C" fn allocate_from_host(
    _: *mut c_void,
    request: *const slicepool_page_request,
    memory: *mut slicepool_device_memory,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe { allocate_page(HostDevice::new(), request, memory) }
}

unsafe extern "C" fn deallocate_to_host(_: *mut c_void, memory: *const slicepool_device_memory) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe { deallocate_page(HostDevice::new(), memory) }
}

unsafe extern "C" fn fill_of_host(
    _: *mut c_void,
    request: *const slicepool_fill_request,
    _: *mut slicepool_point,
) -> slicepool_result {
    // SAFETY: a whole struct; the slice is not used by anybody else meanwhile.
    unsafe { ptr::write_bytes((*request).mapped.cast::<u8>(), 0, (*request).size as usize) };
    SLICEPOOL_OK
}

/// `block` points to the host memory that is the device's.
#[cfg(feature = "buffers")]
unsafe extern "C" fn allocate_from_block(
    block: *mut c_void,
    request: *const slicepool_page_request,
    memory: *mut slicepool_device_memory,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe { allocate_page(HostDevice::over(*block.cast()), request, memory) }
}

/// As [`allocate_from_block`].
#[cfg(feature = "buffers")]
unsafe extern "C" fn deallocate_to_block(
    block: *mut c_void,
    memory: *const slicepool_device_memory,
) -> slicepool_result {
    // SAFETY: passed on from the caller.
    unsafe { deallocate_page(HostDevice::over(*block.cast()), memory) }
}

/// Fills in a device whose pages are host memory of the C library: for staging memory, tests and first steps.
///
/// Handle and address of its pages are their address; they are mapped where they lie, and it fills them for ZERO and
/// SCRUB.
///
/// @param device  filled in; its struct_size must be set
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_host_device(device: *mut slicepool_device) -> slicepool_result {
    // SAFETY: the caller's struct, checked by its size.
    finish(unsafe {
        abi::struct_size(device).map(|size| {
            let filled = slicepool_device {
                struct_size: size,
                reserved: 0,
                user_data: ptr::null_mut(),
                allocate: Some(allocate_from_host),
                deallocate: Some(deallocate_to_host),
                completed: None,
                out_of_memory: None,
                fill: if COMPLETE { Some(fill_of_host) } else { None },
                heap_budget: None,
                map: None,
                unmap: None,
                flush: None,
                invalidate: None,
                event: None,
            };
            abi::write(device, size, &filled);
        })
    })
}

/// sizeof(slicepool_heap_budget) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_heap_budget() -> u32 {
    size_of::<slicepool_heap_budget>() as u32
}

/// sizeof(slicepool_point) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_point() -> u32 {
    size_of::<slicepool_point>() as u32
}

/// sizeof(slicepool_shortage) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_shortage() -> u32 {
    size_of::<slicepool_shortage>() as u32
}

/// sizeof(slicepool_fill_request) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_fill_request() -> u32 {
    size_of::<slicepool_fill_request>() as u32
}

/// sizeof(slicepool_device) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_device() -> u32 {
    size_of::<slicepool_device>() as u32
}
