//! Sensitivity: which prices of a simulated machine (the times of its steps) decide the headlines
//! of the experiments (the comparisons that people quote).
//!
//! [`measure`] halves and doubles each price, runs the headline comparisons of an experiment again,
//! and keeps the results. The result is a committed file, which [`kept`] reads. [`decided`] looks
//! up the prices that decide the headlines of a report, and [`tables`] shows all results as tables.
//! [`headlines`] lists the headline comparisons.

pub mod decided;
pub mod headlines;
pub mod kept;
pub mod measure;
pub mod tables;
