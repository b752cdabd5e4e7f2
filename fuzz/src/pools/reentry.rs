//! What callbacks do with the allocator that called them.

use super::subject::{MOST_SLICES, Reentry, Subject};
use slicepool_core::{Error, LiveSlices, Point, Request};

impl Reentry for Subject {
    fn call_back(&self, action: u8) {
        let allocator = self.allocator();
        match action {
            1 | 2 => {
                let measure = self.measures.borrow()[0];
                self.allocate_inside(&Request::new(measure.granule.saturating_mul(u64::from(action) * 3 - 2)));
            }
            3 => self.allocate_inside(&Request::new(100).never_growing()),
            4 | 5 => self.free_inside(usize::from(action), &[]),
            6 => {
                let progress = self.world.state.borrow().progress.get(&0).copied().unwrap_or(0);
                self.free_inside(0, &[Point::new(0, progress.saturating_add(1))]);
            }
            7 => {
                let progress = self.world.state.borrow().progress.get(&0).copied().unwrap_or(0);
                let _ = self.collect(0, progress);
            }
            8 => {
                let _ = allocator.trim(0);
            }
            9 => {
                let _ = allocator.cleanup();
            }
            10 => {
                let refused = allocator.close(LiveSlices::Free);
                assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?} from within a callback");
            }
            11 => {
                let refused = allocator.can_destroy(LiveSlices::Free);
                assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?} from within a callback");
            }
            12 => assert_eq!(allocator.check(), Ok(()), "from within a callback"),
            13 => self.allocate_inside(&Request::new(1 << 12).dedicated()),
            14 => {
                let told = allocator.statistics();
                assert!(told.pages >= told.pages_idle, "{told:?}");
            }
            _ => {
                let _ = self.live(0).map(|id| allocator.map(id).and_then(|_| allocator.unmap(id)));
            }
        }
    }
}

impl Subject {
    fn allocate_inside(&self, request: &Request) {
        if self.world.state.borrow().live.len() < MOST_SLICES {
            if let Ok(slice) = self.allocator().allocate(request) {
                self.add(slice, request);
            }
        }
    }

    fn free_inside(&self, index: usize, points: &[Point]) {
        if let Some(id) = self.live(index) {
            let _ = self.free_with(&[id], points, || self.allocator().free_after(id, points));
        }
    }
}
