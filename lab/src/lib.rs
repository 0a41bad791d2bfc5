//! Experiments: workloads, A/B runs, statistics, reports.
//!
//! Start at [`experiment`] for the questions that can be asked, at [`compare`] for measuring
//! designs against each other, and at [`report`] for the results.

pub mod as_recording;
pub mod bench;
pub mod cases;
pub mod compare;
pub mod contest;
pub mod designs;
mod error;
pub mod exact;
pub mod experiment;
pub mod holds;
pub mod locks;
pub mod machines;
pub mod metric;
mod names;
pub mod options;
pub mod phases;
pub mod progress;
pub mod replay;
pub mod report;
pub mod room;
pub mod show;
pub mod stats;
pub mod trace;
pub mod validate;
pub mod workload;

pub use error::Error;
pub use plimsoll_sim::NoStack;
pub use plimsoll_sim::profile::Card;
