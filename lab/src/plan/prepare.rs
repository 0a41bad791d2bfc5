//! Checks a plan, and finds everything that it names: machines, designs, knobs and the workload.

use plimsoll_mm::tunables::{Knob, Tunables};
use plimsoll_mm::units::{Nanos, Pages};
use plimsoll_sim::profile::{CostKey, Profile};

use super::data::{DesignOf, Knobs, Plan};
use super::parameter::Values;
use super::read::Problem;
use super::section::join;
use super::workloads::{self, Workload};
use super::{difference, metrics, timeline};
use crate::catalog::designs::{self, Named};
use crate::catalog::tuned::Tuned;
use crate::catalog::{knobs, machines};
use crate::error::Error;
use crate::run::aging::{self, Memory};
use crate::run::options::Jitter;
use crate::run::testbed::Testbed;

/// How many slots of swap a run can have at most: 256 GiB.
const SLOTS_MAX: u32 = 1 << 26;
/// The smallest and the largest factor, in percent, by which the price of a simulated step can be
/// scaled.
const PERCENT: std::ops::RangeInclusive<u32> = 1..=10_000;

/// A checked plan: everything that it names exists. It has no sweep, because each combination of
/// values in a sweep is a separate plan.
#[derive(Debug)]
pub struct Prepared<'p> {
    /// The plan.
    pub plan: &'p Plan,
    /// The workload.
    pub workload: &'static Workload,
    /// The designs, each with the values of its knobs. The name of a design is its label in the
    /// plan.
    pub designs: Vec<Tuned>,
    /// The virtual length of each run.
    pub length: Nanos,
    /// The machines.
    pub machines: Vec<PlannedMachine>,
}

impl Prepared<'_> {
    /// Returns a text which says that the runs are too short to show the difference between two
    /// designs. Returns `None` if they are long enough. If two designs differ in the vmstat work, a
    /// run must last at least two intervals of this work to show the difference.
    #[must_use]
    pub fn too_short(&self) -> Option<String> {
        difference::too_short(&self.designs, self.length)
    }
}

/// One machine of a plan, and the state in which a run on the machine begins.
#[derive(Clone, Debug)]
pub struct PlannedMachine {
    /// The machine as the plan names it.
    pub machine: String,
    /// The description of the machine.
    pub profile: Profile,
    /// The values of the workload's parameters on this machine.
    pub values: Values,
    pub(super) start: Start,
}

/// The state of the machine's memory when a run begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    memory: Option<Memory>,
    /// How many pages are left free on each node, if `memory` is given.
    leave: Pages,
}

impl Start {
    fn new(
        workload: &Workload,
        profile: &Profile,
        values: &Values,
        memory: Option<Memory>,
    ) -> Self {
        let needs = values
            .get("workers")
            .saturating_mul((workload.needs)(values));
        let nodes = profile.node_bytes.len().max(1) as u64;
        Self {
            memory,
            leave: Pages::from_bytes(needs.saturating_mul(3) / 2 / nodes),
        }
    }

    pub(super) fn begin(self, testbed: &Testbed) -> Result<(), Error> {
        let memory = self
            .memory
            .map(|memory| aging::begin(testbed, memory, self.leave));
        memory.unwrap_or(Ok(()))
    }

    pub(super) fn about(self) -> String {
        let memory = self.memory.map(|memory| {
            let mib = self.leave.bytes() >> 20;
            format!(
                "Memory is {} at the start, and {mib} MiB of each node are free.",
                memory.name()
            )
        });
        memory.unwrap_or_else(|| "All memory is free at the start.".to_owned())
    }
}

/// The mistakes that have been found in a plan so far.
#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, key: impl Into<String>, why: Error) {
        self.push(key.into(), false, why);
    }

    fn invalid(&mut self, key: impl Into<String>, why: impl Into<String>) {
        self.add(key, Error::Invalid(why.into()));
    }

    fn push(&mut self, key: String, on_key: bool, why: Error) {
        self.0.push(Problem { key, on_key, why });
    }

    /// Returns the value of `result`. If `result` is an error, adds a problem with the value of
    /// `key`. But if the error is an unknown name and `key` ends with this name, adds a problem
    /// with the key itself.
    fn take<T>(&mut self, key: &str, result: Result<T, Error>) -> Option<T> {
        let is_name = |why: &Error| match why {
            Error::Unknown { name, .. } => key.ends_with(name.as_str()) || key.ends_with('"'),
            _ => false,
        };
        result
            .map_err(|why| self.push(key.to_owned(), is_name(&why), why))
            .ok()
    }
}

/// Checks `plan` without its sweep, and finds the machines, designs, knobs and the workload that
/// the plan names.
///
/// # Errors
/// Everything that is wrong with the plan. The order is: workload, machines, designs, all other
/// settings.
pub fn prepare(plan: &Plan) -> Result<Prepared<'_>, Vec<Problem>> {
    let mut problems = Problems::default();
    let workload = check_workload(&mut problems, plan);
    let profiles = check_machines(&mut problems, plan);
    let designs = check_designs(&mut problems, plan);
    let Some(workload) = workload.filter(|_| problems.0.is_empty()) else {
        return Err(problems.0);
    };
    let auto = || difference::length_ms(&designs) * 1_000_000 + timeline::last(plan).0;
    let length = Nanos(plan.length_ms.map_or_else(auto, |ms| ms * 1_000_000));
    if plan.memory.is_some() && workload.swap.is_some() {
        let name = workload.name;
        let why = format!("{name} decides itself how much memory is free; choose no memory");
        problems.invalid("memory", why);
    }
    let mut machines = Vec::new();
    for (machine, profile) in profiles {
        let cpus = profile.topology.cpus();
        problems
            .0
            .extend(timeline::check(plan, &machine, cpus, length));
        let online = timeline::online_at_start(plan, cpus);
        let values = Values::new(workload.parameters, &plan.parameters, online);
        let start = Start::new(workload, &profile, &values, plan.memory);
        machines.push(PlannedMachine {
            machine,
            profile,
            values,
            start,
        });
    }
    check_timeline(&mut problems, plan);
    if !problems.0.is_empty() {
        return Err(problems.0);
    }
    for planned in &machines {
        check_scene(&mut problems, plan, workload, &designs[0], planned);
    }
    metrics::check(plan, workload, &machines[0].profile, &mut problems.0);
    if !problems.0.is_empty() {
        return Err(problems.0);
    }
    Ok(Prepared {
        plan,
        workload,
        designs,
        length,
        machines,
    })
}

fn check_workload(problems: &mut Problems, plan: &Plan) -> Option<&'static Workload> {
    let workload = problems.take("workload.name", workloads::find(&plan.workload))?;
    for (name, &value) in &plan.parameters {
        let key = join("workload", name);
        if let Some(parameter) = problems.take(&key, workload.parameter(name)) {
            problems.take(&key, parameter.check(value));
        }
    }
    Some(workload)
}

/// Loads the machines of the plan, and scales the prices of their steps as the plan says. Adds each
/// mistake to `problems`.
fn check_machines(problems: &mut Problems, plan: &Plan) -> Vec<(String, Profile)> {
    let mut scaled = Vec::new();
    for (name, &percent) in &plan.prices {
        let key = join("prices", name);
        let names: Vec<String> = CostKey::all().map(|known| known.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let price = name.parse::<CostKey>();
        let price = price.map_err(|_| Error::unknown("price", name, &names));
        if !PERCENT.contains(&percent) {
            problems.invalid(key.clone(), "the factor of a price is 0.01 to 100");
        }
        scaled.extend(problems.take(&key, price).map(|price| (price, percent)));
    }
    if plan.machines.is_empty() {
        problems.invalid("machines", "name a machine");
    }
    let mut profiles: Vec<(String, Profile)> = Vec::new();
    for (nth, machine) in plan.machines.iter().enumerate() {
        let key = format!("machines[{nth}]");
        if profiles.iter().any(|(other, _)| other == machine) {
            problems.invalid(key, "the machine stands here twice");
            continue;
        }
        let loaded = machines::load_in(&plan.folder, machine, plan.card);
        let Some(mut profile) = problems.take(&key, loaded) else {
            continue;
        };
        for &(price, percent) in scaled.iter().filter(|(_, percent)| *percent != 100) {
            let name = format!("{}@{price}={percent}", profile.name);
            profile = profile.with_scaled(price, percent);
            profile.name = name;
        }
        if plan.jitter == Jitter::Off {
            profile = profile.without_jitter();
        }
        profiles.push((machine.clone(), profile));
    }
    profiles
}

fn check_designs(problems: &mut Problems, plan: &Plan) -> Vec<Tuned> {
    let mut usual = Tunables::default();
    let before = problems.0.len();
    check_knobs(problems, "knobs", &plan.knobs, &mut usual);
    let refused_usual = problems.0.len() > before;
    if plan.designs.is_empty() {
        problems.invalid("design", "name a design");
    }
    let mut all: Vec<Tuned> = Vec::new();
    for (nth, of) in plan.designs.iter().enumerate() {
        let path = format!("design[{nth}]");
        let before = problems.0.len();
        let mut tunables = usual;
        let found = problems.take(&format!("{path}.design"), designs::find(&of.design));
        check_knobs(problems, &format!("{path}.knobs"), &of.knobs, &mut tunables);
        // If the value of a knob is refused, the knob keeps its default, so the design could look
        // the same as another design. Therefore such a design is left out of the check for equal
        // designs.
        let is_refused = refused_usual || problems.0.len() > before;
        let Some(found) = found.filter(|_| !is_refused) else {
            continue;
        };
        let named = Named {
            name: of.label.clone(),
            design: found.design,
        };
        let tuned = Tuned { named, tunables };
        if let Some(other) = all.iter().find(|other| is_same(plan, other, &tuned)) {
            let why = format!("`{other}` and `{tuned}` are the same design: name two that differ");
            problems.invalid(format!("{path}.design"), why);
        } else if all.iter().any(|other| other.named.name == of.label) {
            let why = format!(
                "two designs are called `{}`: give one another name",
                of.label
            );
            problems.invalid(format!("{path}.name"), why);
        }
        all.push(tuned);
    }
    all
}

/// Returns whether the runs of two designs must be identical, because the designs have the same
/// settings.
fn is_same(plan: &Plan, one: &Tuned, other: &Tuned) -> bool {
    one.named.design.variants() == other.named.design.variants()
        && one.tunables == other.tunables
        && timeline::of_design(plan, &one.named.name)
            == timeline::of_design(plan, &other.named.name)
}

fn check_knobs(problems: &mut Problems, path: &str, of: &Knobs, tunables: &mut Tunables) {
    for (nth, (name, &value)) in of.iter().enumerate() {
        let key = join(path, name);
        let knob = Knob::named(name);
        let mut before = of.keys().take(nth);
        match before.find(|other| knob.is_some() && Knob::named(other) == knob) {
            Some(other) => {
                let why = format!("`{other}` and `{name}` are one knob: set it only once");
                problems.invalid(key, why);
            }
            None => {
                problems.take(&key, knobs::set_value(tunables, name, value));
            }
        }
    }
}

fn check_timeline(problems: &mut Problems, plan: &Plan) {
    let labels: Vec<&str> = plan
        .designs
        .iter()
        .map(|of: &DesignOf| of.label.as_str())
        .collect();
    for (nth, moment) in plan.timeline.iter().enumerate() {
        let path = format!("timeline[{nth}]");
        check_knobs(
            problems,
            &format!("{path}.set"),
            &moment.set,
            &mut Tunables::default(),
        );
        for (which, label) in moment.designs.iter().enumerate() {
            if !labels.contains(&label.as_str()) {
                let why = Error::unknown("design", label, &labels);
                problems.add(format!("{path}.designs[{which}]"), why);
            }
        }
    }
}

/// Checks that the workload does not need too much swap, and that the machine has enough memory to
/// begin a run as the plan says. Without this check, a lack of memory would lead to a panic in a
/// run.
fn check_scene(
    problems: &mut Problems,
    plan: &Plan,
    workload: &Workload,
    design: &Tuned,
    planned: &PlannedMachine,
) {
    if let Some(slots) = workload.swap.map(|slots| slots(&planned.values))
        && slots > SLOTS_MAX
    {
        let why = format!(
            "{slots} slots of swap are too many, the most is {SLOTS_MAX}: take fewer workers or \
             pages"
        );
        problems.invalid("workload", why);
    }
    if plan.memory.is_some() {
        let testbed = Testbed::new(&planned.profile, design.named.design, 1);
        problems.take("memory", planned.start.begin(&testbed));
    }
}
