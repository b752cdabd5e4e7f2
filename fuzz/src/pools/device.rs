//! A device that fails, lies, and calls back, as the input says.

use super::subject::Reentry;
use slicepool_core::{
    CacheRange, Device, DeviceError, DeviceMemory, Event, FillReason, FillRequest, HeapBudget, MemoryType, PageRequest,
    Point, ResourceKind, Shortage, Slice,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::rc::Rc;

/// How pages are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// By a number that is used again, 0 among them.
    Handle,
    /// By a number and an address.
    Address,
    /// By a number, an address, and a mapping for good.
    Mapped,
}

/// What a device is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    pub(super) naming: Naming,
    /// Bytes that it has.
    pub(super) limit: u128,
    pub(super) can_fill: bool,
    pub(super) can_map: bool,
    pub(super) can_flush: bool,
    /// Whether it knows how far timelines are.
    pub(super) tells: bool,
    pub(super) hears: bool,
    /// The bytes and pages that its allocator may hold.
    pub(super) max_bytes: Option<u64>,
    pub(super) max_pages: Option<u32>,
    pub(super) dry_run: bool,
    /// Whether it does what it should.
    pub(super) is_honest: bool,
}

/// A page that is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) memory: DeviceMemory,
    pub(super) memory_type: u32,
    is_seen: bool,
    /// Whether it is just being given back.
    is_leaving: bool,
    /// Whether the device has refused to take it back.
    pub(super) stuck: bool,
}

/// A slice that is live.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    pub(super) slice: Slice,
    pub(super) asked: u64,
    pub(super) scrub: bool,
    pub(super) kind: ResourceKind,
}

/// A slice that was freed, but whose memory is not free.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) id: u64,
    pub(super) memory: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) points: Vec<Point>,
    /// Whether it has still to be overwritten.
    pub(super) scrub: bool,
}

/// What a device knows and does.
pub(super) struct State {
    pub(super) habits: Habits,
    pub(super) held: BTreeMap<u64, Held>,
    pub(super) bytes: u128,
    /// How to answer, and what to do meanwhile, one byte for each call; the good answer when there are none.
    pub(super) script: VecDeque<u8>,
    /// How far each timeline is.
    pub(super) progress: BTreeMap<u32, u64>,
    /// How far the allocator knows each to be.
    pub(super) told: BTreeMap<u32, u64>,
    pub(super) live: BTreeMap<u64, Live>,
    pub(super) pending: Vec<Pending>,
    /// The memory types.
    pub(super) types: Vec<MemoryType>,
    next_address: u64,
    /// Calls that a request which must not grow does not make.
    pub(super) asked: u64,
    /// Whether the allocator is being closed: what is in it counts no more.
    pub(super) is_ending: bool,
    /// Whether slices that were to be scrubbed have been taken back before anybody saw them.
    pub(super) unseen: bool,
    /// Calls that were refused, or answered with a lie.
    pub(super) faults: u64,
}

/// A device and those who look into it.
#[derive(Clone)]
pub(super) struct FuzzDevice(pub(super) Rc<World>);

/// What the device and its user share.
pub(super) struct World {
    pub(super) state: RefCell<State>,
    /// Who is called back.
    pub(super) reentry: RefCell<Option<Rc<dyn Reentry>>>,
    depth: Cell<u32>,
}

/// Callbacks that run within each other and call back.
const DEEPEST: u32 = 2;

impl World {
    pub(super) fn new(habits: Habits, types: Vec<MemoryType>) -> Self {
        let state = State {
            habits,
            held: BTreeMap::new(),
            bytes: 0,
            script: VecDeque::new(),
            progress: BTreeMap::new(),
            told: BTreeMap::new(),
            live: BTreeMap::new(),
            pending: Vec::new(),
            types,
            next_address: 0,
            asked: 0,
            is_ending: false,
            unseen: habits.dry_run,
            faults: 0,
        };
        Self { state: RefCell::new(state), reentry: RefCell::new(None), depth: Cell::new(0) }
    }

    /// What to answer to this call, after what is done meanwhile.
    fn answer(&self) -> u8 {
        let byte = self.state.borrow_mut().script.pop_front().unwrap_or(0);
        let reentry = self.reentry.borrow().clone();
        if let Some(reentry) = reentry.filter(|_| byte >> 4 != 0 && self.depth.get() < DEEPEST) {
            self.depth.set(self.depth.get() + 1);
            reentry.call_back(byte >> 4);
            self.depth.set(self.depth.get() - 1);
        }
        byte & 15
    }

    /// Whether a callback is running.
    pub(super) fn is_inside(&self) -> bool {
        self.depth.get() != 0
    }
}

impl State {
    /// Whether the allocator has been told that a point has been passed.
    pub(super) fn has_passed(&self, point: &Point) -> bool {
        self.told.get(&point.timeline).is_some_and(|&told| told >= point.value) || point.value == 0
    }

    /// Whether nothing keeps the memory of a slice from being free.
    pub(super) fn is_due(&self, slice: &Pending) -> bool {
        !slice.scrub && slice.points.iter().all(|point| self.has_passed(point))
    }

    /// The allocator has forgotten a timeline, which nothing may wait for.
    pub(super) fn forget(&mut self, timeline: u32) {
        let mut pending = std::mem::take(&mut self.pending);
        for slice in &mut pending {
            slice.points.retain(|point| !self.has_passed(point));
            let waits = slice.points.iter().any(|point| point.timeline == timeline);
            assert!(!waits || self.habits.dry_run, "timeline {timeline} is forgotten, for which {slice:?} waits");
        }
        self.pending = pending;
        self.told.remove(&timeline);
    }

    /// A page with a name of its own, if there is room for it.
    pub(super) fn new_page(&mut self, request: &PageRequest) -> Option<DeviceMemory> {
        if self.bytes + u128::from(request.size) > self.habits.limit {
            return None;
        }
        let handle = (0..).find(|handle| !self.held.contains_key(handle))?;
        let mut memory = DeviceMemory::new(handle);
        memory.context = ptr::without_provenance_mut(handle as usize ^ 0x55);
        if self.habits.naming != Naming::Handle {
            let address = self.next_address.checked_add(1)?.checked_next_multiple_of(request.alignment)?;
            self.next_address = address.checked_add(request.size)?;
            memory.address = address;
        }
        if self.habits.naming == Naming::Mapped {
            memory.mapped = ptr::without_provenance_mut(memory.address as usize);
        }
        Some(memory)
    }

    pub(super) fn hold(&mut self, memory: DeviceMemory, memory_type: u32) {
        let held = Held { memory, memory_type, is_seen: false, is_leaving: false, stuck: false };
        assert!(self.held.insert(memory.handle, held).is_none(), "a page is there twice");
        self.bytes += u128::from(memory.size);
    }

    /// A freed slice is being overwritten; if that succeeds, it may wait for another point.
    fn scrub(&mut self, request: &FillRequest, done: Option<Option<Point>>) {
        let place = (request.memory.handle, request.offset);
        let is_it = |slice: &Pending| (slice.memory, slice.offset) == place && slice.scrub;
        let Some(index) = self.pending.iter().position(is_it) else {
            assert!(self.unseen, "{request:?} is not wanted");
            let end = request.offset + request.size;
            let is_in_it = |slice: &Slice| {
                slice.memory == place.0 && slice.offset < end && request.offset < slice.offset + slice.size
            };
            assert!(!self.live.values().any(|live| is_in_it(&live.slice)), "{request:?} is in use");
            return;
        };
        assert_eq!(self.pending[index].size, request.size, "all of the slice is overwritten");
        let passed = self.pending[index].points.iter().all(|point| self.has_passed(point));
        assert!(passed, "{request:?} while the device uses it");
        if let Some(point) = done {
            self.pending[index].scrub = false;
            self.pending[index].points = point.into_iter().collect();
        }
    }

    pub(super) fn let_go(&mut self, memory: &DeviceMemory) {
        assert!(self.held.remove(&memory.handle).is_some(), "a page goes back twice");
        self.bytes -= u128::from(memory.size);
    }

    fn page_of(&self, memory: &DeviceMemory) -> Held {
        let held = self.held.get(&memory.handle).unwrap_or_else(|| panic!("{memory:?} is not held"));
        assert_eq!(held.memory, *memory, "memory comes back as it was given");
        *held
    }

    fn check_request(&self, request: &PageRequest) {
        let PageRequest { size, alignment, .. } = *request;
        assert!(size != 0 && alignment.is_power_of_two(), "{request:?}");
        if let Some(limit) = self.habits.max_bytes {
            assert!(self.bytes + u128::from(size) <= u128::from(limit), "{request:?} beside {} bytes", self.bytes);
        }
        if let Some(limit) = self.habits.max_pages {
            assert!(self.held.len() < limit as usize, "{request:?} beside {} pages", self.held.len());
        }
    }
}

impl Device for FuzzDevice {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        {
            let mut state = self.0.state.borrow_mut();
            state.asked += 1;
            state.check_request(request);
        }
        let answer = self.0.answer();
        let mut state = self.0.state.borrow_mut();
        // What was done meanwhile reserves its own memory.
        state.check_request(request);
        if answer >= 8 {
            state.faults += 1;
        }
        match answer {
            8 | 9 => return Err(DeviceError::OutOfMemory(-2)),
            10 => return Err(DeviceError::Failed(-4)),
            11 => return Err(DeviceError::UnknownResult(99)),
            // Success, and nothing.
            12 => return Ok(DeviceMemory::new(u64::MAX)),
            // Memory that is live already.
            13 | 14 => {
                if let Some(held) = state.held.values().rfind(|held| !held.is_leaving) {
                    return Ok(held.memory);
                }
            }
            _ => {}
        }
        let Some(mut memory) = state.new_page(request) else {
            state.faults += 1;
            return Err(DeviceError::OutOfMemory(-3));
        };
        if answer == 15 && memory.address != 0 {
            memory.address ^= 1;
        }
        memory.size = request.size;
        state.hold(memory, request.memory_type);
        // The size is the library's to know.
        Ok(DeviceMemory { size: 0, ..memory })
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        {
            let mut state = self.0.state.borrow_mut();
            state.asked += 1;
            let held = state.page_of(memory);
            assert!(!held.is_seen, "a page goes back without being unmapped");
            assert!(!held.is_leaving, "a page goes back twice at a time");
            let waits = |slice: &Pending| slice.memory == memory.handle && !state.is_due(slice);
            assert!(!state.pending.iter().any(waits), "a page goes back on which slices wait for the device");
            let lives = |live: &Live| live.slice.memory == memory.handle;
            assert!(!state.live.values().any(lives), "a page goes back in which slices are live");
            state.held.get_mut(&memory.handle).expect("it was held just now").is_leaving = true;
        }
        let answer = self.0.answer();
        let mut state = self.0.state.borrow_mut();
        if answer >= 12 {
            state.faults += 1;
            let held = state.held.get_mut(&memory.handle).expect("it was held just now");
            (held.is_leaving, held.stuck) = (false, true);
            return Err(DeviceError::Failed(-10));
        }
        state.let_go(memory);
        Ok(())
    }

    fn completed(&self, timeline: u32) -> Option<u64> {
        self.0.state.borrow_mut().asked += 1;
        let answer = self.0.answer();
        let mut state = self.0.state.borrow_mut();
        if !state.habits.tells || answer >= 12 {
            return None;
        }
        let completed = state.progress.get(&timeline).copied().unwrap_or(0);
        let told = state.told.entry(timeline).or_default();
        *told = completed.max(*told);
        Some(completed)
    }

    fn out_of_memory(&self, shortage: &Shortage) -> bool {
        self.0.state.borrow_mut().asked += 1;
        assert!(shortage.attempt < 8 && shortage.alignment.is_power_of_two(), "{shortage:?}");
        self.0.answer() & 1 != 0
    }

    fn can_fill(&self) -> bool {
        self.0.state.borrow().habits.can_fill
    }

    fn fill(&self, request: &FillRequest) -> Result<Option<Point>, DeviceError> {
        {
            let state = self.0.state.borrow();
            assert!(state.habits.can_fill, "this device does not fill");
            let page = state.page_of(&request.memory);
            let end = request.offset.checked_add(request.size).expect("a slice of its page");
            assert!(end <= page.memory.size, "{request:?}");
        }
        let answer = self.0.answer();
        let state = &mut *self.0.state.borrow_mut();
        let answer = match answer {
            12 | 13 => Err(DeviceError::Failed(-5)),
            14 => Err(DeviceError::OutOfMemory(-6)),
            10 | 11 => {
                let timeline = u32::from(answer & 1);
                let now = state.progress.get(&timeline).copied().unwrap_or(0);
                Ok(Some(Point::new(timeline, now.saturating_add(2))))
            }
            _ => Ok(None),
        };
        if answer != Ok(None) {
            state.faults += 1;
        }
        if request.reason == FillReason::Scrub && !state.is_ending {
            state.scrub(request, answer.ok());
        }
        answer
    }

    fn heap_budget(&self, _: u32) -> Option<HeapBudget> {
        let answer = self.0.answer();
        let state = self.0.state.borrow();
        let usage = u64::try_from(state.bytes).unwrap_or(u64::MAX);
        match answer {
            8..=15 => None,
            answer => Some(HeapBudget { usage, budget: usage.saturating_add(u64::from(answer) << 12) }),
        }
    }

    fn can_map(&self) -> bool {
        self.0.state.borrow().habits.can_map
    }

    fn map(&self, memory: &DeviceMemory) -> Result<*mut u8, DeviceError> {
        {
            let page = self.0.state.borrow().page_of(memory);
            assert!(!page.is_seen && memory.mapped.is_null(), "{memory:?} is mapped already");
        }
        let answer = self.0.answer();
        let mut state = self.0.state.borrow_mut();
        if answer >= 12 {
            state.faults += 1;
        }
        match answer {
            12 | 13 => Err(DeviceError::Failed(-7)),
            14 => Err(DeviceError::OutOfMemory(-8)),
            15 => Ok(ptr::null_mut()),
            _ => {
                state.held.get_mut(&memory.handle).expect("it was held just now").is_seen = true;
                Ok(ptr::without_provenance_mut((memory.handle as usize + 1) << 20))
            }
        }
    }

    fn unmap(&self, memory: &DeviceMemory) {
        {
            let mut state = self.0.state.borrow_mut();
            let held = state.held.get_mut(&memory.handle).unwrap_or_else(|| panic!("{memory:?} is not held"));
            assert!(held.is_seen, "{memory:?} is not mapped");
            assert_eq!(memory.mapped.addr(), (memory.handle as usize + 1) << 20, "where it was mapped");
            held.is_seen = false;
        }
        self.0.answer();
    }

    fn can_flush(&self) -> bool {
        self.0.state.borrow().habits.can_flush
    }

    fn flush(&self, range: &CacheRange) -> Result<(), DeviceError> {
        let state = self.0.state.borrow();
        let Held { memory, memory_type, .. } = state.page_of(&range.memory);
        let (page, end, atom) =
            (memory.size, range.offset + range.size, state.types[memory_type as usize].non_coherent_atom);
        assert!(end <= page && range.offset % atom == 0 && (end % atom == 0 || end == page), "{range:?}");
        drop(state);
        if self.0.answer() >= 12 { Err(DeviceError::Failed(-9)) } else { Ok(()) }
    }

    fn invalidate(&self, range: &CacheRange) -> Result<(), DeviceError> {
        self.flush(range)
    }

    fn hears_events(&self) -> bool {
        self.0.state.borrow().habits.hears
    }

    fn event(&self, _: &Event) {
        self.0.answer();
    }
}
