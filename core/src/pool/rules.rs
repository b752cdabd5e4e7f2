//! What never changes about a pool: its effective configuration, and how a request looks in its unit.
#![forbid(unsafe_code)]

use super::direct::Direct;
use super::exclusive::Exclusive;
use super::sliced::{Growth, Sliced};
use super::{NearPage, PageGrowth, PoolKinds, PoolOptions, PoolType};
use crate::allocator::Debugging;
use crate::canary::broken;
use crate::device::MemoryType;
use crate::error::Error;
use crate::int::{align_down, align_up, granules_up, mask};
use crate::ledger::Origin;
use crate::parts::{COMPLETE, need_complete, part};
use crate::slice::{Request, ResourceKind};
use crate::slicer::PageKind;

/// A request in a pool's own unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// Granules, at least 1.
    pub(crate) size: u32,
    /// Alignment in granules, less one.
    pub(crate) align_mask: u32,
    /// Bytes asked for.
    pub(crate) requested: u64,
}

/// The rules of a pool's kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Sliced(Sliced),
    Exclusive(Exclusive),
    Direct(Direct),
}

/// What never changes about a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    // What every request is held against comes first, in a form that needs no look at the kind.
    /// The pool takes `accepted.count` sizes from `accepted.first` on, and as many of `near_page`.
    accepted: Sizes,
    near_page: Sizes,
    /// The same of optimal resources.
    optimal: Sizes,
    near_optimal: Sizes,
    /// Alignment of pages, and the largest of requests.
    pub(crate) page_alignment: u64,
    /// Whether the mapping of a page says nothing of its alignment.
    pub(crate) mapped_anywhere: bool,
    pub(crate) granule_shift: u32,
    /// Granules behind each slice that are part of its range but not of its size.
    pub(crate) margin: u32,
    /// All ones if pages are cut: otherwise slices begin where their pages do, whatever their alignment.
    cut_mask: u32,
    pub(crate) kind: Kind,
    pub(crate) memory_type: u32,
    pub(crate) heap: u32,
    pub(crate) kinds: PoolKinds,
    pub(crate) min_pages: u32,
    /// Whether a page serves one request only.
    pub(crate) once: bool,
    pub(crate) dealloc_period: Option<u64>,
    pub(crate) keep_bytes: u64,
}

/// Sizes in bytes without a gap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    first: u64,
    count: u64,
}

impl Sizes {
    pub(crate) const NONE: Sizes = Sizes { first: 0, count: 0 };

    /// From `first` to `last`, which is not below it.
    pub(crate) fn new(first: u64, last: u64) -> Self {
        debug_assert!(first <= last && (first, last) != (0, u64::MAX));
        Self { first, count: last - first + 1 }
    }

    /// The largest of them, 0 if there are none.
    fn last(&self) -> u64 {
        self.first + self.count.saturating_sub(1)
    }

    /// Those that are at most `last`.
    fn up_to(self, last: Option<u64>) -> Self {
        match last {
            Some(last) if last >= self.first => {
                Self { count: self.count.min((last - self.first).saturating_add(1)), ..self }
            }
            _ => Self::NONE,
        }
    }

    #[inline(always)]
    pub(crate) fn contain(&self, size: u64) -> bool {
        size.wrapping_sub(self.first) < self.count
    }
}

impl Rules {
    /// The rules of `options`. Behind each slice `margin` bytes are left unused.
    #[cold]
    pub(crate) fn try_new(options: &PoolOptions, memory_type: &MemoryType, margin: u64) -> Result<Self, Error> {
        let refuse = |field, value| Err(Error::InvalidArgument { field, value });
        if !options.granule.is_power_of_two() || options.granule > 1 << 32 {
            return refuse(c"granule", options.granule);
        }
        if !memory_type.alignment.is_power_of_two() {
            return refuse(c"page_alignment", memory_type.alignment);
        }
        let cuts = matches!(options.pool_type, PoolType::SlicedPages { .. });
        let options = &options.with_granule_for(memory_type);
        let granule = options.granule;
        if options.min_pages != 0 && !cuts {
            return refuse(c"min_pages", u64::from(options.min_pages));
        }
        // The largest page that the device gives and the slicer can count.
        let limit = align_down(memory_type.max_page, granule).min(u64::from(u32::MAX).saturating_mul(granule));
        if limit == 0 {
            return refuse(c"max_page", memory_type.max_page);
        }
        if margin > Debugging::MAX_MARGIN || (margin != 0 && granule > Debugging::MAX_MARGIN) {
            return refuse(c"debug_margin", margin);
        }
        let margin = granules_up(margin, granule.trailing_zeros());
        let kind = match options.pool_type {
            PoolType::SlicedPages { page_size, max_slice_size, max_pool_size } => {
                Kind::Sliced(Sliced::try_new(options, page_size, max_slice_size, max_pool_size, limit)?)
            }
            PoolType::ExclusivePages { max_alloc_size } => {
                let max_alloc_size = max_alloc_size.min(limit);
                let page = align_up(max_alloc_size, granule).unwrap_or(limit).max(granule);
                let page = page.saturating_add(margin * granule).min(limit);
                Kind::Exclusive(Exclusive { max_alloc_size, largest: (page / granule) as u32, _part: part(c"kind")? })
            }
            PoolType::Direct { reclaim_at } => Kind::Direct(Direct { reclaim_at, limit, part: part(c"kind")? }),
        };
        let (mut accepted, mut near_page, largest) = match &kind {
            Kind::Sliced(sliced) => (sliced.accepted(), sliced.near_page(), sliced.largest_page()),
            Kind::Exclusive(exclusive) => (exclusive.accepted(), Sizes::NONE, u64::from(exclusive.largest) * granule),
            Kind::Direct(direct) => (Sizes::new(1, direct.limit), Sizes::NONE, direct.limit),
        };
        if COMPLETE {
            // A pool without room for a page takes requests so that they get the right error, and those are counted, too.
            let countable = u64::from(u32::MAX - margin as u32) * granule;
            let last = if largest == 0 { Some(countable) } else { largest.checked_sub(margin * granule) };
            (accepted, near_page) = (accepted.up_to(last), near_page.up_to(last));
        }
        let needs = options.kinds != PoolKinds::Both || options.dealloc_period.is_some() || options.min_pages != 0;
        if needs || margin != 0 || options.near_page == NearPage::Always {
            need_complete(c"pools")?;
        }
        let kinds = if cuts && !broken("kinds_share_pages") { options.kinds } else { PoolKinds::Both };
        let (mut optimal, mut near_optimal) = (accepted, near_page);
        match kinds {
            PoolKinds::Both => {}
            _ if !COMPLETE => {}
            PoolKinds::Linear => (optimal, near_optimal) = (Sizes::NONE, Sizes::NONE),
            PoolKinds::Optimal => (accepted, near_page) = (Sizes::NONE, Sizes::NONE),
        }
        Ok(Self {
            accepted,
            near_page,
            optimal,
            near_optimal,
            page_alignment: memory_type.alignment.max(granule),
            mapped_anywhere: memory_type.mapped_anywhere,
            granule_shift: granule.trailing_zeros(),
            margin: margin as u32,
            cut_mask: mask(matches!(kind, Kind::Sliced(_))),
            kind,
            memory_type: options.memory_type,
            heap: memory_type.heap,
            kinds,
            min_pages: options.min_pages,
            once: false,
            dealloc_period: options.dealloc_period,
            keep_bytes: options.keep_bytes,
        })
    }

    /// How the pool would serve a request for a linear resource whose alignment is a power of two; `None` if not.
    #[inline(always)]
    pub(crate) fn fit_usual(&self, size: u64, alignment: u64) -> Option<Fit> {
        let takes = self.accepted.contain(size) || self.near_page.contain(size);
        if takes && alignment <= self.page_alignment { Some(self.fit_accepted(size, alignment)) } else { None }
    }

    /// Whether and how the pool would serve a request for a linear resource that [`Request::check`] has passed.
    pub(crate) fn fit_linear(&self, request: &Request) -> Result<Fit, Error> {
        self.fit_usual(request.size, request.alignment).ok_or_else(|| self.refusal(request))
    }

    /// Whether and how the pool would serve a request that [`Request::check`] has passed.
    pub(crate) fn fit(&self, request: &Request) -> Result<Fit, Error> {
        if request.kind() == ResourceKind::Linear {
            return self.fit_linear(request);
        }
        let takes = self.optimal.contain(request.size) || self.near_optimal.contain(request.size);
        if takes && request.alignment <= self.page_alignment {
            Ok(self.fit_accepted(request.size, request.alignment))
        } else {
            Err(self.refusal(request))
        }
    }

    /// The same of the kind that the pool takes.
    #[cold]
    pub(crate) fn fit_any_kind(&self, request: &Request) -> Result<Fit, Error> {
        match self.kinds {
            PoolKinds::Optimal => self.fit(&request.of_kind(ResourceKind::Optimal)),
            PoolKinds::Both | PoolKinds::Linear => self.fit_linear(request),
        }
    }

    #[inline(always)]
    fn fit_accepted(&self, size: u64, alignment: u64) -> Fit {
        // Granules, rounded up; a size of 0 takes one all the same. Nothing overflows: sizes that are taken are countable,
        // and alignments are powers of two, of whose masks 32 bits are enough.
        let granules = (size.saturating_sub(1) >> self.granule_shift) as u32 + 1 + self.margin;
        let align_mask = ((alignment - 1) >> self.granule_shift) as u32;
        Fit { size: granules, align_mask: align_mask & self.cut_mask, requested: size }
    }

    /// Why the pool does not take a request.
    #[cold]
    fn refusal(&self, request: &Request) -> Error {
        let size = request.size;
        let (accepted, near_page, other) = match request.kind() {
            ResourceKind::Linear => (self.accepted, self.near_page, PoolKinds::Optimal),
            ResourceKind::Optimal => (self.optimal, self.near_optimal, PoolKinds::Linear),
        };
        if accepted.contain(size) || near_page.contain(size) {
            return Error::InvalidArgument { field: c"alignment", value: request.alignment };
        }
        if size == 0 {
            return Error::InvalidArgument { field: c"size", value: 0 };
        }
        if COMPLETE && self.kinds == other {
            return Error::NotSupported { what: c"kind" };
        }
        let near_page = if size > near_page.last() { near_page.last() } else { 0 };
        Error::TooLarge { size, limit: accepted.last().max(near_page) }
    }

    /// Bytes behind each slice that belong to nobody.
    pub(crate) fn margin_bytes(&self) -> u64 {
        self.bytes(self.margin)
    }

    pub(crate) fn bytes(&self, granules: u32) -> u64 {
        u64::from(granules) << self.granule_shift
    }

    pub(crate) fn granule(&self) -> u64 {
        1 << self.granule_shift
    }

    /// Bytes of the next page, which is for `fit`, when the pool holds `reserved` bytes, and those that double with their
    /// number `blocks` pages; `None` at the cap.
    pub(crate) fn next_page(&self, fit: &Fit, reserved: u64, blocks: u32) -> Option<u64> {
        match &self.kind {
            Kind::Sliced(sliced) => sliced.next_page(self.bytes(fit.size), reserved, blocks),
            Kind::Exclusive(exclusive) => Some(self.bytes(exclusive.page_for(fit.size))),
            Kind::Direct(_) => Some(self.bytes(fit.size)),
        }
    }

    /// The most granules a free range can have, as far as the slicer's bins have to know.
    pub(crate) fn largest_range(&self) -> u32 {
        match &self.kind {
            Kind::Sliced(sliced) => (sliced.largest_page() >> self.granule_shift) as u32,
            Kind::Exclusive(exclusive) => exclusive.largest,
            // An index of its own finds these.
            Kind::Direct(_) => 0,
        }
    }

    /// Whether pages are cut: otherwise each holds one slice.
    #[inline(always)]
    pub(crate) fn cuts(&self) -> bool {
        !COMPLETE || self.cut_mask != 0
    }

    /// What pages are like for the slicer.
    pub(crate) fn page_kind(&self) -> PageKind {
        match (self.cuts(), self.grows()) {
            (false, _) => PageKind::Whole,
            (true, false) => PageKind::Equal,
            (true, true) => PageKind::Unequal,
        }
    }

    /// Whether pages have different sizes although they are cut.
    pub(crate) fn grows(&self) -> bool {
        matches!(self.kind, Kind::Sliced(Sliced { growth: Some(_), .. }))
    }

    /// Whether pages double with their number.
    pub(crate) fn doubles(&self) -> bool {
        matches!(self.kind, Kind::Sliced(Sliced { growth: Some(Growth { doubles: true, .. }), .. }))
    }

    /// The request of a pool's smallest page, for one that is to hold nothing.
    pub(crate) fn smallest_page(&self) -> Option<Fit> {
        let Kind::Sliced(sliced) = &self.kind else { return None };
        Some(Fit { size: (sliced.page_size >> self.granule_shift) as u32, align_mask: 0, requested: sliced.page_size })
    }

    /// Whether the pool can use a page of so many bytes.
    pub(crate) fn takes_page(&self, bytes: u64) -> bool {
        let granules = bytes >> self.granule_shift;
        let counts = bytes & (self.granule() - 1) == 0 && granules != 0 && granules <= u64::from(u32::MAX);
        counts
            && match &self.kind {
                Kind::Sliced(sliced) if sliced.growth.is_none() => bytes == sliced.page_size,
                Kind::Sliced(sliced) => bytes <= sliced.largest_page(),
                // All pages of a size class are equal.
                Kind::Exclusive(exclusive) => {
                    granules <= u64::from(exclusive.largest) && exclusive.page_for(granules as u32) == granules as u32
                }
                Kind::Direct(direct) => bytes <= direct.limit,
            }
    }

    /// Where the pages come from.
    pub(crate) fn origin(&self) -> Origin {
        Origin { memory_type: self.memory_type, heap: self.heap }
    }

    /// Whether a page that is idle in a pool with other rules could serve this pool as well.
    pub(crate) fn shares_pages_with(&self, other: &Rules) -> bool {
        let (Kind::Sliced(one), Kind::Sliced(two)) = (&self.kind, &other.kind) else { return false };
        // Caps make a difference to how large a page may be that is taken over, not to whether it may.
        let same_pages = one.growth.is_some() == two.growth.is_some()
            && self.doubles() == other.doubles()
            && (one.growth.is_some() || one.page_size == two.page_size);
        same_pages
            && self.kinds != PoolKinds::Both
            && self.kinds != other.kinds
            && other.kinds != PoolKinds::Both
            && self.memory_type == other.memory_type
            && self.granule_shift == other.granule_shift
    }

    /// Whether a page that another request is just getting would hold `fit` too.
    pub(crate) fn shares_page(&self, fit: &Fit) -> bool {
        matches!(&self.kind, Kind::Sliced(sliced) if self.bytes(fit.size) <= sliced.page_size)
    }

    /// Whether the pool is asked for its idle page of the lowest index.
    pub(crate) fn takes_lowest_idle(&self) -> bool {
        match &self.kind {
            Kind::Sliced(sliced) => sliced.growth.is_none(),
            Kind::Exclusive(_) => false,
            Kind::Direct(direct) => direct.reclaim_at.is_some(),
        }
    }

    /// The cap in bytes, `None` if there is none.
    pub(crate) fn capacity(&self) -> Option<u64> {
        match &self.kind {
            Kind::Sliced(sliced) => sliced.capacity,
            _ => None,
        }
    }

    /// The configuration as it is in effect.
    #[cold]
    pub(crate) fn options(&self) -> PoolOptions {
        let mut options = match self.kind {
            Kind::Sliced(sliced) => {
                let Sliced { page_size_with_room, max_slice_size, capacity, takes_near_page, growth, .. } = sliced;
                let near_page = if takes_near_page { NearPage::Always } else { NearPage::Never };
                let mut options =
                    PoolOptions::sliced_pages(page_size_with_room, max_slice_size, capacity).with_near_page(near_page);
                options.max_page_size = growth.map(|growth| growth.max_page_size);
                if growth.is_some_and(|growth| growth.doubles) {
                    options.page_growth = PageGrowth::Doubling;
                }
                options
            }
            Kind::Exclusive(exclusive) => PoolOptions::exclusive_pages(exclusive.max_alloc_size),
            Kind::Direct(direct) => PoolOptions::direct(direct.reclaim_at),
        };
        options.granule = self.granule();
        options.memory_type = self.memory_type;
        options.kinds = self.kinds;
        options.min_pages = self.min_pages;
        options.dealloc_period = self.dealloc_period;
        options.keep_bytes = self.keep_bytes;
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_complete_build_has_is_refused_in_others_one_by_one() {
        let plain = || PoolOptions::sliced_pages(4096, 4096, None).with_near_page(NearPage::Never);
        let made = |options: PoolOptions, margin| Rules::try_new(&options, &MemoryType::default(), margin).map(|_| ());
        let expected = if COMPLETE { Ok(()) } else { Err(Error::NotSupported { what: c"pools" }) };
        assert_eq!(made(plain(), 0), Ok(()));
        assert_eq!(made(plain().with_near_page(NearPage::WhenUncapped), 0), Ok(()));
        for options in [
            plain().with_kinds(PoolKinds::Linear),
            plain().with_kinds(PoolKinds::Optimal),
            plain().with_dealloc_period(Some(10)),
            plain().with_min_pages(1),
            plain().with_near_page(NearPage::Always),
        ] {
            assert_eq!(made(options, 0), expected);
        }
        assert_eq!(made(plain(), 1), expected);
    }
}
