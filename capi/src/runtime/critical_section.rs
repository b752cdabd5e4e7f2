//! Critical sections, of which cores without compare-and-swap make their atomics: interrupts off and on again, unless the
//! program has other functions of these names.

use critical_section::{Impl, set_impl};

unsafe extern "C" {
    /// Keeps everybody else out; answers what [`slicepool_critical_section_leave`] needs to know.
    fn slicepool_critical_section_enter() -> u32;
    /// Lets others in again, unless they were kept out before.
    fn slicepool_critical_section_leave(before: u32);
}

struct Hooks;
set_impl!(Hooks);

// SAFETY: the functions below turn interrupts off, which keeps everybody else out on a machine with one core; those that a
// program puts in their place promise the same.
unsafe impl Impl for Hooks {
    unsafe fn acquire() -> u32 {
        // SAFETY: see above.
        unsafe { slicepool_critical_section_enter() }
    }

    unsafe fn release(before: u32) {
        // SAFETY: `before` came from `acquire`.
        unsafe { slicepool_critical_section_leave(before) }
    }
}

// Weak: a program with two cores has functions of its own.
#[cfg(target_arch = "arm")]
core::arch::global_asm!(
    ".section .text.slicepool_critical_section_enter,\"ax\",%progbits",
    ".weak slicepool_critical_section_enter",
    ".type slicepool_critical_section_enter,%function",
    ".thumb_func",
    "slicepool_critical_section_enter:",
    "mrs r0, primask",
    "cpsid i",
    "bx lr",
    ".section .text.slicepool_critical_section_leave,\"ax\",%progbits",
    ".weak slicepool_critical_section_leave",
    ".type slicepool_critical_section_leave,%function",
    ".thumb_func",
    "slicepool_critical_section_leave:",
    "msr primask, r0",
    "bx lr",
    ".text",
);
