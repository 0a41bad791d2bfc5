//! Laws (tests for threads, model checkers and the simulator) of the shepherd (Linux:
//! `vmstat_shepherd`), the job that restarts the vmstat work of CPUs on which this work is not
//! scheduled. Once started, the shepherd is scheduled on exactly one online CPU, although CPUs go
//! offline and come back.

use alloc::vec;
use core::fmt;

use super::Law;
use crate::machine::{Job, JobState, Machine};
use crate::manager::Manager;
use crate::page::{Config, Layout};
use crate::units::{CpuId, Pages};

/// The state of the tests in this file: a manager whose shepherd (Linux: `vmstat_shepherd`) was
/// scheduled on CPU 0.
pub struct Watched<M: Machine>(Manager<M>);

impl<M: Machine> Watched<M> {
    fn new(machine: &M) -> Self {
        let watched = Self::before_start(machine);
        watched.0.start(machine);
        watched
    }

    fn before_start(machine: &M) -> Self {
        let config = Config::new(Layout::arena(Pages(1)));
        Self(Manager::new(machine, config).expect("one page is a layout"))
    }

    /// Asserts that the shepherd (Linux: `vmstat_shepherd`) is scheduled on no CPU.
    fn has_no_shepherd(&self, machine: &M) {
        let is_dormant = |cpu| machine.job_state(cpu, Job::Shepherd) == JobState::Dormant;
        assert!(
            machine.topology().ids().all(is_dormant),
            "no CPU has started it: {self:?}"
        );
    }

    /// Asserts that the shepherd (Linux: `vmstat_shepherd`) is pending on exactly one online CPU.
    fn has_one_shepherd(&self, machine: &M) {
        let cpus = self.0.pages().cpus();
        let waits = |cpu: &CpuId| machine.job_state(*cpu, Job::Shepherd) == JobState::Pending;
        let waiting = cpus.iter(machine).filter(waits).count();
        assert_eq!(waiting, 1, "online CPUs that the shepherd is deferred to");
    }
}

/// The shepherd's CPU goes offline while the shepherd runs. Exactly one CPU has the shepherd
/// afterwards.
#[must_use]
pub fn shepherd_moves_on<M: Machine>() -> Law<M, Watched<M>> {
    Law {
        name: "the shepherd is neither lost nor doubled when its CPU goes offline meanwhile",
        setup: Watched::new,
        bodies: vec![
            |machine, watched| {
                // The shepherd's timer has fired: the job is not pending while it runs.
                machine.cancel(CpuId(0), Job::Shepherd);
                watched.0.run(machine, Job::Shepherd);
            },
            |machine, watched| watched.0.cpu_going(machine, CpuId(0)),
        ],
        check: |machine, watched| watched.has_one_shepherd(machine),
    }
}

/// The shepherd's CPU goes offline, and so does the CPU that the shepherd would move to. Exactly
/// one online CPU has the shepherd afterwards.
#[must_use]
pub fn shepherd_moves_twice<M: Machine>() -> Law<M, Watched<M>> {
    Law {
        name: "the shepherd is neither lost nor doubled when two CPUs go offline at once",
        setup: Watched::new,
        bodies: vec![
            |machine, watched| watched.0.cpu_going(machine, CpuId(1)),
            |machine, watched| watched.0.cpu_going(machine, CpuId(0)),
        ],
        check: |machine, watched| watched.has_one_shepherd(machine),
    }
}

/// All CPUs go offline, and CPU 0 comes back. The shepherd is then scheduled on CPU 0 again.
#[must_use]
pub fn shepherd_waits_for_a_cpu<M: Machine>() -> Law<M, Watched<M>> {
    Law {
        name: "the shepherd returns with the first CPU when none was online",
        setup: Watched::new,
        bodies: vec![|machine, watched| {
            for cpu in machine.topology().ids().rev() {
                watched.0.cpu_going(machine, cpu);
                watched.0.cpu_dead(machine, cpu);
            }
            watched.0.cpu_online(machine, CpuId(0));
        }],
        check: |machine, watched| watched.has_one_shepherd(machine),
    }
}

/// The only online CPU goes offline while another comes online. The shepherd is then scheduled on
/// exactly one online CPU.
#[must_use]
pub fn shepherd_is_relieved<M: Machine>() -> Law<M, Watched<M>> {
    Law {
        name: "the shepherd is neither lost nor doubled when the only CPU goes and another comes",
        setup: |machine| {
            let watched = Watched::new(machine);
            for cpu in machine.topology().ids().skip(1) {
                watched.0.cpu_going(machine, cpu);
                watched.0.cpu_dead(machine, cpu);
            }
            watched
        },
        bodies: vec![
            |machine, watched| watched.0.cpu_going(machine, CpuId(0)),
            |machine, watched| watched.0.cpu_online(machine, CpuId(1)),
        ],
        check: |machine, watched| watched.has_one_shepherd(machine),
    }
}

/// A CPU that comes online does not start the shepherd before the embedder does.
#[must_use]
pub fn shepherd_waits_for_its_start<M: Machine>() -> Law<M, Watched<M>> {
    Law {
        name: "a CPU that goes and comes before the start does not start the shepherd",
        setup: Watched::before_start,
        bodies: vec![|machine, watched| {
            watched.0.cpu_going(machine, CpuId(0));
            watched.0.cpu_dead(machine, CpuId(0));
            watched.0.cpu_online(machine, CpuId(0));
        }],
        check: |machine, watched| watched.has_no_shepherd(machine),
    }
}

impl<M: Machine> fmt::Debug for Watched<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}
