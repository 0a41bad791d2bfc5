//! Boots a kernel with many CPUs in QEMU, without hardware virtualization, and records it.
//!
//! QEMU derives time from the number of instructions (`-icount`), so that what the guest sees does
//! not depend on how busy this computer is. The guest's first process is this very program; it
//! records and sends the recording through a virtual serial port into a file on this computer.

mod console;
pub mod doctor;
mod elf;
mod error;
mod initramfs;
mod libraries;
mod options;
mod qemu;
mod run;

pub use console::Stage;
pub use error::{Error, Stop};
pub(crate) use initramfs::{BUSYBOX, MODULES, PROGRAM};
pub use options::{CPUS_MAX, KernelChoice, LoadChoice, Memory, Options};
pub use run::{Outcome, run};
