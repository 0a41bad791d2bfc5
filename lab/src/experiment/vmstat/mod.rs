//! `reproduce vmstat`: what is gained by staggering the per-CPU vmstat work, and why?
//!
//! The mailing-list thread measured one patch on one machine: contentions at `free_pcppages_bulk`
//! fell from 872 to 117. The patch makes two changes at once. Its author assumes that "all CPUs
//! fire together", but in fact the timers of the CPUs fire in groups: only those of one group fire
//! together. The experiment therefore separates the causes: phase, interval, timer wheel and
//! shepherd. For each cause, it compares Linux with a design that differs from Linux only in this
//! cause.
//!
//! The program behind the published figures is not known in full. So the experiment also runs a
//! family of workloads, on the machine with and without KASAN, and computes which of them is
//! nearest to the published ratios.
//!
//! The submodule `workloads` has the family, `scene` one workload and its metrics. `family` runs
//! the family and makes its tables; `likeness` computes distances from published ratios. `causes`
//! has the table of one cause at a time. `crowding` counts the CPUs that fire together, by tick
//! rate. `regime` shows how long a drain must be to matter. `published` has the published figures.

mod causes;
mod crowding;
mod family;
mod likeness;
mod published;
mod regime;
mod scene;
mod workloads;

use self::scene::{
    CONTENTIONS, DECAY_CONTENTIONS, DECAYED, METRICS, PER_DECAYED, PER_RETURNED, PERF_CONTENTIONS,
    PERF_MAX_WAIT, PERF_MEAN_WAIT, PERF_TOTAL_WAIT, STARTING_TOGETHER, Scene,
};
use self::workloads::MAIN;
use super::Experiment;
use super::declared::{
    Cards, Clock, Declaration, Finding, OTHERS, Run, cards, metrics_of, variants_of,
};
use crate::catalog::designs::Named;
use crate::error::Error;
use crate::measure::metric::Metric;
use crate::measure::stats;
use crate::report::{Table, tabulate};
use crate::run::options::Effort;

/// The experiment's entry in the catalog.
pub(super) static EXPERIMENT: &dyn Experiment = &DECLARATION;

static DECLARATION: Declaration<Scene> = Declaration {
    name: "vmstat",
    question: "what does staggering the per-CPU vmstat work gain, and why?",
    machines: &MACHINES,
    clock: Clock::Virtual,
    designs,
    verdicts: &[(BASELINE, OTHERS)],
    published: published::PUBLISHED,
    setup: Scene::new,
    metrics: |_| metrics_of(METRICS),
    shown: None,
    compared: Some(|_| COMPARED.to_vec()),
    measure: |scene, case| (scene.measure(&case.design.design, case.seed), ()),
    cards: Some(&CARDS),
    conclude,
};

/// The design of Linux, with which every cause is compared. It batches frees, as Linux did at the
/// time of the mailing-list thread.
const BASELINE: &str = "round-jiffies+shepherd-at-once";
/// The design with the patch (`vmstat_spread_delay`) as it was posted.
const PATCH: &str = "stretched+shepherd-at-once";
const OURS: &str = "phased+shepherd-phased";
/// Two designs, each with only one of the patch's two changes: the longer interval (`SLOWED`), or
/// the phases (`PHASED_WHEEL`).
const SLOWED: &str = "slowed+shepherd-at-once";
const PHASED_WHEEL: &str = "phased-wheel+shepherd-at-once";

/// The machines on which the experiment runs. The report on the first one also shows all workloads.
const MACHINES: [&str; 2] = [MAPPED, PLAIN];

/// The machine whose kernel runs without KASAN.
const PLAIN: &str = "grace-72";

/// The machine for which the report also has the tables of the family, of the cards, by tick rate
/// and by drain length. A second machine that differs from this one only in its prices would repeat
/// them: the cards scale all prices, and the runs for the table by drain length multiply the price
/// of freeing a page by several factors.
const MAPPED: &str = "grace-72+kasan";

/// The metrics that get verdicts. Verdicts on the other metrics would say the same: the waits of
/// all waiters rise and fall with those that perf shows, and the waits at all call sites with those
/// at free_pcppages_bulk.
const COMPARED: [Metric; 10] = [
    PERF_CONTENTIONS,
    PERF_TOTAL_WAIT,
    PERF_MAX_WAIT,
    PERF_MEAN_WAIT,
    CONTENTIONS,
    PER_RETURNED,
    DECAY_CONTENTIONS,
    DECAYED,
    PER_DECAYED,
    STARTING_TOGETHER,
];

const SCHEDULES: [&str; 6] = [
    "round-jiffies",
    "aligned",
    "slowed",
    "stretched",
    "phased-wheel",
    "phased",
];
/// The schedules that also run with our shepherd: Linux's, the patch's and ours. With the other
/// schedules, which only separate causes, the shepherd would be a second change.
const WITH_OUR_SHEPHERD: [&str; 3] = ["round-jiffies", "stretched", "phased"];

/// Every schedule with Linux's shepherd, Linux first, then three of these schedules with our
/// shepherd. All designs batch frees, as Linux did at the time of the mailing-list thread.
fn designs() -> Result<Vec<Named>, Error> {
    let linux = SCHEDULES.map(|schedule| format!("{schedule}+shepherd-at-once"));
    let ours = WITH_OUR_SHEPHERD.map(|schedule| format!("{schedule}+shepherd-phased"));
    variants_of("patched", linux.into_iter().chain(ours))
}

fn conclude(run: &Run<'_, Scene>) -> Result<(Vec<Table>, Finding), Error> {
    let mut tables = vec![causes::table(&run.results), spread(run)];
    if run.machine != MAPPED {
        return Ok((tables, causes::finding(&run.results)));
    }
    tables.extend(run.cards()?);
    let profile = &run.scene.profile;
    tables.push(crowding::measure(profile, run.options, run.progress)?.table());
    tables.extend(regime::measure(profile, run.options, run.progress)?.tables());
    let family = family::measure(run)?;
    let finding = family.finding(&run.results);
    // The tables about all workloads come before the tables about the main workload.
    tables.splice(..0, family.tables());
    Ok((tables, finding))
}

/// A table that shows how much the number of contentions differs between single runs. This matters
/// because a published number comes from a single run.
fn spread(run: &Run<'_, Scene>) -> Table {
    let row = |design: &Named| {
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

/// The table that shows whether the verdicts hold at every card. At the low card, each price is the
/// lowest of its range; at the high card, it is the highest.
const CARDS: Cards<Scene> = Cards {
    title: "Contentions of bursts against round-jiffies+shepherd-at-once, at each cost card",
    note: "A verdict that changes between cards is fragile.",
    effort: Effort::Full,
    with_mid: true,
    pairs: &[
        (BASELINE, SLOWED, |_| vec![CONTENTIONS]),
        (BASELINE, PATCH, |_| vec![CONTENTIONS]),
        (BASELINE, OURS, |_| vec![CONTENTIONS]),
    ],
    columns: &[
        ("card", cards::card),
        ("design", cards::b),
        ("ratio", cards::ratio),
        ("verdict", cards::verdict),
    ],
};
