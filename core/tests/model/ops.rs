//! Operations in the abstract: "free the k-th live slice" means something whatever came before, so any part of a
//! failing sequence can be left out.

use proptest::collection::vec;
use proptest::prelude::*;
use slicepool_core::Request;

/// What sizes and alignments are measured against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) granule: u64,
    pub(crate) page: u64,
    pub(crate) largest_slice: u64,
    pub(crate) page_alignment: u64,
}

/// A size.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    /// So many granules, less a part of one.
    Granules { count: u8, less: u32 },
    /// So many 256ths of a page or of the largest slice, and a little.
    Part { of_256: u8, delta: i8 },
    /// A page, and a little.
    Page { delta: i8 },
    /// The largest slice, and a little.
    Largest { delta: i8 },
    /// A power of two, and a little.
    Power { exponent: u8, delta: i8 },
    /// Nothing, or next to it.
    Tiny(u8),
    /// The largest number, less something.
    Huge { less: u8 },
}

impl Size {
    pub(crate) fn bytes(self, scale: &Scale) -> u64 {
        let near = |size: u128, delta: i8| {
            let size = size.saturating_add_signed(i128::from(delta));
            u64::try_from(size).unwrap_or(u64::MAX)
        };
        let granule = u128::from(scale.granule);
        match self {
            Size::Granules { count, less } => {
                let less = u128::from(less) * u128::from(less) % granule;
                near((u128::from(count) * granule).saturating_sub(less), 0)
            }
            Size::Part { of_256, delta } => {
                let whole = u128::from(scale.page.min(scale.largest_slice));
                near(whole * u128::from(of_256) / 256, delta)
            }
            Size::Page { delta } => near(u128::from(scale.page), delta),
            Size::Largest { delta } => near(u128::from(scale.largest_slice), delta),
            Size::Power { exponent, delta } => near(1 << exponent, delta),
            Size::Tiny(size) => u64::from(size),
            Size::Huge { less } => u64::MAX - u64::from(less),
        }
    }
}

/// Mostly sizes that fit.
pub(crate) fn size() -> impl Strategy<Value = Size> {
    let delta = -1i8..=1;
    let near_power = (prop_oneof![0u8..64, 30u8..34, Just(63)], delta.clone());
    prop_oneof![
        60 => small_size(),
        // A few sizes that are asked for again and again.
        12 => (1u8..4).prop_map(|count| Size::Granules { count: count * 3, less: 0 }),
        2 => (90u8..=255, delta.clone()).prop_map(|(of_256, delta)| Size::Part { of_256, delta }),
        15 => (0u8..90, delta.clone()).prop_map(|(of_256, delta)| Size::Part { of_256, delta }),
        2 => delta.clone().prop_map(|delta| Size::Page { delta }),
        2 => delta.prop_map(|delta| Size::Largest { delta }),
        5 => near_power.prop_map(|(exponent, delta)| Size::Power { exponent, delta }),
        2 => (0u8..3).prop_map(Size::Tiny),
        1 => (0u8..3).prop_map(|less| Size::Huge { less }),
    ]
}

fn small_size() -> impl Strategy<Value = Size> {
    let less = prop_oneof![Just(0), Just(1), any::<u32>()];
    // Around powers of two the steps between sizes change, of size classes and of pages.
    let count = prop_oneof![20 => 1u8..25, 1 => 30u8..36, 1 => 62u8..68, 1 => 126u8..132];
    (count, less).prop_map(|(count, less)| Size::Granules { count, less })
}

/// A size and an alignment, right in themselves far more often than not.
pub(crate) fn request() -> impl Strategy<Value = (Size, Alignment)> {
    (size(), alignment())
}

/// What is asked of an allocator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) size: Size,
    pub(crate) alignment: Alignment,
    /// The pool that both are measured by, counted round and round.
    pub(crate) measure: u8,
    pub(crate) pool: Only,
    pub(crate) special: Special,
}

/// What is asked for besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Special {
    pub(crate) persistent: bool,
    pub(crate) dedicated: bool,
    pub(crate) never_grow: bool,
    pub(crate) zero: bool,
    pub(crate) scrub: bool,
}

impl Special {
    /// The request with all that is asked for; what the device has to do for it only if it `fills`.
    pub(crate) fn of(&self, mut request: Request, fills: bool) -> Request {
        for (asked, with) in [
            (self.persistent, Request::persistent as fn(Request) -> Request),
            (self.dedicated, Request::dedicated),
            (self.never_grow, Request::never_growing),
            (self.zero && fills, Request::zeroed),
            (self.scrub && fills, Request::scrubbed),
        ] {
            if asked {
                request = with(request);
            }
        }
        request
    }
}

fn special() -> impl Strategy<Value = Special> {
    let filled = |zero, scrub| Special { persistent: false, dedicated: false, never_grow: false, zero, scrub };
    let plain = filled(false, false);
    prop_oneof![
        80 => Just(plain),
        3 => Just(Special { persistent: true, ..plain }),
        4 => Just(Special { dedicated: true, ..plain }),
        4 => Just(Special { never_grow: true, ..plain }),
        1 => Just(Special { dedicated: true, never_grow: true, ..plain }),
        1 => Just(Special { persistent: true, never_grow: true, ..plain }),
        3 => Just(filled(true, false)),
        10 => Just(filled(false, true)),
        2 => Just(filled(true, true)),
        1 => Just(Special { never_grow: true, ..filled(true, true) }),
        1 => Just(Special { dedicated: true, ..filled(true, true) }),
        1 => Just(Special { persistent: true, ..filled(true, true) }),
    ]
}

/// Which pools may serve a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Only {
    Any,
    /// One of them, counted round and round.
    This(u8),
    /// The one of an index that there may not be.
    Number(u32),
}

/// A request that is right in itself far more often than not.
pub(crate) fn ask() -> impl Strategy<Value = Ask> {
    ask_for(request())
}

/// A request that many pools take.
pub(crate) fn small_ask() -> impl Strategy<Value = Ask> {
    let doublings = (0u8..4).prop_map(|doublings| Alignment::Granule { doublings });
    ask_for((small_size(), prop_oneof![2 => Just(Alignment::One), 1 => doublings]))
}

fn ask_for(request: impl Strategy<Value = (Size, Alignment)>) -> impl Strategy<Value = Ask> {
    let pool = prop_oneof![
        60 => Just(Only::Any),
        10 => (0u8..12).prop_map(Only::This),
        1 => prop_oneof![0u32..6, any::<u32>()].prop_map(Only::Number),
    ];
    (request, 0u8..12, pool, special()).prop_map(|((size, alignment), measure, pool, special)| Ask {
        size,
        alignment,
        measure,
        pool,
        special,
    })
}

// ---- waiting

/// The timelines that slices wait on.
pub(crate) const TIMELINES: [u32; 5] = [1, 0, u32::MAX, 0x9E37_79B9, 2];

/// A timeline by its place in [`TIMELINES`], counted round and round, and a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) timeline: u8,
    pub(crate) value: Value,
}

impl Mark {
    pub(crate) fn timeline(self) -> u32 {
        TIMELINES[usize::from(self.timeline) % TIMELINES.len()]
    }
}

/// A value on a timeline.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// So far from what has been completed.
    Ahead(i8),
    Zero,
    /// What is never completed, unless the device is lost.
    Never,
}

impl Value {
    pub(crate) fn from(self, completed: u64) -> u64 {
        match self {
            Value::Ahead(by) => completed.saturating_add_signed(i64::from(by)),
            Value::Zero => 0,
            Value::Never => u64::MAX,
        }
    }
}

/// Most often a point that has not been passed.
pub(crate) fn mark() -> impl Strategy<Value = Mark> {
    let value = prop_oneof![
        60 => (-2i8..10).prop_map(Value::Ahead),
        3 => Just(Value::Zero),
        1 => Just(Value::Never),
    ];
    (prop_oneof![2 => Just(0u8), 3 => 0u8..5], value).prop_map(|(timeline, value)| Mark { timeline, value })
}

/// Points to wait for, now and then too many of them.
pub(crate) fn marks() -> impl Strategy<Value = Vec<Mark>> {
    prop_oneof![
        60 => vec(mark(), 1..2),
        30 => vec(mark(), 0..5),
        1 => (mark(), 64usize..66).prop_map(|(mark, count)| vec![mark; count]),
    ]
}

/// An alignment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Alignment {
    One,
    /// So many doublings of the granule.
    Granule {
        doublings: u8,
    },
    /// That of the page, doubled so often.
    Page {
        doublings: u8,
    },
    Power {
        exponent: u8,
    },
    /// A number that is no power of two.
    Wrong {
        which: u8,
    },
}

impl Alignment {
    pub(crate) fn bytes(self, scale: &Scale) -> u64 {
        let doubled = |base: u64, doublings: u8| base.checked_mul(1 << doublings).unwrap_or(1 << 63);
        match self {
            Alignment::One => 1,
            Alignment::Granule { doublings } => doubled(scale.granule, doublings),
            Alignment::Page { doublings } => doubled(scale.page_alignment, doublings),
            Alignment::Power { exponent } => 1 << exponent,
            Alignment::Wrong { which } => [0, 3, 5, u64::MAX, (1 << 63) + 1][which as usize],
        }
    }
}

fn alignment() -> impl Strategy<Value = Alignment> {
    prop_oneof![
        60 => Just(Alignment::One),
        25 => (0u8..4).prop_map(|doublings| Alignment::Granule { doublings }),
        5 => (4u8..9).prop_map(|doublings| Alignment::Granule { doublings }),
        5 => (0u8..2).prop_map(|doublings| Alignment::Page { doublings }),
        4 => (0u8..64).prop_map(|exponent| Alignment::Power { exponent }),
        1 => (0u8..5).prop_map(|which| Alignment::Wrong { which }),
    ]
}

/// A handle, good or bad.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pick {
    /// The k-th live slice, counted round and round.
    Live(u16),
    /// The k-th slice freed.
    Stale(u16),
    /// A live slice of somebody else.
    Foreign,
    /// The handle of the k-th live slice with one bit flipped.
    Altered { live: u16, bit: u8 },
    /// Any number.
    Number(u64),
}

/// Shrinks to 0 at once: halving would come by other slices.
fn index() -> impl Strategy<Value = u16> {
    prop_oneof![1 => Just(0), 60 => any::<u16>()]
}

/// Mostly live slices.
pub(crate) fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        88 => index().prop_map(Pick::Live),
        6 => index().prop_map(Pick::Stale),
        1 => Just(Pick::Foreign),
        4 => (index(), 0u8..64).prop_map(|(live, bit)| Pick::Altered { live, bit }),
        1 => prop_oneof![0u64..64, any::<u64>()].prop_map(Pick::Number),
    ]
}

/// A batch of handles, most often of live ones only.
pub(crate) fn picks() -> impl Strategy<Value = Vec<Option<Pick>>> {
    let live = index().prop_map(|k| Some(Pick::Live(k)));
    let any_kind = prop_oneof![8 => pick().prop_map(Some), 1 => Just(None)];
    prop_oneof![2 => vec(live, 0..6), 1 => vec(any_kind, 0..10)]
}
