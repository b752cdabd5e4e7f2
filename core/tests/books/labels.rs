//! Names and user data that programs attach to slices.

use crate::common::devices::LedgerDevice;
use crate::common::filler::Fill;
use crate::common::host::HostLedger;
use crate::common::listening::Listening;
use crate::common::lock::WatchedLock;
use crate::common::meeting::Meeting;
use crate::common::pools::{KINDS, MEMORY, direct, exclusive, free_all, options, over, place, sliced};
use crate::common::random::Random;
use crate::common::sums::{State, assert_held};
use crate::common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, Error, EventKind, Label, LiveSlices, Name, Point, Request, Slice,
    SliceId,
};
use std::thread;

fn label(name: &str, user_data: u64) -> Label {
    Label::named(name).with_user_data(user_data)
}

fn name_of<D: Device>(allocator: &Allocator<D>, id: SliceId) -> String {
    allocator.label(id).unwrap().name.as_str().to_owned()
}

// ---- names

#[test]
fn names_are_cut_at_55_bytes_between_two_characters() {
    assert_eq!(Name::MAX_LEN, 55);
    for c in ["a", "é", "記", "\u{10ffff}"] {
        for count in 0..60 {
            for head in ["", "x", "xy", "xyz"] {
                let long = format!("{head}{}", c.repeat(count));
                let name = Name::new(&long);
                let kept = name.as_str();
                assert!(long.starts_with(kept) && kept.len() <= 55, "{kept}");
                assert!(kept == long || kept.len() + c.len() > 55, "{kept} could be longer");
                assert_eq!((name.is_empty(), format!("{name:?}")), (long.is_empty(), format!("{kept:?}")));
                assert_eq!(Name::new(kept), name);
            }
        }
    }
    assert_eq!((Name::default(), Name::new("").is_empty()), (Name::NONE, true));
    assert_ne!(Name::new("a"), Name::new("a\0"));
    assert_eq!(Name::new("a\0b").as_str(), "a\0b");
    assert_eq!((Label::default(), Label::named("")), (Label::NONE, Label::NONE));
}

// ---- slices

#[test]
fn what_is_attached_to_a_slice_is_there_until_something_else_is() {
    for (kind, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        let slices: Vec<_> = (0..100).map(|i| place(&allocator, 100 + i)).collect();
        for (i, slice) in slices.iter().enumerate() {
            assert_eq!(allocator.label(slice.id), Ok(Label::NONE), "{kind}");
            assert_eq!(allocator.get_with_user_data(slice.id), Ok((*slice, 0)), "{kind}");
            let label = label(&format!("the {i}-th"), i as u64);
            assert_eq!((allocator.set_label(slice.id, &label), allocator.label(slice.id)), (Ok(()), Ok(label)));
        }
        for (i, slice) in slices.iter().enumerate() {
            assert_eq!(allocator.label(slice.id), Ok(label(&format!("the {i}-th"), i as u64)), "{kind}");
            // One part stays where only the other is set.
            allocator.set_name(slice.id, "another").unwrap();
            assert_eq!(allocator.label(slice.id), Ok(label("another", i as u64)), "{kind}");
            allocator.set_user_data(slice.id, u64::MAX).unwrap();
            assert_eq!(allocator.label(slice.id), Ok(label("another", u64::MAX)), "{kind}");
            assert_eq!(allocator.get_with_user_data(slice.id), Ok((*slice, u64::MAX)), "{kind}");
            allocator.set_name(slice.id, "").unwrap();
            assert_eq!(allocator.label(slice.id), Ok(label("", u64::MAX)), "{kind}");
            allocator.set_label(slice.id, &Label::NONE).unwrap();
            assert_eq!(allocator.label(slice.id), Ok(Label::NONE), "{kind}");
            allocator.set_name(slice.id, &"long ".repeat(20)).unwrap();
            assert_eq!(name_of(&allocator, slice.id), "long ".repeat(11), "{kind}");
            assert_eq!(allocator.get(slice.id), Ok(*slice), "{kind}");
        }
        assert_held(&allocator, &device);
    }
}

#[test]
fn what_is_attached_goes_with_the_slice() {
    for (kind, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        for round in 0..5 {
            let slices: Vec<_> = (0..40).map(|_| place(&allocator, 1000)).collect();
            for slice in &slices {
                assert_eq!(allocator.label(slice.id), Ok(Label::NONE), "{kind}, {round}");
                // A slice that had no name is no heir of its predecessor's either.
                allocator.set_user_data(slice.id, 7).unwrap();
                assert_eq!(allocator.label(slice.id), Ok(label("", 7)), "{kind}, {round}");
                allocator.set_name(slice.id, "mine").unwrap();
            }
            let wait = [Point { timeline: 1, value: round + 1 }];
            for (i, slice) in slices.iter().enumerate() {
                match i % 4 {
                    0 => allocator.free(slice.id).unwrap(),
                    1 => allocator.free_after(slice.id, &wait).unwrap(),
                    2 => allocator.free_many(&[slice.id]).unwrap(),
                    _ => allocator.free_after_many(&[slice.id], &wait).unwrap(),
                }
                assert_eq!(allocator.label(slice.id), Err(Error::StaleHandle), "{kind}, {round}");
            }
            allocator.collect(1, round + 1).unwrap();
        }
        assert_held(&allocator, &device);
    }
}

#[test]
fn what_is_attached_stays_when_a_slice_is_resized() {
    let device = LedgerDevice::new();
    let allocator = over(&device, &[sliced(M, M, None)]);
    let slices = [place(&allocator, 1000), place(&allocator, 1000)];
    let labels = [label("one", 1), label("two", 2)];
    for (slice, label) in slices.iter().zip(&labels) {
        allocator.set_label(slice.id, label).unwrap();
    }
    for size in [100, 1024, 32, 500] {
        allocator.try_resize(slices[0].id, size).unwrap();
        allocator.try_resize(slices[1].id, size * 100).unwrap();
        // What lies in between has none.
        let between = place(&allocator, 1);
        assert_eq!(allocator.label(between.id), Ok(Label::NONE));
        allocator.free(between.id).unwrap();
        assert_eq!(slices.map(|slice| allocator.label(slice.id).unwrap()), labels);
    }
}

#[test]
fn a_slice_can_be_labelled_from_the_start() {
    let device = Listening::new();
    let allocator = Allocator::try_new(device, &[sliced(M, M, None), exclusive(0)], options()).unwrap();
    let data = std::ptr::without_provenance_mut(1);
    let request = Request::new(1000);
    for request in [
        request,
        request.persistent(),
        request.dedicated(),
        request.with_device_data(data),
        request.zeroed().scrubbed(),
        Request::new(0),
    ] {
        for label in [label("a name", 3), label("only a name", 0), label("", 5), Label::NONE] {
            let slice = allocator.allocate_labelled(&request, &label).unwrap();
            assert_eq!(allocator.label(slice.id), Ok(label));
            let mut told = 0;
            let other = allocator.allocate_explained(&request, &label, &mut |_, _| told += 1).unwrap();
            assert_eq!((allocator.label(other.id), told), (Ok(label), 0));
            free_all(&allocator, &[slice, other]);
        }
    }
    // What is refused for its own sake is refused with a label.
    let refused = allocator.allocate_labelled(&Request::new(5).aligned(3), &label("a", 1));
    assert_eq!(refused, Err(Error::InvalidArgument { field: c"alignment", value: 3 }));
    let before = State::of(&allocator);
    allocator.device().fill_so(Fill::Never(DeviceError::Failed(3)));
    assert!(allocator.allocate_labelled(&request.zeroed(), &label("a", 1)).is_err());
    assert_eq!(State::of(&allocator), before);
    allocator.device().fill_so(Fill::Now);
    allocator.close(LiveSlices::Free).unwrap();
}

#[test]
fn handles_that_are_no_live_slices_have_no_labels() {
    let device = LedgerDevice::new();
    let (allocator, other) = (over(&device, &[sliced(M, M, None)]), over(&device, &[sliced(M, M, None)]));
    let (stale, foreign, next) = (place(&allocator, 100), place(&other, 100), place(&allocator, 100));
    allocator.set_label(next.id, &label("next", 1)).unwrap();
    allocator.free(stale.id).unwrap();
    for (id, error) in [(stale.id, Error::StaleHandle), (foreign.id, Error::ForeignHandle)] {
        assert_eq!(allocator.label(id), Err(error));
        assert_eq!(allocator.set_label(id, &label("a", 1)), Err(error));
        assert_eq!(allocator.set_name(id, "a"), Err(error));
        assert_eq!(allocator.set_user_data(id, 1), Err(error));
        // Also where there would be nothing to do.
        assert_eq!(allocator.set_label(id, &Label::NONE), Err(error));
    }
    let heir = place(&allocator, 100);
    assert_eq!((heir.offset, allocator.label(heir.id)), (stale.offset, Ok(Label::NONE)));
    assert_eq!(
        (allocator.set_name(stale.id, "a"), allocator.label(heir.id)),
        (Err(Error::StaleHandle), Ok(Label::NONE))
    );
    assert_eq!(allocator.label(next.id), Ok(label("next", 1)));
}

#[test]
fn events_of_a_slice_that_was_freed_still_carry_its_label() {
    let lock = WatchedLock::new();
    let allocator =
        Listening::under(&[sliced(M, M, None), direct(None)], options().with_lock(lock.kind()).with_slice_events());
    for pool in 0..2 {
        for scrubbed in [false, true] {
            let request = Request::new(1000).in_pool(pool);
            let request = if scrubbed { request.scrubbed() } else { request };
            let label = label("waits", u64::from(pool));
            let ids = [(); 4].map(|()| allocator.allocate_labelled(&request, &label).unwrap().id);
            let wait = [Point { timeline: 1, value: u64::from(pool) * 2 + u64::from(scrubbed) + 1 }];
            allocator.free_after(ids[0], &wait).unwrap();
            allocator.free_after_many(&ids[1..2], &wait).unwrap();
            allocator.free(ids[2]).unwrap();
            allocator.free_many(&ids[3..]).unwrap();
            allocator.collect(1, wait[0].value).unwrap();
            let events = allocator.device().take_events();
            for kind in [EventKind::SliceAllocated, EventKind::SlicePending, EventKind::SliceFreed] {
                let told: Vec<_> = events.iter().filter(|event| event.kind == kind).collect();
                assert_eq!(told.len(), if kind == EventKind::SlicePending { 2 } else { 4 });
                assert!(told.iter().all(|event| event.label == label && event.id.is_some_and(|id| ids.contains(&id))));
            }
        }
    }
    drop(allocator);
    lock.assert_used_rightly();
}

// ---- host memory

#[test]
fn programs_that_attach_nothing_pay_nothing() {
    for (kind, pool) in KINDS {
        let device = LedgerDevice::new();
        let allocator = over(&device, &[pool]);
        let slices: Vec<_> = (0..50).map(|_| place(&allocator, 1000)).collect();
        let metadata = allocator.statistics().metadata;
        for slice in &slices {
            allocator.label(slice.id).unwrap();
            allocator.set_label(slice.id, &Label::NONE).unwrap();
            allocator.set_name(slice.id, "").unwrap();
            allocator.set_user_data(slice.id, 0).unwrap();
        }
        free_all(&allocator, &slices[..1]);
        allocator.allocate_labelled(&Request::new(1000), &Label::NONE).unwrap();
        assert_eq!(allocator.statistics().metadata, metadata, "{kind}");
        allocator.set_user_data(slices[1].id, 1).unwrap();
        let with_data = allocator.statistics().metadata;
        assert!(with_data > metadata, "{kind}");
        allocator.set_name(slices[1].id, "a").unwrap();
        assert!(allocator.statistics().metadata >= with_data + 56, "{kind}");
    }
}

#[test]
fn the_host_memory_of_what_is_attached_is_counted() {
    for (kind, pool) in KINDS {
        let (host, device) = (HostLedger::new(), LedgerDevice::new());
        let allocator = Allocator::try_new(&device, &[pool], options().with_memory(host.memory())).unwrap();
        let slice = place(&allocator, 1000);
        allocator.set_user_data(slice.id, 1).unwrap();
        assert_eq!(allocator.statistics().metadata, host.bytes(), "{kind}");
        allocator.set_name(slice.id, "a").unwrap();
        assert_eq!(allocator.statistics().metadata, host.bytes(), "{kind}");
    }
}

/// However often, whatever is attached.
#[test]
fn labelling_the_same_slots_again_needs_no_more_host_memory() {
    let mut random = Random::with_seed_or(73);
    let host = HostLedger::new();
    let device = LedgerDevice::new();
    let pools = [sliced(M, M, None), direct(None)];
    let allocator = Allocator::try_new(&device, &pools, options().with_memory(host.memory())).unwrap();
    let request = |i: u64| Request::new(1000).in_pool((i % 2) as u32);
    let mut live: Vec<_> =
        (0..100).map(|i| allocator.allocate_labelled(&request(i), &label("a", i)).unwrap()).collect();
    // A few slots more, for what is freed while something else is allocated.
    for i in 0..100 {
        live.push(allocator.allocate_labelled(&request(i), &label("b", i)).unwrap());
    }
    for _ in 0..50 {
        allocator.free(random.take(&mut live).id).unwrap();
    }
    let before = (allocator.statistics().metadata, host.calls(), host.bytes());
    let rounds = if cfg!(miri) { 100 } else { 100_000 };
    for i in 0..rounds {
        let freed = random.below(live.len() as u64) as usize;
        let pool = freed as u64;
        allocator.free(live[freed].id).unwrap();
        let new = label(["", "a", "a longer name"][i as usize % 3], i);
        live[freed] = allocator.allocate_labelled(&request(pool), &new).unwrap();
        allocator.set_name(live[random.below(live.len() as u64) as usize].id, "again").unwrap();
        if i % 1000 == 0 {
            assert_eq!((allocator.statistics().metadata, host.calls(), host.bytes()), before);
        }
    }
    assert_eq!((allocator.statistics().metadata, host.calls(), host.bytes()), before);
    assert_held(&allocator, &device);
}

/// The k-th host allocation fails, for every k, once and from then on.
fn fail_each_host_allocation(
    prepare: impl Fn(&Allocator<&LedgerDevice>) -> Vec<Slice>,
    call: impl Fn(&Allocator<&LedgerDevice>, &[Slice]) -> Result<(), Error>,
) -> u64 {
    let mut failures = 0;
    for for_ever in [false, true] {
        for k in 1.. {
            let (host, lock, device) = (HostLedger::new(), WatchedLock::new(), LedgerDevice::new());
            let options = options().with_memory(host.memory()).with_lock(lock.kind());
            let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options).unwrap();
            let slices = prepare(&allocator);
            let state = || {
                let labels: Vec<_> = slices.iter().map(|slice| allocator.label(slice.id)).collect();
                (State::of(&allocator), labels)
            };
            let before = state();
            if for_ever {
                host.fail_from(k);
            } else {
                host.fail_once(k);
            }
            let answer = call(&allocator, &slices);
            let hit = host.refused() != 0;
            host.stop_failing();
            host.assert_used_rightly();
            if answer.is_err() {
                failures += 1;
                assert!(matches!(answer, Err(Error::OutOfHostMemory { bytes: 1.. })), "{k}: {answer:?}");
                assert_eq!(state(), before, "{k}");
                assert_eq!(call(&allocator, &slices), Ok(()), "{k}, again");
            }
            assert!(hit || answer.is_ok());
            assert_held(&allocator, &device);
            lock.assert_used_rightly();
            if !hit {
                break;
            }
        }
    }
    failures
}

#[test]
fn attaching_something_for_which_host_memory_fails_changes_nothing_and_can_be_tried_again() {
    let (mut first, mut more) = (0, 0);
    for labelled in 0..70 {
        let failures = fail_each_host_allocation(
            |allocator| {
                let slices: Vec<_> = (0..100).map(|_| place(allocator, 100)).collect();
                for (i, slice) in slices.iter().take(labelled).enumerate() {
                    allocator.set_label(slice.id, &label("a name", i as u64)).unwrap();
                }
                slices
            },
            |allocator, slices| allocator.set_label(slices[labelled].id, &label("another", 1)),
        );
        if labelled == 0 { first = failures } else { more += failures }
    }
    // For labels at all, for the slots, for names; then now and then for more of them.
    assert!(first >= 6 && more >= 4, "{first} {more}");
}

#[test]
fn a_slice_whose_label_host_memory_fails_is_given_back_and_so_is_its_page() {
    for count in [0, 1, 20] {
        let failures = fail_each_host_allocation(
            |allocator| (0..count).map(|_| place(allocator, 100)).collect(),
            |allocator, _| allocator.allocate_labelled(&Request::new(M), &label("a name", 1)).map(drop),
        );
        assert!(failures >= 6, "{failures}");
    }
}

// ---- the rest

#[test]
fn threads_that_attach_something_do_not_disturb_each_other() {
    const THREADS: u64 = 4;
    let rounds = if cfg!(miri) { 20 } else { 3000 };
    let mut random = Random::with_seed_or(74);
    let device = LedgerDevice::new();
    let options = options().with_lock(crate::common::lock::yielding());
    let allocator = Allocator::try_new(&device, &[sliced(M, M, None)], options).unwrap();
    let start = Meeting::of(THREADS as u32);
    let generators: Vec<_> = (0..THREADS).map(|_| random.split()).collect();
    thread::scope(|scope| {
        for (thread, mut random) in generators.into_iter().enumerate() {
            let (allocator, start) = (&allocator, &start);
            scope.spawn(move || {
                start.wait();
                let mut live: Vec<(Slice, Label)> = Vec::new();
                for i in 0..rounds {
                    let mine = label(&format!("thread {thread}, {i}"), i);
                    let slice = allocator.allocate_labelled(&Request::new(100), &mine).unwrap();
                    live.push((slice, mine));
                    let at = random.below(live.len() as u64) as usize;
                    let (slice, mine) = live[at];
                    assert_eq!(allocator.label(slice.id), Ok(mine));
                    allocator.set_name(slice.id, "changed").unwrap();
                    live[at].1.name = Name::new("changed");
                    if live.len() > 50 {
                        let (slice, mine) = random.take(&mut live);
                        assert_eq!(allocator.label(slice.id), Ok(mine));
                        allocator.free(slice.id).unwrap();
                    }
                }
            });
        }
    });
    assert_held(&allocator, &device);
}

#[test]
fn an_allocator_has_a_name_and_user_data_too() {
    let device = LedgerDevice::new();
    let options = AllocatorOptions::default().with_memory_type(MEMORY).with_name("textures").with_user_data(4 * K);
    let allocator = Allocator::try_new(&device, &[direct(None)], options).unwrap();
    assert_eq!((allocator.options().name, allocator.options().user_data), (Name::new("textures"), 4 * K));
    let mut report = String::new();
    allocator.write_json(&mut report).unwrap();
    assert_eq!(
        crate::common::json::Json::read(&report).get("name"),
        &crate::common::json::Json::Text("textures".to_owned())
    );
}
