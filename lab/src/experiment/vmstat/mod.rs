//! `reproduce vmstat`: what is gained by staggering the per-CPU vmstat work, and why?
//!
//! The mailing-list thread measured one patch on one machine: contentions at `free_pcppages_bulk`
//! fell from 872 to 117. The patch makes two changes at once. Its author assumes that "all CPUs
//! fire together", but in fact the timers of the CPUs fire in groups: only those of one group fire
//! together. The experiment therefore separates the causes: phase, interval, timer wheel and
//! shepherd. For each cause, it compares Linux with a design that differs from Linux only in this
//! cause.
//!
//! The submodule `scene` has the workload and its metrics. `causes` has the table of one cause at a
//! time, and the finding. `crowding` counts the CPUs that fire together, by tick rate. `regime`
//! shows how long a drain must be to matter. `published` has the published figures.

mod causes;
mod crowding;
mod published;
mod regime;
mod scene;

use self::scene::{CONTENTIONS, METRICS, Scene};
use super::Experiment;
use super::declared::{
    Cards, Clock, Declaration, Finding, OTHERS, Run, cards, metrics_of, variants_of,
};
use crate::catalog::designs::Named;
use crate::error::Error;
use crate::measure::stats;
use crate::report::{Table, tabulate};
use crate::run::options::Effort;

/// The experiment's entry in the catalog.
pub(super) static EXPERIMENT: &dyn Experiment = &DECLARATION;

static DECLARATION: Declaration<Scene> = Declaration {
    name: "vmstat",
    question: "what does staggering the per-CPU vmstat work gain, and why?",
    machines: &[MAPPED, "grace-72"],
    clock: Clock::Virtual,
    designs,
    verdicts: &[(BASELINE, OTHERS)],
    published: published::PUBLISHED,
    setup: Scene::new,
    metrics: |_| metrics_of(METRICS),
    shown: None,
    compared: None,
    measure: |scene, case| (scene.measure(&case.design.design, case.seed), ()),
    cards: Some(&CARDS),
    conclude,
};

/// The design of Linux, with which every cause is compared. It batches frees, as Linux did at the
/// time of the mailing-list thread.
const BASELINE: &str = "round-jiffies+shepherd-at-once";
/// The patch as it was posted.
const PATCH: &str = "stretched+shepherd-at-once";
const OURS: &str = "phased+shepherd-phased";
/// The designs with only one of the patch's two changes: the longer interval (`SLOWED`), or the
/// phases (`PHASED_WHEEL`).
const SLOWED: &str = "slowed+shepherd-at-once";
const PHASED_WHEEL: &str = "phased-wheel+shepherd-at-once";

/// The machine for which the report also has tables by tick rate and by drain length. The runs for
/// the table by drain length multiply the price of freeing a page by several factors. So a second
/// machine that differs from this one only in its prices would give the same table.
const MAPPED: &str = "grace-72+kasan";

const SCHEDULES: [&str; 6] = [
    "round-jiffies",
    "aligned",
    "slowed",
    "stretched",
    "phased-wheel",
    "phased",
];
const SHEPHERDS: [&str; 2] = ["shepherd-at-once", "shepherd-phased"];

/// Every schedule with every shepherd, Linux first. All designs batch frees, as Linux did at the
/// time of the mailing-list thread.
fn designs() -> Result<Vec<Named>, Error> {
    let with = |schedule| SHEPHERDS.map(|shepherd| format!("{schedule}+{shepherd}"));
    variants_of("patched", SCHEDULES.into_iter().flat_map(with))
}

fn conclude(run: &Run<'_, Scene>) -> Result<(Vec<Table>, Finding), Error> {
    let mut tables = vec![causes::table(&run.results), spread(run)];
    tables.extend(run.cards()?);
    if run.machine == MAPPED {
        let profile = &run.scene.profile;
        tables.push(crowding::measure(profile, run.options, run.progress)?.table());
        tables.extend(regime::measure(profile, run.options, run.progress)?.tables());
    }
    Ok((tables, causes::finding(&run.results)))
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
        "How much single runs differ",
        "Contentions at free_pcppages_bulk over the seeds. A published count is one run.",
        &run.designs.iter().map(row).collect::<Vec<_>>(),
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
    title: "Contentions against round-jiffies+shepherd-at-once, at each cost card",
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
