//! Records a Linux kernel: this computer's own, or a kernel booted with many CPUs in an emulator.
//!
//! Both kinds of recording have the format of `plimsoll_recording`. The module `build` builds
//! kernels to boot.

#[cfg(target_os = "linux")]
pub mod boot;
#[cfg(target_os = "linux")]
pub mod build;
#[cfg(target_os = "linux")]
pub mod guest;
#[cfg(target_os = "linux")]
pub mod package;
#[cfg(target_os = "linux")]
pub mod record;
#[cfg(target_os = "linux")]
mod tracefs;

/// Returns whether this process runs as root.
#[cfg(target_os = "linux")]
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
