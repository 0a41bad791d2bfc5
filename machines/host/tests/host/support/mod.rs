//! Shared parts of the tests on real threads: a runner of laws (contracts that hold on every
//! machine); a machine with one address space, and a model of the address space; and numbers from
//! the whole range of their types.

pub(crate) mod law;
pub(crate) mod model;
pub(crate) mod numbers;
pub(crate) mod world;
