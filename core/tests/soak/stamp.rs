//! What threads write into what they hold, and find there again if nobody else has it.

/// Writes a stamp to the first and the last bytes of memory.
///
/// # Safety
/// There are `bytes` bytes at `memory`, 8 at least, and nobody else uses them.
pub(crate) unsafe fn stamp(memory: *mut u8, bytes: u64, stamp: u64) {
    // SAFETY: passed on from the caller; the numbers need not be aligned.
    unsafe {
        memory.cast::<u64>().write_unaligned(stamp);
        memory.add(bytes as usize - 8).cast::<u64>().write_unaligned(stamp);
    }
}

/// Panics unless both stamps are as they were written.
///
/// # Safety
/// As for [`stamp`], which has been called before with the same memory.
pub(crate) unsafe fn assert_stamped(memory: *mut u8, bytes: u64, stamp: u64) {
    // SAFETY: passed on from the caller; the numbers need not be aligned.
    let found = unsafe {
        (memory.cast::<u64>().read_unaligned(), memory.add(bytes as usize - 8).cast::<u64>().read_unaligned())
    };
    assert_eq!(found, (stamp, stamp), "somebody else has written to {bytes} bytes at {memory:?}");
}
