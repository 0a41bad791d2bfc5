//! `reproduce vmstat`: what does staggering the per-CPU vmstat work gain, and why?
//!
//! The thread measured one patch on one machine: 872 contentions at `free_pcppages_bulk` became
//! 117. The patch does two things at once, and the premise it starts from ("all CPUs fire
//! together") holds only in groups. So the experiment takes the causes apart: phase, interval,
//! timer wheel, shepherd; it compares each with Linux, with everything else equal.
//!
//! `scene`: the workload and its metrics. `causes`: one cause at a time, and the finding.
//! `crowding`: which CPUs fire together, by tick rate. `regime`: how long a drain must be to
//! matter.

mod causes;
mod crowding;
mod regime;
mod scene;

use plimsoll_sim::profile::{Card, Profile};

use self::scene::{Scene, metrics};
use super::Experiment;
use crate::catalog::designs::{self, Named};
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::measure::metric::Metric;
use crate::measure::stats;
use crate::report::{Report, Table, VerdictRow};
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;

/// The experiment's entry in the catalog.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "vmstat",
    title: "what does staggering the per-CPU vmstat work gain, and why?",
    run,
};

/// The design of Linux, with which every cause is compared. Frees were batched when the thread
/// measured.
pub(super) const BASELINE: &str = "round-jiffies+shepherd-at-once";
/// The patch as posted.
pub(super) const PATCH: &str = "stretched+shepherd-at-once";

/// The machine whose schedules are mapped by tick rate and drain length. The map itself scales the
/// price of a page, so a second machine that differs only in prices would repeat it.
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

fn run(options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
    let machines: &[&str] = match options.effort {
        Effort::Full => &[MAPPED, "grace-72"],
        Effort::Quick => &[MAPPED],
    };
    machines
        .iter()
        .map(|machine| report(machine, options, progress))
        .collect()
}

fn report(machine: &str, options: &Options, progress: &Progress) -> Result<Report, Error> {
    let card = options.card.unwrap_or(Card::Mid);
    let profile = Profile::load(machine, card)?;
    let designs = designs()?;
    let scene = Scene::of(options.effort);
    progress.start(format!("vmstat on {machine}"));
    let runs = Comparison::run(&designs, options, progress, |case| {
        scene.measure(&profile, &case.design.design, case.seed)
    })?;
    let mut report = Report::new("vmstat", machine, card, runs.seeds(), runs.hash());
    report.rows = runs.rows(|design, metric| published(machine, design, metric));
    report.verdicts = runs.verdicts(0);
    let causes = causes::Causes::of(&report.verdicts);
    report.tables.push(causes.table());
    report.tables.push(spread(&runs, &designs));
    if options.effort == Effort::Full && options.card.is_none() {
        report
            .tables
            .push(cards(machine, &scene, &report.verdicts, options, progress)?);
    }
    let schedules = match machine {
        MAPPED => Some((
            crowding::measure(&profile, options, progress)?,
            regime::measure(&profile, options, progress)?,
        )),
        _ => None,
    };
    report.finding = causes.finding(schedules.as_ref());
    if let Some((crowding, regime)) = schedules {
        report.tables.push(crowding.table());
        report.tables.extend(regime.tables());
    }
    Ok(report)
}

/// Every schedule with every shepherd, Linux first.
fn designs() -> Result<Vec<Named>, Error> {
    let pairs = SCHEDULES
        .iter()
        .flat_map(|schedule| SHEPHERDS.iter().map(move |shepherd| (schedule, shepherd)));
    pairs
        .map(|(schedule, shepherd)| named(&format!("{schedule}+{shepherd}")))
        .collect()
}

/// A design of this experiment. All of them batch frees, as Linux did when the thread measured.
fn named(name: &str) -> Result<Named, Error> {
    let design = designs::find(&format!("patched+{name}"))?.design;
    Ok(Named {
        name: name.to_owned(),
        design,
    })
}

/// The thread's figures, from a 72-CPU arm64 machine with KASAN. The maxima as posted were swapped;
/// these are as the author corrected them.
fn published(machine: &str, design: &str, metric: &Metric) -> Option<f64> {
    if machine != "grace-72+kasan" {
        return None;
    }
    let [linux, patch] = match &*metric.name {
        "perf_contentions" => [872.0, 117.0],
        "total_wait_ns" => [199_430_000.0, 80_760_000.0],
        "max_wait_ns" => [35_760_000.0, 4_190_000.0],
        _ => return None,
    };
    match design {
        BASELINE => Some(linux),
        PATCH => Some(patch),
        _ => None,
    }
}

/// A table of how much single runs differ, because a published count is one such run.
fn spread(runs: &Comparison, designs: &[Named]) -> Table {
    let row = |(nth, design): (usize, &Named)| {
        let values: Vec<f64> = runs
            .samples(nth)
            .filter_map(|sample| sample.value(&metrics::CONTENTIONS))
            .collect();
        let spread = stats::Spread::of(&values)?;
        let percent = spread.variation_percent().unwrap_or(0.0);
        let ends = values
            .iter()
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| {
                (low.min(*value), high.max(*value))
            });
        Some(vec![
            design.name.clone(),
            format!("{:.0} ± {:.0}", spread.mean, spread.deviation),
            format!("{percent:.0} %"),
            format!("{:.0} to {:.0}", ends.0, ends.1),
        ])
    };
    Table {
        title: "How much single runs differ".to_owned(),
        note: "Contentions at free_pcppages_bulk over the seeds. A published count is one run."
            .to_owned(),
        columns: ["design", "mean ± sd", "sd / mean", "from … to"]
            .map(str::to_owned)
            .to_vec(),
        rows: designs.iter().enumerate().filter_map(row).collect(),
    }
}

/// A table of whether the verdicts survive if every cost is at the end of its range. `mid` has run
/// already.
fn cards(
    machine: &str,
    scene: &Scene,
    mid: &[VerdictRow],
    options: &Options,
    progress: &Progress,
) -> Result<Table, Error> {
    const DESIGNS: [&str; 4] = [
        BASELINE,
        "slowed+shepherd-at-once",
        PATCH,
        "phased+shepherd-phased",
    ];
    let designs: Vec<Named> = DESIGNS.into_iter().map(named).collect::<Result<_, _>>()?;
    let at = |card: Card| {
        let profile = Profile::load(machine, card)?;
        let runs = Comparison::run(&designs, options, progress, |case| {
            scene.measure(&profile, &case.design.design, case.seed)
        })?;
        Ok::<_, Error>(runs.verdicts(0))
    };
    let (low, high) = (at(Card::Low)?, at(Card::High)?);
    let by_card = [
        (Card::Low, &low[..]),
        (Card::Mid, mid),
        (Card::High, &high[..]),
    ];
    let rows = by_card.into_iter().flat_map(|(card, verdicts)| {
        let shown = verdicts.iter().filter(|row| {
            row.metric.name == metrics::CONTENTIONS.name && DESIGNS.contains(&row.b.as_str())
        });
        shown.map(move |row| {
            vec![
                card.name().to_owned(),
                row.b.clone(),
                crate::report::value::human_ratio(&row.comparison.ratio),
                row.comparison.verdict.to_string(),
            ]
        })
    });
    Ok(Table {
        title: format!("Contentions against {BASELINE}, at each cost card"),
        note: "A verdict that changes between cards is fragile.".to_owned(),
        columns: ["card", "design", "ratio", "verdict"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
    })
}
