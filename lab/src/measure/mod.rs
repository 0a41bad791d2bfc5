//! Metrics, their statistics, and the comparison of designs.

pub mod comparison;
pub mod detectors;
pub mod holds;
pub mod locks;
pub mod metric;
mod missing;
pub(crate) mod number;
pub mod phases;
pub mod sample;
pub mod stats;
pub mod tasks;
