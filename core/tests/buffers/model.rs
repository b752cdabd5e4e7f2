//! Random operations on a pool with several caches against a model of it in the plainest way: sets of numbers.
//!
//! `SLICEPOOL_SEED` replays a run or begins another; `SLICEPOOL_MODEL_OPS` sets the number of operations, of which every
//! shape of pool has its share.

use crate::common::random::Random;
use crate::world::{Buffer, Cache, Figures, Pool, World, classes, id, place, some};
use slicepool_core::{BufferPoolConfig, Error, RawBuffer};
use std::collections::{BTreeSet, HashMap};

/// Where a buffer is named: memory and offset.
type Place = (u64, u64);

/// A cache's list of one class, newest last.
type List = Vec<Place>;

/// What the model knows of one class.
#[derive(Default)]
struct Class {
    size: usize,
    limit: u32,
    capacity: usize,
    created: u32,
    free: BTreeSet<Place>,
    hits: u64,
    refills: u64,
    spills: u64,
    exhausted: u64,
    /// Raised when caches are to give back what they hold.
    pressure: u32,
}

/// A cache and what the model knows of it.
struct Cached<'a> {
    cache: Cache<'a>,
    lists: Vec<List>,
    /// The pressure of each class that it has followed, and the pool's epoch.
    followed: Vec<u32>,
    epoch: u32,
}

/// A buffer that is out, and what is written in it.
enum Out<'a> {
    Owner(Buffer<'a>, u8),
    Raw(RawBuffer, u8),
}

impl Out<'_> {
    fn place(&self) -> Place {
        match self {
            Out::Owner(buffer, _) => place(buffer),
            Out::Raw(raw, _) => (raw.memory, raw.offset),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Out::Owner(buffer, _) => buffer.capacity(),
            Out::Raw(raw, _) => raw.capacity as usize,
        }
    }

    /// All of it, which was written when it was handed out.
    fn bytes(&self) -> &[u8] {
        match self {
            Out::Owner(buffer, _) => buffer,
            // SAFETY: the buffer is out and all of it was written to; nobody else has it.
            Out::Raw(raw, _) => unsafe { std::slice::from_raw_parts(raw.mapped, raw.capacity as usize) },
        }
    }

    fn stamp(&self) -> u8 {
        match self {
            Out::Owner(_, stamp) | Out::Raw(_, stamp) => *stamp,
        }
    }
}

struct Model<'a> {
    pool: Pool<'a>,
    classes: Vec<Class>,
    least: usize,
    caches: Vec<Cached<'a>>,
    out: Vec<Out<'a>>,
    /// Handles that have been used.
    gone: Vec<RawBuffer>,
    epoch: u32,
    untracked: HashMap<Place, usize>,
    oversized: u64,
    bypassed: u64,
    stamp: u8,
}

/// Who answers a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Serves {
    Nobody,
    Class(usize),
    Device,
    Refused(Error),
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
struct Wish {
    size: usize,
    /// Cache that is asked.
    cache: Option<usize>,
    raw: bool,
    untracked: bool,
    zeroed: bool,
}

impl<'a> Model<'a> {
    fn new(pool: Pool<'a>) -> Self {
        let config = *pool.config();
        let classes = config.size_classes().map(|one| Class {
            size: one.size.get(),
            limit: one.max_buffers.get(),
            capacity: config.cache_capacity(one.max_buffers) as usize,
            ..Class::default()
        });
        Self {
            classes: classes.collect(),
            least: config.pool_min_size(),
            pool,
            caches: Vec::new(),
            out: Vec::new(),
            gone: Vec::new(),
            epoch: 0,
            untracked: HashMap::new(),
            oversized: 0,
            bypassed: 0,
            stamp: 0,
        }
    }

    fn new_cache(&mut self) {
        let cache = self.pool.cache().unwrap();
        let followed = self.classes.iter().map(|class| class.pressure).collect();
        let lists = vec![List::new(); self.classes.len()];
        self.caches.push(Cached { cache, lists, followed, epoch: self.epoch });
    }

    fn drop_cache(&mut self, index: usize) {
        let Cached { cache, lists, .. } = self.caches.swap_remove(index);
        drop(cache);
        for (class, list) in self.classes.iter_mut().zip(lists) {
            class.free.extend(list);
        }
    }

    fn flush(&mut self, index: usize) {
        self.caches[index].cache.flush();
        for (class, list) in self.classes.iter_mut().zip(&mut self.caches[index].lists) {
            class.free.extend(list.drain(..));
        }
    }

    /// Gives back what classes that were exhausted ask for.
    fn follow(&mut self, cache: usize) {
        let it = &mut self.caches[cache];
        if it.epoch == self.epoch {
            return;
        }
        it.epoch = self.epoch;
        for (index, class) in self.classes.iter_mut().enumerate() {
            if it.followed[index] != class.pressure {
                it.followed[index] = class.pressure;
                class.free.extend(it.lists[index].drain(..));
            }
        }
    }

    /// What is to come of a request. `found` is where the buffer was that came of it.
    fn foretell(&mut self, wish: &Wish, found: Option<Place>) -> Serves {
        let Wish { size, cache, raw, untracked, .. } = *wish;
        if size == 0 {
            return Serves::Nobody;
        }
        if size < self.least && (!raw || untracked) {
            self.bypassed += 1;
            return Serves::Device;
        }
        let refused = match self.classes.iter().position(|class| size <= class.size) {
            Some(index) => {
                if let Some(cache) = cache {
                    self.follow(cache);
                }
                match self.take(index, cache, found) {
                    Ok(()) => return Serves::Class(index),
                    Err(error) => error,
                }
            }
            None => {
                self.oversized += 1;
                let limit = self.classes.last().unwrap().size as u64;
                Error::Oversized { size: size as u64, limit }
            }
        };
        if untracked { Serves::Device } else { Serves::Refused(refused) }
    }

    fn take(&mut self, index: usize, cache: Option<usize>, found: Option<Place>) -> Result<(), Error> {
        let class = &mut self.classes[index];
        let mut batch = 1;
        if let Some(cache) = cache {
            let list = &mut self.caches[cache].lists[index];
            if let Some(newest) = list.pop() {
                assert_eq!(found, Some(newest), "the newest of the cache");
                class.hits += 1;
                return Ok(());
            }
            batch = if class.capacity >= 4 { class.capacity / 2 } else { 1 };
        }
        if !class.free.is_empty() {
            let found = found.expect("a buffer is free");
            assert!(class.free.remove(&found), "one of those that were free");
            let others = batch.min(class.free.len() + 1) - 1;
            if let Some(cache) = cache {
                class.refills += u64::from(class.capacity != 0);
                // Which they are is only known when they come.
                self.caches[cache].lists[index] = vec![UNKNOWN; others];
            }
            return Ok(());
        }
        if class.created < class.limit {
            class.created += 1;
            return Ok(());
        }
        let cached: usize = self.caches.iter().map(|cache| cache.lists[index].len()).sum();
        class.exhausted += 1;
        if cached != 0 {
            class.pressure += 1;
            self.epoch += 1;
        }
        let (size, limit) = (class.size as u64, class.limit);
        Err(Error::Exhausted { size, limit, cached: cached as u32, growths_in_flight: 0 })
    }

    fn ask(&mut self, wish: &Wish) -> Result<Option<Out<'a>>, Error> {
        let Wish { size, cache, raw, untracked, zeroed } = *wish;
        let got = match (cache, raw) {
            (Some(cache), true) => {
                self.caches[cache].cache.take(size, untracked, zeroed).map(|raw| raw.id.map(|_| Out::Raw(raw, 0)))
            }
            (None, true) => self.pool.take(size, untracked, zeroed).map(|raw| raw.id.map(|_| Out::Raw(raw, 0))),
            (Some(cache), false) => {
                let cache = &mut self.caches[cache].cache;
                let answer = match (untracked, zeroed) {
                    (false, false) => cache.try_alloc(size),
                    (false, true) => cache.try_alloc_zeroed(size),
                    (true, false) => cache.alloc(size),
                    (true, true) => cache.alloc_zeroed(size),
                };
                answer.map(|buffer| (buffer.capacity() != 0).then_some(Out::Owner(buffer, 0)))
            }
            (None, false) => {
                let pool = &self.pool;
                let answer = match (untracked, zeroed) {
                    (false, false) => pool.try_alloc(size),
                    (false, true) => pool.try_alloc_zeroed(size),
                    (true, false) => pool.alloc(size),
                    (true, true) => pool.alloc_zeroed(size),
                };
                answer.map(|buffer| (buffer.capacity() != 0).then_some(Out::Owner(buffer, 0)))
            }
        };
        got.map(|out| {
            out.inspect(|out| {
                if let (true, Out::Owner(buffer, _)) = (zeroed, out) {
                    assert_eq!(buffer.len(), size);
                }
            })
        })
    }

    /// Whether the pool wants something of a cache, of whose next steps `exhaustion` and `caches` have tests of their own.
    fn is_behind(&self, cache: usize) -> bool {
        self.caches[cache].epoch != self.epoch
    }

    fn request(&mut self, wish: &Wish) {
        let largest = self.classes.last().unwrap().size;
        let serves = wish.size != 0 && wish.size >= self.least && wish.size <= largest;
        let cache = wish.cache.filter(|&cache| serves || !self.is_behind(cache));
        let wish = &Wish { cache, ..*wish };
        // Which one was had decides what is left.
        let answer = self.ask(wish);
        let found = answer.as_ref().ok().and_then(|out| out.as_ref().map(Out::place));
        let serves = self.foretell(wish, found);
        let mut out = match (answer, serves) {
            (Err(error), Serves::Refused(expected)) => return assert_eq!(error, expected, "{wish:?}"),
            (Ok(None), Serves::Nobody) => return,
            (Ok(Some(out)), Serves::Class(index)) => {
                assert_eq!(out.capacity(), self.classes[index].size);
                out
            }
            (Ok(Some(out)), Serves::Device) => {
                assert_eq!(out.capacity(), wish.size);
                assert_eq!(self.untracked.insert(out.place(), wish.size), None);
                out
            }
            (answer, serves) => panic!("{wish:?}: {serves:?}, but {:?}", answer.map(|out| out.map(|out| out.place()))),
        };
        if let (Some(cache), Serves::Class(index)) = (wish.cache, serves) {
            self.recognise(cache, index);
        }
        self.stamp = self.stamp.wrapping_add(1);
        let stamp = self.stamp;
        match &mut out {
            Out::Owner(buffer, written) => {
                assert!(!wish.zeroed || buffer.iter().all(|&byte| byte == 0));
                buffer.clear();
                buffer.resize(buffer.capacity(), stamp);
                assert_eq!(buffer.is_tracked(), matches!(serves, Serves::Class(_)));
                *written = stamp;
            }
            Out::Raw(raw, written) => {
                // SAFETY: the buffer is out and has so many bytes; with `zeroed` those asked for have been written to.
                unsafe {
                    let zeros = if wish.zeroed { wish.size } else { 0 };
                    assert!(std::slice::from_raw_parts(raw.mapped, zeros).iter().all(|&byte| byte == 0));
                    raw.mapped.write_bytes(stamp, raw.capacity as usize);
                }
                *written = stamp;
            }
        }
        self.out.push(out);
    }

    /// After a refill: which of the free ones it took, nobody has said. Learns it by taking them out and putting them back.
    fn recognise(&mut self, cache: usize, index: usize) {
        let class = &mut self.classes[index];
        let Cached { cache, lists, .. } = &mut self.caches[cache];
        let list = &mut lists[index];
        if list.first() != Some(&UNKNOWN) {
            return;
        }
        let buffers: Vec<_> = list.iter().map(|_| cache.try_alloc(class.size).unwrap()).collect();
        for (buffer, known) in buffers.iter().rev().zip(list.iter_mut()) {
            *known = place(buffer);
            assert!(class.free.remove(known), "one of those that were free");
        }
        class.hits += buffers.len() as u64;
        buffers.into_iter().rev().for_each(|buffer| cache.release(buffer));
    }

    fn release(&mut self, out: Out<'a>, cache: Option<usize>) {
        let index = self.classes.iter().position(|class| class.size == out.capacity());
        let index = index.filter(|_| !self.untracked.contains_key(&out.place()));
        let is_full = |cache: usize| {
            index.is_none_or(|index| self.caches[cache].lists[index].len() == self.classes[index].capacity)
        };
        let cache = cache.filter(|&cache| !self.is_behind(cache) || !is_full(cache));
        assert!(out.bytes().iter().all(|&byte| byte == out.stamp()), "somebody else has written to a buffer");
        let place = out.place();
        match (out, cache) {
            (Out::Owner(buffer, _), Some(cache)) => self.caches[cache].cache.release(buffer),
            (Out::Owner(buffer, _), None) => drop(buffer),
            (Out::Raw(raw, _), cache) => {
                match cache {
                    Some(cache) => self.caches[cache].cache.release_raw(id(&raw)),
                    None => self.pool.release(id(&raw)),
                }
                .unwrap();
                self.gone.push(raw);
            }
        }
        let Some(index) = index else {
            self.untracked.remove(&place);
            return;
        };
        let Some(cache) = cache else {
            assert!(self.classes[index].free.insert(place), "it was free already");
            return;
        };
        self.follow(cache);
        let class = &mut self.classes[index];
        let list = &mut self.caches[cache].lists[index];
        if list.len() < class.capacity {
            return list.push(place);
        }
        if class.capacity < 4 {
            assert!(class.free.insert(place));
            return;
        }
        class.spills += 1;
        class.free.extend(list.drain(list.len() - class.capacity / 2..));
        list.push(place);
    }

    /// Turns an owner into a handle, or the other way round.
    fn turn(&mut self, out: Out<'a>) {
        let turned = match out {
            Out::Owner(buffer, stamp) => {
                let at = (place(&buffer), buffer.capacity() as u64, buffer.as_ptr());
                let raw = buffer.into_raw();
                assert_eq!(((raw.memory, raw.offset), raw.capacity, raw.mapped.cast_const()), at);
                Out::Raw(raw, stamp)
            }
            Out::Raw(raw, stamp) => {
                assert_eq!(self.pool.get(id(&raw)), Ok(raw));
                let mut buffer = self.pool.adopt(id(&raw)).unwrap();
                // SAFETY: all of it was written to when it was handed out.
                unsafe { buffer.set_len(buffer.capacity()) };
                self.gone.push(raw);
                Out::Owner(buffer, stamp)
            }
        };
        self.out.push(turned);
    }

    /// Everything that can be seen is what the model knows.
    fn compare(&self) {
        let figures = Figures::of(&self.pool);
        let told = (figures.pool.caches as usize, figures.pool.untracked as usize);
        assert_eq!(told, (self.caches.len(), self.untracked.len()));
        assert_eq!((figures.pool.oversized, figures.pool.bypassed), (self.oversized, self.bypassed));
        for (index, (class, told)) in self.classes.iter().zip(&figures.classes).enumerate() {
            let cached: usize = self.caches.iter().map(|cache| cache.lists[index].len()).sum();
            let out = self.out.iter().filter(|out| !self.untracked.contains_key(&out.place()));
            let in_use = out.filter(|out| out.capacity() == class.size).count();
            assert_eq!((told.size, told.limit, told.created), (class.size as u64, class.limit, class.created));
            assert_eq!((told.free as usize, told.cached as usize), (class.free.len(), cached), "{index}");
            assert_eq!(told.in_use as usize, in_use);
            assert_eq!((told.hits, told.refills), (class.hits, class.refills));
            assert_eq!((told.spills, told.exhausted), (class.spills, class.exhausted));
            for cache in &self.caches {
                assert_eq!(cache.cache.len_of(class.size) as usize, cache.lists[index].len());
            }
        }
    }

    /// What takes longer to look at.
    fn check(&self) {
        assert_eq!(self.pool.check(), Ok(()));
        let regions: Vec<_> = self.pool.regions().collect();
        let mut bytes = 0;
        let mut ranges: Vec<_> = regions.iter().map(|region| (region.memory, region.base, region.bytes)).collect();
        for region in &regions {
            bytes += region.bytes;
        }
        ranges.extend(self.untracked.iter().map(|(place, size)| (place.0, place.1, *size as u64)));
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].2 <= pair[1].0), "memory is addresses here");
        assert!(bytes <= self.pool.config().max_tracked_bytes() as u64);
        let mut places = BTreeSet::new();
        for out in &self.out {
            assert!(out.bytes().iter().all(|&byte| byte == out.stamp()), "somebody else has written to a buffer");
            assert!(places.insert(out.place()), "a buffer is out twice");
        }
        let held = self.classes.iter().flat_map(|class| &class.free);
        let lists = self.caches.iter().flat_map(|cache| cache.lists.iter().flatten());
        for place in held.chain(lists) {
            assert!(places.insert(*place), "a buffer is out and free");
        }
        for raw in self.gone.iter().rev().take(50) {
            assert_eq!(self.pool.get(id(raw)), Err(Error::StaleHandle));
            assert_eq!(self.pool.release(id(raw)), Err(Error::StaleHandle));
        }
    }
}

/// Stands for a buffer that has come with a refill.
const UNKNOWN: Place = (u64::MAX, u64::MAX);

fn operations() -> u64 {
    let all = std::env::var("SLICEPOOL_MODEL_OPS").map_or(100_000, |text| text.parse().expect("a number"));
    if cfg!(miri) { 400 } else { all }
}

fn play(config: BufferPoolConfig, seed: u64) {
    let mut random = Random::with_seed_or(seed);
    let world = World::new();
    let mut model = Model::new(world.pool(config));
    let largest = config.max_size().get() as u64;
    for operation in 0..operations() {
        let cache = random.below(model.caches.len() as u64 + 1) as usize;
        let cache = (cache < model.caches.len()).then_some(cache);
        match random.below(100) {
            0..45 => {
                let size = match random.below(20) {
                    0 => 0,
                    1 => largest + 1 + random.below(100),
                    2 => 1 << random.below(u64::from(largest.ilog2()) + 1),
                    _ => random.scaled(largest),
                };
                let (raw, untracked) = (random.below(3) == 0, random.below(8) == 0);
                let zeroed = random.below(5) == 0;
                model.request(&Wish { size: size as usize, cache, raw, untracked, zeroed });
            }
            45..88 if !model.out.is_empty() => {
                let out = random.take(&mut model.out);
                model.release(out, cache);
            }
            88..93 if !model.out.is_empty() => {
                let out = random.take(&mut model.out);
                model.turn(out);
            }
            93 | 94 => {
                if let Some(cache) = cache {
                    model.flush(cache);
                }
            }
            95 if model.caches.len() < 5 => model.new_cache(),
            96 => {
                if let Some(cache) = cache {
                    model.drop_cache(cache);
                }
            }
            97 if random.below(50) == 0 => {
                // Everything comes back at once.
                while let Some(out) = model.out.pop() {
                    model.release(out, cache);
                }
            }
            _ => {}
        }
        model.compare();
        if operation % 100 == 0 {
            model.check();
            model.gone.drain(..model.gone.len().saturating_sub(100));
        }
    }
    let exhausted: u64 = model.classes.iter().map(|class| class.exhausted).sum();
    println!("{operation} operations, {exhausted} of them on exhausted classes", operation = operations());
    while let Some(out) = model.out.pop() {
        model.release(out, None);
    }
    model.check();
    model.compare();
    let Model { pool, caches, .. } = model;
    drop(caches);
    let figures = Figures::of(&pool);
    assert!(figures.classes.iter().all(|class| class.free == class.created && class.in_use + class.cached == 0));
    drop(pool);
    assert_eq!((world.device.pages(), world.host.bytes()), (0, 0));
}

#[test]
fn a_pool_with_small_classes_does_what_a_model_of_it_does() {
    play(classes(&[(16, 9), (64, 20), (256, 4)]).with_max_thread_cache_capacity(some(6)), 71);
}

#[test]
fn a_pool_with_gaps_and_a_least_size_does_what_a_model_of_it_does() {
    let config = classes(&[(32, 30), (512, 25), (1024, 1), (8192, 3)]);
    play(config.with_pool_min_size(20).with_alignment(some(32)), 72);
}

#[test]
fn a_pool_without_caches_does_what_a_model_of_it_does() {
    play(classes(&[(8, 10), (128, 70)]).with_thread_cache_disabled(), 73);
}

#[test]
fn a_pool_with_caches_for_all_of_it_does_what_a_model_of_it_does() {
    play(classes(&[(64, 100), (4096, 64)]).with_max_thread_cache_capacity(some(1000)), 74);
}

#[test]
fn a_prefilled_pool_does_what_a_model_of_it_does() {
    // Whose buffers are known to nobody at first.
    let config = classes(&[(64, 40), (1024, 12)]).with_max_thread_cache_capacity(some(9));
    let world = World::new();
    let prefilled = world.pool(config.with_prefill(true));
    let out: Vec<_> = [(64, 40), (1024, 12)]
        .into_iter()
        .flat_map(|(size, count)| crate::world::take(&prefilled, size, count))
        .collect();
    let mut model = Model::new(prefilled);
    for class in &mut model.classes {
        class.created = class.limit;
        class.free = out.iter().filter(|buffer| buffer.capacity() == class.size).map(place).collect();
    }
    drop(out);
    let mut random = Random::with_seed_or(75);
    (0..3).for_each(|_| model.new_cache());
    for _ in 0..operations() / 4 {
        let cache = [None, Some(0), Some(1), Some(2)][random.below(4) as usize];
        if random.below(2) == 0 {
            let size = random.scaled(1024) as usize;
            model.request(&Wish { size, cache, raw: false, untracked: false, zeroed: false });
        } else if !model.out.is_empty() {
            let out = random.take(&mut model.out);
            model.release(out, cache);
        }
        model.compare();
    }
    model.check();
    assert_eq!(world.device.calls(), 2);
}
