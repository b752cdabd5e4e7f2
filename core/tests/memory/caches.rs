//! Memory that has to be flushed and invalidated, since the CPU's caches do not see the device.

use crate::common::mapped::{Cached, Mapped, Visible};
use crate::common::pools::{KINDS, direct, exclusive, growing, options, place, sliced};
use crate::common::random::Random;
use crate::common::sums::all_ranges;
use crate::common::{K, M};
use slicepool_core::{
    Allocator, Debugging, Error, LiveSlices, MemoryType, NearPage, PoolOptions, Request, ResourceKind, Slice,
};
use std::collections::HashMap;
use std::sync::Arc;

const fn memory(atom: u64) -> MemoryType {
    MemoryType::new(128 * M, 32).with_non_coherent_atom(atom)
}

fn make(visible: Visible, atom: u64, pools: &[PoolOptions]) -> Arc<Allocator<Mapped>> {
    Mapped::under(visible, pools, options().with_memory_type(memory(atom)))
}

/// Flushes and invalidates, which is the same but for the call.
fn both(allocator: &Allocator<Mapped>, slice: &Slice, offset: u64, size: u64) -> Result<(), Error> {
    let flushed = allocator.flush(slice.id, offset, size);
    assert_eq!(allocator.invalidate(slice.id, offset, size), flushed);
    flushed
}

/// The calls for one range.
fn calls(slice: &Slice, offset: u64, size: u64) -> Vec<Cached> {
    [true, false].map(|flush| (flush, slice.memory, offset, size)).into()
}

#[test]
fn ranges_are_widened_to_whole_atoms() {
    for visible in [Visible::OnDemand, Visible::Always] {
        let allocator = make(visible, 64, &[sliced(M, M, None)]);
        place(&allocator, 1000);
        let slice = place(&allocator, 1000);
        assert_eq!((slice.offset, slice.size), (1024, 1024));
        for (offset, size, from, to) in [
            (0, 1, 0, 64),
            (0, 64, 0, 64),
            (0, 65, 0, 128),
            (63, 1, 0, 64),
            (63, 2, 0, 128),
            (64, 1, 64, 128),
            (100, 500, 64, 640),
            (1023, 1, 960, 1024),
            (0, 1024, 0, 1024),
            (0, u64::MAX, 0, 1024),
            (1, u64::MAX, 0, 1024),
            (960, u64::MAX, 960, 1024),
        ] {
            assert_eq!(both(&allocator, &slice, offset, size), Ok(()));
            assert_eq!(allocator.device().take_cached(), calls(&slice, 1024 + from, to - from), "{offset} {size}");
        }
        // Nothing is mapped or unmapped for that.
        assert_eq!(allocator.device().calls(), (0, 0));
        allocator.close(LiveSlices::Free).unwrap();
    }
}

/// Pages consist of whole atoms, also where the largest that the device has does not.
#[test]
fn ranges_end_where_the_page_ends() {
    let memory = MemoryType::new(1000, 8).with_non_coherent_atom(64);
    let allocator = Mapped::under(
        Visible::Always,
        &[PoolOptions::direct(None).with_granule(64)],
        options().with_memory_type(memory),
    );
    let largest = allocator.allocate(&Request::new(u64::MAX)).map(drop);
    let Err(Error::TooLarge { limit, .. }) = largest else { panic!("{largest:?}") };
    let slice = place(&allocator, limit);
    assert_eq!(both(&allocator, &slice, slice.size - 1, 1), Ok(()));
    for (_, _, offset, size) in allocator.device().take_cached() {
        assert_eq!((offset % 64, offset + size), (0, slice.size));
    }
    allocator.close(LiveSlices::Free).unwrap();
}

#[test]
fn coherent_memory_is_never_flushed_and_a_range_of_no_bytes_is_nothing() {
    for atom in [1, 256] {
        let allocator = make(Visible::Always, atom, &[sliced(M, M, None)]);
        let slice = place(&allocator, 1000);
        for offset in [0, 5, slice.size] {
            assert_eq!(both(&allocator, &slice, offset, 0), Ok(()));
        }
        assert_eq!(both(&allocator, &slice, slice.size, u64::MAX), Ok(()));
        assert_eq!(allocator.device().take_cached(), [], "{atom}");
        assert_eq!(both(&allocator, &slice, 0, u64::MAX), Ok(()));
        let expected = if atom == 1 { Vec::new() } else { calls(&slice, 0, 1024) };
        assert_eq!(allocator.device().take_cached(), expected);
        allocator.close(LiveSlices::Free).unwrap();
    }
}

#[test]
fn ranges_that_are_not_all_in_the_slice_are_refused() {
    for atom in [1, 64] {
        let allocator = make(Visible::Always, atom, &[sliced(M, M, None)]);
        let slices = [place(&allocator, 1000), place(&allocator, 1000)];
        let slice = &slices[0];
        let refused = |field, value| Err(Error::InvalidArgument { field, value });
        for offset in [1025, 2048, u64::MAX] {
            for size in [0, 1, u64::MAX] {
                assert_eq!(both(&allocator, slice, offset, size), refused(c"offset", offset));
            }
        }
        for (offset, size) in [(0, 1025), (1, 1024), (1024, 1), (1, u64::MAX - 1), (512, 513)] {
            assert_eq!(both(&allocator, slice, offset, size), refused(c"size", size));
        }
        assert_eq!(allocator.device().take_cached(), []);
        allocator.close(LiveSlices::Free).unwrap();
    }
}

#[test]
fn a_device_that_cannot_flush_is_not_asked() {
    let allocator = make(Visible::Never, 64, &[sliced(M, M, None)]);
    let slice = place(&allocator, 1000);
    assert_eq!(both(&allocator, &slice, 0, 1), Err(Error::NotSupported { what: c"flush" }));
    assert_eq!((both(&allocator, &slice, 0, 0), allocator.device().take_cached()), (Ok(()), Vec::new()));
    let coherent = make(Visible::Never, 1, &[sliced(M, M, None)]);
    let slice = place(&coherent, 1000);
    assert_eq!(both(&coherent, &slice, 0, u64::MAX), Ok(()));
}

/// What is flushed or invalidated for one slice is never another's.
#[test]
fn slices_of_memory_that_is_not_coherent_never_share_an_atom() {
    let mut random = Random::with_seed_or(72);
    let pools = KINDS.map(|(_, pool)| pool);
    for atom in [32, 64, 256, 4096] {
        for debugging in [Debugging::default(), Debugging::new(false, 40)] {
            for pools in [&pools[..], &[sliced(M, 64 * K, None).with_near_page(NearPage::Always)]] {
                let memory = memory(atom).with_granularity(1 << random.below(13));
                let options = options().with_memory_type(memory).with_debugging(debugging);
                let allocator = Mapped::under(Visible::Never, pools, options);
                share_no_atom(&mut random, atom, pools.len() as u64, &allocator);
                allocator.close(LiveSlices::Free).unwrap();
            }
        }
    }
    let allocator = make(Visible::Never, 256, &[exclusive(M), growing(K, 64 * K), direct(None)]);
    share_no_atom(&mut random, 256, 3, &allocator);
    allocator.close(LiveSlices::Free).unwrap();
}

fn share_no_atom(random: &mut Random, atom: u64, pools: u64, allocator: &Allocator<Mapped>) {
    let mut live: Vec<Slice> = Vec::new();
    for round in 0..300 {
        let request = Request::new(random.scaled(60 * K)).aligned(1 << random.below(6));
        let request = match random.below(8) {
            0 => request.persistent(),
            1 => request.dedicated(),
            2 => request.of_kind(ResourceKind::Optimal),
            _ => request.in_pool(random.below(pools) as u32),
        };
        match allocator.allocate(&request) {
            Ok(slice) => live.push(slice),
            Err(Error::TooLarge { .. } | Error::PoolCapacityExceeded { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        if random.below(3) == 0 && !live.is_empty() {
            let i = random.below(live.len() as u64) as usize;
            if let Ok(resized) = allocator.try_resize(live[i].id, random.scaled(60 * K)) {
                live[i] = resized;
            }
        }
        if random.below(3) == 0 && !live.is_empty() {
            allocator.free(random.take(&mut live).id).unwrap();
        }
        if round % 20 == 0 {
            let mut owners = HashMap::new();
            for range in all_ranges(allocator).iter().filter(|range| range.id.is_some()) {
                for at in range.offset / atom..(range.offset + range.size).div_ceil(atom) {
                    let other = owners.insert((range.memory, at), range.id);
                    assert_eq!(other, None, "two slices in the {at}-th atom of {atom} bytes");
                }
            }
        }
    }
}
