//! Boots a kernel with many CPUs in QEMU, without hardware virtualization, and records it.
//!
//! QEMU derives the guest's time from the number of executed instructions (`-icount`), so that the
//! guest's behaviour does not depend on how busy this computer is. Plimsoll itself runs as the
//! guest's first process. It records the kernel and sends the recording through a virtual serial
//! port to a file on this computer.

mod console;
pub mod doctor;
mod elf;
mod error;
mod initramfs;
mod libraries;
mod options;
mod qemu;
mod run;

pub use console::GuestState;
pub use error::{Error, Stop};
pub(crate) use initramfs::{BUSYBOX, MODULES, PROGRAM};
pub use options::{CPUS_MAX, KernelChoice, LoadChoice, Memory, Options};
pub use run::{Outcome, run};
