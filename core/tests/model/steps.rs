//! What can be done with an allocator.

use crate::device::{Answer, Fill};
use crate::ops::{Ask, Mark, Pick, Size, TIMELINES, ask, mark, marks, pick, picks, size, small_ask};
use proptest::collection::vec;
use proptest::prelude::*;

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Free(Pick),
    Allocate(Ask),
    /// The same again and again, until it is served or has been refused so often.
    Insist(Ask, u8),
    Resize(Pick, Size),
    Get(Pick),
    WouldFit(Ask),
    FreeMany(Vec<Option<Pick>>, Vec<Mark>),
    FreeAfter(Pick, Vec<Mark>),
    /// A timeline has completed a value.
    Collect(Mark),
    ForgetTimeline(Mark),
    /// A timeline goes so far further, and the allocator does not hear of it.
    Progress(Mark, u8),
    AllocateMany {
        requests: Vec<Ask>,
        refuse_at: Option<u8>,
    },
    /// Frees every so-manieth live slice.
    FreeEvery(u8),
    /// Down to so many times a size.
    Trim(Size, u8),
    Cleanup,
    /// Puts the pools in another order, which is only possible while they hold no slices; that frees all before if
    /// wanted.
    Install {
        first: u8,
        free_all: bool,
    },
    /// Another allocator that shares the budget takes memory, or gives some back.
    Neighbour(Option<Size>),
    /// A walk that ends after so many ranges.
    Walk(u8),
    Mood {
        answers: Vec<Answer>,
        refuse_returns: u8,
        hopes: u8,
        fills: Vec<Fill>,
    },
}

/// Most often none.
fn few() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0), 2 => 1u8..4, 1 => Just(20)]
}

/// Any step; `crowded` lets slices pile up.
pub(crate) fn op(crowded: bool) -> impl Strategy<Value = Op> {
    let many = prop_oneof![1 => vec(ask(), 0..8), 2 => vec(small_ask(), 0..8)];
    let refuse_at = prop_oneof![8 => Just(None), 1 => (0u8..8).prop_map(Some)];
    let answer = prop_oneof![
        4 => Just(Answer::Page),
        4 => Just(Answer::OutOfMemory),
        1 => Just(Answer::Failed),
        1 => Just(Answer::UnknownResult),
        1 => Just(Answer::NotFilled),
        1 => Just(Answer::Duplicate),
        1 => Just(Answer::Misaligned),
    ];
    let later = (0u8..5, 0u8..6)
        .prop_map(|(timeline, ahead)| Fill::Later { timeline: TIMELINES[usize::from(timeline)], ahead });
    let fill = prop_oneof![2 => Just(Fill::Done), 2 => Just(Fill::Failed), 1 => Just(Fill::OutOfMemory), 2 => later];
    let (rare, collects) = if crowded { (1, 10) } else { (6, 30) };
    prop_oneof![
        190 => pick().prop_map(Op::Free),
        400 => ask().prop_map(Op::Allocate),
        4 => (ask(), any::<u8>()).prop_map(|(ask, times)| Op::Insist(ask, times)),
        80 => (pick(), size()).prop_map(|(pick, size)| Op::Resize(pick, size)),
        10 => pick().prop_map(Op::Get),
        20 => ask().prop_map(Op::WouldFit),
        12 => picks().prop_map(|picks| Op::FreeMany(picks, Vec::new())),
        12 => (picks(), marks()).prop_map(|(picks, marks)| Op::FreeMany(picks, marks)),
        50 => (pick(), marks()).prop_map(|(pick, marks)| Op::FreeAfter(pick, marks)),
        collects => mark().prop_map(Op::Collect),
        3 => mark().prop_map(Op::ForgetTimeline),
        10 => (mark(), 0u8..6).prop_map(|(mark, by)| Op::Progress(mark, by)),
        40 => (many, refuse_at).prop_map(|(requests, refuse_at)| Op::AllocateMany { requests, refuse_at }),
        rare => (1u8..6).prop_map(Op::FreeEvery),
        6 => (size(), 0u8..20).prop_map(|(size, times)| Op::Trim(size, times)),
        4 => Just(Op::Cleanup),
        rare => (0u8..5, any::<bool>()).prop_map(|(first, free_all)| Op::Install { first, free_all }),
        10 => (0u8..100).prop_map(Op::Walk),
        6 => size().prop_map(|size| Op::Neighbour(Some(size))),
        6 => Just(Op::Neighbour(None)),
        20 => (vec(answer, 0..5), few(), few(), vec(fill, 0..5)).prop_map(|(answers, refuse_returns, hopes, fills)| {
            Op::Mood { answers, refuse_returns, hopes, fills }
        }),
    ]
}
