//! What tests of address spaces on real CPUs share.

pub(crate) mod model;
pub(crate) mod world;
