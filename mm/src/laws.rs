//! Contracts that every implementation obeys on every machine.
//!
//! A [`Law`] sets something up, lets one body run on each of a few CPUs at the same time, and
//! checks what is left. Each machine crate has a runner: real threads many times, every
//! interleaving under loom, random ones under shuttle, virtual CPUs under many seeds.

use alloc::vec::Vec;
use core::fmt;

/// What one CPU does in a [`Law`].
pub type Body<M, S> = fn(&M, &S);

/// A contract on the state `S` under concurrent bodies on machine `M`.
#[derive(Clone)]
pub struct Law<M, S> {
    /// The contract as a sentence.
    pub name: &'static str,
    /// Makes the state, before any body runs.
    pub setup: fn(&M) -> S,
    /// What runs at the same time: entry `i` on CPU `i`.
    pub bodies: Vec<Body<M, S>>,
    /// Asserts the contract once every body has returned.
    pub check: Body<M, S>,
}

impl<M, S> fmt::Debug for Law<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Law").field("name", &self.name).finish_non_exhaustive()
    }
}
