//! Experiments of users. A command line or an experiment file makes a [`Plan`], and one driver runs
//! the plan.
//!
//! The catalog of experiments reproduces published results. A plan makes the same comparisons with
//! the user's own choice of machine, workload and designs. The stages of a plan are:
//!
//! 1. [`command::plan`] or [`FromFile::load`] makes the [`Plan`], which is plain data.
//! 2. [`sweep::points`] makes a plan for each point of the plan's sweep, if the plan has a sweep.
//! 3. [`prepare`](prepare::prepare) finds everything that the plan names.
//! 4. [`drive::run`] runs the plan and makes a report. For a sweep, [`sweep_report::run`] runs all
//!    points and shows them. [`sweep_summary::run`] runs some or all points, and counts verdicts.

pub mod command;
pub mod data;
pub(crate) mod difference;
pub mod drive;
pub mod keys;
mod metrics;
pub mod outline;
pub mod parameter;
pub mod part;
pub mod prepare;
pub mod read;
pub mod schema;
pub(crate) mod section;
pub(crate) mod source;
pub mod sweep;
pub mod sweep_report;
pub mod sweep_summary;
pub mod template;
pub mod text;
mod timeline;
#[cfg(test)]
mod timeline_tests;
pub mod workloads;
pub mod write;

pub use self::data::Plan;
pub use self::read::FromFile;
