//! How large shared memory blocks are: [`AllocationSizes`].
#![forbid(unsafe_code)]

const MIB: u64 = 1 << 20;

/// Bounds of a block's size, and what sizes are multiples of.
const STEP: u64 = 4 * MIB;
const LARGEST: u64 = 256 * MIB;

/// The most times that a block's size doubles.
const MOST_DOUBLINGS: u32 = 7;

/// The sizes of shared memory blocks: pages that hold many slices. With
/// [`layout::blocks`](crate::layout::blocks) they become pools.
///
/// Sizes are clamped to 4 MiB and 256 MiB, and then rounded up to a multiple of 4 MiB. Where no larger maximum is set, all
/// blocks of a kind of memory have one size. Otherwise each memory type begins with the smallest, and the next block has
/// twice the size for every block that the type has at that time, up to seven times and to the maximum.
///
/// ```
/// use slicepool_core::AllocationSizes;
/// const MIB: u64 = 1 << 20;
/// let sizes = AllocationSizes::new(8 * MIB, 8 * MIB).with_max_device_memblock_size(256 * MIB);
/// let blocks = [0, 1, 2, 5, 6].map(|count| sizes.memblock_size(false, count) / MIB);
/// assert_eq!(blocks, [8, 16, 32, 256, 256]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AllocationSizes {
    min_device_memblock_size: u64,
    max_device_memblock_size: u64,
    min_host_memblock_size: u64,
    max_host_memblock_size: u64,
    device_rounded: bool,
    host_rounded: bool,
}

impl AllocationSizes {
    /// Blocks of these sizes for device memory and for memory that the host sees.
    pub const fn new(device_memblock_size: u64, host_memblock_size: u64) -> Self {
        let (device, device_rounded) = adjust(device_memblock_size);
        let (host, host_rounded) = adjust(host_memblock_size);
        Self {
            min_device_memblock_size: device,
            max_device_memblock_size: device,
            min_host_memblock_size: host,
            max_host_memblock_size: host,
            device_rounded,
            host_rounded,
        }
    }

    /// The same with device blocks that grow to this size. A size below the smallest counts as that.
    #[must_use]
    pub const fn with_max_device_memblock_size(mut self, size: u64) -> Self {
        let (adjusted, rounded) = adjust(size);
        self.max_device_memblock_size = larger(adjusted, self.min_device_memblock_size);
        self.device_rounded |= rounded;
        self
    }

    /// The same with host blocks that grow to this size. A size below the smallest counts as that.
    #[must_use]
    pub const fn with_max_host_memblock_size(mut self, size: u64) -> Self {
        let (adjusted, rounded) = adjust(size);
        self.max_host_memblock_size = larger(adjusted, self.min_host_memblock_size);
        self.host_rounded |= rounded;
        self
    }

    /// Bytes of the first block of device memory.
    pub const fn min_device_memblock_size(&self) -> u64 {
        self.min_device_memblock_size
    }

    /// Bytes of the largest block of device memory.
    pub const fn max_device_memblock_size(&self) -> u64 {
        self.max_device_memblock_size
    }

    /// Bytes of the first block of memory that the host sees.
    pub const fn min_host_memblock_size(&self) -> u64 {
        self.min_host_memblock_size
    }

    /// Bytes of the largest block of memory that the host sees.
    pub const fn max_host_memblock_size(&self) -> u64 {
        self.max_host_memblock_size
    }

    /// Whether a size for device memory was no multiple of 4 MiB and has been rounded up. (One that was only clamped does
    /// not count.)
    pub const fn device_was_rounded(&self) -> bool {
        self.device_rounded
    }

    /// The same for memory that the host sees.
    pub const fn host_was_rounded(&self) -> bool {
        self.host_rounded
    }

    /// Bytes of the next block of a memory type that has `count` shared blocks; pages that were dedicated to one slice are
    /// not counted. `is_host`: whether the host sees the memory.
    pub const fn memblock_size(&self, is_host: bool, count: usize) -> u64 {
        let (least, most) = self.bounds(is_host);
        block_size(least, most, if count > u32::MAX as usize { u32::MAX } else { count as u32 })
    }

    /// The smallest and the largest block.
    pub(crate) const fn bounds(&self, is_host: bool) -> (u64, u64) {
        if is_host {
            (self.min_host_memblock_size, self.max_host_memblock_size)
        } else {
            (self.min_device_memblock_size, self.max_device_memblock_size)
        }
    }
}

impl Default for AllocationSizes {
    /// Blocks of 256 MiB for device memory and of 64 MiB for memory that the host sees.
    fn default() -> Self {
        Self::new(256 * MIB, 64 * MIB)
    }
}

/// Bytes of the block after `count` others.
pub(crate) const fn block_size(least: u64, most: u64, count: u32) -> u64 {
    let doublings = if count < MOST_DOUBLINGS { count } else { MOST_DOUBLINGS };
    // What is shifted out would be above any maximum.
    if least > u64::MAX >> doublings { most } else { smaller(least << doublings, most) }
}

/// The largest block of a heap: an eighth of it, in steps, so that no block takes most of a small one.
pub(crate) const fn largest_block_of(heap_size: u64) -> u64 {
    larger(heap_size / 8 / STEP * STEP, STEP)
}

/// A size as it is used, and whether it was rounded up.
const fn adjust(size: u64) -> (u64, bool) {
    let clamped = larger(smaller(size, LARGEST), STEP);
    // A multiple of the step is an upper bound already, so rounding never passes it.
    let rounded = clamped.div_ceil(STEP) * STEP;
    (rounded, rounded != clamped)
}

const fn smaller(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

const fn larger(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_double_up_to_the_largest_also_where_numbers_end() {
        assert_eq!([0, 1, 2, 3, 4, 99].map(|count| block_size(3, 25, count)), [3, 6, 12, 24, 25, 25]);
        // 128 times as much is the most.
        assert_eq!([7, 8].map(|count| block_size(1, 1000, count)), [128, 128]);
        // What would lose its top bits is the largest.
        let (large, most) = (3 << 61, u64::MAX - 7);
        assert_eq!([0, 1, 2, 7].map(|count| block_size(large, most, count)), [large, 3 << 62, most, most]);
        assert_eq!([2, 3].map(|count| block_size(1 << 61, most, count)), [1 << 63, most]);
        assert_eq!(block_size(u64::MAX >> 7, u64::MAX, 7), u64::MAX - 127);
    }
}
