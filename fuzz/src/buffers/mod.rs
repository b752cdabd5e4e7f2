//! Buffer pools and their caches: no buffer is out twice, limits hold, handles that were used are refused, and in the end
//! the device has everything back.

mod device;
mod subject;

use crate::host::Host;
use crate::input::Input;
use device::World;
use slicepool_core::{BufferPoolClassConfig, BufferPoolConfig};
use std::num::{NonZeroU32, NonZeroUsize};
use subject::Subject;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (world, host) = (World::default(), Host::default());
    if let Some(mut subject) = Subject::new(&world, &host, &mut input) {
        while !input.is_over() {
            subject.step(&mut input);
            subject.check();
        }
        subject.end();
    }
    assert!(world.held.borrow().is_empty(), "the device has not got everything back");
    assert!(host.is_empty(), "the host's memory has not all come back");
}

/// A configuration of a few classes, small ones as a rule.
pub(crate) fn config(input: &mut Input<'_>) -> BufferPoolConfig {
    let size = |input: &mut Input<'_>| {
        let exponent = if input.one_in(8) { input.byte() & 63 } else { input.byte() & 15 };
        NonZeroUsize::new(1_usize.checked_shl(u32::from(exponent)).unwrap_or(1)).expect("a power of two")
    };
    let limit = |input: &mut Input<'_>| {
        let limit = if input.one_in(16) { input.count() } else { u32::from(input.byte() & 31) };
        NonZeroU32::new(limit.max(1)).expect("not 0")
    };
    let mut config = BufferPoolConfig::for_network();
    let classes: Vec<_> =
        (0..1 + input.below(4)).map(|_| BufferPoolClassConfig::new(size(input), limit(input))).collect();
    config = config.try_with_size_classes(classes).unwrap_or(config.with_max_per_class(limit(input)));
    let more = input.byte();
    if more & 3 == 3 {
        config = config.with_pool_min_size(usize::from(input.byte()));
    }
    if more & 12 == 12 {
        config = config.with_alignment(size(input));
    }
    config = match more >> 4 & 3 {
        0 => config.with_thread_cache_disabled(),
        1 => config,
        _ => config.with_max_thread_cache_capacity(NonZeroUsize::MIN.saturating_add(usize::from(input.byte() & 15))),
    };
    config.with_parallelism(NonZeroUsize::MIN.saturating_add(usize::from(more >> 6)))
}
