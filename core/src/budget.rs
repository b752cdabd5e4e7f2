//! How much may be held from devices: bytes and pages, of one allocator or of several together.
//!
//! Everything is reserved before the device is called and returned after it has taken the memory back, so a limit holds
//! at every instant, however many threads grow at once.

use crate::canary::broken;
use crate::error::Error;
use crate::metadata::HostMemory;
use crate::sync::{AtomicU32, Lock, LockKind, Ordering};
use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

/// Limits on what is held, and what of them is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    max_bytes: u64,
    max_pages: u32,
    bytes: u64,
    pages: u32,
    bytes_peak: u64,
    pages_peak: u32,
    /// The largest reservation that was refused and has not been possible since; 0: none.
    wanted: u64,
}

impl Account {
    pub(crate) const fn new(max_bytes: Option<u64>, max_pages: Option<u32>) -> Self {
        let mut account = Self {
            max_bytes: u64::MAX,
            max_pages: u32::MAX,
            bytes: 0,
            pages: 0,
            bytes_peak: 0,
            pages_peak: 0,
            wanted: 0,
        };
        account.set_limits(max_bytes, max_pages);
        account
    }

    const fn set_limits(&mut self, max_bytes: Option<u64>, max_pages: Option<u32>) {
        self.max_bytes = match max_bytes {
            Some(bytes) => bytes,
            None => u64::MAX,
        };
        self.max_pages = match max_pages {
            Some(pages) => pages,
            None => u32::MAX,
        };
    }

    /// Bytes that the next page can have.
    pub(crate) fn room(&self) -> u64 {
        if self.pages >= self.max_pages { 0 } else { self.max_bytes.saturating_sub(self.bytes) }
    }

    /// Why a page of `bytes` could not be reserved now.
    fn refusal(&self, bytes: u64) -> Option<Error> {
        if bytes > self.max_bytes.saturating_sub(self.bytes) {
            return Some(Error::BudgetExceeded { size: bytes, limit: self.max_bytes, reserved: self.bytes });
        }
        (self.pages >= self.max_pages).then_some(Error::PageCountExceeded { size: bytes, limit: self.max_pages })
    }

    /// Whether there could ever be room for a page of `bytes`.
    fn allows(&self, bytes: u64) -> bool {
        bytes <= self.max_bytes && self.max_pages != 0
    }

    /// Reserves a page of `bytes`, which is not 0.
    #[cold]
    #[inline(never)]
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<(), Error> {
        if let Some(error) = self.refusal(bytes) {
            // What could never be had is not worth anybody's pages.
            if self.allows(bytes) {
                self.wanted = self.wanted.max(bytes);
            }
            return Err(error);
        }
        self.bytes += bytes;
        self.pages += 1;
        self.bytes_peak = self.bytes_peak.max(self.bytes);
        self.pages_peak = self.pages_peak.max(self.pages);
        if bytes >= self.wanted {
            self.wanted = 0;
        }
        Ok(())
    }

    /// Returns what was reserved for a page.
    #[cold]
    #[inline(never)]
    pub(crate) fn release(&mut self, bytes: u64) {
        if broken("budget_leak") && self.pages > 3 {
            return;
        }
        self.release_all(bytes, 1);
    }

    /// Returns what was reserved for so many pages.
    fn release_all(&mut self, bytes: u64, pages: u32) {
        self.bytes -= bytes;
        self.pages -= pages;
        if self.room() >= self.wanted {
            self.wanted = 0;
        }
    }

    /// Bytes and pages that are reserved.
    pub(crate) fn used(&self) -> (u64, u32) {
        (self.bytes, self.pages)
    }

    /// Whether more is held than may be.
    fn is_over(&self) -> bool {
        self.bytes > self.max_bytes || self.pages > self.max_pages
    }

    /// Whether a reservation that was refused would be refused still, or more is held than may be.
    fn is_short(&self) -> bool {
        self.is_over() || self.room() < self.wanted
    }
}

/// Limits on bytes and pages that several allocators share: one per stream over one device, one per memory type of a heap.
///
/// Every page counts from before the device is asked for it until the device has taken it back, those it refuses to take
/// included. A reservation that is refused although the limits allow for it raises the budget's *pressure*: each allocator
/// that shares it gives pages that hold nothing back when it allocates, frees or collects the next time, until what was
/// refused would fit. An allocator that has gone leaves nothing reserved, even if its device kept a page.
///
/// Counts its owners: a clone is another owner of the same budget, and each allocator is one.
pub struct Budget(NonNull<Shared>);

struct Shared {
    owners: AtomicU32,
    /// Counts refused reservations that others can do something about.
    pressure: AtomicU32,
    memory: HostMemory,
    account: Lock<Account>,
}

// SAFETY: what is shared is reached through a lock and atomics.
unsafe impl Send for Budget {}
// SAFETY: as above.
unsafe impl Sync for Budget {}

/// What of a [`Budget`] is used, at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetStatistics {
    /// Bytes that may be held; `u64::MAX`: any number.
    pub max_bytes: u64,
    /// Pages that may be held; `u32::MAX`: any number.
    pub max_pages: u32,
    /// Pages that are held, or just being taken.
    pub pages: u32,
    /// Their bytes.
    pub bytes: u64,
    /// The most `bytes` has been.
    pub bytes_peak: u64,
    /// The most `pages` has been.
    pub pages_peak: u32,
    /// Reservations that were refused although the limits allow for them. Wraps.
    pub pressure: u32,
}

impl Budget {
    /// A budget of `max_bytes` and `max_pages`; `None`: no such limit. It lives in `memory`.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn try_new(
        memory: HostMemory,
        lock: LockKind,
        max_bytes: Option<u64>,
        max_pages: Option<u32>,
    ) -> Result<Self, Error> {
        let at = memory.allocate(Layout::new::<Shared>())?.cast::<Shared>();
        let account = Lock::new(lock, Account::new(max_bytes, max_pages));
        // SAFETY: fresh memory of the right layout.
        unsafe { at.write(Shared { owners: AtomicU32::new(1), pressure: AtomicU32::new(0), memory, account }) };
        Ok(Self(at))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: lives as long as there is an owner, which `self` is.
        unsafe { self.0.as_ref() }
    }

    /// Changes the limits. Pages that are held above them stay; none are taken until enough have gone, and pages that hold
    /// nothing go as if a reservation had been refused.
    pub fn set_limits(&self, max_bytes: Option<u64>, max_pages: Option<u32>) {
        let mut account = self.shared().account.lock();
        account.set_limits(max_bytes, max_pages);
        // What can never be had any more, or can be had now, is not wanted.
        if !account.allows(account.wanted) || account.room() >= account.wanted {
            account.wanted = 0;
        }
        let over = account.is_over();
        drop(account);
        if over {
            self.raise();
        }
    }

    fn raise(&self) {
        self.shared().pressure.fetch_add(1, Ordering::Relaxed);
    }

    /// What of it is used.
    pub fn statistics(&self) -> BudgetStatistics {
        let Account { max_bytes, max_pages, bytes, pages, bytes_peak, pages_peak, .. } = *self.shared().account.lock();
        BudgetStatistics { max_bytes, max_pages, bytes, pages, bytes_peak, pages_peak, pressure: self.pressure() }
    }

    /// Reservations that were refused.
    #[inline(always)]
    pub(crate) fn pressure(&self) -> u32 {
        self.shared().pressure.load(Ordering::Relaxed)
    }

    pub(crate) fn room(&self) -> u64 {
        self.shared().account.lock().room()
    }

    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Error> {
        let mut account = self.shared().account.lock();
        let reserved = account.reserve(bytes);
        let allowed = account.allows(bytes);
        drop(account);
        if reserved.is_err() && allowed {
            self.raise();
        }
        reserved
    }

    /// Why a page of `bytes` could not be reserved now.
    pub(crate) fn refusal(&self, bytes: u64) -> Option<Error> {
        self.shared().account.lock().refusal(bytes)
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.shared().account.lock().release(bytes);
    }

    /// Returns all that an owner has reserved: it does not exist any more.
    pub(crate) fn release_all(&self, (bytes, pages): (u64, u32)) {
        self.shared().account.lock().release_all(bytes, pages);
    }

    /// Whether what was refused would be refused still.
    pub(crate) fn is_short(&self) -> bool {
        self.shared().account.lock().is_short()
    }

    /// The budget as a pointer for a foreign owner, who gives it back to [`Budget::from_raw`].
    pub fn into_raw(self) -> *mut () {
        let at = self.0.as_ptr().cast();
        core::mem::forget(self);
        at
    }

    /// # Safety
    /// `raw` came from [`Budget::into_raw`] and is given back once.
    pub unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: passed on from the caller; not NULL since it came from a `NonNull`.
        Self(unsafe { NonNull::new_unchecked(raw.cast()) })
    }
}

impl Clone for Budget {
    fn clone(&self) -> Self {
        // The owner that is cloned keeps it alive meanwhile.
        self.shared().owners.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        // All that other owners did with it comes before its memory goes.
        if self.shared().owners.fetch_sub(1, Ordering::AcqRel) == 1 {
            let memory = self.shared().memory;
            // SAFETY: this was the last owner.
            unsafe {
                self.0.drop_in_place();
                memory.deallocate(self.0.cast(), Layout::new::<Shared>());
            }
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.statistics().fmt(f)
    }
}
