//! The laws of the memory manager under loom, exhaustively, and under shuttle, at random.
//!
//! All are one test program, so that the memory manager is compiled for each checker only once.
//! Tests that expect a panic are programs of their own, because shuttle's panic hook reports every
//! thread that loom ends.

mod dying;
mod oom;
mod pages;
mod parts;
mod rw_lock;
mod vmas;
