//! Real CPUs as a [`Machine`](plimsoll_mm::machine::Machine).
//!
//! [`Host`] is the handle on the machine:
//!
//! * Threads play CPUs ([`Host::enter`]).
//! * Words are hardware atomics in separate cache lines.
//! * Locks are spinlocks.
//! * Deferred work runs on one worker thread for each CPU ([`Host::start`]).
//! * [`pool::Pool`] puts all of these together for an embedder: memory, its manager and its
//!   maintenance.
//! * [`arena::Arena`] is memory for pages. [`discard::ToKernel`] returns it to the kernel when
//!   address spaces no longer use it, or when it has been free for a while.
//!
//! [`measure`] times a contended lock, and measures the prices (the times of its steps) that a
//! simulated machine needs. It returns an error if this computer cannot be measured.
//!
//! `docs/embedding.md` of the repository is the guide for programs that use this crate.
//!
//! A machine belongs to the process that created it. On Linux, a child that was forked from this
//! process aborts with a message if it allocates or frees pages, enters a CPU, or waits for a lock
//! of the manager. A few calls do not abort but work on the child's copy: they only read or set a
//! number, and wait for no lock. The child may drop what it has inherited.
//!
//! These files contain `unsafe` code: `locks/guarded.rs`, where a held lock hands out its value;
//! `measure/clock.rs`, which reads the time-stamp counter; `arena/`, which returns memory to the
//! kernel; `discard.rs` and `return_free.rs`, which call `arena/` to return the memory of freed
//! pages; `fronts/rseq/`, with restartable sequences in assembly and the areas that threads share
//! with the kernel; `tags/`, where tags in aligned lines are one slice of tags, and assembly accesses
//! many tags at once; `sys.rs`, with system calls; and `fork.rs`, which runs a function in the child of a fork.

pub mod affinity;
pub mod arena;
pub mod cpu;
pub mod discard;
pub mod fronts;
pub mod locks;
pub mod measure;
pub mod numa;
pub mod pool;
pub mod return_free;
pub mod topology;
pub mod words;
pub mod workers;

mod fork;
mod host;
mod job_queue;
mod machine;
mod sys;
mod tags;

pub use host::{Host, OwnerLocks};

/// The examples of the README, which are compiled and run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The example of this crate's README, which is compiled and run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadme;

/// The examples of `docs/embedding.md`, which are compiled and run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingPage;

/// The examples of `docs/counters.md`, which are compiled and run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/counters.md")]
struct CountersPage;
