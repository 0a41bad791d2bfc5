//! What tests of address spaces on real CPUs share.

#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod model;
pub(crate) mod world;
