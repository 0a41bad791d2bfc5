//! Statistics that each CPU counts separately, and the schedule of each CPU's periodic work.
//!
//! `counters` and `threshold` implement the statistics. `schedule` decides when the periodic work
//! of a CPU fires. `shepherd` decides when a CPU starts that work again after it has stopped
//! because there was nothing to do. The work itself is in [`Manager`](crate::Manager), which is
//! layered above this folder and `page`.

pub mod counters;
pub mod schedule;
pub mod shepherd;
pub mod threshold;
