//! Records a Linux kernel: that of this computer, or one booted with many CPUs in an emulator.
//!
//! Both write the format of `plimsoll_recording`. [`build`] makes kernels to boot.

pub mod build;
