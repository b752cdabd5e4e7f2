//! What the pools' users see of pages only through several layers.

use super::*;

fn with_pages(memories: impl IntoIterator<Item = DeviceMemory>) -> Pages {
    let mut pages = Pages::new(HostMemory::global(), None, false, false);
    for (number, memory) in memories.into_iter().enumerate() {
        while !pages.has_record() {
            let chunk = Chunk::allocate(HostMemory::global(), pages.plan().unwrap()).unwrap();
            assert!(pages.install_chunk(chunk).is_none());
        }
        assert_eq!(pages.add(memory, 32), number as u32);
    }
    pages
}

#[test]
fn memory_is_held_if_a_page_that_is_there_has_its_handle_and_its_address() {
    let memory = |handle, address| DeviceMemory { address, ..DeviceMemory::new(handle) };
    let mut pages = with_pages([memory(1, 10), memory(2, 20), memory(3, 30), memory(4, 40)]);
    for (index, leaves) in [(1, false), (2, true), (3, false)] {
        pages.set_idle(index, 0);
        pages.set_leaving(index);
        match (index, leaves) {
            (1, _) => pages.set_vacant(1),
            (3, _) => pages.set_stuck(3),
            _ => {}
        }
    }
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
    let mut pages = with_pages([]);
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
