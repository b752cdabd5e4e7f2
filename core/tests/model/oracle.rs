//! What must be true, kept in the plainest way: per page a sorted map of live ranges. Free ranges are what is between.

use slicepool_core::{Error, Request};
use std::collections::BTreeMap;

/// What one step of a test comes to: a failure is a sentence.
pub(crate) type Checked<T = ()> = Result<T, String>;

/// Fails the step with a message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

/// A range that is live, or was until it was freed and waits for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    /// Whether it is to be overwritten before it is free.
    pub(crate) scrub: bool,
    pub(crate) pending: bool,
}

impl Live {
    pub(crate) fn new(id: u64, size: u64, requested: u64) -> Self {
        Self { id, size, requested, scrub: false, pending: false }
    }
}

/// How stale a page is when it is new, and when it has to go.
const STALE_AT_FIRST: u8 = 4;
pub(crate) const STALE: u8 = 5;

/// A page: what lies in it by offset, and what is known of its past.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) size: u64,
    pub(crate) live: BTreeMap<u64, Live>,
    /// Its place among the pages of its pool.
    pub(crate) index: u32,
    /// Counts pages in the order in which they came.
    pub(crate) serial: u64,
    /// When it became idle, if it is.
    pub(crate) idle_since: u64,
    pub(crate) staleness: u8,
    /// The check of its pool that found an idle page too old.
    pub(crate) expired_at: Option<u64>,
}

impl Page {
    pub(crate) fn new(size: u64, index: u32, serial: u64) -> Self {
        Self { size, live: BTreeMap::new(), index, serial, idle_since: 0, staleness: STALE_AT_FIRST, expired_at: None }
    }
}

/// A range as the subject shows it. `requested` is `None` where the subject does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shown {
    pub(crate) page: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) id: Option<u64>,
    pub(crate) pending: bool,
    pub(crate) requested: Option<u64>,
}

/// Figures derived from the ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) in_use: u64,
    pub(crate) padding: u64,
    pub(crate) pending: u64,
    pub(crate) free: u64,
    pub(crate) free_ranges: u32,
    pub(crate) slices: u32,
    pub(crate) slices_pending: u32,
    pub(crate) largest: u64,
    pub(crate) pages: u32,
    pub(crate) pages_idle: u32,
}

/// The ranges of all pages of a pool, or of a space.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    pub(crate) granule: u64,
    /// Whether every slice fills a page.
    whole_pages: bool,
    pub(crate) pages: BTreeMap<u64, Page>,
    pub(crate) in_use: u64,
    pub(crate) in_use_peak: u64,
    pub(crate) largest_allocation: u64,
}

impl Books {
    pub(crate) fn new(granule: u64, whole_pages: bool) -> Self {
        Self { granule, whole_pages, pages: BTreeMap::new(), in_use: 0, in_use_peak: 0, largest_allocation: 0 }
    }

    pub(crate) fn add_page(&mut self, handle: u64, page: Page) -> Checked {
        ensure!(self.pages.insert(handle, page).is_none(), "page {handle} is there twice");
        Ok(())
    }

    /// `size` rounded up to the granule.
    pub(crate) fn rounded(&self, size: u64) -> u128 {
        u128::from(size).next_multiple_of(u128::from(self.granule))
    }

    /// Bytes that a slice of `size` bytes takes in a page of `page` bytes.
    pub(crate) fn taken(&self, size: u64, page: u64) -> u128 {
        if self.whole_pages { u128::from(page) } else { self.rounded(size) }
    }

    /// Pages that hold nothing.
    pub(crate) fn idle(&self) -> impl Iterator<Item = (u64, &Page)> {
        self.pages.iter().filter(|(_, page)| page.live.is_empty()).map(|(&handle, page)| (handle, page))
    }

    /// Every free range: page, offset, size.
    pub(crate) fn free_ranges(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.pages.iter().flat_map(|(&handle, page)| {
            let ends = page.live.iter().map(|(&offset, live)| (offset, offset + live.size));
            let mut at = 0;
            ends.chain([(page.size, page.size)]).filter_map(move |(start, end)| {
                let free = (handle, at, start - at);
                at = end;
                (free.2 != 0).then_some(free)
            })
        })
    }

    /// Whether any free range holds a slice of `size` bytes at that alignment.
    pub(crate) fn fits(&self, size: u64, alignment: u64) -> bool {
        let request = Request::new(size).aligned(alignment);
        self.free_ranges().any(|(_, offset, free)| self.fits_in(offset, free, &request))
    }

    /// Whether a free range holds a slice.
    pub(crate) fn fits_in(&self, offset: u64, free: u64, request: &Request) -> bool {
        let start = u128::from(offset).next_multiple_of(u128::from(request.alignment.max(self.granule)));
        start + self.rounded(request.size) <= u128::from(offset) + u128::from(free)
    }

    pub(crate) fn largest_free(&self) -> u64 {
        self.free_ranges().map(|(_, _, size)| size).max().unwrap_or(0)
    }

    /// Enters a slice that the subject says it has placed.
    pub(crate) fn place(&mut self, handle: u64, offset: u64, slice: Live, alignment: u64) -> Checked {
        ensure!(
            offset % self.granule == 0 && offset % alignment == 0,
            "offset {offset} is not a multiple of {alignment}"
        );
        let Some(page) = self.pages.get(&handle) else { return Err(format!("there is no page {handle}")) };
        let expected = self.taken(slice.requested, page.size);
        ensure!(u128::from(slice.size) == expected, "a slice has {} bytes instead of {expected}", slice.size);
        let inside = offset.checked_add(slice.size).is_some_and(|end| end <= page.size);
        ensure!(inside, "offset {offset} + {} is outside of the page", slice.size);
        let before = page.live.range(..offset + slice.size).next_back();
        if let Some((start, other)) = before {
            ensure!(start + other.size <= offset, "{slice:?} at {offset} overlaps {other:?} at {start}");
        }
        if let Some(page) = self.pages.get_mut(&handle) {
            page.live.insert(offset, slice);
        }
        self.in_use += slice.requested;
        self.note(slice.requested);
        Ok(())
    }

    /// Takes a slice out; its page becomes idle `now` if it was the last.
    pub(crate) fn remove(&mut self, handle: u64, offset: u64, now: u64) {
        let page = self.pages.get_mut(&handle).expect("the oracle knows the page");
        let live = page.live.remove(&offset).expect("the oracle knows the slice");
        if page.live.is_empty() {
            page.idle_since = now;
        }
        self.in_use -= if live.pending { 0 } else { live.requested };
    }

    pub(crate) fn slice(&mut self, handle: u64, offset: u64) -> &mut Live {
        let page = self.pages.get_mut(&handle).expect("the oracle knows the page");
        page.live.get_mut(&offset).expect("the oracle knows the slice")
    }

    /// A slice is freed, but its memory is not free yet.
    pub(crate) fn wait(&mut self, handle: u64, offset: u64) {
        let slice = self.slice(handle, offset);
        slice.pending = true;
        self.in_use -= slice.requested;
    }

    /// Slices that are live or pending, and the bytes that they take.
    pub(crate) fn used_bytes(&self) -> (usize, u64) {
        let slices = self.pages.values().flat_map(|page| page.live.values());
        slices.fold((0, 0), |(count, bytes), slice| (count + 1, bytes + slice.size))
    }

    /// Bytes of slices that are freed but not free.
    pub(crate) fn pending_bytes(&self) -> u64 {
        let slices = self.pages.values().flat_map(|page| page.live.values());
        slices.filter(|slice| slice.pending).map(|slice| slice.size).sum()
    }

    /// Bytes a slice could have where it lies.
    pub(crate) fn available(&self, handle: u64, offset: u64) -> u64 {
        let page = &self.pages[&handle];
        let next = page.live.range(offset + 1..).next().map_or(page.size, |(&start, _)| start);
        next - offset
    }

    pub(crate) fn resize(&mut self, handle: u64, offset: u64, requested: u64) {
        let size = self.taken(requested, self.pages[&handle].size) as u64;
        let live = self.slice(handle, offset);
        let before = live.requested;
        (live.size, live.requested) = (size, requested);
        self.in_use = self.in_use - before + requested;
        self.note(requested);
    }

    fn note(&mut self, requested: u64) {
        self.in_use_peak = self.in_use_peak.max(self.in_use);
        self.largest_allocation = self.largest_allocation.max(requested);
    }

    /// The page that has been idle the longest.
    pub(crate) fn oldest_idle(&self) -> Option<(u64, &Page)> {
        self.idle().min_by_key(|(_, page)| page.idle_since)
    }

    /// What the subject shows must be exactly the live ranges and the gaps between them, so every page is tiled, and
    /// no two free ranges are neighbours.
    pub(crate) fn compare(&self, shown: &mut [Shown]) -> Checked<Figures> {
        shown.sort_unstable();
        let mut figures = Figures::default();
        let mut next = shown.iter();
        let mut expect = |expected: Shown| {
            let found = next.next().copied();
            let same = found.is_some_and(|found| {
                Shown { requested: None, ..found } == Shown { requested: None, ..expected }
                    && (found.requested.is_none() || found.requested == expected.requested)
            });
            ensure!(same, "the walk shows {found:?} where {expected:?} is");
            Ok(())
        };
        for (&handle, page) in &self.pages {
            figures.pages += 1;
            figures.pages_idle += u32::from(page.live.is_empty());
            let mut at = 0;
            let end = Live::new(0, 0, 0);
            for (&offset, live) in page.live.iter().chain([(&page.size, &end)]) {
                if offset != at {
                    let free = offset - at;
                    let (id, pending, requested) = (None, false, Some(0));
                    expect(Shown { page: handle, offset: at, size: free, id, pending, requested })?;
                    figures.free += free;
                    figures.free_ranges += 1;
                    figures.largest = figures.largest.max(free);
                }
                let Live { size, pending, .. } = *live;
                if pending {
                    let (id, requested) = (None, Some(0));
                    expect(Shown { page: handle, offset, size, id, pending, requested })?;
                    figures.pending += size;
                    figures.slices_pending += 1;
                } else if size != 0 {
                    let (id, requested) = (Some(live.id), Some(live.requested));
                    expect(Shown { page: handle, offset, size, id, pending, requested })?;
                    figures.in_use += live.requested;
                    figures.padding += live.size - live.requested;
                    figures.slices += 1;
                }
                at = offset + live.size;
            }
        }
        let extra = next.next();
        ensure!(extra.is_none(), "the walk shows {extra:?}, which is not there");
        Ok(figures)
    }
}

/// Whether a bound on the largest free range is one, and says whether there is any at all.
pub(crate) fn check_bound(bound: u64, exact: u64) -> Checked {
    let says_whether_any = (bound == 0) == (exact == 0);
    ensure!(bound <= exact && says_whether_any, "{bound} is no bound on the largest free range, {exact}");
    Ok(())
}

/// Whether an error is the expected one; `largest_free` in it is a bound on `exact`.
pub(crate) fn check_error(found: Error, expected: Error, exact: u64) -> Checked {
    let mut comparable = found;
    if let (
        Error::PoolCapacityExceeded { largest_free: bound, .. },
        Error::PoolCapacityExceeded { largest_free: expected, .. },
    ) = (&mut comparable, expected)
    {
        check_bound(*bound, exact)?;
        *bound = expected;
    }
    ensure!(comparable == expected, "the error is {found:?} instead of {expected:?}");
    Ok(())
}
