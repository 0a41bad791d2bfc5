//! Checks the contracts (laws) of the memory manager with two model checkers: loom tries all
//! interleavings with few preemptions, shuttle tries random ones.
//!
//! All these tests form a single program, so that the memory manager is compiled for each checker
//! only once. Tests that expect a panic are in separate programs, because shuttle's panic hook
//! reports every thread that loom ends.

mod cached;
mod dying;
mod fronts;
mod oom;
mod pages;
mod parts;
mod reclaim;
mod rw_lock;
mod vmas;
