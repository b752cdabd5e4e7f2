//! Who takes part in the churn.

use crate::turns::{PAIRS, Turns};
use slicepool_bench::GRANULE;
use slicepool_bench::c_churn::CChurn;
use slicepool_bench::churn::{Churn, Running};
use slicepool_bench::peers::{Buddy, FreeList, GpuAllocator, InBand, VmaPool};
use slicepool_bench::placement::{Placed, check};
use slicepool_bench::subjects::{OffsetAllocator, Pool, Subject, UnlockedPool, VirtualBlock};
use slicepool_core::Space;

/// Decides on sizes and victims where slices are looked at.
const SEED: u64 = 5;

/// One that takes part.
pub struct Contender {
    /// Its name in tables.
    pub name: &'static str,
    /// The most live slices that it is measured with.
    pub most: usize,
    /// Why with no more.
    pub why: &'static str,
    /// Fills it; none if it is not there.
    pub start: for<'a> fn(&'a Churn) -> Option<Turns<'a>>,
    /// Looks at its slices, if they can be seen from here.
    check: Option<fn(u64)>,
}

impl Contender {
    fn of<S: Placed + 'static>() -> Self {
        Self {
            name: S::NAME,
            most: usize::MAX,
            why: "",
            start: |churn| Some(Turns::churn(churn, fill::<S>(churn), PAIRS)),
            check: Some(check::<S>),
        }
    }

    fn up_to(mut self, most: usize, why: &'static str) -> Self {
        (self.most, self.why) = (most, why);
        self
    }
}

/// A space that holds the churn with room to spare.
pub fn roomy(churn: &Churn) -> u64 {
    churn.peak() * 3 / 2 / GRANULE * GRANULE
}

/// A subject that is filled.
pub fn fill<S: Subject>(churn: &Churn) -> Running<S> {
    Running::fill(churn, roomy(churn)).expect("roomy")
}

/// All of them: first slicepool, the pool before all others.
pub fn all() -> Vec<Contender> {
    let c = Contender {
        name: CChurn::NAME,
        most: usize::MAX,
        why: "",
        start: |churn| {
            let mut running = CChurn::fill(churn, roomy(churn))?;
            Some(Turns::new(PAIRS, churn.fill.len(), move |pairs| running.pairs(pairs)))
        },
        check: None,
    };
    let slow = "a pair takes the longer the more slices there are, and so does the fill";
    let mut all = vec![
        Contender::of::<Pool>(),
        Contender::of::<UnlockedPool>(),
        c,
        Contender::of::<Space>(),
        Contender::of::<OffsetAllocator>(),
        Contender::of::<VirtualBlock>(),
        Contender::of::<VmaPool>(),
        Contender::of::<Buddy>(),
        Contender::of::<FreeList>().up_to(10_000, slow),
        Contender::of::<GpuAllocator>().up_to(10_000, slow),
        Contender::of::<InBand>()
            .up_to(10_000, "its headers lie in the memory: all of it would have to be there, 6 GB and more"),
    ];
    all.extend(heavy(slow));
    all
}

#[cfg(feature = "heavy")]
fn heavy(slow: &'static str) -> impl IntoIterator<Item = Contender> {
    use slicepool_bench::peers::cubecl::{Cubecl, Direct, Sliced};
    [Contender::of::<Cubecl<Sliced>>().up_to(10_000, slow), Contender::of::<Cubecl<Direct>>().up_to(1_000, slow)]
}

#[cfg(not(feature = "heavy"))]
fn heavy(_: &'static str) -> impl IntoIterator<Item = Contender> {
    []
}

/// Looks at the slices of each before anything is measured.
pub fn check_all() {
    let all = all();
    let checked: Vec<_> = all.iter().filter_map(|one| Some((one.name, one.check?))).collect();
    checked.iter().for_each(|(_, check)| check(SEED));
    let names: Vec<_> = checked.iter().map(|(name, _)| *name).collect();
    println!(
        "large enough, aligned, in memory that is held, apart from each other: the slices of {}\n",
        names.join("; ")
    );
}
