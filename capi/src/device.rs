//! Device callbacks, and the device that is built in.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::result::{
    SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_OK, code_of, finish,
    slicepool_result,
};
use core::ffi::c_void;
use core::ptr;
use slicepool_core::{
    Device, DeviceError, DeviceMemory, FillReason, FillRequest, HostDevice, PageRequest, Point, Shortage,
};

/// What a device is asked for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_page_request {
    /// sizeof(slicepool_page_request) as the library knows it.
    pub struct_size: u32,
    /// Index of the pool that grows; SLICEPOOL_PERSISTENT_POOL for persistent slices.
    pub pool: u32,
    /// Bytes, never 0.
    pub size: u64,
    /// The page's address, or where it has none its mapping, must be a multiple of this, a power of two.
    pub alignment: u64,
}

/// A page: memory that a device has given out.
///
/// `handle` and `address` together must differ between pages that are live at the same time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_device_memory {
    /// sizeof(slicepool_device_memory) as the library knows it.
    pub struct_size: u32,
    /// On failure: the device's own code (a VkResult, a CUresult), which comes back in slicepool_failure.device_code.
    pub device_code: i32,
    /// The device's own name for the memory: a VkDeviceMemory, an address, a file offset. Any value but UINT64_MAX,
    /// which is what the library puts here before it calls.
    pub handle: u64,
    /// Address as the device sees it, 0 if it has none.
    pub address: u64,
    /// Bytes, filled in by the library: what was asked for.
    pub size: u64,
    /// Where the CPU sees the memory, NULL if it does not. The library never reads or writes there, unless the allocator is
    /// made with SLICEPOOL_ALLOCATOR_DEBUG_FILL or debug_margin.
    pub mapped: *mut c_void,
    /// For the device's own use: comes back in `deallocate`.
    pub context: *mut c_void,
}

/// Takes a page from the device. Fills in `memory` and answers SLICEPOOL_OK, or answers
/// SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY or SLICEPOOL_ERROR_DEVICE_FAILED. Anything else counts as the latter.
pub type slicepool_device_allocate_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        request: *const slicepool_page_request,
        memory: *mut slicepool_device_memory,
    ) -> slicepool_result,
>;

/// Takes a page back: exactly what `allocate` filled in. Any answer but SLICEPOOL_OK means that the device keeps the
/// page as it is; it is asked again at the next trim and when the allocator is destroyed.
pub type slicepool_device_deallocate_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, memory: *const slicepool_device_memory) -> slicepool_result>;

/// A place on a timeline of the device's work: a queue, a stream, a frame loop, numbered as the program likes. What waits
/// for it may be reused once the timeline has completed that value. Timelines begin at 0, which is completed from the
/// start, and rise. This struct will not grow.
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
/// anything else to have it refused. Called up to 8 times for a request; half as often for each such call that is running
/// already, of whatever thread, so that one which allocates comes to an end: beside four others, not at all.
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

/// Fills memory with zeros. SLICEPOOL_OK: done, or ordered before everything that the program does with the memory from now
/// on; if `point`, which is all 0 before, was set: under way until that has been passed, for which the slice waits. A point
/// is for SLICEPOOL_FILL_SCRUB only; for SLICEPOOL_FILL_ZERO it counts as a failure. Anything else: not done. A new slice is
/// freed again then and its request refused; a freed one stays pending, and is tried again by the next slicepool_collect(),
/// slicepool_trim() or free of many, but for those that are called while slices are being filled. Without host memory for
/// a point, a freed slice is not filled before there is some.
pub type slicepool_device_fill_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        request: *const slicepool_fill_request,
        point: *mut slicepool_point,
    ) -> slicepool_result,
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
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_page_request {
    const NAME: &'static core::ffi::CStr = c"request";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_device_memory {
    const NAME: &'static core::ffi::CStr = c"memory";
}
// SAFETY: as above; NULL is a valid callback pointer.
unsafe impl Struct for slicepool_device {
    const NAME: &'static core::ffi::CStr = c"device";
}

/// The caller's callbacks as core's device.
pub(crate) struct CallbackDevice {
    user_data: *mut c_void,
    allocate: unsafe extern "C" fn(
        *mut c_void,
        *const slicepool_page_request,
        *mut slicepool_device_memory,
    ) -> slicepool_result,
    deallocate: unsafe extern "C" fn(*mut c_void, *const slicepool_device_memory) -> slicepool_result,
    completed: slicepool_device_completed_fn,
    out_of_memory: slicepool_device_out_of_memory_fn,
    fill: slicepool_device_fill_fn,
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
        Ok(Self {
            user_data: device.user_data,
            allocate: device.allocate.ok_or_else(|| invalid(c"allocate", 0))?,
            deallocate: device.deallocate.ok_or_else(|| invalid(c"deallocate", 0))?,
            completed: device.completed,
            out_of_memory: device.out_of_memory,
            fill: device.fill,
        })
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
        };
        let mut memory = slicepool_device_memory {
            struct_size: size_of::<slicepool_device_memory>() as u32,
            device_code: 0,
            handle: u64::MAX,
            address: 0,
            size: request.size,
            mapped: ptr::null_mut(),
            context: ptr::null_mut(),
        };
        // SAFETY: the contract of `read`.
        let answer = unsafe { (self.allocate)(self.user_data, &raw const page, &raw mut memory) };
        judge(answer, memory.device_code)?;
        Ok(DeviceMemory {
            handle: memory.handle,
            address: memory.address,
            mapped: memory.mapped.cast(),
            size: request.size,
            context: memory.context.cast(),
        })
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        let memory = slicepool_device_memory {
            struct_size: size_of::<slicepool_device_memory>() as u32,
            device_code: 0,
            handle: memory.handle,
            address: memory.address,
            size: memory.size,
            mapped: memory.mapped.cast(),
            context: memory.context.cast(),
        };
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
        judge(answer, answer)?;
        if point.reserved != 0 {
            return Err(DeviceError::UnknownResult(answer));
        }
        Ok((point.value != 0).then(|| Point::new(point.timeline, point.value)))
    }
}

/// Fills in a device whose pages are host memory of the C library: for staging memory, tests and first steps.
///
/// Handle and address of its pages are their address; they are mapped where they lie, and it fills them for ZERO and SCRUB.
///
/// @param device  filled in; its struct_size must be set
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_host_device(device: *mut slicepool_device) -> slicepool_result {
    unsafe extern "C" fn allocate(
        _: *mut c_void,
        request: *const slicepool_page_request,
        memory: *mut slicepool_device_memory,
    ) -> slicepool_result {
        // SAFETY: the library passes whole structs; so does everybody else who calls a device.
        let (request, memory) = unsafe { (&*request, &mut *memory) };
        let mut page = PageRequest::new(request.size, request.alignment);
        page.pool = request.pool;
        match HostDevice::new().allocate(&page) {
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
    unsafe extern "C" fn deallocate(_: *mut c_void, memory: *const slicepool_device_memory) -> slicepool_result {
        // SAFETY: as above.
        let memory = unsafe { &*memory };
        let memory = DeviceMemory {
            handle: memory.handle,
            address: memory.address,
            mapped: memory.mapped.cast(),
            size: memory.size,
            context: memory.context.cast(),
        };
        if HostDevice::new().deallocate(&memory).is_ok() { SLICEPOOL_OK } else { SLICEPOOL_ERROR_DEVICE_FAILED }
    }
    unsafe extern "C" fn fill(
        _: *mut c_void,
        request: *const slicepool_fill_request,
        _: *mut slicepool_point,
    ) -> slicepool_result {
        // SAFETY: as above; the slice is not used by anybody else meanwhile.
        unsafe { ptr::write_bytes((*request).mapped.cast::<u8>(), 0, (*request).size as usize) };
        SLICEPOOL_OK
    }
    // SAFETY: the caller's struct, checked by its size.
    finish(unsafe {
        abi::struct_size(device).map(|size| {
            let filled = slicepool_device {
                struct_size: size,
                reserved: 0,
                user_data: ptr::null_mut(),
                allocate: Some(allocate),
                deallocate: Some(deallocate),
                completed: None,
                out_of_memory: None,
                fill: Some(fill),
            };
            abi::write(device, size, &filled);
        })
    })
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

/// sizeof(slicepool_device_memory) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_device_memory() -> u32 {
    size_of::<slicepool_device_memory>() as u32
}

/// sizeof(slicepool_page_request) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_page_request() -> u32 {
    size_of::<slicepool_page_request>() as u32
}
