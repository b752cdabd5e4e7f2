//! A pool, its caches, and what is known of them.

use super::config;
use super::device::{BufferDevice, World};
use crate::host::Host;
use crate::input::Input;
use slicepool_core::{
    AllocatorOptions, BufferCache, BufferId, BufferPool, BufferPoolError, Error, MemoryType, PooledBuffer, RawBuffer,
};

type Owner<'a> = PooledBuffer<BufferDevice<'a>>;

/// More buffers take too long to look at.
const MOST_BUFFERS: usize = 100;
const MOST_CACHES: usize = 4;
/// Used handles that are remembered.
const MOST_USED: usize = 60;

/// A buffer that is out, and what is written in it.
enum Out<'a> {
    Owner(Owner<'a>, u8),
    Raw(RawBuffer, u8),
}

impl Out<'_> {
    fn place(&self) -> (u64, u64, u64) {
        match self {
            Out::Owner(buffer, _) => (buffer.memory(), buffer.offset(), buffer.capacity() as u64),
            Out::Raw(raw, _) => (raw.memory, raw.offset, raw.capacity),
        }
    }

    fn mapped(&self) -> *mut u8 {
        match self {
            Out::Owner(buffer, _) => buffer.as_ptr().cast_mut(),
            Out::Raw(raw, _) => raw.mapped,
        }
    }

    fn is_seen(&self) -> bool {
        match self {
            Out::Owner(buffer, _) => buffer.is_mapped(),
            Out::Raw(raw, _) => !raw.mapped.is_null(),
        }
    }

    /// Calls `each` with the places of some of its bytes, the first and the last among them.
    fn bytes(&self, each: impl Fn(*mut u8)) {
        let len = self.place().2 as usize;
        if self.is_seen() {
            (0..len).step_by(61).chain(len.checked_sub(1)).for_each(|at| each(self.mapped().wrapping_add(at)));
        }
    }

    fn write(&self, stamp: u8) {
        // SAFETY: the buffer is out, so nobody else's; the sanitizer looks whether it is there.
        self.bytes(|at| unsafe { at.write(stamp) });
    }

    fn check(&self) {
        let (Out::Owner(_, stamp) | Out::Raw(_, stamp)) = self;
        // SAFETY: as above; it was written to when it was handed out.
        self.bytes(|at| assert_eq!(unsafe { at.read() }, *stamp, "somebody else has written to a buffer"));
    }
}

pub(super) struct Subject<'a> {
    pool: BufferPool<BufferDevice<'a>>,
    world: &'a World,
    host: &'a Host,
    caches: Vec<BufferCache<BufferDevice<'a>>>,
    out: Vec<Out<'a>>,
    used: Vec<BufferId>,
    closed: bool,
    stamp: u8,
}

impl<'a> Subject<'a> {
    /// `None` if there is no such pool.
    pub(super) fn new(world: &'a World, host: &'a Host, input: &mut Input<'_>) -> Option<Self> {
        let config = config(input);
        let more = input.byte();
        world.can_fill.set(more & 1 != 0);
        let memory_type = MemoryType::new(if more & 6 == 6 { input.number() } else { u64::MAX }, 64);
        let mut options = AllocatorOptions::default().with_memory(host.memory()).with_memory_type(memory_type);
        options.max_bytes = (more & 24 == 24).then(|| input.number());
        options.max_pages = (more & 96 == 96).then(|| u32::from(input.byte() & 7));
        // Not more than can be had.
        let prefill = more & 128 != 0 && config.size_classes().all(|class| class.max_buffers.get() <= 32);
        match BufferPool::with_device(BufferDevice(world), config.with_prefill(prefill), options) {
            Ok(pool) => {
                assert_eq!(config.check(), Ok(()));
                let (caches, out, used) = (Vec::new(), Vec::new(), Vec::new());
                Some(Self { pool, world, host, caches, out, used, closed: false, stamp: 0 })
            }
            Err(BufferPoolError::Config(error)) => {
                assert_eq!(config.check(), Err(error));
                None
            }
            Err(BufferPoolError::Prefill { .. }) if prefill => None,
            Err(BufferPoolError::Failed(error)) => {
                assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
                None
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    pub(super) fn step(&mut self, input: &mut Input<'_>) {
        let cache = input.byte() as usize;
        let cache = (cache < 200 && !self.caches.is_empty()).then(|| cache % self.caches.len());
        match input.byte() & 15 {
            0..=5 => self.request(input, cache),
            6..=8 if !self.out.is_empty() => {
                let out = self.out.swap_remove(input.below(self.out.len()));
                self.release(out, cache);
            }
            9 if !self.out.is_empty() => {
                let out = self.out.swap_remove(input.below(self.out.len()));
                self.turn(out);
            }
            10 => self.forge(input, cache),
            11 if self.caches.len() < MOST_CACHES => match self.pool.cache() {
                Ok(cache) => self.caches.push(cache),
                Err(error) => assert!(self.closed && error == Error::Closed, "{error:?}"),
            },
            12 => {
                if let Some(cache) = cache {
                    self.caches[cache].flush();
                    let classes: Vec<_> = self.pool.config().size_classes().collect();
                    assert!(classes.iter().all(|class| self.caches[cache].len_of(class.size.get()) == 0));
                }
            }
            13 => {
                if let Some(cache) = cache {
                    drop(self.caches.swap_remove(cache));
                }
            }
            14 => self.world.refusals.set(u16::from(input.byte())),
            15 if input.one_in(16) => {
                self.pool.close();
                self.closed = true;
                assert!(self.pool.is_closed());
            }
            15 => {
                self.host.fail_in(Some(u32::from(input.byte() & 3)));
                self.request(input, cache);
                self.host.fail_in(None);
            }
            _ => {}
        }
    }

    fn size(&self, input: &mut Input<'_>) -> usize {
        let class = self.pool.config().size_classes().nth(input.below(4)).map_or(64, |class| class.size.get());
        match input.byte() {
            0..150 => class,
            byte @ 150..190 => class.wrapping_add_signed(isize::from(byte as i8 % 3)),
            190..235 => class / 2 + usize::from(input.byte()),
            235..245 => 0,
            _ => input.number() as usize,
        }
    }

    fn request(&mut self, input: &mut Input<'_>, cache: Option<usize>) {
        if self.out.len() >= MOST_BUFFERS {
            return;
        }
        let size = self.size(input);
        let how = input.byte();
        // Memory of the host's is given out, so not too much of it.
        let untracked = how & 7 == 7 && !(1 << 16..=1 << 20).contains(&size);
        let (raw, zeroed) = (how & 8 != 0, how & 48 == 48);
        let (refused, failures) = (self.world.refused.get(), self.host.failures());
        let taken = match (cache.map(|cache| &mut self.caches[cache]), raw) {
            (Some(cache), true) => cache.take(size, untracked, zeroed).map(|raw| Out::Raw(raw, 0)),
            (None, true) => self.pool.take(size, untracked, zeroed).map(|raw| Out::Raw(raw, 0)),
            (cache, false) => match (cache, untracked, zeroed) {
                (Some(cache), false, false) => cache.try_alloc(size),
                (Some(cache), true, false) => cache.alloc(size),
                (Some(cache), false, true) => cache.try_alloc_zeroed(size),
                (Some(cache), true, true) => cache.alloc_zeroed(size),
                (None, false, false) => self.pool.try_alloc(size),
                (None, true, false) => self.pool.alloc(size),
                (None, false, true) => self.pool.try_alloc_zeroed(size),
                (None, true, true) => self.pool.alloc_zeroed(size),
            }
            .map(|buffer| Out::Owner(buffer, 0)),
        };
        match taken {
            Ok(out) => self.add(out, size, zeroed),
            Err(Error::OutOfHostMemory { .. }) => {
                assert!(self.host.failures() != failures || size > 1 << 20, "the host has memory");
            }
            Err(Error::OutOfDeviceMemory { .. } | Error::DeviceFailed { .. }) => {
                assert!(self.world.refused.get() != 0 || refused != 0 || size > 1 << 30, "the device has memory");
            }
            Err(error) => self.check_refusal(error, size, untracked),
        }
    }

    fn check_refusal(&mut self, error: Error, size: usize, untracked: bool) {
        let class = self.pool.config().class_for(size);
        match error {
            Error::Closed => assert!(self.closed),
            Error::Oversized { size: told, limit } => {
                let largest = self.pool.config().max_size().get() as u64;
                assert_eq!((told, limit, class), (size as u64, largest, None));
            }
            Error::Exhausted { limit, cached, .. } => {
                let class = class.expect("there is one that is exhausted");
                let figures = self.pool.statistics_of(class.size).expect("it has figures");
                assert_eq!((limit, cached), (class.max_buffers.get(), figures.cached));
                assert_eq!(figures.in_use + figures.cached + figures.retired, limit, "{figures:?}");
                assert!(!untracked);
                self.give_way(class.size.get());
            }
            Error::BudgetExceeded { .. } | Error::PageCountExceeded { .. } | Error::TooLarge { .. } => {}
            Error::NotSupported { .. } => assert!(!self.world.can_fill.get()),
            // A device that claims to have more bytes than can be counted.
            Error::PoolCapacityExceeded { in_use, .. } => {
                assert!(in_use.checked_add(size as u64).is_none(), "{error:?}");
            }
            error => panic!("{error:?} for {size} bytes"),
        }
    }

    /// A class is exhausted: each cache gives back what it has of it with its next use, for whatever else.
    fn give_way(&mut self, size: usize) {
        let other = self.pool.config().size_classes().map(|class| class.size.get()).find(|&other| other != size);
        let Some(other) = other.filter(|_| self.out.len() + MOST_CACHES < MOST_BUFFERS) else { return };
        for index in 0..self.caches.len() {
            let taken = self.caches[index].try_alloc(other);
            assert_eq!(self.caches[index].len_of(size), 0, "a cache keeps what others want");
            if let Ok(buffer) = taken {
                self.add(Out::Owner(buffer, 0), other, false);
            }
        }
    }

    fn add(&mut self, mut out: Out<'a>, size: usize, zeroed: bool) {
        assert!(!self.closed || size == 0, "a closed pool hands out nothing");
        let (memory, offset, capacity) = out.place();
        assert!(capacity >= size as u64, "{capacity} bytes for {size}");
        if capacity != 0 {
            let end = offset + capacity;
            for other in &self.out {
                let (other_memory, start, capacity) = other.place();
                let apart = memory != other_memory || start >= end || offset >= start + capacity;
                assert!(apart || capacity == 0, "a buffer is out twice");
            }
            let held = self.world.held.borrow();
            let inside = held.values().any(|held| held.handle == memory && end <= held.size);
            assert!(inside, "a buffer lies in no memory that is held");
        }
        if out.is_seen() {
            let alignment = self.pool.config().alignment().get();
            assert_eq!(out.mapped().addr() % alignment, 0, "it is aligned");
            if zeroed {
                let at = out.mapped();
                // SAFETY: the buffer is out, and so large; its first bytes were written to.
                (0..size).step_by(37).for_each(|i| assert_eq!(unsafe { at.wrapping_add(i).read() }, 0, "it is zero"));
            }
        }
        self.stamp = self.stamp.wrapping_add(1);
        match &mut out {
            Out::Owner(_, stamp) => *stamp = self.stamp,
            Out::Raw(raw, stamp) => {
                *stamp = self.stamp;
                assert_eq!(raw.id.is_none(), capacity == 0);
                assert!(raw.id.is_none_or(|id| !self.used.contains(&id)), "a handle has come back");
            }
        }
        out.write(self.stamp);
        self.out.push(out);
    }

    fn forget(&mut self, id: Option<BufferId>) {
        self.used.extend(id);
        let excess = self.used.len().saturating_sub(MOST_USED);
        self.used.drain(..excess);
    }

    fn release(&mut self, out: Out<'a>, cache: Option<usize>) {
        out.check();
        match (out, cache) {
            (Out::Owner(buffer, _), Some(cache)) => self.caches[cache].release(buffer),
            (Out::Owner(buffer, _), None) => drop(buffer),
            (Out::Raw(raw, _), cache) => {
                let Some(id) = raw.id else { return };
                let released = match cache {
                    Some(cache) => self.caches[cache].release_raw(id),
                    None => self.pool.release(id),
                };
                assert_eq!(released, Ok(()), "a buffer that is out can be released");
                self.forget(Some(id));
            }
        }
    }

    /// Makes a raw buffer of an owned one, or the other way round.
    fn turn(&mut self, out: Out<'a>) {
        let turned = match out {
            Out::Owner(buffer, stamp) => Out::Raw(buffer.into_raw(), stamp),
            Out::Raw(raw, stamp) => {
                let Some(id) = raw.id else { return };
                assert_eq!(self.pool.get(id), Ok(raw));
                let buffer = self.pool.adopt(id).expect("it is out");
                self.forget(Some(id));
                Out::Owner(buffer, stamp)
            }
        };
        turned.check();
        self.out.push(turned);
    }

    /// Uses a handle that is good for nothing.
    fn forge(&mut self, input: &mut Input<'_>, cache: Option<usize>) {
        let live: Vec<_> =
            self.out.iter().filter_map(|out| if let Out::Raw(raw, _) = out { raw.id } else { None }).collect();
        let id = match input.byte() & 3 {
            0 if !self.used.is_empty() => self.used[input.below(self.used.len())].to_raw(),
            1 | 2 if !live.is_empty() => live[input.below(live.len())].to_raw() ^ 1 << (input.byte() & 63),
            _ => input.word(),
        };
        let Some(id) = BufferId::from_raw(id).filter(|id| !live.contains(id)) else { return };
        let refused = match (input.byte() & 3, cache) {
            (0, _) => self.pool.get(id).map(|_| ()),
            (1, _) => self.pool.adopt(id).map(|_| ()),
            (_, Some(cache)) => self.caches[cache].release_raw(id),
            (_, None) => self.pool.release(id),
        };
        assert!(matches!(refused, Err(Error::StaleHandle | Error::ForeignHandle)), "{refused:?} for {id:?}");
    }

    /// Compares what the pool says of itself with what is out.
    pub(super) fn check(&self) {
        assert_eq!(self.pool.check(), Ok(()));
        let config = *self.pool.config();
        let mut tracked = 0;
        for class in config.size_classes() {
            let figures = self.pool.statistics_of(class.size).expect("it has figures");
            let cached: u32 = self.caches.iter().map(|cache| cache.len_of(class.size.get())).sum();
            assert_eq!(figures.cached, cached, "{figures:?}");
            assert!(figures.created <= class.max_buffers.get(), "{figures:?}");
            assert_eq!(
                figures.created,
                figures.in_use + figures.cached + figures.free + figures.retired,
                "{figures:?}"
            );
            let capacity = config.cache_capacity(class.max_buffers);
            for cache in &self.caches {
                assert!(cache.len_of(class.size.get()) <= capacity, "a cache holds more than {capacity}");
            }
            tracked += figures.in_use as usize;
        }
        let out = self.out.iter().filter(|out| out.place().2 != 0).count();
        let figures = self.pool.statistics();
        assert_eq!(tracked + figures.untracked as usize, out, "{figures:?}");
        assert_eq!(figures.caches as usize, self.caches.len());
        let held: u64 = self.world.held.borrow().values().map(|held| held.size).sum();
        assert_eq!(figures.reserved, held, "held from the device");
        let regions: u128 = self.pool.regions().map(|region| u128::from(region.bytes)).sum();
        assert!(regions <= config.max_tracked_bytes() as u128, "{regions} bytes in slabs");
        for &id in self.used.iter().rev().take(2) {
            assert_eq!(self.pool.get(id), Err(Error::StaleHandle), "it was released");
        }
    }

    /// Brings everything back.
    pub(super) fn end(mut self) {
        self.world.refusals.set(0);
        while let Some(out) = self.out.pop() {
            self.release(out, None);
        }
        self.check();
        self.caches.clear();
        self.check();
        let Self { pool, world, .. } = self;
        drop(pool);
        assert!(world.held.borrow().is_empty(), "the device has not got everything back");
    }
}
