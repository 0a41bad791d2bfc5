//! Shared parts of the tests on real threads: a runner of laws, a world and a model for tests of
//! address spaces, and numbers from the whole range of their types.

pub(crate) mod law;
pub(crate) mod model;
pub(crate) mod numbers;
pub(crate) mod world;
