//! How an allocator is made.
#![forbid(unsafe_code)]

use crate::budget::Budget;
use crate::device::MemoryType;
use crate::error::Error;
use crate::event::Name;
use crate::metadata::HostMemory;
use crate::parts::need_complete;
use crate::sync::LockKind;

/// How an allocator is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AllocatorOptions {
    /// Where the books are kept.
    pub memory: HostMemory,
    /// How threads are kept apart.
    pub lock: LockKind,
    /// What the device gives out.
    pub memory_type: MemoryType,
    /// A request that would fit into a page which another call is just getting waits for it this many back-off steps
    /// before it gets a page of its own.
    pub growth_wait_steps: u32,
    /// Bytes that the allocator may hold from the device; `None`: as many as it gives. Pages that are just being taken, and
    /// those that the device does not take back, count.
    pub max_bytes: Option<u64>,
    /// Pages that the allocator may hold, counted in the same way.
    pub max_pages: Option<u32>,
    /// Limits that the allocator shares with others.
    pub budget: Option<Budget>,
    /// Everything is placed and counted as always, but the device gives no memory before
    /// [`Allocator::resolve`](crate::Allocator::resolve) asks for a slice's, which is `u64::MAX` until then. Caps of
    /// pools hold, the other limits only count what has been resolved.
    pub dry_run: bool,
    /// Granule of the pools of persistent slices; `None`: [`PoolOptions::DEFAULT_GRANULE`](crate::PoolOptions::DEFAULT_GRANULE), and
    /// [`block_bytes`](crate::block_bytes) does not count on there being any.
    pub persistent_granule: Option<u64>,
    /// Requests that no pool of the list takes, of the memory type that they come to, because they are too large for all of
    /// them or there is none for their kind, have a page of their own, as if they were [`Request::dedicated`](crate::Request::dedicated), and
    /// [`block_bytes`](crate::block_bytes) counts on that. Otherwise they are refused.
    pub dedicated_when_too_large: bool,
    /// Pages of dedicated slices that hold nothing go back after about this many allocations, as with
    /// [`PoolOptions::dealloc_period`](crate::PoolOptions::dealloc_period); `None`: never by themselves.
    pub dedicated_period: Option<u64>,
    /// Whether [`Device::event`](crate::Device::event) hears of every slice too. Slow: each is looked after by hand.
    pub slice_events: bool,
    /// A name, for reports.
    pub name: Name,
    /// Anything that the program wants to keep with the allocator.
    pub user_data: u64,
    /// What is done to find out who writes where nothing is theirs.
    pub debugging: Debugging,
}

/// Help in finding programs' faults, for memory that the CPU sees. Slow: every slice is written to, but for those
/// [`with_device_data`](crate::Request::with_device_data), which may be imported memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Debugging {
    /// Slices are filled with [`Debugging::NEW`] when they are handed out, and with [`Debugging::FREED`] when they are freed,
    /// or when what they waited for has passed.
    pub fill: bool,
    /// Bytes behind each slice that belong to nobody, rounded up to the granule. They are filled with
    /// [`Debugging::MARGIN`], and looked at when the slice is freed and by
    /// [`Allocator::check_margins`](crate::Allocator::check_margins).
    pub margin: u64,
}

impl Debugging {
    /// What new slices are filled with.
    pub const NEW: u8 = 0xDC;
    /// What freed slices are filled with.
    pub const FREED: u8 = 0xEF;
    /// What margins are filled with.
    pub const MARGIN: u8 = 0xFD;
    /// The largest margin.
    pub const MAX_MARGIN: u64 = 1 << 20;

    /// Filling, and a margin of so many bytes.
    pub const fn new(fill: bool, margin: u64) -> Self {
        Self { fill, margin }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.fill || self.margin != 0
    }
}

impl Default for AllocatorOptions {
    fn default() -> Self {
        Self {
            memory: HostMemory::global(),
            lock: LockKind::spin(),
            memory_type: MemoryType::default(),
            growth_wait_steps: 32,
            max_bytes: None,
            max_pages: None,
            budget: None,
            dry_run: false,
            persistent_granule: None,
            dedicated_when_too_large: false,
            dedicated_period: Some(1024),
            slice_events: false,
            name: Name::NONE,
            user_data: 0,
            debugging: Debugging::default(),
        }
    }
}

impl AllocatorOptions {
    /// Refuses what needs parts that are not there.
    #[cold]
    pub(super) fn check_parts(&self) -> Result<(), Error> {
        let needs = self.dry_run || self.dedicated_when_too_large || self.slice_events || self.debugging.is_on();
        if needs || self.budget.is_some() || self.persistent_granule.is_some() {
            return need_complete(c"options");
        }
        Ok(())
    }

    /// The same with the books in other memory.
    #[must_use]
    pub const fn with_memory(mut self, memory: HostMemory) -> Self {
        self.memory = memory;
        self
    }

    /// The same with another kind of lock.
    #[must_use]
    pub const fn with_lock(mut self, lock: LockKind) -> Self {
        self.lock = lock;
        self
    }

    /// The same for a device with other memory.
    #[must_use]
    pub const fn with_memory_type(mut self, memory_type: MemoryType) -> Self {
        self.memory_type = memory_type;
        self
    }

    /// The same with another number of back-off steps.
    #[must_use]
    pub const fn with_growth_wait_steps(mut self, steps: u32) -> Self {
        self.growth_wait_steps = steps;
        self
    }

    /// The same with a limit on the bytes that are held.
    #[must_use]
    pub const fn with_max_bytes(mut self, bytes: Option<u64>) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// The same with a limit on the pages that are held.
    #[must_use]
    pub const fn with_max_pages(mut self, pages: Option<u32>) -> Self {
        self.max_pages = pages;
        self
    }

    /// The same with limits that are shared. The allocator becomes one of the budget's owners.
    #[must_use]
    pub fn with_budget(mut self, budget: &Budget) -> Self {
        self.budget = Some(budget.clone());
        self
    }

    /// The same as a dry run.
    #[must_use]
    pub const fn with_dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// The same with another granule for persistent slices.
    #[must_use]
    pub const fn with_persistent_granule(mut self, granule: u64) -> Self {
        self.persistent_granule = Some(granule);
        self
    }

    /// The same with help in finding faults.
    #[must_use]
    pub const fn with_debugging(mut self, debugging: Debugging) -> Self {
        self.debugging = debugging;
        self
    }

    /// The same with pages for requests that are too large for the pools.
    #[must_use]
    pub const fn with_dedicated_when_too_large(mut self) -> Self {
        self.dedicated_when_too_large = true;
        self
    }

    /// The same with dedicated pages that age in another way.
    #[must_use]
    pub const fn with_dedicated_period(mut self, period: Option<u64>) -> Self {
        self.dedicated_period = period;
        self
    }

    /// The same with events about slices.
    #[must_use]
    pub const fn with_slice_events(mut self) -> Self {
        self.slice_events = true;
        self
    }

    /// The same with a name.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.name = Name::new(name);
        self
    }

    /// The same with user data.
    #[must_use]
    pub const fn with_user_data(mut self, user_data: u64) -> Self {
        self.user_data = user_data;
        self
    }
}
