//! `reproduce oom-storm`: from an allocation that failed to one that succeeded, how long is it?
//!
//! Other experiments measure the parts of an OOM kill: how long a selection takes, whether it is
//! right, how soon a dead process is gone. Here the whole of it happens on one machine, with real
//! zones, lists, page tables and counters, while allocators wait: lists are drained, a victim is
//! selected and killed, it exits or the reaper empties it, and ticks pass in between.
//!
//! `scene`: the storms, the designs and the metrics. `tables`: the parts of each stall.
//! `finding`: the paragraph that follows.

mod finding;
mod scene;
mod tables;

use plimsoll_sim::profile::{Card, Profile};

use self::scene::{CROWD, EXITS, REAPINGS, Scene, StormDesign, metrics};
use super::Experiment;
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::measure::metric::Metric;
use crate::measure::stats::{self, Comparison as Compared, Estimate};
use crate::report::Report;
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;

/// The experiment's entry in the catalog.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "oom-storm",
    title: "how long is it from an allocation that failed to one that succeeds?",
    run,
};

const MACHINE: &str = "epyc-9654-256";

/// The metrics that have a row of their own for each design; tables have the rest.
const SHOWN: [Metric; 4] = [
    metrics::WAITED,
    metrics::WORST,
    metrics::KILLS,
    metrics::FREE,
];

/// Designs that ran in the same scenes, and their samples.
struct Ran {
    designs: Vec<StormDesign>,
    runs: Comparison,
}

fn run(options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
    let card = options.card.unwrap_or(Card::Mid);
    let profile = Profile::load(MACHINE, card)?;
    let scenes = Scene::all(options.effort);
    progress.start(format!("oom-storm on {MACHINE}"));
    let ran = Ran::new(StormDesign::all(), &scenes, &profile, options, progress)?;
    progress.start(format!(
        "oom-storm on {MACHINE}, selectors over other counters"
    ));
    let two = [scenes[EXITS].clone(), scenes[CROWD].clone()];
    let swapped = Ran::new(StormDesign::swapped(), &two, &profile, options, progress)?;

    let mut report = Report::new(
        "oom-storm",
        MACHINE,
        card,
        ran.runs.seeds(),
        ran.runs.hash(),
    );
    let shown: Vec<Metric> = scenes
        .iter()
        .flat_map(|scene| SHOWN.map(|metric| scene.metric(&metric)))
        .collect();
    report.rows = ran.runs.rows(|_, _| None);
    report.rows.retain(|row| shown.contains(&row.metric));
    report.verdicts = ran.verdicts(&shown);
    report.tables.push(tables::scenes(&scenes));
    for scene in &scenes {
        report.tables.push(tables::parts(&ran, scene));
    }
    report.tables.push(tables::kills(&ran, &scenes));
    report.tables.push(tables::reaping(&ran, &scenes));
    report.tables.push(tables::swapped(&swapped, &two));
    if options.effort == Effort::Full && options.card.is_none() {
        report.tables.push(tables::cards(&ran, options, progress)?);
    }
    report.finding = finding::finding(&ran, &swapped, &scenes);
    Ok(vec![report])
}

impl Ran {
    fn new(
        designs: Vec<StormDesign>,
        scenes: &[Scene],
        profile: &Profile,
        options: &Options,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let runs = Comparison::run(&designs, options, progress, |case| {
            scene::measure(scenes, profile, case)
        })?;
        Ok(Self { designs, runs })
    }

    /// Compares Linux, the patches and ours as wholes; then, for each selector, our way of reaping
    /// with Linux's first one.
    fn verdicts(&self, shown: &[Metric]) -> Vec<crate::report::VerdictRow> {
        let wholes: Vec<usize> = StormDesign::wholes()
            .into_iter()
            .map(|whole| self.position(whole))
            .collect();
        let mut pairs = vec![
            (wholes[0], wholes[1]),
            (wholes[0], wholes[2]),
            (wholes[1], wholes[2]),
        ];
        for first in (0..self.designs.len()).step_by(REAPINGS.len()) {
            pairs.push((first, first + REAPINGS.len() - 1));
        }
        let rows = pairs
            .into_iter()
            .flat_map(|(a, b)| self.runs.verdicts_between(a, b));
        rows.filter(|row| shown.contains(&row.metric)).collect()
    }

    fn position(&self, design: StormDesign) -> usize {
        let found = self.designs.iter().position(|it| *it == design);
        found.expect("it ran")
    }

    fn values(&self, design: usize, metric: &Metric) -> Vec<f64> {
        let samples = self.runs.samples(design);
        samples.filter_map(|sample| sample.value(metric)).collect()
    }

    fn estimate(&self, design: usize, metric: &Metric) -> Option<Estimate> {
        stats::estimate(&self.values(design, metric))
    }

    fn median(&self, design: usize, metric: &Metric) -> f64 {
        stats::median(&self.values(design, metric)).unwrap_or(0.0)
    }

    /// The ratio of B to A, paired by seed.
    fn compare(&self, a: usize, b: usize, metric: &Metric) -> Option<Compared> {
        stats::compare(&self.values(a, metric), &self.values(b, metric))
    }
}
