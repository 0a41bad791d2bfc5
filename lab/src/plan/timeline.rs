//! The changes at certain times of each run: CPUs go offline or come online, and knobs change.
//!
//! A CPU goes offline by the same steps as in Linux: the manager stops the CPU's vmstat work, the
//! CPU's tasks move to other CPUs, and then the manager drains the CPU's page lists. A worker that
//! had to move stays on its new CPU if its old CPU comes back.

use std::collections::BTreeSet;
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::Sim;

use super::data::{Moment, Plan};
use super::read::Problem;
use crate::error::Error;
use crate::run::testbed::Testbed;

/// How often the daemon that takes CPUs offline checks whether the tasks of these CPUs have moved.
/// A task can move only while it holds no sleeping lock and is outside every section that keeps it
/// on its CPU.
const LOOK_EVERY: Nanos = Nanos(1_000_000);

/// The moments of `plan` that happen in runs of the design `label`, in the order of time.
pub(super) fn of_design(plan: &Plan, label: &str) -> Vec<Moment> {
    let mut moments = plan.timeline.clone();
    for moment in &mut moments {
        if !moment.designs.is_empty() && moment.designs.iter().all(|of| of != label) {
            moment.set.clear();
        }
    }
    moments.retain(|of| !(of.set.is_empty() && of.offline.is_empty() && of.online.is_empty()));
    // The sort is stable, so moments at the same time keep the order of the file.
    moments.sort_by_key(|moment| moment.at);
    moments
}

/// The number of CPUs, out of `cpus`, that are online when the workload starts.
pub(super) fn online_at_start(plan: &Plan, cpus: u32) -> u32 {
    let first = plan
        .timeline
        .iter()
        .filter(|moment| moment.at.0 == Nanos(0));
    let mut offline: BTreeSet<u32> = BTreeSet::new();
    for moment in first {
        offline.extend(moment.offline.cpus());
        for cpu in moment.online.cpus() {
            offline.remove(cpu);
        }
    }
    let offline = offline.into_iter().filter(|cpu| *cpu < cpus).count();
    cpus.saturating_sub(u32::try_from(offline).unwrap_or(u32::MAX))
}

/// The time of the last change in the timeline of `plan`. Zero if the timeline is empty.
pub(super) fn last(plan: &Plan) -> Nanos {
    let times = plan.timeline.iter().map(|moment| moment.at.0);
    times.max().unwrap_or(Nanos(0))
}

/// Returns the mistakes in the timeline of `plan`, for a machine with `cpus` CPUs.
pub(super) fn check(plan: &Plan, machine: &str, cpus: u32, length: Nanos) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut order: Vec<(usize, &Moment)> = plan.timeline.iter().enumerate().collect();
    order.sort_by_key(|(_, moment)| moment.at);
    let mut online: BTreeSet<u32> = (0..cpus).collect();
    for (nth, moment) in order {
        let mut problem = |key: &str, why: String| {
            problems.push(Problem {
                key: format!("timeline[{nth}]{key}"),
                on_key: false,
                why: Error::Invalid(why),
            });
        };
        if moment.set.is_empty() && moment.offline.is_empty() && moment.online.is_empty() {
            problem(
                "",
                "nothing happens: write set, offline or online".to_owned(),
            );
        }
        if moment.set.is_empty() && !moment.designs.is_empty() {
            let why = "only `set` can happen in some designs; CPUs go offline in all";
            problem(".designs", why.to_owned());
        }
        if moment.at.0 >= length {
            let at = format!("a run ends before, at {}", super::text::Time(length));
            problem(".at", at);
        }
        for (key, list) in [(".offline", &moment.offline), (".online", &moment.online)] {
            if let Some(last) = list.cpus().last().filter(|cpu| **cpu >= cpus) {
                let largest = cpus.saturating_sub(1);
                let why = format!("{machine} has no CPU {last}; its CPUs are 0 to {largest}");
                problem(key, why);
            }
        }
        for (key, why) in changes(moment, &mut online) {
            problem(key, why);
        }
    }
    problems
}

/// Changes the set `online` of CPUs as `moment` says. Returns the mistakes in `moment`.
fn changes(moment: &Moment, online: &mut BTreeSet<u32>) -> Vec<(&'static str, String)> {
    let mut mistakes = Vec::new();
    for cpu in moment.offline.cpus() {
        if *cpu == 0 {
            mistakes.push((".offline", "CPU 0 stays online, as on x86".to_owned()));
        } else if !online.remove(cpu) {
            mistakes.push((".offline", format!("CPU {cpu} is not online")));
        }
    }
    for cpu in moment.online.cpus() {
        if !online.insert(*cpu) {
            mistakes.push((".online", format!("CPU {cpu} is online already")));
        }
    }
    // Report only one mistake for each key: the first wrong CPU in the key's list.
    mistakes.dedup_by_key(|(key, _)| *key);
    mistakes
}

/// Schedules the changes of `moments` for a run that has not begun yet. Changes at time zero are
/// made at once.
pub(super) fn begin(testbed: &Testbed, moments: Vec<Moment>) {
    let (now, later): (Vec<Moment>, Vec<Moment>) = moments
        .into_iter()
        .partition(|moment| moment.at.0 == Nanos(0));
    for moment in &now {
        happen(&testbed.sim, &testbed.mm, moment);
    }
    if later.is_empty() {
        return;
    }
    let mm = Rc::clone(&testbed.mm);
    testbed.sim.spawn_daemon(CpuId(0), move |sim| {
        for moment in &later {
            sim.sleep_until(moment.at.0);
            happen(sim, &mm, moment);
        }
    });
}

fn happen(sim: &Sim, mm: &Manager<Sim>, moment: &Moment) {
    let going: Vec<CpuId> = moment.offline.cpus().iter().copied().map(CpuId).collect();
    if !going.is_empty() {
        let stays = |cpu: &CpuId| sim.is_online(*cpu) && !going.contains(cpu);
        let other = sim.topology().ids().find(stays);
        // A CPU cannot take itself offline. So the current task first moves to a CPU that stays
        // online. Before a run, there is no current task, and `migrate` does nothing.
        sim.migrate(other.expect("CPU 0 stays online"));
        for &cpu in &going {
            mm.cpu_going(sim, cpu);
            sim.set_online(cpu, false);
        }
        while going.iter().any(|&cpu| sim.has_tasks(cpu)) {
            sim.sleep(LOOK_EVERY);
        }
        going.iter().for_each(|&cpu| mm.cpu_dead(sim, cpu));
    }
    for &cpu in moment.online.cpus() {
        sim.set_online(CpuId(cpu), true);
        mm.cpu_online(sim, CpuId(cpu));
    }
    for (name, &value) in &moment.set {
        let (knob, value) = Knob::setting(name, value).expect("the check knows this knob");
        let set = mm.pages().set_tunable(sim, knob, value);
        set.expect("the check has found the value within its bounds");
    }
}

/// Describes the moment in words, for a part of a sentence.
pub(super) fn about(moment: &Moment) -> String {
    let mut happens = Vec::new();
    if !moment.offline.is_empty() {
        happens.push(format!("CPUs {} go offline", moment.offline));
    }
    if !moment.online.is_empty() {
        happens.push(format!("CPUs {} come online", moment.online));
    }
    for (knob, value) in &moment.set {
        let where_to = if moment.designs.is_empty() {
            String::new()
        } else {
            format!(" in {}", moment.designs.join(", "))
        };
        happens.push(format!("{knob} becomes {value}{where_to}"));
    }
    format!("at {}, {}", moment.at, happens.join(" and "))
}
