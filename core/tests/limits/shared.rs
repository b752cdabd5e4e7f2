//! Limits that allocators share: exact at any time, and what nobody needs is given to whoever does.

use crate::common::M;
use crate::common::devices::{LedgerDevice, NONE_LEFT};
use crate::common::host::HostLedger;
use crate::common::pools::{KINDS, allocate, direct, exclusive, growing, options, place, sliced};
use crate::common::random::Random;
use slicepool_core::{
    Allocator, Budget, Error, HostMemory, LiveSlices, LockKind, Point, PoolOptions, Request, SliceId,
};

fn budget(bytes: Option<u64>, pages: Option<u32>) -> Budget {
    Budget::try_new(HostMemory::global(), LockKind::spin(), bytes, pages).unwrap()
}

fn member<'a>(device: &'a LedgerDevice, budget: &Budget, pools: &[PoolOptions]) -> Allocator<&'a LedgerDevice> {
    Allocator::try_new(device, pools, options().with_budget(budget)).unwrap()
}

fn used(budget: &Budget) -> (u64, u32) {
    (budget.statistics().bytes, budget.statistics().pages)
}

fn over(size: u64, limit: u64, reserved: u64) -> Error {
    Error::BudgetExceeded { size, limit, reserved }
}

/// A pool with pages of 1 MiB.
fn pages() -> [PoolOptions; 1] {
    [sliced(M, M, None)]
}

/// Slices of whole pages that are freed at once, so that the pages are idle.
fn idle_pages(allocator: &Allocator<&LedgerDevice>, count: usize) {
    let ids: Vec<_> = (0..count).map(|_| allocate(allocator, M)).collect();
    for id in ids {
        allocator.free(id).unwrap();
    }
}

// ---- exact

/// What all members hold together is what the budget says, whatever the kinds of their pools.
#[test]
fn members_hold_together_what_the_budget_says() {
    let device = LedgerDevice::new();
    let shared = budget(Some(10 * M), None);
    let members: Vec<_> = KINDS.iter().map(|(_, pool)| member(&device, &shared, std::slice::from_ref(pool))).collect();
    let mut random = Random::with_seed_or(7);
    let mut live: Vec<(usize, SliceId)> = Vec::new();
    let (mut refused, mut served) = (0, 0);
    for _ in 0..20_000 {
        let index = random.below(members.len() as u64) as usize;
        match random.below(10) {
            0 => members[index].trim(random.below(2 * M)).unwrap(),
            1..=4 if !live.is_empty() => {
                let (index, id) = random.take(&mut live);
                members[index].free(id).unwrap();
            }
            _ => match members[index].allocate(&Request::new(random.within(1, 1 << 16))) {
                Ok(slice) => {
                    served += 1;
                    live.push((index, slice.id));
                }
                Err(Error::BudgetExceeded { limit, .. }) => {
                    refused += 1;
                    assert_eq!(limit, 10 * M);
                }
                // The capped ones.
                Err(error) => assert!(matches!(error, Error::PoolCapacityExceeded { .. }), "{error}"),
            },
        }
        assert_eq!(used(&shared), (device.bytes(), device.pages() as u32));
        assert!(device.bytes() <= 10 * M);
    }
    assert!(refused > 100 && served > 1000, "{refused} refused, {served} served");
    let figures = shared.statistics();
    assert_eq!((figures.max_bytes, figures.max_pages, figures.bytes_peak), (10 * M, u32::MAX, device.bytes_peak()));
    drop(members);
    assert_eq!((used(&shared), device.bytes()), ((0, 0), 0));
}

/// Persistent slices too, and several limits at once: the narrowest counts.
#[test]
fn own_limits_and_shared_ones_hold_together() {
    let device = LedgerDevice::new();
    let shared = budget(Some(6 * M), Some(5));
    let narrow = Allocator::try_new(&device, &pages(), options().with_budget(&shared).with_max_bytes(Some(2 * M)));
    let narrow = narrow.unwrap();
    let wide = member(&device, &shared, &pages());
    allocate(&narrow, M);
    narrow.allocate(&Request::new(M).persistent()).unwrap();
    assert_eq!(narrow.allocate(&Request::new(M)), Err(over(M, 2 * M, 2 * M)));
    assert_eq!(used(&shared), (2 * M, 2), "what its own limit refuses is not reserved");
    wide.allocate(&Request::new(2 * M).persistent()).unwrap();
    allocate(&wide, M);
    assert_eq!(wide.allocate(&Request::new(2 * M).persistent()), Err(over(2 * M, 6 * M, 5 * M)));
    let last = allocate(&wide, M);
    assert_eq!(wide.allocate(&Request::new(M)), Err(over(M, 6 * M, 6 * M)));
    wide.free(last).unwrap();
    wide.trim(0).unwrap();
    // What the shared limit refuses is not reserved under its own.
    let limited = Allocator::try_new(&device, &pages(), options().with_budget(&shared).with_max_bytes(Some(3 * M)));
    let limited = limited.unwrap();
    allocate(&limited, M);
    for _ in 0..5 {
        assert_eq!(limited.allocate(&Request::new(M)), Err(over(M, 6 * M, 6 * M)));
    }
    shared.set_limits(Some(100 * M), Some(5));
    assert_eq!(limited.allocate(&Request::new(M)), Err(Error::PageCountExceeded { size: M, limit: 5 }));
    shared.set_limits(None, None);
    allocate(&limited, M);
    allocate(&limited, M);
    assert_eq!(limited.allocate(&Request::new(M)), Err(over(M, 3 * M, 3 * M)));
    assert_eq!(used(&shared), (device.bytes(), device.pages() as u32));
}

/// However an allocator goes, what it held is returned.
#[test]
fn what_a_member_held_is_returned_when_it_goes() {
    let shared = budget(Some(8 * M), Some(8));
    let others_device = LedgerDevice::new();
    let other = member(&others_device, &shared, &pages());
    allocate(&other, M);
    for way in ["drop", "abandon", "close by force", "drop with a device that takes nothing", "destroy", "trim"] {
        let device = LedgerDevice::new();
        let gone = member(&device, &shared, &[sliced(M, M, None), direct(None)]);
        let live: Vec<_> = (0..4).map(|_| place(&gone, M)).collect();
        gone.allocate(&Request::new(3 * M).in_pool(1)).unwrap();
        assert_eq!(used(&shared), (8 * M, 6), "{way}");
        match way {
            "drop" => drop(gone),
            "abandon" => {
                gone.abandon();
                assert_eq!(device.pages(), 5);
                device.write_off();
            }
            "close by force" => {
                gone.free_after(live[0].id, &[Point::new(1, 1)]).unwrap();
                gone.close(LiveSlices::Free).unwrap();
                assert_eq!(used(&shared), (M, 1));
                drop(gone);
            }
            "destroy" => {
                let Err((gone, _)) = gone.destroy() else { panic!("slices are live") };
                assert_eq!(used(&shared), (8 * M, 6));
                gone.close(LiveSlices::Free).unwrap();
                assert!(gone.destroy().is_ok());
            }
            "trim" => {
                live.iter().for_each(|slice| gone.free(slice.id).unwrap());
                gone.trim(4 * M).unwrap();
                assert_eq!(used(&shared), (5 * M, 3));
                gone.trim(0).unwrap();
                assert_eq!(used(&shared), (4 * M, 2));
                drop(gone);
            }
            _ => {
                device.keep_everything(true);
                assert!(gone.close(LiveSlices::Free).is_err());
                assert_eq!(used(&shared), (8 * M, 6), "what the device has not taken is held");
                drop(gone);
                assert_eq!(device.pages(), 5);
                device.write_off();
            }
        }
        assert_eq!((used(&shared), others_device.pages()), ((M, 1), 1), "{way}");
    }
    let figures = shared.statistics();
    assert_eq!((figures.bytes_peak, figures.pages_peak), (8 * M, 6));
}

/// A page that comes to nothing is returned: the device refuses it or fails, or host memory runs out at any place.
#[test]
fn growths_that_fail_return_what_they_reserved() {
    let shared = budget(Some(4 * M), Some(4));
    for (name, pool) in KINDS {
        let device = LedgerDevice::new();
        let other = member(&device, &shared, &pages());
        allocate(&other, M);
        for k in 1.. {
            let host = HostLedger::new();
            let options = options().with_budget(&shared).with_memory(host.memory());
            let allocator = Allocator::try_new(&device, std::slice::from_ref(&pool), options).unwrap();
            host.fail_once(k);
            let served = allocator.allocate(&Request::new(1000)).is_ok();
            host.stop_failing();
            assert_eq!(used(&shared), (device.bytes(), device.pages() as u32), "{name}, {k}");
            drop(allocator);
            assert_eq!(used(&shared), (M, 1), "{name}, {k}");
            if served {
                assert!(k > 1, "{name}");
                break;
            }
        }
        let allocator = member(&device, &shared, std::slice::from_ref(&pool));
        for _ in 0..100 {
            device.refuse_after(0);
            let refused = allocator.allocate(&Request::new(1 << 16));
            assert!(matches!(refused, Err(Error::OutOfDeviceMemory { code: NONE_LEFT, .. })), "{name}");
            allocator.trim(0).unwrap();
            assert_eq!(used(&shared), (M, 1), "{name}");
        }
    }
    assert_eq!(used(&shared), (0, 0));
}

// ---- owners

/// A budget lives as long as anybody has it.
#[test]
fn a_budget_lives_as_long_as_one_of_its_owners() {
    let host = HostLedger::new();
    let device = LedgerDevice::new();
    let shared = Budget::try_new(host.memory(), LockKind::spin(), Some(2 * M), None).unwrap();
    let bytes = host.bytes();
    assert!(bytes != 0);
    let clone = shared.clone();
    let [one, two] = [&shared, &clone].map(|budget| member(&device, budget, &pages()));
    drop(shared);
    allocate(&one, M);
    allocate(&two, M);
    drop(clone);
    assert_eq!(one.allocate(&Request::new(M)), Err(over(M, 2 * M, 2 * M)));
    drop(one);
    assert_eq!(host.bytes(), bytes);
    allocate(&two, M);
    assert_eq!(two.allocate(&Request::new(M)), Err(over(M, 2 * M, 2 * M)));
    two.abandon();
    assert_eq!(host.bytes(), 0);
    device.write_off();
    // Nobody but the one who made it.
    drop(Budget::try_new(host.memory(), LockKind::spin(), None, None).unwrap().clone());
    host.assert_all_returned();
    host.fail_from(1);
    let refused = Budget::try_new(host.memory(), LockKind::spin(), None, None).map(|_| ());
    assert!(matches!(refused, Err(Error::OutOfHostMemory { bytes: 1.. })));
}

// ---- limits that change

/// Limits can be widened and narrowed at any time; what is held above them stays, but nothing more is taken.
#[test]
fn limits_can_be_changed_while_memory_is_held() {
    let device = LedgerDevice::new();
    let shared = budget(Some(2 * M), None);
    let [one, two] = [(); 2].map(|()| member(&device, &shared, &pages()));
    let mut live = vec![allocate(&one, M), allocate(&one, M)];
    assert_eq!(two.allocate(&Request::new(M)), Err(over(M, 2 * M, 2 * M)));
    shared.set_limits(Some(4 * M), Some(3));
    let third = allocate(&two, M);
    assert_eq!(two.allocate(&Request::new(M)), Err(Error::PageCountExceeded { size: M, limit: 3 }));
    shared.set_limits(Some(M), None);
    assert_eq!(used(&shared), (3 * M, 3));
    for member in [&one, &two] {
        assert_eq!(member.allocate(&Request::new(M)), Err(over(M, M, 3 * M)));
    }
    // What becomes idle goes, since less may be held than is.
    for left in [2, 1] {
        one.free(live.pop().unwrap()).unwrap();
        assert_eq!(used(&shared), (left * M, left as u32));
        assert_eq!(two.allocate(&Request::new(M)), Err(over(M, M, left * M)));
    }
    two.free(third).unwrap();
    two.trim(0).unwrap();
    allocate(&one, M);
    assert_eq!((used(&shared), shared.statistics().max_bytes), ((M, 1), M));
}

/// Narrower limits alone make idle pages go, as if there were to be room for one byte more.
#[test]
fn narrower_limits_make_idle_pages_go_down_to_them() {
    for (bytes, pages_left) in [(Some(4 * M), None), (None, Some(4)), (Some(4 * M + 100), Some(9))] {
        let device = LedgerDevice::new();
        let shared = budget(None, None);
        let holder = member(&device, &shared, &pages());
        let kept = allocate(&holder, 10);
        idle_pages(&holder, 9);
        assert_eq!(device.pages(), 10);
        shared.set_limits(bytes, pages_left);
        let id = allocate(&holder, 10);
        let left = device.pages();
        assert!((3..=4).contains(&left), "{bytes:?}, {pages_left:?}: {left}");
        holder.free(id).unwrap();
        holder.free(kept).unwrap();
        assert_eq!(device.pages(), left, "{bytes:?}, {pages_left:?}");
    }
}

// ---- pressure

/// Idle pages of one member go when another is refused: at its next call that allocates or frees, and no more than needed.
#[test]
fn a_member_gives_idle_pages_to_another_at_its_next_call() {
    for (limits, size, gone) in [
        ((Some(8 * M), None), M, 1),
        ((Some(8 * M), None), 3 * M, 3),
        ((Some(8 * M + M / 2), None), 3 * M, 3),
        ((Some(8 * M + M - 32), None), M + 32, 1),
        ((None, Some(8)), 3 * M, 1),
    ] {
        for call in ["allocate", "free", "free_after", "free_many", "collect"] {
            let device = LedgerDevice::new();
            let shared = budget(limits.0, limits.1);
            let [holder, wanting] = [pages(), [direct(None)]].map(|pools| member(&device, &shared, &pools));
            let live: Vec<_> = (0..2).map(|_| allocate(&holder, M / 4)).collect();
            idle_pages(&holder, 7);
            assert_eq!(device.pages(), 8);
            assert!(wanting.allocate(&Request::new(size)).is_err());
            assert_eq!(device.pages(), 8, "nothing happens on the other's thread");
            match call {
                "allocate" => drop(allocate(&holder, M / 4)),
                "free" => holder.free(live[0]).unwrap(),
                "free_after" => holder.free_after(live[0], &[Point::new(1, 1)]).unwrap(),
                "free_many" => holder.free_many(&live[..1]).unwrap(),
                _ => holder.collect(1, 1).unwrap(),
            }
            assert_eq!(device.pages(), 8 - gone, "{call}, {size}, {limits:?}");
            // Again and again costs nothing.
            for _ in 0..10 {
                holder.free(allocate(&holder, M / 4)).unwrap();
            }
            assert_eq!(device.pages(), 8 - gone, "{call}");
            allocate(&wanting, size);
            assert_eq!(used(&shared), (device.bytes(), device.pages() as u32));
        }
    }
}

/// Those that have been idle the longest, of all pools of the member; live ones and those in which something waits stay.
#[test]
fn a_member_gives_way_with_its_oldest_idle_pages() {
    let device = LedgerDevice::new();
    let shared = budget(Some(8 * M), None);
    let holder = member(&device, &shared, &[sliced(M, M, None), exclusive(M), direct(None), growing(M, M)]);
    let wanting = member(&device, &shared, &[direct(None)]);
    let slices: Vec<_> = (0..8).map(|i| holder.allocate(&Request::new(M).in_pool(i % 4)).unwrap()).collect();
    holder.free_after(slices[7].id, &[Point::new(1, 1)]).unwrap();
    for index in [3, 0, 2, 5] {
        holder.free(slices[index].id).unwrap();
    }
    for index in [3, 0, 2, 5] {
        assert_eq!(wanting.allocate(&Request::new(M)), Err(over(M, 8 * M, 8 * M)));
        assert!(device.is_out(slices[index].memory));
        holder.collect(2, 1).unwrap();
        assert!(!device.is_out(slices[index].memory), "{index}");
        allocate(&wanting, M);
    }
    assert_eq!(wanting.allocate(&Request::new(M)), Err(over(M, 8 * M, 8 * M)));
    holder.collect(2, 2).unwrap();
    assert_eq!(device.pages(), 8);
    for index in [1, 4, 6] {
        assert_eq!(holder.get(slices[index].id), Ok(slices[index]));
    }
}

/// A member whose own idle pages are in the way uses them itself, and at once; that done, nothing is wanted any more.
#[test]
fn a_member_gives_its_own_idle_pages_back_before_it_is_refused() {
    let device = LedgerDevice::new();
    let shared = budget(Some(8 * M), None);
    let [one, two] = [(); 2].map(|()| member(&device, &shared, &[sliced(M, M, None), direct(None)]));
    idle_pages(&one, 4);
    idle_pages(&two, 4);
    one.allocate(&Request::new(3 * M).in_pool(1)).unwrap();
    two.free(allocate(&two, 10)).unwrap();
    assert_eq!((one.statistics().pages_idle, two.statistics().pages_idle), (1, 4));
    assert_eq!(used(&shared), (8 * M, 6));
}

/// What was refused and then was had is not wanted any more, though nothing of it is left by then.
#[test]
fn what_was_had_in_the_end_makes_nobody_give_way() {
    let device = LedgerDevice::new();
    let shared = budget(Some(8 * M), None);
    let [holder, wanting, idle] = [(); 3].map(|()| member(&device, &shared, &pages()));
    let live: Vec<_> = (0..4).map(|_| allocate(&holder, M)).collect();
    idle_pages(&idle, 2);
    for _ in 0..2 {
        allocate(&wanting, M);
    }
    assert_eq!(wanting.allocate(&Request::new(M)), Err(over(M, 8 * M, 8 * M)));
    // One page comes free, by itself, and serves.
    holder.free(live[0]).unwrap();
    holder.trim(0).unwrap();
    allocate(&wanting, M);
    idle.free(allocate(&idle, 10)).unwrap();
    assert_eq!((idle.statistics().pages_idle, used(&shared)), (2, (8 * M, 8)));
}

/// What could not be had even if all others gave everything is no reason to give anything.
#[test]
fn a_request_larger_than_the_budget_makes_nobody_give_way() {
    let device = LedgerDevice::new();
    let shared = budget(Some(8 * M), None);
    let [holder, wanting] = [pages(), [direct(None)]].map(|pools| member(&device, &shared, &pools));
    idle_pages(&holder, 7);
    let live = allocate(&holder, M);
    assert_eq!(wanting.allocate(&Request::new(9 * M)), Err(over(9 * M, 8 * M, 7 * M)));
    holder.free(live).unwrap();
    assert_eq!(device.pages(), 7);
    // And what is refused later is all that goes.
    assert_eq!(wanting.allocate(&Request::new(2 * M)), Err(over(2 * M, 8 * M, 7 * M)));
    holder.free(allocate(&holder, M)).unwrap();
    assert_eq!(device.pages(), 6);
}
