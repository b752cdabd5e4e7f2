//! Failure injection: the k-th device call and the k-th host allocation fail, for every k, once and from then on; and
//! every two of them.
//!
//! Each time: the right error, the state as before, nothing leaked and nothing returned twice, and after a trim the
//! same call succeeds.

mod common;
#[path = "injection/failures.rs"]
mod failures;
#[path = "injection/scenario.rs"]
mod scenario;

use common::devices::NONE_LEFT;
use common::pools::{direct, exclusive, growing, place, sliced, touch};
use common::{K, M};
use failures::Played;
use scenario::{Changes, Scenario, World, allocate, is_kept, is_out_of_memory, plain};
use slicepool_core::{AllocatorOptions, Error, PERSISTENT_POOL, Point, PoolType, Request};

// ---- growing

#[test]
fn growing_for_the_first_request_of_any_kind_survives_every_failure() {
    let persistent = Request::new(5 * K).persistent();
    for pool in [sliced(64 * K, 64 * K, Some(M)), growing(64 * K, M), exclusive(M), direct(None)] {
        for request in [Request::new(5 * K), persistent] {
            let refused = Scenario {
                pools: std::slice::from_ref(&pool),
                options: plain,
                budget: None,
                types: &[],
                prepare: &|_| {},
                call: &|world| allocate(world, request),
                changes: Changes::Nothing,
                explains: is_out_of_memory,
            }
            .play();
            // A page that is refused once may have been asked for once more, smaller.
            assert!(refused.by_device >= 1 && refused.by_host >= 4, "{refused:?}");
        }
    }
}

#[test]
fn growing_by_halves_survives_every_failure() {
    let refused = Scenario {
        pools: &[growing(8 * M, 64 * M)],
        options: plain,
        budget: None,
        types: &[],
        prepare: &|world| {
            world.slices = vec![place(&world.one, 8 * M)];
            world.device.ledger.limit_to(world.device.ledger.bytes() + M);
        },
        call: &|world| {
            let answer = allocate(world, Request::new(900 * K));
            // Some 8, 4 and 2 MiB were not to be had.
            let refused = world.device.refused() + world.device.ledger.allocate_refused();
            assert!(answer.is_err() || refused >= 3, "{refused}");
            answer
        },
        changes: Changes::Nothing,
        explains: is_out_of_memory,
    }
    .play();
    assert!(refused.by_device >= 1, "{refused:?}");
}

#[test]
fn growing_after_idle_pages_have_gone_survives_every_failure() {
    let refused = Scenario {
        pools: &[direct(None), sliced(M, M, None)],
        options: plain,
        budget: None,
        types: &[],
        prepare: &|world| {
            let idle = [3 * M, 2 * M, M].map(|size| place(&world.one, size));
            world.slices = vec![place(&world.one, 100)];
            idle.iter().for_each(|slice| world.one.free(slice.id).unwrap());
            world.device.ledger.limit_to(world.device.ledger.bytes());
        },
        call: &|world| allocate(world, Request::new(4 * M)),
        changes: Changes::IdlePages,
        explains: is_out_of_memory,
    }
    .play();
    assert!(refused.by_device >= 2, "{refused:?}");
}

#[test]
fn a_batch_survives_every_failure_half_way() {
    let refused = Scenario {
        pools: &[sliced(64 * K, 32 * K, None), direct(None)],
        options: plain,
        budget: None,
        types: &[],
        prepare: &|world| world.slices = vec![place(&world.one, 20 * K), place(&world.one, 40 * K)],
        call: &|world| {
            let size = |i| if i % 3 == 0 { 100 * K + 32 * u64::from(i) } else { 30 * K };
            let request = |i| if i % 5 == 4 { Request::new(size(i)).persistent() } else { Request::new(size(i)) };
            let batch = world.one.allocate_each(40, |i| Ok(request(i)));
            batch.map(|batch| assert_eq!(batch.len(), 40)).map_err(|refused| refused.error)
        },
        changes: Changes::Nothing,
        explains: is_out_of_memory,
    }
    .play();
    assert!(refused.by_device >= 30 && refused.by_host >= 8, "{refused:?}");
}

// ---- planning

#[test]
fn installing_pools_survives_every_failure() {
    let new = [sliced(M, M, None), direct(None).with_dealloc_period(Some(10)), exclusive(M)];
    let configuration = |world: &World<'_>| -> Vec<PoolType> {
        (0..world.one.pool_count()).map(|pool| world.one.pool_report(pool).unwrap().options.pool_type).collect()
    };
    for dry in [false, true] {
        let refused = Scenario {
            pools: &[direct(None), sliced(64 * K, 64 * K, None)],
            options: if dry { AllocatorOptions::with_dry_run } else { plain },
            budget: None,
            types: &[],
            prepare: &|world| {
                world.slices = vec![world.one.allocate(&Request::new(1000).persistent()).unwrap()];
                touch(&world.one, M);
                touch(&world.one, 3000);
            },
            call: &|world| {
                let before = configuration(world);
                let answer = world.one.install_pools(&new);
                match answer {
                    Ok(()) => {
                        assert_eq!(world.one.pool_count(), 3);
                        let persistent = world.one.pool_statistics(PERSISTENT_POOL as usize).unwrap();
                        assert_eq!(world.one.statistics().reserved, persistent.reserved);
                    }
                    Err(_) => assert_eq!(configuration(world), before),
                }
                answer
            },
            changes: Changes::IdlePages,
            explains: is_kept,
        }
        .play();
        let kept = if dry { 0..=0 } else { 2..=10 };
        assert!(kept.contains(&refused.by_device) && refused.by_host >= 6, "{dry}: {refused:?}");
    }
}

#[test]
fn resolving_a_page_of_a_dry_run_survives_every_failure() {
    let is_not_mapped = |error: &Error| matches!(error, Error::MappingFailed { size: 1.., code: NONE_LEFT });
    for pool in [sliced(M, M, None), direct(None)] {
        for limited in [false, true] {
            let refused = Scenario {
                pools: std::slice::from_ref(&pool),
                options: AllocatorOptions::with_dry_run,
                budget: None,
                types: &[],
                prepare: &|world| {
                    let slices = [M, M, M].map(|size| place(&world.one, size));
                    if limited {
                        // There is memory for one page, which one that holds nothing has.
                        world.one.resolve(slices[0].id).unwrap();
                        world.one.free(slices[0].id).unwrap();
                        world.device.ledger.limit_to(M);
                    }
                    world.slices = slices[1..].to_vec();
                },
                call: &|world| {
                    let slice = world.slices.pop().unwrap();
                    let answer = world.one.resolve(slice.id);
                    // What it is now, or still.
                    world.slices.push(answer.unwrap_or(slice));
                    answer.map(drop)
                },
                changes: if limited { Changes::IdlePages } else { Changes::Nothing },
                explains: is_not_mapped,
            }
            .play();
            assert!(refused.by_device >= 2 && refused.by_host >= u64::from(!limited), "{refused:?}");
        }
    }
}

// ---- freeing and giving back

#[test]
fn freeing_after_three_points_survives_every_failure() {
    let points = [1, 2, 3].map(|timeline| Point { timeline, value: 10 });
    let mut all = Played::default();
    for count in 1..70 {
        let played = Scenario {
            pools: &[sliced(M, M, None)],
            options: plain,
            budget: None,
            types: &[],
            prepare: &|world| {
                world.slices = (0..count).map(|_| place(&world.one, 100)).collect();
            },
            call: &|world| {
                let slice = world.slices.pop().unwrap();
                let answer = world.one.free_after(slice.id, &points);
                if answer.is_err() {
                    world.slices.push(slice);
                    return answer;
                }
                for Point { timeline, value } in points {
                    assert_eq!(world.one.statistics().slices_pending, 1);
                    world.one.collect(timeline, value).unwrap();
                }
                assert_eq!(world.one.statistics().slices_pending, 0);
                answer
            },
            changes: Changes::Nothing,
            explains: |_| false,
        }
        .play_if_anything_fails();
        assert_eq!(played.by_device, 0, "the device has nothing to do with it");
        all.add(played);
    }
    assert!(all.assert_tried().by_host >= 4, "{all:?}");
}

#[test]
fn trimming_survives_every_page_that_the_device_does_not_take_back() {
    let refused = Scenario {
        pools: &[sliced(64 * K, 64 * K, None), direct(None)],
        options: plain,
        budget: None,
        types: &[],
        prepare: &|world| {
            let idle: Vec<_> = [60 * K, 60 * K, 100 * K, 200 * K].map(|size| place(&world.one, size)).into();
            world.slices = vec![place(&world.one, 60 * K), place(&world.one, 300 * K)];
            idle.iter().for_each(|slice| world.one.free(slice.id).unwrap());
        },
        call: &|world| {
            let kept = world.device.kept.get();
            let answer = world.one.trim(0);
            let figures = world.one.statistics();
            // All go but those that are not taken, which count as stuck.
            assert_eq!((figures.pages, figures.pages_idle), (2, 0));
            assert_eq!(u64::from(figures.pages_stuck), world.device.kept.get() - kept);
            assert_eq!(answer.is_err(), figures.pages_stuck != 0);
            answer
        },
        changes: Changes::IdlePages,
        explains: is_kept,
    }
    .play();
    // Four pages, once and for ever.
    assert_eq!((refused.tried, refused.by_device, refused.by_host), (8, 8, 0));
}

#[test]
fn two_allocators_with_one_budget_survive_every_failure() {
    let refused = Scenario {
        pools: &[direct(None)],
        options: plain,
        budget: Some(4 * M),
        types: &[],
        prepare: &|world| {
            place(&world.other, M);
            touch(&world.other, 2 * M);
            world.slices = vec![place(&world.one, 64)];
        },
        call: &|world| {
            let (one, other) = (&world.one, &world.other);
            let request = Request::new(2 * M);
            match one.allocate(&request) {
                Err(Error::BudgetExceeded { size: 2_097_152, limit: 4_194_304, reserved: 3_145_792 }) => {}
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
            // The other gives way at its next call.
            let _ = other.collect(1, 0);
            one.allocate(&request).map(drop)
        },
        changes: Changes::IdlePages,
        explains: |error| is_out_of_memory(error) || matches!(error, Error::BudgetExceeded { .. }),
    }
    .play();
    assert!(refused.by_device >= 3, "{refused:?}");
}
