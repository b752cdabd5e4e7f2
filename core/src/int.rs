//! Integer arithmetic that several modules rely on.
#![forbid(unsafe_code)]

/// All ones if `condition` holds, else zero: selects values without a branch.
#[inline(always)]
pub(crate) const fn mask(condition: bool) -> u32 {
    (condition as u32).wrapping_neg()
}

/// `yes` where `mask` is all ones, `no` where it is zero.
#[inline(always)]
pub(crate) const fn select(mask: u32, yes: u32, no: u32) -> u32 {
    no ^ ((yes ^ no) & mask)
}

/// The least multiple of `alignment`, a power of two, that is not below `value`; `None` if it does not fit.
#[inline]
pub(crate) const fn align_up(value: u64, alignment: u64) -> Option<u64> {
    debug_assert!(alignment.is_power_of_two());
    match value.checked_add(alignment - 1) {
        Some(sum) => Some(sum & !(alignment - 1)),
        None => None,
    }
}

/// The greatest multiple of `alignment`, a power of two, that is not above `value`.
#[inline]
pub(crate) const fn align_down(value: u64, alignment: u64) -> u64 {
    debug_assert!(alignment.is_power_of_two());
    value & !(alignment - 1)
}

/// `ceil(bytes / 2^shift)` without overflow.
#[inline(always)]
pub(crate) const fn granules_up(bytes: u64, shift: u32) -> u64 {
    let mask = (1 << shift) - 1;
    (bytes >> shift) + (bytes & mask != 0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligning_up_is_exact_and_refuses_overflow() {
        assert_eq!(align_up(0, 32), Some(0));
        assert_eq!(align_up(1, 32), Some(32));
        assert_eq!(align_up(u64::MAX - 31, 32), Some(u64::MAX - 31));
        assert_eq!(align_up(u64::MAX - 30, 32), None);
        assert_eq!(align_up(1, 1 << 63), Some(1 << 63));
        assert_eq!(align_down(u64::MAX, 1 << 63), 1 << 63);
    }

    #[test]
    fn granules_round_up_to_the_very_end() {
        assert_eq!(granules_up(u64::MAX, 0), u64::MAX);
        assert_eq!(granules_up(u64::MAX, 32), 1 << 32);
        assert_eq!(granules_up(u64::MAX - u64::from(u32::MAX), 32), (1 << 32) - 1);
        assert_eq!(granules_up(1, 32), 1);
        assert_eq!(granules_up(0, 5), 0);
    }

    #[test]
    fn selection_follows_the_mask() {
        assert_eq!(select(mask(true), 7, 9), 7);
        assert_eq!(select(mask(false), 7, 9), 9);
    }
}
