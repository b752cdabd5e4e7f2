//! Handles of one allocator when more pools have been made than there are tags to tell them apart. Alone in its process:
//! others would take tags in between.

mod common;

use common::K;
use common::devices::LedgerDevice;
use common::pools::{direct, options, over, place};
use slicepool_core::{Allocator, Request};
use std::sync::{Mutex, PoisonError};

/// One test at a time.
static TAGS: Mutex<()> = Mutex::new(());

/// The tag of the pool of persistent slices is taken when the first is asked for, which may be late.
#[test]
fn the_first_persistent_slice_is_told_apart_from_the_others_of_its_allocator_however_late_it_comes() {
    let _alone = TAGS.lock().unwrap_or_else(PoisonError::into_inner);
    let device = LedgerDevice::new();
    let pools = vec![direct(None); 256];
    let allocator = over(&device, &pools);
    // After 255 more of these the tags begin anew.
    for _ in 0..255 {
        drop(Allocator::try_new(&device, &pools, options()).unwrap());
    }
    let ordinary = place(&allocator, 1000);
    let persistent = allocator.allocate(&Request::new(K).persistent()).unwrap();
    assert_ne!(ordinary.id, persistent.id, "two live slices of one allocator");
    assert_eq!((allocator.get(ordinary.id), allocator.get(persistent.id)), (Ok(ordinary), Ok(persistent)));
    assert_eq!((allocator.free(persistent.id), allocator.free(ordinary.id)), (Ok(()), Ok(())));
}

/// Pools that are installed get new tags each time, while the pool of persistent slices keeps its own.
#[test]
fn a_persistent_slice_keeps_its_handle_however_many_pools_are_installed() {
    let _alone = TAGS.lock().unwrap_or_else(PoisonError::into_inner);
    let device = LedgerDevice::new();
    let mut allocator = over(&device, &[direct(None)]);
    let persistent = allocator.allocate(&Request::new(K).persistent()).unwrap();
    for round in 0..300 {
        allocator.install_pools(&vec![direct(None); 256]).unwrap();
        assert_eq!(allocator.get(persistent.id), Ok(persistent), "round {round}");
    }
    assert_eq!(allocator.free(persistent.id), Ok(()));
}
