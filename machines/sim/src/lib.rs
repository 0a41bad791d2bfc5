//! Virtual CPUs in virtual time: a [`Machine`](plimsoll_mm::machine::Machine) for hundreds of CPUs
//! on one host thread.
//!
//! A [`Sim`] is a deterministic, conservative discrete-event machine. Each virtual CPU has its own
//! clock and runs ahead on local work. At each step where CPUs can affect each other, the CPU with
//! the earliest clock goes first. Tasks are coroutines, so code written for real threads runs here
//! unchanged. The same profile (the description of the machine), options and seed always give the
//! same run, with the same hash of all its events.

pub mod bench;
mod cpu_rng;
mod engine;
mod kept;
mod last_resort;
mod locks;
mod machine;
mod memory;
mod observe;
mod options;
mod pressure;
pub mod profile;
mod stats;
mod tasks;

pub use crate::cpu_rng::CpuRng;
pub use crate::engine::state::Sim;
pub use crate::last_resort::last_resort;
pub use crate::locks::cpu_lock::SimCpuLock;
pub use crate::locks::lock::SimLock;
pub use crate::locks::once::SimOnce;
pub use crate::locks::rw_lock::SimRwLock;
pub use crate::memory::line::SimLine;
pub use crate::memory::tags::SimTags;
pub use crate::memory::word::{SimField, SimLocalWord, SimWord};
pub use crate::options::{Faults, LockModel, SimOptions};
pub use crate::pressure::{KswapdThread, pressure};
pub use crate::stats::{CpuWaits, HIST_BINS, LockStats, LongestWait, Stats};
pub use crate::tasks::stacks::NoStack;
pub use crate::tasks::step::{Hold, Runs, Step};
pub use crate::tasks::stretch::Stretch;
pub use crate::tasks::task::TaskId;
pub use crate::tasks::wait::{Access, LockId, Wait};
