//! Statistics that each CPU counts separately, and the schedule of each CPU's periodic work.
//!
//! `counters` and `threshold` implement the statistics. `schedule` decides when the periodic work
//! of a CPU fires. `shepherd` decides which CPUs, whose work has stopped because there was nothing
//! to do, start it again, and when. The work itself is in [`Manager`](crate::Manager), which is
//! layered above this folder and `page`.

pub mod counters;
pub mod schedule;
pub mod shepherd;
pub mod threshold;
