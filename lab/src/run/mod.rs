//! Runs cases (a case is a design with a seed): the simulated machine of a run, the matrix of
//! cases, and the user's options.

pub mod aging;
pub mod as_recording;
pub mod cases;
pub mod durations;
pub mod jobs;
pub mod journal;
pub mod options;
pub mod overall;
pub mod pressure;
pub mod progress;
pub mod testbed;
