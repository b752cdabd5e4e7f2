//! The slicer alone, for any space of indices.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::host::{self, slicepool_host};
use crate::result::{SLICEPOOL_ERROR_BUSY, SLICEPOOL_OK, finish, finish_with, slicepool_failure, slicepool_result};
use crate::slice::handle;
use crate::statistics::SLICEPOOL_WALK_CONTINUE;
use core::ffi::c_void;
use slicepool_core::{HostMemory, SliceId, Space, SpaceOptions, SpacePiece, SpaceSlice};

/// How a space is made.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_space_config {
    /// sizeof(slicepool_space_config), set by the caller.
    pub struct_size: u32,
    /// 0: there are no flags yet.
    pub flags: u32,
    /// Units of the space: bytes, descriptors, texels. What is above a multiple of the granule is not used.
    pub size: u64,
    /// The smallest piece that is cut, a power of two of at most 2^32; 0: 1. A space has at most 2^32 - 1 granules.
    pub granule: u64,
    /// Host memory; its lock is not used. NULL: the C library's memory.
    pub host: *const slicepool_host,
    /// Where the details of a failed creation go; may be NULL.
    pub failure: *mut slicepool_failure,
}

/// A piece of a space.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_space_slice {
    /// sizeof(slicepool_space_slice), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// What frees the slice. 0 for the free pieces that slicepool_space_walk() shows.
    pub id: u64,
    /// First unit.
    pub offset: u64,
    /// Units: those asked for, rounded up to the granule.
    pub size: u64,
}

/// Figures of a space, in units.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_space_statistics {
    /// sizeof(slicepool_space_statistics), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Usable units: the size rounded down to the granule.
    pub size: u64,
    /// Asked for by live slices.
    pub in_use: u64,
    /// Added to that by rounding to the granule.
    pub padding: u64,
    /// In free pieces.
    pub free: u64,
    /// The most in_use has been.
    pub in_use_peak: u64,
    /// A free piece of at least this size exists; slicepool_space_largest_free() is exact.
    pub largest_free_bound: u64,
    /// Bytes of host memory held.
    pub metadata_bytes: u64,
    /// Live slices.
    pub slices: u32,
    /// Free pieces.
    pub free_ranges: u32,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers and pointers.
unsafe impl Struct for slicepool_space_config {
    const NAME: &'static core::ffi::CStr = c"config";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_space_slice {
    const NAME: &'static core::ffi::CStr = c"slice";
    const MIN_SIZE: u32 = 16;
}
// SAFETY: as above.
unsafe impl Struct for slicepool_space_statistics {
    const NAME: &'static core::ffi::CStr = c"statistics";
}

/// Is shown one piece of a space; answers SLICEPOOL_WALK_CONTINUE or SLICEPOOL_WALK_STOP. May call back into the
/// space, where destroying it answers SLICEPOOL_ERROR_BUSY. Must not throw, longjmp or unwind.
pub type slicepool_space_walk_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, piece: *const slicepool_space_slice) -> i32>;

/// Cuts a space of indices into slices. No device, no lock: one thread at a time.
pub struct slicepool_space {
    inner: Space,
    memory: HostMemory,
    /// Walks that are going on.
    walks: u32,
}

impl slicepool_space {
    /// # Safety
    /// `space` is NULL or points to a live space that no other thread uses.
    unsafe fn get<'a>(space: *mut Self) -> Result<&'a mut Self, Refusal> {
        // SAFETY: passed on from the caller.
        unsafe { space.as_mut() }.ok_or_else(|| invalid(c"space", 0))
    }
}

impl From<&SpaceSlice> for slicepool_space_slice {
    fn from(slice: &SpaceSlice) -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            reserved: 0,
            id: slice.id.to_raw(),
            offset: slice.offset,
            size: slice.size,
        }
    }
}

impl From<&SpacePiece> for slicepool_space_slice {
    fn from(piece: &SpacePiece) -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            reserved: 0,
            id: piece.id.map_or(0, SliceId::to_raw),
            offset: piece.offset,
            size: piece.size,
        }
    }
}

/// Creates a space with nothing in it.
///
/// @param config  copied
/// @param space   set on success; to be destroyed by the caller
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT (less than a granule, more than 2^32 - 1 granules, a granule that is no
///         power of two), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_VERSION_MISMATCH
///
/// Threads: any. Cost: three host allocations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_space_create(
    config: *const slicepool_space_config,
    space: *mut *mut slicepool_space,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let config = match abi::read(config) {
            Ok(config) => config,
            Err(refusal) => return finish(Err(refusal)),
        };
        let outcome = (|| {
            let space = abi::out(space, c"space")?;
            if config.flags != 0 {
                return Err(invalid(c"flags", u64::from(config.flags)));
            }
            let memory = host::read(config.host)?.memory;
            let granule = if config.granule == 0 { 1 } else { config.granule };
            let options = SpaceOptions::new(config.size).with_granule(granule).with_memory(memory);
            let inner = Space::try_new(options)?;
            let object = slicepool_space { inner, memory, walks: 0 };
            space.write(host::place(memory, object).map_err(|(_, refusal)| refusal)?.as_ptr());
            Ok(())
        })();
        finish_with(outcome, 0, config.failure)
    }
}

/// Frees a space, whatever is in it. NULL is an error.
///
/// @return SLICEPOOL_ERROR_BUSY from within one of its walk callbacks
///
/// Threads: exclusive. Cost: a few host deallocations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_space_destroy(space: *mut slicepool_space) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let (memory, walks) = match slicepool_space::get(space) {
            Ok(space) => (space.memory, space.walks),
            Err(refusal) => return finish(Err(refusal)),
        };
        if walks != 0 {
            return SLICEPOOL_ERROR_BUSY;
        }
        drop(host::take(memory, space));
        SLICEPOOL_OK
    }
}

/// Takes `size` units at a multiple of `alignment`.
///
/// @param alignment  a power of two; 0: the granule
/// @param slice      filled in on success; its struct_size must be set
/// @param failure    may be NULL
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_TOO_LARGE, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED if no
///         free piece holds it, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_TOO_MANY_SLICES
///
/// Threads: one at a time. Cost: constant; before a refusal, a look at every free piece that could hold it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_space_allocate(
    space: *mut slicepool_space,
    size: u64,
    alignment: u64,
    slice: *mut slicepool_space_slice,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| {
            let space = slicepool_space::get(space)?;
            let out_size = abi::struct_size(slice)?;
            let placed = space.inner.allocate(size, if alignment == 0 { 1 } else { alignment })?;
            abi::write(slice, out_size, &slicepool_space_slice::from(&placed));
            Ok(())
        })();
        if outcome.is_ok() { SLICEPOOL_OK } else { finish_with(outcome, 0, failure) }
    }
}

/// Takes a slice back.
///
/// @param id  of a live slice; 0 is ignored
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE; nothing changes then
///
/// Threads: one at a time. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_space_free(space: *mut slicepool_space, id: u64) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    let outcome = match (unsafe { slicepool_space::get(space) }, SliceId::from_raw(id)) {
        (Ok(space), Some(id)) => space.inner.free(id).map_err(Refusal::from),
        (Ok(_), None) => Ok(()),
        (Err(refusal), _) => Err(refusal),
    };
    finish(outcome)
}

/// The slice of a handle, as it was handed out or last resized.
///
/// @param slice  filled in on success; its struct_size must be set
/// @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (id 0)
///
/// Threads: one at a time. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_space_slice_get(
    space: *mut slicepool_space,
    id: u64,
    slice: *mut slicepool_space_slice,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let space = slicepool_space::get(space)?;
            let out_size = abi::struct_size(slice)?;
            let found = space.inner.get(handle(id)?)?;
            abi::write(slice, out_size, &slicepool_space_slice::from(&found));
            Ok(())
        })()
    })
}

/// Gives a slice another size where it lies.
///
/// @param slice    filled in on success with the slice as it is then; its struct_size must be set
/// @param failure  may be NULL; `limit` tells how large the slice could be where it lies
/// @return SLICEPOOL_ERROR_NO_ROOM if what follows it is in use; otherwise as slicepool_space_slice_get() and
///         slicepool_space_allocate(); the slice is unchanged then
///
/// Threads: one at a time. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_space_try_resize(
    space: *mut slicepool_space,
    id: u64,
    size: u64,
    slice: *mut slicepool_space_slice,
    failure: *mut slicepool_failure,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe {
        let outcome = (|| {
            let space = slicepool_space::get(space)?;
            let out_size = abi::struct_size(slice)?;
            let resized = space.inner.try_resize(handle(id)?, size)?;
            abi::write(slice, out_size, &slicepool_space_slice::from(&resized));
            Ok(())
        })();
        finish_with(outcome, 0, failure)
    }
}

/// Makes the space larger at its end. What is there stays as it is.
///
/// @param additional  units, a multiple of the granule
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT (also above 2^32 - 1 granules), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY
///
/// Threads: one at a time. Cost: constant, or a copy of the table of size classes if that grows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_space_grow(space: *mut slicepool_space, additional: u64) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe { slicepool_space::get(space) }.and_then(|space| Ok(space.inner.grow(additional)?)))
}

/// Frees everything at once. Every handle is stale from now on.
///
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: one at a time. Cost: in proportion to the slots used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_space_clear(space: *mut slicepool_space) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe { slicepool_space::get(space) }.map(|space| space.inner.clear()))
}

/// The largest free piece, exactly.
///
/// @param largest_free  set to its units, 0 if nothing is free
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: one at a time. Cost: a walk through one size class.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_space_largest_free(
    space: *mut slicepool_space,
    largest_free: *mut u64,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let space = slicepool_space::get(space)?;
            abi::out(largest_free, c"largest_free")?.write(space.inner.largest_free());
            Ok(())
        })()
    })
}

/// Figures of a space.
///
/// @param statistics  filled in; its struct_size must be set
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: one at a time. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_space_statistics_get(
    space: *mut slicepool_space,
    statistics: *mut slicepool_space_statistics,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    finish(unsafe {
        (|| {
            let space = slicepool_space::get(space)?;
            let size = abi::struct_size(statistics)?;
            let found = space.inner.statistics();
            let filled = slicepool_space_statistics {
                struct_size: size,
                reserved: 0,
                size: found.size,
                in_use: found.in_use,
                padding: found.padding,
                free: found.free,
                in_use_peak: found.in_use_peak,
                largest_free_bound: found.largest_free_bound,
                metadata_bytes: found.metadata,
                slices: found.slices,
                free_ranges: found.free_ranges,
            };
            abi::write(statistics, size, &filled);
            Ok(())
        })()
    })
}

/// Shows every slice and every free piece, in no particular order.
///
/// What changes during the walk may be shown or not; everything else is shown exactly once.
///
/// @param visit      called for each piece
/// @param user_data  its first argument
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT
///
/// Threads: one at a time. Cost: in proportion to the slots used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_space_walk(
    space: *mut slicepool_space,
    visit: slicepool_space_walk_fn,
    user_data: *mut c_void,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands. No reference to the space exists while `visit` runs.
    finish(unsafe {
        (|| {
            slicepool_space::get(space)?.walks += 1;
            let outcome = visit.ok_or_else(|| invalid(c"visit", 0)).map(|visit| {
                let mut cursor = 0;
                while let Some(piece) = (*space).inner.next_piece(&mut cursor) {
                    let piece = slicepool_space_slice::from(&piece);
                    if visit(user_data, &raw const piece) != SLICEPOOL_WALK_CONTINUE {
                        break;
                    }
                }
            });
            (*space).walks -= 1;
            outcome
        })()
    })
}

/// sizeof(slicepool_space_config) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_space_config() -> u32 {
    size_of::<slicepool_space_config>() as u32
}

/// sizeof(slicepool_space_slice) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_space_slice() -> u32 {
    size_of::<slicepool_space_slice>() as u32
}

/// sizeof(slicepool_space_statistics) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_space_statistics() -> u32 {
    size_of::<slicepool_space_statistics>() as u32
}
