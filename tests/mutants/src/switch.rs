
/// Which change is on.
pub(crate) mod mutant {
    use core::sync::atomic::{AtomicUsize, Ordering};

    static NUMBER: AtomicUsize = AtomicUsize::new(usize::MAX);

    #[inline]
    fn number() -> usize {
        match NUMBER.load(Ordering::Relaxed) {
            usize::MAX => look(),
            number => number,
        }
    }

    unsafe extern "C" {
        fn getenv(name: *const core::ffi::c_char) -> *const core::ffi::c_char;
    }

    /// Without memory of the host's: some tests count what is asked for.
    #[cold]
    fn look() -> usize {
        let mut number = 0;
        // SAFETY: the variable ends with a NUL, and nobody sets any while tests run.
        unsafe {
            let mut at = getenv(c"SLICEPOOL_MUTANT".as_ptr());
            while !at.is_null() && (*at as u8).is_ascii_digit() {
                number = number * 10 + usize::from(*at as u8 - b'0');
                at = at.add(1);
            }
        }
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
