//! Virtual CPUs in virtual time: a [`Machine`](plimsoll_mm::machine::Machine) for hundreds of CPUs
//! on one host thread.
//!
//! A [`Sim`] is a deterministic, conservative discrete-event machine. Each virtual CPU has its own
//! clock and runs ahead on local work; where CPUs can see each other, the one with the earliest
//! clock goes first. Tasks are coroutines, so the code that runs on real threads runs here
//! unchanged. The same profile, options and seed give the same run, down to one hash.

mod arena;
pub mod bench;
mod contend;
mod coroutine;
mod cpu;
mod cpu_lock;
mod cpu_rng;
mod engine;
mod fault;
mod handle;
mod job;
mod last_resort;
mod law;
mod line;
mod lock;
mod machine;
mod observe;
mod once;
mod options;
mod price;
pub mod profile;
mod random;
mod record;
mod rw_lock;
mod rw_queue;
mod spend;
mod stacks;
mod state;
mod stats;
mod tags;
mod task;
mod tick;
mod tree;
mod wait;
mod word;

pub use crate::cpu_lock::SimCpuLock;
pub use crate::cpu_rng::CpuRng;
pub use crate::last_resort::last_resort;
pub use crate::law::run_law;
pub use crate::line::SimLine;
pub use crate::lock::SimLock;
pub use crate::once::SimOnce;
pub use crate::options::{Faults, LockModel, SimOptions};
pub use crate::rw_lock::SimRwLock;
pub use crate::stacks::NoStack;
pub use crate::state::Sim;
pub use crate::stats::{CpuWaits, HIST_BINS, LockStats, LongestWait, Stats};
pub use crate::tags::SimTags;
pub use crate::task::TaskId;
pub use crate::wait::{Access, Wait};
pub use crate::word::{SimField, SimLocalWord, SimWord};
