//! A device with memory that can be looked at, which fills it on demand, or not.

use super::devices::LedgerDevice;
use super::lock;
use slicepool_core::{
    Device, DeviceError, DeviceMemory, FillReason, FillRequest, HostDevice, PageRequest, Point, Slice,
};
use std::sync::Mutex;

/// How [`Filler`] answers what it is asked to fill.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    /// Does it, and answers that it is done.
    Now,
    /// Does it, and answers with a point.
    Until(Point),
    /// Does nothing and refuses.
    Never(DeviceError),
}

/// A call to fill memory: why, where, how much.
pub(crate) type Filled = (FillReason, u64, u64, u64);

type During = dyn Fn(&FillRequest) + Send + Sync;

/// Host memory that keeps books, whose new pages are full of [`Filler::OLD`].
pub(crate) struct Filler {
    pub(crate) ledger: LedgerDevice<HostDevice>,
    fill: Mutex<Fill>,
    filled: Mutex<Vec<Filled>>,
    during: Mutex<Option<Box<During>>>,
}

impl Filler {
    /// What new pages are full of.
    pub(crate) const OLD: u8 = 0x11;

    pub(crate) fn new() -> Self {
        Self {
            ledger: LedgerDevice::over(HostDevice::new()),
            fill: Mutex::new(Fill::Now),
            filled: Mutex::default(),
            during: Mutex::new(None),
        }
    }

    /// From now on fills so.
    pub(crate) fn fill_so(&self, fill: Fill) {
        *self.fill.lock().unwrap() = fill;
    }

    /// Runs `during` in every call to fill memory, but not in those that come of that.
    pub(crate) fn in_each_fill(&self, during: impl Fn(&FillRequest) + Send + Sync + 'static) {
        *self.during.lock().unwrap() = Some(Box::new(during));
    }

    /// The calls to fill memory since this was last asked for, refused ones included.
    pub(crate) fn take_filled(&self) -> Vec<Filled> {
        std::mem::take(&mut self.filled.lock().unwrap())
    }
}

impl Device for Filler {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        let memory = self.ledger.allocate(request)?;
        // SAFETY: fresh host memory of that size.
        unsafe { memory.mapped.write_bytes(Self::OLD, request.size as usize) };
        Ok(memory)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.ledger.deallocate(memory)
    }

    fn can_fill(&self) -> bool {
        true
    }

    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        assert!(!lock::is_held_here(), "the device was called under a lock");
        let FillRequest { memory, offset, size, reason, .. } = *request;
        assert!(self.ledger.is_out(memory.handle), "memory that went back is to be filled");
        assert!(size != 0 && offset + size <= memory.size, "{request:?}");
        self.filled.lock().unwrap().push((reason, memory.handle, offset, size));
        let during = self.during.lock().unwrap().take();
        if let Some(during) = during {
            during(request);
            *self.during.lock().unwrap() = Some(during);
        }
        let fill = *self.fill.lock().unwrap();
        if let Fill::Never(error) = fill {
            return Err(error);
        }
        // SAFETY: the page is out, and the range lies in it.
        unsafe { memory.mapped.add(offset as usize).write_bytes(0, size as usize) };
        Ok(if let Fill::Until(point) = fill { Some(point) } else { None })
    }
}

/// The call that fills exactly this slice.
pub(crate) fn filling(reason: FillReason, slice: &Slice) -> Filled {
    (reason, slice.memory, slice.offset, slice.size)
}

/// The bytes of a slice whose page is held, and `more` behind it.
pub(crate) fn bytes_of(slice: &Slice, more: u64) -> Vec<u8> {
    // SAFETY: host memory that a `Filler` gave out, for a page that is held and that nobody writes to meanwhile.
    unsafe { std::slice::from_raw_parts(slice.mapped, (slice.size + more) as usize) }.to_vec()
}

/// Writes `value` to a byte at or behind a slice's start.
pub(crate) fn write_at(slice: &Slice, offset: u64, value: u8) {
    // SAFETY: as in `bytes_of`.
    unsafe { slice.mapped.add(offset as usize).write(value) };
}

/// Whether a slice is full of one value.
pub(crate) fn is_full_of(slice: &Slice, value: u8) -> bool {
    bytes_of(slice, 0).iter().all(|&byte| byte == value)
}

/// Fills a slice as its owner would.
pub(crate) fn write_all(slice: &Slice, value: u8) {
    (0..slice.size).for_each(|offset| write_at(slice, offset, value));
}
