//! What an allocator tells of itself, for logs and traces.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::slots::SliceId;
use core::fmt;

/// Something that has happened: see [`Device::event`](crate::Device::event).
///
/// Told with no lock held, by the thread on which it happened, so that those of several threads may arrive in another order:
/// [`Event::sequence`] is the order in which the books changed, and a log sorted by it replays. Of one allocator, that
/// is; some numbers are never used.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event {
    /// Rises with everything that happens. Has 32 bits, and wraps, where the processor has no atomic numbers of 64.
    pub sequence: u64,
    /// What has happened.
    pub kind: EventKind,
    /// Index of the pool; of [`EventKind::OutOfMemory`] 0.
    pub pool: u32,
    /// Index of the memory type; of [`EventKind::OutOfMemory`] the first that suited.
    pub memory_type: u32,
    /// Of slices: the handle.
    pub id: Option<SliceId>,
    /// Handle of the page's device memory; of [`EventKind::OutOfMemory`] `u64::MAX`.
    pub memory: u64,
    /// Bytes from the start of the page; of pages 0.
    pub offset: u64,
    /// Bytes of the slice or page; of [`EventKind::OutOfMemory`], those asked for.
    pub size: u64,
    /// Bytes that were asked for: of slices that are handed out, resized or leaked.
    pub requested: u64,
    /// Why: of [`EventKind::OutOfMemory`] and [`EventKind::PageRefused`].
    pub error: Option<Error>,
    /// What the program has attached to the slice.
    pub label: Label,
}

/// What kind of thing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A page was taken from the device.
    PageAllocated,
    /// A page that the program owned was taken over.
    PageAdopted,
    /// A page that holds nothing serves another pool: the one that is named.
    PageMoved,
    /// A page was given back to the device. Its number is that of the moment in which it began to leave.
    PageReturned,
    /// The device has refused to take a page back.
    PageRefused,
    /// A slice was handed out. Slices are told of if [`AllocatorOptions::slice_events`] is set.
    ///
    /// [`AllocatorOptions::slice_events`]: crate::AllocatorOptions::slice_events
    SliceAllocated,
    /// A slice has another size where it lies.
    SliceResized,
    /// A slice was freed but waits for the device. Told once more if it waits for something else after that, or if
    /// overwriting it has failed.
    SlicePending,
    /// A slice's memory is free.
    SliceFreed,
    /// A request was refused for want of memory: with [`Error::OutOfDeviceMemory`], or because of a budget, a number of pages
    /// or the cap of a pool.
    OutOfMemory,
    /// A slice is live although the allocator is to be destroyed.
    SliceLeaked,
}

/// A name of at most [`Name::MAX_LEN`] bytes of UTF-8: kept where it is, so that whoever gives it need not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    len: u8,
    bytes: [u8; Name::MAX_LEN],
}

impl Name {
    /// The longest name. What is longer is cut, between two characters.
    pub const MAX_LEN: usize = 55;

    /// No name.
    pub const NONE: Self = Self { len: 0, bytes: [0; Self::MAX_LEN] };

    /// A name.
    pub fn new(name: &str) -> Self {
        let mut len = name.len().min(Self::MAX_LEN);
        while !name.is_char_boundary(len) {
            len -= 1;
        }
        let mut copy = Self::NONE;
        copy.len = len as u8;
        for (to, from) in copy.bytes.iter_mut().zip(name.bytes().take(len)) {
            *to = from;
        }
        copy
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for Name {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// What a program attaches to a slice, for itself: the library only keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// A name, for reports.
    pub name: Name,
    /// Anything: a pointer, an index. 0: nothing.
    pub user_data: u64,
}

impl Label {
    /// Nothing.
    pub const NONE: Self = Self { name: Name::NONE, user_data: 0 };

    /// Whether there is neither a name nor user data.
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.name.len == 0 && self.user_data == 0
    }

    /// A name.
    pub fn named(name: &str) -> Self {
        Self { name: Name::new(name), user_data: 0 }
    }

    /// The same with user data.
    #[must_use]
    pub const fn with_user_data(mut self, user_data: u64) -> Self {
        self.user_data = user_data;
        self
    }
}
