//! Failure injection: the k-th device call and the k-th host allocation fail, for every k, once and from then on.
//!
//! Each time: the right error, the state as before, nothing leaked and nothing returned twice, and after a trim the same
//! call succeeds.

mod common;

use common::devices::{KEPT, NONE_LEFT};
use common::host::HostLedger;
use common::lock::WatchedLock;
use common::pools::{direct, exclusive, growing, options, place, sliced, touch};
use common::shaky::{Failing, Shaky};
use common::sums::{State, assert_sums};
use common::{K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Budget, DeviceFault, Error, LiveSlices, PERSISTENT_POOL, Point, PoolOptions, PoolType,
    Request, Slice,
};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Device,
    Host,
}

/// What a scenario plays with.
struct World<'a> {
    device: &'a Shaky,
    one: Allocator<&'a Shaky>,
    /// Shares the budget with the first.
    other: Allocator<&'a Shaky>,
    budget: Budget,
    slices: Vec<Slice>,
}

impl World<'_> {
    fn state(&self) -> [State; 2] {
        [State::of(&self.one), State::of(&self.other)]
    }

    /// The books agree with each other, with the device and with the budget.
    fn check(&self) {
        let (mut bytes, mut pages) = (0, 0);
        for allocator in [&self.one, &self.other] {
            assert_sums(allocator);
            let figures = allocator.statistics();
            assert_eq!(figures.growths_in_flight, 0);
            bytes += figures.reserved - figures.unmapped;
            pages += figures.pages + figures.pages_stuck - figures.pages_unmapped;
        }
        assert_eq!((bytes, u64::from(pages)), (self.device.ledger.bytes(), self.device.ledger.pages()));
        assert_eq!((bytes, pages), (self.budget.statistics().bytes, self.budget.statistics().pages));
        self.slices.iter().for_each(|slice| assert_eq!(self.one.get(slice.id), Ok(*slice)));
    }

    /// Gives back what is stuck, and nothing else.
    fn trim(&self) {
        self.one.trim(u64::MAX).unwrap();
        self.other.trim(u64::MAX).unwrap();
    }
}

/// What a failing call may change.
#[derive(Clone, Copy, PartialEq)]
enum Changes {
    Nothing,
    /// Pages that held nothing may have gone.
    IdlePages,
}

struct Scenario<'s> {
    pools: &'s [PoolOptions],
    options: fn(AllocatorOptions) -> AllocatorOptions,
    /// Bytes that both allocators may hold together.
    budget: Option<u64>,
    prepare: &'s dyn Fn(&mut World<'_>),
    call: &'s dyn Fn(&mut World<'_>) -> Result<(), Error>,
    changes: Changes,
    /// Whether an error is one that a failing device explains.
    explains: fn(&Error) -> bool,
}

impl Scenario<'_> {
    /// Plays it with every failure; how many calls were refused because of the device, and because of the host.
    fn play(&self) -> (u64, u64) {
        [Part::Device, Part::Host].map(|part| self.play_with(part)).into()
    }

    fn play_with(&self, part: Part) -> u64 {
        let mut refused = 0;
        for for_ever in [false, true] {
            for k in 1.. {
                let (failed, was_refused) = self.play_once(part, Failing { k, for_ever });
                refused += u64::from(was_refused);
                if !failed {
                    break;
                }
                assert!(k < 1000, "there is no end to it");
            }
        }
        refused
    }

    /// Whether anything failed, and whether the call was refused.
    fn play_once(&self, part: Part, failing: Failing) -> (bool, bool) {
        let name = format!("{part:?}, {failing:?}");
        let (host, lock, device) = (HostLedger::new(), WatchedLock::new(), Shaky::new());
        let budget = Budget::try_new(host.memory(), lock.kind(), self.budget, None).unwrap();
        let books = options().with_memory(host.memory()).with_lock(lock.kind()).with_budget(&budget);
        let books = (self.options)(books);
        let one = Allocator::try_new(&device, self.pools, books.clone()).unwrap();
        let other = Allocator::try_new(&device, self.pools, books).unwrap();
        let mut world = World { device: &device, one, other, budget, slices: Vec::new() };
        (self.prepare)(&mut world);
        world.check();
        let before = world.state();

        match part {
            Part::Device => device.fail(Some(failing)),
            Part::Host if failing.for_ever => host.fail_from(failing.k),
            Part::Host => host.fail_once(failing.k),
        }
        let answer = (self.call)(&mut world);
        let failed = device.failed.get() + host.refused() != 0;
        device.fail(None);
        host.stop_failing();

        world.check();
        host.assert_used_rightly();
        if let Err(error) = answer {
            assert!(failed, "{name}: {error} for no reason");
            let right = match part {
                Part::Device => (self.explains)(&error),
                Part::Host => matches!(error, Error::OutOfHostMemory { bytes: 1.. }),
            };
            assert!(right, "{name}: {error:?}");
            if self.changes == Changes::Nothing && device.kept.get() == 0 {
                assert_eq!(world.state(), before, "{name}: {error}");
            }
            world.trim();
            world.check();
            if self.changes == Changes::Nothing {
                assert_eq!(world.state(), before, "{name}: {error}, after a trim");
            }
            assert_eq!((self.call)(&mut world), Ok(()), "{name}: {error}, tried again");
            world.check();
        }
        for allocator in [world.one, world.other] {
            assert_eq!(allocator.close(LiveSlices::Free), Ok(()), "{name}");
        }
        drop(world.budget);
        lock.assert_used_rightly();
        device.ledger.assert_all_returned();
        assert_eq!(device.ledger.given(), device.ledger.taken(), "{name}");
        (failed, answer.is_err())
    }
}

fn plain(options: AllocatorOptions) -> AllocatorOptions {
    options
}

fn is_out_of_memory(error: &Error) -> bool {
    matches!(error, Error::OutOfDeviceMemory { size: 1.., code: NONE_LEFT })
}

fn is_kept(error: &Error) -> bool {
    *error == Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT }
}

fn allocate(world: &World<'_>, request: Request) -> Result<(), Error> {
    world.one.allocate(&request).map(drop)
}

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
                prepare: &|_| {},
                call: &|world| allocate(world, request),
                changes: Changes::Nothing,
                explains: is_out_of_memory,
            }
            .play();
            // A page that is refused once may have been asked for once more, smaller.
            assert!(refused.0 >= 1 && refused.1 >= 4, "{refused:?}");
        }
    }
}

#[test]
fn growing_by_halves_survives_every_failure() {
    let refused = Scenario {
        pools: &[growing(8 * M, 64 * M)],
        options: plain,
        budget: None,
        prepare: &|world| {
            world.slices = vec![place(&world.one, 8 * M)];
            world.device.ledger.limit_to(world.device.ledger.bytes() + M);
        },
        call: &|world| {
            let answer = allocate(world, Request::new(900 * K));
            // Some 8, 4 and 2 MiB were not to be had.
            let refused = world.device.failed.get() + world.device.ledger.allocate_refused();
            assert!(answer.is_err() || refused >= 3, "{refused}");
            answer
        },
        changes: Changes::Nothing,
        explains: is_out_of_memory,
    }
    .play();
    assert!(refused.0 >= 1, "{refused:?}");
}

#[test]
fn growing_after_idle_pages_have_gone_survives_every_failure() {
    let refused = Scenario {
        pools: &[direct(None), sliced(M, M, None)],
        options: plain,
        budget: None,
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
    assert!(refused.0 >= 2, "{refused:?}");
}

#[test]
fn a_batch_survives_every_failure_half_way() {
    let refused = Scenario {
        pools: &[sliced(64 * K, 32 * K, None), direct(None)],
        options: plain,
        budget: None,
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
    assert!(refused.0 >= 30 && refused.1 >= 8, "{refused:?}");
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
        assert!(kept.contains(&refused.0) && refused.1 >= 6, "{dry}: {refused:?}");
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
            assert!(refused.0 >= 2 && refused.1 >= u64::from(!limited), "{refused:?}");
        }
    }
}

// ---- freeing and giving back

#[test]
fn freeing_after_three_points_survives_every_failure() {
    let points = [1, 2, 3].map(|timeline| Point { timeline, value: 10 });
    let mut refused = 0;
    for count in 1..70 {
        let played = Scenario {
            pools: &[sliced(M, M, None)],
            options: plain,
            budget: None,
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
        .play();
        assert_eq!(played.0, 0, "the device has nothing to do with it");
        refused += played.1;
    }
    assert!(refused >= 4, "{refused}");
}

#[test]
fn trimming_survives_every_page_that_the_device_does_not_take_back() {
    let refused = Scenario {
        pools: &[sliced(64 * K, 64 * K, None), direct(None)],
        options: plain,
        budget: None,
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
    assert_eq!(refused, (8, 0));
}

#[test]
fn two_allocators_with_one_budget_survive_every_failure() {
    let refused = Scenario {
        pools: &[direct(None)],
        options: plain,
        budget: Some(4 * M),
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
    assert!(refused.0 >= 3, "{refused:?}");
}
