//! Records a Linux kernel: that of this computer, or one booted with many CPUs in an emulator.
//!
//! Both write the format of `plimsoll_recording`.

#[cfg(target_os = "linux")]
pub mod record;
#[cfg(target_os = "linux")]
mod tracefs;
