//! What buffer pools are asked for: classes of sizes, limits, and how threads share them.
//!
//! Class `i` serves buffers of `2^i` bytes. A configuration is a plain value with one limit for each `i`; 0 stands for
//! a class that is not enabled, and at least one always is.
#![forbid(unsafe_code)]

mod budget;
mod error;

pub use error::BufferConfigError;

use core::fmt;
use core::iter::FusedIterator;
use core::num::{NonZeroU32, NonZeroUsize};

/// Number of limits; as many of them can be enabled as `usize` has bits, less one.
const CLASSES: usize = 64;

/// The largest storage class, and so the largest page of a storage preset, is `2^23` bytes.
const STORAGE_LAST: u32 = 23;

/// More stripes of the global freelist than this serve nobody.
const MOST_STRIPES: u32 = 1 << 12;
/// Stripes that a class has in any case, unless its limit is smaller.
const LEAST_STRIPES: u32 = 8;

/// One size class: its size and how many buffers of it a pool creates at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferPoolClassConfig {
    /// Bytes of every buffer of the class.
    pub size: NonZeroUsize,
    /// The most buffers that exist of the class at one time.
    pub max_buffers: NonZeroU32,
}

impl BufferPoolClassConfig {
    /// A class of this size with this limit; the size is checked where the class is used.
    pub const fn new(size: NonZeroUsize, max_buffers: NonZeroU32) -> Self {
        Self { size, max_buffers }
    }
}

impl From<(NonZeroUsize, NonZeroU32)> for BufferPoolClassConfig {
    fn from((size, max_buffers): (NonZeroUsize, NonZeroU32)) -> Self {
        Self::new(size, max_buffers)
    }
}

/// How many free buffers of a class a thread's cache keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadCache {
    /// About half of the class, divided by the expected number of threads.
    #[default]
    Auto,
    /// This many, but not more than the class has.
    Explicit(NonZeroUsize),
    /// None: every buffer goes through the global freelist.
    Disabled,
}

/// What a buffer pool is like: its size classes, a limit for each, and how threads share the buffers.
///
/// Classes have powers of two as sizes and need not be contiguous; a request goes to the smallest that fits. There is no
/// empty configuration: begin with [`for_network`](Self::for_network), which is the default, or
/// [`for_storage`](Self::for_storage).
///
/// Every builder takes the layout as the one before left it, so those that shape it do not commute: a range or a list
/// replaces it, [`with_max_per_class`](Self::with_max_per_class) and
/// [`with_bytes_per_class`](Self::with_bytes_per_class) overwrite every limit, and
/// [`with_budget_bytes`](Self::with_budget_bytes) scales the limits that it finds. Builders that can fail have a twin
/// `try_...`, which returns the error that they panic with; the twins work in constants, too.
///
/// ```
/// use slicepool_core::BufferPoolConfig;
/// use std::num::NonZeroUsize;
///
/// let budget = NonZeroUsize::new(64 << 20).unwrap();
/// let config = BufferPoolConfig::for_network().with_budget_bytes(budget).with_prefill(true);
/// assert!(config.size_classes().all(|class| class.max_buffers.get() == 257));
/// assert_eq!(config.max_tracked_bytes(), (64 << 20) - 1024);
/// assert_eq!(config.class_for(1500).unwrap().size.get(), 2048);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BufferPoolConfig {
    limits: [u32; CLASSES],
    pool_min_size: usize,
    alignment: NonZeroUsize,
    parallelism: NonZeroUsize,
    thread_cache: ThreadCache,
    prefill: bool,
}

impl BufferPoolConfig {
    /// For network traffic: 1 KiB to 128 KiB, 4096 of each, so that a connection can hold several at a time.
    ///
    /// Not prefilled, alignment 1, parallelism 1, automatic thread caches; requests of any size use the pool.
    pub const fn for_network() -> Self {
        Self::preset(range(10, 17, 4096))
    }

    /// For storage: pages of 4 KiB to 8 MiB, 64 of each; otherwise like [`for_network`](Self::for_network).
    ///
    /// The page size of the machine is not known here: [`for_storage_with_page_size`](Self::for_storage_with_page_size).
    pub const fn for_storage() -> Self {
        Self::preset(range(12, STORAGE_LAST, 64))
    }

    /// For storage: from one page to 8 MiB, 64 of each.
    ///
    /// # Panics
    /// If the page size is not a power of two or above 8 MiB.
    #[track_caller]
    pub fn for_storage_with_page_size(page_size: NonZeroUsize) -> Self {
        expect(Self::try_for_storage_with_page_size(page_size))
    }

    /// The same without panics.
    ///
    /// # Errors
    /// [`BufferConfigError::PageSize`]
    pub const fn try_for_storage_with_page_size(page_size: NonZeroUsize) -> Result<Self, BufferConfigError> {
        let first = page_size.trailing_zeros();
        if !page_size.is_power_of_two() || first > STORAGE_LAST {
            return Err(BufferConfigError::PageSize { page_size: page_size.get() as u64 });
        }
        Ok(Self::preset(range(first, STORAGE_LAST, 64)))
    }

    /// A configuration from numbers: `limits[i]` buffers of `2^i` bytes, 0 for a class that is not enabled. If none is,
    /// the classes are those of [`for_network`](Self::for_network); all else is as there in any case.
    ///
    /// # Errors
    /// [`BufferConfigError::SizeTooLarge`] names the smallest enabled size above `isize::MAX`.
    pub const fn try_from_limits(limits: [u32; CLASSES]) -> Result<Self, BufferConfigError> {
        let config = Self::preset(limits);
        let enabled = config.enabled();
        if enabled == 0 {
            return Ok(Self::for_network());
        }
        let too_large = enabled & !(isize::MAX as u64);
        if too_large != 0 {
            return Err(BufferConfigError::SizeTooLarge { size: 1 << too_large.trailing_zeros() });
        }
        Ok(config)
    }

    const fn preset(limits: [u32; CLASSES]) -> Self {
        Self {
            limits,
            pool_min_size: 0,
            alignment: NonZeroUsize::MIN,
            parallelism: NonZeroUsize::MIN,
            thread_cache: ThreadCache::Auto,
            prefill: false,
        }
    }

    /// The same where requests below this many bytes do not use the pool. At most the smallest class, see
    /// [`check`](Self::check).
    #[must_use]
    pub const fn with_pool_min_size(mut self, pool_min_size: usize) -> Self {
        self.pool_min_size = pool_min_size;
        self
    }

    /// The same with every power of two from `min` to `max` as the only classes, all with this limit.
    ///
    /// # Panics
    /// If `min` or `max` is not a power of two or above `isize::MAX`, or `max` is below `min`.
    #[must_use]
    #[track_caller]
    pub fn with_size_class_range(self, min: NonZeroUsize, max: NonZeroUsize, max_buffers: NonZeroU32) -> Self {
        expect(self.try_with_size_class_range(min, max, max_buffers))
    }

    /// The same without panics.
    ///
    /// # Errors
    /// [`SizeNotPowerOfTwo`](BufferConfigError::SizeNotPowerOfTwo) or [`SizeTooLarge`](BufferConfigError::SizeTooLarge)
    /// of `min`, then of `max`; [`RangeReversed`](BufferConfigError::RangeReversed).
    pub const fn try_with_size_class_range(
        mut self,
        min: NonZeroUsize,
        max: NonZeroUsize,
        max_buffers: NonZeroU32,
    ) -> Result<Self, BufferConfigError> {
        let first = match class_of(min) {
            Ok(class) => class,
            Err(error) => return Err(error),
        };
        let last = match class_of(max) {
            Ok(class) => class,
            Err(error) => return Err(error),
        };
        if last < first {
            return Err(BufferConfigError::RangeReversed { min: min.get() as u64, max: max.get() as u64 });
        }
        self.limits = range(first, last, max_buffers.get());
        Ok(self)
    }

    /// The same with exactly these classes, in any order.
    ///
    /// # Panics
    /// If there is none, or a size occurs twice, is not a power of two or is above `isize::MAX`.
    #[must_use]
    #[track_caller]
    pub fn with_size_classes<I, C>(self, classes: I) -> Self
    where
        I: IntoIterator<Item = C>,
        C: Into<BufferPoolClassConfig>,
    {
        expect(self.try_with_size_classes(classes))
    }

    /// The same without panics.
    ///
    /// # Errors
    /// [`SizeNotPowerOfTwo`](BufferConfigError::SizeNotPowerOfTwo), [`SizeTooLarge`](BufferConfigError::SizeTooLarge) or
    /// [`DuplicateSize`](BufferConfigError::DuplicateSize) of the first class that is to blame;
    /// [`NoClasses`](BufferConfigError::NoClasses).
    pub fn try_with_size_classes<I, C>(mut self, classes: I) -> Result<Self, BufferConfigError>
    where
        I: IntoIterator<Item = C>,
        C: Into<BufferPoolClassConfig>,
    {
        self.limits = [0; CLASSES];
        for class in classes {
            let class = class.into();
            let limit = &mut self.limits[class_of(class.size)? as usize];
            if *limit != 0 {
                return Err(BufferConfigError::DuplicateSize { size: class.size.get() as u64 });
            }
            *limit = class.max_buffers.get();
        }
        if self.enabled() == 0 { Err(BufferConfigError::NoClasses) } else { Ok(self) }
    }

    /// The same with this class: a new one, or another limit for one that is enabled.
    ///
    /// # Panics
    /// If the size is not a power of two or above `isize::MAX`.
    #[must_use]
    #[track_caller]
    pub fn with_size_class(self, size: NonZeroUsize, max_buffers: NonZeroU32) -> Self {
        expect(self.try_with_size_class(size, max_buffers))
    }

    /// The same without panics.
    ///
    /// # Errors
    /// [`SizeNotPowerOfTwo`](BufferConfigError::SizeNotPowerOfTwo), [`SizeTooLarge`](BufferConfigError::SizeTooLarge)
    pub const fn try_with_size_class(
        mut self,
        size: NonZeroUsize,
        max_buffers: NonZeroU32,
    ) -> Result<Self, BufferConfigError> {
        match class_of(size) {
            Ok(class) => self.limits[class as usize] = max_buffers.get(),
            Err(error) => return Err(error),
        }
        Ok(self)
    }

    /// The same without this class: the next larger one serves its requests.
    ///
    /// # Panics
    /// If the size is not a power of two or above `isize::MAX`, or its class is not enabled or the only one.
    #[must_use]
    #[track_caller]
    pub fn without_size_class(self, size: NonZeroUsize) -> Self {
        expect(self.try_without_size_class(size))
    }

    /// The same without panics.
    ///
    /// # Errors
    /// [`SizeNotPowerOfTwo`](BufferConfigError::SizeNotPowerOfTwo), [`SizeTooLarge`](BufferConfigError::SizeTooLarge),
    /// [`NotEnabled`](BufferConfigError::NotEnabled), [`LastClass`](BufferConfigError::LastClass)
    pub const fn try_without_size_class(mut self, size: NonZeroUsize) -> Result<Self, BufferConfigError> {
        let class = match class_of(size) {
            Ok(class) => class as usize,
            Err(error) => return Err(error),
        };
        let size = size.get() as u64;
        if self.limits[class] == 0 {
            return Err(BufferConfigError::NotEnabled { size });
        }
        if self.enabled() == size {
            return Err(BufferConfigError::LastClass { size });
        }
        self.limits[class] = 0;
        Ok(self)
    }

    /// The same with this limit for every enabled class.
    #[must_use]
    pub const fn with_max_per_class(mut self, max_buffers: NonZeroU32) -> Self {
        let mut rest = self.enabled();
        while rest != 0 {
            self.limits[rest.trailing_zeros() as usize] = max_buffers.get();
            rest &= rest - 1;
        }
        self
    }

    /// The same with about this many bytes in every enabled class: `max(1, floor(bytes / size))` buffers. The bytes are
    /// not remembered.
    ///
    /// # Panics
    /// If that is more than `u32::MAX` buffers of a class.
    #[must_use]
    #[track_caller]
    pub fn with_bytes_per_class(self, bytes: NonZeroUsize) -> Self {
        expect(self.try_with_bytes_per_class(bytes))
    }

    /// The same without panics.
    ///
    /// # Errors
    /// [`BufferConfigError::BytesTooLarge`] names the smallest class.
    pub const fn try_with_bytes_per_class(mut self, bytes: NonZeroUsize) -> Result<Self, BufferConfigError> {
        let bytes = bytes.get() as u64;
        let mut rest = self.enabled();
        while rest != 0 {
            let class = rest.trailing_zeros();
            let limit = bytes >> class;
            if limit > u32::MAX as u64 {
                return Err(BufferConfigError::BytesTooLarge { bytes, size: 1 << class });
            }
            self.limits[class as usize] = if limit == 0 { 1 } else { limit as u32 };
            rest &= rest - 1;
        }
        Ok(self)
    }

    /// The same with another number of threads that are expected to use the pool at a time. It sets the stripes of the
    /// global freelist, and the capacity of automatic thread caches.
    #[must_use]
    pub const fn with_parallelism(mut self, parallelism: NonZeroUsize) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// The same with thread caches of this many buffers of each class, or of all that a smaller class has.
    ///
    /// Buffers in a cache serve its own thread only, until they spill or the cache is flushed: a large one favours reuse
    /// by the same thread, a small one other threads and less memory.
    #[must_use]
    pub const fn with_max_thread_cache_capacity(self, capacity: NonZeroUsize) -> Self {
        self.with_thread_cache(ThreadCache::Explicit(capacity))
    }

    /// The same without thread caches.
    #[must_use]
    pub const fn with_thread_cache_disabled(self) -> Self {
        self.with_thread_cache(ThreadCache::Disabled)
    }

    /// The same with another rule for thread caches.
    #[must_use]
    pub const fn with_thread_cache(mut self, thread_cache: ThreadCache) -> Self {
        self.thread_cache = thread_cache;
        self
    }

    /// The same with every buffer created when the pool is, or not.
    #[must_use]
    pub const fn with_prefill(mut self, prefill: bool) -> Self {
        self.prefill = prefill;
        self
    }

    /// The same with buffers at multiples of this many bytes. A power of two, at most the smallest class, see
    /// [`check`](Self::check).
    #[must_use]
    pub const fn with_alignment(mut self, alignment: NonZeroUsize) -> Self {
        self.alignment = alignment;
        self
    }

    /// What a pool checks when it is made, because fields that depend on each other may be set in any order.
    ///
    /// # Errors
    /// In this order: [`AlignmentNotPowerOfTwo`](BufferConfigError::AlignmentNotPowerOfTwo),
    /// [`AlignmentTooLarge`](BufferConfigError::AlignmentTooLarge),
    /// [`PoolMinSizeTooLarge`](BufferConfigError::PoolMinSizeTooLarge).
    pub const fn check(&self) -> Result<(), BufferConfigError> {
        let min_size = self.min_size().get() as u64;
        let alignment = self.alignment.get() as u64;
        let pool_min_size = self.pool_min_size as u64;
        if !alignment.is_power_of_two() {
            return Err(BufferConfigError::AlignmentNotPowerOfTwo { alignment });
        }
        if alignment > min_size {
            return Err(BufferConfigError::AlignmentTooLarge { alignment, min_size });
        }
        if pool_min_size > min_size {
            return Err(BufferConfigError::PoolMinSizeTooLarge { pool_min_size, min_size });
        }
        Ok(())
    }

    /// The enabled classes, smallest first.
    pub fn size_classes(&self) -> impl ExactSizeIterator<Item = BufferPoolClassConfig> + '_ {
        SizeClasses { limits: &self.limits, rest: self.enabled() }
    }

    /// The class that serves a pooled request of this many bytes: the smallest that fits, in sparse layouts perhaps a
    /// much larger one. `None` above the largest. Says nothing about requests that do not use the pool.
    pub const fn class_for(&self, size: usize) -> Option<BufferPoolClassConfig> {
        let Some(least) = size.checked_next_power_of_two() else { return None };
        let fitting = self.enabled() & (least as u64).wrapping_neg();
        if fitting == 0 { None } else { Some(class_at(&self.limits, fitting.trailing_zeros())) }
    }

    /// The limits as they are: `limits[i]` buffers of `2^i` bytes, 0 for a class that is not enabled.
    pub const fn limits(&self) -> [u32; CLASSES] {
        self.limits
    }

    /// The fewest bytes that a request has which uses the pool.
    pub const fn pool_min_size(&self) -> usize {
        self.pool_min_size
    }

    /// Whether every buffer is created when the pool is.
    pub const fn prefill(&self) -> bool {
        self.prefill
    }

    /// Bytes that every buffer's address is a multiple of.
    pub const fn alignment(&self) -> NonZeroUsize {
        self.alignment
    }

    /// How many threads are expected to use the pool at a time.
    pub const fn parallelism(&self) -> NonZeroUsize {
        self.parallelism
    }

    /// The rule for thread caches; [`cache_capacity`](Self::cache_capacity) says what comes of it.
    pub const fn max_thread_cache_capacity(&self) -> ThreadCache {
        self.thread_cache
    }

    /// Bytes of the smallest enabled class.
    pub const fn min_size(&self) -> NonZeroUsize {
        class_at(&self.limits, self.enabled().trailing_zeros()).size
    }

    /// Bytes of the largest enabled class.
    pub const fn max_size(&self) -> NonZeroUsize {
        class_at(&self.limits, self.enabled().ilog2()).size
    }

    /// Bytes of all buffers that the pool may create, `usize::MAX` if they are more.
    pub const fn max_tracked_bytes(&self) -> usize {
        let mut bytes = 0_usize;
        let mut rest = self.enabled();
        while rest != 0 {
            let class = class_at(&self.limits, rest.trailing_zeros());
            bytes = bytes.saturating_add(class.size.get().saturating_mul(class.max_buffers.get() as usize));
            rest &= rest - 1;
        }
        bytes
    }

    /// How many free buffers a thread's cache keeps of a class with this limit.
    pub const fn cache_capacity(&self, max_buffers: NonZeroU32) -> u32 {
        let limit = max_buffers.get();
        match self.thread_cache {
            ThreadCache::Auto => (limit as u64 / (2 * at_most(self.parallelism, limit) as u64)) as u32,
            ThreadCache::Explicit(capacity) => at_most(capacity, limit),
            ThreadCache::Disabled => 0,
        }
    }

    /// Stripes of the global freelist of a class with this limit: a power of two.
    ///
    /// One for each expected thread and at least 8, but no more than 4096 or than there are buffers.
    pub const fn stripes(&self, max_buffers: NonZeroU32) -> u32 {
        let threads = at_most(self.parallelism, MOST_STRIPES).next_power_of_two();
        let wanted = if threads < LEAST_STRIPES { LEAST_STRIPES } else { threads };
        let buffers = 1 << max_buffers.ilog2();
        if wanted < buffers { wanted } else { buffers }
    }

    /// The enabled classes as bits: bit `i` for class `i`, so that each bit is its size and the number their sum.
    const fn enabled(&self) -> u64 {
        let (mut bits, mut class) = (0, 0);
        while class < CLASSES {
            bits |= ((self.limits[class] != 0) as u64) << class;
            class += 1;
        }
        bits
    }
}

impl Default for BufferPoolConfig {
    /// [`for_network`](Self::for_network)
    fn default() -> Self {
        Self::for_network()
    }
}

impl fmt::Debug for BufferPoolConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Only what is enabled, as `{size: limit}`.
        struct Classes<'a>(&'a BufferPoolConfig);
        impl fmt::Debug for Classes<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_map().entries(self.0.size_classes().map(|class| (class.size, class.max_buffers))).finish()
            }
        }
        f.debug_struct("BufferPoolConfig")
            .field("classes", &Classes(self))
            .field("pool_min_size", &self.pool_min_size)
            .field("alignment", &self.alignment)
            .field("parallelism", &self.parallelism)
            .field("thread_cache", &self.thread_cache)
            .field("prefill", &self.prefill)
            .finish()
    }
}

/// The classes that are left to visit, as bits.
struct SizeClasses<'a> {
    limits: &'a [u32; CLASSES],
    rest: u64,
}

impl Iterator for SizeClasses<'_> {
    type Item = BufferPoolClassConfig;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest == 0 {
            return None;
        }
        let class = self.rest.trailing_zeros();
        self.rest &= self.rest - 1;
        Some(class_at(self.limits, class))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.rest.count_ones() as usize;
        (count, Some(count))
    }
}

impl ExactSizeIterator for SizeClasses<'_> {}
impl FusedIterator for SizeClasses<'_> {}

#[track_caller]
fn expect(result: Result<BufferPoolConfig, BufferConfigError>) -> BufferPoolConfig {
    match result {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

/// The class of a size.
const fn class_of(size: NonZeroUsize) -> Result<u32, BufferConfigError> {
    let bytes = size.get() as u64;
    if !size.is_power_of_two() {
        return Err(BufferConfigError::SizeNotPowerOfTwo { size: bytes });
    }
    if size.get() > isize::MAX as usize {
        return Err(BufferConfigError::SizeTooLarge { size: bytes });
    }
    Ok(size.trailing_zeros())
}

/// An enabled class.
const fn class_at(limits: &[u32; CLASSES], class: u32) -> BufferPoolClassConfig {
    match (NonZeroUsize::new(1 << class), NonZeroU32::new(limits[class as usize])) {
        (Some(size), Some(max_buffers)) => BufferPoolClassConfig { size, max_buffers },
        _ => panic!("the class is not enabled"),
    }
}

/// The same limit for `first..=last`.
const fn range(first: u32, last: u32, limit: u32) -> [u32; CLASSES] {
    let mut limits = [0; CLASSES];
    let mut class = first;
    while class <= last {
        limits[class as usize] = limit;
        class += 1;
    }
    limits
}

/// The smaller of both.
const fn at_most(number: NonZeroUsize, limit: u32) -> u32 {
    if number.get() as u64 > limit as u64 { limit } else { number.get() as u32 }
}
