//! Failure injection: the k-th device call and the k-th host allocation fail, for every k, once and from then on.
//!
//! Each time: the right error, the state as before, nothing leaked and nothing returned twice, and after a trim the same
//! call succeeds.

use super::devices::{KEPT, NONE_LEFT};
use super::host::HostLedger;
use super::lock::WatchedLock;
use super::pools::{MEMORY, options};
use super::shaky::{Failing, Part, Shaky, end_failing, with_every_failure};
use super::sums::{State, assert_sums};
use slicepool_core::{
    Allocator, AllocatorOptions, Budget, DeviceFault, DeviceLayout, Error, LiveSlices, MemoryType, PoolOptions,
    Request, Slice,
};

/// What a scenario plays with.
pub(crate) struct World<'a> {
    pub(crate) device: &'a Shaky,
    pub(crate) one: Allocator<&'a Shaky>,
    /// Shares the budget with the first.
    pub(crate) other: Allocator<&'a Shaky>,
    pub(crate) budget: Budget,
    pub(crate) slices: Vec<Slice>,
}

impl World<'_> {
    fn state(&self) -> [State; 2] {
        [State::of(&self.one), State::of(&self.other)]
    }

    /// The books agree with each other, with the device and with the budget.
    fn check(&self) {
        let (mut bytes, mut pages) = (0, 0);
        for allocator in [&self.one, &self.other] {
            assert_sums(allocator);
            let figures = allocator.statistics();
            assert_eq!(figures.growths_in_flight, 0);
            bytes += figures.reserved - figures.unmapped;
            pages += figures.pages + figures.pages_stuck - figures.pages_unmapped;
        }
        assert_eq!((bytes, u64::from(pages)), (self.device.ledger.bytes(), self.device.ledger.pages()));
        assert_eq!((bytes, pages), (self.budget.statistics().bytes, self.budget.statistics().pages));
        self.slices.iter().for_each(|slice| assert_eq!(self.one.get(slice.id), Ok(*slice)));
    }

    /// Gives back what is stuck, and nothing else.
    fn trim(&self) {
        self.one.trim(u64::MAX).unwrap();
        self.other.trim(u64::MAX).unwrap();
    }
}

/// What a failing call may change.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Changes {
    Nothing,
    /// Pages that held nothing may have gone.
    IdlePages,
}

pub(crate) struct Scenario<'s> {
    pub(crate) pools: &'s [PoolOptions],
    pub(crate) options: fn(AllocatorOptions) -> AllocatorOptions,
    /// Bytes that both allocators may hold together.
    pub(crate) budget: Option<u64>,
    /// The memory types of the device; none: the usual one.
    pub(crate) types: &'s [MemoryType],
    pub(crate) prepare: &'s dyn Fn(&mut World<'_>),
    pub(crate) call: &'s dyn Fn(&mut World<'_>) -> Result<(), Error>,
    pub(crate) changes: Changes,
    /// Whether an error is one that a failing device explains.
    pub(crate) explains: fn(&Error) -> bool,
}

impl Scenario<'_> {
    /// Plays it with every failure; how many calls were refused because of the device, and because of the host.
    pub(crate) fn play(&self) -> (u64, u64) {
        with_every_failure(|part, failing| self.play_once(part, failing))
    }

    /// Whether anything failed, and whether the call was refused.
    fn play_once(&self, part: Part, failing: Failing) -> (bool, bool) {
        let name = format!("{part:?}, {failing:?}");
        let (host, lock, device) = (HostLedger::new(), WatchedLock::new(), Shaky::new());
        let budget = Budget::try_new(host.memory(), lock.kind(), self.budget, None).unwrap();
        let books = options().with_memory(host.memory()).with_lock(lock.kind()).with_budget(&budget);
        let books = (self.options)(books);
        let types = if self.types.is_empty() { &[MEMORY] } else { self.types };
        let memory = DeviceLayout::new(types, &[]);
        let make = || Allocator::with_memory_types(&device, &memory, self.pools, books.clone()).unwrap();
        let (one, other) = (make(), make());
        let mut world = World { device: &device, one, other, budget, slices: Vec::new() };
        (self.prepare)(&mut world);
        world.check();
        let before = world.state();

        part.fail(failing, &device, &host);
        let answer = (self.call)(&mut world);
        let failed = end_failing(&device, &host);

        world.check();
        host.assert_used_rightly();
        if let Err(error) = answer {
            assert!(failed, "{name}: {error} for no reason");
            let right = match part {
                Part::Device => (self.explains)(&error),
                Part::Host => matches!(error, Error::OutOfHostMemory { bytes: 1.. }),
            };
            assert!(right, "{name}: {error:?}");
            if self.changes == Changes::Nothing && device.kept.get() == 0 {
                assert_eq!(world.state(), before, "{name}: {error}");
            }
            world.trim();
            world.check();
            if self.changes == Changes::Nothing {
                assert_eq!(world.state(), before, "{name}: {error}, after a trim");
            }
            assert_eq!((self.call)(&mut world), Ok(()), "{name}: {error}, tried again");
            world.check();
        }
        for allocator in [world.one, world.other] {
            assert_eq!(allocator.close(LiveSlices::Free), Ok(()), "{name}");
        }
        drop(world.budget);
        lock.assert_used_rightly();
        device.ledger.assert_all_returned();
        assert_eq!(device.ledger.given(), device.ledger.taken(), "{name}");
        (failed, answer.is_err())
    }
}

pub(crate) fn plain(options: AllocatorOptions) -> AllocatorOptions {
    options
}

pub(crate) fn is_out_of_memory(error: &Error) -> bool {
    matches!(error, Error::OutOfDeviceMemory { size: 1.., code: NONE_LEFT })
}

pub(crate) fn is_kept(error: &Error) -> bool {
    *error == Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT }
}

pub(crate) fn allocate(world: &World<'_>, request: Request) -> Result<(), Error> {
    world.one.allocate(&request).map(drop)
}
