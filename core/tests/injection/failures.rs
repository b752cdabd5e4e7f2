//! A device and host memory that refuse the calls they are told to, and every way to tell them.
#![allow(dead_code, reason = "every program uses its own part of this")]

use super::common::devices::{KEPT, LedgerDevice, NONE_LEFT};
use super::common::host::HostLedger;
use slicepool_core::{Device, DeviceError, DeviceMemory, HostMemory, PageRequest};
use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// Calls that are refused, counted from 1 and from the moment of injection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Calls {
    Once(u64),
    From(u64),
    Both(u64, u64),
}

impl Calls {
    fn include(self, call: u64) -> bool {
        match self {
            Calls::Once(k) => call == k,
            Calls::From(k) => call >= k,
            Calls::Both(k, l) => call == k || call == l,
        }
    }
}

/// Counts calls, and says which are refused.
#[derive(Default)]
struct Counter {
    refuses: Cell<Option<Calls>>,
    calls: Cell<u64>,
    refused: Cell<u64>,
}

impl Counter {
    fn refuses_next(&self) -> bool {
        let Some(calls) = self.refuses.get() else { return false };
        self.calls.set(self.calls.get() + 1);
        let refuses = calls.include(self.calls.get());
        self.refused.set(self.refused.get() + u64::from(refuses));
        refuses
    }
}

/// A ledger's device, or a refusal. For one thread.
pub(crate) struct Refusing {
    pub(crate) ledger: LedgerDevice,
    counter: Counter,
    /// Pages it did not take back.
    pub(crate) kept: Cell<u64>,
    /// Whether only calls for pages are refused.
    pub(crate) takes_back: Cell<bool>,
}

impl Refusing {
    pub(crate) fn new() -> Self {
        let ledger = LedgerDevice::new();
        Self { ledger, counter: Counter::default(), kept: Cell::new(0), takes_back: Cell::new(false) }
    }

    pub(crate) fn refused(&self) -> u64 {
        self.counter.refused.get()
    }
}

impl Device for Refusing {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        if self.counter.refuses_next() {
            Err(DeviceError::OutOfMemory(NONE_LEFT))
        } else {
            self.ledger.allocate(request)
        }
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        if !self.takes_back.get() && self.counter.refuses_next() {
            self.kept.set(self.kept.get() + 1);
            return Err(DeviceError::Failed(KEPT));
        }
        self.ledger.deallocate(memory)
    }
}

/// A ledger's host memory, or none. For one thread; must stay where it is while its memory is used.
pub(crate) struct RefusingHost {
    pub(crate) ledger: HostLedger,
    counter: Counter,
}

impl RefusingHost {
    pub(crate) fn new() -> Self {
        Self { ledger: HostLedger::new(), counter: Counter::default() }
    }

    pub(crate) fn memory(&self) -> HostMemory {
        // SAFETY: the functions pass on to those of the ledger, which may be called by any thread; the counter is used
        // by the one thread of the test only.
        unsafe { HostMemory::new((&raw const *self).cast_mut().cast(), allocate, deallocate) }
    }
}

unsafe extern "C" fn allocate(user_data: *mut c_void, size: u64, alignment: u64) -> *mut c_void {
    // SAFETY: `memory` passed a `RefusingHost`, which outlives the user of its memory.
    let host = unsafe { &*user_data.cast::<RefusingHost>() };
    if host.counter.refuses_next() {
        return ptr::null_mut();
    }
    let layout = Layout::from_size_align(size as usize, alignment as usize);
    let memory = layout.ok().and_then(|layout| host.ledger.memory().allocate(layout).ok());
    memory.map_or(ptr::null_mut(), |memory| memory.as_ptr().cast())
}

unsafe extern "C" fn deallocate(user_data: *mut c_void, memory: *mut c_void, size: u64, alignment: u64) {
    // SAFETY: as in `allocate`.
    let host = unsafe { &*user_data.cast::<RefusingHost>() };
    if let (Some(memory), Ok(layout)) =
        (NonNull::new(memory.cast()), Layout::from_size_align(size as usize, alignment as usize))
    {
        // SAFETY: the ledger gave it, with this layout; if it did not, it says so.
        unsafe { host.ledger.memory().deallocate(memory, layout) };
    }
}

/// What is refused.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failures {
    pub(crate) device: Option<Calls>,
    pub(crate) host: Option<Calls>,
}

impl Failures {
    const fn of_device(calls: Calls) -> Self {
        Self { device: Some(calls), host: None }
    }

    const fn of_host(calls: Calls) -> Self {
        Self { device: None, host: Some(calls) }
    }

    /// Whether two single calls are refused, which may be of two tries.
    fn is_pair(self) -> bool {
        let is_both = matches!(self.device.or(self.host), Some(Calls::Both(..)));
        is_both || (self.device.is_some() && self.host.is_some())
    }

    /// From now on these are refused.
    pub(crate) fn begin(self, device: &Refusing, host: &RefusingHost) {
        device.counter.refuses.set(self.device);
        host.counter.refuses.set(self.host);
    }

    /// Goes on where it was ended, if there is something to come.
    pub(crate) fn resume(self, device: &Refusing, host: &RefusingHost) {
        if self.is_pair() {
            self.begin(device, host);
        }
    }

    /// From now on nothing is refused, nor counted. How many calls of the device and of the host have been refused.
    pub(crate) fn end(device: &Refusing, host: &RefusingHost) -> (u64, u64) {
        Self::default().begin(device, host);
        (device.counter.refused.get(), host.counter.refused.get())
    }
}

/// What became of a scenario that was played once.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    /// Calls of the device and of the host that were refused.
    pub(crate) refused: (u64, u64),
    /// Whether the scenario's call was refused because of that.
    pub(crate) failed: bool,
}

/// What came of a scenario that was played with every failure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Played {
    /// Failures that it met.
    pub(crate) tried: u64,
    /// Pairs of failures, both of which it met.
    pub(crate) pairs: u64,
    /// Calls that were refused because of the device, and because of the host; those with pairs are not counted.
    pub(crate) by_device: u64,
    pub(crate) by_host: u64,
}

impl Played {
    /// Panics if there was nothing that could fail.
    pub(crate) fn assert_tried(self) -> Self {
        assert!(self.tried > 0 && self.pairs > 0, "nothing failed: {self:?}");
        self
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.tried += other.tried;
        self.pairs += other.pairs;
        self.by_device += other.by_device;
        self.by_host += other.by_host;
    }

    fn print(self) -> Self {
        let test = std::thread::current().name().unwrap_or("a thread").to_owned();
        if self.tried != 0 {
            println!("{test}: {} failures and {} pairs of them", self.tried, self.pairs);
        }
        self
    }
}

/// The number of a call that may be left out where every instruction is watched.
fn is_skipped(k: u64) -> bool {
    cfg!(miri) && ![1, 2, 3, 5, 9].contains(&k) && k % 16 != 0
}

/// Plays a scenario with the k-th call refused, for every k until there is no such call.
fn each_call(mut play: impl FnMut(u64) -> bool) {
    for k in (1u64..).filter(|k| !is_skipped(*k)) {
        if !play(k) {
            return;
        }
        assert!(k < 1000, "there is no end to it");
    }
}

/// Plays a scenario with every call of the device and of the host refused in turn, once and from then on.
fn one_by_one(play: impl Fn(Failures) -> Outcome) -> Played {
    let mut played = Played::default();
    for calls in [Calls::Once, Calls::From] {
        each_call(|k| {
            let Outcome { refused, failed } = play(Failures::of_device(calls(k)));
            played.tried += u64::from(refused.0 != 0);
            played.by_device += u64::from(failed);
            refused.0 != 0
        });
        each_call(|k| {
            let Outcome { refused, failed } = play(Failures::of_host(calls(k)));
            played.tried += u64::from(refused.1 != 0);
            played.by_host += u64::from(failed);
            refused.1 != 0
        });
    }
    played
}

/// The same, and with every two calls refused: two of the device, two of the host, one of each.
pub(crate) fn with_every_failure(play: impl Fn(Failures) -> Outcome) -> Played {
    let mut played = one_by_one(&play);
    for of in [Failures::of_device, Failures::of_host] {
        each_call(|k| {
            let mut is_met = false;
            each_call(|further| {
                let refused = play(of(Calls::Both(k, k + further))).refused;
                let refused = refused.0 + refused.1;
                is_met |= refused != 0;
                played.pairs += u64::from(refused == 2);
                refused == 2
            });
            is_met
        });
    }
    each_call(|k| {
        let mut is_met = false;
        each_call(|l| {
            let both = Failures { device: Some(Calls::Once(k)), host: Some(Calls::Once(l)) };
            let refused = play(both).refused;
            is_met |= refused.0 != 0;
            played.pairs += u64::from(refused == (1, 1));
            refused.1 != 0
        });
        is_met
    });
    played.print()
}
