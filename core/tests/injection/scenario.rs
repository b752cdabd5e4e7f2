//! Scenarios over two allocators of one budget, played with every failure.
//!
//! Each time: the right error, the state as before, nothing leaked and nothing returned twice, and after a trim the
//! same call succeeds.
#![allow(dead_code, reason = "every program uses its own part of this")]

use super::common::devices::{KEPT, NONE_LEFT};
use super::common::lock::WatchedLock;
use super::common::pools::{MEMORY, options};
use super::common::sums::{State, all_ranges, assert_sums, parts};
use super::failures::{Failures, Outcome, Played, Refusing, RefusingHost, with_every_failure};
use slicepool_core::{
    Allocator, AllocatorOptions, Budget, DeviceFault, DeviceLayout, Error, LiveSlices, MemoryType, PoolOptions, Range,
    Request, Slice,
};
use std::collections::BTreeSet;

/// What a scenario plays with.
pub(crate) struct World<'a> {
    pub(crate) device: &'a Refusing,
    pub(crate) one: Allocator<&'a Refusing>,
    /// Shares the budget with the first.
    pub(crate) other: Allocator<&'a Refusing>,
    pub(crate) budget: Budget,
    pub(crate) slices: Vec<Slice>,
}

impl World<'_> {
    /// Everything but what only ever rises.
    fn state(&self) -> [State; 2] {
        [State::of(&self.one), State::of(&self.other)]
    }

    /// The part of it that no failing call may change.
    fn held(&self) -> [Held; 2] {
        [Held::of(&self.one), Held::of(&self.other)]
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

/// Every page that holds something, with all that is in it, and the figures of what is held. Pages of a dry run that
/// have no memory yet cannot be told apart, and count as one for each pool.
#[derive(Debug, PartialEq)]
struct Held {
    ranges: Vec<Range>,
    figures: [u64; 5],
}

impl Held {
    fn of(allocator: &Allocator<&Refusing>) -> Self {
        let mut ranges = all_ranges(allocator);
        let page = |range: &Range| (range.pool, range.memory);
        let used = ranges.iter().filter(|range| range.id.is_some() || range.pending);
        let used: BTreeSet<_> = used.map(page).collect();
        ranges.retain(|range| used.contains(&page(range)));
        let mut figures = [0; 5];
        for part in parts(allocator) {
            let of_part = [part.in_use, part.padding, part.pending, part.slices.into(), part.slices_pending.into()];
            figures.iter_mut().zip(of_part).for_each(|(sum, figure)| *sum += figure);
        }
        Self { ranges, figures }
    }
}

/// What a failing call may change.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Changes {
    Nothing,
    /// Pages that held nothing may have gone or come.
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
    /// Plays it with every failure, of which there is at least one, and every pair of them: the second may be one of
    /// the next try.
    pub(crate) fn play(&self) -> Played {
        self.play_if_anything_fails().assert_tried()
    }

    /// The same where there need be none.
    pub(crate) fn play_if_anything_fails(&self) -> Played {
        with_every_failure(|failures| self.play_once(failures))
    }

    fn play_once(&self, failures: Failures) -> Outcome {
        let (host, lock, device) = (RefusingHost::new(), WatchedLock::new(), Refusing::new());
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

        let outcome = self.call_until_it_succeeds(&mut world, &host, failures);
        for allocator in [world.one, world.other] {
            assert_eq!(allocator.close(LiveSlices::Free), Ok(()), "{failures:?}");
        }
        drop(world.budget);
        lock.assert_used_rightly();
        device.ledger.assert_all_returned();
        assert_eq!(device.ledger.given(), device.ledger.taken(), "{failures:?}");
        outcome
    }

    fn call_until_it_succeeds(&self, world: &mut World<'_>, host: &RefusingHost, failures: Failures) -> Outcome {
        let device = world.device;
        let (before, held) = (world.state(), world.held());
        let mut refused = (0, 0);
        let mut tries = 0;
        failures.begin(device, host);
        loop {
            let kept = device.kept.get();
            let answer = (self.call)(world);
            let refused_before = std::mem::replace(&mut refused, Failures::end(device, host));
            world.check();
            host.ledger.assert_used_rightly();
            let Err(error) = answer else { return Outcome { refused, failed: tries != 0 } };

            tries += 1;
            let name = format!("{failures:?}, try {tries}: {error:?}");
            // After two refusals there is no reason left.
            let (of_device, of_host) = (refused.0 != refused_before.0, refused.1 != refused_before.1);
            assert!(of_device || of_host, "{name} for no reason");
            let is_of_host = of_host && matches!(error, Error::OutOfHostMemory { bytes: 1.. });
            assert!(is_of_host || (of_device && (self.explains)(&error)), "{name}");
            assert_eq!(world.held(), held, "{name}");
            if self.changes == Changes::Nothing && device.kept.get() == kept {
                assert_eq!(world.state(), before, "{name}");
            }
            world.trim();
            world.check();
            assert_eq!(world.held(), held, "{name}, after a trim");
            if self.changes == Changes::Nothing {
                assert_eq!(world.state(), before, "{name}, after a trim");
            }
            failures.resume(device, host);
        }
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
