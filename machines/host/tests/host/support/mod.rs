//! A runner of laws, a world and a model for the tests of address spaces on real CPUs, and numbers
//! for tests over whole ranges.

pub(crate) mod law;
pub(crate) mod model;
pub(crate) mod numbers;
pub(crate) mod world;
