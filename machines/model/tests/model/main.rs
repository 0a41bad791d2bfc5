//! The laws of the memory manager under loom, exhaustively, and under shuttle, at random.
//!
//! They form a single test program, so that the memory manager is compiled for each checker only
//! once. Tests that expect a panic are in separate programs, because shuttle's panic hook reports
//! every thread that loom ends.

mod cached;
mod dying;
mod oom;
mod pages;
mod parts;
mod reclaim;
mod rw_lock;
mod vmas;
