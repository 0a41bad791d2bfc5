//! Real CPUs as a [`Machine`](plimsoll_mm::machine::Machine).
//!
//! [`Host`] is the handle: threads play CPUs ([`Host::enter`]), words are hardware atomics alone
//! in their cache lines, locks are spinlocks, deferred work runs on one worker thread per CPU
//! ([`Host::start`]), and [`arena::Arena`] is memory for pages, which
//! [`discard::ToKernel`] gives back to the kernel when address spaces are done with it.
//!
//! [`measure`] times a contended lock and the prices a simulated machine needs, and says so when
//! this computer cannot be measured.
//!
//! `unsafe` is in four files: `locks/guarded.rs`, where a held lock hands out its value,
//! `measure/clock.rs`, which reads the time-stamp counter, `arena.rs`, which gives memory back, and
//! `discard.rs`, which decides when.

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

pub use host::Host;

/// The examples of the README, so that they compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the page about counters.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/counters.md")]
struct CountersPage;
