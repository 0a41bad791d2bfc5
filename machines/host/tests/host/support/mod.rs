//! A world and a model for the tests of address spaces on real CPUs.

pub(crate) mod model;
pub(crate) mod world;
