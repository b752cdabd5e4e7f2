//! Dry runs beside allocators that do the same on a device without limits: everything is placed and counted alike, but
//! the device of a dry run is called for what is resolved only.

use crate::device::{Answer, Naming};
use crate::ops::{Ask, Mark, Only, Pick, Size, ask, mark, marks, pick, size, small_ask};
use crate::oracle::{Checked, ensure};
use crate::run::Case;
use crate::shapes::{Shape, direct, exclusive, growing, pool, shape};
use crate::twins::Twins;
use proptest::collection::vec;
use proptest::prelude::*;
use slicepool_core::{Point, Request, SliceId};

const SHAPES: &[Shape] = &[
    shape(&[pool(1024, 1024, None, 32)], 256, Naming::Handle),
    shape(&[pool(1024, 1024, Some(8192), 32).ages(20, 0)], 256, Naming::Address),
    shape(&[growing(1024, 1 << 14, None, 32)], 256, Naming::Mapping),
    shape(&[growing(1024, 1 << 14, Some(40_000), 1).ages(15, 4096)], 256, Naming::Handle),
    shape(&[exclusive(5_000, 64)], 512, Naming::Address).fills(),
    shape(&[direct(Some(5_000), 64).ages(25, 0)], 64, Naming::Handle).fills(),
    // What is resolved counts towards the limits.
    shape(&[pool(1024, 1024, None, 32), direct(None, 64)], 256, Naming::Handle).at_most(Some(10_000), None),
    shape(
        &[exclusive(0, 32), pool(512, 300, Some(4096), 32), growing(2048, 1 << 16, None, 64), direct(None, 256)],
        256,
        Naming::Address,
    )
    .at_most(None, Some(5))
    .fills(),
];

/// One step, taken by both.
#[derive(Clone, Debug)]
enum Op {
    Allocate(Ask),
    AllocateMany(Vec<Ask>),
    Free(u16),
    FreeAfter(u16, Vec<Mark>),
    FreeEvery(u8, Vec<Mark>),
    Collect(Mark),
    Resize(u16, Size),
    Trim(u32),
    Cleanup,
    /// Gets memory for a slice of the dry run, whose device has that answer.
    Resolve(u16, Answer),
    /// The same for a handle that may be any.
    ResolveWrongly(Pick),
}

fn op() -> impl Strategy<Value = Op> {
    let answer = prop_oneof![
        8 => Just(Answer::Page),
        1 => Just(Answer::OutOfMemory),
        1 => Just(Answer::Failed),
        1 => Just(Answer::NotFilled),
        1 => Just(Answer::Duplicate),
        1 => Just(Answer::Misaligned),
    ];
    prop_oneof![
        40 => ask().prop_map(Op::Allocate),
        4 => vec(small_ask(), 0..6).prop_map(Op::AllocateMany),
        20 => any::<u16>().prop_map(Op::Free),
        6 => (any::<u16>(), marks()).prop_map(|(which, marks)| Op::FreeAfter(which, marks)),
        1 => (1u8..6, prop_oneof![Just(Vec::new()), marks()]).prop_map(|(step, marks)| Op::FreeEvery(step, marks)),
        4 => mark().prop_map(Op::Collect),
        6 => (any::<u16>(), size()).prop_map(|(which, size)| Op::Resize(which, size)),
        1 => (0u32..30_000).prop_map(Op::Trim),
        1 => Just(Op::Cleanup),
        10 => (any::<u16>(), answer).prop_map(|(which, answer)| Op::Resolve(which, answer)),
        1 => pick().prop_map(Op::ResolveWrongly),
    ]
}

#[derive(Clone, Debug)]
pub(crate) struct DryCase {
    shape: &'static Shape,
    ops: Vec<Op>,
}

pub(crate) fn cases(most: usize) -> impl Strategy<Value = DryCase> {
    let shape = (0..SHAPES.len()).prop_map(|index| &SHAPES[index]);
    (shape, vec(op(), 1..most)).prop_map(|(shape, ops)| DryCase { shape, ops })
}

impl Case for DryCase {
    fn describe(&self) -> String {
        let ops: String = self.ops.iter().map(|op| format!("  {op:?}\n")).collect();
        format!("{:?}\n{ops}", self.shape)
    }

    fn check(&self) -> Checked<usize> {
        let (pools, options) = self.shape.options();
        let mut twins = Twins::new(self.shape, &pools, &options)?;
        for (index, op) in self.ops.iter().enumerate() {
            let step = twins.step(op).and_then(|()| twins.compare());
            step.map_err(|error| format!("{error} (operation {index}: {op:?})"))?;
        }
        // What it has turned out to need is enough for the same once more.
        let reports = (0..pools.len()).map(|pool| twins.dry.pool_report(pool));
        let plans: Vec<_> =
            reports.map(|report| report.ok_or("no report").map(|report| report.plan())).collect::<Result<_, _>>()?;
        let mut again = Twins::new(self.shape, &plans, &options)?;
        again.is_planned = true;
        for (index, op) in self.ops.iter().enumerate() {
            again.step(op).map_err(|error| format!("{error} (operation {index}: {op:?}, with {plans:?})"))?;
            if again.has_parted {
                break;
            }
        }
        again.end()?;
        twins.end()?;
        Ok(self.ops.len())
    }
}

impl Twins {
    fn request(&self, ask: &Ask) -> Request {
        let listed = self.rules.len() - 2;
        let scale = self.rules[usize::from(ask.measure) % listed].scale();
        let mut request = Request::new(ask.size.bytes(&scale)).aligned(ask.alignment.bytes(&scale));
        // Whatever can be had at all is had from a device without limits.
        request.size = request.size.min(1 << 20);
        request = ask.special.of(request, true);
        match ask.pool {
            Only::Any => request,
            Only::This(pool) => request.in_pool(u32::from(pool) % listed as u32),
            Only::Number(number) => request.in_pool(number),
        }
    }

    fn points(&self, marks: &[Mark]) -> Vec<Point> {
        marks.iter().map(|&mark| Point::new(mark.timeline(), self.value(mark))).collect()
    }

    fn value(&self, mark: Mark) -> u64 {
        mark.value.from(self.completed.get(&mark.timeline()).copied().unwrap_or(0))
    }

    pub(crate) fn nth(&self, which: u16) -> Option<usize> {
        (!self.slices.is_empty()).then(|| usize::from(which) % self.slices.len())
    }

    fn step(&mut self, op: &Op) -> Checked {
        match *op {
            Op::Allocate(ref ask) => {
                let request = self.request(ask);
                let (real, dry) = (self.real.allocate(&request), self.dry.allocate(&request));
                self.placed(real, dry)
            }
            Op::AllocateMany(ref asks) => {
                let requests: Vec<_> = asks.iter().map(|ask| self.request(ask)).collect();
                match (self.real.allocate_many(&requests), self.dry.allocate_many(&requests)) {
                    (Ok(real), Ok(dry)) => {
                        real.iter().zip(dry.iter()).try_for_each(|(&real, &dry)| self.placed(Ok(real), Ok(dry)))
                    }
                    (Err(real), Err(dry)) if self.refused_alike(&real, &dry) => Ok(()),
                    other => Err(format!("batches: {other:?}")),
                }
            }
            Op::Free(which) => self.free(which, &[]),
            Op::FreeAfter(which, ref marks) => self.free(which, &self.points(marks)),
            Op::FreeEvery(step, ref marks) => {
                let points = self.points(marks);
                let chosen = |index: usize| index % usize::from(step) == 0;
                let ids = self.slices.iter().enumerate().filter(|(index, _)| chosen(*index));
                let (real, dry): (Vec<_>, Vec<_>) = ids.map(|(_, (real, dry))| (real.id, dry.id)).unzip();
                let found = (self.real.free_after_many(&real, &points), self.dry.free_after_many(&dry, &points));
                ensure!(found.0 == found.1, "free_after_many: {found:?}");
                if found.0.is_ok() {
                    self.slices.retain(|(slice, _)| !real.contains(&slice.id));
                }
                Ok(())
            }
            Op::Collect(mark) => {
                let (timeline, value) = (mark.timeline(), self.value(mark));
                let found = (self.real.collect(timeline, value), self.dry.collect(timeline, value));
                ensure!(found == (Ok(()), Ok(())), "collect: {found:?}");
                let known = self.completed.entry(timeline).or_default();
                *known = value.max(*known);
                Ok(())
            }
            Op::Resize(which, size) => {
                let Some(index) = self.nth(which) else { return Ok(()) };
                let (real, dry) = self.slices[index];
                let size = size.bytes(&self.rules[0].scale());
                match (self.real.try_resize(real.id, size), self.dry.try_resize(dry.id, size)) {
                    (Ok(real), Ok(dry)) => {
                        self.slices[index] = (real, dry);
                        Ok(())
                    }
                    (Err(real), Err(dry)) if self.refused_alike(&real, &dry) => Ok(()),
                    other => Err(format!("try_resize: {other:?}")),
                }
            }
            Op::Trim(keep) => {
                let found = (self.real.trim(u64::from(keep)), self.dry.trim(u64::from(keep)));
                ensure!(found == (Ok(()), Ok(())), "trim: {found:?}");
                Ok(())
            }
            Op::Cleanup => self.clean_up(),
            Op::Resolve(which, answer) => self.resolve(which, answer),
            Op::ResolveWrongly(pick) => {
                let raw = match pick {
                    Pick::Number(number) => number,
                    Pick::Altered { live, bit } if self.nth(live).is_some_and(|_| bit >= 48) => {
                        self.nth(live).map_or(0, |index| self.slices[index].1.id.to_raw() ^ (1 << bit))
                    }
                    _ => self.slices.first().map_or(0, |(real, _)| real.id.to_raw()),
                };
                let Some(id) = SliceId::from_raw(raw) else { return Ok(()) };
                let found = self.dry.resolve(id);
                ensure!(found == self.dry.get(id) && found.is_err(), "resolving {raw:#x} answers {found:?}");
                Ok(())
            }
        }
    }
}
