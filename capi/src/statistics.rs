//! Figures, the walk over everything, the JSON report.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::allocator::slicepool_allocator;
use crate::device::{CallbackDevice, slicepool_heap_budget};
use crate::pool::slicepool_pool_options;
use crate::result::{finish, finish_with, slicepool_failure, slicepool_result};
#[cfg(feature = "report")]
use core::ffi::c_char;
use core::ffi::c_void;
#[cfg(feature = "report")]
use core::fmt::{self, Write};
use core::ops::ControlFlow;
use slicepool_core::{Allocator, HeapBudget, Range, Statistics};

/// Figures of a pool or of a whole allocator at one instant. Sizes are bytes.
///
/// Always: reserved == in_use + padding + pending + free + leaving + stuck.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_statistics {
    /// sizeof(slicepool_statistics), set by the caller.
    pub struct_size: u32,
    /// Pools of the allocator; 1 in the figures of a pool.
    pub pools: u32,
    /// Held from the device, or planned in a dry run.
    pub reserved_bytes: u64,
    /// Asked for by live slices.
    pub in_use_bytes: u64,
    /// Added to that by rounding to the granule, or to the page where every slice has its own.
    pub padding_bytes: u64,
    /// In slices that were freed but wait for the device, rounding included.
    pub pending_bytes: u64,
    /// In free ranges.
    pub free_bytes: u64,
    /// In pages that are on their way back to the device.
    pub leaving_bytes: u64,
    /// In pages that the device has refused to take back.
    pub stuck_bytes: u64,
    /// Part of reserved_bytes that a dry run has not got from the device.
    pub unmapped_bytes: u64,
    /// The most reserved_bytes has been.
    pub reserved_peak_bytes: u64,
    /// The most in_use_bytes has been. Of an allocator: the sum over its pools.
    pub in_use_peak_bytes: u64,
    /// The largest request that was ever served.
    pub largest_allocation_bytes: u64,
    /// A free range of at least this size exists; slicepool_largest_free() is exact.
    pub largest_free_bound_bytes: u64,
    /// Host memory held for slices and pages; of an allocator also what its pools share. Never given back before the
    /// end.
    pub metadata_bytes: u64,
    /// Pages ever taken from the device, or adopted: by the pool that did so, whichever they have served since.
    pub device_allocations: u64,
    /// Pages ever given back, by the pool that did so.
    pub device_deallocations: u64,
    /// Live slices.
    pub slices: u32,
    /// Slices that were freed but wait for the device.
    pub slices_pending: u32,
    /// Free ranges.
    pub free_ranges: u32,
    /// Pages held, those leaving or stuck apart.
    pub pages: u32,
    /// Pages among them that hold no slice.
    pub pages_idle: u32,
    /// Pages that the device has refused to take back.
    pub pages_stuck: u32,
    /// Pages of a dry run that it has not got from the device.
    pub pages_unmapped: u32,
    /// The most `pages` has been.
    pub pages_peak: u32,
    /// Pages being taken from the device.
    pub growths_in_flight: u32,
    /// 0.
    pub reserved: u32,
}

/// In `slicepool_range.kind`: free memory.
pub const SLICEPOOL_RANGE_FREE: u32 = 0;
/// A live slice.
pub const SLICEPOOL_RANGE_SLICE: u32 = 1;
/// A slice that was freed but waits for the device.
pub const SLICEPOOL_RANGE_PENDING: u32 = 2;
/// Nothing of this allocator: an answer of slicepool_find().
pub const SLICEPOOL_RANGE_NONE: u32 = 3;

/// Slices with SLICEPOOL_REQUEST_PERSISTENT.
pub const SLICEPOOL_OWN_PAGES_PERSISTENT: u32 = 0;
/// Slices with SLICEPOOL_REQUEST_DEDICATED, and those that are too large for other pools.
pub const SLICEPOOL_OWN_PAGES_DEDICATED: u32 = 1;
/// Slices with device_data, whose pages serve once.
pub const SLICEPOOL_OWN_PAGES_ONCE: u32 = 2;

/// What stands in place of a pool's position for slices with pages of their own, which each memory type has a pool for
/// as soon as there is such a slice: UINT32_MAX - (3 * memory_type + own_pages).
///
/// @param own_pages  SLICEPOOL_OWN_PAGES_
/// @return the number, also for arguments that stand for nothing
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_own_pool(own_pages: u32, memory_type: u32) -> u32 {
    u32::MAX.wrapping_sub(memory_type.wrapping_mul(3).wrapping_add(own_pages))
}

/// A range that slicepool_walk() shows: a slice, or free memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_range {
    /// sizeof(slicepool_range) as the library knows it.
    pub struct_size: u32,
    /// A SLICEPOOL_RANGE_ kind.
    pub kind: u32,
    /// Handle of the slice; 0 for free memory, and for a slice that waits for the device.
    pub id: u64,
    /// Handle of the page.
    pub memory: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Bytes of the range.
    pub size: u64,
    /// Bytes asked for by a live slice, otherwise 0.
    pub requested: u64,
    /// Address of the range as the device sees it, 0 if the device gives none.
    pub address: u64,
    /// Position of the pool, or what slicepool_own_pool() says.
    pub pool: u32,
    /// Position of the memory type.
    pub memory_type: u32,
}

impl From<&Range> for slicepool_range {
    fn from(range: &Range) -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            kind: match (range.id, range.pending) {
                (Some(_), _) => SLICEPOOL_RANGE_SLICE,
                (None, true) => SLICEPOOL_RANGE_PENDING,
                (None, false) => SLICEPOOL_RANGE_FREE,
            },
            id: range.id.map_or(0, slicepool_core::SliceId::to_raw),
            memory: range.memory,
            offset: range.offset,
            size: range.size,
            requested: range.requested,
            address: range.address,
            pool: range.pool,
            memory_type: range.memory_type,
        }
    }
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers.
unsafe impl Struct for slicepool_range {
    const NAME: &'static core::ffi::CStr = c"range";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_statistics {
    const NAME: &'static core::ffi::CStr = c"statistics";
}

/// In answers of walk callbacks: go on.
pub const SLICEPOOL_WALK_CONTINUE: i32 = 0;
/// Show nothing more. So does any other answer but SLICEPOOL_WALK_CONTINUE.
pub const SLICEPOOL_WALK_STOP: i32 = 1;

/// Is shown one range; answers SLICEPOOL_WALK_CONTINUE or SLICEPOOL_WALK_STOP. Runs with no lock held and may call
/// back into the allocator, where destroying it answers SLICEPOOL_ERROR_BUSY. Must not throw, longjmp or unwind.
pub type slicepool_walk_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, range: *const slicepool_range) -> i32>;

fn filled(figures: &Statistics, pools: u32) -> slicepool_statistics {
    slicepool_statistics {
        struct_size: size_of::<slicepool_statistics>() as u32,
        pools,
        reserved_bytes: figures.reserved,
        in_use_bytes: figures.in_use,
        padding_bytes: figures.padding,
        pending_bytes: figures.pending,
        free_bytes: figures.free,
        leaving_bytes: figures.leaving,
        stuck_bytes: figures.stuck,
        unmapped_bytes: figures.unmapped,
        reserved_peak_bytes: figures.reserved_peak,
        in_use_peak_bytes: figures.in_use_peak,
        largest_allocation_bytes: figures.largest_allocation,
        largest_free_bound_bytes: figures.largest_free_bound,
        metadata_bytes: figures.metadata,
        device_allocations: figures.device_allocations,
        device_deallocations: figures.device_deallocations,
        slices: figures.slices,
        slices_pending: figures.slices_pending,
        free_ranges: figures.free_ranges,
        pages: figures.pages,
        pages_idle: figures.pages_idle,
        pages_stuck: figures.pages_stuck,
        pages_unmapped: figures.pages_unmapped,
        pages_peak: figures.pages_peak,
        growths_in_flight: figures.growths_in_flight,
        reserved: 0,
    }
}

/// Figures of all pools together.
///
/// @param statistics  filled in; its struct_size must be set
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any; each pool's figures are of one instant. Cost: constant per pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_statistics_get(
    allocator: *mut slicepool_allocator,
    statistics: *mut slicepool_statistics,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let size = abi::struct_size(statistics)?;
            abi::write(statistics, size, &filled(&inner.statistics(), inner.pool_count() as u32));
            Ok(())
        })()
    })
}

/// Figures of one pool at one instant.
///
/// @param pool        position in the list of pools, or what slicepool_own_pool() says, once there has been such a
///                    slice
/// @param statistics  filled in; its struct_size must be set
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_pool_statistics_get(
    allocator: *mut slicepool_allocator,
    pool: u32,
    statistics: *mut slicepool_statistics,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let size = abi::struct_size(statistics)?;
            let found = inner.pool_statistics(pool as usize).ok_or_else(|| invalid(c"pool", u64::from(pool)))?;
            abi::write(statistics, size, &filled(&found, 1));
            Ok(())
        })()
    })
}

/// Figures of all pools of a memory type.
///
/// @param memory_type  position of the memory type
/// @param statistics   filled in; its struct_size must be set
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any; each pool's figures are of one instant. Cost: constant per pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_type_statistics_get(
    allocator: *mut slicepool_allocator,
    memory_type: u32,
    statistics: *mut slicepool_statistics,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let size = abi::struct_size(statistics)?;
            let found = inner.type_statistics(memory_type);
            let found = found.ok_or_else(|| invalid(c"memory_type", u64::from(memory_type)))?;
            let pools = (0..inner.pool_count()).filter_map(|i| inner.pool_report(i));
            let pools = pools.filter(|report| report.options.memory_type == memory_type).count();
            abi::write(statistics, size, &filled(&found, pools as u32));
            Ok(())
        })()
    })
}

/// Figures of all pools whose memory types are taken from a heap, and what the device says of the heap.
///
/// @param heap        position of the heap
/// @param statistics  filled in, its struct_size must be set; `pools` is 0
/// @param budget      filled in, its struct_size must be set: with 0 and UINT64_MAX if the device says nothing; may be
///                    NULL
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any; each pool's figures are of one instant. Cost: constant per pool, and a call of `heap_budget`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_heap_statistics_get(
    allocator: *mut slicepool_allocator,
    heap: u32,
    statistics: *mut slicepool_statistics,
    budget: *mut slicepool_heap_budget,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let size = abi::struct_size(statistics)?;
            let budget_size = if budget.is_null() { 0 } else { abi::struct_size(budget)? };
            let report = inner.heap_report(heap).ok_or_else(|| invalid(c"heap", u64::from(heap)))?;
            abi::write(statistics, size, &filled(&report.statistics, 0));
            if budget_size != 0 {
                let says = report.budget.unwrap_or(HeapBudget { usage: 0, budget: u64::MAX });
                abi::write(budget, budget_size, &slicepool_heap_budget::new(&says));
            }
            Ok(())
        })()
    })
}

/// The slice, or the free range, or the slice that waits for the device, that a place in device memory belongs to: for
/// what a device reports as a fault.
///
/// @param memory  handle of the page
/// @param offset  bytes from the start of the page
/// @param range   filled in, its struct_size must be set; its kind is SLICEPOOL_RANGE_NONE if there is nothing
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: as slicepool_walk().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_find(
    allocator: *mut slicepool_allocator,
    memory: u64,
    offset: u64,
    range: *mut slicepool_range,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe { write_found(allocator, range, |inner| inner.find(memory, offset)) })
}

/// slicepool_find() by an address as the device sees it, where it gives addresses.
///
/// @param range  filled in, its struct_size must be set; its kind is SLICEPOOL_RANGE_NONE if there is nothing
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: as slicepool_walk().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_find_address(
    allocator: *mut slicepool_allocator,
    address: u64,
    range: *mut slicepool_range,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe { write_found(allocator, range, |inner| inner.find_address(address)) })
}

/// # Safety
/// `allocator` and `range` are what the header demands.
#[cold]
unsafe fn write_found(
    allocator: *mut slicepool_allocator,
    range: *mut slicepool_range,
    find: impl FnOnce(&Allocator<CallbackDevice>) -> Option<Range>,
) -> Result<(), Refusal> {
    // SAFETY: passed on from the caller.
    unsafe {
        let inner = slicepool_allocator::get(allocator)?;
        let size = abi::struct_size(range)?;
        let found = match find(inner) {
            Some(found) => slicepool_range::from(&found),
            None => slicepool_range { kind: SLICEPOOL_RANGE_NONE, ..abi::zeroed() },
        };
        abi::write(range, size, &found);
        Ok(())
    }
}

/// A pool's configuration as it is in effect: after rounding, clamping and defaults.
///
/// @param pool     as for slicepool_pool_statistics_get()
/// @param options  filled in; its struct_size must be set
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_pool_options_get(
    allocator: *mut slicepool_allocator,
    pool: u32,
    options: *mut slicepool_pool_options,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let size = abi::struct_size(options)?;
            let report = inner.pool_report(pool as usize).ok_or_else(|| invalid(c"pool", u64::from(pool)))?;
            abi::write(options, size, &slicepool_pool_options::from(&report.options));
            Ok(())
        })()
    })
}

/// Shows every slice and every free range, pool by pool, in no particular order.
///
/// What changes during the walk may be shown or not; everything else is shown exactly once.
///
/// @param visit      called for each range
/// @param user_data  its first argument
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: in proportion to the slots used; a few of them per lock hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_walk(
    allocator: *mut slicepool_allocator,
    visit: slicepool_walk_fn,
    user_data: *mut c_void,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let visit = visit.ok_or_else(|| invalid(c"visit", 0))?;
            let _ = inner.walk(|range| {
                let range = slicepool_range::from(range);
                if visit(user_data, &raw const range) == SLICEPOOL_WALK_CONTINUE {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            Ok(())
        })()
    })
}

/// Counts what is written, and keeps it as far as there is room.
#[cfg(feature = "report")]
struct Report {
    to: *mut u8,
    capacity: u64,
    written: u64,
}

#[cfg(feature = "report")]
impl Write for Report {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.written + text.len() as u64;
        if end <= self.capacity {
            // SAFETY: the caller's buffer has `capacity` bytes.
            unsafe { self.to.add(self.written as usize).copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        }
        self.written = end;
        Ok(())
    }
}

/// Writes a report as one JSON object, NUL-terminated, into the caller's buffer: the allocator's figures, those of
/// heaps and memory types, and each pool's configuration and figures. docs/report.schema.json in the repository
/// describes it.
///
/// @param buffer    written only if the whole report fits; may be NULL if capacity is 0
/// @param capacity  bytes of the buffer
/// @param needed    set to the bytes of the report, its NUL included: call with capacity 0 first, and leave some room
///                  for figures that grow meanwhile
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any; each pool's figures are of one instant. Cost: constant per pool.
#[cfg(feature = "report")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_report_json(
    allocator: *mut slicepool_allocator,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let needed = abi::out(needed, c"needed")?;
            if capacity != 0 {
                abi::out(buffer, c"buffer")?;
            }
            let mut count = Report { to: core::ptr::null_mut(), capacity: 0, written: 0 };
            // Writing to a `Report` does not fail.
            let _ = inner.write_json(&mut count);
            let mut total = count.written + 1;
            if total <= capacity {
                let mut report = Report { to: buffer.cast(), capacity: capacity - 1, written: 0 };
                let _ = inner.write_json(&mut report);
                total = report.written + 1;
                // Figures that grew between the two passes may have made the report too long after all.
                let end = if total <= capacity { report.written } else { 0 };
                buffer.add(end as usize).write(0);
            }
            needed.write(total);
            Ok(())
        })()
    })
}

/// Looks whether anything was written to the margins behind slices, where the CPU sees them: see
/// slicepool_allocator_config.debug_margin.
///
/// @param failure  may be NULL; memory and value tell where
/// @return SLICEPOOL_ERROR_MARGIN_DAMAGED for the first that was, which is mended, so that the next call tells of the
///         next; SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: in proportion to the slices; one of them per lock hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_check_margins(
    allocator: *mut slicepool_allocator,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = slicepool_allocator::get(allocator).and_then(|it| Ok(it.check_margins()?));
        finish_with(outcome, 0, failure)
    }
}

/// sizeof(slicepool_statistics) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_statistics() -> u32 {
    size_of::<slicepool_statistics>() as u32
}

/// sizeof(slicepool_range) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_range() -> u32 {
    size_of::<slicepool_range>() as u32
}
