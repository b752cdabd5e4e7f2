//! Where slices lie: a subject whose slices overlap is fast for nothing.

use crate::GRANULE;
use crate::churn::Churn;
use crate::subjects::Subject;
use std::collections::BTreeMap;

/// Where a slice lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which page.
    pub page: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
    /// Bytes that may be used.
    pub bytes: u64,
}

/// A subject that says where its slices lie.
pub trait Placed: Subject {
    /// Every slice begins at a multiple of this.
    const ALIGNMENT: u64 = GRANULE;
    /// Where a live slice lies, for which so many bytes were asked.
    fn place(&self, handle: &Self::Handle, asked: u64) -> Place;
    /// Bytes of a page, or none if it is not held.
    fn page_bytes(&self, page: u64) -> Option<u64>;
}

/// Slices that are live in [`check`], and how often one of them is replaced.
const LIVE: usize = 1_000;
const PAIRS: usize = 4_000;

/// Bytes of live slices, by page and offset.
type Places = BTreeMap<(u64, u64), u64>;

/// Churns, and looks at every slice: it lies in a page that is held, is large enough, aligned, and apart from all others.
///
/// # Panics
/// If one does not.
pub fn check<S: Placed>(seed: u64) {
    let churn = Churn::new(seed, LIVE, PAIRS);
    let mut subject = S::new(churn.peak() * 3 / 2 / GRANULE * GRANULE, LIVE);
    let mut places = Places::new();
    let take = |subject: &mut S, places: &mut Places, size| {
        let handle = subject.allocate(size).unwrap_or_else(|| panic!("{}, seed {seed}: there is room", S::NAME));
        let place = subject.place(&handle, size);
        let wrong = wrong_with(&place, size, S::ALIGNMENT, subject.page_bytes(place.page), places);
        assert!(wrong.is_none(), "{}, seed {seed}: {size} bytes at {place:?}: {}", S::NAME, wrong.unwrap_or_default());
        places.insert((place.page, place.offset), place.bytes);
        (handle, size)
    };
    let mut live: Vec<_> = churn.fill.iter().map(|&size| Some(take(&mut subject, &mut places, size))).collect();
    for &(victim, size) in &churn.pairs {
        let slice = live[victim as usize].take().expect("live");
        give_back(&mut subject, &mut places, slice);
        live[victim as usize] = Some(take(&mut subject, &mut places, size));
    }
    for slice in live.into_iter().flatten() {
        give_back(&mut subject, &mut places, slice);
    }
    assert!(places.is_empty(), "{}, seed {seed}: slices moved while they were live", S::NAME);
}

/// Frees a slice, which lies where it lay when it was new.
fn give_back<S: Placed>(subject: &mut S, places: &mut Places, (handle, asked): (S::Handle, u64)) {
    let place = subject.place(&handle, asked);
    places.remove(&(place.page, place.offset));
    subject.free(handle);
}

/// What is wrong with a new slice beside those that are live.
fn wrong_with(place: &Place, size: u64, alignment: u64, page: Option<u64>, live: &Places) -> Option<&'static str> {
    let end = place.offset + place.bytes;
    let before = live.range(..=(place.page, place.offset)).next_back().filter(|((page, _), _)| *page == place.page);
    let behind = live.range((place.page, place.offset)..).next().filter(|((page, _), _)| *page == place.page);
    let faults = [
        (place.bytes < size, "too small"),
        (!place.offset.is_multiple_of(alignment), "not aligned"),
        (page.is_none_or(|bytes| end > bytes), "not in a page that is held"),
        (before.is_some_and(|((_, offset), bytes)| offset + bytes > place.offset), "overlaps the one before"),
        (behind.is_some_and(|((_, offset), _)| *offset < end), "overlaps the one behind"),
    ];
    faults.into_iter().find(|(found, _)| *found).map(|(_, what)| what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::best_fit::BestFit;

    #[test]
    fn a_sound_subject_passes() {
        check::<BestFit>(1);
    }

    #[test]
    fn every_fault_of_a_place_is_noticed() {
        let live = Places::from([((1, 512), 256), ((1, 1024), 256)]);
        let wrong = |page, offset, bytes| wrong_with(&Place { page, offset, bytes }, 256, 256, Some(4096), &live);
        assert_eq!(wrong(1, 768, 256), None);
        assert_eq!(wrong(2, 512, 256), None);
        assert_eq!(wrong(1, 768, 128), Some("too small"));
        assert_eq!(wrong(1, 800, 256), Some("not aligned"));
        assert_eq!(wrong(1, 4096, 256), Some("not in a page that is held"));
        assert_eq!(wrong(1, 512, 256), Some("overlaps the one before"));
        assert_eq!(wrong(1, 768, 512), Some("overlaps the one behind"));
        let place = Place { page: 3, offset: 0, bytes: 256 };
        assert_eq!(wrong_with(&place, 256, 256, None, &live), Some("not in a page that is held"));
    }

    /// Hands out the same bytes again while they are in use.
    struct Forgetful(BestFit);

    impl Subject for Forgetful {
        type Handle = u64;
        const NAME: &'static str = "forgetful";

        fn new(bytes: u64, live: usize) -> Self {
            Self(BestFit::new(bytes, live))
        }

        fn allocate(&mut self, bytes: u64) -> Option<u64> {
            let offset = self.0.allocate(bytes)?;
            self.0.free(offset);
            Some(offset)
        }

        fn free(&mut self, _: u64) {}
    }

    impl Placed for Forgetful {
        fn place(&self, &offset: &u64, _: u64) -> Place {
            Place { page: 0, offset, bytes: 1 << 20 }
        }

        fn page_bytes(&self, _: u64) -> Option<u64> {
            Some(u64::MAX)
        }
    }

    #[test]
    #[should_panic(expected = "overlaps")]
    fn a_subject_whose_slices_overlap_does_not_pass() {
        check::<Forgetful>(1);
    }
}
