//! Records a Linux kernel: that of this computer, or one booted with many CPUs in an emulator.
//!
//! Both write the format of `plimsoll_recording`. `build` makes kernels to boot.

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
