//! Damage to the books of a pool, one field at a time, that [`Pool::check`] must notice. What slicers and pages notice by
//! themselves is tested with them; this is about pages with one slice each, and about what ties the two together.

use super::*;
use crate::allocator::{Allocator, AllocatorOptions};
use crate::device::HostDevice;
use crate::slice::Request;
use crate::slicer::nodes::Kind as Of;
use crate::slicer::timelines::Point;
use core::cell::Cell;
use core::fmt::Debug;
use std::vec::Vec;

/// Pools of every make, those that cut with pages of `page_size` bytes.
fn kinds(page_size: u64) -> [PoolOptions; 3] {
    let sliced = PoolOptions::sliced_pages(page_size, page_size, None);
    [sliced, PoolOptions::exclusive_pages(1 << 16), PoolOptions::direct(None)]
}

/// An allocator whose pool has pages that are full, waiting and free, of several sizes, some of them equal.
fn busy(options: PoolOptions) -> Allocator<HostDevice> {
    let allocator = Allocator::try_new(HostDevice::new(), &[options], AllocatorOptions::default()).unwrap();
    let slices: Vec<_> =
        (0..60).map(|i| allocator.allocate(&Request::new(100 + i % 6 * 1000 + i % 2)).unwrap()).collect();
    for (i, slice) in slices.iter().enumerate() {
        match i % 5 {
            0 => allocator.free_after(slice.id, &[Point::new(1, 1 + i as u64)]).unwrap(),
            1 | 2 => allocator.free(slice.id).unwrap(),
            _ => {}
        }
    }
    allocator.check().unwrap();
    allocator
}

fn noticed<T: Copy + PartialEq + Debug>(
    pool: &mut Pool,
    what: &str,
    field: impl Fn(&mut Pool) -> &Cell<T>,
    values: impl IntoIterator<Item = T>,
) {
    let before = field(pool).get();
    for value in values {
        if value != before {
            field(pool).set(value);
            assert!(pool.check().is_err(), "{what} from {before:?} to {value:?}");
            field(pool).set(before);
        }
    }
    pool.check().unwrap();
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_wrong_sum_of_a_pool_is_noticed() {
    for options in kinds(1 << 16) {
        let allocator = busy(options);
        allocator.with_pool(0, |pool| {
            for by in [1, u64::MAX] {
                pool.in_use = pool.in_use.wrapping_add(by);
                assert_eq!(pool.check(), Err("the bytes in use differ from a walk"));
                pool.in_use = pool.in_use.wrapping_sub(by);
                pool.padding = pool.padding.wrapping_add(by);
                assert_eq!(pool.check(), Err("the bytes in use differ from a walk"));
                pool.padding = pool.padding.wrapping_sub(by);
            }
            // Each makes up for the other in the sum, but not in the walk.
            pool.in_use += 1;
            pool.padding -= 1;
            assert_eq!(pool.check(), Err("the bytes in use differ from a walk"));
            pool.in_use -= 1;
            pool.padding += 1;
            pool.check().unwrap();
        });
    }
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_page_whose_edge_is_another_or_that_is_idle_and_is_not_said_to_be_is_noticed() {
    for options in kinds(1 << 14) {
        let allocator = busy(options);
        allocator.with_pool(0, |pool| {
            let mut pages = Vec::new();
            let mut next = pool.pages.page_from(0);
            while let Some((index, page)) = next {
                pages.push((index, page.edge()));
                next = pool.pages.page_from(index + 1);
            }
            assert!(pages.len() > 4);
            for &(index, edge) in &pages {
                let is_idle = pool.pages[index].is_idle();
                let turn = |pool: &mut Pool, is_idle| match is_idle {
                    true => pool.pages.set_idle(index, 0),
                    false => _ = pool.pages.set_busy(index, edge),
                };
                turn(pool, !is_idle);
                assert!(pool.check().is_err());
                turn(pool, is_idle);
            }
            for (index, _) in &pages {
                let edges = pages.iter().map(|&(_, edge)| edge);
                noticed(pool, "edge", |pool| &pool.pages[*index].edge, edges);
            }
        });
    }
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_wrong_field_of_a_page_with_one_slice_is_noticed() {
    for options in [PoolOptions::exclusive_pages(1 << 16), PoolOptions::direct(None)] {
        let is_direct = options.pool_type == PoolType::Direct { reclaim_at: None };
        let allocator = busy(options);
        allocator.with_pool(0, |pool| {
            let slots: Vec<u32> = pool.slicer.nodes().map(|(slot, _)| slot).collect();
            let holes: Vec<u32> = slots.iter().copied().filter(|&slot| pool.slicer.node(slot).is(Of::Hole)).collect();
            for &slot in &slots {
                let node = pool.slicer.node(slot);
                let (is_hole, is_live, is_pending) = (node.is(Of::Hole), node.is(Of::Live), node.is_pending());
                if !is_hole && !is_live && !is_pending {
                    continue;
                }
                let (offset, size) = (node.offset.get(), node.size.get());
                let others = || holes.iter().copied().chain([0]);
                noticed(pool, "offset", |pool| &pool.slicer.node(slot).offset, [offset + 1, offset ^ 64]);
                noticed(pool, "page", |pool| &pool.slicer.node(slot).page, 0..16);
                if !is_pending {
                    noticed(pool, "size", |pool| &pool.slicer.node(slot).size, [size + 1, size - 1, 0]);
                }
                if is_live {
                    let padding = pool.slicer.node(slot).link_a.get();
                    noticed(pool, "link_a", |pool| &pool.slicer.node(slot).link_a, [padding + 1, padding + 7]);
                    noticed(pool, "link_b", |pool| &pool.slicer.node(slot).link_b, [1]);
                }
                if is_hole && is_direct {
                    noticed(pool, "prev", |pool| &pool.slicer.node(slot).prev, others());
                    noticed(pool, "next", |pool| &pool.slicer.node(slot).next, others());
                }
                if is_hole && !is_direct {
                    noticed(pool, "link_a", |pool| &pool.slicer.node(slot).link_a, others());
                    noticed(pool, "link_b", |pool| &pool.slicer.node(slot).link_b, others());
                }
            }
            for &slot in &holes {
                // A page that is in no list, or in none where it is looked for.
                if is_direct {
                    pool.by_size[0].remove(&pool.slicer, slot);
                    assert_eq!(pool.check(), Err("a free page is not in the table"));
                    pool.by_size[0].insert(&pool.slicer, slot, pool.slicer.node(slot));
                } else {
                    pool.slicer.unlink_whole(slot);
                    assert_eq!(pool.check(), Err("a free page is in no list"));
                    pool.slicer.link_whole(slot);
                }
                pool.check().unwrap();
            }
        });
    }
}
