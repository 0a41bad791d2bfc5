//! The parts of Plimsoll that run inside a booted kernel: its first process, loads, and their
//! workers.

mod crew;
pub mod init;
pub mod load;
mod op;
pub(crate) mod plan;
mod progress;
mod second;
pub mod worker;
