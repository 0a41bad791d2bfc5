//! Linux's detectors of stalls, as observers of a simulated machine: soft lockups, RCU stalls and
//! hung tasks.
//!
//! Each detector is a small state machine with Linux's thresholds and Linux's arithmetic. The
//! module `watch` passes the actions of a simulated machine to the detectors.

pub mod hung_task;
pub mod rcu;
pub mod soft_lockup;
pub mod watch;
