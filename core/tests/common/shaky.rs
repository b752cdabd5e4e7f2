//! A device whose calls fail on demand, whatever they are for.

use super::devices::{KEPT, LedgerDevice, NONE_LEFT};
use super::host::HostLedger;
use slicepool_core::{Device, DeviceError, DeviceMemory, PageRequest};
use std::cell::Cell;

/// Which calls fail, counted from the moment of injection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failing {
    /// The first that does, from 1 on.
    pub(crate) k: u64,
    pub(crate) for_ever: bool,
}

/// A ledger's device, or a failure.
pub(crate) struct Shaky {
    pub(crate) ledger: LedgerDevice,
    failing: Cell<Option<Failing>>,
    calls: Cell<u64>,
    pub(crate) failed: Cell<u64>,
    /// Pages it did not take back.
    pub(crate) kept: Cell<u64>,
    /// Whether only calls for pages fail.
    pub(crate) takes_back: Cell<bool>,
}

impl Shaky {
    pub(crate) fn new() -> Self {
        let zero = || Cell::new(0);
        Self {
            ledger: LedgerDevice::new(),
            failing: Cell::new(None),
            calls: zero(),
            failed: zero(),
            kept: zero(),
            takes_back: Cell::new(false),
        }
    }

    /// From now on calls fail like this, or none does.
    pub(crate) fn fail(&self, failing: Option<Failing>) {
        self.calls.set(0);
        self.failing.set(failing);
    }

    fn fails(&self) -> bool {
        self.calls.set(self.calls.get() + 1);
        let fails = self
            .failing
            .get()
            .is_some_and(|Failing { k, for_ever }| self.calls.get() == k || (for_ever && self.calls.get() > k));
        self.failed.set(self.failed.get() + u64::from(fails));
        fails
    }
}

impl Device for Shaky {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        if self.fails() { Err(DeviceError::OutOfMemory(NONE_LEFT)) } else { self.ledger.allocate(request) }
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        if !self.takes_back.get() && self.fails() {
            self.kept.set(self.kept.get() + 1);
            return Err(DeviceError::Failed(KEPT));
        }
        self.ledger.deallocate(memory)
    }
}

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    Device,
    Host,
}

impl Part {
    /// From now on calls fail.
    pub(crate) fn fail(self, failing: Failing, device: &Shaky, host: &HostLedger) {
        match self {
            Part::Device => device.fail(Some(failing)),
            Part::Host if failing.for_ever => host.fail_from(failing.k),
            Part::Host => host.fail_once(failing.k),
        }
    }
}

/// From now on nothing fails. Whether anything has.
pub(crate) fn end_failing(device: &Shaky, host: &HostLedger) -> bool {
    let failed = device.failed.get() + host.refused() != 0;
    device.fail(None);
    host.stop_failing();
    failed
}

/// Plays a scenario with every failure: `play` says whether anything failed, and whether the call was refused. How many
/// calls were refused because of the device, and because of the host.
pub(crate) fn with_every_failure(play: impl Fn(Part, Failing) -> (bool, bool)) -> (u64, u64) {
    let play_with = |part| {
        let mut refused = 0;
        for for_ever in [false, true] {
            for k in 1u64.. {
                if cfg!(miri) && ![1, 2, 3, 5, 9].contains(&k) && k % 16 != 0 {
                    continue;
                }
                let (failed, was_refused) = play(part, Failing { k, for_ever });
                refused += u64::from(was_refused);
                if !failed {
                    break;
                }
                assert!(k < 1000, "there is no end to it");
            }
        }
        refused
    };
    (play_with(Part::Device), play_with(Part::Host))
}
