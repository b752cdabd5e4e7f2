//! Configurations of buffer pools against their rules in 128 bits.

use crate::buffers;
use crate::input::Input;
use slicepool_core::{BufferConfigError, BufferPoolConfig, ThreadCache};
use std::num::{NonZeroU32, NonZeroUsize};

fn size(input: &mut Input<'_>) -> NonZeroUsize {
    let size = if input.one_in(2) { 1 << (input.byte() & 63) } else { input.number() };
    NonZeroUsize::new(size as usize).unwrap_or(NonZeroUsize::MIN)
}

fn limit(input: &mut Input<'_>) -> NonZeroU32 {
    NonZeroU32::new(input.count()).unwrap_or(NonZeroU32::MIN)
}

/// Sizes and limits of the classes.
fn classes(config: &BufferPoolConfig) -> Vec<(u128, u128)> {
    config.size_classes().map(|class| (class.size.get() as u128, u128::from(class.max_buffers.get()))).collect()
}

fn tracked(classes: &[(u128, u128)]) -> u128 {
    classes.iter().map(|(size, limit)| size * limit).sum()
}

/// Limits that were scaled to a budget stay within it, and a class more of what is smallest would not.
pub(super) fn budget(input: &mut Input<'_>) {
    let config = buffers::config(input);
    let budget = NonZeroUsize::new(input.number() as usize).unwrap_or(NonZeroUsize::MIN);
    let before = classes(&config);
    let least: u128 = before.iter().map(|(size, _)| size).sum();
    match config.try_with_budget_bytes(budget) {
        Ok(scaled) => {
            let after = classes(&scaled);
            assert!(tracked(&after) <= budget.get() as u128, "{scaled:?} within {budget}");
            let sizes = |classes: &[(u128, u128)]| classes.iter().map(|(size, _)| *size).collect::<Vec<_>>();
            assert_eq!(sizes(&before), sizes(&after), "no class is lost");
            // Whoever had the larger limit has it still.
            for (one, scaled_one) in before.iter().zip(&after) {
                for (other, scaled_other) in before.iter().zip(&after) {
                    assert!(one.1 > other.1 || scaled_one.1 <= scaled_other.1, "{before:?} became {after:?}");
                }
            }
        }
        Err(BufferConfigError::BudgetTooSmall { budget: told, least: needed }) => {
            assert_eq!((u128::from(told), u128::from(needed)), (budget.get() as u128, least));
            assert!((budget.get() as u128) < least);
        }
        Err(BufferConfigError::BudgetTooLarge { size, .. }) => {
            assert!(before.iter().any(|(other, _)| *other == u128::from(size)));
            assert!(budget.get() as u128 > (u128::from(size) << 32) / 2, "{budget} for {before:?}");
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// Builders in any order: what is refused is refused for its reason, and what comes of the rest is consistent.
pub(super) fn builders(input: &mut Input<'_>) {
    let mut config = buffers::config(input);
    for _ in 0..input.below(6) {
        let (one, other, most) = (size(input), size(input), limit(input));
        let made = match input.byte() % 8 {
            0 => config.try_with_size_class_range(one, other, most),
            1 => config.try_with_size_class(one, most),
            2 => config.try_without_size_class(one),
            3 => config.try_with_bytes_per_class(one),
            4 => Ok(config.with_max_per_class(most)),
            5 => Ok(config.with_parallelism(one).with_alignment(other)),
            6 => Ok(config.with_thread_cache(ThreadCache::Explicit(one)).with_pool_min_size(other.get())),
            _ => BufferPoolConfig::try_from_limits(std::array::from_fn(|_| input.count())),
        };
        match made {
            Ok(made) => config = made,
            Err(error) => check_refusal(&config, error, one, other),
        }
        check(&config, input);
    }
}

fn check_refusal(config: &BufferPoolConfig, error: BufferConfigError, one: NonZeroUsize, other: NonZeroUsize) {
    let named = |size: u64| size == one.get() as u64 || size == other.get() as u64;
    match error {
        BufferConfigError::SizeNotPowerOfTwo { size } => assert!(named(size) && !size.is_power_of_two()),
        BufferConfigError::SizeTooLarge { size } => assert!(size > isize::MAX as u64),
        BufferConfigError::RangeReversed { min, max } => assert!(named(min) && named(max) && max < min),
        BufferConfigError::NotEnabled { size } => {
            assert!(named(size) && config.size_classes().all(|class| class.size.get() as u64 != size));
        }
        BufferConfigError::LastClass { size } => {
            assert_eq!((size, config.size_classes().len()), (config.min_size().get() as u64, 1));
        }
        BufferConfigError::BytesTooLarge { bytes, size } => assert!(bytes / size > u64::from(u32::MAX)),
        error => panic!("{error:?}"),
    }
}

/// What a configuration says of itself.
fn check(config: &BufferPoolConfig, input: &mut Input<'_>) {
    let all = classes(config);
    assert!(!all.is_empty() && all.windows(2).all(|pair| pair[0].0 < pair[1].0), "{all:?}");
    let (min, max) = (config.min_size().get() as u128, config.max_size().get() as u128);
    assert_eq!((all[0].0, all[all.len() - 1].0), (min, max));
    let bytes = config.max_tracked_bytes();
    assert!(bytes as u128 == tracked(&all) || bytes == usize::MAX, "{bytes} for {all:?}");
    let wanted = input.number() as usize;
    match config.class_for(wanted) {
        Some(class) => {
            assert!(class.size.get() >= wanted, "a class smaller than its request");
            assert!(!all.iter().any(|(size, _)| (wanted as u128..class.size.get() as u128).contains(size)));
        }
        None => assert!(wanted as u128 > max),
    }
    let limit = limit(input);
    let (capacity, stripes) = (config.cache_capacity(limit), config.stripes(limit));
    assert!(capacity <= limit.get(), "{capacity} of {limit}");
    assert!(stripes.is_power_of_two() && stripes <= 4096 && stripes <= limit.get(), "{stripes} for {limit}");
    let alignment = config.alignment().get() as u128;
    let fine = alignment.is_power_of_two() && alignment <= min && config.pool_min_size() as u128 <= min;
    assert_eq!(config.check().is_ok(), fine, "{config:?}");
}
