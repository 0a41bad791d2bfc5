//! Promise: there is one shepherd (the job that restarts the vmstat work of CPUs), on an online
//! CPU, whichever CPUs go offline or come online.

use plimsoll_mm::machine::{Job, JobState, Machine};
use plimsoll_mm::units::CpuId;
use plimsoll_sim::Sim;

/// Checks that exactly one CPU has the job of the shepherd, which restarts the vmstat work of CPUs,
/// and that this CPU is online. No operation may be in progress.
pub(crate) fn check(sim: &Sim) {
    let has = |cpu: &CpuId| sim.job_state(*cpu, Job::Shepherd) != JobState::Dormant;
    let homes: Vec<CpuId> = sim.topology().ids().filter(has).collect();
    assert_eq!(homes.len(), 1, "one shepherd, not {homes:?}");
    assert!(sim.is_online(homes[0]), "the shepherd's CPU is online");
}
