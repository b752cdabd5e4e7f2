//! Pools: what they are like, and lists of them made from what is known about a device.

use crate::abi::{self, Refusal, Struct, invalid};
use crate::parts::{COMPLETE, check_parts};
use crate::result::{finish, slicepool_result};
use slicepool_core::layout::{self, PoolList, Properties};
use slicepool_core::{Error, NearPage, PageGrowth, PoolKinds, PoolOptions, PoolType};

/// Every slice has a page of its own, of about its size, which near sizes share one after the other.
pub const SLICEPOOL_POOL_EXCLUSIVE_PAGES: u32 = 1;
/// Every slice has a page of its own, of exactly its size rounded up to the granule, which serves that size only.
pub const SLICEPOOL_POOL_DIRECT: u32 = 2;
/// Slices are cut from larger pages.
pub const SLICEPOOL_POOL_SLICED_PAGES: u32 = 3;

/// Requests above `max_slice_size` that fill more than four fifths of a page: taken if the pool has no cap.
pub const SLICEPOOL_NEAR_PAGE_WHEN_UNCAPPED: u32 = 0;
/// Such requests are always taken.
pub const SLICEPOOL_NEAR_PAGE_ALWAYS: u32 = 1;
/// Such requests are never taken.
pub const SLICEPOOL_NEAR_PAGE_NEVER: u32 = 2;

/// The next page has an eighth of what the pool holds up to 16 times page_size, and a sixty-fourth beyond; at least
/// page_size and at most max_page_size. Of that it has as much as whole slices of the request's size fill, in steps of
/// a sixteenth of page_size. A request of 4 times page_size, or larger than such a page, gets a page for itself. Before
/// a page is taken, as many bytes go back in pages that hold nothing, if there are any: those idle the longest first.
/// They are gone even if the device then gives no page.
pub const SLICEPOOL_PAGE_GROWTH_SHARE: u32 = 0;
/// The next page has twice page_size for every page that the pools with this rule hold of the memory type, up to seven
/// times and to max_page_size. If that is too small for the request, the first such size that is not. Pages that hold
/// nothing stay until they are too old.
pub const SLICEPOOL_PAGE_GROWTH_DOUBLING: u32 = 1;

/// Linear and optimal resources; the granule is at least the memory type's granularity.
pub const SLICEPOOL_KINDS_BOTH: u32 = 0;
/// Linear resources: requests without SLICEPOOL_REQUEST_OPTIMAL.
pub const SLICEPOOL_KINDS_LINEAR: u32 = 1;
/// Optimal resources: requests with SLICEPOOL_REQUEST_OPTIMAL.
pub const SLICEPOOL_KINDS_OPTIMAL: u32 = 2;

/// A pool of an allocator. Sizes are bytes. Fields of other kinds than the pool's own are 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_pool_options {
    /// sizeof(slicepool_pool_options), set by the caller.
    pub struct_size: u32,
    /// A SLICEPOOL_POOL_ kind. Required.
    pub kind: u32,
    /// Sliced pages: size of every page, or with max_page_size of the first, rounded up to the granule. Required. Above
    /// max_page of the config it is refused.
    pub page_size: u64,
    /// Sliced pages: the largest slice the pool takes; 0: as large as a page can be.
    pub max_slice_size: u64,
    /// Sliced pages: cap on all pages together: as many whole pages as it can pay for; 0: none. If it cannot pay for
    /// one page, pages are as small as it is, and if not even for a granule, the pool serves nothing. Of pages that
    /// grow the last one before the cap has what is left. The cap belongs to this pool of this allocator: with an
    /// allocator per stream there is one per stream.
    pub max_pool_size: u64,
    /// Sliced pages: 0: all pages are equal. Otherwise they grow up to this, as page_growth says.
    pub max_page_size: u64,
    /// Exclusive pages: the largest request the pool takes. A pool with 0 takes requests of size 0, and nothing else.
    ///
    /// A page has the request's size, rounded up by at most an eighth. One that is free serves again: the smallest that
    /// fits, but none of more than twice the request as long as the device gives another.
    pub max_alloc_size: u64,
    /// Direct: when no free page has the size, free pages go back, lowest index first, until this many bytes hold the
    /// new page too, or none is free; 0: no such watermark.
    pub reclaim_at: u64,
    /// Every offset and size is a multiple of this power of two, at most 2^32; 0: 256. A page has at most 2^32 - 1.
    pub granule: u64,
    /// Pages that hold nothing go back after about this many allocations of the allocator; 0: never by themselves.
    ///
    /// A page has a count of staleness, which begins at 4. Using the page again after it held nothing takes 1 off.
    /// Every dealloc_period / 5 allocations add 1 to each page that holds nothing; at 5 it goes, at most four in one
    /// call. So a page that was never used again goes at the first check, one that was used again and again after a
    /// whole period. Periods below 10 mean a check with every allocation.
    pub dealloc_period: u64,
    /// Bytes that the pool keeps whatever their age. Ageing alone heeds this. The page that is due first decides: if it
    /// is too large to go, younger ones stay too.
    pub keep_bytes: u64,
    /// Sliced pages: a SLICEPOOL_NEAR_PAGE_ rule.
    pub near_page: u32,
    /// Sliced pages with max_page_size: a SLICEPOOL_PAGE_GROWTH_ rule.
    pub page_growth: u32,
    /// Position of the memory type that the pages are taken from.
    pub memory_type: u32,
    /// Sliced pages: which resources are taken, SLICEPOOL_KINDS_.
    pub kinds: u32,
    /// Sliced pages: how many are taken when the allocator is made, or the pool installed. Like others, they go back
    /// when they are too old; keep_bytes keeps them.
    pub min_pages: u32,
    /// 0.
    pub reserved: u32,
}

/// What a list of pools depends on. All zero but `struct_size` is a good start.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slicepool_layout_properties {
    /// sizeof(slicepool_layout_properties), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Bytes of the largest page the device gives out; 0: no limit.
    pub max_page: u64,
    /// What slices are aligned to, a power of two: the granule of the pools; 0: 256.
    pub alignment: u64,
    /// Bytes of the heap that the pages come from; 0: not known.
    pub heap_size: u64,
}

// SAFETY: repr(C), no padding on any target (checked by the layout tests), plain numbers.
unsafe impl Struct for slicepool_pool_options {
    const NAME: &'static core::ffi::CStr = c"pools";
}
// SAFETY: as above.
unsafe impl Struct for slicepool_layout_properties {
    const NAME: &'static core::ffi::CStr = c"properties";
}

impl slicepool_pool_options {
    /// The options as core's.
    #[cold]
    fn to_core(self) -> Result<PoolOptions, Refusal> {
        let some = |value: u64| (value != 0).then_some(value);
        if !COMPLETE {
            return self.to_core_plainly();
        }
        self.refuse_foreign_fields()?;
        let mut pool = match self.kind {
            SLICEPOOL_POOL_EXCLUSIVE_PAGES => PoolOptions::exclusive_pages(self.max_alloc_size),
            SLICEPOOL_POOL_DIRECT => PoolOptions::direct(some(self.reclaim_at)),
            _ => self.sliced_pages(),
        };
        pool.max_page_size = some(self.max_page_size);
        pool.near_page = match self.near_page {
            SLICEPOOL_NEAR_PAGE_WHEN_UNCAPPED => NearPage::WhenUncapped,
            SLICEPOOL_NEAR_PAGE_ALWAYS => NearPage::Always,
            SLICEPOOL_NEAR_PAGE_NEVER => NearPage::Never,
            unknown => return Err(invalid(c"near_page", u64::from(unknown))),
        };
        pool.page_growth = match self.page_growth {
            SLICEPOOL_PAGE_GROWTH_SHARE => PageGrowth::Share,
            SLICEPOOL_PAGE_GROWTH_DOUBLING => PageGrowth::Doubling,
            unknown => return Err(invalid(c"page_growth", u64::from(unknown))),
        };
        pool.kinds = match self.kinds {
            SLICEPOOL_KINDS_BOTH => PoolKinds::Both,
            SLICEPOOL_KINDS_LINEAR => PoolKinds::Linear,
            SLICEPOOL_KINDS_OPTIMAL => PoolKinds::Optimal,
            unknown => return Err(invalid(c"kinds", u64::from(unknown))),
        };
        pool.memory_type = self.memory_type;
        pool.min_pages = self.min_pages;
        pool.granule = some(self.granule).unwrap_or(PoolOptions::DEFAULT_GRANULE);
        pool.dealloc_period = some(self.dealloc_period);
        pool.keep_bytes = self.keep_bytes;
        Ok(pool)
    }

    /// Sliced pages of these sizes.
    fn sliced_pages(&self) -> PoolOptions {
        let some = |value: u64| (value != 0).then_some(value);
        let granule = some(self.granule).unwrap_or(PoolOptions::DEFAULT_GRANULE);
        // As core rounds it, which refuses a granule that is no power of two.
        let page_size = self.page_size.checked_add(granule - 1).map_or(self.page_size, |most| most & !(granule - 1));
        let largest = if self.max_page_size == 0 { page_size } else { u64::MAX };
        let max_slice_size = some(self.max_slice_size).unwrap_or(largest);
        PoolOptions::sliced_pages(self.page_size, max_slice_size, some(self.max_pool_size)).with_granule(granule)
    }

    /// The options as core's, of pools that need no complete allocator.
    fn to_core_plainly(self) -> Result<PoolOptions, Refusal> {
        if self.reserved != 0 {
            return Err(invalid(c"reserved", u64::from(self.reserved)));
        }
        let rules = (self.near_page & !SLICEPOOL_NEAR_PAGE_NEVER)
            | self.page_growth
            | self.kinds
            | self.min_pages
            | self.memory_type;
        let sizes = self.max_alloc_size | self.reclaim_at | self.max_page_size | self.dealloc_period | self.keep_bytes;
        let unusual = rules != 0 || sizes != 0;
        check_parts(self.kind != SLICEPOOL_POOL_SLICED_PAGES, c"kind")?;
        check_parts(unusual, c"pools")?;
        Ok(self.sliced_pages())
    }

    /// Refuses a kind that does not exist, and fields that mean something for another kind only.
    fn refuse_foreign_fields(&self) -> Result<(), Refusal> {
        let sliced = [
            (c"page_size", self.page_size),
            (c"max_slice_size", self.max_slice_size),
            (c"max_pool_size", self.max_pool_size),
            (c"max_page_size", self.max_page_size),
            (c"near_page", u64::from(self.near_page)),
            (c"page_growth", u64::from(self.page_growth)),
            (c"kinds", u64::from(self.kinds)),
            (c"min_pages", u64::from(self.min_pages)),
        ];
        let exclusive = [(c"max_alloc_size", self.max_alloc_size)];
        let direct = [(c"reclaim_at", self.reclaim_at)];
        let none: &[(&'static core::ffi::CStr, u64)] = &[];
        let foreign = match self.kind {
            SLICEPOOL_POOL_EXCLUSIVE_PAGES => [&sliced[..], none, &direct],
            SLICEPOOL_POOL_DIRECT => [&sliced[..], &exclusive, none],
            SLICEPOOL_POOL_SLICED_PAGES => [none, &exclusive, &direct],
            unknown => return Err(invalid(c"kind", u64::from(unknown))),
        };
        for &(field, value) in foreign.into_iter().flatten().chain([&(c"reserved", u64::from(self.reserved))]) {
            if value != 0 {
                return Err(invalid(field, value));
            }
        }
        Ok(())
    }
}

impl From<&PoolOptions> for slicepool_pool_options {
    fn from(pool: &PoolOptions) -> Self {
        let mut options: Self = abi::zeroed();
        options.struct_size = size_of::<Self>() as u32;
        match pool.pool_type {
            PoolType::ExclusivePages { max_alloc_size } => {
                options.kind = SLICEPOOL_POOL_EXCLUSIVE_PAGES;
                options.max_alloc_size = max_alloc_size;
            }
            PoolType::Direct { reclaim_at } => {
                options.kind = SLICEPOOL_POOL_DIRECT;
                options.reclaim_at = reclaim_at.unwrap_or(0);
            }
            PoolType::SlicedPages { page_size, max_slice_size, max_pool_size } => {
                options.kind = SLICEPOOL_POOL_SLICED_PAGES;
                options.page_size = page_size;
                // As large as a page can be, where there is no telling how large.
                options.max_slice_size = if max_slice_size == u64::MAX { 0 } else { max_slice_size };
                // 0 would mean that there is no cap; 1 pays for no more.
                options.max_pool_size = max_pool_size.map_or(0, |cap| cap.max(1));
                options.max_page_size = pool.max_page_size.unwrap_or(0);
                options.near_page = match pool.near_page {
                    NearPage::WhenUncapped => SLICEPOOL_NEAR_PAGE_WHEN_UNCAPPED,
                    NearPage::Always => SLICEPOOL_NEAR_PAGE_ALWAYS,
                    NearPage::Never => SLICEPOOL_NEAR_PAGE_NEVER,
                };
                options.page_growth = match pool.page_growth {
                    PageGrowth::Share => SLICEPOOL_PAGE_GROWTH_SHARE,
                    PageGrowth::Doubling => SLICEPOOL_PAGE_GROWTH_DOUBLING,
                };
                options.kinds = match pool.kinds {
                    PoolKinds::Both => SLICEPOOL_KINDS_BOTH,
                    PoolKinds::Linear => SLICEPOOL_KINDS_LINEAR,
                    PoolKinds::Optimal => SLICEPOOL_KINDS_OPTIMAL,
                };
                options.min_pages = pool.min_pages;
            }
        }
        options.memory_type = pool.memory_type;
        options.granule = pool.granule;
        options.dealloc_period = pool.dealloc_period.unwrap_or(0);
        options.keep_bytes = pool.keep_bytes;
        options
    }
}

/// The most pools of an allocator.
pub(crate) const MAX_POOLS: u32 = 256;

/// The caller's list of pools.
#[derive(Clone, Copy)]
pub(crate) struct List {
    pools: *const slicepool_pool_options,
    stride: u32,
    pub(crate) count: u32,
}

impl List {
    /// # Safety
    /// `pools` points to `count` structs of equal size, for as long as this is used.
    #[cold]
    pub(crate) unsafe fn read(pools: *const slicepool_pool_options, count: u32) -> Result<Self, Refusal> {
        if count == 0 || count > MAX_POOLS {
            return Err(invalid(c"pool_count", u64::from(count)));
        }
        // SAFETY: passed on from the caller.
        let list = unsafe { Self { pools, stride: abi::struct_size(pools)?, count } };
        (0..count).try_for_each(|i| list.pool(i).map(|_| ()))?;
        Ok(list)
    }

    /// The `i`-th pool.
    #[cold]
    pub(crate) fn pool(&self, i: u32) -> Result<PoolOptions, Refusal> {
        // SAFETY: the contract of `read`; `i` is below the count.
        unsafe { abi::element(self.pools, self.stride, i)? }.to_core()
    }

    /// The `i`-th pool, after all have been read once: another thread may have written to them meanwhile.
    pub(crate) fn pool_again(&self, i: u32) -> Result<PoolOptions, Error> {
        self.pool(i).map_err(|_| Error::InvalidArgument { field: c"pools", value: u64::from(i) })
    }
}

/// Hands `len` pools out.
///
/// # Safety
/// `pools` has room for `capacity` elements as large as the first says.
#[cold]
pub(crate) unsafe fn write_pools(
    len: u32,
    pool: &dyn Fn(u32) -> Result<PoolOptions, Error>,
    pools: *mut slicepool_pool_options,
    capacity: u32,
    count: *mut u32,
) -> Result<(), Refusal> {
    let count = abi::out(count, c"count")?;
    // SAFETY: passed on from the caller.
    let stride = if capacity == 0 { 0 } else { unsafe { abi::struct_size(pools)? } };
    if len <= capacity {
        (0..len).try_for_each(|i| pool(i).map(|_| ()))?;
        for i in 0..len {
            // SAFETY: the element is one of the `capacity` ones. Those after the first need not be initialised.
            unsafe {
                let at = pools.byte_add(stride as usize * i as usize);
                abi::zero(at, stride);
                abi::write(at, stride, &slicepool_pool_options::from(&pool(i)?));
            }
        }
    }
    // SAFETY: not NULL, the caller provides it.
    unsafe { count.write(len) };
    Ok(())
}

/// Hands a list of pools out that depends on properties.
///
/// # Safety
/// `properties` is NULL or a struct; `pools` has room for `capacity` elements as large as the first says.
unsafe fn write_layout(
    make: fn(&Properties) -> Result<PoolList, Error>,
    properties: *const slicepool_layout_properties,
    pools: *mut slicepool_pool_options,
    capacity: u32,
    count: *mut u32,
) -> slicepool_result {
    let outcome = (|| {
        // SAFETY: passed on from the caller.
        let given = unsafe { abi::read_or_default(properties)? };
        if given.reserved != 0 {
            return Err(invalid(c"reserved", u64::from(given.reserved)));
        }
        let mut properties = Properties::new(if given.max_page == 0 { u64::MAX } else { given.max_page });
        if given.alignment != 0 {
            properties.alignment = given.alignment;
        }
        if given.heap_size != 0 {
            properties.heap_size = given.heap_size;
        }
        let list = make(&properties)?;
        // SAFETY: passed on from the caller.
        unsafe { write_pools(list.len() as u32, &|i| Ok(list[i as usize].clone()), pools, capacity, count) }
    })();
    finish(outcome)
}

/// Two pools for programs of any size, which an allocator gets by default: pages of 4 MiB for requests up to 64 KiB,
/// and pages that grow with what is held, from 4 MiB to the smaller of 256 MiB and an eighth of the heap, for the
/// others. Pages that hold nothing go back after some thousand allocations: more than a frame or a training step has,
/// so that a program which repeats itself keeps what it needs. A program that allocates one byte takes 4 MiB.
///
/// @param properties  may be NULL for the defaults
/// @param pools       `capacity` structs, of which the first has its struct_size set; written only if the whole list
///                    fits; may be NULL if capacity is 0. Change them as you like and pass them to
///                    slicepool_allocator_create(), with the same max_page in the config
/// @param count       set to the number of pools of the list, at most 32: if it is above capacity, nothing was written
/// @return SLICEPOOL_ERROR_INVALID_ARGUMENT (an alignment that is no power of two, or larger than max_page),
///         SLICEPOOL_ERROR_VERSION_MISMATCH
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_layout_adaptive(
    properties: *const slicepool_layout_properties,
    pools: *mut slicepool_pool_options,
    capacity: u32,
    count: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { write_layout(layout::adaptive, properties, pools, capacity, count) }
}

/// A few pools of sliced pages, from max_page / 4 down to 32 MiB / 4 in steps of four, for slices of half a page, a
/// quarter and so on; an exclusive page for each larger request, which goes back when it was not used for 5,000
/// allocations and as many more for each GiB of max_page; and a pool for requests of size 0. Needs max_page to make
/// sense. As slicepool_layout_adaptive() in all else.
///
/// @return as slicepool_layout_adaptive()
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_layout_sub_slices(
    properties: *const slicepool_layout_properties,
    pools: *mut slicepool_pool_options,
    capacity: u32,
    count: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { write_layout(layout::sub_slices, properties, pools, capacity, count) }
}

/// A page for each slice, in up to 24 pools whose sizes form a geometric series from 32 KiB to max_page, which has to
/// be given to make sense. Pages go back when they were not used for 5,000 allocations and as many more for each GiB of
/// the pool's size. As slicepool_layout_adaptive() in all else.
///
/// @return as slicepool_layout_adaptive()
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slicepool_layout_exclusive_pages(
    properties: *const slicepool_layout_properties,
    pools: *mut slicepool_pool_options,
    capacity: u32,
    count: *mut u32,
) -> slicepool_result {
    // SAFETY: the caller passes what the header demands.
    unsafe { write_layout(layout::exclusive_pages, properties, pools, capacity, count) }
}

/// sizeof(slicepool_pool_options) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_pool_options() -> u32 {
    size_of::<slicepool_pool_options>() as u32
}

/// sizeof(slicepool_layout_properties) as the library sees it, for bindings.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_sizeof_layout_properties() -> u32 {
    size_of::<slicepool_layout_properties>() as u32
}
