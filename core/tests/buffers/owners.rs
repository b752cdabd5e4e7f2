//! What an owner can do with its buffer.

use crate::world::{PAGE, World, class, classes, free, rounds};

#[test]
fn a_buffer_has_the_capacity_of_its_class_and_length_nothing() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 1)]));
    let mut buffer = pool.try_alloc(10).unwrap();
    assert_eq!((buffer.len(), buffer.is_empty(), buffer.capacity()), (0, true, PAGE));
    assert_eq!((buffer.is_mapped(), buffer.spare_capacity_mut().len()), (true, PAGE));
    assert_eq!(&buffer[..], &[] as &[u8]);
    assert!(format!("{buffer:?}").contains("capacity: 4096"));
}

#[test]
fn bytes_are_appended_cut_off_and_filled_up_as_in_a_vector() {
    let world = World::new();
    let pool = world.pool(classes(&[(64, 1)]));
    let mut buffer = pool.try_alloc(64).unwrap();
    let mut vector: Vec<u8> = Vec::new();
    let mut random = crate::common::random::Random::from(3);
    for _ in 0..rounds(10_000) {
        let free = 64 - vector.len();
        match random.below(6) {
            0 => {
                let bytes: Vec<u8> = (0..random.below(free as u64 + 1)).map(|_| random.any() as u8).collect();
                buffer.extend_from_slice(&bytes);
                vector.extend_from_slice(&bytes);
            }
            1 => {
                let (len, value) = (random.below(65) as usize, random.any() as u8);
                buffer.resize(len, value);
                vector.resize(len, value);
            }
            2 => {
                let len = random.below(100) as usize;
                buffer.truncate(len);
                vector.truncate(len);
            }
            3 if random.below(10) == 0 => {
                buffer.clear();
                vector.clear();
            }
            4 if free != 0 => {
                buffer.spare_capacity_mut()[0].write(77);
                // SAFETY: just written, and inside the capacity.
                unsafe { buffer.set_len(vector.len() + 1) };
                vector.push(77);
            }
            _ => {
                buffer.iter_mut().chain(&mut vector).for_each(|byte| *byte = byte.wrapping_add(1));
            }
        }
        assert_eq!((&buffer[..], buffer.len(), buffer.is_empty()), (&vector[..], vector.len(), vector.is_empty()));
        assert_eq!((buffer.as_ref(), buffer.capacity()), (&vector[..], 64));
        assert_eq!((buffer.as_mut().len(), buffer.spare_capacity_mut().len()), (vector.len(), 64 - vector.len()));
    }
}

/// The process that runs the tests does not unwind everywhere.
#[test]
#[cfg(panic = "unwind")]
fn more_than_there_is_room_for_panics_and_leaves_the_buffer_as_it_was() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let world = World::new();
    let pool = world.pool(classes(&[(64, 1)]));
    let mut buffer = pool.try_alloc(64).unwrap();
    buffer.extend_from_slice(&[7; 60]);
    assert!(catch_unwind(AssertUnwindSafe(|| buffer.extend_from_slice(&[1; 5]))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| buffer.resize(65, 1))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| buffer.resize(usize::MAX, 1))).is_err());
    assert_eq!(&buffer[..], &[7; 60]);
    buffer.extend_from_slice(&[1; 4]);
    assert_eq!(buffer.len(), 64);
    let mut empty = pool.try_alloc(0).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| empty.extend_from_slice(&[1]))).is_err());
    empty.extend_from_slice(&[]);
    empty.resize(0, 1);
}

/// There is no header: buffers lie one behind the other, and each can be written to from its first to its last byte.
#[test]
fn writing_all_of_a_buffer_touches_no_other() {
    let world = World::new();
    let pool = world.pool(classes(&[(1, 7), (64, 20), (1024, 9)]));
    let mut buffers = Vec::new();
    for (size, count) in [(1, 7), (64, 20), (1024, 9)] {
        for _ in 0..count {
            let mut buffer = pool.try_alloc(size).unwrap();
            buffer.resize(size, buffers.len() as u8);
            buffers.push(buffer);
        }
    }
    buffers.push(pool.alloc(3000).unwrap());
    buffers[36].resize(3000, 36);
    for (index, buffer) in buffers.iter().enumerate() {
        assert!(buffer.iter().all(|&byte| byte == index as u8), "{index}");
    }
}

#[test]
fn an_owner_gives_its_buffer_back_when_it_is_dropped() {
    let world = World::new();
    let pool = world.pool(classes(&[(PAGE, 2)]));
    let buffer = pool.try_alloc(PAGE).unwrap();
    assert_eq!((free(&pool, PAGE), class(&pool, PAGE).in_use), (0, 1));
    drop(buffer);
    assert_eq!((free(&pool, PAGE), class(&pool, PAGE).in_use), (1, 0));
    assert_eq!(class(&pool, PAGE).created, 1);
}
