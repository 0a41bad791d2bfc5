//! Records a Linux kernel: that of this computer, or one booted with many CPUs in an emulator.
//!
//! Both write the format of `plimsoll_recording`. [`build`] makes kernels to boot.

pub mod boot;
pub mod build;
pub mod guest;
pub mod package;
#[cfg(target_os = "linux")]
pub mod record;
#[cfg(target_os = "linux")]
mod tracefs;

/// Whether this program may do anything on this computer.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
