//! What tests on real CPUs share.

pub(crate) mod model;
pub(crate) mod numbers;
pub(crate) mod world;
