//! A memory manager for many-core machines.
//!
//! Every mechanism is generic over a [`machine::Machine`], which provides the CPUs, the clock, the
//! locks and the deferred work. The same code runs on real threads, on a simulated machine with
//! hundreds of CPUs, and under a model checker.
//!
//! Start at [`machine`] to port the crate, at [`Manager`] or [`page::PageAllocator`] to embed it,
//! and at [`design::Design`] to choose between the variants of a mechanism.
//!
//! The crate is `no_std`. It needs `alloc` and a target with atomic pointers, for `Arc`. The
//! machine provides all other atomics. The script `.ci/run` checks that the crate compiles for a
//! target without an operating system.
//!
//! The feature `laws`, which is off by default, adds the module `laws`: the contracts that every
//! machine must satisfy, as tests. Only the tests of a machine need this feature.
#![no_std]
#![forbid(unsafe_code)]
#![warn(
    clippy::std_instead_of_core,
    clippy::std_instead_of_alloc,
    clippy::alloc_instead_of_core
)]

extern crate alloc;

pub mod counter;
pub mod cpus;
pub mod design;
pub mod event;
#[cfg(feature = "laws")]
pub mod laws;
pub mod machine;
mod manager;
pub mod no_front;
pub mod oom;
pub mod page;
pub mod reclaim;
mod room;
pub mod site;
pub mod space;
pub mod topology;
pub mod tunables;
pub mod units;
pub mod vmstat;
pub mod wheel;

pub use self::manager::Manager;
