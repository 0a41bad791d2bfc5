//! The workloads that a user can name, with their parameters.

use plimsoll_mm::machine::Machine;
use plimsoll_mm::units::{CpuId, Nanos};

use super::parameter::{Parameter, Values};
use crate::error::Error;
use crate::measure::tasks::Tasks;
use crate::run::testbed::Testbed;
use crate::workload::make_like::MakeLike;
use crate::workload::overcommit::Overcommit;
use crate::workload::stress_vm::{Pause, StressVm};
use crate::workload::victim::KilledApps;

/// A workload that the user can name.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name that `plimsoll compare` and the key `workload.name` accept.
    pub name: &'static str,
    /// A one-line description. `{parameter}` stands for the value of a parameter.
    pub about: &'static str,
    /// A description of the workload's tasks. A run measures how long each task takes. `None` if
    /// the workload has no tasks.
    pub task: Option<&'static str>,
    /// The parameters that the user can choose.
    pub parameters: &'static [Parameter],
    /// The function that returns the number of swap slots. `None` if no pages are reclaimed.
    pub(super) swap: Option<fn(&Values) -> u32>,
    /// The function that returns how many bytes each worker needs. If the user chooses a state of
    /// memory (such as `aged`), a run begins with one and a half times the bytes of all workers free.
    pub(super) needs: fn(&Values) -> u64,
    /// The function that starts the workload. It returns a record of the workload's tasks, or
    /// `None` if there are no tasks.
    pub(super) start: fn(&Testbed, &Values, Nanos) -> Option<Tasks>,
}

const WORKERS: Parameter = Parameter {
    name: "workers",
    about: "processes that run at the same time (make-like: jobs; killed-apps: pairs of CPUs)",
    unit: "processes",
    default: None,
    min: 1,
    max: 16_384,
};

const MIB_PER_WORKER: Parameter = Parameter {
    name: "mib_per_worker",
    about: "memory that each worker maps in a round; with pauses, half to one and a half times it",
    unit: "MiB",
    default: Some(64),
    min: 1,
    max: 1 << 20,
};

const USE_NS_PER_PAGE: Parameter = Parameter {
    name: "use_ns_per_page",
    about: "time to write a mapped page and read it back",
    unit: "ns",
    default: Some(400),
    min: 0,
    max: 1_000_000_000,
};

const PAUSE_MS: Parameter = Parameter {
    name: "pause_ms",
    about: "mean sleep between two rounds or processes; 0: none",
    unit: "ms",
    default: Some(0),
    min: 0,
    max: 3_600_000,
};

/// The parameters of a `stress-vm` in which workers sleep for `pause_ms` between two rounds.
const fn stress_parameters(pause_ms: u64) -> [Parameter; 4] {
    let pause = Parameter {
        default: Some(pause_ms),
        ..PAUSE_MS
    };
    [WORKERS, MIB_PER_WORKER, USE_NS_PER_PAGE, pause]
}

/// The description of the tasks in workloads of the kind `stress-vm`. Each round is one task.
const ROUND: &str = "a round: a worker maps, uses and unmaps its memory";

/// The workloads that `plimsoll compare` and experiment files accept.
pub static WORKLOADS: [Workload; 5] = [
    Workload {
        name: "stress-vm",
        about: "stress-ng --vm: each worker maps {mib_per_worker} MiB, writes and checks it, \
                unmaps, repeats",
        task: Some(ROUND),
        parameters: &const { stress_parameters(0) },
        swap: None,
        needs: stress_needs,
        start: stress,
    },
    Workload {
        name: "stress-vm-bursts",
        about: "stress-vm with about {pause_ms} ms of sleep between two rounds",
        task: Some(ROUND),
        parameters: &const { stress_parameters(1000) },
        swap: None,
        needs: stress_needs,
        start: stress,
    },
    Workload {
        name: "make-like",
        about: "make -j: short processes of about {pages} pages, each on any CPU, that count \
                their resident pages",
        task: Some("a process, from its fork to the end of its exit"),
        parameters: &[
            WORKERS,
            Parameter {
                name: "pages",
                about: "mean number of pages that a process touches",
                unit: "pages",
                default: Some(2000),
                min: 1,
                max: 1 << 20,
            },
            Parameter {
                name: "think_ns_per_page",
                about: "mean time that a process computes for each page, besides the page fault",
                unit: "ns",
                default: Some(1000),
                min: 0,
                max: 1_000_000_000,
            },
            Parameter {
                default: Some(1),
                ..PAUSE_MS
            },
        ],
        swap: None,
        // A process maps at most one and a half times `pages` pages.
        needs: |values| (values.get("pages") * 3 / 2) << 12,
        start: |testbed, values, until| {
            let make = MakeLike {
                jobs: values.small("workers"),
                pages: values.small("pages") as usize,
                think_ns_per_page: values.small("think_ns_per_page"),
                pause: Nanos::from_ms(values.get("pause_ms")),
                counts_rss: true,
            };
            Some(make.start(testbed, until))
        },
    },
    Workload {
        name: "killed-apps",
        about: "apps of {mappings} mappings are filled, killed and reaped at once, on two CPUs \
                each",
        task: Some("the death of an app, from the kill until its memory is free"),
        parameters: &[
            WORKERS,
            Parameter {
                name: "mappings",
                about: "small mappings of each app",
                unit: "mappings",
                default: Some(300),
                min: 1,
                max: 3000,
            },
        ],
        swap: None,
        // An app with the largest allowed number of mappings has about 520 MiB.
        needs: |_| 520 << 20,
        start: |testbed, values, until| {
            let apps = KilledApps {
                pairs: values.small("workers"),
                mappings: values.small("mappings"),
            };
            Some(apps.start(testbed, until))
        },
    },
    Workload {
        name: "overcommit",
        about: "processes of {pages} pages touch random pages, with {memory_percent} % of their \
                memory; the rest is in swap",
        task: None,
        parameters: &[
            WORKERS,
            Parameter {
                name: "pages",
                about: "pages of each process",
                unit: "pages",
                default: Some(4096),
                min: 2,
                max: 1 << 18,
            },
            Parameter {
                name: "memory_percent",
                about: "memory for all processes together, in percent of what they use",
                unit: "%",
                default: Some(80),
                min: 10,
                max: 200,
            },
            Parameter {
                name: "think_ns",
                about: "time that a process computes between two touches",
                unit: "ns",
                default: Some(2000),
                min: 0,
                max: 1_000_000_000,
            },
        ],
        swap: Some(|values| overcommitted(values).slots(values.small("workers"))),
        // The workload itself decides how much memory is free.
        needs: |_| 0,
        start: |testbed, values, until| {
            overcommitted(values).start(testbed, &spread(testbed, values.small("workers")), until);
            None
        },
    },
];

impl Workload {
    /// Finds the declaration of the parameter `name`.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the nearest names, if there is no such parameter.
    pub fn parameter(&self, name: &str) -> Result<&'static Parameter, Error> {
        let found = self.parameters.iter().find(|of| of.name == name);
        let names: Vec<&str> = self.parameters.iter().map(|of| of.name).collect();
        found.ok_or_else(|| Error::unknown("parameter of the workload", name, &names))
    }
}

/// Finds the workload called `name`.
///
/// # Errors
/// [`Error::Unknown`] with the nearest names, if there is no such workload.
pub fn find(name: &str) -> Result<&'static Workload, Error> {
    let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
    let found = WORKLOADS.iter().find(|workload| workload.name == name);
    found.ok_or_else(|| Error::unknown("workload", name, &names))
}

/// Returns the CPU of each worker. Workers are spread evenly over the CPUs that are online. If
/// there are more workers than CPUs, several workers run on one CPU.
fn spread(testbed: &Testbed, workers: u32) -> Vec<CpuId> {
    let sim = &testbed.sim;
    let online: Vec<CpuId> = sim
        .topology()
        .ids()
        .filter(|&cpu| sim.is_online(cpu))
        .collect();
    let nth = |worker: usize| online[worker * online.len() / workers as usize];
    (0..workers as usize).map(nth).collect()
}

fn overcommitted(values: &Values) -> Overcommit {
    Overcommit {
        pages: values.small("pages"),
        memory_percent: values.small("memory_percent"),
        think_ns: values.small("think_ns"),
    }
}

fn stress_needs(values: &Values) -> u64 {
    let bytes = values.get("mib_per_worker") << 20;
    // With pauses, a round maps at most one and a half times `bytes`.
    if values.get("pause_ms") == 0 {
        bytes
    } else {
        bytes * 3 / 2
    }
}

fn stress(testbed: &Testbed, values: &Values, until: Nanos) -> Option<Tasks> {
    let pause = match values.get("pause_ms") {
        0 => Pause::No,
        ms => Pause::Asleep(Nanos::from_ms(ms)),
    };
    let worker = StressVm {
        bytes: values.get("mib_per_worker") << 20,
        use_ns_per_page: values.small("use_ns_per_page"),
        pause,
    };
    let done = worker.start(testbed, spread(testbed, values.small("workers")), until);
    Some(done.rounds)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_default_is_within_its_bounds_and_every_name_in_a_description_is_declared() {
        for workload in &WORKLOADS {
            for parameter in workload.parameters {
                let default = parameter.default.unwrap_or(1);
                assert!(parameter.check(default).is_ok(), "{}", parameter.name);
                assert!(parameter.check(parameter.max + 1).is_err());
                assert!(!parameter.about.is_empty() && !parameter.unit.is_empty());
            }
            let values = Values::new(workload.parameters, &BTreeMap::new(), 3);
            assert_eq!(values.get("workers"), 3, "one per CPU");
            let about = values.fill(workload.about);
            assert!(!about.contains('{'), "{about}");
            assert!((workload.needs)(&values) > 0 || workload.swap.is_some());
        }
    }

    #[test]
    fn a_slip_in_the_name_of_a_parameter_offers_the_name() {
        let error = find("make-like").and_then(|of| of.parameter("page"));
        let text = error.expect_err("a slip").to_string();
        assert!(text.contains("did you mean `pages`"), "{text}");
        find("make-lik").unwrap_err();
    }
}
