//! The rules of sliced pages, equal ones and ones that grow, and what is known of where their slices go.

use crate::oracle::{Books, Checked, Page, ensure};
use crate::shapes::KindShape;
use slicepool_core::{Error, NearPage, Request, Slice};

/// Free ranges that are looked at before a page is taken from the device.
const LOOKED_AT: usize = 64;

/// The effective configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sliced {
    pub(crate) granule: u64,
    /// Bytes of a page, or of the smallest.
    pub(crate) page: u64,
    pub(crate) cap: Option<u64>,
    pub(crate) max_slice: u64,
    takes_near_page: bool,
    pub(crate) growth: Option<Growth>,
}

/// How pages grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// Bytes that a page has at most, unless its request is larger.
    most: u64,
    /// Bytes of the largest page there can be.
    limit: u64,
}

impl Sliced {
    pub(crate) fn new(kind: &KindShape, granule: u64, limit: u64) -> Self {
        let &KindShape::Sliced { page_size, max_slice_size, cap, near_page, max_page_size } = kind else {
            unreachable!("of another kind")
        };
        let down = |bytes: u64| bytes / granule * granule;
        let page = page_size.next_multiple_of(granule).min(down(cap.unwrap_or(u64::MAX)));
        let growth = max_page_size.map(|most| Growth {
            most: down(most).min(limit).max(page),
            limit: limit.min(down(cap.unwrap_or(u64::MAX))),
        });
        let largest = match growth {
            // A pool without room for a single page keeps its limit, so that requests get the right error.
            _ if page == 0 => page_size.next_multiple_of(granule),
            Some(growth) => growth.limit,
            None => page,
        };
        let cap = cap.map(|cap| match growth {
            Some(_) => down(cap),
            None => cap.checked_div(page).unwrap_or(0) * page,
        });
        let takes_near_page = match near_page {
            NearPage::WhenUncapped => cap.is_none(),
            NearPage::Always => true,
            NearPage::Never => false,
        };
        Self { granule, page, cap, max_slice: max_slice_size.min(largest), takes_near_page, growth }
    }

    pub(crate) fn refusal(&self, size: u64) -> Option<Error> {
        let nearly_a_page = size <= self.page && u128::from(self.page - size) * 5 < u128::from(self.page);
        if size == 0 {
            Some(Error::InvalidArgument { field: c"size", value: 0 })
        } else if size <= self.max_slice || (self.takes_near_page && nearly_a_page) {
            None
        } else {
            // The largest request below this one that it takes.
            let near = if self.takes_near_page && size > self.page { self.page } else { 0 };
            Some(Error::TooLarge { size, limit: self.max_slice.max(near) })
        }
    }

    /// Bytes of the next page, `None` if the cap has no room for one that holds the request.
    pub(crate) fn next_page(&self, size: u64, reserved: u128) -> Option<u64> {
        let room = u128::from(self.cap.unwrap_or(u64::MAX)).checked_sub(reserved)?;
        let size = u128::from(size).next_multiple_of(u128::from(self.granule));
        let page = match &self.growth {
            Some(growth) => self.grown_page(growth, size, reserved).min(room),
            None => u128::from(self.page),
        };
        (page != 0 && size <= page && page <= room).then_some(page as u64)
    }

    /// Bytes of the next page if there were no cap.
    pub(crate) fn usual_page(&self, size: u64, reserved: u128) -> u64 {
        let size = u128::from(size).next_multiple_of(u128::from(self.granule));
        self.growth.as_ref().map_or(self.page, |growth| self.grown_page(growth, size, reserved) as u64)
    }

    /// The rule by which pages grow: as many slices as an eighth of what there is would hold, which is bent to a
    /// sixty-fourth from sixteen of the smallest pages on; but one alone from four of the smallest pages on.
    fn grown_page(&self, growth: &Growth, size: u128, reserved: u128) -> u128 {
        let (least, most) = (u128::from(self.page), u128::from(growth.most));
        let usual = (reserved / 8).min(16 * least).max(reserved / 64).clamp(least, most);
        let slices = if size >= 4 * least { 1 } else { (usual / size).max(1) };
        let step = (least / 16 / u128::from(self.granule)).max(1) * u128::from(self.granule);
        let bound = if size <= most { most } else { u128::from(growth.limit) };
        (slices * size).next_multiple_of(step).min(bound).max(least)
    }

    /// Granules of a range that a search in constant time finds for so many: those of the next size class.
    fn sure(&self, granules: u128) -> u128 {
        if granules < 64 { granules } else { granules + granules / 32 + 1 }
    }

    fn granules(&self, bytes: u64) -> u128 {
        u128::from(bytes).div_ceil(u128::from(self.granule))
    }

    fn finds_at_once(&self, free: u64, idle: bool, request: &Request) -> bool {
        let (free, size) = (u128::from(free) / u128::from(self.granule), self.granules(request.size));
        let align = self.granules(request.alignment).max(1);
        if idle || align == 1 { free >= self.sure(size) } else { free > (size + align - 1) * 33 / 32 }
    }

    /// Whether memory that is held serves a request in constant time for sure.
    pub(crate) fn serves_at_once(&self, books: &Books, request: &Request) -> bool {
        // Equal pages hold every request that the pool takes.
        (self.growth.is_none() && books.idle().next().is_some())
            || books.free_ranges().any(|(page, _, free)| {
                let idle = books.pages[&page].live.is_empty();
                self.finds_at_once(free, idle, request)
            })
    }

    /// Whether so many ranges nearly hold the request that one which does may be found after the device has been asked.
    pub(crate) fn may_miss_a_fit(&self, books: &Books, request: &Request) -> bool {
        let least = self.granules(request.size) * 31 / 32;
        let misfits = books.free_ranges().filter(|&(_, offset, free)| {
            u128::from(free / self.granule) >= least && !books.fits_in(offset, free, request)
        });
        misfits.count() >= LOOKED_AT
    }

    /// Whether it was right to cut a slice from a page that held nothing.
    pub(crate) fn check_idle_page(&self, books: &Books, chosen: &Page, request: &Request, slice: &Slice) -> Checked {
        let busy = books.free_ranges().filter(|(page, ..)| !books.pages[page].live.is_empty());
        for (page, _, free) in busy {
            let better = self.finds_at_once(free, false, request);
            ensure!(!better, "{slice:?} is in an idle page though page {page} has {free} bytes in one piece");
        }
        for (page, other) in books.idle() {
            let better = match self.growth {
                None => other.index < chosen.index,
                // Of another size class altogether.
                Some(_) => self.finds_at_once(other.size, true, request) && other.size + other.size / 32 < chosen.size,
            };
            ensure!(!better, "{slice:?} is not in the idle page {page}: {other:?}");
        }
        Ok(())
    }
}
