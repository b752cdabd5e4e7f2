//! Allocators whose devices say how far they are, and fill memory.

use crate::device::Naming;
use crate::shapes::{Shape, direct, exclusive, growing, pool, shape};

pub(crate) const WAITING: &[Shape] = &[
    shape(&[pool(1024, 1024, None, 32)], 256, Naming::Handle).fills(),
    shape(&[pool(1024, 1024, Some(8192), 32)], 256, Naming::Handle).tells(),
    shape(&[exclusive(5_000, 64)], 512, Naming::Address).of(20_000).tells().fills(),
    shape(&[direct(None, 64)], 64, Naming::Mapping).of(30_000).tells().fills(),
    shape(&[direct(Some(5_000), 32).ages(15, 0)], 64, Naming::Handle).fills(),
    shape(&[growing(1024, 1 << 14, None, 32)], 256, Naming::Address).of(40_000).tells().fills(),
    shape(&[pool(512, 300, None, 1).ages(20, 0), growing(4096, 1 << 20, None, 64)], 64, Naming::Handle).fills(),
    shape(&[exclusive(0, 1), exclusive(2_000, 8).ages(10, 5_000), direct(None, 64)], 256, Naming::Address)
        .at_most(Some(50_000), Some(20))
        .tells()
        .fills(),
    shape(
        &[growing(512, 8192, Some(40_000), 32).ages(15, 0), exclusive(1 << 16, 64), pool(1 << 17, 1 << 17, None, 64)],
        128,
        Naming::Address,
    )
    .of(600_000)
    .tells()
    .fills(),
    // Pages that no machine has.
    shape(&[exclusive(u64::MAX, 1 << 32), direct(Some(1 << 63), 1 << 32)], 1, Naming::Handle).of(u64::MAX).fills(),
    shape(&[pool((1 << 32) - 1, (1 << 32) - 1, Some(1 << 34), 1)], 1 << 33, Naming::Address).tells().fills(),
];
