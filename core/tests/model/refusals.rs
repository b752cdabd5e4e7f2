//! What a pool remembers of a device that had no memory, as the documentation of allocating has it.

/// Pages that grow are halved down to this many bytes, or to the request if that is larger.
const LEAST_HALF: u64 = 1 << 20;

/// Failing requests without a device call after the first refusal, and at most.
const FIRST_PAUSE: u32 = 64;
const LONGEST_PAUSE: u32 = 1 << 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    /// Bytes and code of the smallest page that was refused, and of the last.
    smallest: Option<u64>,
    code: i32,
    /// How often not even the smallest page that would do was to be had.
    in_vain: u32,
    /// Requests that fail before the device is asked again.
    pause: u32,
    /// What the allocator had counted of returns when all this was so.
    as_of: u64,
}

impl Refusals {
    /// With a page that went back, or a trim, all is forgotten.
    pub(crate) fn look_at_returns(&mut self, returns: u64) {
        if self.as_of != returns {
            *self = Self { as_of: returns, ..Self::default() };
        }
    }

    fn is_refused(&self, bytes: u64) -> bool {
        self.smallest.is_some_and(|smallest| bytes >= smallest)
    }

    /// Bytes that are asked for where a page of `page` bytes would be best and one of `least` bytes would do.
    pub(crate) fn smaller(&self, page: u64, least: u64, granule: u64) -> u64 {
        let floor = page.min(least.max(LEAST_HALF / granule * granule));
        let mut halved = page.min(self.smallest.unwrap_or(u64::MAX).max(floor));
        while self.is_refused(halved) && halved > floor {
            halved = floor.max(halved / 2 / granule * granule);
        }
        // Once: from then on the device is asked for no more than one page at a time.
        if self.is_refused(halved) && self.in_vain == 0 { least } else { halved }
    }

    /// The code with which a page of so many bytes is refused without asking the device.
    pub(crate) fn refuses(&mut self, bytes: u64) -> Option<i32> {
        if !self.is_refused(bytes) || self.pause == 0 {
            return None;
        }
        self.pause -= 1;
        Some(self.code)
    }

    /// The device had no page of so many bytes; whether it is asked for a smaller one, `least` bytes being enough.
    pub(crate) fn note_refusal(&mut self, bytes: u64, least: u64, code: i32) -> bool {
        self.smallest = Some(self.smallest.map_or(bytes, |smallest| smallest.min(bytes)));
        self.code = code;
        if bytes > least && self.in_vain == 0 {
            return true;
        }
        self.pause = FIRST_PAUSE.checked_shl(self.in_vain).map_or(LONGEST_PAUSE, |pause| pause.min(LONGEST_PAUSE));
        self.in_vain += 1;
        false
    }

    /// The device had a page of so many bytes.
    pub(crate) fn note_page(&mut self, bytes: u64) {
        if self.is_refused(bytes) {
            *self = Self { as_of: self.as_of, ..Self::default() };
        }
    }
}
