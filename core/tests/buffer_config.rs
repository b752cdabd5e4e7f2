//! What a buffer pool is asked for: presets, builders, budgets, what is refused, and the figures that follow.

mod common;

use common::random::Random;
use slicepool_core::{BufferConfigError, BufferPoolClassConfig, BufferPoolConfig, Error, ThreadCache};
use std::num::{NonZeroU32, NonZeroUsize};

const fn bytes(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

const fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

const K: u64 = common::K;
const M: u64 = common::M;
const MAX: u32 = u32::MAX;

/// The first size above `isize::MAX`.
const UNADDRESSABLE: usize = 1 << (usize::BITS - 1);

/// Sizes and limits.
type Layout = &'static [(u64, u32)];

const NETWORK: Layout = &[
    (K, 4096),
    (2 * K, 4096),
    (4 * K, 4096),
    (8 * K, 4096),
    (16 * K, 4096),
    (32 * K, 4096),
    (64 * K, 4096),
    (128 * K, 4096),
];

const STORAGE: Layout = &[
    (4 * K, 64),
    (8 * K, 64),
    (16 * K, 64),
    (32 * K, 64),
    (64 * K, 64),
    (128 * K, 64),
    (256 * K, 64),
    (512 * K, 64),
    (M, 64),
    (2 * M, 64),
    (4 * M, 64),
    (8 * M, 64),
];

/// The configuration with these classes, if `usize` has bits enough for the sizes.
fn with_layout(layout: &[(u64, u32)]) -> Option<BufferPoolConfig> {
    let classes = layout.iter().map(|&(size, limit)| Some((NonZeroUsize::new(size.try_into().ok()?)?, count(limit))));
    Some(BufferPoolConfig::default().with_size_classes(classes.collect::<Option<Vec<_>>>()?))
}

/// The same where the sizes are known to be small.
fn config(layout: &[(u64, u32)]) -> BufferPoolConfig {
    with_layout(layout).unwrap()
}

fn layout(config: &BufferPoolConfig) -> Vec<(u64, u32)> {
    config.size_classes().map(|class| (class.size.get() as u64, class.max_buffers.get())).collect()
}

fn sizes(config: &BufferPoolConfig) -> Vec<usize> {
    config.size_classes().map(|class| class.size.get()).collect()
}

/// A call of a builder that shapes the layout.
#[derive(Clone, Copy, Debug)]
enum Step {
    Budget(u64),
    Bytes(u64),
    Max(u32),
    Range(u64, u64, u32),
    With(u64, u32),
    Without(u64),
}

/// What the last step gives.
#[derive(Clone, Copy, Debug)]
enum Gives {
    /// The same classes with these limits.
    Limits(&'static [u32]),
    /// The same classes with this limit each.
    Each(u32),
    /// These classes.
    Classes(Layout),
    /// This error.
    Refusal(BufferConfigError),
}

impl Step {
    /// `None` if a number has too many bits for `usize`.
    fn apply(self, config: BufferPoolConfig) -> Option<Result<BufferPoolConfig, BufferConfigError>> {
        let number = |number: u64| NonZeroUsize::new(number.try_into().ok()?);
        Some(match self {
            Self::Budget(budget) => config.try_with_budget_bytes(number(budget)?),
            Self::Bytes(bytes) => config.try_with_bytes_per_class(number(bytes)?),
            Self::Max(limit) => Ok(config.with_max_per_class(count(limit))),
            Self::Range(min, max, limit) => config.try_with_size_class_range(number(min)?, number(max)?, count(limit)),
            Self::With(size, limit) => config.try_with_size_class(number(size)?, count(limit)),
            Self::Without(size) => config.try_without_size_class(number(size)?),
        })
    }
}

use BufferConfigError::{BudgetTooLarge, BudgetTooSmall, BytesTooLarge};
use Gives::{Classes, Each, Limits, Refusal};
use Step::{Budget, Bytes, Max, Range, With, Without};

const ONES: Layout = &[(4, 1), (8, 1), (16, 1)];
const FOURS: Layout = &[(4, 4), (16, 1)];
const THREES: Layout = &[(1, 3), (8, 2)];
const MIXED: Layout = &[(K, 1000), (4 * K, 300), (64 * K, 7)];
const FEW_SMALL: Layout = &[(64, 1), (M, 1000)];
const MANY_SMALL: Layout = &[(64, 1_000_000), (M, 1)];
const NEAR_MAX: Layout = &[(1, MAX), (2, MAX - 1)];
const FOUR_BILLION: Layout = &[(1, 4_000_000_000), (4096, 1)];
const HUGE: Layout = &[(1, 1), (1 << 62, 1)];
const TO_64_K: Layout = &[(K, 1), (2 * K, 1), (4 * K, 1), (8 * K, 1), (16 * K, 1), (32 * K, 1), (64 * K, 1)];
const TO_8_K: Layout = &[(K, 8), (2 * K, 8), (4 * K, 8), (8 * K, 8)];

/// Row of the specification, classes, what is done to them, and what comes of it.
const ROWS: &[(u32, Layout, &[Step], Gives)] = &[
    (1, ONES, &[Budget(27)], Refusal(BudgetTooSmall { budget: 27, least: 28 })),
    (2, ONES, &[Budget(28)], Each(1)),
    (2, ONES, &[Budget(29)], Each(1)),
    (2, ONES, &[Budget(30)], Each(1)),
    (2, ONES, &[Budget(55)], Each(1)),
    (3, ONES, &[Budget(56)], Each(2)),
    (3, ONES, &[Budget(83)], Each(2)),
    (4, ONES, &[Budget(279)], Each(9)),
    (5, ONES, &[Budget(280)], Each(10)),
    (5, ONES, &[Budget(307)], Each(10)),
    (6, ONES, &[Budget(308)], Each(11)),
    (7, FOURS, &[Budget(20)], Limits(&[1, 1])),
    (8, FOURS, &[Budget(31)], Limits(&[3, 1])),
    (9, FOURS, &[Budget(32)], Limits(&[4, 1])),
    (9, FOURS, &[Budget(35)], Limits(&[4, 1])),
    (10, FOURS, &[Budget(36)], Limits(&[5, 1])),
    (10, FOURS, &[Budget(40)], Limits(&[6, 1])),
    (12, FOURS, &[Budget(64)], Limits(&[8, 2])),
    (12, FOURS, &[Budget(96)], Limits(&[12, 3])),
    (12, FOURS, &[Budget(100)], Limits(&[13, 3])),
    (13, THREES, &[Budget(9)], Limits(&[1, 1])),
    (13, THREES, &[Budget(10)], Limits(&[2, 1])),
    (13, THREES, &[Budget(11)], Limits(&[2, 1])),
    (13, THREES, &[Budget(12)], Limits(&[2, 1])),
    (13, THREES, &[Budget(13)], Limits(&[2, 1])),
    (13, THREES, &[Budget(14)], Limits(&[2, 1])),
    (13, THREES, &[Budget(15)], Limits(&[2, 1])),
    (13, THREES, &[Budget(16)], Limits(&[2, 1])),
    (13, THREES, &[Budget(17)], Limits(&[2, 1])),
    (13, THREES, &[Budget(18)], Limits(&[2, 1])),
    (13, THREES, &[Budget(19)], Limits(&[3, 2])),
    (15, THREES, &[Budget(28)], Limits(&[4, 3])),
    (15, THREES, &[Budget(40)], Limits(&[7, 4])),
    (16, THREES, &[Budget(21)], Limits(&[4, 2])),
    (16, THREES, &[Budget(21), Budget(21)], Limits(&[5, 2])),
    (16, THREES, &[Budget(21), Budget(21), Budget(21)], Limits(&[5, 2])),
    (17, NETWORK, &[Budget(261_119)], Refusal(BudgetTooSmall { budget: 261_119, least: 261_120 })),
    (17, NETWORK, &[Budget(261_120)], Each(1)),
    (18, NETWORK, &[Budget(M)], Each(4)),
    (18, NETWORK, &[Budget(16 * M)], Each(64)),
    (18, NETWORK, &[Budget(64 * M)], Each(257)),
    (18, NETWORK, &[Budget(255 * M)], Each(1024)),
    (18, NETWORK, &[Budget(256 * M)], Each(1028)),
    (18, NETWORK, &[Budget(512 * M)], Each(2056)),
    (19, NETWORK, &[Budget(1024 * M)], Each(4112)),
    (19, NETWORK, &[Budget(2048 * M)], Each(8224)),
    (19, NETWORK, &[Budget(4096 * M)], Each(16448)),
    (20, STORAGE, &[Budget(16 * M - 4097)], Refusal(BudgetTooSmall { budget: 16_773_119, least: 16_773_120 })),
    (20, STORAGE, &[Budget(16 * M - 4096)], Each(1)),
    (20, STORAGE, &[Budget(16 * M)], Each(1)),
    (21, STORAGE, &[Budget(64 * M)], Each(4)),
    (21, STORAGE, &[Budget(256 * M)], Each(16)),
    (21, STORAGE, &[Budget(1023 * M)], Each(63)),
    (21, STORAGE, &[Budget(1024 * M)], Each(64)),
    (22, MIXED, &[Budget(70_656)], Each(1)),
    (22, MIXED, &[Budget(100_000)], Limits(&[16, 4, 1])),
    (22, MIXED, &[Budget(500_000)], Limits(&[193, 57, 1])),
    // The shape's own bytes, and one less.
    (22, MIXED, &[Budget(2_711_552)], Limits(&[1000, 300, 7])),
    (22, MIXED, &[Budget(2_711_551)], Limits(&[999, 299, 6])),
    (24, MIXED, &[Budget(5_000_000)], Limits(&[1857, 557, 12])),
    (24, MIXED, &[Budget(10_000_000)], Limits(&[3713, 1113, 25])),
    (24, MIXED, &[Budget(1024 * M)], Limits(&[395_999, 118_799, 2771])),
    (25, FEW_SMALL, &[Budget(1_048_640)], Each(1)),
    (26, MANY_SMALL, &[Budget(1_048_640)], Each(1)),
    (26, MANY_SMALL, &[Budget(2 * M)], Limits(&[16_384, 1])),
    (27, &[(1, 1)], &[Budget((1 << 32) - 1)], Each(MAX)),
    (27, &[(1, 1)], &[Budget(1 << 32)], Refusal(BudgetTooLarge { budget: 1 << 32, size: 1 })),
    (29, NEAR_MAX, &[Budget(1_000_000)], Limits(&[333_334, 333_333])),
    (29, NEAR_MAX, &[Budget(3 << 31)], Each(1 << 31)),
    (30, FOUR_BILLION, &[Budget(4_000_004_096)], Limits(&[4_000_000_000, 1])),
    (30, FOUR_BILLION, &[Budget(4_000_008_192)], Limits(&[4_000_004_096, 1])),
    (32, HUGE, &[Budget(u64::MAX)], Each(3)),
    (33, NETWORK, &[Bytes(1)], Each(1)),
    (33, NETWORK, &[Bytes(1023)], Each(1)),
    (33, NETWORK, &[Bytes(1024)], Each(1)),
    (33, NETWORK, &[Bytes(1500)], Each(1)),
    (34, NETWORK, &[Bytes(4096)], Limits(&[4, 2, 1, 1, 1, 1, 1, 1])),
    (35, NETWORK, &[Bytes(65_536)], Limits(&[64, 32, 16, 8, 4, 2, 1, 1])),
    (35, NETWORK, &[Bytes(M)], Limits(&[1024, 512, 256, 128, 64, 32, 16, 8])),
    (36, &[(1, 1)], &[Bytes((1 << 32) - 1)], Each(MAX)),
    (36, &[(1, 1)], &[Bytes(1 << 32)], Refusal(BytesTooLarge { bytes: 1 << 32, size: 1 })),
    (37, &[(2, 1)], &[Bytes((1 << 33) - 1)], Each(MAX)),
    (38, ONES, &[Budget(280), Max(100)], Each(100)),
    (39, ONES, &[Max(100), Budget(280)], Each(10)),
    (41, TO_64_K, &[Budget(200_000), Bytes(65_536)], Limits(&[64, 32, 16, 8, 4, 2, 1])),
    (42, NETWORK, &[With(M, 5), Range(512, 1024, 2)], Classes(&[(512, 2), (1024, 2)])),
    (43, TO_8_K, &[Without(2048), With(2048, 3)], Limits(&[8, 3, 8, 8])),
];

#[test]
fn shapes_are_scaled_and_replaced_as_the_table_says() {
    let mut done = 0;
    for &(row, start, steps, gives) in ROWS {
        let Some(mut config) = with_layout(start) else { continue };
        let (&last, before) = steps.split_last().unwrap();
        for step in before {
            config = step.apply(config).unwrap().unwrap_or_else(|error| panic!("row {row}: {step:?}: {error}"));
        }
        let Some(got) = last.apply(config) else { continue };
        let limits = |limit: &dyn Fn(usize) -> u32| -> Result<Vec<_>, _> {
            Ok(start.iter().enumerate().map(|(index, &(size, _))| (size, limit(index))).collect())
        };
        let expected = match gives {
            Limits(list) => {
                assert_eq!(list.len(), start.len(), "row {row}");
                limits(&|index| list[index])
            }
            Each(limit) => limits(&|_| limit),
            Classes(layout) => Ok(layout.to_vec()),
            Refusal(error) => Err(error),
        };
        assert_eq!(got.map(|config| layout(&config)), expected, "row {row}: {start:?}: {steps:?}");
        if let (Ok(got), Ok(expected)) = (got, expected) {
            let bytes = expected.iter().map(|&(size, limit)| u128::from(size) * u128::from(limit)).sum::<u128>();
            assert_eq!(got.max_tracked_bytes() as u128, bytes.min(usize::MAX as u128), "row {row}: {steps:?}");
        }
        done += 1;
    }
    assert!(done == ROWS.len() || usize::BITS < 64, "{done} rows");
}

#[test]
fn bytes_that_shapes_track_are_as_the_table_says() {
    let tracked = |start: Layout, steps: &[Step]| {
        let steps = steps.iter().try_fold(with_layout(start)?, |config, step| Some(step.apply(config)?.unwrap()));
        Some(steps?.max_tracked_bytes() as u64)
    };
    let rows: [(u32, Layout, &[Step], u64); 14] = [
        (2, ONES, &[Budget(55)], 28),
        (3, ONES, &[Budget(83)], 56),
        (4, ONES, &[Budget(279)], 279 - 27),
        (5, ONES, &[Budget(307)], 280),
        (8, FOURS, &[Budget(31)], 28),
        (9, FOURS, &[Budget(35)], 32),
        (15, THREES, &[Budget(40)], 39),
        (18, NETWORK, &[Budget(64 * M)], 64 * M - 1024),
        (22, MIXED, &[Budget(2_711_551)], 2_711_551 - 70_655),
        (26, MANY_SMALL, &[Budget(2 * M)], 2 * M),
        (32, HUGE, &[Budget(u64::MAX)], 13_835_058_055_282_163_715),
        (38, ONES, &[Budget(280), Max(100)], 2800),
        (41, TO_64_K, &[Budget(200_000), Bytes(65_536)], 458_752),
        // Nor is the budget remembered when a class is added.
        (38, ONES, &[Budget(280), With(32, 100)], 3480),
    ];
    for (row, start, steps, bytes) in rows {
        assert!(tracked(start, steps).is_none_or(|tracked| tracked == bytes), "row {row}: {steps:?}");
    }
    // Row 45, with the largest class that there is.
    let largest = UNADDRESSABLE / 2;
    for (limit, tracked) in [(MAX, usize::MAX), (4, usize::MAX), (3, 3 * largest)] {
        let config = BufferPoolConfig::for_network().with_size_classes([(bytes(largest), count(limit))]);
        assert_eq!(config.max_tracked_bytes(), tracked, "row 45: {limit}");
    }
    // The sum is what passes `usize::MAX`, not a product.
    let both =
        config(&[(1, 4)]).with_size_class(bytes(largest), count(3)).with_size_class(bytes(largest / 2), count(2));
    assert_eq!(both.max_tracked_bytes(), usize::MAX);
}

#[test]
fn requests_go_to_the_smallest_class_that_fits() {
    let sparse = config(&[(4096, 4), (32_768, 2)]).with_pool_min_size(512);
    let class = |size: usize| sparse.class_for(size).map(|class| (class.size.get(), class.max_buffers.get()));
    for size in [0, 1, 4096] {
        assert_eq!(class(size), Some((4096, 4)), "row 44: {size}");
    }
    for size in [4097, 16_384, 32_768] {
        assert_eq!(class(size), Some((32_768, 2)), "row 44: {size}");
    }
    for size in [32_769, UNADDRESSABLE, UNADDRESSABLE + 1, usize::MAX] {
        assert_eq!(class(size), None, "row 44: {size}");
    }
    let largest = sparse.with_size_class(bytes(UNADDRESSABLE / 2), count(1));
    assert_eq!(largest.class_for(32_769).unwrap().size, largest.max_size());
    assert_eq!(largest.class_for(UNADDRESSABLE / 2).unwrap().size, largest.max_size());
    assert_eq!(largest.class_for(UNADDRESSABLE / 2 + 1), None);
}

/// Limit, parallelism, and the figure that follows.
type Figures<P> = [(u32, P, u32)];

#[test]
fn caches_have_the_capacity_that_the_table_says() {
    let automatic: &Figures<usize> = &[
        (1, 1, 0),
        (2, 1, 1),
        (2, 8, 0),
        (3, 1, 1),
        (4, 2, 1),
        (8, 4, 1),
        (100, 3, 16),
        (64, 1, 32),
        (64, 8, 4),
        (64, 16, 2),
        (64, 32, 1),
        (64, 33, 0),
        (64, 64, 0),
        (4096, 1, 2048),
        (4096, 8, 256),
        (4096, usize::MAX, 0),
        (MAX, 1, 2_147_483_647),
        (MAX, usize::MAX, 0),
    ];
    for &(limit, threads, capacity) in automatic {
        let config = BufferPoolConfig::for_network().with_parallelism(bytes(threads));
        assert_eq!(config.cache_capacity(count(limit)), capacity, "rows 47 to 50: {limit}, {threads}");
        let disabled = config.with_thread_cache_disabled();
        assert_eq!(disabled.cache_capacity(count(limit)), 0);
        assert_eq!(disabled.stripes(count(limit)), config.stripes(count(limit)));
    }
    let explicit: &Figures<usize> =
        &[(10, 11, 10), (4, 16, 4), (64, 16, 16), (1, usize::MAX, 1), (64, 7, 7), (MAX, usize::MAX, MAX)];
    for &(limit, most, capacity) in explicit {
        let config = BufferPoolConfig::for_network().with_max_thread_cache_capacity(bytes(most));
        // On 32 bits `usize::MAX` is `u32::MAX`, which is what the last limit is in any case.
        assert_eq!(config.cache_capacity(count(limit)), capacity, "row 51: {limit}, {most}");
        assert_eq!(config.stripes(count(limit)), BufferPoolConfig::for_network().stripes(count(limit)));
    }
    let sparse = config(&[(1024, 4), (4096, 64)]).with_max_thread_cache_capacity(bytes(16));
    assert!(sparse.size_classes().map(|class| sparse.cache_capacity(class.max_buffers)).eq([4, 16]));
}

#[test]
fn freelists_have_the_stripes_that_the_table_says() {
    let stripes: &Figures<usize> = &[
        (1, 1, 1),
        (2, 1, 2),
        (3, 1, 2),
        (4, 2, 4),
        (7, 1, 4),
        (8, 4, 8),
        (9, 1, 8),
        (12, 1, 8),
        (12, 9, 8),
        (64, 8, 8),
        (64, 9, 16),
        (64, 16, 16),
        (4096, 4096, 4096),
        (4095, usize::MAX, 2048),
        (MAX, 4095, 4096),
        (MAX, 4097, 4096),
        (MAX, usize::MAX, 4096),
    ];
    for &(limit, threads, stripes) in stripes {
        let config = BufferPoolConfig::for_network().with_parallelism(bytes(threads));
        assert_eq!(config.stripes(count(limit)), stripes, "row 52: {limit}, {threads}");
    }
    // The formula as the specification has it.
    for limit in (1..600).chain([4095, 4096, 4097, 8191, 8192, MAX - 1, MAX]) {
        let whole = 1_usize << limit.ilog2();
        for threads in (1..70).chain([4095, 4096, 4097, usize::MAX / 2, usize::MAX]) {
            let wanted = threads.checked_next_power_of_two().unwrap_or(4096).max(whole.min(8));
            let config = BufferPoolConfig::for_network().with_parallelism(bytes(threads));
            assert_eq!(config.stripes(count(limit)) as usize, wanted.min(4096).min(whole), "{limit}, {threads}");
        }
    }
}

#[test]
fn a_pool_checks_alignment_and_smallest_request_in_this_order() {
    let start = config(&[(1024, 2), (8192, 1)]);
    let with = |alignment, pool_min_size| start.with_alignment(bytes(alignment)).with_pool_min_size(pool_min_size);
    let odd = BufferConfigError::AlignmentNotPowerOfTwo { alignment: 3 };
    let odd_and_large = BufferConfigError::AlignmentNotPowerOfTwo { alignment: 2049 };
    let large = BufferConfigError::AlignmentTooLarge { alignment: 2048, min_size: 1024 };
    let request = BufferConfigError::PoolMinSizeTooLarge { pool_min_size: 1025, min_size: 1024 };
    for (alignment, pool_min_size, expected) in [
        (3, 0, Err(odd)),
        (2048, 0, Err(large)),
        (64, 1025, Err(request)),
        (1024, 1024, Ok(())),
        (1, 0, Ok(())),
        (512, 512, Ok(())),
        (3, 1025, Err(odd)),
        (2049, 1025, Err(odd_and_large)),
        (2048, 1025, Err(large)),
    ] {
        assert_eq!(with(alignment, pool_min_size).check(), expected, "row 55: {alignment}, {pool_min_size}");
    }
    // Fields may be set in any order: the layout makes up for it later.
    let early = with(2048, 1025).with_size_class_range(bytes(2048), bytes(4096), count(1));
    assert_eq!(early.check(), Ok(()));
    assert_eq!(BufferPoolConfig::for_network().check(), Ok(()));
    assert_eq!(BufferPoolConfig::for_storage().check(), Ok(()));
}

#[test]
fn presets_equal_the_table() {
    let network = BufferPoolConfig::for_network();
    let storage = BufferPoolConfig::for_storage();
    assert_eq!(BufferPoolConfig::default(), network);
    for (preset, expected, tracked) in [(network, NETWORK, 1_069_547_520), (storage, STORAGE, 1_073_479_680)] {
        assert_eq!(layout(&preset), expected);
        assert_eq!(preset.max_tracked_bytes(), tracked);
        assert_eq!(preset.alignment().get(), 1);
        assert_eq!(preset.parallelism().get(), 1);
        assert!(!preset.prefill());
        assert_eq!(preset.pool_min_size(), 0);
        assert_eq!(preset.max_thread_cache_capacity(), ThreadCache::Auto);
        assert_eq!(preset.min_size().get() as u64, expected[0].0);
        assert_eq!(preset.max_size().get() as u64, expected[expected.len() - 1].0);
        assert_eq!(preset.size_classes().len(), expected.len());
    }
    assert_eq!(BufferPoolConfig::for_storage_with_page_size(bytes(4096)), storage);
    for (page, classes) in [(1 << 23, 1), (1 << 16, 8), (1, 24)] {
        let preset = BufferPoolConfig::for_storage_with_page_size(bytes(page));
        assert_eq!((preset.min_size().get(), preset.max_size().get()), (page, 1 << 23));
        assert_eq!(preset.size_classes().len(), classes);
        assert!(preset.size_classes().all(|class| class.max_buffers == count(64)));
    }
}

#[test]
fn classes_in_any_order_come_out_ascending() {
    let unsorted = config(&[(8192, 3), (512, 7), (2048, 5)]);
    assert_eq!(layout(&unsorted), [(512, 7), (2048, 5), (8192, 3)]);
    assert_eq!(unsorted, config(&[(512, 7), (2048, 5), (8192, 3)]));
    let class = BufferPoolClassConfig { size: bytes(512), max_buffers: count(2) };
    assert_eq!(layout(&BufferPoolConfig::for_network().with_size_classes([class])), [(512, 2)]);
    assert_eq!(BufferPoolClassConfig::new(bytes(512), count(2)), class);
    assert_eq!(BufferPoolClassConfig::from((bytes(512), count(2))), class);
    let mut classes = unsorted.size_classes();
    for left in (1..=3).rev() {
        assert_eq!((classes.len(), classes.size_hint()), (left, (left, Some(left))));
        classes.next();
    }
    assert_eq!((classes.len(), classes.next()), (0, None));
}

#[test]
fn a_class_is_replaced_in_place_or_extends_the_span() {
    let start = config(&[(2048, 8), (8192, 8)]);
    assert_eq!(layout(&start.with_size_class(bytes(8192), count(3))), [(2048, 8), (8192, 3)]);
    assert_eq!(layout(&start.with_size_class(bytes(4096), count(3))), [(2048, 8), (4096, 3), (8192, 8)]);
    let longer = start.with_size_class(bytes(1), count(1)).with_size_class(bytes(UNADDRESSABLE / 2), count(MAX));
    assert_eq!(sizes(&longer), [1, 2048, 8192, UNADDRESSABLE / 2]);
    assert_eq!((longer.min_size().get(), longer.max_size().get()), (1, UNADDRESSABLE / 2));
}

#[test]
fn removing_leaves_a_gap_or_moves_an_end() {
    let start = config(&[(1024, 8), (2048, 4), (4096, 2), (8192, 1)]);
    let gap = start.without_size_class(bytes(2048));
    assert_eq!(sizes(&gap), [1024, 4096, 8192]);
    assert_eq!(gap.class_for(1025).unwrap(), BufferPoolClassConfig::new(bytes(4096), count(2)));
    assert_eq!(start.without_size_class(bytes(1024)).min_size().get(), 2048);
    assert_eq!(gap.without_size_class(bytes(1024)).min_size().get(), 4096);
    assert_eq!(start.without_size_class(bytes(8192)).max_size().get(), 4096);
    assert_eq!(gap.without_size_class(bytes(8192)).without_size_class(bytes(4096)).max_size().get(), 1024);
}

#[test]
fn uniform_limits_leave_gaps_closed() {
    let sparse = config(&[(1024, 8), (8192, 1), (65_536, 3)]);
    assert_eq!(layout(&sparse.with_max_per_class(count(9))), [(1024, 9), (8192, 9), (65_536, 9)]);
    assert_eq!(layout(&sparse.with_bytes_per_class(bytes(16_384))), [(1024, 16), (8192, 2), (65_536, 1)]);
    assert_eq!(layout(&sparse.with_budget_bytes(bytes(74_752 + 1024))), [(1024, 2), (8192, 1), (65_536, 1)]);
}

#[test]
fn other_settings_do_not_depend_on_the_order() {
    let settings = |config: BufferPoolConfig| {
        config
            .with_pool_min_size(7)
            .with_parallelism(bytes(5))
            .with_prefill(true)
            .with_alignment(bytes(64))
            .with_max_thread_cache_capacity(bytes(3))
    };
    let shape = |config: BufferPoolConfig| {
        config
            .with_size_class_range(bytes(64), bytes(512), count(10))
            .with_size_class(bytes(4096), count(1))
            .without_size_class(bytes(128))
            .with_budget_bytes(bytes(6000))
    };
    let start = BufferPoolConfig::for_network();
    let both = settings(shape(start));
    assert_eq!(both, shape(settings(start)));
    assert_eq!(both.limits(), shape(start).limits());
    assert_eq!((both.pool_min_size(), both.parallelism(), both.prefill()), (7, bytes(5), true));
    assert_eq!((both.alignment(), both.max_thread_cache_capacity()), (bytes(64), ThreadCache::Explicit(bytes(3))));
    assert!(!both.with_prefill(false).prefill());
}

#[test]
fn the_last_rule_for_thread_caches_counts() {
    let start = BufferPoolConfig::for_network();
    let disabled = start.with_max_thread_cache_capacity(bytes(3)).with_thread_cache_disabled();
    assert_eq!(disabled.max_thread_cache_capacity(), ThreadCache::Disabled);
    let explicit = start.with_thread_cache_disabled().with_max_thread_cache_capacity(bytes(3));
    assert_eq!(explicit.max_thread_cache_capacity(), ThreadCache::Explicit(bytes(3)));
    assert_eq!(explicit.with_thread_cache(ThreadCache::Auto), start);
    assert_eq!(ThreadCache::default(), ThreadCache::Auto);
}

#[test]
fn limits_are_numbers_that_make_the_same_configuration() {
    let start = config(&[(1, 5), (1024, 4), (65_536, MAX)]);
    let limits = start.limits();
    assert_eq!((limits[0], limits[10], limits[16]), (5, 4, MAX));
    assert_eq!(limits.iter().filter(|&&limit| limit != 0).count(), 3);
    assert_eq!(BufferPoolConfig::try_from_limits(limits), Ok(start));
    assert_eq!(BufferPoolConfig::try_from_limits([0; 64]), Ok(BufferPoolConfig::for_network()));
    for class in 0..64 {
        let mut limits = [0; 64];
        limits[class] = 1;
        let config = BufferPoolConfig::try_from_limits(limits);
        if class < usize::BITS as usize - 1 {
            let config = config.unwrap();
            assert_eq!((config.limits(), sizes(&config)), (limits, vec![1 << class]));
        } else {
            assert_eq!(config, Err(BufferConfigError::SizeTooLarge { size: 1 << class }));
        }
    }
    assert_eq!(
        BufferPoolConfig::try_from_limits([1; 64]),
        Err(BufferConfigError::SizeTooLarge { size: UNADDRESSABLE as u64 })
    );
}

#[test]
fn debug_output_lists_what_is_enabled() {
    let text = format!("{:?}", config(&[(1024, 8), (8192, 1)]).with_thread_cache_disabled());
    assert_eq!(
        text,
        "BufferPoolConfig { classes: {1024: 8, 8192: 1}, pool_min_size: 0, alignment: 1, parallelism: 1, \
         thread_cache: Disabled, prefill: false }"
    );
}

/// Panics unless all of it works in constants.
const fn built(result: Result<BufferPoolConfig, BufferConfigError>) -> BufferPoolConfig {
    match result {
        Ok(config) => config,
        Err(_) => panic!(),
    }
}

const CONSTANT: BufferPoolConfig = {
    let start = BufferPoolConfig::for_network().with_pool_min_size(64).with_parallelism(bytes(4));
    let range = built(start.try_with_size_class_range(bytes(64), bytes(256), count(6)));
    let sparse = built(built(range.try_with_size_class(bytes(1024), count(3))).try_without_size_class(bytes(128)));
    let scaled = built(sparse.try_with_budget_bytes(bytes(2 * (6 * 64 + 6 * 256 + 3 * 1024))));
    scaled.with_prefill(true).with_alignment(bytes(32)).with_max_thread_cache_capacity(bytes(2))
};
const LIMITS: [u32; 64] = CONSTANT.limits();
const _: () = {
    assert!(LIMITS[6] == 12 && LIMITS[7] == 0 && LIMITS[8] == 12 && LIMITS[10] == 6);
    assert!(CONSTANT.check().is_ok() && CONSTANT.prefill() && CONSTANT.pool_min_size() == 64);
    assert!(CONSTANT.alignment().get() == 32 && CONSTANT.parallelism().get() == 4);
    assert!(CONSTANT.min_size().get() == 64 && CONSTANT.max_size().get() == 1024);
    assert!(CONSTANT.max_tracked_bytes() == 9984 && CONSTANT.class_for(65).unwrap().size.get() == 256);
    assert!(CONSTANT.cache_capacity(count(6)) == 2 && CONSTANT.stripes(count(6)) == 4);
    assert!(matches!(CONSTANT.max_thread_cache_capacity(), ThreadCache::Explicit(_)));
    assert!(CONSTANT.with_thread_cache_disabled().cache_capacity(count(6)) == 0);
    assert!(CONSTANT.with_max_per_class(count(1)).max_tracked_bytes() == 1344);
    assert!(built(CONSTANT.try_with_bytes_per_class(bytes(1024))).limits()[6] == 16);
    assert!(built(BufferPoolConfig::try_from_limits(LIMITS)).max_tracked_bytes() == 9984);
    assert!(BufferPoolConfig::for_storage().min_size().get() == 4096);
    assert!(built(BufferPoolConfig::try_for_storage_with_page_size(bytes(16_384))).min_size().get() == 16_384);
    assert!(BufferPoolClassConfig::new(bytes(512), count(2)).size.get() == 512);
};

/// A builder that panics with a text, and whose twin returns an error: two tests.
macro_rules! refused {
    ($($name:ident: $start:expr, $panics:ident | $returns:ident ($($argument:expr),*) => $error:expr, $text:literal;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn is_an_error_of_the_twin() {
                let result: Result<BufferPoolConfig, BufferConfigError> = $start.$returns($($argument),*);
                assert_eq!(result, Err($error));
                assert!($error.to_string().starts_with($text), "{}", $error);
            }

            #[test]
            #[should_panic(expected = $text)]
            fn panics() {
                let _ = $start.$panics($($argument),*);
            }
        }
    )*};
}

use BufferConfigError::{DuplicateSize, LastClass, NoClasses, NotEnabled, PageSize, RangeReversed};
use BufferConfigError::{SizeNotPowerOfTwo, SizeTooLarge};

fn network() -> BufferPoolConfig {
    BufferPoolConfig::for_network()
}

/// For calls without a configuration.
struct Preset;

impl Preset {
    fn panicking(self, page_size: usize) -> BufferPoolConfig {
        BufferPoolConfig::for_storage_with_page_size(bytes(page_size))
    }

    fn returning(self, page_size: usize) -> Result<BufferPoolConfig, BufferConfigError> {
        BufferPoolConfig::try_for_storage_with_page_size(bytes(page_size))
    }
}

refused! {
    a_range_from_an_odd_size: network(),
        with_size_class_range | try_with_size_class_range(bytes(1000), bytes(2048), count(1))
        => SizeNotPowerOfTwo { size: 1000 }, "size not a power of two: a class of 1000 bytes";
    a_range_to_an_odd_size: network(),
        with_size_class_range | try_with_size_class_range(bytes(1024), bytes(2047), count(1))
        => SizeNotPowerOfTwo { size: 2047 }, "size not a power of two: a class of 2047 bytes";
    a_range_from_an_unaddressable_size: network(),
        with_size_class_range | try_with_size_class_range(bytes(UNADDRESSABLE), bytes(UNADDRESSABLE), count(1))
        => SizeTooLarge { size: UNADDRESSABLE as u64 }, "size too large: a class of ";
    a_range_to_an_unaddressable_size: network(),
        with_size_class_range | try_with_size_class_range(bytes(1024), bytes(UNADDRESSABLE), count(1))
        => SizeTooLarge { size: UNADDRESSABLE as u64 }, "size too large: a class of ";
    a_range_reversed: network(),
        with_size_class_range | try_with_size_class_range(bytes(2048), bytes(1024), count(1))
        => RangeReversed { min: 2048, max: 1024 }, "range reversed: classes from 2048 to 1024 bytes";
    a_list_with_an_odd_size: network(),
        with_size_classes | try_with_size_classes([(bytes(1024), count(1)), (bytes(3), count(1))])
        => SizeNotPowerOfTwo { size: 3 }, "size not a power of two: a class of 3 bytes";
    a_list_with_an_unaddressable_size: network(),
        with_size_classes | try_with_size_classes([(bytes(1024), count(1)), (bytes(UNADDRESSABLE), count(1))])
        => SizeTooLarge { size: UNADDRESSABLE as u64 }, "size too large: a class of ";
    a_list_with_a_size_twice: network(),
        with_size_classes | try_with_size_classes([1024, 512, 1024].map(|size| (bytes(size), count(1))))
        => DuplicateSize { size: 1024 }, "duplicate size: two classes of 1024 bytes";
    a_list_of_no_classes: network(),
        with_size_classes | try_with_size_classes(Vec::<BufferPoolClassConfig>::new())
        => NoClasses, "no classes: a pool has at least one";
    a_class_of_an_odd_size: network(),
        with_size_class | try_with_size_class(bytes(1025), count(1))
        => SizeNotPowerOfTwo { size: 1025 }, "size not a power of two: a class of 1025 bytes";
    a_class_of_an_unaddressable_size: network(),
        with_size_class | try_with_size_class(bytes(UNADDRESSABLE), count(1))
        => SizeTooLarge { size: UNADDRESSABLE as u64 }, "size too large: a class of ";
    removing_an_odd_size: network(),
        without_size_class | try_without_size_class(bytes(1025))
        => SizeNotPowerOfTwo { size: 1025 }, "size not a power of two: a class of 1025 bytes";
    removing_an_unaddressable_size: network(),
        without_size_class | try_without_size_class(bytes(UNADDRESSABLE))
        => SizeTooLarge { size: UNADDRESSABLE as u64 }, "size too large: a class of ";
    removing_what_is_not_enabled: network(),
        without_size_class | try_without_size_class(bytes(512))
        => NotEnabled { size: 512 }, "not enabled: there is no class of 512 bytes to remove";
    removing_the_last_class: config(&[(512, 2)]),
        without_size_class | try_without_size_class(bytes(512))
        => LastClass { size: 512 }, "last class: a pool needs one, and 512 bytes is the only one left";
    a_budget_below_one_buffer_of_each_class: network(),
        with_budget_bytes | try_with_budget_bytes(bytes(261_119))
        => BudgetTooSmall { budget: 261_119, least: 261_120 },
        "budget too small: 261119 bytes, one buffer of every class takes 261120";
    a_page_of_an_odd_size: Preset, panicking | returning(4095)
        => PageSize { page_size: 4095 }, "page size not usable: 4095 is not a power of two of at most 8 MiB";
    a_page_above_8_mib: Preset, panicking | returning(1 << 24)
        => PageSize { page_size: 1 << 24 }, "page size not usable: 16777216 is not a power of two of at most 8 MiB";
}

// A `usize` of 32 bits cannot ask for so much.
#[cfg(target_pointer_width = "64")]
refused! {
    bytes_of_a_class_that_are_too_many_buffers: config(&[(2, 1), (16, 1)]),
        with_bytes_per_class | try_with_bytes_per_class(bytes(1 << 33))
        => BytesTooLarge { bytes: 1 << 33, size: 2 },
        "bytes too large: 8589934592 are more than 4294967295 buffers of 2 bytes";
    a_budget_that_is_too_many_buffers: config(&[(1, 1), (2, 3), (4, 3)]),
        with_budget_bytes | try_with_budget_bytes(bytes(usize::MAX))
        => BudgetTooLarge { budget: u64::MAX, size: 2 },
        "budget too large: 18446744073709551615 bytes hold more than 4294967295 buffers of 2 bytes";
}

#[test]
fn a_range_checks_min_then_max_then_their_order() {
    let refusal = |min, max| network().try_with_size_class_range(bytes(min), bytes(max), count(1)).unwrap_err();
    let unaddressable = SizeTooLarge { size: UNADDRESSABLE as u64 };
    // A power of two first: no bound is named for what is none.
    assert_eq!(refusal(usize::MAX, 1), SizeNotPowerOfTwo { size: usize::MAX as u64 });
    assert_eq!(refusal(3, 5), SizeNotPowerOfTwo { size: 3 });
    assert_eq!(refusal(5, UNADDRESSABLE), SizeNotPowerOfTwo { size: 5 });
    assert_eq!(refusal(UNADDRESSABLE, 3), unaddressable);
    assert_eq!(refusal(UNADDRESSABLE, 1), unaddressable);
    assert_eq!(refusal(2048, 3), SizeNotPowerOfTwo { size: 3 });
    assert_eq!(refusal(2048, 1024), RangeReversed { min: 2048, max: 1024 });
    let one = network().with_size_class_range(bytes(2048), bytes(2048), count(1));
    assert_eq!(layout(&one), [(2048, 1)]);
    let all = network().with_size_class_range(bytes(1), bytes(UNADDRESSABLE / 2), count(1));
    assert_eq!(all.size_classes().len(), usize::BITS as usize - 1);
}

#[test]
fn a_list_names_the_first_class_that_is_to_blame() {
    let refusal = |sizes: &[usize]| {
        network().try_with_size_classes(sizes.iter().map(|&size| (bytes(size), count(1)))).unwrap_err()
    };
    assert_eq!(refusal(&[8, 8, 3]), DuplicateSize { size: 8 });
    assert_eq!(refusal(&[8, 3, 8]), SizeNotPowerOfTwo { size: 3 });
    assert_eq!(refusal(&[UNADDRESSABLE, UNADDRESSABLE]), SizeTooLarge { size: UNADDRESSABLE as u64 });
}

#[test]
fn errors_name_the_argument_that_is_to_blame() {
    use BufferConfigError::{AlignmentNotPowerOfTwo, AlignmentTooLarge, PoolMinSizeTooLarge};
    let errors = [
        (SizeNotPowerOfTwo { size: 3 }, c"size", 3),
        (SizeTooLarge { size: 1 << 63 }, c"size", 1 << 63),
        (RangeReversed { min: 2, max: 1 }, c"max_size", 1),
        (DuplicateSize { size: 4 }, c"size", 4),
        (NoClasses, c"classes", 0),
        (NotEnabled { size: 5 }, c"size", 5),
        (LastClass { size: 6 }, c"size", 6),
        (PageSize { page_size: 7 }, c"page_size", 7),
        (BytesTooLarge { bytes: 8, size: 1 }, c"bytes", 8),
        (BudgetTooSmall { budget: 9, least: 10 }, c"budget", 9),
        (BudgetTooLarge { budget: 11, size: 1 }, c"budget", 11),
        (AlignmentNotPowerOfTwo { alignment: 12 }, c"alignment", 12),
        (AlignmentTooLarge { alignment: 13, min_size: 1 }, c"alignment", 13),
        (PoolMinSizeTooLarge { pool_min_size: 14, min_size: 1 }, c"pool_min_size", 14),
    ];
    let mut texts = Vec::new();
    for (error, field, value) in errors {
        assert_eq!(Error::from(error), Error::InvalidArgument { field, value });
        let source: &dyn std::error::Error = &error;
        let text = source.to_string();
        assert!(value == 0 || text.contains(&value.to_string()), "{text}");
        texts.push(text.split(':').next().unwrap().to_owned());
    }
    assert_eq!(texts.len(), errors.len());
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), errors.len(), "two causes read the same: {texts:?}");
}

/// A scale as a fraction.
type Scale = (u128, u128);

/// Limits once they are scaled, without any bound.
fn scaled(shape: &[(u64, u32)], (dividend, divisor): Scale) -> Vec<u128> {
    shape.iter().map(|&(_, limit)| (u128::from(limit) * dividend / divisor).max(1)).collect()
}

fn total(shape: &[(u64, u32)], scale: Scale) -> u128 {
    scaled(shape, scale).iter().zip(shape).map(|(&limit, &(size, _))| limit * u128::from(size)).sum()
}

/// Tries every scale of `first..=last` at which a limit changes, and takes the greatest whose bytes are within the budget.
/// The first has to be, and the last must not. Says what the limits become, of however many bits.
fn greatest_by_trying_all(shape: &[(u64, u32)], budget: u64, first: Scale, last: Scale) -> Vec<u128> {
    let budget = u128::from(budget);
    assert!(
        total(shape, first) <= budget && total(shape, last) > budget,
        "{shape:?} {budget}: not in {first:?} {last:?}"
    );
    let mut best = first;
    for &(_, limit) in shape {
        let limit = u128::from(limit);
        for whole in (limit * first.0).div_ceil(first.1)..=limit * last.0 / last.1 {
            if whole * best.1 > best.0 * limit && total(shape, (whole, limit)) <= budget {
                best = (whole, limit);
            }
        }
    }
    scaled(shape, best)
}

/// What a budget gives, by trying all scales.
fn by_trying_all(
    shape: &[(u64, u32)],
    budget: u64,
    window: Option<(Scale, Scale)>,
) -> Result<Vec<u32>, BufferConfigError> {
    let least = shape.iter().map(|&(size, _)| size).sum();
    if budget < least {
        return Err(BudgetTooSmall { budget, least });
    }
    // Beyond the scale that takes the whole budget for one class there is nothing to try.
    let (first, last) = window.unwrap_or_else(|| {
        let ends = shape.iter().map(|&(size, limit)| (u128::from(budget / size + 1), u128::from(limit)));
        ((0, 1), ends.reduce(|a, b| if a.0 * b.1 < b.0 * a.1 { a } else { b }).unwrap())
    });
    let limits = greatest_by_trying_all(shape, budget, first, last);
    let limits = limits.iter().map(|&limit| u32::try_from(limit)).collect::<Result<Vec<_>, _>>();
    // The largest limit is the first to be too large.
    let most = shape.iter().map(|&(_, limit)| limit).max().unwrap();
    let size = shape.iter().find(|&&(_, limit)| limit == most).unwrap().0;
    limits.map_err(|_| BudgetTooLarge { budget, size })
}

/// What a budget gives, by the builder.
fn by_the_builder(shape: &[(u64, u32)], budget: u64) -> Result<Vec<u32>, BufferConfigError> {
    let scaled = config(shape).try_with_budget_bytes(bytes(budget.try_into().unwrap()))?;
    Ok(scaled.size_classes().map(|class| class.max_buffers.get()).collect())
}

/// One to five classes of sizes up to 2^8.
fn random_shape(random: &mut Random, limit: impl Fn(&mut Random) -> u32) -> Vec<(u64, u32)> {
    let mut sizes = (0..9).map(|class| 1 << class).collect::<Vec<u64>>();
    let mut shape = (0..random.within(1, 5)).map(|_| (random.take(&mut sizes), limit(random))).collect::<Vec<_>>();
    shape.sort_unstable();
    shape
}

#[test]
fn budgets_give_what_trying_all_scales_gives() {
    let mut random = Random::with_seed_or(55);
    let (mut scaled, mut too_small) = (0, 0);
    for case in 0..12_000 {
        let shape = random_shape(&mut random, |random| random.within(1, 12) as u32);
        let scale = (u128::from(random.below(30)), u128::from(random.within(1, 12)));
        let edge = total(&shape, scale) as u64;
        let budget = match random.below(3) {
            0 => (edge + random.below(3)).saturating_sub(1).max(1),
            1 => random.within(1, 2 * edge),
            _ => random.within(1, 600),
        };
        let expected = by_trying_all(&shape, budget, None);
        assert_eq!(by_the_builder(&shape, budget), expected, "case {case}: {shape:?} with {budget}");
        *(if expected.is_ok() { &mut scaled } else { &mut too_small }) += 1;
    }
    println!("{scaled} scaled, {too_small} too small");
    assert!(scaled > 5000 && too_small > 500, "{scaled} {too_small}");
}

#[cfg(target_pointer_width = "64")]
#[test]
fn budgets_near_the_largest_limit_give_what_trying_all_scales_gives() {
    let mut random = Random::with_seed_or(56);
    let (mut scaled, mut too_large) = (0, 0);
    for case in 0..8_000 {
        let small = random.below(2) == 0;
        let shape = random_shape(&mut random, |random| match (small, random.below(4)) {
            (true, _) => random.within(1, 12) as u32,
            (false, 0) => random.scaled(u64::from(MAX)) as u32,
            (false, _) => MAX - random.below(12) as u32,
        });
        // Where the largest limit is as good as 2^32, and 40 steps of it to both sides.
        let most = u128::from(shape.iter().map(|&(_, limit)| limit).max().unwrap());
        let middle = (1 << 32) + 4 - u128::from(random.below(9));
        let budget = (total(&shape, (middle, most)) + 1) as u64 - random.below(3);
        let window = ((middle - 40, most), (middle + 40, most));
        let expected = by_trying_all(&shape, budget, Some(window));
        assert_eq!(by_the_builder(&shape, budget), expected, "case {case}: {shape:?} with {budget}");
        *(if expected.is_ok() { &mut scaled } else { &mut too_large }) += 1;
    }
    println!("{scaled} scaled, {too_large} too large");
    assert!(scaled > 2000 && too_large > 2000, "{scaled} {too_large}");
}

#[cfg(target_pointer_width = "64")]
#[test]
fn limits_near_the_largest_number_are_scaled_exactly() {
    for budget in 999_950..=1_000_000 {
        // Row 29: from 0 on would take long, and changes nothing.
        let window = ((333_200, u128::from(MAX)), (333_400, u128::from(MAX)));
        let expected = by_trying_all(NEAR_MAX, budget, Some(window));
        assert_eq!(by_the_builder(NEAR_MAX, budget), expected, "row 29: {budget}");
    }
    assert_eq!(by_trying_all(NEAR_MAX, 1_000_000, None), Ok(vec![333_334, 333_333]));
    // Half of the shape, all of it, and twice as much.
    let whole = u64::from(MAX) + 2 * u64::from(MAX - 1);
    for (budget, middle) in [(3 << 31, 1 << 31), (whole, 1 << 32), (whole + 4, 1 << 32)] {
        for budget in budget - 20..=budget + 20 {
            let window = ((middle - 60, u128::from(MAX)), (middle + 60, u128::from(MAX)));
            let expected = by_trying_all(NEAR_MAX, budget, Some(window));
            assert_eq!(by_the_builder(NEAR_MAX, budget), expected, "row 29: {budget}");
        }
    }
}

#[cfg(target_pointer_width = "64")]
#[test]
fn budgets_near_2_to_the_64_are_exact() {
    let largest = 1_u64 << 62;
    for budget in (u64::MAX - 40..=u64::MAX).chain(3 * largest - 8..3 * largest + 8) {
        for shape in [&[(1, 1), (largest, 1)][..], &[(1, 7), (largest / 2, 3), (largest, 2)], &[(largest, 5)]] {
            let expected = by_trying_all(shape, budget, Some(((0, 1), (8, 1))));
            assert_eq!(by_the_builder(shape, budget), expected, "{shape:?} with {budget}");
        }
        // The budget has room for one more of the small class long before it has for a second of the large one.
        let refusal = Err(BudgetTooLarge { budget, size: 4 });
        assert_eq!(by_the_builder(&[(4, MAX), (largest, 1)], budget), refusal, "{budget}");
    }
}
