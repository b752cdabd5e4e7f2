//! What the pools' users see of pages only through several layers.

use super::*;
use std::vec::Vec;

fn with_pages(memories: impl IntoIterator<Item = DeviceMemory>) -> (Pages, Vec<u32>) {
    let (mut pages, mut indices) = (Pages::new(HostMemory::global(), None, false, false), Vec::new());
    for memory in memories {
        while !pages.has_record() {
            let chunk = Chunk::allocate(HostMemory::global(), pages.plan().unwrap()).unwrap();
            assert!(pages.install_chunk(chunk).is_none());
        }
        indices.push(pages.add(memory, 32));
    }
    (pages, indices)
}

#[test]
fn memory_is_held_if_a_page_that_is_there_has_its_handle_and_its_address() {
    let memory = |handle, address| DeviceMemory { address, ..DeviceMemory::new(handle) };
    let (mut pages, indices) = with_pages([memory(1, 10), memory(2, 20), memory(3, 30), memory(4, 40)]);
    for &index in &indices[1..] {
        pages.set_idle(index, 0);
        pages.set_leaving(index);
    }
    pages.set_vacant(indices[1]);
    pages.set_stuck(indices[3]);
    let held = |handle, address| pages.hold(&memory(handle, address));
    assert_eq!([held(1, 10), held(2, 20), held(3, 30), held(4, 40)], [true, false, false, true]);
    assert_eq!([held(1, 11), held(5, 10), held(1, 40), held(9, 90)], [false; 4]);
}

#[test]
fn records_are_counted_to_the_chunk() {
    let of = |count| {
        let mut needs = Needs::default();
        Pages::add_needs(count, &mut needs).unwrap();
        needs.bytes()
    };
    // A block is given out in pieces of whole chunks.
    let (mut pages, _) = with_pages([]);
    let mut room = 0;
    for count in 0..1000 {
        while room < count {
            let chunk = Chunk::allocate(HostMemory::global(), pages.plan().unwrap()).unwrap();
            assert!(pages.install_chunk(chunk).is_none());
            room = pages.pages.spare();
        }
        assert!(of(count) >= pages.bytes() && of(count) < pages.bytes() + 1000, "{count}");
    }
}
