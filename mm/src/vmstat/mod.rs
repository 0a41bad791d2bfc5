//! Statistics that each CPU counts for itself, and when the periodic work of each CPU runs.
//!
//! `counters` and `threshold` are the statistics. `schedule` decides when the periodic work of a CPU
//! fires, and `shepherd` which dormant CPUs are kicked, and when. The work itself is that of
//! [`Manager`](crate::Manager), which stands above this folder and `page`.

pub mod counters;
pub mod schedule;
pub mod shepherd;
pub mod threshold;
