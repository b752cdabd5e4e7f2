//! Devices for tests: one without memory, one that keeps books, one that does what a test says, one that stops, one that
//! tells what it was asked.

use super::lock;
use slicepool_core::{Device, DeviceError, DeviceMemory, PageRequest, Shortage};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::Duration;

/// Makes up distinct handles and addresses, and has no memory at all: nothing may ever touch a page.
pub(crate) struct VirtualDevice {
    next_handle: AtomicU64,
    next_address: Mutex<u64>,
}

impl VirtualDevice {
    pub(crate) const fn new() -> Self {
        Self { next_handle: AtomicU64::new(1), next_address: Mutex::new(1 << 40) }
    }
}

impl Default for VirtualDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl Device for VirtualDevice {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        let mut next = self.next_address.lock().unwrap();
        let address = next.next_multiple_of(request.alignment);
        *next = address.checked_add(request.size).ok_or(DeviceError::OutOfMemory(0))?;
        // A pattern in the field that is the device's own.
        let context = std::ptr::without_provenance_mut(!address as usize);
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        Ok(DeviceMemory { address, context, ..DeviceMemory::new(handle) })
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        assert_eq!(memory.context.addr(), !memory.address as usize, "the device's own field came back changed");
        Ok(())
    }
}

/// Keeps books on another device, and refuses what a test tells it to refuse.
///
/// Panics if memory is given back that is not out, or with another size; if it is called under a lock; and on drop, if
/// anything is still out.
pub(crate) struct LedgerDevice<D: Device = VirtualDevice> {
    inner: D,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    /// Sizes of the pages that are out, by handle and address.
    out: HashMap<(u64, u64), u64>,
    bytes: u64,
    bytes_peak: u64,
    /// Pages given out and taken back, and calls refused.
    given: u64,
    taken: u64,
    allocate_refused: u64,
    deallocate_refused: u64,
    /// Bytes that may be out at a time.
    heap: Option<u64>,
    /// Calls that will still be served before one is refused.
    serve: Option<u64>,
    /// Whether nothing is taken back.
    keeps: bool,
    /// Sizes of all pages given out, in order.
    sizes: Vec<u64>,
}

/// Code of a refusal to give memory.
pub(crate) const NONE_LEFT: i32 = -2;
/// Code of a refusal to take memory back.
pub(crate) const KEPT: i32 = -77;

impl LedgerDevice {
    /// Over a [`VirtualDevice`].
    pub(crate) fn new() -> Self {
        Self::over(VirtualDevice::new())
    }
}

impl<D: Device> LedgerDevice<D> {
    pub(crate) fn over(inner: D) -> Self {
        Self { inner, book: Mutex::default() }
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The device that books are kept on.
    pub(crate) fn inner(&self) -> &D {
        &self.inner
    }

    /// At most this many bytes are given out at a time.
    pub(crate) fn limit_to(&self, bytes: u64) {
        self.book().heap = Some(bytes);
    }

    /// Serves `count` more calls and refuses the one after; then serves again.
    pub(crate) fn refuse_after(&self, count: u64) {
        self.book().serve = Some(count);
    }

    /// From now on: refuses to take anything back, or no longer.
    pub(crate) fn keep_everything(&self, keeps: bool) {
        self.book().keeps = keeps;
    }

    /// Pages that are out.
    pub(crate) fn pages(&self) -> u64 {
        self.book().out.len() as u64
    }

    /// Bytes that are out.
    pub(crate) fn bytes(&self) -> u64 {
        self.book().bytes
    }

    /// The most bytes that have been out.
    pub(crate) fn bytes_peak(&self) -> u64 {
        self.book().bytes_peak
    }

    /// Pages ever given out.
    pub(crate) fn given(&self) -> u64 {
        self.book().given
    }

    /// Pages ever taken back.
    pub(crate) fn taken(&self) -> u64 {
        self.book().taken
    }

    /// Calls, refused ones included.
    pub(crate) fn calls(&self) -> u64 {
        let book = self.book();
        book.given + book.taken + book.allocate_refused + book.deallocate_refused
    }

    /// Calls for a page that were refused.
    pub(crate) fn allocate_refused(&self) -> u64 {
        self.book().allocate_refused
    }

    /// Attempts to give a page back that were refused.
    pub(crate) fn deallocate_refused(&self) -> u64 {
        self.book().deallocate_refused
    }

    /// Sizes of all pages ever given out, in order.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        self.book().sizes.clone()
    }

    /// Handles of the pages that are out.
    pub(crate) fn handles(&self) -> HashSet<u64> {
        self.book().out.keys().map(|&(handle, _)| handle).collect()
    }

    /// Whether a page with this handle is out.
    pub(crate) fn is_out(&self, handle: u64) -> bool {
        self.book().out.keys().any(|&(out, _)| out == handle)
    }

    /// Writes off what is out: for memory that the allocator was told to abandon.
    pub(crate) fn write_off(&self) {
        let mut book = self.book();
        book.out.clear();
        book.bytes = 0;
    }

    /// Panics if a page is out, or if one was given and taken unequally often.
    pub(crate) fn assert_all_returned(&self) {
        let book = self.book();
        assert_eq!((book.out.len(), book.bytes), (0, 0), "pages were not given back");
    }
}

impl<D: Device> Device for LedgerDevice<D> {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        assert!(!lock::is_held_here(), "the device was called under a lock");
        assert!(request.size != 0 && request.alignment.is_power_of_two());
        let mut book = self.book();
        let served = match &mut book.serve {
            Some(0) => {
                book.serve = None;
                false
            }
            Some(count) => {
                *count -= 1;
                true
            }
            None => true,
        };
        let fits = book.heap.is_none_or(|heap| book.bytes.checked_add(request.size).is_some_and(|sum| sum <= heap));
        if !served || !fits {
            book.allocate_refused += 1;
            return Err(DeviceError::OutOfMemory(NONE_LEFT));
        }
        let memory = self.inner.allocate(request)?;
        book.given += 1;
        book.bytes += request.size;
        book.bytes_peak = book.bytes_peak.max(book.bytes);
        book.sizes.push(request.size);
        let known = book.out.insert((memory.handle, memory.address), request.size);
        assert_eq!(known, None, "the device beneath gave out the same memory twice");
        Ok(memory)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        assert!(!lock::is_held_here(), "the device was called under a lock");
        let mut book = self.book();
        let name = (memory.handle, memory.address);
        assert_eq!(book.out.get(&name), Some(&memory.size), "memory {name:?} came back that was not out like that");
        if book.keeps {
            book.deallocate_refused += 1;
            return Err(DeviceError::Failed(KEPT));
        }
        self.inner.deallocate(memory)?;
        book.out.remove(&name);
        book.bytes -= memory.size;
        book.taken += 1;
        Ok(())
    }
}

impl<D: Device> Drop for LedgerDevice<D> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_all_returned();
            let book = self.book();
            assert!(book.taken <= book.given);
        }
    }
}

/// A device made of two closures.
pub(crate) struct ScriptedDevice<A, D> {
    pub(crate) allocate: A,
    pub(crate) deallocate: D,
}

impl<A, D> Device for ScriptedDevice<A, D>
where
    A: Fn(&PageRequest) -> Result<DeviceMemory, DeviceError>,
    D: Fn(&DeviceMemory) -> Result<(), DeviceError>,
{
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        (self.allocate)(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        (self.deallocate)(memory)
    }
}

/// A device that stops in its first call for a page until it is told to go on.
pub(crate) struct Gate {
    pub(crate) ledger: LedgerDevice,
    entered: mpsc::Sender<()>,
    go_on: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Gate {
    /// The gate, what is sent when it is reached, and what opens it.
    pub(crate) fn new() -> (Self, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (entered, reached) = mpsc::channel();
        let (open, go_on) = mpsc::channel();
        (Self { ledger: LedgerDevice::new(), entered, go_on: Mutex::new(Some(go_on)) }, reached, open)
    }
}

impl Device for Gate {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        let gate = self.go_on.lock().unwrap().take();
        if let Some(go_on) = gate {
            self.entered.send(()).unwrap();
            go_on.recv_timeout(Duration::from_secs(60)).expect("nobody opened the gate");
        }
        self.ledger.allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.ledger.deallocate(memory)
    }
}

/// What a [`LoggedDevice`] was asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Asked {
    /// For a page of so many bytes, whether it gave it or not.
    Page(u64),
    /// To take the page of that handle back.
    Back(u64),
    /// How far that timeline is.
    Completed(u32),
    /// For help, for the so-many-th time.
    Help(u32),
}

type Help = dyn Fn(&Shortage) -> bool + Send + Sync;

/// Keeps books, and writes down what it is asked in order.
pub(crate) struct LoggedDevice {
    pub(crate) ledger: LedgerDevice,
    log: Mutex<Vec<Asked>>,
    /// What timelines have completed; of others nothing is known.
    completed: Mutex<HashMap<u32, u64>>,
    /// In place of the answer to a call for a page of at least so many bytes.
    failure: Mutex<Option<(u64, DeviceError)>>,
    help: OnceLock<Box<Help>>,
}

impl LoggedDevice {
    pub(crate) fn new() -> Self {
        Self {
            ledger: LedgerDevice::new(),
            log: Mutex::default(),
            completed: Mutex::default(),
            failure: Mutex::default(),
            help: OnceLock::new(),
        }
    }

    /// What was asked since the last call of this.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    /// From now on a timeline has completed a value.
    pub(crate) fn complete(&self, timeline: u32, value: u64) {
        self.completed.lock().unwrap().insert(timeline, value);
    }

    /// From now on every call for a page fails like that, or none does.
    pub(crate) fn fail_with(&self, failure: Option<DeviceError>) {
        self.fail_for(failure.map(|failure| (0, failure)));
    }

    /// The same for pages of at least so many bytes.
    pub(crate) fn fail_for(&self, failure: Option<(u64, DeviceError)>) {
        *self.failure.lock().unwrap() = failure;
    }

    /// What [`Device::out_of_memory`] does and answers; to be said once. Otherwise there is no help.
    pub(crate) fn help_with(&self, help: impl Fn(&Shortage) -> bool + Send + Sync + 'static) {
        assert!(self.help.set(Box::new(help)).is_ok());
    }

    fn note(&self, asked: Asked) {
        assert!(!lock::is_held_here(), "the device was called under a lock");
        self.log.lock().unwrap().push(asked);
    }
}

impl Device for LoggedDevice {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.note(Asked::Page(request.size));
        match *self.failure.lock().unwrap() {
            Some((size, failure)) if request.size >= size => Err(failure),
            _ => self.ledger.allocate(request),
        }
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.note(Asked::Back(memory.handle));
        self.ledger.deallocate(memory)
    }

    fn completed(&self, timeline: u32) -> Option<u64> {
        self.note(Asked::Completed(timeline));
        self.completed.lock().unwrap().get(&timeline).copied()
    }

    fn out_of_memory(&self, shortage: &Shortage) -> bool {
        self.note(Asked::Help(shortage.attempt));
        self.help.get().is_some_and(|help| help(shortage))
    }
}
