//! What only the inside can bring about: worn-out slots, forged handles, searches that are disturbed.

use super::*;
use crate::allocator::sizing::Needs;
use crate::metadata::Chunked;
use std::vec::Vec;

fn slicer(granules: u32) -> (Slicer, u32) {
    let mut slicer = Slicer::try_new(HostMemory::global(), granules, PageKind::Equal, 7).unwrap();
    provide_nodes(&mut slicer);
    let edge = slicer.add_page(0, granules);
    (slicer, edge)
}

fn provide_nodes(slicer: &mut Slicer) {
    while !slicer.has_nodes() {
        let chunk = Chunk::allocate(HostMemory::global(), slicer.plan().unwrap()).unwrap();
        assert!(slicer.install(chunk).is_none());
    }
}

fn allocate(slicer: &mut Slicer, size: u32) -> SliceId {
    provide_nodes(slicer);
    let slot = slicer.allocate(size, 0);
    assert_ne!(slot, 0);
    slicer.id(slot)
}

/// A slicer with that many holes of 64 granules, which are in the class of 65, and nothing else free.
fn full_of_holes(count: u32) -> (Slicer, Vec<SliceId>) {
    let (mut slicer, _) = slicer(65 * count + 100);
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(allocate(&mut slicer, 64));
        allocate(&mut slicer, 1);
    }
    allocate(&mut slicer, 100);
    for id in &ids {
        slicer.free(id.slot());
    }
    (slicer, ids)
}

#[test]
fn a_slot_retires_when_its_generations_are_used_up_and_its_handles_stay_stale() {
    let (mut slicer, edge) = slicer(100);
    let first = allocate(&mut slicer, 10);
    let slot = first.slot();
    slicer.free(slot);
    // As if it had been freed 16.7 million times.
    slicer.set_generation(slot, GENERATION_RETIRED - 1);
    let last = allocate(&mut slicer, 10);
    assert_eq!((last.slot(), last.generation()), (slot, GENERATION_RETIRED - 1));
    slicer.free(slot);
    for _ in 0..50 {
        let id = allocate(&mut slicer, 10);
        assert_ne!(id.slot(), slot);
        assert_eq!(slicer.resolve(first), Err(Error::StaleHandle));
        assert_eq!(slicer.resolve(last), Err(Error::StaleHandle));
        slicer.free(id.slot());
        slicer.check([(edge, 100)].into_iter()).unwrap();
    }
}

#[test]
fn a_slot_that_retires_while_it_is_a_hole_serves_as_one_and_is_never_handed_out_again() {
    let (mut slicer, edge) = slicer(100);
    let ids = [0; 4].map(|_| allocate(&mut slicer, 10));
    let slot = ids[1].slot();
    slicer.set_generation(slot, GENERATION_RETIRED - 1);
    slicer.free(slot);
    assert!(slicer.node(slot).is(Kind::Hole));
    // Cut from, then used up, then given out no more.
    let part = allocate(&mut slicer, 4);
    let rest = allocate(&mut slicer, 6);
    assert!(slicer.node(slot).is(Kind::Unused));
    for id in [part, rest] {
        assert_ne!(id.slot(), slot);
        slicer.free(id.slot());
    }
    for _ in 0..20 {
        assert_ne!(allocate(&mut slicer, 1).slot(), slot);
    }
    slicer.check([(edge, 100)].into_iter()).unwrap();
}

#[test]
fn handles_that_were_never_given_out_are_foreign_and_freed_ones_are_stale() {
    let (mut slicer, _) = slicer(100);
    let id = allocate(&mut slicer, 1);
    let of = |tag, generation, slot| SliceId::pack(tag, generation, slot);
    assert_eq!(slicer.resolve(of(8, 0, id.slot())), Err(Error::ForeignHandle));
    assert_eq!(slicer.resolve(of(7, 1, id.slot())), Err(Error::ForeignHandle));
    assert_eq!(slicer.resolve(of(7, 0, 9_999)), Err(Error::ForeignHandle));
    assert_eq!(slicer.resolve(id), Ok(id.slot()));
    slicer.claim(id.slot());
    assert_eq!(slicer.resolve(id), Err(Error::StaleHandle));
    assert_eq!(slicer.resolve_for_query(id), Ok(id.slot()));
    slicer.unclaim(id.slot());
    slicer.free(id.slot());
    assert_eq!(slicer.resolve(id), Err(Error::StaleHandle));
    assert_eq!(slicer.resolve(of(7, 1, id.slot())), Err(Error::ForeignHandle));
}

#[test]
fn a_search_that_is_disturbed_starts_again_with_longer_steps_and_finds_what_came_up_behind_it() {
    let (mut slicer, ids) = full_of_holes(200);
    let scan = slicer.begin_scan(65, u32::MAX);
    let Scanned::More(mut scan) = slicer.scan(65, 0, scan) else { panic!("ends too early") };
    // Two holes of the class become a larger one, behind the search or before it.
    let first = slicer.node(ids[0].slot()).next.get();
    slicer.free(first);
    provide_nodes(&mut slicer);
    let mut calls = 0;
    let found = loop {
        match slicer.scan(65, 0, scan) {
            Scanned::More(more) => scan = more,
            end => break end,
        }
        calls += 1;
    };
    assert!(matches!(found, Scanned::Placed(_)));
    assert_eq!(calls, 1, "198 holes in steps of 128");
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_search_that_is_disturbed_all_the_time_ends() {
    let (mut slicer, _) = full_of_holes(5000);
    let (mut scan, mut calls) = (slicer.begin_scan(65, u32::MAX), 0);
    while let Scanned::More(more) = slicer.scan(65, 0, scan) {
        // Another thread takes a hole and gives it back between any two calls.
        let id = allocate(&mut slicer, 64);
        slicer.free(id.slot());
        scan = more;
        calls += 1;
    }
    // Eight times from the start, then once through all in steps of 1,024.
    assert!((9..=16).contains(&calls), "{calls}");
}

#[test]
fn an_undisturbed_search_looks_at_a_bounded_number_of_holes_per_call() {
    let (mut slicer, _) = full_of_holes(1000);
    let (mut scan, mut calls) = (slicer.begin_scan(65, u32::MAX), 1);
    while let Scanned::More(more) = slicer.scan(65, 0, scan) {
        scan = more;
        calls += 1;
    }
    assert_eq!(calls, 1000u32.div_ceil(search::SCAN_STEP));
}

/// Where a slice of that size and alignment is put: its page and offset.
fn place(slicer: &mut Slicer, size: u32, align_mask: u32) -> Option<(u32, u32)> {
    provide_nodes(slicer);
    assert_eq!(slicer.fits_at_once(size, align_mask), {
        let slot = slicer.allocate(size, align_mask);
        let fits = slot != 0;
        if fits {
            slicer.free(slot);
            provide_nodes(slicer);
        }
        fits
    });
    let slot = slicer.allocate(size, align_mask);
    (slot != 0).then(|| (slicer.node(slot).page.get(), slicer.node(slot).offset.get()))
}

/// Makes holes of these places (offset and size, in order, none touching another), slices between them, and no tail.
fn with_holes(page: u32, slicer: &mut Slicer, holes: &[(u32, u32)]) {
    let (mut at, mut slots) = (0, Vec::new());
    for &(offset, size) in holes {
        provide_nodes(slicer);
        if offset > at {
            slicer.allocate_from_tail(offset - at, 0);
        }
        provide_nodes(slicer);
        slots.push(slicer.allocate_from_tail(size, 0));
        at = offset + size;
        assert_eq!(slicer.node(*slots.last().unwrap()).place(), u64::from(page) << 32 | u64::from(offset));
    }
    provide_nodes(slicer);
    let rest = slicer.node(slicer.tail).size.get();
    if rest != 0 {
        slicer.allocate_from_tail(rest, 0);
    }
    // The last first, so that the lists are in order.
    for slot in slots.into_iter().rev() {
        provide_nodes(slicer);
        slicer.free(slot);
    }
    provide_nodes(slicer);
}

#[test]
fn of_holes_of_the_class_of_the_worst_case_the_second_is_looked_at_too() {
    let mut slicer = Slicer::try_new(HostMemory::global(), 1000, PageKind::Equal, 7).unwrap();
    provide_nodes(&mut slicer);
    slicer.add_page(0, 1000);
    // Slices of 62 at multiples of 4 fit into any 65. Both are of the class of 65: one that begins badly, one that does not.
    with_holes(0, &mut slicer, &[(1, 64), (100, 64), (300, 200)]);
    assert_eq!(place(&mut slicer, 62, 3), Some((0, 100)));
    // Behind these two, whatever holds it.
    assert_eq!(place(&mut slicer, 62, 3), Some((0, 300)));
    assert!(!slicer.fits_at_once(200, 3) && !slicer.fits_at_once(139, 0));
    assert!(slicer.fits_at_once(138, 0));
}

#[test]
fn of_a_class_whose_first_hole_is_too_small_the_second_serves() {
    let mut slicer = Slicer::try_new(HostMemory::global(), 1000, PageKind::Equal, 7).unwrap();
    provide_nodes(&mut slicer);
    slicer.add_page(0, 1000);
    with_holes(0, &mut slicer, &[(1, 64), (100, 65)]);
    assert!(slicer.fits_at_once(65, 0) && !slicer.fits_at_once(66, 0));
    assert_eq!(place(&mut slicer, 65, 0), Some((0, 100)));
    assert!(!slicer.fits_at_once(65, 0) && slicer.fits_at_once(64, 0));
}

/// What every hole of a size would hold is beyond the largest size there is: no hole is left out.
#[test]
fn half_of_the_largest_page_at_a_multiple_of_that_is_found() {
    const HALF: u32 = 1 << 31;
    let mut slicer = Slicer::try_new(HostMemory::global(), u32::MAX, PageKind::Equal, 7).unwrap();
    for (page, holes) in [(0, [(1, HALF + 5)]), (1, [(0, HALF + (1 << 27))])] {
        provide_nodes(&mut slicer);
        slicer.add_page(page, u32::MAX);
        with_holes(page, &mut slicer, &holes);
    }
    // The smaller hole comes first, and does not hold it.
    assert_eq!(place(&mut slicer, HALF + 1, HALF - 1), Some((1, 0)));
    assert_eq!(place(&mut slicer, HALF + 1, HALF - 1), None);
    assert_eq!(place(&mut slicer, HALF + 1, 0), Some((0, 1)));
}

#[test]
fn nodes_are_counted_for_slices_pages_and_what_is_under_way() {
    let needs = |slices, pages| {
        let mut needs = Needs::default();
        Slicer::add_needs(0, PageKind::Whole, slices, pages, &mut needs).unwrap();
        needs.bytes()
    };
    let of_nodes = |count| {
        let mut needs = Needs::default();
        Bins::add_needs(0, &mut needs);
        Chunked::<Node>::add_needs(count, &mut needs).unwrap();
        needs.bytes()
    };
    let (mut steps, mut before) = (0, 0);
    for slices in 0..1800 {
        for pages in [0, 1, 70] {
            // Node 0; two a slice; four a page; twice what any one call may need.
            assert_eq!(
                needs(slices, pages),
                of_nodes(1 + 2 * slices + 4 * pages + 8),
                "{slices} slices, {pages} pages"
            );
        }
        steps += u32::from(before != needs(slices, 0));
        before = needs(slices, 0);
    }
    assert!(steps > 5, "{steps}: nothing was near a step");
    let (mut equal, mut unequal) = (Needs::default(), Needs::default());
    Slicer::add_needs(1000, PageKind::Equal, 10, 10, &mut equal).unwrap();
    Slicer::add_needs(1000, PageKind::Unequal, 10, 10, &mut unequal).unwrap();
    let mut bins = Needs::default();
    Bins::add_needs(1000, &mut bins);
    assert_eq!(unequal.bytes() - equal.bytes(), bins.bytes());
}

/// Several pages are on their way at once, and whatever happens meanwhile leaves them what they were promised.
#[test]
fn pages_on_their_way_find_the_nodes_that_were_promised_to_them() {
    for growths in 1..=8 {
        let (mut slicer, _) = slicer(100_000);
        for _ in 0..growths {
            while !slicer.has_nodes_for_page() {
                let chunk = Chunk::allocate(HostMemory::global(), slicer.plan().unwrap()).unwrap();
                assert!(slicer.install(chunk).is_none());
            }
            slicer.promise_nodes();
        }
        while slicer.has_nodes() {
            assert_ne!(slicer.allocate_from_tail(1, 0), 0);
        }
        for page in 1..=growths {
            slicer.release_promise();
            slicer.add_page(page, 100);
            assert_ne!(slicer.allocate_from_tail(1, 0), 0);
        }
        assert!(slicer.promised == 0);
    }
}

#[test]
fn a_page_that_was_made_longer_has_a_class_for_the_largest_hole_it_can_have() {
    // Of the lengths some are the first, some the last of their class.
    for length in (11..4000).step_by(7).chain([63, 64, 127, 128, 1 << 20, u32::MAX - 1, u32::MAX]) {
        let (mut slicer, edge) = slicer(10);
        slicer.extend_tail(HostMemory::global(), length - 10).unwrap();
        let first = allocate(&mut slicer, length - 1);
        let last = allocate(&mut slicer, 1);
        slicer.free(first.slot());
        assert_eq!(slicer.largest_bound(), length - 1);
        slicer.check([(edge, length)].into_iter()).unwrap();
        assert_eq!(allocate(&mut slicer, length - 1).slot(), first.slot());
        slicer.free(last.slot());
        slicer.check([(edge, length)].into_iter()).unwrap();
    }
}

#[test]
fn there_is_a_head_for_every_class_up_to_the_largest() {
    let heads = |largest| {
        let mut needs = Needs::default();
        Bins::add_needs(largest, &mut needs);
        needs.bytes()
    };
    let of = |count| {
        let mut needs = Needs::default();
        needs.add::<u32>(count);
        needs.bytes()
    };
    // Sizes below 64 have a class each, and there is one for 0; then two have one.
    assert_eq!([0, 1, 31, 62, 63, 64, 65, 66].map(heads), [1, 2, 32, 63, 64, 65, 65, 66].map(of));
    assert_ne!(of(64), of(65));
    assert_eq!(heads(u32::MAX), of(28 * 32));
}

/// A search that has been disturbed too often to start again does so all the same where its hole is none any more.
#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_search_whose_hole_has_gone_starts_again_however_often_it_was_disturbed() {
    let (mut slicer, ids) = full_of_holes(5000);
    let mut scan = slicer.begin_scan(65, u32::MAX);
    for _ in 0..10 {
        let Scanned::More(more) = slicer.scan(65, 0, scan) else { panic!("ends too early") };
        scan = more;
        let id = allocate(&mut slicer, 64);
        slicer.free(id.slot());
    }
    let taken: Vec<_> = ids.iter().map(|_| allocate(&mut slicer, 64)).collect();
    assert_eq!(slicer.free_granules(), 0);
    let (first, behind) = (taken[0].slot(), slicer.node(taken[0].slot()).next.get());
    assert_eq!(slicer.node(behind).size.get(), 1);
    slicer.free(first);
    slicer.free(behind);
    provide_nodes(&mut slicer);
    assert!(matches!(slicer.scan(65, 0, scan), Scanned::Placed(_)));
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_search_of_one_class_looks_at_no_other() {
    let mut slicer = Slicer::try_new(HostMemory::global(), 1000, PageKind::Equal, 7).unwrap();
    provide_nodes(&mut slicer);
    slicer.add_page(0, 1000);
    // 66 and 68 are of other classes than 64. Of three that begin badly or well, the third would do.
    with_holes(0, &mut slicer, &[(1, 66), (101, 66), (200, 66), (401, 64), (501, 64)]);
    for budget in [0, 1, 2, 3, 100] {
        let scan = slicer.begin_scan_of_class(64, budget);
        assert_eq!(slicer.would_fit(64, 7, scan), Ok(false), "{budget}");
    }
    let fits = [0, 1, 2, 3, 4, 5, 100].map(|budget| {
        let scan = slicer.begin_scan(64, budget);
        slicer.would_fit(64, 7, scan).unwrap()
    });
    // Two of its own class, then those above, as many as it may look at.
    assert_eq!(fits, [false, false, false, false, false, true, true]);
    let scan = slicer.begin_scan_of_class(66, 3);
    assert_eq!(slicer.would_fit(66, 7, scan), Ok(true));
    let scan = slicer.begin_scan_of_class(66, 2);
    assert_eq!(slicer.would_fit(66, 7, scan), Ok(false));
}

#[test]
fn the_largest_hole_is_looked_for_with_a_bounded_number_of_looks_per_call() {
    let (slicer, _) = full_of_holes(1000);
    let (mut scan, mut largest) = slicer.begin_largest();
    let mut calls = 0;
    loop {
        calls += 1;
        let more;
        (largest, more) = slicer.largest(scan, largest);
        match more {
            Some(more) => scan = more,
            None => break,
        }
    }
    assert_eq!((largest, calls), (64, 1000u32.div_ceil(search::SCAN_STEP)));
}

/// A slicer with so many holes of 64 behind one of 65, all of one class, and one of 30.
fn with_one_of_65(count: u32) -> Slicer {
    let mut slicer = Slicer::try_new(HostMemory::global(), 65 * count + 200, PageKind::Equal, 7).unwrap();
    provide_nodes(&mut slicer);
    slicer.add_page(0, 65 * count + 200);
    let holes: Vec<_> = (0..count).map(|i| (100 + 65 * i, 64)).collect();
    with_holes(0, &mut slicer, &[&[(0, 65), (67, 30)], &holes[..]].concat());
    slicer
}

#[test]
fn a_search_for_the_largest_hole_that_starts_again_forgets_what_it_has_seen() {
    let mut slicer = with_one_of_65(300);
    let (scan, least) = slicer.begin_largest();
    let (mut largest, mut more) = slicer.largest(scan, least);
    assert_eq!(largest, 65);
    allocate(&mut slicer, 65);
    while let Some(scan) = more {
        (largest, more) = slicer.largest(scan, largest);
    }
    assert_eq!(largest, 64);
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_search_for_the_largest_hole_that_goes_on_remembers_what_it_has_seen() {
    let mut slicer = with_one_of_65(5000);
    let (scan, least) = slicer.begin_largest();
    let (mut largest, mut more) = slicer.largest(scan, least);
    let mut calls = 1;
    while let Some(scan) = more {
        // Something changes that is of no consequence.
        let id = allocate(&mut slicer, 30);
        slicer.free(id.slot());
        (largest, more) = slicer.largest(scan, largest);
        calls += 1;
    }
    assert_eq!(largest, 65);
    assert!((9..=16).contains(&calls), "{calls}");
}
