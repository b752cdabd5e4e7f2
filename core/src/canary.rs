//! Faults that are built in on purpose, which tests must notice: only in builds with `--cfg slicepool_canary`, and of
//! those only the one that the environment names in `SLICEPOOL_CANARY`.
#![forbid(unsafe_code)]

/// Whether the fault of that name is wanted. Constant, and not there at all, in every other build.
#[cfg(not(slicepool_canary))]
#[inline(always)]
pub(crate) const fn broken(_: &str) -> bool {
    false
}

/// Whether the fault of that name is wanted.
#[cfg(slicepool_canary)]
pub(crate) fn broken(name: &str) -> bool {
    extern crate std;
    static WANTED: std::sync::OnceLock<std::string::String> = std::sync::OnceLock::new();
    WANTED.get_or_init(|| std::env::var("SLICEPOOL_CANARY").unwrap_or_default()) == name
}
