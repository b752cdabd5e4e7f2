//! Frees that wait for the device.

use crate::abi::{Refusal, invalid};
use crate::allocator::slicepool_allocator;
use crate::device::slicepool_point;
use crate::result::{finish, finish_with, slicepool_failure, slicepool_result, split};
use crate::slice::handle;
use core::mem::offset_of;
use core::slice;
use slicepool_core::{Point, SliceId};

// The caller's points are read where they lie.
const _: () = assert!(size_of::<slicepool_point>() == size_of::<Point>());
const _: () = assert!(offset_of!(slicepool_point, timeline) == offset_of!(Point, timeline));
const _: () = assert!(offset_of!(slicepool_point, value) == offset_of!(Point, value));

/// The caller's points.
///
/// # Safety
/// `points` points to `count` structs, which nobody changes meanwhile.
#[inline(never)]
unsafe fn read_points<'a>(points: *const slicepool_point, count: u32) -> Result<&'a [Point], Refusal> {
    if count == 0 {
        return Ok(&[]);
    }
    if points.is_null() {
        return Err(invalid(c"points", 0));
    }
    // SAFETY: passed on from the caller.
    let given = unsafe { slice::from_raw_parts(points, count as usize) };
    // Core says how many are too many, and need not be told of all of them.
    match given.iter().take(MAX_POINTS).find(|point| point.reserved != 0) {
        Some(point) => Err(invalid(c"reserved", u64::from(point.reserved))),
        // SAFETY: the structs have the same fields in the same places.
        None => Ok(unsafe { slice::from_raw_parts(points.cast(), count as usize) }),
    }
}

/// The most points a slice can wait for.
const MAX_POINTS: usize = 64;

/// Takes a slice back that the device still uses. Its memory is free once all points have been passed, as
/// slicepool_collect() says. Until then the slice is pending: its handle is stale, its memory serves nothing and its
/// page stays. If all have been passed already, or there are none, this is slicepool_free().
///
/// Of several points on one timeline the one with the largest value counts. Values that fall on a timeline are safe:
/// the slice is released with those that were freed before it, which is late, but never early.
///
/// @param id           of a live slice; 0 is ignored
/// @param points       `point_count` points, in any order
/// @param point_count  at most 64
/// @param failure      may be NULL
/// @return as slicepool_free(); SLICEPOOL_ERROR_INVALID_ARGUMENT; SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY and
///         SLICEPOOL_ERROR_TOO_MANY_SLICES only for the first point ever on a timeline, and for slices that wait for
///         several, which need 32 bytes a point. The slice is live then
///
/// Threads: any. Cost: constant per point.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_free_after(
    allocator: *mut slicepool_allocator,
    id: u64,
    points: *const slicepool_point,
    point_count: u32,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let points = read_points(points, point_count)?;
            if id != 0 {
                inner.free_after(handle(id)?, points)?;
            }
            Ok(())
        })();
        finish_with(outcome, 0, failure)
    }
}

/// Takes slices back that all wait for the same points: all of them, or none if one handle is refused. Another free of
/// one of them is refused as stale while this call runs, even if it is refused in the end.
///
/// @param ids          `count` handles; zeros are ignored; a handle that occurs twice is stale
/// @param points       as for slicepool_free_after()
/// @param point_count  as for slicepool_free_after()
/// @param failure      may be NULL; `index` tells which handle was refused
/// @return as slicepool_free_after()
///
/// Threads: any; others see the slices go one by one. Cost: that of the single calls, with fewer locks taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_free_after_many(
    allocator: *mut slicepool_allocator,
    ids: *const u64,
    count: u32,
    points: *const slicepool_point,
    point_count: u32,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let mut index = 0;
        let outcome = (|| {
            let inner = slicepool_allocator::get(allocator)?;
            let points = read_points(points, point_count)?;
            if count != 0 && ids.is_null() {
                return Err(invalid(c"ids", 0));
            }
            let freed = inner.free_after_each(count, &|i| SliceId::from_raw(ids.add(i as usize).read()), points);
            let (outcome, refused) = split(freed);
            index = refused;
            outcome
        })();
        finish_with(outcome, index, failure)
    }
}

/// Says that the device has completed everything up to a value on a timeline: what waited for that is free now, unless
/// it waits for other timelines too. The allocator remembers the value, which does not fall.
///
/// @param completed  UINT64_MAX: nothing will ever be waited for on this timeline, since its device is lost
/// @param failure    may be NULL
/// @return SLICEPOOL_ERROR_DEVICE_FAILED or SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, as the device says, if it did not
///         overwrite a slice with SLICEPOOL_REQUEST_SCRUB, which stays pending and is tried again next time;
///         SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY if the value cannot be remembered where nothing has ever waited on this
///         timeline. Whatever is due has been released all the same
///
/// Threads: any. Cost: constant for each slice that is released, at most 64 of them per lock hold; a look at every
/// pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_collect(
    allocator: *mut slicepool_allocator,
    timeline: u32,
    completed: u64,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = slicepool_allocator::get(allocator).and_then(|it| Ok(it.collect(timeline, completed)?));
        finish_with(outcome, 0, failure)
    }
}

/// Forgets a timeline that will not be used again, so that its number can stand for another, which begins at 0.
///
/// A callback `completed` that is running meanwhile is not heard: its answer would be that of the old timeline.
///
/// @return SLICEPOOL_ERROR_BUSY while a slice waits for it; nothing has changed then
///
/// Threads: any. Cost: a look at every pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_timeline_forget(
    allocator: *mut slicepool_allocator,
    timeline: u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe { slicepool_allocator::get(allocator).and_then(|it| Ok(it.timeline_forget(timeline)?)) })
}
