//! Running cases: the simulated machine of a run, the matrix of cases, and the options of the user.

pub mod as_recording;
pub mod cases;
pub mod options;
pub mod progress;
pub mod testbed;
