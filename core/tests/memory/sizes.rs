//! How large shared memory blocks are: what is asked for, what comes of it, and the ladder.

use crate::common::M;
use slicepool_core::AllocationSizes;

/// A size, what it is adjusted to, and whether it was rounded for that.
const ADJUSTED: [(u64, u64, bool); 26] = [
    (0, 4_194_304, false),
    (1, 4_194_304, false),
    (4_194_303, 4_194_304, false),
    (4_194_304, 4_194_304, false),
    (4_194_305, 8_388_608, true),
    (5_242_880, 8_388_608, true),
    (8_388_608, 8_388_608, false),
    (8_388_609, 12_582_912, true),
    (10_485_760, 12_582_912, true),
    (12_582_912, 12_582_912, false),
    (66_060_288, 67_108_864, true),
    (67_108_864, 67_108_864, false),
    (68_157_440, 71_303_168, true),
    (104_857_600, 104_857_600, false),
    (105_906_176, 109_051_904, true),
    (134_217_728, 134_217_728, false),
    (262_144_000, 264_241_152, true),
    (264_241_152, 264_241_152, false),
    (264_241_153, 268_435_456, true),
    (267_386_880, 268_435_456, true),
    (268_435_455, 268_435_456, true),
    (268_435_456, 268_435_456, false),
    (268_435_457, 268_435_456, false),
    (536_870_912, 268_435_456, false),
    (4_294_967_297, 268_435_456, false),
    (u64::MAX, 268_435_456, false),
];

/// The smallest and the largest block of device memory, and of host memory.
fn bounds(sizes: &AllocationSizes) -> [(u64, u64); 2] {
    [
        (sizes.min_device_memblock_size(), sizes.max_device_memblock_size()),
        (sizes.min_host_memblock_size(), sizes.max_host_memblock_size()),
    ]
}

fn rounded(sizes: &AllocationSizes) -> (bool, bool) {
    (sizes.device_was_rounded(), sizes.host_was_rounded())
}

#[test]
fn a_size_is_clamped_and_then_rounded_up_to_four_mebibytes() {
    for (size, adjusted, was_rounded) in ADJUSTED {
        let sizes = AllocationSizes::new(size, 64 * M);
        assert_eq!(bounds(&sizes), [(adjusted, adjusted), (64 * M, 64 * M)], "{size}");
        assert_eq!(rounded(&sizes), (was_rounded, false), "{size}");
        let sizes = AllocationSizes::new(32 * M, size);
        assert_eq!(bounds(&sizes), [(32 * M, 32 * M), (adjusted, adjusted)], "{size}");
        assert_eq!(rounded(&sizes), (false, was_rounded), "{size}");
    }
}

#[test]
fn a_largest_size_is_adjusted_in_the_same_way() {
    let least = AllocationSizes::new(0, 0);
    for (size, adjusted, was_rounded) in ADJUSTED {
        let sizes = least.with_max_device_memblock_size(size);
        assert_eq!(bounds(&sizes), [(4 * M, adjusted), (4 * M, 4 * M)], "{size}");
        assert_eq!(rounded(&sizes), (was_rounded, false), "{size}");
        let sizes = least.with_max_host_memblock_size(size);
        assert_eq!(bounds(&sizes), [(4 * M, 4 * M), (4 * M, adjusted)], "{size}");
        assert_eq!(rounded(&sizes), (false, was_rounded), "{size}");
    }
}

#[test]
fn a_largest_size_below_the_smallest_counts_as_the_smallest() {
    for smaller in [0, 4 * M, 59 * M, 60 * M, 64 * M] {
        let sizes = AllocationSizes::new(64 * M, 64 * M).with_max_device_memblock_size(smaller);
        assert_eq!(bounds(&sizes), [(64 * M, 64 * M); 2], "{smaller}");
        let sizes = AllocationSizes::new(64 * M, 64 * M).with_max_host_memblock_size(smaller);
        assert_eq!(bounds(&sizes), [(64 * M, 64 * M); 2], "{smaller}");
    }
}

/// Not the larger of the two.
#[test]
fn of_two_largest_sizes_the_last_one_counts() {
    let sizes = AllocationSizes::new(8 * M, 8 * M)
        .with_max_device_memblock_size(128 * M)
        .with_max_device_memblock_size(64 * M)
        .with_max_host_memblock_size(256 * M)
        .with_max_host_memblock_size(0);
    assert_eq!(bounds(&sizes), [(8 * M, 64 * M), (8 * M, 8 * M)]);
}

#[test]
fn a_size_that_was_rounded_once_is_told_of_whatever_comes_after() {
    let sizes = AllocationSizes::new(63 * M, 64 * M).with_max_device_memblock_size(128 * M);
    assert_eq!(rounded(&sizes), (true, false));
    let sizes = AllocationSizes::new(64 * M, 64 * M).with_max_host_memblock_size(101 * M);
    assert_eq!(rounded(&sizes.with_max_host_memblock_size(128 * M)), (false, true));
}

#[test]
fn both_kinds_of_memory_are_adjusted_apart() {
    let sizes =
        AllocationSizes::new(64 * M, 32 * M).with_max_device_memblock_size(8 * M).with_max_host_memblock_size(33 * M);
    assert_eq!(bounds(&sizes), [(67_108_864, 67_108_864), (33_554_432, 37_748_736)]);
    assert_eq!(rounded(&sizes), (false, true));
    let sizes =
        AllocationSizes::new(8 * M, 8 * M).with_max_device_memblock_size(u64::MAX).with_max_host_memblock_size(0);
    assert_eq!(bounds(&sizes), [(8_388_608, 268_435_456), (8_388_608, 8_388_608)]);
    assert_eq!(rounded(&sizes), (false, false));
}

#[test]
fn without_a_word_device_blocks_have_256_mebibytes_and_host_blocks_64() {
    let sizes = AllocationSizes::default();
    assert_eq!(bounds(&sizes), [(256 * M, 256 * M), (64 * M, 64 * M)]);
    assert_eq!(rounded(&sizes), (false, false));
    for count in [0, 1, 7, 8, usize::MAX] {
        assert_eq!((sizes.memblock_size(false, count), sizes.memblock_size(true, count)), (256 * M, 64 * M));
    }
}

/// Least, most, and in MiB what comes after 0, 1, 2 ... blocks.
const LADDERS: [(u64, u64, &[u64]); 9] = [
    (4, 256, &[4, 8, 16, 32, 64, 128, 256, 256, 256]),
    (8, 256, &[8, 16, 32, 64, 128, 256, 256, 256]),
    (12, 256, &[12, 24, 48, 96, 192, 256, 256]),
    (20, 100, &[20, 40, 80, 100, 100, 100]),
    (36, 256, &[36, 72, 144, 256, 256, 256]),
    (64, 256, &[64, 128, 256, 256, 256]),
    (256, 256, &[256, 256, 256, 256]),
    (8, 8, &[8, 8, 8, 8]),
    (4, 16, &[4, 8, 16, 16, 16]),
];

#[test]
fn blocks_double_with_their_number_up_to_the_largest() {
    for (least, most, ladder) in LADDERS {
        let device = AllocationSizes::new(least * M, 128 * M).with_max_device_memblock_size(most * M);
        let host = AllocationSizes::new(128 * M, least * M).with_max_host_memblock_size(most * M);
        for (count, &mebibytes) in ladder.iter().enumerate() {
            assert_eq!(device.memblock_size(false, count), mebibytes * M, "{least}, {most}, {count}");
            assert_eq!(host.memblock_size(true, count), mebibytes * M, "{least}, {most}, {count}");
            assert_eq!((device.memblock_size(true, count), host.memblock_size(false, count)), (128 * M, 128 * M));
        }
        for count in [6, 7, 8, 31, 32, 63, 64, 65, 1000, u32::MAX as usize, usize::MAX - 1, usize::MAX] {
            // Every ladder has reached its end by then.
            assert_eq!(device.memblock_size(false, count), most * M, "{least}, {most}, {count}");
            assert_eq!(host.memblock_size(true, count), most * M, "{least}, {most}, {count}");
        }
    }
}

/// A count whose low bits alone would lead back to the beginning.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_count_above_32_bits_is_not_cut() {
    let sizes = AllocationSizes::new(4 * M, 4 * M).with_max_device_memblock_size(256 * M);
    for count in [1 << 32, (1 << 32) + 1, 1 << 63] {
        assert_eq!(sizes.memblock_size(false, count), 256 * M);
    }
}

#[test]
fn sizes_are_plain_values_and_can_be_constants() {
    const SIZES: AllocationSizes =
        AllocationSizes::new(8 * M, 4 * M).with_max_device_memblock_size(64 * M).with_max_host_memblock_size(16 * M);
    const THIRD: u64 = SIZES.memblock_size(false, 2);
    assert_eq!((THIRD, SIZES.memblock_size(true, 2)), (32 * M, 16 * M));
    fn is_plain<T: Clone + Copy + std::fmt::Debug + Default + Send + Sync>() {}
    is_plain::<AllocationSizes>();
    let (copy, original) = (SIZES, SIZES);
    assert_eq!(format!("{copy:?}"), format!("{original:?}"));
    assert!(format!("{copy:?}").contains("8388608"));
}
