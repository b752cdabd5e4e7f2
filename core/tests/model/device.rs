//! A device without memory: it makes up pages, sometimes refuses, sometimes lies, and writes down what it was asked.

use crate::compare::place_of_pool;
use slicepool_core::{
    Device, DeviceError, DeviceFault, DeviceMemory, Error, FillReason, FillRequest, PageRequest, Point, Shortage,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::rc::Rc;

/// What a device says to one request for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Page,
    OutOfMemory,
    Failed,
    UnknownResult,
    /// Success without a handle.
    NotFilled,
    /// A page that is live.
    Duplicate,
    /// A page at an odd address, where the device knows addresses.
    Misaligned,
}

/// What a device says to one order to fill memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    Done,
    Failed,
    OutOfMemory,
    /// It will be done so far from where that timeline is.
    Later {
        timeline: u32,
        ahead: u8,
    },
}

/// How pages are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By a handle that is never used again.
    Handle,
    /// By a handle and an address that come back with the next page of the size.
    Address,
    /// The same, mapped.
    Mapping,
}

/// Something the device has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A good page.
    Page {
        pool: usize,
        size: u64,
        handle: u64,
    },
    /// No page; the library must make `error` of it.
    NoPage {
        pool: usize,
        size: u64,
        error: Error,
    },
    /// A page that the library must refuse with `error` and give back.
    BadPage {
        pool: usize,
        size: u64,
        handle: u64,
        error: Error,
    },
    Returned {
        handle: u64,
    },
    /// The device refused to take the page back.
    NotReturned {
        handle: u64,
        code: i32,
    },
    /// It was told of a request that cannot be served, and said whether to try again.
    Told {
        shortage: Shortage,
        again: bool,
    },
    /// It was asked how far a timeline is.
    Asked {
        timeline: u32,
        completed: Option<u64>,
    },
    /// It was told to fill memory.
    Filled {
        handle: u64,
        offset: u64,
        size: u64,
        reason: FillReason,
        answer: Result<Option<Point>, DeviceError>,
    },
}

/// Events in order, to be accounted for one by one.
pub(crate) type Events = VecDeque<Event>;

impl Event {
    /// Of a request for a page: for which pool, and of how many bytes.
    pub(crate) fn request(&self) -> Option<(usize, u64)> {
        match *self {
            Event::Page { pool, size, .. } | Event::NoPage { pool, size, .. } | Event::BadPage { pool, size, .. } => {
                Some((pool, size))
            }
            _ => None,
        }
    }

    pub(crate) fn is_return_of(&self, page: u64) -> bool {
        matches!(*self, Event::Returned { handle } | Event::NotReturned { handle, .. } if handle == page)
    }
}

#[derive(Debug)]
struct State {
    /// Alignment each pool's pages must be asked for, that of persistent slices last.
    alignments: Vec<u64>,
    held: BTreeMap<u64, DeviceMemory>,
    free_names: Vec<DeviceMemory>,
    next_handle: u64,
    next_address: u64,
    bytes: u64,
    answers: VecDeque<Answer>,
    refuse_returns: u8,
    hopes: u8,
    fills: VecDeque<Fill>,
    /// How far each timeline is.
    progress: BTreeMap<u32, u64>,
    events: Events,
    broken_rule: Option<String>,
}

/// The device. Clones are the same device.
#[derive(Clone, Debug)]
pub(crate) struct VirtualDevice {
    naming: Naming,
    /// Bytes it has.
    limit: u64,
    tells: bool,
    can_fill: bool,
    state: Rc<RefCell<State>>,
}

impl VirtualDevice {
    pub(crate) fn new(naming: Naming, limit: u64, alignments: Vec<u64>, tells: bool, can_fill: bool) -> Self {
        let state = State {
            alignments,
            held: BTreeMap::new(),
            free_names: Vec::new(),
            next_handle: 1,
            next_address: 0,
            bytes: 0,
            answers: VecDeque::new(),
            refuse_returns: 0,
            hopes: 0,
            fills: VecDeque::new(),
            progress: BTreeMap::new(),
            events: Events::new(),
            broken_rule: None,
        };
        Self { naming, limit, tells, can_fill, state: Rc::new(RefCell::new(state)) }
    }

    /// Says what to answer to the next requests, how many pages not to take back, and for how many requests that cannot
    /// be served to give hope.
    pub(crate) fn set_mood(&self, answers: &[Answer], refuse_returns: u8, hopes: u8) {
        let mut state = self.state.borrow_mut();
        state.answers = answers.iter().copied().collect();
        state.refuse_returns = refuse_returns;
        state.hopes = hopes;
    }

    /// Says what to answer to the next orders to fill memory.
    pub(crate) fn set_fills(&self, fills: &[Fill]) {
        self.state.borrow_mut().fills = fills.iter().copied().collect();
    }

    /// A timeline has gone so far further.
    pub(crate) fn progress(&self, timeline: u32, by: u8) {
        let mut state = self.state.borrow_mut();
        *state.progress.entry(timeline).or_default() += u64::from(by);
    }

    /// Other pools are in place of those there were.
    pub(crate) fn set_alignments(&self, alignments: Vec<u64>) {
        self.state.borrow_mut().alignments = alignments;
    }

    /// What happened since the last call, or the rule that the library has broken.
    pub(crate) fn take_events(&self) -> Result<Events, String> {
        let mut state = self.state.borrow_mut();
        match state.broken_rule.take() {
            Some(rule) => Err(rule),
            None => Ok(std::mem::take(&mut state.events)),
        }
    }

    pub(crate) fn pages_held(&self) -> usize {
        self.state.borrow().held.len()
    }
}

impl State {
    fn name_page(&mut self, naming: Naming, request: &PageRequest, misaligned: bool) -> DeviceMemory {
        let fits = |name: &DeviceMemory| name.size == request.size && name.address % request.alignment == 0;
        if let (false, Some(index)) = (misaligned, self.free_names.iter().rposition(fits)) {
            return self.free_names.swap_remove(index);
        }
        let mut memory = DeviceMemory::new(self.next_handle);
        self.next_handle += 1;
        if naming != Naming::Handle {
            let address = (self.next_address + 1).next_multiple_of(request.alignment);
            self.next_address = address + request.size;
            memory.address = address + u64::from(misaligned);
        }
        if naming == Naming::Mapping {
            memory.mapped = ptr::without_provenance_mut(memory.address as usize);
        }
        memory.size = request.size;
        memory
    }
}

impl Device for VirtualDevice {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        let state = &mut *self.state.borrow_mut();
        let pool = place_of_pool(request.pool, state.alignments.len() - 2);
        if state.alignments.get(pool) != Some(&request.alignment) || request.size == 0 {
            state.broken_rule = Some(format!("the device was asked for {request:?}"));
        }
        let size = request.size;
        let no_room = self.limit - state.bytes < size;
        let can_misalign = self.naming != Naming::Handle && request.alignment > 1;
        let answer = match state.answers.pop_front().unwrap_or(Answer::Page) {
            Answer::Page | Answer::Misaligned if no_room => Answer::OutOfMemory,
            Answer::Misaligned if !can_misalign => Answer::Page,
            Answer::Duplicate if state.held.is_empty() => Answer::OutOfMemory,
            answer => answer,
        };
        let fault = |fault, code| Error::DeviceFailed { fault, code };
        let (error, result) = match answer {
            Answer::OutOfMemory => {
                let error = Error::OutOfDeviceMemory { size, code: -2 };
                (error, Err(DeviceError::OutOfMemory(-2)))
            }
            Answer::Failed => (fault(DeviceFault::Reported, -4), Err(DeviceError::Failed(-4))),
            Answer::UnknownResult => (fault(DeviceFault::UnknownResult, 99), Err(DeviceError::UnknownResult(99))),
            Answer::NotFilled => (fault(DeviceFault::NotFilled, 0), Ok(DeviceMemory::new(u64::MAX))),
            Answer::Duplicate => {
                let held = state.held.values().next_back().copied();
                (fault(DeviceFault::Duplicate, 0), held.ok_or(DeviceError::OutOfMemory(0)))
            }
            Answer::Page | Answer::Misaligned => {
                let misaligned = answer == Answer::Misaligned;
                let memory = state.name_page(self.naming, request, misaligned);
                let handle = memory.handle;
                state.held.insert(handle, memory);
                state.bytes += size;
                state.events.push_back(if misaligned {
                    Event::BadPage { pool, size, handle, error: fault(DeviceFault::Misaligned, 0) }
                } else {
                    Event::Page { pool, size, handle }
                });
                // The library must fill in the size by itself.
                return Ok(DeviceMemory { size: 0, ..memory });
            }
        };
        state.events.push_back(Event::NoPage { pool, size, error });
        result
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        let state = &mut *self.state.borrow_mut();
        let handle = memory.handle;
        if state.held.get(&handle) != Some(memory) {
            state.broken_rule = Some(format!("{memory:?} was given back, which is not held"));
            return Ok(());
        }
        if state.refuse_returns != 0 {
            state.refuse_returns -= 1;
            let code = -i32::from(state.refuse_returns) - 10;
            state.events.push_back(Event::NotReturned { handle, code });
            return Err(DeviceError::Failed(code));
        }
        state.held.remove(&handle);
        state.bytes -= memory.size;
        if self.naming != Naming::Handle {
            state.free_names.push(*memory);
        }
        state.events.push_back(Event::Returned { handle });
        Ok(())
    }

    fn out_of_memory(&self, shortage: &Shortage) -> bool {
        let state = &mut *self.state.borrow_mut();
        let again = state.hopes != 0;
        state.hopes = state.hopes.saturating_sub(1);
        state.events.push_back(Event::Told { shortage: *shortage, again });
        again
    }

    fn completed(&self, timeline: u32) -> Option<u64> {
        let state = &mut *self.state.borrow_mut();
        let completed = self.tells.then(|| state.progress.get(&timeline).copied().unwrap_or(0));
        state.events.push_back(Event::Asked { timeline, completed });
        completed
    }

    fn can_fill(&self) -> bool {
        self.can_fill
    }

    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        let state = &mut *self.state.borrow_mut();
        let FillRequest { memory, offset, size, reason, .. } = *request;
        let handle = memory.handle;
        if state.held.get(&handle) != Some(&memory) {
            state.broken_rule = Some(format!("{memory:?} was to be filled, which is not held"));
        }
        let answer = match state.fills.pop_front().unwrap_or(Fill::Done) {
            Fill::Done => Ok(None),
            Fill::Failed => Err(DeviceError::Failed(-5)),
            Fill::OutOfMemory => Err(DeviceError::OutOfMemory(-3)),
            Fill::Later { timeline, ahead } => {
                let now = state.progress.get(&timeline).copied().unwrap_or(0);
                Ok(Some(Point::new(timeline, now + u64::from(ahead))))
            }
        };
        state.events.push_back(Event::Filled { handle, offset, size, reason, answer });
        answer
    }
}
