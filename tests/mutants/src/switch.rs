
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
    pub(crate) const fn is(which: usize) -> bool {
        at(which, which) == which
    }

    /// The number, if it is one from `first` to `last`; else none's. What the compiler works out is never changed.
    #[inline]
    pub(crate) const fn at(first: usize, last: usize) -> usize {
        core::intrinsics::const_eval_select((first, last), never, look_between)
    }

    const fn never(_: usize, _: usize) -> usize {
        0
    }

    #[inline]
    fn look_between(first: usize, last: usize) -> usize {
        let number = number();
        if number.wrapping_sub(first) <= last - first { number } else { 0 }
    }
}
