//! The library that registers threads for restartable sequences.

use std::fmt;

/// The library that registers a thread for restartable sequences: it gives the kernel memory that the
/// thread and the kernel share (Linux: `struct rseq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registrar {
    /// The C library (glibc 2.35 or later).
    Libc,
    /// This crate, because the C library does not do it.
    Plimsoll,
}

impl fmt::Display for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Libc => "the C library",
            Self::Plimsoll => "Plimsoll",
        })
    }
}
