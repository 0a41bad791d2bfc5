//! A plan: everything that determines the results of an experiment that a user asks for.
//!
//! The command line of `plimsoll compare` and an experiment file both make a plan. A plan is plain
//! data. The names in a plan do not have to exist, and the values do not have to be within bounds,
//! until [`prepare`](super::prepare::prepare) checks the plan.

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll_mm::tunables::Knob;
use plimsoll_sim::profile::Card;

use super::text::{CpuList, Time};
use crate::run::aging::Memory;
use crate::run::options::Jitter;

/// Values of knobs. The key is the name of the knob, in Plimsoll or in Linux.
pub type Knobs = BTreeMap<String, u64>;

/// Sets the knob `name` in `knobs`. A knob can have a name in Plimsoll and a name in Linux. If
/// `knobs` has a value under the other name, removes this value.
pub fn set_knob(knobs: &mut Knobs, name: &str, value: u64) {
    if let Some(knob) = Knob::named(name) {
        knobs.retain(|other, _| Knob::named(other) != Some(knob));
    }
    knobs.insert(name.to_owned(), value);
}

/// How many seeds a plan has unless the user chooses another number. It is the smallest number that
/// permits a verdict.
pub const SEEDS: u64 = 6;

/// An experiment that a user asks for, with all its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The name in the title of the reports.
    pub name: String,
    /// The question that the experiment answers. It can be empty.
    pub question: String,
    /// The machines: names of built-in machines, or paths of profile files. A relative path begins
    /// at `folder`.
    pub machines: Vec<String>,
    /// The folder of the experiment file. Empty for the current folder.
    pub folder: PathBuf,
    /// The name of the workload.
    pub workload: String,
    /// The values of those parameters of the workload that do not have their default values.
    pub parameters: BTreeMap<String, u64>,
    /// The state of memory when a run begins. With `None`, all memory is free, in blocks of the
    /// largest size. Otherwise, all memory that the workload does not need is in use until the run
    /// ends.
    pub memory: Option<Memory>,
    /// The virtual duration of each run, in milliseconds. With `None`, a run ends 1500 ms after the
    /// last moment of `timeline`. If the designs differ in the times at which the vmstat work
    /// (Linux's `vmstat_update`) runs, a run lasts at least five intervals of this work.
    pub length_ms: Option<u64>,
    /// The number of seeds. Every design runs with each of the seeds from 1 to this number.
    pub seeds: u64,
    /// Says whether interrupts, softirqs and steals (the hypervisor takes a CPU away) disturb the
    /// CPUs.
    pub jitter: Jitter,
    /// The price card, which says whether each price (the time of a simulated step) is the low end,
    /// the middle or the high end of its range.
    pub card: Card,
    /// The knobs of all designs. A design can set a knob itself; it then uses its own value.
    pub knobs: Knobs,
    /// The prices (the times of simulated steps) to scale, each with its factor in percent. The
    /// factor 100 does not change the price.
    pub prices: BTreeMap<String, u32>,
    /// The designs. Each design after the first is compared with the first.
    pub designs: Vec<DesignOf>,
    /// The names of the metrics to show. If there are no names, all metrics are shown.
    pub metrics: Vec<String>,
    /// Published figures to show beside ours.
    pub published: Vec<PublishedOf>,
    /// The axes (the settings to vary) along which the experiment is repeated. `None` runs the
    /// experiment once.
    pub sweep: Option<Sweep>,
    /// The moments at which each run is changed, in the order of the file.
    pub timeline: Vec<Moment>,
}

/// A design of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignOf {
    /// The name of this design in reports. No other design of the plan has this name.
    pub label: String,
    /// The name of the design, such as `linux+phased`.
    pub design: String,
    /// The knobs that only this design sets.
    pub knobs: Knobs,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedOf {
    /// The name of the metric.
    pub metric: String,
    /// The label of the design.
    pub design: String,
    /// The machine, as [`Plan::machines`] names it.
    pub machine: String,
    /// The value, as the user wrote the number. It has the unit of the metric.
    pub value: String,
    /// Where the value was published.
    pub source: String,
}

/// A sweep: settings that vary (axes), and the combinations of their values that run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The axes, in the order of the columns that show their values.
    pub axes: Vec<Axis>,
    /// How to draw at random the points (combinations of values) that run. `None` runs all points.
    pub random: Option<Draw>,
}

/// A random choice among all points (combinations of values) of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The number of points (combinations of values) to draw.
    pub points: u64,
    /// The seed by which the points are drawn.
    pub seed: u64,
}

/// One setting of a plan, and the values that the setting takes in a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The setting that changes.
    pub target: Target,
    /// The values that the setting takes.
    pub values: Vec<AxisValue>,
}

/// A setting that a sweep can change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The machine.
    Machine,
    /// The state of memory when a run begins.
    Memory,
    /// The price card, which says which end of every price range a run uses.
    Card,
    /// A parameter of the workload.
    Workload(String),
    /// A knob of all designs.
    Knob(String),
    /// The factor by which the price of one kind of simulated step is scaled.
    Price(String),
}

impl Target {
    /// The key under which this setting is an axis in the table `[sweep]` of an experiment file.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Machine => "machine".to_owned(),
            Self::Memory => "memory".to_owned(),
            Self::Card => "card".to_owned(),
            Self::Workload(name) => format!("workload.{name}"),
            Self::Knob(name) => format!("knob:{name}"),
            Self::Price(name) => format!("price:{name}"),
        }
    }

    /// Finds the target whose key is `key`. Returns `None` if there is no such target.
    #[must_use]
    pub fn of_key(key: &str) -> Option<Self> {
        let named = |prefix: &str| key.strip_prefix(prefix).map(str::to_owned);
        match key {
            "machine" => Some(Self::Machine),
            "memory" => Some(Self::Memory),
            "card" => Some(Self::Card),
            _ => named("workload.")
                .map(Self::Workload)
                .or_else(|| named("knob:").map(Self::Knob))
                .or_else(|| named("price:").map(Self::Price)),
        }
    }
}

/// One value of an axis of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxisValue {
    /// A whole number: the value of a parameter or of a knob.
    Whole(u64),
    /// The factor, in percent, by which the price of one kind of simulated step is scaled.
    Percent(u32),
    /// A name: a machine, a state of memory or a price card.
    Name(String),
}

/// A time in each run, and what happens at this time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The virtual time since the beginning of the run.
    pub at: Time,
    /// The CPUs that go offline.
    pub offline: CpuList,
    /// The CPUs that come online.
    pub online: CpuList,
    /// The knobs that change, with their new values.
    pub set: Knobs,
    /// The labels of the designs in which `set` changes knobs. If this list is empty, `set` changes
    /// the knobs of all designs.
    pub designs: Vec<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            name: String::new(),
            question: String::new(),
            machines: Vec::new(),
            folder: PathBuf::new(),
            workload: String::new(),
            parameters: BTreeMap::new(),
            memory: None,
            length_ms: None,
            seeds: SEEDS,
            jitter: Jitter::On,
            card: Card::Mid,
            knobs: Knobs::new(),
            prices: BTreeMap::new(),
            designs: Vec::new(),
            metrics: Vec::new(),
            published: Vec::new(),
            sweep: None,
            timeline: Vec::new(),
        }
    }
}
