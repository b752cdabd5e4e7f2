//! Pages that hold nothing go back by age: when exactly, which, and what may happen meanwhile.

use crate::common::books::assert_agree;
use crate::common::devices::{KEPT, LedgerDevice};
use crate::common::pools::{direct, exclusive, growing, over, sliced};
use crate::common::{K, M};
use slicepool_core::{Allocator, DeviceFault, Error, PoolOptions, Request, Slice};

/// Pools whose pages for requests of 1 KiB have 1 KiB.
fn pools_of_1_kib() -> [PoolOptions; 5] {
    [exclusive(K), sliced(K, K, None), sliced(K, K, Some(64 * K)), direct(None), growing(K, K)]
}

/// A pool that does not age: requests to it tell the time to the others, and calls the device with the first only.
fn clock() -> PoolOptions {
    sliced(32, 32, None)
}

/// An allocator whose first pool is looked at and whose last is a [`clock`], with the number of its allocations so far.
struct Timed<'a> {
    allocator: Allocator<&'a LedgerDevice>,
    device: &'a LedgerDevice,
    now: u64,
}

impl<'a> Timed<'a> {
    fn new(device: &'a LedgerDevice, pools: &[PoolOptions]) -> Self {
        Self { allocator: over(device, &[pools, &[clock()]].concat()), device, now: 0 }
    }

    fn place_in(&mut self, pool: u32, size: u64) -> Slice {
        self.now += 1;
        self.allocator.allocate(&Request::new(size).in_pool(pool)).unwrap()
    }

    fn place(&mut self, size: u64) -> Slice {
        self.place_in(0, size)
    }

    fn touch(&mut self, size: u64) -> Slice {
        let slice = self.place(size);
        self.free(slice);
        slice
    }

    fn free(&self, slice: Slice) {
        self.allocator.free(slice.id).unwrap();
    }

    /// Takes so many pages of 1 KiB in a pool, with as many requests, and frees them.
    fn idle_pages_in(&mut self, pool: u32, count: usize) -> Vec<Slice> {
        let slices: Vec<_> = (0..count).map(|_| self.place_in(pool, K)).collect();
        slices.iter().for_each(|slice| self.free(*slice));
        slices
    }

    fn idle_pages(&mut self, count: usize) -> Vec<Slice> {
        self.idle_pages_in(0, count)
    }

    /// Requests to the clock until there have been `count` allocations in all.
    fn until(&mut self, count: u64) {
        assert!(self.now <= count, "that is over");
        while self.now < count {
            let last = self.allocator.pool_count() as u32 - 1;
            let slice = self.place_in(last, 32);
            self.free(slice);
        }
    }

    /// The pages of a pool that are left when there have been `count` allocations.
    fn pages_at(&mut self, pool: usize, count: u64) -> u32 {
        self.until(count);
        assert_agree(&self.allocator, self.device);
        self.allocator.pool_statistics(pool).unwrap().pages
    }
}

fn ageing(pool: PoolOptions, period: u64) -> PoolOptions {
    pool.with_dealloc_period(Some(period))
}

// ---- when

/// Period 100: a check every 20 allocations. The first eight have taken pages; the 20th finds seven of them unused.
#[test]
fn of_eight_fresh_pages_four_go_with_the_twelfth_request_after_and_three_with_the_next() {
    for pool in pools_of_1_kib() {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[ageing(pool.clone(), 100)]);
        timed.idle_pages(8);
        let used = timed.touch(K).memory;
        for request in 2..=500 {
            assert_eq!(timed.touch(K).memory, used, "{pool:?}");
            let returned = match request {
                ..=11 => 0,
                12 => 4,
                _ => 7,
            };
            assert_eq!((device.given(), device.taken()), (8, returned), "{pool:?}, request {request}");
        }
        assert!(device.is_out(used));
        assert_agree(&timed.allocator, &device);
    }
}

/// Nobody uses the pool any more: its last page goes as well.
#[test]
fn allocations_in_one_pool_age_the_pages_of_another() {
    for pool in pools_of_1_kib() {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[ageing(pool, 100)]);
        let slices = timed.idle_pages(8);
        assert_eq!([19, 20, 21].map(|count| timed.pages_at(0, count)), [8, 4, 0]);
        assert!(slices.iter().all(|slice| !device.is_out(slice.memory)));
        // A new page is as fresh as the first ones were.
        timed.idle_pages(1);
        assert_eq!([39, 40].map(|count| timed.pages_at(0, count)), [1, 0]);
    }
}

/// A page that was used again n times needs n checks more, up to five in all.
#[test]
fn the_more_often_a_page_was_used_again_the_longer_it_stays() {
    for pool in pools_of_1_kib() {
        for used_again in 0..10 {
            let device = LedgerDevice::new();
            let mut timed = Timed::new(&device, &[ageing(pool.clone(), 100)]);
            for _ in 0..=used_again {
                timed.touch(K);
            }
            let gone = 20 * (used_again.min(4) + 1);
            assert_eq!([gone - 1, gone].map(|count| timed.pages_at(0, count)), [1, 0], "{used_again} of {pool:?}");
        }
    }
}

#[test]
fn a_page_that_was_used_all_the_time_goes_after_a_whole_period_without_use() {
    for pool in pools_of_1_kib() {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[ageing(pool, 100)]);
        // The last use comes with a check.
        while timed.now < 200 {
            timed.touch(K);
        }
        assert_eq!([299, 300].map(|count| timed.pages_at(0, count)), [1, 0]);
        assert_eq!(device.given(), 2);
    }
}

/// Checks that pass count, and what was gained by use is lost by them.
#[test]
fn a_page_that_is_used_now_and_then_stays_as_long_as_it_is() {
    let device = LedgerDevice::new();
    let mut timed = Timed::new(&device, &[ageing(exclusive(K), 100)]);
    for _ in 0..5 {
        timed.touch(K);
    }
    // Once between two checks: each check's point is taken off again.
    for check in 1..50 {
        timed.until(20 * check);
        timed.touch(K);
    }
    assert_eq!((device.given(), device.taken()), (2, 0));
    // Once in three checks: it loses two each time. 0, 2, 4, and then it is gone.
    let last = timed.now;
    assert_eq!(last, 981);
    timed.until(1059);
    assert_eq!(timed.pages_at(0, 1060), 1);
    timed.touch(K);
    timed.until(1119);
    assert_eq!(timed.pages_at(0, 1120), 0);
}

/// Seen in other pools: sliced pages did not age.
#[test]
fn a_page_with_a_slice_does_not_age_and_what_comes_and_goes_in_it_is_no_use_of_an_empty_page() {
    for pool in [sliced(K, K, None), growing(K, K)] {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[ageing(pool, 100)]);
        let stays = timed.place(32);
        for _ in 0..300 {
            timed.touch(32);
        }
        assert_eq!((timed.now, timed.pages_at(0, 310)), (301, 1));
        // Fresh as it was when it was taken: the next check takes it.
        timed.free(stays);
        assert_eq!([319, 320].map(|count| timed.pages_at(0, count)), [1, 0]);
    }
}

/// A check every fifth of the period, and at least one for each allocation.
#[test]
fn periods_of_any_length_are_honoured() {
    for (period, interval) in [(0, 1), (1, 1), (4, 1), (5, 1), (9, 1), (10, 2), (99, 19), (1000, 200), (5003, 1000)] {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[ageing(exclusive(K), period)]);
        // Freed right behind the second check.
        let slice = timed.place(K);
        timed.until(2 * interval);
        timed.free(slice);
        assert_eq!([3 * interval - 1, 3 * interval].map(|count| timed.pages_at(0, count)), [1, 0], "{period}");
    }
    for period in [1 << 40, u64::MAX] {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[ageing(exclusive(K), period)]);
        timed.idle_pages(3);
        assert_eq!(timed.pages_at(0, 10_000), 3);
    }
}

#[test]
fn every_pool_has_a_period_of_its_own() {
    let device = LedgerDevice::new();
    let pools = [ageing(exclusive(K), 100), ageing(direct(None), 50), ageing(sliced(K, K, None), 350), exclusive(K)];
    let mut timed = Timed::new(&device, &pools);
    (0..4).for_each(|pool| drop(timed.idle_pages_in(pool, 1)));
    let mut left = |count| {
        timed.until(count);
        assert_agree(&timed.allocator, &device);
        [0, 1, 2, 3].map(|pool| timed.allocator.pool_statistics(pool).unwrap().pages)
    };
    assert_eq!([9, 10, 19, 20].map(&mut left), [[1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 1, 1], [0, 0, 1, 1]]);
    assert_eq!([69, 70, 5000].map(left), [[0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 1]]);
}

#[test]
fn without_a_period_nothing_ever_goes_by_itself() {
    for pool in pools_of_1_kib() {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[pool, ageing(exclusive(K), 5)]);
        timed.idle_pages(8);
        timed.idle_pages_in(1, 1);
        assert_eq!([9, 10, 20_000].map(|count| timed.pages_at(0, count)), [8; 3]);
        assert_eq!(device.taken(), 1);
    }
}

/// What is refused is no allocation.
#[test]
fn refused_requests_do_not_make_pages_older() {
    let device = LedgerDevice::new();
    let mut timed = Timed::new(&device, &[ageing(exclusive(K), 100), sliced(K, K, Some(0))]);
    timed.idle_pages(8);
    timed.until(19);
    for _ in 0..1000 {
        timed.allocator.allocate(&Request::new(0)).unwrap_err();
        timed.allocator.allocate(&Request::new(2 * K)).unwrap_err();
        timed.allocator.allocate(&Request::new(K).in_pool(1)).unwrap_err();
    }
    assert_eq!([19, 20, 21].map(|count| timed.pages_at(0, count)), [8, 4, 0]);
}

/// A batch is as many allocations as it has slices.
#[test]
fn a_batch_makes_pages_older_by_its_number_of_slices() {
    for (slices, pages) in [(11, 8), (12, 4), (13, 0), (1000, 0)] {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[ageing(exclusive(K), 100)]);
        timed.idle_pages(8);
        let requests = vec![Request::new(32).in_pool(1); slices];
        timed.allocator.allocate_many(&requests).unwrap();
        timed.now += slices as u64;
        let now = timed.now;
        assert_eq!(timed.pages_at(0, now), pages, "{slices}");
    }
}

// ---- how many, and which

/// Pools are looked at in order; those that come after the fourth page wait for the next allocation.
#[test]
fn four_pages_go_with_one_allocation_whichever_pools_they_are_in() {
    let device = LedgerDevice::new();
    let mut timed = Timed::new(&device, &[3, 3, 3].map(|_| ageing(exclusive(K), 100)));
    (0..3).for_each(|pool| drop(timed.idle_pages_in(pool, 3)));
    for (count, left) in [(19, [3, 3, 3]), (20, [0, 2, 3]), (21, [0, 0, 1]), (22, [0, 0, 0])] {
        timed.until(count);
        assert_agree(&timed.allocator, &device);
        assert_eq!([0, 1, 2].map(|pool| timed.allocator.pool_statistics(pool).unwrap().pages), left, "{count}");
    }
}

/// A page that is too old serves a request before it is given back.
#[test]
fn a_page_that_is_overdue_stays_if_it_is_used_before_its_turn() {
    for pool in pools_of_1_kib() {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[ageing(pool, 100)]);
        timed.idle_pages(8);
        assert_eq!(timed.pages_at(0, 20), 4);
        // Four are overdue. One is used with the 21st request, before three others go with it.
        let used = timed.place(K);
        assert_eq!((timed.pages_at(0, 21), device.given()), (1, 9));
        assert_eq!(timed.allocator.get(used.id), Ok(used));
        // It was as old as can be, and that use made it younger by one.
        timed.free(used);
        assert_eq!([39, 40].map(|count| timed.pages_at(0, count)), [1, 0]);
    }
}

/// The one that was due first goes first.
#[test]
fn pages_go_in_the_order_in_which_they_grew_too_old() {
    let device = LedgerDevice::new();
    let mut timed = Timed::new(&device, &[ageing(exclusive(K), 100)]);
    let slices: Vec<_> = (0..8).map(|_| timed.place(K)).collect();
    let order = [5, 2, 7, 0, 1, 6, 4, 3];
    for index in order {
        timed.free(slices[index]);
    }
    timed.until(20);
    let left: Vec<_> = (0..8).filter(|&index| device.is_out(slices[index].memory)).collect();
    assert_eq!(left, [1, 3, 4, 6]);
}

/// The used page counts among those that stay.
#[test]
fn ageing_leaves_as_many_bytes_as_the_pool_is_to_keep() {
    for (keep, left) in [(0, 0), (1, 1), (K, 1), (3 * K - 1, 3), (3 * K, 3), (3 * K + 1, 4), (8 * K, 8), (u64::MAX, 8)]
    {
        for pool in pools_of_1_kib() {
            let device = LedgerDevice::new();
            let mut timed = Timed::new(&device, &[ageing(pool, 100).with_keep_bytes(keep)]);
            timed.idle_pages(8);
            assert_eq!([20, 21, 1000].map(|count| timed.pages_at(0, count)), [left.max(4), left, left], "{keep}");
            // Trimming and cleaning up do not ask.
            timed.allocator.cleanup().unwrap();
            assert_eq!(timed.pages_at(0, 1000), 0);
        }
    }
}

/// Live pages and other pools: what is live counts, what others hold does not.
#[test]
fn live_pages_of_the_pool_count_towards_what_it_is_to_keep() {
    let device = LedgerDevice::new();
    let pool = ageing(exclusive(K), 100).with_keep_bytes(3 * K);
    let mut timed = Timed::new(&device, &[pool, exclusive(M)]);
    timed.place_in(1, M);
    let live = [timed.place(K), timed.place(K)];
    timed.idle_pages(4);
    assert_eq!([19, 20].map(|count| timed.pages_at(0, count)), [6, 3]);
    for slice in live {
        timed.free(slice);
    }
    assert_eq!(timed.pages_at(0, 500), 3);
}

// ---- what may happen meanwhile

#[test]
fn an_aged_page_that_the_device_refuses_is_stuck_and_the_allocation_succeeds() {
    for pool in pools_of_1_kib() {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[ageing(pool, 100)]);
        timed.idle_pages(8);
        device.keep_everything(true);
        for (count, stuck) in [(19, 0), (20, 4), (21, 8), (500, 8)] {
            assert_eq!(timed.pages_at(0, count), 8 - stuck);
            assert_eq!(timed.allocator.statistics().pages_stuck, stuck);
            assert_eq!(device.deallocate_refused(), u64::from(stuck), "nobody asks again");
        }
        let refused = Error::DeviceFailed { fault: DeviceFault::Refused, code: KEPT };
        assert_eq!(timed.allocator.cleanup(), Err(refused));
        device.keep_everything(false);
        timed.allocator.trim(u64::MAX).unwrap();
        // The clock's page is among them.
        assert_eq!((timed.allocator.statistics().pages_stuck, device.taken()), (0, 9));
        assert_agree(&timed.allocator, &device);
    }
}

/// Sizes that grow by a twentieth, each freed before the next.
#[test]
fn with_a_short_period_what_is_held_follows_sizes_that_grow() {
    // Growing pages are rounded up to 2 MiB, so that only large ones can be near their request.
    let pools = [(exclusive(128 * M), K, 200), (direct(None), K, 200), (growing(32, 128 * M), 3 * M / 2, 90)];
    for (pool, first, steps) in pools {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[ageing(pool.clone(), 5)]);
        let mut size = first;
        for step in 0..steps {
            let slice = timed.place(size);
            let held = timed.allocator.statistics().reserved;
            assert!(held * 10 <= size * 22, "{held} bytes for {size} in step {step} of {pool:?}");
            timed.free(slice);
            size = size * 21 / 20;
        }
        assert!(size > 16 * M && device.taken() > 20);
        assert_agree(&timed.allocator, &device);
    }
}

/// A cleanup, a trim and a batch that is taken back do to ageing pages what they do to others.
#[test]
fn pages_that_age_can_be_trimmed_as_well() {
    for pool in pools_of_1_kib() {
        let device = LedgerDevice::new();
        let mut timed = Timed::new(&device, &[ageing(pool, 100)]);
        timed.idle_pages(8);
        timed.until(15);
        timed.allocator.trim(5 * K + 32).unwrap();
        assert_eq!([19, 20, 21].map(|count| timed.pages_at(0, count)), [5, 1, 0]);
        let requests = [Request::new(K).in_pool(0), Request::new(K).in_pool(0), Request::new(0)];
        assert_eq!(timed.allocator.allocate_many(&requests).map(drop).unwrap_err().index, 2);
        assert_eq!(timed.allocator.statistics().pages, 1);
        assert_agree(&timed.allocator, &device);
    }
}
