//! Which version this is.

/// The interface described by this header, part by part. Before 1.0, a new minor version may break programs.
pub const SLICEPOOL_VERSION_MAJOR: u32 = 0;
/// See SLICEPOOL_VERSION_MAJOR.
pub const SLICEPOOL_VERSION_MINOR: u32 = 1;
/// See SLICEPOOL_VERSION_MAJOR.
pub const SLICEPOOL_VERSION_PATCH: u32 = 0;
/// The same as one number: major * 1000000 + minor * 1000 + patch.
pub const SLICEPOOL_VERSION_NUMBER: u32 = 1000;

// The numbers are written out because the header's generator takes literals only.
const _: () = {
    const fn number(text: &str) -> u32 {
        let (digits, mut value, mut i) = (text.as_bytes(), 0, 0);
        while i < digits.len() {
            value = value * 10 + (digits[i] - b'0') as u32;
            i += 1;
        }
        value
    }

    assert!(SLICEPOOL_VERSION_MAJOR == number(env!("CARGO_PKG_VERSION_MAJOR")));
    assert!(SLICEPOOL_VERSION_MINOR == number(env!("CARGO_PKG_VERSION_MINOR")));
    assert!(SLICEPOOL_VERSION_PATCH == number(env!("CARGO_PKG_VERSION_PATCH")));
    let composed = SLICEPOOL_VERSION_MAJOR * 1_000_000 + SLICEPOOL_VERSION_MINOR * 1000 + SLICEPOOL_VERSION_PATCH;
    assert!(SLICEPOOL_VERSION_NUMBER == composed);
};

/// The library's SLICEPOOL_VERSION_NUMBER: compare with that of the header the program was compiled with.
///
/// @return the number; there is no failure
///
/// Threads: any. Cost: constant.
#[unsafe(no_mangle)]
pub extern "C" fn slicepool_version() -> u32 {
    SLICEPOOL_VERSION_NUMBER
}
