//! Allocators that are soon short of something: of the device's memory, or of what they may hold.

use crate::device::Naming;
use crate::shapes::{Shape, direct, exclusive, growing, pool, shape};

pub(crate) const SCARCE: &[Shape] = &[
    // So many bytes.
    shape(&[pool(1024, 1024, None, 32)], 256, Naming::Handle).at_most(Some(5_000), None),
    shape(&[growing(1024, 1 << 14, None, 32)], 256, Naming::Address).at_most(Some(20_000), None),
    shape(&[exclusive(5_000, 64)], 512, Naming::Mapping).at_most(Some(20_000), None),
    shape(&[direct(None, 64)], 64, Naming::Handle).at_most(Some(10_000), None),
    // So many pages.
    shape(&[pool(1024, 1024, None, 32)], 256, Naming::Handle).at_most(None, Some(3)),
    shape(&[growing(512, 1 << 14, None, 1)], 64, Naming::Handle).at_most(None, Some(5)),
    shape(&[direct(Some(8_000), 32)], 256, Naming::Address).at_most(None, Some(10)),
    // Both, and either shared by pools.
    shape(&[growing(1024, 1 << 14, Some(30_000), 64), exclusive(20_000, 256), direct(None, 32)], 512, Naming::Address)
        .at_most(Some(70_001), Some(8)),
    shape(&[exclusive(2_000, 32).ages(15, 4_000), pool(4096, 2048, None, 32).ages(25, 0)], 64, Naming::Handle)
        .at_most(Some(30_000), Some(12)),
    shape(&[pool(512, 512, Some(2048), 32), direct(None, 32)], 64, Naming::Address).at_most(Some(4096), None).of(9_000),
    // What others hold counts too.
    shape(&[pool(1024, 1024, None, 32)], 256, Naming::Handle).shares(20_000, 50),
    shape(&[growing(1024, 1 << 14, None, 32), direct(None, 64)], 64, Naming::Address).shares(60_000, 15).fills(),
    shape(&[exclusive(5_000, 64), pool(512, 300, Some(2048), 32).ages(20, 0)], 512, Naming::Mapping)
        .shares(30_000, 12)
        .at_most(Some(25_000), Some(10)),
    shape(&[direct(Some(8_000), 32)], 256, Naming::Address).of(30_000).shares(20_000, 1000).tells(),
    // Nothing at all.
    shape(&[pool(1024, 1024, None, 32), direct(None, 32)], 64, Naming::Address).at_most(Some(0), None),
    shape(&[growing(1024, 1 << 14, None, 32)], 64, Naming::Address).at_most(None, Some(0)),
    // Pages that are halved, down to a MiB or to the request.
    shape(&[growing(4 << 20, 64 << 20, None, 256)], 4096, Naming::Handle).of(30 << 20),
    shape(&[growing(3 << 20, 1 << 30, None, 1 << 16)], 4096, Naming::Address).of((100 << 20) + 4097),
    shape(&[growing(16 << 20, 1 << 30, Some(300 << 20), 4096).ages(40, 0)], 4096, Naming::Mapping).of(5 << 20),
    shape(&[growing(8 << 20, 1 << 30, None, 1 << 21), direct(None, 1 << 20)], 4096, Naming::Handle).of(80 << 20),
    shape(&[growing(5 << 20, 1 << 24, None, 64)], 64, Naming::Address).of(50 << 20).at_most(Some(40 << 20), None),
];
