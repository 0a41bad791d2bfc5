//! Experiments: workloads, A/B runs, statistics, reports.
//!
//! Start at [`experiment`] for the built-in experiments, at [`plan`] for experiments that users
//! write, at [`measure`] for comparing designs, and at [`report`] for the results.

pub mod bench;
pub mod catalog;
mod error;
pub mod exact;
pub mod experiment;
pub mod explain;
pub mod html;
pub mod measure;
pub mod perfetto;
pub mod plan;
pub mod replay;
pub mod report;
pub mod run;
pub mod sensitivity;
pub mod show;
pub mod slices;
pub mod store;
pub mod trace;
pub mod validate;
pub mod watch;
pub mod workload;

pub use error::Error;
pub use plimsoll_sim::NoStack;
pub use plimsoll_sim::profile::Card;
