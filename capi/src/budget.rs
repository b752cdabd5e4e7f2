//! Limits that several allocators share.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::host::{self, slicepool_host};
use crate::result::{finish, finish_with, slicepool_failure, slicepool_result};
use core::mem::ManuallyDrop;
use slicepool_core::Budget;

/// A budget's limits. All zero but `struct_size` is a good start.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_budget_config {
    /// sizeof(slicepool_budget_config), set by the caller.
    pub struct_size: u32,
    /// Pages that may be held; 0: any number.
    pub max_pages: u32,
    /// Bytes that may be held; 0: any number.
    pub max_bytes: u64,
    /// Where the budget lives and how threads are kept apart; NULL: the C library's memory, and a spin lock that
    /// yields.
    pub host: *const slicepool_host,
    /// Where the details of a failed creation go; may be NULL.
    pub failure: *mut slicepool_failure,
}

/// What of a budget is used, at one instant.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_budget_statistics {
    /// sizeof(slicepool_budget_statistics), set by the caller.
    pub struct_size: u32,
    /// Reservations that were refused although the limits allow for them, and limits that were set below what is held.
    /// Wraps.
    pub pressure: u32,
    /// Bytes that may be held; UINT64_MAX: any number.
    pub max_bytes: u64,
    /// Bytes that are held, or just being taken.
    pub bytes: u64,
    /// The most `bytes` has been.
    pub bytes_peak: u64,
    /// Pages that may be held; UINT32_MAX: any number.
    pub max_pages: u32,
    /// Pages that are held, or just being taken.
    pub pages: u32,
    /// The most `pages` has been.
    pub pages_peak: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_budget_config {
    const NAME: &'static core::ffi::CStr = c"config";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_budget_statistics {
    const NAME: &'static core::ffi::CStr = c"statistics";
}

/// Limits on bytes and pages that several allocators share: one per stream over one device, one per memory type of a
/// heap.
///
/// Every page counts from before the device is asked for it until the device has taken it back, those it refuses to
/// take included. A reservation that is refused although the limits allow for it raises the budget's pressure: each
/// allocator that shares it gives pages that hold nothing back when it allocates, frees or collects the next time,
/// until what was refused would fit. An allocator that has gone leaves nothing reserved, even if its device kept a
/// page.
///
/// Counts its owners: the caller of slicepool_budget_create() is one, and so is each allocator.
pub struct slicepool_budget {
    _private: [u8; 0],
}

/// The budget behind a pointer, which stays an owner.
///
/// # Safety
/// `budget` is NULL or points to a budget that has an owner.
pub(crate) unsafe fn get(budget: *const slicepool_budget) -> Result<ManuallyDrop<Budget>, Refusal> {
    if budget.is_null() {
        return Err(invalid(c"budget", 0));
    }
    // SAFETY: passed on from the caller; it is not dropped.
    Ok(ManuallyDrop::new(unsafe { Budget::from_raw(budget.cast_mut().cast()) }))
}

/// A limit of this header as core's.
pub(crate) fn limit<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

/// Creates a budget.
///
/// @param config  copied; NULL: a budget without limits, which counts
/// @param budget  set on success; to be released by the caller
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_VERSION_MISMATCH
///
/// Threads: any. Cost: one host allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_budget_create(
    config: *const slicepool_budget_config,
    budget: *mut *mut slicepool_budget,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let config = match abi::read_or_default(config) {
            Ok(config) => config,
            Err(refusal) => return finish(Err(refusal)),
        };
        let outcome = (|| {
            let out = abi::out(budget, c"budget")?;
            let host = host::read(config.host)?;
            let made = Budget::try_new(host.memory, host.lock, limit(config.max_bytes), limit(config.max_pages))?;
            out.write(made.into_raw().cast());
            Ok(())
        })();
        finish_with(outcome, 0, config.failure)
    }
}

/// Makes one owner more, who has to release it too.
///
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_budget_retain(budget: *mut slicepool_budget) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe { get(budget) }.map(|budget| core::mem::forget(Budget::clone(&budget))))
}

/// Makes one owner less. With the last, which may be an allocator, the budget goes.
///
/// @param budget  not used by this owner any more; NULL is ignored
/// @return SLICEPOOL_OK
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_budget_release(budget: *mut slicepool_budget) -> slicepool_result {
    if !budget.is_null() {
        // SAFETY: the caller passes what the header demands.
        drop(unsafe { Budget::from_raw(budget.cast()) });
    }
    finish(Ok(()))
}

/// Changes the limits. Pages that are held above them stay; none are taken until enough have gone, and pages that hold
/// nothing go as if a reservation had been refused.
///
/// @param max_bytes  0: any number
/// @param max_pages  0: any number
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_budget_limits_set(
    budget: *mut slicepool_budget,
    max_bytes: u64,
    max_pages: u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe { get(budget) }.map(|budget| budget.set_limits(limit(max_bytes), limit(max_pages))))
}

/// What of a budget is used.
///
/// @param statistics  filled in; its struct_size must be set
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_budget_statistics_get(
    budget: *mut slicepool_budget,
    statistics: *mut slicepool_budget_statistics,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let budget = get(budget)?;
            let size = abi::struct_size(statistics)?;
            let used = budget.statistics();
            let filled = slicepool_budget_statistics {
                struct_size: size,
                pressure: used.pressure,
                max_bytes: used.max_bytes,
                bytes: used.bytes,
                bytes_peak: used.bytes_peak,
                max_pages: used.max_pages,
                pages: used.pages,
                pages_peak: used.pages_peak,
                reserved: 0,
            };
            abi::write(statistics, size, &filled);
            Ok(())
        })()
    })
}

/// sizeof(slicepool_budget_config) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_budget_config() -> u32 {
    size_of::<slicepool_budget_config>() as u32
}

/// sizeof(slicepool_budget_statistics) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_budget_statistics() -> u32 {
    size_of::<slicepool_budget_statistics>() as u32
}
