//! Peers that take their memory from a device, and one that keeps its books in the memory itself.

#[cfg(feature = "heavy")]
pub mod cubecl;
mod gpu_alloc;
mod gpu_allocator;
mod in_band;
mod mock;
mod vma_pool;

pub use gpu_alloc::{Buddy, FreeList};
pub use gpu_allocator::GpuAllocator;
pub use in_band::InBand;
pub use mock::{Memory, Vulkan};
pub use vma_pool::VmaPool;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::check;
    use crate::subjects::{OffsetAllocator, Pool, Subject, UnlockedPool, VirtualBlock};
    use slicepool_core::Space;

    #[test]
    fn live_slices_of_no_subject_overlap() {
        for seed in 1..=3 {
            check::<Pool>(seed);
            check::<UnlockedPool>(seed);
            check::<Space>(seed);
            check::<OffsetAllocator>(seed);
            check::<VirtualBlock>(seed);
            check::<VmaPool>(seed);
            check::<InBand>(seed);
            check::<Buddy>(seed);
            check::<FreeList>(seed);
            check::<GpuAllocator>(seed);
        }
    }

    #[cfg(feature = "heavy")]
    #[test]
    fn live_slices_of_no_heavy_subject_overlap() {
        for seed in 1..=3 {
            check::<cubecl::Cubecl<cubecl::Sliced>>(seed);
            check::<cubecl::Cubecl<cubecl::Direct>>(seed);
        }
    }

    #[test]
    fn what_peers_take_from_the_device_they_give_back() {
        let memory = Memory::default();
        let page = memory.take(100);
        assert_eq!((memory.page_bytes(page), memory.calls()), (Some(100), 1));
        memory.give_back(page);
        assert_eq!((memory.page_bytes(page), memory.calls()), (None, 2));
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn a_page_cannot_be_given_back_twice() {
        let memory = Memory::default();
        let page = memory.take(100);
        memory.give_back(page);
        memory.give_back(page);
    }

    #[test]
    fn a_pool_of_one_block_takes_one_page() {
        let mut pool = VmaPool::new(1 << 20, 2);
        let calls = pool.device().calls();
        let slices: Vec<_> = (0..2).map(|_| pool.allocate(1 << 18).expect("there is room")).collect();
        assert_eq!(pool.device().calls() - calls, 1);
        slices.into_iter().for_each(|slice| pool.free(slice));
        assert!(pool.allocate(2 << 20).is_none(), "a second block is not allowed");
    }
}
