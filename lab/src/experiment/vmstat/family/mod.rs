//! Runs Linux, the patch and our design in every workload of the vmstat experiment, on both
//! machines. Shows each metric as a ratio to Linux, together with the published ratios.
//!
//! The submodule `member` has one workload on one machine, and `tables` has the tables.

mod member;
mod tables;

use std::collections::BTreeMap;

use self::member::{COMPARED, Member};
use super::causes::Cause;
use super::likeness::{self, Beside};
use super::setup::{PERF_CONTENTIONS, PERF_TOTAL_WAIT, VmstatSetup};
use super::workloads::{FAMILY, MAIN};
use super::{BASELINE, OURS, PATCH, PHASED_WHEEL, SLOWED};
use crate::error::Error;
use crate::experiment::driver::{Results, Run};
use crate::measure::comparison::Comparison;
use crate::measure::metric::Metric;
use crate::report::misses::Beside as Figure;
use crate::report::value::ratio_of;
use crate::run::options::{Effort, Options};
use crate::workload::mix::Mix;

/// The designs that run in every workload.
const DESIGNS: [&str; 3] = [BASELINE, PATCH, OURS];

/// Further designs. They show which change of the patch reduces the contentions. They run in every
/// workload on the machine of the report. To keep the experiment short, they do not run on the
/// other machine.
const SEPARATE: [&str; 2] = [SLOWED, PHASED_WHEEL];

/// All workloads on all machines.
pub(super) struct Family {
    members: Vec<Member>,
    /// The machines of the experiment. Only the report on the first machine has the tables of all
    /// workloads.
    machines: Vec<String>,
    /// The published figures.
    figures: Vec<Figure>,
    seconds: u64,
    seeds: usize,
}

/// Runs all workloads on all machines. The workload [`MAIN`] has already run on the machine of this
/// report, so its results are reused. In a full run, [`MAIN`] also runs on the other machine, for
/// the same time and on the same seeds. All other runs are shorter and have fewer seeds.
pub(super) fn measure(run: &Run<'_, VmstatSetup>) -> Result<Family, Error> {
    let numbers = run.numbers();
    let seconds = numbers.get("family_seconds");
    let seeds = numbers.count("family_seeds");
    let short = Options {
        seeds: run.options.seeds.iter().copied().take(seeds).collect(),
        ..run.options.clone()
    };
    let mut members = Vec::new();
    for machine in run.machines() {
        for workload in &FAMILY {
            let results = match (workload.name == MAIN, run.options.effort) {
                (true, _) if machine == run.machine => run.results.clone(),
                (true, Effort::Full) => {
                    let setup = run.setup_on(machine, run.card, run.options.effort)?;
                    compare(run, &setup, run.options)?
                }
                _ => {
                    let profile = run.load(machine, run.card)?;
                    let setup = VmstatSetup::of(workload.name, profile, seconds)?;
                    compare(run, &setup, &short)?
                }
            };
            members.push(Member {
                workload,
                machine: machine.clone(),
                results,
            });
        }
    }
    Ok(Family {
        members,
        machines: run.machines().to_vec(),
        figures: run.figures_beside()?,
        seconds,
        seeds: short.seeds.len(),
    })
}

fn compare(
    run: &Run<'_, VmstatSetup>,
    setup: &VmstatSetup,
    options: &Options,
) -> Result<Results, Error> {
    let machine = &setup.profile.name;
    run.start(machine, setup.workload.name);
    let separate = &SEPARATE[..if machine == run.machine { 2 } else { 0 }];
    let designs = run.named(&[&DESIGNS, separate].concat());
    let compared = Comparison::run(&designs, options, run.progress, |case| {
        setup.measure(&case.design.design, case.seed)
    })?;
    Ok(Results::new(compared))
}

impl Family {
    /// The sentences about all workloads for the report's conclusion. Every statement in these
    /// sentences is computed from the runs.
    pub(super) fn sentences(&self) -> String {
        format!(
            "Over {} workloads on {} machines the patch's contentions, as perf counts them, are {} \
             times Linux's and their total wait {} times; {}. {}",
            FAMILY.len(),
            self.machines.len(),
            self.range(&PERF_CONTENTIONS),
            self.range(&PERF_TOTAL_WAIT),
            self.likeness(),
            self.due_to(),
        )
    }

    /// Formats the range of the ratios of all members (a member is a workload on a machine). The
    /// ratio of a member is `metric` with the patch divided by `metric` with Linux, as the median
    /// over the seeds. A member in which Linux's median is zero is left out.
    fn range(&self, metric: &Metric) -> String {
        let ratios = self.members.iter().filter_map(|one| one.ratio(metric));
        let ratios: Vec<f64> = ratios.collect();
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        format!("{} to {}", ratio_of(1.0, low), ratio_of(1.0, high))
    }

    /// The clause that compares our workloads with the workload of the mailing-list thread. It
    /// lists the workloads whose four ratios are within a factor of 2 of the published ratios on
    /// every machine, if there are any. It also names the workload that is nearest to the published
    /// ratios.
    fn likeness(&self) -> String {
        let complete = self.beside();
        let is_like = |pairs: &Vec<Beside>| pairs.iter().all(|pair| pair.is_within_two());
        let like = complete.iter().filter(|(_, pairs)| is_like(pairs));
        let like: Vec<&str> = like.map(|(name, _)| *name).collect();
        let Some((name, apart)) = likeness::nearest(complete) else {
            return "no workload has contentions on both machines, so none can be compared with the \
                    published figures"
                .to_owned();
        };
        let like = if like.is_empty() {
            "no workload has all four ratios within a factor of 2 of the published ones on both \
             machines"
                .to_owned()
        } else {
            let like = like.join(", ");
            format!(
                "workloads with all four ratios within a factor of 2 of the published ones on both \
                 machines: {like}"
            )
        };
        format!("{like}; the nearest is {name}, typically {apart:.1} × apart")
    }

    /// For each workload, the ratios of the patch to Linux on all machines, together with the
    /// published ratios. Leaves out the workloads for which a ratio is missing because Linux's
    /// median is zero.
    fn beside(&self) -> Vec<(&'static str, Vec<Beside>)> {
        let of_workload = |mix: &'static Mix| {
            let members = self.members_of(mix.name);
            (
                mix.name,
                members.flat_map(|one| one.beside(&self.figures)).collect(),
            )
        };
        let mut all: Vec<(_, Vec<_>)> = FAMILY.iter().map(of_workload).collect();
        all.retain(|(_, pairs)| pairs.len() == self.machines.len() * COMPARED.len());
        all
    }

    fn members_of(&self, workload: &str) -> impl Iterator<Item = &Member> {
        let members = self.members.iter();
        members.filter(move |member| member.workload.name == workload)
    }

    /// The workloads on the first machine. The designs of [`SEPARATE`], which show why the patch
    /// lowers contentions, ran only on this machine.
    fn separated(&self) -> impl Iterator<Item = &Member> {
        let members = self.members.iter();
        members.filter(|member| member.machine == self.machines[0])
    }

    /// The sentence that lists the causes of the patch's drop in contentions, each with the
    /// workloads in which it is the cause.
    fn due_to(&self) -> String {
        let mut by_cause: BTreeMap<Cause, Vec<&str>> = BTreeMap::new();
        for member in self.separated() {
            let names = by_cause.entry(member.cause()).or_default();
            names.push(member.workload.name);
        }
        let each = by_cause.iter();
        let each = each.map(|(cause, names)| format!("{} in {}", cause.words(), names.join(", ")));
        let each: Vec<String> = each.collect();
        format!(
            "Cause of the patch's gain on {}: {}.",
            self.machines[0],
            each.join("; ")
        )
    }
}

#[cfg(test)]
mod tests;
