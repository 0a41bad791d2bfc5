//! The workloads that `plimsoll compare` runs by name.

use plimsoll_mm::machine::Machine;
use plimsoll_mm::units::{CpuId, Nanos};

use crate::error::Error;
use crate::run::testbed::Testbed;
use crate::workload::make_like::MakeLike;
use crate::workload::overcommit::Overcommit;
use crate::workload::stress_vm::{Pause, StressVm};
use crate::workload::victim::KilledApps;

/// A workload that the user can name.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name that `plimsoll compare` accepts.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// The number of swap slots for a given number of workers; `None` if no pages are to be
    /// reclaimed.
    pub(super) swap: Option<fn(u32) -> u32>,
    /// The bytes that each worker needs. With `--memory`, one and a half times as
    /// much is free when a run begins.
    pub(super) needs: u64,
    pub(super) start: fn(&Testbed, u32, Nanos),
}

/// Processes that use a quarter more memory than they get.
const OVERCOMMIT: Overcommit = Overcommit {
    pages: 4096,
    memory_percent: 80,
    think_ns: 2000,
};

/// The workloads that `plimsoll compare` accepts.
pub const WORKLOADS: [Workload; 5] = [
    Workload {
        name: "stress-vm",
        about: "stress-ng --vm: each worker maps 64 MiB, writes and checks it, unmaps, repeats",
        swap: None,
        needs: STRESS_BYTES,
        start: |testbed, workers, until| stress(testbed, workers, until, Pause::No),
    },
    Workload {
        name: "stress-vm-bursts",
        about: "the same with about a second of sleep between two rounds",
        swap: None,
        // A round maps up to half as much again.
        needs: STRESS_BYTES * 3 / 2,
        start: |testbed, workers, until| {
            stress(testbed, workers, until, Pause::Asleep(Nanos::SECOND));
        },
    },
    Workload {
        name: "make-like",
        about: "make -j: short processes of about 2000 pages, each on any CPU",
        swap: None,
        // A process maps up to half as much again.
        needs: 3000 << 12,
        start: |testbed, workers, until| {
            let make = MakeLike {
                jobs: workers,
                pages: 2000,
                think_ns_per_page: 1000,
                pause: Nanos::from_ms(1),
            };
            make.start(testbed, until);
        },
    },
    Workload {
        name: "killed-apps",
        about: "apps of 300 mappings are filled, killed and reaped at once, on two CPUs each",
        swap: None,
        // An app with ten times as many mappings has some 520 MiB.
        needs: 520 << 20,
        start: |testbed, workers, until| {
            let apps = KilledApps {
                pairs: workers,
                mappings: 300,
            };
            apps.start(testbed, until);
        },
    },
    Workload {
        name: "overcommit",
        about: "processes of 16 MiB touch random pages, with 80 % of their memory; the rest is in swap",
        swap: Some(|workers| OVERCOMMIT.slots(workers)),
        // The workload itself decides how much memory is free.
        needs: 0,
        start: |testbed, workers, until| {
            let cpus: Vec<CpuId> = (0..workers)
                .map(|worker| spread(testbed, workers, worker))
                .collect();
            OVERCOMMIT.start(testbed, &cpus, until);
        },
    },
];

/// The bytes that a worker of `stress-vm` maps.
const STRESS_BYTES: u64 = 64 << 20;

/// Finds the workload called `name`.
pub(super) fn find(name: &str) -> Result<&'static Workload, Error> {
    let names = WORKLOADS.map(|workload| workload.name);
    let found = WORKLOADS.iter().find(|workload| workload.name == name);
    found.ok_or_else(|| Error::unknown("workload", name, &names))
}

/// Returns the CPU of a worker, if workers are spread evenly over the CPUs. If there are more
/// workers than CPUs, several run on one CPU.
fn spread(testbed: &Testbed, workers: u32, worker: u32) -> CpuId {
    let cpus = testbed.sim.topology().cpus();
    let nth = u64::from(worker) * u64::from(cpus) / u64::from(workers);
    CpuId(u32::try_from(nth).unwrap_or(0))
}

fn stress(testbed: &Testbed, workers: u32, until: Nanos, pause: Pause) {
    let worker = StressVm {
        bytes: STRESS_BYTES,
        use_ns_per_page: 400,
        pause,
    };
    let cpus = (0..workers).map(|worker| spread(testbed, workers, worker));
    worker.start(testbed, cpus, until);
}
