
/// Which change is on.
pub(crate) mod mutant {
    extern crate std;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static NUMBER: AtomicUsize = AtomicUsize::new(usize::MAX);

    #[inline]
    fn number() -> usize {
        match NUMBER.load(Ordering::Relaxed) {
            usize::MAX => look(),
            number => number,
        }
    }

    #[cold]
    fn look() -> usize {
        let number = std::env::var("SLICEPOOL_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        NUMBER.store(number, Ordering::Relaxed);
        number
    }

    #[inline]
    pub(crate) fn is(which: usize) -> bool {
        number() == which
    }

    /// The number, if it is one from `first` to `last`; else none's.
    #[inline]
    pub(crate) fn at(first: usize, last: usize) -> usize {
        let number = number();
        if number.wrapping_sub(first) <= last - first { number } else { 0 }
    }
}
