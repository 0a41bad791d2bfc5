//! Real CPUs as a [`Machine`](plimsoll_mm::machine::Machine).
//!
//! [`Host`] is the handle on the machine:
//!
//! * Threads play CPUs ([`Host::enter`]).
//! * Words are hardware atomics in separate cache lines.
//! * Locks are spinlocks.
//! * Deferred work runs on one worker thread for each CPU ([`Host::start`]).
//! * [`arena::Arena`] is memory for pages. [`discard::ToKernel`] returns it to the kernel when
//!   address spaces no longer use it.
//!
//! [`measure`] times a contended lock, and measures the prices that a simulated machine needs. It
//! returns an error if this computer cannot be measured.
//!
//! Four files contain `unsafe` code: `locks/guarded.rs`, where a held lock hands out its value;
//! `measure/clock.rs`, which reads the time-stamp counter; `arena.rs`, which returns memory to the
//! kernel; and `discard.rs`, which calls `arena.rs` to return the memory of freed pages.

pub mod affinity;
pub mod arena;
pub mod cpu;
pub mod discard;
pub mod locks;
pub mod measure;
pub mod topology;
pub mod words;
pub mod workers;

mod host;
mod job_queue;
mod machine;

pub use host::{Host, OwnerLocks};

/// The examples of the README, which are compiled and run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of `docs/counters.md`, which are compiled and run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/counters.md")]
struct CountersPage;
