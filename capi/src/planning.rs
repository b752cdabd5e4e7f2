//! Dry runs: measuring what a program needs, and making that its pools.

use crate::abi::{self, Refusal};
use crate::allocator::{slicepool_allocator, validate};
use crate::pool::{List, slicepool_pool_options, write_pools};
use crate::result::{finish, finish_with, slicepool_failure, slicepool_result};
use crate::slice::{handle, slicepool_slice};
use slicepool_core::{Error, PoolSource, PoolType};

/// Gets the memory of a slice of a dry run from the device, and the whole of its page with it. Of a slice that has its
/// memory, as it is in every other allocator, this is slicepool_slice_get().
///
/// Of threads that resolve one page at the same time one gets its memory, the others give theirs back. The memory is as
/// the device gives it, also for requests with SLICEPOOL_REQUEST_ZERO.
///
/// @param slice    filled in on success with the slice as it is then; its struct_size must be set
/// @param failure  may be NULL
/// @return SLICEPOOL_ERROR_MAPPING_FAILED if the device has no memory for the page, even after pages that hold nothing
///         were given back; SLICEPOOL_ERROR_BUDGET_EXCEEDED; SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED;
///         SLICEPOOL_ERROR_DEVICE_FAILED; SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY; SLICEPOOL_ERROR_STALE_HANDLE, also if the
///         slice is freed meanwhile; SLICEPOOL_ERROR_FOREIGN_HANDLE; SLICEPOOL_ERROR_INVALID_ARGUMENT;
///         SLICEPOOL_ERROR_BUSY while the allocator is being destroyed. Nothing has changed then
///
/// Threads: any. Cost: one device call for each page; otherwise constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_resolve(
    allocator: *mut slicepool_allocator,
    id: u64,
    slice: *mut slicepool_slice,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let size = abi::struct_size(slice)?;
            let resolved = inner.resolve(handle(id)?)?;
            abi::write(slice, size, &slicepool_slice::with_user_data(inner, &resolved));
            Ok(())
        })();
        finish_with(outcome, 0, failure)
    }
}

/// The pools of an allocator as its peaks have shown that they have to be: each pool of sliced pages with a cap of what
/// it held at most; of one page if it held nothing. One thread that makes the same calls again finds that everything
/// fits, if nothing was refused before. Other pools have no cap.
///
/// @param pools     `capacity` structs, of which the first has its struct_size set; written only if the whole list
///                  fits; may be NULL if capacity is 0
/// @param count     set to the number of pools: if it is above capacity, nothing was written
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: any. Cost: constant per pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_plan(
    allocator: *mut slicepool_allocator,
    pools: *mut slicepool_pool_options,
    capacity: u32,
    count: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let plan = |pool| {
                let gone = Error::InvalidArgument { field: c"pool", value: u64::from(pool) };
                let mut plan = inner.pool_report(pool as usize).ok_or(gone)?.plan();
                if let PoolType::SlicedPages { page_size, max_pool_size: cap @ Some(0), .. } = &mut plan.pool_type {
                    // 0 would mean that there is no cap.
                    *cap = Some(*page_size);
                }
                Ok(plan)
            };
            write_pools(inner.pool_count() as u32, &plan, pools, capacity, count)
        })()
    })
}

/// Puts other pools in place of those an allocator has, whose pages go back to the device. Figures and peaks begin
/// anew; persistent slices stay, and so do the limits. All older handles of the pools are foreign from then on.
///
/// @param pools       as in slicepool_allocator_config
/// @param pool_count  at least 1, at most 256
/// @param failure     may be NULL; for POOLS_IN_USE its in_use has the bytes of the slices
/// @return SLICEPOOL_ERROR_POOLS_IN_USE while the pools hold slices that are live or pending, slices of no bytes among
///         them; SLICEPOOL_ERROR_BUSY while a callback of this allocator is running, so from within one;
///         SLICEPOOL_ERROR_INVALID_ARGUMENT; SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY; SLICEPOOL_ERROR_DEVICE_FAILED if the
///         device refuses to take a page back. The pools stay as they are then, but for pages that held nothing; those
///         of slicepool_prefill() if min_pages cannot be had: the new pools are in place then, with the pages they got
///
/// Threads: exclusive. Cost: one device call a page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_install_pools(
    allocator: *mut slicepool_allocator,
    pools: *const slicepool_pool_options,
    pool_count: u32,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| {
            let prepared = {
                let inner = slicepool_allocator::get(allocator)?;
                let list = List::read(pools, pool_count)?;
                let source = PoolSource { count: list.count, pool: &|i| list.pool_again(i) };
                if (*allocator).validates {
                    validate(&|index| inner.memory_type(index), source.count, source.pool)?;
                }
                inner.prepare_pools_of(source)?
            };
            // No callback runs in this, and nobody else uses the allocator.
            (*allocator).inner.replace_pools(prepared)?;
            // Callbacks again, which may use the allocator: so it is shared again.
            slicepool_allocator::get(allocator)?.prefill_all()?;
            Ok::<(), Refusal>(())
        })();
        finish_with(outcome, 0, failure)
    }
}
