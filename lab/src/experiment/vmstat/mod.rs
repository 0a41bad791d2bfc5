//! `reproduce vmstat`: how many contentions does a kernel avoid by staggering the per-CPU vmstat
//! work, and why?
//!
//! The mailing-list thread measured one patch on one machine: contentions at `free_pcppages_bulk`
//! fell from 872 to 117. The patch makes two changes at once. Its author assumes that "all CPUs
//! fire together", but in fact only some CPUs at a time fire together. The experiment therefore
//! separates the causes: phase, interval, timer wheel and shepherd. For each cause, it compares
//! Linux with a design that differs from Linux only in this cause.
//!
//! The program that the thread measured is not known in full. So the experiment also runs a family
//! of workloads, on the machine with and without KASAN. It computes which workload gives ratios
//! nearest to the published ratios.
//!
//! The submodule `workloads` has the family, and `setup` has one workload and its metrics. `family`
//! runs the family and makes its tables. `likeness` computes distances from published ratios.
//! `causes` has the table that compares one cause at a time. `crowding` counts the CPUs that fire
//! together, by tick rate. `regime` shows how long a drain must be before the schedule matters.

mod causes;
mod crowding;
mod family;
mod likeness;
mod regime;
mod setup;
mod workloads;

use self::setup::{CONTENTIONS, METRICS, NUMBERS, VmstatSetup};
use self::workloads::MAIN;
use super::driver::{Clock, Code, Made, Part, Run, Runs, Tried, metrics_of};
use crate::measure::stats;
use crate::report::{Table, tabulate};

/// The workload of this experiment, which experiment files can name.
pub(super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<VmstatSetup> = Code {
    workload: "bursts-and-daemons",
    about: "bursts of allocations on two thirds of the CPUs, with long rests, and daemons on all",
    numbers: NUMBERS,
    of_designs: &[],
    takes_memory: false,
    clock: Clock::Virtual,
    setup: VmstatSetup::new,
    metrics: |_| metrics_of(METRICS),
    measure: |setup, case| (setup.measure(&case.design.design, case.seed), ()),
    parts: &[
        Part::new("family", |run| {
            let family = family::measure(run)?;
            let tables = family.tables().into_iter().collect::<Vec<_>>();
            Ok(Made::from(tables).fact("family", family.sentences()))
        })
        .naming(&[BASELINE, PATCH, OURS, SLOWED, PHASED_WHEEL])
        .giving(&["family"]),
        Part::new("causes", |run| {
            let clause = causes::Cause::of(&run.results).clause().to_owned();
            Ok(Made::from(causes::table(&run.results)).fact("cause", clause))
        })
        .naming(&causes::NAMED)
        .giving(&["cause"]),
        Part::new("spread", |run| Ok(spread(run).into())).naming(&[BASELINE, PATCH, OURS]),
        Part::new("crowding", |run| {
            let profile = &run.setup.profile;
            let crowding = crowding::measure(profile, run.options, run.progress)?;
            Ok(crowding.table().into())
        }),
        Part::new("regime", |run| {
            let profile = &run.setup.profile;
            let regime = regime::measure(profile, run.options, run.progress)?;
            Ok(regime.tables().into_iter().collect::<Vec<_>>().into())
        }),
    ],
    cells: &[],
};

/// The design of Linux, with which the other designs are compared. It batches frees, as Linux did
/// at the time of the mailing-list thread.
const BASELINE: &str = "round-jiffies+shepherd-at-once";
/// The design with the patch (`vmstat_spread_delay`) as it was posted.
const PATCH: &str = "stretched+shepherd-at-once";
const OURS: &str = "phased+shepherd-phased";
/// Two designs, each with only one of the patch's two changes: the longer interval (`SLOWED`), or
/// the phases (`PHASED_WHEEL`).
const SLOWED: &str = "slowed+shepherd-at-once";
const PHASED_WHEEL: &str = "phased-wheel+shepherd-at-once";

const SCHEDULES: [&str; 6] = [
    "round-jiffies",
    "aligned",
    "slowed",
    "stretched",
    "phased-wheel",
    "phased",
];
/// Makes a table that shows how much the number of contentions differs between single runs. Each
/// published number comes from a single run, so a reader needs to know how much one run can differ
/// from another.
fn spread(run: &Run<'_, VmstatSetup>) -> Table {
    let row = |design: &Tried| {
        let values = run.results.values(&design.name, &CONTENTIONS);
        let spread = stats::Spread::of(&values).expect("every design runs on a seed");
        (design.name.clone(), spread, values)
    };
    tabulate!(
        format!("How much single runs of {MAIN} differ"),
        "Contentions at free_pcppages_bulk over the seeds. A published count is that of one run.",
        &run.named(&[BASELINE, PATCH, OURS]).iter().map(row).collect::<Vec<_>>(),
        |(name, spread, values)| {
            "design" => name,
            "mean ± sd" => format!("{:.0} ± {:.0}", spread.mean, spread.deviation),
            "sd / mean" => format!("{:.0} %", spread.variation_percent().unwrap_or(0.0)),
            "from … to" => {
                let low = values.iter().copied().fold(f64::INFINITY, f64::min);
                let high = values.iter().copied().fold(0.0, f64::max);
                format!("{low:.0} to {high:.0}")
            },
        }
    )
}
