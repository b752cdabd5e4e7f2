//! What a program without the Rust standard library needs: memory, a lock to begin with, and an end for panics.

use core::panic::PanicInfo;

#[cfg(target_os = "none")]
#[path = "runtime/bare.rs"]
mod system;
#[cfg(not(target_os = "none"))]
#[path = "runtime/hosted.rs"]
mod system;

#[cfg(all(feature = "critical-section", target_os = "none"))]
#[path = "runtime/critical_section.rs"]
mod critical_section;

pub(crate) use system::default_lock;
#[cfg(feature = "buffers")]
pub(crate) use system::page_size;

/// A panic is a bug inside the library: there is no state worth going on with.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    system::end()
}

// Without link-time optimisation the precompiled `core` still names the unwinder's entry point, which nothing calls
// when panics abort. Weak, so that two such libraries fit into one program.
#[cfg(all(not(target_os = "none"), not(windows), not(target_vendor = "apple")))]
core::arch::global_asm!(".weak rust_eh_personality", "rust_eh_personality:");
