//! Failure injection, as in `injection.rs`: pages of slices' own and pages beforehand, labels, several memory types.

mod common;
#[path = "injection/failures.rs"]
mod failures;
#[path = "injection/scenario.rs"]
mod scenario;

use common::pools::{direct, growing, place, sliced};
use common::{K, M};
use failures::Played;
use scenario::{Changes, Scenario, is_out_of_memory, plain};
use slicepool_core::{Allocator, Label, LiveSlices, MemoryChoice, MemoryType, OwnPages, Request};

// ---- pages of slices' own, and pages beforehand

#[test]
fn dedicated_pages_survive_every_failure() {
    let data = std::ptr::without_provenance_mut(1);
    let request = Request::new(100 * K);
    let requests = [request.dedicated(), request.with_device_data(data), Request::new(2 * M)];
    let larger = |mut request: Request| {
        request.size += 32 * K;
        request
    };
    for (request, used_before) in requests.iter().flat_map(|request| [(*request, false), (*request, true)]) {
        let refused = Scenario {
            pools: &[sliced(M, M, None)],
            options: |options| options.with_dedicated_when_too_large().with_dedicated_period(Some(3)),
            budget: None,
            types: &[],
            prepare: &|world| {
                world.slices = vec![place(&world.one, 100)];
                if used_before {
                    // Pages of another size, which hold nothing.
                    for request in requests.map(larger) {
                        let slices = [(); 2].map(|()| world.one.allocate(&request).unwrap());
                        world.one.free(slices[0].id).unwrap();
                        world.slices.push(slices[1]);
                    }
                }
            },
            call: &|world| {
                let slice = world.one.allocate(&request)?;
                let pages = if request.device_data().is_null() { OwnPages::Dedicated } else { OwnPages::Once };
                let figures = world.one.pool_statistics(pages.pool(0) as usize).unwrap();
                assert!(figures.slices >= 1 && slice.offset == 0 && slice.size == request.size);
                Ok(())
            },
            changes: if used_before { Changes::IdlePages } else { Changes::Nothing },
            explains: is_out_of_memory,
        }
        .play();
        assert!(refused.by_device >= 1 && refused.by_host >= if used_before { 0 } else { 5 }, "{refused:?}");
    }
}

#[test]
fn creation_with_pages_from_the_start_survives_every_failure() {
    let pools = [sliced(64 * K, 64 * K, None).with_min_pages(4), direct(None), growing(4 * K, M).with_min_pages(3)];
    let refused = Scenario {
        pools: &[direct(None)],
        options: plain,
        budget: None,
        types: &[],
        prepare: &|world| {
            world.slices = vec![place(&world.one, 100)];
            // What an allocator that was never there has taken goes back.
            world.device.takes_back.set(true);
        },
        call: &|world| {
            let made = Allocator::try_new(world.device, &pools, world.one.options().clone())?;
            assert_eq!((made.statistics().pages, made.statistics().pages_idle), (7, 7));
            assert_eq!(made.close(LiveSlices::Refuse), Ok(()));
            Ok(())
        },
        changes: Changes::Nothing,
        explains: is_out_of_memory,
    }
    .play();
    // Seven pages, once and from then on; where pages grow, smaller ones may do.
    assert!(refused.by_device >= 10 && refused.by_host >= 20, "{refused:?}");
}

/// Pages that were taken before it stay.
#[test]
fn taking_pages_beforehand_survives_every_failure_half_way() {
    for pool in [sliced(64 * K, 64 * K, None), growing(4 * K, M)] {
        let refused = Scenario {
            pools: std::slice::from_ref(&pool),
            options: plain,
            budget: None,
            types: &[],
            prepare: &|world| world.slices = vec![place(&world.one, 100)],
            call: &|world| {
                let answer = world.one.prefill(0, 40);
                let figures = world.one.statistics();
                assert_eq!((figures.pages == 40, figures.pages - figures.pages_idle), (answer.is_ok(), 1));
                answer
            },
            changes: Changes::IdlePages,
            explains: is_out_of_memory,
        }
        .play();
        assert!(refused.by_device >= 39 && refused.by_host >= 2, "{refused:?}");
    }
}

// ---- labels

#[test]
fn labels_survive_every_failure() {
    let label = Label::named("a name").with_user_data(7);
    let mut all = Played::default();
    for count in [1, 2, 31, 32, 33, 64, 65] {
        let labelled = Scenario {
            pools: &[sliced(M, M, None)],
            options: plain,
            budget: None,
            types: &[],
            prepare: &|world| {
                world.slices = (0..count).map(|_| place(&world.one, 100)).collect();
                for slice in &world.slices[1..] {
                    world.one.set_label(slice.id, &Label::named("another")).unwrap();
                }
            },
            call: &|world| {
                let id = world.slices[0].id;
                let answer = world.one.set_label(id, &label);
                let expected = if answer.is_ok() { label } else { Label::NONE };
                assert_eq!(world.one.label(id), Ok(expected));
                answer
            },
            changes: Changes::Nothing,
            explains: |_| false,
        }
        .play_if_anything_fails();
        let allocated = Scenario {
            pools: &[sliced(M, M, None)],
            options: plain,
            budget: None,
            types: &[],
            prepare: &|world| {
                world.slices = (0..count).map(|_| place(&world.one, 100)).collect();
            },
            call: &|world| {
                let slice = world.one.allocate_labelled(&Request::new(M), &label)?;
                assert_eq!(world.one.label(slice.id), Ok(label));
                Ok(())
            },
            changes: Changes::Nothing,
            explains: is_out_of_memory,
        }
        .play();
        assert_eq!(labelled.by_device, 0, "the device has nothing to do with it");
        assert!(allocated.by_device >= 2 && allocated.by_host >= 3, "{allocated:?}");
        all.add(labelled);
    }
    assert!(all.assert_tried().by_host >= 6, "{all:?}");
}

// ---- several memory types

/// Where one fails, the next serves.
#[test]
fn a_request_that_falls_through_to_another_memory_type_survives_every_failure() {
    let types = [MemoryType::new(128 * M, 32), MemoryType::new(64 * M, 32).with_properties(1)];
    let pools = [sliced(M, M, None), sliced(2 * M, 2 * M, None).in_memory_type(1), direct(None)];
    let requests = [
        (Request::new(M), false),
        (Request::new(100).dedicated(), false),
        (Request::new(M).from_memory(MemoryChoice::ANY.preferring(1)), true),
        (Request::new(100).persistent().from_memory(MemoryChoice::ANY.preferring(1)), true),
    ];
    let mut refused_by_host = 0;
    for (request, second_first) in requests {
        let refused = Scenario {
            pools: &pools,
            options: plain,
            budget: None,
            types: &types,
            prepare: &|world| world.slices = vec![place(&world.one, 100)],
            call: &|world| {
                let mut told = Vec::new();
                let answer =
                    world.one.allocate_explained(&request, &Label::NONE, &mut |index, error| told.push((index, error)));
                let order = if second_first { [1, 0] } else { [0, 1] };
                let tried: Vec<_> = told.iter().map(|(index, _)| *index).collect();
                assert_eq!(tried, order[..tried.len()]);
                match answer {
                    Ok(slice) => {
                        let served = world.one.find(slice.memory, slice.offset).unwrap().memory_type;
                        assert_eq!(served, order[tried.len()]);
                        Ok(())
                    }
                    Err(error) => {
                        assert!(tried.len() == 2 && told.iter().any(|(_, why)| *why == error), "{told:?}");
                        Err(error)
                    }
                }
            },
            changes: Changes::Nothing,
            explains: is_out_of_memory,
        }
        .play();
        assert!(refused.by_device >= 1, "{refused:?}");
        refused_by_host += refused.by_host;
    }
    assert!(refused_by_host >= 2, "{refused_by_host}");
}
